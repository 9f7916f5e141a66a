/* SPDX-License-Identifier: MIT */
/* Copies between devices: Loch finds the direction from the addresses, or checks a direction that is given. Work on a
 * stream continues after the call returns. A function is called on the host when the stream reaches it. */
#include <loch/loch.h>
#include <stdio.h>
#include <string.h>

#define BYTES ((size_t)1 << 20)

static void notify(void *user)
{
    *(int *)user = 1; /* must not call Loch: it notifies another thread */
}

/* Copies from the host to one device, to the other, and back, all on one stream of the first device, which takes part
 * in every copy. */
static int around(loch_stream *stream, char *host, char *near, char *far)
{
    /* A given direction is checked before anything is copied. */
    const loch_copy_options to_device = {.size = sizeof to_device, .direction = LOCH_HOST_TO_DEVICE, .stream = stream};
    const loch_copy_options across = {.size = sizeof across, .direction = LOCH_PEER_TO_PEER, .stream = stream};
    const loch_copy_options back = {
        .size = sizeof back, .direction = LOCH_DEVICE_TO_HOST, .stream = stream, .wait = LOCH_WAIT_END};
    char seen[64] = "";
    int told = 0;
    LOCH_CHECK(loch_copy_with(near, host, BYTES, &to_device));
    LOCH_CHECK(loch_copy_with(far, near, BYTES, &across));
    LOCH_CHECK(loch_fill_with(near, BYTES, "", 1, LOCH_OPTIONS(copy, .stream = stream, .wait = LOCH_WAIT_END)));
    LOCH_CHECK(loch_copy_with(near, far, BYTES, &across));
    LOCH_CHECK(loch_stream_call(stream, notify, &told));
    LOCH_CHECK(loch_copy_with(seen, near, sizeof seen, &back)); /* waits, also for work that was queued before */
    printf("there and back: \"%s\"; the host was %s\n", seen, told ? "told" : "not told");
    return told && !strcmp(seen, host);
}

/* Tries a wrong direction and a copy that is too long: nothing is copied, and the sentence says why. */
static int mistakes(char *host, char *near)
{
    const loch_copy_options wrong = {.size = sizeof wrong, .direction = LOCH_DEVICE_TO_HOST};
    const loch_status direction = loch_copy_with(near, host, BYTES, &wrong);
    printf("%s\n", loch_error_get()->sentence);
    const loch_status range = loch_copy(near + 1, host, BYTES);
    printf("%s\n", loch_error_get()->sentence);
    return direction == LOCH_E_INVALID && range == LOCH_E_OUT_OF_RANGE;
}

int main(void)
{
    LOCH_AUTO(device) first = NULL;
    LOCH_AUTO(device) second = NULL;
    LOCH_AUTO(stream) stream = NULL;
    LOCH_AUTO(allocator) here = NULL;
    LOCH_AUTO(allocator) near = NULL;
    LOCH_AUTO(allocator) far = NULL;
    const loch_attributes pinned = {.bits = LOCH_ATTRIBUTE_ON_HOST | LOCH_ATTRIBUTE_GPU_COMPATIBLE};
    void *host, *one, *other;
    int right = 0;
    LOCH_CHECK(loch_device_open("sim:64MiB,id=0", &first));
    LOCH_CHECK(loch_device_open("sim:64MiB,id=1", &second));
    LOCH_CHECK(loch_device_enable_peer(first, second)); /* without this, copies between them go through the host */
    LOCH_CHECK(loch_stream_create(first, NULL, &stream));
    LOCH_CHECK(loch_device_acquire_allocator(first, pinned, LOCH_FALLBACK_NONE, &here));
    LOCH_CHECK(loch_device_acquire_default(first, &near));
    LOCH_CHECK(loch_device_acquire_default(second, &far));
    LOCH_CHECK(loch_alloc(here, BYTES, &host)); /* pinned: a device copies it directly */
    LOCH_CHECK(loch_alloc(near, BYTES, &one));
    LOCH_CHECK(loch_alloc(far, BYTES, &other));
    memset(host, 0, BYTES);
    snprintf(host, BYTES, "copied by %s", loch_device_get_name(loch_stream_get_device(stream)));
    right += around(stream, host, one, other);
    right += mistakes(host, one);
    LOCH_CHECK(loch_free(here, host));
    LOCH_CHECK(loch_free(near, one));
    LOCH_CHECK(loch_free(far, other));
    return right == 2 ? 0 : 1;
}

/* SPDX-License-Identifier: MIT */
/* Records what the program does with its memory: the latest events stay in a ring in memory, and are saved when
 * something is worth a look. `loch stats`, `loch report` and `loch convert` read the file. Without code:
 * LOCH_TRACE=file records the whole process. */
#include <loch/loch.h>
#include <stdio.h>
#include <unistd.h>

/* One request of a server: takes memory, and now and then far too much. */
static loch_status serve(loch_allocator *pool, int request)
{
    void *input, *cache;
    const size_t bytes = request == 7 ? (size_t)300 << 20 : (size_t)1 << 20;
    LOCH_RETURN(loch_alloc(pool, 4096, &input));
    const loch_status status = loch_alloc(pool, bytes, &cache);
    if (status == LOCH_OK) LOCH_RETURN(loch_free(pool, cache));
    LOCH_RETURN(loch_free(pool, input));
    return status;
}

int main(void)
{
    LOCH_AUTO(device) device = NULL;
    LOCH_AUTO(allocator) pool = NULL;
    char path[64];
    LOCH_CHECK(loch_device_open("sim:256MiB", &device));
    LOCH_CHECK(loch_pool_create(device, "requests", NULL, &pool));

    const loch_recorder_options options = {.size = sizeof options, .ring_bytes = (size_t)8 << 20};
    LOCH_CHECK(loch_recorder_start(&options));
    for (int request = 0; request < 10; request++) {
        if (serve(pool, request) == LOCH_OK) continue;
        printf("request %d failed: %s\n", request, loch_error_get()->sentence);
        snprintf(path, sizeof path, "/tmp/loch-example-%ld.loch", (long)getpid());
        LOCH_CHECK(loch_recorder_save(path)); /* what led to it; the recording goes on */
        printf("saved what led to it; look at it with: loch stats FILE\n");
        (void)unlink(path);
    }
    LOCH_CHECK(loch_recorder_stop());
    return 0;
}

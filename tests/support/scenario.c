/* SPDX-License-Identifier: MIT */
/* The scenario. Host memory and counters that queued work touches are static: after a wait that failed, work may still
 * land when the run is over. */
#include "device/virtual.h"
#include "scenario.h"
#include "test.h"

#include <pthread.h>
#include <unistd.h>

#define BYTES (64 * TEST_KIB)
#define STEP(call)                                                                                                     \
    do {                                                                                                               \
        loch_error_clear();                                                                                            \
        if (!scenario_note(s, (call), #call)) goto done;                                                               \
    } while (0)

/* For frees: continues, and remembers the first failure. */
#define BACK(call)                                                                                                     \
    do {                                                                                                               \
        if ((call) != LOCH_OK && !s->run->kept) s->run->kept = #call;                                                  \
    } while (0)

typedef struct scenario {
    test_scenario *run;
    loch_device *device, *other;
    loch_device_properties properties;
    loch_stream *stream, *second;
    loch_event *event;
    bool has_data;
} scenario;

static char scenario_host[BYTES] __attribute__((aligned(4096)));
static char scenario_back[BYTES] __attribute__((aligned(4096)));
static int scenario_calls;

static void scenario_count(void *user)
{
    *(int *)user += 1;
}

static bool scenario_note(scenario *s, loch_status status, const char *call)
{
    if (status == LOCH_OK) return true;
    s->run->status = status;
    s->run->call = call;
    s->run->error = *loch_error_get();
    return false;
}

static bool scenario_can(const scenario *s, uint32_t capabilities)
{
    return (s->properties.capabilities & capabilities) == capabilities;
}

/* A query that finds work under way has done its job. */
static loch_status scenario_not_busy(loch_status status)
{
    return status == LOCH_E_BUSY ? LOCH_OK : status;
}

/* Compares memory with a pattern: through a copy, so it can fail like one. */
static loch_status scenario_compare(const scenario *s, const void *from, size_t bytes, uint64_t seed)
{
    memset(scenario_back, 0, bytes);
    loch_status status = loch_copy(scenario_back, from, bytes);
    if (status != LOCH_OK || !s->has_data || test_pattern_differs(scenario_back, bytes, seed) == bytes) return status;
    return loch_error_set(LOCH_E_CORRUPT, NULL, 0, "memory does not hold what was copied there");
}

/* Waits for work that is still queued and uses memory that goes. When even this fails, the device is beyond saving. */
static void scenario_await(const scenario *s)
{
    if (loch_device_sync(s->device) != LOCH_OK && loch_device_sync(s->device) != LOCH_OK) loch_error_clear();
}

/* --- one function for each group; each gives back what it took --- */

static void scenario_raw(scenario *s)
{
    void *block = NULL, *pinned = NULL, *managed = NULL, *peer = NULL;
    const loch_pitched rows = {16, 4, 2, 32, 160, 24, 128}, other_rows = {16, 4, 1, 32, 0, 24, 0};
    bool registered = false;
    loch_address_info info = {.size = sizeof info};
    loch_memory_info memory = {.size = sizeof memory};

    STEP(loch_device_calculate_memory(s->device, &memory));
    STEP(loch_raw_alloc(s->device, LOCH_MEMORY_DEVICE, BYTES, 0, &block));
    STEP(loch_raw_alloc(s->other, LOCH_MEMORY_DEVICE, BYTES, 0, &peer));
    if (scenario_can(s, LOCH_CAN_PINNED)) STEP(loch_raw_alloc(s->device, LOCH_MEMORY_PINNED, BYTES, 0, &pinned));
    if (scenario_can(s, LOCH_CAN_MANAGED)) STEP(loch_raw_alloc(s->device, LOCH_MEMORY_MANAGED, BYTES, 0, &managed));
    if (scenario_can(s, LOCH_CAN_REGISTER)) {
        STEP(loch_raw_register(s->device, scenario_host, BYTES));
        registered = true;
    }
    STEP(loch_address_query(block, &info));
    STEP(loch_address_query(scenario_back, &info));
    test_pattern_write(scenario_host, BYTES, 1);
    STEP(loch_copy(block, scenario_host, BYTES));
    STEP(loch_copy((char *)block + 100, block, BYTES - 100)); /* a small gap: through a scratch block */
    STEP(loch_copy(block, (char *)block + 100, BYTES - 100));
    STEP(loch_copy((char *)block + BYTES / 2, block, BYTES / 2));
    STEP(scenario_compare(s, block, BYTES / 2, 1));
    STEP(loch_copy(peer, block, BYTES));
    STEP(loch_copy(block, peer, BYTES));
    STEP(scenario_compare(s, block, BYTES / 2, 1));
    STEP(loch_copy_pitched(peer, block, &rows, NULL));
    STEP(loch_copy_pitched(scenario_host, block, &rows, NULL));
    STEP(loch_copy_pitched((char *)block + BYTES / 2, block, &rows, NULL));
    STEP(loch_copy_pitched(scenario_host + 1, scenario_host, &other_rows, NULL)); /* through a block of its own */
    STEP(scenario_compare(s, block, BYTES / 2, 1));
    STEP(loch_fill(block, BYTES, "abcd", 4));
    if (pinned) STEP(loch_fill(pinned, BYTES, "ab", 2));
    if (managed) STEP(loch_fill(managed, BYTES, "a", 1));
done:
    if (registered) BACK(loch_raw_unregister(scenario_host));
    BACK(loch_raw_free(peer));
    BACK(loch_raw_free(managed));
    BACK(loch_raw_free(pinned));
    BACK(loch_raw_free(block));
}

static void scenario_streams(scenario *s)
{
    void *block = NULL, *pinned = NULL, *peer = NULL;
    loch_stream *thread = NULL, *wrapper = NULL;
    loch_event *start = NULL, *end = NULL, *across = NULL;
    loch_capture_info capture = {.size = sizeof capture};
    uint64_t ns;

    STEP(loch_raw_alloc(s->device, LOCH_MEMORY_DEVICE, BYTES, 0, &block));
    STEP(loch_raw_alloc(s->other, LOCH_MEMORY_DEVICE, BYTES, 0, &peer));
    if (scenario_can(s, LOCH_CAN_PINNED)) STEP(loch_raw_alloc(s->device, LOCH_MEMORY_PINNED, BYTES, 0, &pinned));
    if (scenario_can(s, LOCH_CAN_TIMING)) {
        STEP(loch_event_create(s->device, LOCH_EVENT_TIMED, &start));
        STEP(loch_event_create(s->device, LOCH_EVENT_TIMED, &end));
        STEP(loch_event_record(start, s->stream));
    }
    STEP(loch_event_create(s->other, LOCH_EVENT_PLAIN, &across));
    STEP(loch_copy_on(block, scenario_host, BYTES, s->stream));
    if (pinned) STEP(loch_copy_on(pinned, block, BYTES, s->stream));
    STEP(loch_event_record(s->event, s->stream));
    STEP(loch_stream_wait(s->second, s->event));
    STEP(loch_copy_on((char *)block + 100, block, BYTES - 100, s->second));
    STEP(loch_stream_call(s->second, scenario_count, &scenario_calls));
    STEP(scenario_not_busy(loch_stream_query(s->second)));
    STEP(scenario_not_busy(loch_event_query(s->event)));
    STEP(loch_stream_sync(s->second));
    STEP(loch_event_record(across, NULL));
    STEP(loch_stream_wait(s->stream, across));
    STEP(loch_copy_on(scenario_back, block, BYTES, s->stream));
    if (!scenario_can(s, LOCH_CAN_HOST_ACCESS)) STEP(loch_copy_on(peer, block, BYTES, s->stream));
    STEP(loch_fill_on(block, BYTES, "abcd", 4, s->stream));
    if (end) {
        STEP(loch_event_record(end, s->stream));
        STEP(loch_event_sync(end));
        STEP(loch_event_elapsed(start, end, &ns));
    }
    STEP(loch_stream_query_capture(s->stream, &capture));
    STEP(loch_stream_require_thread_default(s->device, &thread));
    STEP(loch_stream_sync(s->stream));
    STEP(loch_fill_on(block, BYTES, "x", 1, thread));
    STEP(loch_stream_sync(thread));
    if (scenario_can(s, LOCH_CAN_ASYNC)) {
        STEP(loch_stream_wrap(s->device, loch_stream_get_native(s->stream), &wrapper));
        STEP(loch_stream_sync(wrapper));
    }
    STEP(loch_device_sync(s->device));
done:
    scenario_await(s);
    loch_stream_close(wrapper);
    loch_event_destroy(start);
    loch_event_destroy(end);
    loch_event_destroy(across);
    BACK(loch_raw_free(peer));
    BACK(loch_raw_free(pinned));
    BACK(loch_raw_free(block));
}

static void scenario_mappings(scenario *s)
{
    const size_t granule = s->properties.granule_bytes;
    void *here = NULL, *there = NULL;
    loch_handle *handles[3] = {NULL};
    bool mapped[4] = {false};
    char *at[4];

    STEP(loch_virtual_reserve(s->device, 6 * granule, 0, &here));
    STEP(loch_virtual_reserve(s->device, 2 * granule, 4 * granule, &there));
    for (size_t i = 0; i < 4; i++)
        at[i] = (char *)here + i * granule;
    for (size_t i = 0; i < 3; i++) {
        STEP(loch_handle_create(s->device, granule, NULL, &handles[i]));
        STEP(loch_virtual_map(at[i], handles[i], NULL, 0));
        mapped[i] = true;
    }
    test_pattern_write(scenario_host, BYTES, 2);
    STEP(loch_copy(at[1] - BYTES / 2, scenario_host, BYTES));
    STEP(scenario_compare(s, at[1] - BYTES / 2, BYTES, 2));
    STEP(loch_copy(at[0], scenario_host, BYTES));
    if (scenario_can(s, LOCH_CAN_ALIAS)) {
        STEP(loch_virtual_map(at[3], handles[0], NULL, 0));
        mapped[3] = true;
        STEP(scenario_compare(s, at[3], BYTES, 2));
    }
    STEP(loch_virtual_unmap(at[0]));
    mapped[0] = false;
    if (!mapped[3]) {
        STEP(loch_virtual_map(at[3], handles[0], NULL, 0));
        mapped[3] = true;
    }
    STEP(scenario_compare(s, at[3], BYTES, 2));
    if (scenario_can(s, LOCH_CAN_REMAP)) {
        STEP(lochi_virtual_remap(at[3], there));
        at[3] = there;
        STEP(scenario_compare(s, at[3], BYTES, 2));
    }
    loch_handle_destroy(handles[1]);
    handles[1] = NULL;
    STEP(loch_fill(at[1], BYTES, "d", 1));
done:
    scenario_await(s);
    for (size_t i = 0; i < 4; i++)
        if (mapped[i]) BACK(loch_virtual_unmap(at[i]));
    for (size_t i = 0; i < 3; i++)
        loch_handle_destroy(handles[i]);
    BACK(loch_virtual_unreserve(there));
    BACK(loch_virtual_unreserve(here));
}

static void scenario_share(scenario *s)
{
    const size_t granule = s->properties.granule_bytes;
    const loch_handle_options options = {.size = sizeof options, .share = LOCH_SHARE_FD};
    loch_handle *handle = NULL, *imported = NULL;
    void *addresses = NULL;
    int descriptor = -1;
    bool mapped = false;
    STEP(loch_virtual_reserve(s->device, granule, 0, &addresses));
    STEP(loch_handle_create(s->device, granule, &options, &handle));
    STEP(loch_handle_export(handle, LOCH_SHARE_FD, sizeof descriptor, &descriptor));
    STEP(loch_handle_import(s->device, LOCH_SHARE_FD, &descriptor, granule, &imported));
    STEP(loch_virtual_map(addresses, imported, NULL, 0));
    mapped = true;
    STEP(loch_fill(addresses, BYTES, "s", 1));
done:
    scenario_await(s);
    if (mapped) BACK(loch_virtual_unmap(addresses));
    loch_handle_destroy(imported);
    loch_handle_destroy(handle);
    int cancel; /* a thread may run this that must not be cancelled here: closing is the program's, not the library's */
    pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &cancel);
    if (descriptor >= 0) close(descriptor);
    pthread_setcancelstate(cancel, NULL);
    BACK(loch_virtual_unreserve(addresses));
}

void test_scenario_run(test_scenario *run, const char *name, const char *other)
{
    scenario all = {.run = run, .properties.size = sizeof all.properties}, *s = &all;
    *run = (test_scenario){.status = LOCH_OK};
    s->has_data = strncmp(name, "sim:", 4) != 0 || !strstr(name, ",unbacked");

    STEP(loch_device_open(name, &s->device));
    STEP(loch_device_open(other, &s->other));
    STEP(loch_device_get_properties(s->device, &s->properties));
    STEP(loch_stream_create(s->device, NULL, &s->stream));
    STEP(loch_stream_create(s->device, NULL, &s->second));
    STEP(loch_event_create(s->device, LOCH_EVENT_PLAIN, &s->event));
    scenario_raw(s);
    if (run->status == LOCH_OK) scenario_streams(s);
    if (run->status == LOCH_OK && scenario_can(s, LOCH_CAN_VIRTUAL)) scenario_mappings(s);
    if (run->status == LOCH_OK && scenario_can(s, LOCH_CAN_SHARE_FD)) scenario_share(s);
done:
    loch_event_destroy(s->event);
    loch_stream_close(s->second);
    loch_stream_close(s->stream);
    loch_device_release(s->other);
    loch_device_release(s->device);
}

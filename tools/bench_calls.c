/* SPDX-License-Identifier: MIT */
/* `loch bench calls`: measures the cost of each driver call on a device. The output is a cost table that simulated
 * devices read (LOCH_SIM_COSTS, or costs=FILE), so that the costs of one machine can be simulated on another.
 *
 * The times are those that the library measures around each driver call. Every call is made BENCH_SAMPLES times; the
 * median counts. `map` includes the `access` for its own device, so `access` is printed as 0. */
#include "bench.h"
#include "json.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define BENCH_SAMPLES 21
#define BENCH_POINTS 4

static int calls_samples = BENCH_SAMPLES; /* fewer with --quick */

static const size_t bench_bytes[BENCH_POINTS] = {(size_t)2 << 20, (size_t)20 << 20, (size_t)64 << 20,
                                                 (size_t)512 << 20};

typedef struct bench_calls {
    loch_device *device;
    uint64_t samples[LOCH_CALL_COUNT][BENCH_POINTS][BENCH_SAMPLES];
    int counts[LOCH_CALL_COUNT][BENCH_POINTS];
    bool has_size[LOCH_CALL_COUNT]; /* calls that are measured at several sizes */
} bench_calls;

typedef struct calls_read {
    loch_call_count calls[LOCH_CALL_COUNT];
    size_t count; /* samples of each call, in the order of loch_driver_call */
} calls_read;

static loch_status calls_note(const loch_call_count *count, void *user)
{
    calls_read *read = user;
    read->calls[read->count++] = *count;
    return LOCH_OK;
}

/* Takes one sample of each call that was made since the last time: the mean of its times. */
static loch_status calls_collect(bench_calls *bench, int point)
{
    calls_read read = {.count = 0};
    loch_call_count *calls = read.calls;
    loch_status status = loch_device_walk_calls(bench->device, calls_note, &read);
    /* modelled separately, measured together */
    if (status == LOCH_OK) calls[LOCH_CALL_map].ns += calls[LOCH_CALL_access].ns;
    for (size_t i = 0; status == LOCH_OK && i < LOCH_CALL_COUNT; i++) {
        int *samples = &bench->counts[i][point];
        if (calls[i].count && i != LOCH_CALL_access && *samples < calls_samples)
            bench->samples[i][point][(*samples)++] = calls[i].ns / calls[i].count;
    }
    if (status == LOCH_OK) status = loch_device_measure_calls(bench->device, LOCH_MEASURE_ON);
    return status;
}

static loch_status calls_of_kind(loch_device *device, loch_memory_kind kind, size_t bytes)
{
    void *block;
    loch_status status = loch_raw_alloc(device, kind, bytes, 0, &block);
    return status == LOCH_OK ? loch_raw_free(block) : status;
}

static loch_status calls_registered(loch_device *device, size_t bytes)
{
    void *block = aligned_alloc(4096, bytes);
    if (!block) return loch_error_set(LOCH_E_HOST_MEMORY, NULL, 0, "no host memory for %zu bytes", bytes);
    memset(block, 1, bytes);
    loch_status status = loch_raw_register(device, block, bytes);
    if (status == LOCH_OK) status = loch_raw_unregister(block);
    free(block);
    return status;
}

static loch_status calls_virtual(loch_device *device, size_t bytes)
{
    void *address = NULL;
    loch_handle *handle = NULL;
    loch_status status = loch_virtual_reserve(device, bytes, 0, &address);
    if (status == LOCH_OK) status = loch_handle_create(device, bytes, NULL, &handle);
    if (status == LOCH_OK) status = loch_virtual_map(address, handle, NULL, 0);
    if (status == LOCH_OK) status = loch_virtual_unmap(address);
    loch_handle_destroy(handle);
    const loch_status unreserved = loch_virtual_unreserve(address);
    return status == LOCH_OK ? unreserved : status;
}

/* Measures calls whose cost depends on the size, in two groups: page-locking disturbs the calls right after it. */
static loch_status calls_device(loch_device *device, size_t bytes)
{
    loch_status status = calls_of_kind(device, LOCH_MEMORY_DEVICE, bytes);
    if (status == LOCH_OK && loch_device_can(device, LOCH_CAN_VIRTUAL)) status = calls_virtual(device, bytes);
    return status;
}

static loch_status calls_host(loch_device *device, size_t bytes)
{
    loch_status status = LOCH_OK;
    if (bytes > bench_bytes[2]) return LOCH_OK; /* page-locking of larger sizes takes seconds */
    if (loch_device_can(device, LOCH_CAN_PINNED)) status = calls_of_kind(device, LOCH_MEMORY_PINNED, bytes);
    if (status == LOCH_OK && loch_device_can(device, LOCH_CAN_MANAGED))
        status = calls_of_kind(device, LOCH_MEMORY_MANAGED, bytes);
    if (status == LOCH_OK && loch_device_can(device, LOCH_CAN_REGISTER)) status = calls_registered(device, bytes);
    return status;
}

/* Measures calls whose cost does not depend on a size: streams, events, small copies, queries. */
static loch_status calls_unsized(bench_calls *bench)
{
    loch_device *device = bench->device;
    loch_stream *first = NULL, *second = NULL;
    loch_event *start = NULL, *end = NULL;
    loch_capture_info capture = {.size = sizeof capture};
    loch_address_info address = {.size = sizeof address};
    loch_memory_info memory = {.size = sizeof memory};
    void *block = NULL;
    uint64_t ns;
    char host[64] = "";
    const loch_pitched rows = {64, 64, 1, 128, 0, 128, 0};
    loch_status status = loch_stream_create(device, NULL, &first);
    const loch_copy_options on_first = {.size = sizeof on_first, .stream = first};
    if (status == LOCH_OK) status = loch_stream_create(device, NULL, &second);
    if (status == LOCH_OK) status = loch_event_create(device, LOCH_EVENT_TIMED, &start);
    if (status == LOCH_OK) status = loch_event_create(device, LOCH_EVENT_TIMED, &end);
    if (status == LOCH_OK) status = loch_raw_alloc(device, LOCH_MEMORY_DEVICE, (size_t)2 << 20, 0, &block);
    if (status == LOCH_OK) status = loch_event_record(start, first);
    if (status == LOCH_OK) status = loch_fill_on(block, 4096, "", 1, first);
    if (status == LOCH_OK) status = loch_copy_on((char *)block + (1 << 20), block, 4096, first);
    if (status == LOCH_OK) status = loch_copy_pitched((char *)block + (1 << 20), block, &rows, &on_first);
    if (status == LOCH_OK) status = loch_event_record(end, first);
    if (status == LOCH_OK) status = loch_stream_wait(second, end);
    if (status == LOCH_OK) status = loch_stream_query_capture(first, &capture);
    if (status == LOCH_OK) status = loch_event_sync(end);
    if (status == LOCH_OK) status = loch_stream_sync(second);
    if (status == LOCH_OK) status = loch_event_query(end);
    if (status == LOCH_OK) status = loch_stream_query(first);
    if (status == LOCH_OK) status = loch_event_elapsed(start, end, &ns);
    if (status == LOCH_OK) status = loch_device_sync(device);
    if (status == LOCH_OK) status = loch_address_query(host, &address);
    if (status == LOCH_OK) status = loch_device_calculate_memory(device, &memory);
    loch_event_destroy(start);
    loch_event_destroy(end);
    loch_stream_close(first);
    loch_stream_close(second);
    const loch_status freed = loch_raw_free(block);
    return status == LOCH_OK ? freed : status;
}

/* Samples one group at every size, after one round that warms up. */
static loch_status calls_sample(bench_calls *bench, loch_status (*group)(loch_device *device, size_t bytes))
{
    loch_status status = LOCH_OK;
    for (int point = 0; status == LOCH_OK && point < BENCH_POINTS; point++) {
        status = group(bench->device, bench_bytes[point]);
        if (status == LOCH_OK) status = loch_device_measure_calls(bench->device, LOCH_MEASURE_ON);
        for (int i = 0; status == LOCH_OK && i < calls_samples; i++) {
            status = group(bench->device, bench_bytes[point]);
            if (status == LOCH_OK) status = calls_collect(bench, point);
        }
        tool_steps_next();
    }
    return status;
}

static loch_status calls_measure(bench_calls *bench)
{
    loch_status status = calls_unsized(bench); /* warms up */
    if (status == LOCH_OK) status = calls_sample(bench, calls_device);
    if (status == LOCH_OK) status = calls_sample(bench, calls_host);
    for (size_t call = 0; call < LOCH_CALL_COUNT; call++)
        bench->has_size[call] = bench->counts[call][0] > 0;
    for (int i = 0; status == LOCH_OK && i < calls_samples; i++) {
        status = calls_unsized(bench);
        if (status == LOCH_OK) status = calls_collect(bench, 0); /* samples of calls with a size are complete already */
    }
    return status;
}

static int calls_compare(const void *a, const void *b)
{
    const uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
    return (x > y) - (x < y);
}

static uint64_t calls_median(bench_calls *bench, size_t call, int point)
{
    const int count = bench->counts[call][point];
    qsort(bench->samples[call][point], (size_t)count, sizeof(uint64_t), calls_compare);
    return bench->samples[call][point][count / 2];
}

static void calls_print_text(bench_calls *bench)
{
    loch_device_properties properties = {.size = sizeof properties};
    if (loch_device_get_properties(bench->device, &properties) == LOCH_OK)
        printf("# nanoseconds of driver calls on %s (%s, driver %s), medians of %d\n",
               loch_device_get_name(bench->device), properties.model, properties.driver_version, calls_samples);
    for (size_t call = 0; call < LOCH_CALL_COUNT; call++) {
        if (call == LOCH_CALL_access && bench->counts[LOCH_CALL_map][0]) puts("access 0");
        if (!bench->counts[call][0]) continue;
        printf("%s", loch_driver_call_name((loch_driver_call)call));
        for (int point = 0; point < BENCH_POINTS && bench->counts[call][point]; point++) {
            if (bench->has_size[call]) printf(" %zuMiB:", bench_bytes[point] >> 20);
            printf("%s%llu", bench->has_size[call] ? "" : " ", (unsigned long long)calls_median(bench, call, point));
        }
        putchar('\n');
    }
}

static void calls_print_json(bench_calls *bench)
{
    json_writer json = {.file = stdout};
    json_open_object(&json, NULL);
    json_text(&json, "bench", "calls");
    json_text(&json, "device", loch_device_get_name(bench->device));
    json_open_object(&json, "calls");
    for (size_t call = 0; call < LOCH_CALL_COUNT; call++) {
        if (!bench->counts[call][0]) continue;
        json_open_array(&json, loch_driver_call_name((loch_driver_call)call));
        for (int point = 0; point < BENCH_POINTS && bench->counts[call][point]; point++) {
            json_open_object(&json, NULL);
            if (bench->has_size[call]) json_number(&json, "bytes", bench_bytes[point]);
            json_number(&json, "ns", calls_median(bench, call, point));
            json_close_object(&json);
        }
        json_close_array(&json);
    }
    json_close_object(&json);
    json_close_object(&json);
}

int tool_bench_calls(const tool_bench_options *options)
{
    static bench_calls bench; /* static because it is large; the program runs one command */
    if (options->is_quick) calls_samples = 1;
    loch_status status = loch_device_open(options->device, &bench.device);
    tool_steps_begin("calls", 2 * BENCH_POINTS + 1);
    if (status == LOCH_OK) status = calls_measure(&bench);
    tool_steps_end();
    if (status == LOCH_OK && options->is_json) calls_print_json(&bench);
    if (status == LOCH_OK && !options->is_json) calls_print_text(&bench);
    loch_device_release(bench.device);
    return status == LOCH_OK ? TOOL_DONE : tool_fail_status(status);
}

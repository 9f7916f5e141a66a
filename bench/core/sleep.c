/* SPDX-License-Identifier: MIT */
/* `core sleep`: measures how fast a pool goes to sleep and wakes, and compares it with plain copies of as many
 * bytes between the same places.
 *
 * Contents are saved in host memory that was allocated before: pinned memory if the device has it. Sleep and plain
 * copies alternate in every repetition; the median of each counts. */
#include "core.h"
#include "tools/json.h"

#include <loch/loch.h>
#include <loch/driver.h>
#include <loch/raw.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define SLEEP_REPETITIONS 5
#define SLEEP_BYTES ((size_t)8 << 30)
#define SLEEP_BYTES_HOST ((size_t)1 << 30) /* if the device's memory is host memory */
#define SLEEP_BYTES_MIN ((size_t)64 << 20)
#define SLEEP_BLOCK ((size_t)64 << 20)
#define SLEEP_BLOCKS_MAX (SLEEP_BYTES / SLEEP_BLOCK)

typedef struct sleep_bench {
    loch_device *device, *cpu;
    loch_device_properties properties;
    loch_allocator *pool, *kept; /* host memory for the contents, allocated once */
    void *blocks[SLEEP_BLOCKS_MAX];
    size_t blocks_count, bytes;
    int repetitions;
} sleep_bench;

/* Nanoseconds of the copy to the host and of the copy back. */
typedef struct sleep_times {
    uint64_t there_ns, back_ns;
} sleep_times;

/* --- opening and closing --- */

static loch_status sleep_open(sleep_bench *b, const char *name)
{
    loch_status status = loch_device_open(name, &b->device);
    b->properties.size = sizeof b->properties;
    if (status == LOCH_OK) status = loch_device_get_properties(b->device, &b->properties);
    if (status == LOCH_OK) status = loch_device_open("cpu", &b->cpu);
    return status;
}

/* Returns as many bytes as fit with room to spare, in whole blocks; 0 if that is too little. */
static size_t sleep_choose_bytes(const sleep_bench *b, bool is_quick)
{
    loch_memory_info device = {.size = sizeof device}, host = {.size = sizeof host};
    if (loch_device_calculate_memory(b->device, &device) != LOCH_OK ||
        loch_device_calculate_memory(b->cpu, &host) != LOCH_OK)
        return 0;
    size_t bytes = device.free_bytes < host.free_bytes ? device.free_bytes : host.free_bytes;
    bytes /= 4;
    const size_t most = loch_device_can(b->device, LOCH_CAN_HOST_ACCESS) ? SLEEP_BYTES_HOST : SLEEP_BYTES;
    if (bytes > most) bytes = most;
    if (is_quick && bytes > SLEEP_BYTES_MIN) bytes = SLEEP_BYTES_MIN;
    return bytes / SLEEP_BLOCK * SLEEP_BLOCK;
}

/* Allocates the blocks, touches all of them, and lets the other pool hold enough host memory for their contents. */
static loch_status sleep_take(sleep_bench *b)
{
    const bool has_pinned = loch_device_can(b->device, LOCH_CAN_PINNED);
    const loch_pool_options own = {.size = sizeof own, .handle_bytes = SLEEP_BLOCK};
    const loch_pool_options other = {.size = sizeof other,
                                     .kind = has_pinned ? LOCH_MEMORY_PINNED : LOCH_MEMORY_DEVICE,
                                     .handle_bytes = SLEEP_BLOCK};
    loch_status status = loch_pool_create(b->device, "sleeper", &own, &b->pool);
    if (status == LOCH_OK) status = loch_pool_create(has_pinned ? b->device : b->cpu, "kept", &other, &b->kept);
    while (status == LOCH_OK && b->blocks_count < b->bytes / SLEEP_BLOCK) {
        void **block = &b->blocks[b->blocks_count];
        status = loch_alloc(b->pool, SLEEP_BLOCK, block);
        if (status != LOCH_OK) break;
        b->blocks_count++;
        status = loch_fill(*block, SLEEP_BLOCK, "x", 1);
    }
    void *room = NULL;
    if (status == LOCH_OK) status = loch_alloc(b->kept, b->bytes, &room);
    if (room) memset(room, 1, b->bytes);
    if (status == LOCH_OK) status = loch_free(b->kept, room);
    return status;
}

static void sleep_close(sleep_bench *b)
{
    for (size_t i = 0; i < b->blocks_count; i++)
        if (loch_free(b->pool, b->blocks[i]) != LOCH_OK) tool_fail("%s", loch_error_get()->sentence);
    loch_allocator_release(b->pool);
    loch_allocator_release(b->kept);
    loch_device_release(b->cpu);
    loch_device_release(b->device);
}

/* --- measuring --- */

/* Copies all blocks, queued one after the other, and waits once. */
static loch_status sleep_copy(const sleep_bench *b, char *room, bool is_back, uint64_t *ns)
{
    loch_stream *stream = loch_stream_get_default(b->device);
    const uint64_t start_ns = loch_host_now_ns();
    loch_status status = LOCH_OK;
    for (size_t i = 0; i < b->blocks_count && status == LOCH_OK; i++) {
        char *host = room + i * SLEEP_BLOCK;
        status = is_back ? loch_copy_on(b->blocks[i], host, SLEEP_BLOCK, stream)
                         : loch_copy_on(host, b->blocks[i], SLEEP_BLOCK, stream);
    }
    if (status == LOCH_OK) status = loch_stream_sync(stream);
    *ns = loch_host_now_ns() - start_ns;
    return status;
}

static loch_status sleep_measure_plain(const sleep_bench *b, sleep_times *out)
{
    void *room;
    loch_status status = loch_alloc(b->kept, b->bytes, &room);
    if (status != LOCH_OK) return status;
    status = sleep_copy(b, room, false, &out->there_ns);
    if (status == LOCH_OK) status = sleep_copy(b, room, true, &out->back_ns);
    const loch_status freed = loch_free(b->kept, room);
    return status == LOCH_OK ? freed : status;
}

static loch_status sleep_measure(const sleep_bench *b, loch_sleep_contents contents, sleep_times *out)
{
    const bool has_pieces = contents != LOCH_SLEEP_DROP;
    const loch_sleep_options options = {
        .size = sizeof options, .contents = contents, .allocator = has_pieces ? b->kept : NULL};
    const uint64_t start_ns = loch_host_now_ns();
    loch_status status = loch_pool_sleep(b->pool, &options, NULL);
    const uint64_t asleep_ns = loch_host_now_ns();
    if (status == LOCH_OK) status = loch_pool_wake(b->pool, NULL);
    *out = (sleep_times){asleep_ns - start_ns, loch_host_now_ns() - asleep_ns};
    return status;
}

static int sleep_compare(const void *a, const void *b)
{
    const sleep_times *left = a, *right = b;
    const uint64_t x = left->there_ns + left->back_ns, y = right->there_ns + right->back_ns;
    return (x > y) - (x < y);
}

/* Writes the medians, by the sum of both directions. */
static loch_status sleep_measure_all(const sleep_bench *b, sleep_times *plain, sleep_times *kept, sleep_times *dropped)
{
    sleep_times times[3][SLEEP_REPETITIONS];
    loch_status status = LOCH_OK;
    tool_steps_begin("sleep", (size_t)b->repetitions + 1);
    for (int i = -1; i < b->repetitions && status == LOCH_OK; i++) { /* the first run warms up */
        const int at = i < 0 ? 0 : i;
        status = sleep_measure_plain(b, &times[0][at]);
        if (status == LOCH_OK) status = sleep_measure(b, LOCH_SLEEP_PINNED, &times[1][at]);
        if (status == LOCH_OK) status = sleep_measure(b, LOCH_SLEEP_DROP, &times[2][at]);
        tool_steps_next();
    }
    tool_steps_end();
    if (status != LOCH_OK) return status;
    sleep_times *const out[] = {plain, kept, dropped};
    for (size_t k = 0; k < 3; k++) {
        qsort(times[k], (size_t)b->repetitions, sizeof times[k][0], sleep_compare);
        *out[k] = times[k][b->repetitions / 2];
    }
    return LOCH_OK;
}

/* --- printing --- */

static double sleep_rate(const sleep_bench *b, const sleep_times *times)
{
    const uint64_t ns = times->there_ns + times->back_ns;
    return 2e9 * (double)b->bytes / (double)(ns ? ns : 1);
}

static void sleep_print_row(const sleep_bench *b, json_writer *json, const char *work, const sleep_times *times,
                            double plain)
{
    const double rate = sleep_rate(b, times);
    if (!json) {
        printf("%-10s %14.2f %14.2f %12.2f %8.3f\n", work, (double)times->there_ns / 1e6, (double)times->back_ns / 1e6,
               rate / 1e9, rate / plain);
        return;
    }
    json_open_object(json, NULL);
    json_text(json, "work", work);
    json_number(json, "there_ns", times->there_ns);
    json_number(json, "back_ns", times->back_ns);
    json_real(json, "bytes_per_s", rate);
    json_real(json, "ratio", rate / plain);
    json_close_object(json);
}

static void sleep_print(const sleep_bench *b, bool is_json, const sleep_times rows[3])
{
    static const char *const names[] = {"copy", "sleep", "dropped"};
    const double plain = sleep_rate(b, &rows[0]);
    json_writer writer = {.file = stdout}, *json = is_json ? &writer : NULL;
    if (json) {
        json_open_object(json, NULL);
        json_text(json, "benchmark", "sleep");
        json_text(json, "device", loch_device_get_name(b->device));
        json_text(json, "model", b->properties.model);
        json_number(json, "bytes", b->bytes);
        json_number(json, "handle_bytes", SLEEP_BLOCK);
        json_number(json, "repetitions", (uint64_t)b->repetitions);
        json_open_array(json, "results");
    } else {
        printf("%s (%s), %zu bytes in handles of %zu, medians of %d, beside plain copies\n\n",
               loch_device_get_name(b->device), b->properties.model, b->bytes, SLEEP_BLOCK, b->repetitions);
        printf("%-10s %14s %14s %12s %8s\n", "work", "there ms", "back ms", "GB/s", "ratio");
    }
    for (size_t i = 0; i < 3; i++)
        sleep_print_row(b, json, names[i], &rows[i], plain);
    if (json) {
        json_close_array(json);
        json_close_object(json);
    }
}

int core_sleep(const tool_bench_options *options)
{
    sleep_bench b = {.repetitions = options->is_quick ? 1 : SLEEP_REPETITIONS};
    sleep_times rows[3];
    int code = TOOL_DONE;
    loch_status status = sleep_open(&b, options->device);
    if (status == LOCH_OK) b.bytes = sleep_choose_bytes(&b, options->is_quick);
    if (status != LOCH_OK)
        code = tool_fail_status(status);
    else if (!loch_device_can(b.device, LOCH_CAN_VIRTUAL))
        code = tool_fail("%s has no virtual memory: its pools do not sleep", options->device);
    else if (!b.bytes)
        code = tool_fail("%s has too little free memory to measure a sleep", options->device);
    if (code == TOOL_DONE) {
        status = sleep_take(&b);
        if (status == LOCH_OK) status = sleep_measure_all(&b, &rows[0], &rows[1], &rows[2]);
        if (status != LOCH_OK)
            code = tool_fail_status(status);
        else
            sleep_print(&b, options->is_json, rows);
    }
    sleep_close(&b);
    return code;
}

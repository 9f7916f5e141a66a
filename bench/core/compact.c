/* SPDX-License-Identifier: MIT */
/* `core compact`: fills a pool with movable buffers of 1 to 64 MiB, frees half of them at random, and compacts
 * the rest. Measures the rate of the moves, the rate of plain copies inside the device, and the largest block that fits
 * afterwards. */
#include "core.h"
#include "tools/json.h"
#include <loch/loch.h>
#include <loch/driver.h>
#include <loch/raw.h>
#include <stdio.h>
#include <stdlib.h>

#define COMPACT_BUFFERS_MAX 8192
#define COMPACT_REPETITIONS 3
#define COMPACT_MIB ((size_t)1 << 20)

typedef struct compact_bench {
    loch_device *device;
    loch_allocator *pool;
    loch_stream *stream;
    loch_buffer *buffers[COMPACT_BUFFERS_MAX];
    size_t count, limit;
    uint64_t random;
    loch_move *moves; /* moves of the last compaction */
    size_t moves_count;
    uint64_t first_ns; /* time when the first copy was queued */
} compact_bench;

typedef struct compact_figures {
    double seconds, moved_bytes, plain_rate;
    double copy_seconds; /* from the first move to the end of the copies, without planning */
    double same_rate;    /* time of equal copies without a compaction */
    double overlapping;  /* bytes of moves that overlap themselves and are copied in pieces */
    size_t moves, free_bytes, served_bytes;
} compact_figures;

static size_t compact_below(compact_bench *b, size_t limit)
{
    b->random = b->random * 6364136223846793005u + 1442695040888963407u;
    return (size_t)(b->random >> 33) % limit;
}

static loch_status compact_spread(compact_bench *b)
{
    const loch_request request = {
        .size = sizeof request, .stream = b->stream, .flags = LOCH_ALLOC_MOVABLE | LOCH_ALLOC_NO_RETRY};
    while (b->count < COMPACT_BUFFERS_MAX) {
        const size_t bytes = COMPACT_MIB + compact_below(b, 63 * COMPACT_MIB);
        if (loch_buffer_create(b->pool, bytes, &request, &b->buffers[b->count]) != LOCH_OK) break;
        b->count++;
    }
    size_t live = b->limit, wanted = b->limit / 2;
    while (live > wanted) {
        const size_t i = compact_below(b, b->count);
        if (!b->buffers[i]) continue;
        const size_t bytes = loch_buffer_get_bytes(b->buffers[i]);
        live -= bytes < live ? bytes : live;
        loch_buffer_clear(&b->buffers[i]);
    }
    return loch_stream_sync(b->stream);
}

/* Copies as many bytes as were moved, in pieces of 32 MiB, by plain copies. The memory is larger than the caches, as in
 * moves. */
static loch_status compact_plain(compact_bench *b, size_t bytes, double *rate)
{
    char *from = NULL, *to = NULL;
    void *block = NULL;
    const size_t piece = 32 * COMPACT_MIB, all = b->limit / 8 / piece * piece + piece;
    loch_status status = loch_raw_alloc(b->device, LOCH_MEMORY_DEVICE, all, 0, &block);
    from = block;
    block = NULL;
    if (status == LOCH_OK) status = loch_raw_alloc(b->device, LOCH_MEMORY_DEVICE, all, 0, &block);
    to = block;
    for (int round = 0; round < 2 && status == LOCH_OK; round++) { /* the first run warms up */
        const uint64_t start = loch_host_now_ns();
        size_t done = 0;
        for (; done < bytes && status == LOCH_OK; done += piece)
            status = loch_copy_on(to + done % all, from + done % all, piece, b->stream);
        if (status == LOCH_OK) status = loch_stream_sync(b->stream);
        *rate = (double)done / (double)(loch_host_now_ns() - start) * 1e9;
    }
    if (loch_raw_free(from) != LOCH_OK || loch_raw_free(to) != LOCH_OK) return LOCH_E_DRIVER;
    return status;
}

/* Returns the largest part of the free memory, in steps of a hundredth, that one block can have. */
static size_t compact_serve(compact_bench *b, size_t free_bytes)
{
    for (size_t percent = 100; percent > 0; percent--) {
        const loch_request request = {.size = sizeof request, .stream = b->stream, .flags = LOCH_ALLOC_NO_RETRY};
        loch_buffer *buffer;
        const size_t bytes = free_bytes / 100 * percent;
        if (loch_buffer_create(b->pool, bytes, &request, &buffer) != LOCH_OK) continue;
        loch_buffer_release(buffer);
        return bytes;
    }
    return 0;
}

static void compact_note(loch_allocator *pool, const loch_move *move, void *user)
{
    (void)pool;
    compact_bench *b = user;
    if (!b->moves_count) b->first_ns = loch_host_now_ns();
    if (b->moves_count < COMPACT_BUFFERS_MAX) b->moves[b->moves_count++] = *move;
}

static bool compact_overlaps(const loch_move *move)
{
    const uintptr_t from = (uintptr_t)move->from, to = (uintptr_t)move->to;
    return (from > to ? from - to : to - from) < move->bytes;
}

/* Returns the bytes from the lower end of a move to its upper end. Overlapping moves keep their distance; source and
 * target of other moves are placed side by side. */
static size_t compact_reach(const loch_move *move)
{
    const uintptr_t from = (uintptr_t)move->from, to = (uintptr_t)move->to;
    const size_t gap = from > to ? from - to : to - from;
    return move->bytes + (gap < move->bytes ? gap : move->bytes);
}

/* Queues copies with the sizes and overlaps of the recorded moves again, in separate memory: free memory of a pool must
 * not be written. */
static loch_status compact_repeat_in(compact_bench *b, char *arena, size_t arena_bytes, double *bytes)
{
    size_t at = 0;
    for (size_t i = 0; i < b->moves_count; i++) {
        const loch_move *move = &b->moves[i];
        const size_t reach = compact_reach(move), gap = reach - move->bytes;
        if (at + reach > arena_bytes) at = 0;
        const bool is_downwards = (uintptr_t)move->from > (uintptr_t)move->to;
        char *low = arena + at, *high = arena + at + gap;
        const loch_status status =
            loch_copy_on(is_downwards ? low : high, is_downwards ? high : low, move->bytes, b->stream);
        if (status != LOCH_OK) return status;
        *bytes += (double)move->bytes;
        at += (reach + 511) / 512 * 512;
    }
    return loch_stream_sync(b->stream);
}

static loch_status compact_repeat(compact_bench *b, compact_figures *out)
{
    double bytes = 0;
    size_t arena_bytes = b->limit / 4; /* larger than the caches */
    void *arena = NULL;
    for (size_t i = 0; i < b->moves_count; i++) {
        if (compact_reach(&b->moves[i]) > arena_bytes) arena_bytes = compact_reach(&b->moves[i]);
        if (compact_overlaps(&b->moves[i])) out->overlapping += (double)b->moves[i].bytes;
    }
    loch_status status = loch_raw_alloc(b->device, LOCH_MEMORY_DEVICE, arena_bytes, 0, &arena);
    if (status != LOCH_OK) return status;
    for (int round = 0; round < 2 && status == LOCH_OK; round++) { /* the first run warms up */
        const uint64_t start = loch_host_now_ns();
        bytes = 0;
        status = compact_repeat_in(b, arena, arena_bytes, &bytes);
        out->same_rate = bytes / (double)(loch_host_now_ns() - start) * 1e9;
    }
    const loch_status freed = loch_raw_free(arena);
    return status != LOCH_OK ? status : freed;
}

static loch_status compact_once(compact_bench *b, compact_figures *out)
{
    loch_pool_info info = {.size = sizeof info};
    loch_compact_report report = {.size = sizeof report};
    const loch_compact_options options = {.size = sizeof options, .stream = b->stream};
    loch_status status = compact_spread(b);
    if (status == LOCH_OK) status = loch_pool_get_info(b->pool, &info);
    out->free_bytes = b->limit - info.used_bytes;
    b->moves_count = 0;
    if (status == LOCH_OK) status = loch_pool_set_move_hook(b->pool, compact_note, b);
    const uint64_t start = loch_host_now_ns();
    if (status == LOCH_OK) status = loch_pool_compact(b->pool, &options, &report);
    if (status == LOCH_OK) status = loch_stream_sync(b->stream);
    out->seconds = (double)(loch_host_now_ns() - start) / 1e9;
    out->copy_seconds = (double)(loch_host_now_ns() - (b->moves_count ? b->first_ns : start)) / 1e9;
    if (status == LOCH_OK) status = loch_pool_set_move_hook(b->pool, NULL, NULL);
    out->moved_bytes = (double)report.moved_bytes;
    out->moves = report.moves;
    if (status == LOCH_OK) status = compact_repeat(b, out);
    if (status == LOCH_OK) out->served_bytes = compact_serve(b, out->free_bytes);
    for (size_t i = 0; i < b->count; i++)
        loch_buffer_clear(&b->buffers[i]);
    b->count = 0;
    if (status == LOCH_OK) status = loch_allocator_trim(b->pool, 0, NULL);
    return status == LOCH_OK ? compact_plain(b, report.moved_bytes, &out->plain_rate) : status;
}

static void compact_print_json(const compact_figures *figures, json_writer *json)
{
    const double whole = figures->moved_bytes / figures->seconds, copies = figures->moved_bytes / figures->copy_seconds;
    json_open_object(json, NULL);
    json_number(json, "moves", figures->moves);
    json_number(json, "moved_bytes", (uint64_t)figures->moved_bytes);
    json_real(json, "seconds", figures->seconds);
    json_real(json, "gb_per_second", whole / 1e9);
    json_real(json, "copies_gb_per_second", copies / 1e9);
    json_real(json, "same_gb_per_second", figures->same_rate / 1e9);
    json_real(json, "plain_gb_per_second", figures->plain_rate / 1e9);
    json_real(json, "copies_ratio", copies / figures->same_rate);
    json_real(json, "plain_ratio", copies / figures->plain_rate);
    json_number(json, "overlapping_bytes", (uint64_t)figures->overlapping);
    json_number(json, "free_bytes", figures->free_bytes);
    json_number(json, "served_bytes", figures->served_bytes);
    json_real(json, "served_part", (double)figures->served_bytes / (double)figures->free_bytes);
    json_close_object(json);
}

static void compact_print_text(const compact_figures *figures)
{
    const double whole = figures->moved_bytes / figures->seconds, copies = figures->moved_bytes / figures->copy_seconds;
    printf("%5zu moves of %.0f bytes in %.4f s: %.1f GB/s, the copies alone %.1f, the same without a compaction %.1f, "
           "plain copies of 32 MiB %.1f, ratios %.3f and %.3f, overlapping bytes %.0f; of %zu bytes free one block had "
           "%zu: %.2f\n",
           figures->moves, figures->moved_bytes, figures->seconds, whole / 1e9, copies / 1e9, figures->same_rate / 1e9,
           figures->plain_rate / 1e9, copies / figures->same_rate, copies / figures->plain_rate, figures->overlapping,
           figures->free_bytes, figures->served_bytes, (double)figures->served_bytes / (double)figures->free_bytes);
}

/* Measures several times. The JSON output is one object with a list of the runs that succeeded. */
static loch_status compact_run(compact_bench *b, bool is_json)
{
    json_writer json = {.file = stdout};
    loch_status status = LOCH_OK;
    if (is_json) {
        json_open_object(&json, NULL);
        json_text(&json, "benchmark", "compact");
        json_text(&json, "device", loch_device_get_name(b->device));
        json_number(&json, "pool_bytes", b->limit);
        json_open_array(&json, "results");
    }
    tool_steps_begin("compact", COMPACT_REPETITIONS);
    for (int i = 0; i < COMPACT_REPETITIONS && status == LOCH_OK; i++) {
        compact_figures figures = {0};
        status = compact_once(b, &figures);
        tool_steps_hide();
        if (status == LOCH_OK && is_json) compact_print_json(&figures, &json);
        if (status == LOCH_OK && !is_json) compact_print_text(&figures);
        tool_steps_next();
    }
    tool_steps_end();
    if (is_json) {
        json_close_array(&json);
        json_close_object(&json);
    }
    return status;
}

int core_compact(const tool_bench_options *options)
{
    compact_bench b = {.random = 7};
    loch_memory_info memory = {.size = sizeof memory};
    loch_status status = loch_device_open(options->device, &b.device);
    if (status == LOCH_OK) status = loch_device_calculate_memory(b.device, &memory);
    if (status == LOCH_OK) {
        b.limit = options->is_quick ? 1024 * COMPACT_MIB : 32768 * COMPACT_MIB;
        if (b.limit > memory.free_bytes / 2) b.limit = memory.free_bytes / 2 / COMPACT_MIB * COMPACT_MIB;
        const loch_pool_options pool = {.size = sizeof pool, .limit_bytes = b.limit};
        status = loch_pool_create(b.device, "compact", &pool, &b.pool);
    }
    if (status == LOCH_OK) status = loch_stream_create(b.device, NULL, &b.stream);
    b.moves = malloc(COMPACT_BUFFERS_MAX * sizeof *b.moves);
    if (!b.moves) status = loch_error_set(LOCH_E_HOST_MEMORY, NULL, 0, "no memory for a list of moves");
    if (status == LOCH_OK) status = compact_run(&b, options->is_json);
    const int code = status == LOCH_OK ? TOOL_DONE : tool_fail_status(status);
    free(b.moves);
    loch_stream_close(b.stream);
    loch_allocator_release(b.pool);
    loch_device_release(b.device);
    return code;
}

/* SPDX-License-Identifier: MIT */
/* `core plan`: the time in which a pool plans a compaction, without the copies. A pool of ten thousand handles is
 * filled with movable buffers, half of the bytes are freed at random, and the compaction is planned, for two kinds of
 * buffers and two goals. Nothing moves, so that every run plans the same compaction. */
#include "core.h"
#include "tools/json.h"
#include <loch/loch.h>
#include <stdio.h>
#include <stdlib.h>

#define PLAN_REPETITIONS 25
#define PLAN_KIB ((size_t)1 << 10)
#define PLAN_MIB ((size_t)1 << 20)
#define PLAN_HANDLE (2 * PLAN_MIB)

/* Sizes of buffers, evenly spread. */
typedef struct plan_kind {
    const char *name;
    size_t least, most;
} plan_kind;

static const plan_kind plan_kinds[] = {
    {"1 to 64 MiB", PLAN_MIB, 64 * PLAN_MIB},
    {"64 KiB to 4 MiB", 64 * PLAN_KIB, 4 * PLAN_MIB},
};

typedef struct plan_bench {
    loch_device *device;
    loch_allocator *pool;
    loch_stream *stream;
    loch_buffer **buffers;
    size_t count, capacity, limit;
    uint64_t random;
} plan_bench;

typedef struct plan_figures {
    const char *kind, *goal;
    size_t handles, buffers, free_bytes, wanted_bytes;
    double least_ms, median_ms, most_ms;
    loch_compact_report report;
} plan_figures;

static size_t plan_below(plan_bench *b, size_t limit)
{
    b->random = b->random * 6364136223846793005u + 1442695040888963407u;
    return (size_t)(b->random >> 33) % limit;
}

/* Fills the pool with buffers, and frees half of the bytes at random. */
static loch_status plan_spread(plan_bench *b, const plan_kind *kind)
{
    const loch_request request = {
        .size = sizeof request, .stream = b->stream, .flags = LOCH_ALLOC_MOVABLE | LOCH_ALLOC_NO_RETRY};
    size_t live = 0;
    while (b->count < b->capacity) {
        const size_t bytes = kind->least + plan_below(b, kind->most - kind->least);
        if (loch_buffer_create(b->pool, bytes, &request, &b->buffers[b->count]) != LOCH_OK) break;
        live += bytes;
        b->count++;
    }
    for (const size_t wanted = live / 2; live > wanted;) {
        const size_t i = plan_below(b, b->count);
        if (!b->buffers[i]) continue;
        live -= loch_buffer_get_bytes(b->buffers[i]);
        loch_buffer_clear(&b->buffers[i]);
    }
    return loch_stream_sync(b->stream);
}

static int plan_order(const void *left, const void *right)
{
    const double a = *(const double *)left, b = *(const double *)right;
    return a < b ? -1 : a > b;
}

static loch_status plan_measure(plan_bench *b, size_t wanted_bytes, plan_figures *out)
{
    const loch_compact_options options = {
        .size = sizeof options, .stream = b->stream, .contiguous_bytes = wanted_bytes};
    double times[PLAN_REPETITIONS];
    out->wanted_bytes = wanted_bytes;
    for (int i = 0; i < PLAN_REPETITIONS; i++) {
        out->report = (loch_compact_report){.size = sizeof out->report};
        const uint64_t start = loch_host_now_ns();
        const loch_status status = loch_pool_plan_compact(b->pool, &options, NULL, NULL, &out->report);
        times[i] = (double)(loch_host_now_ns() - start) / 1e6;
        if (status != LOCH_OK) return status;
        tool_steps_next();
    }
    tool_steps_hide();
    qsort(times, PLAN_REPETITIONS, sizeof *times, plan_order);
    out->least_ms = times[0];
    out->median_ms = times[PLAN_REPETITIONS / 2];
    out->most_ms = times[PLAN_REPETITIONS - 1];
    return LOCH_OK;
}

static void plan_print(const plan_figures *figures, json_writer *json)
{
    if (!json) {
        printf("%zu handles, %5zu buffers of %-15s  %-9s  %8.3f ms, the least %8.3f, the most %8.3f; %5zu moves of "
               "%6.1f MiB join %7.1f of %7.1f MiB\n",
               figures->handles, figures->buffers, figures->kind, figures->goal, figures->median_ms, figures->least_ms,
               figures->most_ms, figures->report.moves, (double)figures->report.moved_bytes / PLAN_MIB,
               (double)figures->report.joined_bytes / PLAN_MIB, (double)figures->free_bytes / PLAN_MIB);
        return;
    }
    json_open_object(json, NULL);
    json_text(json, "buffers_of", figures->kind);
    json_text(json, "goal", figures->goal);
    json_number(json, "handles", figures->handles);
    json_number(json, "buffers", figures->buffers);
    json_number(json, "free_bytes", figures->free_bytes);
    json_number(json, "wanted_bytes", figures->wanted_bytes);
    json_real(json, "median_ms", figures->median_ms);
    json_real(json, "least_ms", figures->least_ms);
    json_real(json, "most_ms", figures->most_ms);
    json_number(json, "moves", figures->report.moves);
    json_number(json, "moved_bytes", figures->report.moved_bytes);
    json_number(json, "joined_bytes", figures->report.joined_bytes);
    json_close_object(json);
}

/* Returns a size for one piece that needs moves: half of the free bytes that are not in whole handles more than those
 * that are. */
static loch_status plan_choose_piece(const plan_bench *b, size_t free_bytes, size_t *piece)
{
    const loch_compact_options still = {.size = sizeof still, .stream = b->stream, .budget_bytes = 1};
    loch_compact_report report = {.size = sizeof report};
    const loch_status status = loch_pool_plan_compact(b->pool, &still, NULL, NULL, &report);
    *piece = report.joined_bytes + (free_bytes - report.joined_bytes) / 2;
    return status;
}

/* Measures one kind of buffers in a pool of its own: all that can be joined, and one piece. */
static loch_status plan_run_kind(plan_bench *b, const plan_kind *kind, json_writer *json)
{
    const loch_pool_options options = {.size = sizeof options, .limit_bytes = b->limit, .handle_bytes = PLAN_HANDLE};
    loch_pool_info info = {.size = sizeof info};
    plan_figures figures = {.kind = kind->name, .goal = "all"};
    loch_status status = loch_pool_create(b->device, "plan", &options, &b->pool);
    if (status == LOCH_OK) status = plan_spread(b, kind);
    if (status == LOCH_OK) status = loch_pool_get_info(b->pool, &info);
    figures.handles = info.handles;
    figures.free_bytes = info.reserved_bytes - info.used_bytes;
    for (size_t i = 0; i < b->count; i++)
        figures.buffers += b->buffers[i] != NULL;
    if (status == LOCH_OK) status = plan_measure(b, 0, &figures);
    if (status == LOCH_OK) plan_print(&figures, json);
    size_t piece = 0;
    figures.goal = "one piece";
    if (status == LOCH_OK) status = plan_choose_piece(b, figures.free_bytes, &piece);
    if (status == LOCH_OK) status = plan_measure(b, piece, &figures);
    if (status == LOCH_OK) plan_print(&figures, json);
    for (size_t i = 0; i < b->count; i++)
        loch_buffer_clear(&b->buffers[i]);
    b->count = 0;
    loch_allocator_release(b->pool);
    b->pool = NULL;
    return status;
}

static loch_status plan_run(plan_bench *b, bool is_json)
{
    json_writer json = {.file = stdout};
    loch_status status = LOCH_OK;
    if (is_json) {
        json_open_object(&json, NULL);
        json_text(&json, "benchmark", "plan");
        json_text(&json, "device", loch_device_get_name(b->device));
        json_number(&json, "pool_bytes", b->limit);
        json_open_array(&json, "results");
    }
    tool_steps_begin("plan", 2 * PLAN_REPETITIONS * (sizeof plan_kinds / sizeof *plan_kinds));
    for (size_t i = 0; i < sizeof plan_kinds / sizeof *plan_kinds && status == LOCH_OK; i++)
        status = plan_run_kind(b, &plan_kinds[i], is_json ? &json : NULL);
    tool_steps_end();
    if (is_json) {
        json_close_array(&json);
        json_close_object(&json);
    }
    return status;
}

int core_plan(const tool_bench_options *options)
{
    plan_bench b = {.random = 7};
    loch_memory_info memory = {.size = sizeof memory};
    loch_status status = loch_device_open(options->device, &b.device);
    if (status == LOCH_OK) status = loch_device_calculate_memory(b.device, &memory);
    b.limit = (options->is_quick ? 500 : 10000) * PLAN_HANDLE;
    if (status == LOCH_OK && b.limit > memory.free_bytes) b.limit = memory.free_bytes / PLAN_HANDLE * PLAN_HANDLE;
    if (status == LOCH_OK) status = loch_stream_create(b.device, NULL, &b.stream);
    b.capacity = b.limit / (64 * PLAN_KIB) + 1;
    b.buffers = malloc(b.capacity * sizeof *b.buffers);
    if (!b.buffers) status = loch_error_set(LOCH_E_HOST_MEMORY, NULL, 0, "no memory for a list of buffers");
    if (status == LOCH_OK) status = plan_run(&b, options->is_json);
    const int code = status == LOCH_OK ? TOOL_DONE : tool_fail_status(status);
    free(b.buffers);
    loch_stream_close(b.stream);
    loch_device_release(b.device);
    return code;
}

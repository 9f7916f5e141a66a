/* SPDX-License-Identifier: MIT */
/* `loch bench pool`: measures allocations and frees through the pool and through other allocators (peers.h).
 *
 *   pair     allocates one block and frees it again, many times
 *   random   frees one of 10,000 live blocks and replaces it by a block of a random size: `log` has as many sizes from
 *            every doubling between 512 B and 8 MiB, `uniform` has all sizes equally often
 *   live     like random with 64 to 4096 bytes and growing numbers of live blocks: the cost must not grow with them
 *   trace    the events of a recorded program (replay.h); the driver's own allocators are left out
 *
 * Blocks and sizes are chosen before the clock starts. Blocks are not touched: the time is that of the allocator. */
#include "peers.h"
#include "replay.h"

#include <string.h>

#define POOL_SAMPLES 5
#define POOL_ROUNDS 3
#define POOL_RANDOM_LIVE 10000
#define POOL_QUICK_LIVE 200
#define POOL_TRACE_RUNS 15

typedef enum pool_kind { POOL_PAIR, POOL_RANDOM_LOG, POOL_RANDOM_UNIFORM, POOL_LIVE, POOL_TRACE } pool_kind;

static const char *const pool_kind_names[] = {"pair", "random", "random", "live", "trace"};

typedef struct pool_case {
    pool_kind kind;
    size_t number; /* bytes, number of live blocks, or number of the trace */
} pool_case;

static const pool_case pool_cases[] = {
    {POOL_PAIR, 512},
    {POOL_PAIR, (size_t)4 << 10},
    {POOL_PAIR, (size_t)64 << 10},
    {POOL_PAIR, (size_t)1 << 20},
    {POOL_PAIR, (size_t)16 << 20},
    {POOL_PAIR, (size_t)512 << 20},
    {POOL_RANDOM_LOG, POOL_RANDOM_LIVE},
    {POOL_RANDOM_UNIFORM, POOL_RANDOM_LIVE},
    {POOL_LIVE, 1000},
    {POOL_LIVE, 10000},
    {POOL_LIVE, 100000},
    {POOL_LIVE, 1000000},
};

#define POOL_CASES (sizeof pool_cases / sizeof *pool_cases)
#define POOL_LIVE_LEAST 8 /* the cases with the fewest and the most live blocks */
#define POOL_LIVE_MOST 11

static pool_case pool_case_at(const tool_bench_options *options, size_t which)
{
    pool_case out = which < POOL_CASES ? pool_cases[which] : (pool_case){POOL_TRACE, which - POOL_CASES};
    if (options->is_quick && (out.kind == POOL_RANDOM_LOG || out.kind == POOL_RANDOM_UNIFORM))
        out.number = POOL_QUICK_LIVE;
    return out;
}

/* --- measuring, in the child --- */

typedef struct pool_measure {
    const tool_bench_options *options;
    peer_memory memory;
    size_t room_bytes; /* the most bytes that all blocks may take together */
} pool_measure;

/* Returns the nanoseconds of `count` pairs; negative if a call failed. */
static double pool_time_pairs(peer_memory *memory, size_t bytes, size_t count)
{
    const uint64_t start_ns = loch_host_now_ns();
    for (size_t i = 0; i < count; i++) {
        void *block = peer_alloc(memory, bytes);
        if (!block || !peer_free(memory, block, bytes)) return -1;
    }
    return (double)(loch_host_now_ns() - start_ns);
}

static double pool_pair(pool_measure *measure, size_t bytes)
{
    const double least_ns = measure->options->is_quick ? 5e4 : 2e6; /* long compared with the resolution of the clock */
    double samples[POOL_SAMPLES], ns;
    size_t count = 1;
    if (bytes > measure->room_bytes) return -1;
    while ((ns = pool_time_pairs(&measure->memory, bytes, count)) >= 0 && ns < least_ns)
        count *= 2;
    for (size_t i = 0; ns >= 0 && i < POOL_SAMPLES; i++) {
        ns = pool_time_pairs(&measure->memory, bytes, count);
        samples[i] = ns / (double)count;
    }
    return ns < 0 ? -1 : peer_median(samples, POOL_SAMPLES);
}

/* One replacement: the index of the live block, and the size of the new block. */
typedef struct pool_step {
    uint32_t block, bytes;
} pool_step;

typedef struct pool_block {
    void *address;
    size_t bytes;
} pool_block;

typedef struct pool_random {
    peer_memory *memory;
    pool_kind kind;
    pool_block *blocks;
    size_t live;
    pool_step *steps;
    uint64_t state;
} pool_random;

static uint32_t random_next(pool_random *random)
{
    random->state = random->state * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)(random->state >> 32);
}

static uint32_t random_bytes(pool_random *random)
{
    const uint32_t least = random->kind == POOL_LIVE ? 64 : 512, most = random->kind == POOL_LIVE ? 4096 : 8u << 20;
    if (random->kind != POOL_RANDOM_LOG) return least + random_next(random) % (most - least + 1);
    const uint32_t low = least << random_next(random) % 14; /* 512 B to 4 MiB */
    return low + random_next(random) % low;
}

/* Frees and replaces `count` blocks. Returns nanoseconds, negative if a call failed. */
static double random_replace(pool_random *random, size_t count)
{
    peer_memory *memory = random->memory;
    for (size_t i = 0; i < count; i++)
        random->steps[i] =
            (pool_step){(uint32_t)(((uint64_t)random_next(random) * random->live) >> 32), random_bytes(random)};
    const uint64_t start_ns = loch_host_now_ns();
    for (size_t i = 0; i < count; i++) {
        pool_block *block = &random->blocks[random->steps[i].block];
        if (!peer_free(memory, block->address, block->bytes)) return -1;
        block->bytes = random->steps[i].bytes;
        block->address = peer_alloc(memory, block->bytes);
        if (!block->address) return -1;
    }
    return (double)(loch_host_now_ns() - start_ns);
}

static bool random_fill(pool_random *random)
{
    for (size_t i = 0; i < random->live; i++) {
        random->blocks[i].bytes = random_bytes(random);
        random->blocks[i].address = peer_alloc(random->memory, random->blocks[i].bytes);
        if (!random->blocks[i].address) return false;
    }
    return true;
}

static void random_empty(pool_random *random)
{
    for (size_t i = 0; i < random->live; i++)
        if (random->blocks[i].address && !peer_free(random->memory, random->blocks[i].address, random->blocks[i].bytes))
            return;
}

/* Returns the nanoseconds of a free and an allocation among `live` blocks. */
static double pool_random_measure(pool_measure *measure, pool_kind kind, size_t live)
{
    const size_t mean = kind == POOL_LIVE ? 2080 : kind == POOL_RANDOM_LOG ? (size_t)900 << 10 : (size_t)4 << 20;
    const bool is_slow = peer_memory_is_slow(&measure->memory);
    const size_t count = measure->options->is_quick ? 500 : is_slow ? 1000 : kind == POOL_LIVE ? 200000 : 20000;
    if (live > measure->room_bytes / mean) return -1;
    /* allocating them would take long */
    if ((measure->options->is_quick || is_slow) && live > POOL_RANDOM_LIVE) return -1;
    /* Takes memory from the system, so that the records of this program are not in the allocator under test. */
    lochi_array blocks = {.data = NULL}, steps = {.data = NULL};
    double samples[POOL_SAMPLES], ns = -1;
    if (lochi_array_reserve(&blocks, live, sizeof(pool_block)) &&
        lochi_array_reserve(&steps, count, sizeof(pool_step))) {
        pool_random random = {&measure->memory, kind, blocks.data, live, steps.data, 42};
        ns = random_fill(&random) ? 0 : -1;
        /* Replaces each block once on average before the clock counts: programs seldom run on fresh memory. */
        for (size_t done = 0; ns >= 0 && !measure->options->is_quick && !is_slow && done < live; done += count)
            ns = random_replace(&random, count);
        for (size_t i = 0; ns >= 0 && i < POOL_SAMPLES; i++) {
            ns = random_replace(&random, count);
            samples[i] = ns / (double)count;
        }
        random_empty(&random);
    }
    lochi_array_free(&blocks);
    lochi_array_free(&steps);
    return ns < 0 ? -1 : peer_median(samples, POOL_SAMPLES);
}

static double pool_trace(pool_measure *measure, const char *path)
{
    replay_result results[POOL_TRACE_RUNS], summary;
    trace_log trace;
    replay_kept kept = {.allocator = NULL};
    replay_setup setup = {.trace = &trace, .device = measure->memory.device, .allocator = "pool", .kept = &kept};
    const size_t runs = measure->options->is_quick ? 1 : POOL_TRACE_RUNS;
    if (peer_memory_is_slow(&measure->memory)) return -1;
    if (measure->memory.kind == PEER_MALLOC) setup.allocator = "libc";
    bool is_good = trace_load(&trace, path);
    for (size_t i = 0; is_good && i < runs; i++)
        is_good = replay_run(&setup, &results[i]) == LOCH_OK;
    replay_end(&kept);
    trace_unload(&trace);
    if (!is_good) return -1;
    replay_summarize(results, runs, &summary);
    return summary.failures ? -1 : summary.ns_per_event;
}

static double pool_measure_case(pool_measure *measure, pool_case which)
{
    if (which.kind == POOL_PAIR) return pool_pair(measure, which.number);
    if (which.kind == POOL_TRACE) return pool_trace(measure, measure->options->traces[which.number]);
    return pool_random_measure(measure, which.kind, which.number);
}

/* On the host, blocks that are not touched take only addresses. On other devices half of the free memory is enough. */
static bool pool_find_room(pool_measure *measure)
{
    loch_memory_info info = {.size = sizeof info};
    measure->room_bytes = SIZE_MAX;
    if (!measure->memory.device || loch_device_can(measure->memory.device, LOCH_CAN_HOST_ACCESS)) return true;
    if (loch_device_calculate_memory(measure->memory.device, &info) != LOCH_OK) return false;
    measure->room_bytes = info.free_bytes / 2;
    return true;
}

static int pool_child(const tool_bench_options *options, size_t cases)
{
    pool_measure measure = {.options = options};
    if (!peer_memory_open(&measure.memory, options->as, options->device)) return TOOL_FAILED;
    int code = TOOL_DONE;
    if (!pool_find_room(&measure)) code = tool_fail_status(loch_error_get()->status);
    for (size_t i = 0; code == TOOL_DONE && i < cases; i++) {
        /* Runs traces first: a recorded program starts with a fresh heap. */
        const size_t which = (POOL_CASES + i) % cases;
        peer_report(which, pool_measure_case(&measure, pool_case_at(options, which)));
    }
    peer_memory_close(&measure.memory);
    return code;
}

/* --- printing, in the parent --- */

static void pool_print_label(const peer_bench *bench, pool_case which)
{
    char text[64], name[TOOL_NAME_BYTES];
    if (which.kind == POOL_PAIR)
        snprintf(text, sizeof text, "pair %s", LOCHI_SIZE_ROUND(which.number, 2));
    else if (which.kind == POOL_RANDOM_LOG || which.kind == POOL_RANDOM_UNIFORM)
        snprintf(text, sizeof text, "random %s", which.kind == POOL_RANDOM_LOG ? "log" : "uniform");
    else if (which.kind == POOL_LIVE)
        snprintf(text, sizeof text, "live %zu", which.number);
    else {
        const char *path = bench->options->traces[which.number], *slash = strrchr(path, '/');
        snprintf(text, sizeof text, "trace %.40s", tool_format_name(slash ? slash + 1 : path, name));
    }
    printf("%-26s", text);
}

/* Returns the cost of a replacement among the most live blocks, divided by the cost among the fewest. */
static double pool_growth(const peer_bench *bench, size_t peer)
{
    const double least = bench->figures[peer][POOL_LIVE_LEAST], most = bench->figures[peer][POOL_LIVE_MOST];
    return least > 0 && most >= 0 ? most / least : -1;
}

static void pool_print_text(const peer_bench *bench)
{
    printf("pool on %s: ns; a pair, a free and an allocation, an event of a trace\n\n%-26s", bench->options->device,
           "");
    peers_print_heads(bench);
    for (size_t which = 0; which < bench->cases; which++) {
        pool_print_label(bench, pool_case_at(bench->options, which));
        peers_print_row(bench, which, 1);
    }
    printf("%-26s", "live, most over fewest");
    for (size_t peer = 0; peer < bench->peers_count; peer++) {
        if (bench->is_absent[peer]) continue;
        if (pool_growth(bench, peer) < 0)
            printf(" %10s", "-");
        else
            printf(" %10.2f", pool_growth(bench, peer));
    }
    putchar('\n');
    for (size_t peer = 1; peer < bench->peers_count; peer++)
        if (bench->is_absent[peer]) printf("absent: %s\n", bench->peers[peer]);
}

static void pool_print_case(const peer_bench *bench, pool_case which, json_writer *json)
{
    json_text(json, "case", pool_kind_names[which.kind]);
    if (which.kind == POOL_PAIR) json_number(json, "bytes", which.number);
    if (which.kind == POOL_RANDOM_LOG || which.kind == POOL_RANDOM_UNIFORM)
        json_text(json, "sizes", which.kind == POOL_RANDOM_LOG ? "log" : "uniform");
    if (which.kind != POOL_PAIR && which.kind != POOL_TRACE) json_number(json, "live", which.number);
    if (which.kind == POOL_TRACE) json_text(json, "trace", bench->options->traces[which.number]);
}

static void pool_print_ratios(const peer_bench *bench, json_writer *json)
{
    json_open_array(json, "ratios");
    for (size_t which = 0; which < bench->cases; which++) {
        if (peers_ratio(bench, which) < 0) continue;
        json_open_object(json, NULL);
        pool_print_case(bench, pool_case_at(bench->options, which), json);
        json_text(json, "best_peer", bench->peers[peers_best(bench, which)]);
        json_real(json, "ratio", peers_ratio(bench, which));
        json_close_object(json);
    }
    json_close_array(json);
    json_open_object(json, "live_growth");
    for (size_t peer = 0; peer < bench->peers_count; peer++)
        if (pool_growth(bench, peer) >= 0) json_real(json, bench->peers[peer], pool_growth(bench, peer));
    json_close_object(json);
}

static void pool_print_json(const peer_bench *bench)
{
    json_writer json = {.file = stdout};
    json_open_object(&json, NULL);
    peers_print_json(bench, &json);
    json_open_array(&json, "results");
    for (size_t which = 0; which < bench->cases; which++)
        for (size_t peer = 0; peer < bench->peers_count; peer++) {
            if (bench->figures[peer][which] < 0) continue;
            json_open_object(&json, NULL);
            json_text(&json, "allocator", bench->peers[peer]);
            pool_print_case(bench, pool_case_at(bench->options, which), &json);
            json_real(&json, "ns", bench->figures[peer][which]);
            json_close_object(&json);
        }
    json_close_array(&json);
    pool_print_ratios(bench, &json);
    json_close_object(&json);
}

int tool_bench_pool(const tool_bench_options *options)
{
    static peer_bench bench; /* static because it is large; the program runs once */
    const size_t cases = POOL_CASES + options->traces_count;
    if (options->as) return pool_child(options, cases);
    bench =
        (peer_bench){.name = "pool", .options = options, .cases = cases, .rounds = options->is_quick ? 1 : POOL_ROUNDS};
    for (size_t i = 0; i < options->traces_count; i++) { /* reads the traces here, where an error can be reported */
        trace_log trace;
        const bool is_good = trace_load(&trace, options->traces[i]);
        trace_unload(&trace);
        if (!is_good) return TOOL_FAILED;
    }
    const int code = peers_run(&bench);
    if (code == TOOL_DONE && options->is_json) pool_print_json(&bench);
    if (code == TOOL_DONE && !options->is_json) pool_print_text(&bench);
    return code;
}

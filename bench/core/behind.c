/* SPDX-License-Identifier: MIT */
/* `core behind-driver`: measures whether a thread waits while another one is in the driver.
 *
 * One thread frees and allocates blocks of 64 KiB to 8 MiB, log-uniform, in free mapped memory of a pool. All of its
 * requests have a tag, so each of them takes the pool's lock. It runs alone first. Then another thread allocates 1 GiB
 * from the same pool, frees it and gives it back to the device, over and over: the driver creates, maps and unmaps it
 * each time. Each thread is bound to a processor of its own if there are enough.
 *
 * A live block lies in every handle of the first thread, so its memory neither moves nor goes back. */
#include "core.h"
#include "tools/json.h"

#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define BEHIND_HANDLE ((size_t)64 << 20)
#define BEHIND_STAKE ((size_t)1 << 20) /* the live block in a handle */
#define BEHIND_HANDLES 8
#define BEHIND_LIVE 32
#define BEHIND_SMALLEST ((size_t)64 << 10)
#define BEHIND_DOUBLINGS 7 /* from the smallest to the largest block */
#define BEHIND_MAPPED ((size_t)1 << 30)
#define BEHIND_MAPPED_QUICK ((size_t)128 << 20)
#define BEHIND_REQUESTS 2000000
#define BEHIND_REQUESTS_QUICK 20000
#define BEHIND_TURNS 100 /* the driver maps the memory this often beside the requests, at least */
#define BEHIND_TURNS_QUICK 2
#define BEHIND_BAR_NS 5000

typedef struct behind_bench {
    loch_device *device;
    loch_device_properties properties;
    loch_allocator *pool;
    loch_tag tag;
    cpu_set_t processors; /* that the program may use */
    void *stakes[BEHIND_HANDLES];
    size_t mapped;          /* bytes that the other thread maps */
    size_t requests, turns; /* at least */
    atomic_bool is_over;    /* the other thread stops */
    atomic_size_t turned;   /* turns of the other thread */
    loch_status status;     /* of the other thread */
    uint64_t turns_ns;      /* time that its turns took */
} behind_bench;

/* Times of one kind of call. */
typedef struct behind_times {
    uint32_t *ns;
    size_t count, capacity;
} behind_times;

typedef struct behind_run {
    behind_times allocs, frees;
    uint64_t turns; /* of the other thread meanwhile */
} behind_run;

/* --- processors --- */

/* Binds the calling thread to one of the processors: the first one, or one that is not its neighbour. */
static void behind_bind(const cpu_set_t *all, bool is_first)
{
    cpu_set_t one;
    if (CPU_COUNT(all) < 2) return;
    int skipped = is_first ? 0 : CPU_COUNT(all) > 2 ? 2 : 1; /* neighbours may share a core */
    for (int i = 0; i < CPU_SETSIZE; i++) {
        if (!CPU_ISSET((unsigned)i, all) || skipped--) continue;
        CPU_ZERO(&one);
        CPU_SET((unsigned)i, &one);
        pthread_setaffinity_np(pthread_self(), sizeof one, &one); /* if this fails, the system chooses the processor */
        return;
    }
}

/* --- the pool --- */

static loch_status behind_alloc(const behind_bench *b, size_t bytes, void **out)
{
    const loch_request request = {.size = sizeof request, .bytes = bytes, .tag = b->tag};
    return loch_allocator_alloc(b->pool, &request, out);
}

/* Maps the first thread's memory, and leaves one live block in each handle. */
static loch_status behind_lay_out(behind_bench *b)
{
    void *holes[BEHIND_HANDLES], *all;
    loch_status status = behind_alloc(b, BEHIND_HANDLES * BEHIND_HANDLE, &all);
    if (status == LOCH_OK) status = loch_free(b->pool, all);
    for (size_t i = 0; i < BEHIND_HANDLES && status == LOCH_OK; i++) {
        status = behind_alloc(b, BEHIND_HANDLE - BEHIND_STAKE, &holes[i]);
        if (status == LOCH_OK) status = behind_alloc(b, BEHIND_STAKE, &b->stakes[i]);
    }
    for (size_t i = 0; i < BEHIND_HANDLES && status == LOCH_OK; i++)
        status = loch_free(b->pool, holes[i]);
    if (status == LOCH_OK) status = loch_allocator_trim(b->pool, BEHIND_HANDLES * BEHIND_HANDLE, NULL); /* of caches */
    return status;
}

static loch_status behind_open(behind_bench *b, const char *device)
{
    b->properties.size = sizeof b->properties;
    loch_status status = loch_device_open(device, &b->device);
    if (status == LOCH_OK) status = loch_device_get_properties(b->device, &b->properties);
    if (status == LOCH_OK) status = loch_tag_create("bench", &b->tag);
    const loch_pool_options options = {.size = sizeof options, .handle_bytes = BEHIND_HANDLE};
    if (status == LOCH_OK) status = loch_pool_create(b->device, "bench", &options, &b->pool);
    return status == LOCH_OK ? behind_lay_out(b) : status;
}

static void behind_close(behind_bench *b)
{
    for (size_t i = 0; i < BEHIND_HANDLES; i++)
        if (b->stakes[i] && loch_free(b->pool, b->stakes[i]) != LOCH_OK) tool_fail("a block cannot be freed");
    loch_allocator_release(b->pool);
    loch_device_release(b->device);
}

/* --- the two threads --- */

/* Makes the driver map memory and take it back, until the first thread is done. */
static void *behind_map(void *user)
{
    behind_bench *b = user;
    behind_bind(&b->processors, false);
    const uint64_t start_ns = loch_host_now_ns();
    while (b->status == LOCH_OK && !atomic_load_explicit(&b->is_over, memory_order_relaxed)) {
        void *block;
        b->status = loch_alloc(b->pool, b->mapped, &block);
        if (b->status == LOCH_OK) b->status = loch_free(b->pool, block);
        if (b->status == LOCH_OK)
            b->status = loch_allocator_trim(b->pool, BEHIND_HANDLES * (BEHIND_HANDLE - BEHIND_STAKE), NULL);
        atomic_fetch_add_explicit(&b->turned, 1, memory_order_relaxed);
    }
    b->turns_ns = loch_host_now_ns() - start_ns;
    return NULL;
}

static uint64_t behind_random(uint64_t *state)
{
    *state = *state * 6364136223846793005u + 1442695040888963407u;
    return *state >> 33;
}

/* Returns a size: each doubling is as likely as the others. */
static size_t behind_choose(uint64_t *state)
{
    const size_t low = BEHIND_SMALLEST << behind_random(state) % BEHIND_DOUBLINGS;
    return low + (size_t)(behind_random(state) % 1024) * (low / 1024);
}

static void behind_note(behind_times *times, uint64_t ns)
{
    if (times->count < times->capacity) times->ns[times->count++] = ns < UINT32_MAX ? (uint32_t)ns : UINT32_MAX;
}

static bool behind_is_done(const behind_bench *b, const behind_run *run, bool is_beside)
{
    if (run->allocs.count == run->allocs.capacity) return true;
    if (run->allocs.count < b->requests) return false;
    return !is_beside || atomic_load_explicit(&b->turned, memory_order_relaxed) >= b->turns;
}

/* Frees and allocates, and notes what each call takes. */
static loch_status behind_request(const behind_bench *b, behind_run *run, bool is_beside)
{
    void *blocks[BEHIND_LIVE] = {NULL};
    uint64_t state = 42;
    loch_status status = LOCH_OK;
    while (status == LOCH_OK && !behind_is_done(b, run, is_beside)) {
        void **block = &blocks[behind_random(&state) % BEHIND_LIVE];
        const size_t bytes = behind_choose(&state);
        const uint64_t start_ns = loch_host_now_ns();
        if (*block) status = loch_free(b->pool, *block);
        const uint64_t freed_ns = loch_host_now_ns();
        if (status == LOCH_OK && *block) behind_note(&run->frees, freed_ns - start_ns);
        *block = NULL;
        if (status == LOCH_OK) status = behind_alloc(b, bytes, block);
        behind_note(&run->allocs, loch_host_now_ns() - freed_ns);
    }
    for (size_t i = 0; i < BEHIND_LIVE; i++)
        if (blocks[i] && loch_free(b->pool, blocks[i]) != LOCH_OK) status = LOCH_E_DRIVER;
    return status;
}

/* --- measuring --- */

static int behind_compare(const void *a, const void *b)
{
    const uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;
    return x < y ? -1 : x > y;
}

static bool behind_prepare(behind_times *times, size_t capacity)
{
    *times = (behind_times){.ns = malloc(capacity * sizeof *times->ns), .capacity = capacity};
    if (times->ns) memset(times->ns, 1, capacity * sizeof *times->ns); /* so that measuring meets no new page */
    return times->ns;
}

static loch_status behind_measure(behind_bench *b, behind_run *run, bool is_beside)
{
    pthread_t thread;
    const size_t capacity = 50 * b->requests; /* the other thread may need long for its turns */
    if (!behind_prepare(&run->allocs, is_beside ? capacity : b->requests) ||
        !behind_prepare(&run->frees, is_beside ? capacity : b->requests))
        return loch_error_set(LOCH_E_HOST_MEMORY, NULL, 0, "no memory for the times of %zu requests", capacity);
    if (is_beside && pthread_create(&thread, NULL, behind_map, b) != 0)
        return loch_error_set(LOCH_E_HOST_MEMORY, NULL, 0, "no second thread can be created");
    behind_bind(&b->processors, true);
    loch_status status = behind_request(b, run, is_beside);
    if (is_beside) {
        atomic_store_explicit(&b->is_over, true, memory_order_relaxed);
        pthread_join(thread, NULL);
        if (status == LOCH_OK) status = b->status;
        run->turns = atomic_load_explicit(&b->turned, memory_order_relaxed);
    }
    qsort(run->allocs.ns, run->allocs.count, sizeof *run->allocs.ns, behind_compare);
    qsort(run->frees.ns, run->frees.count, sizeof *run->frees.ns, behind_compare);
    return status;
}

/* Returns the part of the time that went to calls above the bar. A thread that waits for the driver makes few calls, so
 * percentiles of calls alone would hide the wait. */
static double behind_slow_part(const behind_times *times)
{
    double all = 0, slow = 0;
    for (size_t i = 0; i < times->count; i++) {
        all += times->ns[i];
        if (times->ns[i] > BEHIND_BAR_NS) slow += times->ns[i];
    }
    return all > 0 ? slow / all : 0;
}

/* Returns the time that all but a part of the calls stay below. */
static uint32_t behind_get(const behind_times *times, double part)
{
    if (!times->count) return 0;
    const size_t above = (size_t)((double)times->count * part);
    return times->ns[times->count - 1 - (above < times->count ? above : times->count - 1)];
}

static void behind_print_row(json_writer *json, const char *work, const behind_times *times)
{
    static const double parts[] = {0.5, 0.01, 0.001, 0.0001, 0};
    static const char *const names[] = {"p50_ns", "p99_ns", "p999_ns", "p9999_ns", "max_ns"};
    if (json) {
        json_open_object(json, NULL);
        json_text(json, "work", work);
        json_number(json, "calls", times->count);
    } else {
        printf("%-22s", work);
    }
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++)
        if (json)
            json_number(json, names[i], behind_get(times, parts[i]));
        else
            printf(" %10.2f", (double)behind_get(times, parts[i]) / 1e3);
    if (json) {
        json_real(json, "slow_part", behind_slow_part(times));
        json_close_object(json);
    } else {
        printf(" %9.1f%%\n", 100 * behind_slow_part(times));
    }
}

static void behind_print(const behind_bench *b, bool is_json, const behind_run *alone, const behind_run *beside)
{
    json_writer writer = {.file = stdout}, *json = is_json ? &writer : NULL;
    const double turn_ns = beside->turns ? (double)b->turns_ns / (double)beside->turns : 0;
    const uint32_t slow_ns = behind_get(&beside->allocs, 0.001);
    if (json) {
        json_open_object(json, NULL);
        json_text(json, "benchmark", "behind-driver");
        json_text(json, "device", loch_device_get_name(b->device));
        json_text(json, "model", b->properties.model);
        json_number(json, "mapped_bytes", b->mapped);
        json_number(json, "turns", beside->turns);
        json_real(json, "turn_ns", turn_ns);
        json_number(json, "bar_ns", BEHIND_BAR_NS);
        json_flag(json, "is_met", slow_ns <= BEHIND_BAR_NS);
        json_open_array(json, "results");
    } else {
        printf("%s (%s), blocks of 64 KiB to 8 MiB, beside a thread that mapped %s %llu times, %.0f us each\n\n",
               loch_device_get_name(b->device), b->properties.model, LOCHI_SIZE_ROUND(b->mapped, 2),
               (unsigned long long)beside->turns, turn_ns / 1e3);
        printf("%-22s %10s %10s %10s %10s %10s %10s\n", "us", "p50", "p99", "p99.9", "p99.99", "most", "slow time");
    }
    behind_print_row(json, "alloc, alone", &alone->allocs);
    behind_print_row(json, "free, alone", &alone->frees);
    behind_print_row(json, "alloc, beside driver", &beside->allocs);
    behind_print_row(json, "free, beside driver", &beside->frees);
    if (json) {
        json_close_array(json);
        json_close_object(json);
    } else {
        printf("\np99.9 of allocations beside the driver: %.2f us (at most %.2f); slow time: in calls above that\n",
               slow_ns / 1e3, BEHIND_BAR_NS / 1e3);
    }
}

int core_behind(const tool_bench_options *options)
{
    behind_bench b = {.mapped = options->is_quick ? BEHIND_MAPPED_QUICK : BEHIND_MAPPED,
                      .requests = options->is_quick ? BEHIND_REQUESTS_QUICK : BEHIND_REQUESTS,
                      .turns = options->is_quick ? BEHIND_TURNS_QUICK : BEHIND_TURNS};
    behind_run alone = {.turns = 0}, beside = {.turns = 0};
    CPU_ZERO(&b.processors);
    sched_getaffinity(0, sizeof b.processors, &b.processors); /* if this fails, no thread is bound */
    loch_status status = behind_open(&b, options->device);
    tool_steps_begin("behind", 2);
    if (status == LOCH_OK) status = behind_measure(&b, &alone, false);
    tool_steps_next();
    if (status == LOCH_OK) status = behind_measure(&b, &beside, true);
    tool_steps_end();
    if (status == LOCH_OK) behind_print(&b, options->is_json, &alone, &beside);
    const int code = status == LOCH_OK ? TOOL_DONE : tool_fail_status(status);
    behind_close(&b);
    sched_setaffinity(0, sizeof b.processors, &b.processors);
    free(alone.allocs.ns);
    free(alone.frees.ns);
    free(beside.allocs.ns);
    free(beside.frees.ns);
    return code;
}

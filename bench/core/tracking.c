/* SPDX-License-Identifier: MIT */
/* `core tracking`: measures what a tracking wrapper adds to a call.
 *
 * The wrapped allocator does almost nothing: each thread has a stack of addresses that are never touched, as if they
 * were on another device. So the difference is the cost of the wrapper. Calls without and with the wrapper alternate in
 * one run; the median of each counts. A repetition allocates all blocks and frees them, in the order of allocation or
 * shuffled. The stack hands out first what was freed last, so the allocations after a shuffled repetition are in
 * shuffled order too. Times are processor times of the threads, which other work on the machine disturbs less. */
#include "core.h"
#include "tools/json.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define BENCH_REPETITIONS 7
#define BENCH_THREADS_MAX 2
#define BENCH_CALLS 1000000 /* calls of each kind in one repetition, by all threads together */
#define BENCH_SMALLEST 64
#define BENCH_STEPS 13 /* block sizes: 64, 80, ... 256 bytes */
#define BENCH_BAR_IN_ORDER_NS 15.0
#define BENCH_BAR_SHUFFLED_NS 60.0 /* limit at a million live blocks */

static size_t bench_repetitions = BENCH_REPETITIONS, bench_calls = BENCH_CALLS; /* fewer with --quick */

static const struct {
    size_t threads, live;
    bool is_shuffled;
} bench_cases[] = {
    {1, 1000, false}, {1, 1000, true}, {1, 1000000, false}, {1, 1000000, true},
    {2, 1000, false}, {2, 1000, true}, {2, 1000000, false}, {2, 1000000, true},
};

/* --- the allocator beneath --- */

/* One thread's blocks. */
typedef struct bench_stock {
    _Alignas(128) void **free; /* a stack with its top at count - 1; aligned so that threads share no cache line */
    size_t count;              /* number of blocks that are not handed out */
    char *memory;              /* addresses, never touched */
    void **blocks;             /* blocks that the thread holds */
    uint64_t state;            /* state of the random numbers of the shuffle */
} bench_stock;

static _Thread_local bench_stock *bench_own;

static loch_status stock_alloc(void *self, const loch_request *request, void **out)
{
    bench_stock *stock = bench_own;
    (void)self;
    (void)request;
    if (!stock->count) return loch_error_set(LOCH_E_DEVICE_MEMORY, NULL, 0, "all blocks are handed out");
    *out = stock->free[--stock->count];
    return LOCH_OK;
}

static loch_status stock_free(void *self, void *address, size_t bytes, loch_stream *stream)
{
    bench_stock *stock = bench_own;
    (void)self;
    (void)bytes;
    (void)stream;
    stock->free[stock->count++] = address;
    return LOCH_OK;
}

/* With these slots the library does not record blocks itself. */
static loch_status stock_find(void *self, const void *address, loch_block *out)
{
    (void)self;
    (void)out;
    return loch_error_set(LOCH_E_UNSUPPORTED, NULL, 0, "nothing is known of %p", address);
}

static loch_status stock_walk(void *self, loch_block_visitor *visitor, void *user)
{
    (void)self;
    (void)visitor;
    (void)user;
    return LOCH_OK;
}

static loch_status stock_get_stats(void *self, loch_tag tag, loch_stats *out)
{
    (void)self;
    (void)tag;
    (void)out;
    return LOCH_OK;
}

static const loch_allocator_ops stock_ops = {
    .size = sizeof stock_ops,
    .kind = "stock",
    .traits = LOCH_TRAIT_THREAD_SAFE | LOCH_TRAIT_STREAM_ORDERED,
    .alloc = stock_alloc,
    .free = stock_free,
    .find = stock_find,
    .walk = stock_walk,
    .get_stats = stock_get_stats,
};

static void stock_fini(bench_stock *stock)
{
    free(stock->free);
    free(stock->memory);
    free(stock->blocks);
}

static bool stock_init(bench_stock *stock, size_t blocks)
{
    *stock = (bench_stock){.free = malloc(blocks * sizeof *stock->free),
                           .memory = malloc(blocks * (BENCH_SMALLEST + 16 * BENCH_STEPS)),
                           .blocks = malloc(blocks * sizeof *stock->blocks),
                           .state = 42};
    if (stock->free && stock->memory && stock->blocks) return true;
    stock_fini(stock);
    *stock = (bench_stock){.free = NULL};
    return false;
}

/* Sorts all blocks by their addresses. */
static void stock_fill(bench_stock *stock, size_t blocks)
{
    char *at = stock->memory;
    for (size_t i = 0; i < blocks; i++) {
        stock->free[blocks - 1 - i] = at;
        at += BENCH_SMALLEST + 16 * (i * 7 % BENCH_STEPS);
    }
    stock->count = blocks;
}

static void stock_shuffle(bench_stock *stock, size_t count)
{
    for (size_t i = count; i > 1; i--) {
        stock->state = stock->state * 6364136223846793005u + 1442695040888963407u;
        const size_t j = (size_t)((stock->state >> 33) % i);
        void *held = stock->blocks[j];
        stock->blocks[j] = stock->blocks[i - 1];
        stock->blocks[i - 1] = held;
    }
}

/* --- one repetition --- */

typedef struct bench_times {
    double alloc_ns, free_ns; /* nanoseconds for each call */
} bench_times;

/* Runs the work of one thread; the results are for each call. */
typedef struct bench_job {
    loch_allocator *allocator;
    bench_stock *stock;
    pthread_barrier_t *start;
    size_t blocks, rounds;
    bool is_shuffled;
    loch_status status;
    bench_times times;
} bench_job;

static uint64_t bench_now_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

static loch_status bench_round(bench_job *job, uint64_t *alloc_ns, uint64_t *free_ns)
{
    void **blocks = job->stock->blocks;
    loch_request request = {.size = sizeof request};
    loch_status status = LOCH_OK;
    const uint64_t start_ns = bench_now_ns();
    for (size_t i = 0; status == LOCH_OK && i < job->blocks; i++) {
        request.bytes = BENCH_SMALLEST - (i & 15);
        status = loch_allocator_alloc(job->allocator, &request, &blocks[i]);
    }
    *alloc_ns += bench_now_ns() - start_ns;
    if (status != LOCH_OK) return status;
    if (job->is_shuffled) stock_shuffle(job->stock, job->blocks);
    const uint64_t half_ns = bench_now_ns();
    for (size_t i = 0; status == LOCH_OK && i < job->blocks; i++)
        status = loch_free(job->allocator, blocks[i]);
    *free_ns += bench_now_ns() - half_ns;
    return status;
}

static void *bench_thread(void *argument)
{
    bench_job *job = argument;
    uint64_t alloc_ns = 0, free_ns = 0;
    bench_own = job->stock;
    job->status = LOCH_OK;
    pthread_barrier_wait(job->start);
    for (size_t i = 0; job->status == LOCH_OK && i < job->rounds; i++)
        job->status = bench_round(job, &alloc_ns, &free_ns);
    const double calls = (double)(job->rounds * job->blocks);
    job->times = (bench_times){(double)alloc_ns / calls, (double)free_ns / calls};
    return NULL;
}

/* Runs the jobs side by side, the first one on this thread. Returns the mean of their times. */
static bool bench_repeat(bench_job *jobs, size_t threads, loch_allocator *allocator, bench_times *out)
{
    pthread_barrier_t start;
    pthread_t other;
    if (pthread_barrier_init(&start, NULL, (unsigned)threads)) return false;
    for (size_t i = 0; i < threads; i++) {
        jobs[i].allocator = allocator;
        jobs[i].start = &start;
    }
    if (threads > 1 && pthread_create(&other, NULL, bench_thread, &jobs[1])) {
        for (size_t i = 0; i < threads; i++)
            jobs[i].start = NULL;
        pthread_barrier_destroy(&start);
        return false;
    }
    bench_thread(&jobs[0]);
    if (threads > 1) pthread_join(other, NULL);
    pthread_barrier_destroy(&start);
    *out = (bench_times){0, 0};
    bool is_good = true;
    for (size_t i = 0; i < threads; i++) {
        jobs[i].start = NULL;
        is_good = is_good && jobs[i].status == LOCH_OK;
        out->alloc_ns += jobs[i].times.alloc_ns / (double)threads;
        out->free_ns += jobs[i].times.free_ns / (double)threads;
    }
    return is_good;
}

/* --- one case --- */

static int bench_compare(const void *a, const void *b)
{
    const double left = *(const double *)a, right = *(const double *)b;
    return (left > right) - (left < right);
}

static bench_times bench_median(const bench_times *times)
{
    double alloc_ns[BENCH_REPETITIONS] = {0}, free_ns[BENCH_REPETITIONS] = {0};
    for (size_t i = 0; i < bench_repetitions; i++) {
        alloc_ns[i] = times[i].alloc_ns;
        free_ns[i] = times[i].free_ns;
    }
    qsort(alloc_ns, bench_repetitions, sizeof *alloc_ns, bench_compare);
    qsort(free_ns, bench_repetitions, sizeof *free_ns, bench_compare);
    return (bench_times){alloc_ns[bench_repetitions / 2], free_ns[bench_repetitions / 2]};
}

/* Measures calls to the two allocators in turns; the first repetition of each warms up. */
static bool bench_measure(size_t which, bench_stock *stocks, loch_allocator *const allocators[2], bench_times out[2])
{
    const size_t threads = bench_cases[which].threads, blocks = bench_cases[which].live / threads;
    bench_times times[2][BENCH_REPETITIONS + 1];
    bench_job jobs[BENCH_THREADS_MAX];
    for (size_t i = 0; i < threads; i++)
        jobs[i] = (bench_job){.stock = &stocks[i],
                              .blocks = blocks,
                              .rounds = bench_calls / bench_cases[which].live,
                              .is_shuffled = bench_cases[which].is_shuffled};
    for (size_t i = 0; i < threads; i++)
        stock_fill(&stocks[i], blocks);
    for (size_t repetition = 0; repetition <= bench_repetitions; repetition++)
        for (size_t tracked = 0; tracked < 2; tracked++)
            if (bench_repeat(jobs, threads, allocators[tracked], &times[tracked][repetition]))
                tool_steps_next();
            else
                return false;
    out[0] = bench_median(&times[0][1]);
    out[1] = bench_median(&times[1][1]);
    return true;
}

/* Returns the limit for the added time of a call; 0 if there is no limit. */
static double bench_bar(size_t which)
{
    if (!bench_cases[which].is_shuffled) return BENCH_BAR_IN_ORDER_NS;
    return bench_cases[which].live == 1000000 ? BENCH_BAR_SHUFFLED_NS : 0;
}

/* --- printing --- */

static void bench_print_start(const char *device, json_writer *json)
{
    if (!json) {
        printf("tracking on %s: ns a call, without and with it, medians of %zu\n\n", device, bench_repetitions);
        printf("%-8s %8s %-9s %8s %8s %8s %8s %8s %8s %6s\n", "threads", "live", "frees", "alloc", "tracked", "added",
               "free", "tracked", "added", "bar");
        return;
    }
    json_open_object(json, NULL);
    json_text(json, "bench", "tracking");
    json_text(json, "device", device);
    json_number(json, "repetitions", bench_repetitions);
    json_open_array(json, "results");
}

static void bench_print_json(size_t which, const bench_times times[2], bool is_met, json_writer *json)
{
    const double bar = bench_bar(which);
    json_open_object(json, NULL);
    json_number(json, "threads", bench_cases[which].threads);
    json_number(json, "live_blocks", bench_cases[which].live);
    json_text(json, "frees", bench_cases[which].is_shuffled ? "shuffled" : "in order");
    json_real(json, "alloc_ns", times[0].alloc_ns);
    json_real(json, "tracked_alloc_ns", times[1].alloc_ns);
    json_real(json, "added_alloc_ns", times[1].alloc_ns - times[0].alloc_ns);
    json_real(json, "free_ns", times[0].free_ns);
    json_real(json, "tracked_free_ns", times[1].free_ns);
    json_real(json, "added_free_ns", times[1].free_ns - times[0].free_ns);
    if (bar > 0) {
        json_real(json, "bar_ns", bar);
        json_flag(json, "is_met", is_met);
    }
    json_close_object(json);
}

static void bench_print_text(size_t which, const bench_times times[2], bool is_met)
{
    const double bar = bench_bar(which);
    printf("%-8zu %8zu %-9s %8.1f %8.1f %8.1f %8.1f %8.1f %8.1f ", bench_cases[which].threads, bench_cases[which].live,
           bench_cases[which].is_shuffled ? "shuffled" : "in order", times[0].alloc_ns, times[1].alloc_ns,
           times[1].alloc_ns - times[0].alloc_ns, times[0].free_ns, times[1].free_ns,
           times[1].free_ns - times[0].free_ns);
    if (bar > 0)
        printf("%6.0f %s\n", bar, is_met ? "met" : "missed");
    else
        printf("%6s\n", "-");
    fflush(stdout);
}

static size_t bench_count_cases(void)
{
    size_t count = 0;
    for (size_t i = 0; i < sizeof bench_cases / sizeof *bench_cases; i++)
        count += bench_cases[i].live <= bench_calls;
    return count;
}

static bool bench_run(const char *device, bench_stock *stocks, loch_allocator *const allocators[2], bool json)
{
    json_writer writer = {.file = stdout}, *const out = json ? &writer : NULL;
    bench_print_start(device, out);
    tool_steps_begin("tracking", 2 * (bench_repetitions + 1) * bench_count_cases());
    bool is_good = true;
    for (size_t i = 0; is_good && i < sizeof bench_cases / sizeof *bench_cases; i++) {
        if (bench_cases[i].live > bench_calls) continue;
        bench_times times[2] = {{0, 0}, {0, 0}};
        is_good = bench_measure(i, stocks, allocators, times);
        tool_steps_hide();
        const double bar = bench_bar(i);
        const bool is_met = times[1].alloc_ns - times[0].alloc_ns <= bar && times[1].free_ns - times[0].free_ns <= bar;
        if (is_good && json) bench_print_json(i, times, is_met, out);
        if (is_good && !json) bench_print_text(i, times, is_met);
    }
    tool_steps_end();
    if (json) {
        json_close_array(out);
        json_close_object(out);
    }
    return is_good;
}

int core_tracking(const tool_bench_options *options)
{
    if (options->is_quick) {
        bench_repetitions = 1;
        bench_calls = BENCH_CALLS / 100;
    }
    bench_stock stocks[BENCH_THREADS_MAX] = {{.free = NULL}};
    loch_device *device = NULL;
    loch_allocator *allocators[2] = {NULL, NULL}; /* without tracking and with tracking */
    bool has_memory = true;
    for (size_t i = 0; has_memory && i < BENCH_THREADS_MAX; i++)
        has_memory = stock_init(&stocks[i], BENCH_CALLS);
    loch_status status = LOCH_E_HOST_MEMORY;
    if (has_memory)
        status = loch_device_open(options->device, &device);
    else
        (void)loch_error_set(status, NULL, 0, "no host memory for the benchmark's blocks");
    if (status == LOCH_OK) status = loch_allocator_create(device, "stock", &stock_ops, NULL, &allocators[0]);
    if (status == LOCH_OK) status = loch_tracking_create(allocators[0], NULL, NULL, &allocators[1]);
    bool is_good = status == LOCH_OK && bench_run(loch_device_get_name(device), stocks, allocators, options->is_json);
    loch_allocator_release(allocators[1]);
    loch_allocator_release(allocators[0]);
    loch_device_release(device);
    for (size_t i = 0; i < BENCH_THREADS_MAX; i++)
        stock_fini(&stocks[i]);
    if (status != LOCH_OK) return tool_fail_status(status);
    return is_good ? TOOL_DONE : tool_fail("a call failed, or no second thread could be made");
}

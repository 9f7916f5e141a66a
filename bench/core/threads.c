/* SPDX-License-Identifier: MIT */
/* `core threads`: measures how throughput grows with threads, through the pool and other allocators (peers.h).
 *
 *   cycle     each thread keeps 8 blocks, and frees and replaces the oldest, many times
 *   hand      half of the threads allocate blocks; each hands them to another thread, which frees them
 *
 * An operation is an allocation and a free. Each thread is bound to its own processor if there are enough: to one of
 * each core first, then to the others. */
#include "core.h"
#include "tools/peers.h"

#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <string.h>

#define THREADS_MAX TOOL_THREADS_MAX
#define THREADS_SAMPLES 5
#define THREADS_ROUNDS 3
#define THREADS_LIVE 8
#define THREADS_RING 256

typedef struct threads_case {
    size_t threads, bytes;
    bool is_handing;
} threads_case;

/* Blocks on their way from one thread to another. One thread writes each end. */
typedef struct threads_ring {
    _Alignas(128) atomic_size_t written;
    _Alignas(128) atomic_size_t read;
    _Alignas(128) void *blocks[THREADS_RING];
} threads_ring;

typedef struct threads_job {
    _Alignas(128) peer_memory memory; /* aligned so that threads share no cache line */
    pthread_barrier_t *start;
    threads_ring *ring; /* NULL for a thread that cycles */
    bool is_taking;     /* takes blocks from the ring */
    atomic_bool *has_failed;
    size_t operations, bytes;
    int processor; /* processor; -1 for any */
    uint64_t start_ns, end_ns;
} threads_job;

/* Tells whether a processor is the first of its core that the set has. */
static bool threads_leads_core(const cpu_set_t *set, int processor)
{
    char path[96];
    snprintf(path, sizeof path, "/sys/devices/system/cpu/cpu%d/topology/thread_siblings_list", processor);
    FILE *file = fopen(path, "r");
    bool is_first = true;
    int from, to;
    while (file && is_first && fscanf(file, "%d", &from) == 1) {
        int separator = fgetc(file);
        to = from;
        if (separator == '-' && fscanf(file, "%d", &to) == 1) separator = fgetc(file);
        for (; from <= to && from < processor; from++)
            if (CPU_ISSET((unsigned)from, set)) is_first = false;
        if (separator != ',') break;
    }
    if (file) fclose(file);
    return is_first;
}

/* Lists the processors of this process: one of each core first, then the others. Returns their number. */
static size_t threads_processors(int out[THREADS_MAX])
{
    cpu_set_t set;
    size_t count = 0;
    if (sched_getaffinity(0, sizeof set, &set) != 0) return 0;
    for (int others = 0; others < 2; others++)
        for (int i = 0; i < CPU_SETSIZE && count < THREADS_MAX; i++)
            if (CPU_ISSET((unsigned)i, &set) && threads_leads_core(&set, i) == !others) out[count++] = i;
    return count;
}

/* Chooses thread counts: those of the options, or 1, 2, 4, ... up to the processors, at least 1 and 2. */
static size_t threads_choose(const tool_bench_options *options, size_t out[TOOL_THREADS_MAX])
{
    int processors[THREADS_MAX];
    memcpy(out, options->threads, sizeof options->threads);
    if (options->threads_count) return options->threads_count;
    const size_t found = threads_processors(processors), most = found < 2 ? 2 : found;
    size_t count = 0;
    for (size_t threads = 1;; threads = 2 * threads < most ? 2 * threads : most) {
        out[count++] = threads;
        if (threads == most) return count;
    }
}

/* Lists the cases: for each size and number of threads, first cycles, then hand-overs (from 2 threads on). */
static size_t threads_list(const tool_bench_options *options, threads_case out[PEER_CASES_MAX])
{
    static const size_t sizes[] = {48, 4096, 65536};
    const size_t *bytes = options->bytes_count ? options->bytes : sizes;
    const size_t bytes_count = options->bytes_count ? options->bytes_count : sizeof sizes / sizeof *sizes;
    size_t threads[TOOL_THREADS_MAX], count = 0;
    const size_t threads_count = threads_choose(options, threads);
    for (size_t i = 0; i < bytes_count; i++)
        for (size_t k = 0; k < threads_count && count + 2 <= PEER_CASES_MAX; k++) {
            if (!options->is_hand_over) out[count++] = (threads_case){threads[k], bytes[i], false};
            if (threads[k] > 1) out[count++] = (threads_case){threads[k] & ~(size_t)1, bytes[i], true};
        }
    return count;
}

/* --- measuring, in the child --- */

static bool threads_cycle(threads_job *job)
{
    void *blocks[THREADS_LIVE] = {NULL};
    bool is_good = true;
    for (size_t i = 0; is_good && i < job->operations; i++) {
        void **block = &blocks[i % THREADS_LIVE];
        if (*block) is_good = peer_free(&job->memory, *block, job->bytes);
        *block = peer_alloc(&job->memory, job->bytes);
        is_good = is_good && *block;
    }
    for (size_t i = 0; i < THREADS_LIVE; i++)
        if (blocks[i]) is_good = peer_free(&job->memory, blocks[i], job->bytes) && is_good;
    return is_good;
}

static bool threads_give(threads_job *job)
{
    threads_ring *ring = job->ring;
    for (size_t i = 0; i < job->operations; i++) {
        void *block = peer_alloc(&job->memory, job->bytes);
        if (!block) return false;
        while (i - atomic_load_explicit(&ring->read, memory_order_acquire) == THREADS_RING) {
            if (atomic_load_explicit(job->has_failed, memory_order_relaxed)) {
                peer_free(&job->memory, block, job->bytes);
                return false;
            }
            sched_yield();
        }
        ring->blocks[i % THREADS_RING] = block;
        atomic_store_explicit(&ring->written, i + 1, memory_order_release);
    }
    return true;
}

static bool threads_take(threads_job *job)
{
    threads_ring *ring = job->ring;
    for (size_t i = 0; i < job->operations; i++) {
        while (atomic_load_explicit(&ring->written, memory_order_acquire) == i) {
            if (atomic_load_explicit(job->has_failed, memory_order_relaxed)) return false;
            sched_yield();
        }
        void *block = ring->blocks[i % THREADS_RING];
        atomic_store_explicit(&ring->read, i + 1, memory_order_release);
        if (!peer_free(&job->memory, block, job->bytes)) return false;
    }
    return true;
}

static void *threads_work(void *argument)
{
    threads_job *job = argument;
    if (job->processor >= 0) {
        cpu_set_t set;
        CPU_ZERO(&set);
        CPU_SET((unsigned)job->processor, &set);
        pthread_setaffinity_np(pthread_self(), sizeof set, &set); /* if this fails, the system chooses the processor */
    }
    pthread_barrier_wait(job->start);
    job->start_ns = loch_host_now_ns();
    const bool is_good = !job->ring ? threads_cycle(job) : job->is_taking ? threads_take(job) : threads_give(job);
    job->end_ns = loch_host_now_ns();
    if (!is_good) atomic_store_explicit(job->has_failed, true, memory_order_relaxed);
    return NULL;
}

/* Runs the jobs side by side. Returns false if one failed. If a thread cannot be created, the process ends: the barrier
 * would hold the other threads forever. */
static bool threads_run_jobs(threads_job *jobs, size_t count)
{
    pthread_t threads[THREADS_MAX];
    pthread_barrier_t start;
    atomic_bool has_failed = false;
    if (pthread_barrier_init(&start, NULL, (unsigned)count)) return false;
    for (size_t i = 0; i < count; i++) {
        jobs[i].start = &start;
        jobs[i].has_failed = &has_failed;
        if (pthread_create(&threads[i], NULL, threads_work, &jobs[i])) exit(tool_fail("no more than %zu threads", i));
    }
    for (size_t i = 0; i < count; i++)
        pthread_join(threads[i], NULL);
    pthread_barrier_destroy(&start);
    return !atomic_load(&has_failed);
}

/* Returns the operations per second of one run; negative on failure. */
static double threads_sample(const peer_memory *memory, threads_case which, size_t operations)
{
    static threads_job jobs[THREADS_MAX];
    static threads_ring rings[THREADS_MAX / 2];
    int processors[THREADS_MAX];
    const bool has_enough = threads_processors(processors) >= which.threads;
    for (size_t i = 0; i < which.threads; i++) {
        threads_ring *ring = which.is_handing ? &rings[i / 2] : NULL;
        if (ring) {
            atomic_store(&ring->written, 0);
            atomic_store(&ring->read, 0);
        }
        jobs[i] = (threads_job){.memory = *memory,
                                .ring = ring,
                                .is_taking = i % 2 == 1,
                                .operations = operations,
                                .bytes = which.bytes,
                                .processor = has_enough ? processors[i] : -1};
    }
    if (!threads_run_jobs(jobs, which.threads)) return -1;
    uint64_t start_ns = UINT64_MAX, end_ns = 0;
    for (size_t i = 0; i < which.threads; i++) {
        if (jobs[i].start_ns < start_ns) start_ns = jobs[i].start_ns;
        if (jobs[i].end_ns > end_ns) end_ns = jobs[i].end_ns;
    }
    const size_t workers = which.is_handing ? which.threads / 2 : which.threads;
    return (double)(workers * operations) * 1e9 / (double)(end_ns - start_ns + 1);
}

static double threads_measure(const tool_bench_options *options, const peer_memory *memory, threads_case which)
{
    const size_t operations = options->is_quick             ? 500
                              : peer_memory_is_slow(memory) ? 1000
                              : which.is_handing            ? 200000
                                                            : 200000;
    double samples[THREADS_SAMPLES + 1]; /* the first run warms up */
    for (size_t i = 0; i <= THREADS_SAMPLES; i++) {
        samples[i] = threads_sample(memory, which, operations);
        if (samples[i] < 0) return -1;
    }
    return peer_median(samples + 1, THREADS_SAMPLES);
}

static int threads_child(const tool_bench_options *options)
{
    threads_case cases[PEER_CASES_MAX];
    peer_memory memory;
    const size_t count = threads_list(options, cases);
    if (!peer_memory_open(&memory, options->as, options->device)) return TOOL_FAILED;
    for (size_t which = 0; which < count; which++)
        peer_report(which, threads_measure(options, &memory, cases[which]));
    peer_memory_close(&memory);
    return TOOL_DONE;
}

/* --- printing, in the parent --- */

static const char *threads_case_name(threads_case which)
{
    return which.is_handing ? "hand" : "cycle";
}

/* Returns the throughput divided by that of the first case of the kind and size: one thread, or one pair. */
static double threads_speedup(const peer_bench *bench, const threads_case *cases, size_t peer, size_t which)
{
    size_t first = 0;
    while (cases[first].bytes != cases[which].bytes || cases[first].is_handing != cases[which].is_handing)
        first++;
    const double few = bench->figures[peer][first], all = bench->figures[peer][which];
    return first < which && few > 0 && all >= 0 ? all / few : -1;
}

static void threads_print_text(const peer_bench *bench, const threads_case *cases)
{
    char text[64];
    printf("threads on %s: million operations a second, and how many times those of the fewest threads\n\n%-18s",
           bench->options->device, "");
    peers_print_heads(bench);
    for (size_t which = 0; which < bench->cases; which++) {
        snprintf(text, sizeof text, "%s %zu, %s", threads_case_name(cases[which]), cases[which].threads,
                 LOCHI_SIZE_ROUND(cases[which].bytes, 2));
        printf("%-18s", text);
        peers_print_row(bench, which, 1e-6);
        if (threads_speedup(bench, cases, 0, which) < 0) continue;
        printf("%-18s", "  times the fewest");
        for (size_t peer = 0; peer < bench->peers_count; peer++) {
            if (bench->is_absent[peer]) continue;
            if (threads_speedup(bench, cases, peer, which) < 0)
                printf(" %10s", "-");
            else
                printf(" %10.2f", threads_speedup(bench, cases, peer, which));
        }
        putchar('\n');
    }
    for (size_t peer = 1; peer < bench->peers_count; peer++)
        if (bench->is_absent[peer]) printf("absent: %s\n", bench->peers[peer]);
}

static void threads_print_json(const peer_bench *bench, const threads_case *cases)
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
            json_text(&json, "case", threads_case_name(cases[which]));
            json_number(&json, "threads", cases[which].threads);
            json_number(&json, "bytes", cases[which].bytes);
            json_real(&json, "operations_per_second", bench->figures[peer][which]);
            if (threads_speedup(bench, cases, peer, which) >= 0)
                json_real(&json, "speedup", threads_speedup(bench, cases, peer, which));
            json_close_object(&json);
        }
    json_close_array(&json);
    json_open_array(&json, "ratios");
    for (size_t which = 0; which < bench->cases; which++) {
        if (peers_ratio(bench, which) < 0) continue;
        json_open_object(&json, NULL);
        json_text(&json, "case", threads_case_name(cases[which]));
        json_number(&json, "threads", cases[which].threads);
        json_number(&json, "bytes", cases[which].bytes);
        json_text(&json, "best_peer", bench->peers[peers_best(bench, which)]);
        json_real(&json, "ratio", peers_ratio(bench, which));
        json_close_object(&json);
    }
    json_close_array(&json);
    json_close_object(&json);
}

int core_threads(const tool_bench_options *options)
{
    static peer_bench bench; /* static because it is large; the program runs once */
    threads_case cases[PEER_CASES_MAX] = {{0}};
    if (options->as) return threads_child(options);
    bench = (peer_bench){.name = "threads",
                         .options = options,
                         .cases = threads_list(options, cases),
                         .rounds = options->is_quick ? 1 : THREADS_ROUNDS,
                         .higher_is_better = true};
    const int code = peers_run(&bench);
    if (code == TOOL_DONE && options->is_json) threads_print_json(&bench, cases);
    if (code == TOOL_DONE && !options->is_json) threads_print_text(&bench, cases);
    return code;
}

/* SPDX-License-Identifier: MIT */
/* `loch bench threads`: measures how throughput grows with threads, through the pool and other allocators (peers.h).
 *
 *   cycle     each thread keeps 8 blocks of 64 KiB, and frees and replaces the oldest, many times
 *   hand      half of the threads allocate such blocks; each hands them to another thread, which frees them
 *
 * An operation is an allocation and a free. Each thread is bound to its own processor if there are enough. */
#include "peers.h"

#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <string.h>

#define THREADS_MAX 256
#define THREADS_SAMPLES 5
#define THREADS_ROUNDS 3
#define THREADS_BYTES ((size_t)64 << 10)
#define THREADS_LIVE 8
#define THREADS_RING 256

typedef struct threads_case {
    size_t threads;
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
    size_t operations;
    int processor; /* processor; -1 for any */
    uint64_t start_ns, end_ns;
} threads_job;

static size_t threads_processors(cpu_set_t *set)
{
    const size_t count = sched_getaffinity(0, sizeof *set, set) == 0 ? (size_t)CPU_COUNT(set) : 1;
    return count < THREADS_MAX ? count : THREADS_MAX;
}

/* Thread counts: 1, 2, 4, ... up to the processors, at least 1 and 2. Each count first cycles, then hands (from 2
 * threads on). */
static size_t threads_list(threads_case out[PEER_CASES_MAX])
{
    cpu_set_t set;
    const size_t processors = threads_processors(&set), most = processors < 2 ? 2 : processors;
    size_t count = 0, threads = 1;
    for (;;) {
        out[count++] = (threads_case){threads, false};
        if (threads > 1) out[count++] = (threads_case){threads & ~(size_t)1, true};
        if (threads == most) return count;
        threads = 2 * threads < most ? 2 * threads : most;
    }
}

/* --- measuring, in the child --- */

static bool threads_cycle(threads_job *job)
{
    void *blocks[THREADS_LIVE] = {NULL};
    bool is_good = true;
    for (size_t i = 0; is_good && i < job->operations; i++) {
        void **block = &blocks[i % THREADS_LIVE];
        if (*block) is_good = peer_free(&job->memory, *block, THREADS_BYTES);
        *block = peer_alloc(&job->memory, THREADS_BYTES);
        is_good = is_good && *block;
    }
    for (size_t i = 0; i < THREADS_LIVE; i++)
        if (blocks[i]) is_good = peer_free(&job->memory, blocks[i], THREADS_BYTES) && is_good;
    return is_good;
}

static bool threads_give(threads_job *job)
{
    threads_ring *ring = job->ring;
    for (size_t i = 0; i < job->operations; i++) {
        void *block = peer_alloc(&job->memory, THREADS_BYTES);
        if (!block) return false;
        while (i - atomic_load_explicit(&ring->read, memory_order_acquire) == THREADS_RING) {
            if (atomic_load_explicit(job->has_failed, memory_order_relaxed)) {
                peer_free(&job->memory, block, THREADS_BYTES);
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
        if (!peer_free(&job->memory, block, THREADS_BYTES)) return false;
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

/* Returns the number of the processor at `index` of the set; -1 if there are fewer. */
static int threads_processor(const cpu_set_t *set, size_t index)
{
    for (int i = 0; i < CPU_SETSIZE; i++)
        if (CPU_ISSET((unsigned)i, set) && index-- == 0) return i;
    return -1;
}

/* Returns the operations per second of one run; negative on failure. */
static double threads_sample(const peer_memory *memory, threads_case which, size_t operations)
{
    static threads_job jobs[THREADS_MAX];
    static threads_ring rings[THREADS_MAX / 2];
    cpu_set_t set;
    const bool has_enough = threads_processors(&set) >= which.threads;
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
                                .processor = has_enough ? threads_processor(&set, i) : -1};
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
                              : which.is_handing            ? 50000
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
    const size_t count = threads_list(cases);
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

/* Returns the throughput divided by that of one thread, which is the first case. */
static double threads_speedup(const peer_bench *bench, size_t peer, size_t which)
{
    const double one = bench->figures[peer][0], all = bench->figures[peer][which];
    return one > 0 && all >= 0 ? all / one : -1;
}

static void threads_print_text(const peer_bench *bench, const threads_case *cases)
{
    char text[64];
    printf("threads on %s: million operations a second, and how many times those of one thread\n\n%-14s",
           bench->options->device, "");
    peers_print_heads(bench);
    for (size_t which = 0; which < bench->cases; which++) {
        snprintf(text, sizeof text, "%s %zu", threads_case_name(cases[which]), cases[which].threads);
        printf("%-14s", text);
        peers_print_row(bench, which, 1e-6);
        if (cases[which].threads == 1 || cases[which].is_handing) continue;
        printf("%-14s", "  times one");
        for (size_t peer = 0; peer < bench->peers_count; peer++) {
            if (bench->is_absent[peer]) continue;
            if (threads_speedup(bench, peer, which) < 0)
                printf(" %10s", "-");
            else
                printf(" %10.2f", threads_speedup(bench, peer, which));
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
    json_number(&json, "bytes", THREADS_BYTES);
    json_open_array(&json, "results");
    for (size_t which = 0; which < bench->cases; which++)
        for (size_t peer = 0; peer < bench->peers_count; peer++) {
            if (bench->figures[peer][which] < 0) continue;
            json_open_object(&json, NULL);
            json_text(&json, "allocator", bench->peers[peer]);
            json_text(&json, "case", threads_case_name(cases[which]));
            json_number(&json, "threads", cases[which].threads);
            json_real(&json, "operations_per_second", bench->figures[peer][which]);
            if (!cases[which].is_handing) json_real(&json, "speedup", threads_speedup(bench, peer, which));
            json_close_object(&json);
        }
    json_close_array(&json);
    json_open_array(&json, "ratios");
    for (size_t which = 0; which < bench->cases; which++) {
        if (peers_ratio(bench, which) < 0) continue;
        json_open_object(&json, NULL);
        json_text(&json, "case", threads_case_name(cases[which]));
        json_number(&json, "threads", cases[which].threads);
        json_text(&json, "best_peer", bench->peers[peers_best(bench, which)]);
        json_real(&json, "ratio", peers_ratio(bench, which));
        json_close_object(&json);
    }
    json_close_array(&json);
    json_close_object(&json);
}

int tool_bench_threads(const tool_bench_options *options)
{
    static peer_bench bench; /* static because it is large; the program runs once */
    threads_case cases[PEER_CASES_MAX] = {{0}};
    if (options->as) return threads_child(options);
    bench = (peer_bench){.name = "threads",
                         .options = options,
                         .cases = threads_list(cases),
                         .rounds = options->is_quick ? 1 : THREADS_ROUNDS,
                         .higher_is_better = true};
    const int code = peers_run(&bench);
    if (code == TOOL_DONE && options->is_json) threads_print_json(&bench, cases);
    if (code == TOOL_DONE && !options->is_json) threads_print_text(&bench, cases);
    return code;
}

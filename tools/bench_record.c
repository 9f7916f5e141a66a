/* SPDX-License-Identifier: MIT */
/* `loch bench record`: measures what the recorder adds to allocations and frees.
 *
 *   off      nothing is recorded
 *   ring     a ring in memory
 *   file     a streamed file, in TMPDIR
 *   stacks   a ring, with call stacks of 16 frames
 *
 * Every thread allocates and frees small blocks of its own, in one pool. Ways take turns in short samples, and the
 * median of a way counts, so that other load of the machine hits all of them. */
#include "bench.h"
#include "json.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#define RECORD_LIVE 16 /* blocks of one thread */
#define RECORD_SAMPLES 15
#define RECORD_STACK 16

typedef enum record_way { RECORD_OFF, RECORD_RING, RECORD_FILE, RECORD_STACKS, RECORD_WAYS } record_way;

static const char *const record_names[RECORD_WAYS] = {"off", "ring", "file", "stacks"};

typedef struct record_bench {
    loch_allocator *pool;
    size_t pairs; /* of one thread in one sample */
    char path[256];
    double bytes_per_event;
} record_bench;

typedef struct record_thread {
    pthread_t thread;
    const record_bench *bench;
    pthread_barrier_t *barrier;
    uint64_t start_ns, end_ns; /* on the host's clock */
    uint64_t cpu_ns;           /* time of the processor: without what other programs take */
    loch_status status;
} record_thread;

/* --- measuring --- */

static uint64_t record_cpu_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

static loch_status record_cycle(loch_allocator *pool, size_t pairs)
{
    void *blocks[RECORD_LIVE] = {NULL};
    loch_status status = LOCH_OK;
    for (size_t i = 0; status == LOCH_OK && i < pairs; i++) {
        void **block = &blocks[i % RECORD_LIVE];
        if (*block) status = loch_free(pool, *block);
        *block = NULL;
        if (status == LOCH_OK) status = loch_alloc(pool, 16 + i * 37 % 3000, block);
    }
    for (size_t i = 0; i < RECORD_LIVE; i++) {
        const loch_status freed = loch_free(pool, blocks[i]);
        if (status == LOCH_OK) status = freed;
    }
    return status;
}

static void *record_run(void *user)
{
    record_thread *self = user;
    self->status = record_cycle(self->bench->pool, 1000); /* warms up */
    pthread_barrier_wait(self->barrier);
    self->start_ns = loch_host_now_ns();
    const uint64_t before = record_cpu_ns();
    if (self->status == LOCH_OK) self->status = record_cycle(self->bench->pool, self->bench->pairs);
    self->cpu_ns = record_cpu_ns() - before;
    self->end_ns = loch_host_now_ns();
    return NULL;
}

/* Returns the nanoseconds that one event takes of a processor; negative if a call failed. `rate` gets the events a
 * second of all threads. */
static double record_sample(const record_bench *bench, size_t count, double *rate)
{
    record_thread threads[TOOL_THREADS_MAX];
    pthread_barrier_t barrier;
    if (pthread_barrier_init(&barrier, NULL, (unsigned)count) != 0) return -1;
    size_t made = 0;
    for (; made < count; made++) {
        threads[made] = (record_thread){.bench = bench, .barrier = &barrier};
        if (pthread_create(&threads[made].thread, NULL, record_run, &threads[made]) != 0) exit(tool_fail("no thread"));
    }
    uint64_t start = UINT64_MAX, end = 0, cpu = 0;
    bool is_well = true;
    for (size_t i = 0; i < made; i++) {
        pthread_join(threads[i].thread, NULL);
        is_well &= threads[i].status == LOCH_OK;
        cpu += threads[i].cpu_ns;
        if (threads[i].start_ns < start) start = threads[i].start_ns;
        if (threads[i].end_ns > end) end = threads[i].end_ns;
    }
    pthread_barrier_destroy(&barrier);
    const double events = 2 * (double)bench->pairs * (double)count;
    *rate = events / (double)(end - start) * 1e9;
    return is_well ? (double)cpu / events : -1;
}

static loch_status record_begin(const record_bench *bench, record_way way)
{
    const loch_recorder_options options = {.size = sizeof options,
                                           .path = way == RECORD_FILE ? bench->path : NULL,
                                           .stack_depth = way == RECORD_STACKS ? RECORD_STACK : 0};
    return way == RECORD_OFF ? LOCH_OK : loch_recorder_start(&options);
}

static int record_compare(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* Figures of one way with one number of threads. */
typedef struct record_figure {
    double median, least; /* nanoseconds of a processor for one event, of all samples */
    double rate;          /* median of events a second */
} record_figure;

/* Measures all ways with `count` threads. */
static loch_status record_measure(record_bench *bench, size_t count, size_t samples, record_figure out[RECORD_WAYS])
{
    double times[RECORD_WAYS][RECORD_SAMPLES], rates[RECORD_WAYS][RECORD_SAMPLES];
    for (size_t i = 0; i < samples; i++)
        for (record_way way = RECORD_OFF; way < RECORD_WAYS; way++) {
            loch_status status = record_begin(bench, way);
            if (status != LOCH_OK) return status;
            times[way][i] = record_sample(bench, count, &rates[way][i]);
            if (way != RECORD_OFF) status = loch_recorder_stop();
            if (status != LOCH_OK) return status;
            if (times[way][i] < 0) return loch_error_set(LOCH_E_INVALID, NULL, 0, "a call of the benchmark failed");
            struct stat info;
            if (way == RECORD_FILE && stat(bench->path, &info) == 0)
                bench->bytes_per_event = (double)info.st_size / (2 * (double)(bench->pairs + 1000) * (double)count);
        }
    for (record_way way = RECORD_OFF; way < RECORD_WAYS; way++) {
        qsort(times[way], samples, sizeof times[way][0], record_compare);
        qsort(rates[way], samples, sizeof rates[way][0], record_compare);
        out[way] = (record_figure){times[way][samples / 2], times[way][0], rates[way][samples / 2]};
    }
    return LOCH_OK;
}

/* --- results --- */

static void record_print(const tool_bench_options *options, const record_bench *bench, const size_t *threads,
                         size_t count, record_figure figures[][RECORD_WAYS])
{
    printf("recording on %s: nanoseconds of a processor for an event, how many more than off, and how many times the\n"
           "events a second of the fewest threads\n\n",
           options->device);
    printf("%-8s %-8s %9s %9s %9s %9s %9s\n", "threads", "way", "median", "more", "least", "more", "speedup");
    for (size_t i = 0; i < count; i++)
        for (record_way way = RECORD_OFF; way < RECORD_WAYS; way++) {
            const record_figure *it = &figures[i][way], *off = &figures[i][RECORD_OFF];
            printf("%-8zu %-8s %9.1f %9.1f %9.1f %9.1f %9.2f\n", threads[i], record_names[way], it->median,
                   it->median - off->median, it->least, it->least - off->least, it->rate / figures[0][way].rate);
        }
    printf("\n%.2f bytes of file an event\n", bench->bytes_per_event);
}

static void record_print_json(const tool_bench_options *options, const record_bench *bench, const size_t *threads,
                              size_t count, record_figure figures[][RECORD_WAYS])
{
    json_writer json = {.file = stdout};
    json_open_object(&json, NULL);
    json_text(&json, "device", options->device);
    json_real(&json, "bytes_per_event", bench->bytes_per_event);
    json_open_array(&json, "results");
    for (size_t i = 0; i < count; i++)
        for (record_way way = RECORD_OFF; way < RECORD_WAYS; way++) {
            const record_figure *it = &figures[i][way], *off = &figures[i][RECORD_OFF];
            json_open_object(&json, NULL);
            json_number(&json, "threads", threads[i]);
            json_text(&json, "way", record_names[way]);
            json_real(&json, "ns_per_event", it->median);
            json_real(&json, "more_ns", it->median - off->median);
            json_real(&json, "least_ns_per_event", it->least);
            json_real(&json, "least_more_ns", it->least - off->least);
            json_real(&json, "events_per_second", it->rate);
            json_real(&json, "speedup", it->rate / figures[0][way].rate);
            json_close_object(&json);
        }
    json_close_array(&json);
    json_close_object(&json);
}

int tool_bench_record(const tool_bench_options *options)
{
    record_figure figures[TOOL_NUMBERS_MAX][RECORD_WAYS] = {{{0}}};
    size_t threads[TOOL_NUMBERS_MAX] = {1}, count = 1;
    const size_t samples = options->is_quick ? 3 : RECORD_SAMPLES;
    record_bench bench = {.pairs = options->is_quick ? 2000 : 200000};
    const char *folder = getenv("TMPDIR");
    loch_device *device = NULL;
    const long processors = sysconf(_SC_NPROCESSORS_ONLN);
    for (size_t more = 2; !options->threads_count && (long)more <= processors && count < TOOL_NUMBERS_MAX; more *= 2)
        threads[count++] = more;
    if (options->threads_count) count = options->threads_count;
    if (options->threads_count) memcpy(threads, options->threads, count * sizeof *threads);
    snprintf(bench.path, sizeof bench.path, "%s/loch-bench-record-%ld.loch", folder ? folder : "/tmp", (long)getpid());
    loch_status status = loch_device_open(options->device, &device);
    if (status == LOCH_OK) status = loch_pool_create(device, "record", NULL, &bench.pool);
    tool_progress progress = {.label = "record", .total = count};
    for (size_t i = 0; status == LOCH_OK && i < count; i++) {
        tool_progress_show(&progress, i);
        status = record_measure(&bench, threads[i], samples, figures[i]);
    }
    tool_progress_end(&progress);
    (void)unlink(bench.path);
    loch_allocator_release(bench.pool);
    loch_device_release(device);
    if (status != LOCH_OK) return tool_fail_status(status);
    (options->is_json ? record_print_json : record_print)(options, &bench, threads, count, figures);
    return TOOL_DONE;
}

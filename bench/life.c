/* SPDX-License-Identifier: MIT */
/* A long life: sends events of changing load through one pool and writes down whether its figures stay flat.
 *
 *   life [DEVICE] [OPTION...]    DEVICE is cpu (default), sim:16GiB,unbacked or another one
 *
 *   --events COUNT     ends after that many events (10^9)
 *   --time SECONDS     ends after that long, at the end of a cycle
 *   --cycle COUNT      events in a cycle, about (10^6)
 *   --seed NUMBER      seed of the load (1)
 *   --log FILE         appends the samples to FILE instead of printing them
 *   --check            exits with 1 if a figure rose from the first to the last tenth of the samples
 *   --bar PERCENT      bar of --check for memory (2)
 *   --time-bar PERCENT bar of --check for times (2)
 *   --leak BYTES       leaks a block of that size in each cycle, to show that --check can fail
 *   --report FILE      runs nothing: prints the tenths of the last life in FILE, and checks them with --check
 *
 * An event is one call: an allocation, a free, a resize, a stream, a child, a sleep, a trim. A cycle goes once through
 * all phases; a sample is taken at its end, where only the blocks that outlive cycles are live. The load of a cycle
 * follows from the seed and the number of the cycle. A pool cannot outlive its process: a run that appends to a log
 * goes on with the next cycle in a new pool, and says so by a new head line. To pause one life, stop the process by
 * SIGSTOP. SIGINT and SIGTERM end it after the cycle. */
#include <loch/loch.h>
#include <loch/sim.h>
#include <inttypes.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define KIB ((size_t)1 << 10)
#define MIB ((size_t)1 << 20)
#define SLOTS 8192
#define CORE 256   /* blocks that outlive cycles */
#define SHARES 200 /* a cycle in parts; the phases take a number of them each */
#define STREAMS 4
#define TIMED_EVERY 13 /* prime, so that every kind of call is timed */
#define FINE 64        /* steps of the histogram between powers of two: 1.6 % */

/* --- samples --- */

typedef enum life_figure { RESERVED, PEAK, USED, HANDLES, RSS, MAPS, NS, P999, FIGURES } life_figure;

static const struct {
    const char *name, *text;
    double unit; /* the table prints in these */
} figures[FIGURES] = {
    {"reserved", "reserved, MiB", 1 << 20}, {"peak", "peak of a cycle, MiB", 1 << 20},
    {"used", "in use, MiB", 1 << 20},       {"handles", "handles", 1},
    {"rss", "RSS, MiB", 1 << 20},           {"maps", "mappings", 1},
    {"ns", "CPU ns an event", 1},           {"p999", "p99.9, ns", 1},
};

typedef struct life_sample {
    uint64_t cycle, events; /* events since the seed's first one */
    double values[FIGURES];
} life_sample;

typedef struct life_samples {
    life_sample *items;
    size_t count, capacity;
} life_samples;

/* Grows an array. Touches all of it, so that samples which are added later do not count as growth of the process. */
static void *grow(void *items, size_t *capacity, size_t item_bytes)
{
    const size_t before = *capacity;
    *capacity = *capacity ? 2 * *capacity : 1024;
    items = realloc(items, *capacity * item_bytes);
    if (!items) {
        fprintf(stderr, "life: no memory for samples\n");
        exit(1);
    }
    memset((char *)items + before * item_bytes, 0, (*capacity - before) * item_bytes);
    return items;
}

static void add_sample(life_samples *samples, const life_sample *sample)
{
    if (samples->count == samples->capacity)
        samples->items = grow(samples->items, &samples->capacity, sizeof *samples->items);
    samples->items[samples->count++] = *sample;
}

static void write_sample(FILE *log, const life_sample *sample)
{
    fprintf(log, "%" PRIu64 " %" PRIu64, sample->cycle, sample->events);
    for (size_t i = 0; i < FIGURES; i++)
        fprintf(log, " %.*f", i == NS ? 2 : 0, sample->values[i]);
    fputc('\n', log);
    fflush(log);
}

/* Reads the samples of the last life of a log. Returns whether the file has lines. */
static bool read_log(const char *path, life_samples *samples, char *head, size_t head_bytes)
{
    char line[512];
    FILE *log = fopen(path, "r");
    if (!log) return false;
    *head = 0;
    while (fgets(line, sizeof line, log)) {
        life_sample sample = {0};
        char *at = line;
        if (!strncmp(line, "# life", 6)) {
            snprintf(head, head_bytes, "%.*s", (int)strcspn(line, "\n"), line);
            samples->count = 0;
        }
        if (*line == '#') continue;
        sample.cycle = strtoull(at, &at, 10);
        sample.events = strtoull(at, &at, 10);
        for (size_t i = 0; i < FIGURES; i++)
            sample.values[i] = strtod(at, &at);
        if (*at == '\n') add_sample(samples, &sample); /* else the process ended within the line */
    }
    fclose(log);
    return *head;
}

static int compare(const void *one, const void *other)
{
    const double a = *(const double *)one, b = *(const double *)other;
    return (a > b) - (a < b);
}

/* Returns the median of a figure over a part of the samples. */
static double part_median(const life_samples *samples, size_t from, size_t end, life_figure figure)
{
    double *values = malloc((end - from) * sizeof *values), result = 0;
    if (!values) return 0;
    for (size_t i = from; i < end; i++)
        values[i - from] = samples->items[i].values[figure];
    qsort(values, end - from, sizeof *values, compare);
    result = values[(end - from) / 2];
    free(values);
    return result;
}

static double tenth(const life_samples *samples, size_t part, life_figure figure)
{
    return part_median(samples, samples->count * part / 10, samples->count * (part + 1) / 10, figure);
}

/* Prints the medians of ten tenths. Returns whether no figure rose by more than its bar. */
static bool report(const life_samples *samples, bool check, double bar, double time_bar)
{
    bool flat = true;
    if (samples->count < 10) {
        fprintf(stderr, "life: %zu samples are too few for ten tenths\n", samples->count);
        return !check;
    }
    printf("| tenth | events |");
    for (size_t i = 0; i < FIGURES; i++)
        printf(" %s |", figures[i].text);
    printf("\n|---|---|---|---|---|---|---|---|---|---|\n");
    for (size_t part = 0; part < 10; part++) {
        const size_t last = samples->count * (part + 1) / 10 - 1;
        printf("| %zu | %.1f M |", part + 1, (double)samples->items[last].events / 1e6);
        for (size_t i = 0; i < FIGURES; i++)
            printf(" %.*f |", figures[i].unit > 1 || i == NS ? 1 : 0, tenth(samples, part, i) / figures[i].unit);
        printf("\n");
    }
    printf("| last over first | |");
    for (size_t i = 0; i < FIGURES; i++)
        printf(" %+.1f %% |", 100 * (tenth(samples, 9, i) / tenth(samples, 0, i) - 1));
    printf("\n");
    fflush(stdout);
    for (size_t i = 0; check && i < FIGURES; i++) {
        const double first = tenth(samples, 0, i), last = tenth(samples, 9, i), rise = 100 * (last / first - 1);
        const double limit = i == NS || i == P999 ? time_bar : bar;
        if (rise <= limit) continue;
        fprintf(stderr,
                "life: %s rose by %.1f %% from the first to the last tenth, from %.1f to %.1f; the bar is %g %%\n",
                figures[i].text, rise, first / figures[i].unit, last / figures[i].unit, limit);
        flat = false;
    }
    return flat;
}

/* --- one life --- */

typedef struct life_block {
    unsigned char *address;
    size_t bytes;
} life_block;

typedef struct life_state {
    loch_device *device;
    loch_allocator *pool;
    bool on_host;    /* the program may touch the memory */
    bool is_virtual; /* it can grow blocks and sleep */
    bool simulated;
    size_t cycle_events, leak_bytes;
    uint64_t random, events, until_timed;
    life_block blocks[SLOTS], core[CORE];
    uint64_t histogram[64 * FINE], timed;
} life_state;

static volatile sig_atomic_t stopped;

static void stop(int signal_number)
{
    (void)signal_number;
    stopped = 1;
}

/* splitmix64 */
static uint64_t draw(life_state *life)
{
    uint64_t value = life->random += 0x9e3779b97f4a7c15u;
    value = (value ^ (value >> 30)) * 0xbf58476d1ce4e5b9u;
    value = (value ^ (value >> 27)) * 0x94d049bb133111ebu;
    return value ^ (value >> 31);
}

/* Draws from least to most, both powers of two: all powers of two between alike, and evenly in each. */
static size_t draw_size(life_state *life, size_t least, size_t most)
{
    size_t bytes = least, doublings = 0;
    while (least << doublings < most)
        doublings++;
    bytes <<= draw(life) % (doublings ? doublings : 1);
    return bytes + draw(life) % bytes;
}

static uint64_t clock_ns(clockid_t clock)
{
    struct timespec now;
    clock_gettime(clock, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

/* Counts an event. Returns the processor time of the thread if this event is timed, else 0: time that other processes
 * take from this one is left out, the cost of the clock is in all times alike. */
static uint64_t begin(life_state *life)
{
    life->events++;
    if (--life->until_timed) return 0;
    life->until_timed = TIMED_EVERY;
    return clock_ns(CLOCK_THREAD_CPUTIME_ID);
}

static void end(life_state *life, uint64_t start)
{
    uint64_t ns, index;
    if (!start) return;
    ns = clock_ns(CLOCK_THREAD_CPUTIME_ID) - start;
    if (ns < FINE) {
        index = ns;
    } else {
        const unsigned power = 63 - (unsigned)__builtin_clzll(ns) - 6;
        index = (uint64_t)(power + 1) * FINE + ((ns >> power) - FINE);
    }
    life->histogram[index]++;
    life->timed++;
}

/* Returns the time below which 99.9 % of the timed events lie, and begins a new histogram. */
static double take_p999(life_state *life)
{
    uint64_t above = 0, index = 64 * FINE;
    while (index && above <= life->timed / 1000)
        above += life->histogram[--index];
    memset(life->histogram, 0, sizeof life->histogram);
    life->timed = 0;
    return index < FINE ? (double)index : (double)((FINE + index % FINE) << (index / FINE - 1));
}

static void mark(const life_state *life, const life_block *block)
{
    if (!life->on_host || block->bytes < 16) return;
    memcpy(block->address, &block->bytes, 8);
    memcpy(block->address + block->bytes - 8, &block->address, 8);
}

static void check_mark(const life_state *life, const life_block *block)
{
    if (!life->on_host || block->bytes < 16) return;
    if (memcmp(block->address, &block->bytes, 8) != 0 ||
        memcmp(block->address + block->bytes - 8, &block->address, 8) != 0) {
        fprintf(stderr, "life: event %" PRIu64 ": a block of %zu bytes lost its contents\n", life->events,
                block->bytes);
        exit(1);
    }
}

static void take(life_state *life, loch_allocator *pool, loch_stream *stream, size_t bytes, life_block *block)
{
    const loch_request request = {.size = sizeof request, .bytes = bytes, .stream = stream};
    void *address;
    const uint64_t start = begin(life);
    LOCH_CHECK(loch_allocator_alloc(pool, &request, &address));
    end(life, start);
    *block = (life_block){address, bytes};
    mark(life, block);
}

static void give(life_state *life, loch_allocator *pool, life_block *block)
{
    uint64_t start;
    if (!block->address) return;
    check_mark(life, block);
    start = begin(life);
    LOCH_CHECK(loch_free(pool, block->address));
    end(life, start);
    *block = (life_block){0};
}

/* Frees a random slot or fills it. */
static void churn(life_state *life, loch_allocator *pool, size_t slots, size_t least, size_t most)
{
    life_block *block = &life->blocks[draw(life) % slots];
    if (block->address)
        give(life, pool, block);
    else
        take(life, pool, NULL, draw_size(life, least, most), block);
}

static void give_all(life_state *life, loch_allocator *pool)
{
    for (size_t i = 0; i < SLOTS; i++)
        give(life, pool, &life->blocks[i]);
}

/* --- the phases --- */

static void run_small(life_state *life, uint64_t until)
{
    while (life->events < until)
        churn(life, life->pool, SLOTS, 16, 8 * KIB);
    give_all(life, life->pool);
}

/* Steps of training: activations of a batch of random length are kept forward and freed backward, beside scratch. */
static void run_steps(life_state *life, uint64_t until)
{
    static const size_t widths[] = {256, 768, 256, 1024, 256};
    while (life->events < until) {
        const size_t tokens = 64 + draw(life) % 960;
        size_t kept = 0;
        life_block scratch;
        for (size_t layer = 0; layer < 12; layer++)
            for (size_t i = 0; i < sizeof widths / sizeof *widths; i++) {
                take(life, life->pool, NULL, tokens * widths[i] * 2, &life->blocks[kept++]);
                take(life, life->pool, NULL, tokens * widths[i] / 2 + 512, &scratch);
                give(life, life->pool, &scratch);
            }
        while (kept) {
            take(life, life->pool, NULL, life->blocks[kept - 1].bytes, &scratch);
            give(life, life->pool, &life->blocks[--kept]);
            give(life, life->pool, &scratch);
        }
    }
}

/* Caches of sequences that grow by some tokens at a time and end at random. */
static void run_caches(life_state *life, uint64_t until)
{
    const size_t most = 16 * MIB;
    while (life->events < until && life->is_virtual) {
        life_block *cache = &life->blocks[draw(life) % 16];
        const size_t bytes = cache->bytes + 16 * KIB * (1 + draw(life) % 64);
        uint64_t start;
        if (!cache->address) {
            void *address;
            start = begin(life);
            LOCH_CHECK(loch_pool_alloc_growable(
                life->pool, most, &(loch_request){.size = sizeof(loch_request), .bytes = bytes}, &address));
            *cache = (life_block){address, bytes};
        } else if (bytes > most || draw(life) % 32 == 0) {
            give(life, life->pool, cache);
            continue;
        } else {
            check_mark(life, cache);
            start = begin(life);
            LOCH_CHECK(loch_pool_resize_growable(life->pool, cache->address, bytes));
            cache->bytes = bytes;
        }
        end(life, start);
        mark(life, cache);
    }
    give_all(life, life->pool);
}

/* Streams that begin and end with the phase, with blocks that a second stream uses too. */
static void run_streams(life_state *life, uint64_t until)
{
    loch_stream *streams[STREAMS] = {0};
    for (size_t i = 0; i < STREAMS; i++)
        LOCH_CHECK(loch_stream_create(life->device, NULL, &streams[i]));
    while (life->events < until) {
        life_block *block = &life->blocks[draw(life) % 128];
        loch_stream *stream = streams[draw(life) % STREAMS];
        if (!block->address) {
            take(life, life->pool, stream, draw_size(life, 256, 2 * MIB), block);
            if (life->simulated && draw(life) % 4 == 0) {
                const loch_sim_range range = {block->address, block->bytes};
                LOCH_CHECK(loch_sim_launch(
                    stream, &(loch_sim_kernel){.size = sizeof(loch_sim_kernel), .writes = &range, .writes_count = 1}));
            }
            continue;
        }
        if (draw(life) % 4 == 0) {
            const uint64_t start = begin(life);
            LOCH_CHECK(loch_allocator_record_use(life->pool, block->address, stream));
            end(life, start);
        }
        give(life, life->pool, block);
    }
    give_all(life, life->pool);
    for (size_t i = 0; i < STREAMS; i++) {
        LOCH_CHECK(loch_stream_sync(streams[i]));
        loch_stream_release(streams[i]);
    }
}

/* Children that live for some thousand events: quotas and ranges. */
static void run_children(life_state *life, uint64_t until)
{
    while (life->events < until) {
        const bool range = draw(life) % 2;
        const loch_child_options options = {
            .size = sizeof options, .kind = range ? LOCH_CHILD_RANGE : LOCH_CHILD_QUOTA, .limit_bytes = 64 * MIB};
        const uint64_t child_until = life->events + 2000;
        loch_allocator *child;
        const uint64_t start = begin(life);
        LOCH_CHECK(loch_pool_create_child(life->pool, NULL, &options, &child));
        end(life, start);
        while (life->events < child_until)
            churn(life, child, 128, 64, 256 * KIB);
        give_all(life, child);
        loch_allocator_release(child);
        life->events++;
    }
}

typedef struct life_thread {
    life_state *life;
    uint64_t until;
} life_thread;

static void *run_thread(void *user)
{
    const life_thread *thread = user;
    while (thread->life->events < thread->until)
        churn(thread->life, thread->life->pool, 1024, 16, 64 * KIB);
    return NULL;
}

/* Threads that end and leave blocks and a cache behind; one at a time, so that runs with one seed are alike. */
static void run_threads(life_state *life, uint64_t until)
{
    while (life->events < until) {
        life_thread thread = {life, life->events + 2000};
        pthread_t id;
        if (pthread_create(&id, NULL, run_thread, &thread)) {
            fprintf(stderr, "life: no thread can be started\n");
            exit(1);
        }
        pthread_join(id, NULL);
    }
    give_all(life, life->pool);
}

/* The pool sleeps with live blocks, and wakes. Memory without contents has none to keep. */
static void run_sleeps(life_state *life, uint64_t until)
{
    const loch_sleep_options options = {.size = sizeof options,
                                        .contents = life->on_host ? LOCH_SLEEP_HOST : LOCH_SLEEP_DROP};
    while (life->events < until && life->is_virtual) {
        const uint64_t nap = life->events + 2000;
        uint64_t start;
        while (life->events < nap)
            churn(life, life->pool, 64, 4 * KIB, 512 * KIB);
        start = begin(life);
        LOCH_CHECK(loch_pool_sleep(life->pool, &options, NULL));
        end(life, start);
        start = begin(life);
        LOCH_CHECK(loch_pool_wake(life->pool, NULL));
        end(life, start);
    }
    give_all(life, life->pool);
}

static void run_trims(life_state *life, uint64_t until)
{
    while (life->events < until) {
        const uint64_t trim = life->events + 1000;
        uint64_t start;
        while (life->events < trim)
            churn(life, life->pool, 256, 1 * KIB, 1 * MIB);
        start = begin(life);
        LOCH_CHECK(loch_allocator_trim(life->pool, draw(life) % 4 * 16 * MIB, NULL));
        end(life, start);
    }
    give_all(life, life->pool);
}

/* Frees an eighth of the blocks that outlive cycles and allocates blocks of these sizes in another order, so that what
 * is in use stays equal and lies elsewhere. */
static void renew_core(life_state *life)
{
    size_t picked[CORE / 8], sizes[CORE / 8];
    for (size_t i = 0; i < CORE / 8; i++) {
        picked[i] = i * 8 + draw(life) % 8;
        sizes[i] = life->core[picked[i]].bytes;
        give(life, life->pool, &life->core[picked[i]]);
    }
    for (size_t i = CORE / 8; i-- > 0;) {
        const size_t other = draw(life) % (i + 1), bytes = sizes[other];
        sizes[other] = sizes[i];
        take(life, life->pool, NULL, bytes, &life->core[picked[i]]);
    }
}

static const struct {
    void (*run)(life_state *, uint64_t until);
    uint64_t shares;
} phases[] = {
    {run_sleeps, 1}, {run_trims, 4},    {run_small, 130},  {run_steps, 30},
    {run_caches, 5}, {run_streams, 14}, {run_children, 8}, {run_threads, 8},
};

static void run_cycle(life_state *life, uint64_t seed, uint64_t cycle)
{
    life->random = seed * 0x2545f4914f6cdd1du + cycle;
    life->random = draw(life); /* neighbours shall not overlap */
    renew_core(life);
    for (size_t i = 0; i < sizeof phases / sizeof *phases; i++)
        phases[i].run(life, life->events + life->cycle_events * phases[i].shares / SHARES);
    if (life->leak_bytes) {
        life_block lost;
        take(life, life->pool, NULL, life->leak_bytes, &lost);
    }
}

/* --- figures of the process --- */

static double read_rss(void)
{
    unsigned long long pages = 0;
    FILE *file = fopen("/proc/self/statm", "r");
    if (!file) return 0;
    if (fscanf(file, "%*u %llu", &pages) != 1) pages = 0;
    fclose(file);
    return (double)pages * (double)sysconf(_SC_PAGESIZE);
}

static double count_maps(void)
{
    double lines = 0;
    char text[4096];
    FILE *file = fopen("/proc/self/maps", "r");
    if (!file) return 0;
    for (size_t got; (got = fread(text, 1, sizeof text, file)) > 0;)
        for (size_t i = 0; i < got; i++)
            lines += text[i] == '\n';
    fclose(file);
    return lines;
}

static void open_life(life_state *life, const char *device_name)
{
    LOCH_CHECK(loch_device_open(device_name, &life->device));
    LOCH_CHECK(loch_pool_create(life->device, "life", NULL, &life->pool));
    life->simulated = !strncmp(device_name, "sim", 3);
    life->on_host = loch_device_can(life->device, LOCH_CAN_HOST_ACCESS);
    life->is_virtual = loch_device_can(life->device, LOCH_CAN_VIRTUAL);
    life->until_timed = TIMED_EVERY;
    life->random = 1;
    for (size_t i = 0; i < CORE; i++)
        take(life, life->pool, NULL, draw_size(life, 64, 512 * KIB), &life->core[i]);
}

static void close_life(life_state *life)
{
    for (size_t i = 0; i < CORE; i++)
        give(life, life->pool, &life->core[i]);
    loch_allocator_release(life->pool);
    loch_device_release(life->device);
}

typedef struct life_options {
    const char *device, *log, *report;
    uint64_t events, seconds, cycle, seed;
    size_t leak_bytes;
    bool check;
    double bar, time_bar;
} life_options;

static void run_life(const life_options *options, life_samples *samples)
{
    static life_state life;
    FILE *log = options->log ? fopen(options->log, "a") : stdout;
    life_sample sample = samples->count ? samples->items[samples->count - 1] : (life_sample){0};
    const uint64_t first_event = sample.events, end_ns = clock_ns(CLOCK_MONOTONIC) + options->seconds * 1000000000u;
    if (!log) {
        fprintf(stderr, "life: %s cannot be written\n", options->log);
        exit(1);
    }
    samples->count = 0;
    life.cycle_events = options->cycle;
    life.leak_bytes = options->leak_bytes;
    open_life(&life, options->device);
    fprintf(log,
            "# life: device %s, seed %" PRIu64 ", cycles of %" PRIu64 " events, a new pool from event %" PRIu64 "\n",
            options->device, options->seed, options->cycle, first_event);
    fprintf(log, "# cycle events");
    for (size_t i = 0; i < FIGURES; i++)
        fprintf(log, " %s", figures[i].name);
    fprintf(log, "\n");
    while (!stopped && life.events < options->events && (!options->seconds || clock_ns(CLOCK_MONOTONIC) < end_ns)) {
        loch_pool_info info = {.size = sizeof info};
        const uint64_t events = life.events, start = clock_ns(CLOCK_PROCESS_CPUTIME_ID);
        LOCH_CHECK(loch_allocator_reset_stats(life.pool));
        run_cycle(&life, options->seed, ++sample.cycle);
        sample.values[NS] = (double)(clock_ns(CLOCK_PROCESS_CPUTIME_ID) - start) / (double)(life.events - events);
        sample.values[P999] = take_p999(&life);
        LOCH_CHECK(loch_pool_get_info(life.pool, &info));
        sample.values[RESERVED] = (double)info.reserved_bytes;
        sample.values[PEAK] = (double)info.peak_reserved_bytes;
        sample.values[USED] = (double)info.used_bytes;
        sample.values[HANDLES] = (double)info.handles;
        sample.values[RSS] = read_rss();
        sample.values[MAPS] = count_maps();
        sample.events = first_event + life.events;
        write_sample(log, &sample);
        add_sample(samples, &sample);
    }
    close_life(&life);
    if (log != stdout) fclose(log);
}

static bool parse(int count, char **arguments, life_options *options)
{
    for (int i = 1; i < count; i++) {
        const char *name = arguments[i], *value = i + 1 < count ? arguments[i + 1] : NULL;
        if (!strcmp(name, "--check")) {
            options->check = true;
            continue;
        }
        if (*name != '-') {
            options->device = name;
            continue;
        }
        if (!value) return false;
        i++;
        if (!strcmp(name, "--events"))
            options->events = strtoull(value, NULL, 10);
        else if (!strcmp(name, "--time"))
            options->seconds = strtoull(value, NULL, 10);
        else if (!strcmp(name, "--cycle"))
            options->cycle = strtoull(value, NULL, 10);
        else if (!strcmp(name, "--seed"))
            options->seed = strtoull(value, NULL, 10);
        else if (!strcmp(name, "--leak"))
            options->leak_bytes = strtoull(value, NULL, 10);
        else if (!strcmp(name, "--bar"))
            options->bar = strtod(value, NULL);
        else if (!strcmp(name, "--time-bar"))
            options->time_bar = strtod(value, NULL);
        else if (!strcmp(name, "--log"))
            options->log = value;
        else if (!strcmp(name, "--report"))
            options->report = value;
        else
            return false;
    }
    return true;
}

int main(int count, char **arguments)
{
    life_options options = {
        .device = "cpu", .events = 1000000000, .cycle = 1000000, .seed = 1, .bar = 2, .time_bar = 2};
    life_samples samples = {0};
    char head[256] = "";
    bool flat;
    if (!parse(count, arguments, &options)) {
        fprintf(stderr,
                "usage: life [DEVICE] [--events COUNT] [--time SECONDS] [--cycle COUNT] [--seed NUMBER] [--log FILE] "
                "[--check] [--bar PERCENT] [--time-bar PERCENT] [--leak BYTES] | --report FILE\n");
        return 2;
    }
    if (options.report) {
        if (!read_log(options.report, &samples, head, sizeof head)) {
            fprintf(stderr, "life: %s is no log of this program\n", options.report);
            return 2;
        }
        printf("%s\n\n", head);
    } else {
        if (options.log) read_log(options.log, &samples, head, sizeof head);
        signal(SIGINT, stop);
        signal(SIGTERM, stop);
        run_life(&options, &samples);
    }
    flat = report(&samples, options.check, options.bar, options.time_bar);
    free(samples.items);
    return options.check && !flat;
}

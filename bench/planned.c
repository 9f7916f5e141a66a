/* SPDX-License-Identifier: MIT */
/* Measures planned pools on a recorded program that repeats itself exactly, and with deviations.
 *
 *     zcat bench/traces/diffusion.trace.gz | planned [DEVICE] [STEPS] [KIND]
 *
 * A step is the whole trace; the recorded steps are exact. With deviations, one allocation in so many deviates, in
 * other places in every step: it is missing, smaller, larger, followed by a new one, exchanged with the next one, or
 * lives longer or shorter. "branch": every fifth step leaves a part of the trace out and does another part twice.
 * Prints for each program: nanoseconds an event of the median step after planning; without deviations also those of
 * the same loop with calls that do nothing (branches and memory of the benchmark itself); the most reserved bytes of
 * all these steps over their most requested bytes, for the planned pool and for the plain pool; the same of single
 * steps (median and worst step); allocations that the plan served; driver calls; plans that were made; blocks whose
 * contents were wrong. On the cpu every block has its number in its first and last bytes, which is compared when it is
 * freed. */
#include <loch/plan.h>
#include <loch/planned.h>
#include <loch/driver.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct event {
    uint64_t bytes; /* 0: a free */
    uint32_t block, stream;
} event;

/* A free that is moved to another event. */
typedef struct move {
    size_t at;
    uint32_t block;
} move;

typedef struct program {
    event *events, *script; /* of the trace; of a step */
    size_t count, capacity, blocks, script_count, moved_count;
    size_t *free_at; /* by block */
    char *is_moved;
    move moved[4096];
    loch_device *device;
    loch_allocator *pool;
    loch_planned *planned;
    loch_stream *queues[16];
    struct {
        char *address;
        uint64_t bytes;
    } * live; /* by block; new blocks of deviations follow */
    uint64_t random, requested, peak, wrong;
    unsigned one_in; /* 0: no deviations */
    unsigned kind;
    int is_host, is_plain; /* plain: the pool serves, without a plan */
} program;

static void stop(const char *why)
{
    fprintf(stderr, "planned: %s\n", why);
    exit(1);
}

static uint64_t below(program *p, uint64_t limit)
{
    p->random = p->random * 6364136223846793005u + 1442695040888963407u;
    return (p->random >> 33) % limit;
}

/* Reads lines "a ID BYTES STREAM TIME" and "f ID TIME"; other lines are left out. */
static void load(program *p)
{
    char line[256];
    unsigned long long id, bytes, stream;
    while (fgets(line, sizeof line, stdin)) {
        event read = {0, 0, 0};
        if (sscanf(line, "a %llu %llu %llu", &id, &bytes, &stream) == 3) {
            if (stream >= 16 || !bytes) continue;
            read = (event){bytes, (uint32_t)id, (uint32_t)stream};
            if (id >= p->blocks) p->blocks = id + 1;
        } else if (sscanf(line, "f %llu", &id) == 1) {
            if (id >= p->blocks) continue;
            read.block = (uint32_t)id;
        } else {
            continue;
        }
        if (p->count == p->capacity) {
            p->capacity = p->capacity ? 2 * p->capacity : 4096;
            p->events = realloc(p->events, p->capacity * sizeof *p->events);
            if (!p->events) stop("no memory");
        }
        p->events[p->count++] = read;
    }
    if (!p->count) stop("no trace on standard input");
    p->live = calloc(2 * p->blocks + 1, sizeof *p->live);
    p->free_at = calloc(p->blocks + 1, sizeof *p->free_at);
    p->is_moved = calloc(p->blocks + 1, 1);
    p->script = calloc(5 * p->count + 4 * p->blocks, sizeof *p->script);
    if (!p->live || !p->free_at || !p->is_moved || !p->script) stop("no memory");
    for (size_t i = 0; i < p->blocks; i++)
        p->free_at[i] = p->count;
    for (size_t i = 0; i < p->count; i++)
        if (!p->events[i].bytes) p->free_at[p->events[i].block] = i;
}

static void take(program *p, size_t block, uint64_t bytes, uint32_t stream)
{
    loch_request request = {.size = sizeof request, .bytes = bytes, .stream = p->queues[stream]};
    void *address;
    if (p->live[block].address) return; /* a branch does a part twice */
    LOCH_CHECK(p->is_plain ? loch_allocator_alloc(p->pool, &request, &address)
                           : loch_planned_alloc(p->planned, &request, &address));
    p->live[block].address = address;
    p->live[block].bytes = bytes;
    p->requested += bytes;
    if (p->requested > p->peak) p->peak = p->requested;
    if (!p->is_host || bytes < 16) return;
    memcpy(address, &block, sizeof block);
    memcpy((char *)address + bytes - sizeof block, &block, sizeof block);
}

static void drop(program *p, size_t block)
{
    char *address = p->live[block].address;
    const uint64_t bytes = p->live[block].bytes;
    if (!address) return;
    if (p->is_host && bytes >= 16)
        p->wrong +=
            memcmp(address, &block, sizeof block) != 0 || memcmp(address + bytes - 8, &block, sizeof block) != 0;
    LOCH_CHECK(p->is_plain ? loch_free(p->pool, address) : loch_planned_free(p->planned, address));
    p->live[block].address = NULL;
    p->requested -= bytes;
}

/* --- deviations --- */

enum { MISSING, SMALLER, LARGER, NEW, SWAPPED, LONGER, SHORTER, KINDS, MIXED = KINDS, BRANCH, NONE };
static const char *const kind_names[] = {"missing", "smaller", "larger", "new",    "swapped",
                                         "longer",  "shorter", "mixed",  "branch", "none"};

static void add(program *p, uint64_t bytes, uint32_t block, uint32_t stream)
{
    p->script[p->script_count++] = (event){bytes, block, stream};
}

/* Adds the frees that were moved up to an event. */
static void add_moved(program *p, size_t at)
{
    for (size_t i = 0; i < p->moved_count;) {
        if (p->moved[i].at > at) {
            i++;
            continue;
        }
        add(p, 0, p->moved[i].block, 0);
        p->moved[i] = p->moved[--p->moved_count];
    }
}

static void move_free(program *p, uint32_t block, size_t at)
{
    p->is_moved[block] = 1;
    if (p->moved_count < sizeof p->moved / sizeof *p->moved) p->moved[p->moved_count++] = (move){at, block};
}

/* Adds an allocation that deviates. Returns whether the next allocation was added too. */
static int add_deviation(program *p, size_t i, unsigned kind)
{
    const event *at = &p->events[i];
    const size_t end = p->free_at[at->block];
    size_t next = i + 1;
    if (kind == MISSING) return 0;
    if (kind == SMALLER) return add(p, at->bytes / 2 + below(p, at->bytes / 2 + 1) + 1, at->block, at->stream), 0;
    if (kind == LARGER) return add(p, at->bytes + 1 + below(p, at->bytes / 2 + 1), at->block, at->stream), 0;
    while (next < p->count && !p->events[next].bytes && p->events[next].block != at->block)
        next++;
    if (kind == SWAPPED && next == i + 1 && next < p->count && p->events[next].bytes) {
        add(p, p->events[next].bytes, p->events[next].block, p->events[next].stream);
        add(p, at->bytes, at->block, at->stream);
        return 1;
    }
    add(p, at->bytes, at->block, at->stream);
    if (kind == NEW) add(p, 1 + below(p, 2 * at->bytes), (uint32_t)(p->blocks + at->block), at->stream);
    if (kind == LONGER) move_free(p, at->block, end + 1 + below(p, 64));
    if (kind == SHORTER && end > i + 1) move_free(p, at->block, i + 1 + below(p, end - i - 1));
    return 0;
}

/* Writes the events of a part of a step, with deviations. */
static void write_part(program *p, size_t begin, size_t end)
{
    for (size_t i = begin; i < end; i++) {
        const event *at = &p->events[i];
        add_moved(p, i);
        if (!at->bytes) {
            if (!p->is_moved[at->block]) add(p, 0, at->block, 0);
            add(p, 0, (uint32_t)(p->blocks + at->block), 0);
        } else if (!p->one_in || below(p, p->one_in)) {
            add(p, at->bytes, at->block, at->stream);
        } else {
            i += (size_t)add_deviation(p, i, p->kind == MIXED ? (unsigned)below(p, KINDS) : p->kind);
        }
    }
}

/* Writes the events of a step. */
static void write_step(program *p, size_t step)
{
    p->script_count = 0;
    p->moved_count = 0;
    memset(p->is_moved, 0, p->blocks + 1);
    const size_t tenth = p->count / 10;
    const int is_branch = p->kind == BRANCH && step % 5 == 4;
    write_part(p, 0, is_branch ? 5 * tenth : p->count);
    if (is_branch) { /* the sixth part is left out, the seventh one is done twice */
        write_part(p, 6 * tenth, p->count);
        for (size_t i = 0; i < p->blocks; i++)
            add(p, 0, (uint32_t)i, 0);
        write_part(p, 6 * tenth, 7 * tenth);
    }
    add_moved(p, SIZE_MAX);
    for (size_t i = 0; i < 2 * p->blocks; i++)
        add(p, 0, (uint32_t)i, 0); /* frees of blocks that are not live are left out */
}

static void run_script(program *p)
{
    for (const event *at = p->script, *end = at + p->script_count; at != end; at++)
        if (at->bytes)
            take(p, at->block, at->bytes, at->stream);
        else
            drop(p, at->block);
}

/* Calls that do nothing, for the time of the loop itself. */
static __attribute__((noinline)) loch_status alloc_nothing(loch_planned *planned, const loch_request *request,
                                                           void **out)
{
    (void)planned;
    *out = (void *)request->stream;
    return LOCH_OK;
}

static __attribute__((noinline)) loch_status free_nothing(loch_planned *planned, void *address)
{
    (void)planned;
    __asm__ volatile("" : : "r"(address));
    return LOCH_OK;
}

typedef loch_status alloc_function(loch_planned *planned, const loch_request *request, void **out);
typedef loch_status free_function(loch_planned *planned, void *address);

/* Runs a step exactly, with as little as possible beside the calls. Inlined, so that the calls are direct. */
static inline __attribute__((always_inline)) uint64_t run_loop(program *p, alloc_function *alloc, free_function *give)
{
    loch_request request = {.size = sizeof request};
    loch_planned *planned = p->planned;
    uint64_t failures = 0;
    const uint64_t start = loch_host_now_ns();
    for (const event *at = p->events, *end = at + p->count; at != end; at++) {
        void **address = (void **)&p->live[at->block].address;
        if (at->bytes) {
            request.bytes = at->bytes;
            request.stream = p->queues[at->stream];
            failures += alloc(planned, &request, address) != LOCH_OK;
        } else {
            failures += give(planned, *address) != LOCH_OK;
            *address = NULL;
        }
    }
    const uint64_t ns = loch_host_now_ns() - start;
    if (failures) stop("an allocation or a free failed");
    for (size_t i = 0; i < p->blocks; i++) {
        LOCH_CHECK(give(planned, p->live[i].address));
        p->live[i].address = NULL;
    }
    return ns;
}

static uint64_t run_nothing(program *p)
{
    return run_loop(p, alloc_nothing, free_nothing);
}

static uint64_t run_exactly(program *p)
{
    return run_loop(p, loch_planned_alloc, loch_planned_free);
}

static int compare(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static loch_status add_call(const loch_call_count *count, void *user)
{
    *(uint64_t *)user += count->count;
    return LOCH_OK;
}

/* Figures of a run. */
typedef struct figures {
    double *times, *ratios, *loops; /* of steps */
    uint64_t reserved, requested, calls;
    loch_planned_info before, after;
} figures;

#define RECORDED 5 /* exact steps */

static void run_steps(program *p, unsigned one_in, unsigned kind, size_t steps, figures *out)
{
    out->reserved = out->requested = out->calls = 0;
    out->before.size = out->after.size = sizeof out->before;
    LOCH_CHECK(loch_pool_create(p->device, "planned", NULL, &p->pool));
    const loch_planned_options options = {.size = sizeof options, .record_max = SIZE_MAX, .time_limit_ns = 2000000000};
    LOCH_CHECK(loch_planned_create(p->pool, NULL, &options, &p->planned));
    p->random = 7;
    uint64_t exact_peak = 0;
    for (size_t step = 0; step < steps + RECORDED; step++) {
        loch_pool_info info = {.size = sizeof info};
        const int is_exact = kind == NONE && step >= RECORDED && !p->is_plain;
        p->one_in = step < RECORDED ? 0 : one_in;
        p->kind = step < RECORDED ? NONE : kind;
        if (!is_exact) write_step(p, step);
        if (!p->is_plain) LOCH_CHECK(loch_planned_step(p->planned));
        if (step == RECORDED - 1) LOCH_CHECK(loch_planned_get_info(p->planned, &out->before));
        if (step == RECORDED - 1) LOCH_CHECK(loch_device_measure_calls(p->device, LOCH_MEASURE_ON));
        LOCH_CHECK(loch_allocator_reset_stats(p->pool));
        p->peak = is_exact ? exact_peak : 0;
        const uint64_t start = loch_host_now_ns();
        uint64_t ns = 0;
        if (is_exact) out->loops[step - RECORDED] = (double)run_nothing(p) / (double)p->count;
        if (is_exact)
            ns = run_exactly(p);
        else
            run_script(p);
        if (!is_exact) ns = loch_host_now_ns() - start;
        exact_peak = p->peak;
        LOCH_CHECK(loch_pool_get_info(p->pool, &info));
        if (step < RECORDED) continue;
        out->times[step - RECORDED] = (double)ns / (double)p->count;
        out->ratios[step - RECORDED] = (double)info.peak_reserved_bytes / (double)p->peak;
        if (info.peak_reserved_bytes > out->reserved) out->reserved = info.peak_reserved_bytes;
        if (p->peak > out->requested) out->requested = p->peak;
    }
    LOCH_CHECK(loch_device_walk_calls(p->device, add_call, &out->calls));
    LOCH_CHECK(loch_planned_get_info(p->planned, &out->after));
    loch_planned_destroy(p->planned);
    loch_allocator_release(p->pool);
    qsort(out->times, steps, sizeof *out->times, compare);
    qsort(out->ratios, steps, sizeof *out->ratios, compare);
    qsort(out->loops, steps, sizeof *out->loops, compare);
}

static void measure(program *p, unsigned one_in, unsigned kind, size_t steps)
{
    figures plain = {.times = calloc(steps, sizeof(double)),
                     .ratios = calloc(steps, sizeof(double)),
                     .loops = calloc(steps, sizeof(double))};
    figures of = {.times = calloc(steps, sizeof(double)),
                  .ratios = calloc(steps, sizeof(double)),
                  .loops = calloc(steps, sizeof(double))};
    if (!of.times || !of.ratios || !of.loops || !plain.times || !plain.ratios || !plain.loops) stop("no memory");
    char name[32];
    snprintf(name, sizeof name, one_in ? "%s 1/%u" : "%s", kind_names[kind], one_in);
    p->is_plain = 1;
    run_steps(p, one_in, kind, steps, &plain);
    p->is_plain = 0;
    run_steps(p, one_in, kind, steps, &of);
    const double served = (double)(of.after.served - of.before.served);
    const double all = served + (double)(of.after.deviations - of.before.deviations + of.after.left - of.before.left);
    printf("%-14s %8.2f %6.2f %8.4f %8.4f %8.4f %8.4f %8.2f %% %7" PRIu64 " %5" PRIu64 " %5" PRIu64 "\n", name,
           of.times[steps / 2], of.loops[steps / 2], (double)of.reserved / (double)of.requested,
           (double)plain.reserved / (double)plain.requested, of.ratios[steps / 2], of.ratios[steps - 1],
           100 * served / all, of.calls, of.after.plans, p->wrong);
    fflush(stdout);
    free(of.times);
    free(of.ratios);
    free(of.loops);
    free(plain.loops);
    free(plain.times);
    free(plain.ratios);
}

/* Tells whether a program is wanted: all of them, or one by its name. */
static int is_wanted(const char *wanted, unsigned kind)
{
    return !wanted || strcmp(wanted, kind_names[kind]) == 0;
}

int main(int count, char **arguments)
{
    static program p;
    size_t steps = count > 2 ? strtoul(arguments[2], NULL, 10) : 40;
    const char *wanted = count > 3 ? arguments[3] : NULL;
    if (!steps) steps = 1;
    load(&p);
    LOCH_CHECK(loch_device_open(count > 1 ? arguments[1] : "cpu", &p.device));
    p.is_host = loch_device_can(p.device, LOCH_CAN_HOST_ACCESS);
    for (size_t i = 1; i < 16; i++)
        LOCH_CHECK(loch_stream_create(p.device, NULL, &p.queues[i]));
    printf("%-14s %8s %6s %8s %8s %8s %8s %10s %7s %5s %5s\n", "deviations", "ns/event", "loop", "ratio", "plain",
           "step", "worst", "served", "calls", "plans", "wrong");
    if (is_wanted(wanted, NONE)) measure(&p, 0, NONE, steps);
    if (is_wanted(wanted, MIXED)) measure(&p, 1000, MIXED, steps);
    if (is_wanted(wanted, MIXED)) measure(&p, 100, MIXED, steps);
    for (unsigned kind = 0; kind < KINDS; kind++)
        if (is_wanted(wanted, kind)) measure(&p, 100, kind, steps);
    if (is_wanted(wanted, BRANCH)) measure(&p, 0, BRANCH, steps);
    for (size_t i = 1; i < 16; i++)
        loch_stream_close(p.queues[i]);
    loch_device_release(p.device);
    free(p.events);
    free(p.script);
    free(p.free_at);
    free(p.is_moved);
    free(p.live);
    return p.wrong != 0;
}

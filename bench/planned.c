/* SPDX-License-Identifier: MIT */
/* Measures planned pools on a recorded program that repeats itself exactly, and with deviations.
 *
 *     zcat bench/traces/diffusion.trace.gz | planned [DEVICE] [STEPS]
 *
 * A step is the whole trace; the recorded steps are exact. With deviations, one allocation in so many has another size,
 * is missing, or is followed by a new one, in other places in every step. Prints for each share of
 * deviations: nanoseconds an event of the median step
 * after planning, the most reserved bytes of a step over the most requested bytes of that step (median and worst step),
 * allocations that the plan served, and driver calls. On the cpu every block has its number in its first and last
 * bytes, which is compared when it is freed. */
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

typedef struct program {
    event *events;
    size_t count, capacity, blocks, streams;
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
    int is_host;
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
    if (!p->live) stop("no memory");
}

static void take(program *p, size_t block, uint64_t bytes, uint32_t stream)
{
    loch_request request = {.size = sizeof request, .bytes = bytes, .stream = p->queues[stream]};
    void *address;
    LOCH_CHECK(loch_planned_alloc(p->planned, &request, &address));
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
    LOCH_CHECK(loch_planned_free(p->planned, address));
    p->live[block].address = NULL;
    p->requested -= bytes;
}

/* Runs a step with deviations. */
static void run_deviating(program *p)
{
    for (size_t i = 0; i < p->count; i++) {
        const event *at = &p->events[i];
        if (!at->bytes) {
            drop(p, at->block);
            drop(p, p->blocks + at->block);
            continue;
        }
        const int deviates = p->one_in && !below(p, p->one_in);
        const uint64_t kind = deviates ? below(p, 3) : 3;
        if (kind == 0) continue; /* missing */
        take(p, at->block, kind == 1 ? at->bytes / 2 + below(p, at->bytes) + 1 : at->bytes, at->stream);
        if (kind == 2) take(p, p->blocks + at->block, 1 + below(p, 2 * at->bytes), at->stream); /* a new one */
    }
    for (size_t i = 0; i < 2 * p->blocks; i++)
        drop(p, i);
}

/* Runs a step exactly, with as little as possible beside the calls. */
static uint64_t run_exactly(program *p)
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
            failures += loch_planned_alloc(planned, &request, address) != LOCH_OK;
        } else {
            failures += loch_planned_free(planned, *address) != LOCH_OK;
            *address = NULL;
        }
    }
    const uint64_t ns = loch_host_now_ns() - start;
    if (failures) stop("an allocation or a free failed");
    for (size_t i = 0; i < p->blocks; i++) {
        LOCH_CHECK(loch_planned_free(planned, p->live[i].address));
        p->live[i].address = NULL;
    }
    return ns;
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

static void measure(program *p, unsigned one_in, size_t steps)
{
    double *times = calloc(steps, sizeof *times), *ratios = calloc(steps, sizeof *ratios);
    if (!times || !ratios) stop("no memory");
    uint64_t calls = 0;
    loch_planned_info before = {.size = sizeof before}, after = {.size = sizeof after};
    LOCH_CHECK(loch_pool_create(p->device, "planned", NULL, &p->pool));
    const loch_planned_options options = {.size = sizeof options, .record_max = SIZE_MAX, .time_limit_ns = 2000000000};
    LOCH_CHECK(loch_planned_create(p->pool, NULL, &options, &p->planned));
    p->random = 7;
    for (size_t step = 0; step < steps + 5; step++) {
        loch_pool_info info = {.size = sizeof info};
        LOCH_CHECK(loch_planned_step(p->planned));
        if (step == 4) LOCH_CHECK(loch_planned_get_info(p->planned, &before));
        if (step == 4) LOCH_CHECK(loch_device_measure_calls(p->device, LOCH_MEASURE_ON));
        LOCH_CHECK(loch_allocator_reset_stats(p->pool));
        p->one_in = step < 5 ? 0 : one_in;
        p->peak = 0;
        const uint64_t start = loch_host_now_ns();
        uint64_t ns = 0;
        if (one_in || step < 5)
            run_deviating(p);
        else
            ns = run_exactly(p);
        if (one_in) ns = loch_host_now_ns() - start;
        LOCH_CHECK(loch_pool_get_info(p->pool, &info));
        static uint64_t exact_peak;
        if (!one_in && p->peak) exact_peak = p->peak;
        if (step < 5) continue;
        times[step - 5] = (double)ns / (double)p->count;
        ratios[step - 5] = (double)info.peak_reserved_bytes / (double)(p->peak ? p->peak : exact_peak);
    }
    LOCH_CHECK(loch_device_walk_calls(p->device, add_call, &calls));
    LOCH_CHECK(loch_planned_get_info(p->planned, &after));
    qsort(times, steps, sizeof *times, compare);
    qsort(ratios, steps, sizeof *ratios, compare);
    char name[32] = "none";
    if (one_in) snprintf(name, sizeof name, "1 in %u", one_in);
    const double served = (double)(after.served - before.served);
    const double all = served + (double)(after.deviations - before.deviations + after.left - before.left);
    printf("%-10s %8.2f %10.4f %10.4f %9.2f %% %8" PRIu64 " %6" PRIu64 " %6" PRIu64 "\n", name, times[steps / 2],
           ratios[steps / 2], ratios[steps - 1], 100 * served / all, calls, after.plans, p->wrong);
    loch_planned_destroy(p->planned);
    loch_allocator_release(p->pool);
    free(times);
    free(ratios);
}

int main(int count, char **arguments)
{
    program p = {.events = NULL};
    const size_t steps = count > 2 ? strtoul(arguments[2], NULL, 10) : 40;
    load(&p);
    LOCH_CHECK(loch_device_open(count > 1 ? arguments[1] : "cpu", &p.device));
    p.is_host = loch_device_can(p.device, LOCH_CAN_HOST_ACCESS);
    for (size_t i = 1; i < 16; i++)
        LOCH_CHECK(loch_stream_create(p.device, NULL, &p.queues[i]));
    printf("%-10s %8s %10s %10s %11s %8s %6s %6s\n", "deviations", "ns/event", "ratio", "worst", "served", "calls",
           "plans", "wrong");
    measure(&p, 0, steps < 1 ? 1 : steps);
    measure(&p, 1000, steps < 1 ? 1 : steps);
    measure(&p, 100, steps < 1 ? 1 : steps);
    for (size_t i = 1; i < 16; i++)
        loch_stream_close(p.queues[i]);
    loch_device_release(p.device);
    free(p.events);
    free(p.live);
    return p.wrong != 0;
}

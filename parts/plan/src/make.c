/* SPDX-License-Identifier: MIT */
/* Buffers that no time connects are parts. Each part keeps its own best offsets. The height of the plan is that of its
 * highest part, so a part is done once it is as low as the bound of the whole problem.
 *
 * The exact search of a part asks for a capacity. To find the smallest height, capacities between the bound and the
 * best height are tried with small limits of nodes: the bound itself in some rounds, then from the best height
 * downwards. A plan lowers the height, a proof raises the bound, and a round without either doubles the limits. So
 * there is a better plan early, and the bound in the end.
 *
 * Nothing but the end of the time limit depends on the clock or on the number of threads. */
#include "make.h"
#include "check.h"
#include "fast.h"
#include "memory.h"
#include "part.h"
#include "kit/fail.h"
#include <inttypes.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#define MAKE_EXACT_MAX 1500 /* buffers of a part that the exact search takes */
#define MAKE_IDLE_ROUNDS 24 /* fast rounds without a better plan, before the end */
#define MAKE_MANY 100000    /* buffers from which on a round is dear */
#define MAKE_MANY_IDLE_ROUNDS 3
#define MAKE_FIT_ROUNDS 2      /* fast rounds before the exact search, if there is a capacity */
#define MAKE_SMALL_ROUNDS 16   /* fast rounds before the exact search */
#define MAKE_NODES_MIN 16384   /* first limit of nodes for one capacity */
#define MAKE_STEPS 5           /* capacities that are tried in one round */
#define MAKE_LOW_EVERY 4       /* rounds of which one tries the lowest capacities too */
#define MAKE_REPORT_NS 5000000 /* time between two reports */

/* Buffers that are connected by their lives. */
typedef struct make_part {
    size_t first; /* first of its buffers in make.ids */
    uint32_t count;
    bool is_done;
    uint64_t height, bound;
} make_part;

typedef struct make {
    const loch_plan_problem *problem;
    const loch_plan_options *options;
    uint64_t *offsets; /* best offsets of every part */
    uint64_t start_ns;
    uint64_t bound;  /* of the whole problem, from live bytes */
    uint64_t target; /* height that is low enough for every part */
    uint32_t *ids;
    make_part *parts;
    size_t parts_count;
    size_t *queue; /* parts for the exact search */
    size_t queue_count;
    pthread_mutex_t mutex; /* guards what follows, and the heights and bounds of parts */
    size_t queue_next;
    uint64_t nodes, reported_ns;
    bool is_over;       /* the time has passed */
    loch_status status; /* failure that ends the work */
} make;

/* --- reports --- */

static loch_plan_progress make_progress(const make *m)
{
    loch_plan_progress progress = {
        .size = sizeof progress, .lower_bound = m->bound, .nodes = m->nodes, .parts = m->parts_count};
    for (size_t i = 0; i < m->parts_count; i++) {
        const make_part *part = &m->parts[i];
        if (part->height > progress.height) progress.height = part->height;
        if (part->bound > progress.lower_bound) progress.lower_bound = part->bound;
        progress.parts_done += part->is_done || part->height <= m->target;
    }
    progress.elapsed_ns = loch_host_now_ns() - m->start_ns;
    return progress;
}

/* Reports if it is time. Returns true if the work has to end. */
static bool make_poll(make *m, uint64_t nodes)
{
    const uint64_t now_ns = loch_host_now_ns();
    pthread_mutex_lock(&m->mutex);
    m->nodes += nodes;
    if (now_ns - m->start_ns >= m->options->time_limit_ns) m->is_over = true;
    if (m->options->report && !m->is_over && m->status == LOCH_OK && now_ns - m->reported_ns >= MAKE_REPORT_NS) {
        m->reported_ns = now_ns;
        const loch_plan_progress progress = make_progress(m);
        const loch_status status = m->options->report(&progress, m->options->user);
        if (status == LOCH_E_CANCELLED)
            m->is_over = true;
        else
            m->status = status;
    }
    const bool is_end = m->is_over || m->status != LOCH_OK;
    pthread_mutex_unlock(&m->mutex);
    return is_end;
}

static loch_status make_no_memory(void)
{
    (void)loch_error_set(LOCH_E_HOST_MEMORY, NULL, 0, "there is no memory to make a plan");
    return LOCH_E_HOST_MEMORY;
}

/* --- parts --- */

static int make_compare_keys(const void *a, const void *b)
{
    const uint64_t *x = a, *y = b;
    if (x[0] != y[0]) return x[0] < y[0] ? -1 : 1;
    return x[1] < y[1] ? -1 : x[1] > y[1];
}

static loch_status make_find_parts(make *m)
{
    const size_t count = m->problem->count;
    uint64_t(*keys)[2] = lochi_plan_alloc(count, sizeof *keys);
    m->ids = lochi_plan_alloc(count, sizeof *m->ids);
    size_t capacity = 0;
    loch_status status = keys && m->ids ? LOCH_OK : make_no_memory();
    if (status == LOCH_OK) {
        for (size_t i = 0; i < count; i++) {
            keys[i][0] = m->problem->buffers[i].first;
            keys[i][1] = i;
        }
        qsort(keys, count, sizeof *keys, make_compare_keys);
    }
    uint64_t end = 0;
    for (size_t i = 0; i < count && status == LOCH_OK; i++) {
        const loch_plan_buffer *buffer = &m->problem->buffers[keys[i][1]];
        m->ids[i] = (uint32_t)keys[i][1];
        if (!i || buffer->first >= end) {
            if (!lochi_plan_grow((void **)&m->parts, &capacity, m->parts_count + 1, sizeof *m->parts))
                status = make_no_memory();
            if (status == LOCH_OK) m->parts[m->parts_count++] = (make_part){.first = i, .height = UINT64_MAX};
        }
        if (status == LOCH_OK) m->parts[m->parts_count - 1].count++;
        if (buffer->last > end) end = buffer->last;
    }
    lochi_plan_free(keys);
    return status;
}

/* Keeps the offsets of every part that are better than before. Returns true if any are. */
static bool make_keep(make *m, const uint64_t *offsets)
{
    bool is_better = false;
    for (size_t i = 0; i < m->parts_count; i++) {
        make_part *part = &m->parts[i];
        uint64_t height = 0;
        for (uint32_t j = 0; j < part->count; j++) {
            const uint32_t id = m->ids[part->first + j];
            const uint64_t top = offsets[id] + m->problem->buffers[id].bytes;
            height = top > height ? top : height;
        }
        if (height >= part->height) continue;
        is_better |= part->height > m->target;
        part->height = height;
        for (uint32_t j = 0; j < part->count; j++)
            m->offsets[m->ids[part->first + j]] = offsets[m->ids[part->first + j]];
    }
    return is_better;
}

/* --- fast --- */

static bool make_needs_exact(const make *m)
{
    for (size_t i = 0; i < m->parts_count; i++)
        if (m->parts[i].height > m->target && m->parts[i].count <= MAKE_EXACT_MAX) return true;
    return false;
}

/* Tells whether fast rounds can end: the plan is at its target, or near it for many buffers. */
static bool make_is_near(const make *m)
{
    const uint64_t slack = m->problem->count >= MAKE_MANY && !m->options->capacity ? m->target / 1024 : 0;
    for (size_t i = 0; i < m->parts_count; i++)
        if (m->parts[i].height > m->target + slack) return false;
    return true;
}

static loch_status make_run_fast(make *m)
{
    const size_t rounds = m->options->capacity ? MAKE_FIT_ROUNDS : MAKE_SMALL_ROUNDS;
    const size_t idle_max = m->problem->count >= MAKE_MANY ? MAKE_MANY_IDLE_ROUNDS : MAKE_IDLE_ROUNDS;
    plan_fast *fast = lochi_plan_fast_create(m->problem);
    uint64_t *offsets = lochi_plan_alloc(m->problem->count, sizeof *offsets);
    loch_status status = fast && offsets ? LOCH_OK : make_no_memory();
    size_t idle = 0;
    for (size_t round = 0; status == LOCH_OK && idle < idle_max; round++) {
        const uint64_t height = m->options->method == LOCH_PLAN_GREEDY
                                    ? lochi_plan_fast_run(fast, PLAN_BY_SIZE, PLAN_LOWEST, offsets)
                                    : lochi_plan_fast_round(fast, round, m->target, offsets);
        if (height == UINT64_MAX) status = make_no_memory();
        if (status != LOCH_OK) break;
        idle = make_keep(m, offsets) ? 0 : idle + 1;
        if (make_is_near(m) || m->options->method == LOCH_PLAN_GREEDY || make_poll(m, 0)) break;
        if (m->options->method == LOCH_PLAN_AUTO && round + 1 >= rounds && make_needs_exact(m)) break;
    }
    lochi_plan_free(offsets);
    lochi_plan_fast_destroy(fast);
    return status;
}

/* --- exact --- */

static bool make_poll_search(void *user)
{
    return make_poll(user, 64);
}

static uint64_t make_gcd(uint64_t a, uint64_t b)
{
    while (b) {
        const uint64_t rest = a % b;
        a = b;
        b = rest;
    }
    return a;
}

/* Returns a number that divides the height of every plan in which no buffer can sink. */
static uint64_t make_find_grain(const plan_part *part)
{
    uint64_t grain = 0;
    for (uint32_t i = 0; i < part->count; i++) {
        const plan_item *item = &part->items[i];
        grain = make_gcd(grain, (uint64_t)item->bytes);
        if (item->alignment > 1) grain = make_gcd(grain, (uint64_t)item->alignment);
        if (item->fixed > 0) grain = make_gcd(grain, (uint64_t)item->fixed);
    }
    return part->has_windows ? 1 : grain;
}

/* Stores a better plan of a part. */
static uint64_t make_store(make *m, make_part *part, const plan_part *built, const int64_t *offsets)
{
    uint64_t height = 0;
    for (uint32_t i = 0; i < built->count; i++) {
        const uint64_t top = (uint64_t)(offsets[i] + built->items[i].bytes);
        height = top > height ? top : height;
    }
    pthread_mutex_lock(&m->mutex);
    if (height < part->height) {
        part->height = height;
        for (uint32_t i = 0; i < built->count; i++)
            m->offsets[m->ids[part->first + i]] = (uint64_t)offsets[i];
    }
    pthread_mutex_unlock(&m->mutex);
    return height;
}

static void make_raise_bound(make *m, make_part *part, uint64_t bound)
{
    pthread_mutex_lock(&m->mutex);
    if (bound > part->bound) part->bound = bound;
    pthread_mutex_unlock(&m->mutex);
}

/* Looks for one plan that fits the capacity of the options. A smaller capacity cuts more branches off, so it is often
 * the faster way to a plan: some take turns with the capacity itself, which alone proves that there is no plan. */
static void make_fit(make *m, make_part *part, const plan_part *built, plan_search *search, int64_t *offsets)
{
    static const uint8_t places[] = {4, 0, 2, 3}; /* in quarters between the bound and the capacity */
    uint64_t low = m->bound;
    for (uint64_t nodes = MAKE_NODES_MIN; nodes < UINT64_MAX / 8; nodes *= 4)
        for (size_t i = 0; i < sizeof places; i++) {
            const uint64_t capacity = low + (m->target - low) / 4 * places[i] + (i ? 0 : (m->target - low) % 4);
            if (i && capacity >= m->target) continue;
            const plan_answer answer = lochi_plan_search_run(search, (int64_t)capacity, i ? nodes : 4 * nodes, offsets);
            if (answer == PLAN_FOUND) make_store(m, part, built, offsets);
            if (answer == PLAN_IMPOSSIBLE && !i && !built->has_windows) make_raise_bound(m, part, m->target + 1);
            if (answer == PLAN_FOUND || (answer == PLAN_IMPOSSIBLE && !i) || make_poll(m, 0)) return;
            if (answer == PLAN_IMPOSSIBLE) low = capacity + 1;
        }
}

/* Looks for the smallest height of a part that is of use: not below the bound of the whole problem. */
static void make_minimise(make *m, make_part *part, const plan_part *built, plan_search *search, int64_t *offsets)
{
    const uint64_t grain = make_find_grain(built);
    uint64_t low = m->bound / grain * grain, high = plan_align(part->height, grain);
    const bool is_proof = !built->has_windows; /* what lies below `low` is proven to be impossible */
    /* Places between the bound and the best height, in 16ths. */
    static const uint8_t places[MAKE_STEPS] = {0, 12, 8, 4, 2};
    bool is_end = false;
    unsigned rounds = 0;
    for (uint64_t nodes = MAKE_NODES_MIN; low < high && !is_end && nodes < UINT64_MAX / 8; nodes *= 2, rounds++) {
        for (int i = 0; i < MAKE_STEPS && low < high && !is_end; i++) {
            const uint64_t rest = (high - low) / grain - 1;
            if (i && (rest * places[i] / 16 == 0 || rest * places[i] / 16 == rest * places[i - 1] / 16)) continue;
            /* The lowest of many places seldom have a plan: most rounds leave them out. */
            if (rounds % MAKE_LOW_EVERY && rest > 8 && (i == 0 || i == MAKE_STEPS - 1)) continue;
            const uint64_t capacity = low + rest * places[i] / 16 * grain;
            const plan_answer answer = lochi_plan_search_run(search, (int64_t)capacity, nodes, offsets);
            if (answer == PLAN_FOUND) {
                high = make_store(m, part, built, offsets);
                i = 0; /* goes on with the easiest place */
            } else if (answer == PLAN_IMPOSSIBLE) {
                low = capacity + grain;
                if (is_proof) make_raise_bound(m, part, low);
                i = -1;
            }
            is_end = high <= m->bound || make_poll(m, 0);
        }
    }
}

static loch_status make_search_part(make *m, make_part *part)
{
    plan_part built;
    if (!lochi_plan_part_build(m->problem, &m->ids[part->first], part->count, &built)) return make_no_memory();
    plan_search *search = lochi_plan_search_create(&built, make_poll_search, m);
    int64_t *offsets = lochi_plan_alloc(part->count, sizeof *offsets);
    const loch_status status = search && offsets ? LOCH_OK : make_no_memory();
    if (status == LOCH_OK) (m->options->capacity ? make_fit : make_minimise)(m, part, &built, search, offsets);
    lochi_plan_free(offsets);
    lochi_plan_search_destroy(search);
    lochi_plan_part_free(&built);
    return status;
}

static void *make_work(void *user)
{
    make *m = user;
    for (;;) {
        pthread_mutex_lock(&m->mutex);
        const bool is_end = m->is_over || m->status != LOCH_OK || m->queue_next == m->queue_count;
        make_part *part = is_end ? NULL : &m->parts[m->queue[m->queue_next++]];
        pthread_mutex_unlock(&m->mutex);
        if (is_end) return NULL;
        const loch_status status = make_search_part(m, part);
        pthread_mutex_lock(&m->mutex);
        part->is_done = status == LOCH_OK && !m->is_over;
        if (m->status == LOCH_OK) m->status = status;
        pthread_mutex_unlock(&m->mutex);
    }
}

/* Searches the parts that are too high. The calling thread takes part. */
static loch_status make_run_exact(make *m)
{
    m->queue = lochi_plan_alloc(m->parts_count, sizeof *m->queue);
    if (!m->queue) return make_no_memory();
    for (size_t i = 0; i < m->parts_count; i++)
        if (m->parts[i].height > m->target && m->parts[i].count <= MAKE_EXACT_MAX) m->queue[m->queue_count++] = i;
    const size_t wanted = m->options->threads < m->queue_count ? m->options->threads : m->queue_count;
    pthread_t *threads = lochi_plan_alloc(wanted, sizeof *threads);
    size_t count = 0;
    while (threads && count + 1 < wanted && !pthread_create(&threads[count], NULL, make_work, m))
        count++;
    make_work(m); /* Fewer threads than wanted are no failure: this one does all that is left. */
    for (size_t i = 0; i < count; i++)
        pthread_join(threads[i], NULL);
    lochi_plan_free(threads);
    return m->status;
}

/* --- all of it --- */

/* Checks that buffers at fixed offsets do not overlap. */
static loch_status make_check_fixed(const loch_plan_problem *problem)
{
    size_t count = 0, at = 0;
    for (size_t i = 0; i < problem->count; i++)
        count += problem->buffers[i].place == LOCH_PLAN_FIXED;
    if (!count) return LOCH_OK;
    loch_plan_buffer *buffers = lochi_plan_alloc(count, sizeof *buffers);
    uint64_t *offsets = lochi_plan_alloc(count, sizeof *offsets), height;
    loch_status status = buffers && offsets ? LOCH_OK : make_no_memory();
    for (size_t i = 0; status == LOCH_OK && i < problem->count; i++)
        if (problem->buffers[i].place) {
            buffers[at] = problem->buffers[i];
            offsets[at++] = problem->buffers[i].offset;
        }
    const loch_plan_problem fixed = {.size = sizeof fixed, .buffers = buffers, .count = count};
    if (status == LOCH_OK) status = lochi_plan_check_offsets(&fixed, offsets, &height);
    if (status == LOCH_E_CORRUPT)
        status = LOCH_FAIL(INVALID, "two buffers of the problem have fixed offsets that overlap");
    lochi_plan_free(offsets);
    lochi_plan_free(buffers);
    return status;
}

static loch_status make_finish(make *m, loch_plan *plan)
{
    const loch_plan_progress progress = make_progress(m);
    const uint64_t capacity = m->options->capacity;
    const uint64_t height = progress.height, bound = progress.lower_bound;
    if (capacity && bound > capacity)
        return LOCH_FAIL(LIMIT, "no plan fits %" PRIu64 " bytes: the buffers need at least %" PRIu64, capacity, bound);
    if (capacity && height > capacity)
        return LOCH_FAIL(BUSY, "no plan that fits %" PRIu64 " bytes was found: the best one has %" PRIu64, capacity,
                         height);
    plan->info.height = height;
    plan->info.lower_bound = bound < height ? bound : height;
    plan->info.is_best = plan->info.lower_bound == height;
    plan->info.nodes = m->nodes;
    return LOCH_OK;
}

loch_status lochi_plan_make(const loch_plan_problem *problem, const loch_plan_options *options, loch_plan *plan)
{
    if (!problem->count) {
        plan->info.is_best = 1;
        return LOCH_OK;
    }
    make m = {.problem = problem, .options = options, .offsets = plan->offsets, .start_ns = loch_host_now_ns()};
    if (pthread_mutex_init(&m.mutex, NULL)) return make_no_memory();
    loch_status status = make_check_fixed(problem);
    if (status == LOCH_OK && !lochi_plan_problem_bound(problem, &m.bound)) status = make_no_memory();
    m.target = options->capacity ? options->capacity : m.bound;
    if (status == LOCH_OK) status = make_find_parts(&m);
    const bool is_hopeless = options->capacity && m.bound > options->capacity;
    if (status == LOCH_OK && !is_hopeless) status = make_run_fast(&m);
    if (status == LOCH_OK && !is_hopeless && options->method == LOCH_PLAN_AUTO && !m.is_over && m.status == LOCH_OK)
        status = make_run_exact(&m);
    if (status == LOCH_OK) status = m.status;
    if (status == LOCH_OK) status = make_finish(&m, plan);
    lochi_plan_free(m.queue);
    lochi_plan_free(m.parts);
    lochi_plan_free(m.ids);
    pthread_mutex_destroy(&m.mutex);
    return status;
}

/* SPDX-License-Identifier: MIT */
/* Planned pools under random programs with random deviations: no live blocks overlap, contents stay, order of streams
 * is kept, nothing is left behind. */
#include "planned_rig.h"

#define RANDOM_ALLOCS 40

typedef struct random_alloc {
    size_t bytes, life;
    bool is_other; /* on the other stream */
} random_alloc;

typedef struct random_program {
    rig r;
    test_random random;
    random_alloc allocs[RANDOM_ALLOCS];
    size_t count, deviations; /* one in so many allocations deviates; 0: none */
    uint64_t due[RIG_BLOCKS], now;
} random_program;

static size_t below(random_program *p, size_t limit)
{
    return test_random_below(&p->random, limit);
}

/* With small granules the blocks are larger: plans then grow, and have patches. */
static size_t random_bytes(random_program *p)
{
    const bool is_large = p->r.bed->is_sim && p->r.bed->properties.granule_bytes < TEST_MIB;
    return 1 + below(p, (size_t)1 << (is_large ? 14 + below(p, 7) : 4 + below(p, 14)));
}

static void random_make(random_program *p)
{
    p->count = 3 + below(p, RANDOM_ALLOCS - 3);
    const bool is_double = below(p, 2);
    for (size_t i = 0; i < p->count; i++)
        p->allocs[i] = (random_alloc){.bytes = random_bytes(p),
                                      .life = 1 + below(p, below(p, 8) ? 8 : 2 * p->count),
                                      .is_other = is_double && !below(p, 4)};
}

/* Orders the other stream after what was queued on the stream of a block. */
static void random_order(random_program *p, loch_stream *before, loch_stream *after)
{
    loch_event *event;
    CHECK_OK(loch_event_create(p->r.bed->device, LOCH_EVENT_PLAIN, &event));
    CHECK_OK(loch_event_record(event, before));
    CHECK_OK(loch_stream_wait(after, event));
    loch_event_destroy(event);
}

static bool deviates(random_program *p)
{
    return p->deviations && !below(p, p->deviations);
}

static void random_free(random_program *p, size_t number)
{
    rig_block *block = &p->r.blocks[number];
    loch_stream *other = block->stream == p->r.stream ? p->r.other : p->r.stream;
    if (!deviates(p)) {
        rig_free(&p->r, number);
        return;
    }
    random_order(p, block->stream, other);
    rig_launch(&p->r, block, other, false);
    if (below(p, 2)) {
        CHECK_OK(loch_allocator_record_use(p->r.allocator, block->address, other));
        rig_free(&p->r, number);
    } else {
        rig_compare(&p->r, block);
        CHECK_OK(loch_allocator_free_on(p->r.allocator, block->address, other));
        *block = (rig_block){NULL};
    }
}

static void random_free_due(random_program *p)
{
    for (size_t i = 0; i < RIG_BLOCKS; i++)
        if (p->r.blocks[i].address && p->due[i] <= p->now) random_free(p, i);
}

static void random_alloc_one(random_program *p, const random_alloc *alloc)
{
    size_t number = 0;
    while (p->r.blocks[number].address)
        number++;
    random_alloc mine = *alloc;
    if (deviates(p)) mine.bytes = below(p, 3) ? random_bytes(p) : 1 + below(p, mine.bytes);
    if (deviates(p)) mine.life = 1 + below(p, 3 * p->count);
    if (deviates(p)) mine.is_other = !mine.is_other;
    p->due[number] = p->now + mine.life;
    rig_alloc_on(&p->r, number, mine.bytes, mine.is_other ? p->r.other : p->r.stream);
    p->now++;
}

static void random_step(random_program *p)
{
    for (size_t i = 0; i < p->count; i++) {
        random_free_due(p);
        if (deviates(p)) continue; /* missing */
        if (deviates(p)) {         /* new */
            const random_alloc more = {random_bytes(p), 1 + below(p, p->count), below(p, 2)};
            random_alloc_one(p, &more);
        }
        if (i + 1 < p->count && deviates(p)) { /* in another order */
            random_alloc_one(p, &p->allocs[i + 1]);
            random_alloc_one(p, &p->allocs[i]);
            i++;
            continue;
        }
        random_alloc_one(p, &p->allocs[i]);
    }
}

static void random_run(const test_bed *bed, uint64_t seed, bool is_marked, size_t steps)
{
    static const size_t rates[] = {0, 100, 20, 5};
    random_program *p = calloc(1, sizeof *p);
    assert_non_null(p);
    p->random.state = seed;
    const loch_planned_options options = {.size = sizeof options,
                                          .time_limit_ns = 2000000,
                                          .threads = below(p, 2) ? LOCH_PLANNED_ALL_THREADS : LOCH_PLANNED_ONE_THREAD};
    rig_open(&p->r, bed, &options);
    p->r.is_short = below(p, 2);
    random_make(p);
    const size_t rate = rates[below(p, 4)], change = steps / 2 + below(p, steps);
    for (size_t step = 0; step < steps; step++) {
        p->deviations = step > 6 ? rate : 0;
        if (step == change) random_make(p); /* the program changes: the plan is mended, or not */
        if (is_marked) CHECK_OK(loch_planned_step(p->r.planned));
        random_step(p);
    }
    if (is_marked) assert_true(rig_info(&p->r).plans > 0 || rig_info(&p->r).status == LOCH_E_NOT_FOUND);
    rig_close(&p->r);
    free(p);
}

static void test_marked_programs(void **state)
{
    const uint64_t seed = test_seed(11);
    for (size_t round = 0; round < 25; round++)
        random_run(*state, seed + round, true, 30);
}

static void test_programs_without_marks(void **state)
{
    const uint64_t seed = test_seed(12);
    for (size_t round = 0; round < 15; round++)
        random_run(*state, seed + round, false, 60);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_marked_programs),
        cmocka_unit_test(test_programs_without_marks),
    };
    return rig_run_all(tests, sizeof tests / sizeof *tests);
}

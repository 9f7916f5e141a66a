/* SPDX-License-Identifier: MIT */
/* Guests of plans that can grow: blocks that do not fit lie in memory behind the plan, or in patches of free memory of
 * the plan. Two addresses of one memory are seen by contents alone, so every block is written and compared as a whole.
 * Sizes are in granules, so that the tests run on a GPU too: LOCH_TEST_DEVICES=cuda:0. */
#include "planned_rig.h"
#include "planned.h"

#define PATCH_BLOCKS 5

typedef struct patch_rig {
    rig r;
    size_t granule, sizes[PATCH_BLOCKS];
} patch_rig;

/* Blocks 0 and 1 are live together, then 2, which takes the memory of both, then 3 and 4. */
static const int patch_program[] = {1, 2, -1, -2, 3, -3, 4, 5, -5, -4};
#define PATCH_PROGRAM (sizeof patch_program / sizeof *patch_program)

static void patch_step(patch_rig *p)
{
    rig_run(&p->r, patch_program, PATCH_PROGRAM, p->sizes);
}

/* Opens a planned pool and runs steps until it has a plan. Skips devices whose blocks cannot grow. */
static void patch_open(patch_rig *p, const test_bed *bed)
{
    if (!test_bed_can(bed, LOCH_CAN_VIRTUAL) || bed->properties.granule_bytes > 4 * TEST_MIB) skip();
    p->granule = bed->properties.granule_bytes;
    const size_t granules[PATCH_BLOCKS] = {30, 34, 64, 20, 44};
    rig_open(&p->r, bed, NULL);
    for (size_t i = 0; i < PATCH_BLOCKS; i++)
        p->sizes[i] = granules[i] * p->granule;
    for (size_t i = 0; i < 5; i++)
        patch_step(p);
    assert_int_equal(rig_info(&p->r).period, PATCH_BLOCKS);
    assert_int_equal(rig_info(&p->r).height, 64 * p->granule);
    assert_true(p->r.planned->places->regions[0].unit > 0);
}

static size_t patch_reserved(patch_rig *p)
{
    loch_pool_info info = {.size = sizeof info};
    CHECK_OK(loch_pool_get_info(p->r.pool, &info));
    return info.reserved_bytes;
}

static size_t patch_count(const patch_rig *p)
{
    size_t count = 0;
    for (size_t i = 0; i < PLAN_GUESTS; i++)
        count += p->r.planned->places->patches[i] != NULL;
    return count;
}

static bool patch_has_alias(const patch_rig *p)
{
    return p->r.planned->places->regions[0].has_alias;
}

/* A block of half the memory stays; the block that needs all of it gets the other half, and as much behind the plan. */
static void test_a_late_block_does_not_cost_a_large_one(void **state)
{
    patch_rig p;
    patch_open(&p, *state);
    CHECK_OK(loch_planned_step(p.r.planned));
    rig_alloc(&p.r, 0, p.sizes[0]);
    rig_alloc(&p.r, 1, p.sizes[1]);
    rig_free(&p.r, 0);
    rig_alloc(&p.r, 2, p.sizes[2]); /* block 1 is late */
    if (patch_has_alias(&p)) {
        assert_true(rig_is_planned(&p.r, 2));
        assert_int_equal(patch_count(&p), 1);
        assert_int_equal(patch_reserved(&p), (64 + 34) * p.granule);
    }
    rig_free(&p.r, 1);
    rig_free(&p.r, 2);
    rig_alloc(&p.r, 3, p.sizes[3]); /* and the sequence goes on */
    rig_alloc(&p.r, 4, p.sizes[4]);
    assert_true(rig_is_planned(&p.r, 3) && rig_is_planned(&p.r, 4));
    rig_free(&p.r, 4);
    rig_free(&p.r, 3);
    CHECK_OK(loch_stream_sync(p.r.stream));
    patch_step(&p);
    assert_int_equal(patch_count(&p), 0);
    assert_int_equal(patch_reserved(&p), 64 * p.granule); /* what was behind the plan went back */
    rig_close(&p.r);
}

/* Memory that is lent to a patch is not handed out as a place, for a larger block, or as a guest. */
static void test_memory_of_a_patch_is_taken(void **state)
{
    patch_rig p;
    patch_open(&p, *state);
    if (!patch_has_alias(&p)) {
        rig_close(&p.r);
        skip();
    }
    for (size_t round = 0; round < 3; round++) {
        CHECK_OK(loch_planned_step(p.r.planned));
        rig_alloc(&p.r, 10, 12 * p.granule + 5); /* new: a patch in units that the plan uses last */
        assert_int_equal(patch_count(&p), 1);
        for (size_t i = 0; i < PATCH_PROGRAM; i++) {
            const int at = patch_program[i];
            if (at > 0)
                rig_alloc(&p.r, (size_t)at - 1, p.sizes[at - 1] + (round == 1) * p.granule);
            else
                rig_free(&p.r, (size_t)-at - 1);
        }
        rig_free(&p.r, 10);
        CHECK_OK(loch_stream_sync(p.r.stream));
    }
    patch_step(&p);
    rig_close(&p.r);
}

/* Small blocks share one unit behind the plan. */
static void test_small_blocks_lie_behind_the_plan(void **state)
{
    patch_rig p;
    patch_open(&p, *state);
    CHECK_OK(loch_planned_step(p.r.planned));
    rig_alloc(&p.r, 0, p.sizes[0]);
    rig_alloc(&p.r, 1, p.sizes[1]);
    for (size_t i = 20; i < 28; i++)
        rig_alloc(&p.r, i, 512);
    for (size_t i = 20; i < 28; i++)
        assert_true(rig_is_planned(&p.r, i));
    assert_int_equal(p.r.planned->places->regions[0].grown, 65 * p.granule);
    for (size_t i = 20; i < 28; i += 2)
        rig_free(&p.r, i);
    rig_alloc(&p.r, 30, 512);
    assert_int_equal(p.r.planned->places->regions[0].grown, 65 * p.granule);
    rig_close(&p.r);
}

static void test_errors_of_patches(void **state)
{
    patch_rig p;
    loch_block found = {.size = sizeof found};
    patch_open(&p, *state);
    CHECK_OK(loch_planned_step(p.r.planned));
    char *patch = rig_alloc(&p.r, 10, 12 * p.granule);
    if (patch_has_alias(&p)) {
        assert_int_equal(patch_count(&p), 1);
        assert_int_equal(loch_free(p.r.allocator, patch + p.granule), LOCH_E_INTERIOR);
        CHECK_OK(loch_allocator_find(p.r.allocator, patch, &found));
        assert_int_equal(found.requested_bytes, 12 * p.granule);
        CHECK_OK(loch_allocator_record_use(p.r.allocator, patch, p.r.other));
    }
    rig_free(&p.r, 10);
    assert_int_not_equal(loch_free(p.r.allocator, patch), LOCH_OK);
    rig_close(&p.r);
}

/* The mapping of a patch stays while its stream works, and the planned pool may end meanwhile. */
static void test_ending_while_a_stream_uses_a_patch(void **state)
{
    patch_rig p;
    patch_open(&p, *state);
    CHECK_OK(loch_planned_step(p.r.planned));
    rig_alloc(&p.r, 10, 12 * p.granule);
    assert_int_equal(patch_count(&p), patch_has_alias(&p));
    for (size_t i = 0; i < 8; i++)
        rig_launch(&p.r, &p.r.blocks[10], p.r.stream, true);
    if (rig_is_host(&p.r)) rig_write(&p.r, &p.r.blocks[10]);
    rig_free(&p.r, 10);
    rig_close(&p.r);
}

/* On a stream that is captured, guests lie in the memory of the plan or come from the pool: a graph keeps addresses. */
static void test_no_patch_during_a_capture(void **state)
{
    const test_bed *bed = *state;
    if (!bed->is_sim || !test_bed_can(bed, LOCH_CAN_CAPTURE)) skip();
    patch_rig p;
    loch_sim_graph *graph;
    patch_open(&p, bed);
    for (size_t i = 0; i < 2; i++) {
        const loch_request request = {.size = sizeof request, .bytes = i ? 512 : 12 * p.granule, .stream = p.r.stream};
        void *block;
        CHECK_OK(loch_planned_step(p.r.planned));
        CHECK_OK(loch_sim_capture_begin(p.r.stream));
        CHECK_OK(loch_planned_alloc(p.r.planned, &request, &block));
        assert_int_equal(patch_count(&p), 0);
        assert_int_equal(p.r.planned->places->regions[0].grown, 64 * p.granule);
        CHECK_OK(loch_sim_capture_end(p.r.stream, &graph));
        loch_sim_graph_destroy(graph);
        CHECK_OK(loch_planned_free(p.r.planned, block));
    }
    rig_close(&p.r);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_late_block_does_not_cost_a_large_one),
        cmocka_unit_test(test_memory_of_a_patch_is_taken),
        cmocka_unit_test(test_small_blocks_lie_behind_the_plan),
        cmocka_unit_test(test_errors_of_patches),
        cmocka_unit_test(test_ending_while_a_stream_uses_a_patch),
        cmocka_unit_test(test_no_patch_during_a_capture),
    };
    if (getenv("LOCH_TEST_DEVICES")) return TEST_BED_RUN(tests);
    return test_bed_run_also("sim:64MiB,backed,granule=64KiB", tests, sizeof tests / sizeof *tests);
}

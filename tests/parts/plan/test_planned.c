/* SPDX-License-Identifier: MIT */
/* Planned pools: recording, serving, and every way to deviate from a plan. */
#include "planned_rig.h"

/* Runs two steps as they were recorded. The plan has to serve all of the second: it has found the sequence again. */
static void expect_the_sequence_again(rig *r)
{
    rig_step(r);
    const uint64_t served = rig_info(r).served;
    rig_step(r);
    assert_int_equal(rig_info(r).served, served + RIG_SIZES);
}

static void test_steps_are_served_from_the_plan(void **state)
{
    rig r;
    void *addresses[RIG_SIZES] = {NULL};
    rig_open(&r, *state, NULL);
    rig_learn(&r);
    const loch_planned_info info = rig_info(&r);
    assert_int_equal(info.plans, 1);
    assert_int_equal(info.status, LOCH_OK);
    assert_true(info.height <= 320 * TEST_KIB && info.height >= info.lower_bound);
    for (size_t step = 0; step < 6; step++) {
        CHECK_OK(loch_planned_step(r.planned));
        r.is_short = step >= 3;
        for (size_t i = 0; i < RIG_PROGRAM; i++) {
            const int at = rig_program[i];
            const size_t block = (size_t)abs(at) - 1;
            if (at < 0) {
                rig_free(&r, block);
                continue;
            }
            void *address = rig_alloc(&r, block, rig_sizes[block]);
            assert_true(rig_is_planned(&r, block));
            if (step) assert_ptr_equal(address, addresses[block]);
            addresses[block] = address;
        }
    }
    assert_int_equal(rig_info(&r).served, 7 * RIG_SIZES);
    assert_int_equal(rig_info(&r).deviations, 0);
    rig_close(&r);
}

static void test_no_driver_call_in_a_planned_step(void **state)
{
    rig r;
    const test_bed *bed = *state;
    if (bed->is_sim) skip(); /* kernels of the rig are driver calls; the cpu counts those of the pool alone */
    rig_open(&r, *state, NULL);
    rig_learn(&r);
    loch_stats before = {.size = sizeof before}, after = {.size = sizeof after};
    CHECK_OK(loch_allocator_get_stats(r.pool, &before));
    for (size_t i = 0; i < 10; i++)
        rig_step(&r);
    CHECK_OK(loch_allocator_get_stats(r.pool, &after));
    assert_int_equal(before.allocs, after.allocs);
    assert_int_equal(before.reserved_bytes, after.reserved_bytes);
    rig_close(&r);
}

static void test_the_period_is_found_without_marks(void **state)
{
    rig r;
    rig_open(&r, *state, NULL);
    rig_alloc(&r, 100, 5000); /* what comes before the first step */
    rig_alloc(&r, 101, 6000);
    for (size_t step = 0; step < 60; step++)
        for (size_t i = 0; i < RIG_PROGRAM; i++) {
            const int at = rig_program[i];
            if (at > 0)
                rig_alloc(&r, (size_t)at - 1, rig_sizes[at - 1]);
            else
                rig_free(&r, (size_t)-at - 1);
        }
    const loch_planned_info info = rig_info(&r);
    assert_int_equal(info.period, RIG_SIZES);
    assert_int_equal(info.planned, RIG_SIZES);
    assert_true(info.served > 20 * RIG_SIZES);
    assert_int_equal(info.deviations, 0);
    rig_close(&r);
}

static void test_smaller_blocks_keep_their_place(void **state)
{
    rig r;
    size_t sizes[RIG_SIZES];
    rig_open(&r, *state, NULL);
    rig_learn(&r);
    const uint64_t served = rig_info(&r).served;
    memcpy(sizes, rig_sizes, sizeof sizes);
    sizes[2] -= 1000;
    sizes[6] /= 2;
    rig_run(&r, rig_program, RIG_PROGRAM, sizes);
    assert_int_equal(rig_info(&r).served, served + RIG_SIZES);
    assert_int_equal(rig_info(&r).deviations, 0);
    rig_close(&r);
}

static void test_larger_blocks_use_the_room_above(void **state)
{
    rig r;
    rig_open(&r, *state, NULL);
    rig_learn(&r);
    /* The first block lives with the second alone, which lies above it or below it: one of the two has room. */
    size_t served = 0;
    for (size_t number = 0; number < RIG_SIZES; number++) {
        const uint64_t before = rig_info(&r).served;
        size_t sizes[RIG_SIZES];
        memcpy(sizes, rig_sizes, sizeof sizes);
        sizes[number] += 64;
        rig_run(&r, rig_program, RIG_PROGRAM, sizes);
        served += rig_info(&r).served - before == RIG_SIZES;
    }
    assert_true(served > 0);
    rig_step(&r);
    rig_close(&r);
}

static void test_blocks_beyond_their_room_come_from_the_pool(void **state)
{
    rig r;
    size_t sizes[RIG_SIZES];
    rig_open(&r, *state, NULL);
    rig_learn(&r);
    memcpy(sizes, rig_sizes, sizeof sizes);
    sizes[3] = TEST_MIB;
    const uint64_t served = rig_info(&r).served;
    rig_run(&r, rig_program, RIG_PROGRAM, sizes);
    assert_int_equal(rig_info(&r).served, served + RIG_SIZES - 1);
    assert_int_equal(rig_info(&r).deviations, 1);
    rig_step(&r);
    assert_int_equal(rig_info(&r).deviations, 1);
    rig_close(&r);
}

static void test_the_sequence_is_found_after_a_new_allocation(void **state)
{
    static const int program[] = {1, 2, -1, 3, 20, 4, -2, 5, -4, 6, 7, -20, -3, -5, 8, -7, -6, -8};
    rig r;
    size_t sizes[20] = {0};
    rig_open(&r, *state, NULL);
    rig_learn(&r);
    memcpy(sizes, rig_sizes, sizeof rig_sizes);
    sizes[19] = TEST_MIB + 5;
    const uint64_t served = rig_info(&r).served;
    rig_run(&r, program, sizeof program / sizeof *program, sizes);
    assert_int_equal(rig_info(&r).served, served + RIG_SIZES);
    assert_int_equal(rig_info(&r).deviations, 1);
    rig_close(&r);
}

static void test_the_sequence_is_found_after_a_missing_allocation(void **state)
{
    static const int one[] = {1, 2, -1, 3, -2, 5, 6, 7, -3, -5, 8, -7, -6, -8}; /* without 4 */
    static const int three[] = {1, -1, 6, 7, 8, -7, -6, -8};                    /* without 2, 3, 4, 5 */
    rig r;
    rig_open(&r, *state, NULL);
    rig_learn(&r);
    uint64_t served = rig_info(&r).served;
    rig_run(&r, one, sizeof one / sizeof *one, rig_sizes);
    assert_int_equal(rig_info(&r).served, served + 7);
    served = rig_info(&r).served;
    rig_run(&r, three, sizeof three / sizeof *three, rig_sizes);
    assert_true(rig_info(&r).served >= served + 2);
    expect_the_sequence_again(&r);
    rig_close(&r);
}

static void test_another_order(void **state)
{
    static const int program[] = {2, 1, -1, 4, 3, -2, 5, -4, 7, 6, -3, -5, 8, -7, -6, -8};
    rig r;
    rig_open(&r, *state, NULL);
    rig_learn(&r);
    for (size_t i = 0; i < 3; i++)
        rig_run(&r, program, sizeof program / sizeof *program, rig_sizes);
    expect_the_sequence_again(&r);
    rig_close(&r);
}

static void test_frees_in_another_order(void **state)
{
    static const int program[] = {1, 2, -2, 3, 4, -4, 5, -1, 6, 7, -5, -3, 8, -8, -6, -7};
    rig r;
    rig_open(&r, *state, NULL);
    rig_learn(&r);
    for (size_t i = 0; i < 4; i++)
        rig_run(&r, program, sizeof program / sizeof *program, rig_sizes);
    expect_the_sequence_again(&r);
    rig_close(&r);
}

static void test_a_late_block_keeps_its_place(void **state)
{
    rig r;
    rig_open(&r, *state, NULL);
    rig_learn(&r);
    for (size_t number = 0; number < RIG_SIZES;
         number++) { /* each block in turn lives until the end of the next step */
        CHECK_OK(loch_planned_step(r.planned));
        for (size_t round = 0; round < 2; round++) {
            for (size_t i = 0; i < RIG_PROGRAM; i++) {
                const int at = rig_program[i];
                const size_t which = (size_t)(at > 0 ? at : -at) - 1;
                if (which == number && !round && at < 0) continue;
                const size_t name = which == number && !round ? 100 : which;
                if (at > 0)
                    rig_alloc(&r, name, rig_sizes[which]);
                else
                    rig_free(&r, name);
            }
            if (!round) CHECK_OK(loch_planned_step(r.planned));
        }
        rig_free(&r, 100);
    }
    expect_the_sequence_again(&r);
    rig_close(&r);
}

static void test_a_leak_over_steps(void **state)
{
    rig r;
    rig_open(&r, *state, NULL);
    rig_learn(&r);
    for (size_t step = 0; step < 20; step++) {
        CHECK_OK(loch_planned_step(r.planned));
        for (size_t i = 0; i < RIG_PROGRAM; i++) {
            const int at = rig_program[i];
            const size_t which = (size_t)(at > 0 ? at : -at) - 1;
            if (which == 2 && at < 0) continue;
            const size_t name = which == 2 ? 100 + step : which;
            if (at > 0)
                rig_alloc(&r, name, rig_sizes[which]);
            else
                rig_free(&r, name);
        }
    }
    rig_close(&r);
}

/* Blocks that are freed in the next step, before and after the step has allocated its own. */
static void test_blocks_that_live_into_the_next_step(void **state)
{
    for (int is_long = 0; is_long < 2; is_long++) {
        rig r;
        rig_open(&r, *state, NULL);
        for (size_t step = 0; step < 12; step++) {
            const size_t mine = 10 + step % 2, last = 11 - step % 2;
            CHECK_OK(loch_planned_step(r.planned));
            rig_alloc(&r, 0, 50000);
            if (step && !is_long) rig_free(&r, last);
            rig_alloc(&r, mine, 30000); /* with `is_long` two of them are live at a time: the period has two steps */
            if (step && is_long) rig_free(&r, last);
            rig_alloc(&r, 1, 20000);
            rig_free(&r, 0);
            rig_free(&r, 1);
        }
        const loch_planned_info info = rig_info(&r);
        assert_int_equal(info.period, is_long ? 6 : 3);
        assert_int_equal(info.planned, info.period);
        assert_int_equal(info.deviations, 0);
        assert_true(info.served >= 18);
        rig_close(&r);
    }
}

/* Blocks of the last recorded step live on in the pool. When they are freed, the pool gives their memory back: the plan
 * has places for the next ones. */
static void test_memory_of_the_recorded_steps_goes_back(void **state)
{
    rig r;
    rig_open(&r, *state, NULL);
    const size_t mib = (size_t)1 << 20;
    for (size_t step = 0; step < 16; step++) {
        CHECK_OK(loch_stream_sync(r.stream));
        CHECK_OK(loch_planned_step(r.planned));
        for (size_t i = 0; i < 4; i++) {
            if (step) rig_free(&r, i);
            rig_alloc(&r, 4 + i, 8 * mib);
        }
        for (size_t i = 0; i < 4; i++) {
            rig_alloc(&r, i, 4 * mib);
            rig_free(&r, 4 + i);
        }
    }
    loch_planned_info info = {.size = sizeof info};
    loch_pool_info pool = {.size = sizeof pool};
    CHECK_OK(loch_planned_get_info(r.planned, &info));
    CHECK_OK(loch_pool_get_info(r.pool, &pool));
    assert_int_equal(info.plans, 1);
    assert_true(info.height >= 32 * mib);
    assert_in_range(pool.reserved_bytes, info.height, info.height + 2 * mib);
    for (size_t i = 0; i < 4; i++)
        rig_free(&r, i);
    rig_close(&r);
}

static void test_blocks_that_stay_are_left_to_the_pool(void **state)
{
    rig r;
    rig_open(&r, *state, NULL);
    for (size_t step = 0; step < 12; step++) {
        rig_step(&r);
        rig_alloc(&r, 100 + step, 1000); /* like a cache that grows */
    }
    const loch_planned_info info = rig_info(&r);
    assert_int_equal(info.period, RIG_SIZES + 1);
    assert_int_equal(info.planned, RIG_SIZES);
    assert_int_equal(info.deviations, 0);
    assert_int_equal(info.left, 8);
    rig_close(&r);
}

/* --- streams --- */

static void test_two_streams_have_memory_of_their_own(void **state)
{
    rig r;
    rig_open(&r, *state, NULL);
    for (size_t step = 0; step < 12; step++) {
        CHECK_OK(loch_planned_step(r.planned));
        rig_alloc(&r, 0, 50000);
        rig_alloc_on(&r, 1, 60000, r.other);
        rig_free(&r, 0);
        rig_alloc_on(&r, 2, 40000, r.other);
        rig_alloc(&r, 3, 70000);
        rig_free(&r, 1);
        rig_free(&r, 3);
        rig_alloc_on(&r, 4, 55000, r.other);
        rig_free(&r, 2);
        rig_free(&r, 4);
    }
    assert_int_equal(rig_info(&r).planned, 5);
    assert_int_equal(rig_info(&r).served, 40);
    rig_close(&r);
}

static void test_a_request_on_another_stream_comes_from_the_pool(void **state)
{
    rig r;
    rig_open(&r, *state, NULL);
    rig_learn(&r);
    CHECK_OK(loch_planned_step(r.planned));
    rig_alloc_on(&r, 0, rig_sizes[0], r.other);
    assert_false(rig_is_planned(&r, 0));
    rig_free(&r, 0);
    rig_step(&r);
    rig_close(&r);
}

/* A block that another stream uses keeps its place until that has passed, also in the next steps. */
static void test_uses_on_another_stream(void **state)
{
    const test_bed *bed = *state;
    for (int is_free_on = 0; is_free_on < 2; is_free_on++) {
        rig r;
        rig_open(&r, bed, NULL);
        rig_learn(&r);
        for (size_t step = 0; step < 6; step++) {
            CHECK_OK(loch_planned_step(r.planned));
            for (size_t i = 0; i < RIG_PROGRAM; i++) {
                const int at = rig_program[i];
                const size_t which = (size_t)(at > 0 ? at : -at) - 1;
                if (at > 0) {
                    rig_alloc(&r, which, rig_sizes[which]);
                    if (which != 3) continue;
                    /* The other stream reads the block after its own stream wrote it. */
                    loch_event *event;
                    CHECK_OK(loch_event_create(bed->device, LOCH_EVENT_PLAIN, &event));
                    CHECK_OK(loch_event_record(event, r.stream));
                    CHECK_OK(loch_stream_wait(r.other, event));
                    loch_event_destroy(event);
                    rig_launch(&r, &r.blocks[3], r.other, false);
                    if (!is_free_on) CHECK_OK(loch_allocator_record_use(r.allocator, r.blocks[3].address, r.other));
                } else if (which == 3 && is_free_on) {
                    rig_compare(&r, &r.blocks[3]);
                    CHECK_OK(loch_allocator_free_on(r.allocator, r.blocks[3].address, r.other));
                    r.blocks[3].address = NULL;
                } else {
                    rig_free(&r, which);
                }
            }
        }
        CHECK_OK(loch_device_sync(bed->device));
        rig_step(&r);
        assert_int_equal(rig_info(&r).waiting, 0);
        const uint64_t served = rig_info(&r).served;
        rig_step(&r);
        assert_int_equal(rig_info(&r).served, served + RIG_SIZES);
        rig_close(&r);
    }
}

/* Uses that have not passed at the end: the pool gets the memory back and waits for them itself. */
static void test_ending_with_uses_on_another_stream(void **state)
{
    const test_bed *bed = *state;
    rig r;
    rig_open(&r, bed, NULL);
    rig_learn(&r);
    CHECK_OK(loch_planned_step(r.planned));
    rig_alloc(&r, 0, rig_sizes[0]);
    loch_event *event;
    CHECK_OK(loch_event_create(bed->device, LOCH_EVENT_PLAIN, &event));
    CHECK_OK(loch_event_record(event, r.stream));
    CHECK_OK(loch_stream_wait(r.other, event));
    loch_event_destroy(event);
    rig_launch(&r, &r.blocks[0], r.other, false);
    CHECK_OK(loch_allocator_record_use(r.allocator, r.blocks[0].address, r.other));
    rig_free(&r, 0);
    rig_close(&r);
}

static void test_shared_blocks_of_the_recording_are_left_to_the_pool(void **state)
{
    rig r;
    rig_open(&r, *state, NULL);
    for (size_t step = 0; step < 8; step++) {
        CHECK_OK(loch_planned_step(r.planned));
        rig_alloc(&r, 0, 50000);
        rig_alloc(&r, 1, 60000);
        CHECK_OK(loch_allocator_record_use(r.allocator, r.blocks[1].address, r.other));
        rig_free(&r, 0);
        rig_free(&r, 1);
    }
    assert_int_equal(rig_info(&r).planned, 1);
    assert_int_equal(rig_info(&r).deviations, 0);
    rig_close(&r);
}

/* --- graphs --- */

/* A step is captured: its blocks have the addresses of every step, and a launch writes to them. */
static void test_a_step_is_captured(void **state)
{
    const test_bed *bed = *state;
    if (!bed->is_sim || !test_bed_can(bed, LOCH_CAN_CAPTURE)) skip();
    rig r;
    void *addresses[RIG_SIZES] = {NULL};
    loch_sim_graph *graph;
    const loch_planned_options options = {.size = sizeof options, .renewal = LOCH_PLANNED_FIXED};
    rig_open(&r, bed, &options);
    rig_learn(&r);
    for (size_t step = 0; step < 3; step++) {
        CHECK_OK(loch_planned_step(r.planned));
        if (step == 1) CHECK_OK(loch_sim_capture_begin(r.stream));
        for (size_t i = 0; i < RIG_PROGRAM; i++) {
            const int at = rig_program[i];
            const size_t which = (size_t)(at > 0 ? at : -at) - 1;
            if (at < 0) {
                CHECK_OK(loch_planned_free(r.planned, addresses[which]));
                continue;
            }
            const loch_request request = {.size = sizeof request, .bytes = rig_sizes[which], .stream = r.stream};
            void *address;
            CHECK_OK(loch_planned_alloc(r.planned, &request, &address));
            if (step) assert_ptr_equal(address, addresses[which]);
            addresses[which] = address;
            CHECK_OK(loch_fill_on(address, rig_sizes[which], "\x5a", 1, r.stream));
        }
        if (step == 1) CHECK_OK(loch_sim_capture_end(r.stream, &graph));
        if (step == 1) CHECK_OK(loch_sim_graph_launch(graph, r.stream));
    }
    CHECK_OK(loch_sim_graph_launch(graph, r.stream));
    CHECK_OK(loch_stream_sync(r.stream));
    assert_int_equal(rig_info(&r).deviations, 0);
    assert_int_equal(rig_info(&r).served, 4 * RIG_SIZES);
    loch_sim_graph_destroy(graph);
    rig_close(&r);
}

/* Nothing is planned while a stream is captured: the memory would belong to the graph. */
static void test_no_plan_is_made_during_a_capture(void **state)
{
    const test_bed *bed = *state;
    if (!bed->is_sim || !test_bed_can(bed, LOCH_CAN_CAPTURE)) skip();
    rig r;
    loch_sim_graph *graph;
    rig_open(&r, bed, NULL);
    for (size_t i = 0; i < 4; i++)
        rig_step(&r);
    CHECK_OK(loch_sim_capture_begin(r.stream));
    CHECK_OK(loch_planned_step(r.planned));
    assert_int_equal(rig_info(&r).period, 0);
    CHECK_OK(loch_sim_capture_end(r.stream, &graph));
    loch_sim_graph_destroy(graph);
    for (size_t i = 0; i < 3; i++)
        rig_step(&r);
    assert_int_equal(rig_info(&r).period, RIG_SIZES);
    rig_close(&r);
}

/* --- mending --- */

static void test_a_plan_is_mended(void **state)
{
    static const size_t sizes[RIG_SIZES] = {7000, 90 * 1024, 600 * 1024, 300, 90000, 5 * 1024, 100 * 1024, 800 * 1024};
    rig r;
    rig_open(&r, *state, NULL);
    rig_learn(&r);
    rig_alloc(&r, 100, 100); /* a live block of the pool, and one of the old plan */
    for (size_t i = 0; i < 60; i++)
        rig_run(&r, rig_program, RIG_PROGRAM, sizes);
    assert_int_equal(rig_info(&r).plans, 2);
    const uint64_t served = rig_info(&r).served;
    rig_run(&r, rig_program, RIG_PROGRAM, sizes);
    assert_int_equal(rig_info(&r).served, served + RIG_SIZES);
    rig_close(&r);
}

static void test_an_old_plan_stays_while_it_has_blocks(void **state)
{
    rig r;
    rig_open(&r, *state, NULL);
    rig_learn(&r);
    CHECK_OK(loch_planned_step(r.planned));
    rig_alloc(&r, 100, rig_sizes[0]);
    assert_true(rig_is_planned(&r, 100));
    CHECK_OK(loch_planned_record(r.planned));
    for (size_t i = 0; i < 6; i++)
        rig_step(&r);
    assert_int_equal(rig_info(&r).plans, 2);
    const uint64_t served = rig_info(&r).served;
    rig_step(&r);
    assert_int_equal(rig_info(&r).served, served + RIG_SIZES);
    assert_true(rig_is_planned(&r, 100));
    rig_free(&r, 100);
    rig_step(&r);
    loch_stats stats = {.size = sizeof stats};
    CHECK_OK(loch_allocator_get_stats(r.pool, &stats));
    assert_int_equal(stats.blocks, 1); /* the memory of the new plan */
    rig_close(&r);
}

/* --- memory is short, bad calls --- */

static void test_no_memory_for_a_plan(void **state)
{
    const test_bed *bed = *state;
    rig r;
    rig_open(&r, bed, NULL);
    loch_allocator *fault;
    CHECK_OK(loch_fault_create(r.pool, NULL, NULL, &fault));
    loch_planned_destroy(r.planned);
    CHECK_OK(loch_planned_create(fault, NULL, NULL, &r.planned));
    r.allocator = loch_planned_get_allocator(r.planned);
    const loch_fault_options options = {.size = sizeof options, .above_bytes = 250 * 1024}; /* the plan's block alone */
    CHECK_OK(loch_fault_set(fault, &options));
    for (size_t i = 0; i < 6; i++)
        rig_step(&r);
    assert_int_equal(rig_info(&r).period, 0);
    assert_int_equal(rig_info(&r).status, LOCH_E_DEVICE_MEMORY);
    CHECK_OK(loch_fault_set(fault, NULL));
    for (size_t i = 0; i < 12; i++)
        rig_step(&r);
    assert_int_equal(rig_info(&r).period, RIG_SIZES);
    rig_close(&r);
    loch_allocator_release(fault);
}

static void test_an_unused_plan_is_given_back_when_memory_is_short(void **state)
{
    rig r;
    rig_open(&r, *state, NULL);
    rig_learn(&r);
    loch_pool_info info = {.size = sizeof info};
    CHECK_OK(loch_pool_get_info(r.pool, &info));
    CHECK_OK(loch_pool_set_limit(r.pool, info.reserved_bytes));
    rig_alloc(&r, 100, info.reserved_bytes - 64 * TEST_KIB);
    assert_int_equal(rig_info(&r).period, 0);
    CHECK_OK(loch_pool_set_limit(r.pool, 0));
    rig_free(&r, 100);
    for (size_t i = 0; i < 6; i++)
        rig_step(&r);
    assert_int_equal(rig_info(&r).period, RIG_SIZES);
    rig_close(&r);
}

static void test_wrong_calls(void **state)
{
    rig r;
    rig_open(&r, *state, NULL);
    loch_planned *planned = TEST_UNTOUCHED;
    loch_planned_options options = {.size = sizeof options, .record_steps = 1};
    CHECK_FAILS(loch_planned_create(NULL, NULL, NULL, &planned), INVALID);
    assert_null(planned);
    CHECK_FAILS(loch_planned_create(r.pool, NULL, &options, &planned), INVALID);
    options = (loch_planned_options){.size = 0};
    CHECK_FAILS(loch_planned_create(r.pool, NULL, &options, &planned), INVALID);
    options = (loch_planned_options){.size = sizeof options, .threads = (loch_planned_threads)7};
    CHECK_FAILS(loch_planned_create(r.pool, NULL, &options, &planned), INVALID);
    options = (loch_planned_options){.size = sizeof options, .renewal = (loch_planned_renewal)7};
    CHECK_FAILS(loch_planned_create(r.pool, NULL, &options, &planned), INVALID);
    CHECK_FAILS(loch_planned_create(r.pool, "", NULL, &planned), INVALID);
    CHECK_FAILS(loch_planned_create(r.pool, NULL, NULL, NULL), INVALID);
    loch_allocator *direct;
    CHECK_OK(loch_direct_create(r.bed->device, NULL, NULL, &direct));
    CHECK_FAILS(loch_planned_create(direct, NULL, NULL, &planned), INVALID);
    loch_allocator_release(direct);
    CHECK_FAILS(loch_planned_step(NULL), INVALID);
    CHECK_FAILS(loch_planned_record(NULL), INVALID);
    loch_planned_info info = {.size = 0};
    CHECK_FAILS(loch_planned_get_info(r.planned, &info), INVALID);
    CHECK_FAILS(loch_planned_get_info(NULL, &info), INVALID);
    loch_request request = {.size = sizeof request, .bytes = 10};
    void *block;
    CHECK_FAILS(loch_planned_alloc(NULL, &request, &block), INVALID);
    CHECK_FAILS(loch_planned_alloc(r.planned, NULL, &block), INVALID);
    CHECK_FAILS(loch_planned_free(NULL, NULL), INVALID);
    CHECK_OK(loch_planned_free(r.planned, NULL));
    assert_null(loch_planned_get_allocator(NULL));
    loch_planned_destroy(NULL);
    rig_learn(&r);
    CHECK_OK(loch_planned_step(r.planned));
    char *address = rig_alloc(&r, 0, rig_sizes[0]);
    CHECK_FAILS(loch_free(r.allocator, address + 64), INTERIOR);
    CHECK_FAILS(loch_allocator_free_sized(r.allocator, address, 5), INVALID);
    CHECK_FAILS(loch_allocator_record_use(r.allocator, address + 64, r.other), INTERIOR);
    rig_free(&r, 0);
    CHECK_FAILS(loch_free(r.allocator, address), DOUBLE_FREE);
    CHECK_FAILS(loch_free(r.allocator, &request), FOREIGN);
    CHECK_OK(loch_alloc(r.pool, 100, &block));
    CHECK_FAILS_SET(loch_free(r.allocator, block),
                    TEST_SET(FOREIGN) | TEST_SET(DOUBLE_FREE)); /* of the pool, but not through the planned pool */
    CHECK_OK(loch_free(r.pool, block));
    rig_close(&r);
}

static loch_status count_blocks(const loch_block *block, void *user)
{
    (void)block;
    ++*(size_t *)user;
    return LOCH_OK;
}

static void test_figures(void **state)
{
    rig r;
    rig_open(&r, *state, NULL);
    rig_learn(&r);
    CHECK_OK(loch_planned_step(r.planned));
    rig_alloc(&r, 0, rig_sizes[0]);
    rig_alloc(&r, 1, rig_sizes[1]);
    rig_alloc(&r, 100, TEST_MIB);
    assert_true(rig_is_planned(&r, 1) && !rig_is_planned(&r, 100));
    loch_stats stats = {.size = sizeof stats};
    CHECK_OK(loch_allocator_get_stats(r.allocator, &stats));
    assert_int_equal(stats.blocks, 3);
    assert_int_equal(stats.allocs, 5 * RIG_SIZES + 3);
    assert_int_equal(stats.requested_bytes, rig_sizes[0] + rig_sizes[1] + TEST_MIB);
    assert_int_equal(stats.peak_requested_bytes, rig_sizes[0] + rig_sizes[1] + TEST_MIB);
    assert_int_equal(stats.largest_bytes, TEST_MIB);
    loch_tag tag;
    CHECK_OK(loch_tag_create("planned", &tag));
    size_t walked = 0;
    CHECK_OK(loch_allocator_walk(r.allocator, count_blocks, &walked));
    assert_int_equal(walked, 3);
    for (size_t i = 0; i < 2; i++) { /* one block of the plan, one of the pool */
        const loch_request request = {
            .size = sizeof request, .bytes = i ? TEST_MIB : rig_sizes[2], .stream = r.stream, .tag = tag};
        void *block;
        CHECK_OK(loch_allocator_alloc(r.allocator, &request, &block));
        loch_block found = {.size = sizeof found};
        CHECK_OK(loch_allocator_find(r.allocator, block, &found));
        assert_int_equal(found.tag, tag);
        assert_int_equal(found.id >> 63, !i);
        CHECK_OK(loch_allocator_get_tag_stats(r.allocator, tag, &stats));
        assert_int_equal(stats.blocks, 1);
        assert_int_equal(stats.allocs, i + 1);
        assert_int_equal(stats.requested_bytes, request.bytes);
        CHECK_OK(loch_free(r.allocator, block));
    }
    CHECK_OK(loch_allocator_get_tag_stats(r.allocator, tag, &stats));
    assert_int_equal(stats.blocks, 0);
    assert_int_equal(stats.peak_requested_bytes, TEST_MIB);
    rig_free(&r, 100);
    CHECK_OK(loch_allocator_reset_stats(r.allocator));
    CHECK_OK(loch_allocator_get_stats(r.allocator, &stats));
    assert_int_equal(stats.peak_requested_bytes, rig_sizes[0] + rig_sizes[1]);
    assert_int_equal(stats.allocs, 0);
    rig_close(&r);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_steps_are_served_from_the_plan),
        cmocka_unit_test(test_no_driver_call_in_a_planned_step),
        cmocka_unit_test(test_the_period_is_found_without_marks),
        cmocka_unit_test(test_smaller_blocks_keep_their_place),
        cmocka_unit_test(test_larger_blocks_use_the_room_above),
        cmocka_unit_test(test_blocks_beyond_their_room_come_from_the_pool),
        cmocka_unit_test(test_the_sequence_is_found_after_a_new_allocation),
        cmocka_unit_test(test_the_sequence_is_found_after_a_missing_allocation),
        cmocka_unit_test(test_another_order),
        cmocka_unit_test(test_frees_in_another_order),
        cmocka_unit_test(test_a_late_block_keeps_its_place),
        cmocka_unit_test(test_a_leak_over_steps),
        cmocka_unit_test(test_blocks_that_live_into_the_next_step),
        cmocka_unit_test(test_memory_of_the_recorded_steps_goes_back),
        cmocka_unit_test(test_blocks_that_stay_are_left_to_the_pool),
        cmocka_unit_test(test_two_streams_have_memory_of_their_own),
        cmocka_unit_test(test_a_request_on_another_stream_comes_from_the_pool),
        cmocka_unit_test(test_uses_on_another_stream),
        cmocka_unit_test(test_ending_with_uses_on_another_stream),
        cmocka_unit_test(test_shared_blocks_of_the_recording_are_left_to_the_pool),
        cmocka_unit_test(test_a_step_is_captured),
        cmocka_unit_test(test_no_plan_is_made_during_a_capture),
        cmocka_unit_test(test_a_plan_is_mended),
        cmocka_unit_test(test_an_old_plan_stays_while_it_has_blocks),
        cmocka_unit_test(test_no_memory_for_a_plan),
        cmocka_unit_test(test_an_unused_plan_is_given_back_when_memory_is_short),
        cmocka_unit_test(test_wrong_calls),
        cmocka_unit_test(test_figures),
    };
    return TEST_BED_RUN(tests);
}

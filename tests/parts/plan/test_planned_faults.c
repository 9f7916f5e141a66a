/* SPDX-License-Identifier: MIT */
/* Planned pools while host memory of the planner, or calls of the driver, fail one after the other: allocations that
 * the pool can serve are served, contents stay, nothing is left behind. */
#include "planned_rig.h"
#include "memory.h"

#define FAULTS_STEPS 9

/* With small granules the plan is so large that it grows and has patches. It then makes many equal calls. */
static bool faults_are_many(const test_bed *bed)
{
    return bed->is_sim && bed->properties.granule_bytes < TEST_MIB;
}

/* Runs the program of the rig; an allocation may fail if `can_fail`. Returns how many did. */
static size_t faults_run(rig *r, bool can_fail)
{
    size_t failures = 0;
    const size_t times = faults_are_many(r->bed) ? 8 : 1;
    for (size_t step = 0; step < FAULTS_STEPS; step++) {
        CHECK_OK(loch_planned_step(r->planned));
        for (size_t i = 0; i < RIG_PROGRAM; i++) {
            const int at = rig_program[i];
            const size_t which = (size_t)(at > 0 ? at : -at) - 1;
            rig_block *block = &r->blocks[which];
            if (at < 0) {
                if (!block->address) continue;
                rig_compare(r, block);
                CHECK_OK(loch_free(r->allocator, block->address));
                block->address = NULL;
                continue;
            }
            /* The third block deviates in one step, and the fifth is used on another stream. */
            const size_t bytes = times * rig_sizes[which] + (which == 2 && step == 6 ? TEST_MIB : 0);
            const loch_request request = {.size = sizeof request, .bytes = bytes, .stream = r->stream};
            void *address;
            const loch_status status = loch_allocator_alloc(r->allocator, &request, &address);
            if (!can_fail) CHECK_OK(status);
            failures += status != LOCH_OK;
            if (status != LOCH_OK) continue;
            *block = (rig_block){address, bytes, ++r->seed, r->stream};
            rig_write(r, block);
            if (which != 4 || step < 5) continue;
            const loch_status used = loch_allocator_record_use(r->allocator, address, r->other);
            if (used != LOCH_OK) assert_int_equal(used, LOCH_E_HOST_MEMORY);
        }
    }
    return failures;
}

static void test_host_memory_of_the_planner(void **state)
{
    size_t refused = 0;
    bool is_over = false;
    for (long after = 0; !is_over; after++) {
        assert_true(after < 2000);
        rig r = {.bed = *state};
        CHECK_OK(loch_pool_create(r.bed->device, NULL, NULL, &r.pool));
        CHECK_OK(loch_stream_create(r.bed->device, NULL, &r.stream));
        CHECK_OK(loch_stream_create(r.bed->device, NULL, &r.other));
        lochi_plan_fail_after(after);
        const loch_status status = loch_planned_create(r.pool, NULL, NULL, &r.planned);
        if (status != LOCH_OK) {
            assert_int_equal(status, LOCH_E_HOST_MEMORY);
            assert_null(r.planned);
            lochi_plan_fail_after(-1);
            loch_allocator_release(r.pool);
            loch_stream_close(r.stream);
            loch_stream_close(r.other);
            refused++;
            continue;
        }
        r.allocator = loch_planned_get_allocator(r.planned);
        assert_int_equal(faults_run(&r, false), 0);
        is_over = !lochi_plan_failed();
        lochi_plan_fail_after(-1);
        if (is_over) assert_int_equal(rig_info(&r).period, RIG_SIZES);
        CHECK_OK(loch_device_sync(r.bed->device));
        rig_close(&r);
    }
    assert_true(refused > 0);
}

static void test_calls_of_the_driver(void **state)
{
    const test_bed *bed = *state;
    if (!bed->is_sim) skip();
    uint64_t calls = 1;
    for (uint64_t after = 0; after < calls; after += faults_are_many(bed) ? 7 : 1) {
        rig r;
        loch_sim_stats before = {.size = sizeof before}, stats = {.size = sizeof stats};
        rig_open(&r, bed, NULL);
        CHECK_OK(loch_sim_get_stats(bed->device, &before));
        const loch_sim_fault fault = {.size = sizeof fault, .after = after};
        CHECK_OK(loch_sim_set_fault(bed->device, &fault));
        faults_run(&r, true);
        CHECK_OK(loch_sim_get_stats(bed->device, &stats));
        CHECK_OK(loch_sim_set_fault(bed->device, NULL));
        if (stats.calls - before.calls > calls) calls = stats.calls - before.calls;
        CHECK_OK(loch_device_sync(bed->device));
        rig_close(&r);
    }
    assert_true(calls > 10);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_host_memory_of_the_planner),
        cmocka_unit_test(test_calls_of_the_driver),
    };
    return rig_run_all(tests, sizeof tests / sizeof *tests);
}

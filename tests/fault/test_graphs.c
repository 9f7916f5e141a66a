/* SPDX-License-Identifier: MIT */
/* Pools whose memory graphs use, while every driver call and every host allocation fails in turn. Sleep and wake do all
 * or nothing, and afterwards the graph gives what it gave before. A release with live blocks leaves nothing behind. */
#include "base/sanitize.h"
#include "graph_fixture.h"
#include "sweep.h"

#if LOCHI_TSAN
#define FAULT_STEP 11 /* slow there, and nothing runs beside the faults */
#else
#define FAULT_STEP 1
#endif

#define SIM "sim:64MiB,granule=64KiB,backed"

/* What a sweep runs on. */
typedef struct ground {
    const char *device;
    loch_pool_captures captures;
    loch_sleep_contents contents;
    bool is_waking; /* faults come in loch_pool_wake, else in loch_pool_sleep */
} ground;

/* Expects that the pool is asleep or awake, with all its memory. */
static void expect_state(const graph_rig *rig, bool is_asleep, size_t held)
{
    const loch_pool_info info = pool_info(rig->pool);
    pool_expect_whole(rig->pool);
    if (is_asleep)
        assert_int_equal(info.reserved_bytes, 0);
    else
        assert_int_equal(info.asleep_bytes, 0);
    assert_int_equal(info.reserved_bytes + info.asleep_bytes, held);
}

static void sleep_faulted(test_round *round, const void *user)
{
    const ground *on = user;
    const loch_pool_options options = {.size = sizeof options, .captures = on->captures};
    graph_rig rig = graph_open(on->device, &options, 100 * TEST_KIB);
    const loch_sleep_options how = {.size = sizeof how, .contents = on->contents};
    graph_put(&rig, 3);
    graph_run(&rig, 3);
    (void)pool_trim(rig.pool, 0);
    const size_t held = pool_info(rig.pool).reserved_bytes;
    if (on->is_waking) CHECK_OK(loch_pool_sleep(rig.pool, &how, NULL));
    test_round_begin(round, rig.device);
    const loch_status status = on->is_waking ? loch_pool_wake(rig.pool, NULL) : loch_pool_sleep(rig.pool, &how, NULL);
    test_round_end(round);
    round->is_felt = status != LOCH_OK;
    round->call = on->is_waking ? "loch_pool_wake" : "loch_pool_sleep";
    if (status != LOCH_OK) {
        assert_int_equal(loch_error_get()->status, status);
        assert_true(loch_error_get()->sentence[0] != '\0');
    }
    expect_state(&rig, on->is_waking == (status != LOCH_OK), held);
    /* All calls fail for good, waits too, but the device still runs what was queued: a real one would be lost. */
    if (status != LOCH_OK && round->mode == TEST_FAILING_FOREVER) LOCH_IGNORE(loch_sim_clear_violations(rig.device));
    if (status != LOCH_OK && !on->is_waking) graph_run(&rig, 3); /* nothing has changed */
    if (status != LOCH_OK && !on->is_waking) CHECK_OK(loch_pool_sleep(rig.pool, &how, NULL));
    if (status != LOCH_OK || !on->is_waking) CHECK_OK(loch_pool_wake(rig.pool, NULL));
    expect_state(&rig, false, held);
    if (on->contents == LOCH_SLEEP_DROP) {
        unsigned char byte;
        CHECK_OK(loch_copy(&byte, rig.input + 50 * TEST_KIB, 1));
        assert_int_equal(byte, 0);
        graph_put(&rig, 3);
    } else if (!graph_has(&rig, rig.input, 3)) {
        fail_msg("contents are lost");
    }
    graph_run(&rig, 3);
    graph_close(&rig);
}

static void sweep(test_faults from, const char *device, loch_pool_captures captures)
{
    uint64_t felt = 0;
    from.stride = FAULT_STEP;
    for (loch_sleep_contents contents = LOCH_SLEEP_PINNED; contents <= LOCH_SLEEP_DROP; contents++)
        for (int is_waking = 0; is_waking < 2; is_waking++) {
            const ground on = {device, captures, contents, is_waking};
            felt += test_rounds_run(&from, is_waking ? "waking" : "falling asleep", sleep_faulted, &on).felt;
        }
    assert_true(felt > 20 / FAULT_STEP);
}

static void pools_of_graphs_sleep_as_a_whole_or_not_at_all(void **state)
{
    (void)state;
    sweep(test_sim_faults, SIM, LOCH_POOL_CAPTURES_SHARED);
    sweep(test_driver_faults, "faulty:" SIM, LOCH_POOL_CAPTURES_SHARED);
    sweep(test_host_faults, SIM, LOCH_POOL_CAPTURES_SHARED);
}

static void memory_of_captures_sleeps_as_a_whole_or_not_at_all(void **state)
{
    (void)state;
    sweep(test_sim_faults, SIM, LOCH_POOL_CAPTURES_WATCHED);
}

/* The last reference goes while blocks are live. */
static void release_faulted(test_round *round, const void *user)
{
    const loch_pool_options *options = user;
    loch_sim_stats stats = {.size = sizeof stats};
    graph_rig rig = graph_open(SIM, options, 100 * TEST_KIB);
    graph_put(&rig, 3);
    graph_run(&rig, 3);
    loch_sim_graph_destroy(rig.graph);
    test_round_begin(round, rig.device);
    loch_allocator_release(rig.pool);
    test_round_end(round);
    if (!graph_has(&rig, rig.input, 3)) fail_msg("contents are lost");
    CHECK_OK(loch_free(rig.pool, rig.input));
    if (!graph_has(&rig, rig.output, 3)) fail_msg("contents are lost");
    CHECK_OK(loch_free(rig.pool, rig.output));
    CHECK_OK(loch_sim_get_stats(rig.device, &stats));
    assert_int_equal(stats.physical_bytes, 0);
    assert_int_equal(stats.mappings, 0);
    loch_stream_close(rig.a);
    loch_stream_close(rig.b);
    loch_device_release(rig.device);
}

static void released_pools_leave_nothing_behind(void **state)
{
    (void)state;
    static const loch_pool_options options[] = {
        {.size = sizeof options[0], .captures = LOCH_POOL_CAPTURES_SHARED},
        {.size = sizeof options[0], .captures = LOCH_POOL_CAPTURES_SHARED, .wipe = LOCH_POOL_WIPE_FREED}};
    for (size_t i = 0; i < 2; i++) {
        assert_true(test_rounds_run(&test_sim_faults, "release", release_faulted, &options[i]).places > 2);
        (void)test_rounds_run(&test_host_faults, "release", release_faulted, &options[i]);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(pools_of_graphs_sleep_as_a_whole_or_not_at_all),
        cmocka_unit_test(memory_of_captures_sleeps_as_a_whole_or_not_at_all),
        cmocka_unit_test(released_pools_leave_nothing_behind),
    };
    return cmocka_run_group_tests(tests, test_faults_prepare, NULL);
}

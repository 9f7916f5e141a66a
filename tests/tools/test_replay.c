/* SPDX-License-Identifier: MIT */
/* A replay of a recording asks the pool for what the recorded program asked: memory, peaks and failures agree. */
#include "test.h"
#include "replay.h"
#include <loch/recorder.h>
#include <loch/sim.h>
#include <unistd.h>

#define DEVICE "sim:16GiB"
#define LAG_NS 2000000
#define CACHES 24
#define STEPS 1000
#define MIB ((size_t)1 << 20)

static char path[64];

typedef struct served {
    loch_device *device;
    loch_allocator *pool;
    test_random random;
    void *caches[CACHES];
    size_t bytes[CACHES];
    uint64_t peak_requested, peak_reserved;
} served;

static void end_cache(served *s, size_t i)
{
    CHECK_OK(loch_free(s->pool, s->caches[i]));
    s->caches[i] = NULL;
}

/* Grows a cache as a request gets longer, shrinks it as one is cut back, and ends it. */
static void step_cache(served *s, size_t i)
{
    const size_t most = (i % 3 ? 1024 : 32) * MIB; /* large reservations, and small ones in the pool's own range */
    if (!s->caches[i]) {
        s->bytes[i] = test_random_below(&s->random, 4 * MIB);
        const loch_request request = {.size = sizeof request, .bytes = s->bytes[i]};
        CHECK_OK(loch_pool_alloc_growable(s->pool, most, &request, &s->caches[i]));
        return;
    }
    const size_t more = test_random_below(&s->random, 3 * MIB), chance = test_random_below(&s->random, 200);
    if (chance == 0 || s->bytes[i] + more > most) {
        end_cache(s, i);
        return;
    }
    s->bytes[i] = chance == 1 ? s->bytes[i] / 2 : s->bytes[i] + more;
    CHECK_OK(loch_pool_resize_growable(s->pool, s->caches[i], s->bytes[i]));
}

/* Runs a server: caches that grow, and blocks of a step beside them. */
static void serve(served *s)
{
    void *blocks[8];
    for (size_t step = 0; step < STEPS; step++) {
        CHECK_OK(loch_sim_set_time(s->device, (step + 1) * 1000000));
        for (size_t i = 0; i < 8; i++)
            CHECK_OK(loch_alloc(s->pool, 1 + test_random_below(&s->random, 16 * MIB), &blocks[i]));
        for (size_t i = 0; i < 16; i++)
            step_cache(s, test_random_below(&s->random, CACHES));
        for (size_t i = 0; i < 8; i++)
            CHECK_OK(loch_free(s->pool, blocks[i]));
    }
}

/* Records a server from its first request, or from its middle. */
static void record_server(served *s, bool from_middle)
{
    *s = (served){.random = {test_seed(7)}};
    CHECK_OK(replay_open_device(DEVICE, LAG_NS, &s->device));
    CHECK_OK(loch_pool_create(s->device, "server", NULL, &s->pool));
    if (from_middle)
        for (size_t i = 0; i < CACHES; i++)
            step_cache(s, i);
    const loch_recorder_options options = {.size = sizeof options, .path = path, .clock = s->device};
    CHECK_OK(loch_recorder_start(&options));
    serve(s);
    CHECK_OK(loch_recorder_stop());
    loch_stats stats = {.size = sizeof stats};
    CHECK_OK(loch_allocator_get_stats(s->pool, &stats));
    s->peak_requested = stats.peak_requested_bytes;
    s->peak_reserved = stats.peak_reserved_bytes;
    for (size_t i = 0; i < CACHES; i++)
        if (s->caches[i]) end_cache(s, i);
    loch_allocator_release(s->pool);
    loch_device_release(s->device);
}

static void replay_file(const char *allocator, const char *device_name, trace_log *trace, replay_result *result)
{
    replay_kept kept = {.allocator = NULL};
    replay_setup setup = {.trace = trace, .allocator = allocator, .kept = &kept};
    assert_true(trace_load(trace, path));
    if (device_name) CHECK_OK(replay_open_device(device_name, LAG_NS, &setup.device));
    CHECK_OK(replay_run(&setup, result));
    replay_end(&kept);
    loch_device_release(setup.device);
    trace_unload(trace);
}

static void expect_near(uint64_t replayed, uint64_t recorded)
{

    assert_in_range(replayed, recorded - recorded / 100, recorded + recorded / 100);
}

static void a_replay_of_growable_blocks_takes_the_recorded_memory(void **state)
{
    (void)state;
    for (unsigned from_middle = 0; from_middle < 2; from_middle++) {
        served s;
        trace_log trace;
        replay_result result = {.failures = 0};
        record_server(&s, from_middle);
        replay_file("pool", DEVICE, &trace, &result);
        assert_int_equal(result.failures, 0);
        assert_int_equal(trace.peak_requested, s.peak_requested);
        expect_near(result.peak_reserved, s.peak_reserved);
        assert_int_equal(unlink(path), 0);
    }
}

/* Allocators without growable blocks free and allocate. */
static void other_allocators_replay_growable_blocks(void **state)
{
    (void)state;
    static const char *const allocators[] = {"planned", "direct", "libc"};
    served s;
    record_server(&s, true);
    for (size_t i = 0; i < 3; i++) {
        trace_log trace;
        replay_result result = {.failures = 0};
        replay_file(allocators[i], i < 2 ? DEVICE : NULL, &trace, &result);
        assert_int_equal(result.failures, 0);
        assert_int_equal(trace.peak_requested, s.peak_requested);
        if (i < 2) assert_true(result.peak_reserved >= s.peak_requested);
    }
    assert_int_equal(unlink(path), 0);
}

/* A device that is too small: growths that fail are counted, and the replay goes on. */
static void growths_that_fail_are_counted(void **state)
{
    (void)state;
    served s;
    trace_log trace;
    replay_result result = {.failures = 0};
    record_server(&s, false);
    replay_file("pool", "sim:2GiB", &trace, &result);
    assert_true(result.failures_by[LOCH_E_DEVICE_MEMORY] > 0);
    assert_int_equal(result.failures, result.failures_by[LOCH_E_DEVICE_MEMORY] + result.failures_by[LOCH_E_FRAGMENTED]);
    assert_true(result.peak_reserved <= (uint64_t)2 << 30);
    assert_int_equal(unlink(path), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_replay_of_growable_blocks_takes_the_recorded_memory),
        cmocka_unit_test(other_allocators_replay_growable_blocks),
        cmocka_unit_test(growths_that_fail_are_counted),
    };
    (void)snprintf(path, sizeof path, "/tmp/loch-replay-%d.loch", (int)getpid());
    return cmocka_run_group_tests(tests, NULL, NULL);
}

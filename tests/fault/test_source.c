/* SPDX-License-Identifier: MIT */
/* Every host allocation and every driver call fails in turn under a pool on a source, and under one in which every
 * block is a segment: the pool stays whole, later requests succeed, and all segments go back. */
#include "memory/pool/report/check.h"
#include "sweep.h"
#include "test.h"

#define SLOTS 12

typedef struct ground {
    loch_pool_preset preset;
    bool has_source, has_zones; /* zones: segments that are not aligned */
} ground;

typedef struct program {
    loch_device *device;
    loch_allocator *direct, *pool;
    loch_stream *stream;
    void *blocks[SLOTS];
    loch_status status;
    const char *call;
} program;

#define STEP(answer)                                                                                                   \
    do {                                                                                                               \
        p->status = (answer);                                                                                          \
        p->call = #answer;                                                                                             \
        if (p->status != LOCH_OK) return;                                                                              \
    } while (0)

static void program_work(program *p, const ground *on)
{
    static const size_t sizes[SLOTS] = {100,    3000,    9000,   70000,  300000,  1 << 20,
                                        700000, 5 << 20, 200000, 100000, 3 << 20, 50};
    const loch_direct_options zones = {.size = sizeof zones, .red_zone_bytes = on->has_zones ? 100 : 0};
    loch_pool_options options = {.size = sizeof options, .preset = on->preset, .limit_bytes = 32 << 20};
    STEP(loch_stream_create(p->device, NULL, &p->stream));
    STEP(loch_direct_create(p->device, "source", &zones, &p->direct));
    if (on->has_source) options.source = p->direct;
    STEP(loch_pool_create(p->device, "pool", &options, &p->pool));
    for (size_t round = 0; round < 2; round++) {
        for (size_t i = 0; i < SLOTS; i++) {
            const loch_request request = {
                .size = sizeof request, .bytes = sizes[i], .stream = i % 2 ? p->stream : NULL};
            STEP(loch_allocator_alloc(p->pool, &request, &p->blocks[i]));
        }
        for (size_t i = 0; i < SLOTS; i++) {
            STEP(loch_free(p->pool, p->blocks[i]));
            p->blocks[i] = NULL;
        }
        if (!round) STEP(loch_allocator_trim(p->pool, 0, NULL));
    }
}

static void program_end(program *p, const test_round *round)
{
    const char *wrong = p->pool ? lochi_pool_check(lochi_pool_of(p->pool)) : NULL;
    if (wrong) fail_msg("%s: %s: %s", round->when, p->call, wrong);
    for (size_t i = 0; i < SLOTS; i++)
        CHECK_OK(loch_free(p->pool, p->blocks[i]));
    if (p->pool) {
        void *block;
        CHECK_OK(loch_alloc(p->pool, 2 << 20, &block));
        CHECK_OK(loch_free(p->pool, block));
        CHECK_OK(loch_allocator_trim(p->pool, 0, NULL));
        loch_pool_info info = {.size = sizeof info};
        CHECK_OK(loch_pool_get_info(p->pool, &info));
        assert_int_equal(info.reserved_bytes, 0);
    }
    if (p->direct) {
        loch_stats stats = {.size = sizeof stats};
        CHECK_OK(loch_allocator_get_stats(p->direct, &stats));
        if (stats.blocks) fail_msg("%s: %s: %llu segments are left", round->when, p->call, (long long)stats.blocks);
    }
    loch_allocator_release(p->pool);
    loch_allocator_release(p->direct);
    loch_stream_close(p->stream);
}

static void run(test_round *round, const void *user)
{
    program p = {.call = ""};
    CHECK_OK(loch_device_open("sim:64MiB,granule=64KiB", &p.device));
    test_round_begin(round, p.device);
    program_work(&p, user);
    test_round_end(round);
    round->is_felt = p.status != LOCH_OK;
    round->call = p.call;
    if (p.status != LOCH_OK && !loch_error_get()->sentence[0]) fail_msg("%s: no sentence", round->when);
    program_end(&p, round);
    test_sim_expect_empty(p.device, !round->is_felt, round->when, p.call);
    loch_device_release(p.device);
}

static void pools_on_sources_survive_faults(void **state)
{
    (void)state;
    static const ground grounds[] = {{LOCH_POOL_STANDARD, true, false},
                                     {LOCH_POOL_STANDARD, true, true},
                                     {LOCH_POOL_NO_SPLIT, true, false},
                                     {LOCH_POOL_NO_SPLIT, false, false}};
    for (size_t i = 0; i < sizeof grounds / sizeof *grounds; i++) {
        const test_rounds host = test_rounds_run(&test_host_faults, "a pool on a source", run, &grounds[i]);
        assert_true(host.places > 20 && host.felt > 10);
        const test_rounds calls = test_rounds_run(&test_sim_faults, "a pool on a source", run, &grounds[i]);
        assert_true(calls.places > 20 && calls.felt > 10);
    }
    assert_int_equal(test_heap_wrong(), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(pools_on_sources_survive_faults)};
    return cmocka_run_group_tests_name("pools on sources fail", tests, test_faults_prepare, NULL);
}

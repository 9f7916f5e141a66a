/* SPDX-License-Identifier: MIT */
/* A request that is refused, while every driver call fails in turn, once and for good: the pool holds no more than
 * before, is whole, and serves what it served before; nothing is left on the device. */
#include "memory/pool/check.h"
#include "sweep.h"
#include "test.h"

#define SLOTS 10
#define MIB TEST_MIB

typedef struct ground {
    const char *device;
    loch_pool_options options;
    bool is_child;
} ground;

static size_t held_by(loch_allocator *pool)
{
    loch_pool_info info = {.size = sizeof info};
    CHECK_OK(loch_pool_get_info(pool, &info));
    return info.reserved_bytes;
}

/* Fills the pool, frees every other block, asks for more than is left, and then for what was there. */
static void run(test_round *round, const void *user)
{
    static const size_t sizes[SLOTS] = {2 * MIB, 300000, 3 * MIB, 90000, MIB, 2 * MIB, 700000, 2 * MIB, 3 * MIB, MIB};
    const ground *on = user;
    loch_pool_options options = on->options;
    loch_device *device;
    loch_allocator *parent = NULL, *pool;
    void *blocks[SLOTS], *none = TEST_UNTOUCHED;
    CHECK_OK(loch_device_open(on->device, &device));
    options.size = sizeof options;
    CHECK_OK(loch_pool_create(device, "pool", &options, &pool));
    if (on->is_child) {
        parent = pool;
        CHECK_OK(loch_pool_create_child(parent, "child", NULL, &pool));
    }
    for (size_t i = 0; i < SLOTS; i++)
        CHECK_OK(loch_alloc(pool, sizes[i], &blocks[i]));
    for (size_t i = 0; i < SLOTS; i += 2)
        CHECK_OK(loch_free(pool, blocks[i]));
    const size_t before = held_by(pool);
    test_round_begin(round, device);
    const loch_status status = loch_alloc(pool, 20 * MIB, &none);
    test_round_end(round);
    round->call = "loch_alloc";
    if (status == LOCH_OK || none) fail_msg("%s: 20 MiB are there", round->when);
    round->is_felt = status != LOCH_E_LIMIT && status != LOCH_E_DEVICE_MEMORY && status != LOCH_E_FRAGMENTED;
    if (held_by(pool) > before)
        fail_msg("%s: %zu held before the refusal, %zu after it", round->when, before, held_by(pool));
    const char *wrong = lochi_pool_check(lochi_pool_of(pool));
    if (wrong) fail_msg("%s: %s", round->when, wrong);
    for (size_t i = 0; i < SLOTS; i += 2)
        CHECK_OK(loch_alloc(pool, sizes[i], &blocks[i]));
    for (size_t i = 0; i < SLOTS; i++)
        CHECK_OK(loch_free(pool, blocks[i]));
    loch_allocator_release(pool);
    loch_allocator_release(parent);
    test_sim_expect_empty(device, !round->is_felt, round->when, round->call);
    loch_device_release(device);
}

static void a_refused_request_keeps_nothing_after_faults(void **state)
{
    (void)state;
    static const ground grounds[] = {
        {"sim:24MiB,granule=64KiB", {.limit_bytes = 0}, false},
        {"sim:64MiB,granule=64KiB", {.limit_bytes = 24 * MIB}, false},
        {"sim:64MiB,granule=64KiB", {.limit_bytes = 24 * MIB}, true},
        {"sim:24MiB,granule=64KiB,virtual=off", {.limit_bytes = 0}, false},
        {"sim:64MiB,granule=64KiB", {.limit_bytes = 24 * MIB, .kind = LOCH_MEMORY_PINNED}, false},
        {"sim:64MiB,granule=64KiB", {.limit_bytes = 24 * MIB, .captures = LOCH_POOL_CAPTURES_SHARED}, false},
        {"sim:64MiB,granule=64KiB", {.limit_bytes = 24 * MIB, .preset = LOCH_POOL_NO_SPLIT}, false},
    };
    for (size_t i = 0; i < sizeof grounds / sizeof *grounds; i++)
        (void)test_rounds_run(&test_sim_faults, grounds[i].device, run, &grounds[i]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(a_refused_request_keeps_nothing_after_faults)};
    return cmocka_run_group_tests_name("refused requests under faults", tests, test_faults_prepare, NULL);
}

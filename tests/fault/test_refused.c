/* SPDX-License-Identifier: MIT */
/* A request that is refused, while every driver call fails in turn, once and for good: the pool holds no more than
 * before, has the idle memory that it had, is whole, and serves what it served before; nothing is left on the
 * device. */
#include "memory/pool/report/check.h"
#include "sweep.h"
#include "test.h"

#define SLOTS 10
#define MIB TEST_MIB
#define SIM "sim:64MiB,granule=64KiB"

typedef enum kind { PLAIN, QUOTA, RANGE, LIMITED, SOURCE, SOURCE_POOL, GROWABLE } kind;

typedef struct ground {
    const char *device;
    kind kind;
    loch_pool_options options;
    size_t there; /* bytes that new memory alone does not serve, but with idle memory; 0: none are asked for */
} ground;

/* A pool that may hold 24 MiB. */
typedef struct subject {
    loch_device *device;
    loch_allocator *below, *tested; /* parent, wrapped pool or source; NULL for none */
    void *grown;                    /* GROWABLE: a block of 1 MiB */
} subject;

static subject subject_make(const ground *on)
{
    subject it = {.device = NULL};
    loch_pool_options options = on->options, plain = {.size = sizeof plain};
    const loch_child_options range = {
        .size = sizeof range, .kind = LOCH_CHILD_RANGE, .limit_bytes = options.limit_bytes};
    const loch_limit_options limit = {.size = sizeof limit, .hard_bytes = options.limit_bytes};
    const loch_request first = {.size = sizeof first, .bytes = MIB};
    options.size = sizeof options;
    CHECK_OK(loch_device_open(on->device, &it.device));
    if (on->kind == SOURCE) {
        CHECK_OK(loch_direct_create(it.device, "source", NULL, &it.below));
        options.source = it.below;
    } else if (on->kind == SOURCE_POOL) {
        CHECK_OK(loch_pool_create(it.device, "source", &options, &it.below));
        plain.source = it.below;
        CHECK_OK(loch_pool_create(it.device, "pool", &plain, &it.tested));
    } else if (on->kind == QUOTA) {
        CHECK_OK(loch_pool_create(it.device, "parent", &options, &it.below));
        CHECK_OK(loch_pool_create_child(it.below, "child", NULL, &it.tested));
    } else if (on->kind == RANGE || on->kind == LIMITED) {
        CHECK_OK(loch_pool_create(it.device, "below", &plain, &it.below));
    }
    if (on->kind == RANGE) CHECK_OK(loch_pool_create_child(it.below, "range", &range, &it.tested));
    if (on->kind == LIMITED) CHECK_OK(loch_limit_create(it.below, "narrow", &limit, &it.tested));
    if (!it.tested) CHECK_OK(loch_pool_create(it.device, "pool", &options, &it.tested));
    if (on->kind == GROWABLE) CHECK_OK(loch_pool_alloc_growable(it.tested, 256 * MIB, &first, &it.grown));
    return it;
}

static size_t held_by(loch_allocator *pool)
{
    loch_pool_info info = {.size = sizeof info};
    CHECK_OK(loch_pool_get_info(pool, &info));
    return info.reserved_bytes;
}

/* Returns the bytes that a pool has for later requests. */
static size_t idle_in(loch_allocator *pool)
{
    loch_stats stats = {.size = sizeof stats};
    CHECK_OK(loch_allocator_get_stats(pool, &stats));
    return stats.cached_bytes;
}

/* Fills the pool, frees every other block, asks for `bytes`, and after a refusal for what was there. If `is_there`, the
 * request fails only by a fault; idle memory that went back for it is lost if the driver has failed for good. */
static void ask(test_round *round, const ground *on, size_t bytes, bool is_there)
{
    static const size_t sizes[SLOTS] = {2 * MIB, 300000, 3 * MIB, 90000, MIB, 2 * MIB, 700000, 2 * MIB, 3 * MIB, MIB};
    subject it = subject_make(on);
    loch_allocator *pool = it.tested;
    void *blocks[SLOTS], *none = TEST_UNTOUCHED;
    for (size_t i = 0; i < SLOTS; i++)
        CHECK_OK(loch_alloc(pool, sizes[i], &blocks[i]));
    for (size_t i = 0; i < SLOTS; i += 2)
        CHECK_OK(loch_free(pool, blocks[i]));
    const size_t before = held_by(pool), idle = idle_in(pool);
    test_round_begin(round, it.device);
    const loch_status status =
        it.grown ? loch_pool_resize_growable(pool, it.grown, bytes) : loch_alloc(pool, bytes, &none);
    test_round_end(round);
    round->call = "the request";
    if (status == LOCH_OK && !is_there) fail_msg("%s: %zu are there", round->when, bytes);
    if (status != LOCH_OK && is_there && !round->is_reached) fail_msg("%s: %zu are not there", round->when, bytes);
    round->is_felt =
        status != LOCH_OK && status != LOCH_E_LIMIT && status != LOCH_E_DEVICE_MEMORY && status != LOCH_E_FRAGMENTED;
    if (status == LOCH_OK) CHECK_OK(it.grown ? loch_pool_resize_growable(pool, it.grown, MIB) : loch_free(pool, none));
    if (held_by(pool) > before && status != LOCH_OK)
        fail_msg("%s: %zu held before the refusal, %zu after it", round->when, before, held_by(pool));
    if (idle_in(pool) < idle && status != LOCH_OK && !(is_there && round->mode == TEST_FAILING_FOREVER))
        fail_msg("%s: %zu idle before the refusal, %zu after it", round->when, idle, idle_in(pool));
    const char *wrong = lochi_pool_check(lochi_pool_of(pool));
    if (wrong) fail_msg("%s: %s", round->when, wrong);
    for (size_t i = 0; i < SLOTS; i += 2) {
        blocks[i] = NULL;
        if (status != LOCH_OK) CHECK_OK(loch_alloc(pool, sizes[i], &blocks[i]));
    }
    for (size_t i = 0; i < SLOTS; i++)
        CHECK_OK(loch_free(pool, blocks[i]));
    CHECK_OK(loch_free(pool, it.grown));
    loch_allocator_release(pool);
    loch_allocator_release(it.below);
    test_sim_expect_empty(it.device, !round->is_felt, round->when, round->call);
    loch_device_release(it.device);
}

static void ask_for_more(test_round *round, const void *user)
{
    ask(round, user, 20 * MIB, false);
}

static void ask_for_what_is_there(test_round *round, const void *user)
{
    const ground *on = user;
    if (on->there) ask(round, on, on->there, true);
}

static const ground grounds[] = {
    {"sim:24MiB,granule=64KiB", PLAIN, {.limit_bytes = 0}, 15 * MIB},
    {SIM, PLAIN, {.limit_bytes = 24 * MIB}, 15 * MIB},
    {SIM, QUOTA, {.limit_bytes = 24 * MIB}, 15 * MIB},
    {SIM, RANGE, {.limit_bytes = 24 * MIB}, 0},
    {SIM, LIMITED, {.limit_bytes = 24 * MIB}, 15 * MIB},
    {SIM, SOURCE, {.limit_bytes = 24 * MIB}, 12 * MIB},
    {SIM, SOURCE_POOL, {.limit_bytes = 24 * MIB}, 12 * MIB},
    {"sim:24MiB,granule=64KiB", SOURCE_POOL, {.limit_bytes = 0}, 12 * MIB},
    {SIM, GROWABLE, {.limit_bytes = 24 * MIB}, 15 * MIB},
    {"sim:24MiB,granule=64KiB", GROWABLE, {.limit_bytes = 0}, 15 * MIB},
    {"sim:24MiB,granule=64KiB,virtual=off", PLAIN, {.limit_bytes = 0}, 10 * MIB},
    {SIM, PLAIN, {.limit_bytes = 24 * MIB, .kind = LOCH_MEMORY_PINNED}, 12 * MIB},
    {SIM, PLAIN, {.limit_bytes = 24 * MIB, .kind = LOCH_MEMORY_PINNED, .preset = LOCH_POOL_NO_SPLIT}, 12 * MIB},
    {SIM, PLAIN, {.limit_bytes = 24 * MIB, .captures = LOCH_POOL_CAPTURES_SHARED}, 0},
    {SIM, PLAIN, {.limit_bytes = 24 * MIB, .preset = LOCH_POOL_NO_SPLIT}, 12 * MIB},
};

static void sweep(test_round_body *body)
{
    for (size_t i = 0; i < sizeof grounds / sizeof *grounds; i++)
        (void)test_rounds_run(&test_sim_faults, grounds[i].device, body, &grounds[i]);
}

static void a_refused_request_keeps_nothing_after_faults(void **state)
{
    (void)state;
    sweep(ask_for_more);
}

static void a_request_that_meets_a_fault_keeps_idle_memory(void **state)
{
    (void)state;
    sweep(ask_for_what_is_there);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_refused_request_keeps_nothing_after_faults),
        cmocka_unit_test(a_request_that_meets_a_fault_keeps_idle_memory),
    };
    return cmocka_run_group_tests_name("refused requests under faults", tests, test_faults_prepare, NULL);
}

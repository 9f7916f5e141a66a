/* SPDX-License-Identifier: MIT */
/* The limit wrapper: exact to the byte, soft and hard, changed while it is used. */
#include "memory/allocator_state.h"
#include "wrap_fixture.h"

typedef struct alarms {
    atomic_uint calls;
    _Atomic uint64_t bytes;
    _Atomic(loch_allocator *) allocator;
    _Atomic(void *) to_free; /* through that allocator, from inside */
} alarms;

static void alarm_rings(loch_allocator *allocator, uint64_t requested_bytes, void *user)
{
    alarms *rung = user;
    atomic_fetch_add(&rung->calls, 1);
    atomic_store(&rung->bytes, requested_bytes);
    atomic_store(&rung->allocator, allocator);
    CHECK_OK(loch_free(allocator, atomic_exchange(&rung->to_free, NULL)));
}

static loch_allocator *limit_around(loch_allocator *wrapped, size_t hard, size_t soft, alarms *rung)
{
    const loch_limit_options options = {.size = sizeof options,
                                        .hard_bytes = hard,
                                        .soft_bytes = soft,
                                        .above = rung ? alarm_rings : NULL,
                                        .user = rung};
    loch_allocator *limit;
    CHECK_OK(loch_limit_create(wrapped, "limit", &options, &limit));
    loch_allocator_release(wrapped);
    return limit;
}

static void the_hard_limit_is_exact(void **state)
{
    const test_bed *bed = wrap_bed(state);
    loch_allocator *limit = limit_around(wrap_direct(bed), 1000, 0, NULL);
    assert_string_equal(limit->ops.kind, "limit");
    void *a = wrap_alloc(limit, 999), *b = TEST_UNTOUCHED;
    CHECK_FAILS(loch_alloc(limit, 2, &b), LIMIT);
    assert_null(b);
    CHECK_FAILS(loch_alloc(limit, ((size_t)1 << 47) - 1, &b), LIMIT);
    b = wrap_alloc(limit, 1);
    CHECK_FAILS(loch_alloc(limit, 1, &(void *){NULL}), LIMIT);
    loch_stats stats = wrap_stats(limit);
    assert_int_equal(stats.limit_bytes, 1000);
    assert_int_equal(stats.failures, 3);
    assert_int_equal(stats.requested_bytes, 1000);
    CHECK_FAILS(loch_allocator_free_sized(limit, a, 998), INVALID);
    CHECK_FAILS(loch_free(limit, (char *)a + 1), INTERIOR);
    CHECK_FAILS(loch_free(limit, &stats), FOREIGN);
    CHECK_FAILS(loch_alloc(limit, 1, &(void *){NULL}), LIMIT); /* failed frees give nothing back */
    CHECK_OK(loch_allocator_free_sized(limit, a, 999));
    CHECK_FAILS(loch_free(limit, a), DOUBLE_FREE);
    CHECK_FAILS(loch_alloc(limit, 1000, &a), LIMIT);
    a = wrap_alloc(limit, 999);
    CHECK_OK(loch_free(limit, a));
    CHECK_OK(loch_allocator_free_on(limit, b, NULL));
    CHECK_OK(loch_allocator_reset_stats(limit));
    assert_int_equal(wrap_stats(limit).failures, 0);
    assert_int_equal(wrap_stats(limit).peak_requested_bytes, 0);
    loch_allocator_release(limit);
}

static void failures_below_give_their_bytes_back(void **state)
{
    const test_bed *bed = wrap_bed(state);
    loch_allocator *direct = wrap_direct(bed), *fault;
    const loch_fault_options options = {.size = sizeof options, .count = 3};
    CHECK_OK(loch_fault_create(direct, NULL, &options, &fault));
    loch_allocator_release(direct);
    alarms rung = {.calls = 0};
    loch_allocator *limit = limit_around(fault, 100, 50, &rung);
    void *block;
    for (int i = 0; i < 3; i++)
        CHECK_FAILS(loch_alloc(limit, 100, &block), DEVICE_MEMORY);
    assert_int_equal(atomic_load(&rung.calls), 0); /* there was no allocation */
    block = wrap_alloc(limit, 100);
    assert_int_equal(atomic_load(&rung.calls), 1);
    CHECK_OK(loch_free(limit, block));
    loch_allocator_release(limit);
}

static void the_soft_limit_rings_once_a_crossing(void **state)
{
    const test_bed *bed = wrap_bed(state);
    alarms rung = {.calls = 0};
    loch_allocator *limit = limit_around(wrap_direct(bed), 0, 100, &rung);
    void *a = wrap_alloc(limit, 100);
    assert_int_equal(atomic_load(&rung.calls), 0); /* at it is not above it */
    void *b = wrap_alloc(limit, 1);
    assert_int_equal(atomic_load(&rung.calls), 1);
    assert_int_equal(atomic_load(&rung.bytes), 101);
    assert_ptr_equal(atomic_load(&rung.allocator), limit);
    void *c = wrap_alloc(limit, 50);
    assert_int_equal(atomic_load(&rung.calls), 1);
    CHECK_OK(loch_free(limit, c));
    CHECK_OK(loch_free(limit, b));
    b = wrap_alloc(limit, 2);
    assert_int_equal(atomic_load(&rung.calls), 2);
    CHECK_OK(loch_limit_set(limit, 0, 200));
    c = wrap_alloc(limit, 98);
    assert_int_equal(atomic_load(&rung.calls), 2);
    atomic_store(&rung.to_free, a); /* the function may give memory back */
    void *d = wrap_alloc(limit, 1);
    assert_int_equal(atomic_load(&rung.calls), 3);
    assert_int_equal(wrap_stats(limit).requested_bytes, 101);
    CHECK_OK(loch_free(limit, b));
    CHECK_OK(loch_free(limit, c));
    CHECK_OK(loch_free(limit, d));
    loch_allocator_release(limit);
}

static void limits_change_while_blocks_are_out(void **state)
{
    const test_bed *bed = wrap_bed(state);
    loch_allocator *limit = limit_around(wrap_direct(bed), 1000, 0, NULL);
    void *a = wrap_alloc(limit, 600), *b;
    CHECK_OK(loch_limit_set(limit, 500, 0)); /* what is above it stays */
    assert_int_equal(wrap_stats(limit).limit_bytes, 500);
    CHECK_FAILS(loch_alloc(limit, 1, &b), LIMIT);
    CHECK_OK(loch_limit_set(limit, 601, 0));
    b = wrap_alloc(limit, 1);
    CHECK_FAILS(loch_alloc(limit, 1, &(void *){NULL}), LIMIT);
    CHECK_OK(loch_limit_set(limit, 0, 0));
    assert_int_equal(wrap_stats(limit).limit_bytes, 0);
    void *c = wrap_alloc(limit, 100000);
    CHECK_OK(loch_free(limit, a));
    CHECK_OK(loch_free(limit, b));
    CHECK_OK(loch_free(limit, c));
    CHECK_FAILS(loch_limit_set(NULL, 1, 1), INVALID);
    CHECK_FAILS(loch_limit_set(loch_allocator_get_wrapped(limit), 1, 1), INVALID);
    loch_allocator_release(limit);
}

static void bad_arguments_leave_nothing(void **state)
{
    const test_bed *bed = wrap_bed(state);
    loch_allocator *direct = wrap_direct(bed), *limit = TEST_UNTOUCHED;
    const loch_limit_options options = {.size = 2};
    CHECK_FAILS(loch_limit_create(direct, NULL, &options, &limit), INVALID);
    assert_null(limit);
    CHECK_FAILS(loch_limit_create(direct, NULL, NULL, NULL), INVALID);
    CHECK_FAILS(loch_limit_create(NULL, NULL, NULL, &limit), INVALID);
    CHECK_FAILS(loch_limit_create(direct, "", NULL, &limit), INVALID);
    loch_allocator_release(direct);
}

/* An allocator that tells no sizes: the limit keeps its own. */
static void a_limit_keeps_sizes_that_the_wrapped_one_does_not_tell(void **state)
{
    const test_bed *bed = wrap_bed(state);
    wrap_plain plain;
    loch_allocator *limit = limit_around(wrap_plain_create(bed, &plain, LOCH_TRAIT_THREAD_SAFE), 1000, 0, NULL);
    assert_false(loch_allocator_get_traits(limit) & LOCH_TRAIT_TRACKS_SIZES);
    void *a = wrap_alloc(limit, 600), *b;
    CHECK_FAILS(loch_alloc(limit, 401, &b), LIMIT);
    b = wrap_alloc(limit, 400);
    CHECK_FAILS(loch_free(limit, (char *)a + 1), INTERIOR);
    CHECK_FAILS(loch_allocator_free_sized(limit, a, 400), INVALID);
    CHECK_OK(loch_free(limit, a));
    CHECK_FAILS(loch_free(limit, a), DOUBLE_FREE);
    assert_int_equal(plain.bytes, 400); /* the size was passed on */
    CHECK_OK(loch_allocator_free_sized(limit, b, 400));
    assert_int_equal(plain.bytes, 0);
    a = wrap_alloc(limit, 1000);
    if (bed->is_sim) { /* a free that fails below leaves everything as it was */
        const loch_sim_fault fault = {.size = sizeof fault, .call = "device_sync"};
        CHECK_OK(loch_sim_set_fault(bed->device, &fault));
        CHECK_FAILS(loch_free(limit, a), DRIVER);
        CHECK_OK(loch_sim_set_fault(bed->device, NULL));
        CHECK_FAILS(loch_alloc(limit, 1, &b), LIMIT);
    }
    CHECK_OK(loch_free(limit, a));
    loch_allocator_release(limit);
    assert_true(plain.is_destroyed);
}

static void the_smaller_of_two_stacked_limits_holds(void **state)
{
    const test_bed *bed = wrap_bed(state);
    loch_allocator *inner = limit_around(wrap_direct(bed), 1000, 0, NULL);
    loch_allocator_retain(inner);
    loch_allocator *outer = limit_around(inner, 400, 0, NULL);
    assert_int_equal(wrap_stats(outer).limit_bytes, 400);
    CHECK_OK(loch_limit_set(inner, 300, 0));
    assert_int_equal(wrap_stats(outer).limit_bytes, 300);
    CHECK_OK(loch_limit_set(inner, 1000, 0));
    void *a = wrap_alloc(outer, 400), *b = wrap_alloc(inner, 600);
    CHECK_FAILS(loch_alloc(inner, 1, &(void *){NULL}), LIMIT);
    CHECK_OK(loch_free(outer, a));
    CHECK_OK(loch_free(inner, b));
    a = wrap_alloc(inner, 601);
    CHECK_FAILS(loch_alloc(outer, 400, &b), LIMIT); /* the inner one's */
    b = wrap_alloc(outer, 399);                     /* and nothing of that stuck to the outer one */
    CHECK_OK(loch_free(outer, b));
    CHECK_OK(loch_free(inner, a));
    loch_allocator_release(outer);
    loch_allocator_release(inner);
}

/* Two limits share an allocator; each counts, and ends with, its own blocks. */
static void two_limits_around_one_allocator_count_their_own(void **state)
{
    const test_bed *bed = wrap_bed(state);
    loch_allocator *direct = wrap_direct(bed);
    loch_allocator_retain(direct);
    loch_allocator *first = limit_around(direct, 100, 0, NULL);
    loch_allocator_retain(direct);
    loch_allocator *second = limit_around(direct, 100, 0, NULL);
    void *a = wrap_alloc(first, 100), *b = wrap_alloc(second, 100), *c = wrap_alloc(direct, 100);
    CHECK_FAILS(loch_alloc(first, 1, &(void *){NULL}), LIMIT);
    CHECK_OK(loch_free(second, b));
    loch_allocator_release(second); /* has no blocks, though the allocator around which it is has */
    loch_allocator_release(first);
    CHECK_OK(loch_free(first, a));
    CHECK_OK(loch_free(direct, c));
    loch_allocator_release(direct);
}

/* --- waiting --- */

static void *free_it(void *user)
{
    void **pair = user;
    CHECK_OK(loch_free(pair[0], pair[1]));
    return NULL;
}

static void a_free_lets_a_waiter_in(void **state)
{
    const test_bed *bed = wrap_bed(state);
    loch_allocator *limit = limit_around(wrap_direct(bed), 100, 0, NULL);
    for (int round = 0; round < 20; round++) {
        void *pair[2] = {limit, wrap_alloc(limit, 100)}, *block;
        pthread_t thread;
        assert_int_equal(pthread_create(&thread, NULL, free_it, pair), 0);
        const loch_request request = {.size = sizeof request, .bytes = 100, .timeout_ns = 20000000000u};
        loch_status status = LOCH_E_LIMIT;
        while (status == LOCH_E_LIMIT)
            status = loch_allocator_alloc(limit, &request, &block); /* the other is on its way */
        CHECK_OK(status);
        pthread_join(thread, NULL);
        CHECK_OK(loch_free(limit, block));
    }
    loch_allocator_release(limit);
}

/* --- threads --- */

#define THREADS 8

typedef struct worker {
    loch_allocator *limit;
    uint64_t seed;
    _Atomic int64_t *in_use, *highest;
    uint64_t refused;
    const char *failed;
} worker;

static void *work(void *user)
{
    worker *it = user;
    test_random random = {it->seed};
    void *blocks[8] = {NULL};
    size_t sizes[8] = {0};
    for (int round = 0; round < 1000; round++) {
        const size_t at = test_random_below(&random, 8);
        if (blocks[at]) {
            atomic_fetch_sub(it->in_use, (int64_t)sizes[at]);
            const loch_status status = round % 2 ? loch_free(it->limit, blocks[at])
                                                 : loch_allocator_free_sized(it->limit, blocks[at], sizes[at]);
            if (status != LOCH_OK) it->failed = "free";
            blocks[at] = NULL;
            continue;
        }
        sizes[at] = 1 + test_random_below(&random, 500);
        const loch_status status = loch_alloc(it->limit, sizes[at], &blocks[at]);
        it->refused += status == LOCH_E_LIMIT;
        if (status != LOCH_OK && status != LOCH_E_LIMIT) it->failed = "alloc";
        if (status != LOCH_OK) continue;
        const int64_t now = atomic_fetch_add(it->in_use, (int64_t)sizes[at]) + (int64_t)sizes[at];
        int64_t seen = atomic_load(it->highest);
        while (now > seen && !atomic_compare_exchange_weak(it->highest, &seen, now))
            continue;
    }
    for (size_t i = 0; i < 8; i++) {
        if (blocks[i]) atomic_fetch_sub(it->in_use, (int64_t)sizes[i]);
        if (loch_free(it->limit, blocks[i]) != LOCH_OK) it->failed = "free";
    }
    return NULL;
}

static loch_allocator *locked_plain(const test_bed *bed, wrap_plain *plain)
{
    loch_allocator *base = wrap_plain_create(bed, plain, 0), *locked;
    CHECK_OK(loch_locked_create(base, NULL, &locked));
    loch_allocator_release(base);
    return locked;
}

static void exact_under_eight_threads(void **state)
{
    const test_bed *bed = wrap_bed(state);
    const uint64_t seed = test_seed(61);
    for (int tracked = 0; tracked < 2; tracked++) {
        wrap_plain plain;
        alarms rung = {.calls = 0};
        loch_allocator *limit = limit_around(tracked ? wrap_direct(bed) : locked_plain(bed, &plain), 1500, 700, &rung);
        _Atomic int64_t in_use = 0, highest = 0;
        worker workers[THREADS];
        for (size_t i = 0; i < THREADS; i++)
            workers[i] = (worker){.limit = limit, .seed = seed + i, .in_use = &in_use, .highest = &highest};
        TEST_THREADS_RUN(work, workers);
        uint64_t refused = 0;
        for (size_t i = 0; i < THREADS; i++) {
            if (workers[i].failed) fail_msg("thread %zu: %s", i, workers[i].failed);
            refused += workers[i].refused;
        }
        assert_true(atomic_load(&highest) <= 1500);
        assert_true(refused > 0);
        assert_int_equal(wrap_stats(limit).failures, refused);
        const unsigned rung_before = atomic_load(&rung.calls);
        assert_true(rung_before > 0);
        void *whole = wrap_alloc(limit, 1500); /* every byte has come back */
        assert_int_equal(atomic_load(&rung.calls), rung_before + 1);
        CHECK_FAILS(loch_alloc(limit, 1, &(void *){NULL}), LIMIT);
        CHECK_OK(loch_free(limit, whole));
        loch_allocator_release(limit);
    }
}

/* --- failing host allocations --- */

static loch_status scenario(const void *user)
{
    const test_bed *bed = user;
    wrap_plain plain = {.device = bed->device};
    const loch_allocator_ops ops = {.size = sizeof ops,
                                    .kind = "plain",
                                    .alloc = wrap_plain_alloc,
                                    .free = wrap_plain_free,
                                    .destroy = wrap_plain_destroy,
                                    .find = wrap_plain_find,
                                    .walk = wrap_plain_walk,
                                    .get_stats = wrap_plain_get_stats};
    const loch_limit_options options = {.size = sizeof options, .hard_bytes = 1000};
    loch_allocator *base = NULL, *limit = NULL;
    void *a = NULL, *b = NULL;
    loch_status status = loch_allocator_create(bed->device, "plain", &ops, &plain, &base);
    if (status == LOCH_OK) status = loch_limit_create(base, NULL, &options, &limit);
    if (status == LOCH_OK) status = loch_alloc(limit, 600, &a);
    if (status == LOCH_OK) status = loch_alloc(limit, 400, &b);
    if (limit) {
        TEST_BACK(loch_free(limit, a));
        TEST_BACK(loch_free(limit, b));
        if (plain.allocs != plain.frees) test_kept = "blocks below";
    }
    loch_allocator_release(limit);
    loch_allocator_release(base);
    return status;
}

static void a_limit_survives_failing_host_memory(void **state)
{
    test_host_sweep(scenario, *state);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_hard_limit_is_exact),
        cmocka_unit_test(failures_below_give_their_bytes_back),
        cmocka_unit_test(the_soft_limit_rings_once_a_crossing),
        cmocka_unit_test(limits_change_while_blocks_are_out),
        cmocka_unit_test(bad_arguments_leave_nothing),
        cmocka_unit_test(a_limit_keeps_sizes_that_the_wrapped_one_does_not_tell),
        cmocka_unit_test(the_smaller_of_two_stacked_limits_holds),
        cmocka_unit_test(two_limits_around_one_allocator_count_their_own),
        cmocka_unit_test(a_free_lets_a_waiter_in),
        cmocka_unit_test(exact_under_eight_threads),
        cmocka_unit_test(a_limit_survives_failing_host_memory),
    };
    return WRAP_RUN(tests);
}

/* SPDX-License-Identifier: MIT */
/* What loch_allocator_reset_stats resets: the figures as that allocator shows them. Around a pool stand two wrappers of
 * each kind; a reset of one leaves the figures of the other and of the pool. So does a reset in a family of pools. */
#include "pool_fixture.h"

#define MIB TEST_MIB

typedef loch_status make_wrapper(loch_allocator *wrapped, loch_allocator **out);

static loch_status make_limit(loch_allocator *wrapped, loch_allocator **out)
{
    const loch_limit_options options = {.size = sizeof options, .hard_bytes = 4 * TEST_GIB};
    return loch_limit_create(wrapped, NULL, &options, out);
}

static loch_status make_tracking(loch_allocator *wrapped, loch_allocator **out)
{
    return loch_tracking_create(wrapped, NULL, NULL, out);
}

static loch_status make_guard(loch_allocator *wrapped, loch_allocator **out)
{
    return loch_redzone_create(wrapped, NULL, NULL, out);
}

static loch_status make_fault(loch_allocator *wrapped, loch_allocator **out)
{
    return loch_fault_create(wrapped, NULL, NULL, out);
}

static loch_status make_locked(loch_allocator *wrapped, loch_allocator **out)
{
    return loch_locked_create(wrapped, NULL, out);
}

static loch_status make_logging(loch_allocator *wrapped, loch_allocator **out)
{
    const loch_logging_options options = {.size = sizeof options, .path = "/dev/null"};
    return loch_logging_create(wrapped, NULL, &options, out);
}

static make_wrapper *const makers[] = {make_limit, make_tracking, make_guard, make_fault, make_locked, make_logging};

/* One failure, two allocations and one free, through `allocator`. */
static void *use(loch_allocator *allocator)
{
    void *kept, *block = TEST_UNTOUCHED;
    CHECK_OK(loch_alloc(allocator, 10000, &kept));
    CHECK_OK(loch_alloc(allocator, 5 * MIB, &block));
    CHECK_OK(loch_free(allocator, block));
    CHECK_FAILS_SET(loch_alloc(allocator, TEST_GIB, &block), POOL_SHORT);
    return kept;
}

static void expect_used(loch_allocator *allocator)
{
    const loch_stats stats = pool_stats(allocator);
    assert_int_equal(stats.allocs, 2);
    assert_int_equal(stats.frees, 1);
    assert_int_equal(stats.failures, 1);
    assert_true(stats.peak_requested_bytes >= 5 * MIB + 10000);
    assert_true(stats.largest_bytes >= 5 * MIB);
}

static void expect_reset(loch_allocator *allocator)
{
    const loch_stats stats = pool_stats(allocator);
    assert_int_equal(stats.allocs, 0);
    assert_int_equal(stats.frees, 0);
    assert_int_equal(stats.failures, 0);
    assert_int_equal(stats.retries, 0);
    assert_int_equal(stats.largest_bytes, 0);
    assert_int_equal(stats.blocks, 1); /* in use stays */
    assert_true(stats.requested_bytes >= 10000 && stats.requested_bytes < 20000);
    assert_int_equal(stats.peak_requested_bytes, stats.requested_bytes);
}

static void a_reset_of_a_wrapper_leaves_the_others(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof makers / sizeof *makers; i++) {
        loch_device *device = sim_open("sim:64MiB,backed");
        loch_allocator *pool = pool_make(device, NULL), *wrapper, *outer;
        CHECK_OK(makers[i](pool, &wrapper));
        CHECK_OK(makers[i](wrapper, &outer));
        void *kept = use(outer);
        expect_used(outer);
        expect_used(wrapper);
        CHECK_OK(loch_allocator_reset_stats(outer)); /* the outermost: what is inside stays */
        expect_reset(outer);
        expect_used(wrapper);
        expect_used(pool);
        CHECK_OK(loch_allocator_reset_stats(pool)); /* the pool: what is around it stays */
        expect_reset(pool);
        expect_reset(outer);
        expect_used(wrapper);
        CHECK_OK(loch_allocator_reset_stats(wrapper));
        expect_reset(wrapper);
        CHECK_OK(loch_free(outer, kept));
        loch_allocator_release(outer);
        loch_allocator_release(wrapper);
        loch_allocator_release(pool);
        loch_device_release(device);
    }
}

static void a_reset_in_a_family_leaves_the_relatives(void **state)
{
    (void)state;
    for (int kind = LOCH_CHILD_QUOTA; kind <= LOCH_CHILD_RANGE; kind++) {
        loch_device *device = sim_open("sim:256MiB,backed");
        loch_allocator *parent = pool_make(device, NULL), *child, *sibling;
        const loch_child_options options = {
            .size = sizeof options, .kind = (loch_child_kind)kind, .limit_bytes = 32 * MIB};
        CHECK_OK(loch_pool_create_child(parent, "child", &options, &child));
        CHECK_OK(loch_pool_create_child(parent, "sibling", &options, &sibling));
        const loch_stats before = pool_stats(parent);
        void *kept = use(child), *other = use(sibling);
        CHECK_OK(loch_allocator_reset_stats(child));
        expect_reset(child);
        expect_used(sibling);
        const loch_stats after = pool_stats(parent);
        assert_int_equal(after.allocs, before.allocs); /* a child's blocks are none of its parent's */
        assert_int_equal(after.peak_requested_bytes, before.peak_requested_bytes);
        CHECK_OK(loch_allocator_reset_stats(parent));
        assert_int_equal(pool_stats(parent).allocs, 0);
        expect_used(sibling);
        CHECK_OK(loch_free(child, kept));
        CHECK_OK(loch_free(sibling, other));
        loch_allocator_release(child);
        loch_allocator_release(sibling);
        loch_allocator_release(parent);
        loch_device_release(device);
    }
}

/* What has one beginning for all. */
static void the_peak_of_reserved_bytes_has_one_beginning_for_all(void **state)
{
    (void)state;
    loch_device *device = sim_open("sim:64MiB,backed");
    loch_allocator *pool = pool_make(device, NULL), *wrapper;
    CHECK_OK(loch_locked_create(pool, NULL, &wrapper));
    CHECK_OK(loch_free(wrapper, pool_alloc(wrapper, 20 * MIB)));
    (void)pool_trim(pool, 0);
    assert_true(pool_info(pool).peak_reserved_bytes >= 20 * MIB);
    CHECK_OK(loch_allocator_reset_stats(wrapper));
    assert_int_equal(pool_info(pool).peak_reserved_bytes, 0);
    assert_true(pool_stats(pool).peak_reserved_bytes >= 20 * MIB);
    loch_allocator_release(wrapper);
    pool_end(pool, device);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        POOL_TEST(a_reset_of_a_wrapper_leaves_the_others),
        POOL_TEST(a_reset_in_a_family_leaves_the_relatives),
        POOL_TEST(the_peak_of_reserved_bytes_has_one_beginning_for_all),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

/* SPDX-License-Identifier: MIT */
/* Children beside memory that moves. The comment of each test says what goes wrong in other systems. test_child.c has
 * what does not move (a_child_never_overlaps_a_live_block, limits_do_not_underflow, children_end_in_any_order). */
#include "unit/memory/pool/crowd_fixture.h"

/* No figure is larger than what there can be: it would have fallen below zero. */
static void expect_sane(loch_allocator *pool, size_t most)
{
    const loch_pool_info info = pool_info(pool);
    const loch_stats stats = pool_stats(pool);
    assert_true(info.free_bytes <= most && info.largest_free_bytes <= info.free_bytes && info.used_bytes <= most);
    assert_true(info.limit_bytes <= most && info.reserved_bytes <= most);
    assert_true(stats.cached_bytes <= most && stats.requested_bytes <= most && stats.limit_bytes <= most);
}

/* A child that takes the top of its parent without a look at the blocks there shares memory with them, and the parent's
 * limit less its use falls below zero: at the sizes at which that was seen. */
static void a_child_beside_a_large_block_does_not_overlap_it(void **state)
{
    (void)state;
    pool_bench s = bench_open("sim:1GiB", 400 * MIB, 0);
    loch_allocator *none = TEST_UNTOUCHED;
    void *block = pool_alloc(s.pool, 390 * MIB);
    for (size_t kind = LOCH_CHILD_QUOTA; kind <= LOCH_CHILD_RANGE; kind++) {
        const size_t minimum = kind == LOCH_CHILD_QUOTA ? 200 * MIB : 0;
        CHECK_FAILS_SET(child_try(s.pool, (loch_child_kind)kind, minimum, 200 * MIB, NULL, &none), POOL_SHORT);
        expect_sane(s.pool, 400 * MIB);
    }
    CHECK_OK(loch_free(s.pool, block));
    loch_allocator *child = child_range(s.pool, 200 * MIB), *both[] = {s.pool, child};
    void *inside = pool_alloc(child, 200 * MIB), *beside = pool_alloc(s.pool, 198 * MIB);
    family_expect_whole(both, 2);
    expect_sane(s.pool, 400 * MIB);
    expect_sane(child, 200 * MIB);
    CHECK_OK(loch_free(child, inside));
    CHECK_OK(loch_free(s.pool, beside));
    loch_allocator_release(child);
    bench_close(&s);
}

/* Children that are given scratch memory out of their own part have a limit below zero when they are smaller than that:
 * here they work at any size. */
static void small_children_do_not_underflow_limits(void **state)
{
    (void)state;
    static const size_t sizes[] = {16 * KIB, 64 * KIB, MIB, 63 * MIB, 64 * MIB - 1, 64 * MIB};
    pool_bench s = bench_open("sim:1GiB,granule=64KiB", 512 * MIB, 0);
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        for (int is_quota = 0; is_quota < 2; is_quota++) {
            loch_allocator *child = is_quota ? child_quota(s.pool, sizes[i], sizes[i]) : child_range(s.pool, sizes[i]);
            expect_sane(child, sizes[i] + 64 * KIB);
            const size_t all = is_quota ? sizes[i] & ~(64 * KIB - 1) : pool_info(child).free_bytes;
            void *block = NULL, *none;
            if (all) block = pool_alloc(child, all);
            CHECK_FAILS_SET(loch_alloc(child, 64 * KIB, &none), POOL_SHORT);
            expect_sane(child, sizes[i] + 64 * KIB);
            expect_sane(s.pool, 512 * MIB);
            CHECK_OK(loch_free(child, block));
            loch_allocator_release(child);
        }
    }
    bench_close(&s);
}

/* Children that have to end in the reverse order of their making leave a broken parent in any other, and their handles
 * call an allocator that is no more: here buffers that may move outlive children, which end in any order. */
static void children_end_before_their_buffers(void **state)
{
    (void)state;
    static const size_t orders[6][3] = {{0, 1, 2}, {0, 2, 1}, {1, 0, 2}, {1, 2, 0}, {2, 0, 1}, {2, 1, 0}};
    for (size_t o = 0; o < 6; o++) {
        pool_bench s = bench_open("sim:256MiB,backed,granule=64KiB", 32 * MIB, 0);
        loch_allocator *children[] = {child_range(s.pool, 3 * MIB), child_quota(s.pool, MIB, 8 * MIB),
                                      child_range(s.pool, 16 * KIB)};
        loch_buffer *buffers[3];
        for (uint32_t i = 0; i < 3; i++) {
            pool_bench of_child = s;
            of_child.pool = children[i];
            buffers[i] = make(&of_child, 9 * KIB, s.streams[i]);
            CHECK_OK(loch_buffer_fill(buffers[i], &i, sizeof i, s.streams[i]));
        }
        for (size_t i = 0; i < 3; i++) {
            loch_allocator_release(children[orders[o][i]]);
            expect_sane(s.pool, 32 * MIB);
        }
        void *large = pool_alloc(s.pool, 20 * MIB); /* the parent works on */
        for (size_t i = 0; i < 3; i++) {
            loch_buffer_release(buffers[orders[(o + 2) % 6][i]]);
            pool_expect_whole(s.pool);
        }
        CHECK_OK(loch_free(s.pool, large));
        assert_int_equal(pool_info(s.pool).used_bytes, 0);
        bench_close(&s);
    }
}

int main(void)
{
    if (test_heap_install() != LOCH_OK) return 1;
    const struct CMUnitTest tests[] = {
        TENSOR_TEST(a_child_beside_a_large_block_does_not_overlap_it),
        TENSOR_TEST(small_children_do_not_underflow_limits),
        TENSOR_TEST(children_end_before_their_buffers),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

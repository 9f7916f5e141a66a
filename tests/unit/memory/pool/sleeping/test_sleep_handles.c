/* SPDX-License-Identifier: MIT */
/* The handles of a pool that wakes: those under one block are joined, so that a wake makes few driver calls. Memory
 * still goes back, tags still sleep alone, and growable blocks still shrink. */
#include "sleep_fixture.h"

#define CELL (2 * MIB)
#define JOINED (16 * MIB) /* largest handle that a wake makes under one block */
#define DEVICE "sim:512MiB,granule=2MiB,backed"

/* Makes the pool hold `count` free handles of one cell each, side by side. */
static void bed_split(const bed *b, size_t count)
{
    void *cells[64];
    assert_true(count <= 64);
    for (size_t i = 0; i < count; i++)
        cells[i] = pool_alloc(b->pool, CELL);
    for (size_t i = 0; i < count; i++)
        CHECK_OK(loch_free(b->pool, cells[i]));
    assert_int_equal(pool_info(b->pool).handles, count);
}

/* Wakes the pool. Returns the number of handles that the driver made. */
static uint64_t count_created(const bed *b)
{
    const uint64_t before = test_call_count(b->device, "handle_create");
    wake(b);
    return test_call_count(b->device, "handle_create") - before;
}

static void free_all(bed *b)
{
    for (size_t i = 0; i < b->count; i++)
        if (b->pieces[i].address) bed_give(b, i);
}

/* Small blocks that live through sleeps share their handle with those that come after a wake. */
static void small_blocks_stay_together_after_a_wake(void **state)
{
    (void)state;
    bed b = bed_open(DEVICE, NULL);
    bed_take(&b, 16 * TEST_KIB, 0, NULL);
    bed_take(&b, MIB, 0, NULL); /* the other half of the handle */
    for (int round = 0; round < 4; round++) {
        assert_int_equal(put_to_sleep(&b, LOCH_SLEEP_HOST, 0), CELL);
        wake(&b);
        bed_expect(&b);
        bed_take(&b, 16 * TEST_KIB, 0, NULL);
        assert_int_equal(pool_info(b.pool).reserved_bytes, CELL);
        pool_expect_whole(b.pool);
    }
    free_all(&b);
    assert_int_equal(pool_trim(b.pool, 0), CELL);
    bed_close(&b);
}

static void handles_under_a_block_are_joined(void **state)
{
    (void)state;
    const loch_sleep_contents ways[] = {LOCH_SLEEP_PINNED, LOCH_SLEEP_HOST, LOCH_SLEEP_FILE};
    for (size_t way = 0; way < 3; way++) {
        bed b = bed_open(DEVICE, NULL);
        bed_split(&b, 32);
        for (size_t i = 0; i < 2; i++)
            bed_take(&b, 32 * MIB, 0, NULL);
        assert_int_equal(pool_info(b.pool).handles, 32);
        for (int round = 0; round < 2; round++) {
            assert_int_equal(put_to_sleep(&b, ways[way], 0), 64 * MIB);
            assert_int_equal(pool_info(b.pool).asleep_bytes, 64 * MIB);
            assert_int_equal(count_created(&b), 64 * MIB / JOINED);
            assert_int_equal(pool_info(b.pool).handles, 64 * MIB / JOINED);
            assert_int_equal(pool_info(b.pool).reserved_bytes, 64 * MIB);
            assert_int_equal(sim_stats(b.device).physical_bytes, 64 * MIB);
            bed_expect(&b);
        }
        for (size_t i = 2; i-- > 0;) { /* each block gives back what it has */
            bed_give(&b, i);
            pool_trim(b.pool, 0);
            assert_int_equal(pool_info(b.pool).reserved_bytes, i * 32 * MIB);
            pool_expect_whole(b.pool);
        }
        bed_close(&b);
    }
}

/* Blocks of odd sizes share handles with their neighbours. A block that is freed gives back all but the memory that it
 * shares: two cells at most at each end. */
static void a_freed_block_keeps_little_of_its_neighbours(void **state)
{
    (void)state;
    bed b = bed_open(DEVICE, NULL);
    bed_split(&b, 60);
    for (size_t i = 0; i < 5; i++)
        bed_take(&b, 23 * MIB + 300 * KIB * i, 0, NULL);
    const size_t reserved = pool_info(b.pool).reserved_bytes;
    put_to_sleep(&b, LOCH_SLEEP_HOST, 0);
    assert_true(count_created(&b) <= 20);
    bed_expect(&b);
    bed_give(&b, 2);
    pool_trim(b.pool, 0);
    assert_true(pool_info(b.pool).reserved_bytes <= reserved - 23 * MIB + 4 * CELL);
    pool_expect_whole(b.pool);
    bed_take(&b, 23 * MIB, 0, NULL);
    bed_expect(&b);
    free_all(&b);
    pool_trim(b.pool, 0);
    assert_int_equal(pool_info(b.pool).reserved_bytes, 0);
    bed_close(&b);
}

/* Handles with several blocks are joined in pairs. */
static void handles_under_several_blocks_stay_small(void **state)
{
    (void)state;
    bed b = bed_open(DEVICE, NULL);
    for (size_t i = 0; i < 16; i++)
        bed_take(&b, CELL, red, NULL);
    assert_int_equal(pool_info(b.pool).handles, 16);
    for (int round = 0; round < 2; round++) {
        put_to_sleep(&b, LOCH_SLEEP_HOST, round ? red : 0);
        assert_int_equal(count_created(&b), 8);
        bed_expect(&b);
    }
    for (size_t i = 0; i < 16; i += 4) { /* one pair of two */
        bed_give(&b, i);
        bed_give(&b, i + 1);
    }
    pool_trim(b.pool, 0);
    assert_int_equal(pool_info(b.pool).reserved_bytes, 16 * MIB);
    bed_expect(&b);
    bed_close(&b);
}

/* Handles of different tags stay apart, so that each tag still sleeps alone. */
static void each_tag_still_sleeps_alone(void **state)
{
    (void)state;
    bed b = bed_open(DEVICE, NULL);
    for (size_t i = 0; i < 12; i++)
        bed_take(&b, CELL, i % 2 ? red : blue, NULL);
    put_to_sleep(&b, LOCH_SLEEP_HOST, 0);
    wake(&b);
    assert_int_equal(put_to_sleep(&b, LOCH_SLEEP_HOST, red), 6 * CELL);
    assert_int_equal(put_to_sleep(&b, LOCH_SLEEP_HOST, blue), 6 * CELL); /* in a nap of its own */
    assert_int_equal(count_created(&b), 12);
    bed_expect(&b);
    bed_close(&b);
}

/* A program that chose the size of handles gets it, and a growable block gives back what it no longer needs. */
static void chosen_and_growable_handles_stay(void **state)
{
    (void)state;
    const loch_pool_options chosen = {.size = sizeof chosen, .handle_bytes = CELL};
    bed b = bed_open(DEVICE, &chosen);
    bed_take(&b, 32 * MIB, 0, NULL);
    put_to_sleep(&b, LOCH_SLEEP_HOST, 0);
    assert_int_equal(count_created(&b), 16);
    bed_expect(&b);
    bed_close(&b);
    b = bed_open(DEVICE, NULL);
    bed_grow(&b, 32 * MIB, 64 * MIB, 0);
    const size_t handles = pool_info(b.pool).handles;
    assert_true(handles > 2);
    put_to_sleep(&b, LOCH_SLEEP_HOST, 0);
    assert_int_equal(count_created(&b), handles);
    bed_expect(&b);
    CHECK_OK(loch_pool_resize_growable(b.pool, b.pieces[0].address, CELL));
    CHECK_OK(loch_device_sync(b.device));
    pool_trim(b.pool, 0);
    assert_int_equal(pool_info(b.pool).reserved_bytes, CELL);
    bed_close(&b);
}

/* Free memory of a pool of graphs comes back in few handles, too. */
static void free_memory_of_graphs_is_joined(void **state)
{
    (void)state;
    const loch_pool_options shared = {.size = sizeof shared, .captures = LOCH_POOL_CAPTURES_SHARED};
    bed b = bed_open(DEVICE, &shared);
    bed_split(&b, 32);
    put_to_sleep(&b, LOCH_SLEEP_HOST, 0);
    assert_int_equal(count_created(&b), 64 * MIB / JOINED);
    assert_int_equal(pool_info(b.pool).reserved_bytes, 64 * MIB);
    bed_take(&b, 40 * MIB, 0, NULL);
    assert_int_equal(pool_info(b.pool).reserved_bytes, 64 * MIB);
    bed_expect(&b);
    free_all(&b);
    for (size_t i = 0; i < 2; i++)
        loch_stream_close(b.streams[i]);
    pool_expect_whole(b.pool);
    loch_allocator_release(b.pool); /* only then does free memory go back */
    test_end_defaults();
    assert_int_equal(sim_stats(b.device).physical_bytes, 0);
    loch_device_release(b.device);
}

/* A wake that fails at any handle leaves the pool asleep and whole. Blocks that are freed then do not come back. */
static void a_wake_that_fails_leaves_joined_handles_asleep(void **state)
{
    (void)state;
    for (uint64_t after = 0; after < 4; after++)
        for (int frees = 0; frees < 2; frees++) {
            bed b = bed_open(DEVICE, NULL);
            bed_split(&b, 32);
            for (size_t i = 0; i < 2; i++)
                bed_take(&b, 32 * MIB, 0, NULL);
            put_to_sleep(&b, LOCH_SLEEP_HOST, 0);
            const loch_sim_fault fault = {.size = sizeof fault,
                                          .call = after % 2 ? "map" : "handle_create",
                                          .after = after,
                                          .status = LOCH_E_DRIVER};
            CHECK_OK(loch_sim_set_fault(b.device, &fault));
            CHECK_FAILS(loch_pool_wake(b.pool, NULL), DRIVER);
            CHECK_OK(loch_sim_set_fault(b.device, NULL));
            pool_expect_whole(b.pool);
            assert_int_equal(pool_info(b.pool).asleep_bytes, 64 * MIB);
            assert_int_equal(sim_stats(b.device).physical_bytes, 0);
            if (frees) bed_give(&b, 1);
            assert_int_equal(count_created(&b), (frees ? 32 : 64) * MIB / JOINED);
            bed_expect(&b);
            free_all(&b);
            pool_trim(b.pool, 0);
            assert_int_equal(pool_info(b.pool).reserved_bytes, 0);
            bed_close(&b);
        }
}

int main(void)
{
    if (test_heap_install() != LOCH_OK || test_faulty_register() != LOCH_OK) return 1;
    if (loch_tag_create("red", &red) != LOCH_OK || loch_tag_create("blue", &blue) != LOCH_OK) return 1;
    const struct CMUnitTest tests[] = {
        POOL_TEST(small_blocks_stay_together_after_a_wake),
        POOL_TEST(handles_under_a_block_are_joined),
        POOL_TEST(a_freed_block_keeps_little_of_its_neighbours),
        POOL_TEST(handles_under_several_blocks_stay_small),
        POOL_TEST(each_tag_still_sleeps_alone),
        POOL_TEST(chosen_and_growable_handles_stay),
        POOL_TEST(free_memory_of_graphs_is_joined),
        POOL_TEST(a_wake_that_fails_leaves_joined_handles_asleep),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

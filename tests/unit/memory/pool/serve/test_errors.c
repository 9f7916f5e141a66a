/* SPDX-License-Identifier: MIT */
/* Wrong calls to a pool: each gets its own answer, and none changes anything. */
#include "pool_fixture.h"

#define SIM "sim:256MiB,granule=64KiB,backed"
#define RAW "sim:256MiB,backed,virtual=off"

/* What a wrong call must not change. */
typedef struct snapshot {
    loch_stats stats;
    loch_pool_info info;
} snapshot;

static snapshot snapshot_take(loch_allocator *pool)
{
    return (snapshot){pool_stats(pool), pool_info(pool)};
}

static void snapshot_expect(loch_allocator *pool, const snapshot *before)
{
    const snapshot now = snapshot_take(pool);
    pool_expect_whole(pool);
    assert_memory_equal(&now.info, &before->info, sizeof now.info);
    assert_memory_equal(&now.stats, &before->stats, sizeof now.stats);
}

#define WRONG(pool, call, set)                                                                                         \
    do {                                                                                                               \
        const snapshot before = snapshot_take(pool);                                                                   \
        CHECK_FAILS_SET(call, set);                                                                                    \
        snapshot_expect(pool, &before);                                                                                \
    } while (0)

static const size_t sizes[] = {1, 64, 100, 4096, 8192, 8193, 20000, 256 << 10, (256 << 10) + 1, 3 << 20, 20 << 20};
#define SIZES (sizeof sizes / sizeof *sizes)

static const char *const devices[] = {"cpu", SIM, RAW};
#define DEVICES (sizeof devices / sizeof *devices)

static void a_double_free_right_away_is_told(void **state)
{
    (void)state;
    for (size_t d = 0; d < DEVICES; d++) {
        loch_device *device = sim_open(devices[d]);
        loch_allocator *pool = pool_make(device, NULL);
        for (size_t i = 0; i < SIZES; i++) {
            void *block = pool_alloc(pool, sizes[i]), *other = pool_alloc(pool, sizes[i]);
            CHECK_OK(loch_free(pool, block));
            WRONG(pool, loch_free(pool, block), TEST_SET(DOUBLE_FREE));
            WRONG(pool, loch_allocator_free_sized(pool, block, sizes[i]), TEST_SET(DOUBLE_FREE));
            loch_block found = {.size = sizeof found};
            WRONG(pool, loch_allocator_find(pool, block, &found), TEST_SET(DOUBLE_FREE));
            CHECK_OK(loch_free(pool, other));
        }
        pool_end(pool, device);
    }
}

/* The block has become part of a larger free one, or the memory has gone. */
static void a_double_free_of_merged_or_returned_memory_is_told(void **state)
{
    (void)state;
    for (size_t d = 0; d < DEVICES; d++) {
        loch_device *device = sim_open(devices[d]);
        loch_allocator *pool = pool_make(device, NULL);
        char *blocks[3 * SIZES], *keeper = pool_alloc(pool, 3 * TEST_MIB);
        for (size_t i = 0; i < 3 * SIZES; i++)
            blocks[i] = pool_alloc(pool, sizes[i / 3]);
        for (size_t i = 0; i < 3 * SIZES; i++)
            CHECK_OK(loch_free(pool, blocks[i]));
        for (size_t i = 0; i < 3 * SIZES; i++)
            WRONG(pool, loch_free(pool, blocks[i]), TEST_SET(DOUBLE_FREE) | TEST_SET(FOREIGN));
        for (size_t i = 3 * SIZES - 6; i < 3 * SIZES; i++) /* large ones are known as long as nothing lies there */
            WRONG(pool, loch_free(pool, blocks[i]), TEST_SET(DOUBLE_FREE));
        (void)pool_trim(pool, 0);
        for (size_t i = 0; i < 3 * SIZES; i++)
            WRONG(pool, loch_free(pool, blocks[i]), TEST_SET(DOUBLE_FREE) | TEST_SET(FOREIGN));
        CHECK_OK(loch_free(pool, keeper));
        WRONG(pool, loch_free(pool, keeper), TEST_SET(DOUBLE_FREE));
        pool_end(pool, device);
    }
}

/* It waits for a stream, and has waited. */
static void a_double_free_of_a_block_that_waits_is_told(void **state)
{
    (void)state;
    loch_device *device = sim_open(SIM ",clock=stepped,lag=1000");
    loch_stream *a = sim_stream(device, LOCH_STREAM_INDEPENDENT), *b = sim_stream(device, LOCH_STREAM_INDEPENDENT);
    loch_allocator *pool = pool_make(device, NULL);
    for (size_t i = 0; i < SIZES; i++) {
        char *block = pool_alloc_on(pool, sizes[i], a);
        CHECK_OK(loch_allocator_record_use(pool, block, b));
        CHECK_OK(sim_reads(b, block, sizes[i]));
        CHECK_OK(loch_free(pool, block));
        WRONG(pool, loch_free(pool, block), TEST_SET(DOUBLE_FREE));
        CHECK_OK(loch_device_sync(device));
        (void)pool_trim(pool, TEST_GIB); /* collects it, and keeps all */
        WRONG(pool, loch_free(pool, block), TEST_SET(DOUBLE_FREE) | TEST_SET(FOREIGN));
        if (sizes[i] > POOL_SMALL_MAX) WRONG(pool, loch_free(pool, block), TEST_SET(DOUBLE_FREE));
    }
    loch_stream_close(a);
    loch_stream_close(b);
    pool_end_sim(pool, device);
}

static void an_address_inside_a_block_is_told(void **state)
{
    (void)state;
    for (size_t d = 0; d < DEVICES; d++) {
        loch_device *device = sim_open(devices[d]);
        loch_allocator *pool = pool_make(device, NULL);
        for (size_t i = 1; i < SIZES; i++) {
            char *block = pool_alloc(pool, sizes[i]);
            const size_t offsets[] = {1, sizes[i] / 2, sizes[i] - 1};
            for (size_t k = 0; k < 3; k++) {
                loch_block found = {.size = sizeof found};
                WRONG(pool, loch_free(pool, block + offsets[k]), TEST_SET(INTERIOR));
                WRONG(pool, loch_allocator_find(pool, block + offsets[k], &found), TEST_SET(INTERIOR));
                WRONG(pool, loch_allocator_record_use(pool, block + offsets[k], NULL), TEST_SET(INTERIOR));
                void *out = TEST_UNTOUCHED;
                WRONG(pool, loch_allocator_realloc(pool, block + offsets[k], 7, NULL, &out), TEST_SET(INTERIOR));
                assert_null(out);
            }
            CHECK_OK(loch_allocator_free_sized(pool, block, sizes[i]));
        }
        pool_end(pool, device);
    }
}

static void a_foreign_address_is_told(void **state)
{
    (void)state;
    for (size_t d = 0; d < DEVICES; d++) {
        loch_device *device = sim_open(devices[d]);
        loch_allocator *pool = pool_make(device, NULL), *other = pool_make(device, NULL);
        for (size_t i = 0; i < SIZES; i++) {
            void *block = pool_alloc(pool, sizes[i]), *theirs = pool_alloc(other, sizes[i]);
            WRONG(pool, loch_free(pool, theirs), TEST_SET(FOREIGN));
            WRONG(pool, loch_free(pool, &theirs), TEST_SET(FOREIGN));
            WRONG(pool, loch_free(pool, (void *)(uintptr_t)8), TEST_SET(FOREIGN));
            WRONG(pool, loch_free(pool, (void *)UINTPTR_MAX), TEST_SET(FOREIGN));
            CHECK_OK(loch_free(pool, block));
            CHECK_OK(loch_free(other, theirs));
        }
        pool_expect_empty(other);
        loch_allocator_release(other);
        pool_end(pool, device);
    }
}

static void an_address_above_all_blocks_is_told(void **state)
{
    (void)state;
    loch_device *device = sim_open(SIM);
    loch_allocator *pool = pool_make(device, NULL);
    const lochi_pool *inside = lochi_pool_of(pool);
    void *block = pool_alloc(pool, TEST_MIB);
    WRONG(pool, loch_free(pool, (void *)(inside->base + inside->span - 64)), TEST_SET(FOREIGN));
    WRONG(pool, loch_free(pool, (void *)(inside->base + inside->span)), TEST_SET(FOREIGN));
    WRONG(pool, loch_free(pool, (void *)(inside->base - 1)), TEST_SET(FOREIGN));
    CHECK_OK(loch_free(pool, block));
    pool_end_sim(pool, device);
}

static void a_wrong_size_is_told(void **state)
{
    (void)state;
    for (size_t d = 0; d < DEVICES; d++) {
        loch_device *device = sim_open(devices[d]);
        loch_allocator *pool = pool_make(device, NULL);
        for (size_t i = 0; i < SIZES; i++) {
            void *block = pool_alloc(pool, sizes[i]);
            WRONG(pool, loch_allocator_free_sized(pool, block, sizes[i] + 1), TEST_SET(INVALID));
            if (sizes[i] > 1) WRONG(pool, loch_allocator_free_sized(pool, block, sizes[i] - 1), TEST_SET(INVALID));
            CHECK_OK(loch_allocator_free_sized(pool, block, sizes[i]));
        }
        pool_end(pool, device);
    }
}

static void requests_that_cannot_be_served_are_refused(void **state)
{
    (void)state;
    for (size_t d = 0; d < DEVICES; d++) {
        loch_device *device = sim_open(devices[d]);
        loch_allocator *pool = pool_make(device, NULL);
        void *kept = pool_alloc(pool, 100), *block = TEST_UNTOUCHED;
        CHECK_OK(loch_alloc(pool, 0, &block));
        assert_null(block);
        CHECK_OK(loch_free(pool, NULL));
        WRONG(pool, loch_alloc(pool, SIZE_MAX, &block), TEST_SET(OVERFLOW));
        WRONG(pool, loch_alloc_array(pool, SIZE_MAX / 2, 3, NULL, &block), TEST_SET(OVERFLOW));
        WRONG(pool, pool_try_alloc(pool, 10, 3, NULL, &block), TEST_SET(INVALID));
        WRONG(pool, pool_try_alloc(pool, 10, SIZE_MAX, NULL, &block), TEST_SET(INVALID));
        assert_null(block);
        const loch_pool_info before = pool_info(pool);
        CHECK_FAILS_SET(loch_alloc(pool, (size_t)1 << 60, &block), POOL_SHORT | TEST_SET(OVERFLOW));
        CHECK_FAILS_SET(pool_try_alloc(pool, 10, (size_t)1 << 62, NULL, &block), POOL_SHORT | TEST_SET(OVERFLOW));
        assert_int_equal(pool_info(pool).reserved_bytes, before.reserved_bytes);
        pool_expect_whole(pool);
        CHECK_OK(loch_free(pool, kept));
        pool_end(pool, device);
    }
}

/* A tag, a size and a word of the contents survive wrong calls around them. */
static void live_blocks_are_left_alone(void **state)
{
    (void)state;
    loch_device *device = sim_open(SIM);
    loch_allocator *pool = pool_make(device, NULL);
    char *blocks[SIZES];
    for (size_t i = 0; i < SIZES; i++) {
        blocks[i] = pool_alloc(pool, sizes[i]);
        test_pattern_write(blocks[i], sizes[i], i);
    }
    for (size_t i = 1; i < SIZES; i++) {
        CHECK_FAILS(loch_free(pool, blocks[i] + sizes[i] / 2), INTERIOR);
        CHECK_FAILS(loch_allocator_free_sized(pool, blocks[i], sizes[i] + 8), INVALID);
        void *moved = TEST_UNTOUCHED;
        CHECK_FAILS_SET(loch_allocator_realloc(pool, blocks[i], TEST_GIB, NULL, &moved), POOL_SHORT);
        assert_null(moved);
    }
    for (size_t i = 0; i < SIZES; i++) {
        assert_int_equal(test_pattern_differs(blocks[i], sizes[i], i), sizes[i]);
        CHECK_OK(loch_allocator_free_sized(pool, blocks[i], sizes[i]));
    }
    pool_end_sim(pool, device);
}

static void bad_options_are_refused(void **state)
{
    (void)state;
    loch_device *device = sim_open(SIM);
    const loch_pool_options wrong[] = {
        {.size = sizeof wrong[0], .kind = (loch_memory_kind)77},
        {.size = sizeof wrong[0], .preset = (loch_pool_preset)77},
        {.size = sizeof wrong[0], .captures = (loch_pool_captures)77},
        {.size = sizeof wrong[0], .round_bytes = SIZE_MAX},
        {.size = sizeof wrong[0], .handle_bytes = SIZE_MAX},
    };
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        loch_allocator *pool = TEST_UNTOUCHED;
        CHECK_FAILS_SET(loch_pool_create(device, "pool", &wrong[i], &pool), TEST_SET(INVALID) | TEST_SET(OVERFLOW));
        assert_null(pool);
    }
    loch_allocator *pool = TEST_UNTOUCHED;
    CHECK_FAILS(loch_pool_create(NULL, "pool", NULL, &pool), INVALID);
    assert_null(pool);
    CHECK_FAILS(loch_pool_create(device, "pool", NULL, NULL), INVALID);
    assert_int_equal(sim_stats(device).reserved_bytes, 0);
    loch_device_release(device);
}

static void calls_for_pools_refuse_what_is_none(void **state)
{
    (void)state;
    loch_device *device = sim_open(SIM);
    loch_allocator *direct;
    CHECK_OK(loch_direct_create(device, "direct", NULL, &direct));
    loch_pool_info info = {.size = sizeof info};
    char text[64];
    CHECK_FAILS(loch_pool_get_info(direct, &info), INVALID);
    CHECK_FAILS(loch_pool_set_limit(direct, 1), INVALID);
    CHECK_FAILS(loch_pool_set_idle(direct, 1), INVALID);
    CHECK_FAILS(loch_pool_release_capture(direct, 1), INVALID);
    CHECK_FAILS(loch_pool_print(direct, text, sizeof text, NULL), INVALID);
    assert_non_null(strstr(loch_error_get()->sentence, "not a pool"));
    assert_string_equal(text, "");
    CHECK_FAILS(loch_pool_print(NULL, text, sizeof text, NULL), INVALID);
    loch_allocator_release(direct);
    loch_device_release(device);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        POOL_TEST(a_double_free_right_away_is_told),
        POOL_TEST(a_double_free_of_merged_or_returned_memory_is_told),
        POOL_TEST(a_double_free_of_a_block_that_waits_is_told),
        POOL_TEST(an_address_inside_a_block_is_told),
        POOL_TEST(a_foreign_address_is_told),
        POOL_TEST(an_address_above_all_blocks_is_told),
        POOL_TEST(a_wrong_size_is_told),
        POOL_TEST(requests_that_cannot_be_served_are_refused),
        POOL_TEST(live_blocks_are_left_alone),
        POOL_TEST(bad_options_are_refused),
        POOL_TEST(calls_for_pools_refuse_what_is_none),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

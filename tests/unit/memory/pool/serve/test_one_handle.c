/* SPDX-License-Identifier: MIT */
/* Blocks that are one handle each (LOCH_ALLOC_ONE_HANDLE): the driver has one mapping for them, whatever the pool did
 * before; their memory serves others of their size, and goes when it is needed. */
#include "pool_fixture.h"
#include "memory/pool/heap/cells.h"

#define MIB TEST_MIB

static const char *const devices[] = {"cpu", "sim:256MiB,granule=64KiB,backed", "sim:256MiB,granule=2MiB,backed",
                                      "sim:256MiB,granule=64KiB,backed,alias=off"};
#define DEVICES (sizeof devices / sizeof *devices)

static char *one_make(loch_allocator *pool, size_t bytes, size_t alignment)
{
    const loch_request request = {
        .size = sizeof request, .bytes = bytes, .alignment = alignment, .flags = LOCH_ALLOC_ONE_HANDLE};
    void *block;
    CHECK_OK(loch_allocator_alloc(pool, &request, &block));
    return block;
}

/* Expects that a block is the whole of one handle. */
static void one_expect(loch_allocator *allocator, const char *block, size_t bytes)
{
    lochi_pool *pool = lochi_pool_of(allocator);
    lochi_pool_take_locks(pool);
    const pool_handle *handle = lochi_pool_find_cell(pool, (uintptr_t)block)->handle;
    assert_non_null(handle);
    assert_int_equal(handle->at, (uintptr_t)block);
    assert_int_equal(handle->bytes, (bytes + pool->cell_bytes - 1) / pool->cell_bytes * pool->cell_bytes);
    lochi_pool_drop_locks(pool);
    pool_expect_whole(allocator);
}

static void blocks_of_all_sizes_have_one_handle(void **state)
{
    (void)state;
    for (size_t d = 0; d < DEVICES; d++) {
        loch_device *device = sim_open(devices[d]);
        loch_allocator *pool = pool_make(device, NULL);
        static const size_t sizes[] = {1, 3 << 20, (6 << 20) + 1, 64 << 10, 20 << 20};
        char *blocks[sizeof sizes / sizeof *sizes], *others[sizeof sizes / sizeof *sizes];
        for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
            others[i] = pool_alloc(pool, 3 * MIB); /* ordinary memory beside them */
            blocks[i] = one_make(pool, sizes[i], i == 2 ? 8 * MIB : 0);
            if (i == 2) assert_int_equal((uintptr_t)blocks[i] % (8 * MIB), 0);
            test_pattern_write(blocks[i], sizes[i], i);
            one_expect(pool, blocks[i], sizes[i]);
        }
        for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i += 2)
            CHECK_OK(loch_free(pool, others[i])); /* free memory in pieces: of no use for them */
        char *last = one_make(pool, 9 * MIB, 0);
        one_expect(pool, last, 9 * MIB);
        for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
            assert_int_equal(test_pattern_differs(blocks[i], sizes[i], i), sizes[i]);
            CHECK_OK(loch_free(pool, blocks[i]));
            if (i % 2) CHECK_OK(loch_free(pool, others[i]));
        }
        CHECK_FAILS_SET(loch_free(pool, blocks[0]), TEST_SET(DOUBLE_FREE) | TEST_SET(FOREIGN));
        CHECK_OK(loch_free(pool, last));
        pool_end(pool, device);
    }
}

static void freed_memory_serves_blocks_of_its_size(void **state)
{
    (void)state;
    loch_device *device = sim_open("sim:256MiB,granule=64KiB,backed");
    loch_allocator *pool = pool_make(device, NULL);
    for (int i = 0; i < 20; i++) {
        char *block = one_make(pool, 5 * MIB, 0);
        one_expect(pool, block, 5 * MIB);
        CHECK_OK(loch_free(pool, block));
        CHECK_OK(loch_device_sync(device));
    }
    assert_int_equal(pool_stats(pool).reserved_bytes, 5 * MIB);
    /* Ordinary blocks take it where that saves new memory, and it comes back to one handle. */
    char *ordinary = pool_alloc(pool, 5 * MIB);
    assert_true(pool_stats(pool).reserved_bytes <= 6 * MIB);
    CHECK_OK(loch_free(pool, ordinary));
    char *block = one_make(pool, 5 * MIB, 0);
    one_expect(pool, block, 5 * MIB);
    CHECK_OK(loch_free(pool, block));
    pool_end(pool, device);
}

/* Handles of other sizes, and free memory in pieces, go back to the device for a block that they cannot serve. */
static void what_cannot_serve_makes_room(void **state)
{
    (void)state;
    loch_device *device = sim_open("sim:64MiB,granule=2MiB,backed");
    loch_allocator *pool = pool_make(device, NULL);
    char *small = one_make(pool, 20 * MIB, 0), *pieces[10];
    for (int i = 0; i < 10; i++)
        pieces[i] = pool_alloc(pool, 4 * MIB);
    CHECK_OK(loch_free(pool, small));
    for (int i = 0; i < 10; i++)
        CHECK_OK(loch_free(pool, pieces[i]));
    char *block = one_make(pool, 58 * MIB, 0);
    one_expect(pool, block, 58 * MIB);
    const size_t held = pool_stats(pool).reserved_bytes;
    const loch_request more = {.size = sizeof more, .bytes = 8 * MIB, .flags = LOCH_ALLOC_ONE_HANDLE};
    void *none = TEST_UNTOUCHED;
    CHECK_FAILS(loch_allocator_alloc(pool, &more, &none), DEVICE_MEMORY);
    assert_null(none);
    assert_int_equal(pool_stats(pool).reserved_bytes, held);
    CHECK_OK(loch_free(pool, block));
    pool_end(pool, device);
}

static void a_resize_moves_to_one_handle(void **state)
{
    (void)state;
    for (size_t d = 0; d < DEVICES; d++) {
        loch_device *device = sim_open(devices[d]);
        loch_allocator *pool = pool_make(device, NULL);
        void *block = one_make(pool, 3 * MIB, 0);
        test_pattern_write(block, 3 * MIB, 7);
        CHECK_OK(loch_allocator_realloc(pool, block, 10 * MIB, NULL, &block));
        CHECK_OK(loch_device_sync(device));
        one_expect(pool, block, 10 * MIB);
        assert_int_equal(test_pattern_differs(block, 3 * MIB, 7), 3 * MIB);
        void *same = block;
        CHECK_OK(loch_allocator_realloc(pool, block, MIB, NULL, &same)); /* a handle cannot go back in part */
        assert_ptr_equal(same, block);
        one_expect(pool, block, 10 * MIB);
        CHECK_FAILS(loch_pool_resize_growable(pool, block, 11 * MIB), OUT_OF_RANGE);
        CHECK_OK(loch_free(pool, block));
        pool_end(pool, device);
    }
}

/* Several that fill their reservations: these may lie side by side, and no copy reaches from one into the next. */
static void neighbours_sleep_and_wake(void **state)
{
    (void)state;
    static const loch_sleep_contents kinds[] = {LOCH_SLEEP_PINNED, LOCH_SLEEP_HOST, LOCH_SLEEP_FILE, LOCH_SLEEP_DROP};
    for (size_t d = 0; d < DEVICES; d++)
        for (size_t k = 0; k < sizeof kinds / sizeof *kinds; k++) {
            loch_device *device = sim_open(devices[d]);
            loch_allocator *pool = pool_make(device, NULL);
            char *blocks[8];
            bool has_neighbours = false;
            for (int i = 0; i < 8; i++) {
                blocks[i] = one_make(pool, 4 * MIB, 0);
                test_pattern_write(blocks[i], 4 * MIB, (uint64_t)i);
                for (int j = 0; j < i; j++)
                    has_neighbours |= blocks[i] == blocks[j] + 4 * MIB || blocks[j] == blocks[i] + 4 * MIB;
            }
            if (d == 1) assert_true(has_neighbours);
            const loch_sleep_options options = {.size = sizeof options, .contents = kinds[k]};
            CHECK_OK(loch_pool_sleep(pool, &options, NULL));
            CHECK_OK(loch_pool_wake(pool, NULL));
            test_end_defaults();
            for (int i = 0; i < 8; i++) {
                one_expect(pool, blocks[i], 4 * MIB);
                if (kinds[k] == LOCH_SLEEP_DROP)
                    assert_int_equal(blocks[i][4 * MIB - 1], 0);
                else
                    assert_int_equal(test_pattern_differs(blocks[i], 4 * MIB, (uint64_t)i), 4 * MIB);
                CHECK_OK(loch_free(pool, blocks[i]));
            }
            pool_end(pool, device);
        }
}

static void they_sleep_and_wake_as_one(void **state)
{
    (void)state;
    loch_device *device = sim_open("sim:256MiB,granule=64KiB,backed");
    loch_allocator *pool = pool_make(device, NULL);
    char *block = one_make(pool, 5 * MIB, 0);
    test_pattern_write(block, 5 * MIB, 3);
    CHECK_OK(loch_pool_sleep(pool, NULL, NULL));
    assert_int_equal(pool_stats(pool).reserved_bytes, 0);
    CHECK_OK(loch_pool_wake(pool, NULL));
    test_end_defaults(); /* the sleep used the device's pinned memory */
    one_expect(pool, block, 5 * MIB);
    assert_int_equal(test_pattern_differs(block, 5 * MIB, 3), 5 * MIB);
    CHECK_OK(loch_free(pool, block));
    pool_end_sim(pool, device);
}

static void what_cannot_be_one_handle_is_refused(void **state)
{
    (void)state;
    loch_device *device = sim_open("sim:64MiB,granule=64KiB,backed"), *raw = sim_open("sim:64MiB,virtual=off");
    loch_allocator *pool = pool_make(device, NULL), *direct, *segments = pool_make(raw, NULL);
    const loch_request one = {.size = sizeof one, .bytes = MIB, .flags = LOCH_ALLOC_ONE_HANDLE};
    loch_request wrong = one;
    void *none = TEST_UNTOUCHED;
    CHECK_FAILS(loch_allocator_alloc(segments, &one, &none), UNSUPPORTED);
    assert_null(none);
    CHECK_OK(loch_direct_create(device, NULL, NULL, &direct));
    CHECK_FAILS(loch_allocator_alloc(direct, &one, &none), UNSUPPORTED);
    CHECK_FAILS(loch_pool_alloc_growable(pool, 2 * MIB, &one, &none), INVALID);
    wrong.address = (void *)(uintptr_t)0x10000;
    CHECK_FAILS(loch_allocator_alloc(pool, &wrong, &none), INVALID);
    wrong.address = NULL;
    wrong.bytes = 0;
    CHECK_OK(loch_allocator_alloc(pool, &wrong, &none));
    assert_null(none);
    loch_allocator_release(direct);
    pool_end(segments, raw);
    pool_end(pool, device);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        POOL_TEST(blocks_of_all_sizes_have_one_handle),
        POOL_TEST(freed_memory_serves_blocks_of_its_size),
        POOL_TEST(what_cannot_serve_makes_room),
        POOL_TEST(a_resize_moves_to_one_handle),
        POOL_TEST(neighbours_sleep_and_wake),
        POOL_TEST(they_sleep_and_wake_as_one),
        POOL_TEST(what_cannot_be_one_handle_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

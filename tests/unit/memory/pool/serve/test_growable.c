/* SPDX-License-Identifier: MIT */
/* Growable blocks: one address, memory that comes and goes at the end, and what happens when none can come. Also
 * loch_allocator_realloc of ordinary blocks, which grow into what is free behind them. */
#include "pool_fixture.h"

#define MIB TEST_MIB
#define STEPPED "sim:256MiB,granule=64KiB,backed,clock=stepped,lag=1000"

static const char *const devices[] = {"cpu", "sim:256MiB,granule=64KiB,backed", "sim:256MiB,granule=2MiB,backed",
                                      "sim:256MiB,granule=64KiB,backed,alias=off"};
#define DEVICES (sizeof devices / sizeof *devices)

static char *growable_make(loch_allocator *pool, size_t bytes, size_t max_bytes, loch_stream *stream)
{
    const loch_request request = {.size = sizeof request, .bytes = bytes, .stream = stream};
    void *block;
    CHECK_OK(loch_pool_alloc_growable(pool, max_bytes, &request, &block));
    return block;
}

static size_t growable_requested(loch_allocator *pool, void *block)
{
    loch_block found = {.size = sizeof found};
    CHECK_OK(loch_allocator_find(pool, block, &found));
    assert_true(found.allocated_bytes >= found.requested_bytes);
    return found.requested_bytes;
}

static void a_growable_block_grows_and_shrinks_in_place(void **state)
{
    (void)state;
    for (size_t d = 0; d < DEVICES; d++) {
        loch_device *device = sim_open(devices[d]);
        loch_allocator *pool = pool_make(device, NULL);
        char *left = pool_alloc(pool, 3 * MIB), *block = growable_make(pool, 0, 128 * MIB, NULL);
        char *right = pool_alloc(pool, 3 * MIB);
        test_pattern_write(left, 3 * MIB, 1);
        test_pattern_write(right, 3 * MIB, 2);
        assert_int_equal(pool_stats(pool).blocks, 3);
        assert_int_equal(growable_requested(pool, block), 0);
        static const size_t sizes[] = {1, 64 << 10, (64 << 10) + 1, 5 << 20, 40 << 20, 7 << 20, 100, 0, 20 << 20};
        size_t filled = 0;
        for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
            CHECK_OK(loch_pool_resize_growable(pool, block, sizes[i]));
            pool_expect_whole(pool);
            assert_int_equal(growable_requested(pool, block), sizes[i]);
            if (sizes[i] < filled) filled = sizes[i];
            assert_int_equal(test_pattern_differs(block, filled, 3), filled); /* contents up to the smaller size */
            test_pattern_write(block, sizes[i], 3);
            filled = sizes[i];
            assert_int_equal(pool_stats(pool).requested_bytes, 6 * MIB + sizes[i]);
            (void)pool_trim(pool, 0);
            pool_expect_whole(pool);
        }
        assert_int_equal(test_pattern_differs(left, 3 * MIB, 1), 3 * MIB);
        assert_int_equal(test_pattern_differs(right, 3 * MIB, 2), 3 * MIB);
        assert_int_equal(test_pattern_differs(block, filled, 3), filled);
        CHECK_FAILS(loch_allocator_free_sized(pool, block, 1), INVALID);
        CHECK_FAILS(loch_free(pool, block + MIB), INTERIOR);
        CHECK_FAILS(loch_free(pool, block + 100 * MIB), INTERIOR);
        CHECK_OK(loch_allocator_free_sized(pool, block, 20 * MIB));
        CHECK_FAILS(loch_free(pool, block), DOUBLE_FREE);
        CHECK_FAILS_SET(loch_pool_resize_growable(pool, block, MIB), TEST_SET(FOREIGN) | TEST_SET(DOUBLE_FREE));
        CHECK_OK(loch_free(pool, left));
        CHECK_OK(loch_free(pool, right));
        pool_end(pool, device);
    }
}

/* What it no longer needs serves others. */
static void memory_of_a_shrunk_block_comes_back(void **state)
{
    (void)state;
    loch_device *device = sim_open(STEPPED);
    loch_allocator *pool = pool_make(device, NULL);
    char *block = growable_make(pool, 200 * MIB, 240 * MIB, NULL);
    assert_int_equal(pool_info(pool).used_bytes, 200 * MIB);
    CHECK_OK(loch_pool_resize_growable(pool, block, 10 * MIB));
    void *other = pool_alloc(pool, 200 * MIB);
    assert_int_equal(sim_stats(device).physical_peak_bytes <= 256 * MIB, 1);
    assert_int_equal(pool_info(pool).used_bytes, 210 * MIB);
    CHECK_OK(loch_free(pool, other));
    CHECK_OK(loch_pool_resize_growable(pool, block, 220 * MIB)); /* and back, from what a thread keeps */
    CHECK_OK(loch_free(pool, block));
    pool_end_sim(pool, device);
}

static void a_growable_block_is_freed_with_memory_and_without(void **state)
{
    (void)state;
    for (size_t d = 0; d < DEVICES; d++) {
        loch_device *device = sim_open(devices[d]);
        loch_allocator *pool = pool_make(device, NULL);
        for (int i = 0; i < 50; i++) { /* addresses come back too: there are 2 GiB of them on sim */
            char *empty = growable_make(pool, 0, 100 * MIB, NULL), *part = growable_make(pool, MIB, 100 * MIB, NULL);
            char *full = growable_make(pool, 4 * MIB, 4 * MIB, NULL);
            CHECK_OK(loch_free(pool, part));
            CHECK_OK(loch_free(pool, empty));
            CHECK_OK(loch_free(pool, full));
            CHECK_OK(loch_device_sync(device));
            pool_expect_whole(pool);
        }
        assert_true(pool_info(pool).peak_reserved_bytes <= 32 * MIB);
        pool_end(pool, device);
    }
}

static void bad_requests_are_refused(void **state)
{
    (void)state;
    loch_device *device = sim_open(STEPPED);
    loch_allocator *pool = pool_make(device, NULL);
    loch_request request = {.size = sizeof request, .bytes = 2 * MIB};
    void *none = TEST_UNTOUCHED;
    CHECK_FAILS(loch_pool_alloc_growable(pool, MIB, &request, &none), OUT_OF_RANGE);
    assert_null(none);
    CHECK_FAILS(loch_pool_alloc_growable(pool, 0, &request, &none), INVALID);
    CHECK_FAILS_SET(loch_pool_alloc_growable(pool, SIZE_MAX, &request, &none), TEST_SET(OVERFLOW));
    CHECK_FAILS(loch_pool_alloc_growable(pool, (size_t)1 << 60, &request, &none), ADDRESSES);
    request.alignment = 3;
    CHECK_FAILS(loch_pool_alloc_growable(pool, 4 * MIB, &request, &none), INVALID);
    assert_null(none);
    assert_int_equal(pool_stats(pool).blocks, 0);
    request.alignment = 16 * MIB;
    void *block;
    CHECK_OK(loch_pool_alloc_growable(pool, 4 * MIB, &request, &block));
    assert_int_equal((uintptr_t)block & (16 * MIB - 1), 0);
    CHECK_FAILS(loch_pool_resize_growable(pool, block, 4 * MIB + 1), OUT_OF_RANGE);
    assert_int_equal(growable_requested(pool, block), 2 * MIB);
    CHECK_FAILS(loch_pool_resize_growable(pool, (char *)block + 64, MIB), FOREIGN);
    CHECK_FAILS(loch_pool_resize_growable(pool, NULL, MIB), INVALID);
    void *plain = pool_alloc(pool, 4 * MIB);
    CHECK_FAILS(loch_pool_resize_growable(pool, plain, MIB), FOREIGN);
    pool_expect_whole(pool);
    CHECK_OK(loch_free(pool, plain));
    CHECK_OK(loch_free(pool, block));
    pool_end_sim(pool, device);
}

static void raw_memory_has_no_growable_blocks(void **state)
{
    (void)state;
    loch_device *device = sim_open("sim:64MiB,virtual=off");
    loch_allocator *pool = pool_make(device, NULL);
    const loch_request request = {.size = sizeof request, .bytes = MIB};
    void *none = TEST_UNTOUCHED;
    CHECK_FAILS(loch_pool_alloc_growable(pool, 2 * MIB, &request, &none), UNSUPPORTED);
    assert_null(none);
    pool_end_sim(pool, device);
}

/* A limit, or the end of the device, in the middle of growing. */
static void a_growth_that_fails_leaves_the_block_as_it_was(void **state)
{
    (void)state;
    for (int is_limited = 0; is_limited < 2; is_limited++) {
        loch_device *device = sim_open("sim:64MiB,granule=64KiB,backed");
        const loch_pool_options options = {
            .size = sizeof options, .limit_bytes = is_limited ? 40 * MIB : 0, .handle_bytes = MIB};
        loch_allocator *pool = pool_make(device, &options);
        void *other = pool_alloc(pool, 16 * MIB);
        char *block = growable_make(pool, 10 * MIB, 128 * MIB, NULL);
        test_pattern_write(block, 10 * MIB, 5);
        const loch_stats before = pool_stats(pool);
        for (int i = 0; i < 3; i++) {
            CHECK_FAILS_SET(loch_pool_resize_growable(pool, block, 60 * MIB),
                            is_limited ? TEST_SET(LIMIT) : TEST_SET(DEVICE_MEMORY));
            pool_expect_whole(pool);
            const loch_stats after = pool_stats(pool);
            assert_int_equal(growable_requested(pool, block), 10 * MIB);
            assert_int_equal(after.requested_bytes, before.requested_bytes);
            assert_int_equal(after.allocated_bytes, before.allocated_bytes);
            assert_int_equal(test_pattern_differs(block, 10 * MIB, 5), 10 * MIB);
        }
        CHECK_OK(loch_pool_resize_growable(pool, block, 20 * MIB));
        const loch_request request = {.size = sizeof request, .bytes = 50 * MIB};
        void *none = TEST_UNTOUCHED;
        CHECK_FAILS_SET(loch_pool_alloc_growable(pool, 60 * MIB, &request, &none), POOL_SHORT);
        assert_null(none);
        assert_int_equal(pool_stats(pool).blocks, 2);
        CHECK_OK(loch_free(pool, other));
        CHECK_OK(loch_pool_resize_growable(pool, block, 36 * MIB)); /* with what the thread keeps */
        assert_int_equal(test_pattern_differs(block, 10 * MIB, 5), 10 * MIB);
        CHECK_OK(loch_free(pool, block));
        pool_end_sim(pool, device);
    }
}

/* --- streams --- */

static void shrunk_memory_stays_while_it_is_used(void **state)
{
    (void)state;
    loch_device *device = sim_open(STEPPED);
    loch_stream *stream = sim_stream(device, LOCH_STREAM_INDEPENDENT);
    loch_allocator *pool = pool_make(device, NULL);
    char *block = growable_make(pool, 16 * MIB, 32 * MIB, stream);
    CHECK_OK(sim_writes(stream, block, 16 * MIB));
    CHECK_OK(loch_pool_resize_growable(pool, block, MIB));
    void *others[4];
    for (size_t i = 0; i < 4; i++) /* they look at what has passed, and find that it has not */
        others[i] = pool_alloc(pool, 4 * MIB);
    assert_int_equal(sim_violations(device, NULL), 0);
    assert_true(sim_stats(device).pending > 0);
    CHECK_OK(loch_stream_sync(stream));
    void *large = pool_alloc(pool, 200 * MIB);
    assert_int_equal(sim_violations(device, NULL), 0);
    assert_int_equal(pool_info(pool).used_bytes, 217 * MIB);
    for (size_t i = 0; i < 4; i++)
        CHECK_OK(loch_free(pool, others[i]));
    CHECK_OK(loch_free(pool, large));
    CHECK_OK(loch_free(pool, block));
    loch_stream_close(stream);
    pool_end_sim(pool, device);
}

/* It grows again before the stream has passed what it gave up, and that fails half-way. */
static void a_growth_that_fails_after_shrinking_leaves_the_block_whole(void **state)
{
    (void)state;
    loch_device *device = sim_open(STEPPED);
    loch_stream *stream = sim_stream(device, LOCH_STREAM_INDEPENDENT);
    const loch_pool_options options = {.size = sizeof options, .limit_bytes = 32 * MIB, .handle_bytes = MIB};
    loch_allocator *pool = pool_make(device, &options);
    char *block = growable_make(pool, 16 * MIB, 64 * MIB, stream);
    CHECK_OK(sim_writes(stream, block, 16 * MIB));
    CHECK_OK(loch_pool_resize_growable(pool, block, MIB));
    CHECK_FAILS(loch_pool_resize_growable(pool, block, 60 * MIB), LIMIT);
    assert_int_equal(sim_violations(device, NULL), 0);
    assert_int_equal(growable_requested(pool, block), MIB);
    CHECK_OK(loch_pool_resize_growable(pool, block, 16 * MIB));
    CHECK_OK(sim_writes(stream, block, 16 * MIB));
    CHECK_OK(loch_free(pool, block));
    loch_stream_close(stream);
    pool_end_sim(pool, device);
}

static void a_block_that_another_stream_uses_is_freed_behind_it(void **state)
{
    (void)state;
    loch_device *device = sim_open(STEPPED);
    loch_stream *a = sim_stream(device, LOCH_STREAM_INDEPENDENT), *b = sim_stream(device, LOCH_STREAM_INDEPENDENT);
    loch_allocator *pool = pool_make(device, NULL);
    for (size_t bytes = 0; bytes <= 2 * MIB; bytes += MIB) {
        char *block = growable_make(pool, bytes, 8 * MIB, a);
        CHECK_OK(loch_allocator_record_use(pool, block, b));
        if (bytes) CHECK_OK(sim_writes(b, block, bytes));
        CHECK_OK(loch_free(pool, block));
        char *next = pool_alloc_on(pool, 2 * MIB, a);
        CHECK_OK(sim_writes(a, next, 2 * MIB));
        assert_int_equal(sim_violations(device, NULL), 0);
        CHECK_OK(loch_free(pool, next));
        pool_expect_whole(pool);
    }
    loch_stream_close(a);
    loch_stream_close(b);
    pool_end_sim(pool, device);
}

/* --- ordinary blocks --- */

/* --- blocks in annexes --- */

#define GIB ((size_t)1 << 30)
#define MANY 3000

/* The addresses of all blocks together are far more than the pool's own range. */
static void thousands_of_blocks_reserve_more_than_the_device_has(void **state)
{
    (void)state;
    if (TEST_HAS_FEW_ADDRESSES) skip();
    static const char *const large[] = {"sim:80GiB", "sim:141GiB"};
    static char *blocks[MANY];
    for (size_t d = 0; d < 2; d++) {
        loch_device *device = sim_open(large[d]);
        loch_allocator *pool = pool_make(device, NULL);
        const size_t range = sim_stats(device).reserved_bytes;
        for (size_t i = 0; i < MANY; i++)
            blocks[i] = growable_make(pool, 1000, 16 * GIB, NULL);
        assert_int_equal(pool_stats(pool).blocks, MANY);
        assert_int_equal(pool_info(pool).reserved_bytes, MANY * 2 * MIB);
        for (size_t i = 0; i < MANY; i += 100) {
            CHECK_OK(loch_pool_resize_growable(pool, blocks[i], GIB + i));
            assert_int_equal(growable_requested(pool, blocks[i]), GIB + i);
            CHECK_FAILS(loch_free(pool, blocks[i] + 8 * GIB), INTERIOR);
        }
        pool_expect_whole(pool);
        for (size_t i = 0; i < MANY; i++) /* in an order that is neither up nor down */
            CHECK_OK(loch_free(pool, blocks[i * 7 % MANY]));
        CHECK_FAILS_SET(loch_free(pool, blocks[MANY / 2]), TEST_SET(FOREIGN) | TEST_SET(DOUBLE_FREE));
        pool_expect_whole(pool);
        (void)pool_trim(pool, 0);
        assert_int_equal(sim_stats(device).reserved_bytes, range); /* all annexes went back */
        assert_int_equal(pool_info(pool).reserved_bytes, 0);
        pool_end(pool, device);
    }
}

static void addresses_that_run_out_have_a_status_of_their_own(void **state)
{
    (void)state;
    loch_device *device = sim_open("sim:8GiB");
    loch_allocator *pool = pool_make(device, NULL);
    const size_t most = TEST_HAS_FEW_ADDRESSES ? 64 * GIB : 4096 * GIB;
    char *blocks[64] = {NULL};
    size_t count = 0;
    const loch_request request = {.size = sizeof request};
    loch_status status;
    void *block;
    while ((status = loch_pool_alloc_growable(pool, most, &request, &block)) == LOCH_OK && count < 64)
        blocks[count++] = block;
    assert_int_equal(status, LOCH_E_ADDRESSES);
    assert_true(count >= (TEST_HAS_FEW_ADDRESSES ? 2 : 8));
    assert_non_null(strstr(loch_error_get()->sentence, "reserve less"));
    assert_int_equal(pool_info(pool).reserved_bytes, 0);
    CHECK_OK(loch_pool_resize_growable(pool, blocks[0], 5 * MIB)); /* blocks that have addresses go on */
    CHECK_OK(loch_free(pool, blocks[1]));
    CHECK_OK(loch_pool_alloc_growable(pool, most / 2, &request, &block)); /* not the size that was freed */
    CHECK_OK(loch_free(pool, block));
    for (size_t i = 0; i < count; i++)
        if (i != 1) CHECK_OK(loch_free(pool, blocks[i]));
    pool_expect_whole(pool);
    pool_end(pool, device);
}

/* A program that makes and frees blocks of one size asks the driver for no addresses after the first block. */
static void addresses_are_used_again(void **state)
{
    (void)state;
    loch_device *device = sim_open("sim:8GiB");
    loch_allocator *pool = pool_make(device, NULL);
    CHECK_OK(loch_free(pool, growable_make(pool, MIB, 16 * GIB, NULL)));
    const uint64_t calls = test_call_count(device, "reserve");
    for (int i = 0; i < 100; i++) {
        CHECK_OK(loch_device_sync(device)); /* the addresses are in use until the stream has passed */
        CHECK_OK(loch_free(pool, growable_make(pool, MIB, 16 * GIB, NULL)));
    }
    assert_int_equal(test_call_count(device, "reserve"), calls);
    assert_int_equal(pool_info(pool).reserved_bytes, 2 * MIB);
    pool_end(pool, device);
}

/* The memory of a block that was freed in an annex stays until its stream has passed, and serves others then. */
static void freed_memory_in_an_annex_waits_for_its_stream(void **state)
{
    (void)state;
    loch_device *device = sim_open(STEPPED);
    loch_allocator *pool = pool_make(device, NULL);
    loch_stream *stream;
    CHECK_OK(loch_stream_create(device, NULL, &stream));
    char *block = growable_make(pool, 100 * MIB, 200 * MIB, stream);
    CHECK_OK(loch_fill_on(block, 100 * MIB, "x", 1, stream));
    CHECK_OK(loch_free(pool, block));
    pool_expect_whole(pool);
    assert_int_equal(pool_info(pool).waiting_bytes, 100 * MIB);
    CHECK_FAILS(loch_fill_on(block, 10, "x", 1, stream), OUT_OF_RANGE);
    CHECK_FAILS(loch_free(pool, block), DOUBLE_FREE);
    CHECK_OK(loch_stream_sync(stream));
    void *other = pool_alloc(pool, 200 * MIB); /* needs memory of the freed block */
    assert_int_equal(pool_info(pool).waiting_bytes, 0);
    assert_true(sim_stats(device).physical_peak_bytes <= 256 * MIB);
    pool_expect_whole(pool);
    CHECK_OK(loch_free(pool, other));
    block = growable_make(pool, 100 * MIB, 200 * MIB, stream); /* without a wait by the caller */
    CHECK_OK(loch_fill_on(block, 100 * MIB, "x", 1, stream));
    CHECK_OK(loch_free(pool, block));
    other = pool_alloc(pool, 250 * MIB);
    CHECK_OK(loch_free(pool, other));
    loch_stream_release(stream);
    pool_expect_whole(pool);
    pool_end(pool, device);
}

static void a_block_grows_into_its_neighbour(void **state)
{
    (void)state;
    for (size_t d = 0; d < DEVICES; d++) {
        loch_device *device = sim_open(devices[d]);
        loch_allocator *pool = pool_make(device, NULL);
        char *all = pool_alloc(pool, 16 * MIB); /* one run of memory */
        CHECK_OK(loch_free(pool, all));
        char *block = pool_alloc(pool, 2 * MIB), *behind = pool_alloc(pool, 6 * MIB);
        char *wall = pool_alloc(pool, 3 * MIB);
        assert_ptr_equal(behind, block + 2 * MIB);
        test_pattern_write(block, 2 * MIB, 1);
        test_pattern_write(wall, 3 * MIB, 2);
        CHECK_OK(loch_free(pool, behind));
        CHECK_OK(loch_free(pool, pool_alloc(pool, MIB))); /* the thread keeps another one now */
        const loch_stats before = pool_stats(pool);
        void *moved;
        CHECK_OK(loch_allocator_realloc(pool, block, 5 * MIB, NULL, &moved));
        assert_ptr_equal(moved, block);
        pool_expect_whole(pool);
        assert_int_equal(pool_stats(pool).allocs, before.allocs);
        assert_int_equal(pool_stats(pool).requested_bytes, 8 * MIB);
        assert_int_equal(test_pattern_differs(block, 2 * MIB, 1), 2 * MIB);
        test_pattern_write(block, 5 * MIB, 3);
        CHECK_OK(loch_allocator_realloc(pool, block, MIB, NULL, &moved)); /* and gives its end back */
        assert_ptr_equal(moved, block);
        pool_expect_whole(pool);
        assert_int_equal(pool_stats(pool).requested_bytes, 4 * MIB);
        CHECK_OK(loch_device_sync(device));
        assert_int_equal(test_pattern_differs(block, MIB, 3), MIB);
        CHECK_OK(loch_allocator_realloc(pool, block, 40 * MIB, NULL, &moved)); /* the wall is in the way */
        CHECK_OK(loch_device_sync(device));
        assert_true(moved != block);
        assert_int_equal(test_pattern_differs(moved, MIB, 3), MIB);
        assert_int_equal(test_pattern_differs(wall, 3 * MIB, 2), 3 * MIB);
        CHECK_OK(loch_allocator_free_sized(pool, moved, 40 * MIB));
        CHECK_OK(loch_free(pool, wall));
        pool_end(pool, device);
    }
}

/* In place or not, on another stream than its own: what the block gives up is not used again too early. */
static void what_a_resize_on_another_stream_gives_up_waits_for_both(void **state)
{
    (void)state;
    loch_device *device = sim_open(STEPPED);
    loch_stream *a = sim_stream(device, LOCH_STREAM_INDEPENDENT), *b = sim_stream(device, LOCH_STREAM_INDEPENDENT);
    loch_allocator *pool = pool_make(device, NULL);
    char *block = pool_alloc_on(pool, 8 * MIB, a);
    void *moved;
    pool_order(device, a, b);
    CHECK_OK(sim_writes(b, block, 8 * MIB)); /* ordered behind a; a is not behind it */
    CHECK_OK(loch_allocator_realloc(pool, block, MIB, b, &moved));
    char *next = pool_alloc_on(pool, 7 * MIB, a);
    CHECK_OK(sim_writes(a, next, 7 * MIB));
    loch_sim_violation found;
    if (sim_violations(device, &found)) fail_msg("%s", found.text);
    CHECK_OK(loch_allocator_free_on(pool, moved, b));
    CHECK_OK(loch_free(pool, next));
    loch_stream_close(a);
    loch_stream_close(b);
    pool_end_sim(pool, device);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        POOL_TEST(a_growable_block_grows_and_shrinks_in_place),
        POOL_TEST(memory_of_a_shrunk_block_comes_back),
        POOL_TEST(a_growable_block_is_freed_with_memory_and_without),
        POOL_TEST(bad_requests_are_refused),
        POOL_TEST(raw_memory_has_no_growable_blocks),
        POOL_TEST(a_growth_that_fails_leaves_the_block_as_it_was),
        POOL_TEST(shrunk_memory_stays_while_it_is_used),
        POOL_TEST(a_growth_that_fails_after_shrinking_leaves_the_block_whole),
        POOL_TEST(a_block_that_another_stream_uses_is_freed_behind_it),
        POOL_TEST(thousands_of_blocks_reserve_more_than_the_device_has),
        POOL_TEST(addresses_that_run_out_have_a_status_of_their_own),
        POOL_TEST(addresses_are_used_again),
        POOL_TEST(freed_memory_in_an_annex_waits_for_its_stream),
        POOL_TEST(a_block_grows_into_its_neighbour),
        POOL_TEST(what_a_resize_on_another_stream_gives_up_waits_for_both),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

/* SPDX-License-Identifier: MIT */
/* What a pool keeps: trimming, the cap on idle memory, limits set at run time, and the figures that say it. */
#include "pool_fixture.h"
#include <sys/mman.h>
#include <unistd.h>

#define MIB TEST_MIB

/* Free memory of every device in whole handles: blocks of 8 MiB each, of which every second one is freed. */
typedef struct half {
    loch_device *device;
    loch_allocator *pool;
    char *blocks[8];
} half;

static half half_open(const char *name)
{
    half h = {.device = sim_open(name)};
    const loch_pool_options options = {.size = sizeof options, .handle_bytes = 2 * MIB};
    h.pool = pool_make(h.device, &options);
    for (size_t i = 0; i < 8; i++) {
        h.blocks[i] = pool_alloc(h.pool, 8 * MIB);
        memset(h.blocks[i], (int)i, 8 * MIB);
    }
    for (size_t i = 0; i < 8; i += 2)
        CHECK_OK(loch_free(h.pool, h.blocks[i]));
    return h;
}

static void half_close(half *h)
{
    for (size_t i = 1; i < 8; i += 2) {
        assert_int_equal(h->blocks[i][0], i);
        assert_int_equal(h->blocks[i][8 * MIB - 1], i);
        CHECK_OK(loch_free(h->pool, h->blocks[i]));
    }
    pool_end(h->pool, h->device);
}

static const char *const devices[] = {"cpu", "sim:256MiB,granule=2MiB,backed", "sim:256MiB,granule=64KiB,backed",
                                      "sim:256MiB,granule=2MiB,backed,alias=off"};
#define DEVICES (sizeof devices / sizeof *devices)

static void a_trim_keeps_what_it_was_told_to(void **state)
{
    (void)state;
    for (size_t d = 0; d < DEVICES; d++) {
        half h = half_open(devices[d]);
        assert_int_equal(pool_info(h.pool).reserved_bytes, 64 * MIB);
        assert_int_equal(pool_trim(h.pool, 32 * MIB), 0);
        assert_int_equal(pool_trim(h.pool, 20 * MIB), 12 * MIB);
        assert_int_equal(pool_info(h.pool).reserved_bytes, 52 * MIB);
        assert_int_equal(pool_info(h.pool).free_bytes, 20 * MIB);
        assert_int_equal(pool_trim(h.pool, 5 * MIB), 16 * MIB); /* whole handles */
        pool_expect_whole(h.pool);
        assert_int_equal(pool_trim(h.pool, 0), 4 * MIB);
        assert_int_equal(pool_trim(h.pool, 0), 0);
        const loch_pool_info info = pool_info(h.pool);
        assert_int_equal(info.reserved_bytes, 32 * MIB);
        assert_int_equal(info.free_bytes, 0);
        assert_int_equal(info.largest_free_bytes, 0);
        assert_int_equal(info.handles_released, 16);
        CHECK_OK(loch_free(h.pool, pool_alloc(h.pool, 24 * MIB))); /* it comes again */
        half_close(&h);
    }
}

/* A pool with nothing in use has no fragmentation, though it keeps memory for small blocks and for the thread. A trim
 * that keeps everything merges that memory and gives nothing back. */
static void a_trim_that_keeps_everything_merges_free_memory(void **state)
{
    (void)state;
    for (size_t d = 0; d < DEVICES; d++) {
        loch_device *device = sim_open(devices[d]);
        loch_allocator *pool = pool_make(device, NULL);
        void *blocks[256];
        loch_stats stats = {.size = sizeof stats};
        for (size_t i = 0; i < 256; i++)
            blocks[i] = pool_alloc(pool, 4096);
        for (size_t i = 0; i < 256; i++)
            CHECK_OK(loch_free(pool, blocks[i]));
        CHECK_OK(loch_allocator_get_stats(pool, &stats));
        const uint64_t reserved = stats.reserved_bytes;
        assert_int_equal(stats.allocated_bytes, 0);
        assert_int_equal(stats.cached_bytes, reserved);
        assert_true(stats.largest_free_bytes < reserved);
        assert_true(loch_stats_fragmentation(&stats) == 0);
        assert_int_equal(pool_trim(pool, SIZE_MAX), 0);
        CHECK_OK(loch_allocator_get_stats(pool, &stats));
        assert_int_equal(stats.reserved_bytes, reserved);
        assert_int_equal(stats.largest_free_bytes, reserved);
        assert_true(loch_stats_fragmentation(&stats) == 0);
        pool_end(pool, device);
    }
}

/* A small block that lives long shares a handle of 2 MiB with a large one. After a trim further small blocks fill the
 * free memory beside the first one. They do not occupy a second handle. */
static void small_blocks_stay_together_after_a_trim(void **state)
{
    (void)state;
    loch_device *device = sim_open("sim:256MiB,granule=2MiB");
    loch_allocator *pool = pool_make(device, NULL);
    void *small[8], *large = NULL;
    for (size_t i = 0; i < 8; i++) {
        small[i] = pool_alloc(pool, 16 * TEST_KIB);
        if (!large) large = pool_alloc(pool, MIB);
        assert_int_equal(pool_info(pool).reserved_bytes, 2 * MIB);
        assert_int_equal(pool_trim(pool, SIZE_MAX), 0);
        assert_int_equal(pool_info(pool).largest_free_bytes, MIB - (i + 1) * 16 * TEST_KIB);
        pool_expect_whole(pool);
    }
    void *rest = pool_alloc(pool, 512 * TEST_KIB); /* does not fit there, unless no memory is left elsewhere */
    assert_int_equal(pool_info(pool).reserved_bytes, 4 * MIB);
    CHECK_OK(loch_free(pool, rest));
    CHECK_OK(loch_free(pool, large));
    for (size_t i = 0; i < 8; i++)
        CHECK_OK(loch_free(pool, small[i]));
    assert_int_equal(pool_trim(pool, 0), 4 * MIB);
    pool_end(pool, device);
}

/* An arena lies beside a free handle. It stays an arena when the handle goes back. */
static void an_arena_beside_a_free_handle_stays(void **state)
{
    (void)state;
    loch_device *device = sim_open("sim:256MiB,granule=2MiB");
    loch_allocator *pool = pool_make(device, NULL);
    void *large = pool_alloc(pool, MIB), *first = pool_alloc(pool, 16 * TEST_KIB), *beside = pool_alloc(pool, 2 * MIB);
    assert_int_equal(pool_info(pool).reserved_bytes, 4 * MIB);
    assert_ptr_equal((char *)large + MIB, first);
    assert_ptr_equal((char *)large + 2 * MIB, beside);
    CHECK_OK(loch_free(pool, beside));
    assert_int_equal(pool_trim(pool, 0), 2 * MIB);
    pool_expect_whole(pool);
    void *second = pool_alloc(pool, 16 * TEST_KIB);
    assert_int_equal(pool_info(pool).reserved_bytes, 2 * MIB);
    CHECK_OK(loch_free(pool, large));
    CHECK_OK(loch_free(pool, first));
    CHECK_OK(loch_free(pool, second));
    pool_end_sim(pool, device);
}

static void an_idle_cap_gives_back_what_is_above_it(void **state)
{
    (void)state;
    for (size_t d = 0; d < DEVICES; d++) {
        half h = half_open(devices[d]);
        CHECK_OK(loch_pool_set_idle(h.pool, 10 * MIB));
        assert_int_equal(pool_info(h.pool).idle_bytes, 10 * MIB);
        assert_int_equal(pool_info(h.pool).reserved_bytes, 42 * MIB);
        for (size_t i = 0; i < 20; i++) {
            void *first = pool_alloc(h.pool, 12 * MIB), *second = pool_alloc(h.pool, 6 * MIB);
            CHECK_OK(loch_free(h.pool, first));
            CHECK_OK(loch_free(h.pool, second));
            CHECK_OK(loch_device_sync(h.device));
        }
        CHECK_OK(loch_free(h.pool, pool_alloc(h.pool, MIB))); /* frees look at it: all streams have passed by now */
        const loch_pool_info info = pool_info(h.pool);
        assert_true(info.free_bytes <= 12 * MIB);
        pool_expect_whole(h.pool);
        CHECK_OK(loch_pool_set_idle(h.pool, 0));
        CHECK_OK(loch_free(h.pool, pool_alloc(h.pool, 64 * MIB)));
        assert_true(pool_info(h.pool).reserved_bytes >= 96 * MIB);
        half_close(&h);
    }
}

static void a_limit_set_below_gives_memory_back(void **state)
{
    (void)state;
    for (size_t d = 0; d < DEVICES; d++) {
        half h = half_open(devices[d]);
        CHECK_OK(loch_pool_set_limit(h.pool, 100 * MIB)); /* above: nothing happens */
        assert_int_equal(pool_info(h.pool).reserved_bytes, 64 * MIB);
        CHECK_OK(loch_pool_set_limit(h.pool, 48 * MIB)); /* what is above it goes */
        const size_t held = pool_info(h.pool).reserved_bytes;
        assert_true(held <= 48 * MIB && held >= 32 * MIB);
        CHECK_OK(loch_pool_set_limit(h.pool, 16 * MIB)); /* below what is in use: that stays */
        assert_int_equal(pool_info(h.pool).reserved_bytes, 32 * MIB);
        pool_expect_whole(h.pool);
        void *block = TEST_UNTOUCHED;
        CHECK_FAILS(loch_alloc(h.pool, 4 * MIB, &block), LIMIT);
        for (size_t i = 1; i < 7; i += 2) { /* and goes when it is freed */
            CHECK_OK(loch_free(h.pool, h.blocks[i]));
            CHECK_OK(loch_device_sync(h.device));
        }
        CHECK_OK(loch_pool_set_limit(h.pool, 16 * MIB));
        assert_true(pool_info(h.pool).reserved_bytes <= 16 * MIB);
        CHECK_OK(loch_free(h.pool, pool_alloc(h.pool, 4 * MIB)));
        CHECK_OK(loch_pool_set_limit(h.pool, 0));
        for (size_t i = 1; i < 7; i += 2) {
            h.blocks[i] = pool_alloc(h.pool, 8 * MIB);
            memset(h.blocks[i], (int)i, 8 * MIB);
        }
        half_close(&h);
    }
}

/* What is above the limit goes as it is freed, whatever the preset. */
static void frees_obey_a_limit(void **state)
{
    (void)state;
    for (int preset = LOCH_POOL_STANDARD; preset <= LOCH_POOL_WHOLE_BLOCKS; preset++) {
        loch_device *device = sim_open("cpu");
        const loch_pool_options options = {
            .size = sizeof options, .preset = (loch_pool_preset)preset, .handle_bytes = 2 * MIB};
        loch_allocator *pool = pool_make(device, &options);
        void *blocks[8];
        for (size_t i = 0; i < 8; i++)
            blocks[i] = pool_alloc(pool, 8 * MIB);
        CHECK_OK(loch_pool_set_limit(pool, 16 * MIB));
        assert_int_equal(pool_info(pool).reserved_bytes, 64 * MIB);
        for (size_t i = 0; i < 8; i++)
            CHECK_OK(loch_free(pool, blocks[i]));
        assert_true(pool_info(pool).reserved_bytes <= 16 * MIB);
        CHECK_OK(loch_free(pool, pool_alloc(pool, 12 * MIB)));
        pool_end(pool, device);
    }
}

static void peaks_are_kept_until_a_reset(void **state)
{
    (void)state;
    half h = half_open("sim:256MiB,granule=2MiB,backed");
    assert_int_equal(pool_info(h.pool).peak_reserved_bytes, 64 * MIB);
    (void)pool_trim(h.pool, 0);
    assert_int_equal(pool_info(h.pool).peak_reserved_bytes, 64 * MIB);
    assert_int_equal(pool_stats(h.pool).peak_blocks, 8);
    assert_int_equal(pool_stats(h.pool).peak_requested_bytes, 64 * MIB);
    CHECK_OK(loch_allocator_reset_stats(h.pool));
    assert_int_equal(pool_info(h.pool).peak_reserved_bytes, 32 * MIB);
    const loch_stats stats = pool_stats(h.pool);
    assert_int_equal(stats.peak_blocks, 4);
    assert_int_equal(stats.peak_requested_bytes, 32 * MIB);
    assert_int_equal(stats.largest_bytes, 0);
    assert_int_equal(stats.allocs, 0);
    assert_int_equal(stats.blocks, 4);
    CHECK_OK(loch_free(h.pool, pool_alloc(h.pool, 6 * MIB)));
    assert_int_equal(pool_info(h.pool).peak_reserved_bytes, 38 * MIB);
    assert_int_equal(pool_stats(h.pool).peak_requested_bytes, 38 * MIB);
    assert_int_equal(pool_stats(h.pool).largest_bytes, 6 * MIB);
    for (size_t i = 0; i < 8; i += 2)
        h.blocks[i] = NULL;
    for (size_t i = 1; i < 8; i += 2)
        CHECK_OK(loch_free(h.pool, h.blocks[i]));
    (void)pool_trim(h.pool, 0);
    loch_allocator_release(h.pool);
    loch_device_release(h.device);
}

/* Where every byte is: in blocks, free, waiting, or with a thread. */
static void figures_add_up(void **state)
{
    (void)state;
    loch_device *device = sim_open("sim:256MiB,granule=2MiB,clock=stepped,lag=1000");
    loch_stream *stream = sim_stream(device, LOCH_STREAM_INDEPENDENT);
    loch_allocator *pool = pool_make(device, NULL);
    char *used = pool_alloc(pool, 10 * MIB), *waiting = pool_alloc(pool, 6 * MIB), *kept = pool_alloc(pool, 4 * MIB);
    CHECK_OK(loch_allocator_record_use(pool, waiting, stream));
    CHECK_OK(sim_reads(stream, waiting, 6 * MIB));
    loch_pool_info info = pool_info(pool);
    assert_int_equal(info.used_bytes, 20 * MIB);
    assert_int_equal(info.streams, 2);
    CHECK_OK(loch_free(pool, waiting));
    CHECK_OK(loch_free(pool, kept));
    info = pool_info(pool);
    assert_int_equal(info.used_bytes, 10 * MIB);
    assert_int_equal(info.waiting_bytes, 6 * MIB);
    assert_int_equal(info.thread_bytes, 4 * MIB);
    assert_int_equal(info.reserved_bytes, info.used_bytes + info.free_bytes + info.waiting_bytes + info.thread_bytes);
    assert_int_equal(info.reserved_bytes, sim_stats(device).physical_bytes);
    assert_int_equal(info.handles, sim_stats(device).handles);
    CHECK_OK(loch_device_sync(device));
    (void)pool_trim(pool, TEST_GIB);
    info = pool_info(pool);
    assert_int_equal(info.waiting_bytes + info.thread_bytes, 0);
    assert_int_equal(info.reserved_bytes, info.used_bytes + info.free_bytes);
    assert_int_equal(info.reserved_bytes, 20 * MIB);
    char text[1024];
    assert_true(test_pool_print(pool, text, sizeof text) < sizeof text);
    assert_non_null(strstr(text, "held from the device: 20 MiB in"));
    CHECK_OK(loch_free(pool, used));
    loch_stream_close(stream);
    pool_end_sim(pool, device);
}

/* Trimming waits for what only streams keep; small blocks and large ones. */
static void trimming_waits_for_streams(void **state)
{
    (void)state;
    static const size_t sizes[] = {100, 5000, 100 << 10, 2 << 20, 9 << 20};
    loch_device *device = sim_open("sim:256MiB,granule=64KiB,clock=stepped,lag=1000");
    loch_allocator *pool = pool_make(device, NULL);
    loch_stream *stream = sim_stream(device, LOCH_STREAM_INDEPENDENT);
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        char *block = pool_alloc(pool, sizes[i]);
        CHECK_OK(sim_writes(loch_stream_get_default(device), block, sizes[i]));
        CHECK_OK(loch_allocator_record_use(pool, block, stream));
        pool_order(device, loch_stream_get_default(device), stream);
        CHECK_OK(sim_reads(stream, block, sizes[i]));
        CHECK_OK(loch_free(pool, block));
        assert_true(pool_trim(pool, 0) >= sizes[i]);
        assert_int_equal(pool_info(pool).reserved_bytes, 0);
        assert_int_equal(sim_violations(device, NULL), 0);
    }
    loch_stream_close(stream);
    pool_end_sim(pool, device);
}

/* A handle that blocks of two streams shared goes back when both are free. */
static void handles_shared_by_streams_go_back(void **state)
{
    (void)state;
    loch_device *device = sim_open("sim:256MiB,granule=2MiB,clock=stepped,lag=1000");
    loch_allocator *pool = pool_make(device, NULL);
    loch_stream *stream = sim_stream(device, LOCH_STREAM_INDEPENDENT);
    enum { COUNT = 16 };
    void *blocks[COUNT];
    for (size_t i = 0; i < COUNT; i++)
        blocks[i] = pool_alloc(pool, 100 * TEST_KIB + i % 2 * MIB / 2);
    for (size_t i = 0; i < COUNT; i++) {
        pool_order(device, loch_stream_get_default(device), stream);
        CHECK_OK(i % 3 ? loch_free(pool, blocks[i]) : loch_allocator_free_on(pool, blocks[i], stream));
    }
    assert_true(pool_info(pool).reserved_bytes > 0);
    (void)pool_trim(pool, 0);
    assert_int_equal(pool_info(pool).reserved_bytes, 0);
    loch_stream_close(stream);
    pool_end_sim(pool, device);
}

/* Whole blocks are handed out again as they are, and cut only when memory is short. */
static void whole_blocks_are_cut_only_when_memory_is_short(void **state)
{
    (void)state;
    loch_device *device = sim_open("sim:64MiB,granule=2MiB");
    const loch_pool_options options = {.size = sizeof options, .preset = LOCH_POOL_WHOLE_BLOCKS};
    loch_allocator *pool = pool_make(device, &options);
    char *large = pool_alloc(pool, 20 * MIB);
    CHECK_OK(loch_free(pool, large));
    char *little_less = pool_alloc(pool, 20 * MIB - 1000), *much_less = pool_alloc(pool, 18 * MIB);
    assert_ptr_equal(little_less, large);
    loch_block found = {.size = sizeof found};
    CHECK_OK(loch_allocator_find(pool, little_less, &found));
    assert_int_equal(found.allocated_bytes, 20 * MIB);
    assert_true(much_less < large || much_less >= large + 20 * MIB);
    CHECK_OK(loch_free(pool, little_less));
    CHECK_OK(loch_free(pool, much_less));
    char *other = pool_alloc(pool, 4 * MIB); /* less by more than 1 MiB: a new one */
    assert_true(other < large || other >= large + 20 * MIB);
    pool_expect_whole(pool);
    char *all = pool_alloc(pool, 54 * MIB); /* does not fit beside them */
    pool_expect_whole(pool);
    CHECK_OK(loch_free(pool, all));
    CHECK_OK(loch_free(pool, other));
    pool_end_sim(pool, device);
}

static void sizes_are_rounded_as_the_options_say(void **state)
{
    (void)state;
    loch_device *device = sim_open("sim:64MiB,granule=2MiB");
    const loch_pool_options options = {.size = sizeof options, .round_bytes = 2 * MIB, .handle_bytes = 3 * MIB};
    loch_allocator *pool = pool_make(device, &options);
    loch_block found = {.size = sizeof found};
    void *block = pool_alloc(pool, 2 * MIB + 1);
    CHECK_OK(loch_allocator_find(pool, block, &found));
    assert_int_equal(found.requested_bytes, 2 * MIB + 1);
    assert_int_equal(found.allocated_bytes, 4 * MIB);
    assert_int_equal(pool_info(pool).handles, 1); /* of 4 MiB: up to granules */
    CHECK_OK(loch_allocator_free_sized(pool, block, 2 * MIB + 1));
    pool_end_sim(pool, device);
}

/* Returns how many pages of a block have memory. */
static size_t count_pages(void *address, size_t bytes)
{
    unsigned char has_memory[1024];
    const size_t page = (size_t)sysconf(_SC_PAGESIZE), skipped = -(uintptr_t)address & (page - 1);
    const size_t pages = (bytes - skipped) / page;
    assert_true(pages <= sizeof has_memory);
    assert_int_equal(mincore((char *)address + skipped, pages * page, has_memory), 0);
    size_t count = 0;
    for (size_t i = 0; i < pages; i++)
        count += has_memory[i] & 1;
    return count;
}

static void a_trim_gives_the_pages_between_live_blocks_back(void **state)
{
    (void)state;
    enum { BLOCKS = 64 };
    const size_t bytes = 256 << 10;
    loch_device *device = sim_open("cpu");
    loch_allocator *pool = pool_make(device, NULL);
    char *blocks[BLOCKS];
    for (size_t i = 0; i < BLOCKS; i++)
        memset(blocks[i] = pool_alloc(pool, bytes), (int)i + 1, bytes);
    for (size_t i = 0; i < BLOCKS; i += 2)
        CHECK_OK(loch_free(pool, blocks[i]));
    assert_int_equal(pool_trim(pool, SIZE_MAX), 0); /* nothing but the thread's cache */
    const loch_pool_info before = pool_info(pool);
    for (size_t i = 0; i < BLOCKS; i += 2)
        assert_true(count_pages(blocks[i], bytes) > 0);
    assert_int_equal(pool_trim(pool, before.free_bytes - 4 * bytes), 0); /* as much as is asked for, and no more */
    size_t left = 0;
    for (size_t i = 0; i < BLOCKS; i += 2)
        left += count_pages(blocks[i], bytes) > 0;
    assert_in_range(left, BLOCKS / 2 - 6, BLOCKS / 2 - 3);
    (void)pool_trim(pool, 0);
    for (size_t i = 0; i < BLOCKS; i += 2)
        assert_int_equal(count_pages(blocks[i], bytes), 0);
    pool_expect_whole(pool);
    const loch_pool_info after = pool_info(pool);
    assert_int_equal(after.used_bytes, before.used_bytes);
    assert_int_equal(after.reserved_bytes - after.free_bytes, before.reserved_bytes - before.free_bytes);
    for (size_t i = 1; i < BLOCKS; i += 2) {
        assert_int_equal(blocks[i][0], i + 1);
        assert_int_equal(blocks[i][bytes - 1], i + 1);
    }
    for (size_t i = 0; i < BLOCKS; i += 2)
        memset(blocks[i] = pool_alloc(pool, bytes), 7, bytes);
    for (size_t i = 0; i < BLOCKS; i++)
        CHECK_OK(loch_free(pool, blocks[i]));
    pool_end(pool, device);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        POOL_TEST(a_trim_keeps_what_it_was_told_to),
        POOL_TEST(a_trim_that_keeps_everything_merges_free_memory),
        POOL_TEST(small_blocks_stay_together_after_a_trim),
        POOL_TEST(an_arena_beside_a_free_handle_stays),
        POOL_TEST(an_idle_cap_gives_back_what_is_above_it),
        POOL_TEST(a_limit_set_below_gives_memory_back),
        POOL_TEST(frees_obey_a_limit),
        POOL_TEST(peaks_are_kept_until_a_reset),
        POOL_TEST(figures_add_up),
        POOL_TEST(trimming_waits_for_streams),
        POOL_TEST(handles_shared_by_streams_go_back),
        POOL_TEST(whole_blocks_are_cut_only_when_memory_is_short),
        POOL_TEST(sizes_are_rounded_as_the_options_say),
        POOL_TEST(a_trim_gives_the_pages_between_live_blocks_back),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

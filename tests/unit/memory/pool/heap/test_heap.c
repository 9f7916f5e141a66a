/* SPDX-License-Identifier: MIT */
/* Records of large blocks: epochs and requested sizes that are kept in few bytes, ids that share memory with links,
 * and leads from addresses to records. */
#include "memory/pool/state/record.h"
#include "pool_fixture.h"

#define GIB ((size_t)1 << 30)

static size_t requested_of(loch_allocator *pool, const void *address)
{
    loch_block block = {.size = sizeof block};
    CHECK_OK(loch_allocator_find(pool, address, &block));
    return block.requested_bytes;
}

static uint64_t id_of(loch_allocator *pool, const void *address)
{
    loch_block block = {.size = sizeof block};
    CHECK_OK(loch_allocator_find(pool, address, &block));
    return block.id;
}

/* --- epochs --- */

static void an_epoch_is_never_read_as_an_earlier_one(void **state)
{
    (void)state;
    const uint64_t wide = (uint64_t)1 << 32;
    const uint64_t freed[] = {1, 2, wide - 1, wide + 1, 3 * wide + 7};
    const uint64_t later[] = {0, 1, 1000, wide - 1, wide, wide + 5, 5 * wide};
    static pool_lane lane; /* static because it is large */
    pool_block block = {.lane = &lane};
    for (size_t i = 0; i < sizeof freed / sizeof *freed; i++)
        for (size_t j = 0; j < sizeof later / sizeof *later; j++) {
            lane.epoch = freed[i];
            lochi_pool_set_epoch(&block, freed[i]);
            lane.epoch += later[j];
            const uint64_t read = lochi_pool_epoch(&block);
            assert_true(read >= freed[i] && read <= lane.epoch);
            if (later[j] < wide) assert_true(read == freed[i]);
        }
    lochi_pool_set_epoch(&block, 0);
    assert_true(lochi_pool_epoch(&block) == 0); /* passed in every lane */
    lane.epoch = 2 * wide - 1;
    lochi_pool_begin_epoch(&lane);
    assert_true(lane.epoch == 2 * wide + 1); /* a record could not tell 2 * wide from 0 */
}

/* Two streams use one piece of memory in turn while their epochs pass 2^32. The simulated device finds uses without
 * order. */
static void streams_share_memory_while_epochs_grow_long(void **state)
{
    (void)state;
    loch_device *device = sim_open("sim:64MiB,granule=64KiB");
    const loch_pool_options options = {.size = sizeof options, .limit_bytes = 8 * TEST_MIB};
    loch_allocator *pool = pool_make(device, &options);
    loch_stream *streams[] = {sim_stream(device, LOCH_STREAM_INDEPENDENT), sim_stream(device, LOCH_STREAM_INDEPENDENT)};
    for (size_t i = 0; i < 2; i++)
        CHECK_OK(loch_free(pool, pool_alloc_on(pool, TEST_MIB, streams[i])));
    lochi_pool *inner = lochi_pool_of(pool);
    lochi_lock_take(&inner->lock);
    for (pool_lane *lane = inner->lanes; lane; lane = lane->next)
        lane->epoch = UINT32_MAX - 20;
    lochi_lock_drop(&inner->lock);
    for (size_t round = 0; round < 200; round++) {
        loch_stream *stream = streams[round / 3 % 2];
        void *address = pool_alloc_on(pool, 6 * TEST_MIB + round % 5 * 64 * TEST_KIB, stream);
        CHECK_OK(sim_writes(stream, address, 6 * TEST_MIB));
        CHECK_OK(sim_busy(stream, 100));
        CHECK_OK(loch_free(pool, address));
        pool_expect_whole(pool);
    }
    for (const pool_lane *lane = inner->lanes; lane; lane = lane->next)
        if (lane->stream == streams[0] || lane->stream == streams[1])
            assert_true(lane->epoch > UINT32_MAX); /* the test reached what it is about */
    CHECK_OK(loch_device_sync(device));
    for (size_t i = 0; i < 2; i++)
        loch_stream_close(streams[i]);
    pool_end_sim(pool, device);
}

/* --- requested sizes --- */

static void blocks_far_larger_than_requested_keep_the_size(void **state)
{
    (void)state;
    loch_device *device = sim_open("sim:64GiB");
    const loch_pool_options options = {.size = sizeof options, .round_bytes = 5 * GIB};
    loch_allocator *pool = pool_make(device, &options);
    const size_t sizes[] = {1, 5 * GIB - 1, 5 * GIB, GIB, GIB - 1, 5 * GIB - UINT32_MAX, 5 * GIB - UINT32_MAX + 1};
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        void *address = pool_alloc(pool, sizes[i]);
        assert_int_equal(requested_of(pool, address), sizes[i]);
        assert_int_equal(pool_stats(pool).requested_bytes, sizes[i]);
        CHECK_OK(loch_free(pool, address));
    }
    pool_end_sim(pool, device);
}

static void growable_blocks_keep_sizes_and_ids(void **state)
{
    (void)state;
    loch_device *device = sim_open("sim:64GiB");
    loch_allocator *pool = pool_make(device, NULL);
    const size_t sizes[] = {TEST_MIB, 11 * GIB, 12 * GIB - 1, 12 * GIB, 12 * GIB + 1, 3 * TEST_MIB, 16 * GIB, 0};
    void *blocks[3];
    uint64_t ids[3];
    for (size_t i = 0; i < 3; i++) {
        const loch_request request = {.size = sizeof request, .bytes = TEST_MIB};
        CHECK_OK(loch_pool_alloc_growable(pool, 16 * GIB, &request, &blocks[i]));
        ids[i] = id_of(pool, blocks[i]);
    }
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        CHECK_OK(loch_pool_resize_growable(pool, blocks[1], sizes[i]));
        if (sizes[i]) assert_int_equal(requested_of(pool, blocks[1]), sizes[i]);
        pool_expect_whole(pool);
    }
    static const size_t order[] = {1, 2, 0}; /* from the middle of the list, its front and its end */
    for (size_t i = 0; i < 3; i++) {
        for (size_t k = i; k < 3; k++)
            assert_int_equal(id_of(pool, blocks[order[k]]), ids[order[k]]);
        CHECK_OK(loch_free(pool, blocks[order[i]]));
        pool_expect_whole(pool);
    }
    pool_end_sim(pool, device);
}

/* --- ids --- */

static void a_block_cut_from_a_bin_has_a_new_id(void **state)
{
    (void)state;
    loch_device *device = sim_open("sim:1GiB");
    loch_allocator *pool = pool_make(device, NULL);
    uint64_t last = 0;
    for (size_t round = 0; round < 20; round++) {
        void *blocks[8];
        for (size_t i = 0; i < 8; i++)
            blocks[i] = pool_alloc(pool, (300 + 100 * (i + round) % 7) * TEST_KIB);
        for (size_t i = 0; i < 8; i++) {
            const uint64_t id = id_of(pool, blocks[i]);
            assert_true(id > last); /* never a link of the bin that the block came from */
            assert_true(id <= 8 * (round + 1));
            assert_int_equal(id_of(pool, blocks[i]), id);
            last = id;
        }
        for (size_t i = 0; i < 8; i++)
            CHECK_OK(loch_free(pool, blocks[(i * 3) % 8]));
        pool_expect_whole(pool);
    }
    pool_end_sim(pool, device);
}

/* --- leads --- */

/* Blocks whose starts share a lead: frees of all of them find their own block, and nothing else is freed. */
static void blocks_that_share_a_lead_are_freed_each(void **state)
{
    (void)state;
    static const size_t sizes[] = {10 * TEST_KIB, 300 * TEST_KIB, 700 * TEST_KIB, 5 * TEST_MIB};
    loch_device *device = sim_open("sim:1GiB");
    for (size_t s = 0; s < sizeof sizes / sizeof *sizes; s++)
        for (size_t step = 1; step < 13; step += 2) {
            loch_allocator *pool = pool_make(device, NULL);
            char *blocks[12];
            for (size_t i = 0; i < 12; i++)
                blocks[i] = pool_alloc(pool, sizes[s] + i * 512);
            for (size_t i = 0; i < 12; i++) {
                char *block = blocks[i * step % 12]; /* each one, or one in three if 3 divides the step */
                if (!block) continue;
                CHECK_FAILS(loch_free(pool, block + 512), INTERIOR);
                CHECK_FAILS(loch_free(pool, block + sizes[s] / 2), INTERIOR);
                CHECK_OK(loch_free(pool, block));
                CHECK_FAILS(loch_free(pool, block), DOUBLE_FREE);
                blocks[i * step % 12] = NULL;
                pool_expect_whole(pool);
            }
            for (size_t i = 0; i < 12; i++)
                CHECK_OK(loch_free(pool, blocks[i]));
            pool_expect_empty(pool);
            loch_allocator_release(pool);
        }
    loch_device_release(device);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        POOL_TEST(an_epoch_is_never_read_as_an_earlier_one),
        POOL_TEST(streams_share_memory_while_epochs_grow_long),
        POOL_TEST(blocks_far_larger_than_requested_keep_the_size),
        POOL_TEST(growable_blocks_keep_sizes_and_ids),
        POOL_TEST(a_block_cut_from_a_bin_has_a_new_id),
        POOL_TEST(blocks_that_share_a_lead_are_freed_each),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

/* SPDX-License-Identifier: MIT */
/* Blocks at given addresses, pools on a source, and blocks that are segments, on a real GPU. */
#include "memory/pool/report/check.h"
#include "cuda_fixture.h"

#define SLOTS 200

typedef struct block {
    char *address;
    size_t bytes;
    unsigned char value;
} block;

static void expect_whole(loch_allocator *pool)
{
    const char *wrong = lochi_pool_check(lochi_pool_of(pool));
    if (wrong) fail_msg("%s", wrong);
}

static void put(loch_allocator *pool, loch_stream *stream, block *b, void *address)
{
    const loch_request request = {.size = sizeof request, .bytes = b->bytes, .stream = stream, .address = address};
    void *at;
    CHECK_OK(loch_allocator_alloc(pool, &request, &at));
    if (address) assert_ptr_equal(at, address);
    b->address = at;
    b->value = (unsigned char)test_random_next(&randomness);
    CHECK_OK(loch_fill_on(at, b->bytes, &b->value, 1, stream));
}

static void expect(const block *b)
{
    unsigned char ends[2];
    CHECK_OK(loch_copy(&ends[0], b->address, 1));
    CHECK_OK(loch_copy(&ends[1], b->address + b->bytes - 1, 1));
    assert_int_equal(ends[0], b->value);
    assert_int_equal(ends[1], b->value);
}

static loch_status add_bytes(const loch_memory_piece *piece, void *user)
{
    *(size_t *)user += piece->bytes;
    return LOCH_OK;
}

/* Checks that the pieces cover the memory of a pool. Drivers do not align raw segments: the pool takes up to one cell
 * more for each, and leaves the edges out. */
static void expect_pieces(loch_allocator *pool, bool is_aligned)
{
    loch_pool_info info = {.size = sizeof info};
    size_t bytes = 0;
    CHECK_OK(loch_pool_walk_memory(pool, add_bytes, &bytes));
    CHECK_OK(loch_pool_get_info(pool, &info));
    const size_t edges_max = is_aligned ? 0 : info.handles * lochi_pool_of(pool)->cell_bytes;
    assert_in_range(bytes, info.reserved_bytes - edges_max, info.reserved_bytes);
}

/* The live set of a pool comes back at its addresses, in a pool of graphs also while its stream is captured. */
static void a_live_set_comes_back(void **state)
{
    (void)state;
    for (size_t round = 0; round < 3; round++) {
        const bool is_captured = round == 2;
        const loch_pool_options options = {.size = sizeof options,
                                           .captures = round ? LOCH_POOL_CAPTURES_SHARED : LOCH_POOL_CAPTURES_WATCHED};
        loch_allocator *pool;
        loch_stream *stream;
        void *graph = NULL, *context;
        block blocks[SLOTS] = {{0}};
        assert_int_equal(caller.cuDevicePrimaryCtxRetain(&context, 0), 0);
        assert_int_equal(caller.cuCtxSetCurrent(context), 0);
        CHECK_OK(loch_pool_create(device, "exact", &options, &pool));
        CHECK_OK(loch_stream_create(device, NULL, &stream));
        if (is_captured) assert_int_equal(caller.cuStreamBeginCapture_v2(loch_stream_get_native(stream), 0), 0);
        for (size_t i = 0; i < SLOTS; i++) {
            blocks[i].bytes = 1 + test_random_below(&randomness, (size_t)1 << (4 + test_random_below(&randomness, 19)));
            put(pool, stream, &blocks[i], NULL);
        }
        for (size_t i = 0; i < SLOTS; i++)
            if (i % 4) CHECK_OK(loch_free(pool, blocks[i].address));
        for (size_t i = SLOTS; i--;)
            if (i % 4) put(pool, stream, &blocks[i], blocks[i].address);
        if (is_captured) assert_int_equal(caller.cuStreamEndCapture(loch_stream_get_native(stream), &graph), 0);
        if (!is_captured) CHECK_OK(loch_stream_sync(stream)); /* what is read is read on another stream */
        expect_whole(pool);
        expect_pieces(pool, true);
        for (size_t i = 0; i < SLOTS; i++) {
            if (!is_captured) expect(&blocks[i]);
            CHECK_OK(loch_free(pool, blocks[i].address));
        }
        if (graph) assert_int_equal(caller.cuGraphDestroy(graph), 0);
        loch_allocator_release(pool);
        loch_stream_close(stream);
        assert_int_equal(caller.cuCtxSetCurrent(NULL), 0);
        assert_int_equal(caller.cuDevicePrimaryCtxRelease_v2(0), 0);
    }
}

/* Pools on a direct allocator and on another pool, and pools in which every block is a segment. */
static void pools_work_on_any_memory(void **state)
{
    (void)state;
    for (size_t kind = 0; kind < 4; kind++) {
        loch_allocator *source = NULL, *pool;
        loch_stream *streams[2];
        if (kind == 0) CHECK_OK(loch_direct_create(device, "direct", NULL, &source));
        if (kind == 1) CHECK_OK(loch_pool_create(device, "below", NULL, &source));
        const loch_pool_options options = {.size = sizeof options,
                                           .source = source,
                                           .preset = kind >= 2 ? LOCH_POOL_NO_SPLIT : LOCH_POOL_STANDARD,
                                           .kind = kind == 3 ? LOCH_MEMORY_PINNED : LOCH_MEMORY_DEVICE};
        CHECK_OK(loch_pool_create(device, "above", &options, &pool));
        for (size_t i = 0; i < 2; i++)
            CHECK_OK(loch_stream_create(device, NULL, &streams[i]));
        for (size_t round = 0; round < 3; round++) {
            block blocks[60];
            for (size_t i = 0; i < 60; i++) {
                blocks[i].bytes = (i + 1) * (i + 1) * 3000;
                put(pool, streams[i % 2], &blocks[i], NULL);
            }
            expect_whole(pool);
            expect_pieces(pool, kind == 1); /* a pool aligns blocks as it is asked */
            for (size_t i = 0; i < 60; i++)
                CHECK_OK(loch_stream_sync(streams[i % 2]));
            for (size_t i = 0; i < 60; i++) {
                expect(&blocks[i]);
                CHECK_OK(loch_free(pool, blocks[i].address));
            }
        }
        loch_pool_info info = {.size = sizeof info};
        CHECK_OK(loch_allocator_trim(pool, 0, NULL));
        CHECK_OK(loch_pool_get_info(pool, &info));
        assert_int_equal(info.reserved_bytes, 0);
        for (size_t i = 0; i < 2; i++)
            loch_stream_close(streams[i]);
        loch_allocator_release(pool);
        loch_allocator_release(source);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_live_set_comes_back),
        cmocka_unit_test(pools_work_on_any_memory),
    };
    return CUDA_RUN(tests);
}

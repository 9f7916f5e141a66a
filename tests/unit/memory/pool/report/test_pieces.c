/* SPDX-License-Identifier: MIT */
/* The walk over the memory of a pool: pieces tile the ranges, and each one says what the pool says of it elsewhere. */
#include "pool_fixture.h"

#define SIM "sim:256MiB,granule=64KiB,backed"
#define RAW "sim:256MiB,backed,virtual=off"
#define PIECES 20000

static const char *const devices[] = {"cpu", SIM, RAW, SIM ",alias=off"};
#define DEVICES (sizeof devices / sizeof *devices)

/* --- lists of pieces --- */

typedef struct list {
    loch_memory_piece pieces[PIECES];
    size_t count;
} list;

static list all;

static loch_status keep(const loch_memory_piece *piece, void *user)
{
    list *to = user;
    if (to->count == PIECES) return LOCH_E_OUT_OF_RANGE;
    to->pieces[to->count++] = *piece;
    return LOCH_OK;
}

/* Takes the pieces of a pool, and checks what holds for all of them. Returns the bytes in all ranges. */
static size_t look(loch_allocator *pool)
{
    size_t bytes = 0;
    all.count = 0;
    CHECK_OK(loch_pool_walk_memory(pool, keep, &all));
    for (size_t i = 0; i < all.count; i++) {
        const loch_memory_piece *p = &all.pieces[i], *before = i ? p - 1 : NULL;
        const uintptr_t start = (uintptr_t)p->address, range = (uintptr_t)p->range_address;
        const bool is_new = !before || before->range_address != p->range_address;
        assert_true(p->bytes > 0);
        assert_true(start >= range && start + p->bytes <= range + p->range_bytes);
        if (before) assert_true(start >= (uintptr_t)before->address + before->bytes);
        if (is_new && before) /* the range before is full */
            assert_true((uintptr_t)before->address + before->bytes ==
                        (uintptr_t)before->range_address + before->range_bytes);
        if (is_new) assert_int_equal(start, range);
        if (!is_new) assert_int_equal(start, (uintptr_t)before->address + before->bytes);
        if (!is_new) assert_int_equal(p->range_bytes, before->range_bytes);
        if (p->state == LOCH_PIECE_FREE || p->state == LOCH_PIECE_WAITING) {
            assert_int_equal(p->requested_bytes, 0);
            assert_int_equal(p->tag, 0);
            assert_int_equal(p->id, 0);
        }
        if (is_new) bytes += p->range_bytes;
    }
    if (all.count) {
        const loch_memory_piece *last = &all.pieces[all.count - 1];
        assert_true((uintptr_t)last->address + last->bytes == (uintptr_t)last->range_address + last->range_bytes);
    }
    return bytes;
}

/* The piece around an address; NULL for none. */
static const loch_memory_piece *piece_at(const void *address)
{
    for (size_t i = 0; i < all.count; i++) {
        const loch_memory_piece *p = &all.pieces[i];
        if ((uintptr_t)address >= (uintptr_t)p->address && (uintptr_t)address < (uintptr_t)p->address + p->bytes)
            return p;
    }
    return NULL;
}

static void expect(const void *address, loch_piece_state state, size_t requested)
{
    const loch_memory_piece *p = piece_at(address);
    assert_non_null(p);
    if (p->state != state) fail_msg("a piece of %zu bytes has state %d, not %d", p->bytes, (int)p->state, (int)state);
    assert_int_equal(p->requested_bytes, requested);
    if (requested) assert_ptr_equal(p->address, address);
}

/* --- what a piece says --- */

static void blocks_and_free_memory_are_pieces(void **state)
{
    (void)state;
    static const size_t sizes[] = {1, 100, 8192, 9000, 70000, 300000, 5 << 20};
    enum { SIZES = sizeof sizes / sizeof *sizes };
    loch_tag tag;
    CHECK_OK(loch_tag_create("pieces", &tag));
    for (size_t d = 0; d < DEVICES; d++) {
        loch_device *device = sim_open(devices[d]);
        loch_allocator *pool = pool_make(device, NULL);
        assert_int_equal(look(pool), 0);
        assert_int_equal(all.count, 0);
        void *blocks[SIZES], *freed[SIZES];
        for (size_t i = 0; i < SIZES; i++) {
            const loch_request request = {.size = sizeof request, .bytes = sizes[i], .tag = i % 2 ? tag : 0};
            CHECK_OK(loch_allocator_alloc(pool, &request, &blocks[i]));
            freed[i] = pool_alloc(pool, sizes[i]);
        }
        for (size_t i = 0; i < SIZES; i++)
            CHECK_OK(loch_free(pool, freed[i]));
        assert_int_equal(look(pool), pool_info(pool).reserved_bytes);
        for (size_t i = 0; i < SIZES; i++) {
            loch_block found = {.size = sizeof found};
            expect(blocks[i], LOCH_PIECE_USED, sizes[i]);
            const loch_memory_piece p = *piece_at(blocks[i]);
            CHECK_OK(loch_allocator_find(pool, blocks[i], &found));
            assert_int_equal(p.bytes, found.allocated_bytes);
            assert_int_equal(p.tag, i % 2 ? tag : 0);
            assert_int_equal(p.stream_id, found.stream_id);
            if (sizes[i] > 8192) assert_int_equal(p.id, found.id);
            expect(freed[i], LOCH_PIECE_FREE, 0);
        }
        (void)look(pool); /* now the small ones have ids as well */
        for (size_t i = 0; i < SIZES; i++) {
            loch_block found = {.size = sizeof found};
            CHECK_OK(loch_allocator_find(pool, blocks[i], &found));
            assert_int_equal(piece_at(blocks[i])->id, found.id);
            CHECK_OK(loch_free(pool, blocks[i]));
        }
        pool_end(pool, device);
    }
}

/* Freed blocks wait for the streams that were recorded for them. */
static void blocks_that_streams_still_use_wait(void **state)
{
    (void)state;
    for (size_t is_raw = 0; is_raw < 2; is_raw++) {
        pool_bench bench = pool_bench_open(is_raw ? RAW ",clock=stepped" : SIM ",clock=stepped", NULL);
        void *small = pool_alloc_on(bench.pool, 500, bench.a), *large = pool_alloc_on(bench.pool, 1 << 20, bench.a);
        void *stays = pool_alloc_on(bench.pool, 500, bench.a);
        CHECK_OK(sim_busy(bench.b, 1000000));
        CHECK_OK(loch_allocator_record_use(bench.pool, small, bench.b));
        CHECK_OK(loch_allocator_record_use(bench.pool, large, bench.b));
        CHECK_OK(loch_free(bench.pool, small));
        CHECK_OK(loch_free(bench.pool, large));
        (void)look(bench.pool);
        expect(small, LOCH_PIECE_WAITING, 0);
        expect(large, LOCH_PIECE_WAITING, 0);
        expect(stays, LOCH_PIECE_USED, 500);
        assert_ptr_equal(piece_at(small)->address, small);
        assert_int_equal(piece_at(large)->stream_id, loch_stream_get_id(bench.a));
        CHECK_OK(loch_device_sync(bench.device));
        (void)pool_trim(bench.pool, SIZE_MAX); /* looks at the events */
        (void)look(bench.pool);
        expect(small, LOCH_PIECE_FREE, 0);
        CHECK_OK(loch_free(bench.pool, stays));
        pool_bench_close(&bench);
    }
}

static void pieces_of_two_streams_are_apart(void **state)
{
    (void)state;
    pool_bench bench = pool_bench_open(SIM, NULL);
    void *a = pool_alloc_on(bench.pool, 3 << 20, bench.a), *b = pool_alloc_on(bench.pool, 3 << 20, bench.b);
    CHECK_OK(loch_free(bench.pool, a));
    CHECK_OK(loch_free(bench.pool, b));
    (void)look(bench.pool);
    expect(a, LOCH_PIECE_FREE, 0);
    expect(b, LOCH_PIECE_FREE, 0);
    assert_int_equal(piece_at(a)->stream_id, loch_stream_get_id(bench.a));
    assert_int_equal(piece_at(b)->stream_id, loch_stream_get_id(bench.b));
    pool_bench_close(&bench);
}

/* Memory given back between two blocks is a hole: two ranges. */
static void a_hole_ends_a_range(void **state)
{
    (void)state;
    pool_bench bench =
        pool_bench_open(SIM, &(loch_pool_options){.size = sizeof(loch_pool_options), .handle_bytes = TEST_MIB});
    void *blocks[3];
    for (size_t i = 0; i < 3; i++)
        blocks[i] = pool_alloc(bench.pool, 4 << 20);
    (void)look(bench.pool);
    assert_ptr_equal(piece_at(blocks[0])->range_address, piece_at(blocks[2])->range_address);
    CHECK_OK(loch_free(bench.pool, blocks[1]));
    CHECK_OK(loch_device_sync(bench.device));
    assert_true(pool_trim(bench.pool, 0) > 0);
    assert_int_equal(look(bench.pool), pool_info(bench.pool).reserved_bytes);
    assert_null(piece_at(blocks[1]));
    assert_ptr_not_equal(piece_at(blocks[0])->range_address, piece_at(blocks[2])->range_address);
    CHECK_OK(loch_free(bench.pool, blocks[0]));
    CHECK_OK(loch_free(bench.pool, blocks[2]));
    pool_bench_close(&bench);
}

static void each_segment_is_a_range(void **state)
{
    (void)state;
    pool_bench bench = pool_bench_open(RAW, NULL);
    void *blocks[3];
    size_t ranges = 0;
    for (size_t i = 0; i < 3; i++)
        blocks[i] = pool_alloc(bench.pool, 20 << 20);
    (void)look(bench.pool);
    for (size_t i = 0; i < all.count; i++)
        ranges += !i || all.pieces[i].range_address != all.pieces[i - 1].range_address;
    assert_int_equal(ranges, pool_info(bench.pool).handles);
    for (size_t i = 0; i < 3; i++)
        CHECK_OK(loch_free(bench.pool, blocks[i]));
    pool_bench_close(&bench);
}

static void a_growable_block_is_a_piece_as_far_as_it_has_memory(void **state)
{
    (void)state;
    pool_bench bench = pool_bench_open(SIM, NULL);
    const loch_request request = {.size = sizeof request, .bytes = 100000};
    void *block, *other = pool_alloc(bench.pool, 100000);
    CHECK_OK(loch_pool_alloc_growable(bench.pool, 8 << 20, &request, &block));
    assert_int_equal(look(bench.pool), pool_info(bench.pool).reserved_bytes);
    expect(block, LOCH_PIECE_USED, 100000);
    assert_int_equal(piece_at(block)->bytes, 128 << 10);
    CHECK_OK(loch_pool_resize_growable(bench.pool, block, 0));
    CHECK_OK(loch_device_sync(bench.device));
    (void)pool_trim(bench.pool, 0);
    assert_int_equal(look(bench.pool), pool_info(bench.pool).reserved_bytes);
    CHECK_OK(loch_free(bench.pool, block));
    CHECK_OK(loch_free(bench.pool, other));
    pool_bench_close(&bench);
}

static void sleeping_memory_stays_in_its_range(void **state)
{
    (void)state;
    pool_bench bench = pool_bench_open(SIM, NULL);
    void *small = pool_alloc(bench.pool, 100), *large = pool_alloc(bench.pool, 3 << 20);
    void *freed = pool_alloc(bench.pool, 3 << 20);
    const loch_memory_piece before = (look(bench.pool), *piece_at(large));
    CHECK_OK(loch_free(bench.pool, freed));
    const loch_sleep_options drop = {.size = sizeof drop, .contents = LOCH_SLEEP_DROP};
    CHECK_OK(loch_pool_sleep(bench.pool, &drop, NULL));
    const loch_pool_info info = pool_info(bench.pool);
    assert_true(info.asleep_bytes > 0);
    assert_int_equal(look(bench.pool), info.reserved_bytes + info.asleep_bytes);
    expect(small, LOCH_PIECE_ASLEEP, 100);
    expect(large, LOCH_PIECE_ASLEEP, 3 << 20);
    assert_int_equal(piece_at(large)->id, before.id);
    CHECK_OK(loch_pool_wake(bench.pool, NULL));
    (void)look(bench.pool);
    expect(small, LOCH_PIECE_USED, 100);
    CHECK_OK(loch_free(bench.pool, small));
    CHECK_OK(loch_free(bench.pool, large));
    pool_bench_close(&bench);
}

static void the_range_of_a_child_is_a_used_piece(void **state)
{
    (void)state;
    pool_bench bench = pool_bench_open(SIM, NULL);
    const loch_child_options options = {.size = sizeof options, .kind = LOCH_CHILD_RANGE, .limit_bytes = 1 << 20};
    loch_allocator *child;
    CHECK_OK(loch_pool_create_child(bench.pool, "child", &options, &child));
    void *block = pool_alloc(child, 5000), *large = pool_alloc(child, 100000);
    assert_int_equal(look(child), 1 << 20);
    expect(block, LOCH_PIECE_USED, 5000);
    expect(large, LOCH_PIECE_USED, 100000);
    void *range = piece_at(block)->range_address;
    assert_int_equal(look(bench.pool), pool_info(bench.pool).reserved_bytes);
    expect(range, LOCH_PIECE_USED, 1 << 20);
    assert_ptr_equal(piece_at(block)->address, range); /* no block of the child */
    CHECK_OK(loch_free(child, block));
    CHECK_OK(loch_free(child, large));
    loch_allocator_release(child);
    pool_bench_close(&bench);
}

/* --- visitors --- */

typedef struct meddler {
    loch_allocator *pool;
    void *block;
    size_t calls;
} meddler;

static loch_status meddle(const loch_memory_piece *piece, void *user)
{
    meddler *m = user;
    (void)piece;
    m->calls++;
    LOCH_CHECK(loch_free(m->pool, m->block));
    m->block = NULL;
    LOCH_CHECK(loch_alloc(m->pool, 100 + m->calls, &m->block));
    LOCH_CHECK(loch_allocator_trim(m->pool, 0, NULL));
    return LOCH_OK;
}

static loch_status stop_at_third(const loch_memory_piece *piece, void *user)
{
    (void)piece;
    return ++*(int *)user == 3 ? LOCH_E_NOT_FOUND : LOCH_OK;
}

static void a_visitor_may_use_the_pool_and_end_the_walk(void **state)
{
    (void)state;
    for (size_t d = 0; d < DEVICES; d++) {
        loch_device *device = sim_open(devices[d]);
        loch_allocator *pool = pool_make(device, NULL);
        meddler m = {.pool = pool, .block = pool_alloc(pool, 100)};
        void *large = pool_alloc(pool, 1 << 20), *other = pool_alloc(pool, 20000);
        CHECK_OK(loch_pool_walk_memory(pool, meddle, &m));
        assert_true(m.calls >= 3);
        int calls = 0;
        assert_int_equal(loch_pool_walk_memory(pool, stop_at_third, &calls), LOCH_E_NOT_FOUND);
        assert_int_equal(calls, 3);
        CHECK_OK(loch_free(pool, m.block));
        CHECK_OK(loch_free(pool, large));
        CHECK_OK(loch_free(pool, other));
        pool_end(pool, device);
    }
}

static void wrong_calls_are_refused(void **state)
{
    (void)state;
    loch_device *device = sim_open(SIM);
    loch_allocator *pool = pool_make(device, NULL), *direct, *wrapper;
    CHECK_OK(loch_direct_create(device, NULL, NULL, &direct));
    CHECK_OK(loch_tracking_create(pool, NULL, NULL, &wrapper));
    CHECK_FAILS(loch_pool_walk_memory(NULL, keep, &all), INVALID);
    CHECK_FAILS(loch_pool_walk_memory(direct, keep, &all), INVALID);
    CHECK_FAILS(loch_pool_walk_memory(pool, NULL, NULL), INVALID);
    void *block = pool_alloc(wrapper, 1000);
    assert_true(look(wrapper) > 0); /* looks through wrappers */
    CHECK_OK(loch_free(wrapper, block));
    loch_allocator_release(wrapper);
    loch_allocator_release(direct);
    pool_end(pool, device);
}

/* --- random programs --- */

#define SLOTS 200
#define STEPS 3000

/* After each few calls, the used pieces are the live blocks. */
static void used_pieces_are_the_live_blocks(void **state)
{
    (void)state;
    test_random random = {test_seed(7)};
    for (size_t d = 0; d < DEVICES; d++) {
        pool_bench bench = pool_bench_open(devices[d], NULL);
        struct {
            void *address;
            size_t bytes;
        } blocks[SLOTS] = {{0}};
        for (size_t step = 0; step < STEPS; step++) {
            const size_t slot = test_random_below(&random, SLOTS);
            loch_stream *stream = bench.streams[test_random_below(&random, 3)];
            if (!blocks[slot].address) {
                blocks[slot].bytes = 1 + test_random_below(&random, (size_t)1 << (4 + test_random_below(&random, 17)));
                blocks[slot].address = pool_alloc_on(bench.pool, blocks[slot].bytes, stream);
            } else {
                if (test_random_below(&random, 2))
                    CHECK_OK(loch_allocator_record_use(bench.pool, blocks[slot].address, stream));
                CHECK_OK(loch_free(bench.pool, blocks[slot].address));
                blocks[slot].address = NULL;
            }
            if (step % 500 == 250) (void)pool_trim(bench.pool, 0);
            if (step % 50) continue;
            assert_int_equal(look(bench.pool), pool_info(bench.pool).reserved_bytes);
            size_t used = 0, waiting = 0, live = 0;
            for (size_t i = 0; i < all.count; i++) {
                used += all.pieces[i].state == LOCH_PIECE_USED;
                if (all.pieces[i].state == LOCH_PIECE_WAITING) waiting += all.pieces[i].bytes;
            }
            for (size_t i = 0; i < SLOTS; i++)
                if (blocks[i].address) {
                    expect(blocks[i].address, LOCH_PIECE_USED, blocks[i].bytes);
                    live++;
                }
            assert_int_equal(used, live);
            assert_int_equal(waiting, pool_info(bench.pool).waiting_bytes);
        }
        for (size_t i = 0; i < SLOTS; i++)
            CHECK_OK(loch_free(bench.pool, blocks[i].address));
        CHECK_OK(loch_device_sync(bench.device));
        pool_bench_close(&bench);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        POOL_TEST(blocks_and_free_memory_are_pieces),
        POOL_TEST(blocks_that_streams_still_use_wait),
        POOL_TEST(pieces_of_two_streams_are_apart),
        POOL_TEST(a_hole_ends_a_range),
        POOL_TEST(each_segment_is_a_range),
        POOL_TEST(a_growable_block_is_a_piece_as_far_as_it_has_memory),
        POOL_TEST(sleeping_memory_stays_in_its_range),
        POOL_TEST(the_range_of_a_child_is_a_used_piece),
        POOL_TEST(a_visitor_may_use_the_pool_and_end_the_walk),
        POOL_TEST(wrong_calls_are_refused),
        POOL_TEST(used_pieces_are_the_live_blocks),
    };
    return cmocka_run_group_tests_name("pieces of a pool", tests, NULL, NULL);
}

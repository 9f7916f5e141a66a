/* SPDX-License-Identifier: MIT */
/* The fast path of what is more than an allocation or a free: zeroed and aligned requests, look-ups of sizes, whole
 * descriptions, and resizes. They take no lock, tell the truth, count right, and leave wrong addresses, tags, further
 * streams, sessions and frozen blocks to the slow path. */
#include "pool_fixture.h"
#include "worker.h"
#include "memory/pool/state/record.h"
#include <loch/moving.h>
#include <loch/session.h>
#include <loch/wrapper.h>
#include <pthread.h>
#include <sched.h>
#include <string.h>

#define SECOND_NS UINT64_C(1000000000)
#define SMALL 500
#define SMALL_NEAR 400 /* stays in place */
#define SMALL_FAR 2000
#define LARGE 20000
#define LARGE_NEAR 19990

static const char *const devices[] = {"cpu", "sim:256MiB,granule=64KiB,backed", "sim:256MiB,virtual=off"};
#define DEVICES (sizeof devices / sizeof *devices)

static loch_tag make_tag(const char *name)
{
    loch_tag tag;
    CHECK_OK(loch_tag_create(name, &tag));
    return tag;
}

static loch_block describe(loch_allocator *pool, const void *block)
{
    loch_block found = {.size = sizeof found};
    CHECK_OK(loch_allocator_find(pool, block, &found));
    return found;
}

/* Looks up the sizes alone; members behind them are not touched. */
static loch_block measure(loch_allocator *pool, const void *block)
{
    loch_block found = {.size = offsetof(loch_block, id), .id = 12345, .stream_id = 67890};
    CHECK_OK(loch_allocator_find(pool, block, &found));
    assert_int_equal(found.id, 12345);
    assert_int_equal(found.stream_id, 67890);
    assert_ptr_equal(found.address, block);
    return found;
}

static void *resize(loch_allocator *pool, void *block, size_t bytes, loch_stream *stream)
{
    void *moved;
    CHECK_OK(loch_allocator_realloc(pool, block, bytes, stream, &moved));
    return moved;
}

/* --- without the lock --- */

typedef struct short_calls {
    loch_allocator *pool;
    atomic_int turn; /* 0: the thread fills its caches; 1: it waits; 2: it calls; 3: it is done */
    char failure[400];
} short_calls;

static void calls_once(short_calls *w)
{
    const bool is_host = lochi_pool_of(w->pool)->is_host;
    const loch_request zeroed = {.size = sizeof zeroed, .bytes = SMALL, .flags = is_host ? LOCH_ALLOC_ZEROED : 0};
    const loch_request aligned = {.size = sizeof aligned, .bytes = SMALL, .alignment = 64};
    loch_block all = {.size = sizeof all}, sizes = {.size = offsetof(loch_block, id)};
    void *a, *b, *c;
    TRY(loch_allocator_alloc(w->pool, &zeroed, &a));
    TRY(loch_allocator_alloc(w->pool, &aligned, &b));
    TRY(loch_alloc(w->pool, LARGE, &c));
    TRY(loch_allocator_find(w->pool, a, &sizes));
    EXPECT(sizes.requested_bytes == SMALL);
    TRY(loch_allocator_find(w->pool, c, &sizes));
    EXPECT(sizes.requested_bytes == LARGE);
    TRY(loch_allocator_find(w->pool, a, &all));
    EXPECT(all.requested_bytes == SMALL && all.id);
    TRY(loch_allocator_find(w->pool, c, &all));
    EXPECT(all.requested_bytes == LARGE && all.id);
    TRY(loch_allocator_realloc(w->pool, a, SMALL_NEAR, NULL, &a));
    if (is_host) TRY(loch_allocator_realloc(w->pool, a, SMALL_FAR, NULL, &a));
    TRY(loch_free(w->pool, a));
    TRY(loch_free(w->pool, b));
    TRY(loch_free(w->pool, c));
}

static void *calls_run(void *arg)
{
    short_calls *w = arg;
    for (int i = 0; i < 3 && !w->failure[0]; i++)
        calls_once(w);
    atomic_store(&w->turn, 1);
    while (atomic_load(&w->turn) != 2)
        sched_yield();
    for (int i = 0; i < 10 && !w->failure[0]; i++)
        calls_once(w);
    atomic_store(&w->turn, 3);
    return NULL;
}

static void await_turn(const short_calls *calls, int turn)
{
    const uint64_t end_ns = loch_host_now_ns() + 20 * SECOND_NS;
    while (atomic_load(&calls->turn) != turn && loch_host_now_ns() < end_ns)
        sched_yield();
}

/* While another thread holds the pool's lock, a thread whose caches are filled makes all short calls. */
static void short_calls_take_no_lock(void **state)
{
    (void)state;
    for (size_t d = 0; d < 2; d++) {
        loch_device *device = sim_open(devices[d]);
        loch_allocator *allocator = pool_make(device, NULL);
        lochi_pool *pool = lochi_pool_of(allocator);
        const bool is_open = !atomic_load(&pool->gate); /* closed where a tool checks memory */
        short_calls calls = {.pool = allocator};
        pthread_t thread;
        assert_int_equal(pthread_create(&thread, NULL, calls_run, &calls), 0);
        await_turn(&calls, 1);
        lochi_lock_take(&pool->lock);
        atomic_store(&calls.turn, 2);
        if (is_open) await_turn(&calls, 3);
        const bool is_done = atomic_load(&calls.turn) == 3;
        lochi_lock_drop(&pool->lock);
        pthread_join(thread, NULL);
        assert_string_equal(calls.failure, "");
        assert_true(is_done || !is_open);
        pool_end(allocator, device);
    }
}

/* A closed gate changes nothing but the cost. */
static void a_closed_gate_changes_no_answer(void **state)
{
    (void)state;
    for (size_t d = 0; d < DEVICES; d++) {
        loch_device *device = sim_open(devices[d]);
        loch_allocator *pool = pool_make(device, NULL);
        void *block = pool_alloc(pool, SMALL), *large = pool_alloc(pool, LARGE);
        const uint64_t id = describe(pool, block).id;
        lochi_pool_shut(lochi_pool_of(pool));
        assert_int_equal(measure(pool, block).requested_bytes, SMALL);
        assert_int_equal(measure(pool, large).requested_bytes, LARGE);
        assert_int_equal(describe(pool, block).id, id);
        assert_ptr_equal(resize(pool, large, LARGE_NEAR, NULL), large);
        block = resize(pool, block, SMALL_FAR, NULL);
        assert_int_equal(measure(pool, block).requested_bytes, SMALL_FAR);
        lochi_pool_go(lochi_pool_of(pool));
        assert_int_equal(describe(pool, large).requested_bytes, LARGE_NEAR);
        CHECK_OK(loch_free(pool, block));
        CHECK_OK(loch_free(pool, large));
        pool_end(pool, device);
    }
}

/* --- look-ups --- */

static void look_ups_agree(void **state)
{
    (void)state;
    const loch_tag tag = make_tag("looked up");
    for (size_t d = 0; d < DEVICES; d++) {
        pool_bench bench = pool_bench_open(devices[d], NULL);
        for (size_t bytes = 1; bytes < 70000; bytes += 1 + bytes / 3) {
            const loch_request request = {
                .size = sizeof request, .bytes = bytes, .tag = bytes % 2 ? tag : 0, .stream = bench.streams[bytes % 3]};
            void *block;
            CHECK_OK(loch_allocator_alloc(bench.pool, &request, &block));
            const loch_block sizes = measure(bench.pool, block), all = describe(bench.pool, block);
            assert_int_equal(sizes.requested_bytes, bytes);
            assert_int_equal(all.requested_bytes, bytes);
            assert_int_equal(sizes.allocated_bytes, all.allocated_bytes);
            assert_true(all.allocated_bytes >= bytes);
            assert_int_equal(all.tag, request.tag);
            if (d) assert_int_equal(all.stream_id, loch_stream_get_id(request.stream));
            assert_int_equal(describe(bench.pool, block).id, all.id);
            CHECK_OK(loch_free(bench.pool, block));
        }
        pool_bench_close(&bench);
    }
}

static void expect_no_block(loch_allocator *pool, void *address, uint32_t set)
{
    loch_block all = {.size = sizeof all}, sizes = {.size = offsetof(loch_block, id)};
    void *moved;
    CHECK_FAILS_SET(loch_allocator_find(pool, address, &all), set);
    CHECK_FAILS_SET(loch_allocator_find(pool, address, &sizes), set);
    CHECK_FAILS_SET(loch_allocator_realloc(pool, address, SMALL_NEAR, NULL, &moved), set);
    CHECK_FAILS_SET(loch_free(pool, address), set);
}

static void wrong_addresses_give_their_errors(void **state)
{
    (void)state;
    static char foreign[64];
    for (size_t d = 0; d < DEVICES; d++) {
        loch_device *device = sim_open(devices[d]);
        loch_allocator *pool = pool_make(device, NULL);
        for (size_t bytes = 1; bytes < 70000; bytes += 1 + bytes) {
            char *block = pool_alloc(pool, bytes), *other = pool_alloc(pool, bytes);
            (void)describe(pool, block);
            if (bytes > 1) expect_no_block(pool, block + 1, TEST_SET(INTERIOR));
            CHECK_OK(loch_free(pool, block));
            expect_no_block(pool, block, TEST_SET(DOUBLE_FREE));
            CHECK_OK(loch_free(pool, other));
        }
        expect_no_block(pool, foreign, TEST_SET(FOREIGN));
        pool_end(pool, device);
    }
}

/* The rest behind the last block of a slab is no block. */
static void the_end_of_a_slab_is_no_block(void **state)
{
    (void)state;
    loch_device *device = sim_open("cpu");
    loch_allocator *allocator = pool_make(device, NULL);
    void *block = pool_alloc(allocator, 3000);
    const lochi_pool *pool = lochi_pool_of(allocator);
    const pool_slab *slab = lochi_pool_page_slab(pool->pages[((uintptr_t)block - pool->base) >> POOL_PAGE_SHIFT]);
    assert_true((size_t)slab->count * slab->object_bytes < pool->slab_bytes[slab->class]);
    expect_no_block(allocator, (char *)slab->start + (size_t)slab->count * slab->object_bytes, TEST_SET(FOREIGN));
    CHECK_OK(loch_free(allocator, block));
    pool_end(allocator, device);
}

#define IDS 300 /* more than a thread takes at a time */

static void ids_are_unique(void **state)
{
    (void)state;
    for (size_t d = 0; d < DEVICES; d++) {
        loch_device *device = sim_open(devices[d]);
        loch_allocator *pool = pool_make(device, NULL);
        uint64_t ids[IDS] = {0};
        void *blocks[IDS];
        for (size_t round = 0; round < 2; round++) {
            for (size_t i = 0; i < IDS; i++) {
                blocks[i] = pool_alloc(pool, i % 5 ? SMALL : LARGE);
                const uint64_t id = describe(pool, blocks[i]).id;
                assert_true(id != 0 && describe(pool, blocks[i]).id == id);
                for (size_t k = 0; k < (round ? IDS : i); k++)
                    assert_true(ids[k] != id); /* in the second round the ids of blocks at the same places too */
                if (!round) ids[i] = id;
            }
            for (size_t i = 0; i < IDS; i++)
                CHECK_OK(loch_free(pool, blocks[i]));
        }
        pool_end(pool, device);
    }
}

/* --- resizes --- */

static void resizes_keep_contents_and_count(void **state)
{
    (void)state;
    static const size_t sizes[] = {1, 16, 17, 40, 48, 100, 90, 2000, 1999, 8192, 8193, 8200, 20000, 19990, 500, 60, 3};
    loch_device *device = sim_open("cpu");
    loch_allocator *pool = pool_make(device, NULL);
    unsigned char *block = pool_alloc(pool, SMALL);
    size_t before = SMALL, peak = SMALL;
    memset(block, 1, before);
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        const size_t kept = before < sizes[i] ? before : sizes[i];
        const uint64_t id = i % 2 ? describe(pool, block).id : 0;
        unsigned char *moved = resize(pool, block, sizes[i], NULL);
        if (moved == block && id) assert_int_equal(describe(pool, block).id, id);
        for (size_t k = 0; k < kept; k++)
            assert_int_equal(moved[k], i + 1);
        memset(moved, (int)i + 2, sizes[i]);
        if (before + sizes[i] > peak) peak = before + sizes[i];
        const loch_stats stats = pool_stats(pool);
        assert_int_equal(stats.requested_bytes, sizes[i]);
        assert_int_equal(stats.blocks, 1);
        assert_true(stats.peak_requested_bytes >= sizes[i] && stats.peak_requested_bytes <= peak);
        assert_int_equal(measure(pool, moved).requested_bytes, sizes[i]);
        assert_int_equal(stats.allocated_bytes, measure(pool, moved).allocated_bytes);
        pool_expect_whole(pool);
        block = moved;
        before = sizes[i];
    }
    CHECK_OK(loch_free(pool, block));
    pool_end(pool, device);
}

/* A refusal inside a resize that moves the block leaves the error record alone. */
static void a_move_leaves_no_error(void **state)
{
    (void)state;
    for (size_t d = 0; d < DEVICES; d++) {
        loch_device *device = sim_open(devices[d]);
        loch_allocator *pool = pool_make(device, NULL);
        void *block = pool_alloc(pool, SMALL), *large = pool_alloc(pool, LARGE), *behind = pool_alloc(pool, LARGE);
        loch_error_clear();
        block = resize(pool, block, SMALL_FAR, NULL);
        large = resize(pool, large, 50 * LARGE, NULL);
        assert_int_equal(loch_error_get()->status, LOCH_OK);
        CHECK_OK(loch_free(pool, block));
        CHECK_OK(loch_free(pool, large));
        CHECK_OK(loch_free(pool, behind));
        pool_end(pool, device);
    }
}

/* Tags, further streams, sessions and freezes keep their meaning. */
static void special_blocks_stay_special(void **state)
{
    (void)state;
    const loch_tag tag = make_tag("resized");
    pool_bench bench = pool_bench_open("sim:256MiB,granule=64KiB,backed", NULL);
    const loch_request tagged = {.size = sizeof tagged, .bytes = SMALL, .tag = tag};
    loch_stats stats = {.size = sizeof stats};
    void *block;
    CHECK_OK(loch_allocator_alloc(bench.pool, &tagged, &block));
    (void)describe(bench.pool, block);
    block = resize(bench.pool, block, SMALL_NEAR, NULL);
    CHECK_OK(loch_allocator_get_tag_stats(bench.pool, tag, &stats));
    assert_int_equal(stats.requested_bytes, SMALL_NEAR);
    block = resize(bench.pool, block, SMALL_FAR, NULL);
    assert_int_equal(describe(bench.pool, block).tag, tag);
    CHECK_OK(loch_free(bench.pool, block));
    CHECK_OK(loch_allocator_get_tag_stats(bench.pool, tag, &stats));
    assert_int_equal(stats.blocks, 0);

    block = pool_alloc_on(bench.pool, SMALL, bench.a);
    CHECK_OK(loch_allocator_record_use(bench.pool, block, bench.b));
    assert_int_equal(measure(bench.pool, block).requested_bytes, SMALL);
    (void)describe(bench.pool, block);
    block = resize(bench.pool, block, SMALL_NEAR, bench.a); /* the further stream is waited for at the free */
    CHECK_OK(loch_free(bench.pool, block));
    CHECK_OK(loch_device_sync(bench.device));

    loch_session *session;
    size_t bytes;
    CHECK_OK(loch_session_begin(bench.pool, "looked at", &session));
    CHECK_OK(loch_session_enter(session));
    block = pool_alloc(bench.pool, SMALL);
    (void)describe(bench.pool, block);
    block = resize(bench.pool, block, SMALL_NEAR, NULL);
    CHECK_OK(loch_session_leave(session));
    assert_int_equal(measure(bench.pool, block).requested_bytes, SMALL_NEAR);
    block = resize(bench.pool, block, SMALL_FAR, NULL); /* stays in the session */
    CHECK_OK(loch_session_end(session, NULL, &bytes));
    assert_int_equal(bytes, SMALL_FAR);

    block = pool_alloc(bench.pool, SMALL);
    const uint64_t id = describe(bench.pool, block).id;
    CHECK_OK(loch_pool_freeze(bench.pool, NULL, NULL));
    assert_int_equal(measure(bench.pool, block).requested_bytes, SMALL);
    assert_int_equal(describe(bench.pool, block).id, id);
    assert_ptr_equal(resize(bench.pool, block, SMALL_NEAR, NULL), block); /* which unfreezes it */
    CHECK_OK(loch_free(bench.pool, block));
    pool_bench_close(&bench);
}

/* A resize on another stream than the block's moves the block, unless streams are done at once. */
static void resizes_follow_streams(void **state)
{
    (void)state;
    for (size_t d = 0; d < 2; d++) {
        pool_bench bench = pool_bench_open(devices[d], NULL);
        void *block = pool_alloc_on(bench.pool, SMALL, bench.a), *large = pool_alloc_on(bench.pool, LARGE, bench.a);
        assert_ptr_equal(resize(bench.pool, block, SMALL_NEAR, bench.a), block);
        assert_ptr_equal(resize(bench.pool, large, LARGE_NEAR, bench.a), large);
        pool_order(bench.device, bench.a, bench.b);
        void *moved = resize(bench.pool, block, SMALL, bench.b);
        assert_true((moved == block) == (d == 0));
        CHECK_OK(loch_free(bench.pool, moved));
        CHECK_OK(loch_free(bench.pool, large));
        pool_bench_close(&bench);
    }
    loch_device *other = sim_open("sim:64MiB");
    loch_stream *stream = sim_stream(other, LOCH_STREAM_INDEPENDENT);
    pool_bench bench = pool_bench_open("cpu", NULL);
    void *block = pool_alloc(bench.pool, SMALL), *moved;
    CHECK_FAILS(loch_allocator_realloc(bench.pool, block, SMALL_NEAR, stream, &moved), INVALID);
    CHECK_OK(loch_free(bench.pool, block));
    pool_bench_close(&bench);
    loch_stream_close(stream);
    loch_device_release(other);
}

/* --- zeroed and aligned requests --- */

static void zeroed_blocks_are_zero(void **state)
{
    (void)state;
    pool_bench bench = pool_bench_open("cpu", NULL);
    for (size_t bytes = 1; bytes < 70000; bytes += 1 + bytes / 5)
        for (size_t alignment = 0; alignment <= 4096; alignment = alignment ? 8 * alignment : 8) {
            const loch_request request = {.size = sizeof request,
                                          .bytes = bytes,
                                          .alignment = alignment,
                                          .stream = bytes % 3 ? NULL : bench.a,
                                          .flags = LOCH_ALLOC_ZEROED};
            char *dirty[2], *block;
            for (size_t i = 0; i < 2; i++)
                memset(dirty[i] = pool_alloc(bench.pool, bytes), 0xff, bytes);
            for (size_t i = 0; i < 2; i++)
                CHECK_OK(loch_free(bench.pool, dirty[i]));
            CHECK_OK(loch_allocator_alloc(bench.pool, &request, (void **)&block));
            for (size_t k = 0; k < bytes; k++)
                assert_int_equal(block[k], 0);
            CHECK_OK(loch_free(bench.pool, block));
        }
    loch_request none = {.size = sizeof none, .flags = LOCH_ALLOC_ZEROED};
    void *empty = TEST_UNTOUCHED;
    CHECK_OK(loch_allocator_alloc(bench.pool, &none, &empty));
    assert_null(empty);
    empty = TEST_UNTOUCHED;
    CHECK_OK(loch_alloc(bench.pool, 0, &empty));
    assert_null(empty);
    pool_bench_close(&bench);
}

/* Small blocks of the host are multiples of 16 bytes, and aligned to what their size or the request says. */
static void small_blocks_are_aligned(void **state)
{
    (void)state;
    loch_device *device = sim_open("cpu");
    loch_allocator *pool = pool_make(device, NULL);
    for (size_t bytes = 1; bytes <= 8192; bytes += bytes < 600 ? 1 : 37)
        for (size_t alignment = 0; alignment <= 8192; alignment = alignment ? 2 * alignment : 1)
            for (int again = 0; again < 2; again++) { /* the second time from the thread's cache */
                void *block, *other;
                const size_t least = alignment > 16 ? alignment : bytes % 64 && bytes < 512 ? 16 : 64;
                CHECK_OK(pool_try_alloc(pool, bytes, alignment, NULL, &block));
                CHECK_OK(pool_try_alloc(pool, bytes, alignment, NULL, &other));
                assert_int_equal((uintptr_t)block % least, 0);
                assert_int_equal((uintptr_t)other % least, 0);
                const size_t rounded = (bytes + least - 1) / least * least, has = measure(pool, block).allocated_bytes;
                assert_true(has >= rounded && (bytes > 256 || has == (rounded + 15) / 16 * 16));
                assert_true(has <= rounded + rounded / 7 || has - rounded < 64);
                CHECK_OK(loch_free(pool, block));
                CHECK_OK(loch_free(pool, other));
            }
    pool_end(pool, device);
}

/* Small blocks cost little memory besides their own. */
static void bookkeeping_of_small_blocks_is_small(void **state)
{
    (void)state;
    enum { BLOCKS = 20000 };
    static void *blocks[BLOCKS];
    loch_device *device = sim_open("cpu");
    loch_allocator *pool = pool_make(device, NULL);
    loch_host_usage before = {.size = sizeof before}, after = {.size = sizeof after};
    blocks[0] = pool_alloc(pool, 16);
    CHECK_OK(loch_host_get_usage(&before));
    for (size_t i = 1; i < BLOCKS; i++)
        blocks[i] = pool_alloc(pool, 16);
    for (size_t i = 0; i < BLOCKS; i++)
        assert_int_equal(measure(pool, blocks[i]).allocated_bytes, 16);
    CHECK_OK(loch_host_get_usage(&after));
    assert_true((after.bytes - before.bytes) / BLOCKS < 6);
    for (size_t i = 0; i < BLOCKS; i++)
        CHECK_OK(loch_free(pool, blocks[i]));
    pool_end(pool, device);
}

/* --- wrappers --- */

static void wrappers_see_every_call(void **state)
{
    (void)state;
    loch_device *device = sim_open("cpu");
    loch_allocator *pool = pool_make(device, NULL), *tracking, *redzone;
    CHECK_OK(loch_redzone_create(pool, NULL, NULL, &redzone));
    CHECK_OK(loch_tracking_create(redzone, NULL, NULL, &tracking));
    const loch_request request = {.size = sizeof request, .bytes = SMALL, .flags = LOCH_ALLOC_ZEROED};
    char *block;
    CHECK_OK(loch_allocator_alloc(tracking, &request, (void **)&block));
    for (size_t k = 0; k < SMALL; k++)
        assert_int_equal(block[k], 0);
    memset(block, 7, SMALL);
    assert_int_equal(measure(tracking, block).requested_bytes, SMALL);
    assert_int_equal(describe(tracking, block).requested_bytes, SMALL);
    block = resize(tracking, block, SMALL_NEAR, NULL);
    block = resize(tracking, block, SMALL_FAR, NULL);
    for (size_t k = 0; k < SMALL_NEAR; k++)
        assert_int_equal(block[k], 7);
    const loch_stats stats = pool_stats(tracking);
    assert_int_equal(stats.requested_bytes, SMALL_FAR);
    assert_int_equal(stats.blocks, 1);
    CHECK_OK(loch_free(tracking, block));
    loch_allocator_release(tracking);
    loch_allocator_release(redzone);
    pool_end(pool, device);
}

/* --- several threads --- */

#define ROUNDS 3000
#define THREADS 3

typedef struct crowd {
    loch_allocator *pool;
    void *shared[2]; /* live blocks that all threads describe */
    uint64_t ids[2];
    atomic_bool is_over;
} crowd;

typedef struct crowd_worker {
    crowd *crowd;
    pthread_t thread;
    uint64_t ids[2];
    char failure[400];
} crowd_worker;

static void crowd_round(crowd_worker *w, size_t i)
{
    loch_allocator *pool = w->crowd->pool;
    const size_t bytes = 1 + i * 7919 % 9000;
    const loch_request request = {.size = sizeof request, .bytes = bytes, .flags = LOCH_ALLOC_ZEROED};
    loch_block all = {.size = sizeof all}, sizes = {.size = offsetof(loch_block, id)};
    unsigned char *block;
    for (size_t k = 0; k < 2; k++) {
        TRY(loch_allocator_find(pool, w->crowd->shared[k], &all));
        EXPECT(!w->ids[k] || w->ids[k] == all.id);
        w->ids[k] = all.id;
    }
    TRY(loch_allocator_alloc(pool, &request, (void **)&block));
    EXPECT(!block[0] && !block[bytes / 2] && !block[bytes - 1]);
    memset(block, (int)i, bytes);
    TRY(loch_allocator_find(pool, block, &sizes));
    EXPECT(sizes.requested_bytes == bytes);
    if (i % 3 == 0) TRY(loch_allocator_find(pool, block, &all));
    const size_t next = i % 2 ? bytes - bytes / 3 : 1 + 2 * bytes;
    TRY(loch_allocator_realloc(pool, block, next, NULL, (void **)&block));
    EXPECT(block[0] == (unsigned char)i && block[(next < bytes ? next : bytes) - 1] == (unsigned char)i);
    TRY(loch_free(pool, block));
}

static void *crowd_run(void *arg)
{
    crowd_worker *w = arg;
    for (size_t i = 0; i < ROUNDS && !w->failure[0]; i++)
        crowd_round(w, i);
    return NULL;
}

/* Threads look up, resize and zero while another closes the gate, trims and reads all blocks. */
static void threads_agree(void **state)
{
    (void)state;
    loch_device *device = sim_open("cpu");
    crowd all = {.pool = pool_make(device, NULL)};
    crowd_worker workers[THREADS] = {{0}};
    all.shared[0] = pool_alloc(all.pool, SMALL);
    all.shared[1] = pool_alloc(all.pool, LARGE);
    for (size_t i = 0; i < THREADS; i++) {
        workers[i].crowd = &all;
        assert_int_equal(pthread_create(&workers[i].thread, NULL, crowd_run, &workers[i]), 0);
    }
    for (size_t i = 0; i < 100; i++) {
        (void)pool_trim(all.pool, 0);
        pool_expect_whole(all.pool);
    }
    for (size_t i = 0; i < THREADS; i++) {
        pthread_join(workers[i].thread, NULL);
        assert_string_equal(workers[i].failure, "");
        for (size_t k = 0; k < 2; k++)
            assert_int_equal(workers[i].ids[k], describe(all.pool, all.shared[k]).id);
    }
    for (size_t k = 0; k < 2; k++)
        CHECK_OK(loch_free(all.pool, all.shared[k]));
    pool_end(all.pool, device);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        POOL_TEST(short_calls_take_no_lock),
        POOL_TEST(a_closed_gate_changes_no_answer),
        POOL_TEST(look_ups_agree),
        POOL_TEST(wrong_addresses_give_their_errors),
        POOL_TEST(the_end_of_a_slab_is_no_block),
        POOL_TEST(ids_are_unique),
        POOL_TEST(resizes_keep_contents_and_count),
        POOL_TEST(a_move_leaves_no_error),
        POOL_TEST(special_blocks_stay_special),
        POOL_TEST(resizes_follow_streams),
        POOL_TEST(zeroed_blocks_are_zero),
        POOL_TEST(small_blocks_are_aligned),
        POOL_TEST(bookkeeping_of_small_blocks_is_small),
        POOL_TEST(wrappers_see_every_call),
        POOL_TEST(threads_agree),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

/* SPDX-License-Identifier: MIT */
/* A pool and threads: what they keep serves others when they end or when memory is short, blocks freed by another
 * thread come back, and nothing grows without bound. */
#include "pool_fixture.h"
#include "worker.h"

#include <pthread.h>
#include <stdatomic.h>

#define MIB TEST_MIB

typedef struct worker {
    pthread_t thread;
    loch_allocator *pool;
    uint64_t seed;
    pthread_barrier_t *barrier;
    struct ring *ring;
    char failure[400];
} worker;

static void worker_start(worker *w, void *(*run)(void *))
{
    assert_int_equal(pthread_create(&w->thread, NULL, run, w), 0);
}

static void worker_join(worker *w)
{
    assert_int_equal(pthread_join(w->thread, NULL), 0);
    if (w->failure[0]) fail_msg("%s", w->failure);
}

/* --- what a thread keeps --- */

/* One of each sort: from slabs, from arenas, large. */
static void keep_some(worker *w)
{
    static const size_t sizes[] = {100, 5000, 50000, 200000, 20 << 20};
    for (size_t i = 0; i < 5; i++) {
        void *block;
        TRY(loch_alloc(w->pool, sizes[i], &block));
        TRY(loch_free(w->pool, block));
    }
}

static void *keep_and_end(void *user)
{
    keep_some(user);
    return NULL;
}

static void *keep_and_wait(void *user)
{
    worker *w = user;
    keep_some(w);
    pthread_barrier_wait(w->barrier);
    pthread_barrier_wait(w->barrier);
    return NULL;
}

static const char *const devices[] = {"cpu", "sim:256MiB,granule=64KiB,backed", "sim:256MiB,backed,virtual=off"};
#define DEVICES (sizeof devices / sizeof *devices)

static void what_an_ended_thread_kept_is_free_for_others(void **state)
{
    (void)state;
    for (size_t d = 0; d < DEVICES; d++) {
        loch_device *device = sim_open(devices[d]);
        loch_allocator *pool = pool_make(device, NULL);
        worker w = {.pool = pool};
        worker_start(&w, keep_and_end);
        worker_join(&w);
        const loch_pool_info info = pool_info(pool);
        assert_int_equal(info.thread_bytes, 0);
        assert_int_equal(info.used_bytes, 0);
        assert_int_equal(pool_stats(pool).allocs, 5);
        pool_expect_whole(pool);
        void *block = pool_alloc(pool, 20 * MIB);
        assert_int_equal(pool_info(pool).reserved_bytes, info.reserved_bytes);
        CHECK_OK(loch_free(pool, block));
        pool_end(pool, device);
    }
}

static void what_a_living_thread_keeps_serves_others_in_need(void **state)
{
    (void)state;
    for (size_t d = 0; d < DEVICES; d++) {
        loch_device *device = sim_open(devices[d]);
        const loch_pool_options options = {.size = sizeof options, .limit_bytes = 26 * MIB};
        loch_allocator *pool = pool_make(device, &options);
        pthread_barrier_t barrier;
        pthread_barrier_init(&barrier, NULL, 2);
        worker w = {.pool = pool, .barrier = &barrier};
        worker_start(&w, keep_and_wait);
        pthread_barrier_wait(&barrier);
        assert_true(pool_info(pool).thread_bytes >= 20 * MIB);
        void *block = pool_alloc(pool, 18 * MIB); /* not without it */
        pool_expect_whole(pool);
        CHECK_OK(loch_free(pool, block));
        assert_true(pool_trim(pool, 0) > 0);
        assert_int_equal(pool_info(pool).reserved_bytes, 0);
        pthread_barrier_wait(&barrier);
        worker_join(&w);
        pthread_barrier_destroy(&barrier);
        pool_end(pool, device);
    }
}

/* --- blocks that one thread takes and another frees --- */

#define RING 64
#define ROUNDS 20000

typedef struct ring {
    _Atomic(void *) places[RING];
    atomic_bool has_failed;
} ring;

static size_t ring_bytes(size_t round)
{
    static const size_t sizes[] = {64, 1000, 8192, 9000, 60000, 250000, 400000};
    return sizes[round % 7];
}

static void consume_all(worker *w)
{
    for (size_t i = 0; i < ROUNDS; i++) {
        void *block;
        while (!(block = atomic_exchange(&w->ring->places[i % RING], NULL)))
            sched_yield();
        TRY(loch_allocator_free_sized(w->pool, block, ring_bytes(i)));
    }
}

static void *consume(void *user)
{
    worker *w = user;
    consume_all(w);
    if (w->failure[0]) atomic_store(&w->ring->has_failed, true);
    return NULL;
}

static void blocks_freed_by_a_consumer_come_back_to_the_producer(void **state)
{
    (void)state;
    for (size_t d = 0; d < DEVICES; d++) {
        loch_device *device = sim_open(devices[d]);
        loch_allocator *pool = pool_make(device, NULL);
        ring *r = calloc(1, sizeof *r);
        assert_non_null(r);
        worker w = {.pool = pool, .ring = r};
        worker_start(&w, consume);
        for (size_t i = 0; i < ROUNDS && !atomic_load(&r->has_failed); i++) {
            void *block = pool_alloc(pool, ring_bytes(i));
            while (atomic_load(&r->places[i % RING]) && !atomic_load(&r->has_failed))
                sched_yield();
            atomic_store(&r->places[i % RING], block);
        }
        worker_join(&w);
        /* at most RING + 1 are out: under 8 MiB, besides what two threads keep */
        assert_true(pool_info(pool).peak_reserved_bytes <= 40 * MIB);
        assert_int_equal(pool_stats(pool).blocks, 0);
        assert_int_equal(pool_stats(pool).allocs, ROUNDS);
        assert_true(pool_stats(pool).peak_blocks >= 1);
        free(r);
        pool_end(pool, device);
    }
}

/* --- many threads --- */

static void many_short_threads_leave_no_growth(void **state)
{
    (void)state;
    loch_device *device = sim_open("cpu");
    loch_allocator *pool = pool_make(device, NULL);
    loch_host_usage before = {.size = sizeof before}, after = {.size = sizeof after};
    size_t held = 0;
    for (int i = 0; i < 200; i++) {
        worker w = {.pool = pool};
        worker_start(&w, keep_and_end);
        worker_join(&w);
        if (i == 49) {
            CHECK_OK(loch_host_get_usage(&before));
            held = pool_info(pool).reserved_bytes;
        }
    }
    CHECK_OK(loch_host_get_usage(&after));
    assert_int_equal(pool_info(pool).reserved_bytes, held);
    assert_true(after.bytes <= before.bytes + 64 * TEST_KIB);
    assert_int_equal(pool_stats(pool).allocs, 1000);
    pool_end(pool, device);
}

/* More at a time than have a place of their own: the others share one, and keep nothing. */
static void threads_without_a_slot_share_one_and_keep_nothing(void **state)
{
    (void)state;
    loch_device *device = sim_open("cpu");
    loch_allocator *pool = pool_make(device, NULL);
    enum { COUNT = LOCHI_SLOT_COUNT + 20 };
    worker *workers = calloc(COUNT, sizeof *workers);
    assert_non_null(workers);
    pthread_barrier_t barrier;
    pthread_barrier_init(&barrier, NULL, COUNT + 1);
    for (size_t i = 0; i < COUNT; i++) {
        workers[i] = (worker){.pool = pool, .barrier = &barrier};
        worker_start(&workers[i], keep_and_wait);
    }
    pthread_barrier_wait(&barrier);
    const loch_stats stats = pool_stats(pool);
    assert_int_equal(stats.allocs, 5 * COUNT);
    assert_int_equal(stats.frees, 5 * COUNT);
    assert_int_equal(stats.requested_bytes, 0);
    assert_true(stats.peak_blocks >= 1 && stats.peak_blocks <= COUNT);
    assert_int_equal(stats.largest_bytes, 20 * MIB);
    pool_expect_whole(pool);
    pthread_barrier_wait(&barrier);
    for (size_t i = 0; i < COUNT; i++)
        worker_join(&workers[i]);
    pthread_barrier_destroy(&barrier);
    free(workers);
    pool_end(pool, device);
}

#define LIVE 64

/* Random blocks with contents, of all sizes. */
static void churn_all(worker *w)
{
    test_random random = {w->seed};
    struct {
        unsigned char *address;
        size_t bytes;
    } live[LIVE] = {{NULL, 0}};
    for (int i = 0; i < 20000; i++) {
        const size_t slot = test_random_below(&random, LIVE), bits = test_random_below(&random, 19);
        if (live[slot].address) {
            EXPECT(live[slot].address[0] == (unsigned char)w->seed);
            EXPECT(live[slot].address[live[slot].bytes - 1] == (unsigned char)w->seed);
            TRY(loch_free(w->pool, live[slot].address));
            live[slot].address = NULL;
            continue;
        }
        live[slot].bytes = ((size_t)1 << bits) + test_random_below(&random, (size_t)1 << bits);
        void *block;
        TRY(loch_alloc(w->pool, live[slot].bytes, &block));
        live[slot].address = block;
        live[slot].address[0] = live[slot].address[live[slot].bytes - 1] = (unsigned char)w->seed;
    }
    for (size_t slot = 0; slot < LIVE; slot++)
        TRY(loch_free(w->pool, live[slot].address));
}

static void *churn(void *user)
{
    churn_all(user);
    return NULL;
}

static loch_status count_block(const loch_block *block, void *user)
{
    size_t *count = user;
    ++*count;
    return block->id && block->requested_bytes && block->requested_bytes <= block->allocated_bytes ? LOCH_OK
                                                                                                   : LOCH_E_CORRUPT;
}

/* Figures, walks, trims and limits from one thread while others allocate and free. */
static void figures_walks_and_trims_are_sound_while_threads_work(void **state)
{
    (void)state;
    const uint64_t seed = test_seed(1);
    for (size_t d = 0; d < DEVICES; d++) {
        loch_device *device = sim_open(devices[d]);
        loch_allocator *pool = pool_make(device, NULL);
        worker workers[4];
        for (size_t i = 0; i < 4; i++) {
            workers[i] = (worker){.pool = pool, .seed = seed + i};
            worker_start(&workers[i], churn);
        }
        for (int i = 0; i < 50; i++) {
            const loch_pool_info info = pool_info(pool);
            assert_true(info.used_bytes <= info.reserved_bytes);
            assert_true(info.reserved_bytes <= info.peak_reserved_bytes);
            const loch_stats stats = pool_stats(pool);
            assert_true(stats.blocks <= 4 * LIVE + 4);
            assert_true(stats.peak_blocks >= stats.blocks);
            size_t count = 0;
            CHECK_OK(loch_allocator_walk(pool, count_block, &count));
            assert_true(count <= 4 * LIVE + 4);
            if (i % 10 == 9) pool_expect_whole(pool);
            if (i % 7 == 6) (void)pool_trim(pool, i % 2 ? 0 : 4 * MIB);
            if (i % 5 == 4) CHECK_OK(loch_pool_set_idle(pool, i % 2 ? 8 * MIB : 0));
        }
        for (size_t i = 0; i < 4; i++)
            worker_join(&workers[i]);
        pool_end(pool, device);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        POOL_TEST(what_an_ended_thread_kept_is_free_for_others),
        POOL_TEST(what_a_living_thread_keeps_serves_others_in_need),
        POOL_TEST(blocks_freed_by_a_consumer_come_back_to_the_producer),
        POOL_TEST(many_short_threads_leave_no_growth),
        POOL_TEST(threads_without_a_slot_share_one_and_keep_nothing),
        POOL_TEST(figures_walks_and_trims_are_sound_while_threads_work),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

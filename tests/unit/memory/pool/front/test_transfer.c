/* SPDX-License-Identifier: MIT */
/* Blocks that one thread allocates and another frees: batches of them pass between the threads' caches without the
 * pool's lock, belong to one lane, are bounded, and are given back wherever caches are. */
#include "memory/pool/front/transfer.h"
#include "partner.h"
#include "pool_fixture.h"
#include "worker.h"

#include <loch/sleep.h>
#include <pthread.h>
#include <stdatomic.h>
#include <unistd.h>

#define MIB TEST_MIB
#define KIB TEST_KIB
#define MANY 1024
#define ROUND 16
#define WARM 40

/* A pool, and a second thread that frees what it is given while the first one waits. */
typedef struct rig {
    loch_device *device;
    loch_allocator *pool;
    partner helper;
    void *blocks[MANY];
    size_t count;
} rig;

static void helper_free(partner *w)
{
    const rig *r = w->user;
    for (size_t i = 0; i < r->count; i++)
        TRY(loch_free(r->pool, r->blocks[i]));
}

/* Opens the rig, which is one for all tests. */
static rig *rig_open(const char *device, const loch_pool_options *options)
{
    static rig r;
    r.device = sim_open(device);
    r.pool = pool_make(r.device, options);
    partner_start(&r.helper, helper_free, &r);
    return &r;
}

static void rig_close_pool(rig *r)
{
    loch_sim_stats stats = {.size = sizeof stats};
    if (loch_sim_get_stats(r->device, &stats) == LOCH_OK)
        pool_end_sim(r->pool, r->device);
    else
        pool_end(r->pool, r->device);
}

static void rig_close(rig *r)
{
    partner_end(&r->helper);
    rig_close_pool(r);
}

/* Allocates blocks on a stream, and has the second thread free them. */
static void hand_over(rig *r, size_t count, size_t bytes, loch_stream *stream)
{
    assert_true(count <= MANY);
    r->count = count;
    for (size_t i = 0; i < count; i++)
        r->blocks[i] = pool_alloc_on(r->pool, bytes, stream);
    partner_turn(&r->helper);
}

static size_t stored(loch_allocator *pool)
{
    return atomic_load(&lochi_pool_of(pool)->transfer_bytes);
}

/* Hands blocks over until batches of them lie in a store. */
static void fill_store(rig *r, loch_stream *stream)
{
    for (int i = 0; i < 2; i++) { /* the first full cache makes the store */
        hand_over(r, 200, 100, stream);
        hand_over(r, 200, 30000, stream);
    }
    assert_true(stored(r->pool) > 0);
    assert_true(pool_info(r->pool).thread_bytes >= stored(r->pool));
    pool_expect_whole(r->pool);
}

#define SIM "sim:256MiB,granule=64KiB,backed"
static const char *const devices[] = {"cpu", SIM};
#define DEVICES (sizeof devices / sizeof *devices)

/* --- the lock --- */

typedef struct holder {
    lochi_pool *pool;
    atomic_bool is_held, is_done, is_late;
} holder;

/* Holds the lock of a pool until the test is done. After a long time it lets go, and the test fails. */
static void *holder_run(void *user)
{
    holder *h = user;
    lochi_lock_take(&h->pool->lock);
    atomic_store(&h->is_held, true);
    for (int i = 0; !atomic_load(&h->is_done) && i < 20000; i++)
        usleep(1000);
    atomic_store(&h->is_late, !atomic_load(&h->is_done));
    lochi_lock_drop(&h->pool->lock);
    return NULL;
}

static void hand_overs_go_on_while_another_thread_holds_the_lock(void **state)
{
    (void)state;
    static const size_t sizes[] = {48, 4096, 65536, 262144};
    for (size_t d = 0; d < DEVICES; d++)
        for (size_t s = 0; s < sizeof sizes / sizeof *sizes; s++) {
            rig *r = rig_open(devices[d], NULL);
            for (int i = 0; i < WARM; i++)
                hand_over(r, ROUND, sizes[s], NULL);
            holder lock = {.pool = lochi_pool_of(r->pool)};
            pthread_t thread;
            assert_int_equal(pthread_create(&thread, NULL, holder_run, &lock), 0);
            while (!atomic_load(&lock.is_held))
                sched_yield();
            for (int i = 0; i < WARM && !atomic_load(&lock.is_late); i++)
                hand_over(r, ROUND, sizes[s], NULL);
            atomic_store(&lock.is_done, true);
            pthread_join(thread, NULL);
            if (atomic_load(&lock.is_late)) fail_msg("a hand-over of %zu bytes waits for the lock", sizes[s]);
            assert_int_equal(pool_stats(r->pool).allocs, 2 * WARM * ROUND);
            rig_close(r);
        }
}

static void one_thread_has_no_store(void **state)
{
    (void)state;
    loch_device *device = sim_open("cpu");
    loch_allocator *pool = pool_make(device, NULL);
    static void *blocks[MANY];
    for (int round = 0; round < 3; round++) {
        for (size_t i = 0; i < MANY; i++)
            blocks[i] = pool_alloc(pool, i % 2 ? 100 : 30000);
        for (size_t i = 0; i < MANY; i++)
            CHECK_OK(loch_free(pool, blocks[i]));
    }
    assert_null(lochi_pool_of(pool)->lanes->transfer);
    assert_int_equal(stored(pool), 0);
    pool_end(pool, device);
}

/* --- giving back --- */

static void trim_gives_batches_back(void **state)
{
    (void)state;
    for (size_t d = 0; d < DEVICES; d++) {
        rig *r = rig_open(devices[d], NULL);
        fill_store(r, NULL);
        assert_true(pool_trim(r->pool, 0) > 0);
        assert_int_equal(stored(r->pool), 0);
        assert_int_equal(pool_info(r->pool).reserved_bytes, 0);
        rig_close(r);
    }
}

static void a_request_that_needs_the_memory_gets_it(void **state)
{
    (void)state;
    const loch_pool_options options = {.size = sizeof options, .limit_bytes = 12 * MIB};
    rig *r = rig_open(SIM, &options);
    fill_store(r, NULL);
    void *block = pool_alloc(r->pool, 12 * MIB);
    assert_int_equal(stored(r->pool), 0);
    pool_expect_whole(r->pool);
    CHECK_OK(loch_free(r->pool, block));
    rig_close(r);
}

static void batches_are_merged_before_the_pool_grows(void **state)
{
    (void)state;
    rig *r = rig_open(SIM, NULL);
    for (int i = 0; i < 3; i++)
        hand_over(r, 200, 65536, NULL);
    assert_true(stored(r->pool) >= 2 * MIB);
    const size_t held = pool_info(r->pool).reserved_bytes, cached = pool_info(r->pool).thread_bytes;
    void *block = pool_alloc(r->pool, held - cached + MIB); /* does not fit without the batches */
    assert_int_equal(stored(r->pool), 0);
    CHECK_OK(loch_free(r->pool, block));
    rig_close(r);
}

static void the_end_of_a_stream_or_a_thread_gives_batches_back(void **state)
{
    (void)state;
    rig *r = rig_open(SIM, NULL);
    loch_stream *stream = sim_stream(r->device, LOCH_STREAM_INDEPENDENT);
    fill_store(r, stream);
    loch_stream_release(stream);
    assert_int_equal(stored(r->pool), 0);
    pool_expect_whole(r->pool);
    fill_store(r, NULL);
    partner_end(&r->helper);
    assert_int_equal(stored(r->pool), 0);
    rig_close_pool(r);
}

static void sleep_gives_batches_back(void **state)
{
    (void)state;
    for (size_t d = 0; d < DEVICES; d++) {
        rig *r = rig_open(devices[d], NULL);
        fill_store(r, NULL);
        const loch_sleep_options options = {.size = sizeof options, .contents = LOCH_SLEEP_DROP};
        CHECK_OK(loch_pool_sleep(r->pool, &options, NULL));
        assert_int_equal(stored(r->pool), 0);
        pool_expect_whole(r->pool);
        CHECK_OK(loch_pool_wake(r->pool, 0));
        fill_store(r, NULL);
        rig_close(r);
    }
}

/* --- bounds and lanes --- */

static void stores_are_bounded_and_old_sizes_make_room(void **state)
{
    (void)state;
    rig *r = rig_open(SIM, NULL);
    for (size_t bytes = 10000; bytes < 200000; bytes += 5000) {
        hand_over(r, 8 * MIB / bytes, bytes, NULL);
        hand_over(r, 8 * MIB / bytes, bytes, NULL);
        const size_t held = pool_info(r->pool).peak_reserved_bytes / 8;
        assert_true(stored(r->pool) <= (held > POOL_TRANSFER_MIN ? held : POOL_TRANSFER_MIN) + POOL_BATCH_BYTES);
        pool_expect_whole(r->pool);
    }
    /* After a few rounds the present size is in the store, whatever was there before. */
    for (int i = 0; i < 200; i++)
        hand_over(r, 40, 123456, NULL);
    const pool_transfer *transfer = lochi_pool_of(r->pool)->lanes->transfer;
    size_t found = 0;
    for (size_t i = 0; i < POOL_TRANSFER_BATCHES; i++)
        found += atomic_load(&transfer->batches[i].state) == (123456 + POOL_UNIT - 1) / POOL_UNIT * POOL_UNIT;
    assert_true(found > 0);
    rig_close(r);
}

static void batches_serve_their_own_stream_only(void **state)
{
    (void)state;
    rig *r = rig_open(SIM, NULL);
    loch_stream *a = sim_stream(r->device, LOCH_STREAM_INDEPENDENT),
                *b = sim_stream(r->device, LOCH_STREAM_INDEPENDENT);
    static void *blocks[400];
    for (int round = 0; round < 4; round++) {
        /* Work on stream `a` uses the blocks when they are freed; the checker of the device sees a use on `b`. */
        for (int i = 0; i < 2; i++)
            for (size_t k = 0; k < 2; k++) {
                r->count = 200;
                for (size_t n = 0; n < 200; n++) {
                    r->blocks[n] = pool_alloc_on(r->pool, k ? 30000 : 1000, a);
                    CHECK_OK(loch_fill_on(r->blocks[n], 1000, "a", 1, a));
                }
                partner_turn(&r->helper);
            }
        if (round) assert_true(stored(r->pool) > 0);
        const size_t before = stored(r->pool);
        for (size_t n = 0; n < 400; n++) {
            blocks[n] = pool_alloc_on(r->pool, n % 2 ? 30000 : 1000, b);
            CHECK_OK(loch_fill_on(blocks[n], 1000, "b", 1, b));
        }
        assert_true(stored(r->pool) == before || stored(r->pool) == 0); /* whole, or given back to make room */
        for (size_t n = 0; n < 400; n++)
            CHECK_OK(loch_free(r->pool, blocks[n]));
    }
    partner_end(&r->helper);
    loch_stream_release(a);
    loch_stream_release(b);
    rig_close_pool(r);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        POOL_TEST(hand_overs_go_on_while_another_thread_holds_the_lock),
        POOL_TEST(one_thread_has_no_store),
        POOL_TEST(trim_gives_batches_back),
        POOL_TEST(a_request_that_needs_the_memory_gets_it),
        POOL_TEST(batches_are_merged_before_the_pool_grows),
        POOL_TEST(the_end_of_a_stream_or_a_thread_gives_batches_back),
        POOL_TEST(sleep_gives_batches_back),
        POOL_TEST(stores_are_bounded_and_old_sizes_make_room),
        POOL_TEST(batches_serve_their_own_stream_only),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

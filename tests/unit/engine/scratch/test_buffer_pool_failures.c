/* SPDX-License-Identifier: MIT */
/* Pools of buffers when something fails: every piece of bookkeeping and some driver calls refused, a lost device,
 * misuse; and threads. */
#include "buffer_pool_fixture.h"

/* --- threads, failures, misuse --- */

typedef struct worker {
    const bench *it;
    loch_stream *stream;
    uint64_t seed;
    char failure[512];
} worker;

static void worker_work(worker *w)
{
    test_random random = {w->seed};
    for (int i = 0; i < 300; i++) {
        const size_t bytes = 1 + test_random_below(&random, 16 * KIB);
        loch_buffer *first, *second;
        TRY(loch_buffer_pool_acquire(w->it->pool, bytes, w->stream, &first));
        EXPECT(loch_buffer_get_bytes(first) == bytes);
        TRY(loch_buffer_pool_acquire(w->it->pool, bytes, w->stream, &second));
        EXPECT(loch_buffer_get_address(first) != loch_buffer_get_address(second));
        TRY(loch_buffer_fill(first, "x", 1, w->stream));
        TRY(loch_buffer_fill(second, "y", 1, w->stream));
        if (i % 8) {
            TRY(loch_buffer_pool_release(w->it->pool, second, w->stream));
        } else {
            loch_buffer_release(second);
        }
        TRY(loch_buffer_pool_release(w->it->pool, first, w->stream));
        if (i % 50 == 0) TRY(loch_buffer_pool_trim(w->it->pool, 8 * KIB, NULL));
    }
}

static void *worker_run(void *user)
{
    worker_work(user);
    return NULL;
}

static void threads_share_a_pool(void **state)
{
    (void)state;
    static const char *const names[] = {"cpu", "sim:64MiB,granule=64KiB,lag=3000,backed"};
    enum { THREADS = 4 };
    for (size_t n = 0; n < 2; n++) {
        bench it = bench_open(names[n], NULL);
        worker workers[THREADS];
        for (size_t i = 0; i < THREADS; i++)
            workers[i] = (worker){.it = &it, .seed = i + 1, .stream = sim_stream(it.device, LOCH_STREAM_INDEPENDENT)};
        TEST_THREADS_RUN(worker_run, workers);
        for (size_t i = 0; i < THREADS; i++) {
            if (workers[i].failure[0]) fail_msg("%s", workers[i].failure);
            loch_stream_close(workers[i].stream);
        }
        const loch_buffer_pool_stats stats = stats_of(&it);
        assert_int_equal(stats.acquired, THREADS * 600);
        assert_true(stats.reused > THREADS * 100);
        bench_close(&it);
    }
}

/* Each piece of bookkeeping fails in turn: acquiring may fail, giving back may not. */
static loch_status sweep_run(const void *user)
{
    (void)user;
    loch_device *device = NULL;
    loch_allocator *allocator = NULL;
    loch_stream *a = NULL, *b = NULL;
    loch_buffer_pool *pool = NULL;
    loch_buffer *buffer;
    loch_status status = loch_device_open("sim:64MiB,granule=64KiB,clock=stepped", &device);
    if (status == LOCH_OK) status = loch_direct_create(device, NULL, NULL, &allocator);
    if (status == LOCH_OK) status = loch_stream_create(device, NULL, &a);
    if (status == LOCH_OK) status = loch_stream_create(device, NULL, &b);
    if (status == LOCH_OK) status = loch_buffer_pool_create(allocator, NULL, &pool);
    for (int i = 0; status == LOCH_OK && i < 4; i++) {
        status = loch_buffer_pool_acquire(pool, 1000, i % 2 ? a : b, &buffer);
        if (status != LOCH_OK) break;
        const loch_status back = loch_buffer_pool_release(pool, buffer, i % 2 ? a : b);
        assert_int_equal(back, LOCH_OK);
    }
    if (device) assert_int_equal(sim_violations(device, NULL), 0);
    loch_buffer_pool_destroy(pool);
    loch_stream_close(a);
    loch_stream_close(b);
    loch_allocator_release(allocator);
    loch_device_release(device);
    return status;
}

static void a_pool_of_buffers_survives_failing_host_memory(void **state)
{
    (void)state;
    test_host_sweep(sweep_run, NULL);
}

static void failing_driver_calls_leave_the_pool_as_it_was(void **state)
{
    (void)state;
    bench it = bench_open(STEPPED, NULL);
    loch_buffer *out = get(&it, 1000, it.a);
    const loch_sim_fault no_event = {.size = sizeof no_event, .call = "event_record"};
    CHECK_OK(loch_sim_set_fault(it.device, &no_event));
    put(&it, out, it.a); /* cannot be kept, and is freed */
    assert_int_equal(stats_of(&it).idle, 0);
    const uint64_t id = use(&it, 1000, it.a);
    const loch_sim_fault no_wait = {.size = sizeof no_wait, .call = "stream_wait"};
    CHECK_OK(loch_sim_set_fault(it.device, &no_wait));
    CHECK_FAILS(loch_buffer_pool_acquire(it.pool, 1000, it.b, &out), DRIVER);
    assert_null(out);
    assert_int_equal(stats_of(&it).idle, 1); /* as it was */
    assert_int_equal(use(&it, 1000, it.b), id);
    bench_close(&it);
}

static void a_lost_device_gives_no_buffer_and_takes_all_back(void **state)
{
    (void)state;
    bench it = bench_open("sim:64MiB,granule=64KiB", NULL);
    loch_buffer *out = get(&it, 1000, it.a), *other;
    (void)use(&it, 5000, it.a);
    CHECK_OK(loch_sim_lose(it.device));
    CHECK_FAILS(loch_buffer_pool_acquire(it.pool, 5000, it.b, &other), DEVICE_LOST);
    loch_buffer_release(out);
    loch_stream_close(it.a);
    loch_stream_close(it.b);
    loch_buffer_pool_destroy(it.pool);
    loch_allocator_release(it.allocator);
    loch_device_release(it.device);
}

static void wrong_calls_are_refused(void **state)
{
    (void)state;
    bench it = bench_open("cpu", NULL);
    loch_device *sim = sim_open(STEPPED);
    loch_stream *foreign = sim_stream(sim, LOCH_STREAM_INDEPENDENT);
    loch_buffer_pool *pool = TEST_UNTOUCHED;
    loch_buffer *out = TEST_UNTOUCHED, *mine = get(&it, 10, NULL);
    loch_buffer_pool_options options = {.size = sizeof options, .alignment = 3};
    loch_buffer_pool_stats stats = {.size = 1};
    CHECK_FAILS(loch_buffer_pool_create(NULL, NULL, &pool), INVALID);
    assert_null(pool);
    CHECK_FAILS(loch_buffer_pool_create(it.allocator, NULL, NULL), INVALID);
    CHECK_FAILS(loch_buffer_pool_create(it.allocator, &options, &pool), INVALID);
    options = (loch_buffer_pool_options){.size = 1};
    CHECK_FAILS(loch_buffer_pool_create(it.allocator, &options, &pool), INVALID);
    CHECK_FAILS(loch_buffer_pool_acquire(NULL, 1, NULL, &out), INVALID);
    assert_null(out);
    CHECK_FAILS(loch_buffer_pool_acquire(it.pool, 1, NULL, NULL), INVALID);
    CHECK_FAILS(loch_buffer_pool_acquire(it.pool, 1, foreign, &out), INVALID);
    CHECK_FAILS(loch_buffer_pool_release(it.pool, mine, foreign), INVALID); /* and it is the caller's still */
    CHECK_FAILS(loch_buffer_pool_release(NULL, mine, NULL), INVALID);
    CHECK_FAILS(loch_buffer_pool_get_stats(it.pool, NULL), INVALID);
    CHECK_FAILS(loch_buffer_pool_get_stats(NULL, &stats), INVALID);
    CHECK_FAILS(loch_buffer_pool_get_stats(it.pool, &stats), INVALID);
    put(&it, mine, NULL);
    loch_stream_close(foreign);
    loch_device_release(sim);
    bench_close(&it);
}

int main(void)
{
    if (test_heap_install() != LOCH_OK) return 1;
    const struct CMUnitTest tests[] = {
        SIM_TEST(threads_share_a_pool),
        SIM_TEST(a_pool_of_buffers_survives_failing_host_memory),
        SIM_TEST(failing_driver_calls_leave_the_pool_as_it_was),
        SIM_TEST(a_lost_device_gives_no_buffer_and_takes_all_back),
        SIM_TEST(wrong_calls_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

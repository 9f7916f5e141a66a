/* SPDX-License-Identifier: MIT */
/* Threads take streams and events from one pool, queue work and give them back busy. No two have the same one at a
 * time, none comes with work of another, and in the end all are accounted for. */
#include "engine/stream_pool.h"
#include "test.h"
#include "worker.h"

#define THREADS 4
#define STEPS 400
#define HELD 3

typedef struct worker {
    loch_stream_pool *pool;
    test_random random;
    loch_stream *streams[HELD];
    loch_event *events[HELD];
    char failure[400];
} worker;

static void work_once(worker *w, size_t at)
{
    const loch_sim_kernel kernel = {.size = sizeof kernel, .name = "work", .duration_ns = 500000};
    const loch_event_kind kind = at % 2 ? LOCH_EVENT_TIMED : LOCH_EVENT_PLAIN;
    if (w->streams[at]) {
        TRY(loch_stream_pool_release(w->pool, w->streams[at]));
        lochi_stream_pool_release_event(w->pool, w->events[at]);
        w->streams[at] = NULL;
        w->events[at] = NULL;
        return;
    }
    TRY(loch_stream_pool_acquire(w->pool, &w->streams[at]));
    TRY(loch_stream_query(w->streams[at])); /* another's would be pending */
    TRY(lochi_stream_pool_acquire_event(w->pool, kind, &w->events[at]));
    TRY(loch_event_query(w->events[at]));
    TRY(loch_sim_launch(w->streams[at], &kernel));
    TRY(loch_event_record(w->events[at], w->streams[at]));
}

static void *work(void *argument)
{
    worker *w = argument;
    for (int i = 0; i < STEPS && !w->failure[0]; i++)
        work_once(w, test_random_below(&w->random, HELD));
    for (size_t i = 0; i < HELD && !w->failure[0]; i++)
        if (w->streams[i]) work_once(w, i);
    return NULL;
}

static void threads_share_a_pool(void **state)
{
    test_random *random = *state;
    const loch_stream_pool_options options = {.size = sizeof options, .kept_streams = 5, .kept_events = 6};
    loch_stream_pool_info info = {.size = sizeof info};
    loch_device *device;
    loch_stream_pool *pool;
    worker workers[THREADS];
    CHECK_OK(loch_device_open("sim:1GiB", &device));
    CHECK_OK(loch_stream_pool_create(device, &options, &pool));
    for (int i = 0; i < THREADS; i++)
        workers[i] = (worker){.pool = pool, .random = {test_random_next(random)}};
    TEST_THREADS_RUN(work, workers);
    for (int i = 0; i < THREADS; i++)
        if (workers[i].failure[0]) fail_msg("%s", workers[i].failure);
    CHECK_OK(loch_stream_pool_get_info(pool, &info));
    assert_int_equal(info.streams_out + info.events_out, 0);
    assert_true(info.streams_kept <= 5 && info.events_kept <= 12);
    assert_true(info.streams_again && info.events_again);
    print_message("streams made %llu, again %llu; events made %llu, again %llu\n",
                  (unsigned long long)info.streams_made, (unsigned long long)info.streams_again,
                  (unsigned long long)info.events_made, (unsigned long long)info.events_again);
    CHECK_OK(loch_device_sync(device));
    loch_stream_pool_destroy(pool);
    loch_sim_stats stats = {.size = sizeof stats};
    CHECK_OK(loch_sim_get_stats(device, &stats));
    assert_int_equal(stats.streams + stats.events, 0);
    loch_device_release(device);
}

int main(void)
{
    test_random random = {test_seed(21)};
    const struct CMUnitTest tests[] = {cmocka_unit_test_prestate(threads_share_a_pool, &random)};
    loch_host_usage before = {.size = sizeof before}, after = {.size = sizeof after};
    CHECK_OK(loch_host_get_usage(&before));
    const int failed = cmocka_run_group_tests(tests, NULL, NULL);
    CHECK_OK(loch_host_get_usage(&after));
    if (after.blocks == before.blocks && after.bytes == before.bytes) return failed;
    fprintf(stderr, "%zu pieces of bookkeeping were left behind\n", after.blocks - before.blocks);
    return 1;
}

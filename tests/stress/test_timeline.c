/* SPDX-License-Identifier: MIT */
/* Threads that come and go record nested spans on the host and on a simulated device, while others walk, print, clear
 * and change the level. Whatever is seen is whole: names, depths and times belong together. */
#include "test.h"
#include "worker.h"

#include <pthread.h>
#include <stdatomic.h>

enum { THREADS = 4, LIVES = 3, STEPS = 1500, LOOKERS = 2, DEPTH = 5 };

typedef struct shared {
    loch_device *device;
    loch_allocator *allocator;
    loch_timeline *timeline;
    atomic_int working;
    _Atomic uint64_t begun;
} shared;

typedef struct worker {
    pthread_t thread;
    shared *with;
    test_random random;
    char failure[512];
} worker;

/* The name contains the depth and the work, so that a reader of the span can check it. */
static void span_name(char name[128], unsigned depth, uint64_t bytes)
{
    const int length = snprintf(name, 128, "%u %llu ", depth, (unsigned long long)bytes);
    if (bytes % 3 == 0) { /* too long for a record */
        memset(name + length, '.', 100 - (size_t)length);
        name[100] = '\0';
    }
}

static void worker_step(worker *w, loch_stream *stream)
{
    loch_span spans[DEPTH];
    const unsigned depth = 1 + (unsigned)test_random_below(&w->random, DEPTH);
    for (unsigned i = 0; i < depth; i++) {
        const uint64_t bytes = test_random_below(&w->random, 1000);
        char name[128];
        span_name(name, i, bytes);
        const loch_span_options options = {
            .size = sizeof options,
            .stream = test_random_below(&w->random, 2) ? stream : NULL,
            .allocator = test_random_below(&w->random, 16) ? NULL : w->with->allocator,
            .flops = 1,
            .bytes = bytes,
        };
        spans[i] = loch_span_begin(w->with->timeline, name, &options);
        EXPECT(spans[i].timeline == w->with->timeline);
    }
    const loch_sim_kernel kernel = {.size = sizeof kernel, .duration_ns = 100};
    if (test_random_below(&w->random, 4) == 0) TRY(loch_sim_launch(stream, &kernel));
    if (test_random_below(&w->random, 2)) /* the others end with it */
        loch_span_end(&spans[0]);
    for (unsigned i = depth; i--;)
        loch_span_end(&spans[i]);
    atomic_fetch_add(&w->with->begun, depth);
}

static void *worker_live(void *user)
{
    worker *w = user;
    loch_stream *stream = NULL;
    if (loch_stream_create(w->with->device, NULL, &stream) != LOCH_OK)
        snprintf(w->failure, sizeof w->failure, "stream");
    for (int i = 0; i < STEPS && !w->failure[0]; i++)
        worker_step(w, stream);
    loch_stream_close(stream);
    return NULL;
}

/* A thread whose threads do the work, one after the other. */
static void *worker_run(void *user)
{
    worker *w = user;
    for (int life = 0; life < LIVES && !w->failure[0]; life++) {
        pthread_t thread;
        if (pthread_create(&thread, NULL, worker_live, w) == 0) pthread_join(thread, NULL);
    }
    atomic_fetch_sub(&w->with->working, 1);
    return NULL;
}

static loch_status look_at(const loch_span_record *record, void *user)
{
    worker *w = user;
    char name[128];
    span_name(name, record->depth, record->bytes);
    if (!strcmp(name, record->name) && record->flops == 1) return LOCH_OK;
    snprintf(w->failure, sizeof w->failure, "\"%s\" of depth %u with %llu bytes", record->name, record->depth,
             (unsigned long long)record->bytes);
    return LOCH_E_CORRUPT;
}

static void looker_look(worker *w)
{
    static const loch_timeline_format formats[] = {LOCH_TIMELINE_TREE, LOCH_TIMELINE_BARS, LOCH_TIMELINE_TRACE};
    char text[512];
    switch (test_random_below(&w->random, 4)) {
    case 0: EXPECT(loch_timeline_walk(w->with->timeline, look_at, w) == LOCH_OK || w->failure[0]); break;
    case 1: loch_timeline_forget(w->with->timeline); break;
    case 2: loch_timeline_count(w->with->timeline, NULL, NULL); break;
    default:
        EXPECT(test_timeline_print(w->with->timeline, formats[test_random_below(&w->random, 3)], 20, text,
                                   sizeof text) > 0);
    }
    loch_timeline_set_level(w->with->timeline, (int)test_random_below(&w->random, 3));
}

static void *looker_run(void *user)
{
    worker *w = user;
    while (atomic_load(&w->with->working) && !w->failure[0])
        looker_look(w);
    return NULL;
}

static void spans_are_whole_while_others_look(void **state)
{
    (void)state;
    loch_host_usage before = {.size = sizeof before}, after = {.size = sizeof after};
    CHECK_OK(loch_host_get_usage(&before));
    const uint64_t seed = test_seed(7);
    shared with = {.working = THREADS};
    worker workers[THREADS + LOOKERS];
    CHECK_OK(loch_device_open("sim:64MiB", &with.device));
    CHECK_OK(loch_pool_create(with.device, "watched", NULL, &with.allocator));
    CHECK_OK(loch_timeline_create(NULL, &with.timeline));
    for (size_t i = 0; i < THREADS + LOOKERS; i++) {
        workers[i] = (worker){.with = &with, .random = {seed + i}};
        assert_int_equal(pthread_create(&workers[i].thread, NULL, i < THREADS ? worker_run : looker_run, &workers[i]),
                         0);
    }
    for (size_t i = 0; i < THREADS + LOOKERS; i++)
        assert_int_equal(pthread_join(workers[i].thread, NULL), 0);
    for (size_t i = 0; i < THREADS + LOOKERS; i++)
        if (workers[i].failure[0]) fail_msg("%s", workers[i].failure);
    uint64_t lost;
    loch_timeline_count(with.timeline, NULL, &lost);
    assert_int_equal(lost, 0);
    assert_true(with.begun >= THREADS * LIVES * STEPS);
    loch_timeline_destroy(with.timeline);
    loch_allocator_release(with.allocator);
    loch_sim_stats stats = {.size = sizeof stats};
    CHECK_OK(loch_sim_get_stats(with.device, &stats));
    assert_int_equal(stats.events, 0);
    loch_device_release(with.device);
    CHECK_OK(loch_host_get_usage(&after));
    assert_int_equal(after.blocks, before.blocks);
}

/* Without a thread that clears, no span is missing. */
static void every_span_is_there_in_the_end(void **state)
{
    (void)state;
    shared with = {.working = THREADS};
    worker workers[THREADS];
    const uint64_t seed = test_seed(8);
    CHECK_OK(loch_device_open("sim:64MiB", &with.device));
    CHECK_OK(loch_pool_create(with.device, "watched", NULL, &with.allocator));
    CHECK_OK(loch_timeline_create(NULL, &with.timeline));
    for (size_t i = 0; i < THREADS; i++)
        workers[i] = (worker){.with = &with, .random = {seed + i}};
    TEST_THREADS_RUN(worker_run, workers);
    worker looker = {.with = &with};
    CHECK_OK(loch_timeline_walk(with.timeline, look_at, &looker));
    size_t kept;
    loch_timeline_count(with.timeline, &kept, NULL);
    assert_int_equal(kept, with.begun);
    loch_timeline_destroy(with.timeline);
    loch_allocator_release(with.allocator);
    loch_device_release(with.device);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(spans_are_whole_while_others_look),
        cmocka_unit_test(every_span_is_there_in_the_end),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

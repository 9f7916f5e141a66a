/* SPDX-License-Identifier: MIT */
/* Shared by the tests of forks: allocators of every kind on one device, threads that use them, and what a child does
 * with them. */
#ifndef LOCH_TEST_FORK_ALLOCATORS_H
#define LOCH_TEST_FORK_ALLOCATORS_H

#include "fork_fixture.h"
#include "memory/pool/report/check.h"
#include "memory/allocator.h"

#define THREADS 4
#define SIZES 6

__attribute__((unused)) static const size_t sizes[SIZES] = {
    24, 700, 9 * TEST_KIB, 80 * TEST_KIB, 700 * TEST_KIB, 3 * TEST_MIB};

enum { POOL, DIRECT, CHILD, LIMIT, TRACKING, LOGGING, GUARD, LOCKED, FAULT, SESSION, DEFAULT, KINDS };

typedef struct bed {
    loch_device *device;
    loch_allocator *all[KINDS], *under[KINDS]; /* under: what a wrapper wraps */
    loch_session *session;
    char path[64];
    void *kept[KINDS]; /* a block of the main thread's */
} bed;

__attribute__((unused)) static void bed_open(bed *b)
{
    CHECK_OK(loch_device_open("cpu", &b->device));
    CHECK_OK(loch_pool_create(b->device, "pool", NULL, &b->all[POOL]));
    CHECK_OK(loch_direct_create(b->device, "direct", NULL, &b->all[DIRECT]));
    const loch_child_options quota = {.size = sizeof quota, .kind = LOCH_CHILD_QUOTA};
    CHECK_OK(loch_pool_create_child(b->all[POOL], "child", &quota, &b->all[CHILD]));
    const loch_limit_options limit = {.size = sizeof limit, .hard_bytes = TEST_GIB};
    CHECK_OK(loch_limit_create(b->all[POOL], "limit", &limit, &b->all[LIMIT]));
    const loch_tracking_options tracking = {.size = sizeof tracking, .records = 64};
    CHECK_OK(loch_tracking_create(b->all[DIRECT], "tracking", &tracking, &b->all[TRACKING]));
    snprintf(b->path, sizeof b->path, "/tmp/loch-fork-%d.csv", (int)getpid());
    const loch_logging_options logging = {.size = sizeof logging, .format = LOCH_LOGGING_CSV, .path = b->path};
    CHECK_OK(loch_logging_create(b->all[POOL], "logging", &logging, &b->all[LOGGING]));
    CHECK_OK(loch_redzone_create(b->all[POOL], "redzone", NULL, &b->all[GUARD]));
    CHECK_OK(loch_direct_create(b->device, "inner", NULL, &b->under[LOCKED]));
    CHECK_OK(loch_locked_create(b->under[LOCKED], "locked", &b->all[LOCKED]));
    CHECK_OK(loch_fault_create(b->all[POOL], "fault", NULL, &b->all[FAULT]));
    CHECK_OK(loch_session_begin(b->all[POOL], "session", &b->session));
    b->all[SESSION] = loch_allocator_retain(loch_session_get_allocator(b->session));
    const loch_attributes any = {0, 0};
    CHECK_OK(loch_device_acquire_allocator(b->device, any, LOCH_FALLBACK_NONE, &b->all[DEFAULT]));
    for (int i = 0; i < KINDS; i++) {
        CHECK_OK(loch_alloc(b->all[i], 5000, &b->kept[i]));
        test_pattern_write(b->kept[i], 5000, (uint64_t)i);
    }
}

__attribute__((unused)) static void bed_close(bed *b)
{
    for (int i = 0; i < KINDS; i++)
        CHECK_OK(loch_free(b->all[i], b->kept[i]));
    CHECK_OK(loch_session_end(b->session, NULL, NULL));
    for (int i = KINDS - 1; i >= 0; i--) {
        loch_allocator_release(b->all[i]);
        loch_allocator_release(b->under[i]);
    }
    CHECK_OK(loch_registry_clear(NULL, NULL, NULL));
    loch_device_release(b->device);
    unlink(b->path);
}

typedef struct storm {
    bed *bed;
    atomic_bool is_over;
    atomic_int failures;
    pthread_t threads[THREADS];
    atomic_int started;
} storm;

/* Takes, fills and gives back one block; false when something went wrong. */
__attribute__((unused)) static bool storm_step(loch_allocator *allocator, size_t bytes, uint64_t seed)
{
    void *block = NULL;
    if (loch_alloc(allocator, bytes, &block) != LOCH_OK || !block) return false;
    test_pattern_write(block, bytes < 64 ? bytes : 64, seed);
    const bool is_good = test_pattern_differs(block, bytes < 64 ? bytes : 64, seed) == (bytes < 64 ? bytes : 64);
    return loch_free(allocator, block) == LOCH_OK && is_good;
}

/* One round of a thread. */
__attribute__((unused)) static void storm_round(storm *s, test_random *random, void *held[4])
{
    const int kind = (int)test_random_below(random, KINDS);
    const size_t bytes = sizes[test_random_below(random, SIZES)], at = test_random_below(random, 4);
    if (!storm_step(s->bed->all[kind], bytes, test_random_next(random))) atomic_fetch_add(&s->failures, 1);
    if (held[at] && loch_free(s->bed->all[POOL], held[at]) != LOCH_OK) atomic_fetch_add(&s->failures, 1);
    if (loch_alloc(s->bed->all[POOL], bytes, &held[at]) != LOCH_OK) atomic_fetch_add(&s->failures, 1);
    if (test_random_below(random, 16) == 0) {
        loch_stats stats = {.size = sizeof stats};
        if (loch_allocator_get_stats(s->bed->all[kind], &stats) != LOCH_OK) atomic_fetch_add(&s->failures, 1);
    }
    if (test_random_below(random, 64) == 0) { /* objects come and go meanwhile */
        loch_allocator *made = NULL;
        if (loch_pool_create(s->bed->device, "short", NULL, &made) != LOCH_OK || !storm_step(made, bytes, 1))
            atomic_fetch_add(&s->failures, 1);
        loch_allocator_release(made);
    }
}

__attribute__((unused)) static void *storm_thread(void *user)
{
    storm *s = user;
    const unsigned number = (unsigned)atomic_fetch_add(&s->started, 1);
    test_random random = {number};
    void *held[4] = {NULL};
    while (!atomic_load(&s->is_over))
        FORK_STEP(storm_round(s, &random, held));
    for (int i = 0; i < 4; i++)
        if (held[i] && loch_free(s->bed->all[POOL], held[i]) != LOCH_OK) atomic_fetch_add(&s->failures, 1);
    return NULL;
}

__attribute__((unused)) static void storm_begin(storm *s, bed *b)
{
    *s = (storm){.bed = b};
    for (int i = 0; i < THREADS; i++)
        assert_int_equal(pthread_create(&s->threads[i], NULL, storm_thread, s), 0);
    fork_await(&s->started, THREADS);
}

__attribute__((unused)) static void storm_end(storm *s)
{
    atomic_store(&s->is_over, true);
    for (int i = 0; i < THREADS; i++)
        pthread_join(s->threads[i], NULL);
    assert_int_equal(atomic_load(&s->failures), 0);
}

__attribute__((unused)) static void *child_thread(void *user)
{
    bed *b = user;
    for (int round = 0; round < 3; round++)
        for (int i = 0; i < KINDS; i++)
            for (int j = 0; j < SIZES; j++)
                NEED(storm_step(b->all[i], sizes[j], (uint64_t)j));
    return NULL;
}

__attribute__((unused)) static void child_use(void *user)
{
    bed *b = user;
    for (int i = 0; i < KINDS; i++) {
        NEED(test_pattern_differs(b->kept[i], 5000, (uint64_t)i) == 5000);
        memset(b->kept[i], 0x5a, 5000); /* not the parent's */
        for (int j = 0; j < SIZES; j++)
            NEED(storm_step(b->all[i], sizes[j], (uint64_t)(i + j)));
    }
    pthread_t threads[2];
    for (int i = 0; i < 2 * FORK_HAS_THREADS; i++)
        NEED(pthread_create(&threads[i], NULL, child_thread, b) == 0);
    for (int i = 0; i < 2 * FORK_HAS_THREADS; i++)
        NEED(pthread_join(threads[i], NULL) == 0);
    for (int i = 0; i < KINDS; i++) {
        lochi_pool *pool = lochi_pool_of(b->all[i]);
        if (pool) {
            const char *wrong = lochi_pool_check(pool);
            if (wrong) fprintf(stderr, "%s\n", wrong);
            NEED(!wrong);
            NEED(atomic_load(&pool->gate) == 0);
        }
        loch_stats stats = {.size = sizeof stats};
        NEED_OK(loch_allocator_get_stats(b->all[i], &stats));
        NEED_OK(loch_allocator_trim(b->all[i], 0, NULL));
    }
}

__attribute__((unused)) static void child_release(bed *b)
{
    for (int i = 0; i < KINDS; i++)
        NEED_OK(loch_free(b->all[i], b->kept[i]));
    NEED_OK(loch_session_end(b->session, NULL, NULL));
    for (int i = KINDS - 1; i >= 0; i--) {
        loch_allocator_release(b->all[i]);
        loch_allocator_release(b->under[i]);
    }
    size_t leaks;
    NEED_OK(loch_registry_clear(NULL, NULL, &leaks));
    loch_device_release(b->device);
}

typedef struct inside {
    bed *bed;
    int kind;
    bool is_child;  /* this process is one */
    int bad, forks; /* of the parent */
} inside;

#endif

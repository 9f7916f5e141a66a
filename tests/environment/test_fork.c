/* SPDX-License-Identifier: MIT */
/* fork() in a process whose threads allocate: memory of the CPU in the child, by every kind of allocator. */
#include "fork_fixture.h"

#include "memory/pool/check.h"
#include "memory/allocator.h"

#define THREADS 4
#define SIZES 6

static const size_t sizes[SIZES] = {24, 700, 9 * TEST_KIB, 80 * TEST_KIB, 700 * TEST_KIB, 3 * TEST_MIB};

/* --- allocators of every kind, on one device --- */

enum { POOL, DIRECT, CHILD, LIMIT, TRACKING, LOGGING, GUARD, LOCKED, FAULT, SESSION, DEFAULT, KINDS };

typedef struct bed {
    loch_device *device;
    loch_allocator *all[KINDS], *under[KINDS]; /* under: what a wrapper wraps */
    loch_session *session;
    char path[64];
    void *kept[KINDS]; /* a block of the main thread's */
} bed;

static void bed_open(bed *b)
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
    CHECK_OK(loch_redzone_create(b->all[POOL], "guard", NULL, &b->all[GUARD]));
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

static void bed_close(bed *b)
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

/* --- threads that allocate --- */

typedef struct storm {
    bed *bed;
    atomic_bool is_over;
    atomic_int failures;
    pthread_t threads[THREADS];
    atomic_int started;
} storm;

/* Takes, fills and gives back one block; false when something went wrong. */
static bool storm_step(loch_allocator *allocator, size_t bytes, uint64_t seed)
{
    void *block = NULL;
    if (loch_alloc(allocator, bytes, &block) != LOCH_OK || !block) return false;
    test_pattern_write(block, bytes < 64 ? bytes : 64, seed);
    const bool is_good = test_pattern_differs(block, bytes < 64 ? bytes : 64, seed) == (bytes < 64 ? bytes : 64);
    return loch_free(allocator, block) == LOCH_OK && is_good;
}

/* One round of a thread. */
static void storm_round(storm *s, test_random *random, void *held[4])
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

static void *storm_thread(void *user)
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

static void storm_begin(storm *s, bed *b)
{
    *s = (storm){.bed = b};
    for (int i = 0; i < THREADS; i++)
        assert_int_equal(pthread_create(&s->threads[i], NULL, storm_thread, s), 0);
    fork_await(&s->started, THREADS);
}

static void storm_end(storm *s)
{
    atomic_store(&s->is_over, true);
    for (int i = 0; i < THREADS; i++)
        pthread_join(s->threads[i], NULL);
    assert_int_equal(atomic_load(&s->failures), 0);
}

/* --- what a child does --- */

static void child_all(void *user)
{
    child_use(user);
    child_release(user);
}

static void child_of_child(void *user)
{
    child_use(user);
    bed *b = user;
    for (int i = 0; i < KINDS; i++)
        test_pattern_write(b->kept[i], 5000, (uint64_t)i);
    NEED(fork_run(child_all, user) == 0);
    for (int i = 0; i < KINDS; i++)
        NEED(test_pattern_differs(b->kept[i], 5000, (uint64_t)i) == 5000);
    child_release(user);
}

/* --- tests --- */

static void the_child_of_a_busy_process_allocates(void **state)
{
    (void)state;
    bed b = {0};
    storm s;
    bed_open(&b);
    storm_begin(&s, &b);
    int bad = 0;
    for (int i = fork_count(100); i > 0 && !bad; i--)
        bad = fork_run(i % 8 ? child_all : child_of_child, &b);
    storm_end(&s);
    assert_int_equal(bad, 0);
    for (int i = 0; i < KINDS; i++)
        assert_int_equal(test_pattern_differs(b.kept[i], 5000, (uint64_t)i), 5000);
    assert_null(lochi_pool_check(lochi_pool_of(b.all[POOL])));
    bed_close(&b);
}

/* Several threads fork at the same time. */
static void *fork_thread(void *user)
{
    storm *s = user;
    for (int i = 0; i < 10; i++)
        if (fork_run(child_use, s->bed) != 0) atomic_fetch_add(&s->failures, 1);
    return NULL;
}

static void children_forked_by_several_threads_allocate(void **state)
{
    (void)state;
    bed b = {0};
    storm s;
    bed_open(&b);
    storm_begin(&s, &b);
    pthread_t threads[3];
    for (int i = 0; i < 3; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, fork_thread, &s), 0);
    for (int i = 0; i < 3; i++)
        pthread_join(threads[i], NULL);
    storm_end(&s);
    bed_close(&b);
}

/* --- threads that wait for memory, or are in a pressure function --- */

typedef struct waiting {
    loch_allocator *pool, *limit;
    void *all;         /* the memory that is waited for */
    atomic_int inside; /* threads that have come so far */
    atomic_int may_go;
    loch_status status;
} waiting;

static size_t wait_in_pressure(loch_allocator *allocator, size_t bytes, void *user)
{
    (void)allocator, (void)bytes;
    waiting *w = user;
    atomic_fetch_add(&w->inside, 1);
    fork_await(&w->may_go, 1);
    return 0;
}

static void *wait_for_memory(void *user)
{
    waiting *w = user;
    void *block = NULL;
    const loch_request request = {
        .size = sizeof request, .bytes = 4 * TEST_MIB, .timeout_ns = (uint64_t)FORK_SECONDS * 4000000000u};
    w->status = loch_allocator_alloc(w->limit, &request, &block);
    if (w->status == LOCH_OK) w->status = loch_free(w->limit, block);
    return NULL;
}

static void child_of_waiting(void *user)
{
    waiting *w = user;
    NEED(atomic_load(&w->limit->waiters) == 0);
    NEED(atomic_load(&w->pool->waiters) == 0);
    NEED(atomic_load(&w->pool->pool->gate) == 0);
    NEED(storm_step(w->pool, 100, 1));
    NEED_OK(loch_free(w->limit, w->all));
    NEED(storm_step(w->limit, 4 * TEST_MIB, 1));
    const loch_request request = {.size = sizeof request, .bytes = 7 * TEST_MIB, .timeout_ns = 1000000};
    void *first, *second = NULL;
    NEED_OK(loch_alloc(w->limit, 7 * TEST_MIB, &first));
    NEED(loch_allocator_alloc(w->limit, &request, &second) == LOCH_E_LIMIT);
    NEED_OK(loch_free(w->limit, first));
    loch_allocator_release(w->limit);
    loch_allocator_release(w->pool);
}

static void child_of_pressure(void *user)
{
    waiting *w = user;
    NEED_OK(loch_allocator_remove_pressure(w->limit, wait_in_pressure, w)); /* waits for nobody */
    child_of_waiting(w);
}

static void a_child_forgets_threads_that_wait(void **state)
{
    const bool in_pressure = *state != NULL;
    loch_device *device;
    waiting w = {0};
    CHECK_OK(loch_device_open("cpu", &device));
    CHECK_OK(loch_pool_create(device, "pool", NULL, &w.pool));
    const loch_limit_options limit = {.size = sizeof limit, .hard_bytes = 8 * TEST_MIB};
    CHECK_OK(loch_limit_create(w.pool, "limit", &limit, &w.limit));
    if (in_pressure) CHECK_OK(loch_allocator_add_pressure(w.limit, wait_in_pressure, &w));
    CHECK_OK(loch_alloc(w.limit, 6 * TEST_MIB, &w.all));
    pthread_t threads[2];
    for (int i = 0; i < 2; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, wait_for_memory, &w), 0);
    if (in_pressure)
        fork_await(&w.inside, 2);
    else
        while (atomic_load(&w.pool->waiters) != 2)
            sched_yield();
    int bad = 0;
    for (int i = 0; i < 20 && !bad; i++)
        bad = fork_run(in_pressure ? child_of_pressure : child_of_waiting, &w);
    atomic_store(&w.may_go, 1);
    CHECK_OK(loch_free(w.limit, w.all));
    for (int i = 0; i < 2; i++)
        pthread_join(threads[i], NULL);
    assert_int_equal(bad, 0);
    CHECK_OK(w.status);
    assert_int_equal(atomic_load(&w.pool->pool->gate), 0);
    if (in_pressure) CHECK_OK(loch_allocator_remove_pressure(w.limit, wait_in_pressure, &w));
    loch_allocator_release(w.limit);
    loch_allocator_release(w.pool);
    loch_device_release(device);
}

/* --- what other threads kept --- */

typedef struct keeping {
    loch_allocator *pool;
    atomic_int is_full, may_go;
} keeping;

static void *keep_blocks(void *user)
{
    keeping *k = user;
    void *blocks[32];
    bool is_good = true;
    for (int i = 0; i < 32; i++)
        is_good &= loch_alloc(k->pool, 40 * TEST_KIB, &blocks[i]) == LOCH_OK;
    for (int i = 0; i < 32; i++)
        is_good &= loch_free(k->pool, blocks[i]) == LOCH_OK;
    atomic_store(&k->is_full, 1);
    fork_await(&k->may_go, 1);
    return is_good ? NULL : user;
}

static void child_has_it_all(void *user)
{
    keeping *k = user;
    loch_pool_info info = {.size = sizeof info};
    NEED_OK(loch_pool_get_info(k->pool, &info));
    NEED(info.thread_bytes < TEST_MIB / 2); /* as when a thread has ended */
    loch_stats stats = {.size = sizeof stats};
    NEED_OK(loch_allocator_get_stats(k->pool, &stats));
    NEED(stats.blocks == 1 && stats.requested_bytes == 77);
    NEED_OK(loch_allocator_trim(k->pool, 0, NULL));
    NEED(!lochi_pool_check(lochi_pool_of(k->pool)));
    NEED(atomic_load(&k->pool->pool->gate) == 0);
}

static void a_child_takes_back_what_threads_kept(void **state)
{
    (void)state;
    loch_device *device;
    keeping k = {0};
    void *own;
    CHECK_OK(loch_device_open("cpu", &device));
    CHECK_OK(loch_pool_create(device, "pool", NULL, &k.pool));
    pthread_t thread;
    assert_int_equal(pthread_create(&thread, NULL, keep_blocks, &k), 0);
    fork_await(&k.is_full, 1);
    const loch_request request = {.size = sizeof request, .bytes = 77, .tag = 0, .alignment = 4096};
    CHECK_OK(loch_allocator_alloc(k.pool, &request, &own)); /* not by the thread's own cache */
    loch_pool_info info = {.size = sizeof info};
    CHECK_OK(loch_pool_get_info(k.pool, &info));
    assert_true(info.thread_bytes > TEST_MIB);
    const int bad = fork_run(child_has_it_all, &k);
    atomic_store(&k.may_go, 1);
    void *failed;
    pthread_join(thread, &failed);
    assert_null(failed);
    assert_int_equal(bad, 0);
    CHECK_OK(loch_free(k.pool, own));
    loch_allocator_release(k.pool);
    loch_device_release(device);
}

int main(void)
{
    static int yes;
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_child_of_a_busy_process_allocates),
        cmocka_unit_test(children_forked_by_several_threads_allocate),
        cmocka_unit_test(a_child_forgets_threads_that_wait),
        cmocka_unit_test_prestate(a_child_forgets_threads_that_wait, &yes),
        cmocka_unit_test(a_child_takes_back_what_threads_kept),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

/* SPDX-License-Identifier: MIT */
/* The child of a fork allocates, whatever other threads of the process were doing. */
#include "fork_allocators.h"

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
    NEED_OK(loch_allocator_remove_pressure(w->limit, wait_in_pressure, w)); /* does not wait for any thread */
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

/* SPDX-License-Identifier: MIT */
/* Planned pools and several threads: blocks that another thread frees, threads that the plan does not serve, one
 * sequence of several threads, and the end of a planned pool in another thread. */
#include "planned_rig.h"
#include <pthread.h>
#include <stdatomic.h>

#define THREADS_STEPS 40
#define THREADS_ALLOCS 24

/* Blocks on their way to the thread that frees them. */
typedef struct passing {
    loch_allocator *allocator;
    _Atomic(void *) blocks[THREADS_STEPS * THREADS_ALLOCS];
    size_t count;
} passing;

static size_t passing_bytes(size_t i)
{
    return 1000 + 700 * (i % 5) + (i % THREADS_ALLOCS);
}

/* Frees the blocks of the other thread in their order, after comparing their contents. */
static void *free_all(void *user)
{
    passing *p = user;
    for (size_t i = 0; i < p->count; i++) {
        char *block;
        while (!(block = atomic_load_explicit(&p->blocks[i], memory_order_acquire)))
            sched_yield();
        if (test_pattern_differs(block, passing_bytes(i), i) != passing_bytes(i)) return user;
        if (loch_free(p->allocator, block) != LOCH_OK) return user;
    }
    return NULL;
}

static loch_device *open_cpu(void)
{
    loch_device *device;
    CHECK_OK(loch_device_open("cpu", &device));
    return device;
}

static void test_another_thread_frees(void **state)
{
    (void)state;
    for (int mode = 0; mode < 2; mode++) {
        const loch_planned_options options = {.size = sizeof options, .threads = (loch_planned_threads)mode};
        loch_device *device = open_cpu();
        loch_allocator *pool;
        loch_planned *planned;
        CHECK_OK(loch_pool_create(device, NULL, NULL, &pool));
        CHECK_OK(loch_planned_create(pool, NULL, &options, &planned));
        passing *p = calloc(1, sizeof *p);
        assert_non_null(p);
        p->allocator = loch_planned_get_allocator(planned);
        p->count = THREADS_STEPS * THREADS_ALLOCS;
        pthread_t thread;
        assert_int_equal(pthread_create(&thread, NULL, free_all, p), 0);
        for (size_t i = 0; i < p->count; i++) {
            void *block;
            if (i % THREADS_ALLOCS == 0) CHECK_OK(loch_planned_step(planned));
            CHECK_OK(loch_alloc(p->allocator, passing_bytes(i), &block));
            test_pattern_write(block, passing_bytes(i), i);
            atomic_store_explicit(&p->blocks[i], block, memory_order_release);
        }
        void *failed;
        assert_int_equal(pthread_join(thread, &failed), 0);
        assert_null(failed);
        loch_stats stats = {.size = sizeof stats};
        CHECK_OK(loch_allocator_get_stats(p->allocator, &stats));
        assert_int_equal(stats.blocks, 0);
        assert_int_equal(stats.requested_bytes, 0);
        assert_int_equal(stats.allocs, p->count);
        loch_planned_destroy(planned);
        loch_allocator_release(pool);
        loch_device_release(device);
        free(p);
    }
}

/* A thread that allocates and frees on its own. */
typedef struct worker {
    loch_allocator *allocator;
    size_t failures;
    uint64_t seed;
} worker;

static void *work(void *user)
{
    worker *w = user;
    test_random random = {w->seed};
    for (size_t round = 0; round < 300; round++) {
        void *blocks[8];
        size_t bytes[8];
        for (size_t i = 0; i < 8; i++) {
            bytes[i] = 1 + test_random_below(&random, 5000);
            if (loch_alloc(w->allocator, bytes[i], &blocks[i]) != LOCH_OK) return user;
            test_pattern_write(blocks[i], bytes[i], w->seed + i);
            loch_block found = {.size = sizeof found};
            if (loch_allocator_find(w->allocator, blocks[i], &found) != LOCH_OK) w->failures++;
        }
        loch_stats stats = {.size = sizeof stats};
        if (loch_allocator_get_stats(w->allocator, &stats) != LOCH_OK) w->failures++;
        for (size_t i = 0; i < 8; i++) {
            w->failures += test_pattern_differs(blocks[i], bytes[i], w->seed + i) != bytes[i];
            w->failures += loch_free(w->allocator, blocks[i]) != LOCH_OK;
        }
    }
    return NULL;
}

static void test_threads_beside_the_steps(void **state)
{
    (void)state;
    for (int mode = 0; mode < 2; mode++) {
        const loch_planned_options options = {.size = sizeof options, .threads = (loch_planned_threads)mode};
        loch_device *device = open_cpu();
        test_bed bed = {.name = "cpu", .device = device, .has_data = true};
        rig *r = calloc(1, sizeof *r);
        assert_non_null(r);
        rig_open(r, &bed, &options);
        worker workers[2] = {{r->allocator, 0, 5}, {r->allocator, 0, 600}};
        pthread_t threads[2];
        for (size_t i = 0; i < 2; i++)
            assert_int_equal(pthread_create(&threads[i], NULL, work, &workers[i]), 0);
        for (size_t i = 0; i < 200; i++)
            rig_step(r);
        for (size_t i = 0; i < 2; i++) {
            void *failed;
            assert_int_equal(pthread_join(threads[i], &failed), 0);
            assert_null(failed);
            assert_int_equal(workers[i].failures, 0);
        }
        if (mode == LOCH_PLANNED_ONE_THREAD) assert_int_equal(rig_info(r).deviations, 0);
        for (size_t i = 0; i < 30; i++)
            rig_step(r);
        rig_close(r);
        free(r);
        loch_device_release(device);
    }
}

/* Steps of a model whose second half runs in another thread, as a backward pass does. */
static void *second_half(void *user)
{
    rig *r = user;
    for (size_t i = RIG_PROGRAM / 2; i < RIG_PROGRAM; i++) {
        const int at = rig_program[i];
        if (at > 0)
            rig_alloc(r, (size_t)at - 1, rig_sizes[at - 1]);
        else
            rig_free(r, (size_t)-at - 1);
    }
    return NULL;
}

static void test_one_sequence_of_two_threads(void **state)
{
    (void)state;
    const loch_planned_options options = {.size = sizeof options, .threads = LOCH_PLANNED_ALL_THREADS};
    loch_device *device = open_cpu();
    test_bed bed = {.name = "cpu", .device = device, .has_data = true};
    rig *r = calloc(1, sizeof *r);
    assert_non_null(r);
    rig_open(r, &bed, &options);
    for (size_t step = 0; step < 10; step++) {
        pthread_t thread;
        CHECK_OK(loch_planned_step(r->planned));
        for (size_t i = 0; i < RIG_PROGRAM / 2; i++) {
            const int at = rig_program[i];
            if (at > 0)
                rig_alloc(r, (size_t)at - 1, rig_sizes[at - 1]);
            else
                rig_free(r, (size_t)-at - 1);
        }
        assert_int_equal(pthread_create(&thread, NULL, second_half, r), 0);
        assert_int_equal(pthread_join(thread, NULL), 0);
    }
    assert_int_equal(rig_info(r).period, RIG_SIZES);
    assert_int_equal(rig_info(r).served, 6 * RIG_SIZES);
    rig_close(r);
    free(r);
    loch_device_release(device);
}

/* Frees the last block after the planned pool was destroyed. */
static void *free_last(void *user)
{
    passing *p = user;
    return loch_free(p->allocator, atomic_load_explicit(&p->blocks[0], memory_order_relaxed)) == LOCH_OK ? NULL : user;
}

static void test_the_last_block_ends_the_pool_in_another_thread(void **state)
{
    (void)state;
    loch_device *device = open_cpu();
    test_bed bed = {.name = "cpu", .device = device, .has_data = true};
    rig *r = calloc(1, sizeof *r);
    passing *p = calloc(1, sizeof *p);
    assert_true(r && p);
    rig_open(r, &bed, NULL);
    rig_learn(r);
    CHECK_OK(loch_planned_step(r->planned));
    atomic_store(&p->blocks[0], rig_alloc(r, 0, rig_sizes[0]));
    assert_true(rig_is_planned(r, 0));
    p->allocator = r->allocator;
    loch_planned_destroy(r->planned);
    pthread_t thread;
    void *failed;
    assert_int_equal(pthread_create(&thread, NULL, free_last, p), 0);
    assert_int_equal(pthread_join(thread, &failed), 0);
    assert_null(failed);
    loch_stats stats = {.size = sizeof stats};
    CHECK_OK(loch_allocator_get_stats(r->pool, &stats));
    assert_int_equal(stats.blocks, 0);
    loch_allocator_release(r->pool);
    loch_stream_close(r->stream);
    loch_stream_close(r->other);
    loch_device_release(device);
    free(r);
    free(p);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_another_thread_frees),
        cmocka_unit_test(test_threads_beside_the_steps),
        cmocka_unit_test(test_one_sequence_of_two_threads),
        cmocka_unit_test(test_the_last_block_ends_the_pool_in_another_thread),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

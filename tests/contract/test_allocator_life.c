/* SPDX-License-Identifier: MIT */
/* Contract of allocator.h, over every allocator and stack: allocators end with their last reference and their last
 * block, whichever goes last, in whichever thread. */
#include "allocators.h"

#include "base/thread.h"
#include "memory/allocator.h"
#include <pthread.h>

#define THREADS 8
#define BLOCKS 24
#define SLEEPERS (LOCHI_SLOT_COUNT - 26) /* threads that hold places, and do no more */
#define CROWD 70                         /* threads that work: some find a place, most share the last one */
#define ROUNDS 4                         /* that the same threads free in */

#define FREE_FAILED ((void *)1)

typedef struct freeing {
    loch_allocator *allocator;
    void **blocks;
    size_t count;
    pthread_barrier_t *start;
} freeing;

/* Frees the blocks, in a thread that may never have used the allocator. */
static void *free_blocks(void *user)
{
    const freeing *job = user;
    void *result = NULL;
    if (job->start) pthread_barrier_wait(job->start);
    for (size_t i = 0; i < job->count; i++)
        if (loch_free(job->allocator, job->blocks[i]) != LOCH_OK) result = FREE_FAILED;
    return result;
}

static void blocks_outlive_references(void **state)
{
    test_subject s;
    test_subject_begin(&s, state);
    char *a = test_subject_alloc(&s, 1000), *b = test_subject_alloc(&s, 1000), *c = test_subject_alloc(&s, 1000);
    test_bed_put(s.bed, b, 1000, 7);
    loch_allocator *allocator = s.allocator;
    loch_allocator_release(allocator);
    s.allocator = NULL;
    CHECK_OK(loch_free(allocator, a));
    CHECK_FAILS(loch_free(allocator, a), DOUBLE_FREE); /* there are blocks left, so it is there to say so */
    CHECK_FAILS(loch_free(allocator, b + 1), INTERIOR);
    CHECK_FAILS(loch_allocator_free_sized(allocator, b, 999), INVALID);
    test_bed_expect(s.bed, b, 1000, 7);
    CHECK_OK(loch_allocator_free_sized(allocator, b, 1000));
    CHECK_OK(loch_allocator_free_on(allocator, c, NULL));
    test_subject_end(&s);
}

static void the_last_free_may_come_from_another_thread(void **state)
{
    test_subject s;
    void *blocks[BLOCKS];
    test_subject_begin(&s, state);
    for (size_t i = 0; i < BLOCKS; i++)
        blocks[i] = test_subject_alloc(&s, 100 + i);
    freeing job = {.allocator = s.allocator, .blocks = blocks, .count = BLOCKS};
    loch_allocator_release(s.allocator);
    s.allocator = NULL;
    pthread_t thread;
    void *result = FREE_FAILED;
    assert_int_equal(pthread_create(&thread, NULL, free_blocks, &job), 0);
    assert_int_equal(pthread_join(thread, &result), 0);
    assert_null(result);
    test_subject_end(&s);
}

static void references_are_counted(void **state)
{
    test_subject s;
    test_subject_begin(&s, state);
    for (int i = 0; i < 3; i++)
        loch_allocator_retain(s.allocator);
    for (int i = 0; i < 3; i++)
        loch_allocator_release(s.allocator);
    void *block = test_subject_alloc(&s, 100);
    CHECK_OK(loch_free(s.allocator, block));
    /* the last release comes when the blocks are gone */
    test_subject_end(&s);
}

/* A measured allocator may end inside a free, too. */
static void a_measured_allocator_may_end_inside_a_free(void **state)
{
    test_subject s;
    test_subject_begin(&s, state);
    CHECK_OK(loch_allocator_measure(s.allocator, LOCH_MEASURE_ON));
    void *a = test_subject_alloc(&s, 100), *b = test_subject_alloc(&s, 100);
    loch_allocator *allocator = s.allocator;
    loch_allocator_release(allocator);
    s.allocator = NULL;
    CHECK_OK(loch_free(allocator, a));
    CHECK_OK(loch_free(allocator, b));
    test_subject_end(&s);
}

/* A wrapper ends with its own blocks, whatever others have of the allocator that it wraps. */
static void a_wrapper_ends_with_its_own_blocks_alone(void **state)
{
    test_subject s;
    test_subject_begin(&s, state);
    for (size_t i = 0; i < test_wrappers_count; i++) {
        loch_allocator *one = NULL, *two = NULL;
        if (!strncmp(s.stack, "session/", 8) && !strcmp(test_wrappers[i], "session")) continue; /* its sibling */
        void *theirs = test_subject_alloc(&s, 300), *first = NULL, *second = NULL;
        CHECK_OK(test_stack_wrap(test_wrappers[i], s.allocator, &one));
        CHECK_OK(test_stack_wrap(test_wrappers[i], s.allocator, &two));
        CHECK_OK(loch_alloc(one, 100, &first));
        CHECK_OK(loch_alloc(two, 200, &second));
        CHECK_OK(loch_free(one, first));
        loch_allocator_release(one);
        assert_int_equal(atomic_load(&s.allocator->references),
                         2); /* the subject's own, and that of the second wrapper */
        loch_allocator_release(two);
        assert_int_equal(atomic_load(&s.allocator->references), 2); /* its block is left */
        CHECK_OK(loch_free(two, second));
        assert_int_equal(atomic_load(&s.allocator->references), 1);
        CHECK_OK(loch_free(s.allocator, theirs));
    }
    test_subject_end(&s);
}

typedef struct racer {
    freeing job;
    pthread_barrier_t *end;
    bool has_failed;
} racer;

/* Frees in each round what the first thread has laid out for it. */
static void *race(void *user)
{
    racer *r = user;
    for (int round = 0; round < ROUNDS; round++) {
        if (free_blocks(&r->job)) r->has_failed = true;
        pthread_barrier_wait(r->end);
    }
    return NULL;
}

/* Lays out blocks for all threads, and lets go of the allocator before or while they free them. */
static void race_round(test_subject *s, racer *racers, bool is_released_meanwhile)
{
    static void *blocks[THREADS][BLOCKS];
    for (size_t t = 0; t < THREADS; t++) {
        for (size_t i = 0; i < BLOCKS; i++)
            blocks[t][i] = test_subject_alloc(s, 1 + t + i);
        racers[t].job.allocator = s->allocator;
        racers[t].job.blocks = blocks[t];
    }
    if (!is_released_meanwhile) loch_allocator_release(s->allocator);
    pthread_barrier_wait(racers->job.start);
    if (is_released_meanwhile) loch_allocator_release(s->allocator);
    s->allocator = NULL;
    pthread_barrier_wait(racers->end);
    for (size_t t = 0; t < THREADS; t++)
        assert_false(racers[t].has_failed);
}

static void race_in_threads(test_subject *s, void **state)
{
    racer racers[THREADS];
    pthread_t threads[THREADS];
    pthread_barrier_t start, finish;
    pthread_barrier_init(&start, NULL, THREADS + 1);
    pthread_barrier_init(&finish, NULL, THREADS + 1);
    for (size_t t = 0; t < THREADS; t++) {
        racers[t] = (racer){.job = {.count = BLOCKS, .start = &start}, .end = &finish};
        assert_int_equal(pthread_create(&threads[t], NULL, race, &racers[t]), 0);
    }
    for (int round = 0; round < ROUNDS; round++) {
        race_round(s, racers, round != ROUNDS - 1);
        test_subject_end(s);
        test_subject_begin(s, state);
    }
    for (size_t t = 0; t < THREADS; t++)
        assert_int_equal(pthread_join(threads[t], NULL), 0);
    pthread_barrier_destroy(&finish);
    pthread_barrier_destroy(&start);
}

/* The last release races with the last frees, over and over: exactly one of them ends the allocator. */
static void one_of_the_last_release_and_the_last_frees_ends_it(void **state)
{
    test_subject s;
    test_subject_begin(&s, state);
    test_subject_require(&s, s.traits & LOCH_TRAIT_THREAD_SAFE);
    for (int i = 0; i < 3; i++)
        race_in_threads(&s, state);
    test_subject_end(&s);
}

/* --- more threads than have a place of their own --- */

typedef struct crowd {
    loch_device *device;
    const char *stack;
    pthread_barrier_t *start;
    loch_allocator *shared;
    atomic_int *without_place; /* threads that share the last one */
} crowd;

/* Each has a stack of its own, and all use one together; returns what went wrong. */
static const char *crowd_work(const crowd *job)
{
    loch_allocator *own = NULL;
    void *a = NULL, *b = NULL, *c = NULL;
    const char *wrong = NULL;
    if (test_stack_create(job->device, job->stack, &own) != LOCH_OK)
        wrong = "create";
    else if (loch_alloc(own, 100, &a) != LOCH_OK || loch_alloc(own, 200, &b) != LOCH_OK)
        wrong = "alloc";
    else if (loch_alloc(job->shared, 50, &c) != LOCH_OK)
        wrong = "alloc from the shared one";
    pthread_barrier_wait(job->start); /* a thread that failed comes too: the others wait for all */
    if (wrong) return wrong;
    if (loch_free(own, a) != LOCH_OK) return "free";
    loch_allocator_release(own);
    if (loch_free(own, b) != LOCH_OK) return "the last free";
    return loch_free(job->shared, c) == LOCH_OK ? NULL : "free to the shared one";
}

static void *crowd_run(void *user)
{
    const crowd *job = user;
    if (lochi_thread_slot() == LOCHI_SLOT_SHARED) atomic_fetch_add(job->without_place, 1);
    pthread_barrier_wait(job->start); /* all are there, and stay till the end */
    const char *wrong = crowd_work(job);
    pthread_barrier_wait(job->start);
    return (void *)(uintptr_t)wrong;
}

static void more_threads_than_slots_use_one_allocator(void **state)
{
    static pthread_t threads[CROWD];
    test_subject s;
    test_subject_begin(&s, state);
    /* one file each is too much for the limit on open files of some machines */
    const bool has_files = test_stack_has(s.stack, "csv") || test_stack_has(s.stack, "trace");
    /* each pool holds a granule at least, a range all of it */
    const size_t each = test_stack_has(s.stack, "child-range") ? TEST_USER_CAPACITY : 2 * TEST_MIB;
    const size_t total = s.bed->properties.total_bytes;
    const bool is_pool = test_stack_is_pool(s.stack);
    const bool has_no_room = TEST_HAS_FEW_ADDRESSES && (is_pool || strstr(s.stack, "budget")) &&
                             total > TEST_GIB; /* for the ranges of so many */
    const bool is_too_much = has_no_room || (is_pool && total < CROWD * each);
    test_subject_require(&s, s.traits & LOCH_TRAIT_THREAD_SAFE && !has_files && !is_too_much);
    pthread_barrier_t start;
    pthread_barrier_init(&start, NULL, CROWD);
    pthread_attr_t attributes;
    pthread_attr_init(&attributes);
    pthread_attr_setstacksize(&attributes, 256 * TEST_KIB);
    const char *wrong = NULL;
    atomic_int without_place = 0;
    crowd job = {s.bed->device, s.stack, &start, s.allocator, &without_place};
    for (size_t t = 0; t < CROWD; t++)
        assert_int_equal(pthread_create(&threads[t], &attributes, crowd_run, &job), 0);
    for (size_t t = 0; t < CROWD; t++) {
        void *result = NULL;
        assert_int_equal(pthread_join(threads[t], &result), 0);
        if (result) wrong = result;
    }
    pthread_attr_destroy(&attributes);
    pthread_barrier_destroy(&start);
    if (wrong) fail_msg("a thread failed: %s", wrong);
    assert_in_range(atomic_load(&without_place), 1, CROWD - 1); /* both kinds worked beside each other */
    const loch_stats stats = test_subject_stats(&s);
    assert_int_equal(stats.allocs, CROWD);
    assert_int_equal(stats.frees, CROWD);
    assert_int_equal(stats.blocks, 0);
    test_subject_end(&s);
}

/* Threads that hold places while all tests run, so that few more are needed to have more threads than places. */
typedef struct sleepers {
    pthread_t threads[SLEEPERS];
    pthread_barrier_t barrier;
} sleepers;

static void *sleep_in_place(void *user)
{
    sleepers *all = user;
    (void)lochi_thread_slot();
    pthread_barrier_wait(&all->barrier); /* all have one */
    pthread_barrier_wait(&all->barrier); /* the tests have ended */
    return NULL;
}

static bool sleepers_begin(sleepers *all)
{
    pthread_attr_t attributes;
    bool is_there = pthread_barrier_init(&all->barrier, NULL, SLEEPERS + 1) == 0 && pthread_attr_init(&attributes) == 0;
    if (!is_there) return false;
    pthread_attr_setstacksize(&attributes, 256 * TEST_KIB);
    for (size_t t = 0; t < SLEEPERS && is_there; t++)
        is_there = pthread_create(&all->threads[t], &attributes, sleep_in_place, all) == 0;
    pthread_attr_destroy(&attributes);
    if (is_there) pthread_barrier_wait(&all->barrier);
    return is_there;
}

static void sleepers_end(sleepers *all)
{
    pthread_barrier_wait(&all->barrier);
    for (size_t t = 0; t < SLEEPERS; t++)
        pthread_join(all->threads[t], NULL);
    pthread_barrier_destroy(&all->barrier);
}

int main(void)
{
    static sleepers all;
    const struct CMUnitTest cases[] = {
        cmocka_unit_test(blocks_outlive_references),
        cmocka_unit_test(the_last_free_may_come_from_another_thread),
        cmocka_unit_test(references_are_counted),
        cmocka_unit_test(a_measured_allocator_may_end_inside_a_free),
        cmocka_unit_test(a_wrapper_ends_with_its_own_blocks_alone),
        cmocka_unit_test(one_of_the_last_release_and_the_last_frees_ends_it),
        cmocka_unit_test(more_threads_than_slots_use_one_allocator),
    };
    if (!sleepers_begin(&all)) {
        puts("the system gives no threads");
        return 1;
    }
    const int failed = TEST_SUBJECTS_RUN(cases);
    sleepers_end(&all);
    return failed;
}

/* SPDX-License-Identifier: MIT */
/* Contract of allocator.h, over every allocator and stack that says it is thread safe: eight threads at a time. */
#include "allocators.h"
#include "worker.h"

#include <pthread.h>
#include <stdatomic.h>

#define THREADS 8
#define ROUNDS 24
#define LIVE 12

typedef struct worker {
    const test_subject *subject;
    loch_tag tag;
    size_t number;
    void *blocks[LIVE];
    uint64_t ids[ROUNDS * LIVE];
    size_t ids_count;
    char failure[LOCH_ERROR_SENTENCE_MAX];
} worker;

/* Takes some blocks, asks for all that can be asked, and gives them back. */
static void worker_round(worker *w, size_t round)
{
    loch_allocator *allocator = w->subject->allocator;
    for (size_t i = 0; i < LIVE; i++) {
        const loch_request request = {
            .size = sizeof request, .bytes = 1 + (w->number * 7 + round + i) % 300, .tag = w->tag};
        loch_block block = {.size = sizeof block};
        TRY(loch_allocator_alloc(allocator, &request, &w->blocks[i]));
        TRY(loch_allocator_find(allocator, w->blocks[i], &block));
        EXPECT(block.requested_bytes == request.bytes && block.tag == w->tag && block.id);
        w->ids[w->ids_count++] = block.id;
    }
    loch_stats stats = {.size = sizeof stats};
    TRY(loch_allocator_get_stats(allocator, &stats));
    EXPECT(stats.blocks >= LIVE && stats.blocks <= THREADS * LIVE);
    EXPECT(stats.allocs - stats.frees == stats.blocks); /* one moment, not several */
    EXPECT(stats.peak_blocks >= stats.blocks && stats.peak_requested_bytes >= stats.requested_bytes);
    TRY(loch_allocator_get_tag_stats(allocator, w->tag, &stats));
    EXPECT(stats.blocks == LIVE);
    TRY(loch_allocator_trim(allocator, 0, NULL));
    for (size_t i = 0; i < LIVE; i++) {
        TRY(loch_free(allocator, w->blocks[(i * 5 + round) % LIVE]));
    }
    EXPECT(loch_free(allocator, w) == LOCH_E_FOREIGN);
}

static void *worker_run(void *user)
{
    worker *w = user;
    for (size_t round = 0; round < ROUNDS && !w->failure[0]; round++)
        worker_round(w, round);
    return NULL;
}

static int compare_ids(const void *a, const void *b)
{
    const uint64_t left = *(const uint64_t *)a, right = *(const uint64_t *)b;
    return left < right ? -1 : left > right;
}

static void eight_threads_get_blocks_and_ids_of_their_own(void **state)
{
    static worker workers[THREADS];
    static uint64_t ids[THREADS * ROUNDS * LIVE];
    test_subject s;
    test_subject_begin(&s, state);
    test_subject_require(&s, s.traits & LOCH_TRAIT_THREAD_SAFE && s.reuses);
    pthread_t threads[THREADS];
    for (size_t t = 0; t < THREADS; t++) {
        char name[32];
        workers[t] = (worker){.subject = &s, .number = t};
        snprintf(name, sizeof name, "thread %zu", t);
        CHECK_OK(loch_tag_create(name, &workers[t].tag));
    }
    for (size_t t = 0; t < THREADS; t++)
        assert_int_equal(pthread_create(&threads[t], NULL, worker_run, &workers[t]), 0);
    for (size_t t = 0; t < THREADS; t++)
        assert_int_equal(pthread_join(threads[t], NULL), 0);
    size_t count = 0;
    for (size_t t = 0; t < THREADS; t++) {
        if (workers[t].failure[0]) fail_msg("thread %zu: %s", t, workers[t].failure);
        memcpy(ids + count, workers[t].ids, workers[t].ids_count * sizeof *ids);
        count += workers[t].ids_count;
    }
    qsort(ids, count, sizeof *ids, compare_ids);
    for (size_t i = 1; i < count; i++)
        assert_true(ids[i - 1] != ids[i]);
    const loch_stats stats = test_subject_stats(&s);
    assert_int_equal(stats.allocs, THREADS * ROUNDS * LIVE);
    assert_int_equal(stats.frees, THREADS * ROUNDS * LIVE);
    assert_int_equal(stats.blocks, 0);
    assert_int_equal(stats.requested_bytes, 0);
    assert_int_equal(stats.allocated_bytes, 0);
    assert_true(stats.peak_blocks >= LIVE && stats.peak_blocks <= THREADS * LIVE);
    test_subject_end(&s);
}

/* --- one block, freed by all: one of them succeeds --- */

typedef struct contest {
    loch_allocator *allocator;
    void *block;
    pthread_barrier_t start;
    atomic_int freed, refused, other;
} contest;

static void *contest_run(void *user)
{
    contest *c = user;
    pthread_barrier_wait(&c->start);
    const loch_status status = loch_free(c->allocator, c->block);
    atomic_fetch_add(status == LOCH_OK ? &c->freed : status == LOCH_E_DOUBLE_FREE ? &c->refused : &c->other, 1);
    return NULL;
}

static void of_two_frees_of_one_block_one_wins(void **state)
{
    test_subject s;
    test_subject_begin(&s, state);
    test_subject_require(&s, s.traits & LOCH_TRAIT_THREAD_SAFE);
    for (int round = 0; round < 10; round++) {
        contest c = {.allocator = s.allocator, .block = test_subject_alloc(&s, 100)};
        pthread_t threads[THREADS];
        pthread_barrier_init(&c.start, NULL, THREADS);
        for (size_t t = 0; t < THREADS; t++)
            assert_int_equal(pthread_create(&threads[t], NULL, contest_run, &c), 0);
        for (size_t t = 0; t < THREADS; t++)
            assert_int_equal(pthread_join(threads[t], NULL), 0);
        pthread_barrier_destroy(&c.start);
        assert_int_equal(atomic_load(&c.freed), 1);
        assert_int_equal(atomic_load(&c.refused), THREADS - 1);
        assert_int_equal(atomic_load(&c.other), 0);
    }
    assert_int_equal(test_subject_stats(&s).frees, 10);
    test_subject_end(&s);
}

/* --- figures, walks, resets and measuring while others allocate --- */

typedef struct observer {
    const test_subject *subject;
    atomic_bool is_over;
    char failure[LOCH_ERROR_SENTENCE_MAX];
} observer;

static loch_status count_block(const loch_block *block, void *user)
{
    *(size_t *)user += block->requested_bytes != 0;
    return LOCH_OK;
}

static void observer_look(observer *w, size_t round)
{
    loch_allocator *allocator = w->subject->allocator;
    loch_stats stats = {.size = sizeof stats};
    loch_measurements measurements = {.size = sizeof measurements};
    size_t count = 0;
    TRY(loch_allocator_get_stats(allocator, &stats));
    EXPECT(stats.peak_requested_bytes >= stats.requested_bytes);
    TRY(loch_allocator_walk(allocator, count_block, &count));
    TRY(loch_allocator_measure(allocator, round % 2 ? LOCH_MEASURE_ON : LOCH_MEASURE_OFF));
    if (round) TRY(loch_allocator_get_measurements(allocator, &measurements));
    if (round % 8 == 7) TRY(loch_allocator_reset_stats(allocator));
}

static void *observer_run(void *user)
{
    observer *w = user;
    for (size_t round = 1; round < 300 && !atomic_load(&w->is_over) && !w->failure[0]; round++)
        observer_look(w, round);
    return NULL;
}

static void *churn_run(void *user)
{
    worker *w = user;
    for (size_t round = 0; round < ROUNDS * LIVE && !w->failure[0]; round++) {
        void *block = NULL;
        if (loch_alloc(w->subject->allocator, 1 + round % 500, &block) != LOCH_OK ||
            loch_free(w->subject->allocator, block) != LOCH_OK)
            snprintf(w->failure, sizeof w->failure, "%s", loch_error_get()->sentence);
    }
    return NULL;
}

static void walks_and_figures_are_sound_while_threads_allocate(void **state)
{
    static worker workers[THREADS - 1];
    test_subject s;
    test_subject_begin(&s, state);
    test_subject_require(&s, s.traits & LOCH_TRAIT_THREAD_SAFE && s.reuses);
    pthread_t threads[THREADS];
    observer eye = {.subject = &s};
    for (size_t t = 0; t < THREADS - 1; t++) {
        workers[t] = (worker){.subject = &s};
        assert_int_equal(pthread_create(&threads[t], NULL, churn_run, &workers[t]), 0);
    }
    assert_int_equal(pthread_create(&threads[THREADS - 1], NULL, observer_run, &eye), 0);
    for (size_t t = 0; t < THREADS - 1; t++)
        assert_int_equal(pthread_join(threads[t], NULL), 0);
    atomic_store(&eye.is_over, true);
    assert_int_equal(pthread_join(threads[THREADS - 1], NULL), 0);
    for (size_t t = 0; t < THREADS - 1; t++)
        if (workers[t].failure[0]) fail_msg("thread %zu: %s", t, workers[t].failure);
    if (eye.failure[0]) fail_msg("the observer: %s", eye.failure);
    assert_int_equal(test_subject_stats(&s).blocks, 0);
    test_subject_end(&s);
}

int main(void)
{
    const struct CMUnitTest cases[] = {
        cmocka_unit_test(eight_threads_get_blocks_and_ids_of_their_own),
        cmocka_unit_test(of_two_frees_of_one_block_one_wins),
        cmocka_unit_test(walks_and_figures_are_sound_while_threads_allocate),
    };
    return TEST_SUBJECTS_RUN(cases);
}

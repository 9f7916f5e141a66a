/* SPDX-License-Identifier: MIT */
/* Threads with random programs over sessions on one allocator: by handle and by thread, nested, with blocks that pass
 * between threads and are freed by any of them, promoted, moved, or left to the end. Every block holds a pattern of its
 * owner's, so that one that was freed by the wrong end, or handed out twice, shows; and in the end the allocator is
 * empty. What each thread does follows from the seed; how the threads mix does not. */
#include "allocators.h"
#include "memory/pool/report/check.h"
#include "worker.h"

#include <pthread.h>
#include <stdatomic.h>

#define THREADS 4
#define OWN 24       /* blocks of no session that a thread has */
#define PER_ROUND 40 /* steps in a session */
#define ROUNDS 60
#define SHELF 64 /* blocks of sessions that any thread may free */

typedef struct piece {
    char *address;
    size_t bytes;
    uint64_t seed;
} piece;

typedef struct arena {
    loch_allocator *allocator;
    pthread_mutex_t mutex;
    piece shelf[SHELF]; /* of no session, or promoted: in transit between threads */
    loch_session *shared;
    atomic_size_t promoted;
} arena;

typedef struct worker {
    arena *arena;
    test_random random;
    uint64_t stamp;
    piece own[OWN];
    piece inside[PER_ROUND];
    size_t inside_count;
    loch_session *session;
    size_t bytes; /* in the session, as this thread knows it */
    char failure[400];
} worker;

static size_t pick_size(worker *w)
{
    static const size_t most[] = {100, 4000, 20000, 200000};
    return 1 + test_random_below(&w->random, most[test_random_below(&w->random, 4)]);
}

static void make(worker *w, loch_allocator *from, piece *out)
{
    out->bytes = pick_size(w);
    out->seed = ++w->stamp;
    void *address;
    TRY(loch_alloc(from, out->bytes, &address));
    out->address = address;
    test_pattern_write(address, out->bytes, out->seed);
}

static void check(worker *w, const piece *p)
{
    EXPECT(test_pattern_differs(p->address, p->bytes, p->seed) == p->bytes);
}

static void drop(worker *w, loch_allocator *through, piece *p)
{
    check(w, p);
    TRY(loch_free(through, p->address));
    p->address = NULL;
}

/* A block of no session comes, goes, or passes to another thread. */
static void step_outside(worker *w)
{
    arena *a = w->arena;
    piece *p = &w->own[test_random_below(&w->random, OWN)];
    if (!p->address) {
        make(w, a->allocator, p);
    } else if (test_random_below(&w->random, 2)) {
        drop(w, a->allocator, p);
    } else {
        piece *place = &a->shelf[test_random_below(&w->random, SHELF)];
        pthread_mutex_lock(&a->mutex);
        const piece other = *place;
        *place = *p;
        pthread_mutex_unlock(&a->mutex);
        *p = other;
    }
}

static void take_out(worker *w, size_t at)
{
    w->bytes -= w->inside[at].bytes;
    w->inside[at] = w->inside[--w->inside_count];
}

/* A block of the session is made, freed through either allocator, moved or promoted; it is the thread's alone. */
static void step_inside(worker *w)
{
    arena *a = w->arena;
    loch_allocator *own = loch_session_get_allocator(w->session);
    const size_t what = test_random_below(&w->random, 8);
    if (what < 4 || !w->inside_count) {
        if (w->inside_count == PER_ROUND) return;
        piece *p = &w->inside[w->inside_count];
        make(w, what % 2 ? own : a->allocator, p);
        if (w->failure[0]) return;
        w->inside_count++;
        w->bytes += p->bytes;
        return;
    }
    const size_t at = test_random_below(&w->random, w->inside_count);
    piece *p = &w->inside[at], *free_place = NULL;
    if (what < 6) {
        drop(w, what % 2 ? own : a->allocator, p);
        if (!w->failure[0]) take_out(w, at);
    } else if (what == 6) {
        check(w, p);
        void *moved;
        const size_t bytes = pick_size(w);
        TRY(loch_allocator_realloc(a->allocator, p->address, bytes, NULL, &moved));
        w->bytes += bytes - p->bytes;
        *p = (piece){moved, bytes, ++w->stamp};
        test_pattern_write(moved, bytes, p->seed);
    } else {
        for (size_t i = 0; i < OWN && !free_place; i++)
            if (!w->own[i].address) free_place = &w->own[i];
        if (!free_place) return;
        TRY(loch_session_promote(w->session, p->address));
        atomic_fetch_add(&a->promoted, 1);
        *free_place = *p;
        take_out(w, at);
    }
}

/* Everybody puts blocks into one session, too, which the first thread ends. */
static void step_shared(worker *w)
{
    piece p;
    if (test_random_below(&w->random, 8)) return;
    make(w, loch_session_get_allocator(w->arena->shared), &p);
}

static void round_of(worker *w)
{
    arena *a = w->arena;
    TRY(loch_session_begin(a->allocator, NULL, &w->session));
    w->inside_count = w->bytes = 0;
    const bool is_deep = test_random_below(&w->random, 3) == 0;
    if (is_deep) TRY(loch_session_enter(a->shared)); /* the next one counts */
    TRY(loch_session_enter(w->session));
    for (size_t i = 0; i < PER_ROUND && !w->failure[0]; i++)
        step_inside(w);
    for (size_t i = 0; i < w->inside_count && !w->failure[0]; i++)
        check(w, &w->inside[i]);
    if (w->failure[0]) return;
    EXPECT(loch_session_end(w->session, NULL, NULL) == LOCH_E_BUSY);
    TRY(loch_session_leave(w->session));
    if (is_deep) TRY(loch_session_leave(a->shared));
    for (size_t i = 0; i < 10 && !w->failure[0]; i++)
        step_outside(w);
    if (w->failure[0]) return;
    step_shared(w);
    loch_session_stats stats = {.size = sizeof stats};
    TRY(loch_session_get_stats(w->session, &stats));
    EXPECT(stats.blocks == w->inside_count && stats.bytes == w->bytes && stats.peak_bytes >= w->bytes);
    size_t freed;
    TRY(loch_session_end(w->session, NULL, &freed));
    EXPECT(freed == w->bytes);
}

static void *run(void *user)
{
    worker *w = user;
    for (int i = 0; i < ROUNDS && !w->failure[0]; i++)
        round_of(w);
    for (size_t i = 0; i < OWN && !w->failure[0]; i++)
        if (w->own[i].address) drop(w, w->arena->allocator, &w->own[i]);
    return NULL;
}

static uint64_t seed;

static void empty_shelf(arena *a)
{
    for (size_t i = 0; i < SHELF; i++) {
        const piece *p = &a->shelf[i];
        if (!p->address) continue;
        assert_int_equal(test_pattern_differs(p->address, p->bytes, p->seed), p->bytes);
        CHECK_OK(loch_free(a->allocator, p->address));
    }
}

static void run_over(const char *stack)
{
    loch_device *device;
    arena *a = calloc(1, sizeof *a);
    worker *workers = calloc(THREADS, sizeof *workers);
    assert_true(a && workers);
    CHECK_OK(loch_device_open("cpu", &device));
    CHECK_OK(test_stack_create(device, stack, &a->allocator));
    if (test_stack_is_pool(stack)) CHECK_OK(loch_pool_set_limit(a->allocator, 0));
    CHECK_OK(loch_session_begin(a->allocator, "shared", &a->shared));
    pthread_mutex_init(&a->mutex, NULL);
    for (size_t i = 0; i < THREADS; i++) {
        workers[i].arena = a;
        workers[i].random.state = seed + i;
        workers[i].stamp = (uint64_t)i << 32;
    }
    test_threads_run(run, workers, sizeof *workers, THREADS);
    for (size_t i = 0; i < THREADS; i++)
        if (workers[i].failure[0]) fail_msg("%s, thread %zu: %s", stack, i, workers[i].failure);
    assert_true(atomic_load(&a->promoted) > 0);
    size_t bytes;
    CHECK_OK(loch_session_end(a->shared, NULL, &bytes));
    assert_true(bytes > 0);
    empty_shelf(a);
    loch_stats stats = {.size = sizeof stats};
    CHECK_OK(loch_allocator_get_stats(a->allocator, &stats));
    assert_int_equal(stats.blocks, 0);
    assert_int_equal(stats.requested_bytes, 0);
    lochi_pool *pool = lochi_pool_of(a->allocator);
    if (pool) {
        lochi_lock_take(&pool->lock);
        const char *wrong = lochi_pool_check(pool);
        lochi_lock_drop(&pool->lock);
        if (wrong) fail_msg("the pool is broken: %s", wrong);
    }
    loch_allocator_release(a->allocator);
    loch_device_release(device);
    pthread_mutex_destroy(&a->mutex);
    free(workers);
    free(a);
}

static void threads_over(const char *stack)
{
    loch_host_usage before = {.size = sizeof before}, after = {.size = sizeof after};
    CHECK_OK(loch_host_get_usage(&before));
    run_over(stack);
    CHECK_OK(loch_host_get_usage(&after));
    assert_int_equal(after.blocks, before.blocks);
}

static void sessions_of_threads_on_a_pool_stay_apart(void **state)
{
    (void)state;
    for (int i = 0; i < 3; i++)
        threads_over("pool");
}

static void sessions_of_threads_on_other_allocators_stay_apart(void **state)
{
    (void)state;
    threads_over("direct");
    threads_over("tracking/pool");
    threads_over("user");
}

int main(void)
{
    seed = test_seed(20250611);
    const struct CMUnitTest tests[] = {cmocka_unit_test(sessions_of_threads_on_a_pool_stay_apart),
                                       cmocka_unit_test(sessions_of_threads_on_other_allocators_stay_apart)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}

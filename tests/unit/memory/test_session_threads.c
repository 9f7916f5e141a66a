/* SPDX-License-Identifier: MIT */
/* Sessions, addresses and threads: a block is known by its life and not by its address, and threads that end or cache
 * blocks lose none. */
#include "session_fixture.h"
#include <pthread.h>

/* --- addresses and threads --- */

typedef struct worker {
    loch_allocator *allocator;
    loch_session *session;
    void *address;
    size_t bytes;
    void *blocks[200];
    size_t count;
    char failure[400];
} worker;

static void join(worker *w, void *(*run)(void *))
{
    pthread_t thread;
    assert_int_equal(pthread_create(&thread, NULL, run, w), 0);
    assert_int_equal(pthread_join(thread, NULL), 0);
    if (w->failure[0]) fail_msg("%s", w->failure);
}

/* Frees a block of a session with a warm cache, and has its address again. */
static void reuse(worker *w)
{
    void *warm[4];
    for (size_t i = 0; i < COUNT(warm); i++)
        TRY(loch_alloc(w->allocator, w->bytes, &warm[i]));
    for (size_t i = 0; i < COUNT(warm); i++)
        TRY(loch_free(w->allocator, warm[i]));
    TRY(loch_free(w->allocator, w->address));
    for (w->count = 0; w->count < COUNT(w->blocks); w->count++) {
        TRY(loch_alloc(w->allocator, w->bytes, &w->blocks[w->count]));
        if (w->blocks[w->count] == w->address) break;
    }
    EXPECT(w->count < COUNT(w->blocks));
    w->count++;
}

static void *run_reuse(void *user)
{
    reuse(user);
    return NULL;
}

static void an_address_that_another_has_now_is_left_to_it(void **state)
{
    (void)state;
    static const size_t sizes[] = {64, 3000, 8192, 20000, 100000, 700000};
    for (int by_handle_too = 0; by_handle_too < 2; by_handle_too++)
        for (size_t i = 0; i < COUNT(sizes); i++) {
            subject it = open_subject("cpu", "pool");
            CHECK_OK(loch_pool_set_limit(it.allocator, 0));
            loch_session *session = begin(it.allocator);
            worker *w = calloc(1, sizeof *w);
            assert_non_null(w);
            w->allocator = it.allocator;
            w->bytes = sizes[i];
            CHECK_OK(loch_session_enter(session));
            w->address = get(by_handle_too ? loch_session_get_allocator(session) : it.allocator, sizes[i]);
            void *other = get(it.allocator, sizes[i]);
            CHECK_OK(loch_session_leave(session));
            join(w, run_reuse);
            expect(session, 1, sizes[i]);
            CHECK_FAILS(loch_session_promote(session, w->address), FOREIGN);
            assert_int_equal(end(session), sizes[i]);
            CHECK_FAILS_SET(loch_free(it.allocator, other), TEST_SET(DOUBLE_FREE) | TEST_SET(FOREIGN));
            assert_int_equal(live(it.allocator), w->count);
            while (w->count)
                CHECK_OK(loch_free(it.allocator, w->blocks[--w->count]));
            free(w);
            close_subject(&it);
        }
}

static void die_inside(worker *w)
{
    TRY(loch_session_enter(w->session));
    TRY(loch_session_enter(w->session));
    TRY(loch_alloc(w->allocator, 1000, &w->address));
    EXPECT(loch_session_end(w->session, NULL, NULL) == LOCH_E_BUSY);
}

static void *run_die_inside(void *user)
{
    die_inside(user);
    return NULL;
}

static void a_thread_that_ends_inside_leaves_its_blocks_to_the_session(void **state)
{
    (void)state;
    subject it = open_subject("cpu", "pool");
    worker w = {.allocator = it.allocator, .session = begin(it.allocator)};
    join(&w, run_die_inside);
    expect(w.session, 1, 1000);
    void *outside = get(it.allocator, 10);
    assert_int_equal(end(w.session), 1000);
    CHECK_OK(loch_free(it.allocator, outside));
    close_subject(&it);
}

static pool_cache *own_cache(loch_allocator *pool)
{
    return atomic_load(&lochi_pool_of(pool)->caches[lochi_thread_slot() + 1]);
}

/* Inside nothing is kept; figures count on; afterwards it is as before. */
static void a_thread_inside_keeps_nothing_in_its_cache(void **state)
{
    (void)state;
    subject it = open_subject("cpu", "pool");
    for (int i = 0; i < 3; i++)
        CHECK_OK(loch_free(it.allocator, get(it.allocator, 100000)));
    const loch_stats before = pool_stats(it.allocator);
    loch_session *session = begin(it.allocator);
    assert_non_null(own_cache(it.allocator));
    CHECK_OK(loch_session_enter(session));
    assert_null(own_cache(it.allocator));
    const loch_stats inside = pool_stats(it.allocator);
    assert_int_equal(inside.allocs, before.allocs);
    assert_int_equal(inside.largest_bytes, before.largest_bytes);
    assert_int_equal(inside.peak_requested_bytes, before.peak_requested_bytes);
    CHECK_OK(loch_free(it.allocator, get(it.allocator, 50)));
    assert_null(own_cache(it.allocator));
    CHECK_OK(loch_session_leave(session));
    CHECK_OK(loch_free(it.allocator, get(it.allocator, 50)));
    assert_non_null(own_cache(it.allocator));
    assert_int_equal(pool_stats(it.allocator).allocs, before.allocs + 2);
    assert_int_equal(end(session), 0);
    close_subject(&it);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        SIM_TEST(an_address_that_another_has_now_is_left_to_it),
        SIM_TEST(a_thread_that_ends_inside_leaves_its_blocks_to_the_session),
        SIM_TEST(a_thread_inside_keeps_nothing_in_its_cache),
    };
    if (test_heap_install() != LOCH_OK) return 1;
    return cmocka_run_group_tests(tests, NULL, NULL);
}

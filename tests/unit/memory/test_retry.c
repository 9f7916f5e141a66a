/* SPDX-License-Identifier: MIT */
/* Waiting for memory: a wait does not end while another thread's free can be on its way, wherever the memory is and
 * whatever the system's list of threads says. */
#include "memory/allocator.h"
#include "test.h"

#include <dirent.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>

#define MOST (48 * TEST_MIB) /* of a device of 64 MiB: two of them do not fit */
#define TIMEOUT_NS ((uint64_t)300 * 1000000000)

static atomic_bool listing_is_short;

/* Stands for the C library's: while `listing_is_short`, a listing misses every thread but one, as a real one can miss
 * any while another ends. */
struct dirent *readdir(DIR *folder)
{
    static struct dirent only = {.d_name = "1"};
    static _Thread_local const DIR *last;
    if (!atomic_load(&listing_is_short) || folder == last) return NULL;
    last = folder;
    return &only;
}

typedef struct waiter {
    loch_allocator *allocator;
    loch_status status;
    void *block;
    atomic_bool is_over;
} waiter;

static void *waiter_run(void *user)
{
    waiter *w = user;
    const loch_request request = {.size = sizeof request, .bytes = MOST, .timeout_ns = TIMEOUT_NS};
    w->status = loch_allocator_alloc(w->allocator, &request, &w->block);
    atomic_store(&w->is_over, true);
    return NULL;
}

/* Starts a thread that asks for MOST, and returns when it has slept once and tries again, or has given up. */
static pthread_t waiter_start(waiter *w, loch_allocator *allocator)
{
    pthread_t thread;
    *w = (waiter){.allocator = allocator};
    loch_stats stats = {.size = sizeof stats};
    assert_int_equal(pthread_create(&thread, NULL, waiter_run, w), 0);
    do {
        sched_yield();
        CHECK_OK(loch_allocator_get_stats(allocator, &stats));
    } while (stats.retries < 2 && !atomic_load(&w->is_over));
    return thread;
}

static void *use_once(void *allocator)
{
    void *block = NULL;
    const loch_status status = loch_alloc(allocator, 100, &block);
    return status == LOCH_OK && loch_free(allocator, block) == LOCH_OK ? NULL : allocator;
}

static void *take_most(void *allocator)
{
    void *block = NULL;
    return loch_alloc(allocator, MOST, &block) == LOCH_OK ? block : NULL;
}

/* Runs a function in a thread that ends. */
static void *elsewhere(void *(*function)(void *), loch_allocator *allocator)
{
    pthread_t thread;
    void *result = NULL;
    assert_int_equal(pthread_create(&thread, NULL, function, allocator), 0);
    assert_int_equal(pthread_join(thread, &result), 0);
    return result;
}

static loch_allocator *direct_on(loch_device *device)
{
    loch_allocator *direct;
    CHECK_OK(loch_direct_create(device, NULL, NULL, &direct));
    return direct;
}

static void check_served(waiter *w, pthread_t thread)
{
    assert_int_equal(pthread_join(thread, NULL), 0);
    CHECK_OK(w->status);
    assert_non_null(w->block);
    CHECK_OK(loch_free(w->allocator, w->block));
}

/* No block of the waiter's stack is out: the memory is another allocator's. */
static void a_wait_is_ended_by_memory_of_another_allocator(void **state)
{
    loch_allocator *one = direct_on(*state), *two = direct_on(*state);
    waiter w;
    void *held = NULL;
    CHECK_OK(loch_alloc(two, MOST, &held));
    assert_null(use_once(one));
    assert_null(elsewhere(use_once, one));
    const pthread_t thread = waiter_start(&w, one);
    CHECK_OK(loch_free(two, held));
    check_served(&w, thread);
    loch_allocator_release(one);
    loch_allocator_release(two);
}

/* The pool keeps what it frees. The direct allocator asks it. */
static void a_direct_allocator_gets_what_a_pool_has_idle(void **state)
{
    loch_allocator *direct = direct_on(*state), *pool;
    waiter w;
    void *held = NULL, *block = NULL;
    CHECK_OK(loch_pool_create(*state, "pool", NULL, &pool));
    CHECK_OK(loch_alloc(pool, MOST, &held));
    const pthread_t thread = waiter_start(&w, direct);
    CHECK_OK(loch_free(pool, held));
    check_served(&w, thread);
    CHECK_OK(loch_alloc(pool, MOST, &held));
    CHECK_OK(loch_free(pool, held));
    CHECK_OK(loch_alloc(direct, MOST, &block)); /* without waiting */
    CHECK_FAILS(loch_alloc(direct, MOST, &held), DEVICE_MEMORY);
    assert_int_equal(loch_error_get()->missing_bytes, 32 * TEST_MIB);
    assert_int_equal(loch_error_get()->remedy, LOCH_REMEDY_FREE);
    CHECK_OK(loch_free(direct, block));
    loch_allocator_release(pool);
    loch_allocator_release(direct);
}

/* What is in use does not matter for a request above the limit. */
static void what_is_in_use_is_not_missing_above_a_limit(void **state)
{
    loch_allocator *direct = direct_on(*state), *limited, *narrow;
    const loch_limit_options options = {.size = sizeof options, .hard_bytes = 16 * TEST_MIB};
    const loch_direct_options direct_options = {.size = sizeof direct_options, .limit_bytes = 16 * TEST_MIB};
    CHECK_OK(loch_limit_create(direct, "limited", &options, &limited));
    CHECK_OK(loch_direct_create(*state, "narrow", &direct_options, &narrow));
    loch_allocator *const all[] = {limited, narrow};
    for (size_t i = 0; i < 2; i++) {
        void *held = NULL, *block = NULL;
        CHECK_OK(loch_alloc(all[i], 12 * TEST_MIB, &held));
        CHECK_FAILS(loch_alloc(all[i], 17 * TEST_MIB, &block), LIMIT);
        assert_int_equal(loch_error_get()->missing_bytes, TEST_MIB);
        CHECK_FAILS(loch_alloc(all[i], 8 * TEST_MIB, &block), LIMIT);
        assert_int_equal(loch_error_get()->missing_bytes, 4 * TEST_MIB);
        CHECK_OK(loch_free(all[i], held));
    }
    loch_allocator_release(narrow);
    loch_allocator_release(limited);
    loch_allocator_release(direct);
}

static void a_wait_holds_though_the_listing_misses_threads(void **state)
{
    loch_allocator *direct = direct_on(*state);
    waiter w;
    void *held = NULL;
    CHECK_OK(loch_alloc(direct, MOST, &held));
    atomic_store(&listing_is_short, true);
    const pthread_t thread = waiter_start(&w, direct);
    CHECK_OK(loch_free(direct, held));
    check_served(&w, thread);
    atomic_store(&listing_is_short, false);
    loch_allocator_release(direct);
}

/* The other user has ended, and the waiter may have its slot. Its block is freed by a thread that frees for the first
 * time. */
static void a_wait_holds_after_the_other_user_has_ended(void **state)
{
    loch_allocator *direct = direct_on(*state);
    waiter w;
    void *held = elsewhere(take_most, direct);
    assert_non_null(held);
    const pthread_t thread = waiter_start(&w, direct);
    CHECK_OK(loch_free(direct, held));
    check_served(&w, thread);
    loch_allocator_release(direct);
}

/* No thread has ever used the allocator but the one that waits, and the one that only frees. */
static void a_wait_is_ended_by_a_thread_that_only_frees(void **state)
{
    loch_allocator *direct = direct_on(*state), *limit;
    const loch_limit_options options = {.size = sizeof options, .hard_bytes = MOST};
    waiter w;
    void *held = NULL;
    CHECK_OK(loch_limit_create(direct, NULL, &options, &limit));
    CHECK_OK(loch_alloc(limit, 100, &held));
    const pthread_t thread = waiter_start(&w, limit);
    CHECK_OK(loch_free(limit, held));
    check_served(&w, thread);
    loch_allocator_release(limit);
    loch_allocator_release(direct);
}

/* A request that can never be served fails at once: its wait would last for centuries. */
static void a_request_above_a_limit_or_the_device_does_not_wait(void **state)
{
    loch_allocator *direct = direct_on(*state), *limit, *pool;
    const loch_limit_options options = {.size = sizeof options, .hard_bytes = MOST - 1};
    CHECK_OK(loch_limit_create(direct, "narrow", &options, &limit));
    CHECK_OK(loch_pool_create(*state, "wide", NULL, &pool));
    loch_allocator *const asked[] = {limit, direct, pool};
    static const struct {
        size_t bytes;
        const char *owner;
        loch_status status;
    } expected[] = {{MOST, "narrow", LOCH_E_LIMIT},
                    {(size_t)65 << 20, "sim:64MiB", LOCH_E_DEVICE_MEMORY},
                    {(size_t)65 << 20, "sim:64MiB", LOCH_E_DEVICE_MEMORY}};
    for (size_t i = 0; i < 3; i++) {
        void *block = TEST_UNTOUCHED;
        const loch_request request = {.size = sizeof request, .bytes = expected[i].bytes, .timeout_ns = UINT64_MAX / 2};
        assert_int_equal(loch_allocator_alloc(asked[i], &request, &block), expected[i].status);
        const loch_error *error = loch_error_get();
        assert_null(block);
        assert_int_equal(error->remedy, LOCH_REMEDY_NONE);
        assert_string_equal(error->owner, expected[i].owner);
        assert_true(error->missing_bytes > 0);
        assert_int_equal(error->attempts, 1);
        loch_stats stats = {.size = sizeof stats};
        CHECK_OK(loch_allocator_get_stats(asked[i], &stats));
        assert_int_equal(stats.retries, 0);
    }
    loch_allocator_release(limit);
    loch_allocator_release(pool);
    loch_allocator_release(direct);
}

static void the_sentence_says_how_long_it_waited_and_for_what(void **state)
{
    loch_allocator *direct = direct_on(*state);
    void *held = NULL, *block = TEST_UNTOUCHED;
    const loch_request request = {.size = sizeof request, .bytes = MOST, .timeout_ns = 30000000};
    CHECK_OK(loch_alloc(direct, MOST, &held));
    const uint64_t start_ns = loch_host_now_ns();
    CHECK_FAILS(loch_allocator_alloc(direct, &request, &block), DEVICE_MEMORY);
    assert_true(loch_host_now_ns() - start_ns >= request.timeout_ns);
    assert_non_null(strstr(loch_error_get()->sentence, "; waited 0.0"));
    assert_non_null(strstr(loch_error_get()->sentence, "s for memory of \"sim:64MiB\""));
    assert_int_equal(loch_error_get()->remedy, LOCH_REMEDY_FREE);
    assert_true(loch_error_get()->attempts > 1);
    CHECK_OK(loch_free(direct, held));
    loch_allocator_release(direct);
}

static int open_device(void **state)
{
    loch_device *device;
    CHECK_OK(loch_device_open("sim:64MiB", &device));
    *state = device;
    return 0;
}

static int close_device(void **state)
{
    loch_device_release(*state);
    return 0;
}

int main(void)
{
    const struct CMUnitTest cases[] = {
        cmocka_unit_test(a_wait_is_ended_by_memory_of_another_allocator),
        cmocka_unit_test(a_direct_allocator_gets_what_a_pool_has_idle),
        cmocka_unit_test(what_is_in_use_is_not_missing_above_a_limit),
        cmocka_unit_test(a_wait_holds_though_the_listing_misses_threads),
        cmocka_unit_test(a_wait_holds_after_the_other_user_has_ended),
        cmocka_unit_test(a_wait_is_ended_by_a_thread_that_only_frees),
        cmocka_unit_test(a_request_above_a_limit_or_the_device_does_not_wait),
        cmocka_unit_test(the_sentence_says_how_long_it_waited_and_for_what),
    };
    return cmocka_run_group_tests(cases, open_device, close_device);
}

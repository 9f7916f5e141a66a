/* SPDX-License-Identifier: MIT */
/* Contract of allocator.h, over every allocator and stack: what happens when memory is short. Every subject has a
 * capacity; two blocks of a little more than half of it do not fit. Waiters take no naps here, so one whose wake-up is
 * lost sleeps until its time is up, and fails. */
#include "allocators.h"

#include "memory/allocator.h"
#include <pthread.h>
#include <stdatomic.h>
#include <time.h>

#define SHORT (TEST_SET(DEVICE_MEMORY) | TEST_SET(LIMIT) | TEST_SET(FRAGMENTED))
#define SECOND ((uint64_t)1000000000)
#define HANDOVERS 40

/* Red zones and poison mean that every allocation writes all of its memory: fewer rounds, and none is quick. */
static bool is_poisoned(const test_subject *s)
{
    return test_stack_has(s->stack, "redzone") || test_stack_has(s->stack, "direct-zones");
}

/* An allocator with figures of its own counts attempts: it cannot know which request is tried again. */
static bool counts_attempts(const test_subject *s)
{
    return test_stack_has(s->stack, "user-full") || strstr(s->stack, "planned");
}

static size_t half(const test_subject *s)
{
    return s->capacity / 2 + TEST_KIB;
}

static void *half_of(const test_subject *s)
{
    return test_subject_alloc(s, half(s));
}

/* --- pressure functions --- */

typedef struct pressure {
    const test_subject *subject;
    char *log; /* one letter a call */
    char letter;
    void *gives; /* frees this block, once */
    size_t claims;
} pressure;

static size_t press(loch_allocator *allocator, size_t bytes, void *user)
{
    pressure *p = user;
    (void)allocator;
    const size_t length = strlen(p->log);
    p->log[length] = bytes == half(p->subject) ? p->letter : '?';
    p->log[length + 1] = '\0';
    if (!p->gives) return p->claims;
    if (loch_free(p->subject->allocator, p->gives) != LOCH_OK) p->log[length] = '!';
    p->gives = NULL;
    return bytes;
}

static void pressure_functions_are_asked_in_order(void **state)
{
    test_subject s;
    char log[32] = "";
    test_subject_begin(&s, state);
    void *held = half_of(&s), *block = TEST_UNTOUCHED;
    pressure a = {.log = log, .letter = 'a', .subject = &s},
             b = {.log = log, .letter = 'b', .claims = 1, .subject = &s},
             c = {.log = log, .letter = 'c', .subject = &s, .gives = held},
             d = {.log = log, .letter = 'd', .subject = &s};
    CHECK_OK(loch_allocator_add_pressure(s.allocator, press, &a));
    CHECK_OK(loch_allocator_add_pressure(s.allocator, press, &b));
    CHECK_OK(loch_allocator_add_pressure(s.allocator, press, &c));
    CHECK_OK(loch_allocator_add_pressure(s.allocator, press, &d));
    CHECK_FAILS(loch_allocator_add_pressure(s.allocator, press, &b), EXISTS);
    if (s.reuses) {
        CHECK_OK(loch_alloc(s.allocator, half(&s), &block));
        assert_string_equal(log, "abbbbc"); /* once there is memory, no further function is called */
        const loch_stats stats = test_subject_stats(&s);
        assert_int_equal(stats.retries, 5); /* after b, which claimed to have freed something, and after c */
        if (!counts_attempts(&s)) assert_int_equal(stats.failures, 0); /* the request was served in the end */
        assert_int_equal(stats.waits_ns, 0);
        CHECK_OK(loch_free(s.allocator, block));
    } else {
        CHECK_FAILS_SET(loch_alloc(s.allocator, half(&s), &block), SHORT);
        assert_null(block);
        if (!counts_attempts(&s)) /* one request, however often it was tried */
            assert_int_equal(test_subject_stats(&s).failures, 1);
        assert_string_equal(log, "abbbbccd"); /* c has freed something, so it is asked again */
    }
    CHECK_OK(loch_allocator_remove_pressure(s.allocator, press, &b));
    CHECK_FAILS(loch_allocator_remove_pressure(s.allocator, press, &b), NOT_FOUND);
    CHECK_OK(loch_allocator_add_pressure(s.allocator, press, &b)); /* now the last */
    if (s.reuses) {
        held = half_of(&s);
        log[0] = '\0';
        CHECK_FAILS_SET(loch_alloc(s.allocator, half(&s), &block), SHORT);
        assert_null(block);
        assert_string_equal(log, "acdbbbb");
        CHECK_OK(loch_free(s.allocator, held));
    }
    CHECK_FAILS(loch_allocator_add_pressure(NULL, press, &b), INVALID);
    CHECK_FAILS(loch_allocator_add_pressure(s.allocator, NULL, &b), INVALID);
    CHECK_FAILS(loch_allocator_remove_pressure(s.allocator, NULL, &b), INVALID);
    test_subject_end(&s); /* those that are left go with it */
}

static void pressure_functions_are_not_asked_in_vain(void **state)
{
    test_subject s;
    char log[32] = "";
    test_subject_begin(&s, state);
    void *held = half_of(&s), *block = TEST_UNTOUCHED;
    pressure p = {.log = log, .letter = 'p', .claims = 1, .subject = &s};
    CHECK_OK(loch_allocator_add_pressure(s.allocator, press, &p));
    loch_request request = {
        .size = sizeof request, .bytes = half(&s), .flags = LOCH_ALLOC_NO_RETRY, .timeout_ns = 60 * SECOND};
    CHECK_FAILS_SET(loch_allocator_alloc(s.allocator, &request, &block), SHORT);
    assert_null(block);
    request = (loch_request){.size = sizeof request, .bytes = 100, .alignment = 3};
    CHECK_FAILS(loch_allocator_alloc(s.allocator, &request, &block), INVALID);
    CHECK_FAILS(loch_alloc(s.allocator, SIZE_MAX, &block), OVERFLOW);
    void *small = test_subject_alloc(&s, 100);
    assert_string_equal(log, "");
    assert_int_equal(test_subject_stats(&s).retries, 0);
    CHECK_OK(loch_free(s.allocator, small));
    CHECK_OK(loch_free(s.allocator, held));
    test_subject_end(&s);
}

/* A function that was added to an allocator also helps callers that use it through wrappers. */
static void pressure_functions_of_wrapped_allocators_help(void **state)
{
    test_subject s;
    char log[32] = "";
    test_subject_begin(&s, state);
    test_subject_require(&s, loch_allocator_get_wrapped(s.allocator) && s.reuses);
    void *held = half_of(&s), *block = TEST_UNTOUCHED;
    loch_allocator *innermost = s.allocator;
    while (loch_allocator_get_wrapped(innermost))
        innermost = loch_allocator_get_wrapped(innermost);
    pressure outer = {.log = log, .letter = 'o', .subject = &s},
             inner = {.log = log, .letter = 'i', .subject = &s, .gives = held};
    CHECK_OK(loch_allocator_add_pressure(innermost, press, &inner));
    CHECK_OK(loch_allocator_add_pressure(s.allocator, press, &outer));
    CHECK_OK(loch_alloc(s.allocator, half(&s), &block));
    assert_string_equal(log, "oi");
    CHECK_OK(loch_free(s.allocator, block));
    CHECK_OK(loch_allocator_remove_pressure(innermost, press, &inner));
    test_subject_end(&s);
}

/* --- removal --- */

typedef struct gate {
    const test_subject *subject;
    atomic_bool is_inside, may_go, has_left, is_removed, was_early;
} gate;

static size_t gate_wait(loch_allocator *allocator, size_t bytes, void *user)
{
    gate *g = user;
    (void)allocator;
    (void)bytes;
    atomic_store(&g->is_inside, true);
    while (!atomic_load(&g->may_go))
        sched_yield();
    atomic_store(&g->has_left, true);
    return 0;
}

static void *gate_ask(void *user)
{
    const gate *g = user;
    void *block = NULL;
    return loch_alloc(g->subject->allocator, half(g->subject), &block) == LOCH_OK ? block : NULL;
}

static void *gate_remove(void *user)
{
    gate *g = user;
    const loch_status status = loch_allocator_remove_pressure(g->subject->allocator, gate_wait, g);
    atomic_store(&g->was_early, status != LOCH_OK || !atomic_load(&g->has_left));
    atomic_store(&g->is_removed, true);
    return NULL;
}

static void removal_waits_for_a_pressure_function_that_runs(void **state)
{
    test_subject s;
    test_subject_begin(&s, state);
    test_subject_require(&s, s.traits & LOCH_TRAIT_THREAD_SAFE);
    void *held = half_of(&s), *asked = TEST_UNTOUCHED;
    gate g = {.subject = &s};
    pthread_t asking, removing;
    CHECK_OK(loch_allocator_add_pressure(s.allocator, gate_wait, &g));
    assert_int_equal(pthread_create(&asking, NULL, gate_ask, &g), 0);
    while (!atomic_load(&g.is_inside))
        sched_yield();
    assert_int_equal(pthread_create(&removing, NULL, gate_remove, &g), 0);
    for (int i = 0; i < 100; i++)
        sched_yield();
    assert_false(atomic_load(&g.is_removed));
    atomic_store(&g.may_go, true);
    assert_int_equal(pthread_join(removing, NULL), 0);
    assert_int_equal(pthread_join(asking, &asked), 0);
    assert_false(atomic_load(&g.was_early));
    assert_null(asked);
    CHECK_FAILS(loch_allocator_remove_pressure(s.allocator, gate_wait, &g), NOT_FOUND);
    CHECK_OK(loch_free(s.allocator, held));
    test_subject_end(&s);
}

/* --- waiting --- */

typedef struct waiter {
    const test_subject *subject;
    uint64_t timeout_ns, waited_ns;
    int rounds;
    loch_status status;
    void *block;
    pthread_barrier_t *meeting;
} waiter;

static uint64_t now_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * SECOND + (uint64_t)now.tv_nsec;
}

/* In each round: asks for memory that the other thread has, and leaves it to that one. */
static void *waiter_run(void *user)
{
    waiter *w = user;
    const loch_request request = {.size = sizeof request, .bytes = half(w->subject), .timeout_ns = w->timeout_ns};
    void *own = NULL;
    if (loch_alloc(w->subject->allocator, 16, &own) != LOCH_OK)
        own = NULL; /* it uses the allocator, as the other thread does */
    for (int i = 0; i < w->rounds; i++) {
        if (w->meeting) pthread_barrier_wait(w->meeting);
        const uint64_t start = now_ns();
        w->status = loch_allocator_alloc(w->subject->allocator, &request, &w->block);
        w->waited_ns = now_ns() - start;
        if (w->meeting) pthread_barrier_wait(w->meeting);
    }
    if (loch_free(w->subject->allocator, own) != LOCH_OK) w->status = LOCH_E_DRIVER;
    return NULL;
}

/* A free by another thread serves a waiting request, whether it comes before, during or after the check of the
 * waiter. */
static void a_free_by_another_thread_ends_a_wait(void **state)
{
    test_subject s;
    test_subject_begin(&s, state);
    test_subject_require(&s, s.traits & LOCH_TRAIT_THREAD_SAFE && s.reuses);
    test_random random = {.state = 1};
    pthread_barrier_t meeting;
    waiter w = {
        .subject = &s, .timeout_ns = 120 * SECOND, .rounds = is_poisoned(&s) ? 4 : HANDOVERS, .meeting = &meeting};
    pthread_t thread;
    pthread_barrier_init(&meeting, NULL, 2);
    void *held = half_of(&s);
    assert_int_equal(pthread_create(&thread, NULL, waiter_run, &w), 0);
    for (int i = 0; i < w.rounds; i++) {
        const uint64_t retries = test_subject_stats(&s).retries;
        pthread_barrier_wait(&meeting);
        /* every second one has tried a second time, in vain, so it sleeps or is about to */
        while (i % 2 && test_subject_stats(&s).retries < retries + 1)
            sched_yield();
        for (size_t spins = test_random_below(&random, 3000); spins; spins--)
            __asm__ volatile("" ::: "memory");
        CHECK_OK(loch_free(s.allocator, held));
        pthread_barrier_wait(&meeting);
        CHECK_OK(w.status);
        assert_non_null(w.block);
        held = w.block;
    }
    assert_int_equal(pthread_join(thread, NULL), 0);
    CHECK_OK(w.status);
    CHECK_OK(loch_free(s.allocator, held));
    pthread_barrier_destroy(&meeting);
    assert_true(test_subject_stats(&s).retries > 0);
    test_subject_end(&s);
}

/* Many threads need the same block: each gets it when the one before has finished. */
static void *queue_run(void *user)
{
    waiter *w = user;
    const loch_request request = {.size = sizeof request, .bytes = half(w->subject), .timeout_ns = w->timeout_ns};
    for (int i = 0; i < w->rounds && w->status == LOCH_OK; i++) {
        w->status = loch_allocator_alloc(w->subject->allocator, &request, &w->block);
        if (w->status == LOCH_OK) w->status = loch_free(w->subject->allocator, w->block);
    }
    return NULL;
}

static void waiters_are_served_in_turn(void **state)
{
    test_subject s;
    waiter waiters[8];
    pthread_t threads[8];
    test_subject_begin(&s, state);
    test_subject_require(&s, s.traits & LOCH_TRAIT_THREAD_SAFE && s.reuses);
    for (size_t t = 0; t < 8; t++) {
        waiters[t] = (waiter){.subject = &s, .timeout_ns = 120 * SECOND, .rounds = is_poisoned(&s) ? 1 : 12};
        assert_int_equal(pthread_create(&threads[t], NULL, queue_run, &waiters[t]), 0);
    }
    for (size_t t = 0; t < 8; t++)
        assert_int_equal(pthread_join(threads[t], NULL), 0);
    for (size_t t = 0; t < 8; t++)
        assert_int_equal(waiters[t].status, LOCH_OK);
    assert_int_equal(test_subject_stats(&s).blocks, 0);
    assert_int_equal(atomic_load(&s.allocator->waiters), 0);
    test_subject_end(&s);
}

/* When another thread holds memory and keeps it, the wait ends with the time allowed. */
static void a_wait_ends_when_its_time_is_over(void **state)
{
    test_subject s;
    test_subject_begin(&s, state);
    test_subject_require(&s, s.traits & LOCH_TRAIT_THREAD_SAFE);
    void *held = half_of(&s);
    waiter w = {.subject = &s, .timeout_ns = SECOND / 1000, .rounds = 1};
    pthread_t thread;
    assert_int_equal(pthread_create(&thread, NULL, waiter_run, &w), 0);
    assert_int_equal(pthread_join(thread, NULL), 0);
    assert_true(SHORT & 1u << w.status);
    assert_null(w.block);
    assert_true(w.waited_ns >= SECOND / 1000);
    const loch_stats stats = test_subject_stats(&s);
    assert_true(stats.waits_ns >= SECOND / 1000 && stats.retries >= 1);
    CHECK_OK(loch_free(s.allocator, held));
    test_subject_end(&s);
}

/* An allocator that knows its limit does not wait for a request above it: the wait would last for centuries. */
static void a_request_that_can_never_be_served_does_not_wait(void **state)
{
    test_subject s;
    test_subject_begin(&s, state);
    loch_request request = {.size = sizeof request, .bytes = s.capacity + 1};
    void *block = TEST_UNTOUCHED;
    CHECK_FAILS_SET(loch_allocator_alloc(s.allocator, &request, &block), SHORT);
    assert_null(block);
    request.timeout_ns = loch_error_get()->remedy == LOCH_REMEDY_NONE ? UINT64_MAX / 2 : 1;
    CHECK_FAILS_SET(loch_allocator_alloc(s.allocator, &request, &block), SHORT);
    test_subject_end(&s);
}

int main(void)
{
    const struct CMUnitTest cases[] = {
        cmocka_unit_test(pressure_functions_are_asked_in_order),
        cmocka_unit_test(pressure_functions_are_not_asked_in_vain),
        cmocka_unit_test(pressure_functions_of_wrapped_allocators_help),
        cmocka_unit_test(removal_waits_for_a_pressure_function_that_runs),
        cmocka_unit_test(a_free_by_another_thread_ends_a_wait),
        cmocka_unit_test(waiters_are_served_in_turn),
        cmocka_unit_test(a_wait_ends_when_its_time_is_over),
        cmocka_unit_test(a_request_that_can_never_be_served_does_not_wait),
    };
    lochi_retry_nap_ns = 600 * SECOND;
    return TEST_SUBJECTS_RUN(cases);
}

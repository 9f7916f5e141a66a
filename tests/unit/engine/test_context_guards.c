/* SPDX-License-Identifier: MIT */
/* Guards: whatever they change is as it was before, however they end, and one that cannot begin leaves no trace. */
#include "base/thread.h"
#include "context_fixture.h"
#include "engine/engine_state.h"
#include <limits.h>

static unsigned seat_now(const bench *b)
{
    return loch_context_get_seat(b->context).number;
}

/* Whether the calling thread holds the lock of a seat. */
static bool is_locked(const bench *b, unsigned seat)
{
    return atomic_load(&b->engine->seats[seat].lock.owner) == lochi_thread_number();
}

/* Whether moving is forbidden in a pool: allows it once, and undoes that. */
static bool is_forbidden(loch_allocator *pool)
{
    if (loch_pool_allow_moving(pool) != LOCH_OK) return false;
    CHECK_OK(loch_pool_forbid_moving(pool));
    return true;
}

/* --- guards of a block --- */

static loch_status fail_in_a_guard(const bench *b)
{
    LOCH_GUARD_RETURN(debug, b->context, 3);
    LOCH_GUARD_RETURN(seat, b->context, LOCH_SEAT(99), LOCH_SEAT_PLAIN);
    fail_msg("a guard of a seat that does not exist began");
    return LOCH_OK;
}

static void a_guard_checks_itself_and_two_fit_on_a_line(void **state)
{
    (void)state;
    bench b;
    bench_open(&b);
    CHECK_STATUS(fail_in_a_guard(&b), LOCH_E_NOT_FOUND);
    assert_int_equal(loch_context_get_debug(b.context), 0);
    {
        /* clang-format off */
        LOCH_GUARD_CHECK(seat, b.context, LOCH_SEAT(1), LOCH_SEAT_PLAIN); LOCH_GUARD_CHECK(debug, b.context, 2);
        LOCH_SPAN(NULL, "outer"); LOCH_SPAN(NULL, "inner", .level = 2);
        /* clang-format on */
        assert_int_equal(seat_now(&b), 1);
        assert_int_equal(loch_context_get_debug(b.context), 2);
    }
    assert_int_equal(seat_now(&b), 0);
    bench_close(&b);
}

/* --- seats --- */

static void a_seat_is_put_back(void **state)
{
    (void)state;
    bench b;
    bench_open(&b);
    loch_guard one, two;
    CHECK_OK(loch_context_begin_seat(b.context, LOCH_SEAT(1), LOCH_SEAT_PLAIN, &one));
    assert_int_equal(seat_now(&b), 1);
    assert_false(is_locked(&b, 1));
    CHECK_OK(loch_context_begin_seat(b.context, LOCH_SEAT(2), LOCH_SEAT_PLAIN, &two));
    assert_int_equal(seat_now(&b), 2);
    CHECK_OK(loch_context_set_seat(b.context, LOCH_SEAT(3))); /* as much as one likes in between */
    loch_guard_end(&two);
    assert_int_equal(seat_now(&b), 1);
    loch_guard_end(&one);
    assert_int_equal(seat_now(&b), 0);
    bench_close(&b);
}

static void ending_a_guard_ends_those_begun_after_it(void **state)
{
    (void)state;
    bench b;
    bench_open(&b);
    loch_guard one, two, three;
    CHECK_OK(loch_context_begin_seat(b.context, LOCH_SEAT(1), LOCH_SEAT_LOCKED, &one));
    CHECK_OK(loch_context_begin_debug(b.context, 5, &two));
    CHECK_OK(loch_context_begin_seat(b.context, LOCH_SEAT(2), LOCH_SEAT_LOCKED, &three));
    assert_true(is_locked(&b, 1) && is_locked(&b, 2));
    loch_guard_end(&one);
    assert_int_equal(seat_now(&b), 0);
    assert_int_equal(loch_context_get_debug(b.context), 0);
    assert_false(is_locked(&b, 1) || is_locked(&b, 2));
    loch_guard again;
    CHECK_OK(loch_context_begin_debug(b.context, 7, &again));
    loch_guard_end(&three); /* have ended: a later guard is not theirs */
    loch_guard_end(&two);
    loch_guard_end(&one);
    assert_int_equal(loch_context_get_debug(b.context), 7);
    loch_guard_end(&again);
    bench_close(&b);
}

static void a_guard_ends_once(void **state)
{
    (void)state;
    bench b;
    bench_open(&b);
    loch_guard guard, copy, none = {0};
    CHECK_OK(loch_context_begin_seat(b.context, LOCH_SEAT(1), LOCH_SEAT_LOCKED, &guard));
    copy = guard;
    loch_guard_end(&guard);
    assert_null(guard.context);
    CHECK_OK(loch_context_set_seat(b.context, LOCH_SEAT(2)));
    loch_guard_end(&guard);
    loch_guard_end(&copy);
    loch_guard_end(&none);
    loch_guard_end(NULL);
    assert_int_equal(seat_now(&b), 2);
    bench_close(&b);
}

static void locks_nest_like_guards(void **state)
{
    (void)state;
    bench b;
    bench_open(&b);
    loch_guard outer, inner;
    CHECK_OK(loch_context_begin_seat(b.context, LOCH_SEAT(1), LOCH_SEAT_LOCKED, &outer));
    CHECK_OK(loch_context_begin_seat(b.context, LOCH_SEAT(1), LOCH_SEAT_LOCKED, &inner));
    loch_guard_end(&inner);
    assert_true(is_locked(&b, 1));
    loch_guard_end(&outer);
    assert_false(is_locked(&b, 1));
    CHECK_FAILS(loch_engine_unlock(b.engine, LOCH_SEAT(1)), WRONG_THREAD);
    bench_close(&b);
}

static void *lock_and_unlock(void *user)
{
    const bench *b = user;
    for (unsigned i = 0; i < b->count; i++)
        if (loch_engine_lock(b->engine, LOCH_SEAT(i)) != LOCH_OK ||
            loch_engine_unlock(b->engine, LOCH_SEAT(i)) != LOCH_OK)
            return (void *)(uintptr_t) "a lock cannot be had";
    return NULL;
}

/* The original made the device current before it had its lock, and kept the lock for ever when that failed. */
static void a_seat_that_cannot_be_had_stays_unlocked_and_is_not_current(void **state)
{
    (void)state;
    bench b;
    bench_open(&b);
    const loch_seat two[] = {{0}, {1}};
    const loch_context_options options = {.size = sizeof options, .seats = two, .seats_count = 2};
    loch_context *few;
    loch_guard guard = {.number = 1};
    CHECK_OK(loch_context_open(b.engine, &options, &few));
    CHECK_FAILS(loch_context_begin_seat(few, LOCH_SEAT(2), LOCH_SEAT_LOCKED, &guard), NOT_FOUND);
    assert_true(!guard.context && !guard.number);
    CHECK_FAILS(loch_context_begin_seat(few, LOCH_SEAT(UINT_MAX), LOCH_SEAT_LOCKED, &guard), NOT_FOUND);
    CHECK_FAILS(loch_context_begin_seat(few, LOCH_SEAT(1), (loch_seat_use)9, &guard), INVALID);
    CHECK_FAILS(loch_context_begin_seat(few, LOCH_SEAT(1), LOCH_SEAT_LOCKED, NULL), INVALID);
    CHECK_FAILS(loch_context_begin_seat(NULL, LOCH_SEAT(1), LOCH_SEAT_LOCKED, &guard), INVALID);
    assert_int_equal(loch_context_get_seat(few).number, 0);
    loch_guard_end(&guard);
    bench_elsewhere(lock_and_unlock, &b); /* all locks are free */
    CHECK_OK(loch_context_close(few));
    bench_close(&b);
}

/* A call that fails inside of a guard leaves by its end like any other. */
static loch_status fail_inside(const bench *b)
{
    loch_status status;
    LOCH_GUARD(status, seat, b->context, LOCH_SEAT(1), LOCH_SEAT_LOCKED);
    if (status != LOCH_OK) return status;
    LOCH_GUARD(status, debug, b->context, 3);
    if (status != LOCH_OK) return status;
    assert_true(is_locked(b, 1) && seat_now(b) == 1 && loch_context_get_debug(b->context) == 3);
    loch_tensor *tensor;
    return loch_context_create_tensor(b->context, LOCH_U8, LOCH_SHAPE(INT64_MAX), NULL, 0, &tensor);
}

static void a_failure_inside_unlocks_the_device(void **state)
{
    (void)state;
    bench b;
    bench_open(&b);
    assert_int_not_equal(fail_inside(&b), LOCH_OK);
    assert_string_not_equal(loch_error_get()->sentence, ""); /* the end of a guard leaves the record */
    assert_int_equal(seat_now(&b), 0);
    assert_int_equal(loch_context_get_debug(b.context), 0);
    bench_elsewhere(lock_and_unlock, &b);
    bench_close(&b);
}

/* --- the end of the context --- */

static void the_end_of_a_context_undoes_its_guards(void **state)
{
    (void)state;
    bench b;
    bench_open(&b);
    loch_guard guards[3];
    loch_allocator *pool = loch_engine_get_allocator(b.engine, LOCH_SEAT(1));
    CHECK_OK(loch_context_begin_seat(b.context, LOCH_SEAT(1), LOCH_SEAT_LOCKED, &guards[0]));
    CHECK_OK(loch_context_begin_still(b.context, &guards[1]));
    CHECK_OK(loch_context_begin_seat(b.context, LOCH_SEAT(0), LOCH_SEAT_LOCKED, &guards[2]));
    assert_true(is_forbidden(pool));
    CHECK_OK(loch_context_close(b.context));
    assert_false(is_forbidden(pool));
    bench_elsewhere(lock_and_unlock, &b);
    /* Another one may lie where it was. */
    CHECK_OK(loch_context_open(b.engine, NULL, &b.context));
    loch_guard later;
    CHECK_OK(loch_context_begin_debug(b.context, 2, &later));
    for (size_t i = 0; i < 3; i++)
        loch_guard_end(&guards[i]); /* as at the end of a block that the context ended in */
    assert_int_equal(loch_context_get_debug(b.context), 2);
    bench_close(&b);
}

static void *unguard_elsewhere(void *user)
{
    loch_guard *guard = user;
    loch_guard_end(guard);
    return guard->context ? NULL : (void *)(uintptr_t) "it was ended";
}

static void another_thread_does_not_end_a_guard(void **state)
{
    (void)state;
    bench b;
    bench_open(&b);
    loch_guard guard;
    CHECK_OK(loch_context_begin_seat(b.context, LOCH_SEAT(1), LOCH_SEAT_PLAIN, &guard));
    bench_elsewhere(unguard_elsewhere, &guard);
    assert_int_equal(seat_now(&b), 1);
    loch_guard_end(&guard);
    assert_int_equal(seat_now(&b), 0);
    bench_close(&b);
}

/* --- streams --- */

static void a_stream_is_put_back_on_its_seat(void **state)
{
    (void)state;
    bench b;
    bench_open(&b);
    loch_stream *one = sim_stream(b.devices[0], LOCH_STREAM_INDEPENDENT);
    loch_stream *two = sim_stream(b.devices[0], LOCH_STREAM_INDEPENDENT);
    loch_stream *own = test_context_stream(b.context);
    loch_guard outer, inner;
    CHECK_OK(loch_context_begin_stream(b.context, one, &outer));
    CHECK_OK(loch_context_begin_stream(b.context, two, &inner));
    assert_ptr_equal(test_context_stream(b.context), two);
    CHECK_OK(loch_context_set_seat(b.context, LOCH_SEAT(1))); /* it is the stream of seat 0 that is put back */
    loch_stream *others = test_context_stream(b.context);
    CHECK_FAILS(loch_context_begin_stream(b.context, one, &(loch_guard){0}), INVALID);
    loch_guard_end(&inner);
    assert_ptr_equal(test_context_stream(b.context), others);
    CHECK_OK(loch_context_set_seat(b.context, LOCH_SEAT(0)));
    assert_ptr_equal(test_context_stream(b.context), one);
    CHECK_OK(loch_context_begin_stream(b.context, NULL, &inner));
    assert_ptr_equal(test_context_stream(b.context), own);
    loch_guard_end(&inner);
    assert_ptr_equal(test_context_stream(b.context), one);
    loch_guard_end(&outer);
    assert_ptr_equal(test_context_stream(b.context), own);
    loch_stream_close(one);
    loch_stream_close(two);
    bench_close(&b);
}

/* --- moving --- */

/* The original's was a single switch: the end of the inner one allowed moving in the outer one. */
static void forbidding_to_move_nests(void **state)
{
    (void)state;
    bench b;
    bench_open(&b);
    loch_allocator *pool = loch_context_get_allocator(b.context);
    loch_guard outer, inner;
    CHECK_OK(loch_context_begin_still(b.context, &outer));
    CHECK_OK(loch_context_begin_still(b.context, &inner));
    CHECK_FAILS(test_context_compact(b.context, NULL), MOVING_FORBIDDEN);
    loch_guard_end(&inner);
    assert_true(is_forbidden(pool));
    CHECK_FAILS(test_context_compact(b.context, NULL), MOVING_FORBIDDEN);
    loch_guard_end(&outer);
    assert_false(is_forbidden(pool));
    CHECK_OK(test_context_compact(b.context, NULL));
    bench_close(&b);
}

/* And it was undone in whatever allocator was current by then: the first one never moved again. */
static void moving_is_allowed_again_where_it_was_forbidden(void **state)
{
    (void)state;
    bench b;
    bench_open(&b);
    loch_allocator *own = loch_context_get_allocator(b.context), *child;
    const loch_child_options quota = {.size = sizeof quota, .limit_bytes = 8 * TEST_MIB};
    loch_guard guard;
    CHECK_OK(loch_context_begin_still(b.context, &guard));
    CHECK_OK(loch_context_push_pool(b.context, "child", &quota, &child));
    CHECK_OK(loch_context_set_seat(b.context, LOCH_SEAT(1)));
    loch_guard_end(&guard);
    assert_false(is_forbidden(own));
    assert_false(is_forbidden(child));
    assert_false(is_forbidden(loch_context_get_allocator(b.context)));
    /* the other way round: the pool is popped while it is guarded, and lives for that long */
    CHECK_OK(loch_context_set_seat(b.context, LOCH_SEAT(0)));
    CHECK_OK(loch_context_begin_still(b.context, &guard));
    assert_true(is_forbidden(child) && !is_forbidden(own));
    CHECK_OK(loch_context_pop_pool(b.context));
    assert_true(is_forbidden(child) && !is_forbidden(own));
    loch_guard_end(&guard);
    assert_false(is_forbidden(own));
    bench_close(&b);
}

static void with_direct_memory_nothing_moves(void **state)
{
    (void)state;
    bench b;
    bench_open_with(&b, LOCH_ENGINE_DIRECT, NULL);
    loch_guard outer, inner;
    CHECK_OK(loch_context_begin_still(b.context, &outer));
    CHECK_OK(loch_context_begin_still(b.context, &inner));
    loch_guard_end(&outer);
    loch_guard_end(&inner);
    bench_close(&b);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        TENSOR_TEST(a_guard_checks_itself_and_two_fit_on_a_line),
        TENSOR_TEST(a_seat_is_put_back),
        TENSOR_TEST(ending_a_guard_ends_those_begun_after_it),
        TENSOR_TEST(a_guard_ends_once),
        TENSOR_TEST(locks_nest_like_guards),
        TENSOR_TEST(a_seat_that_cannot_be_had_stays_unlocked_and_is_not_current),
        TENSOR_TEST(a_failure_inside_unlocks_the_device),
        TENSOR_TEST(the_end_of_a_context_undoes_its_guards),
        TENSOR_TEST(another_thread_does_not_end_a_guard),
        TENSOR_TEST(a_stream_is_put_back_on_its_seat),
        TENSOR_TEST(forbidding_to_move_nests),
        TENSOR_TEST(moving_is_allowed_again_where_it_was_forbidden),
        TENSOR_TEST(with_direct_memory_nothing_moves),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

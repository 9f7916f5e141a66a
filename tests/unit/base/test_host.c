/* SPDX-License-Identifier: MIT */
/* What the library takes from its process: bookkeeping memory and the clock. */
#include "base/clock.h"
#include "base/heap.h"
#include "failing_heap.h"
#include "test.h"

static loch_host_usage usage(void)
{
    loch_host_usage now = {.size = sizeof now};
    CHECK_OK(loch_host_get_usage(&now));
    return now;
}

static void nothing_is_held_at_first(void **state)
{
    (void)state;
    assert_int_equal(usage().blocks, 0);
    assert_int_equal(usage().bytes, 0);
}

static void usage_is_what_was_asked_for(void **state)
{
    (void)state;
    loch_host_usage before = usage();
    void *first = lochi_alloc(100), *second = lochi_zalloc(28);
    assert_non_null(first);
    assert_int_equal((uintptr_t)first % _Alignof(max_align_t), 0);
    assert_int_equal((uintptr_t)second % _Alignof(max_align_t), 0);
    for (size_t i = 0; i < 28; i++)
        assert_int_equal(((char *)second)[i], 0);
    assert_int_equal(usage().blocks, before.blocks + 2);
    assert_int_equal(usage().bytes, before.bytes + 128);
    lochi_free(first);
    assert_int_equal(usage().bytes, before.bytes + 28);
    lochi_free(second);
    lochi_free(NULL);
    assert_int_equal(usage().blocks, before.blocks);
    assert_int_equal(usage().bytes, before.bytes);
}

static void arrays_are_checked_for_overflow_and_keep_contents(void **state)
{
    (void)state;
    assert_null(lochi_alloc_array(SIZE_MAX / 8 + 1, 8));
    assert_null(lochi_alloc_array(SIZE_MAX, SIZE_MAX));
    assert_null(lochi_alloc(SIZE_MAX));
    assert_null(lochi_zalloc(SIZE_MAX - 8));
    int *numbers = lochi_alloc_array(10, sizeof *numbers);
    assert_non_null(numbers);
    for (int i = 0; i < 10; i++)
        numbers[i] = i;
    numbers = lochi_realloc(numbers, 1000 * sizeof *numbers);
    for (int i = 0; i < 10; i++)
        assert_int_equal(numbers[i], i);
    assert_null(lochi_realloc(numbers, SIZE_MAX));
    for (int i = 0; i < 10; i++)
        assert_int_equal(numbers[i], i); /* as it was */
    numbers = lochi_realloc(numbers, 5 * sizeof *numbers);
    for (int i = 0; i < 5; i++)
        assert_int_equal(numbers[i], i);
    assert_int_equal(usage().bytes, 5 * sizeof *numbers);
    lochi_free(numbers);
    char *text = lochi_strdup("words"), *fresh = lochi_realloc(NULL, 3);
    assert_string_equal(text, "words");
    assert_non_null(fresh);
    lochi_free(text);
    lochi_free(fresh);
    assert_int_equal(usage().blocks, 0);
}

static void the_allocator_is_replaced_when_nothing_is_out(void **state)
{
    (void)state;
    const loch_host_allocator missing = {.size = sizeof missing}, unset = {0};
    void *out = lochi_alloc(10);
    CHECK_FAILS(test_heap_install(), BUSY);
    CHECK_FAILS(loch_host_set_allocator(NULL), BUSY);
    lochi_free(out);
    CHECK_FAILS(loch_host_set_allocator(&missing), INVALID);
    CHECK_FAILS(loch_host_set_allocator(&unset), INVALID);

    CHECK_OK(test_heap_install());
    test_heap_set(TEST_FAILING_NEVER, 0);
    out = lochi_alloc(10);
    assert_int_equal(test_heap_live(), 1);
    CHECK_FAILS(loch_host_set_allocator(NULL), BUSY);
    test_heap_set(TEST_FAILING_ONCE, 0);
    assert_null(lochi_alloc(10));
    void *next = lochi_alloc(10);
    assert_non_null(next);
    test_heap_set(TEST_FAILING_FOREVER, 0);
    assert_null(lochi_strdup("x"));
    assert_null(lochi_realloc(next, 100));
    assert_int_equal(usage().blocks, 2);
    test_heap_set(TEST_FAILING_NEVER, 0);
    lochi_free(out);
    lochi_free(next);
    assert_int_equal(test_heap_live(), 0);
    assert_int_equal(test_heap_wrong(), 0);
    assert_int_equal(usage().bytes, 0);
}

/* An open device holds bookkeeping; a closed one none. */
static void devices_give_everything_back(void **state)
{
    (void)state;
    loch_device *device = NULL;
    CHECK_OK(loch_device_open("cpu", &device));
    assert_true(usage().blocks > 0);
    CHECK_FAILS(loch_host_set_allocator(NULL), BUSY);
    loch_device_release(device);
    assert_int_equal(usage().blocks, 0);
    assert_int_equal(usage().bytes, 0);
    CHECK_OK(loch_host_set_allocator(NULL));
}

static uint64_t slow_clock(void *user)
{
    return *(uint64_t *)user += 5;
}

static void the_clock_is_replaced(void **state)
{
    (void)state;
    uint64_t time = 100, first = loch_host_now_ns(), second = loch_host_now_ns();
    assert_true(first > 0 && second >= first);
    lochi_clock_set(slow_clock, &time);
    assert_int_equal(loch_host_now_ns(), 105);
    assert_int_equal(loch_host_now_ns(), 110);
    lochi_clock_set(NULL, NULL);
    assert_true(loch_host_now_ns() >= second);
    assert_int_equal(time, 110);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(nothing_is_held_at_first),
        cmocka_unit_test(usage_is_what_was_asked_for),
        cmocka_unit_test(arrays_are_checked_for_overflow_and_keep_contents),
        cmocka_unit_test(the_allocator_is_replaced_when_nothing_is_out),
        cmocka_unit_test(devices_give_everything_back),
        cmocka_unit_test(the_clock_is_replaced),
    };
    return cmocka_run_group_tests_name("host", tests, NULL, NULL);
}

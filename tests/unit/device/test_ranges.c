/* SPDX-License-Identifier: MIT */
/* The table of ranges: what overlaps, what holds an address, and what a range of addresses is. The addresses are
 * numbers that nothing maps. */
#include "device/ranges.h"
#include "test.h"

#define BASE ((uintptr_t)1 << 46)

static loch_device *device;

static lochi_range make(uintptr_t start, size_t bytes, lochi_range_type type)
{
    loch_memory_kind kind = type == LOCHI_RANGE_REGISTRATION ? LOCH_MEMORY_REGISTERED : LOCH_MEMORY_DEVICE;
    return (lochi_range){.node.key = BASE + start, .bytes = bytes, .device = device, .type = type, .kind = kind};
}

static bool insert(lochi_range *range)
{
    lochi_ranges_lock();
    bool done = lochi_ranges_insert(range);
    lochi_ranges_unlock();
    return done;
}

static void drop(lochi_range *range)
{
    lochi_ranges_lock();
    lochi_ranges_remove(range);
    lochi_ranges_unlock();
}

static void overlap_is_refused_in_one_map(void **state)
{
    (void)state;
    lochi_range middle = make(1000, 100, LOCHI_RANGE_RAW);
    assert_true(insert(&middle));
    const struct {
        uintptr_t start;
        size_t bytes;
        bool fits;
    } cases[] = {{900, 100, true}, {900, 101, false},  {1000, 100, false}, {1099, 1, false},
                 {1100, 50, true}, {500, 2000, false}, {1050, 10, false},  {950, 200, false}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        lochi_range other = make(cases[i].start, cases[i].bytes, LOCHI_RANGE_MAPPING);
        assert_int_equal(insert(&other), cases[i].fits);
        if (cases[i].fits) drop(&other);
    }
    /* the maps are apart: a reservation holds mappings, a registration lies over memory */
    lochi_range reservation = make(0, 5000, LOCHI_RANGE_RESERVATION);
    lochi_range registration = make(1000, 10, LOCHI_RANGE_REGISTRATION);
    assert_true(insert(&reservation));
    assert_true(insert(&registration));
    drop(&reservation);
    drop(&registration);
    drop(&middle);
}

static void addresses_are_found(void **state)
{
    (void)state;
    lochi_range first = make(1000, 100, LOCHI_RANGE_RAW), second = make(1100, 1, LOCHI_RANGE_MAPPING);
    assert_true(insert(&first) && insert(&second));
    lochi_ranges_lock();
    assert_null(lochi_ranges_find_memory(BASE + 999));
    assert_ptr_equal(lochi_ranges_find_memory(BASE + 1000), &first);
    assert_ptr_equal(lochi_ranges_find_memory(BASE + 1099), &first);
    assert_ptr_equal(lochi_ranges_find_memory(BASE + 1100), &second);
    assert_null(lochi_ranges_find_memory(BASE + 1101));
    assert_null(lochi_ranges_find_reservation(BASE + 1000));
    assert_null(lochi_ranges_find_registration(BASE + 1000));
    assert_null(lochi_ranges_first_memory(BASE, BASE + 1000));
    assert_ptr_equal(lochi_ranges_first_memory(BASE, BASE + 1001), &first);
    assert_ptr_equal(lochi_ranges_first_memory(BASE + 1050, BASE + 1060), &first);
    assert_ptr_equal(lochi_ranges_first_memory(BASE + 1100, BASE + 9999), &second);
    assert_null(lochi_ranges_first_memory(BASE + 1101, BASE + 9999));
    lochi_ranges_unlock();
    drop(&first);
    drop(&second);
}

static void expect_place(uintptr_t start, size_t bytes, unsigned failure, const lochi_range *first)
{
    lochi_place place = {0};
    if (failure) {
        CHECK_FAILS_SET(lochi_ranges_locate((void *)(BASE + start), bytes, &place), failure);
        return;
    }
    CHECK_OK(lochi_ranges_locate((void *)(BASE + start), bytes, &place));
    assert_ptr_equal(place.device, first ? first->device : NULL);
    assert_int_equal(place.kind, first ? first->kind : LOCH_MEMORY_HOST);
    assert_true(place.start == (first ? lochi_range_start(first) : BASE + start));
    assert_int_equal(place.bytes, first ? first->bytes : 0);
}

static void ranges_are_located_to_the_last_byte(void **state)
{
    (void)state;
    lochi_range reservation = make(0, 10000, LOCHI_RANGE_RESERVATION);
    lochi_range pieces[3] = {make(1000, 1000, LOCHI_RANGE_MAPPING), make(2000, 500, LOCHI_RANGE_MAPPING),
                             make(3000, 1000, LOCHI_RANGE_MAPPING)};
    assert_true(insert(&reservation));
    for (int i = 0; i < 3; i++)
        assert_true(insert(&pieces[i]));

    expect_place(1000, 1, 0, &pieces[0]);
    expect_place(1000, 1500, 0, &pieces[0]);
    expect_place(1999, 2, 0, &pieces[0]);
    expect_place(2000, 500, 0, &pieces[1]);
    expect_place(1000, 1501, TEST_SET(OUT_OF_RANGE), NULL);
    expect_place(2499, 2, TEST_SET(OUT_OF_RANGE), NULL);
    expect_place(1000, 3000, TEST_SET(OUT_OF_RANGE), NULL);
    expect_place(3999, 2, TEST_SET(OUT_OF_RANGE), NULL);
    expect_place(0, 10, TEST_SET(NOT_FOUND), NULL);
    expect_place(2500, 10, TEST_SET(NOT_FOUND), NULL);
    expect_place(2500, 600, TEST_SET(NOT_FOUND) | TEST_SET(OUT_OF_RANGE), NULL);
    expect_place(20000, 10, 0, NULL);

    for (int i = 0; i < 3; i++)
        drop(&pieces[i]);
    drop(&reservation);
}

/* A range that begins in front of something known is not plain host memory. */
static void a_range_that_runs_into_known_memory_is_not_the_hosts(void **state)
{
    (void)state;
    lochi_range block = make(1000, 100, LOCHI_RANGE_RAW), reservation = make(5000, 1000, LOCHI_RANGE_RESERVATION);
    lochi_range registration = make(9000, 100, LOCHI_RANGE_REGISTRATION);
    assert_true(insert(&block) && insert(&reservation) && insert(&registration));
    expect_place(900, 100, 0, NULL);
    expect_place(999, 2, TEST_SET(OUT_OF_RANGE), NULL);
    expect_place(900, 1000, TEST_SET(OUT_OF_RANGE), NULL);
    expect_place(4999, 2, TEST_SET(OUT_OF_RANGE) | TEST_SET(NOT_FOUND), NULL);
    expect_place(9000, 100, 0, &registration);
    drop(&block);
    drop(&reservation);
    drop(&registration);
}

static int open_device(void **state)
{
    (void)state;
    return loch_device_open("cpu", &device) == LOCH_OK ? 0 : -1;
}

static int release_device(void **state)
{
    (void)state;
    loch_device_release(device);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(overlap_is_refused_in_one_map),
        cmocka_unit_test(addresses_are_found),
        cmocka_unit_test(ranges_are_located_to_the_last_byte),
        cmocka_unit_test(a_range_that_runs_into_known_memory_is_not_the_hosts),
    };
    return cmocka_run_group_tests_name("ranges", tests, open_device, release_device);
}

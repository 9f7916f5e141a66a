/* SPDX-License-Identifier: MIT */
/* How much the seats of an engine may hold: limits in bytes, fractions of what is free, and all but so much. */
#include "engine_fixture.h"
#include <math.h>

/* --- limits --- */

static void bad_limits_are_refused(void **state)
{
    (void)state;
    static const double fractions[] = {-0.1, 1.0001, 2, NAN, INFINITY, -INFINITY};
    loch_engine *engine;
    loch_engine_device table[] = {device_named("cpu"), device_named(SIM_A)};
    for (size_t i = 0; i < sizeof fractions / sizeof *fractions; i++) {
        table[1].limit_fraction = fractions[i];
        CHECK_FAILS(try_open(table, 2, &engine), INVALID);
        expect_sentence("seat 1");
    }
    for (int pair = 0; pair < 4; pair++) {
        table[1].limit_bytes = pair == 0 ? 0 : MIB;
        table[1].limit_fraction = pair == 1 ? 0 : 0.5;
        table[1].spare_bytes = pair == 2 ? 0 : MIB;
        CHECK_FAILS(try_open(table, 2, &engine), INVALID);
        expect_sentence("seat 1");
    }
}

static void limits_are_bytes_fractions_or_all_but_so_much(void **state)
{
    (void)state;
    loch_engine_device table[] = {device_named("cpu"), device_named(SIM_A), device_named(SIM_B), device_named("cpu")};
    table[0].limit_bytes = 5 * MIB;
    table[1].limit_fraction = 0.25;
    table[2].spare_bytes = 10 * MIB;
    loch_engine *engine = open_engine(table, 4);
    assert_int_equal(info_of(engine, 0).limit_bytes, 5 * MIB);
    assert_int_equal(info_of(engine, 1).limit_bytes, 16 * MIB);
    assert_int_equal(info_of(engine, 2).limit_bytes, 22 * MIB);
    assert_int_equal(info_of(engine, 3).limit_bytes, 0);
    void *block;
    for (unsigned i = 0; i < 3; i++) {
        loch_allocator *allocator = loch_engine_get_allocator(engine, LOCH_SEAT(i));
        CHECK_FAILS(loch_alloc(allocator, info_of(engine, i).limit_bytes + 1, &block), LIMIT);
        CHECK_OK(loch_alloc(allocator, MIB, &block));
        assert_true(info_of(engine, i).used_bytes >= MIB && info_of(engine, i).reserved_bytes >= MIB);
        CHECK_OK(loch_free(allocator, block));
        assert_int_equal(info_of(engine, i).used_bytes, 0);
        assert_true(info_of(engine, i).peak_bytes >= MIB);
    }
    end_engine(engine);
}

/* What is free when the engine opens, and not what the device has. */
static void fractions_are_of_what_is_free(void **state)
{
    (void)state;
    loch_device *device;
    void *other;
    CHECK_OK(loch_device_open(SIM_A, &device));
    CHECK_OK(loch_raw_alloc(device, LOCH_MEMORY_DEVICE, 24 * MIB, 0, &other));
    loch_engine_device table[] = {device_named(SIM_A)};
    table[0].limit_fraction = 0.5;
    loch_engine *engine = open_engine(table, 1);
    assert_int_equal(info_of(engine, 0).limit_bytes, 20 * MIB);
    end_engine(engine);
    table[0].limit_fraction = 1;
    engine = open_engine(table, 1);
    assert_int_equal(info_of(engine, 0).limit_bytes, 40 * MIB);
    end_engine(engine);
    CHECK_OK(loch_raw_free(other));
    loch_device_release(device);
}

static void seats_of_one_device_share_what_is_free(void **state)
{
    (void)state;
    loch_engine_device table[6];
    for (size_t i = 0; i < 6; i++)
        table[i] = device_named(i == 4 ? SIM_B : SIM_A);
    table[0].spare_bytes = 2 * MIB; /* (64 - 16 - 8 - 16 - 4) / 2, as seat 3 */
    table[1].limit_fraction = 0.25; /* 16 */
    table[2].limit_bytes = 8 * MIB; /* 8 */
    table[3].spare_bytes = 4 * MIB; /* (64 - 16 - 8 - 16 - 4) / 2 */
    table[4].limit_fraction = 0.5;  /* another device */
    table[5].limit_fraction = 0.25; /* 16 */
    loch_engine *engine = open_engine(table, 6);
    static const size_t expected[] = {10, 16, 8, 10, 16, 16};
    size_t sum = 0;
    for (unsigned i = 0; i < 6; i++) {
        assert_int_equal(info_of(engine, i).limit_bytes, expected[i] * MIB);
        if (i != 4) sum += info_of(engine, i).limit_bytes;
    }
    assert_int_equal(sum, 60 * MIB); /* the larger spare is left */
    void *blocks[6];                 /* all may hold what they were promised at the same time */
    for (unsigned i = 0; i < 6; i++)
        CHECK_OK(loch_alloc(loch_engine_get_allocator(engine, LOCH_SEAT(i)), expected[i] * MIB, &blocks[i]));
    for (unsigned i = 0; i < 6; i++)
        CHECK_OK(loch_free(loch_engine_get_allocator(engine, LOCH_SEAT(i)), blocks[i]));
    end_engine(engine);
}

static void fractions_are_one_together_at_most(void **state)
{
    (void)state;
    static const double fractions[] = {0.2, 0.4, 0.3, 0.1}; /* for a computer a little more than 1 */
    loch_engine *engine;
    loch_engine_device table[4];
    for (size_t i = 0; i < 4; i++) {
        table[i] = device_named(SIM_A);
        table[i].limit_fraction = fractions[i];
    }
    engine = open_engine(table, 4);
    end_engine(engine);
    table[3].limit_fraction = 0.2;
    CHECK_FAILS(try_open(table, 4, &engine), INVALID);
    expect_sentence(SIM_A);
    table[3].name = SIM_B; /* of another device they are not counted */
    engine = open_engine(table, 4);
    end_engine(engine);
}

/* The original computed free memory less the spare in unsigned numbers: with less free than was to be spared, the limit
 * was eighteen exabytes. */
static void less_free_than_is_to_be_spared_is_refused(void **state)
{
    (void)state;
    loch_engine *engine = TEST_UNTOUCHED;
    loch_engine_device table[] = {device_named("cpu"), device_named(SIM_A), device_named(SIM_A)};
    static const size_t spares[] = {64 * MIB, 64 * MIB + 1, SIZE_MAX};
    for (size_t i = 0; i < 3; i++) { /* with nothing left, too: a limit of 0 would be none at all */
        table[1].spare_bytes = spares[i];
        CHECK_FAILS(try_open(table, 2, &engine), LIMIT);
        expect_sentence("seat 1");
        assert_null(engine);
    }
    table[1].spare_bytes = 64 * MIB - 1;
    engine = open_engine(table, 2);
    assert_int_equal(info_of(engine, 1).limit_bytes, 1);
    end_engine(engine);
    table[1].spare_bytes = 8 * MIB; /* what another seat may hold is not left either */
    table[2].limit_bytes = SIZE_MAX;
    CHECK_FAILS(try_open(table, 3, &engine), LIMIT);
    table[2].limit_bytes = 56 * MIB;
    CHECK_FAILS(try_open(table, 3, &engine), LIMIT);
    table[2].limit_bytes = 55 * MIB;
    engine = open_engine(table, 3);
    assert_int_equal(info_of(engine, 1).limit_bytes, MIB);
    end_engine(engine);
}

static void a_fraction_of_nothing_is_refused(void **state)
{
    (void)state;
    loch_device *device;
    loch_engine *engine;
    void *other;
    CHECK_OK(loch_device_open(SIM_A, &device));
    CHECK_OK(loch_raw_alloc(device, LOCH_MEMORY_DEVICE, 64 * MIB, 0, &other));
    loch_engine_device table[] = {device_named(SIM_A)};
    table[0].limit_fraction = 1;
    CHECK_FAILS(try_open(table, 1, &engine), LIMIT);
    table[0].limit_fraction = 0;
    table[0].spare_bytes = 1;
    CHECK_FAILS(try_open(table, 1, &engine), LIMIT);
    CHECK_OK(loch_raw_free(other));
    table[0].spare_bytes = 0;
    table[0].limit_fraction = 1e-300;
    CHECK_FAILS(try_open(table, 1, &engine), LIMIT);
    loch_device_release(device);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(bad_limits_are_refused),
        TEST(limits_are_bytes_fractions_or_all_but_so_much),
        TEST(fractions_are_of_what_is_free),
        TEST(seats_of_one_device_share_what_is_free),
        TEST(fractions_are_one_together_at_most),
        TEST(less_free_than_is_to_be_spared_is_refused),
        TEST(a_fraction_of_nothing_is_refused),
    };
    return cmocka_run_group_tests_name("limits of engines", tests, NULL, NULL);
}

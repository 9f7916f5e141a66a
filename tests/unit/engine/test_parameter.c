/* SPDX-License-Identifier: MIT */
/* Parameters: declared without memory, loaded whole or in parts, on one seat, copied to all or cut over them. */
#include "engine/context/parameter.h"
#include "context_fixture.h"

/* A host tensor with elements first, first + 1, ... */
static loch_tensor *host_tensor(loch_dtype dtype, int64_t rows, int64_t columns, double first)
{
    loch_tensor *tensor;
    CHECK_OK(loch_tensor_create(dtype, LOCH_SHAPE(rows, columns), NULL, &tensor));
    for (int64_t i = 0; i < rows; i++)
        for (int64_t k = 0; k < columns; k++)
            CHECK_OK(loch_tensor_write_item(tensor, LOCH_SHAPE(i, k), loch_scalar_of(first + (double)(i * columns + k)),
                                            NULL));
    return tensor;
}

/* Rows [start, end) of a host tensor, or columns. */
static loch_tensor *cut(loch_tensor *tensor, int axis, int64_t start, int64_t end)
{
    loch_tensor *part;
    CHECK_OK(loch_tensor_slice(tensor, axis, start, end, 1, &part));
    return part;
}

static loch_parameter *declare(const bench *b, loch_dtype dtype, int64_t rows, int64_t columns, loch_spread spread,
                               int axis)
{
    loch_parameter *parameter;
    CHECK_OK(loch_context_declare(b->context, "weight", dtype, LOCH_SHAPE(rows, columns), spread, axis, 0, &parameter));
    return parameter;
}

static loch_status load_part(const bench *b, loch_parameter *parameter, loch_tensor *all, int axis, int64_t start,
                             int64_t end)
{
    loch_tensor *part = cut(all, axis, start, end);
    const loch_status status = loch_context_load_part(b->context, parameter, axis, start, part);
    loch_tensor_release(part);
    return status;
}

/* What lies on a seat has to be this part of a host tensor of floats. */
static void expect_on(const bench *b, const loch_parameter *parameter, unsigned seat, loch_tensor *all, int axis,
                      int64_t start, int64_t end)
{
    loch_tensor *there, *part = cut(all, axis, start, end), *rows;
    CHECK_OK(loch_parameter_acquire_tensor(parameter, LOCH_SEAT(seat), &there));
    assert_ptr_equal(loch_tensor_get_device(there), b->devices[seat]);
    CHECK_OK(loch_tensor_contiguous(part, NULL, &rows));
    bench_expect_same(b, there, rows);
    loch_tensor_release(rows);
    loch_tensor_release(part);
    loch_tensor_release(there);
}

static void declaring_takes_no_memory(void **state)
{
    (void)state;
    bench b;
    bench_open(&b);
    loch_parameter *parameter = declare(&b, LOCH_F32, 1000000, 1000000, LOCH_SPREAD_COPIES, 0);
    assert_int_equal(bench_stats(&b).used_bytes, 0);
    assert_false(lochi_parameter_is_loaded(parameter));
    assert_string_equal(loch_parameter_get_name(parameter), "weight");
    loch_tensor *none = TEST_UNTOUCHED;
    CHECK_FAILS(loch_parameter_acquire_tensor(parameter, LOCH_SEAT(0), &none), BUSY);
    assert_null(none);
    CHECK_FAILS(loch_parameter_acquire_tensor(parameter, LOCH_SEAT(9), &none), NOT_FOUND);
    assert_ptr_equal(loch_parameter_retain(parameter), parameter);
    loch_parameter_release(parameter);
    loch_parameter_release(parameter);
    loch_parameter_release(NULL);
    assert_null(loch_parameter_retain(NULL));
    bench_close(&b);
}

static void bad_declarations_are_told(void **state)
{
    (void)state;
    bench b;
    bench_open(&b);
    loch_parameter *p = TEST_UNTOUCHED;
    CHECK_FAILS(loch_context_declare(b.context, "p", LOCH_F32, LOCH_SHAPE(-1), LOCH_SPREAD_ONE, 0, 0, &p), INVALID);
    assert_null(p);
    CHECK_FAILS(loch_context_declare(b.context, "p", LOCH_F32, LOCH_SHAPE(1), (loch_spread)7, 0, 0, &p), INVALID);
    CHECK_FAILS(loch_context_declare(b.context, "p", LOCH_F32, LOCH_SHAPE(4, 4), LOCH_SPREAD_PARTS, 2, 0, &p), INVALID);
    CHECK_FAILS(loch_context_declare(b.context, "p", LOCH_F32, LOCH_SCALAR, LOCH_SPREAD_PARTS, 0, 0, &p), INVALID);
    CHECK_FAILS(loch_context_declare(b.context, "p", LOCH_F32, LOCH_SHAPE(4), LOCH_SPREAD_ONE, 0, 0, NULL), INVALID);
    CHECK_FAILS(loch_context_declare(b.context, "p", LOCH_F32, LOCH_SHAPE(INT64_MAX, 9), LOCH_SPREAD_ONE, 0, 0, &p),
                OVERFLOW);
    bench_close(&b);
}

static void a_parameter_is_on_one_seat_on_all_or_cut_over_them(void **state)
{
    (void)state;
    for (loch_engine_memory memory = LOCH_ENGINE_POOLS; memory <= LOCH_ENGINE_DIRECT; memory++) {
        bench b;
        bench_open_with(&b, memory, NULL);
        loch_tensor *host = host_tensor(LOCH_F32, 10, 7, 1), *none;
        CHECK_OK(loch_context_set_seat(b.context, LOCH_SEAT(1)));
        loch_parameter *one = declare(&b, LOCH_F32, 10, 7, LOCH_SPREAD_ONE, 0);
        CHECK_OK(loch_context_set_seat(b.context, LOCH_SEAT(0)));
        CHECK_OK(loch_context_load(b.context, one, host)); /* goes where it was declared */
        expect_on(&b, one, 1, host, 0, 0, 10);
        CHECK_FAILS(loch_parameter_acquire_tensor(one, LOCH_SEAT(0), &none), NOT_FOUND);
        loch_parameter *copies = declare(&b, LOCH_F32, 10, 7, LOCH_SPREAD_COPIES, 0);
        CHECK_OK(loch_context_load(b.context, copies, host));
        for (unsigned i = 0; i < b.count; i++)
            expect_on(&b, copies, i, host, 0, 0, 10);
        loch_parameter *rows = declare(&b, LOCH_F32, 10, 7, LOCH_SPREAD_PARTS, 0);
        CHECK_OK(loch_context_load(b.context, rows, host));
        const int64_t row_at[] = {0, 3, 6, 8, 10}, column_at[] = {0, 2, 4, 6, 7}; /* larger parts first */
        for (unsigned i = 0; i < b.count; i++)
            expect_on(&b, rows, i, host, 0, row_at[i], row_at[i + 1]);
        loch_parameter *columns = declare(&b, LOCH_F32, 10, 7, LOCH_SPREAD_PARTS, -1);
        CHECK_OK(loch_context_load(b.context, columns, host));
        for (unsigned i = 0; i < b.count; i++)
            expect_on(&b, columns, i, host, 1, column_at[i], column_at[i + 1]);
        assert_int_equal(bench_stats(&b).used_bytes, 280 * (1 + 4 + 1 + 1));
        loch_parameter_release(one);
        loch_parameter_release(copies);
        loch_parameter_release(rows);
        loch_parameter_release(columns);
        assert_int_equal(bench_stats(&b).used_bytes, 0);
        loch_tensor_release(host);
        bench_close(&b);
    }
}

static void with_fewer_rows_than_seats_some_have_none(void **state)
{
    (void)state;
    bench b;
    bench_open(&b);
    loch_tensor *host = host_tensor(LOCH_F32, 2, 5, 1), *none;
    loch_parameter *parameter = declare(&b, LOCH_F32, 2, 5, LOCH_SPREAD_PARTS, 0);
    CHECK_OK(loch_context_load(b.context, parameter, host));
    expect_on(&b, parameter, 0, host, 0, 0, 1);
    expect_on(&b, parameter, 1, host, 0, 1, 2);
    CHECK_FAILS(loch_parameter_acquire_tensor(parameter, LOCH_SEAT(2), &none), NOT_FOUND);
    loch_parameter_release(parameter);
    loch_tensor_release(host);
    bench_close(&b);
}

static void types_are_converted(void **state)
{
    (void)state;
    bench b;
    bench_open(&b);
    loch_tensor *host = host_tensor(LOCH_F32, 4, 6, 0), *there, *back;
    loch_parameter *parameter = declare(&b, LOCH_F16, 4, 6, LOCH_SPREAD_PARTS, 1);
    CHECK_OK(loch_context_load(b.context, parameter, host));
    CHECK_OK(loch_parameter_acquire_tensor(parameter, LOCH_SEAT(1), &there)); /* columns 2 and 3 */
    assert_int_equal(loch_tensor_get_dtype(there), LOCH_F16);
    CHECK_OK(loch_tensor_to(there, LOCH_F32, NULL, &back));
    loch_tensor *columns = cut(host, 1, 2, 4), *rows;
    CHECK_OK(loch_tensor_contiguous(columns, NULL, &rows));
    bench_expect_same(&b, back, rows);
    loch_tensor_release(rows);
    loch_tensor_release(columns);
    loch_tensor_release(back);
    loch_tensor_release(there);
    loch_parameter_release(parameter);
    loch_tensor_release(host);
    bench_close(&b);
}

static void scalars_and_empty_parameters_are_loaded(void **state)
{
    (void)state;
    bench b;
    bench_open(&b);
    loch_tensor *scalar, *empty = host_tensor(LOCH_F32, 0, 3, 0), *there;
    loch_parameter *one, *none;
    const float value = 7;
    CHECK_OK(loch_tensor_create_from(LOCH_F32, LOCH_SCALAR, &value, NULL, &scalar));
    CHECK_OK(loch_context_declare(b.context, NULL, LOCH_F32, LOCH_SCALAR, LOCH_SPREAD_COPIES, 0, 0, &one));
    assert_string_equal(loch_parameter_get_name(one), "");
    CHECK_FAILS(loch_context_load_part(b.context, one, 0, 0, scalar), INVALID);
    CHECK_OK(loch_context_load(b.context, one, scalar));
    CHECK_OK(loch_parameter_acquire_tensor(one, LOCH_SEAT(1), &there));
    bench_expect_same(&b, there, scalar);
    loch_tensor_release(there);
    none = declare(&b, LOCH_F32, 0, 3, LOCH_SPREAD_PARTS, 0);
    assert_false(lochi_parameter_is_loaded(none));
    CHECK_OK(loch_context_load(b.context, none, empty));
    assert_true(lochi_parameter_is_loaded(none));
    CHECK_OK(loch_parameter_acquire_tensor(none, LOCH_SEAT(1), &there));
    assert_int_equal(loch_tensor_get_elements(there), 0);
    loch_tensor_release(there);
    loch_parameter_release(one);
    loch_parameter_release(none);
    loch_tensor_release(scalar);
    loch_tensor_release(empty);
    bench_close(&b);
}

/* Copies from pinned memory are queued: the call waits for them, so the caller may write the memory again at once. */
static void what_was_loaded_from_may_be_written_at_once(void **state)
{
    (void)state;
    bench b;
    bench_open(&b);
    float *pinned = sim_pinned(b.devices[0], 16 * sizeof(float));
    loch_tensor *host, *was = host_tensor(LOCH_F32, 4, 4, 1);
    CHECK_OK(loch_tensor_wrap(LOCH_F32, LOCH_SHAPE(4, 4), pinned, NULL, &host));
    CHECK_OK(loch_tensor_read(was, pinned, 16 * sizeof(float), NULL));
    loch_parameter *parameter = declare(&b, LOCH_F32, 4, 4, LOCH_SPREAD_COPIES, 0);
    for (unsigned i = 0; i < BENCH_SIMS; i++) {
        CHECK_OK(loch_context_set_seat(b.context, LOCH_SEAT(i)));
        CHECK_OK(sim_busy(test_context_stream(b.context), 1000000));
    }
    CHECK_OK(loch_context_load(b.context, parameter, host));
    memset(pinned, 0, 16 * sizeof(float));
    for (unsigned i = 0; i < b.count; i++)
        expect_on(&b, parameter, i, was, 0, 0, 4);
    loch_parameter_release(parameter);
    loch_tensor_release(host);
    loch_tensor_release(was);
    CHECK_OK(loch_raw_free(pinned));
    bench_close(&b);
}

/* --- in parts --- */

static void parts_that_overlap_count_once(void **state)
{
    (void)state;
    bench b;
    bench_open(&b);
    loch_tensor *host = host_tensor(LOCH_F32, 12, 5, 1);
    for (int axis = 0; axis < 2; axis++) /* along and across the cut */
        for (loch_spread spread = LOCH_SPREAD_ONE; spread <= LOCH_SPREAD_PARTS; spread++) {
            loch_parameter *parameter = declare(&b, LOCH_F32, 12, 5, spread, axis);
            CHECK_OK(load_part(&b, parameter, host, 0, 8, 12));
            CHECK_OK(load_part(&b, parameter, host, 0, 8, 12)); /* 8 rows would be enough if they counted twice */
            CHECK_OK(load_part(&b, parameter, host, 0, 6, 10));
            CHECK_OK(load_part(&b, parameter, host, 0, 0, 3));
            CHECK_OK(load_part(&b, parameter, host, 0, 4, 5));
            CHECK_OK(load_part(&b, parameter, host, 0, 4, 4)); /* nothing */
            assert_false(lochi_parameter_is_loaded(parameter));
            CHECK_OK(load_part(&b, parameter, host, 0, 5, 6));
            assert_false(lochi_parameter_is_loaded(parameter)); /* row 3 is missing */
            CHECK_OK(load_part(&b, parameter, host, 0, 2, 5));
            assert_true(lochi_parameter_is_loaded(parameter));
            if (spread != LOCH_SPREAD_PARTS) expect_on(&b, parameter, 0, host, 0, 0, 12);
            if (spread == LOCH_SPREAD_PARTS && axis == 0)
                for (unsigned i = 0; i < b.count; i++)
                    expect_on(&b, parameter, i, host, 0, 3 * i, 3 * i + 3);
            if (spread == LOCH_SPREAD_PARTS && axis == 1) expect_on(&b, parameter, 0, host, 1, 0, 2);
            loch_parameter_release(parameter);
        }
    loch_tensor_release(host);
    bench_close(&b);
}

static void parts_go_along_one_axis(void **state)
{
    (void)state;
    bench b;
    bench_open(&b);
    loch_tensor *host = host_tensor(LOCH_F32, 4, 4, 1), *other = host_tensor(LOCH_F32, 4, 4, 100);
    loch_parameter *parameter = declare(&b, LOCH_F32, 4, 4, LOCH_SPREAD_COPIES, 0);
    CHECK_OK(load_part(&b, parameter, host, 0, 0, 2));
    CHECK_FAILS(load_part(&b, parameter, host, 1, 0, 2), INVALID);
    CHECK_OK(load_part(&b, parameter, host, -2, 2, 4)); /* the same axis, counted from the end */
    assert_true(lochi_parameter_is_loaded(parameter));
    CHECK_OK(load_part(&b, parameter, other, 1, 0, 4)); /* when all is there, any axis will do */
    assert_true(lochi_parameter_is_loaded(parameter));
    expect_on(&b, parameter, 1, other, 0, 0, 4);
    CHECK_OK(load_part(&b, parameter, host, 0, 1, 3));
    assert_true(lochi_parameter_is_loaded(parameter));
    loch_parameter_release(parameter);
    parameter = declare(&b, LOCH_F32, 4, 4, LOCH_SPREAD_COPIES, 0);
    CHECK_OK(load_part(&b, parameter, host, 0, 0, 2));
    CHECK_OK(load_part(&b, parameter, host, 1, 0, 4)); /* all of it, whatever the axis */
    assert_true(lochi_parameter_is_loaded(parameter));
    loch_parameter_release(parameter);
    loch_tensor_release(host);
    loch_tensor_release(other);
    bench_close(&b);
}

static void bad_loads_are_told(void **state)
{
    (void)state;
    bench b;
    bench_open(&b);
    loch_tensor *host = host_tensor(LOCH_F32, 4, 4, 1), *row = host_tensor(LOCH_F32, 1, 3, 1);
    loch_parameter *parameter = declare(&b, LOCH_F32, 4, 4, LOCH_SPREAD_COPIES, 0);
    loch_tensor *on_device = bench_tensor(&b, 4, 4, 1), *flat;
    CHECK_OK(loch_tensor_view(host, LOCH_SHAPE(16), &flat));
    const size_t used = bench_stats(&b).used_bytes;
    CHECK_FAILS(loch_context_load(b.context, parameter, row), INVALID);
    CHECK_FAILS(loch_context_load(b.context, parameter, flat), INVALID);
    CHECK_FAILS(loch_context_load(b.context, parameter, on_device), INVALID);
    CHECK_FAILS(loch_context_load(b.context, parameter, NULL), INVALID);
    CHECK_FAILS(loch_context_load(b.context, NULL, host), INVALID);
    CHECK_FAILS(loch_context_load_part(b.context, parameter, 0, 1, row), INVALID);
    CHECK_FAILS(loch_context_load_part(b.context, parameter, 0, 1, host), OUT_OF_RANGE);
    CHECK_FAILS(loch_context_load_part(b.context, parameter, 0, -1, host), OUT_OF_RANGE);
    CHECK_FAILS(loch_context_load_part(b.context, parameter, 0, INT64_MAX, host), OUT_OF_RANGE);
    CHECK_FAILS(loch_context_load_part(b.context, parameter, 2, 0, host), INVALID);
    CHECK_FAILS(loch_context_load_part(b.context, parameter, 1, 0, flat), INVALID);
    assert_int_equal(bench_stats(&b).used_bytes, used); /* nothing was taken */
    const loch_seat one[] = {{1}};
    const loch_context_options options = {.size = sizeof options, .seats = one, .seats_count = 1};
    loch_context *few;
    CHECK_OK(loch_context_open(b.engine, &options, &few));
    CHECK_FAILS(loch_context_load(few, parameter, host), NOT_FOUND); /* it lies on seats that this one has not */
    CHECK_OK(loch_context_close(few));
    loch_tensor_release(on_device);
    loch_tensor_release(flat);
    loch_tensor_release(host);
    loch_tensor_release(row);
    loch_parameter_release(parameter);
    bench_close(&b);
}

/* --- failures --- */

static void a_load_that_fails_takes_nothing(void **state)
{
    (void)state;
    bench b;
    bench_open(&b);
    loch_tensor *host = host_tensor(LOCH_F32, 16, 16, 1), *none;
    loch_parameter *parameter = declare(&b, LOCH_F32, 16, 16, LOCH_SPREAD_COPIES, 0);
    const loch_sim_fault fault = {.size = sizeof fault, .call = "copy", .mode = LOCH_SIM_FAULT_FOREVER};
    CHECK_OK(loch_sim_set_fault(b.devices[1], &fault)); /* the second seat's device */
    CHECK_FAILS(loch_context_load(b.context, parameter, host), DRIVER);
    CHECK_OK(loch_sim_set_fault(b.devices[1], NULL));
    assert_false(lochi_parameter_is_loaded(parameter));
    CHECK_FAILS(loch_parameter_acquire_tensor(parameter, LOCH_SEAT(0), &none), BUSY);
    assert_int_equal(bench_stats(&b).used_bytes, 0);
    for (unsigned i = 0; i < b.count; i++)
        assert_int_equal(bench_blocks(&b, i), 0);
    CHECK_OK(loch_context_load(b.context, parameter, host)); /* and again */
    expect_on(&b, parameter, 1, host, 0, 0, 16);
    loch_parameter_release(parameter);
    loch_tensor_release(host);
    bench_close(&b);
}

/* What a failed part may have spoilt has to be loaded again, and nothing else. */
static void a_part_that_fails_is_missing(void **state)
{
    (void)state;
    bench b;
    bench_open(&b);
    loch_tensor *host = host_tensor(LOCH_F32, 16, 16, 1), *other = host_tensor(LOCH_F32, 16, 16, 500);
    loch_parameter *parameter = declare(&b, LOCH_F32, 16, 16, LOCH_SPREAD_COPIES, 0);
    CHECK_OK(loch_context_load(b.context, parameter, host));
    const size_t used = bench_stats(&b).used_bytes;
    const loch_sim_fault fault = {.size = sizeof fault, .call = "copy", .mode = LOCH_SIM_FAULT_FOREVER};
    CHECK_OK(loch_sim_set_fault(b.devices[1], &fault));
    CHECK_FAILS(load_part(&b, parameter, other, 0, 4, 8), DRIVER);
    CHECK_OK(loch_sim_set_fault(b.devices[1], NULL));
    assert_false(lochi_parameter_is_loaded(parameter));
    assert_int_equal(bench_stats(&b).used_bytes, used);
    CHECK_OK(load_part(&b, parameter, host, 0, 4, 7));
    assert_false(lochi_parameter_is_loaded(parameter));
    CHECK_OK(load_part(&b, parameter, host, 0, 7, 8));
    assert_true(lochi_parameter_is_loaded(parameter));
    expect_on(&b, parameter, 1, host, 0, 0, 16);
    loch_parameter_release(parameter);
    loch_tensor_release(host);
    loch_tensor_release(other);
    bench_close(&b);
}

static void a_parameter_that_does_not_fit_takes_nothing(void **state)
{
    (void)state;
    bench b;
    bench_open(&b);
    loch_tensor *host, *large;
    CHECK_OK(loch_context_set_seat(b.context, LOCH_SEAT(1)));
    CHECK_OK(loch_context_create_tensor(b.context, LOCH_U8, LOCH_SHAPE(20 * (int64_t)TEST_MIB), NULL, 0, &large));
    CHECK_OK(loch_tensor_create(LOCH_U8, LOCH_SHAPE(10 * (int64_t)TEST_MIB), NULL, &host));
    loch_parameter *parameter;
    CHECK_OK(loch_context_declare(b.context, "large", LOCH_U8, LOCH_SHAPE(10 * (int64_t)TEST_MIB), LOCH_SPREAD_COPIES,
                                  0, 0, &parameter));
    CHECK_FAILS_SET(loch_context_load(b.context, parameter, host), TEST_SET(LIMIT) | TEST_SET(DEVICE_MEMORY));
    assert_int_equal(bench_blocks(&b, 0), 0); /* seat 0 had room, and has it again */
    loch_tensor_release(large);
    loch_parameter_release(parameter);
    loch_tensor_release(host);
    bench_close(&b);
}

/* Counts the live blocks of a device's pinned memory. */
static uint64_t count_pinned(loch_device *device)
{
    const loch_attributes pinned = {.bits = LOCH_ATTRIBUTE_ON_HOST | LOCH_ATTRIBUTE_GPU_COMPATIBLE};
    loch_stats stats = {.size = sizeof stats};
    loch_allocator *allocator;
    CHECK_OK(loch_device_acquire_allocator(device, pinned, LOCH_FALLBACK_NONE, &allocator));
    CHECK_OK(loch_allocator_get_stats(allocator, &stats));
    loch_allocator_release(allocator);
    return stats.blocks;
}

/* The original's staging buffer was left behind each time that a larger one was needed. */
static void larger_and_larger_loads_leave_no_staging_memory(void **state)
{
    (void)state;
    bench b;
    bench_open(&b);
    size_t blocks = 0;
    for (int64_t rows = 16; rows <= 4096; rows *= 4) {
        loch_tensor *host, *turned;
        CHECK_OK(loch_tensor_create(LOCH_F64, LOCH_SHAPE(64, rows), NULL, &host));
        CHECK_OK(loch_tensor_fill(host, loch_scalar_of(1), NULL));
        CHECK_OK(loch_tensor_transpose(host, 0, 1, &turned)); /* converted and turned: through the host */
        loch_parameter *parameter = declare(&b, LOCH_F16, rows, 64, LOCH_SPREAD_COPIES, 0);
        CHECK_OK(loch_context_load(b.context, parameter, turned));
        loch_parameter_release(parameter);
        loch_tensor_release(turned);
        loch_tensor_release(host);
        loch_host_usage usage = {.size = sizeof usage};
        CHECK_OK(loch_host_get_usage(&usage));
        for (size_t i = 0; i < BENCH_SIMS; i++) {
            assert_int_equal(count_pinned(b.devices[i]), 0);
        }
        if (rows > 64) assert_true(usage.blocks <= blocks + 64); /* a pool of the host may have grown */
        blocks = usage.blocks;
    }
    bench_close(&b);
}

/* --- with the rest --- */

static void loading_raises_versions(void **state)
{
    (void)state;
    bench b;
    bench_open(&b);
    loch_tensor *host = host_tensor(LOCH_F32, 8, 4, 1), *other = host_tensor(LOCH_F32, 8, 4, 9), *there, *copy;
    loch_parameter *parameter = declare(&b, LOCH_F32, 8, 4, LOCH_SPREAD_ONE, 0);
    CHECK_OK(loch_context_load(b.context, parameter, host));
    CHECK_OK(loch_parameter_acquire_tensor(parameter, LOCH_SEAT(0), &there));
    CHECK_OK(loch_context_set_seat(b.context, LOCH_SEAT(1)));
    CHECK_OK(loch_context_acquire_copy(b.context, there, &copy));
    loch_tensor_release(copy);
    const uint64_t version = loch_buffer_get_version(loch_tensor_get_buffer(there));
    CHECK_OK(load_part(&b, parameter, other, 0, 2, 4));
    assert_true(loch_buffer_get_version(loch_tensor_get_buffer(there)) > version);
    CHECK_OK(loch_context_acquire_copy(b.context, there, &copy)); /* a new one */
    bench_expect_same(&b, there, copy);
    loch_tensor_release(copy);
    loch_tensor_release(there);
    loch_parameter_release(parameter);
    loch_tensor_release(host);
    loch_tensor_release(other);
    bench_close(&b);
}

static void memory_is_the_seats_own_and_tagged(void **state)
{
    (void)state;
    bench b;
    bench_open(&b);
    loch_tag tag;
    CHECK_OK(loch_tag_create("parameters", &tag));
    loch_tensor *host = host_tensor(LOCH_F32, 8, 4, 1), *there;
    const loch_child_options range = {.size = sizeof range, .kind = LOCH_CHILD_RANGE, .limit_bytes = TEST_MIB};
    CHECK_OK(loch_context_push_pool(b.context, "range", &range, NULL));
    loch_parameter *parameter;
    char name[100] = "model.layers.31.mlp.experts.127.with.a.very.long.path.to.it.down_proj.weight";
    CHECK_OK(loch_context_declare(b.context, name, LOCH_F32, LOCH_SHAPE(8, 4), LOCH_SPREAD_ONE, 0, tag, &parameter));
    CHECK_OK(loch_context_load(b.context, parameter, host));
    CHECK_OK(loch_parameter_acquire_tensor(parameter, LOCH_SEAT(0), &there));
    loch_allocator *own = loch_engine_get_allocator(b.engine, LOCH_SEAT(0));
    assert_ptr_equal(loch_buffer_get_allocator(loch_tensor_get_buffer(there)), own);
    loch_stats stats = {.size = sizeof stats};
    CHECK_OK(loch_allocator_get_tag_stats(own, tag, &stats));
    assert_int_equal(stats.blocks, 1);
    assert_string_equal(loch_parameter_get_name(parameter), name);
    assert_non_null(strstr(loch_tensor_get_name(there), "down_proj.weight")); /* the end of a long name */
    loch_tensor_release(there);
    CHECK_OK(loch_context_close(b.context)); /* a parameter outlives its context */
    b.context = NULL;
    CHECK_OK(loch_parameter_acquire_tensor(parameter, LOCH_SEAT(0), &there));
    bench_expect_same(&b, there, host);
    loch_tensor_release(there);
    loch_parameter_release(parameter);
    loch_tensor_release(host);
    bench_close(&b);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        TENSOR_TEST(declaring_takes_no_memory),
        TENSOR_TEST(bad_declarations_are_told),
        TENSOR_TEST(a_parameter_is_on_one_seat_on_all_or_cut_over_them),
        TENSOR_TEST(with_fewer_rows_than_seats_some_have_none),
        TENSOR_TEST(types_are_converted),
        TENSOR_TEST(scalars_and_empty_parameters_are_loaded),
        TENSOR_TEST(what_was_loaded_from_may_be_written_at_once),
        TENSOR_TEST(parts_that_overlap_count_once),
        TENSOR_TEST(parts_go_along_one_axis),
        TENSOR_TEST(bad_loads_are_told),
        TENSOR_TEST(a_load_that_fails_takes_nothing),
        TENSOR_TEST(a_part_that_fails_is_missing),
        TENSOR_TEST(a_parameter_that_does_not_fit_takes_nothing),
        TENSOR_TEST(larger_and_larger_loads_leave_no_staging_memory),
        TENSOR_TEST(loading_raises_versions),
        TENSOR_TEST(memory_is_the_seats_own_and_tagged),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

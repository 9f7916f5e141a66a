/* SPDX-License-Identifier: MIT */
/* Rows by index on the host and on simulated devices: results, order of streams, graphs, a driver without the slot, and
 * calls that are refused. */
#include "sim_fixture.h"
#include <loch/rows.h>
#include <pthread.h>

enum { TABLE = 40, ROW = 6, TAKEN = 25 };

/* The three tensors of a call on one device, and what the target should hold. */
typedef struct bed {
    loch_device *device;
    loch_tensor *table, *rows, *indices;
    int16_t table_data[TABLE][ROW], rows_data[TAKEN][ROW];
    int32_t index_data[TAKEN];
} bed;

static const int64_t table_shape[] = {TABLE, ROW}, rows_shape[] = {TAKEN, ROW}, taken = TAKEN;

static void bed_open(bed *b, const char *name)
{
    CHECK_OK(loch_device_open(name, &b->device));
    for (int i = 0; i < TABLE * ROW; i++)
        b->table_data[i / ROW][i % ROW] = (int16_t)(100 + i);
    for (int i = 0; i < TAKEN * ROW; i++)
        b->rows_data[i / ROW][i % ROW] = (int16_t)(-1 - i);
    for (int i = 0; i < TAKEN; i++)
        b->index_data[i] = i % 5 == 4 ? (i % 2 ? -1 : TABLE + i) : (i * 7) % TABLE;
    const loch_tensor_options on = {.size = sizeof on, .device = b->device};
    CHECK_OK(loch_tensor_create_from(LOCH_I16, 2, table_shape, b->table_data, &on, &b->table));
    CHECK_OK(loch_tensor_create_from(LOCH_I16, 2, rows_shape, b->rows_data, &on, &b->rows));
    CHECK_OK(loch_tensor_create_from(LOCH_I32, 1, &taken, b->index_data, &on, &b->indices));
}

static void bed_empty(bed *b)
{
    loch_tensor_clear(&b->table);
    loch_tensor_clear(&b->rows);
    loch_tensor_clear(&b->indices);
}

static void bed_close(bed *b)
{
    bed_empty(b);
    test_end_defaults();
    loch_device_release(b->device);
}

static bool is_in(int32_t index)
{
    return index >= 0 && index < TABLE;
}

static void expect_gathered(const bed *b)
{
    int16_t got[TAKEN][ROW], zero[ROW] = {0};
    CHECK_OK(loch_tensor_read(b->rows, got, sizeof got, NULL));
    for (int i = 0; i < TAKEN; i++)
        assert_memory_equal(got[i], is_in(b->index_data[i]) ? b->table_data[b->index_data[i]] : zero, sizeof zero);
}

static void expect_scattered(const bed *b)
{
    int16_t got[TABLE][ROW], wanted[TABLE][ROW];
    memcpy(wanted, b->table_data, sizeof wanted);
    for (int i = 0; i < TAKEN; i++)
        if (is_in(b->index_data[i])) memcpy(wanted[b->index_data[i]], b->rows_data[i], sizeof wanted[0]);
    CHECK_OK(loch_tensor_read(b->table, got, sizeof got, NULL));
    assert_memory_equal(got, wanted, sizeof got);
}

static void run_on(const char *name)
{
    bed b;
    bed_open(&b, name);
    CHECK_OK(loch_rows_scatter(b.table, b.rows, b.indices, NULL));
    expect_scattered(&b);
    bed_close(&b);
    bed_open(&b, name);
    CHECK_OK(loch_rows_gather(b.rows, b.table, b.indices, NULL));
    expect_gathered(&b);
    bed_close(&b);
}

static void rows_on_the_host(void **state)
{
    (void)state;
    run_on("cpu");
}

static void rows_on_a_simulated_device(void **state)
{
    (void)state;
    run_on("sim:64MiB,backed");
}

/* --- a driver without the slot --- */

static loch_status cannot(void *self, const loch_strided *work, void *stream)
{
    (void)self, (void)work, (void)stream;
    return LOCH_E_UNSUPPORTED;
}

static void a_driver_without_the_slot_copies_row_by_row(void **state)
{
    (void)state;
    loch_driver driver = *loch_driver_find("sim");
    driver.name = "norows";
    driver.copy_strided = cannot;
    CHECK_OK(loch_driver_register(&driver));
    run_on("norows:64MiB,backed");
}

/* --- streams --- */

/* The call returns before the work is done; tensors that are released meanwhile keep their memory. */
static void work_is_queued_and_recorded(void **state)
{
    (void)state;
    bed b;
    loch_stream *stream;
    bed_open(&b, "sim:64MiB,backed,clock=stepped");
    CHECK_OK(loch_stream_create(b.device, NULL, &stream));
    const uint64_t copies = test_call_count(b.device, "copy");
    CHECK_OK(loch_rows_gather(b.rows, b.table, b.indices, stream));
    assert_int_equal(test_call_count(b.device, "copy"), copies);
    assert_int_equal(loch_stream_query(stream), LOCH_E_BUSY);
    loch_tensor_clear(&b.table);
    loch_tensor_clear(&b.indices);
    CHECK_OK(loch_stream_sync(stream));
    expect_gathered(&b);
    loch_stream_close(stream);
    loch_sim_violation violation;
    assert_int_equal(sim_violations(b.device, &violation), 0);
    bed_close(&b);
}

static void the_version_of_the_target_rises(void **state)
{
    (void)state;
    bed b;
    bed_open(&b, "sim:64MiB,backed");
    const uint64_t before = loch_buffer_get_version(loch_tensor_get_buffer(b.rows));
    const uint64_t table = loch_buffer_get_version(loch_tensor_get_buffer(b.table));
    CHECK_OK(loch_rows_gather(b.rows, b.table, b.indices, NULL));
    assert_true(loch_buffer_get_version(loch_tensor_get_buffer(b.rows)) > before);
    assert_int_equal(loch_buffer_get_version(loch_tensor_get_buffer(b.table)), table);
    bed_close(&b);
}

/* The checker of a simulated device knows all that rows read and write: other streams may read indices and table
 * meanwhile, and not write any row of the table or any index. */
static void the_checker_knows_the_rows(void **state)
{
    (void)state;
    bed b;
    loch_stream *stream, *other;
    loch_sim_violation violation;
    bed_open(&b, "sim:64MiB,backed,clock=stepped");
    const loch_tensor_options on = {.size = sizeof on, .device = b.device};
    loch_tensor *copy, *copied_index, *unnamed;
    CHECK_OK(loch_tensor_create(LOCH_I16, 2, table_shape, &on, &copy));
    CHECK_OK(loch_tensor_create(LOCH_I32, 1, &taken, &on, &copied_index));
    CHECK_OK(loch_tensor_slice(b.table, 0, 15, 16, 1, &unnamed)); /* no index names it */
    CHECK_OK(loch_stream_create(b.device, NULL, &stream));
    CHECK_OK(loch_stream_create(b.device, NULL, &other));
    const loch_tensor_copy_options there = {.size = sizeof there, .stream = other};
    CHECK_OK(loch_rows_gather(b.rows, b.table, b.indices, stream));
    CHECK_OK(loch_tensor_copy(copy, b.table, &there));
    CHECK_OK(loch_tensor_copy(copied_index, b.indices, &there));
    assert_int_equal(sim_violations(b.device, &violation), 0);
    CHECK_OK(loch_tensor_fill(unnamed, loch_scalar_of(1), other));
    assert_int_equal(sim_violations(b.device, &violation), 1);
    CHECK_OK(loch_tensor_fill(b.indices, loch_scalar_of(1), other));
    assert_int_equal(sim_violations(b.device, &violation), 2);
    CHECK_OK(loch_device_sync(b.device));
    loch_tensor_release(copy);
    loch_tensor_release(copied_index);
    loch_tensor_release(unnamed);
    loch_stream_close(stream);
    loch_stream_close(other);
    bed_close(&b);
}

static void rows_are_captured(void **state)
{
    (void)state;
    bed b;
    loch_stream *stream;
    loch_sim_graph *graph;
    bed_open(&b, "sim:64MiB,backed");
    CHECK_OK(loch_stream_create(b.device, NULL, &stream));
    CHECK_OK(loch_sim_capture_begin(stream));
    CHECK_OK(loch_rows_gather(b.rows, b.table, b.indices, stream));
    CHECK_OK(loch_sim_capture_end(stream, &graph));
    b.index_data[3] = 11;
    CHECK_OK(loch_tensor_write(b.indices, b.index_data, sizeof b.index_data, NULL));
    CHECK_OK(loch_sim_graph_launch(graph, stream));
    CHECK_OK(loch_stream_sync(stream));
    expect_gathered(&b);
    loch_sim_graph_destroy(graph);
    loch_stream_close(stream);
    bed_close(&b);
}

/* A thread that is cancelled during the call ends behind it: locks of the driver are dropped, tensors unpinned. */
static loch_status cancelled_copy(void *self, const loch_strided *work, void *stream)
{
    pthread_cancel(pthread_self());
    pthread_testcancel();
    return loch_driver_find("sim")->copy_strided(self, work, stream);
}

static void *gather_in_thread(void *user)
{
    const bed *b = user;
    const loch_status status = loch_rows_gather(b->rows, b->table, b->indices, NULL);
    pthread_testcancel();
    return status == LOCH_OK ? NULL : user;
}

static void calls_are_no_cancellation_points(void **state)
{
    (void)state;
    loch_driver driver = *loch_driver_find("sim");
    driver.name = "cancels";
    driver.copy_strided = cancelled_copy;
    CHECK_OK(loch_driver_register(&driver));
    bed b;
    pthread_t thread;
    void *result;
    bed_open(&b, "cancels:64MiB,backed");
    assert_int_equal(pthread_create(&thread, NULL, gather_in_thread, &b), 0);
    assert_int_equal(pthread_join(thread, &result), 0);
    assert_ptr_equal(result, PTHREAD_CANCELED);
    expect_gathered(&b);
    bed_close(&b);
}

/* --- layouts --- */

/* Both halves of the columns of one matrix: no byte of the target is in the source. */
static void columns_of_one_matrix_share_no_memory(void **state)
{
    (void)state;
    bed b;
    bed_open(&b, "sim:64MiB,backed");
    loch_tensor *left, *right, *shifted, *first;
    CHECK_OK(loch_tensor_slice(b.table, 1, 0, ROW / 2, 1, &left));
    CHECK_OK(loch_tensor_slice(b.table, 1, ROW / 2, ROW, 1, &right));
    CHECK_OK(loch_tensor_slice(b.table, 1, 1, 1 + ROW / 2, 1, &shifted));
    CHECK_OK(loch_tensor_slice(left, 0, 5, 5 + TAKEN, 1, &first));
    CHECK_OK(loch_rows_gather(first, right, b.indices, NULL));
    CHECK_FAILS(loch_rows_gather(first, shifted, b.indices, NULL), INVALID);
    CHECK_FAILS(loch_rows_scatter(shifted, first, b.indices, NULL), INVALID);
    CHECK_FAILS(loch_rows_gather(first, left, b.indices, NULL), INVALID);
    int16_t got[TABLE][ROW], wanted[TABLE][ROW];
    memcpy(wanted, b.table_data, sizeof wanted);
    for (int i = 0; i < TAKEN; i++)
        for (int j = 0; j < ROW / 2; j++)
            wanted[5 + i][j] = is_in(b.index_data[i]) ? b.table_data[b.index_data[i]][ROW / 2 + j] : 0;
    CHECK_OK(loch_tensor_read(b.table, got, sizeof got, NULL));
    assert_memory_equal(got, wanted, sizeof got);
    loch_tensor *all[] = {left, right, shifted, first};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        loch_tensor_release(all[i]);
    bed_close(&b);
}

/* Rows that a target writes twice are refused; a source may repeat itself. */
static void rows_of_a_target_are_apart(void **state)
{
    (void)state;
    bed b;
    bed_open(&b, "sim:64MiB,backed");
    const int64_t strides[] = {ROW - 1, 1}, still[] = {0, 1};
    loch_tensor *near, *repeated;
    CHECK_OK(loch_tensor_create_in(loch_tensor_get_buffer(b.rows), 0, LOCH_I16, 2, rows_shape, strides, &near));
    CHECK_OK(loch_tensor_create_in(loch_tensor_get_buffer(b.table), 0, LOCH_I16, 2, table_shape, still, &repeated));
    CHECK_FAILS(loch_rows_gather(near, b.table, b.indices, NULL), INVALID);
    CHECK_OK(loch_rows_gather(b.rows, repeated, b.indices, NULL));
    for (int i = 1; i < TABLE; i++)
        memcpy(b.table_data[i], b.table_data[0], sizeof b.table_data[0]);
    expect_gathered(&b);
    loch_tensor_release(near);
    loch_tensor_release(repeated);
    bed_close(&b);
}

/* Strides of axes with one index lead nowhere, so they may have any value. */
static void single_rows_have_any_stride(void **state)
{
    (void)state;
    bed b;
    bed_open(&b, "sim:64MiB,backed");
    const int64_t shape[] = {1, ROW}, strides[] = {-5, 1}, one = 1, back = -3;
    loch_tensor *row, *index;
    CHECK_OK(loch_tensor_create_in(loch_tensor_get_buffer(b.rows), 0, LOCH_I16, 2, shape, strides, &row));
    CHECK_OK(loch_tensor_create_in(loch_tensor_get_buffer(b.indices), 0, LOCH_I32, 1, &one, &back, &index));
    assert_int_equal(loch_tensor_get_strides(row)[0], -5);
    assert_int_equal(loch_tensor_get_strides(index)[0], -3);
    CHECK_OK(loch_rows_gather(row, b.table, index, NULL));
    int16_t got[ROW];
    CHECK_OK(loch_tensor_read(row, got, sizeof got, NULL));
    assert_memory_equal(got, b.table_data[b.index_data[0]], sizeof got);
    loch_tensor_release(row);
    loch_tensor_release(index);
    bed_close(&b);
}

/* --- refusals --- */

/* A closed stream has no handle: its work must not go to the default stream. */
static void closed_streams_are_refused(void **state)
{
    (void)state;
    bed b;
    loch_stream *stream;
    bed_open(&b, "sim:64MiB,backed");
    CHECK_OK(loch_stream_create(b.device, NULL, &stream));
    loch_stream_retain(stream);
    loch_stream_close(stream);
    CHECK_FAILS(loch_rows_scatter(b.table, b.rows, b.indices, stream), INVALID);
    int16_t got[TABLE][ROW];
    CHECK_OK(loch_tensor_read(b.table, got, sizeof got, NULL));
    assert_memory_equal(got, b.table_data, sizeof got);
    loch_stream_release(stream);
    bed_close(&b);
}

static void calls_that_do_not_fit_are_refused(void **state)
{
    (void)state;
    bed b, other;
    loch_stream *stream;
    bed_open(&b, "sim:64MiB,backed");
    bed_open(&other, "cpu");
    CHECK_OK(loch_stream_create(other.device, NULL, &stream));
    CHECK_FAILS(loch_rows_gather(NULL, b.table, b.indices, NULL), INVALID);
    CHECK_FAILS(loch_rows_gather(b.rows, NULL, b.indices, NULL), INVALID);
    CHECK_FAILS(loch_rows_gather(b.rows, b.table, NULL, NULL), INVALID);
    CHECK_FAILS(loch_rows_gather(b.rows, b.table, b.rows, NULL), INVALID);        /* not indices */
    CHECK_FAILS(loch_rows_gather(b.table, b.rows, b.indices, NULL), INVALID);     /* too few indices */
    CHECK_FAILS(loch_rows_gather(b.rows, other.table, b.indices, NULL), INVALID); /* another device */
    CHECK_FAILS(loch_rows_gather(b.rows, b.table, other.indices, NULL), INVALID);
    CHECK_FAILS(loch_rows_gather(b.rows, b.table, b.indices, stream), INVALID);
    CHECK_FAILS(loch_rows_gather(b.rows, b.indices, b.indices, NULL), INVALID); /* another type */
    loch_tensor *turned, *part, *half;
    CHECK_OK(loch_tensor_transpose(b.table, 0, 1, &turned));
    CHECK_OK(loch_tensor_slice(b.table, 1, 0, ROW, 2, &part));
    CHECK_OK(loch_tensor_slice(b.rows, 1, 0, ROW, 2, &half));
    CHECK_FAILS(loch_rows_gather(b.rows, turned, b.indices, NULL), INVALID);
    CHECK_FAILS(loch_rows_gather(half, part, b.indices, NULL), INVALID); /* rows with gaps */
    loch_tensor *own;
    CHECK_OK(loch_tensor_slice(b.table, 0, 0, TAKEN, 1, &own));
    CHECK_FAILS(loch_rows_gather(own, b.table, b.indices, NULL), INVALID); /* shared memory */
    CHECK_FAILS(loch_rows_scatter(b.table, own, b.indices, NULL), INVALID);
    loch_tensor *all[] = {turned, part, half, own};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        loch_tensor_release(all[i]);
    loch_stream_close(stream);
    bed_empty(&other);
    bed_close(&b);
    loch_device_release(other.device);
}

/* No rows, no indices: nothing happens. A table without rows gives zeros. */
static void empty_tensors_are_no_failure(void **state)
{
    (void)state;
    bed b;
    bed_open(&b, "sim:64MiB,backed");
    const loch_tensor_options on = {.size = sizeof on, .device = b.device};
    const int64_t none[] = {0, ROW}, no_index = 0;
    loch_tensor *empty, *no_indices;
    CHECK_OK(loch_tensor_create(LOCH_I16, 2, none, &on, &empty));
    CHECK_OK(loch_tensor_create(LOCH_I32, 1, &no_index, &on, &no_indices));
    CHECK_OK(loch_rows_gather(empty, b.table, no_indices, NULL));
    CHECK_OK(loch_rows_scatter(b.table, empty, no_indices, NULL));
    CHECK_OK(loch_rows_scatter(empty, b.rows, b.indices, NULL));
    CHECK_OK(loch_rows_gather(b.rows, empty, b.indices, NULL));
    int16_t got[TAKEN][ROW], zero[TAKEN][ROW] = {{0}};
    CHECK_OK(loch_tensor_read(b.rows, got, sizeof got, NULL));
    assert_memory_equal(got, zero, sizeof got);
    loch_tensor_release(empty);
    loch_tensor_release(no_indices);
    const int64_t flat_shape[] = {TAKEN, 2, 0}, flat_table_shape[] = {TABLE, 2, 0}; /* rows without elements */
    loch_tensor *flat, *flat_table;
    CHECK_OK(loch_tensor_create(LOCH_I16, 3, flat_shape, &on, &flat));
    CHECK_OK(loch_tensor_create(LOCH_I16, 3, flat_table_shape, &on, &flat_table));
    CHECK_OK(loch_rows_gather(flat, flat_table, b.indices, NULL));
    CHECK_OK(loch_rows_scatter(flat_table, flat, b.indices, NULL));
    loch_tensor_release(flat);
    loch_tensor_release(flat_table);
    bed_close(&b);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(rows_on_the_host),
        cmocka_unit_test(rows_on_a_simulated_device),
        cmocka_unit_test(a_driver_without_the_slot_copies_row_by_row),
        cmocka_unit_test(work_is_queued_and_recorded),
        cmocka_unit_test(rows_are_captured),
        cmocka_unit_test(calls_are_no_cancellation_points),
        cmocka_unit_test(columns_of_one_matrix_share_no_memory),
        cmocka_unit_test(rows_of_a_target_are_apart),
        cmocka_unit_test(the_version_of_the_target_rises),
        cmocka_unit_test(the_checker_knows_the_rows),
        cmocka_unit_test(single_rows_have_any_stride),
        cmocka_unit_test(closed_streams_are_refused),
        cmocka_unit_test(calls_that_do_not_fit_are_refused),
        cmocka_unit_test(empty_tensors_are_no_failure),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

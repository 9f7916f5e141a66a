/* SPDX-License-Identifier: MIT */
/* Copies of rows on simulated devices: when they take effect, and what the checker sees of them. And drivers without a
 * way to copy rows in one call. */
#include "sim_fixture.h"

#define UNBACKED "sim:1GiB,unbacked,granule=64KiB,clock=stepped,lag=1000"
#define BACKED "sim:64MiB,backed,clock=stepped,lag=1000"

/* Rows of 16 bytes, 64 apart on one side and side by side on the other. */
static const loch_pitched into_columns = {16, 100, 1, 64, 0, 16, 0}, out_of_columns = {16, 100, 1, 16, 0, 64, 0};

static loch_status copy_rows(loch_stream *stream, void *to, const void *from, const loch_pitched *shape)
{
    const loch_copy_options options = {.size = sizeof options, .stream = stream};
    return loch_copy_pitched(to, from, shape, &options);
}

static void gaps_are_not_touched(void **state)
{
    (void)state;
    loch_device *device = sim_open(UNBACKED);
    loch_stream *a = sim_stream(device, LOCH_STREAM_INDEPENDENT), *b = sim_stream(device, LOCH_STREAM_INDEPENDENT);
    char *matrix = sim_raw(device, 6400), *columns = sim_raw(device, 4 * 1600);
    CHECK_OK(copy_rows(a, matrix, columns, &into_columns));
    CHECK_OK(copy_rows(b, matrix + 16, columns + 1600, &into_columns)); /* the column beside it */
    CHECK_OK(sim_writes(b, matrix + 64 + 32, 32));                      /* a gap */
    CHECK_OK(sim_reads(b, columns, 1600));                              /* two readers */
    assert_int_equal(sim_violations(device, NULL), 0);
    CHECK_OK(copy_rows(b, columns + 3200, matrix, &out_of_columns)); /* reads what a writes */
    assert_true(sim_violations(device, NULL) > 0);
    CHECK_OK(loch_device_sync(device));
    CHECK_OK(loch_raw_free(matrix));
    CHECK_OK(loch_raw_free(columns));
    loch_stream_close(a);
    loch_stream_close(b);
    loch_device_release(device);
}

static void every_row_is_seen(void **state)
{
    (void)state;
    const size_t places[] = {0, 15, 64, 50 * 64 + 8, 99 * 64, 99 * 64 + 15};
    for (size_t i = 0; i < sizeof places / sizeof *places; i++) {
        loch_device *device = sim_open(UNBACKED);
        loch_stream *a = sim_stream(device, LOCH_STREAM_INDEPENDENT), *b = sim_stream(device, LOCH_STREAM_INDEPENDENT);
        char *matrix = sim_raw(device, 6400), *column = sim_raw(device, 1600);
        loch_sim_violation found;
        CHECK_OK(copy_rows(a, matrix, column, &into_columns));
        CHECK_OK(sim_writes(b, matrix + places[i], 1));
        assert_int_equal(sim_violations(device, &found), 1);
        assert_ptr_equal(found.address, matrix + places[i]);
        assert_int_equal(found.bytes, 1);
        CHECK_OK(sim_writes(b, column + i * 16, 1)); /* what a reads */
        assert_int_equal(sim_violations(device, NULL), 2);
        CHECK_OK(loch_device_sync(device));
        CHECK_OK(loch_raw_free(matrix));
        CHECK_OK(loch_raw_free(column));
        loch_stream_close(a);
        loch_stream_close(b);
        loch_device_release(device);
    }
}

static void rows_that_overlap_themselves_are_found(void **state)
{
    (void)state;
    loch_device *device = sim_open(UNBACKED);
    loch_stream *stream = sim_stream(device, LOCH_STREAM_INDEPENDENT);
    char *block = sim_raw(device, 8192);
    loch_sim_violation found;
    const loch_pitched columns = {16, 100, 1, 64, 0, 64, 0};
    CHECK_OK(copy_rows(stream, block, block + 16, &columns)); /* beside each other */
    CHECK_OK(copy_rows(stream, block + 48, block, &columns));
    assert_int_equal(sim_violations(device, NULL), 0);
    CHECK_OK(copy_rows(stream, block, block + 15, &columns));
    assert_int_equal(sim_violations(device, &found), 1);
    assert_int_equal(found.kind, LOCH_SIM_OVERLAP);
    assert_int_equal(found.bytes, 1);
    CHECK_OK(copy_rows(stream, block, block + 64, &columns)); /* the row of the next one */
    assert_int_equal(sim_violations(device, NULL), 2);
    CHECK_OK(loch_device_sync(device));
    CHECK_OK(loch_raw_free(block));
    loch_stream_close(stream);
    loch_device_release(device);
}

static void effect_comes_at_the_end(void **state)
{
    (void)state;
    loch_device *device = sim_open(BACKED);
    loch_stream *stream = sim_stream(device, LOCH_STREAM_INDEPENDENT);
    char *matrix = sim_raw(device, 6400), *pinned = sim_pinned(device, 1600), host[1600];
    memset(matrix, 0, 6400);
    memset(pinned, 'p', 1600);
    memset(host, 'h', sizeof host);
    CHECK_OK(copy_rows(stream, matrix, pinned, &into_columns));
    CHECK_OK(copy_rows(stream, matrix + 16, host, &into_columns));
    memset(host, 'x', sizeof host); /* pageable: was taken when it was queued */
    memset(pinned, 'q', 1600);      /* page-locked: is read when the copy runs */
    assert_int_equal(matrix[0], 0);
    CHECK_STATUS(loch_stream_query(stream), LOCH_E_BUSY);
    CHECK_OK(loch_stream_sync(stream));
    for (size_t row = 0; row < 100; row++)
        for (size_t i = 0; i < 64; i++)
            assert_int_equal(matrix[row * 64 + i], i < 16 ? 'q' : i < 32 ? 'h' : 0);
    CHECK_OK(loch_raw_free(matrix));
    CHECK_OK(loch_raw_free(pinned));
    loch_stream_close(stream);
    loch_device_release(device);
}

static void captured_rows_are_copied_at_every_launch(void **state)
{
    (void)state;
    loch_device *device = sim_open(BACKED);
    loch_stream *stream = sim_stream(device, LOCH_STREAM_INDEPENDENT);
    char *matrix = sim_raw(device, 6400), *pinned = sim_pinned(device, 1600);
    loch_sim_graph *graph;
    memset(matrix, 0, 6400);
    CHECK_OK(loch_sim_capture_begin(stream));
    CHECK_OK(copy_rows(stream, matrix, pinned, &into_columns));
    CHECK_OK(loch_sim_capture_end(stream, &graph));
    for (int round = 1; round < 4; round++) {
        memset(pinned, round, 1600);
        CHECK_OK(loch_sim_graph_launch(graph, stream));
        CHECK_OK(loch_stream_sync(stream));
        assert_int_equal(matrix[99 * 64 + 15], round);
        assert_int_equal(matrix[99 * 64 + 16], 0);
    }
    loch_sim_graph_destroy(graph);
    CHECK_OK(loch_raw_free(matrix));
    CHECK_OK(loch_raw_free(pinned));
    loch_stream_close(stream);
    loch_device_release(device);
}

static void rows_cost_one_call(void **state)
{
    (void)state;
    loch_device *device = sim_open(UNBACKED);
    char *matrix = sim_raw(device, 6400), *column = sim_raw(device, 1600);
    const uint64_t count = test_call_count(device, "copy_pitched"), ns = test_call_ns(device, "copy_pitched");
    CHECK_OK(loch_copy_pitched(matrix, column, &into_columns, NULL));
    assert_int_equal(test_call_count(device, "copy_pitched"), count + 1);
    assert_true(test_call_ns(device, "copy_pitched") > ns);
    CHECK_OK(loch_raw_free(matrix));
    CHECK_OK(loch_raw_free(column));
    loch_device_release(device);
}

/* --- a driver without the slot --- */

static const loch_driver *plain_inner;

static loch_status plain_open(const char *arguments, void **self)
{
    (void)arguments;
    return plain_inner->open("64MiB,backed", self);
}

static void without_the_slot_rows_are_copied_one_by_one(void **state)
{
    (void)state;
    plain_inner = loch_driver_find("sim");
    loch_driver plain = *plain_inner;
    plain.size = offsetof(loch_driver, copy_pitched); /* a table from before there was one */
    plain.name = "plain";
    plain.open = plain_open;
    plain.enumerate = NULL;
    CHECK_OK(loch_driver_register(&plain));
    const loch_driver *found = loch_driver_find("plain");
    assert_true(found->copy_pitched != plain_inner->copy_pitched);
    CHECK_FAILS(found->copy_pitched(NULL, LOCH_HOST_TO_DEVICE, NULL, NULL, &into_columns, NULL, NULL), UNSUPPORTED);
    loch_device *device = sim_open("plain");
    char *matrix = sim_raw(device, 6400), host[1600];
    test_pattern_write(host, sizeof host, 3);
    const uint64_t before = test_call_count(device, "copy");
    CHECK_OK(loch_copy_pitched(matrix, host, &into_columns, NULL));
    assert_int_equal(test_call_count(device, "copy") - before, 100);
    assert_int_equal(test_call_count(device, "copy_pitched"), 0);
    for (size_t row = 0; row < 100; row++)
        assert_memory_equal(matrix + row * 64, host + row * 16, 16);
    CHECK_OK(loch_raw_free(matrix));
    loch_device_release(device);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        SIM_TEST(gaps_are_not_touched),
        SIM_TEST(every_row_is_seen),
        SIM_TEST(rows_that_overlap_themselves_are_found),
        SIM_TEST(effect_comes_at_the_end),
        SIM_TEST(captured_rows_are_copied_at_every_launch),
        SIM_TEST(rows_cost_one_call),
        SIM_TEST(without_the_slot_rows_are_copied_one_by_one),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

/* SPDX-License-Identifier: MIT */
/* Copies and fills inside one device by its driver: a driver from outside that supplies the slots, one that refuses,
 * one of before the slots, and the simulated one, whose work is queued, captured and checked. */
#include "sim_fixture.h"
#include <loch/driver.h>
#include <stddef.h>

enum { ROWS = 30, COLUMNS = 20, COUNT = ROWS * COLUMNS };

static const int64_t shape[] = {ROWS, COLUMNS}, turned_shape[] = {COLUMNS, ROWS};

/* A plane of numbers on a device, and its turned view. */
typedef struct plane {
    loch_device *device;
    loch_tensor *numbers, *turned;
    float data[COUNT];
} plane;

static void plane_open(plane *p, const char *name)
{
    p->device = sim_open(name);
    for (int i = 0; i < COUNT; i++)
        p->data[i] = (float)(i - 100) + 0.5f;
    const loch_tensor_options on = {.size = sizeof on, .device = p->device};
    CHECK_OK(loch_tensor_create_from(LOCH_F32, 2, shape, p->data, &on, &p->numbers));
    CHECK_OK(loch_tensor_transpose(p->numbers, 0, 1, &p->turned));
}

static void plane_close(plane *p)
{
    loch_sim_violation violation;
    loch_tensor_release(p->numbers);
    loch_tensor_release(p->turned);
    test_end_defaults();
    if (loch_device_get_driver(p->device, &(void *){NULL}) == loch_driver_find("sim") &&
        sim_violations(p->device, &violation))
        fail_msg("%s", violation.text);
    loch_device_release(p->device);
}

static loch_tensor *make(const plane *p, loch_dtype type, size_t axes, const int64_t *sizes)
{
    const loch_tensor_options on = {.size = sizeof on, .device = p->device, .flags = LOCH_ALLOC_ZEROED};
    loch_tensor *tensor;
    CHECK_OK(loch_tensor_create(type, axes, sizes, &on, &tensor));
    return tensor;
}

/* Expects the turned plane as i16: converted towards zero. */
static void expect_turned(const plane *p, loch_tensor *tensor)
{
    int16_t got[COUNT];
    CHECK_OK(loch_tensor_read(tensor, got, sizeof got, NULL));
    for (int i = 0; i < COUNT; i++)
        assert_int_equal(got[i], (int)p->data[i % ROWS * COLUMNS + i / ROWS]);
}

/* Turns, converts and fills. Returns the numbers of calls of both slots. */
static void use_all(const char *name, uint64_t *copies, uint64_t *fills)
{
    plane p;
    plane_open(&p, name);
    const uint64_t copies_before = test_call_count(p.device, "copy_strided");
    const uint64_t fills_before = test_call_count(p.device, "fill_strided");
    loch_tensor *narrow = make(&p, LOCH_I16, 2, turned_shape), *part;
    CHECK_OK(loch_tensor_copy(narrow, p.turned, NULL));
    expect_turned(&p, narrow);
    CHECK_OK(loch_tensor_slice(p.numbers, 1, 1, COLUMNS, 3, &part));
    CHECK_OK(loch_tensor_fill(part, loch_scalar_of(7.25), NULL));
    float got[COUNT];
    CHECK_OK(loch_tensor_read(p.numbers, got, sizeof got, NULL));
    for (int i = 0; i < COUNT; i++)
        assert_true(got[i] == (i % COLUMNS % 3 == 1 ? 7.25f : p.data[i]));
    *copies = test_call_count(p.device, "copy_strided") - copies_before;
    *fills = test_call_count(p.device, "fill_strided") - fills_before;
    loch_tensor_release(narrow);
    loch_tensor_release(part);
    plane_close(&p);
}

static void a_simulated_device_does_it_in_one_call_each(void **state)
{
    (void)state;
    uint64_t copies, fills;
    use_all("sim:64MiB,backed", &copies, &fills);
    assert_int_equal(copies, 1);
    assert_int_equal(fills, 1);
}

/* --- drivers from outside --- */

static size_t outside_calls;

static loch_status outside_run(void *self, const loch_strided *work, void *stream)
{
    (void)stream;
    outside_calls++;
    assert_true(work->size == sizeof *work && work->axes >= 1 && work->indexing == LOCH_INDEXING_NONE);
    for (size_t i = 0; i < work->axes; i++) {
        assert_true(work->sizes[i] > 1 && work->to_strides[i] > 0);
        assert_true(!i || work->to_strides[i - 1] >= work->to_strides[i]);
    }
    const loch_status status = loch_driver_find("sim")->device_sync(self); /* earlier work first */
    if (status == LOCH_OK) work->run(work);                                /* memory of the simulator is the host's */
    return status;
}

static loch_status outside_refuse(void *self, const loch_strided *work, void *stream)
{
    (void)self, (void)work, (void)stream;
    outside_calls++;
    return LOCH_E_UNSUPPORTED;
}

static void a_driver_from_outside_supplies_them(void **state)
{
    (void)state;
    uint64_t copies, fills;
    loch_driver driver = *loch_driver_find("sim");
    driver.name = "outside";
    driver.copy_strided = driver.fill_strided = outside_run;
    CHECK_OK(loch_driver_register(&driver));
    outside_calls = 0;
    use_all("outside:64MiB,backed", &copies, &fills);
    assert_int_equal(outside_calls, 2);
    assert_int_equal(copies + fills, 2);
}

/* A driver may refuse: the host does it, and there is no failure to be seen. */
static void a_driver_that_refuses_is_helped_by_the_host(void **state)
{
    (void)state;
    uint64_t copies, fills;
    loch_driver driver = *loch_driver_find("sim");
    driver.name = "refuses";
    driver.copy_strided = driver.fill_strided = outside_refuse;
    CHECK_OK(loch_driver_register(&driver));
    outside_calls = 0;
    loch_error_clear();
    use_all("refuses:64MiB,backed", &copies, &fills);
    assert_int_equal(outside_calls, 2);
    assert_int_not_equal(loch_error_get()->status, LOCH_E_UNSUPPORTED);
}

/* A driver whose copy is several launches may fail behind the first of them. */
static loch_status outside_half(void *self, const loch_strided *work, void *stream)
{
    const loch_status status = loch_driver_find("sim")->copy_strided(self, work, stream);
    return status == LOCH_OK ? loch_error_set(LOCH_E_DRIVER, "half", 1, "the second launch failed") : status;
}

/* Returns the address of a new tensor, which is released again. */
static void *address_of_next(const plane *p)
{
    void *address;
    loch_tensor *next = make(p, LOCH_I16, 2, turned_shape);
    CHECK_OK(loch_tensor_get_address(next, &address));
    loch_tensor_release(next);
    return address;
}

static void memory_is_kept_behind_a_copy_that_failed_half_way(void **state)
{
    (void)state;
    loch_driver driver = *loch_driver_find("sim");
    driver.name = "half";
    driver.copy_strided = outside_half;
    CHECK_OK(loch_driver_register(&driver));
    plane p;
    loch_stream *stream;
    void *address;
    plane_open(&p, "half:64MiB,backed,clock=stepped");
    CHECK_OK(loch_stream_create(p.device, NULL, &stream));
    assert_ptr_equal(address_of_next(&p), address_of_next(&p)); /* free memory is used again */
    loch_tensor *narrow = make(&p, LOCH_I16, 2, turned_shape);
    CHECK_OK(loch_tensor_get_address(narrow, &address));
    const loch_tensor_copy_options queued = {.size = sizeof queued, .stream = stream};
    CHECK_FAILS(loch_tensor_copy(narrow, p.turned, &queued), DRIVER);
    assert_string_equal(loch_error_get()->sentence, "the second launch failed");
    assert_int_equal(loch_stream_query(stream), LOCH_E_BUSY);
    loch_tensor_release(narrow);
    assert_ptr_not_equal(address_of_next(&p), address); /* the first launch still writes there */
    CHECK_OK(loch_stream_sync(stream));
    loch_stream_close(stream);
    plane_close(&p);
}

/* A driver that was compiled before there were these slots has a shorter table. */
static void a_driver_of_before_works(void **state)
{
    (void)state;
    uint64_t copies, fills;
    loch_driver driver = *loch_driver_find("sim");
    driver.name = "before";
    driver.size = offsetof(loch_driver, copy_strided);
    CHECK_OK(loch_driver_register(&driver));
    use_all("before:64MiB,backed", &copies, &fills);
}

/* --- failures, streams and graphs --- */

static void a_failure_is_the_callers(void **state)
{
    (void)state;
    static const char *const names[] = {"copy_strided", "fill_strided"};
    for (int i = 0; i < 2; i++) {
        plane p;
        plane_open(&p, "sim:64MiB,backed");
        loch_tensor *narrow = make(&p, LOCH_I16, 2, turned_shape), *part;
        CHECK_OK(loch_tensor_slice(narrow, 1, 0, ROWS, 2, &part));
        const loch_sim_fault fault = {.size = sizeof fault, .call = names[i]};
        CHECK_OK(loch_sim_set_fault(p.device, &fault));
        if (i == 0)
            CHECK_FAILS(loch_tensor_copy(narrow, p.turned, NULL), DRIVER);
        else
            CHECK_FAILS(loch_tensor_fill(part, loch_scalar_of(5), NULL), DRIVER);
        CHECK_OK(loch_sim_set_fault(p.device, NULL));
        CHECK_OK(loch_tensor_copy(narrow, p.turned, NULL));
        expect_turned(&p, narrow);
        loch_tensor_release(part);
        loch_tensor_release(narrow);
        plane_close(&p);
    }
}

/* The work is queued: the call returns before it has run, and tensors may be released. */
static void work_is_queued(void **state)
{
    (void)state;
    plane p;
    plane_open(&p, "sim:64MiB,backed,clock=stepped");
    loch_stream *stream = sim_stream(p.device, LOCH_STREAM_INDEPENDENT);
    loch_tensor *narrow = make(&p, LOCH_I16, 2, turned_shape);
    CHECK_OK(loch_device_sync(p.device));
    const loch_tensor_copy_options options = {.size = sizeof options, .stream = stream};
    CHECK_OK(loch_tensor_copy(narrow, p.turned, &options));
    assert_int_equal(loch_stream_query(stream), LOCH_E_BUSY);
    loch_tensor_clear(&p.turned);
    loch_tensor_clear(&p.numbers);
    CHECK_OK(loch_stream_sync(stream));
    expect_turned(&p, narrow);
    loch_tensor_release(narrow);
    loch_stream_close(stream);
    plane_close(&p);
}

static void work_is_captured(void **state)
{
    (void)state;
    plane p;
    plane_open(&p, "sim:64MiB,backed");
    loch_stream *stream = sim_stream(p.device, LOCH_STREAM_INDEPENDENT);
    loch_tensor *narrow = make(&p, LOCH_I16, 2, turned_shape);
    CHECK_OK(loch_device_sync(p.device));
    const loch_tensor_copy_options options = {.size = sizeof options, .stream = stream};
    loch_sim_graph *graph;
    CHECK_OK(loch_sim_capture_begin(stream));
    CHECK_OK(loch_tensor_copy(narrow, p.turned, &options));
    CHECK_OK(loch_sim_capture_end(stream, &graph));
    for (int launch = 0; launch < 2; launch++) {
        for (int i = 0; i < COUNT; i++)
            p.data[i] += 3;
        CHECK_OK(loch_tensor_write(p.numbers, p.data, sizeof p.data, NULL));
        CHECK_OK(loch_sim_graph_launch(graph, stream));
        CHECK_OK(loch_stream_sync(stream));
        expect_turned(&p, narrow);
    }
    loch_sim_graph_destroy(graph);
    loch_tensor_release(narrow);
    loch_stream_close(stream);
    plane_close(&p);
}

/* The checker knows which bytes a copy uses: columns beside each other on two streams are no conflict, and one column
 * on both is. */
static void the_checker_knows_the_bytes(void **state)
{
    (void)state;
    plane p;
    plane_open(&p, "sim:64MiB,backed");
    loch_stream *streams[2];
    loch_tensor *columns[2], *wide[2];
    CHECK_OK(loch_device_sync(p.device));
    const int64_t column_shape[] = {ROWS, 1};
    for (int i = 0; i < 2; i++) {
        streams[i] = sim_stream(p.device, LOCH_STREAM_INDEPENDENT);
        wide[i] = make(&p, LOCH_F64, 2, column_shape);
        CHECK_OK(loch_tensor_slice(p.numbers, 1, i, i + 1, 1, &columns[i]));
    }
    CHECK_OK(loch_device_sync(p.device));
    loch_sim_violation violation;
    for (int i = 0; i < 2; i++) {
        const loch_tensor_copy_options options = {.size = sizeof options, .stream = streams[i]};
        CHECK_OK(loch_tensor_copy(columns[i], wide[i], &options));
    }
    assert_int_equal(sim_violations(p.device, &violation), 0);
    const loch_tensor_copy_options options = {.size = sizeof options, .stream = streams[0]};
    CHECK_OK(loch_tensor_copy(columns[1], wide[0], &options)); /* the other stream writes there */
    assert_true(sim_violations(p.device, &violation) > 0);
    CHECK_OK(loch_sim_clear_violations(p.device));
    CHECK_OK(loch_device_sync(p.device));
    for (int i = 0; i < 2; i++) {
        loch_tensor_release(columns[i]);
        loch_tensor_release(wide[i]);
        loch_stream_close(streams[i]);
    }
    plane_close(&p);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_simulated_device_does_it_in_one_call_each),
        cmocka_unit_test(a_driver_from_outside_supplies_them),
        cmocka_unit_test(a_driver_that_refuses_is_helped_by_the_host),
        cmocka_unit_test(memory_is_kept_behind_a_copy_that_failed_half_way),
        cmocka_unit_test(a_driver_of_before_works),
        cmocka_unit_test(a_failure_is_the_callers),
        cmocka_unit_test(work_is_queued),
        cmocka_unit_test(work_is_captured),
        cmocka_unit_test(the_checker_knows_the_bytes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

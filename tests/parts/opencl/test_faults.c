/* SPDX-License-Identifier: MIT */
/* Every call of OpenCL fails in turn, once and for good, under a program that uses everything; and the errors of OpenCL
 * become statuses with sentences. */
#include "failing_opencl.h"
#include "opencl_fixture.h"
#include "sweep.h"

#include <stdatomic.h>

static void set_fault(test_failing mode, uint64_t after, loch_device *device)
{
    (void)device;
    failing_opencl_set(mode, after, LOCHI_CL_OUT_OF_RESOURCES);
}

static uint64_t count_calls(loch_device *device)
{
    (void)device;
    return failing_opencl_count();
}

static const test_faults opencl_faults = {.name = "OpenCL", .set = set_fault, .count = count_calls};

static void every_failing_call_is_survived(void **state)
{
    (void)state;
    const test_sweep sweep = {
        .device = "opencl:0", .other = "sim:16MiB,granule=64KiB,backed,id=5", .from = &opencl_faults};
    failing_opencl_install();
    test_scenario_sweep(&sweep);
    failing_opencl_remove();
}

/* --- host memory --- */

static atomic_int heap_mode;
static _Atomic uint64_t heap_after, heap_calls;

void *__real_calloc(size_t count, size_t bytes);
void *__real_realloc(void *address, size_t bytes);
void *__wrap_calloc(size_t count, size_t bytes);
void *__wrap_realloc(void *address, size_t bytes);

static bool heap_strikes(void)
{
    const uint64_t number = atomic_fetch_add(&heap_calls, 1), after = atomic_load(&heap_after);
    const int mode = atomic_load(&heap_mode);
    return (mode == TEST_FAILING_ONCE && number == after) || (mode == TEST_FAILING_FOREVER && number >= after);
}

/* The linker puts these in the place of the functions that the driver calls. */
void *__wrap_calloc(size_t count, size_t bytes)
{
    return heap_strikes() ? NULL : __real_calloc(count, bytes);
}

void *__wrap_realloc(void *address, size_t bytes)
{
    return heap_strikes() ? NULL : __real_realloc(address, bytes);
}

static void set_heap(test_failing mode, uint64_t after, loch_device *device)
{
    (void)device;
    atomic_store(&heap_mode, TEST_FAILING_NEVER);
    atomic_store(&heap_after, after);
    atomic_store(&heap_calls, 0);
    atomic_store(&heap_mode, mode);
}

static uint64_t count_heap(loch_device *device)
{
    (void)device;
    return atomic_load(&heap_calls);
}

static void heap_round(test_round *round, const void *user)
{
    (void)user;
    test_scenario run;
    test_round_begin(round, NULL);
    test_scenario_run(&run, "opencl:0", "sim:16MiB,granule=64KiB,backed,id=5");
    test_round_end(round);
    round->is_felt = run.status != LOCH_OK;
    round->call = run.call;
    if (run.kept) fail_msg("%s: %s failed, it gives something back", round->when, run.kept);
    if (round->is_felt) assert_int_equal(run.status, LOCH_E_HOST_MEMORY);
}

static void every_failing_allocation_is_survived(void **state)
{
    (void)state;
    const test_faults faults = {.name = "the driver's memory", .set = set_heap, .count = count_heap};
    const test_rounds rounds = test_rounds_run(&faults, "opencl:0", heap_round, NULL);
    assert_true(rounds.places >= 8 && rounds.felt >= rounds.places / 2);
}

/* --- what errors mean --- */

typedef struct ground {
    loch_device *device;
    loch_stream *stream;
    loch_event *event;
    void *block;
} ground;

static ground open_ground(void)
{
    ground g = {.device = opencl_open("opencl:0")};
    CHECK_OK(loch_stream_create(g.device, NULL, &g.stream));
    CHECK_OK(loch_event_create(g.device, LOCH_EVENT_PLAIN, &g.event));
    CHECK_OK(loch_raw_alloc(g.device, LOCH_MEMORY_DEVICE, 4096, 0, &g.block));
    failing_opencl_install();
    return g;
}

static void close_ground(ground *g)
{
    failing_opencl_set(TEST_FAILING_NEVER, 0, 0);
    failing_opencl_remove();
    CHECK_OK(loch_raw_free(g->block));
    loch_event_destroy(g->event);
    loch_stream_close(g->stream);
    loch_device_release(g->device);
}

static void errors_of_opencl_become_statuses(void **state)
{
    (void)state;
    static const struct {
        cl_result result;
        loch_status status;
        const char *text;
    } codes[] = {
        {LOCHI_CL_DEVICE_NOT_AVAILABLE, LOCH_E_DEVICE_LOST, "CL_DEVICE_NOT_AVAILABLE"},
        {LOCHI_CL_MEM_OBJECT_ALLOCATION_FAILURE, LOCH_E_DEVICE_MEMORY, "CL_MEM_OBJECT_ALLOCATION_FAILURE"},
        {LOCHI_CL_OUT_OF_RESOURCES, LOCH_E_DEVICE_MEMORY, "CL_OUT_OF_RESOURCES"},
        {LOCHI_CL_OUT_OF_HOST_MEMORY, LOCH_E_HOST_MEMORY, "CL_OUT_OF_HOST_MEMORY"},
        {LOCHI_CL_INVALID_COMMAND_QUEUE, LOCH_E_INVALID, "CL_INVALID_COMMAND_QUEUE"},
        {LOCHI_CL_INVALID_OPERATION, LOCH_E_UNSUPPORTED, "CL_INVALID_OPERATION"},
        {-9999, LOCH_E_DRIVER, "-9999"},
    };
    ground g = open_ground();
    for (size_t i = 0; i < sizeof codes / sizeof *codes; i++) {
        failing_opencl_set(TEST_FAILING_ONCE, 0, codes[i].result);
        CHECK_FAILS_SET(loch_fill_on(g.block, 4096, "a", 1, g.stream), 1u << codes[i].status);
        assert_int_equal(loch_error_get()->driver_code, codes[i].result);
        assert_string_equal(loch_error_get()->driver, "opencl");
        assert_non_null(strstr(loch_error_get()->sentence, "clEnqueueSVMMemFill"));
        assert_non_null(strstr(loch_error_get()->sentence, codes[i].text));
    }
    CHECK_OK(loch_fill_on(g.block, 4096, "a", 1, g.stream));
    CHECK_OK(loch_stream_sync(g.stream));
    close_ground(&g);
}

static void a_lost_device_is_reported_by_waits(void **state)
{
    (void)state;
    ground g = open_ground();
    char host[64];
    CHECK_OK(loch_fill_on(g.block, 4096, "a", 1, g.stream));
    CHECK_OK(loch_event_record(g.event, g.stream));
    CHECK_OK(loch_event_sync(g.event));
    failing_opencl_set_work(LOCHI_CL_DEVICE_NOT_AVAILABLE);
    CHECK_FAILS(loch_event_sync(g.event), DEVICE_LOST);
    assert_int_equal(loch_error_get()->driver_code, LOCHI_CL_DEVICE_NOT_AVAILABLE);
    CHECK_FAILS(loch_event_query(g.event), DEVICE_LOST);
    CHECK_FAILS(loch_stream_wait(g.stream, g.event), DEVICE_LOST);
    CHECK_FAILS(loch_stream_query(g.stream), DEVICE_LOST);
    CHECK_FAILS(loch_stream_sync(g.stream), DEVICE_LOST);
    CHECK_FAILS(loch_device_sync(g.device), DEVICE_LOST);
    CHECK_FAILS(loch_copy(host, g.block, sizeof host), DEVICE_LOST);
    failing_opencl_set_work(0);
    close_ground(&g);
}

static void work_whose_flush_failed_is_waited_for(void **state)
{
    (void)state;
    ground g = open_ground();
    failing_opencl_set(TEST_FAILING_ONCE, 1, LOCHI_CL_OUT_OF_RESOURCES); /* the flush behind the fill */
    CHECK_OK(loch_fill_on(g.block, 4096, "x", 1, g.stream));
    CHECK_OK(loch_stream_query(g.stream));
    failing_opencl_set(TEST_FAILING_FOREVER, 1, LOCHI_CL_OUT_OF_RESOURCES);
    CHECK_FAILS(loch_fill_on(g.block, 4096, "y", 1, g.stream), DEVICE_MEMORY);
    failing_opencl_set(TEST_FAILING_NEVER, 0, 0);
    CHECK_OK(loch_stream_sync(g.stream));
    close_ground(&g);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_failing_call_is_survived),        cmocka_unit_test(every_failing_allocation_is_survived),
        cmocka_unit_test(errors_of_opencl_become_statuses),      cmocka_unit_test(a_lost_device_is_reported_by_waits),
        cmocka_unit_test(work_whose_flush_failed_is_waited_for),
    };
    opencl_need();
    return cmocka_run_group_tests_name("OpenCL calls fail", tests, NULL, NULL);
}

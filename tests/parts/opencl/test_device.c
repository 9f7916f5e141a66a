/* SPDX-License-Identifier: MIT */
/* OpenCL devices: names, properties, handles, contexts of the caller, sub-devices, limits, and queues that are
 * refused. */
#include "opencl_fixture.h"
#include "state.h"

/* --- names and registration --- */

static void *register_thread(void *argument)
{
    *(loch_status *)argument = loch_opencl_register();
    return NULL;
}

static void registering_again_does_nothing(void **state)
{
    (void)state;
    loch_status status[4];
    TEST_THREADS_RUN(register_thread, status);
    for (size_t i = 0; i < 4; i++)
        assert_int_equal(status[i], LOCH_OK);
    assert_non_null(loch_driver_find("opencl"));
}

static void devices_are_named_by_number(void **state)
{
    (void)state;
    const char *const bad[] = {"opencl:x", "opencl:00", "opencl:-1", "opencl:1.5", "opencl:0 "};
    loch_device *device = TEST_UNTOUCHED;
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        CHECK_FAILS(loch_device_open(bad[i], &device), INVALID);
        assert_null(device);
    }
    loch_device *first = opencl_open("opencl");
    assert_int_equal(strncmp(loch_device_get_name(first), "opencl:", 7), 0);
    assert_true(loch_device_get_name(first)[7] >= '0' && loch_device_get_name(first)[7] <= '9');
    loch_device_release(first);
    CHECK_FAILS(loch_device_open("opencl:999", &device), NOT_FOUND);
    assert_non_null(strstr(loch_error_get()->sentence, "opencl:999"));
    CHECK_FAILS(loch_device_open("opencl:context1000", &device), NOT_FOUND);
    CHECK_FAILS(loch_device_open("opencl:contextx", &device), NOT_FOUND);
}

static loch_status count_opencl(const char *name, void *user)
{
    if (strncmp(name, "opencl:", 7) == 0) ++*(size_t *)user;
    return LOCH_OK;
}

static void devices_are_listed(void **state)
{
    (void)state;
    size_t count = 0;
    CHECK_OK(loch_device_walk(count_opencl, &count));
    assert_true(count >= 1);
}

/* --- what is claimed --- */

static void nothing_is_claimed_that_opencl_has_not(void **state)
{
    (void)state;
    loch_device *device = opencl_open("opencl:0");
    loch_device_properties properties = {.size = sizeof properties};
    CHECK_OK(loch_device_get_properties(device, &properties));
    assert_string_equal(properties.driver, "opencl");
    assert_true(properties.model[0] && properties.driver_version[0]);
    assert_true(loch_device_can(device, LOCH_CAN_ASYNC | LOCH_CAN_TIMING));
    assert_int_equal(properties.capabilities & ~(uint32_t)(LOCH_CAN_ASYNC | LOCH_CAN_TIMING | LOCH_CAN_PINNED), 0);
    assert_int_equal(properties.alignment_bytes, 128);
    assert_true(properties.multiprocessors > 0);

    void *address = TEST_UNTOUCHED;
    CHECK_FAILS(loch_raw_alloc(device, LOCH_MEMORY_MANAGED, 4096, 0, &address), UNSUPPORTED);
    CHECK_FAILS(loch_virtual_reserve(device, TEST_MIB, 0, &address), UNSUPPORTED);
    CHECK_FAILS(loch_raw_alloc(device, LOCH_MEMORY_DEVICE, 4096, 4096, &address), UNSUPPORTED);
    assert_non_null(strstr(loch_error_get()->sentence, "128 bytes"));
    loch_device_release(device);
}

static void bytes_are_counted(void **state)
{
    (void)state;
    loch_device *device = opencl_open("opencl:0");
    loch_memory_info before = {.size = sizeof before}, during = before, after = before;
    void *block = NULL, *pinned = NULL;
    CHECK_OK(loch_device_calculate_memory(device, &before));
    CHECK_OK(loch_raw_alloc(device, LOCH_MEMORY_DEVICE, TEST_MIB, 0, &block));
    const bool has_pinned = loch_device_can(device, LOCH_CAN_PINNED);
    if (has_pinned) CHECK_OK(loch_raw_alloc(device, LOCH_MEMORY_PINNED, TEST_MIB, 0, &pinned));
    CHECK_OK(loch_device_calculate_memory(device, &during));
    assert_int_equal(before.free_bytes - during.free_bytes, has_pinned ? 2 * TEST_MIB : TEST_MIB);
    CHECK_OK(loch_raw_free(block));
    CHECK_OK(loch_raw_free(pinned));
    CHECK_OK(loch_device_calculate_memory(device, &after));
    assert_int_equal(after.free_bytes, before.free_bytes);
    loch_device_release(device);
}

/* --- limits --- */

static lochi_opencl_device *opened_of(loch_device *device)
{
    void *self = NULL;
    assert_non_null(loch_device_get_driver(device, &self));
    return self;
}

static void a_block_above_the_devices_limit_is_refused_with_the_limit(void **state)
{
    (void)state;
    loch_device *device = opencl_open("opencl:0");
    const size_t most = opened_of(device)->block_bytes_max;
    char limit[64];
    void *block = TEST_UNTOUCHED;
    CHECK_FAILS(loch_raw_alloc(device, LOCH_MEMORY_DEVICE, most + 1, 0, &block), DEVICE_MEMORY);
    snprintf(limit, sizeof limit, "%zu MiB", most / TEST_MIB);
    assert_non_null(strstr(loch_error_get()->sentence, limit));
    assert_null(block);
    loch_device_release(device);
}

/* The device gets less memory than it has, so that the test need not take gigabytes. */
static void a_full_device_refuses_and_recovers(void **state)
{
    (void)state;
    loch_device *device = opencl_open("opencl:0");
    lochi_opencl_device *opened = opened_of(device);
    const size_t total = opened->total_bytes;
    void *first = NULL, *second = TEST_UNTOUCHED;
    opened->total_bytes = 64 * TEST_MIB;
    CHECK_OK(loch_raw_alloc(device, LOCH_MEMORY_DEVICE, 40 * TEST_MIB, 0, &first));
    CHECK_FAILS(loch_raw_alloc(device, LOCH_MEMORY_DEVICE, 40 * TEST_MIB, 0, &second), DEVICE_MEMORY);
    assert_non_null(strstr(loch_error_get()->sentence, "64 MiB"));
    assert_non_null(strstr(loch_error_get()->sentence, "40 MiB"));

    loch_allocator *pool = NULL;
    void *block = TEST_UNTOUCHED;
    CHECK_OK(loch_pool_create(device, "full", NULL, &pool));
    CHECK_FAILS(loch_alloc(pool, 40 * TEST_MIB, &block), DEVICE_MEMORY);
    CHECK_OK(loch_raw_free(first));
    CHECK_OK(loch_alloc(pool, 40 * TEST_MIB, &block));
    CHECK_OK(loch_free(pool, block));
    loch_allocator_release(pool);
    opened->total_bytes = total;
    loch_device_release(device);
}

/* --- handles and contexts --- */

static void handles_are_those_of_the_device(void **state)
{
    (void)state;
    loch_device *device = opencl_open("opencl:0"), *cpu = opencl_open("cpu");
    const loch_opencl_handles handles = opencl_handles(device);
    cl_context_of context = NULL;
    cl_device id = NULL;
    assert_non_null(handles.platform);
    CHECK_CL(lochi_opencl.clGetCommandQueueInfo(handles.queue, LOCHI_CL_QUEUE_CONTEXT, sizeof context, &context, NULL));
    CHECK_CL(lochi_opencl.clGetCommandQueueInfo(handles.queue, LOCHI_CL_QUEUE_DEVICE, sizeof id, &id, NULL));
    assert_ptr_equal(context, handles.context);
    assert_ptr_equal(id, handles.device_id);

    loch_opencl_handles small = {.size = offsetof(loch_opencl_handles, context), .context = TEST_UNTOUCHED};
    CHECK_OK(loch_opencl_get_handles(device, &small));
    assert_ptr_equal(small.device_id, handles.device_id);
    assert_ptr_equal(small.context, TEST_UNTOUCHED);
    CHECK_FAILS(loch_opencl_get_handles(cpu, &small), INVALID);
    CHECK_FAILS(loch_opencl_get_handles(NULL, &small), INVALID);
    CHECK_FAILS(loch_opencl_get_handles(device, NULL), INVALID);
    small.size = 0;
    CHECK_FAILS(loch_opencl_get_handles(device, &small), INVALID);
    loch_device_release(device);
    loch_device_release(cpu);
}

static cl_context_of make_context(const loch_opencl_handles *handles, cl_number count, const cl_device *devices)
{
    const intptr_t properties[] = {LOCHI_CL_CONTEXT_PLATFORM, (intptr_t)handles->platform, 0};
    cl_result result = LOCHI_CL_INVALID_VALUE;
    cl_context_of context = lochi_opencl.clCreateContext(properties, count, devices, NULL, NULL, &result);
    CHECK_CL(result);
    /* cppcheck-suppress returnDanglingLifetime ; OpenCL does not keep the address of the code */
    return context;
}

static void a_context_of_the_caller_is_one_device(void **state)
{
    (void)state;
    loch_device *own = opencl_open("opencl:0"), *device = TEST_UNTOUCHED, *again = NULL, *other = NULL;
    loch_opencl_handles handles = opencl_handles(own);
    cl_device id = handles.device_id;
    cl_context_of context = make_context(&handles, 1, &id);
    CHECK_OK(loch_opencl_open(context, id, &device));
    CHECK_OK(loch_opencl_open(context, id, &again));
    assert_ptr_equal(device, again);
    assert_ptr_not_equal(device, own);
    assert_ptr_equal(opencl_handles(device).context, context);
    CHECK_CL(lochi_opencl.clReleaseContext(context)); /* the device has its own reference */

    opencl_kernel kernel = opencl_build(&(loch_opencl_handles){.context = context, .device_id = id});
    void *block = NULL;
    CHECK_OK(loch_raw_alloc(device, LOCH_MEMORY_DEVICE, 4096, 0, &block));
    opencl_launch(&kernel, opencl_handles(device).queue, block, 1024, 5);
    opencl_expect(block, 1024, 5);
    CHECK_OK(loch_raw_free(block));
    opencl_unbuild(&kernel);
    loch_device_release(again);
    const char *name = loch_device_get_name(device);
    char gone[LOCH_DEVICE_NAME_MAX];
    snprintf(gone, sizeof gone, "%s", name);
    loch_device_release(device);
    CHECK_FAILS(loch_device_open(gone, &device), NOT_FOUND);

    if (loch_device_open("opencl:1", &other) == LOCH_OK) {
        context = make_context(&handles, 1, &id);
        CHECK_FAILS(loch_opencl_open(context, opencl_handles(other).device_id, &device), INVALID);
        assert_null(device);
        CHECK_CL(lochi_opencl.clReleaseContext(context));
    }
    CHECK_FAILS(loch_opencl_open(NULL, id, &device), INVALID);
    CHECK_FAILS(loch_opencl_open(handles.context, NULL, &device), INVALID);
    CHECK_FAILS(loch_opencl_open(handles.context, id, NULL), INVALID);
    loch_device_release(other);
    loch_device_release(own);
}

static void sub_devices_are_devices(void **state)
{
    (void)state;
    const intptr_t equally[] = {0x1086 /* CL_DEVICE_PARTITION_EQUALLY */, 1, 0};
    loch_device *own = opencl_open("opencl:0"), *halves[2] = {NULL, NULL};
    const loch_opencl_handles handles = opencl_handles(own);
    cl_device parts[64];
    cl_number count = 0;
    if (program_api.clCreateSubDevices(handles.device_id, equally, 64, parts, &count) != LOCHI_CL_SUCCESS ||
        count < 2) {
        print_message("the device cannot be divided\n");
        loch_device_release(own);
        return;
    }
    cl_context_of context = make_context(&handles, 2, parts);
    void *blocks[2];
    for (size_t i = 0; i < 2; i++) {
        unsigned char value = (unsigned char)(i + 1);
        CHECK_OK(loch_opencl_open(context, parts[i], &halves[i]));
        CHECK_OK(loch_raw_alloc(halves[i], LOCH_MEMORY_DEVICE, 4096, 0, &blocks[i]));
        CHECK_OK(loch_fill(blocks[i], 4096, &value, 1));
    }
    assert_ptr_not_equal(halves[0], halves[1]);
    CHECK_OK(loch_copy(blocks[0], blocks[1], 4096));
    unsigned char host[4096];
    CHECK_OK(loch_copy(host, blocks[0], 4096));
    assert_int_equal(host[0], 2);
    assert_int_equal(host[4095], 2);
    for (size_t i = 0; i < 2; i++) {
        CHECK_OK(loch_raw_free(blocks[i]));
        loch_device_release(halves[i]);
    }
    CHECK_CL(lochi_opencl.clReleaseContext(context));
    for (cl_number i = 0; i < count; i++)
        CHECK_CL(lochi_opencl.clReleaseDevice(parts[i]));
    loch_device_release(own);
}

/* --- queues of the caller --- */

static cl_queue make_queue(const loch_opencl_handles *handles, cl_bits kind, cl_result *result)
{
    const cl_bits properties[] = {LOCHI_CL_QUEUE_PROPERTIES, kind, 0};
    return lochi_opencl.clCreateCommandQueueWithProperties(handles->context, handles->device_id, properties, result);
}

static void queues_that_do_not_fit_are_refused(void **state)
{
    (void)state;
    loch_device *device = opencl_open("opencl:0");
    const loch_opencl_handles handles = opencl_handles(device);
    loch_opencl_handles foreign = handles;
    cl_device id = handles.device_id;
    foreign.context = make_context(&handles, 1, &id);
    loch_stream *stream = TEST_UNTOUCHED;
    cl_result result = LOCHI_CL_INVALID_VALUE;
    cl_queue queue = make_queue(&foreign, 0, &result);
    CHECK_CL(result);
    CHECK_FAILS(loch_stream_wrap(device, queue, &stream), INVALID);
    assert_non_null(strstr(loch_error_get()->sentence, "another context"));
    assert_null(stream);
    CHECK_CL(lochi_opencl.clReleaseCommandQueue(queue));
    CHECK_CL(lochi_opencl.clReleaseContext(foreign.context));

    queue = make_queue(&handles, LOCHI_CL_QUEUE_OUT_OF_ORDER_EXEC_MODE_ENABLE, &result);
    if (result == LOCHI_CL_SUCCESS) {
        CHECK_FAILS(loch_stream_wrap(device, queue, &stream), UNSUPPORTED);
        CHECK_CL(lochi_opencl.clReleaseCommandQueue(queue));
    }

    CHECK_OK(loch_stream_wrap(device, NULL, &stream));
    assert_ptr_equal(stream, loch_stream_get_default(device));
    CHECK_OK(loch_stream_wrap(device, handles.queue, &stream));
    assert_ptr_equal(stream, loch_stream_get_default(device));
    loch_device_release(device);
}

static void time_needs_a_queue_that_measures(void **state)
{
    (void)state;
    loch_device *device = opencl_open("opencl:0");
    const loch_opencl_handles handles = opencl_handles(device);
    cl_result result = LOCHI_CL_INVALID_VALUE;
    cl_queue queue = make_queue(&handles, 0, &result);
    CHECK_CL(result);
    loch_stream *stream = NULL;
    loch_event *start = NULL, *end = NULL;
    uint64_t ns = 0;
    CHECK_OK(loch_stream_wrap(device, queue, &stream));
    CHECK_OK(loch_event_create(device, LOCH_EVENT_TIMED, &start));
    CHECK_OK(loch_event_create(device, LOCH_EVENT_TIMED, &end));
    CHECK_OK(loch_event_record(start, stream));
    CHECK_OK(loch_event_record(end, stream));
    CHECK_OK(loch_event_sync(end));
    CHECK_FAILS(loch_event_elapsed(start, end, &ns), UNSUPPORTED);
    assert_non_null(strstr(loch_error_get()->sentence, "CL_QUEUE_PROFILING_ENABLE"));
    loch_event_destroy(start);
    loch_event_destroy(end);
    loch_stream_close(stream);
    CHECK_CL(lochi_opencl.clReleaseCommandQueue(queue));
    loch_device_release(device);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(registering_again_does_nothing),
        cmocka_unit_test(devices_are_named_by_number),
        cmocka_unit_test(devices_are_listed),
        cmocka_unit_test(nothing_is_claimed_that_opencl_has_not),
        cmocka_unit_test(bytes_are_counted),
        cmocka_unit_test(a_block_above_the_devices_limit_is_refused_with_the_limit),
        cmocka_unit_test(a_full_device_refuses_and_recovers),
        cmocka_unit_test(handles_are_those_of_the_device),
        cmocka_unit_test(a_context_of_the_caller_is_one_device),
        cmocka_unit_test(sub_devices_are_devices),
        cmocka_unit_test(queues_that_do_not_fit_are_refused),
        cmocka_unit_test(time_needs_a_queue_that_measures),
    };
    opencl_need();
    return cmocka_run_group_tests_name("OpenCL devices", tests, NULL, NULL);
}

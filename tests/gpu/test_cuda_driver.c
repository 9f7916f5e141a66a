/* SPDX-License-Identifier: MIT */
/* The CUDA back end on a real GPU, beyond what every device has to do (tests/contract): properties, names, the caller's
 * context, codes. */
#include "cuda_fixture.h"

#define ERROR_OUT_OF_MEMORY 2

/* --- properties and names --- */

static void properties_are_those_of_the_gpu(void **state)
{
    (void)state;
    assert_string_equal(properties.driver, "cuda");
    assert_true(strlen(properties.model) > 0);
    assert_int_equal(properties.index, 0);
    assert_true(properties.numa_node >= -1);
    assert_true(properties.total_bytes >= TEST_GIB);
    assert_true(properties.compute_major >= 3);
    assert_true(properties.multiprocessors > 0);
    assert_true(properties.l2_bytes >= 256 * TEST_KIB && properties.l2_bytes <= TEST_GIB);
    assert_true(properties.shared_bytes >= 16 * TEST_KIB && properties.shared_bytes <= 16 * TEST_MIB);
    assert_true(properties.alignment_bytes >= 256);
    assert_int_equal(strlen(properties.bus_id), strlen("0000:1b:00.0"));
    for (const char *c = properties.bus_id; *c; c++)
        assert_non_null(strchr("0123456789abcdef:.", *c));
    int major = 0, minor = -1;
    assert_int_equal(sscanf(properties.driver_version, "%d.%d", &major, &minor), 2);
    assert_true(major >= 11 && minor >= 0 && minor <= 9);
    if (properties.capabilities & LOCH_CAN_VIRTUAL) {
        assert_true(properties.granule_bytes >= 64 * TEST_KIB);
        assert_int_equal(properties.granule_bytes & (properties.granule_bytes - 1), 0);
    }
    assert_true(loch_device_can(device, LOCH_CAN_PINNED | LOCH_CAN_ASYNC | LOCH_CAN_TIMING));
    assert_int_equal(properties.capabilities & (LOCH_CAN_HOST_ACCESS | LOCH_CAN_REMAP), 0);
    loch_memory_info info = {.size = sizeof info};
    CHECK_OK(loch_device_calculate_memory(device, &info));
    assert_int_equal(info.total_bytes, properties.total_bytes);
    assert_true(info.free_bytes > 0 && info.free_bytes <= info.total_bytes);
}

static void names_of_gpus_are_checked(void **state)
{
    (void)state;
    loch_device *other = NULL;
    CHECK_OK(loch_device_open("cuda", &other));
    assert_ptr_equal(other, device);
    loch_device_release(other);
    CHECK_FAILS(loch_device_open("cuda:x", &other), INVALID);
    CHECK_FAILS(loch_device_open("cuda:-1", &other), INVALID);
    CHECK_FAILS(loch_device_open("cuda:0,fast", &other), INVALID);
    CHECK_FAILS(loch_device_open("cuda:1000", &other), NOT_FOUND);
    CHECK_FAILS(loch_device_open("cuda:18446744073709551615", &other), NOT_FOUND);
    assert_null(other);
}

/* --- the caller's context --- */

static void *context_expected;

/* Does a call and looks whether the caller's context is still the same. */
#define KEEPS_OK(call)                                                                                                 \
    do {                                                                                                               \
        CHECK_OK(call);                                                                                                \
        assert_ptr_equal(caller_current(), context_expected);                                                          \
    } while (0)

#define KEEPS_FAILS(call, suffix)                                                                                      \
    do {                                                                                                               \
        CHECK_FAILS(call, suffix);                                                                                     \
        assert_ptr_equal(caller_current(), context_expected);                                                          \
    } while (0)

#define KEEPS(call)                                                                                                    \
    do {                                                                                                               \
        call;                                                                                                          \
        assert_ptr_equal(caller_current(), context_expected);                                                          \
    } while (0)

static void context_use_memory(void)
{
    static char host[64 * 1024];
    void *block = NULL, *pinned = NULL, *managed = NULL;
    loch_memory_info info = {.size = sizeof info};
    loch_address_info what = {.size = sizeof what};
    const unsigned char byte = 7;
    KEEPS_OK(loch_device_calculate_memory(device, &info));
    KEEPS_OK(loch_raw_alloc(device, LOCH_MEMORY_DEVICE, sizeof host, 0, &block));
    KEEPS_OK(loch_raw_alloc(device, LOCH_MEMORY_PINNED, sizeof host, 0, &pinned));
    KEEPS_FAILS(loch_raw_alloc(device, LOCH_MEMORY_DEVICE, properties.total_bytes * 2, 0, &managed), DEVICE_MEMORY);
    if (loch_device_can(device, LOCH_CAN_MANAGED)) {
        KEEPS_OK(loch_raw_alloc(device, LOCH_MEMORY_MANAGED, sizeof host, 0, &managed));
        KEEPS_OK(loch_raw_free(managed));
    }
    if (loch_device_can(device, LOCH_CAN_REGISTER)) {
        KEEPS_OK(loch_raw_register(device, host, sizeof host));
        KEEPS_OK(loch_raw_unregister(host));
    }
    KEEPS_OK(loch_fill(block, sizeof host, &byte, 1));
    KEEPS_OK(loch_copy(pinned, block, sizeof host));
    KEEPS_OK(loch_copy(block, host, sizeof host));
    KEEPS_OK(loch_address_query(host, &what));
    KEEPS_OK(loch_address_query(block, &what));
    KEEPS_OK(loch_raw_free(block));
    KEEPS_OK(loch_raw_free(pinned));
}

static void context_use_streams(void)
{
    loch_stream *stream = NULL, *mine = NULL;
    loch_event *plain = NULL, *timed = NULL;
    loch_capture_info capture = {.size = sizeof capture};
    uint64_t ns;
    KEEPS_OK(loch_stream_create(device, NULL, &stream));
    KEEPS_OK(loch_stream_require_thread_default(device, &mine));
    KEEPS_OK(loch_event_create(device, LOCH_EVENT_PLAIN, &plain));
    KEEPS_OK(loch_event_create(device, LOCH_EVENT_TIMED, &timed));
    KEEPS_OK(loch_event_record(plain, stream));
    KEEPS_OK(loch_event_record(timed, mine));
    KEEPS_OK(loch_stream_wait(mine, plain));
    KEEPS_OK(loch_event_sync(plain));
    KEEPS_OK(loch_event_query(plain));
    KEEPS_OK(loch_event_sync(timed));
    KEEPS_OK(loch_event_elapsed(timed, timed, &ns));
    KEEPS_OK(loch_stream_query_capture(stream, &capture));
    KEEPS_OK(loch_stream_sync(stream));
    KEEPS_OK(loch_stream_query(stream));
    KEEPS_OK(loch_stream_sync(mine));
    KEEPS_OK(loch_device_sync(device));
    KEEPS(loch_event_destroy(plain));
    KEEPS(loch_event_destroy(timed));
    KEEPS(loch_stream_close(stream));
}

static void context_use_virtual(void)
{
    if (!loch_device_can(device, LOCH_CAN_VIRTUAL)) return;
    const size_t granule = properties.granule_bytes;
    void *addresses = NULL;
    loch_handle *handle = NULL;
    KEEPS_OK(loch_virtual_reserve(device, 4 * granule, 0, &addresses));
    KEEPS_OK(loch_handle_create(device, granule, NULL, &handle));
    KEEPS_OK(loch_virtual_map(addresses, handle, NULL, 0));
    KEEPS_OK(loch_virtual_unmap(addresses));
    KEEPS(loch_handle_destroy(handle));
    KEEPS_OK(loch_virtual_unreserve(addresses));
    KEEPS_FAILS(loch_handle_create(device, properties.total_bytes / granule * granule * 2, NULL, &handle),
                DEVICE_MEMORY);
}

static void context_use_all(void *expected)
{
    context_expected = expected;
    assert_ptr_equal(caller_current(), expected);
    loch_device *again = NULL;
    KEEPS_OK(loch_device_open("cuda:0", &again));
    KEEPS(loch_device_release(again));
    context_use_memory();
    context_use_streams();
    context_use_virtual();
}

static void without_a_current_context_none_is_left_current(void **state)
{
    (void)state;
    assert_int_equal(caller.cuCtxSetCurrent(NULL), 0);
    context_use_all(NULL);
}

static void a_foreign_current_context_stays_current(void **state)
{
    (void)state;
    void *context = NULL;
    assert_int_equal(caller.cuCtxCreate_v2(&context, 0, 0), 0);
    context_use_all(context);
    /* What Loch makes meanwhile is the primary context's, not the caller's: only then can it be wrapped. */
    loch_stream *stream = NULL, *wrapped = NULL;
    CHECK_OK(loch_stream_create(device, NULL, &stream));
    CHECK_OK(loch_stream_wrap(device, loch_stream_get_native(stream), &wrapped));
    loch_stream_close(wrapped);
    loch_stream_close(stream);
    assert_int_equal(caller.cuCtxDestroy_v2(context), 0);
}

static void the_primary_context_stays_current(void **state)
{
    (void)state;
    void *context = NULL;
    assert_int_equal(caller.cuDevicePrimaryCtxRetain(&context, 0), 0);
    assert_int_equal(caller.cuCtxSetCurrent(context), 0);
    context_use_all(context);
    assert_int_equal(caller.cuCtxSetCurrent(NULL), 0);
    assert_int_equal(caller.cuDevicePrimaryCtxRelease_v2(0), 0);
}

/* --- failures --- */

static void codes_of_the_driver_become_statuses(void **state)
{
    (void)state;
    void *block = NULL;
    CHECK_FAILS(loch_raw_alloc(device, LOCH_MEMORY_DEVICE, properties.total_bytes + TEST_GIB, 0, &block),
                DEVICE_MEMORY);
    assert_string_equal(loch_error_get()->driver, "cuda");
    assert_int_equal(loch_error_get()->driver_code, ERROR_OUT_OF_MEMORY);
    assert_non_null(strstr(loch_error_get()->sentence, "cuMemAlloc"));
    assert_non_null(strstr(loch_error_get()->sentence, "CUDA_ERROR_OUT_OF_MEMORY"));
    CHECK_FAILS(loch_raw_alloc(device, LOCH_MEMORY_DEVICE, 100, 4096, &block), UNSUPPORTED);
    CHECK_OK(loch_raw_alloc(device, LOCH_MEMORY_DEVICE, 100, 512, &block));
    assert_int_equal((uintptr_t)block % 512, 0);
    CHECK_OK(loch_raw_free(block));
    if (loch_device_can(device, LOCH_CAN_VIRTUAL)) {
        const size_t granule = properties.granule_bytes;
        loch_handle *handle = NULL;
        CHECK_FAILS(loch_handle_create(device, (properties.total_bytes / granule + 1024) * granule, NULL, &handle),
                    DEVICE_MEMORY);
        CHECK_FAILS(loch_virtual_reserve(device, (size_t)1 << 62, 0, &block), DEVICE_MEMORY);
        assert_null(block);
    }
    CHECK_OK(loch_device_sync(device));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(properties_are_those_of_the_gpu),
        cmocka_unit_test(names_of_gpus_are_checked),
        cmocka_unit_test(without_a_current_context_none_is_left_current),
        cmocka_unit_test(a_foreign_current_context_stays_current),
        cmocka_unit_test(the_primary_context_stays_current),
        cmocka_unit_test(codes_of_the_driver_become_statuses),
        cmocka_unit_test(nothing_is_left_of_the_device),
    };
    return CUDA_RUN(tests);
}

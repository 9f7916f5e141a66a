/* SPDX-License-Identifier: MIT */
/* Exports by DLPack: the description of a tensor, when the deleter of a structure runs, and order with the consumer. */
#include "dlpack_fixture.h"
#include <pthread.h>

/* --- export --- */

static void an_export_says_what_a_tensor_is(void **state)
{
    (void)state;
    loch_tensor *tensor = rows(), *turned;
    loch_buffer *buffer = loch_tensor_get_buffer(tensor);
    void *address;
    CHECK_OK(loch_tensor_transpose(tensor, 0, 1, &turned));
    CHECK_OK(loch_tensor_get_address(tensor, &address));
    assert_int_equal(loch_buffer_get_references(buffer), 2);

    struct DLManagedTensorVersioned *managed;
    CHECK_OK(loch_tensor_to_dlpack(turned, NULL, &managed));
    assert_int_equal(managed->version.major, 1);
    assert_int_equal(managed->version.minor, 1);
    assert_int_equal(managed->flags, 0);
    assert_ptr_equal(managed->dl_tensor.data, address);
    assert_int_equal(managed->dl_tensor.byte_offset, 0);
    assert_int_equal(managed->dl_tensor.device.device_type, LOCHI_DL_CPU);
    assert_int_equal(managed->dl_tensor.device.device_id, 0);
    assert_int_equal(managed->dl_tensor.ndim, 2);
    assert_int_equal(managed->dl_tensor.dtype.code, LOCHI_DL_FLOAT);
    assert_int_equal(managed->dl_tensor.dtype.bits, 32);
    assert_int_equal(managed->dl_tensor.dtype.lanes, 1);
    const int64_t shape[] = {3, 2}, strides[] = {1, 3};
    assert_memory_equal(managed->dl_tensor.shape, shape, sizeof shape);
    assert_memory_equal(managed->dl_tensor.strides, strides, sizeof strides);
    assert_int_equal(loch_buffer_get_references(buffer), 3);

    struct DLManagedTensor *legacy;
    CHECK_OK(loch_tensor_to_dlpack_legacy(turned, NULL, &legacy));
    assert_ptr_equal(legacy->dl_tensor.data, address);
    assert_int_equal(legacy->dl_tensor.ndim, 2);
    assert_memory_equal(legacy->dl_tensor.strides, strides, sizeof strides);
    assert_int_equal(loch_buffer_get_references(buffer), 4);
    legacy->deleter(legacy);
    assert_int_equal(loch_buffer_get_references(buffer), 3);
    managed->deleter(managed);
    managed = NULL;
    assert_int_equal(loch_buffer_get_references(buffer), 2);
    loch_tensor_release(turned);
    loch_tensor_release(tensor);
}

/* The structure alone keeps the memory, and shape and strides of its own. */
static void an_export_outlives_its_tensor(void **state)
{
    (void)state;
    loch_tensor *tensor = rows();
    struct DLManagedTensorVersioned *managed;
    CHECK_OK(loch_tensor_to_dlpack(tensor, NULL, &managed));
    loch_tensor_release(tensor);
    const float *numbers = managed->dl_tensor.data;
    assert_true(numbers[5] == 6);
    assert_int_equal(managed->dl_tensor.shape[1], 3);
    managed->deleter(managed);
}

static void every_type_goes_out_and_comes_back(void **state)
{
    (void)state;
    static const struct {
        loch_dtype dtype;
        uint8_t code, bits;
    } types[] = {{LOCH_F64, 2, 64},    {LOCH_F32, 2, 32}, {LOCH_F16, 2, 16}, {LOCH_BF16, 4, 16}, {LOCH_F8E4M3, 10, 8},
                 {LOCH_F8E5M2, 12, 8}, {LOCH_I8, 0, 8},   {LOCH_I16, 0, 16}, {LOCH_I32, 0, 32},  {LOCH_I64, 0, 64},
                 {LOCH_U8, 1, 8},      {LOCH_U16, 1, 16}, {LOCH_U32, 1, 32}, {LOCH_U64, 1, 64},  {LOCH_BOOL, 6, 8}};
    assert_int_equal(sizeof types / sizeof *types, LOCH_DTYPE_COUNT - 1);
    for (size_t i = 0; i < sizeof types / sizeof *types; i++) {
        loch_tensor *tensor, *back;
        struct DLManagedTensorVersioned *managed;
        CHECK_OK(loch_tensor_create(types[i].dtype, LOCH_SHAPE(4), NULL, &tensor));
        CHECK_OK(loch_tensor_to_dlpack(tensor, NULL, &managed));
        assert_int_equal(managed->dl_tensor.dtype.code, types[i].code);
        assert_int_equal(managed->dl_tensor.dtype.bits, types[i].bits);
        CHECK_OK(loch_tensor_from_dlpack(managed, NULL, &back));
        assert_int_equal(loch_tensor_get_dtype(back), types[i].dtype);
        loch_tensor_release(back);
        loch_tensor_release(tensor);
    }
}

static void scalars_and_empty_tensors_are_exported(void **state)
{
    (void)state;
    loch_tensor *tensor, *back;
    struct DLManagedTensorVersioned *managed;
    CHECK_OK(loch_tensor_create(LOCH_F64, LOCH_SCALAR, NULL, &tensor));
    CHECK_OK(loch_tensor_to_dlpack(tensor, NULL, &managed));
    assert_int_equal(managed->dl_tensor.ndim, 0);
    assert_non_null(managed->dl_tensor.data);
    CHECK_OK(loch_tensor_from_dlpack(managed, NULL, &back));
    assert_int_equal(loch_tensor_get_dimensions(back), 0);
    assert_int_equal(loch_tensor_get_elements(back), 1);
    loch_tensor_release(back);
    loch_tensor_release(tensor);

    CHECK_OK(loch_tensor_create(LOCH_F64, LOCH_SHAPE(2, 0, 3), NULL, &tensor));
    CHECK_OK(loch_tensor_to_dlpack(tensor, NULL, &managed));
    assert_null(managed->dl_tensor.data);
    assert_int_equal(managed->dl_tensor.ndim, 3);
    assert_non_null(managed->dl_tensor.strides);
    CHECK_OK(loch_tensor_from_dlpack(managed, NULL, &back));
    assert_int_equal(loch_tensor_get_size(back, 2), 3);
    assert_int_equal(loch_tensor_get_elements(back), 0);
    loch_tensor_release(back);
    loch_tensor_release(tensor);
}

static void a_copy_is_said_to_be_one(void **state)
{
    (void)state;
    loch_tensor *tensor = rows(), *turned;
    const loch_dlpack_export copy = {.size = sizeof copy, .copy = LOCH_DLPACK_COPY};
    struct DLManagedTensorVersioned *managed;
    void *address;
    CHECK_OK(loch_tensor_transpose(tensor, 0, 1, &turned));
    CHECK_OK(loch_tensor_get_address(tensor, &address));
    CHECK_OK(loch_tensor_to_dlpack(turned, &copy, &managed));
    assert_int_equal(managed->flags, LOCHI_DL_IS_COPIED);
    assert_ptr_not_equal(managed->dl_tensor.data, address);
    const float expected[6] = {1, 4, 2, 5, 3, 6};
    const int64_t strides[] = {2, 1};
    assert_memory_equal(managed->dl_tensor.data, expected, sizeof expected);
    assert_memory_equal(managed->dl_tensor.strides, strides, sizeof strides);
    assert_int_equal(loch_buffer_get_references(loch_tensor_get_buffer(tensor)), 2); /* no other reference exists */
    managed->deleter(managed);
    loch_tensor_release(turned);
    loch_tensor_release(tensor);
}

static void read_only_memory_is_exported_so(void **state)
{
    (void)state;
    const loch_external external = {.size = sizeof external, .access = LOCH_READ_ONLY};
    const loch_dlpack_export copy = {.size = sizeof copy, .copy = LOCH_DLPACK_COPY};
    const loch_dlpack_export read_only = {.size = sizeof read_only, .access = LOCH_READ_ONLY};
    struct DLManagedTensorVersioned *managed;
    struct DLManagedTensor *legacy = TEST_UNTOUCHED;
    loch_tensor *tensor, *writable = rows();
    CHECK_OK(loch_tensor_wrap(LOCH_F32, LOCH_SHAPE(8), foreign_data, &external, &tensor));
    CHECK_OK(loch_tensor_to_dlpack(tensor, NULL, &managed));
    assert_int_equal(managed->flags, LOCHI_DL_READ_ONLY);
    managed->deleter(managed);
    CHECK_FAILS(loch_tensor_to_dlpack_legacy(tensor, NULL, &legacy), UNSUPPORTED);
    assert_null(legacy);
    CHECK_OK(loch_tensor_to_dlpack_legacy(tensor, &copy, &legacy)); /* a copy may be written */
    legacy->deleter(legacy);
    CHECK_OK(loch_tensor_to_dlpack(tensor, &copy, &managed));
    assert_int_equal(managed->flags, LOCHI_DL_IS_COPIED);
    managed->deleter(managed);

    CHECK_OK(loch_tensor_to_dlpack(writable, &read_only, &managed)); /* asked for */
    assert_int_equal(managed->flags, LOCHI_DL_READ_ONLY);
    managed->deleter(managed);
    CHECK_FAILS(loch_tensor_to_dlpack_legacy(writable, &read_only, &legacy), UNSUPPORTED);
    loch_tensor_release(writable);
    loch_tensor_release(tensor);
}

static void what_cannot_be_exported_is_refused(void **state)
{
    (void)state;
    loch_tensor *tensor = rows(), *simulated, *pinned;
    struct DLManagedTensorVersioned *managed = TEST_UNTOUCHED;
    struct DLManagedTensor *legacy = TEST_UNTOUCHED;
    CHECK_FAILS(loch_tensor_to_dlpack(NULL, NULL, &managed), INVALID);
    assert_null(managed);
    CHECK_FAILS(loch_tensor_to_dlpack(tensor, NULL, NULL), INVALID);
    CHECK_FAILS(loch_tensor_to_dlpack_legacy(NULL, NULL, &legacy), INVALID);
    assert_null(legacy);
    CHECK_FAILS(loch_tensor_to_dlpack_legacy(tensor, NULL, NULL), INVALID);
    const loch_dlpack_export no_size = {.size = 0}, no_copy = {.size = sizeof no_copy, .copy = (loch_dlpack_copy)7},
                             no_access = {.size = sizeof no_access, .access = (loch_access)7};
    CHECK_FAILS(loch_tensor_to_dlpack(tensor, &no_size, &managed), INVALID);
    CHECK_FAILS(loch_tensor_to_dlpack(tensor, &no_copy, &managed), INVALID);
    CHECK_FAILS(loch_tensor_to_dlpack(tensor, &no_access, &managed), INVALID);

    loch_device *device = sim_open("sim:16MiB,backed");
    const loch_tensor_options there = {.size = sizeof there, .device = device};
    CHECK_OK(loch_tensor_create(LOCH_F32, LOCH_SHAPE(4), &there, &simulated));
    managed = TEST_UNTOUCHED;
    CHECK_FAILS(loch_tensor_to_dlpack(simulated, NULL, &managed), UNSUPPORTED);
    assert_null(managed);
    assert_non_null(strstr(loch_error_get()->sentence, "sim:16MiB"));
    const loch_dlpack_export copy = {.size = sizeof copy, .copy = LOCH_DLPACK_COPY};
    CHECK_FAILS(loch_tensor_to_dlpack(simulated, &copy, &managed), UNSUPPORTED);
    assert_int_equal(loch_buffer_get_references(loch_tensor_get_buffer(simulated)), 1);

    float *memory = sim_pinned(device, 64); /* the host reaches it, but it is the simulator's */
    CHECK_OK(loch_tensor_wrap(LOCH_F32, LOCH_SHAPE(16), memory, NULL, &pinned));
    CHECK_FAILS(loch_tensor_to_dlpack(pinned, NULL, &managed), UNSUPPORTED);
    loch_tensor_release(pinned);
    CHECK_OK(loch_raw_free(memory));
    loch_tensor_release(simulated);
    loch_tensor_release(tensor);
    loch_device_release(device);
}

/* A tensor beyond a buffer that has shrunk has no address to give. */
static void a_tensor_whose_buffer_has_shrunk_is_refused(void **state)
{
    (void)state;
    loch_tensor *tensor = rows();
    struct DLManagedTensorVersioned *managed = TEST_UNTOUCHED;
    CHECK_OK(loch_buffer_resize(loch_tensor_get_buffer(tensor), 8, LOCH_CONTENTS_KEEP, NULL));
    CHECK_FAILS(loch_tensor_to_dlpack(tensor, NULL, &managed), OUT_OF_RANGE);
    assert_null(managed);
    assert_int_equal(loch_buffer_get_references(loch_tensor_get_buffer(tensor)), 1);
    loch_tensor_release(tensor);
}

static void *end_there(void *user)
{
    struct DLManagedTensorVersioned *managed = user;
    managed->deleter(managed);
    return NULL;
}

static void deleters_are_called_in_any_thread(void **state)
{
    (void)state;
    enum { THREADS = 8 };
    loch_tensor *tensor = rows();
    pthread_t threads[THREADS];
    for (int i = 0; i < THREADS; i++) {
        struct DLManagedTensorVersioned *managed;
        CHECK_OK(loch_tensor_to_dlpack(tensor, NULL, &managed));
        assert_int_equal(pthread_create(&threads[i], NULL, end_there, managed), 0);
    }
    for (int i = 0; i < THREADS; i++)
        assert_int_equal(pthread_join(threads[i], NULL), 0);
    assert_int_equal(loch_buffer_get_references(loch_tensor_get_buffer(tensor)), 1);
    loch_tensor_release(tensor);
}

/* --- streams: the producer's work is over when the export returns, unless the consumer's stream waits for it --- */

static void the_host_waits_for_the_producer(void **state)
{
    (void)state;
    loch_device *device = sim_open("sim:16MiB,backed");
    loch_stream *producer = sim_stream(device, LOCH_STREAM_INDEPENDENT);
    loch_stream *consumer = sim_stream(device, LOCH_STREAM_INDEPENDENT);
    loch_tensor *tensor = rows();
    struct DLManagedTensorVersioned *managed;
    CHECK_OK(sim_busy(producer, 1000000));
    loch_dlpack_export options = {.size = sizeof options, .producer = producer, .consumer = consumer};
    CHECK_OK(loch_tensor_to_dlpack(tensor, &options, &managed));
    CHECK_STATUS(loch_stream_query(producer), LOCH_E_BUSY);
    CHECK_STATUS(loch_stream_query(consumer), LOCH_E_BUSY); /* it waits behind the producer */
    managed->deleter(managed);

    options.consumer = producer; /* one stream is in order with itself */
    CHECK_OK(loch_tensor_to_dlpack(tensor, &options, &managed));
    CHECK_STATUS(loch_stream_query(producer), LOCH_E_BUSY);
    managed->deleter(managed);

    options.consumer = NULL;
    CHECK_OK(loch_tensor_to_dlpack(tensor, &options, &managed));
    CHECK_OK(loch_stream_query(producer));
    managed->deleter(managed);
    CHECK_OK(loch_stream_sync(consumer));
    loch_tensor_release(tensor);
    CHECK_OK(loch_buffer_collect(LOCH_WAIT_END, NULL));
    loch_stream_close(producer);
    loch_stream_close(consumer);
    loch_device_release(device);
}

/* The receiver lets go while its stream is at work: the memory stays until that has ended. */
static void the_consumers_work_counts_as_a_use(void **state)
{
    (void)state;
    loch_device *device = sim_open("sim:16MiB,backed");
    loch_stream *producer = sim_stream(device, LOCH_STREAM_INDEPENDENT);
    loch_stream *consumer = sim_stream(device, LOCH_STREAM_INDEPENDENT);
    foreign from;
    loch_tensor *tensor;
    struct DLManagedTensorVersioned *managed;
    size_t waiting;
    const loch_dlpack_export options = {.size = sizeof options, .producer = producer, .consumer = consumer};
    CHECK_OK(loch_tensor_from_dlpack(foreign_versioned(&from), NULL, &tensor));
    CHECK_OK(loch_tensor_to_dlpack(tensor, &options, &managed));
    loch_tensor_release(tensor);
    CHECK_OK(sim_busy(consumer, 1000000));
    managed->deleter(managed);
    assert_int_equal(from.ended, 0);
    CHECK_OK(loch_stream_sync(consumer));
    CHECK_OK(loch_buffer_collect(LOCH_WAIT_DEFAULT, &waiting));
    assert_int_equal(waiting, 0);
    assert_int_equal(from.ended, 1);

    /* a stream that was destroyed is not waited for */
    CHECK_OK(loch_tensor_from_dlpack(foreign_versioned(&from), NULL, &tensor));
    CHECK_OK(loch_tensor_to_dlpack(tensor, &options, &managed));
    loch_tensor_release(tensor);
    loch_stream_close(consumer);
    managed->deleter(managed);
    assert_int_equal(from.ended, 1);
    loch_stream_close(producer);
    loch_device_release(device);
}

int main(void)
{
    if (test_heap_install() != LOCH_OK) return 1;
    const struct CMUnitTest tests[] = {
        TENSOR_TEST(an_export_says_what_a_tensor_is),    TENSOR_TEST(an_export_outlives_its_tensor),
        TENSOR_TEST(every_type_goes_out_and_comes_back), TENSOR_TEST(scalars_and_empty_tensors_are_exported),
        TENSOR_TEST(a_copy_is_said_to_be_one),           TENSOR_TEST(read_only_memory_is_exported_so),
        TENSOR_TEST(what_cannot_be_exported_is_refused), TENSOR_TEST(a_tensor_whose_buffer_has_shrunk_is_refused),
        TENSOR_TEST(deleters_are_called_in_any_thread),  TENSOR_TEST(the_host_waits_for_the_producer),
        TENSOR_TEST(the_consumers_work_counts_as_a_use),
    };
    return cmocka_run_group_tests_name("dlpack", tests, NULL, NULL);
}

/* SPDX-License-Identifier: MIT */
/* DLPack: what is said of a tensor, what is believed of a structure, who ends it and when. */
#include "sweep.h"
#include "tensor_fixture.h"
#include "tensor/dlpack_abi.h"
#include <pthread.h>

/* A structure from elsewhere, with a count of its ends. */
typedef struct foreign {
    union {
        struct DLManagedTensorVersioned versioned;
        struct DLManagedTensor legacy;
    } as;
    int64_t shape[LOCH_DIMENSIONS_MAX], strides[LOCH_DIMENSIONS_MAX];
    int ended;
} foreign;

static _Alignas(64) float foreign_data[64];

static void foreign_end_versioned(struct DLManagedTensorVersioned *self)
{
    ((foreign *)self->manager_ctx)->ended++;
}

static void foreign_end_legacy(struct DLManagedTensor *self)
{
    ((foreign *)self->manager_ctx)->ended++;
}

/* 2 rows of 3 floats. */
static struct DLTensor foreign_tensor(foreign *from)
{
    *from = (foreign){.shape = {2, 3}, .strides = {3, 1}};
    return (struct DLTensor){.data = foreign_data,
                             .device = {LOCHI_DL_CPU, 0},
                             .ndim = 2,
                             .dtype = {LOCHI_DL_FLOAT, 32, 1},
                             .shape = from->shape,
                             .strides = from->strides};
}

static struct DLManagedTensorVersioned *foreign_versioned(foreign *from)
{
    const struct DLTensor tensor = foreign_tensor(from);
    from->as.versioned = (struct DLManagedTensorVersioned){
        .version = {1, 0}, .manager_ctx = from, .deleter = foreign_end_versioned, .dl_tensor = tensor};
    return &from->as.versioned;
}

static struct DLManagedTensor *foreign_legacy(foreign *from)
{
    const struct DLTensor tensor = foreign_tensor(from);
    from->as.legacy = (struct DLManagedTensor){.manager_ctx = from, .deleter = foreign_end_legacy, .dl_tensor = tensor};
    return &from->as.legacy;
}

static loch_tensor *rows(void)
{
    loch_tensor *tensor;
    const float numbers[6] = {1, 2, 3, 4, 5, 6};
    CHECK_OK(loch_tensor_create_from(LOCH_F32, LOCH_SHAPE(2, 3), numbers, NULL, &tensor));
    return tensor;
}

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

/* A tensor that goes on to another buffer leaves what was exported alone. */
static void an_export_keeps_its_buffer_when_the_tensor_is_bound_anew(void **state)
{
    (void)state;
    loch_tensor *tensor = rows(), *other = rows();
    struct DLManagedTensorVersioned *managed;
    CHECK_OK(loch_tensor_to_dlpack(tensor, NULL, &managed));
    CHECK_OK(loch_tensor_bind(tensor, loch_tensor_get_buffer(other), 0));
    const float *numbers = managed->dl_tensor.data;
    assert_true(numbers[0] == 1 && numbers[5] == 6); /* not freed: the sanitizer would know */
    managed->deleter(managed);
    loch_tensor_release(tensor);
    loch_tensor_release(other);
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

static void scalars_and_empty_tensors(void **state)
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
    assert_int_equal(loch_buffer_get_references(loch_tensor_get_buffer(tensor)), 2); /* nobody else holds it */
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

static void what_cannot_be_exported(void **state)
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
static void a_tensor_whose_buffer_has_shrunk(void **state)
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

    /* a stream that is gone is nobody's to wait for */
    CHECK_OK(loch_tensor_from_dlpack(foreign_versioned(&from), NULL, &tensor));
    CHECK_OK(loch_tensor_to_dlpack(tensor, &options, &managed));
    loch_tensor_release(tensor);
    loch_stream_close(consumer);
    managed->deleter(managed);
    assert_int_equal(from.ended, 1);
    loch_stream_close(producer);
    loch_device_release(device);
}

/* --- import --- */

static void an_import_shares_and_ends_once(void **state)
{
    (void)state;
    foreign from;
    loch_tensor *tensor, *view;
    void *address;
    CHECK_OK(loch_tensor_from_dlpack(foreign_versioned(&from), NULL, &tensor));
    CHECK_OK(loch_tensor_get_address(tensor, &address));
    assert_ptr_equal(address, foreign_data);
    assert_int_equal(loch_tensor_get_dtype(tensor), LOCH_F32);
    assert_int_equal(loch_tensor_get_size(tensor, 1), 3);
    assert_int_equal(loch_tensor_get_access(tensor), LOCH_READ_WRITE);
    assert_int_equal(loch_buffer_get_bytes(loch_tensor_get_buffer(tensor)), 24);
    CHECK_OK(loch_tensor_index(tensor, 0, 1, &view));
    loch_tensor_release(tensor);
    assert_int_equal(from.ended, 0);
    loch_tensor_release(view);
    assert_int_equal(from.ended, 1);

    CHECK_OK(loch_tensor_from_dlpack_legacy(foreign_legacy(&from), NULL, &tensor));
    CHECK_OK(loch_tensor_get_address(tensor, &address));
    assert_ptr_equal(address, foreign_data);
    loch_tensor_release(tensor);
    assert_int_equal(from.ended, 1);
}

static void a_structure_without_a_deleter(void **state)
{
    (void)state;
    foreign from;
    loch_tensor *tensor;
    foreign_versioned(&from)->deleter = NULL;
    CHECK_OK(loch_tensor_from_dlpack(&from.as.versioned, NULL, &tensor));
    loch_tensor_release(tensor);
    foreign_legacy(&from)->deleter = NULL;
    CHECK_OK(loch_tensor_from_dlpack_legacy(&from.as.legacy, NULL, &tensor));
    loch_tensor_release(tensor);
}

static void an_import_may_copy(void **state)
{
    (void)state;
    const loch_dlpack_import copy = {.size = sizeof copy, .copy = LOCH_DLPACK_COPY};
    foreign from;
    loch_tensor *tensor;
    float numbers[6];
    test_pattern_write(foreign_data, sizeof foreign_data, 5);
    CHECK_OK(loch_tensor_from_dlpack(foreign_versioned(&from), &copy, &tensor));
    assert_int_equal(from.ended, 1);
    CHECK_OK(loch_tensor_read(tensor, numbers, sizeof numbers, NULL));
    assert_memory_equal(numbers, foreign_data, sizeof numbers);
    loch_tensor_release(tensor);
    assert_int_equal(from.ended, 1);

    foreign_versioned(&from)->flags = LOCHI_DL_READ_ONLY;
    CHECK_OK(loch_tensor_from_dlpack(&from.as.versioned, &copy, &tensor));
    assert_int_equal(loch_tensor_get_access(tensor), LOCH_READ_WRITE);
    loch_tensor_release(tensor);
}

static void strides_of_all_kinds(void **state)
{
    (void)state;
    foreign from;
    loch_tensor *tensor;
    void *address;
    float numbers[6];
    for (size_t i = 0; i < 64; i++)
        foreign_data[i] = (float)i;

    foreign_versioned(&from)->dl_tensor.strides = NULL; /* row after row */
    CHECK_OK(loch_tensor_from_dlpack(&from.as.versioned, NULL, &tensor));
    assert_true(loch_tensor_is_contiguous(tensor));
    loch_tensor_release(tensor);

    foreign_versioned(&from); /* backwards, from the middle */
    from.as.versioned.dl_tensor.byte_offset = 10 * sizeof(float);
    from.strides[0] = -5;
    from.strides[1] = 2;
    CHECK_OK(loch_tensor_from_dlpack(&from.as.versioned, NULL, &tensor));
    CHECK_OK(loch_tensor_get_address(tensor, &address));
    assert_ptr_equal(address, foreign_data + 10);
    assert_ptr_equal(loch_buffer_get_address(loch_tensor_get_buffer(tensor)), foreign_data + 5);
    assert_int_equal(loch_buffer_get_bytes(loch_tensor_get_buffer(tensor)), 10 * sizeof(float)); /* 5 to 14 */
    CHECK_OK(loch_tensor_read(tensor, numbers, sizeof numbers, NULL));
    const float expected[6] = {10, 12, 14, 5, 7, 9};
    assert_memory_equal(numbers, expected, sizeof expected);
    loch_tensor_release(tensor);

    foreign_versioned(&from); /* one row, many times */
    from.strides[0] = 0;
    CHECK_OK(loch_tensor_from_dlpack(&from.as.versioned, NULL, &tensor));
    assert_int_equal(loch_buffer_get_bytes(loch_tensor_get_buffer(tensor)), 3 * sizeof(float));
    CHECK_FAILS(loch_tensor_fill(tensor, loch_scalar_of(1), NULL), INVALID);
    loch_tensor_release(tensor);
    assert_int_equal(from.ended, 1);
}

static void read_only_stays_read_only(void **state)
{
    (void)state;
    foreign from;
    loch_tensor *tensor, *again;
    struct DLManagedTensorVersioned *managed;
    foreign_versioned(&from)->flags = LOCHI_DL_READ_ONLY;
    CHECK_OK(loch_tensor_from_dlpack(&from.as.versioned, NULL, &tensor));
    assert_int_equal(loch_tensor_get_access(tensor), LOCH_READ_ONLY);
    CHECK_FAILS(loch_tensor_fill(tensor, loch_scalar_of(1), NULL), INVALID);
    CHECK_OK(loch_tensor_to_dlpack(tensor, NULL, &managed));
    assert_int_equal(managed->flags, LOCHI_DL_READ_ONLY);
    CHECK_OK(loch_tensor_from_dlpack(managed, NULL, &again));
    assert_int_equal(loch_tensor_get_access(again), LOCH_READ_ONLY);
    loch_tensor_release(tensor);
    assert_int_equal(from.ended, 0);
    loch_tensor_release(again);
    assert_int_equal(from.ended, 1);
}

/* Out, in, out, in: the first owner is told last. */
static void a_chain_ends_in_order(void **state)
{
    (void)state;
    enum { LINKS = 20 };
    foreign from;
    loch_tensor *tensor;
    CHECK_OK(loch_tensor_from_dlpack_legacy(foreign_legacy(&from), NULL, &tensor));
    for (int i = 0; i < LINKS; i++) {
        loch_tensor *next;
        if (i % 2) {
            struct DLManagedTensorVersioned *managed;
            CHECK_OK(loch_tensor_to_dlpack(tensor, NULL, &managed));
            CHECK_OK(loch_tensor_from_dlpack(managed, NULL, &next));
        } else {
            struct DLManagedTensor *managed;
            CHECK_OK(loch_tensor_to_dlpack_legacy(tensor, NULL, &managed));
            CHECK_OK(loch_tensor_from_dlpack_legacy(managed, NULL, &next));
        }
        loch_tensor_release(tensor);
        assert_int_equal(from.ended, 0);
        tensor = next;
    }
    loch_tensor_release(tensor);
    assert_int_equal(from.ended, 1);
}

/* One change to a good structure, and what it comes to. The structure stays the caller's. */
typedef struct wrong {
    const char *what;
    void (*change)(foreign *from);
    loch_status status;
} wrong;

#define WRONG(name, ...)                                                                                               \
    static void wrong_##name(foreign *from)                                                                            \
    {                                                                                                                  \
        struct DLTensor *t = &from->as.versioned.dl_tensor;                                                            \
        (void)t;                                                                                                       \
        __VA_ARGS__;                                                                                                   \
    }

WRONG(version_0, from->as.versioned.version.major = 0)
WRONG(version_2, from->as.versioned.version.major = 2)
WRONG(dimensions_below, t->ndim = -1)
WRONG(dimensions_lowest, t->ndim = INT32_MIN)
WRONG(dimensions_above, t->ndim = LOCH_DIMENSIONS_MAX + 1)
WRONG(dimensions_highest, t->ndim = INT32_MAX)
WRONG(no_shape, t->shape = NULL)
WRONG(lanes_0, t->dtype.lanes = 0)
WRONG(lanes_4, t->dtype.lanes = 4)
WRONG(bits_0, t->dtype.bits = 0)
WRONG(bits_4, t->dtype.bits = 4)
WRONG(bits_128, t->dtype.bits = 128)
WRONG(complex_numbers, t->dtype.code = 5; t->dtype.bits = 64)
WRONG(handles, t->dtype.code = 3; t->dtype.bits = 64)
WRONG(bfloat_32, t->dtype.code = LOCHI_DL_BFLOAT)
WRONG(bool_1, t->dtype.code = LOCHI_DL_BOOL; t->dtype.bits = 1)
WRONG(other_float8, t->dtype.code = 8; t->dtype.bits = 8)
WRONG(float4, t->dtype.code = 17; t->dtype.bits = 4)
WRONG(code_255, t->dtype.code = 255)
WRONG(negative_size, from->shape[1] = -3)
WRONG(lowest_size, from->shape[0] = INT64_MIN)
WRONG(too_many, from->shape[0] = INT64_MAX; from->shape[1] = INT64_MAX)
WRONG(too_many_bytes, from->shape[0] = INT64_MAX / 2; from->shape[1] = 1)
WRONG(stride_beyond, from->strides[0] = INT64_MAX)
WRONG(stride_below, from->strides[0] = INT64_MIN)
WRONG(before_all_addresses, from->strides[0] = INT64_MIN / 8)
WRONG(offset_beyond, t->byte_offset = UINT64_MAX - 3)
WRONG(end_beyond, t->byte_offset = UINT64_MAX - (uintptr_t)t->data - 7)
WRONG(no_data, t->data = NULL)
WRONG(odd_data, t->data = (char *)t->data + 2)
WRONG(odd_offset, t->byte_offset = 1)
WRONG(device_0, t->device.device_type = 0)
WRONG(device_rocm, t->device.device_type = 10)
WRONG(device_below, t->device.device_type = -1)
WRONG(cuda_below, t->device.device_type = LOCHI_DL_CUDA; t->device.device_id = -1)

static const wrong wrongs[] = {
#define ONE(name, suffix)                                                                                              \
    {                                                                                                                  \
#name, wrong_##name, LOCH_E_##suffix                                                                           \
    }
    ONE(dimensions_below, INVALID),
    ONE(dimensions_lowest, INVALID),
    ONE(dimensions_above, INVALID),
    ONE(dimensions_highest, INVALID),
    ONE(no_shape, INVALID),
    ONE(lanes_0, UNSUPPORTED),
    ONE(lanes_4, UNSUPPORTED),
    ONE(bits_0, UNSUPPORTED),
    ONE(bits_4, UNSUPPORTED),
    ONE(bits_128, UNSUPPORTED),
    ONE(handles, UNSUPPORTED),
    ONE(complex_numbers, UNSUPPORTED),
    ONE(bfloat_32, UNSUPPORTED),
    ONE(bool_1, UNSUPPORTED),
    ONE(other_float8, UNSUPPORTED),
    ONE(float4, UNSUPPORTED),
    ONE(code_255, UNSUPPORTED),
    ONE(negative_size, INVALID),
    ONE(lowest_size, INVALID),
    ONE(too_many, OVERFLOW),
    ONE(too_many_bytes, OVERFLOW),
    ONE(stride_beyond, OVERFLOW),
    ONE(stride_below, OVERFLOW),
    ONE(offset_beyond, OVERFLOW),
    ONE(before_all_addresses, OVERFLOW),
    ONE(end_beyond, OVERFLOW),
    ONE(no_data, INVALID),
    ONE(odd_data, INVALID),
    ONE(odd_offset, INVALID),
    ONE(device_0, UNSUPPORTED),
    ONE(device_rocm, UNSUPPORTED),
    ONE(device_below, UNSUPPORTED),
    ONE(cuda_below, INVALID),
    ONE(version_0, UNSUPPORTED),
    ONE(version_2, UNSUPPORTED), /* the last two: not of the older structure */
#undef ONE
};

static void what_makes_no_sense_stays_the_callers(void **state)
{
    (void)state;
    const loch_dlpack_import copy = {.size = sizeof copy, .copy = LOCH_DLPACK_COPY};
    const size_t count = sizeof wrongs / sizeof *wrongs;
    for (size_t i = 0; i < count; i++) {
        foreign from;
        loch_tensor *tensor = TEST_UNTOUCHED;
        print_message("%s\n", wrongs[i].what);
        foreign_versioned(&from);
        wrongs[i].change(&from);
        CHECK_FAILS_SET(loch_tensor_from_dlpack(&from.as.versioned, NULL, &tensor), 1u << wrongs[i].status);
        assert_null(tensor);
        CHECK_FAILS_SET(loch_tensor_from_dlpack(&from.as.versioned, &copy, &tensor), 1u << wrongs[i].status);
        assert_int_equal(from.ended, 0);
        if (i >= count - 2) continue;
        const struct DLTensor said = from.as.versioned.dl_tensor;
        from.as.legacy =
            (struct DLManagedTensor){.dl_tensor = said, .manager_ctx = &from, .deleter = foreign_end_legacy};
        tensor = TEST_UNTOUCHED;
        CHECK_FAILS_SET(loch_tensor_from_dlpack_legacy(&from.as.legacy, NULL, &tensor), 1u << wrongs[i].status);
        assert_null(tensor);
        assert_int_equal(from.ended, 0);
    }
}

static void arguments_that_are_missing(void **state)
{
    (void)state;
    foreign from;
    loch_tensor *tensor = TEST_UNTOUCHED;
    const loch_dlpack_import no_size = {.size = 0}, no_copy = {.size = sizeof no_copy, .copy = (loch_dlpack_copy)9};
    CHECK_FAILS(loch_tensor_from_dlpack(NULL, NULL, &tensor), INVALID);
    assert_null(tensor);
    CHECK_FAILS(loch_tensor_from_dlpack(foreign_versioned(&from), NULL, NULL), INVALID);
    CHECK_FAILS(loch_tensor_from_dlpack(&from.as.versioned, &no_size, &tensor), INVALID);
    CHECK_FAILS(loch_tensor_from_dlpack(&from.as.versioned, &no_copy, &tensor), INVALID);
    CHECK_FAILS(loch_tensor_from_dlpack_legacy(NULL, NULL, &tensor), INVALID);
    CHECK_FAILS(loch_tensor_from_dlpack_legacy(foreign_legacy(&from), NULL, NULL), INVALID);
    assert_int_equal(from.ended, 0);
}

/* Minor versions add types and devices, nothing else; members that are not read may be anything. */
static void later_minor_versions_and_unknown_flags(void **state)
{
    (void)state;
    foreign from;
    loch_tensor *tensor;
    foreign_versioned(&from)->version.minor = 99;
    from.as.versioned.flags = ~(uint64_t)LOCHI_DL_READ_ONLY;
    CHECK_OK(loch_tensor_from_dlpack(&from.as.versioned, NULL, &tensor));
    assert_int_equal(loch_tensor_get_access(tensor), LOCH_READ_WRITE);
    loch_tensor_release(tensor);
    assert_int_equal(from.ended, 1);

    foreign_versioned(&from); /* no elements: whatever data says, nobody goes there */
    from.shape[0] = 0;
    from.as.versioned.dl_tensor.data = TEST_UNTOUCHED;
    from.as.versioned.dl_tensor.byte_offset = UINT64_MAX;
    CHECK_OK(loch_tensor_from_dlpack(&from.as.versioned, NULL, &tensor));
    loch_tensor_release(tensor);
    assert_int_equal(from.ended, 1);
}

/* Memory that Loch knows is where Loch knows it to be, and no longer. */
static void memory_that_is_elsewhere_than_said(void **state)
{
    (void)state;
    foreign from;
    loch_tensor *tensor = TEST_UNTOUCHED;
    loch_device *device = sim_open("sim:16MiB,backed"), *cpu = sim_open("cpu");
    char *there = sim_raw(device, 4096), *pinned = sim_pinned(device, 4096);
    foreign_versioned(&from)->dl_tensor.data = there;
    CHECK_FAILS(loch_tensor_from_dlpack(&from.as.versioned, NULL, &tensor), INVALID);
    assert_null(tensor);
    assert_non_null(strstr(loch_error_get()->sentence, "sim:16MiB"));
    from.as.versioned.dl_tensor.data = pinned + 4096 - 24; /* the host's too: its last 24 bytes */
    CHECK_OK(loch_tensor_from_dlpack(&from.as.versioned, NULL, &tensor));
    assert_true(loch_tensor_is_on_host(tensor));
    loch_tensor_release(tensor);
    assert_int_equal(from.ended, 1);
    from.as.versioned.dl_tensor.data = pinned + 4096 - 20;
    CHECK_FAILS(loch_tensor_from_dlpack(&from.as.versioned, NULL, &tensor), OUT_OF_RANGE);
    assert_int_equal(from.ended, 1);
    CHECK_OK(loch_raw_free(there));
    CHECK_OK(loch_raw_free(pinned));
    loch_device_release(device);
    loch_device_release(cpu);
}

/* CUDA memory where there is no CUDA, or memory of the host that is said to be CUDA's. */
static void cuda_is_asked_for(void **state)
{
    (void)state;
    static const int32_t kinds[] = {LOCHI_DL_CUDA, LOCHI_DL_CUDA_HOST, LOCHI_DL_CUDA_MANAGED};
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++) {
        foreign from;
        loch_tensor *tensor = TEST_UNTOUCHED;
        foreign_versioned(&from)->dl_tensor.device = (struct DLDevice){kinds[i], 4096};
        CHECK_FAILS_SET(loch_tensor_from_dlpack(&from.as.versioned, NULL, &tensor),
                        TEST_SET(NOT_FOUND) | TEST_SET(UNSUPPORTED) | TEST_SET(INVALID) | TEST_SET(DRIVER));
        assert_null(tensor);
        assert_int_equal(from.ended, 0);
    }
}

/* An asynchronous copy reads memory of others: they hear of the end only when it has passed. */
static void an_import_stays_until_work_has_passed(void **state)
{
    (void)state;
    foreign from;
    loch_tensor *tensor, *target;
    float numbers[6];
    size_t waiting = 0;
    loch_device *device = sim_open("sim:16MiB,backed");
    loch_stream *stream = sim_stream(device, LOCH_STREAM_INDEPENDENT);
    float *pinned = sim_pinned(device, 64); /* memory that is not pinned is read before the call returns */
    for (int i = 0; i < 6; i++)
        pinned[i] = (float)i;
    foreign_versioned(&from)->dl_tensor.data = pinned;
    const loch_tensor_options there = {.size = sizeof there, .device = device, .stream = stream};
    const loch_tensor_copy_options queued = {.size = sizeof queued, .stream = stream, .wait = LOCH_WAIT_QUEUED};
    CHECK_OK(loch_tensor_create(LOCH_F32, LOCH_SHAPE(2, 3), &there, &target));
    CHECK_OK(loch_tensor_from_dlpack(&from.as.versioned, NULL, &tensor));
    CHECK_OK(sim_busy(stream, 1000000));
    CHECK_OK(loch_tensor_copy(target, tensor, &queued));
    loch_tensor_release(tensor);
    assert_int_equal(from.ended, 0);
    CHECK_OK(loch_buffer_collect(LOCH_WAIT_DEFAULT, &waiting));
    assert_int_equal(from.ended, 0);
    assert_int_equal(waiting, 1);
    CHECK_OK(loch_stream_sync(stream));
    CHECK_OK(loch_buffer_collect(LOCH_WAIT_DEFAULT, &waiting));
    assert_int_equal(waiting, 0);
    assert_int_equal(from.ended, 1);
    CHECK_OK(loch_tensor_read(target, numbers, sizeof numbers, stream));
    assert_memory_equal(numbers, pinned, sizeof numbers);
    loch_tensor_release(target);
    CHECK_OK(loch_raw_free(pinned));
    loch_stream_close(stream);
    loch_device_release(device);
}

/* --- no host memory --- */

/* What is tried while host memory fails. */
typedef enum passing { IMPORT, IMPORT_A_COPY, EXPORT, EXPORT_A_COPY } passing;

typedef struct passed {
    passing how;
    loch_tensor *tensor;
} passed;

static void pass_while_failing(test_round *round, const void *user)
{
    const loch_dlpack_import copy = {.size = sizeof copy, .copy = LOCH_DLPACK_COPY};
    const loch_dlpack_export copied = {.size = sizeof copied, .copy = LOCH_DLPACK_COPY};
    const passed *it = user;
    foreign from;
    loch_tensor *imported = NULL;
    struct DLManagedTensorVersioned *managed = NULL;
    foreign_versioned(&from);
    test_round_begin(round, NULL);
    const loch_status status = it->how == IMPORT ? loch_tensor_from_dlpack(&from.as.versioned, NULL, &imported)
                               : it->how == IMPORT_A_COPY
                                   ? loch_tensor_from_dlpack(&from.as.versioned, &copy, &imported)
                               : it->how == EXPORT ? loch_tensor_to_dlpack(it->tensor, NULL, &managed)
                                                   : loch_tensor_to_dlpack(it->tensor, &copied, &managed);
    test_round_end(round);
    round->is_felt = status != LOCH_OK;
    if (status != LOCH_OK) {
        assert_int_equal(status, LOCH_E_HOST_MEMORY);
        assert_int_equal(from.ended, 0);
        assert_null(imported);
        assert_null(managed);
    }
    loch_tensor_release(imported);
    if (managed) managed->deleter(managed);
    assert_int_equal(loch_buffer_get_references(loch_tensor_get_buffer(it->tensor)), 1);
}

static void without_host_memory_nothing_changes_hands(void **state)
{
    (void)state;
    loch_device *cpu = sim_open("cpu");
    loch_tensor *tensor = rows(), *clone;
    CHECK_OK(loch_tensor_clone(tensor, NULL, &clone)); /* what is made once is there */
    loch_tensor_release(clone);
    for (passing how = IMPORT; how <= EXPORT_A_COPY; how++) {
        const passed it = {how, tensor};
        (void)test_rounds_run(&test_host_faults, "dlpack", pass_while_failing, &it);
    }
    loch_tensor_release(tensor);
    loch_device_release(cpu);
}

int main(void)
{
    if (test_heap_install() != LOCH_OK) return 1;
    const struct CMUnitTest tests[] = {
        TENSOR_TEST(an_export_says_what_a_tensor_is),
        TENSOR_TEST(an_export_outlives_its_tensor),
        TENSOR_TEST(an_export_keeps_its_buffer_when_the_tensor_is_bound_anew),
        TENSOR_TEST(every_type_goes_out_and_comes_back),
        TENSOR_TEST(scalars_and_empty_tensors),
        TENSOR_TEST(a_copy_is_said_to_be_one),
        TENSOR_TEST(read_only_memory_is_exported_so),
        TENSOR_TEST(what_cannot_be_exported),
        TENSOR_TEST(a_tensor_whose_buffer_has_shrunk),
        TENSOR_TEST(deleters_are_called_in_any_thread),
        TENSOR_TEST(the_host_waits_for_the_producer),
        TENSOR_TEST(the_consumers_work_counts_as_a_use),
        TENSOR_TEST(an_import_shares_and_ends_once),
        TENSOR_TEST(a_structure_without_a_deleter),
        TENSOR_TEST(an_import_may_copy),
        TENSOR_TEST(strides_of_all_kinds),
        TENSOR_TEST(read_only_stays_read_only),
        TENSOR_TEST(a_chain_ends_in_order),
        TENSOR_TEST(what_makes_no_sense_stays_the_callers),
        TENSOR_TEST(arguments_that_are_missing),
        TENSOR_TEST(later_minor_versions_and_unknown_flags),
        TENSOR_TEST(memory_that_is_elsewhere_than_said),
        TENSOR_TEST(cuda_is_asked_for),
        TENSOR_TEST(an_import_stays_until_work_has_passed),
        TENSOR_TEST(without_host_memory_nothing_changes_hands),
    };
    return cmocka_run_group_tests_name("dlpack", tests, NULL, NULL);
}

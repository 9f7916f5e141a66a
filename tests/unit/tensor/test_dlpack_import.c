/* SPDX-License-Identifier: MIT */
/* Imports by DLPack: which structures are accepted, when their deleter runs, and failing host memory. */
#include "dlpack_fixture.h"

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

static void a_structure_without_a_deleter_is_imported(void **state)
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

static void strides_of_all_kinds_are_imported(void **state)
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

static void missing_arguments_are_refused(void **state)
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
static void later_minor_versions_and_unknown_flags_are_accepted(void **state)
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

    foreign_versioned(&from); /* no elements: data is never accessed */
    from.shape[0] = 0;
    from.as.versioned.dl_tensor.data = TEST_UNTOUCHED;
    from.as.versioned.dl_tensor.byte_offset = UINT64_MAX;
    CHECK_OK(loch_tensor_from_dlpack(&from.as.versioned, NULL, &tensor));
    loch_tensor_release(tensor);
    assert_int_equal(from.ended, 1);
}

/* Memory that Loch knows is where Loch knows it to be, and no longer. */
static void memory_that_is_elsewhere_than_said_is_refused(void **state)
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

/* An asynchronous copy reads memory of another library: its deleter runs only when the copy has ended. */
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
        TENSOR_TEST(an_import_shares_and_ends_once),
        TENSOR_TEST(a_structure_without_a_deleter_is_imported),
        TENSOR_TEST(an_import_may_copy),
        TENSOR_TEST(strides_of_all_kinds_are_imported),
        TENSOR_TEST(read_only_stays_read_only),
        TENSOR_TEST(a_chain_ends_in_order),
        TENSOR_TEST(what_makes_no_sense_stays_the_callers),
        TENSOR_TEST(missing_arguments_are_refused),
        TENSOR_TEST(later_minor_versions_and_unknown_flags_are_accepted),
        TENSOR_TEST(memory_that_is_elsewhere_than_said_is_refused),
        TENSOR_TEST(cuda_is_asked_for),
        TENSOR_TEST(an_import_stays_until_work_has_passed),
        TENSOR_TEST(without_host_memory_nothing_changes_hands),
    };
    return cmocka_run_group_tests_name("dlpack", tests, NULL, NULL);
}

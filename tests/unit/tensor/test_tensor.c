/* SPDX-License-Identifier: MIT */
/* Tensors: making, binding, what they say of themselves, and every way in which they must not be made. */
#include "tensor_fixture.h"
#include "tensor/tensor.h"

static void a_tensor_is_made_as_the_options_say(void **state)
{
    (void)state;
    loch_device *device = sim_open("sim:64MiB,backed");
    loch_tag tag;
    CHECK_OK(loch_tag_create("weights", &tag));
    const loch_tensor_options options = {.size = sizeof options, .device = device, .tag = tag, .name = "w"};
    loch_tensor *tensor;
    CHECK_OK(loch_tensor_create(LOCH_BF16, LOCH_SHAPE(4, 3, 5), &options, &tensor));
    assert_int_equal(loch_tensor_get_dtype(tensor), LOCH_BF16);
    assert_int_equal(loch_tensor_get_dimensions(tensor), 3);
    assert_int_equal(loch_tensor_get_elements(tensor), 60);
    assert_int_equal(loch_tensor_get_bytes(tensor), 120);
    assert_int_equal(loch_tensor_get_size(tensor, 0), 4);
    assert_int_equal(loch_tensor_get_size(tensor, -1), 5);
    assert_int_equal(loch_tensor_get_size(tensor, 3), -1);
    assert_int_equal(loch_tensor_get_size(tensor, -4), -1);
    assert_int_equal(loch_tensor_get_strides(tensor)[0], 15);
    assert_int_equal(loch_tensor_get_strides(tensor)[2], 1);
    assert_ptr_equal(loch_tensor_get_device(tensor), device);
    assert_false(loch_tensor_is_on_host(tensor));
    assert_true(loch_tensor_is_contiguous(tensor));
    assert_string_equal(loch_tensor_get_name(tensor), "w");
    loch_allocator *allocator = tensor_allocator(device);
    loch_stats stats = {.size = sizeof stats};
    CHECK_OK(loch_allocator_get_tag_stats(allocator, tag, &stats));
    assert_int_equal(stats.requested_bytes, 120);
    loch_allocator_release(allocator);
    loch_tensor *moved = loch_tensor_take(&tensor);
    assert_null(tensor);
    loch_tensor_clear(&tensor);
    loch_tensor_release(loch_tensor_retain(moved));
    assert_int_equal(atomic_load(&moved->references), 1);
    loch_tensor_clear(&moved);
    assert_null(moved);
    loch_device_release(device);
}

/* Seed 003: numel of a scalar was 0, and a dimension of 0 divided by it. */
static void scalars_and_empty_tensors_are_made(void **state)
{
    (void)state;
    loch_tensor *scalar, *empty, *view;
    void *address;
    CHECK_OK(loch_tensor_create(LOCH_F32, LOCH_SCALAR, NULL, &scalar));
    assert_int_equal(loch_tensor_get_elements(scalar), 1);
    assert_int_equal(loch_tensor_get_bytes(scalar), 4);
    assert_true(loch_tensor_is_contiguous(scalar));
    CHECK_OK(loch_tensor_get_address(scalar, &address));
    assert_non_null(address);
    CHECK_OK(loch_tensor_create(LOCH_F32, LOCH_SHAPE(3, 0, 2), NULL, &empty));
    assert_int_equal(loch_tensor_get_elements(empty), 0);
    assert_true(loch_tensor_is_contiguous(empty));
    CHECK_OK(loch_tensor_get_address(empty, &address));
    assert_null(address);
    CHECK_OK(loch_tensor_view(empty, LOCH_SHAPE(0, 7), &view));
    loch_tensor_release(view);
    CHECK_OK(loch_tensor_slice(empty, 0, -1, LOCH_OPEN, 1, &view));
    assert_int_equal(loch_tensor_get_size(view, 0), 1);
    loch_tensor_release(view);
    CHECK_FAILS(loch_tensor_view(empty, LOCH_SHAPE(0, -1), &view), INVALID);
    CHECK_FAILS(loch_tensor_index(empty, 1, 0, &view), OUT_OF_RANGE);
    loch_tensor_release(scalar);
    loch_tensor_release(empty);
}

/* Seeds 000 and 003 counted elements in 32 bits and did not check products. */
static void sizes_that_overflow_are_refused(void **state)
{
    (void)state;
    loch_tensor *tensor = TEST_UNTOUCHED;
    CHECK_FAILS(loch_tensor_create(LOCH_F32, LOCH_SHAPE(-1), NULL, &tensor), INVALID);
    assert_null(tensor);
    CHECK_FAILS(loch_tensor_create(LOCH_F32, LOCH_SHAPE(INT64_MAX), NULL, &tensor), OVERFLOW);
    CHECK_FAILS(loch_tensor_create(LOCH_F64, LOCH_SHAPE((int64_t)1 << 60), NULL, &tensor), OVERFLOW);
    CHECK_FAILS(loch_tensor_create(LOCH_I8, LOCH_SHAPE((int64_t)1 << 32, (int64_t)1 << 31), NULL, &tensor), OVERFLOW);
    CHECK_FAILS(loch_tensor_create(LOCH_I8, LOCH_SHAPE((int64_t)1 << 33, (int64_t)1 << 33, 0), NULL, &tensor),
                OVERFLOW);
    CHECK_FAILS(loch_tensor_create(LOCH_DTYPE_NONE, LOCH_SHAPE(1), NULL, &tensor), INVALID);
    CHECK_FAILS(loch_tensor_create(LOCH_DTYPE_COUNT, LOCH_SHAPE(1), NULL, &tensor), INVALID);
    const int64_t ones[17] = {1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1};
    CHECK_FAILS(loch_tensor_create(LOCH_F32, 17, ones, NULL, &tensor), INVALID);
    CHECK_FAILS(loch_tensor_create(LOCH_F32, 2, NULL, NULL, &tensor), INVALID);
    CHECK_FAILS(loch_tensor_create(LOCH_F32, 0, NULL, NULL, NULL), INVALID);
    CHECK_OK(loch_tensor_create(LOCH_F32, 16, ones, NULL, &tensor));
    loch_tensor *view;
    CHECK_FAILS(loch_tensor_unsqueeze(tensor, 0, &view), INVALID);
    loch_tensor_release(tensor);
    /* more than 2^31 elements, with memory that is never touched */
    loch_device *device = sim_open("sim:140GiB");
    const loch_tensor_options options = {.size = sizeof options, .device = device};
    CHECK_OK(loch_tensor_create(LOCH_F16, LOCH_SHAPE(3, (int64_t)1 << 32), &options, &tensor));
    CHECK_OK(loch_tensor_index(tensor, 0, -1, &view));
    assert_true(loch_tensor_get_offset(view) == (size_t)1 << 34);
    loch_tensor_release(view);
    loch_tensor_release(tensor);
    loch_device_release(device);
}

static void bad_options_are_refused(void **state)
{
    (void)state;
    loch_device *cpu = sim_open("cpu"), *device = sim_open("sim:64MiB,backed");
    loch_allocator *allocator = tensor_allocator(cpu);
    loch_tensor *tensor;
    loch_tensor_options options = {.size = sizeof options, .allocator = allocator, .device = device};
    CHECK_FAILS(loch_tensor_create(LOCH_F32, LOCH_SHAPE(1), &options, &tensor), INVALID);
    options = (loch_tensor_options){0};
    CHECK_FAILS(loch_tensor_create(LOCH_F32, LOCH_SHAPE(1), &options, &tensor), INVALID);
    char name[LOCH_TENSOR_NAME_MAX + 1];
    memset(name, 'n', sizeof name);
    name[LOCH_TENSOR_NAME_MAX] = '\0';
    options = (loch_tensor_options){.size = sizeof options, .name = name};
    CHECK_FAILS(loch_tensor_create(LOCH_F32, LOCH_SHAPE(1), &options, &tensor), INVALID);
    name[LOCH_TENSOR_NAME_MAX - 1] = '\0';
    CHECK_OK(loch_tensor_create(LOCH_F32, LOCH_SHAPE(1), &options, &tensor));
    assert_string_equal(loch_tensor_get_name(tensor), name);
    loch_tensor_release(tensor);
    options = (loch_tensor_options){.size = sizeof options, .alignment = 3};
    CHECK_FAILS(loch_tensor_create(LOCH_F32, LOCH_SHAPE(1), &options, &tensor), INVALID);
    loch_allocator_release(allocator);
    loch_device_release(device);
    loch_device_release(cpu);
}

static void a_tensor_lies_on_a_part_of_a_buffer(void **state)
{
    (void)state;
    loch_buffer *buffer;
    CHECK_OK(loch_buffer_create_for_device(NULL, 96, NULL, &buffer));
    loch_tensor *tensor;
    void *address;
    CHECK_OK(loch_tensor_create_in(buffer, 0, LOCH_F32, LOCH_SHAPE(24), NULL, &tensor));
    loch_tensor_release(tensor);
    CHECK_FAILS(loch_tensor_create_in(buffer, 0, LOCH_F32, LOCH_SHAPE(25), NULL, &tensor), OUT_OF_RANGE);
    CHECK_FAILS(loch_tensor_create_in(buffer, 4, LOCH_F32, LOCH_SHAPE(24), NULL, &tensor), OUT_OF_RANGE);
    CHECK_FAILS(loch_tensor_create_in(buffer, 100, LOCH_F32, LOCH_SHAPE(1), NULL, &tensor), OUT_OF_RANGE);
    CHECK_FAILS(loch_tensor_create_in(buffer, SIZE_MAX - 3, LOCH_F32, LOCH_SHAPE(1), NULL, &tensor), OUT_OF_RANGE);
    CHECK_FAILS(loch_tensor_create_in(buffer, 2, LOCH_F32, LOCH_SHAPE(1), NULL, &tensor), INVALID);
    CHECK_FAILS(loch_tensor_create_in(NULL, 0, LOCH_F32, LOCH_SHAPE(1), NULL, &tensor), INVALID);
    /* negative strides reach before the first element */
    const int64_t backwards[] = {-4, 1};
    CHECK_OK(loch_tensor_create_in(buffer, 80, LOCH_F32, LOCH_SHAPE(6, 4), backwards, &tensor));
    CHECK_OK(loch_tensor_get_address(tensor, &address));
    assert_ptr_equal(address, (char *)loch_buffer_get_address(buffer) + 80);
    loch_tensor_release(tensor);
    CHECK_FAILS(loch_tensor_create_in(buffer, 76, LOCH_F32, LOCH_SHAPE(6, 4), backwards, &tensor), OUT_OF_RANGE);
    CHECK_FAILS(loch_tensor_create_in(buffer, 84, LOCH_F32, LOCH_SHAPE(6, 4), backwards, &tensor), OUT_OF_RANGE);
    const int64_t huge[] = {INT64_MIN, INT64_MAX};
    CHECK_FAILS(loch_tensor_create_in(buffer, 0, LOCH_F32, LOCH_SHAPE(6, 4), huge, &tensor), OVERFLOW);
    /* a stride that is never used may have any value */
    CHECK_OK(loch_tensor_create_in(buffer, 0, LOCH_F32, LOCH_SHAPE(1, 1), huge, &tensor));
    loch_tensor *view;
    CHECK_OK(loch_tensor_view(tensor, LOCH_SHAPE(1), &view));
    loch_tensor_release(view);
    CHECK_OK(loch_tensor_view_as(tensor, LOCH_U8, &view));
    loch_tensor_release(view);
    CHECK_OK(loch_tensor_unsqueeze(tensor, 0, &view));
    loch_tensor_release(view);
    loch_tensor_release(tensor);
    CHECK_OK(loch_tensor_create_in(buffer, 0, LOCH_F32, LOCH_SHAPE(0, 9), huge, &tensor));
    CHECK_OK(loch_tensor_index(tensor, 1, 8, &view));
    loch_tensor_release(view);
    CHECK_OK(loch_tensor_slice(tensor, 1, 8, LOCH_OPEN, -2, &view));
    loch_tensor_release(view);
    loch_tensor_release(tensor);
    loch_buffer_release(buffer);
}

/* Views follow the buffer's memory when a resize moves it, and say so when it no longer holds them. */
static void views_follow_their_buffer(void **state)
{
    (void)state;
    loch_buffer *buffer, *blocker;
    loch_tensor *tensor, *view;
    CHECK_OK(loch_buffer_create_for_device(NULL, 4096, NULL, &buffer));
    CHECK_OK(loch_buffer_create_for_device(NULL, 4096, NULL, &blocker));
    CHECK_OK(loch_tensor_create_in(buffer, 0, LOCH_I32, LOCH_SHAPE(32, 32), NULL, &tensor));
    CHECK_OK(loch_tensor_index(tensor, 0, 31, &view));
    void *address;
    CHECK_OK(loch_tensor_get_address(view, &address));
    *(int32_t *)address = 77;
    CHECK_OK(loch_buffer_resize(buffer, 40 * TEST_MIB, LOCH_CONTENTS_KEEP, NULL));
    void *after;
    CHECK_OK(loch_tensor_get_address(view, &after));
    assert_ptr_not_equal(after, address);
    assert_int_equal(*(int32_t *)after, 77);
    CHECK_OK(loch_buffer_resize(buffer, 4000, LOCH_CONTENTS_KEEP, NULL));
    CHECK_FAILS(loch_tensor_get_address(view, &after), OUT_OF_RANGE);
    assert_null(after);
    loch_tensor *first;
    CHECK_OK(loch_tensor_index(tensor, 0, 0, &first)); /* what is left is still there */
    loch_tensor_release(first);
    CHECK_FAILS(loch_tensor_index(tensor, 0, 31, &first), OUT_OF_RANGE);
    loch_tensor_release(view);
    loch_tensor_release(tensor);
    loch_buffer_release(blocker);
    loch_buffer_release(buffer);
}

static void memory_from_outside_is_wrapped_and_deleted_once(void **state)
{
    (void)state;
    double memory[4] = {1, 2, 3, 4};
    tensor_deletions deletions = {0};
    const loch_external external = {
        .size = sizeof external, .deleter = tensor_delete, .user = &deletions, .access = LOCH_READ_ONLY};
    loch_tensor *tensor, *view;
    CHECK_FAILS(loch_tensor_wrap(LOCH_F64, LOCH_SHAPE(3), (char *)memory + 4, &external, &tensor), INVALID);
    CHECK_FAILS(loch_tensor_wrap(LOCH_F64, LOCH_SHAPE(-3), memory, &external, &tensor), INVALID);
    CHECK_FAILS(loch_tensor_wrap(LOCH_F64, LOCH_SHAPE(3), NULL, &external, &tensor), INVALID);
    assert_int_equal(deletions.count, 0); /* still the caller's */
    CHECK_OK(loch_tensor_wrap(LOCH_F64, LOCH_SHAPE(2, 2), memory, &external, &tensor));
    assert_int_equal(loch_tensor_get_access(tensor), LOCH_READ_ONLY);
    CHECK_OK(loch_tensor_index(tensor, 0, 1, &view));
    loch_tensor_release(tensor);
    assert_int_equal(deletions.count, 0);
    assert_int_equal(loch_tensor_get_access(view), LOCH_READ_ONLY);
    loch_tensor_release(view);
    assert_int_equal(deletions.count, 1);
    assert_int_equal(deletions.bytes, sizeof memory);
}

static void null_has_answers_that_do_no_harm(void **state)
{
    (void)state;
    void *address;
    assert_int_equal(loch_tensor_get_dtype(NULL), LOCH_DTYPE_NONE);
    assert_int_equal(loch_tensor_get_dimensions(NULL), 0);
    assert_non_null(loch_tensor_get_shape(NULL));
    assert_non_null(loch_tensor_get_strides(NULL));
    assert_int_equal(loch_tensor_get_elements(NULL), 0);
    assert_int_equal(loch_tensor_get_bytes(NULL), 0);
    assert_int_equal(loch_tensor_get_size(NULL, 0), -1);
    assert_null(loch_tensor_get_buffer(NULL));
    assert_null(loch_tensor_get_device(NULL));
    assert_false(loch_tensor_is_contiguous(NULL));
    assert_false(loch_tensor_is_on_host(NULL));
    assert_string_equal(loch_tensor_get_name(NULL), "");
    assert_int_equal(loch_tensor_get_offset(NULL), 0);
    CHECK_FAILS(loch_tensor_get_address(NULL, &address), INVALID);
    assert_null(loch_tensor_retain(NULL));
    loch_tensor_release(NULL);
    loch_tensor_clear(NULL);
    assert_null(loch_tensor_take(NULL));
}

/* A part that a resize cut off holds no tensor; if it did, the part might come back where no element may lie. */
static void a_tensor_on_a_part_that_was_cut_off_is_refused(void **state)
{
    (void)state;
    loch_buffer *whole, *part;
    loch_tensor *tensor;
    CHECK_OK(loch_buffer_create_for_device(NULL, 64, NULL, &whole));
    CHECK_OK(loch_buffer_slice(whole, 33, 16, &part));
    CHECK_FAILS(loch_tensor_create_in(part, 0, LOCH_F32, LOCH_SHAPE(4), NULL, &tensor), INVALID);
    CHECK_OK(loch_buffer_resize(whole, 32, LOCH_CONTENTS_KEEP, NULL));
    CHECK_FAILS(loch_tensor_create_in(part, 0, LOCH_F32, LOCH_SHAPE(4), NULL, &tensor), OUT_OF_RANGE);
    loch_buffer_release(part);
    loch_buffer_release(whole);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        TENSOR_TEST(a_tensor_is_made_as_the_options_say), TENSOR_TEST(scalars_and_empty_tensors_are_made),
        TENSOR_TEST(sizes_that_overflow_are_refused),     TENSOR_TEST(bad_options_are_refused),
        TENSOR_TEST(a_tensor_lies_on_a_part_of_a_buffer), TENSOR_TEST(a_tensor_on_a_part_that_was_cut_off_is_refused),
        TENSOR_TEST(views_follow_their_buffer),           TENSOR_TEST(memory_from_outside_is_wrapped_and_deleted_once),
        TENSOR_TEST(null_has_answers_that_do_no_harm),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

/* SPDX-License-Identifier: MIT */
/* Buffers and tensors on every device: what is copied between any layouts, types and places is what a plain loop over
 * the elements on the host makes of it, and memory lives until the work that uses it has ended. */
#include "bed.h"

#define ELEMENTS_MAX 6000

/* --- a tensor and what it should hold --- */

/* Numbers that every type of the list holds exactly. */
static const loch_dtype types[] = {LOCH_F64, LOCH_F32, LOCH_F16, LOCH_BF16, LOCH_I8, LOCH_I16, LOCH_I32, LOCH_I64};
#define TYPES (sizeof types / sizeof *types)

static loch_dtype random_type(test_random *random)
{
    return types[test_random_below(random, TYPES)];
}

static loch_tensor *make_filled(loch_device *device, loch_dtype dtype, size_t axes, const int64_t *shape, int64_t first)
{
    int8_t values[ELEMENTS_MAX];
    loch_tensor *small, *typed, *out;
    size_t count = 1;
    for (size_t i = 0; i < axes; i++)
        count *= (size_t)shape[i];
    assert_true(count <= ELEMENTS_MAX);
    for (size_t i = 0; i < count; i++)
        values[i] = (int8_t)((first + (int64_t)i * 7) % 100);
    CHECK_OK(loch_tensor_create_from(LOCH_I8, axes, shape, values, NULL, &small));
    CHECK_OK(loch_tensor_to(small, dtype, NULL, &typed));
    const loch_tensor_options there = {.size = sizeof there, .device = device};
    CHECK_OK(loch_tensor_create(dtype, axes, shape, &there, &out));
    CHECK_OK(loch_tensor_write(out, count ? loch_buffer_get_address(loch_tensor_get_buffer(typed)) : NULL,
                               loch_tensor_get_bytes(typed), NULL));
    loch_tensor_release(small);
    loch_tensor_release(typed);
    return out;
}

/* The elements as numbers, in the order of the indices; needs no strided copy: reads the whole buffer and walks it. */
static void read_plainly(loch_tensor *tensor, double *out)
{
    loch_buffer *buffer = loch_tensor_get_buffer(tensor);
    const size_t bytes = loch_buffer_get_bytes(buffer), axes = loch_tensor_get_dimensions(tensor);
    const size_t element_bytes = loch_dtype_bytes(loch_tensor_get_dtype(tensor));
    char *host = malloc(bytes + 1);
    assert_non_null(host);
    CHECK_OK(loch_copy(host, loch_buffer_get_address(buffer), bytes));
    int64_t indices[LOCH_DIMENSIONS_MAX] = {0};
    for (size_t i = 0; i < loch_tensor_get_elements(tensor); i++) {
        int64_t at = 0;
        for (size_t axis = 0; axis < axes; axis++)
            at += indices[axis] * loch_tensor_get_strides(tensor)[axis];
        loch_scalar value;
        const char *element = host + (int64_t)loch_tensor_get_offset(tensor) + at * (int64_t)element_bytes;
        CHECK_OK(loch_scalar_load(loch_tensor_get_dtype(tensor), element, &value));
        out[i] = value.dtype == LOCH_F64 ? value.value.f : (double)value.value.i;
        for (size_t axis = axes; axis > 0; axis--) {
            if (++indices[axis - 1] < loch_tensor_get_shape(tensor)[axis - 1]) break;
            indices[axis - 1] = 0;
        }
    }
    free(host);
}

static void check_equal(const test_bed *bed, loch_tensor *a, loch_tensor *b)
{
    static double left[ELEMENTS_MAX], right[ELEMENTS_MAX];
    if (!bed->has_data) return;
    read_plainly(a, left);
    read_plainly(b, right);
    for (size_t i = 0; i < loch_tensor_get_elements(a); i++)
        assert_true(left[i] == right[i]);
}

/* --- random layouts --- */

typedef struct layout_plan {
    size_t axes;
    int64_t shape[4];
} layout_plan;

/* A tensor with the shape of the plan, as a view of a larger one: padded, stepped, turned, with axes exchanged. */
static loch_tensor *make_view(test_random *random, loch_device *device, loch_dtype dtype, const layout_plan *plan,
                              int64_t first)
{
    int64_t large[4];
    int order[4] = {0}, inverse[4] = {0};
    for (size_t i = 0; i < plan->axes; i++)
        order[i] = (int)i;
    for (size_t i = plan->axes; i > 1; i--) {
        const size_t j = test_random_below(random, i);
        const int held = order[i - 1];
        order[i - 1] = order[j];
        order[j] = held;
    }
    size_t steps[4] = {0}, pads[4] = {0};
    for (size_t i = 0; i < plan->axes; i++) {
        inverse[order[i]] = (int)i;
        steps[i] = test_random_below(random, 3) ? 1 : 2;
        pads[i] = test_random_below(random, 3);
        large[i] = plan->shape[order[i]] * (int64_t)steps[i] + (int64_t)pads[i];
    }
    loch_tensor *tensor = make_filled(device, dtype, plan->axes, large, first), *view;
    for (size_t i = 0; i < plan->axes; i++) {
        const int64_t size = plan->shape[order[i]], step = (int64_t)steps[i];
        const bool turns = test_random_below(random, 4) == 0;
        const int64_t start = turns ? (size - 1) * step : (int64_t)pads[i];
        if (turns)
            CHECK_OK(loch_tensor_slice(tensor, (int)i, start, LOCH_OPEN, -step, &view));
        else
            CHECK_OK(loch_tensor_slice(tensor, (int)i, start, start + size * step, step, &view));
        loch_tensor_release(tensor);
        tensor = view;
    }
    CHECK_OK(loch_tensor_permute(tensor, plan->axes, inverse, &view));
    loch_tensor_release(tensor);
    return view;
}

static layout_plan random_plan(test_random *random)
{
    layout_plan plan = {.axes = test_random_below(random, 4)};
    for (size_t i = 0; i < plan.axes; i++)
        plan.shape[i] = 1 + (int64_t)test_random_below(random, 7);
    if (plan.axes == 3 && test_random_below(random, 10) == 0) plan.shape[1] = 40;
    return plan;
}

/* --- tests --- */

static void copies_of_any_layout_are_right(void **state)
{
    const test_bed *bed = *state;
    test_random random = {test_seed(0xc0b1e5)};
    for (size_t round = 0; round < 120; round++) {
        const layout_plan plan = random_plan(&random);
        const loch_dtype from_type = random_type(&random);
        const loch_dtype to_type = test_random_below(&random, 2) ? from_type : random_type(&random);
        const size_t where = 1 + test_random_below(&random, 3); /* bit 0: from the device, bit 1: to the device */
        loch_tensor *from = make_view(&random, where & 1 ? bed->device : NULL, from_type, &plan, 1);
        loch_tensor *to = make_view(&random, where & 2 ? bed->device : NULL, to_type, &plan, 50);
        CHECK_OK(loch_tensor_copy(to, from, NULL));
        check_equal(bed, to, from);
        loch_tensor_release(to);
        loch_tensor_release(from);
    }
    test_end_defaults();
}

/* What lies between the elements of a strided target stays as it was. */
static void copies_leave_gaps_alone(void **state)
{
    const test_bed *bed = *state;
    if (!bed->has_data) return;
    loch_tensor *whole = make_filled(bed->device, LOCH_F32, 2, (int64_t[]){20, 30}, 3), *part, *source;
    static double before[600], after[600];
    read_plainly(whole, before);
    CHECK_OK(loch_tensor_slice(whole, 1, 4, 25, 3, &part));
    source = make_filled(NULL, LOCH_F32, 2, (int64_t[]){20, 7}, 77);
    CHECK_OK(loch_tensor_copy(part, source, NULL));
    check_equal(bed, part, source);
    CHECK_OK(loch_tensor_fill(part, loch_scalar_of(-3), NULL));
    read_plainly(whole, after);
    for (size_t i = 0; i < 600; i++) {
        const size_t column = i % 30;
        const bool is_in = column >= 4 && column < 25 && (column - 4) % 3 == 0;
        assert_true(after[i] == (is_in ? -3 : before[i]));
    }
    loch_tensor_release(part);
    loch_tensor_release(source);
    loch_tensor_release(whole);
    test_end_defaults();
}

static void fills_of_any_layout_are_right(void **state)
{
    const test_bed *bed = *state;
    test_random random = {test_seed(0xf111)};
    static double seen[ELEMENTS_MAX];
    for (size_t i = 0; i < 40; i++) {
        const layout_plan plan = random_plan(&random);
        loch_tensor *tensor = make_view(&random, bed->device, types[i % TYPES], &plan, 0);
        CHECK_OK(loch_tensor_fill(tensor, loch_scalar_of(-37), NULL));
        if (bed->has_data) read_plainly(tensor, seen);
        for (size_t j = 0; bed->has_data && j < loch_tensor_get_elements(tensor); j++)
            assert_true(seen[j] == -37);
        loch_tensor_release(tensor);
    }
    test_end_defaults();
}

/* Copies that shift a tensor over itself read what was there before. */
static void copies_between_overlapping_views_are_right(void **state)
{
    const test_bed *bed = *state;
    if (!bed->has_data) return;
    for (int64_t shift = -3; shift <= 3; shift++) {
        loch_tensor *whole = make_filled(bed->device, LOCH_I32, 2, (int64_t[]){40, 25}, 3), *to, *from, *kept;
        CHECK_OK(loch_tensor_slice(whole, 0, 5, 35, 1, &from));
        CHECK_OK(loch_tensor_slice(whole, 0, 5 + shift, 35 + shift, 1, &to));
        CHECK_OK(loch_tensor_clone(from, NULL, &kept));
        CHECK_OK(loch_tensor_copy(to, from, NULL));
        check_equal(bed, to, kept);
        loch_tensor_release(kept);
        loch_tensor_release(to);
        loch_tensor_release(from);
        /* columns onto their neighbours */
        CHECK_OK(loch_tensor_slice(whole, 1, 5, 15, 1, &from));
        CHECK_OK(loch_tensor_slice(whole, 1, 5 + shift, 15 + shift, 1, &to));
        CHECK_OK(loch_tensor_clone(from, NULL, &kept));
        CHECK_OK(loch_tensor_copy(to, from, NULL));
        check_equal(bed, to, kept);
        loch_tensor_release(kept);
        loch_tensor_release(to);
        loch_tensor_release(from);
        loch_tensor_release(whole);
    }
    test_end_defaults();
}

/* Both sides are released as soon as the copy was queued, and their memory is used for something else at once. */
static void tensors_may_be_released_while_they_are_copied(void **state)
{
    const test_bed *bed = *state;
    loch_stream *stream, *other;
    CHECK_OK(loch_stream_create(bed->device, NULL, &stream));
    CHECK_OK(loch_stream_create(bed->device, NULL, &other));
    const loch_tensor_copy_options copy = {.size = sizeof copy, .stream = stream};
    const loch_tensor_options there = {.size = sizeof there, .device = bed->device, .stream = other};
    for (size_t round = 0; round < 20; round++) {
        loch_tensor *from = make_filled(bed->device, LOCH_F32, 2, (int64_t[]){64, 64}, (int64_t)round), *middle, *to,
                    *turned;
        loch_tensor *expected = make_filled(NULL, LOCH_F32, 2, (int64_t[]){64, 64}, (int64_t)round);
        CHECK_OK(loch_device_sync(bed->device));
        CHECK_OK(loch_tensor_create(LOCH_F32, LOCH_SHAPE(64, 64), &there, &middle));
        CHECK_OK(loch_tensor_create(LOCH_F32, LOCH_SHAPE(64, 64), &there, &to));
        CHECK_OK(loch_device_sync(bed->device));
        CHECK_OK(loch_tensor_copy(middle, from, &copy));
        loch_tensor_release(from);
        CHECK_OK(loch_tensor_copy(to, middle, &copy));
        loch_tensor_release(middle);
        loch_tensor *scribble; /* on another stream: may get the memory only when the copies are done */
        CHECK_OK(loch_tensor_create(LOCH_F32, LOCH_SHAPE(64, 64), &there, &scribble));
        CHECK_OK(loch_tensor_fill(scribble, loch_scalar_of(-1), other));
        loch_tensor_release(scribble);
        CHECK_OK(loch_stream_sync(stream));
        CHECK_OK(loch_tensor_transpose(to, 0, 1, &turned));
        loch_tensor *back;
        CHECK_OK(loch_tensor_transpose(turned, 0, 1, &back));
        check_equal(bed, back, expected);
        loch_tensor_release(back);
        loch_tensor_release(turned);
        loch_tensor_release(to);
        loch_tensor_release(expected);
        CHECK_OK(loch_device_sync(bed->device));
    }
    loch_stream_close(stream);
    loch_stream_close(other);
    test_end_defaults();
}

static void count_deletion(void *address, size_t bytes, void *user)
{
    (void)address, (void)bytes;
    ++*(size_t *)user;
}

/* Host memory from outside is given back when the copy that reads it has ended, not before. */
static void host_memory_stays_until_its_copy_has_ended(void **state)
{
    const test_bed *bed = *state;
    loch_stream *stream;
    CHECK_OK(loch_stream_create(bed->device, NULL, &stream));
    size_t deleted = 0;
    const loch_external external = {.size = sizeof external, .deleter = count_deletion, .user = &deleted};
    const loch_tensor_copy_options copy = {.size = sizeof copy, .stream = stream};
    float *memory = malloc(TEST_MIB);
    assert_non_null(memory);
    for (size_t i = 0; i < TEST_MIB / 4; i++)
        memory[i] = (float)i;
    const loch_tensor_options there = {.size = sizeof there, .device = bed->device, .stream = stream};
    loch_tensor *from, *to;
    CHECK_OK(loch_tensor_wrap(LOCH_F32, LOCH_SHAPE((int64_t)TEST_MIB / 4), memory, &external, &from));
    CHECK_OK(loch_tensor_create(LOCH_F32, LOCH_SHAPE((int64_t)TEST_MIB / 4), &there, &to));
    CHECK_OK(loch_tensor_copy(to, from, &copy));
    loch_tensor_release(from);
    CHECK_OK(loch_stream_sync(stream));
    CHECK_OK(loch_buffer_collect(LOCH_WAIT_QUEUED, NULL));
    assert_int_equal(deleted, 1);
    memset(memory, 0, TEST_MIB);
    loch_scalar last;
    CHECK_OK(loch_tensor_read_item(to, LOCH_SHAPE(-1), NULL, &last));
    if (bed->has_data) assert_true(last.value.f == 262143); /* a MiB has that many floats, and one */
    loch_tensor_release(to);
    free(memory);
    loch_stream_close(stream);
    test_end_defaults();
}

static void a_mapping_shows_and_takes_contents(void **state)
{
    const test_bed *bed = *state;
    loch_tensor *tensor = make_filled(bed->device, LOCH_F32, 2, (int64_t[]){8, 8}, 5), *turned;
    CHECK_OK(loch_tensor_transpose(tensor, 0, 1, &turned));
    loch_mapping mapping;
    CHECK_OK(loch_tensor_map(turned, LOCH_MAP_READ_WRITE, NULL, &mapping));
    float *elements = mapping.address;
    for (int64_t i = 0; i < 8; i++)
        for (int64_t j = 0; j < 8; j++)
            elements[i * mapping.strides[0] + j * mapping.strides[1]] = (float)(10 * i + j);
    CHECK_OK(loch_tensor_unmap(&mapping, NULL));
    loch_scalar value;
    CHECK_OK(loch_tensor_read_item(tensor, LOCH_SHAPE(3, 6), NULL, &value));
    if (bed->has_data) assert_true(value.value.f == 63);
    loch_tensor_release(turned);
    loch_tensor_release(tensor);
    test_end_defaults();
}

static void a_tensor_is_printed_from_the_device(void **state)
{
    const test_bed *bed = *state;
    loch_tensor *tensor = make_filled(bed->device, LOCH_I32, 2, (int64_t[]){2, 3}, 5);
    char text[200];
    size_t length;
    CHECK_OK(loch_tensor_print(tensor, NULL, text, sizeof text, &length));
    if (bed->has_data) assert_string_equal(text, "[[ 5 12 19]\n [26 33 40]]");
    loch_tensor_release(tensor);
    test_end_defaults();
}

/* A pool of buffers and a workspace, shared by two streams. */
static void scratch_memory_comes_in_the_order_of_streams(void **state)
{
    const test_bed *bed = *state;
    loch_allocator *allocator;
    loch_buffer_pool *pool;
    loch_stream *streams[2];
    CHECK_OK(loch_device_acquire_allocator(bed->device, (loch_attributes){0}, LOCH_FALLBACK_NONE, &allocator));
    CHECK_OK(loch_buffer_pool_create(allocator, NULL, &pool));
    for (size_t i = 0; i < 2; i++)
        CHECK_OK(loch_stream_create(bed->device, NULL, &streams[i]));
    for (uint32_t i = 0; i < 40; i++) {
        loch_buffer *buffer;
        loch_stream *stream = streams[i % 3 == 0];
        CHECK_OK(loch_buffer_pool_acquire(pool, TEST_MIB, stream, &buffer));
        CHECK_OK(loch_buffer_fill(buffer, &i, sizeof i, stream));
        uint32_t seen = 0;
        const loch_copy_options read = {.size = sizeof read, .stream = stream, .wait = LOCH_WAIT_END};
        const char *last = (const char *)loch_buffer_get_address(buffer) + TEST_MIB - 4;
        if (i % 5 == 0) CHECK_OK(loch_copy_with(&seen, last, 4, &read));
        if (i % 5 == 0 && bed->has_data) assert_int_equal(seen, i);
        CHECK_OK(loch_buffer_pool_release(pool, buffer, stream));
    }
    CHECK_OK(loch_device_sync(bed->device));
    loch_workspace *workspace;
    CHECK_OK(loch_workspace_create(allocator, streams[0], NULL, &workspace));
    for (size_t bytes = 1000; bytes < TEST_MIB; bytes *= 2) {
        loch_buffer *buffer;
        CHECK_OK(loch_workspace_acquire(workspace, bytes, &buffer));
        assert_true(loch_buffer_get_bytes(buffer) >= bytes);
        CHECK_OK(loch_buffer_fill(buffer, "x", 1, streams[0]));
        loch_buffer_release(buffer);
    }
    loch_workspace_destroy(workspace);
    loch_buffer_pool_destroy(pool);
    for (size_t i = 0; i < 2; i++)
        loch_stream_close(streams[i]);
    loch_allocator_release(allocator);
    test_end_defaults();
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(copies_of_any_layout_are_right),
        cmocka_unit_test(copies_leave_gaps_alone),
        cmocka_unit_test(fills_of_any_layout_are_right),
        cmocka_unit_test(copies_between_overlapping_views_are_right),
        cmocka_unit_test(tensors_may_be_released_while_they_are_copied),
        cmocka_unit_test(host_memory_stays_until_its_copy_has_ended),
        cmocka_unit_test(a_mapping_shows_and_takes_contents),
        cmocka_unit_test(a_tensor_is_printed_from_the_device),
        cmocka_unit_test(scratch_memory_comes_in_the_order_of_streams),
    };
    return TEST_BED_RUN(tests);
}

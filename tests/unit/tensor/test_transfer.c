/* SPDX-License-Identifier: MIT */
/* Copies and fills of tensors between any layouts, types and devices, against a loop over all elements. */
#include "base/sanitize.h"
#include "sim_fixture.h"
#include "tensor/convert/convert.h"
#include "tensor/tensor.h"
#include <loch/registry.h>

/* A simulated device remembers every row of a copy, which is slow under sanitizers; nothing here is about threads. */
#if LOCHI_TSAN
#define ROUNDS(count) ((count) / 25)
#define PIECES_CASES 1
#elif LOCHI_ASAN
#define ROUNDS(count) ((count) / 5)
#define PIECES_CASES 2
#else
#define ROUNDS(count) (count)
#define PIECES_CASES 3
#endif

#define AXES_MAX 5
#define MARGIN 32 /* elements around a layout */

/* The devices of a test, and what belongs to them. */
typedef struct bed {
    loch_device *devices[3]; /* cpu and two simulated ones */
    loch_stream *streams[3];
} bed;

static void bed_open(bed *b, const char *options)
{
    char name[96];
    b->devices[0] = sim_open("cpu");
    for (int i = 1; i < 3; i++) {
        snprintf(name, sizeof name, "sim:64MiB,backed,id=%d%s", i, options);
        b->devices[i] = sim_open(name);
    }
    for (int i = 0; i < 3; i++)
        b->streams[i] = sim_stream(b->devices[i], LOCH_STREAM_INDEPENDENT);
}

static void bed_close(bed *b)
{
    test_end_defaults();
    for (int i = 0; i < 3; i++)
        loch_stream_close(b->streams[i]);
    for (int i = 1; i < 3; i++) {
        loch_sim_violation violation;
        if (sim_violations(b->devices[i], &violation)) fail_msg("%s", violation.text);
    }
    for (int i = 0; i < 3; i++)
        loch_device_release(b->devices[i]);
}

/* --- a side of a copy: a view on a buffer, and what the buffer should hold --- */

typedef struct side {
    loch_buffer *buffer;
    loch_tensor *tensor;
    unsigned char *mirror;
    size_t bytes;
} side;

static unsigned char *side_first(const side *s)
{
    return s->mirror + loch_tensor_get_offset(s->tensor);
}

static void side_view(side *s, loch_dtype dtype, size_t axes, const int64_t *shape, const int64_t *strides,
                      size_t extra)
{
    lochi_layout layout;
    CHECK_OK(lochi_layout_make(dtype, axes, shape, strides, &layout));
    const size_t offset = layout.below + extra * layout.element_bytes;
    CHECK_OK(loch_tensor_create_in(s->buffer, offset, dtype, axes, shape, strides, &s->tensor));
}

static void side_make_buffer(side *s, loch_device *device, size_t bytes, uint64_t seed)
{
    s->bytes = bytes;
    CHECK_OK(loch_buffer_create_for_device(device, bytes, NULL, &s->buffer));
    s->mirror = malloc(bytes);
    test_pattern_write(s->mirror, bytes, seed);
    CHECK_OK(loch_copy(loch_buffer_get_address(s->buffer), s->mirror, bytes));
}

static void side_open(side *s, loch_device *device, loch_dtype dtype, size_t axes, const int64_t *shape,
                      const int64_t *strides, uint64_t seed)
{
    lochi_layout layout;
    CHECK_OK(lochi_layout_make(dtype, axes, shape, strides, &layout));
    side_make_buffer(s, device, layout.below + layout.above + 2 * MARGIN * layout.element_bytes, seed);
    side_view(s, dtype, axes, shape, strides, MARGIN);
}

static void side_expect(const side *s, const char *what, uint64_t seed)
{
    unsigned char *now = malloc(s->bytes);
    CHECK_OK(loch_copy(now, loch_buffer_get_address(s->buffer), s->bytes));
    for (size_t i = 0; i < s->bytes; i++)
        if (now[i] != s->mirror[i])
            fail_msg("%s, seed %llu: byte %zu of %zu is %02x and not %02x", what, (unsigned long long)seed, i, s->bytes,
                     now[i], s->mirror[i]);
    free(now);
}

static void side_close(side *s)
{
    loch_tensor_release(s->tensor);
    loch_buffer_release(s->buffer);
    free(s->mirror);
}

static ptrdiff_t layout_offset(const lochi_layout *layout, const size_t *index)
{
    ptrdiff_t offset = 0;
    for (size_t i = 0; i < layout->dimensions; i++)
        offset += (ptrdiff_t)index[i] * (ptrdiff_t)layout->strides[i];
    return offset * (ptrdiff_t)layout->element_bytes;
}

static bool next_index(const lochi_layout *layout, size_t *index)
{
    for (size_t i = layout->dimensions; i-- > 0;) {
        if (++index[i] < (size_t)layout->shape[i]) return true;
        index[i] = 0;
    }
    return false;
}

/* What a copy makes of the target's mirror; `from` is the source as it was before. */
static void naive(const side *to, const side *from, const unsigned char *from_mirror, loch_overflow overflow)
{
    const lochi_layout *target = &to->tensor->layout, *source = &from->tensor->layout;
    const lochi_converter converter = lochi_convert_find(target->dtype, source->dtype, overflow);
    const unsigned char *first = from_mirror + loch_tensor_get_offset(from->tensor);
    size_t index[LOCH_DIMENSIONS_MAX] = {0};
    do {
        unsigned char *element = side_first(to) + layout_offset(target, index);
        if (target->dtype == source->dtype) /* bits stay as they are */
            memcpy(element, first + layout_offset(source, index), target->element_bytes);
        else
            lochi_convert_run(&converter, element, first + layout_offset(source, index), 1);
    } while (next_index(target, index));
}

/* --- random layouts --- */

static void random_shape(test_random *random, size_t *axes, int64_t *shape)
{
    *axes = test_random_below(random, AXES_MAX + 1);
    size_t room = 1 + test_random_below(random, 3000);
    for (size_t i = 0; i < *axes; i++) {
        shape[i] = 1 + (int64_t)test_random_below(random, room < 40 ? room : 40);
        room /= (size_t)shape[i];
    }
}

static void random_strides(test_random *random, size_t axes, const int64_t *shape, bool may_repeat, int64_t *strides)
{
    size_t order[AXES_MAX];
    int64_t next = 1;
    for (size_t i = 0; i < axes; i++)
        order[i] = i;
    for (size_t i = axes; i-- > 1 && test_random_below(random, 3) == 0;) {
        const size_t other = test_random_below(random, i + 1), kept = order[i];
        order[i] = order[other];
        order[other] = kept;
    }
    for (size_t i = axes; i-- > 0;) {
        const size_t axis = order[i];
        if (test_random_below(random, 3) == 0) next += (int64_t)test_random_below(random, 4);
        strides[axis] = next;
        next *= shape[axis];
        if (test_random_below(random, 6) == 0) strides[axis] = -strides[axis];
        if (may_repeat && test_random_below(random, 10) == 0) strides[axis] = 0;
    }
}

static loch_dtype random_type(test_random *random)
{
    return (loch_dtype)(1 + test_random_below(random, LOCH_DTYPE_COUNT - 1));
}

static loch_tensor_copy_options random_options(test_random *random, const bed *b, size_t to, size_t from)
{
    const loch_wait waits[] = {LOCH_WAIT_DEFAULT, LOCH_WAIT_QUEUED, LOCH_WAIT_END};
    loch_tensor_copy_options options = {.size = sizeof options, .wait = waits[test_random_below(random, 3)]};
    options.overflow = test_random_below(random, 2) ? LOCH_OVERFLOW_SATURATE : LOCH_OVERFLOW_SPECIAL;
    const size_t which = test_random_below(random, 3);
    if (which) options.stream = b->streams[which == 1 ? to : from];
    if (!options.stream) options.wait = LOCH_WAIT_DEFAULT;
    return options;
}

static void any_layouts_types_and_devices_are_copied_right(void **state)
{
    (void)state;
    test_random random = {test_seed(701)};
    bed b;
    bed_open(&b, "");
    for (int i = 0; i < ROUNDS(700); i++) {
        const uint64_t seed = random.state;
        const size_t to_at = test_random_below(&random, 3), from_at = test_random_below(&random, 3);
        size_t axes;
        int64_t shape[AXES_MAX], to_strides[AXES_MAX], from_strides[AXES_MAX];
        const loch_dtype type = random_type(&random), other = i % 2 ? type : random_type(&random);
        side to, from;
        random_shape(&random, &axes, shape);
        random_strides(&random, axes, shape, false, to_strides);
        random_strides(&random, axes, shape, true, from_strides);
        side_open(&to, b.devices[to_at], type, axes, shape, to_strides, 1);
        side_open(&from, b.devices[from_at], other, axes, shape, from_strides, seed);
        const loch_tensor_copy_options options = random_options(&random, &b, to_at, from_at);
        CHECK_OK(loch_tensor_copy(to.tensor, from.tensor, &options));
        if (options.stream) CHECK_OK(loch_stream_sync(options.stream));
        naive(&to, &from, from.mirror, options.overflow);
        side_expect(&to, "copy", seed);
        side_expect(&from, "source", seed);
        side_close(&to);
        side_close(&from);
    }
    bed_close(&b);
}

/* Bytes that a layout needs, with room to lie a little further on. */
static size_t reach(loch_dtype dtype, size_t axes, const int64_t *shape, const int64_t *strides)
{
    lochi_layout layout;
    CHECK_OK(lochi_layout_make(dtype, axes, shape, strides, &layout));
    return layout.below + layout.above + 50 * layout.element_bytes;
}

/* Two views of one buffer: what is read is what was there before. */
static void copies_between_views_of_one_buffer_are_right(void **state)
{
    (void)state;
    test_random random = {test_seed(702)};
    bed b;
    bed_open(&b, "");
    for (int i = 0; i < ROUNDS(400); i++) {
        const uint64_t seed = random.state;
        const size_t at = test_random_below(&random, 2);
        const loch_dtype type = random_type(&random);
        loch_dtype other = random_type(&random);
        if (i % 3 || loch_dtype_bytes(other) != loch_dtype_bytes(type)) other = type;
        size_t axes;
        int64_t shape[AXES_MAX], to_strides[AXES_MAX], from_strides[AXES_MAX];
        random_shape(&random, &axes, shape);
        random_strides(&random, axes, shape, false, to_strides);
        random_strides(&random, axes, shape, true, from_strides);
        if (i % 4 == 0) memcpy(from_strides, to_strides, sizeof to_strides); /* columns, rows, itself */
        side to, from;
        side_make_buffer(&to, b.devices[at],
                         reach(type, axes, shape, to_strides) + reach(other, axes, shape, from_strides), seed);
        from = to;
        side_view(&to, type, axes, shape, to_strides, test_random_below(&random, 50));
        side_view(&from, other, axes, shape, from_strides, test_random_below(&random, 50));
        unsigned char *before = malloc(to.bytes);
        memcpy(before, to.mirror, to.bytes);
        const loch_tensor_copy_options options = random_options(&random, &b, at, at);
        CHECK_OK(loch_tensor_copy(to.tensor, from.tensor, &options));
        if (options.stream) CHECK_OK(loch_stream_sync(options.stream));
        naive(&to, &from, before, options.overflow);
        side_expect(&to, "shared", seed);
        free(before);
        loch_tensor_release(from.tensor);
        side_close(&to);
    }
    bed_close(&b);
}

/* --- life --- */

/* Both sides are released right after a copy was queued; a view on the target's buffer tells whether it happened. */
static void tensors_released_right_after_a_copy_was_queued_stay(void **state)
{
    (void)state;
    bed b;
    bed_open(&b, ",clock=stepped,lag=1000");
    const int64_t shape[] = {100, 64}, wide[] = {128, 1};
    for (int i = 0; i < 6; i++) {
        const size_t from_at = i % 2 ? 1 : 2;
        side to, from;
        side_open(&to, b.devices[1], LOCH_F32, 2, shape, wide, 1);
        side_open(&from, b.devices[from_at], LOCH_F32, 2, shape, NULL, 2);
        naive(&to, &from, from.mirror, LOCH_OVERFLOW_SATURATE);
        const loch_tensor_copy_options options = {.size = sizeof options, .stream = b.streams[1]};
        CHECK_OK(loch_tensor_copy(to.tensor, from.tensor, &options));
        CHECK_STATUS(loch_stream_query(b.streams[1]), LOCH_E_BUSY);
        loch_tensor_release(from.tensor);
        loch_buffer_release(from.buffer);
        loch_tensor_clear(&to.tensor);
        loch_buffer *reuse; /* memory that the queued copy must not lose */
        CHECK_OK(loch_buffer_create_for_device(b.devices[from_at], from.bytes, NULL, &reuse));
        CHECK_OK(loch_fill(loch_buffer_get_address(reuse), loch_buffer_get_bytes(reuse) / 4 * 4, "abcd", 4));
        CHECK_OK(loch_stream_sync(b.streams[1]));
        side_expect(&to, "released", (uint64_t)i);
        loch_buffer_release(reuse);
        loch_buffer_release(to.buffer);
        free(to.mirror);
        free(from.mirror);
    }
    bed_close(&b);
}

/* --- calls --- */

static uint64_t copies_of(loch_device *device)
{
    return test_call_count(device, "copy") + test_call_count(device, "copy_pitched") +
           test_call_count(device, "copy_strided");
}

static uint64_t copies_for(bed *b, size_t to_at, size_t from_at, size_t axes, const int64_t *shape,
                           const int64_t *to_strides, const int64_t *from_strides)
{
    side to, from;
    side_open(&to, b->devices[to_at], LOCH_F32, axes, shape, to_strides, 1);
    side_open(&from, b->devices[from_at], LOCH_F32, axes, shape, from_strides, 2);
    const uint64_t before = copies_of(b->devices[1]);
    CHECK_OK(loch_tensor_copy(to.tensor, from.tensor, NULL));
    const uint64_t calls = copies_of(b->devices[1]) - before;
    naive(&to, &from, from.mirror, LOCH_OVERFLOW_SATURATE);
    side_expect(&to, "calls", 0);
    side_close(&to);
    side_close(&from);
    return calls;
}

static void copies_of_rows_take_few_driver_calls(void **state)
{
    (void)state;
    bed b;
    bed_open(&b, "");
    const int64_t rows[] = {1000, 64}, wide[] = {100, 1};
    assert_int_equal(copies_for(&b, 1, 1, 2, rows, NULL, wide), 1);
    assert_int_equal(copies_for(&b, 1, 0, 2, rows, wide, NULL), 1);
    assert_int_equal(copies_for(&b, 0, 1, 2, rows, wide, wide), 1);
    const int64_t column[] = {5000, 1}, apart[] = {7, 1};
    assert_int_equal(copies_for(&b, 1, 1, 2, column, apart, NULL), 1);
    const int64_t deep[] = {20, 30, 40}, gaps[] = {40 * 32, 40, 1};
    assert_int_equal(copies_for(&b, 1, 1, 3, deep, gaps, NULL), 1);
    const int64_t cube[] = {10, 11, 12, 13}, holes[] = {13 * 14 * 15 * 16, 14 * 15, 15, 1};
    assert_true(copies_for(&b, 1, 1, 4, cube, holes, NULL) <= 10);
    const int64_t square[] = {300, 300}, turned[] = {1, 300};
    assert_true(copies_for(&b, 1, 1, 2, square, NULL, turned) <= 300);
    assert_true(copies_for(&b, 0, 1, 2, square, NULL, turned) <= 2); /* read whole, turned by the host */
    assert_true(copies_for(&b, 1, 0, 2, square, NULL, turned) <= 2);
    bed_close(&b);
}

/* More than a piece of staging, with rows, and both ways. */
static void conversions_in_several_pieces_are_right(void **state)
{
    (void)state;
    bed b;
    bed_open(&b, "");
    const int64_t shape[] = {3, 1100, 900}, padded[] = {1100 * 1000, 1000, 1}, turned[] = {1, 900 * 3, 3};
    for (int i = 0; i < PIECES_CASES; i++) {
        side to, from;
        side_open(&to, b.devices[i == 0 ? 1 : 0], LOCH_U16, 3, shape, padded, 1);
        side_open(&from, b.devices[i == 1 ? 1 : i == 2 ? 2 : 0], LOCH_I32, 3, shape, i == 2 ? turned : NULL, 2);
        CHECK_OK(loch_tensor_copy(to.tensor, from.tensor, NULL));
        naive(&to, &from, from.mirror, LOCH_OVERFLOW_SATURATE);
        side_expect(&to, "pieces", (uint64_t)i);
        side_close(&to);
        side_close(&from);
    }
    bed_close(&b);
}

/* --- fills --- */

static void fills_of_any_layout_are_right(void **state)
{
    (void)state;
    test_random random = {test_seed(703)};
    bed b;
    bed_open(&b, "");
    for (int i = 0; i < ROUNDS(300); i++) {
        const uint64_t seed = random.state;
        const size_t at = test_random_below(&random, 2);
        const loch_dtype type = random_type(&random);
        const loch_scalar values[] = {loch_scalar_of(0), loch_scalar_of(-1), loch_scalar_of(1.5),
                                      loch_scalar_of((long long)0x0102030405060708)};
        const loch_scalar value = values[test_random_below(&random, 4)];
        size_t axes;
        int64_t shape[AXES_MAX], strides[AXES_MAX];
        side to;
        random_shape(&random, &axes, shape);
        random_strides(&random, axes, shape, false, strides);
        side_open(&to, b.devices[at], type, axes, shape, strides, 1);
        loch_stream *stream = test_random_below(&random, 2) ? b.streams[at] : NULL;
        CHECK_OK(loch_tensor_fill(to.tensor, value, stream));
        if (stream) CHECK_OK(loch_stream_sync(stream));
        unsigned char element[8];
        CHECK_OK(loch_scalar_store(value, type, element));
        size_t index[LOCH_DIMENSIONS_MAX] = {0};
        do
            memcpy(side_first(&to) + layout_offset(&to.tensor->layout, index), element, loch_dtype_bytes(type));
        while (next_index(&to.tensor->layout, index));
        side_expect(&to, "fill", seed);
        side_close(&to);
    }
    bed_close(&b);
}

static void a_fill_of_many_rows_is_few_calls(void **state)
{
    (void)state;
    bed b;
    bed_open(&b, "");
    const int64_t shape[] = {1000, 64}, wide[] = {100, 1};
    side to;
    side_open(&to, b.devices[1], LOCH_I64, 2, shape, wide, 1);
    const uint64_t before = copies_of(b.devices[1]);
    CHECK_OK(loch_tensor_fill(to.tensor, loch_scalar_of(0x1122334455667788), NULL));
    assert_true(copies_of(b.devices[1]) - before <= 1 + 6 + 10);
    side_close(&to);
    bed_close(&b);
}

/* --- what is refused --- */

static void bad_requests_are_refused(void **state)
{
    (void)state;
    bed b;
    bed_open(&b, "");
    const int64_t shape[] = {4, 5}, other[] = {5, 4}, flat[] = {20}, none[] = {3, 0, 2}, still[] = {0, 1};
    side to, from, turned, line;
    side_open(&to, b.devices[1], LOCH_F32, 2, shape, NULL, 1);
    side_open(&from, b.devices[0], LOCH_F32, 2, shape, NULL, 1);
    side_open(&turned, b.devices[0], LOCH_F32, 2, other, NULL, 1);
    side_open(&line, b.devices[0], LOCH_F32, 1, flat, NULL, 1);
    CHECK_FAILS(loch_tensor_copy(to.tensor, turned.tensor, NULL), INVALID);
    CHECK_FAILS(loch_tensor_copy(to.tensor, line.tensor, NULL), INVALID);
    CHECK_FAILS(loch_tensor_copy(NULL, from.tensor, NULL), INVALID);
    CHECK_FAILS(loch_tensor_copy(to.tensor, NULL, NULL), INVALID);
    loch_tensor_copy_options options = {.size = sizeof options, .stream = b.streams[2]};
    CHECK_FAILS(loch_tensor_copy(to.tensor, from.tensor, &options), INVALID);
    options = (loch_tensor_copy_options){.size = sizeof options, .wait = (loch_wait)9};
    CHECK_FAILS(loch_tensor_copy(to.tensor, from.tensor, &options), INVALID);
    options = (loch_tensor_copy_options){.size = sizeof options, .overflow = (loch_overflow)9};
    CHECK_FAILS(loch_tensor_copy(to.tensor, from.tensor, &options), INVALID);
    CHECK_FAILS(loch_tensor_fill(NULL, loch_scalar_of(1), NULL), INVALID);
    CHECK_FAILS(loch_tensor_fill(to.tensor, loch_scalar_of(1), b.streams[2]), INVALID);
    loch_tensor *folded, *empty;
    CHECK_OK(loch_tensor_create_in(to.buffer, 0, LOCH_F32, 2, shape, still, &folded));
    CHECK_FAILS(loch_tensor_copy(folded, from.tensor, NULL), INVALID);
    CHECK_FAILS(loch_tensor_fill(folded, loch_scalar_of(1), NULL), INVALID);
    CHECK_OK(loch_tensor_copy(from.tensor, folded, NULL));
    CHECK_OK(loch_tensor_create_in(to.buffer, 0, LOCH_F32, 3, none, NULL, &empty));
    CHECK_OK(loch_tensor_copy(empty, empty, NULL));
    CHECK_OK(loch_tensor_fill(empty, loch_scalar_of(1), NULL));
    static char constant[80];
    const loch_external outside = {.size = sizeof outside, .access = LOCH_READ_ONLY};
    loch_tensor *fixed;
    CHECK_OK(loch_tensor_wrap(LOCH_F32, 2, shape, constant, &outside, &fixed));
    CHECK_FAILS(loch_tensor_copy(fixed, from.tensor, NULL), INVALID);
    CHECK_FAILS(loch_tensor_fill(fixed, loch_scalar_of(1), NULL), INVALID);
    CHECK_OK(loch_tensor_copy(to.tensor, fixed, NULL));
    side_expect(&turned, "bad asking", 0);
    loch_tensor_release(fixed);
    loch_tensor_release(empty);
    loch_tensor_release(folded);
    side_close(&to);
    side_close(&from);
    side_close(&turned);
    side_close(&line);
    bed_close(&b);
}

/* Pinned memory that was freed behind queued work is not what the next copy through the host writes to, before that
 * work has ended. */
static void staging_waits_for_its_memory(void **state)
{
    (void)state;
    loch_device *device = sim_open("sim:64MiB,backed,clock=stepped");
    loch_stream *stream = sim_stream(device, LOCH_STREAM_INDEPENDENT), *usual = loch_stream_get_default(device);
    loch_allocator *pinned;
    const loch_attributes attributes = {.bits = LOCH_ATTRIBUTE_ON_HOST | LOCH_ATTRIBUTE_GPU_COMPATIBLE};
    CHECK_OK(loch_device_acquire_allocator(device, attributes, LOCH_FALLBACK_NONE, &pinned));
    const loch_tensor_options from_pinned = {.size = sizeof from_pinned, .allocator = pinned};
    const loch_tensor_options on_stream = {.size = sizeof on_stream, .device = device, .stream = stream};
    const loch_tensor_options on_device = {.size = sizeof on_device, .device = device};
    const loch_tensor_copy_options queued = {.size = sizeof queued, .stream = usual};
    loch_tensor *source, *target, *numbers, *converted;
    CHECK_OK(loch_tensor_create(LOCH_F32, LOCH_SHAPE(4096), &from_pinned, &source));
    CHECK_OK(loch_tensor_fill(source, loch_scalar_of(7), NULL));
    CHECK_OK(loch_tensor_create(LOCH_F32, LOCH_SHAPE(4096), &on_device, &target));
    CHECK_OK(sim_busy(usual, 1000000));
    CHECK_OK(loch_tensor_copy(target, source, &queued));
    loch_tensor_release(source);
    CHECK_OK(loch_tensor_create(LOCH_I32, LOCH_SHAPE(4096), NULL, &numbers));
    CHECK_OK(loch_tensor_fill(numbers, loch_scalar_of(1), NULL));
    CHECK_OK(loch_tensor_to(numbers, LOCH_F32, &on_stream, &converted));
    CHECK_OK(loch_device_sync(device));
    loch_scalar value;
    CHECK_OK(loch_tensor_read_item(target, LOCH_SHAPE(0), NULL, &value));
    assert_true(value.value.f == 7);
    CHECK_OK(loch_tensor_read_item(converted, LOCH_SHAPE(-1), NULL, &value));
    assert_true(value.value.f == 1);
    loch_tensor_release(converted);
    loch_tensor_release(numbers);
    loch_tensor_release(target);
    loch_allocator_release(pinned);
    test_end_defaults();
    assert_int_equal(sim_violations(device, NULL), 0);
    loch_stream_close(stream);
    loch_device_release(device);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        SIM_TEST(any_layouts_types_and_devices_are_copied_right),
        SIM_TEST(copies_between_views_of_one_buffer_are_right),
        SIM_TEST(tensors_released_right_after_a_copy_was_queued_stay),
        SIM_TEST(copies_of_rows_take_few_driver_calls),
        SIM_TEST(conversions_in_several_pieces_are_right),
        SIM_TEST(fills_of_any_layout_are_right),
        SIM_TEST(a_fill_of_many_rows_is_few_calls),
        SIM_TEST(staging_waits_for_its_memory),
        SIM_TEST(bad_requests_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

/* SPDX-License-Identifier: MIT */
/* Copies on the host between any two layouts of one shape, against a loop over all elements. */
#include "base/rows.h"
#include "tensor/transfer/strided.h"
#include "tensor/transfer/tile.h"
#include "test.h"

#define AXES_MAX 6
#define ELEMENTS_MAX 20000
#define FILL 0xA5

/* A layout with memory around it. */
typedef struct side {
    lochi_layout layout;
    unsigned char *memory; /* what it reaches, and a margin on both sides */
    size_t bytes;
    unsigned char *first; /* the element with all indices 0 */
} side;

static void side_open(side *s, loch_dtype dtype, size_t axes, const int64_t *shape, const int64_t *strides)
{
    const size_t margin = 64;
    CHECK_OK(lochi_layout_make(dtype, axes, shape, strides, &s->layout));
    s->bytes = s->layout.below + s->layout.above + 2 * margin;
    s->memory = malloc(s->bytes);
    assert_non_null(s->memory);
    s->first = s->memory + margin + s->layout.below;
}

static void side_close(side *s)
{
    free(s->memory);
}

static ptrdiff_t side_offset(const side *s, const size_t *index)
{
    ptrdiff_t offset = 0;
    for (size_t i = 0; i < s->layout.dimensions; i++)
        offset += (ptrdiff_t)index[i] * (ptrdiff_t)s->layout.strides[i];
    return offset * (ptrdiff_t)s->layout.element_bytes;
}

static bool next_index(const lochi_layout *layout, size_t *index)
{
    for (size_t i = layout->dimensions; i-- > 0;) {
        if (++index[i] < (size_t)layout->shape[i]) return true;
        index[i] = 0;
    }
    return false;
}

/* What the engine should do. */
static void naive(const side *to, unsigned char *first, const side *from)
{
    const lochi_converter converter = lochi_convert_find(to->layout.dtype, from->layout.dtype, LOCH_OVERFLOW_SATURATE);
    size_t index[LOCH_DIMENSIONS_MAX] = {0};
    do
        lochi_convert_run(&converter, first + side_offset(to, index), from->first + side_offset(from, index), 1);
    while (next_index(&to->layout, index));
}

static void check_copy(side *to, const side *from, const char *what, uint64_t seed)
{
    unsigned char *expected = malloc(to->bytes);
    memset(to->memory, FILL, to->bytes);
    memset(expected, FILL, to->bytes);
    naive(to, expected + (to->first - to->memory), from);
    lochi_strided strided;
    lochi_strided_make(&to->layout, &from->layout, &strided);
    if (to->layout.dtype == from->layout.dtype) {
        lochi_strided_copy(&strided, to->first, from->first);
    } else {
        const lochi_converter converter =
            lochi_convert_find(to->layout.dtype, from->layout.dtype, LOCH_OVERFLOW_SATURATE);
        lochi_strided_convert(&strided, &converter, to->first, from->first);
    }
    for (size_t i = 0; i < to->bytes; i++)
        if (to->memory[i] != expected[i])
            fail_msg("%s, seed %llu: byte %zu of %zu is %02x and not %02x", what, (unsigned long long)seed, i,
                     to->bytes, to->memory[i], expected[i]);
    free(expected);
}

/* --- random layouts --- */

static void random_shape(test_random *random, size_t *axes, int64_t *shape)
{
    *axes = test_random_below(random, AXES_MAX + 1);
    size_t room = 1 + test_random_below(random, ELEMENTS_MAX);
    for (size_t i = 0; i < *axes; i++) {
        const size_t most = room < 4 || test_random_below(random, 3) == 0 ? room : 2 + room / 8;
        shape[i] = 1 + (int64_t)test_random_below(random, most < 200 ? most : 200);
        room /= (size_t)shape[i];
    }
}

/* Strides in a random order of the axes, with gaps here and there, some of them backwards; a source may repeat. */
static void random_strides(test_random *random, size_t axes, const int64_t *shape, bool may_repeat, int64_t *strides)
{
    size_t order[AXES_MAX];
    int64_t next = 1;
    for (size_t i = 0; i < axes; i++)
        order[i] = i;
    for (size_t i = axes; i-- > 1 && test_random_below(random, 4);) {
        const size_t other = test_random_below(random, i + 1), kept = order[i];
        order[i] = order[other];
        order[other] = kept;
    }
    for (size_t i = axes; i-- > 0;) {
        const size_t axis = order[i];
        if (test_random_below(random, 4) == 0) next += (int64_t)test_random_below(random, 4);
        strides[axis] = next;
        next *= shape[axis];
        if (test_random_below(random, 4) == 0) strides[axis] = -strides[axis];
        if (may_repeat && test_random_below(random, 8) == 0) strides[axis] = 0;
    }
}

static void check_random(test_random *random, loch_dtype to_type, loch_dtype from_type)
{
    const uint64_t seed = random->state;
    size_t axes;
    int64_t shape[AXES_MAX], to_strides[AXES_MAX], from_strides[AXES_MAX];
    side to, from;
    random_shape(random, &axes, shape);
    random_strides(random, axes, shape, false, to_strides);
    random_strides(random, axes, shape, true, from_strides);
    side_open(&to, to_type, axes, shape, to_strides);
    side_open(&from, from_type, axes, shape, from_strides);
    test_pattern_write(from.memory, from.bytes, seed);
    check_copy(&to, &from, "random", seed);
    side_close(&to);
    side_close(&from);
}

static void random_layouts_are_copied_right(void **state)
{
    (void)state;
    test_random random = {test_seed(501)};
    const loch_dtype types[] = {LOCH_U8, LOCH_U16, LOCH_F32, LOCH_I64};
    for (int i = 0; i < 1500; i++)
        check_random(&random, types[i % 4], types[i % 4]);
}

static void random_conversions_are_right(void **state)
{
    (void)state;
    test_random random = {test_seed(502)};
    const loch_dtype to[] = {LOCH_I64, LOCH_U8, LOCH_I16, LOCH_I32, LOCH_F64};
    const loch_dtype from[] = {LOCH_U8, LOCH_I32, LOCH_U64, LOCH_BOOL, LOCH_I16};
    for (int i = 0; i < 600; i++)
        check_random(&random, to[i % 5], from[(i / 5) % 5]);
}

/* --- shapes that have a kernel of their own --- */

static void check_shape(size_t axes, const int64_t *shape, const int64_t *to_strides, const int64_t *from_strides)
{
    const loch_dtype types[] = {LOCH_U8, LOCH_U16, LOCH_U32, LOCH_U64};
    for (size_t t = 0; t < 4; t++) {
        side to, from;
        side_open(&to, types[t], axes, shape, to_strides);
        side_open(&from, types[t], axes, shape, from_strides);
        test_pattern_write(from.memory, from.bytes, t);
        check_copy(&to, &from, "shape", t);
        side_close(&to);
        side_close(&from);
    }
}

static void rows_of_every_length_are_copied_right(void **state)
{
    (void)state;
    for (int64_t length = 1; length < 300; length += length < 80 ? 1 : 7) {
        const int64_t shape[] = {9, length}, padded[] = {length + 3, 1}, tight[] = {length, 1};
        check_shape(2, shape, tight, padded);
        check_shape(2, shape, padded, tight);
        check_shape(2, shape, padded, padded);
    }
}

static void transposes_of_all_sizes_are_right(void **state)
{
    (void)state;
    const int64_t sizes[] = {1, 2, 3, 8, 15, 16, 17, 63, 64, 65, 130};
    for (size_t a = 0; a < 11; a++)
        for (size_t b = 0; b < 11; b++) {
            const int64_t shape[] = {sizes[a], sizes[b]}, rows[] = {sizes[b], 1}, columns[] = {1, sizes[a]};
            const int64_t wide[] = {2 * sizes[b] + 1, 2}, backwards[] = {-1, -sizes[a] - 2};
            check_shape(2, shape, rows, columns);
            check_shape(2, shape, columns, rows);
            check_shape(2, shape, wide, columns);
            check_shape(2, shape, rows, backwards);
        }
}

static void one_element_is_spread_over_all(void **state)
{
    (void)state;
    const int64_t shape[] = {7, 33, 5}, rows[] = {33 * 5, 5, 1}, gaps[] = {400, 11, 2}, none[] = {0, 0, 0},
                  inner[] = {3, 0, 0}, outer[] = {0, 0, 1};
    check_shape(3, shape, rows, none);
    check_shape(3, shape, gaps, none);
    check_shape(3, shape, rows, inner);
    check_shape(3, shape, gaps, outer);
}

/* What is too large for the caches is written past them: edges that are no whole lines, and all of the bytes. */
static void writes_past_the_caches_reach_every_byte(void **state)
{
    (void)state;
    const size_t lengths[] = {64, 65, 127, 128, 200, 1000, 4096}, rows = 37, much = lochi_rows_cache_bytes() + 1;
    for (size_t i = 0; i < 7; i++)
        for (size_t shift = 0; shift < 70; shift += 13) {
            const size_t length = lengths[i], pitch = length + shift;
            unsigned char *from = malloc(rows * pitch), *to = malloc(rows * pitch + 64);
            test_pattern_write(from, rows * pitch, i);
            memset(to, FILL, rows * pitch + 64);
            lochi_rows_copy(to + shift % 64, (ptrdiff_t)pitch, from, (ptrdiff_t)pitch, length, rows, much);
            for (size_t r = 0; r < rows; r++)
                assert_memory_equal(to + shift % 64 + r * pitch, from + r * pitch, length);
            for (size_t r = 0; r + 1 < rows; r++)
                for (size_t k = length; k < pitch; k++)
                    assert_int_equal(to[shift % 64 + r * pitch + k], FILL);
            free(from);
            free(to);
        }
}

/* --- the order --- */

static void axes_are_merged(void **state)
{
    (void)state;
    lochi_layout rows, other;
    lochi_strided strided;
    const int64_t shape[] = {2, 3, 1, 4}, padded[] = {24, 8, 77, 1}, turned[] = {-12, -4, 5, -1};
    size_t axes;
    CHECK_OK(lochi_layout_make(LOCH_F32, 4, shape, NULL, &rows));
    lochi_strided_make(&rows, &rows, &strided);
    assert_int_equal(strided.axes, 1);
    assert_int_equal(lochi_strided_row(&strided, &axes), 96);
    assert_int_equal(axes, 0);
    CHECK_OK(lochi_layout_make(LOCH_F32, 4, shape, padded, &other));
    lochi_strided_make(&rows, &other, &strided);
    assert_int_equal(strided.axes, 2);
    assert_int_equal(strided.sizes[0], 6);
    assert_int_equal(lochi_strided_row(&strided, &axes), 16);
    assert_int_equal(axes, 1);
    CHECK_OK(lochi_layout_make(LOCH_F32, 4, shape, turned, &other));
    lochi_strided_make(&other, &other, &strided); /* both backwards: all of it forwards */
    assert_int_equal(strided.axes, 1);
    assert_int_equal(strided.to[0], 4);
    assert_int_equal(strided.to_start, -92);
    assert_int_equal(lochi_strided_count(&strided), 24);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(axes_are_merged),
        cmocka_unit_test(rows_of_every_length_are_copied_right),
        cmocka_unit_test(transposes_of_all_sizes_are_right),
        cmocka_unit_test(one_element_is_spread_over_all),
        cmocka_unit_test(writes_past_the_caches_reach_every_byte),
        cmocka_unit_test(random_layouts_are_copied_right),
        cmocka_unit_test(random_conversions_are_right),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

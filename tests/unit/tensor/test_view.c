/* SPDX-License-Identifier: MIT */
/* Views against a model that keeps the place of every element in a list, in the order of the indices: what each view
 * does to the list is written down plainly here, without strides. Named tests for what the original of seed 003 got
 * wrong. */
#include "tensor_fixture.h"

#define MODEL_ELEMENTS_MAX 4096
#define MODEL_AXES_MAX 6

typedef struct model {
    size_t axes;
    int64_t shape[LOCH_DIMENSIONS_MAX];
    size_t count;
    int32_t places[MODEL_ELEMENTS_MAX]; /* what the element holds: its place in the first tensor */
} model;

static size_t model_count(const model *m)
{
    size_t count = 1;
    for (size_t i = 0; i < m->axes; i++)
        count *= (size_t)m->shape[i];
    return count;
}

/* The list's place of an element. */
static size_t model_at(const model *m, const int64_t *indices)
{
    size_t at = 0;
    for (size_t i = 0; i < m->axes; i++)
        at = at * (size_t)m->shape[i] + (size_t)indices[i];
    return at;
}

static void model_next(const model *m, int64_t *indices)
{
    for (size_t i = m->axes; i > 0; i--) {
        if (++indices[i - 1] < m->shape[i - 1]) return;
        indices[i - 1] = 0;
    }
}

/* Fills `to`, whose shape is set, with the elements of `from` that `find` names. */
static void model_gather(model *to, const model *from, const void *user,
                         void (*find)(const void *user, const int64_t *indices, int64_t *out))
{
    int64_t indices[LOCH_DIMENSIONS_MAX] = {0}, source[LOCH_DIMENSIONS_MAX];
    to->count = model_count(to);
    assert_true(to->count <= MODEL_ELEMENTS_MAX);
    for (size_t i = 0; i < to->count; i++) {
        memcpy(source, indices, sizeof source);
        find(user, indices, source);
        to->places[i] = from->places[model_at(from, source)];
        model_next(to, indices);
    }
}

static void model_check(const model *m, const loch_tensor *tensor)
{
    assert_int_equal(loch_tensor_get_dimensions(tensor), m->axes);
    assert_int_equal(loch_tensor_get_elements(tensor), m->count);
    for (size_t i = 0; i < m->axes; i++)
        assert_int_equal(loch_tensor_get_shape(tensor)[i], m->shape[i]);
    void *address;
    CHECK_OK(loch_tensor_get_address(tensor, &address));
    int64_t indices[LOCH_DIMENSIONS_MAX] = {0};
    const int64_t *strides = loch_tensor_get_strides(tensor);
    for (size_t i = 0; i < m->count; i++) {
        const int32_t *element = address;
        for (size_t axis = 0; axis < m->axes; axis++)
            element += indices[axis] * strides[axis];
        assert_int_equal(*element, m->places[i]);
        model_next(m, indices);
    }
}

/* A tensor whose elements hold their own places. */
static loch_tensor *model_begin(model *m, size_t axes, const int64_t *shape)
{
    memset(m, 0, sizeof *m);
    m->axes = axes;
    for (size_t i = 0; i < axes; i++)
        m->shape[i] = shape[i];
    m->count = model_count(m);
    loch_tensor *tensor;
    CHECK_OK(loch_tensor_create(LOCH_I32, axes, shape, NULL, &tensor));
    void *address;
    CHECK_OK(loch_tensor_get_address(tensor, &address));
    for (size_t i = 0; i < m->count; i++) {
        ((int32_t *)address)[i] = (int32_t)i;
        m->places[i] = (int32_t)i;
    }
    model_check(m, tensor);
    return tensor;
}

/* --- the views, plainly --- */

typedef struct slicing {
    size_t axis;
    int64_t start, step;
} slicing;

static void find_slice(const void *user, const int64_t *indices, int64_t *out)
{
    const slicing *s = user;
    out[s->axis] = s->start + indices[s->axis] * s->step;
}

static int64_t clip(int64_t value, int64_t low, int64_t high)
{
    return value < low ? low : value > high ? high : value;
}

/* Counts by stepping, as the words of the header say. */
static void model_slice(model *m, size_t axis, int64_t start, int64_t stop, int64_t step)
{
    const model from = *m;
    const int64_t size = m->shape[axis];
    const int64_t low = step > 0 ? 0 : -1, high = step > 0 ? size : size - 1;
    int64_t first = start == LOCH_OPEN ? (step > 0 ? 0 : size - 1) : clip(start < 0 ? start + size : start, low, high);
    const int64_t end = stop == LOCH_OPEN ? (step > 0 ? size : -1) : clip(stop < 0 ? stop + size : stop, low, high);
    int64_t count = 0;
    for (int64_t at = first; step > 0 ? at < end : at > end; at += step)
        count++;
    m->shape[axis] = count;
    const slicing s = {axis, first, step};
    model_gather(m, &from, &s, find_slice);
}

static void model_index(model *m, size_t axis, int64_t index)
{
    model_slice(m, axis, index, index == -1 ? LOCH_OPEN : index + 1, 1);
    for (size_t i = axis; i + 1 < m->axes; i++)
        m->shape[i] = m->shape[i + 1];
    m->axes--;
}

static void find_permuted(const void *user, const int64_t *indices, int64_t *out)
{
    const int *axes = user; /* ends with -1 */
    for (size_t i = 0; axes[i] >= 0; i++)
        out[axes[i]] = indices[i];
}

static void model_permute(model *m, const int *axes)
{
    const model from = *m;
    for (size_t i = 0; axes[i] >= 0; i++)
        m->shape[i] = from.shape[axes[i]];
    model_gather(m, &from, axes, find_permuted);
}

typedef struct stretching {
    const model *from;
    size_t added;
} stretching;

static void find_stretched(const void *user, const int64_t *indices, int64_t *out)
{
    const stretching *s = user;
    for (size_t i = 0; i < s->from->axes; i++)
        out[i] = s->from->shape[i] == 1 ? 0 : indices[i + s->added];
}

static void model_expand(model *m, size_t axes, const int64_t *shape)
{
    const model from = *m;
    const stretching s = {&from, axes - m->axes};
    m->axes = axes;
    memcpy(m->shape, shape, axes * sizeof *shape);
    model_gather(m, &from, &s, find_stretched);
}

/* --- random walks over all of them --- */

static int random_axis(test_random *random, size_t axes, size_t *out)
{
    *out = test_random_below(random, axes);
    return (int)*out - (test_random_below(random, 2) ? (int)axes : 0);
}

static int64_t random_bound(test_random *random, int64_t size)
{
    if (test_random_below(random, 5) == 0) return LOCH_OPEN;
    return (int64_t)test_random_below(random, (size_t)(4 * size + 4)) - 2 * size - 2;
}

static loch_status walk_slice(test_random *random, model *m, loch_tensor *tensor, loch_tensor **out)
{
    if (!m->axes) return LOCH_E_BUSY;
    size_t axis;
    const int given = random_axis(random, m->axes, &axis);
    const int64_t start = random_bound(random, m->shape[axis]), stop = random_bound(random, m->shape[axis]);
    int64_t step = (int64_t)test_random_below(random, 7) - 3;
    if (!step) step = 1;
    model_slice(m, axis, start, stop, step);
    return loch_tensor_slice(tensor, given, start, stop, step, out);
}

static loch_status walk_index(test_random *random, model *m, loch_tensor *tensor, loch_tensor **out)
{
    if (m->axes < 2) return LOCH_E_BUSY;
    size_t axis;
    const int given = random_axis(random, m->axes, &axis);
    if (!m->shape[axis]) return LOCH_E_BUSY;
    int64_t index = (int64_t)test_random_below(random, (size_t)m->shape[axis]);
    if (test_random_below(random, 2)) index -= m->shape[axis];
    model_index(m, axis, index);
    return loch_tensor_index(tensor, given, index, out);
}

static loch_status walk_permute(test_random *random, model *m, loch_tensor *tensor, loch_tensor **out)
{
    int axes[LOCH_DIMENSIONS_MAX + 1] = {0}, given[LOCH_DIMENSIONS_MAX];
    for (size_t i = 0; i < m->axes; i++)
        axes[i] = (int)i;
    axes[m->axes] = -1;
    for (size_t i = m->axes; i > 1; i--) {
        const size_t j = test_random_below(random, i);
        const int held = axes[i - 1];
        axes[i - 1] = axes[j];
        axes[j] = held;
    }
    for (size_t i = 0; i < m->axes; i++)
        given[i] = axes[i] - (test_random_below(random, 2) ? (int)m->axes : 0);
    model_permute(m, axes);
    return loch_tensor_permute(tensor, m->axes, given, out);
}

static loch_status walk_transpose(test_random *random, model *m, loch_tensor *tensor, loch_tensor **out)
{
    if (!m->axes) return LOCH_E_BUSY;
    int axes[LOCH_DIMENSIONS_MAX + 1] = {0};
    size_t a, b;
    const int given_a = random_axis(random, m->axes, &a), given_b = random_axis(random, m->axes, &b);
    for (size_t i = 0; i < m->axes; i++)
        axes[i] = (int)(i == a ? b : i == b ? a : i);
    axes[m->axes] = -1;
    model_permute(m, axes);
    return loch_tensor_transpose(tensor, given_a, given_b, out);
}

static loch_status walk_squeeze(test_random *random, model *m, loch_tensor *tensor, loch_tensor **out)
{
    (void)random;
    size_t kept = 0;
    for (size_t i = 0; i < m->axes; i++)
        if (m->shape[i] != 1) m->shape[kept++] = m->shape[i];
    m->axes = kept;
    return loch_tensor_squeeze(tensor, out);
}

static loch_status walk_unsqueeze(test_random *random, model *m, loch_tensor *tensor, loch_tensor **out)
{
    if (m->axes == MODEL_AXES_MAX) return LOCH_E_BUSY;
    size_t axis;
    const int given = random_axis(random, m->axes + 1, &axis);
    memmove(m->shape + axis + 1, m->shape + axis, (m->axes - axis) * sizeof *m->shape);
    m->shape[axis] = 1;
    m->axes++;
    return loch_tensor_unsqueeze(tensor, given, out);
}

static loch_status walk_expand(test_random *random, model *m, loch_tensor *tensor, loch_tensor **out)
{
    if (m->axes == MODEL_AXES_MAX || m->count > MODEL_ELEMENTS_MAX / 16) return LOCH_E_BUSY;
    int64_t shape[LOCH_DIMENSIONS_MAX];
    const size_t added = test_random_below(random, 2);
    if (added) shape[0] = (int64_t)test_random_below(random, 3);
    bool is_stretched = added;
    for (size_t i = 0; i < m->axes; i++) {
        shape[i + added] = m->shape[i];
        if (m->shape[i] != 1 || is_stretched) continue;
        shape[i + added] = (int64_t)test_random_below(random, 4);
        is_stretched = true;
    }
    model_expand(m, m->axes + added, shape);
    return loch_tensor_expand(tensor, m->axes, shape, out);
}

/* Another shape with as many elements: the sizes' factors in a new order. E_UNSUPPORTED, then nothing changes. */
static loch_status walk_view(test_random *random, model *m, loch_tensor *tensor, loch_tensor **out)
{
    int64_t shape[LOCH_DIMENSIONS_MAX] = {0};
    size_t axes = 0, left = m->count;
    if (!left) {
        shape[axes++] = 0;
        if (test_random_below(random, 2)) shape[axes++] = 5;
    }
    while (left > 1 && axes < MODEL_AXES_MAX - 1) {
        size_t factor = 1 + test_random_below(random, left < 8 ? left : 8);
        while (left % factor)
            factor--;
        shape[axes++] = (int64_t)factor;
        left /= factor;
    }
    if (left > 1) shape[axes++] = (int64_t)left;
    int64_t given[LOCH_DIMENSIONS_MAX];
    memcpy(given, shape, sizeof given);
    if (axes && m->count && test_random_below(random, 2)) given[test_random_below(random, axes)] = -1;
    const loch_status status = loch_tensor_view(tensor, axes, given, out);
    if (status == LOCH_E_UNSUPPORTED) {
        assert_false(loch_tensor_is_contiguous(tensor));
        assert_null(*out);
        return LOCH_E_BUSY;
    }
    m->axes = axes;
    memcpy(m->shape, shape, sizeof shape);
    return status;
}

typedef loch_status walk(test_random *random, model *m, loch_tensor *tensor, loch_tensor **out);

static void random_views_agree_with_the_model(void **state)
{
    (void)state;
    static walk *const walks[] = {walk_slice,   walk_slice,     walk_index,  walk_permute, walk_transpose,
                                  walk_squeeze, walk_unsqueeze, walk_expand, walk_view,    walk_view};
    static model m;
    test_random random = {test_seed(0x71e35)};
    for (size_t round = 0; round < 1500; round++) {
        int64_t shape[4];
        const size_t axes = test_random_below(&random, 5);
        for (size_t i = 0; i < axes; i++)
            shape[i] = (int64_t)test_random_below(&random, test_random_below(&random, 12) ? 7 : 1) +
                       (test_random_below(&random, 15) ? 1 : 0);
        loch_tensor *tensor = model_begin(&m, axes, shape);
        for (size_t step = 0; step < 8; step++) {
            loch_tensor *view = NULL;
            const size_t which = test_random_below(&random, sizeof walks / sizeof *walks);
            const loch_status status = walks[which](&random, &m, tensor, &view);
            if (status == LOCH_E_BUSY) continue; /* not possible with this shape */
            CHECK_OK(status);
            loch_tensor_release(tensor); /* the view keeps the buffer */
            tensor = view;
            model_check(&m, tensor);
        }
        loch_tensor_release(tensor);
    }
}

/* --- chunks and types --- */

static void chunks_are_those_of_torch(void **state)
{
    (void)state;
    /* size, chunks, pieces, the size of the last: as torch.chunk */
    static const int64_t cases[][4] = {{10, 3, 3, 2}, {10, 4, 4, 1}, {10, 6, 5, 2}, {3, 5, 3, 1},
                                       {6, 2, 2, 3},  {0, 3, 3, 0},  {1, 1, 1, 1}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        static model m;
        loch_tensor *tensor = model_begin(&m, 2, (int64_t[]){2, cases[i][0]});
        loch_tensor *pieces[8];
        size_t count;
        CHECK_OK(loch_tensor_chunk(tensor, -1, (size_t)cases[i][1], pieces, &count));
        assert_int_equal(count, cases[i][2]);
        assert_int_equal(loch_tensor_get_size(pieces[count - 1], 1), cases[i][3]);
        int64_t total = 0;
        for (size_t j = 0; j < (size_t)cases[i][1]; j++) {
            if (j >= count) {
                assert_null(pieces[j]);
                continue;
            }
            model piece = m;
            model_slice(&piece, 1, total, total + loch_tensor_get_size(pieces[j], 1), 1);
            model_check(&piece, pieces[j]);
            total += loch_tensor_get_size(pieces[j], 1);
            loch_tensor_release(pieces[j]);
        }
        assert_int_equal(total, cases[i][0]);
        loch_tensor_release(tensor);
    }
    static model m;
    loch_tensor *tensor = model_begin(&m, 1, (int64_t[]){4}), *piece;
    size_t count;
    CHECK_FAILS(loch_tensor_chunk(tensor, 0, 0, &piece, &count), INVALID);
    CHECK_FAILS(loch_tensor_chunk(tensor, 1, 1, &piece, &count), INVALID);
    assert_null(piece);
    assert_int_equal(count, 0);
    loch_tensor_release(tensor);
}

static void a_view_as_another_type_shows_the_same_bytes(void **state)
{
    (void)state;
    loch_tensor *tensor, *bytes, *half, *whole, *columns;
    static const uint32_t words[6] = {0x03020100, 0x07060504, 0x0b0a0908, 0x0f0e0d0c, 0x13121110, 0x17161514};
    CHECK_OK(loch_tensor_create(LOCH_U32, LOCH_SHAPE(3, 2), NULL, &tensor));
    void *address;
    CHECK_OK(loch_tensor_get_address(tensor, &address));
    memcpy(address, words, sizeof words);
    CHECK_OK(loch_tensor_view_as(tensor, LOCH_U8, &bytes));
    assert_int_equal(loch_tensor_get_size(bytes, -1), 8);
    assert_int_equal(loch_tensor_get_strides(bytes)[0], 8);
    CHECK_OK(loch_tensor_view_as(bytes, LOCH_I64, &whole));
    assert_int_equal(loch_tensor_get_size(whole, -1), 1);
    CHECK_OK(loch_tensor_view_as(tensor, LOCH_F32, &half));
    assert_int_equal(loch_tensor_get_dtype(half), LOCH_F32);
    loch_tensor_release(half);
    /* columns: fine for types of the same size, not for others */
    CHECK_OK(loch_tensor_slice(tensor, 1, 0, 2, 2, &columns));
    CHECK_OK(loch_tensor_view_as(columns, LOCH_U16, &half)); /* a last axis of one element is side by side */
    assert_int_equal(loch_tensor_get_size(half, 1), 2);
    assert_int_equal(loch_tensor_get_strides(half)[0], 4);
    loch_tensor_release(half);
    CHECK_FAILS(loch_tensor_view_as(columns, LOCH_F64, &half), INVALID); /* one u32 is no f64 */
    loch_tensor_release(columns);
    CHECK_OK(loch_tensor_transpose(tensor, 0, 1, &columns));
    CHECK_FAILS(loch_tensor_view_as(columns, LOCH_U8, &half), UNSUPPORTED);
    CHECK_OK(loch_tensor_view_as(columns, LOCH_I32, &half));
    loch_tensor_release(half);
    loch_tensor_release(columns);
    CHECK_OK(loch_tensor_slice(bytes, 1, 1, 5, 1, &columns)); /* four bytes, but not at a multiple of four */
    CHECK_FAILS(loch_tensor_view_as(columns, LOCH_F32, &half), INVALID);
    CHECK_FAILS(loch_tensor_view_as(columns, LOCH_DTYPE_NONE, &half), INVALID);
    assert_null(half);
    loch_tensor_release(columns);
    loch_tensor_release(bytes);
    loch_tensor_release(whole);
    loch_tensor_release(tensor);
    CHECK_OK(loch_tensor_create(LOCH_F32, LOCH_SCALAR, NULL, &tensor));
    CHECK_FAILS(loch_tensor_view_as(tensor, LOCH_U8, &half), UNSUPPORTED);
    loch_tensor_release(tensor);
}

/* --- what the original got wrong (systems.md, 3.3 item 27 and 2.3 items 9 and 10) --- */

/* squeeze of [1, 1] gave an empty tensor. */
static void a_tensor_of_ones_is_squeezed_to_a_scalar(void **state)
{
    (void)state;
    static model m;
    loch_tensor *tensor = model_begin(&m, 2, (int64_t[]){1, 1}), *scalar, *again;
    CHECK_OK(loch_tensor_squeeze(tensor, &scalar));
    assert_int_equal(loch_tensor_get_dimensions(scalar), 0);
    assert_int_equal(loch_tensor_get_elements(scalar), 1);
    CHECK_OK(loch_tensor_view(scalar, LOCH_SHAPE(1, 1, 1), &again));
    assert_int_equal(loch_tensor_get_dimensions(again), 3);
    loch_tensor_release(tensor);
    CHECK_OK(loch_tensor_squeeze_axis(again, -1, &tensor));
    assert_int_equal(loch_tensor_get_dimensions(tensor), 2);
    loch_tensor_release(tensor);
    CHECK_FAILS(loch_tensor_squeeze_axis(again, 3, &tensor), INVALID);
    loch_tensor_release(again);
    loch_tensor_release(scalar);
}

/* index and slice of a strided view lost the strides. */
static void an_index_of_a_transposed_view_is_right(void **state)
{
    (void)state;
    static model m;
    loch_tensor *tensor = model_begin(&m, 2, (int64_t[]){3, 4}), *turned, *row, *part;
    CHECK_OK(loch_tensor_transpose(tensor, 0, 1, &turned));
    CHECK_OK(loch_tensor_index(turned, 0, 1, &row));
    void *address;
    CHECK_OK(loch_tensor_get_address(row, &address));
    assert_int_equal(loch_tensor_get_strides(row)[0], 4);
    assert_int_equal(((int32_t *)address)[2 * 4], 9);
    CHECK_OK(loch_tensor_slice(turned, 0, 1, 3, 1, &part));
    model_permute(&m, (int[]){1, 0, -1});
    model_slice(&m, 0, 1, 3, 1);
    model_check(&m, part);
    loch_tensor_release(part);
    loch_tensor_release(row);
    loch_tensor_release(turned);
    loch_tensor_release(tensor);
}

/* reshape ignored a mismatch. */
static void bad_shapes_are_refused(void **state)
{
    (void)state;
    static model m;
    loch_tensor *tensor = model_begin(&m, 2, (int64_t[]){3, 4}), *out = TEST_UNTOUCHED;
    CHECK_FAILS(loch_tensor_view(tensor, LOCH_SHAPE(5), &out), INVALID);
    assert_null(out);
    CHECK_FAILS(loch_tensor_view(tensor, LOCH_SHAPE(-1, -1), &out), INVALID);
    CHECK_FAILS(loch_tensor_view(tensor, LOCH_SHAPE(-1, 5), &out), INVALID);
    CHECK_FAILS(loch_tensor_view(tensor, LOCH_SHAPE(-1, 0), &out), INVALID);
    CHECK_FAILS(loch_tensor_view(tensor, LOCH_SHAPE(-2, 6), &out), INVALID);
    CHECK_FAILS(loch_tensor_view(tensor, LOCH_SHAPE(INT64_MAX, INT64_MAX), &out), OVERFLOW);
    CHECK_FAILS(loch_tensor_view(tensor, 17, m.shape, &out), INVALID);
    CHECK_FAILS(loch_tensor_view(tensor, 1, NULL, &out), INVALID);
    CHECK_FAILS(loch_tensor_view(NULL, 0, NULL, &out), INVALID);
    CHECK_FAILS(loch_tensor_slice(tensor, 2, 0, 1, 1, &out), INVALID);
    CHECK_FAILS(loch_tensor_slice(tensor, -3, 0, 1, 1, &out), INVALID);
    CHECK_FAILS(loch_tensor_slice(tensor, 0, 0, 1, 0, &out), INVALID);
    CHECK_FAILS(loch_tensor_index(tensor, 0, 3, &out), OUT_OF_RANGE);
    CHECK_FAILS(loch_tensor_index(tensor, 0, -4, &out), OUT_OF_RANGE);
    CHECK_FAILS(loch_tensor_index(tensor, 0, INT64_MIN, &out), OUT_OF_RANGE);
    CHECK_FAILS(loch_tensor_permute(tensor, 2, (int[]){0, 0}, &out), INVALID);
    CHECK_FAILS(loch_tensor_permute(tensor, 1, (int[]){0}, &out), INVALID);
    CHECK_FAILS(loch_tensor_permute(tensor, 2, NULL, &out), INVALID);
    CHECK_FAILS(loch_tensor_squeeze_axis(tensor, 0, &out), INVALID);
    CHECK_FAILS(loch_tensor_expand(tensor, LOCH_SHAPE(4), &out), INVALID);
    CHECK_FAILS(loch_tensor_expand(tensor, LOCH_SHAPE(3, 5), &out), INVALID);
    CHECK_FAILS(loch_tensor_expand(tensor, LOCH_SHAPE(-1, 3, 4), &out), INVALID);
    CHECK_FAILS(loch_tensor_transpose(tensor, 0, 5, &out), INVALID);
    CHECK_FAILS(loch_tensor_unsqueeze(tensor, 3, &out), INVALID);
    assert_null(out);
    loch_tensor *one, *stretched;
    CHECK_OK(loch_tensor_create(LOCH_F64, LOCH_SHAPE(1), NULL, &one));
    CHECK_FAILS(loch_tensor_expand(one, LOCH_SHAPE(INT64_MAX), &out), OVERFLOW);
    CHECK_OK(loch_tensor_expand(one, LOCH_SHAPE((int64_t)1 << 40), &stretched)); /* a terabyte that needs 8 bytes */
    assert_int_equal(loch_tensor_get_elements(stretched), (size_t)1 << 40);
    CHECK_OK(loch_tensor_view(stretched, LOCH_SHAPE(1 << 20, -1), &out));
    loch_tensor_release(out);
    loch_tensor_release(stretched);
    loch_tensor_release(one);
    loch_tensor_release(tensor);
}

/* Extreme bounds and steps of slices neither overflow nor reach outside. */
static void extreme_slices_neither_overflow_nor_reach_outside(void **state)
{
    (void)state;
    static const int64_t numbers[] = {INT64_MIN, INT64_MIN + 1, -6, -5, -1, 0, 1, 4, 5, 6, INT64_MAX - 1, INT64_MAX};
    const size_t count = sizeof numbers / sizeof *numbers;
    static model m;
    loch_tensor *tensor = model_begin(&m, 1, (int64_t[]){5}), *view;
    for (size_t i = 0; i < count * count * count; i++) {
        const int64_t start = numbers[i % count], stop = numbers[i / count % count], step = numbers[i / count / count];
        if (!step) continue;
        CHECK_OK(loch_tensor_slice(tensor, 0, start, stop, step, &view));
        model sliced = m;
        /* a step beyond the axis is as good as one of its length */
        model_slice(&sliced, 0, start, stop, step > 5 ? 5 : step < -5 ? -5 : step);
        model_check(&sliced, view);
        loch_tensor_release(view);
    }
    loch_tensor_release(tensor);
}

/* The sanitizer of the sanitized builds looks on: nothing overflows on the way. */
static void numbers_at_the_end_of_the_range_do_not_overflow(void **state)
{
    (void)state;
    loch_tensor *one, *wide, *halves[2] = {NULL, NULL}, *seen[2];
    size_t count;
    CHECK_OK(loch_tensor_create(LOCH_U8, LOCH_SHAPE(1), NULL, &one));
    CHECK_OK(loch_tensor_expand(one, LOCH_SHAPE(INT64_MAX), &wide));
    CHECK_OK(loch_tensor_chunk(wide, 0, 2, halves, &count));
    assert_int_equal(count, 2);
    assert_int_equal(loch_tensor_get_size(halves[0], 0), INT64_MAX / 2 + 1);
    assert_int_equal(loch_tensor_get_size(halves[1], 0), INT64_MAX / 2);
    memcpy(seen, halves, sizeof seen);
    CHECK_FAILS(loch_tensor_chunk(NULL, 0, 2, halves, &count), INVALID);
    assert_null(halves[0]);
    assert_null(halves[1]);
    loch_tensor_release(seen[0]);
    loch_tensor_release(seen[1]);
    loch_tensor_release(wide);
    loch_buffer *all;
    char memory;
    const int64_t far = (int64_t)1 << 62;
    CHECK_OK(loch_buffer_wrap(&memory, (size_t)far + 1, NULL, &all));
    CHECK_FAILS(loch_tensor_create_in(all, 0, LOCH_U8, LOCH_SHAPE(2), &far, &wide), OVERFLOW);
    loch_buffer_release(all);
    loch_tensor_release(one);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        TENSOR_TEST(random_views_agree_with_the_model),
        TENSOR_TEST(chunks_are_those_of_torch),
        TENSOR_TEST(a_view_as_another_type_shows_the_same_bytes),
        TENSOR_TEST(a_tensor_of_ones_is_squeezed_to_a_scalar),
        TENSOR_TEST(bad_shapes_are_refused),
        TENSOR_TEST(an_index_of_a_transposed_view_is_right),
        TENSOR_TEST(extreme_slices_neither_overflow_nor_reach_outside),
        TENSOR_TEST(numbers_at_the_end_of_the_range_do_not_overflow),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

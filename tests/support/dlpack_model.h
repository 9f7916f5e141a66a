/* SPDX-License-Identifier: MIT */
/* Checks DLPack structures against a model that computes in 128 bits: which are accepted, which memory they reach,
 * their contents, and that the deleter runs once for an accepted structure and never for a refused one. The including
 * file fills the structures. */
#ifndef LOCH_TEST_DLPACK_MODEL_H
#define LOCH_TEST_DLPACK_MODEL_H

#include "tensor/dlpack_abi.h"
#include "test.h"

__extension__ typedef __int128 wide;

enum { ARENA = 4096, WALK_MAX = 4096 };

typedef struct dlpack_case {
    union {
        struct DLManagedTensorVersioned versioned;
        struct DLManagedTensor legacy;
    } as;
    struct DLTensor *tensor; /* in one of the two */
    bool is_versioned;
    int64_t shape[LOCH_DIMENSIONS_MAX + 4], strides[LOCH_DIMENSIONS_MAX + 4];
    int ended;
} dlpack_case;

static _Alignas(64) unsigned char arena[ARENA];

static void end_versioned(struct DLManagedTensorVersioned *self)
{
    ((dlpack_case *)self->manager_ctx)->ended++;
}

static void end_legacy(struct DLManagedTensor *self)
{
    ((dlpack_case *)self->manager_ctx)->ended++;
}

static const struct DLDataType known_types[] = {{0, 8, 1},  {0, 16, 1}, {0, 32, 1}, {0, 64, 1}, {1, 8, 1},
                                                {1, 16, 1}, {1, 32, 1}, {1, 64, 1}, {2, 16, 1}, {2, 32, 1},
                                                {2, 64, 1}, {4, 16, 1}, {6, 8, 1},  {10, 8, 1}, {12, 8, 1}};
#define KNOWN_TYPES (sizeof known_types / sizeof *known_types)

/* --- the model --- */

typedef struct model {
    bool is_good;
    wide low, high; /* addresses: the first byte, and the one behind the last */
    wide first;     /* of the element with all indices 0 */
    wide elements;
    int64_t strides[LOCH_DIMENSIONS_MAX];
    int64_t bytes;
} model;

static bool is_known_type(struct DLDataType type)
{
    for (size_t i = 0; i < KNOWN_TYPES; i++)
        if (memcmp(&known_types[i], &type, sizeof type) == 0) return true;
    return false;
}

/* The product of all sizes that are not 0 has to fit, so that strides can be made of it. */
static bool model_count(const struct DLTensor *t, model *m)
{
    wide span = 1;
    m->elements = 1;
    for (int i = 0; i < t->ndim; i++) {
        if (t->shape[i] < 0) return false;
        if (t->shape[i] == 0) m->elements = 0;
        if (t->shape[i] != 0) span *= t->shape[i];
        if (span > PTRDIFF_MAX / m->bytes) return false;
    }
    if (m->elements) m->elements = span;
    return true;
}

/* Strides that are not followed may be wild, and then become 1. */
static int64_t model_stride(const struct DLTensor *t, const model *m, int axis, wide row)
{
    if (!t->strides) return (int64_t)row;
    const int64_t stride = t->strides[axis], most = PTRDIFF_MAX / m->bytes;
    return t->shape[axis] <= 1 && (stride > most || stride < -most) ? 1 : stride;
}

static void model_reach(const struct DLTensor *t, model *m)
{
    wide row = 1;
    m->low = m->high = 0;
    for (int i = t->ndim - 1; i >= 0; i--) {
        m->strides[i] = model_stride(t, m, i, row);
        if (t->shape[i]) row *= t->shape[i];
        const wide reach = (wide)m->strides[i] * (t->shape[i] - 1) * m->bytes;
        if (reach < 0) m->low += reach;
        if (reach > 0) m->high += reach;
    }
    m->high += m->bytes;
}

static model model_of(const dlpack_case *f)
{
    model m = {.is_good = false};
    const struct DLTensor *t = f->tensor;
    if (f->is_versioned && f->as.versioned.version.major != 1) return m;
    if (t->ndim < 0 || t->ndim > LOCH_DIMENSIONS_MAX || (t->ndim > 0 && !t->shape)) return m;
    if (!is_known_type(t->dtype) || t->device.device_type != LOCHI_DL_CPU) return m;
    m.bytes = t->dtype.bits / 8;
    if (!model_count(t, &m)) return m;
    if (!m.elements) {
        m.is_good = true;
        return m;
    }
    m.first = (wide)(uintptr_t)t->data + t->byte_offset;
    model_reach(t, &m);
    m.low += m.first;
    m.high += m.first;
    m.is_good = t->data && m.high - m.low <= PTRDIFF_MAX / 2 && m.low >= 0 && m.high <= UINTPTR_MAX &&
                m.first <= UINTPTR_MAX && m.first % m.bytes == 0;
    return m;
}

/* --- one case --- */

/* The elements, row after row, by the model's own walk. */
static void expect_elements(const struct DLTensor *t, const model *m, loch_tensor *tensor)
{
    static unsigned char read[WALK_MAX * 8];
    const size_t bytes = (size_t)m->bytes, count = (size_t)m->elements;
    CHECK_OK(loch_tensor_read(tensor, read, bytes * count, NULL));
    for (size_t i = 0; i < count; i++) {
        wide place = m->first;
        size_t left = i;
        for (int axis = t->ndim - 1; axis >= 0; axis--) {
            place += (wide)(left % (size_t)t->shape[axis]) * m->strides[axis] * m->bytes;
            left /= (size_t)t->shape[axis];
        }
        const unsigned char *expected = (const unsigned char *)(uintptr_t)place;
        if (t->dtype.code == LOCHI_DL_BOOL && *expected && read[i]) continue; /* true may be any number, and become 1 */
        if (memcmp(read + i * bytes, expected, bytes) != 0) fail_msg("element %zu differs", i);
    }
}

static void expect_same(dlpack_case *f, const model *m, loch_tensor *tensor)
{
    const struct DLTensor *t = f->tensor;
    loch_buffer *buffer = loch_tensor_get_buffer(tensor);
    void *address;
    assert_int_equal(loch_tensor_get_dimensions(tensor), t->ndim);
    assert_int_equal(loch_dtype_bytes(loch_tensor_get_dtype(tensor)), m->bytes);
    assert_true(loch_tensor_get_elements(tensor) == (size_t)m->elements);
    if (t->ndim) assert_memory_equal(loch_tensor_get_shape(tensor), t->shape, (size_t)t->ndim * sizeof(int64_t));
    const bool is_read_only = f->is_versioned && (f->as.versioned.flags & LOCHI_DL_READ_ONLY);
    assert_int_equal(loch_tensor_get_access(tensor), is_read_only ? LOCH_READ_ONLY : LOCH_READ_WRITE);
    CHECK_OK(loch_tensor_get_address(tensor, &address));
    if (!m->elements) {
        assert_null(address);
        return;
    }
    if (t->ndim) assert_memory_equal(loch_tensor_get_strides(tensor), m->strides, (size_t)t->ndim * sizeof(int64_t));
    assert_true((uintptr_t)address == (uintptr_t)m->first);
    assert_true((uintptr_t)loch_buffer_get_address(buffer) == (uintptr_t)m->low);
    assert_true(loch_buffer_get_bytes(buffer) == (size_t)(m->high - m->low));
    const bool is_inside = m->low >= (uintptr_t)arena && m->high <= (uintptr_t)arena + ARENA;
    if (is_inside && m->elements <= WALK_MAX) expect_elements(t, m, tensor);
}

/* Through Loch and out again: the same. */
static void expect_again(loch_tensor *tensor)
{
    struct DLManagedTensorVersioned *managed;
    CHECK_OK(loch_tensor_to_dlpack(tensor, NULL, &managed));
    void *address;
    CHECK_OK(loch_tensor_get_address(tensor, &address));
    const struct DLTensor *t = &managed->dl_tensor;
    assert_ptr_equal(t->data, address);
    assert_int_equal(t->ndim, loch_tensor_get_dimensions(tensor));
    for (int i = 0; i < t->ndim; i++) {
        assert_true(t->shape[i] == loch_tensor_get_shape(tensor)[i]);
        assert_true(t->strides[i] == loch_tensor_get_strides(tensor)[i]);
    }
    managed->deleter(managed);
}

static bool dlpack_try(dlpack_case *f)
{
    const model m = model_of(f);
    loch_tensor *tensor = TEST_UNTOUCHED;
    const loch_status status = f->is_versioned ? loch_tensor_from_dlpack(&f->as.versioned, NULL, &tensor)
                                               : loch_tensor_from_dlpack_legacy(&f->as.legacy, NULL, &tensor);
    if ((status == LOCH_OK) != m.is_good)
        fail_msg("%s, but the model says %s: %s", loch_status_name(status), m.is_good ? "good" : "bad",
                 status == LOCH_OK ? "" : loch_error_get()->sentence);
    assert_int_equal(f->ended, 0);
    if (status != LOCH_OK) {
        assert_null(tensor);
        return false;
    }
    expect_same(f, &m, tensor);
    expect_again(tensor);
    assert_int_equal(f->ended, 0);
    loch_tensor_release(tensor);
    assert_int_equal(f->ended, 1);
    return true;
}

#endif

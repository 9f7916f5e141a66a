/* SPDX-License-Identifier: MIT */
/* Comparisons of elements: == != < <= > >= and `in`.
 *
 * The result is a tensor of bool on the host. Two sides are compared exactly, as Python compares numbers: both are
 * converted to a type that holds all numbers of both, a block at a time, and blocks are compared by loops of one type.
 * Integers of 64 bits have no such type with floats, nor u64 with signed integers: blocks with numbers beyond 2^53 are
 * compared one by one there. */
#include "core.h"

#include <loch/check.h>

#include <float.h>
#include <stdlib.h>
#include <string.h>

#define COMPARE_BLOCK 512 /* elements; a multiple of all vectors, and small enough for the first cache */

/* One side: elements in host memory, row after row, or one number for all of them. */
typedef struct compare_side {
    loch_dtype dtype;
    const char *data;     /* NULL: one number */
    loch_scalar number;   /* exact in `dtype` */
    loch_mapping mapping; /* of a tensor that is read in place */
    char *copy;           /* elements of any other tensor */
} compare_side;

/* --- order --- */

/* Compares two numbers exactly. Returns -1, 0 or 1; 2 if one of them is NaN. */
static int compare_order(loch_scalar a, loch_scalar b)
{
    if (a.dtype == LOCH_F64 && b.dtype == LOCH_F64)
        return a.value.f < b.value.f ? -1 : a.value.f > b.value.f ? 1 : a.value.f == b.value.f ? 0 : 2;
    if (b.dtype == LOCH_F64) {
        const int order = compare_order(b, a);
        return order == 2 ? 2 : -order;
    }
    if (a.dtype == LOCH_F64) { /* a float and an integer: by the whole part first, which 64 bits hold */
        if (a.value.f != a.value.f) return 2;
        const bool is_negative = b.dtype == LOCH_I64 && b.value.i < 0;
        if (a.value.f >= 18446744073709551616.0) return 1;
        if (a.value.f < -9223372036854775808.0) return -1;
        if (a.value.f < 0) {
            if (!is_negative) return -1;
            const int64_t whole = (int64_t)a.value.f;
            return whole < b.value.i ? -1 : whole > b.value.i ? 1 : a.value.f < (double)whole ? -1 : 0;
        }
        if (is_negative) return 1;
        const uint64_t whole = (uint64_t)a.value.f;
        return whole < b.value.u ? -1 : whole > b.value.u ? 1 : a.value.f > (double)whole ? 1 : 0;
    }
    const bool a_negative = a.dtype == LOCH_I64 && a.value.i < 0, b_negative = b.dtype == LOCH_I64 && b.value.i < 0;
    if (a_negative != b_negative) return a_negative ? -1 : 1;
    return a.value.u < b.value.u ? -1 : a.value.u > b.value.u;
}

static bool compare_holds(int order, int operation)
{
    switch (operation) {
    case Py_EQ: return order == 0;
    case Py_LT: return order == -1;
    default: return order == -1 || order == 0; /* Py_LE */
    }
}

static bool compare_is_float(loch_dtype dtype)
{
    return dtype >= LOCH_F64 && dtype <= LOCH_F8E5M2;
}

static bool compare_is_signed(loch_dtype dtype)
{
    return dtype >= LOCH_I8 && dtype <= LOCH_I64;
}

/* Chooses a type of compare_run that holds all numbers of two types; LOCH_DTYPE_NONE if there is none. */
static loch_dtype compare_choose(loch_dtype a, loch_dtype b)
{
    const size_t a_bytes = loch_dtype_bytes(a), b_bytes = loch_dtype_bytes(b);
    if (compare_is_float(a) && compare_is_float(b)) return a == LOCH_F64 || b == LOCH_F64 ? LOCH_F64 : LOCH_F32;
    if (compare_is_float(a)) return b_bytes <= 4 ? LOCH_F64 : LOCH_DTYPE_NONE;
    if (compare_is_float(b)) return a_bytes <= 4 ? LOCH_F64 : LOCH_DTYPE_NONE;
    if (a == b && a != LOCH_BOOL) return a;
    if (!compare_is_signed(a) && !compare_is_signed(b)) return LOCH_U64;
    const bool is_beyond = (!compare_is_signed(a) && a_bytes == 8) || (!compare_is_signed(b) && b_bytes == 8);
    return is_beyond ? LOCH_DTYPE_NONE : LOCH_I64;
}

/* --- blocks --- */

/* clang-format off */
#define COMPARE_TYPES(X)                                                                                               \
    X(F64, double)                                                                                                     \
    X(F32, float)                                                                                                      \
    X(I8, int8_t)                                                                                                      \
    X(I16, int16_t)                                                                                                    \
    X(I32, int32_t)                                                                                                    \
    X(I64, int64_t)                                                                                                    \
    X(U8, uint8_t)                                                                                                     \
    X(U16, uint16_t)                                                                                                   \
    X(U32, uint32_t)                                                                                                   \
    X(U64, uint64_t)
/* clang-format on */

/* Compares a whole block of one type: Py_EQ, Py_LT or Py_LE. The count is a constant, so that the compiler makes
 * vectors of the loops without code for their ends. */
static inline __attribute__((always_inline)) void compare_loops(loch_dtype dtype, int operation, const void *a,
                                                                const void *b, bool *restrict out)
{
    switch (dtype) {
#define COMPARE_LOOP(operator)                                                                                         \
    for (size_t at = 0; at < COMPARE_BLOCK; at++)                                                                      \
    out[at] = x[at] operator y[at]
#define COMPARE_CASE(suffix, type)                                                                                     \
    case LOCH_##suffix: {                                                                                              \
        const type *restrict x = a, *restrict y = b;                                                                   \
        if (operation == Py_EQ)                                                                                        \
            COMPARE_LOOP(==);                                                                                          \
        else if (operation == Py_LT)                                                                                   \
            COMPARE_LOOP(<);                                                                                           \
        else                                                                                                           \
            COMPARE_LOOP(<=);                                                                                          \
        break;                                                                                                         \
    }
        COMPARE_TYPES(COMPARE_CASE)
#undef COMPARE_CASE
#undef COMPARE_LOOP
    default: break; /* compare_choose returns no other type */
    }
}

#ifdef __x86_64__
static __attribute__((target("avx2"))) void compare_run_avx2(loch_dtype dtype, int operation, const void *a,
                                                             const void *b, bool *out)
{
    compare_loops(dtype, operation, a, b, out);
}
#endif

static void compare_run(loch_dtype dtype, int operation, const void *a, const void *b, bool *out)
{
#ifdef __x86_64__
    if (__builtin_cpu_supports("avx2")) {
        compare_run_avx2(dtype, operation, a, b, out);
        return;
    }
#endif
    compare_loops(dtype, operation, a, b, out);
}

static loch_scalar compare_at(const compare_side *side, size_t at)
{
    loch_scalar scalar = side->number;
    if (side->data)
        LOCH_IGNORE(loch_scalar_load(side->dtype, side->data + at * loch_dtype_bytes(side->dtype), &scalar));
    return scalar;
}

/* Tells whether a float of 64 bits holds all numbers of a block. */
static bool compare_fits_float(const compare_side *side, size_t at, size_t count)
{
    const int64_t most = INT64_C(1) << 53;
    bool fits = true;
    if (!side->data)
        return side->dtype == LOCH_F64 ||
               compare_order(loch_scalar_from_double(side->number.dtype == LOCH_I64 ? (double)side->number.value.i
                                                                                    : (double)side->number.value.u),
                             side->number) == 0;
    const int64_t *numbers = (const int64_t *)(const void *)side->data;
    for (size_t next = at; next < at + count && side->dtype == LOCH_I64; next++)
        fits &= numbers[next] >= -most && numbers[next] <= most;
    for (size_t next = at; next < at + count && side->dtype == LOCH_U64; next++)
        fits &= (uint64_t)numbers[next] <= (uint64_t)most;
    return fits;
}

/* Returns a block of a side as a type: whole blocks in place where the type is right, otherwise in `room`. For a number
 * `room` has been filled. */
static loch_status compare_get_block(const compare_side *side, size_t at, size_t count, loch_dtype dtype, void *room,
                                     const void **out)
{
    *out = room;
    if (!side->data) return LOCH_OK;
    const char *first = side->data + at * loch_dtype_bytes(side->dtype);
    if (side->dtype != dtype || count < COMPARE_BLOCK)
        return loch_convert(dtype, room, side->dtype, first, count, NULL);
    *out = first;
    return LOCH_OK;
}

/* Fills a block with the number of a side. Does nothing for elements. */
static loch_status compare_fill_block(const compare_side *side, loch_dtype dtype, char *room)
{
    const size_t bytes = loch_dtype_bytes(dtype);
    if (side->data) return LOCH_OK;
    const loch_status status = loch_scalar_store(side->number, dtype, room);
    for (size_t at = 1; at < COMPARE_BLOCK; at++)
        memcpy(room + at * bytes, room, bytes);
    return status;
}

/* Compares all elements. Needs no GIL. */
static loch_status compare_all(const compare_side *a, const compare_side *b, int operation, size_t count, bool *out)
{
    _Alignas(64) char a_room[COMPARE_BLOCK * 8] = {0}, b_room[COMPARE_BLOCK * 8] = {0};
    bool last[COMPARE_BLOCK];
    const loch_dtype dtype = compare_choose(a->dtype, b->dtype);
    if (operation == Py_GT || operation == Py_GE) { /* the other way round */
        const compare_side *left = a;
        a = b;
        b = left;
    }
    const int wanted = operation == Py_NE || operation == Py_EQ   ? Py_EQ
                       : operation == Py_LT || operation == Py_GT ? Py_LT
                                                                  : Py_LE;
    LOCH_RETURN(compare_fill_block(a, dtype ? dtype : LOCH_F64, a_room));
    LOCH_RETURN(compare_fill_block(b, dtype ? dtype : LOCH_F64, b_room));
    for (size_t at = 0; at < count; at += COMPARE_BLOCK) {
        const size_t length = count - at < COMPARE_BLOCK ? count - at : COMPARE_BLOCK;
        const bool is_exact = dtype || (compare_fits_float(a, at, length) && compare_fits_float(b, at, length));
        const loch_dtype common = dtype ? dtype : LOCH_F64;
        const void *x, *y;
        if (is_exact) {
            LOCH_RETURN(compare_get_block(a, at, length, common, a_room, &x));
            LOCH_RETURN(compare_get_block(b, at, length, common, b_room, &y));
            compare_run(common, wanted, x, y, length < COMPARE_BLOCK ? last : out + at);
            if (length < COMPARE_BLOCK) memcpy(out + at, last, length);
        } else {
            for (size_t next = at; next < at + length; next++)
                out[next] = compare_holds(compare_order(compare_at(a, next), compare_at(b, next)), wanted);
        }
        if (operation == Py_NE)
            for (size_t next = at; next < at + length; next++)
                out[next] = !out[next];
    }
    return LOCH_OK;
}

/* --- sides --- */

/* Makes the shape to which two tensors broadcast. */
static int compare_broadcast(const loch_tensor *a, const loch_tensor *b, lochpy_shape *out)
{
    const size_t a_count = loch_tensor_get_dimensions(a), b_count = loch_tensor_get_dimensions(b);
    out->dimensions = a_count > b_count ? a_count : b_count;
    for (size_t back = 1; back <= out->dimensions; back++) {
        const int64_t a_size = back <= a_count ? loch_tensor_get_shape(a)[a_count - back] : 1;
        const int64_t b_size = back <= b_count ? loch_tensor_get_shape(b)[b_count - back] : 1;
        if (a_size != b_size && a_size != 1 && b_size != 1) {
            PyErr_Format(PyExc_ValueError, "the tensors are not compared: sizes %lld and %lld do not broadcast",
                         (long long)a_size, (long long)b_size);
            return -1;
        }
        out->sizes[out->dimensions - back] = a_size == 1 ? b_size : a_size;
    }
    return 0;
}

/* Reads a tensor that is repeated to a shape: in place if the host can, otherwise as a copy. Needs no GIL. */
static loch_status compare_read(loch_tensor *tensor, const lochpy_shape *shape, compare_side *out)
{
    loch_tensor *wide = NULL;
    loch_status status = loch_tensor_expand(tensor, shape->dimensions, shape->sizes, &wide);
    if (status != LOCH_OK) return status;
    out->dtype = loch_tensor_get_dtype(wide);
    if (out->dtype == LOCH_BOOL) out->dtype = LOCH_U8; /* 0 or 1 */
    const size_t bytes = loch_tensor_get_bytes(wide);
    if (bytes > 0 && loch_tensor_is_on_host(wide) && loch_tensor_is_contiguous(wide)) {
        status = loch_tensor_map(wide, LOCH_MAP_READ, NULL, &out->mapping);
        out->data = out->mapping.address;
    } else if (!(out->data = out->copy = malloc(bytes + 1))) { /* a tensor fits the address space */
        status = loch_error_set(LOCH_E_HOST_MEMORY, NULL, 0, "no host memory for the elements of a tensor");
    } else if (bytes > 0) {
        status = loch_tensor_read(wide, out->copy, bytes, NULL);
    }
    loch_tensor_release(wide);
    return status;
}

static loch_status compare_end(compare_side *side, loch_status status)
{
    free(side->copy);
    const loch_status end = side->mapping.inside ? loch_tensor_unmap(&side->mapping, NULL) : LOCH_OK;
    return status == LOCH_OK ? end : status;
}

/* Makes the side of a number that is compared with elements of a type: as that type or a float if it is exact there. */
static compare_side compare_make_number(loch_scalar number, loch_dtype dtype)
{
    const loch_dtype candidates[] = {dtype, LOCH_F64};
    for (size_t at = 0; at < sizeof candidates / sizeof *candidates; at++) {
        loch_scalar again;
        char room[8];
        if (loch_scalar_store(number, candidates[at], room) == LOCH_OK &&
            loch_scalar_load(candidates[at], room, &again) == LOCH_OK && compare_order(again, number) == 0)
            return (compare_side){.dtype = candidates[at], .number = number};
    }
    return (compare_side){.dtype = number.dtype, .number = number};
}

/* Compares a tensor with another one, or with a number if `b` is NULL. */
static loch_tensor *compare_make(loch_tensor *a, loch_tensor *b, const loch_scalar *number, int operation)
{
    lochpy_shape shape;
    if (compare_broadcast(a, b ? b : a, &shape) != 0 || lochpy_awake(a) != 0 || (b && lochpy_awake(b) != 0))
        return NULL;
    compare_side left = {.data = NULL}, right = {.data = NULL};
    loch_tensor *made = NULL;
    PyThreadState *thread = PyEval_SaveThread();
    loch_status status = loch_tensor_create(LOCH_BOOL, shape.dimensions, shape.sizes, NULL, &made);
    if (status == LOCH_OK) status = compare_read(a, &shape, &left);
    if (status == LOCH_OK && b) status = compare_read(b, &shape, &right);
    if (status == LOCH_OK && !b) right = compare_make_number(*number, left.dtype);
    void *answers = NULL;
    if (status == LOCH_OK) status = loch_tensor_get_address(made, &answers);
    if (status == LOCH_OK) status = compare_all(&left, &right, operation, loch_tensor_get_elements(made), answers);
    status = compare_end(&right, compare_end(&left, status));
    PyEval_RestoreThread(thread);
    if (lochpy_check(status) != 0) loch_tensor_clear(&made);
    return made;
}

/* --- what Python calls --- */

/* Reads a number; one beyond all integers of 64 bits as the nearest float. */
static int compare_read_number(PyObject *value, loch_scalar *out)
{
    if (lochpy_read_scalar(value, LOCH_DTYPE_NONE, out) == 0) return 0;
    if (!PyErr_ExceptionMatches(PyExc_OverflowError)) return -1;
    PyErr_Clear();
    double nearest = PyFloat_AsDouble(value);
    if (nearest == -1.0 && PyErr_Occurred()) {
        PyErr_Clear();
        PyObject *zero = PyLong_FromLong(0);
        const int is_positive = zero ? PyObject_RichCompareBool(value, zero, Py_GT) : -1;
        Py_XDECREF(zero);
        if (is_positive < 0) return -1;
        nearest = is_positive ? DBL_MAX : -DBL_MAX;
    }
    *out = loch_scalar_from_double(nearest);
    return 0;
}

/* Makes a tensor of what a tensor is compared with. PyTorch exports no tensor with gradients unless it is detached. */
static PyObject *compare_as_tensor(PyObject *value)
{
    if (lochpy_is_tensor(value) || !PyObject_HasAttrString(value, "detach"))
        return lochpy_as_tensor(value, LOCH_DTYPE_NONE);
    PyObject *plain = PyObject_CallMethod(value, "detach", NULL);
    PyObject *made = plain ? lochpy_as_tensor(plain, LOCH_DTYPE_NONE) : NULL;
    Py_XDECREF(plain);
    return made;
}

PyObject *lochpy_tensor_compare(PyObject *self, PyObject *other, int operation)
{
    loch_scalar number = {.dtype = LOCH_DTYPE_NONE};
    PyObject *tensor = NULL;
    if (lochpy_is_number(other) ? compare_read_number(other, &number) != 0 : !(tensor = compare_as_tensor(other))) {
        if (!PyErr_ExceptionMatches(PyExc_TypeError) && !PyErr_ExceptionMatches(PyExc_BufferError)) return NULL;
        PyErr_Clear();
        Py_RETURN_NOTIMPLEMENTED;
    }
    loch_tensor *made =
        compare_make(lochpy_tensor_of(self), tensor ? lochpy_tensor_of(tensor) : NULL, &number, operation);
    Py_XDECREF(tensor);
    return made ? lochpy_make_tensor(made) : NULL;
}

int lochpy_tensor_contains(PyObject *self, PyObject *value)
{
    loch_scalar number;
    if (lochpy_is_sequence(value) ||
        (lochpy_is_tensor(value) && loch_tensor_get_dimensions(lochpy_tensor_of(value)) > 0)) {
        PyErr_SetString(PyExc_TypeError, "`in` looks for one number");
        return -1;
    }
    if (lochpy_read_scalar(value, LOCH_DTYPE_NONE, &number) != 0) {
        if (!PyErr_ExceptionMatches(PyExc_OverflowError)) return -1;
        PyErr_Clear();
        return 0;
    }
    loch_tensor *made = compare_make(lochpy_tensor_of(self), NULL, &number, Py_EQ);
    void *answers = NULL;
    if (!made || lochpy_check(loch_tensor_get_address(made, &answers)) != 0) {
        loch_tensor_release(made);
        return -1;
    }
    const int is_found = answers && memchr(answers, 1, loch_tensor_get_elements(made)) != NULL;
    loch_tensor_release(made);
    return is_found;
}

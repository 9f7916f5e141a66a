/* SPDX-License-Identifier: MIT */
/* Elements as numbers of Python: lists, single numbers, comparisons. For few elements; NumPy is faster for many. */
#include "core.h"

#include <float.h>
#include <stdlib.h>

/* All elements of a tensor in host memory, row after row. */
typedef struct number_row {
    loch_dtype dtype;
    size_t count, bytes; /* bytes of one element */
    char *data;
} number_row;

static int number_read(loch_tensor *tensor, number_row *out)
{
    out->data = NULL;
    if (lochpy_awake(tensor) != 0) return -1;
    out->dtype = loch_tensor_get_dtype(tensor);
    out->count = loch_tensor_get_elements(tensor);
    out->bytes = loch_dtype_bytes(out->dtype);
    out->data = malloc(out->count * out->bytes + 1); /* a tensor fits the address space */
    if (!out->data) {
        PyErr_NoMemory();
        return -1;
    }
    if (out->count == 0) return 0;
    if (LOCHPY_TRY(loch_tensor_read(tensor, out->data, out->count * out->bytes, NULL)) == 0) return 0;
    free(out->data);
    out->data = NULL;
    return -1;
}

static loch_scalar number_at(const number_row *row, size_t at)
{
    loch_scalar scalar = {.dtype = LOCH_DTYPE_NONE};
    const loch_status status = loch_scalar_load(row->dtype, row->data + at * row->bytes, &scalar);
    (void)status; /* the type of a tensor is valid */
    return scalar;
}

/* Makes the list of one axis; takes the elements from `*next` on. */
static PyObject *number_list(const number_row *row, const int64_t *shape, size_t dimensions, size_t *next)
{
    if (dimensions == 0) return lochpy_make_scalar(number_at(row, (*next)++));
    PyObject *list = PyList_New((Py_ssize_t)shape[0]);
    for (int64_t at = 0; list && at < shape[0]; at++) {
        PyObject *item = number_list(row, shape + 1, dimensions - 1, next);
        if (!item || PyList_SetItem(list, (Py_ssize_t)at, item) != 0) Py_CLEAR(list);
    }
    return list;
}

PyObject *lochpy_tensor_tolist(PyObject *self, PyObject *unused)
{
    (void)unused;
    number_row row;
    loch_tensor *tensor = lochpy_tensor_of(self);
    if (number_read(tensor, &row) != 0) return NULL;
    size_t next = 0;
    PyObject *list = number_list(&row, loch_tensor_get_shape(tensor), loch_tensor_get_dimensions(tensor), &next);
    free(row.data);
    return list;
}

/* --- one number --- */

static PyObject *number_only(loch_tensor *tensor)
{
    static const int64_t zeros[LOCH_DIMENSIONS_MAX];
    loch_scalar scalar;
    if (lochpy_awake(tensor) != 0) return NULL;
    if (LOCHPY_TRY(loch_tensor_read_item(tensor, loch_tensor_get_dimensions(tensor), zeros, NULL, &scalar)) != 0)
        return NULL;
    return lochpy_make_scalar(scalar);
}

/* Reads the element with one index over all elements in row-major order. */
static PyObject *number_flat(loch_tensor *tensor, Py_ssize_t at)
{
    const Py_ssize_t count = (Py_ssize_t)loch_tensor_get_elements(tensor);
    const size_t dimensions = loch_tensor_get_dimensions(tensor);
    const int64_t *shape = loch_tensor_get_shape(tensor);
    int64_t indices[LOCH_DIMENSIONS_MAX] = {0};
    if (at < -count || at >= count) {
        PyErr_Format(PyExc_IndexError, "index %zd is out of range for %zd elements", at, count);
        return NULL;
    }
    if (at < 0) at += count;
    for (size_t axis = dimensions; axis-- > 0; at /= (Py_ssize_t)shape[axis])
        indices[axis] = at % shape[axis];
    loch_scalar scalar;
    if (lochpy_awake(tensor) != 0) return NULL;
    if (LOCHPY_TRY(loch_tensor_read_item(tensor, dimensions, indices, NULL, &scalar)) != 0) return NULL;
    return lochpy_make_scalar(scalar);
}

PyObject *lochpy_tensor_item(PyObject *self, PyObject *arguments)
{
    loch_tensor *tensor = lochpy_tensor_of(self);
    const Py_ssize_t count = PyTuple_Size(arguments);
    PyObject *first = count ? PyTuple_GetItem(arguments, 0) : NULL;
    if (count == 1 && PyIndex_Check(first)) {
        const Py_ssize_t at = PyNumber_AsSsize_t(first, PyExc_IndexError);
        return at == -1 && PyErr_Occurred() ? NULL : number_flat(tensor, at);
    }
    if (count > 0) {
        PyObject *view = lochpy_tensor_get(self, count == 1 ? first : arguments), *none = PyTuple_New(0);
        PyObject *item = view && none ? lochpy_tensor_item(view, none) : NULL;
        Py_XDECREF(view);
        Py_XDECREF(none);
        return item;
    }
    if (loch_tensor_get_elements(tensor) == 1) return number_only(tensor);
    PyErr_Format(PyExc_ValueError, "a tensor of %zu elements is not one number", loch_tensor_get_elements(tensor));
    return NULL;
}

int lochpy_tensor_bool(PyObject *self)
{
    loch_tensor *tensor = lochpy_tensor_of(self);
    if (loch_tensor_get_elements(tensor) != 1) {
        PyErr_Format(PyExc_ValueError,
                     "whether a tensor of %zu elements is true is not clear: compare elements, or its len()",
                     loch_tensor_get_elements(tensor));
        return -1;
    }
    PyObject *number = number_only(tensor);
    if (!number) return -1;
    const int result = PyObject_IsTrue(number);
    Py_DECREF(number);
    return result;
}

/* Reads the one element of a tensor, for int() and float(). */
static PyObject *number_one(PyObject *self)
{
    loch_tensor *tensor = lochpy_tensor_of(self);
    if (loch_tensor_get_elements(tensor) == 1) return number_only(tensor);
    PyErr_Format(PyExc_TypeError, "a tensor of %zu elements is not one number", loch_tensor_get_elements(tensor));
    return NULL;
}

PyObject *lochpy_tensor_int(PyObject *self)
{
    PyObject *number = number_one(self);
    PyObject *result = number ? PyNumber_Long(number) : NULL;
    Py_XDECREF(number);
    return result;
}

PyObject *lochpy_tensor_float(PyObject *self)
{
    PyObject *number = number_one(self);
    PyObject *result = number ? PyNumber_Float(number) : NULL;
    Py_XDECREF(number);
    return result;
}

PyObject *lochpy_tensor_index_number(PyObject *self)
{
    loch_tensor *tensor = lochpy_tensor_of(self);
    const loch_dtype dtype = loch_tensor_get_dtype(tensor);
    if (loch_tensor_get_dimensions(tensor) == 0 && dtype >= LOCH_I8 && dtype <= LOCH_U64) return number_only(tensor);
    PyErr_Format(PyExc_TypeError, "only a tensor of integers without dimensions is an index, not %s with %zu",
                 loch_dtype_name(dtype), loch_tensor_get_dimensions(tensor));
    return NULL;
}

/* --- comparisons --- */

/* Compares two numbers exactly. Returns -1, 0 or 1; 2 if one of them is NaN. */
static int number_order(loch_scalar a, loch_scalar b)
{
    if (a.dtype == LOCH_F64 && b.dtype == LOCH_F64)
        return a.value.f < b.value.f ? -1 : a.value.f > b.value.f ? 1 : a.value.f == b.value.f ? 0 : 2;
    if (b.dtype == LOCH_F64) {
        const int order = number_order(b, a);
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

static bool number_holds(int order, int operation)
{
    switch (operation) {
    case Py_EQ: return order == 0;
    case Py_NE: return order != 0;
    case Py_LT: return order == -1;
    case Py_LE: return order == -1 || order == 0;
    case Py_GT: return order == 1;
    default: return order == 1 || order == 0;
    }
}

/* Makes the shape to which two tensors broadcast. */
static int number_broadcast(const loch_tensor *a, const loch_tensor *b, lochpy_shape *out)
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

/* Reads a tensor that is repeated to a shape. */
static int number_read_wide(loch_tensor *tensor, const lochpy_shape *shape, number_row *out)
{
    loch_tensor *wide = NULL;
    out->data = NULL;
    if (lochpy_check(loch_tensor_expand(tensor, shape->dimensions, shape->sizes, &wide)) != 0) return -1;
    const int result = number_read(wide, out);
    loch_tensor_release(wide);
    return result;
}

static PyObject *number_compare(loch_tensor *a, loch_tensor *b, const loch_scalar *number, int operation)
{
    lochpy_shape shape;
    number_row left = {.data = NULL}, right = {.data = NULL};
    if (number_broadcast(a, b ? b : a, &shape) != 0) return NULL;
    bool *answers = NULL;
    PyObject *result = NULL;
    if (number_read_wide(a, &shape, &left) == 0 && (!b || number_read_wide(b, &shape, &right) == 0)) {
        answers = malloc(left.count + 1);
        if (!answers) PyErr_NoMemory();
    }
    if (answers) {
        for (size_t at = 0; at < left.count; at++)
            answers[at] =
                number_holds(number_order(number_at(&left, at), b ? number_at(&right, at) : *number), operation);
        loch_tensor *made = NULL;
        const loch_status status =
            loch_tensor_create_from(LOCH_BOOL, shape.dimensions, shape.sizes, answers, NULL, &made);
        result = lochpy_made(status, made);
    }
    free(answers);
    free(left.data);
    free(right.data);
    return result;
}

PyObject *lochpy_tensor_compare(PyObject *self, PyObject *other, int operation)
{
    if (lochpy_is_tensor(other))
        return number_compare(lochpy_tensor_of(self), lochpy_tensor_of(other), NULL, operation);
    loch_scalar number;
    if (!PyBool_Check(other) && !PyLong_Check(other) && !PyFloat_Check(other)) Py_RETURN_NOTIMPLEMENTED;
    if (lochpy_read_scalar(other, LOCH_DTYPE_NONE, &number) != 0) {
        if (!PyErr_ExceptionMatches(PyExc_OverflowError)) return NULL;
        PyErr_Clear(); /* beyond all integers of 64 bits: compared as a float */
        double nearest = PyFloat_AsDouble(other);
        if (nearest == -1.0 && PyErr_Occurred()) {
            PyErr_Clear();
            PyObject *zero = PyLong_FromLong(0);
            const int is_positive = zero ? PyObject_RichCompareBool(other, zero, Py_GT) : -1;
            Py_XDECREF(zero);
            if (is_positive < 0) return NULL;
            nearest = is_positive ? DBL_MAX : -DBL_MAX;
        }
        number = loch_scalar_from_double(nearest);
    }
    return number_compare(lochpy_tensor_of(self), NULL, &number, operation);
}

int lochpy_tensor_contains(PyObject *self, PyObject *value)
{
    loch_scalar number;
    if (PyList_Check(value) || PyTuple_Check(value) ||
        (lochpy_is_tensor(value) && loch_tensor_get_dimensions(lochpy_tensor_of(value)) > 0)) {
        PyErr_SetString(PyExc_TypeError, "`in` looks for one number");
        return -1;
    }
    if (lochpy_read_scalar(value, LOCH_DTYPE_NONE, &number) != 0) {
        if (!PyErr_ExceptionMatches(PyExc_OverflowError)) return -1;
        PyErr_Clear();
        return 0;
    }
    number_row row;
    if (number_read(lochpy_tensor_of(self), &row) != 0) return -1;
    int is_found = 0;
    for (size_t at = 0; at < row.count && !is_found; at++)
        is_found = number_order(number_at(&row, at), number) == 0;
    free(row.data);
    return is_found;
}

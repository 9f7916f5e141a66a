/* SPDX-License-Identifier: MIT */
/* Elements as numbers of Python: lists and single numbers. For few elements; NumPy is faster for many. */
#include "core.h"

#include <stdlib.h>

/* All elements of a tensor in host memory, row after row. */
typedef struct number_row {
    loch_dtype dtype;
    size_t count, bytes; /* bytes of one element */
    char *data;
} number_row;

static int number_read(loch_tensor *tensor, loch_stream *stream, number_row *out)
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
    if (LOCHPY_TRY(loch_tensor_read(tensor, out->data, out->count * out->bytes, stream)) == 0) return 0;
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
    if (number_read(tensor, NULL, &row) != 0) return NULL;
    size_t next = 0;
    PyObject *list = number_list(&row, loch_tensor_get_shape(tensor), loch_tensor_get_dimensions(tensor), &next);
    free(row.data);
    return list;
}

/* Clips an integer to the range of an integer type. */
static loch_scalar number_clip(loch_scalar scalar, loch_dtype dtype)
{
    const bool is_signed = dtype <= LOCH_I64;
    const uint64_t most = (UINT64_MAX >> (64 - 8 * loch_dtype_bytes(dtype))) >> (is_signed ? 1 : 0);
    const int64_t least = is_signed ? -(int64_t)most - 1 : 0;
    if (scalar.dtype == LOCH_I64 && scalar.value.i < 0) {
        if (scalar.value.i < least) scalar.value.i = least;
    } else if (scalar.value.u > most) {
        scalar.value.u = most;
    }
    return scalar;
}

loch_tensor *lochpy_clip(loch_tensor *tensor, loch_dtype dtype, loch_stream *stream)
{
    number_row row;
    if (number_read(tensor, stream, &row) != 0) return NULL;
    const size_t bytes = loch_dtype_bytes(dtype);
    char *data = malloc(row.count * bytes + 1);
    loch_tensor *made = NULL;
    if (!data) PyErr_NoMemory();
    if (data) {
        loch_status status = LOCH_OK;
        for (size_t at = 0; at < row.count && status == LOCH_OK; at++)
            status = loch_scalar_store(number_clip(number_at(&row, at), dtype), dtype, data + at * bytes);
        if (status == LOCH_OK)
            status = loch_tensor_create_from(dtype, loch_tensor_get_dimensions(tensor), loch_tensor_get_shape(tensor),
                                             data, NULL, &made);
        (void)lochpy_check(status);
    }
    free(data);
    free(row.data);
    return made;
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

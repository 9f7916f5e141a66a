/* SPDX-License-Identifier: MIT */
/* Indices: integers, slices, None and Ellipsis, as in NumPy's basic indexing; and assignment to parts. Indices with
 * arrays are NumPy's work: loch._tensor. */
#include "core.h"

#define INDEX_KEYS_MAX (2 * LOCH_DIMENSIONS_MAX + 1)

Py_ssize_t lochpy_tensor_length(PyObject *self)
{
    const loch_tensor *tensor = lochpy_tensor_of(self);
    if (loch_tensor_get_dimensions(tensor) > 0) return (Py_ssize_t)loch_tensor_get_shape(tensor)[0];
    PyErr_SetString(PyExc_TypeError, "a tensor without dimensions has no length");
    return -1;
}

/* Raises an error that is an IndexError and a TypeError. */
static int index_refuse(const char *text)
{
    PyObject *class = NULL, *module = PyImport_ImportModule("loch._errors");
    if (module) class = PyObject_GetAttrString(module, "KeyTypeError");
    Py_XDECREF(module);
    if (class) PyErr_SetString(class, text);
    Py_XDECREF(class);
    return -1;
}

/* A walk over the keys of an index: the view so far, and the next axis. */
typedef struct index_walk {
    loch_tensor *view; /* a reference */
    int axis;
} index_walk;

/* Replaces the view by the one that a call made. */
static int index_step(index_walk *walk, loch_status status, loch_tensor *made)
{
    if (lochpy_check(status) != 0) return -1;
    loch_tensor_release(walk->view);
    walk->view = made;
    return 0;
}

static int index_by_number(index_walk *walk, PyObject *key)
{
    const Py_ssize_t at = PyNumber_AsSsize_t(key, PyExc_IndexError);
    if (at == -1 && PyErr_Occurred()) return -1;
    loch_tensor *made = NULL;
    const loch_status status = loch_tensor_index(walk->view, walk->axis, at, &made);
    if (status != LOCH_E_OUT_OF_RANGE) return index_step(walk, status, made);
    (void)lochpy_raise(status);
    return -1;
}

loch_status lochpy_slice(loch_tensor *tensor, int axis, Py_ssize_t start, Py_ssize_t stop, Py_ssize_t step,
                         loch_tensor **out)
{
    const int64_t size = loch_tensor_get_size(tensor, axis);
    const Py_ssize_t count = PySlice_AdjustIndices(size < 0 ? 0 : (Py_ssize_t)size, &start, &stop, step);
    if (count == 0) start = 0;
    if (count <= 1) step = 1, stop = start + count; /* a step beyond the range would not fit a stride */
    return loch_tensor_slice(tensor, axis, start, stop < 0 ? LOCH_OPEN : stop, step, out);
}

static int index_by_slice(index_walk *walk, PyObject *key)
{
    Py_ssize_t start, stop, step;
    if (PySlice_Unpack(key, &start, &stop, &step) < 0) return -1;
    loch_tensor *made = NULL;
    const loch_status status = lochpy_slice(walk->view, walk->axis, start, stop, step, &made);
    walk->axis++;
    return index_step(walk, status, made);
}

static int index_by_none(index_walk *walk)
{
    loch_tensor *made = NULL;
    const bool is_last = (size_t)walk->axis >= loch_tensor_get_dimensions(walk->view);
    const loch_status status = loch_tensor_unsqueeze(walk->view, is_last ? -1 : walk->axis, &made);
    walk->axis++;
    return index_step(walk, status, made);
}

static int index_by(index_walk *walk, PyObject *key, int open)
{
    if (Py_IsNone(key)) return index_by_none(walk);
    if (key == Py_Ellipsis) {
        walk->axis += open;
        return 0;
    }
    if (PySlice_Check(key)) return index_by_slice(walk, key);
    if (!PyBool_Check(key) && PyIndex_Check(key)) {
        if (index_by_number(walk, key) == 0) return 0;
        if (!PyErr_ExceptionMatches(PyExc_TypeError)) return -1;
        PyErr_Clear(); /* an array with dimensions has the slot and refuses */
    }
    return index_refuse(
        "only integers, slices, None, Ellipsis, and arrays of integers or bools are indices of a tensor");
}

/* Reads how many axes an Ellipsis, or the missing keys at the end, stand for. */
static int index_count(PyObject *keys, size_t dimensions, int *open)
{
    const Py_ssize_t count = PyTuple_Size(keys);
    int used = 0, ellipses = 0;
    for (Py_ssize_t at = 0; at < count; at++) {
        PyObject *key = PyTuple_GetItem(keys, at);
        ellipses += key == Py_Ellipsis;
        used += key != Py_Ellipsis && !Py_IsNone(key);
    }
    *open = (int)dimensions - used;
    if (ellipses > 1) {
        PyErr_SetString(PyExc_IndexError, "an index has at most one Ellipsis");
        return -1;
    }
    if (*open < 0 || count > INDEX_KEYS_MAX) {
        PyErr_Format(PyExc_IndexError, "too many indices: the tensor has %zu dimensions, %d were indexed", dimensions,
                     used);
        return -1;
    }
    return 0;
}

/* Tells whether an index has a list or an array in it that is not one integer. */
static bool index_has_array(PyObject *key)
{
    if (PyTuple_Check(key)) {
        bool is_found = false;
        for (Py_ssize_t at = 0; !is_found && at < PyTuple_Size(key); at++)
            is_found = !PyTuple_Check(PyTuple_GetItem(key, at)) && index_has_array(PyTuple_GetItem(key, at));
        return is_found;
    }
    if (PyList_Check(key)) return true;
    if (PyLong_Check(key) || PySlice_Check(key) || !PyObject_HasAttrString(key, "__dlpack__")) return false;
    PyObject *number = PyNumber_Index(key);
    if (!number) PyErr_Clear();
    Py_XDECREF(number);
    return !number;
}

PyObject *lochpy_tensor_get(PyObject *self, PyObject *key)
{
    if (index_has_array(key)) return lochpy_call("loch._tensor", "take", "(OO)", self, key);
    PyObject *keys;
    if (PyTuple_Check(key)) {
        Py_INCREF(key);
        keys = key;
    } else {
        keys = PyTuple_Pack(1, key);
        if (!keys) return NULL;
    }
    loch_tensor *tensor = lochpy_tensor_of(self);
    index_walk walk = {loch_tensor_retain(tensor), 0};
    int open, result = index_count(keys, loch_tensor_get_dimensions(tensor), &open);
    const Py_ssize_t count = PyTuple_Size(keys);
    for (Py_ssize_t at = 0; result == 0 && at < count; at++)
        result = index_by(&walk, PyTuple_GetItem(keys, at), open);
    Py_DECREF(keys);
    if (result == 0) return lochpy_make_tensor(walk.view);
    loch_tensor_release(walk.view);
    return NULL;
}

PyObject *lochpy_tensor_item_at(PyObject *self, Py_ssize_t index)
{
    loch_tensor *made = NULL;
    const loch_tensor *tensor = lochpy_tensor_of(self);
    if (loch_tensor_get_dimensions(tensor) == 0) {
        PyErr_SetString(PyExc_IndexError, "too many indices: the tensor has no dimensions");
        return NULL;
    }
    if (index < 0 || index >= loch_tensor_get_shape(tensor)[0]) { /* ends loops over a tensor */
        PyErr_Format(PyExc_IndexError, "index %zd is out of range for an axis of size %lld", index,
                     (long long)loch_tensor_get_shape(tensor)[0]);
        return NULL;
    }
    const loch_status status = loch_tensor_index(lochpy_tensor_of(self), 0, index, &made);
    return lochpy_made(status, made);
}

/* --- assignment --- */

PyObject *lochpy_as_tensor(PyObject *value, loch_dtype dtype)
{
    if (lochpy_is_tensor(value)) {
        Py_INCREF(value);
        return value;
    }
    if (lochpy_is_sequence(value)) return lochpy_tensor_of_sequence(value, dtype);
    if (PyObject_HasAttrString(value, "__dlpack__")) {
        PyObject *arguments = PyTuple_Pack(1, value);
        PyObject *made = arguments ? lochpy_from_dlpack(NULL, arguments, NULL) : NULL;
        Py_XDECREF(arguments);
        return made;
    }
    if (PyObject_CheckBuffer(value) && !PyNumber_Check(value)) return lochpy_tensor_of_buffer(value, false);
    PyErr_Format(PyExc_TypeError, "%R is not a tensor, an array or a list of numbers", value);
    return NULL;
}

bool lochpy_is_number(PyObject *value)
{
    if (lochpy_is_tensor(value) || lochpy_is_sequence(value)) return false;
    if (PyObject_HasAttrString(value, "__dlpack__")) return false;
    return !PyObject_CheckBuffer(value) || PyNumber_Check(value) || PyBytes_Check(value) || PyByteArray_Check(value);
}

/* Broadcasts a value to the shape of a part. Axes of size 1 in front of it fall away, as in NumPy. */
static loch_status index_broadcast(loch_tensor *value, loch_tensor *part, loch_tensor **out)
{
    const size_t dimensions = loch_tensor_get_dimensions(part);
    loch_tensor *view = loch_tensor_retain(value);
    *out = NULL;
    while (loch_tensor_get_dimensions(view) > dimensions && loch_tensor_get_shape(view)[0] == 1) {
        loch_tensor *fewer = NULL;
        const loch_status status = loch_tensor_squeeze_axis(view, 0, &fewer);
        loch_tensor_release(view);
        if (status != LOCH_OK) return status;
        view = fewer;
    }
    const loch_status status = loch_tensor_expand(view, dimensions, loch_tensor_get_shape(part), out);
    loch_tensor_release(view);
    return status;
}

static int index_assign_tensor(loch_tensor *part, PyObject *value)
{
    PyObject *object = lochpy_as_tensor(value, loch_tensor_get_dtype(part));
    if (!object) return -1;
    loch_tensor *wide = NULL;
    int result = lochpy_check(index_broadcast(lochpy_tensor_of(object), part, &wide));
    if (result == 0) result = lochpy_awake(wide);
    if (result == 0) result = LOCHPY_TRY(loch_tensor_copy(part, wide, NULL));
    loch_tensor_release(wide);
    Py_DECREF(object);
    return result;
}

int lochpy_tensor_set(PyObject *self, PyObject *key, PyObject *value)
{
    if (!value) {
        PyErr_SetString(PyExc_TypeError, "elements of a tensor cannot be deleted");
        return -1;
    }
    if (index_has_array(key)) {
        PyObject *none = lochpy_call("loch._tensor", "put", "(OOO)", self, key, value);
        Py_XDECREF(none);
        return none ? 0 : -1;
    }
    PyObject *view = lochpy_tensor_get(self, key);
    if (!view) return -1;
    loch_tensor *part = lochpy_tensor_of(view);
    int result = lochpy_awake(part);
    if (result != 0) {
        /* raised */
    } else if (lochpy_is_number(value)) {
        loch_scalar scalar;
        result = lochpy_read_scalar(value, loch_tensor_get_dtype(part), &scalar);
        if (result == 0) result = LOCHPY_TRY(loch_tensor_fill(part, scalar, NULL));
    } else {
        result = index_assign_tensor(part, value);
    }
    Py_DECREF(view);
    return result;
}

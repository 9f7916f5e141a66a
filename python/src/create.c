/* SPDX-License-Identifier: MIT */
/* New tensors: empty, full, of nested lists, of bytes and of files. */
#include "core.h"

#include <stdlib.h>
#include <string.h>

/* Makes a tensor for a request of empty or zeros. */
static PyObject *create_without_values(PyObject *arguments, PyObject *keywords, const char *format, uint32_t flags)
{
    static char *names[] = {"shape", "dtype", "device", "pool", "stream", "tag", NULL};
    PyObject *sizes, *type = NULL, *device = NULL, *pool = NULL, *stream = NULL, *tag = NULL;
    if (!PyArg_ParseTupleAndKeywords(arguments, keywords, format, names, &sizes, &type, &device, &pool, &stream, &tag))
        return NULL;
    lochpy_shape shape;
    loch_dtype dtype;
    lochpy_memory memory;
    if (lochpy_read_shape(sizes, &shape) != 0 || lochpy_read_dtype(type, &dtype) != 0 ||
        lochpy_read_memory(device, pool, stream, tag, NULL, &memory) != 0)
        return NULL;
    if (dtype == LOCH_DTYPE_NONE) dtype = LOCH_F32;
    memory.options.flags |= flags;
    loch_tensor *made = NULL;
    loch_status status;
    LOCHPY_WITHOUT_GIL(status = loch_tensor_create(dtype, shape.dimensions, shape.sizes, &memory.options, &made));
    lochpy_memory_done(&memory);
    return lochpy_made(status, made);
}

PyObject *lochpy_empty(PyObject *module, PyObject *arguments, PyObject *keywords)
{
    (void)module;
    return create_without_values(arguments, keywords, "O|OO$OOO:empty", 0);
}

PyObject *lochpy_zeros(PyObject *module, PyObject *arguments, PyObject *keywords)
{
    (void)module;
    return create_without_values(arguments, keywords, "O|OO$OOO:zeros", LOCH_ALLOC_ZEROED);
}

/* Returns the type that a number or an array has; LOCH_DTYPE_NONE for numbers of Python. */
static loch_dtype create_own_type(PyObject *value)
{
    loch_dtype own = LOCH_DTYPE_NONE;
    if (PyBool_Check(value) || PyLong_CheckExact(value) || PyFloat_CheckExact(value)) return own;
    PyObject *type = PyObject_GetAttrString(value, "dtype");
    if (!type || lochpy_read_dtype(type, &own) != 0) PyErr_Clear(); /* not a type of Loch */
    Py_XDECREF(type);
    return own;
}

PyObject *lochpy_full(PyObject *module, PyObject *arguments, PyObject *keywords)
{
    (void)module;
    static char *names[] = {"shape", "value", "dtype", "device", "pool", "stream", "tag", NULL};
    PyObject *sizes, *value, *type = NULL, *device = NULL, *pool = NULL, *stream = NULL, *tag = NULL;
    if (!PyArg_ParseTupleAndKeywords(arguments, keywords, "OO|OO$OOO:full", names, &sizes, &value, &type, &device,
                                     &pool, &stream, &tag))
        return NULL;
    lochpy_shape shape;
    loch_dtype dtype;
    loch_scalar scalar;
    lochpy_memory memory;
    if (lochpy_read_shape(sizes, &shape) != 0 || lochpy_read_dtype(type, &dtype) != 0 ||
        lochpy_read_scalar(value, dtype, &scalar) != 0 ||
        lochpy_read_memory(device, pool, stream, tag, NULL, &memory) != 0)
        return NULL;
    if (dtype == LOCH_DTYPE_NONE) dtype = create_own_type(value);
    if (dtype == LOCH_DTYPE_NONE) dtype = scalar.dtype == LOCH_F64 ? LOCH_F32 : scalar.dtype;
    loch_tensor *made = NULL;
    loch_status status;
    PyThreadState *thread = PyEval_SaveThread();
    status = loch_tensor_create(dtype, shape.dimensions, shape.sizes, &memory.options, &made);
    if (status == LOCH_OK) status = loch_tensor_fill(made, scalar, memory.options.stream);
    if (status != LOCH_OK) loch_tensor_clear(&made);
    PyEval_RestoreThread(thread);
    lochpy_memory_done(&memory);
    return lochpy_made(status, made);
}

/* --- nested lists --- */

/* Numbers of nested lists, row after row. */
typedef struct create_numbers {
    loch_dtype wanted; /* LOCH_DTYPE_NONE: chosen by the numbers */
    loch_dtype floats; /* for floats of Python */
    loch_dtype own;    /* type of the first array or number that has one */
    bool is_noted;     /* `own` is set; LOCH_DTYPE_NONE for a number of Python */
    bool is_mixed;     /* others have another type than `own` */
    bool has_f64;      /* an array or number of f64 */
    lochpy_shape shape;
    loch_scalar *all;
    size_t count, room;
    bool has_bool, has_integer, has_float;
} create_numbers;

/* Returns a tuple of the items of a list, a tuple, a range or an array with dimensions; NULL without an exception for
 * anything else. A tuple, because code that reads a number may change a list. */
static PyObject *create_items(PyObject *value)
{
    if (lochpy_is_sequence(value)) return PySequence_Tuple(value);
    if (PyLong_Check(value) || PyFloat_Check(value) || PyUnicode_Check(value)) return NULL;
    PyObject *method = PyObject_GetAttrString(value, "tolist");
    if (!method) {
        if (PyErr_ExceptionMatches(PyExc_AttributeError)) PyErr_Clear();
        return NULL;
    }
    PyObject *list = PyObject_CallNoArgs(method);
    Py_DECREF(method);
    if (!list) return NULL;
    PyObject *tuple = PyList_Check(list) ? PySequence_Tuple(list) : NULL;
    Py_DECREF(list);
    return tuple;
}

/* Reads the shape by the first item of each list. */
static int create_read_shape(PyObject *value, lochpy_shape *out)
{
    Py_INCREF(value);
    while (value) {
        PyObject *items = create_items(value);
        Py_DECREF(value);
        if (!items) return PyErr_Occurred() ? -1 : 0;
        if (out->dimensions == LOCH_DIMENSIONS_MAX) {
            Py_DECREF(items);
            (void)lochpy_raise_text(LOCH_E_INVALID, "a tensor has at most %d dimensions: the lists are deeper",
                                    LOCH_DIMENSIONS_MAX);
            return -1;
        }
        const Py_ssize_t count = PyTuple_Size(items);
        out->sizes[out->dimensions++] = count;
        value = count ? PyTuple_GetItem(items, 0) : NULL;
        Py_XINCREF(value);
        Py_DECREF(items);
    }
    return 0;
}

static int create_add(create_numbers *numbers, PyObject *value)
{
    if (numbers->count == numbers->room) {
        const size_t room = numbers->room ? 2 * numbers->room : 16;
        loch_scalar *all = room <= SIZE_MAX / sizeof *all ? realloc(numbers->all, room * sizeof *all) : NULL;
        if (!all) {
            PyErr_NoMemory();
            return -1;
        }
        numbers->all = all;
        numbers->room = room;
    }
    loch_scalar *scalar = &numbers->all[numbers->count];
    if (lochpy_read_scalar(value, numbers->wanted, scalar) != 0) return -1;
    numbers->count++;
    numbers->has_bool |= scalar->dtype == LOCH_BOOL;
    numbers->has_float |= scalar->dtype == LOCH_F64;
    numbers->has_integer |= scalar->dtype == LOCH_I64 || scalar->dtype == LOCH_U64;
    return 0;
}

static void create_note_type(create_numbers *numbers, loch_dtype own)
{
    if (!numbers->is_noted) numbers->own = own;
    numbers->is_mixed |= own != numbers->own;
    numbers->is_noted = true;
    numbers->has_f64 |= own == LOCH_F64;
}

/* `is_typed`: an array around the value has given its type. */
static int create_flatten(create_numbers *numbers, PyObject *value, size_t depth, bool is_typed)
{
    PyObject *items = create_items(value);
    if (!items && PyErr_Occurred()) return -1;
    if (!is_typed && !lochpy_is_sequence(value)) {
        create_note_type(numbers, create_own_type(value));
        is_typed = true;
    }
    const bool is_list = items != NULL, has_axis = depth < numbers->shape.dimensions;
    if (is_list != has_axis || (is_list && PyTuple_Size(items) != numbers->shape.sizes[depth])) {
        Py_XDECREF(items);
        PyErr_SetString(PyExc_ValueError, "the lists are ragged: rows of different lengths");
        return -1;
    }
    if (!is_list) return create_add(numbers, value);
    int result = 0;
    for (Py_ssize_t at = 0; result == 0 && at < numbers->shape.sizes[depth]; at++)
        result = create_flatten(numbers, PyTuple_GetItem(items, at), depth + 1, is_typed);
    Py_DECREF(items);
    return result;
}

/* Chooses the type: that of all arrays and numbers, or for numbers of Python bool, i64, u64 or the type for floats. */
static int create_choose(const create_numbers *numbers, loch_dtype *out)
{
    if (numbers->own != LOCH_DTYPE_NONE && !numbers->is_mixed) {
        *out = numbers->own;
        return 0;
    }
    bool has_negative = false, has_large = false;
    for (size_t at = 0; at < numbers->count; at++) {
        has_negative |= numbers->all[at].dtype == LOCH_I64 && numbers->all[at].value.i < 0;
        has_large |= numbers->all[at].dtype == LOCH_U64;
    }
    if (numbers->has_float || numbers->count == 0)
        *out = numbers->has_f64 ? LOCH_F64 : numbers->floats;
    else if (!numbers->has_integer)
        *out = LOCH_BOOL;
    else
        *out = has_large ? LOCH_U64 : LOCH_I64;
    if (*out != LOCH_U64 || !has_negative) return 0;
    PyErr_SetString(PyExc_OverflowError, "no integer type of 64 bits holds all the numbers");
    return -1;
}

/* Makes a tensor of nested lists. `options` may be NULL. */
static PyObject *create_of_sequence(PyObject *value, loch_dtype dtype, loch_dtype floats,
                                    const loch_tensor_options *options)
{
    create_numbers numbers = {.wanted = dtype, .floats = floats};
    PyObject *result = NULL;
    char *data = NULL;
    if (create_read_shape(value, &numbers.shape) != 0 || create_flatten(&numbers, value, 0, false) != 0) goto end;
    if (dtype == LOCH_DTYPE_NONE && create_choose(&numbers, &dtype) != 0) goto end;
    const size_t bytes = loch_dtype_bytes(dtype);
    data = malloc(numbers.count * bytes + 1);
    if (!data) {
        PyErr_NoMemory();
        goto end;
    }
    for (size_t at = 0; at < numbers.count; at++)
        if (lochpy_check(loch_scalar_store(numbers.all[at], dtype, data + at * bytes)) != 0) goto end;
    loch_tensor *made = NULL;
    loch_status status;
    LOCHPY_WITHOUT_GIL(
        status = loch_tensor_create_from(dtype, numbers.shape.dimensions, numbers.shape.sizes, data, options, &made));
    result = lochpy_made(status, made);
end:
    free(data);
    free(numbers.all);
    return result;
}

PyObject *lochpy_tensor_of_sequence(PyObject *value, loch_dtype dtype)
{
    return create_of_sequence(value, dtype, LOCH_F64, NULL);
}

/* Tells whether a value shares its memory with others: an array or a tensor, not numbers in lists. */
static bool create_is_array(PyObject *value)
{
    if (PyList_Check(value) || PyTuple_Check(value) || PyLong_Check(value) || PyFloat_Check(value)) return false;
    return lochpy_is_tensor(value) || PyObject_HasAttrString(value, "__dlpack__") ||
           (PyObject_CheckBuffer(value) && !PyNumber_Check(value));
}

/* Makes a copy of an array. */
static PyObject *create_of_array(PyObject *value, loch_dtype dtype, const loch_tensor_options *options)
{
    PyObject *source = lochpy_as_tensor(value, LOCH_DTYPE_NONE);
    if (!source) return NULL;
    loch_tensor *tensor = lochpy_tensor_of(source), *made = NULL;
    loch_status status;
    PyThreadState *thread = PyEval_SaveThread();
    const bool is_placed = options->device || options->allocator;
    if (dtype != LOCH_DTYPE_NONE && dtype != loch_tensor_get_dtype(tensor))
        status = loch_tensor_to(tensor, dtype, is_placed ? options : NULL, &made);
    else
        status = loch_tensor_clone(tensor, is_placed ? options : NULL, &made);
    PyEval_RestoreThread(thread);
    Py_DECREF(source);
    return lochpy_made(status, made);
}

PyObject *lochpy_tensor_of_numbers(PyObject *module, PyObject *arguments, PyObject *keywords)
{
    (void)module;
    static char *names[] = {"values", "dtype", "device", "pool", "stream", "tag", NULL};
    PyObject *values, *type = NULL, *device = NULL, *pool = NULL, *stream = NULL, *tag = NULL;
    if (!PyArg_ParseTupleAndKeywords(arguments, keywords, "O|OO$OOO:tensor", names, &values, &type, &device, &pool,
                                     &stream, &tag))
        return NULL;
    loch_dtype dtype;
    lochpy_memory memory;
    if (lochpy_read_dtype(type, &dtype) != 0 || lochpy_read_memory(device, pool, stream, tag, NULL, &memory) != 0)
        return NULL;
    PyObject *made = create_is_array(values) ? create_of_array(values, dtype, &memory.options)
                                             : create_of_sequence(values, dtype, LOCH_F32, &memory.options);
    lochpy_memory_done(&memory);
    return made;
}

/* --- bytes and files --- */

PyObject *lochpy_create_from(PyObject *module, PyObject *arguments, PyObject *keywords)
{
    (void)module;
    static char *names[] = {"dtype", "shape", "contents", "device", NULL};
    PyObject *type, *sizes, *device = NULL;
    Py_buffer contents;
    if (!PyArg_ParseTupleAndKeywords(arguments, keywords, "OOy*|O:_create_from", names, &type, &sizes, &contents,
                                     &device))
        return NULL;
    PyObject *made = NULL;
    loch_dtype dtype;
    lochpy_shape shape;
    lochpy_memory memory;
    if (lochpy_read_dtype(type, &dtype) != 0 || lochpy_read_shape(sizes, &shape) != 0) goto end;
    size_t left = (size_t)contents.len, item = loch_dtype_bytes(dtype);
    bool is_empty = false, fits = item && left % item == 0;
    left = item ? left / item : 0;
    for (size_t at = 0; at < shape.dimensions; at++) {
        is_empty |= shape.sizes[at] == 0;
        fits = fits && shape.sizes[at] >= 0;
        if (shape.sizes[at] > 0 && left % (size_t)shape.sizes[at] != 0) fits = false;
        if (shape.sizes[at] > 0) left /= (size_t)shape.sizes[at];
    }
    if (!fits || (is_empty ? contents.len != 0 : left != 1)) {
        (void)lochpy_raise_text(LOCH_E_CORRUPT, "%zd bytes are not the contents of a tensor of that shape",
                                contents.len);
        goto end;
    }
    if (lochpy_read_memory(device, NULL, NULL, NULL, NULL, &memory) != 0) goto end;
    loch_tensor *tensor = NULL;
    loch_status status;
    LOCHPY_WITHOUT_GIL(
        status = loch_tensor_create_from(dtype, shape.dimensions, shape.sizes, contents.buf, &memory.options, &tensor));
    lochpy_memory_done(&memory);
    made = lochpy_made(status, tensor);
end:
    PyBuffer_Release(&contents);
    return made;
}

PyObject *lochpy_load(PyObject *module, PyObject *arguments, PyObject *keywords)
{
    (void)module;
    static char *names[] = {"path", "dtype", "mapped", "read_only", "device", "pool", NULL};
    PyObject *path, *type = NULL, *mapped = Py_False, *device = NULL, *pool = NULL;
    int is_read_only = 0;
    if (!PyArg_ParseTupleAndKeywords(arguments, keywords, "O&|O$OpOO:load", names, PyUnicode_FSConverter, &path, &type,
                                     &mapped, &is_read_only, &device, &pool))
        return NULL;
    PyObject *result = NULL;
    loch_npy_load_options options = {.size = sizeof options, .access = is_read_only ? LOCH_READ_ONLY : LOCH_READ_WRITE};
    lochpy_memory memory;
    const int is_mapped = Py_IsNone(mapped) ? 2 : PyObject_IsTrue(mapped);
    if (is_mapped >= 0 && lochpy_read_dtype(type, &options.dtype) == 0 &&
        lochpy_read_memory(device, pool, NULL, NULL, NULL, &memory) == 0) {
        options.mapping = is_mapped == 2 ? LOCH_NPY_MAP_AUTO : is_mapped ? LOCH_NPY_MAP_REQUIRE : LOCH_NPY_MAP_NEVER;
        if (memory.options.device || memory.options.allocator) options.memory = &memory.options;
        loch_tensor *made = NULL;
        loch_status status;
        PyThreadState *thread = PyEval_SaveThread();
        status = loch_npy_load(PyBytes_AsString(path), &options, &made);
        const loch_dtype stored = loch_tensor_get_dtype(made);
        const bool converts = status == LOCH_OK && options.dtype != LOCH_DTYPE_NONE && options.dtype != stored;
        if (converts && is_mapped != 1) {
            loch_tensor *converted = NULL;
            status = loch_tensor_to(made, options.dtype, options.memory, &converted);
            loch_tensor_release(made);
            made = converted;
        }
        PyEval_RestoreThread(thread);
        lochpy_memory_done(&memory);
        if (converts && is_mapped == 1) {
            loch_tensor_release(made);
            (void)lochpy_raise_text(LOCH_E_INVALID, "a mapped file of %s cannot become %s: load it without mapped=True",
                                    loch_dtype_name(stored), loch_dtype_name(options.dtype));
        } else {
            result = lochpy_check_file(status) == 0 ? lochpy_make_tensor(made) : NULL;
        }
    }
    Py_DECREF(path);
    return result;
}

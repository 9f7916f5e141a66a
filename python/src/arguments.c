/* SPDX-License-Identifier: MIT */
/* Arguments: reads what Python programs pass, and makes what they get back. */
#include "core.h"
#include "kit/parse.h"

#include <ctype.h>
#include <math.h>
#include <string.h>

_Thread_local loch_tag lochpy_thread_tag;

PyObject *lochpy_make_text(const char *text)
{
    return PyUnicode_DecodeUTF8(text, (Py_ssize_t)strlen(text), "replace");
}

const char *lochpy_text_of(PyObject *string)
{
    Py_ssize_t length;
    const char *text = PyUnicode_AsUTF8AndSize(string, &length);
    if (!text || strlen(text) == (size_t)length) return text;
    PyErr_SetString(PyExc_ValueError, "embedded null character");
    return NULL;
}

/* --- shapes --- */

static int shape_read_size(PyObject *argument, int64_t *out)
{
    const Py_ssize_t size = PyNumber_AsSsize_t(argument, PyExc_OverflowError);
    if (size == -1 && PyErr_Occurred()) return -1;
    *out = size;
    return 0;
}

/* Reads the sizes of a tuple. */
static int shape_read_tuple(PyObject *tuple, lochpy_shape *out)
{
    const Py_ssize_t count = PyTuple_Size(tuple);
    if (count > LOCH_DIMENSIONS_MAX) {
        (void)lochpy_raise_text(LOCH_E_INVALID, "a tensor has at most %d dimensions, not %zd", LOCH_DIMENSIONS_MAX,
                                count);
        return -1;
    }
    for (Py_ssize_t at = 0; at < count; at++)
        if (shape_read_size(PyTuple_GetItem(tuple, at), &out->sizes[at]) != 0) return -1;
    out->dimensions = (size_t)count;
    return 0;
}

int lochpy_read_shape(PyObject *argument, lochpy_shape *out)
{
    memset(out, 0, sizeof *out);
    if (PyIndex_Check(argument)) {
        out->dimensions = 1;
        if (shape_read_size(argument, out->sizes) == 0) return 0;
        if (!PyErr_ExceptionMatches(PyExc_TypeError) || !PySequence_Check(argument)) return -1;
        PyErr_Clear(); /* an array of sizes has the slot and refuses */
        memset(out, 0, sizeof *out);
    }
    if (PyUnicode_Check(argument) || PyBytes_Check(argument)) {
        PyErr_SetString(PyExc_TypeError, "a shape is an integer or a sequence of integers, not text");
        return -1;
    }
    PyObject *tuple = PySequence_Tuple(argument);
    if (!tuple) return -1;
    const int result = shape_read_tuple(tuple, out);
    Py_DECREF(tuple);
    return result;
}

int lochpy_read_shape_arguments(PyObject *arguments, lochpy_shape *out)
{
    if (PyTuple_Size(arguments) == 1) return lochpy_read_shape(PyTuple_GetItem(arguments, 0), out);
    memset(out, 0, sizeof *out);
    return shape_read_tuple(arguments, out);
}

PyObject *lochpy_make_shape(size_t dimensions, const int64_t *sizes, int64_t factor)
{
    PyObject *tuple = PyTuple_New((Py_ssize_t)dimensions);
    for (size_t at = 0; tuple && at < dimensions; at++) {
        PyObject *size = PyLong_FromLongLong(sizes[at] * factor);
        if (!size || PyTuple_SetItem(tuple, (Py_ssize_t)at, size) != 0) Py_CLEAR(tuple);
    }
    return tuple;
}

/* --- types of elements --- */

/* Tuple in the order of loch_dtype; NULL before the package has set it. One that is replaced is not released: other
 * threads may read it. */
static _Atomic(PyObject *) dtype_objects;

int lochpy_set_dtypes(PyObject *tuple)
{
    if (!PyTuple_Check(tuple) || PyTuple_Size(tuple) != LOCH_DTYPE_COUNT) {
        PyErr_SetString(PyExc_ValueError, "a tuple with one object for each type is needed");
        return -1;
    }
    Py_INCREF(tuple);
    atomic_store_explicit(&dtype_objects, tuple, memory_order_release);
    return 0;
}

PyObject *lochpy_make_dtype(loch_dtype dtype)
{
    PyObject *objects = atomic_load_explicit(&dtype_objects, memory_order_acquire);
    if (!objects) return PyUnicode_FromString(loch_dtype_name(dtype));
    PyObject *object = PyTuple_GetItem(objects, (Py_ssize_t)dtype);
    Py_XINCREF(object);
    return object;
}

static int dtype_find(const char *name, loch_dtype *out)
{
    *out = loch_dtype_find(name);
    if (*out != LOCH_DTYPE_NONE) return 0;
    PyErr_Format(PyExc_TypeError,
                 "Loch has no type '%.80s': f64 f32 f16 bf16 f8e4m3 f8e5m2 i8 i16 i32 i64 u8 u16 u32 u64 bool", name);
    return -1;
}

int lochpy_read_dtype(PyObject *argument, loch_dtype *out)
{
    *out = LOCH_DTYPE_NONE;
    if (!argument || Py_IsNone(argument)) return 0;
    PyObject *objects = atomic_load_explicit(&dtype_objects, memory_order_acquire);
    for (int at = 1; objects && at < LOCH_DTYPE_COUNT; at++) {
        if (PyTuple_GetItem(objects, at) != argument) continue;
        *out = (loch_dtype)at;
        return 0;
    }
    PyObject *name;
    if (PyUnicode_Check(argument)) {
        Py_INCREF(argument);
        name = argument;
    } else {
        name = lochpy_call("loch._dtypes", "name_of", "(O)", argument);
        if (!name) return -1;
    }
    const char *text = lochpy_text_of(name);
    const int result = text ? dtype_find(text, out) : -1;
    Py_DECREF(name);
    return result;
}

/* --- bytes --- */

/* Reads text such as "40GiB". Spaces around the number and its unit are left out. */
static int bytes_read_text(const char *text, size_t *out)
{
    char copy[64];
    size_t length = 0;
    while (*text == ' ')
        text++;
    for (const char *at = text; *at && length < sizeof copy; at++) {
        const char *next = at + strspn(at, " ");
        const bool is_space = *at == ' ' && (!*next || isalpha((unsigned char)*next));
        if (!is_space) copy[length++] = *at;
    }
    copy[length < sizeof copy ? length : 0] = '\0'; /* what is longer is not a size */
    const lochi_parsed result = lochi_parse_size(copy, out);
    if (result == LOCHI_PARSED_NOTHING)
        PyErr_Format(PyExc_ValueError, "'%.80s' is not a size: write bytes, or text such as '512MiB' or '40GiB'", text);
    else if (result == LOCHI_PARSED_TOO_LARGE)
        PyErr_Format(PyExc_OverflowError, "'%.80s' does not fit 64 bits", text);
    return result == LOCHI_PARSED ? 0 : -1;
}

int lochpy_read_bytes(PyObject *argument, size_t *out)
{
    *out = 0;
    if (!argument || Py_IsNone(argument)) return 0;
    if (PyUnicode_Check(argument)) {
        const char *text = lochpy_text_of(argument);
        return text ? bytes_read_text(text, out) : -1;
    }
    PyObject *number = PyNumber_Index(argument);
    if (!number) return -1;
    const size_t value = PyLong_AsSize_t(number);
    const bool is_negative = PyErr_Occurred() && PyObject_IsTrue(number) == 1;
    Py_DECREF(number);
    if (is_negative) {
        PyErr_Clear();
        PyErr_SetString(PyExc_ValueError, "a size in bytes is not negative and fits 64 bits");
        return -1;
    }
    *out = value;
    return 0;
}

int lochpy_read_limit(PyObject *argument, size_t *out)
{
    if (lochpy_read_bytes(argument, out) != 0) return -1;
    if (*out || !argument || Py_IsNone(argument)) return 0;
    PyErr_SetString(PyExc_ValueError, "a limit of 0 bytes never serves a request: None is no limit");
    return -1;
}

int lochpy_read_seconds(PyObject *argument, uint64_t *out_ns)
{
    *out_ns = 0;
    if (!argument || Py_IsNone(argument)) return 0;
    const double seconds = PyFloat_AsDouble(argument);
    if (seconds == -1.0 && PyErr_Occurred()) return -1;
    if (!(seconds >= 0) || seconds > 1e9) {
        PyErr_SetString(PyExc_ValueError, "a timeout is a number of seconds from 0 to 1e9");
        return -1;
    }
    *out_ns = (uint64_t)(seconds * 1e9);
    return 0;
}

/* --- numbers --- */

static int scalar_outside(PyObject *argument, loch_dtype dtype)
{
    PyErr_Format(PyExc_OverflowError, "%S does not fit %s", argument,
                 dtype == LOCH_DTYPE_NONE ? "64 bits" : loch_dtype_name(dtype));
    return -1;
}

/* Limits of the integer types; bits is 0 for other types. */
static void scalar_limits(loch_dtype dtype, int *bits, bool *is_signed)
{
    *is_signed = dtype >= LOCH_I8 && dtype <= LOCH_I64;
    *bits = dtype >= LOCH_I8 && dtype <= LOCH_U64 ? 8 * (int)loch_dtype_bytes(dtype) : 0;
}

/* Tells whether an integer type holds a number. Other types hold all numbers. */
static bool scalar_fits(loch_dtype dtype, const loch_scalar *scalar)
{
    int bits;
    bool is_signed;
    scalar_limits(dtype, &bits, &is_signed);
    if (!bits) return true;
    const uint64_t most = (UINT64_MAX >> (64 - bits)) >> (is_signed ? 1 : 0);
    if (scalar->dtype == LOCH_F64) {
        const double number = trunc(scalar->value.f), limit = ldexp(1, is_signed ? bits - 1 : bits);
        return number < limit && number >= (is_signed ? -limit : 0);
    }
    if (scalar->dtype == LOCH_I64 && scalar->value.i < 0) return is_signed && scalar->value.i >= -(int64_t)most - 1;
    return scalar->value.u <= most;
}

static int scalar_read_integer(PyObject *argument, loch_scalar *out, bool *is_outside)
{
    PyObject *number = PyNumber_Index(argument);
    if (!number) return -1;
    int overflow = 0;
    const long long value = PyLong_AsLongLongAndOverflow(number, &overflow);
    *out = loch_scalar_from_signed(value);
    if (overflow > 0) {
        const unsigned long long large = PyLong_AsUnsignedLongLong(number);
        *is_outside = PyErr_Occurred() != NULL;
        PyErr_Clear();
        *out = loch_scalar_from_unsigned(large);
    } else if (overflow < 0) {
        *is_outside = true;
    }
    Py_DECREF(number);
    return overflow == 0 && value == -1 && PyErr_Occurred() ? -1 : 0;
}

int lochpy_read_scalar(PyObject *argument, loch_dtype dtype, loch_scalar *out)
{
    bool is_outside = false;
    if (PyBool_Check(argument)) {
        *out = (loch_scalar){.dtype = LOCH_BOOL, .value.u = Py_IsTrue(argument)};
        return 0;
    }
    if (PyIndex_Check(argument)) {
        if (scalar_read_integer(argument, out, &is_outside) == 0) {
            if (!is_outside && scalar_fits(dtype, out)) return 0;
            if (is_outside && dtype >= LOCH_F64 && dtype <= LOCH_F8E5M2) { /* a float holds it, rounded */
                const double value = PyFloat_AsDouble(argument);
                *out = loch_scalar_from_double(value);
                return value == -1.0 && PyErr_Occurred() ? -1 : 0;
            }
            if (is_outside && dtype == LOCH_BOOL) { /* not zero */
                *out = (loch_scalar){.dtype = LOCH_BOOL, .value.u = 1};
                return 0;
            }
            return scalar_outside(argument, dtype);
        }
        if (!PyErr_ExceptionMatches(PyExc_TypeError)) return -1;
        PyErr_Clear(); /* NumPy's bool has the slot and refuses */
    }
    if (PyUnicode_Check(argument) || PyBytes_Check(argument) || PyByteArray_Check(argument)) {
        PyErr_Format(PyExc_TypeError, "%R is not a number", argument);
        return -1;
    }
    PyObject *number = PyNumber_Float(argument);
    if (!number) return -1;
    *out = loch_scalar_from_double(PyFloat_AsDouble(number));
    Py_DECREF(number);
    if (scalar_fits(dtype, out)) return 0;
    if (!isnan(out->value.f)) return scalar_outside(argument, dtype);
    PyErr_Format(PyExc_ValueError, "NaN does not fit %s", loch_dtype_name(dtype));
    return -1;
}

PyObject *lochpy_make_scalar(loch_scalar scalar)
{
    switch (scalar.dtype) {
    case LOCH_BOOL: return PyBool_FromLong(scalar.value.u != 0);
    case LOCH_I64: return PyLong_FromLongLong(scalar.value.i);
    case LOCH_U64: return PyLong_FromUnsignedLongLong(scalar.value.u);
    default: return PyFloat_FromDouble(scalar.value.f);
    }
}

/* --- words and tags --- */

int lochpy_read_word(const char *what, const char *word, const char *const *words, int *out)
{
    *out = 0;
    if (!word) return 0;
    for (int at = 0; words[at]; at++) {
        if (strcmp(word, words[at]) != 0) continue;
        *out = at;
        return 0;
    }
    PyObject *list = PyUnicode_FromString("");
    for (int at = 0; list && words[at]; at++) {
        PyObject *longer = PyUnicode_FromFormat("%U %s'%s'", list, at ? "or " : "", words[at]);
        Py_DECREF(list);
        list = longer;
    }
    if (!list) return -1;
    PyErr_Format(PyExc_ValueError, "%s is%U, not '%.80s'", what, list, word);
    Py_DECREF(list);
    return -1;
}

int lochpy_read_tag(PyObject *argument, loch_tag *out)
{
    *out = lochpy_thread_tag;
    if (!argument || Py_IsNone(argument)) return 0;
    if (!PyUnicode_Check(argument)) {
        PyErr_Format(PyExc_TypeError, "a tag is a name, not %R", argument);
        return -1;
    }
    const char *name = lochpy_text_of(argument);
    if (!name) return -1;
    return lochpy_check(loch_tag_create(name, out));
}

/* A tag that is looked for, by its name. */
typedef struct arguments_tag {
    const char *name;
    loch_tag found;
} arguments_tag;

static loch_status arguments_see_tag(loch_tag tag, const char *name, void *user)
{
    arguments_tag *wanted = user;
    if (!strcmp(name, wanted->name)) wanted->found = tag;
    return LOCH_OK;
}

int lochpy_find_tag(PyObject *argument, loch_tag *out)
{
    if (!PyUnicode_Check(argument)) {
        PyErr_Format(PyExc_TypeError, "a tag is a name, not %R", argument);
        return -1;
    }
    arguments_tag wanted = {.name = lochpy_text_of(argument)};
    if (!wanted.name || lochpy_check(loch_tag_walk(arguments_see_tag, &wanted)) != 0) return -1;
    *out = wanted.found;
    if (wanted.found) return 0;
    (void)lochpy_raise_text(LOCH_E_INVALID, "there is no tag '%.80s': no block was ever allocated with it",
                            wanted.name);
    return -1;
}

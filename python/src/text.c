/* SPDX-License-Identifier: MIT */
/* Text: what functions of Loch print, as str of Python; the elements of a tensor. */
#include "core.h"

#include <stdlib.h>
#include <string.h>

/* --- what walks visit --- */

int lochpy_list_add(lochpy_list *list, void *item)
{
    if (list->count == list->room) {
        const size_t room = list->room ? 2 * list->room : 16;
        void **items = realloc(list->items, room * sizeof *items);
        if (!items) return -1;
        list->items = items;
        list->room = room;
    }
    list->items[list->count++] = item;
    return 0;
}

loch_status lochpy_list_add_text(lochpy_list *list, const char *text)
{
    char *copy = strdup(text);
    if (copy && lochpy_list_add(list, copy) == 0) return LOCH_OK;
    free(copy);
    return loch_error_set(LOCH_E_HOST_MEMORY, NULL, 0, "no host memory for a list");
}

PyObject *lochpy_list_end(lochpy_list *list, loch_status status, PyObject *(*make)(void *item),
                          void (*drop)(void *item))
{
    PyObject *result = lochpy_check(status) == 0 ? PyList_New(0) : NULL;
    for (size_t at = 0; at < list->count; at++) {
        PyObject *object = result ? make(list->items[at]) : NULL;
        if (result && (!object || PyList_Append(result, object) != 0)) Py_CLEAR(result);
        Py_XDECREF(object);
        if (drop) drop(list->items[at]);
    }
    free(list->items);
    return result;
}

PyObject *lochpy_list_make_text(void *item)
{
    return lochpy_make_text(item);
}

/* --- what functions print --- */

PyObject *lochpy_print(lochpy_printer *printer, const void *object)
{
    size_t bytes = 4096, length = 0;
    for (;;) {
        char *text = PyMem_Malloc(bytes);
        if (!text) return PyErr_NoMemory();
        loch_status status;
        LOCHPY_WITHOUT_GIL(status = printer(object, text, bytes, &length));
        PyObject *result = NULL;
        const bool fits = status == LOCH_OK && length < bytes;
        if (status != LOCH_OK) (void)lochpy_raise(status);
        if (fits) result = PyUnicode_DecodeUTF8(text, (Py_ssize_t)length, "replace");
        PyMem_Free(text);
        if (fits || status != LOCH_OK) return result;
        bytes = length + length / 8 + 1; /* figures may grow meanwhile */
    }
}

typedef struct text_print_of {
    loch_tensor *tensor;
    loch_print_options options;
} text_print_of;

static loch_status text_elements(const void *what, char *text, size_t bytes, size_t *length)
{
    const text_print_of *printed = what;
    return loch_tensor_print(printed->tensor, &printed->options, text, bytes, length);
}

static loch_status text_line(const void *tensor, char *text, size_t bytes, size_t *length)
{
    return loch_tensor_describe((loch_tensor *)tensor, text, bytes, length);
}

PyObject *lochpy_tensor_str(PyObject *self)
{
    const text_print_of text = {lochpy_tensor_of(self), {.size = sizeof text.options}};
    return lochpy_awake(text.tensor) == 0 ? lochpy_print(text_elements, &text) : NULL;
}

/* A line about the tensor stands for elements that cannot be read: they sleep, or their device has no contents. */
PyObject *lochpy_tensor_repr(PyObject *self)
{
    PyObject *values = lochpy_call("loch._tensor", "represent", "(O)", self);
    if (values || !PyErr_ExceptionMatches(PyExc_Exception)) return values;
    PyErr_Clear();
    PyObject *text = lochpy_print(text_line, lochpy_tensor_of(self));
    PyObject *result = text ? PyUnicode_FromFormat("<loch %U>", text) : NULL;
    Py_XDECREF(text);
    return result;
}

PyObject *lochpy_tensor_format_with(PyObject *self, PyObject *specification)
{
    if (PyObject_IsTrue(specification) == 0) return lochpy_tensor_str(self);
    if (loch_tensor_get_dimensions(lochpy_tensor_of(self)) > 0) {
        PyErr_Format(PyExc_TypeError, "format %R is for one number: write tensor.format(precision=2) for all elements",
                     specification);
        return NULL;
    }
    PyObject *none = PyTuple_New(0), *number = none ? lochpy_tensor_item(self, none) : NULL;
    PyObject *text = number ? PyObject_Format(number, specification) : NULL;
    Py_XDECREF(none);
    Py_XDECREF(number);
    return text;
}

PyObject *lochpy_tensor_format(PyObject *self, PyObject *arguments, PyObject *keywords)
{
    static char *names[] = {"precision", "threshold", "edge", "width", "notation", "separator", NULL};
    static const char *const notations[] = {"auto", "fixed", "scientific", NULL};
    Py_ssize_t threshold = 0, edge = 0, width = 0;
    const char *notation = NULL;
    int word;
    text_print_of text = {lochpy_tensor_of(self), {.size = sizeof text.options}};
    if (!PyArg_ParseTupleAndKeywords(arguments, keywords, "|$innnsz:format", names, &text.options.precision, &threshold,
                                     &edge, &width, &notation, &text.options.separator) ||
        lochpy_read_word("notation", notation, notations, &word) != 0)
        return NULL;
    if (threshold < 0 || edge < 0 || width < 0) {
        PyErr_SetString(PyExc_ValueError, "threshold, edge and width are not negative");
        return NULL;
    }
    text.options.threshold = (size_t)threshold;
    text.options.edge = (size_t)edge;
    text.options.width = (size_t)width;
    text.options.notation = (loch_notation)word;
    return lochpy_awake(text.tensor) == 0 ? lochpy_print(text_elements, &text) : NULL;
}

/* SPDX-License-Identifier: MIT */
/* The buffer protocol in both directions: memoryview(tensor), and tensors on memory of bytes, arrays and mappings. */
#include "core.h"

#include <string.h>

/* Format of each type in the struct module; NULL for types that it lacks. */
static const char *const buffer_formats[LOCH_DTYPE_COUNT] = {
    [LOCH_F64] = "d", [LOCH_F32] = "f", [LOCH_F16] = "e", [LOCH_I8] = "b",  [LOCH_I16] = "h", [LOCH_I32] = "i",
    [LOCH_I64] = "l", [LOCH_U8] = "B",  [LOCH_U16] = "H", [LOCH_U32] = "I", [LOCH_U64] = "L", [LOCH_BOOL] = "?"};
_Static_assert(sizeof(long) == 8, "formats of 64 bits");

/* --- export --- */

/* Sizes and strides of one export, in bytes. */
typedef struct buffer_layout {
    Py_ssize_t shape[LOCH_DIMENSIONS_MAX], strides[LOCH_DIMENSIONS_MAX];
    loch_allocator *counted; /* of lochpy_export_begin */
} buffer_layout;

static int buffer_refuse(const char *text)
{
    PyErr_SetString(PyExc_BufferError, text);
    return -1;
}

/* Tells whether elements share a place: writing one would write others. */
static bool buffer_repeats(const loch_tensor *tensor)
{
    for (size_t at = 0; at < loch_tensor_get_dimensions(tensor); at++)
        if (loch_tensor_get_strides(tensor)[at] == 0 && loch_tensor_get_shape(tensor)[at] > 1) return true;
    return false;
}

/* Waits for the work of Loch on memory that both the host and a device use. */
static int buffer_wait(const loch_tensor *tensor)
{
    loch_device *device = loch_tensor_get_device(tensor);
    if (!device || !loch_device_can(device, LOCH_CAN_ASYNC)) return 0;
    return LOCHPY_TRY(loch_stream_sync(loch_stream_get_default(device)));
}

/* Checks what the receiver requires of the layout. */
static int buffer_check_layout(const Py_buffer *view, int flags)
{
    const bool is_c = PyBuffer_IsContiguous(view, 'C'), is_fortran = PyBuffer_IsContiguous(view, 'F');
    if ((flags & PyBUF_C_CONTIGUOUS) == PyBUF_C_CONTIGUOUS && !is_c)
        return buffer_refuse("the elements are not contiguous: .contiguous() first");
    if ((flags & PyBUF_F_CONTIGUOUS) == PyBUF_F_CONTIGUOUS && !is_fortran)
        return buffer_refuse("the elements are not contiguous column after column");
    if ((flags & PyBUF_ANY_CONTIGUOUS) == PyBUF_ANY_CONTIGUOUS && !is_c && !is_fortran)
        return buffer_refuse("the elements are not contiguous: .contiguous() first");
    if ((flags & PyBUF_STRIDES) != PyBUF_STRIDES && !is_c)
        return buffer_refuse("the elements are not contiguous and the receiver takes no strides");
    return 0;
}

int lochpy_tensor_get_buffer(PyObject *self, Py_buffer *view, int flags)
{
    static char nothing;
    loch_tensor *tensor = lochpy_tensor_of(self);
    const loch_dtype dtype = loch_tensor_get_dtype(tensor);
    view->obj = NULL;
    if (!buffer_formats[dtype]) {
        PyErr_Format(PyExc_BufferError,
                     "%s has no format of a buffer: .to(dtype=\"f32\"), or .view_as(\"%s\") for the bits",
                     loch_dtype_name(dtype), loch_dtype_bytes(dtype) == 2 ? "u16" : "u8");
        return -1;
    }
    if (!loch_tensor_is_on_host(tensor)) {
        PyErr_Format(PyExc_BufferError, "the host cannot access memory of %s: .to(\"cpu\") first",
                     loch_device_get_name(loch_tensor_get_device(tensor)));
        return -1;
    }
    const bool is_read_only = loch_tensor_get_access(tensor) == LOCH_READ_ONLY || buffer_repeats(tensor);
    if (is_read_only && (flags & PyBUF_WRITABLE) == PyBUF_WRITABLE) return buffer_refuse("the tensor is read-only");
    void *address = NULL;
    if (lochpy_check(loch_tensor_get_address(tensor, &address)) != 0 || lochpy_awake(tensor) != 0 ||
        buffer_wait(tensor) != 0)
        return -1;
    buffer_layout *layout = PyMem_Calloc(1, sizeof *layout);
    if (!layout) {
        PyErr_NoMemory();
        return -1;
    }
    const size_t dimensions = loch_tensor_get_dimensions(tensor);
    const Py_ssize_t item = (Py_ssize_t)loch_dtype_bytes(dtype);
    for (size_t at = 0; at < dimensions; at++) {
        layout->shape[at] = (Py_ssize_t)loch_tensor_get_shape(tensor)[at];
        layout->strides[at] = (Py_ssize_t)loch_tensor_get_strides(tensor)[at] * item;
    }
    view->buf = address ? address : &nothing;
    view->len = (Py_ssize_t)loch_tensor_get_bytes(tensor);
    view->itemsize = item;
    view->readonly = is_read_only;
    view->ndim = (int)dimensions;
    view->format = (char *)buffer_formats[dtype];
    view->shape = layout->shape;
    view->strides = layout->strides;
    view->suboffsets = NULL;
    view->internal = layout;
    if (buffer_check_layout(view, flags) != 0) {
        PyMem_Free(layout);
        return -1;
    }
    if ((flags & PyBUF_FORMAT) != PyBUF_FORMAT) view->format = NULL;
    if ((flags & PyBUF_ND) != PyBUF_ND) view->shape = NULL;
    if ((flags & PyBUF_STRIDES) != PyBUF_STRIDES) view->strides = NULL;
    layout->counted = lochpy_export_begin(tensor);
    Py_INCREF(self);
    view->obj = self;
    return 0;
}

void lochpy_tensor_release_buffer(PyObject *self, Py_buffer *view)
{
    (void)self;
    buffer_layout *layout = view->internal;
    lochpy_export_end(layout->counted);
    PyMem_Free(layout);
}

/* --- import --- */

/* Reads a format of the struct module with one number. */
static loch_dtype buffer_dtype(const char *format, Py_ssize_t item)
{
    static const loch_dtype by_size[3][4] = {{LOCH_I8, LOCH_I16, LOCH_I32, LOCH_I64},
                                             {LOCH_U8, LOCH_U16, LOCH_U32, LOCH_U64},
                                             {LOCH_DTYPE_NONE, LOCH_F16, LOCH_F32, LOCH_F64}};
    static const char *const letters[3] = {"bhilqn", "cBHILQN", "efd"};
    if (!format) return LOCH_U8;
    if (*format == '@' || *format == '=' || *format == '<' || (item == 1 && (*format == '>' || *format == '!')))
        format++;
    if (!*format || format[1]) return LOCH_DTYPE_NONE;
    if (*format == '?') return LOCH_BOOL;
    const int log = item == 1 ? 0 : item == 2 ? 1 : item == 4 ? 2 : item == 8 ? 3 : -1;
    for (int kind = 0; kind < 3 && log >= 0; kind++)
        if (strchr(letters[kind], *format)) return by_size[kind][log];
    return LOCH_DTYPE_NONE;
}

/* Ends an import: gives the buffer back to its owner. Called from any thread. */
static void buffer_import_end(void *address, size_t bytes, void *user)
{
    (void)address, (void)bytes;
    if (!Py_IsInitialized()) return;
    PyGILState_STATE state = PyGILState_Ensure();
    PyBuffer_Release(user);
    PyMem_Free(user);
    PyGILState_Release(state);
}

/* Reads the layout of a buffer in elements, and the bytes before and after the element with all indices 0. */
static int buffer_read_layout(const Py_buffer *view, lochpy_shape *shape, int64_t *strides, size_t *before,
                              size_t *bytes)
{
    Py_ssize_t low = 0, high = 0, dense = 1;
    shape->dimensions = (size_t)view->ndim;
    for (int at = view->ndim; at-- > 0;) {
        const Py_ssize_t size = view->shape[at];
        const Py_ssize_t stride = view->strides ? view->strides[at] : dense * view->itemsize;
        if (size > 1 && stride % view->itemsize != 0) {
            (void)lochpy_raise_text(LOCH_E_INVALID,
                                    "a stride of %zd bytes is not a multiple of the %zd bytes of an element", stride,
                                    view->itemsize);
            return -1;
        }
        shape->sizes[at] = size;
        strides[at] = stride / view->itemsize;
        dense *= size;
        if (size > 1 && stride > 0) high += stride * (size - 1);
        if (size > 1 && stride < 0) low += stride * (size - 1);
    }
    *before = (size_t)-low;
    *bytes = (size_t)(high - low + view->itemsize);
    return 0;
}

static loch_status buffer_wrap(Py_buffer *view, loch_dtype dtype, const lochpy_shape *shape, const int64_t *strides,
                               size_t before, size_t bytes, loch_tensor **out)
{
    const loch_external external = {.size = sizeof external,
                                    .deleter = buffer_import_end,
                                    .user = view,
                                    .access = view->readonly ? LOCH_READ_ONLY : LOCH_READ_WRITE};
    loch_buffer *buffer = NULL;
    *out = NULL;
    loch_status status = loch_buffer_wrap((char *)view->buf - before, bytes, &external, &buffer);
    if (status != LOCH_OK) { /* the view still belongs to this function */
        PyBuffer_Release(view);
        PyMem_Free(view);
        return status;
    }
    status = loch_tensor_create_in(buffer, before, dtype, shape->dimensions, shape->sizes, strides, out);
    loch_buffer_release(buffer);
    return status;
}

/* Takes over `view`, also on failure. */
static PyObject *buffer_import(Py_buffer *view)
{
    lochpy_shape shape = {.dimensions = 0};
    int64_t strides[LOCH_DIMENSIONS_MAX];
    size_t before = 0, bytes = 0;
    const loch_dtype dtype = buffer_dtype(view->format, view->itemsize);
    int result = -1;
    if (dtype == LOCH_DTYPE_NONE)
        PyErr_Format(PyExc_TypeError, "Loch has no type for elements of format '%.40s'", view->format);
    else if (view->ndim > LOCH_DIMENSIONS_MAX)
        (void)lochpy_raise_text(LOCH_E_INVALID, "a tensor has at most %d dimensions, not %d", LOCH_DIMENSIONS_MAX,
                                view->ndim);
    else
        result = buffer_read_layout(view, &shape, strides, &before, &bytes);
    loch_tensor *made = NULL;
    if (result != 0 || view->len == 0) {
        PyBuffer_Release(view);
        PyMem_Free(view);
        if (result != 0) return NULL;
        const loch_status status = loch_tensor_create(dtype, shape.dimensions, shape.sizes, NULL, &made);
        return lochpy_made(status, made);
    }
    const loch_status status = buffer_wrap(view, dtype, &shape, strides, before, bytes, &made);
    return lochpy_made(status, made);
}

PyObject *lochpy_tensor_of_buffer(PyObject *source, bool copies)
{
    Py_buffer *view = PyMem_Calloc(1, sizeof *view);
    if (!view) return PyErr_NoMemory();
    if (PyObject_GetBuffer(source, view, PyBUF_RECORDS_RO) != 0) {
        PyMem_Free(view);
        return NULL;
    }
    PyObject *shared = buffer_import(view);
    if (!shared || !copies) return shared;
    loch_tensor *copy = NULL;
    loch_status status;
    LOCHPY_WITHOUT_GIL(status = loch_tensor_clone(lochpy_tensor_of(shared), NULL, &copy));
    Py_DECREF(shared);
    return lochpy_made(status, copy);
}

PyObject *lochpy_from_buffer(PyObject *module, PyObject *arguments, PyObject *keywords)
{
    (void)module;
    static char *names[] = {"source", "copy", NULL};
    PyObject *source;
    int copies = 0;
    if (!PyArg_ParseTupleAndKeywords(arguments, keywords, "O|$p:from_buffer", names, &source, &copies)) return NULL;
    return lochpy_tensor_of_buffer(source, copies);
}

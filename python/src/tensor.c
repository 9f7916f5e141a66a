/* SPDX-License-Identifier: MIT */
/* Tensor: properties, views and copies. Text is in text.c, indices in index.c, numbers in number.c, exchange in
 * dlpack.c and buffer.c. */
#include "core.h"

#include <string.h>

PyObject *lochpy_make_tensor(loch_tensor *handle)
{
    lochpy_tensor *self = lochpy_new(lochpy.tensor);
    if (!self) {
        loch_tensor_release(handle);
        return NULL;
    }
    self->handle = handle;
    self->generation = lochpy_generation;
    return (PyObject *)self;
}

PyObject *lochpy_made(loch_status status, loch_tensor *handle)
{
    return status == LOCH_OK ? lochpy_make_tensor(handle) : lochpy_raise(status);
}

/* The last release may free memory, call a driver, and run a deleter of another library. */
static void tensor_dealloc(PyObject *object)
{
    lochpy_tensor *self = (lochpy_tensor *)(void *)object;
    if (self->weak) PyObject_ClearWeakRefs(object);
    if (lochpy_is_own(self->generation)) LOCHPY_WITHOUT_GIL(loch_tensor_release(self->handle));
    lochpy_free(object);
}

/* --- where memory comes from --- */

int lochpy_read_memory(PyObject *device, PyObject *pool, PyObject *stream, PyObject *tag, loch_tensor *like,
                       lochpy_memory *out)
{
    memset(out, 0, sizeof *out);
    loch_tensor_options *options = &out->options;
    options->size = sizeof *options;
    if (lochpy_read_tag(tag, &options->tag) != 0 || lochpy_read_device(device, &options->device) != 0 ||
        lochpy_read_pool(pool, &options->allocator) != 0)
        goto fail;
    if (!options->device && options->allocator)
        options->device = loch_device_retain(loch_allocator_get_device(options->allocator));
    if (!options->device && like) options->device = loch_device_retain(loch_tensor_get_device(like));
    if (options->allocator && options->device != loch_allocator_get_device(options->allocator)) {
        (void)lochpy_raise_text(LOCH_E_INVALID, "the pool belongs to %s, not to %s",
                                loch_device_get_name(loch_allocator_get_device(options->allocator)),
                                loch_device_get_name(options->device));
        goto fail;
    }
    if (lochpy_read_stream(stream, options->device, &out->stream) != 0) goto fail;
    options->stream = out->stream.stream;
    return 0;
fail:
    lochpy_memory_done(out);
    return -1;
}

void lochpy_memory_done(lochpy_memory *memory)
{
    lochpy_stream_done(&memory->stream);
    loch_allocator_release(memory->options.allocator);
    loch_device_release(memory->options.device);
    memset(memory, 0, sizeof *memory);
}

/* --- properties --- */

static PyObject *tensor_ndim(PyObject *self, void *unused)
{
    (void)unused;
    return PyLong_FromSize_t(loch_tensor_get_dimensions(lochpy_tensor_of(self)));
}

static PyObject *tensor_shape(PyObject *self, void *unused)
{
    (void)unused;
    const loch_tensor *tensor = lochpy_tensor_of(self);
    return lochpy_make_shape(loch_tensor_get_dimensions(tensor), loch_tensor_get_shape(tensor), 1);
}

static PyObject *tensor_strides(PyObject *self, void *unused)
{
    (void)unused;
    const loch_tensor *tensor = lochpy_tensor_of(self);
    return lochpy_make_shape(loch_tensor_get_dimensions(tensor), loch_tensor_get_strides(tensor), 1);
}

static PyObject *tensor_size(PyObject *self, void *unused)
{
    (void)unused;
    return PyLong_FromSize_t(loch_tensor_get_elements(lochpy_tensor_of(self)));
}

static PyObject *tensor_nbytes(PyObject *self, void *unused)
{
    (void)unused;
    return PyLong_FromSize_t(loch_tensor_get_bytes(lochpy_tensor_of(self)));
}

static PyObject *tensor_itemsize(PyObject *self, void *unused)
{
    (void)unused;
    return PyLong_FromSize_t(loch_dtype_bytes(loch_tensor_get_dtype(lochpy_tensor_of(self))));
}

static PyObject *tensor_dtype(PyObject *self, void *unused)
{
    (void)unused;
    return lochpy_make_dtype(loch_tensor_get_dtype(lochpy_tensor_of(self)));
}

static PyObject *tensor_device(PyObject *self, void *unused)
{
    (void)unused;
    const loch_device *device = loch_tensor_get_device(lochpy_tensor_of(self));
    return lochpy_make_text(device ? loch_device_get_name(device) : "cpu");
}

static PyObject *tensor_pool(PyObject *self, void *unused)
{
    (void)unused;
    loch_allocator *pool = loch_buffer_get_allocator(loch_tensor_get_buffer(lochpy_tensor_of(self)));
    if (!pool) Py_RETURN_NONE;
    return lochpy_make_pool(loch_allocator_retain(pool));
}

static PyObject *tensor_address(PyObject *self, void *unused)
{
    (void)unused;
    void *address = NULL;
    if (lochpy_check(loch_tensor_get_address(lochpy_tensor_of(self), &address)) != 0) return NULL;
    return PyLong_FromVoidPtr(address);
}

static PyObject *tensor_is_read_only(PyObject *self, void *unused)
{
    (void)unused;
    return PyBool_FromLong(loch_tensor_get_access(lochpy_tensor_of(self)) == LOCH_READ_ONLY);
}

static PyObject *tensor_is_contiguous(PyObject *self, void *unused)
{
    (void)unused;
    return PyBool_FromLong(loch_tensor_is_contiguous(lochpy_tensor_of(self)));
}

static PyObject *tensor_references(PyObject *self, void *unused)
{
    (void)unused;
    return PyLong_FromSize_t(loch_buffer_get_references(loch_tensor_get_buffer(lochpy_tensor_of(self))));
}

/* --- views --- */

/* Calls a function that reads the elements and makes a tensor in `made`, and returns the object. */
#define TENSOR_MADE(call)                                                                                              \
    do {                                                                                                               \
        loch_tensor *made = NULL;                                                                                      \
        if (lochpy_awake(lochpy_tensor_of(self)) != 0) return NULL;                                                    \
        loch_status made_status;                                                                                       \
        LOCHPY_WITHOUT_GIL(made_status = (call));                                                                      \
        return lochpy_made(made_status, made);                                                                         \
    } while (0)

/* Calls a function that makes a view in `made`. Views touch no contents: the GIL is kept. */
#define TENSOR_VIEW(call)                                                                                              \
    do {                                                                                                               \
        loch_tensor *made = NULL;                                                                                      \
        const loch_status made_status = (call);                                                                        \
        return lochpy_made(made_status, made);                                                                         \
    } while (0)

static PyObject *tensor_view(PyObject *self, PyObject *arguments)
{
    lochpy_shape shape;
    if (lochpy_read_shape_arguments(arguments, &shape) != 0) return NULL;
    TENSOR_VIEW(loch_tensor_view(lochpy_tensor_of(self), shape.dimensions, shape.sizes, &made));
}

static PyObject *tensor_reshape(PyObject *self, PyObject *arguments)
{
    lochpy_shape shape;
    if (lochpy_read_shape_arguments(arguments, &shape) != 0) return NULL;
    TENSOR_MADE(loch_tensor_reshape(lochpy_tensor_of(self), shape.dimensions, shape.sizes, NULL, &made));
}

static PyObject *tensor_expand(PyObject *self, PyObject *arguments)
{
    lochpy_shape shape;
    if (lochpy_read_shape_arguments(arguments, &shape) != 0) return NULL;
    TENSOR_VIEW(loch_tensor_expand(lochpy_tensor_of(self), shape.dimensions, shape.sizes, &made));
}

static PyObject *tensor_view_as(PyObject *self, PyObject *argument)
{
    loch_dtype dtype;
    if (lochpy_read_dtype(argument, &dtype) != 0) return NULL;
    TENSOR_VIEW(loch_tensor_view_as(lochpy_tensor_of(self), dtype, &made));
}

static PyObject *tensor_slice(PyObject *self, PyObject *arguments, PyObject *keywords)
{
    static char *names[] = {"axis", "start", "stop", "step", NULL};
    int axis;
    PyObject *start = Py_None, *stop = Py_None, *step = Py_None;
    if (!PyArg_ParseTupleAndKeywords(arguments, keywords, "i|OOO:slice", names, &axis, &start, &stop, &step))
        return NULL;
    PyObject *slice = PySlice_New(start, stop, step);
    if (!slice) return NULL;
    Py_ssize_t from, to, by;
    const int result = PySlice_Unpack(slice, &from, &to, &by);
    Py_DECREF(slice);
    if (result < 0) return NULL;
    TENSOR_VIEW(lochpy_slice(lochpy_tensor_of(self), axis, from, to, by, &made));
}

static PyObject *tensor_index(PyObject *self, PyObject *arguments, PyObject *keywords)
{
    static char *names[] = {"axis", "at", NULL};
    int axis;
    PyObject *argument;
    if (!PyArg_ParseTupleAndKeywords(arguments, keywords, "iO:index", names, &axis, &argument)) return NULL;
    const Py_ssize_t at = PyNumber_AsSsize_t(argument, PyExc_IndexError);
    if (at == -1 && PyErr_Occurred()) return NULL;
    TENSOR_VIEW(loch_tensor_index(lochpy_tensor_of(self), axis, at, &made));
}

static PyObject *tensor_permuted(PyObject *self, const lochpy_shape *axes)
{
    int order[LOCH_DIMENSIONS_MAX];
    for (size_t at = 0; at < axes->dimensions; at++) {
        if (axes->sizes[at] < -LOCH_DIMENSIONS_MAX || axes->sizes[at] >= LOCH_DIMENSIONS_MAX)
            return lochpy_raise_text(LOCH_E_INVALID, "there is no axis %lld", (long long)axes->sizes[at]);
        order[at] = (int)axes->sizes[at];
    }
    TENSOR_VIEW(loch_tensor_permute(lochpy_tensor_of(self), axes->dimensions, order, &made));
}

static PyObject *tensor_permute(PyObject *self, PyObject *arguments)
{
    lochpy_shape axes;
    if (lochpy_read_shape_arguments(arguments, &axes) != 0) return NULL;
    return tensor_permuted(self, &axes);
}

static PyObject *tensor_reversed(PyObject *self, void *unused)
{
    (void)unused;
    lochpy_shape axes = {.dimensions = loch_tensor_get_dimensions(lochpy_tensor_of(self))};
    for (size_t at = 0; at < axes.dimensions; at++)
        axes.sizes[at] = (int64_t)(axes.dimensions - 1 - at);
    return tensor_permuted(self, &axes);
}

static PyObject *tensor_swap_axes(PyObject *self, PyObject *arguments)
{
    int axis, other;
    if (!PyArg_ParseTuple(arguments, "ii:swapaxes", &axis, &other)) return NULL;
    TENSOR_VIEW(loch_tensor_transpose(lochpy_tensor_of(self), axis, other, &made));
}

/* Two integers exchange two axes, as in PyTorch. Otherwise as in NumPy: nothing reverses the axes, a tuple permutes. */
static PyObject *tensor_transpose(PyObject *self, PyObject *arguments)
{
    const Py_ssize_t count = PyTuple_Size(arguments);
    if (count == 2) return tensor_swap_axes(self, arguments);
    if (count == 0 || (count == 1 && Py_IsNone(PyTuple_GetItem(arguments, 0)))) return tensor_reversed(self, NULL);
    return tensor_permute(self, arguments);
}

static PyObject *tensor_squeeze(PyObject *self, PyObject *arguments, PyObject *keywords)
{
    static char *names[] = {"axis", NULL};
    PyObject *axis = Py_None;
    if (!PyArg_ParseTupleAndKeywords(arguments, keywords, "|O:squeeze", names, &axis)) return NULL;
    if (Py_IsNone(axis)) TENSOR_VIEW(loch_tensor_squeeze(lochpy_tensor_of(self), &made));
    lochpy_shape one;
    if (lochpy_read_shape(axis, &one) != 0) return NULL;
    if (one.dimensions != 1 || one.sizes[0] < INT_MIN || one.sizes[0] > INT_MAX)
        return lochpy_raise_text(LOCH_E_INVALID, "squeeze removes all axes of size 1, or one");
    TENSOR_VIEW(loch_tensor_squeeze_axis(lochpy_tensor_of(self), (int)one.sizes[0], &made));
}

static PyObject *tensor_unsqueeze(PyObject *self, PyObject *arguments, PyObject *keywords)
{
    static char *names[] = {"axis", NULL};
    int axis;
    if (!PyArg_ParseTupleAndKeywords(arguments, keywords, "i:unsqueeze", names, &axis)) return NULL;
    TENSOR_VIEW(loch_tensor_unsqueeze(lochpy_tensor_of(self), axis, &made));
}

static PyObject *tensor_chunk(PyObject *self, PyObject *arguments, PyObject *keywords)
{
    static char *names[] = {"chunks", "axis", NULL};
    Py_ssize_t chunks;
    int axis = 0;
    if (!PyArg_ParseTupleAndKeywords(arguments, keywords, "n|i:chunk", names, &chunks, &axis)) return NULL;
    if (chunks < 1)
        return lochpy_raise_text(LOCH_E_INVALID, "a tensor is cut into at least one piece, not %zd", chunks);
    const int64_t size = loch_tensor_get_size(lochpy_tensor_of(self), axis);
    if (size > 0 && chunks > size) chunks = (Py_ssize_t)size; /* there are never more */
    if (chunks > 1 << 20) return lochpy_raise_text(LOCH_E_INVALID, "%zd pieces are too many", chunks);
    loch_tensor **made = PyMem_Calloc((size_t)chunks, sizeof *made);
    if (!made) return PyErr_NoMemory();
    size_t count = 0;
    PyObject *list = NULL;
    if (lochpy_check(loch_tensor_chunk(lochpy_tensor_of(self), axis, (size_t)chunks, made, &count)) == 0)
        list = PyList_New(0);
    for (size_t at = 0; at < count; at++) {
        PyObject *piece = list ? lochpy_make_tensor(made[at]) : NULL;
        if (!list) loch_tensor_release(made[at]);
        if (list && (!piece || PyList_Append(list, piece) != 0)) Py_CLEAR(list);
        Py_XDECREF(piece);
    }
    PyMem_Free(made);
    return list;
}

/* --- contents --- */

static bool tensor_is_integer(const loch_tensor *tensor)
{
    const loch_dtype dtype = loch_tensor_get_dtype(tensor);
    return dtype >= LOCH_I8 && dtype <= LOCH_U64;
}

static PyObject *tensor_copy_from(PyObject *self, PyObject *arguments, PyObject *keywords)
{
    static char *names[] = {"other", "stream", "overflow", NULL};
    static const char *const overflows[] = {"saturate", "special", NULL};
    PyObject *other, *stream = NULL;
    const char *overflow = NULL;
    int word;
    if (!PyArg_ParseTupleAndKeywords(arguments, keywords, "O!|$Oz:copy_from", names, lochpy.tensor, &other, &stream,
                                     &overflow) ||
        lochpy_read_word("overflow", overflow, overflows, &word) != 0)
        return NULL;
    loch_tensor *to = lochpy_tensor_of(self), *from = lochpy_tensor_of(other);
    loch_device *device = loch_tensor_get_device(to);
    if (!device || loch_tensor_is_on_host(to))
        device = loch_tensor_get_device(from) ? loch_tensor_get_device(from) : device;
    lochpy_stream_use use;
    if (lochpy_awake(to) != 0 || lochpy_awake(from) != 0 || lochpy_read_stream(stream, device, &use) != 0) return NULL;
    loch_tensor_copy_options options = {.size = sizeof options, .stream = use.stream, .overflow = (loch_overflow)word};
    const loch_dtype dtype = loch_tensor_get_dtype(to);
    loch_tensor *clipped = NULL;
    int result = 0;
    if (overflow && word == 0 && dtype != loch_tensor_get_dtype(from) && tensor_is_integer(to) &&
        tensor_is_integer(from)) { /* the library keeps the low bits */
        const bool is_of_source = loch_tensor_get_device(from) == device;
        clipped = lochpy_clip(from, dtype, is_of_source ? use.stream : NULL);
        if (loch_tensor_get_device(to) != device) options.stream = NULL; /* the copy is between others then */
        options.wait = LOCH_WAIT_END;                                    /* for its memory */
        result = clipped ? 0 : -1;
    }
    if (result == 0) result = LOCHPY_TRY(loch_tensor_copy(to, clipped ? clipped : from, &options));
    loch_tensor_release(clipped);
    lochpy_stream_done(&use);
    if (result != 0) return NULL;
    Py_INCREF(self);
    return self;
}

static PyObject *tensor_fill(PyObject *self, PyObject *arguments, PyObject *keywords)
{
    static char *names[] = {"value", "stream", NULL};
    PyObject *value, *stream = NULL;
    loch_tensor *tensor = lochpy_tensor_of(self);
    loch_scalar scalar;
    lochpy_stream_use use;
    if (!PyArg_ParseTupleAndKeywords(arguments, keywords, "O|$O:fill", names, &value, &stream) ||
        lochpy_read_scalar(value, loch_tensor_get_dtype(tensor), &scalar) != 0 || lochpy_awake(tensor) != 0 ||
        lochpy_read_stream(stream, loch_tensor_get_device(tensor), &use) != 0)
        return NULL;
    const int result = LOCHPY_TRY(loch_tensor_fill(tensor, scalar, use.stream));
    lochpy_stream_done(&use);
    if (result != 0) return NULL;
    Py_INCREF(self);
    return self;
}

static PyObject *tensor_contiguous(PyObject *self, PyObject *unused)
{
    (void)unused;
    TENSOR_MADE(loch_tensor_contiguous(lochpy_tensor_of(self), NULL, &made));
}

static PyObject *tensor_clone(PyObject *self, PyObject *unused)
{
    (void)unused;
    TENSOR_MADE(loch_tensor_clone(lochpy_tensor_of(self), NULL, &made));
}

static PyObject *tensor_deepcopy(PyObject *self, PyObject *memo)
{
    (void)memo;
    return tensor_clone(self, NULL);
}

static PyObject *tensor_to(PyObject *self, PyObject *arguments, PyObject *keywords)
{
    static char *names[] = {"device", "dtype", "pool", "stream", "copy", NULL};
    PyObject *device = NULL, *dtype = NULL, *pool = NULL, *stream = NULL;
    int copies = 0;
    if (!PyArg_ParseTupleAndKeywords(arguments, keywords, "|OO$OOp:to", names, &device, &dtype, &pool, &stream,
                                     &copies))
        return NULL;
    loch_dtype number;
    lochpy_memory memory;
    loch_tensor *tensor = lochpy_tensor_of(self), *made = NULL;
    if (lochpy_read_dtype(dtype, &number) != 0 || lochpy_awake(tensor) != 0 ||
        lochpy_read_memory(device, pool, stream, NULL, tensor, &memory) != 0)
        return NULL;
    loch_status status;
    PyThreadState *thread = PyEval_SaveThread();
    if (!memory.options.device && !memory.options.allocator) /* wrapped host memory, and nothing was named */
        status = number == LOCH_DTYPE_NONE || number == loch_tensor_get_dtype(tensor)
                     ? (made = loch_tensor_retain(tensor), LOCH_OK)
                     : loch_tensor_to(tensor, number, NULL, &made);
    else
        status = loch_tensor_to(tensor, number, &memory.options, &made);
    if (status == LOCH_OK && copies && loch_tensor_get_buffer(made) == loch_tensor_get_buffer(tensor)) {
        loch_tensor *copy = NULL;
        status = loch_tensor_clone(tensor, memory.options.device ? &memory.options : NULL, &copy);
        loch_tensor_release(made);
        made = copy;
    }
    PyEval_RestoreThread(thread);
    lochpy_memory_done(&memory);
    return lochpy_made(status, made);
}

static PyObject *tensor_save(PyObject *self, PyObject *arguments, PyObject *keywords)
{
    static char *names[] = {"path", "as_bits", NULL};
    PyObject *path;
    loch_npy_save_options options = {.size = sizeof options};
    if (!PyArg_ParseTupleAndKeywords(arguments, keywords, "O&|p:save", names, PyUnicode_FSConverter, &path,
                                     &options.as_bits))
        return NULL;
    int result = lochpy_awake(lochpy_tensor_of(self));
    if (result == 0) result = LOCHPY_TRY_FILE(loch_npy_save(lochpy_tensor_of(self), PyBytes_AsString(path), &options));
    Py_DECREF(path);
    if (result != 0) return NULL;
    Py_RETURN_NONE;
}

static PyObject *tensor_record_use(PyObject *self, PyObject *argument)
{
    lochpy_stream_use use;
    loch_buffer *buffer = loch_tensor_get_buffer(lochpy_tensor_of(self));
    if (lochpy_read_stream(argument, loch_buffer_get_device(buffer), &use) != 0) return NULL;
    const int result = LOCHPY_TRY(loch_buffer_record_use(buffer, use.stream));
    lochpy_stream_done(&use);
    if (result != 0) return NULL;
    Py_RETURN_NONE;
}

/* --- what is written in Python: loch._tensor --- */

static PyObject *tensor_reduce(PyObject *self, PyObject *protocol)
{
    return lochpy_call("loch._tensor", "reduce", "(OO)", self, protocol);
}

static PyObject *tensor_array(PyObject *self, PyObject *arguments, PyObject *keywords)
{
    static char *names[] = {"dtype", "copy", NULL};
    PyObject *dtype = Py_None, *copy = Py_None;
    if (!PyArg_ParseTupleAndKeywords(arguments, keywords, "|OO:__array__", names, &dtype, &copy)) return NULL;
    return lochpy_call("loch._tensor", "array", "(OOO)", self, dtype, copy);
}

static PyObject *tensor_numpy(PyObject *self, PyObject *unused)
{
    (void)unused;
    return lochpy_call("loch._tensor", "array", "(OOO)", self, Py_None, Py_None);
}

static PyObject *tensor_iterate(PyObject *self)
{
    if (lochpy_tensor_length(self) < 0) return NULL;
    return PySeqIter_New(self);
}

static Py_hash_t tensor_hash(PyObject *self)
{
    const Py_hash_t hash = (Py_hash_t)((uintptr_t)self >> 4);
    return hash == -1 ? -2 : hash;
}

static PyMethodDef tensor_methods[] = {
    LOCHPY_VARIABLE("view", tensor_view,
                    "view($self, /, *shape)\n--\n\nAnother shape of the same elements, where strides allow it."),
    LOCHPY_VARIABLE("reshape", tensor_reshape,
                    "reshape($self, /, *shape)\n--\n\nAnother shape: a view, or else a copy."),
    LOCHPY_VARIABLE("expand", tensor_expand,
                    "expand($self, /, *shape)\n--\n\nRepeats the tensor to a shape, as NumPy broadcasts."),
    LOCHPY_ONE("view_as", tensor_view_as, "view_as($self, dtype, /)\n--\n\nThe same bits as another type."),
    LOCHPY_KEYWORDS("slice", tensor_slice,
                    "slice($self, /, axis, start=None, stop=None, step=None)\n--\n\nstart:stop:step of an axis."),
    LOCHPY_KEYWORDS("index", tensor_index,
                    "index($self, /, axis, at)\n--\n\nOne index along an axis: one dimension less."),
    LOCHPY_VARIABLE("permute", tensor_permute, "permute($self, /, *axes)\n--\n\nPermutes all axes."),
    LOCHPY_VARIABLE("transpose", tensor_transpose,
                    "transpose($self, /, *axes)\n--\n\nExchanges two axes; a tuple permutes, nothing reverses."),
    LOCHPY_VARIABLE("swapaxes", tensor_swap_axes, "swapaxes($self, axis, other, /)\n--\n\nExchanges two axes."),
    LOCHPY_KEYWORDS("squeeze", tensor_squeeze,
                    "squeeze($self, /, axis=None)\n--\n\nRemoves the axes of size 1, or one of them."),
    LOCHPY_KEYWORDS("unsqueeze", tensor_unsqueeze, "unsqueeze($self, /, axis)\n--\n\nInserts an axis of size 1."),
    LOCHPY_KEYWORDS("chunk", tensor_chunk,
                    "chunk($self, /, chunks, axis=0)\n--\n\nCuts the tensor into at most that many pieces."),
    LOCHPY_KEYWORDS(
        "copy_from", tensor_copy_from,
        "copy_from($self, /, other, *, stream=None, overflow=None)\n--\n\nCopies the elements of a tensor of "
        "the same shape. Returns self.\n\n`overflow`: 'saturate' makes numbers beyond the range of an "
        "integer or f8 type its least or most, 'special' makes them infinity or NaN in f8. By default f8 "
        "saturates, and integers keep their low bits, as NumPy's astype."),
    LOCHPY_KEYWORDS("fill", tensor_fill,
                    "fill($self, /, value, *, stream=None)\n--\n\nSets all elements. Returns self."),
    LOCHPY_NONE("contiguous", tensor_contiguous,
                "contiguous($self, /)\n--\n\nThe tensor itself, or a contiguous copy."),
    LOCHPY_NONE("clone", tensor_clone, "clone($self, /)\n--\n\nA copy on the same device."),
    LOCHPY_NONE("copy", tensor_clone, "copy($self, /)\n--\n\nA copy on the same device."),
    LOCHPY_NONE("__copy__", tensor_clone, "__copy__($self, /)\n--\n\nA copy, as of a NumPy array."),
    LOCHPY_ONE("__deepcopy__", tensor_deepcopy, "__deepcopy__($self, memo, /)\n--\n\nA copy."),
    LOCHPY_KEYWORDS("to", tensor_to,
                    "to($self, /, device=None, dtype=None, *, pool=None, stream=None, copy=False)\n--\n\n"
                    "The tensor on a device, with a type: itself if nothing changes, else a copy."),
    LOCHPY_KEYWORDS("save", tensor_save, "save($self, /, path, as_bits=False)\n--\n\nWrites a .npy file."),
    LOCHPY_ONE("record_use", tensor_record_use,
               "record_use($self, stream, /)\n--\n\nKeeps the memory until the work queued on a stream has ended."),
    LOCHPY_KEYWORDS("format", lochpy_tensor_format,
                    "format($self, /, *, precision=0, threshold=0, edge=0, width=0, notation='auto', "
                    "separator=None)\n--\n\nThe elements as text, as NumPy's array2string."),
    LOCHPY_ONE("__format__", lochpy_tensor_format_with,
               "__format__($self, specification, /)\n--\n\nFormats a tensor without dimensions as its number."),
    LOCHPY_NONE("tolist", lochpy_tensor_tolist, "tolist($self, /)\n--\n\nThe elements in nested lists."),
    LOCHPY_VARIABLE("item", lochpy_tensor_item, "item($self, /, *index)\n--\n\nOne element as a number of Python."),
    LOCHPY_NONE("numpy", tensor_numpy, "numpy($self, /)\n--\n\nAn array of NumPy that shares the memory."),
    LOCHPY_KEYWORDS("__array__", tensor_array,
                    "__array__($self, /, dtype=None, copy=None)\n--\n\nFor NumPy: an array that shares the memory if "
                    "the type stays."),
    LOCHPY_KEYWORDS("__dlpack__", lochpy_tensor_dlpack,
                    "__dlpack__($self, /, *, stream=None, max_version=None, dl_device=None, copy=None)\n--\n\nReturns "
                    "a capsule for a receiver."),
    LOCHPY_NONE("__dlpack_device__", lochpy_tensor_dlpack_device,
                "__dlpack_device__($self, /)\n--\n\nType and number of the device, as DLPack counts them."),
    LOCHPY_ONE("__reduce_ex__", tensor_reduce, "Pickles the contents."),
    {NULL, NULL, 0, NULL},
};

static PyGetSetDef tensor_members[] = {
    {"ndim", tensor_ndim, NULL, "Number of dimensions.", NULL},
    {"shape", tensor_shape, NULL, "Sizes of the dimensions.", NULL},
    {"strides", tensor_strides, NULL, "Strides, in elements.", NULL},
    {"size", tensor_size, NULL, "Number of elements.", NULL},
    {"nbytes", tensor_nbytes, NULL, "Bytes of all elements.", NULL},
    {"itemsize", tensor_itemsize, NULL, "Bytes of one element.", NULL},
    {"dtype", tensor_dtype, NULL, "Type of the elements.", NULL},
    {"device", tensor_device, NULL, "Name of the device.", NULL},
    {"pool", tensor_pool, NULL, "Pool of the memory; None for memory of another library.", NULL},
    {"address", tensor_address, NULL, "Address of the element with all indices 0; 0 without elements.", NULL},
    {"is_read_only", tensor_is_read_only, NULL, "Whether the elements may not be written.", NULL},
    {"is_contiguous", tensor_is_contiguous, NULL, "Whether the elements are contiguous, row after row.", NULL},
    {"references", tensor_references, NULL, "Number of references on the buffer, for tests.", NULL},
    {"T", tensor_reversed, NULL, "A view with the axes in reverse order.", NULL},
    {"__cuda_array_interface__", lochpy_tensor_cuda_interface, NULL, "For Numba and CuPy; CUDA tensors only.", NULL},
    {NULL, NULL, NULL, NULL, NULL},
};

static PyMemberDef tensor_offsets[] = {
    {"__weaklistoffset__", T_PYSSIZET, offsetof(lochpy_tensor, weak), READONLY, NULL},
    {NULL, 0, 0, 0, NULL},
};

static PyType_Slot tensor_slots[] = {
    {Py_tp_doc, "A tensor: a type, a shape and strides on memory of a device. Views share the memory and keep it.\n\n"
                "Made by loch.empty, loch.zeros, loch.tensor, loch.from_numpy, loch.from_dlpack and loch.load."},
    {Py_tp_dealloc, LOCHPY_SLOT(tensor_dealloc)},
    {Py_tp_repr, LOCHPY_SLOT(lochpy_tensor_repr)},
    {Py_tp_str, LOCHPY_SLOT(lochpy_tensor_str)},
    {Py_tp_richcompare, LOCHPY_SLOT(lochpy_tensor_compare)},
    {Py_tp_hash, LOCHPY_SLOT(tensor_hash)},
    {Py_tp_iter, LOCHPY_SLOT(tensor_iterate)},
    {Py_tp_methods, tensor_methods},
    {Py_tp_getset, tensor_members},
    {Py_tp_members, tensor_offsets},
    {Py_mp_length, LOCHPY_SLOT(lochpy_tensor_length)},
    {Py_mp_subscript, LOCHPY_SLOT(lochpy_tensor_get)},
    {Py_mp_ass_subscript, LOCHPY_SLOT(lochpy_tensor_set)},
    {Py_sq_length, LOCHPY_SLOT(lochpy_tensor_length)},
    {Py_sq_item, LOCHPY_SLOT(lochpy_tensor_item_at)},
    {Py_sq_contains, LOCHPY_SLOT(lochpy_tensor_contains)},
    {Py_nb_bool, LOCHPY_SLOT(lochpy_tensor_bool)},
    {Py_nb_int, LOCHPY_SLOT(lochpy_tensor_int)},
    {Py_nb_float, LOCHPY_SLOT(lochpy_tensor_float)},
    {Py_nb_index, LOCHPY_SLOT(lochpy_tensor_index_number)},
    {Py_bf_getbuffer, LOCHPY_SLOT(lochpy_tensor_get_buffer)},
    {Py_bf_releasebuffer, LOCHPY_SLOT(lochpy_tensor_release_buffer)},
    {0, NULL},
};

static PyType_Spec tensor_spec = {
    .name = "loch.Tensor",
    .basicsize = sizeof(lochpy_tensor),
    .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_DISALLOW_INSTANTIATION,
    .slots = tensor_slots,
};

int lochpy_add_tensor_type(PyObject *module)
{
    lochpy.tensor = lochpy_add_type(module, &tensor_spec);
    return lochpy.tensor ? 0 : -1;
}

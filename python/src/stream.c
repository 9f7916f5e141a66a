/* SPDX-License-Identifier: MIT */
/* Stream, and the argument `stream=` of all calls.
 *
 * A stream of another library is wrapped once for each handle. The wrapper is kept, because a free that is ordered on
 * it may come long after the call that named it, and keeps the object that owns the queue: the driver must not destroy
 * the queue before. A handle that is passed as a number has no owner here. A free-threaded interpreter keeps all
 * wrappers: it cannot tell whether an owner has other references. */
#include "core.h"

#include <pthread.h>
#include <stdlib.h>

typedef struct lochpy_stream {
    PyObject_HEAD lochpy_gate gate;
    loch_stream *handle;
    bool is_default; /* borrowed from the device, which `device` keeps open */
    loch_device *device;
    PyObject *owner; /* of a wrapped queue; kept as long as this object */
    unsigned generation;
} lochpy_stream;

static lochpy_stream *stream_of(PyObject *self)
{
    return (lochpy_stream *)(void *)self;
}

/* --- streams of other libraries --- */

/* Wrappers without other owners of their queue are closed when there are this many. */
#define STREAM_WRAPPED_MAX 64

typedef struct stream_wrapped {
    loch_device *device; /* kept open by the stream */
    void *native;
    loch_stream *stream;
    PyObject *owner; /* keeps the queue alive; NULL if the caller passed a number */
    struct stream_wrapped *next;
} stream_wrapped;

static pthread_mutex_t stream_lock = PTHREAD_MUTEX_INITIALIZER; /* no code of Python runs under it */
static stream_wrapped *stream_all;                              /* lock held */
static size_t stream_count;                                     /* lock held */

/* Takes one wrapper out of the list whose owner has no other reference, if there are many. A call that uses a wrapper
 * holds a reference on its owner. */
static stream_wrapped *stream_take_idle(void)
{
    if (stream_count < STREAM_WRAPPED_MAX) return NULL;
    for (stream_wrapped **at = &stream_all; *at; at = &(*at)->next) {
        stream_wrapped *found = *at;
        if (!found->owner || !lochpy_is_last_reference(found->owner)) continue;
        *at = found->next;
        stream_count--;
        return found;
    }
    return NULL;
}

static void stream_close_idle(void)
{
    for (;;) {
        pthread_mutex_lock(&stream_lock);
        stream_wrapped *idle = stream_take_idle();
        pthread_mutex_unlock(&stream_lock);
        if (!idle) return;
        LOCHPY_WITHOUT_GIL(loch_stream_close(idle->stream));
        Py_DECREF(idle->owner);
        free(idle);
    }
}

/* Finds or adds a wrapper. Lock held. */
static loch_status stream_wrap(loch_device *device, void *native, PyObject *owner, loch_stream **out)
{
    for (const stream_wrapped *seen = stream_all; seen; seen = seen->next) {
        if (seen->device != device || seen->native != native) continue;
        *out = seen->stream;
        return LOCH_OK;
    }
    stream_wrapped *added = malloc(sizeof *added);
    if (!added) return loch_error_set(LOCH_E_HOST_MEMORY, NULL, 0, "no host memory for a stream");
    const loch_status status = loch_stream_wrap(device, native, out);
    if (status != LOCH_OK) {
        free(added);
        return status;
    }
    Py_XINCREF(owner);
    *added = (stream_wrapped){device, native, *out, owner, stream_all};
    stream_all = added;
    stream_count++;
    return LOCH_OK;
}

/* Refuses numbers that are no address: a driver would follow them. */
static int stream_check_handle(void *native)
{
    if ((uintptr_t)native < 2 || (intptr_t)native >= 4096) return 0;
    (void)lochpy_raise_text(LOCH_E_INVALID, "%lld is not the handle of a stream", (long long)(intptr_t)native);
    return -1;
}

int lochpy_stream_of_handle(loch_device *device, void *native, PyObject *owner, loch_stream **out)
{
    const uintptr_t handle = (uintptr_t)native;
    *out = NULL;
    if (handle == 0 || handle == 1) return 0; /* CUDA's legacy default stream */
    if (handle == 2) return LOCHPY_TRY(loch_stream_require_thread_default(device, out));
    if (stream_check_handle(native) != 0) return -1;
    stream_close_idle();
    pthread_mutex_lock(&stream_lock);
    const loch_status status = stream_wrap(device, native, owner, out);
    pthread_mutex_unlock(&stream_lock);
    return lochpy_check(status);
}

/* Reads the handle of a stream of another library: __cuda_stream__ (cuda.core), cuda_stream (PyTorch), ptr (CuPy).
 * Returns a new reference on an integer, or NULL without an exception if there is none of them. */
static PyObject *stream_foreign_handle(PyObject *argument)
{
    PyObject *found = PyObject_GetAttrString(argument, "__cuda_stream__");
    if (found) {
        if (PyCallable_Check(found)) {
            PyObject *called = PyObject_CallNoArgs(found);
            Py_DECREF(found);
            found = called;
        }
        if (!found) return NULL;
        PyObject *handle = PySequence_Check(found) && PySequence_Size(found) == 2 ? PySequence_GetItem(found, 1) : NULL;
        Py_DECREF(found);
        if (!handle && !PyErr_Occurred())
            PyErr_SetString(PyExc_TypeError, "__cuda_stream__ has to return a version and a handle");
        return handle;
    }
    static const char *const names[] = {"cuda_stream", "ptr"};
    for (size_t at = 0; at < sizeof names / sizeof *names; at++) {
        if (!PyErr_ExceptionMatches(PyExc_AttributeError)) return NULL;
        PyErr_Clear();
        found = PyObject_GetAttrString(argument, names[at]);
        if (found) return found;
    }
    if (PyErr_ExceptionMatches(PyExc_AttributeError)) PyErr_Clear();
    return NULL;
}

static int stream_read_handle(PyObject *number, PyObject *owner, loch_device *device, lochpy_stream_use *out)
{
    if (PyBool_Check(number) || !PyIndex_Check(number)) {
        PyErr_Format(PyExc_TypeError, "the handle of a stream is an integer, not %R", number);
        return -1;
    }
    PyObject *exact = PyNumber_Index(number);
    if (!exact) return -1;
    void *native = PyLong_AsVoidPtr(exact);
    Py_DECREF(exact);
    if (!native && PyErr_Occurred()) return -1;
    if (!device) {
        (void)lochpy_raise_text(LOCH_E_INVALID, "the handle of a stream needs a device");
        return -1;
    }
    return lochpy_stream_of_handle(device, native, owner, &out->stream);
}

int lochpy_read_stream(PyObject *argument, loch_device *device, lochpy_stream_use *out)
{
    *out = (lochpy_stream_use){NULL, NULL};
    if (!argument || Py_IsNone(argument)) return 0;
    if (PyObject_TypeCheck(argument, lochpy.stream)) {
        lochpy_stream *stream = stream_of(argument);
        if (!lochpy_gate_enter(&stream->gate)) {
            (void)lochpy_raise_text(LOCH_E_INVALID, "the stream is closed");
            return -1;
        }
        Py_INCREF(argument);
        *out = (lochpy_stream_use){stream->handle, argument};
        return 0;
    }
    if (PyIndex_Check(argument)) return stream_read_handle(argument, NULL, device, out);
    PyObject *handle = stream_foreign_handle(argument);
    if (!handle) {
        if (!PyErr_Occurred())
            PyErr_Format(PyExc_TypeError,
                         "a stream is None, a loch.Stream, a handle, or an object with __cuda_stream__, not %R",
                         argument);
        return -1;
    }
    const int result = stream_read_handle(handle, argument, device, out);
    Py_DECREF(handle);
    return result;
}

PyObject *lochpy_stream_number(PyObject *argument)
{
    PyObject *handle;
    if (PyObject_TypeCheck(argument, lochpy.stream)) {
        handle = PyObject_GetAttrString(argument, "handle");
    } else if (PyIndex_Check(argument) && !PyBool_Check(argument)) {
        return PyNumber_Index(argument);
    } else {
        handle = stream_foreign_handle(argument);
        if (!handle && !PyErr_Occurred()) PyErr_Format(PyExc_TypeError, "%R is not a stream", argument);
    }
    if (!handle) return NULL;
    const int is_set = PyObject_IsTrue(handle);
    if (is_set > 0) return handle;
    Py_DECREF(handle);
    return is_set < 0 ? NULL : PyLong_FromLong(1); /* a handle of 0 is the legacy default stream */
}

/* Gives up the handle of a stream object: the gate is closed and no call is inside. */
static void stream_end(lochpy_stream *self)
{
    if (!lochpy_is_own(self->generation)) return;
    if (!self->is_default) LOCHPY_WITHOUT_GIL(loch_stream_close(self->handle));
}

void lochpy_stream_done(lochpy_stream_use *use)
{
    PyObject *owner = use->owner;
    *use = (lochpy_stream_use){NULL, NULL};
    if (!owner) return;
    if (lochpy_gate_leave(&stream_of(owner)->gate)) stream_end(stream_of(owner));
    Py_DECREF(owner);
}

/* --- Stream --- */

/* Makes an object and takes over `handle` unless it is a default stream, also on failure. */
static PyObject *stream_make_object(PyTypeObject *type, loch_stream *handle, bool is_default)
{
    lochpy_stream *self = lochpy_new(type);
    if (!self) {
        if (!is_default) loch_stream_close(handle);
        return NULL;
    }
    self->handle = handle;
    self->is_default = is_default;
    self->device = loch_device_retain(loch_stream_get_device(handle));
    self->generation = lochpy_generation;
    return (PyObject *)self;
}

static PyObject *stream_make(PyTypeObject *type, PyObject *arguments, PyObject *keywords)
{
    static char *names[] = {"device", "priority", "order", NULL};
    static const char *const orders[] = {"independent", "with_default", NULL};
    PyObject *where = NULL;
    const char *order = NULL;
    loch_stream_options options = {.size = sizeof options};
    if (!PyArg_ParseTupleAndKeywords(arguments, keywords, "O|$is:Stream", names, &where, &options.priority, &order))
        return NULL;
    int word;
    loch_device *device;
    if (lochpy_read_word("order", order, orders, &word) != 0 || lochpy_read_device(where, &device) != 0) return NULL;
    options.order = (loch_stream_order)word;
    loch_stream *stream = NULL;
    const int result = LOCHPY_TRY(loch_stream_create(device, &options, &stream));
    loch_device_release(device);
    return result == 0 ? stream_make_object(type, stream, false) : NULL;
}

static PyObject *stream_wrap_handle(PyObject *type, PyObject *arguments, PyObject *keywords)
{
    static char *names[] = {"handle", "device", NULL};
    PyObject *handle, *where;
    if (!PyArg_ParseTupleAndKeywords(arguments, keywords, "OO:wrap", names, &handle, &where)) return NULL;
    loch_device *device;
    if (lochpy_read_device(where, &device) != 0) return NULL;
    PyObject *foreign = lochpy_stream_number(handle);
    loch_stream *stream = NULL;
    void *native = foreign ? PyLong_AsVoidPtr(foreign) : NULL;
    int result = PyErr_Occurred() ? -1 : 0;
    Py_XDECREF(foreign);
    if (result == 0 && (uintptr_t)native == 2) {
        (void)lochpy_raise_text(LOCH_E_INVALID,
                                "handle 2 is another stream in each thread: pass it to a call as stream=2");
        result = -1;
    }
    if (result == 0) result = stream_check_handle(native);
    if (result == 0) result = LOCHPY_TRY(loch_stream_wrap(device, native, &stream));
    const bool is_default = stream && stream == loch_stream_get_default(device);
    PyObject *made = result == 0 ? stream_make_object((PyTypeObject *)type, stream, is_default) : NULL;
    loch_device_release(device);
    if (made && !PyIndex_Check(handle)) {
        Py_INCREF(handle);
        stream_of(made)->owner = handle;
    }
    return made;
}

static PyObject *stream_default(PyObject *type, PyObject *where)
{
    loch_device *device;
    if (lochpy_read_device(where, &device) != 0) return NULL;
    if (!device) {
        PyErr_SetString(PyExc_TypeError, "a default stream belongs to a device, not to None");
        return NULL;
    }
    PyObject *made = stream_make_object((PyTypeObject *)type, loch_stream_get_default(device), true);
    loch_device_release(device);
    return made;
}

static void stream_dealloc(PyObject *object)
{
    lochpy_stream *self = stream_of(object);
    if (self->handle && lochpy_gate_close(&self->gate)) stream_end(self);
    if (lochpy_is_own(self->generation)) loch_device_release(self->device);
    Py_XDECREF(self->owner);
    lochpy_free(object);
}

static PyObject *stream_close(PyObject *self, PyObject *unused)
{
    (void)unused;
    if (lochpy_gate_close(&stream_of(self)->gate)) stream_end(stream_of(self));
    Py_RETURN_NONE;
}

static PyObject *stream_sync(PyObject *self, PyObject *unused)
{
    (void)unused;
    lochpy_stream_use use;
    if (lochpy_read_stream(self, NULL, &use) != 0) return NULL;
    const int result = LOCHPY_TRY(loch_stream_sync(use.stream));
    lochpy_stream_done(&use);
    if (result != 0) return NULL;
    Py_RETURN_NONE;
}

PyObject *lochpy_answer(loch_status status)
{
    if (status == LOCH_OK) Py_RETURN_TRUE;
    if (status == LOCH_E_BUSY) Py_RETURN_FALSE;
    return lochpy_raise(status);
}

static PyObject *stream_query(PyObject *self, PyObject *unused)
{
    (void)unused;
    lochpy_stream_use use;
    if (lochpy_read_stream(self, NULL, &use) != 0) return NULL;
    loch_status status;
    LOCHPY_WITHOUT_GIL(status = loch_stream_query(use.stream));
    PyObject *answer = lochpy_answer(status);
    lochpy_stream_done(&use);
    return answer;
}

static PyObject *stream_device(PyObject *self, void *unused)
{
    (void)unused;
    return lochpy_make_text(loch_device_get_name(stream_of(self)->device));
}

/* Reads a number of an open stream. */
static PyObject *stream_number(PyObject *self, uint64_t (*get)(const loch_stream *))
{
    lochpy_stream_use use;
    if (lochpy_read_stream(self, NULL, &use) != 0) return NULL;
    PyObject *number = PyLong_FromUnsignedLongLong(get(use.stream));
    lochpy_stream_done(&use);
    return number;
}

static uint64_t stream_native(const loch_stream *stream)
{
    return (uintptr_t)loch_stream_get_native(stream);
}

static PyObject *stream_handle(PyObject *self, void *unused)
{
    (void)unused;
    return stream_number(self, stream_native);
}

static PyObject *stream_id(PyObject *self, void *unused)
{
    (void)unused;
    return stream_number(self, loch_stream_get_id);
}

static PyObject *stream_cuda(PyObject *self, PyObject *unused)
{
    (void)unused;
    PyObject *handle = stream_handle(self, NULL);
    return handle ? Py_BuildValue("(iN)", 0, handle) : NULL;
}

static PyObject *stream_repr(PyObject *self)
{
    return PyUnicode_FromFormat("<loch.Stream on %s%s>", loch_device_get_name(stream_of(self)->device),
                                lochpy_gate_is_closed(&stream_of(self)->gate) ? ", closed" : "");
}

static PyObject *stream_enter(PyObject *self, PyObject *unused)
{
    (void)unused;
    Py_INCREF(self);
    return self;
}

static PyObject *stream_exit(PyObject *self, PyObject *unused)
{
    (void)unused;
    return stream_close(self, NULL);
}

static PyMethodDef stream_methods[] = {
    {"wrap", LOCHPY_METHOD(stream_wrap_handle), METH_CLASS | METH_VARARGS | METH_KEYWORDS,
     "wrap(handle, device)\n--\n\nWraps a queue of the driver's, which stays with its owner."},
    {"default", stream_default, METH_CLASS | METH_O, "default(device, /)\n--\n\nThe default stream of a device."},
    LOCHPY_NONE("sync", stream_sync, "sync($self, /)\n--\n\nWaits until the work queued so far has ended."),
    LOCHPY_NONE("query", stream_query, "query($self, /)\n--\n\nWhether the work queued so far has ended."),
    LOCHPY_ONE("wait", lochpy_stream_wait,
               "wait($self, event, /)\n--\n\nMakes later work on the stream wait for an event."),
    LOCHPY_NONE("close", stream_close, "close($self, /)\n--\n\nEnds the stream. Work already queued still runs."),
    LOCHPY_NONE("__cuda_stream__", stream_cuda, "__cuda_stream__($self, /)\n--\n\nVersion 0 and the driver's handle."),
    LOCHPY_NONE("__enter__", stream_enter, "__enter__($self, /)\n--\n\nThe stream itself."),
    {"__exit__", stream_exit, METH_VARARGS, "Closes the stream."},
    {NULL, NULL, 0, NULL},
};

static PyGetSetDef stream_members[] = {
    {"device", stream_device, NULL, "Name of the device.", NULL},
    {"handle", stream_handle, NULL, "The driver's handle; 0 for the default stream and without queues.", NULL},
    {"id", stream_id, NULL, "Number that no other stream of this process has.", NULL},
    {NULL, NULL, NULL, NULL, NULL},
};

static PyType_Slot stream_slots[] = {
    {Py_tp_doc, "Stream(device, *, priority=0, order='independent')\n--\n\nA queue of work on a device."},
    {Py_tp_new, LOCHPY_SLOT(stream_make)},
    {Py_tp_dealloc, LOCHPY_SLOT(stream_dealloc)},
    {Py_tp_repr, LOCHPY_SLOT(stream_repr)},
    {Py_tp_methods, stream_methods},
    {Py_tp_getset, stream_members},
    {0, NULL},
};

static PyType_Spec stream_spec = {
    .name = "loch.Stream",
    .basicsize = sizeof(lochpy_stream),
    .flags = Py_TPFLAGS_DEFAULT,
    .slots = stream_slots,
};

int lochpy_add_stream_type(PyObject *module)
{
    lochpy.stream = lochpy_add_type(module, &stream_spec);
    return lochpy.stream ? 0 : -1;
}

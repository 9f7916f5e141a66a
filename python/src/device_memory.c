/* SPDX-License-Identifier: MIT */
/* The type DeviceMemory: a pool for a Python library that has CUDA streams of its own (CuPy, cuda.core, Numba).
 *
 * A stream comes as the Python object that owns the driver's handle. The handle is wrapped once. The owner is kept, so
 * that the handle cannot be destroyed and used again for another stream while the pool orders memory by it. A stream
 * whose owner is referenced by nothing else is closed when the next stream is added; a free-threaded interpreter closes
 * it with the object, because it cannot tell. */
#include "doors.h"

#include <pthread.h>
#include <stdlib.h>

/* Alignment that cudaMalloc promises and that libraries rely on. */
#define ALIGNMENT_BYTES 256

/* CUDA's handle of the legacy default stream. */
#define STREAM_OF_DEVICE ((void *)1)

/* CUDA's handle of the per-thread default stream: one value that means a different stream in each thread. */
#define STREAM_OF_THREAD ((void *)2)

/* Streams are closed when there are this many or more. */
#define STREAMS_KEPT 16

typedef struct memory_stream {
    void *native;
    loch_stream *stream;
    PyObject *owner; /* keeps the native stream alive; NULL if the caller passed none */
} memory_stream;

typedef struct memory_object {
    PyObject_HEAD loch_allocator *pool;
    pthread_mutex_t lock; /* guards the streams; no call of Python is made under it */
    memory_stream *streams;
    size_t count, room;
} memory_object;

/* --- streams --- */

static loch_stream *memory_seen_stream(const memory_object *memory, const void *native)
{
    for (size_t i = 0; i < memory->count; i++)
        if (memory->streams[i].native == native) return memory->streams[i].stream;
    return NULL;
}

/* Takes one stream without other owners out of the table. Lock held. */
static int memory_take_idle(memory_object *memory, memory_stream *out)
{
    if (memory->count < STREAMS_KEPT) return 0;
    for (size_t i = 0; i < memory->count; i++)
        if (memory->streams[i].owner && lochpy_is_last_reference(memory->streams[i].owner)) {
            *out = memory->streams[i];
            memory->streams[i] = memory->streams[--memory->count];
            return 1;
        }
    return 0;
}

/* Closes the streams that only this table keeps. The driver may destroy them now. */
static void memory_close_idle(memory_object *memory)
{
    memory_stream idle;
    for (;;) {
        pthread_mutex_lock(&memory->lock);
        const int is_taken = memory_take_idle(memory, &idle);
        pthread_mutex_unlock(&memory->lock);
        if (!is_taken) return;
        loch_stream_close(idle.stream);
        Py_DECREF(idle.owner);
    }
}

/* Adds a stream. Lock held. */
static loch_status memory_add_stream(memory_object *memory, void *native, PyObject *owner, loch_stream **out)
{
    if (memory->count == memory->room) {
        const size_t room = memory->room ? 2 * memory->room : STREAMS_KEPT;
        memory_stream *streams = realloc(memory->streams, room * sizeof *streams);
        if (!streams) return loch_error_set(LOCH_E_HOST_MEMORY, NULL, 0, "no host memory for a stream");
        memory->streams = streams;
        memory->room = room;
    }
    const loch_status status = loch_stream_wrap(loch_allocator_get_device(memory->pool), native, out);
    if (status != LOCH_OK) return status;
    Py_XINCREF(owner);
    memory->streams[memory->count++] = (memory_stream){native, *out, owner};
    return LOCH_OK;
}

/* Finds Loch's stream for a driver's handle. The caller holds a reference on `owner` until its call with the stream has
 * ended, so the stream is not closed meanwhile. */
static loch_status memory_find_stream(memory_object *memory, void *native, PyObject *owner, loch_stream **out)
{
    *out = NULL;
    if (!native || native == STREAM_OF_DEVICE) return LOCH_OK; /* the default stream of CUDA and of Loch */
    if (native == STREAM_OF_THREAD) return loch_stream_wrap(loch_allocator_get_device(memory->pool), native, out);
    pthread_mutex_lock(&memory->lock);
    *out = memory_seen_stream(memory, native);
    pthread_mutex_unlock(&memory->lock);
    if (*out) return LOCH_OK;
    memory_close_idle(memory);
    pthread_mutex_lock(&memory->lock);
    *out = memory_seen_stream(memory, native);
    const loch_status status = *out ? LOCH_OK : memory_add_stream(memory, native, owner, out);
    pthread_mutex_unlock(&memory->lock);
    return status;
}

/* --- methods --- */

/* Finds Loch's stream for a stream of any library; None for the default stream. The caller holds a reference on
 * `argument` until its call with the stream has ended. */
static int memory_read_stream(memory_object *memory, PyObject *argument, loch_stream **out)
{
    *out = NULL;
    if (Py_IsNone(argument)) return 0;
    PyObject *number = lochpy_stream_number(argument);
    if (!number) return -1;
    void *native = PyLong_AsVoidPtr(number);
    Py_DECREF(number);
    if (!native && PyErr_Occurred()) return -1;
    return lochpy_check(memory_find_stream(memory, native, PyLong_Check(argument) ? NULL : argument, out));
}

PyDoc_STRVAR(doc_alloc, "alloc($self, bytes, stream=None, /)\n--\n\n"
                        "Allocates bytes for work on a stream of any library and returns the address.");

static PyObject *memory_alloc(PyObject *self, PyObject *args)
{
    memory_object *memory = (memory_object *)self;
    Py_ssize_t bytes;
    PyObject *stream = Py_None;
    void *block;
    if (!PyArg_ParseTuple(args, "n|O:alloc", &bytes, &stream)) return NULL;
    if (bytes < 0) return PyErr_Format(PyExc_ValueError, "a block of %zd bytes", bytes);
    loch_request request = {.size = sizeof request, .bytes = (size_t)bytes, .alignment = ALIGNMENT_BYTES};
    if (memory_read_stream(memory, stream, &request.stream) != 0) return NULL;
    if (LOCHPY_TRY(loch_allocator_alloc(memory->pool, &request, &block)) != 0) return NULL;
    return PyLong_FromVoidPtr(block);
}

PyDoc_STRVAR(doc_free, "free($self, address, stream=None, /)\n--\n\n"
                       "Frees a block in the order of a stream; None for the stream of its allocation.");

static PyObject *memory_free(PyObject *self, PyObject *args)
{
    memory_object *memory = (memory_object *)self;
    PyObject *number, *argument = Py_None;
    loch_stream *stream;
    if (!PyArg_ParseTuple(args, "O|O:free", &number, &argument)) return NULL;
    void *address = PyLong_AsVoidPtr(number);
    if ((!address && PyErr_Occurred()) || memory_read_stream(memory, argument, &stream) != 0) return NULL;
    const int failed = Py_IsNone(argument) ? LOCHPY_TRY(loch_free(memory->pool, address))
                                           : LOCHPY_TRY(loch_allocator_free_on(memory->pool, address, stream));
    if (failed) return NULL;
    Py_RETURN_NONE;
}

static PyMethodDef memory_methods[] = {
    LOCHPY_VARIABLE("alloc", memory_alloc, doc_alloc),
    LOCHPY_VARIABLE("free", memory_free, doc_free),
    {NULL, NULL, 0, NULL},
};

/* --- the type --- */

static PyObject *memory_new(PyTypeObject *type, PyObject *args, PyObject *keywords)
{
    static char *names[] = {"pool", NULL};
    PyObject *argument;
    loch_allocator *pool;
    if (!PyArg_ParseTupleAndKeywords(args, keywords, "O:DeviceMemory", names, &argument)) return NULL;
    if (lochpy_read_pool(argument, &pool) != 0) return NULL;
    if (!pool) return PyErr_Format(PyExc_TypeError, "a DeviceMemory needs a pool");
    memory_object *memory = lochpy_new(type);
    if (!memory) {
        loch_allocator_release(pool);
        return NULL;
    }
    pthread_mutex_init(&memory->lock, NULL);
    memory->pool = pool;
    return (PyObject *)memory;
}

/* Closes the streams and releases the pool; live blocks stay valid. */
static void memory_dealloc(PyObject *self)
{
    memory_object *memory = (memory_object *)self;
    for (size_t at = 0; at < memory->count; at++) {
        loch_stream_close(memory->streams[at].stream);
        Py_XDECREF(memory->streams[at].owner);
    }
    free(memory->streams);
    loch_allocator_release(memory->pool);
    pthread_mutex_destroy(&memory->lock);
    lochpy_free(self);
}

PyDoc_STRVAR(doc_memory, "DeviceMemory(pool)\n--\n\nMemory of a pool for a library with CUDA streams of its own.");

static PyType_Slot memory_slots[] = {
    {Py_tp_doc, (void *)doc_memory},
    {Py_tp_new, LOCHPY_SLOT(memory_new)},
    {Py_tp_dealloc, LOCHPY_SLOT(memory_dealloc)},
    {Py_tp_methods, memory_methods},
    {0, NULL},
};

static PyType_Spec memory_spec = {
    .name = "loch._core.DeviceMemory",
    .basicsize = sizeof(memory_object),
    .flags = Py_TPFLAGS_DEFAULT,
    .slots = memory_slots,
};

int lochpy_add_device_memory(PyObject *module)
{
    PyTypeObject *type = lochpy_add_type(module, &memory_spec);
    Py_XDECREF((PyObject *)type);
    return type ? 0 : -1;
}

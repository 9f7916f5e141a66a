/* SPDX-License-Identifier: MIT */
/* Block: one block of bytes at an address. Session: blocks that are freed together.
 *
 * A Block frees its memory once: by free(), at the end of a `with`, with its session, or with the object. A block that
 * was allocated through a session holds a reference on the Session object, and counts as freed when that has ended. */
#include "core.h"

typedef struct lochpy_session {
    PyObject_HEAD lochpy_gate gate;
    loch_session *handle;
    unsigned generation;
} lochpy_session;

typedef struct lochpy_block {
    PyObject_HEAD lochpy_gate gate;
    loch_allocator *allocator; /* a reference */
    void *address;
    size_t bytes;
    PyObject *session; /* a Session, or NULL */
    unsigned generation;
} lochpy_block;

static lochpy_session *session_of(PyObject *self)
{
    return (lochpy_session *)(void *)self;
}

static lochpy_block *block_of(PyObject *self)
{
    return (lochpy_block *)(void *)self;
}

/* --- Block --- */

static int block_read_request(PyObject *arguments, PyObject *keywords, loch_allocator *allocator, loch_request *out,
                              lochpy_stream_use *use)
{
    static char *names[] = {"bytes", "stream", "alignment", "tag", "zeroed", "timeout", "one_handle", NULL};
    PyObject *bytes, *stream = NULL, *alignment = NULL, *tag = NULL, *timeout = NULL;
    int is_zeroed = 0, is_one = 0;
    *use = (lochpy_stream_use){NULL, NULL};
    if (!PyArg_ParseTupleAndKeywords(arguments, keywords, "O|$OOOpOp:alloc", names, &bytes, &stream, &alignment, &tag,
                                     &is_zeroed, &timeout, &is_one))
        return -1;
    if (Py_IsNone(bytes)) {
        PyErr_SetString(PyExc_TypeError, "a number of bytes is needed, not None");
        return -1;
    }
    if (lochpy_read_bytes(bytes, &out->bytes) != 0 || lochpy_read_bytes(alignment, &out->alignment) != 0 ||
        lochpy_read_tag(tag, &out->tag) != 0 || lochpy_read_seconds(timeout, &out->timeout_ns) != 0 ||
        lochpy_read_stream(stream, loch_allocator_get_device(allocator), use) != 0)
        return -1;
    out->stream = use->stream;
    out->flags = (is_zeroed ? LOCH_ALLOC_ZEROED : 0) | (is_one ? LOCH_ALLOC_ONE_HANDLE : 0);
    return 0;
}

/* Allocates from `allocator`, or from the allocator of an open session. */
PyObject *lochpy_make_block(loch_allocator *allocator, PyObject *session, PyObject *arguments, PyObject *keywords)
{
    loch_request request = {.size = sizeof request};
    lochpy_stream_use use;
    if (block_read_request(arguments, keywords, allocator, &request, &use) != 0) return NULL;
    lochpy_block *self = lochpy_new(lochpy.block);
    void *address = NULL;
    const int result = self ? LOCHPY_TRY(loch_allocator_alloc(allocator, &request, &address)) : -1;
    lochpy_stream_done(&use);
    if (result != 0) {
        if (self) {
            (void)lochpy_gate_close(&self->gate); /* nothing to free */
            Py_DECREF((PyObject *)self);
        }
        return NULL;
    }
    self->allocator = loch_allocator_retain(allocator);
    self->address = address;
    self->bytes = request.bytes;
    self->generation = lochpy_generation;
    Py_XINCREF(session);
    self->session = session;
    return (PyObject *)self;
}

/* Frees the memory of a block whose gate the caller has closed. A block of a session that has ended is free already. */
static loch_status block_release(lochpy_block *self, loch_stream *stream, bool has_stream)
{
    if (!lochpy_is_own(self->generation)) return LOCH_OK;
    lochpy_session *session = self->session ? session_of(self->session) : NULL;
    if (session && !lochpy_gate_enter(&session->gate)) return LOCH_OK;
    loch_status status;
    LOCHPY_WITHOUT_GIL(status = has_stream ? loch_allocator_free_on(self->allocator, self->address, stream)
                                           : loch_free(self->allocator, self->address));
    if (session) (void)lochpy_gate_leave(&session->gate); /* a session is not closed while a call is inside */
    return status;
}

/* Tells whether the memory of a block was given back. */
static bool block_is_freed(lochpy_block *self)
{
    return lochpy_gate_is_closed(&self->gate) ||
           (self->session && lochpy_gate_is_closed(&session_of(self->session)->gate));
}

/* Closes the gate of a block for its end. A failure says whether the block was freed or is in use. */
static int block_close(lochpy_block *self)
{
    if (!block_is_freed(self) && lochpy_gate_try_close(&self->gate)) return 0;
    if (block_is_freed(self))
        (void)lochpy_raise_text(LOCH_E_DOUBLE_FREE, "the block was freed before");
    else
        (void)lochpy_raise_text(LOCH_E_BUSY, "another call uses the block: it is not freed");
    return -1;
}

static PyObject *block_free(PyObject *object, PyObject *arguments, PyObject *keywords)
{
    static char *names[] = {"stream", NULL};
    PyObject *argument = NULL;
    if (!PyArg_ParseTupleAndKeywords(arguments, keywords, "|O:free", names, &argument)) return NULL;
    lochpy_block *self = block_of(object);
    if (block_close(self) != 0) return NULL;
    lochpy_stream_use use;
    if (lochpy_read_stream(argument, loch_allocator_get_device(self->allocator), &use) != 0) {
        lochpy_gate_reopen(&self->gate);
        return NULL;
    }
    const loch_status status = block_release(self, use.stream, argument && !Py_IsNone(argument));
    lochpy_stream_done(&use);
    if (status == LOCH_OK) Py_RETURN_NONE;
    if (status != LOCH_E_CORRUPT) lochpy_gate_reopen(&self->gate); /* E_CORRUPT: freed, and damage was found */
    return lochpy_raise(status);
}

static PyObject *block_detach(PyObject *object, PyObject *unused)
{
    (void)unused;
    lochpy_block *self = block_of(object);
    if (self->session) return lochpy_raise_text(LOCH_E_UNSUPPORTED, "a block of a session cannot be detached");
    if (block_close(self) != 0) return NULL;
    return PyLong_FromVoidPtr(self->address);
}

static void block_dealloc(PyObject *object)
{
    lochpy_block *self = block_of(object);
    if (self->allocator && lochpy_gate_try_close(&self->gate)) (void)block_release(self, NULL, false);
    if (lochpy_is_own(self->generation)) loch_allocator_release(self->allocator);
    Py_XDECREF(self->session);
    lochpy_free(object);
}

static PyObject *block_address(PyObject *self, void *unused)
{
    (void)unused;
    if (block_is_freed(block_of(self))) return lochpy_raise_text(LOCH_E_INVALID, "the block was freed before");
    return PyLong_FromVoidPtr(block_of(self)->address);
}

static PyObject *block_bytes(PyObject *self, void *unused)
{
    (void)unused;
    return PyLong_FromSize_t(block_of(self)->bytes);
}

static PyObject *block_freed(PyObject *self, void *unused)
{
    (void)unused;
    return PyBool_FromLong(block_is_freed(block_of(self)));
}

static PyObject *block_device(PyObject *self, void *unused)
{
    (void)unused;
    return lochpy_make_text(loch_device_get_name(loch_allocator_get_device(block_of(self)->allocator)));
}

static PyObject *block_record_use(PyObject *object, PyObject *argument)
{
    lochpy_block *self = block_of(object);
    if (block_is_freed(self) || !lochpy_gate_enter(&self->gate))
        return lochpy_raise_text(LOCH_E_INVALID, "the block was freed before");
    lochpy_stream_use use;
    int result = lochpy_read_stream(argument, loch_allocator_get_device(self->allocator), &use);
    if (result == 0) result = LOCHPY_TRY(loch_allocator_record_use(self->allocator, self->address, use.stream));
    lochpy_stream_done(&use);
    (void)lochpy_gate_leave(&self->gate); /* free() refuses while a call is inside */
    if (result != 0) return NULL;
    Py_RETURN_NONE;
}

static PyObject *block_repr(PyObject *object)
{
    lochpy_block *self = block_of(object);
    if (block_is_freed(self)) return PyUnicode_FromFormat("<loch.Block of %zu bytes, freed>", self->bytes);
    return PyUnicode_FromFormat("<loch.Block of %zu bytes at %p on %s>", self->bytes, self->address,
                                loch_device_get_name(loch_allocator_get_device(self->allocator)));
}

static PyObject *block_enter(PyObject *self, PyObject *unused)
{
    (void)unused;
    Py_INCREF(self);
    return self;
}

static PyObject *block_exit(PyObject *self, PyObject *unused)
{
    (void)unused;
    if (block_is_freed(block_of(self))) Py_RETURN_NONE;
    PyObject *none = PyTuple_New(0);
    PyObject *result = none ? block_free(self, none, NULL) : NULL;
    Py_XDECREF(none);
    return result;
}

static PyMethodDef block_methods[] = {
    LOCHPY_KEYWORDS("free", block_free, "free($self, /, stream=None)\n--\n\nFrees the memory, ordered on a stream."),
    LOCHPY_NONE("detach", block_detach,
                "detach($self, /)\n--\n\nGives up ownership and returns the address, for Pool.free."),
    LOCHPY_ONE("record_use", block_record_use,
               "record_use($self, stream, /)\n--\n\nOrders the free after the work on a further stream."),
    LOCHPY_NONE("__enter__", block_enter, "__enter__($self, /)\n--\n\nThe block itself."),
    {"__exit__", block_exit, METH_VARARGS, "Frees the block unless it is free already."},
    {NULL, NULL, 0, NULL},
};

static PyGetSetDef block_members[] = {
    {"address", block_address, NULL, "Address of the block; 0 for a block of 0 bytes.", NULL},
    {"nbytes", block_bytes, NULL, "Size in bytes, as requested.", NULL},
    {"freed", block_freed, NULL, "Whether the memory was given back.", NULL},
    {"device", block_device, NULL, "Name of the device.", NULL},
    {NULL, NULL, NULL, NULL, NULL},
};

static PyType_Slot block_slots[] = {
    {Py_tp_doc, "A block of bytes. Made by Pool.alloc and Session.alloc."},
    {Py_tp_dealloc, LOCHPY_SLOT(block_dealloc)},
    {Py_tp_repr, LOCHPY_SLOT(block_repr)},
    {Py_tp_methods, block_methods},
    {Py_tp_getset, block_members},
    {0, NULL},
};

static PyType_Spec block_spec = {
    .name = "loch.Block",
    .basicsize = sizeof(lochpy_block),
    .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_DISALLOW_INSTANTIATION,
    .slots = block_slots,
};

/* --- Session --- */

PyObject *lochpy_make_session(loch_allocator *allocator, const char *name)
{
    loch_session *handle = NULL;
    if (LOCHPY_TRY(loch_session_begin(allocator, name, &handle)) != 0) return NULL;
    lochpy_session *self = lochpy_new(lochpy.session);
    if (!self) {
        if (loch_session_end(handle, NULL, NULL) != LOCH_OK) return NULL;
        return NULL;
    }
    self->handle = handle;
    self->generation = lochpy_generation;
    return (PyObject *)self;
}

/* Enters the gate of a session. End with lochpy_gate_leave. */
static loch_session *session_enter(PyObject *self)
{
    if (lochpy_gate_enter(&session_of(self)->gate)) return session_of(self)->handle;
    (void)lochpy_raise_text(LOCH_E_INVALID, "the session has ended");
    return NULL;
}

static PyObject *session_alloc(PyObject *self, PyObject *arguments, PyObject *keywords)
{
    loch_session *session = session_enter(self);
    if (!session) return NULL;
    PyObject *block = lochpy_make_block(loch_session_get_allocator(session), self, arguments, keywords);
    (void)lochpy_gate_leave(&session_of(self)->gate);
    return block;
}

static PyObject *session_stats(PyObject *self, PyObject *unused)
{
    (void)unused;
    loch_session *session = session_enter(self);
    if (!session) return NULL;
    loch_session_stats stats = {.size = sizeof stats};
    const int result = LOCHPY_TRY(loch_session_get_stats(session, &stats));
    (void)lochpy_gate_leave(&session_of(self)->gate);
    if (result != 0) return NULL;
    return lochpy_call("loch._stats", "SessionStats", "(nnn)", (Py_ssize_t)stats.blocks, (Py_ssize_t)stats.bytes,
                       (Py_ssize_t)stats.peak_bytes);
}

/* Ends a session whose gate the caller has closed. Opens the gate again if the session still exists. */
static loch_status session_finish(lochpy_session *self, loch_stream *stream, size_t *bytes)
{
    loch_status status;
    LOCHPY_WITHOUT_GIL(status = loch_session_end(self->handle, stream, bytes));
    if (status != LOCH_OK) lochpy_gate_reopen(&self->gate);
    return status;
}

static PyObject *session_end(PyObject *object, PyObject *arguments, PyObject *keywords)
{
    static char *names[] = {"stream", NULL};
    PyObject *argument = NULL;
    if (!PyArg_ParseTupleAndKeywords(arguments, keywords, "|O:end", names, &argument)) return NULL;
    lochpy_session *self = session_of(object);
    loch_session *session = session_enter(object);
    if (!session) return NULL;
    loch_device *device = loch_device_retain(loch_allocator_get_device(loch_session_get_allocator(session)));
    lochpy_stream_use use;
    const int is_read = lochpy_read_stream(argument, device, &use);
    (void)lochpy_gate_leave(&self->gate);
    PyObject *result = NULL;
    size_t bytes = 0;
    if (is_read == 0) {
        if (!lochpy_gate_try_close(&self->gate))
            (void)lochpy_raise_text(LOCH_E_BUSY, "another thread uses or ends the session");
        else if (lochpy_check(session_finish(self, use.stream, &bytes)) == 0)
            result = PyLong_FromSize_t(bytes);
        lochpy_stream_done(&use);
    }
    LOCHPY_WITHOUT_GIL(loch_device_release(device));
    return result;
}

static PyObject *session_exit(PyObject *self, PyObject *unused)
{
    (void)unused;
    if (lochpy_gate_is_closed(&session_of(self)->gate)) Py_RETURN_NONE;
    PyObject *none = PyTuple_New(0);
    PyObject *result = none ? session_end(self, none, NULL) : NULL;
    Py_XDECREF(none);
    if (!result) return NULL;
    Py_DECREF(result);
    Py_RETURN_NONE;
}

static void session_dealloc(PyObject *object)
{
    lochpy_session *self = session_of(object);
    if (self->handle && lochpy_is_own(self->generation) && lochpy_gate_try_close(&self->gate))
        (void)session_finish(self, NULL, NULL);
    lochpy_free(object);
}

static PyObject *session_ended(PyObject *self, void *unused)
{
    (void)unused;
    return PyBool_FromLong(lochpy_gate_is_closed(&session_of(self)->gate));
}

static PyMethodDef session_methods[] = {
    LOCHPY_KEYWORDS(
        "alloc", session_alloc,
        "alloc($self, /, bytes, *, stream=None, alignment=None, tag=None, zeroed=False, "
        "timeout=None, one_handle=False)\n--\n\nAllocates a block that is freed at the end of the session."),
    LOCHPY_NONE("stats", session_stats, "stats($self, /)\n--\n\nBlocks, bytes and most bytes of the session."),
    LOCHPY_KEYWORDS("end", session_end,
                    "end($self, /, stream=None)\n--\n\nEnds the session and frees its blocks. Returns their bytes."),
    LOCHPY_NONE("__enter__", block_enter, "__enter__($self, /)\n--\n\nThe session itself."),
    {"__exit__", session_exit, METH_VARARGS, "Ends the session."},
    {NULL, NULL, 0, NULL},
};

static PyGetSetDef session_members[] = {
    {"ended", session_ended, NULL, "Whether the session has ended.", NULL},
    {NULL, NULL, NULL, NULL, NULL},
};

static PyType_Slot session_slots[] = {
    {Py_tp_doc, "Blocks that are freed together. Made by Pool.session."},
    {Py_tp_dealloc, LOCHPY_SLOT(session_dealloc)},
    {Py_tp_methods, session_methods},
    {Py_tp_getset, session_members},
    {0, NULL},
};

static PyType_Spec session_spec = {
    .name = "loch.Session",
    .basicsize = sizeof(lochpy_session),
    .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_DISALLOW_INSTANTIATION,
    .slots = session_slots,
};

int lochpy_add_block_types(PyObject *module)
{
    lochpy.block = lochpy_add_type(module, &block_spec);
    lochpy.session = lochpy.block ? lochpy_add_type(module, &session_spec) : NULL;
    return lochpy.session ? 0 : -1;
}

/* SPDX-License-Identifier: MIT */
/* Event: a mark in a stream. The library allows one thread at a time with an event, so calls take its lock. */
#include "core.h"

#include <pthread.h>

typedef struct lochpy_event {
    PyObject_HEAD loch_event *handle;
    loch_device *device;
    pthread_mutex_t lock; /* held without the GIL during calls with the handle */
    unsigned generation;
} lochpy_event;

static lochpy_event *event_of(PyObject *self)
{
    return (lochpy_event *)(void *)self;
}

static PyObject *event_make(PyTypeObject *type, PyObject *arguments, PyObject *keywords)
{
    static char *names[] = {"device", "timed", NULL};
    PyObject *where;
    int timed = 0;
    if (!PyArg_ParseTupleAndKeywords(arguments, keywords, "O|$p:Event", names, &where, &timed)) return NULL;
    loch_device *device;
    if (lochpy_read_device(where, &device) != 0) return NULL;
    loch_event *event = NULL;
    if (LOCHPY_TRY(loch_event_create(device, timed ? LOCH_EVENT_TIMED : LOCH_EVENT_PLAIN, &event)) != 0) {
        loch_device_release(device);
        return NULL;
    }
    lochpy_event *self = lochpy_new(type);
    if (!self) {
        loch_event_destroy(event);
        loch_device_release(device);
        return NULL;
    }
    pthread_mutex_init(&self->lock, NULL);
    self->handle = event;
    self->device = device;
    self->generation = lochpy_generation;
    return (PyObject *)self;
}

static void event_dealloc(PyObject *object)
{
    lochpy_event *self = event_of(object);
    if (self->handle && lochpy_is_own(self->generation)) {
        LOCHPY_WITHOUT_GIL({
            loch_event_destroy(self->handle);
            loch_device_release(self->device);
        });
        pthread_mutex_destroy(&self->lock);
    }
    lochpy_free(object);
}

/* Calls a function with the event and a stream, one thread at a time. */
static loch_status event_call(lochpy_event *self, loch_status (*function)(loch_event *, loch_stream *),
                              loch_stream *stream)
{
    PyThreadState *thread = PyEval_SaveThread();
    pthread_mutex_lock(&self->lock);
    const loch_status status = function(self->handle, stream);
    pthread_mutex_unlock(&self->lock);
    PyEval_RestoreThread(thread);
    return status;
}

static loch_status event_do_query(loch_event *event, loch_stream *unused)
{
    (void)unused;
    return loch_event_query(event);
}

static loch_status event_do_sync(loch_event *event, loch_stream *unused)
{
    (void)unused;
    return loch_event_sync(event);
}

static loch_status event_do_wait(loch_event *event, loch_stream *stream)
{
    return loch_stream_wait(stream, event);
}

static PyObject *event_record(PyObject *self, PyObject *arguments, PyObject *keywords)
{
    static char *names[] = {"stream", NULL};
    PyObject *argument = NULL;
    if (!PyArg_ParseTupleAndKeywords(arguments, keywords, "|O:record", names, &argument)) return NULL;
    lochpy_stream_use use;
    if (lochpy_read_stream(argument, event_of(self)->device, &use) != 0) return NULL;
    const loch_status status = event_call(event_of(self), loch_event_record, use.stream);
    lochpy_stream_done(&use);
    if (lochpy_check(status) != 0) return NULL;
    Py_RETURN_NONE;
}

static PyObject *event_query(PyObject *self, PyObject *unused)
{
    (void)unused;
    return lochpy_answer(event_call(event_of(self), event_do_query, NULL));
}

static PyObject *event_sync(PyObject *self, PyObject *unused)
{
    (void)unused;
    if (lochpy_check(event_call(event_of(self), event_do_sync, NULL)) != 0) return NULL;
    Py_RETURN_NONE;
}

static PyObject *event_elapsed(PyObject *self, PyObject *end)
{
    if (!PyObject_TypeCheck(end, lochpy.event)) {
        PyErr_Format(PyExc_TypeError, "an Event is needed, not %R", end);
        return NULL;
    }
    lochpy_event *first = event_of(self), *second = event_of(end);
    lochpy_event *low = first < second ? first : second, *high = first < second ? second : first;
    uint64_t ns = 0;
    PyThreadState *thread = PyEval_SaveThread();
    pthread_mutex_lock(&low->lock);
    if (low != high) pthread_mutex_lock(&high->lock);
    const loch_status status = loch_event_elapsed(first->handle, second->handle, &ns);
    if (low != high) pthread_mutex_unlock(&high->lock);
    pthread_mutex_unlock(&low->lock);
    PyEval_RestoreThread(thread);
    if (lochpy_check(status) != 0) return NULL;
    return PyLong_FromUnsignedLongLong(ns);
}

PyObject *lochpy_stream_wait(PyObject *self, PyObject *event)
{
    if (!PyObject_TypeCheck(event, lochpy.event)) {
        PyErr_Format(PyExc_TypeError, "an Event is needed, not %R", event);
        return NULL;
    }
    lochpy_stream_use use;
    if (lochpy_read_stream(self, NULL, &use) != 0) return NULL;
    const loch_status status = event_call(event_of(event), event_do_wait, use.stream);
    lochpy_stream_done(&use);
    if (lochpy_check(status) != 0) return NULL;
    Py_RETURN_NONE;
}

static PyObject *event_device(PyObject *self, void *unused)
{
    (void)unused;
    return lochpy_make_text(loch_device_get_name(event_of(self)->device));
}

static PyMethodDef event_methods[] = {
    LOCHPY_KEYWORDS("record", event_record,
                    "record($self, /, stream=None)\n--\n\nPlaces the mark after the work queued so far."),
    LOCHPY_NONE("query", event_query, "query($self, /)\n--\n\nWhether the mark has passed."),
    LOCHPY_NONE("sync", event_sync, "sync($self, /)\n--\n\nWaits until the mark has passed."),
    LOCHPY_ONE("elapsed_ns", event_elapsed,
               "elapsed_ns($self, end, /)\n--\n\nNanoseconds on the device from this mark to another."),
    {NULL, NULL, 0, NULL},
};

static PyGetSetDef event_members[] = {
    {"device", event_device, NULL, "Name of the device.", NULL},
    {NULL, NULL, NULL, NULL, NULL},
};

static PyType_Slot event_slots[] = {
    {Py_tp_doc, "Event(device, *, timed=False)\n--\n\nA mark in a stream."},
    {Py_tp_new, LOCHPY_SLOT(event_make)},
    {Py_tp_dealloc, LOCHPY_SLOT(event_dealloc)},
    {Py_tp_methods, event_methods},
    {Py_tp_getset, event_members},
    {0, NULL},
};

static PyType_Spec event_spec = {
    .name = "loch.Event",
    .basicsize = sizeof(lochpy_event),
    .flags = Py_TPFLAGS_DEFAULT,
    .slots = event_slots,
};

int lochpy_add_event_type(PyObject *module)
{
    lochpy.event = lochpy_add_type(module, &event_spec);
    return lochpy.event ? 0 : -1;
}

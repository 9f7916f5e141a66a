/* SPDX-License-Identifier: MIT */
/* DLPack: tensors to and from other libraries without a copy, as the Python array API standard describes. */
#include "core.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

/* The structures of DLPack, as its header declares them. */
typedef struct dlpack_tensor {
    void *data;
    int32_t device_type, device_id, dimensions;
    uint8_t code, bits;
    uint16_t lanes;
    int64_t *shape, *strides;
    uint64_t byte_offset;
} dlpack_tensor;

typedef struct dlpack_legacy {
    dlpack_tensor tensor;
    void *context;
    void (*deleter)(struct dlpack_legacy *);
} dlpack_legacy;

typedef struct dlpack_versioned {
    uint32_t major, minor;
    void *context;
    void (*deleter)(struct dlpack_versioned *);
    uint64_t flags;
    dlpack_tensor tensor;
} dlpack_versioned;

enum { DLPACK_CPU = 1, DLPACK_CUDA = 2, DLPACK_CUDA_HOST = 3, DLPACK_CUDA_MANAGED = 13 };

#define DLPACK_IS_COPIED (UINT64_C(1) << 1)

static const char dlpack_name_legacy[] = "dltensor", dlpack_name_versioned[] = "dltensor_versioned";
static const char dlpack_used_legacy[] = "used_dltensor", dlpack_used_versioned[] = "used_dltensor_versioned";

/* A device as DLPack counts it. */
typedef struct dlpack_place {
    int32_t type, id;
} dlpack_place;

static int dlpack_place_of(loch_tensor *tensor, dlpack_place *out)
{
    const loch_device *device = loch_tensor_get_device(tensor);
    loch_device_properties found = {.size = sizeof found};
    *out = (dlpack_place){DLPACK_CPU, 0};
    if (device && lochpy_check(loch_device_get_properties(device, &found)) != 0) return -1;
    if (!device || strcmp(found.driver, "cpu") == 0) return 0;
    if (strcmp(found.driver, "cuda") != 0) {
        (void)lochpy_raise_export(loch_error_set(LOCH_E_UNSUPPORTED, NULL, 0,
                                                 "DLPack has no word for memory of %s: .to(\"cpu\") first",
                                                 loch_device_get_name(device)));
        return -1;
    }
    switch (loch_buffer_get_kind(loch_tensor_get_buffer(tensor))) {
    case LOCH_MEMORY_DEVICE: *out = (dlpack_place){DLPACK_CUDA, found.index}; break;
    case LOCH_MEMORY_PINNED: *out = (dlpack_place){DLPACK_CUDA_HOST, found.index}; break;
    case LOCH_MEMORY_MANAGED: *out = (dlpack_place){DLPACK_CUDA_MANAGED, found.index}; break;
    default: break;
    }
    return 0;
}

PyObject *lochpy_tensor_dlpack_device(PyObject *self, PyObject *unused)
{
    (void)unused;
    dlpack_place place;
    if (dlpack_place_of(lochpy_tensor_of(self), &place) != 0) return NULL;
    return Py_BuildValue("(ii)", (int)place.type, (int)place.id);
}

/* --- export --- */

static void dlpack_delete(void *managed, bool is_versioned)
{
    dlpack_versioned *versioned = managed;
    dlpack_legacy *legacy = managed;
    if (is_versioned && versioned->deleter) versioned->deleter(versioned);
    if (!is_versioned && legacy->deleter) legacy->deleter(legacy);
}

/* Destroys a capsule. One that was not consumed still owns the structure; a forked child leaves it to its parent. */
static void dlpack_capsule_end(PyObject *capsule)
{
    PyObject *type, *value, *trace;
    PyErr_Fetch(&type, &value, &trace);
    const bool is_versioned = PyCapsule_IsValid(capsule, dlpack_name_versioned);
    if (is_versioned || PyCapsule_IsValid(capsule, dlpack_name_legacy)) {
        void *managed = PyCapsule_GetPointer(capsule, is_versioned ? dlpack_name_versioned : dlpack_name_legacy);
        const unsigned generation = (unsigned)(uintptr_t)PyCapsule_GetContext(capsule);
        if (managed && lochpy_is_own(generation)) dlpack_delete(managed, is_versioned);
    }
    PyErr_Restore(type, value, trace);
}

/* Finds the stream of the receiver, by the numbers of the protocol. NULL makes the call wait on the host. */
static int dlpack_consumer(loch_tensor *tensor, PyObject *argument, dlpack_place place, loch_stream **out)
{
    loch_device *device = loch_tensor_get_device(tensor);
    *out = NULL;
    const bool is_none = Py_IsNone(argument);
    if (place.type == DLPACK_CPU && !is_none) {
        PyObject *number = PyIndex_Check(argument) ? PyNumber_Index(argument) : NULL;
        const long value = number ? PyLong_AsLong(number) : 0;
        Py_XDECREF(number);
        PyErr_Clear();
        if (value == -1) return 0; /* no order is wanted */
        (void)lochpy_raise_export(
            loch_error_set(LOCH_E_INVALID, NULL, 0, "host memory has no streams: pass stream=None"));
        return -1;
    }
    if (is_none) {
        if (place.type == DLPACK_CUDA) *out = loch_stream_get_default(device);
        return 0;
    }
    PyObject *number = lochpy_stream_number(argument);
    if (!number) return -1;
    const long long value = PyLong_AsLongLong(number);
    void *native = PyErr_Occurred() ? NULL : (void *)(uintptr_t)value;
    Py_DECREF(number);
    if (PyErr_Occurred()) return -1;
    if (value == 0) {
        (void)lochpy_raise_export(loch_error_set(
            LOCH_E_INVALID, NULL, 0, "stream 0 may mean two things: 1 is the default stream, 2 that of the thread"));
        return -1;
    }
    if (value == 1 || value == -1) { /* Loch's own work is on the default stream */
        *out = loch_stream_get_default(device);
        return 0;
    }
    return lochpy_stream_of_handle(device, native, PyIndex_Check(argument) ? NULL : argument, out);
}

typedef struct dlpack_request {
    bool is_versioned, is_copied; /* is_copied: the tensor is a copy made for the receiver */
    loch_dlpack_copy copy;
    dlpack_place place;
} dlpack_request;

/* A structure for the receiver around the one of Loch: it counts the export until its deleter runs. */
typedef struct dlpack_counted {
    union {
        dlpack_versioned versioned;
        dlpack_legacy legacy;
    } outer;
    void *inner;
    loch_allocator *counted; /* of lochpy_export_begin; kept alive by `inner` */
    bool is_versioned;
} dlpack_counted;

static void dlpack_counted_end(dlpack_counted *record)
{
    lochpy_export_end(record->counted);
    dlpack_delete(record->inner, record->is_versioned);
    free(record);
}

static void dlpack_counted_versioned(dlpack_versioned *managed)
{
    dlpack_counted_end(managed->context);
}

static void dlpack_counted_legacy(dlpack_legacy *managed)
{
    dlpack_counted_end(managed->context);
}

/* Puts a counted structure around one of Loch. Returns NULL without host memory; `inner` is then unchanged. */
static void *dlpack_count(void *inner, bool is_versioned, loch_allocator *counted)
{
    dlpack_counted *record = malloc(sizeof *record);
    if (!record) return NULL;
    record->inner = inner;
    record->counted = counted;
    record->is_versioned = is_versioned;
    if (is_versioned) {
        record->outer.versioned = *(dlpack_versioned *)inner;
        record->outer.versioned.context = record;
        record->outer.versioned.deleter = dlpack_counted_versioned;
    } else {
        record->outer.legacy = *(dlpack_legacy *)inner;
        record->outer.legacy.context = record;
        record->outer.legacy.deleter = dlpack_counted_legacy;
    }
    return &record->outer;
}

static PyObject *dlpack_make_capsule(loch_tensor *tensor, const dlpack_request *request, loch_stream *consumer)
{
    const loch_dlpack_export options = {.size = sizeof options, .copy = request->copy, .consumer = consumer};
    struct DLManagedTensorVersioned *new = NULL;
    struct DLManagedTensor *old = NULL;
    loch_status status;
    LOCHPY_WITHOUT_GIL(status = request->is_versioned ? loch_tensor_to_dlpack(tensor, &options, &new)
                                                      : loch_tensor_to_dlpack_legacy(tensor, &options, &old));
    if (status != LOCH_OK) return lochpy_raise_export(status);
    void *managed = request->is_versioned ? (void *)new : (void *)old;
    loch_allocator *counted = request->copy == LOCH_DLPACK_SHARE ? lochpy_export_begin(tensor) : NULL;
    if (counted) {
        void *outer = dlpack_count(managed, request->is_versioned, counted);
        if (!outer) {
            lochpy_export_end(counted);
            dlpack_delete(managed, request->is_versioned);
            return PyErr_NoMemory();
        }
        managed = outer;
    }
    dlpack_tensor *exported =
        request->is_versioned ? &((dlpack_versioned *)managed)->tensor : &((dlpack_legacy *)managed)->tensor;
    exported->device_type = request->place.type; /* pinned memory may be exported as host memory */
    exported->device_id = request->place.id;
    if (request->is_versioned && request->is_copied) ((dlpack_versioned *)managed)->flags |= DLPACK_IS_COPIED;
    PyObject *capsule =
        PyCapsule_New(managed, request->is_versioned ? dlpack_name_versioned : dlpack_name_legacy, dlpack_capsule_end);
    if (!capsule || PyCapsule_SetContext(capsule, (void *)(uintptr_t)lochpy_generation) != 0) {
        if (!capsule) dlpack_delete(managed, request->is_versioned);
        Py_XDECREF(capsule);
        return NULL;
    }
    return capsule;
}

/* Exports a copy in host memory of a tensor on a device. */
static PyObject *dlpack_export_copy(loch_tensor *tensor, dlpack_request *request)
{
    loch_tensor *copy = NULL;
    loch_device *cpu = NULL;
    loch_status status;
    PyThreadState *thread = PyEval_SaveThread();
    status = loch_device_open("cpu", &cpu);
    if (status == LOCH_OK) status = loch_tensor_to_device(tensor, cpu, NULL, &copy);
    loch_device_release(cpu);
    PyEval_RestoreThread(thread);
    if (status != LOCH_OK) return lochpy_raise_export(status);
    request->is_copied = true;
    request->copy = LOCH_DLPACK_SHARE;
    PyObject *capsule = dlpack_make_capsule(copy, request, NULL);
    loch_tensor_release(copy);
    return capsule;
}

static int dlpack_read_pair(const char *what, PyObject *argument, long *first, long *second)
{
    PyObject *tuple = PySequence_Tuple(argument);
    if (!tuple) return -1;
    int result = -1;
    if (PyTuple_Size(tuple) == 2) {
        PyObject *a = PyNumber_Long(PyTuple_GetItem(tuple, 0)); /* enums of other libraries are accepted */
        PyObject *b = a ? PyNumber_Long(PyTuple_GetItem(tuple, 1)) : NULL;
        *first = b ? PyLong_AsLong(a) : 0;
        *second = b ? PyLong_AsLong(b) : 0;
        Py_XDECREF(a);
        Py_XDECREF(b);
        result = PyErr_Occurred() ? -1 : 0;
    } else {
        PyErr_Format(PyExc_ValueError, "%s is a pair of integers", what);
    }
    Py_DECREF(tuple);
    return result;
}

PyObject *lochpy_tensor_dlpack(PyObject *self, PyObject *arguments, PyObject *keywords)
{
    static char *names[] = {"stream", "max_version", "dl_device", "copy", NULL};
    PyObject *stream = Py_None, *version = Py_None, *device = Py_None, *copy = Py_None;
    if (!PyArg_ParseTupleAndKeywords(arguments, keywords, "|$OOOO:__dlpack__", names, &stream, &version, &device,
                                     &copy))
        return NULL;
    loch_tensor *tensor = lochpy_tensor_of(self);
    dlpack_place place;
    long major = 0, minor = 0;
    const int copies = Py_IsNone(copy) ? -1 : PyObject_IsTrue(copy);
    if (PyErr_Occurred() || lochpy_awake(tensor) != 0 || dlpack_place_of(tensor, &place) != 0) return NULL;
    if (!Py_IsNone(version) && dlpack_read_pair("max_version", version, &major, &minor) != 0) return NULL;
    dlpack_request request = {major >= 1, false, copies == 1 ? LOCH_DLPACK_COPY : LOCH_DLPACK_SHARE, place};
    if (!Py_IsNone(device)) {
        long type, id;
        if (dlpack_read_pair("dl_device", device, &type, &id) != 0) return NULL;
        request.place = (dlpack_place){(int32_t)type, (int32_t)id};
    }
    const bool is_here = request.place.type == place.type && request.place.id == place.id;
    if (is_here || (request.place.type == DLPACK_CPU && loch_tensor_is_on_host(tensor))) {
        loch_stream *consumer;
        if (dlpack_consumer(tensor, stream, request.place, &consumer) != 0) return NULL;
        return dlpack_make_capsule(tensor, &request, consumer);
    }
    if (copies == 0 || request.place.type != DLPACK_CPU)
        return lochpy_raise_export(
            loch_error_set(LOCH_E_UNSUPPORTED, NULL, 0, "the tensor is not exported to DLPack's device (%d, %d)%s",
                           (int)request.place.type, (int)request.place.id, copies == 0 ? " without a copy" : ""));
    return dlpack_export_copy(tensor, &request);
}

PyObject *lochpy_tensor_cuda_interface(PyObject *self, void *unused)
{
    (void)unused;
    static const char *const types[LOCH_DTYPE_COUNT] = {
        [LOCH_F64] = "<f8", [LOCH_F32] = "<f4", [LOCH_F16] = "<f2", [LOCH_I8] = "|i1",
        [LOCH_I16] = "<i2", [LOCH_I32] = "<i4", [LOCH_I64] = "<i8", [LOCH_U8] = "|u1",
        [LOCH_U16] = "<u2", [LOCH_U32] = "<u4", [LOCH_U64] = "<u8", [LOCH_BOOL] = "|b1"};
    loch_tensor *tensor = lochpy_tensor_of(self);
    const loch_dtype dtype = loch_tensor_get_dtype(tensor);
    const loch_device *device = loch_tensor_get_device(tensor);
    loch_device_properties found = {.size = sizeof found};
    if (!device || loch_device_get_properties(device, &found) != LOCH_OK || strcmp(found.driver, "cuda") != 0) {
        PyErr_SetString(PyExc_AttributeError, "the tensor is not on CUDA: it has no __cuda_array_interface__");
        return NULL;
    }
    if (!types[dtype]) {
        PyErr_Format(PyExc_AttributeError, "__cuda_array_interface__ has no word for %s", loch_dtype_name(dtype));
        return NULL;
    }
    void *address = NULL;
    if (lochpy_check(loch_tensor_get_address(tensor, &address)) != 0) return NULL;
    const size_t dimensions = loch_tensor_get_dimensions(tensor);
    PyObject *shape = lochpy_make_shape(dimensions, loch_tensor_get_shape(tensor), 1);
    PyObject *strides =
        lochpy_make_shape(dimensions, loch_tensor_get_strides(tensor), (int64_t)loch_dtype_bytes(dtype));
    if (!shape || !strides) {
        Py_XDECREF(shape);
        Py_XDECREF(strides);
        return NULL;
    }
    return Py_BuildValue("{s:N, s:s, s:(KN), s:N, s:i, s:i}", "shape", shape, "typestr", types[dtype], "data",
                         (unsigned long long)(uintptr_t)address,
                         PyBool_FromLong(loch_tensor_get_access(tensor) == LOCH_READ_ONLY), "strides", strides,
                         "version", 3, "stream", 1);
}

/* --- import --- */

/* Marks a capsule as consumed and returns its structure; NULL without an exception for other objects. */
static void *dlpack_consume(PyObject *capsule, bool *is_versioned)
{
    static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; /* one of two threads gets the structure */
    void *managed = NULL;
    pthread_mutex_lock(&lock);
    *is_versioned = PyCapsule_IsValid(capsule, dlpack_name_versioned);
    if (*is_versioned || PyCapsule_IsValid(capsule, dlpack_name_legacy)) {
        managed = PyCapsule_GetPointer(capsule, *is_versioned ? dlpack_name_versioned : dlpack_name_legacy);
        if (managed && PyCapsule_SetName(capsule, *is_versioned ? dlpack_used_versioned : dlpack_used_legacy) != 0)
            managed = NULL;
    }
    pthread_mutex_unlock(&lock);
    return managed;
}

static PyObject *dlpack_import(PyObject *capsule, bool copies)
{
    bool is_versioned;
    void *managed = dlpack_consume(capsule, &is_versioned);
    if (!managed) {
        if (!PyErr_Occurred())
            PyErr_Format(PyExc_TypeError, "%R is no tensor of DLPack, or one that was taken already", capsule);
        return NULL;
    }
    const loch_dlpack_import options = {.size = sizeof options, .copy = copies ? LOCH_DLPACK_COPY : LOCH_DLPACK_SHARE};
    loch_tensor *made = NULL;
    loch_status status;
    LOCHPY_WITHOUT_GIL(status = is_versioned ? loch_tensor_from_dlpack(managed, &options, &made)
                                             : loch_tensor_from_dlpack_legacy(managed, &options, &made));
    if (status == LOCH_OK) return lochpy_make_tensor(made);
    PyObject *error = lochpy_raise(status), *type, *value, *trace;
    PyErr_Fetch(&type, &value, &trace); /* the structure still belongs to the capsule */
    (void)PyCapsule_SetName(capsule, is_versioned ? dlpack_name_versioned : dlpack_name_legacy);
    PyErr_Restore(type, value, trace);
    return error;
}

/* Tells whether an object exports memory of CUDA, whose exporters take a stream. -1 on an exception. */
static int dlpack_is_on_cuda(PyObject *source)
{
    PyObject *place = PyObject_CallMethod(source, "__dlpack_device__", NULL);
    if (!place) {
        if (!PyErr_ExceptionMatches(PyExc_AttributeError)) return -1;
        PyErr_Clear();
        return 0;
    }
    long type, id;
    const int result = dlpack_read_pair("__dlpack_device__()", place, &type, &id);
    Py_DECREF(place);
    return result != 0 ? -1 : type == DLPACK_CUDA;
}

/* Asks an object for its capsule. Older objects know the argument `stream` only, or no argument. */
static PyObject *dlpack_ask(PyObject *source, PyObject *stream, PyObject *copy, bool *is_copied)
{
    const int is_on_cuda = dlpack_is_on_cuda(source);
    if (is_on_cuda < 0) return NULL;
    PyObject *method = PyObject_GetAttrString(source, "__dlpack__"), *none = PyTuple_New(0), *capsule = NULL;
    PyObject *keywords = PyDict_New(), *number = NULL;
    int result = method && none && keywords ? 0 : -1;
    if (result == 0 && is_on_cuda) {
        number = Py_IsNone(stream) ? PyLong_FromLong(1) : lochpy_stream_number(stream);
        result = number ? PyDict_SetItemString(keywords, "stream", number) : -1;
    }
    PyObject *newer = result == 0 ? PyDict_Copy(keywords) : NULL;
    PyObject *version = newer ? Py_BuildValue("(ii)", LOCH_DLPACK_MAJOR, LOCH_DLPACK_MINOR) : NULL;
    if (version && PyDict_SetItemString(newer, "max_version", version) == 0 &&
        (Py_IsNone(copy) || PyDict_SetItemString(newer, "copy", copy) == 0)) {
        capsule = PyObject_Call(method, none, newer);
        *is_copied = capsule && PyObject_IsTrue(copy) == 1;
        if (!capsule && PyErr_ExceptionMatches(PyExc_TypeError)) {
            PyErr_Clear();
            capsule = PyObject_Call(method, none, keywords);
        }
    }
    Py_XDECREF(version);
    Py_XDECREF(newer);
    Py_XDECREF(number);
    Py_XDECREF(keywords);
    Py_XDECREF(none);
    Py_XDECREF(method);
    return capsule;
}

PyObject *lochpy_from_dlpack(PyObject *module, PyObject *arguments, PyObject *keywords)
{
    (void)module;
    static char *names[] = {"source", "stream", "copy", NULL};
    PyObject *source, *stream = Py_None, *copy = Py_None;
    if (!PyArg_ParseTupleAndKeywords(arguments, keywords, "O|$OO:from_dlpack", names, &source, &stream, &copy))
        return NULL;
    const int copies = PyObject_IsTrue(copy);
    if (copies < 0) return NULL;
    bool is_copied = false;
    if (!PyObject_HasAttrString(source, "__dlpack__")) return dlpack_import(source, copies);
    PyObject *capsule = dlpack_ask(source, stream, copy, &is_copied);
    PyObject *made = capsule ? dlpack_import(capsule, copies && !is_copied) : NULL;
    Py_XDECREF(capsule);
    return made;
}

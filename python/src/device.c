/* SPDX-License-Identifier: MIT */
/* Device: a place where memory lives. Never closed while the object exists: the handle needs no gate. */
#include "core.h"

#include <stdlib.h>

typedef struct lochpy_device {
    PyObject_HEAD loch_device *handle;
    unsigned generation;
} lochpy_device;

static lochpy_device *device_of(PyObject *self)
{
    return (lochpy_device *)(void *)self;
}

static int device_open(const char *name, loch_device **out)
{
    *out = NULL;
    return LOCHPY_TRY(loch_device_open(name, out));
}

/* Tells whether an argument is a type of elements where a device is expected: t.to("f16"). */
static bool device_is_dtype(PyObject *argument)
{
    loch_dtype dtype = LOCH_DTYPE_NONE;
    if (PyUnicode_Check(argument)) {
        const char *text = lochpy_text_of(argument);
        if (!text) PyErr_Clear(); /* is raised again when it is read */
        return text && loch_dtype_find(text) != LOCH_DTYPE_NONE;
    }
    if (PyObject_HasAttrString(argument, "index")) return false; /* a torch.device */
    if (lochpy_read_dtype(argument, &dtype) != 0) PyErr_Clear();
    return dtype != LOCH_DTYPE_NONE;
}

int lochpy_read_device(PyObject *argument, loch_device **out)
{
    *out = NULL;
    if (!argument || Py_IsNone(argument)) return 0;
    if (PyObject_TypeCheck(argument, lochpy.device)) {
        *out = loch_device_retain(device_of(argument)->handle);
        return 0;
    }
    PyObject *name = NULL;
    if (device_is_dtype(argument)) {
        PyErr_Format(PyExc_TypeError, "%R is a type of elements, not a device: write dtype=%R", argument, argument);
    } else if (PyUnicode_Check(argument)) {
        Py_INCREF(argument);
        name = argument;
    } else if (PyObject_HasAttrString(argument, "type") && PyObject_HasAttrString(argument, "index")) {
        name = PyObject_Str(argument); /* a torch.device */
    } else {
        PyErr_Format(PyExc_TypeError, "a device is a name such as 'cpu' or 'cuda:0', or a loch.Device, not %R",
                     argument);
    }
    if (!name) return -1;
    const char *text = lochpy_text_of(name);
    const int result = text ? device_open(text, out) : -1;
    Py_DECREF(name);
    return result;
}

static loch_status devices_visit(const char *name, void *user)
{
    return lochpy_list_add_text(user, name);
}

PyObject *lochpy_devices(PyObject *module, PyObject *unused)
{
    (void)module, (void)unused;
    lochpy_list names = {NULL, 0, 0};
    loch_status status;
    LOCHPY_WITHOUT_GIL(status = loch_device_walk(devices_visit, &names));
    return lochpy_list_end(&names, status, lochpy_list_make_text, free);
}

/* --- the type --- */

static PyObject *device_make(PyTypeObject *type, PyObject *arguments, PyObject *keywords)
{
    static char *names[] = {"name", NULL};
    PyObject *name;
    if (!PyArg_ParseTupleAndKeywords(arguments, keywords, "O:Device", names, &name)) return NULL;
    if (Py_IsNone(name)) {
        PyErr_SetString(PyExc_TypeError, "a device is a name such as 'cpu' or 'cuda:0', not None");
        return NULL;
    }
    loch_device *handle;
    if (lochpy_read_device(name, &handle) != 0) return NULL;
    lochpy_device *self = lochpy_new(type);
    if (!self) {
        loch_device_release(handle);
        return NULL;
    }
    self->handle = handle;
    self->generation = lochpy_generation;
    return (PyObject *)self;
}

static void device_dealloc(PyObject *self)
{
    loch_device *handle = device_of(self)->handle;
    if (handle && lochpy_is_own(device_of(self)->generation)) LOCHPY_WITHOUT_GIL(loch_device_release(handle));
    lochpy_free(self);
}

static PyObject *device_name(PyObject *self, void *unused)
{
    (void)unused;
    return lochpy_make_text(loch_device_get_name(device_of(self)->handle));
}

static PyObject *device_repr(PyObject *self)
{
    return PyUnicode_FromFormat("loch.Device('%s')", loch_device_get_name(device_of(self)->handle));
}

static PyObject *device_str(PyObject *self)
{
    return device_name(self, NULL);
}

/* One name is one device, so equal names are equal devices; a name equals its device too. */
static PyObject *device_compare(PyObject *self, PyObject *other, int operation)
{
    if (operation != Py_EQ && operation != Py_NE) Py_RETURN_NOTIMPLEMENTED;
    PyObject *name;
    if (PyUnicode_Check(other)) {
        Py_INCREF(other);
        name = other;
    } else if (PyObject_TypeCheck(other, lochpy.device)) {
        name = device_name(other, NULL);
    } else {
        Py_RETURN_NOTIMPLEMENTED;
    }
    PyObject *own = name ? device_name(self, NULL) : NULL;
    PyObject *result = own ? PyObject_RichCompare(own, name, operation) : NULL;
    Py_XDECREF(own);
    Py_XDECREF(name);
    return result;
}

static Py_hash_t device_hash(PyObject *self)
{
    PyObject *name = device_name(self, NULL);
    if (!name) return -1;
    const Py_hash_t hash = PyObject_Hash(name);
    Py_DECREF(name);
    return hash;
}

static const struct {
    uint32_t bit;
    const char *name;
} device_capability_names[] = {
    {LOCH_CAN_HOST_ACCESS, "host_access"},
    {LOCH_CAN_PINNED, "pinned"},
    {LOCH_CAN_REGISTER, "register"},
    {LOCH_CAN_MANAGED, "managed"},
    {LOCH_CAN_VIRTUAL, "virtual"},
    {LOCH_CAN_ALIAS, "alias"},
    {LOCH_CAN_REMAP, "remap"},
    {LOCH_CAN_ORDERED, "ordered"},
    {LOCH_CAN_ASYNC, "async"},
    {LOCH_CAN_TIMING, "timing"},
    {LOCH_CAN_CAPTURE, "capture"},
    {LOCH_CAN_PEER, "peer"},
    {LOCH_CAN_RDMA, "rdma"},
    {LOCH_CAN_SHARE_FD, "share_fd"},
    {LOCH_CAN_SHARE_FABRIC, "share_fabric"},
};

static PyObject *device_capabilities(uint32_t set)
{
    PyObject *names = PyList_New(0);
    for (size_t at = 0; names && at < sizeof device_capability_names / sizeof *device_capability_names; at++) {
        if (!(set & device_capability_names[at].bit)) continue;
        PyObject *name = PyUnicode_FromString(device_capability_names[at].name);
        if (!name || PyList_Append(names, name) != 0) Py_CLEAR(names);
        Py_XDECREF(name);
    }
    PyObject *result = names ? PyFrozenSet_New(names) : NULL;
    Py_XDECREF(names);
    return result;
}

static PyObject *device_properties(PyObject *self, void *unused)
{
    (void)unused;
    loch_device_properties found = {.size = sizeof found};
    if (LOCHPY_TRY(loch_device_get_properties(device_of(self)->handle, &found)) != 0) return NULL;
    PyObject *capabilities = device_capabilities(found.capabilities);
    if (!capabilities) return NULL;
    return Py_BuildValue("{s:s, s:s, s:N, s:i, s:i, s:n, s:n, s:n, s:n, s:(ii), s:i, s:n, s:n, s:s, s:s}", "driver",
                         found.driver, "model", found.model, "capabilities", capabilities, "index", found.index,
                         "numa_node", found.numa_node, "total_bytes", (Py_ssize_t)found.total_bytes, "granule_bytes",
                         (Py_ssize_t)found.granule_bytes, "alignment_bytes", (Py_ssize_t)found.alignment_bytes,
                         "mapping_limit", (Py_ssize_t)found.mapping_limit, "compute_capability", found.compute_major,
                         found.compute_minor, "multiprocessors", found.multiprocessors, "l2_bytes",
                         (Py_ssize_t)found.l2_bytes, "shared_bytes", (Py_ssize_t)found.shared_bytes, "bus_id",
                         found.bus_id, "driver_version", found.driver_version);
}

static PyObject *device_memory_info(PyObject *self, PyObject *unused)
{
    (void)unused;
    loch_memory_info info = {.size = sizeof info};
    if (LOCHPY_TRY(loch_device_calculate_memory(device_of(self)->handle, &info)) != 0) return NULL;
    return lochpy_call("loch._stats", "MemoryInfo", "(nn)", (Py_ssize_t)info.free_bytes, (Py_ssize_t)info.total_bytes);
}

static PyObject *device_sync(PyObject *self, PyObject *unused)
{
    (void)unused;
    if (LOCHPY_TRY(loch_device_sync(device_of(self)->handle)) != 0) return NULL;
    Py_RETURN_NONE;
}

static PyObject *device_default_pool(PyObject *self, void *unused)
{
    (void)unused;
    loch_allocator *pool = NULL;
    if (LOCHPY_TRY(loch_device_acquire_default(device_of(self)->handle, &pool)) != 0) return NULL;
    return lochpy_make_pool(pool);
}

static int device_set_default_pool(PyObject *self, PyObject *value, void *unused)
{
    (void)unused;
    loch_allocator *pool;
    if (!value) {
        PyErr_SetString(PyExc_AttributeError, "the default pool cannot be deleted: None restores the library's own");
        return -1;
    }
    if (lochpy_read_pool(value, &pool) != 0) return -1;
    const int result = LOCHPY_TRY(loch_device_set_allocator(device_of(self)->handle, pool));
    loch_allocator_release(pool);
    return result;
}

static PyObject *device_reduce(PyObject *self, PyObject *unused)
{
    (void)unused;
    return Py_BuildValue("(O(N))", Py_TYPE(self), device_name(self, NULL));
}

static PyMethodDef device_methods[] = {
    LOCHPY_NONE("memory_info", device_memory_info,
                "memory_info($self, /)\n--\n\nFree and total bytes now. Makes a driver call."),
    LOCHPY_NONE("sync", device_sync, "sync($self, /)\n--\n\nWaits until all work queued on the device has ended."),
    LOCHPY_NONE("__reduce__", device_reduce, "Pickles the name."),
    {NULL, NULL, 0, NULL},
};

static PyGetSetDef device_members[] = {
    {"name", device_name, NULL, "Name that the device was opened with.", NULL},
    {"properties", device_properties, NULL, "What the device is and can do, as a dictionary.", NULL},
    {"default_pool", device_default_pool, device_set_default_pool,
     "Pool of the device's own memory. Assigning None restores the library's own.", NULL},
    {NULL, NULL, NULL, NULL, NULL},
};

static PyType_Slot device_slots[] = {
    {Py_tp_doc, "Device(name)\n--\n\nA place where memory lives: 'cpu', 'cuda:0', 'sim:80GiB'."},
    {Py_tp_new, LOCHPY_SLOT(device_make)},
    {Py_tp_dealloc, LOCHPY_SLOT(device_dealloc)},
    {Py_tp_repr, LOCHPY_SLOT(device_repr)},
    {Py_tp_str, LOCHPY_SLOT(device_str)},
    {Py_tp_richcompare, LOCHPY_SLOT(device_compare)},
    {Py_tp_hash, LOCHPY_SLOT(device_hash)},
    {Py_tp_methods, device_methods},
    {Py_tp_getset, device_members},
    {0, NULL},
};

static PyType_Spec device_spec = {
    .name = "loch.Device",
    .basicsize = sizeof(lochpy_device),
    .flags = Py_TPFLAGS_DEFAULT,
    .slots = device_slots,
};

int lochpy_add_device_type(PyObject *module)
{
    lochpy.device = lochpy_add_type(module, &device_spec);
    return lochpy.device ? 0 : -1;
}

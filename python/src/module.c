/* SPDX-License-Identifier: MIT */
/* The module loch._core: its types and functions.
 *
 * The types are made once in a process. A second import of the module gets the first types, so objects of both can be
 * used together. Subinterpreters are refused: callbacks of DLPack find the interpreter by PyGILState. */
#include "core.h"
#include "doors.h"

#include <pthread.h>
#include <stdarg.h>

lochpy_types lochpy;
unsigned lochpy_generation;

static void module_forked(void)
{
    lochpy_generation++;
}

/* --- help for all files --- */

PyObject *lochpy_call(const char *module, const char *name, const char *format, ...)
{
    va_list values;
    va_start(values, format);
    PyObject *arguments = Py_VaBuildValue(format, values);
    va_end(values);
    if (!arguments) return NULL;
    PyObject *found = PyImport_ImportModule(module);
    PyObject *function = found ? PyObject_GetAttrString(found, name) : NULL;
    PyObject *result = function ? PyObject_Call(function, arguments, NULL) : NULL;
    Py_XDECREF(function);
    Py_XDECREF(found);
    Py_DECREF(arguments);
    return result;
}

void *lochpy_new(PyTypeObject *type)
{
    return PyType_GenericAlloc(type, 0);
}

void lochpy_free(PyObject *self)
{
    PyTypeObject *type = Py_TYPE(self);
    freefunc release = (freefunc)(uintptr_t)PyType_GetSlot(type, Py_tp_free);
    release(self);
    Py_DECREF(type);
}

PyTypeObject *lochpy_add_type(PyObject *module, PyType_Spec *spec)
{
    PyObject *type = PyType_FromModuleAndSpec(module, spec, NULL);
    if (!type) return NULL;
    if (PyModule_AddType(module, (PyTypeObject *)type) != 0) Py_CLEAR(type);
    return (PyTypeObject *)type;
}

/* --- the module --- */

static PyObject *module_version(PyObject *module, PyObject *unused)
{
    (void)module, (void)unused;
    return PyUnicode_FromString(loch_version());
}

static PyObject *module_set_dtypes(PyObject *module, PyObject *tuple)
{
    (void)module;
    if (lochpy_set_dtypes(tuple) != 0) return NULL;
    Py_RETURN_NONE;
}

static PyObject *module_dtype_name(PyObject *module, PyObject *argument)
{
    (void)module;
    loch_dtype dtype;
    if (lochpy_read_dtype(argument, &dtype) != 0) return NULL;
    return PyUnicode_FromString(loch_dtype_name(dtype));
}

static PyMethodDef module_methods[] = {
    LOCHPY_NONE("version", module_version, "version()\n--\n\nVersion of the library that is running."),
    LOCHPY_ONE("_set_dtypes", module_set_dtypes, "Sets the objects of the types of elements."),
    LOCHPY_ONE("dtype_name", module_dtype_name, "dtype_name(dtype, /)\n--\n\nLoch's name of a type of elements."),
    LOCHPY_NONE("devices", lochpy_devices, "devices()\n--\n\nNames of the devices of this machine."),
    LOCHPY_KEYWORDS("empty", lochpy_empty,
                    "empty(shape, dtype='f32', device=None, *, pool=None, stream=None, tag=None)\n--\n\nA tensor with "
                    "undefined contents. `tag` is that of the thread (loch.tag) unless one is named."),
    LOCHPY_KEYWORDS("zeros", lochpy_zeros,
                    "zeros(shape, dtype='f32', device=None, *, pool=None, stream=None, tag=None)\n--\n\nA tensor of "
                    "zeros."),
    LOCHPY_KEYWORDS("full", lochpy_full,
                    "full(shape, value, dtype=None, device=None, *, pool=None, stream=None, tag=None)\n--\n\nA tensor "
                    "with all elements equal. The number chooses the type unless one is named, as for loch.tensor."),
    LOCHPY_KEYWORDS(
        "tensor", lochpy_tensor_of_numbers,
        "tensor(values, dtype=None, device=None, *, pool=None, stream=None, tag=None)\n--\n\nA tensor of "
        "numbers in nested lists, or a copy of an array.\n\nUnless a type is named, arrays and numbers with a "
        "type keep it. For numbers of Python it is bool, i64 (u64 for large ones) or f32."),
    LOCHPY_KEYWORDS(
        "from_dlpack", lochpy_from_dlpack,
        "from_dlpack(source, *, stream=None, copy=None)\n--\n\nA tensor that shares the memory of another library's."),
    LOCHPY_KEYWORDS("from_buffer", lochpy_from_buffer,
                    "from_buffer(source, *, copy=False)\n--\n\nA tensor on the memory of an object with a buffer."),
    LOCHPY_KEYWORDS(
        "load", lochpy_load,
        "load(path, dtype=None, *, mapped=False, read_only=False, device=None, pool=None)\n--\n\nThe "
        "tensor of a .npy file, converted to `dtype` if one is named. mapped=True maps the file and converts "
        "nothing."),
    LOCHPY_KEYWORDS("_create_from", lochpy_create_from,
                    "_create_from(dtype, shape, contents, device=None)\n--\n\nA tensor with contents from bytes."),
    {NULL, NULL, 0, NULL},
};

static int module_add_types(PyObject *module)
{
    if (lochpy_add_device_type(module) != 0 || lochpy_add_stream_type(module) != 0 ||
        lochpy_add_event_type(module) != 0 || lochpy_add_pool_type(module) != 0 || lochpy_add_block_types(module) != 0)
        return -1;
    return lochpy_add_tensor_type(module);
}

/* Adds the types of the first import to a further module object. */
static int module_add_types_again(PyObject *module)
{
    PyTypeObject *const types[] = {lochpy.tensor, lochpy.device,  lochpy.stream, lochpy.event,
                                   lochpy.pool,   lochpy.session, lochpy.block};
    for (size_t at = 0; at < sizeof types / sizeof *types; at++)
        if (PyModule_AddType(module, types[at]) != 0) return -1;
    return 0;
}

static int module_execute(PyObject *module)
{
    if (PyInterpreterState_GetID(PyInterpreterState_Get()) != 0) {
        PyErr_SetString(PyExc_ImportError, "loch works in the main interpreter only, not in subinterpreters");
        return -1;
    }
    if (PyModule_AddFunctions(module, lochpy_process_methods) != 0 ||
        PyModule_AddFunctions(module, lochpy_plan_methods) != 0 || lochpy_add_doors(module) != 0)
        return -1;
    if (lochpy.tensor) return module_add_types_again(module);
    static bool is_watching_forks;
    if (!is_watching_forks && pthread_atfork(NULL, NULL, module_forked) != 0) {
        PyErr_NoMemory();
        return -1;
    }
    is_watching_forks = true;
    return module_add_types(module);
}

static PyModuleDef_Slot module_slots[] = {
    {Py_mod_exec, LOCHPY_SLOT(module_execute)},
#if defined(Py_GIL_DISABLED) && defined(Py_mod_gil)
    {Py_mod_gil, Py_MOD_GIL_NOT_USED},
#endif
    {0, NULL},
};

static struct PyModuleDef module_definition = {
    PyModuleDef_HEAD_INIT,
    .m_name = "loch._core",
    .m_doc = "Loch's objects in Python. Import the package loch, which has all of them.",
    .m_methods = module_methods,
    .m_slots = module_slots,
};

PyMODINIT_FUNC PyInit__core(void);

PyMODINIT_FUNC PyInit__core(void)
{
    return PyModuleDef_Init(&module_definition);
}

/* SPDX-License-Identifier: MIT */
/* Calls a PyTorch shim through its table of functions (adapters/torch/door.h).
 *
 * The shim of the PyTorch that runs is loaded once and stays until the process ends. */
#include "doors.h"

#include <door.h>

#include <dlfcn.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>

#define SENTENCE_MAX 8192

static const loch_torch_door *_Atomic torch_door; /* NULL before torch_load */

/* Raises what the shim said. PyTorch's own errors are RuntimeErrors, too. */
static PyObject *torch_raise(const char *sentence)
{
    return PyErr_Format(PyExc_RuntimeError, "%s", sentence);
}

/* Returns the table, or NULL with an exception if Loch does not serve PyTorch. */
static const loch_torch_door *torch_require(void)
{
    const loch_torch_door *door = torch_door;
    if (door && door->is_installed()) return door;
    PyErr_SetString(PyExc_RuntimeError, "loch.torch is not enabled: call loch.torch.enable() first");
    return NULL;
}

/* --- loading --- */

static PyObject *torch_refuse_library(const char *path)
{
    const char *reason = dlerror();
    return PyErr_Format(PyExc_ImportError, "%s cannot be loaded: %s", path, reason ? reason : "no reason given");
}

PyDoc_STRVAR(doc_load, "torch_load(path, /)\n--\n\nLoads a shim and returns the version of PyTorch that it is for.");

static PyObject *torch_load(PyObject *module, PyObject *argument)
{
    (void)module;
    const char *path = lochpy_text_of(argument);
    if (!path) return NULL;
    void *library = dlopen(path, RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
    if (!library) return torch_refuse_library(path);
    const loch_torch_door *(*get)(void);
    *(void **)&get = dlsym(library, "loch_torch_get_door");
    const loch_torch_door *door = get ? get() : NULL;
    if (!door || door->size < sizeof *door) {
        dlclose(library);
        return PyErr_Format(PyExc_ImportError, "%s is not a shim of this version of Loch", path);
    }
    torch_door = door;
    return PyUnicode_FromString(door->version);
}

PyDoc_STRVAR(doc_symbol,
             "torch_symbol(path, name, /)\n--\n\nReturns the address of a function of a library as an int.");

static PyObject *torch_symbol(PyObject *module, PyObject *args)
{
    const char *path, *name;
    (void)module;
    if (!PyArg_ParseTuple(args, "ss:torch_symbol", &path, &name)) return NULL;
    void *library = dlopen(path, RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
    if (!library) return torch_refuse_library(path);
    void *address = dlsym(library, name);
    if (!address) return PyErr_Format(PyExc_ImportError, "%s has no function %s", path, name);
    return PyLong_FromVoidPtr(address);
}

PyDoc_STRVAR(doc_install, "torch_install(options, /)\n--\n\nMakes the shim PyTorch's allocator.");

static PyObject *torch_install(PyObject *module, PyObject *argument)
{
    (void)module;
    const char *options = lochpy_text_of(argument);
    if (!options) return NULL;
    const loch_torch_door *door = torch_door;
    if (!door) return PyErr_Format(PyExc_RuntimeError, "no shim was loaded");
    char error[SENTENCE_MAX];
    if (door->install(options, error, sizeof error) != 0) return torch_raise(error);
    Py_RETURN_NONE;
}

PyDoc_STRVAR(doc_is_installed, "torch_is_installed()\n--\n\nTells whether PyTorch's allocator is the shim.");

static PyObject *torch_is_installed(PyObject *module, PyObject *unused)
{
    (void)module;
    (void)unused;
    const loch_torch_door *door = torch_door;
    return PyBool_FromLong(door && door->is_installed());
}

/* --- figures --- */

/* Prints with a function of the table that has the shape of all printing functions. */
typedef int torch_printer(char *text, size_t bytes, size_t *length, char *error, size_t error_bytes);

static PyObject *torch_print(torch_printer *print)
{
    char error[SENTENCE_MAX];
    size_t room = 4096, length = 0;
    for (;;) {
        char *text = malloc(room);
        int failed;
        if (!text) return PyErr_NoMemory();
        LOCHPY_WITHOUT_GIL(failed = print(text, room, &length, error, sizeof error));
        PyObject *result = NULL;
        if (failed)
            (void)torch_raise(error);
        else if (length < room)
            result = lochpy_make_text(text);
        free(text);
        if (failed || result || PyErr_Occurred()) return result;
        room = length + 4096; /* the figures may grow until the next attempt */
    }
}

PyDoc_STRVAR(doc_pools, "torch_pools()\n--\n\nReturns tags, devices and pools with their figures as JSON.");

static PyObject *torch_pools(PyObject *module, PyObject *unused)
{
    (void)module;
    (void)unused;
    const loch_torch_door *door = torch_require();
    return door ? torch_print(door->print_pools) : NULL;
}

PyDoc_STRVAR(doc_report, "torch_report()\n--\n\nReturns what the pools hold, for people.");

static PyObject *torch_report(PyObject *module, PyObject *unused)
{
    (void)module;
    (void)unused;
    const loch_torch_door *door = torch_require();
    return door ? torch_print(door->print_report) : NULL;
}

PyDoc_STRVAR(doc_stats,
             "torch_stats(device, /)\n--\n\nReturns the statistics of one device as JSON; -1 for all devices.");

static PyObject *torch_stats(PyObject *module, PyObject *argument)
{
    (void)module;
    const loch_torch_door *door = torch_require();
    const long number = door ? PyLong_AsLong(argument) : -1;
    if (!door || PyErr_Occurred()) return NULL;
    if (number < -1 || number > INT_MAX) return PyErr_Format(PyExc_ValueError, "there is no device %ld", number);
    char text[SENTENCE_MAX], error[SENTENCE_MAX];
    if (door->print_stats((int)number, text, sizeof text, NULL, error, sizeof error) != 0) return torch_raise(error);
    return lochpy_make_text(text);
}

/* --- regions and sleep --- */

PyDoc_STRVAR(doc_region_begin, "torch_region_begin(tag, one_handle=False, /)\n--\n\n"
                               "Lets this thread allocate memory of a tag; \"\" for memory outside of regions.");

static PyObject *torch_region_begin(PyObject *module, PyObject *arguments)
{
    (void)module;
    const loch_torch_door *door = torch_require();
    PyObject *name;
    int is_one = 0;
    if (!door || !PyArg_ParseTuple(arguments, "O|p:torch_region_begin", &name, &is_one)) return NULL;
    const char *tag = lochpy_text_of(name);
    if (!tag) return NULL;
    char error[SENTENCE_MAX];
    if (door->region_begin(tag, error, sizeof error) != 0) return torch_raise(error);
    if (is_one && door->region_set_one_handle(1, error, sizeof error) != 0) return torch_raise(error);
    Py_RETURN_NONE;
}

PyDoc_STRVAR(doc_region_end, "torch_region_end()\n--\n\nEnds the innermost region of this thread.");

static PyObject *torch_region_end(PyObject *module, PyObject *unused)
{
    (void)module;
    (void)unused;
    const loch_torch_door *door = torch_require();
    if (!door) return NULL;
    char error[SENTENCE_MAX];
    if (door->region_end(error, sizeof error) != 0) return torch_raise(error);
    Py_RETURN_NONE;
}

/* Reads one part of a sleep: (tag, contents, directory or None). The texts belong to the tuple. */
static int torch_read_part(PyObject *tuple, loch_torch_sleep_part *out)
{
    static const char *const words[] = {"pinned", "host", "file", "drop", NULL}; /* as in loch_sleep_contents */
    const char *contents;
    int place;
    if (!PyArg_ParseTuple(tuple, "ssz:sleep", &out->tag, &contents, &out->directory)) return -1;
    if (lochpy_read_word("contents", contents, words, &place) != 0) return -1;
    out->contents = (loch_sleep_contents)place;
    return 0;
}

static PyObject *torch_sleep_parts(const loch_torch_door *door, PyObject *tuple, loch_torch_sleep_part *parts)
{
    const Py_ssize_t count = PyTuple_Size(tuple);
    for (Py_ssize_t at = 0; at < count; at++)
        if (torch_read_part(PyTuple_GetItem(tuple, at), &parts[at]) != 0) return NULL;
    char error[SENTENCE_MAX];
    size_t released = 0;
    int failed;
    LOCHPY_WITHOUT_GIL(failed = door->sleep(parts, (size_t)count, &released, error, sizeof error));
    return failed ? torch_raise(error) : PyLong_FromSize_t(released);
}

PyDoc_STRVAR(doc_sleep, "torch_sleep(parts, /)\n--\n\n"
                        "Puts the memory of tags to sleep, all or nothing: tuples (tag, contents, directory).");

static PyObject *torch_sleep(PyObject *module, PyObject *argument)
{
    (void)module;
    const loch_torch_door *door = torch_require();
    PyObject *tuple = door ? PySequence_Tuple(argument) : NULL;
    if (!tuple) return NULL;
    loch_torch_sleep_part *parts = calloc((size_t)PyTuple_Size(tuple) + 1, sizeof *parts);
    PyObject *result = parts ? torch_sleep_parts(door, tuple, parts) : PyErr_NoMemory();
    free(parts);
    Py_DECREF(tuple);
    return result;
}

/* Wakes the tags of a tuple; NULL for all. */
static PyObject *torch_wake_tuple(const loch_torch_door *door, PyObject *tuple, int keeps_host)
{
    const Py_ssize_t count = tuple ? PyTuple_Size(tuple) : 0;
    const char **names = calloc((size_t)count + 1, sizeof *names);
    if (!names) return PyErr_NoMemory();
    PyObject *result = NULL;
    for (Py_ssize_t at = 0; at < count; at++)
        if (!(names[at] = lochpy_text_of(PyTuple_GetItem(tuple, at)))) goto end;
    char error[SENTENCE_MAX];
    size_t restored = 0;
    int failed;
    LOCHPY_WITHOUT_GIL(failed =
                           door->wake(tuple ? names : NULL, (size_t)count, keeps_host, &restored, error, sizeof error));
    result = failed ? torch_raise(error) : PyLong_FromSize_t(restored);
end:
    free(names);
    return result;
}

PyDoc_STRVAR(doc_wake,
             "torch_wake(tags, keep_host, /)\n--\n\nWakes the memory of tags, all or nothing; None for all tags.");

static PyObject *torch_wake(PyObject *module, PyObject *args)
{
    PyObject *tags, *tuple = NULL;
    int keeps_host;
    (void)module;
    const loch_torch_door *door = torch_require();
    if (!door || !PyArg_ParseTuple(args, "Op:torch_wake", &tags, &keeps_host)) return NULL;
    if (!Py_IsNone(tags) && !(tuple = PySequence_Tuple(tags))) return NULL;
    PyObject *result = torch_wake_tuple(door, tuple, keeps_host);
    Py_XDECREF(tuple);
    return result;
}

PyDoc_STRVAR(doc_find_tag, "torch_find_tag(address, /)\n--\n\n"
                           "Returns the tag of a block; None for memory that is not Loch's.");

static PyObject *torch_find_tag(PyObject *module, PyObject *argument)
{
    (void)module;
    const loch_torch_door *door = torch_require();
    const void *address = door ? PyLong_AsVoidPtr(argument) : NULL;
    if (!door || PyErr_Occurred()) return NULL;
    const char *tag = door->find_tag(address);
    if (tag) return lochpy_make_text(tag);
    Py_RETURN_NONE;
}

/* --- plans --- */

PyDoc_STRVAR(doc_plan_begin, "torch_plan_begin(device, steps, time_ns, is_fixed, /)\n--\n\n"
                             "Lets a planned pool serve a device (-1: the current one). Returns its number.");

static PyObject *torch_plan_begin(PyObject *module, PyObject *args)
{
    int number, is_fixed, served = -1, failed;
    Py_ssize_t steps;
    unsigned long long time_ns;
    (void)module;
    const loch_torch_door *door = torch_require();
    if (!door || !PyArg_ParseTuple(args, "inKp:torch_plan_begin", &number, &steps, &time_ns, &is_fixed)) return NULL;
    const loch_planned_options options = {.size = sizeof options,
                                          .record_steps = steps < 0 ? 1 : (size_t)steps, /* 1 is refused */
                                          .time_limit_ns = time_ns,
                                          .renewal = is_fixed ? LOCH_PLANNED_FIXED : LOCH_PLANNED_MENDED};
    char error[SENTENCE_MAX];
    LOCHPY_WITHOUT_GIL(failed = door->plan_begin(number, &options, &served, error, sizeof error));
    return failed ? torch_raise(error) : PyLong_FromLong(served);
}

/* Calls a function of the door with the number of a device. */
static PyObject *torch_plan_call(PyObject *argument, int (*call)(int, char *, size_t))
{
    const long number = PyLong_AsLong(argument);
    if (PyErr_Occurred()) return NULL;
    char error[SENTENCE_MAX];
    int failed;
    LOCHPY_WITHOUT_GIL(failed = call(number < 0 || number > INT_MAX ? -1 : (int)number, error, sizeof error));
    if (failed) return torch_raise(error);
    Py_RETURN_NONE;
}

PyDoc_STRVAR(doc_plan_step, "torch_plan_step(device, /)\n--\n\nMarks the start of a step.");

static PyObject *torch_plan_step(PyObject *module, PyObject *argument)
{
    (void)module;
    const loch_torch_door *door = torch_require();
    return door ? torch_plan_call(argument, door->plan_step) : NULL;
}

PyDoc_STRVAR(doc_plan_record, "torch_plan_record(device, /)\n--\n\nRecords the following steps anew.");

static PyObject *torch_plan_record(PyObject *module, PyObject *argument)
{
    (void)module;
    const loch_torch_door *door = torch_require();
    return door ? torch_plan_call(argument, door->plan_record) : NULL;
}

PyDoc_STRVAR(doc_plan_end, "torch_plan_end(device, /)\n--\n\nEnds the plan of a device.");

static PyObject *torch_plan_end(PyObject *module, PyObject *argument)
{
    (void)module;
    const loch_torch_door *door = torch_require();
    return door ? torch_plan_call(argument, door->plan_end) : NULL;
}

PyDoc_STRVAR(doc_plan_info, "torch_plan_info(device, /)\n--\n\nReturns the figures of the plan of a device: a dict.");

static PyObject *torch_plan_info(PyObject *module, PyObject *argument)
{
    (void)module;
    const loch_torch_door *door = torch_require();
    const long number = door ? PyLong_AsLong(argument) : -1;
    if (!door || PyErr_Occurred()) return NULL;
    loch_planned_info info = {.size = sizeof info};
    char error[SENTENCE_MAX];
    if (door->plan_info(number < 0 || number > INT_MAX ? -1 : (int)number, &info, error, sizeof error) != 0)
        return torch_raise(error);
#define COUNT(member) #member, (unsigned long long)info.member
    return Py_BuildValue("{sKsKsKsKsKsKsKsKsKsKsKss}", COUNT(period), COUNT(planned), COUNT(height), COUNT(lower_bound),
                         COUNT(served), COUNT(left), COUNT(deviations), COUNT(plans), COUNT(blocks), COUNT(waiting),
                         COUNT(recorded), "status", loch_status_name(info.status));
#undef COUNT
}

static PyMethodDef torch_methods[] = {
    LOCHPY_ONE("torch_load", torch_load, doc_load),
    LOCHPY_VARIABLE("torch_symbol", torch_symbol, doc_symbol),
    LOCHPY_ONE("torch_install", torch_install, doc_install),
    LOCHPY_NONE("torch_is_installed", torch_is_installed, doc_is_installed),
    LOCHPY_NONE("torch_pools", torch_pools, doc_pools),
    LOCHPY_NONE("torch_report", torch_report, doc_report),
    LOCHPY_ONE("torch_stats", torch_stats, doc_stats),
    LOCHPY_VARIABLE("torch_region_begin", torch_region_begin, doc_region_begin),
    LOCHPY_NONE("torch_region_end", torch_region_end, doc_region_end),
    LOCHPY_ONE("torch_sleep", torch_sleep, doc_sleep),
    LOCHPY_VARIABLE("torch_wake", torch_wake, doc_wake),
    LOCHPY_ONE("torch_find_tag", torch_find_tag, doc_find_tag),
    LOCHPY_VARIABLE("torch_plan_begin", torch_plan_begin, doc_plan_begin),
    LOCHPY_ONE("torch_plan_step", torch_plan_step, doc_plan_step),
    LOCHPY_ONE("torch_plan_record", torch_plan_record, doc_plan_record),
    LOCHPY_ONE("torch_plan_info", torch_plan_info, doc_plan_info),
    LOCHPY_ONE("torch_plan_end", torch_plan_end, doc_plan_end),
    {NULL, NULL, 0, NULL},
};

int lochpy_add_torch(PyObject *module)
{
    return PyModule_AddFunctions(module, torch_methods);
}

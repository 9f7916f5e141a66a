/* SPDX-License-Identifier: MIT */
/* Settings and records of the whole process: options, tags, recordings, snapshots. */
#include "core.h"

#include <stdlib.h>

/* --- options --- */

static PyObject *process_get_option(PyObject *module, PyObject *arguments)
{
    (void)module;
    const char *name;
    char value[LOCH_OPTION_VALUE_MAX];
    if (!PyArg_ParseTuple(arguments, "s:get_option", &name)) return NULL;
    if (lochpy_check(loch_option_get(name, value)) != 0) return NULL;
    return lochpy_make_text(value);
}

static PyObject *process_set_option(PyObject *module, PyObject *arguments)
{
    (void)module;
    const char *name, *text = NULL;
    PyObject *value;
    if (!PyArg_ParseTuple(arguments, "sO:set_option", &name, &value)) return NULL;
    PyObject *string = NULL;
    if (!Py_IsNone(value)) {
        string = PyObject_Str(value);
        text = string ? lochpy_text_of(string) : NULL;
        if (!text) {
            Py_XDECREF(string);
            return NULL;
        }
    }
    const int result = lochpy_check(loch_option_set(name, text));
    Py_XDECREF(string);
    if (result != 0) return NULL;
    Py_RETURN_NONE;
}

static loch_status process_visit_option(const loch_option *option, void *user)
{
    if (lochpy_list_add(user, (void *)(uintptr_t)option) == 0) return LOCH_OK;
    return loch_error_set(LOCH_E_HOST_MEMORY, NULL, 0, "no host memory for a list");
}

static PyObject *process_make_option(void *item)
{
    const loch_option *option = item;
    return Py_BuildValue("{s:s, s:s, s:s, s:s, s:s}", "name", option->name, "environment", option->environment, "type",
                         option->type, "default", option->fallback, "text", option->text);
}

static PyObject *process_options(PyObject *module, PyObject *unused)
{
    (void)module, (void)unused;
    lochpy_list rows = {NULL, 0, 0};
    const loch_status status = loch_option_walk(process_visit_option, &rows);
    return lochpy_list_end(&rows, status, process_make_option, NULL);
}

/* --- tags --- */

static PyObject *process_set_thread_tag(PyObject *module, PyObject *name)
{
    (void)module;
    const loch_tag old = lochpy_thread_tag;
    loch_tag new = 0;
    if (!Py_IsNone(name) && lochpy_read_tag(name, &new) != 0) return NULL;
    lochpy_thread_tag = new;
    if (!old) Py_RETURN_NONE;
    return lochpy_make_text(loch_tag_name(old));
}

static PyObject *process_thread_tag(PyObject *module, PyObject *unused)
{
    (void)module, (void)unused;
    if (!lochpy_thread_tag) Py_RETURN_NONE;
    return lochpy_make_text(loch_tag_name(lochpy_thread_tag));
}

static loch_status process_visit_tag(loch_tag tag, const char *name, void *user)
{
    (void)tag;
    return lochpy_list_add_text(user, name);
}

static PyObject *process_tags(PyObject *module, PyObject *unused)
{
    (void)module, (void)unused;
    lochpy_list names = {NULL, 0, 0};
    const loch_status status = loch_tag_walk(process_visit_tag, &names);
    return lochpy_list_end(&names, status, lochpy_list_make_text, free);
}

/* --- recordings and snapshots --- */

static PyObject *process_recorder_start(PyObject *module, PyObject *arguments, PyObject *keywords)
{
    (void)module;
    static char *names[] = {"path", "ring", "stack_depth", "pool", NULL};
    PyObject *path = Py_None, *ring = NULL, *pool = NULL, *encoded = NULL;
    unsigned depth = 0;
    if (!PyArg_ParseTupleAndKeywords(arguments, keywords, "|O$OIO:recorder_start", names, &path, &ring, &depth, &pool))
        return NULL;
    loch_recorder_options options = {.size = sizeof options, .stack_depth = depth};
    if (lochpy_read_bytes(ring, &options.ring_bytes) != 0) return NULL;
    if (!Py_IsNone(path)) {
        if (!PyUnicode_FSConverter(path, &encoded)) return NULL;
        options.path = PyBytes_AsString(encoded);
    }
    int result = lochpy_read_pool(pool, &options.allocator);
    if (result == 0) result = LOCHPY_TRY_FILE(loch_recorder_start(&options));
    loch_allocator_release(options.allocator);
    Py_XDECREF(encoded);
    if (result != 0) return NULL;
    Py_RETURN_NONE;
}

static PyObject *process_recorder_stop(PyObject *module, PyObject *unused)
{
    (void)module, (void)unused;
    if (LOCHPY_TRY(loch_recorder_stop()) != 0) return NULL;
    Py_RETURN_NONE;
}

static PyObject *process_save(PyObject *arguments, loch_status (*save)(const char *))
{
    PyObject *path;
    if (!PyArg_ParseTuple(arguments, "O&", PyUnicode_FSConverter, &path)) return NULL;
    const int result = LOCHPY_TRY_FILE(save(PyBytes_AsString(path)));
    Py_DECREF(path);
    if (result != 0) return NULL;
    Py_RETURN_NONE;
}

static PyObject *process_recorder_save(PyObject *module, PyObject *arguments)
{
    (void)module;
    return process_save(arguments, loch_recorder_save);
}

static PyObject *process_snapshot(PyObject *module, PyObject *arguments)
{
    (void)module;
    return process_save(arguments, loch_snapshot_save);
}

static PyObject *process_collect(PyObject *module, PyObject *arguments, PyObject *keywords)
{
    (void)module;
    static char *names[] = {"wait", NULL};
    int waits = 0;
    size_t waiting = 0;
    if (!PyArg_ParseTupleAndKeywords(arguments, keywords, "|p:collect", names, &waits)) return NULL;
    if (LOCHPY_TRY(loch_buffer_collect(waits ? LOCH_WAIT_END : LOCH_WAIT_DEFAULT, &waiting)) != 0) return NULL;
    return PyLong_FromSize_t(waiting);
}

/* --- sizes --- */

static PyObject *process_read_size(PyObject *argument, int (*read)(PyObject *, size_t *))
{
    size_t bytes;
    if (Py_IsNone(argument)) Py_RETURN_NONE;
    return read(argument, &bytes) == 0 ? PyLong_FromSize_t(bytes) : NULL;
}

static PyObject *process_read_bytes(PyObject *module, PyObject *argument)
{
    (void)module;
    return process_read_size(argument, lochpy_read_bytes);
}

static PyObject *process_read_limit(PyObject *module, PyObject *argument)
{
    (void)module;
    return process_read_size(argument, lochpy_read_limit);
}

PyMethodDef lochpy_process_methods[] = {
    LOCHPY_ONE("read_limit", process_read_limit,
               "read_limit(limit, /)\n--\n\nThe bytes of a limit, which is a size and not 0. None stays None."),
    LOCHPY_ONE("read_bytes", process_read_bytes,
               "read_bytes(size, /)\n--\n\nThe bytes of a size: a number, or text such as '1GiB'. None stays None."),
    LOCHPY_VARIABLE("get_option", process_get_option, "get_option(name, /)\n--\n\nValue of an option, as text."),
    LOCHPY_VARIABLE("set_option", process_set_option,
                    "set_option(name, value, /)\n--\n\nSets an option; None resets it."),
    LOCHPY_NONE("options", process_options, "options()\n--\n\nThe table of options, as a list of dictionaries."),
    LOCHPY_ONE("set_thread_tag", process_set_thread_tag,
               "set_thread_tag(name, /)\n--\n\nSets the tag of this thread. Returns the one before."),
    LOCHPY_NONE("thread_tag", process_thread_tag, "thread_tag()\n--\n\nThe tag of this thread, or None."),
    LOCHPY_NONE("tags", process_tags, "tags()\n--\n\nNames of all tags of the process."),
    LOCHPY_KEYWORDS("recorder_start", process_recorder_start,
                    "recorder_start(path=None, *, ring=None, stack_depth=0, pool=None)\n--\n\nStarts recording."),
    LOCHPY_NONE("recorder_stop", process_recorder_stop, "Stops recording."),
    LOCHPY_VARIABLE("recorder_save", process_recorder_save,
                    "recorder_save(path, /)\n--\n\nWrites the events of the ring to a file."),
    LOCHPY_VARIABLE("snapshot", process_snapshot, "snapshot(path, /)\n--\n\nWrites a snapshot of the process."),
    LOCHPY_KEYWORDS(
        "collect", process_collect,
        "collect(wait=False)\n--\n\nFrees memory whose work has ended. Returns how many buffers still wait."),
    {NULL, NULL, 0, NULL},
};

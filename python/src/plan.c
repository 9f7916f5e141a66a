/* SPDX-License-Identifier: MIT */
/* Plans of buffers whose lives are known, by libloch_plan. */
#include "core.h"

#include <loch/plan.h>
#include <stdlib.h>

/* Reads a buffer: a tuple of bytes, first and last time, and an alignment if there is a fourth number. */
static int plan_read_buffer(PyObject *row, loch_plan_buffer *out)
{
    uint64_t numbers[4] = {0};
    const Py_ssize_t count = PyTuple_Check(row) ? PyTuple_Size(row) : 0;
    if (count != 3 && count != 4) {
        PyErr_SetString(PyExc_TypeError, "a buffer is (bytes, first, last) or (bytes, first, last, alignment)");
        return -1;
    }
    for (Py_ssize_t i = 0; i < count; i++) {
        numbers[i] = PyLong_AsUnsignedLongLong(PyTuple_GetItem(row, i));
        if (PyErr_Occurred()) return -1;
    }
    *out = (loch_plan_buffer){.bytes = numbers[0], .first = numbers[1], .last = numbers[2], .alignment = numbers[3]};
    return 0;
}

static PyObject *plan_make_offsets(const loch_plan *plan, size_t count)
{
    const uint64_t *offsets = loch_plan_get_offsets(plan);
    PyObject *tuple = PyTuple_New((Py_ssize_t)count);
    for (size_t i = 0; tuple && i < count; i++) {
        PyObject *offset = PyLong_FromUnsignedLongLong(offsets[i]);
        if (!offset || PyTuple_SetItem(tuple, (Py_ssize_t)i, offset) != 0) Py_CLEAR(tuple);
    }
    return tuple;
}

static PyObject *plan_plan(PyObject *module, PyObject *arguments)
{
    (void)module;
    static const char *const methods[] = {"auto", "fast", "greedy", NULL};
    loch_plan_options options = {.size = sizeof options};
    loch_plan_info info = {.size = sizeof info};
    PyObject *rows, *capacity, *seconds, *result = NULL;
    Py_ssize_t threads;
    const char *method;
    int place;
    size_t bytes;
    if (!PyArg_ParseTuple(arguments, "O!OOns:plan", &PyTuple_Type, &rows, &capacity, &seconds, &threads, &method) ||
        lochpy_read_bytes(capacity, &bytes) != 0 || lochpy_read_seconds(seconds, &options.time_limit_ns) != 0 ||
        lochpy_read_word("method", method, methods, &place) != 0)
        return NULL;
    if (threads < 1) {
        PyErr_SetString(PyExc_ValueError, "threads is at least 1");
        return NULL;
    }
    options.capacity = bytes;
    options.threads = (size_t)threads;
    options.method = (loch_plan_method)place;
    const size_t count = (size_t)PyTuple_Size(rows);
    loch_plan_buffer *buffers = calloc(count + 1, sizeof *buffers);
    if (!buffers) return PyErr_NoMemory();
    int status = 0;
    for (size_t i = 0; status == 0 && i < count; i++)
        status = plan_read_buffer(PyTuple_GetItem(rows, (Py_ssize_t)i), &buffers[i]);
    const loch_plan_problem problem = {.size = sizeof problem, .buffers = buffers, .count = count};
    loch_plan *plan = NULL;
    if (status == 0) status = LOCHPY_TRY(loch_plan_create(&problem, &options, &plan));
    if (status == 0) status = lochpy_check(loch_plan_get_info(plan, &info));
    if (status == 0) {
        PyObject *offsets = plan_make_offsets(plan, count);
        if (offsets)
            result = Py_BuildValue("(NKKO)", offsets, (unsigned long long)info.height,
                                   (unsigned long long)info.lower_bound, info.is_best ? Py_True : Py_False);
    }
    loch_plan_destroy(plan);
    free(buffers);
    return result;
}

PyMethodDef lochpy_plan_methods[] = {
    LOCHPY_VARIABLE("plan", plan_plan,
                    "plan(buffers, capacity, seconds, threads, method, /)\n--\n\nOffsets, height, bound, is_best."),
    {NULL, NULL, 0, NULL},
};

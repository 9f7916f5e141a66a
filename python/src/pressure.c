/* SPDX-License-Identifier: MIT */
/* Pressure functions in Python. They belong to a Pool object: closing it, or dropping its last reference, removes them.
 *
 * A record is what the library has as the `user` of a function. It is counted: one reference is the library's, and each
 * running call has one, so a function may remove itself, or drop the last reference of its pool. The list of a Pool is
 * changed with pressure_lock held, by one write of a pointer: the garbage collector reads it without the lock. */
#include "core.h"

#include <pthread.h>

struct lochpy_pressure {
    lochpy_pressure *next;
    PyObject *function;     /* owned */
    _Atomic size_t holders; /* the library, and running calls */
    unsigned generation;
};

static pthread_mutex_t pressure_lock = PTHREAD_MUTEX_INITIALIZER;

static void pressure_drop(lochpy_pressure *record)
{
    if (atomic_fetch_sub_explicit(&record->holders, 1, memory_order_acq_rel) != 1) return;
    Py_DECREF(record->function);
    PyMem_Free(record);
}

/* --- calls --- */

/* Calls a function. Returns what it says that it freed; -1 with an exception set if it raised, or returned no number
 * of bytes. */
static int pressure_ask(PyObject *function, size_t bytes, size_t *freed)
{
    PyObject *result = PyObject_CallFunction(function, "n", (Py_ssize_t)bytes);
    PyObject *number = result ? PyNumber_Index(result) : NULL;
    Py_XDECREF(result);
    *freed = number ? PyLong_AsSize_t(number) : (size_t)-1;
    Py_XDECREF(number);
    return PyErr_Occurred() ? -1 : 0;
}

/* Called by the library, from any thread, with the GIL or without it. The error record stays that of the request. */
static size_t pressure_call(loch_allocator *allocator, size_t bytes, void *user)
{
    lochpy_pressure *record = user;
    (void)allocator;
    if (!Py_IsInitialized() || !lochpy_is_own(record->generation)) return 0;
    const loch_error error = *loch_error_get();
    PyGILState_STATE state = PyGILState_Ensure();
    PyObject *type, *value, *trace;
    PyErr_Fetch(&type, &value, &trace);
    atomic_fetch_add_explicit(&record->holders, 1, memory_order_relaxed);
    size_t freed;
    if (pressure_ask(record->function, bytes, &freed) != 0) {
        PyErr_WriteUnraisable(record->function);
        freed = 0;
    }
    pressure_drop(record);
    PyErr_Restore(type, value, trace);
    PyGILState_Release(state);
    (void)loch_error_set(error.status, error.driver, error.driver_code, "%s", error.sentence);
    return freed;
}

/* --- the list of a Pool --- */

/* Finds an equal function in a list: two bound methods of one object are equal. Returns 1 with its record, 0 if there
 * is none, -1 with an exception set. The comparison may run code of Python, so functions are compared outside the
 * lock. */
static int pressure_find(lochpy_pressure *const *list, PyObject *function, lochpy_pressure **out)
{
    for (size_t at = 0;; at++) {
        pthread_mutex_lock(&pressure_lock);
        lochpy_pressure *record = *list;
        for (size_t i = 0; record && i < at; i++)
            record = record->next;
        PyObject *other = record ? record->function : NULL;
        Py_XINCREF(other);
        pthread_mutex_unlock(&pressure_lock);
        *out = record;
        if (!other) return 0;
        const int is_equal = PyObject_RichCompareBool(other, function, Py_EQ);
        Py_DECREF(other);
        if (is_equal != 0) return is_equal;
    }
}

/* Takes a record out of a list, or the first one for NULL, and returns it. NULL: another thread did, or the list is
 * empty. */
static lochpy_pressure *pressure_unlink(lochpy_pressure **list, const lochpy_pressure *record)
{
    pthread_mutex_lock(&pressure_lock);
    while (record && *list && *list != record)
        list = &(*list)->next;
    lochpy_pressure *found = *list;
    if (found) *list = found->next;
    pthread_mutex_unlock(&pressure_lock);
    return found;
}

/* Removes a record that is in no list any more from the library, and drops it. Waits for running calls of other
 * threads. */
static int pressure_end(loch_allocator *pool, lochpy_pressure *record)
{
    const int result = LOCHPY_TRY(loch_allocator_remove_pressure(pool, pressure_call, record));
    if (result == 0) pressure_drop(record);
    return result;
}

int lochpy_add_pressure(loch_allocator *pool, lochpy_pressure **list, PyObject *function)
{
    lochpy_pressure *found, *record;
    if (!PyCallable_Check(function)) {
        PyErr_Format(PyExc_TypeError, "a pressure function is called with a number of bytes; %R cannot be called",
                     function);
        return -1;
    }
    const int is_there = pressure_find(list, function, &found);
    if (is_there > 0) (void)lochpy_raise_text(LOCH_E_EXISTS, "the pressure function was added to this pool already");
    if (is_there != 0) return -1;
    if (!(record = PyMem_Malloc(sizeof *record))) {
        PyErr_NoMemory();
        return -1;
    }
    Py_INCREF(function);
    *record = (lochpy_pressure){.function = function, .holders = 1, .generation = lochpy_generation};
    if (LOCHPY_TRY(loch_allocator_add_pressure(pool, pressure_call, record)) != 0) {
        pressure_drop(record);
        return -1;
    }
    pthread_mutex_lock(&pressure_lock);
    record->next = *list;
    *list = record;
    pthread_mutex_unlock(&pressure_lock);
    return 0;
}

int lochpy_remove_pressure(loch_allocator *pool, lochpy_pressure **list, PyObject *function)
{
    lochpy_pressure *found;
    const int is_there = pressure_find(list, function, &found);
    if (is_there < 0) return -1;
    if (is_there && pressure_unlink(list, found)) return pressure_end(pool, found);
    (void)lochpy_raise_text(LOCH_E_NOT_FOUND, "the pressure function was not added to this pool");
    return -1;
}

void lochpy_end_pressure(loch_allocator *pool, lochpy_pressure **list)
{
    for (lochpy_pressure *record; (record = pressure_unlink(list, NULL));)
        if (pressure_end(pool, record) != 0) PyErr_WriteUnraisable(record->function);
}

int lochpy_visit_pressure(lochpy_pressure *list, visitproc visit, void *arg)
{
    for (; list; list = list->next)
        Py_VISIT(list->function);
    return 0;
}

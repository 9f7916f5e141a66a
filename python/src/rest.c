/* SPDX-License-Identifier: MIT */
/* Sleeping and compacting a pool: the calls with many options. */
#include "core.h"

PyObject *lochpy_pool_sleep(loch_allocator *pool, PyObject *arguments, PyObject *keywords)
{
    static char *names[] = {"contents", "tag", "path", "pool", NULL};
    static const char *const kinds[] = {"pinned", "host", "file", "drop", NULL}; /* as in loch_sleep_contents */
    const char *contents = NULL;
    PyObject *tag = NULL, *path = NULL, *keeper = NULL, *encoded = NULL;
    if (!PyArg_ParseTupleAndKeywords(arguments, keywords, "|s$OOO:sleep", names, &contents, &tag, &path, &keeper))
        return NULL;
    int word;
    loch_sleep_options options = {.size = sizeof options};
    if (lochpy_read_word("contents", contents, kinds, &word) != 0) return NULL;
    options.contents = (loch_sleep_contents)word;
    if (tag && !Py_IsNone(tag) && lochpy_find_tag(tag, &options.tag) != 0) return NULL;
    if (path && !Py_IsNone(path)) {
        if (!PyUnicode_FSConverter(path, &encoded)) return NULL;
        PyBytes_ConcatAndDel(&encoded, PyBytes_FromString("/")); /* a folder, as for loch.torch */
        if (!encoded) return NULL;
        options.path = PyBytes_AsString(encoded);
    }
    size_t released = 0;
    int result = lochpy_read_pool(keeper, &options.allocator);
    if (result == 0) result = lochpy_before_sleep(pool, options.tag);
    if (result == 0) result = LOCHPY_TRY_FILE(loch_pool_sleep(pool, &options, &released));
    loch_allocator_release(options.allocator);
    Py_XDECREF(encoded);
    return result == 0 ? PyLong_FromSize_t(released) : NULL;
}

PyObject *lochpy_pool_compact(loch_allocator *pool, PyObject *arguments, PyObject *keywords)
{
    static char *names[] = {"contiguous", "budget", "stream", NULL};
    PyObject *contiguous = NULL, *budget = NULL, *stream = NULL;
    if (!PyArg_ParseTupleAndKeywords(arguments, keywords, "|O$OO:compact", names, &contiguous, &budget, &stream))
        return NULL;
    loch_compact_options options = {.size = sizeof options};
    loch_compact_report report = {.size = sizeof report};
    lochpy_stream_use use;
    if (lochpy_read_bytes(contiguous, &options.contiguous_bytes) != 0 ||
        lochpy_read_bytes(budget, &options.budget_bytes) != 0 ||
        lochpy_read_stream(stream, loch_allocator_get_device(pool), &use) != 0)
        return NULL;
    options.stream = use.stream;
    const int result = LOCHPY_TRY(loch_pool_compact(pool, &options, &report));
    lochpy_stream_done(&use);
    if (result != 0) return NULL;
    return Py_BuildValue("{s:n, s:n, s:n}", "moves", (Py_ssize_t)report.moves, "moved_bytes",
                         (Py_ssize_t)report.moved_bytes, "joined_bytes", (Py_ssize_t)report.joined_bytes);
}

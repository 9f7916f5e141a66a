/* SPDX-License-Identifier: MIT */
/* Figures of pools as objects of Python: statistics, the state of a pool, live blocks. */
#include "core.h"

#include <stdlib.h>

PyObject *lochpy_make_stats(const loch_stats *stats)
{
    PyObject *figures = PyDict_New();
    if (!figures) return NULL;
#define FIGURES_ROW(name, sum, text) {#name, stats->name},
    const struct {
        const char *name;
        uint64_t value;
    } rows[] = {LOCH_STATS_LIST(FIGURES_ROW)};
#undef FIGURES_ROW
    for (size_t at = 0; at < sizeof rows / sizeof *rows; at++) {
        PyObject *value = PyLong_FromUnsignedLongLong(rows[at].value);
        const int result = value ? PyDict_SetItemString(figures, rows[at].name, value) : -1;
        Py_XDECREF(value);
        if (result == 0) continue;
        Py_DECREF(figures);
        return NULL;
    }
    return lochpy_call("loch._stats", "Stats", "(N)", figures);
}

PyObject *lochpy_make_info(const loch_pool_info *info)
{
    PyObject *figures = Py_BuildValue(
        "{s:n, s:n, s:n, s:n, s:n, s:n, s:n, s:n, s:n, s:n, s:n, s:n, s:K, s:K, s:K, s:K, s:K, s:K, s:K, s:n, s:n}",
        "limit_bytes", (Py_ssize_t)info->limit_bytes, "idle_bytes", (Py_ssize_t)info->idle_bytes, "reserved_bytes",
        (Py_ssize_t)info->reserved_bytes, "peak_reserved_bytes", (Py_ssize_t)info->peak_reserved_bytes, "used_bytes",
        (Py_ssize_t)info->used_bytes, "free_bytes", (Py_ssize_t)info->free_bytes, "waiting_bytes",
        (Py_ssize_t)info->waiting_bytes, "thread_bytes", (Py_ssize_t)info->thread_bytes, "captured_bytes",
        (Py_ssize_t)info->captured_bytes, "largest_free_bytes", (Py_ssize_t)info->largest_free_bytes, "handles",
        (Py_ssize_t)info->handles, "streams", (Py_ssize_t)info->streams, "handles_created",
        (unsigned long long)info->handles_created, "handles_moved", (unsigned long long)info->handles_moved,
        "handles_released", (unsigned long long)info->handles_released, "events_recorded",
        (unsigned long long)info->events_recorded, "waits_on_device", (unsigned long long)info->waits_on_device,
        "waits_on_host", (unsigned long long)info->waits_on_host, "handles_revived",
        (unsigned long long)info->handles_revived, "asleep_bytes", (Py_ssize_t)info->asleep_bytes, "excess_bytes",
        (Py_ssize_t)info->excess_bytes);
    return figures ? lochpy_call("loch._stats", "PoolInfo", "(N)", figures) : NULL;
}

static int figures_add_block(const loch_block *block, PyObject *list)
{
    PyObject *row = Py_BuildValue(
        "{s:K, s:n, s:n, s:K, s:s, s:K, s:K}", "address", (unsigned long long)(uintptr_t)block->address,
        "requested_bytes", (Py_ssize_t)block->requested_bytes, "allocated_bytes", (Py_ssize_t)block->allocated_bytes,
        "id", (unsigned long long)block->id, "tag", loch_tag_name(block->tag), "stream_id",
        (unsigned long long)block->stream_id, "time_ns", (unsigned long long)block->time_ns);
    const bool is_added = row && PyList_Append(list, row) == 0;
    Py_XDECREF(row);
    return is_added ? 0 : -1;
}

/* Copies of the blocks that a walk visits. */
typedef struct figures_blocks {
    loch_block *rows;
    size_t count, room;
} figures_blocks;

static loch_status figures_copy_block(const loch_block *block, void *user)
{
    figures_blocks *all = user;
    if (all->count == all->room) {
        const size_t room = all->room ? 2 * all->room : 64;
        loch_block *rows = realloc(all->rows, room * sizeof *rows);
        if (!rows) return loch_error_set(LOCH_E_HOST_MEMORY, NULL, 0, "no host memory for a list of blocks");
        all->rows = rows;
        all->room = room;
    }
    all->rows[all->count++] = *block;
    return LOCH_OK;
}

PyObject *lochpy_list_blocks(loch_allocator *pool)
{
    figures_blocks all = {NULL, 0, 0};
    const int result = LOCHPY_TRY(loch_allocator_walk(pool, figures_copy_block, &all));
    PyObject *list = result == 0 ? PyList_New(0) : NULL;
    for (size_t at = 0; list && at < all.count; at++)
        if (figures_add_block(&all.rows[at], list) != 0) Py_CLEAR(list);
    free(all.rows);
    return list;
}

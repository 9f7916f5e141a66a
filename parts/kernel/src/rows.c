/* SPDX-License-Identifier: MIT */
/* Rows of tensors by index. The driver's copy_strided does it on the device. For a driver that cannot, the indices are
 * read, and each row is a copy. */
#include "stream.h"
#include "kit/cancel.h"
#include "kit/fail.h"
#include <loch/copy.h>
#include <loch/driver.h>
#include <loch/rows.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

/* The tensors of a call, in the order of the public functions. */
enum { ROWS_TO, ROWS_FROM, ROWS_INDICES, ROWS_TENSORS };

typedef struct rows_ask {
    loch_tensor *tensors[ROWS_TENSORS];
    loch_strided work;
    size_t row_bytes;
    loch_device *device; /* NULL: host memory without a device */
    loch_stream *stream; /* the caller's, or the default stream of the device; NULL without a device */
} rows_ask;

static loch_status rows_refuse(const char *what)
{
    return LOCH_FAIL(INVALID, "rows by index: %s", what);
}

/* --- on the host --- */

static int64_t rows_read_index(const loch_strided *work, const void *indices, size_t i)
{
    const char *at = (const char *)indices + (ptrdiff_t)i * work->index_stride;
    int32_t narrow;
    int64_t wide;
    memcpy(&narrow, at, sizeof narrow);
    if (work->index_type == LOCH_I32) return narrow;
    memcpy(&wide, at, sizeof wide);
    return wide;
}

static bool rows_is_in(const loch_strided *work, int64_t index)
{
    return index >= 0 && (uint64_t)index < work->index_limit;
}

/* Computes both sides of row i. Returns false if its index is out of range; a gathered row then has no source. */
static bool rows_find(const loch_strided *work, size_t i, int64_t index, char **to, const char **from)
{
    const bool is_gather = work->indexing == LOCH_INDEXING_GATHER, is_in = rows_is_in(work, index);
    const ptrdiff_t chosen = is_in ? (ptrdiff_t)index : 0;
    *to = (char *)work->to + (is_gather ? (ptrdiff_t)i : chosen) * work->to_strides[0];
    *from = (const char *)work->from + (is_gather ? chosen : (ptrdiff_t)i) * work->from_strides[0];
    return is_in;
}

/* Does all rows at once: loch_strided.run. */
static void rows_run(const loch_strided *work)
{
    size_t row_bytes = loch_dtype_bytes(work->to_type);
    for (size_t i = 1; i < work->axes; i++)
        row_bytes *= work->sizes[i];
    for (size_t i = 0; i < work->sizes[0]; i++) {
        char *to;
        const char *from;
        if (rows_find(work, i, rows_read_index(work, work->indices, i), &to, &from))
            memcpy(to, from, row_bytes);
        else if (work->indexing == LOCH_INDEXING_GATHER)
            memset(to, 0, row_bytes);
    }
}

/* --- row by row --- */

static loch_status rows_copy_each(const rows_ask *ask, const void *indices)
{
    const loch_strided *work = &ask->work;
    for (size_t i = 0; i < work->sizes[0]; i++) {
        char *to;
        const char *from;
        if (rows_find(work, i, rows_read_index(work, indices, i), &to, &from))
            LOCH_RETURN(loch_copy_on(to, from, ask->row_bytes, ask->stream));
        else if (work->indexing == LOCH_INDEXING_GATHER)
            LOCH_RETURN(loch_fill_on(to, ask->row_bytes, "", 1, ask->stream));
    }
    return LOCH_OK;
}

/* Reads the indices, waits for them, and queues a copy of each row. */
static loch_status rows_copy_all(const rows_ask *ask)
{
    const loch_strided *work = &ask->work;
    const size_t bytes = (work->sizes[0] - 1) * (size_t)work->index_stride + loch_dtype_bytes(work->index_type);
    void *indices = malloc(bytes);
    if (!indices) return LOCH_FAIL(HOST_MEMORY, "no host memory for %zu indices", work->sizes[0]);
    const loch_copy_options options = {.size = sizeof options, .stream = ask->stream, .wait = LOCH_WAIT_END};
    loch_status status = loch_copy_with(indices, work->indices, bytes, &options);
    if (status == LOCH_OK) status = rows_copy_each(ask, indices);
    free(indices);
    return status;
}

/* --- checks --- */

static loch_status rows_check_tensors(const rows_ask *ask)
{
    const loch_tensor *to = ask->tensors[ROWS_TO], *from = ask->tensors[ROWS_FROM],
                      *indices = ask->tensors[ROWS_INDICES];
    const size_t dimensions = loch_tensor_get_dimensions(to);
    const loch_dtype type = loch_tensor_get_dtype(indices);
    if (loch_tensor_get_dtype(to) != loch_tensor_get_dtype(from))
        return rows_refuse("target and source differ in type");
    if (!dimensions || loch_tensor_get_dimensions(from) != dimensions)
        return rows_refuse("target and source need one number of dimensions, at least one");
    for (size_t i = 1; i < dimensions; i++)
        if (loch_tensor_get_shape(to)[i] != loch_tensor_get_shape(from)[i])
            return rows_refuse("the rows of target and source differ in shape");
    if (loch_tensor_get_dimensions(indices) != 1 || (type != LOCH_I32 && type != LOCH_I64))
        return rows_refuse("indices have one dimension, and type i32 or i64");
    if (loch_tensor_get_access(to) == LOCH_READ_ONLY) return rows_refuse("the target is read-only");
    for (size_t i = 0; i < ROWS_TENSORS; i++)
        if (loch_tensor_get_device(ask->tensors[i]) != loch_tensor_get_device(to) ||
            !loch_tensor_is_on_host(ask->tensors[i]) != !loch_tensor_is_on_host(to))
            return rows_refuse("target, source and indices are not on one device");
    return LOCH_OK;
}

/* Reads the layout of a side into strides in bytes. Rows have to be contiguous, and those of the target apart from each
 * other. Strides that no element follows may have any value: those of empty tensors, and of axes of size 1. */
static loch_status rows_read_side(const loch_tensor *tensor, bool is_target, ptrdiff_t *strides, size_t *row_bytes)
{
    const size_t dimensions = loch_tensor_get_dimensions(tensor);
    const int64_t *shape = loch_tensor_get_shape(tensor), *given = loch_tensor_get_strides(tensor);
    const size_t element = loch_dtype_bytes(loch_tensor_get_dtype(tensor));
    size_t next = 1;
    for (size_t i = dimensions; i-- > 1;) {
        if (shape[i] != 1 && given[i] != (int64_t)next && loch_tensor_get_elements(tensor))
            return rows_refuse("a row is not contiguous");
        strides[i] = (ptrdiff_t)(next * element);
        next *= (size_t)shape[i];
    }
    *row_bytes = next * element;
    strides[0] = shape[0] > 1 ? (ptrdiff_t)given[0] * (ptrdiff_t)element : (ptrdiff_t)*row_bytes;
    if (strides[0] < 0) return rows_refuse("rows do not run backwards");
    if (is_target && (size_t)strides[0] < *row_bytes) return rows_refuse("rows of the target share memory");
    return LOCH_OK;
}

static loch_status rows_read(rows_ask *ask, loch_indexing indexing)
{
    const loch_tensor *to = ask->tensors[ROWS_TO], *from = ask->tensors[ROWS_FROM],
                      *indices = ask->tensors[ROWS_INDICES];
    loch_strided *work = &ask->work;
    const loch_tensor *in_order = indexing == LOCH_INDEXING_GATHER ? to : from;
    const loch_tensor *chosen = indexing == LOCH_INDEXING_GATHER ? from : to;
    LOCH_RETURN(rows_read_side(to, true, work->to_strides, &ask->row_bytes));
    LOCH_RETURN(rows_read_side(from, false, work->from_strides, &ask->row_bytes));
    if (loch_tensor_get_size(in_order, 0) != loch_tensor_get_size(indices, 0))
        return LOCH_FAIL(INVALID, "rows by index: %lld indices for %lld rows",
                         (long long)loch_tensor_get_size(indices, 0), (long long)loch_tensor_get_size(in_order, 0));
    work->size = sizeof *work;
    work->to_type = work->from_type = loch_tensor_get_dtype(to);
    work->overflow = LOCH_OVERFLOW_SATURATE;
    work->axes = loch_tensor_get_dimensions(to);
    for (size_t i = 0; i < work->axes; i++)
        work->sizes[i] = (size_t)loch_tensor_get_shape(in_order)[i];
    work->run = rows_run;
    work->indexing = indexing;
    work->index_type = loch_tensor_get_dtype(indices);
    work->index_stride = (ptrdiff_t)loch_dtype_bytes(work->index_type);
    if (work->sizes[0] > 1) work->index_stride *= (ptrdiff_t)loch_tensor_get_strides(indices)[0];
    work->index_limit = (size_t)loch_tensor_get_size(chosen, 0);
    return work->index_stride < 0 ? rows_refuse("indices do not run backwards") : LOCH_OK;
}

/* Returns the end of the bytes of a tensor that has elements, none of whose strides are negative. */
static uintptr_t rows_end(const loch_tensor *tensor, const void *address)
{
    uintptr_t end = (uintptr_t)address;
    const size_t element = loch_dtype_bytes(loch_tensor_get_dtype(tensor));
    for (size_t i = 0; i < loch_tensor_get_dimensions(tensor); i++)
        end += (size_t)(loch_tensor_get_shape(tensor)[i] - 1) * (size_t)loch_tensor_get_strides(tensor)[i] * element;
    return end + element;
}

/* Tells whether the rows of both sides lie side by side, as columns of one matrix do. */
static bool rows_are_columns(const rows_ask *ask)
{
    const size_t pitch = (size_t)ask->work.to_strides[0];
    if (!pitch || (size_t)ask->work.from_strides[0] != pitch) return false;
    const uintptr_t to = (uintptr_t)ask->work.to, from = (uintptr_t)ask->work.from;
    const size_t distance = from >= to ? (from - to) % pitch : (pitch - (to - from) % pitch) % pitch;
    return distance >= ask->row_bytes && distance + ask->row_bytes <= pitch;
}

static loch_status rows_check_apart(const rows_ask *ask)
{
    const loch_strided *work = &ask->work;
    const uintptr_t start = (uintptr_t)work->to, end = rows_end(ask->tensors[ROWS_TO], work->to);
    if (start < rows_end(ask->tensors[ROWS_FROM], work->from) && (uintptr_t)work->from < end && !rows_are_columns(ask))
        return rows_refuse("target and source share memory");
    if (start < rows_end(ask->tensors[ROWS_INDICES], work->indices) && (uintptr_t)work->indices < end)
        return rows_refuse("target and indices share memory");
    return LOCH_OK;
}

/* --- the whole --- */

/* Tells whether the handle of a stream is what its driver gave. Drivers with other handles copy row by row. */
static bool rows_has_handles(const loch_driver *driver)
{
    const loch_driver *cpu = loch_driver_find("cpu");
    return cpu && driver->stream_native == cpu->stream_native;
}

/* Queues the work of pinned tensors, or does it on the host. */
static loch_status rows_queue(rows_ask *ask)
{
    void *to, *from, *indices;
    LOCH_RETURN(loch_tensor_get_address(ask->tensors[ROWS_TO], &to));
    LOCH_RETURN(loch_tensor_get_address(ask->tensors[ROWS_FROM], &from));
    LOCH_RETURN(loch_tensor_get_address(ask->tensors[ROWS_INDICES], &indices));
    ask->work.to = to;
    ask->work.from = from;
    ask->work.indices = indices;
    LOCH_RETURN(rows_check_apart(ask));
    if (loch_tensor_is_on_host(ask->tensors[ROWS_TO])) {
        if (ask->stream) LOCH_RETURN(loch_stream_sync(ask->stream));
        rows_run(&ask->work);
        return LOCH_OK;
    }
    void *self;
    const loch_driver *driver = loch_device_get_driver(ask->device, &self);
    loch_status status = LOCH_E_UNSUPPORTED;
    if (rows_has_handles(driver)) status = driver->copy_strided(self, &ask->work, loch_stream_get_native(ask->stream));
    return status == LOCH_E_UNSUPPORTED ? rows_copy_all(ask) : status;
}

/* Pins the tensors, queues the work, and unpins them, which records the use. */
static loch_status rows_do_pinned(rows_ask *ask)
{
    LOCHI_NOT_CANCELLED;
    loch_status status = LOCH_OK;
    size_t pinned = 0;
    for (; pinned < ROWS_TENSORS && status == LOCH_OK; pinned += status == LOCH_OK) {
        void *unused;
        status = loch_buffer_pin(loch_tensor_get_buffer(ask->tensors[pinned]), ask->stream, &unused);
    }
    if (status == LOCH_OK) {
        status = rows_queue(ask);
        loch_buffer_touch(loch_tensor_get_buffer(ask->tensors[ROWS_TO]));
    }
    loch_error error = {.status = status};
    if (status != LOCH_OK) error = *loch_error_get();
    while (pinned-- > 0) {
        const loch_status ended = loch_buffer_unpin(loch_tensor_get_buffer(ask->tensors[pinned]), ask->stream);
        if (ended != LOCH_OK && error.status == LOCH_OK) error = *loch_error_get();
    }
    if (error.status == LOCH_OK) return LOCH_OK;
    return loch_error_set(error.status, error.driver, error.driver_code, "%s", error.sentence);
}

static loch_status rows_do(loch_indexing indexing, loch_tensor *to, loch_tensor *from, loch_tensor *indices,
                           loch_stream *stream)
{
    rows_ask ask = {.tensors = {to, from, indices}, .stream = stream};
    if (!to || !from || !indices) return rows_refuse("a tensor is NULL");
    LOCH_RETURN(rows_check_tensors(&ask));
    LOCH_RETURN(rows_read(&ask, indexing));
    ask.device = loch_tensor_get_device(to);
    if (stream && ask.device && loch_stream_get_device(stream) != ask.device)
        return rows_refuse("the stream is of another device");
    if (stream) LOCH_RETURN(lochi_kernel_check_stream(stream));
    if (!stream && ask.device) ask.stream = loch_stream_get_default(ask.device);
    if (!loch_tensor_get_elements(to) || !loch_tensor_get_elements(indices)) return LOCH_OK;
    if (!loch_tensor_get_elements(from)) /* all indices are out of range */
        return indexing == LOCH_INDEXING_GATHER ? loch_tensor_fill(to, loch_scalar_of(0), stream) : LOCH_OK;
    LOCH_RETURN(rows_do_pinned(&ask));
    return !stream && ask.stream ? loch_stream_sync(ask.stream) : LOCH_OK;
}

loch_status loch_rows_gather(loch_tensor *to, loch_tensor *from, loch_tensor *indices, loch_stream *stream)
{
    return rows_do(LOCH_INDEXING_GATHER, to, from, indices, stream);
}

loch_status loch_rows_scatter(loch_tensor *to, loch_tensor *from, loch_tensor *indices, loch_stream *stream)
{
    return rows_do(LOCH_INDEXING_SCATTER, to, from, indices, stream);
}

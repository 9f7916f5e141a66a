/* SPDX-License-Identifier: MIT */
/* Copies of rows with gaps between them. They are planned like a plain copy (copy.c) and queued in one driver call if
 * the driver has one, otherwise row by row. Rows that are adjacent on both sides are merged first, so that the driver
 * gets the longest possible rows; a single row is a plain copy.
 *
 * If the host copies, source and target may overlap. With equal pitches, copying from the right end is enough, as
 * memmove does. With different pitches the rows go through a temporary block. */
#include "device/pitched.h"
#include "base/checked.h"
#include "base/fail.h"
#include "base/heap.h"
#include "base/rows.h"
#include "device/calls.h"
#include "device/copy.h"
#include "device/driver.h"
#include "device/stream.h"
#include <string.h>

/* --- shapes --- */

/* Computes the bytes from the first byte to the end of the last row of one side. */
static loch_status pitched_extent(const loch_pitched *shape, size_t row_pitch, size_t plane_pitch, const char *what,
                                  size_t *out)
{
    size_t plane = shape->row_bytes, all;
    if (shape->rows > 1) {
        if (row_pitch < plane)
            return LOCH_FAIL(INVALID, "rows of %zu bytes overlap at a pitch of %zu bytes (the %s)", plane, row_pitch,
                             what);
        if (!lochi_mul(shape->rows - 1, row_pitch, &plane) || !lochi_add(plane, shape->row_bytes, &plane))
            return LOCH_FAIL(OVERFLOW, "%zu rows at a pitch of %zu bytes (the %s) do not fit the address space",
                             shape->rows, row_pitch, what);
    }
    all = plane;
    if (shape->planes > 1) {
        if (plane_pitch < plane)
            return LOCH_FAIL(INVALID, "planes of %zu bytes overlap at a pitch of %zu bytes (the %s)", plane,
                             plane_pitch, what);
        if (!lochi_mul(shape->planes - 1, plane_pitch, &all) || !lochi_add(all, plane, &all))
            return LOCH_FAIL(OVERFLOW, "%zu planes at a pitch of %zu bytes (the %s) do not fit the address space",
                             shape->planes, plane_pitch, what);
    }
    *out = all;
    return LOCH_OK;
}

/* Replaces rows by planes if each plane has one row. */
static void pitched_lower(loch_pitched *shape, size_t row_bytes)
{
    *shape = (loch_pitched){.row_bytes = row_bytes,
                            .rows = shape->planes,
                            .planes = 1,
                            .to_row_pitch = shape->to_plane_pitch,
                            .from_row_pitch = shape->from_plane_pitch};
}

/* Makes rows as long and planes as few as the pitches allow. The products cannot overflow: they are parts of an
 * extent. */
static loch_pitched pitched_merge(loch_pitched shape)
{
    const size_t plane = shape.row_bytes * shape.rows;
    if (shape.rows == 1 || (shape.to_row_pitch == shape.row_bytes && shape.from_row_pitch == shape.row_bytes))
        pitched_lower(&shape, plane);
    if (shape.planes > 1 && shape.to_plane_pitch / shape.rows == shape.to_row_pitch &&
        shape.to_plane_pitch % shape.rows == 0 && shape.from_plane_pitch / shape.rows == shape.from_row_pitch &&
        shape.from_plane_pitch % shape.rows == 0) {
        shape.rows *= shape.planes;
        shape.planes = 1;
    }
    if (shape.planes == 1 && shape.to_row_pitch == shape.row_bytes && shape.from_row_pitch == shape.row_bytes)
        pitched_lower(&shape, shape.row_bytes * shape.rows);
    return shape;
}

static size_t pitched_to_offset(const loch_pitched *shape, size_t row, size_t plane)
{
    return plane * shape->to_plane_pitch + row * shape->to_row_pitch;
}

static size_t pitched_from_offset(const loch_pitched *shape, size_t row, size_t plane)
{
    return plane * shape->from_plane_pitch + row * shape->from_row_pitch;
}

/* --- on the host --- */

void lochi_pitched_host(void *to, const void *from, const loch_pitched *shape)
{
    const size_t plane = (shape->rows - 1) * shape->to_row_pitch + shape->row_bytes;
    const size_t from_plane = (shape->rows - 1) * shape->from_row_pitch + shape->row_bytes;
    const size_t last = shape->planes - 1;
    const uintptr_t to_start = (uintptr_t)to, from_start = (uintptr_t)from;
    const uintptr_t to_end = to_start + last * shape->to_plane_pitch + plane;
    const uintptr_t from_end = from_start + last * shape->from_plane_pitch + from_plane;
    if (to_end <= from_start || from_end <= to_start) {
        const size_t total = shape->row_bytes * shape->rows * shape->planes;
        for (size_t p = 0; p < shape->planes; p++)
            lochi_rows_copy((char *)to + p * shape->to_plane_pitch, (ptrdiff_t)shape->to_row_pitch,
                            (const char *)from + p * shape->from_plane_pitch, (ptrdiff_t)shape->from_row_pitch,
                            shape->row_bytes, shape->rows, total);
        return;
    }
    const bool is_backwards = to_start > from_start;
    for (size_t p = 0; p < shape->planes; p++)
        for (size_t r = 0; r < shape->rows; r++) {
            const size_t plane_at = is_backwards ? last - p : p, row_at = is_backwards ? shape->rows - 1 - r : r;
            memmove((char *)to + pitched_to_offset(shape, row_at, plane_at),
                    (const char *)from + pitched_from_offset(shape, row_at, plane_at), shape->row_bytes);
        }
}

/* Return the shapes of the two halves of a copy through packed rows. */
static loch_pitched pitched_packed_target(const loch_pitched *shape)
{
    loch_pitched packed = *shape;
    packed.to_row_pitch = shape->row_bytes;
    packed.to_plane_pitch = shape->row_bytes * shape->rows;
    return packed;
}

static loch_pitched pitched_packed_source(const loch_pitched *shape)
{
    loch_pitched packed = *shape;
    packed.from_row_pitch = shape->row_bytes;
    packed.from_plane_pitch = shape->row_bytes * shape->rows;
    return packed;
}

typedef struct pitched_on_host {
    char *to;
    const char *from;
    loch_pitched shape;
    char *between; /* temporary block; NULL for a direct copy */
} pitched_on_host;

static void pitched_do_on_host(const pitched_on_host *work)
{
    if (!work->between) {
        lochi_pitched_host(work->to, work->from, &work->shape);
        return;
    }
    const loch_pitched in = pitched_packed_target(&work->shape), out = pitched_packed_source(&work->shape);
    lochi_pitched_host(work->between, work->from, &in);
    lochi_pitched_host(work->to, work->between, &out);
}

static void pitched_run_on_host(void *user)
{
    pitched_on_host *work = user;
    pitched_do_on_host(work);
    lochi_free(work->between);
    lochi_free(work);
}

/* Returns whether a copy on the host needs a temporary block. */
static bool pitched_needs_between(const lochi_copy_job *job, const loch_pitched *shape, size_t to_bytes,
                                  size_t from_bytes)
{
    if (job->to + to_bytes <= job->from || job->from + from_bytes <= job->to) return false;
    return shape->to_row_pitch != shape->from_row_pitch ||
           (shape->planes > 1 && shape->to_plane_pitch != shape->from_plane_pitch);
}

static loch_status pitched_queue_on_host(const lochi_copy_job *job, const pitched_on_host *work)
{
    /* As in copy.c: a graph cannot run host work. */
    LOCH_TRY_RETURN(lochi_stream_refuse_captured(job->given, LOCHI_COPY_ON_HOST));
    pitched_on_host *queued = lochi_alloc(sizeof *queued);
    if (!queued) return LOCH_FAIL(HOST_MEMORY, "no host memory to queue a copy");
    *queued = *work;
    const loch_status status = loch_stream_call(job->given, pitched_run_on_host, queued);
    if (status != LOCH_OK) lochi_free(queued);
    return status;
}

static loch_status pitched_call(loch_device *device, loch_direction direction, char *to, const char *from,
                                const loch_pitched *shape, void *peer, const loch_stream *stream);

static loch_status pitched_now_on_host(const lochi_copy_job *job, const pitched_on_host *work)
{
    LOCH_TRY_RETURN(lochi_copy_wait_for_owner(&job->to_place));
    LOCH_TRY_RETURN(lochi_copy_wait_for_owner(&job->from_place));
    loch_device *device = lochi_copy_host_runner(job);
    if (device && !work->between)
        return pitched_call(device, LOCH_HOST_TO_HOST, job->to, job->from, &work->shape, NULL, &device->default_stream);
    pitched_do_on_host(work);
    return LOCH_OK;
}

static loch_status pitched_host_to_host(const lochi_copy_job *job, const loch_pitched *shape, bool needs_between)
{
    pitched_on_host work = {job->to, job->from, *shape, NULL};
    if (needs_between) {
        work.between = lochi_alloc(shape->row_bytes * shape->rows * shape->planes);
        if (!work.between) return LOCH_FAIL(HOST_MEMORY, "no host memory to copy rows that overlap");
    }
    loch_status status;
    if (job->given && !lochi_device_is_at_once(job->given->device)) {
        status = pitched_queue_on_host(job, &work);
        if (status == LOCH_OK) return lochi_copy_settle(job->given, job->wait);
    } else {
        status = pitched_now_on_host(job, &work);
    }
    lochi_free(work.between);
    return status;
}

/* --- with devices --- */

static loch_status pitched_call(loch_device *device, loch_direction direction, char *to, const char *from,
                                const loch_pitched *shape, void *peer, const loch_stream *stream)
{
    loch_status status;
    if (shape->rows > 1 && lochi_device_copies_rows(device)) {
        LOCHI_CALL(status, device, copy_pitched, (device->self, direction, to, from, shape, peer, stream->native));
        return status;
    }
    for (size_t p = 0; p < shape->planes; p++)
        for (size_t r = 0; r < shape->rows; r++) {
            LOCHI_CALL(status, device, copy,
                       (device->self, direction, to + pitched_to_offset(shape, r, p),
                        from + pitched_from_offset(shape, r, p), shape->row_bytes, peer, stream->native));
            if (status != LOCH_OK) return status;
        }
    return LOCH_OK;
}

/* Copies rows between peers, with the stream order of a plain copy between peers (copy.c). */
static loch_status pitched_between_peers(const lochi_copy_job *job, const loch_pitched *shape)
{
    loch_device *device = job->to_place.device;
    loch_stream *stream = job->stream->device == device ? job->stream : &device->default_stream;
    if (stream != job->stream) LOCH_TRY_RETURN(lochi_copy_order(job->stream, stream));
    LOCH_TRY_RETURN(
        pitched_call(device, LOCH_PEER_TO_PEER, job->to, job->from, shape, job->from_place.device->self, stream));
    return stream != job->stream ? lochi_copy_order(stream, job->stream) : LOCH_OK;
}

/* Host memory between two devices, and the streams on both sides. */
typedef struct pitched_bounce {
    char *memory;
    size_t bytes;
    loch_stream *to_stream, *from_stream;
} pitched_bounce;

/* Copies one piece of one plane that fits into the bounce block. `shape` has one plane. */
static loch_status pitched_bounce_piece(const pitched_bounce *bounce, char *to, const char *from,
                                        const loch_pitched *shape)
{
    const loch_pitched in = pitched_packed_target(shape), out = pitched_packed_source(shape);
    LOCH_TRY_RETURN(pitched_call(bounce->from_stream->device, LOCH_DEVICE_TO_HOST, bounce->memory, from, &in, NULL,
                                 bounce->from_stream));
    LOCH_TRY_RETURN(loch_stream_sync(bounce->from_stream));
    LOCH_TRY_RETURN(pitched_call(bounce->to_stream->device, LOCH_HOST_TO_DEVICE, to, bounce->memory, &out, NULL,
                                 bounce->to_stream));
    return loch_stream_sync(bounce->to_stream);
}

static size_t pitched_least(size_t a, size_t b)
{
    return a < b ? a : b;
}

/* Copies one plane, by as many rows as fit, or by parts of a row. */
static loch_status pitched_bounce_plane(const pitched_bounce *bounce, char *to, const char *from,
                                        const loch_pitched *shape)
{
    const size_t width = pitched_least(shape->row_bytes, bounce->bytes), height = bounce->bytes / width;
    for (size_t row = 0; row < shape->rows; row += height)
        for (size_t column = 0; column < shape->row_bytes; column += width) {
            loch_pitched piece = *shape;
            piece.planes = 1;
            piece.rows = pitched_least(height, shape->rows - row);
            piece.row_bytes = pitched_least(width, shape->row_bytes - column);
            LOCH_TRY_RETURN(pitched_bounce_piece(bounce, to + row * shape->to_row_pitch + column,
                                                 from + row * shape->from_row_pitch + column, &piece));
        }
    return LOCH_OK;
}

/* Copies between devices of two drivers: through host memory, waiting for each piece. */
static loch_status pitched_through_host(const lochi_copy_job *job, const loch_pitched *shape)
{
    loch_device *to_device = job->to_place.device, *from_device = job->from_place.device;
    pitched_bounce bounce = {.bytes = pitched_least(shape->row_bytes * shape->rows, LOCHI_COPY_BOUNCE_BYTES),
                             .to_stream = job->stream->device == to_device ? job->stream : &to_device->default_stream,
                             .from_stream =
                                 job->stream->device == from_device ? job->stream : &from_device->default_stream};
    LOCH_TRY_RETURN(loch_stream_sync(job->stream));
    bounce.memory = lochi_alloc(bounce.bytes);
    if (!bounce.memory)
        return LOCH_FAIL(HOST_MEMORY, "no host memory to copy from %s to %s", from_device->name, to_device->name);
    loch_status status = LOCH_OK;
    for (size_t p = 0; status == LOCH_OK && p < shape->planes; p++)
        status = pitched_bounce_plane(&bounce, job->to + p * shape->to_plane_pitch,
                                      job->from + p * shape->from_plane_pitch, shape);
    lochi_free(bounce.memory);
    return status;
}

static loch_status pitched_on_device(lochi_copy_job *job, const loch_pitched *shape)
{
    LOCH_TRY_RETURN(lochi_copy_route(job));
    loch_status status;
    if (job->direction != LOCH_PEER_TO_PEER)
        status = pitched_call(job->stream->device, job->direction, job->to, job->from, shape, NULL, job->stream);
    else if (lochi_copy_is_of_peers(job))
        status = pitched_between_peers(job, shape);
    else
        status = pitched_through_host(job, shape);
    return status != LOCH_OK ? status : lochi_copy_settle(job->stream, job->wait);
}

loch_status loch_copy_pitched(void *to, const void *from, const loch_pitched *shape, const loch_copy_options *options)
{
    if (!shape) return LOCH_FAIL(INVALID, "the shape of the rows is NULL");
    lochi_copy_job job;
    LOCH_TRY_RETURN(lochi_copy_begin(options, to, from, &job));
    if (!shape->row_bytes || !shape->rows || !shape->planes) return LOCH_OK;
    size_t to_bytes, from_bytes;
    LOCH_TRY_RETURN(pitched_extent(shape, shape->to_row_pitch, shape->to_plane_pitch, "target", &to_bytes));
    LOCH_TRY_RETURN(pitched_extent(shape, shape->from_row_pitch, shape->from_plane_pitch, "source", &from_bytes));
    LOCH_TRY_RETURN(lochi_copy_place(&job, to_bytes, from_bytes));
    const loch_pitched merged = pitched_merge(*shape);
    if (merged.rows == 1) {
        job.bytes = merged.row_bytes;
        return lochi_copy_run(&job);
    }
    if (job.direction == LOCH_HOST_TO_HOST)
        return pitched_host_to_host(&job, &merged, pitched_needs_between(&job, &merged, to_bytes, from_bytes));
    return pitched_on_device(&job, &merged);
}

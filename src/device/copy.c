/* SPDX-License-Identifier: MIT */
/* Copies between any two places. Both ranges are located and checked, the direction follows from them, and one driver
 * queues the work.
 *
 * Drivers do not define a device copy whose source and target overlap. Such a copy is cut into pieces as long as the
 * distance between source and target, in the order that reads every byte before it is overwritten. If the distance
 * is so small that there would be too many pieces, the copy goes through a scratch block that is allocated and freed
 * in stream order. */
#include "device/copy.h"
#include "base/checked.h"
#include "base/fail.h"
#include "base/heap.h"
#include "kit/sized.h"
#include "device/calls.h"
#include "device/raw.h"
#include "device/stream.h"
#include <string.h>

#define COPY_SCRATCH_BYTES ((size_t)32 << 20) /* large enough for two copies at full rate */
#define COPY_PIECES_MAX 64                    /* more direct pieces cost more than the scratch block */

loch_status lochi_copy_locate_own(const void *address, size_t bytes, const char *what, lochi_place *out)
{
    if (!address) return LOCH_FAIL(INVALID, "the %s is NULL", what);
    if (!lochi_range_fits(address, bytes))
        return LOCH_FAIL(OVERFLOW, "%zu bytes at %p (the %s) reach beyond the end of the address space", bytes, address,
                         what);
    const loch_status status = lochi_ranges_locate(address, bytes, out);
    if (status == LOCH_OK) return LOCH_OK;
    return status == LOCH_E_NOT_FOUND ? LOCH_FAIL(OUT_OF_RANGE, "nothing is mapped at %p (the %s)", address, what)
                                      : status;
}

/* Asks the tenant of a place, if there is one, whether the bytes are in one block. */
static loch_status copy_ask_tenant(const lochi_place *place, const void *address, size_t bytes, const char *what)
{
    const lochi_tenant *tenant = place->tenant;
    return tenant ? tenant->check(tenant, (uintptr_t)address, bytes, what) : LOCH_OK;
}

loch_status lochi_copy_locate(const void *address, size_t bytes, const char *what, lochi_place *out)
{
    LOCH_TRY_RETURN(lochi_copy_locate_own(address, bytes, what, out));
    return copy_ask_tenant(out, address, bytes, what);
}

loch_status lochi_copy_settle(loch_stream *stream, loch_wait wait)
{
    return wait == LOCH_WAIT_END ? loch_stream_sync(stream) : LOCH_OK;
}

loch_status lochi_copy_wait_for_owner(const lochi_place *place)
{
    loch_device *device = place->device;
    return device && !lochi_device_is_at_once(device) ? loch_stream_sync(&device->default_stream) : LOCH_OK;
}

loch_device *lochi_copy_host_runner(const lochi_copy_job *job)
{
    if (loch_device_can(job->to_place.device, LOCH_CAN_HOST_ACCESS)) return job->to_place.device;
    return loch_device_can(job->from_place.device, LOCH_CAN_HOST_ACCESS) ? job->from_place.device : NULL;
}

static loch_status copy_call(loch_device *device, loch_direction direction, void *to, const void *from, size_t bytes,
                             void *peer, const loch_stream *stream)
{
    loch_status status;
    LOCHI_CALL(status, device, copy, (device->self, direction, to, from, bytes, peer, stream->native));
    return status;
}

/* --- host to host --- */

typedef struct copy_on_host {
    void *to;
    const void *from;
    size_t bytes;
} copy_on_host;

static void copy_run_on_host(void *user)
{
    copy_on_host *work = user;
    memmove(work->to, work->from, work->bytes);
    lochi_free(work);
}

/* Queues a host copy behind the work of a stream of an asynchronous device. The job is freed when it has run, so
 * that it can run once only: it is refused in a graph. */
static loch_status copy_queue_on_host(const lochi_copy_job *job, loch_stream *stream)
{
    LOCH_TRY_RETURN(lochi_stream_refuse_captured(stream, LOCHI_COPY_ON_HOST));
    copy_on_host *work = lochi_alloc(sizeof *work);
    if (!work) return LOCH_FAIL(HOST_MEMORY, "no host memory to queue a copy");
    *work = (copy_on_host){job->to, job->from, job->bytes};
    const loch_status status = loch_stream_call(stream, copy_run_on_host, work);
    if (status != LOCH_OK) lochi_free(work);
    return status;
}

static loch_status copy_host_to_host(const lochi_copy_job *job)
{
    loch_stream *given = job->given;
    if (given && !lochi_device_is_at_once(given->device)) {
        LOCH_TRY_RETURN(copy_queue_on_host(job, given));
        return lochi_copy_settle(given, job->wait);
    }
    LOCH_TRY_RETURN(lochi_copy_wait_for_owner(&job->to_place));
    LOCH_TRY_RETURN(lochi_copy_wait_for_owner(&job->from_place));
    loch_device *device = lochi_copy_host_runner(job);
    if (device)
        return copy_call(device, LOCH_HOST_TO_HOST, job->to, job->from, job->bytes, NULL, &device->default_stream);
    memmove(job->to, job->from, job->bytes);
    return LOCH_OK;
}

/* --- inside one device --- */

/* Copies the rest of [0, bytes) after *done, piece by piece, beginning at the end that must be read first. */
static loch_status copy_in_pieces(const lochi_copy_job *job, size_t piece_bytes, void *scratch, size_t *done)
{
    loch_device *device = job->to_place.device;
    const bool is_backwards = job->to > job->from;
    while (*done < job->bytes) {
        const size_t left = job->bytes - *done, piece = left < piece_bytes ? left : piece_bytes;
        const size_t at = is_backwards ? left - piece : *done;
        if (scratch) {
            LOCH_TRY_RETURN(
                copy_call(device, LOCH_DEVICE_TO_DEVICE, scratch, job->from + at, piece, NULL, job->stream));
            LOCH_TRY_RETURN(copy_call(device, LOCH_DEVICE_TO_DEVICE, job->to + at, scratch, piece, NULL, job->stream));
        } else {
            LOCH_TRY_RETURN(
                copy_call(device, LOCH_DEVICE_TO_DEVICE, job->to + at, job->from + at, piece, NULL, job->stream));
        }
        *done += piece;
    }
    return LOCH_OK;
}

static loch_status copy_overlapping(const lochi_copy_job *job, size_t gap, size_t *done)
{
    if (!gap) return LOCH_OK;
    if (job->bytes / gap <= COPY_PIECES_MAX) return copy_in_pieces(job, gap, NULL, done);
    size_t scratch_bytes = job->bytes < COPY_SCRATCH_BYTES ? job->bytes : COPY_SCRATCH_BYTES;
    void *scratch;
    loch_status status = lochi_ordered_alloc(job->stream, scratch_bytes, &scratch);
    /* A smaller scratch block also works, with more pieces. */
    while (status == LOCH_E_DEVICE_MEMORY && scratch_bytes / 2 > gap) {
        scratch_bytes /= 2;
        status = lochi_ordered_alloc(job->stream, scratch_bytes, &scratch);
    }
    if (status == LOCH_E_DEVICE_MEMORY) return copy_in_pieces(job, gap, NULL, done); /* slow but correct */
    if (status != LOCH_OK) return status;
    status = copy_in_pieces(job, scratch_bytes, scratch, done);
    const loch_status free_status = lochi_ordered_free(job->stream, scratch, scratch_bytes);
    return status != LOCH_OK ? status : free_status;
}

static loch_status copy_inside_device(const lochi_copy_job *job)
{
    const uintptr_t to = (uintptr_t)job->to, from = (uintptr_t)job->from;
    const size_t gap = to > from ? to - from : from - to;
    size_t done = 0;
    if (gap < job->bytes) return copy_overlapping(job, gap, &done);
    return copy_call(job->to_place.device, LOCH_DEVICE_TO_DEVICE, job->to, job->from, job->bytes, NULL, job->stream);
}

/* --- between devices --- */

loch_status lochi_copy_order(loch_stream *earlier, loch_stream *later)
{
    loch_event *event;
    LOCH_TRY_RETURN(loch_event_create(earlier->device, LOCH_EVENT_PLAIN, &event));
    loch_status status = loch_event_record(event, earlier);
    if (status == LOCH_OK) status = loch_stream_wait(later, event);
    loch_event_destroy(event);
    return status;
}

loch_status lochi_copy_order_remembered(loch_stream *earlier, loch_stream *later)
{
    if (earlier == later) return LOCH_OK;
    uint32_t mark;
    if (!lochi_stream_enter(earlier, &mark))
        return LOCH_FAIL(INVALID, "stream %llu was destroyed", (unsigned long long)earlier->id);
    const loch_status status = lochi_copy_order(earlier, later);
    lochi_stream_leave(mark);
    return status;
}

/* Copies between two devices of one driver: the target's driver does it, on a stream of the target. A stream of the
 * source is ordered around the copy. */
static loch_status copy_between_peers(const lochi_copy_job *job)
{
    loch_device *device = job->to_place.device;
    loch_stream *stream = job->stream->device == device ? job->stream : &device->default_stream;
    if (stream != job->stream) LOCH_TRY_RETURN(lochi_copy_order(job->stream, stream));
    LOCH_TRY_RETURN(
        copy_call(device, LOCH_PEER_TO_PEER, job->to, job->from, job->bytes, job->from_place.device->self, stream));
    return stream != job->stream ? lochi_copy_order(stream, job->stream) : LOCH_OK;
}

/* Copies between devices of two drivers: through host memory, waiting for each piece. */
static loch_status copy_through_host(const lochi_copy_job *job)
{
    loch_device *to_device = job->to_place.device, *from_device = job->from_place.device;
    loch_stream *to_stream = job->stream->device == to_device ? job->stream : &to_device->default_stream;
    loch_stream *from_stream = job->stream->device == from_device ? job->stream : &from_device->default_stream;
    loch_status status = loch_stream_sync(job->stream);
    if (status != LOCH_OK) return status;
    const size_t bounce_bytes = job->bytes < LOCHI_COPY_BOUNCE_BYTES ? job->bytes : LOCHI_COPY_BOUNCE_BYTES;
    char *bounce = lochi_alloc(bounce_bytes);
    if (!bounce)
        return LOCH_FAIL(HOST_MEMORY, "no host memory to copy from %s to %s", from_device->name, to_device->name);
    for (size_t done = 0; status == LOCH_OK && done < job->bytes; done += bounce_bytes) {
        const size_t left = job->bytes - done, piece = left < bounce_bytes ? left : bounce_bytes;
        LOCH_TRY(copy_call(from_device, LOCH_DEVICE_TO_HOST, bounce, job->from + done, piece, NULL, from_stream), end);
        LOCH_TRY(loch_stream_sync(from_stream), end);
        LOCH_TRY(copy_call(to_device, LOCH_HOST_TO_DEVICE, job->to + done, bounce, piece, NULL, to_stream), end);
        LOCH_TRY(loch_stream_sync(to_stream), end);
    }
end:
    lochi_free(bounce);
    return status;
}

bool lochi_copy_is_of_peers(const lochi_copy_job *job)
{
    const loch_device *to = job->to_place.device, *from = job->from_place.device;
    return to->driver == from->driver && loch_device_can(to, LOCH_CAN_PEER);
}

/* --- planning --- */

static loch_direction copy_deduce(const lochi_place *to, const lochi_place *from)
{
    const bool to_host = lochi_place_is_host(to), from_host = lochi_place_is_host(from);
    if (to_host) return from_host ? LOCH_HOST_TO_HOST : LOCH_DEVICE_TO_HOST;
    if (from_host) return LOCH_HOST_TO_DEVICE;
    return to->device == from->device ? LOCH_DEVICE_TO_DEVICE : LOCH_PEER_TO_PEER;
}

static const char *copy_direction_name(loch_direction direction)
{
    static const char *const names[] = {"deduced",        "host to host",     "host to device",
                                        "device to host", "device to device", "peer to peer"};
    return names[direction];
}

/* Checks a stream that the caller gave. It must belong to a device of the copy; any stream will do for memory that
 * no device knows. */
static loch_status copy_check_stream(const lochi_copy_job *job, const loch_stream *given)
{
    const loch_device *to = job->to_place.device, *from = job->from_place.device;
    LOCH_TRY_RETURN(lochi_stream_check(given, NULL));
    if ((!to && !from) || given->device == to || given->device == from) return LOCH_OK;
    return LOCH_FAIL(INVALID, "stream %llu of %s belongs to neither device of the copy from %s to %s",
                     (unsigned long long)given->id, given->device->name, from ? from->name : "the host",
                     to ? to->name : "the host");
}

/* Without a stream the copy goes on the default stream of the target, or of the source if the target is the host. A
 * stream of a device that only owns the host memory cannot run another device's copy: the call waits for that stream
 * first, and for the copy. */
loch_status lochi_copy_route(lochi_copy_job *job)
{
    loch_device *runner = job->direction == LOCH_DEVICE_TO_HOST ? job->from_place.device : job->to_place.device;
    loch_stream *given = job->given;
    const bool runs_on_given = given && (given->device == runner || job->direction == LOCH_PEER_TO_PEER);
    job->stream = runs_on_given ? given : &runner->default_stream;
    if (!given || runs_on_given) return LOCH_OK;
    job->wait = LOCH_WAIT_END;
    return loch_stream_sync(given);
}

static loch_status copy_on_device(lochi_copy_job *job)
{
    LOCH_TRY_RETURN(lochi_copy_route(job));
    loch_status status;
    if (job->direction == LOCH_DEVICE_TO_DEVICE)
        status = copy_inside_device(job);
    else if (job->direction == LOCH_PEER_TO_PEER)
        status = lochi_copy_is_of_peers(job) ? copy_between_peers(job) : copy_through_host(job);
    else
        status = copy_call(job->stream->device, job->direction, job->to, job->from, job->bytes, NULL, job->stream);
    return status != LOCH_OK ? status : lochi_copy_settle(job->stream, job->wait);
}

loch_status lochi_copy_begin(const loch_copy_options *options, void *to, const void *from, lochi_copy_job *out)
{
    loch_copy_options read = {.size = sizeof read};
    LOCH_TRY_RETURN(lochi_sized_read("a struct of copy options", options, &read, sizeof read));
    if ((unsigned)read.direction > LOCH_PEER_TO_PEER || (unsigned)read.wait > LOCH_WAIT_END)
        return LOCH_FAIL(INVALID, "the copy options have an unknown direction or wait");
    if (read.wait == LOCH_WAIT_DEFAULT) read.wait = read.stream ? LOCH_WAIT_QUEUED : LOCH_WAIT_END;
    if (read.stream && read.wait == LOCH_WAIT_END) /* before queueing: work that is queued would stay in the graph */
        LOCH_TRY_RETURN(lochi_stream_refuse_captured(read.stream, "a copy there cannot be waited for"));
    *out =
        (lochi_copy_job){.to = to, .from = from, .direction = read.direction, .given = read.stream, .wait = read.wait};
    return LOCH_OK;
}

loch_status lochi_copy_place(lochi_copy_job *job, size_t to_bytes, size_t from_bytes)
{
    if (job->is_own) {
        LOCH_TRY_RETURN(lochi_copy_locate_own(job->to, to_bytes, "target", &job->to_place));
        LOCH_TRY_RETURN(lochi_copy_locate_own(job->from, from_bytes, "source", &job->from_place));
    } else {
        LOCH_TRY_RETURN(lochi_copy_locate(job->to, to_bytes, "target", &job->to_place));
        LOCH_TRY_RETURN(lochi_copy_locate(job->from, from_bytes, "source", &job->from_place));
    }
    const loch_direction stated = job->direction;
    job->direction = copy_deduce(&job->to_place, &job->from_place);
    if (stated != LOCH_DIRECTION_DEDUCED && stated != job->direction)
        return LOCH_FAIL(INVALID, "the copy options say %s, but the addresses are %s", copy_direction_name(stated),
                         copy_direction_name(job->direction));
    return job->given ? copy_check_stream(job, job->given) : LOCH_OK;
}

loch_status lochi_copy_run(lochi_copy_job *job)
{
    return job->direction == LOCH_HOST_TO_HOST ? copy_host_to_host(job) : copy_on_device(job);
}

loch_status loch_copy_with(void *to, const void *from, size_t bytes, const loch_copy_options *options)
{
    lochi_copy_job job;
    LOCH_TRY_RETURN(lochi_copy_begin(options, to, from, &job));
    if (!bytes) return LOCH_OK;
    LOCH_TRY_RETURN(lochi_copy_place(&job, bytes, bytes));
    job.bytes = bytes;
    return lochi_copy_run(&job);
}

loch_status loch_copy(void *to, const void *from, size_t bytes)
{
    return loch_copy_with(to, from, bytes, NULL);
}

loch_status loch_copy_on(void *to, const void *from, size_t bytes, loch_stream *stream)
{
    const loch_copy_options options = {.size = sizeof options, .stream = stream, .wait = LOCH_WAIT_QUEUED};
    return loch_copy_with(to, from, bytes, &options);
}

/* Begins a copy on `stream` for which no tenant is asked. */
static loch_status copy_begin_own(loch_stream *stream, void *to, const void *from, size_t bytes, lochi_copy_job *out)
{
    const loch_copy_options options = {.size = sizeof options, .stream = stream, .wait = LOCH_WAIT_QUEUED};
    LOCH_TRY_RETURN(lochi_copy_begin(&options, to, from, out));
    out->is_own = true;
    out->bytes = bytes;
    return lochi_copy_place(out, bytes, bytes);
}

loch_status lochi_copy_own(loch_stream *stream, void *to, const void *from, size_t bytes)
{
    if (!bytes) return LOCH_OK;
    lochi_copy_job job;
    LOCH_TRY_RETURN(copy_begin_own(stream, to, from, bytes, &job));
    return lochi_copy_run(&job);
}

loch_status lochi_copy_onward(loch_stream *stream, void *to, const void *from, size_t bytes, size_t *done)
{
    lochi_copy_job job;
    LOCH_TRY_RETURN(copy_begin_own(stream, to, from, bytes, &job));
    job.stream = stream;
    if (job.direction == LOCH_DEVICE_TO_DEVICE) {
        const size_t gap = (uintptr_t)from - (uintptr_t)to, left = bytes - *done;
        return copy_overlapping(&job, gap < left ? gap : left, done);
    }
    LOCH_TRY_RETURN(lochi_copy_run(&job)); /* a host copy: complete or not begun */
    *done = bytes;
    return LOCH_OK;
}

/* SPDX-License-Identifier: MIT */
/* Filling memory with a pattern of 1, 2 or 4 bytes. */
#include "device/fill.h"
#include "base/checked.h"
#include "base/fail.h"
#include "base/heap.h"
#include "device/calls.h"
#include "device/copy.h"
#include "device/stream.h"
#include <string.h>

typedef struct fill_on_host {
    void *to;
    size_t bytes;
    uint32_t pattern;
    size_t pattern_bytes;
} fill_on_host;

_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "a pattern's bytes lie at the low end of its number");

/* Doubles the filled part until all of it is filled: as fast as memcpy for every pattern. */
void lochi_fill_host(void *to, size_t bytes, uint32_t pattern, size_t pattern_bytes)
{
    if (pattern_bytes == 1) {
        memset(to, (int)pattern, bytes);
        return;
    }
    memcpy(to, &pattern, pattern_bytes);
    for (size_t done = pattern_bytes; done < bytes;) {
        const size_t left = bytes - done, piece = left < done ? left : done;
        memcpy((char *)to + done, to, piece);
        done += piece;
    }
}

static void fill_run_on_host(void *user)
{
    fill_on_host *work = user;
    lochi_fill_host(work->to, work->bytes, work->pattern, work->pattern_bytes);
    lochi_free(work);
}

/* Fills with the device's own fill. */
static loch_status fill_call(loch_device *device, loch_stream *stream, const fill_on_host *work)
{
    loch_status status;
    LOCHI_CALL(status, device, fill,
               (device->self, work->to, work->bytes, work->pattern, work->pattern_bytes, stream->native));
    return status;
}

/* Queues a fill of host memory behind the work of a stream of an asynchronous device. A graph runs any number of
 * times, but a host job ends with its first run. So on a stream that is being captured, the device fills its own
 * pinned memory, and other host memory is refused. */
static loch_status fill_queue_on_host(loch_stream *stream, const lochi_place *place, const fill_on_host *work)
{
    if (place->kind == LOCH_MEMORY_PINNED && loch_device_can(stream->device, LOCH_CAN_CAPTURE) &&
        lochi_stream_is_captured(stream))
        return fill_call(place->device, stream, work);
    LOCH_TRY_RETURN(lochi_stream_refuse_captured(stream, LOCHI_COPY_ON_HOST));
    fill_on_host *queued = lochi_alloc(sizeof *queued);
    if (!queued) return LOCH_FAIL(HOST_MEMORY, "no host memory to queue a fill");
    *queued = *work;
    const loch_status status = loch_stream_call(stream, fill_run_on_host, queued);
    if (status != LOCH_OK) lochi_free(queued);
    return status;
}

static loch_status fill_somewhere(loch_stream *stream, const fill_on_host *work, bool is_own, loch_wait wait)
{
    lochi_place place;
    LOCH_TRY_RETURN(is_own ? lochi_copy_locate_own(work->to, work->bytes, "target", &place)
                           : lochi_copy_locate(work->to, work->bytes, "target", &place));
    /* Plain host memory: any stream is valid. */
    if (stream) LOCH_TRY_RETURN(lochi_stream_check(stream, place.device));
    if (lochi_place_is_host(&place) && !loch_device_can(place.device, LOCH_CAN_HOST_ACCESS)) {
        if (stream && !lochi_device_is_at_once(stream->device)) {
            LOCH_TRY_RETURN(fill_queue_on_host(stream, &place, work));
            return lochi_copy_settle(stream, wait);
        }
        if (!stream) LOCH_TRY_RETURN(lochi_copy_wait_for_owner(&place));
        lochi_fill_host(work->to, work->bytes, work->pattern, work->pattern_bytes);
        return LOCH_OK;
    }
    loch_device *device = place.device;
    if (!stream) stream = &device->default_stream;
    const loch_status status = fill_call(device, stream, work);
    return status != LOCH_OK ? status : lochi_copy_settle(stream, wait);
}

static loch_status fill_read(void *to, size_t bytes, const void *pattern, size_t pattern_bytes, fill_on_host *out)
{
    if (!pattern) return LOCH_FAIL(INVALID, "the pattern is NULL");
    if (pattern_bytes != 1 && pattern_bytes != 2 && pattern_bytes != 4)
        return LOCH_FAIL(INVALID, "a pattern has 1, 2 or 4 bytes, not %zu", pattern_bytes);
    if (!lochi_is_multiple((uintptr_t)to | bytes, pattern_bytes))
        return LOCH_FAIL(INVALID, "%zu bytes at %p are not multiples of the pattern of %zu bytes", bytes, to,
                         pattern_bytes);
    *out = (fill_on_host){to, bytes, 0, pattern_bytes};
    uint16_t two;
    if (pattern_bytes == 1) out->pattern = *(const uint8_t *)pattern;
    if (pattern_bytes == 2) out->pattern = (memcpy(&two, pattern, sizeof two), two);
    if (pattern_bytes == 4) memcpy(&out->pattern, pattern, sizeof out->pattern);
    return LOCH_OK;
}

loch_status loch_fill_with(void *to, size_t bytes, const void *pattern, size_t pattern_bytes,
                           const loch_copy_options *options)
{
    fill_on_host work;
    lochi_copy_job job;
    LOCH_TRY_RETURN(lochi_copy_begin(options, to, NULL, &job));
    if (job.direction != LOCH_DIRECTION_DEDUCED) return LOCH_FAIL(INVALID, "a fill has no direction");
    LOCH_TRY_RETURN(fill_read(to, bytes, pattern, pattern_bytes, &work));
    return bytes ? fill_somewhere(job.given, &work, false, job.wait) : LOCH_OK;
}

loch_status loch_fill(void *to, size_t bytes, const void *pattern, size_t pattern_bytes)
{
    return loch_fill_with(to, bytes, pattern, pattern_bytes, NULL);
}

loch_status loch_fill_on(void *to, size_t bytes, const void *pattern, size_t pattern_bytes, loch_stream *stream)
{
    const loch_copy_options options = {.size = sizeof options, .stream = stream, .wait = LOCH_WAIT_QUEUED};
    return loch_fill_with(to, bytes, pattern, pattern_bytes, &options);
}

loch_status lochi_fill_own(loch_stream *stream, void *to, size_t bytes, uint8_t byte)
{
    const fill_on_host work = {to, bytes, byte, 1};
    return bytes ? fill_somewhere(stream, &work, true, LOCH_WAIT_QUEUED) : LOCH_OK;
}

/* SPDX-License-Identifier: MIT */
/* Events: marks in streams. This file stores whether an event was ever recorded, so that drivers need not agree on
 * the meaning of an unrecorded event. */
#include "base/fail.h"
#include "base/heap.h"
#include "device/calls.h"
#include "device/stream_life.h"

loch_status loch_event_create(loch_device *device, loch_event_kind kind, loch_event **out)
{
    if (out) *out = NULL;
    if (!device || !out) return LOCH_FAIL(INVALID, "loch_event_create needs a device and an out pointer");
    if ((unsigned)kind > LOCH_EVENT_TIMED) return LOCH_FAIL(INVALID, "event kind %d is unknown", (int)kind);
    if (kind == LOCH_EVENT_TIMED && !loch_device_can(device, LOCH_CAN_TIMING))
        return LOCH_FAIL(UNSUPPORTED, "events of %s do not measure time", device->name);
    loch_event *event = lochi_zalloc(sizeof *event);
    if (!event) return LOCH_FAIL(HOST_MEMORY, "no host memory for an event");
    loch_status status;
    LOCHI_CALL(status, device, event_create, (device->self, kind, &event->native));
    if (status != LOCH_OK) {
        lochi_free(event);
        return status;
    }
    event->device = loch_device_retain(device);
    event->kind = kind;
    *out = event;
    return LOCH_OK;
}

void loch_event_destroy(loch_event *event)
{
    if (!event) return;
    loch_device *device = event->device;
    loch_status status;
    LOCHI_CALL(status, device, event_destroy, (device->self, event->native));
    (void)status; /* nothing is left to undo; the driver has written the record */
    lochi_free(event);
    loch_device_release(device);
}

loch_status loch_event_record(loch_event *event, loch_stream *stream)
{
    if (!event) return LOCH_FAIL(INVALID, "loch_event_record needs an event");
    loch_device *device = event->device;
    if (!stream) stream = &device->default_stream;
    LOCH_TRY_RETURN(lochi_stream_check(stream, device));
    loch_status status;
    LOCHI_CALL(status, device, event_record, (device->self, event->native, stream->native));
    if (status == LOCH_OK) event->recorded = true;
    return status;
}

loch_status loch_event_query(loch_event *event)
{
    if (!event) return LOCH_FAIL(INVALID, "loch_event_query needs an event");
    if (!event->recorded) return LOCH_OK;
    loch_status status;
    LOCHI_CALL(status, event->device, event_query, (event->device->self, event->native));
    return status;
}

loch_status loch_event_sync(loch_event *event)
{
    if (!event) return LOCH_FAIL(INVALID, "loch_event_sync needs an event");
    if (!event->recorded) return LOCH_OK;
    loch_status status;
    LOCHI_CALL(status, event->device, event_sync, (event->device->self, event->native));
    return status;
}

loch_status loch_event_elapsed(loch_event *start, loch_event *end, uint64_t *out_ns)
{
    if (!start || !end || !out_ns) return LOCH_FAIL(INVALID, "loch_event_elapsed needs two events and an out pointer");
    if (start->device != end->device) return LOCH_FAIL(INVALID, "the two events belong to different devices");
    if (start->kind != LOCH_EVENT_TIMED || end->kind != LOCH_EVENT_TIMED)
        return LOCH_FAIL(INVALID, "both events must be of kind LOCH_EVENT_TIMED");
    if (!start->recorded || !end->recorded) return LOCH_FAIL(INVALID, "both events must be recorded first");
    loch_status status;
    LOCHI_CALL(status, start->device, event_elapsed, (start->device->self, start->native, end->native, out_ns));
    return status;
}

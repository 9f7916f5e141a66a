/* SPDX-License-Identifier: MIT */
/* Streams and events of a device whose work is done when the call returns, such as the CPU. A stream has no state;
 * an event is the time at which it was recorded. A driver that leaves its stream group empty gets these slots. */
#include "device/at_once.h"
#include "base/fail.h"
#include "base/heap.h"
#include <loch/host.h>
#include <stdatomic.h>

typedef struct at_once_event {
    _Atomic uint64_t ns; /* relaxed: the caller orders its own threads */
} at_once_event;

static loch_status at_once_stream_create(void *self, const loch_stream_options *options, void **out)
{
    (void)self, (void)options;
    *out = NULL;
    return LOCH_OK;
}

static loch_status at_once_stream_nothing(void *self, void *stream)
{
    (void)self, (void)stream;
    return LOCH_OK;
}

static loch_status at_once_stream_thread_default(void *self, void **out)
{
    (void)self;
    *out = NULL;
    return LOCH_OK;
}

static loch_status at_once_stream_wrap(void *self, void *native, void **out)
{
    (void)self, (void)native, (void)out;
    return LOCH_FAIL(UNSUPPORTED, "this device has no queues to wrap");
}

static loch_status at_once_stream_wait(void *self, void *stream, void *event)
{
    (void)self, (void)stream, (void)event;
    return LOCH_OK;
}

static loch_status at_once_stream_call(void *self, void *stream, loch_stream_function *function, void *user)
{
    (void)self, (void)stream;
    function(user);
    return LOCH_OK;
}

static loch_status at_once_event_create(void *self, loch_event_kind kind, void **out)
{
    (void)self, (void)kind;
    at_once_event *event = lochi_zalloc(sizeof *event);
    if (!event) return LOCH_FAIL(HOST_MEMORY, "no host memory for an event");
    *out = event;
    return LOCH_OK;
}

static loch_status at_once_event_destroy(void *self, void *event)
{
    (void)self;
    lochi_free(event);
    return LOCH_OK;
}

static loch_status at_once_event_record(void *self, void *event, void *stream)
{
    (void)self, (void)stream;
    at_once_event *mark = event;
    atomic_store_explicit(&mark->ns, loch_host_now_ns(), memory_order_relaxed);
    return LOCH_OK;
}

static loch_status at_once_event_elapsed(void *self, void *start, void *end, uint64_t *out_ns)
{
    (void)self;
    at_once_event *from = start, *to = end;
    const uint64_t from_ns = atomic_load_explicit(&from->ns, memory_order_relaxed);
    const uint64_t to_ns = atomic_load_explicit(&to->ns, memory_order_relaxed);
    *out_ns = to_ns > from_ns ? to_ns - from_ns : 0;
    return LOCH_OK;
}

static loch_status at_once_device_sync(void *self)
{
    (void)self;
    return LOCH_OK;
}

static loch_status at_once_capture(void *self, void *stream, loch_capture_info *out)
{
    (void)self, (void)stream;
    *out = (loch_capture_info){0};
    return LOCH_OK;
}

void lochi_at_once_fill(loch_driver *driver)
{
    driver->stream_create = at_once_stream_create;
    driver->stream_destroy = at_once_stream_nothing;
    driver->stream_thread_default = at_once_stream_thread_default;
    driver->stream_wrap = at_once_stream_wrap;
    driver->stream_query = at_once_stream_nothing;
    driver->stream_sync = at_once_stream_nothing;
    driver->stream_wait = at_once_stream_wait;
    driver->stream_call = at_once_stream_call;
    driver->stream_capture = at_once_capture;
    driver->event_create = at_once_event_create;
    driver->event_destroy = at_once_event_destroy;
    driver->event_record = at_once_event_record;
    driver->event_query = at_once_stream_nothing;
    driver->event_sync = at_once_stream_nothing;
    driver->event_elapsed = at_once_event_elapsed;
    driver->device_sync = at_once_device_sync;
}

/* SPDX-License-Identifier: MIT */
/* Streams: created, wrapped, or default.
 *
 * Owners of a loch_stream are counted. The last release, or the first destroy, closes the object and ends the
 * driver's queue. The closed object stays for further owners, and for parts of the library that remember it (pools),
 * until they forget it (stream_life.c). The default stream of a thread is in the device's list. It ends with the
 * thread, by a thread-specific destructor, or with the device. */
#include "device/stream.h"
#include "kit/cancel.h"
#include "base/fail.h"
#include "base/heap.h"
#include "kit/sized.h"
#include "base/thread.h"
#include "device/calls.h"
#include "device/device.h"
#include "device/forked.h"
#include <pthread.h>

static pthread_once_t stream_once = PTHREAD_ONCE_INIT;
static pthread_key_t stream_thread_key;
static bool stream_has_key; /* written once, before pthread_once returns */

/* --- making and ending --- */

static loch_status stream_read_options(const loch_stream_options *given, loch_stream_options *out)
{
    *out = (loch_stream_options){.size = sizeof *out};
    LOCH_TRY_RETURN(lochi_sized_read("a struct of stream options", given, out, sizeof *out));
    if ((unsigned)out->order > LOCH_STREAM_WITH_DEFAULT)
        return LOCH_FAIL(INVALID, "stream order %d is unknown", (int)out->order);
    return LOCH_OK;
}

/* Enters a created or wrapped stream into its device's list, where it is found by its id. */
static void stream_link(loch_stream *stream)
{
    loch_device *device = stream->device;
    lochi_lock_take(&device->lock);
    stream->next = device->streams;
    if (stream->next) stream->next->prev = stream;
    device->streams = stream;
    lochi_lock_drop(&device->lock);
}

static void stream_leave_list(loch_stream *stream)
{
    loch_device *device = stream->device;
    lochi_lock_take(&device->lock);
    if (stream->prev)
        stream->prev->next = stream->next;
    else
        device->streams = stream->next;
    if (stream->next) stream->next->prev = stream->prev;
    lochi_lock_drop(&device->lock);
}

static loch_stream *stream_find_in(loch_stream *list, uint64_t id)
{
    while (list && list->id != id)
        list = list->next;
    return list;
}

loch_stream *lochi_stream_find(loch_device *device, uint64_t id)
{
    if (id == device->default_stream.id) return lochi_stream_retain(&device->default_stream);
    lochi_lock_take(&device->lock);
    loch_stream *stream = stream_find_in(device->streams, id);
    if (!stream) stream = stream_find_in(device->thread_streams, id);
    if (stream) lochi_stream_retain(stream); /* a stream in the list has its owner's reference */
    lochi_lock_drop(&device->lock);
    return stream;
}

loch_status loch_stream_create(loch_device *device, const loch_stream_options *options, loch_stream **out)
{
    if (out) *out = NULL;
    if (!device || !out) return LOCH_FAIL(INVALID, "loch_stream_create needs a device and an out pointer");
    loch_stream_options read;
    LOCH_TRY_RETURN(stream_read_options(options, &read));
    loch_stream *stream = lochi_alloc(sizeof *stream);
    if (!stream) return LOCH_FAIL(HOST_MEMORY, "no host memory for a stream");
    void *native;
    loch_status status;
    LOCHI_CALL(status, device, stream_create, (device->self, &read, &native));
    if (status != LOCH_OK) {
        lochi_free(stream);
        return status;
    }
    lochi_stream_init(stream, loch_device_retain(device), native, LOCHI_STREAM_OWNED);
    stream_link(stream);
    *out = stream;
    return LOCH_OK;
}

loch_status loch_stream_wrap(loch_device *device, void *native, loch_stream **out)
{
    LOCHI_NOT_CANCELLED;
    if (out) *out = NULL;
    if (!device || !out) return LOCH_FAIL(INVALID, "loch_stream_wrap needs a device and an out pointer");
    if (lochi_device_is_forked(device)) return lochi_device_refuse_forked(device);
    void *checked, *of_thread;
    LOCH_TRY_RETURN(device->driver->stream_wrap(device->self, native, &checked));
    if (!checked) {
        *out = &device->default_stream;
        return LOCH_OK;
    }
    loch_status status;
    LOCH_TRY(device->driver->stream_thread_default(device->self, &of_thread), fail);
    if (checked == of_thread) return loch_stream_require_thread_default(device, out);
    loch_stream *stream = lochi_alloc(sizeof *stream);
    if (!stream) {
        status = LOCH_FAIL(HOST_MEMORY, "no host memory for a stream");
        goto fail;
    }
    lochi_stream_init(stream, loch_device_retain(device), checked, LOCHI_STREAM_WRAPPED);
    stream_link(stream);
    *out = stream;
    return LOCH_OK;
fail:
    device->driver->stream_unwrap(device->self, checked);
    return status;
}

/* Ends a stream that has no public owner left. */
static void stream_end(loch_stream *stream)
{
    lochi_stream_end(stream);
    lochi_stream_release(stream);
}

static bool stream_is_counted(const loch_stream *stream)
{
    return stream && (stream->kind == LOCHI_STREAM_OWNED || stream->kind == LOCHI_STREAM_WRAPPED);
}

loch_stream *loch_stream_retain(loch_stream *stream)
{
    /* Relaxed: the caller has a reference already. */
    if (stream_is_counted(stream)) atomic_fetch_add_explicit(&stream->owners, 1, memory_order_relaxed);
    return stream;
}

/* Ends a stream for all its owners, once. Relaxed: if two threads end it, each has a reference. */
static void stream_end_for_all(loch_stream *stream)
{
    if (atomic_exchange_explicit(&stream->has_ended, true, memory_order_relaxed)) return;
    lochi_stream_announce(stream);
    stream_leave_list(stream);
    lochi_stream_end(stream);
}

void loch_stream_release(loch_stream *stream)
{
    if (!stream_is_counted(stream)) return;
    /* Acquire-release: the work of every owner is ordered before the end. */
    if (atomic_fetch_sub_explicit(&stream->owners, 1, memory_order_acq_rel) != 1) return;
    loch_device *device = stream->device;
    stream_end_for_all(stream);
    lochi_stream_release(stream);
    loch_device_release(device);
}

void loch_stream_close(loch_stream *stream)
{
    if (!stream_is_counted(stream)) return;
    stream_end_for_all(stream);
    loch_stream_release(stream);
}

/* --- default streams --- */

loch_stream *loch_stream_get_default(loch_device *device)
{
    return device ? &device->default_stream : NULL;
}

/* Removes the calling thread's stream from a device's list. Returns it; NULL if the device has none for this thread. */
static loch_stream *stream_unlink(loch_device *device, uint64_t thread)
{
    lochi_lock_take(&device->lock);
    loch_stream **link = &device->thread_streams;
    while (*link && (*link)->thread != thread)
        link = &(*link)->next;
    loch_stream *stream = *link;
    if (stream) *link = stream->next;
    lochi_lock_drop(&device->lock);
    return stream;
}

/* The streams of a thread that ends. */
typedef struct stream_leaving {
    uint64_t thread;
    loch_stream *streams; /* removed from their devices' lists; each holds a reference on its device */
} stream_leaving;

static bool stream_collect(loch_device *device, void *user)
{
    stream_leaving *leaving = user;
    loch_stream *stream = stream_unlink(device, leaving->thread);
    if (!stream) return false;
    loch_device_retain(device); /* the device is in the table, so its count is not zero */
    stream->next = leaving->streams;
    leaving->streams = stream;
    return false;
}

static void stream_thread_ends(void *value)
{
    (void)value;
    stream_leaving leaving = {.thread = lochi_thread_number()};
    lochi_device_any(stream_collect, &leaving);
    while (leaving.streams) {
        loch_stream *stream = leaving.streams;
        loch_device *device = stream->device;
        leaving.streams = stream->next;
        lochi_stream_announce(stream);
        stream_end(stream);
        loch_device_release(device);
    }
}

static void stream_make_key(void)
{
    stream_has_key = pthread_key_create(&stream_thread_key, stream_thread_ends) == 0;
}

static loch_stream *stream_find_of_thread(loch_device *device, uint64_t thread)
{
    lochi_lock_take(&device->lock);
    loch_stream *stream = device->thread_streams;
    while (stream && stream->thread != thread)
        stream = stream->next;
    lochi_lock_drop(&device->lock);
    return stream;
}

loch_status loch_stream_require_thread_default(loch_device *device, loch_stream **out)
{
    if (out) *out = NULL;
    if (!device || !out)
        return LOCH_FAIL(INVALID, "loch_stream_require_thread_default needs a device and an out pointer");
    if (lochi_device_is_forked(device)) return lochi_device_refuse_forked(device);
    void *native;
    LOCH_TRY_RETURN(device->driver->stream_thread_default(device->self, &native));
    if (!native) {
        *out = &device->default_stream;
        return LOCH_OK;
    }
    const uint64_t thread = lochi_thread_number();
    loch_stream *stream = stream_find_of_thread(device, thread); /* only this thread adds or removes its streams */
    if (!stream) {
        pthread_once(&stream_once, stream_make_key);
        stream = lochi_alloc(sizeof *stream);
        if (!stream || !stream_has_key || pthread_setspecific(stream_thread_key, &stream_has_key) != 0) {
            lochi_free(stream);
            return LOCH_FAIL(HOST_MEMORY, "no host memory for a thread's default stream");
        }
        lochi_stream_init(stream, device, native, LOCHI_STREAM_OF_THREAD);
        stream->thread = thread;
        lochi_lock_take(&device->lock);
        stream->next = device->thread_streams;
        device->thread_streams = stream;
        lochi_lock_drop(&device->lock);
    }
    *out = stream;
    return LOCH_OK;
}

/* --- using --- */

loch_device *loch_stream_get_device(const loch_stream *stream)
{
    return stream ? stream->device : NULL;
}

void *loch_stream_get_native(const loch_stream *stream)
{
    if (!stream || !stream->native || atomic_load_explicit(&stream->closed, memory_order_acquire)) return NULL;
    return stream->device->driver->stream_native(stream->device->self, stream->native);
}

uint64_t loch_stream_get_id(const loch_stream *stream)
{
    return stream ? stream->id : 0;
}

#define STREAM_NEEDED(stream)                                                                                          \
    do {                                                                                                               \
        if (!(stream)) return LOCH_FAIL(INVALID, "the stream is NULL: use loch_stream_get_default");                   \
        LOCH_TRY_RETURN(lochi_stream_check((stream), NULL));                                                           \
    } while (0)

loch_status loch_stream_query(loch_stream *stream)
{
    STREAM_NEEDED(stream);
    loch_status status;
    LOCHI_CALL(status, stream->device, stream_query, (stream->device->self, stream->native));
    return status;
}

loch_status loch_stream_sync(loch_stream *stream)
{
    STREAM_NEEDED(stream);
    loch_status status;
    LOCHI_CALL(status, stream->device, stream_sync, (stream->device->self, stream->native));
    return status;
}

loch_status loch_stream_wait(loch_stream *stream, loch_event *event)
{
    STREAM_NEEDED(stream);
    if (!event) return LOCH_FAIL(INVALID, "the event to wait for is NULL");
    loch_device *device = stream->device, *other = event->device;
    if (!event->recorded || lochi_device_is_at_once(other)) return LOCH_OK;
    if (device->driver != other->driver || lochi_device_is_at_once(device)) return loch_event_sync(event);
    loch_status status;
    LOCHI_CALL(status, device, stream_wait, (device->self, stream->native, event->native));
    return status;
}

loch_status loch_stream_call(loch_stream *stream, loch_stream_function *function, void *user)
{
    STREAM_NEEDED(stream);
    if (!function) return LOCH_FAIL(INVALID, "the function to call is NULL");
    loch_status status;
    LOCHI_CALL(status, stream->device, stream_call, (stream->device->self, stream->native, function, user));
    return status;
}

loch_status loch_stream_query_capture(loch_stream *stream, loch_capture_info *out)
{
    STREAM_NEEDED(stream);
    if (!lochi_sized_is_set(out)) return LOCH_FAIL(INVALID, "capture info needs a struct whose size is set");
    loch_capture_info info = {.size = sizeof info};
    loch_status status;
    LOCHI_CALL(status, stream->device, stream_capture, (stream->device->self, stream->native, &info));
    if (status == LOCH_OK) lochi_sized_write(out, &info, sizeof info);
    return status;
}

bool lochi_stream_is_captured(loch_stream *stream)
{
    loch_capture_info capture = {.size = sizeof capture};
    return loch_stream_query_capture(stream, &capture) == LOCH_OK && capture.active;
}

/* Finds the stream of a list with the lowest id above `id`, unless `best` has a lower one. */
static loch_stream *stream_find_above(loch_stream *list, uint64_t id, loch_stream *best)
{
    for (; list; list = list->next)
        if (list->id > id && (!best || list->id < best->id)) best = list;
    return best;
}

bool lochi_device_is_captured(loch_device *device)
{
    if (!loch_device_can(device, LOCH_CAN_CAPTURE)) return false;
    const loch_error saved = lochi_error_save();
    bool is_captured = false;
    for (uint64_t id = 0; !is_captured;) { /* no driver call with the lock held */
        lochi_lock_take(&device->lock);
        loch_stream *stream = stream_find_above(device->streams, id, NULL);
        stream = stream_find_above(device->thread_streams, id, stream);
        if (stream) lochi_stream_retain(stream);
        lochi_lock_drop(&device->lock);
        if (!stream) break;
        id = stream->id;
        uint32_t mark;
        if (lochi_stream_enter(stream, &mark)) {
            is_captured = lochi_stream_is_captured(stream);
            lochi_stream_leave(mark);
        }
        lochi_stream_release(stream);
    }
    lochi_error_restore(&saved);
    return is_captured;
}

loch_status lochi_stream_refuse_captured(loch_stream *stream, const char *what)
{
    if (!loch_device_can(stream->device, LOCH_CAN_CAPTURE) || !lochi_stream_is_captured(stream)) return LOCH_OK;
    return LOCH_FAIL(BUSY, "stream %llu of %s is being captured: %s", (unsigned long long)stream->id,
                     stream->device->name, what);
}

/* SPDX-License-Identifier: MIT */
/** @file stream.h
 *  Streams and events. A stream is a queue of work on a device. An event is a mark in a stream.
 *
 *  Where a function takes a stream for work to be ordered on, NULL means the default stream of the device; the
 *  functions of a stream itself (loch_stream_sync, loch_stream_query, loch_stream_wait, loch_stream_call,
 *  loch_stream_query_capture) return E_INVALID for NULL. On a device without LOCH_CAN_ASYNC, work is finished before
 *  the call returns, and an event has passed as soon as it is recorded.
 */
#ifndef LOCH_STREAM_H
#define LOCH_STREAM_H

#include <loch/device.h>

LOCH_BEGIN_DECLS

/** A queue of work on a device. Several threads may use one stream at the same time; their work then interleaves. */
typedef struct loch_stream loch_stream;

/** A mark in a stream. Any thread may record it or wait for it, but only one thread at a time. */
typedef struct loch_event loch_event;

/** @name Streams */
/** @{ */

/** Order between a new stream and the device's default stream. */
typedef enum loch_stream_order {
    LOCH_STREAM_INDEPENDENT, /**< no order (CUDA: a non-blocking stream); the default */
    LOCH_STREAM_WITH_DEFAULT /**< work on this stream and work on the default stream wait for each other */
} loch_stream_order;

/** Options of loch_stream_create. Zero means default. */
typedef struct loch_stream_options {
    size_t size;             /**< sizeof(loch_stream_options) */
    loch_stream_order order; /**< order with the default stream of the device */
    /** Priority: lower is more urgent, 0 is normal; values outside the range of the device are clipped. */
    int priority;
} loch_stream_options;

/** Creates a stream on a device. NULL options mean all defaults. The stream keeps its device open. Any thread.
 *  @param out  the caller's reference; give it back with loch_stream_close or loch_stream_release. NULL on failure. */
LOCH_API LOCH_MUST_USE loch_status loch_stream_create(loch_device *device, const loch_stream_options *options,
                                                      loch_stream **out);

/** Wraps a queue that the caller created with the driver itself (a CUstream). The caller keeps ownership of the
 *  queue, and must call loch_stream_close on the wrapper before destroying the queue, even if others hold references
 *  on the wrapper. On CUDA the special values of the legacy default stream and of the per-thread default stream
 *  return the matching default stream of Loch; the latter is that of the calling thread. E_UNSUPPORTED: the device
 *  has no queues of its own. Any thread.
 *  @param out  the caller's reference; give it back with loch_stream_close. NULL on failure. */
LOCH_API LOCH_MUST_USE loch_status loch_stream_wrap(loch_device *device, void *native, loch_stream **out);

/** Takes another reference on a stream and returns `stream`. Give each reference back with loch_stream_release. The
 *  default stream of a device and of a thread are not counted: they live as long as the device or the thread. NULL
 *  returns NULL. Any thread. */
LOCH_API loch_stream *loch_stream_retain(loch_stream *stream);

/** Releases one reference on a stream. The last release ends the stream as loch_stream_close does. NULL and default
 *  streams are left alone. Any thread. */
LOCH_API void loch_stream_release(loch_stream *stream);

/** Ends a stream now and releases the caller's reference. Work already queued still runs to its end. A wrapped queue
 *  is not destroyed; its owner may destroy it after this call. For other holders of a reference, every call with the
 *  stream returns E_INVALID from now on; they still release their references. NULL and default streams are left
 *  alone. No other thread may be inside a call with the stream. */
LOCH_API void loch_stream_close(loch_stream *stream);

/** Returns the default stream of a device (CUDA: the legacy default stream). Borrowed; lives as long as the device.
 *  NULL returns NULL. Any thread. */
LOCH_API loch_stream *loch_stream_get_default(loch_device *device);

/** Returns the default stream of the calling thread in `out` (CUDA: the per-thread default stream). Each thread has
 *  its own object; it is created on first use. Where the driver has no such stream, `out` is the default stream of
 *  the device. Borrowed; lives until the thread or the device ends. */
LOCH_API LOCH_MUST_USE loch_status loch_stream_require_thread_default(loch_device *device, loch_stream **out);

/** Tells whether all work queued on a stream so far has ended: LOCH_OK if so, E_BUSY if not. Returns immediately and
 *  is allowed during a capture. Any thread. */
LOCH_API LOCH_MUST_USE loch_status loch_stream_query(loch_stream *stream);

/** Waits on the host until the work queued on this stream so far has ended. Does not wait for other streams. Any
 *  thread. */
LOCH_API LOCH_MUST_USE loch_status loch_stream_sync(loch_stream *stream);

/** Makes work that is queued on `stream` after this call wait for `event`. The stream and the event may belong to
 *  different devices: with the same driver the device waits, otherwise the call waits on the host. An event that was
 *  never recorded causes no wait. Any thread. */
LOCH_API LOCH_MUST_USE loch_status loch_stream_wait(loch_stream *stream, loch_event *event);

/** Returns the device of a stream. Borrowed. NULL returns NULL. */
LOCH_API loch_device *loch_stream_get_device(const loch_stream *stream);

/** Returns the driver's own handle of a stream (CUstream). Returns NULL for the default stream, on devices without
 *  queues, and for a stream that was closed. */
LOCH_API void *loch_stream_get_native(const loch_stream *stream);

/** Returns the id of a stream: a number that is never used for another stream of this process. NULL returns 0. */
LOCH_API uint64_t loch_stream_get_id(const loch_stream *stream);

/** A function that runs on the host when the stream reaches it. It must not call Loch or the driver. */
typedef void loch_stream_function(void *user);

/** Queues a call of `function` on the host, ordered after the work on `stream`. `user` must stay valid until the
 *  function has run. On a captured stream the function runs at every launch of the graph, and `user` must stay valid
 *  as long as the graph can be launched. Any thread. */
LOCH_API LOCH_MUST_USE loch_status loch_stream_call(loch_stream *stream, loch_stream_function *function, void *user);

/** The capture state of a stream. */
typedef struct loch_capture_info {
    size_t size; /**< set by the caller to sizeof(loch_capture_info) */
    int active;  /**< non-zero while the stream is being captured into a graph */
    uint64_t id; /**< id of the capture; all streams that were forked into one capture share it */
} loch_capture_info;

/** Reads whether a stream is being captured into a graph. Allowed at any time. Set `out->size` before the call. Any
 *  thread. */
LOCH_API LOCH_MUST_USE loch_status loch_stream_query_capture(loch_stream *stream, loch_capture_info *out);

/** @} */
/** @name Events */
/** @{ */

/** Whether an event measures time. */
typedef enum loch_event_kind {
    LOCH_EVENT_PLAIN, /**< order only; cheaper */
    LOCH_EVENT_TIMED  /**< order and time */
} loch_event_kind;

/** Creates an event on a device. It is not recorded yet. The event keeps its device open. Any thread.
 *  @param out  owned by the caller; destroy it with loch_event_destroy. NULL on failure. */
LOCH_API LOCH_MUST_USE loch_status loch_event_create(loch_device *device, loch_event_kind kind, loch_event **out);

/** Destroys an event. Waits for the event that are already queued stay in force. NULL does nothing. */
LOCH_API void loch_event_destroy(loch_event *event);

/** Records an event: places its mark after the work queued so far on `stream` (NULL: the default stream of the
 *  event's device). A new mark replaces the earlier one. E_INVALID: stream and event belong to different devices. */
LOCH_API LOCH_MUST_USE loch_status loch_event_record(loch_event *event, loch_stream *stream);

/** Tells whether the mark of an event has passed: LOCH_OK if it has or if the event was never recorded, E_BUSY if
 *  not. Returns immediately and is allowed during a capture. */
LOCH_API LOCH_MUST_USE loch_status loch_event_query(loch_event *event);

/** Waits on the host until the mark of an event has passed. */
LOCH_API LOCH_MUST_USE loch_status loch_event_sync(loch_event *event);

/** Computes the nanoseconds on the device between the marks of two timed events. E_BUSY: one of them has not passed
 *  yet. E_INVALID: one was never recorded, is not timed, or belongs to another device. */
LOCH_API LOCH_MUST_USE loch_status loch_event_elapsed(loch_event *start, loch_event *end, uint64_t *out_ns);

/** @} */

LOCH_END_DECLS

#endif

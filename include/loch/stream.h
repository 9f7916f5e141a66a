/* SPDX-License-Identifier: MIT */
/** @file stream.h
 *  Streams, a device's queues of work, and events, marks in them.
 *
 *  Wherever a loch_stream pointer is taken, NULL means the default stream of the device in question. On a device
 *  without LOCH_CAN_ASYNC work is done before the call returns, and every event has passed as soon as it is recorded.
 */
#ifndef LOCH_STREAM_H
#define LOCH_STREAM_H

#include <loch/device.h>

LOCH_BEGIN_DECLS

/** A device's queue of work. Safe to use from several threads at a time; their work then interleaves. */
typedef struct loch_stream loch_stream;

/** A mark in a stream. Recorded and waited for from any thread, but not by two threads at the same time. */
typedef struct loch_event loch_event;

/** Order between a new stream and the device's default stream. */
typedef enum loch_stream_order {
    LOCH_STREAM_INDEPENDENT, /**< none (CUDA: non-blocking); the default */
    LOCH_STREAM_WITH_DEFAULT /**< work on the default stream waits for it, and it for that */
} loch_stream_order;

/** How a stream is made; zero means default. */
typedef struct loch_stream_options {
    size_t size;             /**< sizeof(loch_stream_options) */
    loch_stream_order order; /**< order with the default stream */
    int priority;            /**< lower is more urgent, 0 is usual; values beyond the device's range are clipped */
} loch_stream_options;

/** Makes a stream; NULL options are all defaults. The stream keeps its device alive. Any thread.
 *  @param out  the caller's reference, given back by loch_stream_close or loch_stream_release; NULL on failure */
LOCH_API LOCH_MUST_USE loch_status loch_stream_create(loch_device *device, const loch_stream_options *options,
                                                      loch_stream **out);

/** Wraps a queue that the caller made with the driver itself (a CUstream). The caller keeps it, and calls
 *  loch_stream_close before it ends the queue, whoever else holds a reference on the wrapper. On CUDA the special values for the legacy and the per-thread default stream are understood, the
 *  latter as the calling thread's. E_UNSUPPORTED on devices without queues of their own. Any thread. */
LOCH_API LOCH_MUST_USE loch_status loch_stream_wrap(loch_device *device, void *native, loch_stream **out);

/** Takes another reference, for a further owner; returns `stream`. A default stream and a thread's default stream are not
 *  counted: they live as long as their device or thread. NULL gives NULL. Any thread. */
LOCH_API loch_stream *loch_stream_retain(loch_stream *stream);

/** Gives a reference back; the last one ends the stream as loch_stream_close does. NULL and default streams are left
 *  alone. Any thread. */
LOCH_API void loch_stream_release(loch_stream *stream);

/** Ends a stream at once, and gives the caller's reference back. Work queued on it still runs to its end; a wrapped queue
 *  is left to its owner, who may end it from then on. To whoever else holds a reference the stream is E_INVALID from now on; they
 *  release it as before. NULL, a default stream and a thread's default stream are left alone. No other thread may be in
 *  a call with the stream. */
LOCH_API void loch_stream_close(loch_stream *stream);

/** The device's default stream (CUDA: the legacy one). Borrowed, lives as long as the device. Any thread. */
LOCH_API loch_stream *loch_stream_get_default(loch_device *device);

/** The calling thread's own default stream (CUDA: the per-thread one), a different object in every thread; the device's
 *  default stream where the driver has none. Borrowed, lives until the thread or the device ends. */
LOCH_API LOCH_MUST_USE loch_status loch_stream_require_thread_default(loch_device *device, loch_stream **out);

/** The stream's device. Borrowed. */
LOCH_API loch_device *loch_stream_get_device(const loch_stream *stream);

/** The driver's own handle (CUstream); NULL for the default stream, for devices without queues, and for a stream that has
 *  ended. */
LOCH_API void *loch_stream_get_native(const loch_stream *stream);

/** A number that no other stream of this process has or will have. */
LOCH_API uint64_t loch_stream_get_id(const loch_stream *stream);

/** LOCH_OK when all work queued so far has ended, E_BUSY when not. Does not disturb a capture. Any thread. */
LOCH_API LOCH_MUST_USE loch_status loch_stream_query(loch_stream *stream);

/** Waits on the host for the work queued so far on this stream, and for no other. Any thread. */
LOCH_API LOCH_MUST_USE loch_status loch_stream_sync(loch_stream *stream);

/** Makes work queued on `stream` after this call wait, on the device, for `event`. The two may be of different devices:
 *  of one driver the device waits, otherwise the host does. An event never recorded is no wait. Any thread. */
LOCH_API LOCH_MUST_USE loch_status loch_stream_wait(loch_stream *stream, loch_event *event);

/** A function that runs on the host when the stream reaches it. It must not call Loch or the driver. */
typedef void loch_stream_function(void *user);

/** Queues a call on the host behind the work on `stream`. `user` has to live until it has run; on a stream that is captured it runs
 *  with every launch of the graph, and `user` has to live as long as that can be. Any thread. */
LOCH_API LOCH_MUST_USE loch_status loch_stream_call(loch_stream *stream, loch_stream_function *function, void *user);

/** Whether a stream is being captured into a graph. */
typedef struct loch_capture_info {
    size_t size; /**< set by the caller to sizeof(loch_capture_info) */
    int active;  /**< non-zero while it is */
    uint64_t id; /**< which capture; streams forked into one capture share it */
} loch_capture_info;

/** Asks whether the stream is being captured. Legal at any time. Any thread. */
LOCH_API LOCH_MUST_USE loch_status loch_stream_query_capture(loch_stream *stream, loch_capture_info *out);

/** Whether an event measures time. */
typedef enum loch_event_kind {
    LOCH_EVENT_PLAIN, /**< order only: cheaper */
    LOCH_EVENT_TIMED  /**< order and time */
} loch_event_kind;

/** Makes an event, not recorded yet. It keeps its device alive. Any thread.
 *  @param out  the caller's, given back by loch_event_destroy; NULL on failure */
LOCH_API LOCH_MUST_USE loch_status loch_event_create(loch_device *device, loch_event_kind kind, loch_event **out);

/** Ends an event; waits on it that are queued already still hold. NULL does nothing. */
LOCH_API void loch_event_destroy(loch_event *event);

/** Puts the mark behind the work queued so far on `stream` (NULL: the default stream of the event's device), in place
 *  of an earlier one. E_INVALID when the two are of different devices. */
LOCH_API LOCH_MUST_USE loch_status loch_event_record(loch_event *event, loch_stream *stream);

/** LOCH_OK when the mark has passed or the event was never recorded, E_BUSY when not. Does not disturb a capture. */
LOCH_API LOCH_MUST_USE loch_status loch_event_query(loch_event *event);

/** Waits on the host until the mark has passed. */
LOCH_API LOCH_MUST_USE loch_status loch_event_sync(loch_event *event);

/** Nanoseconds on the device between two timed marks. E_BUSY until both have passed; E_INVALID when one was never
 *  recorded, is not timed, or the devices differ. */
LOCH_API LOCH_MUST_USE loch_status loch_event_elapsed(loch_event *start, loch_event *end, uint64_t *out_ns);

LOCH_END_DECLS

#endif

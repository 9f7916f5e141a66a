/* SPDX-License-Identifier: MIT */
/** @file context.h
 *  A context: what one thread works with on an engine. It has a current device and stream, the pool that tensors come
 *  from, parameters, and cached copies of tensors of other devices.
 *
 *  A context belongs to the thread that opened it. Every call from another thread changes nothing and returns
 *  E_WRONG_THREAD, NULL, or a seat with the number UINT_MAX. That thread must close the context before the thread
 *  ends. An engine may have many contexts. Tensors from a context are ordinary tensors: any thread may use them, and
 *  they stay valid after the context and the engine are closed.
 */
#ifndef LOCH_CONTEXT_H
#define LOCH_CONTEXT_H

#include <loch/child.h>
#include <loch/engine.h>
#include <loch/tensor.h>

LOCH_BEGIN_DECLS

/** A context. Only the thread that opened it may use it. */
typedef struct loch_context loch_context;

/** @name Open and close */
/** @{ */

/** Options of loch_context_open. Zero means default; a NULL pointer means all defaults. */
typedef struct loch_context_options {
    size_t size;            /**< sizeof(loch_context_options) */
    const char *name;       /**< for people; copied; NULL for "context" */
    const loch_seat *seats; /**< seats that the context uses; the first is current; NULL for all */
    size_t seats_count;     /**< number of entries in `seats` */
    /** Flags of all tensors: LOCH_ALLOC_MOVABLE, LOCH_ALLOC_ZEROED; direct memory does not move. */
    uint32_t flags;
    loch_tag tag;       /**< tag of all tensors, unless a call names another */
    size_t round_bytes; /**< the memory of tensors is rounded up to a multiple of this; 0 or 1 for no rounding */
} loch_context_options;

/** Opens a context on an engine for the calling thread. Each seat gets its own stream on first use.
 *  @param out  owned by the caller; close it with loch_context_close. NULL on failure. */
LOCH_API LOCH_MUST_USE loch_status loch_context_open(loch_engine *engine, const loch_context_options *options,
                                                     loch_context **out);

/** Closes a context: ends its guards, pops its pools, gives its streams back when their work has ended, and drops its
 *  cached copies. E_WRONG_THREAD: called from another thread; the context stays open. NULL does nothing. */
LOCH_API LOCH_MUST_USE loch_status loch_context_close(loch_context *context);
LOCH_DEFINE_CLEAR(context, (void)!loch_context_close(object))

/** @} */
/** @name Current seat and stream */
/** @{ */

/** Returns the engine of a context. Borrowed. NULL from another thread. */
LOCH_API loch_engine *loch_context_get_engine(const loch_context *context);

/** Returns the current seat; a seat with the number UINT_MAX from another thread. */
LOCH_API loch_seat loch_context_get_seat(const loch_context *context);

/** Returns the device of the current seat. Borrowed. NULL from another thread. */
LOCH_API loch_device *loch_context_get_device(const loch_context *context);

/** Returns the current stream of the current seat in `out`: the context's own stream, created on first use, unless
 *  another was set. Borrowed. NULL on failure: E_WRONG_THREAD, or the status of the device that cannot create the
 *  stream. */
LOCH_API LOCH_MUST_USE loch_status loch_context_require_stream(loch_context *context, loch_stream **out);

/** Sets the current seat. E_NOT_FOUND: the context does not have this seat. */
LOCH_API LOCH_MUST_USE loch_status loch_context_set_seat(loch_context *context, loch_seat seat);

/** Sets the current stream of the current seat for this context; NULL for the context's own stream. The stream is
 *  borrowed, not retained. E_INVALID: it belongs to another device. */
LOCH_API LOCH_MUST_USE loch_status loch_context_set_stream(loch_context *context, loch_stream *stream);

/** Returns the cuBLAS handle of the current seat in `out`, set to the current stream and created on first use.
 *  Borrowed. E_UNSUPPORTED: the device is not a CUDA device, or cuBLAS is not installed. */
LOCH_API LOCH_MUST_USE loch_status loch_context_require_cublas(loch_context *context, loch_cublas **out);

/** @} */
/** @name Tensors and memory */
/** @{ */

/** Creates a tensor on the current seat, ordered on the current stream.
 *  @param name  for people; copied; may be NULL
 *  @param tag   tag for the statistics; 0 for the tag of the context
 *  @param out   the caller's reference; give it back with loch_tensor_release. NULL on failure. */
LOCH_API LOCH_MUST_USE loch_status loch_context_create_tensor(loch_context *context, loch_dtype dtype,
                                                              size_t dimensions, const int64_t *shape, const char *name,
                                                              loch_tag tag, loch_tensor **out);

/** Creates a tensor on the current seat with contents from host memory, ordered on the current stream. `data` is read
 *  before the call returns.
 *  @param name  for people; copied; may be NULL
 *  @param tag   tag for the statistics; 0 for the tag of the context
 *  @param out   the caller's reference; give it back with loch_tensor_release. NULL on failure. */
LOCH_API LOCH_MUST_USE loch_status loch_context_create_from(loch_context *context, loch_dtype dtype, size_t dimensions,
                                                            const int64_t *shape, const void *data, const char *name,
                                                            loch_tag tag, loch_tensor **out);

/** Acquires a tensor on the current device: the tensor itself if it is there, otherwise a row-major copy, queued on
 *  the current stream and cached.
 *
 *  A cached copy is found again by the tensor's buffer, offset, shape, strides and type, as long as the buffer exists
 *  with the same version (loch_buffer_get_version). It is dropped when the buffer is freed or its version changes,
 *  when the copy is written to, and before an allocation of the context fails for lack of memory. It lies in the
 *  seat's own pool, not in a pushed one. The copy is ordered after all work of this context on its streams of the
 *  tensor's device, and before its later work there, unless they are captured. The caller orders work of others. If a
 *  cached copy is found on another stream than the one it was made on, the stream waits for it on the device. On a
 *  captured stream the copy is captured too, and is not cached.
 *  @param out  the caller's reference; give it back with loch_tensor_release. NULL on failure. */
LOCH_API LOCH_MUST_USE loch_status loch_context_acquire_copy(loch_context *context, loch_tensor *tensor,
                                                             loch_tensor **out);

/** Returns the allocator of new tensors on the current seat: the top pool of the stack if it is in use, otherwise the
 *  seat's own. Borrowed. NULL from another thread. */
LOCH_API loch_allocator *loch_context_get_allocator(const loch_context *context);

/** Creates a child of the current seat's own pool, pushes it on the seat's stack, and uses it from now on. A range
 *  uses the current stream if the options name none. With direct memory a limit wrapper takes the place of the child,
 *  or, if limit_bytes is 0, the direct allocator itself.
 *  @param name   for people; copied; NULL for "child"
 *  @param child  the child, borrowed, valid until it is popped; may be NULL */
LOCH_API LOCH_MUST_USE loch_status loch_context_push_pool(loch_context *context, const char *name,
                                                          const loch_child_options *options, loch_allocator **child);

/** Where new tensors come from. */
typedef enum loch_context_pool {
    LOCH_CONTEXT_POOL_SEAT, /**< the seat's own pool */
    LOCH_CONTEXT_POOL_STACK /**< the top pool of the seat's stack, if there is one */
} loch_context_pool;

/** Selects where new tensors of the current seat come from. E_INVALID: `pool` is not a value of loch_context_pool. */
LOCH_API LOCH_MUST_USE loch_status loch_context_use_pool(loch_context *context, loch_context_pool pool);

/** Pops the top pool off the current seat's stack. Its blocks stay valid. The source of new tensors is again what it
 *  was before the push. E_NOT_FOUND: the stack is empty. */
LOCH_API LOCH_MUST_USE loch_status loch_context_pop_pool(loch_context *context);

/** Figures of a context. */
typedef struct loch_context_stats {
    size_t size; /**< set by the caller to sizeof(loch_context_stats) */
    /** Number of live buffers of tensors that the context created, including parameters that it loaded. */
    size_t tensors;
    size_t used_bytes; /**< bytes in live buffers of the context's tensors */
    size_t peak_bytes; /**< most bytes in live buffers of the context's tensors at a time */
    size_t copies;     /**< number of cached copies */
    size_t copy_bytes; /**< bytes in cached copies; not part of used_bytes and peak_bytes */
} loch_context_stats;

/** Reads the figures of a context. Set `out->size` before the call. */
LOCH_API LOCH_MUST_USE loch_status loch_context_get_stats(const loch_context *context, loch_context_stats *out);

/** @} */
/** @name Guards
 *  A guard changes a setting of a context and restores it at its end. Guards nest: the last one begun is ended first,
 *  and ending a guard ends all guards begun after it. Use begin and end as a pair, or LOCH_GUARD to the end of the
 *  block.
 *
 *  Inside a guard of a seat or a stream, the device is current in the calling thread: work that the caller queues
 *  with plain CUDA, or that another library queues with the CUDA runtime, runs on it. At the end of the guard the
 *  CUDA context that was current before is current again, whatever was made current in between. A CPU seat changes
 *  nothing, and neither does any call outside of guards, including loch_context_set_seat. */
/** @{ */

/** A guard in force. All zero for none. */
typedef struct loch_guard {
    loch_context *context; /**< the context; NULL for none */
    uint64_t number;       /**< number of the guard */
} loch_guard;

/** Whether a guard of a seat also locks the seat. */
typedef enum loch_seat_use {
    LOCH_SEAT_PLAIN, /**< sets the current seat and device only */
    LOCH_SEAT_LOCKED /**< also holds the engine's lock on the seat (loch_engine_lock) */
} loch_seat_use;

/** Begins a guard that sets the current seat and makes its device current in the calling thread. With
 *  LOCH_SEAT_LOCKED it first waits for the engine's lock on the seat, and holds it until the end of the guard.
 *  E_NOT_FOUND: the context does not have this seat. On failure nothing changes.
 *  @param out  the guard; end it with loch_guard_end. All zero on failure. */
LOCH_API LOCH_MUST_USE loch_status loch_context_begin_seat(loch_context *context, loch_seat seat, loch_seat_use use,
                                                           loch_guard *out);

/** Begins a guard that sets the current stream of the current seat (NULL: the context's own stream) and makes the
 *  seat's device current in the calling thread. The stream is borrowed and must outlive the guard. E_INVALID: it
 *  belongs to another device. On failure nothing changes.
 *  @param out  the guard; end it with loch_guard_end. All zero on failure. */
LOCH_API LOCH_MUST_USE loch_status loch_context_begin_stream(loch_context *context, loch_stream *stream,
                                                             loch_guard *out);

/** Begins a guard that sets the debug level of the context. The level is 0 at first.
 *  @param out  the guard; end it with loch_guard_end. All zero on failure. */
LOCH_API LOCH_MUST_USE loch_status loch_context_begin_debug(loch_context *context, int level, loch_guard *out);

/** Begins a guard that forbids moving in the pool that new tensors come from now (loch_pool_forbid_moving). The end
 *  of the guard allows moving in that same pool again. With direct memory it changes nothing.
 *  @param out  the guard; end it with loch_guard_end. All zero on failure. */
LOCH_API LOCH_MUST_USE loch_status loch_context_begin_still(loch_context *context, loch_guard *out);

/** Ends a guard and restores what it changed. Does nothing for an all-zero guard, a guard that has ended, a guard of
 *  a closed context, and on another thread. The error record of the thread is not changed. */
LOCH_API void loch_guard_end(loch_guard *guard);

/** Returns the debug level of a context. The program uses it to print more. 0 from another thread. */
LOCH_API int loch_context_get_debug(const loch_context *context);

/** Begins a guard that lasts to the end of the block: LOCH_GUARD(status, seat, context, LOCH_SEAT(1),
 *  LOCH_SEAT_PLAIN). `status` receives the result. LOCH_GUARD_RETURN(seat, ...) checks it: a failure returns from the
 *  present function, as LOCH_RETURN does. LOCH_GUARD_CHECK(seat, ...) ends the program, as LOCH_CHECK does. Needs GCC
 *  or Clang. C only. */
#if defined(__GNUC__) && !defined(__cplusplus)
#define LOCH_GUARD(status, kind, ...) LOCH_GUARD_AS((status) =, loch_context_begin_##kind, __VA_ARGS__)
#define LOCH_GUARD_RETURN(kind, ...) LOCH_GUARD_AS(LOCH_RETURN, loch_context_begin_##kind, __VA_ARGS__)
#define LOCH_GUARD_CHECK(kind, ...) LOCH_GUARD_AS(LOCH_CHECK, loch_context_begin_##kind, __VA_ARGS__)
#define LOCH_GUARD_AS(use, begin, ...) LOCH_GUARD_NAMED(LOCH_UNIQUE(loch_guard_at_), use, begin, __VA_ARGS__)
#define LOCH_GUARD_NAMED(guard, use, begin, ...)                                                                       \
    __attribute__((cleanup(loch_guard_end), unused)) loch_guard guard = {0};                                           \
    use(begin(__VA_ARGS__, &guard))
#endif

/** @} */
/** @name Parameters
 *  A parameter is declared without memory and loaded later, as a whole or in parts, on one device or spread over
 *  several. */
/** @{ */

/** A parameter. Reference counted. It belongs to no thread, but only one thread at a time may load it. */
typedef struct loch_parameter loch_parameter;

/** How a parameter lies on the seats of its context. */
typedef enum loch_spread {
    LOCH_SPREAD_ONE,    /**< on the seat that is current at the declaration */
    LOCH_SPREAD_COPIES, /**< a full copy on every seat */
    LOCH_SPREAD_PARTS   /**< cut along an axis, one part on each seat, as equal as possible, larger parts first */
} loch_spread;

/** Declares a parameter. No memory is allocated.
 *  @param axis  axis of the cut for LOCH_SPREAD_PARTS; a negative axis counts from the end
 *  @param tag   tag for the statistics; 0 for the tag of the context
 *  @param out   the caller's reference; give it back with loch_parameter_release. NULL on failure. */
LOCH_API LOCH_MUST_USE loch_status loch_context_declare(loch_context *context, const char *name, loch_dtype dtype,
                                                        size_t dimensions, const int64_t *shape, loch_spread spread,
                                                        int axis, loch_tag tag, loch_parameter **out);

/** Loads a whole parameter: allocates its memory if it has none, copies a host tensor of the same shape into it,
 *  converted to its type, on all its seats, and waits on the host. The memory comes from each seat's own pool, not
 *  from a pushed one. On failure, memory allocated by this call is freed, and the elements it was to write count as
 *  not loaded. E_INVALID: the host cannot access `from`, the shapes differ, or the parameter belongs to another
 *  engine. E_NOT_FOUND: the parameter lies on a seat that the context does not have. */
LOCH_API LOCH_MUST_USE loch_status loch_context_load(loch_context *context, loch_parameter *parameter,
                                                     loch_tensor *from);

/** Loads a part of a parameter: the elements from index `start` on along `axis`, copied from a host tensor, and waits
 *  on the host. The parameter is complete when all elements were loaded; overlapping parts count once. Until then all
 *  parts must use one axis: E_INVALID for another. E_OUT_OF_RANGE: the part does not lie inside the parameter. Other
 *  statuses are those of loch_context_load. */
LOCH_API LOCH_MUST_USE loch_status loch_context_load_part(loch_context *context, loch_parameter *parameter, int axis,
                                                          int64_t start, loch_tensor *from);

/** Acquires the tensor of a parameter on a seat: all of it or its part. E_NOT_FOUND: nothing of the parameter lies on
 *  the seat (for example on the last seats, if there are more seats than elements along the axis). E_BUSY: the
 *  parameter is not completely loaded.
 *  @param out  the caller's reference; give it back with loch_tensor_release. NULL on failure. */
LOCH_API LOCH_MUST_USE loch_status loch_parameter_acquire_tensor(const loch_parameter *parameter, loch_seat seat,
                                                                 loch_tensor **out);

/** Returns the name of a parameter. Borrowed. NULL returns "". */
LOCH_API const char *loch_parameter_get_name(const loch_parameter *parameter);

/** Takes another reference on a parameter and returns `parameter`. Give each reference back with
 *  loch_parameter_release. NULL returns NULL. Any thread. */
LOCH_API loch_parameter *loch_parameter_retain(loch_parameter *parameter);

/** Releases one reference on a parameter. The last release releases its tensors. NULL does nothing. Any thread. */
LOCH_API void loch_parameter_release(loch_parameter *parameter);
LOCH_DEFINE_CLEAR(parameter, loch_parameter_release(object))

/** @} */

LOCH_END_DECLS

#endif

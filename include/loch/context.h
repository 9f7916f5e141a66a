/* SPDX-License-Identifier: MIT */
/** @file context.h
 *  A context: what one thread works with on an engine: its current device and stream, the pool that tensors come from, parameters, and
 *  copies on other devices.
 *
 *  A context belongs to the thread that made it: every call from another is E_WRONG_THREAD (or NULL, or a seat with the number UINT_MAX),
 *  and changes nothing. It is ended by that thread, too, before the thread ends. An engine has as many contexts as it likes. Tensors that
 *  come from a context are ordinary ones, may be used by any thread, and stay valid after it and after its engine.
 */
#ifndef LOCH_CONTEXT_H
#define LOCH_CONTEXT_H

#include <loch/child.h>
#include <loch/engine.h>
#include <loch/tensor.h>

LOCH_BEGIN_DECLS

/** A context. Only the thread that made it may use it. */
typedef struct loch_context loch_context;

/** How a context is made; zero means default, NULL all defaults. */
typedef struct loch_context_options {
    size_t size;            /**< sizeof(loch_context_options) */
    const char *name;       /**< for people; copied; NULL: "context" */
    const loch_seat *seats; /**< the seats that it may use; the first is current; NULL: all */
    size_t seats_count;     /**< entries of `seats` */
    uint32_t flags;         /**< for all tensors: LOCH_ALLOC_MOVABLE, LOCH_ALLOC_ZEROED (direct memory does not move) */
    loch_tag tag;           /**< for all tensors, unless the call names another */
} loch_context_options;

/** Makes a context for the calling thread. Each seat gets a stream of the context's own when it is first used.
 *  @param out  the caller's, ended by loch_context_close; NULL on failure */
LOCH_API LOCH_MUST_USE loch_status loch_context_open(loch_engine *engine, const loch_context_options *options,
                                                     loch_context **out);

/** Ends a context: guards are undone, pools popped, streams given back when their work has ended, cached copies dropped.
 *  E_WRONG_THREAD; then it lives on. NULL does nothing. */
LOCH_API LOCH_MUST_USE loch_status loch_context_close(loch_context *context);

/** @name Where work is done */
/** @{ */

/** The engine. Borrowed. */
LOCH_API loch_engine *loch_context_get_engine(const loch_context *context);

/** The current seat. */
LOCH_API loch_seat loch_context_get_seat(const loch_context *context);

/** The device of the current seat. Borrowed. */
LOCH_API loch_device *loch_context_get_device(const loch_context *context);

/** The current stream of the current seat: the context's own, made on first use, until another is set. Borrowed. */
LOCH_API LOCH_MUST_USE loch_status loch_context_require_stream(loch_context *context, loch_stream **out);

/** Makes a seat of the context the current one. E_NOT_FOUND for one that it does not have. */
LOCH_API LOCH_MUST_USE loch_status loch_context_set_seat(loch_context *context, loch_seat seat);

/** Makes a stream of the current device the current one of the seat, for this context alone; NULL: its own again. Not retained. */
LOCH_API LOCH_MUST_USE loch_status loch_context_set_stream(loch_context *context, loch_stream *stream);

/** The cuBLAS handle of the current seat, working on the current stream; made on first use. Borrowed. E_UNSUPPORTED. */
LOCH_API LOCH_MUST_USE loch_status loch_context_require_cublas(loch_context *context, loch_cublas **out);

/** @} */
/** @name Guards: what they change is as it was before when they end. They nest, and the last one begun is ended first: ending one ends
 *  those begun after it, too. As pairs, or as LOCH_GUARD to the end of the block.
 *
 *  Inside a guard of a seat or of a stream the device is current in the calling thread, too: work that the caller queues by plain CUDA,
 *  or another library does by the CUDA runtime, lands on it. At the end the CUDA context that was current before is again, whatever was
 *  made current meanwhile. A seat of the CPU leaves it alone, and so does every call outside of guards, loch_context_set_seat among
 *  them. */
/** @{ */

/** A guard that is held; all zero for none. */
typedef struct loch_guard {
    loch_context *context; /**< NULL: none */
    uint64_t number;       /**< which */
} loch_guard;

/** Whether a guard on a seat locks it for other threads. */
typedef enum loch_seat_use {
    LOCH_SEAT_PLAIN, /**< current seat and device only */
    LOCH_SEAT_LOCKED /**< and the engine's lock on the seat is held */
} loch_seat_use;

LOCH_API LOCH_MUST_USE loch_status loch_context_begin_seat(loch_context *context, loch_seat seat, loch_seat_use use,
                                                           loch_guard *out);
LOCH_API LOCH_MUST_USE loch_status loch_context_begin_stream(loch_context *context, loch_stream *stream,
                                                             loch_guard *out);

/** Sets the context's debug level, which is 0 at first. */
LOCH_API LOCH_MUST_USE loch_status loch_context_begin_debug(loch_context *context, int level, loch_guard *out);

/** Forbids moving in the pool that tensors come from now, whatever is current when the guard ends. */
LOCH_API LOCH_MUST_USE loch_status loch_context_begin_still(loch_context *context, loch_guard *out);

/** Ends a guard; one that is all zero, has ended, or whose context has, does nothing, and neither does another thread. The thread's error
 *  record stays. */
LOCH_API void loch_guard_end(loch_guard *guard);

/** The present debug level: for the program to print more. */
LOCH_API int loch_context_get_debug(const loch_context *context);

/** Begins a guard that lasts to the end of the block: LOCH_GUARD(status, seat, context, LOCH_SEAT(1), LOCH_SEAT_PLAIN). Needs GCC or
 *  Clang. */
#if defined(__GNUC__) && !defined(__cplusplus)
#define LOCH_GUARD(status, kind, ...)                                                                                  \
    __attribute__((cleanup(loch_guard_end), unused)) loch_guard LOCH_GUARD_NAME(__LINE__) = {0};                       \
    (status) = loch_context_begin_##kind(__VA_ARGS__, &LOCH_GUARD_NAME(__LINE__))
#define LOCH_GUARD_NAME(line) LOCH_GUARD_JOIN(loch_guard_at_, line)
#define LOCH_GUARD_JOIN(a, b) a##b
#endif

/** @} */
/** @name Memory */
/** @{ */

/** What tensors of the current seat come from: the top pool of the stack if it is used, else the seat's own. Borrowed. */
LOCH_API loch_allocator *loch_context_get_allocator(const loch_context *context);

/** Reserves a child of the current seat's own pool and puts it on the seat's stack, used from now on. Its stream, when it needs one and
 *  none is given, is the current one. With direct memory it is a limit. @param child  borrowed, valid until it is popped; may be NULL */
LOCH_API LOCH_MUST_USE loch_status loch_context_push_pool(loch_context *context, const char *name,
                                                          const loch_child_options *options, loch_allocator **child);

/** Where new tensors come from. */
typedef enum loch_context_pool {
    LOCH_CONTEXT_POOL_SEAT, /**< the seat's own pool */
    LOCH_CONTEXT_POOL_STACK /**< the top pool of the seat's stack, if there is one */
} loch_context_pool;

/** Chooses where new tensors of the current seat come from. E_INVALID. */
LOCH_API LOCH_MUST_USE loch_status loch_context_use_pool(loch_context *context, loch_context_pool pool);

/** Takes the top pool off the current seat's stack; blocks of it stay valid, and what was used before it was pushed, the stack or the
 *  seat's own pool, is used again. E_NOT_FOUND when the stack is empty. */
LOCH_API LOCH_MUST_USE loch_status loch_context_pop_pool(loch_context *context);

/** Makes a tensor on the current seat, in the order of the current stream. @param name  for people; may be NULL
 *  @param tag  0: the context's */
LOCH_API LOCH_MUST_USE loch_status loch_context_create_tensor(loch_context *context, loch_dtype dtype,
                                                              size_t dimensions, const int64_t *shape, const char *name,
                                                              loch_tag tag, loch_tensor **out);

/** The same with the contents of host memory, which is read before the call returns. */
LOCH_API LOCH_MUST_USE loch_status loch_context_create_from(loch_context *context, loch_dtype dtype, size_t dimensions,
                                                            const int64_t *shape, const void *data, const char *name,
                                                            loch_tag tag, loch_tensor **out);

/** The tensor on the current device: itself when it is there, else a copy, row after row, queued on the current stream and kept. A kept
 *  copy is found again by what the tensor shows (its buffer, offset, shape, strides, type) while the buffer lives and its version is the same
 *  (loch_buffer_get_version); it is dropped when either changes, when somebody writes into it, and before an allocation of the context
 *  fails for want of memory. It lies in the seat's own pool, whatever is on the stack.
 *  The copy comes behind what the context has queued on its streams of the tensor's device (its own ones and those that are set), and
 *  before what it will queue there, unless they are captured; work of others is the caller's to order. Found on another stream than it was made on, it is waited for on the device. While the current stream is
 *  captured, a copy is captured with it, and not kept. @param out  the caller's reference */
LOCH_API LOCH_MUST_USE loch_status loch_context_acquire_copy(loch_context *context, loch_tensor *tensor,
                                                             loch_tensor **out);

/** Drops all kept copies. @return how many bytes they had */
LOCH_API size_t loch_context_drop_copies(loch_context *context);

/** What a context has. */
typedef struct loch_context_stats {
    size_t size;       /**< set by the caller to sizeof(loch_context_stats) */
    size_t tensors;    /**< buffers of tensors that came from the context and live; parameters that it loaded, too */
    size_t used_bytes; /**< in them */
    size_t peak_bytes; /**< the most at a time */
    size_t copies;     /**< kept on other devices */
    size_t copy_bytes; /**< in those; not in the figures above */
} loch_context_stats;

/** Reads it. */
LOCH_API LOCH_MUST_USE loch_status loch_context_get_stats(const loch_context *context, loch_context_stats *out);

/** Compacts the pool that tensors come from now, on the current stream unless the options name another. Direct memory has nothing to
 *  move: LOCH_OK. */
LOCH_API LOCH_MUST_USE loch_status loch_context_compact(loch_context *context, const loch_compact_options *options,
                                                        loch_compact_report *report);

/** @} */
/** @name Parameters: declared without memory, loaded later, whole or in parts, on one device or spread over several */
/** @{ */

/** A parameter. Counted; belongs to no thread, but is loaded by one at a time. */
typedef struct loch_parameter loch_parameter;

/** How a parameter lies on the seats of its context. */
typedef enum loch_spread {
    LOCH_SPREAD_ONE,    /**< on the seat that is current when it is declared */
    LOCH_SPREAD_COPIES, /**< whole on every seat */
    LOCH_SPREAD_PARTS   /**< cut along an axis, a part on each seat: as even as it goes, larger ones first */
} loch_spread;

/** Declares a parameter; no memory is taken. @param axis  of LOCH_SPREAD_PARTS; negative ones count from the end
 *  @param out  the caller's reference, given back by loch_parameter_release; NULL on failure */
LOCH_API LOCH_MUST_USE loch_status loch_context_declare(loch_context *context, const char *name, loch_dtype dtype,
                                                        size_t dimensions, const int64_t *shape, loch_spread spread,
                                                        int axis, loch_tag tag, loch_parameter **out);

/** Takes its memory, if it has none yet, and copies all of a host tensor of the same shape into it, converted to its type, wherever it
 *  lies. Waits. Memory is of each seat's own pool, whatever is on the stack. A load that fails leaves no memory that was not there before,
 *  and what it was to write counts as not loaded. E_INVALID for memory that the host does not reach, and for a parameter of another
 *  engine; E_NOT_FOUND when it lies on a seat that the context does not have. */
LOCH_API LOCH_MUST_USE loch_status loch_context_load(loch_context *context, loch_parameter *parameter,
                                                     loch_tensor *from);

/** The same for the part from index `start` along `axis` on. A parameter is complete when all of it was loaded; parts that overlap
 *  count once. Until then all parts go along one axis: E_INVALID for another. E_OUT_OF_RANGE. */
LOCH_API LOCH_MUST_USE loch_status loch_context_load_part(loch_context *context, loch_parameter *parameter, int axis,
                                                          int64_t start, loch_tensor *from);

/** Takes another reference; returns `parameter`. NULL gives NULL. Any thread. */
LOCH_API loch_parameter *loch_parameter_retain(loch_parameter *parameter);

/** Gives a reference back. NULL does nothing. Any thread. */
LOCH_API void loch_parameter_release(loch_parameter *parameter);

/** The name. Borrowed. */
LOCH_API const char *loch_parameter_get_name(const loch_parameter *parameter);

/** Non-zero when all of it was loaded. */
LOCH_API int loch_parameter_is_loaded(const loch_parameter *parameter);

/** What lies on a seat: all of it or a part. E_NOT_FOUND when nothing is there, as on the last seats when there are more of them than
 *  there is to cut; E_BUSY before it is loaded completely.
 *  @param out  the caller's reference */
LOCH_API LOCH_MUST_USE loch_status loch_parameter_acquire_tensor(const loch_parameter *parameter, loch_seat seat,
                                                                 loch_tensor **out);

/** @} */

LOCH_END_DECLS

#endif

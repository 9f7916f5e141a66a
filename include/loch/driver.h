/* SPDX-License-Identifier: MIT */
/** @file driver.h
 *  What a new kind of device has to supply: one table of functions.
 *
 *  A table is checked once, when it is registered, and copied. Slots marked "optional" may be NULL and are filled then:
 *  with one that returns E_UNSUPPORTED, or, for streams and events, with ones for a device whose work is done when the
 *  call returns. So callers never test a slot. A device may claim a capability (loch_device_properties.capabilities)
 *  only if all slots of that group are there; loch_device_open checks it.
 *
 *  What a driver may rely on: arguments are checked before they reach it. Pointers are not NULL unless said; sizes are
 *  not zero; sizes and addresses of the virtual group are multiples of the granule and lie in one reservation, what is
 *  unmapped was mapped as a whole; alignments are powers of two or 0. `self` is what `open` made. Slots are called from
 *  any thread, several at a time, with cancellation of the thread (pthread_cancel) disabled.
 *
 *  What it promises: a status from loch_error_set with its own code and a sentence; nothing changed after a failure;
 *  the caller's own current device or context as it was, but for `enter` and `leave`; no abort, no print. Out of device memory is E_DEVICE_MEMORY,
 *  out of host memory E_HOST_MEMORY, a device that will not answer any more E_DEVICE_LOST.
 */
#ifndef LOCH_DRIVER_H
#define LOCH_DRIVER_H

#include <loch/copy.h>
#include <loch/device.h>
#include <loch/raw.h>
#include <loch/stream.h>
#include <loch/virtual.h>

LOCH_BEGIN_DECLS

/** Every driver call that is counted, by name. `access` is the opening of a mapping for one device; `map` makes one of
 *  them for its own device and one for each peer. New names go to the end. */
#define LOCH_DRIVER_CALLS(X)                                                                                           \
    X(memory_info)                                                                                                     \
    X(raw_alloc)                                                                                                       \
    X(raw_free)                                                                                                        \
    X(pinned_alloc)                                                                                                    \
    X(pinned_free)                                                                                                     \
    X(managed_alloc)                                                                                                   \
    X(managed_free)                                                                                                    \
    X(host_register)                                                                                                   \
    X(host_unregister)                                                                                                 \
    X(ordered_alloc)                                                                                                   \
    X(ordered_free)                                                                                                    \
    X(reserve)                                                                                                         \
    X(unreserve)                                                                                                       \
    X(handle_create)                                                                                                   \
    X(handle_release)                                                                                                  \
    X(handle_export)                                                                                                   \
    X(handle_import)                                                                                                   \
    X(map)                                                                                                             \
    X(access)                                                                                                          \
    X(unmap)                                                                                                           \
    X(remap)                                                                                                           \
    X(commit)                                                                                                          \
    X(decommit)                                                                                                        \
    X(copy)                                                                                                            \
    X(fill)                                                                                                            \
    X(stream_create)                                                                                                   \
    X(stream_destroy)                                                                                                  \
    X(stream_query)                                                                                                    \
    X(stream_sync)                                                                                                     \
    X(stream_wait)                                                                                                     \
    X(stream_call)                                                                                                     \
    X(stream_capture)                                                                                                  \
    X(event_create)                                                                                                    \
    X(event_destroy)                                                                                                   \
    X(event_record)                                                                                                    \
    X(event_query)                                                                                                     \
    X(event_sync)                                                                                                      \
    X(event_elapsed)                                                                                                   \
    X(peer_enable)                                                                                                     \
    X(device_sync)                                                                                                     \
    X(address_query)                                                                                                   \
    X(copy_pitched)                                                                                                    \
    X(protect)                                                                                                         \
    X(enter)                                                                                                           \
    X(leave)

/** Numbers of the driver calls: LOCH_CALL_map and so on. */
typedef enum loch_driver_call {
#define LOCH_DRIVER_CALL_ENUM(name) LOCH_CALL_##name,
    LOCH_DRIVER_CALLS(LOCH_DRIVER_CALL_ENUM)
#undef LOCH_DRIVER_CALL_ENUM
        LOCH_CALL_COUNT
} loch_driver_call;

/** A driver's handle to physical memory. */
typedef uint64_t loch_driver_handle;

/** The table. Streams and events are the driver's own handles; stream NULL is the default stream. */
typedef struct loch_driver {
    size_t size;         /**< sizeof(loch_driver) */
    const char *name;    /**< what stands before the colon of a device name: at most 15 letters, digits, underscores */
    const char *summary; /**< one line for `loch info` */

    /* --- identity --- */

    /** optional: visits the arguments ("0", "1", "") of the devices that are there. */
    loch_status (*enumerate)(loch_device_visitor *visitor, void *user);
    /** Opens the device that `arguments` names ("" when there was no colon). Must not open devices of Loch itself; a
     *  driver that builds on another calls that one's slots. */
    loch_status (*open)(const char *arguments, void **self);
    /** Closes it; everything taken from it has been given back. */
    void (*close)(void *self);
    /** Fills the properties; `out` is zeroed but for its size. */
    loch_status (*get_properties)(void *self, loch_device_properties *out);
    /** Memory now. */
    loch_status (*memory_info)(void *self, loch_memory_info *out);

    /* --- raw memory --- */

    loch_status (*raw_alloc)(void *self, size_t bytes, size_t alignment, void **out);
    loch_status (*raw_free)(void *self, void *address, size_t bytes);
    /** optional: LOCH_CAN_PINNED. */
    loch_status (*pinned_alloc)(void *self, size_t bytes, size_t alignment, void **out);
    loch_status (*pinned_free)(void *self, void *address, size_t bytes);
    /** optional: LOCH_CAN_MANAGED. */
    loch_status (*managed_alloc)(void *self, size_t bytes, size_t alignment, void **out);
    loch_status (*managed_free)(void *self, void *address, size_t bytes);
    /** optional: LOCH_CAN_REGISTER. */
    loch_status (*host_register)(void *self, void *address, size_t bytes);
    loch_status (*host_unregister)(void *self, void *address, size_t bytes);
    /** optional: LOCH_CAN_ORDERED, the driver's own stream-ordered allocator. */
    loch_status (*ordered_alloc)(void *self, size_t bytes, void *stream, void **out);
    loch_status (*ordered_free)(void *self, void *address, size_t bytes, void *stream);

    /* --- virtual memory, optional: LOCH_CAN_VIRTUAL --- */

    loch_status (*reserve)(void *self, size_t bytes, size_t alignment, void **out);
    loch_status (*unreserve)(void *self, void *address, size_t bytes);
    loch_status (*handle_create)(void *self, size_t bytes, const loch_handle_options *options, loch_driver_handle *out);
    /** The memory goes when every mapping has gone too. */
    loch_status (*handle_release)(void *self, loch_driver_handle handle, size_t bytes);
    /** Maps and opens for itself and for the `peers` (their `self`). */
    loch_status (*map)(void *self, void *address, size_t bytes, loch_driver_handle handle, void *const *peers,
                       size_t peers_count);
    loch_status (*unmap)(void *self, void *address, size_t bytes, loch_driver_handle handle);
    /** optional: LOCH_CAN_REMAP. */
    loch_status (*remap)(void *self, void *from, void *to, size_t bytes, loch_driver_handle handle);
    /** optional: LOCH_CAN_COMMIT. */
    loch_status (*commit)(void *self, void *address, size_t bytes);
    loch_status (*decommit)(void *self, void *address, size_t bytes);
    /** optional: LOCH_CAN_SHARE_FD or LOCH_CAN_SHARE_FABRIC. */
    loch_status (*handle_export)(void *self, loch_driver_handle handle, loch_share share, void *out);
    loch_status (*handle_import)(void *self, loch_share share, const void *shared, size_t bytes,
                                 loch_driver_handle *out);

    /* --- copies --- */

    /** Queues a copy on `stream`. The direction is any but DEDUCED; HOST_TO_HOST only for LOCH_CAN_HOST_ACCESS. `peer` is the `self` of the source for PEER_TO_PEER and NULL otherwise. Source and target do not overlap unless
     *  the device has LOCH_CAN_HOST_ACCESS. */
    loch_status (*copy)(void *self, loch_direction direction, void *to, const void *from, size_t bytes, void *peer,
                        void *stream);
    /** Queues a fill; address and bytes are multiples of `pattern_bytes`, which is 1, 2 or 4. */
    loch_status (*fill)(void *self, void *to, size_t bytes, uint32_t pattern, size_t pattern_bytes, void *stream);

    /* --- streams and events, optional as one group: LOCH_CAN_ASYNC --- */

    loch_status (*stream_create)(void *self, const loch_stream_options *options, void **out);
    loch_status (*stream_destroy)(void *self, void *stream);
    /** The calling thread's default stream, given back by stream_destroy when the thread or the device ends; NULL when
     *  it is the device's default one. */
    loch_status (*stream_thread_default)(void *self, void **out);
    /** Checks a caller's handle before it is wrapped; gives in `out` the handle to use. */
    loch_status (*stream_wrap)(void *self, void *native, void **out);
    loch_status (*stream_query)(void *self, void *stream);
    loch_status (*stream_sync)(void *self, void *stream);
    loch_status (*stream_wait)(void *self, void *stream, void *event);
    loch_status (*stream_call)(void *self, void *stream, loch_stream_function *function, void *user);
    loch_status (*event_create)(void *self, loch_event_kind kind, void **out);
    loch_status (*event_destroy)(void *self, void *event);
    loch_status (*event_record)(void *self, void *event, void *stream);
    loch_status (*event_query)(void *self, void *event);
    loch_status (*event_sync)(void *self, void *event);
    loch_status (*event_elapsed)(void *self, void *start, void *end, uint64_t *out_ns);
    loch_status (*device_sync)(void *self);
    /** optional: LOCH_CAN_CAPTURE. Default: never captured. */
    loch_status (*stream_capture)(void *self, void *stream, loch_capture_info *out);

    /* --- peers, optional: LOCH_CAN_PEER --- */

    loch_status (*peer_enable)(void *self, void *peer);

    /* --- insight, optional --- */

    /** Recognises memory that somebody else took from this driver: E_NOT_FOUND when it is not the device's. Fills kind,
     *  base and bytes. Called under a lock: must not call Loch. Default: E_NOT_FOUND. */
    loch_status (*address_query)(void *self, const void *address, loch_address_info *out);
    /** Replaces the measured times of driver calls by modelled ones. Default: keeps them. */
    void (*call_costs)(void *self, uint64_t ns[LOCH_CALL_COUNT]);

    /* --- added later --- */

    /** optional: queues a copy of at least two rows on `stream`; otherwise as `copy`. Rows and planes are not zero, pitches
     *  hold what lies between them, and are set where there is one row or one plane too. No byte is both read and written
     *  unless the device has LOCH_CAN_HOST_ACCESS: then the two pitches of both sides are equal and all is as if the
     *  source had been read first. Default: E_UNSUPPORTED; Loch then calls `copy` for each row. */
    loch_status (*copy_pitched)(void *self, loch_direction direction, void *to, const void *from,
                                const loch_pitched *shape, void *peer, void *stream);
    /** optional: makes whole pages of memory that the host reaches read-only for it, or writable again. Multiples
     *  of 4 KiB. Default: E_UNSUPPORTED. */
    loch_status (*protect)(void *self, void *address, size_t bytes, loch_access access);
    /** optional, as a pair: `enter` makes the device current in the calling thread, for work that the thread queues by the
     *  driver's own interface, and gives in `before` what was current; NULL may stand for none. `leave` makes that current
     *  again, whatever the thread has made current meanwhile; its `self` may be another device of the driver. Guards of
     *  contexts, workers and locks of engines call them. Default: nothing is current, nothing is done. */
    loch_status (*enter)(void *self, void **before);
    loch_status (*leave)(void *self, void *before);
    /** optional: called in the child of a fork, once for each open device, alone, before any other call. Must not call Loch but
     *  for loch_error_set. LOCH_OK: the device works on in the child, with memory of its own. E_FORKED: it does not, and
     *  the driver knows: from then on it answers E_FORKED, but gives back without a failure. Default: E_FORKED, and
     *  Loch answers so in the driver's place and does not call it again for this device, not even `close`. */
    loch_status (*forked)(void *self);
} loch_driver;

/** Registers a driver for the life of the process: checks the table, copies it (not the strings, which have to stay).
 *  E_EXISTS for a name that is taken, E_INVALID for a bad name or a needed slot that is missing. Any thread. */
LOCH_API LOCH_MUST_USE loch_status loch_driver_register(const loch_driver *driver);

/** Finds a driver by name, its empty slots filled; NULL when there is none. Static for the life of the process. A driver
 *  of one's own may call the slots of another to build on it. Any thread. */
LOCH_API const loch_driver *loch_driver_find(const char *name);

/** Called with each driver. A return other than LOCH_OK ends the walk and becomes its result. */
typedef loch_status loch_driver_visitor(const loch_driver *driver, void *user);

/** Walks the drivers in order of registration, the built-in ones first. Any thread. */
LOCH_API LOCH_MUST_USE loch_status loch_driver_walk(loch_driver_visitor *visitor, void *user);

/** "map" for LOCH_CALL_map; NULL past the end. Static string. */
LOCH_API const char *loch_driver_call_name(loch_driver_call call);

/** The driver that a device was opened with, and its `self`, for drivers that need their own devices back. Borrowed. */
LOCH_API const loch_driver *loch_device_get_driver(const loch_device *device, void **self);

LOCH_END_DECLS

#endif

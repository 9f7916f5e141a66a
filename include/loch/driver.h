/* SPDX-License-Identifier: MIT */
/** @file driver.h
 *  Drivers: what a new kind of device must supply. A driver is one table of functions (loch_driver).
 *
 *  The table is checked once, at registration, and copied. Slots marked "optional" may be NULL. They are filled with
 *  a function that returns E_UNSUPPORTED, or, for streams and events, with functions for a device whose work is done
 *  when the call returns. So no caller tests a slot. A device may report a capability
 *  (loch_device_properties.capabilities) only if all slots of that group are there; loch_device_open checks this.
 *
 *  Loch guarantees to a driver: arguments are checked. Pointers are not NULL unless stated. Sizes are not 0. Sizes
 *  and addresses of the virtual group are multiples of the granule and lie in one reservation; what is unmapped was
 *  mapped as a whole. Alignments are powers of two or 0. `self` is the object that `open` created. Slots are called
 *  from any thread, from several at a time, with pthread_cancel disabled.
 *
 *  A driver guarantees to Loch: a failure is reported by loch_error_set with the driver's own code and a sentence,
 *  and changes nothing. The device or context that is current in the calling thread is not changed, except by `enter`
 *  and `leave`. No abort, no printing. Out of device memory is E_DEVICE_MEMORY, out of host memory E_HOST_MEMORY, a
 *  device that no longer responds E_DEVICE_LOST.
 */
#ifndef LOCH_DRIVER_H
#define LOCH_DRIVER_H

#include <loch/copy.h>
#include <loch/device.h>
#include <loch/dtype.h>
#include <loch/raw.h>
#include <loch/stream.h>
#include <loch/virtual.h>

LOCH_BEGIN_DECLS

/** @name Driver calls */
/** @{ */

/** The list of all counted driver calls, by name. `access` opens a mapping for one device: `map` makes one such call
 *  for its own device and one for each peer. New names go to the end. */
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
    X(leave)                                                                                                           \
    X(copy_strided)                                                                                                    \
    X(fill_strided)                                                                                                    \
    X(discard)

/** Numbers of the driver calls: LOCH_CALL_map and so on. */
typedef enum loch_driver_call {
#define LOCH_DRIVER_CALL_ENUM(name) LOCH_CALL_##name,
    LOCH_DRIVER_CALLS(LOCH_DRIVER_CALL_ENUM)
#undef LOCH_DRIVER_CALL_ENUM
        LOCH_CALL_COUNT
} loch_driver_call;

/** Returns the name of a driver call: "map" for LOCH_CALL_map; NULL for a number that is not in the list. Static
 *  string. */
LOCH_API const char *loch_driver_call_name(loch_driver_call call);

/** @} */
/** @name The table */
/** @{ */

/** The driver's own handle of physical memory. */
typedef uint64_t loch_driver_handle;

/** Whether the first axis of a loch_strided is chosen by indices. */
typedef enum loch_indexing {
    LOCH_INDEXING_NONE,
    LOCH_INDEXING_GATHER, /**< row i of the target is row indices[i] of the source, or zero if that is out of range */
    LOCH_INDEXING_SCATTER /**< row indices[i] of the target is row i of the source; left out if that is out of range */
} loch_indexing;

/** Elements of two layouts of one shape, for copy_strided and fill_strided. Axes of size 1 are left out, axes that
 *  continue each other are one, and the target's strides fall from the first axis to the last: its longest stride comes
 *  first. There is at least one axis, and no size is 0. */
typedef struct loch_strided {
    size_t size;      /**< sizeof(loch_strided) */
    void *to;         /**< first element of the target, which the strides start from */
    const void *from; /**< first element of the source; NULL for a fill */
    loch_dtype to_type, from_type;
    loch_overflow overflow; /**< what a conversion to an f8 type does with numbers out of range */
    size_t axes;
    size_t sizes[LOCH_DIMENSIONS_MAX];
    ptrdiff_t to_strides[LOCH_DIMENSIONS_MAX];   /**< in bytes, not negative; no two elements share memory */
    ptrdiff_t from_strides[LOCH_DIMENSIONS_MAX]; /**< in bytes; may be negative or 0 */
    unsigned char element[8];                    /**< of a fill: an element of the target's type */
    /** Does all of the work at once in the calling thread. For a driver whose memory the host can access: it may keep a
     *  copy of the struct, and call this when its stream has come so far. Calls nothing that can fail or wait. */
    void (*run)(const struct loch_strided *work);
    /** Rows by index: there are sizes[0] indices, and the strides of the first axis go from row to row. The types are
     *  equal. The other axes are contiguous on both sides, or there are none. */
    loch_indexing indexing;
    loch_dtype index_type;  /**< LOCH_I32 or LOCH_I64; the members below are not set without indexing */
    const void *indices;    /**< in memory of the device */
    ptrdiff_t index_stride; /**< in bytes */
    size_t index_limit;     /**< indices are at least 0 and below it */
} loch_strided;

/** The table of a driver. Streams and events are the driver's own handles; a NULL stream is the default stream. */
typedef struct loch_driver {
    size_t size; /**< sizeof(loch_driver) */
    /** Name of the driver, before the colon of a device name: at most 15 letters, digits and underscores. */
    const char *name;
    const char *summary; /**< one line for `loch info` */

    /* --- identity --- */

    /** Optional: visits the arguments ("0", "1", "") of all devices of this machine. */
    loch_status (*enumerate)(loch_device_visitor *visitor, void *user);
    /** Opens the device that `arguments` names ("" without a colon). Must not open devices of Loch; a driver that
     *  builds on another calls the slots of that driver. */
    loch_status (*open)(const char *arguments, void **self);
    /** Closes a device. Everything taken from it was given back before. */
    void (*close)(void *self);
    /** Fills in the properties. `out` is zeroed except for its size. */
    loch_status (*get_properties)(void *self, loch_device_properties *out);
    /** Reads the total and the free memory now. */
    loch_status (*memory_info)(void *self, loch_memory_info *out);

    /* --- raw memory --- */

    /** Allocates one block of device memory. Alignment 0 means the device's own. */
    loch_status (*raw_alloc)(void *self, size_t bytes, size_t alignment, void **out);
    /** Frees a block of raw_alloc; `bytes` is its size. */
    loch_status (*raw_free)(void *self, void *address, size_t bytes);
    /** Optional, LOCH_CAN_PINNED: allocates page-locked host memory. */
    loch_status (*pinned_alloc)(void *self, size_t bytes, size_t alignment, void **out);
    /** Optional, LOCH_CAN_PINNED: frees a block of pinned_alloc. */
    loch_status (*pinned_free)(void *self, void *address, size_t bytes);
    /** Optional, LOCH_CAN_MANAGED: allocates memory that migrates between host and device. */
    loch_status (*managed_alloc)(void *self, size_t bytes, size_t alignment, void **out);
    /** Optional, LOCH_CAN_MANAGED: frees a block of managed_alloc. */
    loch_status (*managed_free)(void *self, void *address, size_t bytes);
    /** Optional, LOCH_CAN_REGISTER: page-locks host memory of the caller. */
    loch_status (*host_register)(void *self, void *address, size_t bytes);
    /** Optional, LOCH_CAN_REGISTER: undoes host_register. */
    loch_status (*host_unregister)(void *self, void *address, size_t bytes);
    /** Optional, LOCH_CAN_ORDERED: allocates from the driver's own stream-ordered allocator. */
    loch_status (*ordered_alloc)(void *self, size_t bytes, void *stream, void **out);
    /** Optional, LOCH_CAN_ORDERED: frees a block of ordered_alloc, ordered on `stream`. */
    loch_status (*ordered_free)(void *self, void *address, size_t bytes, void *stream);

    /* --- virtual memory, optional: LOCH_CAN_VIRTUAL --- */

    /** Reserves addresses without memory. */
    loch_status (*reserve)(void *self, size_t bytes, size_t alignment, void **out);
    /** Gives a reservation back. */
    loch_status (*unreserve)(void *self, void *address, size_t bytes);
    /** Creates a handle: allocates physical memory. */
    loch_status (*handle_create)(void *self, size_t bytes, const loch_handle_options *options, loch_driver_handle *out);
    /** Releases a handle. The memory is freed when its last mapping is removed too. */
    loch_status (*handle_release)(void *self, loch_driver_handle handle, size_t bytes);
    /** Maps a handle and opens the mapping for its own device and for `peers` (the `self` of each). */
    loch_status (*map)(void *self, void *address, size_t bytes, loch_driver_handle handle, void *const *peers,
                       size_t peers_count);
    /** Removes a mapping. */
    loch_status (*unmap)(void *self, void *address, size_t bytes, loch_driver_handle handle);
    /** Optional, LOCH_CAN_REMAP: moves a mapping with its contents to another address. */
    loch_status (*remap)(void *self, void *from, void *to, size_t bytes, loch_driver_handle handle);
    /** Optional, LOCH_CAN_SHARE_FD or LOCH_CAN_SHARE_FABRIC: writes the data that another process needs to import a
     *  handle. */
    loch_status (*handle_export)(void *self, loch_driver_handle handle, loch_share share, void *out);
    /** Optional, LOCH_CAN_SHARE_FD or LOCH_CAN_SHARE_FABRIC: creates a handle from exported data. */
    loch_status (*handle_import)(void *self, loch_share share, const void *shared, size_t bytes,
                                 loch_driver_handle *out);

    /* --- copies --- */

    /** Queues a copy on `stream`. The direction is never LOCH_DIRECTION_DEDUCED, and LOCH_HOST_TO_HOST only with
     *  LOCH_CAN_HOST_ACCESS. `peer` is the `self` of the source for LOCH_PEER_TO_PEER, otherwise NULL. Source and
     *  target do not overlap unless the device has LOCH_CAN_HOST_ACCESS. */
    loch_status (*copy)(void *self, loch_direction direction, void *to, const void *from, size_t bytes, void *peer,
                        void *stream);
    /** Queues a fill on `stream`. Address and bytes are multiples of `pattern_bytes`, which is 1, 2 or 4. */
    loch_status (*fill)(void *self, void *to, size_t bytes, uint32_t pattern, size_t pattern_bytes, void *stream);

    /* --- streams and events, optional as one group: LOCH_CAN_ASYNC --- */

    /** Creates a stream. */
    loch_status (*stream_create)(void *self, const loch_stream_options *options, void **out);
    /** Destroys a stream. Work already queued runs to its end. */
    loch_status (*stream_destroy)(void *self, void *stream);
    /** Returns the default stream of the calling thread; NULL if it is the default stream of the device. Given back
     *  by stream_destroy when the thread or the device ends. */
    loch_status (*stream_thread_default)(void *self, void **out);
    /** Checks a caller's queue before it is wrapped, and returns the handle to use in `out`; NULL for the default
     *  stream of the device. A driver that makes the handle for this call frees it in stream_unwrap. */
    loch_status (*stream_wrap)(void *self, void *native, void **out);
    /** Returns LOCH_OK if all work queued on a stream has ended, E_BUSY if not. */
    loch_status (*stream_query)(void *self, void *stream);
    /** Waits on the host for the work queued on a stream. */
    loch_status (*stream_sync)(void *self, void *stream);
    /** Makes later work on a stream wait for an event on the device. */
    loch_status (*stream_wait)(void *self, void *stream, void *event);
    /** Queues a call of a host function on a stream. */
    loch_status (*stream_call)(void *self, void *stream, loch_stream_function *function, void *user);
    /** Creates an event. */
    loch_status (*event_create)(void *self, loch_event_kind kind, void **out);
    /** Destroys an event. */
    loch_status (*event_destroy)(void *self, void *event);
    /** Records an event on a stream. */
    loch_status (*event_record)(void *self, void *event, void *stream);
    /** Returns LOCH_OK if the mark of an event has passed, E_BUSY if not. */
    loch_status (*event_query)(void *self, void *event);
    /** Waits on the host for the mark of an event. */
    loch_status (*event_sync)(void *self, void *event);
    /** Computes the nanoseconds between two timed events. */
    loch_status (*event_elapsed)(void *self, void *start, void *end, uint64_t *out_ns);
    /** Waits on the host for all work of the device. */
    loch_status (*device_sync)(void *self);
    /** Optional, LOCH_CAN_CAPTURE: reads the capture state of a stream. Default: never captured. */
    loch_status (*stream_capture)(void *self, void *stream, loch_capture_info *out);

    /* --- peers, optional: LOCH_CAN_PEER --- */

    /** Lets the device access memory of `peer` (the `self` of another device of the driver). */
    loch_status (*peer_enable)(void *self, void *peer);

    /* --- information, optional --- */

    /** Recognises memory of the device that another library allocated, and fills in kind, base and bytes; E_NOT_FOUND
     *  if the memory is not the device's; E_FOREIGN if no device of the driver has it, so that its other devices need
     *  not be asked. Called with a lock held: must not call Loch. Default: is not asked. */
    loch_status (*address_query)(void *self, const void *address, loch_address_info *out);
    /** Replaces the measured times of driver calls by modelled ones. Default: changes nothing. */
    void (*call_costs)(void *self, uint64_t ns[LOCH_CALL_COUNT]);

    /* --- added later --- */

    /** Optional: queues a copy of at least two rows on `stream`. Directions and `peer` are those of `copy`. Rows and
     *  planes are not 0; pitches are at least the length of the row or plane, and are set for one row or one plane
     *  too. No byte is both read and written, unless the device has LOCH_CAN_HOST_ACCESS: then the pitches of source
     *  and target are equal, and the result is as if the whole source had been read first. Default: E_UNSUPPORTED;
     *  Loch then calls `copy` for each row. */
    loch_status (*copy_pitched)(void *self, loch_direction direction, void *to, const void *from,
                                const loch_pitched *shape, void *peer, void *stream);
    /** Optional: makes whole pages of memory read-only for the host, or writable again. Address and bytes are
     *  multiples of 4 KiB. Default: E_UNSUPPORTED. */
    loch_status (*protect)(void *self, void *address, size_t bytes, loch_access access);
    /** Optional, together with leave: makes the device current in the calling thread, for work that the thread queues
     *  with the driver's own interface. Returns in `before` what was current; may be NULL for none. Guards of
     *  contexts, workers and locks of engines call it. Default: does nothing. */
    loch_status (*enter)(void *self, void **before);
    /** Optional, together with enter: makes `before` current again, whatever was made current in between. `self` may
     *  be another device of the driver. Default: does nothing. */
    loch_status (*leave)(void *self, void *before);
    /** Optional: called in the child of a fork, once for each open device, before any other call and on the only
     *  thread. Must not call Loch except loch_error_set. LOCH_OK: the device works in the child, with memory of its
     *  own. E_FORKED: it does not, and the driver itself returns E_FORKED from then on, and gives memory back without
     *  a failure. Default: E_FORKED; Loch then answers E_FORKED itself and does not call the driver again for this
     *  device, not even `close`. */
    loch_status (*forked)(void *self);
    /** Optional: reads a clock in nanoseconds, by which the time of driver calls is measured. A device whose calls have
     *  modelled costs adds them. Must not call Loch. Default: the host's clock. */
    uint64_t (*now_ns)(void *self);
    /** Optional: returns the device's own queue of a stream that stream_create or stream_wrap returned, for callers of
     *  loch_stream_get_native. For drivers whose handles of streams are structs of their own. Must not call Loch
     *  and contains no cancellation point. Default: returns `stream`. */
    void *(*stream_native)(void *self, void *stream);
    /** Optional: frees what stream_wrap made. Called once for each handle that stream_wrap returned, when its wrapper
     *  ends; work may still be queued. Not called for NULL and for the handle of stream_thread_default. The caller's
     *  queue stays. Default: does nothing. */
    void (*stream_unwrap)(void *self, void *stream);
    /** Optional: queues a copy of elements between two layouts inside the device on `stream`, with conversion if the
     *  types differ. The results are those of loch_convert, bit for bit. No byte is both read and written. `work` is
     *  valid during the call only. A driver that cannot do this copy returns E_UNSUPPORTED, and needs no sentence for
     *  it: Loch then goes through pitched copies or the host. Default: E_UNSUPPORTED. */
    loch_status (*copy_strided)(void *self, const loch_strided *work, void *stream);
    /** Optional: queues a fill of a layout with one element on `stream`. Answers and default are those of
     *  copy_strided. */
    loch_status (*fill_strided)(void *self, const loch_strided *work, void *stream);
    /** Optional: gives the physical memory of mapped pages back to the system. They stay usable: their contents are
     *  lost, or stay as they were, and a page takes memory again when it is written. Address and bytes are multiples
     *  of the host's pages. Default: E_UNSUPPORTED. */
    loch_status (*discard)(void *self, void *address, size_t bytes);
} loch_driver;

/** @} */
/** @name Registration */
/** @{ */

/** Registers a driver until the process ends: checks the table and copies it. The strings are not copied and must
 *  stay valid. E_EXISTS: the name is taken. E_INVALID: the name is not valid, or a required slot is missing. Any
 *  thread. */
LOCH_API LOCH_MUST_USE loch_status loch_driver_register(const loch_driver *driver);

/** Returns the table of a driver by name, with empty slots filled; NULL if there is none. Valid until the process
 *  ends. A driver may call the slots of another driver to build on it. Any thread. */
LOCH_API const loch_driver *loch_driver_find(const char *name);

/** Receives the table of one driver. A return value other than LOCH_OK ends the walk and becomes its result. */
typedef loch_status loch_driver_visitor(const loch_driver *driver, void *user);

/** Walks the drivers in order of registration, built-in ones first. Any thread. */
LOCH_API LOCH_MUST_USE loch_status loch_driver_walk(loch_driver_visitor *visitor, void *user);

/** Returns the driver of a device, and its `self` in `self`, for drivers that need their own devices. Borrowed. A
 *  NULL device returns NULL. */
LOCH_API const loch_driver *loch_device_get_driver(const loch_device *device, void **self);

/** @} */

LOCH_END_DECLS

#endif

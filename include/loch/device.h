/* SPDX-License-Identifier: MIT */
/** @file device.h
 *  A device is a place where memory lives, with the streams that work on it: "cpu", "cuda:0", "sim:80GiB".
 *
 *  Devices are counted. A name names one device: opening it twice gives the same object. Streams, events, handles and
 *  memory taken from a device keep it alive, so it may be released before them.
 */
#ifndef LOCH_DEVICE_H
#define LOCH_DEVICE_H

#include <loch/status.h>

LOCH_BEGIN_DECLS

/** An open device. */
typedef struct loch_device loch_device;

/** What a device can do; loch_device_properties.capabilities is a set of these. */
typedef enum loch_capability {
    LOCH_CAN_HOST_ACCESS = 1 << 0,   /**< the host may read and write its addresses */
    LOCH_CAN_PINNED = 1 << 1,        /**< page-locked host memory */
    LOCH_CAN_REGISTER = 1 << 2,      /**< page-locking a caller's host memory */
    LOCH_CAN_MANAGED = 1 << 3,       /**< memory that migrates between host and device */
    LOCH_CAN_VIRTUAL = 1 << 4,       /**< reserve addresses, create handles, map them */
    LOCH_CAN_ALIAS = 1 << 5,         /**< one handle mapped at two addresses at once */
    LOCH_CAN_REMAP = 1 << 6,         /**< a mapping taken from one address to another in one call */
    LOCH_CAN_COMMIT = 1 << 7,        /**< memory put under reserved addresses and taken away, without handles */
    LOCH_CAN_ORDERED = 1 << 8,       /**< the driver's own stream-ordered allocator */
    LOCH_CAN_ASYNC = 1 << 9,         /**< work on a stream goes on after the call returns */
    LOCH_CAN_TIMING = 1 << 10,       /**< events that measure the device's time */
    LOCH_CAN_CAPTURE = 1 << 11,      /**< streams can be captured into a graph */
    LOCH_CAN_PEER = 1 << 12,         /**< may map and copy from other devices of its kind */
    LOCH_CAN_RDMA = 1 << 13,         /**< handles that a network card can reach */
    LOCH_CAN_SHARE_FD = 1 << 14,     /**< handles that other processes import by file descriptor */
    LOCH_CAN_SHARE_FABRIC = 1 << 15, /**< handles that other hosts import over a fabric */
    LOCH_CAN_HUGE_PAGES = 1 << 16,   /**< huge pages behind host memory */
    LOCH_CAN_NUMA = 1 << 17          /**< memory bound to one node */
} loch_capability;

/** The longest device name, with its final zero. */
#define LOCH_DEVICE_NAME_MAX 256

/** What does not change while a device is open. Zero or "" where it has no meaning. */
typedef struct loch_device_properties {
    size_t size;            /**< set by the caller to sizeof(loch_device_properties) */
    char driver[16];        /**< "cpu", "cuda", "sim", or another driver's name */
    char model[128];        /**< for people: "NVIDIA H200" */
    uint32_t capabilities;  /**< set of loch_capability */
    int index;              /**< number among its driver's devices */
    int numa_node;          /**< the node its memory is bound or nearest to, -1 for none */
    size_t total_bytes;     /**< all of its memory, limits of the process's control group respected */
    size_t granule_bytes;   /**< unit of handles, mappings and reservations, a power of two; 0 without virtual memory */
    size_t alignment_bytes; /**< what every raw block is aligned to at least */
    size_t mapping_limit;   /**< mappings that the system allows the process, 0 for no limit */
    int compute_major;      /**< compute capability */
    int compute_minor;      /**< compute capability, behind the dot */
    int multiprocessors;    /**< processors (CPU: those that the process may run on) */
    size_t l2_bytes;        /**< the last cache shared by all of them */
    size_t shared_bytes;    /**< shared memory of one multiprocessor */
    char bus_id[32];        /**< "0000:1b:00.0" */
    char driver_version[32]; /**< "13.0" */
} loch_device_properties;

/** Memory of a device now. */
typedef struct loch_memory_info {
    size_t size;        /**< set by the caller to sizeof(loch_memory_info) */
    size_t total_bytes; /**< as in the properties */
    size_t free_bytes;  /**< what could be taken now, by this or any other process */
} loch_memory_info;

/** Opens a device by name, or takes another reference on one that is open.
 *
 *  "cpu", "cpu:numa1", "cuda" (the same as "cuda:0"), "cuda:1", "sim:8GiB", "sim:8GiB,granule=2MiB,backed", or
 *  "NAME" and "NAME:ARGUMENTS" of a driver that was registered. E_INVALID for a name that cannot be read, E_NOT_FOUND
 *  for a driver or a device that is not there, E_UNSUPPORTED for one too old; the error record says what to do.
 *  @param out  the caller's reference, given back by loch_device_release; NULL on failure. Any thread. */
LOCH_API LOCH_MUST_USE loch_status loch_device_open(const char *name, loch_device **out);

/** Takes another reference; returns `device`. NULL gives NULL. Any thread. */
LOCH_API loch_device *loch_device_retain(loch_device *device);

/** Gives a reference back; the last one closes the device. NULL does nothing. Any thread. */
LOCH_API void loch_device_release(loch_device *device);

/** Called with each device's name; a return other than LOCH_OK ends the walk and becomes its result. */
typedef loch_status loch_device_visitor(const char *name, void *user);

/** Walks the names of the devices that this machine has and that loch_device_open would open: first the CPU and its
 *  nodes, then those of every driver in order of registration. Simulated devices are not there until they are opened,
 *  so they are not listed. A driver whose software is missing has no devices. Any thread. */
LOCH_API LOCH_MUST_USE loch_status loch_device_walk(loch_device_visitor *visitor, void *user);

/** The name that the device was opened by. Borrowed from the device. Any thread. */
LOCH_API const char *loch_device_get_name(const loch_device *device);

/** Copies what does not change. `out->size` has to be set; members beyond it are not written. Any thread. */
LOCH_API LOCH_MUST_USE loch_status loch_device_get_properties(const loch_device *device, loch_device_properties *out);

/** Non-zero if the device has every capability of the set. Any thread. */
LOCH_API int loch_device_can(const loch_device *device, uint32_t capabilities);

/** Asks for the memory that is free now: a driver call. Any thread. */
LOCH_API LOCH_MUST_USE loch_status loch_device_calculate_memory(loch_device *device, loch_memory_info *out);

/** Waits on the host until all work queued on the device has ended. Any thread. */
LOCH_API LOCH_MUST_USE loch_status loch_device_sync(loch_device *device);

/** Lets `device` reach memory of `peer` by copies and raw addresses. E_UNSUPPORTED when the two are not connected.
 *  Mapped memory is opened to peers when it is mapped. Calling it again does nothing. Any thread. */
LOCH_API LOCH_MUST_USE loch_status loch_device_enable_peer(loch_device *device, loch_device *peer);

/** How often one driver call was made on a device, and the time that it took. */
typedef struct loch_call_count {
    const char *name; /**< "map", "event_record": static string */
    uint64_t count;   /**< calls */
    uint64_t ns;      /**< time: measured when measuring is on; on sim the modelled cost, always */
    uint64_t real_ns; /**< time that the calls took here, while measuring is on; the same as `ns` but on sim */
} loch_call_count;

/** Called with the counter of each driver call. A return other than LOCH_OK ends the walk and becomes its result. */
typedef loch_status loch_call_visitor(const loch_call_count *count, void *user);

/** Walks the counters of all driver calls, in a fixed order, those of calls never made too. Calls under way may be missing. Any
 *  thread. */
LOCH_API LOCH_MUST_USE loch_status loch_device_walk_calls(loch_device *device, loch_call_visitor *visitor, void *user);

/** What loch_device_measure_calls does. */
typedef enum loch_measure {
    LOCH_MEASURE_OFF, /**< count only (default) */
    LOCH_MEASURE_ON   /**< read the clock around every driver call */
} loch_measure;

/** Switches the measuring of driver calls; sets all counters and times to zero. Any thread. */
LOCH_API LOCH_MUST_USE loch_status loch_device_measure_calls(loch_device *device, loch_measure measure);

LOCH_END_DECLS

#endif

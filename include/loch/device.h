/* SPDX-License-Identifier: MIT */
/** @file device.h
 *  A device is a place where memory lives, with the streams that work on it: "cpu", "cuda:0", "sim:80GiB".
 *
 *      loch_device *device;
 *      LOCH_CHECK(loch_device_open("cuda:0", &device));
 *      ...
 *      loch_device_release(device);
 *
 *  Devices are reference counted. One name is one device: opening it twice gives the same object. Streams, events,
 *  handles and memory of a device keep the device open, so its reference may be released before them.
 */
#ifndef LOCH_DEVICE_H
#define LOCH_DEVICE_H

#include <loch/status.h>

LOCH_BEGIN_DECLS

/** An open device. Reference counted. Any thread. */
typedef struct loch_device loch_device;

/** @name Open and release */
/** @{ */

/** Opens a device by name, or takes another reference on a device that is open already. Any thread.
 *
 *  Names: "cpu", "cpu:numa1", "cuda" (short for "cuda:0"), "cuda:1", "sim:8GiB", "sim:8GiB,granule=64KiB", and
 *  "NAME" or "NAME:ARGUMENTS" of a registered driver (driver.h). E_INVALID: the name cannot be parsed. E_NOT_FOUND:
 *  the driver or the device is not on this machine. E_UNSUPPORTED: the driver or the device is too old, or the
 *  system lets no process bind memory to the NUMA node. The sentence of the error record says what to do.
 *  @param out  the caller's reference; give it back with loch_device_release. NULL on failure. */
LOCH_API LOCH_MUST_USE loch_status loch_device_open(const char *name, loch_device **out);

/** Takes another reference on a device and returns `device`. Give each reference back with loch_device_release. NULL
 *  returns NULL. Any thread. */
LOCH_API loch_device *loch_device_retain(loch_device *device);

/** Releases one reference on a device. The last release closes the device. NULL does nothing. Any thread. */
LOCH_API void loch_device_release(loch_device *device);

/** Receives the name of one device. `name` is valid during the call. A return value other than LOCH_OK ends the walk
 *  and becomes its result. */
typedef loch_status loch_device_visitor(const char *name, void *user);

/** Walks the names of all devices of this machine that loch_device_open can open: first the CPU and its NUMA nodes,
 *  then the devices of each driver in order of registration. Simulated devices are not listed: they exist only once
 *  they are opened. A driver whose software is not installed lists no devices. Any thread. */
LOCH_API LOCH_MUST_USE loch_status loch_device_walk(loch_device_visitor *visitor, void *user);

/** @} */
/** @name Properties */
/** @{ */

/** The longest device name in bytes, including the final zero. */
#define LOCH_DEVICE_NAME_MAX 256

/** What a device can do. loch_device_properties.capabilities is a set of these bits. */
typedef enum loch_capability {
    LOCH_CAN_HOST_ACCESS = 1 << 0,   /**< the host may read and write addresses of the device */
    LOCH_CAN_PINNED = 1 << 1,        /**< page-locked host memory */
    LOCH_CAN_REGISTER = 1 << 2,      /**< page-locking of host memory that the caller owns */
    LOCH_CAN_MANAGED = 1 << 3,       /**< memory that migrates between host and device */
    LOCH_CAN_VIRTUAL = 1 << 4,       /**< reserving addresses, creating handles and mapping them (virtual.h) */
    LOCH_CAN_ALIAS = 1 << 5,         /**< one handle mapped at two addresses at once */
    LOCH_CAN_REMAP = 1 << 6,         /**< moving a mapping to another address in one call */
    LOCH_CAN_ORDERED = 1 << 8,       /**< a stream-ordered allocator in the driver */
    LOCH_CAN_ASYNC = 1 << 9,         /**< work on a stream continues after the call returns */
    LOCH_CAN_TIMING = 1 << 10,       /**< events that measure time on the device */
    LOCH_CAN_CAPTURE = 1 << 11,      /**< capturing streams into graphs */
    LOCH_CAN_PEER = 1 << 12,         /**< mapping and copying memory of other devices of the same driver */
    LOCH_CAN_RDMA = 1 << 13,         /**< handles that a network card can access */
    LOCH_CAN_SHARE_FD = 1 << 14,     /**< handles that other processes import by file descriptor */
    LOCH_CAN_SHARE_FABRIC = 1 << 15, /**< handles that other hosts import over a fabric */
    LOCH_CAN_HUGE_PAGES = 1 << 16,   /**< huge pages for host memory */
    LOCH_CAN_NUMA = 1 << 17          /**< memory bound to one NUMA node */
} loch_capability;

/** Properties that do not change while a device is open. A member is 0 or "" where the device has no such property. */
typedef struct loch_device_properties {
    size_t size;           /**< set by the caller to sizeof(loch_device_properties) */
    char driver[16];       /**< name of the driver: "cpu", "cuda", "sim" or a registered one */
    char model[128];       /**< model name for people: "NVIDIA H200" */
    uint32_t capabilities; /**< set of loch_capability */
    int index;             /**< number of the device within its driver */
    int numa_node;         /**< NUMA node that the memory is bound or nearest to; -1 for none */
    size_t total_bytes;    /**< size of all memory in bytes; the limit of the process's control group is respected */
    /** Unit of handles, mappings and reservations in bytes, a power of two; 0 without LOCH_CAN_VIRTUAL. */
    size_t granule_bytes;
    size_t alignment_bytes;  /**< alignment in bytes that every raw block has at least */
    size_t mapping_limit;    /**< number of mappings that the system allows this process; 0 for no limit */
    int compute_major;       /**< compute capability, major number */
    int compute_minor;       /**< compute capability, minor number */
    int multiprocessors;     /**< number of multiprocessors; on the CPU, of processors that the process may run on */
    size_t l2_bytes;         /**< size of the last-level cache in bytes */
    size_t shared_bytes;     /**< shared memory of one multiprocessor in bytes */
    char bus_id[32];         /**< PCI bus id: "0000:1b:00.0" */
    char driver_version[32]; /**< version of the vendor's driver: "13.0" */
} loch_device_properties;

/** Returns the name that a device was opened with. Borrowed from the device. NULL returns "". Any thread. */
LOCH_API const char *loch_device_get_name(const loch_device *device);

/** Copies the properties of a device to `out`. Set `out->size` before the call; members beyond that size are not
 *  written. E_INVALID: the size is not set. Any thread. */
LOCH_API LOCH_MUST_USE loch_status loch_device_get_properties(const loch_device *device, loch_device_properties *out);

/** Returns non-zero if the device has every capability in the set `capabilities`. A NULL device returns 0. Any
 *  thread. */
LOCH_API int loch_device_can(const loch_device *device, uint32_t capabilities);

/** Memory of a device at this moment. */
typedef struct loch_memory_info {
    size_t size;        /**< set by the caller to sizeof(loch_memory_info) */
    size_t total_bytes; /**< size of all memory in bytes, as in loch_device_properties */
    size_t free_bytes;  /**< bytes that this or any other process could allocate now */
} loch_memory_info;

/** Reads the total and the free memory of a device now. Makes a driver call. Set `out->size` before the call. Any
 *  thread. */
LOCH_API LOCH_MUST_USE loch_status loch_device_calculate_memory(loch_device *device, loch_memory_info *out);

/** @} */
/** @name Work on a device */
/** @{ */

/** Waits on the host until all work queued on the device has ended. Any thread. */
LOCH_API LOCH_MUST_USE loch_status loch_device_sync(loch_device *device);

/** Lets `device` access memory of `peer` by copies and by raw addresses. A second call for the same pair does
 *  nothing. Mapped memory is opened to peers by loch_virtual_map instead. E_UNSUPPORTED: the two devices are not
 *  connected. Any thread. */
LOCH_API LOCH_MUST_USE loch_status loch_device_enable_peer(loch_device *device, loch_device *peer);

/** @} */
/** @name Counters of driver calls */
/** @{ */

/** The counter of one driver call on one device. */
typedef struct loch_call_count {
    const char *name; /**< name of the driver call: "map", "event_record"; static string */
    uint64_t count;   /**< number of calls */
    /** Time in nanoseconds: measured while measuring is on; on a simulated device always the modelled cost. */
    uint64_t ns;
    /** Measured time in nanoseconds while measuring is on; differs from `ns` on simulated devices only. */
    uint64_t real_ns;
} loch_call_count;

/** Receives the counter of one driver call. A return value other than LOCH_OK ends the walk and becomes its result. */
typedef loch_status loch_call_visitor(const loch_call_count *count, void *user);

/** Walks the counters of all driver calls in a fixed order, including calls never made. A call in progress on another
 *  thread may not be counted yet. Any thread. */
LOCH_API LOCH_MUST_USE loch_status loch_device_walk_calls(loch_device *device, loch_call_visitor *visitor, void *user);

/** Whether calls are measured. */
typedef enum loch_measure {
    LOCH_MEASURE_OFF, /**< calls are counted but not timed (default) */
    LOCH_MEASURE_ON   /**< the clock is read before and after every call */
} loch_measure;

/** Turns the timing of driver calls on or off for a device, and sets all its counters and times to zero. Any thread. */
LOCH_API LOCH_MUST_USE loch_status loch_device_measure_calls(loch_device *device, loch_measure measure);

/** @} */

/** Kinds of memory. */
typedef enum loch_memory_kind {
    LOCH_MEMORY_DEVICE,     /**< the device's own memory; on the CPU plain host memory */
    LOCH_MEMORY_PINNED,     /**< page-locked host memory that the device reads and writes directly */
    LOCH_MEMORY_MANAGED,    /**< memory that migrates between host and device */
    LOCH_MEMORY_REGISTERED, /**< host memory of the caller that was page-locked; result of a query only */
    LOCH_MEMORY_HOST        /**< host memory that no device knows; result of a query only */
} loch_memory_kind;

/** Whether memory may be written. */
typedef enum loch_access {
    LOCH_READ_WRITE, /**< may be read and written */
    LOCH_READ_ONLY   /**< may be read only; copies and fills into it give E_INVALID */
} loch_access;

/** Returns the name of a kind of memory: "device", "pinned", "managed", "registered", "host"; "unknown" for any other
 *  number. Static string. */
LOCH_API const char *loch_memory_kind_name(loch_memory_kind kind);

LOCH_END_DECLS

#endif

/* SPDX-License-Identifier: MIT */
/** @file sim.h
 *  Simulated devices: control of time, kernels, faults and costs, and the checker of stream order.
 *
 *  "sim:SIZE[,OPTION...]" opens a simulated device. It supports and refuses what CUDA supports and refuses, without a
 *  GPU:
 *
 *  | option | meaning | default |
 *  |---|---|---|
 *  | `granule=BYTES` | unit of handles | 2MiB |
 *  | `unbacked` | addresses without contents, for replays and large numbers | contents |
 *  | `backed` | contents that the host may also touch without a copy, which no GPU allows: for tests | |
 *  | `clock=seeded`, `clock=stepped` | time advances randomly at each driver call, or only by the calls here | seeded |
 *  | `seed=N` | seed of the random numbers; the same seed gives the same run | 1 |
 *  | `lag=NANOSECONDS` | duration of queued copies, fills and kernels without a duration | 2000 |
 *  | `event_lag=NANOSECONDS` | least time from the record of an event to its passing, as after queued work | 0 |
 *  | `costs=FILE` | table of the costs of driver calls | that of an H200 |
 *  | `check=on`, `check=off` | the checker of stream order | on |
 *  | `virtual=off`, `alias=off`, `async=off`, `capture=off` | a device that supports less | on |
 *  | `id=N` | a further device with otherwise equal options | 0 |
 *
 *  Time is simulated. An operation on a stream starts when the operation before it and the events it waits for have
 *  ended. It has ended once the clock of the device has passed its end. Waiting on the host moves the clock there.
 *  Copies, fills and kernels take effect at their end, in the order of their ends, as on a real device. Memory
 *  has contents: zeros, until a copy, a fill or a kernel writes to it. They take memory of the host only where they
 *  were used, so a device may be larger than the host; work that needs more than the host has free returns
 *  E_HOST_MEMORY and is not queued. Unbacked memory has no contents. Writes to it (copies, fills) are checked and timed
 *  and move nothing; what would read contents (a copy to the host or to memory with contents) returns E_UNSUPPORTED.
 *
 *  All calls here work from any thread, and return E_INVALID for a device or stream that is not simulated.
 */
#ifndef LOCH_SIM_H
#define LOCH_SIM_H

#include <loch/driver.h>

LOCH_BEGIN_DECLS

/** @name Time */
/** @{ */

/** Reads the clock of a simulated device, in nanoseconds. */
LOCH_API LOCH_MUST_USE loch_status loch_sim_get_time(loch_device *device, uint64_t *out_ns);

/** Advances the clock by `ns` nanoseconds. Operations that end on the way take effect. */
LOCH_API LOCH_MUST_USE loch_status loch_sim_advance(loch_device *device, uint64_t ns);

/** Sets the clock to `ns` nanoseconds. E_INVALID: that time is in the past. */
LOCH_API LOCH_MUST_USE loch_status loch_sim_set_time(loch_device *device, uint64_t ns);

/** Advances the clock until the next `operations` operations on a stream have ended; all operations if there are
 *  fewer. */
LOCH_API LOCH_MUST_USE loch_status loch_sim_step(loch_stream *stream, size_t operations);

/** @} */
/** @name Kernels */
/** @{ */

/** A range of device memory. */
typedef struct loch_sim_range {
    const void *address; /**< start of the range */
    size_t bytes;        /**< length in bytes */
} loch_sim_range;

/** A simulated kernel. */
typedef struct loch_sim_kernel {
    size_t size;                  /**< sizeof(loch_sim_kernel) */
    const char *name;             /**< name in reports; copied; may be NULL */
    const loch_sim_range *reads;  /**< ranges that the kernel reads; copied */
    size_t reads_count;           /**< number of entries in `reads` */
    const loch_sim_range *writes; /**< ranges that the kernel writes; copied */
    size_t writes_count;          /**< number of entries in `writes` */
    uint64_t duration_ns;         /**< duration in nanoseconds; 0 for the lag of the device */
    /** Called on the host at the end of the kernel, not on an unbacked device; may be NULL; must not call
     *  Loch. It may touch the ranges that the kernel names. */
    loch_stream_function *run;
    void *user; /**< passed to `run`; must stay valid until then */
} loch_sim_kernel;

/** Queues a simulated kernel on a stream. E_OUT_OF_RANGE: a range is not mapped memory of the device; nothing changes
 *  (a real device would lose its context). */
LOCH_API LOCH_MUST_USE loch_status loch_sim_launch(loch_stream *stream, const loch_sim_kernel *kernel);

/** @} */
/** @name Figures */
/** @{ */

/** Figures of a simulated device. */
typedef struct loch_sim_stats {
    size_t size;                /**< set by the caller to sizeof(loch_sim_stats) */
    size_t physical_bytes;      /**< bytes in raw memory and handles now; each handle counts once */
    size_t physical_peak_bytes; /**< most bytes in raw memory and handles */
    size_t reserved_bytes;      /**< bytes of reserved addresses */
    size_t pinned_bytes;        /**< bytes of pinned host memory */
    size_t handles;             /**< number of handles */
    size_t mappings;            /**< number of mappings */
    size_t streams;             /**< number of streams */
    size_t events;              /**< number of events */
    size_t pending;             /**< number of operations that have not ended */
    uint64_t calls;             /**< number of driver calls so far; faults count these */
    uint64_t modelled_ns;       /**< modelled cost of all driver calls in nanoseconds */
    size_t violations;          /**< number of violations that the checker found */
} loch_sim_stats;

/** Reads the figures of a simulated device. Set `out->size` before the call. */
LOCH_API LOCH_MUST_USE loch_status loch_sim_get_stats(loch_device *device, loch_sim_stats *out);

/** @} */
/** @name Faults */
/** @{ */

/** How long a fault lasts. */
typedef enum loch_sim_fault_mode {
    LOCH_SIM_FAULT_ONCE,   /**< one call fails */
    LOCH_SIM_FAULT_FOREVER /**< the call and all later calls with its name fail */
} loch_sim_fault_mode;

/** A fault to inject. Calls that give something back never fail by injection, as in CUDA unless the device is lost:
 *  they are counted and skipped. */
typedef struct loch_sim_fault {
    size_t size;              /**< sizeof(loch_sim_fault) */
    const char *call;         /**< name of a driver call ("handle_create"); NULL for any */
    uint64_t after;           /**< number of matching calls that succeed first */
    loch_sim_fault_mode mode; /**< how long the fault lasts */
    /** Status of the failing call; LOCH_OK means E_DRIVER, or E_DEVICE_MEMORY for allocations. */
    loch_status status;
} loch_sim_fault;

/** Sets the fault of a simulated device and replaces an earlier one. NULL removes it. */
LOCH_API LOCH_MUST_USE loch_status loch_sim_set_fault(loch_device *device, const loch_sim_fault *fault);

/** Makes a simulated device lost: every call returns E_DEVICE_LOST from now on, as after an illegal write by a
 *  kernel. Giving back still works. */
LOCH_API LOCH_MUST_USE loch_status loch_sim_lose(loch_device *device);

/** @} */
/** @name Checker of stream order */
/** @{ */

/** Kinds of violations. */
typedef enum loch_sim_violation_kind {
    /** Two streams used the same memory without an order between them, and at least one wrote. */
    LOCH_SIM_UNORDERED,
    LOCH_SIM_GONE_IN_USE, /**< memory was freed or unmapped while queued work still used it */
    LOCH_SIM_OVERLAP      /**< source and target of a copy overlap, which CUDA does not define */
} loch_sim_violation_kind;

/** One violation. The address is that of the later use. */
typedef struct loch_sim_violation {
    loch_sim_violation_kind kind; /**< kind of violation */
    const void *address;          /**< first byte concerned */
    size_t bytes;                 /**< number of bytes concerned */
    /** Number (loch_sim_get_stream_number) of the stream of the later use; 0 for the host. */
    uint64_t stream;
    uint64_t other_stream; /**< number of the stream of the earlier use */
    char text[160];        /**< one sentence */
} loch_sim_violation;

/** Receives one violation. A return value other than LOCH_OK ends the walk and becomes its result. */
typedef loch_status loch_sim_violation_visitor(const loch_sim_violation *violation, void *user);

/** Walks the violations, oldest first. The first 64 are kept; all are counted (loch_sim_stats). */
LOCH_API LOCH_MUST_USE loch_status loch_sim_walk_violations(loch_device *device, loch_sim_violation_visitor *visitor,
                                                            void *user);

/** Removes all violations of a simulated device. */
LOCH_API LOCH_MUST_USE loch_status loch_sim_clear_violations(loch_device *device);

/** Returns the number that violations use for a stream in `out`. Each device numbers its streams in order of
 *  creation; its default stream is 1. */
LOCH_API LOCH_MUST_USE loch_status loch_sim_get_stream_number(loch_stream *stream, uint64_t *out);

/** @} */
/** @name Graphs */
/** @{ */

/** A graph: operations captured from streams. */
typedef struct loch_sim_graph loch_sim_graph;

/** Begins a capture on a stream. Work queued on it, and on streams that wait for its events, is recorded and not
 *  run. */
LOCH_API LOCH_MUST_USE loch_status loch_sim_capture_begin(loch_stream *stream);

/** Ends the capture that was begun on `stream`. E_DRIVER, no graph: something illegal happened during the capture.
 *  @param out  owned by the caller; destroy it with loch_sim_graph_destroy. NULL on failure. */
LOCH_API LOCH_MUST_USE loch_status loch_sim_capture_end(loch_stream *stream, loch_sim_graph **out);

/** Queues all operations of a graph on a stream. E_OUT_OF_RANGE: memory that the graph uses is no longer mapped. */
LOCH_API LOCH_MUST_USE loch_status loch_sim_graph_launch(loch_sim_graph *graph, loch_stream *stream);

/** Destroys a graph. NULL does nothing. */
LOCH_API void loch_sim_graph_destroy(loch_sim_graph *graph);
LOCH_DEFINE_CLEAR(sim_graph, loch_sim_graph_destroy(object))

/** @} */

LOCH_END_DECLS

#endif

/* SPDX-License-Identifier: MIT */
/** @file sim.h
 *  Control of simulated devices: time, kernels, faults, costs, and the checker of stream order.
 *
 *  "sim:SIZE[,OPTION...]" opens one. It can and refuses what CUDA can and refuses, without a GPU:
 *
 *  | option | meaning | default |
 *  |---|---|---|
 *  | `granule=BYTES` | unit of handles | 2MiB |
 *  | `backed`, `unbacked` | memory that can be copied and read, or bare numbers that no machine maps | unbacked |
 *  | `clock=seeded`, `clock=stepped` | time moves by chance at every driver call, or only when told to | seeded |
 *  | `seed=N` | where chance starts; the same seed gives the same run | 1 |
 *  | `lag=NANOSECONDS` | how long queued copies, fills and kernels without a duration take | 2000 |
 *  | `event_lag=NANOSECONDS` | an event passes that long after it was recorded at the earliest, as behind a queue of work | 0 |
 *  | `costs=FILE` | table of driver-call costs | that of an H200 |
 *  | `check=on`, `check=off` | the checker of stream order | on |
 *  | `virtual=off`, `alias=off`, `async=off`, `capture=off` | a device that can do less | on |
 *  | `id=N` | a further device with otherwise equal options | 0 |
 *
 *  Time is simulated: an operation on a stream starts when the one before it and the events it waits for have ended,
 *  and has ended once the device's clock has passed its end. Waiting on the host moves the clock there. Copies, fills
 *  and kernels take effect at their end, in the order of their ends, as on a real device. Unbacked memory has no contents:
 *  copies and fills of it are checked and timed, return LOCH_OK and move nothing, so a copy to the host leaves the target as
 *  it was. The first one of a device is told to the log, as a warning.
 *
 *  All calls here give E_INVALID for a device or stream that is not simulated, and work from any thread.
 */
#ifndef LOCH_SIM_H
#define LOCH_SIM_H

#include <loch/driver.h>

LOCH_BEGIN_DECLS

/** The device's clock. */
LOCH_API LOCH_MUST_USE loch_status loch_sim_get_time(loch_device *device, uint64_t *out_ns);

/** Moves the clock on by `ns`; what ends on the way takes effect. */
LOCH_API LOCH_MUST_USE loch_status loch_sim_advance(loch_device *device, uint64_t ns);

/** Moves the clock to `ns`; E_INVALID when that is past. */
LOCH_API LOCH_MUST_USE loch_status loch_sim_set_time(loch_device *device, uint64_t ns);

/** Moves the clock just far enough for the next `operations` on the stream to end; all of them when there are fewer. */
LOCH_API LOCH_MUST_USE loch_status loch_sim_step(loch_stream *stream, size_t operations);

/** A range of device memory. */
typedef struct loch_sim_range {
    const void *address; /**< start */
    size_t bytes;        /**< length */
} loch_sim_range;

/** What stands for a kernel. */
typedef struct loch_sim_kernel {
    size_t size;                  /**< sizeof(loch_sim_kernel) */
    const char *name;             /**< for reports; copied; may be NULL */
    const loch_sim_range *reads;  /**< what it reads; copied */
    size_t reads_count;           /**< how many */
    const loch_sim_range *writes; /**< what it writes; copied */
    size_t writes_count;          /**< how many */
    uint64_t duration_ns;         /**< 0 for the device's lag */
    loch_stream_function
        *run;   /**< called at its end, on the host, on a backed device; may be NULL. Must not call Loch */
    void *user; /**< handed to run; lives until then */
} loch_sim_kernel;

/** Queues a kernel. E_OUT_OF_RANGE when a range is not mapped memory of the device: the call that a real device would
 *  answer by killing the context changes nothing here. */
LOCH_API LOCH_MUST_USE loch_status loch_sim_launch(loch_stream *stream, const loch_sim_kernel *kernel);

/** What a simulated device holds and has seen. */
typedef struct loch_sim_stats {
    size_t size;                /**< set by the caller to sizeof(loch_sim_stats) */
    size_t physical_bytes;      /**< raw memory and handles now, each handle once */
    size_t physical_peak_bytes; /**< the highest that was */
    size_t reserved_bytes;      /**< reserved addresses */
    size_t pinned_bytes;        /**< pinned host memory */
    size_t handles;             /**< handles that exist */
    size_t mappings;            /**< mappings that exist */
    size_t streams;             /**< streams made and not destroyed */
    size_t events;              /**< events made and not destroyed */
    size_t pending;             /**< operations that have not ended */
    uint64_t calls;             /**< driver calls so far: what faults count */
    uint64_t modelled_ns;       /**< what all of them would have cost */
    size_t violations;          /**< what the checker found */
} loch_sim_stats;

/** Reads them. */
LOCH_API LOCH_MUST_USE loch_status loch_sim_get_stats(loch_device *device, loch_sim_stats *out);

/** How long a fault lasts. */
typedef enum loch_sim_fault_mode {
    LOCH_SIM_FAULT_ONCE,   /**< one call fails */
    LOCH_SIM_FAULT_FOREVER /**< that call and all later ones of its name */
} loch_sim_fault_mode;

/** A fault to come. Calls that give something back never fail by injection, as CUDA's do not unless the device is lost:
 *  they are counted, and skipped. */
typedef struct loch_sim_fault {
    size_t size;              /**< sizeof(loch_sim_fault) */
    const char *call;         /**< name of a driver call ("handle_create"), or NULL for any */
    uint64_t after;           /**< how many matching calls succeed first */
    loch_sim_fault_mode mode; /**< how long it lasts */
    loch_status status;       /**< what the call returns; LOCH_OK means E_DRIVER, or E_DEVICE_MEMORY for allocations */
} loch_sim_fault;

/** Sets the fault, in place of an earlier one; NULL clears it. */
LOCH_API LOCH_MUST_USE loch_status loch_sim_set_fault(loch_device *device, const loch_sim_fault *fault);

/** From now on every call gives E_DEVICE_LOST, as after a kernel that wrote where it must not; giving back works. */
LOCH_API LOCH_MUST_USE loch_status loch_sim_lose(loch_device *device);

/** What the checker reports. */
typedef enum loch_sim_violation_kind {
    LOCH_SIM_UNORDERED,   /**< two streams used the same memory, one of them writing, without order between them */
    LOCH_SIM_GONE_IN_USE, /**< memory was freed or unmapped while queued work still used it */
    LOCH_SIM_OVERLAP      /**< a copy whose source and target overlap, which CUDA does not define */
} loch_sim_violation_kind;

/** One finding. Addresses are those of the later use. */
typedef struct loch_sim_violation {
    loch_sim_violation_kind kind; /**< what happened */
    const void *address;          /**< first byte in question */
    size_t bytes;                 /**< how many */
    uint64_t stream;              /**< number (loch_sim_get_stream_number) of the later use's stream; 0 for the host */
    uint64_t other_stream;        /**< number of the earlier use's stream */
    char text[160];               /**< one sentence */
} loch_sim_violation;

/** The number by which findings name a stream. Streams are numbered as they are made, device by device; the device's
 *  default stream is 1. */
LOCH_API LOCH_MUST_USE loch_status loch_sim_get_stream_number(loch_stream *stream, uint64_t *out);

/** Called with each finding. A return other than LOCH_OK ends the walk and becomes its result. */
typedef loch_status loch_sim_violation_visitor(const loch_sim_violation *violation, void *user);

/** Walks the findings, oldest first. The first 64 are kept; all are counted (loch_sim_stats). */
LOCH_API LOCH_MUST_USE loch_status loch_sim_walk_violations(loch_device *device, loch_sim_violation_visitor *visitor,
                                                            void *user);

/** Forgets the findings. */
LOCH_API LOCH_MUST_USE loch_status loch_sim_clear_violations(loch_device *device);

/** Operations captured from a stream. */
typedef struct loch_sim_graph loch_sim_graph;

/** Starts capturing a stream: what is queued on it, and on streams that wait for its events, is kept, not run. */
LOCH_API LOCH_MUST_USE loch_status loch_sim_capture_begin(loch_stream *stream);

/** Ends the capture that was begun on `stream`. E_DRIVER, and no graph, when something illegal happened meanwhile.
 *  @param out  the caller's, given back by loch_sim_graph_destroy; NULL on failure */
LOCH_API LOCH_MUST_USE loch_status loch_sim_capture_end(loch_stream *stream, loch_sim_graph **out);

/** Queues everything that was captured. The memory that it uses has to be mapped still: E_OUT_OF_RANGE. */
LOCH_API LOCH_MUST_USE loch_status loch_sim_graph_launch(loch_sim_graph *graph, loch_stream *stream);

/** Ends a graph. NULL does nothing. */
LOCH_API void loch_sim_graph_destroy(loch_sim_graph *graph);

LOCH_END_DECLS

#endif

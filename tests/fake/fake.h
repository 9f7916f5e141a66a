/* SPDX-License-Identifier: MIT */
/* A CUDA driver for tests. IT IS A TEST DOUBLE: no GPU, no speed, no claim about a real driver.
 *
 * Device memory is host memory at another address than the one that the caller gets: a touch of a device address by the
 * host faults, as with a card of its own. Every stream has a queue and a thread, so that work is really late.
 *
 *   devices.c   codes, devices, contexts          streams.c   queues, streams, events
 *   ranges.c    which address is what             capture.c   captures and graphs
 *   memory.c    memory of all kinds               copies.c    copies and fills
 *   share.c     exports, events of processes      kernels.c   modules, and the few kernels that it knows
 *   switches.c  LOCH_TEST_FAKE_CUDA, faults, counts    control.h   what tests may ask of it */
#ifndef LOCH_TEST_FAKE_H
#define LOCH_TEST_FAKE_H

#include "control.h"
#include "device/cuda/api.h"
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define EXPORT __attribute__((visibility("default")))

/* Entry points beyond those of src/device/cuda. Codes that are not in its list. */
enum {
    FAKE_NOT_INITIALIZED = 3,
    FAKE_INVALID_DEVICE = 101,
    FAKE_INVALID_CONTEXT = 201,
    FAKE_NO_BINARY = 209,
    FAKE_INVALID_PTX = 218,
    FAKE_UNSUPPORTED_PTX_VERSION = 222,
    FAKE_NOT_FOUND = 500,
    FAKE_LAUNCH_OUT_OF_RESOURCES = 701,
    FAKE_COOPERATIVE_LAUNCH_TOO_LARGE = 720,
    FAKE_CAPTURE_UNSUPPORTED = 900,
    FAKE_CAPTURE_INVALIDATED = 901,
    FAKE_CAPTURE_MERGE = 902,
    FAKE_CAPTURE_UNMATCHED = 903,
    FAKE_CAPTURE_UNJOINED = 904,
    FAKE_CAPTURE_ISOLATION = 905,
    FAKE_CAPTURE_WRONG_THREAD = 908,
    FAKE_UNKNOWN = 999
};

enum { FAKE_DEVICES_MAX = 8, FAKE_CONTEXTS_ON_STACK = 32, FAKE_PAGE = 4096 };

#define FAKE_MIB ((size_t)1 << 20)

/* --- entry points --- */

/* clang-format off */
#define FAKE_DECLARE(name, suffix, need, parameters) EXPORT cu_result name##suffix parameters;
LOCHI_CUDA_CALLS(FAKE_DECLARE)
LOCHI_CUDA_CALLS_VERSIONED(FAKE_DECLARE)
#undef FAKE_DECLARE
/* clang-format on */

/* CUipcEventHandle: passed by value. */
typedef struct fake_ipc_handle {
    unsigned char bytes[64];
} fake_ipc_handle;

typedef struct fake_module fake_module;
typedef struct fake_function fake_function;

/* CUlaunchConfig, whose attributes the fake reads by their first number. */
typedef struct fake_launch_config {
    unsigned grid[3], block[3], shared_bytes;
    cu_stream *stream;
    const struct fake_launch_attribute {
        int id;
        char pad[4];
        union {
            int number;
            char room[64];
        } value;
    } * attributes;
    unsigned attributes_count;
} fake_launch_config;

/* Those of callers, and of libloch_share and libloch_kernel. */
EXPORT cu_result cuCtxCreate_v2(cu_context **context, unsigned flags, cu_device device);
EXPORT cu_result cuCtxDestroy_v2(cu_context *context);
EXPORT cu_result cuCtxGetDevice(cu_device *device);
EXPORT cu_result cuStreamCreate(cu_stream **stream, unsigned int flags);
EXPORT cu_result cuMemsetD8_v2(cu_address to, unsigned char pattern, size_t count);
EXPORT cu_result cuStreamBeginCapture_v2(cu_stream *handle, cu_choice mode);
EXPORT cu_result cuStreamEndCapture(cu_stream *handle, cu_graph **out);
EXPORT cu_result cuGraphInstantiateWithFlags(void **out, cu_graph *handle, unsigned long long flags);
EXPORT cu_result cuGraphLaunch(void *handle, cu_stream *target);
EXPORT cu_result cuGraphExecDestroy(void *handle);
EXPORT cu_result cuGraphDestroy(cu_graph *handle);
EXPORT cu_result cuIpcGetEventHandle(fake_ipc_handle *out, cu_event *event);
EXPORT cu_result cuIpcOpenEventHandle(cu_event **out, fake_ipc_handle handle);
EXPORT cu_result cuModuleLoadData(fake_module **out, const void *image);
EXPORT cu_result cuModuleLoadDataEx(fake_module **out, const void *image, unsigned count, int *options, void **values);
EXPORT cu_result cuModuleUnload(fake_module *module);
EXPORT cu_result cuModuleGetFunction(fake_function **out, fake_module *module, const char *name);
EXPORT cu_result cuFuncGetAttribute(int *value, int attribute, fake_function *function);
EXPORT cu_result cuFuncSetAttribute(fake_function *function, int attribute, int value);
EXPORT cu_result cuFuncGetParamInfo(fake_function *function, size_t index, size_t *offset, size_t *bytes);
EXPORT cu_result cuOccupancyMaxActiveBlocksPerMultiprocessor(int *blocks, fake_function *function, int threads,
                                                             size_t shared_bytes);
EXPORT cu_result cuLaunchKernel(fake_function *function, unsigned grid_x, unsigned grid_y, unsigned grid_z,
                                unsigned block_x, unsigned block_y, unsigned block_z, unsigned shared_bytes,
                                cu_stream *stream, void **parameters, void **extra);
EXPORT cu_result cuLaunchKernelEx(const fake_launch_config *config, fake_function *function, void **parameters,
                                  void **extra);

/* --- switches --- */

/* What LOCH_TEST_FAKE_CUDA says (README.md). */
typedef struct fake_switches {
    size_t total_bytes, granule_bytes, context_bytes, pitch_max;
    int devices, version, compute; /* compute: 80 for 8.0 */
    int pinning, registering;      /* codes of all such calls; 0: they work */
    int rdma;                      /* -1: the device has none; a code: opening fails with it; 0: works */
    int unmapping;                 /* code of every cuMemUnmap */
    unsigned late_us;
    bool is_immediate, is_integrated, has_alias, has_virtual, has_fabric, has_descriptors, has_peers, has_managed,
        has_pools, has_register, is_quiet;
} fake_switches;

/* --- lines: the order of work --- */

/* The work of one stream in its order. It outlives its stream while something points at it. Under the lock. */
typedef struct fake_line {
    size_t refs;
    uint64_t queued, done; /* numbers of the last piece of work */
} fake_line;

/* A moment of a line. */
typedef struct fake_point {
    fake_line *line; /* NULL: passed */
    uint64_t number;
} fake_point;

/* --- objects --- */

typedef enum fake_kind { FAKE_CONTEXT, FAKE_STREAM, FAKE_EVENT, FAKE_GRAPH, FAKE_EXECUTABLE, FAKE_MODULE } fake_kind;

/* The head of all objects that a handle names. */
typedef struct fake_object {
    fake_kind kind;
} fake_object;

struct cu_context {
    fake_object head;
    int device;
    bool is_primary;
    size_t retained;
    cu_stream *legacy;
    uint32_t peers;   /* devices whose memory it may use */
    cu_context *dead; /* the one that was destroyed before this one */
};

typedef struct fake_graph fake_graph;

/* A capture in progress. */
typedef struct fake_capture {
    struct fake_capture *next;
    size_t refs;
    uint64_t id;
    cu_choice mode;
    pthread_t thread;
    cu_stream *origin;
    size_t joined; /* streams other than the origin whose work has not come back */
    bool is_over, is_invalid;
    fake_graph *graph;
} fake_capture;

typedef struct fake_op fake_op;

struct cu_stream {
    fake_object head;
    cu_stream *next; /* of all streams */
    cu_context *context;
    fake_line *line;
    bool is_blocking, is_legacy, is_closed, has_thread, is_thread_default;
    fake_op *first, *last;
    uintptr_t busy_start[2], busy_end[2]; /* memory that the running piece of work uses */
    fake_capture *capture;
    uint64_t capture_node; /* the last piece of work of this stream in the capture */
    bool is_joined;        /* its work has come back to the origin */
    pthread_cond_t changed;
};

/* Memory of a shared event: processes agree by it. */
typedef struct fake_shared_event {
    _Atomic uint64_t recorded, done;
    _Atomic int owner; /* process */
} fake_shared_event;

struct cu_event {
    fake_object head;
    cu_context *context;
    size_t refs;
    bool is_timed, is_recorded, is_shared, is_foreign;
    fake_point point;
    uint64_t record;       /* number of its records */
    uint64_t time_ns;      /* of the last one that ran */
    fake_capture *capture; /* that it was recorded in */
    uint64_t capture_node;
    cu_stream *capture_stream;
    fake_shared_event *shared;
    int descriptor;
};

/* --- work --- */

typedef enum fake_work_kind {
    FAKE_COPY,
    FAKE_FILL,
    FAKE_CALL,
    FAKE_RECORD,
    FAKE_WAIT,
    FAKE_LAUNCH,
    FAKE_RUN_GRAPH,
    FAKE_FREE
} fake_work_kind;

/* One side of a copy. */
typedef struct fake_side {
    uintptr_t address;
    int device; /* whose access counts; -1: the host's own memory */
    size_t pitch, plane;
} fake_side;

typedef struct fake_launch fake_launch;

typedef struct fake_work {
    fake_work_kind kind;
    union {
        struct {
            fake_side to, from;
            size_t width, height, depth;
            void *staged; /* contents of pageable memory when the copy was queued */
        } copy;
        struct {
            fake_side to;
            uint32_t pattern;
            size_t width, count;
        } fill;
        struct {
            cu_host_function *function;
            void *user;
        } call;
        struct {
            cu_event *event;
            uint64_t record;
        } mark; /* RECORD */
        struct {
            cu_event *event;
            uint64_t number;
        } wait; /* WAIT for an event of another process */
        fake_launch *launch;
        fake_graph *graph;
        uintptr_t address; /* FREE */
    } as;
} fake_work;

struct fake_op {
    fake_op *next;
    fake_work work;
    uint64_t number;
    size_t points_count;
    fake_point points[];
};

/* Pieces of work in an order that respects the capture's. */
struct fake_graph {
    fake_object head;
    size_t refs;
    size_t count, capacity;
    fake_work *works;
};

/* --- memory --- */

typedef enum fake_memory {
    FAKE_RESERVED,
    FAKE_ALLOCATED,
    FAKE_ORDERED,
    FAKE_MANAGED,
    FAKE_PINNED,
    FAKE_REGISTERED,
    FAKE_MAPPED
} fake_memory;

/* Memory that handles share: a part of the device's file, or a file of its own if it may be exported. */
typedef struct fake_physical {
    size_t refs;
    size_t bytes;
    int device, descriptor;
    uint64_t offset, inode;
    size_t maps;
    bool is_foreign;   /* of another process: not counted here */
    bool is_for_cards; /* network cards may access it */
} fake_physical;

/* A range of addresses. */
typedef struct fake_range {
    uintptr_t start;
    size_t bytes;
    fake_memory kind;
    int device;
    uintptr_t base; /* of the mapping below it, where a small block does not begin a page */
    size_t mapped;  /* bytes of that */
    fake_physical *physical;
    uint32_t access; /* MAPPED: devices that may use it */
    bool is_freeing; /* ORDERED: its free is queued */
} fake_range;

/* Ranges by address. */
typedef struct fake_ranges {
    fake_range **items;
    size_t count, capacity;
} fake_ranges;

/* A handle of memory. */
typedef struct fake_handle {
    struct fake_handle *next;
    fake_physical *physical;
    cu_choice types; /* in which it may be exported */
} fake_handle;

/* --- all of it --- */

typedef struct fake_state {
    pthread_mutex_t lock;                       /* guards all below, except what says otherwise */
    pthread_cond_t done;                        /* work has ended */
    atomic_bool is_started, is_over, is_forked; /* relaxed: each call reads them, nothing is ordered by them */
    fake_switches switches;
    atomic_uint lost; /* code that every call returns; relaxed: each call reads it, nothing is ordered by it */
    cu_context *primary[FAKE_DEVICES_MAX];
    size_t used[FAKE_DEVICES_MAX];
    int file[FAKE_DEVICES_MAX]; /* of the device's memory */
    uint64_t file_end[FAKE_DEVICES_MAX];
    uintptr_t window, shift; /* device addresses begin at window; their memory is shift further on */
    size_t window_bytes, window_next;
    fake_ranges ranges, maps;
    fake_handle *handles;
    cu_stream *streams;
    fake_capture *captures;
    uint64_t captures_count;
} fake_state;

extern fake_state fake;

/* switches.c */

/* How a call begins. */
enum { FAKE_ALWAYS = 0, FAKE_STARTED = 1, FAKE_IN_CONTEXT = 2, FAKE_UNSAFE = 4, FAKE_LIVE = 8 };

/* Counts a call, and returns the code that it has to fail with: a fault, a lost context, a fork, no context, or a
 * capture that forbids it. */
cu_result fake_begin(const char *name, unsigned needs);

#define FAKE_BEGIN(needs)                                                                                              \
    do {                                                                                                               \
        const cu_result began = fake_begin(__func__, (needs));                                                         \
        if (began != LOCHI_CUDA_SUCCESS) return began;                                                                 \
    } while (0)

bool fake_switches_read(const char *text, fake_switches *out);
void fake_lose(cu_result code);

static inline void fake_take(void)
{
    pthread_mutex_lock(&fake.lock);
}

static inline cu_result fake_drop(cu_result result)
{
    pthread_mutex_unlock(&fake.lock);
    return result;
}

/* devices.c. The lock is held for all functions below that do not say otherwise. */
void *fake_object_make(fake_kind kind, size_t bytes);
void fake_object_end(void *object);
bool fake_object_is(const void *handle, fake_kind kind);
size_t fake_objects_count(fake_kind kind);
cu_context *fake_current(void);    /* no lock needed */
int fake_current_device(void);     /* no lock needed; 0 without a context */
cu_choice *fake_thread_mode(void); /* no lock needed */

/* ranges.c */
void fake_ranges_add(fake_ranges *ranges, fake_range *range);
void fake_ranges_remove(fake_ranges *ranges, fake_range *range);
fake_range *fake_ranges_find(const fake_ranges *ranges, uintptr_t address);
bool fake_ranges_overlap(const fake_ranges *ranges, uintptr_t start, size_t bytes);

/* Finds what a device address is. NULL: nothing that the driver knows, or plain host memory. */
fake_range *fake_find(uintptr_t address);

/* Returns where the memory of an address is, or NULL if `device` may not use all of the bytes. Plain host memory is
 * good where `device` is -1. */
void *fake_translate(uintptr_t address, size_t bytes, int device);

/* memory.c */
cu_result fake_take_bytes(int device, size_t bytes);
fake_physical *fake_physical_make(int device, size_t bytes, bool is_exportable);
void fake_physical_drop(fake_physical *physical);
void fake_range_end(fake_range *range);
uintptr_t fake_window_take(size_t bytes, size_t alignment);

/* streams.c */
fake_line *fake_line_retain(fake_line *line);
void fake_line_release(fake_line *line);
bool fake_point_passed(fake_point point);
void fake_point_await(fake_point point);

/* Finds the stream of a handle; NULL for one that is not valid, and for a default stream without a context. */
cu_stream *fake_stream_find(cu_stream *handle);

/* Queues work, or adds it to the capture. Takes the work over, also on failure. `out` may be NULL. */
cu_result fake_queue(cu_stream *stream, const fake_work *work, const fake_point *points, size_t count, fake_point *out);
cu_stream *fake_stream_make(cu_context *context, bool is_blocking);
void fake_stream_end(cu_stream *stream);
void fake_context_await(cu_context *context); /* NULL: all */
void fake_event_release(cu_event *event);
uint64_t fake_now_ns(void);

/* Waits until no running work uses the range. Returns whether one did. */
bool fake_await_unused(uintptr_t start, size_t bytes);

/* copies.c. Runs work: without the lock. */
cu_result fake_work_run(fake_work *work, cu_stream *stream);
void fake_work_end(fake_work *work);

/* capture.c */
cu_result fake_capture_add(cu_stream *stream, const fake_work *work);
cu_result fake_capture_check_unsafe(void);
cu_result fake_capture_check_legacy(const cu_stream *stream, bool is_breaking);
void fake_capture_break(fake_capture *capture);
void fake_capture_release(fake_capture *capture);
void fake_capture_join(cu_stream *stream, cu_event *event);
void fake_graph_release(fake_graph *graph);

/* share.c */
cu_result fake_shared_open(cu_event *event);
void fake_shared_close(cu_event *event);
bool fake_shared_await(const cu_event *event, uint64_t number);

/* kernels.c */
cu_result fake_launch_run(fake_launch *launch);
void fake_launch_end(fake_launch *launch);

#endif

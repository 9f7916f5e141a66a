/* SPDX-License-Identifier: MIT */
/* The inside of simulated devices.
 *
 *     device ── streams ── operations (a queue each; keys rise along it)
 *        │                     │ uses
 *        ├── spans ────────────┴─ what is mapped at an address: raw blocks, mappings, pinned and registered memory
 *        │      └── objects       physical memory; spans of one object are aliases; the checker's shadow is here
 *        └── reservations         addresses that mappings may be put at
 *
 * One lock guards all simulated devices of the process: they wait for each other's events, read each other's memory and
 * share objects, and a simulator has no need for locks of its own device by device. Everything below is under it unless
 * it says otherwise. It is let go only around functions that the user queued (settle, in work.c).
 *
 * Time: every operation has a key (its end, then its number in the process) when it is queued, greater than the keys of
 * everything that it waits for. Operations take effect in the order of their keys, on whatever thread moves the
 * clock. */
#ifndef LOCHI_SIM_H
#define LOCHI_SIM_H

#include "base/fail.h"
#include "base/lock.h"
#include "base/tree.h"
#include "device/device.h"
#include <stdatomic.h>
#include <loch/sim.h>
#include <stdbool.h>

/* As LOCH_FAIL, in this driver's name; the second with a code of the system's. */
#define SIM_FAIL(suffix, ...) SIM_FAIL_CODE(suffix, 0, __VA_ARGS__)
#define SIM_FAIL_CODE(suffix, code, ...)                                                                               \
    ((void)loch_error_set(LOCH_E_##suffix, "sim", (code), __VA_ARGS__), LOCH_E_##suffix)

#define LOCHI_SIM_RAW_UNIT ((size_t)512)           /* raw blocks below the large size: unit and alignment */
#define LOCHI_SIM_RAW_LARGE ((size_t)2 << 20)      /* raw blocks from here on are aligned to it */
#define LOCHI_SIM_WINDOW_BITS 46                   /* addresses of one unbacked device */
#define LOCHI_SIM_WINDOWS 1024                     /* unbacked devices open at a time */
#define LOCHI_SIM_WINDOW_BASE ((uintptr_t)1 << 56) /* above what any machine gives to a process */
#define LOCHI_SIM_VIOLATIONS 64                    /* findings kept */
#define LOCHI_SIM_NAME_BYTES 32                    /* of an operation, for reports */

typedef struct lochi_sim lochi_sim;
typedef struct lochi_sim_stream lochi_sim_stream;
typedef struct lochi_sim_capture lochi_sim_capture;

/* --- address space (space.c) --- */

/* A piece of it, free or taken. */
typedef struct lochi_sim_extent {
    lochi_tree_node by_address; /* key: start */
    lochi_tree_node by_size;    /* key: class of size, then place; only while free */
    size_t bytes;
} lochi_sim_extent;

typedef struct lochi_sim_space {
    lochi_tree by_address, by_size; /* the free extents; no two touch */
    uintptr_t base;
} lochi_sim_space;

loch_status lochi_sim_space_init(lochi_sim_space *space, uintptr_t base, size_t bytes);
void lochi_sim_space_fini(lochi_sim_space *space);
/* `bytes` a multiple of LOCHI_SIM_RAW_UNIT, `alignment` a power of two not below it. */
loch_status lochi_sim_space_take(lochi_sim_space *space, size_t bytes, size_t alignment, lochi_sim_extent **out);
void lochi_sim_space_give(lochi_sim_space *space, lochi_sim_extent *extent); /* needs no memory; NULL does nothing */

/* --- order (order.c) --- */

/* A vector clock: for each slot the last epoch that happened before. All have the process's number of slots. */
typedef struct lochi_sim_vector {
    uint64_t *epochs;
    uint64_t *grown; /* while all vectors grow together */
    struct lochi_sim_vector *prev, *next;
} lochi_sim_vector;

/* One use of memory by one stream. */
typedef struct lochi_sim_access {
    uint64_t epoch;  /* 0: none */
    uint64_t stream; /* the stream's number, for reports */
    size_t slot;
} lochi_sim_access;

loch_status lochi_sim_vector_init(lochi_sim_vector *vector);
void lochi_sim_vector_fini(lochi_sim_vector *vector);
void lochi_sim_vector_join(lochi_sim_vector *vector, const lochi_sim_vector *other);
void lochi_sim_vector_copy(lochi_sim_vector *vector, const lochi_sim_vector *other);
/* A slot for a new stream, and back. A slot is handed out again when the host has seen all that was done under it. */
loch_status lochi_sim_slot_take(size_t *out);
void lochi_sim_slot_give(size_t slot);
/* The next epoch of the stream's slot, entered into its vector. */
uint64_t lochi_sim_slot_tick(lochi_sim_stream *stream);

/* --- memory (memory.c, virtual.c) --- */

/* Who may read an interval of an object after whom (check.c). */
typedef struct lochi_sim_cell lochi_sim_cell;
typedef struct lochi_sim_shadow {
    lochi_sim_cell *cells; /* sorted, apart */
    size_t count, capacity;
} lochi_sim_shadow;

/* The file behind a backed device's memory; counted, because imported memory may outlive the device. */
typedef struct lochi_sim_file {
    int fd;
    size_t references;
    lochi_sim_space space; /* offsets */
} lochi_sim_file;

/* Physical memory. */
typedef struct lochi_sim_object {
    lochi_sim *owner; /* whose capacity it takes; NULL once that device has closed */
    struct lochi_sim_object *prev, *next;
    size_t bytes;
    size_t charged;    /* of the capacity */
    size_t references; /* handles to it, and spans */
    size_t mappings;   /* spans alone */
    uint32_t share;    /* set of loch_share */
    int token;         /* the descriptor that stands for it once it was exported, else -1 */
    lochi_sim_file *file;
    lochi_sim_extent *extent; /* in the file */
    lochi_sim_shadow shadow;
} lochi_sim_object;

typedef struct lochi_sim_reservation {
    lochi_tree_node node; /* key: start */
    size_t bytes, mappings;
    lochi_sim_extent *extent; /* unbacked */
} lochi_sim_reservation;

/* What is at an address. */
typedef struct lochi_sim_span {
    lochi_tree_node node; /* key: start */
    size_t bytes;         /* as asked for */
    size_t host_bytes;    /* what munmap takes back; 0 for bare numbers and memory of the caller's */
    bool is_real;         /* can be read and written by the host */
    loch_memory_kind kind;
    lochi_sim_object *object;
    lochi_sim_reservation *reservation; /* of a mapping */
    lochi_sim_extent *extent;           /* addresses of an unbacked raw block */
    struct lochi_sim_op *free_op;       /* ordered memory: made beforehand, so that freeing needs no memory */
    bool is_freed;                      /* ordered memory whose free is queued */
    size_t pending;                     /* queued operations that use it */
    size_t peers_count;
    uint64_t peers[]; /* serial numbers of the devices that may use a mapping */
} lochi_sim_span;

/* Makes physical memory with one reference that takes `charged` bytes of the capacity, 0 for host memory. Waits for
 * stream-ordered frees that are under way before it gives up, and may let go of the lock meanwhile. */
loch_status lochi_sim_object_create(lochi_sim *sim, size_t bytes, size_t charged, lochi_sim_object **out);
void lochi_sim_object_release(lochi_sim_object *object); /* the last one gives it back */
lochi_sim_span *lochi_sim_span_find(const lochi_sim *sim, uintptr_t address);
/* The span that covers a byte for work of `sim`: its own, or one of another device that lets it in. */
lochi_sim_span *lochi_sim_span_reach(const lochi_sim *sim, uintptr_t address, bool any_device);
/* Takes a span away and frees it; work that is queued on it is reported and will do nothing. */
void lochi_sim_span_remove(lochi_sim *sim, lochi_sim_span *span, const char *how);
/* Whether all of a host range is page-locked for the device. */
bool lochi_sim_is_pinned(const lochi_sim *sim, const void *address, size_t bytes);
/* Aligned addresses of the process with nothing behind them; NULL on failure. */
void *lochi_sim_host_reserve(size_t bytes, size_t alignment);
/* Puts a backed object's memory at addresses that were reserved. */
loch_status lochi_sim_host_map(void *at, const lochi_sim_object *object);
loch_status lochi_sim_file_create(lochi_sim_file **out);
void lochi_sim_file_release(lochi_sim_file *file); /* NULL does nothing */
void lochi_sim_memory_close(lochi_sim *sim);
/* In the child of a fork: nothing of the device is shared with the parent any more. */
void lochi_sim_memory_forked(lochi_sim *sim);
void lochi_sim_virtual_close(lochi_sim *sim);

/* --- work (work.c) --- */

/* The order in which operations end. */
typedef struct lochi_sim_key {
    uint64_t end_ns;
    uint64_t number;
} lochi_sim_key;

static inline bool lochi_sim_key_before(lochi_sim_key a, lochi_sim_key b)
{
    return a.end_ns != b.end_ns ? a.end_ns < b.end_ns : a.number < b.number;
}

static inline lochi_sim_key lochi_sim_key_later(lochi_sim_key a, lochi_sim_key b)
{
    return lochi_sim_key_before(a, b) ? b : a;
}

typedef enum lochi_sim_kind {
    LOCHI_SIM_COPY,
    LOCHI_SIM_FILL,
    LOCHI_SIM_KERNEL,
    LOCHI_SIM_CALL,
    LOCHI_SIM_WAIT, /* for another device */
    LOCHI_SIM_FREE  /* of ordered memory */
} lochi_sim_kind;

typedef struct lochi_sim_range {
    const void *address;
    size_t bytes;
    bool is_write;
} lochi_sim_range;

/* Work as it was asked for; what a capture keeps. */
typedef struct lochi_sim_request {
    lochi_sim_kind kind;
    uint64_t duration_ns;
    const char *name;              /* for reports; never NULL */
    const lochi_sim_range *ranges; /* device and page-locked memory that it uses */
    size_t ranges_count;
    void *to; /* copy and fill */
    const void *from;
    size_t bytes;
    loch_pitched shape; /* of a copy of rows; else all zero */
    uint32_t pattern;
    size_t pattern_bytes;
    bool is_staged; /* the source is pageable: taken when queued */
    bool is_waited; /* the target is pageable: the call returns when it is there */
    bool any_device;
    loch_stream_function *function; /* kernel and call */
    void *user;
} lochi_sim_request;

/* A part of one span that an operation uses; span NULL once that has gone. */
typedef struct lochi_sim_use {
    lochi_sim_span *span;
    size_t offset, bytes;
    bool is_write;
} lochi_sim_use;

/* Work that is queued. */
typedef struct lochi_sim_op {
    struct lochi_sim_op *next;
    lochi_sim_key key;
    lochi_sim_kind kind;
    uint64_t stream, duration_ns;
    bool is_dead;    /* its memory has gone: no effect */
    bool is_real;    /* all of its memory can be read and written by the host */
    bool is_running; /* its function runs now, without the lock */
    char name[LOCHI_SIM_NAME_BYTES];
    void *to, *staging;
    const void *from;
    size_t bytes, pattern_bytes;
    loch_pitched shape; /* the source's pitches are those of `staging` when there is one */
    uint32_t pattern;
    loch_stream_function *function;
    void *user;
    lochi_sim *awaited; /* wait: for whom, until when */
    lochi_sim_key awaited_key;
    lochi_sim_span *freed; /* free: what */
    size_t uses_count;
    lochi_sim_use uses[];
} lochi_sim_op;

/* Makes an operation from a request: finds its memory (E_OUT_OF_RANGE), takes what it needs, queues nothing. */
loch_status lochi_sim_op_create(lochi_sim *sim, const lochi_sim_request *request, lochi_sim_op **out);
void lochi_sim_op_destroy(lochi_sim_op *op);
/* Queues it behind the stream and checks its uses; the stream has been entered. Cannot fail. */
void lochi_sim_op_queue(lochi_sim_stream *stream, lochi_sim_op *op);
/* All of that, or the stream's capture. */
loch_status lochi_sim_submit(lochi_sim_stream *stream, const lochi_sim_request *request);
/* Whether what has the key has taken effect. */
bool lochi_sim_is_done(const lochi_sim *sim, lochi_sim_key key);
/* Makes everything that the clock has passed take effect. May let go of the lock meanwhile. */
void lochi_sim_settle(lochi_sim *sim);
/* In the child of a fork: functions that other threads ran there are over. */
void lochi_sim_work_forked(lochi_sim *sim);
/* Moves the clock at least to `ns` and settles. */
void lochi_sim_move_clock(lochi_sim *sim, uint64_t ns);
/* Moves the clock until the key is done. E_DRIVER inside a queued function, which would wait for itself. */
loch_status lochi_sim_wait(lochi_sim *sim, lochi_sim_key key);
uint64_t lochi_sim_add_ns(uint64_t a, uint64_t b); /* stops at the end of time */

/* --- streams and events (stream.c) --- */

struct lochi_sim_stream {
    lochi_sim *device;
    lochi_sim_stream *prev, *next;
    uint64_t number; /* in the device; the default stream is 1 */
    uint64_t thread; /* of a thread's default stream, else 0 */
    bool is_with_default;
    bool is_made;      /* by stream_create: counted */
    bool is_destroyed; /* goes when its queue is empty */
    size_t slot;
    lochi_sim_vector seen; /* what happened before the next operation here */
    lochi_sim_key tail;    /* what the next operation here waits for */
    uint64_t waited_ns;    /* when the last of the events that it waits for passes */
    lochi_sim_op *first, *last;
    lochi_sim_capture *capture;
    size_t branch; /* in the capture */
};

typedef struct lochi_sim_event {
    lochi_sim *device;
    struct lochi_sim_event *prev, *next;
    loch_event_kind kind;
    bool is_recorded;
    lochi_sim_key key;
    uint64_t stream; /* the number of the one that it was recorded on */
    uint64_t time_ns;
    lochi_sim_vector seen;
    uint64_t capture; /* id of the capture that it was recorded in, else 0 */
    size_t mark;      /* in that capture */
} lochi_sim_event;

loch_status lochi_sim_stream_init(lochi_sim *sim, lochi_sim_stream *stream);
loch_status lochi_sim_stream_make(lochi_sim *sim, lochi_sim_stream **out);
void lochi_sim_stream_end(lochi_sim_stream *stream);
void lochi_sim_stream_drop(lochi_sim_stream *stream); /* destroyed and empty: frees it */
lochi_sim_stream *lochi_sim_stream_of(lochi_sim *sim, void *native);
/* Brings the stream behind the host, and behind whatever the default stream orders it with. E_DRIVER when that would
 * tie a captured stream to one that is not. */
loch_status lochi_sim_stream_enter(lochi_sim_stream *stream);
void lochi_sim_stream_close(lochi_sim *sim);

/* --- captures (capture.c) --- */

loch_status lochi_sim_capture_add(lochi_sim_stream *stream, const lochi_sim_request *request);
loch_status lochi_sim_capture_record(lochi_sim_stream *stream, lochi_sim_event *event);
loch_status lochi_sim_capture_wait(lochi_sim_stream *stream, const lochi_sim_event *event);
/* Breaks the capture and fails with why. Neither pointer may be NULL. */
loch_status lochi_sim_capture_break(lochi_sim_capture *capture, const char *why);
/* For an event that was recorded in a capture, under way or not. */
loch_status lochi_sim_capture_refuse(const lochi_sim_event *event, const char *what);
void lochi_sim_capture_leave(lochi_sim_stream *stream); /* the stream goes: its capture breaks */
uint64_t lochi_sim_capture_id(const lochi_sim_capture *capture);

/* --- the checker (check.c) --- */

void lochi_sim_check_use(lochi_sim_stream *stream, const lochi_sim_op *op, const lochi_sim_use *use, uint64_t epoch);
void lochi_sim_check_overlap(lochi_sim_stream *stream, const lochi_sim_op *op);
void lochi_sim_check_gone(lochi_sim *sim, const lochi_sim_span *span, const lochi_sim_op *op, const char *how);
void lochi_sim_shadow_drop(lochi_sim_shadow *shadow);

/* --- costs (cost.c) --- */

typedef struct lochi_sim_point {
    size_t bytes;
    uint64_t ns;
} lochi_sim_point;

#define LOCHI_SIM_POINTS_MAX 16

typedef struct lochi_sim_curve {
    size_t count;
    lochi_sim_point points[LOCHI_SIM_POINTS_MAX];
} lochi_sim_curve;

typedef struct lochi_sim_costs {
    lochi_sim_curve curves[LOCH_CALL_COUNT];
} lochi_sim_costs;

void lochi_sim_costs_default(lochi_sim_costs *costs);
/* Reads a file over the costs; E_INVALID names file and line. */
loch_status lochi_sim_costs_read(lochi_sim_costs *costs, const char *path);
uint64_t lochi_sim_cost(const lochi_sim_costs *costs, loch_driver_call call, size_t bytes);

/* --- the device (sim.c) --- */

struct lochi_sim {
    lochi_sim *next; /* in the world */
    uint64_t serial; /* no other simulated device of the process has or had it */
    /* from the options */
    size_t capacity, granule;
    uint32_t capabilities;
    int index;
    bool is_backed, is_stepped, is_checked;
    atomic_bool has_said_unbacked; /* relaxed: once is enough */
    uint64_t lag_ns, event_lag_ns, random;
    lochi_sim_costs costs;
    /* memory */
    lochi_sim_file *file;  /* backed */
    lochi_sim_space space; /* unbacked */
    size_t window;         /* unbacked */
    lochi_tree spans, reservations;
    lochi_sim_object *objects;
    size_t used, used_peak, reserved, pinned, handles, mappings;
    uint64_t *peers; /* serial numbers of the devices whose raw memory work of this one may use */
    size_t peers_count;
    /* time and streams */
    uint64_t now_ns, next_ns;        /* next_ns: no operation ends before */
    bool is_settling;                /* a thread makes operations take effect */
    uint64_t settler;                /* which */
    lochi_sim_key settled;           /* everything up to here has taken effect */
    lochi_sim_key last;              /* of all that was ever queued */
    lochi_sim_stream default_stream; /* heads the list of all streams */
    lochi_sim_vector gone;           /* what streams that are no more had seen */
    lochi_sim_vector gone_blocking;  /* of those, streams ordered with the default one */
    lochi_sim_event *events;
    uint64_t last_number;
    size_t streams_count, events_count, pending;
    /* calls */
    uint64_t calls, modelled_ns, call_ns[LOCH_CALL_COUNT];
    bool is_lost, is_forked, has_fault; /* a forked one is lost, too */
    loch_sim_fault fault;               /* its name is not used */
    int fault_call;                     /* -1 for any */
    uint64_t fault_seen;
    /* findings */
    size_t violations_count;
    loch_sim_violation violations[LOCHI_SIM_VIOLATIONS];
};

/* All simulated devices of the process. */
typedef struct lochi_sim_world {
    lochi_lock lock;
    pthread_cond_t settled; /* an operation has taken effect */
    lochi_sim *devices;
    lochi_sim_capture *captures;
    uint64_t last_serial, last_op, last_capture;
    lochi_sim_vector host; /* what the host has waited for; one for all its threads */
} lochi_sim_world;

extern lochi_sim_world lochi_sim_all;

/* Begins a driver call: takes the lock, counts, charges, moves a seeded clock. A fault or a lost device ends it here,
 * the lock dropped. lochi_sim_end drops the lock and hands the status on. */
loch_status lochi_sim_begin(lochi_sim *sim, loch_driver_call call, size_t bytes);
loch_status lochi_sim_end(loch_status status);
/* The same for a call inside a call. */
loch_status lochi_sim_count(lochi_sim *sim, loch_driver_call call, size_t bytes);
/* Time that the host spends in a call, on a seeded clock. */
void lochi_sim_tick(lochi_sim *sim);
loch_status lochi_sim_check_lost(const lochi_sim *sim);
/* The simulated device or stream behind a public one; E_INVALID for NULL, a closed stream, and other drivers' ones. */
loch_status lochi_sim_of_device(loch_device *device, lochi_sim **out);
loch_status lochi_sim_of_stream(loch_stream *stream, lochi_sim **out, lochi_sim_stream **out_stream);
/* The serial number of the device that is current in the calling thread, 0 for none; and what stands for a caller's cudaSetDevice. */
uint64_t lochi_sim_get_current(void);
void lochi_sim_set_current(uint64_t serial);
/* E_UNSUPPORTED when an option took the capability away. */
loch_status lochi_sim_need(const lochi_sim *sim, uint32_t capability, const char *what);

/* --- slots of the driver table, by file --- */

/* memory.c */
loch_status lochi_sim_memory_info(void *self, loch_memory_info *out);
loch_status lochi_sim_raw_alloc(void *self, size_t bytes, size_t alignment, void **out);
loch_status lochi_sim_raw_free(void *self, void *address, size_t bytes);
loch_status lochi_sim_pinned_alloc(void *self, size_t bytes, size_t alignment, void **out);
loch_status lochi_sim_pinned_free(void *self, void *address, size_t bytes);
loch_status lochi_sim_managed_alloc(void *self, size_t bytes, size_t alignment, void **out);
loch_status lochi_sim_managed_free(void *self, void *address, size_t bytes);
loch_status lochi_sim_host_register(void *self, void *address, size_t bytes);
loch_status lochi_sim_host_unregister(void *self, void *address, size_t bytes);
loch_status lochi_sim_ordered_alloc(void *self, size_t bytes, void *stream, void **out);
loch_status lochi_sim_ordered_free(void *self, void *address, size_t bytes, void *stream);
loch_status lochi_sim_peer_enable(void *self, void *peer);
loch_status lochi_sim_address_query(void *self, const void *address, loch_address_info *out);
/* virtual.c */
loch_status lochi_sim_reserve(void *self, size_t bytes, size_t alignment, void **out);
loch_status lochi_sim_unreserve(void *self, void *address, size_t bytes);
loch_status lochi_sim_handle_create(void *self, size_t bytes, const loch_handle_options *options,
                                    loch_driver_handle *out);
loch_status lochi_sim_handle_release(void *self, loch_driver_handle handle, size_t bytes);
loch_status lochi_sim_handle_export(void *self, loch_driver_handle handle, loch_share share, void *out);
loch_status lochi_sim_handle_import(void *self, loch_share share, const void *shared, size_t bytes,
                                    loch_driver_handle *out);
loch_status lochi_sim_map(void *self, void *address, size_t bytes, loch_driver_handle handle, void *const *peers,
                          size_t peers_count);
loch_status lochi_sim_unmap(void *self, void *address, size_t bytes, loch_driver_handle handle);
/* work.c */
loch_status lochi_sim_copy(void *self, loch_direction direction, void *to, const void *from, size_t bytes, void *peer,
                           void *stream);
loch_status lochi_sim_copy_pitched(void *self, loch_direction direction, void *to, const void *from,
                                   const loch_pitched *shape, void *peer, void *stream);
loch_status lochi_sim_fill(void *self, void *to, size_t bytes, uint32_t pattern, size_t pattern_bytes, void *stream);
loch_status lochi_sim_stream_call(void *self, void *stream, loch_stream_function *function, void *user);
/* stream.c */
loch_status lochi_sim_stream_create(void *self, const loch_stream_options *options, void **out);
loch_status lochi_sim_stream_destroy(void *self, void *stream);
loch_status lochi_sim_stream_thread_default(void *self, void **out);
loch_status lochi_sim_stream_wrap(void *self, void *native, void **out);
loch_status lochi_sim_stream_query(void *self, void *stream);
loch_status lochi_sim_stream_sync(void *self, void *stream);
loch_status lochi_sim_stream_wait(void *self, void *stream, void *event);
loch_status lochi_sim_stream_capture(void *self, void *stream, loch_capture_info *out);
loch_status lochi_sim_event_create(void *self, loch_event_kind kind, void **out);
loch_status lochi_sim_event_destroy(void *self, void *event);
loch_status lochi_sim_event_record(void *self, void *event, void *stream);
loch_status lochi_sim_event_query(void *self, void *event);
loch_status lochi_sim_event_sync(void *self, void *event);
loch_status lochi_sim_event_elapsed(void *self, void *start, void *end, uint64_t *out_ns);
loch_status lochi_sim_device_sync(void *self);

#endif

/* SPDX-License-Identifier: MIT */
/* The state of simulated devices: the structs and their invariants.
 *
 *     device ── streams ── operations (a queue each; keys rise along it)
 *        │                     │ uses
 *        ├── spans ────────────┴─ what is mapped at an address: raw blocks, mappings, pinned and registered memory
 *        │      └── objects       physical memory; spans of one object are aliases; the checker's shadow is here
 *        └── reservations         addresses that mappings may be put at
 *
 * One lock (lochi_sim_all.lock) guards all simulated devices of the process: they wait for each other's events, read
 * each other's memory and share objects. The lock guards every member below that names no other rule. It is dropped
 * only while functions that the user queued run (lochi_sim_settle), and while a thread waits until an operation has
 * taken effect.
 *
 * Time: every operation gets a key (its end, then its number in the process) when it is queued. The key is greater than
 * the keys of all operations that it waits for. Operations take effect in the order of their keys, on the thread that
 * moves the clock. */
#ifndef LOCHI_SIM_STATE_H
#define LOCHI_SIM_STATE_H

#include "base/lock.h"
#include "base/tree.h"
#include "device/sim/cost.h"
#include "device/sim/space.h"
#include <loch/driver.h>
#include <loch/sim.h>
#include <stdbool.h>

#define LOCHI_SIM_RAW_LARGE ((size_t)2 << 20)      /* raw blocks of this size and more are aligned to it */
#define LOCHI_SIM_WINDOW_BASE ((uintptr_t)1 << 56) /* above every address that a machine gives to a process */
#define LOCHI_SIM_VIOLATIONS 64                    /* number of violations kept */
#define LOCHI_SIM_SENTENCE_BYTES 600               /* size of a finding with all that is known, for the log */
#define LOCHI_SIM_NAME_BYTES 32                    /* size of an operation's name, for reports */

typedef struct lochi_sim lochi_sim;
typedef struct lochi_sim_stream lochi_sim_stream;
typedef struct lochi_sim_capture lochi_sim_capture;

/* --- order --- */

/* A vector clock: for each slot, the last epoch that happened before. All vectors are as long as the table of slots. */
typedef struct lochi_sim_vector {
    uint64_t *epochs;
    uint64_t *grown; /* used while all vectors grow together */
    struct lochi_sim_vector *prev, *next;
} lochi_sim_vector;

/* One use of memory by one stream. */
typedef struct lochi_sim_access {
    uint64_t epoch;  /* 0: none */
    uint64_t stream; /* the stream's number, for reports */
    uint32_t slot;
    uint32_t name; /* of the work, for reports: lochi_sim_check_name */
} lochi_sim_access;

/* --- memory --- */

/* Reads of an interval since its last write. Shared by the cells into which a wider read was split. */
typedef struct lochi_sim_reads {
    size_t references, count;
    lochi_sim_access items[];
} lochi_sim_reads;

/* One interval of an object, for the checker. */
typedef struct lochi_sim_cell {
    size_t start, end;
    lochi_sim_access write;
    lochi_sim_reads *reads; /* NULL if there are none */
} lochi_sim_cell;

/* The checker's record of an object. */
typedef struct lochi_sim_shadow {
    lochi_sim_cell *cells; /* sorted, disjoint */
    size_t count, capacity;
} lochi_sim_shadow;

/* The file behind the memory of all backed devices. Counted by the objects that have a place in it. */
typedef struct lochi_sim_file {
    int fd;
    size_t references;
    lochi_sim_space space; /* free offsets */
} lochi_sim_file;

/* Physical memory. */
typedef struct lochi_sim_object {
    lochi_sim *owner; /* device whose capacity it takes; NULL once that device has closed */
    struct lochi_sim_object *prev, *next;
    size_t bytes;
    size_t charged;           /* bytes of the capacity that it takes */
    size_t references;        /* handles and spans */
    size_t mappings;          /* spans only */
    uint32_t share;           /* set of loch_share */
    int token;                /* descriptor that stands for it once it was exported; -1 before */
    bool is_backed;           /* it has contents */
    lochi_sim_file *file;     /* NULL until its contents are used */
    lochi_sim_extent *extent; /* place in the file */
    lochi_sim_shadow shadow;
} lochi_sim_object;

typedef struct lochi_sim_reservation {
    lochi_tree_node node; /* key: start */
    size_t bytes, mappings;
    lochi_sim_extent *extent; /* of an unbacked device */
} lochi_sim_reservation;

/* Memory at an address. */
typedef struct lochi_sim_span {
    lochi_tree_node node; /* key: start */
    size_t bytes;         /* as requested */
    size_t host_bytes;    /* size for munmap; 0 for bare numbers and for memory of the caller */
    bool is_real;         /* it has contents */
    bool is_mapped;       /* the host can read and write it: lochi_sim_host_map */
    loch_memory_kind kind;
    lochi_sim_object *object;
    lochi_sim_reservation *reservation; /* of a mapping */
    lochi_sim_extent *extent;           /* addresses of an unbacked raw block */
    struct lochi_sim_op *free_op;       /* of ordered memory: created in advance, so that freeing needs no memory */
    bool is_freed;                      /* ordered memory whose free is queued */
    size_t pending;                     /* number of queued operations that use it */
    size_t peers_count;
    uint64_t peers[]; /* serial numbers of the devices that may use a mapping */
} lochi_sim_span;

/* --- work --- */

/* Position of an operation in the order of ends. */
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

/* Adds two times. Saturates at UINT64_MAX. */
static inline uint64_t lochi_sim_add_ns(uint64_t a, uint64_t b)
{
    return a > UINT64_MAX - b ? UINT64_MAX : a + b;
}

typedef enum lochi_sim_kind {
    LOCHI_SIM_COPY,
    LOCHI_SIM_FILL,
    LOCHI_SIM_KERNEL,
    LOCHI_SIM_CALL,
    LOCHI_SIM_WAIT, /* waits for another device */
    LOCHI_SIM_FREE  /* frees ordered memory */
} lochi_sim_kind;

typedef struct lochi_sim_range {
    const void *address;
    size_t bytes;
    bool is_write;
} lochi_sim_range;

/* Work as requested. A capture keeps it. */
typedef struct lochi_sim_request {
    lochi_sim_kind kind;
    uint64_t duration_ns;
    const char *name;              /* for reports; never NULL */
    const lochi_sim_range *ranges; /* device and page-locked memory that the work uses */
    size_t ranges_count;
    void *to; /* target of copy and fill */
    const void *from;
    size_t bytes;
    loch_pitched shape;          /* of a copy of rows; otherwise all zero */
    const loch_strided *strided; /* of a copy or fill between layouts; otherwise NULL */
    uint32_t pattern;
    size_t pattern_bytes;
    bool is_staged; /* the source is pageable: copied when queued */
    bool is_waited; /* the target is pageable: the call returns when the copy has ended */
    bool any_device;
    loch_stream_function *function; /* of kernel and call */
    void *user;
} lochi_sim_request;

/* The part of one span that an operation uses. `span` is NULL once the span was removed. */
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
    bool is_dead;    /* its memory was removed: no effect */
    bool is_real;    /* all of its memory has contents, which the host can read and write */
    bool is_running; /* its function is running, without the lock */
    char name[LOCHI_SIM_NAME_BYTES];
    void *to, *staging;
    const void *from;
    size_t bytes, pattern_bytes;
    loch_pitched shape;    /* with the source pitches of `staging` if there is one */
    loch_strided *strided; /* own copy; NULL for other work */
    uint32_t pattern;
    loch_stream_function *function;
    void *user;
    lochi_sim *awaited; /* of a wait: the device and key waited for */
    lochi_sim_key awaited_key;
    lochi_sim_span *freed; /* of a free: the span */
    size_t uses_count;
    lochi_sim_use uses[];
} lochi_sim_op;

/* --- streams and events --- */

struct lochi_sim_stream {
    lochi_sim *device;
    lochi_sim_stream *prev, *next;
    uint64_t number; /* number in the device; the default stream is 1 */
    uint64_t thread; /* number of the thread of a thread's default stream; otherwise 0 */
    bool is_with_default;
    bool is_made;      /* created by stream_create: counted */
    bool is_destroyed; /* freed when its queue is empty */
    size_t slot;
    lochi_sim_vector seen; /* what happened before the next operation of the stream */
    lochi_sim_key tail;    /* key that the next operation of the stream starts after */
    uint64_t waited_ns;    /* time at which the last event that it waits for passes */
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
    uint64_t stream; /* number of the stream that it was recorded on */
    uint64_t time_ns;
    lochi_sim_vector seen;
    uint64_t capture; /* id of the capture that it was recorded in; otherwise 0 */
    size_t mark;      /* mark in that capture */
} lochi_sim_event;

/* --- captures --- */

/* Kind of a step of a script: an operation, a mark (a recorded event), a wait for a mark. */
typedef enum lochi_sim_item_type { LOCHI_SIM_ITEM_OP, LOCHI_SIM_ITEM_MARK, LOCHI_SIM_ITEM_WAIT } lochi_sim_item_type;

/* One step of a script. */
typedef struct lochi_sim_item {
    struct lochi_sim_item *next;
    lochi_sim_item_type type;
    size_t branch, mark;
    lochi_sim_request request; /* its ranges and name follow the item in memory */
} lochi_sim_item;

/* The steps of a capture, in order. */
typedef struct lochi_sim_script {
    lochi_sim_item *first, *last;
    size_t branches, marks;
} lochi_sim_script;

/* A capture in progress. */
struct lochi_sim_capture {
    lochi_sim_capture *next; /* in the list of all captures */
    uint64_t id;
    lochi_sim_stream *origin;
    const char *broken_by; /* NULL while the capture is not broken; static string */
    lochi_sim_script script;
};

/* --- devices --- */

struct lochi_sim {
    lochi_sim *next; /* in the list of all devices */
    uint64_t serial; /* unique among all simulated devices of the process, past ones too */
    /* from the options */
    size_t capacity, granule;
    uint32_t capabilities;
    int index;
    bool is_backed, is_stepped, is_checked;
    bool is_touched; /* "backed": the host may touch all memory at any time */
    bool is_strict;  /* a finding of the checker fails the call */
    uint64_t lag_ns, event_lag_ns, random;
    lochi_sim_costs costs;
    /* memory */
    lochi_sim_space space; /* of an unbacked device */
    size_t window;         /* of an unbacked device */
    lochi_tree spans, reservations;
    lochi_sim_object *objects;
    size_t used, used_peak, reserved, pinned, handles, mappings;
    uint64_t *peers; /* serial numbers of the devices whose raw memory this device may use */
    size_t peers_count;
    /* time and streams */
    uint64_t now_ns, next_ns;        /* next_ns: no operation ends before it */
    bool is_settling;                /* a thread is settling the device */
    uint64_t settler;                /* number of that thread */
    lochi_sim_key settled;           /* every operation up to this key has taken effect */
    lochi_sim_key last;              /* greatest key of all operations ever queued */
    lochi_sim_stream default_stream; /* head of the list of all streams */
    lochi_sim_vector gone;           /* joined vectors of streams that have ended */
    lochi_sim_vector gone_blocking;  /* joined vectors of those that were ordered with the default stream */
    lochi_sim_event *events;
    uint64_t last_number;
    size_t streams_count, events_count, pending;
    /* calls */
    uint64_t calls, modelled_ns, call_ns[LOCH_CALL_COUNT];
    bool is_lost, is_forked, has_fault; /* a forked device is lost too */
    loch_sim_fault fault;               /* its name is not used */
    int fault_call;                     /* -1 for any call */
    uint64_t fault_seen;
    /* violations */
    size_t violations_count;
    char refusal[LOCHI_SIM_SENTENCE_BYTES]; /* strict: the finding that fails the call in progress; "" for none */
    loch_sim_violation violations[LOCHI_SIM_VIOLATIONS];
};

/* All simulated devices of the process. */
typedef struct lochi_sim_world {
    lochi_lock lock;
    pthread_cond_t settled; /* signalled when an operation has taken effect */
    lochi_sim *devices;
    lochi_sim_capture *captures;
    uint64_t last_serial, last_op, last_capture;
    lochi_sim_vector host; /* what the host has waited for; one vector for all its threads */
    lochi_sim_file *file;  /* the file of backed devices; NULL while no object has a place in it */
    size_t room;           /* bytes of backed memory that may be used before the host is asked again what it has free */
} lochi_sim_world;

extern lochi_sim_world lochi_sim_all;

/* Fails with E_FORKED or E_DEVICE_LOST if the device is lost. */
loch_status lochi_sim_check_lost(const lochi_sim *sim);

/* Fails with E_UNSUPPORTED if an option has removed the capability. */
loch_status lochi_sim_need(const lochi_sim *sim, uint32_t capability, const char *what);

#endif

/* SPDX-License-Identifier: MIT */
/* The inside of devices, streams and events, for src/device alone and for the layers above that need more than the
 * public headers give. */
#ifndef LOCHI_DEVICE_H
#define LOCHI_DEVICE_H

#include "base/cancel.h"
#include "base/lock.h"
#include "base/thread.h"
#include <loch/driver.h>
#include <stdatomic.h>
#include <stdbool.h>

/* One driver call's counters; relaxed atomics: they are statistics, and order nothing. */
typedef struct lochi_call_counter {
    _Atomic uint64_t count;
    _Atomic uint64_t ns;
} lochi_call_counter;

/* On streams and events, for whoever keeps some to hand them out again (engine/stream_pool.c). */
typedef struct lochi_kept {
    struct lochi_kept *next; /* while it is kept */
    uint64_t mark;           /* whose it is, while it is out; 0 while it is kept, and when it is nobody's */
} lochi_kept;

struct loch_stream {
    loch_device *device;
    void *native;
    uint64_t id;
    atomic_size_t references; /* one for all owners, one for each part of the library that remembers the stream */
    atomic_size_t owners;     /* loch_stream_retain; not of default streams */
    atomic_bool has_ended;    /* an owner has ended it */
    atomic_bool is_closing;   /* who remembers it begins nothing on it any more */
    atomic_bool closed;       /* no driver call through it any more */
    enum { LOCHI_STREAM_DEFAULT, LOCHI_STREAM_OWNED, LOCHI_STREAM_WRAPPED, LOCHI_STREAM_OF_THREAD } kind;
    uint64_t thread; /* LOCHI_STREAM_OF_THREAD: whose */
    struct loch_stream *prev,
        *next; /* in the device's list: of threads' streams, which uses `next` alone, or of others */
    lochi_kept kept;
};

struct loch_event {
    loch_device *device;
    void *native;
    loch_event_kind kind;
    bool recorded;
    lochi_kept kept;
};

struct loch_device {
    const loch_driver *driver; /* from the table of drivers: empty slots filled */
    void *self;                /* the driver's */
    bool is_open;              /* `open` succeeded, so `close` is owed; `self` may be NULL all the same */
    bool is_forked;            /* opened before a fork that it did not survive; written in the child, alone */
    char name[LOCH_DEVICE_NAME_MAX];
    loch_device_properties properties;
    atomic_size_t references; /* falls to zero only under the lock of the table of devices, so that open and the last
                               * release cannot cross */
    struct loch_device *next;
    atomic_bool measuring;
    lochi_call_counter calls[LOCH_CALL_COUNT];
    loch_stream default_stream;
    lochi_lock lock; /* LOCHI_RANK_DEVICE: the members below */
    loch_stream *thread_streams;
    loch_stream *streams;                /* that were created or wrapped */
    uint64_t cost_base[LOCH_CALL_COUNT]; /* modelled costs when counting began */
};

/* The built-in drivers. */
extern const loch_driver lochi_cpu_driver;
extern const loch_driver lochi_cuda_driver;
extern const loch_driver lochi_sim_driver;

/* Counting: LOCHI_CALL(device, map, (device->self, ...)) calls the slot, counts it, and times it when measuring. The thread
 * is not cancelled meanwhile. */
uint64_t lochi_call_begin(loch_device *device, loch_driver_call call);
void lochi_call_end(loch_device *device, loch_driver_call call, uint64_t start_ns);

#define LOCHI_CALL_SLOT(result, device, call, slot, arguments)                                                         \
    do {                                                                                                               \
        const int call_cancel = lochi_cancel_hold();                                                                   \
        uint64_t call_start_ns = lochi_call_begin((device), LOCH_CALL_##call);                                         \
        (result) = (device)->driver->slot arguments;                                                                   \
        lochi_call_end((device), LOCH_CALL_##call, call_start_ns);                                                     \
        lochi_cancel_restore(&call_cancel);                                                                            \
    } while (0)

#define LOCHI_CALL(result, device, call, arguments) LOCHI_CALL_SLOT(result, device, call, call, arguments)

/* In the child of a fork: asks the driver of an open device whether it works on, and notes the answer. */
void lochi_driver_tell_forked(loch_device *device);

/* What a driver of the table has the slots for; a device must not claim more. */
uint32_t lochi_driver_possible(const loch_driver *driver);

/* Whether work of the device is done when the call returns. */
static inline bool lochi_device_is_at_once(const loch_device *device)
{
    return !(device->properties.capabilities & LOCH_CAN_ASYNC);
}

/* Whether a status says that nothing runs on the device any more, and nothing will: work there need not be waited for. */
static inline bool lochi_is_gone(loch_status status)
{
    return status == LOCH_E_DEVICE_LOST || status == LOCH_E_FORKED;
}

/* Whether it was opened before a fork that it did not survive; and E_FORKED with the sentence for that. */
static inline bool lochi_device_is_forked(const loch_device *device)
{
    return device->is_forked;
}
loch_status lochi_device_refuse_forked(const loch_device *device);

/* Whether its driver calls take a modelled time, and the host's clock says nothing of them. */
bool lochi_device_is_modelled(const loch_device *device);

/* Whether its driver copies rows in one call. */
bool lochi_device_copies_rows(const loch_device *device);

/* Whether the driver can protect memory from the host's writes; and does it, for whole pages of the host: what lies in a page
 * beside the memory would be protected, too. */
size_t lochi_device_page_bytes(void);
bool lochi_device_protects(const loch_device *device);
loch_status lochi_device_protect(loch_device *device, void *address, size_t bytes, loch_access access);

/* Whether the driver can make the device current in a thread (current.h). */
bool lochi_device_enters(const loch_device *device);

/* Calls `visit` for every open device, under the lock of the table of devices, until it returns true. */
bool lochi_device_any(bool (*visit)(loch_device *device, void *user), void *user);

/* Makes the default stream of a device that is being opened. */
void lochi_stream_init_default(loch_device *device);

/* Streams remembered by the library: the object stays after its owner has destroyed it, closed. */
loch_stream *lochi_stream_retain(loch_stream *stream);
void lochi_stream_release(loch_stream *stream);

/* The stream of a device with that id, retained; NULL when its owner has destroyed it. */
loch_stream *lochi_stream_find(loch_device *device, uint64_t id);

/* Around every driver call that the library makes by itself on a stream that it remembers: false when the owner has
 * destroyed it, else its queue stays until `leave`. Nothing in between may wait for another thread but the driver. */
bool lochi_stream_enter(loch_stream *stream, uint32_t *mark);
void lochi_stream_leave(uint32_t mark);

/* Hears of the streams of one device that go (stream_close.c). Its owner keeps the device. */
typedef struct lochi_stream_listener {
    struct lochi_stream_listener *next; /* the list's */
    loch_device *device;
    /* A stream other than the default one goes: destroyed, or with its thread. It is still open: events may be recorded
     * on it. Called by the thread that ends it, under a lock of LOCHI_RANK_STREAM_LISTENERS: locks of
     * LOCHI_RANK_MEMORY and above may be taken, drivers called, streams neither destroyed nor listened for. */
    void (*closing)(struct lochi_stream_listener *listener, loch_stream *stream);
} lochi_stream_listener;

void lochi_stream_listen(lochi_stream_listener *listener);
/* Returns when no call is under way. Not from inside `closing`, nor under a lock of that rank or above. */
void lochi_stream_unlisten(lochi_stream_listener *listener);

/* The two halves of a stream's end, before its queue goes: tells the listeners; closes it and waits until nobody who
 * remembers it is inside. */
void lochi_stream_announce(loch_stream *stream);
void lochi_stream_shut(loch_stream *stream);

/* Checks a stream that a caller gave for work on `device`: E_INVALID for a closed one or one of another device. */
loch_status lochi_stream_check(const loch_stream *stream, const loch_device *device);

/* Whether work on a stream is captured, and runs when a graph does. */
bool lochi_stream_is_captured(loch_stream *stream);
/* E_BUSY for a stream that is captured, before anything is queued that a graph must not hold; `what` says it. */
loch_status lochi_stream_refuse_captured(loch_stream *stream, const char *what);

/* Ends the thread-default streams of a device that is being closed. */
void lochi_stream_close_all(loch_device *device);

/* The driver of a device that did not survive a fork and whose own driver says nothing of it: gives nothing back, and answers
 * E_FORKED to everything else (forked.c). */
extern const loch_driver lochi_forked_driver;

/* Fills the stream and event slots for a device whose work is done when the call returns (at_once.c). */
void lochi_at_once_fill(loch_driver *driver);

/* Short-lived memory in the order of a stream, not in the table of ranges: the driver's own stream-ordered allocator, or
 * raw memory whose free waits for the stream. */
loch_status lochi_ordered_alloc(loch_stream *stream, size_t bytes, void **out);
loch_status lochi_ordered_free(loch_stream *stream, void *address, size_t bytes);

#endif

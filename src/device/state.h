/* SPDX-License-Identifier: MIT */
/* Devices, streams and events: the structs, and what is read from them alone. */
#ifndef LOCHI_DEVICE_STATE_H
#define LOCHI_DEVICE_STATE_H

#include "base/lock.h"
#include <loch/driver.h>
#include <stdatomic.h>
#include <stdbool.h>

/* Counts one sort of driver call. Relaxed atomics: figures that order nothing. */
typedef struct lochi_call_counter {
    _Atomic uint64_t count;
    _Atomic uint64_t ns;
} lochi_call_counter;

/* Links a stream or event that is kept to be handed out again (engine/stream_pool.c). */
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

/* Tells whether work of the device is done when the call returns. */
static inline bool lochi_device_is_at_once(const loch_device *device)
{
    return !(device->properties.capabilities & LOCH_CAN_ASYNC);
}

/* Tells whether a status says that nothing runs on the device any more, and nothing will: work there need not be waited for. */
static inline bool lochi_is_gone(loch_status status)
{
    return status == LOCH_E_DEVICE_LOST || status == LOCH_E_FORKED;
}

/* Tells whether the device was opened before a fork that it did not survive. */
static inline bool lochi_device_is_forked(const loch_device *device)
{
    return device->is_forked;
}

#endif

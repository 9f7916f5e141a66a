/* SPDX-License-Identifier: MIT */
/* The structs of devices, streams and events, and functions that only read them. */
#ifndef LOCHI_DEVICE_STATE_H
#define LOCHI_DEVICE_STATE_H

#include "base/lock.h"
#include <loch/driver.h>
#include <stdatomic.h>
#include <stdbool.h>

/* Counter of one kind of driver call. Relaxed atomics: statistics that order nothing. */
typedef struct lochi_call_counter {
    _Atomic uint64_t count;
    _Atomic uint64_t ns;
} lochi_call_counter;

/* Link of a stream or event that is cached for reuse (engine/stream_pool.c). */
typedef struct lochi_kept {
    struct lochi_kept *next; /* next cached object */
    uint64_t mark;           /* mark of the borrower while lent out; 0 while cached, and if no pool owns it */
} lochi_kept;

struct loch_stream {
    loch_device *device;
    void *native;
    uint64_t id;
    atomic_size_t references; /* one for all owners, one for each part of the library that remembers the stream */
    atomic_size_t owners;     /* count of loch_stream_retain; not for default streams */
    atomic_bool has_ended;    /* an owner has ended the stream */
    atomic_bool is_closing;   /* parts of the library that remember the stream start nothing on it */
    atomic_bool closed;       /* no driver call through the stream */
    enum { LOCHI_STREAM_DEFAULT, LOCHI_STREAM_OWNED, LOCHI_STREAM_WRAPPED, LOCHI_STREAM_OF_THREAD } kind;
    uint64_t thread; /* of LOCHI_STREAM_OF_THREAD: number of its thread */
    /* List of the device: of the streams of threads, which uses only `next`, or of the other streams. */
    struct loch_stream *prev, *next;
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
    const loch_driver *driver; /* from the table of drivers: empty slots are filled */
    void *self;                /* the driver's own data */
    bool is_open;              /* `open` succeeded, so `close` must be called; `self` may still be NULL */
    bool is_forked;            /* opened before a fork that it did not survive; written only in the child */
    char name[LOCH_DEVICE_NAME_MAX];
    loch_device_properties properties;
    /* Falls to zero only under the lock of the table of devices, so that open and the last release cannot race. */
    atomic_size_t references;
    struct loch_device *next;
    atomic_bool measuring;
    lochi_call_counter calls[LOCH_CALL_COUNT];
    loch_stream default_stream;
    lochi_lock lock; /* LOCHI_RANK_DEVICE: guards the members below */
    loch_stream *thread_streams;
    loch_stream *streams;                /* created or wrapped streams */
    uint64_t cost_base[LOCH_CALL_COUNT]; /* modelled costs when counting began */
};

/* Returns whether work of the device is done when the call returns. */
static inline bool lochi_device_is_at_once(const loch_device *device)
{
    return !(device->properties.capabilities & LOCH_CAN_ASYNC);
}

/* Returns whether a status means that nothing runs on the device any more: its work need not be waited for. */
static inline bool lochi_is_gone(loch_status status)
{
    return status == LOCH_E_DEVICE_LOST || status == LOCH_E_FORKED;
}

/* Returns whether the device was opened before a fork that it did not survive. */
static inline bool lochi_device_is_forked(const loch_device *device)
{
    return device->is_forked;
}

#endif

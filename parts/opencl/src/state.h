/* SPDX-License-Identifier: MIT */
/* The structs of an open device, of its streams and of its events.
 *
 * Locks, in the order in which they are taken: the lock of the device, the lock of a stream, the lock of the calls. No
 * lock is held while a call waits for the device. OpenCL is called with the lock of a stream held, so that the order of
 * `last` is the order of the queue. */
#ifndef LOCH_OPENCL_STATE_H
#define LOCH_OPENCL_STATE_H

#include "api.h"
#include <loch/check.h>
#include <loch/driver.h>
#include <loch/host.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>

/* Every block has this alignment: the size of the largest type of OpenCL C, which clSVMAlloc promises. */
#define LOCHI_OPENCL_ALIGNMENT_BYTES 128

/* Threads that run functions of streams: the most of one device. */
#define LOCHI_OPENCL_WORKERS_MAX 32

typedef struct lochi_opencl_device lochi_opencl_device;

/* A stream: one queue, or one user of a queue that others use too. */
typedef struct lochi_opencl_stream {
    cl_queue queue; /* retained */
    /* The caller of Loch has the queue too and may queue work of its own: set when the queue is handed out, and for
     * wrapped queues. Relaxed: a caller that queues work has got the queue before. */
    atomic_bool is_shared;
    pthread_mutex_t lock;
    cl_mark last;    /* under the lock: retained; the last work of Loch on the stream; NULL before the first */
    uint64_t number; /* in the order of making, from 1 */
    struct lochi_opencl_stream *next, *prev; /* under the lock of the device; newest first */
} lochi_opencl_stream;

/* An event. One thread at a time uses it. */
typedef struct lochi_opencl_event {
    lochi_opencl_device *device;
    cl_mark mark; /* retained; NULL before the event is recorded */
} lochi_opencl_event;

/* A function that a stream has to run on the host. */
typedef struct lochi_opencl_call {
    lochi_opencl_device *device;
    loch_stream_function *function;
    void *user;
    cl_mark end;      /* user event, retained: later work of the stream waits for it */
    cl_result status; /* of the work before the function */
    struct lochi_opencl_call *next;
} lochi_opencl_call;

/* Functions whose turn has come, and the threads that run them. */
typedef struct lochi_opencl_calls {
    pthread_mutex_t lock;
    pthread_cond_t changed;
    lochi_opencl_call *first, *last; /* under the lock, like all that follows: waiting for a thread */
    size_t waiting, idle, count;     /* functions that wait; threads that wait; threads */
    bool is_ending;
    pthread_t threads[LOCHI_OPENCL_WORKERS_MAX];
} lochi_opencl_calls;

/* A block of pinned memory. */
typedef struct lochi_opencl_block {
    uintptr_t start;
    size_t bytes;
} lochi_opencl_block;

struct lochi_opencl_device {
    cl_platform platform;
    cl_device id;          /* retained */
    cl_context_of context; /* retained */
    int index;             /* number among the devices of all platforms; 0 for a sub-device */
    bool has_pinned;       /* the device has fine-grained shared virtual memory */
    size_t total_bytes, block_bytes_max;
    atomic_size_t used_bytes;             /* relaxed: a count; memory itself is handed over by OpenCL */
    struct lochi_opencl_adopted *adopted; /* the caller's context; NULL for a context of Loch */
    lochi_opencl_stream *default_stream;
    lochi_opencl_calls calls;

    pthread_mutex_t lock;
    lochi_opencl_stream *streams; /* under the lock, like all that follows; the default stream is not in the list */
    uint64_t streams_made;
    cl_mark *leaving; /* retained: the last work of streams that have ended, oldest first */
    size_t leaving_count, leaving_room;
    lochi_opencl_block *pinned; /* sorted by address */
    size_t pinned_count, pinned_room;
};

#endif

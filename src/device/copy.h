/* SPDX-License-Identifier: MIT */
/* Steps that plain copies, copies of rows and fills share. */
#ifndef LOCHI_COPY_H
#define LOCHI_COPY_H

#include "device/ranges.h"

/* Checks [address, address + bytes), including the block bounds of a pool, and locates it. `what` names the range in
 * error sentences. */
loch_status lochi_copy_locate(const void *address, size_t bytes, const char *what, lochi_place *out);

/* Checks [address, address + bytes) and locates it, without asking the tenant about blocks. For callers that hand
 * the memory out themselves. */
loch_status lochi_copy_locate_own(const void *address, size_t bytes, const char *what, lochi_place *out);

/* Returns whether the host can read and write the place directly. */
static inline bool lochi_place_is_host(const lochi_place *place)
{
    return place->kind == LOCH_MEMORY_HOST || place->kind == LOCH_MEMORY_PINNED ||
           place->kind == LOCH_MEMORY_REGISTERED || loch_device_can(place->device, LOCH_CAN_HOST_ACCESS);
}

/* A copy: the request, and the decisions made for it. */
typedef struct lochi_copy_job {
    char *to;
    const char *from;
    size_t bytes; /* size of a plain copy */
    lochi_place to_place, from_place;
    loch_direction direction;
    bool is_own;         /* the caller hands the memory out itself: tenants are not asked */
    loch_stream *given;  /* the caller's stream; NULL if none */
    loch_wait wait;      /* not LOCH_WAIT_DEFAULT */
    loch_stream *stream; /* the stream of the copy, set by lochi_copy_route; not used from host to host */
} lochi_copy_job;

/* The steps of a copy. lochi_copy_begin reads the options and finds and checks both ranges, the direction and the
 * stream. lochi_copy_run queues a plain copy. */
loch_status lochi_copy_begin(const loch_copy_options *options, void *to, const void *from, lochi_copy_job *out);
loch_status lochi_copy_place(lochi_copy_job *job, size_t to_bytes, size_t from_bytes);
loch_status lochi_copy_run(lochi_copy_job *job);

/* Chooses the stream of a copy with a device on at least one side. */
loch_status lochi_copy_route(lochi_copy_job *job);

/* Returns the device that copies from host to host at its own addresses; NULL if memmove copies. */
loch_device *lochi_copy_host_runner(const lochi_copy_job *job);

/* Returns whether one driver does a copy between two devices. Otherwise the copy goes through the host. */
bool lochi_copy_is_of_peers(const lochi_copy_job *job);

/* Makes `later` wait for the work queued on `earlier`. */
loch_status lochi_copy_order(loch_stream *earlier, loch_stream *later);
/* Makes `later`, which the caller keeps open, wait for the work queued on a remembered stream. E_INVALID: `earlier` was
 * destroyed. */
loch_status lochi_copy_order_remembered(loch_stream *earlier, loch_stream *later);

/* Reason for refusing host work on a stream that is being captured. */
#define LOCHI_COPY_ON_HOST "the host copies and fills its own memory once, and a graph runs any number of times"

/* Size of the host memory between devices of different drivers, in bytes. */
#define LOCHI_COPY_BOUNCE_BYTES ((size_t)4 << 20)

/* Waits for the default stream of the device that owns host memory (pinned, registered). Call it before the host
 * touches that memory without a stream. */
loch_status lochi_copy_wait_for_owner(const lochi_place *place);

/* Queues a copy of memory that the caller hands out to others. Like loch_copy_on, but may cross block bounds and
 * write to free blocks. */
loch_status lochi_copy_own(loch_stream *stream, void *to, const void *from, size_t bytes);

/* Queues a copy towards lower addresses, from byte *done on. Source and target may overlap; block bounds are not
 * checked. On failure the first *done bytes are at the target, or will be, and the rest is still at the source, so
 * that the copy can be continued. */
loch_status lochi_copy_onward(loch_stream *stream, void *to, const void *from, size_t bytes, size_t *done);

/* Waits for `stream` if the caller asked to wait for the end of the work. */
loch_status lochi_copy_settle(loch_stream *stream, loch_wait wait);

#endif

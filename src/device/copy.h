/* SPDX-License-Identifier: MIT */
/* What copying, copying rows and filling share. */
#ifndef LOCHI_COPY_H
#define LOCHI_COPY_H

#include "device/ranges.h"

/* Checks [address, address + bytes), down to the block of a pool, and finds its place; `what` names it in sentences. */
loch_status lochi_copy_locate(const void *address, size_t bytes, const char *what, lochi_place *out);

/* Checks [address, address + bytes) and finds its place, for who hands the memory out: the block is not asked for. */
loch_status lochi_copy_locate_own(const void *address, size_t bytes, const char *what, lochi_place *out);

/* Tells whether the host reads and writes the place itself. */
static inline bool lochi_place_is_host(const lochi_place *place)
{
    return place->kind == LOCH_MEMORY_HOST || place->kind == LOCH_MEMORY_PINNED ||
           place->kind == LOCH_MEMORY_REGISTERED || loch_device_can(place->device, LOCH_CAN_HOST_ACCESS);
}

/* A copy: what was asked for, and what has become of it. */
typedef struct lochi_copy_job {
    char *to;
    const char *from;
    size_t bytes; /* of a plain copy */
    lochi_place to_place, from_place;
    loch_direction direction;
    bool is_own;         /* by who hands the memory out: tenants are not asked */
    loch_stream *given;  /* the caller's; NULL: none */
    loch_wait wait;      /* not LOCH_WAIT_DEFAULT */
    loch_stream *stream; /* where it is queued, unless it is host to host; from lochi_copy_route */
} lochi_copy_job;

/* The steps of a copy. Reads the options; finds and checks both ranges, the direction and the stream; queues a plain one. */
loch_status lochi_copy_begin(const loch_copy_options *options, void *to, const void *from, lochi_copy_job *out);
loch_status lochi_copy_place(lochi_copy_job *job, size_t to_bytes, size_t from_bytes);
loch_status lochi_copy_run(lochi_copy_job *job);

/* Chooses the stream of a copy with a device on at least one side. */
loch_status lochi_copy_route(lochi_copy_job *job);

/* Returns the device that copies from host to host at its own addresses; NULL: memmove does. */
loch_device *lochi_copy_host_runner(const lochi_copy_job *job);

/* Tells whether one driver does a copy between two devices; else it goes through the host. */
bool lochi_copy_is_of_peers(const lochi_copy_job *job);

/* Makes `later` wait for what is queued on `earlier`. */
loch_status lochi_copy_order(loch_stream *earlier, loch_stream *later);

/* Says why work of the host is refused on a stream that is captured. */
#define LOCHI_COPY_ON_HOST "the host copies and fills its own memory once, and a graph runs any number of times"

/* Host memory between devices of different drivers, at a time. */
#define LOCHI_COPY_BOUNCE_BYTES ((size_t)4 << 20)

/* Waits for the default stream of the device that owns host memory (pinned, registered), before the host touches it
 * without a stream. */
loch_status lochi_copy_wait_for_owner(const lochi_place *place);

/* Queues a copy of memory that the caller hands out to others: as loch_copy_on, but across blocks and into free ones. */
loch_status lochi_copy_own(loch_stream *stream, void *to, const void *from, size_t bytes);

/* Queues a copy as lochi_copy_own towards lower addresses, which may overlap, from *done on. When it fails, the first
 * *done bytes are at the target, or will be, and the rest is still at the source: it can be gone on with. */
loch_status lochi_copy_onward(loch_stream *stream, void *to, const void *from, size_t bytes, size_t *done);

/* Waits for `stream` when the caller wants the end of the work. */
loch_status lochi_copy_settle(loch_stream *stream, loch_wait wait);

#endif

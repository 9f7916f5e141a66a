/* SPDX-License-Identifier: MIT */
/* Where the contents of sleeping memory are kept: in pieces of host memory, or in a file. The caller chooses the
 * offsets, from 0 on. Opening, growing and closing, and opening a stage, take the locks of other allocators: call
 * them without the pool's locks. Copying runs with the supply lock held. */
#ifndef LOCHI_POOL_KEEP_H
#define LOCHI_POOL_KEEP_H

#include "device/device.h"
#include <loch/sleep.h>

typedef struct pool_keep_piece {
    char *address;
    size_t offset, bytes;
} pool_keep_piece;

typedef struct pool_keep {
    loch_sleep_contents contents;
    loch_device *device;       /* whose memory is kept; borrowed */
    loch_allocator *allocator; /* of the pieces; NULL without pieces */
    bool is_staged;            /* copies go through a stage */
    bool is_wiped;             /* contents are overwritten before the memory is freed */
    pool_keep_piece *pieces;
    size_t pieces_count, pieces_capacity;
    size_t room;    /* bytes in pieces */
    size_t last;    /* index of the piece used last; the next access is near it */
    int file;       /* -1 without a file */
    size_t written; /* bytes in the file */
    uint64_t sum;   /* checksum of those bytes: keep_sum */
    char *path;     /* of a named file that is removed at the end; NULL otherwise */
} pool_keep;

/* Pinned memory in two halves: the device copies one half while the host moves the contents of the other. */
#define POOL_STAGE_HALF ((size_t)4 << 20)

typedef struct pool_stage {
    loch_allocator *allocator;
    char *memory;  /* NULL without a stage */
    bool is_wiped; /* contents are overwritten before the memory is freed */
    loch_event *events[2];
    bool is_pending[2];           /* copies of the half are queued */
    size_t offsets[2], filled[2]; /* the contents of each half while saving */
    int half;                     /* half that is being filled */
} pool_stage;

/* Checks that saved contents can be read now. E_BUSY if the allocator that keeps them is asleep. */
loch_status lochi_keep_check(const pool_keep *keep);

/* Opens a keep from checked options. Makes the file if there is one. E_IO. */
loch_status lochi_keep_open(pool_keep *keep, loch_device *device, const loch_sleep_options *options);
/* Frees the memory and removes the file. Does nothing for a zeroed keep whose file is -1. */
void lochi_keep_close(pool_keep *keep);

/* Makes room for `bytes` in all. */
loch_status lochi_keep_grow(pool_keep *keep, size_t bytes);
static inline bool lochi_keep_has_room(const pool_keep *keep, size_t bytes)
{
    return !keep->allocator || bytes <= keep->room;
}

/* Allocates the memory of a stage. Fails as allocations do. A zeroed stage is valid for copies that need none. */
loch_status lochi_stage_open(pool_stage *stage, loch_device *device);
void lochi_stage_close(pool_stage *stage);

/* Queues the copy of [address, address + bytes) to an offset, or back from it, on the default stream. Saves must use
 * consecutive offsets. lochi_keep_finish ends saving: it waits for the copies, and reads a file back. E_IO: the file is
 * full, or does not return what was written. */
loch_status lochi_keep_save(pool_keep *keep, pool_stage *stage, uintptr_t address, size_t bytes, size_t offset);
loch_status lochi_keep_restore(pool_keep *keep, pool_stage *stage, uintptr_t address, size_t bytes, size_t offset);
loch_status lochi_keep_finish(pool_keep *keep, pool_stage *stage);

#endif

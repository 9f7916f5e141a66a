/* SPDX-License-Identifier: MIT */
/* Where the contents of sleeping memory are: in pieces of host memory, or in a file. Offsets count from 0 and are the
 * caller's. Opening, growing, closing, and taking a stage take other allocators' locks: without the pool's. Copying is
 * under it. */
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
    loch_allocator *allocator; /* of the pieces; NULL: there are none */
    bool is_staged;            /* copies go through a stage */
    bool is_wiped;             /* contents are not left behind when it closes */
    pool_keep_piece *pieces;
    size_t pieces_count, pieces_capacity;
    size_t room;    /* bytes in pieces */
    size_t last;    /* piece that was used last: the next is near */
    int file;       /* -1: none */
    size_t written; /* bytes in the file */
    uint64_t sum;   /* of them: keep_sum */
    char *path;     /* of a file with a name, to be removed; NULL: none */
} pool_keep;

/* Pinned memory in two halves, one of which the device copies while the host moves the other's contents. */
#define POOL_STAGE_HALF ((size_t)4 << 20)

typedef struct pool_stage {
    loch_allocator *allocator;
    char *memory;  /* NULL: there is none */
    bool is_wiped; /* contents are not left behind when it closes */
    loch_event *events[2];
    bool is_pending[2];           /* a half's copies are under way */
    size_t offsets[2], filled[2]; /* what lies in a half while saving */
    int half;                     /* that is being filled */
} pool_stage;

/* Whether what was saved can be read now: E_BUSY when it sleeps, too. */
loch_status lochi_keep_check(const pool_keep *keep);

/* Reads the options, which were checked; makes the file. E_IO. */
loch_status lochi_keep_open(pool_keep *keep, loch_device *device, const loch_sleep_options *options);
/* Frees the memory and removes the file. One that is all zero but for a file of -1 is left alone. */
void lochi_keep_close(pool_keep *keep);

/* Makes room for `bytes` in all. */
loch_status lochi_keep_grow(pool_keep *keep, size_t bytes);
static inline bool lochi_keep_has_room(const pool_keep *keep, size_t bytes)
{
    return !keep->allocator || bytes <= keep->room;
}

/* Taking one fails as allocations do; all zero is none, which copies without a stage need. */
loch_status lochi_stage_open(pool_stage *stage, loch_device *device);
void lochi_stage_close(pool_stage *stage);

/* Queues the copy of [address, address + bytes) to an offset, or back. Offsets that are saved follow each other. What has
 * been queued is done after lochi_keep_finish, which reads a file back after saving. E_IO when the file is full, or does not give
 * back what was written. */
loch_status lochi_keep_save(pool_keep *keep, pool_stage *stage, uintptr_t address, size_t bytes, size_t offset);
loch_status lochi_keep_restore(pool_keep *keep, pool_stage *stage, uintptr_t address, size_t bytes, size_t offset);
loch_status lochi_keep_finish(pool_keep *keep, pool_stage *stage, bool is_saving);

#endif

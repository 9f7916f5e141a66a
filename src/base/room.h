/* SPDX-License-Identifier: MIT */
/* Thread-local data of more than a few words: a room for each thread, made on first use and unmapped when the thread
 * ends.
 *
 * Thread-local variables of Loch are in the static TLS block, because fast paths read some of them at a fixed offset
 * (initial-exec). For libraries that are loaded late that block is small and shared by all libraries of the process.
 * So Loch uses 64 bytes of it at most (a test checks that), and everything larger is here. A room is mapped from the
 * system and not allocated: writing an error must not call an allocator that may be built on Loch. Without a room
 * the error record falls back to constant sentences, and the other users of the room store nothing. */
#ifndef LOCHI_ROOM_H
#define LOCHI_ROOM_H

#include <loch/status.h>
#include <stdatomic.h>
#include <stdint.h>

#define LOCHI_ROOM_PLACES 4
#define LOCHI_ROOM_LOCKS 16
#define LOCHI_ROOM_FAILURES 64 /* more than the largest depth of wrappers */
#define LOCHI_ROOM_DRY 8

typedef struct lochi_room {
    loch_error error; /* the thread's error record (fail.c) */
    struct {
        uint64_t version;
        uint64_t words[5];
    } places[LOCHI_ROOM_PLACES]; /* the pieces of memory located last (device/ranges.c) */
    unsigned next_place;
    const struct lochi_host_scope *host_scopes; /* newest first (device/ranges.c) */
    struct lochi_stay *stay;                    /* the newest stay that has not ended (device/current.c) */
    uint64_t sim_current;                       /* the current simulated device (device/sim/sim.c) */
    struct {
        uint32_t depth, count; /* nested requests under way; number of notes */
        _Atomic uint64_t *notes[LOCHI_ROOM_FAILURES];
        struct loch_allocator *dry[LOCHI_ROOM_DRY]; /* allocators inside the attempt that had no memory; retained */
        uint32_t dry_count;
        uint64_t timeout_ns; /* the longest of their requests */
        const void *refuser; /* the wrapper that refused the attempt by a limit of its own; only compared */
    } failures;              /* failed attempts, until their requests have ended (memory/failure.c) */
    /* Blocks freed less blocks allocated, without those that the thread's caches in pools count (memory/retry.c). */
    int64_t freed_blocks;
    /* When the request gives up whose pressure function runs, by loch_host_now_ns; 0: it does not wait, or there is
     * none (memory/retry.c). */
    uint64_t pressure_until_ns;
    const struct pool_fetch *fetch; /* the newest segment that is being fetched (memory/pool/supply/source.c) */
    struct {
        uintptr_t low, high; /* bounds of the thread's stack; 0 until found */
        uint32_t captures;
    } stack;              /* base/stack.c */
    uint32_t live_hidden; /* nested allocations for the library itself (memory/live) */
    unsigned lock_depth;  /* builds with assertions: number of locks held (lock.c) */
    const void *locks[LOCHI_ROOM_LOCKS];
} lochi_room;

extern _Thread_local lochi_room *lochi_room_own __attribute__((tls_model("initial-exec"))); /* NULL until made */

/* Makes the calling thread's room. Returns NULL if that is not possible. */
lochi_room *lochi_room_make(void);

/* Returns the calling thread's room and makes it on first use. Returns NULL if it cannot be made. */
static inline lochi_room *lochi_room_get(void)
{
    lochi_room *room = lochi_room_own;
    return __builtin_expect(room != NULL, 1) ? room : lochi_room_make();
}

/* Counts blocks that the thread has freed; negative: allocated. Without a room nothing is counted. */
static inline void lochi_room_count_freed(int64_t blocks)
{
    if (lochi_room_own) lochi_room_own->freed_blocks += blocks;
}

#endif

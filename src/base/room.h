/* SPDX-License-Identifier: MIT */
/* What a thread keeps beside a few words: a room of its own, made on first use and gone with the thread.
 *
 * Variables of a thread lie in the block that the loader keeps back for libraries that are loaded late, because short ways
 * read some of them at a fixed offset (initial-exec). That block is small and shared by all libraries of the process, so
 * Loch takes 64 bytes of it at most; a test holds it to that. Everything larger is here. A room comes from the system and
 * not from a heap: writing an error must not call an allocator that may be built on Loch. Where none can be had its users
 * do without: the error record falls back on constant sentences, the others remember nothing. */
#ifndef LOCHI_ROOM_H
#define LOCHI_ROOM_H

#include <loch/status.h>
#include <stdatomic.h>
#include <stdint.h>

#define LOCHI_ROOM_PLACES 4
#define LOCHI_ROOM_LOCKS 16
#define LOCHI_ROOM_FAILURES 64 /* more than wrappers go deep */

typedef struct lochi_room {
    loch_error error; /* the thread's record (fail.c) */
    struct {
        uint64_t version;
        uint64_t words[5];
    } places[LOCHI_ROOM_PLACES]; /* pieces of memory that were located last (device/ranges.c) */
    unsigned next_place;
    struct lochi_stay *stay; /* the last one begun that has not ended (device/current.c) */
    uint64_t sim_current;    /* the simulated device that is current (device/sim/sim.c) */
    struct {
        uint32_t depth, count; /* requests under way, one inside another; notes */
        _Atomic uint64_t *notes[LOCHI_ROOM_FAILURES];
    } failures;          /* attempts that failed, until their requests have ended (memory/failure.c) */
    unsigned lock_depth; /* builds with assertions: locks that are held (lock.c) */
    const void *locks[LOCHI_ROOM_LOCKS];
} lochi_room;

extern _Thread_local lochi_room *lochi_room_own __attribute__((tls_model("initial-exec"))); /* NULL: none yet */

/* Makes the calling thread's room; NULL where that cannot be done. */
lochi_room *lochi_room_make(void);

/* Returns the calling thread's room, made on first use; NULL where there is none and none can be made. */
static inline lochi_room *lochi_room_get(void)
{
    lochi_room *room = lochi_room_own;
    return __builtin_expect(room != NULL, 1) ? room : lochi_room_make();
}

#endif

/* SPDX-License-Identifier: MIT */
/* The places of a plan in memory, and which of them are taken.
 *
 * A plan has a period of `count` positions, one for each allocation, and goes around: after the last position comes the
 * first. The slot of a position has an address, from its position until its due position: the first allocation after
 * its free. `position` is the next allocation.
 *
 * Invariants:
 *  - Two slots whose spans of positions overlap, around the end too, have disjoint places. The planner guarantees it.
 *  - A slot that is taken and not late was handed out on the way to `position`, and its due position was not reached
 *    since. So the span of the next position overlaps its span, and their places are disjoint.
 *  - A slot that is taken when its due position is reached is late. It is an obstacle of every other slot whose place
 *    it overlaps, until it is freed.
 *  - `obstacles` of a slot is 1 if it is taken, plus the number of late slots that overlap its place, plus the number
 *    of taken slots that are due at its position and not late.
 *  So the next slot may be handed out if its obstacles are 0, which they are as long as the program repeats itself.
 *  - A block may be larger than planned, up to the next place above that is in use at some time of its span (`room`).
 *    Then all taken slots are compared with it.
 *  - A block without a place, or whose place is taken, may be a guest: it lies where no slot is taken, in a slot behind
 *    those of the positions, and is late from the start. So slots that it overlaps are not handed out.
 *  - A region that can grow has memory behind that of the plan, for guests alone. It consists of units of whole
 *    handles. A guest may be a patch: free units, wherever they are, mapped once more in a row. A unit that is lent to
 *    a patch counts as taken memory.
 *  - All blocks of one region are handed out on one stream, and their memory is free in the order of that stream. A
 *    block with other uses is taken until events on the other streams have passed.
 *
 * No function here takes a lock. Members that other threads read are written and read by relaxed atomics. */
#ifndef LOCH_PLAN_PLACES_H
#define LOCH_PLAN_PLACES_H

#include "log.h"

#define PLAN_NONE UINT32_MAX
#define PLAN_KINDS 64
#define PLAN_OTHER_SIZE (1u << 31) /* the last block had another size than planned, and may have been a new one */
#define PLAN_GUESTS 1024           /* live blocks in free memory of a plan without a place of their own */

#define PLAN_LOAD(member) __atomic_load_n(&(member), __ATOMIC_RELAXED)
#define PLAN_STORE(member, value) __atomic_store_n(&(member), (value), __ATOMIC_RELAXED)

typedef enum plan_state {
    PLAN_FREE,
    PLAN_LIVE,
    PLAN_REMOTE, /* freed by a thread that the plan does not serve; in the list `remote` */
    PLAN_WAITING /* freed, but other streams use it */
} plan_state;

/* Flags of a slot that the short way does not handle. */
enum {
    PLAN_LATE = 1,
    PLAN_SHARED = 2, /* has entries in `waits` */
    PLAN_ODD = 4     /* has a tag or another size than its key: in plan_places.odds */
};

/* 32 bytes: a step walks over all slots. */
typedef struct plan_slot {
    uint64_t bytes; /* size of a block that the short way serves; PLAN_NEVER for a slot without a place */
    char *address;
    uint32_t obstacles; /* 1 if it is taken, and 1 for each late slot over its place and each taken slot due here */
    uint32_t due;       /* position */
    uint32_t next_free; /* slot that was freed after this one */
    uint8_t kind;       /* index into plan_places.kinds: alignment and stream */
    uint8_t state;      /* a plan_state; atomic */
    uint8_t flags;      /* atomic: another thread may record a use */
} plan_slot;

/* Alignment and stream of requests. */
typedef struct plan_kind {
    uint64_t alignment;
    loch_stream *stream;
} plan_kind;

/* What is rare about a live block. */
typedef struct plan_odd {
    uint64_t bytes; /* atomic */
    uint32_t tag;   /* atomic */
    uint32_t remote_next;
} plan_odd;

/* Units of a region. */
enum {
    PLAN_UNIT_LENT = 1, /* a patch uses it */
    PLAN_UNIT_ODD = 2   /* does not consist of whole handles */
};

typedef struct plan_region {
    char *base;
    uint64_t bytes; /* of the plan */
    uint64_t grown; /* with those for guests */
    uint64_t first; /* bytes before the first unit */
    uint64_t unit;  /* bytes of a unit; 0: the region cannot grow */
    uint32_t units, units_max;
    bool has_alias;      /* patches are possible */
    uint8_t *lent;       /* by unit */
    uint32_t *marks;     /* scratch: units_max + 1 */
    loch_stream *stream; /* retained */
    uint64_t lower_bound;
    uint32_t sorted_begin, sorted_end; /* its slots in plan_places.sorted */
} plan_region;

/* A use of a block on another stream. */
typedef struct plan_wait {
    uint32_t slot;
    bool is_freed;       /* the block was freed; the event is wanted */
    loch_stream *stream; /* retained */
    loch_event *event;   /* NULL: not recorded yet */
} plan_wait;

/* A guest in units that are mapped once more, or the mapping that is left of it. */
typedef struct plan_patch {
    struct plan_patch *next; /* in plan_places.retired */
    plan_region *region;
    char *window; /* reserved addresses */
    uint32_t *units;
    uint32_t count;
    plan_wait wait; /* for the region's stream, after the free */
} plan_patch;

typedef struct plan_places {
    /* what every call uses */
    plan_slot *slots;
    uint32_t *cycles;                /* cycle in which a slot was handed out last; atomic; makes ids of blocks */
    uint32_t position, count, cycle; /* position and cycle: atomic */
    uint32_t free_next;              /* slot that is expected to be freed next */
    uint32_t live;                   /* taken slots, whatever their state; atomic */
    uint64_t passed;                 /* positions that were passed and not served; atomic */
    uint32_t freed;                  /* taken slots that the program has freed; atomic, written with the lock held */
    uint32_t misses;                 /* deviations in a row, or PLAN_OTHER_SIZE */
    plan_kind kinds[PLAN_KINDS];
    /* the slow way */
    plan_odd *odds;
    uint32_t *sorted; /* slots with a place by address */
    uint32_t kinds_count;
    uint32_t guests_serial;           /* ids of guests */
    uint32_t guests_end;              /* slots from here on were never guests; atomic */
    plan_patch *patches[PLAN_GUESTS]; /* of guests; NULL for others */
    plan_patch *retired;              /* mappings of patches that were freed */
    uint64_t first_id;                /* ids of blocks begin here */
    uint64_t alignment;               /* of all blocks at least */
    plan_key *keys;                   /* of all positions */
    uint64_t *rooms;                  /* bytes up to the next place above */
    uintptr_t *lows, *highs;          /* planned places */
    uint32_t *due_begins, *due_slots; /* slots by due position */
    plan_region regions[PLAN_LOG_STREAMS];
    size_t regions_count;
    plan_wait *waits;
    size_t waits_count, waits_capacity;
    uint32_t remote; /* first slot of a list */
    plan_key missed; /* key of the last deviation, if `misses` is not 0 */
    uint32_t step_begins[4];
    uint32_t steps;           /* marked steps in the period; 0: the period was found */
    size_t planned;           /* slots with a place */
    loch_allocator *pool;     /* borrowed */
    struct plan_places *next; /* older plans */
} plan_places;

/* What to make a plan of. */
typedef struct plan_source {
    const plan_log *log;
    size_t begin, period; /* entries of the log */
    size_t before, after; /* entries one period before and after `begin` that belong together, or PLAN_NONE */
    loch_allocator *pool;
    uint64_t alignment, time_limit_ns;
    uint32_t position; /* of the next allocation */
    uint32_t step_begins[4], steps;
} plan_source;

/* Makes a plan and takes its memory from the pool. E_NOT_FOUND: no allocation can be planned. */
loch_status lochi_plan_places_create(const plan_source *source, plan_places **out);

/* Gives the memory back to the pool, ordered after all uses. No block may be live. */
void lochi_plan_places_destroy(plan_places *places);

/* Hands out the slot of a position, which may be taken, after the short way did not. Moves the position. Returns NULL
 * if the pool has to serve the block; `*deviates` says whether the plan expected something else, also for guests. */
void *lochi_plan_places_serve(plan_places *places, const plan_key *key, loch_tag tag, bool *deviates);

/* Returns the kind of a request, which is entered if it is new; PLAN_KINDS if there is no room for it. */
uint32_t lochi_plan_places_kind(plan_places *places, const plan_key *key);

/* --- guests: places_guest.c --- */

/* Hands out memory of the plan that is free for `life` positions, or memory behind that of the plan, or a patch. NULL
 * if there is none, or the pool serves the block better. PLAN_NONE: the life is not known. */
void *lochi_plan_places_invite(plan_places *places, const plan_key *key, loch_tag tag, uint32_t life);

/* Adds `change` to the obstacles of all slots that addresses overlap, except `index`. */
void lochi_plan_places_block(plan_places *places, uint32_t index, uintptr_t low, uintptr_t high, uint32_t change);

/* Returns how many allocations later the first slot that overlaps addresses is used; PLAN_NONE for never. */
uint32_t lochi_plan_places_next_use(const plan_places *places, uintptr_t low, uintptr_t high);

/* Tells whether addresses overlap a unit that is lent to a patch. */
bool lochi_plan_places_is_lent(const plan_places *places, uintptr_t low, uintptr_t high);

/* --- memory of a region: places_region.c --- */

/* Takes the memory of a region from the pool: `bytes`, aligned to `alignment`. */
loch_status lochi_plan_region_create(loch_allocator *pool, uint64_t bytes, uint64_t alignment, loch_stream *stream,
                                     plan_region *out);

/* Gives the memory of a region back. */
void lochi_plan_region_destroy(loch_allocator *pool, plan_region *region);

/* Grows a region by units. Returns false without memory. */
bool lochi_plan_region_grow(loch_allocator *pool, plan_region *region, uint32_t units);

/* Gives units back that are behind the memory of the plan and that nothing uses. */
void lochi_plan_places_shrink(plan_places *places);

/* Returns the addresses of the memory of a unit. */
static inline uintptr_t plan_region_unit(const plan_region *region, uint32_t unit)
{
    return (uintptr_t)region->base + region->first + unit * region->unit;
}

/* --- patches: places_patch.c --- */

/* Makes a patch for a block. NULL if there is none. */
plan_patch *lochi_plan_patch_create(plan_places *places, plan_region *region, uint64_t bytes);

/* Ends the use of a patch, in the order of the region's stream. Its mapping goes when that stream has passed. */
void lochi_plan_patch_retire(plan_places *places, plan_patch *patch);

/* Adds `change` to the obstacles of all slots that the units of a patch overlap. */
void lochi_plan_patch_block(plan_places *places, const plan_patch *patch, uint32_t change);

/* Removes mappings of retired patches whose stream has passed; all of them if `is_last`. */
void lochi_plan_patch_settle(plan_places *places, bool is_last);

/* --- */

/* Tells whether the work of another stream that was queued when the block was freed has passed. A stream that is being
 * captured is asked again later. */
bool lochi_plan_wait_has_passed(plan_wait *wait);

/* Moves on to a position. What is due on the way and not freed becomes late. */
void lochi_plan_places_move(plan_places *places, uint32_t position);

/* Returns the number of slots, with those of guests. */
static inline uint32_t plan_places_total(const plan_places *places)
{
    return PLAN_LOAD(places->guests_end);
}

/* Returns the end of a taken slot. */
static inline uintptr_t plan_places_end(const plan_places *places, uint32_t index);

/* Returns the live slot at an address, or another one that starts there; PLAN_NONE if no slot starts there. */
uint32_t lochi_plan_places_find(const plan_places *places, const void *address);

/* Tells whether an address is in the memory of a plan. */
bool lochi_plan_places_has(const plan_places *places, const void *address);

/* Tells whether an address is in a live block, and not its start. */
bool lochi_plan_places_is_inside(const plan_places *places, const void *address);

/* Frees a taken slot with any flags except PLAN_SHARED. */
void lochi_plan_places_free_flagged(plan_places *places, uint32_t slot);

/* Adds a use of a block. Returns false without host memory. */
bool lochi_plan_places_share(plan_places *places, uint32_t slot, loch_stream *stream);

/* Frees a block with uses on other streams: it waits for them. */
void lochi_plan_places_free_shared(plan_places *places, uint32_t slot);

/* Frees blocks whose other uses have passed, and those that other threads freed. */
void lochi_plan_places_settle(plan_places *places);

/* Returns the size of a live block. */
static inline uint64_t plan_slot_bytes(const plan_places *places, uint32_t index)
{
    const plan_slot *slot = &places->slots[index];
    return __builtin_expect(PLAN_LOAD(slot->flags) & PLAN_ODD, 0) ? PLAN_LOAD(places->odds[index].bytes) : slot->bytes;
}

/* Marks a slot as live. */
static inline void *plan_slot_take(plan_places *places, plan_slot *slot, uint32_t index)
{
    slot->obstacles++;
    places->slots[slot->due].obstacles++;
    PLAN_STORE(places->cycles[index], places->cycle);
    PLAN_STORE(slot->state, (uint8_t)PLAN_LIVE);
    PLAN_STORE(places->live, places->live + 1);
    return slot->address;
}

/* Frees a taken slot without flags. */
static inline void plan_slot_drop(plan_places *places, plan_slot *slot)
{
    PLAN_STORE(slot->state, (uint8_t)PLAN_FREE);
    slot->obstacles--;
    places->slots[slot->due].obstacles--;
    PLAN_STORE(places->live, places->live - 1);
}

static inline uintptr_t plan_places_end(const plan_places *places, uint32_t index)
{
    return (uintptr_t)places->slots[index].address + plan_slot_bytes(places, index);
}

/* Returns how many allocations a plan has served. */
static inline uint64_t plan_places_served(const plan_places *places)
{
    return (uint64_t)PLAN_LOAD(places->cycle) * places->count + PLAN_LOAD(places->position) - PLAN_LOAD(places->passed);
}

/* Goes to the position after `position`. */
static inline void plan_places_pass(plan_places *places, uint32_t position)
{
    uint32_t next = position + 1;
    if (__builtin_expect(next == places->count, 0)) {
        PLAN_STORE(places->cycle, places->cycle + 1);
        next = 0;
    }
    PLAN_STORE(places->position, next);
}

/* Hands out the next slot if the program repeats itself; the short way, for requests without a tag. NULL otherwise. */
static inline plan_slot *plan_places_next(plan_places *places, const loch_request *request, const loch_stream *stream)
{
    const uint32_t position = places->position;
    plan_slot *slot = &places->slots[position];
    const plan_kind *kind = &places->kinds[slot->kind];
    if (__builtin_expect(slot->bytes != request->bytes || slot->obstacles, 0)) return NULL;
    if (__builtin_expect(kind->alignment != request->alignment || kind->stream != stream, 0)) return NULL;
    plan_places_pass(places, position);
    __builtin_prefetch(slot + 12, 1); /* a hint; beyond the last slot it does nothing */
    places->misses = 0;
    (void)plan_slot_take(places, slot, position);
    return slot;
}

/* Returns the live slot that is expected to be freed next if it is at `address`; PLAN_NONE otherwise. */
static inline uint32_t plan_places_expected(const plan_places *places, const void *address)
{
    const uint32_t expected = places->free_next;
    const plan_slot *slot = &places->slots[expected];
    return slot->address == address && PLAN_LOAD(slot->state) == PLAN_LIVE ? expected : PLAN_NONE;
}

#endif

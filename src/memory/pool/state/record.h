/* SPDX-License-Identifier: MIT */
/* From an address to the record of its block, through an entry of the table of pages or a lead; and the compact members
 * of a record: requested bytes and epoch share four bytes. */
#ifndef LOCHI_POOL_RECORD_H
#define LOCHI_POOL_RECORD_H

#include "memory/pool/state/structs.h"

/* Tells whether a child pool uses the block as its range. */
static inline bool lochi_pool_is_range(const pool_block *block)
{
    return lochi_pool_state(block) != POOL_USED && atomic_load_explicit(&block->child, memory_order_relaxed) != NULL;
}

/* Tells whether blocks of a state are handed out. Slabs are not. */
static inline bool lochi_pool_is_out(pool_state state)
{
    return state == POOL_USED || state == POOL_SPECIAL || state == POOL_GROWABLE;
}

/* --- entries of the table of pages --- */

static inline struct pool_slab *lochi_pool_page_slab(uintptr_t page)
{
    return page & POOL_IS_SLAB ? (struct pool_slab *)(page - POOL_IS_SLAB) : NULL;
}

static inline struct pool_block *lochi_pool_page_block(uintptr_t page)
{
    return page & (POOL_IS_SLAB | POOL_IS_FREED) ? NULL : (struct pool_block *)(page & ~POOL_OFFSET_BITS);
}

/* Returns the table entry for the page of a block's start. */
static inline uintptr_t lochi_pool_page_of(const pool_block *block)
{
    return (uintptr_t)block | (block->start & (POOL_PAGE - 1)) >> POOL_UNIT_SHIFT << POOL_OFFSET_SHIFT;
}

/* Returns the bytes between the start of a page and the start of its block. */
static inline size_t lochi_pool_page_offset(uintptr_t page)
{
    return (page & POOL_OFFSET_BITS) >> POOL_OFFSET_SHIFT << POOL_UNIT_SHIFT;
}

/* --- requested bytes --- */

#define POOL_SLACK_WIDE UINT32_MAX /* the slack does not fit: growable blocks, large round_bytes */

/* Sets the size of a block. Atomic, because copies read it without the lock; the lock holder reads it plainly. */
static inline void lochi_pool_set_bytes(pool_block *block, size_t bytes)
{
    __atomic_store_n(&block->bytes, bytes, __ATOMIC_RELAXED);
}

/* Returns the requested bytes of a block that is handed out. */
static inline size_t lochi_pool_requested(const pool_block *block)
{
    const uint32_t slack = atomic_load_explicit(&block->slack, memory_order_relaxed);
    if (LOCHI_UNLIKELY(slack == POOL_SLACK_WIDE)) return atomic_load_explicit(&block->wide, memory_order_relaxed);
    return __atomic_load_n(&block->bytes, __ATOMIC_RELAXED) - slack;
}

/* Sets the bytes of a block that were not requested, less than POOL_SLACK_WIDE. Ends the block's epoch. */
static inline void lochi_pool_set_slack(pool_block *block, size_t slack)
{
    atomic_store_explicit(&block->slack, (uint32_t)slack, memory_order_relaxed);
}

/* Sets the requested bytes of a block that is handed out, at most its size. Ends its epoch. */
static inline void lochi_pool_set_requested(pool_block *block, size_t bytes)
{
    const size_t slack = block->bytes - bytes;
    if (LOCHI_UNLIKELY(slack >= POOL_SLACK_WIDE)) {
        atomic_store_explicit(&block->wide, bytes, memory_order_relaxed);
        lochi_pool_set_slack(block, POOL_SLACK_WIDE);
    } else {
        lochi_pool_set_slack(block, slack);
    }
}

/* --- ids --- */

/* Sets or removes the id of a block that is in no list with two links. */
static inline void lochi_pool_set_id(pool_block *block, uint64_t id)
{
    atomic_store_explicit(&block->id, id, memory_order_relaxed);
}

/* --- epochs --- */

/* Returns the epoch of a block that is not handed out: that of its lane at the last free, or the one that has to pass
 * for POOL_STALE; 0 has passed in every lane. The record has the low half. The upper half is taken from the lane: a
 * block that has been free for more than 2^32 epochs counts as freed later than it was, never earlier. */
static inline uint64_t lochi_pool_epoch(const pool_block *block)
{
    if (!block->epoch) return 0;
    const uint64_t now = block->lane->epoch;
    return now - ((uint32_t)now - block->epoch);
}

/* Sets the epoch of a block that is not handed out: 0, or at most the present epoch of its lane. */
static inline void lochi_pool_set_epoch(pool_block *block, uint64_t epoch)
{
    atomic_store_explicit(&block->slack, (uint32_t)epoch, memory_order_relaxed); /* copies may still read a slack */
}

/* Begins the next epoch of a lane. Leaves out numbers whose low half is 0: records have only that half. */
static inline void lochi_pool_begin_epoch(pool_lane *lane)
{
    if (!(uint32_t)++lane->epoch) lane->epoch++;
}

/* Tells whether a block is free memory in a bin: not taken for a request in progress. */
static inline bool lochi_pool_is_idle(const pool_block *block)
{
    return lochi_pool_state(block) == POOL_FREE && block->list_link;
}

/* Tells whether a handle that lies wholly in a free block is idle. */
static inline bool lochi_pool_is_past(const pool_block *block, const pool_handle *handle)
{
    return lochi_pool_has_passed(block->lane, lochi_pool_epoch(block)) ||
           (handle->freed_lane == block->lane && lochi_pool_has_passed(block->lane, handle->freed_epoch));
}

/* --- finding and fetching --- */

/* Leads: for each 2 MiB of addresses one word, 0 or the record of a large block that starts there, with the number of
 * its page in the upper byte. Frees of large blocks find most records here: the words of many blocks share a cache
 * line, where each has a line of the table of pages to itself. */
#define POOL_LEAD_SHIFT 21
#define POOL_LEAD_BITS 56 /* of the address of a record; a record with a longer address gets no lead */

/* Returns the number of the page of an offset in the reservation, in the upper byte of a lead. */
static inline uintptr_t lochi_pool_lead_page(size_t offset)
{
    return (uintptr_t)(offset >> POOL_PAGE_SHIFT) << POOL_LEAD_BITS;
}

_Static_assert(POOL_LEAD_SHIFT - POOL_PAGE_SHIFT == 64 - POOL_LEAD_BITS, "the upper byte numbers the pages of a lead");

/* Finds the record of the large block that starts in the page of an offset in the reservation; NULL if the table of
 * pages has to be read. No lock needed: at most one block starts in a page, and a live block keeps its record. */
static inline pool_block *lochi_pool_find_lead(const lochi_pool *pool, size_t offset)
{
    if (!pool->leads) return NULL;
    const uintptr_t lead = atomic_load_explicit(&pool->leads[offset >> POOL_LEAD_SHIFT], memory_order_acquire);
    const uintptr_t record = lead ^ lochi_pool_lead_page(offset);
    return record >> POOL_LEAD_BITS ? NULL : (pool_block *)record;
}

/* Starts to fetch the records of a block's neighbours into the processor's cache, to be changed soon. No lock needed: a
 * neighbour that the lock holder replaces meanwhile is fetched in vain. ThreadSanitizer cannot know that. */
static inline void lochi_pool_fetch_neighbours(const pool_block *block)
{
#if !LOCHI_TSAN
    __builtin_prefetch(__atomic_load_n(&block->before, __ATOMIC_RELAXED), 1);
    __builtin_prefetch(__atomic_load_n(&block->behind, __ATOMIC_RELAXED), 1);
#else
    (void)block;
#endif
}

/* Returns the word of a small block; NULL if `address` is not the start of one. The rest at the end of a slab has a
 * word too, which is never live. */
static inline pool_word *lochi_pool_slab_word(pool_slab *slab, uintptr_t address)
{
    const uint64_t offset = address - slab->start;
    const uint32_t index = (uint32_t)((offset * slab->reciprocal) >> 32);
    if (offset != (uint64_t)index * slab->object_bytes) return NULL;
    return &slab->words[index];
}

/* Returns the tag of a small block. */
static inline loch_tag lochi_pool_word_tag(uint32_t word)
{
    return (loch_tag)(word >> POOL_WORD_TAG_SHIFT & POOL_WORD_TAGS);
}

#endif

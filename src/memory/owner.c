/* SPDX-License-Identifier: MIT */
/* Freeing by address alone: the table of all allocators of the process but those of sessions, and which of them handed
 * a block out.
 *
 * Every allocator knows its own live blocks: by its slots, by a ledger, or because what it wraps serves nobody else. A
 * block that came through wrappers is one of each allocator on its way, and goes back to the outermost. Allocators are
 * asked in order of age. What is wrapped is older than its wrapper, and a pool older than the children in ranges of it: so
 * the last one that knows the block is the outermost, if it stands around the one before. Two that know it and do not
 * stand around each other (a user's allocator that cuts up another's block) are not told apart, and the caller is told so.
 *
 * The cost is one question to each allocator of the process; allocating and freeing by an allocator cost nothing more
 * than before. The lock is a leaf, because nothing is called under it: who asks an allocator has entered it
 * (base/underway.h), and an allocator leaves the table before it waits for those. */
#include "memory/owner.h"
#include "base/fail.h"
#include "base/underway.h"
#include "memory/pool/pool.h"
#include <string.h>

static lochi_lock owner_lock = LOCHI_LOCK_INITIALIZER(LOCHI_RANK_LEAF);
static lochi_tree owner_table; /* by age */
static uintptr_t owner_last;   /* age of the youngest */

void lochi_owner_add(loch_allocator *allocator)
{
    lochi_lock_take(&owner_lock);
    allocator->node.key = ++owner_last;
    lochi_tree_insert(&owner_table, &allocator->node);
    lochi_lock_drop(&owner_lock);
}

void lochi_owner_remove(loch_allocator *allocator)
{
    lochi_lock_take(&owner_lock);
    lochi_tree_remove(&owner_table, &allocator->node);
    lochi_lock_drop(&owner_lock);
    lochi_underway_wait_unmarked(allocator); /* the caller took its mark back: other threads may wait for it */
}

/* The oldest allocator of at least that age, entered; NULL when there is none. */
static loch_allocator *owner_enter(uintptr_t age, uint32_t *mark)
{
    loch_allocator *allocator = NULL;
    (void)lochi_thread_slot(); /* the mark needs it, and the lock of slots is not taken under a leaf */
    lochi_lock_take(&owner_lock);
    lochi_tree_node *node = lochi_tree_at_or_above(&owner_table, age);
    if (node) {
        allocator = LOCHI_CONTAINER(node, loch_allocator, node);
        *mark = lochi_underway_enter(allocator);
    }
    lochi_lock_drop(&owner_lock);
    return allocator;
}

/* Tells whether its slots may be called by this thread: by any, or it is the only one that ever used the allocator. */
static bool owner_may_ask(const loch_allocator *allocator)
{
    return allocator->traits & LOCH_TRAIT_THREAD_SAFE ||
           atomic_load_explicit(&allocator->user, memory_order_relaxed) == lochi_thread_number();
}

/* LOCH_OK when the block is its own; else what a free through it would say. */
static loch_status owner_ask(loch_allocator *allocator, const void *address)
{
    lochi_entry entry;
    loch_block block = {0};
    /* Acquire: one that has handed something out is wholly made, which others may not be yet. */
    if (!atomic_load_explicit(&allocator->user, memory_order_acquire)) return LOCH_E_FOREIGN;
    switch (allocator->account) {
    case LOCHI_ACCOUNT_LEDGER: return lochi_ledger_find(allocator->ledger, address, &entry);
    case LOCHI_ACCOUNT_OWN:
        return owner_may_ask(allocator) ? allocator->ops.find(allocator->self, address, &block) : LOCH_E_FOREIGN;
    case LOCHI_ACCOUNT_BELOW: return owner_ask(allocator->wrapped, address);
    case LOCHI_ACCOUNT_NOTES: /* its blocks may go back by what it wraps */ break;
    }
    return LOCH_E_FOREIGN;
}

/* Returns what an allocator gets its blocks from; NULL for the device. */
static const loch_allocator *owner_below(const loch_allocator *allocator)
{
    if (allocator->wrapped || !allocator->pool) return allocator->wrapped;
    return lochi_pool_get_range_owner(allocator->pool);
}

static bool owner_is_around(const loch_allocator *allocator, uintptr_t age)
{
    while ((allocator = owner_below(allocator)))
        if (allocator->node.key == age) return true;
    return false;
}

/* What asking them all has found so far. */
typedef struct owner_search {
    uintptr_t age; /* of the outermost that knows the block; 0 for none yet */
    char name[LOCHI_ALLOCATOR_NAME_MAX];
    char other[LOCHI_ALLOCATOR_NAME_MAX]; /* one that knows it too, beside it; "" for none */
    loch_status status;                   /* without an owner: the last answer other than E_FOREIGN */
    loch_error error;                     /* and its record */
} owner_search;

static void owner_note(owner_search *search, const loch_allocator *allocator, loch_status status)
{
    if (status == LOCH_OK) {
        if (search->age && !owner_is_around(allocator, search->age))
            memcpy(search->other, search->name, sizeof search->other);
        search->age = allocator->node.key;
        memcpy(search->name, allocator->name, sizeof search->name);
    } else if (status == LOCH_E_INTERIOR || status == LOCH_E_DOUBLE_FREE) {
        search->status = status; /* the youngest is the outermost: it says more than whose blocks it cuts up */
        search->error = lochi_error_save();
    }
}

static loch_status owner_find(const void *address, uintptr_t *age)
{
    owner_search search = {.status = LOCH_E_FOREIGN};
    const loch_error saved = lochi_error_save();
    loch_allocator *allocator;
    uint32_t mark;
    for (uintptr_t next = 1; (allocator = owner_enter(next, &mark)); lochi_underway_leave(mark)) {
        next = allocator->node.key + 1;
        owner_note(&search, allocator, owner_ask(allocator, address));
    }
    lochi_error_restore(search.status == LOCH_E_FOREIGN || search.age ? &saved : &search.error);
    *age = search.age;
    if (search.age && !search.other[0]) return LOCH_OK;
    if (search.age)
        return LOCH_FAIL(UNSUPPORTED, "allocators \"%s\" and \"%s\" both have a block at %p: free it by one of them",
                         search.other, search.name, address);
    if (search.status != LOCH_E_FOREIGN) return search.status;
    return LOCH_FAIL(FOREIGN, "no allocator of the process has a block at %p", address);
}

loch_status lochi_owner_enter(const void *address, loch_allocator **out, uint32_t *mark)
{
    uintptr_t age;
    LOCH_TRY_RETURN(owner_find(address, &age));
    *out = owner_enter(age, mark);
    if (*out && (*out)->node.key == age) return LOCH_OK;
    if (*out) lochi_underway_leave(*mark);
    return LOCH_FAIL(DOUBLE_FREE, "another thread has freed the block at %p meanwhile", address);
}

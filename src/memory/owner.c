/* SPDX-License-Identifier: MIT */
/* Freeing by address alone: the table of all allocators of the process, except those of sessions, and the search for
 * the allocator of a block.
 *
 * Every allocator can tell whether a live block is its own: by its slots, by a ledger, or because the wrapped
 * allocator serves no other. A block that came through wrappers belongs to each allocator on its way and must be
 * freed through the outermost one. Allocators are asked in order of age. A wrapped allocator is older than its
 * wrapper, and a pool is older than the child pools in its ranges. So the last allocator that has the block is the
 * outermost one, if it wraps the one before. If two allocators have the block and neither wraps the other (for
 * example a user's allocator that cuts up a block of another), the call fails with E_UNSUPPORTED.
 *
 * The cost is one query to each allocator of the process. Allocating and freeing through an allocator cost nothing
 * extra. The lock is a leaf, because nothing is called under it: a thread enters an allocator (base/hazard.h) before
 * it queries it, and an allocator leaves the table before it waits for such threads. */
#include "memory/owner.h"
#include "base/fail.h"
#include "base/hazard.h"
#include "memory/pool/pool.h"
#include <string.h>

static lochi_lock owner_lock = LOCHI_LOCK_INITIALIZER(LOCHI_RANK_LEAF);
static lochi_tree owner_table; /* ordered by age */
static uintptr_t owner_last;   /* age of the youngest allocator */

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
    lochi_hazard_wait_unmarked(allocator); /* the caller took its mark back: other threads may wait for it */
}

/* Enters the oldest allocator of at least `age`, and returns it; NULL if none is left. */
static loch_allocator *owner_enter(uintptr_t age, uint32_t *mark)
{
    loch_allocator *allocator = NULL;
    (void)lochi_thread_slot(); /* entering needs a slot, and the lock of slots cannot be taken under a leaf lock */
    lochi_lock_take(&owner_lock);
    lochi_tree_node *node = lochi_tree_at_or_above(&owner_table, age);
    if (node) {
        allocator = LOCHI_CONTAINER(node, loch_allocator, node);
        *mark = lochi_hazard_enter(allocator);
    }
    lochi_lock_drop(&owner_lock);
    return allocator;
}

/* Returns whether this thread may call the slots: the allocator is thread-safe, or no other thread ever used it. */
static bool owner_may_ask(const loch_allocator *allocator)
{
    return allocator->traits & LOCH_TRAIT_THREAD_SAFE ||
           atomic_load_explicit(&allocator->user, memory_order_relaxed) == lochi_thread_number();
}

/* Returns LOCH_OK if the block belongs to the allocator, else the error that a free through it would give. */
static loch_status owner_ask(loch_allocator *allocator, const void *address)
{
    lochi_entry entry;
    loch_block block = {0};
    /* Acquire: an allocator with a user is complete; others may be under construction. */
    if (!atomic_load_explicit(&allocator->user, memory_order_acquire)) return LOCH_E_FOREIGN;
    switch (allocator->account) {
    case LOCHI_ACCOUNT_LEDGER: return lochi_ledger_find(allocator->ledger, address, &entry);
    case LOCHI_ACCOUNT_OWN:
        return owner_may_ask(allocator) ? allocator->ops.find(allocator->self, address, &block) : LOCH_E_FOREIGN;
    case LOCHI_ACCOUNT_BELOW: return owner_ask(allocator->wrapped, address);
    case LOCHI_ACCOUNT_NOTES: /* its blocks can be freed through the wrapped allocator */ break;
    }
    return LOCH_E_FOREIGN;
}

/* Returns the allocator from which an allocator gets its blocks; NULL: from the device. */
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

/* Result of the queries so far. */
typedef struct owner_search {
    uintptr_t age; /* age of the outermost allocator that has the block; 0: none yet */
    char name[LOCHI_ALLOCATOR_NAME_MAX];
    char other[LOCHI_ALLOCATOR_NAME_MAX]; /* another allocator that has it and is not wrapped; "": none */
    loch_status status;                   /* if no allocator has it: the last answer other than E_FOREIGN */
    loch_error error;                     /* error record of `status` */
} owner_search;

static void owner_note(owner_search *search, const loch_allocator *allocator, loch_status status)
{
    if (status == LOCH_OK) {
        if (search->age && !owner_is_around(allocator, search->age))
            memcpy(search->other, search->name, sizeof search->other);
        search->age = allocator->node.key;
        memcpy(search->name, allocator->name, sizeof search->name);
    } else if (status == LOCH_E_INTERIOR || status == LOCH_E_DOUBLE_FREE) {
        search->status = status; /* the youngest is the outermost, so its answer is the most precise */
        search->error = lochi_error_save();
    }
}

static loch_status owner_find(const void *address, uintptr_t *age)
{
    owner_search search = {.status = LOCH_E_FOREIGN};
    const loch_error saved = lochi_error_save();
    loch_allocator *allocator;
    uint32_t mark;
    for (uintptr_t next = 1; (allocator = owner_enter(next, &mark)); lochi_hazard_leave(mark)) {
        next = allocator->node.key + 1;
        owner_note(&search, allocator, owner_ask(allocator, address));
    }
    lochi_error_restore(search.status == LOCH_E_FOREIGN || search.age ? &saved : &search.error);
    *age = search.age;
    if (search.age && !search.other[0]) return LOCH_OK;
    if (search.age)
        return LOCH_FAIL(UNSUPPORTED,
                         "allocators \"%s\" and \"%s\" both have a block at %p: free it through one of them",
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
    if (*out) lochi_hazard_leave(*mark);
    return LOCH_FAIL(DOUBLE_FREE, "another thread freed the block at %p at the same time", address);
}

/* --- walking --- */

void lochi_owner_visit(void (*visit)(loch_allocator *allocator, void *user), void *user)
{
    loch_allocator *allocator;
    uint32_t mark;
    for (uintptr_t next = 1; (allocator = owner_enter(next, &mark)); lochi_hazard_leave(mark)) {
        next = allocator->node.key + 1;
        visit(allocator, user);
    }
}

void lochi_owner_visit_forked(void (*visit)(loch_allocator *allocator))
{
    lochi_tree_node *node;
    for (uintptr_t next = 1; (node = lochi_tree_at_or_above(&owner_table, next)); next = node->key + 1)
        visit(LOCHI_CONTAINER(node, loch_allocator, node));
}

bool lochi_owner_may_ask(const loch_allocator *allocator)
{
    return atomic_load_explicit(&allocator->user, memory_order_acquire) && owner_may_ask(allocator);
}

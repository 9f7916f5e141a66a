/* SPDX-License-Identifier: MIT */
/* Freeing by address alone: the table of all allocators of the process, except those of sessions, and the search for
 * the allocator of a block.
 *
 * A search takes the allocators that have memory around the address from the index of regions (base/regions.h): pools
 * enter their reservations, segments and ranges there, and ledgers their chunks. Allocators that keep account of their
 * blocks themselves (find, walk and get_stats of a user) are asked each time. So the cost depends on the allocators at
 * one address and on those of users, not on the number of all. If that finds no block, all allocators are asked, for
 * the most precise error.
 *
 * A block that came through wrappers belongs to each allocator on its way and must be freed through the outermost one.
 * Allocators are asked in order of age. A wrapped allocator is older than its wrapper, and a pool is older than the
 * child pools in its ranges. So the last allocator that has the block is the outermost one, if it wraps the one before.
 * If two allocators have the block and neither wraps the other (for example a user's allocator that cuts up a block of
 * another), the call fails with E_UNSUPPORTED.
 *
 * Allocating and freeing through an allocator cost nothing extra; memory that a pool takes, and the first block in a
 * chunk of a ledger, cost an entry in the index. The lock of the index guards the table too. It is a leaf, because
 * nothing is called under it: a thread enters an allocator (base/hazard.h) before it asks it, and an allocator leaves
 * the table before it waits for such threads. Its entries in the index go later, when it gives its memory back; until
 * then `is_listed` hides them. */
#include "memory/owner.h"
#include "base/fail.h"
#include "base/hazard.h"
#include "base/regions.h"
#include "memory/pool/pool.h"
#include <string.h>

#define OWNER_MOST 64 /* allocators that a search by the index asks; with more at one address it asks all */

/* Guarded by lochi_regions_lock, as are the members of loch_allocator for searches. */
static lochi_tree owner_table;       /* ordered by age */
static uintptr_t owner_last;         /* age of the youngest allocator */
static loch_allocator *owner_opaque; /* allocators whose memory is not in the index */

void lochi_owner_add(loch_allocator *allocator)
{
    lochi_lock_take(&lochi_regions_lock);
    allocator->node.key = ++owner_last;
    lochi_tree_insert(&owner_table, &allocator->node);
    allocator->is_listed = true;
    if (allocator->account == LOCHI_ACCOUNT_BELOW) {
        allocator->wrapped->around = allocator;
    } else {
        allocator->opaque = owner_opaque;
        allocator->opaque_link = &owner_opaque;
        if (owner_opaque) owner_opaque->opaque_link = &allocator->opaque;
        owner_opaque = allocator;
    }
    lochi_lock_drop(&lochi_regions_lock);
}

static void owner_leave_opaque(loch_allocator *allocator)
{
    if (!allocator->opaque_link) return;
    *allocator->opaque_link = allocator->opaque;
    if (allocator->opaque) allocator->opaque->opaque_link = allocator->opaque_link;
    allocator->opaque_link = NULL;
}

void lochi_owner_index(loch_allocator *allocator, lochi_ledger *ledger)
{
    if (ledger) lochi_ledger_set_owner(ledger, allocator);
    allocator->searched = ledger; /* before the allocator has a user */
    lochi_lock_take(&lochi_regions_lock);
    owner_leave_opaque(allocator);
    lochi_lock_drop(&lochi_regions_lock);
}

void lochi_owner_remove(loch_allocator *allocator)
{
    lochi_lock_take(&lochi_regions_lock);
    lochi_tree_remove(&owner_table, &allocator->node);
    allocator->is_listed = false;
    owner_leave_opaque(allocator);
    if (allocator->account == LOCHI_ACCOUNT_BELOW) allocator->wrapped->around = NULL;
    lochi_lock_drop(&lochi_regions_lock);
    lochi_hazard_wait_unmarked(allocator); /* the caller took its mark back: other threads may wait for it */
}

/* Enters the oldest allocator of at least `age`, and returns it; NULL if none is left. */
static loch_allocator *owner_enter(uintptr_t age, uint32_t *mark)
{
    loch_allocator *allocator = NULL;
    (void)lochi_thread_slot(); /* entering needs a slot, and the lock of slots cannot be taken under a leaf lock */
    lochi_lock_take(&lochi_regions_lock);
    lochi_tree_node *node = lochi_tree_at_or_above(&owner_table, age);
    if (node) {
        allocator = LOCHI_CONTAINER(node, loch_allocator, node);
        *mark = lochi_hazard_enter(allocator);
    }
    lochi_lock_drop(&lochi_regions_lock);
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
        if (allocator->pool && lochi_pool_measure_fast(allocator->pool, address, &block)) return LOCH_OK;
        return owner_may_ask(allocator) ? allocator->ops.find(allocator->self, address, &block) : LOCH_E_FOREIGN;
    case LOCHI_ACCOUNT_BELOW: return owner_ask(allocator->wrapped, address);
    case LOCHI_ACCOUNT_NOTES: /* its blocks can be freed through the wrapped allocator */ break;
    }
    return LOCH_E_FOREIGN;
}

/* Returns whether an allocator has a live block at an address. Faster than owner_ask, which finds words for a no. */
static bool owner_has(loch_allocator *allocator, const void *address)
{
    if (!atomic_load_explicit(&allocator->user, memory_order_acquire)) return false; /* as in owner_ask */
    if (!allocator->searched) return owner_ask(allocator, address) == LOCH_OK;
    return (allocator->ledger || owner_may_ask(allocator)) && lochi_ledger_has(allocator->searched, address);
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

/* Allocators that may have a block at an address, entered, by age. */
typedef struct owner_entered {
    size_t count;
    loch_allocator *allocators[OWNER_MOST];
    uint32_t marks[OWNER_MOST];
} owner_entered;

/* Inserts an allocator of the table by age, unless it is there. Returns false if there is no room. */
static bool owner_gather(owner_entered *found, loch_allocator *allocator)
{
    lochi_lock_assert_held(&lochi_regions_lock);
    if (!allocator->is_listed) return true;
    size_t at = found->count;
    while (at && found->allocators[at - 1]->node.key > allocator->node.key)
        at--;
    if (at && found->allocators[at - 1] == allocator) return true;
    if (found->count == OWNER_MOST) return false;
    memmove(&found->allocators[at + 1], &found->allocators[at], (found->count++ - at) * sizeof *found->allocators);
    found->allocators[at] = allocator;
    return !allocator->around || owner_gather(found, allocator->around);
}

/* Leaves the `count` oldest. The youngest was entered first, so its mark can stay. */
static void owner_leave(const owner_entered *found, size_t count)
{
    for (size_t at = 0; at < count; at++)
        lochi_hazard_leave(found->marks[at]);
}

/* Enters the allocators that may have a block at an address. Returns false, and enters none, if they are too many. */
static bool owner_enter_some(const void *address, owner_entered *found)
{
    void *owners[OWNER_MOST];
    found->count = 0;
    (void)lochi_thread_slot(); /* as in owner_enter */
    lochi_lock_take(&lochi_regions_lock);
    const size_t count = lochi_regions_find((uintptr_t)address, owners, OWNER_MOST);
    bool fits = count <= OWNER_MOST;
    for (size_t i = 0; fits && i < count; i++)
        fits = owner_gather(found, owners[i]);
    for (loch_allocator *opaque = owner_opaque; fits && opaque; opaque = opaque->opaque)
        fits = owner_gather(found, opaque);
    for (size_t at = found->count; fits && at--;)
        found->marks[at] = lochi_hazard_enter(found->allocators[at]);
    lochi_lock_drop(&lochi_regions_lock);
    return fits;
}

/* Finds the outermost allocator among some, the youngest first: those that it is around are not asked. Returns NULL if
 * none has the block, or if two do of which neither is around the other. */
static loch_allocator *owner_choose(const owner_entered *found, const void *address)
{
    loch_allocator *outermost = NULL;
    const loch_error saved = lochi_error_save();
    for (size_t at = found->count; at--;) {
        loch_allocator *allocator = found->allocators[at];
        if (outermost && owner_is_around(outermost, allocator->node.key)) continue;
        if (!owner_has(allocator, address)) continue;
        if (outermost) return NULL;
        outermost = allocator;
    }
    lochi_error_restore(&saved);
    return outermost;
}

loch_status lochi_owner_enter(const void *address, loch_allocator **out, uint32_t *mark)
{
    owner_entered found;
    uintptr_t age = 0;
    if (owner_enter_some(address, &found)) {
        loch_allocator *outermost = owner_choose(&found, address);
        if (outermost && outermost == found.allocators[found.count - 1]) {
            owner_leave(&found, found.count - 1);
            *out = outermost;
            *mark = found.marks[found.count - 1];
            return LOCH_OK;
        }
        if (outermost) age = outermost->node.key;
        owner_leave(&found, found.count);
    }
    if (!age) LOCH_TRY_RETURN(owner_find(address, &age));
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

/* SPDX-License-Identifier: MIT */
#include "shelf.h"
#include "decay.h"
#include "pages.h"
#include "source.h"
#include <pthread.h>
#include <stdalign.h>

#define SHELF_CHAIN_BYTES ((size_t)64 << 10) /* bytes in chains that a shelf keeps */

/* A chain: the first block of a batch. The last block of the batch has a NULL link. */
typedef struct shelf_block {
    struct shelf_block *next;  /* next block of the batch */
    struct shelf_block *chain; /* first block of the next chain; used by first blocks on a shelf */
} shelf_block;

typedef struct shelf {
    alignas(64) pthread_mutex_t lock;
    front_slab *first, *last; /* slabs with room; slabs get room at the end of the list */
    shelf_block *chains;
    size_t chain_count;
    size_t slab_count;
} shelf;

static shelf shelves[FRONT_CLASS_END];

/* --- start --- */

/* A thread that does not get the lock at once spins for a moment, because the lock is held for short times. */
static void shelf_init_lock(shelf *of)
{
    static const pthread_mutex_t fresh = PTHREAD_ADAPTIVE_MUTEX_INITIALIZER_NP;
    of->lock = fresh;
}

void front_shelf_start(void)
{
    for (unsigned class = 1; class <= FRONT_CLASS_COUNT; class ++)
        shelf_init_lock(&shelves[class]);
}

/* --- the list of slabs with room; lock held --- */

static void shelf_append(shelf *of, front_slab *slab)
{
    slab->next = NULL;
    slab->before = of->last;
    if (of->last)
        of->last->next = slab;
    else
        of->first = slab;
    of->last = slab;
}

static void shelf_unlink(shelf *of, front_slab *slab)
{
    if (slab->before)
        slab->before->next = slab->next;
    else
        of->first = slab->next;
    if (slab->next)
        slab->next->before = slab->before;
    else
        of->last = slab->before;
    slab->next = slab->before = NULL;
}

/* --- taking --- */

/* Cuts up to `count` blocks out of a slab with room and links them in front of `*head`. Freed blocks come first. */
static unsigned shelf_cut(front_slab *slab, const front_class *of, unsigned count, shelf_block **head)
{
    unsigned cut = 0;
    for (shelf_block *block; cut < count && (block = slab->free); cut++) {
        slab->free = block->next;
        block->next = *head;
        *head = block;
    }
    const unsigned fresh = slab->fresh, left = of->capacity - fresh, more = left < count - cut ? left : count - cut;
    for (unsigned i = more; i--;) { /* from the last: the first block of the chain has the lowest address */
        shelf_block *block = (shelf_block *)(void *)(slab->base + (size_t)(fresh + i) * of->bytes);
        block->next = *head;
        *head = block;
    }
    slab->fresh += more;
    slab->used += cut + more;
    return cut + more;
}

/* Takes a chain, or cuts blocks out of the first slab with room; lock held. */
static void *shelf_take(shelf *from, const front_class *of, unsigned count, unsigned *taken)
{
    shelf_block *head = from->chains;
    if (head) {
        from->chains = head->chain;
        from->chain_count--;
        *taken = of->batch;
        return head;
    }
    front_slab *slab = from->first;
    if (!slab) return NULL;
    *taken = shelf_cut(slab, of, count, &head);
    if (slab->used == of->capacity) shelf_unlink(from, slab);
    return head;
}

/* Makes a slab; without a lock. */
static front_slab *shelf_make_slab(unsigned class)
{
    const size_t bytes = front_classes[class].slab_bytes;
    char *base = front_source_alloc(bytes, FRONT_PAGE);
    if (!base) return NULL;
    front_slab *slab = front_pages_enter(base, bytes >> FRONT_PAGE_BITS, class);
    if (!slab) {
        front_source_free(base);
        return NULL;
    }
    slab->base = base;
    slab->free = NULL;
    slab->used = slab->fresh = 0;
    return slab;
}

void *front_shelf_take(unsigned class, unsigned count, unsigned *taken)
{
    shelf *from = &shelves[class];
    const front_class *of = &front_classes[class];
    *taken = 0;
    pthread_mutex_lock(&from->lock);
    void *head = shelf_take(from, of, count, taken);
    pthread_mutex_unlock(&from->lock);
    if (head) return head;
    front_slab *slab = shelf_make_slab(class);
    pthread_mutex_lock(&from->lock);
    if (slab) {
        shelf_append(from, slab);
        from->slab_count++;
    }
    head = shelf_take(from, of, count, taken); /* without a new slab: what another thread gave meanwhile */
    pthread_mutex_unlock(&from->lock);
    return head;
}

/* --- giving --- */

/* Puts one block into its slab; lock held. A slab that becomes empty leaves the shelf and is put in front of `*empty`,
 * unless it is the only slab with room. */
static void shelf_put(shelf *to, const front_class *of, shelf_block *block, front_slab **empty)
{
    front_slab *slab = front_pages_slab(block);
    block->next = slab->free;
    slab->free = block;
    if (slab->used-- == of->capacity) shelf_append(to, slab);
    if (slab->used || to->first == to->last) return;
    shelf_unlink(to, slab);
    to->slab_count--;
    slab->next = *empty;
    *empty = slab;
}

static void shelf_put_all(shelf *to, const front_class *of, shelf_block *head, front_slab **empty)
{
    for (shelf_block *block = head, *next; block; block = next) {
        next = block->next;
        shelf_put(to, of, block, empty);
    }
}

/* Returns empty slabs to the pool; without a lock. */
static void shelf_end_slabs(const front_class *of, front_slab *slab)
{
    for (front_slab *next; slab; slab = next) {
        next = slab->next;
        char *base = slab->base;
        front_pages_remove(base, of->slab_bytes >> FRONT_PAGE_BITS);
        front_source_free(base);
        front_decay_note(of->slab_bytes);
    }
}

static bool shelf_is_full(const shelf *of, const front_class *class)
{
    const size_t bytes = of->chain_count * class->batch * class->bytes;
    return bytes >= SHELF_CHAIN_BYTES;
}

void front_shelf_give_chain(unsigned class, void *head)
{
    shelf *to = &shelves[class];
    front_slab *empty = NULL;
    pthread_mutex_lock(&to->lock);
    if (shelf_is_full(to, &front_classes[class])) {
        shelf_put_all(to, &front_classes[class], head, &empty);
    } else {
        ((shelf_block *)head)->chain = to->chains;
        to->chains = head;
        to->chain_count++;
    }
    pthread_mutex_unlock(&to->lock);
    shelf_end_slabs(&front_classes[class], empty);
}

void front_shelf_give(unsigned class, void *head)
{
    shelf *to = &shelves[class];
    front_slab *empty = NULL;
    pthread_mutex_lock(&to->lock);
    shelf_put_all(to, &front_classes[class], head, &empty);
    pthread_mutex_unlock(&to->lock);
    shelf_end_slabs(&front_classes[class], empty);
}

void front_shelf_empty(void)
{
    for (unsigned class = 1; class <= FRONT_CLASS_COUNT; class ++) {
        shelf *of = &shelves[class];
        front_slab *empty = NULL;
        pthread_mutex_lock(&of->lock);
        for (shelf_block *chain = of->chains, *next; chain; chain = next) {
            next = chain->chain;
            shelf_put_all(of, &front_classes[class], chain, &empty);
        }
        of->chains = NULL;
        of->chain_count = 0;
        pthread_mutex_unlock(&of->lock);
        shelf_end_slabs(&front_classes[class], empty);
    }
}

front_shelf_figures front_shelf_read(unsigned class)
{
    shelf *of = &shelves[class];
    pthread_mutex_lock(&of->lock);
    const front_shelf_figures figures = {of->slab_count, of->chain_count};
    pthread_mutex_unlock(&of->lock);
    return figures;
}

/* --- forks --- */

void front_shelf_prepare_fork(void)
{
    for (unsigned class = 1; class <= FRONT_CLASS_COUNT; class ++)
        pthread_mutex_lock(&shelves[class].lock);
}

void front_shelf_end_fork(bool is_child)
{
    for (unsigned class = FRONT_CLASS_COUNT; class; class --)
        if (is_child)
            shelf_init_lock(&shelves[class]);
        else
            pthread_mutex_unlock(&shelves[class].lock);
}

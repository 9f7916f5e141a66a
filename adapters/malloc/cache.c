/* SPDX-License-Identifier: MIT */
#include "cache.h"
#include "large.h"
#include "shelf.h"
#include <pthread.h>

#define CACHE_ASK_BYTES ((size_t)1024) /* first request of a thread to a shelf */

typedef enum cache_state { CACHE_NEW, CACHE_USED, CACHE_ENDED } cache_state;

_Thread_local front_bin front_own[FRONT_CLASS_END] __attribute__((tls_model("initial-exec")));

/* What only slow paths use of a thread's cache. */
typedef struct cache_rest {
    void *spares[FRONT_CLASS_END]; /* a whole batch of free blocks for each class, or NULL */
    /* Blocks to take from the shelf: grows up to a batch, so that small programs stay small. */
    uint16_t asks[FRONT_CLASS_END];
    cache_state state;
} cache_rest;

static _Thread_local cache_rest cache_own __attribute__((tls_model("initial-exec")));
static pthread_key_t cache_key;

void front_cache_empty(void)
{
    for (unsigned class = 1; class <= FRONT_CLASS_COUNT; class ++) {
        front_bin *bin = &front_own[class];
        void *const lists[] = {bin->head, cache_own.spares[class]};
        bin->head = cache_own.spares[class] = NULL;
        bin->count = 0;
        for (unsigned i = 0; i < 2; i++)
            if (lists[i]) front_shelf_give(class, lists[i]);
    }
    front_large_empty();
}

static void cache_end(void *unused)
{
    (void)unused;
    cache_own.state = CACHE_ENDED;
    front_large_allow(false);
    for (unsigned class = 1; class <= FRONT_CLASS_COUNT; class ++)
        front_own[class].most = 0;
    front_cache_empty();
}

bool front_cache_start(void)
{
    return pthread_key_create(&cache_key, cache_end) == 0;
}

bool front_cache_begin(void)
{
    if (cache_own.state == CACHE_NEW) {
        cache_own.state = CACHE_USED;
        if (pthread_setspecific(cache_key, front_own) != 0) cache_own.state = CACHE_ENDED; /* nothing would end it */
        for (unsigned class = 1; class <= FRONT_CLASS_COUNT && cache_own.state == CACHE_USED; class ++) {
            const front_class *of = &front_classes[class];
            const size_t ask = CACHE_ASK_BYTES / of->bytes;
            front_own[class].most = of->batch;
            cache_own.asks[class] = (uint16_t)(ask ? ask : 1);
        }
        front_large_allow(cache_own.state == CACHE_USED);
    }
    return cache_own.state == CACHE_USED;
}

/* Takes one block from the shelf without a cache. */
static void *cache_take_one(unsigned class)
{
    unsigned taken;
    void **block = front_shelf_take(class, 1, &taken);
    if (taken > 1) front_shelf_give(class, *block);
    return block;
}

void *front_cache_refill(unsigned class)
{
    if (!front_cache_begin()) return cache_take_one(class);
    front_bin *bin = &front_own[class];
    if (cache_own.spares[class]) {
        bin->head = cache_own.spares[class];
        cache_own.spares[class] = NULL;
        bin->count = bin->most;
    } else {
        unsigned taken;
        void *head = front_shelf_take(class, cache_own.asks[class], &taken);
        while (bin->head) { /* freed by Loch meanwhile, which is rare */
            void *freed = bin->head;
            bin->head = NULL;
            bin->count = 0;
            front_shelf_give(class, freed);
        }
        bin->head = head;
        bin->count = taken;
        const unsigned ask = 2u * cache_own.asks[class];
        cache_own.asks[class] = (uint16_t)(ask < bin->most ? ask : bin->most);
    }
    return front_cache_take(class);
}

void front_cache_overflow(void *address, unsigned class)
{
    if (!front_cache_begin()) {
        *(void **)address = NULL;
        front_shelf_give(class, address);
        return;
    }
    if (front_cache_put(address, class)) return; /* the first call of the thread */
    front_bin *bin = &front_own[class];
    void *spare = cache_own.spares[class];
    cache_own.spares[class] = bin->head;
    *(void **)address = NULL;
    bin->head = address;
    bin->count = 1;
    if (spare) front_shelf_give_chain(class, spare);
}

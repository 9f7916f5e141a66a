/* SPDX-License-Identifier: MIT */
/* Keeps Python programs away from memory of sleeping pools.
 *
 * A sleeping pool has no memory at its addresses: on a device whose memory the host reads directly, an access would end
 * the process. So contents of sleeping tensors are not touched, and a pool of such a device does not sleep while arrays
 * of other libraries share its memory. Programs that put no pool to sleep pay one load for each call. */
#include "core.h"

#include <pthread.h>
#include <stdlib.h>

/* One sleep of a pool. It counts only as long as the pool says that something sleeps: entries of pools that are gone do
 * no harm. */
typedef struct awake_sleep {
    const loch_allocator *pool;
    loch_tag tag; /* 0: the whole pool */
    struct awake_sleep *next;
} awake_sleep;

/* Exports of memory of one pool. Each export keeps the pool alive. */
typedef struct awake_exports {
    const loch_allocator *pool;
    size_t count;
    struct awake_exports *next;
} awake_exports;

static pthread_mutex_t awake_lock = PTHREAD_MUTEX_INITIALIZER;
static awake_sleep *awake_sleeps;     /* lock held */
static awake_exports *awake_exported; /* lock held */
static _Atomic bool awake_has_slept;

static bool awake_is_host_pool(const loch_allocator *pool)
{
    return pool && loch_device_can(loch_allocator_get_device(pool), LOCH_CAN_HOST_ACCESS);
}

/* --- exports --- */

loch_allocator *lochpy_export_begin(loch_tensor *tensor)
{
    loch_allocator *pool = loch_buffer_get_allocator(loch_tensor_get_buffer(tensor));
    if (!awake_is_host_pool(pool)) return NULL;
    pthread_mutex_lock(&awake_lock);
    awake_exports *found = awake_exported;
    while (found && found->pool != pool)
        found = found->next;
    if (!found && (found = calloc(1, sizeof *found))) {
        *found = (awake_exports){pool, 0, awake_exported};
        awake_exported = found;
    }
    if (found) found->count++;
    pthread_mutex_unlock(&awake_lock);
    return found ? pool : NULL;
}

void lochpy_export_end(const loch_allocator *pool)
{
    if (!pool) return;
    pthread_mutex_lock(&awake_lock);
    for (awake_exports **at = &awake_exported; *at; at = &(*at)->next) {
        awake_exports *found = *at;
        if (found->pool != pool) continue;
        if (--found->count == 0) {
            *at = found->next;
            free(found);
        }
        break;
    }
    pthread_mutex_unlock(&awake_lock);
}

static size_t awake_count_exports(const loch_allocator *pool)
{
    size_t count = 0;
    pthread_mutex_lock(&awake_lock);
    for (const awake_exports *at = awake_exported; at; at = at->next)
        if (at->pool == pool) count = at->count;
    pthread_mutex_unlock(&awake_lock);
    return count;
}

/* --- sleeps --- */

/* Reads how many bytes of a pool sleep. */
static size_t awake_asleep_bytes(loch_allocator *pool)
{
    loch_pool_info info = {.size = sizeof info};
    return loch_pool_get_info(pool, &info) == LOCH_OK ? info.asleep_bytes : 0;
}

static void awake_forget(const loch_allocator *pool)
{
    for (awake_sleep **at = &awake_sleeps; *at;) {
        awake_sleep *found = *at;
        if (found->pool != pool) {
            at = &found->next;
            continue;
        }
        *at = found->next;
        free(found);
    }
}

int lochpy_before_sleep(loch_allocator *pool, loch_tag tag)
{
    const size_t exports = awake_count_exports(pool);
    if (exports > 0) {
        (void)lochpy_raise_text(LOCH_E_BUSY,
                                "%zu arrays or buffers share memory of pool '%s': delete them before it sleeps",
                                exports, loch_allocator_get_name(pool));
        return -1;
    }
    awake_sleep *added = calloc(1, sizeof *added);
    if (!added) {
        PyErr_NoMemory();
        return -1;
    }
    const bool was_awake = awake_asleep_bytes(pool) == 0;
    pthread_mutex_lock(&awake_lock);
    if (was_awake) awake_forget(pool);
    *added = (awake_sleep){pool, tag, awake_sleeps};
    awake_sleeps = added;
    pthread_mutex_unlock(&awake_lock);
    atomic_store(&awake_has_slept, true);
    return 0;
}

/* Tells whether a sleep covers a block with a tag. */
static bool awake_covers(const loch_allocator *pool, loch_tag tag)
{
    bool is_covered = false;
    pthread_mutex_lock(&awake_lock);
    for (const awake_sleep *at = awake_sleeps; at && !is_covered; at = at->next)
        is_covered = at->pool == pool && (at->tag == 0 || at->tag == tag);
    pthread_mutex_unlock(&awake_lock);
    return is_covered;
}

int lochpy_awake(loch_tensor *tensor)
{
    if (!atomic_load_explicit(&awake_has_slept, memory_order_acquire)) return 0;
    const loch_buffer *buffer = loch_tensor_get_buffer(tensor);
    loch_allocator *pool = loch_buffer_get_allocator(buffer);
    const void *address = loch_buffer_get_address(buffer);
    if (!address || !pool || awake_asleep_bytes(pool) == 0) return 0;
    loch_block block = {.size = sizeof block};
    const loch_status status = loch_allocator_find(pool, address, &block);
    if (status == LOCH_OK && !awake_covers(pool, block.tag)) return 0;
    (void)lochpy_raise_text(LOCH_E_BUSY, "the memory of the tensor sleeps: wake pool '%s' first",
                            loch_allocator_get_name(pool));
    return -1;
}

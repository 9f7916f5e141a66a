/* SPDX-License-Identifier: MIT */
/* The error sentences of a pool: what does not fit, whose limit it is, and what is asleep. */
#include "memory/pool/refuse.h"
#include "base/fail.h"
#include "base/text.h"
#include "memory/pool/family.h"
#include "memory/pool/heap.h"

/* Figures for every failure. */
#define REFUSE_FIGURES "%s held, %s in blocks, %s free (largest piece %s), %s waiting for streams"

#define REFUSE_READ(pool)                                                                                              \
    LOCHI_SIZE((pool)->reserved), LOCHI_SIZE((pool)->used - (pool)->waiting_bytes),                                    \
        LOCHI_SIZE(lochi_pool_free_bytes(pool)), LOCHI_SIZE(lochi_pool_find_largest(pool)),                            \
        LOCHI_SIZE((pool)->waiting_bytes)

loch_status lochi_pool_fail_limit(lochi_pool *pool, size_t bytes)
{
    lochi_lock_assert_held(&pool->lock);
    size_t limit, held;
    const lochi_pool *full = lochi_family_find_limit(pool, bytes, &limit, &held);
    const char *name = loch_allocator_get_name(pool->allocator), *other = loch_allocator_get_name(full->allocator);
    const char *with = full->is_related ? " with its children" : "";
    if (full == pool)
        return LOCH_FAIL(LIMIT, "%s more do not fit: pool \"%s\" is at its limit of %s (%s in use%s): " REFUSE_FIGURES,
                         LOCHI_SIZE(bytes), name, LOCHI_SIZE(limit), LOCHI_SIZE(held), with, REFUSE_READ(pool));
    return LOCH_FAIL(LIMIT,
                     "%s more for pool \"%s\" do not fit: its parent \"%s\" is at its limit of %s (%s in use%s); the "
                     "child: " REFUSE_FIGURES,
                     LOCHI_SIZE(bytes), name, other, LOCHI_SIZE(limit), LOCHI_SIZE(held), with, REFUSE_READ(pool));
}

/* Returns the bytes that the limits leave, in whole cells. */
static size_t refuse_room(const lochi_pool *pool, bool *is_limited)
{
    size_t room = pool->limit > pool->reserved ? pool->limit - pool->reserved : 0;
    *is_limited = pool->limit != 0;
    const size_t left = pool->is_related ? lochi_family_room(pool) : SIZE_MAX;
    if (left != SIZE_MAX) {
        room = left;
        *is_limited = true;
    }
    return pool->range ? 0 : room - room % pool->step_bytes;
}

loch_status lochi_pool_fail(lochi_pool *pool, const pool_want *want, loch_status status)
{
    lochi_lock_assert_held(&pool->lock);
    const bool is_full = status == LOCH_E_DEVICE_MEMORY; /* the limit leaves room, but the device has no memory */
    bool is_limited;
    const size_t left = refuse_room(pool, &is_limited), room = is_full ? 0 : left;
    if (pool->is_virtual && want->bytes > pool->span)
        return LOCH_FAIL(DEVICE_MEMORY, "%s do not fit the addresses of pool \"%s\", which reserved %s in all",
                         LOCHI_SIZE(want->bytes), loch_allocator_get_name(pool->allocator), LOCHI_SIZE(pool->span));
    if (is_limited && !is_full && want->bytes > lochi_pool_free_bytes(pool) + room)
        return lochi_pool_fail_limit(pool, want->bytes);
    if (want->bytes <= lochi_pool_free_bytes(pool) + room)
        return LOCH_FAIL(FRAGMENTED, "%s are not free in one piece in pool \"%s\": " REFUSE_FIGURES,
                         LOCHI_SIZE(want->bytes), loch_allocator_get_name(pool->allocator), REFUSE_READ(pool));
    if (pool->options.source)
        return LOCH_FAIL(DEVICE_MEMORY, "the source \"%s\" has no %s more for pool \"%s\": " REFUSE_FIGURES,
                         loch_allocator_get_name(pool->options.source), LOCHI_SIZE(want->bytes),
                         loch_allocator_get_name(pool->allocator), REFUSE_READ(pool));
    if (pool->kind == LOCH_MEMORY_PINNED)
        return LOCH_FAIL(DEVICE_MEMORY, "the host has no %s more that %s can pin, for pool \"%s\": " REFUSE_FIGURES,
                         LOCHI_SIZE(want->bytes), pool->device->name, loch_allocator_get_name(pool->allocator),
                         REFUSE_READ(pool));
    return LOCH_FAIL(DEVICE_MEMORY, "%s has no %s more for pool \"%s\": " REFUSE_FIGURES, pool->device->name,
                     LOCHI_SIZE(want->bytes), loch_allocator_get_name(pool->allocator), REFUSE_READ(pool));
}

loch_status lochi_pool_refuse_asleep(const lochi_pool *pool)
{
    lochi_lock_assert_held(&pool->lock);
    if (pool->is_forked) return lochi_device_refuse_forked(pool->device);
    return LOCH_FAIL(BUSY, "pool \"%s\" is asleep: wake it first", loch_allocator_get_name(pool->allocator));
}

loch_status lochi_pool_refuse_at(const void *address)
{
    return LOCH_FAIL(BUSY, "the block at %p is asleep: wake its pool first", address);
}

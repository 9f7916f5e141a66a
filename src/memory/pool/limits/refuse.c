/* SPDX-License-Identifier: MIT */
/* The error sentences of a pool: what does not fit, whose limit it is, and what is asleep. */
#include "memory/pool/limits/refuse.h"
#include "base/fail.h"
#include "kit/text.h"
#include "memory/pool/limits/family.h"
#include "memory/pool/heap/heap.h"
#include "memory/pool/limits/headroom.h"
#include "memory/pool/pool.h"

/* Figures for every failure. */
#define REFUSE_FIGURES "%s held, %s in blocks, %s free (largest piece %s), %s waiting for streams"

#define REFUSE_READ(pool)                                                                                              \
    LOCHI_SIZE((pool)->reserved), LOCHI_SIZE((pool)->used - (pool)->waiting_bytes),                                    \
        LOCHI_SIZE(lochi_pool_free_bytes(pool)), LOCHI_SIZE(lochi_pool_find_largest(pool)),                            \
        LOCHI_SIZE((pool)->waiting_bytes)

/* Returns the least memory that a request of `bytes` takes: whole granules, except in a range. */
static size_t refuse_least(const lochi_pool *pool, size_t bytes)
{
    return pool->range ? bytes : (bytes + pool->step_bytes - 1) / pool->step_bytes * pool->step_bytes;
}

/* Refuses a request that is larger than a limit. */
static loch_status refuse_above(const lochi_pool *pool, const lochi_pool *owner, size_t bytes, size_t limit)
{
    const char *name = loch_allocator_get_name(pool->allocator), *other = loch_allocator_get_name(owner->allocator);
    const size_t least = refuse_least(pool, bytes);
    if (owner == pool)
        (void)LOCH_FAIL(LIMIT, "%s can never fit: the limit of pool \"%s\" is %s", LOCHI_SIZE(bytes), name,
                        LOCHI_SIZE(limit));
    else
        (void)LOCH_FAIL(LIMIT, "%s can never fit in pool \"%s\": the limit of its parent \"%s\" is %s",
                        LOCHI_SIZE(bytes), name, other, LOCHI_SIZE(limit));
    if (bytes <= limit) lochi_error_append(", and memory comes in pieces of %s", LOCHI_SIZE(pool->step_bytes));
    lochi_error_note_short(other, least - limit, LOCH_REMEDY_NONE);
    return LOCH_E_LIMIT;
}

loch_status lochi_pool_check_ceiling(const lochi_pool *pool, size_t bytes)
{
    lochi_lock_assert_held(&pool->lock);
    const size_t least = refuse_least(pool, bytes), total = pool->room.total;
    const char *whose = pool->kind == LOCH_MEMORY_PINNED ? "host" : pool->device->name;
    size_t ceiling;
    const lochi_pool *owner = lochi_family_find_ceiling(pool, least, &ceiling);
    if (owner) return refuse_above(pool, owner, bytes, ceiling);
    if (!total || least <= total) return LOCH_OK;
    (void)LOCH_FAIL(DEVICE_MEMORY, "%s can never fit in pool \"%s\": %s%s has %s in all", LOCHI_SIZE(bytes),
                    loch_allocator_get_name(pool->allocator), pool->kind == LOCH_MEMORY_PINNED ? "the " : "", whose,
                    LOCHI_SIZE(total));
    lochi_error_note_short(whose, least - total, LOCH_REMEDY_NONE);
    return LOCH_E_DEVICE_MEMORY;
}

loch_status lochi_pool_check_request(lochi_pool *pool, const loch_request *request)
{
    lochi_lock_take(&pool->lock);
    const loch_status status = lochi_pool_check_ceiling(pool, lochi_request_round(request));
    lochi_lock_drop(&pool->lock);
    return status;
}

/* Refuses a request for which the device, the host or the source has no memory. Returns whose memory it is. */
static const char *refuse_empty(lochi_pool *pool, size_t bytes)
{
    const char *name = loch_allocator_get_name(pool->allocator);
    if (pool->options.source) {
        const char *source = loch_allocator_get_name(pool->options.source);
        (void)LOCH_FAIL(DEVICE_MEMORY, "the source \"%s\" has no %s more for pool \"%s\": " REFUSE_FIGURES, source,
                        LOCHI_SIZE(bytes), name, REFUSE_READ(pool));
        return source;
    }
    if (pool->kind == LOCH_MEMORY_PINNED) {
        (void)LOCH_FAIL(DEVICE_MEMORY, "the host has no %s more that %s can pin, for pool \"%s\": " REFUSE_FIGURES,
                        LOCHI_SIZE(bytes), pool->device->name, name, REFUSE_READ(pool));
        return "host";
    }
    (void)LOCH_FAIL(DEVICE_MEMORY, "%s has no %s more for pool \"%s\": " REFUSE_FIGURES, pool->device->name,
                    LOCHI_SIZE(bytes), name, REFUSE_READ(pool));
    return pool->device->name;
}

/* Refuses a request for which the device, the host or the source has no memory, and notes what is missing. */
static loch_status refuse_short(lochi_pool *pool, size_t bytes)
{
    const char *owner = refuse_empty(pool, bytes);
    const size_t free = lochi_pool_free_bytes(pool),
                 device = pool->policy.can_ask_room && pool->room.bytes != SIZE_MAX ? pool->room.bytes : 0;
    lochi_error_note_short(owner, bytes > free + device ? bytes - free - device : 1, LOCH_REMEDY_FREE);
    return LOCH_E_DEVICE_MEMORY;
}

loch_status lochi_pool_fail_limit(lochi_pool *pool, size_t bytes)
{
    lochi_lock_assert_held(&pool->lock);
    size_t limit, held;
    LOCH_TRY_RETURN(lochi_pool_check_ceiling(pool, bytes));
    const lochi_pool *full = lochi_family_find_limit(pool, bytes, &limit, &held);
    if (limit == SIZE_MAX) return refuse_short(pool, bytes); /* the family has no limit but the device */
    const char *name = loch_allocator_get_name(pool->allocator), *other = loch_allocator_get_name(full->allocator);
    const char *with = full->is_related ? " with its children" : "";
    if (full == pool)
        (void)LOCH_FAIL(LIMIT, "%s more do not fit: pool \"%s\" is at its limit of %s (%s in use%s): " REFUSE_FIGURES,
                        LOCHI_SIZE(bytes), name, LOCHI_SIZE(limit), LOCHI_SIZE(held), with, REFUSE_READ(pool));
    else
        (void)LOCH_FAIL(LIMIT,
                        "%s more for pool \"%s\" do not fit: its parent \"%s\" is at its limit of %s (%s in use%s); "
                        "the child: " REFUSE_FIGURES,
                        LOCHI_SIZE(bytes), name, other, LOCHI_SIZE(limit), LOCHI_SIZE(held), with, REFUSE_READ(pool));
    const size_t left = (limit > held ? limit - held : 0) + lochi_pool_free_bytes(pool);
    const size_t least = refuse_least(pool, bytes);
    lochi_error_note_short(other, least > left ? least - left : 1, LOCH_REMEDY_FREE);
    return LOCH_E_LIMIT;
}

loch_status lochi_pool_fail(lochi_pool *pool, const pool_want *want, loch_status status)
{
    lochi_lock_assert_held(&pool->lock);
    const char *name = loch_allocator_get_name(pool->allocator);
    const bool is_full = status == LOCH_E_DEVICE_MEMORY; /* the limit leaves room, but the device has no memory */
    const size_t left = lochi_pool_find_limit_room(pool), room = is_full || left == SIZE_MAX ? 0 : left;
    const size_t free = lochi_pool_free_bytes(pool);
    LOCH_TRY_RETURN(lochi_pool_check_ceiling(pool, want->bytes));
    if (pool->span && want->bytes > pool->span) {
        (void)LOCH_FAIL(DEVICE_MEMORY, "%s do not fit the addresses of pool \"%s\", which reserved %s in all",
                        LOCHI_SIZE(want->bytes), name, LOCHI_SIZE(pool->span));
        lochi_error_note_short(name, want->bytes - pool->span, LOCH_REMEDY_NONE);
        return LOCH_E_DEVICE_MEMORY;
    }
    if (left != SIZE_MAX && !is_full && want->bytes > free + room) return lochi_pool_fail_limit(pool, want->bytes);
    if (want->bytes <= free + room) {
        (void)LOCH_FAIL(FRAGMENTED, "%s are not free in one piece in pool \"%s\": " REFUSE_FIGURES,
                        LOCHI_SIZE(want->bytes), name, REFUSE_READ(pool));
        lochi_error_note_short(name, 0, LOCH_REMEDY_FREE);
        return LOCH_E_FRAGMENTED;
    }
    return refuse_short(pool, want->bytes);
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

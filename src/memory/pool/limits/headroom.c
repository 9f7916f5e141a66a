/* SPDX-License-Identifier: MIT */
/* What the device has left, and the part of it that a pool leaves to others.
 *
 * Other libraries take memory of the device past every allocator: handles of cuBLAS and cuDNN, buffers of NCCL, kernels
 * that are loaded late. If they get none, the process is lost. So a pool creates nothing for a request before the
 * device has all of it, and a pool that leaves the device less than the headroom gives its idle memory back: at once
 * what is idle, and what is freed later at the end of the free (idle.c). A request may use the headroom: it is left
 * free by caches, not by live blocks.
 *
 * Asking the device takes about 5 us. So `room` is an estimate: the last answer, less what this pool has created since.
 * The device is asked again if a request or the headroom could come near the estimate, after HEADROOM_LOOKS requests,
 * and after it has refused memory. Memory of the host is not asked for: the system overcommits it. The CPU device has
 * room for handles up to its total, which it counts itself. */
#include "memory/pool/limits/headroom.h"
#include "base/fail.h"
#include "base/options.h"
#include "kit/text.h"
#include "device/driver.h"
#include "memory/pool/limits/family.h"
#include "memory/pool/state/state.h"
#include <string.h>

#define HEADROOM_LOOKS 256
#define HEADROOM_NEAR_PART 16 /* of the device: with less left, every request for new memory asks */
#define HEADROOM_MOST ((size_t)1 << 30)
#define HEADROOM_PART 32 /* of the device, at most */

/* Returns the default: on CUDA 1 GiB, or 1/32 of a device below 32 GiB. First uses on an H200 take 558 MiB (NCCL), 138
 * MiB (cuBLAS) and 96 MiB (cuSOLVER), and kernels that are loaded late a few more. Other devices have no such
 * neighbours. */
static size_t headroom_choose(const loch_device *device)
{
    if (strcmp(device->driver->name, "cuda") != 0) return 0;
    const size_t part = device->properties.total_bytes / HEADROOM_PART;
    return part < HEADROOM_MOST ? part : HEADROOM_MOST;
}

/* Tells whether the device can be asked how much it has left. */
static bool headroom_can_ask(const lochi_pool *pool)
{
    if (pool->kind != LOCH_MEMORY_DEVICE || !pool->room.total) return false;
    return !loch_device_can(pool->device, LOCH_CAN_HOST_ACCESS) ||
           (pool->policy.is_virtual && lochi_device_count_room(pool->device) != SIZE_MAX);
}

loch_status lochi_pool_read_headroom(lochi_pool *pool)
{
    const lochi_pool *parent = pool->family.parent;
    if (!pool->options.source)
        pool->room.total =
            parent && parent->room.total ? parent->room.total : lochi_device_read_total(pool->device, pool->kind);
    pool->room.headroom = pool->options.headroom_bytes;
    pool->room.bytes = SIZE_MAX;
    pool->policy.can_ask_room = headroom_can_ask(pool);
    if (!pool->room.headroom && parent) pool->room.headroom = parent->room.headroom;
    if (!pool->room.headroom) LOCH_TRY_RETURN(lochi_option_bytes("pool_headroom", &pool->room.headroom));
    if (!pool->room.headroom) pool->room.headroom = headroom_choose(pool->device);
    if (pool->room.headroom > pool->device->properties.total_bytes)
        pool->room.headroom = pool->device->properties.total_bytes;
    return LOCH_OK;
}

void lochi_pool_look_at_room(lochi_pool *pool, size_t bytes)
{
    lochi_pool_assert_both(pool);
    if (!pool->policy.can_ask_room || pool->range) return;
    const size_t near = pool->device->properties.total_bytes / HEADROOM_NEAR_PART + 2 * pool->room.headroom;
    if (pool->room.looks && pool->room.bytes / 2 > bytes && pool->room.bytes > near) {
        pool->room.looks--;
        return;
    }
    const size_t counted = lochi_device_count_room(pool->device);
    if (counted != SIZE_MAX) {
        pool->room.bytes = counted;
        pool->room.looks = HEADROOM_LOOKS;
        return;
    }
    loch_memory_info info = {.size = sizeof info};
    const loch_error saved = lochi_error_save();
    lochi_pool_go_outside(pool);
    const loch_status status = loch_device_calculate_memory(pool->device, &info);
    lochi_pool_come_back(pool);
    if (status != LOCH_OK) { /* the estimate stays */
        lochi_error_restore(&saved);
        return;
    }
    pool->room.bytes = info.free_bytes;
    pool->room.looks = HEADROOM_LOOKS;
}

void lochi_pool_doubt_room(lochi_pool *pool)
{
    lochi_lock_assert_held(&pool->lock);
    pool->room.looks = 0;
}

size_t lochi_pool_find_limit_room(const lochi_pool *pool)
{
    lochi_lock_assert_held(&pool->lock);
    size_t left = SIZE_MAX;
    if (pool->range) return 0;
    if (pool->is_related)
        left = lochi_family_room(pool);
    else if (pool->limit)
        left = pool->limit > pool->reserved ? pool->limit - pool->reserved : 0;
    return left == SIZE_MAX ? SIZE_MAX : left - left % pool->step_bytes;
}

size_t lochi_pool_find_room(const lochi_pool *pool)
{
    const size_t left = lochi_pool_find_limit_room(pool);
    const size_t room = pool->policy.can_ask_room && pool->room.bytes != SIZE_MAX
                            ? pool->room.bytes - pool->room.bytes % pool->step_bytes
                            : SIZE_MAX;
    return left < room ? left : room;
}

loch_status lochi_pool_check_room(const lochi_pool *pool, size_t bytes)
{
    lochi_lock_assert_held(&pool->lock);
    if (!pool->policy.can_ask_room || bytes <= pool->room.bytes) return LOCH_OK;
    return LOCH_FAIL(DEVICE_MEMORY, "%s has %s left", pool->device->name, LOCHI_SIZE(pool->room.bytes));
}

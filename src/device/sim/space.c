/* SPDX-License-Identifier: MIT */
/* Address space of simulated devices: addresses of unbacked devices, and offsets in the file of backed ones.
 *
 * Free extents are in two trees: by address, to merge neighbours, and by size class, to find one that fits. A class
 * is a sixteenth of a power of two. Every extent of a class above the request's class fits; a few extents of the
 * request's own class are tried first, so that a block that was just freed is found again. The lowest address of a
 * class is taken: deterministic and dense. */
#include "device/sim/space.h"
#include "base/checked.h"
#include "base/heap.h"
#include "kit/text.h"
#include "device/sim/fail.h"

#define SPACE_TRIES 16
#define SPACE_PLACE_BITS 40 /* bits of a size key: LOCHI_SIM_WINDOW_BITS less the bits of the unit fit */

/* Returns the class that holds extents of `bytes`. */
static uint64_t space_class(size_t bytes)
{
    const uint64_t units = bytes / LOCHI_SIM_RAW_UNIT;
    if (units < 16) return units;
    const unsigned exponent = 63u - (unsigned)__builtin_clzll(units);
    return (uint64_t)exponent * 16 + ((units >> (exponent - 4)) & 15);
}

/* Returns the first class in which every extent holds `bytes`. */
static uint64_t space_class_above(size_t bytes)
{
    const uint64_t units = bytes / LOCHI_SIM_RAW_UNIT, class = space_class(bytes);
    if (units < 16) return class;
    const unsigned shift = 63u - (unsigned)__builtin_clzll(units) - 4;
    return units & (((uint64_t)1 << shift) - 1) ? class + 1 : class;
}

static void space_enter(lochi_sim_space *space, lochi_sim_extent *extent)
{
    const uint64_t place = (extent->by_address.key - space->base) / LOCHI_SIM_RAW_UNIT;
    extent->by_size.key = space_class(extent->bytes) << SPACE_PLACE_BITS | place;
    lochi_tree_insert(&space->by_address, &extent->by_address);
    lochi_tree_insert(&space->by_size, &extent->by_size);
}

static void space_leave(lochi_sim_space *space, lochi_sim_extent *extent)
{
    lochi_tree_remove(&space->by_address, &extent->by_address);
    lochi_tree_remove(&space->by_size, &extent->by_size);
}

loch_status lochi_sim_space_init(lochi_sim_space *space, uintptr_t base, size_t bytes)
{
    *space = (lochi_sim_space){.base = base};
    lochi_sim_extent *all = lochi_zalloc(sizeof *all);
    if (!all) return SIM_FAIL(HOST_MEMORY, "no host memory for a simulated address space");
    all->by_address.key = base;
    all->bytes = bytes;
    space_enter(space, all);
    return LOCH_OK;
}

void lochi_sim_space_fini(lochi_sim_space *space)
{
    while (space->by_address.root) {
        lochi_sim_extent *extent = LOCHI_CONTAINER(space->by_address.root, lochi_sim_extent, by_address);
        space_leave(space, extent);
        lochi_free(extent);
    }
}

/* Returns whether `bytes` fit into a free extent, and where they would start. */
static bool space_fits(const lochi_sim_extent *extent, size_t bytes, size_t alignment, uintptr_t *start)
{
    size_t aligned, end;
    if (!lochi_round_up(extent->by_address.key, alignment, &aligned)) return false;
    if (!lochi_add(aligned, bytes, &end) || end > extent->by_address.key + extent->bytes) return false;
    *start = aligned;
    return true;
}

static lochi_sim_extent *space_find(const lochi_sim_space *space, size_t bytes, size_t alignment, uintptr_t *start)
{
    size_t roomy;
    if (!lochi_add(bytes, alignment - LOCHI_SIM_RAW_UNIT, &roomy)) return NULL;
    const uint64_t from[] = {space_class(bytes), space_class_above(bytes), space_class_above(roomy)};
    for (size_t i = 0; i < sizeof from / sizeof *from; i++) {
        uint64_t key = from[i] << SPACE_PLACE_BITS;
        for (int tries = 0; tries < SPACE_TRIES; tries++) {
            lochi_tree_node *node = lochi_tree_at_or_above(&space->by_size, key);
            if (!node) break;
            lochi_sim_extent *extent = LOCHI_CONTAINER(node, lochi_sim_extent, by_size);
            if (space_fits(extent, bytes, alignment, start)) return extent;
            key = node->key + 1;
        }
    }
    return NULL;
}

loch_status lochi_sim_space_take(lochi_sim_space *space, size_t bytes, size_t alignment, lochi_sim_extent **out)
{
    *out = NULL;
    uintptr_t start;
    lochi_sim_extent *extent = space_find(space, bytes, alignment, &start);
    if (!extent)
        return SIM_FAIL(DEVICE_MEMORY, "the simulated address space has no %s in one piece left", LOCHI_SIZE(bytes));
    lochi_sim_extent *taken = lochi_zalloc(sizeof *taken), *behind = lochi_zalloc(sizeof *behind);
    if (!taken || !behind) {
        lochi_free(taken);
        lochi_free(behind);
        return SIM_FAIL(HOST_MEMORY, "no host memory for %s of simulated addresses", LOCHI_SIZE(bytes));
    }
    const uintptr_t end = extent->by_address.key + extent->bytes;
    space_leave(space, extent);
    taken->by_address.key = start;
    taken->bytes = bytes;
    behind->by_address.key = start + bytes;
    behind->bytes = end - (start + bytes);
    extent->bytes = start - extent->by_address.key;
    if (extent->bytes)
        space_enter(space, extent);
    else
        lochi_free(extent);
    if (behind->bytes)
        space_enter(space, behind);
    else
        lochi_free(behind);
    *out = taken;
    return LOCH_OK;
}

void lochi_sim_space_give(lochi_sim_space *space, lochi_sim_extent *extent)
{
    if (!extent) return;
    const uintptr_t end = extent->by_address.key + extent->bytes;
    lochi_tree_node *node = lochi_tree_at_or_above(&space->by_address, end);
    if (node && node->key == end) {
        lochi_sim_extent *behind = LOCHI_CONTAINER(node, lochi_sim_extent, by_address);
        space_leave(space, behind);
        extent->bytes += behind->bytes;
        lochi_free(behind);
    }
    node = extent->by_address.key ? lochi_tree_at_or_below(&space->by_address, extent->by_address.key - 1) : NULL;
    if (node) {
        lochi_sim_extent *before = LOCHI_CONTAINER(node, lochi_sim_extent, by_address);
        if (before->by_address.key + before->bytes == extent->by_address.key) {
            space_leave(space, before);
            before->bytes += extent->bytes;
            lochi_free(extent);
            extent = before;
        }
    }
    space_enter(space, extent);
}

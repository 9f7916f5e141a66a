/* SPDX-License-Identifier: MIT */
/* Copies the state of all allocators into memory, one allocator after the other. Locks are held while an allocator is
 * copied, and dropped before memory is allocated and before anything is written. */
#include "memory/snapshot/collect.h"
#include "base/fail.h"
#include "base/heap.h"
#include "device/device.h"
#include "memory/live/live.h"
#include "memory/owner.h"
#include "memory/tag.h"
#include <stdio.h>
#include <string.h>

static loch_status collect_no_memory(const loch_allocator *allocator)
{
    return LOCH_FAIL(HOST_MEMORY, "no host memory to copy the state of allocator \"%s\"", allocator->name);
}

/* --- devices --- */

static loch_status collect_device(snapshot_contents *contents, loch_device *device, size_t *out)
{
    for (*out = 0; *out < contents->devices_count; ++*out)
        if (contents->devices[*out] == device) return LOCH_OK;
    loch_device **grown = lochi_realloc(contents->devices, (*out + 1) * sizeof(loch_device *));
    if (!grown) return LOCH_FAIL(HOST_MEMORY, "no host memory for the list of devices");
    contents->devices = grown;
    contents->devices[contents->devices_count++] = loch_device_retain(device);
    return LOCH_OK;
}

/* --- tags --- */

/* Copies the statistics of the tags that the allocator has seen. */
static loch_status collect_tags(loch_allocator *allocator, snapshot_allocator *copy)
{
    const size_t count = lochi_tag_count();
    if (count <= 1) return LOCH_OK;
    copy->tags = lochi_alloc_array(count, sizeof *copy->tags);
    if (!copy->tags) return collect_no_memory(allocator);
    for (size_t tag = 1; tag < count; tag++) {
        snapshot_tag *entry = &copy->tags[copy->tags_count];
        *entry = (snapshot_tag){.tag = (loch_tag)tag, .stats = {.size = sizeof entry->stats}};
        if (loch_allocator_get_tag_stats(allocator, (loch_tag)tag, &entry->stats) != LOCH_OK) break;
        copy->tags_count += entry->stats.allocs || entry->stats.blocks;
    }
    return LOCH_OK;
}

/* --- blocks of allocators that are not pools --- */

static loch_status collect_add_block(const loch_block *block, void *user)
{
    pool_image *image = user;
    const size_t at = image->blocks_count++; /* what does not fit is counted */
    if (at < image->blocks_room)
        image->blocks[at] = (pool_image_block){.start = (uintptr_t)block->address,
                                               .bytes = block->allocated_bytes,
                                               .requested = block->requested_bytes,
                                               .id = block->id,
                                               .stream = block->stream_id,
                                               .tag = (uint16_t)block->tag,
                                               .state = POOL_USED};
    return LOCH_OK;
}

static loch_status collect_blocks(loch_allocator *allocator, snapshot_allocator *copy)
{
    pool_image *image = &copy->image;
    image->blocks_count = copy->stats.blocks;
    while (image->blocks_count > image->blocks_room || !image->blocks) {
        const size_t room = image->blocks_count + image->blocks_count / 8 + 16;
        lochi_free(image->blocks);
        image->blocks_room = image->blocks_count = 0;
        image->blocks = lochi_alloc_array(room, sizeof *image->blocks);
        if (!image->blocks) return collect_no_memory(allocator);
        image->blocks_room = room;
        const loch_status status = loch_allocator_walk(allocator, collect_add_block, image);
        if (status != LOCH_OK) {
            image->blocks_count = 0;
            return status == LOCH_E_HOST_MEMORY ? status : LOCH_OK; /* an allocator of the user cannot walk */
        }
    }
    copy->has_blocks = true;
    return LOCH_OK;
}

/* Finds the call stacks of live blocks, if they are kept (LOCH_LEAKS). A block that was freed since has none. */
static void collect_stacks(const loch_allocator *allocator, pool_image *image)
{
    for (size_t i = 0; lochi_live_is_kept() && i < image->blocks_count; i++)
        if (lochi_pool_is_out((pool_state)image->blocks[i].state))
            image->blocks[i].stack = lochi_live_find(allocator, (const void *)image->blocks[i].start);
}

/* --- allocators --- */

static void collect_free(snapshot_allocator *copy)
{
    lochi_pool_image_free(&copy->image);
    lochi_free(copy->tags);
    lochi_free(copy);
}

static loch_status collect_fill(snapshot_contents *contents, loch_allocator *allocator, snapshot_allocator *copy)
{
    memcpy(copy->name, allocator->name, sizeof copy->name);
    snprintf(copy->kind, sizeof copy->kind, "%s", allocator->ops.kind);
    copy->wrapped = allocator->wrapped ? allocator->wrapped->node.key : 0;
    LOCH_TRY_RETURN(collect_device(contents, allocator->device, &copy->device));
    if (!lochi_owner_may_ask(allocator)) return LOCH_OK;
    copy->stats.size = sizeof copy->stats;
    copy->has_stats = loch_allocator_get_stats(allocator, &copy->stats) == LOCH_OK;
    if (allocator->wrapped) return LOCH_OK; /* its blocks and tags are those of the wrapped allocator */
    LOCH_TRY_RETURN(collect_tags(allocator, copy));
    copy->is_pool = allocator->pool != NULL;
    if (copy->is_pool)
        LOCH_TRY_RETURN(lochi_pool_image_take(allocator->pool, contents->has_blocks, copy->stats.blocks, &copy->image));
    else if (contents->has_blocks)
        LOCH_TRY_RETURN(collect_blocks(allocator, copy));
    collect_stacks(allocator, &copy->image);
    return LOCH_OK;
}

static void collect_visit(loch_allocator *allocator, void *user)
{
    snapshot_contents *contents = user;
    /* Acquire: an allocator with a user is complete; others may be under construction. */
    if (contents->status != LOCH_OK || !atomic_load_explicit(&allocator->user, memory_order_acquire)) return;
    snapshot_allocator *copy = lochi_zalloc(sizeof *copy);
    if (!copy) {
        contents->status = collect_no_memory(allocator);
        return;
    }
    copy->number = allocator->node.key;
    *contents->end = copy;
    contents->end = &copy->next;
    contents->status = collect_fill(contents, allocator, copy);
}

loch_status lochi_snapshot_collect(bool has_blocks, snapshot_contents *contents)
{
    *contents = (snapshot_contents){.has_blocks = has_blocks};
    contents->end = &contents->allocators;
    lochi_owner_visit(collect_visit, contents);
    for (snapshot_allocator *copy = contents->allocators; copy; copy = copy->next)
        lochi_pool_image_sort(&copy->image);
    return contents->status;
}

void lochi_snapshot_drop(snapshot_contents *contents)
{
    while (contents->allocators) {
        snapshot_allocator *copy = contents->allocators;
        contents->allocators = copy->next;
        collect_free(copy);
    }
    for (size_t i = 0; i < contents->devices_count; i++)
        loch_device_release(contents->devices[i]);
    lochi_free(contents->devices);
    *contents = (snapshot_contents){.has_blocks = false};
}

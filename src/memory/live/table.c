/* SPDX-License-Identifier: MIT */
/* Each shard is a hash table with open addressing, at most half full; a block that leaves pulls up those behind it, so
 * there are no marks. Memory is mapped, not allocated (see stacks.c). */
#include "memory/live/table.h"
#include "base/heap.h"
#include "base/lock.h"

#define TABLE_SHARDS 16
#define TABLE_FIRST 64 /* places of a shard at first */

typedef struct table_shard {
    lochi_lock lock;
    lochi_live_block *places; /* NULL at first */
    size_t capacity, count;   /* capacity: a power of two */
} table_shard;

static table_shard table_shards[TABLE_SHARDS];
static atomic_size_t table_lost;

void lochi_live_table_open(void)
{
    for (size_t i = 0; i < TABLE_SHARDS; i++)
        lochi_lock_init(&table_shards[i].lock, LOCHI_RANK_LEAF);
}

static uint64_t table_hash(const loch_allocator *allocator, uintptr_t address)
{
    const uint64_t key = (uint64_t)address ^ (uint64_t)(uintptr_t)allocator << 17;
    return (key ^ key >> 23) * UINT64_C(0x9e3779b97f4a7c15);
}

static table_shard *table_choose(uint64_t hash)
{
    return &table_shards[hash >> 60];
}

/* Returns the place of a block, or the empty one where it belongs. There is an empty place. */
static size_t table_look(const table_shard *shard, uint64_t hash, const loch_allocator *allocator, uintptr_t address)
{
    size_t at = (size_t)(hash >> 16) & (shard->capacity - 1);
    while (shard->places[at].address &&
           (shard->places[at].address != address || shard->places[at].allocator != allocator))
        at = (at + 1) & (shard->capacity - 1);
    return at;
}

static bool table_grow(table_shard *shard)
{
    if (shard->count + 1 <= shard->capacity / 2) return true;
    table_shard grown = {.capacity = shard->capacity ? 2 * shard->capacity : TABLE_FIRST};
    grown.places = lochi_map(grown.capacity * sizeof *grown.places);
    if (!grown.places) return shard->count + 1 < shard->capacity; /* fuller and slower, until one empty place is left */
    for (size_t i = 0; i < shard->capacity; i++) {
        const lochi_live_block *block = &shard->places[i];
        if (!block->address) continue;
        const uint64_t hash = table_hash(block->allocator, block->address);
        grown.places[table_look(&grown, hash, block->allocator, block->address)] = *block;
    }
    if (shard->places) lochi_unmap(shard->places, shard->capacity * sizeof *shard->places);
    shard->places = grown.places;
    shard->capacity = grown.capacity;
    return true;
}

void lochi_live_table_put(const lochi_live_block *block)
{
    const uint64_t hash = table_hash(block->allocator, block->address);
    table_shard *shard = table_choose(hash);
    lochi_lock_take(&shard->lock);
    if (table_grow(shard)) {
        const size_t at = table_look(shard, hash, block->allocator, block->address);
        shard->count += !shard->places[at].address;
        shard->places[at] = *block;
    } else {
        atomic_fetch_add_explicit(&table_lost, 1, memory_order_relaxed);
    }
    lochi_lock_drop(&shard->lock);
}

/* Empties a place, and pulls up the blocks that were put behind it because it was taken. */
static void table_empty(table_shard *shard, size_t at)
{
    const size_t mask = shard->capacity - 1;
    for (size_t next = (at + 1) & mask; shard->places[next].address; next = (next + 1) & mask) {
        const lochi_live_block *block = &shard->places[next];
        const size_t home = (size_t)(table_hash(block->allocator, block->address) >> 16) & mask;
        if (((next - home) & mask) < ((next - at) & mask)) continue; /* its home is behind the hole */
        shard->places[at] = *block;
        at = next;
    }
    shard->places[at] = (lochi_live_block){0};
    shard->count--;
}

static bool table_get(const loch_allocator *allocator, uintptr_t address, bool takes, lochi_live_block *out)
{
    const uint64_t hash = table_hash(allocator, address);
    table_shard *shard = table_choose(hash);
    bool is_found = false;
    lochi_lock_take(&shard->lock);
    if (shard->count) {
        const size_t at = table_look(shard, hash, allocator, address);
        is_found = shard->places[at].address != 0;
        *out = shard->places[at];
        if (is_found && takes) table_empty(shard, at);
    }
    lochi_lock_drop(&shard->lock);
    return is_found;
}

bool lochi_live_table_take(const loch_allocator *allocator, uintptr_t address, lochi_live_block *out)
{
    return table_get(allocator, address, true, out);
}

bool lochi_live_table_find(const loch_allocator *allocator, uintptr_t address, lochi_live_block *out)
{
    return table_get(allocator, address, false, out);
}

size_t lochi_live_table_count(void)
{
    size_t count = 0;
    for (size_t i = 0; i < TABLE_SHARDS; i++) {
        lochi_lock_take(&table_shards[i].lock);
        count += table_shards[i].count;
        lochi_lock_drop(&table_shards[i].lock);
    }
    return count;
}

size_t lochi_live_table_count_lost(void)
{
    return atomic_load_explicit(&table_lost, memory_order_relaxed);
}

size_t lochi_live_table_copy(lochi_live_block *blocks, size_t max)
{
    size_t count = 0;
    for (size_t i = 0; i < TABLE_SHARDS; i++) {
        table_shard *shard = &table_shards[i];
        lochi_lock_take(&shard->lock);
        for (size_t k = 0; k < shard->capacity && count < max; k++)
            if (shard->places[k].address) blocks[count++] = shard->places[k];
        lochi_lock_drop(&shard->lock);
    }
    return count;
}

void lochi_live_table_clear(void)
{
    for (size_t i = 0; i < TABLE_SHARDS; i++) {
        table_shard *shard = &table_shards[i];
        if (shard->places) lochi_unmap(shard->places, shard->capacity * sizeof *shard->places);
        shard->places = NULL;
        shard->capacity = shard->count = 0;
    }
    atomic_store_explicit(&table_lost, 0, memory_order_relaxed);
}

// SPDX-License-Identifier: MIT
// The slow half of owners.h: numbers of pools, and searches.
#include "owners.h"

namespace loch_torch
{

std::atomic<Leaf *> leaves[kLeaves];
std::atomic<bool> has_many_pools{false};

std::atomic<Pool *> owners[kPoolsMax + 1];

static std::mutex owners_lock; // held to change the table of pools, and to search it
static size_t owners_used;     // highest number so far

void make_leaf(const void *ptr)
{
    const uintptr_t key = leaf_key(ptr);
    auto *leaf = static_cast<Leaf *>(std::calloc(1, sizeof(Leaf)));
    if (!leaf) return;
    leaf->key = key;
    for (size_t i = 0; i < kLeaves; i++) {
        Leaf *there = nullptr;
        if (leaves[(key + i) % kLeaves].compare_exchange_strong(there, leaf, std::memory_order_acq_rel)) return;
        if (there->key == key) break; // another thread was faster
    }
    std::free(leaf);
}

void add_owner(Pool &pool)
{
    const std::lock_guard<std::mutex> held(owners_lock);
    size_t number = 1;
    while (number <= owners_used && owners[number].load(std::memory_order_relaxed))
        number++;
    TORCH_CHECK(number <= kPoolsMax, "Loch serves at most ", kPoolsMax, " pools under PyTorch");
    if (number > owners_used) owners_used = number;
    if (number > 1) has_many_pools.store(true);
    pool.number = static_cast<uint16_t>(number);
    owners[number].store(&pool, std::memory_order_release);
}

void remove_owner(Pool &pool)
{
    const std::lock_guard<std::mutex> held(owners_lock);
    owners[pool.number].store(nullptr, std::memory_order_release);
    pool.number = 0;
}

// From now on the blocks of the pool alone keep its allocator.
void hide_owner(Pool &pool)
{
    const std::lock_guard<std::mutex> held(owners_lock);
    const std::lock_guard<std::shared_mutex> alone(pool.ending);
    pool.is_released = true;
}

static bool owns(const Pool &pool, const void *ptr)
{
    loch_block block{};
    block.size = offsetof(loch_block, id);
    return loch_allocator_find(pool.loch, ptr, &block) == LOCH_OK;
}

Pool *find_owner(const void *ptr)
{
    if (!ptr) return nullptr;
    const std::lock_guard<std::mutex> held(owners_lock);
    Pool *pool = guess_owner(ptr);
    if (pool && (pool->is_released || owns(*pool, ptr))) return pool;
    for (size_t i = 1; i <= owners_used; i++) {
        pool = owners[i].load(std::memory_order_relaxed);
        if (pool && !pool->is_released && owns(*pool, ptr)) return pool;
    }
    return nullptr;
}

} // namespace loch_torch

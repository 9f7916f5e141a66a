// SPDX-License-Identifier: MIT
// The slow half of owners.h: numbers of pools, and searches.
#include "owners.h"

namespace loch_torch
{

std::atomic<Leaf *> leaves[kLeaves];
std::atomic<bool> has_many_pools{false};

static constexpr size_t kPoolsMax = UINT16_MAX;
static std::mutex owners_lock; // held to change the table of pools
static std::atomic<Pool *> owners[kPoolsMax + 1];
static size_t owners_used; // highest number so far; under the lock

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

uint16_t add_owner(Pool &pool)
{
    const std::lock_guard<std::mutex> held(owners_lock);
    size_t number = 1;
    while (number <= owners_used && owners[number].load(std::memory_order_relaxed))
        number++;
    TORCH_CHECK(number <= kPoolsMax, "Loch serves at most ", kPoolsMax, " pools under PyTorch");
    if (number > owners_used) owners_used = number;
    if (number > 1) has_many_pools.store(true);
    owners[number].store(&pool, std::memory_order_release);
    return pool.number = static_cast<uint16_t>(number);
}

void remove_owner(Pool &pool)
{
    const std::lock_guard<std::mutex> held(owners_lock);
    owners[pool.number].store(nullptr, std::memory_order_release);
    pool.number = 0;
}

void mark_owner(Pool &pool, void *ptr)
{
    if (!find_leaf(ptr)) make_leaf(ptr);
    Leaf *leaf = find_leaf(ptr);
    if (!leaf) return;
    std::atomic<uint16_t> &entry = leaf->owners[slot_of(ptr)];
    if (entry.load(std::memory_order_relaxed) != pool.number) entry.store(pool.number, std::memory_order_relaxed);
}

static bool owns(const Pool &pool, const void *ptr)
{
    loch_block block{};
    block.size = offsetof(loch_block, id);
    return loch_allocator_find(pool.loch, ptr, &block) == LOCH_OK;
}

Pool *guess_owner(const void *ptr)
{
    Leaf *leaf = has_many_pools.load(std::memory_order_relaxed) ? find_leaf(ptr) : nullptr;
    const size_t number = leaf ? leaf->owners[slot_of(ptr)].load(std::memory_order_relaxed) : 0;
    return owners[number ? number : 1].load(std::memory_order_acquire);
}

Pool *find_owner(const void *ptr)
{
    if (!ptr) return nullptr;
    Pool *pool = guess_owner(ptr);
    if (pool && owns(*pool, ptr)) return pool;
    const std::lock_guard<std::mutex> held(owners_lock);
    for (size_t i = 1; i <= owners_used; i++) {
        pool = owners[i].load(std::memory_order_relaxed);
        if (pool && owns(*pool, ptr)) return pool;
    }
    return nullptr;
}

} // namespace loch_torch

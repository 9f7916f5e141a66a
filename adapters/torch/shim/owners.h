// SPDX-License-Identifier: MIT
// From addresses to what the shim knows of them, without a lock: a table with one entry for each MiB of addresses.
//
// The owner: every Loch pool has a reservation of its own, so all blocks that start in one MiB are of one pool. As long
// as the process has one pool, nothing is marked; entry 0 means the first pool.
//
// Large blocks: a block above 1 MiB is the only large one that starts in its MiB. So one word tells which block that is
// and how large. A free thus learns whether a block counts as large, without a search.
#pragma once

#include "allocator.h"

namespace loch_torch
{

constexpr unsigned kSlotShift = 20, kLeafShift = 13; // a leaf has the slots of 8 GiB
constexpr size_t kLeafSlots = size_t{1} << kLeafShift;
constexpr size_t kLeaves = 4096; // 32 TiB of addresses in use

struct Leaf {
    uintptr_t key; // upper bits of its addresses
    std::atomic<uint64_t> large[kLeafSlots];
    std::atomic<uint16_t> owners[kLeafSlots];
};

extern std::atomic<Leaf *> leaves[kLeaves]; // by key, or behind a leaf that lies there; leaves are never removed
extern std::atomic<bool> has_many_pools;    // more than one pool was made

inline uintptr_t leaf_key(const void *ptr)
{
    return reinterpret_cast<uintptr_t>(ptr) >> (kSlotShift + kLeafShift);
}

inline Leaf *find_leaf(const void *ptr)
{
    const uintptr_t key = leaf_key(ptr);
    for (size_t i = 0; i < kLeaves; i++) {
        Leaf *leaf = leaves[(key + i) % kLeaves].load(std::memory_order_acquire);
        if (C10_LIKELY(!leaf || leaf->key == key)) return leaf;
    }
    return nullptr;
}

inline size_t slot_of(const void *ptr)
{
    return (reinterpret_cast<uintptr_t>(ptr) >> kSlotShift) & (kLeafSlots - 1);
}

// A word of a large block, from the upper bits to the lower ones: units of 512 bytes (33 bits), bytes of the last unit
// that were not asked for (9 bits; a large block has less than a unit of them), start within the MiB in units plus one
// (12 bits).
struct Large {
    size_t allocated, requested;
};

inline uint64_t large_key(const void *ptr)
{
    return ((reinterpret_cast<uintptr_t>(ptr) & (kSmallMax - 1)) >> 9) + 1;
}

// Looks up a large block and forgets it. Returns false for a block that is not large.
inline bool take_large(const void *ptr, Large *out)
{
    Leaf *leaf = find_leaf(ptr);
    if (!leaf) return false;
    std::atomic<uint64_t> &entry = leaf->large[slot_of(ptr)];
    const uint64_t word = entry.load(std::memory_order_relaxed);
    if ((word & 0xfff) != large_key(ptr)) return false;
    entry.store(0, std::memory_order_relaxed);
    out->allocated = static_cast<size_t>(word >> 21) << 9;
    out->requested = out->allocated - (word >> 12 & 0x1ff);
    return true;
}

void make_leaf(const void *ptr); // nothing happens without host memory

// Pools by number. Number 1 is the first pool of the process.
constexpr size_t kPoolsMax = UINT16_MAX;
extern std::atomic<Pool *> owners[kPoolsMax + 1];

// Notes that a new block is the pool's. Every allocation does so once there are several pools.
inline void mark_owner(const Pool &pool, const void *ptr)
{
    if (C10_UNLIKELY(!find_leaf(ptr))) make_leaf(ptr);
    Leaf *leaf = find_leaf(ptr);
    if (C10_UNLIKELY(!leaf)) return;
    std::atomic<uint16_t> &entry = leaf->owners[slot_of(ptr)];
    if (C10_UNLIKELY(entry.load(std::memory_order_relaxed) != pool.number))
        entry.store(pool.number, std::memory_order_relaxed);
}

// Returns the pool of a live block, as marked. Wrong only for memory that is not Loch's, and where host memory for
// marks was missing.
inline Pool *guess_owner(const void *ptr)
{
    size_t number = 1;
    if (has_many_pools.load(std::memory_order_relaxed))
        if (Leaf *leaf = find_leaf(ptr))
            if (const size_t marked = leaf->owners[slot_of(ptr)].load(std::memory_order_relaxed)) number = marked;
    return owners[number].load(std::memory_order_acquire);
}

// Remembers a large block that was just handed out.
inline void put_large(const void *ptr, size_t requested)
{
    if (C10_UNLIKELY(!find_leaf(ptr))) make_leaf(ptr);
    Leaf *leaf = find_leaf(ptr);
    if (C10_UNLIKELY(!leaf)) return;
    const uint64_t units = (requested + kAlignment - 1) / kAlignment, slack = units * kAlignment - requested;
    leaf->large[slot_of(ptr)].store(units << 21 | slack << 12 | large_key(ptr), std::memory_order_relaxed);
}

} // namespace loch_torch

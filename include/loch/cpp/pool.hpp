/* SPDX-License-Identifier: MIT */
/** @file pool.hpp
 *  Pools and their children: an allocator with the functions of pool.h, child.h, moving.h and sleep.h as methods, and
 *  growable blocks.
 */
#include <loch/cpp/require.hpp>
#if LOCH_CPP && !defined(LOCH_CPP_POOL_HPP)
#define LOCH_CPP_POOL_HPP

#include <loch/child.h>
#include <loch/cpp/allocator.hpp>
#include <loch/moving.h>
#include <loch/sleep.h>

namespace loch
{

/** A pool: an allocator that caches, splits, merges and remaps memory. A shared handle. A wrapper around a pool can be
 *  used as a pool too; the methods throw LOCH_E_INVALID for any other allocator. */
class pool : public allocator
{
  public:
    /** Makes an empty handle. */
    pool() noexcept = default;
    /** Creates a pool on a device. */
    explicit pool(const loch::device &of, const text &name = nullptr, const options<loch_pool_options> &how = nullptr)
    {
        check(loch_pool_create(of.get(), name.get(), how.get(), slot()));
    }
    /** Uses an allocator as a pool. */
    explicit pool(allocator of) noexcept : allocator(std::move(of)) {}
    /** Takes another reference on a pool of the caller. */
    static pool retain(loch_allocator *raw) noexcept { return pool(loch_allocator_retain(raw)); }
    /** Takes over the caller's reference. */
    static pool take(loch_allocator *raw) noexcept { return pool(raw); }

    /** @name Children */
    /** @{ */
    /** Creates a child of the pool. */
    pool create_child(const text &name = nullptr, const options<loch_child_options> &how = nullptr) const
    {
        pool made;
        check(loch_pool_create_child(need(), name.get(), how.get(), made.slot()));
        return made;
    }
    /** Returns the parent of the pool; an empty handle for a pool without a parent. */
    pool parent() const { return retain(loch_pool_get_parent(need())); }
    /** Calls `visitor(const loch::pool &)` for each child in order of creation. */
    template <class Visitor> void walk_children(Visitor &&visitor) const
    {
        detail::walk<loch_allocator *>(
            [&](loch_allocator *child) { return visitor(retain(child)); },
            [&](auto *function, void *user) { return loch_pool_walk_children(need(), function, user); });
    }
    /** @} */

    /** @name Figures and limits */
    /** @{ */
    /** Returns the figures of the pool. */
    loch_pool_info info() const
    {
        auto found = sized<loch_pool_info>();
        check(loch_pool_get_info(need(), &found));
        return found;
    }
    /** Returns for people what the pool holds and why a request may not fit. */
    std::string str() const
    {
        return detail::print([&](char *to, std::size_t bytes, std::size_t *length) {
            return loch_pool_print(need(), to, bytes, length);
        });
    }
    /** Sets the limit of the memory held from the device, in bytes; 0 for no limit. */
    void set_limit(std::size_t limit_bytes) const { check(loch_pool_set_limit(need(), limit_bytes)); }
    /** Sets how much of its limit the pool may use now, in bytes; the grant can become `limit_bytes` at most, 0 for no
     *  such limit. */
    void set_grant(std::size_t granted_bytes, std::size_t limit_bytes = 0) const
    {
        check(loch_pool_set_grant(need(), granted_bytes, limit_bytes));
    }
    /** Sets the cap on free memory that the pool keeps, in bytes; 0 for no cap. */
    void set_idle(std::size_t idle_bytes) const { check(loch_pool_set_idle(need(), idle_bytes)); }
    /** Calls `visitor(const loch_memory_piece &)` for each piece of memory in order of address. */
    template <class Visitor> void walk_memory(Visitor &&visitor) const
    {
        detail::walk<const loch_memory_piece *>(
            [&](const loch_memory_piece *piece) { return visitor(*piece); },
            [&](auto *function, void *user) { return loch_pool_walk_memory(need(), function, user); });
    }
    /** Releases the memory of a capture: no graph of it will be launched again. */
    void release_capture(std::uint64_t capture_id) const { check(loch_pool_release_capture(need(), capture_id)); }
    /** @} */

    /** @name Growable blocks */
    /** @{ */
    /** Allocates a block with addresses for `max_bytes` and memory for `request.bytes`. The caller frees it by free();
     *  loch::growable does so by itself. */
    [[nodiscard]] void *alloc_growable(std::size_t max_bytes, const options<loch_request> &request = nullptr) const
    {
        void *made = nullptr;
        check(loch_pool_alloc_growable(need(), max_bytes, request.get(), &made));
        return made;
    }
    /** Sets the size of a growable block at the same address. */
    void resize_growable(void *address, std::size_t bytes) const
    {
        check(loch_pool_resize_growable(need(), address, bytes));
    }
    /** @} */

    /** @name Moving and freezing (moving.h; loch::forbid_moving is a guard) */
    /** @{ */
    /** Compacts the pool: moves the fewest bytes that reach the goal. */
    loch_compact_report compact(const options<loch_compact_options> &how = nullptr) const
    {
        auto report = sized<loch_compact_report>();
        check(loch_pool_compact(need(), how.get(), &report));
        return report;
    }
    /** Plans a compaction without moving anything. */
    loch_compact_report plan_compact(const options<loch_compact_options> &how = nullptr) const
    {
        auto report = sized<loch_compact_report>();
        check(loch_pool_plan_compact(need(), how.get(), nullptr, nullptr, &report));
        return report;
    }
    /** Plans a compaction without moving anything, and calls `visitor(const loch_move &)` for each planned move. The
     *  visitor must not call Loch and must not throw. */
    template <class Visitor>
    loch_compact_report plan_compact(const options<loch_compact_options> &how, Visitor &&visitor) const
    {
        using function = std::remove_reference_t<Visitor>;
        auto report = sized<loch_compact_report>();
        check(loch_pool_plan_compact(
            need(), how.get(),
            [](loch_allocator *, const loch_move *move, void *user) noexcept {
                (*static_cast<function *>(user))(*move);
            },
            const_cast<void *>(static_cast<const void *>(&visitor)), &report));
        return report;
    }
    /** Freezes live blocks: they are packed together, do not move, and no other block is placed among them. */
    loch_freeze_report freeze(const options<loch_freeze_options> &how = nullptr) const
    {
        auto report = sized<loch_freeze_report>();
        check(loch_pool_freeze(need(), how.get(), &report));
        return report;
    }
    /** Unfreezes the blocks with a tag; without one, all blocks. Returns the requested bytes in the blocks. */
    std::size_t unfreeze(tag of = {}) const
    {
        std::size_t bytes = 0;
        check(loch_pool_unfreeze(need(), of, &bytes));
        return bytes;
    }
    /** @} */

    /** @name Sleep (loch::asleep is a guard) */
    /** @{ */
    /** Puts the pool to sleep. Returns the number of bytes given back to the device. */
    std::size_t sleep(const options<loch_sleep_options> &how = nullptr) const
    {
        std::size_t released = 0;
        check(loch_pool_sleep(need(), how.get(), &released));
        return released;
    }
    /** Wakes the pool. Returns the number of bytes of contents restored. */
    std::size_t wake() const
    {
        std::size_t restored = 0;
        check(loch_pool_wake(need(), &restored));
        return restored;
    }
    /** @} */

  protected:
    explicit pool(loch_allocator *raw) noexcept : allocator(raw) {}
};

/** A growable block of a pool that is freed at the end: its address stays, its memory grows and shrinks. Can be moved
 *  but not copied. */
class growable : public block
{
  public:
    /** Makes an empty handle. */
    growable() noexcept = default;
    /** Reserves addresses for `max_bytes`, with memory for `request.bytes`. */
    growable(const pool &from, std::size_t max_bytes, const options<loch_request> &request = nullptr)
        : block(take(from, from.alloc_growable(max_bytes, request)))
    {
    }
    /** Sets the size of the block at the same address. Contents up to the smaller size are kept. */
    void resize(std::size_t bytes) { pool(allocator()).resize_growable(get(), bytes); }
};

} // namespace loch

#endif

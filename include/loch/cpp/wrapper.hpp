/* SPDX-License-Identifier: MIT */
/** @file wrapper.hpp
 *  Allocators around allocators: limit, tracking, logging, red zones, faults, lock, arena, your own; and the direct
 *  allocator. Each is a shared handle that is a loch::allocator too.
 */
#include <loch/cpp/require.hpp>
#if LOCH_CPP && !defined(LOCH_CPP_WRAPPER_HPP)
#define LOCH_CPP_WRAPPER_HPP

#include <loch/cpp/allocator.hpp>
#include <loch/direct.h>
#include <loch/wrapper.h>

namespace loch
{

/** A direct allocator: one driver call for each block. */
class direct : public allocator
{
  public:
    /** Makes an empty handle. */
    direct() noexcept = default;
    /** Creates a direct allocator on a device. */
    explicit direct(const loch::device &of, const text &name = nullptr,
                    const options<loch_direct_options> &how = nullptr)
    {
        check(loch_direct_create(of.get(), name.get(), how.get(), slot()));
    }
    /** Frees the deferred blocks. Returns their requested bytes. */
    std::size_t free_deferred() const
    {
        std::size_t released = 0;
        check(loch_direct_free_deferred(need(), &released));
        return released;
    }
};

/** A limit wrapper: allocations beyond the hard limit fail with LOCH_E_LIMIT. */
class limit : public allocator
{
  public:
    /** Makes an empty handle. */
    limit() noexcept = default;
    /** Creates a limit wrapper with all options. */
    limit(const allocator &wrapped, const text &name, const options<loch_limit_options> &how)
    {
        check(loch_limit_create(wrapped.get(), name.get(), how.get(), slot()));
    }
    /** Creates a limit wrapper with a hard limit in bytes. */
    limit(const allocator &wrapped, std::size_t hard_bytes) : limit(wrapped, nullptr, limits(hard_bytes)) {}
    /** Sets both limits in bytes; 0 for none. */
    void set(std::size_t hard_bytes, std::size_t soft_bytes = 0) const
    {
        check(loch_limit_set(need(), hard_bytes, soft_bytes));
    }

  private:
    static loch_limit_options limits(std::size_t hard_bytes) noexcept
    {
        auto made = sized<loch_limit_options>();
        made.hard_bytes = hard_bytes;
        return made;
    }
};

/** A tracking wrapper: knows every live block, and keeps records of allocations and frees. */
class tracking : public allocator
{
  public:
    /** Makes an empty handle. */
    tracking() noexcept = default;
    /** Creates a tracking wrapper. */
    explicit tracking(const allocator &wrapped, const text &name = nullptr,
                      const options<loch_tracking_options> &how = nullptr)
    {
        check(loch_tracking_create(wrapped.get(), name.get(), how.get(), slot()));
    }
    /** Calls `visitor(const loch_tracking_record &)` for each record, oldest first. */
    template <class Visitor> void walk_records(Visitor &&visitor) const
    {
        detail::walk<const loch_tracking_record *>(
            [&](const loch_tracking_record *record) { return visitor(*record); },
            [&](auto *function, void *user) { return loch_tracking_walk(need(), function, user); });
    }
};

/** A logging wrapper: writes every allocation, recorded use and free. */
class logging : public allocator
{
  public:
    /** Makes an empty handle. */
    logging() noexcept = default;
    /** Creates a logging wrapper. */
    explicit logging(const allocator &wrapped, const text &name = nullptr,
                     const options<loch_logging_options> &how = nullptr)
    {
        check(loch_logging_create(wrapped.get(), name.get(), how.get(), slot()));
    }
    /** Writes the buffered lines to the file. */
    void flush() const { check(loch_logging_flush(need())); }
};

/** A red-zone wrapper: finds writes outside of blocks. */
class redzone : public allocator
{
  public:
    /** Makes an empty handle. */
    redzone() noexcept = default;
    /** Creates a red-zone wrapper. */
    explicit redzone(const allocator &wrapped, const text &name = nullptr,
                     const options<loch_redzone_options> &how = nullptr)
    {
        check(loch_redzone_create(wrapped.get(), name.get(), how.get(), slot()));
    }
    /** Checks the red zones of all live blocks. Throws LOCH_E_CORRUPT if one was overwritten. */
    void check_all() const { check(loch_redzone_check(need())); }
};

/** A fault wrapper: makes allocations fail that would succeed. */
class fault : public allocator
{
  public:
    /** Makes an empty handle. */
    fault() noexcept = default;
    /** Creates a fault wrapper. Without options nothing fails until set(). */
    explicit fault(const allocator &wrapped, const text &name = nullptr,
                   const options<loch_fault_options> &how = nullptr)
    {
        check(loch_fault_create(wrapped.get(), name.get(), how.get(), slot()));
    }
    /** Sets which allocations fail, counted from now; nullptr for none. */
    void set(const options<loch_fault_options> &how) const { check(loch_fault_set(need(), how.get())); }
};

/** A lock wrapper: several threads may use an allocator that is not thread safe, one at a time. */
class locked : public allocator
{
  public:
    /** Makes an empty handle. */
    locked() noexcept = default;
    /** Creates a lock wrapper. */
    explicit locked(const allocator &wrapped, const text &name = nullptr)
    {
        check(loch_locked_create(wrapped.get(), name.get(), slot()));
    }
};

/** An arena: blocks one behind the other, dropped together. One thread at a time. The handle resets the arena when it
 *  ends, so that blocks that are not freed keep nothing alive; release buffers and tensors on it before. Can be
 *  moved. */
class arena : public allocator
{
  public:
    /** Makes an empty handle. */
    arena() noexcept = default;
    /** Creates an arena on an allocator. */
    explicit arena(const allocator &wrapped, const text &name = nullptr,
                   const options<loch_arena_options> &how = nullptr)
    {
        check(loch_arena_create(wrapped.get(), name.get(), how.get(), slot()));
    }
    arena(arena &&) noexcept = default;
    arena &operator=(arena &&other) noexcept
    {
        if (this == &other) return *this;
        drop();
        allocator::operator=(std::move(other));
        return *this;
    }
    arena(const arena &) = delete;
    arena &operator=(const arena &) = delete;
    ~arena() { drop(); }
    /** Drops all blocks. The next ones are ordered after all work on the arena's stream, on streams of recorded uses,
     *  and on `after`, if one is named. */
    void reset(stream_ref after = nullptr) const { check(loch_arena_reset(need(), after.get())); }

  private:
    void drop() noexcept
    {
        if (get()) detail::ignore(loch_arena_reset(get(), nullptr));
    }
};

/** Your own wrapper, from a table of functions. */
class wrapper : public allocator
{
  public:
    /** Makes an empty handle. */
    wrapper() noexcept = default;
    /** Creates a wrapper. Empty slots forward to the wrapped allocator. The slot `destroy` frees `self`; on failure
     *  `self` still belongs to the caller. The functions must not throw. */
    wrapper(const allocator &wrapped, const text &name, const loch_allocator_ops &ops, void *self)
    {
        check(loch_wrapper_create(wrapped.get(), name.get(), &ops, self, slot()));
    }
};

} // namespace loch

#endif

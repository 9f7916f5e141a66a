/* SPDX-License-Identifier: MIT */
/** @file moving.hpp
 *  Guards of moving: a span of time in which a pool moves nothing, and a function that is called for every move. The
 *  methods compact, freeze and others are those of loch::pool.
 */
#include <loch/cpp/require.hpp>
#if LOCH_CPP && !defined(LOCH_CPP_MOVING_HPP)
#define LOCH_CPP_MOVING_HPP

#include <loch/cpp/pool.hpp>

namespace loch
{

/** Forbids moving in a pool to the end of the block. Guards of one pool may nest. */
class [[nodiscard]] forbid_moving : detail::fixed
{
  public:
    /** Forbids moving in a pool. */
    explicit forbid_moving(pool of) : pool_(std::move(of)) { check(loch_pool_forbid_moving(pool_.need())); }
    /** Allows moving again, unless another guard forbids it. */
    ~forbid_moving() { detail::ignore(loch_pool_allow_moving(pool_.get())); }

  private:
    pool pool_;
};

/** A function that is called for every move of a pool, as long as this object: `function(const loch_move &)`, with the
 *  pool's lock held. It must not call Loch and must not throw. A pool has one such function. */
template <class Function> class [[nodiscard]] move_hook : detail::fixed
{
  public:
    /** Sets the function of a pool. */
    move_hook(const pool &of, Function function) : pool_(of), function_(std::move(function))
    {
        check(loch_pool_set_move_hook(pool_.need(), &move_hook::call, this));
    }
    /** Removes the function. */
    ~move_hook() { detail::ignore(loch_pool_set_move_hook(pool_.get(), nullptr, nullptr)); }

  private:
    /* An exception cannot pass through C: it ends the program. NOLINTNEXTLINE(bugprone-exception-escape) */
    static void call(loch_allocator *, const loch_move *move, void *user) noexcept
    {
        static_cast<move_hook *>(user)->function_(*move);
    }

    pool pool_;
    Function function_;
};

} // namespace loch

#endif

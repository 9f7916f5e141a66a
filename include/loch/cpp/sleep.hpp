/* SPDX-License-Identifier: MIT */
/** @file sleep.hpp
 *  A pool that is asleep to the end of a block. The methods sleep and wake are those of loch::pool.
 */
#include <loch/cpp/require.hpp>
#if LOCH_CPP && !defined(LOCH_CPP_SLEEP_HPP)
#define LOCH_CPP_SLEEP_HPP

#include <loch/cpp/pool.hpp>

namespace loch
{

/** Puts a pool to sleep to the end of the block, or until wake(). */
class [[nodiscard]] asleep : detail::fixed
{
  public:
    /** Puts a pool to sleep. */
    explicit asleep(pool of, const options<loch_sleep_options> &how = nullptr)
        : pool_(std::move(of)), released_(pool_.sleep(how))
    {
    }
    /** Wakes the pool. A failure is not reported, and the pool sleeps on; call wake() to see it. */
    ~asleep()
    {
        if (pool_) detail::ignore(loch_pool_wake(pool_.get(), nullptr));
    }

    /** Returns the number of bytes that were given back to the device. */
    std::size_t released() const noexcept { return released_; }
    /** Wakes the pool now. Returns the number of bytes of contents restored. On failure the pool sleeps on, and the
     *  call can be repeated. */
    std::size_t wake()
    {
        const std::size_t restored = pool_.wake();
        pool_.reset();
        return restored;
    }

  private:
    pool pool_;
    std::size_t released_;
};

} // namespace loch

#endif

/* SPDX-License-Identifier: MIT */
/** @file observer.hpp
 *  Observers of the ranges of memory that Loch takes from drivers and gives back.
 */
#include <loch/cpp/require.hpp>
#if LOCH_CPP && !defined(LOCH_CPP_OBSERVER_HPP)
#define LOCH_CPP_OBSERVER_HPP

#include <loch/cpp/device.hpp>
#include <loch/observer.h>

namespace loch
{

/** A function that is called for every range of memory, as long as this object: `function(loch_range_event, const
 *  loch_range &)`, from several threads at a time. It must not throw, and must not take or give back memory of the
 *  devices that it observes. Not copied, not moved. */
template <class Function> class [[nodiscard]] observer : detail::fixed
{
  public:
    /** Observes a device. The function first receives the ranges that exist already. */
    observer(const device &of, Function function) : device_(of), function_(std::move(function))
    {
        check(loch_observer_add(device_.need(), &observer::call, this));
    }
    /** Observes all devices. */
    explicit observer(Function function) : function_(std::move(function))
    {
        check(loch_observer_add(nullptr, &observer::call, this));
    }
    /** Removes the function, after waiting until no thread is inside it. */
    ~observer() { detail::ignore(loch_observer_remove(device_.get(), &observer::call, this)); }

  private:
    /* An exception cannot pass through C: it ends the program. NOLINTNEXTLINE(bugprone-exception-escape) */
    static void call(loch_range_event event, const loch_range *range, void *user) noexcept
    {
        static_cast<observer *>(user)->function_(event, *range);
    }

    device device_; /* empty: all devices */
    Function function_;
};

} // namespace loch

#endif

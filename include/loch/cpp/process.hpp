/* SPDX-License-Identifier: MIT */
/** @file process.hpp
 *  Settings of the process: options, the log, host memory of the library's own bookkeeping, and the clock.
 */
#include <loch/cpp/require.hpp>
#if LOCH_CPP && !defined(LOCH_CPP_PROCESS_HPP)
#define LOCH_CPP_PROCESS_HPP

#include <loch/cpp/argument.hpp>
#include <loch/cpp/walk.hpp>
#include <loch/host.h>
#include <loch/log.h>
#include <loch/option.h>

namespace loch
{

/** The functions of option.h. */
namespace option
{

/** Returns the value of an option that is in force. */
inline std::string get(const text &name)
{
    char value[LOCH_OPTION_VALUE_MAX];
    check(loch_option_get(name.get(), value));
    return value;
}
/** Sets an option for the process; nullptr returns to the environment variable or the default. */
inline void set(const text &name, const text &value)
{
    check(loch_option_set(name.get(), value.get()));
}
/** Calls `visitor(const loch_option &)` for each row of the option table. */
template <class Visitor> void walk(Visitor &&visitor)
{
    detail::walk<const loch_option *>([&](const loch_option *option) { return visitor(*option); }, loch_option_walk);
}
/** Calls `visitor(const char *variable, const char *nearest)` for each environment variable that begins with LOCH_ and
 *  that Loch does not read. */
template <class Visitor> void walk_unknown(Visitor &&visitor)
{
    detail::walk<const char *, const char *>(std::forward<Visitor>(visitor), loch_option_walk_unknown);
}

} // namespace option

/** The log hook of the process as long as this object: `function(loch_log_level, const char *line)`, from several
 *  threads at a time. It must not call Loch and must not throw. No thread may be inside Loch at its end. Not copied,
 *  not moved. */
template <class Function> class [[nodiscard]] log_hook : detail::fixed
{
  public:
    /** Sets the hook, for messages up to a level. */
    log_hook(loch_log_level level, Function function) : function_(std::move(function))
    {
        loch_log_set_hook(&log_hook::call, this, level);
    }
    /** Turns the log off. */
    ~log_hook() { loch_log_set_hook(nullptr, nullptr, LOCH_LOG_OFF); }

  private:
    /* An exception cannot pass through C: it ends the program. NOLINTNEXTLINE(bugprone-exception-escape) */
    static void call(loch_log_level level, const char *line, void *user) noexcept
    {
        static_cast<log_hook *>(user)->function_(level, line);
    }

    Function function_;
};

/** The functions of host.h. */
namespace host
{

/** Returns how much host memory the library's own bookkeeping holds. */
inline loch_host_usage usage()
{
    auto found = sized<loch_host_usage>();
    check(loch_host_get_usage(&found));
    return found;
}
/** Returns the time in nanoseconds of the clock in use. */
inline std::uint64_t now_ns() noexcept
{
    return loch_host_now_ns();
}
/** Replaces the allocator of the library's own bookkeeping; nullptr restores that of libc. Its functions must not
 *  throw. */
inline void set_allocator(const options<loch_host_allocator> &with)
{
    check(loch_host_set_allocator(with.get()));
}

} // namespace host

} // namespace loch

#endif

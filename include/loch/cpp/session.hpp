/* SPDX-License-Identifier: MIT */
/** @file session.hpp
 *  Sessions: all blocks that were allocated in a session are freed at its end, except blocks that were promoted.
 */
#include <loch/cpp/require.hpp>
#if LOCH_CPP && !defined(LOCH_CPP_SESSION_HPP)
#define LOCH_CPP_SESSION_HPP

#include <loch/cpp/allocator.hpp>
#include <loch/session.h>

namespace loch
{

namespace detail
{
template <> struct calls<loch_session> {
    static constexpr const char *name = "session";
    static void release(loch_session *raw) noexcept { ignore(loch_session_end(raw, nullptr, nullptr)); }
};
} // namespace detail

/** Enters a session on the calling thread to the end of the block. Blocks that the thread allocates from the wrapped
 *  allocator belong to the session. Not copied, not moved, and ended on the thread that made it. */
class [[nodiscard]] session_guard : detail::fixed
{
  public:
    /** Enters a session. */
    explicit session_guard(loch_session *session) : session_(session) { check(loch_session_enter(session)); }
    /** Leaves the session. */
    ~session_guard() { detail::ignore(loch_session_leave(session_)); }

  private:
    loch_session *session_;
};

/** A session on an allocator. The destructor ends it and frees its blocks, each on its own stream. Can be moved but not
 *  copied. */
class session : public detail::owned<loch_session>
{
  public:
    /** Makes an empty handle. */
    session() noexcept = default;
    /** Begins a session on an allocator. */
    explicit session(const loch::allocator &on, const text &name = nullptr)
    {
        check(loch_session_begin(on.get(), name.get(), slot()));
    }
    session(session &&) noexcept = default;
    session &operator=(session &&) noexcept = default;

    /** Returns the allocator of the session: its blocks belong to the session. */
    loch::allocator allocator() const { return loch::allocator::retain(loch_session_get_allocator(need())); }
    /** Enters the session on the calling thread to the end of the block. */
    session_guard enter() const { return session_guard(need()); }
    /** Takes a block out of the session: it outlives the session. */
    void promote(void *address) const { check(loch_session_promote(need(), address)); }
    /** Returns the figures of the session. */
    loch_session_stats stats() const
    {
        auto found = sized<loch_session_stats>();
        check(loch_session_get_stats(need(), &found));
        return found;
    }
    /** Ends the session and frees its blocks: on a stream, or each on its own. Returns the requested bytes that were
     *  freed. The handle is empty then; after a failure the session still exists, and can be ended again. */
    std::size_t end(stream_ref on = nullptr)
    {
        std::size_t bytes = 0;
        check(loch_session_end(need(), on.get(), &bytes));
        static_cast<void>(release());
        return bytes;
    }
};

} // namespace loch

#endif

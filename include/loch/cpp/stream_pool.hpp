/* SPDX-License-Identifier: MIT */
/** @file stream_pool.hpp
 *  A cache of streams of a device. What it lends goes back at the end of the block.
 */
#include <loch/cpp/require.hpp>
#if LOCH_CPP && !defined(LOCH_CPP_STREAM_POOL_HPP)
#define LOCH_CPP_STREAM_POOL_HPP

#include <loch/cpp/stream.hpp>
#include <loch/stream_pool.h>

namespace loch
{

namespace detail
{
template <> struct calls<loch_stream_pool> {
    static constexpr const char *name = "stream_pool";
    static void release(loch_stream_pool *raw) noexcept { loch_stream_pool_destroy(raw); }
};
} // namespace detail

/** A stream that is lent by a stream pool, and goes back to it at the end. Can be moved but not copied. The pool must
 *  outlive it. */
class [[nodiscard]] pooled_stream
{
  public:
    /** Makes an empty handle. */
    pooled_stream() noexcept = default;
    /** Acquires a stream without work from a pool. */
    explicit pooled_stream(loch_stream_pool *pool) : pool_(pool) { check(loch_stream_pool_acquire(pool, &held_)); }
    /** Takes over the stream of another handle, which is empty then. */
    pooled_stream(pooled_stream &&other) noexcept : pool_(other.pool_), held_(std::exchange(other.held_, nullptr)) {}
    /** Gives the stream back and takes over that of another handle, which is empty then. */
    pooled_stream &operator=(pooled_stream &&other) noexcept
    {
        pooled_stream taken(std::move(other));
        std::swap(pool_, taken.pool_);
        std::swap(held_, taken.held_);
        return *this;
    }
    pooled_stream(const pooled_stream &) = delete;
    pooled_stream &operator=(const pooled_stream &) = delete;
    /** Gives the stream back. A stream that the pool refuses (it is captured) is closed. */
    ~pooled_stream()
    {
        if (held_ && loch_stream_pool_release(pool_, held_) != LOCH_OK) loch_stream_close(held_);
    }

    /** Gives the stream back now; its work may still be in progress. The handle is empty then. On failure it keeps
     *  the stream. */
    void give_back()
    {
        check(loch_stream_pool_release(pool_, held_));
        held_ = nullptr;
    }
    /** Returns the C object; NULL for an empty handle. Borrowed. */
    loch_stream *get() const noexcept { return held_; }
    /** Tells whether the handle holds a stream. */
    explicit operator bool() const noexcept { return held_ != nullptr; }
    /** Returns the stream for work to be queued on it. Do not keep it longer than this object. */
    operator stream_ref() const { return detail::need(held_); }
    /** Waits on the host for the work queued on the stream. */
    void sync() const { check(loch_stream_sync(detail::need(held_))); }

  private:
    loch_stream_pool *pool_ = nullptr;
    loch_stream *held_ = nullptr;
};

namespace detail
{

/* The methods of stream pools, owned or of an engine. */
template <class Handle> class stream_pool_calls : public Handle
{
  public:
    stream_pool_calls() noexcept = default;
    explicit stream_pool_calls(loch_stream_pool *raw) noexcept : Handle(raw) {}

    /** Acquires a stream without work: a cached one, otherwise a new one. */
    pooled_stream acquire() const { return pooled_stream(this->need()); }
    /** Returns the figures of the stream pool. */
    loch_stream_pool_info info() const
    {
        auto found = sized<loch_stream_pool_info>();
        check(loch_stream_pool_get_info(this->need(), &found));
        return found;
    }
};

} // namespace detail

/** A cache of streams. Can be moved but not copied. */
class stream_pool : public detail::stream_pool_calls<detail::owned<loch_stream_pool>>
{
  public:
    /** Makes an empty handle. */
    stream_pool() noexcept = default;
    /** Creates a stream pool on a device. */
    explicit stream_pool(const device &of, const options<loch_stream_pool_options> &how = nullptr)
    {
        check(loch_stream_pool_create(of.get(), how.get(), slot()));
    }
    stream_pool(stream_pool &&) noexcept = default;
    stream_pool &operator=(stream_pool &&) noexcept = default;
};

/** The stream pool of an engine: borrowed. */
using stream_pool_ref = detail::stream_pool_calls<detail::borrowed<loch_stream_pool>>;

} // namespace loch

#endif

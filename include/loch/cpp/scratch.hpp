/* SPDX-License-Identifier: MIT */
/** @file scratch.hpp
 *  Memory for a short time: a pool of buffers that are reused, and a workspace that grows.
 */
#include <loch/cpp/require.hpp>
#if LOCH_CPP && !defined(LOCH_CPP_SCRATCH_HPP)
#define LOCH_CPP_SCRATCH_HPP

#include <loch/cpp/buffer.hpp>
#include <loch/scratch.h>

namespace loch
{

namespace detail
{
template <> struct calls<loch_buffer_pool> {
    static constexpr const char *name = "buffer_pool";
    static void release(loch_buffer_pool *raw) noexcept { loch_buffer_pool_destroy(raw); }
};
template <> struct calls<loch_workspace> {
    static constexpr const char *name = "workspace";
    static void release(loch_workspace *raw) noexcept { loch_workspace_destroy(raw); }
};
} // namespace detail

/** A buffer that is lent by a pool of buffers for work on one stream. Goes back at the end of the block, ordered on
 *  that stream. Not copied, not moved. The pool and the stream must outlive it. */
class [[nodiscard]] scratch : detail::fixed
{
  public:
    /** Acquires a buffer of `bytes` for use on a stream; nullptr for the default stream. */
    scratch(loch_buffer_pool *from, std::size_t bytes, stream_ref on) : pool_(from), stream_(on)
    {
        loch_buffer *made = nullptr;
        check(loch_buffer_pool_acquire(from, bytes, on.get(), &made));
        buffer_ = loch::buffer::take(made);
    }
    /** Gives the buffer back. One that the pool refuses is released. */
    ~scratch()
    {
        if (loch_buffer_pool_release(pool_, buffer_.get(), stream_.get()) == LOCH_OK)
            static_cast<void>(buffer_.release());
    }

    /** Returns the buffer. A copy that lives longer keeps the pool from reusing it. */
    const loch::buffer &buffer() const noexcept { return buffer_; }
    /** Returns the address of the buffer. */
    void *address() const { return buffer_.address(); }

  private:
    loch_buffer_pool *pool_;
    stream_ref stream_;
    loch::buffer buffer_;
};

/** A cache of buffers for reuse. Can be moved but not copied. */
class buffer_pool : public detail::owned<loch_buffer_pool>
{
  public:
    /** Makes an empty handle. */
    buffer_pool() noexcept = default;
    /** Creates a pool of buffers on an allocator. */
    explicit buffer_pool(const allocator &from, const options<loch_buffer_pool_options> &how = nullptr)
    {
        check(loch_buffer_pool_create(from.get(), how.get(), slot()));
    }
    buffer_pool(buffer_pool &&) noexcept = default;
    buffer_pool &operator=(buffer_pool &&) noexcept = default;

    /** Acquires a buffer of `bytes` for use on a stream, to the end of the block. */
    scratch acquire(std::size_t bytes, stream_ref on = nullptr) const { return scratch(need(), bytes, on); }
    /** Frees cached buffers until at most `keep_bytes` are cached. Returns the number of bytes freed. */
    std::size_t trim(std::size_t keep_bytes = 0) const
    {
        std::size_t released = 0;
        check(loch_buffer_pool_trim(need(), keep_bytes, &released));
        return released;
    }
    /** Returns the figures of the pool of buffers. */
    loch_buffer_pool_stats stats() const
    {
        auto found = sized<loch_buffer_pool_stats>();
        check(loch_buffer_pool_get_stats(need(), &found));
        return found;
    }
};

/** One buffer for the work of one stream, as large as the largest request so far. Can be moved but not copied. */
class workspace : public detail::owned<loch_workspace>
{
  public:
    /** Makes an empty handle. */
    workspace() noexcept = default;
    /** Creates a workspace without memory, for work on a stream that must outlive it. */
    explicit workspace(const allocator &from, stream_ref on = nullptr, const options<loch_request> &request = nullptr)
    {
        check(loch_workspace_create(from.get(), on.get(), request.get(), slot()));
    }
    workspace(workspace &&) noexcept = default;
    workspace &operator=(workspace &&) noexcept = default;

    /** Returns the buffer of the workspace with at least `bytes`. Release it after the work was queued. */
    buffer acquire(std::size_t bytes) const
    {
        loch_buffer *made = nullptr;
        check(loch_workspace_acquire(need(), bytes, &made));
        return buffer::take(made);
    }
};

} // namespace loch

#endif

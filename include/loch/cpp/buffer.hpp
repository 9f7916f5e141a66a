/* SPDX-License-Identifier: MIT */
/** @file buffer.hpp
 *  Buffers: with one owner or shared, their pins, and external memory.
 */
#include <loch/cpp/require.hpp>
#if LOCH_CPP && !defined(LOCH_CPP_BUFFER_HPP)
#define LOCH_CPP_BUFFER_HPP

#include <loch/buffer.h>
#include <loch/cpp/place.hpp>

namespace loch
{

namespace detail
{

template <> struct calls<loch_buffer> {
    static constexpr const char *name = "buffer";
    static loch_buffer *retain(loch_buffer *raw) noexcept { return loch_buffer_retain(raw); }
    static void release(loch_buffer *raw) noexcept { loch_buffer_release(raw); }
};

/* Creates a buffer at a place. */
inline void create_buffer(std::size_t bytes, const place &where, loch_buffer **out)
{
    const loch_request *request = &where.request();
    check(where.allocator() ? loch_buffer_create(where.allocator(), bytes, request, out)
                            : loch_buffer_create_for_device(where.device(), bytes, request, out));
}

} // namespace detail

/** A pin of a buffer: the address is valid to the end of the block, for work on one stream. The unpin is ordered after
 *  the work queued on the stream until then. Keeps the buffer, and borrows the stream. Not copied, not moved. */
class [[nodiscard]] pin : detail::fixed
{
  public:
    /** Pins a buffer for work on a stream; nullptr for the default stream. */
    explicit pin(loch_buffer *buffer, stream_ref on = nullptr) : stream_(on)
    {
        check(loch_buffer_pin(buffer, on.get(), &address_));
        buffer_ = loch_buffer_retain(buffer);
    }
    /** Removes the pin. */
    ~pin()
    {
        detail::ignore(loch_buffer_unpin(buffer_, stream_.get()));
        loch_buffer_release(buffer_);
    }
    /** Returns the address; NULL for a buffer without memory. */
    void *address() const noexcept { return address_; }

  private:
    loch_buffer *buffer_ = nullptr;
    stream_ref stream_;
    void *address_ = nullptr;
};

namespace detail
{

/* The methods of both kinds of buffer. */
template <class Handle> class buffer_calls : public Handle
{
  public:
    /** @name Properties */
    /** @{ */
    /** Returns the address of the buffer; nullptr for an empty buffer and for a movable one that is not pinned. */
    void *address() const { return loch_buffer_get_address(this->need()); }
    /** Returns the size of the buffer in bytes. */
    std::size_t bytes() const { return loch_buffer_get_bytes(this->need()); }
    /** Tells whether the host may read and write the buffer in place. */
    bool is_on_host() const { return loch_buffer_is_on_host(this->need()) != 0; }
    /** Returns the kind of memory of the buffer. */
    loch_memory_kind kind() const { return loch_buffer_get_kind(this->need()); }
    /** Returns whether the buffer may be written. */
    loch_access access() const { return loch_buffer_get_access(this->need()); }
    /** Returns the id of the buffer's memory: a number that is never used for another buffer of this process. */
    std::uint64_t id() const { return loch_buffer_get_id(this->need()); }
    /** Returns the version of the contents: every write through Loch raises it. */
    std::uint64_t version() const { return loch_buffer_get_version(this->need()); }
    /** Raises the version after a write that Loch did not see. */
    void touch() const { loch_buffer_touch(this->need()); }
    /** Tells whether the pool may move the buffer. */
    bool is_movable() const { return loch_buffer_is_movable(this->need()) != 0; }
    /** Returns how often a movable buffer has moved. */
    std::uint64_t generation() const { return loch_buffer_get_generation(this->need()); }
    /** Returns the device of the buffer; an empty handle for plain host memory that was wrapped. */
    loch::device device() const { return loch::device::retain(loch_buffer_get_device(this->need())); }
    /** Returns the allocator of the buffer's block; an empty handle for external memory. */
    loch::allocator allocator() const { return loch::allocator::retain(loch_buffer_get_allocator(this->need())); }
    /** Returns the memory as elements of T, for the host. Throws LOCH_E_UNSUPPORTED if the host cannot access it, and
     *  LOCH_E_INVALID if it is read-only and T is not const, or the size is not a multiple of T. */
    template <class T> span<T> elements() const
    {
        static_assert(std::is_trivially_copyable_v<T>, "elements are plain memory");
        if (!is_on_host()) fail(LOCH_E_UNSUPPORTED, "the host cannot reach the memory of the buffer");
        if (!std::is_const_v<T> && access() == LOCH_READ_ONLY) fail(LOCH_E_INVALID, "the memory is read-only");
        if (bytes() % sizeof(T) != 0)
            check(loch_error_set(LOCH_E_INVALID, nullptr, 0, "%zu bytes are no multiple of %zu", bytes(), sizeof(T)));
        return {static_cast<T *>(address()), bytes() / sizeof(T)};
    }
    /** @} */

    /** @name Contents */
    /** @{ */
    /** Changes the size of the buffer. The address may change. */
    void resize(std::size_t bytes, loch_contents contents = LOCH_CONTENTS_KEEP, stream_ref stream = nullptr)
    {
        check(loch_buffer_resize(this->need(), bytes, contents, stream.get()));
    }
    /** Fills the buffer with a repeated pattern of 1, 2 or 4 bytes. Queued with a stream; waits on the host without
     *  one. */
    template <class T> void fill(T pattern, stream_ref stream = nullptr)
    {
        static_assert(std::is_trivially_copyable_v<T>, "a pattern is bytes");
        check(loch_buffer_fill(this->need(), &pattern, sizeof pattern, stream.get()));
    }
    /** Copies another buffer of the same size into this one. Queued with a stream; waits on the host without one. */
    template <class Other> void copy_from(const buffer_calls<Other> &from, stream_ref stream = nullptr)
    {
        auto how = sized<loch_buffer_copy_options>();
        how.stream = stream.get();
        copy_from(from, how);
    }
    /** Copies another buffer into this one with options: stream, waiting, and whether the sizes must be equal. */
    template <class Other> void copy_from(const buffer_calls<Other> &from, const loch_buffer_copy_options &how)
    {
        check(loch_buffer_copy(this->need(), from.get(), options<loch_buffer_copy_options>(how).get()));
    }
    /** Records that work queued on `stream` uses the buffer: its memory is not freed before that work has ended. */
    void record_use(stream_ref stream) { check(loch_buffer_record_use(this->need(), stream.get())); }
    /** Pins the buffer for work on a stream, to the end of the block. Only movable buffers need it. */
    loch::pin pin(stream_ref stream = nullptr) const { return loch::pin(this->need(), stream); }
    /** Adds a function that runs once when the memory is given back. `user` is borrowed until then. It must not
     *  throw. */
    void add_deleter(loch_buffer_deleter *deleter, void *user) const
    {
        check(loch_buffer_add_deleter(this->need(), deleter, user));
    }
    /** @} */

  protected:
    buffer_calls() noexcept = default;
    explicit buffer_calls(loch_buffer *raw) noexcept : Handle(raw) {}
};

} // namespace detail

/** A buffer with one owner. Can be moved but not copied, and can be turned into a loch::buffer. */
class unique_buffer : public detail::buffer_calls<detail::owned<loch_buffer>>
{
  public:
    /** Makes an empty handle. */
    unique_buffer() noexcept = default;
    /** Creates a buffer of `bytes`. */
    explicit unique_buffer(std::size_t bytes, const place &where = {}) { detail::create_buffer(bytes, where, slot()); }
    unique_buffer(unique_buffer &&) noexcept = default;
    unique_buffer &operator=(unique_buffer &&) noexcept = default;
    /** Takes over the caller's reference, which must be the only one. */
    static unique_buffer take(loch_buffer *raw) noexcept { return unique_buffer(raw); }
    /** Makes a buffer of a block, which is empty then. On failure the block keeps its memory. */
    static unique_buffer adopt(block &&from)
    {
        unique_buffer made;
        check(loch_buffer_adopt(from.allocator().get(), from.get(), made.slot()));
        static_cast<void>(from.release());
        return made;
    }
    /** Takes the block out of the buffer, which has no memory then. LOCH_E_BUSY: there are other references. */
    block detach()
    {
        loch::allocator from = allocator();
        void *address = nullptr;
        check(loch_buffer_detach(need(), &address));
        return block::take(std::move(from), address);
    }

  private:
    explicit unique_buffer(loch_buffer *raw) noexcept : buffer_calls(raw) {}
};

/** A shared buffer: a copy of the handle is another reference on the same memory. */
class buffer : public detail::buffer_calls<detail::shared<loch_buffer>>
{
  public:
    /** Makes an empty handle. */
    buffer() noexcept = default;
    /** Creates a buffer of `bytes`. */
    explicit buffer(std::size_t bytes, const place &where = {}) { detail::create_buffer(bytes, where, slot()); }
    /** Takes over the memory of a unique_buffer, which is empty then. */
    buffer(unique_buffer &&from) noexcept : buffer_calls(from.release()) {}
    /** Takes another reference on a buffer of the caller. */
    static buffer retain(loch_buffer *raw) noexcept { return buffer(loch_buffer_retain(raw)); }
    /** Takes over the caller's reference. */
    static buffer take(loch_buffer *raw) noexcept { return buffer(raw); }
    /** Makes a buffer on external memory without copying it (loch_buffer_wrap). */
    static buffer wrap(void *address, std::size_t bytes, const options<loch_external> &external = nullptr)
    {
        buffer made;
        check(loch_buffer_wrap(address, bytes, external.get(), made.slot()));
        return made;
    }
    /** Gives back the memory of released buffers whose work has ended. Returns the number of buffers whose work has
     *  not. LOCH_WAIT_END waits on the host for it. */
    static std::size_t collect(loch_wait wait = LOCH_WAIT_DEFAULT)
    {
        std::size_t waiting = 0;
        check(loch_buffer_collect(wait, &waiting));
        return waiting;
    }

    /** Makes a buffer that is a part of this one and keeps the whole alive. */
    buffer slice(std::size_t offset, std::size_t bytes) const
    {
        buffer part;
        check(loch_buffer_slice(need(), offset, bytes, part.slot()));
        return part;
    }
    /** Returns the number of references now. Other threads may change it at any time. */
    std::size_t references() const { return loch_buffer_get_references(need()); }

  private:
    explicit buffer(loch_buffer *raw) noexcept : buffer_calls(raw) {}
};

} // namespace loch

#endif

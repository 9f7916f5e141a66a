/* SPDX-License-Identifier: MIT */
/** @file place.hpp
 *  Where memory comes from and what is wanted of it, for buffers, arrays and tensors.
 */
#include <loch/cpp/require.hpp>
#if LOCH_CPP && !defined(LOCH_CPP_PLACE_HPP)
#define LOCH_CPP_PLACE_HPP

#include <loch/cpp/allocator.hpp>

namespace loch
{

/** Where memory comes from and what is wanted of it: a device, an allocator, or nothing for the host. Keeps the
 *  device and the allocator alive, and borrows the stream and the name: `tensor::zeros<float>({4},
 *  place(gpu).on(stream).named("weights"))`. */
class place
{
  public:
    /** Names the host. */
    place() noexcept {}
    /** Names the default allocator of a device. */
    place(loch::device where) : device_(std::move(where)) { device_.need(); }
    /** Names an allocator. */
    place(loch::allocator from) : allocator_(std::move(from)) { allocator_.need(); }
    /** Sets the stream that uses the memory first and orders the work. */
    place &on(stream_ref stream) noexcept { return request_.stream = stream.get(), *this; }
    /** Sets the alignment of the address, a power of two. */
    place &aligned(std::size_t alignment) noexcept { return request_.alignment = alignment, *this; }
    /** Rounds the size up to a multiple of this many bytes. */
    place &rounded(std::size_t multiple) noexcept { return request_.round_bytes = multiple, *this; }
    /** Sets the tag for the statistics. */
    place &tagged(tag tag) noexcept { return request_.tag = tag, *this; }
    /** Fills the memory with zeros. */
    place &zeroed() noexcept { return request_.flags |= LOCH_ALLOC_ZEROED, *this; }
    /** Makes the memory the whole of one handle (LOCH_ALLOC_ONE_HANDLE). */
    place &one_handle() noexcept { return request_.flags |= LOCH_ALLOC_ONE_HANDLE, *this; }
    /** Lets the pool move the memory while it is not pinned. */
    place &movable() noexcept { return request_.flags |= LOCH_ALLOC_MOVABLE, *this; }
    /** Sets how long to wait when memory is short, in nanoseconds. */
    place &patient(std::uint64_t timeout_ns) noexcept { return request_.timeout_ns = timeout_ns, *this; }
    /** Sets the name of the tensor, for people. Borrowed. */
    place &named(const char *name) noexcept { return name_ = name, *this; }

    /** Returns the device, or nullptr. Borrowed. */
    loch_device *device() const noexcept { return device_.get(); }
    /** Returns the allocator, or nullptr. Borrowed. */
    loch_allocator *allocator() const noexcept { return allocator_.get(); }
    /** Returns the name, or nullptr. Borrowed. */
    const char *name() const noexcept { return name_; }
    /** Returns the request for the C functions of allocators and buffers. */
    const loch_request &request() const noexcept { return request_; }

  private:
    loch_request request_ = sized<loch_request>();
    loch::device device_;
    loch::allocator allocator_;
    const char *name_ = nullptr;
};

} // namespace loch

#endif

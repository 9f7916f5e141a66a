/* SPDX-License-Identifier: MIT */
/** @file place.hpp
 *  Where memory comes from and what is wanted of it, for buffers, arrays and tensors.
 */
#include <loch/cpp/require.hpp>
#if LOCH_CPP && !defined(LOCH_CPP_PLACE_HPP)
#define LOCH_CPP_PLACE_HPP

#include <loch/cpp/allocator.hpp>
#include <loch/tensor.h>

namespace loch
{

/** Where memory comes from and what is wanted of it: a device, an allocator, or nothing for the host. Keeps the
 *  device and the allocator alive, and borrows the stream and the name: `tensor::zeros<float>({4},
 *  place(gpu).on(stream).named("weights"))`. */
class place
{
  public:
    /** Names the host. */
    place() noexcept { options_.size = sizeof options_; }
    /** Names the default allocator of a device. */
    place(loch::device where) : place()
    {
        options_.device = where.need();
        device_ = std::move(where);
    }
    /** Names an allocator. */
    place(loch::allocator from) : place()
    {
        options_.allocator = from.need();
        allocator_ = std::move(from);
    }
    /** Sets the stream that uses the memory first and orders the work. */
    place &on(stream_ref stream) noexcept { return options_.stream = stream.get(), *this; }
    /** Sets the alignment of the address, a power of two. */
    place &aligned(std::size_t alignment) noexcept { return options_.alignment = alignment, *this; }
    /** Rounds the size up to a multiple of this many bytes. */
    place &rounded(std::size_t multiple) noexcept { return options_.round_bytes = multiple, *this; }
    /** Sets the tag for the statistics. */
    place &tagged(tag tag) noexcept { return options_.tag = tag, *this; }
    /** Fills the memory with zeros. */
    place &zeroed() noexcept { return options_.flags |= LOCH_ALLOC_ZEROED, *this; }
    /** Lets the pool move the memory while it is not pinned. */
    place &movable() noexcept { return options_.flags |= LOCH_ALLOC_MOVABLE, *this; }
    /** Sets how long to wait when memory is short, in nanoseconds. */
    place &patient(std::uint64_t timeout_ns) noexcept { return options_.timeout_ns = timeout_ns, *this; }
    /** Sets the name of the tensor, for people. Borrowed. */
    place &named(const char *name) noexcept { return options_.name = name, *this; }

    /** Returns the options for the C functions of tensors. Borrowed. */
    const loch_tensor_options *options() const noexcept { return &options_; }
    /** Returns the request for the C functions of allocators and buffers. */
    loch_request request() const noexcept
    {
        auto request = sized<loch_request>();
        request.alignment = options_.alignment;
        request.stream = options_.stream;
        request.tag = options_.tag;
        request.flags = options_.flags;
        request.timeout_ns = options_.timeout_ns;
        request.round_bytes = options_.round_bytes;
        return request;
    }

  private:
    loch_tensor_options options_{};
    loch::device device_;       /* keeps options_.device alive */
    loch::allocator allocator_; /* keeps options_.allocator alive */
};

} // namespace loch

#endif

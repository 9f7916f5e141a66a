/* SPDX-License-Identifier: MIT */
/** @file memory_resource.hpp
 *  Memory of Loch for the containers of the standard library: a std::pmr::memory_resource, and an allocator for
 *  containers that take one as a template argument.
 */
#include <loch/cpp/require.hpp>
#if LOCH_CPP && !defined(LOCH_CPP_MEMORY_RESOURCE_HPP)
#define LOCH_CPP_MEMORY_RESOURCE_HPP

#include <loch/cpp/allocator.hpp>

#include <memory_resource>
#include <new>

namespace loch
{

namespace detail
{

/* Refuses memory that containers could not write to. */
inline void need_host(const allocator &from)
{
    if (!from.is_on_host())
        check(
            loch_error_set(LOCH_E_UNSUPPORTED, nullptr, 0, "the host cannot reach the memory of \"%s\"", from.name()));
}

/* Allocates for a container. Throws std::bad_alloc. */
inline void *container_alloc(loch_allocator *from, std::size_t bytes, std::size_t alignment, loch_tag tag)
{
    auto request = sized<loch_request>();
    request.bytes = bytes ? bytes : 1; /* every allocation needs a unique address */
    request.alignment = alignment;
    request.tag = tag;
    void *block = nullptr;
    if (loch_allocator_alloc(from, &request, &block) != LOCH_OK) throw std::bad_alloc();
    /* Earlier work on the default stream may still use the block, and a container writes to it at once. */
    if (loch_stream_sync(loch_stream_get_default(loch_allocator_get_device(from))) != LOCH_OK) {
        ignore(loch_free(from, block));
        throw std::bad_alloc();
    }
    return block;
}

} // namespace detail

/** An allocator for the containers of std::pmr. The host must be able to access its memory; throws LOCH_E_UNSUPPORTED
 *  otherwise. */
class memory_resource final : public std::pmr::memory_resource
{
  public:
    /** Makes a resource that allocates from `from`, with a tag for the statistics. */
    explicit memory_resource(loch::allocator from, loch::tag tag = {}) : allocator_(std::move(from)), tag_(tag)
    {
        detail::need_host(allocator_);
    }
    /** Returns the allocator of the resource. Borrowed. */
    const loch::allocator &allocator() const noexcept { return allocator_; }

  private:
    void *do_allocate(std::size_t bytes, std::size_t alignment) override
    {
        return detail::container_alloc(allocator_.get(), bytes, alignment, tag_);
    }
    void do_deallocate(void *block, std::size_t, std::size_t) override
    {
        /* A failure cannot be reported: containers deallocate in destructors. The error record has it. */
        detail::ignore(allocator_.try_free(block));
    }
    bool do_is_equal(const std::pmr::memory_resource &other) const noexcept override
    {
        if (this == &other) return true;
#ifdef __cpp_rtti
        const auto *same = dynamic_cast<const memory_resource *>(&other);
        return same && same->allocator_.get() == allocator_.get();
#else
        return false; /* the kind of the other resource cannot be found out */
#endif
    }

    loch::allocator allocator_;
    loch::tag tag_;
};

/** An allocator for containers with an allocator as a template argument: `std::vector<int, loch::std_allocator<int>>
 *  list(pool);`. The host must be able to access its memory; throws LOCH_E_UNSUPPORTED otherwise. Allocators are equal
 *  if they allocate from the same loch::allocator. */
template <class T> class std_allocator
{
  public:
    /** Type of an element. */
    using value_type = T;
    /** A container that is moved or assigned takes the allocator of its source with it. */
    using propagate_on_container_move_assignment = std::true_type;
    /** A container that is assigned takes the allocator of its source. */
    using propagate_on_container_copy_assignment = std::true_type;
    /** Containers that are swapped exchange their allocators. */
    using propagate_on_container_swap = std::true_type;
    /** Two allocators of one type may differ. */
    using is_always_equal = std::false_type;

    /** Makes an allocator that allocates from `from`, with a tag for the statistics. */
    std_allocator(loch::allocator from, loch::tag tag = {}) : allocator_(std::move(from)), tag_(tag)
    {
        detail::need_host(allocator_);
    }
    /** Makes an allocator of the same memory for elements of another type. */
    template <class Other>
    std_allocator(const std_allocator<Other> &other) noexcept : allocator_(other.source()), tag_(other.tag())
    {
    }
    std_allocator(const std_allocator &) noexcept = default;
    std_allocator &operator=(const std_allocator &) noexcept = default;
    ~std_allocator() = default;

    /** Allocates memory for `count` elements. Throws std::bad_alloc. */
    [[nodiscard]] T *allocate(std::size_t count)
    {
        if (count > SIZE_MAX / sizeof(T)) throw std::bad_array_new_length();
        return static_cast<T *>(detail::container_alloc(allocator_.get(), count * sizeof(T), alignof(T), tag_));
    }
    /** Frees memory of allocate(). */
    void deallocate(T *elements, std::size_t) noexcept { detail::ignore(allocator_.try_free(elements)); }
    /** Returns the allocator that the memory comes from. Borrowed. */
    const loch::allocator &source() const noexcept { return allocator_; }
    /** Returns the tag of the memory. */
    loch::tag tag() const noexcept { return tag_; }

    /** Tells whether memory of one can be freed by the other. */
    template <class Other> bool operator==(const std_allocator<Other> &other) const noexcept
    {
        return allocator_.get() == other.source().get();
    }
    /** Tells whether memory of one cannot be freed by the other. */
    template <class Other> bool operator!=(const std_allocator<Other> &other) const noexcept
    {
        return !(*this == other);
    }

  private:
    loch::allocator allocator_;
    loch::tag tag_;
};

} // namespace loch

#endif

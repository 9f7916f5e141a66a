/* SPDX-License-Identifier: MIT */
/** @file host_array.hpp
 *  Arrays that the host reads and writes: of plain elements, and of objects with constructors.
 */
#include <loch/cpp/require.hpp>
#if LOCH_CPP && !defined(LOCH_CPP_HOST_ARRAY_HPP)
#define LOCH_CPP_HOST_ARRAY_HPP

#include <loch/cpp/buffer.hpp>
#include <loch/typed.h>

#include <new>

namespace loch
{

/** An array of `n` zeroed elements that the host reads and writes. Can be moved but not copied. Throws
 *  LOCH_E_UNSUPPORTED for memory that the host cannot access. */
template <class T> class host_array
{
    static_assert(std::is_trivially_copyable_v<T> && std::is_trivially_destructible_v<T>, "elements are plain memory");

  public:
    /** Type of an element. */
    using value_type = T;

    /** Makes an empty array. */
    host_array() noexcept = default;
    /** Creates an array of `n` zeroed elements. Waits until the zeros are written. */
    explicit host_array(std::size_t n, place where = {})
    {
        if (alignof(T) > alignof(std::max_align_t) && where.request().alignment < alignof(T)) where.aligned(alignof(T));
        unique_buffer made(detail::bytes_of<T>(n), where.zeroed());
        if (!made.is_on_host()) fail(LOCH_E_UNSUPPORTED, "the host cannot reach the memory of a host_array");
        if (loch_stream *stream = where.request().stream)
            check(loch_stream_sync(stream)); /* the zeros are queued on this stream */
        data_ = static_cast<T *>(made.address());
        size_ = n;
        buffer_ = std::move(made);
    }
    /** Moves the elements; `other` is empty then. */
    host_array(host_array &&other) noexcept
        : buffer_(std::move(other.buffer_)), data_(std::exchange(other.data_, nullptr)),
          size_(std::exchange(other.size_, std::size_t{0}))
    {
    }
    /** Moves the elements; `other` is empty then. */
    host_array &operator=(host_array &&other) noexcept
    {
        host_array taken(std::move(other));
        std::swap(buffer_, taken.buffer_);
        std::swap(data_, taken.data_);
        std::swap(size_, taken.size_);
        return *this;
    }
    host_array(const host_array &) = delete;
    host_array &operator=(const host_array &) = delete;
    ~host_array() = default;

    /** Returns the address of the first element. */
    T *data() noexcept { return data_; }
    /** Returns the address of the first element, to read. */
    const T *data() const noexcept { return data_; }
    /** Returns the number of elements. */
    std::size_t size() const noexcept { return size_; }
    /** Returns the size of all elements in bytes. */
    std::size_t size_in_bytes() const noexcept { return size_ * sizeof(T); }
    /** Tells whether the array has no elements. */
    bool empty() const noexcept { return size_ == 0; }
    /** Returns an iterator at the first element. */
    T *begin() noexcept { return data_; }
    /** Returns an iterator past the last element. */
    T *end() noexcept { return data_ + size_; }
    /** Returns an iterator at the first element, to read. */
    const T *begin() const noexcept { return data_; }
    /** Returns an iterator past the last element, to read. */
    const T *end() const noexcept { return data_ + size_; }
    /** Returns an element. The index is not checked, as in std::vector. */
    T &operator[](std::size_t i) noexcept { return data_[i]; }
    /** Returns an element to read. The index is not checked, as in std::vector. */
    const T &operator[](std::size_t i) const noexcept { return data_[i]; }
    /** Returns an element. Throws LOCH_E_OUT_OF_RANGE for a wrong index. */
    T &at(std::size_t i) { return data_[checked(i)]; }
    /** Returns an element to read. Throws LOCH_E_OUT_OF_RANGE for a wrong index. */
    const T &at(std::size_t i) const { return data_[checked(i)]; }

  private:
    std::size_t checked(std::size_t i) const
    {
        if (i >= size_) check(loch_error_set(LOCH_E_OUT_OF_RANGE, nullptr, 0, "element %zu of %zu", i, size_));
        return i;
    }

    unique_buffer buffer_; /* never resized, so data_ stays valid */
    T *data_ = nullptr;
    std::size_t size_ = 0;
};

/** An array of objects of T in memory of an allocator: constructed in order, destroyed in reverse order at the end.
 *  Throws LOCH_E_UNSUPPORTED for memory that the host cannot access. Can be moved but not copied. */
template <class T> class object_array
{
    static_assert(std::is_nothrow_destructible_v<T>, "objects end without an exception");

  public:
    /** Makes an empty array. */
    object_array() noexcept = default;
    /** Constructs `n` objects by T(). If one of them throws, those before it are destroyed, the memory is freed, and
     *  the exception comes out of here. */
    object_array(loch::allocator from, std::size_t n, const options<loch_request> &request = nullptr)
        : allocator_(std::move(from))
    {
        std::exception_ptr thrown;
        void *made = nullptr;
        loch_type type = describe();
        type.user = &thrown;
        const loch_status status = loch_alloc_typed(allocator_.need(), &type, n, request.get(), &made);
        if (thrown) std::rethrow_exception(std::move(thrown));
        check(status);
        data_ = static_cast<T *>(made);
        size_ = n;
    }
    /** Takes over the objects of another array, which is empty then. */
    object_array(object_array &&other) noexcept
        : allocator_(std::move(other.allocator_)), data_(std::exchange(other.data_, nullptr)),
          size_(std::exchange(other.size_, std::size_t{0}))
    {
    }
    /** Takes over the objects of another array, which is empty then. */
    object_array &operator=(object_array &&other) noexcept
    {
        object_array taken(std::move(other));
        std::swap(allocator_, taken.allocator_);
        std::swap(data_, taken.data_);
        std::swap(size_, taken.size_);
        return *this;
    }
    object_array(const object_array &) = delete;
    object_array &operator=(const object_array &) = delete;
    /** Destroys the objects and frees their memory. */
    ~object_array()
    {
        if (!data_) return;
        const loch_type type = describe();
        detail::ignore(loch_free_typed(allocator_.get(), data_, &type, size_));
    }

    /** Returns the address of the first object. */
    T *data() const noexcept { return data_; }
    /** Returns the number of objects. */
    std::size_t size() const noexcept { return size_; }
    /** Returns an iterator at the first object. */
    T *begin() const noexcept { return data_; }
    /** Returns an iterator past the last object. */
    T *end() const noexcept { return data_ + size_; }
    /** Returns an object. The index is not checked, as in std::vector. */
    T &operator[](std::size_t i) const noexcept { return data_[i]; }

  private:
    static loch_type describe() noexcept
    {
        auto type = sized<loch_type>();
        type.bytes = sizeof(T);
        type.alignment = alignof(T);
        type.init = [](void *element, void *user) noexcept {
            try {
                ::new (element) T();
                return LOCH_OK;
            } catch (...) {
                *static_cast<std::exception_ptr *>(user) = std::current_exception();
                return LOCH_E_CANCELLED;
            }
        };
        type.fini = [](void *element, void *) noexcept { static_cast<T *>(element)->~T(); };
        return type;
    }

    loch::allocator allocator_;
    T *data_ = nullptr;
    std::size_t size_ = 0;
};

} // namespace loch

#endif

/* SPDX-License-Identifier: MIT */
/** @file loch.hpp
 *  Loch for C++17: handles that release their objects, failures as exceptions, tensors with methods. Header only.
 *
 *      loch::tensor a = loch::tensor::full({2, 3}, 1.5f);
 *      std::cout << a.transpose(0, 1).to(loch::device("sim:1GiB,backed")) << '\n';
 *
 *  - The methods call the C functions of the same names; the comments of those hold here too. get() of a
 *    handle returns the object for the C functions.
 *  - A failure throws a loch::error with the status and the sentence. Destructors and moves do not throw.
 *  - A copy of a device, stream, allocator, buffer or tensor is another reference on the same object. unique_buffer and
 *    host_array can only be moved. An empty handle (default constructed, or moved from) may be tested, assigned and
 *    destroyed; every other use throws a loch::error with LOCH_E_INVALID.
 *  - Only the C functions allocate memory here, and std::string where a method returns one.
 */
#ifndef LOCH_LOCH_HPP
#define LOCH_LOCH_HPP

#include <loch/loch.h>
#include <loch/driver.h>
#include <loch/raw.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <initializer_list>
#include <memory_resource>
#include <new>
#include <ostream>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

namespace loch
{

/* --- errors --- */

/** A failed call as an exception: the status and the sentence of the thread's error record. */
class error : public std::exception
{
  public:
    /** Makes an exception from a copy of an error record. */
    explicit error(const loch_error &record) noexcept : record_(record) {}

    /** Returns the status of the call. */
    loch_status status() const noexcept { return record_.status; }
    /** Returns the sentence of the failure, or the general text of the status if there is none. Valid as long as the
     *  exception. */
    const char *what() const noexcept override
    {
        return record_.sentence[0] ? record_.sentence : loch_status_text(record_.status);
    }
    /** Returns the name of the driver ("cuda"); "" if no driver was involved. */
    const char *driver() const noexcept { return record_.driver ? record_.driver : ""; }
    /** Returns the error code of the driver; 0 for none. */
    long driver_code() const noexcept { return record_.driver_code; }

  private:
    loch_error record_;
};

/** Throws a loch::error with the calling thread's error record, unless `status` is LOCH_OK. */
inline void check(loch_status status)
{
    if (status == LOCH_OK) return;
    loch_error record = *loch_error_get();
    if (record.status != status) { /* the status does not belong to the record */
        record = loch_error{};
        record.status = status;
    }
    throw error(record);
}

/* --- types --- */

namespace detail
{

template <class T> constexpr loch_dtype find_dtype() noexcept
{
    if constexpr (std::is_same_v<T, bool>)
        return LOCH_BOOL;
    else if constexpr (std::is_same_v<T, double>)
        return LOCH_F64;
    else if constexpr (std::is_same_v<T, float>)
        return LOCH_F32;
    else if constexpr (std::is_same_v<T, loch_f16>)
        return LOCH_F16;
    else if constexpr (std::is_same_v<T, loch_bf16>)
        return LOCH_BF16;
    else if constexpr (std::is_same_v<T, loch_f8e4m3>)
        return LOCH_F8E4M3;
    else if constexpr (std::is_same_v<T, loch_f8e5m2>)
        return LOCH_F8E5M2;
    else if constexpr (std::is_integral_v<T> && sizeof(T) == 1)
        return std::is_signed_v<T> ? LOCH_I8 : LOCH_U8;
    else if constexpr (std::is_integral_v<T> && sizeof(T) == 2)
        return std::is_signed_v<T> ? LOCH_I16 : LOCH_U16;
    else if constexpr (std::is_integral_v<T> && sizeof(T) == 4)
        return std::is_signed_v<T> ? LOCH_I32 : LOCH_U32;
    else if constexpr (std::is_integral_v<T> && sizeof(T) == 8)
        return std::is_signed_v<T> ? LOCH_I64 : LOCH_U64;
    else
        return LOCH_DTYPE_NONE;
}

} // namespace detail

/** Returns the element type of T: dtype_of<float>() is LOCH_F32. Does not compile for a T that is not an element
 *  type. */
template <class T> constexpr loch_dtype dtype_of() noexcept
{
    constexpr loch_dtype dtype = detail::find_dtype<std::remove_cv_t<T>>();
    static_assert(dtype != LOCH_DTYPE_NONE, "no type of element");
    return dtype;
}

/** Makes a scalar from a number of any element type. */
template <class T> loch_scalar scalar_of(T value)
{
    constexpr loch_dtype dtype = dtype_of<T>();
    if constexpr (std::is_floating_point_v<T>)
        return loch_scalar_from_double(static_cast<double>(value));
    else if constexpr (std::is_integral_v<T> && std::is_signed_v<T>)
        return loch_scalar_from_signed(value);
    else if constexpr (std::is_integral_v<T>)
        return loch_scalar_from_unsigned(value);
    else {
        loch_scalar scalar;
        check(loch_scalar_load(dtype, &value, &scalar));
        return scalar;
    }
}

/* --- handles --- */

namespace detail
{

template <class T> struct calls;

template <> struct calls<loch_device> {
    static constexpr const char *name = "device";
    static loch_device *retain(loch_device *raw) noexcept { return loch_device_retain(raw); }
    static void release(loch_device *raw) noexcept { loch_device_release(raw); }
};
template <> struct calls<loch_allocator> {
    static constexpr const char *name = "allocator";
    static loch_allocator *retain(loch_allocator *raw) noexcept { return loch_allocator_retain(raw); }
    static void release(loch_allocator *raw) noexcept { loch_allocator_release(raw); }
};
template <> struct calls<loch_buffer> {
    static constexpr const char *name = "buffer";
    static loch_buffer *retain(loch_buffer *raw) noexcept { return loch_buffer_retain(raw); }
    static void release(loch_buffer *raw) noexcept { loch_buffer_release(raw); }
};
template <> struct calls<loch_tensor> {
    static constexpr const char *name = "tensor";
    static loch_tensor *retain(loch_tensor *raw) noexcept { return loch_tensor_retain(raw); }
    static void release(loch_tensor *raw) noexcept { loch_tensor_release(raw); }
};
template <> struct calls<loch_stream> {
    static constexpr const char *name = "stream";
    static loch_stream *retain(loch_stream *raw) noexcept { return loch_stream_retain(raw); }
    static void release(loch_stream *raw) noexcept { loch_stream_release(raw); }
};

/* A handle with one reference, released by the destructor. Can only be moved. */
template <class T> class owned
{
  public:
    /** Returns the C object; NULL for an empty handle. Borrowed. */
    T *get() const noexcept { return held_; }
    /** Tells whether the handle holds an object. */
    explicit operator bool() const noexcept { return held_ != nullptr; }
    /** Returns the C object. Borrowed. Throws LOCH_E_INVALID for an empty handle. */
    T *need() const
    {
        if (!held_) check(loch_error_set(LOCH_E_INVALID, nullptr, 0, "the loch::%s is empty", calls<T>::name));
        return held_;
    }
    /** Gives the reference to the caller. The caller releases it. The handle is empty then. */
    [[nodiscard]] T *release() noexcept { return std::exchange(held_, nullptr); }
    /** Releases the reference now. The handle is empty then. */
    void reset() noexcept { calls<T>::release(release()); }

  protected:
    owned() noexcept = default;
    explicit owned(T *held) noexcept : held_(held) {}
    owned(owned &&other) noexcept : held_(other.release()) {}
    owned &operator=(owned &&other) noexcept
    {
        T *taken = other.release(); /* before reset: `other` may be this object */
        reset();
        held_ = taken;
        return *this;
    }
    owned(const owned &) = delete;
    owned &operator=(const owned &) = delete;
    ~owned() { reset(); }

    /* Empties the handle and returns the place for the out-argument of a C function. */
    T **slot() noexcept
    {
        reset();
        return &held_;
    }

  private:
    T *held_ = nullptr;
};

/* A handle that can also be copied: a copy is another reference. */
template <class T> class shared : public owned<T>
{
  protected:
    shared() noexcept = default;
    explicit shared(T *held) noexcept : owned<T>(held) {}
    shared(shared &&) noexcept = default;
    shared &operator=(shared &&) noexcept = default;
    shared(const shared &other) noexcept : owned<T>(calls<T>::retain(other.get())) {}
    shared &operator=(const shared &other) noexcept
    {
        if (this != &other) owned<T>::operator=(shared(other));
        return *this;
    }
    ~shared() = default;
};

} // namespace detail

/* --- devices, streams, allocators --- */

/** A device: a shared handle of a loch_device. */
class device : public detail::shared<loch_device>
{
  public:
    /** Makes an empty handle. */
    device() noexcept = default;
    /** Opens a device by name: "cpu", "cuda:0", "sim:8GiB,backed". */
    explicit device(const char *name) { check(loch_device_open(name, slot())); }
    /** Takes another reference on a device of the caller. */
    static device retain(loch_device *raw) noexcept { return device(loch_device_retain(raw)); }
    /** Takes over the caller's reference. */
    static device take(loch_device *raw) noexcept { return device(raw); }

    /** Returns the name of the device. Borrowed. */
    const char *name() const { return loch_device_get_name(need()); }
    /** Tells whether the device has every capability in the set. */
    bool can(std::uint32_t capabilities) const { return loch_device_can(need(), capabilities) != 0; }
    /** Returns the properties of the device. */
    loch_device_properties properties() const
    {
        loch_device_properties properties{};
        properties.size = sizeof properties;
        check(loch_device_get_properties(need(), &properties));
        return properties;
    }
    /** Waits on the host for all work of the device. */
    void sync() const { check(loch_device_sync(need())); }

  private:
    explicit device(loch_device *raw) noexcept : shared(raw) {}
};

/** A stream: a shared handle of a loch_stream. The last reference ends the stream. */
class stream : public detail::shared<loch_stream>
{
  public:
    /** Makes an empty handle. */
    stream() noexcept = default;
    /** Creates a stream on a device. */
    explicit stream(const device &of, const loch_stream_options *options = nullptr)
    {
        check(loch_stream_create(of.get(), options, slot()));
    }
    /** Takes over the caller's reference. */
    static stream take(loch_stream *raw) noexcept { return stream(raw); }
    /** Takes another reference on a stream of the caller. */
    static stream retain(loch_stream *raw) noexcept { return stream(loch_stream_retain(raw)); }

    /** Returns the id of the stream: a number that is never used for another stream of this process. */
    std::uint64_t id() const { return loch_stream_get_id(need()); }
    /** Waits on the host for the work queued on the stream. */
    void sync() const { check(loch_stream_sync(need())); }
    /** Tells whether all work queued on the stream has ended. Returns immediately. */
    bool is_idle() const
    {
        const loch_status status = loch_stream_query(need());
        if (status != LOCH_E_BUSY) check(status);
        return status == LOCH_OK;
    }

  private:
    explicit stream(loch_stream *raw) noexcept : shared(raw) {}
};

/** A stream as an argument: a loch::stream, a loch_stream pointer, or nothing for the default stream. Borrows the
 *  stream. */
class stream_ref
{
  public:
    /** Names the default stream. */
    stream_ref(std::nullptr_t = nullptr) noexcept {}
    /** Names a stream of the C interface; NULL for the default stream. */
    stream_ref(loch_stream *raw) noexcept : raw_(raw) {}
    /** Names the stream of a handle. Throws LOCH_E_INVALID for an empty handle. */
    stream_ref(const stream &of) : raw_(of.need()) {}
    /** Returns the C object; NULL for the default stream. */
    loch_stream *get() const noexcept { return raw_; }

  private:
    loch_stream *raw_ = nullptr;
};

/** An allocator: a shared handle of a loch_allocator. */
class allocator : public detail::shared<loch_allocator>
{
  public:
    /** Makes an empty handle. */
    allocator() noexcept = default;
    /** Acquires the allocator of a device for given attributes; without attributes its default allocator. */
    explicit allocator(const device &of, loch_attributes attributes = {})
    {
        check(loch_device_acquire_allocator(of.get(), attributes, LOCH_FALLBACK_NONE, slot()));
    }
    /** Creates a pool on a device. */
    static allocator pool(const device &of, const char *name = nullptr, const loch_pool_options *options = nullptr)
    {
        allocator made;
        check(loch_pool_create(of.get(), name, options, made.slot()));
        return made;
    }
    /** Creates a direct allocator on a device: one driver call for each block. */
    static allocator direct(const device &of, const char *name = nullptr, const loch_direct_options *options = nullptr)
    {
        allocator made;
        check(loch_direct_create(of.get(), name, options, made.slot()));
        return made;
    }
    /** Takes another reference on an allocator of the caller. */
    static allocator retain(loch_allocator *raw) noexcept { return allocator(loch_allocator_retain(raw)); }
    /** Takes over the caller's reference. */
    static allocator take(loch_allocator *raw) noexcept { return allocator(raw); }

    /** Returns the name of the allocator. Borrowed. */
    const char *name() const { return loch_allocator_get_name(need()); }
    /** Returns the kind of the allocator: "pool", "direct". Static string. */
    const char *kind() const { return loch_allocator_get_kind(need()); }
    /** Returns the device of the allocator. */
    loch::device device() const { return loch::device::retain(loch_allocator_get_device(need())); }
    /** Returns the attributes of the memory that the allocator hands out. */
    loch_attributes attributes() const { return loch_allocator_get_attributes(need()); }
    /** Tells whether the host may read and write the memory that the allocator hands out. */
    bool is_on_host() const
    {
        return loch_attributes_has(attributes(), LOCH_ATTRIBUTE_ON_HOST) ||
               loch_device_can(loch_allocator_get_device(need()), LOCH_CAN_HOST_ACCESS);
    }
    /** Returns the statistics of the allocator. */
    loch_stats stats() const
    {
        loch_stats stats{};
        stats.size = sizeof stats;
        check(loch_allocator_get_stats(need(), &stats));
        return stats;
    }
    /** Gives cached memory back until at most `keep_bytes` are cached. Returns the number of bytes given back. */
    std::size_t trim(std::size_t keep_bytes = 0) const
    {
        std::size_t released = 0;
        check(loch_allocator_trim(need(), keep_bytes, &released));
        return released;
    }

  private:
    explicit allocator(loch_allocator *raw) noexcept : shared(raw) {}
};

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
    place &tagged(loch_tag tag) noexcept { return options_.tag = tag, *this; }
    /** Fills the memory with zeros. */
    place &zeroed() noexcept { return options_.flags |= LOCH_ALLOC_ZEROED, *this; }
    /** Sets how long to wait when memory is short, in nanoseconds. */
    place &patient(std::uint64_t timeout_ns) noexcept { return options_.timeout_ns = timeout_ns, *this; }
    /** Sets the name of the tensor, for people. Borrowed. */
    place &named(const char *name) noexcept { return options_.name = name, *this; }

    /** Returns the options for the C functions of tensors. Borrowed. */
    const loch_tensor_options *options() const noexcept { return &options_; }
    /** Returns the request for the C functions of allocators and buffers. */
    loch_request request() const noexcept
    {
        loch_request request{};
        request.size = sizeof request;
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

/* --- buffers --- */

namespace detail
{

/* Creates a buffer at a place. */
inline void create_buffer(std::size_t bytes, const place &where, loch_buffer **out)
{
    const loch_request request = where.request();
    const loch_tensor_options &options = *where.options();
    check(options.allocator ? loch_buffer_create(options.allocator, bytes, &request, out)
                            : loch_buffer_create_for_device(options.device, bytes, &request, out));
}

/* The methods of both kinds of buffer. */
template <class Handle> class buffer_calls : public Handle
{
  public:
    /** Returns the address of the buffer; nullptr for an empty buffer and for a movable one that is not pinned. */
    void *address() const { return loch_buffer_get_address(this->need()); }
    /** Returns the size of the buffer in bytes. */
    std::size_t bytes() const { return loch_buffer_get_bytes(this->need()); }
    /** Tells whether the host may read and write the buffer in place. */
    bool is_on_host() const { return loch_buffer_is_on_host(this->need()) != 0; }
    /** Returns the kind of memory of the buffer. */
    loch_memory_kind kind() const { return loch_buffer_get_kind(this->need()); }
    /** Returns the id of the buffer's memory: a number that is never used for another buffer of this process. */
    std::uint64_t id() const { return loch_buffer_get_id(this->need()); }
    /** Returns the device of the buffer; an empty handle for plain host memory that was wrapped. */
    loch::device device() const { return loch::device::retain(loch_buffer_get_device(this->need())); }
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
        loch_buffer_copy_options options{};
        options.size = sizeof options;
        options.stream = stream.get();
        check(loch_buffer_copy(this->need(), from.get(), &options));
    }
    /** Records that work queued on `stream` uses the buffer: its memory is not freed before that work has ended. */
    void record_use(stream_ref stream) { check(loch_buffer_record_use(this->need(), stream.get())); }

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
    static buffer wrap(void *address, std::size_t bytes, const loch_external *external = nullptr)
    {
        buffer made;
        check(loch_buffer_wrap(address, bytes, external, made.slot()));
        return made;
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
        if (n > SIZE_MAX / sizeof(T))
            check(loch_error_set(LOCH_E_OVERFLOW, nullptr, 0, "%zu elements of %zu bytes do not fit", n, sizeof(T)));
        if (alignof(T) > alignof(std::max_align_t) && where.options()->alignment < alignof(T))
            where.aligned(alignof(T));
        unique_buffer made(n * sizeof(T), where.zeroed());
        if (!made.is_on_host())
            check(loch_error_set(LOCH_E_UNSUPPORTED, nullptr, 0, "the host cannot reach the memory of a host_array"));
        if (loch_stream *stream = where.options()->stream)
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

/** An allocator for the containers of std::pmr. The host must be able to access its memory; throws LOCH_E_UNSUPPORTED
 *  otherwise. */
class memory_resource final : public std::pmr::memory_resource
{
  public:
    /** Makes a resource that allocates from `from`, with a tag for the statistics. */
    explicit memory_resource(loch::allocator from, loch_tag tag = 0) : allocator_(std::move(from)), tag_(tag)
    {
        if (!allocator_.is_on_host())
            check(loch_error_set(LOCH_E_UNSUPPORTED, nullptr, 0, "the host cannot reach the memory of \"%s\"",
                                 allocator_.name()));
    }
    /** Returns the allocator of the resource. Borrowed. */
    const loch::allocator &allocator() const noexcept { return allocator_; }

  private:
    void *do_allocate(std::size_t bytes, std::size_t alignment) override
    {
        loch_request request{};
        request.size = sizeof request;
        request.bytes = bytes ? bytes : 1; /* every allocation needs a unique address */
        request.alignment = alignment;
        request.tag = tag_;
        void *block = nullptr;
        if (loch_allocator_alloc(allocator_.get(), &request, &block) != LOCH_OK) throw std::bad_alloc();
        /* Earlier work on the default stream may still use the block, and a container writes to it at once. */
        loch_stream *const stream = loch_stream_get_default(loch_allocator_get_device(allocator_.get()));
        if (loch_stream_sync(stream) != LOCH_OK) {
            do_deallocate(block, bytes, alignment);
            throw std::bad_alloc();
        }
        return block;
    }
    void do_deallocate(void *block, std::size_t, std::size_t) override
    {
        /* A failure cannot be reported: containers deallocate in destructors. The error record has it. */
        const loch_status status = loch_allocator_free(allocator_.get(), block);
        static_cast<void>(status);
    }
    bool do_is_equal(const std::pmr::memory_resource &other) const noexcept override
    {
        const auto *same = dynamic_cast<const memory_resource *>(&other);
        return same && same->allocator_.get() == allocator_.get();
    }

    loch::allocator allocator_;
    loch_tag tag_;
};

/* --- tensors --- */

/** A list of sizes, strides or indices, held by value: at most LOCH_DIMENSIONS_MAX of them. Throws LOCH_E_INVALID for
 *  more. */
class sizes
{
  public:
    /** Makes an empty list: the shape of a scalar. */
    sizes() noexcept = default;
    /** Makes a list from braces: {2, 3}. */
    sizes(std::initializer_list<std::int64_t> list) : sizes(list.begin(), list.size()) {}
    /** Makes a list from a vector. */
    sizes(const std::vector<std::int64_t> &list) : sizes(list.data(), list.size()) {}
    /** Makes a list from `count` numbers. */
    sizes(const std::int64_t *first, std::size_t count) : count_(count)
    {
        if (count > LOCH_DIMENSIONS_MAX)
            check(loch_error_set(LOCH_E_INVALID, nullptr, 0, "%zu dimensions are more than %d", count,
                                 LOCH_DIMENSIONS_MAX));
        for (std::size_t i = 0; i < count; i++)
            list_[i] = first[i];
    }
    /** Returns the address of the first number. */
    const std::int64_t *data() const noexcept { return list_.data(); }
    /** Returns the number of numbers. */
    std::size_t size() const noexcept { return count_; }
    /** Returns an iterator at the first number. */
    const std::int64_t *begin() const noexcept { return list_.data(); }
    /** Returns an iterator past the last number. */
    const std::int64_t *end() const noexcept { return list_.data() + count_; }
    /** Returns a number. The index is not checked. */
    std::int64_t operator[](std::size_t i) const noexcept { return list_[i]; }
    /** Tells whether two lists are equal. */
    friend bool operator==(const sizes &a, const sizes &b) noexcept
    {
        if (a.count_ != b.count_) return false;
        for (std::size_t i = 0; i < a.count_; i++)
            if (a.list_[i] != b.list_[i]) return false;
        return true;
    }
    /** Tells whether two lists differ. */
    friend bool operator!=(const sizes &a, const sizes &b) noexcept { return !(a == b); }

  private:
    std::array<std::int64_t, LOCH_DIMENSIONS_MAX> list_{};
    std::size_t count_ = 0;
};

/** A tensor: a shared handle of a loch_tensor. A view is a tensor that shares the memory of another. */
class tensor : public detail::shared<loch_tensor>
{
  public:
    /** Makes an empty handle. */
    tensor() noexcept = default;
    /** Takes another reference on a tensor of the caller. */
    static tensor retain(loch_tensor *raw) noexcept { return tensor(loch_tensor_retain(raw)); }
    /** Takes over the caller's reference. */
    static tensor take(loch_tensor *raw) noexcept { return tensor(raw); }

    /** @name Create */
    /** @{ */
    /** Creates a tensor. The contents are undefined unless the place says zeroed. */
    static tensor empty(loch_dtype dtype, const sizes &shape, const place &where = {})
    {
        tensor made;
        check(loch_tensor_create(dtype, shape.size(), shape.data(), where.options(), made.slot()));
        return made;
    }
    /** Creates a tensor of type T. The contents are undefined unless the place says zeroed. */
    template <class T> static tensor empty(const sizes &shape, const place &where = {})
    {
        return empty(dtype_of<T>(), shape, where);
    }
    /** Creates a tensor of type T filled with zeros. */
    template <class T> static tensor zeros(const sizes &shape, place where = {})
    {
        return empty(dtype_of<T>(), shape, where.zeroed());
    }
    /** Creates a tensor of type T with all elements equal to `value`. */
    template <class T> static tensor full(const sizes &shape, T value, const place &where = {})
    {
        tensor made = empty(dtype_of<T>(), shape, where);
        made.fill(value, where.options()->stream);
        return made;
    }
    /** Creates a tensor and copies its elements from host memory, in row-major order. */
    template <class T> static tensor from(const T *elements, const sizes &shape, const place &where = {})
    {
        tensor made;
        check(
            loch_tensor_create_from(dtype_of<T>(), shape.size(), shape.data(), elements, where.options(), made.slot()));
        return made;
    }
    /** Creates a tensor with one dimension and copies its elements from braces. */
    template <class T> static tensor from(std::initializer_list<T> elements, const place &where = {})
    {
        return from(elements.begin(), {static_cast<std::int64_t>(elements.size())}, where);
    }
    /** Creates a tensor with one dimension and copies its elements from a vector. */
    template <class T> static tensor from(const std::vector<T> &elements, const place &where = {})
    {
        return from(elements.data(), {static_cast<std::int64_t>(elements.size())}, where);
    }
    /** Makes a tensor on external memory without copying it (loch_tensor_wrap). */
    template <class T> static tensor wrap(T *elements, const sizes &shape, const loch_external *external = nullptr)
    {
        tensor made;
        check(loch_tensor_wrap(dtype_of<T>(), shape.size(), shape.data(), elements, external, made.slot()));
        return made;
    }
    /** Makes a tensor on a buffer, in row-major order, `offset_bytes` from the start of the buffer. */
    static tensor on(const loch::buffer &memory, loch_dtype dtype, const sizes &shape, std::size_t offset_bytes = 0)
    {
        tensor made;
        check(
            loch_tensor_create_in(memory.get(), offset_bytes, dtype, shape.size(), shape.data(), nullptr, made.slot()));
        return made;
    }
    /** @} */

    /** @name Properties */
    /** @{ */
    /** Returns the type of the elements. */
    loch_dtype dtype() const { return loch_tensor_get_dtype(need()); }
    /** Returns the number of dimensions; 0 for a scalar. */
    std::size_t dimensions() const { return loch_tensor_get_dimensions(need()); }
    /** Returns the sizes of all dimensions. */
    sizes shape() const { return {loch_tensor_get_shape(need()), loch_tensor_get_dimensions(need())}; }
    /** Returns the strides of all dimensions, in elements. */
    sizes strides() const { return {loch_tensor_get_strides(need()), loch_tensor_get_dimensions(need())}; }
    /** Returns the size along an axis; a negative axis counts from the end. -1 if there is no such axis. */
    std::int64_t size(int axis) const { return loch_tensor_get_size(need(), axis); }
    /** Returns the number of elements. */
    std::size_t elements() const { return loch_tensor_get_elements(need()); }
    /** Returns the bytes of all elements, counted as if contiguous. */
    std::size_t bytes() const { return loch_tensor_get_bytes(need()); }
    /** Tells whether the elements are contiguous in row-major order. */
    bool is_contiguous() const { return loch_tensor_is_contiguous(need()) != 0; }
    /** Tells whether the host may read and write the elements in place. */
    bool is_on_host() const { return loch_tensor_is_on_host(need()) != 0; }
    /** Returns the name of the tensor; "" if it has none. Borrowed. */
    const char *name() const { return loch_tensor_get_name(need()); }
    /** Returns the buffer of the tensor. */
    loch::buffer buffer() const { return loch::buffer::retain(loch_tensor_get_buffer(need())); }
    /** Returns the device of the tensor; an empty handle for plain host memory that was wrapped. */
    loch::device device() const { return loch::device::retain(loch_tensor_get_device(need())); }
    /** Returns the address of the element with all indices 0, on whatever device. */
    void *address() const
    {
        void *address = nullptr;
        check(loch_tensor_get_address(need(), &address));
        return address;
    }
    /** Returns the address of the element with all indices 0, for the host. Throws LOCH_E_INVALID if the type is not
     *  T, and for read-only memory (data<const float>() reads it); LOCH_E_UNSUPPORTED if the host cannot access the
     *  memory. */
    template <class T> T *data() const
    {
        if (dtype() != dtype_of<T>())
            check(loch_error_set(LOCH_E_INVALID, nullptr, 0, "elements are %s, not %s", loch_dtype_name(dtype()),
                                 loch_dtype_name(dtype_of<T>())));
        if (!is_on_host())
            check(loch_error_set(LOCH_E_UNSUPPORTED, nullptr, 0, "the host cannot reach the elements; see to()"));
        if (!std::is_const_v<T> && loch_tensor_get_access(need()) == LOCH_READ_ONLY)
            check(loch_error_set(LOCH_E_INVALID, nullptr, 0, "the memory is read-only: it must not be written"));
        return static_cast<T *>(address());
    }
    /** @} */

    /** @name Views (no element is copied) */
    /** @{ */
    /** Makes a view with another shape and the same number of elements. */
    tensor view(const sizes &shape) const { return make(loch_tensor_view, shape.size(), shape.data()); }
    /** Makes a view of the same bits as type T. */
    template <class T> tensor view_as() const { return make(loch_tensor_view_as, dtype_of<T>()); }
    /** Makes a view of the elements start, start + step, ... before stop along an axis. */
    tensor slice(int axis, std::int64_t start, std::int64_t stop = LOCH_OPEN, std::int64_t step = 1) const
    {
        return make(loch_tensor_slice, axis, start, stop, step);
    }
    /** Selects one index along `axis`; the result has one dimension less. */
    tensor index(int axis, std::int64_t at) const { return make(loch_tensor_index, axis, at); }
    /** Selects one index along the first axis; the result has one dimension less. */
    tensor operator[](std::int64_t at) const { return index(0, at); }
    /** Makes a view with two axes exchanged. */
    tensor transpose(int axis, int other) const { return make(loch_tensor_transpose, axis, other); }
    /** Makes a view with all axes in another order: axis i of the view is axis axes[i] of the tensor. */
    tensor permute(std::initializer_list<int> axes) const
    {
        return make(loch_tensor_permute, axes.size(), axes.begin());
    }
    /** Makes a view without the axes of size 1. */
    tensor squeeze() const { return make(loch_tensor_squeeze); }
    /** Makes a view without one axis, which must have size 1. */
    tensor squeeze(int axis) const { return make(loch_tensor_squeeze_axis, axis); }
    /** Makes a view with a new axis of size 1 before `axis`; -1 adds it after the last. */
    tensor unsqueeze(int axis) const { return make(loch_tensor_unsqueeze, axis); }
    /** Makes a view that repeats elements along axes of size 1, as NumPy broadcasts. */
    tensor expand(const sizes &shape) const { return make(loch_tensor_expand, shape.size(), shape.data()); }
    /** @} */

    /** @name Contents */
    /** @{ */
    /** Returns a tensor with another shape: a view if the strides allow it, otherwise a copy. */
    tensor reshape(const sizes &shape) const { return make(loch_tensor_reshape, shape.size(), shape.data(), nullptr); }
    /** Returns a contiguous tensor with the same elements: this one if it is contiguous, otherwise a copy. */
    tensor contiguous() const { return make(loch_tensor_contiguous, nullptr); }
    /** Returns a contiguous tensor with the same elements: this one if it is contiguous, otherwise a copy at
     *  `where`. */
    tensor contiguous(const place &where) const { return make(loch_tensor_contiguous, where.options()); }
    /** Copies the tensor to new memory of the same allocator. */
    tensor clone() const { return make(loch_tensor_clone, nullptr); }
    /** Copies the tensor to new memory at `where`. */
    tensor clone(const place &where) const { return make(loch_tensor_clone, where.options()); }
    /** Returns the tensor at `where`: this one if nothing changes, otherwise a copy. */
    tensor to(const place &where) const { return make(loch_tensor_to, LOCH_DTYPE_NONE, where.options()); }
    /** Returns the tensor as another type: this one if nothing changes, otherwise a copy. */
    tensor to(loch_dtype dtype) const { return make(loch_tensor_to, dtype, nullptr); }
    /** Returns the tensor as another type at `where`: this one if nothing changes, otherwise a copy. */
    tensor to(loch_dtype dtype, const place &where) const { return make(loch_tensor_to, dtype, where.options()); }
    /** Returns the tensor as type T: this one if nothing changes, otherwise a copy. */
    template <class T> tensor to() const { return to(dtype_of<T>()); }

    /** Copies all elements of a tensor with the same shape into this one. Queued with a stream; waits on the host
     *  without one. */
    void copy_from(const tensor &from, stream_ref stream = nullptr) const
    {
        loch_tensor_copy_options options{};
        options.size = sizeof options;
        options.stream = stream.get();
        check(loch_tensor_copy(need(), from.need(), &options));
    }
    /** Sets all elements to `value`. Queued with a stream; waits on the host without one. */
    template <class T> void fill(T value, stream_ref stream = nullptr) const
    {
        check(loch_tensor_fill(need(), scalar_of(value), stream.get()));
    }
    /** Reads all elements into `count` elements of host memory, in row-major order, and waits on the host. Throws
     *  LOCH_E_INVALID if the type is not T. */
    template <class T> void read(T *to, std::size_t count, stream_ref stream = nullptr) const
    {
        check(loch_tensor_read(need_type<T>(), to, multiply<T>(count), stream.get()));
    }
    /** Writes all elements from `count` elements of host memory, in row-major order, and waits on the host. Throws
     *  LOCH_E_INVALID if the type is not T. */
    template <class T> void write(const T *from, std::size_t count, stream_ref stream = nullptr) const
    {
        check(loch_tensor_write(need_type<T>(), from, multiply<T>(count), stream.get()));
    }
    /** Reads one element, converted to T; without indices the element of a scalar. Waits on the host. */
    template <class T> T item(const sizes &indices = {}) const
    {
        loch_scalar scalar;
        T value{};
        check(loch_tensor_read_item(need(), indices.size(), indices.data(), nullptr, &scalar));
        check(loch_scalar_store(scalar, dtype_of<T>(), &value));
        return value;
    }
    /** Writes one element, converted from T. Waits on the host. */
    template <class T> void set_item(const sizes &indices, T value) const
    {
        check(loch_tensor_write_item(need(), indices.size(), indices.data(), scalar_of(value), nullptr));
    }
    /** @} */

    /** @name Text */
    /** @{ */
    /** Returns the elements as text (loch_tensor_print). */
    std::string str(const loch_print_options *options = nullptr) const
    {
        return text([&](char *to, std::size_t bytes, std::size_t *length) {
            return loch_tensor_print(need(), options, to, bytes, length);
        });
    }
    /** Returns one line about the tensor without its elements: "f32[2, 3], 24 bytes on cuda:0". */
    std::string describe() const
    {
        return text([&](char *to, std::size_t bytes, std::size_t *length) {
            return loch_tensor_describe(need(), to, bytes, length);
        });
    }
    /** Prints the elements of a tensor to a stream; "(empty)" for an empty handle. */
    friend std::ostream &operator<<(std::ostream &out, const tensor &shown)
    {
        return out << (shown ? shown.str() : std::string("(empty)"));
    }
    /** @} */

  private:
    explicit tensor(loch_tensor *raw) noexcept : shared(raw) {}

    /* Calls a C function that makes a tensor from this one. */
    template <class Function, class... Arguments> tensor make(Function *function, Arguments... arguments) const
    {
        tensor made;
        check(function(need(), arguments..., made.slot()));
        return made;
    }
    template <class T> loch_tensor *need_type() const
    {
        if (dtype() != dtype_of<T>())
            check(loch_error_set(LOCH_E_INVALID, nullptr, 0, "elements are %s, not %s", loch_dtype_name(dtype()),
                                 loch_dtype_name(dtype_of<T>())));
        return need();
    }
    template <class T> static std::size_t multiply(std::size_t count)
    {
        if (count > SIZE_MAX / sizeof(T))
            check(
                loch_error_set(LOCH_E_OVERFLOW, nullptr, 0, "%zu elements of %zu bytes do not fit", count, sizeof(T)));
        return count * sizeof(T);
    }
    /* Calls a print function twice: for the length, then for the text. */
    template <class Format> static std::string text(Format format)
    {
        std::size_t length = 0;
        check(format(nullptr, std::size_t{0}, &length));
        std::string made(length, '\0');
        check(format(made.data(), length + 1, &length)); /* the final zero overwrites that of the string */
        return made;
    }
};

} // namespace loch

#endif

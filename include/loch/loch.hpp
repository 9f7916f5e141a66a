/* SPDX-License-Identifier: MIT */
/** @file loch.hpp
 *  Loch for C++17: handles that release by themselves, failures as exceptions, tensors with methods. Header only.
 *
 *      loch::tensor a = loch::tensor::full({2, 3}, 1.5f);
 *      std::cout << a.transpose(0, 1).to(loch::device("sim:1GiB,backed")) << '\n';
 *
 *  - Everything is done by the C functions of the same names, whose comments hold here too. A handle's get() gives what they take.
 *  - A failure is a loch::error with the status and the sentence. Destructors and moves do not throw.
 *  - Copies of device, allocator, buffer and tensor are further references on the same object; unique_buffer, stream and
 *    host_array are moved only. An empty handle (made without arguments, or moved from) may be asked, assigned and destroyed; every
 *    other use of it is a loch::error with LOCH_E_INVALID.
 *  - Nothing is allocated here but what the C functions allocate, and the std::string of those that return one.
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

/* --- failing --- */

/** A call's failure: its status and the sentence that the thread's record had. */
class error : public std::exception
{
  public:
    explicit error(const loch_error &record) noexcept : record_(record) {}

    loch_status status() const noexcept { return record_.status; }
    /** The sentence. */
    const char *what() const noexcept override
    {
        return record_.sentence[0] ? record_.sentence : loch_status_text(record_.status);
    }
    /** "cuda", or "" when no driver was involved. */
    const char *driver() const noexcept { return record_.driver ? record_.driver : ""; }
    /** The driver's own code; 0 for none. */
    long driver_code() const noexcept { return record_.driver_code; }

  private:
    loch_error record_;
};

/** Throws what a status tells, unless it is LOCH_OK. */
inline void check(loch_status status)
{
    if (status == LOCH_OK) return;
    loch_error record = *loch_error_get();
    if (record.status != status) { /* a status that came from elsewhere */
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

/** The type of element that T is: dtype_of<float>() is LOCH_F32. A T that is none does not compile. */
template <class T> constexpr loch_dtype dtype_of() noexcept
{
    constexpr loch_dtype dtype = detail::find_dtype<std::remove_cv_t<T>>();
    static_assert(dtype != LOCH_DTYPE_NONE, "no type of element");
    return dtype;
}

/** A number of any type as a scalar. */
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

/* One reference, given back at the end; moved only. */
template <class T> class owned
{
  public:
    /** What the C functions take; NULL for an empty handle. Borrowed. */
    T *get() const noexcept { return held_; }
    explicit operator bool() const noexcept { return held_ != nullptr; }
    /** The same as get, but an empty handle is an error. */
    T *need() const
    {
        if (!held_) check(loch_error_set(LOCH_E_INVALID, nullptr, 0, "the loch::%s is empty", calls<T>::name));
        return held_;
    }
    /** Gives the reference to the caller, who releases it; the handle is empty then. */
    [[nodiscard]] T *release() noexcept { return std::exchange(held_, nullptr); }
    /** Gives the reference back now. */
    void reset() noexcept { calls<T>::release(release()); }

  protected:
    owned() noexcept = default;
    explicit owned(T *held) noexcept : held_(held) {}
    owned(owned &&other) noexcept : held_(other.release()) {}
    owned &operator=(owned &&other) noexcept
    {
        T *taken = other.release(); /* first: `other` may be this one */
        reset();
        held_ = taken;
        return *this;
    }
    owned(const owned &) = delete;
    owned &operator=(const owned &) = delete;
    ~owned() { reset(); }

    /* For C functions with an out-argument. */
    T **slot() noexcept
    {
        reset();
        return &held_;
    }

  private:
    T *held_ = nullptr;
};

/* The same with copies, which are further references. */
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

/** A device. */
class device : public detail::shared<loch_device>
{
  public:
    device() noexcept = default;
    /** Opens a device by name: "cpu", "cuda:0", "sim:8GiB,backed". */
    explicit device(const char *name) { check(loch_device_open(name, slot())); }
    /** Takes another reference on one that the caller has. */
    static device retain(loch_device *raw) noexcept { return device(loch_device_retain(raw)); }
    /** Takes the caller's reference over. */
    static device take(loch_device *raw) noexcept { return device(raw); }

    const char *name() const { return loch_device_get_name(need()); }
    bool can(std::uint32_t capabilities) const { return loch_device_can(need(), capabilities) != 0; }
    loch_device_properties properties() const
    {
        loch_device_properties properties{};
        properties.size = sizeof properties;
        check(loch_device_get_properties(need(), &properties));
        return properties;
    }
    /** Waits for all of its work. */
    void sync() const { check(loch_device_sync(need())); }

  private:
    explicit device(loch_device *raw) noexcept : shared(raw) {}
};

/** A stream. Copies share it; the last one ends it. */
class stream : public detail::shared<loch_stream>
{
  public:
    stream() noexcept = default;
    explicit stream(const device &of, const loch_stream_options *options = nullptr)
    {
        check(loch_stream_create(of.get(), options, slot()));
    }
    /** Takes the caller's reference over. */
    static stream take(loch_stream *raw) noexcept { return stream(raw); }
    /** Shares a stream that somebody else holds. */
    static stream retain(loch_stream *raw) noexcept { return stream(loch_stream_retain(raw)); }

    std::uint64_t id() const { return loch_stream_get_id(need()); }
    /** Waits for its work. */
    void sync() const { check(loch_stream_sync(need())); }
    /** Whether all its work has ended. */
    bool is_idle() const
    {
        const loch_status status = loch_stream_query(need());
        if (status != LOCH_E_BUSY) check(status);
        return status == LOCH_OK;
    }

  private:
    explicit stream(loch_stream *raw) noexcept : shared(raw) {}
};

/** A stream as an argument: a loch::stream, a plain one, or none, which is the default stream. */
class stream_ref
{
  public:
    stream_ref(std::nullptr_t = nullptr) noexcept {}
    stream_ref(loch_stream *raw) noexcept : raw_(raw) {}
    stream_ref(const stream &of) : raw_(of.need()) {}
    loch_stream *get() const noexcept { return raw_; }

  private:
    loch_stream *raw_ = nullptr;
};

/** An allocator. */
class allocator : public detail::shared<loch_allocator>
{
  public:
    allocator() noexcept = default;
    /** The default allocator of a device, for these attributes. */
    explicit allocator(const device &of, loch_attributes attributes = {})
    {
        check(loch_device_acquire_allocator(of.get(), attributes, LOCH_FALLBACK_NONE, slot()));
    }
    /** A new pool. */
    static allocator pool(const device &of, const char *name = nullptr, const loch_pool_options *options = nullptr)
    {
        allocator made;
        check(loch_pool_create(of.get(), name, options, made.slot()));
        return made;
    }
    /** A new allocator with one driver call a block. */
    static allocator direct(const device &of, const char *name = nullptr, const loch_direct_options *options = nullptr)
    {
        allocator made;
        check(loch_direct_create(of.get(), name, options, made.slot()));
        return made;
    }
    /** Takes another reference on one that the caller has. */
    static allocator retain(loch_allocator *raw) noexcept { return allocator(loch_allocator_retain(raw)); }
    /** Takes the caller's reference over. */
    static allocator take(loch_allocator *raw) noexcept { return allocator(raw); }

    const char *name() const { return loch_allocator_get_name(need()); }
    const char *kind() const { return loch_allocator_get_kind(need()); }
    loch::device device() const { return loch::device::retain(loch_allocator_get_device(need())); }
    loch_attributes attributes() const { return loch_allocator_get_attributes(need()); }
    /** Whether the host may read and write what it hands out. */
    bool is_on_host() const
    {
        return loch_attributes_has(attributes(), LOCH_ATTRIBUTE_ON_HOST) ||
               loch_device_can(loch_allocator_get_device(need()), LOCH_CAN_HOST_ACCESS);
    }
    loch_stats stats() const
    {
        loch_stats stats{};
        stats.size = sizeof stats;
        check(loch_allocator_get_stats(need(), &stats));
        return stats;
    }
    /** Gives cached memory back; returns how much. */
    std::size_t trim(std::size_t keep_bytes = 0) const
    {
        std::size_t released = 0;
        check(loch_allocator_trim(need(), keep_bytes, &released));
        return released;
    }

  private:
    explicit allocator(loch_allocator *raw) noexcept : shared(raw) {}
};

/** Where memory comes from: a device, an allocator, or nothing, which is the host; and what else is wanted of it. It keeps the
 *  device and the allocator alive, and borrows the stream and the name:
 *  `tensor::zeros<float>({4}, place(gpu).on(stream).named("weights"))`. */
class place
{
  public:
    place() noexcept { options_.size = sizeof options_; }
    place(loch::device where) : place()
    {
        options_.device = where.need();
        device_ = std::move(where);
    }
    place(loch::allocator from) : place()
    {
        options_.allocator = from.need();
        allocator_ = std::move(from);
    }
    place &on(stream_ref stream) noexcept { return options_.stream = stream.get(), *this; }
    place &aligned(std::size_t alignment) noexcept { return options_.alignment = alignment, *this; }
    place &rounded(std::size_t multiple) noexcept { return options_.round_bytes = multiple, *this; }
    place &tagged(loch_tag tag) noexcept { return options_.tag = tag, *this; }
    place &zeroed() noexcept { return options_.flags |= LOCH_ALLOC_ZEROED, *this; }
    place &patient(std::uint64_t timeout_ns) noexcept { return options_.timeout_ns = timeout_ns, *this; }
    place &named(const char *name) noexcept { return options_.name = name, *this; }

    const loch_tensor_options *options() const noexcept { return &options_; }
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
    loch::device device_;       /* what options_ points to */
    loch::allocator allocator_; /* the same */
};

/* --- buffers --- */

namespace detail
{

/* Makes a buffer as a place says. */
inline void create_buffer(std::size_t bytes, const place &where, loch_buffer **out)
{
    const loch_request request = where.request();
    const loch_tensor_options &options = *where.options();
    check(options.allocator ? loch_buffer_create(options.allocator, bytes, &request, out)
                            : loch_buffer_create_for_device(options.device, bytes, &request, out));
}

/* What both kinds of buffer can do. */
template <class Handle> class buffer_calls : public Handle
{
  public:
    void *address() const { return loch_buffer_get_address(this->need()); }
    std::size_t bytes() const { return loch_buffer_get_bytes(this->need()); }
    bool is_on_host() const { return loch_buffer_is_on_host(this->need()) != 0; }
    loch_memory_kind kind() const { return loch_buffer_get_kind(this->need()); }
    std::uint64_t id() const { return loch_buffer_get_id(this->need()); }
    loch::device device() const { return loch::device::retain(loch_buffer_get_device(this->need())); }
    void resize(std::size_t bytes, loch_contents contents = LOCH_CONTENTS_KEEP, stream_ref stream = nullptr)
    {
        check(loch_buffer_resize(this->need(), bytes, contents, stream.get()));
    }
    /** Fills it with a pattern of 1, 2 or 4 bytes. */
    template <class T> void fill(T pattern, stream_ref stream = nullptr)
    {
        static_assert(std::is_trivially_copyable_v<T>, "a pattern is bytes");
        check(loch_buffer_fill(this->need(), &pattern, sizeof pattern, stream.get()));
    }
    /** Copies another buffer of the same size into this one; queued with a stream, waited for without. */
    template <class Other> void copy_from(const buffer_calls<Other> &from, stream_ref stream = nullptr)
    {
        loch_buffer_copy_options options{};
        options.size = sizeof options;
        options.stream = stream.get();
        check(loch_buffer_copy(this->need(), from.get(), &options));
    }
    void record_use(stream_ref stream) { check(loch_buffer_record_use(this->need(), stream.get())); }

  protected:
    buffer_calls() noexcept = default;
    explicit buffer_calls(loch_buffer *raw) noexcept : Handle(raw) {}
};

} // namespace detail

/** Memory with one owner. Moved only; a loch::buffer can be made of it. */
class unique_buffer : public detail::buffer_calls<detail::owned<loch_buffer>>
{
  public:
    unique_buffer() noexcept = default;
    explicit unique_buffer(std::size_t bytes, const place &where = {}) { detail::create_buffer(bytes, where, slot()); }
    unique_buffer(unique_buffer &&) noexcept = default;
    unique_buffer &operator=(unique_buffer &&) noexcept = default;
    /** Takes the caller's reference over, the only one. */
    static unique_buffer take(loch_buffer *raw) noexcept { return unique_buffer(raw); }

  private:
    explicit unique_buffer(loch_buffer *raw) noexcept : buffer_calls(raw) {}
};

/** Memory that is shared: a copy is a further reference on it. */
class buffer : public detail::buffer_calls<detail::shared<loch_buffer>>
{
  public:
    buffer() noexcept = default;
    explicit buffer(std::size_t bytes, const place &where = {}) { detail::create_buffer(bytes, where, slot()); }
    buffer(unique_buffer &&from) noexcept : buffer_calls(from.release()) {}
    /** Takes another reference on one that the caller has. */
    static buffer retain(loch_buffer *raw) noexcept { return buffer(loch_buffer_retain(raw)); }
    /** Takes the caller's reference over. */
    static buffer take(loch_buffer *raw) noexcept { return buffer(raw); }
    /** Memory from outside; see loch_buffer_wrap. */
    static buffer wrap(void *address, std::size_t bytes, const loch_external *external = nullptr)
    {
        buffer made;
        check(loch_buffer_wrap(address, bytes, external, made.slot()));
        return made;
    }

    /** A part, which keeps the whole alive. */
    buffer slice(std::size_t offset, std::size_t bytes) const
    {
        buffer part;
        check(loch_buffer_slice(need(), offset, bytes, part.slot()));
        return part;
    }
    std::size_t references() const { return loch_buffer_get_references(need()); }

  private:
    explicit buffer(loch_buffer *raw) noexcept : buffer_calls(raw) {}
};

/** `n` elements that the host reads and writes, zeroed. Moved only. Memory that the host cannot reach is refused: LOCH_E_UNSUPPORTED. */
template <class T> class host_array
{
    static_assert(std::is_trivially_copyable_v<T> && std::is_trivially_destructible_v<T>, "elements are plain memory");

  public:
    using value_type = T;

    host_array() noexcept = default;
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
            check(loch_stream_sync(stream)); /* zeroes are queued on it */
        data_ = static_cast<T *>(made.address());
        size_ = n;
        buffer_ = std::move(made);
    }
    host_array(host_array &&other) noexcept
        : buffer_(std::move(other.buffer_)), data_(std::exchange(other.data_, nullptr)),
          size_(std::exchange(other.size_, std::size_t{0}))
    {
    }
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

    T *data() noexcept { return data_; }
    const T *data() const noexcept { return data_; }
    std::size_t size() const noexcept { return size_; }
    std::size_t size_in_bytes() const noexcept { return size_ * sizeof(T); }
    bool empty() const noexcept { return size_ == 0; }
    T *begin() noexcept { return data_; }
    T *end() noexcept { return data_ + size_; }
    const T *begin() const noexcept { return data_; }
    const T *end() const noexcept { return data_ + size_; }
    /** Not checked, as of a std::vector. */
    T &operator[](std::size_t i) noexcept { return data_[i]; }
    const T &operator[](std::size_t i) const noexcept { return data_[i]; }
    /** Checked: LOCH_E_OUT_OF_RANGE. */
    T &at(std::size_t i) { return data_[checked(i)]; }
    const T &at(std::size_t i) const { return data_[checked(i)]; }

  private:
    std::size_t checked(std::size_t i) const
    {
        if (i >= size_) check(loch_error_set(LOCH_E_OUT_OF_RANGE, nullptr, 0, "element %zu of %zu", i, size_));
        return i;
    }

    unique_buffer buffer_; /* is not resized: data_ stays */
    T *data_ = nullptr;
    std::size_t size_ = 0;
};

/** An allocator for the containers of std::pmr. The host has to reach its memory: LOCH_E_UNSUPPORTED otherwise. */
class memory_resource final : public std::pmr::memory_resource
{
  public:
    explicit memory_resource(loch::allocator from, loch_tag tag = 0) : allocator_(std::move(from)), tag_(tag)
    {
        if (!allocator_.is_on_host())
            check(loch_error_set(LOCH_E_UNSUPPORTED, nullptr, 0, "the host cannot reach the memory of \"%s\"",
                                 allocator_.name()));
    }
    const loch::allocator &allocator() const noexcept { return allocator_; }

  private:
    void *do_allocate(std::size_t bytes, std::size_t alignment) override
    {
        loch_request request{};
        request.size = sizeof request;
        request.bytes = bytes ? bytes : 1; /* every allocation has an address of its own */
        request.alignment = alignment;
        request.tag = tag_;
        void *block = nullptr;
        if (loch_allocator_alloc(allocator_.get(), &request, &block) != LOCH_OK) throw std::bad_alloc();
        /* The block is free in the order of the default stream, and a container writes to it at once. */
        loch_stream *const stream = loch_stream_get_default(loch_allocator_get_device(allocator_.get()));
        if (loch_stream_sync(stream) != LOCH_OK) {
            do_deallocate(block, bytes, alignment);
            throw std::bad_alloc();
        }
        return block;
    }
    void do_deallocate(void *block, std::size_t, std::size_t) override
    {
        /* Nobody could hear of a failure: containers deallocate in destructors. The thread's record has it. */
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

/** Sizes, strides or indices, by value: at most LOCH_DIMENSIONS_MAX of them. */
class sizes
{
  public:
    sizes() noexcept = default;
    sizes(std::initializer_list<std::int64_t> list) : sizes(list.begin(), list.size()) {}
    sizes(const std::vector<std::int64_t> &list) : sizes(list.data(), list.size()) {}
    sizes(const std::int64_t *first, std::size_t count) : count_(count)
    {
        if (count > LOCH_DIMENSIONS_MAX)
            check(loch_error_set(LOCH_E_INVALID, nullptr, 0, "%zu dimensions are more than %d", count,
                                 LOCH_DIMENSIONS_MAX));
        for (std::size_t i = 0; i < count; i++)
            list_[i] = first[i];
    }
    const std::int64_t *data() const noexcept { return list_.data(); }
    std::size_t size() const noexcept { return count_; }
    const std::int64_t *begin() const noexcept { return list_.data(); }
    const std::int64_t *end() const noexcept { return list_.data() + count_; }
    std::int64_t operator[](std::size_t i) const noexcept { return list_[i]; }
    friend bool operator==(const sizes &a, const sizes &b) noexcept
    {
        if (a.count_ != b.count_) return false;
        for (std::size_t i = 0; i < a.count_; i++)
            if (a.list_[i] != b.list_[i]) return false;
        return true;
    }
    friend bool operator!=(const sizes &a, const sizes &b) noexcept { return !(a == b); }

  private:
    std::array<std::int64_t, LOCH_DIMENSIONS_MAX> list_{};
    std::size_t count_ = 0;
};

/** A tensor: a shared handle. Views are tensors too, and share the memory. */
class tensor : public detail::shared<loch_tensor>
{
  public:
    tensor() noexcept = default;
    /** Takes another reference on one that the caller has. */
    static tensor retain(loch_tensor *raw) noexcept { return tensor(loch_tensor_retain(raw)); }
    /** Takes the caller's reference over. */
    static tensor take(loch_tensor *raw) noexcept { return tensor(raw); }

    /** @name Making */
    /** @{ */
    /** Contents are undefined unless the place says zeroed. */
    static tensor empty(loch_dtype dtype, const sizes &shape, const place &where = {})
    {
        tensor made;
        check(loch_tensor_create(dtype, shape.size(), shape.data(), where.options(), made.slot()));
        return made;
    }
    template <class T> static tensor empty(const sizes &shape, const place &where = {})
    {
        return empty(dtype_of<T>(), shape, where);
    }
    template <class T> static tensor zeros(const sizes &shape, place where = {})
    {
        return empty(dtype_of<T>(), shape, where.zeroed());
    }
    template <class T> static tensor full(const sizes &shape, T value, const place &where = {})
    {
        tensor made = empty(dtype_of<T>(), shape, where);
        made.fill(value, where.options()->stream);
        return made;
    }
    /** With elements of the host, row after row, which are copied. */
    template <class T> static tensor from(const T *elements, const sizes &shape, const place &where = {})
    {
        tensor made;
        check(
            loch_tensor_create_from(dtype_of<T>(), shape.size(), shape.data(), elements, where.options(), made.slot()));
        return made;
    }
    template <class T> static tensor from(std::initializer_list<T> elements, const place &where = {})
    {
        return from(elements.begin(), {static_cast<std::int64_t>(elements.size())}, where);
    }
    template <class T> static tensor from(const std::vector<T> &elements, const place &where = {})
    {
        return from(elements.data(), {static_cast<std::int64_t>(elements.size())}, where);
    }
    /** On elements from outside, which are not copied; see loch_tensor_wrap. */
    template <class T> static tensor wrap(T *elements, const sizes &shape, const loch_external *external = nullptr)
    {
        tensor made;
        check(loch_tensor_wrap(dtype_of<T>(), shape.size(), shape.data(), elements, external, made.slot()));
        return made;
    }
    /** On a buffer, row after row. */
    static tensor on(const loch::buffer &memory, loch_dtype dtype, const sizes &shape, std::size_t offset_bytes = 0)
    {
        tensor made;
        check(
            loch_tensor_create_in(memory.get(), offset_bytes, dtype, shape.size(), shape.data(), nullptr, made.slot()));
        return made;
    }
    /** @} */

    /** @name Questions */
    /** @{ */
    loch_dtype dtype() const { return loch_tensor_get_dtype(need()); }
    std::size_t dimensions() const { return loch_tensor_get_dimensions(need()); }
    sizes shape() const { return {loch_tensor_get_shape(need()), loch_tensor_get_dimensions(need())}; }
    sizes strides() const { return {loch_tensor_get_strides(need()), loch_tensor_get_dimensions(need())}; }
    std::int64_t size(int axis) const { return loch_tensor_get_size(need(), axis); }
    std::size_t elements() const { return loch_tensor_get_elements(need()); }
    std::size_t bytes() const { return loch_tensor_get_bytes(need()); }
    bool is_contiguous() const { return loch_tensor_is_contiguous(need()) != 0; }
    bool is_on_host() const { return loch_tensor_is_on_host(need()) != 0; }
    const char *name() const { return loch_tensor_get_name(need()); }
    loch::buffer buffer() const { return loch::buffer::retain(loch_tensor_get_buffer(need())); }
    loch::device device() const { return loch::device::retain(loch_tensor_get_device(need())); }
    /** Where its first element is, on whatever device. */
    void *address() const
    {
        void *address = nullptr;
        check(loch_tensor_get_address(need(), &address));
        return address;
    }
    /** The same for the host: LOCH_E_INVALID for another type, and for memory that must not be written (data<const float>() reads
     *  it); LOCH_E_UNSUPPORTED for memory that the host cannot reach. */
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

    /** @name Views: no element is copied */
    /** @{ */
    tensor view(const sizes &shape) const { return make(loch_tensor_view, shape.size(), shape.data()); }
    template <class T> tensor view_as() const { return make(loch_tensor_view_as, dtype_of<T>()); }
    tensor slice(int axis, std::int64_t start, std::int64_t stop = LOCH_OPEN, std::int64_t step = 1) const
    {
        return make(loch_tensor_slice, axis, start, stop, step);
    }
    tensor index(int axis, std::int64_t at) const { return make(loch_tensor_index, axis, at); }
    tensor operator[](std::int64_t at) const { return index(0, at); }
    tensor transpose(int axis, int other) const { return make(loch_tensor_transpose, axis, other); }
    tensor permute(std::initializer_list<int> axes) const
    {
        return make(loch_tensor_permute, axes.size(), axes.begin());
    }
    tensor squeeze() const { return make(loch_tensor_squeeze); }
    tensor squeeze(int axis) const { return make(loch_tensor_squeeze_axis, axis); }
    tensor unsqueeze(int axis) const { return make(loch_tensor_unsqueeze, axis); }
    tensor expand(const sizes &shape) const { return make(loch_tensor_expand, shape.size(), shape.data()); }
    /** @} */

    /** @name Contents */
    /** @{ */
    /** A view where the strides allow it, else a copy. */
    tensor reshape(const sizes &shape) const { return make(loch_tensor_reshape, shape.size(), shape.data(), nullptr); }
    /** The same elements side by side: this one where they are already. */
    tensor contiguous() const { return make(loch_tensor_contiguous, nullptr); }
    tensor contiguous(const place &where) const { return make(loch_tensor_contiguous, where.options()); }
    tensor clone() const { return make(loch_tensor_clone, nullptr); }
    tensor clone(const place &where) const { return make(loch_tensor_clone, where.options()); }
    /** On another device, as another type; this one where nothing would change. */
    tensor to(const place &where) const { return make(loch_tensor_to, LOCH_DTYPE_NONE, where.options()); }
    tensor to(loch_dtype dtype) const { return make(loch_tensor_to, dtype, nullptr); }
    tensor to(loch_dtype dtype, const place &where) const { return make(loch_tensor_to, dtype, where.options()); }
    template <class T> tensor to() const { return to(dtype_of<T>()); }

    /** Copies all elements of another tensor with this shape; queued with a stream, waited for without. */
    void copy_from(const tensor &from, stream_ref stream = nullptr) const
    {
        loch_tensor_copy_options options{};
        options.size = sizeof options;
        options.stream = stream.get();
        check(loch_tensor_copy(need(), from.need(), &options));
    }
    template <class T> void fill(T value, stream_ref stream = nullptr) const
    {
        check(loch_tensor_fill(need(), scalar_of(value), stream.get()));
    }
    /** Reads all elements, row after row, into `count` of the host's. The types have to be the same. */
    template <class T> void read(T *to, std::size_t count, stream_ref stream = nullptr) const
    {
        check(loch_tensor_read(need_type<T>(), to, multiply<T>(count), stream.get()));
    }
    template <class T> void write(const T *from, std::size_t count, stream_ref stream = nullptr) const
    {
        check(loch_tensor_write(need_type<T>(), from, multiply<T>(count), stream.get()));
    }
    /** One element, converted to T; without indices that of a scalar. */
    template <class T> T item(const sizes &indices = {}) const
    {
        loch_scalar scalar;
        T value{};
        check(loch_tensor_read_item(need(), indices.size(), indices.data(), nullptr, &scalar));
        check(loch_scalar_store(scalar, dtype_of<T>(), &value));
        return value;
    }
    template <class T> void set_item(const sizes &indices, T value) const
    {
        check(loch_tensor_write_item(need(), indices.size(), indices.data(), scalar_of(value), nullptr));
    }
    /** @} */

    /** @name As text */
    /** @{ */
    std::string str(const loch_print_options *options = nullptr) const
    {
        return text([&](char *to, std::size_t bytes, std::size_t *length) {
            return loch_tensor_print(need(), options, to, bytes, length);
        });
    }
    /** One line without the elements: "f32[2, 3], 24 bytes on cuda:0". */
    std::string describe() const
    {
        return text([&](char *to, std::size_t bytes, std::size_t *length) {
            return loch_tensor_describe(need(), to, bytes, length);
        });
    }
    friend std::ostream &operator<<(std::ostream &out, const tensor &shown)
    {
        return out << (shown ? shown.str() : std::string("(empty)"));
    }
    /** @} */

  private:
    explicit tensor(loch_tensor *raw) noexcept : shared(raw) {}

    /* Calls what makes a tensor of this one. */
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
    /* Asks for the length, then for the text. */
    template <class Format> static std::string text(Format format)
    {
        std::size_t length = 0;
        check(format(nullptr, std::size_t{0}, &length));
        std::string made(length, '\0');
        check(format(made.data(), length + 1, &length)); /* the last zero takes the place of the string's own */
        return made;
    }
};

} // namespace loch

#endif

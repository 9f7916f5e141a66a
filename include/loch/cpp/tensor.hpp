/* SPDX-License-Identifier: MIT */
/** @file tensor.hpp
 *  Tensors: a shared handle of a loch_tensor, with views, contents and text as methods.
 */
#include <loch/cpp/require.hpp>
#if LOCH_CPP && !defined(LOCH_CPP_TENSOR_HPP)
#define LOCH_CPP_TENSOR_HPP

#include <loch/cpp/buffer.hpp>
#include <loch/cpp/dtype.hpp>
#include <loch/cpp/sizes.hpp>
#include <loch/print.h>
#include <loch/tensor.h>

#include <cstdio>
#include <ostream>
#include <string>
#include <vector>

namespace loch
{

namespace detail
{
template <> struct calls<loch_tensor> {
    static constexpr const char *name = "tensor";
    static loch_tensor *retain(loch_tensor *raw) noexcept { return loch_tensor_retain(raw); }
    static void release(loch_tensor *raw) noexcept { loch_tensor_release(raw); }
};
} // namespace detail

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
    template <class T>
    static tensor wrap(T *elements, const sizes &shape, const options<loch_external> &external = nullptr)
    {
        tensor made;
        check(loch_tensor_wrap(dtype_of<T>(), shape.size(), shape.data(), elements, external.get(), made.slot()));
        return made;
    }
    /** Makes a tensor on a buffer, in row-major order, `offset_bytes` from the start of the buffer. */
    static tensor on(const loch::buffer &memory, loch_dtype dtype, const sizes &shape, std::size_t offset_bytes = 0)
    {
        return on(memory, dtype, shape, offset_bytes, nullptr);
    }
    /** Makes a tensor on a buffer with strides, in elements. */
    static tensor on(const loch::buffer &memory, loch_dtype dtype, const sizes &shape, std::size_t offset_bytes,
                     const sizes &strides)
    {
        if (strides.size() != shape.size()) fail(LOCH_E_INVALID, "as many strides as sizes are needed");
        return on(memory, dtype, shape, offset_bytes, strides.data());
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
    /** Returns whether the elements may be written. */
    loch_access access() const { return loch_tensor_get_access(need()); }
    /** Returns the name of the tensor; "" if it has none. Borrowed. */
    const char *name() const { return loch_tensor_get_name(need()); }
    /** Returns the buffer of the tensor. */
    loch::buffer buffer() const { return loch::buffer::retain(loch_tensor_get_buffer(need())); }
    /** Returns the offset in bytes from the start of the buffer to the element with all indices 0. */
    std::size_t offset() const { return loch_tensor_get_offset(need()); }
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
        static_cast<void>(need_type<T>());
        if (!is_on_host()) fail(LOCH_E_UNSUPPORTED, "the host cannot reach the elements; see to()");
        if (!std::is_const_v<T> && access() == LOCH_READ_ONLY)
            fail(LOCH_E_INVALID, "the memory is read-only: it must not be written");
        return static_cast<T *>(address());
    }
    /** Returns all elements, for the host, in row-major order. Throws as data() does, and LOCH_E_INVALID if the
     *  elements are not contiguous. Does not wait for streams; loch::mapping does. */
    template <class T> loch::span<T> span() const
    {
        T *const first = data<T>();
        if (!is_contiguous()) fail(LOCH_E_INVALID, "the elements are not contiguous; see contiguous()");
        return {first, elements()};
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
    /** Makes up to `chunks` views by cutting the tensor along an axis into equal parts; the last may be smaller. */
    std::vector<tensor> chunk(int axis, std::size_t chunks) const
    {
        std::vector<loch_tensor *> raw(chunks);
        std::vector<tensor> parts;
        parts.reserve(chunks); /* before the call: nothing throws after it */
        std::size_t count = 0;
        check(loch_tensor_chunk(need(), axis, chunks, raw.data(), &count));
        for (std::size_t i = 0; i < count; i++)
            parts.push_back(take(raw[i]));
        return parts;
    }
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

    /** Returns the tensor on a device: this one if it is there, otherwise a copy. Queued with a stream; waits on the
     *  host without one. */
    tensor to_device(const loch::device &where, stream_ref stream = nullptr) const
    {
        return make(loch_tensor_to_device, where.need(), stream.get());
    }
    /** Copies all elements of a tensor with the same shape into this one. Queued with a stream; waits on the host
     *  without one. */
    void copy_from(const tensor &from, stream_ref stream = nullptr) const
    {
        auto how = sized<loch_tensor_copy_options>();
        how.stream = stream.get();
        copy_from(from, how);
    }
    /** Copies all elements of a tensor with the same shape into this one, with options. */
    void copy_from(const tensor &from, const loch_tensor_copy_options &how) const
    {
        check(loch_tensor_copy(need(), from.need(), options<loch_tensor_copy_options>(how).get()));
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
        check(loch_tensor_read(need_type<T>(), to, detail::bytes_of<T>(count), stream.get()));
    }
    /** Writes all elements from `count` elements of host memory, in row-major order, and waits on the host. Throws
     *  LOCH_E_INVALID if the type is not T. */
    template <class T> void write(const T *from, std::size_t count, stream_ref stream = nullptr) const
    {
        check(loch_tensor_write(need_type<T>(), from, detail::bytes_of<T>(count), stream.get()));
    }
    /** Reads one element, converted to T; without indices the element of a scalar. Waits on the host. */
    template <class T> T item(const sizes &indices = {}) const
    {
        loch_scalar scalar;
        check(loch_tensor_read_item(need(), indices.size(), indices.data(), nullptr, &scalar));
        return value_of<T>(scalar);
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
    std::string str(const options<loch_print_options> &how = nullptr) const
    {
        return detail::print([&](char *to, std::size_t bytes, std::size_t *length) {
            return loch_tensor_print(need(), how.get(), to, bytes, length);
        });
    }
    /** Returns one line about the tensor without its elements: "f32[2, 3], 24 bytes on cuda:0". */
    std::string describe() const
    {
        return detail::print([&](char *to, std::size_t bytes, std::size_t *length) {
            return loch_tensor_describe(need(), to, bytes, length);
        });
    }
    /** Prints the elements and a line end to a file. */
    void print_to(std::FILE *file, const options<loch_print_options> &how = nullptr) const
    {
        check(loch_tensor_print_to(need(), how.get(), file));
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
    static tensor on(const loch::buffer &memory, loch_dtype dtype, const sizes &shape, std::size_t offset_bytes,
                     const std::int64_t *strides)
    {
        tensor made;
        check(
            loch_tensor_create_in(memory.get(), offset_bytes, dtype, shape.size(), shape.data(), strides, made.slot()));
        return made;
    }
};

} // namespace loch

#endif

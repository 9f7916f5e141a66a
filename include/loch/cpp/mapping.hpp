/* SPDX-License-Identifier: MIT */
/** @file mapping.hpp
 *  The elements of a tensor at a host address, to the end of a block.
 */
#include <loch/cpp/require.hpp>
#if LOCH_CPP && !defined(LOCH_CPP_MAPPING_HPP)
#define LOCH_CPP_MAPPING_HPP

#include <loch/cpp/tensor.hpp>

namespace loch
{

/** The elements of a tensor of type T on the host, wherever the tensor is: `mapping<const float>` reads,
 *  `mapping<float>` reads and writes back at the end. Keeps the tensor. Not copied, not moved. */
template <class T> class [[nodiscard]] mapping : detail::fixed
{
  public:
    /** Maps a tensor after waiting on the host for a stream; nullptr for the default stream. Throws LOCH_E_INVALID if
     *  the type is not T. */
    explicit mapping(const tensor &of, stream_ref on = nullptr)
        : mapping(of, std::is_const_v<T> ? LOCH_MAP_READ : LOCH_MAP_READ_WRITE, on)
    {
    }
    /** Maps a tensor. LOCH_MAP_WRITE: the contents are undefined, and all elements are written. */
    mapping(const tensor &of, loch_map_access access, stream_ref on = nullptr)
        : stream_(on), shape_(of.shape()), elements_(of.elements())
    {
        if (of.dtype() != dtype_of<T>())
            check(loch_error_set(LOCH_E_INVALID, nullptr, 0, "elements are %s, not %s", loch_dtype_name(of.dtype()),
                                 loch_dtype_name(dtype_of<T>())));
        if (std::is_const_v<T> && access != LOCH_MAP_READ) fail(LOCH_E_INVALID, "a mapping of const elements reads");
        check(loch_tensor_map(of.need(), access, on.get(), &mapping_));
    }
    /** Ends the mapping and writes changes back. A failure is not reported; call unmap() to see it. */
    ~mapping() { detail::ignore(loch_tensor_unmap(&mapping_, stream_.get())); }

    /** Ends the mapping now: writes changes back and waits on the host. The mapping has ended even on failure. */
    void unmap()
    {
        const loch_status status = loch_tensor_unmap(&mapping_, stream_.get());
        mapping_ = loch_mapping{};
        check(status);
    }
    /** Returns the address of the element with all indices 0; NULL if there are no elements. */
    T *data() const noexcept { return static_cast<T *>(mapping_.address); }
    /** Returns the sizes of all dimensions. */
    const sizes &shape() const noexcept { return shape_; }
    /** Returns the strides of the mapping, in elements. */
    sizes strides() const { return {mapping_.strides, shape_.size()}; }
    /** Returns the element at indices. Throws LOCH_E_OUT_OF_RANGE for a wrong index. */
    T &at(const sizes &indices) const
    {
        std::int64_t offset = 0;
        if (indices.size() != shape_.size() || !mapping_.address)
            fail(LOCH_E_OUT_OF_RANGE, "as many indices as dimensions are needed");
        for (std::size_t i = 0; i < indices.size(); i++) {
            if (indices[i] < 0 || indices[i] >= shape_[i])
                check(loch_error_set(LOCH_E_OUT_OF_RANGE, nullptr, 0, "index %lld of %lld",
                                     static_cast<long long>(indices[i]), static_cast<long long>(shape_[i])));
            offset += indices[i] * mapping_.strides[i];
        }
        return data()[offset];
    }
    /** Returns all elements in row-major order. Throws LOCH_E_INVALID if they are not contiguous. */
    loch::span<T> span() const
    {
        std::int64_t expected = 1;
        for (std::size_t i = shape_.size(); i-- > 0; expected *= shape_[i])
            if (elements_ > 1 && shape_[i] != 1 && mapping_.strides[i] != expected)
                fail(LOCH_E_INVALID, "the elements are not contiguous; see at()");
        return {data(), elements_};
    }

  private:
    loch_mapping mapping_{};
    stream_ref stream_;
    sizes shape_;
    std::size_t elements_;
};

} // namespace loch

#endif

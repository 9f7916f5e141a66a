/* SPDX-License-Identifier: MIT */
/** @file dtype.hpp
 *  Types of elements: the loch_dtype of a C++ type, scalars, conversions, and the narrow floats.
 */
#include <loch/cpp/require.hpp>
#if LOCH_CPP && !defined(LOCH_CPP_DTYPE_HPP)
#define LOCH_CPP_DTYPE_HPP

#include <loch/cpp/argument.hpp>
#include <loch/dtype.h>

#include <type_traits>

namespace loch
{

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

/** Returns the name of a type: "f32". Static string. */
inline const char *name_of(loch_dtype dtype) noexcept
{
    return loch_dtype_name(dtype);
}
/** Returns the size of one element in bytes; 0 for a value that is not a type. */
inline std::size_t bytes_of(loch_dtype dtype) noexcept
{
    return loch_dtype_bytes(dtype);
}
/** Returns the type with a name, Loch's own, NumPy's or PyTorch's; LOCH_DTYPE_NONE if there is none. */
inline loch_dtype find_dtype(const text &name) noexcept
{
    return loch_dtype_find(name.get());
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

/** Returns the number of a scalar, converted to T as by loch_convert. */
template <class T> T value_of(const loch_scalar &scalar)
{
    T value{};
    check(loch_scalar_store(scalar, dtype_of<T>(), &value));
    return value;
}

/** Converts elements in memory that the host reads and writes (loch_convert). Throws LOCH_E_INVALID if the spans have
 *  different lengths. */
template <class To, class From>
void convert(span<To> to, span<From> from, const options<loch_convert_options> &how = nullptr)
{
    if (to.size() != from.size())
        check(loch_error_set(LOCH_E_INVALID, nullptr, 0, "%zu elements do not fit %zu", from.size(), to.size()));
    check(loch_convert(dtype_of<To>(), to.data(), dtype_of<From>(), from.data(), to.size(), how.get()));
}

/** Converts a number of a narrow type (f16, bf16, f8e4m3, f8e5m2) to a float, exactly. */
template <class T> float to_float(T value) noexcept
{
    static_assert(std::is_class_v<T>, "no narrow float");
    float wide = 0;
    detail::ignore(loch_convert(LOCH_F32, &wide, dtype_of<T>(), &value, 1, nullptr)); // valid types: cannot fail
    return wide;
}

/** Converts a float to a narrow float: from_float<loch_f16>(0.5f). Rounds to nearest, ties to even. */
template <class T> T from_float(float value) noexcept
{
    static_assert(std::is_class_v<T>, "no narrow float");
    T narrow{};
    detail::ignore(loch_convert(dtype_of<T>(), &narrow, LOCH_F32, &value, 1, nullptr)); // valid types: cannot fail
    return narrow;
}

} // namespace loch

#endif

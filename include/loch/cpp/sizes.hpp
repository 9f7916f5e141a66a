/* SPDX-License-Identifier: MIT */
/** @file sizes.hpp
 *  Shapes, strides and indices of tensors.
 */
#include <loch/cpp/require.hpp>
#if LOCH_CPP && !defined(LOCH_CPP_SIZES_HPP)
#define LOCH_CPP_SIZES_HPP

#include <loch/cpp/argument.hpp>
#include <loch/tensor.h>

#include <array>
#include <initializer_list>
#include <vector>

namespace loch
{

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

} // namespace loch

#endif

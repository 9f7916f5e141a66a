/* SPDX-License-Identifier: MIT */
/** @file argument.hpp
 *  Arguments: text, options and spans of memory, in the forms that C++ programs have them in.
 */
#include <loch/cpp/require.hpp>
#if LOCH_CPP && !defined(LOCH_CPP_ARGUMENT_HPP)
#define LOCH_CPP_ARGUMENT_HPP

#include <loch/cpp/error.hpp>

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>

namespace loch
{

/** A name or a path as an argument: a literal, a std::string, a std::string_view, or nullptr for none. Borrows the
 *  characters, except those of a std::string_view, which are copied because the C functions need a final zero. Throws
 *  LOCH_E_INVALID for a zero inside the text. */
class text
{
  public:
    /** Makes no text. */
    text(std::nullptr_t = nullptr) noexcept {}
    /** Borrows characters that end with a zero; NULL makes no text. */
    text(const char *characters) noexcept : characters_(characters) {}
    /** Borrows the characters of a string. */
    text(const std::string &string) : characters_(string.c_str()) { refuse_zero(string); }
    /** Copies characters. */
    text(std::string_view view) : own_(view), characters_(own_.c_str()) { refuse_zero(view); }
    text(const text &) = delete;
    text &operator=(const text &) = delete;
    ~text() = default;

    /** Returns the characters with a final zero; NULL for no text. */
    const char *get() const noexcept { return characters_; }

  private:
    static void refuse_zero(std::string_view view)
    {
        if (view.find('\0') != std::string_view::npos) fail(LOCH_E_INVALID, "a zero inside of a name or path");
    }

    std::string own_;
    const char *characters_ = nullptr;
};

/** The options of a call as an argument: nothing, a pointer, or a struct of the C interface, whose size member is set
 *  here if it is 0: `loch_pool_options how{}; how.limit_bytes = 1 << 30; loch::pool pool(gpu, "kv", how);` */
template <class T> class options
{
  public:
    /** Chooses the defaults. */
    options(std::nullptr_t = nullptr) noexcept {}
    /** Borrows a struct; NULL chooses the defaults. */
    options(const T *borrowed) noexcept : used_(borrowed) {}
    /** Copies a struct. */
    options(const T &value) noexcept : own_(value), used_(&own_)
    {
        if (own_.size == 0) own_.size = sizeof own_;
    }
    options(const options &) = delete;
    options &operator=(const options &) = delete;
    ~options() = default;

    /** Returns the struct for the C functions; NULL for the defaults. */
    const T *get() const noexcept { return used_; }
    /** Returns a copy of the struct with its size member set. */
    T value() const noexcept
    {
        T copy{};
        if (used_) copy = *used_;
        if (copy.size == 0) copy.size = sizeof copy;
        return copy;
    }

  private:
    T own_{};
    const T *used_ = nullptr;
};

/** Returns a struct of the C interface that is all zero except for its size member. */
template <class T> T sized() noexcept
{
    T made{};
    made.size = sizeof made;
    return made;
}

/** A range of `size()` elements in memory, borrowed. Converts from containers and arrays, as std::span of C++20 does,
 *  and a std::span can be made of it. */
template <class T> class span
{
  public:
    /** Type of an element. */
    using element_type = T;
    /** Type of an element without const. */
    using value_type = std::remove_cv_t<T>;

    /** Makes an empty span. */
    constexpr span() noexcept = default;
    /** Makes a span of `count` elements. */
    constexpr span(T *first, std::size_t count) noexcept : first_(first), count_(count) {}
    /** Makes a span of an array. */
    template <std::size_t N> constexpr span(T (&array)[N]) noexcept : first_(array), count_(N) {}
    /** Makes a span of the elements of a container that has data() and size(). */
    template <
        class Container,
        class = std::enable_if_t<
            !std::is_array_v<std::remove_reference_t<Container>> &&
            std::is_convertible_v<std::remove_pointer_t<decltype(std::declval<Container &>().data())> (*)[], T (*)[]> &&
            std::is_convertible_v<decltype(std::declval<Container &>().size()), std::size_t>>>
    constexpr span(Container &&container) noexcept : first_(container.data()), count_(container.size())
    {
    }

    /** Returns the address of the first element. */
    constexpr T *data() const noexcept { return first_; }
    /** Returns the number of elements. */
    constexpr std::size_t size() const noexcept { return count_; }
    /** Returns the size of all elements in bytes. */
    constexpr std::size_t size_bytes() const noexcept { return count_ * sizeof(T); }
    /** Tells whether the span has no elements. */
    constexpr bool empty() const noexcept { return count_ == 0; }
    /** Returns an iterator at the first element. */
    constexpr T *begin() const noexcept { return first_; }
    /** Returns an iterator past the last element. */
    constexpr T *end() const noexcept { return first_ + count_; }
    /** Returns an element. The index is not checked, as in std::span. */
    constexpr T &operator[](std::size_t i) const noexcept { return first_[i]; }
    /** Returns an element. Throws LOCH_E_OUT_OF_RANGE for a wrong index. */
    constexpr T &at(std::size_t i) const
    {
        if (i >= count_) check(loch_error_set(LOCH_E_OUT_OF_RANGE, nullptr, 0, "element %zu of %zu", i, count_));
        return first_[i];
    }

  private:
    T *first_ = nullptr;
    std::size_t count_ = 0;
};

namespace detail
{

/* Calls a print function twice: for the length, then for the text. The text of something that changes meanwhile may
 * be longer at the second call: then once more. */
template <class Format> std::string print(Format format)
{
    std::string made;
    for (std::size_t length = 0;; made.resize(length)) {
        const std::size_t bytes = made.empty() ? 0 : made.size() + 1; /* the string has room for the final zero */
        check(format(bytes ? made.data() : nullptr, bytes, &length));
        if (length > made.size()) continue;
        made.resize(length);
        return made;
    }
}

/* Multiplies a number of elements by the size of one. */
template <class T> std::size_t bytes_of(std::size_t count)
{
    if (count > SIZE_MAX / sizeof(T))
        check(loch_error_set(LOCH_E_OVERFLOW, nullptr, 0, "%zu elements of %zu bytes do not fit", count, sizeof(T)));
    return count * sizeof(T);
}

/* A span of time or a setting that ends with its block: not copied, not moved. */
class fixed
{
  public:
    fixed(const fixed &) = delete;
    fixed &operator=(const fixed &) = delete;

  protected:
    fixed() noexcept = default;
    ~fixed() = default;
};

} // namespace detail

} // namespace loch

#endif

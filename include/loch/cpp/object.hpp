/* SPDX-License-Identifier: MIT */
/** @file object.hpp
 *  What all handles have in common: one pointer to an object of the C interface. An owner has one reference or is the
 *  only owner, a shared handle can be copied, a borrowed one releases nothing.
 */
#include <loch/cpp/require.hpp>
#if LOCH_CPP && !defined(LOCH_CPP_OBJECT_HPP)
#define LOCH_CPP_OBJECT_HPP

#include <loch/cpp/argument.hpp>

#include <utility>

namespace loch
{

namespace detail
{

/* For each type of the C interface: its name for messages, how it is released, and, if it is counted, retained. */
template <class T> struct calls;

/* Throws LOCH_E_INVALID for an empty handle. */
template <class T> T *need(T *held)
{
    if (!held) check(loch_error_set(LOCH_E_INVALID, nullptr, 0, "the loch::%s is empty", calls<T>::name));
    return held;
}

/* A handle with one reference, released by the destructor. Can only be moved. */
template <class T> class owned
{
  public:
    /** Returns the C object; NULL for an empty handle. Borrowed. */
    T *get() const noexcept { return held_; }
    /** Tells whether the handle holds an object. */
    explicit operator bool() const noexcept { return held_ != nullptr; }
    /** Returns the C object. Borrowed. Throws LOCH_E_INVALID for an empty handle. */
    T *need() const { return detail::need(held_); }
    /** Gives the reference to the caller. The caller releases it. The handle is empty then. */
    [[nodiscard]] T *release() noexcept { return std::exchange(held_, nullptr); }
    /** Releases the reference now. The handle is empty then. A failure is not reported. */
    void reset() noexcept
    {
        if (T *held = release()) calls<T>::release(held);
    }

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
    shared(const shared &other) noexcept : owned<T>(other.get() ? calls<T>::retain(other.get()) : nullptr) {}
    shared &operator=(const shared &other) noexcept
    {
        if (this != &other) owned<T>::operator=(shared(other));
        return *this;
    }
    ~shared() = default;
};

/* A handle that owns nothing: the object lives as long as that of its owner. */
template <class T> class borrowed
{
  public:
    /** Makes an empty handle. */
    borrowed() noexcept = default;
    /** Borrows an object of the C interface. */
    borrowed(T *object) noexcept : held_(object) {}
    /** Returns the C object; NULL for an empty handle. */
    T *get() const noexcept { return held_; }
    /** Tells whether the handle holds an object. */
    explicit operator bool() const noexcept { return held_ != nullptr; }
    /** Returns the C object. Throws LOCH_E_INVALID for an empty handle. */
    T *need() const { return detail::need(held_); }

  private:
    T *held_ = nullptr;
};

} // namespace detail

} // namespace loch

#endif

/* SPDX-License-Identifier: MIT */
/** @file copy.hpp
 *  Copying and filling memory on any device: the functions of copy.h, and their forms for spans of elements.
 */
#include <loch/cpp/require.hpp>
#if LOCH_CPP && !defined(LOCH_CPP_COPY_HPP)
#define LOCH_CPP_COPY_HPP

#include <loch/copy.h>
#include <loch/cpp/stream.hpp>

namespace loch
{

/** Copies `bytes` and waits on the host until they have arrived. */
inline void copy(void *to, const void *from, std::size_t bytes)
{
    check(loch_copy(to, from, bytes));
}
/** Queues a copy on a stream and returns. Without a stream (nullptr) it is the default stream. */
inline void copy_on(void *to, const void *from, std::size_t bytes, stream_ref on)
{
    check(loch_copy_on(to, from, bytes, on.get()));
}
/** Copies `bytes` with options: direction, stream and waiting. */
inline void copy(void *to, const void *from, std::size_t bytes, const options<loch_copy_options> &how)
{
    check(loch_copy_with(to, from, bytes, how.get()));
}
/** Copies the elements of a span to a span of as many elements, and waits on the host. Throws LOCH_E_INVALID if the
 *  lengths differ. */
template <class T> void copy(span<T> to, span<const T> from)
{
    if (to.size() != from.size())
        check(loch_error_set(LOCH_E_INVALID, nullptr, 0, "%zu elements do not fit %zu", from.size(), to.size()));
    check(loch_copy(to.data(), from.data(), to.size_bytes()));
}
/** Copies rows in one driver call where the driver supports it. */
inline void copy_pitched(void *to, const void *from, const loch_pitched &shape,
                         const options<loch_copy_options> &how = nullptr)
{
    check(loch_copy_pitched(to, from, &shape, how.get()));
}
/** Fills `bytes` with a repeated pattern of 1, 2 or 4 bytes, and waits on the host. */
template <class T> void fill(void *to, std::size_t bytes, T pattern)
{
    static_assert(std::is_trivially_copyable_v<T>, "a pattern is bytes");
    check(loch_fill(to, bytes, &pattern, sizeof pattern));
}
/** Queues a fill with a repeated pattern of 1, 2 or 4 bytes on a stream and returns. */
template <class T> void fill_on(void *to, std::size_t bytes, T pattern, stream_ref on)
{
    static_assert(std::is_trivially_copyable_v<T>, "a pattern is bytes");
    check(loch_fill_on(to, bytes, &pattern, sizeof pattern, on.get()));
}
/** Fills `bytes` with a repeated pattern of 1, 2 or 4 bytes with options: stream and waiting. */
template <class T> void fill(void *to, std::size_t bytes, T pattern, const options<loch_copy_options> &how)
{
    static_assert(std::is_trivially_copyable_v<T>, "a pattern is bytes");
    check(loch_fill_with(to, bytes, &pattern, sizeof pattern, how.get()));
}

} // namespace loch

#endif

/* SPDX-License-Identifier: MIT */
/** @file stats.hpp
 *  Statistics as text, and sums of them.
 */
#include <loch/cpp/require.hpp>
#if LOCH_CPP && !defined(LOCH_CPP_STATS_HPP)
#define LOCH_CPP_STATS_HPP

#include <loch/cpp/argument.hpp>
#include <loch/stats.h>

namespace loch
{

/** Returns statistics as lines for people, or as one JSON object. */
inline std::string str(const loch_stats &stats, loch_format format = LOCH_FORMAT_TEXT)
{
    return detail::print([&](char *to, std::size_t bytes, std::size_t *length) {
        return loch_stats_print(&stats, format, to, bytes, length);
    });
}
/** Returns the fragmentation of the cached bytes, from 0 to 1. */
inline double fragmentation(const loch_stats &stats) noexcept
{
    return loch_stats_fragmentation(&stats);
}
/** Adds statistics to others, each figure by its own rule. */
inline void add(loch_stats &to, const loch_stats &more) noexcept
{
    loch_stats_add(&to, &more);
}
/** Returns the value that `fraction` (0 to 1) of the counted values do not exceed. */
inline std::uint64_t percentile(const loch_histogram &of, double fraction) noexcept
{
    return loch_histogram_percentile(&of, fraction);
}

} // namespace loch

#endif

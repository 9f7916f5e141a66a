/* SPDX-License-Identifier: MIT */
/** @file profile.hpp
 *  Profiles of a span of work, and lists of live blocks.
 */
#include <loch/cpp/require.hpp>
#if LOCH_CPP && !defined(LOCH_CPP_PROFILE_HPP)
#define LOCH_CPP_PROFILE_HPP

#include <loch/cpp/allocator.hpp>
#include <loch/profile.h>

namespace loch
{

namespace detail
{
template <> struct calls<loch_profile> {
    static constexpr const char *name = "profile";
    static void release(loch_profile *raw) noexcept { loch_profile_end(raw, nullptr); }
};
template <> struct calls<loch_census> {
    static constexpr const char *name = "census";
    static void release(loch_census *raw) noexcept { loch_census_destroy(raw); }
};
} // namespace detail

/** A measurement of one allocator over a span of time. Can be moved but not copied. */
class [[nodiscard]] profile : public detail::owned<loch_profile>
{
  public:
    /** Makes an empty handle. */
    profile() noexcept = default;
    /** Begins a profile of an allocator. */
    explicit profile(const allocator &of, const text &label = "")
    {
        check(loch_profile_begin(of.get(), label.get(), slot()));
    }
    profile(profile &&) noexcept = default;
    profile &operator=(profile &&) noexcept = default;

    /** Returns the results so far. The label is borrowed from the profile. */
    loch_profile_report read() const
    {
        auto report = sized<loch_profile_report>();
        check(loch_profile_read(need(), &report));
        return report;
    }
    /** Ends the profile and returns the last results, without a label. The handle is empty then. */
    loch_profile_report end()
    {
        auto report = sized<loch_profile_report>();
        static_cast<void>(need());
        loch_profile_end(release(), &report);
        return report;
    }
};

/** Returns the report of a profile as one line, or as a JSON object. */
inline std::string str(const loch_profile_report &report, loch_format format = LOCH_FORMAT_TEXT)
{
    return detail::print([&](char *to, std::size_t bytes, std::size_t *length) {
        return loch_profile_print(&report, format, to, bytes, length);
    });
}

/** A list of the blocks that were live at one moment. Can be moved but not copied. */
class census : public detail::owned<loch_census>
{
  public:
    /** Makes an empty handle: as `before`, no blocks. */
    census() noexcept = default;
    /** Lists all live blocks of an allocator. */
    explicit census(const allocator &of) { check(loch_census_create(of.get(), slot())); }
    census(census &&) noexcept = default;
    census &operator=(census &&) noexcept = default;

    /** Calls `visitor(const loch_block &)` for the blocks that are here and not in `before`, in order of ids. */
    template <class Visitor> void walk(Visitor &&visitor, const census &before = {}) const
    {
        detail::walk<const loch_block *>(
            [&](const loch_block *block) { return visitor(*block); },
            [&](auto *function, void *user) { return loch_census_walk(need(), before.get(), function, user); });
    }
    /** Calls `visitor(const loch_census_tag &)` for the sums by tag of the blocks that are here and not in `before`,
     *  most bytes first. */
    template <class Visitor> void walk_tags(Visitor &&visitor, const census &before = {}) const
    {
        detail::walk<const loch_census_tag *>(
            [&](const loch_census_tag *sum) { return visitor(*sum); },
            [&](auto *function, void *user) { return loch_census_walk_tags(need(), before.get(), function, user); });
    }
    /** Returns the blocks that are here and not in `before`, as text or as a JSON object. */
    std::string str(loch_format format = LOCH_FORMAT_TEXT, const census &before = {}) const
    {
        return detail::print([&](char *to, std::size_t bytes, std::size_t *length) {
            return loch_census_print(need(), before.get(), format, to, bytes, length);
        });
    }
};

} // namespace loch

#endif

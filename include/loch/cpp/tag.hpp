/* SPDX-License-Identifier: MIT */
/** @file tag.hpp
 *  Tags: names of allocations, for statistics.
 */
#include <loch/cpp/require.hpp>
#if LOCH_CPP && !defined(LOCH_CPP_TAG_HPP)
#define LOCH_CPP_TAG_HPP

#include <loch/cpp/argument.hpp>
#include <loch/cpp/walk.hpp>
#include <loch/tag.h>

namespace loch
{

/** A tag: a number for a name, until the process ends. A value: copies are equal. */
class tag
{
  public:
    /** Makes no tag. */
    constexpr tag() noexcept = default;
    /** Names a tag of the C interface; 0 for none. */
    constexpr tag(loch_tag raw) noexcept : raw_(raw) {}
    /** Finds the tag of a name, and creates it on first use. A name has 1 to 63 characters. */
    explicit tag(const text &name) { check(loch_tag_create(name.get(), &raw_)); }

    /** Returns the number of the tag; 0 for none. */
    constexpr loch_tag get() const noexcept { return raw_; }
    /** Returns the number of the tag, for the structs of the C interface. */
    constexpr operator loch_tag() const noexcept { return raw_; }
    /** Returns the name of the tag; "" for none. Valid until the process ends. */
    const char *name() const noexcept { return loch_tag_name(raw_); }
    /** Calls `visitor(loch::tag, const char *name)` for all tags in order of creation. */
    template <class Visitor> static void walk(Visitor &&visitor)
    {
        detail::walk<loch_tag, const char *>([&](loch_tag raw, const char *name) { return visitor(tag(raw), name); },
                                             loch_tag_walk);
    }

  private:
    loch_tag raw_ = 0;
};

} // namespace loch

#endif

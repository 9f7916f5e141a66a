/* SPDX-License-Identifier: MIT */
/** @file timeline.hpp
 *  Timelines: timed spans of work that end with their block.
 *
 *      const loch::timeline::span attention = timeline.begin("attention", stream);
 */
#include <loch/cpp/require.hpp>
#if LOCH_CPP && !defined(LOCH_CPP_TIMELINE_HPP)
#define LOCH_CPP_TIMELINE_HPP

#include <loch/cpp/stream.hpp>
#include <loch/timeline.h>

namespace loch
{

namespace detail
{

template <> struct calls<loch_timeline> {
    static constexpr const char *name = "timeline";
    static void release(loch_timeline *raw) noexcept { loch_timeline_destroy(raw); }
};

/* A span of time on the calling thread, to the end of the block. An empty timeline records nothing. */
class [[nodiscard]] timed_span : fixed
{
  public:
    /** Begins a span. A span that cannot be stored counts as lost. */
    timed_span(loch_timeline *timeline, const text &name, const options<loch_span_options> &how = nullptr)
        : span_(loch_span_begin(timeline, name.get(), how.get()))
    {
    }
    /** Ends the span. */
    ~timed_span() { loch_span_end(&span_); }
    /** Ends the span now. */
    void end() noexcept
    {
        loch_span_end(&span_);
        span_ = loch_span{};
    }
    /** Tells whether the span is recorded and has not ended. */
    bool is_recorded() const noexcept { return span_.timeline != nullptr; }

  private:
    loch_span span_;
};

/* The methods of timelines, owned or of an engine. */
template <class Handle> class timeline_calls : public Handle
{
  public:
    /** A span of time on the calling thread, to the end of the block. Not copied, not moved. */
    using span = timed_span;

    timeline_calls() noexcept = default;
    explicit timeline_calls(loch_timeline *raw) noexcept : Handle(raw) {}

    /** Begins a span that ends with the block. */
    span begin(const text &name, const options<loch_span_options> &how = nullptr) const
    {
        return span(this->get(), name, how);
    }
    /** Begins a span that is also timed on the device of a stream. */
    span begin(const text &name, const stream &on) const
    {
        auto how = sized<loch_span_options>();
        how.stream = on.need();
        return span(this->get(), name, how);
    }
    /** Sets the highest level that is recorded from now on. */
    void set_level(int level) const { loch_timeline_set_level(this->need(), level); }
    /** Calls `visitor(const loch_span_record &)` for each ended span. The visitor must not begin or end spans. */
    template <class Visitor> void walk(Visitor &&visitor) const
    {
        detail::walk<const loch_span_record *>(
            [&](const loch_span_record *record) { return visitor(*record); },
            [&](auto *function, void *user) { return loch_timeline_walk(this->need(), function, user); });
    }
    /** Returns the number of ended spans that are kept. */
    std::size_t count() const
    {
        std::size_t kept = 0;
        loch_timeline_count(this->need(), &kept, nullptr);
        return kept;
    }
    /** Returns the number of spans that were lost. */
    std::uint64_t lost() const
    {
        std::uint64_t lost = 0;
        loch_timeline_count(this->need(), nullptr, &lost);
        return lost;
    }
    /** Removes all ended spans and resets the number of lost ones. */
    void forget() const { loch_timeline_forget(this->need()); }
    /** Returns the timeline as text: a tree, bars, or a trace for Chrome and Perfetto. */
    std::string str(loch_timeline_format format = LOCH_TIMELINE_TREE, std::size_t width = 0) const
    {
        return print([&](char *to, std::size_t bytes, std::size_t *length) {
            return loch_timeline_print(this->need(), format, width, to, bytes, length);
        });
    }
    /** Writes the timeline to a file. */
    void save(const text &path, loch_timeline_format format = LOCH_TIMELINE_TRACE, std::size_t width = 0) const
    {
        check(loch_timeline_save(this->need(), path.get(), format, width));
    }
};

} // namespace detail

/** The spans of all threads. Can be moved but not copied. No thread may have a span open at its end. */
class timeline : public detail::timeline_calls<detail::owned<loch_timeline>>
{
  public:
    /** Makes an empty handle. Its spans are not recorded. */
    timeline() noexcept = default;
    /** Creates a timeline. */
    explicit timeline(const options<loch_timeline_options> &how) { check(loch_timeline_create(how.get(), slot())); }
    /** Creates a timeline that records spans up to a level. */
    explicit timeline(int level)
    {
        auto how = sized<loch_timeline_options>();
        how.level = level;
        check(loch_timeline_create(&how, slot()));
    }
    timeline(timeline &&) noexcept = default;
    timeline &operator=(timeline &&) noexcept = default;
};

/** The timeline of an engine: borrowed. */
using timeline_ref = detail::timeline_calls<detail::borrowed<loch_timeline>>;

} // namespace loch

#endif

/* SPDX-License-Identifier: MIT */
/** @file sim.hpp
 *  Control of simulated devices: time, kernels, faults, the checker of stream order, and graphs.
 */
#include <loch/cpp/require.hpp>
#if LOCH_CPP && !defined(LOCH_CPP_SIM_HPP)
#define LOCH_CPP_SIM_HPP

#include <loch/cpp/stream.hpp>
#include <loch/sim.h>

namespace loch
{

namespace detail
{
template <> struct calls<loch_sim_graph> {
    static constexpr const char *name = "sim::graph";
    static void release(loch_sim_graph *raw) noexcept { loch_sim_graph_destroy(raw); }
};
} // namespace detail

/** The functions of sim.h. They throw LOCH_E_INVALID for a device or stream that is not simulated. */
namespace sim
{

/** Reads the clock of a device, in nanoseconds. */
inline std::uint64_t time(const device &of)
{
    std::uint64_t ns = 0;
    check(loch_sim_get_time(of.get(), &ns));
    return ns;
}
/** Advances the clock of a device by `ns` nanoseconds. */
inline void advance(const device &of, std::uint64_t ns)
{
    check(loch_sim_advance(of.get(), ns));
}
/** Sets the clock of a device to `ns` nanoseconds. */
inline void set_time(const device &of, std::uint64_t ns)
{
    check(loch_sim_set_time(of.get(), ns));
}
/** Advances the clock until the next operations on a stream have ended. */
inline void step(stream_ref on, std::size_t operations = 1)
{
    check(loch_sim_step(on.get(), operations));
}
/** Queues a simulated kernel on a stream. */
inline void launch(stream_ref on, const loch_sim_kernel &kernel)
{
    check(loch_sim_launch(on.get(), options<loch_sim_kernel>(kernel).get()));
}
/** Returns the figures of a device. */
inline loch_sim_stats stats(const device &of)
{
    auto found = sized<loch_sim_stats>();
    check(loch_sim_get_stats(of.get(), &found));
    return found;
}
/** Sets the fault of a device; nullptr removes it. */
inline void set_fault(const device &of, const options<loch_sim_fault> &fault)
{
    check(loch_sim_set_fault(of.get(), fault.get()));
}
/** Makes a device lost: every call throws LOCH_E_DEVICE_LOST from now on. */
inline void lose(const device &of)
{
    check(loch_sim_lose(of.get()));
}
/** Calls `visitor(const loch_sim_violation &)` for each violation of stream order, oldest first. */
template <class Visitor> void walk_violations(const device &of, Visitor &&visitor)
{
    detail::walk<const loch_sim_violation *>(
        [&](const loch_sim_violation *found) { return visitor(*found); },
        [&](auto *function, void *user) { return loch_sim_walk_violations(of.get(), function, user); });
}
/** Removes all violations of a device. */
inline void clear_violations(const device &of)
{
    check(loch_sim_clear_violations(of.get()));
}
/** Returns the number that violations use for a stream. */
inline std::uint64_t number_of(stream_ref on)
{
    std::uint64_t number = 0;
    check(loch_sim_get_stream_number(on.get(), &number));
    return number;
}

/** A graph: operations captured from streams. Can be moved but not copied. */
class graph : public detail::owned<loch_sim_graph>
{
  public:
    /** Makes an empty handle. */
    graph() noexcept = default;
    graph(graph &&) noexcept = default;
    graph &operator=(graph &&) noexcept = default;
    /** Takes over a graph of the caller. */
    static graph take(loch_sim_graph *raw) noexcept
    {
        graph made;
        *made.slot() = raw;
        return made;
    }
    /** Queues all operations of the graph on a stream. */
    void launch(stream_ref on) const { check(loch_sim_graph_launch(need(), on.get())); }
};

/** A capture of a stream to the end of the block, or until end(). Not copied, not moved. */
class [[nodiscard]] capture : detail::fixed
{
  public:
    /** Begins a capture on a stream. Work queued on it is recorded and not run. */
    explicit capture(stream_ref on) : stream_(on.get()) { check(loch_sim_capture_begin(on.get())); }
    /** Ends the capture without a graph. */
    ~capture()
    {
        if (!stream_) return;
        loch_sim_graph *unused = nullptr;
        detail::ignore(loch_sim_capture_end(stream_, &unused));
        loch_sim_graph_destroy(unused);
    }
    /** Ends the capture and returns its graph. It has ended even on failure. */
    graph end()
    {
        loch_sim_graph *made = nullptr;
        check(loch_sim_capture_end(std::exchange(stream_, nullptr), &made));
        return graph::take(made);
    }

  private:
    loch_stream *stream_;
};

} // namespace sim

} // namespace loch

#endif

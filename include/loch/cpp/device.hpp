/* SPDX-License-Identifier: MIT */
/** @file device.hpp
 *  Devices: a shared handle of a loch_device.
 */
#include <loch/cpp/require.hpp>
#if LOCH_CPP && !defined(LOCH_CPP_DEVICE_HPP)
#define LOCH_CPP_DEVICE_HPP

#include <loch/cpp/object.hpp>
#include <loch/cpp/walk.hpp>
#include <loch/device.h>

#include <string>
#include <vector>

namespace loch
{

namespace detail
{
template <> struct calls<loch_device> {
    static constexpr const char *name = "device";
    static loch_device *retain(loch_device *raw) noexcept { return loch_device_retain(raw); }
    static void release(loch_device *raw) noexcept { loch_device_release(raw); }
};
} // namespace detail

/** A device: a shared handle of a loch_device. A copy is another reference on the same device. */
class device : public detail::shared<loch_device>
{
  public:
    /** Makes an empty handle. */
    device() noexcept = default;
    /** Opens a device by name: "cpu", "cuda:0", "sim:8GiB". */
    explicit device(const text &name) { check(loch_device_open(name.get(), slot())); }
    /** Takes another reference on a device of the caller. */
    static device retain(loch_device *raw) noexcept { return device(loch_device_retain(raw)); }
    /** Takes over the caller's reference. */
    static device take(loch_device *raw) noexcept { return device(raw); }
    /** Returns the names of all devices of this machine that can be opened. */
    static std::vector<std::string> names()
    {
        std::vector<std::string> found;
        detail::walk<const char *>([&](const char *name) { found.emplace_back(name); }, loch_device_walk);
        return found;
    }

    /** Returns the name of the device. Borrowed. */
    const char *name() const { return loch_device_get_name(need()); }
    /** Tells whether the device has every capability in the set. */
    bool can(std::uint32_t capabilities) const { return loch_device_can(need(), capabilities) != 0; }
    /** Returns the properties of the device. */
    loch_device_properties properties() const
    {
        auto found = sized<loch_device_properties>();
        check(loch_device_get_properties(need(), &found));
        return found;
    }
    /** Reads the total and the free memory of the device now. Makes a driver call. */
    loch_memory_info memory() const
    {
        auto found = sized<loch_memory_info>();
        check(loch_device_calculate_memory(need(), &found));
        return found;
    }
    /** Waits on the host for all work of the device. */
    void sync() const { check(loch_device_sync(need())); }
    /** Lets this device access memory of `peer` by copies and by raw addresses. */
    void enable_peer(const device &peer) const { check(loch_device_enable_peer(need(), peer.need())); }
    /** Calls `visitor(const loch_call_count &)` for the counter of every driver call, in a fixed order. */
    template <class Visitor> void walk_calls(Visitor &&visitor) const
    {
        detail::walk<const loch_call_count *>(
            [&](const loch_call_count *count) { return visitor(*count); },
            [&](auto *function, void *user) { return loch_device_walk_calls(need(), function, user); });
    }
    /** Turns the timing of driver calls on or off, and sets all counters to zero. */
    void measure_calls(loch_measure measure) const { check(loch_device_measure_calls(need(), measure)); }

  private:
    explicit device(loch_device *raw) noexcept : shared(raw) {}
};

/** Returns the name of a kind of memory: "device", "pinned". Static string. */
inline const char *name_of(loch_memory_kind kind) noexcept
{
    return loch_memory_kind_name(kind);
}

} // namespace loch

#endif

/* SPDX-License-Identifier: MIT */
/** @file driver.hpp
 *  Drivers: tables of functions for new kinds of devices.
 */
#include <loch/cpp/require.hpp>
#if LOCH_CPP && !defined(LOCH_CPP_DRIVER_HPP)
#define LOCH_CPP_DRIVER_HPP

#include <loch/cpp/device.hpp>
#include <loch/driver.h>

namespace loch
{

/** The functions of driver.h. */
namespace driver
{

/** Registers a driver until the process ends. The functions of the table must not throw. */
inline void add(const loch_driver &table)
{
    check(loch_driver_register(&table));
}
/** Returns the table of a driver by name, with empty slots filled; NULL if there is none. */
inline const loch_driver *find(const text &name) noexcept
{
    return loch_driver_find(name.get());
}
/** Returns the driver of a device, and its `self`. Borrowed. */
inline const loch_driver *of(const device &device, void **self = nullptr)
{
    void *unused = nullptr;
    return loch_device_get_driver(device.need(), self ? self : &unused);
}
/** Calls `visitor(const loch_driver &)` for each driver in order of registration. */
template <class Visitor> void walk(Visitor &&visitor)
{
    detail::walk<const loch_driver *>([&](const loch_driver *table) { return visitor(*table); }, loch_driver_walk);
}
/** Returns the name of a driver call: "map"; NULL for a number that is not in the list. */
inline const char *name_of(loch_driver_call call) noexcept
{
    return loch_driver_call_name(call);
}

} // namespace driver

} // namespace loch

#endif

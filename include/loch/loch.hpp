/* SPDX-License-Identifier: MIT */
/** @file loch.hpp
 *  libloch for C++17. Header only; each noun has a header of its own in loch/cpp/. loch/tensor.hpp and loch/engine.hpp
 *  open libloch_tensor and libloch_engine.
 *
 *      const loch::device gpu("cuda:0");
 *      const loch::pool pool(gpu, "model");
 *      const loch::buffer weights(1 << 20, pool);
 *
 *  How it is made:
 *  - One class for each object of the C interface. The methods call the C functions of the same names; the comments of
 *    those hold here too. get() of a handle returns the object for the C functions.
 *  - A copy of a device, stream, allocator (pool, wrapper), buffer, tensor or parameter is another reference on one
 *    object, because those are counted. Every other handle has one owner and can only be moved. Objects that an engine
 *    or a context lends are `..._ref`: they own nothing.
 *  - A failure throws a loch::error with the status and the sentence. Destructors and moves do not throw: where an end
 *    can fail (close, end, unmap, wake), the method of that name throws and the destructor does not report.
 *  - An empty handle (default constructed, or moved from) may be tested, assigned and destroyed; every other use throws
 *    LOCH_E_INVALID.
 *  - Guards (forbid_moving, asleep, pin, mapping, session_guard, seat_lock, guard, pushed_pool, scratch, recording,
 *    registration, timeline::span, sim::capture) hold to the end of their block: [[nodiscard]], not copied, not moved.
 *  - Names and paths are loch::text: a literal, a std::string or a std::string_view. Memory is a loch::span<T>.
 *  - Options are the structs of the C interface; their size member is set where it is 0, and nullptr means defaults.
 *  - Visitors and tasks are any callable. An exception in one does not pass through C; it comes out of the call.
 *  - Only the C functions allocate memory here, strings and vectors that methods return, and the tasks of workers.
 */
#ifndef LOCH_LOCH_HPP
#define LOCH_LOCH_HPP

#include <loch/cpp/require.hpp>

#if LOCH_CPP
#include <loch/loch.h>

#include <loch/cpp/error.hpp>
#include <loch/cpp/argument.hpp>
#include <loch/cpp/object.hpp>
#include <loch/cpp/walk.hpp>
/* devices, streams and copies */
#include <loch/cpp/device.hpp>
#include <loch/cpp/stream.hpp>
#include <loch/cpp/copy.hpp>
/* allocators */
#include <loch/cpp/tag.hpp>
#include <loch/cpp/stats.hpp>
#include <loch/cpp/allocator.hpp>
#include <loch/cpp/pool.hpp>
#include <loch/cpp/moving.hpp>
#include <loch/cpp/sleep.hpp>
#include <loch/cpp/wrapper.hpp>
#include <loch/cpp/session.hpp>
#include <loch/cpp/registry.hpp>
#include <loch/cpp/recorder.hpp>
#include <loch/cpp/memory_resource.hpp>
/* buffers */
#include <loch/cpp/place.hpp>
#include <loch/cpp/buffer.hpp>
#include <loch/cpp/host_array.hpp>
/* memory directly from drivers, drivers, the simulator, the process */
#include <loch/cpp/virtual.hpp>
#include <loch/cpp/raw.hpp>
#include <loch/cpp/observer.hpp>
#include <loch/cpp/driver.hpp>
#include <loch/cpp/sim.hpp>
#include <loch/cpp/process.hpp>
#endif

#endif

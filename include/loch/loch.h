/* SPDX-License-Identifier: MIT */
/** @file loch.h
 *  All of libloch that most programs need: devices, streams, copies, pools and buffers. Include this header.
 *  loch/tensor.h opens libloch_tensor, and loch/engine.h opens libloch_engine.
 *
 *      #include <loch/loch.h>
 *
 *      loch_device *device;
 *      loch_allocator *pool;
 *      void *block;
 *      LOCH_CHECK(loch_device_open("cuda:0", &device));
 *      LOCH_CHECK(loch_device_acquire_default(device, &pool));
 *      LOCH_CHECK(loch_alloc(pool, 1 << 20, &block));
 *      LOCH_CHECK(loch_free(pool, block));
 *      loch_allocator_release(pool);
 *      loch_device_release(device);
 *
 *  Not included here, for special needs: raw.h (memory directly from a driver), virtual.h (virtual memory), observer.h
 *  (notification of memory ranges), driver.h (new kinds of devices), sim.h (control of simulated devices).
 *
 *  Thread cancellation (pthread_cancel): no function of Loch is a cancellation point. A thread is cancelled before or
 *  after a call, never inside, even if the call waits. Loch calls functions of the user with cancellation disabled.
 *  Exceptions: the functions of an allocator (loch_allocator_ops), of a host allocator and of a clock (host.h) are
 *  called without this protection and must contain no cancellation point. Asynchronous cancellation
 *  (PTHREAD_CANCEL_ASYNCHRONOUS) inside a call is undefined.
 */
#ifndef LOCH_LOCH_H
#define LOCH_LOCH_H

#include <loch/macros.h>
#include <loch/status.h>
#include <loch/check.h>
/* devices, streams and copies */
#include <loch/device.h>
#include <loch/stream.h>
#include <loch/copy.h>
/* allocators, wrappers, the registry, recordings and snapshots */
#include <loch/attributes.h>
#include <loch/tag.h>
#include <loch/stats.h>
#include <loch/allocator.h>
#include <loch/typed.h>
#include <loch/handle.h>
#include <loch/pool.h>
#include <loch/moving.h>
#include <loch/child.h>
#include <loch/session.h>
#include <loch/sleep.h>
#include <loch/direct.h>
#include <loch/wrapper.h>
#include <loch/registry.h>
#include <loch/recorder.h>
#include <loch/snapshot.h>
/* buffers, and objects that are released at the end of a block */
#include <loch/buffer.h>
#include <loch/scope.h>
/* settings of the process: options, log, host memory, clock */
#include <loch/option.h>
#include <loch/log.h>
#include <loch/host.h>

#endif

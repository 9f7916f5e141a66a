/* SPDX-License-Identifier: MIT */
/** @file loch.h
 *  What an engine's author needs, from easy to advanced. Included by those who want them, and not here: raw.h (memory straight from a
 *  driver), virtual.h (addresses and memory apart), observer.h (hearing of ranges that come and go), driver.h (new
 *  devices) and sim.h (control of simulated devices).
 *
 *  Cancellation of threads (pthread_cancel): no call of Loch is a cancellation point. A thread is cancelled before or behind a
 *  call, never inside, however long the call waits. Functions of the user that Loch calls run with cancellation disabled; the
 *  functions of an allocator (loch_allocator_ops), of a host allocator and of a clock (loch/host.h) are called as they are, and
 *  must contain no cancellation point. Asynchronous cancellation (PTHREAD_CANCEL_ASYNCHRONOUS) inside a call is undefined.
 */
#ifndef LOCH_LOCH_H
#define LOCH_LOCH_H

#include <loch/macros.h>
#include <loch/status.h>
#include <loch/check.h>
/* devices, their streams, and copies */
#include <loch/device.h>
#include <loch/stream.h>
#include <loch/copy.h>
/* allocators, wrappers around them, the registry, and finding out where memory went */
#include <loch/attributes.h>
#include <loch/tag.h>
#include <loch/stats.h>
#include <loch/allocator.h>
#include <loch/typed.h>
#include <loch/pool.h>
#include <loch/moving.h>
#include <loch/child.h>
#include <loch/session.h>
#include <loch/sleep.h>
#include <loch/direct.h>
#include <loch/wrapper.h>
#include <loch/registry.h>
#include <loch/profile.h>
/* buffers and tensors, and their ways in and out */
#include <loch/dtype.h>
#include <loch/buffer.h>
#include <loch/scratch.h>
#include <loch/tensor.h>
#include <loch/print.h>
#include <loch/dlpack.h>
#include <loch/npy.h>
#include <loch/scope.h>
/* engines: devices opened together, with pools, threads, kept streams, timed spans and libraries */
#include <loch/workers.h>
#include <loch/stream_pool.h>
#include <loch/timeline.h>
#include <loch/library.h>
#include <loch/engine.h>
#include <loch/context.h>
/* the process's side: options, log, bookkeeping, clock */
#include <loch/option.h>
#include <loch/log.h>
#include <loch/host.h>

#endif

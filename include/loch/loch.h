/* SPDX-License-Identifier: MIT */
/** @file loch.h
 *  All of Loch's public headers, from easy to advanced.
 */
#ifndef LOCH_LOCH_H
#define LOCH_LOCH_H

#include <loch/macros.h>
#include <loch/status.h>
/* devices, their streams, and copies */
#include <loch/device.h>
#include <loch/stream.h>
#include <loch/copy.h>
/* the process's side: options, log, bookkeeping, clock */
#include <loch/option.h>
#include <loch/log.h>
#include <loch/host.h>
/* what allocators and new devices are built from */
#include <loch/raw.h>
#include <loch/virtual.h>
#include <loch/driver.h>
#include <loch/sim.h>

#endif

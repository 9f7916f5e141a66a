/* SPDX-License-Identifier: MIT */
/* Devices that did not survive a fork (forked.c). */
#ifndef LOCHI_FORKED_H
#define LOCHI_FORKED_H

#include "device/state.h"

/* The driver of a device that did not survive a fork. Slots that give something back succeed and do nothing; all
 * others fail with E_FORKED. */
extern const loch_driver lochi_forked_driver;

/* Fails with E_FORKED and writes the sentence for it. */
loch_status lochi_device_refuse_forked(const loch_device *device);

#endif

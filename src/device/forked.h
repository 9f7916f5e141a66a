/* SPDX-License-Identifier: MIT */
/* Devices that did not survive a fork (forked.c). */
#ifndef LOCHI_FORKED_H
#define LOCHI_FORKED_H

#include "device/state.h"

/* The driver of a device that did not survive a fork and whose own driver says nothing of it: gives nothing back, and answers
 * E_FORKED to everything else. */
extern const loch_driver lochi_forked_driver;

/* Fails with E_FORKED, with the sentence for it. */
loch_status lochi_device_refuse_forked(const loch_device *device);

#endif

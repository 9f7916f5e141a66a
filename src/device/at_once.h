/* SPDX-License-Identifier: MIT */
/* Stream and event slots for devices whose work is done when the call returns (at_once.c). */
#ifndef LOCHI_AT_ONCE_H
#define LOCHI_AT_ONCE_H

#include <loch/driver.h>

/* Fills the stream and event slots of a driver whose work is done when the call returns. */
void lochi_at_once_fill(loch_driver *driver);

#endif

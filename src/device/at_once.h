/* SPDX-License-Identifier: MIT */
/* Streams that run at once (at_once.c). */
#ifndef LOCHI_AT_ONCE_H
#define LOCHI_AT_ONCE_H

#include <loch/driver.h>

/* Fills the stream and event slots for a device whose work is done when the call returns. */
void lochi_at_once_fill(loch_driver *driver);

#endif

/* SPDX-License-Identifier: MIT */
/* Copying rows (pitched.c). */
#ifndef LOCHI_PITCHED_H
#define LOCHI_PITCHED_H

#include <loch/driver.h>

/* Copies rows on the host, in the order in which equal pitches on both sides allow the two to overlap. */
void lochi_pitched_host(void *to, const void *from, const loch_pitched *shape);

#endif

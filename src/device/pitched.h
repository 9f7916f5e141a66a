/* SPDX-License-Identifier: MIT */
/* Copies of rows (pitched.c). */
#ifndef LOCHI_PITCHED_H
#define LOCHI_PITCHED_H

#include <loch/driver.h>

/* Copies rows on the host, in an order that allows source and target to overlap if their pitches are equal. */
void lochi_pitched_host(void *to, const void *from, const loch_pitched *shape);

#endif

/* SPDX-License-Identifier: MIT */
/* The variables of launchers (place.c). */
#ifndef COMM_PLACE_H
#define COMM_PLACE_H

#include <loch/comm.h>

/* Reads the place of this process from the environment. */
loch_status lochi_comm_place_read(loch_comm_place *out);

#endif

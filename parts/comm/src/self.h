/* SPDX-License-Identifier: MIT */
/* The engine for one rank (self.c). */
#ifndef COMM_SELF_H
#define COMM_SELF_H

#include "state.h"

/* Makes a communicator of one rank that copies on its device. */
loch_status lochi_comm_self_create(loch_comm *comm);

#endif

/* SPDX-License-Identifier: MIT */
/* Simulated objects behind public ones (control.c). */
#ifndef LOCHI_SIM_CONTROL_H
#define LOCHI_SIM_CONTROL_H

#include "device/sim/state.h"

/* Find the simulated device or stream behind a public one. E_INVALID for NULL, a closed stream, and objects of other
 * drivers. */
loch_status lochi_sim_of_device(loch_device *device, lochi_sim **out);
loch_status lochi_sim_of_stream(loch_stream *stream, lochi_sim **out, lochi_sim_stream **out_stream);

#endif

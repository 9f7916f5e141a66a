/* SPDX-License-Identifier: MIT */
/* Work between layouts on simulated devices (strided.c). */
#ifndef LOCHI_SIM_STRIDED_H
#define LOCHI_SIM_STRIDED_H

#include <loch/driver.h>

/* Slots of the driver. */
loch_status lochi_sim_copy_strided(void *self, const loch_strided *work, void *stream);
loch_status lochi_sim_fill_strided(void *self, const loch_strided *work, void *stream);

#endif

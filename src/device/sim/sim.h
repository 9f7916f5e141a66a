/* SPDX-License-Identifier: MIT */
/* The simulator for other rooms. state.h describes its objects. */
#ifndef LOCHI_SIM_H
#define LOCHI_SIM_H

#include <loch/driver.h>

extern const loch_driver lochi_sim_driver;

/* Get and set the serial number of the simulated device that is current in the calling thread; 0 for none. That
 * device may have been closed. Setting models a caller's cudaSetDevice. */
uint64_t lochi_sim_get_current(void);
void lochi_sim_set_current(uint64_t serial);

#endif

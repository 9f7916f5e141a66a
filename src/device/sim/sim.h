/* SPDX-License-Identifier: MIT */
/* The door of the simulator: what other rooms may use. state.h says what is inside. */
#ifndef LOCHI_SIM_H
#define LOCHI_SIM_H

#include <loch/driver.h>

extern const loch_driver lochi_sim_driver;

/* Get and set the serial number of the simulated device that is current in the calling thread, 0 for none. The device may have
 * been closed. Setting stands for a caller's cudaSetDevice. */
uint64_t lochi_sim_get_current(void);
void lochi_sim_set_current(uint64_t serial);

#endif

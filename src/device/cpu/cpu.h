/* SPDX-License-Identifier: MIT */
/* The CPU driver for other rooms. */
#ifndef LOCHI_CPU_H
#define LOCHI_CPU_H

#include <loch/driver.h>

extern const loch_driver lochi_cpu_driver;

#endif

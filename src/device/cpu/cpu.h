/* SPDX-License-Identifier: MIT */
/* The door of the CPU driver: what other rooms may use. */
#ifndef LOCHI_CPU_H
#define LOCHI_CPU_H

#include <loch/driver.h>

extern const loch_driver lochi_cpu_driver;

#endif

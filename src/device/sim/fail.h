/* SPDX-License-Identifier: MIT */
/* Failures of the simulator. */
#ifndef LOCHI_SIM_FAIL_H
#define LOCHI_SIM_FAIL_H

#include "base/fail.h"

/* Fail as LOCH_FAIL does, with "sim" as the driver. SIM_FAIL_CODE adds an error number of the system. */
#define SIM_FAIL(suffix, ...) SIM_FAIL_CODE(suffix, 0, __VA_ARGS__)
#define SIM_FAIL_CODE(suffix, code, ...) LOCH_FAIL_CODE(suffix, "sim", code, __VA_ARGS__)

#endif

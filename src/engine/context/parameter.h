/* SPDX-License-Identifier: MIT */
/* Parameters (parameter.c). The other functions are public: loch/context.h. */
#ifndef LOCHI_PARAMETER_H
#define LOCHI_PARAMETER_H

#include <loch/context.h>
#include <stdbool.h>

/* Tells whether all elements of a parameter were loaded. */
bool lochi_parameter_is_loaded(const loch_parameter *parameter);

#endif

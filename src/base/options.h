/* SPDX-License-Identifier: MIT */
/* Reading options inside the library; options.c has the names. The getters assert that the option exists. They fail
 * with E_INVALID if the environment has an invalid value, and then write zero. */
#ifndef LOCHI_OPTIONS_H
#define LOCHI_OPTIONS_H

#include "base/shared.h"
#include <loch/option.h>
#include <stdbool.h>

LOCHI_SHARED LOCH_MUST_USE loch_status lochi_option_text(const char *name, char value[LOCH_OPTION_VALUE_MAX]);
LOCH_MUST_USE loch_status lochi_option_number(const char *name, uint64_t *out);
LOCH_MUST_USE loch_status lochi_option_bytes(const char *name, size_t *out);
LOCHI_SHARED LOCH_MUST_USE loch_status lochi_option_switch(const char *name, bool *out);

/* Reads an option as lochi_option_text does, without changing the thread's error record. Returns false if the value
 * is invalid. For the log, which may write while a failure is being reported. */
bool lochi_option_try_text(const char *name, char value[LOCH_OPTION_VALUE_MAX]);

/* Return the number of options, and the option with number `index`; NULL past the end. */
size_t lochi_option_count(void);
const loch_option *lochi_option_at(size_t index);

#endif

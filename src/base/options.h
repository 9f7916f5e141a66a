/* SPDX-License-Identifier: MIT */
/* The option table for the library's own use; names as in options.c. The getters assert that the option exists. They
 * fail with E_INVALID where the environment holds a value that the option does not take, and then write zero. */
#ifndef LOCHI_OPTIONS_H
#define LOCHI_OPTIONS_H

#include <loch/option.h>
#include <stdbool.h>

LOCH_MUST_USE loch_status lochi_option_text(const char *name, char value[LOCH_OPTION_VALUE_MAX]);
LOCH_MUST_USE loch_status lochi_option_bytes(const char *name, size_t *out);
LOCH_MUST_USE loch_status lochi_option_switch(const char *name, bool *out);

/* Reads as lochi_option_text does, but leaves the thread's error record alone: false says that the value is not one that
 * the option takes. For the log, which is written to while a failure is on its way. */
bool lochi_option_try_text(const char *name, char value[LOCH_OPTION_VALUE_MAX]);

/* Number of lines of the table, and one of them; NULL past the end. */
size_t lochi_option_count(void);
const loch_option *lochi_option_at(size_t index);

#endif

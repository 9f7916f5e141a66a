/* SPDX-License-Identifier: MIT */
/* The option table for the library's own use; names as in options.c. The getters assert that the option exists. */
#ifndef LOCHI_OPTIONS_H
#define LOCHI_OPTIONS_H

#include <loch/option.h>
#include <stdbool.h>

void lochi_option_text(const char *name, char value[LOCH_OPTION_VALUE_MAX]);
size_t lochi_option_bytes(const char *name);
bool lochi_option_switch(const char *name);

#endif

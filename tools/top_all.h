/* SPDX-License-Identifier: MIT */
/* `loch top --all`: the budgets of this user with their members in all processes, and the processes that listen. */
#ifndef LOCH_TOP_ALL_H
#define LOCH_TOP_ALL_H

#include <stdbool.h>
#include <stdio.h>

/* Prints all budgets of this user, or the one of this name or path. Without one, also the processes that run with
 * LOCH_TOP=on. Returns the exit code; what is wrong with a budget is printed in its place. */
int top_all_print(FILE *file, const char *budget, bool is_json);

#endif

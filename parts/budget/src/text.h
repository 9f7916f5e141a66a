/* SPDX-License-Identifier: MIT */
/* Sentences about budgets (text.c). */
#ifndef BUDGET_TEXT_H
#define BUDGET_TEXT_H

#include "layout.h"
#include "kit/size.h"

/* Writes how much each member has: "\"a\" (pid 12) 40 GiB, \"b\" (pid 13) 8 GiB". The largest first, and as many as
 * fit. */
void lochi_budget_text_holders(const budget_table *table, char *text, size_t bytes);

#endif

/* SPDX-License-Identifier: MIT */
/* Sentences about budgets (text.c). */
#ifndef BUDGET_TEXT_H
#define BUDGET_TEXT_H

#include "layout.h"

typedef struct budget_size_text {
    char text[24];
} budget_size_text;

/* Writes bytes for people: "1.5 GiB". */
budget_size_text lochi_budget_text_size(uint64_t bytes);
#define BUDGET_SIZE(bytes) (lochi_budget_text_size(bytes).text)

/* Writes how much each member has: "\"a\" (pid 12) 40 GiB, \"b\" (pid 13) 8 GiB". The largest first, and as many as
 * fit. */
void lochi_budget_text_holders(const budget_table *table, char *text, size_t bytes);

#endif

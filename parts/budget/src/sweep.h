/* SPDX-License-Identifier: MIT */
/* Files of budgets that no process has open any more (sweep.c). */
#ifndef BUDGET_SWEEP_H
#define BUDGET_SWEEP_H

/* Removes the files in the folders of this user whose processes have all died, except those of the budget named
 * `except`: its maker may not have a seat yet. */
void lochi_budget_sweep(const char *except);

#endif

/* SPDX-License-Identifier: MIT */
/* Files of budgets that no process has open any more (sweep.c). */
#ifndef BUDGET_SWEEP_H
#define BUDGET_SWEEP_H

/* Removes the files in the folder of this user whose processes have all died, except the one at `path`; may be NULL. */
void lochi_budget_sweep(const char *path);

#endif

/* SPDX-License-Identifier: MIT */
/* The budgets that this process has open, and forks (state.c). */
#ifndef BUDGET_STATE_H
#define BUDGET_STATE_H

#include "file.h"
#include "process.h"
#include <loch/budget.h>
#include <stdatomic.h>

/* A budget that this process has open. */
struct loch_budget {
    struct loch_budget *next, **link; /* in the list of the process */
    budget_file file;
    budget_process self;
    unsigned epoch;            /* of the process that opened it */
    _Atomic size_t references; /* one of the caller, one for each member */
    uint64_t wait_ns;
    bool is_looking; /* it has no seat */
    size_t seat;     /* slot of the seat */
};

/* Enters a budget in the list of the process, and removes it. */
void lochi_budget_state_add(loch_budget *budget);
void lochi_budget_state_remove(loch_budget *budget);

/* Tells whether a budget was opened before the last fork. */
bool lochi_budget_state_is_forked(const loch_budget *budget);

/* Fails with E_FORKED. */
loch_status lochi_budget_state_refuse(void);

#endif

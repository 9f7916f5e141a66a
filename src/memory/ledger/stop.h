/* SPDX-License-Identifier: MIT */
/* Stops: nobody is inside of the ledger, and nobody can enter. */
#ifndef LOCHI_LEDGER_STOP_H
#define LOCHI_LEDGER_STOP_H

#include "memory/ledger/state.h"

/* Takes the lock and stops the ledger. Not from inside. */
void lochi_ledger_stop(lochi_ledger *ledger);

/* Undoes lochi_ledger_stop. */
void lochi_ledger_resume(lochi_ledger *ledger);

/* Stops the ledger. The caller holds the lock and is not inside. */
void lochi_ledger_halt(lochi_ledger *ledger);

/* Undoes lochi_ledger_halt. */
void lochi_ledger_go_on(lochi_ledger *ledger);

/* Has forks stop the ledger, from now to lochi_fork_leave. */
void lochi_ledger_enter_forks(lochi_ledger *ledger);

#endif

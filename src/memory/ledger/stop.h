/* SPDX-License-Identifier: MIT */
/* Stops of a ledger: while stopped, no thread is inside the ledger and none can enter. */
#ifndef LOCHI_LEDGER_STOP_H
#define LOCHI_LEDGER_STOP_H

#include "memory/ledger/state.h"

/* Takes the lock and stops the ledger. The caller must not be inside. */
void lochi_ledger_stop(lochi_ledger *ledger);

/* Undoes lochi_ledger_stop. */
void lochi_ledger_resume(lochi_ledger *ledger);

/* Stops the ledger. The caller holds the lock and is not inside. */
void lochi_ledger_halt(lochi_ledger *ledger);

/* Undoes lochi_ledger_halt. */
void lochi_ledger_go_on(lochi_ledger *ledger);

/* Makes forks stop the ledger, until lochi_fork_leave. */
void lochi_ledger_enter_forks(lochi_ledger *ledger);

#endif

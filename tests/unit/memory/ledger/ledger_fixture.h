/* SPDX-License-Identifier: MIT */
/* Shared by the tests of the ledger. Addresses are numbers: a ledger never touches what they name. */
#ifndef LOCH_TEST_LEDGER_FIXTURE_H
#define LOCH_TEST_LEDGER_FIXTURE_H

#include "sweep.h"
#include "memory/ledger/ledger.h"
#include "test.h"

#define BASE ((uintptr_t)0x7f0000000000u)

__attribute__((unused)) static lochi_ledger *make_ledger(void)
{
    lochi_ledger *ledger;
    CHECK_OK(lochi_ledger_create(&ledger));
    return ledger;
}

__attribute__((unused)) static loch_stats read_stats(lochi_ledger *ledger, loch_tag tag)
{
    loch_stats stats = {.size = sizeof stats};
    lochi_ledger_get_stats(ledger, tag, &stats);
    return stats;
}

__attribute__((unused)) static void *at(uintptr_t address)
{
    return (void *)address;
}

#endif

/* SPDX-License-Identifier: MIT */
/* What a ledger knows of a block, and how exact its peaks are. */
#ifndef LOCHI_LEDGER_ENTRY_H
#define LOCHI_LEDGER_ENTRY_H

#include <stddef.h>
#include <stdint.h>

/* Bound what a thread adds before the others know of it. */
#define LOCHI_LEDGER_BATCH_BYTES ((int64_t)256 << 10)
#define LOCHI_LEDGER_BATCH_BLOCKS ((int64_t)64)

/* One live block. */
typedef struct lochi_entry {
    uintptr_t address;
    size_t requested, allocated; /* below 2^48: no address space holds more */
    uint64_t id;                 /* below 2^56 */
    uint16_t tag;
    uint8_t note; /* the owner's own */
} lochi_entry;

#endif

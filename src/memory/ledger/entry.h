/* SPDX-License-Identifier: MIT */
/* The entry of a block in a ledger, and the bounds on the error of peaks. */
#ifndef LOCHI_LEDGER_ENTRY_H
#define LOCHI_LEDGER_ENTRY_H

#include <stddef.h>
#include <stdint.h>

/* Bounds on the change that one thread makes before it publishes the change to the other threads. */
#define LOCHI_LEDGER_BATCH_BYTES ((int64_t)256 << 10)
#define LOCHI_LEDGER_BATCH_BLOCKS ((int64_t)64)

/* One live block. */
typedef struct lochi_entry {
    uintptr_t address;
    size_t requested, allocated; /* below 2^48, which no address space exceeds */
    uint64_t id;                 /* below 2^56 */
    uint16_t tag;
    uint8_t note; /* for the owner of the ledger */
} lochi_entry;

#endif

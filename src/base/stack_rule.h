/* SPDX-License-Identifier: MIT */
/* Rules that lead from a return address to the frame of the caller, cached by return address for the whole process.
 *
 * An entry is one word: 35 bits of the address, 29 bits of the rule. The other 12 bits of the address choose the set of
 * four entries, so a match is exact. Threads read and replace entries without a lock (relaxed: an entry is complete in
 * itself).
 *
 * A module that is unloaded takes its rules with it. The loader counts the modules that it loads and unloads. The
 * cache is cleared when a count has changed. That is looked at for every address without a rule, and from time to time.
 * Both happen inside dl_iterate_phdr, which keeps the loader from unloading, so a rule of an old module cannot be
 * entered after the clearing. */
#ifndef LOCHI_STACK_RULE_H
#define LOCHI_STACK_RULE_H

#include "base/stack_step.h"
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#define LOCHI_STACK_SETS 4096
#define LOCHI_STACK_WAYS 4
#define LOCHI_STACK_ADDRESS_BITS 47 /* addresses of programs on x86-64 */

extern _Atomic uint64_t lochi_stack_rules[LOCHI_STACK_SETS][LOCHI_STACK_WAYS];

/* Splits an address into the number of its set and the bits that the entry keeps. */
static inline uint32_t lochi_stack_set_of(uintptr_t address)
{
    const uint64_t kept = address >> 12;
    return (uint32_t)(address ^ kept ^ kept >> 9) % LOCHI_STACK_SETS;
}

/* Returns the cached rule of a return address; 0 if there is none. */
static inline lochi_stack_rule lochi_stack_rule_find(uintptr_t address)
{
    _Atomic uint64_t *set = lochi_stack_rules[lochi_stack_set_of(address)];
    for (unsigned way = 0; way < LOCHI_STACK_WAYS; way++) {
        const uint64_t entry = atomic_load_explicit(&set[way], memory_order_relaxed);
        if (entry >> 29 == address >> 12) return (lochi_stack_rule)(entry & ((1u << 29) - 1));
    }
    return 0;
}

/* Reads the rule of a return address from the unwind tables of its module and enters it into the cache. Sets
 * `has_cleared` if the cache was cleared, so that rules found before may be wrong. Never returns 0. */
lochi_stack_rule lochi_stack_rule_read(uintptr_t address, bool *has_cleared);

/* Clears the cache if modules were loaded or unloaded since the last look. Returns whether it did. */
bool lochi_stack_rule_renew(void);

#endif

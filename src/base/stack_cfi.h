/* SPDX-License-Identifier: MIT */
/* Reading the unwind tables of a module (.eh_frame_hdr and .eh_frame, as the x86-64 ABI and the LSB describe them) for
 * one return address. Every read is checked against the segment that the tables are in. */
#ifndef LOCHI_STACK_CFI_H
#define LOCHI_STACK_CFI_H

#include "base/stack_step.h"
#include <stddef.h>

/* Returns the rule of `address`. `header` is .eh_frame_hdr in memory; the tables are between `start` and `end`.
 * LOCHI_STACK_UNKNOWN if the tables do not have the address, LOCHI_STACK_LAST if there is no caller, or if a
 * lochi_stack_rule cannot hold the rule. */
lochi_stack_rule lochi_stack_cfi_read(const uint8_t *header, const uint8_t *start, const uint8_t *end,
                                      uintptr_t address);

#endif

/* SPDX-License-Identifier: MIT */
/* The contract of allocators over pools in a budget: blocks. */
#define main contract_main
int contract_main(void);
/* NOLINTNEXTLINE(bugprone-suspicious-include): the suite as it is, without its main */
#include "contract/test_allocator_blocks.c"
#undef main

#include "budget_contract.h"

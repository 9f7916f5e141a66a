/* SPDX-License-Identifier: MIT */
/* The contract of allocators over pools in a budget: realloc. */
#define main contract_main
int contract_main(void);
/* NOLINTNEXTLINE(bugprone-suspicious-include): the suite as it is, without its main */
#include "contract/test_allocator_realloc.c"
#undef main

#include "budget_contract.h"

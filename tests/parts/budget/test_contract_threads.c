/* SPDX-License-Identifier: MIT */
/* The contract of allocators over pools in a budget: threads. */
#define main contract_main
int contract_main(void);
/* NOLINTNEXTLINE(bugprone-suspicious-include): the suite as it is, without its main */
#include "contract/test_allocator_threads.c"
#undef main

#include "budget_contract.h"

/* SPDX-License-Identifier: MIT */
/* Thread-local variables, defined together so that no padding is between them. */
#include "base/thread_own.h"

_Thread_local uint32_t lochi_thread_slot_plus_one;
_Thread_local lochi_thread_small lochi_thread_own_small; /* between the other two: no padding */
_Thread_local uint64_t lochi_thread_own_number;

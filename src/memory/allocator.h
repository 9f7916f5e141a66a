/* SPDX-License-Identifier: MIT */
/* Everything that folders outside src/memory need of allocators. Files of src/memory include single headers instead. */
#ifndef LOCHI_ALLOCATOR_H
#define LOCHI_ALLOCATOR_H

#include "memory/account.h"
#include "memory/allocator_state.h"
#include "memory/life.h"
#include "memory/realloc.h"
#include "memory/waiting.h"

#endif

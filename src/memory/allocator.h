/* SPDX-License-Identifier: MIT */
/* All that other rooms need of allocators. Files of src/memory include what they use. */
#ifndef LOCHI_ALLOCATOR_H
#define LOCHI_ALLOCATOR_H

#include "memory/account.h"
#include "memory/allocator_state.h"
#include "memory/life.h"
#include "memory/realloc.h"
#include "memory/waiting.h"

#endif

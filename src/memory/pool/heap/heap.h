/* SPDX-License-Identifier: MIT */
/* The door of the room: from an address to its handle and its block; free blocks by size, cutting and merging. */
#ifndef LOCHI_POOL_HEAP_H
#define LOCHI_POOL_HEAP_H

#include "memory/pool/heap/annex.h"
#include "memory/pool/heap/blocks.h"
#include "memory/pool/heap/bounds.h"
#include "memory/pool/heap/cells.h"
#include "memory/pool/heap/find.h"

#endif

/* SPDX-License-Identifier: MIT */
/* The door of the room: what a stream owns. Its lane with epochs and events, its large blocks and slabs, blocks that
 * wait for further streams, and wiping. */
#ifndef LOCHI_POOL_LANES_H
#define LOCHI_POOL_LANES_H

#include "memory/pool/lanes/block.h"
#include "memory/pool/lanes/ended.h"
#include "memory/pool/lanes/lane.h"
#include "memory/pool/lanes/slab.h"
#include "memory/pool/lanes/uses.h"
#include "memory/pool/lanes/wipe.h"

#endif

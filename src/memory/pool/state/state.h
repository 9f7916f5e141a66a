/* SPDX-License-Identifier: MIT */
/* The door of the room: the structs of a pool, their short members, the locks, and the tool that checks memory. */
#ifndef LOCHI_POOL_STATE_H
#define LOCHI_POOL_STATE_H

#include "memory/pool/state/annexes.h"
#include "memory/pool/state/idle_list.h"
#include "memory/pool/state/outside.h"
#include "memory/pool/state/poison.h"
#include "memory/pool/state/record.h"
#include "memory/pool/state/structs.h"

#endif

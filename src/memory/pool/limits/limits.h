/* SPDX-License-Identifier: MIT */
/* The door of the room: limits of parents and children, room on the device, and the sentences of refusals. */
#ifndef LOCHI_POOL_LIMITS_H
#define LOCHI_POOL_LIMITS_H

#include "memory/pool/limits/family.h"
#include "memory/pool/limits/headroom.h"
#include "memory/pool/limits/refuse.h"

#endif

/* SPDX-License-Identifier: MIT */
/* The door of the room: handles without memory, and their saved contents. */
#ifndef LOCHI_POOL_SLEEPING_H
#define LOCHI_POOL_SLEEPING_H

#include "memory/pool/sleeping/keep.h"
#include "memory/pool/sleeping/nap.h"
#include "memory/pool/sleeping/rest.h"

#endif

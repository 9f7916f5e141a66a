/* SPDX-License-Identifier: MIT */
/* The door of the room: the operations on blocks, and the ladder of what is tried when nothing fits. */
#ifndef LOCHI_POOL_SERVE_H
#define LOCHI_POOL_SERVE_H

#include "memory/pool/serve/alloc.h"
#include "memory/pool/serve/exact.h"
#include "memory/pool/serve/free.h"
#include "memory/pool/serve/growable.h"
#include "memory/pool/serve/ladder.h"
#include "memory/pool/serve/resize.h"

#endif

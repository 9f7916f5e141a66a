/* SPDX-License-Identifier: MIT */
/* Mappings that move (virtual.c). The others are public: loch/virtual.h. */
#ifndef LOCHI_VIRTUAL_H
#define LOCHI_VIRTUAL_H

#include <loch/virtual.h>

/* Moves a mapping with its contents from one address to another in one call, without a copy. E_UNSUPPORTED: the device
 * lacks LOCH_CAN_REMAP. E_INTERIOR, E_NOT_FOUND: `from` is not the start of a mapping. E_INVALID, E_OUT_OF_RANGE,
 * E_EXISTS: the handle cannot be mapped at `to`. Nothing changes on failure. */
loch_status lochi_virtual_remap(void *from, void *to);

#endif

/* SPDX-License-Identifier: MIT */
/* The address space of the process and its limit. */
#ifndef LOCHI_SPACE_H
#define LOCHI_SPACE_H

#include <stddef.h>

/* Returns the bytes of addresses that can still be mapped under RLIMIT_AS; SIZE_MAX without a limit. */
size_t lochi_address_room(void);

#endif

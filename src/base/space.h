/* SPDX-License-Identifier: MIT */
/* The address space of the process, where it is limited. */
#ifndef LOCHI_SPACE_H
#define LOCHI_SPACE_H

#include <stddef.h>

/* Bytes of addresses that RLIMIT_AS leaves beside what is mapped; SIZE_MAX where there is no limit. */
size_t lochi_address_room(void);

#endif

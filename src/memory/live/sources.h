/* SPDX-License-Identifier: MIT */
/* Names of allocators for the report. They are copied, because an allocator may be gone when it is printed. */
#ifndef LOCHI_LIVE_SOURCES_H
#define LOCHI_LIVE_SOURCES_H

#include <loch/allocator.h>
#include <stdint.h>

/* Returns the number of an allocator's name and device. Allocators with equal ones share a number. */
uint32_t lochi_live_source_of(loch_allocator *allocator);

/* Writes the allocator and the device of a number, for people. */
const char *lochi_live_source_name(uint32_t source);

#endif

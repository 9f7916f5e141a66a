/* SPDX-License-Identifier: MIT */
/* Filling memory (fill.c). */
#ifndef LOCHI_FILL_H
#define LOCHI_FILL_H

#include <loch/stream.h>
#include <stddef.h>
#include <stdint.h>

/* Fills memory that the caller hands out to others with one byte. Like loch_fill_on, but may cross block bounds and
 * write to free blocks. */
loch_status lochi_fill_own(loch_stream *stream, void *to, size_t bytes, uint8_t byte);

/* Fills host memory. `pattern` holds the bytes of the pattern, lowest first. */
void lochi_fill_host(void *to, size_t bytes, uint32_t pattern, size_t pattern_bytes);

#endif

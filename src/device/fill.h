/* SPDX-License-Identifier: MIT */
/* Filling memory (fill.c). */
#ifndef LOCHI_FILL_H
#define LOCHI_FILL_H

#include <loch/stream.h>
#include <stddef.h>
#include <stdint.h>

/* Fills memory that the caller hands out to others with zeros: as loch_fill_on, but across blocks and into free ones. */
loch_status lochi_fill_own(loch_stream *stream, void *to, size_t bytes);

/* Fills host memory; `pattern` holds the pattern's bytes from its lowest on. */
void lochi_fill_host(void *to, size_t bytes, uint32_t pattern, size_t pattern_bytes);

#endif

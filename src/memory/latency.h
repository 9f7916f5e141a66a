/* SPDX-License-Identifier: MIT */
/* Sizes and latencies of an allocator's calls, while they are measured. */
#ifndef LOCHI_LATENCY_H
#define LOCHI_LATENCY_H

#include "memory/allocator_state.h"

/* Notes an allocation that began at `start_ns`. */
void lochi_latency_note_alloc(struct allocator_latency *latency, size_t bytes, uint64_t start_ns);
/* Notes a free that began at `start_ns`. */
void lochi_latency_note_free(struct allocator_latency *latency, uint64_t start_ns);

#endif

/* SPDX-License-Identifier: MIT */
/* Histograms of sizes and durations of an allocator's calls, while measuring is on. */
#ifndef LOCHI_LATENCY_H
#define LOCHI_LATENCY_H

#include "memory/allocator_state.h"

/* Records the size and duration of an allocation that began at `start_ns`. */
void lochi_latency_note_alloc(struct allocator_latency *latency, size_t bytes, uint64_t start_ns);
/* Records the duration of a free that began at `start_ns`. */
void lochi_latency_note_free(struct allocator_latency *latency, uint64_t start_ns);

#endif

/* SPDX-License-Identifier: MIT */
/* The benchmarks of `core`, one a file. tools/bench.h has their options, tools/peers.h the comparison with other
 * allocators, tools/json.h the output. */
#ifndef LOCH_BENCH_CORE_H
#define LOCH_BENCH_CORE_H

#include "tools/bench.h"

/* Measures how throughput grows with threads, for the pool and for other allocators. */
int core_threads(const tool_bench_options *options);

/* Measures the memory that small blocks of the host take, for the pool and for other allocators. */
int core_small(const tool_bench_options *options);

/* Measures how long it takes to pin memory, and how much a pool of pinned memory holds. */
int core_pinned(const tool_bench_options *options);

/* Measures how fast recordings are read, and the memory that it takes. */
int core_read(const tool_bench_options *options);

/* Measures what a tracking wrapper adds to allocations and frees. */
int core_tracking(const tool_bench_options *options);

/* Measures copies of tensors between layouts, types and places, and plain copies of as many bytes. */
int core_strided(const tool_bench_options *options);

/* Measures the compaction of a pool that is half empty. */
int core_compact(const tool_bench_options *options);

/* Measures how long a pool plans a compaction. */
int core_plan(const tool_bench_options *options);

/* Measures how fast a pool goes to sleep and wakes, and plain copies of as many bytes. */
int core_sleep(const tool_bench_options *options);

/* Measures how long it takes to share a buffer with another process. */
int core_share(const tool_bench_options *options);

/* Measures requests that a pool serves while another thread makes the driver map memory. */
int core_behind(const tool_bench_options *options);

/* Measures what a simulated device of `loch fleet` costs, in a small fleet and in a large one. */
int core_fleet(const tool_bench_options *options);

#endif

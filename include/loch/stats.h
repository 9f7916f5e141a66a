/* SPDX-License-Identifier: MIT */
/** @file stats.h
 *  The figures of an allocator, a device or a tag. One list makes the struct, the sum, the text and the JSON.
 */
#ifndef LOCH_STATS_H
#define LOCH_STATS_H

#include <loch/status.h>

LOCH_BEGIN_DECLS

/** Name, how two of them make a sum (ADD, MAX, or LIMIT: 0 is unknown and wins), text. New ones go to the end. */
#define LOCH_STATS_LIST(X)                                                                                             \
    X(allocs, ADD, "allocations that succeeded")                                                                       \
    X(frees, ADD, "blocks taken back")                                                                                 \
    X(failures, ADD, "requests that failed in the end")                                                                \
    X(blocks, ADD, "blocks in use")                                                                                    \
    X(peak_blocks, ADD, "most blocks in use")                                                                          \
    X(requested_bytes, ADD, "bytes in use, as asked for")                                                              \
    X(peak_requested_bytes, ADD, "most bytes in use, as asked for")                                                    \
    X(allocated_bytes, ADD, "bytes in use, as taken")                                                                  \
    X(peak_allocated_bytes, ADD, "most bytes in use, as taken")                                                        \
    X(largest_bytes, MAX, "largest request that succeeded")                                                            \
    X(limit_bytes, LIMIT, "bytes that may be in use, 0 for no limit")                                                  \
    X(reserved_bytes, ADD, "bytes held from the device")                                                               \
    X(peak_reserved_bytes, ADD, "most bytes held from the device")                                                     \
    X(cached_bytes, ADD, "bytes held from the device and not in use")                                                  \
    X(largest_free_bytes, MAX, "largest piece that is cached")                                                         \
    X(retries, ADD, "attempts after the first, made when memory was short")                                            \
    X(waits_ns, ADD, "time spent waiting for memory")

/** The figures. Peaks of a sum are the sum of the peaks: an upper bound. */
typedef struct loch_stats {
    size_t size;                                          /**< set by the caller to sizeof(loch_stats) */
#define LOCH_STATS_MEMBER(name, sum, text) uint64_t name; /**< see the list */
    LOCH_STATS_LIST(LOCH_STATS_MEMBER)
#undef LOCH_STATS_MEMBER
} loch_stats;

/** Adds `b` to `a`, each figure by its own rule. */
LOCH_API void loch_stats_add(loch_stats *a, const loch_stats *b);

/** How broken up the cached bytes are: 1 - largest free / cached, 0 when nothing is cached. */
LOCH_API double loch_stats_fragmentation(const loch_stats *stats);

/** What figures and reports are printed as. */
typedef enum loch_format {
    LOCH_FORMAT_TEXT, /**< lines for people */
    LOCH_FORMAT_JSON  /**< one JSON object */
} loch_format;

/** Prints the figures: as lines "text: value", zeros left out, or as one JSON object.
 *
 *  All functions that print have this shape. They keep what fits into `bytes` and end it with a zero; `text` may be NULL when
 *  `bytes` is 0. `length` (may be NULL) gets the length of the whole, without the zero: a text that did not fit has a length
 *  of `bytes` or more. E_INVALID for an object that is NULL or a format that is not known. */
LOCH_API LOCH_MUST_USE loch_status loch_stats_print(const loch_stats *stats, loch_format format, char *text,
                                                    size_t bytes, size_t *length);

/** A histogram over powers of two: bucket i counts values v with 2^(i-1) < v <= 2^i; bucket 0 counts 0 and 1. */
typedef struct loch_histogram {
    uint64_t count;       /**< all values */
    uint64_t buckets[64]; /**< by size */
} loch_histogram;

/** The value that `fraction` (0 to 1) of the counted ones do not exceed, to within its bucket; 0 when nothing was counted.
 *  Inside a bucket it is interpolated. */
LOCH_API uint64_t loch_histogram_percentile(const loch_histogram *histogram, double fraction);

LOCH_END_DECLS

#endif

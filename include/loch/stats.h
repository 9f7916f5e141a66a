/* SPDX-License-Identifier: MIT */
/** @file stats.h
 *  Statistics of an allocator, a device or a tag. One list of figures defines the struct, the sum, the text and the
 *  JSON.
 */
#ifndef LOCH_STATS_H
#define LOCH_STATS_H

#include <loch/status.h>

LOCH_BEGIN_DECLS

/** The list of all figures: name, rule for a sum of two (ADD, MAX, or LIMIT, where 0 means no limit and wins), and
 *  text. New figures go to the end. */
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
    X(largest_free_bytes, MAX, "largest free piece that any thread can take")                                          \
    X(retries, ADD, "attempts after the first, made when memory was short")                                            \
    X(waits_ns, ADD, "time spent waiting for memory")

/** Statistics. A peak in a sum is the sum of the peaks: an upper bound. */
typedef struct loch_stats {
    size_t size;                                          /**< set by the caller to sizeof(loch_stats) */
#define LOCH_STATS_MEMBER(name, sum, text) uint64_t name; /**< see the list */
    LOCH_STATS_LIST(LOCH_STATS_MEMBER)
#undef LOCH_STATS_MEMBER
} loch_stats;

/** Output format of figures and reports. */
typedef enum loch_format {
    LOCH_FORMAT_TEXT, /**< lines for people */
    LOCH_FORMAT_JSON  /**< one JSON object */
} loch_format;

/** Prints statistics: as lines "text: value" without the zeros, or as one JSON object. Text has sizes in B, KiB, MiB or
 *  GiB, rounded down to a tenth, and times in ns, us, ms or s; JSON has exact numbers.
 *
 *  All functions that print have this shape. They write as much as fits into `bytes` and end it with a zero; `text`
 *  may be NULL if `bytes` is 0. `length` (may be NULL) receives the length of the whole text without the zero: if it
 *  is `bytes` or more, the text did not fit. E_INVALID: an object is NULL or a format is not known. */
LOCH_API LOCH_MUST_USE loch_status loch_stats_print(const loch_stats *stats, loch_format format, char *text,
                                                    size_t bytes, size_t *length);

/** Returns the fragmentation of the cached bytes: 1 - largest_free_bytes / cached_bytes; 0 if nothing is
 *  cached or no block is in use: nothing lies between free pieces then.
 *
 *  In a pool, cached_bytes counts all memory that is not in use. largest_free_bytes does not count memory that a
 *  pool keeps ready for small blocks, for single threads or for streams that still use it. So the result is an upper
 *  bound, and can be near 1 for a pool with a few small blocks in use. Call loch_allocator_trim(pool, SIZE_MAX,
 *  NULL) first for the exact value: it merges that memory and gives nothing back to the device. */
LOCH_API double loch_stats_fragmentation(const loch_stats *stats);

/** Adds the statistics `b` to `a`, each figure by its own rule. */
LOCH_API void loch_stats_add(loch_stats *a, const loch_stats *b);

/** A histogram over powers of two. Bucket i counts values v with 2^(i-1) < v <= 2^i; bucket 0 counts the values 0 and
 *  1. */
typedef struct loch_histogram {
    uint64_t count;       /**< number of all values */
    uint64_t buckets[64]; /**< number of values in each bucket */
} loch_histogram;

/** Returns the value that `fraction` (0 to 1) of the counted values do not exceed, exact to within its bucket and
 *  interpolated inside the bucket; 0 if nothing was counted. */
LOCH_API uint64_t loch_histogram_percentile(const loch_histogram *histogram, double fraction);

LOCH_END_DECLS

#endif

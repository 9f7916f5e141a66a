/* SPDX-License-Identifier: MIT */
/** @file profile.h
 *  Profiles: where memory went. Measure a span of work, and list live blocks by tag and id, now or since a point in
 *  time. Works with any allocator, in release builds too.
 */
#ifndef LOCH_PROFILE_H
#define LOCH_PROFILE_H

#include <loch/allocator.h>

LOCH_BEGIN_DECLS

/** @name Profiles */
/** @{ */

/** A measurement of one allocator over a span of time. */
typedef struct loch_profile loch_profile;

/** Begins a profile of an allocator. Profiles may nest and overlap freely. The work of all threads on the allocator
 *  counts. The profile retains the allocator.
 *  @param label  for people; copied
 *  @param out    owned by the caller; end it with loch_profile_end. NULL on failure. */
LOCH_API LOCH_MUST_USE loch_status loch_profile_begin(loch_allocator *allocator, const char *label, loch_profile **out);

/** Results of a profile. */
typedef struct loch_profile_report {
    size_t size;              /**< set by the caller to sizeof(loch_profile_report) */
    const char *label;        /**< label; borrowed from the profile */
    uint64_t requested_bytes; /**< requested bytes in use now */
    int64_t delta_bytes;      /**< change of requested bytes in use since the begin */
    uint64_t peak_bytes;      /**< most requested bytes in use since the begin */
    uint64_t allocs;          /**< number of allocations since the begin */
    uint64_t frees;           /**< number of frees since the begin */
    uint64_t blocks;          /**< number of blocks in use now */
    int64_t delta_blocks;     /**< change of blocks in use since the begin */
    uint64_t duration_ns;     /**< nanoseconds since the begin */
} loch_profile_report;

/** Reads the results of a profile so far. Set `out->size` before the call. */
LOCH_API LOCH_MUST_USE loch_status loch_profile_read(loch_profile *profile, loch_profile_report *out);

/** Ends a profile and frees it. `out` (may be NULL) receives the last results, with a NULL label. A NULL profile does
 *  nothing. */
LOCH_API void loch_profile_end(loch_profile *profile, loch_profile_report *out);
LOCH_DEFINE_CLEAR(profile, loch_profile_end(object, NULL))

/** Prints a report as one line or as a JSON object. Sizes, `text`, `bytes` and `length` work as in loch_stats_print. */
LOCH_API LOCH_MUST_USE loch_status loch_profile_print(const loch_profile_report *report, loch_format format, char *text,
                                                      size_t bytes, size_t *length);

/** @} */
/** @name Census */
/** @{ */

/** A list of the blocks that were live at one moment, sorted by id. */
typedef struct loch_census loch_census;

/** Lists all live blocks of an allocator. The census does not keep the allocator alive. E_HOST_MEMORY.
 *  @param out  owned by the caller; destroy it with loch_census_destroy. NULL on failure. */
LOCH_API LOCH_MUST_USE loch_status loch_census_create(loch_allocator *allocator, loch_census **out);

/** Destroys a census. NULL does nothing. */
LOCH_API void loch_census_destroy(loch_census *census);
LOCH_DEFINE_CLEAR(census, loch_census_destroy(object))

/** Walks the blocks that are in `census` and not in `before`, in order of ids. Both belong to one allocator. With a
 *  NULL `before` all blocks are walked. E_INVALID: no census or no visitor. Any thread: a census does not change. */
LOCH_API LOCH_MUST_USE loch_status loch_census_walk(const loch_census *census, const loch_census *before,
                                                    loch_block_visitor *visitor, void *user);

/** Sum of the blocks with one tag. */
typedef struct loch_census_tag {
    loch_tag tag;             /**< tag; 0 for blocks without a tag */
    uint64_t blocks;          /**< number of blocks */
    uint64_t requested_bytes; /**< requested bytes */
} loch_census_tag;

/** Receives the sum of one tag. A return value other than LOCH_OK ends the walk and becomes its result. */
typedef loch_status loch_census_tag_visitor(const loch_census_tag *sum, void *user);

/** Walks the sums by tag of the blocks that are in `census` and not in `before` (may be NULL), most bytes first.
 *  E_INVALID: no census or no visitor. E_HOST_MEMORY: no memory for the sums. Any thread: a census does not change. */
LOCH_API LOCH_MUST_USE loch_status loch_census_walk_tags(const loch_census *census, const loch_census *before,
                                                         loch_census_tag_visitor *visitor, void *user);

/** Prints the blocks that are in `census` and not in `before` (may be NULL): as text, one line for each tag and the
 *  largest blocks; as JSON, an object with the sums, the tags and a list of all blocks. Sizes, `text`, `bytes`
 *  and `length` work as in loch_stats_print. */
LOCH_API LOCH_MUST_USE loch_status loch_census_print(const loch_census *census, const loch_census *before,
                                                     loch_format format, char *text, size_t bytes, size_t *length);

/** @} */

LOCH_END_DECLS

#endif

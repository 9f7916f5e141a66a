/* SPDX-License-Identifier: MIT */
/** @file profile.h
 *  Finding out where memory went: measuring scopes, and what is live, by tag and by id, now or since a point in time.
 *
 *  All of it works in release builds, on any allocator.
 */
#ifndef LOCH_PROFILE_H
#define LOCH_PROFILE_H

#include <loch/allocator.h>

LOCH_BEGIN_DECLS

/** A range of work on one allocator that is being measured. */
typedef struct loch_profile loch_profile;

/** What happened in a scope. */
typedef struct loch_profile_report {
    size_t size;              /**< set by the caller to sizeof(loch_profile_report) */
    const char *label;        /**< borrowed from the scope */
    uint64_t requested_bytes; /**< bytes in use now, as asked for */
    int64_t delta_bytes;      /**< the change since the scope began */
    uint64_t peak_bytes;      /**< most in use inside the scope */
    uint64_t allocs;          /**< allocations inside it */
    uint64_t frees;           /**< blocks taken back inside it */
    uint64_t blocks;          /**< blocks in use now */
    int64_t delta_blocks;     /**< the change since the scope began */
    uint64_t duration_ns;     /**< since it began */
} loch_profile_report;

/** Begins a scope. Scopes nest, and cross, as they like; what other threads do on the allocator counts too. The scope
 *  retains the allocator. @param label  copied; @param out  ended by loch_profile_end. */
LOCH_API LOCH_MUST_USE loch_status loch_profile_begin(loch_allocator *allocator, const char *label, loch_profile **out);

/** What happened so far. */
LOCH_API LOCH_MUST_USE loch_status loch_profile_read(loch_profile *profile, loch_profile_report *out);

/** Ends a scope; `out` (may be NULL) gets the last report, with a NULL label. NULL does nothing. */
LOCH_API void loch_profile_end(loch_profile *profile, loch_profile_report *out);

/** Prints a report, as one line or as a JSON object (loch_stats_print). */
LOCH_API LOCH_MUST_USE loch_status loch_profile_print(const loch_profile_report *report, loch_format format, char *text,
                                                      size_t bytes, size_t *length);

/** The blocks that were live at one moment, sorted by id. */
typedef struct loch_census loch_census;

/** Takes down all live blocks of an allocator; does not keep it alive. @param out  ended by loch_census_destroy.
 *  E_HOST_MEMORY. */
LOCH_API LOCH_MUST_USE loch_status loch_census_create(loch_allocator *allocator, loch_census **out);

/** NULL does nothing. */
LOCH_API void loch_census_destroy(loch_census *census);

/** Walks the blocks that are in `census` and not in `before`, in order of ids. Both are of one allocator; NULL for `before` walks
 *  all blocks. */
LOCH_API LOCH_MUST_USE loch_status loch_census_walk(const loch_census *census, const loch_census *before,
                                                    loch_block_visitor *visitor, void *user);

/** The blocks of one tag. */
typedef struct loch_census_tag {
    loch_tag tag;             /**< which; 0 for those without */
    uint64_t blocks;          /**< how many */
    uint64_t requested_bytes; /**< as asked for */
} loch_census_tag;

/** Called with the sum of each tag. A return other than LOCH_OK ends the walk and becomes its result. */
typedef loch_status loch_census_tag_visitor(const loch_census_tag *sum, void *user);

/** Sums the blocks that are in `census` and not in `before` (may be NULL) by tag, and walks the sums, most bytes first.
 *  E_HOST_MEMORY. */
LOCH_API LOCH_MUST_USE loch_status loch_census_walk_tags(const loch_census *census, const loch_census *before,
                                                         loch_census_tag_visitor *visitor, void *user);

/** Prints the blocks that are in `census` and not in `before` (may be NULL): a line a tag and the largest blocks, or a JSON object
 *  with the sums, the tags, and a list of all blocks (loch_stats_print). */
LOCH_API LOCH_MUST_USE loch_status loch_census_print(const loch_census *census, const loch_census *before,
                                                     loch_format format, char *text, size_t bytes, size_t *length);

LOCH_END_DECLS

#endif

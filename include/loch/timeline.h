/* SPDX-License-Identifier: MIT */
/** @file timeline.h
 *  Timed spans of work, nested, per thread: on the host's clock and on the device's, with floating-point operations, bytes moved and
 *  memory in use; printed as a tree, as bars, or as a trace for Chrome and Perfetto.
 *
 *      LOCH_SPAN(timeline, "attention", .level = 1, .stream = stream, .flops = 2.0 * m * n * k);   // to the end of the block
 */
#ifndef LOCH_TIMELINE_H
#define LOCH_TIMELINE_H

#include <loch/allocator.h>
#include <loch/stream.h>

LOCH_BEGIN_DECLS

/** Spans of all threads. Safe in any thread; a span begins and ends in one thread. */
typedef struct loch_timeline loch_timeline;

/** How a timeline is made; zero means default, NULL all defaults. */
typedef struct loch_timeline_options {
    size_t size;     /**< sizeof(loch_timeline_options) */
    int level;       /**< the highest that is recorded; 0: only spans without a level; below 0: nothing */
    size_t capacity; /**< spans kept for each thread; later ones are counted as lost; 0: 65536 */
} loch_timeline_options;

/** Makes a timeline. @param out  the caller's, ended by loch_timeline_destroy; NULL on failure */
LOCH_API LOCH_MUST_USE loch_status loch_timeline_create(const loch_timeline_options *options, loch_timeline **out);

/** Ends it, when no thread has a span open or begins one. NULL does nothing. */
LOCH_API void loch_timeline_destroy(loch_timeline *timeline);

/** Changes what is recorded from now on. */
LOCH_API void loch_timeline_set_level(loch_timeline *timeline, int level);

/** The highest level that is recorded. */
LOCH_API int loch_timeline_get_level(const loch_timeline *timeline);

/** About a span; zero means default, NULL all defaults. */
typedef struct loch_span_options {
    size_t size;               /**< sizeof(loch_span_options) */
    int level;                 /**< not recorded when it is above the timeline's */
    loch_stream *stream;       /**< timed on its device, too; NULL: on the host alone. Not while it is captured */
    double flops;              /**< floating-point operations done */
    uint64_t bytes;            /**< moved */
    loch_allocator *allocator; /**< its bytes in use are noted at both ends; NULL: none */
} loch_span_options;

/** A span that is open; all zero for one that is not recorded. The caller keeps it until the end. */
typedef struct loch_span {
    loch_timeline *timeline; /**< NULL: not recorded */
    uint64_t number;         /**< the library's: which one, so that one that has ended is known to have */
} loch_span;

/** Begins a span. Spans of a thread nest: the last one begun is ended first; one that is ended while later ones are open ends them.
 *  Never fails for want of memory or of events: what cannot be kept is counted as lost, what cannot be timed on the device is timed
 *  on the host. A NULL timeline records nothing. @param name  copied; any text */
LOCH_API loch_span loch_span_begin(loch_timeline *timeline, const char *name, const loch_span_options *options);

/** Adds work to an open span. */
LOCH_API void loch_span_add(loch_span *span, double flops, uint64_t bytes);

/** Ends a span; one that is all zero, or has ended, does nothing. By the thread that began it: from another, nothing happens. */
LOCH_API void loch_span_end(loch_span *span);

/** A span from here to the end of the block, left in whatever way. Needs GCC or Clang. */
#ifndef __cplusplus
#define LOCH_SPAN(timeline, ...) /* name, members of loch_span_options */                                              \
    __attribute__((cleanup(loch_span_end), unused)) loch_span LOCH_SPAN_NAME(__LINE__) =                               \
        loch_span_begin(timeline, LOCH_SPAN_FIRST(__VA_ARGS__, 0),                                                     \
                        &(loch_span_options){LOCH_SPAN_REST(__VA_ARGS__, .size = sizeof(loch_span_options))})
#define LOCH_SPAN_FIRST(first, ...) first
#define LOCH_SPAN_REST(first, ...) __VA_ARGS__
#define LOCH_SPAN_NAME(line) LOCH_SPAN_JOIN(loch_span_at_, line)
#define LOCH_SPAN_JOIN(a, b) a##b
#endif

/** A span that has ended. */
typedef struct loch_span_record {
    const char *name;    /**< borrowed for the visit */
    int level;           /**< as it was given */
    unsigned thread;     /**< 0 for the first thread that recorded, and so on */
    unsigned depth;      /**< 0: not inside another */
    uint64_t start_ns;   /**< since the timeline was made, on the host */
    uint64_t host_ns;    /**< how long, on the host */
    uint64_t device_ns;  /**< how long, on the device; 0 when it was not timed there */
    const char *device;  /**< its name; "" when it was not timed there */
    double flops;        /**< floating-point operations */
    uint64_t bytes;      /**< moved */
    uint64_t used_begin; /**< bytes in use at the beginning; 0 without an allocator */
    uint64_t used_end;   /**< and at the end */
} loch_span_record;

/** Called with each span; a return other than LOCH_OK ends the walk and becomes its result. It must not begin or end spans there. */
typedef loch_status loch_span_visitor(const loch_span_record *record, void *user);

/** Walks the spans that have ended, thread by thread in the order in which they began. Waits for the device's times. */
LOCH_API LOCH_MUST_USE loch_status loch_timeline_walk(loch_timeline *timeline, loch_span_visitor *visitor, void *user);

/** How many spans have ended and are kept, and how many were lost; either may be NULL. */
LOCH_API void loch_timeline_count(loch_timeline *timeline, size_t *kept, uint64_t *lost);

/** Forgets all spans that have ended, and what was lost. */
LOCH_API void loch_timeline_clear(loch_timeline *timeline);

/** What a timeline is printed as. */
typedef enum loch_timeline_format {
    LOCH_TIMELINE_TREE, /**< for people: spans of one name inside one span are one line, with count, time, share, rate */
    LOCH_TIMELINE_BARS, /**< for people: each span a line, with a bar where it lies in time */
    LOCH_TIMELINE_TRACE /**< JSON for chrome://tracing and Perfetto, memory as counters */
} loch_timeline_format;

/** Prints a timeline (loch_stats_print). Waits for the device's times. Spans that are open are shown as such.
 *  @param width  columns of the bars, 0: 100, at most 10000; ignored by the other formats */
LOCH_API LOCH_MUST_USE loch_status loch_timeline_print(loch_timeline *timeline, loch_timeline_format format,
                                                       size_t width, char *text, size_t bytes, size_t *length);

/** Writes it to a file, which is replaced as a whole when all of it is on the disk or, on failure, left as it was. Links are followed,
 *  and permissions are those of the file that is there, or the umask's. E_IO. */
LOCH_API LOCH_MUST_USE loch_status loch_timeline_save(loch_timeline *timeline, const char *path,
                                                      loch_timeline_format format, size_t width);

LOCH_END_DECLS

#endif

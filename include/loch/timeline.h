/* SPDX-License-Identifier: MIT */
/** @file timeline.h
 *  Timelines: timed spans of work, nested for each thread, on the clock of the host and of the device, with
 *  floating-point operations, bytes moved and memory in use. Printed as a tree, as bars, or as a trace for Chrome
 *  and Perfetto.
 *
 *      LOCH_SPAN(timeline, "attention", .level = 1, .stream = stream, .flops = 2.0 * m * n * k); // to the block's end
 */
#ifndef LOCH_TIMELINE_H
#define LOCH_TIMELINE_H

#include <loch/allocator.h>
#include <loch/stream.h>

LOCH_BEGIN_DECLS

/** The spans of all threads. Any thread; a span begins and ends on one thread. */
typedef struct loch_timeline loch_timeline;

/** @name Create and level */
/** @{ */

/** Options of loch_timeline_create. Zero means default; a NULL pointer means all defaults. */
typedef struct loch_timeline_options {
    size_t size;     /**< sizeof(loch_timeline_options) */
    int level;       /**< highest level that is recorded; 0: only spans without a level; negative: none */
    size_t capacity; /**< number of spans kept for each thread; later spans count as lost; 0 for 65536 */
} loch_timeline_options;

/** Creates a timeline.
 *  @param out  owned by the caller; destroy it with loch_timeline_destroy. NULL on failure. */
LOCH_API LOCH_MUST_USE loch_status loch_timeline_create(const loch_timeline_options *options, loch_timeline **out);

/** Destroys a timeline. No thread may have a span open or begin one. NULL does nothing. */
LOCH_API void loch_timeline_destroy(loch_timeline *timeline);
LOCH_DEFINE_CLEAR(timeline, loch_timeline_destroy(object))

/** Sets the highest level that is recorded from now on. */
LOCH_API void loch_timeline_set_level(loch_timeline *timeline, int level);

/** @} */
/** @name Spans */
/** @{ */

/** Options of loch_span_begin. Zero means default; a NULL pointer means all defaults. */
typedef struct loch_span_options {
    size_t size; /**< sizeof(loch_span_options) */
    int level;   /**< level; the span is not recorded if it is above the level of the timeline */
    /** Stream that is timed on its device, except while it is captured; NULL: timed on the host only. */
    loch_stream *stream;
    double flops;   /**< number of floating-point operations */
    uint64_t bytes; /**< number of bytes moved */
    /** Allocator whose bytes in use are recorded at the begin and the end; NULL for none. */
    loch_allocator *allocator;
} loch_span_options;

/** An open span, kept by the caller until loch_span_end. All zero for a span that is not recorded. */
typedef struct loch_span {
    loch_timeline *timeline; /**< the timeline; NULL for a span that is not recorded */
    uint64_t number;         /**< number of the span; used by the library to detect a span that has ended */
} loch_span;

/** Begins a span on the calling thread. Spans of a thread nest: the last one begun is ended first, and ending a span
 *  ends all later open ones. Never fails: a span that cannot be stored counts as lost, and a span that cannot be
 *  timed on the device is timed on the host. A NULL timeline records nothing.
 *  @param name  any text; copied
 *  @return the open span; end it with loch_span_end */
LOCH_API loch_span loch_span_begin(loch_timeline *timeline, const char *name, const loch_span_options *options);

/** Ends a span. Does nothing for an all-zero span, for a span that has ended, and on another thread than the one that
 *  began it. */
LOCH_API void loch_span_end(loch_span *span);

/** Opens a span that ends at the end of the block, however the block is left. Needs GCC or Clang. C only. */
#ifndef __cplusplus
#define LOCH_SPAN(timeline, ...) /* name, members of loch_span_options */                                              \
    __attribute__((cleanup(loch_span_end), unused)) loch_span LOCH_UNIQUE(loch_span_at_) =                             \
        loch_span_begin(timeline, LOCH_FIRST(__VA_ARGS__, 0),                                                          \
                        &(loch_span_options){LOCH_REST(__VA_ARGS__, .size = sizeof(loch_span_options))})
#endif

/** @} */
/** @name Read and print */
/** @{ */

/** One ended span. */
typedef struct loch_span_record {
    const char *name;    /**< name; valid during the visit */
    int level;           /**< level of the span */
    unsigned thread;     /**< number of the thread: 0 for the first thread that recorded a span */
    unsigned depth;      /**< nesting depth; 0 for an outermost span */
    uint64_t start_ns;   /**< start in nanoseconds since the timeline was created, on the host */
    uint64_t host_ns;    /**< duration on the host in nanoseconds */
    uint64_t device_ns;  /**< duration on the device in nanoseconds; 0 if not timed there */
    const char *device;  /**< name of the device; "" if not timed there */
    double flops;        /**< number of floating-point operations */
    uint64_t bytes;      /**< number of bytes moved */
    uint64_t used_begin; /**< bytes in use at the begin; 0 without an allocator */
    uint64_t used_end;   /**< bytes in use at the end; 0 without an allocator */
} loch_span_record;

/** Receives one ended span. It must not begin or end spans. A return value other than LOCH_OK ends the walk and
 *  becomes its result. */
typedef loch_status loch_span_visitor(const loch_span_record *record, void *user);

/** Walks the ended spans, thread by thread, in the order in which they began. Waits on the host for the times of the
 *  device. */
LOCH_API LOCH_MUST_USE loch_status loch_timeline_walk(loch_timeline *timeline, loch_span_visitor *visitor, void *user);

/** Counts the ended spans that are kept and the spans that were lost. Either result may be NULL. */
LOCH_API void loch_timeline_count(loch_timeline *timeline, size_t *kept, uint64_t *lost);

/** Removes all ended spans and resets the number of lost ones. */
LOCH_API void loch_timeline_forget(loch_timeline *timeline);

/** Output format of a timeline. */
typedef enum loch_timeline_format {
    /** For people: spans with one name inside one span form a line with count, time, share and rate. */
    LOCH_TIMELINE_TREE,
    LOCH_TIMELINE_BARS, /**< for people: one line for each span, with a bar at its place in time */
    LOCH_TIMELINE_TRACE /**< JSON for chrome://tracing and Perfetto, with memory as counters */
} loch_timeline_format;

/** Prints a timeline. Waits on the host for the times of the device. Open spans are marked as open. `text`, `bytes`
 *  and `length` work as in loch_stats_print.
 *  @param width  columns of the bars, at most 10000; 0 for 100; ignored by the other formats */
LOCH_API LOCH_MUST_USE loch_status loch_timeline_print(loch_timeline *timeline, loch_timeline_format format,
                                                       size_t width, char *text, size_t bytes, size_t *length);

/** Writes a timeline to a file. An existing file is replaced only when the new one is completely on the disk; on
 *  failure it is left as it was. Symbolic links are followed. Permissions are those of the existing file, otherwise
 *  those of the umask. E_IO: the file cannot be written.
 *  @param width  columns of the bars, at most 10000; 0 for 100; ignored by the other formats */
LOCH_API LOCH_MUST_USE loch_status loch_timeline_save(loch_timeline *timeline, const char *path,
                                                      loch_timeline_format format, size_t width);

/** @} */

LOCH_END_DECLS

#endif

/* SPDX-License-Identifier: MIT */
/** @file insight.h
 *  Recordings: what a program did with its memory. Read them from traces, from files of the recorder and from memory
 *  snapshots of PyTorch; look at them, write them in other formats, compare them, draw them. A library of its own,
 *  libloch_insight, on the public interface of Loch.
 *
 *      loch_recording *recording;
 *      LOCH_CHECK(loch_recording_load("program.loch", NULL, &recording));
 *      LOCH_CHECK(loch_report_save((const loch_recording *[]){recording}, 1, "report.html", NULL));
 *      loch_recording_destroy(recording);
 *
 *  A recording does not change after it was loaded. Every thread may read it.
 */
#ifndef LOCH_INSIGHT_H
#define LOCH_INSIGHT_H

#include <loch/loch.h>

LOCH_BEGIN_DECLS

/** A recording in memory. */
typedef struct loch_recording loch_recording;

/** @name Read and write */
/** @{ */

/** Formats of recordings. */
typedef enum loch_recording_format {
    LOCH_RECORDING_AUTO,    /**< reading: found by the contents; writing: chosen by the ending of the path */
    LOCH_RECORDING_TEXT,    /**< a trace: one event on each line (.trace, .txt; .gz, .zst compressed) */
    LOCH_RECORDING_BINARY,  /**< the recorder's format (.loch): docs/recording-format.md */
    LOCH_RECORDING_TORCH,   /**< a memory snapshot of PyTorch (.pickle), which memory_viz shows:
                                torch.cuda.memory._dump_snapshot */
    LOCH_RECORDING_CHROME,  /**< a trace for Perfetto and chrome://tracing (.json); write only */
    LOCH_RECORDING_FOLDED,  /**< call stacks with bytes at the peak, for flame graphs (.folded); write only */
    LOCH_RECORDING_METRICS, /**< OpenMetrics text (.prom); write only */
    LOCH_RECORDING_SNAPSHOT /**< a snapshot of a running program by loch_snapshot_save (.json); read only */
} loch_recording_format;

/** Receives the part of the work that is done, 0 to 1. A return value other than LOCH_OK ends the work and becomes its
 *  result. */
typedef loch_status loch_insight_progress(double done, void *user);

/** Options of reading and writing. Zero means default. */
typedef struct loch_recording_options {
    size_t size;                     /**< sizeof(loch_recording_options) */
    loch_recording_format format;    /**< format */
    loch_insight_progress *progress; /**< called now and then; may be NULL */
    void *user;                      /**< passed to `progress`; borrowed */
    const char *allocator; /**< reading: name of the allocator whose blocks are kept; NULL for all; borrowed */
} loch_recording_options;

/** Reads a recording. "-" is standard input. E_IO: the file cannot be read. E_INVALID: the contents are wrong, or the
 *  file is empty; the sentence names the file, and the line or byte, or what the file looks like. E_LIMIT: a compressed
 *  file unpacks to more than LOCH_READ_MIB allows. Nothing in a file is executed. E_HOST_MEMORY.
 *  @param out  owned by the caller; destroy it with loch_recording_destroy. NULL on failure. */
LOCH_API LOCH_MUST_USE loch_status loch_recording_load(const char *path, const loch_recording_options *options,
                                                       loch_recording **out);

/** Destroys a recording. NULL does nothing. */
LOCH_API void loch_recording_destroy(loch_recording *recording);
LOCH_DEFINE_CLEAR(recording, loch_recording_destroy(object))

/** Writes a recording to a file. "-" is standard output. Without a format, the ending of the path chooses it; a path
 *  without an ending and standard output are text. E_UNSUPPORTED: the format is read only. E_INVALID: the ending names
 *  no format. E_IO. */
LOCH_API LOCH_MUST_USE loch_status loch_recording_save(const loch_recording *recording, const char *path,
                                                       const loch_recording_options *options);

/** @} */
/** @name Contents */
/** @{ */

/** An index that stands for nothing. */
#define LOCH_RECORDING_NONE UINT32_MAX

/** Kinds of events. */
typedef enum loch_recording_kind {
    LOCH_RECORDED_ALLOC,  /**< a block was allocated; value: bytes */
    LOCH_RECORDED_FREE,   /**< a block was freed; value: bytes that it had */
    LOCH_RECORDED_USE,    /**< a block is used on a further stream */
    LOCH_RECORDED_RESIZE, /**< a block has another size at the same address; value: bytes from now on */
    LOCH_RECORDED_MOVE,   /**< a block has another address; value: address from now on */
    LOCH_RECORDED_TAKE,   /**< a range was taken from the driver; value: bytes, 0 if they are mapped elsewhere too */
    LOCH_RECORDED_GIVE,   /**< a range is given back to the driver; value: bytes, 0 if they are mapped elsewhere too */
    LOCH_RECORDED_CALL,   /**< a driver call has ended; value: duration in nanoseconds */
    LOCH_RECORDED_SLEEP,  /**< a pool gave its memory back and kept the contents; value: bytes */
    LOCH_RECORDED_WAKE,   /**< a pool has its contents back; value: bytes */
    LOCH_RECORDED_FAIL    /**< a request failed in the end; value: bytes */
} loch_recording_kind;

/** One event. Events are in order of time. */
typedef struct loch_recording_event {
    uint64_t time_ns; /**< nanoseconds since the start of the recording */
    uint64_t value;   /**< see loch_recording_kind */
    /** Index: of the block (ALLOC to MOVE), of the range (TAKE, GIVE), of the name of the call (CALL), of the allocator
     *  (SLEEP, WAKE, FAIL). */
    uint32_t subject;
    uint32_t stack;  /**< index of the call stack, or LOCH_RECORDING_NONE */
    uint16_t stream; /**< number of the stream; 0 is the default stream. For TAKE, GIVE, CALL: index of the device. For
                          FAIL: a loch_status */
    uint16_t thread; /**< index of the thread */
    uint16_t kind;   /**< a loch_recording_kind */
    uint16_t flags;  /**< 1: the source names the stream of this FREE, even if it is that of the allocation */
} loch_recording_event;

/** One block: from its allocation to its free. */
typedef struct loch_recording_block {
    uint64_t id;          /**< id in the source, or its number in order of allocation; unique */
    uint64_t bytes;       /**< bytes asked for at the allocation */
    uint64_t address;     /**< address at the allocation; 0 if the source has no addresses */
    uint32_t alloc_event; /**< index of its ALLOC event; of a block that was there before the start, event of time 0 */
    uint32_t free_event;  /**< index of its FREE event, or LOCH_RECORDING_NONE if it was live at the end */
    uint32_t tag;         /**< index of its tag; 0 is no tag */
    uint16_t allocator;   /**< index of its allocator */
    uint16_t stream;      /**< number of the stream of the allocation */
    uint8_t alignment;    /**< log2 of the alignment asked for; 0 for none */
    uint8_t is_present;   /**< 1: the block was live before the recording started */
    uint8_t reserved[6];  /**< 0 */
    uint64_t max_bytes;   /**< bytes of addresses that a growable block has reserved; 0 for other blocks */
} loch_recording_block;

/** One range of memory from a driver. */
typedef struct loch_recording_range {
    uint64_t address;    /**< start of the range; 0 if the source has no addresses */
    uint64_t bytes;      /**< length in bytes */
    uint32_t take_event; /**< index of its TAKE event */
    uint32_t give_event; /**< index of its GIVE event, or LOCH_RECORDING_NONE */
    uint16_t device;     /**< index of the device */
    uint16_t kind;       /**< a loch_memory_kind */
    uint32_t memory;     /**< ranges with one number map one piece of memory; 0 for memory of its own */
} loch_recording_range;

/** Figures of a recording. */
typedef struct loch_recording_info {
    size_t size;                  /**< set by the caller to sizeof(loch_recording_info) */
    loch_recording_format format; /**< format that it was read from */
    const char *path;             /**< path that it was read from; borrowed from the recording */
    const char *program;          /**< program that was recorded; "" if not known; borrowed */
    uint64_t events;              /**< number of events */
    uint64_t blocks;              /**< number of blocks */
    uint64_t ranges;              /**< number of ranges; 0 if the source has none */
    uint64_t tags;                /**< number of tags, including 0 for no tag */
    uint64_t allocators;          /**< number of allocators, at least 1 */
    uint64_t devices;             /**< number of devices, at least 1 */
    uint64_t threads;             /**< number of threads, at least 1 */
    uint64_t streams;             /**< largest number of a stream, plus 1 */
    uint64_t calls;               /**< number of names of driver calls */
    uint64_t stacks;              /**< number of call stacks */
    uint64_t lost;                /**< events that the recorder lost */
    uint64_t duration_ns;         /**< time of the last event */
    uint64_t started_ns;          /**< nanoseconds since 1970 at the start; 0 if not known */
    uint64_t peak_requested;      /**< most bytes that the program held at a time */
    uint64_t peak_event;          /**< index of the event that reached it */
    uint64_t peak_reserved;       /**< most bytes taken from drivers at a time; 0 if the source has no ranges */
    uint64_t live_blocks;         /**< number of blocks that were live at the end */
    uint64_t live_bytes;          /**< bytes of these blocks */
    uint32_t has_addresses;       /**< 1: blocks have addresses */
    uint32_t was_ended; /**< 1: the recording ended in order; 0: the program died, or the source does not say */
    uint64_t unknown;   /**< events that were left out: they name blocks or ranges whose start is not recorded */
} loch_recording_info;

/** Reads the figures of a recording. Set `out->size` before the call. */
LOCH_API LOCH_MUST_USE loch_status loch_recording_get_info(const loch_recording *recording, loch_recording_info *out);

/** Returns the events of a recording; borrowed. loch_recording_info.events says how many. */
LOCH_API const loch_recording_event *loch_recording_get_events(const loch_recording *recording);

/** Returns the blocks of a recording, in order of allocation; borrowed. */
LOCH_API const loch_recording_block *loch_recording_get_blocks(const loch_recording *recording);

/** Returns the ranges of a recording, in order of taking; borrowed. */
LOCH_API const loch_recording_range *loch_recording_get_ranges(const loch_recording *recording);

/** What a name names. */
typedef enum loch_recording_noun {
    LOCH_RECORDING_TAG,       /**< a tag */
    LOCH_RECORDING_ALLOCATOR, /**< an allocator: its name */
    LOCH_RECORDING_DEVICE,    /**< a device */
    LOCH_RECORDING_THREAD,    /**< a thread */
    LOCH_RECORDING_CALL       /**< a driver call */
} loch_recording_noun;

/** Returns a name; "" if there is none. Borrowed from the recording. */
LOCH_API const char *loch_recording_get_name(const loch_recording *recording, loch_recording_noun noun, size_t index);

/** Returns the frames of a call stack, innermost first, as text: "function at file:line", "function", or
 *  "module+0xoffset". Borrowed from the recording. NULL and a count of 0 for LOCH_RECORDING_NONE. */
LOCH_API const char *const *loch_recording_get_stack(const loch_recording *recording, uint32_t stack, size_t *count);

/** Prints the figures of a recording: peaks, tags, largest blocks, leaks, fragmentation, driver calls. `text`, `bytes`
 *  and `length` work as in loch_stats_print. */
LOCH_API LOCH_MUST_USE loch_status loch_recording_print(const loch_recording *recording, loch_format format, char *text,
                                                        size_t bytes, size_t *length);

/** Prints what differs between two recordings: peaks, tags, call sites, driver calls. `text`, `bytes` and `length` work
 *  as in loch_stats_print. */
LOCH_API LOCH_MUST_USE loch_status loch_recording_print_difference(const loch_recording *before,
                                                                   const loch_recording *after, loch_format format,
                                                                   char *text, size_t bytes, size_t *length);

/** @} */
/** @name Report */
/** @{ */

/** Options of loch_report_save. Zero means default. */
typedef struct loch_report_options {
    size_t size;                     /**< sizeof(loch_report_options) */
    const char *title;               /**< title of the page; NULL for the names of the files; borrowed */
    uint64_t begin_ns;               /**< start of the window of time to show */
    uint64_t end_ns;                 /**< end of the window of time; 0 for the end of the recording */
    loch_insight_progress *progress; /**< called now and then; may be NULL */
    void *user;                      /**< passed to `progress`; borrowed */
    const char *labels[2];           /**< names of the recordings on the page; NULL for their files; borrowed */
    const char *notes[2];            /**< one sentence about each recording; may be NULL; borrowed */
} loch_report_options;

/** Writes the picture of one recording, or of two side by side, as one HTML file that needs nothing else. E_INVALID:
 *  `count` is not 1 or 2. E_IO, E_HOST_MEMORY. */
LOCH_API LOCH_MUST_USE loch_status loch_report_save(const loch_recording *const *recordings, size_t count,
                                                    const char *path, const loch_report_options *options);

/** @} */

LOCH_END_DECLS

#endif

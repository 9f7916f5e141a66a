/* SPDX-License-Identifier: MIT */
/** @file handover.h
 *  Hands memory over to another process: the cache of a request goes from the process that computed it to the one that
 *  continues it. Part of libloch_comm.
 *
 *      const loch_handover_peer peer = {.size = sizeof peer, .comm = comm, .rank = 1};         the giver
 *      LOCH_CHECK(loch_handover_send(&peer, &cache, 1, stream, NULL, NULL));
 *      loch_buffer_release(cache);
 *
 *      const loch_handover_peer peer = {.size = sizeof peer, .comm = comm, .rank = 0};         the receiver
 *      loch_handover_info info = {.size = sizeof info};
 *      loch_handover *taken;
 *      LOCH_CHECK(loch_handover_receive(&peer, device, stream, NULL, &taken));
 *      LOCH_CHECK(loch_handover_get_info(taken, &info));
 *      ... info.buffers[0] ...
 *      loch_handover_destroy(taken);
 *
 *  - On one machine the memory is mapped (libloch_share): nothing is copied. The giver's pool must have shareable
 *    handles (loch_pool_options.handle.share). The giver releases its buffers when it likes; the memory stays in the
 *    giver's pool until the receiver has let go, and works in the receiver even if the giver ends or crashes.
 *  - Otherwise the contents are sent over the communicator into memory of the receiver. loch_handover_info.way tells.
 *  - All or nothing: if the receiver can neither map nor allocate, both calls fail and the giver has its memory. If the
 *    connection breaks at the last message, the receiver may have the memory while the giver's call fails.
 *  - The receiver may use the memory after the work that is queued on the giver's stream before the call.
 *  - One hand-over at a time goes to or comes from one peer. Two processes that both send first wait for each other. */
#ifndef LOCH_HANDOVER_H
#define LOCH_HANDOVER_H

#include <loch/comm.h>

LOCH_BEGIN_DECLS

/** @name The other process */
/** @{ */

/** The process on the other side: a rank of a communicator, or the other end of a Unix socket. */
typedef struct loch_handover_peer {
    size_t size;     /**< sizeof(loch_handover_peer) */
    loch_comm *comm; /**< communicator; NULL for the socket; borrowed during a call */
    int rank;        /**< rank of the other process in `comm` */
    /** A connected Unix stream socket; used if `comm` is NULL. Close it after a call that failed with E_IO. */
    int socket;
} loch_handover_peer;

/** How memory came to the receiver. */
typedef enum loch_handover_way {
    LOCH_HANDOVER_AUTO,   /**< in options: mapped if possible, otherwise copied */
    LOCH_HANDOVER_MAPPED, /**< the receiver has mapped the giver's memory; no byte was copied */
    LOCH_HANDOVER_COPIED  /**< the receiver has the contents in memory of its own */
} loch_handover_way;

/** Memory that was handed over, on either side. It is not counted: one owner destroys it. */
typedef struct loch_handover loch_handover;

/** @} */
/** @name Give */
/** @{ */

/** The most bytes of a note. */
#define LOCH_HANDOVER_NOTE_MAX ((size_t)1 << 20)

/** Options of loch_handover_send. Zero means default; a NULL pointer means all defaults. */
typedef struct loch_handover_send_options {
    size_t size;           /**< sizeof(loch_handover_send_options) */
    loch_handover_way way; /**< LOCH_HANDOVER_MAPPED: fail with E_UNSUPPORTED rather than copy */
    /** Bytes of the caller that travel along: which request it is, how many tokens it has. Read during the call. */
    const void *note;
    size_t note_bytes; /**< number of bytes of the note, at most LOCH_HANDOVER_NOTE_MAX */
    /** Numbers of the pages to hand over, of each buffer, in the order of the cache; NULL for whole buffers. */
    const size_t *pages;
    size_t pages_count; /**< number of pages */
    size_t page_bytes;  /**< size of a page in bytes; page n starts at n * page_bytes */
    /** How long to wait for each answer over a socket, in nanoseconds; 0 to wait as long as the other side lives. A
     *  communicator has its own timeout. */
    uint64_t timeout_ns;
} loch_handover_send_options;

/** Hands buffers, or the same pages of several buffers, over to another process, which calls loch_handover_receive.
 *  Waits until the receiver has them. The caller keeps its references and releases them when it likes; it must not
 *  write or resize the memory any more if the receiver has mapped it. A growable block is handed over as a buffer
 *  (loch_buffer_adopt). E_INVALID: an argument is not valid. E_OUT_OF_RANGE: a page lies beyond its buffer.
 *  E_UNSUPPORTED: LOCH_HANDOVER_MAPPED, and the memory is not shareable or the receiver cannot map it. E_IO: the other
 *  side has ended. E_BUSY: it does not answer in time. If the receiver fails, its status is returned.
 *  @param buffers  buffers or slices; at least one
 *  @param stream   the receiver's work is ordered after the work on this stream; NULL for the default stream
 *  @param out      tells how long the receiver holds the memory; destroy it with loch_handover_destroy. NULL on
 *                  failure. A NULL pointer: the caller does not want to know. */
LOCH_API LOCH_MUST_USE loch_status loch_handover_send(const loch_handover_peer *peer, loch_buffer *const *buffers,
                                                      size_t count, loch_stream *stream,
                                                      const loch_handover_send_options *options, loch_handover **out);

/** @} */
/** @name Take */
/** @{ */

/** Options of loch_handover_receive. Zero means default; a NULL pointer means all defaults. */
typedef struct loch_handover_receive_options {
    size_t size; /**< sizeof(loch_handover_receive_options) */
    /** LOCH_HANDOVER_MAPPED: fail with E_UNSUPPORTED rather than copy. LOCH_HANDOVER_COPIED: have the contents in
     *  memory of this process; on one machine they are copied out of the mapped memory, and the giver's is free. */
    loch_handover_way way;
    loch_allocator *allocator; /**< memory of copies; NULL for the default allocator of the device */
    loch_tag tag;              /**< tag of copies, for the statistics */
    /** Addresses that are reserved for each copied buffer, in bytes: a growable block that the receiver extends by
     *  loch_buffer_resize. 0 for blocks that do not grow. No use for mapped memory, which keeps its size. */
    size_t max_bytes;
    /** How long to wait for each message over a socket, in nanoseconds; 0 to wait as long as the other side lives. A
     *  communicator has its own timeout. */
    uint64_t timeout_ns;
} loch_handover_receive_options;

/** Receives what another process hands over by loch_handover_send, and waits until it is there. E_INVALID: an argument
 *  is not valid. E_UNSUPPORTED: LOCH_HANDOVER_MAPPED, and the memory cannot be mapped here. E_IO: the other side has
 *  ended, or sent something else. E_BUSY: nothing comes in time. Statuses of loch_buffer_create: the copies do not fit.
 *  If the giver fails, its status is returned. On failure nothing is held.
 *  @param device  device that will use the memory
 *  @param stream  stream that uses the memory first; NULL for the default stream
 *  @param out     owned by the caller; destroy it with loch_handover_destroy. NULL on failure. */
LOCH_API LOCH_MUST_USE loch_status loch_handover_receive(const loch_handover_peer *peer, loch_device *device,
                                                         loch_stream *stream,
                                                         const loch_handover_receive_options *options,
                                                         loch_handover **out);

/** @} */
/** @name After it */
/** @{ */

/** What was handed over. Pointers are borrowed and valid as long as the loch_handover. */
typedef struct loch_handover_info {
    size_t size;           /**< set by the caller to sizeof(loch_handover_info) */
    loch_handover_way way; /**< LOCH_HANDOVER_MAPPED or LOCH_HANDOVER_COPIED */
    size_t bytes;          /**< bytes handed over: of all buffers, or of the pages of all buffers */
    size_t count;          /**< number of buffers */
    /** The buffers at the receiver, in the giver's order; loch_buffer_retain keeps one. NULL at the giver. */
    loch_buffer *const *buffers;
    size_t pages_count; /**< number of pages of each buffer; 0 for whole buffers */
    size_t page_bytes;  /**< size of a page in bytes; 0 for whole buffers */
    /** Offset in bytes of each page in each of `buffers`, in the giver's order; NULL at the giver and without pages. */
    const size_t *page_offsets;
    const void *note;  /**< the giver's note; NULL at the giver, and if there is none */
    size_t note_bytes; /**< number of bytes of the note */
    /** At the giver: buffers that the receiver has mapped and not let go. 0: pages may be used for something else. */
    size_t held;
} loch_handover_info;

/** Reads what was handed over. Set `out->size` before the call. Any thread. */
LOCH_API LOCH_MUST_USE loch_status loch_handover_get_info(const loch_handover *handover, loch_handover_info *out);

/** Lets go. At the receiver: releases the buffers; mapped memory goes back to the giver after the work that is recorded
 *  for it (loch_buffer_record_use) and after the references that the caller has taken. At the giver: the memory is
 *  freed when the receiver has let go and the caller has released its buffers. NULL does nothing. */
LOCH_API void loch_handover_destroy(loch_handover *handover);
LOCH_DEFINE_CLEAR(handover, loch_handover_destroy(object))

/** @} */

LOCH_END_DECLS

#endif

/* SPDX-License-Identifier: MIT */
/** @file share.h
 *  Buffers shared between processes of one machine, without a copy. A library of its own, libloch_share, on the public
 *  interface of Loch.
 *
 *      loch_parcel *parcel;                                            the owner
 *      LOCH_CHECK(loch_parcel_create(buffer, NULL, &parcel));
 *      LOCH_CHECK(loch_parcel_send(parcel, socket));
 *
 *      loch_buffer *buffer;                                            another process
 *      LOCH_CHECK(loch_parcel_receive(device, socket, NULL, &buffer));
 *      ...
 *      loch_buffer_release(buffer);
 *
 *  A parcel offers a buffer to other processes. The buffer's memory comes from a pool with shareable handles
 *  (loch_pool_options.handle.share). Its token, a short string of bytes, can go through any channel; each process that
 *  has the token and is allowed in can import the buffer, any number of times.
 *
 *  - The owner holds the memory as long as the parcel exists or a process has it imported. A process that releases its
 *    buffer, ends or crashes lets go. If the owner ends or crashes, imported memory stays valid in the importers.
 *  - Importers may use the memory after all work that was queued on the owner's stream when the parcel was created. An
 *    imported buffer is given back after the work that is recorded for it (loch_buffer_record_use) has ended.
 *  - Only processes of the owner's user are allowed in, unless the options say otherwise.
 *  - Memory is imported by token once for each process and device: further imports of it, and of other buffers in it,
 *    count one more use of one mapping. A received parcel has a mapping and a connection of its own. In the owner's own
 *    process an import gives the buffer itself.
 *  - What another process sends can only harm what this process has from that process: docs/sharing.md has
 *    the threat model.
 *
 *  All calls work from any thread. The library runs one thread in a process that has created a parcel. A forked child
 *  has neither the parcels nor the imports of its parent: what it inherited it can only destroy and release.
 */
#ifndef LOCH_SHARE_H
#define LOCH_SHARE_H

#include <loch/loch.h>

LOCH_BEGIN_DECLS

/** A buffer that is offered to other processes. */
typedef struct loch_parcel loch_parcel;

/** @name Offer a buffer */
/** @{ */

/** Which users may be on the other side. */
typedef enum loch_parcel_users {
    LOCH_PARCEL_SAME_USER, /**< only processes with the effective user of this process */
    LOCH_PARCEL_ONE_USER,  /**< also processes of one more user: `user_id` */
    LOCH_PARCEL_ANY_USER   /**< processes of any user */
} loch_parcel_users;

/** Options of loch_parcel_create. Zero means default; a NULL pointer means all defaults. */
typedef struct loch_parcel_options {
    size_t size; /**< sizeof(loch_parcel_options) */
    /** Importers use the memory after the work that is queued on this stream now; NULL for the default stream. */
    loch_stream *stream;
    loch_parcel_users users; /**< users that may import */
    uint32_t user_id;        /**< for LOCH_PARCEL_ONE_USER */
    /** LOCH_READ_ONLY: importers get a buffer that copies and fills refuse to write. The device does not enforce it. */
    loch_access access;
} loch_parcel_options;

/** Offers a buffer, or a slice of one, to other processes. The parcel holds a reference on the buffer, and pins it if
 *  it is movable. The buffer must not be resized while it is offered or imported. E_UNSUPPORTED: the memory is not
 *  shareable; create its pool with LOCH_SHARE_FD. E_INVALID: the buffer is empty. E_BUSY: the buffer is asleep.
 *  E_HOST_MEMORY, E_IO: the system refuses a thread or a socket.
 *  @param out  owned by the caller; destroy it with loch_parcel_destroy. NULL on failure. */
LOCH_API LOCH_MUST_USE loch_status loch_parcel_create(loch_buffer *buffer, const loch_parcel_options *options,
                                                      loch_parcel **out);

/** Ends the offer: the token cannot be imported any more. Processes that have imported the buffer keep it; its memory
 *  is released after the last of them let go. NULL does nothing. */
LOCH_API void loch_parcel_destroy(loch_parcel *parcel);
LOCH_DEFINE_CLEAR(parcel, loch_parcel_destroy(object))

/** The most bytes that a token has. */
#define LOCH_PARCEL_TOKEN_MAX 255

/** Returns the token of a parcel. It contains a secret: each process of an allowed user that has
 *  the token can import the buffer.
 *  Borrowed; valid as long as the parcel. NULL returns NULL.
 *  @param length  number of bytes, at most LOCH_PARCEL_TOKEN_MAX */
LOCH_API const void *loch_parcel_get_token(const loch_parcel *parcel, size_t *length);

/** Whether the memory of a parcel is what it was. */
typedef enum loch_parcel_state {
    LOCH_PARCEL_OPEN, /**< the token can be imported */
    /** The pool gave the memory back, by loch_pool_sleep or because the buffer did not own it. The token is refused,
     *  and earlier importers have the old memory for themselves. Create another parcel. */
    LOCH_PARCEL_STALE
} loch_parcel_state;

/** Figures of a parcel. */
typedef struct loch_parcel_info {
    size_t size;             /**< set by the caller to sizeof(loch_parcel_info) */
    loch_parcel_state state; /**< whether the memory is what it was */
    size_t bytes;            /**< size of the buffer in bytes */
    size_t imports;          /**< imports by other processes that have not let go */
} loch_parcel_info;

/** Reads the figures of a parcel. Set `out->size` before the call. */
LOCH_API LOCH_MUST_USE loch_status loch_parcel_get_info(const loch_parcel *parcel, loch_parcel_info *out);

/** @} */
/** @name Import a buffer */
/** @{ */

/** Options of an import. Zero means default; a NULL pointer means all defaults. */
typedef struct loch_parcel_import_options {
    size_t size;             /**< sizeof(loch_parcel_import_options) */
    loch_stream *stream;     /**< stream that uses the memory first; NULL for the default stream */
    loch_parcel_users users; /**< users that the owner may have */
    uint32_t user_id;        /**< for LOCH_PARCEL_ONE_USER */
    /** The most time that the call waits in all, in nanoseconds; 0 for 30 seconds. Counts the wait for the socket, for
     *  the owner's answers, and for the work of the owner's stream where that is waited for on the host. */
    uint64_t timeout_ns;
} loch_parcel_import_options;

/** Imports a buffer by its token. The stream of the options waits for the owner's work: on the device where events can
 *  be shared (CUDA), otherwise on the host. E_INVALID: the token is damaged, or the memory is on a device of another
 *  driver. E_UNSUPPORTED: the token comes from another version of the library, or the user is not allowed. E_NOT_FOUND:
 *  the owner or the parcel has gone. E_BUSY: the owner does not answer in time, its work does not end in time, or the
 *  parcel is stale. E_LIMIT: the process or the owner has no file descriptor left. On failure nothing is held.
 *  @param device  device of the owner's driver that will use the memory: the one that has it, or a peer
 *  @param bytes   size of the token in bytes
 *  @param out     the caller's reference; loch_buffer_release lets go of the memory. NULL on failure. */
LOCH_API LOCH_MUST_USE loch_status loch_parcel_import(loch_device *device, const void *token, size_t bytes,
                                                      const loch_parcel_import_options *options, loch_buffer **out);

/** @} */
/** @name Over a socket */
/** @{ */

/** Sends a parcel over a connected Unix socket. The token goes with a connection to this process, by which a receiver
 *  of any user can import this parcel; the receiver may be in another container. The parcel must exist until it was
 *  received.
 *  E_INVALID: `socket` is not a connected Unix socket. E_IO: the other side has closed it. */
LOCH_API LOCH_MUST_USE loch_status loch_parcel_send(const loch_parcel *parcel, int socket);

/** Receives a parcel that loch_parcel_send sent, and imports it by the connection that came with it. Fails as
 *  loch_parcel_import does. E_BUSY: also if nothing came in time; the socket is as it was; call again.
 *  E_IO: the other side closed the socket, sent something else, or sent a part and stopped; close the socket then.
 *  @param device  device of the owner's driver that will use the memory: the one that has it, or a peer
 *  @param out     the caller's reference; loch_buffer_release lets go of the memory. NULL on failure. */
LOCH_API LOCH_MUST_USE loch_status loch_parcel_receive(loch_device *device, int socket,
                                                       const loch_parcel_import_options *options, loch_buffer **out);

/** @} */

LOCH_END_DECLS

#endif

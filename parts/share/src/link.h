/* SPDX-License-Identifier: MIT */
/* Unix sockets between an importer and an owner: names, messages with descriptors, and the process on the other side
 * (link.c). Every descriptor is closed by exec, and no call raises SIGPIPE or is interrupted by a signal. */
#ifndef SHARE_LINK_H
#define SHARE_LINK_H

#include "message.h"
#include <sys/types.h>

/* Makes a random key. Returns false and sets errno if the system has no random numbers. */
bool lochi_share_key_create(share_key *out);

/* Opens the socket of the owner with this id, for connections. Returns -1 and sets errno on failure. */
int lochi_share_link_listen(const share_key *owner);

/* Returns the time that is `timeout_ns` from now, in nanoseconds of the monotonic clock. */
uint64_t lochi_share_deadline(uint64_t timeout_ns);

/* Returns whether a deadline has passed. */
bool lochi_share_deadline_is_over(uint64_t deadline_ns);

/* Connects to the owner with this id. Returns -1 and sets errno on failure: EAGAIN if the owner has accepted no
 * connection until `deadline_ns`. */
int lochi_share_link_connect(const share_key *owner, uint64_t deadline_ns);

/* Makes two connected ends. Returns false and sets errno on failure. */
bool lochi_share_link_pair(int ends[2]);

/* The process on the other side. */
typedef struct share_peer {
    pid_t pid; /* 0: in another pid namespace, or not known */
    uid_t uid;
} share_peer;

bool lochi_share_link_peer(int link, share_peer *out);

/* Opens a pidfd of the process on the other side, which is readable when that process has ended. `link` is -1 for a
 * process that is known by `peer` alone. Returns -1 and sets errno if the system cannot; ESRCH if the process has
 * ended. */
int lochi_share_link_pidfd(int link, const share_peer *peer);

/* Has lochi_share_link_read tell the process that sent a message. Returns false if the system cannot. */
bool lochi_share_link_know_senders(int link);

/* Sends one message with `count` descriptors, which stay open here. Returns 0 or the error number; EAGAIN if the other
 * side does not read and `flags` has MSG_DONTWAIT. */
int lochi_share_link_send(int link, const void *bytes, size_t length, const int *descriptors, size_t count, int flags);

/* Sends one message without descriptors. Waits until `deadline_ns` for the other side to read earlier ones. Returns 0
 * or the error number; ETIMEDOUT. */
int lochi_share_link_ask(int link, const void *bytes, size_t length, uint64_t deadline_ns);

/* Receives one message. Waits until `deadline_ns`; 0 for no waiting.
 * `length` is 0 when the other side has closed. `descriptors` has room for SHARE_CHUNK; the caller closes `*count` of
 * them, in every case. Returns 0 or the error number: ETIMEDOUT, EMFILE if descriptors were lost because the process
 * has none left. */
int lochi_share_link_receive(int link, void *bytes, size_t capacity, uint64_t deadline_ns, size_t *length,
                             int *descriptors, size_t *count);

/* Reads one message without waiting, and closes descriptors that came with it. `length` is 0 when the other side has
 * closed. `sender`, if lochi_share_link_know_senders was called, is the process that sent the message; else its pid is
 * 0. Returns 0 or the error number: EAGAIN if there is no message. */
int lochi_share_link_read(int link, void *bytes, size_t capacity, size_t *length, share_peer *sender);

/* Closes `count` descriptors. */
void lochi_share_link_close_all(const int *descriptors, size_t count);

#endif

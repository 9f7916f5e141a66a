/* SPDX-License-Identifier: MIT */
/* Connections of an importer. One connection for each owner serves all imports by token: this process made it, so the
 * name of the owner's socket and the system vouch for the other side. A connection that was received with a parcel
 * serves that import alone. Its sender chose the token and the connection, and could name any process as the owner.
 *
 * One thread at a time asks over a connection and reads the reply; the others wait for their turn until their deadline.
 * No lock is held meanwhile, so that an owner that does not answer delays no import from another owner. The end of a
 * lease has no reply, so it is sent at any time: a message is sent whole. If a reply does not come in time, the
 * connection stays, because closing it would end the leases of this process; the late reply is told by its number and
 * dropped. */
#include "peer.h"
#include "link.h"
#include "state.h"
#include "kit/fail.h"
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#define PEER_IDLE_MAX 4 /* connections without uses that stay open */

struct share_owner {
    struct share_owner *next; /* all members under lochi_share_lock, except where it is said */
    share_key id;
    int fd; /* constant until the connection ends; -1 in the child of a fork */
    unsigned epoch;
    uint32_t pid;    /* constant */
    uid_t uid;       /* constant */
    uint64_t number; /* constant; 0: the connection was received, and serves one import */
    bool is_lost;    /* the owner has closed the connection: it is not found any more */
    bool is_listed;
    size_t uses;
    bool is_asked;        /* a thread asks now; it alone uses `last_lease` and `last_sequence` */
    pthread_cond_t asked; /* signalled when `is_asked` ends; has the monotonic clock */
    uint64_t last_lease, last_sequence;
    size_t pending_count, pending_capacity;
    uint64_t *pending; /* leases whose end was not sent, because the owner did not read */
};

static share_owner *peer_list;
static uint64_t peer_last_number;

/* --- failures --- */

static loch_status peer_fail_gone(uint32_t pid)
{
    return LOCH_FAIL(NOT_FOUND, "the owner of the parcel, process %u, has ended", (unsigned)pid);
}

static loch_status peer_fail_silent(uint32_t pid)
{
    return LOCH_FAIL(BUSY, "the owner of the parcel, process %u, does not answer", (unsigned)pid);
}

static loch_status peer_fail_descriptors(void)
{
    return loch_error_set(LOCH_E_LIMIT, NULL, EMFILE, "this process has no file descriptor left for an import");
}

static loch_status peer_fail_user(const share_owner *owner, const loch_parcel_import_options *options)
{
    char also[32] = "";
    if (options->users == LOCH_PARCEL_ONE_USER) snprintf(also, sizeof also, " and user %u", (unsigned)options->user_id);
    return LOCH_FAIL(UNSUPPORTED,
                     "the owner of the parcel, process %u, is user %u, and the import allows only user %u%s",
                     (unsigned)owner->pid, (unsigned)owner->uid, (unsigned)geteuid(), also);
}

/* --- connections --- */

static void peer_free(share_owner *owner)
{
    if (owner->fd >= 0) close(owner->fd);
    /* In the child of a fork, the threads that waited are the parent's: destroying would wait for them. */
    if (owner->epoch == lochi_share_epoch) pthread_cond_destroy(&owner->asked);
    free(owner->pending);
    free(owner);
}

/* Takes a connection off the list, with the lock held. */
static void peer_unlist(share_owner *owner)
{
    for (share_owner **at = &peer_list; owner->is_listed && *at; at = &(*at)->next)
        if (*at == owner) {
            *at = owner->next;
            owner->is_listed = false;
            return;
        }
}

/* Finds a connection that this process made, with the lock held, and takes a use of it. */
static share_owner *peer_take(const share_key *id)
{
    share_owner *found = peer_list;
    while (found && (found->is_lost || !found->number || !lochi_share_key_is(&found->id, id)))
        found = found->next;
    if (found) found->uses++;
    return found;
}

static bool peer_is_allowed(const share_owner *owner, const loch_parcel_import_options *options)
{
    if (options->users == LOCH_PARCEL_ANY_USER || owner->uid == geteuid()) return true;
    return options->users == LOCH_PARCEL_ONE_USER && owner->uid == (uid_t)options->user_id;
}

/* Makes the object of a connection. Takes `link`, which is closed on failure: E_HOST_MEMORY, or E_IO for a descriptor
 * that is not a Unix socket. */
static loch_status peer_create(const share_token *token, int link, uint64_t number, share_owner **out)
{
    share_peer peer;
    share_owner *owner = calloc(1, sizeof *owner);
    *out = owner;
    if (owner && lochi_share_link_peer(link, &peer)) {
        pthread_condattr_t clock;
        *owner = (share_owner){.id = token->owner,
                               .fd = link,
                               .epoch = lochi_share_epoch,
                               .pid = token->pid,
                               .uid = peer.uid,
                               .number = number,
                               .uses = 1};
        pthread_condattr_init(&clock);
        pthread_condattr_setclock(&clock, CLOCK_MONOTONIC);
        pthread_cond_init(&owner->asked, &clock);
        pthread_condattr_destroy(&clock);
        return LOCH_OK;
    }
    *out = NULL;
    close(link);
    if (!owner) return LOCH_FAIL(HOST_MEMORY, "no host memory for a connection");
    free(owner);
    return LOCH_FAIL(IO, "the descriptor that came with the parcel is not a connection");
}

/* Connects to an owner. */
static loch_status peer_open(const share_token *token, uint64_t deadline_ns, share_owner **out)
{
    const int link = lochi_share_link_connect(&token->owner, deadline_ns);
    if (link >= 0) {
        pthread_mutex_lock(&lochi_share_lock);
        const uint64_t number = ++peer_last_number;
        pthread_mutex_unlock(&lochi_share_lock);
        return peer_create(token, link, number, out);
    }
    *out = NULL;
    if (errno == EMFILE || errno == ENFILE) return peer_fail_descriptors();
    return errno == EAGAIN ? peer_fail_silent(token->pid) : peer_fail_gone(token->pid);
}

/* Lists a connection, so that a fork closes it. A connection that this process made is given up for one to the same
 * owner that another thread listed first. */
static share_owner *peer_enter(share_owner *owner)
{
    pthread_mutex_lock(&lochi_share_lock);
    share_owner *found = owner->number ? peer_take(&owner->id) : NULL;
    if (!found) {
        owner->next = peer_list;
        owner->is_listed = true;
        peer_list = owner;
    }
    pthread_mutex_unlock(&lochi_share_lock);
    if (!found) return owner;
    peer_free(owner);
    return found;
}

loch_status lochi_share_peer_acquire(const share_token *token, const loch_parcel_import_options *options,
                                     uint64_t deadline_ns, share_owner **out)
{
    *out = NULL;
    pthread_mutex_lock(&lochi_share_lock);
    share_owner *owner = peer_take(&token->owner);
    pthread_mutex_unlock(&lochi_share_lock);
    if (!owner) {
        const loch_status status = peer_open(token, deadline_ns, &owner);
        if (status != LOCH_OK || !owner) return status;
        if (peer_is_allowed(owner, options)) owner = peer_enter(owner);
    }
    if (!peer_is_allowed(owner, options)) { /* it is sent no secret */
        const loch_status refused = peer_fail_user(owner, options);
        lochi_share_peer_release(owner);
        return refused;
    }
    *out = owner;
    return LOCH_OK;
}

loch_status lochi_share_peer_adopt(const share_token *token, int link, share_owner **out)
{
    const loch_status status = peer_create(token, link, 0, out);
    if (status == LOCH_OK && *out) *out = peer_enter(*out);
    return status;
}

uint64_t lochi_share_peer_get_number(const share_owner *owner)
{
    return owner->number;
}

bool lochi_share_peer_is_closed(share_owner *owner)
{
    pthread_mutex_lock(&lochi_share_lock);
    const bool is_closed = owner->is_lost && owner->number;
    pthread_mutex_unlock(&lochi_share_lock);
    return is_closed;
}

void lochi_share_peer_release(share_owner *owner)
{
    if (!owner) return;
    pthread_mutex_lock(&lochi_share_lock);
    share_owner *ended = NULL;
    if (--owner->uses == 0) {
        /* Closing a connection ends its leases, also those whose end could not be sent. */
        if (owner->is_lost || !owner->number || owner->pending_count || !owner->is_listed) {
            peer_unlist(owner);
            ended = owner;
        } else { /* the oldest ones without uses are at the end of the list */
            size_t idle = 0;
            for (share_owner *at = peer_list; at; at = at->next)
                if (!at->uses && ++idle > PEER_IDLE_MAX) ended = at;
            if (ended) peer_unlist(ended);
        }
    }
    pthread_mutex_unlock(&lochi_share_lock);
    if (ended) peer_free(ended);
}

/* --- messages --- */

static void peer_lose(share_owner *owner)
{
    pthread_mutex_lock(&lochi_share_lock);
    owner->is_lost = true;
    pthread_mutex_unlock(&lochi_share_lock);
}

/* Sends the ends of leases that could not be sent before. */
static void peer_flush(share_owner *owner)
{
    pthread_mutex_lock(&lochi_share_lock);
    while (owner->pending_count) {
        const share_request request = {.magic = SHARE_MAGIC,
                                       .version = SHARE_VERSION,
                                       .kind = SHARE_RELEASE,
                                       .lease = owner->pending[owner->pending_count - 1]};
        if (lochi_share_link_send(owner->fd, &request, sizeof request, NULL, 0, MSG_DONTWAIT) == EAGAIN) break;
        owner->pending_count--;
    }
    pthread_mutex_unlock(&lochi_share_lock);
}

/* Waits until no other thread asks over the connection. Returns false at the deadline. */
static bool peer_begin_asking(share_owner *owner, uint64_t deadline_ns)
{
    const struct timespec until = {.tv_sec = (time_t)(deadline_ns / 1000000000u),
                                   .tv_nsec = (long)(deadline_ns % 1000000000u)};
    int error = 0;
    pthread_mutex_lock(&lochi_share_lock);
    while (owner->is_asked && error != ETIMEDOUT)
        error = pthread_cond_timedwait(&owner->asked, &lochi_share_lock, &until);
    const bool is_mine = !owner->is_asked;
    owner->is_asked = true;
    pthread_mutex_unlock(&lochi_share_lock);
    return is_mine;
}

static void peer_end_asking(share_owner *owner)
{
    pthread_mutex_lock(&lochi_share_lock);
    owner->is_asked = false;
    pthread_cond_signal(&owner->asked);
    pthread_mutex_unlock(&lochi_share_lock);
}

/* Receives the reply with the number of a request. Returns 0 or the error number; EPIPE: the owner has gone. */
static int peer_receive(share_owner *owner, uint64_t sequence, uint64_t deadline_ns, share_reply *reply,
                        int *descriptors, size_t *count)
{
    uint8_t bytes[sizeof *reply];
    bool was_reset = false;
    for (;;) {
        size_t length;
        const int error =
            lochi_share_link_receive(owner->fd, bytes, sizeof bytes, deadline_ns, &length, descriptors, count);
        if (error == ECONNRESET && !was_reset) { /* once, in front of messages that are left */
            was_reset = true;
            continue;
        }
        if (!error && !length) return EPIPE;
        if (error && error != EMFILE) return error;
        if (!lochi_share_reply_is_sound(bytes, length, reply)) return EPROTO;
        if (reply->sequence == sequence) return error;
        lochi_share_link_close_all(descriptors, *count); /* of a request that was given up */
        *count = 0;
        if (lochi_share_deadline_is_over(deadline_ns)) return ETIMEDOUT; /* wrong replies may come without end */
    }
}

static int peer_exchange(share_owner *owner, share_request *request, uint64_t deadline_ns, share_reply *reply,
                         int *descriptors, size_t *count)
{
    if (lochi_share_deadline_is_over(deadline_ns)) return ETIMEDOUT; /* many quick replies may take too long together */
    request->magic = SHARE_MAGIC;
    request->version = SHARE_VERSION;
    request->sequence = ++owner->last_sequence;
    if (request->kind == SHARE_IMPORT) request->lease = ++owner->last_lease; /* rises in the order of sending */
    const int error = lochi_share_link_ask(owner->fd, request, sizeof *request, deadline_ns);
    if (error && error != EPIPE) return error; /* an owner that has closed may have left the reason */
    return peer_receive(owner, request->sequence, deadline_ns, reply, descriptors, count);
}

loch_status lochi_share_peer_ask(share_owner *owner, share_request *request, uint64_t deadline_ns, share_reply *reply,
                                 int *descriptors, size_t *count)
{
    *count = 0;
    peer_flush(owner);
    if (!peer_begin_asking(owner, deadline_ns)) return peer_fail_silent(owner->pid);
    const int error = peer_exchange(owner, request, deadline_ns, reply, descriptors, count);
    peer_end_asking(owner);
    switch (error) {
    case 0: return LOCH_OK;
    case EMFILE: return peer_fail_descriptors();
    case EAGAIN:
    case ETIMEDOUT: return peer_fail_silent(owner->pid);
    case EPROTO:
    case EMSGSIZE:
        return LOCH_FAIL(IO, "the owner of the parcel, process %u, sent a wrong answer", (unsigned)owner->pid);
    default:
        peer_lose(owner);
        return LOCH_FAIL(NOT_FOUND, "the owner of the parcel, process %u, has ended or has closed the connection",
                         (unsigned)owner->pid);
    }
}

void lochi_share_peer_end_lease(share_owner *owner, uint64_t lease)
{
    if (owner->epoch != lochi_share_epoch) return; /* the lease is the parent's */
    const share_request request = {
        .magic = SHARE_MAGIC, .version = SHARE_VERSION, .kind = SHARE_RELEASE, .lease = lease};
    peer_flush(owner);
    if (lochi_share_link_send(owner->fd, &request, sizeof request, NULL, 0, MSG_DONTWAIT) != EAGAIN) return;
    pthread_mutex_lock(&lochi_share_lock);
    if (owner->pending_count == owner->pending_capacity) {
        const size_t capacity = owner->pending_capacity ? 2 * owner->pending_capacity : 64;
        uint64_t *larger = realloc(owner->pending, capacity * sizeof *larger);
        if (larger) {
            owner->pending = larger;
            owner->pending_capacity = capacity;
        }
    }
    if (owner->pending_count < owner->pending_capacity) owner->pending[owner->pending_count++] = lease;
    pthread_mutex_unlock(&lochi_share_lock);
}

void lochi_share_peer_forked(void)
{
    for (share_owner *owner = peer_list; owner; owner = owner->next) {
        if (owner->fd >= 0) close(owner->fd);
        owner->fd = -1;
        owner->is_listed = false;
    }
    peer_list = NULL;
}

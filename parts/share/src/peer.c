/* SPDX-License-Identifier: MIT */
/* Connections of an importer. One connection for each owner serves all imports. Only a connection that was received
 * with a parcel of another user serves that import alone: the owner answers it about this parcel only.
 *
 * One thread at a time asks an owner and reads the reply; the others wait. The end of a lease has no reply, so it is
 * sent at any time: a message is sent whole. If a reply does not come in time, the connection stays, because closing it
 * would end the leases of this process; the late reply is told by its number and dropped. */
#include "peer.h"
#include "link.h"
#include "state.h"
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#define PEER_IDLE_MAX 4 /* connections without uses that stay open */

struct share_owner {
    struct share_owner *next; /* all members under share_lock, except where it is said */
    share_key id;
    int fd; /* constant until the connection ends; -1 in the child of a fork */
    unsigned epoch;
    uint32_t pid;  /* constant */
    uid_t uid;     /* constant */
    bool is_given; /* constant: received from the owner itself */
    bool is_alone; /* constant: for one import; it is not found by others */
    bool is_lost;  /* the owner has closed the connection: it is not found any more */
    bool is_listed;
    size_t uses;
    pthread_mutex_t asking; /* held by the thread that asks; guards the next two members */
    uint64_t last_lease, last_sequence;
    size_t pending_count, pending_capacity;
    uint64_t *pending; /* leases whose end was not sent, because the owner did not read */
};

static share_owner *peer_list;

/* --- failures --- */

static loch_status peer_fail_gone(uint32_t pid)
{
    return loch_error_set(LOCH_E_NOT_FOUND, NULL, 0, "the owner of the parcel, process %u, has ended", (unsigned)pid);
}

static loch_status peer_fail_silent(uint32_t pid)
{
    return loch_error_set(LOCH_E_BUSY, NULL, 0, "the owner of the parcel, process %u, does not answer", (unsigned)pid);
}

static loch_status peer_fail_descriptors(void)
{
    return loch_error_set(LOCH_E_LIMIT, NULL, EMFILE, "this process has no file descriptor left for an import");
}

static loch_status peer_fail_user(const share_owner *owner, const loch_parcel_import_options *options)
{
    char also[32] = "";
    if (options->users == LOCH_PARCEL_ONE_USER) snprintf(also, sizeof also, " and user %u", (unsigned)options->user_id);
    return loch_error_set(LOCH_E_UNSUPPORTED, NULL, 0,
                          "the owner of the parcel, process %u, is user %u, and the import allows only user %u%s",
                          (unsigned)owner->pid, (unsigned)owner->uid, (unsigned)geteuid(), also);
}

/* --- connections --- */

static void peer_free(share_owner *owner)
{
    if (owner->fd >= 0) close(owner->fd);
    pthread_mutex_destroy(&owner->asking);
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

/* Finds a connection, with the lock held, and takes a use of it. */
static share_owner *peer_take(const share_key *id)
{
    share_owner *found = peer_list;
    while (found && (found->is_lost || found->is_alone || !share_key_is(&found->id, id)))
        found = found->next;
    if (found) found->uses++;
    return found;
}

static bool peer_is_allowed(const share_owner *owner, const loch_parcel_import_options *options)
{
    if (owner->is_given || options->users == LOCH_PARCEL_ANY_USER || owner->uid == geteuid()) return true;
    return options->users == LOCH_PARCEL_ONE_USER && owner->uid == (uid_t)options->user_id;
}

/* Connects to an owner, or takes the connection that was received. */
static loch_status peer_open(const share_token *token, uint64_t timeout_ns, int link, share_owner **out)
{
    share_peer peer;
    const bool is_given = link >= 0;
    share_owner *owner = calloc(1, sizeof *owner);
    *out = NULL;
    if (!is_given) link = share_link_connect(&token->owner, timeout_ns);
    const int error = errno;
    if (!owner || link < 0 || !share_link_peer(link, &peer)) {
        if (link >= 0) close(link);
        free(owner);
        if (!owner) return loch_error_set(LOCH_E_HOST_MEMORY, NULL, 0, "no host memory for a connection");
        if (link < 0 && (error == EMFILE || error == ENFILE)) return peer_fail_descriptors();
        return link < 0 && error == EAGAIN ? peer_fail_silent(token->pid) : peer_fail_gone(token->pid);
    }
    *owner = (share_owner){.id = token->owner,
                           .fd = link,
                           .epoch = share_epoch,
                           .pid = token->pid,
                           .uid = peer.uid,
                           .is_given = is_given,
                           .is_alone = is_given && peer.uid != geteuid(),
                           .uses = 1};
    pthread_mutex_init(&owner->asking, NULL);
    *out = owner;
    return LOCH_OK;
}

/* Lists a connection, or gives it up for one that another thread listed first. */
static share_owner *peer_enter(share_owner *owner)
{
    pthread_mutex_lock(&share_lock);
    share_owner *found = owner->is_alone ? NULL : peer_take(&owner->id);
    if (!found) {
        owner->next = peer_list;
        owner->is_listed = true;
        peer_list = owner;
    }
    pthread_mutex_unlock(&share_lock);
    if (!found) return owner;
    peer_free(owner);
    return found;
}

loch_status share_peer_acquire(const share_token *token, const loch_parcel_import_options *options, int link,
                               share_owner **out)
{
    share_peer peer;
    share_owner *owner = NULL;
    *out = NULL;
    pthread_mutex_lock(&share_lock);
    if (link < 0 || (share_link_peer(link, &peer) && peer.uid == geteuid())) owner = peer_take(&token->owner);
    pthread_mutex_unlock(&share_lock);
    if (owner && link >= 0) close(link);
    if (!owner) {
        const loch_status status = peer_open(token, options->timeout_ns, link, &owner);
        if (status != LOCH_OK || !owner) return status;
        if (!peer_is_allowed(owner, options)) {
            const loch_status refused = peer_fail_user(owner, options);
            peer_free(owner);
            return refused;
        }
        owner = peer_enter(owner);
    }
    if (link < 0 && !peer_is_allowed(owner, options)) {
        const loch_status refused = peer_fail_user(owner, options);
        share_peer_release(owner);
        return refused;
    }
    *out = owner;
    return LOCH_OK;
}

bool share_peer_is_closed(share_owner *owner)
{
    pthread_mutex_lock(&share_lock);
    const bool is_closed = owner->is_lost && !owner->is_alone;
    pthread_mutex_unlock(&share_lock);
    return is_closed;
}

void share_peer_release(share_owner *owner)
{
    if (!owner) return;
    pthread_mutex_lock(&share_lock);
    share_owner *ended = NULL;
    if (--owner->uses == 0) {
        /* Closing a connection ends its leases, also those whose end could not be sent. */
        if (owner->is_lost || owner->is_alone || owner->pending_count || !owner->is_listed) {
            peer_unlist(owner);
            ended = owner;
        } else { /* the oldest ones without uses are at the end of the list */
            size_t idle = 0;
            for (share_owner *at = peer_list; at; at = at->next)
                if (!at->uses && ++idle > PEER_IDLE_MAX) ended = at;
            if (ended) peer_unlist(ended);
        }
    }
    pthread_mutex_unlock(&share_lock);
    if (ended) peer_free(ended);
}

/* --- messages --- */

static void peer_lose(share_owner *owner)
{
    pthread_mutex_lock(&share_lock);
    owner->is_lost = true;
    pthread_mutex_unlock(&share_lock);
}

/* Sends the ends of leases that could not be sent before. */
static void peer_flush(share_owner *owner)
{
    pthread_mutex_lock(&share_lock);
    while (owner->pending_count) {
        const share_request request = {.magic = SHARE_MAGIC,
                                       .version = SHARE_VERSION,
                                       .kind = SHARE_RELEASE,
                                       .lease = owner->pending[owner->pending_count - 1]};
        if (share_link_send(owner->fd, &request, sizeof request, NULL, 0, MSG_DONTWAIT) == EAGAIN) break;
        owner->pending_count--;
    }
    pthread_mutex_unlock(&share_lock);
}

/* Receives the reply with the number of a request. Returns 0 or the error number; EPIPE: the owner has gone. */
static int peer_receive(share_owner *owner, uint64_t sequence, uint64_t timeout_ns, share_reply *reply,
                        int *descriptors, size_t *count)
{
    uint8_t bytes[sizeof *reply];
    bool was_reset = false;
    for (;;) {
        size_t length;
        const int error = share_link_receive(owner->fd, bytes, sizeof bytes, timeout_ns, &length, descriptors, count);
        if (error == ECONNRESET && !was_reset) { /* once, in front of messages that are left */
            was_reset = true;
            continue;
        }
        if (!error && !length) return EPIPE;
        if (error && error != EMFILE) return error;
        if (!share_reply_is_sound(bytes, length, reply)) return EPROTO;
        if (reply->sequence == sequence) return error;
        share_link_close_all(descriptors, *count); /* of a request that was given up */
        *count = 0;
    }
}

loch_status share_peer_ask(share_owner *owner, share_request *request, uint64_t timeout_ns, share_reply *reply,
                           int *descriptors, size_t *count)
{
    *count = 0;
    peer_flush(owner);
    pthread_mutex_lock(&owner->asking);
    request->magic = SHARE_MAGIC;
    request->version = SHARE_VERSION;
    request->sequence = ++owner->last_sequence;
    if (request->kind == SHARE_IMPORT) request->lease = ++owner->last_lease; /* rises in the order of sending */
    int error = share_link_send(owner->fd, request, sizeof *request, NULL, 0, MSG_DONTWAIT);
    if (!error || error == EPIPE) /* an owner that has closed may have left the reason */
        error = peer_receive(owner, request->sequence, timeout_ns, reply, descriptors, count);
    pthread_mutex_unlock(&owner->asking);
    switch (error) {
    case 0: return LOCH_OK;
    case EMFILE: return peer_fail_descriptors();
    case EAGAIN:
    case ETIMEDOUT: return peer_fail_silent(owner->pid);
    case EPROTO:
    case EMSGSIZE:
        return loch_error_set(LOCH_E_IO, NULL, 0, "the owner of the parcel, process %u, sent a wrong answer",
                              (unsigned)owner->pid);
    default:
        peer_lose(owner);
        return loch_error_set(LOCH_E_NOT_FOUND, NULL, 0,
                              "the owner of the parcel, process %u, has ended or has closed the connection",
                              (unsigned)owner->pid);
    }
}

void share_peer_end_lease(share_owner *owner, uint64_t lease)
{
    if (owner->epoch != share_epoch) return; /* the lease is the parent's */
    const share_request request = {
        .magic = SHARE_MAGIC, .version = SHARE_VERSION, .kind = SHARE_RELEASE, .lease = lease};
    peer_flush(owner);
    if (share_link_send(owner->fd, &request, sizeof request, NULL, 0, MSG_DONTWAIT) != EAGAIN) return;
    pthread_mutex_lock(&share_lock);
    if (owner->pending_count == owner->pending_capacity) {
        const size_t capacity = owner->pending_capacity ? 2 * owner->pending_capacity : 64;
        uint64_t *larger = realloc(owner->pending, capacity * sizeof *larger);
        if (larger) {
            owner->pending = larger;
            owner->pending_capacity = capacity;
        }
    }
    if (owner->pending_count < owner->pending_capacity) owner->pending[owner->pending_count++] = lease;
    pthread_mutex_unlock(&share_lock);
}

void share_peer_forked(void)
{
    for (share_owner *owner = peer_list; owner; owner = owner->next) {
        if (owner->fd >= 0) close(owner->fd);
        owner->fd = -1;
        owner->is_listed = false;
    }
    peer_list = NULL;
}

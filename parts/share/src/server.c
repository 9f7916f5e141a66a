/* SPDX-License-Identifier: MIT */
/* One thread with one socket answers all importers of this process. It starts with the first parcel and stays until the
 * process ends.
 *
 * A connection is the lease of a process on all that it has imported. It ends when the other side closes it, when the
 * process on the other side has ended (its pidfd tells, even if a copy of the socket is left in another process), or
 * when it breaks the protocol. The leases of the connection end with it. The thread never waits for an importer: one
 * that does not read its answers is dropped. */
#include "server.h"
#include "link.h"
#include "owner.h"
#include "state.h"
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

/* One import of another process. */
typedef struct server_lease {
    struct server_lease *next;
    uint64_t id;
    loch_parcel *parcel; /* counted as an import */
} server_lease;

/* The members are used by the thread alone, except `fd`, `pidfd` and `next`, which a fork reads under
 * lochi_share_lock. */
typedef struct server_connection {
    struct server_connection *next;
    int fd, pidfd; /* pidfd: -1 if the system has none */
    share_peer peer;
    /* Not 0: the owner passed the connection on with this parcel, which any user may import by it, and no other parcel.
     * The process on the other side is known by its first message, and `peer.pid` is 0 until then. */
    uint64_t passed_with;
    uint64_t last_lease;
    server_lease *leases;
} server_connection;

static struct {
    bool is_running; /* all members under lochi_share_lock */
    share_key id;
    int listener, epoll;
    int reserve; /* a descriptor to give up when the process has no other left */
    server_connection *connections;
} server = {.listener = -1, .epoll = -1, .reserve = -1};

/* What an event of epoll is about: a connection, its pidfd (the address plus 1), or the listener (0). */
static uint64_t server_mark(const server_connection *connection, bool is_pidfd)
{
    return (uint64_t)(uintptr_t)connection + is_pidfd;
}

static bool server_watch(int fd, uint64_t mark)
{
    struct epoll_event event = {.events = EPOLLIN, .data.u64 = mark};
    return epoll_ctl(server.epoll, EPOLL_CTL_ADD, fd, &event) == 0;
}

/* Closing is not enough: a child between fork and exec may have a copy, and events would go on. */
static void server_unwatch(int fd)
{
    if (fd >= 0) epoll_ctl(server.epoll, EPOLL_CTL_DEL, fd, NULL);
}

/* --- connections --- */

static void server_free(server_connection *connection)
{
    if (connection->fd >= 0) close(connection->fd);
    if (connection->pidfd >= 0) close(connection->pidfd);
    free(connection);
}

/* Refuses a connection in answer to its first request, which may not have come yet. Closes `fd`. */
static void server_turn_away(int fd, share_result result)
{
    const share_reply reply = {
        .magic = SHARE_MAGIC, .version = SHARE_VERSION, .result = (uint16_t)result, .sequence = SHARE_FIRST};
    (void)lochi_share_link_send(fd, &reply, SHARE_REPLY_BYTES, NULL, 0, MSG_DONTWAIT);
    close(fd);
}

/* Adds a connection of a process, or one that is passed on with a parcel. Takes `fd`, which is closed on failure. */
static bool server_add(int fd, const share_peer *peer, uint64_t passed_with)
{
    server_connection *connection = calloc(1, sizeof *connection);
    if (!connection) {
        server_turn_away(fd, SHARE_NO_MEMORY);
        return false;
    }
    *connection = (server_connection){.fd = fd, .pidfd = -1, .passed_with = passed_with};
    if (peer) {
        connection->peer = *peer;
        connection->pidfd = lochi_share_link_pidfd(fd, peer);
    }
    pthread_mutex_lock(&lochi_share_lock);
    connection->next = server.connections;
    server.connections = connection;
    /* The pidfd comes first: the thread may free the connection as soon as its socket is watched. */
    const bool is_watched = (connection->pidfd < 0 || server_watch(connection->pidfd, server_mark(connection, true))) &&
                            server_watch(fd, server_mark(connection, false));
    if (!is_watched) {
        server.connections = connection->next;
        server_unwatch(connection->pidfd);
    }
    pthread_mutex_unlock(&lochi_share_lock);
    if (!is_watched) server_free(connection);
    return is_watched;
}

/* Ends a connection and all of its leases. */
static void server_drop(server_connection *connection)
{
    pthread_mutex_lock(&lochi_share_lock);
    server_connection **at = &server.connections;
    while (*at && *at != connection)
        at = &(*at)->next;
    if (*at) *at = connection->next;
    server_unwatch(connection->fd);
    server_unwatch(connection->pidfd);
    pthread_mutex_unlock(&lochi_share_lock);
    for (server_lease *lease = connection->leases, *next; lease; lease = next) {
        next = lease->next;
        lochi_share_owner_end_import(lease->parcel);
        free(lease);
    }
    server_free(connection);
}

/* Accepts a connection. Processes of users that no parcel is for are turned away at once: they cannot use up the
 * descriptors of this process. Without a descriptor for it, accepts the connection in place of the reserve and turns it
 * away, so that the importer learns the reason and the listener does not stay readable. */
static void server_accept(void)
{
    share_peer peer;
    int fd = accept4(server.listener, NULL, NULL, SOCK_CLOEXEC);
    if (fd >= 0) {
        if (!lochi_share_link_peer(fd, &peer))
            close(fd);
        else if (!lochi_share_owner_expects(peer.uid))
            server_turn_away(fd, SHARE_NO_USER);
        else
            server_add(fd, &peer, 0);
    } else if (errno == EMFILE || errno == ENFILE) {
        if (server.reserve >= 0) close(server.reserve);
        fd = accept4(server.listener, NULL, NULL, SOCK_CLOEXEC);
        if (fd >= 0) server_turn_away(fd, SHARE_NO_DESCRIPTOR);
        server.reserve = open("/dev/null", O_RDONLY | O_CLOEXEC);
    }
}

/* Learns which process has a connection that was passed on, from its first message, and watches that process. Returns
 * false if the process has ended. */
static bool server_meet(server_connection *connection, const share_peer *sender)
{
    if (!connection->passed_with || connection->peer.pid || !sender->pid) return true;
    const int pidfd = lochi_share_link_pidfd(-1, sender);
    if (pidfd < 0 && errno == ESRCH) return false;
    pthread_mutex_lock(&lochi_share_lock);
    connection->peer = *sender;
    connection->pidfd = pidfd;
    const bool is_watched = pidfd < 0 || server_watch(pidfd, server_mark(connection, true));
    pthread_mutex_unlock(&lochi_share_lock);
    return is_watched;
}

/* --- requests --- */

static server_lease **server_find(server_connection *connection, uint64_t id)
{
    server_lease **at = &connection->leases;
    while (*at && (*at)->id != id)
        at = &(*at)->next;
    return at;
}

static share_result server_import(server_connection *connection, const share_request *request, server_lease **out)
{
    share_result result;
    if (request->lease <= connection->last_lease) return SHARE_NO_PARCEL; /* numbers rise, so that they stay unique */
    if (connection->passed_with && request->parcel != connection->passed_with) return SHARE_NO_USER;
    server_lease *lease = calloc(1, sizeof *lease);
    if (!lease) return SHARE_NO_MEMORY;
    lease->id = request->lease;
    const bool is_passed = connection->passed_with != 0;
    lease->parcel = lochi_share_owner_acquire(request->parcel, &request->secret,
                                              is_passed ? NULL : &connection->peer.uid, true, &result);
    if (!lease->parcel) {
        free(lease);
        return result;
    }
    connection->last_lease = request->lease;
    lease->next = connection->leases;
    connection->leases = lease;
    *out = lease;
    return SHARE_OK;
}

static void server_release(server_connection *connection, uint64_t id)
{
    server_lease **at = server_find(connection, id), *lease = *at;
    if (!lease) return;
    *at = lease->next;
    lochi_share_owner_end_import(lease->parcel);
    free(lease);
}

static void server_describe(loch_parcel *parcel, share_reply *reply)
{
    reply->span = parcel->span->id;
    reply->span_bytes = parcel->span->bytes;
    reply->offset = (uintptr_t)parcel->address - parcel->span->start;
    reply->bytes = parcel->bytes;
    reply->handles = (uint32_t)parcel->span->count;
    reply->share = (uint32_t)parcel->span->share;
    reply->access = (uint32_t)parcel->access;
    reply->is_ready = lochi_share_order_has_passed(&parcel->order);
    if (!reply->is_ready) reply->has_event = lochi_share_order_get_event(&parcel->order, reply->event);
}

/* Answers a request. Returns false if the connection is to be dropped. */
static bool server_answer(server_connection *connection, const share_request *request)
{
    share_reply reply;
    int descriptors[SHARE_CHUNK];
    size_t count = 0;
    share_result result = SHARE_OK;
    server_lease *lease = NULL;
    memset(&reply, 0, sizeof reply);
    if (request->version != SHARE_VERSION)
        result = SHARE_NO_VERSION;
    else if (request->kind == SHARE_IMPORT)
        result = server_import(connection, request, &lease);
    else if (!(lease = *server_find(connection, request->lease)))
        result = SHARE_NO_PARCEL;
    if (result == SHARE_OK && lease) {
        server_describe(lease->parcel, &reply);
        if (request->kind == SHARE_FETCH || (request->kind == SHARE_IMPORT && request->wants))
            result = lochi_share_span_export(lease->parcel->span, request->first, &reply, descriptors, &count);
        if (result != SHARE_OK && request->kind == SHARE_IMPORT) server_release(connection, request->lease);
    }
    reply.magic = SHARE_MAGIC;
    reply.version = SHARE_VERSION;
    reply.result = (uint16_t)result;
    reply.sequence = request->sequence;
    if (result != SHARE_OK) {
        lochi_share_link_close_all(descriptors, count);
        count = 0;
    }
    const size_t bytes = reply.share == LOCH_SHARE_FABRIC ? sizeof reply : SHARE_REPLY_BYTES;
    const int error = lochi_share_link_send(connection->fd, &reply, bytes, descriptors, count, MSG_DONTWAIT);
    lochi_share_link_close_all(descriptors, count);
    return error == 0;
}

/* Reads one request. Returns false if the connection is to be dropped. */
static bool server_read(server_connection *connection)
{
    share_request request;
    uint8_t bytes[sizeof request + 1];
    share_peer sender;
    size_t length;
    const int error = lochi_share_link_read(connection->fd, bytes, sizeof bytes, &length, &sender);
    if (error == EAGAIN) return true;
    if (error || !length || !lochi_share_request_is_sound(bytes, length, &request)) return false;
    if (!server_meet(connection, &sender)) return false;
    if (request.version == SHARE_VERSION && request.kind == SHARE_RELEASE) {
        server_release(connection, request.lease);
        return true;
    }
    return server_answer(connection, &request);
}

/* --- the thread --- */

static void *server_run(void *user)
{
    (void)user;
    for (;;) {
        struct epoll_event event;
        /* One event at a time: the next one may be about what this one has freed. */
        const int count = epoll_wait(server.epoll, &event, 1, -1);
        if (count < 0 && errno != EINTR) return NULL;
        if (count <= 0) continue;
        const bool is_pidfd = event.data.u64 & 1;
        server_connection *connection = (server_connection *)(uintptr_t)(event.data.u64 & ~(uint64_t)1);
        if (!connection)
            server_accept();
        else if (is_pidfd || !server_read(connection))
            server_drop(connection);
    }
}

/* What the system refused, and the error number. The error record is set without the lock held. */
typedef struct server_failure {
    const char *what; /* NULL: nothing */
    int error;
} server_failure;

static loch_status server_fail(server_failure failure)
{
    const bool is_limit = failure.error == EMFILE || failure.error == ENFILE;
    const bool is_memory = failure.error == ENOMEM || failure.error == EAGAIN;
    return loch_error_set(is_limit    ? LOCH_E_LIMIT
                          : is_memory ? LOCH_E_HOST_MEMORY
                                      : LOCH_E_IO,
                          NULL, failure.error, "%s cannot be made: %s", failure.what, strerror(failure.error));
}

static void server_close(void)
{
    int *const all[] = {&server.listener, &server.epoll, &server.reserve};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        if (*all[i] >= 0) close(*all[i]);
        *all[i] = -1;
    }
}

/* Starts the thread, with all signals blocked: they are for the threads of the program. Returns the error number. */
static int server_start_thread(void)
{
    pthread_t thread;
    sigset_t all, old;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &old);
    const int error = pthread_create(&thread, NULL, server_run, NULL);
    pthread_sigmask(SIG_SETMASK, &old, NULL);
    if (!error) pthread_detach(thread);
    return error;
}

static server_failure server_open(void)
{
    if (!lochi_share_key_create(&server.id)) return (server_failure){"the id of this process", errno};
    server.listener = lochi_share_link_listen(&server.id);
    if (server.listener < 0) return (server_failure){"the socket for importers", errno};
    server.epoll = epoll_create1(EPOLL_CLOEXEC);
    if (server.epoll < 0 || !server_watch(server.listener, 0)) return (server_failure){"the queue of importers", errno};
    server.reserve = open("/dev/null", O_RDONLY | O_CLOEXEC);
    if (server.reserve < 0) return (server_failure){"the reserved descriptor", errno};
    const int error = server_start_thread();
    return (server_failure){error ? "the thread that answers importers" : NULL, error};
}

loch_status lochi_share_server_start(share_key *out)
{
    server_failure failure = {.what = NULL};
    pthread_mutex_lock(&lochi_share_lock);
    if (!server.is_running) {
        failure = server_open();
        server.is_running = !failure.what;
        if (failure.what) server_close();
    }
    *out = server.id;
    pthread_mutex_unlock(&lochi_share_lock);
    return failure.what ? server_fail(failure) : LOCH_OK;
}

bool lochi_share_server_is(const share_key *owner)
{
    pthread_mutex_lock(&lochi_share_lock);
    const bool is_here = server.is_running && lochi_share_key_is(&server.id, owner);
    pthread_mutex_unlock(&lochi_share_lock);
    return is_here;
}

loch_status lochi_share_server_connect(uint64_t parcel, int *out)
{
    int ends[2];
    if (!lochi_share_link_pair(ends)) return server_fail((server_failure){"a connection to this process", errno});
    if (!lochi_share_link_know_senders(ends[0])) {
        const int error = errno;
        lochi_share_link_close_all(ends, 2);
        return server_fail((server_failure){"a connection to this process", error});
    }
    if (!server_add(ends[0], NULL, parcel)) {
        close(ends[1]);
        return server_fail((server_failure){"a connection to this process", ENOMEM});
    }
    *out = ends[1];
    return LOCH_OK;
}

void lochi_share_server_forked(void)
{
    server.is_running = false;
    server_close();
    while (server.connections) { /* the leases are the parent's, and so are the parcels' imports */
        server_connection *connection = server.connections;
        server.connections = connection->next;
        server_free(connection);
    }
}

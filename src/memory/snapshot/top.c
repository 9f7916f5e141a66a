/* SPDX-License-Identifier: MIT */
/* Answers `loch top`. A thread of the library sleeps in accept. Each connection is answered with a snapshot without
 * blocks, and closed.
 *
 * The socket is PID.sock in a folder that only the user can enter: $XDG_RUNTIME_DIR/loch, or /tmp/loch-UID. The folder
 * must be a real folder of this user with mode 0700; otherwise nothing is made. The kernel tells the user of a peer,
 * and other users get no answer. The socket is removed at exit. A process that was killed leaves its socket; the next
 * process that listens removes it.
 *
 * After a fork the child has no thread and no socket. It gets its own with its next allocator. */
#include "memory/snapshot/top.h"
#include "base/fail.h"
#include "base/fork.h"
#include "base/logging.h"
#include "base/options.h"
#include "memory/snapshot/write.h"
#include <dirent.h>
#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/time.h>
#include <sys/un.h>
#include <unistd.h>

#define TOP_SEND_SECONDS 2

static atomic_bool top_is_decided; /* exchange: one thread starts. Reset in the child of a fork */
static struct sockaddr_un top_address = {.sun_family = AF_UNIX};
static int top_socket = -1; /* written before the thread starts, and in the child of a fork */
static pid_t top_pid;       /* process that made the socket: a child must not remove it */

/* --- answers --- */

static loch_status top_send(void *user, const void *text, size_t bytes)
{
    for (const char *at = text; bytes;) {
        const ssize_t count = send(*(const int *)user, at, bytes, MSG_NOSIGNAL);
        if (count < 0 && errno == EINTR) continue;
        if (count <= 0) return LOCH_E_IO; /* the peer has gone, or does not read */
        at += count;
        bytes -= (size_t)count;
    }
    return LOCH_OK;
}

static void top_answer(int peer)
{
    struct ucred about;
    socklen_t length = sizeof about;
    const struct timeval wait = {.tv_sec = TOP_SEND_SECONDS};
    if (getsockopt(peer, SOL_SOCKET, SO_PEERCRED, &about, &length) != 0 || about.uid != geteuid()) return;
    (void)!setsockopt(peer, SOL_SOCKET, SO_SNDTIMEO, &wait, sizeof wait);
    snapshot_contents contents;
    if (lochi_snapshot_collect(false, &contents) == LOCH_OK) (void)!lochi_snapshot_write(&contents, top_send, &peer);
    lochi_snapshot_drop(&contents);
}

static void *top_serve(void *unused)
{
    const int listening = top_socket;
    (void)unused;
    for (;;) {
        const int peer = accept4(listening, NULL, NULL, SOCK_CLOEXEC);
        if (peer >= 0) {
            top_answer(peer);
            close(peer);
        } else if (errno == EBADF || errno == EINVAL || errno == ENOTSOCK) {
            return NULL;
        } else if (errno != EINTR && errno != ECONNABORTED) {
            usleep(100000); /* no descriptors or no memory: later there may be some */
        }
    }
}

/* --- the folder --- */

/* Makes the folder if it is missing, and checks that it belongs to this user alone. */
static bool top_make_folder(const char *folder)
{
    struct stat about;
    if (mkdir(folder, 0700) != 0 && errno != EEXIST) return false;
    if (lstat(folder, &about) == 0 && S_ISDIR(about.st_mode) && about.st_uid == geteuid() &&
        !(about.st_mode & (S_IRWXG | S_IRWXO)))
        return true;
    LOCHI_LOG(WARNING, "LOCH_TOP does not use %.100s: it is not a folder of this user alone (mode 0700)", folder);
    return false;
}

/* Removes the sockets of processes that do not exist. */
static void top_clean(const char *folder)
{
    DIR *list = opendir(folder);
    for (const struct dirent *entry; list && (entry = readdir(list));) {
        char *end;
        const long pid = strtol(entry->d_name, &end, 10);
        if (pid > 0 && !strcmp(end, ".sock") && kill((pid_t)pid, 0) != 0 && errno == ESRCH)
            (void)!unlinkat(dirfd(list), entry->d_name, 0);
    }
    if (list) closedir(list);
}

/* Finds the folder, and writes the address of the socket. */
static bool top_find_address(void)
{
    char folder[sizeof top_address.sun_path - sizeof "/2147483647.sock"];
    const char *run = secure_getenv("XDG_RUNTIME_DIR");
    const int length = run && *run == '/' ? snprintf(folder, sizeof folder, "%s/loch", run) : -1;
    if (length < 0 || (size_t)length >= sizeof folder || !top_make_folder(folder)) {
        snprintf(folder, sizeof folder, "/tmp/loch-%lu", (unsigned long)geteuid());
        if (!top_make_folder(folder)) return false;
    }
    top_clean(folder);
    snprintf(top_address.sun_path, sizeof top_address.sun_path, "%s/%ld.sock", folder, (long)getpid());
    return true;
}

/* --- beginning and end --- */

/* Removes the socket at exit. */
static void top_end(void)
{
    if (top_pid == getpid()) (void)!unlink(top_address.sun_path);
}

static void top_forked(void)
{
    if (top_socket >= 0) close(top_socket);
    top_socket = -1;
    top_pid = 0;
    atomic_store_explicit(&top_is_decided, false, memory_order_relaxed);
}

static lochi_fork_part top_part = {.child = top_forked};

/* Starts the thread, with all signals blocked: they are for the program. */
static int top_start_thread(void)
{
    pthread_t thread;
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    const int error = pthread_create(&thread, NULL, top_serve, NULL);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (error) return error;
    (void)pthread_setname_np(thread, "loch-top");
    (void)pthread_detach(thread);
    return 0;
}

static int top_listen(void)
{
    static bool is_registered; /* of the process and its children: handlers are inherited */
    const struct sockaddr *address = (const struct sockaddr *)&top_address;
    top_socket = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (top_socket < 0) return errno;
    (void)!unlink(top_address.sun_path); /* of a dead process with this id */
    if (bind(top_socket, address, sizeof top_address) != 0) return errno;
    top_pid = getpid();
    if (chmod(top_address.sun_path, 0600) != 0 || listen(top_socket, 8) != 0) return errno;
    lochi_fork_add(&top_part);
    if (!is_registered) is_registered = atexit(top_end) == 0;
    return top_start_thread();
}

loch_status lochi_top_start(void)
{
    bool is_on;
    if (atomic_load_explicit(&top_is_decided, memory_order_relaxed)) return LOCH_OK;
    LOCH_TRY_RETURN(lochi_option_switch("top", &is_on));
    if (atomic_exchange_explicit(&top_is_decided, true, memory_order_relaxed) || !is_on) return LOCH_OK;
    const int error = top_find_address() ? top_listen() : EACCES;
    if (!error) return LOCH_OK;
    LOCHI_LOG(WARNING, "LOCH_TOP: the process cannot be looked at by loch top: %s", strerror(error));
    if (top_socket >= 0) close(top_socket);
    top_socket = -1;
    top_end();
    return LOCH_OK;
}

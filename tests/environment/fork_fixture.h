/* SPDX-License-Identifier: MIT */
/* Children of a fork: what they run, and waiting for them. A child reports by its exit code and a line on stderr:
 * cmocka's checks leave by a jump, which a child must not do. Nothing here depends on speed: a child that hangs is
 * ended after a time that no machine needs. */
#ifndef LOCH_TEST_FORK_FIXTURE_H
#define LOCH_TEST_FORK_FIXTURE_H

#include "base/sanitize.h"
#include "test.h"

#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define FORK_SECONDS 60
#define FORK_BAD 1

#if LOCHI_TSAN
#define FORK_HAS_THREADS 0 /* TSan ends a child of a process with threads that makes threads of its own */
#else
#define FORK_HAS_THREADS 1
#endif

/* Around what threads do again and again while others fork, and the fork itself. AddressSanitizer's own allocator keeps
 * its locks in a child (until LLVM 18, GCC 14): there, and there alone, threads stand still between two steps during a
 * fork. */
#if LOCHI_ASAN
#define FORK_STANDS_STILL 1
static pthread_rwlock_t fork_steps = PTHREAD_RWLOCK_WRITER_NONRECURSIVE_INITIALIZER_NP;
#define FORK_STEP(statement)                                                                                           \
    do {                                                                                                               \
        pthread_rwlock_rdlock(&fork_steps);                                                                            \
        statement;                                                                                                     \
        pthread_rwlock_unlock(&fork_steps);                                                                            \
    } while (0)

static pid_t fork_now(void)
{
    pthread_rwlock_wrlock(&fork_steps);
    const pid_t child = fork();
    if (child)
        pthread_rwlock_unlock(&fork_steps);
    else
        fork_steps = (pthread_rwlock_t)PTHREAD_RWLOCK_WRITER_NONRECURSIVE_INITIALIZER_NP;
    return child;
}
#else
#define FORK_STANDS_STILL 0
#define FORK_STEP(statement) statement

static pid_t fork_now(void)
{
    return fork();
}
#endif

/* In a child: ends the child unless the condition holds. */
#define NEED(condition)                                                                                                \
    do {                                                                                                               \
        if (!(condition)) {                                                                                            \
            fprintf(stderr, "%s:%d: in the child, not so: %s (%s)\n", __FILE__, __LINE__, #condition,                  \
                    loch_error_get()->sentence);                                                                       \
            _exit(FORK_BAD);                                                                                           \
        }                                                                                                              \
    } while (0)

#define NEED_OK(call) NEED((call) == LOCH_OK)
#define NEED_FORKED(call)                                                                                              \
    do {                                                                                                               \
        loch_error_clear();                                                                                            \
        NEED((call) == LOCH_E_FORKED);                                                                                 \
        NEED(loch_error_get()->status == LOCH_E_FORKED && *loch_error_get()->sentence);                                \
    } while (0)

/* In either process. */
#define DO_OK(call)                                                                                                    \
    do {                                                                                                               \
        const loch_status do_status = (call);                                                                          \
        if (fork_is_child) NEED(do_status == LOCH_OK);                                                                 \
        test_check_ok(do_status, #call, __FILE__, __LINE__);                                                           \
    } while (0)

static bool fork_is_child;

typedef void fork_function(void *user);

/* Forks; the child runs `function` and leaves with 0. Gives the child's number. */
__attribute__((unused)) static pid_t fork_start(fork_function *function, void *user)
{
    fflush(NULL);
    const pid_t child = fork_now();
    if (child) return child;
    fork_is_child = true;
    signal(SIGALRM, SIG_DFL);
    alarm(FORK_SECONDS); /* also when the parent is gone */
    function(user);
    _exit(0);
}

/* Waits for a child; its exit code, or -1 when it hung or was killed. */
__attribute__((unused)) static int fork_finish(pid_t child)
{
    const struct timespec nap = {0, 200000};
    int status = 0;
    for (long naps = 0; naps < FORK_SECONDS * 2 * 5000L; naps++) {
        const pid_t gone = waitpid(child, &status, WNOHANG);
        if (gone == child) return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
        if (gone < 0 && errno != EINTR) return -1;
        nanosleep(&nap, NULL);
    }
    kill(child, SIGKILL);
    waitpid(child, &status, 0);
    return -1;
}

/* 0 when the child did all that it had to. */
__attribute__((unused)) static int fork_run(fork_function *function, void *user)
{
    const pid_t child = fork_start(function, user);
    return child < 0 ? -1 : fork_finish(child);
}

__attribute__((unused)) static uint64_t fork_now_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

/* How often: LOCH_TEST_FORKS, or so many. */
__attribute__((unused)) static int fork_count(int usual)
{
    const char *text = getenv("LOCH_TEST_FORKS");
    return text ? atoi(text) : usual;
}

/* Waits until another thread has come so far. */
__attribute__((unused)) static void fork_await(atomic_int *flag, int value)
{
    const struct timespec nap = {0, 100000};
    while (atomic_load(flag) != value)
        nanosleep(&nap, NULL);
}

#endif

/* SPDX-License-Identifier: MIT */
/* Further processes for the tests of budgets: the test program itself, run again. A worker has one pool in the budget.
 * It does what it is told over a socket, or allocates and frees as fast as it can (storm). */
#ifndef LOCH_TEST_BUDGET_WORKERS_H
#define LOCH_TEST_BUDGET_WORKERS_H

#include "budget_fixture.h"
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#include <stdatomic.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>

#define WORKER_SLOTS 8

typedef enum worker_verb {
    WORKER_ALLOC, /* `value` bytes in a slot */
    WORKER_FREE,  /* a slot */
    WORKER_TRIM,
    WORKER_LOOK, /* the grant and what the pool holds */
    WORKER_FORK, /* a child that sleeps; answers its pid */
    WORKER_COPY, /* a child that no handler of forks knows of; answers its pid */
    WORKER_EXEC  /* become another program, which sleeps; no answer */
} worker_verb;

typedef struct worker_order {
    worker_verb verb;
    size_t slot, value;
} worker_order;

typedef struct worker_answer {
    loch_status status;
    size_t value, granted, held;
    char sentence[LOCH_ERROR_SENTENCE_MAX];
} worker_answer;

/* What a worker is told when it starts, by its socket. */
typedef struct worker_start {
    char device[64], path[96], name[32];
    size_t total, minimum, limit;
    uint64_t wait_ns;
    uint64_t storm_seed; /* 0: it waits for orders */
    size_t storm_bytes;  /* of the largest block */
} worker_start;

/* Memory that the test and its workers share: how often each worker was served. */
typedef struct worker_board {
    _Atomic uint64_t served[16];
    _Atomic uint64_t wrong;
} worker_board;

typedef struct worker {
    pid_t pid;
    int socket;
    size_t number;
} worker;

static worker_board *worker_board_mine;
static int worker_board_fd = -1;

/* --- a worker --- */

static size_t worker_child(bool is_copy)
{
    const pid_t child = is_copy ? (pid_t)syscall(SYS_clone, SIGCHLD, 0, 0, 0, 0) : fork();
    if (child) return (size_t)child;
    for (;;)
        pause();
}

static void worker_obey(const worker_order *order, party *p, void **blocks, worker_answer *answer)
{
    switch (order->verb) {
    case WORKER_ALLOC: answer->status = loch_alloc(p->pool, order->value, &blocks[order->slot]); break;
    case WORKER_FREE:
        answer->status = loch_free(p->pool, blocks[order->slot]);
        blocks[order->slot] = NULL;
        break;
    case WORKER_TRIM: answer->status = loch_allocator_trim(p->pool, 0, &answer->value); break;
    case WORKER_FORK:
    case WORKER_COPY: answer->value = worker_child(order->verb == WORKER_COPY); break;
    case WORKER_EXEC: execlp("sleep", "sleep", "600", (char *)NULL); break;
    case WORKER_LOOK: break;
    }
    if (answer->status != LOCH_OK) memcpy(answer->sentence, loch_error_get()->sentence, sizeof answer->sentence);
    loch_budget_member_info info = {.size = sizeof info};
    loch_pool_info pool = {.size = sizeof pool};
    if (loch_budget_member_get_info(p->member, &info) == LOCH_OK) answer->granted = info.granted_bytes;
    if (loch_pool_get_info(p->pool, &pool) == LOCH_OK) answer->held = pool.reserved_bytes;
}

/* Allocates and frees until it is killed. */
static void worker_storm(const worker_start *start, const party *p, worker_board *board, size_t number)
{
    test_random random = {start->storm_seed};
    void *blocks[WORKER_SLOTS] = {NULL};
    for (;;) {
        void **block = &blocks[test_random_below(&random, WORKER_SLOTS)];
        loch_status status = LOCH_OK;
        if (*block)
            status = loch_free(p->pool, *block), *block = NULL;
        else
            status = loch_alloc(p->pool, 1 + test_random_below(&random, start->storm_bytes), block);
        if (status == LOCH_OK) atomic_fetch_add(&board->served[number], 1);
        if (status != LOCH_OK && status != LOCH_E_LIMIT && status != LOCH_E_FRAGMENTED) {
            fprintf(stderr, "worker %zu: %s: %s\n", number, loch_status_name(status), loch_error_get()->sentence);
            atomic_fetch_add(&board->wrong, 1);
        }
        if (test_random_below(&random, 50) == 0) LOCH_IGNORE(loch_allocator_trim(p->pool, 0, NULL));
    }
}

static int worker_run(int socket, int board_fd, size_t number)
{
    worker_start start;
    worker_order order;
    loch_device *device;
    loch_budget *budget;
    party p;
    void *blocks[WORKER_SLOTS] = {NULL};
    if (read(socket, &start, sizeof start) != (ssize_t)sizeof start) return 2;
    const loch_budget_options options = {.size = sizeof options, .total_bytes = start.total, .wait_ns = start.wait_ns};
    const loch_budget_member_options mine = {
        .size = sizeof mine, .minimum_bytes = start.minimum, .limit_bytes = start.limit};
    worker_board *board = mmap(NULL, sizeof *board, PROT_READ | PROT_WRITE, MAP_SHARED, board_fd, 0);
    loch_status status = loch_device_open(start.device, &device);
    if (status == LOCH_OK) status = loch_pool_create(device, start.name, NULL, &p.pool);
    if (status == LOCH_OK) status = loch_budget_open(start.path, &options, &budget);
    if (status == LOCH_OK) status = loch_budget_member_create(budget, p.pool, NULL, &mine, &p.member);
    worker_answer hello = {.status = status};
    if (status != LOCH_OK) memcpy(hello.sentence, loch_error_get()->sentence, sizeof hello.sentence);
    if (write(socket, &hello, sizeof hello) != (ssize_t)sizeof hello || status != LOCH_OK) return 3;
    if (start.storm_seed) worker_storm(&start, &p, board, number);
    while (read(socket, &order, sizeof order) == (ssize_t)sizeof order) {
        worker_answer answer = {.status = LOCH_OK};
        worker_obey(&order, &p, blocks, &answer);
        if (write(socket, &answer, sizeof answer) != (ssize_t)sizeof answer) return 4;
    }
    for (size_t i = 0; i < WORKER_SLOTS; i++)
        if (loch_free(p.pool, blocks[i]) != LOCH_OK) return 5;
    party_end(&p);
    loch_budget_close(budget);
    loch_device_release(device);
    return 0;
}

/* Runs as a worker if the arguments say so: ends the program then. */
BUDGET_UNUSED static void worker_main(int count, char **arguments)
{
    if (count < 5 || strcmp(arguments[1], "worker") != 0) return;
    exit(worker_run(atoi(arguments[2]), atoi(arguments[3]), (size_t)atoi(arguments[4])));
}

/* --- the test --- */

BUDGET_UNUSED static void worker_board_make(void)
{
    worker_board_fd = (int)syscall(SYS_memfd_create, "board", 0);
    assert_true(worker_board_fd >= 0 && ftruncate(worker_board_fd, sizeof *worker_board_mine) == 0);
    worker_board_mine = mmap(NULL, sizeof *worker_board_mine, PROT_READ | PROT_WRITE, MAP_SHARED, worker_board_fd, 0);
    assert_true(worker_board_mine != MAP_FAILED);
}

/* Starts a worker, and does not wait until it has joined. */
BUDGET_UNUSED static worker worker_spawn(size_t number, const worker_start *start)
{
    int sockets[2];
    char text[3][16];
    worker w = {.number = number};
    if (worker_board_fd < 0) worker_board_make();
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM, 0, sockets), 0);
    assert_int_equal(fcntl(sockets[0], F_SETFD, FD_CLOEXEC), 0);
    snprintf(text[0], sizeof text[0], "%d", sockets[1]);
    snprintf(text[1], sizeof text[1], "%d", worker_board_fd);
    snprintf(text[2], sizeof text[2], "%zu", number);
    char *arguments[] = {"worker", "worker", text[0], text[1], text[2], NULL};
    assert_int_equal(posix_spawn(&w.pid, "/proc/self/exe", NULL, NULL, arguments, environ), 0);
    close(sockets[1]);
    w.socket = sockets[0];
    worker_start given = *start;
    if (!given.path[0]) snprintf(given.path, sizeof given.path, "%s", budget_path);
    assert_int_equal(write(w.socket, &given, sizeof given), sizeof given);
    return w;
}

BUDGET_UNUSED static worker_answer worker_hear(const worker *w)
{
    worker_answer answer = {.status = LOCH_E_IO};
    if (read(w->socket, &answer, sizeof answer) != (ssize_t)sizeof answer) fail_msg("worker %zu has ended", w->number);
    return answer;
}

BUDGET_UNUSED static worker worker_begin(size_t number, const worker_start *start)
{
    const worker w = worker_spawn(number, start);
    const worker_answer hello = worker_hear(&w);
    if (hello.status != LOCH_OK) fail_msg("worker %zu: %s", number, hello.sentence);
    return w;
}

BUDGET_UNUSED static worker_answer worker_tell(const worker *w, worker_verb verb, size_t slot, size_t value)
{
    const worker_order order = {verb, slot, value};
    assert_int_equal(write(w->socket, &order, sizeof order), sizeof order);
    return worker_hear(w);
}

/* Tells a worker what must succeed. */
BUDGET_UNUSED static worker_answer worker_do(const worker *w, worker_verb verb, size_t slot, size_t value)
{
    const worker_answer answer = worker_tell(w, verb, slot, value);
    if (answer.status != LOCH_OK) fail_msg("worker %zu: %s", w->number, answer.sentence);
    return answer;
}

/* Lets a worker end, which must have given everything back. */
BUDGET_UNUSED static void worker_end(worker *w)
{
    int status;
    close(w->socket);
    assert_int_equal(waitpid(w->pid, &status, 0), w->pid);
    assert_true(WIFEXITED(status));
    assert_int_equal(WEXITSTATUS(status), 0);
}

BUDGET_UNUSED static void worker_kill(worker *w)
{
    int status;
    assert_int_equal(kill(w->pid, SIGKILL), 0);
    assert_int_equal(waitpid(w->pid, &status, 0), w->pid);
    assert_true(WIFSIGNALED(status));
    close(w->socket);
}

#endif

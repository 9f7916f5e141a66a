/* SPDX-License-Identifier: MIT */
/* A process is killed before and after each of its system calls that touch the file, one after the other: while it
 * makes the file, joins, grows, asks, gives back, leaves and removes the file. Each time the sums are right, a process
 * that waits goes on, and nothing is left. The calls are counted by wrappers that the linker puts around them. */
#include "workers.h"

#define TOTAL (64 * TEST_MIB)
#define CALLS_MAX 2000
#define SURVIVED_MAX 5 /* the number of calls is not the same each time: its thread makes some of them */

/* --- the calls --- */

static _Atomic long kill_at = -1; /* number of calls before the one that kills; -1 for none */
static _Atomic bool kill_is_after;
static _Atomic long kill_calls;

static bool kill_count(void)
{
    const long number = atomic_fetch_add(&kill_calls, 1);
    if (number != atomic_load(&kill_at)) return false;
    if (!atomic_load(&kill_is_after)) kill(getpid(), SIGKILL);
    return true;
}

#define KILL_AROUND(call)                                                                                              \
    const bool is_it = kill_count();                                                                                   \
    const __typeof__(call) result = (call);                                                                            \
    if (is_it) kill(getpid(), SIGKILL);                                                                                \
    return result

ssize_t __real_pwrite(int fd, const void *data, size_t bytes, off_t place);
ssize_t __wrap_pwrite(int fd, const void *data, size_t bytes, off_t place);
ssize_t __wrap_pwrite(int fd, const void *data, size_t bytes, off_t place)
{
    KILL_AROUND(__real_pwrite(fd, data, bytes, place));
}

int __real_fcntl(int fd, int command, void *argument);
int __wrap_fcntl(int fd, int command, void *argument);
int __wrap_fcntl(int fd, int command, void *argument)
{
    KILL_AROUND(__real_fcntl(fd, command, argument));
}

int __real_linkat(int from_folder, const char *from, int to_folder, const char *to, int flags);
int __wrap_linkat(int from_folder, const char *from, int to_folder, const char *to, int flags);
int __wrap_linkat(int from_folder, const char *from, int to_folder, const char *to, int flags)
{
    KILL_AROUND(__real_linkat(from_folder, from, to_folder, to, flags));
}

int __real_unlink(const char *path);
int __wrap_unlink(const char *path);
int __wrap_unlink(const char *path)
{
    KILL_AROUND(__real_unlink(path));
}

int __real_ftruncate(int fd, off_t bytes);
int __wrap_ftruncate(int fd, off_t bytes);
int __wrap_ftruncate(int fd, off_t bytes)
{
    KILL_AROUND(__real_ftruncate(fd, bytes));
}

/* --- the process that is killed --- */

/* Does everything that a process can do with a budget. With `told`, waits in the middle until the test has asked for
 * its free memory. Returns 0 if it was not killed. */
static int live(int told)
{
    const loch_budget_options options = {.size = sizeof options, .total_bytes = TOTAL, .wait_ns = 20000000};
    const loch_budget_member_options mine = {.size = sizeof mine, .minimum_bytes = 4 * TEST_MIB};
    loch_budget *budget;
    loch_budget_member *member;
    loch_allocator *pool;
    void *blocks[3];
    loch_device *own;
    const uint64_t begun = loch_host_now_ns();
    if (loch_device_open(BUDGET_DEVICE, &own) != LOCH_OK) return 8;
    if (loch_pool_create(own, "victim", NULL, &pool) != LOCH_OK) return 1;
    if (loch_budget_open(budget_path, &options, &budget) != LOCH_OK) return 2;
    if (loch_budget_member_create(budget, pool, NULL, &mine, &member) != LOCH_OK) return 3;
    for (size_t i = 0; i < 3; i++)
        while (loch_alloc(pool, 10 * TEST_MIB, &blocks[i]) != LOCH_OK) /* others may be slow to give back */
            if (loch_host_now_ns() - begun > BUDGET_SECONDS * (uint64_t)1000000000) return 4;
    void *more = NULL; /* asks others if there are some, and fails if they have not answered in time */
    if (loch_alloc(pool, 30 * TEST_MIB, &more) == LOCH_OK && loch_free(pool, more) != LOCH_OK) return 5;
    for (size_t i = 0; i < 3; i++)
        if (loch_free(pool, blocks[i]) != LOCH_OK) return 6;
    char letter = 'x';
    if (told >= 0 && (write(told, &letter, 1) != 1 || read(told, &letter, 1) != 1)) return 7;
    loch_budget_member_destroy(member);
    loch_budget_close(budget);
    loch_allocator_release(pool);
    loch_device_release(own);
    return 0;
}

/* Runs as that process if the arguments say so: ends the program then. */
static void victim_main(int count, char **arguments)
{
    if (count < 6 || strcmp(arguments[1], "victim") != 0) return;
    snprintf(budget_path, sizeof budget_path, "%s", arguments[5]);
    atomic_store(&kill_is_after, atoi(arguments[3]));
    atomic_store(&kill_at, atol(arguments[2]));
    exit(live(atoi(arguments[4])));
}

/* Starts it, to be killed at a call. `socket` is -1 for none. */
static pid_t start(long at, bool is_after, int socket)
{
    pid_t pid;
    char call[24], after[4], end[16];
    snprintf(call, sizeof call, "%ld", at);
    snprintf(after, sizeof after, "%d", is_after);
    snprintf(end, sizeof end, "%d", socket);
    char *arguments[] = {"victim", "victim", call, after, end, budget_path, NULL};
    assert_int_equal(posix_spawn(&pid, "/proc/self/exe", NULL, NULL, arguments, environ), 0);
    return pid;
}

/* Waits for its end. Returns whether it was killed; otherwise it must have done everything. */
static bool was_killed(pid_t pid, long at)
{
    int status;
    assert_int_equal(waitpid(pid, &status, 0), pid);
    if (WIFSIGNALED(status)) return true;
    if (!WIFEXITED(status) || WEXITSTATUS(status)) fail_msg("call %ld: exit code %d", at, WEXITSTATUS(status));
    return false;
}

/* The budget must be as if the process had never been there. */
static void expect_as_new(loch_budget *budget, size_t members, long at)
{
    const loch_budget_info info = budget_info(budget);
    if (info.members != members || info.processes != 1) fail_msg("call %ld: %zu members are left", at, info.members);
}

static void a_process_alone_is_killed_at_each_call(void **state)
{
    (void)state;
    size_t kills = 0;
    for (int is_after = 0; is_after < 2; is_after++)
        for (long at = 0, survived = 0; survived < SURVIVED_MAX; at++) {
            assert_true(at < CALLS_MAX);
            const bool is_killed = was_killed(start(at, is_after, -1), at);
            kills += is_killed;
            loch_budget *budget = budget_open(TOTAL, 0); /* whatever it left, the next one has a good file */
            expect_as_new(budget, 0, at);
            assert_int_equal(budget_info(budget).free_bytes, TOTAL);
            loch_budget_close(budget);
            if (budget_is_there()) fail_msg("call %ld: the file is left", at);
            survived = is_killed ? 0 : survived + 1;
        }
    print_message("%zu kills\n", kills);
    assert_true(kills > 60);
}

/* Here the process has a budget with another one, which asks for its free memory while it has some. */
static void a_process_among_others_is_killed_at_each_call(void **state)
{
    (void)state;
    size_t kills = 0;
    loch_budget *budget = budget_open(TOTAL, 30000);
    party other = party_begin(budget_device, budget, "other", 0, 0);
    for (int is_after = 0; is_after < 2; is_after++)
        for (long at = 0, survived = 0; survived < SURVIVED_MAX; at++) {
            int sockets[2];
            char letter = 'x';
            void *block;
            assert_true(at < CALLS_MAX);
            assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM, 0, sockets), 0);
            assert_int_equal(fcntl(sockets[0], F_SETFD, FD_CLOEXEC), 0);
            const pid_t pid = start(at, is_after, sockets[1]);
            close(sockets[1]);
            (void)!read(sockets[0], &letter, 1);                     /* it has freed its blocks, or was killed */
            CHECK_OK(loch_alloc(other.pool, 30 * TEST_MIB, &block)); /* within the fair share */
            CHECK_OK(loch_free(other.pool, block));
            CHECK_OK(loch_allocator_trim(other.pool, 0, NULL));
            (void)!send(sockets[0], &letter, 1, MSG_NOSIGNAL);
            const bool is_killed = was_killed(pid, at);
            close(sockets[0]);
            kills += is_killed;
            expect_as_new(budget, 1, at);
            CHECK_OK(loch_alloc(other.pool, 58 * TEST_MIB, &block)); /* everything that it had is there */
            CHECK_OK(loch_free(other.pool, block));
            CHECK_OK(loch_allocator_trim(other.pool, 0, NULL));
            survived = is_killed ? 0 : survived + 1;
        }
    print_message("%zu kills\n", kills);
    assert_true(kills > 60);
    party_end(&other);
    loch_budget_close(budget);
    assert_false(budget_is_there());
}

int main(int count, char **arguments)
{
    victim_main(count, arguments);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_process_alone_is_killed_at_each_call),
        cmocka_unit_test(a_process_among_others_is_killed_at_each_call),
    };
    return cmocka_run_group_tests(tests, budget_begin, budget_end);
}

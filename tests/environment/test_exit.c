/* SPDX-License-Identifier: MIT */
/* The end of a process while threads allocate, wait and run tasks: by exit, by return from main, by _exit and by
 * quick_exit. Each run is a process of its own, which must end by itself and with its own status. LOCH_TEST_RUNS sets
 * how many. */
#include "base/sanitize.h"
#include "test.h"

#include <errno.h>
#include <inttypes.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <sys/wait.h>
#include <unistd.h>

#define STATUS 42
#define DEADLINE_S 100 /* a process that takes so long hangs */

#if LOCHI_TSAN
#define RUNS 5 /* it sleeps for a second at exit */
#elif LOCHI_ASAN || LOCHI_MSAN
#define RUNS 20
#else
#define RUNS 100
#endif

/* --- the process that ends --- */

static loch_device *device;
static loch_allocator *pool, *direct;
static loch_workers *workers;
static atomic_int loops; /* of all threads */

static void check(loch_status status)
{
    if (status == LOCH_OK) return;
    fprintf(stderr, "%s\n", loch_error_get()->sentence);
    _exit(1);
}

static loch_status task(void *user)
{
    void *block = NULL;
    (void)user;
    const loch_status status = loch_alloc(pool, 3000, &block);
    return status == LOCH_OK ? loch_free(pool, block) : status;
}

static void *use_pool(void *user)
{
    test_random random = {.state = (uintptr_t)user};
    for (;;) {
        void *block;
        check(loch_alloc(pool, 1 + test_random_below(&random, 100000), &block));
        check(loch_free(pool, block));
        atomic_fetch_add(&loops, 1);
    }
    return NULL;
}

/* Two threads want more than half of the memory each, so one of them waits. */
static void *use_direct(void *user)
{
    (void)user;
    const loch_request request = {.size = sizeof request, .bytes = 40 * TEST_MIB, .timeout_ns = UINT64_MAX / 2};
    for (;;) {
        void *block;
        check(loch_allocator_alloc(direct, &request, &block));
        check(loch_free(direct, block));
        atomic_fetch_add(&loops, 1);
    }
    return NULL;
}

static void *use_workers(void *user)
{
    (void)user;
    for (;;) {
        check(loch_workers_run_wait(workers, task, NULL));
        atomic_fetch_add(&loops, 1);
    }
    return NULL;
}

/* Runs at exit, in the middle of it all, and uses the library itself. */
static void at_exit(void)
{
    void *block;
    check(loch_alloc(pool, 1000, &block));
    check(loch_free(pool, block));
}

static int child(const char *how, uint64_t seed)
{
    pthread_t thread;
    test_random random = {.state = seed};
    const loch_workers_options options = {.size = sizeof options, .threads = 2};
    void *(*const functions[])(void *) = {use_pool, use_pool, use_direct, use_direct, use_workers};
    alarm(DEADLINE_S);
    check(loch_device_open("sim:64MiB", &device));
    check(loch_pool_create(device, NULL, NULL, &pool));
    check(loch_direct_create(device, NULL, NULL, &direct));
    check(loch_workers_open(&options, &workers));
    if (test_random_below(&random, 2) && (atexit(at_exit) != 0 || at_quick_exit(at_exit) != 0)) return 1;
    for (uintptr_t i = 0; i < sizeof functions / sizeof *functions; i++)
        if (pthread_create(&thread, NULL, functions[i], (void *)(seed + i)) != 0) return 1;
    for (size_t wanted = test_random_below(&random, 200); (size_t)atomic_load(&loops) < wanted;)
        sched_yield();
    if (!strcmp(how, "exit")) exit(STATUS);
    if (!strcmp(how, "_exit")) _exit(STATUS);
    if (!strcmp(how, "quick_exit")) quick_exit(STATUS);
    return STATUS;
}

/* --- the test --- */

static void run_many(const char *how)
{
    const char *wanted = getenv("LOCH_TEST_RUNS");
    const long runs = wanted ? strtol(wanted, NULL, 10) : RUNS;
    const uint64_t seed = test_seed(1);
    for (long i = 0; i < runs; i++) {
        char number[32];
        snprintf(number, sizeof number, "%" PRIu64, seed + (uint64_t)i);
        fflush(NULL);
        const pid_t pid = fork();
        if (!pid) {
            execl("/proc/self/exe", "test_exit", how, number, (char *)NULL);
            _exit(1);
        }
        int status = 0;
        while (waitpid(pid, &status, 0) < 0)
            assert_int_equal(errno, EINTR);
        if (!WIFEXITED(status) || WEXITSTATUS(status) != STATUS)
            fail_msg("%s of run %s ended with %s %d", how, number, WIFSIGNALED(status) ? "signal" : "status",
                     WIFSIGNALED(status) ? WTERMSIG(status) : WEXITSTATUS(status));
    }
}

static void exit_while_threads_work_is_quiet(void **state)
{
    (void)state;
    run_many("exit");
}

static void return_from_main_while_threads_work_is_quiet(void **state)
{
    (void)state;
    run_many("return");
}

static void underscore_exit_while_threads_work_is_quiet(void **state)
{
    (void)state;
    run_many("_exit");
}

static void quick_exit_while_threads_work_is_quiet(void **state)
{
    (void)state;
    run_many("quick_exit");
}

int main(int argc, char **argv)
{
    if (argc == 3) return child(argv[1], strtoull(argv[2], NULL, 10));
    const struct CMUnitTest cases[] = {
        cmocka_unit_test(exit_while_threads_work_is_quiet),
        cmocka_unit_test(return_from_main_while_threads_work_is_quiet),
        cmocka_unit_test(underscore_exit_while_threads_work_is_quiet),
        cmocka_unit_test(quick_exit_while_threads_work_is_quiet),
    };
    return cmocka_run_group_tests(cases, NULL, NULL);
}

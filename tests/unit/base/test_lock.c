/* SPDX-License-Identifier: MIT */
/* Locks: they exclude, and in libraries with assertions a breach of the ranks stops the process. */
#include "base/lock.h"
#include "test.h"

#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#define THREADS 4
#define ROUNDS 20000

static lochi_lock static_lock = LOCHI_LOCK_INITIALIZER(LOCHI_RANK_OPTIONS);
static long counter;

static void *count_up(void *argument)
{
    lochi_lock *lock = argument;
    for (int i = 0; i < ROUNDS; i++) {
        lochi_lock_take(lock);
        counter++;
        lochi_lock_drop(lock);
    }
    return NULL;
}

static void locks_exclude(void **state)
{
    (void)state;
    lochi_lock made;
    lochi_lock_init(&made, LOCHI_RANK_DEVICE);
    lochi_lock *locks[] = {&static_lock, &made};
    for (int l = 0; l < 2; l++) {
        pthread_t threads[THREADS];
        counter = 0;
        for (int i = 0; i < THREADS; i++)
            assert_int_equal(pthread_create(&threads[i], NULL, count_up, locks[l]), 0);
        for (int i = 0; i < THREADS; i++)
            pthread_join(threads[i], NULL);
        assert_int_equal(counter, (long)THREADS * ROUNDS);
    }
    lochi_lock_fini(&made);
}

static void rising_ranks_in_any_order_of_dropping(void **state)
{
    (void)state;
    lochi_lock locks[3];
    for (int i = 0; i < 3; i++)
        lochi_lock_init(&locks[i], (lochi_rank)(LOCHI_RANK_DEVICE + i));
    for (int i = 0; i < 3; i++)
        lochi_lock_take(&locks[i]);
    lochi_lock_drop(&locks[1]);
    lochi_lock_drop(&locks[0]);
    lochi_lock_drop(&locks[2]);
    lochi_lock_take(&locks[0]); /* nothing is held any more */
    lochi_lock_drop(&locks[0]);
    for (int i = 0; i < 3; i++)
        lochi_lock_fini(&locks[i]);
}

/* Takes two locks in a child; returns whether that stopped it. */
static bool stops(lochi_rank first, lochi_rank second)
{
    fflush(NULL);
    pid_t child = fork();
    if (child == 0) {
        lochi_lock a, b;
        lochi_lock_init(&a, first);
        lochi_lock_init(&b, second);
        fclose(stderr); /* the assertion's own words are not for the test's output */
        signal(SIGABRT, SIG_DFL);
        lochi_lock_take(&a);
        lochi_lock_take(&b);
        _exit(0);
    }
    int status = 0;
    assert_int_equal(waitpid(child, &status, 0), child);
    if (WIFEXITED(status)) assert_int_equal(WEXITSTATUS(status), 0);
    return WIFSIGNALED(status) && WTERMSIG(status) == SIGABRT;
}

/* Whether the library was built with assertions cannot be seen from here: all breaches stop it, or none does. */
static void falling_ranks_stop_the_process(void **state)
{
    (void)state;
    bool has_assertions = stops(LOCHI_RANK_LOG, LOCHI_RANK_DEVICE);
    print_message("the library has %s\n", has_assertions ? "assertions" : "no assertions");
    assert_int_equal(stops(LOCHI_RANK_RANGES, LOCHI_RANK_SIM), has_assertions);
    assert_int_equal(stops(LOCHI_RANK_OPTIONS, LOCHI_RANK_RANGES), has_assertions);
    assert_false(stops(LOCHI_RANK_SIM, LOCHI_RANK_RANGES));
    assert_false(stops(LOCHI_RANK_DEVICE, LOCHI_RANK_LOG));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(locks_exclude),
        cmocka_unit_test(rising_ranks_in_any_order_of_dropping),
        cmocka_unit_test(falling_ranks_stop_the_process),
    };
    return cmocka_run_group_tests_name("locks", tests, NULL, NULL);
}

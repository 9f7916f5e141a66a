/* SPDX-License-Identifier: MIT */
/* Workers: tasks are run, and what they return comes back. A test that would hang is stopped by the time limit of the
 * runner. */
#include "workers_fixture.h"
#include <pthread.h>
#include <signal.h>
#include <sched.h>
#include <stdatomic.h>

/* --- what tasks do --- */

static loch_status fail_silently(void *user)
{
    (void)user;
    return LOCH_E_DRIVER;
}

/* --- running --- */

static int order[TASKS], order_count;

static loch_status note_order(void *user)
{
    order[order_count++] = (int)(intptr_t)user;
    return LOCH_OK;
}

static void tasks_run_first_come_first_served(void **state)
{
    (void)state;
    loch_workers *workers = make(1);
    order_count = 0;
    for (int i = 0; i < TASKS; i++)
        CHECK_OK(loch_workers_run(workers, note_order, (void *)(intptr_t)i, NULL));
    CHECK_OK(loch_workers_wait(workers, NULL));
    assert_int_equal(order_count, TASKS);
    for (int i = 0; i < TASKS; i++)
        assert_int_equal(order[i], i);
    end(workers);
}

static void several_threads_run_at_a_time(void **state)
{
    (void)state;
    loch_workers *workers = make(3);
    gate g = GATE_CLOSED;
    occupy(workers, &g); /* comes back when three of them stand at it */
    gate_open(&g);
    CHECK_OK(loch_workers_wait(workers, NULL));
    end(workers);
}

/* What one thread knows of itself. */
typedef struct place {
    loch_workers *workers;
    gate *gate;
    size_t current;
    char name[16];
    int cpus;
    bool is_on[CPU_SETSIZE];
} place;

static loch_status find_place(void *user)
{
    place *p = user;
    cpu_set_t set;
    p->current = loch_workers_get_current(p->workers);
    pthread_getname_np(pthread_self(), p->name, sizeof p->name);
    if (sched_getaffinity(0, sizeof set, &set) != 0) return LOCH_E_UNSUPPORTED;
    p->cpus = CPU_COUNT(&set);
    for (int i = 0; i < CPU_SETSIZE; i++)
        p->is_on[i] = CPU_ISSET(i, &set);
    return gate_pass(p->gate); /* so that each thread has one */
}

/* The original's setting for CPUs gave threads a name, and left them wherever they were. */
static void threads_are_named_and_run_on_their_cpus(void **state)
{
    (void)state;
    cpu_set_t allowed;
    unsigned cpus[2], count = 0;
    assert_int_equal(sched_getaffinity(0, sizeof allowed, &allowed), 0);
    for (unsigned i = 0; i < CPU_SETSIZE && count < 2; i++)
        if (CPU_ISSET(i, &allowed)) cpus[count++] = i;
    const loch_workers_options options = {
        .size = sizeof options, .name = "a-rather-long-name", .threads = 3, .cpus = cpus, .cpus_count = count};
    gate g = GATE_CLOSED;
    place places[3] = {{0}};
    CHECK_OK(loch_workers_open(&options, &places[0].workers));
    for (int i = 0; i < 3; i++) {
        places[i].workers = places[0].workers;
        places[i].gate = &g;
        CHECK_OK(loch_workers_run(places[i].workers, find_place, &places[i], NULL));
    }
    gate_await(&g, 3);
    gate_open(&g);
    CHECK_OK(loch_workers_wait(places[0].workers, NULL));
    unsigned seen = 0;
    for (int i = 0; i < 3; i++) {
        char name[32];
        assert_true(places[i].current < 3);
        seen |= 1u << places[i].current;
        snprintf(name, sizeof name, "a-rather-long-%zu", places[i].current); /* 15 characters: the name is cut */
        assert_string_equal(places[i].name, name);
        assert_int_equal(places[i].cpus, 1);
        assert_true(places[i].is_on[cpus[places[i].current % count]]);
    }
    assert_int_equal(seen, 7);
    assert_true(loch_workers_get_current(places[0].workers) == SIZE_MAX);
    end(places[0].workers);
}

/* --- what tasks return --- */

/* In the original, waiting for a task that threw never came back. */
static void a_failing_task_returns_to_run_wait(void **state)
{
    (void)state;
    loch_workers *workers = make(2);
    int number = 3;
    atomic_int count = 0;
    CHECK_FAILS(loch_workers_run_wait(workers, fail_with_code, &number), DRIVER);
    assert_string_equal(loch_error_get()->sentence, "task 3 went wrong");
    assert_string_equal(loch_error_get()->driver, "cuda");
    assert_int_equal(loch_error_get()->driver_code, 700);
    CHECK_OK(loch_workers_run_wait(workers, count_up, &count)); /* the thread goes on */
    assert_int_equal(count, 1);
    assert_string_equal(loch_error_get()->sentence, "task 3 went wrong"); /* success leaves the record alone */
    /* the failure has been reported to a waiter */
    CHECK_OK(loch_workers_wait(workers, NULL));
    end(workers);
}

static void a_failure_without_a_sentence_gets_one_of_its_own(void **state)
{
    (void)state;
    loch_workers *workers = make(1);
    int number = 4;
    CHECK_FAILS(loch_workers_run_wait(workers, fail_with_code, &number), DRIVER);
    CHECK_FAILS(loch_workers_run_wait(workers, fail_silently, NULL), DRIVER);
    assert_null(strstr(loch_error_get()->sentence, "went wrong")); /* the earlier one's */
    assert_non_null(strstr(loch_error_get()->sentence, "test"));
    assert_int_equal(loch_error_get()->driver_code, 0);
    end(workers);
}

/* The original kept the last failure alone, and wrote it without its lock. */
static void wait_tells_the_first_failure_and_how_many(void **state)
{
    (void)state;
    loch_workers *workers = make(1);
    int numbers[3] = {1, 2, 3};
    size_t failed = 9;
    for (int i = 0; i < 3; i++)
        CHECK_OK(loch_workers_run(workers, fail_with_code, &numbers[i], NULL));
    CHECK_FAILS(loch_workers_wait(workers, &failed), DRIVER);
    assert_string_equal(loch_error_get()->sentence, "task 1 went wrong");
    assert_int_equal(failed, 3);
    CHECK_OK(loch_workers_wait(workers, &failed)); /* told once */
    assert_int_equal(failed, 0);
    CHECK_OK(loch_workers_run(workers, fail_with_code, &numbers[1], NULL));
    CHECK_FAILS(loch_workers_close(workers, LOCH_WORKERS_DRAIN, NULL), DRIVER); /* and the task is released anyway */
    assert_string_equal(loch_error_get()->sentence, "task 2 went wrong");
}

static void failures_of_released_tasks_are_not_lost(void **state)
{
    (void)state;
    loch_workers *workers = make(1);
    gate g = GATE_CLOSED;
    int numbers[2] = {1, 2};
    size_t failed;
    occupy(workers, &g);
    loch_task *early = queue(workers, fail_with_code, &numbers[0]), *late = queue(workers, fail_with_code, &numbers[1]);
    loch_task *cancelled = queue(workers, fail_with_code, &numbers[1]);
    loch_task_release(early); /* before it has run */
    CHECK_OK(loch_task_cancel(cancelled));
    loch_task_release(cancelled); /* is no failure */
    gate_open(&g);
    CHECK_FAILS(loch_workers_wait(workers, &failed), DRIVER);
    assert_int_equal(failed, 1);
    CHECK_OK(loch_task_query(late));
    loch_task_release(late); /* afterwards */
    loch_task_release(NULL);
    CHECK_FAILS(loch_workers_wait(workers, &failed), DRIVER);
    assert_int_equal(failed, 1);
    end(workers);
}

/* --- wrong calls --- */

static loch_status misuse(void *user)
{
    loch_workers *workers = user;
    size_t failed, cancelled;
    if (loch_workers_wait(workers, &failed) != LOCH_E_INVALID) return LOCH_E_CORRUPT;
    if (loch_workers_close(workers, LOCH_WORKERS_CANCEL, &cancelled) != LOCH_E_INVALID) return LOCH_E_CORRUPT;
    return LOCH_OK;
}

static void wrong_calls_are_refused(void **state)
{
    (void)state;
    loch_workers *workers = TEST_UNTOUCHED;
    loch_task *task = TEST_UNTOUCHED;
    const unsigned none[] = {CPU_SETSIZE}, absent[] = {CPU_SETSIZE - 1};
    cpu_set_t allowed;
    loch_workers_options options = {.size = 3};
    CHECK_FAILS(loch_workers_open(NULL, NULL), INVALID);
    CHECK_FAILS(loch_workers_open(&options, &workers), INVALID);
    assert_null(workers);
    options = (loch_workers_options){.size = sizeof options, .threads = SIZE_MAX};
    CHECK_FAILS(loch_workers_open(&options, &workers), INVALID);
    options = (loch_workers_options){.size = sizeof options, .cpus = none};
    CHECK_FAILS(loch_workers_open(&options, &workers), INVALID);
    options = (loch_workers_options){.size = sizeof options, .cpus_count = 1};
    CHECK_FAILS(loch_workers_open(&options, &workers), INVALID);
    options = (loch_workers_options){.size = sizeof options, .cpus = none, .cpus_count = 1};
    CHECK_FAILS(loch_workers_open(&options, &workers), INVALID);
    assert_int_equal(sched_getaffinity(0, sizeof allowed, &allowed), 0);
    options.cpus = absent;
    if (!CPU_ISSET(absent[0], &allowed)) CHECK_FAILS(loch_workers_open(&options, &workers), INVALID);
    CHECK_FAILS(loch_workers_run(NULL, count_up, NULL, &task), INVALID);
    assert_null(task);
    CHECK_FAILS(loch_workers_run_wait(NULL, count_up, NULL), INVALID);
    CHECK_FAILS(loch_workers_wait(NULL, NULL), INVALID);
    CHECK_OK(loch_workers_close(NULL, LOCH_WORKERS_DRAIN, NULL));
    assert_int_equal(loch_workers_cancel(NULL), 0);
    assert_int_equal(loch_workers_get_threads(NULL), 0);
    assert_true(loch_workers_get_current(NULL) == SIZE_MAX);
    CHECK_FAILS(loch_task_wait(NULL), INVALID);
    CHECK_FAILS(loch_task_query(NULL), INVALID);
    CHECK_FAILS(loch_task_cancel(NULL), INVALID);
    CHECK_OK(loch_workers_open(NULL, &workers));
    assert_int_equal(loch_workers_get_threads(workers), 1);
    CHECK_FAILS(loch_workers_run(workers, NULL, NULL, NULL), INVALID);
    CHECK_FAILS(loch_workers_close(workers, (loch_workers_closing)2, NULL), INVALID);
    CHECK_OK(loch_workers_run_wait(workers, misuse, workers));
    end(workers);
}

/* --- no memory --- */

static loch_status small_program(const void *user)
{
    (void)user;
    atomic_int count = 0;
    loch_workers *workers = NULL;
    chain c = {.depth = 3};
    loch_task *task = NULL;
    loch_status status = loch_workers_open(NULL, &workers);
    c.workers = workers;
    for (int i = 0; i < 3 && status == LOCH_OK; i++)
        status = loch_workers_run(workers, count_up, &count, NULL);
    if (status == LOCH_OK) status = loch_workers_run_wait(workers, go_deeper, &c); /* fails in a task as well */
    if (status == LOCH_OK) status = loch_workers_run(workers, count_up, &count, &task);
    if (status == LOCH_OK) status = loch_task_wait(task);
    loch_error failure = *loch_error_get();
    if (loch_workers_close(workers, LOCH_WORKERS_DRAIN, NULL) != LOCH_OK) return LOCH_E_CORRUPT;
    if (status != LOCH_OK) loch_error_set(failure.status, NULL, 0, "%s", failure.sentence);
    return status;
}

static void without_memory_nothing_is_left_behind(void **state)
{
    (void)state;
    test_host_sweep(small_program, NULL);
}

static loch_status look_at_signals(void *user)
{
    sigset_t blocked;
    sigemptyset(&blocked);
    if (pthread_sigmask(SIG_SETMASK, NULL, &blocked) != 0) return LOCH_E_INVALID;
    *(bool *)user = sigismember(&blocked, SIGTERM) && sigismember(&blocked, SIGINT);
    return LOCH_OK;
}

/* A signal to the process goes to one of the program's own threads, which may have to handle it. */
static void signals_are_for_others(void **state)
{
    (void)state;
    loch_workers *workers;
    bool is_blocked = false;
    sigset_t mine;
    CHECK_OK(loch_workers_open(NULL, &workers));
    CHECK_OK(loch_workers_run_wait(workers, look_at_signals, &is_blocked));
    assert_true(is_blocked);
    CHECK_OK(loch_workers_close(workers, LOCH_WORKERS_DRAIN, NULL));
    sigemptyset(&mine);
    assert_int_equal(pthread_sigmask(SIG_SETMASK, NULL, &mine), 0);
    assert_false(sigismember(&mine, SIGTERM));
}

int main(void)
{
    if (test_heap_install() != LOCH_OK) return 1;
    const struct CMUnitTest tests[] = {
        SIM_TEST(signals_are_for_others),
        SIM_TEST(tasks_run_first_come_first_served),
        SIM_TEST(several_threads_run_at_a_time),
        SIM_TEST(threads_are_named_and_run_on_their_cpus),
        SIM_TEST(a_failing_task_returns_to_run_wait),
        SIM_TEST(a_failure_without_a_sentence_gets_one_of_its_own),
        SIM_TEST(wait_tells_the_first_failure_and_how_many),
        SIM_TEST(failures_of_released_tasks_are_not_lost),
        SIM_TEST(wrong_calls_are_refused),
        SIM_TEST(without_memory_nothing_is_left_behind),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

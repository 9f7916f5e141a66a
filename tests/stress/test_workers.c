/* SPDX-License-Identifier: MIT */
/* Workers under traffic: threads queue tasks, wait for them, cancel and release them, wait for all and cancel all,
 * while tasks queue tasks and wait for them; some of the workers are drained or cancelled with the traffic going on.
 * Every task that was taken has either run once or been cancelled, every failure is heard of once, and every wait comes
 * back: the runner's time limit stops one that does not. */
#include "test.h"
#include "worker.h"

#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>

#define CROWD 4    /* threads outside */
#define ROUNDS 100 /* of workers */
#define STEPS 200  /* of each thread, in a round that does not end under it */
#define ENOUGH 500 /* tasks before the end, in one that does */
#define HELD 6     /* tasks that a thread has at a time */

/* One round. A task's number and depth are its argument, so that one which does not run leaves nothing behind. */
static struct {
    loch_workers *workers;
    atomic_size_t taken, ran, cancelled; /* tasks */
    atomic_size_t failed, heard;         /* failures, and failures that were reported to a waiter */
    atomic_size_t garbled;               /* failures whose sentence was another's */
} river;

typedef struct worker {
    test_random random;
    loch_task *held[HELD];
    size_t held_count;
    loch_task *ticket; /* while it is held, the workers' bookkeeping stays: they may be called though they end */
    bool is_endless;   /* until they do */
    char failure[400];
} worker;

/* --- tasks --- */

static loch_status job_run(void *user);

static loch_status job_queue(uint64_t number, unsigned depth, loch_task **out)
{
    void *user = (void *)(uintptr_t)((number & 0xffffffffu) << 2 | depth);
    atomic_fetch_add(&river.taken, 1);
    const loch_status status = loch_workers_run(river.workers, job_run, user, out);
    if (status != LOCH_OK) atomic_fetch_sub(&river.taken, 1);
    return status;
}

/* Waits for one task and checks its result. A failure of the task is not a failure of the waiter. */
static void job_wait(loch_task *task)
{
    loch_error_clear();
    const loch_status status = loch_task_wait(task);
    const loch_error *error = loch_error_get();
    const bool is_failure = status == LOCH_E_IO;
    const bool is_right = status == LOCH_OK ? error->status == LOCH_OK
                                            : error->status == status && (error->driver_code == 77) == is_failure &&
                                                  (strncmp(error->sentence, "job ", 4) == 0) == is_failure;
    if (is_failure) atomic_fetch_add(&river.heard, 1);
    if (!is_right || (!is_failure && status != LOCH_OK && status != LOCH_E_CANCELLED))
        atomic_fetch_add(&river.garbled, 1);
}

/* Queues two, and waits for them in one order or the other, or lets one go. */
static void job_branch(test_random *random, unsigned depth)
{
    loch_task *tasks[2] = {NULL, NULL};
    for (int i = 0; i < 2; i++)
        (void)!job_queue(test_random_next(random), depth - 1, &tasks[i]); /* refused when the workers end */
    const size_t first = test_random_below(random, 2);
    if (tasks[first]) job_wait(tasks[first]);
    if (tasks[!first] && test_random_below(random, 3))
        job_wait(tasks[!first]);
    else
        loch_task_release(tasks[!first]);
}

static loch_status job_run(void *user)
{
    const unsigned depth = (uintptr_t)user & 3;
    test_random random = {(uintptr_t)user};
    atomic_fetch_add(&river.ran, 1);
    if (depth && test_random_below(&random, 3)) job_branch(&random, depth);
    if (test_random_below(&random, 5)) return LOCH_OK;
    atomic_fetch_add(&river.failed, 1);
    return loch_error_set(LOCH_E_IO, "cuda", 77, "job %p", user);
}

/* --- the crowd --- */

/* Gives one back in one of the ways that there are. */
static void crowd_settle(worker *w, loch_task *task)
{
    switch (test_random_below(&w->random, 4)) {
    case 0: loch_task_release(task); return;
    case 1:
        if (loch_task_cancel(task) == LOCH_OK) atomic_fetch_add(&river.cancelled, 1);
        break;
    case 2:
        while (loch_task_query(task) == LOCH_E_BUSY)
            sched_yield();
        break;
    default: break;
    }
    job_wait(task);
}

/* Queues a task; false when the workers take no more. */
static bool crowd_queue(worker *w)
{
    const bool is_held = w->held_count < HELD && test_random_below(&w->random, 2);
    loch_task *task = NULL;
    const unsigned depth = (unsigned)test_random_below(&w->random, 4);
    const loch_status status = job_queue(test_random_next(&w->random), depth, is_held ? &task : NULL);
    if (status != LOCH_OK && !(status == LOCH_E_CANCELLED && w->is_endless))
        snprintf(w->failure, sizeof w->failure, "queueing gave %s", loch_status_name(status));
    if (task) w->held[w->held_count++] = task;
    return status == LOCH_OK;
}

static void crowd_wait_for_all(worker *w)
{
    size_t failed;
    loch_error_clear();
    const loch_status status = loch_workers_wait(river.workers, &failed);
    EXPECT(status == (failed ? LOCH_E_IO : LOCH_OK));
    EXPECT(!failed || loch_error_get()->driver_code == 77);
    atomic_fetch_add(&river.heard, failed);
}

static void *crowd_run(void *argument)
{
    worker *w = argument;
    bool is_open = true;
    for (int i = 0; (w->is_endless || i < STEPS) && is_open && !w->failure[0]; i++) {
        const size_t choice = test_random_below(&w->random, 40);
        if (choice == 0)
            crowd_wait_for_all(w);
        else if (choice == 1)
            atomic_fetch_add(&river.cancelled, loch_workers_cancel(river.workers));
        else if (choice < 20 && w->held_count)
            crowd_settle(w, w->held[--w->held_count]);
        else
            is_open = crowd_queue(w);
    }
    while (w->held_count)
        crowd_settle(w, w->held[--w->held_count]);
    loch_task_release(w->ticket);
    return NULL;
}

/* --- rounds --- */

static void round_begin(worker *crowd, pthread_t *threads, test_random *random, bool is_endless)
{
    const loch_workers_options options = {.size = sizeof options, .threads = 1 + test_random_below(random, 3)};
    memset(&river, 0, sizeof river);
    CHECK_OK(loch_workers_open(&options, &river.workers));
    for (int i = 0; i < CROWD; i++) {
        crowd[i] = (worker){.random = {test_random_next(random)}, .is_endless = is_endless};
        CHECK_OK(job_queue(i, 0, &crowd[i].ticket));
    }
    for (int i = 0; i < CROWD; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, crowd_run, &crowd[i]), 0);
}

static void round_join(worker *crowd, const pthread_t *threads)
{
    for (int i = 0; i < CROWD; i++)
        pthread_join(threads[i], NULL);
    for (int i = 0; i < CROWD; i++)
        if (crowd[i].failure[0]) fail_msg("%s", crowd[i].failure);
}

static void no_task_and_no_failure_is_lost(void **state)
{
    test_random *random = *state;
    size_t tasks = 0;
    for (int r = 0; r < ROUNDS; r++) {
        worker crowd[CROWD];
        pthread_t threads[CROWD];
        round_begin(crowd, threads, random, false);
        round_join(crowd, threads);
        crowd_wait_for_all(&crowd[0]);
        assert_string_equal(crowd[0].failure, "");
        assert_int_equal(river.taken, river.ran + river.cancelled);
        assert_int_equal(river.failed, river.heard);
        assert_int_equal(river.garbled, 0);
        CHECK_OK(loch_workers_close(river.workers, LOCH_WORKERS_DRAIN, NULL));
        tasks += river.taken;
    }
    print_message("%zu tasks\n", tasks);
}

static void workers_end_during_traffic(void **state)
{
    test_random *random = *state;
    size_t tasks = 0, dropped = 0;
    for (int r = 0; r < ROUNDS; r++) {
        worker crowd[CROWD];
        pthread_t threads[CROWD];
        size_t cancelled;
        round_begin(crowd, threads, random, true);
        while (atomic_load(&river.taken) < ENOUGH)
            sched_yield();
        const loch_status status =
            loch_workers_close(river.workers, r % 2 ? LOCH_WORKERS_CANCEL : LOCH_WORKERS_DRAIN, &cancelled);
        assert_true(status == LOCH_OK || status == LOCH_E_IO); /* status of a task that no thread waited for */
        assert_true(r % 2 || !cancelled);
        round_join(crowd, threads);
        assert_int_equal(river.taken, river.ran + river.cancelled + cancelled);
        assert_int_equal(river.garbled, 0);
        tasks += river.taken;
        dropped += cancelled;
    }
    print_message("%zu tasks, %zu cancelled by an end\n", tasks, dropped);
}

int main(void)
{
    test_random random = {test_seed(20)};
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_prestate(no_task_and_no_failure_is_lost, &random),
        cmocka_unit_test_prestate(workers_end_during_traffic, &random),
    };
    loch_host_usage before = {.size = sizeof before}, after = {.size = sizeof after};
    CHECK_OK(loch_host_get_usage(&before));
    const int failed = cmocka_run_group_tests(tests, NULL, NULL);
    CHECK_OK(loch_host_get_usage(&after));
    if (after.blocks == before.blocks && after.bytes == before.bytes) return failed;
    fprintf(stderr, "%zu pieces of bookkeeping were left behind\n", after.blocks - before.blocks);
    return 1;
}

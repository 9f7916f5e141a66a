/* SPDX-License-Identifier: MIT */
/* Workers: tasks are run, waited for, cancelled; what they return comes back; their ends hold up nobody. A test that would hang is
 * stopped by the time limit of the runner. */
#include "sim_fixture.h"
#include "sweep.h"

#include <pthread.h>
#include <signal.h>
#include <sched.h>
#include <stdatomic.h>

#define TASKS 100

/* --- what tasks do --- */

/* A door that tasks wait at. */
typedef struct gate {
    pthread_mutex_t mutex;
    pthread_cond_t changed;
    int arrived;
    bool is_open;
} gate;

#define GATE_CLOSED                                                                                                    \
    {                                                                                                                  \
        .mutex = PTHREAD_MUTEX_INITIALIZER, .changed = PTHREAD_COND_INITIALIZER                                        \
    }

static loch_status gate_pass(void *user)
{
    gate *g = user;
    pthread_mutex_lock(&g->mutex);
    g->arrived++;
    pthread_cond_broadcast(&g->changed);
    while (!g->is_open)
        pthread_cond_wait(&g->changed, &g->mutex);
    pthread_mutex_unlock(&g->mutex);
    return LOCH_OK;
}

static void gate_open(gate *g)
{
    pthread_mutex_lock(&g->mutex);
    g->is_open = true;
    pthread_cond_broadcast(&g->changed);
    pthread_mutex_unlock(&g->mutex);
}

/* Returns when so many stand at the gate. */
static void gate_await(gate *g, int count)
{
    pthread_mutex_lock(&g->mutex);
    while (g->arrived < count)
        pthread_cond_wait(&g->changed, &g->mutex);
    pthread_mutex_unlock(&g->mutex);
}

static loch_status count_up(void *user)
{
    atomic_fetch_add((atomic_int *)user, 1);
    return LOCH_OK;
}

static loch_status fail_with_code(void *user)
{
    return loch_error_set(LOCH_E_DRIVER, "cuda", 700, "task %d went wrong", *(int *)user);
}

static loch_status fail_silently(void *user)
{
    (void)user;
    return LOCH_E_DRIVER;
}

static loch_workers *make(size_t threads)
{
    loch_workers *workers;
    const loch_workers_options options = {.size = sizeof options, .name = "test", .threads = threads};
    CHECK_OK(loch_workers_open(&options, &workers));
    assert_int_equal(loch_workers_get_threads(workers), threads);
    return workers;
}

static void end(loch_workers *workers)
{
    size_t cancelled = 7;
    CHECK_OK(loch_workers_close(workers, LOCH_WORKERS_DRAIN, &cancelled));
    assert_int_equal(cancelled, 0);
}

static loch_task *queue(loch_workers *workers, loch_task_function *function, void *user)
{
    loch_task *task;
    CHECK_OK(loch_workers_run(workers, function, user, &task));
    return task;
}

/* Stands at the gate with all threads, so that what comes after stays in the queue. */
static void occupy(loch_workers *workers, gate *g)
{
    for (size_t i = 0; i < loch_workers_get_threads(workers); i++)
        CHECK_OK(loch_workers_run(workers, gate_pass, g, NULL));
    gate_await(g, (int)loch_workers_get_threads(workers));
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
    CHECK_OK(loch_workers_wait(workers, NULL));                           /* somebody has been told of it */
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
    CHECK_FAILS(loch_workers_close(workers, LOCH_WORKERS_DRAIN, NULL), DRIVER); /* and it is gone all the same */
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

/* --- tasks that wait for tasks --- */

typedef struct chain {
    loch_workers *workers;
    int depth;
    loch_task *next; /* queued before */
    gate *gate;      /* to stand at before it waits */
    loch_status seen;
} chain;

static loch_status go_deeper(void *user)
{
    chain *c = user;
    if (!c->depth) return LOCH_OK;
    chain below = {.workers = c->workers, .depth = c->depth - 1};
    return loch_workers_run_wait(c->workers, go_deeper, &below);
}

static loch_status wait_for_next(void *user)
{
    chain *c = user;
    c->seen = loch_task_wait(c->next);
    return c->seen;
}

/* In the original, a task of a single thread that waited for another one hung. */
static void run_wait_from_a_worker_of_one_thread(void **state)
{
    (void)state;
    loch_workers *workers = make(1);
    chain c = {.workers = workers, .depth = 100};
    CHECK_OK(loch_workers_run_wait(workers, go_deeper, &c));
    end(workers);
}

typedef struct parents {
    loch_workers *workers;
    int depth, deepest, ran; /* of one thread: no lock */
} parents;

static loch_status run_a_child(void *user)
{
    parents *p = user;
    atomic_int count = 0;
    p->ran++;
    if (++p->depth > p->deepest) p->deepest = p->depth;
    const loch_status status = loch_workers_run_wait(p->workers, count_up, &count);
    p->depth--;
    return status;
}

/* Whoever waits runs what it waits for, and nothing else that is queued: stacks do not grow with the queue. */
static void stacks_do_not_grow_with_the_queue(void **state)
{
    (void)state;
    gate g = GATE_CLOSED;
    parents p = {.workers = make(1)};
    occupy(p.workers, &g);
    for (int i = 0; i < TASKS; i++)
        CHECK_OK(loch_workers_run(p.workers, run_a_child, &p, NULL));
    gate_open(&g);
    CHECK_OK(loch_workers_wait(p.workers, NULL));
    assert_int_equal(p.ran, TASKS);
    assert_int_equal(p.deepest, 1);
    end(p.workers);
}

static void tasks_wait_for_later_ones_in_any_order(void **state)
{
    (void)state;
    for (size_t threads = 1; threads <= 3; threads++) {
        loch_workers *workers = make(threads);
        gate g = GATE_CLOSED;
        chain links[10];
        loch_task *tasks[10] = {NULL};
        int number = 5;
        occupy(workers, &g);
        /* 0 waits for 1, 1 for 2, ...; the last one fails, and all of them hear of it. Queued from both ends. */
        loch_task *last = queue(workers, fail_with_code, &number);
        for (int i = 9; i >= 0; i--) {
            links[i] = (chain){.workers = workers, .next = i < 9 ? tasks[i + 1] : last};
            tasks[i] = queue(workers, wait_for_next, &links[i]);
        }
        gate_open(&g);
        CHECK_FAILS(loch_task_wait(tasks[0]), DRIVER);
        assert_string_equal(loch_error_get()->sentence, "task 5 went wrong");
        for (int i = 0; i < 10; i++)
            assert_int_equal(links[i].seen, LOCH_E_DRIVER);
        end(workers);
    }
}

static loch_status keep_record(void *user)
{
    chain *c = user;
    atomic_int count = 0;
    loch_error_set(LOCH_E_LIMIT, NULL, 0, "the parent's own");
    c->seen = loch_workers_run_wait(c->workers, count_up, &count);
    return loch_error_get()->status;
}

static void a_task_run_on_top_leaves_the_record_below_alone(void **state)
{
    (void)state;
    loch_workers *workers = make(1);
    chain c = {.workers = workers};
    CHECK_FAILS(loch_workers_run_wait(workers, keep_record, &c), LIMIT);
    assert_int_equal(c.seen, LOCH_OK);
    assert_string_equal(loch_error_get()->sentence, "the parent's own");
    end(workers);
}

/* A worker that waits must not begin a task that waits for it: neither could go on. */
static void a_waiting_worker_is_not_buried(void **state)
{
    (void)state;
    loch_workers *workers = make(2);
    gate g = GATE_CLOSED;
    loch_task *far = queue(workers, gate_pass, &g); /* on one thread */
    gate_await(&g, 1);
    chain near = {.next = far}, above;
    loch_task *waiting = queue(workers, wait_for_next, &near); /* on the other: waits for it */
    above = (chain){.next = waiting};
    loch_task *buried = queue(workers, wait_for_next, &above); /* waits for that one */
    gate_open(&g);
    CHECK_OK(loch_task_wait(buried));
    end(workers);
}

static loch_status wait_for_the_other(void *user)
{
    chain *c = user;
    (void)!gate_pass(c->gate); /* all of them do, so that all run */
    c->seen = loch_task_wait(c->next);
    if (c->seen == LOCH_E_INVALID) loch_task_release(c->next); /* it stays the caller's */
    return LOCH_OK;
}

static void who_would_wait_for_ever_is_told(void **state)
{
    (void)state;
    for (int count = 1; count <= 3; count++) {
        loch_workers *workers = make(3);
        gate both = GATE_CLOSED;
        chain links[3] = {{0}};
        loch_task *tasks[3];
        int told = 0;
        for (int i = 0; i < count; i++) {
            links[i].gate = &both;
            tasks[i] = queue(workers, wait_for_the_other, &links[i]);
        }
        gate_await(&both, count);
        for (int i = 0; i < count; i++)
            links[i].next = tasks[(i + 1) % count]; /* a circle; of one: itself */
        gate_open(&both);
        CHECK_OK(loch_workers_wait(workers, NULL));
        for (int i = 0; i < count; i++) {
            assert_true(links[i].seen == LOCH_OK || links[i].seen == LOCH_E_INVALID);
            told += links[i].seen == LOCH_E_INVALID;
        }
        assert_int_equal(told, 1);
        end(workers);
    }
}

/* --- waiting for all --- */

typedef struct producer {
    loch_workers *workers;
    atomic_bool is_over;
    atomic_int ran;
    char failure[400];
} producer;

/* There is always one task that has not ended: the next one is queued before the gate of the last one opens. */
static void *produce(void *argument)
{
    producer *p = argument;
    static gate gates[2];
    int at = 0;
    gates[0] = gates[1] = (gate)GATE_CLOSED;
    loch_status status = loch_workers_run(p->workers, gate_pass, &gates[0], NULL);
    while (status == LOCH_OK && !atomic_load(&p->is_over)) {
        at = !at;
        gate_await(&gates[!at], 1); /* so the one before has left the other gate */
        gates[at] = (gate)GATE_CLOSED;
        status = loch_workers_run(p->workers, gate_pass, &gates[at], NULL);
        gate_open(&gates[!at]);
        atomic_fetch_add(&p->ran, 1);
    }
    gate_open(&gates[at]);
    if (status != LOCH_OK) snprintf(p->failure, sizeof p->failure, "%.300s", loch_error_get()->sentence);
    return NULL;
}

static void wait_is_not_held_up_by_later_tasks(void **state)
{
    (void)state;
    producer p = {.workers = make(1)};
    pthread_t thread;
    assert_int_equal(pthread_create(&thread, NULL, produce, &p), 0);
    while (atomic_load(&p.ran) < 10)
        sched_yield();
    CHECK_OK(loch_workers_wait(p.workers, NULL));
    atomic_store(&p.is_over, true);
    pthread_join(thread, NULL);
    assert_string_equal(p.failure, "");
    end(p.workers);
}

typedef struct tree {
    loch_workers *workers;
    atomic_int *count;
    int depth;
} tree;

static tree tree_nodes[4];

static loch_status grow(void *user)
{
    const tree *node = user;
    atomic_fetch_add(node->count, 1);
    loch_status status = LOCH_OK;
    for (int i = 0; i < 2 && node->depth && status == LOCH_OK; i++)
        status = loch_workers_run(node->workers, grow, &tree_nodes[node->depth - 1], NULL);
    return status;
}

static loch_workers *plant(atomic_int *count, gate *g)
{
    loch_workers *workers = make(2);
    occupy(workers, g);
    for (int i = 0; i < 4; i++)
        tree_nodes[i] = (tree){workers, count, i};
    CHECK_OK(loch_workers_run(workers, grow, &tree_nodes[3], NULL));
    return workers;
}

static void wait_includes_what_tasks_queue(void **state)
{
    (void)state;
    for (int i = 0; i < 20; i++) { /* most of the times they grow while the wait is on */
        gate g = GATE_CLOSED;
        atomic_int count = 0;
        loch_workers *workers = plant(&count, &g);
        gate_open(&g);
        CHECK_OK(loch_workers_wait(workers, NULL));
        assert_int_equal(count, 15);
        end(workers);
    }
}

/* --- cancelling --- */

static void queued_tasks_are_cancelled_and_running_ones_not(void **state)
{
    (void)state;
    loch_workers *workers = make(1);
    gate g = GATE_CLOSED;
    atomic_int count = 0;
    loch_task *running = queue(workers, gate_pass, &g);
    gate_await(&g, 1);
    loch_task *one = queue(workers, count_up, &count), *two = queue(workers, count_up, &count);
    loch_task *three = queue(workers, count_up, &count);
    CHECK_STATUS(loch_task_query(two), LOCH_E_BUSY);
    CHECK_FAILS(loch_task_cancel(running), BUSY);
    CHECK_OK(loch_task_cancel(two));
    CHECK_OK(loch_task_query(two));
    CHECK_FAILS(loch_task_cancel(two), BUSY);
    CHECK_FAILS(loch_task_wait(two), CANCELLED);
    gate_open(&g);
    CHECK_OK(loch_task_wait(one));
    CHECK_OK(loch_task_wait(three));
    CHECK_OK(loch_task_wait(running));
    assert_int_equal(count, 2);
    end(workers);
}

static void all_that_is_queued_is_cancelled(void **state)
{
    (void)state;
    loch_workers *workers = make(2);
    gate g = GATE_CLOSED;
    atomic_int count = 0;
    size_t failed = 9;
    occupy(workers, &g);
    loch_task *held = queue(workers, count_up, &count);
    for (int i = 1; i < TASKS; i++)
        CHECK_OK(loch_workers_run(workers, count_up, &count, NULL));
    assert_int_equal(loch_workers_cancel(workers), TASKS);
    assert_int_equal(loch_workers_cancel(workers), 0);
    CHECK_FAILS(loch_task_wait(held), CANCELLED);
    gate_open(&g);
    CHECK_OK(loch_workers_wait(workers, &failed)); /* cancelled is not failed */
    assert_int_equal(failed, 0);
    assert_int_equal(count, 0);
    end(workers);
}

/* --- the end --- */

typedef struct onlooker {
    pthread_t thread;
    loch_workers *workers;
    loch_task *task; /* NULL: waits for all of them */
    atomic_bool has_come;
    loch_status status;
} onlooker;

static void *look_on(void *argument)
{
    onlooker *o = argument;
    atomic_store(&o->has_come, true);
    o->status = o->task ? loch_task_wait(o->task) : loch_workers_wait(o->workers, NULL);
    return NULL;
}

static void look_on_begin(onlooker *o, loch_workers *workers, loch_task *task)
{
    *o = (onlooker){.workers = workers, .task = task};
    assert_int_equal(pthread_create(&o->thread, NULL, look_on, o), 0);
    while (!atomic_load(&o->has_come))
        sched_yield();
}

typedef struct opener {
    loch_workers *workers;
    gate *gate;
    atomic_int *count;
} opener;

/* Tries to queue until the workers take no more, then opens the gate: what stands at it stood there when the end began. */
static void *open_when_ending(void *argument)
{
    opener *o = argument;
    while (loch_workers_run(o->workers, count_up, o->count, NULL) == LOCH_OK)
        sched_yield();
    gate_open(o->gate);
    return NULL;
}

/* In the original, the end dropped what was queued, and whoever waited for it hung. */
static void tasks_queued_at_the_end_are_drained_or_cancelled(void **state)
{
    (void)state;
    for (loch_workers_closing how = LOCH_WORKERS_DRAIN; how <= LOCH_WORKERS_CANCEL; how++) {
        gate g = GATE_CLOSED;
        atomic_int count = 0, extra = 0;
        loch_workers *workers = plant(&count, &g); /* a tree of 15 */
        loch_task *first = queue(workers, count_up, &count), *last;
        for (int i = 0; i < TASKS; i++)
            CHECK_OK(loch_workers_run(workers, count_up, &count, NULL));
        last = queue(workers, count_up, &count); /* keeps the bookkeeping for those who come late */
        onlooker of_one, of_all;
        look_on_begin(&of_one, workers, first);
        look_on_begin(&of_all, workers, NULL);
        opener o = {.workers = workers, .gate = &g, .count = &extra};
        pthread_t thread;
        assert_int_equal(pthread_create(&thread, NULL, open_when_ending, &o), 0);
        size_t cancelled;
        CHECK_OK(loch_workers_close(workers, how, &cancelled));
        pthread_join(thread, NULL);
        pthread_join(of_one.thread, NULL);
        pthread_join(of_all.thread, NULL);
        const bool is_drained = how == LOCH_WORKERS_DRAIN;
        assert_int_equal(of_one.status, is_drained ? LOCH_OK : LOCH_E_CANCELLED);
        assert_int_equal(of_all.status, LOCH_OK);
        assert_int_equal(count, is_drained ? 15 + TASKS + 2 : 0);
        assert_true(is_drained ? cancelled == 0 : cancelled >= TASKS + 3 && extra == 0);
        CHECK_OK(loch_task_query(last));
        CHECK_STATUS(loch_task_wait(last), is_drained ? LOCH_OK : LOCH_E_CANCELLED); /* the threads are long gone */
    }
}

typedef struct pair {
    loch_workers *workers;
    gate ending, second;
} pair;

static loch_status open_second(void *user)
{
    gate_open(&((pair *)user)->second);
    return LOCH_OK;
}

/* Needs another thread for what it queues: it does not wait for it as a task. */
static loch_status need_another_thread(void *user)
{
    pair *p = user;
    (void)!gate_pass(&p->ending);
    const loch_status status = loch_workers_run(p->workers, open_second, p, NULL);
    return status == LOCH_OK ? gate_pass(&p->second) : status;
}

static void threads_stay_until_the_last_task_has_ended(void **state)
{
    (void)state;
    for (int i = 0; i < 20; i++) {
        pair p = {.workers = make(2), .ending = GATE_CLOSED, .second = GATE_CLOSED};
        atomic_int extra = 0;
        opener o = {.workers = p.workers, .gate = &p.ending, .count = &extra};
        pthread_t thread;
        CHECK_OK(loch_workers_run(p.workers, need_another_thread, &p, NULL));
        gate_await(&p.ending, 1);
        assert_int_equal(pthread_create(&thread, NULL, open_when_ending, &o), 0);
        end(p.workers);
        pthread_join(thread, NULL);
    }
}

static loch_status queue_until_cancelled(void *user)
{
    opener *o = user;
    gate_open(o->gate);
    loch_status status;
    while ((status = loch_workers_run(o->workers, count_up, o->count, NULL)) == LOCH_OK)
        sched_yield();
    return status;
}

static void a_running_task_is_told_of_a_cancelling_end(void **state)
{
    (void)state;
    gate g = GATE_CLOSED;
    atomic_int count = 0;
    opener o = {.workers = make(2), .gate = &g, .count = &count};
    CHECK_OK(loch_workers_run(o.workers, queue_until_cancelled, &o, NULL));
    (void)!gate_pass(&g);
    CHECK_FAILS(loch_workers_close(o.workers, LOCH_WORKERS_CANCEL, NULL), CANCELLED);
    assert_non_null(strstr(loch_error_get()->sentence, "ending"));
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
        SIM_TEST(run_wait_from_a_worker_of_one_thread),
        SIM_TEST(stacks_do_not_grow_with_the_queue),
        SIM_TEST(tasks_wait_for_later_ones_in_any_order),
        SIM_TEST(a_task_run_on_top_leaves_the_record_below_alone),
        SIM_TEST(a_waiting_worker_is_not_buried),
        SIM_TEST(who_would_wait_for_ever_is_told),
        SIM_TEST(wait_is_not_held_up_by_later_tasks),
        SIM_TEST(wait_includes_what_tasks_queue),
        SIM_TEST(queued_tasks_are_cancelled_and_running_ones_not),
        SIM_TEST(all_that_is_queued_is_cancelled),
        SIM_TEST(tasks_queued_at_the_end_are_drained_or_cancelled),
        SIM_TEST(threads_stay_until_the_last_task_has_ended),
        SIM_TEST(a_running_task_is_told_of_a_cancelling_end),
        SIM_TEST(wrong_calls_are_refused),
        SIM_TEST(without_memory_nothing_is_left_behind),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

/* SPDX-License-Identifier: MIT */
/* Engines in traffic: calls for each seat that meet late, that are cancelled in traffic, that nest without delay;
 * counts of what an engine itself queues; names of threads. A test that would hang is stopped by the time limit of the
 * runner. */
#include "engine/stream_pool.h"
#include "engine/workers/workers.h"
#include "engine_fixture.h"
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

static loch_engine *open_two(void)
{
    const loch_engine_device table[] = {device_named("cpu"), device_named(SIM_A)};
    return open_engine(table, 2);
}

/* --- counts --- */

/* Tasks that the engine queues for itself do not count as tasks of a user. */
static void an_engine_without_tasks_cancels_none(void **state)
{
    (void)state;
    for (int i = 0; i < 200; i++) {
        loch_engine *engine = open_two();
        loch_engine_leaks leaks = {.size = sizeof leaks};
        size_t cancelled = loch_workers_cancel(loch_engine_get_workers(engine, LOCH_SEAT(i % 2)));
        CHECK_OK(loch_engine_close(engine, LOCH_WORKERS_CANCEL, NULL, NULL, &leaks));
        assert_int_equal(cancelled + leaks.tasks_cancelled, 0);
    }
}

/* --- for each seat --- */

typedef struct meeting {
    pthread_barrier_t all;
    atomic_uint calls;
    unsigned depth;
} meeting;

/* Calls for all seats, and meets the others afterwards: each has to run the other's call before it goes to the
 * meeting. */
static loch_status nest_and_meet(loch_engine *engine, loch_seat seat, void *user)
{
    meeting *m = user;
    loch_status status = LOCH_OK;
    if (seat.number == 0) sched_yield();
    atomic_fetch_add(&m->calls, 1);
    if (m->depth) {
        meeting below = {.depth = m->depth - 1};
        pthread_barrier_init(&below.all, NULL, loch_engine_count(engine));
        status = loch_engine_for_each(engine, nest_and_meet, &below, NULL);
        pthread_barrier_destroy(&below.all);
        atomic_fetch_add(&m->calls, atomic_load(&below.calls));
    }
    pthread_barrier_wait(&m->all);
    return status;
}

static void meet_on(loch_engine *engine, unsigned depth, int rounds)
{
    const unsigned seats = loch_engine_count(engine);
    unsigned expected = seats;
    for (unsigned i = 0, level = seats; i < depth; i++)
        expected += level *= seats;
    for (int i = 0; i < rounds; i++) {
        meeting m = {.depth = depth};
        pthread_barrier_init(&m.all, NULL, seats);
        CHECK_OK(loch_engine_for_each(engine, nest_and_meet, &m, NULL));
        pthread_barrier_destroy(&m.all);
        assert_int_equal(atomic_load(&m.calls), expected);
    }
}

static void functions_meet_after_calls_of_their_own(void **state)
{
    (void)state;
    loch_engine *two = open_two(), *three = open_three();
    meet_on(two, 1, 100);
    meet_on(three, 1, 100);
    meet_on(three, 2, 20);
    end_engine(two);
    end_engine(three);
}

/* --- calls in traffic --- */

typedef struct traffic {
    loch_engine *engine;
    atomic_bool is_over;
    atomic_uint calls;
    loch_status status;
} traffic;

static void *drive(void *user)
{
    traffic *t = user;
    while (!atomic_load(&t->is_over) && t->status == LOCH_OK)
        t->status = loch_engine_for_each(t->engine, each_counts, &t->calls, NULL);
    return NULL;
}

static void *call_once(void *user)
{
    traffic *t = user;
    t->status = loch_engine_for_each(t->engine, each_counts, &t->calls, NULL);
    atomic_store(&t->is_over, true);
    return NULL;
}

static size_t count_tasks(loch_workers *workers)
{
    return (size_t)lochi_workers_get_queued(workers);
}

/* A call is cancelled while others come and go: its waiter gets the result, however often it is woken without cause. */
static void a_cancelled_call_is_found_in_traffic(void **state)
{
    (void)state;
    loch_engine_device table[] = {device_named("cpu"), device_named(SIM_A)};
    table[0].workers = table[1].workers = 2; /* one for the call, one for the traffic */
    loch_engine *engine = open_engine(table, 2);
    loch_workers *workers = loch_engine_get_workers(engine, LOCH_SEAT(1));
    gate gates[2] = {GATE_CLOSED, GATE_CLOSED};
    for (int i = 0; i < 2; i++) {
        CHECK_OK(loch_workers_run(workers, task_at_gate, &gates[i], NULL));
        gate_await(&gates[i]);
    }
    const size_t before = count_tasks(workers);
    traffic once = {.engine = engine}, others = {.engine = engine};
    pthread_t threads[2];
    pthread_create(&threads[0], NULL, call_once, &once);
    while (count_tasks(workers) == before)
        sched_yield();
    assert_int_equal(loch_workers_cancel(workers), 1);
    gate_open(&gates[0]);
    gate_open(&gates[1]);
    pthread_create(&threads[1], NULL, drive, &others);
    const uint64_t deadline_ns = loch_host_now_ns() + 120000000000u; /* of traffic, at most */
    while (!atomic_load(&once.is_over) && loch_host_now_ns() < deadline_ns)
        sched_yield();
    const bool is_told = atomic_load(&once.is_over);
    atomic_store(&others.is_over, true);
    pthread_join(threads[1], NULL);
    pthread_join(threads[0], NULL);
    assert_true(is_told);
    assert_int_equal(once.status, LOCH_E_CANCELLED);
    assert_int_equal(others.status, LOCH_OK);
    end_engine(engine);
}

/* --- tasks from inside of calls --- */

static loch_status asks_the_other_seat(loch_engine *engine, loch_seat seat, void *user)
{
    if (seat.number) return LOCH_OK;
    atomic_uint calls = 0;
    loch_status status = loch_engine_for_each(engine, each_counts, &calls, NULL);
    gate *g = user;
    gate_open(g);
    if (status == LOCH_OK)
        status = loch_workers_run_wait(loch_engine_get_workers(engine, LOCH_SEAT(1)), task_at_gate, g);
    return status;
}

/* A seat whose function has returned does its tasks, though the call has not ended elsewhere. */
static void seats_are_free_when_their_function_has_returned(void **state)
{
    (void)state;
    loch_engine *engine = open_two();
    for (int i = 0; i < 50; i++) {
        gate g = GATE_CLOSED;
        CHECK_OK(loch_engine_for_each(engine, asks_the_other_seat, &g, NULL));
    }
    end_engine(engine);
}

typedef struct caller {
    loch_engine *engine;
    meeting *meeting;
} caller;

static loch_status task_calls(void *user)
{
    const caller *c = user;
    return loch_engine_for_each(c->engine, nest_and_meet, c->meeting, NULL);
}

/* Tasks on all seats call at the same time, and so does a thread from outside. */
static void tasks_call_for_functions_that_meet(void **state)
{
    (void)state;
    loch_engine *engine = open_three();
    for (int i = 0; i < 30; i++) {
        meeting meetings[4];
        caller callers[4];
        loch_task *tasks[3];
        for (unsigned k = 0; k < 4; k++) {
            meetings[k] = (meeting){.depth = 1};
            pthread_barrier_init(&meetings[k].all, NULL, 3);
            callers[k] = (caller){engine, &meetings[k]};
            if (k < 3)
                CHECK_OK(loch_workers_run(loch_engine_get_workers(engine, LOCH_SEAT(k)), task_calls, &callers[k],
                                          &tasks[k]));
        }
        CHECK_OK(task_calls(&callers[3]));
        for (unsigned k = 0; k < 3; k++)
            CHECK_OK(loch_task_wait(tasks[k]));
        for (unsigned k = 0; k < 4; k++) {
            pthread_barrier_destroy(&meetings[k].all);
            assert_int_equal(atomic_load(&meetings[k].calls), 12);
        }
    }
    end_engine(engine);
}

/* --- names --- */

static loch_status read_name(loch_engine *engine, loch_seat seat, void *user)
{
    (void)engine;
    pthread_getname_np(pthread_self(), ((char(*)[16])user)[seat.number], 16);
    return LOCH_OK;
}

static void threads_are_named_after_their_seats(void **state)
{
    (void)state;
    const loch_engine_device table[] = {device_named("cpu"), device_named(SIM_A)};
    const loch_engine_options options = {
        .size = sizeof options, .name = "a-server-with-a-long-name", .devices = table, .devices_count = 2};
    char names[2][16];
    loch_engine *engine;
    CHECK_OK(loch_engine_open(&options, &engine));
    CHECK_OK(loch_engine_for_each(engine, read_name, names, NULL));
    assert_string_equal(names[0], "a-server--0-0");
    assert_string_equal(names[1], "a-server--1-0");
    end_engine(engine);
}

/* --- events --- */

/* Marks that went into a graph never pass. They do not take the room of those that do. */
static void captured_events_do_not_fill_a_pool(void **state)
{
    (void)state;
    const loch_stream_pool_options options = {.size = sizeof options, .kept_events = 8};
    loch_device *device;
    loch_stream_pool *pool;
    loch_stream *stream;
    loch_event *events[8], *event;
    loch_sim_graph *graph;
    CHECK_OK(loch_device_open(SIM_A, &device));
    CHECK_OK(loch_stream_pool_create(device, &options, &pool));
    CHECK_OK(loch_stream_pool_acquire(pool, &stream));
    CHECK_OK(loch_sim_capture_begin(stream));
    for (int i = 0; i < 8; i++) {
        CHECK_OK(lochi_stream_pool_acquire_event(pool, LOCH_EVENT_PLAIN, &events[i]));
        CHECK_OK(loch_event_record(events[i], stream));
    }
    CHECK_OK(loch_sim_capture_end(stream, &graph));
    loch_sim_graph_destroy(graph);
    for (int i = 0; i < 8; i++)
        lochi_stream_pool_release_event(pool, events[i]);
    loch_stream_pool_info early = {.size = sizeof early}, late = early;
    for (int i = 0; i < 1000; i++) {
        if (i == 900) CHECK_OK(loch_stream_pool_get_info(pool, &early));
        CHECK_OK(lochi_stream_pool_acquire_event(pool, LOCH_EVENT_PLAIN, &event));
        CHECK_OK(loch_event_record(event, stream));
        CHECK_OK(loch_event_sync(event));
        lochi_stream_pool_release_event(pool, event);
    }
    CHECK_OK(loch_stream_pool_get_info(pool, &late));
    assert_int_equal(late.events_made, early.events_made); /* by then the others are gone */
    assert_in_range(late.events_kept, 1, 8);
    CHECK_OK(loch_stream_pool_release(pool, stream));
    loch_stream_pool_destroy(pool);
    loch_device_release(device);
}

/* --- libraries --- */

/* In a process of its own, which looks for libraries where this one says. */
static void say_why(void)
{
    puts(loch_library_load(LOCH_LIBRARY_NCCL, NULL) == LOCH_OK ? "it was found" : loch_error_get()->sentence);
}

/* A file that is there and broken, or lacks what it needs in turn, is not "not found": the sentence says what is
 * wrong. */
static void a_library_that_does_not_load_is_named(void **state)
{
    (void)state;
    static const char *const names[] = {"libnccl.so.2", "libnccl.so"};
    char folder[] = "/tmp/loch-engine-XXXXXX", files[2][64], command[800], program[300], sentence[400] = "";
    assert_non_null(mkdtemp(folder));
    for (int i = 0; i < 2; i++) {
        snprintf(files[i], sizeof files[i], "%s/%s", folder, names[i]);
        FILE *out = fopen(files[i], "w");
        assert_non_null(out);
        fputs("this is text\n", out);
        fclose(out);
    }
    const ssize_t length = readlink("/proc/self/exe", program, sizeof program - 1);
    assert_true(length > 0);
    program[length] = '\0';
    const char *launcher = getenv("LOCH_TEST_LAUNCHER"); /* a program of another processor does not start by itself */
    snprintf(command, sizeof command, "LD_LIBRARY_PATH='%s' %s '%s' why", folder, launcher ? launcher : "", program);
    FILE *in = popen(command, "r");
    assert_non_null(in);
    assert_non_null(fgets(sentence, sizeof sentence, in));
    assert_int_equal(pclose(in), 0);
    for (int i = 0; i < 2; i++)
        unlink(files[i]);
    rmdir(folder);
    if (!strstr(sentence, files[0])) fail_msg("\"%s\" is not in \"%s\"", files[0], sentence);
}

int main(int count, char **arguments)
{
    if (count > 1 && strcmp(arguments[1], "why") == 0) {
        say_why();
        return 0;
    }
    const struct CMUnitTest tests[] = {
        TEST(an_engine_without_tasks_cancels_none), TEST(functions_meet_after_calls_of_their_own),
        TEST(a_cancelled_call_is_found_in_traffic), TEST(seats_are_free_when_their_function_has_returned),
        TEST(tasks_call_for_functions_that_meet),   TEST(threads_are_named_after_their_seats),
        TEST(captured_events_do_not_fill_a_pool),   TEST(a_library_that_does_not_load_is_named),
    };
    return cmocka_run_group_tests_name("engine: corners", tests, NULL, NULL);
}

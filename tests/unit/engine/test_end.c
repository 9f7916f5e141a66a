/* SPDX-License-Identifier: MIT */
/* The end of engines: what makes it E_BUSY, and what happens to tasks and to blocks that are not freed. */
#include "engine/engine_lock.h"
#include "engine_fixture.h"
#include <sched.h>

/* --- the end --- */

typedef struct ender {
    loch_engine *engine;
    loch_status status;
} ender;

static loch_status task_ends_engine(void *user)
{
    ender *e = user;
    e->status = loch_engine_close(e->engine, LOCH_WORKERS_CANCEL, NULL, NULL, NULL);
    return LOCH_OK;
}

static void busy_engines_do_not_end(void **state)
{
    (void)state;
    loch_engine *engine = open_three();
    ender e = {engine, LOCH_OK};
    CHECK_OK(loch_workers_run_wait(loch_engine_get_workers(engine, LOCH_SEAT(1)), task_ends_engine, &e));
    assert_int_equal(e.status, LOCH_E_BUSY);
    lochi_engine_guest first, second;
    CHECK_OK(lochi_engine_enter(engine, &first));
    CHECK_OK(lochi_engine_enter(engine, &second));
    CHECK_FAILS(loch_engine_close(engine, LOCH_WORKERS_DRAIN, NULL, NULL, NULL), BUSY);
    lochi_engine_leave(engine, &first);
    CHECK_FAILS(loch_engine_close(engine, LOCH_WORKERS_CANCEL, NULL, NULL, NULL), BUSY);
    lochi_engine_leave(engine, &second);
    CHECK_FAILS(loch_engine_close(engine, (loch_workers_closing)2, NULL, NULL, NULL), INVALID);
    loch_engine_leaks leaks = {.size = 0};
    CHECK_FAILS(loch_engine_close(engine, LOCH_WORKERS_DRAIN, NULL, NULL, &leaks), INVALID);
    CHECK_OK(lochi_engine_enter(engine, &first)); /* and nothing has changed */
    lochi_engine_leave(engine, &first);
    atomic_uint calls = 0;
    CHECK_OK(loch_engine_for_each(engine, each_counts, &calls, NULL));
    end_engine(engine);
    leaks = (loch_engine_leaks){.size = sizeof leaks, .blocks = 5};
    CHECK_OK(loch_engine_close(NULL, LOCH_WORKERS_DRAIN, NULL, NULL, &leaks));
    assert_int_equal(leaks.blocks, 0);
}

typedef struct found {
    size_t count, bytes, most;
    loch_tag tag;
    const void *addresses[8];
} found;

static loch_status find_leak(const loch_block *block, void *user)
{
    found *f = user;
    f->addresses[f->count++] = block->address;
    f->bytes += block->requested_bytes;
    if (block->requested_bytes == 70000) f->tag = block->tag;
    return f->count == f->most ? LOCH_E_CANCELLED : LOCH_OK;
}

/* The original deleted its allocators with their blocks out: the last free of each was a call on a dead object. */
static void blocks_outlive_their_engine(void **state)
{
    (void)state;
    loch_tag tag;
    CHECK_OK(loch_tag_create("engine leak", &tag));
    for (int is_direct = 0; is_direct < 2; is_direct++) {
        const loch_engine_device table[] = {device_named("cpu"), device_named(SIM_A), device_named(SIM_B)};
        const loch_engine_options options = {.size = sizeof options,
                                             .devices = table,
                                             .devices_count = 3,
                                             .memory = is_direct ? LOCH_ENGINE_DIRECT : LOCH_ENGINE_POOLS};
        loch_engine *engine;
        CHECK_OK(loch_engine_open(&options, &engine));
        loch_allocator *allocators[3];
        void *blocks[3], *freed;
        for (unsigned i = 0; i < 3; i++) {
            allocators[i] = loch_engine_get_allocator(engine, LOCH_SEAT(i));
            const loch_request request = {.size = sizeof request, .bytes = 70000 + i, .tag = i ? 0 : tag};
            CHECK_OK(loch_allocator_alloc(allocators[i], &request, &blocks[i]));
            CHECK_OK(loch_alloc(allocators[i], 5000, &freed));
            CHECK_OK(loch_free(allocators[i], freed));
        }
        found f = {.most = 8};
        loch_engine_leaks leaks = {.size = sizeof leaks};
        CHECK_OK(loch_engine_close(engine, LOCH_WORKERS_DRAIN, find_leak, &f, &leaks));
        assert_int_equal(leaks.blocks, 3);
        assert_int_equal(leaks.bytes, 3 * 70000 + 3);
        assert_int_equal(f.count, 3);
        assert_int_equal(f.bytes, leaks.bytes);
        assert_int_equal(f.tag, tag);
        char text[16] = "still here", back[16];
        for (unsigned i = 0; i < 3; i++) {
            bool is_found = false;
            for (size_t k = 0; k < f.count; k++)
                is_found |= f.addresses[k] == blocks[i];
            assert_true(is_found);
            CHECK_OK(loch_copy(blocks[i], text, sizeof text));
            CHECK_OK(loch_copy(back, blocks[i], sizeof back));
            assert_string_equal(back, text);
            CHECK_OK(loch_free(allocators[i], blocks[i])); /* and that is the last of it */
        }
    }
}

/* Blocks in children without a reference are leaks like others. */
static void blocks_of_children_are_leaks(void **state)
{
    (void)state;
    loch_engine *engine = open_three();
    loch_allocator *parent = loch_engine_get_allocator(engine, LOCH_SEAT(1)), *children[2];
    void *blocks[2];
    for (unsigned i = 0; i < 2; i++) {
        const loch_child_options options = {.size = sizeof options, .kind = LOCH_CHILD_QUOTA};
        CHECK_OK(loch_pool_create_child(parent, "request", &options, &children[i]));
        parent = children[0]; /* the second is in the first */
        CHECK_OK(loch_alloc(children[i], 70000 + i, &blocks[i]));
    }
    char text[4096];
    assert_true(test_engine_print(engine, text, sizeof text) < sizeof text);
    assert_non_null(strstr(text, "child \"request\": used 6")); /* 68 KiB and something */
    loch_allocator_release(children[0]);
    loch_allocator_release(children[1]);
    found f = {.most = 8};
    loch_engine_leaks leaks = {.size = sizeof leaks};
    CHECK_OK(loch_engine_close(engine, LOCH_WORKERS_DRAIN, find_leak, &f, &leaks));
    assert_int_equal(leaks.blocks, 2);
    assert_int_equal(leaks.bytes, 2 * 70000 + 1);
    assert_int_equal(f.count, 2);
    CHECK_OK(loch_free(children[0], blocks[0]));
    CHECK_OK(loch_free(children[1], blocks[1]));
}

/* A visitor that has seen enough is not called again; the figures are of all blocks, and the end is no failure. */
static void a_visitor_of_leaks_may_stop(void **state)
{
    (void)state;
    loch_engine *engine = open_three();
    loch_allocator *allocators[3];
    void *blocks[3];
    for (unsigned i = 0; i < 3; i++) {
        allocators[i] = loch_engine_get_allocator(engine, LOCH_SEAT(i));
        CHECK_OK(loch_alloc(allocators[i], 100, &blocks[i]));
    }
    found f = {.most = 1};
    loch_engine_leaks leaks = {.size = sizeof leaks};
    CHECK_OK(loch_engine_close(engine, LOCH_WORKERS_DRAIN, find_leak, &f, &leaks));
    assert_int_equal(f.count, 1);
    assert_int_equal(leaks.blocks, 3);
    for (unsigned i = 0; i < 3; i++)
        CHECK_OK(loch_free(allocators[i], blocks[i]));
}

/* Tasks go from seat to seat, each queueing the next one elsewhere. */
typedef struct chain {
    loch_engine *engine;
    atomic_uint left, done, refused; /* tasks */
    gate gate;
} chain;

static loch_status task_of_chain(void *user)
{
    chain *c = user;
    const unsigned left = atomic_fetch_sub(&c->left, 1) - 1;
    void *block;
    loch_allocator *allocator = loch_engine_get_allocator(c->engine, LOCH_SEAT(left % 3));
    if (loch_alloc(allocator, 4096, &block) != LOCH_OK || loch_free(allocator, block) != LOCH_OK)
        return LOCH_E_DEVICE_MEMORY;
    atomic_fetch_add(&c->done, 1);
    if (!left) return LOCH_OK;
    const loch_status status =
        loch_workers_run(loch_engine_get_workers(c->engine, LOCH_SEAT(left % 3)), task_of_chain, c, NULL);
    if (status == LOCH_E_CANCELLED) {
        atomic_fetch_add(&c->refused, 1);
        return LOCH_OK;
    }
    return status;
}

static loch_status task_begins_chain(void *user)
{
    chain *c = user;
    gate_pass(&c->gate);
    atomic_uint calls = 0;
    const loch_status status = loch_engine_for_each(c->engine, each_counts, &calls, NULL);
    if (status != LOCH_OK || atomic_load(&calls) != 3) return status == LOCH_OK ? LOCH_E_CORRUPT : status;
    return task_of_chain(user);
}

/* The original deleted allocators and handles before it joined its threads. Here a task that runs when the end begins
 * has the whole engine to its own end, and so have those that it queues, on whatever seat. */
static void threads_end_before_anything_is_freed(void **state)
{
    (void)state;
    for (int round = 0; round < 10; round++) {
        loch_engine *engine = open_three();
        chain c = {.engine = engine, .left = 200, .gate = GATE_CLOSED};
        pthread_t thread;
        CHECK_OK(loch_workers_run(loch_engine_get_workers(engine, LOCH_SEAT(round % 3)), task_begins_chain, &c, NULL));
        gate_await(&c.gate);
        pthread_create(&thread, NULL, open_gate, &c.gate);
        end_engine(engine);
        pthread_join(thread, NULL);
        assert_int_equal(atomic_load(&c.done), 200);
        assert_int_equal(atomic_load(&c.refused), 0);
    }
}

/* An end in a thread of its own. */
typedef struct ending {
    loch_engine *engine;
    loch_workers_closing how;
    loch_status status;
    loch_engine_leaks leaks;
    pthread_t thread;
} ending;

static void *ending_run(void *user)
{
    ending *e = user;
    e->leaks.size = sizeof e->leaks;
    e->status = loch_engine_close(e->engine, e->how, NULL, NULL, &e->leaks);
    return NULL;
}

static void ending_begin(ending *e, loch_engine *engine, loch_workers_closing how)
{
    *e = (ending){.engine = engine, .how = how};
    pthread_create(&e->thread, NULL, ending_run, e);
}

static loch_status task_counts(void *user)
{
    atomic_fetch_add((atomic_uint *)user, 1);
    return LOCH_OK;
}

static void cancelled_tasks_are_counted(void **state)
{
    (void)state;
    loch_engine *engine = open_three();
    gate gates[3] = {GATE_CLOSED, GATE_CLOSED, GATE_CLOSED};
    atomic_uint calls = 0;
    loch_task *last[3];
    for (unsigned i = 0; i < 3; i++) {
        loch_workers *workers = loch_engine_get_workers(engine, LOCH_SEAT(i));
        CHECK_OK(loch_workers_run(workers, task_at_gate, &gates[i], NULL));
        gate_await(&gates[i]);
        for (unsigned k = 0; k < i; k++)
            CHECK_OK(loch_workers_run(workers, task_counts, &calls, NULL));
        CHECK_OK(loch_workers_run(workers, task_counts, &calls, &last[i]));
    }
    ending e;
    ending_begin(&e, engine, LOCH_WORKERS_CANCEL);
    for (unsigned i = 0; i < 3; i++) /* of all seats, while a task still runs on each */
        CHECK_FAILS(loch_task_wait(last[i]), CANCELLED);
    for (unsigned i = 0; i < 3; i++)
        gate_open(&gates[i]);
    pthread_join(e.thread, NULL);
    assert_int_equal(e.status, LOCH_OK);
    assert_int_equal(e.leaks.tasks_cancelled, 6);
    assert_int_equal(atomic_load(&calls), 0);
}

static loch_status task_for_ever(void *user)
{
    chain *c = user;
    for (unsigned i = 0; i < 3; i++) {
        const loch_status status =
            loch_workers_run(loch_engine_get_workers(c->engine, LOCH_SEAT(i)), task_for_ever, c, NULL);
        if (status == LOCH_E_CANCELLED) atomic_fetch_add(&c->refused, 1);
    }
    if (atomic_fetch_add(&c->done, 1) > 20) gate_pass(&c->gate);
    return LOCH_OK;
}

/* Tasks that queue themselves again on all seats, also on those that have ended while others still run. */
static void cancelling_stops_tasks_that_queue_themselves(void **state)
{
    (void)state;
    for (int round = 0; round < 10; round++) {
        loch_engine *engine = open_three();
        chain c = {.engine = engine, .gate = GATE_CLOSED};
        CHECK_OK(loch_workers_run(loch_engine_get_workers(engine, LOCH_SEAT(1)), task_for_ever, &c, NULL));
        gate_await(&c.gate);
        ending e;
        ending_begin(&e, engine, LOCH_WORKERS_CANCEL);
        gate_open(&c.gate);
        pthread_join(e.thread, NULL);
        assert_int_equal(e.status, LOCH_OK);
        assert_true(atomic_load(&c.done) > 20);
    }
}

typedef struct entry {
    loch_engine *engine;
    gate gate;
    loch_status status;
} entry;

static loch_status task_enters(void *user)
{
    entry *e = user;
    gate_pass(&e->gate);
    lochi_engine_guest guest;
    e->status = lochi_engine_enter(e->engine, &guest);
    if (e->status == LOCH_OK) lochi_engine_leave(e->engine, &guest);
    return LOCH_OK;
}

/* Tasks that are drained may make contexts; others may not, once the end has begun. */
static void only_workers_are_inside_while_it_ends(void **state)
{
    (void)state;
    loch_engine *engine = open_three();
    entry inside = {.engine = engine, .gate = GATE_CLOSED};
    CHECK_OK(loch_workers_run(loch_engine_get_workers(engine, LOCH_SEAT(1)), task_enters, &inside, NULL));
    gate_await(&inside.gate);
    ending e;
    ending_begin(&e, engine, LOCH_WORKERS_DRAIN);
    for (bool is_ending = false; !is_ending; sched_yield()) {
        lochi_lock_take(&engine->lock);
        is_ending = engine->is_ending;
        lochi_lock_drop(&engine->lock);
    }
    lochi_engine_guest outside;
    CHECK_FAILS(lochi_engine_enter(engine, &outside), CANCELLED);
    CHECK_FAILS(loch_engine_close(engine, LOCH_WORKERS_DRAIN, NULL, NULL, NULL), BUSY);
    gate_open(&inside.gate);
    pthread_join(e.thread, NULL);
    assert_int_equal(e.status, LOCH_OK);
    assert_int_equal(inside.status, LOCH_OK);
}

static loch_status task_fails(void *user)
{
    return loch_error_set(LOCH_E_IO, NULL, 0, "task %d went wrong", *(const int *)user);
}

/* Failures of tasks that no thread waited for are the result of the end. */
static void failures_of_tasks_come_out_in_the_end(void **state)
{
    (void)state;
    loch_engine *engine = open_three();
    static const int numbers[] = {0, 1, 2};
    void *block;
    loch_allocator *allocator = loch_engine_get_allocator(engine, LOCH_SEAT(1));
    CHECK_OK(loch_alloc(allocator, 10, &block));
    for (unsigned i = 3; i-- > 1;)
        CHECK_OK(
            loch_workers_run(loch_engine_get_workers(engine, LOCH_SEAT(i)), task_fails, (void *)&numbers[i], NULL));
    loch_engine_leaks leaks = {.size = sizeof leaks};
    CHECK_FAILS(loch_engine_close(engine, LOCH_WORKERS_DRAIN, NULL, NULL, &leaks), IO);
    assert_string_equal(loch_error_get()->sentence, "task 1 went wrong");
    assert_int_equal(leaks.blocks, 1); /* the engine has ended anyway */
    CHECK_OK(loch_free(allocator, block));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(busy_engines_do_not_end),
        TEST(blocks_outlive_their_engine),
        TEST(blocks_of_children_are_leaks),
        TEST(a_visitor_of_leaks_may_stop),
        TEST(threads_end_before_anything_is_freed),
        TEST(cancelled_tasks_are_counted),
        TEST(cancelling_stops_tasks_that_queue_themselves),
        TEST(only_workers_are_inside_while_it_ends),
        TEST(failures_of_tasks_come_out_in_the_end),
    };
    return cmocka_run_group_tests_name("ends of engines", tests, NULL, NULL);
}

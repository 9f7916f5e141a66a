/* SPDX-License-Identifier: MIT */
/* pthread_cancel: no call of Loch is a cancellation point. A thread with a cancellation pending goes through calls of
 * every kind, and functions of its own that Loch calls are cancellation points, too; it ends at its own
 * pthread_testcancel, and not before. Threads that are cancelled while they wait leave nothing locked. */
#include "memory/allocator.h"
#include "scenario.h"
#include "test.h"
#include "worker.h"

#include <loch/driver.h>
#include <loch/host.h>
#include <loch/log.h>
#include <loch/observer.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <unistd.h>

#define SECOND ((uint64_t)1000000000)
#define MOST (48 * TEST_MIB) /* of a device of 64 MiB */

typedef struct work {
    char folder[64], failure[400];
    const char *step; /* what the thread is at, or was cancelled in */
    bool is_over;
} work;

/* --- functions that Loch calls: each is a cancellation point --- */

static void hear_log(loch_log_level level, const char *line, void *user)
{
    (void)level, (void)line, (void)user;
    pthread_testcancel();
}

static void hear_range(loch_range_event event, const loch_range *range, void *user)
{
    (void)event, (void)range, (void)user;
    pthread_testcancel();
}

static size_t hear_pressure(loch_allocator *allocator, size_t bytes, void *user)
{
    (void)allocator, (void)bytes, (void)user;
    pthread_testcancel();
    return 0;
}

static void hear_limit(loch_allocator *allocator, uint64_t bytes, void *user)
{
    (void)allocator, (void)bytes, (void)user;
    pthread_testcancel();
}

static void hear_end(void *address, size_t bytes, void *user)
{
    (void)address, (void)bytes, (void)user;
    pthread_testcancel();
}

static void hear_stream(void *user)
{
    (void)user;
    pthread_testcancel();
}

static loch_status hear_block(const loch_block *block, void *user)
{
    (void)block, (void)user;
    pthread_testcancel();
    return LOCH_OK;
}

static loch_status hear_device(const char *name, void *user)
{
    (void)name, (void)user;
    pthread_testcancel();
    return LOCH_OK;
}

static loch_status hear_task(void *user)
{
    (void)user;
    pthread_testcancel();
    return LOCH_OK;
}

static loch_status make_allocator(loch_device *device, loch_attributes attributes, void *user, loch_allocator **out)
{
    (void)attributes, (void)user;
    pthread_testcancel();
    return loch_direct_create(device, "made", NULL, out);
}

/* --- steps --- */

static void step_devices(work *w)
{
    const char *const names[] = {"cpu", "sim:1GiB,backed", "sim:1GiB,backed,async=off"};
    TRY(loch_device_walk(hear_device, NULL));
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        test_scenario run;
        test_scenario_run(&run, names[i], i ? "cpu" : "sim:1GiB,backed");
        EXPECT(run.status == LOCH_OK);
    }
}

static void step_log(work *w)
{
    loch_device *device;
    TRY(loch_device_open("cpu", &device));
    loch_log_set_hook(hear_log, NULL, LOCH_LOG_DEBUG); /* each driver call is a line */
    TRY(loch_device_sync(device));
    loch_log_set_hook(NULL, NULL, LOCH_LOG_OFF);
    loch_device_release(device);
}

static void step_callbacks(work *w)
{
    loch_device *device;
    loch_allocator *direct, *limit;
    void *block, *other = NULL;
    const loch_limit_options options = {.size = sizeof options, .soft_bytes = 1, .above = hear_limit};
    TRY(loch_device_open("sim:64MiB", &device));
    TRY(loch_observer_add(device, hear_range, NULL));
    TRY(loch_direct_create(device, NULL, NULL, &direct));
    TRY(loch_limit_create(direct, NULL, &options, &limit));
    TRY(loch_alloc(limit, MOST, &block));
    TRY(loch_allocator_walk(limit, hear_block, NULL));
    TRY(loch_allocator_add_pressure(direct, hear_pressure, NULL));
    EXPECT(loch_alloc(limit, MOST, &other) == LOCH_E_DEVICE_MEMORY);
    TRY(loch_allocator_remove_pressure(direct, hear_pressure, NULL));
    TRY(loch_free(limit, block));
    TRY(loch_observer_remove(device, hear_range, NULL));
    TRY(loch_stream_call(loch_stream_get_default(device), hear_stream, NULL));
    TRY(loch_device_sync(device));
    loch_allocator_release(limit);
    loch_allocator_release(direct);
    loch_device_release(device);
}

static void step_registry(work *w)
{
    loch_device *device;
    loch_allocator *made;
    TRY(loch_device_open("cpu", &device));
    TRY(loch_registry_add_factory("cancel", 5, make_allocator, NULL));
    TRY(loch_registry_acquire("cancel", device, &made));
    loch_allocator_release(made);
    TRY(loch_registry_remove("cancel", 5));
    loch_device_release(device);
}

static void *use_once(void *allocator)
{
    void *block = NULL;
    const loch_status status = loch_alloc(allocator, 100, &block);
    return status == LOCH_OK && loch_free(allocator, block) == LOCH_OK ? NULL : allocator;
}

static void step_wait_for_memory(work *w)
{
    loch_device *device;
    loch_allocator *direct;
    void *block, *other = NULL;
    const loch_request request = {.size = sizeof request, .bytes = MOST, .timeout_ns = SECOND / 100};
    pthread_t thread;
    TRY(loch_device_open("sim:64MiB", &device));
    TRY(loch_direct_create(device, NULL, NULL, &direct));
    TRY(loch_alloc(direct, MOST, &block));
    EXPECT(pthread_create(&thread, NULL, use_once, direct) == 0);
    int before;
    pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &before); /* a join is the test's own */
    pthread_join(thread, NULL);
    pthread_setcancelstate(before, NULL);
    EXPECT(loch_allocator_alloc(direct, &request, &other) == LOCH_E_DEVICE_MEMORY);
    TRY(loch_address_free(block));
    loch_allocator_release(direct);
    loch_device_release(device);
}

static void step_files(work *w)
{
    char path[128];
    loch_device *device;
    loch_allocator *logging, *pool;
    loch_tensor *tensor, *read;
    const int64_t shape[] = {4, 4};
    void *block;
    FILE *sink = fmemopen(NULL, 65536, "w");
    EXPECT(sink);
    TRY(loch_device_open("cpu", &device));
    TRY(loch_tensor_create(LOCH_F32, 2, shape, NULL, &tensor));
    TRY(loch_tensor_print_to(tensor, NULL, sink));
    snprintf(path, sizeof path, "%s/tensor.npy", w->folder);
    TRY(loch_npy_save(tensor, path, NULL));
    TRY(loch_npy_load(path, NULL, &read));
    loch_tensor_release(read);
    loch_tensor_release(tensor);
    unlink(path);
    snprintf(path, sizeof path, "%s/events.csv", w->folder);
    const loch_logging_options options = {.size = sizeof options, .format = LOCH_LOGGING_CSV, .path = path};
    TRY(loch_pool_create(device, NULL, NULL, &pool));
    TRY(loch_logging_create(pool, NULL, &options, &logging));
    TRY(loch_alloc(logging, 100, &block));
    TRY(loch_logging_flush(logging));
    const loch_sleep_options sleep = {.size = sizeof sleep, .contents = LOCH_SLEEP_FILE};
    if (loch_device_can(device, LOCH_CAN_VIRTUAL)) {
        TRY(loch_pool_sleep(pool, &sleep, NULL));
        TRY(loch_pool_wake(pool, NULL));
    }
    TRY(loch_free(logging, block));
    loch_allocator_release(logging);
    loch_allocator_release(pool);
    loch_device_release(device);
    unlink(path);
    int before;
    pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &before);
    fclose(sink);
    pthread_setcancelstate(before, NULL);
}

static void step_workers(work *w)
{
    loch_workers *workers;
    loch_task *task;
    const loch_workers_options options = {.size = sizeof options, .threads = 2};
    TRY(loch_workers_open(&options, &workers));
    for (int i = 0; i < 20; i++) {
        TRY(loch_workers_run(workers, hear_task, NULL, &task));
        TRY(loch_task_wait(task));
        TRY(loch_workers_run_wait(workers, hear_task, NULL));
        TRY(loch_workers_run(workers, hear_task, NULL, NULL));
        TRY(loch_workers_wait(workers, NULL));
    }
    TRY(loch_workers_close(workers, LOCH_WORKERS_DRAIN, NULL));
}

static void step_buffers(work *w)
{
    static char memory[64];
    loch_buffer *buffer;
    const loch_external external = {.size = sizeof external, .deleter = hear_end};
    TRY(loch_buffer_wrap(memory, sizeof memory, &external, &buffer));
    TRY(loch_buffer_add_deleter(buffer, hear_end, NULL));
    loch_buffer_release(buffer);
    TRY(loch_buffer_collect(LOCH_WAIT_END, NULL));
}

static loch_status hear_seat(loch_engine *engine, loch_seat seat, void *user)
{
    (void)engine, (void)seat, (void)user;
    pthread_testcancel();
    return LOCH_OK;
}

static void step_engine(work *w)
{
    loch_engine *engine;
    const loch_engine_device devices[] = {{.size = sizeof *devices, .name = "sim:64MiB"},
                                          {.size = sizeof *devices, .name = "cpu"}};
    const loch_engine_options options = {.size = sizeof options, .devices = devices, .devices_count = 2};
    TRY(loch_engine_open(&options, &engine));
    for (int i = 0; i < 20; i++)
        TRY(loch_engine_for_each(engine, hear_seat, NULL, NULL));
    TRY(loch_engine_close(engine, LOCH_WORKERS_DRAIN, NULL, NULL, NULL));
}

static void *work_run(void *user)
{
    static const struct {
        const char *name;
        void (*run)(work *w);
    } steps[] = {{"devices", step_devices},
                 {"log", step_log},
                 {"callbacks", step_callbacks},
                 {"registry", step_registry},
                 {"waiting", step_wait_for_memory},
                 {"files", step_files},
                 {"workers", step_workers},
                 {"buffers", step_buffers},
                 {"engine", step_engine}};
    work *w = user;
    pthread_cancel(pthread_self()); /* pending from here on */
    for (size_t i = 0; i < sizeof steps / sizeof *steps && !*w->failure; i++) {
        w->step = steps[i].name;
        steps[i].run(w);
    }
    w->is_over = true;
    pthread_testcancel();
    return NULL;
}

static void no_call_is_a_cancellation_point(void **state)
{
    (void)state;
    work w = {.folder = "/tmp/loch-cancel-XXXXXX"};
    void *result = NULL;
    pthread_t thread;
    loch_host_usage before = {.size = sizeof before}, after = {.size = sizeof after};
    assert_non_null(mkdtemp(w.folder));
    CHECK_OK(loch_registry_clear(NULL, NULL, NULL));
    CHECK_OK(loch_host_get_usage(&before));
    assert_int_equal(pthread_create(&thread, NULL, work_run, &w), 0);
    assert_int_equal(pthread_join(thread, &result), 0);
    if (*w.failure) fail_msg("%s: %s", w.step, w.failure);
    if (!w.is_over) fail_msg("cancelled in %s", w.step);
    assert_ptr_equal(result, PTHREAD_CANCELED); /* cancellation was as before behind every call */
    CHECK_OK(loch_registry_clear(NULL, NULL, NULL));
    CHECK_OK(loch_host_get_usage(&after));
    assert_int_equal(before.blocks, after.blocks);
    assert_int_equal(rmdir(w.folder), 0);
}

/* --- threads that are cancelled while they wait --- */

typedef struct waiter {
    loch_allocator *allocator;
    loch_status status;
    void *block;
    bool is_cancelled; /* by the test; its block, if it gets one, is freed by a handler */
} waiter;

static void give_back(void *user)
{
    const waiter *w = user;
    if (w->block && loch_free(w->allocator, w->block) != LOCH_OK) abort();
}

static void *wait_for_memory(void *user)
{
    waiter *w = user;
    const loch_request request = {.size = sizeof request, .bytes = MOST, .timeout_ns = 300 * SECOND};
    pthread_cleanup_push(give_back, w);
    w->status = loch_allocator_alloc(w->allocator, &request, &w->block);
    while (w->is_cancelled) { /* it was cancelled while it waited: this is the first point behind */
        pthread_testcancel();
        sched_yield();
    }
    pthread_cleanup_pop(1);
    return NULL;
}

static void a_cancelled_waiter_does_not_hold_up_others(void **state)
{
    (void)state;
    waiter waiters[6];
    pthread_t threads[6];
    loch_device *device;
    loch_allocator *direct;
    void *held;
    CHECK_OK(loch_device_open("sim:64MiB", &device));
    CHECK_OK(loch_direct_create(device, NULL, NULL, &direct));
    for (int round = 0; round < 20; round++) {
        CHECK_OK(loch_alloc(direct, MOST, &held));
        for (size_t i = 0; i < 6; i++) {
            waiters[i] = (waiter){.allocator = direct, .is_cancelled = i % 2};
            assert_int_equal(pthread_create(&threads[i], NULL, wait_for_memory, &waiters[i]), 0);
        }
        while (atomic_load(&direct->waiters) < 6)
            sched_yield();
        for (size_t i = 1; i < 6; i += 2)
            assert_int_equal(pthread_cancel(threads[i]), 0);
        CHECK_OK(loch_free(direct, held));
        for (size_t i = 0; i < 6; i++) {
            void *result;
            assert_int_equal(pthread_join(threads[i], &result), 0);
            assert_ptr_equal(result, i % 2 ? PTHREAD_CANCELED : NULL);
            CHECK_OK(waiters[i].status);
        }
        assert_int_equal(atomic_load(&direct->waiters), 0);
    }
    loch_allocator_release(direct);
    loch_device_release(device);
}

/* --- a task that is waited for --- */

typedef struct task {
    loch_workers *workers;
    atomic_bool may_end, is_there;
    loch_status status;
} task;

static loch_status task_run(void *user)
{
    task *t = user;
    while (!atomic_load(&t->may_end))
        sched_yield();
    return LOCH_OK;
}

static void *wait_for_task(void *user)
{
    task *t = user;
    atomic_store(&t->is_there, true);
    t->status = loch_workers_run_wait(t->workers, task_run, t);
    pthread_testcancel();
    return NULL;
}

static void a_cancelled_thread_waits_for_its_task(void **state)
{
    (void)state;
    task t = {.status = LOCH_E_BUSY};
    pthread_t thread;
    void *result;
    CHECK_OK(loch_workers_open(NULL, &t.workers));
    assert_int_equal(pthread_create(&thread, NULL, wait_for_task, &t), 0);
    while (!atomic_load(&t.is_there))
        sched_yield();
    assert_int_equal(pthread_cancel(thread), 0);
    atomic_store(&t.may_end, true);
    assert_int_equal(pthread_join(thread, &result), 0);
    assert_ptr_equal(result, PTHREAD_CANCELED);
    CHECK_OK(t.status);
    CHECK_OK(loch_workers_close(t.workers, LOCH_WORKERS_DRAIN, NULL));
}

int main(void)
{
    const struct CMUnitTest cases[] = {
        cmocka_unit_test(no_call_is_a_cancellation_point),
        cmocka_unit_test(a_cancelled_waiter_does_not_hold_up_others),
        cmocka_unit_test(a_cancelled_thread_waits_for_its_task),
    };
    return cmocka_run_group_tests(cases, NULL, NULL);
}

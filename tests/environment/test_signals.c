/* SPDX-License-Identifier: MIT */
/* Signals: handlers, installed without SA_RESTART, interrupt threads that allocate, wait for memory and for tasks, and
 * read and write files, as fast as they can be sent. No call fails or returns early for that. */
#include "scenario.h"
#include "test.h"
#include "worker.h"

#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#define SECOND ((uint64_t)1000000000)
#define MOST (48 * TEST_MIB) /* of a device of 64 MiB */
#define SIGNALS 300          /* that each thread has to live through at least */

typedef struct job {
    void (*run)(struct job *w);
    loch_device *device;
    loch_allocator *allocator;
    loch_workers *workers;
    char folder[64], failure[400];
    pthread_t thread;
    atomic_int heard;
    atomic_bool is_over;
} job;

static _Thread_local job *job_own;

static void handle(int number)
{
    (void)number;
    if (job_own) atomic_fetch_add(&job_own->heard, 1);
}

static void install(void)
{
    struct sigaction action = {.sa_handler = handle}; /* no SA_RESTART: calls of the system are cut short */
    sigemptyset(&action.sa_mask);
    assert_int_equal(sigaction(SIGUSR1, &action, NULL), 0);
}

static void *job_run(void *user)
{
    job *w = user;
    job_own = w;
    while (!*w->failure && atomic_load(&w->heard) < SIGNALS)
        w->run(w);
    atomic_store(&w->is_over, true);
    return NULL;
}

/* Runs jobs beside each other under a storm of signals until each has had enough of them. */
static void run_under_fire(job *jobs, size_t count)
{
    size_t over = 0;
    install();
    for (size_t i = 0; i < count; i++)
        assert_int_equal(pthread_create(&jobs[i].thread, NULL, job_run, &jobs[i]), 0);
    while (over < count) {
        over = 0;
        for (size_t i = 0; i < count; i++) {
            over += atomic_load(&jobs[i].is_over);
            pthread_kill(jobs[i].thread, SIGUSR1); /* it is not joined yet */
        }
        sched_yield();
    }
    for (size_t i = 0; i < count; i++)
        assert_int_equal(pthread_join(jobs[i].thread, NULL), 0);
    for (size_t i = 0; i < count; i++)
        if (*jobs[i].failure) fail_msg("%s", jobs[i].failure);
}

static void job_allocate(job *w)
{
    void *blocks[16];
    for (size_t i = 0; i < 16; i++)
        TRY(loch_alloc(w->allocator, (size_t)64 << i % 12, &blocks[i]));
    for (size_t i = 0; i < 16; i++)
        TRY(loch_free(w->allocator, blocks[i]));
}

static void signals_do_not_disturb_allocations(void **state)
{
    (void)state;
    job jobs[3];
    loch_device *device;
    loch_allocator *pool;
    CHECK_OK(loch_device_open("cpu", &device));
    CHECK_OK(loch_pool_create(device, NULL, NULL, &pool));
    for (size_t i = 0; i < 3; i++)
        jobs[i] = (job){.run = job_allocate, .allocator = pool};
    run_under_fire(jobs, 3);
    loch_allocator_release(pool);
    loch_device_release(device);
}

static uint64_t now_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * SECOND + (uint64_t)now.tv_nsec;
}

/* Either another thread gives the memory back, or the whole time is waited. */
static void job_wait_for_memory(job *w)
{
    void *block = NULL;
    const loch_request request = {.size = sizeof request, .bytes = MOST, .timeout_ns = SECOND / 200};
    const uint64_t start = now_ns();
    const loch_status status = loch_allocator_alloc(w->allocator, &request, &block);
    if (status == LOCH_OK) {
        TRY(loch_free(w->allocator, block));
        return;
    }
    EXPECT(status == LOCH_E_DEVICE_MEMORY);
    EXPECT(now_ns() - start >= request.timeout_ns);
}

static void signals_do_not_end_waits_for_memory(void **state)
{
    (void)state;
    job jobs[3];
    loch_device *device;
    loch_allocator *direct;
    void *block;
    CHECK_OK(loch_device_open("sim:64MiB", &device));
    CHECK_OK(loch_direct_create(device, NULL, NULL, &direct));
    CHECK_OK(loch_alloc(direct, 100, &block)); /* this thread uses it, so the others wait from the start */
    for (size_t i = 0; i < 3; i++)
        jobs[i] = (job){.run = job_wait_for_memory, .allocator = direct};
    run_under_fire(jobs, 3);
    CHECK_OK(loch_free(direct, block));
    loch_allocator_release(direct);
    loch_device_release(device);
}

static loch_status task(void *user)
{
    for (int i = 0; i < 10; i++)
        sched_yield();
    *(int *)user += 1;
    return LOCH_OK;
}

static void job_wait_for_tasks(job *w)
{
    int count = 0;
    TRY(loch_workers_run_wait(w->workers, task, &count));
    EXPECT(count == 1);
    TRY(loch_workers_wait(w->workers, NULL));
}

static void signals_do_not_end_waits_for_tasks(void **state)
{
    (void)state;
    job jobs[2];
    loch_workers *workers;
    CHECK_OK(loch_workers_open(NULL, &workers));
    for (size_t i = 0; i < 2; i++)
        jobs[i] = (job){.run = job_wait_for_tasks, .workers = workers};
    run_under_fire(jobs, 2);
    CHECK_OK(loch_workers_close(workers, LOCH_WORKERS_DRAIN, NULL));
}

#define ELEMENTS 40000

static float elements[ELEMENTS];

/* A tensor through a pipe, whose two ends wait for each other. */
static void *pipe_save(void *user)
{
    job *w = user;
    char path[128];
    loch_tensor *tensor;
    const int64_t shape[] = {ELEMENTS};
    job_own = w;
    snprintf(path, sizeof path, "%s/pipe", w->folder);
    if (loch_tensor_create_from(LOCH_F32, 1, shape, elements, NULL, &tensor) != LOCH_OK) return w;
    const loch_status status = loch_npy_save(tensor, path, NULL);
    loch_tensor_release(tensor);
    return status == LOCH_OK ? NULL : w;
}

static void job_files(job *w)
{
    char path[128];
    loch_tensor *tensor;
    pthread_t thread;
    void *result;
    snprintf(path, sizeof path, "%s/pipe", w->folder);
    EXPECT(pthread_create(&thread, NULL, pipe_save, w) == 0);
    const loch_status status = loch_npy_load(path, NULL, &tensor);
    for (int i = 0; i < 3; i++)
        pthread_kill(thread, SIGUSR1);
    EXPECT(pthread_join(thread, &result) == 0);
    EXPECT(!result);
    TRY(status);
    void *address;
    TRY(loch_tensor_get_address(tensor, &address));
    for (size_t i = 0; i < sizeof elements / sizeof *elements; i++)
        EXPECT(((const float *)address)[i] == elements[i]);
    loch_tensor_release(tensor);
}

static void signals_do_not_cut_files_short(void **state)
{
    (void)state;
    job one = {.run = job_files, .folder = "/tmp/loch-signals-XXXXXX"};
    char path[128];
    for (int i = 0; i < ELEMENTS; i++)
        elements[i] = (float)i;
    assert_non_null(mkdtemp(one.folder));
    snprintf(path, sizeof path, "%s/pipe", one.folder);
    assert_int_equal(mkfifo(path, 0600), 0);
    run_under_fire(&one, 1);
    unlink(path);
    assert_int_equal(rmdir(one.folder), 0);
    CHECK_OK(loch_registry_clear(NULL, NULL, NULL));
}

/* Everything that a device can do. */
static void job_scenario(job *w)
{
    test_scenario run;
    test_scenario_run(&run, "cpu", "cpu");
    if (run.status == LOCH_OK) return;
    snprintf(w->failure, sizeof w->failure, "%s: %.200s", run.call, run.error.sentence);
}

static void signals_do_not_disturb_a_whole_program(void **state)
{
    (void)state;
    job one = {.run = job_scenario};
    run_under_fire(&one, 1);
}

int main(void)
{
    const struct CMUnitTest cases[] = {
        cmocka_unit_test(signals_do_not_disturb_allocations),     cmocka_unit_test(signals_do_not_end_waits_for_memory),
        cmocka_unit_test(signals_do_not_end_waits_for_tasks),     cmocka_unit_test(signals_do_not_cut_files_short),
        cmocka_unit_test(signals_do_not_disturb_a_whole_program),
    };
    return cmocka_run_group_tests(cases, NULL, NULL);
}

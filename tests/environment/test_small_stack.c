/* SPDX-License-Identifier: MIT */
/* Threads with small stacks: what the library needs of one is far below what programs with thousands of threads give
 * them. A guard page lies below each stack, so a thread that needs more stops the program. */
#include "base/sanitize.h"
#include "scenario.h"
#include "test.h"
#include "worker.h"

#include <limits.h>
#include <pthread.h>
#include <unistd.h>

#if LOCHI_ASAN || LOCHI_TSAN || LOCHI_MSAN
#define STACK_BYTES (512 * TEST_KIB) /* frames are larger there */
#else
#define STACK_BYTES (64 * TEST_KIB) /* with the variables of the thread, and what the C library's printf takes */
#endif

typedef struct job {
    void (*run)(struct job *w);
    char path[64], failure[400];
} job;

static void *job_run(void *user)
{
    job *w = user;
    w->run(w);
    return NULL;
}

static void run_on_small_stack(job *w)
{
    pthread_attr_t attributes;
    pthread_t thread;
    const size_t least = (size_t)sysconf(_SC_THREAD_STACK_MIN);
    assert_int_equal(pthread_attr_init(&attributes), 0);
    assert_int_equal(pthread_attr_setstacksize(&attributes, least > STACK_BYTES ? least : STACK_BYTES), 0);
    assert_int_equal(pthread_create(&thread, &attributes, job_run, w), 0);
    assert_int_equal(pthread_join(thread, NULL), 0);
    pthread_attr_destroy(&attributes);
    if (*w->failure) fail_msg("%s", w->failure);
}

static void job_devices(job *w)
{
    static const char *const names[] = {"cpu", "sim:1GiB,backed"};
    for (size_t i = 0; i < 2; i++) {
        test_scenario run;
        test_scenario_run(&run, names[i], "cpu");
        if (run.status == LOCH_OK) continue;
        snprintf(w->failure, sizeof w->failure, "%s: %.200s", run.call, run.error.sentence);
    }
}

/* The whole ladder: a pool that is full, fragmented, refuses, and says why. */
static void job_pool(job *w)
{
    static void *blocks[256];
    loch_device *device;
    loch_allocator *pool;
    size_t count = 0;
    TRY(loch_device_open("sim:64MiB", &device));
    TRY(loch_pool_create(device, NULL, NULL, &pool));
    while (count < 256 && loch_alloc(pool, 700000, &blocks[count]) == LOCH_OK)
        count++;
    EXPECT(count > 10 && count < 256);
    EXPECT(loch_error_get()->status == LOCH_E_DEVICE_MEMORY);
    for (size_t i = 0; i < count; i += 2)
        TRY(loch_free(pool, blocks[i]));
    void *large;
    EXPECT(loch_alloc(pool, 8 * TEST_MIB, &large) == LOCH_E_FRAGMENTED);
    for (size_t i = 1; i < count; i += 2)
        TRY(loch_free(pool, blocks[i]));
    loch_allocator_release(pool);
    loch_device_release(device);
}

static void job_files(job *w)
{
    static const float elements[64];
    loch_tensor *tensor, *read;
    const int64_t shape[] = {8, 8};
    char text[64];
    TRY(loch_tensor_create_from(LOCH_F32, 2, shape, elements, NULL, &tensor));
    TRY(loch_tensor_print(tensor, NULL, text, sizeof text, NULL));
    TRY(loch_npy_save(tensor, w->path, NULL));
    TRY(loch_npy_load(w->path, NULL, &read));
    loch_tensor_release(read);
    loch_tensor_release(tensor);
    TRY(loch_registry_clear(NULL, NULL, NULL));
}

static void devices_work_on_a_small_stack(void **state)
{
    (void)state;
    job one = {.run = job_devices};
    run_on_small_stack(&one);
}

static void pools_work_on_a_small_stack(void **state)
{
    (void)state;
    job one = {.run = job_pool};
    run_on_small_stack(&one);
}

static void files_are_saved_and_loaded_on_a_small_stack(void **state)
{
    (void)state;
    job one = {.run = job_files, .path = "/tmp/loch-stack-XXXXXX"};
    const int file = mkstemp(one.path);
    assert_true(file >= 0);
    close(file);
    run_on_small_stack(&one);
    unlink(one.path);
}

int main(void)
{
    const struct CMUnitTest cases[] = {
        cmocka_unit_test(devices_work_on_a_small_stack),
        cmocka_unit_test(pools_work_on_a_small_stack),
        cmocka_unit_test(files_are_saved_and_loaded_on_a_small_stack),
    };
    return cmocka_run_group_tests(cases, NULL, NULL);
}

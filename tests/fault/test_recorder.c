/* SPDX-License-Identifier: MIT */
/* A recording is started, saved and stopped while every host allocation of the library fails in turn: each failure is
 * reported with a sentence and leaves nothing behind, allocators work as before, and the next recording is whole. */
#include "sweep.h"
#include "test.h"
#include <unistd.h>

typedef struct program {
    loch_device *device;
    loch_allocator *pool;
    const char *path; /* NULL: a ring */
    char saved[128];
} program;

static loch_status use(loch_allocator *pool)
{
    void *block, *other;
    LOCH_RETURN(loch_alloc(pool, 100, &block));
    const loch_status status = loch_alloc(pool, 3 * TEST_MIB, &other);
    if (status == LOCH_OK) TEST_BACK(loch_free(pool, other));
    TEST_BACK(loch_free(pool, block));
    return status;
}

/* Uses a pool that is made while the recording runs. */
static loch_status use_new(loch_device *device)
{
    loch_allocator *pool;
    LOCH_RETURN(loch_pool_create(device, "new", NULL, &pool));
    const loch_status status = use(pool);
    loch_allocator_release(pool);
    return status;
}

static loch_status run(const void *user)
{
    const program *p = user;
    const loch_recorder_options options = {
        .size = sizeof options, .path = p->path, .ring_bytes = TEST_MIB, .stack_depth = 4};
    LOCH_RETURN(loch_recorder_start(&options));
    loch_status status = use(p->pool);
    if (status == LOCH_OK) status = use_new(p->device);
    if (status == LOCH_OK && !p->path) status = loch_recorder_save(p->saved);
    TEST_BACK(loch_recorder_stop());
    return status;
}

static void a_recording_survives_failures_of_the_host(void **state)
{
    (void)state;
    program p = {.path = NULL};
    char path[128];
    snprintf(p.saved, sizeof p.saved, "/tmp/loch-fault-recorder-%ld.saved", (long)getpid());
    snprintf(path, sizeof path, "/tmp/loch-fault-recorder-%ld.loch", (long)getpid());
    CHECK_OK(loch_device_open("sim:64MiB,backed", &p.device));
    CHECK_OK(loch_pool_create(p.device, "recorded", NULL, &p.pool));
    CHECK_OK(use(p.pool));
    test_host_sweep(run, &p);
    p.path = path;
    test_host_sweep(run, &p);
    (void)unlink(path);
    (void)unlink(p.saved);
    loch_allocator_release(p.pool);
    loch_device_release(p.device);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(a_recording_survives_failures_of_the_host)};
    return cmocka_run_group_tests(tests, test_faults_prepare, NULL);
}

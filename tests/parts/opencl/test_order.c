/* SPDX-License-Identifier: MIT */
/* Order on OpenCL devices: kernels of the caller between copies of Loch, waits between streams and devices, memory that
 * a pool reuses, and functions of streams. Gates hold queues up, so that a missing wait shows. */
#include "opencl_fixture.h"

#include <pthread.h>
#include <sched.h>
#include <semaphore.h>
#include <stdatomic.h>

#define COUNT 4096
#define BYTES (COUNT * sizeof(uint32_t))

typedef struct ground {
    loch_device *device;
    loch_opencl_handles handles;
    opencl_kernel kernel;
    loch_stream *first, *second;
} ground;

static ground open_ground(void)
{
    ground g = {.device = opencl_open("opencl:0")};
    g.handles = opencl_handles(g.device);
    g.kernel = opencl_build(&g.handles);
    CHECK_OK(loch_stream_create(g.device, NULL, &g.first));
    CHECK_OK(loch_stream_create(g.device, NULL, &g.second));
    return g;
}

static void close_ground(ground *g)
{
    opencl_unbuild(&g->kernel);
    loch_stream_close(g->first);
    loch_stream_close(g->second);
    loch_device_release(g->device);
}

static void *take(const ground *g)
{
    void *block = NULL;
    CHECK_OK(loch_raw_alloc(g->device, LOCH_MEMORY_DEVICE, BYTES, 0, &block));
    CHECK_OK(loch_fill(block, BYTES, "\0", 1));
    return block;
}

static void wait_until(loch_stream *stream, loch_status wanted)
{
    const uint64_t start = loch_host_now_ns();
    loch_status status;
    while ((status = loch_stream_query(stream)) != wanted)
        if (loch_host_now_ns() - start > 60000000000u) fail_msg("the stream is %s", loch_status_name(status));
}

/* --- kernels of the caller --- */

static void a_copy_on_another_stream_sees_a_kernel_after_a_wait(void **state)
{
    (void)state;
    ground g = open_ground();
    void *source = take(&g), *target = take(&g);
    loch_event *event = NULL;
    CHECK_OK(loch_event_create(g.device, LOCH_EVENT_PLAIN, &event));
    cl_queue queue = loch_stream_get_native(g.first);
    cl_mark gate = opencl_close_gate(&g.handles, queue);
    opencl_launch(&g.kernel, queue, source, COUNT, 100);
    CHECK_OK(loch_event_record(event, g.first));
    CHECK_OK(loch_stream_wait(g.second, event));
    CHECK_OK(loch_copy_on(target, source, BYTES, g.second));
    CHECK_STATUS(loch_event_query(event), LOCH_E_BUSY);
    CHECK_STATUS(loch_stream_query(g.second), LOCH_E_BUSY);
    opencl_open_gate(gate);
    CHECK_OK(loch_stream_sync(g.second));
    CHECK_OK(loch_stream_query(g.second));
    opencl_expect(target, COUNT, 100);
    loch_event_destroy(event);
    CHECK_OK(loch_raw_free(source));
    CHECK_OK(loch_raw_free(target));
    close_ground(&g);
}

static void a_stream_knows_of_the_kernels_of_the_caller(void **state)
{
    (void)state;
    ground g = open_ground();
    void *block = take(&g);
    CHECK_OK(loch_stream_query(g.first)); /* no work yet */
    cl_queue queue = loch_stream_get_native(g.first);
    for (uint32_t round = 0; round < 3; round++) {
        cl_mark gate = opencl_close_gate(&g.handles, queue);
        opencl_launch(&g.kernel, queue, block, COUNT, 7 + round);
        for (int i = 0; i < 3; i++)
            CHECK_STATUS(loch_stream_query(g.first), LOCH_E_BUSY);
        opencl_open_gate(gate);
        if (round == 0) CHECK_OK(loch_stream_sync(g.first));
        if (round == 1) CHECK_OK(loch_device_sync(g.device));
        wait_until(g.first, LOCH_OK);
        opencl_expect(block, COUNT, 7 + round);
    }
    CHECK_OK(loch_raw_free(block));
    close_ground(&g);
}

static void kernels_run_on_the_default_stream(void **state)
{
    (void)state;
    ground g = open_ground();
    void *block = take(&g);
    opencl_launch(&g.kernel, g.handles.queue, block, COUNT, 3);
    opencl_expect(block, COUNT, 3);
    CHECK_OK(loch_raw_free(block));
    close_ground(&g);
}

/* Opens a gate after a moment, in which a wait that should not end yet would end. */
static void *open_later(void *argument)
{
    const uint64_t start = loch_host_now_ns();
    while (loch_host_now_ns() - start < 50000000)
        sched_yield();
    opencl_open_gate(argument);
    return NULL;
}

static void a_wrapped_queue_is_ordered_like_a_stream(void **state)
{
    (void)state;
    ground g = open_ground();
    void *block = take(&g), *pinned = NULL;
    cl_result result = LOCHI_CL_INVALID_VALUE;
    cl_queue queue =
        lochi_opencl.clCreateCommandQueueWithProperties(g.handles.context, g.handles.device_id, NULL, &result);
    CHECK_CL(result);
    loch_stream *stream = NULL;
    CHECK_OK(loch_stream_wrap(g.device, queue, &stream));
    assert_ptr_equal(loch_stream_get_native(stream), queue);
    cl_mark gate = opencl_close_gate(&g.handles, queue);
    opencl_launch(&g.kernel, queue, block, COUNT, 40);
    const bool has_pinned = loch_device_can(g.device, LOCH_CAN_PINNED);
    if (has_pinned) {
        CHECK_OK(loch_raw_alloc(g.device, LOCH_MEMORY_PINNED, BYTES, 0, &pinned));
        CHECK_OK(loch_copy_on(pinned, block, BYTES, stream)); /* does not wait */
    }
    CHECK_STATUS(loch_stream_query(stream), LOCH_E_BUSY);
    if (!has_pinned) CHECK_OK(loch_fill_on(block, 4, "\50\0\0\0", 4, stream));
    loch_stream_close(stream); /* the work runs to its end, and the device waits for it */
    CHECK_CL(lochi_opencl.clReleaseCommandQueue(queue));
    pthread_t opener;
    assert_int_equal(pthread_create(&opener, NULL, open_later, gate), 0);
    CHECK_OK(loch_device_sync(g.device));
    opencl_expect(block, COUNT, 40);
    if (has_pinned) assert_int_equal(((uint32_t *)pinned)[COUNT - 1], 40 + COUNT - 1);
    assert_int_equal(pthread_join(opener, NULL), 0);
    CHECK_OK(loch_raw_free(pinned));
    CHECK_OK(loch_raw_free(block));
    close_ground(&g);
}

/* --- host memory --- */

typedef struct upload {
    loch_stream *stream;
    void *block;
    loch_status status;
    atomic_bool is_back;
} upload;

/* Copies from memory that the next line overwrites. */
static void *upload_thread(void *argument)
{
    upload *u = argument;
    static uint32_t host[COUNT];
    for (uint32_t i = 0; i < COUNT; i++)
        host[i] = 77 + i;
    u->status = loch_copy_on(u->block, host, BYTES, u->stream);
    memset(host, 0, sizeof host);
    atomic_store(&u->is_back, true);
    return NULL;
}

/* The stream is held up. A copy that did not wait would be back before the gate opens, and read what came after it. */
static void a_copy_from_unpinned_memory_waits(void **state)
{
    (void)state;
    ground g = open_ground();
    upload u = {.stream = g.first, .block = take(&g)};
    cl_mark gate = opencl_close_gate(&g.handles, loch_stream_get_native(g.first));
    pthread_t thread;
    assert_int_equal(pthread_create(&thread, NULL, upload_thread, &u), 0);
    const uint64_t start = loch_host_now_ns();
    while (!atomic_load(&u.is_back) && loch_host_now_ns() - start < 100000000)
        sched_yield();
    opencl_open_gate(gate);
    assert_int_equal(pthread_join(thread, NULL), 0);
    CHECK_STATUS(u.status, LOCH_OK);
    CHECK_OK(loch_stream_sync(g.first));
    opencl_expect(u.block, COUNT, 77);
    CHECK_OK(loch_raw_free(u.block));
    close_ground(&g);
}

/* Both copies are queued behind a gate by the thread that opens it. */
static void copies_of_pinned_memory_do_not_wait(void **state)
{
    (void)state;
    ground g = open_ground();
    if (!loch_device_can(g.device, LOCH_CAN_PINNED)) {
        print_message("the device has no pinned memory\n");
        close_ground(&g);
        return;
    }
    uint32_t *pinned = NULL;
    void *block = take(&g), *several[20];
    for (size_t i = 0; i < 20; i++) /* the table of pinned blocks has more than one, and gaps */
        CHECK_OK(loch_raw_alloc(g.device, LOCH_MEMORY_PINNED, 100 + 1000 * i, 0, &several[i]));
    CHECK_OK(loch_raw_alloc(g.device, LOCH_MEMORY_PINNED, 2 * BYTES, 0, (void **)&pinned));
    for (size_t i = 0; i < 20; i += 2)
        CHECK_OK(loch_raw_free(several[i]));
    for (uint32_t i = 0; i < COUNT; i++)
        pinned[i] = 500 + i;
    const loch_pitched rows = {
        .row_bytes = 64, .rows = BYTES / 128, .planes = 1, .to_row_pitch = 64, .from_row_pitch = 128};
    const loch_copy_options options = {.size = sizeof options, .stream = g.first};
    cl_mark gate = opencl_close_gate(&g.handles, loch_stream_get_native(g.first));
    CHECK_OK(loch_copy_on(block, pinned, BYTES, g.first));
    CHECK_OK(loch_copy_pitched(pinned + COUNT, block, &rows, &options)); /* the first half of each 128 bytes */
    CHECK_STATUS(loch_stream_query(g.first), LOCH_E_BUSY);
    opencl_open_gate(gate);
    CHECK_OK(loch_stream_sync(g.first));
    opencl_expect(block, COUNT, 500);
    for (uint32_t i = 0; i < COUNT / 2; i++)
        assert_int_equal(pinned[COUNT + i], 500 + i / 16 * 32 + i % 16);
    for (size_t i = 1; i < 20; i += 2)
        CHECK_OK(loch_raw_free(several[i]));
    CHECK_OK(loch_raw_free(pinned));
    CHECK_OK(loch_raw_free(block));
    close_ground(&g);
}

/* --- streams and devices --- */

static void a_stream_with_the_default_is_ordered_with_it(void **state)
{
    (void)state;
    ground g = open_ground();
    void *block = take(&g), *other = take(&g);
    const loch_stream_options options = {.size = sizeof options, .order = LOCH_STREAM_WITH_DEFAULT};
    loch_stream *stream = NULL;
    CHECK_OK(loch_stream_create(g.device, &options, &stream));
    cl_mark gate = opencl_close_gate(&g.handles, g.handles.queue);
    opencl_launch(&g.kernel, g.handles.queue, block, COUNT, 9);
    CHECK_OK(loch_copy_on(other, block, BYTES, stream));
    CHECK_STATUS(loch_stream_query(stream), LOCH_E_BUSY);
    opencl_open_gate(gate);
    CHECK_OK(loch_stream_sync(stream));
    CHECK_OK(loch_stream_query(stream));
    opencl_expect(other, COUNT, 9);
    loch_stream_close(stream);
    CHECK_OK(loch_raw_free(block));
    CHECK_OK(loch_raw_free(other));
    close_ground(&g);
}

static void a_stream_waits_for_another_device(void **state)
{
    (void)state;
    loch_device *other = NULL;
    if (loch_device_open("opencl:1", &other) != LOCH_OK) {
        print_message("there is one OpenCL device\n");
        return;
    }
    ground g = open_ground();
    loch_stream *there = NULL;
    loch_event *event = NULL;
    void *block = NULL;
    CHECK_OK(loch_stream_create(other, NULL, &there));
    CHECK_OK(loch_raw_alloc(other, LOCH_MEMORY_DEVICE, BYTES, 0, &block));
    CHECK_OK(loch_event_create(g.device, LOCH_EVENT_PLAIN, &event));
    cl_mark gate = opencl_close_gate(&g.handles, loch_stream_get_native(g.first));
    CHECK_OK(loch_event_record(event, g.first));
    CHECK_OK(loch_stream_wait(there, event));
    CHECK_OK(loch_fill_on(block, BYTES, "a", 1, there));
    CHECK_STATUS(loch_stream_query(there), LOCH_E_BUSY);
    loch_event_destroy(event); /* the wait holds */
    CHECK_STATUS(loch_stream_query(there), LOCH_E_BUSY);
    opencl_open_gate(gate);
    CHECK_OK(loch_stream_sync(there));
    CHECK_OK(loch_raw_free(block));
    loch_stream_close(there);
    loch_device_release(other);
    close_ground(&g);
}

/* Memory that work on one stream still uses is not given to another stream before that work has ended. */
static void a_pool_does_not_mix_streams(void **state)
{
    (void)state;
    ground g = open_ground();
    loch_allocator *pool = NULL;
    void *early = NULL, *late = NULL;
    CHECK_OK(loch_pool_create(g.device, "order", NULL, &pool));
    for (uint32_t round = 0; round < 8; round++) {
        cl_queue queue = loch_stream_get_native(g.first);
        const loch_request here = {.size = sizeof here, .bytes = BYTES, .stream = g.first};
        const loch_request there = {.size = sizeof there, .bytes = BYTES, .stream = g.second};
        CHECK_OK(loch_allocator_alloc(pool, &here, &early));
        cl_mark gate = opencl_close_gate(&g.handles, queue);
        opencl_launch(&g.kernel, queue, early, COUNT, 1000000);
        CHECK_OK(loch_allocator_free_on(pool, early, g.first)); /* the kernel has not begun */
        CHECK_OK(loch_allocator_alloc(pool, &there, &late));
        if (late == early) CHECK_STATUS(loch_stream_query(g.second), LOCH_E_BUSY);
        opencl_launch(&g.kernel, loch_stream_get_native(g.second), late, COUNT, round);
        opencl_open_gate(gate);
        CHECK_OK(loch_stream_sync(g.first));
        CHECK_OK(loch_stream_sync(g.second));
        opencl_expect(late, COUNT, round);
        CHECK_OK(loch_allocator_free_on(pool, late, g.second));
    }
    loch_allocator_release(pool);
    close_ground(&g);
}

/* --- functions --- */

static sem_t posted;

static void wait_for_post(void *user)
{
    *(int *)user = sem_wait(&posted) == 0;
}

static void post(void *user)
{
    (void)user;
    sem_post(&posted);
}

static void a_function_that_waits_holds_its_stream_alone(void **state)
{
    (void)state;
    ground g = open_ground();
    void *block = take(&g);
    int has_waited = 0;
    assert_int_equal(sem_init(&posted, 0, 0), 0);
    CHECK_OK(loch_stream_call(g.first, wait_for_post, &has_waited));
    CHECK_OK(loch_fill_on(block, BYTES, "b", 1, g.first));
    CHECK_STATUS(loch_stream_query(g.first), LOCH_E_BUSY);
    CHECK_OK(loch_fill_on(block, BYTES, "a", 1, g.second));
    CHECK_OK(loch_stream_call(g.second, post, NULL)); /* the other function waits for this one */
    CHECK_OK(loch_stream_sync(g.first));
    assert_int_equal(has_waited, 1);
    CHECK_OK(loch_stream_sync(g.second));
    uint32_t number = 0;
    CHECK_OK(loch_copy(&number, block, sizeof number));
    assert_int_equal(number, 0x62626262);
    sem_destroy(&posted);
    CHECK_OK(loch_raw_free(block));
    close_ground(&g);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_copy_on_another_stream_sees_a_kernel_after_a_wait),
        cmocka_unit_test(a_stream_knows_of_the_kernels_of_the_caller),
        cmocka_unit_test(kernels_run_on_the_default_stream),
        cmocka_unit_test(a_wrapped_queue_is_ordered_like_a_stream),
        cmocka_unit_test(a_copy_from_unpinned_memory_waits),
        cmocka_unit_test(copies_of_pinned_memory_do_not_wait),
        cmocka_unit_test(a_stream_with_the_default_is_ordered_with_it),
        cmocka_unit_test(a_stream_waits_for_another_device),
        cmocka_unit_test(a_pool_does_not_mix_streams),
        cmocka_unit_test(a_function_that_waits_holds_its_stream_alone),
    };
    opencl_need();
    return cmocka_run_group_tests_name("order on OpenCL", tests, NULL, NULL);
}

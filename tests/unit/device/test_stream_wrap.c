/* SPDX-License-Identifier: MIT */
/* Streams of a driver whose handles are structs of its own, not the queues of the device: callers see the queue, and
 * what the driver made for a wrapped queue is freed with the wrapper. The driver is the simulator's table with other
 * slots for wrapped queues. */
#include "failing_heap.h"
#include "test.h"

#include <sys/wait.h>
#include <unistd.h>

#define QUEUE ((void *)(uintptr_t)0x5001)

typedef struct handle {
    void *queue;
} handle;

static const loch_driver *sim;
static int made, freed;
static bool refuses_thread_default;

static loch_status wraps_stream_wrap(void *self, void *native, void **out)
{
    (void)self;
    *out = NULL;
    if (!native) return LOCH_OK;
    handle *h = malloc(sizeof *h);
    if (!h) return loch_error_set(LOCH_E_HOST_MEMORY, "wraps", 0, "no memory");
    h->queue = native;
    made++;
    *out = h;
    return LOCH_OK;
}

static void wraps_stream_unwrap(void *self, void *stream)
{
    (void)self;
    assert_non_null(stream);
    freed++;
    free(stream);
}

static void *wraps_stream_native(void *self, void *stream)
{
    (void)self;
    return ((handle *)stream)->queue;
}

static loch_status wraps_thread_default(void *self, void **out)
{
    (void)self;
    *out = NULL;
    if (refuses_thread_default) return loch_error_set(LOCH_E_DRIVER, "wraps", 3, "no default stream of a thread");
    return LOCH_OK;
}

static int setup(void **state)
{
    (void)state;
    CHECK_OK(test_heap_install());
    sim = loch_driver_find("sim");
    assert_non_null(sim);
    loch_driver table = *sim;
    table.name = "wraps";
    table.stream_wrap = wraps_stream_wrap;
    table.stream_unwrap = wraps_stream_unwrap;
    table.stream_native = wraps_stream_native;
    table.stream_thread_default = wraps_thread_default;
    table.forked = NULL; /* the library answers in the child of a fork */
    CHECK_OK(loch_driver_register(&table));
    return 0;
}

static loch_device *open_device(void)
{
    loch_device *device = NULL;
    CHECK_OK(loch_device_open("wraps:64MiB", &device));
    made = freed = 0;
    return device;
}

static void callers_see_the_queue_and_not_the_handle(void **state)
{
    (void)state;
    loch_device *device = open_device();
    loch_stream *stream = NULL;
    CHECK_OK(loch_stream_wrap(device, QUEUE, &stream));
    assert_ptr_equal(loch_stream_get_native(stream), QUEUE);
    assert_null(loch_stream_get_native(loch_stream_get_default(device)));
    loch_stream_close(stream);
    loch_device_release(device);
}

static void the_handle_is_freed_when_the_wrapper_ends(void **state)
{
    (void)state;
    loch_device *device = open_device();
    loch_stream *stream = NULL;
    CHECK_OK(loch_stream_wrap(device, QUEUE, &stream));
    loch_stream_close(stream);
    assert_int_equal(freed, 1);

    CHECK_OK(loch_stream_wrap(device, QUEUE, &stream)); /* the last reference ends the wrapper too */
    loch_stream_retain(stream);
    loch_stream_release(stream);
    assert_int_equal(freed, 1);
    loch_stream_release(stream);
    assert_int_equal(freed, 2);

    CHECK_OK(loch_stream_wrap(device, QUEUE, &stream)); /* closed for all owners, and once */
    loch_stream_retain(stream);
    loch_stream_close(stream);
    assert_int_equal(freed, 3);
    assert_null(loch_stream_get_native(stream));
    loch_stream_release(stream);
    assert_int_equal(freed, 3);
    assert_int_equal(made, 3);

    CHECK_OK(loch_stream_wrap(device, NULL, &stream)); /* the default stream has no handle */
    assert_ptr_equal(stream, loch_stream_get_default(device));
    loch_stream_close(stream);
    assert_int_equal(freed, 3);
    loch_device_release(device);
}

static void a_wrap_that_fails_frees_the_handle(void **state)
{
    (void)state;
    loch_device *device = open_device();
    loch_stream *stream = TEST_UNTOUCHED;
    test_heap_set(TEST_FAILING_ONCE, 0);
    CHECK_FAILS(loch_stream_wrap(device, QUEUE, &stream), HOST_MEMORY);
    test_heap_set(TEST_FAILING_NEVER, 0);
    assert_null(stream);
    assert_int_equal(made, 1);
    assert_int_equal(freed, 1);

    refuses_thread_default = true;
    CHECK_FAILS(loch_stream_wrap(device, QUEUE, &stream), DRIVER);
    refuses_thread_default = false;
    assert_null(stream);
    assert_int_equal(made, 2);
    assert_int_equal(freed, 2);
    loch_device_release(device);
}

/* The driver is not called in the child: the queue is the parent's. */
static void a_forked_child_has_no_queue(void **state)
{
    (void)state;
    loch_device *device = open_device();
    loch_stream *stream = NULL;
    CHECK_OK(loch_stream_wrap(device, QUEUE, &stream));
    const pid_t child = fork();
    if (child == 0) {
        const bool has_none = loch_stream_get_native(stream) == NULL;
        loch_stream_close(stream);
        _exit(has_none && freed == 0 ? 0 : 1);
    }
    int status = -1;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(status, 0);
    loch_stream_close(stream);
    assert_int_equal(freed, 1);
    loch_device_release(device);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(callers_see_the_queue_and_not_the_handle),
        cmocka_unit_test(the_handle_is_freed_when_the_wrapper_ends),
        cmocka_unit_test(a_wrap_that_fails_frees_the_handle),
        cmocka_unit_test(a_forked_child_has_no_queue),
    };
    return cmocka_run_group_tests_name("wrapped streams", tests, setup, NULL);
}

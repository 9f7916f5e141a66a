/* SPDX-License-Identifier: MIT */
/* Failures on simulated devices: driver calls that fail when told to, a lost device, and a host without memory at every
 * single allocation of a program that uses everything. */
#include "sim_fixture.h"
#include "sweep.h"
#include <unistd.h>

static void set_fault(loch_device *device, const char *call, uint64_t after, loch_sim_fault_mode mode,
                      loch_status status)
{
    const loch_sim_fault fault = {.size = sizeof fault, .call = call, .after = after, .mode = mode, .status = status};
    CHECK_OK(loch_sim_set_fault(device, &fault));
}

static void a_call_that_is_named_fails_once(void **state)
{
    (void)state;
    loch_device *device = sim_open("sim:1GiB");
    void *first, *second = TEST_UNTOUCHED, *pinned;
    set_fault(device, "raw_alloc", 1, LOCH_SIM_FAULT_ONCE, LOCH_OK);
    pinned = sim_pinned(device, 512); /* another name */
    first = sim_raw(device, 512);
    CHECK_FAILS(loch_raw_alloc(device, LOCH_MEMORY_DEVICE, 512, 0, &second), DEVICE_MEMORY);
    assert_null(second);
    assert_non_null(strstr(loch_error_get()->sentence, "raw_alloc"));
    second = sim_raw(device, 512);
    assert_int_equal(sim_stats(device).physical_bytes, 1024);
    CHECK_OK(loch_raw_free(first));
    CHECK_OK(loch_raw_free(second));
    CHECK_OK(loch_raw_free(pinned));
    loch_device_release(device);
}

static void a_fault_for_good_lasts_until_it_is_cleared(void **state)
{
    (void)state;
    loch_device *device = sim_open("sim:1GiB");
    loch_event *event = sim_event(device);
    set_fault(device, "event_record", 0, LOCH_SIM_FAULT_FOREVER, LOCH_OK);
    for (int i = 0; i < 3; i++)
        CHECK_FAILS(loch_event_record(event, NULL), DRIVER);
    CHECK_OK(loch_event_query(event));
    CHECK_OK(loch_sim_set_fault(device, NULL));
    CHECK_OK(loch_event_record(event, NULL));
    set_fault(device, "event_query", 0, LOCH_SIM_FAULT_FOREVER, LOCH_E_IO);
    CHECK_FAILS(loch_event_query(event), IO);
    loch_event_destroy(event);
    loch_device_release(device);
}

static void a_fault_without_a_name_counts_all_calls(void **state)
{
    (void)state;
    loch_device *device = sim_open("sim:1GiB");
    void *address, *none;
    set_fault(device, NULL, 1, LOCH_SIM_FAULT_ONCE, LOCH_OK);
    address = sim_raw(device, 512);
    CHECK_OK(loch_raw_free(address)); /* its turn, but it gives something back */
    CHECK_FAILS(loch_raw_alloc(device, LOCH_MEMORY_DEVICE, 512, 0, &none), DEVICE_MEMORY);
    address = sim_raw(device, 512);
    set_fault(device, NULL, 0, LOCH_SIM_FAULT_FOREVER, LOCH_OK);
    CHECK_FAILS(loch_device_sync(device), DRIVER);
    CHECK_FAILS(loch_virtual_reserve(device, 2 * TEST_MIB, 0, &none), DEVICE_MEMORY);
    CHECK_OK(loch_raw_free(address));
    loch_device_release(device);
}

/* A map whose opening fails leaves nothing mapped. */
static void access_fails_inside_map(void **state)
{
    (void)state;
    loch_device *device = sim_open("sim:1GiB");
    void *address;
    loch_handle *handle;
    CHECK_OK(loch_virtual_reserve(device, 2 * TEST_MIB, 0, &address));
    CHECK_OK(loch_handle_create(device, 2 * TEST_MIB, NULL, &handle));
    set_fault(device, "access", 0, LOCH_SIM_FAULT_ONCE, LOCH_OK);
    CHECK_FAILS(loch_virtual_map(address, handle, NULL, 0), DRIVER);
    assert_int_equal(sim_stats(device).mappings, 0);
    CHECK_OK(loch_virtual_map(address, handle, NULL, 0));
    CHECK_OK(loch_virtual_unmap(address));
    loch_handle_destroy(handle);
    CHECK_OK(loch_virtual_unreserve(address));
    loch_device_release(device);
}

static void count_runs(void *user)
{
    ++*(int *)user;
}

static void a_lost_device_gives_everything_back(void **state)
{
    (void)state;
    loch_device *device = sim_open("sim:64MiB,granule=64KiB,backed,clock=stepped");
    loch_stream *stream = sim_stream(device, LOCH_STREAM_INDEPENDENT);
    loch_event *event = sim_event(device);
    unsigned char *block = sim_raw(device, 64), *pinned = sim_pinned(device, 64);
    void *address, *self, *ordered, *none;
    loch_handle *handle;
    loch_memory_info info = {.size = sizeof info};
    int runs = 0;
    const loch_driver *driver = loch_device_get_driver(device, &self);
    CHECK_OK(loch_virtual_reserve(device, 64 * TEST_KIB, 0, &address));
    CHECK_OK(loch_handle_create(device, 64 * TEST_KIB, NULL, &handle));
    CHECK_OK(loch_virtual_map(address, handle, NULL, 0));
    CHECK_OK(driver->ordered_alloc(self, 512, loch_stream_get_native(stream), &ordered));
    memset(block, 1, 64);
    CHECK_OK(loch_fill_on(block, 64, "x", 1, stream));
    CHECK_OK(loch_stream_call(stream, count_runs, &runs));
    CHECK_OK(loch_sim_lose(device));
    assert_int_equal(block[0], 1); /* what was queued did nothing */
    assert_int_equal(runs, 0);
    assert_int_equal(sim_stats(device).pending, 0);
    CHECK_FAILS(loch_raw_alloc(device, LOCH_MEMORY_DEVICE, 64, 0, &none), DEVICE_LOST);
    CHECK_FAILS(loch_stream_sync(stream), DEVICE_LOST);
    CHECK_FAILS(loch_stream_query(stream), DEVICE_LOST);
    CHECK_FAILS(loch_device_calculate_memory(device, &info), DEVICE_LOST);
    CHECK_FAILS(sim_busy(stream, 5), DEVICE_LOST);
    CHECK_FAILS(loch_sim_capture_begin(stream), DEVICE_LOST);
    CHECK_OK(driver->ordered_free(self, ordered, 512, loch_stream_get_native(stream)));
    CHECK_OK(loch_virtual_unmap(address));
    loch_handle_destroy(handle);
    CHECK_OK(loch_virtual_unreserve(address));
    CHECK_OK(loch_raw_free(block));
    CHECK_OK(loch_raw_free(pinned));
    loch_event_destroy(event);
    loch_stream_close(stream);
    const loch_sim_stats stats = sim_stats(device);
    assert_int_equal(stats.physical_bytes + stats.reserved_bytes + stats.pinned_bytes + stats.handles + stats.mappings +
                         stats.streams + stats.events,
                     0);
    loch_device_release(device);
}

static void waiting_inside_a_queued_function(void *user)
{
    void *self;
    const loch_driver *driver = loch_device_get_driver(user, &self);
    CHECK_FAILS(driver->stream_sync(self, NULL), DRIVER); /* would wait for itself */
}

static void a_queued_function_cannot_wait_for_itself(void **state)
{
    (void)state;
    loch_device *device = sim_open("sim:64MiB,clock=stepped");
    CHECK_OK(sim_busy(loch_stream_get_default(device), 100));
    CHECK_OK(loch_stream_call(loch_stream_get_default(device), waiting_inside_a_queued_function, device));
    CHECK_OK(loch_device_sync(device));
    loch_device_release(device);
}

/* --- a host without memory --- */

/* Everything that the program takes; zero is not taken. */
typedef struct program {
    loch_device *device, *peer;
    loch_stream *streams[12];
    loch_event *event;
    loch_handle *handle, *imported;
    loch_sim_graph *graph;
    void *addresses, *mapped, *aliased, *block, *pinned, *managed, *ordered;
    int fd;
} program;

#define GO(call)                                                                                                       \
    do {                                                                                                               \
        loch_error_clear();                                                                                            \
        const loch_status go_status = (call);                                                                          \
        if (go_status != LOCH_OK) return go_status;                                                                    \
    } while (0)

static loch_status program_take(program *it)
{
    const loch_handle_options share = {.size = sizeof share, .share = LOCH_SHARE_FD};
    GO(loch_device_open("sim:64MiB,granule=64KiB,backed,id=1", &it->device));
    GO(loch_device_open("sim:64MiB,granule=64KiB,backed,id=2", &it->peer));
    for (size_t i = 0; i < 12; i++)
        GO(loch_stream_create(it->device, NULL, &it->streams[i])); /* vectors have to grow */
    GO(loch_event_create(it->device, LOCH_EVENT_PLAIN, &it->event));
    GO(loch_raw_alloc(it->device, LOCH_MEMORY_DEVICE, 4096, 0, &it->block));
    GO(loch_raw_alloc(it->device, LOCH_MEMORY_PINNED, 4096, 0, &it->pinned));
    GO(loch_raw_alloc(it->device, LOCH_MEMORY_MANAGED, 4096, 0, &it->managed));
    GO(loch_virtual_reserve(it->device, 128 * TEST_KIB, 0, &it->addresses));
    GO(loch_handle_create(it->device, 64 * TEST_KIB, &share, &it->handle));
    GO(loch_virtual_map(it->addresses, it->handle, &it->peer, 1));
    it->mapped = it->addresses;
    GO(loch_virtual_map((char *)it->addresses + 64 * TEST_KIB, it->handle, NULL, 0));
    it->aliased = (char *)it->addresses + 64 * TEST_KIB;
    GO(loch_handle_export(it->handle, LOCH_SHARE_FD, sizeof it->fd, &it->fd));
    GO(loch_handle_import(it->peer, LOCH_SHARE_FD, &it->fd, 64 * TEST_KIB, &it->imported));
    GO(loch_device_enable_peer(it->peer, it->device));
    return LOCH_OK;
}

static loch_status program_work(program *it)
{
    char pageable[64] = "bytes";
    void *self;
    const loch_driver *driver = loch_device_get_driver(it->device, &self);
    loch_stream *stream = it->streams[0], *of_thread;
    GO(driver->ordered_alloc(self, 4096, loch_stream_get_native(stream), &it->ordered));
    GO(sim_writes(stream, it->ordered, 4096));
    GO(loch_copy_on(it->block, pageable, 64, stream));
    GO(loch_fill_on(it->mapped, 128, "y", 1, stream));
    for (size_t i = 0; i < 8; i++) { /* many cells, several readers */
        GO(sim_writes(stream, (char *)it->block + i * 512, 100));
        GO(sim_reads(it->streams[1 + i % 3], (char *)it->mapped + i * 100, 200));
    }
    GO(sim_reads(stream, it->block, 4096));
    GO(loch_event_record(it->event, stream));
    GO(loch_stream_wait(it->streams[1], it->event));
    GO(loch_stream_wait(loch_stream_get_default(it->peer), it->event));
    GO(loch_stream_require_thread_default(it->device, &of_thread));
    GO(loch_copy_on(it->pinned, it->block, 64, stream));
    GO(loch_sim_capture_begin(it->streams[2]));
    GO(sim_writes(it->streams[2], it->block, 10));
    GO(loch_event_record(it->event, it->streams[2]));
    GO(loch_stream_wait(it->streams[3], it->event));
    GO(sim_writes(it->streams[3], (char *)it->block + 10, 10));
    GO(loch_event_record(it->event, it->streams[3]));
    GO(loch_stream_wait(it->streams[2], it->event));
    GO(loch_sim_capture_end(it->streams[2], &it->graph));
    GO(loch_sim_graph_launch(it->graph, stream));
    return loch_device_sync(it->device);
}

static void program_give_back(program *it)
{
    void *self;
    const loch_driver *driver = loch_device_get_driver(it->device, &self);
    if (it->ordered) CHECK_OK(driver->ordered_free(self, it->ordered, 4096, loch_stream_get_native(it->streams[0])));
    loch_sim_graph_destroy(it->graph);
    if (it->mapped) CHECK_OK(loch_virtual_unmap(it->mapped));
    if (it->aliased) CHECK_OK(loch_virtual_unmap(it->aliased));
    loch_handle_destroy(it->handle);
    loch_handle_destroy(it->imported);
    CHECK_OK(loch_virtual_unreserve(it->addresses));
    CHECK_OK(loch_raw_free(it->block));
    CHECK_OK(loch_raw_free(it->pinned));
    CHECK_OK(loch_raw_free(it->managed));
    loch_event_destroy(it->event);
    for (size_t i = 0; i < 12; i++)
        loch_stream_close(it->streams[i]);
    if (it->fd >= 0) close(it->fd);
    loch_device_release(it->device);
    loch_device_release(it->peer);
}

static void run_faulted(test_round *round, const void *user)
{
    (void)user;
    program it = {.fd = -1};
    test_round_begin(round, NULL);
    loch_status status = program_take(&it);
    if (status == LOCH_OK) status = program_work(&it);
    if (status != LOCH_OK) CHECK_STATUS(loch_error_get()->status, status);
    const uint64_t used = test_heap_count();
    program_give_back(&it);
    if (round->mode != TEST_FAILING_FOREVER) assert_int_equal(test_heap_count(), used); /* giving back needs none */
    test_round_end(round);
    round->is_felt = status != LOCH_OK;
    if (status != LOCH_OK) assert_int_equal(status, LOCH_E_HOST_MEMORY);
    assert_int_equal(test_heap_live(), 0);
}

static void a_program_gives_everything_back_at_every_failing_host_allocation(void **state)
{
    (void)state;
    CHECK_OK(test_heap_install());
    assert_true(test_rounds_run(&test_host_faults, "two devices", run_faulted, NULL).felt > 100);
    CHECK_OK(loch_host_set_allocator(NULL));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        SIM_TEST(a_call_that_is_named_fails_once),
        SIM_TEST(a_fault_for_good_lasts_until_it_is_cleared),
        SIM_TEST(a_fault_without_a_name_counts_all_calls),
        SIM_TEST(access_fails_inside_map),
        SIM_TEST(a_lost_device_gives_everything_back),
        SIM_TEST(a_queued_function_cannot_wait_for_itself),
        SIM_TEST(a_program_gives_everything_back_at_every_failing_host_allocation),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

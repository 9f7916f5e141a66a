/* SPDX-License-Identifier: MIT */
/* Parts of the CUDA back end that few programs reach, over the driver for tests: peers, the caller's memory and
 * contexts, kernels that fail, forks, and rules that the double has to keep so that these tests mean something. */
#include "device/cuda/cuda.h"
#include "open_control.h"
#include <loch/kernel_set.h>
#include <sys/wait.h>
#include <unistd.h>

#define GRANULE (2 * TEST_MIB)

static loch_device *device, *other;
static const loch_driver *driver;
static void *self;

static int open_both(void **state)
{
    if (control_open(state)) return 1;
    loch_kernel_set_destroy(NULL); /* so that the kernels are linked with this program */
    if (loch_device_open("cuda:0", &device) != LOCH_OK || loch_device_open("cuda:1", &other) != LOCH_OK) return 1;
    driver = loch_device_get_driver(device, &self);
    return 0;
}

static int close_both(void **state)
{
    (void)state;
    test_end_defaults();
    loch_device_release(device);
    loch_device_release(other);
    control_expect_empty("at the end");
    return 0;
}

static void fail_once(const char *call, unsigned code)
{
    const fake_cuda_fault fault = {.call = call, .code = code};
    control.set_fault(&fault);
}

/* --- peers --- */

static void peers_are_enabled_or_refused(void **state)
{
    (void)state;
    void *peer;
    loch_device_get_driver(other, &peer);
    assert_int_equal(control.set("peers=off"), 0);
    CHECK_FAILS(loch_device_enable_peer(device, other), UNSUPPORTED);
    assert_non_null(strstr(loch_error_get()->sentence, "topo"));
    assert_int_equal(control.set("peers=on"), 0);
    fail_once("cuDeviceCanAccessPeer", 999);
    CHECK_FAILS(driver->peer_enable(self, peer), DRIVER);
    fail_once("cuCtxEnablePeerAccess", 711); /* too many */
    CHECK_FAILS(driver->peer_enable(self, peer), UNSUPPORTED);
    control.set_fault(NULL);
    CHECK_OK(loch_device_enable_peer(device, other));
    CHECK_OK(driver->peer_enable(self, peer)); /* it is already */
    CHECK_OK(driver->peer_enable(self, self));
}

/* A mapping that more devices use than the usual machine has. */
static void a_mapping_for_many_peers_is_opened(void **state)
{
    (void)state;
    void *peers[12], *addresses;
    loch_driver_handle handle;
    const loch_handle_options options = {.size = sizeof options};
    loch_device_get_driver(other, &peers[0]);
    for (size_t i = 1; i < 12; i++)
        peers[i] = peers[0];
    CHECK_OK(driver->reserve(self, GRANULE, 0, &addresses));
    CHECK_OK(driver->handle_create(self, GRANULE, &options, &handle));
    CHECK_OK(driver->map(self, addresses, GRANULE, handle, peers, 12));
    CHECK_OK(driver->unmap(self, addresses, GRANULE, handle));
    CHECK_OK(driver->handle_release(self, handle, GRANULE));
    CHECK_OK(driver->unreserve(self, addresses, GRANULE));
}

/* --- what the front refuses before --- */

static void the_driver_refuses_by_itself(void **state)
{
    (void)state;
    static const loch_handle_options wishes[] = {{.size = sizeof *wishes, .share = LOCH_SHARE_FABRIC},
                                                 {.size = sizeof *wishes, .share = LOCH_SHARE_FD},
                                                 {.size = sizeof *wishes, .rdma = LOCH_RDMA_ON}};
    char host[16] = "";
    void *block;
    loch_driver_handle handle;
    loch_device *poor;
    CHECK_FAILS(driver->handle_create(self, GRANULE, &wishes[0], &handle), UNSUPPORTED);
    CHECK_FAILS(driver->copy(self, (loch_direction)99, host, host, 1, NULL, NULL), INVALID);
    CHECK_FAILS(driver->fill(self, host, 6, 0, 3, NULL), INVALID);
    CHECK_FAILS(driver->handle_export(self, 0, (loch_share)99, host), UNSUPPORTED);
    loch_device_release(other);
    assert_int_equal(control.set("descriptors=off,rdma=off"), 0);
    CHECK_OK(loch_device_open("cuda:1", &poor));
    void *poor_self;
    loch_device_get_driver(poor, &poor_self);
    for (size_t i = 0; i < 3; i++)
        CHECK_FAILS(driver->handle_create(poor_self, GRANULE, &wishes[i], &handle), UNSUPPORTED);
    loch_device_release(poor);
    assert_int_equal(control.set("descriptors=on,rdma=0"), 0);
    CHECK_OK(loch_device_open("cuda:1", &other));
    /* Alignments that a driver gives by chance are given back when it does not. */
    CHECK_FAILS(loch_raw_alloc(device, LOCH_MEMORY_DEVICE, GRANULE, TEST_GIB << 8, &block), UNSUPPORTED);
    CHECK_FAILS(loch_raw_alloc(device, LOCH_MEMORY_MANAGED, GRANULE, TEST_GIB << 8, &block), UNSUPPORTED);
    CHECK_FAILS(loch_raw_alloc(device, LOCH_MEMORY_MANAGED, 100, 4096, &block), UNSUPPORTED);
}

/* --- the caller's own --- */

/* Memory that the caller has from the driver is known by its kind. */
static void memory_of_the_caller_is_known(void **state)
{
    (void)state;
    void *before, *pinned;
    cu_address managed, block;
    loch_address_info info = {.size = sizeof info};
    CHECK_OK(driver->enter(self, &before));
    assert_int_equal(lochi_cuda.cuMemAllocManaged(&managed, 5000, 1), 0);
    assert_int_equal(lochi_cuda.cuMemHostAlloc(&pinned, 5000, 1), 0);
    assert_int_equal(lochi_cuda.cuMemAlloc_v2(&block, 5000), 0);
    CHECK_OK(loch_address_query((char *)(uintptr_t)managed + 7, &info));
    assert_true(info.kind == LOCH_MEMORY_MANAGED && info.device == device && info.bytes == 5000);
    CHECK_OK(loch_address_query((char *)pinned + 7, &info));
    assert_true(info.kind == LOCH_MEMORY_PINNED && info.base == pinned);
    CHECK_OK(loch_address_query((char *)(uintptr_t)block + 7, &info));
    assert_int_equal(info.kind, LOCH_MEMORY_DEVICE);
    assert_int_equal(lochi_cuda.cuMemFree_v2(managed), 0);
    assert_int_equal(lochi_cuda.cuMemFree_v2(block), 0);
    assert_int_equal(lochi_cuda.cuMemFreeHost(pinned), 0);
    CHECK_OK(driver->leave(self, before));
}

/* A context that the caller destroys meanwhile is not put back: none is current then. */
static void a_context_that_is_destroyed_meanwhile_is_not_put_back(void **state)
{
    (void)state;
    cu_result (*create)(cu_context **, unsigned, int) = NULL;
    cu_result (*destroy)(cu_context *) = NULL;
    void *address = dlsym(lochi_cuda_library, "cuCtxCreate_v2");
    memcpy(&create, &address, sizeof address);
    address = dlsym(lochi_cuda_library, "cuCtxDestroy_v2");
    memcpy(&destroy, &address, sizeof address);
    cu_context *own, *current = TEST_UNTOUCHED;
    void *before;
    assert_int_equal(create(&own, 0, 0), 0);
    CHECK_OK(driver->enter(self, &before));
    assert_ptr_equal(before, own);
    assert_int_equal(destroy(own), 0);
    CHECK_FAILS(driver->leave(self, before), DRIVER);
    assert_int_equal(lochi_cuda.cuCtxGetCurrent(&current), 0);
    assert_null(current);
    CHECK_OK(lochi_cuda_make_current(lochi_cuda_of(device)));
    assert_int_equal(lochi_cuda.cuCtxGetCurrent(&current), 0);
    assert_ptr_equal(current, lochi_cuda_of(device)->context);
    CHECK_OK(driver->leave(self, NULL));
}

/* --- kernels --- */

static loch_status copy_turned(void)
{
    const loch_tensor_options options = {.size = sizeof options, .device = device};
    loch_tensor *from, *turned, *to;
    CHECK_OK(loch_tensor_create(LOCH_F32, LOCH_SHAPE(40, 30), &options, &from));
    CHECK_OK(loch_tensor_create(LOCH_F32, LOCH_SHAPE(30, 40), &options, &to));
    CHECK_OK(loch_tensor_transpose(from, 0, 1, &turned));
    const loch_status status = loch_tensor_copy(to, turned, NULL);
    loch_tensor_release(turned);
    loch_tensor_release(to);
    loch_tensor_release(from);
    return status;
}

/* A kernel that cannot be loaded or launched is told, or the host does its work. The next one runs. */
static void kernels_that_fail_are_told(void **state)
{
    (void)state;
    fail_once("cuModuleLoadData", 2);
    CHECK_FAILS(copy_turned(), DEVICE_MEMORY);
    control.set_fault(NULL);
    CHECK_OK(copy_turned());
    const uint64_t launches = control.count("cuLaunchKernel");
    assert_true(launches > 0);
    fail_once("cuLaunchKernel", 701);
    CHECK_FAILS(copy_turned(), DRIVER);
    assert_non_null(strstr(loch_error_get()->sentence, "kernel"));
    control.set_fault(NULL);
    CHECK_OK(copy_turned());
}

/* --- forks --- */

/* The child has no device: everything says so, and what is given back there is the parent's. */
static int check_child(void *block, void *pinned, loch_stream *stream)
{
    void *none;
    loch_device *again;
    loch_memory_info info = {.size = sizeof info};
    void *peer;
    loch_device_get_driver(other, &peer);
    if (loch_raw_alloc(device, LOCH_MEMORY_DEVICE, 100, 0, &none) != LOCH_E_FORKED) return 1;
    if (loch_device_calculate_memory(device, &info) != LOCH_E_FORKED) return 2;
    if (loch_device_open("cuda:0", &again) != LOCH_E_FORKED) return 3;
    if (loch_stream_sync(stream) != LOCH_E_FORKED) return 4;
    if (driver->peer_enable(self, peer) != LOCH_E_FORKED) return 5;
    if (driver->enter(self, &none) != LOCH_E_FORKED || driver->leave(self, NULL) != LOCH_OK) return 6;
    if (driver->forked(self) != LOCH_E_FORKED) return 7;
    if (lochi_cuda_make_current(lochi_cuda_of(device)) != LOCH_E_FORKED) return 8;
    if (driver->raw_free(self, block, 100) != LOCH_OK) return 9;
    if (driver->pinned_free(self, pinned, GRANULE) != LOCH_OK) return 10;
    int version = 0;
    if (lochi_cuda.cuDeviceGetCount(&version) != 3) return 11; /* the double says so, too */
    return 0;
}

static void a_child_of_a_fork_has_no_device(void **state)
{
    (void)state;
    void *block, *pinned;
    loch_stream *stream;
    CHECK_OK(loch_raw_alloc(device, LOCH_MEMORY_DEVICE, 100, 0, &block));
    CHECK_OK(loch_raw_alloc(device, LOCH_MEMORY_PINNED, GRANULE, 0, &pinned));
    CHECK_OK(loch_stream_create(device, NULL, &stream));
    fflush(NULL);
    const pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) exit(check_child(block, pinned, stream));
    int status = 0;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFEXITED(status));
    assert_int_equal(WEXITSTATUS(status), 0);
    loch_stream_close(stream);
    CHECK_OK(loch_raw_free(pinned));
    CHECK_OK(loch_raw_free(block));
}

/* --- rules of the double --- */

/* What CUDA refuses, the double refuses: without that, tests on it would show nothing. */
static void the_double_refuses_what_cuda_refuses(void **state)
{
    (void)state;
    void *before;
    cu_address at, there;
    cu_memory memory;
    cu_stream *stream;
    cu_event *event;
    char host[64];
    const cu_allocation allocation = {.type = 1, .location = {1, 0}};
    const cu_access access = {.location = {1, 0}, .flags = 3};
    const cu_result invalid = LOCHI_CUDA_ERROR_INVALID_VALUE;
    CHECK_OK(driver->enter(self, &before));
    assert_int_equal(lochi_cuda.cuMemAddressReserve(&at, GRANULE + 1, 0, 0, 0), invalid);
    assert_int_equal(lochi_cuda.cuMemAddressReserve(&at, 4 * GRANULE, 0, 0, 0), 0);
    assert_int_equal(lochi_cuda.cuMemCreate(&memory, GRANULE / 2, &allocation, 0), invalid);
    assert_int_equal(lochi_cuda.cuMemCreate(&memory, 2 * GRANULE, &allocation, 0), 0);
    assert_int_equal(lochi_cuda.cuMemMap(at, GRANULE, 0, memory, 0), invalid);       /* a part */
    assert_int_equal(lochi_cuda.cuMemMap(at, GRANULE, GRANULE, memory, 0), invalid); /* an offset */
    assert_int_equal(lochi_cuda.cuMemMap(at + 3 * GRANULE, 2 * GRANULE, 0, memory, 0), invalid);
    assert_int_equal(lochi_cuda.cuMemMap(at, 2 * GRANULE, 0, memory, 0), 0);
    assert_int_equal(lochi_cuda.cuMemMap(at + GRANULE, 2 * GRANULE, 0, memory, 0), invalid); /* on another */
    assert_int_equal(lochi_cuda.cuMemcpyDtoHAsync_v2(host, at, 64, NULL), invalid);          /* no access */
    assert_int_equal(lochi_cuda.cuMemSetAccess(at, GRANULE, &access, 1), invalid);           /* a part */
    assert_int_equal(lochi_cuda.cuMemSetAccess(at, 2 * GRANULE, &access, 1), 0);
    assert_int_equal(lochi_cuda.cuMemcpyDtoHAsync_v2(host, at, 64, NULL), 0);
    assert_int_equal(lochi_cuda.cuMemcpyDtoHAsync_v2(host, at + 2 * GRANULE - 32, 64, NULL), invalid);
    assert_int_equal(lochi_cuda.cuMemUnmap(at, GRANULE), invalid);           /* a part */
    assert_int_equal(lochi_cuda.cuMemAddressFree(at, 4 * GRANULE), invalid); /* with a mapping in it */
    assert_int_equal(lochi_cuda.cuMemUnmap(at, 2 * GRANULE), 0);
    assert_int_equal(lochi_cuda.cuMemAddressFree(at, GRANULE), invalid);
    assert_int_equal(lochi_cuda.cuMemAddressFree(at, 4 * GRANULE), 0);
    assert_int_equal(lochi_cuda.cuMemRelease(memory), 0);
    assert_int_equal(lochi_cuda.cuMemRelease(memory), invalid);
    assert_int_equal(lochi_cuda.cuMemAlloc_v2(&there, 100), 0);
    assert_int_equal(lochi_cuda.cuMemFree_v2(there + 4), invalid);
    assert_int_equal(lochi_cuda.cuMemFree_v2(there), 0);
    assert_int_equal(lochi_cuda.cuMemFree_v2(there), invalid);
    assert_int_equal(lochi_cuda.cuMemHostUnregister(host), LOCHI_CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED);
    assert_int_equal(lochi_cuda.cuStreamCreateWithPriority(&stream, 1, 0), 0);
    assert_int_equal(lochi_cuda.cuEventCreate(&event, 2), 0);
    assert_int_equal(lochi_cuda.cuStreamDestroy_v2(stream), 0);
    assert_int_equal(lochi_cuda.cuEventRecord(event, stream), LOCHI_CUDA_ERROR_INVALID_HANDLE);
    assert_int_equal(lochi_cuda.cuEventDestroy_v2(event), 0);
    assert_int_equal(lochi_cuda.cuEventQuery(event), LOCHI_CUDA_ERROR_INVALID_HANDLE);
    CHECK_OK(driver->leave(self, before));
    assert_int_equal(lochi_cuda.cuMemAlloc_v2(&there, 100), 201); /* no context */
}

/* The host cannot touch memory of the device. */
static void the_host_cannot_touch_device_memory(void **state)
{
    (void)state;
    void *block;
    CHECK_OK(loch_raw_alloc(device, LOCH_MEMORY_DEVICE, 100, 0, &block));
    int ends[2];
    assert_int_equal(pipe(ends), 0);
    assert_int_equal(write(ends[1], block, 1), -1); /* EFAULT: the system asks without a signal */
    close(ends[0]);
    close(ends[1]);
    CHECK_OK(loch_raw_free(block));
}

/* A capture in global mode ends by calls that it forbids, and not by those that are relaxed. */
static void a_capture_is_broken_by_what_breaks_it(void **state)
{
    (void)state;
    cu_result (*begin)(cu_stream *, unsigned) = NULL, (*end)(cu_stream *, cu_graph **) = NULL;
    cu_result (*destroy)(cu_graph *) = NULL;
    void *address = dlsym(lochi_cuda_library, "cuStreamBeginCapture_v2"), *before;
    memcpy(&begin, &address, sizeof address);
    address = dlsym(lochi_cuda_library, "cuStreamEndCapture");
    memcpy(&end, &address, sizeof address);
    address = dlsym(lochi_cuda_library, "cuGraphDestroy");
    memcpy(&destroy, &address, sizeof address);
    cu_stream *stream;
    cu_graph *graph;
    cu_event *event;
    cu_address block;
    CHECK_OK(driver->enter(self, &before));
    assert_int_equal(lochi_cuda.cuStreamCreateWithPriority(&stream, 1, 0), 0);
    assert_int_equal(lochi_cuda.cuEventCreate(&event, 2), 0);
    for (unsigned mode = 0; mode < 3; mode++) { /* global, of the thread, relaxed */
        assert_int_equal(begin(stream, mode), 0);
        assert_int_equal(lochi_cuda.cuMemAlloc_v2(&block, 100), mode < 2 ? 900 : 0);
        assert_int_equal(end(stream, &graph), mode < 2 ? 901 : 0);
        if (mode == 2) assert_int_equal(lochi_cuda.cuMemFree_v2(block) + destroy(graph), 0);
        assert_int_equal(begin(stream, mode), 0);
        assert_int_equal(lochi_cuda.cuEventRecord(event, stream), 0);
        assert_int_equal(lochi_cuda.cuEventQuery(event), mode < 2 ? 900 : 907);
        assert_int_equal(end(stream, &graph), 901);
        assert_int_equal(begin(stream, mode), 0);
        assert_int_equal(lochi_cuda.cuStreamSynchronize(stream), 900);
        assert_int_equal(end(stream, &graph), 901);
    }
    assert_int_equal(begin(NULL, 0), 900);
    assert_int_equal(lochi_cuda.cuEventDestroy_v2(event), 0);
    assert_int_equal(lochi_cuda.cuStreamDestroy_v2(stream), 0);
    CHECK_OK(driver->leave(self, before));
}

/* Memory that goes under work loses the context, and Loch says so. */
static void memory_that_goes_under_work_loses_the_context(void **state)
{
    (void)state;
    void *before;
    cu_address at;
    cu_memory memory;
    const cu_allocation allocation = {.type = 1, .location = {1, 0}};
    const cu_access access = {.location = {1, 0}, .flags = 3};
    assert_int_equal(control.set("late=20000"), 0);
    CHECK_OK(driver->enter(self, &before));
    assert_int_equal(lochi_cuda.cuMemAddressReserve(&at, GRANULE, 0, 0, 0), 0);
    assert_int_equal(lochi_cuda.cuMemCreate(&memory, GRANULE, &allocation, 0), 0);
    assert_int_equal(lochi_cuda.cuMemMap(at, GRANULE, 0, memory, 0), 0);
    assert_int_equal(lochi_cuda.cuMemSetAccess(at, GRANULE, &access, 1), 0);
    assert_int_equal(lochi_cuda.cuMemsetD8Async(at, 1, GRANULE, NULL), 0);
    assert_int_equal(lochi_cuda.cuStreamQuery(NULL), LOCHI_CUDA_ERROR_NOT_READY); /* it is late */
    assert_int_equal(lochi_cuda.cuMemUnmap(at, GRANULE), 0);
    CHECK_FAILS(loch_device_sync(device), DEVICE_LOST);
    assert_int_equal(loch_error_get()->driver_code, LOCHI_CUDA_ERROR_ILLEGAL_ADDRESS);
    control.lose(0);
    assert_int_equal(control.set("late=0"), 0);
    assert_int_equal(lochi_cuda.cuMemRelease(memory), 0);
    assert_int_equal(lochi_cuda.cuMemAddressFree(at, GRANULE), 0);
    CHECK_OK(driver->leave(self, before));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(peers_are_enabled_or_refused),
        cmocka_unit_test(a_mapping_for_many_peers_is_opened),
        cmocka_unit_test(the_driver_refuses_by_itself),
        cmocka_unit_test(memory_of_the_caller_is_known),
        cmocka_unit_test(a_context_that_is_destroyed_meanwhile_is_not_put_back),
        cmocka_unit_test(kernels_that_fail_are_told),
        cmocka_unit_test(a_child_of_a_fork_has_no_device),
        cmocka_unit_test(the_double_refuses_what_cuda_refuses),
        cmocka_unit_test(the_host_cannot_touch_device_memory),
        cmocka_unit_test(a_capture_is_broken_by_what_breaks_it),
        cmocka_unit_test(memory_that_goes_under_work_loses_the_context),
    };
    return cmocka_run_group_tests_name("edges of a driver", tests, open_both, close_both);
}

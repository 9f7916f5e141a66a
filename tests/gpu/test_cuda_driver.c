/* SPDX-License-Identifier: MIT */
/* The CUDA back end on a real GPU, beyond what every device has to do (tests/contract): the caller's context and
 * captures stay as they were, streams of the caller's are understood, memory aliases and is shared, codes are mapped.
 *
 * What the caller does on its own side of the driver is done here through a second loading of libcuda. Without a GPU
 * the program says why and is skipped; LOCH_REQUIRE_GPU=1 makes that a failure. */
#include "support/test.h"

#include <dlfcn.h>
#include <pthread.h>
#include <unistd.h>

#define CAPTURE_GLOBAL 0
#define NON_BLOCKING 1u
#define ERROR_OUT_OF_MEMORY 2

/* The caller's side; handles are void pointers, device addresses numbers. */
static struct {
    int (*cuInit)(unsigned flags);
    int (*cuCtxGetCurrent)(void **context);
    int (*cuCtxSetCurrent)(void *context);
    int (*cuCtxCreate_v2)(void **context, unsigned flags, int device);
    int (*cuCtxDestroy_v2)(void *context);
    int (*cuDevicePrimaryCtxRetain)(void **context, int device);
    int (*cuDevicePrimaryCtxRelease_v2)(int device);
    int (*cuMemAlloc_v2)(unsigned long long *address, size_t bytes);
    int (*cuMemFree_v2)(unsigned long long address);
    int (*cuStreamCreate)(void **stream, unsigned flags);
    int (*cuStreamDestroy_v2)(void *stream);
    int (*cuStreamBeginCapture_v2)(void *stream, int mode);
    int (*cuStreamEndCapture)(void *stream, void **graph);
    int (*cuGraphInstantiateWithFlags)(void **executable, void *graph, unsigned long long flags);
    int (*cuGraphLaunch)(void *executable, void *stream);
    int (*cuGraphExecDestroy)(void *executable);
    int (*cuGraphDestroy)(void *graph);
} caller;

static loch_device *device;
static loch_device_properties properties;
static test_random randomness;

static void *caller_symbol(void *library, const char *name)
{
    void *symbol = dlsym(library, name);
    if (!symbol) {
        fprintf(stderr, "libcuda has no %s\n", name);
        exit(1);
    }
    return symbol;
}

static void caller_load(void)
{
    char path[LOCH_OPTION_VALUE_MAX];
    void *library = loch_option_get("cuda_library", path) == LOCH_OK && *path ? dlopen(path, RTLD_NOW)
                                                                              : dlopen("libcuda.so.1", RTLD_NOW);
    if (!library) {
        fprintf(stderr, "%s\n", dlerror());
        exit(1);
    }
#define CALLER_LOAD(name) *(void **)(void *)&caller.name = caller_symbol(library, #name)
    CALLER_LOAD(cuInit);
    CALLER_LOAD(cuCtxGetCurrent);
    CALLER_LOAD(cuCtxSetCurrent);
    CALLER_LOAD(cuCtxCreate_v2);
    CALLER_LOAD(cuCtxDestroy_v2);
    CALLER_LOAD(cuDevicePrimaryCtxRetain);
    CALLER_LOAD(cuDevicePrimaryCtxRelease_v2);
    CALLER_LOAD(cuMemAlloc_v2);
    CALLER_LOAD(cuMemFree_v2);
    CALLER_LOAD(cuStreamCreate);
    CALLER_LOAD(cuStreamDestroy_v2);
    CALLER_LOAD(cuStreamBeginCapture_v2);
    CALLER_LOAD(cuStreamEndCapture);
    CALLER_LOAD(cuGraphInstantiateWithFlags);
    CALLER_LOAD(cuGraphLaunch);
    CALLER_LOAD(cuGraphExecDestroy);
    CALLER_LOAD(cuGraphDestroy);
#undef CALLER_LOAD
}

static void *caller_current(void)
{
    void *context = TEST_UNTOUCHED;
    assert_int_equal(caller.cuCtxGetCurrent(&context), 0);
    return context;
}

/* A stream of the caller's, in the primary context, which is not left current. */
static void *caller_stream_create(unsigned flags)
{
    void *before = caller_current(), *primary = NULL, *stream = NULL;
    assert_int_equal(caller.cuDevicePrimaryCtxRetain(&primary, 0), 0);
    assert_int_equal(caller.cuCtxSetCurrent(primary), 0);
    assert_int_equal(caller.cuStreamCreate(&stream, flags), 0);
    assert_int_equal(caller.cuCtxSetCurrent(before), 0);
    assert_int_equal(caller.cuDevicePrimaryCtxRelease_v2(0), 0);
    return stream;
}

/* --- a gate: work on a stream that waits for the test --- */

typedef struct gate {
    pthread_mutex_t mutex;
    pthread_cond_t opened;
    bool is_open;
} gate;

static void gate_wait(void *user)
{
    gate *g = user;
    pthread_mutex_lock(&g->mutex);
    while (!g->is_open)
        pthread_cond_wait(&g->opened, &g->mutex);
    pthread_mutex_unlock(&g->mutex);
}

static void gate_open(gate *g)
{
    pthread_mutex_lock(&g->mutex);
    g->is_open = true;
    pthread_cond_broadcast(&g->opened);
    pthread_mutex_unlock(&g->mutex);
}

#define GATE_INITIALIZER                                                                                               \
    {                                                                                                                  \
        PTHREAD_MUTEX_INITIALIZER, PTHREAD_COND_INITIALIZER, false                                                     \
    }

/* --- properties and names --- */

static void test_properties(void **state)
{
    (void)state;
    assert_string_equal(properties.driver, "cuda");
    assert_true(strlen(properties.model) > 0);
    assert_int_equal(properties.index, 0);
    assert_true(properties.numa_node >= -1);
    assert_true(properties.total_bytes >= TEST_GIB);
    assert_true(properties.compute_major >= 3);
    assert_true(properties.multiprocessors > 0);
    assert_true(properties.l2_bytes >= 256 * TEST_KIB && properties.l2_bytes <= TEST_GIB);
    assert_true(properties.shared_bytes >= 16 * TEST_KIB && properties.shared_bytes <= 16 * TEST_MIB);
    assert_true(properties.alignment_bytes >= 256);
    assert_int_equal(strlen(properties.bus_id), strlen("0000:1b:00.0"));
    for (const char *c = properties.bus_id; *c; c++)
        assert_non_null(strchr("0123456789abcdef:.", *c));
    int major = 0, minor = -1;
    assert_int_equal(sscanf(properties.driver_version, "%d.%d", &major, &minor), 2);
    assert_true(major >= 11 && minor >= 0 && minor <= 9);
    if (properties.capabilities & LOCH_CAN_VIRTUAL) {
        assert_true(properties.granule_bytes >= 64 * TEST_KIB);
        assert_int_equal(properties.granule_bytes & (properties.granule_bytes - 1), 0);
    }
    assert_true(loch_device_can(device, LOCH_CAN_PINNED | LOCH_CAN_ASYNC | LOCH_CAN_TIMING));
    assert_int_equal(properties.capabilities & (LOCH_CAN_HOST_ACCESS | LOCH_CAN_REMAP | LOCH_CAN_COMMIT), 0);
    loch_memory_info info = {.size = sizeof info};
    CHECK_OK(loch_device_calculate_memory(device, &info));
    assert_int_equal(info.total_bytes, properties.total_bytes);
    assert_true(info.free_bytes > 0 && info.free_bytes <= info.total_bytes);
}

static void test_names(void **state)
{
    (void)state;
    loch_device *other = NULL;
    CHECK_OK(loch_device_open("cuda", &other));
    assert_ptr_equal(other, device);
    loch_device_release(other);
    CHECK_FAILS(loch_device_open("cuda:x", &other), INVALID);
    CHECK_FAILS(loch_device_open("cuda:-1", &other), INVALID);
    CHECK_FAILS(loch_device_open("cuda:0,fast", &other), INVALID);
    CHECK_FAILS(loch_device_open("cuda:1000", &other), NOT_FOUND);
    CHECK_FAILS(loch_device_open("cuda:18446744073709551615", &other), NOT_FOUND);
    assert_null(other);
}

/* --- the caller's context --- */

static void *context_expected;

/* Does a call and looks whether the caller's context is still the same. */
#define KEEPS_OK(call)                                                                                                 \
    do {                                                                                                               \
        CHECK_OK(call);                                                                                                \
        assert_ptr_equal(caller_current(), context_expected);                                                          \
    } while (0)
#define KEEPS_FAILS(call, suffix)                                                                                      \
    do {                                                                                                               \
        CHECK_FAILS(call, suffix);                                                                                     \
        assert_ptr_equal(caller_current(), context_expected);                                                          \
    } while (0)
#define KEEPS(call)                                                                                                    \
    do {                                                                                                               \
        call;                                                                                                          \
        assert_ptr_equal(caller_current(), context_expected);                                                          \
    } while (0)

static void context_use_memory(void)
{
    static char host[64 * 1024];
    void *block = NULL, *pinned = NULL, *managed = NULL;
    loch_memory_info info = {.size = sizeof info};
    loch_address_info what = {.size = sizeof what};
    const unsigned char byte = 7;
    KEEPS_OK(loch_device_calculate_memory(device, &info));
    KEEPS_OK(loch_raw_alloc(device, LOCH_MEMORY_DEVICE, sizeof host, 0, &block));
    KEEPS_OK(loch_raw_alloc(device, LOCH_MEMORY_PINNED, sizeof host, 0, &pinned));
    KEEPS_FAILS(loch_raw_alloc(device, LOCH_MEMORY_DEVICE, properties.total_bytes * 2, 0, &managed), DEVICE_MEMORY);
    if (loch_device_can(device, LOCH_CAN_MANAGED)) {
        KEEPS_OK(loch_raw_alloc(device, LOCH_MEMORY_MANAGED, sizeof host, 0, &managed));
        KEEPS_OK(loch_raw_free(managed));
    }
    if (loch_device_can(device, LOCH_CAN_REGISTER)) {
        KEEPS_OK(loch_raw_register(device, host, sizeof host));
        KEEPS_OK(loch_raw_unregister(host));
    }
    KEEPS_OK(loch_fill(block, sizeof host, &byte, 1));
    KEEPS_OK(loch_copy(pinned, block, sizeof host));
    KEEPS_OK(loch_copy(block, host, sizeof host));
    KEEPS_OK(loch_address_query(host, &what));
    KEEPS_OK(loch_address_query(block, &what));
    KEEPS_OK(loch_raw_free(block));
    KEEPS_OK(loch_raw_free(pinned));
}

static void context_use_streams(void)
{
    loch_stream *stream = NULL, *mine = NULL;
    loch_event *plain = NULL, *timed = NULL;
    loch_capture_info capture = {.size = sizeof capture};
    uint64_t ns;
    KEEPS_OK(loch_stream_create(device, NULL, &stream));
    KEEPS_OK(loch_stream_require_thread_default(device, &mine));
    KEEPS_OK(loch_event_create(device, LOCH_EVENT_PLAIN, &plain));
    KEEPS_OK(loch_event_create(device, LOCH_EVENT_TIMED, &timed));
    KEEPS_OK(loch_event_record(plain, stream));
    KEEPS_OK(loch_event_record(timed, mine));
    KEEPS_OK(loch_stream_wait(mine, plain));
    KEEPS_OK(loch_event_sync(plain));
    KEEPS_OK(loch_event_query(plain));
    KEEPS_OK(loch_event_sync(timed));
    KEEPS_OK(loch_event_elapsed(timed, timed, &ns));
    KEEPS_OK(loch_stream_query_capture(stream, &capture));
    KEEPS_OK(loch_stream_sync(stream));
    KEEPS_OK(loch_stream_query(stream));
    KEEPS_OK(loch_stream_sync(mine));
    KEEPS_OK(loch_device_sync(device));
    KEEPS(loch_event_destroy(plain));
    KEEPS(loch_event_destroy(timed));
    KEEPS(loch_stream_close(stream));
}

static void context_use_virtual(void)
{
    if (!loch_device_can(device, LOCH_CAN_VIRTUAL)) return;
    const size_t granule = properties.granule_bytes;
    void *addresses = NULL;
    loch_handle *handle = NULL;
    KEEPS_OK(loch_virtual_reserve(device, 4 * granule, 0, &addresses));
    KEEPS_OK(loch_handle_create(device, granule, NULL, &handle));
    KEEPS_OK(loch_virtual_map(addresses, handle, NULL, 0));
    KEEPS_OK(loch_virtual_unmap(addresses));
    KEEPS(loch_handle_destroy(handle));
    KEEPS_OK(loch_virtual_unreserve(addresses));
    KEEPS_FAILS(loch_handle_create(device, properties.total_bytes / granule * granule * 2, NULL, &handle),
                DEVICE_MEMORY);
}

static void context_use_all(void *expected)
{
    context_expected = expected;
    assert_ptr_equal(caller_current(), expected);
    loch_device *again = NULL;
    KEEPS_OK(loch_device_open("cuda:0", &again));
    KEEPS(loch_device_release(again));
    context_use_memory();
    context_use_streams();
    context_use_virtual();
}

static void test_context_none(void **state)
{
    (void)state;
    assert_int_equal(caller.cuCtxSetCurrent(NULL), 0);
    context_use_all(NULL);
}

static void test_context_foreign(void **state)
{
    (void)state;
    void *context = NULL;
    assert_int_equal(caller.cuCtxCreate_v2(&context, 0, 0), 0);
    context_use_all(context);
    /* What Loch makes meanwhile is the primary context's, not the caller's: only then can it be wrapped. */
    loch_stream *stream = NULL, *wrapped = NULL;
    CHECK_OK(loch_stream_create(device, NULL, &stream));
    CHECK_OK(loch_stream_wrap(device, loch_stream_get_native(stream), &wrapped));
    loch_stream_close(wrapped);
    loch_stream_close(stream);
    assert_int_equal(caller.cuCtxDestroy_v2(context), 0);
}

static void test_context_primary(void **state)
{
    (void)state;
    void *context = NULL;
    assert_int_equal(caller.cuDevicePrimaryCtxRetain(&context, 0), 0);
    assert_int_equal(caller.cuCtxSetCurrent(context), 0);
    context_use_all(context);
    assert_int_equal(caller.cuCtxSetCurrent(NULL), 0);
    assert_int_equal(caller.cuDevicePrimaryCtxRelease_v2(0), 0);
}

/* --- virtual memory --- */

static void need_virtual(void)
{
    if (loch_device_can(device, LOCH_CAN_VIRTUAL | LOCH_CAN_ALIAS)) return;
    print_message("skipped: this GPU has no virtual memory\n");
    skip();
}

static void expect_contents(const void *from, size_t bytes, uint64_t seed)
{
    char *host = malloc(bytes);
    assert_non_null(host);
    CHECK_OK(loch_copy(host, from, bytes));
    const size_t at = test_pattern_differs(host, bytes, seed);
    free(host);
    assert_int_equal(at, bytes);
}

static void put_contents(void *to, size_t bytes, uint64_t seed)
{
    char *host = malloc(bytes);
    assert_non_null(host);
    test_pattern_write(host, bytes, seed);
    CHECK_OK(loch_copy(to, host, bytes));
    free(host);
}

static void test_alias(void **state)
{
    (void)state;
    need_virtual();
    const size_t granule = properties.granule_bytes;
    const uint64_t first = test_random_next(&randomness), second = test_random_next(&randomness);
    char *addresses = NULL;
    loch_handle *handle = NULL;
    CHECK_OK(loch_virtual_reserve(device, 8 * granule, 0, (void **)&addresses));
    CHECK_OK(loch_handle_create(device, 2 * granule, NULL, &handle));
    CHECK_OK(loch_virtual_map(addresses, handle, NULL, 0));
    CHECK_OK(loch_virtual_map(addresses + 4 * granule, handle, NULL, 0));
    put_contents(addresses, 2 * granule, first);
    expect_contents(addresses + 4 * granule, 2 * granule, first);
    put_contents(addresses + 4 * granule, 2 * granule, second);
    expect_contents(addresses, 2 * granule, second);
    CHECK_OK(loch_virtual_unmap(addresses));
    loch_handle_destroy(handle); /* the other mapping keeps the memory */
    expect_contents(addresses + 4 * granule, 2 * granule, second);
    CHECK_OK(loch_virtual_unmap(addresses + 4 * granule));
    CHECK_OK(loch_virtual_unreserve(addresses));
}

static void test_share_descriptor(void **state)
{
    (void)state;
    need_virtual();
    if (!loch_device_can(device, LOCH_CAN_SHARE_FD)) skip();
    const size_t bytes = 2 * properties.granule_bytes;
    const uint64_t seed = test_random_next(&randomness);
    const loch_handle_options options = {.size = sizeof options, .share = LOCH_SHARE_FD};
    char *addresses = NULL;
    loch_handle *handle = NULL, *twin = NULL;
    int descriptor = -1;
    CHECK_OK(loch_virtual_reserve(device, 2 * bytes, 0, (void **)&addresses));
    CHECK_OK(loch_handle_create(device, bytes, &options, &handle));
    CHECK_OK(loch_virtual_map(addresses, handle, NULL, 0));
    put_contents(addresses, bytes, seed);
    CHECK_OK(loch_handle_export(handle, LOCH_SHARE_FD, sizeof descriptor, &descriptor));
    assert_true(descriptor >= 0);
    CHECK_OK(loch_handle_import(device, LOCH_SHARE_FD, &descriptor, bytes, &twin));
    assert_int_equal(close(descriptor), 0); /* it stayed ours */
    CHECK_OK(loch_virtual_map(addresses + bytes, twin, NULL, 0));
    expect_contents(addresses + bytes, bytes, seed);
    CHECK_OK(loch_virtual_unmap(addresses));
    loch_handle_destroy(handle);
    expect_contents(addresses + bytes, bytes, seed);
    CHECK_OK(loch_virtual_unmap(addresses + bytes));
    loch_handle_destroy(twin);
    CHECK_OK(loch_virtual_unreserve(addresses));
}

static void test_handle_kinds(void **state)
{
    (void)state;
    need_virtual();
    const struct {
        uint32_t capability;
        loch_handle_options options;
    } kinds[] = {
        {LOCH_CAN_SHARE_FABRIC, {.size = sizeof(loch_handle_options), .share = LOCH_SHARE_FABRIC}},
        {LOCH_CAN_RDMA, {.size = sizeof(loch_handle_options), .rdma = LOCH_RDMA_ON}},
    };
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++) {
        loch_handle *handle = NULL;
        const loch_status status = loch_handle_create(device, properties.granule_bytes, &kinds[i].options, &handle);
        /* A device that could may still lack the rest of the system: the fabric's service, say. */
        if (status != LOCH_E_UNSUPPORTED) CHECK_OK(status);
        if (!(properties.capabilities & kinds[i].capability)) assert_int_equal(status, LOCH_E_UNSUPPORTED);
        loch_handle_destroy(handle);
    }
}

/* --- captures --- */

/* Everything that Loch does on its own account while somebody captures. */
static void capture_disturb(loch_event *event, loch_stream *stream)
{
    void *block = NULL, *pinned = NULL;
    loch_memory_info info = {.size = sizeof info};
    loch_stream *fresh = NULL;
    loch_event *mark = NULL;
    CHECK_OK(loch_event_query(event));
    CHECK_OK(loch_event_sync(event));
    CHECK_OK(loch_stream_query(stream));
    CHECK_OK(loch_stream_sync(stream));
    CHECK_OK(loch_device_calculate_memory(device, &info));
    CHECK_OK(loch_raw_alloc(device, LOCH_MEMORY_DEVICE, TEST_MIB, 0, &block));
    CHECK_OK(loch_raw_alloc(device, LOCH_MEMORY_PINNED, TEST_MIB, 0, &pinned));
    CHECK_OK(loch_raw_free(block));
    CHECK_OK(loch_raw_free(pinned));
    CHECK_OK(loch_stream_create(device, NULL, &fresh));
    loch_stream_close(fresh);
    CHECK_OK(loch_event_create(device, LOCH_EVENT_PLAIN, &mark));
    loch_event_destroy(mark);
    if (!loch_device_can(device, LOCH_CAN_VIRTUAL)) return;
    const size_t granule = properties.granule_bytes;
    void *addresses = NULL;
    loch_handle *handle = NULL;
    CHECK_OK(loch_virtual_reserve(device, granule, 0, &addresses));
    CHECK_OK(loch_handle_create(device, granule, NULL, &handle));
    CHECK_OK(loch_virtual_map(addresses, handle, NULL, 0));
    CHECK_OK(loch_virtual_unmap(addresses));
    loch_handle_destroy(handle);
    CHECK_OK(loch_virtual_unreserve(addresses));
}

typedef struct capture_other {
    loch_event *event;
    loch_stream *stream;
    bool is_done;
} capture_other;

/* cmocka's checks leave by longjmp, which must not cross threads; so this thread checks by hand. */
static void *capture_in_other_thread(void *user)
{
    capture_other *other = user;
    void *block = NULL;
    other->is_done = loch_event_query(other->event) == LOCH_OK && loch_stream_query(other->stream) == LOCH_OK &&
                     loch_raw_alloc(device, LOCH_MEMORY_DEVICE, TEST_MIB, 0, &block) == LOCH_OK &&
                     loch_raw_free(block) == LOCH_OK;
    if (!other->is_done) fprintf(stderr, "in another thread: %s\n", loch_error_get()->sentence);
    return NULL;
}

static void capture_with(unsigned stream_flags)
{
    void *native = caller_stream_create(stream_flags), *graph = NULL, *target = NULL;
    loch_stream *captured = NULL, *stream = NULL;
    loch_event *before = NULL, *inside = NULL;
    loch_capture_info info = {.size = sizeof info};
    CHECK_OK(loch_stream_wrap(device, native, &captured));
    CHECK_OK(loch_stream_create(device, NULL, &stream));
    CHECK_OK(loch_event_create(device, LOCH_EVENT_PLAIN, &before));
    CHECK_OK(loch_event_create(device, LOCH_EVENT_PLAIN, &inside));
    CHECK_OK(loch_event_record(before, stream));
    CHECK_OK(loch_stream_sync(stream));
    CHECK_OK(loch_raw_alloc(device, LOCH_MEMORY_DEVICE, TEST_MIB, 0, &target));
    CHECK_OK(loch_stream_query_capture(captured, &info));
    assert_int_equal(info.active, 0);

    assert_int_equal(caller.cuStreamBeginCapture_v2(native, CAPTURE_GLOBAL), 0);
    CHECK_OK(loch_stream_query_capture(captured, &info));
    assert_true(info.active && info.id != 0);
    const uint64_t id = info.id;
    CHECK_OK(loch_stream_query_capture(stream, &info));
    assert_int_equal(info.active, 0);
    CHECK_OK(loch_stream_query_capture(loch_stream_get_default(device), &info));
    assert_int_equal(info.active, 0);
    const uint32_t pattern = 0x01020304;
    CHECK_OK(loch_fill_on(target, TEST_MIB, &pattern, sizeof pattern, captured));
    CHECK_OK(loch_event_record(inside, captured));
    CHECK_STATUS(loch_event_query(inside), LOCH_E_BUSY);
    CHECK_FAILS(loch_event_sync(inside), BUSY);
    CHECK_STATUS(loch_stream_query(captured), LOCH_E_BUSY);
    CHECK_FAILS(loch_stream_sync(captured), BUSY);
    if (!(stream_flags & NON_BLOCKING)) CHECK_STATUS(loch_stream_query(loch_stream_get_default(device)), LOCH_E_BUSY);
    capture_disturb(before, stream);
    pthread_t thread;
    capture_other other = {.event = before, .stream = stream};
    assert_int_equal(pthread_create(&thread, NULL, capture_in_other_thread, &other), 0);
    assert_int_equal(pthread_join(thread, NULL), 0);
    CHECK_OK(loch_stream_query_capture(captured, &info));
    assert_true(info.active && info.id == id);
    assert_int_equal(caller.cuStreamEndCapture(native, &graph), 0);
    assert_non_null(graph);
    assert_true(other.is_done);

    CHECK_OK(loch_stream_query_capture(captured, &info));
    assert_int_equal(info.active, 0);
    CHECK_OK(loch_event_record(inside, captured));
    CHECK_OK(loch_event_sync(inside));
    CHECK_OK(loch_event_query(inside));
    assert_int_equal(caller.cuGraphDestroy(graph), 0);
    CHECK_OK(loch_raw_free(target));
    loch_event_destroy(before);
    loch_event_destroy(inside);
    loch_stream_close(stream);
    loch_stream_close(captured);
    assert_int_equal(caller.cuStreamDestroy_v2(native), 0);
}

static void test_capture(void **state)
{
    (void)state;
    assert_true(loch_device_can(device, LOCH_CAN_CAPTURE));
    capture_with(NON_BLOCKING);
}

static void test_capture_ordered_with_default(void **state)
{
    (void)state;
    capture_with(0);
}

/* A graph fills pinned memory at every launch. What the host would do once, and what is waited for, is refused, and is not in
 * the graph. */
static void test_capture_of_host_memory(void **state)
{
    (void)state;
    void *native = caller_stream_create(NON_BLOCKING), *graph = NULL, *executable = NULL, *context = NULL;
    unsigned char *pinned[3] = {NULL}, plain[64] = {0}, other[64] = {0};
    void *block = NULL;
    loch_stream *captured = NULL;
    const size_t bytes = TEST_MIB, widths[] = {1, 2, 4};
    const uint32_t pattern = 0x04030201;
    CHECK_OK(loch_stream_wrap(device, native, &captured));
    CHECK_OK(loch_raw_alloc(device, LOCH_MEMORY_DEVICE, bytes, 0, &block));
    for (int i = 0; i < 3; i++)
        CHECK_OK(loch_raw_alloc(device, LOCH_MEMORY_PINNED, bytes, 0, (void **)&pinned[i]));
    const loch_copy_options ended = {.size = sizeof ended, .stream = captured, .wait = LOCH_WAIT_END};
    assert_int_equal(caller.cuStreamBeginCapture_v2(native, CAPTURE_GLOBAL), 0);
    for (int i = 0; i < 3; i++)
        CHECK_OK(loch_fill_on(pinned[i], bytes, &pattern, widths[i], captured));
    CHECK_FAILS(loch_fill_on(plain, sizeof plain, "a", 1, captured), BUSY);
    CHECK_FAILS(loch_copy_on(plain, other, sizeof plain, captured), BUSY);
    CHECK_FAILS(loch_copy_on(pinned[0], pinned[1], bytes, captured), BUSY);
    CHECK_FAILS(loch_copy_with(plain, block, sizeof plain, &ended), BUSY);
    assert_int_equal(caller.cuStreamEndCapture(native, &graph), 0);
    assert_non_null(graph);
    assert_int_equal(caller.cuDevicePrimaryCtxRetain(&context, 0), 0);
    assert_int_equal(caller.cuCtxSetCurrent(context), 0);
    assert_int_equal(caller.cuGraphInstantiateWithFlags(&executable, graph, 0), 0);
    for (int launch = 0; launch < 3; launch++) {
        for (int i = 0; i < 3; i++)
            memset(pinned[i], 0xee, bytes);
        assert_int_equal(caller.cuGraphLaunch(executable, native), 0);
        CHECK_OK(loch_stream_sync(captured));
        for (int i = 0; i < 3; i++)
            for (size_t k = 0; k < bytes; k++)
                if (pinned[i][k] != k % widths[i] + 1) fail_msg("launch %d: byte %zu is %d", launch, k, pinned[i][k]);
    }
    assert_int_equal(plain[0], 0);
    assert_int_equal(caller.cuGraphExecDestroy(executable), 0);
    assert_int_equal(caller.cuGraphDestroy(graph), 0);
    assert_int_equal(caller.cuCtxSetCurrent(NULL), 0);
    assert_int_equal(caller.cuDevicePrimaryCtxRelease_v2(0), 0);
    for (int i = 0; i < 3; i++)
        CHECK_OK(loch_raw_free(pinned[i]));
    CHECK_OK(loch_raw_free(block));
    loch_stream_close(captured);
    assert_int_equal(caller.cuStreamDestroy_v2(native), 0);
}

/* --- streams --- */

static void *get_thread_default(void *user)
{
    return loch_stream_require_thread_default(device, user) == LOCH_OK ? user : NULL;
}

typedef struct thread_stream {
    loch_stream *stream;
    uint64_t id;
} thread_stream;

static void *thread_stream_note(void *user)
{
    thread_stream *note = user;
    if (!get_thread_default(&note->stream)) return NULL;
    note->id = loch_stream_get_id(note->stream);
    return note;
}

static void test_thread_default(void **state)
{
    (void)state;
    loch_stream *mine = NULL, *again = NULL;
    CHECK_OK(loch_stream_require_thread_default(device, &mine));
    CHECK_OK(loch_stream_require_thread_default(device, &again));
    assert_ptr_equal(mine, again);
    assert_ptr_not_equal(mine, loch_stream_get_default(device));
    assert_true((uintptr_t)loch_stream_get_native(mine) == 2);
    assert_null(loch_stream_get_native(loch_stream_get_default(device)));
    CHECK_OK(loch_stream_wrap(device, (void *)(uintptr_t)2, &again));
    assert_ptr_equal(mine, again);
    CHECK_OK(loch_stream_wrap(device, (void *)(uintptr_t)1, &again));
    assert_ptr_equal(again, loch_stream_get_default(device));
    CHECK_OK(loch_stream_wrap(device, NULL, &again));
    assert_ptr_equal(again, loch_stream_get_default(device));

    pthread_t thread;
    thread_stream other = {.stream = NULL};
    void *result = NULL;
    assert_int_equal(pthread_create(&thread, NULL, thread_stream_note, &other), 0);
    assert_int_equal(pthread_join(thread, &result), 0);
    assert_non_null(result);
    assert_true(other.id != loch_stream_get_id(mine));
}

/* Two threads' default streams do not wait for each other: one stands at a gate, the other passes. */
static void *pass_by_gate(void *user)
{
    loch_stream *stream = NULL;
    if (!get_thread_default(&stream) || loch_stream_query(stream) != LOCH_OK) return NULL;
    return loch_stream_sync(stream) == LOCH_OK ? user : NULL;
}

static void test_thread_default_is_own_queue(void **state)
{
    (void)state;
    static gate g = GATE_INITIALIZER;
    loch_stream *mine = NULL;
    CHECK_OK(loch_stream_require_thread_default(device, &mine));
    CHECK_OK(loch_stream_call(mine, gate_wait, &g));
    const loch_status busy = loch_stream_query(mine);
    pthread_t thread;
    void *result = NULL;
    const int made = pthread_create(&thread, NULL, pass_by_gate, &g);
    if (!made) pthread_join(thread, &result);
    gate_open(&g);
    CHECK_OK(loch_stream_sync(mine));
    assert_int_equal(busy, LOCH_E_BUSY);
    assert_int_equal(made, 0);
    assert_non_null(result);
}

static void test_wrap(void **state)
{
    (void)state;
    void *native = caller_stream_create(NON_BLOCKING);
    loch_stream *stream = NULL;
    CHECK_OK(loch_stream_wrap(device, native, &stream));
    assert_ptr_equal(loch_stream_get_native(stream), native);
    void *block = NULL;
    unsigned char host[256];
    const unsigned char byte = 0xab;
    CHECK_OK(loch_raw_alloc(device, LOCH_MEMORY_DEVICE, sizeof host, 0, &block));
    CHECK_OK(loch_fill_on(block, sizeof host, &byte, 1, stream));
    CHECK_OK(loch_copy_on(host, block, sizeof host, stream));
    CHECK_OK(loch_stream_sync(stream));
    for (size_t i = 0; i < sizeof host; i++)
        assert_int_equal(host[i], byte);
    CHECK_OK(loch_raw_free(block));
    loch_stream_retain(stream); /* a further owner does not keep the queue */
    loch_stream_close(stream);
    assert_int_equal(caller.cuStreamDestroy_v2(native), 0); /* it was still there */
    CHECK_FAILS(loch_stream_sync(stream), INVALID);
    loch_stream_release(stream);

    void *context = NULL;
    assert_int_equal(caller.cuCtxCreate_v2(&context, 0, 0), 0);
    assert_int_equal(caller.cuStreamCreate(&native, NON_BLOCKING), 0);
    CHECK_FAILS(loch_stream_wrap(device, native, &stream), INVALID);
    assert_null(stream);
    assert_int_equal(caller.cuStreamDestroy_v2(native), 0);
    assert_int_equal(caller.cuCtxDestroy_v2(context), 0);
}

static void test_stream_options(void **state)
{
    (void)state;
    for (int priority = -100; priority <= 100; priority += 100) {
        const loch_stream_options options = {
            .size = sizeof options, .order = LOCH_STREAM_WITH_DEFAULT, .priority = priority};
        loch_stream *stream = NULL;
        CHECK_OK(loch_stream_create(device, &options, &stream));
        CHECK_OK(loch_stream_sync(stream));
        loch_stream_close(stream);
    }
}

/* The second stream must not read before the first, which stands at a gate, has written. */
static void test_stream_order(void **state)
{
    (void)state;
    static gate g = GATE_INITIALIZER;
    const size_t bytes = 8 * TEST_MIB;
    const uint64_t seed = test_random_next(&randomness);
    loch_stream *first = NULL, *second = NULL;
    loch_event *event = NULL;
    char *source = NULL, *target = NULL;
    void *block = NULL;
    CHECK_OK(loch_stream_create(device, NULL, &first));
    CHECK_OK(loch_stream_create(device, NULL, &second));
    CHECK_OK(loch_event_create(device, LOCH_EVENT_PLAIN, &event));
    CHECK_OK(loch_event_query(event));
    CHECK_OK(loch_raw_alloc(device, LOCH_MEMORY_PINNED, bytes, 0, (void **)&source));
    CHECK_OK(loch_raw_alloc(device, LOCH_MEMORY_PINNED, bytes, 0, (void **)&target));
    CHECK_OK(loch_raw_alloc(device, LOCH_MEMORY_DEVICE, bytes, 0, &block));
    test_pattern_write(source, bytes, seed);
    memset(target, 0, bytes);
    CHECK_OK(loch_stream_call(first, gate_wait, &g));
    CHECK_OK(loch_copy_on(block, source, bytes, first));
    CHECK_OK(loch_event_record(event, first));
    CHECK_OK(loch_stream_wait(second, event));
    CHECK_OK(loch_copy_on(target, block, bytes, second));
    const loch_status before[] = {loch_event_query(event), loch_stream_query(first), loch_stream_query(second)};
    gate_open(&g);
    CHECK_OK(loch_stream_sync(second));
    for (size_t i = 0; i < 3; i++)
        assert_int_equal(before[i], LOCH_E_BUSY);
    CHECK_OK(loch_event_query(event));
    assert_int_equal(test_pattern_differs(target, bytes, seed), bytes);
    CHECK_OK(loch_raw_free(source));
    CHECK_OK(loch_raw_free(target));
    CHECK_OK(loch_raw_free(block));
    loch_event_destroy(event);
    loch_stream_close(first);
    loch_stream_close(second);
}

static void test_timed_events(void **state)
{
    (void)state;
    static gate g = GATE_INITIALIZER;
    const size_t bytes = 64 * TEST_MIB;
    loch_stream *stream = NULL;
    loch_event *start = NULL, *end = NULL, *plain = NULL;
    void *block = NULL;
    uint64_t ns = 0;
    const uint32_t pattern = 0;
    CHECK_OK(loch_stream_create(device, NULL, &stream));
    CHECK_OK(loch_event_create(device, LOCH_EVENT_TIMED, &start));
    CHECK_OK(loch_event_create(device, LOCH_EVENT_TIMED, &end));
    CHECK_OK(loch_event_create(device, LOCH_EVENT_PLAIN, &plain));
    CHECK_FAILS(loch_event_elapsed(start, end, &ns), INVALID);
    CHECK_OK(loch_raw_alloc(device, LOCH_MEMORY_DEVICE, bytes, 0, &block));
    CHECK_OK(loch_event_record(start, stream));
    CHECK_OK(loch_stream_call(stream, gate_wait, &g));
    CHECK_OK(loch_fill_on(block, bytes, &pattern, sizeof pattern, stream));
    CHECK_OK(loch_event_record(end, stream));
    const loch_status busy = loch_event_elapsed(start, end, &ns);
    gate_open(&g);
    CHECK_OK(loch_event_sync(end));
    assert_int_equal(busy, LOCH_E_BUSY);
    CHECK_OK(loch_event_elapsed(start, end, &ns));
    assert_true(ns > 0 && ns < (uint64_t)60 * 1000000000);
    CHECK_OK(loch_event_elapsed(start, start, &ns));
    assert_int_equal(ns, 0);
    CHECK_OK(loch_event_record(plain, stream));
    CHECK_OK(loch_event_sync(plain));
    CHECK_FAILS(loch_event_elapsed(start, plain, &ns), INVALID);
    CHECK_OK(loch_raw_free(block));
    loch_event_destroy(start);
    loch_event_destroy(end);
    loch_event_destroy(plain);
    loch_stream_close(stream);
}

/* --- copies and fills --- */

static void test_copy_directions(void **state)
{
    (void)state;
    const size_t sizes[] = {1, 3, 4096, TEST_MIB + 5, 16 * TEST_MIB};
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        const size_t bytes = sizes[i];
        const uint64_t seed = test_random_next(&randomness);
        char *host = calloc(1, bytes), *pinned = NULL, *first = NULL, *second = NULL;
        assert_non_null(host);
        CHECK_OK(loch_raw_alloc(device, LOCH_MEMORY_PINNED, bytes, 0, (void **)&pinned));
        CHECK_OK(loch_raw_alloc(device, LOCH_MEMORY_DEVICE, bytes, 0, (void **)&first));
        CHECK_OK(loch_raw_alloc(device, LOCH_MEMORY_DEVICE, bytes, 0, (void **)&second));
        test_pattern_write(host, bytes, seed);
        CHECK_OK(loch_copy(first, host, bytes));    /* pageable to device */
        CHECK_OK(loch_copy(second, first, bytes));  /* device to device */
        CHECK_OK(loch_copy(pinned, second, bytes)); /* device to pinned */
        assert_int_equal(test_pattern_differs(pinned, bytes, seed), bytes);
        test_pattern_write(pinned, bytes, seed + 1);
        CHECK_OK(loch_copy(second, pinned, bytes)); /* pinned to device */
        memset(host, 0, bytes);
        CHECK_OK(loch_copy(host, second, bytes)); /* device to pageable */
        assert_int_equal(test_pattern_differs(host, bytes, seed + 1), bytes);
        CHECK_OK(loch_copy(host, first, bytes));
        assert_int_equal(test_pattern_differs(host, bytes, seed), bytes);
        free(host);
        CHECK_OK(loch_raw_free(pinned));
        CHECK_OK(loch_raw_free(first));
        CHECK_OK(loch_raw_free(second));
    }
}

static void test_copy_peers(void **state)
{
    (void)state;
    loch_device *peer = NULL;
    if (loch_device_open("cuda:1", &peer) != LOCH_OK) {
        print_message("skipped: there is no second GPU\n");
        skip();
    }
    const size_t bytes = 4 * TEST_MIB;
    const uint64_t seed = test_random_next(&randomness);
    void *here = NULL, *there = NULL;
    CHECK_OK(loch_raw_alloc(device, LOCH_MEMORY_DEVICE, bytes, 0, &here));
    CHECK_OK(loch_raw_alloc(peer, LOCH_MEMORY_DEVICE, bytes, 0, &there));
    put_contents(here, bytes, seed);
    CHECK_OK(loch_copy(there, here, bytes));
    expect_contents(there, bytes, seed);
    put_contents(there, bytes, seed + 1);
    CHECK_OK(loch_copy(here, there, bytes));
    expect_contents(here, bytes, seed + 1);
    const loch_status status = loch_device_enable_peer(device, peer);
    if (status != LOCH_E_UNSUPPORTED) {
        CHECK_OK(status);
        CHECK_OK(loch_device_enable_peer(device, peer));
        CHECK_OK(loch_copy(there, here, bytes));
        expect_contents(there, bytes, seed + 1);
    }
    CHECK_OK(loch_raw_free(here));
    CHECK_OK(loch_raw_free(there));

    void *context = NULL; /* foreign memory of the second GPU is not taken for the first one's */
    unsigned long long address = 0;
    loch_address_info info = {.size = sizeof info};
    assert_int_equal(caller.cuDevicePrimaryCtxRetain(&context, 1), 0);
    assert_int_equal(caller.cuCtxSetCurrent(context), 0);
    assert_int_equal(caller.cuMemAlloc_v2(&address, bytes), 0);
    CHECK_OK(loch_address_query((void *)(uintptr_t)address, &info));
    assert_ptr_equal(info.device, peer);
    assert_int_equal(caller.cuMemFree_v2(address), 0);
    assert_int_equal(caller.cuCtxSetCurrent(NULL), 0);
    assert_int_equal(caller.cuDevicePrimaryCtxRelease_v2(1), 0);
    loch_device_release(peer);
}

static void test_fill_patterns(void **state)
{
    (void)state;
    const size_t bytes = 4096;
    unsigned char host[4096], pattern[4];
    void *block = NULL;
    loch_stream *stream = NULL;
    CHECK_OK(loch_raw_alloc(device, LOCH_MEMORY_DEVICE, bytes, 0, &block));
    CHECK_OK(loch_stream_create(device, NULL, &stream));
    for (size_t width = 1; width <= 4; width *= 2) {
        const unsigned char zero = 0;
        CHECK_OK(loch_fill(block, bytes, &zero, 1));
        for (size_t i = 0; i < width; i++)
            pattern[i] = (unsigned char)test_random_next(&randomness);
        CHECK_OK(loch_fill_on((char *)block + 256, bytes - 512, pattern, width, stream));
        CHECK_OK(loch_stream_sync(stream));
        CHECK_OK(loch_copy(host, block, bytes));
        for (size_t i = 0; i < bytes; i++)
            assert_int_equal(host[i], i >= 256 && i < bytes - 256 ? pattern[i % width] : 0);
    }
    loch_stream_close(stream);
    CHECK_OK(loch_raw_free(block));
}

/* --- kinds of memory --- */

static void expect_address(const void *address, loch_memory_kind kind, const void *base, size_t bytes)
{
    loch_address_info info = {.size = sizeof info};
    CHECK_OK(loch_address_query(address, &info));
    assert_ptr_equal(info.device, device);
    assert_int_equal(info.kind, kind);
    assert_ptr_equal(info.base, base);
    assert_true(info.bytes >= bytes);
}

static void test_host_kinds(void **state)
{
    (void)state;
    const size_t bytes = TEST_MIB;
    char *pinned = NULL;
    for (size_t alignment = 1; alignment <= 4096; alignment *= 2) {
        CHECK_OK(loch_raw_alloc(device, LOCH_MEMORY_PINNED, 100, alignment, (void **)&pinned));
        assert_int_equal((uintptr_t)pinned % alignment, 0);
        memset(pinned, 1, 100);
        CHECK_OK(loch_raw_free(pinned));
    }
    CHECK_FAILS(loch_raw_alloc(device, LOCH_MEMORY_PINNED, bytes, 8192, (void **)&pinned), UNSUPPORTED);

    if (loch_device_can(device, LOCH_CAN_REGISTER)) {
        char *host = aligned_alloc(4096, bytes);
        assert_non_null(host);
        memset(host, 0, bytes);
        CHECK_OK(loch_raw_register(device, host, bytes));
        CHECK_FAILS(loch_raw_register(device, host, bytes), EXISTS);
        expect_address(host + 5, LOCH_MEMORY_REGISTERED, host, bytes);
        CHECK_OK(loch_raw_unregister(host));
        CHECK_FAILS(loch_raw_unregister(host), FOREIGN);
        free(host);
    }
    if (loch_device_can(device, LOCH_CAN_MANAGED)) {
        const uint64_t seed = test_random_next(&randomness);
        char *managed = NULL;
        CHECK_OK(loch_raw_alloc(device, LOCH_MEMORY_MANAGED, bytes, 0, (void **)&managed));
        put_contents(managed, bytes, seed);
        CHECK_OK(loch_device_sync(device));
        assert_int_equal(test_pattern_differs(managed, bytes, seed), bytes);
        CHECK_OK(loch_raw_free(managed));
    }
}

/* Memory that somebody else took from the driver, with Loch never told. */
static void test_foreign_memory(void **state)
{
    (void)state;
    const size_t bytes = 4 * TEST_MIB;
    const uint64_t seed = test_random_next(&randomness);
    void *primary = NULL;
    unsigned long long address = 0;
    assert_int_equal(caller.cuDevicePrimaryCtxRetain(&primary, 0), 0);
    assert_int_equal(caller.cuCtxSetCurrent(primary), 0);
    assert_int_equal(caller.cuMemAlloc_v2(&address, bytes), 0);
    char *block = (char *)(uintptr_t)address;
    expect_address(block + 77, LOCH_MEMORY_DEVICE, block, bytes);
    put_contents(block, bytes, seed);
    expect_contents(block, bytes, seed);
    CHECK_FAILS(loch_raw_free(block), FOREIGN);
    assert_int_equal(caller.cuMemFree_v2(address), 0);
    assert_int_equal(caller.cuCtxSetCurrent(NULL), 0);
    assert_int_equal(caller.cuDevicePrimaryCtxRelease_v2(0), 0);
    char local = 0;
    loch_address_info info = {.size = sizeof info};
    CHECK_OK(loch_address_query(&local, &info));
    assert_null(info.device);
    assert_int_equal(info.kind, LOCH_MEMORY_HOST);
}

/* Through the driver's own slots, which no public call stands for. */
static void test_ordered_memory(void **state)
{
    (void)state;
    if (!loch_device_can(device, LOCH_CAN_ORDERED)) skip();
    void *self = NULL, *block = NULL;
    const loch_driver *driver = loch_device_get_driver(device, &self);
    loch_stream *stream = NULL;
    unsigned char host[4096];
    CHECK_OK(loch_stream_create(device, NULL, &stream));
    void *native = loch_stream_get_native(stream);
    CHECK_OK(driver->ordered_alloc(self, sizeof host, native, &block));
    CHECK_OK(driver->fill(self, block, sizeof host, 0x5a, 1, native));
    CHECK_OK(driver->copy(self, LOCH_DEVICE_TO_HOST, host, block, sizeof host, NULL, native));
    CHECK_OK(driver->ordered_free(self, block, sizeof host, native));
    CHECK_OK(loch_stream_sync(stream));
    for (size_t i = 0; i < sizeof host; i++)
        assert_int_equal(host[i], 0x5a);
    loch_stream_close(stream);
}

/* --- failures --- */

static void test_errors(void **state)
{
    (void)state;
    void *block = NULL;
    CHECK_FAILS(loch_raw_alloc(device, LOCH_MEMORY_DEVICE, properties.total_bytes + TEST_GIB, 0, &block),
                DEVICE_MEMORY);
    assert_string_equal(loch_error_get()->driver, "cuda");
    assert_int_equal(loch_error_get()->driver_code, ERROR_OUT_OF_MEMORY);
    assert_non_null(strstr(loch_error_get()->sentence, "cuMemAlloc"));
    assert_non_null(strstr(loch_error_get()->sentence, "CUDA_ERROR_OUT_OF_MEMORY"));
    CHECK_FAILS(loch_raw_alloc(device, LOCH_MEMORY_DEVICE, 100, 4096, &block), UNSUPPORTED);
    CHECK_OK(loch_raw_alloc(device, LOCH_MEMORY_DEVICE, 100, 512, &block));
    assert_int_equal((uintptr_t)block % 512, 0);
    CHECK_OK(loch_raw_free(block));
    if (loch_device_can(device, LOCH_CAN_VIRTUAL)) {
        const size_t granule = properties.granule_bytes;
        loch_handle *handle = NULL;
        CHECK_FAILS(loch_handle_create(device, (properties.total_bytes / granule + 1024) * granule, NULL, &handle),
                    DEVICE_MEMORY);
        CHECK_FAILS(loch_virtual_reserve(device, (size_t)1 << 62, 0, &block), DEVICE_MEMORY);
        assert_null(block);
    }
    CHECK_OK(loch_device_sync(device));
}

/* Nothing of all this is left. */
static void test_nothing_left(void **state)
{
    (void)state;
    loch_device_release(device);
    loch_device *again = NULL;
    CHECK_OK(loch_device_open("cuda:0", &again));
    device = again;
    assert_null(caller_current());
    void *block = NULL;
    CHECK_OK(loch_raw_alloc(device, LOCH_MEMORY_DEVICE, TEST_MIB, 0, &block));
    loch_device_release(device); /* the block keeps it */
    CHECK_OK(loch_raw_free(block));
    device = NULL;
    loch_host_usage usage = {.size = sizeof usage};
    CHECK_OK(loch_host_get_usage(&usage));
    assert_int_equal(usage.blocks, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_properties),
        cmocka_unit_test(test_names),
        cmocka_unit_test(test_context_none),
        cmocka_unit_test(test_context_foreign),
        cmocka_unit_test(test_context_primary),
        cmocka_unit_test(test_alias),
        cmocka_unit_test(test_share_descriptor),
        cmocka_unit_test(test_handle_kinds),
        cmocka_unit_test(test_capture),
        cmocka_unit_test(test_capture_ordered_with_default),
        cmocka_unit_test(test_capture_of_host_memory),
        cmocka_unit_test(test_thread_default),
        cmocka_unit_test(test_thread_default_is_own_queue),
        cmocka_unit_test(test_wrap),
        cmocka_unit_test(test_stream_options),
        cmocka_unit_test(test_stream_order),
        cmocka_unit_test(test_timed_events),
        cmocka_unit_test(test_copy_directions),
        cmocka_unit_test(test_copy_peers),
        cmocka_unit_test(test_fill_patterns),
        cmocka_unit_test(test_host_kinds),
        cmocka_unit_test(test_foreign_memory),
        cmocka_unit_test(test_ordered_memory),
        cmocka_unit_test(test_errors),
        cmocka_unit_test(test_nothing_left),
    };
    if (loch_device_open("cuda:0", &device) != LOCH_OK) return test_skip_gpu();
    caller_load();
    properties.size = sizeof properties;
    if (loch_device_get_properties(device, &properties) != LOCH_OK) return 1;
    randomness.state = test_seed(0x10c4);
    const int failures = cmocka_run_group_tests(tests, NULL, NULL);
    loch_device_release(device);
    return failures ? 1 : 0;
}

/* SPDX-License-Identifier: MIT */
/* Loch over drivers that differ, by the switches of the driver for tests: confidential computing, WSL 2, integrated
 * GPUs, mappings that are refused, a context that is lost, calls that fail while memory goes back. */
#include "device/cuda/api.h"
#include "open_control.h"
#include <fcntl.h>
#include <unistd.h>

/* Applies switches, and opens cuda:0 with them. */
static loch_device *open_with(const char *switches)
{
    loch_device *device;
    assert_int_equal(control.set(switches), 0);
    CHECK_OK(loch_device_open("cuda:0", &device));
    return device;
}

/* Closes it, and puts back what the test changed. Nothing may be left. */
static void close_with(loch_device *device, const char *switches)
{
    loch_device_release(device);
    assert_int_equal(control.set(switches), 0);
    control_expect_empty(switches);
}

static void expect_copies(loch_device *device)
{
    static unsigned char here[5000], back[5000];
    void *block;
    test_pattern_write(here, sizeof here, 5);
    CHECK_OK(loch_raw_alloc(device, LOCH_MEMORY_DEVICE, sizeof here, 0, &block));
    CHECK_OK(loch_copy(block, here, sizeof here));
    CHECK_OK(loch_copy(back, block, sizeof here));
    assert_memory_equal(here, back, sizeof here);
    CHECK_OK(loch_raw_free(block));
}

/* Under confidential computing memory can be neither pinned nor registered. Device memory works. */
static void a_driver_without_pinning_is_usable(void **state)
{
    (void)state;
    static char host[8192];
    loch_device *device = open_with("pinning=801");
    void *block;
    CHECK_FAILS(loch_raw_alloc(device, LOCH_MEMORY_PINNED, 5000, 0, &block), UNSUPPORTED);
    CHECK_FAILS(loch_raw_alloc(device, LOCH_MEMORY_PINNED, 5 * TEST_MIB, 0, &block), UNSUPPORTED);
    assert_int_equal(loch_error_get()->driver_code, 801);
    CHECK_FAILS(loch_raw_register(device, host, sizeof host), UNSUPPORTED);
    expect_copies(device);
    close_with(device, "pinning=0");
}

/* Registrations alone are refused: pinned memory comes from the driver then, whatever its size. */
static void a_driver_without_registrations_pins(void **state)
{
    (void)state;
    static const char *const switches[] = {"registering=801", "registering=999", "register=off"};
    for (size_t i = 0; i < 3; i++) {
        loch_device *device = open_with(switches[i]);
        const uint64_t before = control.count("cuMemHostAlloc");
        void *block;
        CHECK_OK(loch_raw_alloc(device, LOCH_MEMORY_PINNED, 3 * TEST_MIB, 0, &block));
        assert_int_equal(control.count("cuMemHostAlloc"), before + 1);
        memset(block, 1, 3 * TEST_MIB);
        CHECK_OK(loch_raw_free(block));
        /* Blocks inside of a page are given back, and taken again at the begin of one. */
        CHECK_OK(loch_raw_alloc(device, LOCH_MEMORY_PINNED, 5000, 4096, &block));
        assert_int_equal((uintptr_t)block % 4096, 0);
        CHECK_OK(loch_raw_free(block));
        CHECK_FAILS(loch_raw_alloc(device, LOCH_MEMORY_PINNED, 5000, 8192, &block), UNSUPPORTED);
        CHECK_FAILS(loch_raw_alloc(device, LOCH_MEMORY_PINNED, (size_t)1 << 60, 0, &block), HOST_MEMORY);
        close_with(device, "registering=0,register=on");
    }
}

/* Under WSL 2 the attribute says yes and opening a mapping fails: a device has what has been tried. */
static void memory_for_network_cards_is_tried_before_it_is_promised(void **state)
{
    (void)state;
    static const struct {
        const char *switches;
        bool can;
    } cases[] = {{"rdma=999", false}, {"rdma=off", false}, {"rdma=0", true}};
    const loch_handle_options options = {.size = sizeof options, .rdma = LOCH_RDMA_ON};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        loch_handle *handle;
        loch_device *device = open_with(cases[i].switches);
        assert_int_equal(loch_device_can(device, LOCH_CAN_RDMA), cases[i].can);
        if (cases[i].can) {
            CHECK_OK(loch_handle_create(device, 2 * TEST_MIB, &options, &handle));
            loch_handle_destroy(handle);
        } else {
            CHECK_FAILS(loch_handle_create(device, 2 * TEST_MIB, &options, &handle), UNSUPPORTED);
        }
        loch_allocator *pool; /* plain memory works in each case */
        void *block;
        CHECK_OK(loch_pool_create(device, "plain", NULL, &pool));
        CHECK_OK(loch_alloc(pool, 3 * TEST_MIB, &block));
        CHECK_OK(loch_free(pool, block));
        loch_allocator_release(pool);
        close_with(device, "rdma=0");
    }
}

/* A device that has no memory left for the trial keeps what its driver says. */
static void a_full_device_keeps_what_its_driver_says(void **state)
{
    (void)state;
    loch_device *device = open_with("fail=cuMemCreate:1:once:2");
    assert_true(loch_device_can(device, LOCH_CAN_RDMA));
    close_with(device, "rdma=0");
}

/* What the driver cannot do is no capability, and is refused. */
static void a_device_lacks_what_its_driver_lacks(void **state)
{
    (void)state;
    static const struct {
        const char *off, *on;
        uint32_t capability;
    } cases[] = {
        {"virtual=off", "virtual=on", LOCH_CAN_VIRTUAL | LOCH_CAN_ALIAS | LOCH_CAN_SHARE_FD},
        {"managed=off", "managed=on", LOCH_CAN_MANAGED},
        {"pools=off", "pools=on", LOCH_CAN_ORDERED},
        {"register=off", "register=on", LOCH_CAN_REGISTER},
        {"descriptors=off", "descriptors=on", LOCH_CAN_SHARE_FD},
        {"devices=1", "devices=2", LOCH_CAN_PEER},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        loch_device *device = open_with(cases[i].off);
        loch_device_properties properties = {.size = sizeof properties};
        CHECK_OK(loch_device_get_properties(device, &properties));
        assert_int_equal(properties.capabilities & cases[i].capability, 0);
        expect_copies(device);
        close_with(device, cases[i].on);
        device = open_with(cases[i].on);
        assert_true(loch_device_can(device, cases[i].capability));
        close_with(device, cases[i].on);
    }
}

static void shares_of_all_kinds(void **state)
{
    (void)state;
    loch_device *device = open_with("fabric=on");
    assert_true(loch_device_can(device, LOCH_CAN_SHARE_FABRIC));
    const loch_handle_options options = {.size = sizeof options, .share = LOCH_SHARE_FABRIC};
    unsigned char name[LOCH_SHARE_BYTES_MAX] = {0}, wrong[LOCH_SHARE_BYTES_MAX] = {0};
    loch_handle *handle, *twin = NULL;
    char *addresses;
    const size_t granule = 2 * TEST_MIB;
    CHECK_OK(loch_handle_create(device, granule, &options, &handle));
    CHECK_OK(loch_handle_export(handle, LOCH_SHARE_FABRIC, sizeof name, name));
    CHECK_OK(loch_handle_import(device, LOCH_SHARE_FABRIC, name, granule, &twin));
    CHECK_OK(loch_virtual_reserve(device, 2 * granule, 0, (void **)&addresses));
    CHECK_OK(loch_virtual_map(addresses, handle, NULL, 0));
    CHECK_OK(loch_virtual_map(addresses + granule, twin, NULL, 0));
    CHECK_OK(loch_fill(addresses, 100, "x", 1));
    char back[100] = {0};
    CHECK_OK(loch_copy(back, addresses + granule, sizeof back));
    assert_int_equal(back[99], 'x');
    CHECK_OK(loch_virtual_unmap(addresses));
    CHECK_OK(loch_virtual_unmap(addresses + granule));
    CHECK_OK(loch_virtual_unreserve(addresses));
    loch_handle_destroy(handle);
    loch_handle_destroy(twin);
    CHECK_FAILS(loch_handle_import(device, LOCH_SHARE_FABRIC, wrong, granule, &twin), INVALID);
    int other = open("/dev/null", 0);
    CHECK_FAILS(loch_handle_import(device, LOCH_SHARE_FD, &other, granule, &twin), INVALID);
    close(other);
    close_with(device, "fabric=off,descriptors=off");
    device = open_with("fabric=off");
    loch_handle *none;
    CHECK_FAILS(loch_handle_create(device, granule, &options, &none), UNSUPPORTED);
    const loch_handle_options by_descriptor = {.size = sizeof options, .share = LOCH_SHARE_FD};
    CHECK_FAILS(loch_handle_create(device, granule, &by_descriptor, &none), UNSUPPORTED);
    CHECK_FAILS(loch_handle_import(device, LOCH_SHARE_FD, &other, granule, &none), UNSUPPORTED);
    close_with(device, "descriptors=on");
}

/* A driver that maps a handle once refuses the second mapping; the first stays. */
static void a_second_mapping_is_refused(void **state)
{
    (void)state;
    loch_device *device = open_with("alias=off");
    const size_t granule = 2 * TEST_MIB;
    char *addresses;
    loch_handle *handle;
    CHECK_OK(loch_virtual_reserve(device, 2 * granule, 0, (void **)&addresses));
    CHECK_OK(loch_handle_create(device, granule, NULL, &handle));
    CHECK_OK(loch_virtual_map(addresses, handle, NULL, 0));
    CHECK_FAILS(loch_virtual_map(addresses + granule, handle, NULL, 0), UNSUPPORTED);
    CHECK_OK(loch_fill(addresses, granule, "x", 1));
    CHECK_OK(loch_virtual_unmap(addresses));
    loch_handle_destroy(handle);
    CHECK_OK(loch_virtual_unreserve(addresses));
    close_with(device, "alias=on");
}

/* A failed cuMemSetAccess leaves no mapping. */
static void a_mapping_without_access_is_taken_back(void **state)
{
    (void)state;
    loch_device *device = open_with("alias=on");
    const size_t granule = 2 * TEST_MIB;
    const fake_cuda_fault fault = {.call = "cuMemSetAccess", .code = 801};
    void *addresses;
    loch_handle *handle;
    CHECK_OK(loch_virtual_reserve(device, granule, 0, &addresses));
    CHECK_OK(loch_handle_create(device, granule, NULL, &handle));
    control.set_fault(&fault);
    CHECK_FAILS(loch_virtual_map(addresses, handle, NULL, 0), UNSUPPORTED);
    control.set_fault(NULL);
    CHECK_OK(loch_virtual_map(addresses, handle, NULL, 0));
    CHECK_OK(loch_virtual_unmap(addresses));
    loch_handle_destroy(handle);
    CHECK_OK(loch_virtual_unreserve(addresses));
    close_with(device, "alias=on");
}

/* An unmapping that is refused is told, and can be tried again. */
static void an_unmapping_that_is_refused_can_be_tried_again(void **state)
{
    (void)state;
    loch_device *device = open_with("unmap=0");
    const size_t granule = 2 * TEST_MIB;
    void *addresses;
    loch_handle *handle;
    CHECK_OK(loch_virtual_reserve(device, granule, 0, &addresses));
    CHECK_OK(loch_handle_create(device, granule, NULL, &handle));
    CHECK_OK(loch_virtual_map(addresses, handle, NULL, 0));
    assert_int_equal(control.set("unmap=999"), 0);
    CHECK_FAILS(loch_virtual_unmap(addresses), DRIVER);
    assert_int_equal(control.set("unmap=0"), 0);
    CHECK_OK(loch_fill(addresses, granule, "x", 1));
    CHECK_OK(loch_virtual_unmap(addresses));
    loch_handle_destroy(handle);
    CHECK_OK(loch_virtual_unreserve(addresses));
    close_with(device, "unmap=0");
}

/* A pool over such a driver serves on. Memory that a trim could not unmap is lost, and nothing else: the trim ends
 * there. The last test, because the lost memory keeps the device. */
static void a_pool_lives_with_unmappings_that_are_refused(void **state)
{
    (void)state;
    loch_device *device = open_with("unmap=0");
    loch_allocator *pool;
    void *blocks[4];
    CHECK_OK(loch_pool_create(device, "kept", NULL, &pool));
    for (int round = 0; round < 3; round++) {
        assert_int_equal(control.set(round == 1 ? "unmap=999" : "unmap=0"), 0);
        for (size_t i = 0; i < 4; i++)
            CHECK_OK(loch_alloc(pool, (i + 1) * 5 * TEST_MIB, &blocks[i]));
        for (size_t i = 0; i < 4; i++)
            CHECK_OK(loch_free(pool, blocks[i]));
        const loch_status status = loch_allocator_trim(pool, 0, NULL);
        if (round != 1) CHECK_OK(status);
    }
    loch_allocator_release(pool);
    loch_device_release(device);
    fake_cuda_census left;
    control.take_census(&left);
    assert_int_equal(left.mappings, 1);
    assert_int_equal(left.bytes, 2 * TEST_MIB);
}

static void an_integrated_device_reports_what_is_free(void **state)
{
    (void)state;
    loch_device *device = open_with("integrated");
    loch_memory_info info = {.size = sizeof info}, host = {.size = sizeof host};
    loch_device *cpu;
    CHECK_OK(loch_device_open("cpu", &cpu));
    CHECK_OK(loch_device_calculate_memory(device, &info));
    CHECK_OK(loch_device_calculate_memory(cpu, &host));
    loch_device_release(cpu);
    const size_t expected = host.free_bytes < info.total_bytes ? host.free_bytes : info.total_bytes;
    assert_true(info.free_bytes <= info.total_bytes);
    assert_true(info.free_bytes > expected / 10 * 9); /* the driver says a quarter; other processes run beside */
    expect_copies(device);
    close_with(device, "integrated=off");
}

/* A pool of such a device takes what the system can free. It refuses more than the device has at once, and what does
 * not fit now without a trace, although the device has less left than the system says. */
static void a_pool_of_an_integrated_device_refuses_without_taking(void **state)
{
    (void)state;
    loch_device *device = open_with("integrated,total=256MiB,context=1MiB");
    loch_pool_info before = {.size = sizeof before}, after = {.size = sizeof after};
    loch_allocator *pool;
    void *live, *idle, *none;
    CHECK_OK(loch_pool_create(device, "pool", NULL, &pool));
    CHECK_OK(loch_alloc(pool, 96 * TEST_MIB, &live)); /* more than the quarter that the driver reports */
    CHECK_OK(loch_alloc(pool, 16 * TEST_MIB, &idle));
    CHECK_OK(loch_free(pool, idle));
    CHECK_OK(loch_pool_get_info(pool, &before));
    CHECK_FAILS(loch_alloc(pool, 257 * TEST_MIB, &none), DEVICE_MEMORY);
    assert_int_equal(loch_error_get()->remedy, LOCH_REMEDY_NONE);
    CHECK_OK(loch_pool_get_info(pool, &after));
    assert_int_equal(after.handles_created, before.handles_created);
    CHECK_FAILS(loch_alloc(pool, 200 * TEST_MIB, &none), DEVICE_MEMORY);
    assert_int_equal(loch_error_get()->remedy, LOCH_REMEDY_FREE);
    assert_string_equal(loch_error_get()->owner, "cuda:0");
    CHECK_OK(loch_pool_get_info(pool, &after));
    assert_int_equal(after.reserved_bytes, before.reserved_bytes);
    assert_int_equal(after.free_bytes + after.thread_bytes, before.free_bytes + before.thread_bytes);
    CHECK_OK(loch_free(pool, live));
    loch_allocator_release(pool);
    close_with(device, "integrated=off,total=2GiB,context=32MiB");
}

static size_t read_free(loch_device *device)
{
    loch_memory_info info = {.size = sizeof info};
    CHECK_OK(loch_device_calculate_memory(device, &info));
    return info.free_bytes;
}

/* Fills the device until less than 32 MiB are left, and frees all of it. Returns what the device has free when its
 * streams have passed, after one more call of the pool. */
static size_t fill_and_free(loch_device *device, size_t headroom_bytes)
{
    static void *blocks[256];
    const loch_pool_options options = {.size = sizeof options, .headroom_bytes = headroom_bytes};
    loch_allocator *pool;
    size_t count = 0;
    CHECK_OK(loch_pool_create(device, "pool", &options, &pool));
    for (; read_free(device) >= 32 * TEST_MIB; count++)
        CHECK_OK(loch_alloc(pool, 16 * TEST_MIB, &blocks[count]));
    while (count)
        CHECK_OK(loch_free(pool, blocks[--count]));
    CHECK_OK(loch_device_sync(device));
    CHECK_OK(loch_alloc(pool, 16 * TEST_MIB, &blocks[0]));
    CHECK_OK(loch_free(pool, blocks[0]));
    CHECK_OK(loch_device_sync(device));
    CHECK_OK(loch_alloc(pool, 1, &blocks[0]));
    CHECK_OK(loch_free(pool, blocks[0]));
    const size_t left = read_free(device);
    loch_allocator_release(pool);
    return left;
}

/* On CUDA a pool's idle memory leaves 1/32 of a small device to others, unless it is told otherwise. */
static void idle_memory_leaves_a_part_of_the_device(void **state)
{
    (void)state;
    loch_device *device = open_with("total=2GiB");
    const size_t left = fill_and_free(device, 0);
    assert_true(left >= 64 * TEST_MIB && left < 128 * TEST_MIB);
    assert_true(fill_and_free(device, 1) < 32 * TEST_MIB);
    close_with(device, "total=2GiB");
}

/* Rows further apart than the driver can copy are copied one by one. */
static void rows_beyond_the_largest_pitch_are_copied(void **state)
{
    (void)state;
    static unsigned char here[8 * 4096], back[8 * 4096];
    loch_device *device = open_with("pitch=1024"), *other;
    CHECK_OK(loch_device_open("cuda:1", &other));
    const loch_pitched shape = {.row_bytes = 100,
                                .rows = 3,
                                .planes = 2,
                                .to_row_pitch = 4096,
                                .to_plane_pitch = 4 * 4096,
                                .from_row_pitch = 2048,
                                .from_plane_pitch = 4 * 4096};
    loch_device *const devices[] = {device, other};
    for (size_t d = 0; d < 2; d++) {
        void *block, *peer;
        test_pattern_write(here, sizeof here, 3);
        CHECK_OK(loch_raw_alloc(device, LOCH_MEMORY_DEVICE, sizeof here, 0, &block));
        CHECK_OK(loch_raw_alloc(devices[d], LOCH_MEMORY_DEVICE, sizeof here, 0, &peer));
        CHECK_OK(loch_copy(block, here, sizeof here));
        CHECK_OK(loch_copy_pitched(peer, block, &shape, NULL));
        CHECK_OK(loch_copy(back, peer, sizeof back));
        for (size_t plane = 0; plane < 2; plane++)
            for (size_t row = 0; row < 3; row++)
                assert_memory_equal(back + plane * shape.to_plane_pitch + row * shape.to_row_pitch,
                                    here + plane * shape.from_plane_pitch + row * shape.from_row_pitch, 100);
        CHECK_OK(loch_raw_free(peer));
        CHECK_OK(loch_raw_free(block));
    }
    loch_device_release(other);
    close_with(device, "pitch=2147483647");
}

/* --- codes --- */

/* The call that fails, the code, and the status of a device's memory under it. */
static void codes_become_statuses(void **state)
{
    (void)state;
    static const struct {
        unsigned code;
        loch_status status;
    } codes[] = {{1, LOCH_E_INVALID},       {2, LOCH_E_DEVICE_MEMORY}, {4, LOCH_E_DEVICE_LOST},
                 {400, LOCH_E_INVALID},     {217, LOCH_E_UNSUPPORTED}, {600, LOCH_E_BUSY},
                 {700, LOCH_E_DEVICE_LOST}, {712, LOCH_E_EXISTS},      {713, LOCH_E_FOREIGN},
                 {719, LOCH_E_DEVICE_LOST}, {800, LOCH_E_UNSUPPORTED}, {801, LOCH_E_UNSUPPORTED},
                 {999, LOCH_E_DRIVER},      {12345, LOCH_E_DRIVER}};
    loch_device *device = open_with("alias=on");
    for (size_t i = 0; i < sizeof codes / sizeof *codes; i++) {
        const fake_cuda_fault fault = {.call = "cuMemAlloc_v2", .code = codes[i].code};
        void *block = TEST_UNTOUCHED;
        control.set_fault(&fault);
        CHECK_STATUS(loch_raw_alloc(device, LOCH_MEMORY_DEVICE, 100, 0, &block), codes[i].status);
        control.set_fault(NULL);
        assert_int_equal(loch_error_get()->driver_code, codes[i].code);
        assert_non_null(strstr(loch_error_get()->sentence, "cuMemAlloc"));
        assert_null(block);
    }
    close_with(device, "alias=on");
}

/* Calls that come after the driver has ended give back, and are counted. */
static void a_driver_that_has_ended_has_freed_everything(void **state)
{
    (void)state;
    loch_device *device = open_with("alias=on");
    const uint64_t before = lochi_cuda_late_calls();
    static const unsigned codes[] = {4, 709};
    for (size_t i = 0; i < 2; i++) {
        const fake_cuda_fault fault = {.call = "cuMemFree_v2", .code = codes[i]};
        void *block;
        CHECK_OK(loch_raw_alloc(device, LOCH_MEMORY_DEVICE, 100, 0, &block));
        control.set_fault(&fault);
        CHECK_OK(loch_raw_free(block));
        control.set_fault(NULL);
        assert_int_equal(lochi_cuda_late_calls(), before + i + 1);
        void *self, *was;
        const loch_driver *driver = loch_device_get_driver(device, &self);
        CHECK_OK(driver->enter(self, &was));
        assert_int_equal(lochi_cuda.cuMemFree_v2((uintptr_t)block), 0); /* the double has it still */
        CHECK_OK(driver->leave(self, was));
    }
    close_with(device, "alias=on");
}

/* --- a lost context --- */

static void a_lost_context_refuses_and_ends(void **state)
{
    (void)state;
    static const unsigned codes[] = {700, 719, 214};
    for (size_t i = 0; i < 3; i++) {
        loch_device *device = open_with("alias=on");
        loch_stream *stream;
        loch_event *event;
        void *block, *none = TEST_UNTOUCHED;
        CHECK_OK(loch_stream_create(device, NULL, &stream));
        CHECK_OK(loch_event_create(device, LOCH_EVENT_PLAIN, &event));
        CHECK_OK(loch_raw_alloc(device, LOCH_MEMORY_DEVICE, 4096, 0, &block));
        control.lose(codes[i]);
        CHECK_FAILS(loch_raw_alloc(device, LOCH_MEMORY_DEVICE, 100, 0, &none), DEVICE_LOST);
        assert_null(none);
        CHECK_FAILS(loch_stream_sync(stream), DEVICE_LOST);
        CHECK_FAILS(loch_stream_query(stream), DEVICE_LOST);
        CHECK_FAILS(loch_event_record(event, stream), DEVICE_LOST);
        CHECK_FAILS(loch_device_sync(device), DEVICE_LOST);
        CHECK_FAILS(loch_fill(block, 4096, "a", 1), DEVICE_LOST);
        CHECK_FAILS(loch_raw_free(block), DEVICE_LOST);
        control.lose(0);
        CHECK_OK(loch_raw_free(block));
        loch_event_destroy(event);
        loch_stream_close(stream);
        close_with(device, "alias=on");
    }
}

/* --- frames and returns that fail --- */

/* Everything that makes a context current, or gives something back, fails once at each place: no context is left
 * current, and the device works afterwards. */
static void a_frame_that_fails_leaves_no_context_current(void **state)
{
    (void)state;
    static const char *const calls[] = {"cuCtxGetCurrent",  "cuCtxPushCurrent_v2", "cuThreadExchangeStreamCaptureMode",
                                        "cuCtxSynchronize", "cuDeviceGetCount",    "cuDeviceGetAttribute"};
    static char host[4096];
    for (size_t c = 0; c < sizeof calls / sizeof *calls; c++) {
        bool is_met = true;
        for (uint64_t after = 0; is_met; after++) {
            const fake_cuda_fault fault = {.call = calls[c], .after = after, .code = 999};
            loch_device *device = NULL;
            void *block = NULL, *current = TEST_UNTOUCHED;
            control.set_fault(&fault);
            loch_status status = loch_device_open("cuda:0", &device);
            if (status == LOCH_OK) status = loch_raw_alloc(device, LOCH_MEMORY_DEVICE, sizeof host, 0, &block);
            if (status == LOCH_OK) status = loch_copy(block, host, sizeof host);
            if (status == LOCH_OK) status = loch_device_sync(device);
            if (status == LOCH_OK) status = loch_raw_free(block);
            if (status == LOCH_OK) block = NULL;
            if (status != LOCH_OK) assert_true(loch_error_get()->sentence[0] != '\0');
            is_met = control.calls() > after;
            control.set_fault(NULL);
            if (block) CHECK_OK(loch_raw_free(block));
            if (device) expect_copies(device);
            loch_device_release(device);
            assert_int_equal(lochi_cuda.cuCtxGetCurrent((cu_context **)&current), 0);
            assert_null(current);
            fake_cuda_census left, none = {0};
            control.take_census(&left);
            left.registered = 0; /* the page by which an open tries registrations stays, if that cannot be ended */
            assert_memory_equal(&left, &none, sizeof none);
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_driver_without_pinning_is_usable),
        cmocka_unit_test(a_driver_without_registrations_pins),
        cmocka_unit_test(memory_for_network_cards_is_tried_before_it_is_promised),
        cmocka_unit_test(a_full_device_keeps_what_its_driver_says),
        cmocka_unit_test(a_device_lacks_what_its_driver_lacks),
        cmocka_unit_test(shares_of_all_kinds),
        cmocka_unit_test(a_second_mapping_is_refused),
        cmocka_unit_test(a_mapping_without_access_is_taken_back),
        cmocka_unit_test(an_unmapping_that_is_refused_can_be_tried_again),
        cmocka_unit_test(an_integrated_device_reports_what_is_free),
        cmocka_unit_test(a_pool_of_an_integrated_device_refuses_without_taking),
        cmocka_unit_test(idle_memory_leaves_a_part_of_the_device),
        cmocka_unit_test(rows_beyond_the_largest_pitch_are_copied),
        cmocka_unit_test(codes_become_statuses),
        cmocka_unit_test(a_driver_that_has_ended_has_freed_everything),
        cmocka_unit_test(a_lost_context_refuses_and_ends),
        cmocka_unit_test(a_frame_that_fails_leaves_no_context_current),
        cmocka_unit_test(a_pool_lives_with_unmappings_that_are_refused),
    };
    return cmocka_run_group_tests_name("drivers that differ", tests, control_open, NULL);
}

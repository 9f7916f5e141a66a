/* SPDX-License-Identifier: MIT */
/* Memory of the CUDA back end on a real GPU, beyond what every device has to do: aliases, shared handles, copies,
 * fills, kinds of memory. */
#include "cuda_fixture.h"
#include <unistd.h>

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

static void one_handle_at_two_addresses_has_one_memory(void **state)
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

static void a_handle_is_shared_by_descriptor(void **state)
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

static void options_of_handles_are_granted_or_refused(void **state)
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

/* --- copies and fills --- */

static void copies_go_in_every_direction(void **state)
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

static void copies_go_between_gpus(void **state)
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

static void fills_write_every_pattern(void **state)
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

static void memory_of_the_host_is_aligned_and_known(void **state)
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
    CHECK_FAILS(loch_raw_alloc(device, LOCH_MEMORY_PINNED, 4096, 8192, (void **)&pinned), UNSUPPORTED);
    for (size_t alignment = 8192; alignment <= 64 * TEST_MIB; alignment *= 16) {
        CHECK_OK(loch_raw_alloc(device, LOCH_MEMORY_PINNED, bytes + 1, alignment, (void **)&pinned));
        assert_int_equal((uintptr_t)pinned % alignment, 0);
        expect_address(pinned + bytes, LOCH_MEMORY_PINNED, pinned, bytes + 1);
        memset(pinned, 1, bytes + 1);
        CHECK_OK(loch_raw_free(pinned));
    }

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

/* Memory that other code took from the driver without Loch. */
static void memory_of_the_caller_is_known_and_left_alone(void **state)
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
static void ordered_memory_comes_in_the_order_of_its_stream(void **state)
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

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(one_handle_at_two_addresses_has_one_memory),
        cmocka_unit_test(a_handle_is_shared_by_descriptor),
        cmocka_unit_test(options_of_handles_are_granted_or_refused),
        cmocka_unit_test(copies_go_in_every_direction),
        cmocka_unit_test(copies_go_between_gpus),
        cmocka_unit_test(fills_write_every_pattern),
        cmocka_unit_test(memory_of_the_host_is_aligned_and_known),
        cmocka_unit_test(memory_of_the_caller_is_known_and_left_alone),
        cmocka_unit_test(ordered_memory_comes_in_the_order_of_its_stream),
        cmocka_unit_test(nothing_is_left_of_the_device),
    };
    return CUDA_RUN(tests);
}

/* SPDX-License-Identifier: MIT */
/* Contract of raw.h, second half: registration of the caller's memory, and what is known of an address. */
#include "bed.h"

#define BUFFER (16 * 4096)

static char *page_buffer(void)
{
    void *buffer = NULL;
    assert_int_equal(posix_memalign(&buffer, 4096, BUFFER), 0);
    memset(buffer, 0, BUFFER);
    return buffer;
}

static void expect_info(const void *address, loch_device *device, loch_memory_kind kind, const void *base, size_t bytes)
{
    loch_address_info info = {.size = sizeof info};
    memset(&info, 0xab, sizeof info);
    CHECK_OK(loch_address_query(address, &info));
    assert_ptr_equal(info.device, device);
    assert_int_equal(info.kind, kind);
    assert_ptr_equal(info.base, base);
    assert_int_equal(info.bytes, bytes);
}

static void expect_host(const void *address)
{
    expect_info(address, NULL, LOCH_MEMORY_HOST, address, 0);
}

static void registration_needs_the_capability(void **state)
{
    test_bed *bed = *state;
    if (test_bed_can(bed, LOCH_CAN_REGISTER)) return;
    char *buffer = page_buffer();
    CHECK_FAILS(loch_raw_register(bed->device, buffer, BUFFER), UNSUPPORTED);
    CHECK_FAILS(loch_raw_unregister(buffer), FOREIGN);
    expect_host(buffer);
    free(buffer);
}

static void registration_is_known_until_undone(void **state)
{
    test_bed *bed = *state;
    if (!test_bed_can(bed, LOCH_CAN_REGISTER)) return;
    char *buffer = page_buffer();
    for (int i = 0; i < 2; i++) {
        CHECK_OK(loch_raw_register(bed->device, buffer, BUFFER));
        expect_info(buffer, bed->device, LOCH_MEMORY_REGISTERED, buffer, BUFFER);
        expect_info(buffer + BUFFER - 1, bed->device, LOCH_MEMORY_REGISTERED, buffer, BUFFER);
        CHECK_OK(loch_raw_unregister(buffer));
        expect_host(buffer);
        CHECK_FAILS(loch_raw_unregister(buffer), FOREIGN);
    }
    free(buffer);
}

static void registration_twice_is_refused(void **state)
{
    test_bed *bed = *state;
    if (!test_bed_can(bed, LOCH_CAN_REGISTER)) return;
    char *buffer = page_buffer();
    CHECK_OK(loch_raw_register(bed->device, buffer + 4 * 4096, 8 * 4096));
    CHECK_FAILS(loch_raw_register(bed->device, buffer + 4 * 4096, 8 * 4096), EXISTS);
    CHECK_FAILS(loch_raw_register(bed->device, buffer, BUFFER), EXISTS);
    CHECK_FAILS(loch_raw_register(bed->device, buffer, 5 * 4096), EXISTS);
    CHECK_FAILS(loch_raw_register(bed->device, buffer + 11 * 4096, 4 * 4096), EXISTS);
    CHECK_FAILS(loch_raw_register(bed->device, buffer + 6 * 4096, 4096), EXISTS);
    CHECK_OK(loch_raw_register(bed->device, buffer, 4 * 4096));
    CHECK_OK(loch_raw_register(bed->device, buffer + 12 * 4096, 4 * 4096));
    CHECK_OK(loch_raw_unregister(buffer + 4 * 4096));
    CHECK_OK(loch_raw_unregister(buffer));
    CHECK_OK(loch_raw_unregister(buffer + 12 * 4096));
    free(buffer);
}

static void registration_of_bad_ranges_is_refused(void **state)
{
    test_bed *bed = *state;
    if (!test_bed_can(bed, LOCH_CAN_REGISTER)) return;
    char *buffer = page_buffer();
    CHECK_FAILS(loch_raw_register(bed->device, NULL, 4096), INVALID);
    CHECK_FAILS(loch_raw_register(NULL, buffer, 4096), INVALID);
    CHECK_FAILS_SET(loch_raw_register(bed->device, buffer, SIZE_MAX), TEST_SET(OVERFLOW) | TEST_SET(INVALID));
    CHECK_FAILS(loch_raw_unregister(buffer), FOREIGN);
    CHECK_OK(loch_raw_register(bed->device, buffer, BUFFER));
    CHECK_FAILS_SET(loch_raw_unregister(buffer + 4096), TEST_SET(FOREIGN) | TEST_SET(INTERIOR));
    CHECK_FAILS(loch_raw_free(buffer), FOREIGN);
    CHECK_OK(loch_raw_unregister(buffer));
    free(buffer);
}

static void registered_memory_is_copied(void **state)
{
    test_bed *bed = *state;
    if (!test_bed_can(bed, LOCH_CAN_REGISTER)) return;
    char *buffer = page_buffer();
    void *block = test_bed_alloc(bed, LOCH_MEMORY_DEVICE, BUFFER);
    CHECK_OK(loch_raw_register(bed->device, buffer, BUFFER));
    test_pattern_write(buffer, BUFFER, 21);
    CHECK_OK(loch_copy(block, buffer, BUFFER));
    memset(buffer, 0, BUFFER);
    CHECK_OK(loch_copy(buffer, block, BUFFER));
    if (bed->has_data) assert_int_equal(test_pattern_differs(buffer, BUFFER, 21), BUFFER);
    CHECK_FAILS(loch_copy(buffer + 1, block, BUFFER), OUT_OF_RANGE);
    CHECK_OK(loch_raw_unregister(buffer));
    CHECK_OK(loch_raw_free(block));
    free(buffer);
}

static void a_query_finds_a_block_from_any_address_inside(void **state)
{
    test_bed *bed = *state;
    const struct {
        loch_memory_kind kind;
        uint32_t needs;
    } kinds[] = {
        {LOCH_MEMORY_DEVICE, 0}, {LOCH_MEMORY_PINNED, LOCH_CAN_PINNED}, {LOCH_MEMORY_MANAGED, LOCH_CAN_MANAGED}};
    for (size_t i = 0; i < 3; i++) {
        if (!test_bed_can(bed, kinds[i].needs)) continue;
        char *block = test_bed_alloc(bed, kinds[i].kind, 5000);
        expect_info(block, bed->device, kinds[i].kind, block, 5000);
        expect_info(block + 1, bed->device, kinds[i].kind, block, 5000);
        expect_info(block + 4999, bed->device, kinds[i].kind, block, 5000);
        loch_address_info behind = {.size = sizeof behind};
        CHECK_OK(loch_address_query(block + 5000, &behind));
        /* not the block's; a driver may know padding there, and then says that its range holds the address */
        assert_true(behind.bytes ? (char *)behind.base + behind.bytes > block + 5000
                                 : (char *)behind.base == block + 5000);
        CHECK_OK(loch_raw_free(block));
        CHECK_OK(loch_address_query(block, &behind));
        assert_true(behind.device == NULL || behind.bytes != 5000);
    }
}

static void a_query_tells_host_memory(void **state)
{
    (void)state;
    char local = 0;
    char *heap = malloc(100);
    expect_host(&local);
    expect_host(heap);
    expect_host("text");
    free(heap);
    CHECK_FAILS(loch_address_query(&local, NULL), INVALID);
}

static void a_query_finds_mappings_and_not_the_gaps_between(void **state)
{
    test_bed *bed = *state;
    if (!test_bed_can(bed, LOCH_CAN_VIRTUAL)) return;
    const size_t granule = bed->properties.granule_bytes;
    loch_address_info info = {.size = sizeof info};
    char *addresses = test_bed_reserve(bed, 5);

    CHECK_FAILS(loch_address_query(addresses, &info), NOT_FOUND);
    loch_handle *first = test_bed_map(bed, addresses + granule, 2);
    loch_handle *second = test_bed_map(bed, addresses + 3 * granule, 1);
    CHECK_FAILS(loch_address_query(addresses, &info), NOT_FOUND);
    CHECK_FAILS(loch_address_query(addresses + granule - 1, &info), NOT_FOUND);
    expect_info(addresses + granule, bed->device, LOCH_MEMORY_DEVICE, addresses + granule, 2 * granule);
    expect_info(addresses + 3 * granule - 1, bed->device, LOCH_MEMORY_DEVICE, addresses + granule, 2 * granule);
    expect_info(addresses + 3 * granule, bed->device, LOCH_MEMORY_DEVICE, addresses + 3 * granule, granule);
    expect_info(addresses + 4 * granule - 1, bed->device, LOCH_MEMORY_DEVICE, addresses + 3 * granule, granule);
    CHECK_FAILS(loch_address_query(addresses + 4 * granule, &info), NOT_FOUND);
    CHECK_FAILS(loch_address_query(addresses + 5 * granule - 1, &info), NOT_FOUND);

    CHECK_OK(loch_virtual_unmap(addresses + granule));
    CHECK_FAILS(loch_address_query(addresses + granule, &info), NOT_FOUND);
    expect_info(addresses + 3 * granule, bed->device, LOCH_MEMORY_DEVICE, addresses + 3 * granule, granule);
    CHECK_OK(loch_virtual_unmap(addresses + 3 * granule));
    loch_handle_destroy(first);
    loch_handle_destroy(second);
    CHECK_OK(loch_virtual_unreserve(addresses));
    expect_host(addresses);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(registration_needs_the_capability),
        cmocka_unit_test(registration_is_known_until_undone),
        cmocka_unit_test(registration_twice_is_refused),
        cmocka_unit_test(registration_of_bad_ranges_is_refused),
        cmocka_unit_test(registered_memory_is_copied),
        cmocka_unit_test(a_query_finds_a_block_from_any_address_inside),
        cmocka_unit_test(a_query_tells_host_memory),
        cmocka_unit_test(a_query_finds_mappings_and_not_the_gaps_between),
    };
    return TEST_BED_RUN(tests);
}

/* SPDX-License-Identifier: MIT */
/* Contract of virtual.h: reservations, handles, mappings. Moves and sharing are in test_move.c. */
#include "bed.h"
#include <unistd.h>

#define TOO_MUCH (TEST_SET(DEVICE_MEMORY) | TEST_SET(HOST_MEMORY) | TEST_SET(OVERFLOW))

/* Every test below needs virtual memory; the first one asks the devices that have none. */
#define NEEDS_VIRTUAL(bed)                                                                                             \
    do {                                                                                                               \
        if (!test_bed_can((bed), LOCH_CAN_VIRTUAL)) return;                                                            \
    } while (0)

static void refused_without_the_capability(void **state)
{
    test_bed *bed = *state;
    if (test_bed_can(bed, LOCH_CAN_VIRTUAL)) return;
    void *addresses = TEST_UNTOUCHED;
    loch_handle *handle = TEST_UNTOUCHED;
    int descriptor = 0;
    CHECK_FAILS(loch_virtual_reserve(bed->device, 2 * TEST_MIB, 0, &addresses), UNSUPPORTED);
    assert_null(addresses);
    CHECK_FAILS(loch_handle_create(bed->device, 2 * TEST_MIB, NULL, &handle), UNSUPPORTED);
    assert_null(handle);
    CHECK_FAILS(loch_handle_import(bed->device, LOCH_SHARE_FD, &descriptor, 2 * TEST_MIB, &handle), UNSUPPORTED);
    assert_null(handle);
}

static void null_is_given_back(void **state)
{
    (void)state;
    CHECK_OK(loch_virtual_unreserve(NULL));
    loch_handle_destroy(NULL);
}

/* --- reservations --- */

static void only_whole_granules_are_reserved(void **state)
{
    test_bed *bed = *state;
    NEEDS_VIRTUAL(bed);
    const size_t granule = bed->properties.granule_bytes;
    const size_t bad[] = {0, 1, granule - 1, granule + 1, 3 * granule + 4096 % granule + 1};
    void *addresses;
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        addresses = TEST_UNTOUCHED;
        CHECK_FAILS(loch_virtual_reserve(bed->device, bad[i], 0, &addresses), INVALID);
        assert_null(addresses);
    }
    const size_t good[] = {1, 2, 3, 17, 1024};
    for (size_t i = 0; i < sizeof good / sizeof *good; i++) {
        char *start = test_bed_reserve(bed, good[i]);
        assert_int_equal((uintptr_t)start % granule, 0);
        CHECK_OK(loch_virtual_unreserve(start));
    }
    const size_t huge[] = {0 - granule, SIZE_MAX / 2 + 1, (SIZE_MAX / 4 + 1)};
    for (size_t i = 0; i < sizeof huge / sizeof *huge; i++) {
        addresses = TEST_UNTOUCHED;
        CHECK_FAILS_SET(loch_virtual_reserve(bed->device, huge[i], 0, &addresses), TOO_MUCH);
        assert_null(addresses);
    }
    addresses = TEST_UNTOUCHED;
    CHECK_FAILS(loch_virtual_reserve(NULL, granule, 0, &addresses), INVALID);
    assert_null(addresses);
    CHECK_FAILS(loch_virtual_reserve(bed->device, granule, 0, NULL), INVALID);
}

static void reservations_are_aligned_or_refused(void **state)
{
    test_bed *bed = *state;
    NEEDS_VIRTUAL(bed);
    const size_t granule = bed->properties.granule_bytes;
    void *addresses;
    for (size_t alignment = 1; alignment <= 64 * granule; alignment *= 2) {
        addresses = TEST_UNTOUCHED;
        loch_status status = loch_virtual_reserve(bed->device, 3 * granule, alignment, &addresses);
        if (status == LOCH_E_UNSUPPORTED && alignment > granule) {
            assert_null(addresses);
            continue;
        }
        CHECK_OK(status);
        assert_int_equal((uintptr_t)addresses % alignment, 0);
        assert_int_equal((uintptr_t)addresses % granule, 0);
        CHECK_OK(loch_virtual_unreserve(addresses));
    }
    const size_t bad[] = {3, granule + 1, granule * 3, SIZE_MAX};
    for (size_t i = 0; i < 4; i++) {
        addresses = TEST_UNTOUCHED;
        CHECK_FAILS(loch_virtual_reserve(bed->device, granule, bad[i], &addresses), INVALID);
        assert_null(addresses);
    }
}

static void reservations_do_not_overlap(void **state)
{
    test_bed *bed = *state;
    NEEDS_VIRTUAL(bed);
    const size_t granule = bed->properties.granule_bytes;
    char *starts[32];
    for (size_t i = 0; i < 32; i++) {
        starts[i] = test_bed_reserve(bed, i + 1);
        for (size_t k = 0; k < i; k++)
            assert_true(starts[i] + (i + 1) * granule <= starts[k] || starts[k] + (k + 1) * granule <= starts[i]);
    }
    for (size_t i = 0; i < 32; i++)
        CHECK_OK(loch_virtual_unreserve(starts[(i * 7) % 32]));
}

static void unreserve_refuses_what_is_no_reservation(void **state)
{
    test_bed *bed = *state;
    NEEDS_VIRTUAL(bed);
    const unsigned wrong = TEST_SET(FOREIGN) | TEST_SET(NOT_FOUND) | TEST_SET(INTERIOR);
    static char foreign[16];
    char *addresses = test_bed_reserve(bed, 2);
    void *block = test_bed_alloc(bed, LOCH_MEMORY_DEVICE, 100);
    CHECK_FAILS_SET(loch_virtual_unreserve(addresses + bed->properties.granule_bytes), wrong);
    CHECK_FAILS_SET(loch_virtual_unreserve(addresses + 1), wrong);
    CHECK_FAILS_SET(loch_virtual_unreserve(foreign), wrong);
    CHECK_FAILS_SET(loch_virtual_unreserve(block), wrong);
    CHECK_OK(loch_virtual_unreserve(addresses));
    CHECK_FAILS_SET(loch_virtual_unreserve(addresses), wrong);
    CHECK_OK(loch_raw_free(block));
}

/* --- handles --- */

static void handles_have_whole_granules(void **state)
{
    test_bed *bed = *state;
    NEEDS_VIRTUAL(bed);
    const size_t granule = bed->properties.granule_bytes;
    const size_t bad[] = {0, 1, granule - 1, granule + 1, SIZE_MAX};
    loch_handle *handle;
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        handle = TEST_UNTOUCHED;
        CHECK_FAILS(loch_handle_create(bed->device, bad[i], NULL, &handle), INVALID);
        assert_null(handle);
    }
    for (size_t granules = 1; granules < 40; granules = granules * 2 + 1) {
        handle = test_bed_handle(bed, granules);
        assert_int_equal(loch_handle_get_bytes(handle), granules * granule);
        loch_handle_destroy(handle);
    }
    handle = TEST_UNTOUCHED;
    CHECK_FAILS_SET(loch_handle_create(bed->device, 0 - granule, NULL, &handle), TOO_MUCH);
    assert_null(handle);
    if (!test_bed_can(bed, LOCH_CAN_HOST_ACCESS)) {
        size_t more = (bed->properties.total_bytes / granule + 1) * granule;
        handle = TEST_UNTOUCHED;
        CHECK_FAILS(loch_handle_create(bed->device, more, NULL, &handle), DEVICE_MEMORY);
        assert_null(handle);
    }
    handle = TEST_UNTOUCHED;
    CHECK_FAILS(loch_handle_create(NULL, granule, NULL, &handle), INVALID);
    assert_null(handle);
    CHECK_FAILS(loch_handle_create(bed->device, granule, NULL, NULL), INVALID);
}

static void options_of_handles_are_granted_or_refused(void **state)
{
    test_bed *bed = *state;
    NEEDS_VIRTUAL(bed);
    const size_t granule = bed->properties.granule_bytes;
    const struct {
        loch_handle_options options;
        uint32_t needs;
    } cases[] = {
        {{.size = sizeof(loch_handle_options)}, 0},
        {{.size = sizeof(loch_handle_options), .rdma = LOCH_RDMA_ON}, LOCH_CAN_RDMA},
        {{.size = sizeof(loch_handle_options), .share = LOCH_SHARE_FD}, LOCH_CAN_SHARE_FD},
        {{.size = sizeof(loch_handle_options), .share = LOCH_SHARE_FABRIC}, LOCH_CAN_SHARE_FABRIC},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        loch_handle *handle = TEST_UNTOUCHED;
        if (test_bed_can(bed, cases[i].needs)) {
            CHECK_OK(loch_handle_create(bed->device, granule, &cases[i].options, &handle));
            loch_handle_destroy(handle);
        } else {
            CHECK_FAILS(loch_handle_create(bed->device, granule, &cases[i].options, &handle), UNSUPPORTED);
            assert_null(handle);
        }
    }
    loch_handle *handle = TEST_UNTOUCHED;
    const loch_handle_options unknown = {.size = sizeof unknown, .share = 1u << 20};
    CHECK_FAILS_SET(loch_handle_create(bed->device, granule, &unknown, &handle),
                    TEST_SET(INVALID) | TEST_SET(UNSUPPORTED));
    assert_null(handle);
}

/* --- mappings --- */

static void a_map_where_it_may_not_changes_nothing(void **state)
{
    test_bed *bed = *state;
    NEEDS_VIRTUAL(bed);
    const size_t granule = bed->properties.granule_bytes;
    char *addresses = test_bed_reserve(bed, 4);
    loch_handle *one = test_bed_handle(bed, 1), *two = test_bed_handle(bed, 2), *five = test_bed_handle(bed, 5);

    CHECK_FAILS(loch_virtual_map(addresses + 1, one, NULL, 0), INVALID);
    CHECK_FAILS(loch_virtual_map(addresses + granule / 2, one, NULL, 0), INVALID);
    CHECK_FAILS(loch_virtual_map(addresses, NULL, NULL, 0), INVALID);
    CHECK_FAILS_SET(loch_virtual_map(NULL, one, NULL, 0), TEST_SET(INVALID) | TEST_SET(OUT_OF_RANGE));
    CHECK_FAILS(loch_virtual_map(addresses - granule, one, NULL, 0), OUT_OF_RANGE);
    CHECK_FAILS(loch_virtual_map(addresses - granule, two, NULL, 0), OUT_OF_RANGE);
    CHECK_FAILS(loch_virtual_map(addresses + 3 * granule, two, NULL, 0), OUT_OF_RANGE);
    CHECK_FAILS(loch_virtual_map(addresses + 4 * granule, one, NULL, 0), OUT_OF_RANGE);
    CHECK_FAILS(loch_virtual_map(addresses, five, NULL, 0), OUT_OF_RANGE);
    CHECK_FAILS_SET(loch_virtual_map((void *)(0 - granule), two, NULL, 0), TEST_SET(OUT_OF_RANGE) | TEST_SET(OVERFLOW));

    CHECK_OK(loch_virtual_map(addresses + granule, two, NULL, 0));
    CHECK_FAILS(loch_virtual_map(addresses + granule, one, NULL, 0), EXISTS);
    CHECK_FAILS(loch_virtual_map(addresses + 2 * granule, one, NULL, 0), EXISTS);
    CHECK_OK(loch_virtual_map(addresses, one, NULL, 0));
    CHECK_OK(loch_virtual_unmap(addresses));
    loch_handle *another = test_bed_handle(bed, 2);
    CHECK_FAILS(loch_virtual_map(addresses, another, NULL, 0), EXISTS);
    CHECK_FAILS(loch_virtual_map(addresses + 2 * granule, another, NULL, 0), EXISTS);

    CHECK_OK(loch_virtual_unmap(addresses + granule));
    CHECK_OK(loch_virtual_unreserve(addresses));
    CHECK_FAILS(loch_virtual_map(addresses, one, NULL, 0), OUT_OF_RANGE);
    loch_handle_destroy(one);
    loch_handle_destroy(two);
    loch_handle_destroy(five);
    loch_handle_destroy(another);
}

/* Reservations that happen to touch are still two. */
static void a_map_across_two_reservations_is_refused(void **state)
{
    test_bed *bed = *state;
    NEEDS_VIRTUAL(bed);
    const size_t granule = bed->properties.granule_bytes;
    char *starts[8];
    loch_handle *two = test_bed_handle(bed, 2);
    for (size_t i = 0; i < 8; i++)
        starts[i] = test_bed_reserve(bed, 1);
    for (size_t i = 0; i < 8; i++) {
        CHECK_FAILS(loch_virtual_map(starts[i], two, NULL, 0), OUT_OF_RANGE);
        CHECK_FAILS(loch_virtual_map(starts[i] - granule, two, NULL, 0), OUT_OF_RANGE);
    }
    for (size_t i = 0; i < 8; i++)
        CHECK_OK(loch_virtual_unreserve(starts[i]));
    loch_handle_destroy(two);
}

static void a_handle_of_another_device_is_not_mapped(void **state)
{
    test_bed *bed = *state;
    NEEDS_VIRTUAL(bed);
    loch_device *others[2] = {test_bed_open_other(bed, false), test_bed_open_other(bed, true)};
    char *addresses = test_bed_reserve(bed, 16);
    for (size_t i = 0; i < 2; i++) {
        if (!others[i] || !loch_device_can(others[i], LOCH_CAN_VIRTUAL)) continue;
        loch_device_properties properties = {.size = sizeof properties};
        CHECK_OK(loch_device_get_properties(others[i], &properties));
        loch_handle *foreign = NULL;
        CHECK_OK(loch_handle_create(others[i], properties.granule_bytes, NULL, &foreign));
        CHECK_FAILS(loch_virtual_map(addresses, foreign, NULL, 0), OUT_OF_RANGE);
        loch_handle_destroy(foreign);
    }
    CHECK_OK(loch_virtual_unreserve(addresses));
    loch_device_release(others[0]);
    loch_device_release(others[1]);
}

static void a_map_for_peers_reaches_those_that_can(void **state)
{
    test_bed *bed = *state;
    NEEDS_VIRTUAL(bed);
    loch_device *stranger = test_bed_open_other(bed, false), *sibling = test_bed_open_other(bed, true);
    char *addresses = test_bed_reserve(bed, 1);
    loch_handle *handle = test_bed_handle(bed, 1);
    loch_device *none = NULL;

    CHECK_FAILS_SET(loch_virtual_map(addresses, handle, &stranger, 1), TEST_SET(INVALID) | TEST_SET(UNSUPPORTED));
    CHECK_FAILS(loch_virtual_map(addresses, handle, NULL, 1), INVALID);
    CHECK_FAILS_SET(loch_virtual_map(addresses, handle, &none, 1),
                    TEST_SET(INVALID) | (test_bed_can(bed, LOCH_CAN_PEER) ? 0u : TEST_SET(UNSUPPORTED)));
    if (sibling && test_bed_can(bed, LOCH_CAN_PEER)) {
        CHECK_OK(loch_device_measure_calls(bed->device, LOCH_MEASURE_OFF));
        loch_status status = loch_virtual_map(addresses, handle, &sibling, 1);
        if (status != LOCH_E_UNSUPPORTED) {
            CHECK_OK(status);
            assert_int_equal(test_call_count(bed->device, "map"), 1);
            assert_int_equal(test_call_count(bed->device, "access"), 2);
            test_bed_put(bed, addresses, 4096, 1);
            test_bed_expect(bed, addresses, 4096, 1);
            CHECK_OK(loch_virtual_unmap(addresses));
        }
    }
    CHECK_OK(loch_virtual_map(addresses, handle, NULL, 0));
    CHECK_OK(loch_virtual_unmap(addresses));
    loch_handle_destroy(handle);
    CHECK_OK(loch_virtual_unreserve(addresses));
    loch_device_release(stranger);
    loch_device_release(sibling);
}

static void an_unmap_where_nothing_starts_is_refused(void **state)
{
    test_bed *bed = *state;
    NEEDS_VIRTUAL(bed);
    const size_t granule = bed->properties.granule_bytes;
    static char foreign[16];
    char *addresses = test_bed_reserve(bed, 4);
    void *block = test_bed_alloc(bed, LOCH_MEMORY_DEVICE, 100);
    loch_handle *handle = test_bed_map(bed, addresses + granule, 2);
    test_bed_put(bed, addresses + granule, 100, 8);

    CHECK_FAILS(loch_virtual_unmap(addresses + granule + 1), INTERIOR);
    CHECK_FAILS(loch_virtual_unmap(addresses + 2 * granule), INTERIOR);
    CHECK_FAILS(loch_virtual_unmap(addresses + 3 * granule - 1), INTERIOR);
    CHECK_FAILS(loch_virtual_unmap(addresses), NOT_FOUND);
    CHECK_FAILS(loch_virtual_unmap(addresses + 3 * granule), NOT_FOUND);
    CHECK_FAILS(loch_virtual_unmap(foreign), NOT_FOUND);
    CHECK_FAILS(loch_virtual_unmap(block), NOT_FOUND);
    CHECK_FAILS_SET(loch_virtual_unmap(NULL), TEST_SET(NOT_FOUND) | TEST_SET(INVALID));
    test_bed_expect(bed, addresses + granule, 100, 8);
    CHECK_OK(loch_virtual_unmap(addresses + granule));
    CHECK_FAILS(loch_virtual_unmap(addresses + granule), NOT_FOUND);

    loch_handle_destroy(handle);
    CHECK_OK(loch_raw_free(block));
    CHECK_OK(loch_virtual_unreserve(addresses));
}

static void unreserve_while_mapped_is_busy(void **state)
{
    test_bed *bed = *state;
    NEEDS_VIRTUAL(bed);
    const size_t granule = bed->properties.granule_bytes;
    char *addresses = test_bed_reserve(bed, 3);
    loch_handle *handle = test_bed_map(bed, addresses + 2 * granule, 1);
    test_bed_put(bed, addresses + 2 * granule, granule, 9);
    CHECK_FAILS(loch_virtual_unreserve(addresses), BUSY);
    test_bed_expect(bed, addresses + 2 * granule, granule, 9);
    CHECK_OK(loch_virtual_unmap(addresses + 2 * granule));
    CHECK_OK(loch_virtual_unreserve(addresses));
    loch_handle_destroy(handle);
}

static void contents_stay_with_the_handle(void **state)
{
    test_bed *bed = *state;
    NEEDS_VIRTUAL(bed);
    const size_t granule = bed->properties.granule_bytes;
    char *here = test_bed_reserve(bed, 4), *there = test_bed_reserve(bed, 6);
    loch_handle *first = test_bed_map(bed, here, 2), *second = test_bed_map(bed, here + 2 * granule, 2);

    test_bed_put(bed, here, 2 * granule, 31);
    test_bed_put(bed, here + 2 * granule, 2 * granule, 32);
    CHECK_OK(loch_virtual_unmap(here));
    test_bed_expect(bed, here + 2 * granule, 2 * granule, 32);
    CHECK_OK(loch_virtual_map(there + 3 * granule, first, NULL, 0));
    test_bed_expect(bed, there + 3 * granule, 2 * granule, 31);
    /* something else at the old address does not reach what was there */
    loch_handle *third = test_bed_map(bed, here, 2);
    test_bed_put(bed, here, 2 * granule, 33);
    test_bed_expect(bed, there + 3 * granule, 2 * granule, 31);
    CHECK_OK(loch_virtual_unmap(there + 3 * granule));
    CHECK_OK(loch_virtual_unmap(here + 2 * granule));
    CHECK_OK(loch_virtual_map(there, second, NULL, 0));
    CHECK_OK(loch_virtual_map(there + 2 * granule, first, NULL, 0));
    test_bed_expect(bed, there, 2 * granule, 32);
    test_bed_expect(bed, there + 2 * granule, 2 * granule, 31);
    test_bed_expect(bed, here, 2 * granule, 33);

    CHECK_OK(loch_virtual_unmap(here));
    CHECK_OK(loch_virtual_unmap(there));
    CHECK_OK(loch_virtual_unmap(there + 2 * granule));
    loch_handle_destroy(first);
    loch_handle_destroy(second);
    loch_handle_destroy(third);
    CHECK_OK(loch_virtual_unreserve(here));
    CHECK_OK(loch_virtual_unreserve(there));
}

static void a_handle_at_two_addresses_has_one_memory(void **state)
{
    test_bed *bed = *state;
    NEEDS_VIRTUAL(bed);
    const size_t granule = bed->properties.granule_bytes;
    char *addresses = test_bed_reserve(bed, 4);
    loch_handle *handle = test_bed_map(bed, addresses, 1);
    test_bed_put(bed, addresses, granule, 41);

    if (test_bed_can(bed, LOCH_CAN_ALIAS)) {
        CHECK_OK(loch_virtual_map(addresses + 2 * granule, handle, NULL, 0));
        CHECK_OK(loch_virtual_map(addresses + 3 * granule, handle, NULL, 0));
        test_bed_expect(bed, addresses + 2 * granule, granule, 41);
        test_bed_put(bed, addresses + 3 * granule, 4096, 42);
        test_bed_expect(bed, addresses, 4096, 42);
        CHECK_OK(loch_virtual_unmap(addresses));
        test_bed_expect(bed, addresses + 2 * granule, 4096, 42);
        CHECK_OK(loch_virtual_unmap(addresses + 3 * granule));
        loch_handle_destroy(handle);
        test_bed_expect(bed, addresses + 2 * granule, 4096, 42);
        CHECK_OK(loch_virtual_unmap(addresses + 2 * granule));
    } else {
        CHECK_FAILS(loch_virtual_map(addresses + 2 * granule, handle, NULL, 0), BUSY);
        test_bed_expect(bed, addresses, granule, 41);
        CHECK_OK(loch_virtual_unmap(addresses));
        CHECK_OK(loch_virtual_map(addresses + 2 * granule, handle, NULL, 0));
        test_bed_expect(bed, addresses + 2 * granule, granule, 41);
        CHECK_OK(loch_virtual_unmap(addresses + 2 * granule));
        loch_handle_destroy(handle);
    }
    CHECK_OK(loch_virtual_unreserve(addresses));
}

static size_t free_bytes(const test_bed *bed)
{
    loch_memory_info info = {.size = sizeof info};
    CHECK_OK(loch_device_calculate_memory(bed->device, &info));
    return info.free_bytes;
}

static void mapped_memory_stays_after_its_handle_was_destroyed(void **state)
{
    test_bed *bed = *state;
    NEEDS_VIRTUAL(bed);
    const size_t granule = bed->properties.granule_bytes;
    char *addresses = test_bed_reserve(bed, 2);
    size_t before = free_bytes(bed);
    loch_handle *handle = test_bed_map(bed, addresses, 2);
    test_bed_put(bed, addresses, 2 * granule, 51);
    loch_handle_destroy(handle);
    test_bed_expect(bed, addresses, 2 * granule, 51);
    test_bed_put(bed, addresses, 2 * granule, 52);
    test_bed_expect(bed, addresses, 2 * granule, 52);
    if (bed->is_sim) assert_int_equal(free_bytes(bed), before - 2 * granule);
    CHECK_OK(loch_virtual_unmap(addresses));
    if (bed->is_sim) assert_int_equal(free_bytes(bed), before);
    /* the addresses are free for another handle, which does not show the old contents by accident */
    handle = test_bed_map(bed, addresses, 2);
    test_bed_put(bed, addresses, 100, 53);
    test_bed_expect(bed, addresses, 100, 53);
    CHECK_OK(loch_virtual_unmap(addresses));
    loch_handle_destroy(handle);
    CHECK_OK(loch_virtual_unreserve(addresses));
}

static void many_handles_are_mapped_and_unmapped_in_any_order(void **state)
{
    test_bed *bed = *state;
    NEEDS_VIRTUAL(bed);
    enum { COUNT = 64 };
    const size_t granule = bed->properties.granule_bytes, room = bed->properties.total_bytes / granule / 2;
    const size_t count = room < COUNT ? room : COUNT;
    test_random random = {23};
    loch_handle *handles[COUNT];
    size_t place[COUNT];
    char *addresses = test_bed_reserve(bed, count);

    for (size_t i = 0; i < count; i++) {
        handles[i] = test_bed_map(bed, addresses + i * granule, 1);
        place[i] = i;
        test_bed_put(bed, addresses + i * granule + 16 * i, 512, i);
    }
    for (int round = 0; round < 3; round++) {
        for (size_t i = 1; i < count; i++) {
            size_t k = test_random_below(&random, i + 1), kept = place[i];
            place[i] = place[k];
            place[k] = kept;
        }
        for (size_t i = count; i > 0; i--)
            CHECK_OK(loch_virtual_unmap(addresses + (i - 1) * granule));
        for (size_t i = 0; i < count; i++)
            CHECK_OK(loch_virtual_map(addresses + place[i] * granule, handles[i], NULL, 0));
        for (size_t i = 0; i < count; i++)
            test_bed_expect(bed, addresses + place[i] * granule + 16 * i, 512, i);
    }
    for (size_t i = 0; i < count; i++) {
        if (i % 2) loch_handle_destroy(handles[i]);
        CHECK_OK(loch_virtual_unmap(addresses + place[i] * granule));
        if (!(i % 2)) loch_handle_destroy(handles[i]);
    }
    CHECK_OK(loch_virtual_unreserve(addresses));
}

/* --- the mapping around an address --- */

static void the_mapping_around_an_address_is_found(void **state)
{
    test_bed *bed = *state;
    NEEDS_VIRTUAL(bed);
    const size_t granule = bed->properties.granule_bytes;
    char *addresses = test_bed_reserve(bed, 4);
    loch_handle *handle = test_bed_map(bed, addresses + granule, 2);
    loch_virtual_info info = {.size = sizeof info};
    const size_t places[] = {0, 1, granule, 2 * granule - 1};
    for (size_t i = 0; i < sizeof places / sizeof *places; i++) {
        CHECK_OK(loch_virtual_find(addresses + granule + places[i], &info));
        assert_ptr_equal(info.start, addresses + granule);
        assert_int_equal(info.bytes, 2 * granule);
        assert_ptr_equal(info.handle, handle);
        assert_ptr_equal(info.device, bed->device);
        assert_int_equal(info.share, 0);
    }
    CHECK_FAILS(loch_virtual_find(addresses + granule - 1, &info), NOT_FOUND);
    assert_null(info.handle);
    CHECK_FAILS(loch_virtual_find(addresses + 3 * granule, &info), NOT_FOUND);
    CHECK_FAILS(loch_virtual_find(&info, &info), NOT_FOUND);
    CHECK_FAILS(loch_virtual_find(NULL, &info), INVALID);
    CHECK_FAILS(loch_virtual_find(addresses + granule, NULL), INVALID);
    loch_virtual_info unset = {.size = 0};
    CHECK_FAILS(loch_virtual_find(addresses + granule, &unset), INVALID);
    loch_virtual_info old = {.size = offsetof(loch_virtual_info, handle), .share = 77};
    CHECK_OK(loch_virtual_find(addresses + granule, &old));
    assert_int_equal(old.share, 77); /* beyond the caller's size */
    CHECK_OK(loch_virtual_unmap(addresses + granule));
    CHECK_FAILS(loch_virtual_find(addresses + granule, &info), NOT_FOUND);
    loch_handle_destroy(handle);

    void *raw = test_bed_alloc(bed, LOCH_MEMORY_DEVICE, 4096);
    CHECK_FAILS(loch_virtual_find(raw, &info), NOT_FOUND);
    CHECK_OK(loch_raw_free(raw));
    CHECK_OK(loch_virtual_unreserve(addresses));
}

static void the_memory_of_a_pool_is_found_with_its_ways_to_share(void **state)
{
    test_bed *bed = *state;
    NEEDS_VIRTUAL(bed);
    const bool can = test_bed_can(bed, LOCH_CAN_SHARE_FD);
    const loch_pool_options options = {
        .size = sizeof options,
        .handle = {.size = sizeof options.handle, .share = can ? LOCH_SHARE_FD : LOCH_SHARE_NONE}};
    loch_allocator *pool;
    void *block;
    loch_virtual_info info = {.size = sizeof info};
    CHECK_OK(loch_pool_create(bed->device, "shared", &options, &pool));
    CHECK_OK(loch_alloc(pool, 5000, &block));
    CHECK_OK(loch_virtual_find(block, &info));
    assert_int_equal(info.share, options.handle.share);
    assert_true((char *)info.start <= (char *)block && (char *)block + 5000 <= (char *)info.start + info.bytes);
    int descriptor = -1;
    if (can) {
        CHECK_OK(loch_handle_export(info.handle, LOCH_SHARE_FD, sizeof descriptor, &descriptor));
        assert_int_equal(close(descriptor), 0);
    }
    CHECK_OK(loch_free(pool, block));
    loch_allocator_release(pool);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(refused_without_the_capability),
        cmocka_unit_test(null_is_given_back),
        cmocka_unit_test(only_whole_granules_are_reserved),
        cmocka_unit_test(reservations_are_aligned_or_refused),
        cmocka_unit_test(reservations_do_not_overlap),
        cmocka_unit_test(unreserve_refuses_what_is_no_reservation),
        cmocka_unit_test(handles_have_whole_granules),
        cmocka_unit_test(options_of_handles_are_granted_or_refused),
        cmocka_unit_test(a_map_where_it_may_not_changes_nothing),
        cmocka_unit_test(a_map_across_two_reservations_is_refused),
        cmocka_unit_test(a_handle_of_another_device_is_not_mapped),
        cmocka_unit_test(a_map_for_peers_reaches_those_that_can),
        cmocka_unit_test(an_unmap_where_nothing_starts_is_refused),
        cmocka_unit_test(unreserve_while_mapped_is_busy),
        cmocka_unit_test(contents_stay_with_the_handle),
        cmocka_unit_test(a_handle_at_two_addresses_has_one_memory),
        cmocka_unit_test(mapped_memory_stays_after_its_handle_was_destroyed),
        cmocka_unit_test(many_handles_are_mapped_and_unmapped_in_any_order),
        cmocka_unit_test(the_mapping_around_an_address_is_found),
        cmocka_unit_test(the_memory_of_a_pool_is_found_with_its_ways_to_share),
    };
    return TEST_BED_RUN(tests);
}

/* SPDX-License-Identifier: MIT */
/* Contract of virtual.h, the optional parts: moving a mapping, sharing handles. */
#include "device/virtual.h"
#include "bed.h"

#include <unistd.h>

/* --- move --- */

static void move_needs_the_capability(void **state)
{
    test_bed *bed = *state;
    if (!test_bed_can(bed, LOCH_CAN_VIRTUAL) || test_bed_can(bed, LOCH_CAN_REMAP)) return;
    const size_t granule = bed->properties.granule_bytes;
    char *addresses = test_bed_reserve(bed, 2);
    loch_handle *handle = test_bed_map(bed, addresses, 1);
    test_bed_put(bed, addresses, granule, 1);
    CHECK_FAILS(lochi_virtual_remap(addresses, addresses + granule), UNSUPPORTED);
    test_bed_expect(bed, addresses, granule, 1);
    CHECK_OK(loch_virtual_unmap(addresses));
    loch_handle_destroy(handle);
    CHECK_OK(loch_virtual_unreserve(addresses));
}

static void move_takes_the_contents_along(void **state)
{
    test_bed *bed = *state;
    if (!test_bed_can(bed, LOCH_CAN_REMAP)) return;
    const size_t granule = bed->properties.granule_bytes;
    loch_address_info info = {.size = sizeof info};
    char *here = test_bed_reserve(bed, 6), *there = test_bed_reserve(bed, 3);
    loch_handle *handle = test_bed_map(bed, here, 2);
    test_bed_put(bed, here, 2 * granule, 1);

    char *stations[] = {here + 2 * granule, here + 4 * granule, there + granule, there, here};
    char *from = here;
    for (size_t i = 0; i < sizeof stations / sizeof *stations; i++) {
        if (stations[i] == there) { /* a move onto itself in part, refused; go round */
            CHECK_FAILS(lochi_virtual_remap(from, stations[i]), EXISTS);
            test_bed_expect(bed, from, 2 * granule, 1);
            continue;
        }
        CHECK_OK(lochi_virtual_remap(from, stations[i]));
        test_bed_expect(bed, stations[i], 2 * granule, 1);
        CHECK_FAILS(loch_address_query(from, &info), NOT_FOUND);
        CHECK_FAILS(loch_virtual_unmap(from), NOT_FOUND);
        from = stations[i];
    }
    /* the addresses left behind take another handle */
    loch_handle *other = test_bed_map(bed, there + granule, 2);
    test_bed_put(bed, there + granule, 100, 2);
    test_bed_expect(bed, here, 2 * granule, 1);
    CHECK_OK(loch_virtual_unmap(there + granule));
    loch_handle_destroy(other);

    /* the handle still has its contents when it is unmapped after a move, and moves after it was destroyed */
    CHECK_OK(loch_virtual_unmap(here));
    CHECK_OK(loch_virtual_map(here + granule, handle, NULL, 0));
    test_bed_expect(bed, here + granule, 2 * granule, 1);
    loch_handle_destroy(handle);
    CHECK_OK(lochi_virtual_remap(here + granule, there));
    test_bed_expect(bed, there, 2 * granule, 1);
    CHECK_OK(loch_virtual_unmap(there));
    CHECK_OK(loch_virtual_unreserve(here));
    CHECK_OK(loch_virtual_unreserve(there));
}

static void a_move_where_it_may_not_changes_nothing(void **state)
{
    test_bed *bed = *state;
    if (!test_bed_can(bed, LOCH_CAN_REMAP)) return;
    const size_t granule = bed->properties.granule_bytes;
    char *addresses = test_bed_reserve(bed, 8);
    loch_handle *first = test_bed_map(bed, addresses, 2), *second = test_bed_map(bed, addresses + 4 * granule, 1);
    test_bed_put(bed, addresses, 2 * granule, 1);
    test_bed_put(bed, addresses + 4 * granule, granule, 2);

    CHECK_FAILS(lochi_virtual_remap(addresses + 2 * granule, addresses + 5 * granule), NOT_FOUND);
    CHECK_FAILS(lochi_virtual_remap(addresses + granule, addresses + 5 * granule), INTERIOR);
    CHECK_FAILS(lochi_virtual_remap(addresses, addresses + 4 * granule), EXISTS);
    CHECK_FAILS(lochi_virtual_remap(addresses, addresses + 3 * granule), EXISTS);
    CHECK_FAILS(lochi_virtual_remap(addresses, addresses + 7 * granule), OUT_OF_RANGE);
    CHECK_FAILS(lochi_virtual_remap(addresses, addresses + 8 * granule), OUT_OF_RANGE);
    CHECK_FAILS(lochi_virtual_remap(addresses, addresses + 5 * granule + 1), INVALID);
    CHECK_FAILS_SET(lochi_virtual_remap(addresses, NULL), TEST_SET(INVALID) | TEST_SET(OUT_OF_RANGE));
    CHECK_FAILS_SET(lochi_virtual_remap(NULL, addresses), TEST_SET(INVALID) | TEST_SET(NOT_FOUND));
    test_bed_expect(bed, addresses, 2 * granule, 1);
    test_bed_expect(bed, addresses + 4 * granule, granule, 2);

    CHECK_OK(loch_virtual_unmap(addresses));
    CHECK_OK(loch_virtual_unmap(addresses + 4 * granule));
    loch_handle_destroy(first);
    loch_handle_destroy(second);
    CHECK_OK(loch_virtual_unreserve(addresses));
}

/* Takes every second granule out of a long row and closes the gaps, as compaction does. */
static void moves_close_gaps(void **state)
{
    test_bed *bed = *state;
    if (!test_bed_can(bed, LOCH_CAN_REMAP)) return;
    enum { COUNT = 32 };
    const size_t granule = bed->properties.granule_bytes;
    char *addresses = test_bed_reserve(bed, 2 * COUNT);
    loch_handle *handles[COUNT];
    for (size_t i = 0; i < COUNT; i++) {
        handles[i] = test_bed_map(bed, addresses + 2 * i * granule, 1);
        test_bed_put(bed, addresses + 2 * i * granule, 1024, i);
    }
    for (size_t i = 1; i < COUNT; i++)
        CHECK_OK(lochi_virtual_remap(addresses + 2 * i * granule, addresses + i * granule));
    for (size_t i = 0; i < COUNT; i++)
        test_bed_expect(bed, addresses + i * granule, 1024, i);
    for (size_t i = 0; i < COUNT; i++) {
        loch_handle_destroy(handles[i]);
        CHECK_OK(loch_virtual_unmap(addresses + i * granule));
    }
    CHECK_OK(loch_virtual_unreserve(addresses));
}

/* --- sharing --- */

static void export_needs_a_shareable_handle(void **state)
{
    test_bed *bed = *state;
    if (!test_bed_can(bed, LOCH_CAN_VIRTUAL)) return;
    unsigned char out[LOCH_SHARE_BYTES_MAX];
    loch_handle *handle = test_bed_handle(bed, 1);
    bool can = test_bed_can(bed, LOCH_CAN_SHARE_FD);
    CHECK_FAILS_SET(loch_handle_export(handle, LOCH_SHARE_FD, sizeof out, out),
                    TEST_SET(INVALID) | (can ? 0u : TEST_SET(UNSUPPORTED)));
    CHECK_FAILS_SET(loch_handle_export(handle, LOCH_SHARE_FABRIC, sizeof out, out),
                    TEST_SET(INVALID) | TEST_SET(UNSUPPORTED));
    CHECK_FAILS_SET(loch_handle_export(handle, LOCH_SHARE_NONE, sizeof out, out),
                    TEST_SET(INVALID) | (can ? 0u : TEST_SET(UNSUPPORTED)));
    loch_handle_destroy(handle);
    if (!can) {
        int descriptor = -1;
        handle = TEST_UNTOUCHED;
        CHECK_FAILS(loch_handle_import(bed->device, LOCH_SHARE_FD, &descriptor, bed->properties.granule_bytes, &handle),
                    UNSUPPORTED);
        assert_null(handle);
    }
}

static void shared_handles_have_one_memory(void **state)
{
    test_bed *bed = *state;
    if (!test_bed_can(bed, LOCH_CAN_SHARE_FD)) return;
    const size_t granule = bed->properties.granule_bytes;
    const loch_handle_options options = {.size = sizeof options, .share = LOCH_SHARE_FD};
    char *addresses = test_bed_reserve(bed, 4);
    loch_handle *handle = NULL, *imported = TEST_UNTOUCHED;
    int descriptor = -1, nonsense = -1;

    CHECK_OK(loch_handle_create(bed->device, 2 * granule, &options, &handle));
    CHECK_OK(loch_virtual_map(addresses, handle, NULL, 0));
    test_bed_put(bed, addresses, 2 * granule, 71);
    CHECK_FAILS(loch_handle_export(handle, LOCH_SHARE_FD, sizeof descriptor - 1, &descriptor), INVALID);
    CHECK_OK(loch_handle_export(handle, LOCH_SHARE_FD, sizeof descriptor, &descriptor));
    assert_true(descriptor >= 0);

    CHECK_OK(loch_handle_import(bed->device, LOCH_SHARE_FD, &descriptor, 2 * granule, &imported));
    assert_int_equal(loch_handle_get_bytes(imported), 2 * granule);
    bool is_alias = test_bed_can(bed, LOCH_CAN_ALIAS);
    if (!is_alias) CHECK_OK(loch_virtual_unmap(addresses)); /* it is one memory, at one address at a time */
    CHECK_OK(loch_virtual_map(addresses + 2 * granule, imported, NULL, 0));
    test_bed_expect(bed, addresses + 2 * granule, 2 * granule, 71);
    test_bed_put(bed, addresses + 2 * granule, 5000, 72);
    if (is_alias) test_bed_expect(bed, addresses, 5000, 72);
    if (is_alias) CHECK_OK(loch_virtual_unmap(addresses));
    /* the importer keeps the memory after the exporter has gone */
    loch_handle_destroy(handle);
    test_bed_expect(bed, addresses + 2 * granule, 5000, 72);
    CHECK_OK(loch_virtual_unmap(addresses + 2 * granule));
    loch_handle_destroy(imported);
    assert_int_equal(close(descriptor), 0); /* it stayed the caller's */

    imported = TEST_UNTOUCHED;
    assert_true(loch_handle_import(bed->device, LOCH_SHARE_FD, &nonsense, granule, &imported) != LOCH_OK);
    assert_null(imported);
    imported = TEST_UNTOUCHED;
    CHECK_FAILS(loch_handle_import(bed->device, LOCH_SHARE_FD, &descriptor, granule + 1, &imported), INVALID);
    assert_null(imported);
    CHECK_OK(loch_virtual_unreserve(addresses));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(move_needs_the_capability),
        cmocka_unit_test(move_takes_the_contents_along),
        cmocka_unit_test(a_move_where_it_may_not_changes_nothing),
        cmocka_unit_test(moves_close_gaps),
        cmocka_unit_test(export_needs_a_shareable_handle),
        cmocka_unit_test(shared_handles_have_one_memory),
    };
    return TEST_BED_RUN(tests);
}

/* SPDX-License-Identifier: MIT */
/* Contract of copy.h: every pair of places, stated directions, ranges, streams. Overlap and fills: test_overlap.c. */
#include "bed.h"

#define PLACE_BYTES (5 * TEST_MIB)
#define PLACES_MAX 8

/* Memory to copy from and to. */
typedef struct place {
    const char *what;
    char *address;
    size_t bytes;
    loch_device *device; /* NULL for plain host memory; owned when `is_other` */
    bool is_other;       /* a device beside the bed's */
    bool is_host;        /* counts as host memory for a stated direction */
    bool has_data;
    char *reservation; /* several adjacent mappings */
    size_t mappings;
} place;

typedef struct places {
    place at[PLACES_MAX];
    size_t count;
} places;

static place *places_add(places *all, const char *what, loch_device *device, void *address)
{
    assert_true(all->count < PLACES_MAX);
    place *p = &all->at[all->count++];
    *p = (place){.what = what, .address = address, .bytes = PLACE_BYTES, .device = device, .has_data = true};
    p->is_host = !device || loch_device_can(device, LOCH_CAN_HOST_ACCESS);
    return p;
}

static void places_add_other(places *all, const test_bed *bed, bool same_driver)
{
    loch_device *other = test_bed_open_other(bed, same_driver);
    void *address = NULL;
    if (!other) return;
    CHECK_OK(loch_raw_alloc(other, LOCH_MEMORY_DEVICE, PLACE_BYTES, 0, &address));
    place *p = places_add(all, same_driver ? "other of its kind" : "other of another kind", other, address);
    p->is_other = true;
    p->has_data = !same_driver || bed->has_data;
}

/* Mappings of one, two and one granules side by side. */
static void places_add_mapped(places *all, const test_bed *bed)
{
    const size_t granule = bed->properties.granule_bytes;
    size_t granules = 4 + PLACE_BYTES / granule, at = 0;
    char *start = test_bed_reserve(bed, granules);
    place *p = places_add(all, "mapped", bed->device, start);
    p->reservation = start;
    p->bytes = granules * granule;
    while (at < granules) {
        size_t length = p->mappings == 1 ? granules - 2 : 1;
        loch_handle_destroy(test_bed_map(bed, start + at * granule, length));
        at += length;
        p->mappings++;
    }
    p->has_data = bed->has_data;
}

static void places_make(places *all, const test_bed *bed)
{
    memset(all, 0, sizeof *all);
    char *host = malloc(PLACE_BYTES);
    assert_non_null(host);
    places_add(all, "host", NULL, host);
    places_add(all, "device", bed->device, test_bed_alloc(bed, LOCH_MEMORY_DEVICE, PLACE_BYTES))->has_data =
        bed->has_data;
    if (test_bed_can(bed, LOCH_CAN_PINNED)) {
        place *p = places_add(all, "pinned", bed->device, test_bed_alloc(bed, LOCH_MEMORY_PINNED, PLACE_BYTES));
        p->is_host = true;
        p->has_data = bed->has_data;
    }
    if (test_bed_can(bed, LOCH_CAN_VIRTUAL)) places_add_mapped(all, bed);
    places_add_other(all, bed, false);
    places_add_other(all, bed, true);
}

static void places_drop(places *all)
{
    for (size_t i = 0; i < all->count; i++) {
        place *p = &all->at[i];
        if (!p->device) {
            free(p->address);
        } else if (p->reservation) {
            for (char *at = p->reservation; at < p->reservation + p->bytes;) {
                loch_address_info info = {.size = sizeof info};
                CHECK_OK(loch_address_query(at, &info));
                CHECK_OK(loch_virtual_unmap(at));
                at += info.bytes;
            }
            CHECK_OK(loch_virtual_unreserve(p->reservation));
        } else {
            CHECK_OK(loch_raw_free(p->address));
        }
        if (p->is_other) loch_device_release(p->device);
    }
}

static loch_direction direction_of(const place *from, const place *to)
{
    if (from->is_host) return to->is_host ? LOCH_HOST_TO_HOST : LOCH_HOST_TO_DEVICE;
    if (to->is_host) return LOCH_DEVICE_TO_HOST;
    return from->device == to->device ? LOCH_DEVICE_TO_DEVICE : LOCH_PEER_TO_PEER;
}

/* Puts a known pattern and guards around the target, copies, and looks at target and guards. */
static void check_copy(const test_bed *bed, const loch_copy_options *options, const place *from, size_t from_offset,
                       const place *to, size_t to_offset, size_t bytes)
{
    const test_bed seeing = {.has_data = from->has_data && to->has_data};
    char *target = to->address + to_offset;
    test_bed_put(bed, from->address + from_offset, bytes, 100 + bytes);
    if (to_offset >= 16) test_bed_put(bed, target - 16, 16, 5);
    test_bed_put(bed, target + bytes, 16, 6);
    if (options)
        CHECK_OK(loch_copy_with(target, from->address + from_offset, bytes, options));
    else
        CHECK_OK(loch_copy(target, from->address + from_offset, bytes));
    if (options && options->wait != LOCH_WAIT_END) CHECK_OK(loch_stream_sync(options->stream));
    test_bed_expect(&seeing, target, bytes, 100 + bytes);
    if (to_offset >= 16) test_bed_expect(&seeing, target - 16, 16, 5);
    test_bed_expect(&seeing, target + bytes, 16, 6);
}

static void every_pair_of_places_can_be_copied(void **state)
{
    test_bed *bed = *state;
    const size_t sizes[] = {0, 1, 3, 4095, 4096, TEST_MIB + 7, PLACE_BYTES / 2 - 100};
    places all;
    places_make(&all, bed);
    for (size_t f = 0; f < all.count; f++)
        for (size_t t = 0; t < all.count; t++)
            for (size_t s = 0; s < sizeof sizes / sizeof *sizes; s++) {
                const place *from = &all.at[f], *to = &all.at[t];
                size_t half = PLACE_BYTES / 2 + 16; /* so that one place can be both */
                check_copy(bed, NULL, from, 0, to, half, sizes[s]);
                if (s % 2) check_copy(bed, NULL, from, half + 3, to, 17, sizes[s]);
            }
    places_drop(&all);
}

static void every_pair_of_places_can_be_copied_on_a_stream(void **state)
{
    test_bed *bed = *state;
    const size_t sizes[] = {1, 4096, TEST_MIB + 7};
    loch_stream *stream = NULL;
    places all;
    places_make(&all, bed);
    CHECK_OK(loch_stream_create(bed->device, NULL, &stream));
    const loch_wait waits[] = {LOCH_WAIT_DEFAULT, LOCH_WAIT_QUEUED, LOCH_WAIT_END};
    for (size_t f = 0; f < all.count; f++)
        for (size_t t = 0; t < all.count; t++) {
            const place *from = &all.at[f], *to = &all.at[t];
            if (from->device != bed->device && to->device != bed->device) continue;
            for (size_t s = 0; s < 3; s++) {
                loch_copy_options options = {.size = sizeof options, .stream = stream, .wait = waits[s]};
                check_copy(bed, &options, from, 1, to, PLACE_BYTES / 2 + 16, sizes[s]);
                if (options.wait == LOCH_WAIT_END) CHECK_OK(loch_stream_query(stream));
            }
        }
    loch_stream_close(stream);
    places_drop(&all);
}

static void stated_directions_are_checked(void **state)
{
    test_bed *bed = *state;
    places all;
    places_make(&all, bed);
    for (size_t f = 0; f < all.count; f++)
        for (size_t t = 0; t < all.count; t++) {
            const place *from = &all.at[f], *to = &all.at[t];
            char *target = to->address + PLACE_BYTES / 2;
            for (int d = LOCH_HOST_TO_HOST; d <= LOCH_PEER_TO_PEER; d++) {
                const loch_copy_options options = {.size = sizeof options, .direction = (loch_direction)d};
                if (options.direction == direction_of(from, to)) {
                    CHECK_OK(loch_copy_with(target, from->address, 1000, &options));
                    continue;
                }
                loch_error_clear();
                loch_status status = loch_copy_with(target, from->address, 1000, &options);
                if (status != LOCH_E_INVALID)
                    fail_msg("%s to %s, stated as %d, gave %s", from->what, to->what, d, loch_status_name(status));
                assert_true(loch_error_get()->sentence[0]);
            }
        }
    const loch_copy_options unknown = {.size = sizeof unknown, .direction = (loch_direction)77};
    CHECK_FAILS(loch_copy_with(all.at[1].address, all.at[0].address, 10, &unknown), INVALID);
    const loch_copy_options plain = {.size = sizeof plain};
    CHECK_OK(loch_copy_with(all.at[1].address, all.at[0].address, 10, &plain));
    CHECK_OK(loch_copy_with(all.at[1].address, all.at[0].address, 10, NULL));
    places_drop(&all);
}

/* --- ranges --- */

static void no_bytes_are_copied_from_anywhere_and_null_is_refused(void **state)
{
    test_bed *bed = *state;
    char host[16] = {0};
    char *block = test_bed_alloc(bed, LOCH_MEMORY_DEVICE, 100);
    char *wrapping = (char *)(UINTPTR_MAX - 3);
    CHECK_OK(loch_copy(NULL, NULL, 0));
    CHECK_OK(loch_copy(block + 1000, host, 0));
    CHECK_OK(loch_copy(wrapping, wrapping, 0));
    CHECK_OK(loch_copy_on(NULL, block, 0, loch_stream_get_default(bed->device)));
    CHECK_FAILS(loch_copy(NULL, block, 16), INVALID);
    CHECK_FAILS(loch_copy(block, NULL, 16), INVALID);
    CHECK_FAILS(loch_copy(NULL, NULL, 1), INVALID);
    CHECK_FAILS(loch_copy(host, NULL, 16), INVALID);
    CHECK_FAILS(loch_copy(block, wrapping, 16), OVERFLOW);
    CHECK_FAILS(loch_copy(wrapping, block, 16), OVERFLOW);
    CHECK_FAILS(loch_copy(block, host, SIZE_MAX), OVERFLOW);
    CHECK_FAILS(loch_copy(host, block, SIZE_MAX), OVERFLOW);
    CHECK_OK(loch_raw_free(block));
}

static void a_copy_one_byte_too_long_is_refused(void **state)
{
    test_bed *bed = *state;
    const size_t bytes = 8192;
    char *host = malloc(bytes + 2);
    char *block = test_bed_alloc(bed, LOCH_MEMORY_DEVICE, bytes);
    test_bed_put(bed, block, bytes, 1);
    test_pattern_write(host, bytes + 2, 2);

    CHECK_FAILS(loch_copy(block, host, bytes + 1), OUT_OF_RANGE);
    CHECK_FAILS(loch_copy(block + 1, host, bytes), OUT_OF_RANGE);
    CHECK_FAILS(loch_copy(block + bytes - 1, host, 2), OUT_OF_RANGE);
    CHECK_FAILS(loch_copy(block - 1, host, bytes), OUT_OF_RANGE);
    CHECK_FAILS(loch_copy(block - 1, host, bytes + 2), OUT_OF_RANGE);
    test_bed_expect(bed, block, bytes, 1);
    CHECK_FAILS(loch_copy(host, block, bytes + 1), OUT_OF_RANGE);
    CHECK_FAILS(loch_copy(host, block + bytes - 1, 2), OUT_OF_RANGE);
    CHECK_FAILS(loch_copy(host, block - 1, 2), OUT_OF_RANGE);
    assert_int_equal(test_pattern_differs(host, bytes + 2, 2), bytes + 2);
    CHECK_FAILS(loch_copy(block, block + 1, bytes), OUT_OF_RANGE);
    CHECK_FAILS(loch_copy_on(block + 1, host, bytes, loch_stream_get_default(bed->device)), OUT_OF_RANGE);
    test_bed_expect(bed, block, bytes, 1);
    CHECK_OK(loch_copy(host, block + bytes - 1, 1));
    CHECK_OK(loch_raw_free(block));
    free(host);
}

/* A block that touches the next one nevertheless ends at its own end. */
static void blocks_that_touch_are_apart(void **state)
{
    test_bed *bed = *state;
    enum { COUNT = 32 };
    const size_t bytes = 4096;
    char *blocks[COUNT], *host = malloc(bytes);
    size_t touching = 0;
    for (size_t i = 0; i < COUNT; i++)
        blocks[i] = test_bed_alloc(bed, LOCH_MEMORY_DEVICE, bytes);
    for (size_t i = 0; i < COUNT; i++) {
        for (size_t k = 0; k < COUNT; k++)
            touching += blocks[i] + bytes == blocks[k];
        CHECK_FAILS(loch_copy(host, blocks[i] + 1, bytes), OUT_OF_RANGE);
        CHECK_FAILS(loch_fill(blocks[i] + bytes / 2, bytes, "t", 1), OUT_OF_RANGE);
    }
    if (bed->is_sim) assert_true(touching > 0);
    for (size_t i = 0; i < COUNT; i++)
        CHECK_OK(loch_raw_free(blocks[i]));
    free(host);
}

static void a_copy_over_a_hole_between_mappings_is_refused(void **state)
{
    test_bed *bed = *state;
    if (!test_bed_can(bed, LOCH_CAN_VIRTUAL)) return;
    const size_t granule = bed->properties.granule_bytes;
    char *host = calloc(1, 3 * granule);
    char *addresses = test_bed_reserve(bed, 4);
    CHECK_FAILS(loch_copy(addresses, host, 1), OUT_OF_RANGE);
    CHECK_FAILS(loch_copy(host, addresses, 1), OUT_OF_RANGE);
    loch_handle_destroy(test_bed_map(bed, addresses, 1));
    loch_handle_destroy(test_bed_map(bed, addresses + 2 * granule, 1));
    test_bed_put(bed, addresses, granule, 1);
    test_bed_put(bed, addresses + 2 * granule, granule, 2);

    CHECK_FAILS(loch_copy(addresses, host, 3 * granule), OUT_OF_RANGE);
    CHECK_FAILS(loch_copy(addresses, host, granule + 1), OUT_OF_RANGE);
    CHECK_FAILS(loch_copy(addresses + 2 * granule - 1, host, 2), OUT_OF_RANGE);
    CHECK_FAILS(loch_copy(addresses + granule, host, 1), OUT_OF_RANGE);
    CHECK_FAILS(loch_copy(addresses + 3 * granule - 1, host, 2), OUT_OF_RANGE);
    CHECK_FAILS(loch_copy(host, addresses, 3 * granule), OUT_OF_RANGE);
    CHECK_FAILS(loch_copy(host, addresses + 2 * granule - 1, granule), OUT_OF_RANGE);
    CHECK_FAILS(loch_copy(addresses, addresses + granule, granule), OUT_OF_RANGE);
    test_bed_expect(bed, addresses, granule, 1);
    test_bed_expect(bed, addresses + 2 * granule, granule, 2);

    loch_handle_destroy(test_bed_map(bed, addresses + granule, 1));
    test_bed_put(bed, addresses + granule / 2, 2 * granule, 3);
    test_bed_expect(bed, addresses + granule / 2, 2 * granule, 3);
    for (size_t i = 0; i < 3; i++)
        CHECK_OK(loch_virtual_unmap(addresses + i * granule));
    CHECK_OK(loch_virtual_unreserve(addresses));
    free(host);
}

/* --- streams --- */

static void the_stream_has_to_be_involved(void **state)
{
    test_bed *bed = *state;
    char host[64] = {0};
    loch_device *other = test_bed_open_other(bed, false);
    loch_stream *foreign = NULL;
    void *block = test_bed_alloc(bed, LOCH_MEMORY_DEVICE, 64);
    CHECK_OK(loch_stream_create(other, NULL, &foreign));
    CHECK_FAILS(loch_copy_on(block, host, 64, foreign), INVALID);
    CHECK_FAILS(loch_copy_on(host, block, 64, foreign), INVALID);
    CHECK_FAILS(loch_copy_on(block, host, 64, loch_stream_get_default(other)), INVALID);
    CHECK_FAILS(loch_fill_on(block, 64, "a", 1, foreign), INVALID);
    const loch_copy_options options = {.size = sizeof options, .stream = foreign, .wait = LOCH_WAIT_END};
    CHECK_FAILS(loch_copy_with(block, host, 64, &options), INVALID);
    loch_stream_close(foreign);
    CHECK_OK(loch_raw_free(block));
    loch_device_release(other);
}

static void no_stream_is_the_default_one(void **state)
{
    test_bed *bed = *state;
    char host[4096];
    void *block = test_bed_alloc(bed, LOCH_MEMORY_DEVICE, sizeof host);
    test_pattern_write(host, sizeof host, 9);
    CHECK_OK(loch_copy_on(block, host, sizeof host, NULL));
    CHECK_OK(loch_stream_sync(loch_stream_get_default(bed->device)));
    test_bed_expect(bed, block, sizeof host, 9);
    const loch_copy_options queued = {.size = sizeof queued, .wait = LOCH_WAIT_QUEUED};
    test_pattern_write(host, sizeof host, 10);
    CHECK_OK(loch_copy_with(block, host, sizeof host, &queued));
    CHECK_OK(loch_device_sync(bed->device));
    test_bed_expect(bed, block, sizeof host, 10);
    CHECK_OK(loch_raw_free(block));
}

/* Work on one stream happens in its order, host copies between pinned blocks included. */
static void copies_on_one_stream_are_ordered(void **state)
{
    test_bed *bed = *state;
    if (!test_bed_can(bed, LOCH_CAN_PINNED)) return;
    enum { STEPS = 8 };
    const size_t bytes = 256 * TEST_KIB;
    loch_stream *stream = NULL;
    CHECK_OK(loch_stream_create(bed->device, NULL, &stream));
    char *pinned[2] = {test_bed_alloc(bed, LOCH_MEMORY_PINNED, bytes), test_bed_alloc(bed, LOCH_MEMORY_PINNED, bytes)};
    char *blocks[2] = {test_bed_alloc(bed, LOCH_MEMORY_DEVICE, bytes), test_bed_alloc(bed, LOCH_MEMORY_DEVICE, bytes)};
    if (bed->has_data) test_pattern_write(pinned[0], bytes, 77);
    for (int i = 0; i < STEPS; i++) {
        CHECK_OK(loch_copy_on(blocks[0], pinned[0], bytes, stream));
        CHECK_OK(loch_copy_on(blocks[1], blocks[0], bytes, stream));
        CHECK_OK(loch_copy_on(pinned[1], blocks[1], bytes, stream));
        CHECK_OK(loch_fill_on(pinned[0], bytes, "x", 1, stream));
        CHECK_OK(loch_copy_on(pinned[0], pinned[1], bytes, stream));
        CHECK_OK(loch_fill_on(blocks[1], bytes, "y", 1, stream));
    }
    CHECK_OK(loch_stream_sync(stream));
    if (bed->has_data) assert_int_equal(test_pattern_differs(pinned[0], bytes, 77), bytes);
    test_bed_expect(bed, blocks[0], bytes, 77);
    test_bed_expect_byte(bed, blocks[1], bytes, 'y');
    for (int i = 0; i < 2; i++) {
        CHECK_OK(loch_raw_free(pinned[i]));
        CHECK_OK(loch_raw_free(blocks[i]));
    }
    loch_stream_close(stream);
}

/* A copy between host memory and a device's pinned memory comes behind that device's default stream too. */
static void host_copies_wait_for_the_default_stream(void **state)
{
    test_bed *bed = *state;
    if (!test_bed_can(bed, LOCH_CAN_PINNED)) return;
    const size_t bytes = 2 * TEST_MIB;
    char *host = calloc(1, bytes);
    char *pinned = test_bed_alloc(bed, LOCH_MEMORY_PINNED, bytes);
    char *block = test_bed_alloc(bed, LOCH_MEMORY_DEVICE, bytes);
    test_bed_put(bed, block, bytes, 61);
    if (bed->has_data) memset(pinned, 0, bytes);
    CHECK_OK(loch_copy_on(pinned, block, bytes, loch_stream_get_default(bed->device)));
    CHECK_OK(loch_copy(host, pinned, bytes));
    if (bed->has_data) assert_int_equal(test_pattern_differs(host, bytes, 61), bytes);
    CHECK_OK(loch_copy_on(block, pinned, bytes, loch_stream_get_default(bed->device)));
    CHECK_OK(loch_fill(pinned, bytes, "z", 1));
    test_bed_expect(bed, block, bytes, 61);
    CHECK_OK(loch_raw_free(pinned));
    CHECK_OK(loch_raw_free(block));
    free(host);
}

/* On a clock that stands still it can be seen that a queued copy has not happened. */
static void a_queued_copy_has_not_happened_yet(void **state)
{
    test_bed *bed = *state;
    if (!bed->is_stepped) return;
    loch_stream *stream = NULL, *other = NULL;
    CHECK_OK(loch_stream_create(bed->device, NULL, &stream));
    CHECK_OK(loch_stream_create(bed->device, NULL, &other));
    char *pinned = test_bed_alloc(bed, LOCH_MEMORY_PINNED, 4096);
    char *block = test_bed_alloc(bed, LOCH_MEMORY_DEVICE, 4096);
    char *second = test_bed_alloc(bed, LOCH_MEMORY_DEVICE, 4096);
    CHECK_OK(loch_copy_on(block, pinned, 4096, stream));
    CHECK_STATUS(loch_stream_query(stream), LOCH_E_BUSY);
    CHECK_OK(loch_copy_on(pinned, block, 4096, stream));
    CHECK_OK(loch_copy_on(block, pinned, 4096, stream));
    /* waits for the end of its own work and of no other stream's */
    const loch_copy_options options = {.size = sizeof options, .stream = other, .wait = LOCH_WAIT_END};
    char *apart = test_bed_alloc(bed, LOCH_MEMORY_PINNED, 4096);
    CHECK_OK(loch_copy_with(second, apart, 4096, &options));
    CHECK_OK(loch_stream_query(other));
    CHECK_STATUS(loch_stream_query(stream), LOCH_E_BUSY);
    CHECK_OK(loch_stream_sync(stream));
    CHECK_OK(loch_stream_query(stream));
    CHECK_OK(loch_raw_free(pinned));
    CHECK_OK(loch_raw_free(apart));
    CHECK_OK(loch_raw_free(block));
    CHECK_OK(loch_raw_free(second));
    loch_stream_close(stream);
    loch_stream_close(other);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_pair_of_places_can_be_copied),
        cmocka_unit_test(every_pair_of_places_can_be_copied_on_a_stream),
        cmocka_unit_test(stated_directions_are_checked),
        cmocka_unit_test(no_bytes_are_copied_from_anywhere_and_null_is_refused),
        cmocka_unit_test(a_copy_one_byte_too_long_is_refused),
        cmocka_unit_test(blocks_that_touch_are_apart),
        cmocka_unit_test(a_copy_over_a_hole_between_mappings_is_refused),
        cmocka_unit_test(the_stream_has_to_be_involved),
        cmocka_unit_test(no_stream_is_the_default_one),
        cmocka_unit_test(copies_on_one_stream_are_ordered),
        cmocka_unit_test(host_copies_wait_for_the_default_stream),
        cmocka_unit_test(a_queued_copy_has_not_happened_yet),
    };
    return TEST_BED_RUN(tests);
}

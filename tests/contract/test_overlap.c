/* SPDX-License-Identifier: MIT */
/* Contract of copy.h: copies whose source and target overlap, held against memmove, and fills. */
#include "bed.h"

#define AREA (3 * TEST_MIB + 4096)

/* Copies inside `area`, on `stream` or at once, and compares all of it with a reference. */
static void check_move(const test_bed *bed, loch_stream *stream, char *area, size_t to, size_t from, size_t bytes)
{
    static char reference[AREA], seen[AREA];
    test_pattern_write(reference, AREA, to + 3 * from + bytes);
    CHECK_OK(loch_copy(area, reference, AREA));
    memmove(reference + to, reference + from, bytes);
    if (stream) {
        CHECK_OK(loch_copy_on(area + to, area + from, bytes, stream));
        CHECK_OK(loch_stream_sync(stream));
    } else {
        CHECK_OK(loch_copy(area + to, area + from, bytes));
    }
    CHECK_OK(loch_copy(seen, area, AREA));
    if (!bed->has_data) return;
    for (size_t i = 0; i < AREA; i += 4096)
        if (memcmp(seen + i, reference + i, AREA - i < 4096 ? AREA - i : 4096) != 0)
            fail_msg("%zu bytes from %zu to %zu differ from memmove near %zu", bytes, from, to, i);
}

static void check_moves(const test_bed *bed, loch_stream *stream, char *area)
{
    const struct {
        size_t from, to, bytes;
    } cases[] = {
        {0, 1, 100},
        {1, 0, 100},
        {5, 5, 100},
        {0, 1, 4096},
        {3, 0, 65536},
        {0, 3, 65536},
        {0, 1, AREA - 1},
        {1, 0, AREA - 1},
        {0, 4096, AREA - 4096},
        {4096, 0, AREA - 4096},
        {0, TEST_MIB, 2 * TEST_MIB},
        {TEST_MIB, 0, 2 * TEST_MIB},
        {7, 7 + TEST_MIB + 1, TEST_MIB + 2},
        {7, 7 + TEST_MIB, TEST_MIB}, /* touching, not overlapping */
        {0, 0, AREA},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        check_move(bed, stream, area, cases[i].to, cases[i].from, cases[i].bytes);
}

static void overlapping_copies_in_a_block_are_right(void **state)
{
    test_bed *bed = *state;
    loch_stream *stream = NULL;
    CHECK_OK(loch_stream_create(bed->device, NULL, &stream));
    char *area = test_bed_alloc(bed, LOCH_MEMORY_DEVICE, AREA);
    check_moves(bed, NULL, area);
    check_moves(bed, stream, area);
    CHECK_OK(loch_raw_free(area));
    loch_stream_close(stream);
}

static void overlapping_copies_on_the_host_are_right(void **state)
{
    test_bed *bed = *state;
    const test_bed seeing = {.has_data = true};
    char *area = malloc(AREA);
    check_moves(&seeing, NULL, area);
    free(area);
    if (!test_bed_can(bed, LOCH_CAN_PINNED)) return;
    area = test_bed_alloc(bed, LOCH_MEMORY_PINNED, AREA);
    check_moves(bed, NULL, area);
    CHECK_OK(loch_raw_free(area));
}

static void overlapping_copies_across_mappings_are_right(void **state)
{
    test_bed *bed = *state;
    if (!test_bed_can(bed, LOCH_CAN_VIRTUAL)) return;
    const size_t granule = bed->properties.granule_bytes, granules = AREA / granule + 1;
    char *area = test_bed_reserve(bed, granules);
    for (size_t i = 0; i < granules; i++)
        loch_handle_destroy(test_bed_map(bed, area + i * granule, 1));
    check_moves(bed, NULL, area);
    for (size_t i = 0; i < granules; i++)
        CHECK_OK(loch_virtual_unmap(area + i * granule));
    CHECK_OK(loch_virtual_unreserve(area));
}

/* From one part of a handle to another, through two addresses of it. */
static void a_copy_through_an_alias_is_right(void **state)
{
    test_bed *bed = *state;
    if (!test_bed_can(bed, LOCH_CAN_ALIAS)) return;
    const size_t granule = bed->properties.granule_bytes;
    char *addresses = test_bed_reserve(bed, 2);
    loch_handle *handle = test_bed_map(bed, addresses, 1);
    CHECK_OK(loch_virtual_map(addresses + granule, handle, NULL, 0));
    test_bed_put(bed, addresses, 8192, 3);
    CHECK_OK(loch_copy(addresses + granule + 8192, addresses, 8192));
    test_bed_expect(bed, addresses + 8192, 8192, 3);
    CHECK_OK(loch_virtual_unmap(addresses));
    CHECK_OK(loch_virtual_unmap(addresses + granule));
    loch_handle_destroy(handle);
    CHECK_OK(loch_virtual_unreserve(addresses));
}

/* --- fills --- */

#define FILL_AREA (TEST_MIB + 4096)

/* Fills inside `area` and compares all of it. */
static void check_fill(const test_bed *bed, loch_stream *stream, char *area, size_t to, size_t bytes,
                       const unsigned char *pattern, size_t pattern_bytes)
{
    static unsigned char reference[FILL_AREA], seen[FILL_AREA];
    test_pattern_write(reference, FILL_AREA, to + bytes);
    CHECK_OK(loch_copy(area, reference, FILL_AREA));
    for (size_t i = 0; i < bytes; i++)
        reference[to + i] = pattern[i % pattern_bytes];
    if (stream) {
        unsigned char passing[4];
        memcpy(passing, pattern, pattern_bytes);
        CHECK_OK(loch_fill_on(area + to, bytes, passing, pattern_bytes, stream));
        memset(passing, 0xee, sizeof passing); /* it was read before the call returned */
        CHECK_OK(loch_stream_sync(stream));
    } else {
        CHECK_OK(loch_fill(area + to, bytes, pattern, pattern_bytes));
    }
    CHECK_OK(loch_copy(seen, area, FILL_AREA));
    if (bed->has_data && memcmp(seen, reference, FILL_AREA) != 0)
        fail_msg("fill of %zu bytes at %zu with %zu differs", bytes, to, pattern_bytes);
}

static void check_fills(const test_bed *bed, loch_stream *stream, char *area)
{
    const unsigned char pattern[4] = {0x12, 0x34, 0x56, 0x78};
    const size_t pattern_bytes[] = {1, 2, 4};
    for (size_t p = 0; p < 3; p++) {
        size_t unit = pattern_bytes[p];
        const size_t sizes[] = {0, unit, 3 * unit, 4096 - unit, 4096, TEST_MIB};
        for (size_t s = 0; s < sizeof sizes / sizeof *sizes; s++) {
            check_fill(bed, stream, area, 0, sizes[s], pattern, unit);
            check_fill(bed, stream, area, 5 * unit, sizes[s], pattern, unit);
        }
    }
}

static void fills_write_every_pattern_and_nothing_beside(void **state)
{
    test_bed *bed = *state;
    loch_stream *stream = NULL;
    CHECK_OK(loch_stream_create(bed->device, NULL, &stream));
    char *area = test_bed_alloc(bed, LOCH_MEMORY_DEVICE, FILL_AREA);
    check_fills(bed, NULL, area);
    check_fills(bed, stream, area);
    CHECK_OK(loch_raw_free(area));
    loch_stream_close(stream);

    const test_bed seeing = {.has_data = true};
    area = malloc(FILL_AREA);
    check_fills(&seeing, NULL, area);
    free(area);
    if (!test_bed_can(bed, LOCH_CAN_PINNED)) return;
    area = test_bed_alloc(bed, LOCH_MEMORY_PINNED, FILL_AREA);
    check_fills(bed, NULL, area);
    CHECK_OK(loch_raw_free(area));
}

static void a_fill_with_options_waits_as_they_say(void **state)
{
    test_bed *bed = *state;
    loch_stream *stream = NULL;
    CHECK_OK(loch_stream_create(bed->device, NULL, &stream));
    char *area = test_bed_alloc(bed, LOCH_MEMORY_DEVICE, FILL_AREA);
    CHECK_OK(loch_fill_with(area, FILL_AREA, "ab", 2, NULL));
    CHECK_OK(loch_fill_with(area, FILL_AREA, "x", 1, LOCH_OPTIONS(copy, .stream = stream, .wait = LOCH_WAIT_END)));
    CHECK_OK(loch_stream_query(stream)); /* the stream has passed the fill */
    test_bed_expect_byte(bed, area, FILL_AREA, 'x');
    CHECK_OK(loch_fill_with(area, FILL_AREA, "y", 1, LOCH_OPTIONS(copy, .stream = stream)));
    CHECK_OK(loch_stream_sync(stream));
    test_bed_expect_byte(bed, area, FILL_AREA, 'y');
    CHECK_FAILS(loch_fill_with(area, 8, "z", 1, LOCH_OPTIONS(copy, .direction = LOCH_HOST_TO_DEVICE)), INVALID);
    CHECK_FAILS(loch_fill_with(area, 8, "z", 1, LOCH_OPTIONS(copy, .wait = (loch_wait)9)), INVALID);
    CHECK_FAILS(loch_fill_with(area, 8, "z", 1, &(loch_copy_options){0}), INVALID);
    test_bed_expect_byte(bed, area, FILL_AREA, 'y');
    CHECK_OK(loch_raw_free(area));
    loch_stream_close(stream);
}

static void a_fill_goes_across_mappings(void **state)
{
    test_bed *bed = *state;
    if (!test_bed_can(bed, LOCH_CAN_VIRTUAL)) return;
    const size_t granule = bed->properties.granule_bytes;
    char *addresses = test_bed_reserve(bed, 4);
    for (size_t i = 0; i < 3; i++)
        loch_handle_destroy(test_bed_map(bed, addresses + i * granule, 1));
    CHECK_OK(loch_fill(addresses, 3 * granule, "a", 1));
    CHECK_OK(loch_fill(addresses + granule - 4, granule + 8, "bbbb", 4));
    test_bed_expect_byte(bed, addresses, granule - 4, 'a');
    test_bed_expect_byte(bed, addresses + granule - 4, granule + 8, 'b');
    test_bed_expect_byte(bed, addresses + 2 * granule + 4, granule - 4, 'a');
    CHECK_FAILS(loch_fill(addresses, 3 * granule + 4, "c", 1), OUT_OF_RANGE);
    CHECK_OK(loch_virtual_unmap(addresses + granule));
    CHECK_FAILS(loch_fill(addresses, 3 * granule, "c", 1), OUT_OF_RANGE);
    test_bed_expect_byte(bed, addresses, granule - 4, 'a');
    test_bed_expect_byte(bed, addresses + 2 * granule + 4, granule - 4, 'a');
    CHECK_OK(loch_virtual_unmap(addresses));
    CHECK_OK(loch_virtual_unmap(addresses + 2 * granule));
    CHECK_OK(loch_virtual_unreserve(addresses));
}

static void bad_fills_are_refused_and_write_nothing(void **state)
{
    test_bed *bed = *state;
    const char pattern[8] = "12345678";
    char *block = test_bed_alloc(bed, LOCH_MEMORY_DEVICE, 4096);
    test_bed_put(bed, block, 4096, 1);
    const size_t bad[] = {0, 3, 5, 8, SIZE_MAX};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        CHECK_FAILS(loch_fill(block, 240, pattern, bad[i]), INVALID);
    CHECK_FAILS(loch_fill(block + 1, 16, pattern, 2), INVALID);
    CHECK_FAILS(loch_fill(block + 2, 16, pattern, 4), INVALID);
    CHECK_FAILS(loch_fill(block, 15, pattern, 2), INVALID);
    CHECK_FAILS(loch_fill(block, 14, pattern, 4), INVALID);
    CHECK_FAILS(loch_fill(block, 16, NULL, 1), INVALID);
    CHECK_FAILS(loch_fill(NULL, 16, pattern, 1), INVALID);
    CHECK_OK(loch_fill(NULL, 0, pattern, 1));
    CHECK_OK(loch_fill(block + 9999, 0, pattern, 1));
    CHECK_FAILS(loch_fill(block, 4097, pattern, 1), OUT_OF_RANGE);
    CHECK_FAILS(loch_fill(block + 1, 4096, pattern, 1), OUT_OF_RANGE);
    CHECK_FAILS(loch_fill(block - 1, 4096, pattern, 1), OUT_OF_RANGE);
    CHECK_FAILS(loch_fill(block + 4096 - 4, 8, pattern, 4), OUT_OF_RANGE);
    CHECK_FAILS(loch_fill(block, SIZE_MAX - 3, pattern, 4), OVERFLOW);
    CHECK_FAILS(loch_fill_on(block, 4097, pattern, 1, loch_stream_get_default(bed->device)), OUT_OF_RANGE);
    test_bed_expect(bed, block, 4096, 1);
    CHECK_OK(loch_raw_free(block));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(overlapping_copies_in_a_block_are_right),
        cmocka_unit_test(overlapping_copies_on_the_host_are_right),
        cmocka_unit_test(overlapping_copies_across_mappings_are_right),
        cmocka_unit_test(a_copy_through_an_alias_is_right),
        cmocka_unit_test(fills_write_every_pattern_and_nothing_beside),
        cmocka_unit_test(a_fill_with_options_waits_as_they_say),
        cmocka_unit_test(a_fill_goes_across_mappings),
        cmocka_unit_test(bad_fills_are_refused_and_write_nothing),
    };
    return TEST_BED_RUN(tests);
}

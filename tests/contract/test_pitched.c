/* SPDX-License-Identifier: MIT */
/* Contract of loch_copy_pitched: every pair of places and many shapes, ranges to the last byte, streams, calls. */
#include "bed.h"

#define PLACE_BYTES (6 * TEST_MIB)
#define PLACES_MAX 6

typedef struct place {
    const char *what;
    char *address;
    loch_device *device; /* NULL for plain host memory; owned when `is_other` */
    bool is_other, has_data;
} place;

typedef struct places {
    place at[PLACES_MAX];
    size_t count;
} places;

static place *places_add(places *all, const char *what, loch_device *device, void *address, bool has_data)
{
    assert_true(all->count < PLACES_MAX);
    place *p = &all->at[all->count++];
    *p = (place){.what = what, .address = address, .device = device, .has_data = has_data};
    return p;
}

static void places_add_other(places *all, const test_bed *bed, bool same_driver)
{
    loch_device *other = test_bed_open_other(bed, same_driver);
    void *address = NULL;
    if (!other) return;
    CHECK_OK(loch_raw_alloc(other, LOCH_MEMORY_DEVICE, PLACE_BYTES, 0, &address));
    places_add(all, same_driver ? "other of its kind" : "other of another kind", other, address,
               !same_driver || bed->has_data)
        ->is_other = true;
}

static void places_make(places *all, const test_bed *bed)
{
    memset(all, 0, sizeof *all);
    char *host = malloc(PLACE_BYTES);
    assert_non_null(host);
    places_add(all, "host", NULL, host, true);
    places_add(all, "device", bed->device, test_bed_alloc(bed, LOCH_MEMORY_DEVICE, PLACE_BYTES), bed->has_data);
    if (test_bed_can(bed, LOCH_CAN_PINNED))
        places_add(all, "pinned", bed->device, test_bed_alloc(bed, LOCH_MEMORY_PINNED, PLACE_BYTES), bed->has_data);
    if (test_bed_can(bed, LOCH_CAN_MANAGED))
        places_add(all, "managed", bed->device, test_bed_alloc(bed, LOCH_MEMORY_MANAGED, PLACE_BYTES), bed->has_data);
    places_add_other(all, bed, false);
    places_add_other(all, bed, true);
}

static void places_drop(places *all)
{
    for (size_t i = 0; i < all->count; i++) {
        place *p = &all->at[i];
        if (p->device)
            CHECK_OK(loch_raw_free(p->address));
        else
            free(p->address);
        if (p->is_other) loch_device_release(p->device);
    }
}

static size_t extent(const loch_pitched *shape, size_t row_pitch, size_t plane_pitch)
{
    size_t bytes = shape->row_bytes;
    if (shape->rows > 1) bytes += (shape->rows - 1) * row_pitch;
    if (shape->planes > 1) bytes += (shape->planes - 1) * plane_pitch;
    return bytes;
}

/* What a copy should make of a target. */
static void naive(unsigned char *to, const unsigned char *from, const loch_pitched *shape)
{
    for (size_t p = 0; p < shape->planes; p++)
        for (size_t r = 0; r < shape->rows; r++)
            memcpy(to + p * shape->to_plane_pitch + r * shape->to_row_pitch,
                   from + p * shape->from_plane_pitch + r * shape->from_row_pitch, shape->row_bytes);
}

static void check_pitched(const test_bed *bed, const loch_copy_options *options, const place *from, const place *to,
                          const loch_pitched *shape)
{
    const size_t to_bytes = extent(shape, shape->to_row_pitch, shape->to_plane_pitch);
    const size_t from_bytes = extent(shape, shape->from_row_pitch, shape->from_plane_pitch);
    char *source = from->address + 3, *target = to->address + PLACE_BYTES / 2 + 5;
    assert_true(3 + from_bytes <= PLACE_BYTES / 2 && to_bytes + 21 <= PLACE_BYTES / 2);
    test_bed_put(bed, source, from_bytes, 1);
    test_bed_put(bed, target - 5, to_bytes + 21, 2);
    CHECK_OK(loch_copy_pitched(target, source, shape, options));
    if (options && options->wait != LOCH_WAIT_END) CHECK_OK(loch_stream_sync(options->stream));
    if (!from->has_data || !to->has_data) return;
    unsigned char *expected = malloc(to_bytes + 21), *source_data = malloc(from_bytes), *now = malloc(to_bytes + 21);
    test_pattern_write(source_data, from_bytes, 1);
    test_pattern_write(expected, to_bytes + 21, 2);
    naive(expected + 5, source_data, shape);
    CHECK_OK(loch_copy(now, target - 5, to_bytes + 21));
    for (size_t i = 0; i < to_bytes + 21; i++)
        if (now[i] != expected[i])
            fail_msg("%s to %s, %zu x %zu x %zu: byte %zu is wrong", from->what, to->what, shape->planes, shape->rows,
                     shape->row_bytes, i);
    free(expected);
    free(source_data);
    free(now);
}

static const loch_pitched shapes[] = {
    {1, 1, 1, 0, 0, 0, 0},                                /* one byte */
    {100, 1, 1, 7, 7, 7, 7},                              /* pitches of one row mean nothing */
    {64, 10, 1, 64, 0, 64, 0},                            /* side by side */
    {4, 1000, 1, 16, 0, 4, 0},                            /* a column */
    {4, 1000, 1, 4, 0, 12, 0},                            /* out of a column */
    {1, 333, 1, 3, 0, 5, 0},                              /* odd in all */
    {256, 100, 1, 300, 0, 512, 0},                        /* rows */
    {1000, 50, 3, 1001, 60000, 1024, 51200},              /* planes that are no multiple of the rows' distance */
    {48, 20, 7, 64, 64 * 32, 48, 48 * 20},                /* planes of whole rows */
    {17, 5, 4, 20, 100, 19, 95},                          /* planes that touch */
    {17, 1, 4, 0, 100, 0, 17},                            /* planes of one row */
    {100 * 1024, 12, 2, 102400, 1300000, 102401, 1228812} /* long rows */
};

#define SHAPES (sizeof shapes / sizeof *shapes)

/* --- places and shapes --- */

static void rows_are_copied_between_every_pair_of_places(void **state)
{
    test_bed *bed = *state;
    places all;
    places_make(&all, bed);
    for (size_t f = 0; f < all.count; f++)
        for (size_t t = 0; t < all.count; t++)
            for (size_t s = 0; s < SHAPES; s++)
                check_pitched(bed, NULL, &all.at[f], &all.at[t], &shapes[s]);
    places_drop(&all);
}

static void rows_are_copied_between_every_pair_on_a_stream(void **state)
{
    test_bed *bed = *state;
    const loch_wait waits[] = {LOCH_WAIT_DEFAULT, LOCH_WAIT_QUEUED, LOCH_WAIT_END};
    loch_stream *stream;
    places all;
    places_make(&all, bed);
    CHECK_OK(loch_stream_create(bed->device, NULL, &stream));
    for (size_t f = 0; f < all.count; f++)
        for (size_t t = 0; t < all.count; t++) {
            const place *from = &all.at[f], *to = &all.at[t];
            if (from->device != bed->device && to->device != bed->device) continue;
            for (size_t s = 0; s < SHAPES; s++) {
                const loch_copy_options options = {.size = sizeof options, .stream = stream, .wait = waits[s % 3]};
                check_pitched(bed, &options, from, to, &shapes[s]);
                if (options.wait == LOCH_WAIT_END) CHECK_OK(loch_stream_query(stream));
            }
        }
    loch_stream_close(stream);
    places_drop(&all);
}

static void random_shapes_are_copied_right(void **state)
{
    test_bed *bed = *state;
    test_random random = {test_seed(601)};
    places all;
    places_make(&all, bed);
    for (int i = 0; i < 150; i++) {
        loch_pitched shape = {.row_bytes = 1 + test_random_below(&random, 200),
                              .rows = 1 + test_random_below(&random, 60),
                              .planes = 1 + test_random_below(&random, 5)};
        shape.to_row_pitch = shape.row_bytes + test_random_below(&random, 3) * test_random_below(&random, 100);
        shape.from_row_pitch = shape.row_bytes + test_random_below(&random, 3) * test_random_below(&random, 100);
        shape.to_plane_pitch = shape.rows * shape.to_row_pitch + test_random_below(&random, 2) * 4096;
        shape.from_plane_pitch = shape.rows * shape.from_row_pitch + test_random_below(&random, 2) * 77;
        check_pitched(bed, NULL, &all.at[test_random_below(&random, all.count)],
                      &all.at[test_random_below(&random, all.count)], &shape);
    }
    places_drop(&all);
}

/* --- what is refused --- */

static void no_rows_are_copied_from_anywhere(void **state)
{
    test_bed *bed = *state;
    const loch_pitched none[] = {{0, 5, 5, 1, 1, 1, 1}, {5, 0, 5, 1, 1, 1, 1}, {5, 5, 0, 1, 1, 1, 1}};
    char *block = test_bed_alloc(bed, LOCH_MEMORY_DEVICE, 64);
    for (size_t i = 0; i < 3; i++) {
        CHECK_OK(loch_copy_pitched(NULL, NULL, &none[i], NULL));
        CHECK_OK(loch_copy_pitched(block + 1000, block, &none[i], NULL));
    }
    CHECK_FAILS(loch_copy_pitched(block, block, NULL, NULL), INVALID);
    CHECK_OK(loch_raw_free(block));
}

static void pitches_that_overlap_are_refused(void **state)
{
    test_bed *bed = *state;
    char host[4096] = {0};
    char *block = test_bed_alloc(bed, LOCH_MEMORY_DEVICE, sizeof host);
    const loch_pitched bad[] = {{8, 2, 1, 7, 0, 8, 0},
                                {8, 2, 1, 8, 0, 7, 0},
                                {8, 2, 2, 10, 17, 10, 18},
                                {8, 2, 2, 10, 18, 10, 17},
                                {8, 1, 2, 0, 7, 0, 8}};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        CHECK_FAILS(loch_copy_pitched(block, host, &bad[i], NULL), INVALID);
    const loch_pitched least = {8, 2, 2, 10, 18, 10, 18};
    CHECK_OK(loch_copy_pitched(block, host, &least, NULL));
    const loch_pitched huge[] = {
        {8, SIZE_MAX, 1, 16, 0, 16, 0}, {8, 2, 3, 8, SIZE_MAX / 2 + 1, 8, 16}, {8, 2, 1, 8, 0, SIZE_MAX - 4, 0}};
    for (size_t i = 0; i < sizeof huge / sizeof *huge; i++)
        CHECK_FAILS(loch_copy_pitched(block, host, &huge[i], NULL), OVERFLOW);
    CHECK_OK(loch_raw_free(block));
}

static void rows_one_byte_too_long_are_refused(void **state)
{
    test_bed *bed = *state;
    const loch_pitched shape = {16, 4, 3, 32, 200, 20, 100};
    const size_t to_bytes = 2 * 200 + 3 * 32 + 16, from_bytes = 2 * 100 + 3 * 20 + 16;
    char host[1024];
    char *target = test_bed_alloc(bed, LOCH_MEMORY_DEVICE, to_bytes);
    char *source = test_bed_alloc(bed, LOCH_MEMORY_DEVICE, from_bytes);
    test_bed_put(bed, target, to_bytes, 1);
    memset(host, 0, sizeof host);
    CHECK_FAILS(loch_copy_pitched(target + 1, host, &shape, NULL), OUT_OF_RANGE);
    CHECK_FAILS(loch_copy_pitched(target - 1, host, &shape, NULL), OUT_OF_RANGE);
    CHECK_FAILS(loch_copy_pitched(host, source + 1, &shape, NULL), OUT_OF_RANGE);
    CHECK_FAILS(loch_copy_pitched(target, source + 1, &shape, NULL), OUT_OF_RANGE);
    CHECK_FAILS(loch_copy_pitched(NULL, source, &shape, NULL), INVALID);
    CHECK_FAILS(loch_copy_pitched(target, NULL, &shape, NULL), INVALID);
    test_bed_expect(bed, target, to_bytes, 1); /* nothing was done */
    CHECK_OK(loch_copy_pitched(target, source, &shape, NULL));
    CHECK_OK(loch_raw_free(target));
    CHECK_OK(loch_raw_free(source));
}

static void stated_directions_and_streams_are_checked(void **state)
{
    test_bed *bed = *state;
    const loch_pitched shape = {8, 4, 1, 16, 0, 8, 0};
    char host[64] = {0};
    char *block = test_bed_alloc(bed, LOCH_MEMORY_DEVICE, 64);
    const bool is_host = test_bed_can(bed, LOCH_CAN_HOST_ACCESS);
    const loch_copy_options right = {.size = sizeof right,
                                     .direction = is_host ? LOCH_HOST_TO_HOST : LOCH_HOST_TO_DEVICE};
    const loch_copy_options wrong = {.size = sizeof wrong, .direction = LOCH_DEVICE_TO_HOST};
    CHECK_OK(loch_copy_pitched(block, host, &shape, &right));
    CHECK_FAILS(loch_copy_pitched(block, host, &shape, &wrong), INVALID);
    loch_device *other = test_bed_open_other(bed, false);
    const loch_copy_options foreign = {.size = sizeof foreign, .stream = loch_stream_get_default(other)};
    CHECK_FAILS(loch_copy_pitched(block, host, &shape, &foreign), INVALID);
    loch_device_release(other);
    CHECK_OK(loch_raw_free(block));
}

/* --- order, overlap, calls --- */

/* Where the host copies, the two may overlap: with equal pitches, and with others. */
static void the_host_allows_overlap(void **state)
{
    test_bed *bed = *state;
    const loch_pitched list[] = {{40, 20, 1, 50, 0, 50, 0},
                                 {40, 20, 1, 60, 0, 50, 0},
                                 {30, 5, 4, 40, 250, 40, 250},
                                 {30, 5, 4, 33, 180, 40, 250}};
    enum { BYTES = 4096 };
    unsigned char host[BYTES], copy[BYTES], expected[BYTES];
    const size_t offsets[] = {0, 1, 7, 10, 49, 50, 51, 333};
    const loch_copy_options queued = {.size = sizeof queued, .stream = loch_stream_get_default(bed->device)};
    for (size_t s = 0; s < 4; s++)
        for (size_t o = 0; o < 16; o++) {
            const size_t to = o % 2 ? offsets[o / 2] : 0, from = o % 2 ? 0 : offsets[o / 2];
            test_pattern_write(host, BYTES, 9);
            memcpy(copy, host, BYTES);
            memcpy(expected, host, BYTES);
            naive(expected + to, copy + from, &list[s]);
            CHECK_OK(loch_copy_pitched(host + to, host + from, &list[s], o % 3 ? NULL : &queued));
            CHECK_OK(loch_stream_sync(queued.stream));
            assert_memory_equal(host, expected, BYTES);
        }
}

static void copies_on_one_stream_are_ordered(void **state)
{
    test_bed *bed = *state;
    if (!test_bed_can(bed, LOCH_CAN_PINNED)) return;
    const loch_pitched in = {256, 200, 1, 300, 0, 256, 0}, out = {256, 200, 1, 256, 0, 300, 0};
    const size_t bytes = 256 * 200;
    loch_stream *stream;
    CHECK_OK(loch_stream_create(bed->device, NULL, &stream));
    const loch_copy_options options = {.size = sizeof options, .stream = stream};
    char *pinned[2] = {test_bed_alloc(bed, LOCH_MEMORY_PINNED, bytes), test_bed_alloc(bed, LOCH_MEMORY_PINNED, 60000)};
    char *block = test_bed_alloc(bed, LOCH_MEMORY_DEVICE, 60000);
    if (bed->has_data) test_pattern_write(pinned[0], bytes, 77);
    for (int i = 0; i < 8; i++) {
        CHECK_OK(loch_copy_pitched(block, pinned[0], &in, &options));
        CHECK_OK(loch_fill_on(pinned[0], bytes, "x", 1, stream));
        CHECK_OK(loch_copy_on(pinned[1], block, 60000, stream));
        CHECK_OK(loch_copy_pitched(pinned[0], pinned[1], &out, &options)); /* the host's, in its turn */
        CHECK_OK(loch_fill_on(block, 60000, "y", 1, stream));
    }
    CHECK_OK(loch_stream_sync(stream));
    if (bed->has_data) assert_int_equal(test_pattern_differs(pinned[0], bytes, 77), bytes);
    CHECK_OK(loch_raw_free(pinned[0]));
    CHECK_OK(loch_raw_free(pinned[1]));
    CHECK_OK(loch_raw_free(block));
    loch_stream_close(stream);
}

static uint64_t calls_of(loch_device *device, loch_driver_call call)
{
    loch_call_count counts[LOCH_CALL_COUNT];
    size_t count;
    CHECK_OK(test_device_calls(device, counts, LOCH_CALL_COUNT, &count));
    return counts[call].count;
}

static void a_thousand_rows_are_one_call(void **state)
{
    test_bed *bed = *state;
    const loch_pitched shape = {64, 1000, 1, 128, 0, 96, 0}, whole = {64, 1000, 1, 64, 0, 64, 0};
    char *block = test_bed_alloc(bed, LOCH_MEMORY_DEVICE, 300000);
    uint64_t rows = calls_of(bed->device, LOCH_CALL_copy_pitched), plain = calls_of(bed->device, LOCH_CALL_copy);
    CHECK_OK(loch_copy_pitched(block, block + 150000, &shape, NULL));
    assert_int_equal(calls_of(bed->device, LOCH_CALL_copy_pitched), rows + 1);
    assert_int_equal(calls_of(bed->device, LOCH_CALL_copy), plain);
    CHECK_OK(loch_copy_pitched(block, block + 150000, &whole, NULL));
    assert_int_equal(calls_of(bed->device, LOCH_CALL_copy_pitched), rows + 1);
    assert_int_equal(calls_of(bed->device, LOCH_CALL_copy), plain + 1);
    CHECK_OK(loch_raw_free(block));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(rows_are_copied_between_every_pair_of_places),
        cmocka_unit_test(rows_are_copied_between_every_pair_on_a_stream),
        cmocka_unit_test(random_shapes_are_copied_right),
        cmocka_unit_test(no_rows_are_copied_from_anywhere),
        cmocka_unit_test(pitches_that_overlap_are_refused),
        cmocka_unit_test(rows_one_byte_too_long_are_refused),
        cmocka_unit_test(stated_directions_and_streams_are_checked),
        cmocka_unit_test(the_host_allows_overlap),
        cmocka_unit_test(copies_on_one_stream_are_ordered),
        cmocka_unit_test(a_thousand_rows_are_one_call),
    };
    return TEST_BED_RUN(tests);
}

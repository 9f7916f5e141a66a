/* SPDX-License-Identifier: MIT */
/* Contract of stream.h, events: marks, waits across devices, time between marks. */
#include "bed.h"

static loch_stream *make_stream(loch_device *device)
{
    loch_stream *stream = NULL;
    CHECK_OK(loch_stream_create(device, NULL, &stream));
    return stream;
}

static loch_event *make_event(loch_device *device)
{
    loch_event *event = TEST_UNTOUCHED;
    CHECK_OK(loch_event_create(device, LOCH_EVENT_PLAIN, &event));
    assert_non_null(event);
    return event;
}

static void never_recorded_has_passed(void **state)
{
    test_bed *bed = *state;
    loch_event *event = make_event(bed->device);
    loch_stream *stream = make_stream(bed->device);
    CHECK_OK(loch_event_query(event));
    CHECK_OK(loch_event_sync(event));
    CHECK_OK(loch_stream_wait(stream, event));
    CHECK_OK(loch_stream_sync(stream));
    loch_stream_close(stream);
    loch_event_destroy(event);
    loch_event_destroy(NULL);
}

static void missing_arguments_are_refused(void **state)
{
    test_bed *bed = *state;
    loch_event *event = TEST_UNTOUCHED;
    uint64_t ns = 0;
    CHECK_FAILS(loch_event_create(NULL, LOCH_EVENT_PLAIN, &event), INVALID);
    assert_null(event);
    CHECK_FAILS(loch_event_create(bed->device, LOCH_EVENT_PLAIN, NULL), INVALID);
    CHECK_FAILS(loch_event_record(NULL, NULL), INVALID);
    CHECK_FAILS(loch_event_query(NULL), INVALID);
    CHECK_FAILS(loch_event_sync(NULL), INVALID);
    CHECK_FAILS(loch_event_elapsed(NULL, NULL, &ns), INVALID);
}

static void marks_pass_with_the_work_before_them(void **state)
{
    test_bed *bed = *state;
    loch_event *event = make_event(bed->device);
    loch_stream *stream = make_stream(bed->device);
    void *block = test_bed_alloc(bed, LOCH_MEMORY_DEVICE, 4 * TEST_MIB);
    for (int round = 0; round < 4; round++) { /* recorded again and again */
        unsigned char value = (unsigned char)(round + 1);
        CHECK_OK(loch_fill_on(block, 4 * TEST_MIB, &value, 1, stream));
        CHECK_OK(loch_event_record(event, stream));
        if (bed->is_stepped) CHECK_STATUS(loch_event_query(event), LOCH_E_BUSY);
        if (!test_bed_can(bed, LOCH_CAN_ASYNC)) CHECK_OK(loch_event_query(event));
        CHECK_OK(loch_event_sync(event));
        CHECK_OK(loch_event_query(event));
        CHECK_OK(loch_stream_query(stream));
        test_bed_expect_byte(bed, block, 4 * TEST_MIB, value);
    }
    CHECK_OK(loch_event_record(event, NULL)); /* the default stream's */
    CHECK_OK(loch_event_sync(event));
    CHECK_OK(loch_raw_free(block));
    loch_stream_close(stream);
    loch_event_destroy(event);
}

/* A new mark takes the place of the old one. */
static void recording_again_moves_the_mark(void **state)
{
    test_bed *bed = *state;
    if (!bed->is_stepped) return;
    loch_event *event = make_event(bed->device);
    loch_stream *busy = make_stream(bed->device), *idle = make_stream(bed->device);
    void *block = test_bed_alloc(bed, LOCH_MEMORY_DEVICE, 4096);
    for (int i = 0; i < 10; i++)
        CHECK_OK(loch_fill_on(block, 4096, "a", 1, busy));
    CHECK_OK(loch_event_record(event, busy));
    CHECK_STATUS(loch_event_query(event), LOCH_E_BUSY);
    CHECK_OK(loch_event_record(event, idle));
    CHECK_OK(loch_event_sync(event));
    CHECK_OK(loch_event_query(event));
    CHECK_STATUS(loch_stream_query(busy), LOCH_E_BUSY);
    CHECK_OK(loch_stream_sync(busy));
    CHECK_OK(loch_raw_free(block));
    loch_stream_close(busy);
    loch_stream_close(idle);
    loch_event_destroy(event);
}

static void event_and_stream_are_of_one_device(void **state)
{
    test_bed *bed = *state;
    loch_device *other = test_bed_open_other(bed, false);
    loch_stream *foreign = make_stream(other);
    loch_event *event = make_event(bed->device);
    CHECK_FAILS(loch_event_record(event, foreign), INVALID);
    CHECK_FAILS(loch_event_record(event, loch_stream_get_default(other)), INVALID);
    CHECK_OK(loch_event_query(event)); /* still never recorded */
    loch_stream_close(foreign);
    loch_event_destroy(event);
    loch_device_release(other);
}

/* The event may go while it is marked and waited for. */
static void an_event_may_go_while_it_is_waited_for(void **state)
{
    test_bed *bed = *state;
    loch_stream *first = make_stream(bed->device), *second = make_stream(bed->device);
    void *block = test_bed_alloc(bed, LOCH_MEMORY_DEVICE, TEST_MIB);
    for (int i = 0; i < 20; i++) {
        unsigned char value = (unsigned char)i;
        loch_event *event = make_event(bed->device);
        CHECK_OK(loch_fill_on(block, TEST_MIB, &value, 1, i % 2 ? first : second));
        CHECK_OK(loch_event_record(event, i % 2 ? first : second));
        CHECK_OK(loch_stream_wait(i % 2 ? second : first, event));
        loch_event_destroy(event);
    }
    CHECK_OK(loch_device_sync(bed->device));
    test_bed_expect_byte(bed, block, TEST_MIB, 19);
    CHECK_OK(loch_raw_free(block));
    loch_stream_close(first);
    loch_stream_close(second);
}

static void check_wait_across(const test_bed *bed, loch_device *other)
{
    const size_t bytes = TEST_MIB;
    loch_stream *here = make_stream(bed->device), *there = make_stream(other);
    loch_event *event = make_event(bed->device), *back = make_event(other);
    void *block = test_bed_alloc(bed, LOCH_MEMORY_DEVICE, bytes), *target = NULL;
    CHECK_OK(loch_raw_alloc(other, LOCH_MEMORY_DEVICE, bytes, 0, &target));
    for (int i = 0; i < 4; i++) {
        unsigned char value = (unsigned char)(i + 1);
        CHECK_OK(loch_fill_on(block, bytes, &value, 1, here));
        CHECK_OK(loch_event_record(event, here));
        CHECK_OK(loch_stream_wait(there, event));
        CHECK_OK(loch_copy_on(target, block, bytes, there));
        CHECK_OK(loch_event_record(back, there));
        CHECK_OK(loch_stream_wait(here, back));
    }
    CHECK_OK(loch_stream_sync(there));
    CHECK_OK(loch_stream_sync(here));
    test_bed_expect_byte(bed, target, bytes, 4);
    CHECK_OK(loch_raw_free(block));
    CHECK_OK(loch_raw_free(target));
    loch_stream_close(here);
    loch_stream_close(there);
    loch_event_destroy(event);
    loch_event_destroy(back);
}

static void a_stream_waits_for_an_event_of_another_device(void **state)
{
    test_bed *bed = *state;
    for (int same = 0; same < 2; same++) {
        loch_device *other = test_bed_open_other(bed, same);
        if (other) check_wait_across(bed, other);
        loch_device_release(other);
    }
}

/* --- time --- */

/* A timed event, or NULL on a device without timing. */
static loch_event *make_timed(const test_bed *bed)
{
    loch_event *event = TEST_UNTOUCHED;
    if (!test_bed_can(bed, LOCH_CAN_TIMING)) {
        CHECK_FAILS(loch_event_create(bed->device, LOCH_EVENT_TIMED, &event), UNSUPPORTED);
        assert_null(event);
        return NULL;
    }
    CHECK_OK(loch_event_create(bed->device, LOCH_EVENT_TIMED, &event));
    return event;
}

static void time_needs_timed_and_recorded_marks(void **state)
{
    test_bed *bed = *state;
    uint64_t ns = 1;
    loch_event *start = make_timed(bed);
    if (!start) return;
    loch_event *end = make_timed(bed), *plain = make_event(bed->device), *foreign = NULL;
    loch_device *other = test_bed_open_other(bed, false);
    CHECK_FAILS(loch_event_elapsed(start, end, &ns), INVALID);
    CHECK_OK(loch_event_record(start, NULL));
    CHECK_FAILS(loch_event_elapsed(start, end, &ns), INVALID);
    CHECK_FAILS(loch_event_elapsed(end, start, &ns), INVALID);
    CHECK_OK(loch_event_record(end, NULL));
    CHECK_OK(loch_event_record(plain, NULL));
    CHECK_OK(loch_device_sync(bed->device));
    CHECK_OK(loch_event_elapsed(start, end, &ns));
    CHECK_FAILS(loch_event_elapsed(start, plain, &ns), INVALID);
    CHECK_FAILS(loch_event_elapsed(plain, end, &ns), INVALID);
    CHECK_FAILS(loch_event_elapsed(start, end, NULL), INVALID);
    if (loch_device_can(other, LOCH_CAN_TIMING)) {
        CHECK_OK(loch_event_create(other, LOCH_EVENT_TIMED, &foreign));
        CHECK_OK(loch_event_record(foreign, NULL));
        CHECK_OK(loch_event_sync(foreign));
        CHECK_FAILS(loch_event_elapsed(start, foreign, &ns), INVALID);
        CHECK_FAILS(loch_event_elapsed(foreign, end, &ns), INVALID);
    }
    loch_event_destroy(start);
    loch_event_destroy(end);
    loch_event_destroy(plain);
    loch_event_destroy(foreign);
    loch_device_release(other);
}

static void time_is_plausible(void **state)
{
    test_bed *bed = *state;
    loch_event *marks[3] = {make_timed(bed)};
    if (!marks[0]) return;
    uint64_t first = 0, second = 0, whole = 0;
    loch_stream *stream = make_stream(bed->device);
    void *block = test_bed_alloc(bed, LOCH_MEMORY_DEVICE, 4 * TEST_MIB);
    for (int i = 1; i < 3; i++)
        marks[i] = make_timed(bed);

    uint64_t before = loch_host_now_ns();
    CHECK_OK(loch_event_record(marks[0], stream));
    CHECK_OK(loch_fill_on(block, 4 * TEST_MIB, "abcd", 4, stream));
    CHECK_OK(loch_event_record(marks[1], stream));
    if (bed->is_stepped) CHECK_STATUS(loch_event_elapsed(marks[0], marks[1], &first), LOCH_E_BUSY);
    for (int i = 0; i < 4; i++)
        CHECK_OK(loch_fill_on(block, 4 * TEST_MIB, "abcd", 4, stream));
    CHECK_OK(loch_event_record(marks[2], stream));
    CHECK_OK(loch_event_sync(marks[2]));
    uint64_t passed = loch_host_now_ns() - before;
    CHECK_OK(loch_event_elapsed(marks[0], marks[1], &first));
    CHECK_OK(loch_event_elapsed(marks[1], marks[2], &second));
    CHECK_OK(loch_event_elapsed(marks[0], marks[2], &whole));
    assert_true(first > 0 && second > 0);
    /* the parts make the whole, to the microsecond that a device may round to */
    uint64_t sum = first + second;
    assert_true((sum > whole ? sum - whole : whole - sum) <= 4000);
    if (bed->is_sim) {
        assert_true(first >= 2000 && second >= 4 * 2000);
    } else {
        assert_true(whole <= passed + 1000000);
    }
    CHECK_OK(loch_event_elapsed(marks[1], marks[1], &first));
    assert_int_equal(first, 0);

    CHECK_OK(loch_raw_free(block));
    for (int i = 0; i < 3; i++)
        loch_event_destroy(marks[i]);
    loch_stream_close(stream);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(never_recorded_has_passed),
        cmocka_unit_test(missing_arguments_are_refused),
        cmocka_unit_test(marks_pass_with_the_work_before_them),
        cmocka_unit_test(recording_again_moves_the_mark),
        cmocka_unit_test(event_and_stream_are_of_one_device),
        cmocka_unit_test(an_event_may_go_while_it_is_waited_for),
        cmocka_unit_test(a_stream_waits_for_an_event_of_another_device),
        cmocka_unit_test(time_needs_timed_and_recorded_marks),
        cmocka_unit_test(time_is_plausible),
    };
    return TEST_BED_RUN(tests);
}

/* SPDX-License-Identifier: MIT */
/* Recordings in memory: names and stacks are stored once, peaks and sums are right. */
#include "recording.h"
#include "test.h"

static void test_equal_names_share_one_index(void **state)
{
    (void)state;
    loch_recording *recording;
    CHECK_OK(lochi_insight_recording_create("memory", LOCH_RECORDING_TEXT, &recording));
    const uint32_t first = lochi_insight_recording_add_name(recording, LOCH_RECORDING_TAG, "weights", 7);
    assert_int_equal(lochi_insight_recording_add_name(recording, LOCH_RECORDING_TAG, "cache", 5), first + 1);
    assert_int_equal(lochi_insight_recording_add_name(recording, LOCH_RECORDING_TAG, "weights", 7), first);
    assert_int_equal(lochi_insight_recording_add_name(recording, LOCH_RECORDING_THREAD, "weights", 7), 0);
    assert_string_equal(loch_recording_get_name(recording, LOCH_RECORDING_TAG, first), "weights");
    assert_string_equal(loch_recording_get_name(recording, LOCH_RECORDING_TAG, 0), "");
    loch_recording_destroy(recording);
}

static void test_the_peak_counts_resized_blocks(void **state)
{
    (void)state;
    loch_recording *recording;
    CHECK_OK(lochi_insight_recording_create("memory", LOCH_RECORDING_TEXT, &recording));
    loch_recording_event event = {.stack = LOCH_RECORDING_NONE};
    const loch_recording_block block = {.id = 1, .bytes = 100};
    const uint32_t one = lochi_insight_recording_add_alloc(recording, &block, &event);
    event = (loch_recording_event){.time_ns = 5, .kind = LOCH_RECORDED_RESIZE, .value = 300, .subject = one};
    assert_int_equal(lochi_insight_recording_add_event(recording, &event), 1);
    event.time_ns = 9;
    assert_int_equal(lochi_insight_recording_add_free(recording, one, &event), 2);
    CHECK_OK(lochi_insight_recording_finish(recording));
    loch_recording_info info = {.size = sizeof info};
    CHECK_OK(loch_recording_get_info(recording, &info));
    assert_int_equal(info.peak_requested, 300);
    assert_int_equal(info.peak_event, 1);
    assert_int_equal(info.duration_ns, 9);
    assert_int_equal(info.live_blocks, 0);
    assert_int_equal(loch_recording_get_events(recording)[2].value, 300);
    loch_recording_destroy(recording);
}

static void test_bad_arguments_are_refused(void **state)
{
    (void)state;
    loch_recording *recording = TEST_UNTOUCHED;
    loch_recording_info info = {.size = 1};
    const loch_recording_options unknown = {.size = sizeof unknown, .format = (loch_recording_format)99};
    size_t count = 7;
    CHECK_FAILS(loch_recording_load(NULL, NULL, &recording), INVALID);
    assert_null(recording);
    CHECK_FAILS(loch_recording_load("/no/such/file", NULL, NULL), INVALID);
    CHECK_FAILS(loch_recording_load("/no/such/file", &unknown, &recording), INVALID);
    CHECK_FAILS(loch_recording_load("/no/such/file", NULL, &recording), IO);
    assert_null(recording);
    CHECK_OK(lochi_insight_recording_create("memory", LOCH_RECORDING_TEXT, &recording));
    CHECK_OK(lochi_insight_recording_finish(recording));
    CHECK_FAILS(loch_recording_save(NULL, "/dev/null", NULL), INVALID);
    CHECK_FAILS(loch_recording_save(recording, NULL, NULL), INVALID);
    CHECK_FAILS(loch_recording_save(recording, "/dev/null", &unknown), INVALID);
    CHECK_FAILS(loch_recording_save(recording, "/no/such/folder/file.loch", NULL), IO);
    CHECK_FAILS(loch_recording_get_info(recording, &info), INVALID);
    CHECK_FAILS(loch_recording_get_info(recording, NULL), INVALID);
    CHECK_FAILS(loch_recording_get_info(NULL, &info), INVALID);
    assert_string_equal(loch_recording_get_name(recording, LOCH_RECORDING_TAG, 5), "");
    assert_string_equal(loch_recording_get_name(recording, (loch_recording_noun)99, 0), "");
    assert_string_equal(loch_recording_get_name(NULL, LOCH_RECORDING_TAG, 0), "");
    assert_null(loch_recording_get_stack(recording, LOCH_RECORDING_NONE, &count));
    assert_int_equal(count, 0);
    assert_null(loch_recording_get_events(NULL));
    assert_null(loch_recording_get_blocks(NULL));
    assert_null(loch_recording_get_ranges(NULL));
    loch_recording_destroy(recording);
    loch_recording_destroy(NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_equal_names_share_one_index),
        cmocka_unit_test(test_the_peak_counts_resized_blocks),
        cmocka_unit_test(test_bad_arguments_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

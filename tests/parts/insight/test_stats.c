/* SPDX-License-Identifier: MIT */
/* Figures of recordings: peaks, what is live then and at the end, driver calls, and the pages that show them. */
#include "recordings.h"
#include "stats.h"
#include "support/json_check.h"

/* Returns the page of a recording, or of the difference of two, which the caller frees. */
static char *page(const loch_recording *recording, const loch_recording *after, loch_format format)
{
    size_t length, again;
    if (after)
        CHECK_OK(loch_recording_print_difference(recording, after, format, NULL, 0, &length));
    else
        CHECK_OK(loch_recording_print(recording, format, NULL, 0, &length));
    char *text = malloc(length + 1);
    if (after)
        CHECK_OK(loch_recording_print_difference(recording, after, format, text, length + 1, &again));
    else
        CHECK_OK(loch_recording_print(recording, format, text, length + 1, &again));
    assert_int_equal(length, again);
    assert_int_equal(strlen(text), length);
    if (format == LOCH_FORMAT_JSON) assert_true(json_is_valid(text));
    return text;
}

static void check_has(const char *text, const char *part)
{
    if (!strstr(text, part)) fail_msg("\"%s\" is not in:\n%s", part, text);
}

/* A recording with tags, call sites, ranges and driver calls whose figures are known. */
static loch_recording *known(uint64_t cache_bytes)
{
    loch_recording *recording;
    CHECK_OK(lochi_insight_recording_create("known", LOCH_RECORDING_BINARY, &recording));
    const uint32_t weights = lochi_insight_recording_add_name(recording, LOCH_RECORDING_TAG, "weights", 7);
    const uint32_t cache = lochi_insight_recording_add_name(recording, LOCH_RECORDING_TAG, "cache", 5);
    const uint32_t map = lochi_insight_recording_add_name(recording, LOCH_RECORDING_CALL, "map", 3);
    const uint32_t frames[] = {lochi_insight_recording_add_text(recording, "load at model.c:7", 17),
                               lochi_insight_recording_add_text(recording, "main \"x\"", 8)};
    const uint32_t stack = lochi_insight_recording_add_stack(recording, frames, 2);
    loch_recording_event event = {.stack = LOCH_RECORDING_NONE, .kind = LOCH_RECORDED_TAKE, .value = 4000};
    const loch_recording_range range = {.bytes = 4000, .give_event = LOCH_RECORDING_NONE};
    event.subject = lochi_insight_recording_add_range(recording, &range);
    lochi_insight_recording_add_event(recording, &event);
    event = (loch_recording_event){
        .stack = LOCH_RECORDING_NONE, .kind = LOCH_RECORDED_CALL, .subject = map, .value = 500, .time_ns = 1000};
    lochi_insight_recording_add_event(recording, &event);
    event.value = 700;
    lochi_insight_recording_add_event(recording, &event);
    event.stack = stack;
    const uint32_t first = lochi_insight_recording_add_alloc(
        recording, &(loch_recording_block){.id = 0, .bytes = 2048, .tag = weights}, &event);
    event.stack = LOCH_RECORDING_NONE;
    event.time_ns = 2000;
    const uint32_t second = lochi_insight_recording_add_alloc(
        recording, &(loch_recording_block){.id = 1, .bytes = 100, .tag = cache}, &event);
    event = (loch_recording_event){.stack = LOCH_RECORDING_NONE,
                                   .kind = LOCH_RECORDED_RESIZE,
                                   .subject = second,
                                   .value = cache_bytes,
                                   .time_ns = 3000};
    lochi_insight_recording_add_event(recording, &event);
    event.time_ns = 10000;
    lochi_insight_recording_add_free(recording, second, &event);
    (void)first;
    CHECK_OK(lochi_insight_recording_finish(recording));
    return recording;
}

static void test_the_figures_are_right(void **state)
{
    (void)state;
    loch_recording *recording = known(952);
    insight_stats stats;
    assert_true(lochi_insight_stats_compute(recording, &stats));
    assert_int_equal(stats.info.peak_requested, 3000);
    assert_int_equal(stats.peak_ns, 3000);
    assert_int_equal(stats.reserved_at_peak, 4000);
    assert_true(lochi_insight_stats_fragmentation(&stats) > 0.2499 &&
                lochi_insight_stats_fragmentation(&stats) < 0.2501);
    assert_int_equal(stats.peak.blocks, 2);
    assert_int_equal(stats.peak.bytes, 3000);
    const insight_group *tags = stats.peak.tags.data, *stacks = stats.peak.stacks.data;
    assert_int_equal(stats.peak.tags.count, 2);
    assert_int_equal(tags[0].bytes, 2048);
    assert_int_equal(tags[1].bytes, 952);
    assert_int_equal(stats.peak.stacks.count, 2);
    assert_int_equal(stacks[0].key, 0);
    assert_int_equal(stacks[1].key, LOCH_RECORDING_NONE);
    assert_int_equal(stats.peak.largest_count, 2);
    assert_int_equal(stats.peak.largest[1].bytes, 952);
    assert_int_equal(stats.end.blocks, 1);
    assert_int_equal(stats.end.bytes, 2048);
    assert_int_equal(stats.calls.count, 1);
    assert_int_equal(stats.calls_count, 2);
    assert_int_equal(stats.calls_ns, 1200);
    assert_int_equal(((const insight_call *)stats.calls.data)[0].longest_ns, 700);
    assert_int_equal(stats.lifetimes[1].count, 1); /* 8 microseconds */
    assert_int_equal(stats.lifetimes[1].bytes, 952);
    assert_int_equal(stats.sizes[0].count, 0); /* 100 bytes at first, but not in the end */
    assert_int_equal(stats.sizes[1].count, 2);
    assert_int_equal(stats.sizes[1].bytes, 3000);
    assert_int_equal(stats.columns[0], 0);
    assert_int_equal(stats.columns[18], 3000);
    assert_int_equal(stats.columns[INSIGHT_COLUMNS - 2], 3000);
    lochi_insight_stats_free(&stats);
    loch_recording_destroy(recording);
}

/* Any time, every recording: what is live at the peak has the bytes of the peak. */
static void test_what_is_live_adds_up(void **state)
{
    (void)state;
    test_random random = {test_seed(20)};
    for (size_t i = 0; i < 30; i++) {
        const recordings_shape shape = {20 * i, 1 + i % 3, i % 2, i % 3 == 0};
        loch_recording *recording = recordings_random(&random, &shape);
        insight_stats stats;
        uint64_t tags = 0, stacks = 0, most = 0;
        assert_true(lochi_insight_stats_compute(recording, &stats));
        for (size_t k = 0; k < stats.peak.tags.count; k++)
            tags += ((const insight_group *)stats.peak.tags.data)[k].bytes;
        for (size_t k = 0; k < stats.peak.stacks.count; k++)
            stacks += ((const insight_group *)stats.peak.stacks.data)[k].bytes;
        for (size_t k = 0; k < INSIGHT_COLUMNS; k++)
            if (stats.columns[k] > most) most = stats.columns[k];
        assert_int_equal(stats.peak.bytes, stats.info.peak_requested);
        assert_int_equal(tags, stats.info.peak_requested);
        assert_int_equal(stacks, stats.info.peak_requested);
        assert_int_equal(most, stats.info.peak_requested);
        assert_int_equal(stats.end.bytes, stats.info.live_bytes);
        assert_int_equal(stats.end.blocks, stats.info.live_blocks);
        lochi_insight_stats_free(&stats);
        for (int format = LOCH_FORMAT_TEXT; format <= LOCH_FORMAT_JSON; format++)
            free(page(recording, NULL, (loch_format)format));
        loch_recording_destroy(recording);
    }
}

static void test_the_page_shows_the_figures(void **state)
{
    (void)state;
    loch_recording *recording = known(952);
    char *text = page(recording, NULL, LOCH_FORMAT_TEXT);
    check_has(text, "known, a recording\n");
    check_has(text, "  peak requested     2.93 KiB (3,000 bytes) at 3.0 us, 30 % of the time\n");
    check_has(text, "  fragmentation      25.00 % of 3.91 KiB reserved at the peak was not requested\n");
    check_has(text, "  live at the end    1 block, 2.00 KiB\n");
    check_has(text, "      2.00 KiB  68.3 %           1  weights\n");
    check_has(text, "load at model.c:7 < main \"x\"\n");
    check_has(text, "Driver calls: 2, 1.2 us, 12.00 % of the time\n");
    check_has(text, "           10 us           1        952 B  ####");
    free(text);
    text = page(recording, NULL, LOCH_FORMAT_JSON);
    check_has(text, "\"peak_requested\": 3000, ");
    check_has(text, "\"fragmentation\": 0.250000, ");
    check_has(text, "\"stack\": [\"load at model.c:7\", \"main \\\"x\\\"\"]");
    check_has(text, "{\"call\": \"map\", \"calls\": 2, \"ns\": 1200, \"longest_ns\": 700}");
    free(text);
    loch_recording_destroy(recording);
}

static void test_the_difference_shows_what_changed(void **state)
{
    (void)state;
    loch_recording *before = known(952), *after = known(3000);
    char *text = page(before, after, LOCH_FORMAT_TEXT);
    check_has(text, "  peak requested           2.93 KiB       4.93 KiB       +2.00 KiB    +68.3 %\n");
    check_has(text, "           952 B       2.93 KiB       +2.00 KiB   +215.1 %  cache\n");
    check_has(text, "        2.00 KiB       2.00 KiB               0             weights\n");
    assert_true(strstr(text, "  cache\n") < strstr(text, "  weights\n")); /* the largest difference first */
    free(text);
    text = page(before, after, LOCH_FORMAT_JSON);
    check_has(text, "{\"tag\": \"cache\", \"before_bytes\": 952, \"after_bytes\": 3000, \"before_blocks\": 1, "
                    "\"after_blocks\": 1}");
    free(text);
    text = page(before, before, LOCH_FORMAT_TEXT); /* one recording with itself */
    assert_null(strchr(text, '+'));
    free(text);
    loch_recording_destroy(before);
    loch_recording_destroy(after);
}

static void test_wrong_arguments_are_refused(void **state)
{
    (void)state;
    loch_recording *recording = known(952);
    char text[8] = "unused";
    size_t length = 99;
    CHECK_FAILS(loch_recording_print(NULL, LOCH_FORMAT_TEXT, text, sizeof text, &length), INVALID);
    assert_int_equal(length, 0);
    CHECK_FAILS(loch_recording_print(recording, (loch_format)7, text, sizeof text, NULL), INVALID);
    CHECK_FAILS(loch_recording_print(recording, LOCH_FORMAT_TEXT, NULL, 1, NULL), INVALID);
    CHECK_FAILS(loch_recording_print_difference(recording, NULL, LOCH_FORMAT_TEXT, text, sizeof text, NULL), INVALID);
    CHECK_FAILS(loch_recording_print_difference(NULL, recording, LOCH_FORMAT_TEXT, text, sizeof text, NULL), INVALID);
    CHECK_OK(loch_recording_print(recording, LOCH_FORMAT_TEXT, text, sizeof text, &length));
    assert_string_equal(text, "known, ");
    assert_true(length > 500);
    loch_recording_destroy(recording);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_the_figures_are_right),       cmocka_unit_test(test_what_is_live_adds_up),
        cmocka_unit_test(test_the_page_shows_the_figures),  cmocka_unit_test(test_the_difference_shows_what_changed),
        cmocka_unit_test(test_wrong_arguments_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

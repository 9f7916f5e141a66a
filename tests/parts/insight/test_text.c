/* SPDX-License-Identifier: MIT */
/* Traces: what is written is what was read, line for line; wrong lines are named; what a trace has no line for is a
 * comment. */
#include "recordings.h"

/* Reads a trace, writes it, and checks the text. */
static void check_text(const char *text, const char *expected)
{
    loch_recording *recording = recordings_from_text(text);
    size_t bytes;
    char *written = recordings_write(lochi_insight_write_text, recording, &bytes);
    assert_string_equal(written, expected);
    free(written);
    loch_recording_destroy(recording);
}

static void test_lines_come_back_as_they_were(void **state)
{
    (void)state;
    const char *text = "a 7 4096 0 1 align=256 tag=weights\n"
                       "a 3 0 5 2 tag=cache\n"
                       "u 7 5 2\n"
                       "f 3 9 5\n"
                       "f 7 18446744073709551\n"
                       "a 18446744073709551615 18446744073709551615 65535 18446744073709551\n";
    check_text(text, text);
    check_text("", "");
}

static void test_blanks_comments_and_times_are_put_in_order(void **state)
{
    (void)state;
    check_text("# loch-trace 1\n\n  a 1\t2 0 9 # note\r\nf 1 3", "a 1 2 0 9\nf 1 9\n");
    /* Streams above 65535 get small numbers, in the order of their first use. */
    check_text("a 1 2 70000 0\nu 1 9 1\n", "a 1 2 1 0\nu 1 2 1\n");
}

static void test_a_wrong_line_is_named(void **state)
{
    (void)state;
    static const char *const rows[][2] = {
        {"a 0 1 0 0\nx\n", "file:2: a line starts with a, u, f or #"},
        {"f 5 1", "file:1: block 5 is not known"},
        {"a 0 1 0 0\nf 0 1\nu 0 1 2\n", "file:3: block 0 was freed before"},
        {"a 0 1 0 0\na 0 1 0 0\n", "file:2: block 0 was allocated before"},
        {"a 0 18446744073709551615 0 0\na 1 1 0 0\n", "file:2: the sum of all blocks overflows"},
        {"a 0 1 0 18446744073709552\n", "file:1: the time is too large"},
        {"# loch-trace 2\n", "file:1: this version of traces is not known; version 1 is"},
        {"a 0 1 0 0 tag=\n", "file:1: a tag has 1 to 63 characters"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        loch_recording *recording;
        CHECK_FAILS(recordings_read(lochi_insight_read_text, rows[i][0], strlen(rows[i][0]), &recording), INVALID);
        assert_string_equal(loch_error_get()->sentence, rows[i][1]);
        assert_null(recording);
    }
}

static void test_more_than_65536_streams_are_refused(void **state)
{
    (void)state;
    char *text = NULL;
    size_t bytes;
    FILE *file = open_memstream(&text, &bytes);
    for (unsigned i = 1; i <= 65536; i++)
        fprintf(file, "a %u 1 %u 0\n", i, i);
    fclose(file);
    loch_recording *recording;
    CHECK_FAILS(recordings_read(lochi_insight_read_text, text, bytes, &recording), INVALID);
    assert_string_equal(loch_error_get()->sentence, "file:65536: there are too many streams");
    free(text);
}

static void test_a_resized_block_is_freed_and_allocated(void **state)
{
    (void)state;
    loch_recording *recording;
    size_t bytes;
    CHECK_OK(lochi_insight_recording_create("file", LOCH_RECORDING_BINARY, &recording));
    const loch_recording_block block = {.id = 4, .bytes = 100, .stream = 2, .alignment = 6};
    loch_recording_event event = {.time_ns = 1999, .stack = LOCH_RECORDING_NONE, .stream = 2};
    const uint32_t one = lochi_insight_recording_add_alloc(recording, &block, &event);
    event.kind = LOCH_RECORDED_RESIZE;
    event.subject = one;
    event.value = 300;
    event.time_ns = 3000;
    lochi_insight_recording_add_event(recording, &event);
    event.kind = LOCH_RECORDED_MOVE;
    event.value = 0x1000;
    lochi_insight_recording_add_event(recording, &event);
    event.kind = LOCH_RECORDED_SLEEP;
    event.subject = 0;
    event.value = 77;
    lochi_insight_recording_add_event(recording, &event);
    event.time_ns = 9000;
    lochi_insight_recording_add_free(recording, one, &event);
    CHECK_OK(lochi_insight_recording_finish(recording));
    char *text = recordings_write(lochi_insight_write_text, recording, &bytes);
    assert_string_equal(text, "a 4 100 2 1 align=64\n"
                              "f 4 3\n"
                              "a 5 300 2 3 align=64\n"
                              "# move 5 0x1000 3\n"
                              "# sleep memory 77 3\n"
                              "f 5 9\n");
    loch_recording *again = recordings_from_text(text);
    assert_int_equal(again->info.peak_requested, 300);
    loch_recording_destroy(again);
    free(text);
    loch_recording_destroy(recording);
}

/* Every random recording becomes a trace that reads back with equal peaks. */
static void test_random_recordings_become_traces(void **state)
{
    (void)state;
    test_random random = {test_seed(16)};
    for (size_t i = 0; i < 40; i++) {
        const recordings_shape shape = {400, 1 + i % 3, i % 2, i % 5 == 0};
        loch_recording *recording = recordings_random(&random, &shape);
        size_t bytes, again_bytes;
        char *text = recordings_write(lochi_insight_write_text, recording, &bytes);
        loch_recording *again = recordings_from_text(text);
        char *text_again = recordings_write(lochi_insight_write_text, again, &again_bytes);
        loch_recording *third = recordings_from_text(text_again);
        assert_int_equal(again->info.peak_requested, recording->info.peak_requested);
        assert_int_equal(again->info.live_bytes, recording->info.live_bytes);
        recordings_check_equal(again, third);
        loch_recording_destroy(third);
        loch_recording_destroy(again);
        loch_recording_destroy(recording);
        free(text);
        free(text_again);
    }
}

static loch_status stop_at_half(double done, void *user)
{
    size_t *calls = user;
    ++*calls;
    return done > 0.5 ? loch_error_set(LOCH_E_BUSY, NULL, 0, "stopped") : LOCH_OK;
}

/* A progress function is called, and ends the work if it fails. A file is not left behind. */
static void test_progress_can_end_the_work(void **state)
{
    (void)state;
    char folder[] = "/tmp/loch-text.XXXXXX", path[64], packed[64];
    assert_non_null(mkdtemp(folder));
    snprintf(path, sizeof path, "%s/long.trace", folder);
    snprintf(packed, sizeof packed, "%s/long.trace.gz", folder);
    FILE *file = fopen(path, "w");
    for (unsigned i = 0; i < 300000; i++)
        fprintf(file, "a %u 1 0 %u\n", i, i);
    fclose(file);
    size_t calls = 0;
    loch_recording_options options = {.size = sizeof options, .progress = stop_at_half, .user = &calls};
    loch_recording *recording;
    CHECK_STATUS(loch_recording_load(path, &options, &recording), LOCH_E_BUSY);
    assert_null(recording);
    assert_true(calls >= 2);
    CHECK_OK(loch_recording_load(path, NULL, &recording));
    CHECK_STATUS(loch_recording_save(recording, packed, &options), LOCH_E_BUSY);
    assert_null(fopen(packed, "r"));
    CHECK_OK(loch_recording_save(recording, packed, NULL));
    loch_recording *again;
    CHECK_OK(loch_recording_load(packed, NULL, &again));
    recordings_check_equal(recording, again);
    loch_recording_destroy(again);
    loch_recording_destroy(recording);
    remove(path);
    remove(packed);
    assert_int_equal(remove(folder), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_lines_come_back_as_they_were),
        cmocka_unit_test(test_blanks_comments_and_times_are_put_in_order),
        cmocka_unit_test(test_a_wrong_line_is_named),
        cmocka_unit_test(test_more_than_65536_streams_are_refused),
        cmocka_unit_test(test_a_resized_block_is_freed_and_allocated),
        cmocka_unit_test(test_random_recordings_become_traces),
        cmocka_unit_test(test_progress_can_end_the_work),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

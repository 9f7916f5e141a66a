/* SPDX-License-Identifier: MIT */
/* What recordings of any source become in the formats of other programs. tests/exchange reads these formats with the
 * programs that they are for. */
#include "json_check.h"
#include "recordings.h"

/* --- snapshots of PyTorch --- */

static loch_recording *through_torch(const loch_recording *recording)
{
    size_t bytes;
    loch_recording *again;
    char *data = recordings_write(lochi_insight_write_torch, recording, &bytes);
    CHECK_OK(recordings_read(lochi_insight_read_torch, data, bytes, &again));
    free(data);
    return again;
}

/* Fails if two blocks that are live at a time share an address. */
static void check_places(const loch_recording *recording)
{
    const loch_recording_block *blocks = loch_recording_get_blocks(recording);
    for (size_t i = 0; i < recording->blocks.count; i++) {
        assert_true(blocks[i].address != 0);
        for (size_t j = 0; j < i; j++) {
            const bool is_later = blocks[j].free_event < blocks[i].alloc_event;
            const bool is_apart = blocks[j].address + blocks[j].bytes <= blocks[i].address ||
                                  blocks[i].address + blocks[i].bytes <= blocks[j].address;
            assert_true(is_later || is_apart);
        }
    }
}

static void test_blocks_without_addresses_get_places(void **state)
{
    (void)state;
    loch_recording *recording = recordings_from_text("a 1 1000 0 0\na 2 600 3 5 tag=cache\nf 1 6\na 3 1001 0 7\n"
                                                     "a 4 1000 0 8\nf 2 9\n");
    loch_recording *again = through_torch(recording);
    assert_int_equal(again->info.peak_requested, 2601);
    assert_int_equal(again->info.live_bytes, 2001);
    assert_int_equal(again->info.events, 1 + 6); /* and the segment */
    assert_int_equal(again->info.streams, 2);
    check_places(again);
    assert_int_equal(loch_recording_get_blocks(again)[2].address, loch_recording_get_blocks(again)[0].address);
    assert_int_equal(again->info.peak_reserved, 3 * 1024);
    loch_recording_destroy(again);
    loch_recording_destroy(recording);
}

static void test_random_recordings_become_snapshots(void **state)
{
    (void)state;
    for (uint64_t seed = 1; seed <= 12; seed++) {
        test_random random = {seed};
        const recordings_shape shape = {
            .events = 600, .threads = 3, .has_addresses = seed % 2, .has_ties = seed % 3 == 0};
        loch_recording *recording = recordings_random(&random, &shape);
        loch_recording *again = through_torch(recording);
        if (!shape.has_addresses) {
            assert_int_equal(again->info.peak_requested, recording->info.peak_requested);
            assert_int_equal(again->info.live_bytes, recording->info.live_bytes);
            check_places(again);
        }
        loch_recording *third = through_torch(again);
        assert_int_equal(third->info.peak_requested, again->info.peak_requested);
        assert_int_equal(third->info.events, again->info.events);
        loch_recording_destroy(third);
        loch_recording_destroy(again);
        loch_recording_destroy(recording);
    }
}

static void add_range(loch_recording *recording, uint64_t address, uint64_t bytes)
{
    const loch_recording_range range = {.address = address,
                                        .bytes = bytes,
                                        .take_event = (uint32_t)recording->events.count,
                                        .give_event = LOCH_RECORDING_NONE};
    const loch_recording_event take = {.value = bytes,
                                       .kind = LOCH_RECORDED_TAKE,
                                       .stack = LOCH_RECORDING_NONE,
                                       .subject = lochi_insight_recording_add_range(recording, &range)};
    assert_int_not_equal(lochi_insight_recording_add_event(recording, &take), LOCH_RECORDING_NONE);
}

static size_t count_text(const char *data, size_t bytes, const char *text)
{
    size_t count = 0;
    for (const char *at = data; (at = memmem(at, bytes - (size_t)(at - data), text, strlen(text))) != NULL; at++)
        count++;
    return count;
}

static void test_a_block_over_two_ranges_makes_them_one_segment(void **state)
{
    (void)state;
    for (int is_over = 0; is_over < 2; is_over++) {
        loch_recording *recording;
        size_t bytes;
        CHECK_OK(lochi_insight_recording_create("memory", LOCH_RECORDING_BINARY, &recording));
        add_range(recording, 0x10000, 0x1000);
        add_range(recording, 0x11000, 0x1000);
        const loch_recording_block block = {.bytes = is_over ? 0x1800 : 0x800, .address = 0x10000};
        const loch_recording_event event = {.time_ns = 5000, .stack = LOCH_RECORDING_NONE};
        assert_int_equal(lochi_insight_recording_add_alloc(recording, &block, &event), 0);
        CHECK_OK(lochi_insight_recording_finish(recording));
        char *data = recordings_write(lochi_insight_write_torch, recording, &bytes);
        assert_int_equal(count_text(data, bytes, "segment_map"), is_over);
        assert_int_equal(count_text(data, bytes, "segment_alloc"), !is_over);
        loch_recording *again;
        CHECK_OK(recordings_read(lochi_insight_read_torch, data, bytes, &again));
        loch_recording_info info = {.size = sizeof info};
        CHECK_OK(loch_recording_get_info(again, &info));
        assert_int_equal(info.events, 3);
        assert_int_equal(info.duration_ns, 5000);
        assert_memory_equal(loch_recording_get_ranges(again), loch_recording_get_ranges(recording),
                            2 * sizeof(loch_recording_range));
        loch_recording_destroy(again);
        free(data);
        loch_recording_destroy(recording);
    }
}

static void test_a_block_of_a_block_is_left_out(void **state)
{
    (void)state;
    loch_recording *recording;
    CHECK_OK(lochi_insight_recording_create("memory", LOCH_RECORDING_BINARY, &recording));
    loch_recording_event event = {.stack = LOCH_RECORDING_NONE};
    const loch_recording_block outer = {.bytes = 4096, .address = 0x10000};
    const loch_recording_block inner = {.bytes = 100, .address = 0x10000, .id = 1};
    const uint32_t first = lochi_insight_recording_add_alloc(recording, &outer, &event);
    const uint32_t second = lochi_insight_recording_add_alloc(recording, &inner, &event);
    event.time_ns = 1000;
    (void)lochi_insight_recording_add_free(recording, second, &event);
    (void)lochi_insight_recording_add_free(recording, first, &event);
    CHECK_OK(lochi_insight_recording_finish(recording));
    loch_recording *again = through_torch(recording);
    assert_int_equal(again->info.blocks, 1);
    assert_int_equal(again->info.peak_requested, 4096);
    loch_recording_destroy(again);
    loch_recording_destroy(recording);
}

/* --- Chrome traces --- */

static loch_recording *with_calls(void)
{
    loch_recording *recording;
    CHECK_OK(lochi_insight_recording_create("memory", LOCH_RECORDING_BINARY, &recording));
    lochi_insight_recording_add_name(recording, LOCH_RECORDING_DEVICE, "sim:0", 5);
    lochi_insight_recording_add_name(recording, LOCH_RECORDING_THREAD, "main", 4);
    lochi_insight_recording_add_name(recording, LOCH_RECORDING_THREAD, "loader \"2\"", 10);
    lochi_insight_recording_add_name(recording, LOCH_RECORDING_CALL, "reserve", 7);
    /* Three calls; the second begins within the first one, and ends after it. */
    const uint64_t ends[] = {5000, 7000, 9000}, durations[] = {3000, 4000, 1500};
    for (size_t i = 0; i < 3; i++) {
        const loch_recording_event event = {.time_ns = ends[i],
                                            .value = durations[i],
                                            .kind = LOCH_RECORDED_CALL,
                                            .thread = i == 1,
                                            .stack = LOCH_RECORDING_NONE};
        assert_int_equal(lochi_insight_recording_add_event(recording, &event), i);
    }
    CHECK_OK(lochi_insight_recording_finish(recording));
    return recording;
}

static void test_calls_that_overlap_have_tracks_of_their_own(void **state)
{
    (void)state;
    size_t bytes;
    loch_recording *recording = with_calls();
    char *trace = recordings_write(lochi_insight_write_chrome, recording, &bytes);
    assert_true(json_is_valid(trace));
    assert_non_null(strstr(trace, "\"ts\":2.000,\"name\":\"reserve\",\"tid\":2000,\"dur\":3.000"));
    assert_non_null(strstr(trace, "\"ts\":3.000,\"name\":\"reserve\",\"tid\":2001,\"dur\":4.000"));
    assert_non_null(strstr(trace, "\"ts\":7.500,\"name\":\"reserve\",\"tid\":2000,\"dur\":1.500"));
    assert_int_equal(count_text(trace, bytes, "\"driver calls 2\""), 1);
    assert_non_null(strstr(trace, "loader \\\"2\\\""));
    free(trace);
    loch_recording_destroy(recording);
}

static void test_every_recording_is_strict_json(void **state)
{
    (void)state;
    for (uint64_t seed = 20; seed < 26; seed++) {
        test_random random = {seed};
        const recordings_shape shape = {.events = 500, .threads = 2, .has_addresses = seed % 2};
        size_t bytes;
        loch_recording *recording = recordings_random(&random, &shape);
        char *trace = recordings_write(lochi_insight_write_chrome, recording, &bytes);
        assert_true(json_is_valid(trace));
        assert_non_null(strstr(trace, "allocation failed"));
        free(trace);
        loch_recording_destroy(recording);
    }
}

static loch_status stop(double done, void *user)
{
    (void)done, (void)user;
    return loch_error_set(LOCH_E_CANCELLED, NULL, 0, "stopped by the test");
}

static void test_the_progress_function_ends_the_work(void **state)
{
    (void)state;
    char *data = NULL;
    size_t bytes;
    loch_recording *recording = with_calls();
    const loch_recording_options options = {.size = sizeof options, .progress = stop};
    insight_sink sink = {.file = open_memstream(&data, &bytes), .path = "memory"};
    CHECK_FAILS(lochi_insight_write_chrome(recording, &options, &sink), CANCELLED);
    fclose(sink.file);
    free(data);
    loch_recording_destroy(recording);
}

/* --- folded stacks and metrics --- */

static void test_folded_stacks_show_sizes_at_the_peak(void **state)
{
    (void)state;
    size_t bytes;
    loch_recording *recording =
        recordings_from_text("a 1 1000 0 0\na 2 600 0 5 tag=cache\nf 1 6\na 3 300 0 7 tag=cache\n");
    char *text = recordings_write(lochi_insight_write_folded, recording, &bytes);
    assert_string_equal(text, "memory 1000\nmemory;cache 600\n");
    free(text);
    loch_recording_destroy(recording);
}

static void test_metrics_count_driver_calls(void **state)
{
    (void)state;
    size_t bytes;
    loch_recording *recording = with_calls();
    char *text = recordings_write(lochi_insight_write_metrics, recording, &bytes);
    assert_non_null(strstr(text, "\nloch_driver_calls_total{device=\"sim:0\",call=\"reserve\"} 3\n"));
    assert_non_null(strstr(text, "\nloch_driver_seconds_total{device=\"sim:0\",call=\"reserve\"} 0.000008500\n"));
    assert_string_equal(text + bytes - 6, "# EOF\n");
    free(text);
    loch_recording_destroy(recording);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_blocks_without_addresses_get_places),
        cmocka_unit_test(test_random_recordings_become_snapshots),
        cmocka_unit_test(test_a_block_over_two_ranges_makes_them_one_segment),
        cmocka_unit_test(test_a_block_of_a_block_is_left_out),
        cmocka_unit_test(test_calls_that_overlap_have_tracks_of_their_own),
        cmocka_unit_test(test_every_recording_is_strict_json),
        cmocka_unit_test(test_the_progress_function_ends_the_work),
        cmocka_unit_test(test_folded_stacks_show_sizes_at_the_peak),
        cmocka_unit_test(test_metrics_count_driver_calls),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

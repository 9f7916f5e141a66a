/* SPDX-License-Identifier: MIT */
/* Spans on devices: their times are exact, events are used again, and streams and devices may go. */
#include "timeline_fixture.h"
#include "worker.h"

/* --- devices --- */

typedef struct on_device {
    loch_device *device;
    loch_stream *stream;
    loch_timeline *timeline;
    loch_span_options timed;
} on_device;

static on_device on_open(const char *name)
{
    on_device on = {.device = sim_open(name), .timeline = tl_create(0, 0)};
    on.stream = sim_stream(on.device, LOCH_STREAM_INDEPENDENT);
    on.timed = (loch_span_options){.size = sizeof on.timed, .stream = on.stream};
    return on;
}

static void on_close(on_device *on)
{
    loch_timeline_destroy(on->timeline);
    assert_int_equal(sim_stats(on->device).events, 0);
    loch_stream_close(on->stream);
    loch_device_release(on->device);
}

static void device_times_are_exact(void **state)
{
    (void)state;
    on_device on = on_open("sim:64MiB,clock=stepped");
    CHECK_OK(sim_busy(on.stream, 12345)); /* work before does not count */
    loch_span outer = loch_span_begin(on.timeline, "outer", &on.timed);
    loch_span first = loch_span_begin(on.timeline, "first", &on.timed);
    CHECK_OK(sim_busy(on.stream, 700));
    loch_span_end(&first);
    loch_span host = loch_span_begin(on.timeline, "host", NULL);
    tl_now_ns += 5;
    loch_span_end(&host);
    loch_span second = loch_span_begin(on.timeline, "second", &on.timed);
    CHECK_OK(sim_busy(on.stream, 30));
    loch_span_end(&second);
    loch_span_end(&outer);
    const tl_list *list = tl_read(on.timeline);
    assert_int_equal(list->count, 4);
    const uint64_t device_ns[] = {730, 700, 0, 30};
    for (int i = 0; i < 4; i++) {
        assert_int_equal(list->spans[i].device_ns, device_ns[i]);
        assert_string_equal(list->spans[i].device, i == 2 ? "" : "sim:64MiB,clock=stepped");
    }
    assert_int_equal(list->spans[0].host_ns, 5);
    on_close(&on);
}

static void events_are_used_again(void **state)
{
    (void)state;
    on_device on = on_open("sim:64MiB,clock=stepped");
    for (int turn = 0; turn < 10; turn++) {
        for (uint64_t i = 1; i <= 5; i++) {
            loch_span span = loch_span_begin(on.timeline, "s", &on.timed);
            CHECK_OK(sim_busy(on.stream, i));
            loch_span_end(&span);
        }
        if (turn % 2) { /* clearing does not wait for them */
            loch_timeline_forget(on.timeline);
            continue;
        }
        const tl_list *list = tl_read(on.timeline);
        assert_int_equal(list->count, 5);
        for (uint64_t i = 0; i < 5; i++)
            assert_int_equal(list->spans[i].device_ns, i + 1);
        loch_timeline_forget(on.timeline);
    }
    assert_int_equal(sim_stats(on.device).events, 11); /* five pairs and the anchor */
    on_close(&on);
}

static loch_status add_device_ns(const loch_span_record *record, void *user)
{
    *(uint64_t *)user += record->device_ns;
    return LOCH_OK;
}

/* A thousand spans whose work has ended need few events, even if the timeline is not read. */
static void times_that_have_come_are_taken_on_the_way(void **state)
{
    (void)state;
    on_device on = on_open("sim:64MiB,clock=stepped");
    for (int i = 0; i < 2000; i++) {
        loch_span span = loch_span_begin(on.timeline, "s", &on.timed);
        CHECK_OK(sim_busy(on.stream, 10));
        loch_span_end(&span);
        CHECK_OK(loch_sim_advance(on.device, 100));
    }
    assert_true(sim_stats(on.device).events < 600);
    const uint64_t queries = test_call_count(on.device, "event_query");
    assert_true(queries < 2200);
    on_close(&on);
}

/* While the device is behind, it is asked at times, not at every span; a walk waits for it. */
static void a_device_that_is_behind_is_not_asked_all_the_time(void **state)
{
    (void)state;
    on_device on = on_open("sim:64MiB,clock=stepped");
    for (int i = 0; i < 2000; i++) {
        loch_span span = loch_span_begin(on.timeline, "s", &on.timed);
        CHECK_OK(sim_busy(on.stream, 10));
        loch_span_end(&span);
    }
    assert_int_equal(sim_stats(on.device).events, 4001);
    assert_in_range(test_call_count(on.device, "event_query"), 1, 30);
    uint64_t timed = 0;
    CHECK_OK(loch_timeline_walk(on.timeline, add_device_ns, &timed));
    assert_int_equal(timed, 20000);
    on_close(&on);
}

static void spans_of_long_runs_keep_their_places(void **state)
{
    (void)state;
    on_device on = on_open("sim:64MiB,clock=stepped");
    for (int i = 0; i < 5; i++) {
        loch_span span = loch_span_begin(on.timeline, "s", &on.timed);
        CHECK_OK(sim_busy(on.stream, 600000000));
        loch_span_end(&span);
        CHECK_OK(loch_sim_advance(on.device, 600000000));
        tl_now_ns += 600000000;
    }
    char *text = tl_print(on.timeline, LOCH_TIMELINE_TRACE, 0);
    assert_non_null(strstr(text, "\"pid\":2,\"tid\""));
    for (int i = 0; i < 5; i++) {
        char place[64];
        snprintf(place, sizeof place, "\"ts\":%d.000,\"dur\":600000.000", i * 600000);
        assert_non_null(strstr(text, place));
    }
    free(text);
    on_close(&on);
}

static void captured_streams_are_timed_on_the_host(void **state)
{
    (void)state;
    on_device on = on_open("sim:64MiB,clock=stepped");
    loch_sim_graph *graph;
    loch_span around = loch_span_begin(on.timeline, "around", &on.timed);
    CHECK_OK(loch_sim_capture_begin(on.stream));
    const uint64_t records = test_call_count(on.device, "event_record");
    loch_span inside = loch_span_begin(on.timeline, "inside", &on.timed);
    CHECK_OK(sim_busy(on.stream, 100));
    loch_span_end(&inside);
    loch_span over = loch_span_begin(on.timeline, "over", &on.timed);
    assert_int_equal(test_call_count(on.device, "event_record"), records); /* the graph holds the kernel alone */
    CHECK_OK(loch_sim_capture_end(on.stream, &graph));                     /* nothing illegal happened */
    loch_span_end(&over);
    loch_span_end(&around);
    loch_span late = loch_span_begin(on.timeline, "late", &on.timed);
    CHECK_OK(loch_sim_capture_begin(on.stream));
    loch_span_end(&late);
    loch_sim_graph *empty;
    CHECK_OK(loch_sim_capture_end(on.stream, &empty));
    const tl_list *list = tl_read(on.timeline);
    assert_int_equal(list->count, 4);
    for (int i = 0; i < 4; i++)
        assert_string_equal(list->spans[i].device, i == 0 ? "sim:64MiB,clock=stepped" : "");
    loch_sim_graph_destroy(graph);
    loch_sim_graph_destroy(empty);
    on_close(&on);
}

static void a_stream_may_go_inside_a_span(void **state)
{
    (void)state;
    on_device on = on_open("sim:64MiB,clock=stepped");
    loch_span span = loch_span_begin(on.timeline, "a", &on.timed);
    loch_stream_close(on.stream);
    loch_span_end(&span);
    on.stream = NULL;
    const tl_list *list = tl_read(on.timeline);
    assert_int_equal(list->count, 1);
    assert_string_equal(list->spans[0].device, "");
    on_close(&on);
}

static void a_lost_device_leaves_the_hosts_time(void **state)
{
    (void)state;
    on_device on = on_open("sim:64MiB,clock=stepped,id=7");
    loch_span before = loch_span_begin(on.timeline, "before", &on.timed);
    loch_span_end(&before);
    loch_span during = loch_span_begin(on.timeline, "during", &on.timed);
    CHECK_OK(loch_sim_lose(on.device));
    loch_error_set(LOCH_E_LIMIT, NULL, 7, "mine");
    loch_span_end(&during);
    loch_span after = loch_span_begin(on.timeline, "after", &on.timed);
    tl_now_ns += 3;
    loch_span_end(&after);
    const tl_list *list = tl_read(on.timeline);
    assert_int_equal(list->count, 3);
    assert_int_equal(list->spans[2].host_ns, 3);
    for (int i = 0; i < 3; i++)
        assert_string_equal(list->spans[i].device, "");
    loch_timeline_forget(on.timeline);
    loch_timeline_destroy(on.timeline);
    assert_int_equal(loch_error_get()->status, LOCH_E_LIMIT);
    assert_string_equal(loch_error_get()->sentence, "mine");
    loch_stream_close(on.stream);
    loch_device_release(on.device);
}

static void a_timeline_outlives_the_callers_device(void **state)
{
    (void)state;
    loch_device *device = sim_open("sim:32MiB,clock=stepped");
    loch_timeline *timeline = tl_create(0, 0);
    {
        LOCH_SPAN(timeline, "a", .stream = loch_stream_get_default(device));
        CHECK_OK(sim_busy(loch_stream_get_default(device), 77));
    }
    loch_device_release(device);
    const tl_list *list = tl_read(timeline);
    assert_int_equal(list->spans[0].device_ns, 77);
    assert_string_equal(list->spans[0].device, "sim:32MiB,clock=stepped");
    loch_timeline_destroy(timeline);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        TL_TEST(device_times_are_exact),
        TL_TEST(events_are_used_again),
        TL_TEST(times_that_have_come_are_taken_on_the_way),
        TL_TEST(a_device_that_is_behind_is_not_asked_all_the_time),
        TL_TEST(spans_of_long_runs_keep_their_places),
        TL_TEST(captured_streams_are_timed_on_the_host),
        TL_TEST(a_stream_may_go_inside_a_span),
        TL_TEST(a_lost_device_leaves_the_hosts_time),
        TL_TEST(a_timeline_outlives_the_callers_device),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

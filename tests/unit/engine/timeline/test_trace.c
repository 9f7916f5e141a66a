/* SPDX-License-Identifier: MIT */
/* Places in a trace: spans of a device lie where the device was, inside the spans around them, however busy it was when
 * the first one was queued. Rows of threads have the names of the threads. */
#include "timeline_fixture.h"
#include "trace_spans.h"
#include <pthread.h>

#define US 1000u
#define DEVICES 2
#define STREAMS 3

static trace_spans spans; /* of the last trace */

static void read_trace(loch_timeline *timeline)
{
    char *text = trace_print(timeline);
    trace_read(text, &spans);
    free(text);
}

static void expect_at(const char *name, uint64_t from_ns, uint64_t to_ns)
{
    const trace_span *span = trace_find(&spans, TRACE_DEVICES, name);
    if (span->from_ns != from_ns || span->to_ns != to_ns)
        fail_msg("%s is at %" PRIu64 " to %" PRIu64 " ns, not at %" PRIu64 " to %" PRIu64, name, span->from_ns,
                 span->to_ns, from_ns, to_ns);
}

/* --- one stream --- */

typedef struct scene {
    loch_device *device;
    loch_stream *stream;
    loch_timeline *timeline;
    loch_span_options timed;
} scene;

static scene scene_open(void)
{
    scene s = {.device = sim_open("sim:64MiB,clock=stepped"), .timeline = tl_create(0, 0)};
    s.stream = sim_stream(s.device, LOCH_STREAM_INDEPENDENT);
    s.timed = (loch_span_options){.size = sizeof s.timed, .stream = s.stream};
    return s;
}

static void scene_close(scene *s)
{
    loch_timeline_destroy(s->timeline);
    assert_int_equal(sim_stats(s->device).events, 0);
    loch_stream_close(s->stream);
    loch_device_release(s->device);
}

/* Time goes on for the host and for the device. */
static void scene_pass(const scene *s, uint64_t ns)
{
    tl_now_ns += ns;
    CHECK_OK(loch_sim_advance(s->device, ns));
}

static void scene_work(const scene *s, const char *name, uint64_t ns)
{
    loch_span span = loch_span_begin(s->timeline, name, &s->timed);
    CHECK_OK(sim_busy(s->stream, ns));
    loch_span_end(&span);
}

/* The stream has 300 us of work before the first span, and the host goes on at once. */
static void a_busy_stream_delays_the_first_span(void **state)
{
    (void)state;
    scene s = scene_open();
    scene_pass(&s, 16 * US);
    CHECK_OK(sim_busy(s.stream, 300 * US));
    loch_span step = loch_span_begin(s.timeline, "step", &s.timed);
    scene_work(&s, "step.a", 100 * US);
    scene_pass(&s, 2 * US);
    scene_work(&s, "step.b", 105 * US);
    loch_span_end(&step);
    read_trace(s.timeline);
    expect_at("step", 316 * US, 521 * US);
    expect_at("step.a", 316 * US, 416 * US);
    expect_at("step.b", 416 * US, 521 * US);
    scene_close(&s);
}

/* The clock of the device is behind that of the host, so the places are corrected while the spans are measured. */
static void spans_of_a_slow_clock_stay_inside(void **state)
{
    (void)state;
    scene s = scene_open();
    CHECK_OK(sim_busy(s.stream, 300 * US));
    for (char name[] = "0.0.0"; name[0] < '3'; name[0]++) {
        const char outer[] = {name[0], '\0'};
        loch_span step = loch_span_begin(s.timeline, outer, &s.timed);
        loch_span part = loch_span_begin(s.timeline, (char[]){name[0], '.', '0', '\0'}, &s.timed);
        for (name[4] = '0'; name[4] < '4'; name[4]++) {
            tl_now_ns += 400 * US; /* the device stands still */
            scene_work(&s, name, 10 * US);
        }
        loch_span_end(&part);
        loch_span_end(&step);
    }
    read_trace(s.timeline);
    assert_int_equal(trace_expect_nested(&spans), 15);
    for (char name[] = "1"; name[0] < '3'; name[0]++) { /* no overlap */
        const trace_span *before = trace_find(&spans, TRACE_DEVICES, (char[]){(char)(name[0] - 1), '\0'});
        assert_true(trace_find(&spans, TRACE_DEVICES, name)->from_ns >= before->to_ns);
    }
    for (size_t i = 0; i < spans.count; i++) { /* no work begins before it is queued */
        const trace_span *host = &spans.spans[i];
        if (host->process != TRACE_HOST) continue;
        assert_true(trace_find(&spans, TRACE_DEVICES, host->name)->from_ns >= host->from_ns);
    }
    scene_close(&s);
}

/* Spans that are open when a trace is printed do not spoil those that have ended inside them. */
static void open_spans_leave_the_others_in_place(void **state)
{
    (void)state;
    scene s = scene_open();
    CHECK_OK(sim_busy(s.stream, 300 * US));
    loch_span all = loch_span_begin(s.timeline, "all", &s.timed);
    for (char name[] = "all.0"; name[4] < '3'; name[4]++) {
        loch_span step = loch_span_begin(s.timeline, name, &s.timed);
        scene_work(&s, (char[]){'a', 'l', 'l', '.', name[4], '.', 'x', '\0'}, 10 * US);
        tl_now_ns += 400 * US;
        scene_work(&s, (char[]){'a', 'l', 'l', '.', name[4], '.', 'y', '\0'}, 10 * US);
        loch_span_end(&step);
        read_trace(s.timeline);
        for (char inner[] = "all.0.x"; inner[4] <= name[4]; inner[4]++) {
            const trace_span *around = trace_find(&spans, TRACE_DEVICES, (char[]){'a', 'l', 'l', '.', inner[4], '\0'});
            for (inner[6] = 'x'; inner[6] <= 'y'; inner[6]++) {
                const trace_span *span = trace_find(&spans, TRACE_DEVICES, inner);
                assert_true(span->from_ns >= around->from_ns && span->to_ns <= around->to_ns);
            }
        }
    }
    loch_span_end(&all);
    read_trace(s.timeline);
    assert_int_equal(trace_expect_nested(&spans), 9);
    scene_close(&s);
}

/* --- several streams, devices and threads --- */

typedef struct crowd {
    loch_timeline *timeline;
    loch_device *devices[DEVICES];
    loch_stream *streams[DEVICES][STREAMS];
    test_random random;
} crowd;

/* Records a nest of spans on one stream, with work before and in between. */
static void crowd_nest(crowd *c, loch_stream *stream, const char *name, unsigned depth)
{
    char inner[64];
    const loch_span_options timed = {.size = sizeof timed, .stream = stream};
    loch_span span = loch_span_begin(c->timeline, name, &timed);
    for (unsigned i = 0; depth && i < 3; i++) {
        tl_now_ns += test_random_below(&c->random, 50 * US);
        snprintf(inner, sizeof inner, "%s.%u", name, i);
        crowd_nest(c, stream, inner, depth - 1);
        CHECK_OK(sim_busy(stream, test_random_below(&c->random, 50 * US)));
    }
    if (!depth) CHECK_OK(sim_busy(stream, 1 + test_random_below(&c->random, 20 * US)));
    loch_span_end(&span);
}

static void streams_and_devices_have_places_of_their_own(void **state)
{
    (void)state;
    crowd c = {.timeline = tl_create(0, 0), .random = {test_seed(29)}};
    for (size_t d = 0; d < DEVICES; d++) {
        c.devices[d] = sim_open(d ? "sim:64MiB,id=1" : "sim:64MiB,clock=stepped");
        for (size_t s = 0; s < STREAMS; s++) {
            c.streams[d][s] = sim_stream(c.devices[d], LOCH_STREAM_INDEPENDENT);
            CHECK_OK(sim_busy(c.streams[d][s], test_random_below(&c.random, 500 * US)));
        }
    }
    for (unsigned round = 0; round < 2; round++)
        for (unsigned d = 0; d < DEVICES; d++)
            for (unsigned s = 0; s < STREAMS; s++) {
                char name[64];
                snprintf(name, sizeof name, "%u-%u-%u", round, d, s);
                crowd_nest(&c, c.streams[d][s], name, 3);
            }
    read_trace(c.timeline);
    assert_int_equal(trace_expect_nested(&spans), 2 * DEVICES * STREAMS * (3 + 9 + 27));
    loch_timeline_destroy(c.timeline);
    for (size_t d = 0; d < DEVICES; d++) {
        for (size_t s = 0; s < STREAMS; s++)
            loch_stream_close(c.streams[d][s]);
        loch_device_release(c.devices[d]);
    }
}

/* A span of one stream that lies inside a span of another stream is not cut: the streams run beside each other. */
static void a_span_of_another_stream_keeps_its_length(void **state)
{
    (void)state;
    scene s = scene_open();
    loch_stream *other = sim_stream(s.device, LOCH_STREAM_INDEPENDENT);
    CHECK_OK(sim_busy(other, 70 * US));
    loch_span step = loch_span_begin(s.timeline, "step", &s.timed);
    CHECK_OK(sim_busy(s.stream, 10 * US));
    loch_span beside = loch_span_begin(s.timeline, "beside", &(loch_span_options){sizeof s.timed, .stream = other});
    CHECK_OK(sim_busy(other, 20 * US));
    loch_span_end(&beside);
    loch_span_end(&step);
    read_trace(s.timeline);
    expect_at("step", 0, 10 * US);
    expect_at("beside", 70 * US, 90 * US);
    loch_stream_close(other);
    scene_close(&s);
}

/* --- names of threads --- */

typedef struct named {
    loch_timeline *timeline;
    const char *name;
} named;

static void *named_run(void *user)
{
    const named *n = user;
    pthread_setname_np(pthread_self(), n->name);
    loch_span span = loch_span_begin(n->timeline, "work", NULL);
    loch_span_end(&span);
    return NULL;
}

/* Threads that come one after the other share a slot, but not a name. */
static void rows_have_the_names_of_threads(void **state)
{
    (void)state;
    static const char *const names[] = {"loader", "a \"b\\c\"", "trainer", "\xff name", "fifteen letters"};
    static const char *const shown[] = {"loader", "a \\\"b\\\\c\\\"", "trainer", "\\ufffd name", "fifteen letters"};
    loch_timeline *timeline = tl_create(0, 0);
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        named n = {timeline, names[i]};
        pthread_t thread;
        assert_int_equal(pthread_create(&thread, NULL, named_run, &n), 0);
        pthread_join(thread, NULL);
    }
    char *text = trace_print(timeline);
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        char row[160];
        snprintf(row, sizeof row, "\"pid\":1,\"tid\":%zu,\"name\":\"thread_name\",\"args\":{\"name\":\"%s\"}", i,
                 shown[i]);
        if (!strstr(text, row)) fail_msg("there is no %s in %s", row, text);
    }
    free(text);
    loch_timeline_destroy(timeline);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        TL_TEST(a_busy_stream_delays_the_first_span),       TL_TEST(spans_of_a_slow_clock_stay_inside),
        TL_TEST(open_spans_leave_the_others_in_place),      TL_TEST(streams_and_devices_have_places_of_their_own),
        TL_TEST(a_span_of_another_stream_keeps_its_length), TL_TEST(rows_have_the_names_of_threads),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

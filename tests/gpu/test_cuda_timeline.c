/* SPDX-License-Identifier: MIT */
/* Timelines on a real GPU: spans lie where the GPU worked, inside the spans around them, also if the streams were busy
 * when the first span was queued. */
#include "cuda_fixture.h"
#include "gate.h"
#include "support/trace_spans.h"
#include <loch/timeline.h>
#include <sched.h>

#define HELD_NS ((uint64_t)50000000) /* the gate stays closed at least so long */
#define BYTES (64 * TEST_MIB)
#define STREAMS 3

static trace_spans spans;

static void read_trace(loch_timeline *timeline)
{
    char *text = trace_print(timeline);
    trace_read(text, &spans);
    free(text);
}

/* Records three levels of spans around fills. */
static void nest(loch_timeline *timeline, loch_stream *stream, void *block, const char *name, unsigned depth)
{
    const unsigned char pattern = 0x5a;
    const loch_span_options timed = {.size = sizeof timed, .stream = stream};
    loch_span span = loch_span_begin(timeline, name, &timed);
    for (unsigned i = 0; depth && i < 3; i++) {
        char inner[64];
        snprintf(inner, sizeof inner, "%s.%u", name, i);
        nest(timeline, stream, block, inner, depth - 1);
    }
    if (!depth) CHECK_OK(loch_fill_on(block, BYTES, &pattern, sizeof pattern, stream));
    loch_span_end(&span);
}

static void spans_of_busy_streams_are_where_the_gpu_worked(void **state)
{
    (void)state;
    gate g = GATE_INITIALIZER;
    loch_timeline *timeline;
    loch_stream *streams[STREAMS];
    void *blocks[STREAMS];
    CHECK_OK(loch_timeline_create(NULL, &timeline));
    for (size_t i = 0; i < STREAMS; i++) {
        const loch_stream_options options = {.size = sizeof options, .order = LOCH_STREAM_INDEPENDENT};
        CHECK_OK(loch_stream_create(device, &options, &streams[i]));
        CHECK_OK(loch_raw_alloc(device, LOCH_MEMORY_DEVICE, BYTES, 0, &blocks[i]));
        CHECK_OK(loch_stream_call(streams[i], gate_wait, &g));
    }
    const uint64_t begin_ns = loch_host_now_ns();
    for (size_t i = 0; i < STREAMS; i++)
        nest(timeline, streams[i], blocks[i], (char[]){(char)('a' + i), '\0'}, 2);
    while (loch_host_now_ns() - begin_ns < HELD_NS)
        sched_yield();
    loch_span opening = loch_span_begin(timeline, "opening", NULL);
    gate_open(&g);
    loch_span_end(&opening);
    for (size_t i = 0; i < STREAMS; i++)
        nest(timeline, streams[i], blocks[i], (char[]){(char)('A' + i), '\0'}, 2);
    read_trace(timeline);
    assert_int_equal(trace_expect_nested(&spans), 2 * STREAMS * (3 + 9));
    const uint64_t opened_ns = trace_find(&spans, TRACE_HOST, "opening")->from_ns;
    for (char name[] = "a"; name[0] < 'a' + STREAMS; name[0]++) {
        const uint64_t from_ns = trace_find(&spans, TRACE_DEVICES, name)->from_ns;
        if (from_ns < opened_ns - HELD_NS / 2)
            fail_msg("%s began at %" PRIu64 " ns, the gate was opened at %" PRIu64, name, from_ns, opened_ns);
    }
    loch_timeline_destroy(timeline);
    for (size_t i = 0; i < STREAMS; i++) {
        CHECK_OK(loch_stream_sync(streams[i]));
        CHECK_OK(loch_raw_free(blocks[i]));
        loch_stream_close(streams[i]);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(spans_of_busy_streams_are_where_the_gpu_worked),
        cmocka_unit_test(nothing_is_left_of_the_device),
    };
    return CUDA_RUN(tests);
}

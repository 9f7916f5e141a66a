/* SPDX-License-Identifier: MIT */
/* Reads the spans and the names of rows out of a timeline that was printed as a trace. Every event is a line. */
#ifndef LOCH_TEST_TRACE_SPANS_H
#define LOCH_TEST_TRACE_SPANS_H

#include "json_check.h"
#include "test.h"

#include <inttypes.h>

#define TRACE_SPANS 1024
#define TRACE_HOST 1 /* the process of threads */
#define TRACE_DEVICES 2

typedef struct trace_span {
    int process;
    uint64_t row, from_ns, to_ns;
    char name[64];
} trace_span;

typedef struct trace_spans {
    size_t count;
    trace_span spans[TRACE_SPANS];
} trace_spans;

/* Prints a trace and checks that it is JSON; the caller frees it. */
__attribute__((unused)) static char *trace_print(loch_timeline *timeline)
{
    const size_t length = test_timeline_print(timeline, LOCH_TIMELINE_TRACE, 0, NULL, 0);
    char *text = malloc(length + 1);
    assert_non_null(text);
    assert_int_equal(test_timeline_print(timeline, LOCH_TIMELINE_TRACE, 0, text, length + 1), length);
    assert_true(json_is_valid(text));
    return text;
}

/* Reads all ended spans. Their names must need no escapes. */
__attribute__((unused)) static void trace_read(const char *text, trace_spans *out)
{
    out->count = 0;
    for (const char *line = text; line; line = strchr(line + 1, '\n')) {
        uint64_t from_us, length_us;
        unsigned from_ns, length_ns;
        trace_span span;
        if (sscanf(line,
                   "\n{\"ph\":\"X\",\"pid\":%d,\"tid\":%" SCNu64 ",\"name\":\"%63[^\"]\",\"ts\":%" SCNu64
                   ".%u,\"dur\":%" SCNu64 ".%u",
                   &span.process, &span.row, span.name, &from_us, &from_ns, &length_us, &length_ns) != 7)
            continue;
        span.from_ns = from_us * 1000 + from_ns;
        span.to_ns = span.from_ns + length_us * 1000 + length_ns;
        assert_true(out->count < TRACE_SPANS);
        out->spans[out->count++] = span;
    }
}

/* Finds a span by process and name. */
__attribute__((unused)) static const trace_span *trace_find(const trace_spans *in, int process, const char *name)
{
    for (size_t i = 0; i < in->count; i++)
        if (in->spans[i].process == process && !strcmp(in->spans[i].name, name)) return &in->spans[i];
    fail_msg("there is no span %s in process %d", name, process);
    return NULL;
}

/* Expects each span of a device inside the span around it. The name of a span is that of the span around it, a dot and
 * more. Returns how many were inside another one. */
__attribute__((unused)) static size_t trace_expect_nested(const trace_spans *in)
{
    size_t count = 0;
    for (size_t i = 0; i < in->count; i++) {
        const trace_span *span = &in->spans[i];
        char name[sizeof span->name];
        snprintf(name, sizeof name, "%s", span->name);
        char *dot = strrchr(name, '.');
        if (span->process != TRACE_DEVICES || !dot) continue;
        *dot = '\0';
        const trace_span *around = trace_find(in, TRACE_DEVICES, name);
        if (span->from_ns < around->from_ns || span->to_ns > around->to_ns)
            fail_msg("%s at %" PRIu64 " to %" PRIu64 " ns is not inside %s at %" PRIu64 " to %" PRIu64 " ns",
                     span->name, span->from_ns, span->to_ns, name, around->from_ns, around->to_ns);
        count++;
    }
    return count;
}

#endif

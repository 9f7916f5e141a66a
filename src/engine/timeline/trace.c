/* SPDX-License-Identifier: MIT */
/* Prints a timeline as a trace for Chrome and Perfetto: JSON with an array of events. Host spans are rows of process 1,
 * one row for each thread. Spans with device times are shown again as rows of process 2, one row for each stream, by
 * its number. Bytes in use are counters, one for each allocator name. */
#include "engine/timeline/trace.h"
#include "base/heap.h"
#include "engine/timeline/walk.h"
#include "tensor/digits.h"

#define TRACE_HOST 1
#define TRACE_DEVICES 2

/* The streams that have a name in the trace. If memory runs out, further rows have no name. */
typedef struct trace_names {
    uint64_t *streams;
    size_t count, capacity;
} trace_names;

static void trace_begin_event(lochi_text *out, const char *kind, int process, uint64_t row, const char *name)
{
    lochi_text_write(out, ",\n{\"ph\":\"%s\",\"pid\":%d,\"tid\":%llu,\"name\":", kind, process,
                     (unsigned long long)row);
    lochi_text_write_json(out, name);
}

static void put_us(lochi_text *out, const char *key, uint64_t ns)
{
    lochi_text_write(out, ",\"%s\":%llu.%03u", key, (unsigned long long)(ns / 1000), (unsigned)(ns % 1000));
}

/* Puts a plain decimal number without locale and exponent. NaN and infinity become null. */
static void put_number(lochi_text *out, double value)
{
    const lochi_number number = lochi_number_read(LOCH_F64, &value);
    if (number.kind != LOCHI_FINITE) {
        lochi_text_write(out, "null");
        return;
    }
    const lochi_cutoff cutoff = {.is_fraction = true, .most = 3, .least = -1};
    const lochi_digits digits = lochi_digits_make(&number, &cutoff);
    if (number.is_negative) lochi_text_write(out, "-");
    if (digits.exponent < 0) lochi_text_write(out, "0");
    for (int place = digits.exponent > 0 ? digits.exponent : 0; place > digits.exponent - digits.count || place >= 0;
         place--) {
        const int index = digits.exponent - place;
        if (place == -1) lochi_text_write(out, ".");
        if (place >= 0 && index < 0) continue;
        lochi_text_write(out, "%c", index >= 0 && index < digits.count ? digits.text[index] : '0');
    }
}

static void put_arguments(lochi_text *out, const timeline_view *view)
{
    lochi_text_write(out, ",\"args\":{\"level\":%d", view->record.level);
    if (view->record.flops != 0) {
        lochi_text_write(out, ",\"flops\":");
        put_number(out, view->record.flops);
    }
    if (view->record.bytes) lochi_text_write(out, ",\"bytes\":%llu", (unsigned long long)view->record.bytes);
    if (view->has_device) {
        lochi_text_write(out, ",\"device\":");
        lochi_text_write_json(out, view->record.device);
        put_us(out, "device_us", view->record.device_ns);
    }
    lochi_text_write(out, "}}");
}

/* Puts a span. An open span has a begin event and no end event. */
static void trace_span(lochi_text *out, const timeline_view *view)
{
    const loch_span_record *record = &view->record;
    trace_begin_event(out, view->is_open ? "B" : "X", TRACE_HOST, record->thread, record->name);
    put_us(out, "ts", record->start_ns);
    if (!view->is_open) put_us(out, "dur", record->host_ns);
    put_arguments(out, view);
    if (!view->has_device) return;
    trace_begin_event(out, "X", TRACE_DEVICES, view->stream_id, record->name);
    put_us(out, "ts", view->begin_ns);
    put_us(out, "dur", view->length_ns);
    put_arguments(out, view);
}

static void trace_counter(lochi_text *out, const char *name, uint64_t at_ns, uint64_t bytes)
{
    trace_begin_event(out, "C", TRACE_HOST, 0, name);
    put_us(out, "ts", at_ns);
    lochi_text_write(out, ",\"args\":{\"bytes\":%llu}}", (unsigned long long)bytes);
}

/* --- names of rows --- */

static void trace_name_row(lochi_text *out, int process, uint64_t row, const char *name)
{
    trace_begin_event(out, "M", process, row, "thread_name");
    lochi_text_write(out, ",\"args\":{\"name\":");
    lochi_text_write_json(out, name);
    lochi_text_write(out, "}}");
}

static void trace_name_thread(lochi_text *out, unsigned thread, const char *name)
{
    char number[32];
    lochi_text text = lochi_text_begin(number, sizeof number);
    lochi_text_write(&text, "thread %u", thread);
    trace_name_row(out, TRACE_HOST, thread, *name ? name : number);
}

static void trace_name_stream(lochi_text *out, uint64_t stream, const char *device)
{
    char name[LOCH_DEVICE_NAME_MAX + 64];
    lochi_text text = lochi_text_begin(name, sizeof name);
    lochi_text_write(&text, "%s stream %llu", device, (unsigned long long)stream);
    trace_name_row(out, TRACE_DEVICES, stream, name);
}

/* Puts the name of a process. It is the first event, so that every later event begins with a comma. */
static void trace_name_process(lochi_text *out, int process, const char *name, const char *before)
{
    lochi_text_write(out,
                     "%s\n{\"ph\":\"M\",\"pid\":%d,\"tid\":0,\"name\":\"process_name\",\"args\":{\"name\":\"%s\"}}",
                     before, process, name);
}

/* Adds a stream. Returns whether it is new. There are few streams; the search begins with the latest. */
static bool names_add(trace_names *names, uint64_t stream)
{
    for (size_t i = names->count; i--;)
        if (names->streams[i] == stream) return false;
    if (names->count == names->capacity) {
        const size_t capacity = names->capacity ? names->capacity * 2 : 32;
        uint64_t *streams = lochi_realloc(names->streams, capacity * sizeof *streams);
        if (!streams) return false;
        names->streams = streams;
        names->capacity = capacity;
    }
    names->streams[names->count++] = stream;
    return true;
}

void lochi_timeline_print_trace(loch_timeline *timeline, lochi_text *out)
{
    trace_names names = {0};
    bool is_first = true, has_devices = false;
    unsigned thread = 0;
    lochi_text_write(out, "{\"displayTimeUnit\":\"ns\",\"traceEvents\":[");
    trace_name_process(out, TRACE_HOST, "host", "");
    timeline_cursor cursor = lochi_timeline_cursor(timeline);
    for (timeline_view view; lochi_timeline_next(&cursor, &view);) {
        const loch_span_record *record = &view.record;
        if (is_first || record->thread != thread) trace_name_thread(out, record->thread, view.thread);
        is_first = false;
        thread = record->thread;
        if (view.has_device && !has_devices) trace_name_process(out, TRACE_DEVICES, "devices", ",");
        has_devices |= view.has_device;
        if (view.has_device && names_add(&names, view.stream_id))
            trace_name_stream(out, view.stream_id, record->device);
        trace_span(out, &view);
        if (!view.memory) continue;
        trace_counter(out, view.memory, record->start_ns, record->used_begin);
        if (!view.is_open) trace_counter(out, view.memory, record->start_ns + record->host_ns, record->used_end);
    }
    lochi_text_write(out, "\n]}\n");
    lochi_free(names.streams);
}

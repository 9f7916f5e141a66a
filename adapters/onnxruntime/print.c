/* SPDX-License-Identifier: MIT */
/* Prints the figures of the pool and of all names of sessions, as text or as JSON. */
#include "runtime.h"

#include <stdarg.h>
#include <stdio.h>

/* A text that is written as far as it fits, and counted beyond. */
typedef struct print_text {
    char *text;
    size_t bytes;
    size_t length;
} print_text;

static LOCH_PRINTF(2, 3) void print_add(print_text *out, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    const size_t room = out->length < out->bytes ? out->bytes - out->length : 0;
    const int length = vsnprintf(room ? out->text + out->length : NULL, room, format, arguments);
    va_end(arguments);
    if (length > 0) out->length += (size_t)length;
}

static loch_status print_stats(print_text *out, const loch_stats *stats, loch_format format)
{
    size_t length;
    const size_t room = out->length < out->bytes ? out->bytes - out->length : 0;
    const loch_status status = loch_stats_print(stats, format, room ? out->text + out->length : NULL, room, &length);
    if (status == LOCH_OK) out->length += length;
    return status;
}

static loch_status print_session(print_text *out, const lochi_ort_session *session, loch_format format)
{
    const int is_json = format == LOCH_FORMAT_JSON;
    loch_stats run, weights;
    loch_status status = lochi_ort_session_get_stats(session, &run, &weights);
    if (status != LOCH_OK || (!is_json && !run.allocs && !weights.allocs)) return status;
    print_add(out, is_json ? "\"%s\": {\"run\": " : "session \"%s\", run\n", session->name);
    status = print_stats(out, &run, format);
    if (is_json)
        print_add(out, ", \"weights\": ");
    else
        print_add(out, "session \"%s\", weights\n", session->name);
    if (status == LOCH_OK) status = print_stats(out, &weights, format);
    if (is_json) print_add(out, "}%s", session->next ? ", " : "");
    return status;
}

loch_status loch_onnxruntime_print(loch_onnxruntime *runtime, loch_format format, char *text, size_t bytes,
                                   size_t *length)
{
    if (!runtime || (!text && bytes)) return loch_error_set(LOCH_E_INVALID, NULL, 0, "an argument is NULL");
    const int is_json = format == LOCH_FORMAT_JSON;
    print_text out = {text, bytes, 0};
    loch_stats pool = {.size = sizeof pool};
    loch_status status = loch_allocator_get_stats(runtime->pool, &pool);
    print_add(&out, is_json ? "{\"pool\": " : "pool \"%s\"\n", loch_allocator_get_name(runtime->pool));
    if (status == LOCH_OK) status = print_stats(&out, &pool, format);
    if (is_json) print_add(&out, ", \"sessions\": {");
    pthread_mutex_lock(&runtime->names_lock);
    for (const lochi_ort_session *at = runtime->sessions; at && status == LOCH_OK; at = at->next)
        status = print_session(&out, at, format);
    pthread_mutex_unlock(&runtime->names_lock);
    if (is_json) print_add(&out, "}}");
    if (length) *length = out.length;
    return status;
}

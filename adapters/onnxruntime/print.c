/* SPDX-License-Identifier: MIT */
/* Prints the figures of the pool and of all names of sessions, as text or as JSON. */
#include "runtime.h"
#include "kit/text.h"

static loch_status print_stats(lochi_text *out, const loch_stats *stats, loch_format format)
{
    size_t length;
    const size_t room = out->length < out->bytes ? out->bytes - out->length : 0;
    const loch_status status = loch_stats_print(stats, format, room ? out->text + out->length : NULL, room, &length);
    if (status == LOCH_OK) out->length += length;
    return status;
}

static loch_status print_session(lochi_text *out, const lochi_ort_session *session, loch_format format)
{
    const int is_json = format == LOCH_FORMAT_JSON;
    loch_stats run, weights;
    loch_status status = lochi_ort_session_get_stats(session, &run, &weights);
    if (status != LOCH_OK || (!is_json && !run.allocs && !weights.allocs)) return status;
    lochi_text_write(out, is_json ? "\"%s\": {\"run\": " : "session \"%s\", run\n", session->name);
    status = print_stats(out, &run, format);
    if (is_json)
        lochi_text_write(out, ", \"weights\": ");
    else
        lochi_text_write(out, "session \"%s\", weights\n", session->name);
    if (status == LOCH_OK) status = print_stats(out, &weights, format);
    if (is_json) lochi_text_write(out, "}%s", session->next ? ", " : "");
    return status;
}

loch_status loch_onnxruntime_print(loch_onnxruntime *runtime, loch_format format, char *text, size_t bytes,
                                   size_t *length)
{
    if (!runtime || (!text && bytes)) return loch_error_set(LOCH_E_INVALID, NULL, 0, "an argument is NULL");
    const int is_json = format == LOCH_FORMAT_JSON;
    lochi_text out = lochi_text_begin(text, bytes);
    loch_stats pool = {.size = sizeof pool};
    loch_status status = loch_allocator_get_stats(runtime->pool, &pool);
    lochi_text_write(&out, is_json ? "{\"pool\": " : "pool \"%s\"\n", loch_allocator_get_name(runtime->pool));
    if (status == LOCH_OK) status = print_stats(&out, &pool, format);
    if (is_json) lochi_text_write(&out, ", \"sessions\": {");
    pthread_mutex_lock(&runtime->names_lock);
    for (const lochi_ort_session *at = runtime->sessions; at && status == LOCH_OK; at = at->next)
        status = print_session(&out, at, format);
    pthread_mutex_unlock(&runtime->names_lock);
    if (is_json) lochi_text_write(&out, "}}");
    if (length) *length = out.length;
    return status;
}

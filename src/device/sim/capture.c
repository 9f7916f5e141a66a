/* SPDX-License-Identifier: MIT */
/* Captures of simulated streams in progress.
 *
 * A capture is a script: operations, marks (recorded events) and waits for marks, each on a branch. A branch is one
 * of the captured streams; branch 0 is the stream on which the capture began. graph.c plays scripts back. */
#include "device/sim/capture.h"
#include "base/checked.h"
#include "base/heap.h"
#include "device/sim/fail.h"
#include <string.h>

/* --- scripts --- */

void lochi_sim_script_fini(lochi_sim_script *script)
{
    while (script->first) {
        lochi_sim_item *item = script->first;
        script->first = item->next;
        lochi_free(item);
    }
    script->last = NULL;
}

/* Appends an item. `request` is copied with everything that it points to, except the memory that the operation works
 * on. */
static loch_status capture_append(lochi_sim_stream *stream, lochi_sim_item_type type, size_t mark,
                                  const lochi_sim_request *request)
{
    lochi_lock_assert_held(&lochi_sim_all.lock);
    lochi_sim_script *script = &stream->capture->script;
    const size_t name_bytes = request ? strlen(request->name) + 1 : 0;
    const size_t strided_bytes = request && request->strided ? sizeof *request->strided : 0;
    size_t ranges_bytes = 0, bytes = 0;
    lochi_sim_item *item = NULL;
    if (lochi_mul(request ? request->ranges_count : 0, sizeof(lochi_sim_range), &ranges_bytes) &&
        lochi_add(ranges_bytes, sizeof *item, &bytes) && lochi_add(bytes, strided_bytes + name_bytes, &bytes))
        item = lochi_zalloc(bytes);
    if (!item) return SIM_FAIL(HOST_MEMORY, "no host memory for a captured operation");
    item->type = type;
    item->branch = stream->branch;
    item->mark = mark;
    if (request) {
        lochi_sim_range *ranges = (lochi_sim_range *)(item + 1);
        loch_strided *strided = (loch_strided *)((char *)ranges + ranges_bytes);
        char *name = (char *)strided + strided_bytes;
        item->request = *request;
        if (strided_bytes) {
            *strided = *request->strided;
            item->request.strided = strided;
        }
        if (ranges_bytes) memcpy(ranges, request->ranges, ranges_bytes);
        item->request.ranges = ranges;
        if (name_bytes) item->request.name = memcpy(name, request->name, name_bytes);
    }
    if (script->last)
        script->last->next = item;
    else
        script->first = item;
    script->last = item;
    return LOCH_OK;
}

loch_status lochi_sim_script_check_joined(const lochi_sim_script *script)
{
    const size_t width = script->branches;
    size_t rows, *known = NULL;
    if (lochi_add(width, script->marks, &rows) && lochi_mul(rows, width, &rows)) {
        size_t bytes;
        if (lochi_mul(rows, sizeof *known, &bytes)) known = lochi_zalloc(bytes);
    }
    if (!known) return SIM_FAIL(HOST_MEMORY, "no host memory to end a capture");
    size_t *marks = known + width * width;
    for (const lochi_sim_item *item = script->first; item; item = item->next) {
        size_t *branch = known + item->branch * width, *mark = marks + item->mark * width;
        if (item->type == LOCHI_SIM_ITEM_OP) branch[item->branch]++;
        if (item->type == LOCHI_SIM_ITEM_MARK) memcpy(mark, branch, width * sizeof *mark);
        for (size_t i = 0; item->type == LOCHI_SIM_ITEM_WAIT && i < width; i++)
            if (branch[i] < mark[i]) branch[i] = mark[i];
    }
    bool is_joined = true;
    for (size_t i = 0; i < width; i++)
        is_joined = is_joined && known[i] == known[i * width + i];
    lochi_free(known);
    if (is_joined) return LOCH_OK;
    return SIM_FAIL(DRIVER, "a stream that joined the capture was not joined back: wait for its event before the end");
}

/* --- captures in progress --- */

static lochi_sim_capture *capture_find(uint64_t id)
{
    lochi_lock_assert_held(&lochi_sim_all.lock);
    lochi_sim_capture *capture = lochi_sim_all.captures;
    while (capture && capture->id != id)
        capture = capture->next;
    return capture;
}

uint64_t lochi_sim_capture_id(const lochi_sim_capture *capture)
{
    return capture->id;
}

loch_status lochi_sim_capture_break(lochi_sim_capture *capture, const char *why)
{
    lochi_lock_assert_held(&lochi_sim_all.lock);
    if (!capture->broken_by) capture->broken_by = why;
    return SIM_FAIL(DRIVER, "%s: the capture is broken", why);
}

loch_status lochi_sim_capture_refuse(const lochi_sim_event *event, const char *what)
{
    lochi_lock_assert_held(&lochi_sim_all.lock);
    lochi_sim_capture *capture = capture_find(event->capture);
    if (capture && !capture->broken_by)
        capture->broken_by = "an event that was recorded in the capture was used outside";
    return SIM_FAIL(DRIVER, "an event that was recorded in a capture cannot be %s", what);
}

loch_status lochi_sim_capture_check(const lochi_sim_capture *capture)
{
    lochi_lock_assert_held(&lochi_sim_all.lock);
    if (!capture->broken_by) return LOCH_OK;
    return SIM_FAIL(DRIVER, "%s: the capture is broken", capture->broken_by);
}

loch_status lochi_sim_capture_add(lochi_sim_stream *stream, const lochi_sim_request *request)
{
    lochi_lock_assert_held(&lochi_sim_all.lock);
    LOCH_TRY_RETURN(lochi_sim_capture_check(stream->capture));
    return capture_append(stream, LOCHI_SIM_ITEM_OP, 0, request);
}

loch_status lochi_sim_capture_record(lochi_sim_stream *stream, lochi_sim_event *event)
{
    lochi_lock_assert_held(&lochi_sim_all.lock);
    lochi_sim_capture *capture = stream->capture;
    LOCH_TRY_RETURN(lochi_sim_capture_check(capture));
    LOCH_TRY_RETURN(capture_append(stream, LOCHI_SIM_ITEM_MARK, capture->script.marks, NULL));
    event->is_recorded = true;
    event->capture = capture->id;
    event->mark = capture->script.marks++;
    return LOCH_OK;
}

loch_status lochi_sim_capture_wait(lochi_sim_stream *stream, const lochi_sim_event *event)
{
    lochi_lock_assert_held(&lochi_sim_all.lock);
    lochi_sim_capture *capture = event->capture ? capture_find(event->capture) : NULL;
    if (!event->capture) {
        if (!event->is_recorded) return LOCH_OK;
        return lochi_sim_capture_break(stream->capture, "a captured stream waited for an event from outside");
    }
    if (!capture) return SIM_FAIL(DRIVER, "the event was recorded in a capture that has ended");
    LOCH_TRY_RETURN(lochi_sim_capture_check(capture));
    if (stream->capture && stream->capture != capture) {
        lochi_sim_capture_break(stream->capture, "two captures were joined");
        return lochi_sim_capture_break(capture, "two captures were joined");
    }
    if (stream->device != event->device)
        return SIM_FAIL(UNSUPPORTED, "a capture over several simulated devices is not simulated");
    if (stream == &stream->device->default_stream)
        return lochi_sim_capture_break(capture, "the default stream cannot be captured");
    const bool is_new = !stream->capture;
    if (is_new) {
        stream->capture = capture;
        stream->branch = capture->script.branches;
    }
    const loch_status status = capture_append(stream, LOCHI_SIM_ITEM_WAIT, event->mark, NULL);
    if (is_new && status == LOCH_OK) capture->script.branches++;
    if (is_new && status != LOCH_OK) stream->capture = NULL;
    return status;
}

void lochi_sim_capture_end(lochi_sim_capture *capture)
{
    lochi_lock_assert_held(&lochi_sim_all.lock);
    lochi_sim *sim = capture->origin->device;
    for (lochi_sim_stream *stream = &sim->default_stream; stream; stream = stream->next)
        if (stream->capture == capture) stream->capture = NULL;
    lochi_sim_capture **link = &lochi_sim_all.captures;
    while (*link != capture)
        link = &(*link)->next;
    *link = capture->next;
    lochi_sim_script_fini(&capture->script);
    lochi_free(capture);
}

void lochi_sim_capture_leave(lochi_sim_stream *stream)
{
    lochi_lock_assert_held(&lochi_sim_all.lock);
    lochi_sim_capture *capture = stream->capture;
    if (capture->origin == stream) {
        lochi_sim_capture_end(capture);
        return;
    }
    stream->capture = NULL;
    if (!capture->broken_by) capture->broken_by = "a captured stream was destroyed";
}

loch_status lochi_sim_capture_begin(lochi_sim_stream *stream)
{
    lochi_lock_assert_held(&lochi_sim_all.lock);
    lochi_sim *sim = stream->device;
    LOCH_TRY_RETURN(lochi_sim_need(sim, LOCH_CAN_CAPTURE, "captures"));
    if (stream->capture) return SIM_FAIL(INVALID, "the stream is already being captured");
    if (stream == &sim->default_stream) return SIM_FAIL(DRIVER, "the default stream cannot be captured");
    lochi_sim_capture *capture = lochi_zalloc(sizeof *capture);
    if (!capture) return SIM_FAIL(HOST_MEMORY, "no host memory for a capture");
    capture->id = ++lochi_sim_all.last_capture;
    capture->origin = stream;
    capture->script.branches = 1;
    capture->next = lochi_sim_all.captures;
    lochi_sim_all.captures = capture;
    stream->capture = capture;
    stream->branch = 0;
    return LOCH_OK;
}

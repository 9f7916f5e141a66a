/* SPDX-License-Identifier: MIT */
/* Captures and graphs of simulated devices.
 *
 * A capture is a script: operations, marks (recorded events) and waits for marks, each on a branch, which is one of the
 * captured streams; branch 0 is the one where it began. A graph is the script and a stream of its own for every further
 * branch; launching plays it back, branch 0 on the stream of the launch. Branches begin by waiting for a mark and have
 * been joined to branch 0 at the end, so they come behind what the stream held, and what follows comes behind them. Two
 * launches of one graph follow each other, as CUDA's do. */
#include "base/checked.h"
#include "base/heap.h"
#include "device/sim/sim.h"
#include <string.h>

typedef enum capture_type { CAPTURE_OP, CAPTURE_MARK, CAPTURE_WAIT } capture_type;

typedef struct capture_item {
    struct capture_item *next;
    capture_type type;
    size_t branch, mark;
    lochi_sim_request request; /* its ranges and name are behind it */
} capture_item;

typedef struct capture_script {
    capture_item *first, *last;
    size_t branches, marks;
} capture_script;

struct lochi_sim_capture {
    lochi_sim_capture *next; /* in the world */
    uint64_t id;
    lochi_sim_stream *origin;
    const char *broken_by; /* NULL while it is whole; static string */
    capture_script script;
};

typedef struct capture_mark {
    lochi_sim_key key;
    lochi_sim_vector seen;
} capture_mark;

struct loch_sim_graph {
    loch_device *device; /* retained */
    lochi_sim *sim;
    capture_script script;
    lochi_sim_stream **branches; /* [0] is not used */
    capture_mark *marks;         /* scratch of a launch */
    capture_mark end;            /* of the last launch */
};

/* --- scripts --- */

static void capture_script_fini(capture_script *script)
{
    while (script->first) {
        capture_item *item = script->first;
        script->first = item->next;
        lochi_free(item);
    }
    script->last = NULL;
}

/* Appends an item; `request` is copied with all it points to but what the operation works on. */
static loch_status capture_append(lochi_sim_stream *stream, capture_type type, size_t mark,
                                  const lochi_sim_request *request)
{
    capture_script *script = &stream->capture->script;
    const size_t name_bytes = request ? strlen(request->name) + 1 : 0;
    size_t ranges_bytes = 0, bytes = 0;
    capture_item *item = NULL;
    if (lochi_mul(request ? request->ranges_count : 0, sizeof(lochi_sim_range), &ranges_bytes) &&
        lochi_add(ranges_bytes, sizeof *item, &bytes) && lochi_add(bytes, name_bytes, &bytes))
        item = lochi_zalloc(bytes);
    if (!item) return SIM_FAIL(HOST_MEMORY, "no host memory for a captured operation");
    item->type = type;
    item->branch = stream->branch;
    item->mark = mark;
    if (request) {
        lochi_sim_range *ranges = (lochi_sim_range *)(item + 1);
        char *name = (char *)ranges + ranges_bytes;
        item->request = *request;
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

/* Whether every branch's last operation is one that branch 0 has waited for. */
static loch_status capture_check_joined(const capture_script *script)
{
    const size_t width = script->branches;
    size_t rows, *known = NULL;
    if (lochi_add(width, script->marks, &rows) && lochi_mul(rows, width, &rows)) {
        size_t bytes;
        if (lochi_mul(rows, sizeof *known, &bytes)) known = lochi_zalloc(bytes);
    }
    if (!known) return SIM_FAIL(HOST_MEMORY, "no host memory to end a capture");
    size_t *marks = known + width * width;
    for (const capture_item *item = script->first; item; item = item->next) {
        size_t *branch = known + item->branch * width, *mark = marks + item->mark * width;
        if (item->type == CAPTURE_OP) branch[item->branch]++;
        if (item->type == CAPTURE_MARK) memcpy(mark, branch, width * sizeof *mark);
        for (size_t i = 0; item->type == CAPTURE_WAIT && i < width; i++)
            if (branch[i] < mark[i]) branch[i] = mark[i];
    }
    bool is_joined = true;
    for (size_t i = 0; i < width; i++)
        is_joined = is_joined && known[i] == known[i * width + i];
    lochi_free(known);
    if (is_joined) return LOCH_OK;
    return SIM_FAIL(DRIVER, "a stream that joined the capture was not joined back: wait for its event before the end");
}

/* --- while a capture is under way --- */

static lochi_sim_capture *capture_find(uint64_t id)
{
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
    if (!capture->broken_by) capture->broken_by = why;
    return SIM_FAIL(DRIVER, "%s: the capture is void", why);
}

loch_status lochi_sim_capture_refuse(const lochi_sim_event *event, const char *what)
{
    lochi_sim_capture *capture = capture_find(event->capture);
    if (capture && !capture->broken_by)
        capture->broken_by = "an event that was recorded in the capture was used outside";
    return SIM_FAIL(DRIVER, "an event that was recorded in a capture cannot be %s", what);
}

static loch_status capture_check(const lochi_sim_capture *capture)
{
    if (!capture->broken_by) return LOCH_OK;
    return SIM_FAIL(DRIVER, "%s: the capture is void", capture->broken_by);
}

loch_status lochi_sim_capture_add(lochi_sim_stream *stream, const lochi_sim_request *request)
{
    LOCH_TRY_RETURN(capture_check(stream->capture));
    return capture_append(stream, CAPTURE_OP, 0, request);
}

loch_status lochi_sim_capture_record(lochi_sim_stream *stream, lochi_sim_event *event)
{
    lochi_sim_capture *capture = stream->capture;
    LOCH_TRY_RETURN(capture_check(capture));
    LOCH_TRY_RETURN(capture_append(stream, CAPTURE_MARK, capture->script.marks, NULL));
    event->is_recorded = true;
    event->capture = capture->id;
    event->mark = capture->script.marks++;
    return LOCH_OK;
}

loch_status lochi_sim_capture_wait(lochi_sim_stream *stream, const lochi_sim_event *event)
{
    lochi_sim_capture *capture = event->capture ? capture_find(event->capture) : NULL;
    if (!event->capture) {
        if (!event->is_recorded) return LOCH_OK;
        return lochi_sim_capture_break(stream->capture, "a captured stream waited for an event from outside");
    }
    if (!capture) return SIM_FAIL(DRIVER, "the event was recorded in a capture that has ended");
    LOCH_TRY_RETURN(capture_check(capture));
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
    const loch_status status = capture_append(stream, CAPTURE_WAIT, event->mark, NULL);
    if (is_new && status == LOCH_OK) capture->script.branches++;
    if (is_new && status != LOCH_OK) stream->capture = NULL;
    return status;
}

/* Ends a capture: its streams are ordinary ones again. */
static void capture_end(lochi_sim_capture *capture)
{
    lochi_sim *sim = capture->origin->device;
    for (lochi_sim_stream *stream = &sim->default_stream; stream; stream = stream->next)
        if (stream->capture == capture) stream->capture = NULL;
    lochi_sim_capture **link = &lochi_sim_all.captures;
    while (*link != capture)
        link = &(*link)->next;
    *link = capture->next;
    capture_script_fini(&capture->script);
    lochi_free(capture);
}

void lochi_sim_capture_leave(lochi_sim_stream *stream)
{
    lochi_sim_capture *capture = stream->capture;
    if (capture->origin == stream) {
        capture_end(capture);
        return;
    }
    stream->capture = NULL;
    if (!capture->broken_by) capture->broken_by = "a captured stream was destroyed";
}

/* --- the public side --- */

/* The simulated stream behind a stream; takes the lock when it succeeds. */
static loch_status capture_take(loch_stream *stream, lochi_sim_stream **out)
{
    lochi_sim *sim;
    LOCH_TRY_RETURN(lochi_sim_of_stream(stream, &sim, out));
    lochi_lock_take(&lochi_sim_all.lock);
    const loch_status status = lochi_sim_check_lost(sim);
    if (status != LOCH_OK) return lochi_sim_end(status);
    return LOCH_OK;
}

static loch_status capture_begin(lochi_sim_stream *stream)
{
    lochi_sim *sim = stream->device;
    LOCH_TRY_RETURN(lochi_sim_need(sim, LOCH_CAN_CAPTURE, "captures"));
    if (stream->capture) return SIM_FAIL(INVALID, "the stream is being captured already");
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

loch_status loch_sim_capture_begin(loch_stream *stream)
{
    lochi_sim_stream *simulated;
    LOCH_TRY_RETURN(capture_take(stream, &simulated));
    return lochi_sim_end(capture_begin(simulated));
}

/* Frees a graph, whole or half-built, but for its device. */
static void graph_fini(loch_sim_graph *graph)
{
    for (size_t i = 1; graph->branches && i < graph->script.branches; i++)
        if (graph->branches[i]) lochi_sim_stream_end(graph->branches[i]);
    for (size_t i = 0; graph->marks && i < graph->script.marks; i++)
        lochi_sim_vector_fini(&graph->marks[i].seen);
    lochi_sim_vector_fini(&graph->end.seen);
    lochi_free(graph->branches);
    lochi_free(graph->marks);
    capture_script_fini(&graph->script);
    lochi_free(graph);
}

/* Makes what a launch needs beside the script. Branches keep the numbers of the captured streams, for reports. */
static loch_status graph_prepare(loch_sim_graph *graph, const lochi_sim_capture *capture)
{
    const capture_script *script = &capture->script;
    LOCH_TRY_RETURN(lochi_sim_vector_init(&graph->end.seen));
    graph->branches = lochi_zalloc(script->branches * sizeof *graph->branches);
    graph->marks = lochi_zalloc((script->marks + 1) * sizeof *graph->marks);
    if (!graph->branches || !graph->marks) return SIM_FAIL(HOST_MEMORY, "no host memory for a graph");
    graph->script.branches = script->branches;
    graph->script.marks = script->marks;
    for (size_t i = 1; i < script->branches; i++)
        LOCH_TRY_RETURN(lochi_sim_stream_make(graph->sim, &graph->branches[i]));
    for (size_t i = 0; i < script->marks; i++)
        LOCH_TRY_RETURN(lochi_sim_vector_init(&graph->marks[i].seen));
    for (lochi_sim_stream *stream = graph->sim->default_stream.next; stream; stream = stream->next)
        if (stream->capture == capture && stream->branch) graph->branches[stream->branch]->number = stream->number;
    return LOCH_OK;
}

static loch_status graph_create(lochi_sim_stream *stream, loch_device *device, loch_sim_graph **out)
{
    lochi_sim_capture *capture = stream->capture;
    if (!capture) return SIM_FAIL(INVALID, "the stream is not being captured");
    if (capture->origin != stream)
        return lochi_sim_capture_break(capture, "a capture has to end on the stream where it began");
    loch_status status = capture_check(capture);
    if (status == LOCH_OK) status = capture_check_joined(&capture->script);
    loch_sim_graph *graph = status == LOCH_OK ? lochi_zalloc(sizeof *graph) : NULL;
    if (status == LOCH_OK && !graph) status = SIM_FAIL(HOST_MEMORY, "no host memory for a graph");
    if (status == LOCH_OK) {
        graph->sim = stream->device;
        status = graph_prepare(graph, capture);
        if (status != LOCH_OK) graph_fini(graph);
    }
    if (status == LOCH_OK) {
        graph->device = loch_device_retain(device);
        graph->script = capture->script;
        capture->script = (capture_script){.first = NULL};
        *out = graph;
    }
    capture_end(capture);
    return status;
}

loch_status loch_sim_capture_end(loch_stream *stream, loch_sim_graph **out)
{
    if (!out) return SIM_FAIL(INVALID, "ending a capture needs a place for the graph");
    *out = NULL;
    lochi_sim_stream *simulated;
    LOCH_TRY_RETURN(capture_take(stream, &simulated));
    return lochi_sim_end(graph_create(simulated, loch_stream_get_device(stream), out));
}

/* Makes all operations of a launch, or none. */
static loch_status graph_make_ops(const loch_sim_graph *graph, lochi_sim_op **out)
{
    lochi_sim_op **link = out;
    *out = NULL;
    for (const capture_item *item = graph->script.first; item; item = item->next) {
        if (item->type != CAPTURE_OP) continue;
        const loch_status status = lochi_sim_op_create(graph->sim, &item->request, link);
        if (status != LOCH_OK) {
            *link = NULL;
            while (*out) {
                lochi_sim_op *op = *out;
                *out = op->next;
                lochi_sim_op_destroy(op);
            }
            return status;
        }
        link = &(*link)->next;
    }
    return LOCH_OK;
}

static void graph_follow(lochi_sim_stream *stream, const capture_mark *mark)
{
    stream->tail = lochi_sim_key_later(stream->tail, mark->key);
    lochi_sim_vector_join(&stream->seen, &mark->seen);
}

static loch_status graph_launch(loch_sim_graph *graph, lochi_sim_stream *stream)
{
    if (stream->device != graph->sim) return SIM_FAIL(INVALID, "the graph and the stream are of different devices");
    if (stream->capture) return SIM_FAIL(UNSUPPORTED, "a graph inside a capture is not simulated");
    lochi_sim_op *ops;
    LOCH_TRY_RETURN(lochi_sim_stream_enter(stream));
    LOCH_TRY_RETURN(graph_make_ops(graph, &ops));
    graph_follow(stream, &graph->end);
    for (const capture_item *item = graph->script.first; item; item = item->next) {
        lochi_sim_stream *branch = item->branch ? graph->branches[item->branch] : stream;
        capture_mark *mark = &graph->marks[item->mark];
        if (item->type == CAPTURE_OP) {
            lochi_sim_op *op = ops;
            ops = op->next;
            lochi_sim_op_queue(branch, op);
        } else if (item->type == CAPTURE_MARK) {
            mark->key = branch->tail;
            lochi_sim_vector_copy(&mark->seen, &branch->seen);
        } else {
            graph_follow(branch, mark);
        }
    }
    graph->end.key = stream->tail;
    lochi_sim_vector_copy(&graph->end.seen, &stream->seen);
    lochi_sim_settle(graph->sim);
    return LOCH_OK;
}

loch_status loch_sim_graph_launch(loch_sim_graph *graph, loch_stream *stream)
{
    if (!graph) return SIM_FAIL(INVALID, "there is no graph to launch");
    lochi_sim_stream *simulated;
    LOCH_TRY_RETURN(capture_take(stream, &simulated));
    lochi_sim_tick(simulated->device);
    return lochi_sim_end(graph_launch(graph, simulated));
}

void loch_sim_graph_destroy(loch_sim_graph *graph)
{
    if (!graph) return;
    loch_device *device = graph->device;
    lochi_lock_take(&lochi_sim_all.lock);
    graph_fini(graph);
    lochi_lock_drop(&lochi_sim_all.lock);
    loch_device_release(device);
}

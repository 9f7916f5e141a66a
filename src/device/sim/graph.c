/* SPDX-License-Identifier: MIT */
/* Graphs of simulated devices, and the public functions of captures.
 *
 * A graph is the script of a capture, with a stream of its own for every branch except branch 0. A launch plays the
 * script back, branch 0 on the stream of the launch. A branch begins by waiting for a mark and is joined to branch 0
 * at the end. So the branches are ordered after the earlier work of the stream, and later work is ordered after
 * them. Two launches of one graph run one after the other, as with CUDA. */
#include "base/heap.h"
#include "device/sim/call.h"
#include "device/sim/capture.h"
#include "device/sim/clock.h"
#include "device/sim/control.h"
#include "device/sim/fail.h"
#include "device/sim/op.h"
#include "device/sim/order.h"
#include "device/sim/stream.h"
#include <loch/device.h>
#include <loch/stream.h>

typedef struct graph_mark {
    lochi_sim_key key;
    lochi_sim_vector seen;
} graph_mark;

struct loch_sim_graph {
    loch_device *device; /* retained */
    lochi_sim *sim;
    lochi_sim_script script;
    lochi_sim_stream **branches; /* [0] is not used */
    graph_mark *marks;           /* scratch space of a launch */
    graph_mark end;              /* end of the last launch */
};

/* Finds the simulated stream behind a stream. Holds the lock on success. */
static loch_status graph_take(loch_stream *stream, lochi_sim_stream **out)
{
    lochi_sim *sim;
    LOCH_TRY_RETURN(lochi_sim_of_stream(stream, &sim, out));
    lochi_lock_take(&lochi_sim_all.lock);
    const loch_status status = lochi_sim_check_lost(sim);
    if (status != LOCH_OK) return lochi_sim_end(status);
    return LOCH_OK;
}

loch_status loch_sim_capture_begin(loch_stream *stream)
{
    lochi_sim_stream *simulated;
    LOCH_TRY_RETURN(graph_take(stream, &simulated));
    return lochi_sim_end(lochi_sim_capture_begin(simulated));
}

/* Frees a graph, whole or half-built, except its device. */
static void graph_fini(loch_sim_graph *graph)
{
    lochi_lock_assert_held(&lochi_sim_all.lock);
    for (size_t i = 1; graph->branches && i < graph->script.branches; i++)
        if (graph->branches[i]) lochi_sim_stream_end(graph->branches[i]);
    for (size_t i = 0; graph->marks && i < graph->script.marks; i++)
        lochi_sim_vector_fini(&graph->marks[i].seen);
    lochi_sim_vector_fini(&graph->end.seen);
    lochi_free(graph->branches);
    lochi_free(graph->marks);
    lochi_sim_script_fini(&graph->script);
    lochi_free(graph);
}

/* Allocates what a launch needs beside the script. Branches keep the numbers of the captured streams, for reports. */
static loch_status graph_prepare(loch_sim_graph *graph, const lochi_sim_capture *capture)
{
    lochi_lock_assert_held(&lochi_sim_all.lock);
    const lochi_sim_script *script = &capture->script;
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
    lochi_lock_assert_held(&lochi_sim_all.lock);
    lochi_sim_capture *capture = stream->capture;
    if (!capture) return SIM_FAIL(INVALID, "the stream is not being captured");
    if (capture->origin != stream)
        return lochi_sim_capture_break(capture, "a capture has to end on the stream where it began");
    loch_status status = lochi_sim_capture_check(capture);
    if (status == LOCH_OK) status = lochi_sim_script_check_joined(&capture->script);
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
        capture->script = (lochi_sim_script){.first = NULL};
        *out = graph;
    }
    lochi_sim_capture_end(capture);
    return status;
}

loch_status loch_sim_capture_end(loch_stream *stream, loch_sim_graph **out)
{
    if (!out) return SIM_FAIL(INVALID, "loch_sim_capture_end needs an out pointer");
    *out = NULL;
    lochi_sim_stream *simulated;
    LOCH_TRY_RETURN(graph_take(stream, &simulated));
    return lochi_sim_end(graph_create(simulated, loch_stream_get_device(stream), out));
}

/* Creates all operations of a launch, or none. */
static loch_status graph_make_ops(const loch_sim_graph *graph, lochi_sim_op **out)
{
    lochi_lock_assert_held(&lochi_sim_all.lock);
    lochi_sim_op **link = out;
    *out = NULL;
    for (const lochi_sim_item *item = graph->script.first; item; item = item->next) {
        if (item->type != LOCHI_SIM_ITEM_OP) continue;
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

static loch_status graph_launch(loch_sim_graph *graph, lochi_sim_stream *stream)
{
    lochi_lock_assert_held(&lochi_sim_all.lock);
    if (stream->device != graph->sim) return SIM_FAIL(INVALID, "the graph and the stream belong to different devices");
    if (stream->capture) return SIM_FAIL(UNSUPPORTED, "a graph inside a capture is not simulated");
    lochi_sim_op *ops;
    loch_status status = LOCH_OK;
    LOCH_TRY_RETURN(lochi_sim_stream_enter(stream));
    LOCH_TRY_RETURN(graph_make_ops(graph, &ops));
    lochi_sim_stream_follow(stream, graph->end.key, &graph->end.seen);
    for (const lochi_sim_item *item = graph->script.first; item; item = item->next) {
        lochi_sim_stream *branch = item->branch ? graph->branches[item->branch] : stream;
        graph_mark *mark = &graph->marks[item->mark];
        if (item->type == LOCHI_SIM_ITEM_OP) {
            lochi_sim_op *op = ops;
            ops = op->next;
            const loch_status queued = lochi_sim_op_queue(branch, op);
            if (status == LOCH_OK) status = queued;
        } else if (item->type == LOCHI_SIM_ITEM_MARK) {
            mark->key = branch->tail;
            lochi_sim_vector_copy(&mark->seen, &branch->seen);
        } else {
            lochi_sim_stream_follow(branch, mark->key, &mark->seen);
        }
    }
    graph->end.key = stream->tail;
    lochi_sim_vector_copy(&graph->end.seen, &stream->seen);
    lochi_sim_settle(graph->sim);
    return status;
}

loch_status loch_sim_graph_launch(loch_sim_graph *graph, loch_stream *stream)
{
    if (!graph) return SIM_FAIL(INVALID, "the graph to launch is NULL");
    lochi_sim_stream *simulated;
    LOCH_TRY_RETURN(graph_take(stream, &simulated));
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

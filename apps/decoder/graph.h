/* SPDX-License-Identifier: MIT */
/* CUDA graphs: work that is queued on a stream is captured once and launched often. The functions of the driver are
 * found at run time. */
#ifndef DECODER_GRAPH_H
#define DECODER_GRAPH_H

#include <loch/loch.h>

typedef struct decoder_graph {
    loch_device *device; /* retained */
    void *native, *executable;
} decoder_graph;

/* Captures what `function` queues on `stream`. Nothing runs. Call graph_destroy in any case. */
loch_status graph_capture(decoder_graph *graph, loch_stream *stream, loch_status (*function)(void *user), void *user);

/* Queues one run of the graph. */
loch_status graph_launch(const decoder_graph *graph, loch_stream *stream);

void graph_destroy(decoder_graph *graph);

#endif

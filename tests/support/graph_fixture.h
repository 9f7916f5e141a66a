/* SPDX-License-Identifier: MIT */
/* Shared by the tests of pools whose memory graphs use: a pool with a graph that copies through memory that is free
 * after the capture. Without captures (a device that is not simulated), the steps of the graph are queued each time. */
#ifndef LOCH_TEST_GRAPH_FIXTURE_H
#define LOCH_TEST_GRAPH_FIXTURE_H

#include "pool_fixture.h"

#define GRAPH_LINKS 6

typedef struct graph_rig {
    loch_device *device;
    loch_allocator *pool;
    loch_stream *a, *b;
    loch_sim_graph *graph;    /* NULL without captures */
    uint64_t capture;         /* id */
    char *input, *output;     /* live; `bytes` each */
    char *links[GRAPH_LINKS]; /* the blocks between them; freed in the capture */
    char *other;              /* freed block of the second stream; lies between the others */
    size_t bytes;
} graph_rig;

/* Queues the chain of copies, from the input through all links to the output. */
__attribute__((unused)) static void graph_queue(const graph_rig *rig)
{
    const char *from = rig->input;
    for (size_t i = 0; i < GRAPH_LINKS; i++) {
        CHECK_OK(loch_copy_on(rig->links[i], from, rig->bytes, rig->a));
        from = rig->links[i];
    }
    CHECK_OK(loch_copy_on(rig->output, from, rig->bytes, rig->a));
}

/* Makes the blocks and captures the chain of copies. All links are free afterwards. */
__attribute__((unused)) static void graph_capture(graph_rig *rig, size_t bytes)
{
    loch_capture_info info = {.size = sizeof info};
    rig->bytes = bytes;
    rig->input = pool_alloc_on(rig->pool, bytes, rig->a);
    const bool is_captured = loch_sim_capture_begin(rig->a) == LOCH_OK;
    if (is_captured) CHECK_OK(loch_stream_query_capture(rig->a, &info));
    rig->capture = info.id;
    for (size_t i = 0; i < GRAPH_LINKS; i++) {
        rig->links[i] = pool_alloc_on(rig->pool, bytes, rig->a);
        if (i == 1) rig->other = pool_alloc_on(rig->pool, bytes, rig->b);
    }
    rig->output = pool_alloc_on(rig->pool, bytes, rig->a);
    if (is_captured) graph_queue(rig);
    for (size_t i = 0; i < GRAPH_LINKS; i++)
        CHECK_OK(loch_free(rig->pool, rig->links[i]));
    CHECK_OK(loch_free(rig->pool, rig->other));
    if (is_captured) CHECK_OK(loch_sim_capture_end(rig->a, &rig->graph));
}

__attribute__((unused)) static graph_rig graph_open(const char *device, const loch_pool_options *options, size_t bytes)
{
    graph_rig rig = {.device = sim_open(device)};
    rig.pool = pool_make(rig.device, options);
    rig.a = sim_stream(rig.device, LOCH_STREAM_INDEPENDENT);
    rig.b = sim_stream(rig.device, LOCH_STREAM_INDEPENDENT);
    graph_capture(&rig, bytes);
    return rig;
}

/* Writes contents into the input. */
__attribute__((unused)) static void graph_put(const graph_rig *rig, uint64_t seed)
{
    char *host = malloc(rig->bytes);
    assert_non_null(host);
    test_pattern_write(host, rig->bytes, seed);
    CHECK_OK(loch_copy(rig->input, host, rig->bytes));
    free(host);
}

/* Tells whether a block has the contents of a seed. */
__attribute__((unused)) static bool graph_has(const graph_rig *rig, const char *block, uint64_t seed)
{
    char *host = malloc(rig->bytes);
    assert_non_null(host);
    CHECK_OK(loch_copy(host, block, rig->bytes));
    const bool is_right = test_pattern_differs(host, rig->bytes, seed) == rig->bytes;
    free(host);
    return is_right;
}

/* Launches the graph, and expects the contents of the input in the output. */
__attribute__((unused)) static void graph_run(const graph_rig *rig, uint64_t seed)
{
    CHECK_OK(loch_fill(rig->output, rig->bytes, "x", 1));
    if (rig->graph) CHECK_OK(loch_sim_graph_launch(rig->graph, rig->a));
    CHECK_OK(loch_device_sync(rig->device));
    if (rig->graph && !graph_has(rig, rig->output, seed)) fail_msg("the graph gave other contents");
}

/* Frees everything and ends the pool: nothing is left on a simulated device, and nothing was used without order. */
__attribute__((unused)) static void graph_close(graph_rig *rig)
{
    loch_sim_stats stats = {.size = sizeof stats};
    loch_sim_graph_destroy(rig->graph);
    CHECK_OK(loch_free(rig->pool, rig->input));
    CHECK_OK(loch_free(rig->pool, rig->output));
    pool_expect_whole(rig->pool);
    loch_allocator_release(rig->pool);
    loch_stream_close(rig->a);
    loch_stream_close(rig->b);
    test_end_defaults();
    if (loch_sim_get_stats(rig->device, &stats) == LOCH_OK) {
        assert_int_equal(stats.physical_bytes, 0);
        assert_int_equal(stats.mappings, 0);
        assert_int_equal(stats.events, 0);
        sim_expect_order(rig->device);
    }
    loch_device_release(rig->device);
}

#endif

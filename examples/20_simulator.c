/* SPDX-License-Identifier: MIT */
/* The simulator shows without a GPU how a GPU uses memory: kernels that end when the clock says so, graphs that keep
 * memory reserved, driver calls that fail, and a device that is lost. Runs with equal seeds are equal. */
#include <loch/loch.h>
#include <loch/sim.h>
#include <stdio.h>

#define BYTES ((size_t)4 << 20)

static void add_one(void *user)
{
    ++*(int *)user;
}

static loch_status launch(loch_stream *stream, const char *name, void *written, uint64_t duration_ns, int *runs)
{
    const loch_sim_range range = {written, BYTES};
    const loch_sim_kernel kernel = {.size = sizeof kernel,
                                    .name = name,
                                    .writes = &range,
                                    .writes_count = 1,
                                    .duration_ns = duration_ns,
                                    .run = add_one,
                                    .user = runs};
    return loch_sim_launch(stream, &kernel);
}

/* With clock=stepped no work ends before the clock is advanced. */
static int time_passes(loch_device *device, loch_stream *stream, void *block)
{
    uint64_t start, end;
    int runs = 0;
    LOCH_CHECK(loch_sim_get_time(device, &start));
    LOCH_CHECK(launch(stream, "first", block, 1000, &runs));
    LOCH_CHECK(launch(stream, "second", block, 5000, &runs));
    LOCH_CHECK(loch_sim_advance(device, 500));
    const int half_way = runs;
    LOCH_CHECK(loch_sim_step(stream, 1)); /* to the end of the first kernel */
    const int after_one = runs;
    LOCH_CHECK(loch_stream_sync(stream)); /* a wait on the host advances the clock too */
    LOCH_CHECK(loch_sim_get_time(device, &end));
    printf("kernels that have ended: %d, then %d, then %d, after %llu ns\n", half_way, after_one, runs,
           (unsigned long long)(end - start));
    return half_way == 0 && after_one == 1 && runs == 2 && end - start >= 6000;
}

/* A graph keeps the memory that was allocated during its capture, until the capture is released in the pool. */
static int capture(loch_allocator *pool, loch_stream *stream)
{
    const loch_request request = {.size = sizeof request, .bytes = BYTES, .stream = stream};
    loch_capture_info info = {.size = sizeof info};
    loch_pool_info during = {.size = sizeof during}, behind = {.size = sizeof behind};
    loch_sim_graph *graph;
    void *block;
    int runs = 0;
    LOCH_CHECK(loch_sim_capture_begin(stream));
    LOCH_CHECK(loch_stream_query_capture(stream, &info));
    LOCH_CHECK(loch_allocator_alloc(pool, &request, &block));
    LOCH_CHECK(launch(stream, "captured", block, 0, &runs));
    LOCH_CHECK(loch_allocator_free_on(pool, block, stream));
    LOCH_CHECK(loch_sim_capture_end(stream, &graph));
    const int captured = runs;
    for (int i = 0; i < 3; i++)
        LOCH_CHECK(loch_sim_graph_launch(graph, stream));
    LOCH_CHECK(loch_stream_sync(stream));
    LOCH_CHECK(loch_pool_get_info(pool, &during));
    loch_sim_graph_destroy(graph);
    LOCH_CHECK(loch_pool_release_capture(pool, info.id));
    LOCH_CHECK(loch_pool_get_info(pool, &behind));
    printf("the graph ran %d times; it held %zu MiB, now %zu\n", runs, during.captured_bytes >> 20,
           behind.captured_bytes >> 20);
    return captured == 0 && runs == 3 && during.captured_bytes >= BYTES && behind.captured_bytes == 0;
}

static loch_status show(const loch_sim_violation *violation, void *streams)
{
    printf("found: %s\n", violation->text);
    ((uint64_t *)streams)[0] = violation->other_stream;
    ((uint64_t *)streams)[1] = violation->stream;
    return LOCH_OK;
}

/* Two streams write to one block without order between them. */
static int race(loch_device *device, loch_stream *stream, loch_stream *other, void *block)
{
    uint64_t seen[2] = {0, 0}, first, second;
    int runs = 0;
    LOCH_CHECK(launch(stream, "left", block, 0, &runs));
    LOCH_CHECK(launch(other, "right", block, 0, &runs));
    LOCH_CHECK(loch_device_sync(device));
    LOCH_CHECK(loch_sim_walk_violations(device, show, seen));
    LOCH_CHECK(loch_sim_get_stream_number(stream, &first));
    LOCH_CHECK(loch_sim_get_stream_number(other, &second));
    return seen[0] == first && seen[1] == second;
}

/* The driver refuses new memory for a while; later the device is lost. Releases work even then. */
static int trouble(loch_device *device, loch_allocator *pool)
{
    const loch_sim_fault fault = {.size = sizeof fault, .call = "handle_create", .mode = LOCH_SIM_FAULT_FOREVER};
    const loch_request request = {.size = sizeof request, .bytes = 16 * BYTES, .flags = LOCH_ALLOC_NO_RETRY};
    void *block, *none;
    LOCH_CHECK(loch_sim_set_fault(device, &fault));
    const loch_status refused = loch_allocator_alloc(pool, &request, &none);
    printf("with a fault: %s\n", loch_status_name(refused));
    LOCH_CHECK(loch_sim_set_fault(device, NULL));
    LOCH_CHECK(loch_allocator_alloc(pool, &request, &block));
    LOCH_CHECK(loch_sim_lose(device));
    const loch_status lost = loch_device_sync(device);
    printf("and then: %s\n", loch_error_get()->sentence);
    return refused == LOCH_E_DEVICE_MEMORY && lost == LOCH_E_DEVICE_LOST && loch_free(pool, block) == LOCH_OK;
}

int main(void)
{
    LOCH_AUTO(device) device = NULL;
    LOCH_AUTO(stream) stream = NULL;
    LOCH_AUTO(stream) other = NULL;
    LOCH_AUTO(allocator) pool = NULL;
    void *block;
    int right = 0;
    LOCH_CHECK(loch_device_open("sim:256MiB,clock=stepped", &device));
    LOCH_CHECK(loch_stream_create(device, NULL, &stream));
    LOCH_CHECK(loch_stream_create(device, NULL, &other));
    LOCH_CHECK(loch_pool_create(device, "pool", NULL, &pool));
    LOCH_CHECK(loch_alloc(pool, BYTES, &block));
    right += time_passes(device, stream, block);
    right += capture(pool, stream);
    right += race(device, stream, other, block);
    LOCH_CHECK(loch_free(pool, block));
    right += trouble(device, pool);
    return right == 4 ? 0 : 1;
}

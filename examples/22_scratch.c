/* SPDX-License-Identifier: MIT */
/* Objects that are needed for a short time, again and again: a workspace that grows to the largest request, buffers
 * that are cached for the next step, and cached streams, which a driver creates slowly. */
#include <loch/engine.h>
#include <loch/loch.h>
#include <stdio.h>

#define MIB ((size_t)1 << 20)

/* Matrix products need a workspace whose size depends on the shapes. One buffer serves all of them. */
static int workspace(loch_allocator *allocator, loch_stream *stream)
{
    const size_t wanted[] = {2 * MIB, MIB, 6 * MIB, 3 * MIB};
    loch_workspace *space;
    size_t there = 0;
    LOCH_CHECK(loch_workspace_create(allocator, stream, NULL, &space));
    for (size_t i = 0; i < 4; i++) {
        loch_buffer *buffer;
        LOCH_CHECK(loch_workspace_acquire(space, wanted[i], &buffer));
        LOCH_CHECK(loch_buffer_fill(buffer, "w", 1, stream)); /* stands for work */
        there = loch_buffer_get_bytes(buffer);
        loch_buffer_release(buffer); /* released as soon as the work is queued */
        printf("workspace: %zu MiB wanted, %zu there\n", wanted[i] / MIB, there / MIB);
    }
    loch_workspace_destroy(space); /* frees the memory in the order of the stream */
    return there == 6 * MIB;
}

/* Several buffers at a time, with sizes that repeat. */
static int buffers(loch_allocator *allocator, loch_stream *stream)
{
    loch_buffer_pool_stats stats = {.size = sizeof stats};
    loch_buffer_pool *pool;
    size_t released;
    LOCH_CHECK(loch_buffer_pool_create(allocator, NULL, &pool));
    for (int step = 0; step < 10; step++) {
        loch_buffer *query, *scores;
        LOCH_CHECK(loch_buffer_pool_acquire(pool, MIB, stream, &query));
        LOCH_CHECK(loch_buffer_pool_acquire(pool, 4 * MIB, stream, &scores));
        LOCH_CHECK(loch_buffer_fill(query, "q", 1, stream)); /* stands for work */
        LOCH_CHECK(loch_buffer_fill(scores, "s", 1, stream));
        LOCH_CHECK(loch_buffer_pool_release(pool, scores, stream));
        LOCH_CHECK(loch_buffer_pool_release(pool, query, stream));
    }
    LOCH_CHECK(loch_buffer_pool_get_stats(pool, &stats));
    LOCH_CHECK(loch_buffer_pool_trim(pool, MIB, &released)); /* the least recently used first */
    printf("buffers: %llu of %llu were kept ones; %zu MiB went back\n", (unsigned long long)stats.reused,
           (unsigned long long)stats.acquired, released / MIB);
    loch_buffer_pool_destroy(pool);
    return stats.reused == 18 && released == 4 * MIB;
}

/* Runs a step on a stream from the pool, timed by two events. */
static loch_status step(loch_device *device, loch_stream_pool *streams, void *block, uint64_t *duration_ns)
{
    loch_stream *stream = NULL;
    loch_event *start = NULL, *end = NULL;
    loch_status status = loch_stream_pool_acquire(streams, &stream);
    if (status == LOCH_OK) status = loch_event_create(device, LOCH_EVENT_TIMED, &start);
    if (status == LOCH_OK) status = loch_event_create(device, LOCH_EVENT_TIMED, &end);
    if (status == LOCH_OK) status = loch_event_record(start, stream);
    if (status == LOCH_OK) status = loch_fill_on(block, MIB, "s", 1, stream);
    if (status == LOCH_OK) status = loch_event_record(end, stream);
    if (status == LOCH_OK) status = loch_event_sync(end);
    if (status == LOCH_OK) status = loch_event_elapsed(start, end, duration_ns);
    loch_event_destroy(start); /* NULL does nothing, here and below */
    loch_event_destroy(end);
    const loch_status released = loch_stream_pool_release(streams, stream);
    return status == LOCH_OK ? released : status;
}

static int streams(loch_device *device, loch_allocator *allocator)
{
    const loch_stream_pool_options options = {.size = sizeof options, .kept_streams = 4};
    loch_stream_pool_info info = {.size = sizeof info};
    loch_stream_pool *pool;
    uint64_t duration_ns = 0;
    void *block;
    LOCH_CHECK(loch_alloc(allocator, MIB, &block));
    LOCH_CHECK(loch_stream_pool_create(device, &options, &pool));
    for (int i = 0; i < 10; i++)
        LOCH_CHECK(step(device, pool, block, &duration_ns));
    LOCH_CHECK(loch_stream_pool_get_info(pool, &info));
    printf("streams: %llu made, %llu used again; the last step took %llu ns\n", (unsigned long long)info.streams_made,
           (unsigned long long)info.streams_again, (unsigned long long)duration_ns);
    loch_stream_pool_destroy(pool);
    LOCH_CHECK(loch_free(allocator, block));
    return info.streams_made == 1 && info.streams_again == 9 && duration_ns > 0;
}

int main(void)
{
    LOCH_AUTO(device) device = NULL;
    LOCH_AUTO(stream) stream = NULL;
    LOCH_AUTO(allocator) allocator = NULL;
    int right = 0;
    LOCH_CHECK(loch_device_open("sim:256MiB", &device));
    LOCH_CHECK(loch_stream_create(device, NULL, &stream));
    LOCH_CHECK(loch_device_acquire_default(device, &allocator));
    right += workspace(allocator, stream);
    right += buffers(allocator, stream);
    right += streams(device, allocator);
    return right == 3 ? 0 : 1;
}

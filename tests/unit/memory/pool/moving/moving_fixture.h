/* SPDX-License-Identifier: MIT */
/* Shared by the tests of moving memory: movable buffers whose contents are known. */
#ifndef LOCH_TEST_MOVING_FIXTURE_H
#define LOCH_TEST_MOVING_FIXTURE_H

#include "unit/memory/pool/child_fixture.h"
#include "steps.h"
#include "tensor_fixture.h"

#define MIB TEST_MIB
#define KIB TEST_KIB
#define STEPPED "sim:256MiB,backed,clock=stepped"

__attribute__((unused)) static void bench_close(pool_bench *b)
{
    sim_expect_order(b->device);
    test_end_defaults(); /* what slept was in their memory */
    pool_bench_close(b);
}

/* Queues the writing of contents; a stream of NULL is the default one. */
__attribute__((unused)) static void put_words(loch_buffer *buffer, uint32_t seed, loch_stream *stream)
{
    void *address;
    CHECK_OK(loch_buffer_pin(buffer, stream, &address));
    loch_stream *on = stream ? stream : loch_stream_get_default(loch_buffer_get_device(buffer));
    test_steps_write(on, address, loch_buffer_get_bytes(buffer), seed);
    CHECK_OK(loch_buffer_record_use(buffer, stream)); /* one that does not move: unpinning says nothing of it */
    CHECK_OK(loch_buffer_unpin(buffer, stream));
}

__attribute__((unused)) static loch_buffer *make(const pool_bench *b, size_t bytes, uint32_t seed, loch_stream *stream)
{
    const loch_request request = {.size = sizeof request, .stream = stream, .flags = LOCH_ALLOC_MOVABLE};
    loch_buffer *buffer;
    CHECK_OK(loch_buffer_create(b->pool, bytes, &request, &buffer));
    put_words(buffer, seed, stream);
    return buffer;
}

__attribute__((unused)) static void expect_words(loch_stream *stream, const void *address, size_t bytes, uint32_t seed)
{
    uint32_t *seen = malloc(bytes);
    const loch_copy_options copy = {.size = sizeof copy, .stream = stream, .wait = LOCH_WAIT_END};
    CHECK_OK(loch_copy_with(seen, address, bytes, &copy));
    test_steps_expect(seen, bytes, seed, "contents");
    free(seen);
}

__attribute__((unused)) static void expect(loch_buffer *buffer, uint32_t seed, loch_stream *stream)
{
    void *address;
    CHECK_OK(loch_buffer_pin(buffer, stream, &address));
    expect_words(stream, address, loch_buffer_get_bytes(buffer), seed);
    CHECK_OK(loch_buffer_unpin(buffer, stream));
}

#endif

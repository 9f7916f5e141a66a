/* SPDX-License-Identifier: MIT */
/* A pool of two handles with a buffer in the first that fits into the second. */
#ifndef LOCH_TEST_MOVING_RIG_H
#define LOCH_TEST_MOVING_RIG_H

#include "moving_fixture.h"

#define HALF (1 * MIB)

typedef struct halves {
    pool_bench b;
    loch_buffer *moves;
    void *stays;
} halves;

__attribute__((unused)) static halves halves_open(const char *name, size_t stream)
{
    const loch_pool_options options = {.size = sizeof options, .limit_bytes = 8 * MIB, .handle_bytes = 2 * HALF};
    halves h = {.b = pool_bench_open(name, &options)};
    loch_stream *own = h.b.streams[stream];
    void *first = pool_alloc_on(h.b.pool, HALF, own);
    h.moves = make(&h.b, HALF, 7, own);
    void *third = pool_alloc_on(h.b.pool, HALF, own);
    h.stays = pool_alloc_on(h.b.pool, HALF, own);
    CHECK_OK(loch_free(h.b.pool, first));
    CHECK_OK(loch_free(h.b.pool, third));
    return h;
}

/* Moves it, behind work that takes long. */
__attribute__((unused)) static void halves_move(halves *h, size_t stream)
{
    loch_compact_report report = {.size = sizeof report};
    loch_stream *mover = h->b.streams[stream];
    const loch_compact_options options = {.size = sizeof options, .contiguous_bytes = 2 * HALF, .stream = mover};
    loch_sim_stats stats = {.size = sizeof stats};
    if (loch_sim_get_stats(h->b.device, &stats) == LOCH_OK) CHECK_OK(sim_busy(mover, 1000000));
    CHECK_OK(loch_pool_compact(h->b.pool, &options, &report));
    assert_int_equal(report.moves, 1);
}

__attribute__((unused)) static void halves_close(halves *h)
{
    loch_buffer_release(h->moves);
    if (h->stays) CHECK_OK(loch_free(h->b.pool, h->stays));
    bench_close(&h->b);
}

__attribute__((unused)) static void freeze_all(loch_allocator *pool)
{
    const loch_freeze_options options = {.size = sizeof options, .writes = LOCH_FREEZE_PROTECTED};
    CHECK_OK(loch_pool_freeze(pool, &options, NULL));
}

#endif

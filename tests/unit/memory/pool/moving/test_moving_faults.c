/* SPDX-License-Identifier: MIT */
/* Random programs in which moves fail half way, beside resizes, captures, streams that end, sleeps and freezes: on all
 * kinds of pools every buffer holds what was written last, the pool is whole after every step, no capture is made void,
 * and nothing is used without order. */
#include "moving_fixture.h"
#include "memory/buffer/buffer.h"

#define SLOTS 16
#define STEPS 500

typedef struct ground {
    const char *device;
    loch_pool_options options;
    size_t largest;
    bool is_range; /* in a child with a range */
} ground;

#define OPTIONS(...)                                                                                                   \
    {                                                                                                                  \
        .size = sizeof(loch_pool_options), __VA_ARGS__                                                                 \
    }
static const ground grounds[] = {
    {"sim:256MiB,backed,granule=64KiB", OPTIONS(.limit_bytes = 4 * MIB), 400 * KIB, false},
    {"sim:256MiB,backed,granule=64KiB,alias=off,clock=stepped,lag=3000", OPTIONS(.limit_bytes = 4 * MIB), 400 * KIB,
     false},
    {"sim:256MiB,backed,virtual=off", OPTIONS(.limit_bytes = 8 * MIB, .handle_bytes = 4 * MIB), 600 * KIB, false},
    {"sim:256MiB,backed", OPTIONS(.kind = LOCH_MEMORY_PINNED, .limit_bytes = 8 * MIB, .handle_bytes = 4 * MIB),
     600 * KIB, false},
    {"sim:256MiB,backed", OPTIONS(.kind = LOCH_MEMORY_MANAGED, .limit_bytes = 8 * MIB, .handle_bytes = 4 * MIB),
     600 * KIB, false},
    {"sim:256MiB,backed,granule=64KiB", OPTIONS(.limit_bytes = 4 * MIB, .preset = LOCH_POOL_WHOLE_BLOCKS), 400 * KIB,
     false},
    {"sim:256MiB,backed,granule=64KiB", OPTIONS(.limit_bytes = 4 * MIB, .round_bytes = 30000), 400 * KIB, false},
    {"sim:256MiB,backed,granule=64KiB", OPTIONS(.limit_bytes = 8 * MIB), 400 * KIB, true},
    {"cpu", OPTIONS(.limit_bytes = 8 * MIB), 900 * KIB, false},
};

typedef struct world {
    const ground *on;
    test_random random;
    pool_bench b;
    loch_buffer *buffers[SLOTS];
    uint32_t seeds[SLOTS];
    size_t streams[SLOTS]; /* of the last work */
    bool is_captured, is_asleep, is_sim;
    size_t failed, moved, torn;
} world;

static size_t below(world *w, size_t bound)
{
    return test_random_below(&w->random, bound);
}

/* One that is not captured. */
static size_t some_stream(world *w)
{
    return below(w, w->is_captured ? 2 : 3);
}

static void look_at(world *w, size_t slot)
{
    if (!w->buffers[slot] || w->is_asleep || (w->is_captured && w->streams[slot] == 2)) return;
    expect(w->buffers[slot], w->seeds[slot], w->b.streams[w->streams[slot]]);
}

static void put(world *w, size_t slot)
{
    if (loch_buffer_get_access(w->buffers[slot]) == LOCH_READ_ONLY || (w->is_captured && w->streams[slot] == 2)) return;
    w->seeds[slot]++;
    put_words(w->buffers[slot], w->seeds[slot], w->b.streams[w->streams[slot]]);
}

static void make_or_drop(world *w, size_t slot)
{
    if (w->buffers[slot]) {
        loch_buffer_clear(&w->buffers[slot]);
        return;
    }
    w->streams[slot] = some_stream(w);
    const loch_request request = {.size = sizeof request,
                                  .stream = w->b.streams[w->streams[slot]],
                                  .flags = below(w, 4) ? LOCH_ALLOC_MOVABLE : 0};
    const size_t bytes = (4 + below(w, below(w, 4) ? w->on->largest : 10 * KIB)) & ~(size_t)3;
    const loch_status status = loch_buffer_create(w->b.pool, bytes, &request, &w->buffers[slot]);
    if (status == LOCH_OK)
        put(w, slot);
    else
        assert_true((POOL_SHORT | TEST_SET(BUSY)) & 1u << status);
}

/* In the order of the stream of the last work. */
static void resize(world *w, size_t slot)
{
    if (!w->buffers[slot] || (w->is_captured && w->streams[slot] == 2)) return;
    const size_t bytes = loch_buffer_get_bytes(w->buffers[slot]);
    const size_t more = (4 + below(w, w->on->largest)) & ~(size_t)3;
    const loch_status status =
        loch_buffer_resize(w->buffers[slot], more, LOCH_CONTENTS_KEEP, w->b.streams[w->streams[slot]]);
    if (status != LOCH_OK) assert_true((POOL_SHORT | TEST_SET(BUSY)) & 1u << status);
    if (status == LOCH_OK && more > bytes) put(w, slot); /* behind what was kept is anything */
}

static void compact(world *w)
{
    const loch_sim_fault fault = {
        .size = sizeof fault, .call = below(w, 3) ? "copy" : NULL, .after = below(w, 6), .mode = LOCH_SIM_FAULT_ONCE};
    const bool is_faulty = w->is_sim && below(w, 3) == 0;
    const loch_compact_options options = {.size = sizeof options,
                                          .contiguous_bytes =
                                              below(w, 2) ? below(w, w->on->options.limit_bytes / 2) : 0,
                                          .stream = w->b.streams[some_stream(w)]};
    loch_compact_report report = {.size = sizeof report};
    if (is_faulty) CHECK_OK(loch_sim_set_fault(w->b.device, &fault));
    const loch_status status = loch_pool_compact(w->b.pool, &options, &report);
    if (is_faulty) CHECK_OK(loch_sim_set_fault(w->b.device, NULL));
    if (w->is_asleep)
        assert_true(is_faulty || status == LOCH_E_BUSY);
    else if (!is_faulty)
        assert_true((TEST_SET(FRAGMENTED) | 1u << LOCH_OK) & 1u << status);
    w->failed += is_faulty && status != LOCH_OK && status != LOCH_E_FRAGMENTED;
    w->moved += report.moves;
    for (size_t i = 0; i < SLOTS; i++)
        w->torn += w->buffers[i] && w->buffers[i]->is_movable && w->buffers[i]->movable.torn_from;
}

static void capture(world *w)
{
    loch_sim_graph *graph;
    loch_capture_info info = {.size = sizeof info};
    if (!w->is_sim) return;
    if (!w->is_captured) {
        CHECK_OK(loch_sim_capture_begin(w->b.streams[2]));
    } else {
        CHECK_OK(loch_stream_query_capture(w->b.streams[2], &info));
        CHECK_OK(loch_sim_capture_end(w->b.streams[2], &graph)); /* the capture is still valid */
        loch_sim_graph_destroy(graph);
        const loch_status status = loch_pool_release_capture(w->b.pool, info.id);
        assert_true(status == LOCH_OK || status == LOCH_E_NOT_FOUND);
    }
    w->is_captured = !w->is_captured;
}

static void pin_in_capture(world *w, size_t slot)
{
    void *address;
    if (!w->is_captured || !w->buffers[slot]) return;
    const loch_status status = loch_buffer_pin(w->buffers[slot], w->b.streams[2], &address);
    if (status == LOCH_OK)
        CHECK_OK(loch_buffer_unpin(w->buffers[slot], w->b.streams[2]));
    else
        assert_int_equal(status, LOCH_E_BUSY);
}

/* A stream ends, and another takes its place. */
static void change_stream(world *w)
{
    const size_t i = below(w, 2);
    for (size_t slot = 0; slot < SLOTS; slot++)
        if (w->streams[slot] == i) look_at(w, slot);
    CHECK_OK(loch_stream_sync(w->b.streams[i])); /* so that the next one need not be ordered behind it */
    loch_stream_close(w->b.streams[i]);
    w->b.streams[i] = sim_stream(w->b.device, LOCH_STREAM_INDEPENDENT);
}

static void sleep_or_wake(world *w)
{
    const loch_sleep_options keep = {.size = sizeof keep, .contents = LOCH_SLEEP_HOST};
    if (w->is_asleep) {
        CHECK_OK(loch_pool_wake(w->b.pool, NULL));
        w->is_asleep = false;
    } else {
        const loch_status status = loch_pool_sleep(w->b.pool, &keep, NULL);
        assert_true((TEST_SET(BUSY) | TEST_SET(UNSUPPORTED) | 1u << LOCH_OK) & 1u << status);
        if (!w->is_captured) assert_int_not_equal(status, LOCH_E_BUSY);
        w->is_asleep = status == LOCH_OK;
    }
}

static void freeze(world *w)
{
    const loch_freeze_options options = {.size = sizeof options,
                                         .writes = below(w, 2) ? LOCH_FREEZE_PROTECTED : LOCH_FREEZE_WRITABLE,
                                         .stream = w->b.streams[some_stream(w)]};
    const loch_status status = loch_pool_freeze(w->b.pool, &options, NULL);
    assert_true(status == LOCH_OK || (w->is_asleep && status == LOCH_E_BUSY));
}

static void step(world *w)
{
    const size_t slot = below(w, SLOTS);
    if (w->is_asleep && below(w, 4) == 0) sleep_or_wake(w);
    switch (below(w, 18)) {
    case 0:
    case 1:
    case 2: compact(w); break;
    case 3: capture(w); break;
    case 4: pin_in_capture(w, slot); break;
    case 5: change_stream(w); break;
    case 6: sleep_or_wake(w); break;
    case 7: freeze(w); break;
    case 8:
    case 9: CHECK_OK(loch_pool_unfreeze(w->b.pool, 0, NULL)); break;
    case 10:
    case 11: resize(w, slot); break;
    case 12:
        if (w->buffers[slot] && !w->is_asleep) put(w, slot);
        break;
    default: make_or_drop(w, slot);
    }
    pool_expect_whole(w->b.pool);
    look_at(w, below(w, SLOTS));
}

static void random_programs_with_faults_keep_contents_and_order(void **state)
{
    (void)state;
    size_t moved = 0, failed = 0, halfway = 0;
    for (size_t g = 0; g < sizeof grounds / sizeof *grounds; g++) {
        world w = {.on = &grounds[g], .random = {test_seed(0x5eed + g)}, .is_sim = grounds[g].device[0] == 's'};
        w.b = pool_bench_open(grounds[g].device, &grounds[g].options);
        loch_allocator *parent = w.b.pool;
        if (grounds[g].is_range) w.b.pool = child_range(parent, 4 * MIB);
        for (uint32_t i = 0; i < STEPS; i++)
            step(&w);
        if (w.is_captured) capture(&w);
        if (w.is_asleep) sleep_or_wake(&w);
        for (size_t i = 0; i < SLOTS; i++) {
            look_at(&w, i);
            loch_buffer_release(w.buffers[i]);
        }
        if (parent != w.b.pool) loch_allocator_release(w.b.pool);
        w.b.pool = parent;
        moved += w.moved;
        failed += w.failed;
        halfway += w.torn;
        bench_close(&w.b);
    }
    print_message("%zu moves, %zu compactions that failed, %zu times a block was torn\n", moved, failed, halfway);
    assert_true(moved > 40 && failed > 0); /* nothing was left out */
}

int main(void)
{
    const struct CMUnitTest tests[] = {TENSOR_TEST(random_programs_with_faults_keep_contents_and_order)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}

/* SPDX-License-Identifier: MIT */
/* Buffers right after a move, or after one that failed half way: resizes, detaching, sleep, captures. */
#include "moving_rig.h"

/* --- blocks that a failure tore --- */

typedef struct torn {
    pool_bench b;
    loch_buffer *buffer;
    void *rest;
} torn;

/* One handle: a hole, a buffer that can only slide, a hole, and something that stays. The second piece of its copy
 * fails. */
static torn torn_open(void)
{
    const size_t hole = 300 * KIB;
    const loch_pool_options options = {.size = sizeof options, .limit_bytes = 4 * MIB, .handle_bytes = 4 * MIB};
    torn t = {.b = pool_bench_open("sim:256MiB,backed", &options)};
    void *first = pool_alloc_on(t.b.pool, hole, t.b.streams[0]);
    t.buffer = make(&t.b, MIB, 9, t.b.streams[0]);
    void *third = pool_alloc_on(t.b.pool, hole, t.b.streams[0]);
    t.rest = pool_alloc_on(t.b.pool, 4 * MIB - MIB - 2 * hole, t.b.streams[0]);
    CHECK_OK(loch_free(t.b.pool, first));
    CHECK_OK(loch_free(t.b.pool, third));
    const loch_sim_fault fault = {.size = sizeof fault, .call = "copy", .after = 1, .mode = LOCH_SIM_FAULT_ONCE};
    const loch_compact_options goal = {.size = sizeof goal, .contiguous_bytes = 2 * hole, .stream = t.b.streams[1]};
    CHECK_OK(loch_sim_set_fault(t.b.device, &fault));
    CHECK_FAILS(loch_pool_compact(t.b.pool, &goal, NULL), DRIVER);
    CHECK_OK(loch_sim_set_fault(t.b.device, NULL));
    assert_int_equal(loch_buffer_get_generation(t.buffer), 1); /* half of it, at least */
    pool_expect_whole(t.b.pool);
    return t;
}

static void torn_close(torn *t)
{
    loch_buffer_release(t->buffer);
    CHECK_OK(loch_free(t->b.pool, t->rest));
    bench_close(&t->b);
}

static void a_torn_buffer_is_resized(void **state)
{
    (void)state;
    for (size_t i = 0; i < 2; i++) {
        torn t = torn_open();
        CHECK_OK(loch_buffer_resize(t.buffer, i ? MIB / 2 : MIB, LOCH_CONTENTS_KEEP, t.b.streams[0]));
        expect(t.buffer, 9, t.b.streams[0]);
        torn_close(&t);
    }
}

static void a_torn_buffer_is_detached(void **state)
{
    (void)state;
    torn t = torn_open();
    void *address;
    CHECK_OK(loch_buffer_detach(t.buffer, &address));
    expect_words(t.b.streams[0], address, MIB, 9);
    CHECK_OK(loch_free(t.b.pool, address));
    torn_close(&t);
}

static void a_torn_buffer_sleeps(void **state)
{
    (void)state;
    torn t = torn_open();
    const loch_sleep_options keep = {.size = sizeof keep, .contents = LOCH_SLEEP_HOST};
    CHECK_OK(loch_pool_sleep(t.b.pool, &keep, NULL));
    CHECK_OK(loch_pool_wake(t.b.pool, NULL));
    expect(t.buffer, 9, t.b.streams[0]);
    torn_close(&t);
}

/* What is left to copy must not wait for a graph to run. */
static void a_torn_buffer_is_not_mended_in_a_capture(void **state)
{
    (void)state;
    torn t = torn_open();
    loch_sim_graph *graph;
    void *address;
    CHECK_OK(loch_sim_capture_begin(t.b.streams[2]));
    CHECK_FAILS(loch_buffer_pin(t.buffer, t.b.streams[2], &address), BUSY);
    CHECK_OK(loch_sim_capture_end(t.b.streams[2], &graph));
    loch_sim_graph_destroy(graph);
    expect(t.buffer, 9, t.b.streams[0]);
    torn_close(&t);
}

/* --- right after a move --- */

static void a_moved_buffer_is_resized_behind_its_move(void **state)
{
    (void)state;
    static const size_t sizes[] = {HALF, HALF / 2, 3 * HALF / 2};
    for (size_t i = 0; i < 6; i++) {
        halves h = halves_open(STEPPED, 0);
        halves_move(&h, 1);
        CHECK_OK(loch_buffer_resize(h.moves, sizes[i % 3], LOCH_CONTENTS_KEEP, i < 3 ? h.b.streams[0] : NULL));
        const size_t least = sizes[i % 3] < HALF ? sizes[i % 3] : HALF;
        void *address;
        CHECK_OK(loch_buffer_pin(h.moves, h.b.streams[0], &address));
        expect_words(h.b.streams[0], address, least, 7);
        CHECK_OK(loch_buffer_unpin(h.moves, h.b.streams[0]));
        halves_close(&h);
    }
}

static void a_moved_buffer_is_detached_behind_its_move(void **state)
{
    (void)state;
    for (size_t i = 0; i < 2; i++) { /* on its own stream, or on another that had nothing to wait for */
        halves h = halves_open(STEPPED, 0);
        if (i) CHECK_OK(loch_device_sync(h.b.device));
        halves_move(&h, 1);
        void *address;
        CHECK_OK(loch_buffer_detach(h.moves, &address));
        expect_words(h.b.streams[i ? 2 : 0], address, HALF, 7);
        CHECK_OK(loch_device_sync(h.b.device));
        CHECK_OK(loch_free(h.b.pool, address));
        halves_close(&h);
    }
}

static void a_resize_that_fails_changes_nothing(void **state)
{
    (void)state;
    halves h = halves_open(STEPPED, 0);
    const loch_status status = loch_buffer_resize(h.moves, 100 * MIB, LOCH_CONTENTS_KEEP, NULL);
    assert_true(POOL_SHORT & 1u << status);
    assert_int_equal(loch_buffer_get_generation(h.moves), 0);
    expect(h.moves, 7, h.b.streams[0]);
    halves_move(&h, 1); /* it may still move */
    expect(h.moves, 7, h.b.streams[0]);
    halves_close(&h);
}

static void a_moved_buffer_knows_its_kind(void **state)
{
    (void)state;
    halves h = halves_open("sim:256MiB,backed", 0);
    assert_int_equal(loch_buffer_get_kind(h.moves), LOCH_MEMORY_DEVICE);
    halves_move(&h, 1);
    CHECK_OK(loch_device_sync(h.b.device));
    pool_trim(h.b.pool, 0);
    assert_int_equal(loch_buffer_get_kind(h.moves), LOCH_MEMORY_DEVICE);
    halves_close(&h);
    const loch_pool_options options = {
        .size = sizeof options, .kind = LOCH_MEMORY_PINNED, .limit_bytes = 8 * MIB, .handle_bytes = 2 * MIB};
    pool_bench b = pool_bench_open("sim:256MiB,backed", &options);
    void *first = pool_alloc(b.pool, HALF);
    loch_buffer *buffer = make(&b, HALF, 3, NULL);
    void *third = pool_alloc(b.pool, HALF);
    loch_buffer *other = make(&b, HALF, 4, NULL);
    CHECK_OK(loch_free(b.pool, first));
    CHECK_OK(loch_free(b.pool, third));
    CHECK_OK(loch_pool_compact(b.pool, NULL, NULL));
    CHECK_OK(loch_device_sync(b.device));
    pool_trim(b.pool, 0);
    assert_int_equal(loch_buffer_get_kind(buffer), LOCH_MEMORY_PINNED);
    assert_int_equal(loch_buffer_get_kind(other), LOCH_MEMORY_PINNED);
    expect(buffer, 3, b.streams[0]);
    expect(other, 4, b.streams[0]);
    loch_buffer_release(buffer);
    loch_buffer_release(other);
    bench_close(&b);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        TENSOR_TEST(a_torn_buffer_is_resized),
        TENSOR_TEST(a_torn_buffer_is_detached),
        TENSOR_TEST(a_torn_buffer_sleeps),
        TENSOR_TEST(a_torn_buffer_is_not_mended_in_a_capture),
        TENSOR_TEST(a_moved_buffer_is_resized_behind_its_move),
        TENSOR_TEST(a_moved_buffer_is_detached_behind_its_move),
        TENSOR_TEST(a_resize_that_fails_changes_nothing),
        TENSOR_TEST(a_moved_buffer_knows_its_kind),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

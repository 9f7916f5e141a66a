/* SPDX-License-Identifier: MIT */
/* Moves beside what else there is: goals at the edge of what there is, captures under way, pins, other devices,
 * siblings, threads. */
#include "memory/pool/heap/blocks.h"
#include "moving_rig.h"
#include <pthread.h>
#include <stdatomic.h>

/* --- goals --- */

static void a_goal_beyond_all_memory_moves_nothing(void **state)
{
    (void)state;
    static const size_t goals[] = {SIZE_MAX, SIZE_MAX - MIB, SIZE_MAX / 2};
    for (size_t i = 0; i < 3; i++) {
        halves h = halves_open(STEPPED, 0);
        loch_compact_report report = {.size = sizeof report};
        const loch_compact_options options = {.size = sizeof options, .contiguous_bytes = goals[i]};
        CHECK_FAILS(loch_pool_plan_compact(h.b.pool, &options, NULL, NULL, &report), FRAGMENTED);
        CHECK_FAILS(loch_pool_compact(h.b.pool, &options, &report), FRAGMENTED);
        assert_int_equal(report.moves, 0);
        assert_int_equal(loch_buffer_get_generation(h.moves), 0);
        halves_close(&h);
    }
}

/* A block of that size could be had before: nothing has to move. */
static void a_goal_that_is_reached_moves_nothing(void **state)
{
    (void)state;
    halves h = halves_open(STEPPED, 0);
    loch_compact_report report = {.size = sizeof report};
    const loch_compact_options options = {.size = sizeof options, .contiguous_bytes = HALF};
    CHECK_OK(loch_pool_compact(h.b.pool, &options, &report));
    assert_int_equal(report.moves, 0);
    assert_true(report.joined_bytes >= HALF);
    halves_close(&h);
}

/* --- captures --- */

static void a_plan_on_a_captured_stream_takes_nothing(void **state)
{
    (void)state;
    halves h = halves_open(STEPPED, 0);
    loch_sim_graph *graph;
    const loch_compact_options options = {.size = sizeof options, .stream = h.b.streams[1]};
    CHECK_OK(loch_sim_capture_begin(h.b.streams[1]));
    CHECK_FAILS(loch_pool_compact(h.b.pool, &options, NULL), BUSY);
    CHECK_FAILS(loch_pool_plan_compact(h.b.pool, &options, NULL, NULL, NULL), BUSY);
    CHECK_OK(loch_sim_capture_end(h.b.streams[1], &graph));
    for (const pool_block *block = NULL; (block = lochi_pool_next_block(lochi_pool_of(h.b.pool), block));)
        assert_false(block->is_captured);
    loch_sim_graph_destroy(graph);
    halves_close(&h);
}

/* What a stream under capture used cannot be waited for: it stays, and others move. */
static void a_capture_under_way_does_not_stop_others(void **state)
{
    (void)state;
    for (size_t is_own = 0; is_own < 2;
         is_own++) { /* the block's own stream is captured, or a further one that used it */
        const loch_pool_options options = {.size = sizeof options, .limit_bytes = 16 * MIB, .handle_bytes = 2 * HALF};
        pool_bench b = pool_bench_open(STEPPED, &options);
        loch_buffer *buffers[4];
        void *holes[4];
        for (uint32_t i = 0; i < 4; i++) {
            loch_stream *own = b.streams[is_own && i == 1];
            buffers[i] = make(&b, HALF, i + 1, own);
            holes[i] = pool_alloc_on(b.pool, HALF, own);
        }
        CHECK_OK(loch_device_sync(b.device));
        for (size_t i = 0; i < 4; i++)
            CHECK_OK(loch_free(b.pool, holes[i]));
        CHECK_OK(loch_sim_capture_begin(b.streams[1]));
        void *address;
        CHECK_OK(loch_buffer_pin(buffers[1], b.streams[1], &address));
        CHECK_OK(loch_buffer_unpin(buffers[1], b.streams[1]));
        loch_compact_report report = {.size = sizeof report};
        const loch_compact_options on = {.size = sizeof on, .stream = b.streams[2]};
        CHECK_OK(loch_pool_compact(b.pool, &on, &report));
        assert_true(report.moves > 0);
        assert_int_equal(loch_buffer_get_generation(buffers[1]), 0);
        loch_sim_graph *graph;
        CHECK_OK(loch_sim_capture_end(b.streams[1], &graph));
        loch_sim_graph_destroy(graph);
        for (uint32_t i = 0; i < 4; i++) {
            expect(buffers[i], i + 1, b.streams[0]);
            loch_buffer_release(buffers[i]);
        }
        bench_close(&b);
    }
}

/* The stream that moved a buffer is captured before the move has ended. */
static void a_move_is_waited_for_though_its_stream_is_captured(void **state)
{
    (void)state;
    for (size_t i = 0; i < 3; i++) {
        halves h = halves_open(STEPPED, 0);
        halves_move(&h, 1);
        loch_sim_graph *graph;
        void *address = NULL;
        CHECK_OK(loch_sim_capture_begin(h.b.streams[1]));
        if (i == 0) expect(h.moves, 7, h.b.streams[0]);
        if (i == 1) { /* on the captured stream itself, and on one that waits for a captured one */
            CHECK_OK(loch_buffer_pin(h.moves, h.b.streams[1], &address));
            CHECK_OK(loch_buffer_unpin(h.moves, h.b.streams[1]));
        }
        if (i == 2) CHECK_OK(loch_buffer_detach(h.moves, &address));
        if (i == 2) expect_words(h.b.streams[2], address, HALF, 7);
        CHECK_OK(loch_sim_capture_end(h.b.streams[1], &graph));
        loch_sim_graph_destroy(graph);
        if (i == 2) CHECK_OK(loch_free(h.b.pool, address));
        halves_close(&h);
    }
}

/* --- pins --- */

static void pins_are_for_streams_of_the_device(void **state)
{
    (void)state;
    halves h = halves_open(STEPPED, 0);
    loch_device *other = sim_open(STEPPED ",id=1");
    loch_stream *foreign = sim_stream(other, LOCH_STREAM_INDEPENDENT);
    void *address;
    halves_move(&h, 1);
    CHECK_FAILS(loch_buffer_pin(h.moves, foreign, &address), INVALID);
    assert_null(address);
    CHECK_OK(loch_buffer_pin(h.moves, h.b.streams[0], &address));
    CHECK_FAILS(loch_buffer_unpin(h.moves, foreign), INVALID);
    assert_ptr_equal(loch_buffer_get_address(h.moves), address); /* still pinned */
    CHECK_OK(loch_buffer_unpin(h.moves, h.b.streams[0]));
    loch_stream_close(foreign);
    loch_device_release(other);
    halves_close(&h);
}

/* --- other devices --- */

static void a_copy_to_another_device_comes_behind_the_move(void **state)
{
    (void)state;
    for (size_t i = 0; i < 2; i++) { /* from it, and to it */
        halves h = halves_open(STEPPED, 0);
        loch_device *other = sim_open(STEPPED ",id=1");
        const loch_pool_options options = {.size = sizeof options};
        loch_allocator *pool = pool_make(other, &options);
        loch_buffer *there;
        const uint32_t seed = 21;
        CHECK_OK(loch_buffer_create(pool, HALF, NULL, &there));
        put_words(there, seed, NULL);
        CHECK_OK(loch_device_sync(other));
        CHECK_OK(loch_device_sync(h.b.device));
        halves_move(&h, 1);
        if (i)
            CHECK_OK(loch_buffer_copy(h.moves, there, NULL));
        else
            CHECK_OK(loch_buffer_copy(there, h.moves, NULL));
        CHECK_OK(loch_device_sync(h.b.device));
        CHECK_OK(loch_device_sync(other));
        expect(there, i ? 21 : 7, NULL);
        expect(h.moves, i ? 21 : 7, h.b.streams[0]);
        sim_expect_order(other);
        loch_buffer_release(there);
        loch_allocator_release(pool);
        halves_close(&h);
        loch_device_release(other);
    }
}

static void a_move_comes_behind_what_another_device_does(void **state)
{
    (void)state;
    halves h = halves_open(STEPPED, 0);
    loch_device *other = sim_open(STEPPED ",id=1");
    const loch_pool_options options = {.size = sizeof options};
    loch_allocator *pool = pool_make(other, &options);
    loch_stream *foreign = sim_stream(other, LOCH_STREAM_INDEPENDENT);
    loch_buffer *there;
    void *target, *source;
    CHECK_OK(loch_buffer_create(pool, HALF, NULL, &there));
    CHECK_OK(loch_device_sync(other));
    CHECK_OK(loch_device_sync(h.b.device));
    CHECK_OK(loch_buffer_pin(h.moves, h.b.streams[0], &source));
    CHECK_OK(loch_buffer_pin(there, NULL, &target));
    CHECK_OK(sim_busy(foreign, 50000000));
    CHECK_OK(loch_copy_on(target, source, HALF, foreign));
    CHECK_OK(loch_buffer_record_use(h.moves, foreign)); /* says so before the unpin */
    CHECK_OK(loch_buffer_unpin(h.moves, h.b.streams[0]));
    halves_move(&h, 1);
    const uint32_t seed = 99; /* in the old place, behind the move */
    loch_buffer *next = make(&h.b, 2 * HALF, seed, h.b.streams[1]);
    CHECK_OK(loch_device_sync(h.b.device));
    CHECK_OK(loch_device_sync(other));
    expect(there, 7, foreign);
    sim_expect_order(other);
    loch_buffer_release(next);
    loch_buffer_release(there);
    loch_stream_close(foreign);
    loch_allocator_release(pool);
    halves_close(&h);
    loch_device_release(other);
}

/* --- forbidden --- */

/* What siblings do not use serves before a move does. */
static void forbidden_moves_leave_what_siblings_have(void **state)
{
    (void)state;
    const size_t limit = 12 * MIB;
    const loch_pool_options options = {.size = sizeof options, .handle_bytes = 2 * HALF};
    pool_bench b = pool_bench_open("sim:12MiB,backed", &options);
    loch_allocator *sibling = pool_make(b.device, &options);
    loch_buffer *buffers[2];
    void *holes[2];
    for (uint32_t i = 0; i < 2; i++) {
        buffers[i] = make(&b, HALF, i + 1, NULL);
        holes[i] = pool_alloc(b.pool, HALF);
    }
    for (size_t i = 0; i < 2; i++)
        CHECK_OK(loch_free(b.pool, holes[i]));
    CHECK_OK(loch_free(sibling, pool_alloc(sibling, limit - 4 * HALF))); /* idle there */
    CHECK_OK(loch_pool_forbid_moving(b.pool));
    void *block;
    CHECK_OK(pool_try_alloc(b.pool, 2 * HALF, 0, NULL, &block));
    CHECK_OK(loch_pool_allow_moving(b.pool));
    CHECK_OK(loch_free(b.pool, block));
    for (uint32_t i = 0; i < 2; i++)
        loch_buffer_release(buffers[i]);
    loch_allocator_release(sibling);
    bench_close(&b);
}

/* --- neighbours --- */

/* Pieces that two streams have freed side by side serve one request once both have passed. */
static void neighbours_of_two_streams_serve_one_request(void **state)
{
    (void)state;
    const size_t piece = 300 * KIB;
    const loch_pool_options options = {.size = sizeof options, .limit_bytes = 4 * MIB, .handle_bytes = 4 * MIB};
    pool_bench b = pool_bench_open("sim:256MiB,backed", &options);
    void *one = pool_alloc_on(b.pool, piece, b.streams[0]), *large;
    void *whole = pool_alloc_on(b.pool, piece, b.streams[0]);
    void *rest = pool_alloc_on(b.pool, 4 * MIB - 2 * piece, b.streams[0]);
    CHECK_OK(sim_busy(b.streams[0], 100000));
    CHECK_OK(sim_busy(b.streams[1], 200000));
    CHECK_OK(loch_free(b.pool, one));
    CHECK_OK(loch_allocator_free_on(b.pool, whole, b.streams[1]));
    const loch_request request = {
        .size = sizeof request, .bytes = 2 * piece, .stream = b.streams[0], .flags = LOCH_ALLOC_NO_RETRY};
    CHECK_OK(loch_allocator_alloc(b.pool, &request, &large));
    CHECK_OK(loch_free(b.pool, large));
    CHECK_OK(loch_free(b.pool, rest));
    bench_close(&b);
}

/* --- threads: asking while it moves --- */

typedef struct asker {
    loch_buffer *buffers[8];
    atomic_bool is_over, is_well;
} asker;

static void *ask_again_and_again(void *user)
{
    asker *a = user;
    for (size_t i = 0; !a->is_over; i++) {
        const loch_buffer *buffer = a->buffers[4 + i % 4];
        if (loch_buffer_get_access(buffer) != LOCH_READ_WRITE || loch_buffer_get_kind(buffer) != LOCH_MEMORY_DEVICE)
            a->is_well = false;
    }
    return NULL;
}

static void figures_and_walks_are_sound_while_memory_moves(void **state)
{
    (void)state;
    const loch_pool_options options = {.size = sizeof options, .limit_bytes = 24 * MIB, .handle_bytes = 2 * MIB};
    pool_bench b = pool_bench_open("cpu", &options);
    asker a = {.is_well = true};
    void *frozen = pool_alloc(b.pool, MIB), *holes[8];
    size_t moved = 0;
    freeze_all(b.pool);
    for (uint32_t i = 0; i < 8; i++) {
        a.buffers[i] = make(&b, MIB, i + 1, NULL);
        holes[i] = pool_alloc(b.pool, MIB - 64 * KIB);
    }
    for (size_t i = 0; i < 8; i++)
        CHECK_OK(loch_free(b.pool, holes[i]));
    pthread_t thread;
    assert_int_equal(pthread_create(&thread, NULL, ask_again_and_again, &a), 0);
    for (uint32_t round = 0; round < 20; round++) {
        loch_buffer_clear(&a.buffers[round % 4]);
        CHECK_OK(loch_pool_compact(b.pool, NULL, NULL));
        a.buffers[round % 4] = make(&b, round % 2 ? MIB : 2 * MIB, 1, NULL);
    }
    a.is_over = true;
    assert_int_equal(pthread_join(thread, NULL), 0);
    assert_true(a.is_well);
    for (uint32_t i = 0; i < 8; i++) {
        if (i >= 4) moved += loch_buffer_get_generation(a.buffers[i]);
        loch_buffer_release(a.buffers[i]);
    }
    assert_true(moved > 0);
    CHECK_OK(loch_free(b.pool, frozen));
    bench_close(&b);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        TENSOR_TEST(a_goal_beyond_all_memory_moves_nothing),
        TENSOR_TEST(a_goal_that_is_reached_moves_nothing),
        TENSOR_TEST(a_plan_on_a_captured_stream_takes_nothing),
        TENSOR_TEST(a_capture_under_way_does_not_stop_others),
        TENSOR_TEST(a_move_is_waited_for_though_its_stream_is_captured),
        TENSOR_TEST(pins_are_for_streams_of_the_device),
        TENSOR_TEST(a_copy_to_another_device_comes_behind_the_move),
        TENSOR_TEST(a_move_comes_behind_what_another_device_does),
        TENSOR_TEST(forbidden_moves_leave_what_siblings_have),
        TENSOR_TEST(neighbours_of_two_streams_serve_one_request),
        TENSOR_TEST(figures_and_walks_are_sound_while_memory_moves),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

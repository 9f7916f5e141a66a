/* SPDX-License-Identifier: MIT */
/* Corners of memory that moves: goals at the edge of what there is, captures under way, blocks that a failure tore, what happens to a
 * buffer right after it was moved, frozen memory that sleeps, and other devices that use what moves. */
#include "moving_fixture.h"
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <sys/wait.h>
#include <unistd.h>

/* --- a pool of two handles with a buffer in the first that fits into the second --- */

#define HALF (1 * MIB)

typedef struct halves {
    pool_bench b;
    loch_buffer *moves;
    void *stays;
} halves;

static halves halves_open(const char *name, size_t stream)
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
static void halves_move(halves *h, size_t stream)
{
    loch_compact_report report = {.size = sizeof report};
    loch_stream *mover = h->b.streams[stream];
    const loch_compact_options options = {.size = sizeof options, .contiguous_bytes = 2 * HALF, .stream = mover};
    loch_sim_stats stats = {.size = sizeof stats};
    if (loch_sim_get_stats(h->b.device, &stats) == LOCH_OK) CHECK_OK(sim_busy(mover, 1000000));
    CHECK_OK(loch_pool_compact(h->b.pool, &options, &report));
    assert_int_equal(report.moves, 1);
}

static void halves_close(halves *h)
{
    loch_buffer_release(h->moves);
    if (h->stays) CHECK_OK(loch_free(h->b.pool, h->stays));
    bench_close(&h->b);
}

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

/* --- blocks that a failure tore --- */

typedef struct torn {
    pool_bench b;
    loch_buffer *buffer;
    void *rest;
} torn;

/* One handle: a hole, a buffer that can only slide, a hole, and something that stays. The second piece of its copy fails. */
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

/* --- frozen --- */

static void freeze_all(loch_allocator *pool)
{
    const loch_freeze_options options = {.size = sizeof options, .writes = LOCH_FREEZE_PROTECTED};
    CHECK_OK(loch_pool_freeze(pool, &options, NULL));
}

static bool can_be_written(void *address)
{
    const pid_t child = fork();
    if (!child) {
        signal(SIGSEGV, SIG_DFL);
        *(volatile char *)address = 1;
        _exit(0);
    }
    int ended;
    assert_int_equal(waitpid(child, &ended, 0), child);
    return WIFEXITED(ended) && WEXITSTATUS(ended) == 0;
}

/* Where memory sleeps there is nothing, whether what was frozen there is freed, unfrozen, or neither. */
static void frozen_memory_that_sleeps_is_not_there(void **state)
{
    (void)state;
    for (size_t i = 0; i < 3; i++) {
        const loch_pool_options options = {.size = sizeof options, .limit_bytes = 64 * MIB};
        pool_bench b = pool_bench_open("cpu", &options);
        loch_buffer *buffer = make(&b, 8 * MIB, 5, NULL);
        void *address;
        CHECK_OK(loch_buffer_pin(buffer, NULL, &address));
        CHECK_OK(loch_buffer_unpin(buffer, NULL));
        freeze_all(b.pool);
        const loch_sleep_options keep = {.size = sizeof keep, .contents = LOCH_SLEEP_HOST};
        CHECK_OK(loch_pool_sleep(b.pool, &keep, NULL));
        assert_false(can_be_written((char *)address + 4 * MIB));
        if (i == 1) CHECK_OK(loch_pool_unfreeze(b.pool, 0, NULL));
        if (i == 2) loch_buffer_clear(&buffer);
        assert_false(can_be_written((char *)address + 4 * MIB));
        CHECK_OK(loch_pool_wake(b.pool, NULL));
        if (i < 2) {
            assert_int_equal(can_be_written((char *)address + 4 * MIB), i == 1);
            assert_int_equal(loch_buffer_get_access(buffer), i == 1 ? LOCH_READ_WRITE : LOCH_READ_ONLY);
            expect(buffer, 5, NULL);
        }
        loch_buffer_release(buffer);
        bench_close(&b);
    }
}

static void a_frozen_block_that_cannot_grow_stays_frozen(void **state)
{
    (void)state;
    const loch_pool_options options = {.size = sizeof options, .limit_bytes = 8 * MIB};
    pool_bench b = pool_bench_open("cpu", &options);
    loch_buffer *buffer = make(&b, MIB, 5, NULL);
    freeze_all(b.pool);
    const loch_status status = loch_buffer_resize(buffer, 20 * MIB, LOCH_CONTENTS_KEEP, NULL);
    assert_true(POOL_SHORT & 1u << status);
    assert_int_equal(loch_buffer_get_access(buffer), LOCH_READ_ONLY);
    expect(buffer, 5, NULL);
    loch_buffer_release(buffer);
    bench_close(&b);
}

/* Its block stays, with a message; nobody may look for the buffer afterwards. */
static void a_buffer_whose_block_cannot_be_freed(void **state)
{
    (void)state;
    const loch_pool_options options = {.size = sizeof options, .limit_bytes = 16 * MIB};
    pool_bench b = pool_bench_open("cpu", &options);
    loch_buffer *buffer = make(&b, MIB, 5, NULL);
    void *address;
    CHECK_OK(loch_buffer_pin(buffer, NULL, &address));
    CHECK_OK(loch_buffer_unpin(buffer, NULL));
    lochi_pool_keep_range(lochi_pool_of(b.pool), address, lochi_pool_of(b.pool)); /* any reason to refuse a free */
    loch_buffer_release(buffer);
    assert_int_equal(tensor_live_blocks(b.pool), 1);
    lochi_pool_keep_range(lochi_pool_of(b.pool), address, NULL);
    CHECK_OK(loch_pool_compact(b.pool, NULL, NULL)); /* looks at every block's owner */
    CHECK_OK(loch_free(b.pool, address));
    bench_close(&b);
}

/* A guard's blocks begin behind its red zone: wherever that ends, they are known as what they are. */
static void frozen_blocks_of_a_guard_are_not_written(void **state)
{
    (void)state;
    static const size_t zones[] = {64, 4096, 20000};
    for (size_t i = 0; i < 3; i++) {
        const loch_pool_options options = {.size = sizeof options, .limit_bytes = 16 * MIB};
        const loch_redzone_options guarded = {.size = sizeof guarded, .red_zone_bytes = zones[i]};
        pool_bench b = pool_bench_open("cpu", &options);
        loch_allocator *guard;
        CHECK_OK(loch_redzone_create(b.pool, "guard", &guarded, &guard));
        loch_buffer *buffers[6];
        for (size_t j = 0; j < 6; j++)
            CHECK_OK(loch_buffer_create(guard, 100000 + 512 * j, NULL, &buffers[j]));
        freeze_all(b.pool);
        for (size_t j = 0; j < 6; j++) {
            CHECK_FAILS(loch_buffer_fill(buffers[j], "", 1, NULL), INVALID);
            loch_buffer_release(buffers[j]);
        }
        loch_allocator_release(guard);
        bench_close(&b);
    }
}

/* --- asleep --- */

static void a_sleeping_block_is_not_resized_on_another_stream(void **state)
{
    (void)state;
    const loch_pool_options options = {.size = sizeof options, .limit_bytes = 64 * MIB};
    pool_bench b = pool_bench_open("sim:256MiB,backed,granule=64KiB", &options);
    loch_tag tag;
    CHECK_OK(loch_tag_create("corner asleep", &tag));
    const loch_request request = {.size = sizeof request, .bytes = MIB, .tag = tag, .stream = b.streams[0]};
    void *block, *out;
    CHECK_OK(loch_allocator_alloc(b.pool, &request, &block));
    const loch_sleep_options keep = {.size = sizeof keep, .contents = LOCH_SLEEP_HOST, .tag = tag};
    CHECK_OK(loch_pool_sleep(b.pool, &keep, NULL));
    CHECK_FAILS(loch_allocator_realloc(b.pool, block, 2 * MIB, b.streams[0], &out), BUSY);
    CHECK_FAILS(loch_allocator_realloc(b.pool, block, 2 * MIB, b.streams[1], &out), BUSY);
    CHECK_OK(loch_pool_wake(b.pool, NULL));
    CHECK_OK(loch_free(b.pool, block));
    bench_close(&b);
}

/* --- what the library itself allocates while the thread is in a session --- */

static void a_session_does_not_take_what_sleep_has_saved(void **state)
{
    (void)state;
    const loch_pool_options options = {.size = sizeof options, .limit_bytes = 16 * MIB};
    pool_bench b = pool_bench_open("sim:256MiB,backed", &options);
    loch_device *cpu = sim_open("cpu");
    loch_allocator *host = pool_make(cpu, &options);
    loch_session *session;
    size_t bytes;
    loch_buffer *buffer = make(&b, MIB, 5, b.streams[0]);
    const loch_sleep_options keep = {.size = sizeof keep, .contents = LOCH_SLEEP_HOST, .allocator = host};
    CHECK_OK(loch_session_begin(host, "asleep", &session));
    CHECK_OK(loch_session_enter(session));
    CHECK_OK(loch_pool_sleep(b.pool, &keep, NULL));
    CHECK_OK(loch_session_leave(session));
    CHECK_OK(loch_session_end(session, NULL, &bytes));
    assert_int_equal(bytes, 0);
    CHECK_OK(loch_pool_wake(b.pool, NULL));
    expect(buffer, 5, b.streams[0]);
    loch_buffer_release(buffer);
    bench_close(&b);
    assert_int_equal(tensor_live_blocks(host), 0);
    loch_allocator_release(host);
    loch_device_release(cpu);
}

static void a_session_ends_before_a_child_that_was_made_in_it(void **state)
{
    (void)state;
    const loch_pool_options options = {.size = sizeof options, .limit_bytes = 16 * MIB};
    pool_bench b = pool_bench_open("sim:256MiB,backed", &options);
    loch_session *session;
    size_t bytes;
    CHECK_OK(loch_session_begin(b.pool, "child", &session));
    CHECK_OK(loch_session_enter(session));
    loch_allocator *child = child_range(b.pool, MIB);
    CHECK_OK(loch_session_leave(session));
    CHECK_OK(loch_session_end(session, NULL, &bytes));
    assert_int_equal(bytes, 0);
    CHECK_OK(loch_free(child, pool_alloc(child, 100 * KIB)));
    loch_allocator_release(child);
    bench_close(&b);
}

/* The pool that keeps another's contents sleeps, too. */
static void contents_that_sleep_themselves_are_not_restored(void **state)
{
    (void)state;
    const loch_pool_options options = {.size = sizeof options, .limit_bytes = 16 * MIB};
    pool_bench b = pool_bench_open("sim:256MiB,backed", &options);
    loch_device *cpu = sim_open("cpu");
    loch_allocator *host = pool_make(cpu, &options);
    loch_buffer *buffer = make(&b, MIB, 5, b.streams[0]);
    const loch_sleep_options keep = {.size = sizeof keep, .contents = LOCH_SLEEP_HOST, .allocator = host};
    const loch_sleep_options file = {.size = sizeof file, .contents = LOCH_SLEEP_FILE};
    CHECK_OK(loch_pool_sleep(b.pool, &keep, NULL));
    CHECK_OK(loch_pool_sleep(host, &file, NULL));
    CHECK_FAILS(loch_pool_wake(b.pool, NULL), BUSY);
    pool_expect_whole(b.pool);
    CHECK_OK(loch_pool_wake(host, NULL));
    CHECK_OK(loch_pool_wake(b.pool, NULL));
    expect(buffer, 5, b.streams[0]);
    loch_buffer_release(buffer);
    bench_close(&b);
    loch_allocator_release(host);
    loch_device_release(cpu);
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

static void questions_while_it_moves(void **state)
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
        TENSOR_TEST(a_torn_buffer_is_resized),
        TENSOR_TEST(a_torn_buffer_is_detached),
        TENSOR_TEST(a_torn_buffer_sleeps),
        TENSOR_TEST(a_torn_buffer_is_not_mended_in_a_capture),
        TENSOR_TEST(a_moved_buffer_is_resized_behind_its_move),
        TENSOR_TEST(a_moved_buffer_is_detached_behind_its_move),
        TENSOR_TEST(a_resize_that_fails_changes_nothing),
        TENSOR_TEST(a_moved_buffer_knows_its_kind),
        TENSOR_TEST(a_copy_to_another_device_comes_behind_the_move),
        TENSOR_TEST(a_move_comes_behind_what_another_device_does),
        TENSOR_TEST(forbidden_moves_leave_what_siblings_have),
        TENSOR_TEST(neighbours_of_two_streams_serve_one_request),
        TENSOR_TEST(frozen_memory_that_sleeps_is_not_there),
        TENSOR_TEST(a_frozen_block_that_cannot_grow_stays_frozen),
        TENSOR_TEST(a_buffer_whose_block_cannot_be_freed),
        TENSOR_TEST(frozen_blocks_of_a_guard_are_not_written),
        TENSOR_TEST(a_sleeping_block_is_not_resized_on_another_stream),
        TENSOR_TEST(a_session_does_not_take_what_sleep_has_saved),
        TENSOR_TEST(a_session_ends_before_a_child_that_was_made_in_it),
        TENSOR_TEST(contents_that_sleep_themselves_are_not_restored),
        TENSOR_TEST(questions_while_it_moves),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

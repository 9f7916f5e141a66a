/* SPDX-License-Identifier: MIT */
/* Moves beside what else goes on: captures, other devices, want of host memory, buffers that are resized or taken
 * apart, small ones, and shortages that have another cause than pieces. */
#include "memory/pool/heap/blocks.h"
#include "failing_heap.h"
#include "memory/movable.h"
#include "pool_fixture.h"
#include "tensor_fixture.h"

#define MIB TEST_MIB
#define KIB TEST_KIB
#define BUFFERS 24
#define BYTES (100 * KIB)

typedef struct scene {
    loch_device *device;
    loch_allocator *pool;
    loch_stream *own, *other, *mover;
    loch_buffer *buffers[BUFFERS]; /* every second one is NULL */
} scene;

static loch_buffer *make(const scene *s, size_t bytes)
{
    const loch_request request = {.size = sizeof request, .stream = s->own, .flags = LOCH_ALLOC_MOVABLE};
    loch_buffer *buffer;
    CHECK_OK(loch_buffer_create(s->pool, bytes, &request, &buffer));
    return buffer;
}

/* Buffers full of their own number, with holes between them. */
static scene scene_open(const char *device, size_t limit, size_t hole_bytes)
{
    scene s = {.device = sim_open(device)};
    const loch_pool_options options = {.size = sizeof options, .limit_bytes = limit};
    s.pool = pool_make(s.device, &options);
    s.own = sim_stream(s.device, LOCH_STREAM_INDEPENDENT);
    s.other = sim_stream(s.device, LOCH_STREAM_INDEPENDENT);
    s.mover = sim_stream(s.device, LOCH_STREAM_INDEPENDENT);
    for (uint32_t i = 0; i < BUFFERS; i++) {
        s.buffers[i] = make(&s, i % 2 ? BYTES : hole_bytes);
        CHECK_OK(loch_buffer_fill(s.buffers[i], &i, sizeof i, s.own));
    }
    for (size_t i = 0; i < BUFFERS; i += 2)
        loch_buffer_clear(&s.buffers[i]);
    CHECK_OK(loch_device_sync(s.device));
    return s;
}

static void scene_close(scene *s)
{
    for (size_t i = 0; i < BUFFERS; i++)
        loch_buffer_release(s->buffers[i]);
    CHECK_OK(loch_device_sync(s->device));
    CHECK_OK(loch_buffer_collect(LOCH_WAIT_END, NULL));
    loch_sim_stats stats = {.size = sizeof stats};
    loch_sim_violation found;
    if (loch_sim_get_stats(s->device, &stats) == LOCH_OK && sim_violations(s->device, &found))
        fail_msg("%s", found.text);
    pool_expect_whole(s->pool);
    assert_int_equal(tensor_live_blocks(s->pool), 0);
    loch_stream_close(s->own);
    loch_stream_close(s->other);
    loch_stream_close(s->mover);
    loch_allocator_release(s->pool);
    loch_device_release(s->device);
}

static size_t compact(const scene *s)
{
    const loch_compact_options options = {.size = sizeof options, .stream = s->mover};
    loch_compact_report report = {.size = sizeof report};
    CHECK_OK(loch_pool_compact(s->pool, &options, &report));
    pool_expect_whole(s->pool);
    return report.moves;
}

static loch_status busy_write(loch_stream *stream, const void *address, size_t bytes)
{
    const loch_sim_range range = {address, bytes};
    const loch_sim_kernel kernel = {
        .size = sizeof kernel, .name = "writer", .writes = &range, .writes_count = 1, .duration_ns = 100000};
    return loch_sim_launch(stream, &kernel);
}

static void expect_words(const void *host, uint32_t word)
{
    for (size_t i = 0; i < BYTES / 4; i++)
        if (((const uint32_t *)host)[i] != word)
            fail_msg("word %zu is %x, not %x", i, ((const uint32_t *)host)[i], word);
}

/* --- pins --- */

/* What was queued before an unpin is over before the memory is another's: of buffers of any size, and of those that do
 * not move. */
static void a_release_comes_behind_an_unpin(void **state)
{
    (void)state;
    for (int i = 0; i < 4; i++) {
        const size_t bytes = i / 2 ? 64 * KIB : 4 * KIB;
        loch_device *device = sim_open("sim:64MiB,clock=stepped");
        loch_allocator *pool = pool_make(device, NULL);
        loch_stream *own = sim_stream(device, LOCH_STREAM_INDEPENDENT),
                    *user = sim_stream(device, LOCH_STREAM_INDEPENDENT);
        const loch_request request = {.size = sizeof request, .stream = own, .flags = i % 2 ? LOCH_ALLOC_MOVABLE : 0};
        loch_buffer *buffer;
        void *address, *next;
        CHECK_OK(loch_buffer_create(pool, bytes, &request, &buffer));
        CHECK_OK(loch_buffer_pin(buffer, user, &address));
        CHECK_OK(busy_write(user, address, bytes));
        CHECK_OK(loch_buffer_unpin(buffer, user));
        loch_buffer_release(buffer);
        next = pool_alloc_on(pool, bytes, own);
        CHECK_OK(busy_write(own, next, bytes));
        CHECK_OK(loch_free(pool, next));
        CHECK_OK(loch_device_sync(device));
        loch_stream_close(own);
        loch_stream_close(user);
        pool_end_sim(pool, device);
    }
}

static void a_pin_refuses_a_stream_of_another_device(void **state)
{
    (void)state;
    scene s = scene_open("sim:64MiB,granule=64KiB", 0, BYTES);
    loch_device *other = sim_open("sim:64MiB,id=1");
    loch_stream *foreign = sim_stream(other, LOCH_STREAM_INDEPENDENT);
    void *address = TEST_UNTOUCHED;
    CHECK_FAILS(loch_buffer_pin(s.buffers[1], foreign, &address), INVALID);
    assert_null(address);
    CHECK_OK(loch_buffer_pin(s.buffers[1], s.own, &address));
    CHECK_FAILS(loch_buffer_unpin(s.buffers[1], foreign), INVALID);
    CHECK_OK(loch_buffer_unpin(s.buffers[1], s.own));
    assert_true(compact(&s) > 0);
    loch_stream_close(foreign);
    loch_device_release(other);
    scene_close(&s);
}

/* --- uses --- */

/* A use that cannot be recorded because there is no host memory is waited for, if needed: a move is ordered after it
 * anyway. */
static void a_move_comes_behind_a_use_that_could_not_be_noted(void **state)
{
    (void)state;
    for (uint64_t after = 0; after < 4; after++) {
        scene s = scene_open("sim:64MiB,clock=stepped,granule=64KiB", 0, BYTES);
        for (size_t i = 1; i < BUFFERS; i += 2) {
            void *address;
            CHECK_OK(loch_buffer_pin(s.buffers[i], s.own, &address));
            CHECK_OK(busy_write(s.other, address, BYTES));
            test_heap_set(TEST_FAILING_ONCE, after);
            CHECK_OK(loch_buffer_record_use(s.buffers[i], s.other));
            test_heap_set(TEST_FAILING_NEVER, 0);
            CHECK_OK(loch_buffer_unpin(s.buffers[i], s.own));
        }
        assert_true(compact(&s) > 0);
        scene_close(&s);
    }
}

/* Streams of another device work on a buffer: copies out of it, and into it, are not overtaken by a move. */
static void a_move_comes_behind_work_of_another_device(void **state)
{
    (void)state;
    static const char *const names[] = {"sim:64MiB,clock=stepped,granule=64KiB,backed", "cpu"};
    for (int i = 0; i < 4; i++) {
        const bool is_read = i % 2;
        scene s = scene_open(names[i / 2], 0, BYTES);
        loch_device *other = sim_open("sim:64MiB,id=1,clock=stepped,backed");
        loch_allocator *there = pool_make(other, NULL);
        loch_stream *foreign = sim_stream(other, LOCH_STREAM_INDEPENDENT);
        loch_buffer *copies[BUFFERS] = {NULL};
        CHECK_OK(sim_busy(foreign, 1000000));
        for (uint32_t k = 1; k < BUFFERS; k += 2) {
            const loch_request request = {.size = sizeof request, .stream = foreign};
            const loch_buffer_copy_options copy = {.size = sizeof copy, .stream = foreign, .wait = LOCH_WAIT_QUEUED};
            const uint32_t word = k + 1000;
            CHECK_OK(loch_buffer_create(there, BYTES, &request, &copies[k]));
            CHECK_OK(loch_buffer_fill(copies[k], &word, sizeof word, foreign));
            CHECK_OK(is_read ? loch_buffer_copy(copies[k], s.buffers[k], &copy)
                             : loch_buffer_copy(s.buffers[k], copies[k], &copy));
        }
        assert_true(compact(&s) > 0 || i / 2);
        loch_buffer *large = make(&s, 700 * KIB); /* where the buffers were */
        const uint32_t word = 77;
        CHECK_OK(loch_buffer_fill(large, &word, sizeof word, s.own));
        CHECK_OK(loch_device_sync(s.device));
        CHECK_OK(loch_device_sync(other));
        for (uint32_t k = 1; k < BUFFERS; k += 2) {
            static uint32_t host[BYTES / 4];
            loch_buffer *seen = is_read ? copies[k] : s.buffers[k];
            loch_buffer *to;
            CHECK_OK(loch_buffer_wrap(host, BYTES, NULL, &to));
            CHECK_OK(loch_buffer_copy(to, seen, NULL));
            expect_words(host, is_read ? k : k + 1000);
            loch_buffer_release(to);
            loch_buffer_release(copies[k]);
        }
        loch_buffer_release(large);
        scene_close(&s);
        loch_stream_close(foreign);
        loch_allocator_release(there);
        loch_device_release(other);
    }
}

/* --- captures --- */

/* Blocks of a stream that is captured now stay where they are, and others move: neither is a reason to fail. */
static void compaction_leaves_blocks_of_a_captured_stream(void **state)
{
    (void)state;
    for (int is_explicit = 0; is_explicit < 2; is_explicit++) {
        scene s = scene_open("sim:64MiB,clock=stepped,granule=64KiB", 0, BYTES);
        void *address, *block;
        for (size_t i = 1; i < BUFFERS; i += 6) { /* used by the other stream, whose work goes on */
            CHECK_OK(loch_buffer_pin(s.buffers[i], s.other, &address));
            CHECK_OK(busy_write(s.other, address, BYTES));
            CHECK_OK(loch_buffer_unpin(s.buffers[i], s.other));
        }
        CHECK_OK(loch_sim_capture_begin(s.other));
        CHECK_OK(loch_pool_set_limit(s.pool, pool_info(s.pool).reserved_bytes));
        if (is_explicit) assert_true(compact(&s) > 0);
        CHECK_OK(pool_try_alloc(s.pool, 700 * KIB, 0, s.mover, &block));
        for (size_t i = 1; i < BUFFERS; i += 6)
            assert_int_equal(loch_buffer_get_generation(s.buffers[i]), 0);
        loch_sim_graph *graph;
        CHECK_OK(loch_sim_capture_end(s.other, &graph)); /* and the capture is whole */
        loch_sim_graph_destroy(graph);
        CHECK_OK(loch_free(s.pool, block));
        scene_close(&s);
    }
}

/* A plan for a stream that is captured would take the pool's free memory into the capture. */
static void a_plan_for_a_captured_stream_is_refused(void **state)
{
    (void)state;
    scene s = scene_open("sim:64MiB,clock=stepped,granule=64KiB", 0, BYTES);
    const loch_compact_options options = {.size = sizeof options, .stream = s.other};
    loch_sim_graph *graph;
    CHECK_OK(loch_pool_set_limit(s.pool, pool_info(s.pool).reserved_bytes));
    CHECK_OK(loch_sim_capture_begin(s.other));
    CHECK_FAILS(loch_pool_plan_compact(s.pool, &options, NULL, NULL, NULL), BUSY);
    CHECK_FAILS(loch_pool_compact(s.pool, &options, NULL), BUSY);
    CHECK_OK(loch_sim_capture_end(s.other, &graph));
    loch_sim_graph_destroy(graph);
    CHECK_OK(loch_free(s.pool, pool_alloc_on(s.pool, 700 * KIB, s.own)));
    scene_close(&s);
}

/* --- buffers that change while a move is under way --- */

static void detach_and_resize_come_behind_a_move(void **state)
{
    (void)state;
    for (int is_resized = 0; is_resized < 2; is_resized++) {
        scene s = scene_open("sim:64MiB,clock=stepped,granule=64KiB,backed", 0, BYTES);
        CHECK_OK(sim_busy(s.mover, 1000000));
        assert_true(compact(&s) > 0);
        for (uint32_t i = 1; i < BUFFERS; i += 2) {
            void *address;
            if (is_resized) {
                CHECK_OK(loch_buffer_resize(s.buffers[i], BYTES + 64 * KIB, LOCH_CONTENTS_KEEP, s.own));
                CHECK_OK(loch_buffer_pin(s.buffers[i], s.own, &address));
            } else {
                CHECK_OK(loch_buffer_detach(s.buffers[i], &address));
            }
            static uint32_t host[BYTES / 4];
            const loch_copy_options copy = {.size = sizeof copy, .stream = s.own, .wait = LOCH_WAIT_END};
            CHECK_OK(loch_copy_with(host, address, BYTES, &copy));
            expect_words(host, i);
            if (is_resized)
                CHECK_OK(loch_buffer_unpin(s.buffers[i], s.own));
            else
                CHECK_OK(loch_free(s.pool, address));
        }
        scene_close(&s);
    }
}

/* Whether the contents of a block are in two places, because a move onto itself has failed. */
static bool has_torn_block(const scene *s)
{
    const lochi_pool *pool = lochi_pool_of(s->pool);
    for (pool_block *block = NULL; (block = lochi_pool_next_block(pool, block));)
        if (block->owner && block->owner->torn_from) return true;
    return false;
}

/* Contents that tell where in the buffer they belong. */
static void put_pattern(const scene *s, uint32_t i)
{
    static char host[BYTES];
    void *address;
    test_pattern_write(host, BYTES, i);
    CHECK_OK(loch_buffer_pin(s->buffers[i], s->own, &address));
    CHECK_OK(loch_copy(address, host, BYTES));
    CHECK_OK(loch_buffer_unpin(s->buffers[i], s->own));
}

/* The move has failed half way, and the contents are in two places. */
static void detach_comes_behind_a_move_that_failed_half_way(void **state)
{
    (void)state;
    size_t torn = 0;
    bool is_reached = true;
    for (uint64_t after = 0; is_reached; after++) {
        scene s = scene_open("sim:64MiB,virtual=off,backed", 0, 80 * KIB);
        void *rest = NULL; /* nothing but the holes is free, which are smaller than the blocks */
        if (pool_info(s.pool).largest_free_bytes > BYTES)
            rest = pool_alloc(s.pool, pool_info(s.pool).largest_free_bytes);
        for (uint32_t i = 1; i < BUFFERS; i += 2)
            put_pattern(&s, i);
        const loch_sim_fault fault = {.size = sizeof fault, .after = after, .call = "copy"};
        CHECK_OK(loch_sim_set_fault(s.device, &fault));
        const loch_compact_options options = {.size = sizeof options, .stream = s.mover};
        is_reached = loch_pool_compact(s.pool, &options, NULL) != LOCH_OK;
        CHECK_OK(loch_sim_set_fault(s.device, NULL));
        CHECK_OK(loch_device_sync(s.device)); /* all that was queued is over */
        torn += has_torn_block(&s);
        for (uint32_t i = 1; i < BUFFERS; i += 2) {
            static char host[BYTES];
            void *address;
            CHECK_OK(loch_buffer_detach(s.buffers[i], &address));
            CHECK_OK(loch_copy(host, address, BYTES));
            assert_int_equal(test_pattern_differs(host, BYTES, i), BYTES);
            CHECK_OK(loch_free(s.pool, address));
        }
        CHECK_OK(loch_free(s.pool, rest));
        scene_close(&s);
    }
    assert_true(torn > 0);
}

/* --- shortages --- */

/* A device that has no more is not memory in pieces, whatever may move. */
static void a_full_device_is_called_full(void **state)
{
    (void)state;
    loch_device *device = sim_open("sim:8MiB,granule=64KiB");
    const loch_pool_options options = {.size = sizeof options, .limit_bytes = 64 * MIB};
    scene s = {.device = device, .pool = pool_make(device, &options)};
    loch_buffer *buffers[7];
    void *none;
    for (size_t i = 0; i < 7; i++)
        buffers[i] = make(&s, MIB);
    CHECK_FAILS(loch_alloc(s.pool, 4 * MIB, &none), DEVICE_MEMORY);
    for (size_t i = 0; i < 7; i++)
        loch_buffer_release(buffers[i]);
    pool_end_sim(s.pool, device);
}

/* Raw segments with little in them are emptied, given back, and one of another size is made. */
static void small_segments_make_room_for_a_large_one(void **state)
{
    (void)state;
    loch_device *device = sim_open("sim:64MiB,virtual=off");
    const loch_pool_options options = {.size = sizeof options, .limit_bytes = 16 * MIB, .handle_bytes = 2 * MIB};
    scene s = {.device = device, .pool = pool_make(device, &options)};
    loch_buffer *buffers[8], *large[8];
    for (size_t i = 0; i < 8; i++) {
        buffers[i] = make(&s, BYTES);
        large[i] = make(&s, 1900 * KIB); /* the rest of a segment */
    }
    for (size_t i = 0; i < 8; i++)
        loch_buffer_release(large[i]);
    void *block = pool_alloc(s.pool, 9 * MIB);
    pool_expect_whole(s.pool);
    CHECK_OK(loch_free(s.pool, block));
    for (size_t i = 0; i < 8; i++)
        loch_buffer_release(buffers[i]);
    CHECK_OK(loch_device_sync(device));
    pool_end_sim(s.pool, device);
}

int main(void)
{
    if (test_heap_install() != LOCH_OK) return 1;
    const struct CMUnitTest tests[] = {
        TENSOR_TEST(a_release_comes_behind_an_unpin),
        TENSOR_TEST(a_pin_refuses_a_stream_of_another_device),
        TENSOR_TEST(a_move_comes_behind_a_use_that_could_not_be_noted),
        TENSOR_TEST(a_move_comes_behind_work_of_another_device),
        TENSOR_TEST(compaction_leaves_blocks_of_a_captured_stream),
        TENSOR_TEST(a_plan_for_a_captured_stream_is_refused),
        TENSOR_TEST(detach_and_resize_come_behind_a_move),
        TENSOR_TEST(detach_comes_behind_a_move_that_failed_half_way),
        TENSOR_TEST(a_full_device_is_called_full),
        TENSOR_TEST(small_segments_make_room_for_a_large_one),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

/* SPDX-License-Identifier: MIT */
/* Memory that moves on a real GPU: compaction between streams that work, slides, freezing, children and sessions, with
 * contents checked.
 *
 * Without a GPU the program says why and is skipped; LOCH_REQUIRE_GPU=1 makes that a failure. An argument names another
 * device than cuda:0 ("sim:8GiB,backed" tries the program itself). */
#include "memory/pool/report/check.h"
#include "double.h"

#define SLOTS 96
#define LARGEST (24 * TEST_MIB)
#define LIMIT (1 * TEST_GIB)

static const char *device_name = "cuda:0";
static loch_device *device;
static loch_stream *streams[3];

static void expect_whole(loch_allocator *pool)
{
    const char *wrong = lochi_pool_check(lochi_pool_of(pool));
    if (wrong) fail_msg("%s", wrong);
}

static loch_allocator *pool_create(void)
{
    const loch_pool_options options = {.size = sizeof options, .limit_bytes = LIMIT};
    loch_allocator *pool;
    CHECK_OK(loch_pool_create(device, "moving", &options, &pool));
    return pool;
}

static loch_buffer *make(loch_allocator *pool, size_t bytes, uint32_t seed, size_t stream, loch_tag tag)
{
    const loch_request request = {.size = sizeof request,
                                  .stream = streams[stream],
                                  .tag = tag,
                                  .flags = LOCH_ALLOC_MOVABLE | LOCH_ALLOC_NO_RETRY};
    loch_buffer *buffer;
    if (loch_buffer_create(pool, bytes, &request, &buffer) != LOCH_OK) return NULL;
    CHECK_OK(loch_buffer_fill(buffer, &seed, sizeof seed, streams[stream]));
    return buffer;
}

static void expect(loch_buffer *buffer, uint32_t seed, size_t stream)
{
    static uint32_t seen[LARGEST / 4];
    const size_t bytes = loch_buffer_get_bytes(buffer);
    void *address;
    CHECK_OK(loch_buffer_pin(buffer, streams[stream], &address));
    const loch_copy_options copy = {.size = sizeof copy, .stream = streams[stream], .wait = LOCH_WAIT_END};
    CHECK_OK(loch_copy_with(seen, address, bytes, &copy));
    CHECK_OK(loch_buffer_unpin(buffer, streams[stream]));
    for (size_t i = 0; i < bytes / 4; i++)
        if (seen[i] != seed) fail_msg("word %zu of %zu is %x, not %x", i, bytes / 4, seen[i], seed);
}

/* Buffers come and go on three streams while the pool is compacted; nothing waits in between. */
static void moves_come_in_the_order_of_streams(void **state)
{
    (void)state;
    loch_allocator *pool = pool_create();
    test_random random = {test_seed(0xcafe)};
    loch_buffer *buffers[SLOTS] = {NULL};
    uint32_t seeds[SLOTS] = {0};
    size_t on[SLOTS] = {0}, moves = 0;
    const size_t largest = gpu_or_double(device, LARGEST, 4 * TEST_MIB);
    for (uint32_t step = 1; step <= 1500; step++) {
        const size_t slot = test_random_below(&random, SLOTS), stream = test_random_below(&random, 3);
        if (!buffers[slot]) {
            const size_t bytes = (9 * TEST_KIB + test_random_below(&random, largest - 9 * TEST_KIB)) & ~(size_t)3;
            buffers[slot] = make(pool, bytes, step, stream, 0);
            seeds[slot] = step;
            on[slot] = stream;
        } else if (test_random_below(&random, 3)) {
            loch_buffer_clear(&buffers[slot]);
        } else if (test_random_below(&random, 2)) {
            expect(buffers[slot], seeds[slot], on[slot]);
        }
        if (step % 25) continue;
        const loch_compact_options options = {
            .size = sizeof options, .contiguous_bytes = step % 2 ? 64 * TEST_MIB : 0, .stream = streams[stream]};
        loch_compact_report report = {.size = sizeof report};
        const loch_status status = loch_pool_compact(pool, &options, &report);
        if (status != LOCH_E_FRAGMENTED) CHECK_OK(status);
        moves += report.moves;
        expect_whole(pool);
    }
    assert_true(moves > 20);
    for (size_t i = 0; i < SLOTS; i++) {
        if (buffers[i]) expect(buffers[i], seeds[i], on[i]);
        loch_buffer_release(buffers[i]);
    }
    expect_whole(pool);
    loch_allocator_release(pool);
}

/* Holes smaller than any block: all free memory can nevertheless be allocated in one piece. */
static void all_that_is_free_can_be_had_in_one_piece(void **state)
{
    (void)state;
    const size_t large_bytes = gpu_or_double(device, 20 * TEST_MIB, 4 * TEST_MIB);
    static const size_t gaps[] = {TEST_MIB, 60 * TEST_KIB}; /* in pieces, and through scratch memory */
    for (size_t g = 0; g < 2; g++) {
        loch_allocator *pool = pool_create();
        const size_t count = 48;
        loch_buffer *buffers[48], *holes[48], *large;
        for (uint32_t i = 0; i < count; i++) {
            buffers[i] = make(pool, large_bytes - TEST_MIB, i + 1, i % 3, 0);
            holes[i] = make(pool, TEST_MIB, 0, i % 3, 0);
            assert_non_null(holes[i]);
        }
        for (size_t i = 0; i < count; i++)
            loch_buffer_clear(&holes[i]);
        CHECK_OK(loch_device_sync(device));
        for (uint32_t i = 0; i < count && g; i++)
            holes[i] = make(pool, TEST_MIB - gaps[g], i + 100, i % 3, 0);
        const size_t wanted = gaps[g] * (count - 8);
        const loch_compact_options options = {.size = sizeof options, .contiguous_bytes = wanted, .stream = streams[0]};
        CHECK_OK(loch_pool_compact(pool, &options, NULL));
        expect_whole(pool);
        const loch_request request = {.size = sizeof request, .stream = streams[0]};
        CHECK_OK(loch_buffer_create(pool, wanted, &request, &large));
        for (uint32_t i = 0; i < count; i++) {
            expect(buffers[i], i + 1, i % 3);
            if (holes[i]) expect(holes[i], i + 100, i % 3);
            loch_buffer_release(buffers[i]);
            loch_buffer_release(holes[i]);
        }
        loch_buffer_release(large);
        expect_whole(pool);
        loch_allocator_release(pool);
    }
}

/* Weights are frozen together, a child serves the rest, a session takes what is left in it. */
static void weights_are_frozen_beside_a_child_and_a_session(void **state)
{
    (void)state;
    loch_allocator *pool = pool_create(), *child;
    loch_tag weights;
    CHECK_OK(loch_tag_create("gpu weights", &weights));
    loch_buffer *frozen[16], *others[16];
    for (uint32_t i = 0; i < 16; i++) {
        frozen[i] = make(pool, 9 * TEST_MIB, i + 1, i % 3, weights);
        others[i] = make(pool, 5 * TEST_MIB, i + 100, i % 3, 0);
    }
    const loch_freeze_options options = {
        .size = sizeof options, .tag = weights, .writes = LOCH_FREEZE_PROTECTED, .stream = streams[1]};
    loch_freeze_report report = {.size = sizeof report};
    CHECK_OK(loch_pool_freeze(pool, &options, &report));
    expect_whole(pool);
    assert_int_equal(report.blocks, 16);
    assert_true(report.moves > 0);
    assert_int_equal(report.protected_bytes, 0); /* the host does not write there */
    for (uint32_t i = 0; i < 16; i++) {
        expect(others[i], i + 100, i % 3);
        loch_buffer_release(others[i]);
    }
    const loch_child_options options_child = {
        .size = sizeof options_child, .kind = LOCH_CHILD_RANGE, .limit_bytes = 800 * TEST_MIB, .stream = streams[2]};
    CHECK_OK(
        loch_pool_create_child(pool, "requests", &options_child, &child)); /* nearly all that is left, in one piece */
    loch_session *session;
    CHECK_OK(loch_session_begin(child, "request", &session));
    CHECK_OK(loch_session_enter(session));
    const loch_request request = {.size = sizeof request, .bytes = 30 * TEST_MIB, .stream = streams[2]};
    void *blocks[20];
    for (size_t i = 0; i < 20; i++) {
        CHECK_OK(loch_allocator_alloc(child, &request, &blocks[i]));
        const uint32_t seed = 7;
        CHECK_OK(loch_fill_on(blocks[i], request.bytes, &seed, sizeof seed, streams[2]));
    }
    CHECK_OK(loch_session_leave(session));
    size_t bytes;
    CHECK_OK(loch_session_end(session, streams[2], &bytes));
    assert_int_equal(bytes, 600 * TEST_MIB);
    for (uint32_t i = 0; i < 16; i++) {
        expect(frozen[i], i + 1, i % 3);
        loch_buffer_release(frozen[i]);
    }
    loch_allocator_release(child);
    expect_whole(pool);
    loch_allocator_release(pool);
}

int main(int argc, char **argv)
{
    if (argc > 1) device_name = argv[1];
    if (loch_device_open(device_name, &device) != LOCH_OK) return test_skip_gpu();
    for (size_t i = 0; i < 3; i++)
        if (loch_stream_create(device, NULL, &streams[i]) != LOCH_OK) return 1;
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(moves_come_in_the_order_of_streams),
        cmocka_unit_test(all_that_is_free_can_be_had_in_one_piece),
        cmocka_unit_test(weights_are_frozen_beside_a_child_and_a_session),
    };
    const int failed = cmocka_run_group_tests(tests, NULL, NULL);
    for (size_t i = 0; i < 3; i++)
        loch_stream_close(streams[i]);
    loch_device_release(device);
    return failed;
}

/* SPDX-License-Identifier: MIT */
/* Every kind of event is recorded once, with what belongs to it, and reads back. */
#include "recorder_fixture.h"
#include "user_allocators.h"

#define DEVICE "sim:256MiB,backed"

typedef struct ground {
    loch_device *device;
    loch_allocator *pool;
    loch_stream *stream;
} ground;

static ground open_ground(const char *device)
{
    ground g = {.device = sim_open(device)};
    CHECK_OK(loch_pool_create(g.device, "main", NULL, &g.pool));
    g.stream = sim_stream(g.device, LOCH_STREAM_INDEPENDENT);
    return g;
}

static void close_ground(const ground *g)
{
    loch_allocator_release(g->pool);
    loch_stream_close(g->stream);
    loch_device_release(g->device);
}

/* A block at an address is recorded like any other: the address is where the block is, not what the request said. So a
 * replay allocates it wherever its pool likes. */
static void a_block_at_an_address_is_recorded_as_a_plain_one(void **state)
{
    (void)state;
    static const size_t sizes[] = {100, 30000, TEST_MIB};
    ground g = open_ground(DEVICE);
    void *blocks[3], *again[3];
    recorder_begin("addresses");
    for (size_t i = 0; i < 3; i++) {
        CHECK_OK(loch_alloc(g.pool, sizes[i], &blocks[i]));
        CHECK_OK(loch_free(g.pool, blocks[i]));
        const loch_request request = {.size = sizeof request, .bytes = sizes[i], .address = blocks[i]};
        CHECK_OK(loch_allocator_alloc(g.pool, &request, &again[i]));
        CHECK_OK(loch_free(g.pool, again[i]));
    }
    loch_recording *r = recorder_finish();
    recorder_expect_whole(r);
    assert_int_equal(recorder_count(r, LOCH_RECORDED_ALLOC), 6);
    assert_int_equal(recorder_info(r).live_blocks, 0);
    for (size_t i = 0; i < 3; i++) {
        loch_recording_block first = *recorder_block(r, blocks[i], 0), second = *recorder_block(r, blocks[i], 1);
        assert_int_equal(first.bytes, sizes[i]);
        assert_int_equal(second.bytes, first.bytes);
        assert_int_equal(second.alignment, first.alignment);
        assert_int_equal(second.stream, first.stream);
        assert_int_equal(second.tag, first.tag);
    }
    loch_recording_destroy(r);
    close_ground(&g);
}

static void allocations_and_frees_have_sizes_tags_streams_and_alignments(void **state)
{
    (void)state;
    static const char *const devices[] = {DEVICE, "cpu"};
    for (size_t d = 0; d < 2; d++) {
        ground g = open_ground(devices[d]);
        loch_tag tag;
        CHECK_OK(loch_tag_create("weights", &tag));
        const loch_request requests[] = {
            {.size = sizeof *requests, .bytes = 100},
            {.size = sizeof *requests, .bytes = 5 * TEST_MIB + 1},
            {.size = sizeof *requests, .bytes = 300, .tag = tag},
            {.size = sizeof *requests, .bytes = 70000, .stream = g.stream},
            {.size = sizeof *requests, .bytes = 4096, .alignment = 4096},
            {.size = sizeof *requests, .bytes = 77, .flags = LOCH_ALLOC_ZEROED},
            {.size = sizeof *requests, .bytes = 9, .round_bytes = 64, .tag = tag, .stream = g.stream},
        };
        enum { COUNT = sizeof requests / sizeof *requests };
        void *blocks[COUNT];
        recorder_begin("kinds");
        for (size_t turn = 0; turn < 3; turn++) { /* the later turns come from the thread's cache */
            for (size_t i = 0; i < COUNT; i++)
                CHECK_OK(loch_allocator_alloc(g.pool, &requests[i], &blocks[i]));
            for (size_t i = 0; turn < 2 && i < COUNT; i++)
                CHECK_OK(loch_free(g.pool, blocks[i]));
        }
        loch_recording *r = recorder_finish();
        recorder_expect_whole(r);
        assert_int_equal(recorder_count(r, LOCH_RECORDED_ALLOC), 3 * COUNT);
        assert_int_equal(recorder_count(r, LOCH_RECORDED_FREE), 2 * COUNT);
        assert_int_equal(recorder_info(r).live_blocks, COUNT);
        const loch_recording_block *recorded = loch_recording_get_blocks(r);
        for (size_t i = 0; i < 3 * COUNT; i++) {
            const loch_request *request = &requests[i % COUNT];
            assert_int_equal(recorded[i].bytes, request->bytes);
            assert_string_equal(loch_recording_get_name(r, LOCH_RECORDING_TAG, recorded[i].tag),
                                request->tag ? "weights" : "");
            assert_int_equal(recorded[i].stream, request->stream ? 1 : 0);
            assert_int_equal(recorded[i].alignment, request->alignment ? 12 : 0);
            assert_false(recorded[i].is_present);
            assert_string_equal(loch_recording_get_name(r, LOCH_RECORDING_ALLOCATOR, recorded[i].allocator), "main");
            if (i >= 2 * COUNT) assert_int_equal(recorded[i].address, (uintptr_t)blocks[i % COUNT]);
        }
        assert_string_equal(loch_recording_get_name(r, LOCH_RECORDING_DEVICE, 0),
                            d ? "cpu" : loch_device_get_name(g.device));
        loch_recording_destroy(r);
        for (size_t i = 0; i < COUNT; i++)
            CHECK_OK(loch_free(g.pool, blocks[i]));
        close_ground(&g);
    }
}

static void live_blocks_are_present_from_the_start(void **state)
{
    (void)state;
    ground g = open_ground(DEVICE);
    loch_tag tag;
    CHECK_OK(loch_tag_create("old", &tag));
    const loch_request tagged = {.size = sizeof tagged, .bytes = 3 * TEST_MIB, .tag = tag, .stream = g.stream};
    void *small = pool_alloc(g.pool, 10), *large;
    CHECK_OK(loch_allocator_alloc(g.pool, &tagged, &large));
    recorder_begin("present");
    CHECK_OK(loch_free(g.pool, small));
    void *again = pool_alloc(g.pool, 12);
    assert_ptr_equal(again, small);
    loch_recording *r = recorder_finish();
    recorder_expect_whole(r);
    const loch_recording_block *first = recorder_block(r, small, 0), *second = recorder_block(r, small, 1);
    const loch_recording_block *third = recorder_block(r, large, 0);
    assert_true(first->is_present && third->is_present && !second->is_present);
    assert_int_equal(first->bytes, 10);
    assert_int_equal(second->bytes, 12);
    assert_int_equal(third->bytes, 3 * TEST_MIB);
    assert_int_equal(third->stream, 1);
    assert_string_equal(loch_recording_get_name(r, LOCH_RECORDING_TAG, third->tag), "old");
    assert_int_not_equal(first->free_event, LOCH_RECORDING_NONE);
    assert_int_equal(third->free_event, LOCH_RECORDING_NONE);
    loch_recording_destroy(r);
    CHECK_OK(loch_free(g.pool, again));
    CHECK_OK(loch_free(g.pool, large));
    close_ground(&g);
}

static void uses_and_frees_name_their_streams(void **state)
{
    (void)state;
    ground g = open_ground(DEVICE);
    recorder_begin("uses");
    void *block = pool_alloc(g.pool, 1000);
    CHECK_OK(loch_allocator_record_use(g.pool, block, g.stream));
    CHECK_OK(loch_allocator_free_on(g.pool, block, g.stream));
    loch_recording *r = recorder_finish();
    recorder_expect_whole(r);
    assert_int_equal(recorder_count(r, LOCH_RECORDED_USE), 1);
    assert_int_equal(recorder_event(r, LOCH_RECORDED_USE, 0)->stream, 1);
    assert_int_equal(recorder_event(r, LOCH_RECORDED_FREE, 0)->stream, 1);
    assert_int_equal(recorder_event(r, LOCH_RECORDED_ALLOC, 0)->stream, 0);
    loch_recording_destroy(r);
    close_ground(&g);
}

static void resizes_in_place_are_events(void **state)
{
    (void)state;
    static const char *const devices[] = {DEVICE, "cpu"};
    for (size_t d = 0; d < 2; d++) {
        ground g = open_ground(devices[d]);
        recorder_begin("resizes");
        void *small = pool_alloc(g.pool, 1000), *large = pool_alloc(g.pool, 4 * TEST_MIB), *grown, *same;
        CHECK_OK(loch_allocator_realloc(g.pool, small, 990, NULL, &same));
        assert_ptr_equal(same, small);
        CHECK_OK(loch_allocator_realloc(g.pool, large, 3 * TEST_MIB, NULL, &same));
        assert_ptr_equal(same, large);
        CHECK_OK(loch_pool_alloc_growable(g.pool, 64 * TEST_MIB, NULL, &grown));
        CHECK_OK(loch_pool_resize_growable(g.pool, grown, 10 * TEST_MIB));
        CHECK_OK(loch_allocator_realloc(g.pool, small, 5000, NULL, &same)); /* moves: an allocation and a free */
        CHECK_OK(loch_free(g.pool, same));
        CHECK_OK(loch_free(g.pool, large));
        CHECK_OK(loch_free(g.pool, grown));
        loch_recording *r = recorder_finish();
        recorder_expect_whole(r);
        static const size_t expected[] = {990, 3 * TEST_MIB, 10 * TEST_MIB};
        assert_int_equal(recorder_count(r, LOCH_RECORDED_RESIZE), 3);
        for (size_t i = 0; i < 3; i++)
            assert_int_equal(recorder_event(r, LOCH_RECORDED_RESIZE, i)->value, expected[i]);
        assert_int_equal(recorder_info(r).blocks, 4);
        assert_int_equal(recorder_info(r).live_blocks, 0);
        assert_int_equal(recorder_block(r, grown, 0)->max_bytes, 64 * TEST_MIB);
        assert_int_equal(recorder_block(r, large, 0)->max_bytes, 0);
        loch_recording_destroy(r);
        close_ground(&g);
    }
}

static void a_present_growable_block_has_its_reservation(void **state)
{
    (void)state;
    ground g = open_ground(DEVICE);
    void *near, *far, *plain = pool_alloc(g.pool, 1000);
    CHECK_OK(loch_pool_alloc_growable(g.pool, 4 * TEST_MIB, NULL, &near)); /* in the pool's range */
    CHECK_OK(loch_pool_alloc_growable(g.pool, 4096 * TEST_MIB, NULL, &far));
    recorder_begin("reservations");
    CHECK_OK(loch_pool_resize_growable(g.pool, far, 6 * TEST_MIB));
    loch_recording *r = recorder_finish();
    recorder_expect_whole(r);
    assert_int_equal(recorder_block(r, near, 0)->max_bytes, 4 * TEST_MIB);
    assert_int_equal(recorder_block(r, far, 0)->max_bytes, 4096 * TEST_MIB);
    assert_int_equal(recorder_block(r, plain, 0)->max_bytes, 0);
    loch_recording_destroy(r);
    void *const blocks[] = {near, far, plain};
    for (size_t i = 0; i < 3; i++)
        CHECK_OK(loch_free(g.pool, blocks[i]));
    close_ground(&g);
}

static void moves_are_events_and_the_block_is_freed_at_its_new_address(void **state)
{
    (void)state;
    const loch_pool_options options = {.size = sizeof options, .limit_bytes = 64 * TEST_MIB};
    loch_device *device = sim_open(DEVICE);
    loch_allocator *pool = pool_make(device, &options);
    loch_buffer *buffers[64];
    const loch_request request = {.size = sizeof request, .flags = LOCH_ALLOC_MOVABLE};
    recorder_begin("moves");
    for (size_t i = 0; i < 64; i++)
        CHECK_OK(loch_buffer_create(pool, TEST_MIB, &request, &buffers[i]));
    for (size_t i = 0; i < 64; i += 2)
        loch_buffer_release(buffers[i]);
    CHECK_OK(loch_pool_compact(pool, NULL, NULL));
    uint64_t moves = 0;
    for (size_t i = 1; i < 64; i += 2)
        moves += loch_buffer_get_generation(buffers[i]);
    assert_true(moves > 0);
    for (size_t i = 1; i < 64; i += 2)
        loch_buffer_release(buffers[i]);
    loch_recording *r = recorder_finish();
    recorder_expect_whole(r);
    assert_int_equal(recorder_count(r, LOCH_RECORDED_MOVE), moves);
    assert_int_equal(recorder_count(r, LOCH_RECORDED_FREE), 64);
    assert_int_equal(recorder_info(r).live_blocks, 0);
    loch_recording_destroy(r);
    pool_end(pool, device);
}

static void sleeping_and_waking_are_events(void **state)
{
    (void)state;
    ground g = open_ground(DEVICE);
    size_t released, restored;
    void *block = pool_alloc(g.pool, 8 * TEST_MIB);
    recorder_begin("sleep");
    CHECK_OK(loch_pool_sleep(g.pool, NULL, &released));
    CHECK_OK(loch_pool_wake(g.pool, &restored));
    loch_recording *r = recorder_finish();
    assert_int_equal(recorder_event(r, LOCH_RECORDED_SLEEP, 0)->value, released);
    assert_int_equal(recorder_event(r, LOCH_RECORDED_WAKE, 0)->value, restored);
    assert_true(released > 0);
    loch_recording_destroy(r);
    CHECK_OK(loch_free(g.pool, block));
    close_ground(&g);
    test_end_defaults();
}

static void a_failed_request_is_one_event(void **state)
{
    (void)state;
    ground g = open_ground(DEVICE);
    loch_allocator *wrapper, *outer;
    CHECK_OK(loch_tracking_create(g.pool, NULL, NULL, &wrapper));
    CHECK_OK(loch_limit_create(
        wrapper, NULL, &(loch_limit_options){.size = sizeof(loch_limit_options), .hard_bytes = TEST_GIB}, &outer));
    void *none;
    recorder_begin("failures");
    CHECK_FAILS(loch_alloc(g.pool, 700 * TEST_MIB, &none), DEVICE_MEMORY);
    CHECK_FAILS(loch_alloc(outer, 800 * TEST_MIB, &none), DEVICE_MEMORY);
    CHECK_FAILS(loch_alloc(outer, 2 * TEST_GIB, &none), LIMIT);
    loch_recording *r = recorder_finish();
    recorder_expect_whole(r);
    static const size_t expected[] = {700 * TEST_MIB, 800 * TEST_MIB, 2 * TEST_GIB};
    assert_int_equal(recorder_count(r, LOCH_RECORDED_FAIL), 3);
    for (size_t i = 0; i < 3; i++)
        assert_int_equal(recorder_event(r, LOCH_RECORDED_FAIL, i)->value, expected[i]);
    loch_recording_destroy(r);
    loch_allocator_release(outer);
    loch_allocator_release(wrapper);
    close_ground(&g);
}

static void a_free_that_fails_did_not_happen(void **state)
{
    (void)state;
    ground g = open_ground(DEVICE);
    recorder_begin("undone");
    void *block = pool_alloc(g.pool, 100), *large = pool_alloc(g.pool, TEST_MIB);
    CHECK_FAILS(loch_free(g.pool, (char *)large + 4096), INTERIOR);
    CHECK_FAILS(loch_allocator_free_sized(g.pool, large, 5), INVALID);
    CHECK_OK(loch_free(g.pool, block));
    CHECK_FAILS(loch_free(g.pool, block), DOUBLE_FREE);
    loch_recording *r = recorder_finish();
    const loch_recording_info info = recorder_info(r);
    assert_int_equal(info.live_blocks, 1);
    assert_int_equal(info.unknown, 0);
    assert_int_equal(recorder_count(r, LOCH_RECORDED_FREE), 1);
    assert_int_equal(recorder_block(r, large, 0)->free_event, LOCH_RECORDING_NONE);
    assert_int_not_equal(recorder_block(r, block, 0)->free_event, LOCH_RECORDING_NONE);
    loch_recording_destroy(r);
    CHECK_OK(loch_free(g.pool, large));
    close_ground(&g);
}

static void ranges_and_driver_calls_are_events(void **state)
{
    (void)state;
    ground g = open_ground(DEVICE);
    void *first = pool_alloc(g.pool, TEST_MIB); /* a range that is there before the start */
    recorder_begin("ranges");
    void *second = pool_alloc(g.pool, 32 * TEST_MIB);
    CHECK_OK(loch_free(g.pool, second));
    CHECK_OK(loch_allocator_trim(g.pool, 0, NULL));
    loch_recording *r = recorder_finish();
    const loch_recording_info info = recorder_info(r);
    recorder_expect_whole(r);
    assert_true(recorder_count(r, LOCH_RECORDED_TAKE) >= 2);
    assert_int_equal(recorder_event(r, LOCH_RECORDED_TAKE, 0)->value, 2 * TEST_MIB);
    assert_true(recorder_count(r, LOCH_RECORDED_GIVE) >= 1);
    assert_true(info.peak_reserved >= 34 * TEST_MIB);
    bool has_map = false;
    for (size_t i = 0; i < recorder_count(r, LOCH_RECORDED_CALL); i++) {
        const loch_recording_event *call = recorder_event(r, LOCH_RECORDED_CALL, i);
        has_map |= !strcmp(loch_recording_get_name(r, LOCH_RECORDING_CALL, call->subject), "map") && call->value > 0;
    }
    assert_true(has_map); /* with the modelled time */
    loch_recording_destroy(r);
    CHECK_OK(loch_free(g.pool, first));
    close_ground(&g);
}

static void blocks_of_wrappers_and_sessions_are_recorded_once(void **state)
{
    (void)state;
    ground g = open_ground("cpu");
    loch_allocator *tracking, *outer, *direct;
    loch_session *session;
    CHECK_OK(loch_tracking_create(g.pool, NULL, NULL, &tracking));
    CHECK_OK(loch_limit_create(
        tracking, NULL, &(loch_limit_options){.size = sizeof(loch_limit_options), .hard_bytes = TEST_GIB}, &outer));
    CHECK_OK(loch_direct_create(g.device, "direct", NULL, &direct));
    recorder_begin("wrapped");
    void *blocks[4];
    CHECK_OK(loch_alloc(outer, 100, &blocks[0]));
    CHECK_OK(loch_alloc(direct, 200, &blocks[1]));
    CHECK_OK(loch_session_begin(g.pool, "session", &session));
    CHECK_OK(loch_alloc(loch_session_get_allocator(session), 300, &blocks[2]));
    CHECK_OK(loch_session_enter(session));
    CHECK_OK(loch_alloc(g.pool, 400, &blocks[3]));
    CHECK_OK(loch_session_leave(session));
    CHECK_OK(loch_free(outer, blocks[0]));
    CHECK_OK(loch_address_free(blocks[1]));
    CHECK_OK(loch_session_end(session, NULL, NULL));
    loch_recording *r = recorder_finish();
    recorder_expect_whole(r);
    assert_int_equal(recorder_info(r).blocks, 4);
    assert_int_equal(recorder_info(r).live_blocks, 0);
    const loch_recording_block *recorded = loch_recording_get_blocks(r);
    for (size_t i = 0; i < 4; i++) {
        assert_int_equal(recorded[i].bytes, 100 * (i + 1));
        assert_string_equal(loch_recording_get_name(r, LOCH_RECORDING_ALLOCATOR, recorded[i].allocator),
                            i == 1 ? "direct" : "main");
    }
    loch_recording_destroy(r);
    loch_allocator_release(direct);
    loch_allocator_release(outer);
    loch_allocator_release(tracking);
    close_ground(&g);
}

static void child_pools_and_allocators_made_meanwhile_are_recorded(void **state)
{
    (void)state;
    ground g = open_ground(DEVICE);
    recorder_begin("later");
    loch_allocator *child, *later;
    const loch_child_options options = {.size = sizeof options, .kind = LOCH_CHILD_QUOTA, .limit_bytes = 32 * TEST_MIB};
    CHECK_OK(loch_pool_create_child(g.pool, "child", &options, &child));
    CHECK_OK(loch_pool_create(g.device, "later", NULL, &later));
    void *a = pool_alloc(child, 100), *b = pool_alloc(later, 100);
    CHECK_OK(loch_free(child, a));
    CHECK_OK(loch_free(later, b));
    loch_allocator_release(child);
    loch_allocator_release(later);
    loch_recording *r = recorder_finish();
    recorder_expect_whole(r);
    assert_int_equal(recorder_info(r).blocks, 2);
    const loch_recording_block *recorded = loch_recording_get_blocks(r);
    assert_string_equal(loch_recording_get_name(r, LOCH_RECORDING_ALLOCATOR, recorded[0].allocator), "child");
    assert_string_equal(loch_recording_get_name(r, LOCH_RECORDING_ALLOCATOR, recorded[1].allocator), "later");
    loch_recording_destroy(r);
    close_ground(&g);
}

static void one_allocator_alone_can_be_recorded(void **state)
{
    (void)state;
    ground g = open_ground("cpu");
    loch_allocator *other, *wrapper;
    CHECK_OK(loch_pool_create(g.device, "other", NULL, &other));
    CHECK_OK(loch_tracking_create(g.pool, NULL, NULL, &wrapper));
    const loch_recorder_options options = {.size = sizeof options, .path = recorder_name("one"), .allocator = wrapper};
    CHECK_OK(loch_recorder_start(&options));
    void *a = pool_alloc(g.pool, 100), *b = pool_alloc(other, 100);
    CHECK_OK(loch_free(g.pool, a));
    CHECK_OK(loch_free(other, b));
    loch_recording *r = recorder_finish();
    recorder_expect_whole(r);
    assert_int_equal(recorder_info(r).blocks, 1);
    assert_int_equal(recorder_info(r).allocators, 1);
    loch_recording_destroy(r);
    loch_allocator_release(wrapper);
    loch_allocator_release(other);
    close_ground(&g);
}

static void the_clock_of_a_simulated_device_gives_the_times(void **state)
{
    (void)state;
    ground g = open_ground(DEVICE ",clock=stepped");
    CHECK_OK(loch_sim_set_time(g.device, 5000000));
    const loch_recorder_options options = {.size = sizeof options, .path = recorder_name("clock"), .clock = g.device};
    CHECK_OK(loch_recorder_start(&options));
    void *blocks[10];
    for (size_t i = 0; i < 10; i++) {
        CHECK_OK(loch_sim_set_time(g.device, 5000000 + 1234000 * i));
        blocks[i] = pool_alloc(g.pool, 100 + i);
    }
    for (size_t i = 0; i < 10; i++) {
        CHECK_OK(loch_sim_set_time(g.device, 100000000 + 1000 * i));
        CHECK_OK(loch_free(g.pool, blocks[i]));
    }
    loch_recording *r = recorder_finish();
    recorder_expect_whole(r);
    for (size_t i = 0; i < 10; i++) {
        assert_int_equal(recorder_event(r, LOCH_RECORDED_ALLOC, i)->time_ns, 1234000 * i);
        assert_int_equal(recorder_event(r, LOCH_RECORDED_FREE, i)->time_ns, 95000000 + 1000 * i);
    }
    loch_recording_destroy(r);
    close_ground(&g);
}

/* The rate of the cycle counter is measured: a recording takes about as long as the host says. */
static void times_are_nanoseconds_of_the_host(void **state)
{
    (void)state;
    ground g = open_ground("cpu");
    const uint64_t before = loch_host_now_ns();
    recorder_begin("times");
    CHECK_OK(loch_free(g.pool, pool_alloc(g.pool, 100)));
    const uint64_t start = loch_host_now_ns();
    while (loch_host_now_ns() - start < 20000000)
        ;
    CHECK_OK(loch_free(g.pool, pool_alloc(g.pool, 100)));
    loch_recording *r = recorder_finish();
    const uint64_t after = loch_host_now_ns();
    const uint64_t gap =
        recorder_event(r, LOCH_RECORDED_ALLOC, 1)->time_ns - recorder_event(r, LOCH_RECORDED_ALLOC, 0)->time_ns;
    assert_true(gap > 19800000);
    assert_true(recorder_info(r).duration_ns <= (after - before) / 100 * 101);
    loch_recording_destroy(r);
    close_ground(&g);
}

/* Two places that allocate: functions of their own, because a reader may know the names of functions only. */
static __attribute__((noinline)) void *alloc_here(loch_allocator *pool)
{
    void *block = pool_alloc(pool, 100);
    __asm__ volatile("");
    return block;
}

static __attribute__((noinline)) void *alloc_there(loch_allocator *pool)
{
    void *block = pool_alloc(pool, 101);
    __asm__ volatile("");
    return block;
}

static void call_stacks_are_recorded_with_allocations(void **state)
{
    (void)state;
    ground g = open_ground("cpu");
    const loch_recorder_options options = {.size = sizeof options, .path = recorder_name("stacks"), .stack_depth = 16};
    CHECK_OK(loch_recorder_start(&options));
    void *blocks[4];
    for (size_t i = 0; i < 3; i++)
        blocks[i] = alloc_here(g.pool); /* the first is not from the thread's cache */
    blocks[3] = alloc_there(g.pool);
    for (size_t i = 0; i < 4; i++)
        CHECK_OK(loch_free(g.pool, blocks[i]));
    loch_recording *r = recorder_finish();
    recorder_expect_whole(r);
    size_t count = 0;
    const uint32_t first = recorder_event(r, LOCH_RECORDED_ALLOC, 1)->stack;
    assert_int_not_equal(first, LOCH_RECORDING_NONE);
    assert_int_equal(recorder_event(r, LOCH_RECORDED_ALLOC, 2)->stack, first);
    assert_int_not_equal(recorder_event(r, LOCH_RECORDED_ALLOC, 3)->stack, first);
    assert_int_equal(recorder_event(r, LOCH_RECORDED_FREE, 0)->stack, LOCH_RECORDING_NONE);
    const char *const *frames = loch_recording_get_stack(r, first, &count);
    assert_true(count > 2);
    assert_non_null(frames[0]);
    loch_recording_destroy(r);
    close_ground(&g);
}

/* Every allocator of a user is recorded, whatever slots it has. */
static void allocators_of_users_are_recorded(void **state)
{
    (void)state;
    loch_device *device = sim_open("cpu");
    loch_allocator *user;
    CHECK_OK(test_user_create(device, TEST_USER_PLAIN, &user));
    recorder_begin("user");
    void *block;
    CHECK_OK(loch_alloc(user, 123, &block));
    CHECK_OK(loch_free(user, block));
    loch_recording *r = recorder_finish();
    recorder_expect_whole(r);
    assert_int_equal(recorder_info(r).blocks, 1);
    assert_int_equal(recorder_block(r, block, 0)->bytes, 123);
    loch_recording_destroy(r);
    loch_allocator_release(user);
    loch_device_release(device);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        SIM_TEST(a_block_at_an_address_is_recorded_as_a_plain_one),
        SIM_TEST(allocations_and_frees_have_sizes_tags_streams_and_alignments),
        SIM_TEST(live_blocks_are_present_from_the_start),
        SIM_TEST(uses_and_frees_name_their_streams),
        SIM_TEST(resizes_in_place_are_events),
        SIM_TEST(a_present_growable_block_has_its_reservation),
        SIM_TEST(moves_are_events_and_the_block_is_freed_at_its_new_address),
        SIM_TEST(sleeping_and_waking_are_events),
        SIM_TEST(a_failed_request_is_one_event),
        SIM_TEST(a_free_that_fails_did_not_happen),
        SIM_TEST(ranges_and_driver_calls_are_events),
        SIM_TEST(blocks_of_wrappers_and_sessions_are_recorded_once),
        SIM_TEST(child_pools_and_allocators_made_meanwhile_are_recorded),
        SIM_TEST(one_allocator_alone_can_be_recorded),
        SIM_TEST(the_clock_of_a_simulated_device_gives_the_times),
        SIM_TEST(times_are_nanoseconds_of_the_host),
        SIM_TEST(call_stacks_are_recorded_with_allocations),
        SIM_TEST(allocators_of_users_are_recorded),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

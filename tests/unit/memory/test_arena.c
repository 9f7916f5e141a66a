/* SPDX-License-Identifier: MIT */
/* The arena wrapper: blocks beside each other, pieces, limits, resets in stream order, and what it does not know. */
#include "memory/allocator_state.h"
#include "wrap_fixture.h"
#include <loch/recorder.h>
#include <loch/session.h>

#define KIB TEST_KIB
#define MIB TEST_MIB

static loch_allocator *arena_on(loch_allocator *wrapped, loch_arena_options options)
{
    loch_allocator *arena;
    options.size = sizeof options;
    CHECK_OK(loch_arena_create(wrapped, "scratch", &options, &arena));
    loch_allocator_release(wrapped);
    return arena;
}

static loch_allocator *arena_of(const test_bed *bed, loch_arena_options options)
{
    loch_allocator *pool;
    CHECK_OK(loch_pool_create(bed->device, "under", NULL, &pool));
    return arena_on(pool, options);
}

static void arena_end(loch_allocator *arena)
{
    CHECK_OK(loch_arena_reset(arena, NULL));
    loch_allocator_release(arena);
}

static size_t arena_unit(const test_bed *bed)
{
    loch_device_properties properties = {.size = sizeof properties};
    CHECK_OK(loch_device_get_properties(bed->device, &properties));
    return loch_device_can(bed->device, LOCH_CAN_HOST_ACCESS) ? 16 : properties.alignment_bytes;
}

static void blocks_lie_one_behind_the_other(void **state)
{
    const test_bed *bed = wrap_bed(state);
    const size_t unit = arena_unit(bed);
    loch_allocator *arena = arena_of(bed, (loch_arena_options){.piece_bytes = 64 * KIB});
    assert_string_equal(arena->ops.kind, "arena");
    char *first = wrap_alloc(arena, 1), *second = wrap_alloc(arena, unit),
         *third = wrap_alloc_on(arena, unit + 1, NULL);
    assert_int_equal((uintptr_t)first % unit, 0);
    assert_ptr_equal(second, first + unit);
    assert_ptr_equal(third, first + 2 * unit);
    const loch_request aligned = {.size = sizeof aligned, .bytes = 100, .alignment = 4 * KIB};
    void *fourth;
    CHECK_OK(loch_allocator_alloc(arena, &aligned, &fourth));
    assert_int_equal((uintptr_t)fourth % (4 * KIB), 0);
    wrap_poke(NULL, third + unit, 7);
    const loch_stats stats = wrap_stats(arena);
    assert_int_equal(stats.blocks, 4);
    assert_int_equal(stats.allocs, 4);
    assert_int_equal(stats.requested_bytes, 2 * unit + 102);
    assert_int_equal(stats.largest_bytes, unit > 100 ? unit + 1 : 100);
    assert_int_equal(stats.reserved_bytes, 64 * KIB);
    assert_int_equal(stats.cached_bytes, 64 * KIB - stats.allocated_bytes);
    CHECK_OK(loch_arena_reset(arena, NULL));
    assert_int_equal(wrap_stats(arena).blocks, 0);
    assert_int_equal(wrap_stats(arena).requested_bytes, 0);
    assert_int_equal(wrap_stats(arena).frees, 4);
    assert_int_equal(wrap_stats(arena).peak_blocks, 4);
    assert_ptr_equal(wrap_alloc(arena, 1), first);
    CHECK_OK(loch_allocator_reset_stats(arena));
    assert_int_equal(wrap_stats(arena).peak_blocks, 1);
    arena_end(arena);
}

static void a_program_that_repeats_itself_keeps_one_piece(void **state)
{
    const test_bed *bed = wrap_bed(state);
    loch_allocator *arena = arena_of(bed, (loch_arena_options){.piece_bytes = 64 * KIB});
    size_t held = 0;
    for (unsigned round = 0; round < 5; round++) {
        for (unsigned i = 0; i < 40; i++)
            wrap_poke(NULL, (char *)wrap_alloc(arena, 20 * KIB) + 20 * KIB - 1, 1);
        const size_t now = wrap_stats(arena).reserved_bytes;
        assert_true(now >= 800 * KIB && now <= 2 * MIB);
        if (round > 1) assert_int_equal(now, held);
        held = now;
        CHECK_OK(loch_arena_reset(arena, NULL));
        if (round) assert_int_equal(wrap_stats(arena).reserved_bytes, held);
    }
    arena_end(arena);
}

static void a_large_block_leaves_the_present_piece(void **state)
{
    const test_bed *bed = wrap_bed(state);
    loch_allocator *arena = arena_of(bed, (loch_arena_options){.piece_bytes = 64 * KIB});
    char *before = wrap_alloc(arena, 512);
    wrap_poke(NULL, (char *)wrap_alloc(arena, 3 * MIB) + 3 * MIB - 1, 1);
    assert_ptr_equal(wrap_alloc(arena, 512), before + 512);
    arena_end(arena);
}

static void the_limit_is_that_of_all_pieces(void **state)
{
    const test_bed *bed = wrap_bed(state);
    loch_allocator *arena = arena_of(bed, (loch_arena_options){.piece_bytes = 64 * KIB, .limit_bytes = 100 * KIB});
    void *block;
    CHECK_FAILS(loch_alloc(arena, 101 * KIB, &block), LIMIT);
    assert_int_equal(wrap_stats(arena).reserved_bytes, 0);
    wrap_alloc(arena, 60 * KIB);
    wrap_alloc(arena, 30 * KIB);
    assert_true(wrap_stats(arena).reserved_bytes <= 100 * KIB);
    CHECK_FAILS(loch_alloc(arena, 20 * KIB, &block), LIMIT);
    assert_null(block);
    assert_int_equal(wrap_stats(arena).limit_bytes, 100 * KIB);
    CHECK_OK(loch_arena_reset(arena, NULL));
    wrap_alloc(arena, 90 * KIB);
    arena_end(arena);
}

static void a_piece_that_does_not_fit_is_as_long_as_its_block(void **state)
{
    const test_bed *bed = wrap_bed(state);
    loch_allocator *direct = wrap_direct_with(bed, (loch_direct_options){.limit_bytes = 40 * KIB});
    loch_allocator *arena = arena_on(direct, (loch_arena_options){.piece_bytes = 64 * KIB});
    CHECK_FAILS(loch_free(arena, &arena), FOREIGN);
    wrap_alloc(arena, 30 * KIB);
    assert_int_equal(loch_error_get()->status, LOCH_E_FOREIGN); /* the piece that was refused left no record */
    assert_int_equal(wrap_stats(arena).reserved_bytes, 30 * KIB);
    CHECK_FAILS(loch_alloc(arena, 30 * KIB, &(void *){NULL}), LIMIT);
    assert_int_equal(wrap_stats(arena).blocks, 1);
    arena_end(arena);
}

/* --- order --- */

static size_t count_violations(const test_bed *bed)
{
    loch_sim_stats stats = {.size = sizeof stats};
    CHECK_OK(loch_sim_get_stats(bed->device, &stats));
    return stats.violations;
}

static void a_reset_orders_the_next_blocks_after_all_uses(void **state)
{
    const test_bed *bed = wrap_bed(state);
    if (!bed->is_sim) skip();
    loch_stream *own = wrap_stream(bed), *other = wrap_stream(bed), *third = wrap_stream(bed);
    loch_allocator *arena = arena_of(bed, (loch_arena_options){.stream = own});
    for (unsigned round = 0; round < 3; round++) {
        char *block = wrap_alloc(arena, 4 * KIB);
        if (round) assert_true(wrap_stats(arena).reserved_bytes == MIB);
        wrap_kernel(bed, own, block, 4 * KIB);
        loch_event *event;
        CHECK_OK(loch_event_create(bed->device, LOCH_EVENT_PLAIN, &event));
        CHECK_OK(loch_event_record(event, own));
        CHECK_OK(loch_stream_wait(other, event));
        CHECK_OK(loch_stream_wait(third, event));
        loch_event_destroy(event);
        wrap_kernel(bed, other, block, 2 * KIB);
        wrap_kernel(bed, third, block + 2 * KIB, 2 * KIB);
        CHECK_OK(loch_allocator_record_use(arena, block, other));
        CHECK_OK(loch_allocator_record_use(arena, block + 1, other));
        CHECK_OK(loch_arena_reset(arena, third));
    }
    assert_int_equal(count_violations(bed), 0);
    char *block = wrap_alloc(arena, 4 * KIB); /* a use that was not recorded is found */
    wrap_kernel(bed, own, block, 4 * KIB);
    CHECK_OK(loch_stream_sync(own));
    wrap_kernel(bed, other, block, 4 * KIB);
    CHECK_OK(loch_arena_reset(arena, NULL));
    wrap_kernel(bed, own, wrap_alloc(arena, 4 * KIB), 4 * KIB);
    assert_int_equal(count_violations(bed), 1);
    CHECK_OK(loch_sim_clear_violations(bed->device));
    CHECK_OK(loch_allocator_record_use(arena, block, other));
    loch_stream_close(other); /* its work is waited for */
    CHECK_OK(loch_arena_reset(arena, NULL));
    CHECK_OK(loch_allocator_record_use(arena, wrap_alloc(arena, 1), third));
    loch_stream_close(own);
    CHECK_FAILS(loch_alloc(arena, 2 * MIB, &(void *){NULL}), INVALID);
    arena_end(arena); /* waits for the third stream */
    loch_stream_close(third);
}

static void a_block_for_another_stream_is_ordered(void **state)
{
    const test_bed *bed = wrap_bed(state);
    loch_stream *own = wrap_stream(bed), *other = wrap_stream(bed);
    loch_allocator *arena = arena_of(bed, (loch_arena_options){.stream = own});
    for (unsigned round = 0; round < 3; round++) {
        wrap_kernel(bed, own, wrap_alloc(arena, 4 * KIB), 4 * KIB);
        CHECK_OK(loch_arena_reset(arena, NULL));
        wrap_kernel(bed, other, wrap_alloc_on(arena, 4 * KIB, other), 4 * KIB);
        CHECK_OK(loch_arena_reset(arena, NULL));
    }
    loch_request request = {.size = sizeof request, .bytes = 4 * KIB, .stream = other, .flags = LOCH_ALLOC_ZEROED};
    void *block;
    CHECK_OK(loch_allocator_alloc(arena, &request, &block));
    CHECK_OK(loch_stream_sync(other));
    request.stream = NULL;
    CHECK_OK(loch_allocator_alloc(arena, &request, &block));
    CHECK_OK(loch_stream_sync(own));
    if (test_bed_can(bed, LOCH_CAN_HOST_ACCESS)) test_bed_expect_byte(bed, block, 4 * KIB, 0);
    request.max_bytes = 8 * KIB;
    CHECK_FAILS(loch_allocator_alloc(arena, &request, &block), UNSUPPORTED);
    assert_int_equal(wrap_stats(arena).blocks, 2);
    if (bed->is_sim) assert_int_equal(count_violations(bed), 0);
    arena_end(arena);
    loch_stream_close(own);
    loch_stream_close(other);
}

/* --- what is known of blocks --- */

static void frees_count_and_find_strangers(void **state)
{
    const test_bed *bed = wrap_bed(state);
    loch_allocator *arena = arena_of(bed, (loch_arena_options){.piece_bytes = 0});
    void *block = wrap_alloc(arena, 100), *more = wrap_alloc(arena, 100), *resized;
    loch_block found = {.size = sizeof found};
    CHECK_FAILS(loch_allocator_find(arena, block, &found), UNSUPPORTED);
    CHECK_FAILS(loch_allocator_find(arena, &found, &found), FOREIGN);
    CHECK_FAILS(loch_allocator_walk(arena, NULL, NULL), INVALID);
    CHECK_FAILS(loch_free(arena, &found), FOREIGN);
    CHECK_FAILS(loch_allocator_record_use(arena, &found, NULL), FOREIGN);
    CHECK_FAILS(loch_allocator_realloc(arena, block, 200, NULL, &resized), UNSUPPORTED);
    CHECK_OK(loch_free(arena, block));
    assert_int_equal(wrap_stats(arena).blocks, 1);
    CHECK_OK(loch_allocator_free_on(arena, more, NULL));
    assert_int_equal(wrap_stats(arena).blocks, 0);
    CHECK_FAILS(loch_free(arena, more), DOUBLE_FREE);
    assert_ptr_not_equal(wrap_alloc(arena, 100), block); /* a free gives nothing back */
    arena_end(arena);
}

static void an_arena_lives_until_its_last_block(void **state)
{
    const test_bed *bed = wrap_bed(state);
    loch_allocator *pool;
    CHECK_OK(loch_pool_create(bed->device, "under", NULL, &pool));
    loch_allocator_retain(pool);
    loch_allocator *arena = arena_on(pool, (loch_arena_options){.piece_bytes = 0});
    loch_buffer *buffer;
    CHECK_OK(loch_buffer_create(arena, 1000, NULL, &buffer));
    loch_allocator_release(arena);
    assert_true(wrap_stats(pool).requested_bytes >= MIB);
    loch_buffer_release(buffer);
    assert_int_equal(wrap_stats(pool).requested_bytes, 0);
    loch_allocator_release(pool);
}

static void a_session_frees_its_blocks(void **state)
{
    const test_bed *bed = wrap_bed(state);
    loch_allocator *arena = arena_of(bed, (loch_arena_options){.piece_bytes = 0});
    loch_session *session;
    CHECK_OK(loch_session_begin(arena, NULL, &session));
    wrap_alloc(arena, 10);
    CHECK_OK(loch_session_enter(session));
    wrap_alloc(arena, 20);
    CHECK_OK(loch_session_leave(session));
    wrap_alloc(loch_session_get_allocator(session), 30);
    size_t freed;
    CHECK_OK(loch_session_end(session, NULL, &freed));
    assert_int_equal(freed, 50);
    assert_int_equal(wrap_stats(arena).blocks, 1);
    arena_end(arena);
}

static void wrong_arguments_are_refused(void **state)
{
    const test_bed *bed = wrap_bed(state);
    loch_allocator *direct = wrap_direct(bed), *arena = TEST_UNTOUCHED;
    CHECK_FAILS(loch_arena_create(NULL, NULL, NULL, &arena), INVALID);
    assert_null(arena);
    CHECK_FAILS(loch_arena_create(direct, NULL, NULL, NULL), INVALID);
    CHECK_FAILS(loch_arena_create(direct, NULL, &(loch_arena_options){.size = 1}, &arena), INVALID);
    CHECK_FAILS(loch_arena_reset(direct, NULL), INVALID);
    CHECK_FAILS(loch_arena_reset(NULL, NULL), INVALID);
    arena = arena_on(direct, (loch_arena_options){.piece_bytes = 0});
    void *block;
    CHECK_FAILS(loch_alloc(arena, SIZE_MAX - 5, &block), OVERFLOW);
    CHECK_FAILS(loch_alloc(arena, (size_t)1 << 46, &block), DEVICE_MEMORY);
    CHECK_OK(loch_alloc(arena, 0, &block));
    assert_null(block);
    assert_int_equal(wrap_stats(arena).reserved_bytes, 0);
    arena_end(arena);
}

static loch_status make(loch_allocator *wrapped, loch_allocator **out)
{
    return loch_arena_create(wrapped, NULL,
                             &(loch_arena_options){.size = sizeof(loch_arena_options), .piece_bytes = 600}, out);
}

static loch_status use(loch_allocator *arena)
{
    void *block;
    const loch_request request = {
        .size = sizeof request, .bytes = 10 * KIB, .alignment = 4 * KIB, .flags = LOCH_ALLOC_ZEROED};
    loch_status status = loch_allocator_alloc(arena, &request, &block);
    if (status == LOCH_OK) status = loch_free(arena, block);
    return status;
}

static void host_memory_may_fail(void **state)
{
    wrap_sweep(state, (wrap_subject){.create = make, .use = use});
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(blocks_lie_one_behind_the_other),
        cmocka_unit_test(a_program_that_repeats_itself_keeps_one_piece),
        cmocka_unit_test(a_large_block_leaves_the_present_piece),
        cmocka_unit_test(the_limit_is_that_of_all_pieces),
        cmocka_unit_test(a_piece_that_does_not_fit_is_as_long_as_its_block),
        cmocka_unit_test(a_reset_orders_the_next_blocks_after_all_uses),
        cmocka_unit_test(a_block_for_another_stream_is_ordered),
        cmocka_unit_test(frees_count_and_find_strangers),
        cmocka_unit_test(an_arena_lives_until_its_last_block),
        cmocka_unit_test(a_session_frees_its_blocks),
        cmocka_unit_test(wrong_arguments_are_refused),
        cmocka_unit_test(host_memory_may_fail),
    };
    return WRAP_RUN(tests);
}

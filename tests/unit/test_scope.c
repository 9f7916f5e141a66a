/* SPDX-License-Identifier: MIT */
/* Objects that end with their block: on every way out of it, and not when they were moved out. */
#include "sim_fixture.h"

static loch_allocator *scope_allocator;
static loch_device *scope_device;

static int scope_setup(void **state)
{
    if (sim_setup(state)) return -1;
    CHECK_OK(loch_device_open("cpu", &scope_device));
    CHECK_OK(loch_direct_create(scope_device, "scope", NULL, &scope_allocator));
    return 0;
}

static int scope_teardown(void **state)
{
    loch_allocator_clear(&scope_allocator);
    loch_device_clear(&scope_device);
    return sim_teardown(state);
}

static size_t live(void)
{
    loch_stats stats = {.size = sizeof stats};
    CHECK_OK(loch_allocator_get_stats(scope_allocator, &stats));
    return (size_t)stats.blocks;
}

static loch_status make(loch_buffer **out)
{
    return loch_buffer_create(scope_allocator, 64, NULL, out);
}

typedef enum way { BY_END, BY_RETURN, BY_BREAK, BY_CONTINUE, BY_GOTO } way;

/* Leaves a block with an automatic buffer in one of the ways; returns how many were live inside. */
static size_t leave(way by)
{
    size_t inside = 0;
    for (int i = 0; i < 2; i++) {
        LOCH_AUTO(buffer) buffer = NULL;
        CHECK_OK(make(&buffer));
        inside = live();
        if (by == BY_RETURN) return inside;
        if (by == BY_BREAK) break;
        if (by == BY_CONTINUE) continue;
        if (by == BY_GOTO) goto out;
    }
out:
    return inside;
}

static void automatic_objects_end_on_every_way_out(void **state)
{
    (void)state;
    for (way by = BY_END; by <= BY_GOTO; by++) {
        assert_int_equal(leave(by), 1); /* in the second turn too: the first one's has gone */
        assert_int_equal(live(), 0);
    }
    LOCH_AUTO(buffer) never_made = NULL;
    (void)never_made;
}

static void automatic_objects_end_with_their_own_block(void **state)
{
    (void)state;
    {
        LOCH_AUTO(buffer) outer = NULL;
        CHECK_OK(make(&outer));
        {
            LOCH_AUTO(buffer) inner = NULL;
            CHECK_OK(make(&inner));
            assert_int_equal(live(), 2);
        }
        assert_int_equal(live(), 1);
    }
    assert_int_equal(live(), 0);
}

/* The reference passes to the caller. */
static loch_buffer *make_and_move(void)
{
    LOCH_AUTO(buffer) buffer = NULL;
    CHECK_OK(make(&buffer));
    return loch_buffer_take(&buffer);
}

static void an_object_that_was_moved_out_stays(void **state)
{
    (void)state;
    loch_buffer *moved = make_and_move();
    assert_int_equal(live(), 1);
    assert_int_equal(loch_buffer_get_references(moved), 1);
    loch_buffer_clear(&moved);
    assert_null(moved);
    assert_int_equal(live(), 0);

    LOCH_WITH (buffer, buffer, make(&buffer))
        moved = loch_buffer_take(&buffer);
    assert_int_equal(live(), 1);
    loch_buffer_release(moved);
}

static void every_kind_of_object_ends_with_its_block(void **state)
{
    (void)state;
    LOCH_AUTO(device) device = NULL;
    CHECK_OK(loch_device_open("sim:64MiB", &device));
    LOCH_AUTO(stream) stream = NULL;
    CHECK_OK(loch_stream_create(device, NULL, &stream));
    LOCH_AUTO(event) event = NULL;
    CHECK_OK(loch_event_create(device, LOCH_EVENT_PLAIN, &event));
    LOCH_AUTO(buffer_pool) pool = NULL;
    CHECK_OK(loch_buffer_pool_create(scope_allocator, NULL, &pool));
    LOCH_AUTO(workspace) workspace = NULL;
    CHECK_OK(loch_workspace_create(scope_allocator, NULL, NULL, &workspace));
    LOCH_AUTO(allocator) allocator = NULL;
    CHECK_OK(loch_pool_create(device, NULL, NULL, &allocator));
    LOCH_AUTO(buffer) buffer = NULL;
    CHECK_OK(loch_buffer_create(allocator, 100, NULL, &buffer));
    LOCH_AUTO(tensor) tensor = NULL;
    CHECK_OK(loch_tensor_create_in(buffer, 0, LOCH_F32, LOCH_SHAPE(5, 5), NULL, &tensor));
    assert_int_equal(loch_tensor_get_elements(tensor), 25);
    LOCH_AUTO(stream_pool) streams = NULL;
    CHECK_OK(loch_stream_pool_create(device, NULL, &streams));
    LOCH_AUTO(timeline) timeline = NULL;
    CHECK_OK(loch_timeline_create(LOCH_OPTIONS(timeline, .level = 1), &timeline));
    LOCH_AUTO(workers) workers = NULL;
    CHECK_OK(loch_workers_open(NULL, &workers));
    LOCH_AUTO(engine) engine = NULL;
    const loch_engine_device seats[] = {LOCH_SIZED(loch_engine_device, .name = "sim:64MiB")};
    CHECK_OK(loch_engine_open(LOCH_OPTIONS(engine, .devices = seats, .devices_count = 1), &engine));
    LOCH_AUTO(context) context = NULL;
    CHECK_OK(loch_context_open(engine, NULL, &context));
    LOCH_AUTO(parameter) parameter = NULL;
    CHECK_OK(loch_context_declare(context, "w", LOCH_F32, LOCH_SHAPE(5, 5), LOCH_SPREAD_ONE, 0, 0, &parameter));
    LOCH_AUTO(profile) profile = NULL;
    CHECK_OK(loch_profile_begin(allocator, "p", &profile));
    LOCH_AUTO(census) census = NULL;
    CHECK_OK(loch_census_create(allocator, &census));
    LOCH_AUTO(session) session = NULL;
    CHECK_OK(loch_session_begin(allocator, "s", &session));
    void *left;
    CHECK_OK(loch_alloc(loch_session_get_allocator(session), 100, &left)); /* goes with its session */
    loch_session_clear(NULL);
    loch_device_clear(NULL);
    loch_allocator_clear(NULL);
    loch_stream_clear(NULL);
    loch_event_clear(NULL);
    loch_buffer_pool_clear(NULL);
    loch_workspace_clear(NULL);
} /* the teardown finds the bookkeeping as it was */

static void with_runs_once_and_releases(void **state)
{
    (void)state;
    loch_status status = LOCH_E_CANCELLED;
    int runs = 0;
    LOCH_WITH (buffer, outer, status = make(&outer)) {
        LOCH_WITH (buffer, inner, make(&inner)) {
            assert_ptr_not_equal(outer, inner);
            assert_int_equal(live(), 2);
            runs++;
        }
        assert_int_equal(live(), 1);
    }
    CHECK_OK(status);
    assert_int_equal(runs, 1);
    assert_int_equal(live(), 0);
}

static void with_ends_at_break_and_continue(void **state)
{
    (void)state;
    int turns = 0, reached = 0;
    for (int i = 0; i < 3; i++) {
        LOCH_WITH (buffer, buffer, make(&buffer)) {
            if (i == 0) break;
            if (i == 1) continue;
            reached++;
        }
        assert_int_equal(live(), 0);
        turns++;
    }
    assert_int_equal(turns, 3); /* neither left the loop around */
    assert_int_equal(reached, 1);
}

static void with_skips_the_block_when_making_fails(void **state)
{
    (void)state;
    loch_status status = LOCH_OK;
    int runs = 0;
    LOCH_WITH (buffer, buffer, status = loch_buffer_create(scope_allocator, SIZE_MAX, NULL, &buffer))
        runs++;
    assert_int_equal(runs, 0);
    CHECK_STATUS(status, LOCH_E_OVERFLOW);
    if (runs)
        fail();
    else /* the macro is one statement: this else belongs to the if above */
        LOCH_WITH (buffer, buffer, make(&buffer))
            runs++;
    assert_int_equal(runs, 1);
    assert_int_equal(live(), 0);
}

/* --- calls in one line --- */

static void a_request_has_its_size_and_the_named_members(void **state)
{
    (void)state;
    void *block;
    CHECK_OK(loch_allocator_alloc(scope_allocator, LOCH_REQUEST(.bytes = 1000, .alignment = 4096), &block));
    assert_int_equal((uintptr_t)block % 4096, 0);
    assert_int_equal(loch_stats_of(scope_allocator).requested_bytes, 1000);
    CHECK_OK(loch_free(scope_allocator, block));
    CHECK_OK(loch_allocator_alloc(scope_allocator, LOCH_REQUEST(.bytes = 5000, .round_bytes = 1024), &block));
    loch_block found = LOCH_SIZED(loch_block);
    CHECK_OK(loch_allocator_find(scope_allocator, block, &found));
    assert_int_equal(found.requested_bytes, 5000);
    assert_int_equal(found.allocated_bytes, 5120);
    CHECK_OK(loch_allocator_free_sized(scope_allocator, block, 5000));
    const loch_request *empty = LOCH_REQUEST();
    assert_int_equal(empty->size, sizeof *empty);
    assert_int_equal(empty->bytes + empty->alignment + empty->flags + (empty->stream != NULL), 0);
    assert_int_equal(loch_stats_of(NULL).blocks, 0);
    CHECK_STATUS(loch_error_get()->status, LOCH_E_INVALID);
}

static void a_pool_with_a_limit_and_a_child_are_a_line_each(void **state)
{
    (void)state;
    LOCH_AUTO(allocator) pool = NULL, *child = NULL;
    CHECK_OK(loch_pool_create(scope_device, "model", LOCH_OPTIONS(pool, .limit_bytes = 8 * TEST_MIB), &pool));
    CHECK_OK(loch_pool_create_child(pool, "part", LOCH_OPTIONS(child, .limit_bytes = TEST_MIB), &child));
    assert_int_equal(loch_stats_of(pool).limit_bytes, 8 * TEST_MIB);
    assert_int_equal(loch_stats_of(child).limit_bytes, TEST_MIB);
}

static void a_buffer_of_elements_checks_the_product(void **state)
{
    (void)state;
    LOCH_AUTO(buffer) buffer = NULL;
    CHECK_OK(loch_buffer_create_array(scope_allocator, 100, sizeof(double), NULL, &buffer));
    assert_int_equal(loch_buffer_get_bytes(buffer), 800);
    loch_buffer *none = TEST_UNTOUCHED;
    CHECK_FAILS(loch_buffer_create_array(scope_allocator, SIZE_MAX / 8 + 1, 8, NULL, &none), OVERFLOW);
    assert_null(none);
    CHECK_FAILS(loch_buffer_create_array(scope_allocator, SIZE_MAX / 8, 8, NULL, &none), OVERFLOW);
    CHECK_OK(loch_buffer_create_array(scope_allocator, SIZE_MAX, 0, NULL, &none));
    assert_int_equal(loch_buffer_get_bytes(none), 0);
    loch_buffer_release(none);
}

#define SCOPE_TEST(function) cmocka_unit_test_setup_teardown(function, scope_setup, scope_teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        SCOPE_TEST(automatic_objects_end_on_every_way_out),
        SCOPE_TEST(automatic_objects_end_with_their_own_block),
        SCOPE_TEST(an_object_that_was_moved_out_stays),
        SCOPE_TEST(every_kind_of_object_ends_with_its_block),
        SCOPE_TEST(with_runs_once_and_releases),
        SCOPE_TEST(with_ends_at_break_and_continue),
        SCOPE_TEST(with_skips_the_block_when_making_fails),
        SCOPE_TEST(a_request_has_its_size_and_the_named_members),
        SCOPE_TEST(a_pool_with_a_limit_and_a_child_are_a_line_each),
        SCOPE_TEST(a_buffer_of_elements_checks_the_product),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

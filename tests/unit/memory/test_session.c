/* SPDX-License-Identifier: MIT */
/* Sessions, by handle and by thread: what belongs to them over every kind of allocator, what does not, and what becomes
 * of blocks that are freed, moved, promoted or resized; figures, and order on streams. */
#include "memory/allocator_state.h"
#include "session_fixture.h"

#define BLOCKS 40

static const char *const stacks[] = {"pool",          "pool-whole",
                                     "direct",        "direct-deferred",
                                     "user",          "user-full",
                                     "limit/pool",    "limit/direct",
                                     "tracking/pool", "redzone/pool",
                                     "wrapper/user",  "wrapper/pool",
                                     "logging/pool",  "tracking/limit/redzone/direct"};

/* --- short calls --- */

/* Sizes from slabs, from nests and beyond. */
static size_t size_of(size_t i)
{
    static const size_t sizes[] = {1, 100, 4096, 8192, 8193, 40000, 300000, 700000};
    return sizes[i % COUNT(sizes)];
}

static void over_all(on_subject *run)
{
    for (size_t d = 0; d < COUNT(devices); d++)
        for (size_t s = 0; s < COUNT(stacks); s++) {
            subject it = open_subject(devices[d], stacks[s]);
            run(&it);
            close_subject(&it);
        }
}

/* --- what belongs to a session --- */

static void run_by_handle(subject *it)
{
    void *outside = get(it->allocator, 5000);
    loch_session *session = begin(it->allocator);
    loch_allocator *own = loch_session_get_allocator(session);
    assert_string_equal(own->ops.kind, "session");
    assert_string_equal(loch_allocator_get_name(own), "request");
    assert_ptr_equal(loch_allocator_get_wrapped(own), it->allocator);
    assert_int_equal(loch_allocator_get_traits(own), loch_allocator_get_traits(it->allocator));
    size_t bytes = 0;
    void *blocks[BLOCKS];
    for (size_t i = 0; i < BLOCKS; i++) {
        blocks[i] = get(own, size_of(i));
        bytes += size_of(i);
    }
    expect(session, BLOCKS, bytes);
    void *later = get(it->allocator, 5000);
    expect(session, BLOCKS, bytes);
    assert_int_equal(live(own), BLOCKS + 2);
    for (size_t i = 0; i < BLOCKS; i += 2) { /* through either allocator */
        CHECK_OK(loch_free(i % 4 ? own : it->allocator, blocks[i]));
        CHECK_FAILS_SET(loch_free(i % 4 ? own : it->allocator, blocks[i]), TEST_SET(DOUBLE_FREE) | TEST_SET(FOREIGN));
        bytes -= size_of(i);
    }
    expect(session, BLOCKS / 2, bytes);
    assert_int_equal(end(session), bytes);
    assert_int_equal(live(it->allocator), 2);
    CHECK_OK(loch_free(it->allocator, outside));
    CHECK_OK(loch_free(it->allocator, later));
}

static void blocks_of_a_handles_allocator_belong_to_the_session(void **state)
{
    (void)state;
    over_all(run_by_handle);
}

static void run_by_thread(subject *it)
{
    void *outside = get(it->allocator, 100), *blocks[BLOCKS];
    loch_session *session = begin(it->allocator);
    loch_allocator *around;
    CHECK_OK(loch_tracking_create(it->allocator, NULL, NULL, &around));
    size_t bytes = 0;
    for (int round = 0; round < 2; round++) {
        CHECK_OK(loch_session_enter(session));
        for (size_t i = 0; i < BLOCKS; i++) {
            blocks[i] = get(i % 5 ? it->allocator : around, size_of(i));
            bytes += size_of(i);
        }
        CHECK_OK(loch_session_leave(session));
        void *between = get(it->allocator, 100);
        for (size_t i = 0; i < BLOCKS; i += 3) {
            CHECK_OK(loch_free(i % 5 ? it->allocator : around, blocks[i]));
            bytes -= size_of(i);
        }
        CHECK_OK(loch_free(it->allocator, between));
    }
    expect(session, 2 * (BLOCKS - (BLOCKS + 2) / 3), bytes);
    assert_int_equal(live(around), 2 * (BLOCKS / 5 - (BLOCKS + 14) / 15));
    assert_int_equal(end(session), bytes);
    assert_int_equal(live(around), 0); /* it has heard of the end */
    loch_allocator_release(around);
    assert_int_equal(live(it->allocator), 1);
    CHECK_OK(loch_free(it->allocator, outside));
}

static void blocks_of_a_thread_inside_belong_to_the_session(void **state)
{
    (void)state;
    over_all(run_by_thread);
}

static void blocks_of_wrappers_around_it_belong_to_the_session(void **state)
{
    (void)state;
    static const char *const around[] = {"limit", "redzone", "tracking", "wrapper", "locked"};
    for (size_t i = 0; i < COUNT(around); i++) {
        subject it = open_subject("cpu", "pool");
        loch_session *session = begin(it.allocator);
        loch_allocator *outer;
        CHECK_OK(test_stack_wrap(around[i], loch_session_get_allocator(session), &outer));
        void *kept = get(outer, 1000), *freed = get(outer, 2000), *ended = get(outer, 3000);
        expect(session, 3, 6000);
        CHECK_OK(loch_free(outer, freed));
        CHECK_OK(loch_session_promote(session, kept));
        CHECK_FAILS(loch_session_promote(session, freed), FOREIGN);
        (void)ended;
        assert_int_equal(end(session), 3000);
        assert_int_equal(live(outer), 1);
        CHECK_FAILS(loch_alloc(outer, 10, &(void *){NULL}), INVALID);
        CHECK_OK(loch_free(outer, kept));
        loch_allocator_release(outer);
        close_subject(&it);
    }
}

static void nested_sessions_have_blocks_of_their_own(void **state)
{
    (void)state;
    subject it = open_subject("cpu", "pool");
    loch_session *a = begin(it.allocator), *b = begin(it.allocator);
    CHECK_OK(loch_session_enter(a));
    (void)get(it.allocator, 1);
    CHECK_OK(loch_session_enter(b));
    (void)get(it.allocator, 10);
    (void)get(loch_session_get_allocator(a), 100); /* the handle comes before the thread */
    CHECK_OK(loch_session_enter(a));
    (void)get(it.allocator, 1000);
    expect(a, 3, 1101);
    expect(b, 1, 10);
    CHECK_FAILS(loch_session_leave(b), INVALID);
    CHECK_OK(loch_session_leave(a));
    CHECK_FAILS(loch_session_leave(a), INVALID);
    CHECK_OK(loch_session_leave(b));
    assert_int_equal(end(b), 10);
    CHECK_FAILS(loch_session_end(a, NULL, NULL), BUSY);
    (void)get(it.allocator, 5);
    CHECK_OK(loch_session_leave(a));
    CHECK_FAILS(loch_session_leave(a), INVALID);
    assert_int_equal(end(a), 1106);
    close_subject(&it);
}

/* A session on another session's allocator is its sibling; those on other allocators do not touch each other. */
static void sessions_side_by_side_do_not_touch_each_other(void **state)
{
    (void)state;
    subject it = open_subject("cpu", "pool");
    loch_allocator *limit, *other;
    CHECK_OK(test_stack_wrap("limit", it.allocator, &limit));
    CHECK_OK(loch_pool_create(it.device, "other", NULL, &other));
    loch_session *a = begin(it.allocator), *b = begin(loch_session_get_allocator(a)), *c = begin(limit),
                 *d = begin(other);
    assert_ptr_equal(loch_allocator_get_wrapped(loch_session_get_allocator(b)), it.allocator);
    CHECK_OK(loch_session_enter(a));
    CHECK_OK(loch_session_enter(c));
    CHECK_OK(loch_session_enter(d));
    (void)get(it.allocator, 1);
    (void)get(limit, 10); /* the outermost counts */
    (void)get(other, 100);
    void *by_b = get(loch_session_get_allocator(b), 1000);
    CHECK_OK(loch_session_leave(d));
    CHECK_OK(loch_session_leave(c));
    (void)get(limit, 10000);
    CHECK_OK(loch_session_leave(a));
    expect(a, 2, 10001);
    expect(b, 1, 1000);
    expect(c, 1, 10);
    expect(d, 1, 100);
    CHECK_OK(loch_free(loch_session_get_allocator(a), by_b)); /* one of another session */
    expect(b, 0, 0);
    assert_int_equal(end(a), 10001);
    assert_int_equal(end(c), 10);
    assert_int_equal(end(b), 0);
    assert_int_equal(end(d), 100);
    assert_int_equal(live(limit) + live(other), 0);
    loch_allocator_release(limit);
    loch_allocator_release(other);
    close_subject(&it);
}

/* --- promoting, and lives --- */

static void run_promote(subject *it)
{
    loch_session *session = begin(it->allocator);
    loch_allocator *own = loch_session_get_allocator(session);
    void *handled = get(own, 300), *again = get(own, 400), *third = get(own, 500);
    CHECK_OK(loch_session_enter(session));
    void *threaded = get(it->allocator, 600), *last = get(it->allocator, 700);
    CHECK_OK(loch_session_leave(session));
    (void)last;
    CHECK_OK(loch_session_promote(session, handled));
    CHECK_OK(loch_session_promote(session, again));
    CHECK_OK(loch_session_promote(session, third));
    CHECK_OK(loch_session_promote(session, threaded));
    CHECK_FAILS(loch_session_promote(session, handled), FOREIGN);
    CHECK_FAILS(loch_session_promote(session, threaded), FOREIGN);
    expect(session, 1, 700);
    CHECK_OK(loch_free(own, third));
    assert_int_equal(end(session), 700);
    assert_int_equal(live(it->allocator), 3);
    CHECK_OK(loch_free(own, handled)); /* which its promoted blocks keep alive */
    CHECK_OK(loch_free(it->allocator, again));
    CHECK_OK(loch_free(it->allocator, threaded));
}

static void promoted_blocks_live_on(void **state)
{
    (void)state;
    over_all(run_promote);
}

static void a_retained_allocator_hands_out_nothing_after_the_end(void **state)
{
    (void)state;
    subject it = open_subject("cpu", "pool");
    loch_session *session = begin(it.allocator);
    loch_allocator *own = loch_allocator_retain(loch_session_get_allocator(session));
    void *kept = get(own, 300), *none = TEST_UNTOUCHED;
    CHECK_OK(loch_session_promote(session, kept));
    assert_int_equal(end(session), 0);
    CHECK_FAILS(loch_alloc(own, 10, &none), INVALID);
    assert_null(none);
    CHECK_OK(loch_allocator_realloc(own, kept, 100000, NULL, &kept));
    CHECK_OK(loch_free(own, kept));
    loch_allocator_release(own);
    close_subject(&it);
}

static void a_session_keeps_its_allocator(void **state)
{
    (void)state;
    loch_device *device = sim_open("cpu");
    for (int promotes = 0; promotes < 2; promotes++) {
        loch_allocator *pool = pool_make(device, NULL);
        loch_session *session = begin(pool);
        loch_allocator_release(pool);
        CHECK_OK(loch_session_enter(session));
        void *block = get(pool, 1000);
        (void)get(loch_session_get_allocator(session), 100);
        CHECK_OK(loch_session_leave(session));
        if (promotes) CHECK_OK(loch_session_promote(session, block));
        void *handled = get(loch_session_get_allocator(session), 10);
        if (promotes) CHECK_OK(loch_session_promote(session, handled));
        assert_int_equal(end(session), promotes ? 100 : 1110);
        if (promotes) CHECK_OK(loch_free(pool, block));
        if (promotes) CHECK_OK(loch_free(pool, handled)); /* the last of all ends both */
    }
    loch_device_release(device);
}

/* --- blocks that change --- */

static void run_realloc(subject *it)
{
    loch_session *session = begin(it->allocator);
    loch_allocator *own = loch_session_get_allocator(session);
    void *a = get(own, 1000), *outside = get(it->allocator, 1000), *b;
    CHECK_OK(loch_session_enter(session));
    b = get(it->allocator, 20000);
    CHECK_OK(loch_allocator_realloc(it->allocator, outside, 30000, NULL, &outside)); /* stays outside */
    CHECK_OK(loch_session_leave(session));
    CHECK_OK(loch_allocator_realloc(own, a, 300000, NULL, &a));
    expect(session, 2, 320000);
    CHECK_OK(loch_allocator_realloc(it->allocator, b, 10000, NULL, &b));
    expect(session, 2, 310000);
    CHECK_OK(loch_allocator_realloc(own, b, 10, NULL, &b));
    CHECK_OK(loch_allocator_realloc(it->allocator, a, 400000, NULL, &a));
    expect(session, 2, 400010);
    CHECK_OK(loch_allocator_realloc(own, a, 0, NULL, &a));
    expect(session, 1, 10);
    CHECK_OK(loch_allocator_realloc(own, NULL, 50, NULL, &a));
    assert_int_equal(end(session), 60);
    assert_int_equal(live(it->allocator), 1);
    CHECK_OK(loch_free(it->allocator, outside));
}

static void realloc_leaves_blocks_where_they_are(void **state)
{
    (void)state;
    over_all(run_realloc);
}

static void growable_blocks_belong_to_the_session(void **state)
{
    (void)state;
    subject it = open_subject(devices[1], "pool");
    loch_session *session = begin(it.allocator);
    const loch_request request = {.size = sizeof request, .bytes = 100000};
    void *inside, *outside;
    CHECK_OK(loch_session_enter(session));
    CHECK_OK(loch_pool_alloc_growable(it.allocator, TEST_MIB, &request, &inside));
    CHECK_OK(loch_session_leave(session));
    CHECK_OK(loch_pool_alloc_growable(it.allocator, TEST_MIB, &request, &outside));
    expect(session, 1, 100000);
    CHECK_OK(loch_pool_resize_growable(it.allocator, inside, 500000));
    expect(session, 1, 500000);
    CHECK_OK(loch_allocator_realloc(it.allocator, inside, 400000, NULL, &inside));
    assert_int_equal(end(session), 400000);
    assert_int_equal(live(it.allocator), 1);
    CHECK_OK(loch_free(it.allocator, outside));
    close_subject(&it);
}

static void empty_blocks_and_failures_are_not_counted(void **state)
{
    (void)state;
    subject it = open_subject("cpu", "pool");
    loch_session *session = begin(it.allocator);
    void *block = TEST_UNTOUCHED;
    CHECK_OK(loch_session_enter(session));
    CHECK_OK(loch_alloc(it.allocator, 0, &block));
    assert_null(block);
    CHECK_FAILS_SET(loch_alloc(it.allocator, 10 * TEST_USER_CAPACITY, &block), POOL_SHORT);
    assert_null(block);
    CHECK_FAILS(
        loch_allocator_alloc(it.allocator, &(loch_request){.size = sizeof(loch_request), .alignment = 3}, &block),
        INVALID);
    CHECK_FAILS(loch_allocator_alloc(it.allocator, NULL, &block), INVALID);
    CHECK_FAILS(loch_alloc(it.allocator, 10, NULL), INVALID);
    expect(session, 0, 0);
    const loch_request zeroed = {.size = sizeof zeroed, .bytes = 70000, .flags = LOCH_ALLOC_ZEROED, .tag = 0};
    CHECK_OK(loch_allocator_alloc(it.allocator, &zeroed, &block));
    expect(session, 1, 70000);
    CHECK_OK(loch_session_leave(session));
    assert_int_equal(end(session), 70000);
    close_subject(&it);
}

static void a_session_has_a_peak_of_its_own(void **state)
{
    (void)state;
    subject it = open_subject("cpu", "direct");
    loch_session *session = begin(it.allocator);
    loch_allocator *own = loch_session_get_allocator(session);
    void *a = get(own, 1000), *b = get(own, 500);
    CHECK_OK(loch_free(own, a));
    (void)get(own, 200);
    CHECK_OK(loch_session_promote(session, b));
    loch_session_stats stats = {.size = sizeof stats};
    CHECK_OK(loch_session_get_stats(session, &stats));
    assert_int_equal(stats.blocks, 1);
    assert_int_equal(stats.bytes, 200);
    assert_int_equal(stats.peak_bytes, 1500);
    stats = (loch_session_stats){.size = offsetof(loch_session_stats, bytes), .bytes = 77};
    CHECK_OK(loch_session_get_stats(session, &stats)); /* an older, shorter one */
    assert_int_equal(stats.blocks, 1);
    assert_int_equal(stats.bytes, 77);
    assert_int_equal(end(session), 200);
    CHECK_OK(loch_free(it.allocator, b));
    close_subject(&it);
}

/* --- streams --- */

/* Kernels use every block up to the end; what comes at the addresses later is used by others. */
static void the_end_comes_in_the_order_of_streams(void **state)
{
    (void)state;
    for (int on_one = 0; on_one < 2; on_one++)
        for (int handle = 0; handle < 2; handle++) {
            loch_device *device = sim_open("sim:64MiB,granule=64KiB,clock=stepped,lag=1000");
            loch_allocator *pool =
                pool_make(device, &(loch_pool_options){.size = sizeof(loch_pool_options), .limit_bytes = 4 * TEST_MIB});
            loch_stream *streams[3], *last = sim_stream(device, LOCH_STREAM_INDEPENDENT);
            for (size_t i = 0; i < COUNT(streams); i++)
                streams[i] = sim_stream(device, LOCH_STREAM_INDEPENDENT);
            for (int round = 0; round < 4; round++) {
                loch_session *session = begin(pool);
                loch_allocator *from = handle ? loch_session_get_allocator(session) : pool;
                CHECK_OK(loch_session_enter(session));
                for (size_t i = 0; i < 12; i++) {
                    const size_t bytes = 1000 + i * 20000;
                    loch_stream *own = streams[i % 3], *further = streams[(i + 1) % 3];
                    void *block = pool_alloc_on(from, bytes, own);
                    CHECK_OK(sim_writes(own, block, bytes));
                    if (i % 2) continue;
                    pool_order(device, own, further);
                    CHECK_OK(loch_allocator_record_use(from, block, further));
                    CHECK_OK(sim_writes(further, block, bytes));
                }
                CHECK_OK(loch_session_leave(session));
                for (size_t i = 0; on_one && i < COUNT(streams); i++)
                    pool_order(device, streams[i], last);
                assert_int_equal(end_on(session, on_one ? last : NULL), 12 * 1000 + 66 * 20000);
                pool_expect_whole(pool);
            }
            for (size_t i = 0; i < COUNT(streams); i++)
                loch_stream_close(streams[i]);
            loch_stream_close(last);
            pool_end_sim(pool, device);
        }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        SIM_TEST(blocks_of_a_handles_allocator_belong_to_the_session),
        SIM_TEST(blocks_of_a_thread_inside_belong_to_the_session),
        SIM_TEST(blocks_of_wrappers_around_it_belong_to_the_session),
        SIM_TEST(nested_sessions_have_blocks_of_their_own),
        SIM_TEST(sessions_side_by_side_do_not_touch_each_other),
        SIM_TEST(promoted_blocks_live_on),
        SIM_TEST(a_retained_allocator_hands_out_nothing_after_the_end),
        SIM_TEST(a_session_keeps_its_allocator),
        SIM_TEST(realloc_leaves_blocks_where_they_are),
        SIM_TEST(growable_blocks_belong_to_the_session),
        SIM_TEST(empty_blocks_and_failures_are_not_counted),
        SIM_TEST(a_session_has_a_peak_of_its_own),
        SIM_TEST(the_end_comes_in_the_order_of_streams),
    };
    if (test_heap_install() != LOCH_OK) return 1;
    return cmocka_run_group_tests(tests, NULL, NULL);
}

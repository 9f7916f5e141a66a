/* SPDX-License-Identifier: MIT */
/* Sessions, by handle and by thread: what belongs to them over every kind of allocator, what does not, what becomes of blocks that
 * are freed, moved, promoted or cannot be freed, and of threads; figures, order on streams, misuse, failing host memory. */
#include "allocators.h"
#include "base/fail.h"
#include "pool_fixture.h"
#include "sweep.h"
#include "worker.h"

#include <pthread.h>

#define BLOCKS 40

static const char *const devices[] = {"cpu", "sim:256MiB,granule=64KiB,backed",
                                      "sim:256MiB,granule=64KiB,clock=stepped,lag=1000"};
static const char *const stacks[] = {"pool",          "pool-whole",
                                     "direct",        "direct-deferred",
                                     "user",          "user-full",
                                     "limit/pool",    "limit/direct",
                                     "tracking/pool", "guard/pool",
                                     "wrapper/user",  "wrapper/pool",
                                     "logging/pool",  "tracking/limit/guard/direct"};

#define COUNT(array) (sizeof(array) / sizeof *(array))

/* --- short calls --- */

static loch_session *begin(loch_allocator *allocator)
{
    loch_session *session = TEST_UNTOUCHED;
    CHECK_OK(loch_session_begin(allocator, "request", &session));
    assert_non_null(session);
    return session;
}

static void *get(loch_allocator *allocator, size_t bytes)
{
    return pool_alloc(allocator, bytes);
}

static size_t end_on(loch_session *session, loch_stream *stream)
{
    size_t bytes = 1;
    CHECK_OK(loch_session_end(session, stream, &bytes));
    return bytes;
}

static size_t end(loch_session *session)
{
    return end_on(session, NULL);
}

static void expect(loch_session *session, size_t blocks, size_t bytes)
{
    loch_session_stats stats = {.size = sizeof stats};
    CHECK_OK(loch_session_get_stats(session, &stats));
    assert_int_equal(stats.blocks, blocks);
    assert_int_equal(stats.bytes, bytes);
}

static size_t live(loch_allocator *allocator)
{
    return pool_stats(allocator).blocks;
}

/* Sizes from slabs, from nests and beyond. */
static size_t size_of(size_t i)
{
    static const size_t sizes[] = {1, 100, 4096, 8192, 8193, 40000, 300000, 700000};
    return sizes[i % COUNT(sizes)];
}

typedef struct subject {
    loch_device *device;
    loch_allocator *allocator;
    loch_host_usage usage;
    uint64_t alive, wrong;
} subject;

static subject open_subject(const char *device, const char *stack)
{
    subject it = {.alive = test_user_alive(), .wrong = test_user_wrong()};
    it.device = sim_open(device);
    it.usage.size = sizeof it.usage;
    CHECK_OK(loch_host_get_usage(&it.usage));
    CHECK_OK(test_stack_create(it.device, stack, &it.allocator));
    return it;
}

static void close_subject(subject *it)
{
    loch_host_usage usage = {.size = sizeof usage};
    assert_int_equal(live(it->allocator), 0);
    if (lochi_pool_of(it->allocator)) pool_expect_whole(it->allocator);
    loch_allocator_release(it->allocator);
    assert_int_equal(test_user_alive(), it->alive);
    assert_int_equal(test_user_wrong(), it->wrong);
    CHECK_OK(loch_host_get_usage(&usage));
    assert_int_equal(usage.blocks, it->usage.blocks);
    loch_device_release(it->device);
}

typedef void on_subject(subject *it);

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
    assert_string_equal(loch_allocator_get_kind(own), "session");
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

static void by_handle(void **state)
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

static void by_thread(void **state)
{
    (void)state;
    over_all(run_by_thread);
}

static void wrappers_around_a_session_s_allocator(void **state)
{
    (void)state;
    static const char *const around[] = {"limit", "guard", "tracking", "wrapper", "locked"};
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

static void nested(void **state)
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
static void side_by_side(void **state)
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

static void an_allocator_that_is_retained(void **state)
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

/* --- addresses and threads --- */

typedef struct worker {
    loch_allocator *allocator;
    loch_session *session;
    void *address;
    size_t bytes;
    void *blocks[200];
    size_t count;
    char failure[400];
} worker;

static void join(worker *w, void *(*run)(void *))
{
    pthread_t thread;
    assert_int_equal(pthread_create(&thread, NULL, run, w), 0);
    assert_int_equal(pthread_join(thread, NULL), 0);
    if (w->failure[0]) fail_msg("%s", w->failure);
}

/* Frees a block of a session with a warm cache, and has its address again. */
static void reuse(worker *w)
{
    void *warm[4];
    for (size_t i = 0; i < COUNT(warm); i++)
        TRY(loch_alloc(w->allocator, w->bytes, &warm[i]));
    for (size_t i = 0; i < COUNT(warm); i++)
        TRY(loch_free(w->allocator, warm[i]));
    TRY(loch_free(w->allocator, w->address));
    for (w->count = 0; w->count < COUNT(w->blocks); w->count++) {
        TRY(loch_alloc(w->allocator, w->bytes, &w->blocks[w->count]));
        if (w->blocks[w->count] == w->address) break;
    }
    EXPECT(w->count < COUNT(w->blocks));
    w->count++;
}

static void *run_reuse(void *user)
{
    reuse(user);
    return NULL;
}

static void addresses_that_others_have_now(void **state)
{
    (void)state;
    static const size_t sizes[] = {64, 3000, 8192, 20000, 100000, 700000};
    for (int by_handle_too = 0; by_handle_too < 2; by_handle_too++)
        for (size_t i = 0; i < COUNT(sizes); i++) {
            subject it = open_subject("cpu", "pool");
            CHECK_OK(loch_pool_set_limit(it.allocator, 0));
            loch_session *session = begin(it.allocator);
            worker *w = calloc(1, sizeof *w);
            assert_non_null(w);
            w->allocator = it.allocator;
            w->bytes = sizes[i];
            CHECK_OK(loch_session_enter(session));
            w->address = get(by_handle_too ? loch_session_get_allocator(session) : it.allocator, sizes[i]);
            void *other = get(it.allocator, sizes[i]);
            CHECK_OK(loch_session_leave(session));
            join(w, run_reuse);
            expect(session, 1, sizes[i]);
            CHECK_FAILS(loch_session_promote(session, w->address), FOREIGN);
            assert_int_equal(end(session), sizes[i]);
            CHECK_FAILS_SET(loch_free(it.allocator, other), TEST_SET(DOUBLE_FREE) | TEST_SET(FOREIGN));
            assert_int_equal(live(it.allocator), w->count);
            while (w->count)
                CHECK_OK(loch_free(it.allocator, w->blocks[--w->count]));
            free(w);
            close_subject(&it);
        }
}

static void die_inside(worker *w)
{
    TRY(loch_session_enter(w->session));
    TRY(loch_session_enter(w->session));
    TRY(loch_alloc(w->allocator, 1000, &w->address));
    EXPECT(loch_session_end(w->session, NULL, NULL) == LOCH_E_BUSY);
}

static void *run_die_inside(void *user)
{
    die_inside(user);
    return NULL;
}

static void a_thread_that_ends_inside(void **state)
{
    (void)state;
    subject it = open_subject("cpu", "pool");
    worker w = {.allocator = it.allocator, .session = begin(it.allocator)};
    join(&w, run_die_inside);
    expect(w.session, 1, 1000);
    void *outside = get(it.allocator, 10);
    assert_int_equal(end(w.session), 1000);
    CHECK_OK(loch_free(it.allocator, outside));
    close_subject(&it);
}

static pool_cache *own_cache(loch_allocator *pool)
{
    return atomic_load(&lochi_pool_of(pool)->caches[lochi_thread_slot() + 1]);
}

/* Inside nothing is kept; figures count on; afterwards it is as before. */
static void the_thread_s_cache(void **state)
{
    (void)state;
    subject it = open_subject("cpu", "pool");
    for (int i = 0; i < 3; i++)
        CHECK_OK(loch_free(it.allocator, get(it.allocator, 100000)));
    const loch_stats before = pool_stats(it.allocator);
    loch_session *session = begin(it.allocator);
    assert_non_null(own_cache(it.allocator));
    CHECK_OK(loch_session_enter(session));
    assert_null(own_cache(it.allocator));
    const loch_stats inside = pool_stats(it.allocator);
    assert_int_equal(inside.allocs, before.allocs);
    assert_int_equal(inside.largest_bytes, before.largest_bytes);
    assert_int_equal(inside.peak_requested_bytes, before.peak_requested_bytes);
    CHECK_OK(loch_free(it.allocator, get(it.allocator, 50)));
    assert_null(own_cache(it.allocator));
    CHECK_OK(loch_session_leave(session));
    CHECK_OK(loch_free(it.allocator, get(it.allocator, 50)));
    assert_non_null(own_cache(it.allocator));
    assert_int_equal(pool_stats(it.allocator).allocs, before.allocs + 2);
    assert_int_equal(end(session), 0);
    close_subject(&it);
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

static void growable_blocks(void **state)
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

static void empty_blocks_and_failures(void **state)
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

static void peaks(void **state)
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
static void in_the_order_of_streams(void **state)
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

/* --- frees that fail --- */

static void what_cannot_be_freed_stays(void **state)
{
    (void)state;
    for (int handle = 0; handle < 2; handle++) {
        subject it = open_subject(devices[2], "direct");
        loch_session *session = begin(it.allocator);
        loch_allocator *own = loch_session_get_allocator(session), *from = handle ? own : it.allocator;
        CHECK_OK(loch_session_enter(session));
        void *a = get(from, 1000), *b = get(from, 2000), *c = get(from, 4000);
        CHECK_OK(loch_session_leave(session));
        CHECK_OK(sim_writes(loch_stream_get_default(it.device), b, 2000));
        const loch_sim_fault fault = {.size = sizeof fault, .mode = LOCH_SIM_FAULT_FOREVER};
        size_t bytes = 1;
        CHECK_OK(loch_sim_set_fault(it.device, &fault));
        CHECK_FAILS(loch_session_end(session, NULL, &bytes), DRIVER);
        assert_int_equal(bytes, 0);
        expect(session, 3, 7000);
        CHECK_FAILS(loch_free(own, a), DRIVER);
        CHECK_FAILS(loch_free(it.allocator, c), DRIVER);
        expect(session, 3, 7000);
        const loch_sim_fault no_copy = {.size = sizeof no_copy, .call = "copy", .mode = LOCH_SIM_FAULT_FOREVER};
        CHECK_OK(loch_sim_set_fault(it.device, &no_copy));
        CHECK_FAILS(loch_allocator_realloc(own, b, 3000, NULL, &(void *){NULL}), DRIVER);
        expect(session, 3, 7000);
        CHECK_OK(loch_sim_set_fault(it.device, NULL));
        (void)get(own, 8000); /* it is still there for all purposes */
        CHECK_OK(loch_free(it.allocator, b));
        expect(session, 3, 13000);
        assert_int_equal(end(session), 13000);
        close_subject(&it);
    }
}

/* A wrapper that does not take one block back. */
typedef struct stubborn {
    loch_allocator *wrapped;
    void *address;
} stubborn;

static loch_status stubborn_alloc(void *self, const loch_request *request, void **out)
{
    return loch_allocator_alloc(((stubborn *)self)->wrapped, request, out);
}

static loch_status stubborn_free(void *self, void *address, size_t bytes, loch_stream *stream)
{
    stubborn *it = self;
    (void)bytes;
    if (address == it->address) return loch_error_set(LOCH_E_DRIVER, NULL, 0, "not this one");
    return stream ? loch_allocator_free_on(it->wrapped, address, stream) : loch_free(it->wrapped, address);
}

static void stubborn_destroy(void *self)
{
    ((stubborn *)self)->wrapped = NULL;
}

static void the_rest_goes_all_the_same(void **state)
{
    (void)state;
    static const loch_allocator_ops ops = {.size = sizeof ops,
                                           .kind = "stubborn",
                                           .alloc = stubborn_alloc,
                                           .free = stubborn_free,
                                           .destroy = stubborn_destroy};
    for (int handle = 0; handle < 2; handle++) {
        subject it = open_subject("cpu", "pool");
        stubborn refusing = {.wrapped = it.allocator};
        loch_allocator *wrapper;
        CHECK_OK(loch_wrapper_create(it.allocator, NULL, &ops, &refusing, &wrapper));
        loch_session *session = begin(wrapper);
        loch_allocator *own = loch_session_get_allocator(session), *from = handle ? own : wrapper;
        CHECK_OK(loch_session_enter(session));
        (void)get(from, 1);
        refusing.address = get(from, 10);
        (void)get(from, 100);
        CHECK_OK(loch_session_leave(session));
        size_t bytes;
        for (int i = 0; i < 2; i++) {
            CHECK_FAILS(loch_session_end(session, NULL, &bytes), DRIVER);
            assert_int_equal(bytes, i ? 0 : 101);
            expect(session, 1, 10);
            assert_int_equal(live(it.allocator), 1);
        }
        void *block = refusing.address;
        CHECK_FAILS(loch_free(own, block), DRIVER);
        expect(session, 1, 10);
        refusing.address = NULL;
        if (handle)
            assert_int_equal(end(session), 10);
        else {
            CHECK_OK(loch_free(wrapper, block));
            assert_int_equal(end(session), 0);
        }
        loch_allocator_release(wrapper);
        assert_null(refusing.wrapped); /* it has ended */
        close_subject(&it);
    }
}

static void blocks_that_were_written_around(void **state)
{
    (void)state;
    subject it = open_subject("cpu", "guard/pool");
    loch_session *session = begin(it.allocator);
    char *bad = get(loch_session_get_allocator(session), 100);
    (void)get(loch_session_get_allocator(session), 200);
    bad[100] = (char)(bad[100] + 1);
    size_t bytes;
    CHECK_FAILS(loch_session_end(session, NULL, &bytes), CORRUPT);
    assert_int_equal(bytes, 300);
    expect(session, 0, 0);
    assert_int_equal(end(session), 0);
    close_subject(&it);
}

/* --- misuse --- */

typedef struct pressing {
    loch_session *session;
    loch_status entered, left;
} pressing;

static size_t press(loch_allocator *allocator, size_t bytes, void *user)
{
    pressing *it = user;
    (void)allocator, (void)bytes;
    it->entered = loch_session_enter(it->session);
    it->left = loch_session_leave(it->session);
    return 0;
}

static void misuse(void **state)
{
    (void)state;
    subject it = open_subject("cpu", "pool");
    loch_device *sim = sim_open(devices[2]);
    loch_session *session = TEST_UNTOUCHED;
    CHECK_FAILS(loch_session_begin(NULL, "a", &session), INVALID);
    assert_null(session);
    CHECK_FAILS(loch_session_begin(it.allocator, "a", NULL), INVALID);
    CHECK_FAILS(loch_session_begin(it.allocator,
                                   "a name of more than sixty-three characters, which is too long for any", &session),
                INVALID);
    assert_null(session);
    assert_null(loch_session_get_allocator(NULL));
    CHECK_FAILS(loch_session_enter(NULL), INVALID);
    CHECK_FAILS(loch_session_leave(NULL), INVALID);
    CHECK_FAILS(loch_session_promote(NULL, &it), INVALID);
    CHECK_FAILS(loch_session_end(NULL, NULL, NULL), INVALID);
    CHECK_OK(loch_session_begin(it.allocator, NULL, &session));
    assert_string_equal(loch_allocator_get_name(loch_session_get_allocator(session)),
                        loch_allocator_get_name(it.allocator));
    CHECK_FAILS(loch_session_leave(session), INVALID);
    CHECK_FAILS(loch_session_promote(session, NULL), INVALID);
    CHECK_FAILS(loch_session_promote(session, &it), FOREIGN);
    CHECK_FAILS(loch_session_get_stats(session, NULL), INVALID);
    CHECK_FAILS(loch_session_get_stats(session, &(loch_session_stats){.size = 0}), INVALID);
    CHECK_FAILS(loch_session_get_stats(NULL, &(loch_session_stats){.size = sizeof(loch_session_stats)}), INVALID);
    char *block = get(loch_session_get_allocator(session), 100);
    CHECK_FAILS(loch_free(loch_session_get_allocator(session), block + 1), INTERIOR);
    CHECK_FAILS(loch_allocator_free_sized(loch_session_get_allocator(session), block, 99), INVALID);
    CHECK_FAILS(loch_session_promote(session, block + 1), FOREIGN);
    CHECK_FAILS(loch_session_end(session, loch_stream_get_default(sim), NULL), INVALID);
    expect(session, 1, 100);
    pressing inside = {.session = session};
    CHECK_OK(loch_session_enter(session));
    CHECK_OK(loch_allocator_add_pressure(it.allocator, press, &inside));
    assert_int_not_equal(loch_alloc(it.allocator, 10 * TEST_USER_CAPACITY, &(void *){NULL}), LOCH_OK);
    CHECK_OK(loch_allocator_remove_pressure(it.allocator, press, &inside));
    assert_int_equal(inside.entered, LOCH_E_INVALID);
    assert_int_equal(inside.left, LOCH_E_INVALID);
    CHECK_OK(loch_session_leave(session));
    assert_int_equal(end(session), 100);
    loch_device_release(sim);
    close_subject(&it);
}

/* What a user's wrapper allocates inside is its own business, and a block of no session may go back through one. */
static void no_session_s_business(void **state)
{
    (void)state;
    subject it = open_subject("cpu", "wrapper/pool");
    loch_allocator *pool = loch_allocator_get_wrapped(it.allocator);
    loch_session *below = begin(pool), *above = begin(it.allocator);
    CHECK_OK(loch_session_enter(below));
    void *block = get(it.allocator, 1000);
    expect(below, 1, 1000); /* once, and it goes back through the wrapper */
    CHECK_OK(loch_session_enter(above));
    (void)get(it.allocator, 100);
    expect(below, 1, 1000);
    expect(above, 1, 100);
    CHECK_OK(loch_session_leave(above));
    CHECK_OK(loch_session_leave(below));
    (void)block;
    void *outside = get(it.allocator, 10);
    CHECK_OK(loch_free(loch_session_get_allocator(above), outside));
    assert_int_equal(end(below), 1000);
    assert_int_equal(end(above), 100);
    close_subject(&it);
}

/* --- failing host memory --- */

static loch_status sweep_use(loch_session *session, loch_allocator *pool, loch_allocator *around)
{
    void *block;
    LOCH_TRY_RETURN(loch_alloc(loch_session_get_allocator(session), 100, &block));
    LOCH_TRY_RETURN(loch_alloc(loch_session_get_allocator(session), 100000, &block));
    LOCH_TRY_RETURN(loch_allocator_realloc(pool, block, 300000, NULL, &block));
    LOCH_TRY_RETURN(loch_session_enter(session));
    loch_status status = loch_alloc(pool, 3000, &block);
    if (status == LOCH_OK) status = loch_alloc(around, 20000, &block);
    if (status == LOCH_OK) status = loch_allocator_realloc(around, block, 500, NULL, &block);
    if (loch_session_leave(session) != LOCH_OK) status = LOCH_E_BUSY;
    return status;
}

static loch_status sweep_run(const void *user)
{
    (void)user;
    loch_device *device = NULL;
    loch_allocator *pool = NULL, *around = NULL;
    loch_session *session = NULL;
    loch_status status = loch_device_open("cpu", &device);
    if (status == LOCH_OK) status = loch_pool_create(device, NULL, NULL, &pool);
    if (status == LOCH_OK) status = loch_tracking_create(pool, NULL, NULL, &around);
    if (status == LOCH_OK) status = loch_session_begin(pool, "swept", &session);
    if (status == LOCH_OK) status = sweep_use(session, pool, around);
    const loch_error error = *loch_error_get();
    loch_status ended = LOCH_OK;
    if (session) ended = loch_session_end(session, NULL, NULL);
    loch_allocator_release(around);
    loch_allocator_release(pool);
    loch_device_release(device);
    if (ended != LOCH_OK) return LOCH_E_BUSY;
    return status == LOCH_OK ? LOCH_OK : loch_error_set(status, NULL, 0, "%s", error.sentence);
}

static void bookkeeping_fails_in_turn(void **state)
{
    (void)state;
    test_host_sweep(sweep_run, NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        SIM_TEST(by_handle),
        SIM_TEST(by_thread),
        SIM_TEST(wrappers_around_a_session_s_allocator),
        SIM_TEST(nested),
        SIM_TEST(side_by_side),
        SIM_TEST(promoted_blocks_live_on),
        SIM_TEST(an_allocator_that_is_retained),
        SIM_TEST(a_session_keeps_its_allocator),
        SIM_TEST(addresses_that_others_have_now),
        SIM_TEST(a_thread_that_ends_inside),
        SIM_TEST(the_thread_s_cache),
        SIM_TEST(realloc_leaves_blocks_where_they_are),
        SIM_TEST(growable_blocks),
        SIM_TEST(empty_blocks_and_failures),
        SIM_TEST(peaks),
        SIM_TEST(in_the_order_of_streams),
        SIM_TEST(what_cannot_be_freed_stays),
        SIM_TEST(the_rest_goes_all_the_same),
        SIM_TEST(blocks_that_were_written_around),
        SIM_TEST(misuse),
        SIM_TEST(no_session_s_business),
        SIM_TEST(bookkeeping_fails_in_turn),
    };
    if (test_heap_install() != LOCH_OK) return 1;
    return cmocka_run_group_tests(tests, NULL, NULL);
}

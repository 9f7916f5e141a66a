/* SPDX-License-Identifier: MIT */
/* Growable blocks are blocks like others: they wait for memory, and wrappers and sessions count them as they grow. */
#include "pool_fixture.h"
#include <loch/direct.h>
#include <loch/session.h>
#include <loch/wrapper.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <unistd.h>

#define MIB TEST_MIB
#define DEVICE "sim:64MiB,granule=64KiB,backed"
#define TIMEOUT_NS ((uint64_t)300 * 1000000000)

typedef struct bench {
    loch_device *device;
    loch_allocator *pool;
} bench;

static bench bench_open(size_t limit_bytes)
{
    const loch_pool_options options = {.size = sizeof options, .limit_bytes = limit_bytes, .handle_bytes = MIB};
    bench b = {.device = sim_open(DEVICE)};
    b.pool = pool_make(b.device, &options);
    return b;
}

static void bench_close(bench *b)
{
    pool_end_sim(b->pool, b->device);
}

static char *make(loch_allocator *from, size_t bytes, size_t max_bytes)
{
    const loch_request request = {.size = sizeof request, .bytes = bytes, .max_bytes = max_bytes};
    void *block;
    CHECK_OK(loch_allocator_alloc(from, &request, &block));
    assert_non_null(block);
    return block;
}

static size_t requested(loch_allocator *from, const void *block)
{
    loch_block found = {.size = sizeof found};
    CHECK_OK(loch_allocator_find(from, block, &found));
    return found.requested_bytes;
}

/* --- when memory is short --- */

typedef struct reserve {
    loch_allocator *from;
    void *block;
    size_t bytes; /* that the function was told */
    int calls;
} reserve;

/* Frees the reserve, once. */
static size_t give_up(loch_allocator *allocator, size_t bytes, void *user)
{
    (void)allocator;
    reserve *r = user;
    r->calls++;
    r->bytes = bytes;
    if (!r->block || loch_free(r->from, r->block) != LOCH_OK) return 0;
    r->block = NULL;
    return 1;
}

static void pressure_functions_make_room(void **state)
{
    (void)state;
    bench b = bench_open(32 * MIB);
    reserve r = {.from = b.pool, .block = pool_alloc(b.pool, 16 * MIB)};
    CHECK_OK(loch_allocator_add_pressure(b.pool, give_up, &r));
    char *block = make(b.pool, 10 * MIB, 64 * MIB);
    assert_int_equal(r.calls, 0);
    CHECK_OK(loch_pool_resize_growable(b.pool, block, 24 * MIB));
    assert_int_equal(r.calls, 1);
    assert_int_equal(r.bytes, 14 * MIB); /* the bytes to be added */
    assert_int_equal(pool_stats(b.pool).failures, 0);
    assert_int_equal(pool_stats(b.pool).retries, 1);
    CHECK_OK(loch_free(b.pool, block));
    r.block = pool_alloc(b.pool, 16 * MIB);
    block = make(b.pool, 20 * MIB, 64 * MIB);
    assert_int_equal(r.calls, 2);
    assert_int_equal(r.bytes, 20 * MIB);
    CHECK_OK(loch_allocator_remove_pressure(b.pool, give_up, &r));
    CHECK_OK(loch_free(b.pool, block));
    bench_close(&b);
}

static void a_failure_is_counted_once_and_growth_is_a_request(void **state)
{
    (void)state;
    bench b = bench_open(32 * MIB);
    reserve r = {.from = b.pool};
    CHECK_OK(loch_allocator_add_pressure(b.pool, give_up, &r));
    char *block = make(b.pool, MIB, 64 * MIB);
    void *beside = pool_alloc(b.pool, 8 * MIB);
    CHECK_FAILS(loch_pool_resize_growable(b.pool, block, 30 * MIB), LIMIT);
    assert_int_equal(pool_stats(b.pool).failures, 1);
    assert_int_equal(r.calls, 1);
    CHECK_OK(loch_free(b.pool, beside));
    assert_int_equal(requested(b.pool, block), MIB);
    void *none;
    const loch_request large = {.size = sizeof large, .bytes = 40 * MIB, .max_bytes = 40 * MIB};
    CHECK_FAILS(loch_allocator_alloc(b.pool, &large, &none), LIMIT);
    assert_null(none);
    assert_int_equal(pool_stats(b.pool).failures, 2);
    CHECK_FAILS(loch_pool_resize_growable(b.pool, block, 65 * MIB), OUT_OF_RANGE); /* memory is not short */
    assert_int_equal(pool_stats(b.pool).failures, 2);
    assert_int_equal(pool_stats(b.pool).largest_bytes, 8 * MIB);
    CHECK_OK(loch_pool_resize_growable(b.pool, block, 20 * MIB));
    CHECK_OK(loch_pool_resize_growable(b.pool, block, 3 * MIB));
    assert_int_equal(pool_stats(b.pool).largest_bytes, 20 * MIB);
    assert_int_equal(pool_stats(b.pool).peak_requested_bytes, 20 * MIB);
    CHECK_OK(loch_free(b.pool, block));
    r.calls = 0;
    const loch_request once = {.size = sizeof once, .bytes = MIB, .max_bytes = 64 * MIB, .flags = LOCH_ALLOC_NO_RETRY};
    void *strict;
    CHECK_OK(loch_allocator_alloc(b.pool, &once, &strict));
    CHECK_FAILS(loch_pool_resize_growable(b.pool, strict, 40 * MIB), LIMIT); /* the flag holds for its growth */
    assert_int_equal(r.calls, 0);
    assert_int_equal(pool_stats(b.pool).failures, 3);
    CHECK_OK(loch_allocator_remove_pressure(b.pool, give_up, &r));
    CHECK_OK(loch_free(b.pool, strict));
    bench_close(&b);
}

typedef struct waiter {
    loch_allocator *from;
    void *block;
    loch_status status;
    atomic_bool is_over;
} waiter;

static void *wait_and_grow(void *user)
{
    waiter *w = user;
    w->status = loch_pool_resize_growable(w->from, w->block, 20 * MIB);
    atomic_store(&w->is_over, true);
    return NULL;
}

/* Through the pool and through a wrapper: a growth waits for the free of another thread. */
static void growth_waits_for_a_free(void **state)
{
    (void)state;
    for (int is_wrapped = 0; is_wrapped < 2; is_wrapped++) {
        bench b = bench_open(32 * MIB);
        loch_allocator *from = loch_allocator_retain(b.pool);
        if (is_wrapped) {
            loch_allocator_release(from);
            CHECK_OK(loch_tracking_create(b.pool, NULL, NULL, &from));
        }
        void *other = pool_alloc(from, 16 * MIB), *block;
        const loch_request request = {
            .size = sizeof request, .bytes = MIB, .max_bytes = 64 * MIB, .timeout_ns = TIMEOUT_NS};
        CHECK_OK(loch_allocator_alloc(from, &request, &block));
        waiter w = {.from = from, .block = block};
        pthread_t thread;
        assert_int_equal(pthread_create(&thread, NULL, wait_and_grow, &w), 0);
        while (pool_stats(from).retries < 2 && !atomic_load(&w.is_over))
            sched_yield();
        assert_false(atomic_load(&w.is_over));
        CHECK_OK(loch_free(from, other));
        assert_int_equal(pthread_join(thread, NULL), 0);
        assert_int_equal(w.status, LOCH_OK);
        assert_int_equal(requested(from, block), 20 * MIB);
        assert_int_equal(pool_stats(from).failures, 0);
        CHECK_OK(loch_free(from, block));
        loch_allocator_release(from);
        bench_close(&b);
    }
}

/* --- wrappers --- */

static loch_status note_bytes(const loch_tracking_record *record, void *user)
{
    int64_t **next = user;
    *(*next)++ = record->bytes;
    return LOCH_OK;
}

static void tracking_follows_the_size(void **state)
{
    (void)state;
    bench b = bench_open(32 * MIB);
    loch_allocator *tracked;
    const loch_tracking_options options = {.size = sizeof options, .records = 16};
    CHECK_OK(loch_tracking_create(b.pool, "tracked", &options, &tracked));
    char *block = make(tracked, 0, 64 * MIB);
    assert_int_equal(pool_stats(tracked).blocks, 1);
    CHECK_OK(loch_pool_resize_growable(tracked, block, 5 * MIB));
    CHECK_OK(loch_pool_resize_growable(tracked, block, 2 * MIB));
    assert_int_equal(requested(tracked, block), 2 * MIB);
    CHECK_FAILS(loch_pool_resize_growable(tracked, block, 40 * MIB), LIMIT);
    loch_stats stats = pool_stats(tracked);
    assert_int_equal(stats.requested_bytes, 2 * MIB);
    assert_int_equal(stats.peak_requested_bytes, 5 * MIB);
    assert_int_equal(stats.largest_bytes, 5 * MIB);
    assert_int_equal(stats.failures, 1);
    assert_int_equal(stats.allocs, 1);
    assert_int_equal(stats.frees, 0);
    loch_block found = {.size = sizeof found};
    CHECK_OK(loch_allocator_find(tracked, block, &found));
    assert_true(found.time_ns > 0);
    CHECK_OK(loch_allocator_free_sized(tracked, block, 2 * MIB));
    int64_t seen[16] = {0}, *next = seen;
    CHECK_OK(loch_tracking_walk(tracked, note_bytes, &next));
    static const int64_t expected[] = {0, 5 << 20, -(3 << 20), -(2 << 20)};
    assert_int_equal(next - seen, 4);
    assert_memory_equal(seen, expected, sizeof expected);
    assert_int_equal(pool_stats(tracked).requested_bytes, 0);
    /* A block that the wrapper did not hand out. */
    char *behind = make(b.pool, MIB, 4 * MIB);
    CHECK_FAILS(loch_pool_resize_growable(tracked, behind, 2 * MIB), FOREIGN);
    assert_int_equal(requested(b.pool, behind), MIB);
    CHECK_OK(loch_free(b.pool, behind));
    loch_allocator_release(tracked);
    bench_close(&b);
}

static void a_limit_counts_the_growth(void **state)
{
    (void)state;
    bench b = bench_open(0);
    loch_allocator *limited;
    const loch_limit_options options = {.size = sizeof options, .hard_bytes = 10 * MIB};
    CHECK_OK(loch_limit_create(b.pool, "limited", &options, &limited));
    char *block = make(limited, 4 * MIB, 64 * MIB);
    CHECK_FAILS(loch_pool_resize_growable(limited, block, 11 * MIB), LIMIT);
    assert_int_equal(pool_stats(limited).failures, 1);
    CHECK_OK(loch_pool_resize_growable(limited, block, 10 * MIB));
    void *none;
    CHECK_FAILS(loch_alloc(limited, 1, &none), LIMIT);
    CHECK_OK(loch_pool_resize_growable(limited, block, MIB));
    void *other = pool_alloc(limited, 9 * MIB); /* what it gave up is free */
    CHECK_FAILS(loch_pool_resize_growable(limited, block, MIB + 1), LIMIT);
    CHECK_OK(loch_free(limited, other));
    CHECK_OK(loch_free(limited, block));
    other = pool_alloc(limited, 10 * MIB); /* and all of it after the free */
    CHECK_OK(loch_free(limited, other));
    loch_allocator_release(limited);
    bench_close(&b);
}

static void fault_injection_fails_the_growth(void **state)
{
    (void)state;
    bench b = bench_open(0);
    loch_allocator *faulty;
    CHECK_OK(loch_fault_create(b.pool, "faulty", NULL, &faulty));
    char *block = make(faulty, MIB, 8 * MIB);
    const loch_fault_options next = {.size = sizeof next, .count = 1};
    CHECK_OK(loch_fault_set(faulty, &next));
    CHECK_OK(loch_pool_resize_growable(faulty, block, 100)); /* less memory is no attempt */
    CHECK_FAILS(loch_pool_resize_growable(faulty, block, 2 * MIB), DEVICE_MEMORY);
    assert_int_equal(requested(faulty, block), 100);
    assert_int_equal(pool_stats(faulty).failures, 1);
    CHECK_OK(loch_pool_resize_growable(faulty, block, 2 * MIB));
    CHECK_OK(loch_free(faulty, block));
    loch_allocator_release(faulty);
    bench_close(&b);
}

static void read_file(const char *path, char *text, size_t bytes)
{
    FILE *file = fopen(path, "r");
    assert_non_null(file);
    text[fread(text, 1, bytes - 1, file)] = '\0';
    (void)fclose(file);
}

static void logging_writes_the_growth(void **state)
{
    (void)state;
    for (int is_csv = 0; is_csv < 2; is_csv++) {
        bench b = bench_open(0);
        char path[64], text[2000];
        (void)snprintf(path, sizeof path, "/tmp/loch-grow-%d-%d", (int)getpid(), is_csv);
        const loch_logging_options options = {
            .size = sizeof options, .format = is_csv ? LOCH_LOGGING_CSV : LOCH_LOGGING_TRACE, .path = path};
        loch_allocator *logged;
        CHECK_OK(loch_logging_create(b.pool, "logged", &options, &logged));
        char *block = make(logged, 1000, 8 * MIB);
        CHECK_OK(loch_pool_resize_growable(logged, block, 5000));
        CHECK_FAILS_SET(loch_pool_resize_growable(logged, block, 9 * MIB), TEST_SET(OUT_OF_RANGE));
        CHECK_OK(loch_free(logged, block));
        CHECK_OK(loch_logging_flush(logged));
        read_file(path, text, sizeof text);
        if (is_csv) {
            assert_non_null(strstr(text, ",alloc,1,"));
            assert_non_null(strstr(text, ",resize,1,"));
            assert_non_null(strstr(text, ",5000,0,,"));
            assert_non_null(strstr(text, ",free,1,"));
        } else {
            assert_non_null(strstr(text, "a 1 1000 0 "));
            assert_non_null(strstr(text, "\nf 1 "));
            assert_non_null(strstr(text, "\na 2 5000 0 ")); /* ids are never reused in a trace */
            assert_non_null(strstr(text, "\nf 2 "));
        }
        loch_allocator_release(logged);
        assert_int_equal(unlink(path), 0);
        bench_close(&b);
    }
}

/* All wrappers of the library around one pool, in both orders. */
static loch_allocator *stack_up(loch_allocator *pool, bool is_turned)
{
    loch_allocator *made[4], *inner = pool;
    const loch_limit_options limit = {.size = sizeof limit, .hard_bytes = 30 * MIB};
    const loch_logging_options logging = {.size = sizeof logging};
    for (int i = 0; i < 4; i++) {
        const int which = is_turned ? 3 - i : i;
        if (which == 0) CHECK_OK(loch_limit_create(inner, NULL, &limit, &made[i]));
        if (which == 1) CHECK_OK(loch_tracking_create(inner, NULL, NULL, &made[i]));
        if (which == 2) CHECK_OK(loch_logging_create(inner, NULL, &logging, &made[i]));
        if (which == 3) CHECK_OK(loch_locked_create(inner, NULL, &made[i]));
        if (i) loch_allocator_release(inner);
        inner = made[i];
    }
    return inner;
}

static void wrappers_around_wrappers_agree(void **state)
{
    (void)state;
    for (int is_turned = 0; is_turned < 2; is_turned++) {
        bench b = bench_open(0);
        loch_allocator *top = stack_up(b.pool, is_turned);
        void *block;
        const loch_request request = {.size = sizeof request, .bytes = MIB};
        CHECK_OK(loch_pool_alloc_growable(top, 64 * MIB, &request, &block));
        test_pattern_write(block, MIB, 1);
        CHECK_OK(loch_pool_resize_growable(top, block, 20 * MIB));
        CHECK_FAILS(loch_pool_resize_growable(top, block, 31 * MIB), LIMIT);
        assert_int_equal(test_pattern_differs(block, MIB, 1), MIB);
        for (loch_allocator *level = top; level; level = loch_allocator_get_wrapped(level)) {
            assert_int_equal(requested(level, block), 20 * MIB);
            assert_int_equal(pool_stats(level).requested_bytes, 20 * MIB);
            assert_int_equal(pool_stats(level).largest_bytes, 20 * MIB);
        }
        CHECK_OK(loch_allocator_free_sized(top, block, 20 * MIB));
        CHECK_FAILS_SET(loch_pool_resize_growable(top, block, MIB), TEST_SET(FOREIGN) | TEST_SET(DOUBLE_FREE));
        loch_allocator_release(top);
        bench_close(&b);
    }
}

static loch_status plain_alloc(void *self, const loch_request *request, void **out)
{
    return loch_allocator_alloc(self, request, out);
}

static void allocators_without_growable_blocks_refuse(void **state)
{
    (void)state;
    bench b = bench_open(0);
    void *none = TEST_UNTOUCHED;
    loch_request request = {.size = sizeof request, .bytes = MIB, .max_bytes = 4 * MIB};
    loch_allocator *red, *direct, *own;
    CHECK_OK(loch_redzone_create(b.pool, NULL, NULL, &red));
    CHECK_FAILS(loch_allocator_alloc(red, &request, &none), UNSUPPORTED);
    assert_null(none);
    CHECK_OK(loch_direct_create(b.device, NULL, NULL, &direct));
    CHECK_FAILS(loch_allocator_alloc(direct, &request, &none), UNSUPPORTED);
    CHECK_FAILS(loch_pool_alloc_growable(direct, MIB, NULL, &none), INVALID);
    CHECK_FAILS(loch_pool_resize_growable(direct, &request, MIB), INVALID);
    CHECK_FAILS(loch_pool_alloc_growable(NULL, MIB, NULL, &none), INVALID);
    CHECK_FAILS(loch_pool_resize_growable(NULL, &request, MIB), INVALID);
    /* A wrapper of a user without the slot `resize`: blocks are made, but do not grow. */
    const loch_allocator_ops ops = {.size = sizeof ops, .kind = "own", .alloc = plain_alloc};
    CHECK_OK(loch_wrapper_create(b.pool, NULL, &ops, b.pool, &own));
    char *block = make(own, MIB, 4 * MIB);
    CHECK_FAILS(loch_pool_resize_growable(own, block, 2 * MIB), UNSUPPORTED);
    assert_int_equal(requested(own, block), MIB);
    CHECK_OK(loch_free(own, block));
    request.bytes = 5 * MIB;
    CHECK_FAILS(loch_allocator_alloc(b.pool, &request, &none), OUT_OF_RANGE);
    assert_null(none);
    loch_allocator_release(own);
    loch_allocator_release(red);
    loch_allocator_release(direct);
    bench_close(&b);
}

typedef struct own_wrapper {
    loch_allocator *wrapped;
    size_t seen; /* size of the last resize */
    int resizes;
} own_wrapper;

static loch_status own_alloc(void *self, const loch_request *request, void **out)
{
    return loch_allocator_alloc(((own_wrapper *)self)->wrapped, request, out);
}

static loch_status own_resize(void *self, void *address, size_t bytes, size_t *allocated)
{
    own_wrapper *own = self;
    own->seen = *allocated = bytes;
    own->resizes++;
    return loch_pool_resize_growable(own->wrapped, address, bytes);
}

/* A wrapper of a user sees the growth. Only the outermost call retries, so each attempt comes by once. */
static void a_wrapper_with_the_slot_sees_the_growth(void **state)
{
    (void)state;
    bench b = bench_open(32 * MIB);
    own_wrapper self = {.wrapped = b.pool};
    loch_allocator *own;
    const loch_allocator_ops ops = {.size = sizeof ops, .kind = "own", .alloc = own_alloc, .resize = own_resize};
    CHECK_OK(loch_wrapper_create(b.pool, NULL, &ops, &self, &own));
    reserve r = {.from = b.pool, .block = pool_alloc(b.pool, 16 * MIB)};
    CHECK_OK(loch_allocator_add_pressure(b.pool, give_up, &r));
    char *block = make(own, 10 * MIB, 64 * MIB);
    CHECK_OK(loch_pool_resize_growable(own, block, 24 * MIB));
    assert_int_equal(self.seen, 24 * MIB);
    assert_int_equal(self.resizes, 2); /* before and after the pressure function */
    assert_int_equal(r.calls, 1);
    CHECK_FAILS(loch_pool_resize_growable(own, block, 40 * MIB), LIMIT);
    assert_int_equal(pool_stats(own).failures, 1);
    assert_int_equal(pool_stats(b.pool).failures, 1);
    assert_int_equal(requested(own, block), 24 * MIB);
    CHECK_OK(loch_free(own, block));
    CHECK_OK(loch_allocator_remove_pressure(b.pool, give_up, &r));
    loch_allocator_release(own);
    bench_close(&b);
}

/* --- sessions --- */

/* The allocator of a session around a wrapper, and a wrapper around the allocator of a session. */
static void sessions_free_what_grew_through_wrappers(void **state)
{
    (void)state;
    for (int is_inside = 0; is_inside < 2; is_inside++) {
        bench b = bench_open(0);
        loch_allocator *tracked, *top;
        loch_session *session;
        size_t freed = 0;
        CHECK_OK(loch_tracking_create(b.pool, NULL, NULL, &tracked));
        CHECK_OK(loch_session_begin(tracked, "session", &session));
        CHECK_OK(loch_limit_create(loch_session_get_allocator(session), NULL, NULL, &top));
        loch_allocator *from = is_inside ? loch_session_get_allocator(session) : top;
        char *block = make(from, MIB, 32 * MIB);
        CHECK_OK(loch_pool_resize_growable(from, block, 7 * MIB));
        loch_session_stats stats = {.size = sizeof stats};
        CHECK_OK(loch_session_get_stats(session, &stats));
        assert_int_equal(stats.bytes, 7 * MIB);
        assert_int_equal(pool_stats(tracked).requested_bytes, 7 * MIB);
        loch_allocator_release(top);
        CHECK_OK(loch_session_end(session, NULL, &freed));
        assert_int_equal(freed, 7 * MIB);
        assert_int_equal(pool_stats(b.pool).blocks, 0);
        loch_allocator_release(tracked);
        bench_close(&b);
    }
}

/* --- realloc --- */

static void realloc_moves_beyond_the_reservation(void **state)
{
    (void)state;
    for (int is_wrapped = 0; is_wrapped < 2; is_wrapped++) {
        bench b = bench_open(0);
        loch_allocator *from = is_wrapped ? stack_up(b.pool, false) : loch_allocator_retain(b.pool);
        char *block = make(from, MIB, 4 * MIB);
        void *moved;
        test_pattern_write(block, MIB, 7);
        CHECK_OK(loch_allocator_realloc(from, block, 3 * MIB, NULL, &moved));
        assert_ptr_equal(moved, block); /* in place within the reservation */
        test_pattern_write(block, 3 * MIB, 7);
        CHECK_OK(loch_allocator_realloc(from, block, 5 * MIB, NULL, &moved));
        CHECK_OK(loch_device_sync(b.device));
        assert_ptr_not_equal(moved, block);
        assert_int_equal(test_pattern_differs(moved, 3 * MIB, 7), 3 * MIB);
        assert_int_equal(requested(from, moved), 5 * MIB);
        assert_int_equal(pool_stats(b.pool).blocks, 1);
        CHECK_OK(loch_pool_resize_growable(from, moved, 8 * MIB)); /* twice the old reservation */
        CHECK_FAILS(loch_pool_resize_growable(from, moved, 8 * MIB + 1), OUT_OF_RANGE);
        CHECK_OK(loch_allocator_realloc(from, moved, 20 * MIB, NULL, &moved));
        CHECK_OK(loch_device_sync(b.device));
        assert_int_equal(test_pattern_differs(moved, 3 * MIB, 7), 3 * MIB);
        CHECK_OK(loch_allocator_realloc(from, moved, 0, NULL, &moved));
        assert_null(moved);
        block = make(from, 0, MIB); /* an empty block */
        CHECK_OK(loch_allocator_realloc(from, block, 3 * MIB, NULL, &moved));
        CHECK_OK(loch_pool_resize_growable(from, moved, MIB));
        CHECK_OK(loch_free(from, moved));
        loch_allocator_release(from);
        bench_close(&b);
    }
}

/* A growth in place that is short of memory does not move the block: that would need more. */
static void realloc_that_is_short_leaves_the_block(void **state)
{
    (void)state;
    bench b = bench_open(16 * MIB);
    char *block = make(b.pool, 10 * MIB, 64 * MIB);
    void *moved;
    test_pattern_write(block, 10 * MIB, 9);
    CHECK_FAILS(loch_allocator_realloc(b.pool, block, 20 * MIB, NULL, &moved), LIMIT);
    assert_null(moved);
    assert_int_equal(pool_stats(b.pool).failures, 1);
    assert_int_equal(requested(b.pool, block), 10 * MIB);
    assert_int_equal(test_pattern_differs(block, 10 * MIB, 9), 10 * MIB);
    CHECK_FAILS_SET(loch_allocator_realloc(b.pool, block, 65 * MIB, NULL, &moved), POOL_SHORT);
    assert_int_equal(test_pattern_differs(block, 10 * MIB, 9), 10 * MIB);
    CHECK_OK(loch_free(b.pool, block));
    bench_close(&b);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        POOL_TEST(pressure_functions_make_room),
        POOL_TEST(a_failure_is_counted_once_and_growth_is_a_request),
        POOL_TEST(growth_waits_for_a_free),
        POOL_TEST(tracking_follows_the_size),
        POOL_TEST(a_limit_counts_the_growth),
        POOL_TEST(fault_injection_fails_the_growth),
        POOL_TEST(logging_writes_the_growth),
        POOL_TEST(wrappers_around_wrappers_agree),
        POOL_TEST(allocators_without_growable_blocks_refuse),
        POOL_TEST(a_wrapper_with_the_slot_sees_the_growth),
        POOL_TEST(sessions_free_what_grew_through_wrappers),
        POOL_TEST(realloc_moves_beyond_the_reservation),
        POOL_TEST(realloc_that_is_short_leaves_the_block),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

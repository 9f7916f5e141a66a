/* SPDX-License-Identifier: MIT */
/* Memory that moves when it is short: all that is free can be had, a small shortage moves little, sizes near the
 * largest do not wrap, and a failure leaves the pool unlocked and whole. The comment of each test says what goes wrong
 * in other systems. */
#include "unit/memory/pool/crowd_fixture.h"
#include <pthread.h>
#include <unistd.h>

#define GIB TEST_GIB

static size_t free_bytes_of(loch_allocator *pool)
{
    const loch_pool_info info = pool_info(pool);
    return info.free_bytes + info.thread_bytes;
}

/* A pool that takes scratch memory off a large limit, and does not say so, reports more free memory than it has: a
 * request for that memory causes a compaction of everything, and then a failure. */
static void all_that_is_free_can_be_had(void **state)
{
    (void)state;
    static const size_t limits[] = {19 * GIB, 20 * GIB, 20 * GIB + 2 * MIB, 24 * GIB, 63 * GIB};
    for (size_t i = 0; i < sizeof limits / sizeof *limits; i++) {
        pool_bench s = bench_open("sim:64GiB", limits[i], 0);
        loch_buffer *first = make(&s, 4 * GIB, NULL), *second = make(&s, 2 * GIB, NULL);
        const size_t left = limits[i] - pool_info(s.pool).used_bytes;
        assert_int_equal(left, limits[i] - 6 * GIB);
        void *rest = pool_alloc(s.pool, left);
        assert_int_equal(pool_info(s.pool).used_bytes, limits[i]);
        loch_buffer_release(first);
        assert_int_equal(free_bytes_of(s.pool), 4 * GIB);
        void *again = pool_alloc(s.pool, 4 * GIB);
        assert_int_equal(free_bytes_of(s.pool), 0);
        assert_int_equal(loch_buffer_get_generation(second), 0); /* and nothing moved for it */
        CHECK_OK(loch_free(s.pool, again));
        CHECK_OK(loch_free(s.pool, rest));
        loch_buffer_release(second);
        bench_close(&s);
    }
}

/* Where frozen memory lies below the part that is searched, a frozen block that is freed counts as free and is never
 * found: with 100 MB free, 60 MB cannot be had. */
static void frozen_memory_that_is_freed_is_used_again(void **state)
{
    (void)state;
    static const char *const devices[] = {"sim:1GiB", "sim:1GiB,granule=64KiB", "sim:1GiB,virtual=off"};
    for (size_t d = 0; d < 3; d++) {
        for (size_t count = 1; count <= 10; count += 9) {
            pool_bench s = bench_open(devices[d], 100 * MIB, d == 2 ? 100 * MIB : 0);
            loch_buffer *weights[10] = {NULL};
            for (size_t i = 0; i < count; i++)
                weights[i] = make(&s, 100 * MIB / count, s.streams[0]);
            loch_freeze_report report = {.size = sizeof report};
            CHECK_OK(loch_pool_freeze(s.pool, NULL, &report));
            assert_int_equal(report.blocks, count);
            void *none;
            CHECK_FAILS_SET(loch_alloc(s.pool, 60 * MIB, &none), POOL_SHORT);
            for (size_t i = 0; i < count; i++)
                loch_buffer_release(weights[i]);
            assert_int_equal(free_bytes_of(s.pool), 100 * MIB);
            void *block = pool_alloc_on(s.pool, 60 * MIB, s.streams[1]);
            CHECK_OK(loch_free(s.pool, block));
            bench_close(&s);
        }
    }
}

static void expect_refused(loch_allocator *allocator, size_t bytes, size_t alignment)
{
    const unsigned refused = POOL_SHORT | TEST_SET(OVERFLOW) | TEST_SET(HOST_MEMORY);
    const loch_request request = {
        .size = sizeof request, .alignment = alignment, .flags = LOCH_ALLOC_MOVABLE | LOCH_ALLOC_NO_RETRY};
    loch_buffer *buffer = TEST_UNTOUCHED;
    void *block = TEST_UNTOUCHED;
    CHECK_FAILS_SET(pool_try_alloc(allocator, bytes, alignment, NULL, &block), refused);
    assert_null(block);
    CHECK_FAILS_SET(loch_buffer_create(allocator, bytes, &request, &buffer), refused | TEST_SET(UNSUPPORTED));
    assert_null(buffer);
    CHECK_FAILS_SET(loch_alloc_array(allocator, bytes / 4 + 1, 5, NULL, &block), refused);
    assert_null(block);
    assert_int_equal(tensor_live_blocks(allocator), 0);
}

/* A size that is rounded up without a check wraps around, and a block of nearly all addresses is one of no bytes. */
static void sizes_near_the_largest_do_not_wrap(void **state)
{
    (void)state;
    static const char *const devices[] = {"cpu", "sim:1GiB", "sim:1GiB,virtual=off"};
    static const size_t rounds[] = {0, 512, 1024, 1000 * 1000 + 1, GIB};
    static const size_t sizes[] = {SIZE_MAX,           SIZE_MAX - 1,     SIZE_MAX - 100,
                                   SIZE_MAX - 511,     SIZE_MAX - 1024,  SIZE_MAX - MIB,
                                   SIZE_MAX / 2 + MIB, SIZE_MAX / 2 + 1, SIZE_MAX / 2};
    for (size_t d = 0; d < 3; d++) {
        loch_device *device = sim_open(devices[d]);
        loch_allocator *direct;
        CHECK_OK(loch_direct_create(device, NULL, NULL, &direct));
        for (size_t r = 0; r < sizeof rounds / sizeof *rounds; r++) {
            const loch_pool_options options = {.size = sizeof options, .round_bytes = rounds[r]};
            const loch_child_options quota = {.size = sizeof quota, .pool = &options};
            loch_allocator *pool = pool_make(device, &options), *child, *range = child_range(pool, 16 * KIB);
            CHECK_OK(loch_pool_create_child(pool, NULL, &quota, &child));
            for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
                for (size_t alignment = 0; alignment <= 2 * MIB; alignment += 2 * MIB) {
                    expect_refused(child, sizes[i], alignment);
                    expect_refused(range, sizes[i], alignment);
                    expect_refused(direct, sizes[i], alignment);
                }
            }
            loch_allocator_release(range);
            loch_allocator_release(child);
            for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++)
                expect_refused(pool, sizes[i], 0);
            pool_expect_empty(pool);
            loch_allocator_release(pool);
        }
        loch_allocator_release(direct);
        loch_device_release(device);
    }
}

#define LARGE_COUNT 6000 /* buffers of 1 MiB on average */

static void add_moved(loch_allocator *pool, const loch_move *move, void *user)
{
    (void)pool;
    *(size_t *)user += move->bytes;
}

/* Fills a pool with buffers up to its limit, and frees one of `part`. Returns how much is free then. */
static size_t fill_and_thin(const pool_bench *s, loch_buffer **buffers, size_t part)
{
    const loch_request once = {.size = sizeof once, .flags = LOCH_ALLOC_MOVABLE | LOCH_ALLOC_NO_RETRY};
    test_random random = {17};
    CHECK_OK(loch_pool_forbid_moving(s->pool));
    for (size_t i = 0, least = 500 * KIB; i < LARGE_COUNT; i++) {
        const size_t bytes = least + test_random_below(&random, 2 * least);
        if (loch_buffer_create(s->pool, bytes, &once, &buffers[i]) != LOCH_OK && (least /= 2) < 9 * KIB) break;
    }
    for (size_t i = 0; i < LARGE_COUNT; i += part)
        loch_buffer_clear(&buffers[i]);
    CHECK_OK(loch_pool_allow_moving(s->pool));
    return pool_info(s->pool).free_bytes;
}

/* A compaction that slides everything together copies gigabytes for a kilobyte that is missing. */
static void a_small_shortage_moves_little(void **state)
{
    (void)state;
    static loch_buffer *buffers[LARGE_COUNT];
    static const char *const devices[] = {"sim:16GiB", "sim:16GiB,virtual=off"};
    for (size_t i = 0; i < 4; i++) {
        pool_bench s = bench_open(devices[i / 2], 4 * GIB, i / 2 ? 256 * MIB : 0);
        size_t moved = 0;
        const size_t left = fill_and_thin(&s, buffers, i % 2 ? 2 : 30), largest = pool_info(s.pool).largest_free_bytes;
        assert_true(pool_info(s.pool).used_bytes > GIB && left > 50 * MIB);
        CHECK_OK(loch_pool_set_move_hook(s.pool, add_moved, &moved));
        void *block = pool_alloc(s.pool, largest + MIB);
        print_message("%s: %zu MiB in use, %zu KiB moved for 1 MiB more than the largest hole\n", devices[i / 2],
                      (4 * GIB - left) >> 20, moved >> 10);
        assert_true(moved <= 4 * MIB);
        loch_compact_report report = {.size = sizeof report};
        loch_compact_options goal = {.size = sizeof goal, .contiguous_bytes = pool_info(s.pool).largest_free_bytes};
        CHECK_OK(loch_pool_compact(s.pool, &goal, &report));
        assert_int_equal(report.moved_bytes, 0); /* it is there */
        goal.contiguous_bytes += MIB;
        CHECK_OK(loch_pool_compact(s.pool, &goal, &report));
        assert_true(report.moved_bytes > 0 && report.moved_bytes <= 4 * MIB);
        CHECK_OK(loch_free(s.pool, block));
        for (size_t k = 0; k < LARGE_COUNT; k++)
            loch_buffer_clear(&buffers[k]);
        bench_close(&s);
    }
}

static loch_status op_alloc(const pool_bench *s)
{
    static const size_t sizes[] = {100, 8 * KIB, 100 * KIB, 3 * MIB};
    for (size_t i = 0; i < 4; i++) {
        void *block;
        const loch_status status = pool_try_alloc(s->pool, sizes[i], 0, s->streams[i], &block);
        if (status != LOCH_OK) return status;
        CHECK_OK(loch_free(s->pool, block));
    }
    return LOCH_OK;
}

static loch_status op_buffer(const pool_bench *s)
{
    const loch_request request = {.size = sizeof request, .stream = s->streams[1], .flags = LOCH_ALLOC_MOVABLE};
    loch_buffer *buffer;
    void *address;
    loch_status status = loch_buffer_create(s->pool, 50 * KIB, &request, &buffer);
    if (status == LOCH_OK) status = loch_buffer_pin(buffer, s->streams[2], &address);
    if (status == LOCH_OK) status = loch_buffer_unpin(buffer, s->streams[2]);
    if (status == LOCH_OK) status = loch_buffer_record_use(buffer, s->streams[3]);
    loch_buffer_release(buffer);
    return status;
}

static loch_status op_compact(const pool_bench *s)
{
    const loch_compact_options options = {.size = sizeof options, .stream = s->streams[3]};
    return loch_pool_compact(s->pool, &options, NULL);
}

static loch_status op_freeze(const pool_bench *s)
{
    const loch_freeze_options options = {.size = sizeof options, .stream = s->streams[3]};
    const loch_status status = loch_pool_freeze(s->pool, &options, NULL);
    return status == LOCH_OK ? loch_pool_unfreeze(s->pool, 0, NULL) : status;
}

static loch_status child_of_kind(const pool_bench *s, loch_child_kind kind)
{
    loch_allocator *child;
    void *block = NULL;
    loch_status status = child_try(s->pool, kind, 0, 4 * MIB, s->streams[1], &child);
    if (status != LOCH_OK) return status;
    status = loch_alloc(child, 100 * KIB, &block);
    CHECK_OK(loch_free(child, block));
    loch_allocator_release(child);
    return status;
}

static loch_status op_range(const pool_bench *s)
{
    return child_of_kind(s, LOCH_CHILD_RANGE);
}

static loch_status op_quota(const pool_bench *s)
{
    return child_of_kind(s, LOCH_CHILD_QUOTA);
}

typedef struct operation_on {
    operation *op;
    const char *device;
} operation_on;

/* After a failed allocation of bookkeeping the pool is whole, unlocked, and can do it. */
static void operate_while_failing(test_round *round, const void *user)
{
    const operation_on *it = user;
    pool_bench s = bench_open(it->device, 48 * MIB, 0);
    loch_buffer *buffers[MANY];
    make_holes(&s, buffers, MANY, 100 * KIB);
    const size_t blocks = tensor_live_blocks(s.pool);
    test_round_begin(round, s.device);
    const loch_status status = it->op(&s);
    test_round_end(round);
    if (status != LOCH_OK) assert_true((POOL_SHORT | TEST_SET(HOST_MEMORY)) & 1u << status);
    round->is_felt = status != LOCH_OK;
    pool_expect_whole(s.pool); /* under the pool's lock */
    assert_int_equal(tensor_live_blocks(s.pool), blocks);
    CHECK_OK(it->op(&s));
    for (size_t i = 1; i < MANY; i += 2)
        loch_buffer_release(buffers[i]);
    bench_close(&s);
}

/* When the list of blocks cannot grow, the half-made block is freed under the lock that is held, and a constructor that
 * fails in the middle leaves what it had taken so far. */
static void want_of_host_memory_holds_no_lock(void **state)
{
    (void)state;
    static operation *const operations[] = {op_alloc, op_buffer, op_compact, op_freeze, op_range, op_quota};
    static const char *const devices[] = {"sim:64MiB,granule=64KiB", "sim:64MiB,virtual=off"};
    test_faults once = test_host_faults;
    uint64_t felt = 0;
    once.only = TEST_FAILING_ONCE;
    alarm(WATCHDOG_SECONDS);
    for (size_t d = 0; d < 2; d++)
        for (size_t i = 0; i < sizeof operations / sizeof *operations; i++) {
            const operation_on it = {operations[i], devices[d]};
            felt += test_rounds_run(&once, devices[d], operate_while_failing, &it).felt;
        }
    alarm(0);
    assert_true(felt > 100);
}

static void *release_elsewhere(void *user)
{
    loch_buffer_release(user);
    return NULL;
}

/* Handles that are freed after their allocator, in a program's end for instance, call an object that is no more. */
static void handles_outlive_everything(void **state)
{
    (void)state;
    static const char *const devices[] = {"cpu", "sim:256MiB,granule=64KiB", "sim:256MiB,virtual=off"};
    for (size_t d = 0; d < 3; d++) {
        pool_bench s = bench_open(devices[d], 32 * MIB, 0), inner = s;
        loch_allocator *range = child_range(s.pool, 2 * MIB), *quota = child_quota(s.pool, 0, 4 * MIB), *direct;
        CHECK_OK(loch_direct_create(s.device, NULL, NULL, &direct));
        loch_allocator *owners[] = {s.pool, range, quota};
        loch_buffer *buffers[3], *part, *pinned;
        void *raw[4], *address;
        for (size_t i = 0; i < 3; i++) {
            inner.pool = owners[i];
            raw[i] = pool_alloc(owners[i], i ? 100 : 300 * KIB);
            buffers[i] = make(&inner, 100 * KIB, s.streams[0]);
        }
        raw[3] = pool_alloc(direct, 5000);
        CHECK_OK(loch_pool_compact(s.pool, NULL, NULL));
        pinned = make(&s, 50 * KIB, s.streams[1]);
        CHECK_OK(loch_buffer_pin(pinned, s.streams[1], &address));
        CHECK_OK(loch_buffer_slice(buffers[0], 10, 20, &part));
        for (size_t i = 0; i < STREAMS; i++)
            loch_stream_close(s.streams[i]);
        loch_allocator_release(s.pool);
        loch_allocator_release(range);
        loch_allocator_release(quota);
        loch_allocator_release(direct);
        loch_device_release(s.device);
        pthread_t thread;
        assert_int_equal(pthread_create(&thread, NULL, release_elsewhere, buffers[1]), 0);
        pthread_join(thread, NULL);
        CHECK_OK(loch_free(range, raw[1])); /* the end of the range */
        loch_buffer_release(buffers[0]);
        CHECK_OK(loch_free(s.pool, raw[0]));
        CHECK_OK(loch_free(direct, raw[3]));
        loch_buffer_release(pinned); /* with its pin */
        loch_buffer_release(part);
        CHECK_OK(loch_free(quota, raw[2]));
        loch_buffer_release(buffers[2]); /* the end of all, and of the device */
    }
}

int main(void)
{
    if (test_heap_install() != LOCH_OK) return 1;
    const struct CMUnitTest tests[] = {
        TENSOR_TEST(all_that_is_free_can_be_had),        TENSOR_TEST(frozen_memory_that_is_freed_is_used_again),
        TENSOR_TEST(sizes_near_the_largest_do_not_wrap), TENSOR_TEST(a_small_shortage_moves_little),
        TENSOR_TEST(want_of_host_memory_holds_no_lock),  TENSOR_TEST(handles_outlive_everything),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

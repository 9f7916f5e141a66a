/* SPDX-License-Identifier: MIT */
/* The direct allocator keeps its limit, gives all back, and keeps alignments. The comment of each test says what goes
 * wrong in other systems. */
#include "unit/memory/pool/crowd_fixture.h"

static void job_direct(worker *w)
{
    loch_allocator *direct = w->crowd->scene->pool;
    void *blocks[4] = {NULL};
    for (size_t step = 0; step < 1500; step++) {
        void **block = &blocks[test_random_below(&w->random, 4)];
        if (*block) {
            TRY(loch_free(direct, *block));
            *block = NULL;
            continue;
        }
        const loch_request request = {
            .size = sizeof request, .bytes = 1 + test_random_below(&w->random, 1000), .flags = LOCH_ALLOC_NO_RETRY};
        const loch_status status = loch_allocator_alloc(direct, &request, block);
        if (status != LOCH_E_LIMIT) TRY(status);
        loch_stats stats = {.size = sizeof stats};
        TRY(loch_allocator_get_stats(direct, &stats));
        EXPECT(stats.requested_bytes <= 5000);
    }
    for (size_t i = 0; i < 4; i++)
        TRY(loch_free(direct, blocks[i]));
}

/* An allocator for checking memory that has no lock, and hands out more than its limit. */
static void the_direct_allocator_keeps_its_limit(void **state)
{
    (void)state;
    for (int is_wrapped = 0; is_wrapped < 2; is_wrapped++) {
        pool_bench s = bench_open("sim:64MiB", 0, 0), inner = s;
        const loch_direct_options options = {.size = sizeof options, .limit_bytes = is_wrapped ? 0 : 5000};
        const loch_limit_options limit = {.size = sizeof limit, .hard_bytes = 5000};
        loch_allocator *direct;
        CHECK_OK(loch_direct_create(s.device, NULL, &options, &direct));
        inner.pool = direct;
        if (is_wrapped) CHECK_OK(loch_limit_create(direct, NULL, &limit, &inner.pool));
        void *none = TEST_UNTOUCHED;
        CHECK_FAILS(loch_alloc(inner.pool, 5001, &none), LIMIT);
        assert_null(none);
        crowd c = crowd_on(&inner);
        worker workers[4] = {{.job = job_direct}, {.job = job_direct}, {.job = job_direct}, {.job = job_direct}};
        crowd_run(&c, workers, 4, 0);
        assert_int_equal(pool_stats(inner.pool).requested_bytes, 0);
        CHECK_OK(loch_free(inner.pool, pool_alloc(inner.pool, 5000))); /* all of it is there again */
        assert_int_equal(sim_stats(s.device).physical_bytes, 0);
        if (is_wrapped) loch_allocator_release(inner.pool);
        loch_allocator_release(direct);
        bench_close(&s);
    }
}

/* Frees are deferred until the end of a session that is never ended: memory only grows, and is not even given back when
 * the allocator ends. */
static void the_direct_allocator_gives_all_back(void **state)
{
    (void)state;
    loch_device *device = sim_open("sim:64MiB,clock=stepped");
    loch_stream *stream = sim_stream(device, LOCH_STREAM_INDEPENDENT);
    const loch_direct_options options = {
        .size = sizeof options, .when = LOCH_DIRECT_FREE_DEFERRED, .limit_bytes = 40 * KIB};
    loch_allocator *direct;
    CHECK_OK(loch_direct_create(device, NULL, &options, &direct));
    for (size_t session = 0; session < 5; session++) {
        size_t released;
        void *none;
        for (size_t i = 0; i < 4; i++) {
            void *block = pool_alloc_on(direct, 10 * KIB, stream);
            CHECK_OK(busy_write(stream, block, 10 * KIB));
            CHECK_OK(loch_free(direct, block));
        }
        CHECK_FAILS(loch_alloc(direct, 1, &none), LIMIT); /* what is put off counts */
        if (session == 4) break;
        CHECK_OK(loch_direct_free_deferred(direct, &released));
        assert_int_equal(released, 40 * KIB);
        assert_int_equal(sim_stats(device).physical_bytes, 0);
    }
    assert_true(sim_stats(device).physical_bytes > 0);
    loch_allocator_release(direct); /* the last session ends with it */
    assert_int_equal(sim_stats(device).physical_bytes, 0);
    assert_int_equal(sim_violations(device, NULL), 0);
    loch_stream_close(stream);
    loch_device_release(device);
}

/* An alignment that is heard only up to the driver's own. */
static void the_direct_allocator_keeps_alignments(void **state)
{
    (void)state;
    static const char *const devices[] = {"cpu", "sim:64MiB,backed"};
    for (size_t d = 0; d < 2; d++) {
        loch_device *device = sim_open(devices[d]);
        loch_allocator *direct;
        CHECK_OK(loch_direct_create(device, NULL, NULL, &direct));
        for (size_t alignment = 1; alignment <= 4 * MIB; alignment *= 2) {
            void *block, *other;
            CHECK_OK(pool_try_alloc(direct, 100, alignment, NULL, &block));
            CHECK_OK(pool_try_alloc(direct, 3 * alignment + 1, alignment, NULL, &other));
            assert_int_equal((uintptr_t)block % alignment, 0);
            assert_int_equal((uintptr_t)other % alignment, 0);
            CHECK_OK(loch_free(direct, block));
            CHECK_OK(loch_free(direct, other));
            if (alignment > 2) CHECK_FAILS(pool_try_alloc(direct, 100, alignment + 1, NULL, &block), INVALID);
        }
        loch_allocator_release(direct);
        loch_device_release(device);
    }
}

int main(void)
{
    if (test_heap_install() != LOCH_OK) return 1;
    const struct CMUnitTest tests[] = {
        TENSOR_TEST(the_direct_allocator_keeps_its_limit),
        TENSOR_TEST(the_direct_allocator_gives_all_back),
        TENSOR_TEST(the_direct_allocator_keeps_alignments),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

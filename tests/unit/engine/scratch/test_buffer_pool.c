/* SPDX-License-Identifier: MIT */
/* Pools of buffers: what is kept and for whom, and whose buffers they are. */
#include "buffer_pool_fixture.h"

/* --- what is kept --- */

static void one_buffer_serves_again(void **state)
{
    (void)state;
    static const char *const names[] = {"cpu", STEPPED, "sim:64MiB,async=off"};
    for (size_t i = 0; i < 3; i++) {
        bench it = bench_open(names[i], NULL);
        loch_buffer *first = get(&it, 1000, it.a);
        const uint64_t id = loch_buffer_get_id(first);
        loch_buffer_pool_stats stats = stats_of(&it);
        assert_int_equal(stats.out, 1);
        assert_int_equal(stats.idle, 0);
        put(&it, first, it.a);
        CHECK_OK(loch_device_measure_calls(it.device, LOCH_MEASURE_OFF));
        for (size_t bytes = 1000; bytes >= 800; bytes -= 50) {
            loch_buffer *again = get(&it, bytes, it.a);
            assert_int_equal(loch_buffer_get_id(again), id);
            put(&it, again, it.a);
        }
        assert_int_equal(test_call_count(it.device, "stream_wait"), 0);
        assert_int_equal(test_call_count(it.device, "event_create"), 0);
        stats = stats_of(&it);
        assert_int_equal(stats.acquired, 6);
        assert_int_equal(stats.reused, 5);
        assert_int_equal(stats.out, 0);
        assert_int_equal(stats.idle, 1);
        assert_int_equal(stats.idle_bytes, 1000);
        bench_close(&it);
    }
}

static void waste_has_a_limit(void **state)
{
    (void)state;
    bench it = bench_open("cpu", NULL);
    put(&it, get(&it, 1000, NULL), NULL);
    loch_buffer *small = get(&it, 799, NULL); /* 1000 is more than a quarter larger */
    assert_int_equal(stats_of(&it).reused, 0);
    loch_buffer *close = get(&it, 800, NULL);
    assert_int_equal(stats_of(&it).reused, 1);
    put(&it, small, NULL);
    put(&it, close, NULL);
    loch_buffer *out = TEST_UNTOUCHED;
    CHECK_FAILS_SET(loch_buffer_pool_acquire(it.pool, SIZE_MAX, NULL, &out),
                    TEST_SET(OVERFLOW) | TEST_SET(DEVICE_MEMORY));
    assert_null(out);
    bench_close(&it);

    const loch_buffer_pool_options wasteful = {.size = sizeof wasteful, .waste_percent = UINT32_MAX};
    it = bench_open("cpu", &wasteful);
    put(&it, get(&it, 1 << 20, NULL), NULL);
    put(&it, get(&it, 1, NULL), NULL);
    assert_int_equal(stats_of(&it).reused, 1);
    bench_close(&it);
}

static void the_smallest_that_fits_and_of_equals_the_last(void **state)
{
    (void)state;
    const loch_buffer_pool_options wasteful = {.size = sizeof wasteful, .waste_percent = 100};
    bench it = bench_open("cpu", &wasteful);
    static const size_t sizes[] = {1900, 1200, 1000, 1500, 1200};
    loch_buffer *buffers[5];
    uint64_t ids[5];
    for (size_t i = 0; i < 5; i++) {
        buffers[i] = get(&it, sizes[i], NULL);
        ids[i] = loch_buffer_get_id(buffers[i]);
    }
    for (size_t i = 0; i < 5; i++)
        put(&it, buffers[i], NULL);
    static const size_t expected[] = {4, 1, 3, 0}; /* 1000 is too small for 1100 */
    for (size_t i = 0; i < 4; i++) {
        buffers[i] = get(&it, 1100, NULL);
        assert_int_equal(loch_buffer_get_id(buffers[i]), ids[expected[i]]);
    }
    for (size_t i = 0; i < 4; i++)
        put(&it, buffers[i], NULL);
    bench_close(&it);
}

static void what_was_unused_longest_goes_first(void **state)
{
    (void)state;
    const loch_buffer_pool_options few = {.size = sizeof few, .idle_count_max = 3, .idle_bytes_max = 100 * KIB};
    static const char *const names[] = {"cpu", STEPPED};
    for (size_t n = 0; n < 2; n++) {
        bench it = bench_open(names[n], &few);
        loch_buffer *buffers[5];
        uint64_t ids[5];
        for (size_t i = 0; i < 5; i++) {
            buffers[i] = get(&it, (i + 1) * KIB, NULL);
            ids[i] = loch_buffer_get_id(buffers[i]);
        }
        for (size_t i = 0; i < 3; i++)
            put(&it, buffers[i], NULL);
        put(&it, get(&it, KIB, NULL), NULL); /* the oldest is the newest now */
        put(&it, buffers[3], NULL);          /* and the one of 2 KiB goes */
        assert_int_equal(stats_of(&it).idle, 3);
        assert_int_equal(stats_of(&it).idle_bytes, (1 + 3 + 4) * KIB);
        loch_buffer *kept = get(&it, KIB, NULL);
        assert_int_equal(loch_buffer_get_id(kept), ids[0]);
        put(&it, kept, NULL);
        put(&it, buffers[4], NULL); /* 3 KiB goes */
        assert_int_equal(stats_of(&it).idle_bytes, (1 + 4 + 5) * KIB);

        put(&it, get(&it, 98 * KIB, NULL), NULL); /* bytes: 4, then 1 goes; not 5, though it is larger */
        assert_int_equal(stats_of(&it).idle_bytes, 98 * KIB);
        put(&it, get(&it, 101 * KIB, NULL), NULL); /* more than may be kept at all: the others stay */
        assert_int_equal(stats_of(&it).idle_bytes, 98 * KIB);
        bench_close(&it);
    }
}

static void a_trim_gives_back_what_is_idle(void **state)
{
    (void)state;
    bench it = bench_open(STEPPED, NULL);
    loch_buffer *buffers[4];
    size_t released = 99;
    for (size_t i = 0; i < 4; i++)
        buffers[i] = get(&it, (i + 1) * KIB, it.a);
    for (size_t i = 0; i < 4; i++)
        put(&it, buffers[i], it.a);
    CHECK_OK(loch_buffer_pool_trim(it.pool, 10 * KIB, &released));
    assert_int_equal(released, 0);
    CHECK_OK(loch_buffer_pool_trim(it.pool, 8 * KIB, &released));
    assert_int_equal(released, 3 * KIB); /* 1 is not enough */
    assert_int_equal(stats_of(&it).idle, 2);
    CHECK_OK(loch_buffer_pool_trim(it.pool, 0, NULL));
    assert_int_equal(stats_of(&it).idle_bytes, 0);
    assert_int_equal(stats_of(&it).idle, 0);
    loch_stats figures = {.size = sizeof figures};
    CHECK_OK(loch_allocator_get_stats(it.allocator, &figures));
    assert_int_equal(figures.blocks, 0);
    assert_int_equal(sim_stats(it.device).events, 0); /* nor events for buffers to come */
    CHECK_FAILS(loch_buffer_pool_trim(NULL, 0, &released), INVALID);
    assert_int_equal(released, 0);
    bench_close(&it);
}

static void nothing_is_a_buffer_too(void **state)
{
    (void)state;
    bench it = bench_open(STEPPED, NULL);
    loch_buffer *empty = get(&it, 0, it.a);
    assert_null(loch_buffer_get_address(empty));
    put(&it, empty, it.b);
    assert_int_equal(stats_of(&it).idle, 0);
    put(&it, NULL, it.a);
    bench_close(&it);
}

static void buffers_have_the_alignment_and_tag_of_the_pool(void **state)
{
    (void)state;
    loch_tag tag;
    CHECK_OK(loch_tag_create("scratch", &tag));
    const loch_buffer_pool_options options = {.size = sizeof options, .alignment = 4096, .tag = tag};
    bench it = bench_open("cpu", &options);
    loch_buffer *buffer = get(&it, 100, NULL);
    assert_int_equal((uintptr_t)loch_buffer_get_address(buffer) % 4096, 0);
    loch_block block = {.size = sizeof block};
    CHECK_OK(loch_allocator_find(it.allocator, loch_buffer_get_address(buffer), &block));
    assert_int_equal(block.tag, tag);
    put(&it, buffer, NULL);
    bench_close(&it);
}

/* A pool that keeps buffers must not be why others run out of memory. */
static void what_is_kept_goes_when_memory_is_short(void **state)
{
    (void)state;
    bench it = {.device = sim_open("sim:64MiB,granule=64KiB,clock=stepped")};
    const loch_pool_options limited = {.size = sizeof limited, .limit_bytes = 8 * TEST_MIB};
    CHECK_OK(loch_pool_create(it.device, "limited", &limited, &it.allocator));
    CHECK_OK(loch_buffer_pool_create(it.allocator, NULL, &it.pool));
    loch_buffer *first = get(&it, 4 * TEST_MIB, NULL), *second = get(&it, 3 * TEST_MIB, NULL);
    put(&it, first, NULL);
    put(&it, second, NULL);
    void *block;
    CHECK_OK(loch_alloc(it.allocator, 4 * TEST_MIB, &block)); /* allocated by other code */
    assert_int_equal(stats_of(&it).idle, 1);                  /* no more than needed */
    loch_buffer *large;
    CHECK_FAILS_SET(loch_buffer_pool_acquire(it.pool, 6 * TEST_MIB, NULL, &large),
                    TEST_SET(LIMIT) | TEST_SET(DEVICE_MEMORY) | TEST_SET(FRAGMENTED));
    assert_int_equal(stats_of(&it).idle, 0);
    CHECK_OK(loch_free(it.allocator, block));
    put(&it, get(&it, 6 * TEST_MIB, NULL), NULL); /* and the pool's own */
    put(&it, get(&it, 8 * TEST_MIB, NULL), NULL);
    bench_close(&it);
}

/* --- whose it is --- */

static void buffers_of_others_are_foreign(void **state)
{
    (void)state;
    bench it = bench_open(STEPPED, NULL);
    loch_buffer_pool *other;
    loch_buffer *plain, *part, *mine = get(&it, 1000, it.a);
    CHECK_OK(loch_buffer_pool_create(it.allocator, NULL, &other));
    CHECK_OK(loch_buffer_create(it.allocator, 1000, NULL, &plain));
    CHECK_OK(loch_buffer_slice(mine, 0, 10, &part));
    CHECK_FAILS(loch_buffer_pool_release(other, mine, it.a), FOREIGN);
    CHECK_FAILS(loch_buffer_pool_release(it.pool, plain, it.a), FOREIGN);
    CHECK_FAILS(loch_buffer_pool_release(it.pool, part, it.a), FOREIGN);
    assert_int_equal(loch_buffer_get_references(plain), 1);
    assert_int_equal(loch_buffer_get_references(mine), 2); /* itself and the part */
    assert_int_equal(stats_of(&it).out, 1);
    loch_buffer_release(part);
    loch_buffer_release(plain);
    loch_buffer_pool_destroy(other);
    put(&it, mine, it.a);
    CHECK_FAILS(loch_buffer_pool_release(it.pool, mine, it.a), FOREIGN); /* the pool's own now: kept alive, not ours */
    assert_int_equal(stats_of(&it).idle, 1);
    assert_int_equal(stats_of(&it).out, 0);
    bench_close(&it);
}

static void what_others_hold_is_not_kept(void **state)
{
    (void)state;
    bench it = bench_open(STEPPED, NULL);
    loch_buffer *buffer = loch_buffer_retain(get(&it, 1000, it.a));
    put(&it, buffer, it.a);
    assert_int_equal(stats_of(&it).idle, 0);
    assert_int_equal(loch_buffer_get_references(buffer), 1);
    CHECK_OK(writes(it.a, buffer));
    loch_buffer_release(buffer);
    loch_buffer *part;
    buffer = get(&it, 1000, it.a);
    CHECK_OK(loch_buffer_slice(buffer, 500, 100, &part));
    put(&it, buffer, it.a);
    assert_int_equal(stats_of(&it).idle, 0);
    assert_non_null(loch_buffer_get_address(part));
    loch_buffer_release(part);
    loch_buffer_release(get(&it, 1000, it.a)); /* simply released: not kept */
    assert_int_equal(stats_of(&it).idle, 0);
    bench_close(&it);
}

static void owners_may_resize_and_detach(void **state)
{
    (void)state;
    const loch_buffer_pool_options aligned = {.size = sizeof aligned, .alignment = 4096};
    bench it = bench_open("cpu", &aligned);
    loch_buffer *buffer = get(&it, 1000, NULL);
    CHECK_OK(loch_buffer_resize(buffer, 300 * KIB, LOCH_CONTENTS_DROP, NULL));
    put(&it, buffer, NULL);
    assert_int_equal(stats_of(&it).idle_bytes, 300 * KIB);
    buffer = get(&it, 300 * KIB, NULL);
    assert_int_equal(stats_of(&it).reused, 1);
    assert_int_equal((uintptr_t)loch_buffer_get_address(buffer) % 4096, 0);
    void *block;
    CHECK_OK(loch_buffer_detach(buffer, &block));
    put(&it, buffer, NULL);
    assert_int_equal(stats_of(&it).idle, 0);
    CHECK_OK(loch_free(it.allocator, block));
    bench_close(&it);
}

static void the_pool_may_go_first(void **state)
{
    (void)state;
    bench it = bench_open(STEPPED, NULL);
    for (int i = 0; i < 4; i++) { /* often at the same address: marks must not be addresses */
        loch_buffer *out = get(&it, 1000, it.a), *idle = get(&it, 5000, it.a);
        put(&it, idle, it.a);
        CHECK_OK(writes(it.a, out));
        loch_buffer_pool_destroy(it.pool);
        CHECK_OK(loch_buffer_pool_create(it.allocator, NULL, &it.pool));
        CHECK_FAILS(loch_buffer_pool_release(it.pool, out, it.a), FOREIGN);
        CHECK_OK(writes(it.a, out));
        loch_buffer_release(out);
    }
    loch_buffer_pool_destroy(NULL);
    bench_close(&it);
}

int main(void)
{
    if (test_heap_install() != LOCH_OK) return 1;
    const struct CMUnitTest tests[] = {
        SIM_TEST(one_buffer_serves_again),
        SIM_TEST(waste_has_a_limit),
        SIM_TEST(the_smallest_that_fits_and_of_equals_the_last),
        SIM_TEST(what_was_unused_longest_goes_first),
        SIM_TEST(a_trim_gives_back_what_is_idle),
        SIM_TEST(nothing_is_a_buffer_too),
        SIM_TEST(buffers_have_the_alignment_and_tag_of_the_pool),
        SIM_TEST(what_is_kept_goes_when_memory_is_short),
        SIM_TEST(buffers_of_others_are_foreign),
        SIM_TEST(what_others_hold_is_not_kept),
        SIM_TEST(owners_may_resize_and_detach),
        SIM_TEST(the_pool_may_go_first),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

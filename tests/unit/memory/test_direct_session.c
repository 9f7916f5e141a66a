/* SPDX-License-Identifier: MIT */
/* The direct allocator in time: the streams that it waits for, sessions, red zones and poison. */
#include "wrap_fixture.h"

/* --- streams --- */

static void free_waits_for_the_streams_of_the_block_alone(void **state)
{
    const test_bed *bed = wrap_bed(state);
    loch_allocator *direct = wrap_direct(bed);
    loch_stream *of_alloc = wrap_stream(bed), *used = wrap_stream(bed), *of_free = wrap_stream(bed);
    loch_stream *unrelated = wrap_stream(bed);
    char *block = wrap_alloc_on(direct, 3000, of_alloc), *other = wrap_alloc_on(direct, 3000, unrelated);
    wrap_kernel(bed, of_alloc, block, 1000);
    wrap_kernel(bed, used, block + 1000, 1000);
    wrap_kernel(bed, of_free, block + 2000, 1000);
    wrap_kernel(bed, unrelated, other, 3000);
    wrap_kernel(bed, unrelated, other, 3000);
    CHECK_OK(loch_allocator_record_use(direct, block, used));
    CHECK_OK(loch_allocator_record_use(direct, block, used));
    CHECK_OK(loch_allocator_record_use(direct, block, of_alloc));
    CHECK_OK(loch_allocator_free_on(direct, block, of_free));
    if (bed->is_stepped) {
        CHECK_OK(loch_stream_query(of_alloc));
        CHECK_OK(loch_stream_query(used));
        CHECK_OK(loch_stream_query(of_free));
        CHECK_STATUS(loch_stream_query(unrelated), LOCH_E_BUSY);
    }
    CHECK_OK(loch_free(direct, other));
    assert_false(loch_allocator_get_traits(direct) & LOCH_TRAIT_STREAM_ORDERED);
    loch_stream_close(of_alloc);
    loch_stream_close(used);
    loch_stream_close(of_free);
    loch_stream_close(unrelated);
    loch_allocator_release(direct);
}

static void a_block_is_freed_after_its_streams_have_ended(void **state)
{
    const test_bed *bed = wrap_bed(state);
    for (int deferred = 0; deferred < 2; deferred++) {
        loch_allocator *direct = wrap_direct_with(
            bed, (loch_direct_options){.when = deferred ? LOCH_DIRECT_FREE_DEFERRED : LOCH_DIRECT_FREE_NOW,
                                       .red_zone_bytes = 100,
                                       .poison = 0x5a});
        loch_stream *of_alloc = wrap_stream(bed), *used = wrap_stream(bed), *third = wrap_stream(bed);
        char *a = wrap_alloc_on(direct, 2000, of_alloc), *b = wrap_alloc_on(direct, 2000, third);
        char *c = wrap_alloc_on(direct, 2000, third);
        CHECK_OK(loch_stream_sync(third)); /* the poison of the new block is on its stream */
        wrap_kernel(bed, of_alloc, a, 2000);
        wrap_kernel(bed, third, b, 1000);
        wrap_kernel(bed, used, b + 1000, 1000);
        CHECK_OK(loch_allocator_record_use(direct, b, used));
        loch_stream_close(of_alloc);
        loch_stream_close(used);
        CHECK_OK(loch_free(direct, a));
        CHECK_OK(loch_free(direct, b));
        CHECK_OK(loch_free(direct, c));
        loch_stream_close(third); /* between the free and the end of the session */
        CHECK_OK(loch_direct_free_deferred(direct, NULL));
        loch_allocator_release(direct);
    }
}

static void what_cannot_be_waited_for_stays(void **state)
{
    const test_bed *bed = wrap_bed(state);
    if (!bed->is_sim || !test_bed_can(bed, LOCH_CAN_ASYNC)) return;
    for (int deferred = 0; deferred < 2; deferred++) {
        loch_allocator *direct = wrap_direct_with(
            bed, (loch_direct_options){.when = deferred ? LOCH_DIRECT_FREE_DEFERRED : LOCH_DIRECT_FREE_NOW});
        void *block = wrap_alloc(direct, 1000);
        wrap_kernel(bed, NULL, block, 1000);
        size_t released = 1;
        if (deferred) CHECK_OK(loch_free(direct, block));
        const loch_sim_fault fault = {.size = sizeof fault, .mode = LOCH_SIM_FAULT_FOREVER};
        CHECK_OK(loch_sim_set_fault(bed->device, &fault));
        if (deferred) {
            CHECK_FAILS(loch_direct_free_deferred(direct, &released), DRIVER);
            assert_int_equal(released, 0);
        } else {
            CHECK_FAILS(loch_free(direct, block), DRIVER);
        }
        CHECK_OK(loch_sim_set_fault(bed->device, NULL));
        assert_int_equal(wrap_stats(direct).blocks, !deferred);
        assert_int_equal(wrap_stats(direct).reserved_bytes, 1000);
        const loch_sim_fault once = {.size = sizeof once, .call = "stream_sync", .mode = LOCH_SIM_FAULT_FOREVER};
        CHECK_OK(loch_sim_set_fault(bed->device, &once)); /* then the whole device is waited for */
        if (!deferred) CHECK_OK(loch_free(direct, block));
        CHECK_OK(loch_direct_free_deferred(direct, &released));
        assert_int_equal(released, deferred ? 1000 : 0);
        CHECK_OK(loch_sim_set_fault(bed->device, NULL));
        loch_allocator_release(direct);
    }
}

static void a_lost_device_takes_its_blocks_back(void **state)
{
    (void)state;
    for (int deferred = 0; deferred < 2; deferred++) {
        loch_device *device;
        CHECK_OK(loch_device_open("sim:64MiB,backed,id=77", &device));
        const loch_direct_options options = {.size = sizeof options,
                                             .when = deferred ? LOCH_DIRECT_FREE_DEFERRED : LOCH_DIRECT_FREE_NOW,
                                             .red_zone_bytes = 64,
                                             .poison = 9};
        loch_allocator *direct;
        CHECK_OK(loch_direct_create(device, NULL, &options, &direct));
        void *a = wrap_alloc(direct, 100), *b = wrap_alloc(direct, 100);
        CHECK_OK(loch_free(direct, a));
        CHECK_OK(loch_sim_lose(device));
        CHECK_OK(loch_free(direct, b));
        CHECK_OK(loch_direct_free_deferred(direct, NULL));
        loch_allocator_release(direct);
        loch_sim_stats stats = {.size = sizeof stats};
        CHECK_OK(loch_sim_get_stats(device, &stats));
        assert_int_equal(stats.physical_bytes, 0);
        loch_device_release(device);
    }
}

/* --- sessions --- */

static void deferred_frees_end_with_their_session(void **state)
{
    const test_bed *bed = wrap_bed(state);
    loch_allocator *direct =
        wrap_direct_with(bed, (loch_direct_options){.when = LOCH_DIRECT_FREE_DEFERRED, .limit_bytes = 10000});
    assert_true(loch_allocator_get_traits(direct) & LOCH_TRAIT_STREAM_ORDERED);
    loch_stream *stream = wrap_stream(bed), *other = wrap_stream(bed);
    void *blocks[4];
    for (size_t i = 0; i < 4; i++) {
        blocks[i] = wrap_alloc_on(direct, 2500, stream);
        for (size_t j = 0; j < i; j++)
            assert_ptr_not_equal(blocks[i], blocks[j]);
        wrap_kernel(bed, stream, blocks[i], 2500);
        if (i == 1) CHECK_OK(loch_allocator_record_use(direct, blocks[i], other));
        if (i == 2)
            CHECK_OK(loch_allocator_free_on(direct, blocks[i], other));
        else
            CHECK_OK(loch_free(direct, blocks[i]));
        CHECK_FAILS(loch_free(direct, blocks[i]), DOUBLE_FREE);
    }
    if (bed->is_stepped) CHECK_STATUS(loch_stream_query(stream), LOCH_E_BUSY); /* nothing has waited */
    loch_stats stats = wrap_stats(direct);
    assert_int_equal(stats.blocks, 0);
    assert_int_equal(stats.requested_bytes, 0);
    assert_int_equal(stats.cached_bytes, 10000);
    assert_int_equal(stats.reserved_bytes, 10000);
    void *block;
    CHECK_FAILS(loch_alloc(direct, 1, &block), LIMIT); /* what is deferred counts */
    size_t released = 7;
    CHECK_OK(loch_allocator_trim(direct, 0, &released));
    assert_int_equal(released, 0);
    CHECK_OK(loch_direct_free_deferred(direct, &released));
    assert_int_equal(released, 10000);
    stats = wrap_stats(direct);
    assert_int_equal(stats.cached_bytes, 0);
    assert_int_equal(stats.reserved_bytes, 0);
    block = wrap_alloc(direct, 10000);
    CHECK_OK(loch_direct_free_deferred(direct, &released)); /* what is live stays */
    assert_int_equal(released, 0);
    CHECK_OK(loch_free(direct, block));
    CHECK_OK(loch_direct_free_deferred(direct, NULL));
    loch_stream_close(stream);
    loch_stream_close(other);
    loch_allocator_release(direct);
}

static void many_deferred_blocks_stay_known(void **state)
{
    enum { COUNT = 500 };
    const test_bed *bed = wrap_bed(state);
    static void *blocks[COUNT];
    loch_allocator *direct = wrap_direct_with(bed, (loch_direct_options){.when = LOCH_DIRECT_FREE_DEFERRED});
    for (size_t i = 0; i < COUNT; i++) {
        blocks[i] = wrap_alloc(direct, 64);
        CHECK_OK(loch_free(direct, blocks[i]));
    }
    for (size_t i = 0; i < COUNT; i++)
        CHECK_FAILS(loch_free(direct, blocks[i]), DOUBLE_FREE);
    CHECK_OK(loch_device_measure_calls(bed->device, LOCH_MEASURE_OFF));
    size_t released;
    CHECK_OK(loch_direct_free_deferred(direct, &released));
    assert_int_equal(released, COUNT * 64);
    assert_int_equal(test_call_count(bed->device, "stream_sync"), 1); /* one wait for the one stream */
    loch_allocator_release(direct);
}

static void *end_later(void *user)
{
    CHECK_OK(loch_direct_free_deferred(user, NULL));
    return NULL;
}

/* A request that waits for memory is woken by the end of a session too. */
static void the_end_of_a_session_wakes_waiters(void **state)
{
    const test_bed *bed = wrap_bed(state);
    loch_allocator *direct =
        wrap_direct_with(bed, (loch_direct_options){.when = LOCH_DIRECT_FREE_DEFERRED, .limit_bytes = 100});
    void *block = wrap_alloc(direct, 100);
    CHECK_OK(loch_free(direct, block));
    pthread_t thread;
    assert_int_equal(pthread_create(&thread, NULL, end_later, direct), 0);
    const loch_request request = {.size = sizeof request, .bytes = 100, .timeout_ns = 10000000000u};
    loch_status status = LOCH_E_LIMIT;
    while (status == LOCH_E_LIMIT)
        status = loch_allocator_alloc(direct, &request, &block);
    CHECK_OK(status);
    pthread_join(thread, NULL);
    CHECK_OK(loch_free(direct, block));
    loch_allocator_release(direct);
}

/* --- red zones and poison --- */

static void red_zones_are_checked_at_free(void **state)
{
    const test_bed *bed = wrap_bed(state);
    for (int deferred = 0; deferred < 2; deferred++) {
        loch_allocator *direct = wrap_direct_with(
            bed, (loch_direct_options){.when = deferred ? LOCH_DIRECT_FREE_DEFERRED : LOCH_DIRECT_FREE_NOW,
                                       .red_zone_bytes = 3000});
        loch_stream *stream = wrap_stream(bed);
        const ptrdiff_t places[] = {-1, -3000, 1000, 3999};
        for (size_t i = 0; i < 4; i++) {
            char *block = wrap_alloc_on(direct, 1000, stream);
            char *good = wrap_alloc_on(direct, 1000, stream);
            test_bed_put(bed, good, 1000, i); /* up to the edges is fine */
            wrap_poke(stream, block + places[i], 1);
            size_t released = 0;
            if (deferred) CHECK_OK(loch_free(direct, block));
            CHECK_OK(loch_free(direct, good));
            loch_error_clear();
            const loch_status status =
                deferred ? loch_direct_free_deferred(direct, &released) : loch_free(direct, block);
            assert_int_equal(status, bed->has_data ? LOCH_E_CORRUPT : LOCH_OK);
            if (bed->has_data) {
                char where[32];
                snprintf(where, sizeof where, "%p", (void *)block);
                assert_non_null(strstr(loch_error_get()->sentence, where));
                assert_non_null(strstr(loch_error_get()->sentence, places[i] < 0 ? "in front" : "behind its end"));
            }
            assert_int_equal(released, deferred ? 2000 : 0);
            assert_int_equal(wrap_stats(direct).reserved_bytes, 0); /* freed anyway */
            CHECK_FAILS(loch_free(direct, block), DOUBLE_FREE);
        }
        loch_stream_close(stream);
        loch_allocator_release(direct);
    }
}

static void new_blocks_are_poisoned_or_zeroed(void **state)
{
    const test_bed *bed = wrap_bed(state);
    loch_allocator *direct = wrap_direct_with(bed, (loch_direct_options){.red_zone_bytes = 64, .poison = 0xa7});
    void *block = wrap_alloc(direct, 10000);
    test_bed_expect_byte(bed, block, 10000, 0xa7);
    CHECK_OK(loch_free(direct, block));
    const loch_request request = {.size = sizeof request, .bytes = 10000, .flags = LOCH_ALLOC_ZEROED};
    CHECK_OK(loch_allocator_alloc(direct, &request, &block));
    test_bed_expect_byte(bed, block, 10000, 0);
    CHECK_OK(loch_free(direct, block));
    loch_allocator_release(direct);
}

static void writing_to_a_deferred_block_is_found(void **state)
{
    const test_bed *bed = wrap_bed(state);
    loch_allocator *direct =
        wrap_direct_with(bed, (loch_direct_options){.when = LOCH_DIRECT_FREE_DEFERRED, .poison = 0xa7});
    loch_stream *stream = wrap_stream(bed), *used = wrap_stream(bed);
    char *good = wrap_alloc_on(direct, 3 * TEST_MIB, stream), *bad = wrap_alloc_on(direct, 3 * TEST_MIB, stream);
    CHECK_OK(loch_stream_sync(stream)); /* the poison of the new block is on its stream */
    wrap_kernel(bed, used, bad, 100);
    CHECK_OK(loch_allocator_record_use(direct, bad, used)); /* the poison comes behind this */
    CHECK_OK(loch_free(direct, good));
    CHECK_OK(loch_free(direct, bad));
    wrap_poke(stream, bad + 2 * TEST_MIB + 5, 0);
    loch_error_clear();
    size_t released;
    assert_int_equal(loch_direct_free_deferred(direct, &released), bed->has_data ? LOCH_E_CORRUPT : LOCH_OK);
    if (bed->has_data) assert_non_null(strstr(loch_error_get()->sentence, "2097157 bytes behind its start, after"));
    assert_int_equal(released, 6 * TEST_MIB);
    assert_int_equal(wrap_stats(direct).reserved_bytes, 0);
    loch_stream_close(stream);
    loch_stream_close(used);
    loch_allocator_release(direct);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(free_waits_for_the_streams_of_the_block_alone),
        cmocka_unit_test(a_block_is_freed_after_its_streams_have_ended),
        cmocka_unit_test(what_cannot_be_waited_for_stays),
        cmocka_unit_test(a_lost_device_takes_its_blocks_back),
        cmocka_unit_test(deferred_frees_end_with_their_session),
        cmocka_unit_test(many_deferred_blocks_stay_known),
        cmocka_unit_test(the_end_of_a_session_wakes_waiters),
        cmocka_unit_test(red_zones_are_checked_at_free),
        cmocka_unit_test(new_blocks_are_poisoned_or_zeroed),
        cmocka_unit_test(writing_to_a_deferred_block_is_found),
    };
    return TEST_BED_RUN(tests);
}

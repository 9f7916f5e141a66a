/* SPDX-License-Identifier: MIT */
/* The lock wrapper around an allocator that is not thread safe: its counters are plain numbers, so a call that slips
 * past the lock loses counts, and ThreadSanitizer sees it. */
#include "memory/allocator_state.h"
#include "wrap_fixture.h"

static loch_allocator *locked_around(loch_allocator *wrapped)
{
    loch_allocator *locked;
    CHECK_OK(loch_locked_create(wrapped, NULL, &locked));
    loch_allocator_release(wrapped);
    return locked;
}

static void everything_is_forwarded(void **state)
{
    const test_bed *bed = wrap_bed(state);
    wrap_plain plain;
    loch_allocator *locked = locked_around(wrap_plain_create(bed, &plain, LOCH_TRAIT_ZEROES));
    assert_string_equal(locked->ops.kind, "locked");
    assert_string_equal(loch_allocator_get_name(locked), "plain");
    assert_int_equal(loch_allocator_get_traits(locked), LOCH_TRAIT_THREAD_SAFE | LOCH_TRAIT_ZEROES);
    void *block = wrap_alloc(locked, 100);
    loch_block found = {.size = sizeof found};
    CHECK_FAILS(loch_allocator_find(locked, block, &found), UNSUPPORTED);
    assert_int_equal(wrap_stats(locked).blocks, 1);
    loch_tag tag;
    CHECK_OK(loch_tag_create("locked", &tag));
    loch_stats of_tag = {.size = sizeof of_tag};
    CHECK_FAILS(loch_allocator_get_tag_stats(locked, tag, &of_tag), UNSUPPORTED);
    size_t released;
    CHECK_OK(loch_allocator_trim(locked, 41, &released));
    assert_int_equal(released, 42);
    CHECK_FAILS(loch_allocator_record_use(locked, block, NULL), UNSUPPORTED);
    const uint32_t of_device =
        test_bed_can(bed, LOCH_CAN_HOST_ACCESS) ? LOCH_ATTRIBUTE_ON_HOST : LOCH_ATTRIBUTE_GPU_COMPATIBLE;
    assert_int_equal(loch_allocator_get_attributes(locked).bits, of_device);
    CHECK_OK(loch_allocator_free_sized(locked, block, 100));
    assert_int_equal(plain.bytes, 0);
    loch_allocator_release(locked);
    assert_true(plain.is_destroyed);
}

static loch_status sum_blocks(const loch_block *block, void *user)
{
    *(size_t *)user += block->requested_bytes;
    return LOCH_OK;
}

static void what_the_wrapped_one_knows_of_blocks_is_told(void **state)
{
    const test_bed *bed = wrap_bed(state);
    loch_allocator *locked = locked_around(wrap_direct(bed));
    loch_stream *stream = wrap_stream(bed);
    void *block = wrap_alloc_on(locked, 100, stream);
    loch_block found = {.size = sizeof found};
    CHECK_OK(loch_allocator_find(locked, block, &found));
    assert_int_equal(found.requested_bytes, 100);
    size_t sum = 0;
    CHECK_OK(loch_allocator_walk(locked, sum_blocks, &sum));
    assert_int_equal(sum, 100);
    CHECK_OK(loch_allocator_record_use(locked, block, NULL));
    CHECK_FAILS(loch_free(locked, (char *)block + 1), INTERIOR);
    CHECK_OK(loch_free(locked, block));
    CHECK_FAILS(loch_free(locked, block), DOUBLE_FREE);
    CHECK_OK(loch_allocator_reset_stats(locked));
    assert_int_equal(wrap_stats(locked).peak_requested_bytes, 0);
    loch_stream_close(stream);
    loch_allocator_release(locked);
    CHECK_FAILS(loch_locked_create(NULL, NULL, &locked), INVALID);
    assert_null(locked);
}

/* --- from inside --- */

typedef struct within {
    loch_allocator *locked;
    void *spare;
    unsigned calls;
} within;

static void above(loch_allocator *allocator, uint64_t requested_bytes, void *user)
{
    (void)allocator, (void)requested_bytes;
    within *it = user;
    it->calls++;
    CHECK_OK(loch_free(it->locked, it->spare)); /* under the lock: it must not wait for itself */
    it->spare = wrap_alloc(it->locked, 1);
}

static void functions_called_under_the_lock_may_use_it(void **state)
{
    const test_bed *bed = wrap_bed(state);
    within it = {.calls = 0};
    const loch_limit_options options = {.size = sizeof options, .soft_bytes = 150, .above = above, .user = &it};
    loch_allocator *direct = wrap_direct(bed), *limit;
    CHECK_OK(loch_limit_create(direct, NULL, &options, &limit));
    loch_allocator_release(direct);
    it.locked = locked_around(limit);
    it.spare = wrap_alloc(it.locked, 100);
    void *block = wrap_alloc(it.locked, 100);
    assert_int_equal(it.calls, 1);
    CHECK_OK(loch_free(it.locked, block));
    CHECK_OK(loch_free(it.locked, it.spare));
    loch_allocator_release(it.locked);
}

/* --- threads --- */

#define THREADS 8

typedef struct worker {
    loch_allocator *allocator;
    uint64_t seed, allocs;
    const char *failed;
} worker;

static void *work(void *user)
{
    worker *it = user;
    test_random random = {it->seed};
    void *blocks[8] = {NULL};
    for (int round = 0; round < 500; round++) {
        const size_t at = test_random_below(&random, 8);
        loch_stats stats = {.size = sizeof stats};
        size_t released;
        if (round % 16 == 0 && loch_allocator_get_stats(it->allocator, &stats) != LOCH_OK) it->failed = "stats";
        if (round % 16 == 4 && loch_allocator_trim(it->allocator, 0, &released) != LOCH_OK) it->failed = "trim";
        if (round % 16 == 8 && loch_allocator_reset_stats(it->allocator) != LOCH_OK) it->failed = "reset";
        if (blocks[at]) {
            if (loch_free(it->allocator, blocks[at]) != LOCH_OK) it->failed = "free";
            blocks[at] = NULL;
        } else {
            const loch_request request = {
                .size = sizeof request, .bytes = 1 + test_random_below(&random, 300), .timeout_ns = 1000000};
            const loch_status status = loch_allocator_alloc(it->allocator, &request, &blocks[at]);
            if (status != LOCH_OK && status != LOCH_E_LIMIT) it->failed = "alloc";
            it->allocs += status == LOCH_OK;
        }
    }
    for (size_t i = 0; i < 8; i++)
        if (loch_free(it->allocator, blocks[i]) != LOCH_OK) it->failed = "free";
    return NULL;
}

static void run_threads(loch_allocator *allocator, const wrap_plain *plain)
{
    const uint64_t seed = test_seed(83);
    worker workers[THREADS];
    for (size_t i = 0; i < THREADS; i++)
        workers[i] = (worker){.allocator = allocator, .seed = seed + i};
    TEST_THREADS_RUN(work, workers);
    uint64_t allocs = 0;
    for (size_t i = 0; i < THREADS; i++) {
        if (workers[i].failed) fail_msg("thread %zu: %s", i, workers[i].failed);
        allocs += workers[i].allocs;
    }
    assert_int_equal(plain->allocs, allocs);
    assert_int_equal(plain->frees, allocs);
}

static void eight_threads_one_at_a_time(void **state)
{
    const test_bed *bed = wrap_bed(state);
    wrap_plain plain;
    loch_allocator *locked = locked_around(wrap_plain_create(bed, &plain, 0));
    run_threads(locked, &plain);
    loch_allocator_release(locked);
}

/* With a limit above and another below, requests that wait, and figures of every layer. */
static void eight_threads_through_a_stack(void **state)
{
    const test_bed *bed = wrap_bed(state);
    wrap_plain plain;
    const loch_limit_options below = {.size = sizeof below, .hard_bytes = 3000};
    const loch_limit_options over = {.size = sizeof over, .hard_bytes = 2500};
    loch_allocator *base = wrap_plain_create(bed, &plain, 0), *inner, *outer;
    CHECK_OK(loch_limit_create(base, NULL, &below, &inner));
    loch_allocator_release(base);
    assert_false(loch_allocator_get_traits(inner) & LOCH_TRAIT_THREAD_SAFE);
    loch_allocator *locked = locked_around(inner);
    CHECK_OK(loch_limit_create(locked, NULL, &over, &outer));
    loch_allocator_release(locked);
    assert_true(loch_allocator_get_traits(outer) & LOCH_TRAIT_THREAD_SAFE);
    run_threads(outer, &plain);
    loch_allocator_release(outer);
    assert_true(plain.is_destroyed);
}

/* --- failing host allocations --- */

static loch_status create(loch_allocator *wrapped, loch_allocator **out)
{
    return loch_locked_create(wrapped, NULL, out);
}

static void a_lock_survives_failing_host_memory(void **state)
{
    wrap_sweep(state, (wrap_subject){.create = create});
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(everything_is_forwarded),
        cmocka_unit_test(what_the_wrapped_one_knows_of_blocks_is_told),
        cmocka_unit_test(functions_called_under_the_lock_may_use_it),
        cmocka_unit_test(eight_threads_one_at_a_time),
        cmocka_unit_test(eight_threads_through_a_stack),
        cmocka_unit_test(a_lock_survives_failing_host_memory),
    };
    return WRAP_RUN(tests);
}

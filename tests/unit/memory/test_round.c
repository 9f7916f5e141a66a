/* SPDX-License-Identifier: MIT */
/* Sizes that are rounded up for one request: by every allocator, through every wrapper, by buffers and tensors. What
 * was asked for and what was taken are told apart everywhere. */
#include "allocators.h"
#include "wrap_fixture.h"
#include <loch/tensor.h>

static void *round_alloc(loch_allocator *allocator, size_t bytes, size_t round)
{
    const loch_request request = {.size = sizeof request, .bytes = bytes, .round_bytes = round};
    void *block = TEST_UNTOUCHED;
    CHECK_OK(loch_allocator_alloc(allocator, &request, &block));
    assert_non_null(block);
    return block;
}

static void every_allocator_rounds_and_tells_both_sizes(void **state)
{
    const test_bed *bed = wrap_bed(state);
    static const char *const stacks[] = {
        "pool",         "pool-whole",   "child-range", "direct",       "direct-deferred", "direct-zones",
        "user",         "limit/pool",   "limit/user",  "redzone/pool", "tracking/direct", "wrapper/user",
        "wrapper/pool", "logging/pool", "locked/pool", "session/pool"};
    static const struct {
        size_t bytes, round;
    } cases[] = {{1, 1000}, {1, 8192}, {100, 65536}, {5000, 4096}, {8192, 8192}, {70000, 3}, {70000, 100000}, {9, 1}};
    for (size_t i = 0; i < sizeof stacks / sizeof *stacks; i++) {
        loch_allocator *stack;
        CHECK_OK(test_stack_create(bed->device, stacks[i], &stack));
        for (size_t j = 0; j < sizeof cases / sizeof *cases; j++) {
            const size_t bytes = cases[j].bytes, round = cases[j].round;
            void *block = round_alloc(stack, bytes, round);
            loch_block found = {.size = sizeof found};
            CHECK_OK(loch_allocator_find(stack, block, &found));
            assert_int_equal(found.requested_bytes, bytes);
            assert_true(found.allocated_bytes >= (bytes + round - 1) / round * round);
            const loch_stats stats = wrap_stats(stack);
            assert_int_equal(stats.blocks, 1);
            assert_int_equal(stats.requested_bytes, bytes);
            CHECK_FAILS(loch_allocator_free_sized(stack, block, bytes + 1), INVALID);
            CHECK_OK(loch_allocator_free_sized(stack, block, bytes));
            assert_int_equal(wrap_stats(stack).requested_bytes, 0);
        }
        loch_allocator_release(stack);
    }
}

/* A multiple that is no more than what a pool takes anyway costs nothing; one that is more is held. */
static void a_multiple_above_the_usual_is_held(void **state)
{
    const test_bed *bed = wrap_bed(state);
    loch_allocator *direct = wrap_direct(bed), *pool;
    void *plain = wrap_alloc(direct, 100);
    const uint64_t before = wrap_stats(direct).allocated_bytes;
    void *rounded = round_alloc(direct, 100, 1 << 20);
    assert_true(wrap_stats(direct).allocated_bytes >= before + (1 << 20));
    CHECK_OK(loch_free(direct, rounded));
    CHECK_OK(loch_free(direct, plain));
    loch_allocator_release(direct);

    const loch_pool_options options = {.size = sizeof options, .limit_bytes = 64 << 20};
    CHECK_OK(loch_pool_create(bed->device, NULL, &options, &pool));
    const loch_request too_much = {.size = sizeof too_much, .bytes = 100, .round_bytes = 65 << 20};
    CHECK_FAILS(loch_allocator_alloc(pool, &too_much, &(void *){NULL}), LIMIT);
    rounded = round_alloc(pool, 100, 3 << 20);
    assert_true(wrap_stats(pool).allocated_bytes >= 3 << 20);
    void *same = TEST_UNTOUCHED; /* it may grow into what was taken for it */
    CHECK_OK(loch_allocator_realloc(pool, rounded, 3 << 20, NULL, &same));
    assert_ptr_equal(same, rounded);
    CHECK_OK(loch_free(pool, same));
    loch_allocator_release(pool);
}

/* Limits count what was asked for. */
static void limits_count_what_was_asked_for(void **state)
{
    const test_bed *bed = wrap_bed(state);
    const loch_limit_options options = {.size = sizeof options, .hard_bytes = 1000};
    loch_allocator *pool, *limit;
    CHECK_OK(loch_pool_create(bed->device, NULL, NULL, &pool));
    CHECK_OK(loch_limit_create(pool, NULL, &options, &limit));
    void *a = round_alloc(limit, 900, 4096), *b = round_alloc(limit, 100, 4096);
    CHECK_FAILS(loch_alloc(limit, 1, &(void *){NULL}), LIMIT);
    CHECK_OK(loch_free(limit, a));
    CHECK_OK(loch_free(limit, b));
    loch_allocator_release(limit);
    loch_allocator_release(pool);
}

static void buffers_and_tensors_round_what_they_allocate(void **state)
{
    const test_bed *bed = wrap_bed(state);
    loch_allocator *pool;
    CHECK_OK(loch_pool_create(bed->device, NULL, NULL, &pool));
    const loch_request request = {.size = sizeof request, .round_bytes = 1 << 20};
    loch_buffer *buffer;
    CHECK_OK(loch_buffer_create(pool, 100, &request, &buffer));
    assert_int_equal(loch_buffer_get_bytes(buffer), 100);
    assert_true(wrap_stats(pool).allocated_bytes >= 1 << 20);
    loch_buffer_release(buffer);
    const loch_tensor_options options = {.size = sizeof options, .allocator = pool, .round_bytes = 1 << 20};
    const int64_t shape[] = {25};
    loch_tensor *tensor;
    CHECK_OK(loch_tensor_create(LOCH_F32, 1, shape, &options, &tensor));
    assert_int_equal(wrap_stats(pool).requested_bytes, 100);
    assert_true(wrap_stats(pool).allocated_bytes >= 1 << 20);
    loch_tensor_release(tensor);
    loch_allocator_release(pool);
}

static void multiples_that_overflow_are_refused(void **state)
{
    const test_bed *bed = wrap_bed(state);
    loch_allocator *pool;
    CHECK_OK(loch_pool_create(bed->device, NULL, NULL, &pool));
    const size_t rounds[] = {SIZE_MAX, SIZE_MAX / 2, (size_t)1 << 47, ((size_t)1 << 47) - 1};
    for (size_t i = 0; i < 4; i++) {
        const loch_request request = {.size = sizeof request, .bytes = 100, .round_bytes = rounds[i]};
        void *block = TEST_UNTOUCHED;
        const loch_status status = loch_allocator_alloc(pool, &request, &block);
        assert_true(status == LOCH_E_OVERFLOW || (i == 3 && status == LOCH_E_DEVICE_MEMORY));
        assert_null(block);
    }
    const loch_request product = {.size = sizeof product, .bytes = ((size_t)1 << 47) - 1, .round_bytes = 10};
    CHECK_FAILS(loch_allocator_alloc(pool, &product, &(void *){NULL}), OVERFLOW);
    const loch_request nothing = {.size = sizeof nothing, .round_bytes = 4096};
    void *block = TEST_UNTOUCHED;
    CHECK_OK(loch_allocator_alloc(pool, &nothing, &block));
    assert_null(block);
    const loch_request older = {.size = offsetof(loch_request, round_bytes), .bytes = 100, .round_bytes = SIZE_MAX};
    CHECK_OK(loch_allocator_alloc(pool, &older, &block)); /* a program that does not know the member */
    CHECK_OK(loch_free(pool, block));
    loch_allocator_release(pool);
}

static loch_status scenario(const void *on)
{
    const test_bed *bed = on;
    loch_allocator *user = NULL;
    void *a = NULL;
    const loch_request request = {.size = sizeof request, .bytes = 100, .round_bytes = 8192};
    loch_status status = test_stack_create(bed->device, "limit/user", &user);
    if (status == LOCH_OK) status = loch_allocator_alloc(user, &request, &a);
    if (user) TEST_BACK(loch_free(user, a));
    loch_allocator_release(user);
    return status;
}

static void rounded_requests_survive_failing_host_memory(void **state)
{
    test_host_sweep(scenario, *state);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_allocator_rounds_and_tells_both_sizes),
        cmocka_unit_test(a_multiple_above_the_usual_is_held),
        cmocka_unit_test(limits_count_what_was_asked_for),
        cmocka_unit_test(buffers_and_tensors_round_what_they_allocate),
        cmocka_unit_test(multiples_that_overflow_are_refused),
        cmocka_unit_test(rounded_requests_survive_failing_host_memory),
    };
    return WRAP_RUN(tests);
}

/* SPDX-License-Identifier: MIT */
/* The fault wrapper: which allocations fail, with what, and that nothing else does. */
#include "memory/allocator_state.h"
#include "wrap_fixture.h"

static loch_allocator *fault_around(loch_allocator *wrapped, const loch_fault_options *given)
{
    loch_fault_options options = *given;
    options.size = sizeof options;
    loch_allocator *fault;
    CHECK_OK(loch_fault_create(wrapped, NULL, &options, &fault));
    loch_allocator_release(wrapped);
    return fault;
}

/* Tries `count` allocations, giving each back; sets a bit for each that failed with `status`. */
static uint64_t try_many(loch_allocator *fault, unsigned count, size_t bytes, loch_status status)
{
    uint64_t failed = 0;
    for (unsigned i = 0; i < count; i++) {
        void *block = TEST_UNTOUCHED;
        loch_error_clear();
        const loch_status got = loch_alloc(fault, bytes, &block);
        if (got == LOCH_OK) {
            CHECK_OK(loch_free(fault, block));
            continue;
        }
        assert_int_equal(got, status);
        assert_null(block);
        assert_int_equal(loch_error_get()->status, status);
        assert_true(loch_error_get()->sentence[0]);
        failed |= (uint64_t)1 << i;
    }
    return failed;
}

static void faults_begin_after_and_end_after_a_count(void **state)
{
    loch_allocator *fault = fault_around(wrap_direct(wrap_bed(state)), &(loch_fault_options){.after = 3, .count = 2});
    assert_string_equal(fault->ops.kind, "fault");
    assert_int_equal(try_many(fault, 10, 8, LOCH_E_DEVICE_MEMORY), 0x18);
    loch_stats stats = wrap_stats(fault);
    assert_int_equal(stats.failures, 2);
    assert_int_equal(stats.allocs, 8);
    assert_int_equal(stats.blocks, 0);
    loch_fault_options options = {.size = sizeof options, .after = 1, .status = LOCH_E_FRAGMENTED};
    CHECK_OK(loch_fault_set(fault, &options)); /* counting from now, for good */
    assert_int_equal(try_many(fault, 5, 8, LOCH_E_FRAGMENTED), 0x1e);
    CHECK_OK(loch_fault_set(fault, NULL));
    assert_int_equal(try_many(fault, 5, 8, LOCH_OK), 0);
    CHECK_OK(loch_allocator_reset_stats(fault));
    assert_int_equal(wrap_stats(fault).failures, 0);
    loch_allocator_release(fault);
}

static void faults_may_be_for_large_requests_alone(void **state)
{
    loch_allocator *fault =
        fault_around(wrap_direct(wrap_bed(state)), &(loch_fault_options){.after = 1, .above_bytes = 100});
    assert_int_equal(try_many(fault, 5, 100, LOCH_OK), 0); /* not counted either */
    assert_int_equal(try_many(fault, 3, 101, LOCH_E_DEVICE_MEMORY), 0x6);
    assert_int_equal(try_many(fault, 5, 100, LOCH_OK), 0);
    loch_allocator_release(fault);
}

static void faults_by_chance_repeat_with_their_seed(void **state)
{
    const test_bed *bed = wrap_bed(state);
    const uint64_t seed = test_seed(71);
    uint64_t runs[3];
    for (size_t i = 0; i < 3; i++) {
        loch_allocator *fault =
            fault_around(wrap_direct(bed), &(loch_fault_options){.one_in = 4, .seed = seed + i / 2, .after = 1000});
        runs[i] = try_many(fault, 64, 8, LOCH_E_DEVICE_MEMORY);
        const int failed = __builtin_popcountll(runs[i]);
        assert_true(failed > 2 && failed < 40);
        loch_fault_options options = {.size = sizeof options, .one_in = 4, .seed = seed + i / 2};
        CHECK_OK(loch_fault_set(fault, &options));
        assert_true(try_many(fault, 64, 8, LOCH_E_DEVICE_MEMORY) == runs[i]); /* from the start again */
        options.one_in = 1;
        CHECK_OK(loch_fault_set(fault, &options));
        assert_int_equal(try_many(fault, 8, 8, LOCH_E_DEVICE_MEMORY), 0xff);
        loch_allocator_release(fault);
    }
    assert_true(runs[0] == runs[1]);
    assert_true(runs[0] != runs[2]);
}

static loch_status count_blocks(const loch_block *block, void *user)
{
    *(size_t *)user += block->requested_bytes;
    return LOCH_OK;
}

static void everything_else_is_forwarded(void **state)
{
    const test_bed *bed = wrap_bed(state);
    loch_allocator *direct = wrap_direct(bed);
    loch_allocator *fault = fault_around(direct, &(loch_fault_options){.after = 1});
    assert_string_equal(loch_allocator_get_name(fault), loch_allocator_get_name(direct));
    assert_int_equal(loch_allocator_get_traits(fault), loch_allocator_get_traits(direct));
    assert_int_equal(loch_allocator_get_attributes(fault).bits, loch_allocator_get_attributes(direct).bits);
    loch_tag tag;
    CHECK_OK(loch_tag_create("fault", &tag));
    const loch_request request = {.size = sizeof request, .bytes = 100, .tag = tag};
    void *block;
    CHECK_OK(loch_allocator_alloc(fault, &request, &block));
    loch_block found = {.size = sizeof found};
    CHECK_OK(loch_allocator_find(fault, block, &found));
    assert_int_equal(found.tag, tag);
    loch_stats of_tag = {.size = sizeof of_tag};
    CHECK_OK(loch_allocator_get_tag_stats(fault, tag, &of_tag));
    assert_int_equal(of_tag.requested_bytes, 100);
    size_t sum = 0;
    CHECK_OK(loch_allocator_walk(fault, count_blocks, &sum));
    assert_int_equal(sum, 100);
    CHECK_OK(loch_allocator_record_use(fault, block, NULL));
    CHECK_FAILS(loch_free(fault, (char *)block + 1), INTERIOR);
    CHECK_FAILS(loch_allocator_free_sized(fault, block, 99), INVALID);
    CHECK_OK(loch_free(fault, block)); /* frees are never made to fail */
    CHECK_FAILS(loch_free(fault, block), DOUBLE_FREE);
    loch_allocator_release(fault);
}

static void arguments_are_checked(void **state)
{
    loch_allocator *direct = wrap_direct(wrap_bed(state)), *fault = TEST_UNTOUCHED;
    CHECK_FAILS(loch_fault_create(NULL, NULL, NULL, &fault), INVALID);
    assert_null(fault);
    CHECK_FAILS(loch_fault_create(direct, NULL, NULL, NULL), INVALID);
    loch_fault_options options = {.size = 4};
    CHECK_FAILS(loch_fault_create(direct, NULL, &options, &fault), INVALID);
    options = (loch_fault_options){.size = sizeof options, .status = LOCH_STATUS_COUNT};
    CHECK_FAILS(loch_fault_create(direct, NULL, &options, &fault), INVALID);
    CHECK_OK(loch_fault_create(direct, NULL, NULL, &fault)); /* no faults yet */
    assert_int_equal(try_many(fault, 10, 8, LOCH_OK), 0);
    CHECK_FAILS(loch_fault_set(fault, &options), INVALID);
    CHECK_FAILS(loch_fault_set(direct, NULL), INVALID);
    CHECK_FAILS(loch_fault_set(NULL, NULL), INVALID);
    loch_allocator_release(fault);
    loch_allocator_release(direct);
}

/* A retry is an attempt of its own: a fault that lasts once is got over with a function that finds memory. */
static size_t found_some(loch_allocator *allocator, size_t bytes, void *user)
{
    (void)allocator;
    ++*(unsigned *)user;
    return bytes;
}

static void pressure_gets_over_a_fault(void **state)
{
    loch_allocator *fault = fault_around(wrap_direct(wrap_bed(state)), &(loch_fault_options){.count = 1});
    unsigned asked = 0;
    CHECK_OK(loch_allocator_add_pressure(fault, found_some, &asked));
    assert_int_equal(try_many(fault, 3, 8, LOCH_OK), 0);
    assert_int_equal(asked, 1);
    loch_allocator_release(fault);
}

/* --- threads --- */

typedef struct worker {
    loch_allocator *fault;
    unsigned failed;
    const char *wrong;
} worker;

static void *work(void *user)
{
    worker *it = user;
    for (int i = 0; i < 500; i++) {
        void *block;
        const loch_status status = loch_alloc(it->fault, 16, &block);
        it->failed += status == LOCH_E_DEVICE_MEMORY;
        if (status == LOCH_OK ? loch_free(it->fault, block) != LOCH_OK : status != LOCH_E_DEVICE_MEMORY)
            it->wrong = "status";
    }
    return NULL;
}

static void eight_threads_share_the_faults(void **state)
{
    enum { THREADS = 8 };
    loch_allocator *fault =
        fault_around(wrap_direct(wrap_bed(state)), &(loch_fault_options){.after = 1500, .count = 777});
    worker workers[THREADS];
    for (size_t i = 0; i < THREADS; i++)
        workers[i] = (worker){.fault = fault};
    TEST_THREADS_RUN(work, workers);
    unsigned failed = 0;
    for (size_t i = 0; i < THREADS; i++) {
        assert_null(workers[i].wrong);
        failed += workers[i].failed;
    }
    assert_int_equal(failed, 777);
    assert_int_equal(wrap_stats(fault).failures, 777);
    loch_allocator_release(fault);
}

/* --- failing host allocations --- */

static loch_status create(loch_allocator *wrapped, loch_allocator **out)
{
    const loch_fault_options options = {.size = sizeof options, .after = 10};
    return loch_fault_create(wrapped, NULL, &options, out);
}

static void a_fault_wrapper_survives_failing_host_memory(void **state)
{
    wrap_sweep(state, (wrap_subject){.create = create});
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(faults_begin_after_and_end_after_a_count),
        cmocka_unit_test(faults_may_be_for_large_requests_alone),
        cmocka_unit_test(faults_by_chance_repeat_with_their_seed),
        cmocka_unit_test(everything_else_is_forwarded),
        cmocka_unit_test(arguments_are_checked),
        cmocka_unit_test(pressure_gets_over_a_fault),
        cmocka_unit_test(eight_threads_share_the_faults),
        cmocka_unit_test(a_fault_wrapper_survives_failing_host_memory),
    };
    return WRAP_RUN(tests);
}

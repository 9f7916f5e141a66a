/* SPDX-License-Identifier: MIT */
/* The tracking wrapper, around an allocator that counts what reaches it, fails when told to, and has a few figures. */
#include "memory/allocator_state.h"
#include "sweep.h"
#include "test.h"

#include <pthread.h>
#include <stdatomic.h>

/* --- what is wrapped --- */

typedef struct beneath {
    atomic_size_t allocs, frees;
    atomic_bool fails_alloc, fails_free;
    atomic_size_t last_free_bytes;
    bool has_no_figures;
    uint64_t peak_reserved;
} beneath;

static loch_status beneath_alloc(void *self, const loch_request *request, void **out)
{
    beneath *b = self;
    if (b->fails_alloc) return loch_error_set(LOCH_E_DEVICE_MEMORY, NULL, 0, "told to fail");
    *out = malloc(request->bytes ? request->bytes : 1);
    if (!*out) return loch_error_set(LOCH_E_DEVICE_MEMORY, NULL, 0, "no memory");
    b->allocs++;
    return LOCH_OK;
}

static loch_status beneath_free(void *self, void *address, size_t bytes, loch_stream *stream)
{
    beneath *b = self;
    (void)stream;
    if (b->fails_free) return loch_error_set(LOCH_E_DRIVER, NULL, 0, "told to fail");
    b->frees++;
    b->last_free_bytes = bytes;
    free(address);
    return LOCH_OK;
}

static loch_status beneath_find(void *self, const void *address, loch_block *out)
{
    (void)self;
    *out = (loch_block){.address = (void *)(uintptr_t)address, .allocated_bytes = 4096, .stream_id = 77, .id = 5};
    return LOCH_OK;
}

static loch_status beneath_walk(void *self, loch_block_visitor *visitor, void *user)
{
    (void)self;
    (void)visitor;
    (void)user;
    return LOCH_OK;
}

static loch_status beneath_get_stats(void *self, loch_tag tag, loch_stats *out)
{
    const beneath *b = self;
    if (b->has_no_figures || tag) return loch_error_set(LOCH_E_UNSUPPORTED, NULL, 0, "no figures");
    out->allocs = 1000;                 /* others use it too */
    out->blocks = b->allocs - b->frees; /* it ends when they are 0 */
    out->peak_blocks = 950;
    out->requested_bytes = out->allocated_bytes = out->peak_allocated_bytes = 123456;
    out->reserved_bytes = 1 << 20;
    out->peak_reserved_bytes = b->peak_reserved;
    out->cached_bytes = 4096;
    out->largest_free_bytes = 2048;
    out->limit_bytes = 1 << 30;
    return LOCH_OK;
}

static void beneath_new_segment(void *self)
{
    beneath *b = self;
    b->peak_reserved = 1 << 20;
}

static const loch_allocator_ops beneath_ops = {.size = sizeof beneath_ops,
                                               .kind = "beneath",
                                               .traits = LOCH_TRAIT_THREAD_SAFE | LOCH_TRAIT_TRACKS_SIZES,
                                               .alloc = beneath_alloc,
                                               .free = beneath_free,
                                               .find = beneath_find,
                                               .walk = beneath_walk,
                                               .get_stats = beneath_get_stats,
                                               .new_segment = beneath_new_segment};

typedef struct fixture {
    loch_device *device;
    beneath beneath;
    loch_allocator *wrapped, *tracking;
} fixture;

static void setup(fixture *f, uint32_t traits, size_t records)
{
    loch_allocator_ops ops = beneath_ops;
    ops.traits = LOCH_TRAIT_THREAD_SAFE | traits;
    const loch_tracking_options options = {.size = sizeof options, .records = records};
    memset(f, 0, sizeof *f);
    f->beneath.peak_reserved = 5 << 20;
    CHECK_OK(loch_device_open("cpu", &f->device));
    CHECK_OK(loch_allocator_create(f->device, "beneath", &ops, &f->beneath, &f->wrapped));
    CHECK_OK(loch_tracking_create(f->wrapped, "tracked", records ? &options : NULL, &f->tracking));
}

static void teardown(fixture *f)
{
    assert_int_equal(f->beneath.allocs, f->beneath.frees);
    loch_allocator_release(f->tracking);
    loch_allocator_release(f->wrapped);
    loch_device_release(f->device);
}

static loch_stats read_stats(loch_allocator *allocator)
{
    loch_stats stats = {.size = sizeof stats};
    CHECK_OK(loch_allocator_get_stats(allocator, &stats));
    return stats;
}

/* --- one thread --- */

static void a_tracking_wrapper_says_what_it_is(void **state)
{
    (void)state;
    fixture f;
    loch_allocator *unnamed;
    setup(&f, 0, 0);
    assert_string_equal(f.tracking->ops.kind, "tracking");
    assert_string_equal(loch_allocator_get_name(f.tracking), "tracked");
    assert_ptr_equal(loch_allocator_get_wrapped(f.tracking), f.wrapped);
    assert_true(loch_allocator_get_traits(f.tracking) & LOCH_TRAIT_TRACKS_SIZES);
    CHECK_OK(loch_tracking_create(f.wrapped, NULL, NULL, &unnamed));
    assert_string_equal(loch_allocator_get_name(unnamed), "beneath");
    loch_allocator_release(unnamed);
    const loch_tracking_options unsized = {.size = 0}, huge = {.size = sizeof huge, .records = SIZE_MAX / 2};
    loch_allocator *out = TEST_UNTOUCHED;
    CHECK_FAILS(loch_tracking_create(f.wrapped, NULL, &unsized, &out), INVALID);
    assert_null(out);
    CHECK_FAILS(loch_tracking_create(f.wrapped, NULL, &huge, &out), HOST_MEMORY);
    CHECK_FAILS(loch_tracking_create(NULL, NULL, NULL, &out), INVALID);
    CHECK_FAILS(loch_tracking_create(f.wrapped, NULL, NULL, NULL), INVALID);
    teardown(&f);
}

static void wrong_frees_do_not_reach_the_wrapped_allocator(void **state)
{
    (void)state;
    fixture f;
    void *block, *other;
    setup(&f, 0, 0);
    CHECK_OK(loch_alloc(f.tracking, 100, &block));
    CHECK_OK(loch_alloc(f.wrapped, 100, &other)); /* not through the wrapper */
    CHECK_FAILS(loch_free(f.tracking, other), FOREIGN);
    CHECK_FAILS(loch_free(f.tracking, (char *)block + 50), INTERIOR);
    CHECK_FAILS(loch_allocator_free_sized(f.tracking, block, 101), INVALID);
    assert_int_equal(f.beneath.frees, 0);
    CHECK_OK(loch_allocator_free_sized(f.tracking, block, 100));
    CHECK_FAILS(loch_free(f.tracking, block), DOUBLE_FREE);
    assert_int_equal(f.beneath.frees, 1);
    assert_int_equal(f.beneath.last_free_bytes, 100);
    assert_int_equal(read_stats(f.tracking).frees, 1);
    CHECK_OK(loch_free(f.wrapped, other));
    teardown(&f);
}

static void a_free_that_fails_changes_nothing(void **state)
{
    (void)state;
    fixture f;
    void *block;
    loch_block before = {.size = sizeof before}, after = {.size = sizeof after};
    setup(&f, 0, 4);
    CHECK_OK(loch_alloc(f.tracking, 100, &block));
    CHECK_OK(loch_allocator_find(f.tracking, block, &before));
    f.beneath.fails_free = true;
    CHECK_FAILS(loch_free(f.tracking, block), DRIVER);
    f.beneath.fails_free = false;
    CHECK_OK(loch_allocator_find(f.tracking, block, &after));
    assert_memory_equal(&before, &after, sizeof before);
    loch_stats stats = read_stats(f.tracking);
    assert_true(stats.blocks == 1 && stats.frees == 0 && stats.allocs == 1);
    size_t count;
    loch_tracking_record records[4];
    CHECK_OK(test_tracking_records(f.tracking, records, 4, &count));
    assert_int_equal(count, 1);
    CHECK_OK(loch_free(f.tracking, block));
    teardown(&f);
}

static void failures_are_counted(void **state)
{
    (void)state;
    fixture f;
    void *block = TEST_UNTOUCHED;
    setup(&f, 0, 0);
    f.beneath.fails_alloc = true;
    CHECK_FAILS(loch_alloc(f.tracking, 100, &block), DEVICE_MEMORY);
    assert_null(block);
    loch_stats stats = read_stats(f.tracking);
    assert_true(stats.failures == 1 && stats.allocs == 0 && stats.blocks == 0);
    teardown(&f);
}

static void figures_are_its_own_and_the_rest_the_wrapped_ones(void **state)
{
    (void)state;
    fixture f;
    void *blocks[3];
    setup(&f, 0, 0);
    for (size_t i = 0; i < 3; i++)
        CHECK_OK(loch_alloc(f.tracking, 100 * (i + 1), &blocks[i]));
    CHECK_OK(loch_free(f.tracking, blocks[2]));
    loch_stats stats = read_stats(f.tracking);
    assert_int_equal(stats.allocs, 3);
    assert_int_equal(stats.frees, 1);
    assert_int_equal(stats.blocks, 2);
    assert_int_equal(stats.peak_blocks, 3);
    assert_int_equal(stats.requested_bytes, 300);
    assert_int_equal(stats.peak_requested_bytes, 600);
    assert_int_equal(stats.allocated_bytes, 300);
    assert_int_equal(stats.peak_allocated_bytes, 600);
    assert_int_equal(stats.largest_bytes, 300);
    assert_int_equal(stats.reserved_bytes, 1 << 20);
    assert_int_equal(stats.peak_reserved_bytes, 5 << 20);
    assert_int_equal(stats.cached_bytes, 4096);
    assert_int_equal(stats.largest_free_bytes, 2048);
    assert_int_equal(stats.limit_bytes, 1 << 30);
    CHECK_OK(loch_allocator_reset_stats(f.tracking));
    stats = read_stats(f.tracking);
    assert_true(stats.allocs == 0 && stats.frees == 0 && stats.blocks == 2 && stats.peak_blocks == 2);
    assert_true(stats.peak_requested_bytes == 300 && stats.largest_bytes == 0);
    assert_int_equal(stats.peak_reserved_bytes, 1 << 20);
    f.beneath.has_no_figures = true;
    stats = read_stats(f.tracking);
    assert_true(stats.blocks == 2 && stats.requested_bytes == 300 && stats.reserved_bytes == 0);
    f.beneath.has_no_figures = false;
    for (size_t i = 0; i < 2; i++)
        CHECK_OK(loch_free(f.tracking, blocks[i]));
    teardown(&f);
}

static void figures_are_kept_by_tag(void **state)
{
    (void)state;
    fixture f;
    loch_tag tag;
    void *tagged, *plain;
    setup(&f, 0, 0);
    CHECK_OK(loch_tag_create("weights", &tag));
    const loch_request request = {.size = sizeof request, .bytes = 70, .tag = tag};
    CHECK_OK(loch_allocator_alloc(f.tracking, &request, &tagged));
    CHECK_OK(loch_alloc(f.tracking, 30, &plain));
    loch_stats stats = {.size = sizeof stats};
    CHECK_OK(loch_allocator_get_tag_stats(f.tracking, tag, &stats));
    assert_true(stats.blocks == 1 && stats.requested_bytes == 70 && stats.allocs == 1 && stats.reserved_bytes == 0);
    CHECK_OK(loch_free(f.tracking, tagged));
    CHECK_OK(loch_allocator_get_tag_stats(f.tracking, tag, &stats));
    assert_true(stats.blocks == 0 && stats.frees == 1 && stats.peak_requested_bytes == 70);
    CHECK_OK(loch_free(f.tracking, plain));
    teardown(&f);
}

typedef struct seen {
    loch_block blocks[8];
    size_t count;
} seen;

static loch_status see(const loch_block *block, void *user)
{
    seen *s = user;
    assert_true(s->count < 8);
    s->blocks[s->count++] = *block;
    return LOCH_OK;
}

static void blocks_are_found(void **state)
{
    (void)state;
    for (int with_sizes = 0; with_sizes < 2; with_sizes++) {
        fixture f;
        void *first, *second;
        loch_block one = {.size = sizeof one}, two = {.size = sizeof two};
        seen s = {.count = 0};
        setup(&f, with_sizes ? LOCH_TRAIT_TRACKS_SIZES : 0, 0);
        CHECK_OK(loch_alloc(f.tracking, 10, &first));
        CHECK_OK(loch_alloc(f.tracking, 20, &second));
        CHECK_OK(loch_allocator_find(f.tracking, first, &one));
        CHECK_OK(loch_allocator_find(f.tracking, second, &two));
        assert_true(one.address == first && one.requested_bytes == 10 && two.requested_bytes == 20);
        assert_true(one.id && two.id && one.id != two.id && !one.time_ns);
        assert_int_equal(one.allocated_bytes, with_sizes ? 4096 : 10);
        assert_int_equal(one.stream_id, with_sizes ? 77 : 0);
        CHECK_OK(loch_allocator_walk(f.tracking, see, &s));
        assert_int_equal(s.count, 2);
        const loch_block *walked = s.blocks[0].address == first ? &s.blocks[0] : &s.blocks[1];
        assert_true(walked->id == one.id && walked->requested_bytes == 10);
        CHECK_FAILS(loch_allocator_find(f.tracking, (char *)second + 3, &two), INTERIOR);
        CHECK_OK(loch_free(f.tracking, first));
        CHECK_FAILS(loch_allocator_find(f.tracking, first, &one), DOUBLE_FREE);
        CHECK_OK(loch_free(f.tracking, second));
        teardown(&f);
    }
}

static void empty_blocks_are_blocks(void **state)
{
    (void)state;
    fixture f;
    void *first, *second;
    setup(&f, LOCH_TRAIT_ALLOCATES_EMPTY, 0);
    CHECK_OK(loch_alloc(f.tracking, 0, &first));
    CHECK_OK(loch_alloc(f.tracking, 0, &second));
    assert_true(first && second && first != second);
    assert_int_equal(read_stats(f.tracking).blocks, 2);
    CHECK_OK(loch_free(f.tracking, first));
    CHECK_FAILS(loch_free(f.tracking, first), DOUBLE_FREE);
    CHECK_OK(loch_allocator_free_sized(f.tracking, second, 0));
    teardown(&f);
    setup(&f, 0, 0);
    CHECK_OK(loch_alloc(f.tracking, 0, &first));
    assert_null(first);
    assert_int_equal(read_stats(f.tracking).allocs, 0);
    teardown(&f);
}

static void records_are_the_newest_in_order(void **state)
{
    (void)state;
    fixture f;
    loch_tracking_record records[8];
    size_t count = 99;
    void *blocks[6];
    loch_block found = {.size = sizeof found};
    setup(&f, 0, 5);
    CHECK_OK(test_tracking_records(f.tracking, records, 8, &count));
    assert_int_equal(count, 0);
    for (size_t i = 0; i < 6; i++)
        CHECK_OK(loch_alloc(f.tracking, 10 + i, &blocks[i]));
    CHECK_OK(loch_free(f.tracking, blocks[5]));
    CHECK_OK(test_tracking_records(f.tracking, records, 8, &count));
    assert_int_equal(count, 5);
    for (size_t i = 0; i < 4; i++) {
        assert_int_equal(records[i].bytes, 12 + i);
        assert_true(records[i].id && records[i].time_ns && records[i].time_ns <= records[i + 1].time_ns);
    }
    assert_int_equal(records[4].bytes, -15);
    assert_int_equal(records[4].id, records[3].id);
    CHECK_OK(loch_allocator_find(f.tracking, blocks[3], &found));
    assert_true(found.id == records[1].id && found.time_ns == records[1].time_ns);
    CHECK_OK(loch_allocator_find(f.tracking, blocks[0], &found));
    assert_true(found.id && !found.time_ns); /* its record has been overwritten */
    CHECK_OK(test_tracking_records(f.tracking, records, 2, &count));
    assert_int_equal(count, 2);
    assert_int_equal(records[0].bytes, 15);
    CHECK_OK(test_tracking_records(f.tracking, NULL, 0, &count));
    assert_int_equal(count, 0);
    CHECK_FAILS(loch_tracking_walk(f.tracking, NULL, NULL), INVALID);
    CHECK_FAILS(test_tracking_records(f.wrapped, records, 1, &count), INVALID);
    CHECK_FAILS(test_tracking_records(NULL, records, 1, &count), INVALID);
    for (size_t i = 0; i < 5; i++)
        CHECK_OK(loch_free(f.tracking, blocks[i]));
    teardown(&f);
    setup(&f, 0, 0);
    CHECK_OK(test_tracking_records(f.tracking, records, 8, &count));
    assert_int_equal(count, 0);
    teardown(&f);
}

static void blocks_outlive_the_last_reference(void **state)
{
    (void)state;
    fixture f;
    void *block;
    setup(&f, 0, 3);
    CHECK_OK(loch_alloc(f.tracking, 10, &block));
    loch_allocator *tracking = f.tracking;
    loch_allocator_release(f.tracking);
    f.tracking = NULL;
    CHECK_OK(loch_free(tracking, block));
    teardown(&f);
}

static void tracking_wrappers_stack(void **state)
{
    (void)state;
    fixture f;
    loch_allocator *outer;
    void *block;
    setup(&f, 0, 0);
    CHECK_OK(loch_tracking_create(f.tracking, "outer", NULL, &outer));
    CHECK_OK(loch_alloc(outer, 10, &block));
    assert_int_equal(read_stats(outer).blocks, 1);
    assert_int_equal(read_stats(f.tracking).blocks, 1);
    assert_int_equal(read_stats(outer).reserved_bytes, 1 << 20);
    CHECK_OK(loch_allocator_reset_stats(outer));
    CHECK_OK(loch_free(outer, block));
    assert_int_equal(read_stats(f.tracking).frees, 1);
    CHECK_FAILS(loch_free(outer, block), DOUBLE_FREE);
    loch_allocator_release(outer);
    teardown(&f);
}

/* --- threads --- */

enum { THREADS = 8, ROUNDS = 3000, HELD = 16, BYTES = 32 };

typedef struct worker {
    loch_allocator *tracking;
    uint64_t seed;
    size_t failures;
} worker;

static void *work(void *argument)
{
    worker *w = argument;
    test_random random = {w->seed};
    void *held[HELD] = {NULL};
    for (size_t i = 0; i < ROUNDS; i++) {
        void **place = &held[test_random_below(&random, HELD)];
        if (*place) {
            w->failures += loch_free(w->tracking, *place) != LOCH_OK;
            *place = NULL;
        } else {
            w->failures += loch_alloc(w->tracking, BYTES, place) != LOCH_OK;
        }
    }
    for (size_t i = 0; i < HELD; i++)
        w->failures += loch_free(w->tracking, held[i]) != LOCH_OK;
    return NULL;
}

static void eight_threads_are_counted_exactly(void **state)
{
    (void)state;
    const uint64_t seed = test_seed(3);
    for (size_t records = 0; records <= 64; records += 64) {
        fixture f;
        pthread_t threads[THREADS];
        worker workers[THREADS];
        setup(&f, LOCH_TRAIT_TRACKS_SIZES, records);
        for (size_t i = 0; i < THREADS; i++) {
            workers[i] = (worker){f.tracking, seed + i, 0};
            assert_int_equal(pthread_create(&threads[i], NULL, work, &workers[i]), 0);
        }
        for (int i = 0; i < 200; i++) {
            const loch_stats stats = read_stats(f.tracking);
            assert_int_equal(stats.requested_bytes, stats.blocks * BYTES);
            assert_int_equal(stats.allocs - stats.frees, stats.blocks);
        }
        for (size_t i = 0; i < THREADS; i++) {
            pthread_join(threads[i], NULL);
            assert_int_equal(workers[i].failures, 0);
        }
        assert_int_equal(read_stats(f.tracking).blocks, 0);
        if (records) {
            loch_tracking_record kept[64];
            size_t count;
            CHECK_OK(test_tracking_records(f.tracking, kept, 64, &count));
            assert_int_equal(count, 64);
            for (size_t i = 1; i < count; i++)
                assert_true(kept[i - 1].time_ns <= kept[i].time_ns);
        }
        teardown(&f);
    }
}

/* --- without host memory --- */

static void use_while_failing(test_round *round, const void *user)
{
    (void)user;
    fixture f;
    void *blocks[40];
    memset(&f, 0, sizeof f);
    CHECK_OK(loch_device_open("cpu", &f.device));
    CHECK_OK(loch_allocator_create(f.device, "beneath", &beneath_ops, &f.beneath, &f.wrapped));
    const loch_tracking_options options = {.size = sizeof options, .records = 8};
    test_round_begin(round, NULL);
    loch_status status = loch_tracking_create(f.wrapped, NULL, &options, &f.tracking);
    round->is_felt = status != LOCH_OK;
    if (status != LOCH_OK) {
        assert_int_equal(status, LOCH_E_HOST_MEMORY);
        assert_null(f.tracking);
    }
    for (size_t i = 0; f.tracking && i < 40; i++) {
        status = loch_alloc(f.tracking, 100 + 500 * i, &blocks[i]);
        if (status == LOCH_OK) continue;
        assert_int_equal(status, LOCH_E_HOST_MEMORY);
        assert_null(blocks[i]);
        round->is_felt = true;
    }
    for (size_t i = 0; f.tracking && i < 40; i++)
        CHECK_OK(loch_free(f.tracking, blocks[i]));
    if (f.tracking) assert_int_equal(read_stats(f.tracking).blocks, 0);
    test_round_end(round);
    teardown(&f);
}

static void every_host_allocation_fails_in_turn(void **state)
{
    (void)state;
    CHECK_OK(test_heap_install());
    assert_true(test_rounds_run(&test_host_faults, "tracking", use_while_failing, NULL).felt > 10);
    assert_int_equal(test_heap_live(), 0);
    CHECK_OK(loch_host_set_allocator(NULL));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_tracking_wrapper_says_what_it_is),
        cmocka_unit_test(wrong_frees_do_not_reach_the_wrapped_allocator),
        cmocka_unit_test(a_free_that_fails_changes_nothing),
        cmocka_unit_test(failures_are_counted),
        cmocka_unit_test(figures_are_its_own_and_the_rest_the_wrapped_ones),
        cmocka_unit_test(figures_are_kept_by_tag),
        cmocka_unit_test(blocks_are_found),
        cmocka_unit_test(empty_blocks_are_blocks),
        cmocka_unit_test(records_are_the_newest_in_order),
        cmocka_unit_test(blocks_outlive_the_last_reference),
        cmocka_unit_test(tracking_wrappers_stack),
        cmocka_unit_test(eight_threads_are_counted_exactly),
        cmocka_unit_test(every_host_allocation_fails_in_turn),
    };
    return cmocka_run_group_tests_name("tracking", tests, NULL, NULL);
}

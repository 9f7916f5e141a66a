/* SPDX-License-Identifier: MIT */
/* Contract of allocator.h, over every allocator and stack: what is known of blocks, and the figures. */
#include "memory/allocator_state.h"
#include "allocators.h"

#define COUNT 40

static void every_level_has_a_name_a_kind_and_its_device(void **state)
{
    test_subject s;
    test_subject_begin(&s, state);
    size_t levels = 1;
    for (const char *at = s.stack; (at = strchr(at, '/')); at++)
        levels++;
    for (loch_allocator *level = s.allocator; level; level = loch_allocator_get_wrapped(level)) {
        assert_true(loch_allocator_get_name(level)[0] && strlen(loch_allocator_get_name(level)) < 64);
        assert_true(level->ops.kind[0]);
        assert_ptr_equal(loch_allocator_get_device(level), s.bed->device);
        assert_true(levels-- > 0);
    }
    assert_int_equal(levels, 0);
    assert_ptr_equal(loch_allocator_retain(s.allocator), s.allocator);
    loch_allocator_release(s.allocator);
    assert_string_equal(loch_allocator_get_name(NULL), "");
    assert_null(loch_allocator_get_device(NULL));
    assert_null(loch_allocator_get_wrapped(NULL));
    assert_int_equal(loch_allocator_get_traits(NULL), 0);
    assert_null(loch_allocator_retain(NULL));
    loch_allocator_release(NULL);
    test_subject_end(&s);
}

static void traits_and_attributes_are_those_of_the_memory(void **state)
{
    test_subject s;
    test_subject_begin(&s, state);
    const bool is_unsafe = test_stack_has(s.stack, "user-unsafe") && !test_stack_has(s.stack, "locked");
    assert_int_equal((s.traits & LOCH_TRAIT_THREAD_SAFE) != 0, !is_unsafe);
    const loch_attributes attributes = loch_allocator_get_attributes(s.allocator);
    const bool is_pinned = test_stack_is_pinned(s.stack);
    const bool is_host = is_pinned || test_bed_can(s.bed, LOCH_CAN_HOST_ACCESS);
    assert_int_equal(loch_attributes_has(attributes, LOCH_ATTRIBUTE_ON_HOST), is_host);
    if (is_pinned || !is_host) assert_true(loch_attributes_has(attributes, LOCH_ATTRIBUTE_GPU_COMPATIBLE));
    assert_int_equal(loch_attributes_has(attributes, LOCH_ATTRIBUTE_TRACK_SIZES),
                     (s.traits & LOCH_TRAIT_TRACKS_SIZES) != 0);
    assert_int_equal(loch_attributes_has(attributes, TEST_USER_BIT), test_stack_has(s.stack, "user-full"));
    if (test_stack_has(s.stack, "tracking")) assert_true(s.traits & LOCH_TRAIT_TRACKS_SIZES);
    test_subject_end(&s);
}

typedef struct seen_blocks {
    loch_block blocks[COUNT * 2];
    size_t count, stop_at;
} seen_blocks;

static loch_status see_block(const loch_block *block, void *user)
{
    seen_blocks *seen = user;
    if (seen->count < COUNT * 2) seen->blocks[seen->count] = *block;
    if (++seen->count == seen->stop_at) return loch_error_set(LOCH_E_CANCELLED, NULL, 0, "enough seen");
    return LOCH_OK;
}

static void blocks_are_known(void **state)
{
    test_subject s;
    char *blocks[COUNT];
    uint64_t ids[COUNT + 1];
    loch_tag tags[2];
    test_subject_begin(&s, state);
    CHECK_OK(loch_tag_create("weights", &tags[0]));
    CHECK_OK(loch_tag_create("activations", &tags[1]));
    for (size_t i = 0; i < COUNT; i++) {
        const loch_request request = {.size = sizeof request, .bytes = 100 + i, .tag = tags[i % 2]};
        CHECK_OK(loch_allocator_alloc(s.allocator, &request, (void **)&blocks[i]));
    }
    for (size_t i = 0; i < COUNT; i++) {
        loch_block block = {.size = sizeof block};
        CHECK_OK(loch_allocator_find(s.allocator, blocks[i], &block));
        assert_ptr_equal(block.address, blocks[i]);
        assert_int_equal(block.requested_bytes, 100 + i);
        assert_true(block.allocated_bytes >= block.requested_bytes);
        assert_true(block.id != 0);
        assert_int_equal(block.tag, tags[i % 2]);
        ids[i] = block.id;
        for (size_t k = 0; k < i; k++)
            assert_true(ids[k] != ids[i]);
    }
    /* an id is not used twice, even if the address is */
    CHECK_OK(loch_free(s.allocator, blocks[0]));
    blocks[0] = test_subject_alloc(&s, 100);
    loch_block again = {.size = sizeof again};
    CHECK_OK(loch_allocator_find(s.allocator, blocks[0], &again));
    for (size_t k = 0; k < COUNT; k++)
        assert_true(ids[k] != again.id);
    assert_int_equal(again.tag, 0);
    ids[0] = again.id;

    seen_blocks seen = {.count = 0};
    CHECK_OK(loch_allocator_walk(s.allocator, see_block, &seen));
    assert_int_equal(seen.count, COUNT);
    for (size_t i = 0; i < COUNT; i++) {
        size_t times = 0;
        for (size_t k = 0; k < COUNT; k++) {
            if (seen.blocks[k].address != blocks[i]) continue;
            times++;
            assert_int_equal(seen.blocks[k].requested_bytes, 100 + i);
            assert_int_equal(seen.blocks[k].id, ids[i]);
            assert_int_equal(seen.blocks[k].tag, i ? tags[i % 2] : 0);
        }
        assert_int_equal(times, 1);
    }
    seen = (seen_blocks){.stop_at = 3};
    CHECK_FAILS(loch_allocator_walk(s.allocator, see_block, &seen), CANCELLED);
    assert_int_equal(seen.count, 3);
    for (size_t i = 0; i < COUNT; i++)
        CHECK_OK(loch_free(s.allocator, blocks[i]));
    seen = (seen_blocks){.count = 0};
    CHECK_OK(loch_allocator_walk(s.allocator, see_block, &seen));
    assert_int_equal(seen.count, 0);
    test_subject_end(&s);
}

static void peaks_are_kept_until_a_reset(void **state)
{
    test_subject s;
    test_subject_begin(&s, state);
    void *a = test_subject_alloc(&s, 1000), *b = test_subject_alloc(&s, 3000), *c = test_subject_alloc(&s, 500);
    CHECK_OK(loch_free(s.allocator, b));
    loch_stats stats = test_subject_stats(&s);
    assert_int_equal(stats.allocs, 3);
    assert_int_equal(stats.frees, 1);
    assert_int_equal(stats.blocks, 2);
    assert_int_equal(stats.peak_blocks, 3);
    assert_int_equal(stats.requested_bytes, 1500);
    assert_int_equal(stats.peak_requested_bytes, 4500);
    assert_int_equal(stats.largest_bytes, 3000);
    assert_true(stats.peak_allocated_bytes >= 4500 && stats.allocated_bytes >= 1500);
    assert_true(stats.peak_reserved_bytes >= stats.reserved_bytes);

    CHECK_OK(loch_allocator_reset_stats(s.allocator));
    stats = test_subject_stats(&s);
    assert_int_equal(stats.allocs, 0);
    assert_int_equal(stats.frees, 0);
    assert_int_equal(stats.failures, 0);
    assert_int_equal(stats.blocks, 2);
    assert_int_equal(stats.peak_blocks, 2);
    assert_int_equal(stats.requested_bytes, 1500);
    assert_int_equal(stats.peak_requested_bytes, 1500);
    assert_int_equal(stats.peak_allocated_bytes, stats.allocated_bytes);
    assert_int_equal(stats.peak_reserved_bytes, stats.reserved_bytes);
    assert_int_equal(stats.largest_bytes, 0);
    assert_int_equal(stats.retries, 0);

    void *d = test_subject_alloc(&s, 700);
    CHECK_OK(loch_free(s.allocator, d));
    CHECK_OK(loch_free(s.allocator, a));
    stats = test_subject_stats(&s);
    assert_int_equal(stats.allocs, 1);
    assert_int_equal(stats.frees, 2);
    assert_int_equal(stats.requested_bytes, 500);
    assert_int_equal(stats.peak_requested_bytes, 2200);
    assert_int_equal(stats.peak_blocks, 3);
    assert_int_equal(stats.largest_bytes, 700);
    CHECK_OK(loch_free(s.allocator, c));
    CHECK_OK(loch_allocator_reset_stats(s.allocator));
    stats = test_subject_stats(&s);
    assert_int_equal(stats.peak_requested_bytes, 0);
    assert_int_equal(stats.peak_blocks, 0);
    test_subject_end(&s);
}

static void failures_are_counted(void **state)
{
    test_subject s;
    test_subject_begin(&s, state);
    void *block = TEST_UNTOUCHED;
    const uint64_t before = test_subject_stats(&s).failures;
    CHECK_FAILS_SET(loch_alloc(s.allocator, s.capacity + 1, &block), TEST_SET(DEVICE_MEMORY) | TEST_SET(LIMIT));
    assert_int_equal(test_subject_stats(&s).failures, before + 1);
    assert_int_equal(test_subject_stats(&s).allocs, 0);
    test_subject_end(&s);
}

/* A program that knows fewer figures gets those and no more. */
static void a_shorter_struct_gets_the_figures_that_it_knows(void **state)
{
    test_subject s;
    test_subject_begin(&s, state);
    void *block = test_subject_alloc(&s, 100);
    loch_stats stats;
    memset(&stats, 0xff, sizeof stats);
    stats.size = offsetof(loch_stats, frees);
    CHECK_OK(loch_allocator_get_stats(s.allocator, &stats));
    assert_int_equal(stats.allocs, 1);
    assert_int_equal(stats.frees, UINT64_MAX);
    assert_int_equal(stats.size, offsetof(loch_stats, frees));
    CHECK_OK(loch_free(s.allocator, block));
    test_subject_end(&s);
}

static void figures_are_kept_by_tag(void **state)
{
    test_subject s;
    loch_tag tags[2];
    void *blocks[6];
    test_subject_begin(&s, state);
    CHECK_OK(loch_tag_create("figures a", &tags[0]));
    CHECK_OK(loch_tag_create("figures b", &tags[1]));
    for (size_t i = 0; i < 6; i++) {
        const loch_request request = {.size = sizeof request, .bytes = 1000 * (i + 1), .tag = i < 4 ? tags[i % 2] : 0};
        CHECK_OK(loch_allocator_alloc(s.allocator, &request, &blocks[i]));
    }
    for (size_t t = 0; t < 2; t++) { /* a: 1000 and 3000, b: 2000 and 4000 */
        loch_stats stats = {.size = sizeof stats};
        CHECK_OK(loch_allocator_get_tag_stats(s.allocator, tags[t], &stats));
        assert_int_equal(stats.allocs, 2);
        assert_int_equal(stats.blocks, 2);
        assert_int_equal(stats.requested_bytes, t ? 6000 : 4000);
        assert_int_equal(stats.peak_requested_bytes, t ? 6000 : 4000);
        assert_int_equal(stats.largest_bytes, t ? 4000 : 3000);
    }
    for (size_t i = 0; i < 6; i++)
        CHECK_OK(loch_free(s.allocator, blocks[i]));
    for (size_t t = 0; t < 2; t++) {
        loch_stats stats = {.size = sizeof stats};
        CHECK_OK(loch_allocator_get_tag_stats(s.allocator, tags[t], &stats));
        assert_int_equal(stats.allocs, 2);
        assert_int_equal(stats.frees, 2);
        assert_int_equal(stats.blocks, 0);
        assert_int_equal(stats.requested_bytes, 0);
        assert_int_equal(stats.peak_requested_bytes, t ? 6000 : 4000);
    }
    loch_stats none = {.size = sizeof none};
    CHECK_FAILS(loch_allocator_get_tag_stats(s.allocator, LOCH_TAG_COUNT_MAX - 1, &none), INVALID);
    assert_int_equal(test_subject_stats(&s).allocs, 6);
    test_subject_end(&s);
}

/* A wrapper loses no figure that what it wraps keeps: each level against the one below it. */
static void wrappers_forward_figures(void **state)
{
    test_subject s;
    test_subject_begin(&s, state);
    void *a = test_subject_alloc(&s, 5000), *b = test_subject_alloc(&s, 700), *none = TEST_UNTOUCHED;
    CHECK_OK(loch_free(s.allocator, b));
    CHECK_FAILS_SET(loch_alloc(s.allocator, s.capacity + 1, &none), TEST_SET(DEVICE_MEMORY) | TEST_SET(LIMIT));
    for (loch_allocator *outer = s.allocator, *inner; (inner = loch_allocator_get_wrapped(outer)); outer = inner) {
        loch_stats above = {.size = sizeof above}, below = {.size = sizeof below};
        CHECK_OK(loch_allocator_get_stats(outer, &above));
        CHECK_OK(loch_allocator_get_stats(inner, &below));
#define EXPECT_KEPT(name, sum, text)                                                                                   \
    if (below.name && !above.name) fail_msg("%s is lost by %s", #name, outer->ops.kind);
        LOCH_STATS_LIST(EXPECT_KEPT)
#undef EXPECT_KEPT
        assert_int_equal(above.blocks, below.blocks);
        assert_int_equal(above.allocs, below.allocs);
        assert_int_equal(above.frees, below.frees);
        assert_int_equal(above.reserved_bytes, below.reserved_bytes);
        assert_int_equal(above.peak_reserved_bytes, below.peak_reserved_bytes);
        assert_int_equal(above.cached_bytes, below.cached_bytes);
        assert_true(above.requested_bytes <= below.requested_bytes);
    }
    CHECK_OK(loch_free(s.allocator, a));
    test_subject_end(&s);
}

/* Every level has resets of its own. */
static void a_reset_of_one_level_leaves_the_others(void **state)
{
    test_subject s;
    test_subject_begin(&s, state);
    loch_allocator *inner = loch_allocator_get_wrapped(s.allocator);
    test_subject_require(&s, inner != NULL);
    void *a = test_subject_alloc(&s, 3000);
    CHECK_OK(loch_free(s.allocator, a));
    CHECK_OK(loch_allocator_reset_stats(inner));
    loch_stats outer_stats = test_subject_stats(&s), inner_stats = {.size = sizeof inner_stats};
    assert_int_equal(outer_stats.peak_requested_bytes, 3000);
    assert_int_equal(outer_stats.largest_bytes, 3000);
    assert_int_equal(outer_stats.allocs, 1);
    CHECK_OK(loch_allocator_get_stats(inner, &inner_stats));
    assert_int_equal(inner_stats.peak_requested_bytes, 0);
    assert_int_equal(inner_stats.allocs, 0);

    CHECK_OK(loch_allocator_reset_stats(s.allocator));
    a = test_subject_alloc(&s, 2000);
    CHECK_OK(loch_free(s.allocator, a));
    CHECK_OK(loch_allocator_reset_stats(s.allocator));
    outer_stats = test_subject_stats(&s);
    assert_int_equal(outer_stats.peak_requested_bytes, 0);
    assert_int_equal(outer_stats.allocs, 0);
    CHECK_OK(loch_allocator_get_stats(inner, &inner_stats));
    assert_true(inner_stats.peak_requested_bytes >= 2000);
    assert_int_equal(inner_stats.allocs, 1);
    test_subject_end(&s);
}

/* A measuring scope on one level takes nothing from the others' peaks. */
static void a_scope_on_one_level_leaves_the_peaks_of_others(void **state)
{
    test_subject s;
    loch_profile *profile = NULL;
    test_subject_begin(&s, state);
    loch_allocator *inner =
        loch_allocator_get_wrapped(s.allocator) ? loch_allocator_get_wrapped(s.allocator) : s.allocator;
    void *a = test_subject_alloc(&s, 3000);
    CHECK_OK(loch_free(s.allocator, a));
    CHECK_OK(loch_profile_begin(inner, "inner", &profile));
    loch_profile *outer = NULL;
    CHECK_OK(loch_profile_begin(s.allocator, "outer", &outer));
    a = test_subject_alloc(&s, 1000);
    CHECK_OK(loch_free(s.allocator, a));
    loch_profile_report report = {.size = sizeof report};
    loch_profile_end(profile, &report);
    assert_true(report.peak_bytes >= 1000 && report.peak_bytes < 3000);
    assert_int_equal(report.allocs, 1);
    a = test_subject_alloc(&s, 500);
    report = (loch_profile_report){.size = sizeof report};
    loch_profile_end(outer, &report);
    assert_int_equal(report.peak_bytes, 1000);
    assert_int_equal(report.delta_bytes, 500);
    assert_int_equal(report.allocs, 2);
    assert_int_equal(report.frees, 1);
    const loch_stats stats = test_subject_stats(&s);
    assert_int_equal(stats.peak_requested_bytes, 3000);
    assert_int_equal(stats.largest_bytes, 3000);
    assert_int_equal(stats.allocs, 3);
    CHECK_OK(loch_free(s.allocator, a));
    test_subject_end(&s);
}

static void trim_succeeds(void **state)
{
    test_subject s;
    test_subject_begin(&s, state);
    size_t released = 99;
    void *a = test_subject_alloc(&s, 5000), *b = test_subject_alloc(&s, 5000);
    test_bed_put(s.bed, a, 5000, 3);
    CHECK_OK(loch_free(s.allocator, b));
    CHECK_OK(loch_allocator_trim(s.allocator, SIZE_MAX, &released));
    CHECK_OK(loch_allocator_trim(s.allocator, 0, &released));
    assert_true(released <= 2 * TEST_MIB);
    CHECK_OK(loch_allocator_trim(s.allocator, 0, NULL));
    const loch_stats stats = test_subject_stats(&s);
    assert_int_equal(stats.blocks, 1);
    assert_int_equal(stats.requested_bytes, 5000);
    test_bed_expect(s.bed, a, 5000, 3);
    CHECK_OK(loch_free(s.allocator, a));
    CHECK_FAILS(loch_allocator_trim(NULL, 0, &released), INVALID);
    test_subject_end(&s);
}

static void measurements_count_sizes_and_times_once_switched_on(void **state)
{
    test_subject s;
    loch_measurements seen = {.size = sizeof seen}, no_size = {0};
    test_subject_begin(&s, state);
    CHECK_FAILS(loch_allocator_get_measurements(s.allocator, &seen), UNSUPPORTED);
    CHECK_FAILS(loch_allocator_get_measurements(s.allocator, &no_size), INVALID);
    CHECK_OK(loch_allocator_measure(s.allocator, LOCH_MEASURE_ON));
    const size_t sizes[] = {1, 2, 3, 4, 1024, 1025}; /* buckets 0, 1, 2, 2, 10, 11 */
    for (size_t i = 0; i < 6; i++) {
        void *block = test_subject_alloc(&s, sizes[i]);
        CHECK_OK(loch_free(s.allocator, block));
    }
    CHECK_OK(loch_allocator_get_measurements(s.allocator, &seen));
    assert_int_equal(seen.bytes.count, 6);
    assert_int_equal(seen.alloc_ns.count, 6);
    assert_int_equal(seen.free_ns.count, 6);
    assert_int_equal(seen.bytes.buckets[0], 1);
    assert_int_equal(seen.bytes.buckets[1], 1);
    assert_int_equal(seen.bytes.buckets[2], 2);
    assert_int_equal(seen.bytes.buckets[10], 1);
    assert_int_equal(seen.bytes.buckets[11], 1);
    assert_true(loch_histogram_percentile(&seen.alloc_ns, 1) > 0);
    CHECK_OK(loch_allocator_measure(s.allocator, LOCH_MEASURE_OFF));
    void *block = test_subject_alloc(&s, 100);
    CHECK_OK(loch_allocator_get_measurements(s.allocator, &seen));
    assert_int_equal(seen.bytes.count, 0);
    CHECK_OK(loch_allocator_measure(s.allocator, LOCH_MEASURE_ON));
    CHECK_OK(loch_free(s.allocator, block));
    CHECK_OK(loch_allocator_get_measurements(s.allocator, &seen));
    assert_int_equal(seen.bytes.count, 0);
    assert_int_equal(seen.free_ns.count, 1);
    test_subject_end(&s);
}

int main(void)
{
    const struct CMUnitTest cases[] = {
        cmocka_unit_test(every_level_has_a_name_a_kind_and_its_device),
        cmocka_unit_test(traits_and_attributes_are_those_of_the_memory),
        cmocka_unit_test(blocks_are_known),
        cmocka_unit_test(peaks_are_kept_until_a_reset),
        cmocka_unit_test(failures_are_counted),
        cmocka_unit_test(a_shorter_struct_gets_the_figures_that_it_knows),
        cmocka_unit_test(figures_are_kept_by_tag),
        cmocka_unit_test(wrappers_forward_figures),
        cmocka_unit_test(a_reset_of_one_level_leaves_the_others),
        cmocka_unit_test(a_scope_on_one_level_leaves_the_peaks_of_others),
        cmocka_unit_test(trim_succeeds),
        cmocka_unit_test(measurements_count_sizes_and_times_once_switched_on),
    };
    return TEST_SUBJECTS_RUN(cases);
}

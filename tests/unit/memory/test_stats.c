/* SPDX-License-Identifier: MIT */
/* Figures: sums by each one's rule, fragmentation, percentiles, text and JSON from one list. */
#include "base/clock.h"
#include "json_check.h"
#include "test.h"

#include <inttypes.h>

static loch_stats counting_up(uint64_t from)
{
    loch_stats stats = {.size = sizeof stats};
#define SET(name, sum, text) stats.name = from++;
    LOCH_STATS_LIST(SET)
#undef SET
    return stats;
}

static void each_figure_sums_by_its_own_rule(void **state)
{
    (void)state;
    loch_stats a = counting_up(1), b = counting_up(1000);
    loch_stats_add(&a, &b);
    uint64_t low = 1, high = 1000;
#define EXPECT_ADD(name) assert_int_equal(a.name, low + high)
#define EXPECT_MAX(name) assert_int_equal(a.name, high)
#define EXPECT_LIMIT(name) assert_int_equal(a.name, low + high)
#define EXPECT(name, sum, text)                                                                                        \
    EXPECT_##sum(name);                                                                                                \
    low++, high++;
    LOCH_STATS_LIST(EXPECT)
#undef EXPECT
    loch_stats known = {.size = sizeof known, .limit_bytes = 5}, unknown = {.size = sizeof unknown};
    loch_stats_add(&known, &unknown);
    assert_int_equal(known.limit_bytes, 0);
    known.limit_bytes = 7;
    loch_stats_add(&unknown, &known);
    assert_int_equal(unknown.limit_bytes, 0);
}

static void fragmentation_is_what_is_not_in_the_largest_piece(void **state)
{
    (void)state;
    loch_stats stats = {.size = sizeof stats};
    assert_true(loch_stats_fragmentation(&stats) == 0); /* nothing cached: not 0 / 0 */
    stats.cached_bytes = 100;
    assert_true(loch_stats_fragmentation(&stats) == 0); /* nothing is in use: nothing lies between free pieces */
    stats.blocks = 1;
    assert_true(loch_stats_fragmentation(&stats) == 1);
    stats.largest_free_bytes = 25;
    assert_true(loch_stats_fragmentation(&stats) == 0.75);
    stats.largest_free_bytes = 100;
    assert_true(loch_stats_fragmentation(&stats) == 0);
    stats.largest_free_bytes = 200; /* read at two moments: still no negative number */
    assert_true(loch_stats_fragmentation(&stats) == 0);
}

static void text_and_json_have_every_figure(void **state)
{
    (void)state;
    const loch_stats stats = counting_up(UINT64_MAX - 40), zero = {.size = sizeof zero};
    char text[4096], json[4096], expected[64];
    const size_t length = test_stats_print(&stats, text, sizeof text);
    assert_int_equal(length, strlen(text));
    const size_t json_length = test_stats_print_json(&stats, json, sizeof json);
    assert_int_equal(json_length, strlen(json));
    assert_true(json_is_valid(json));
#define FIND(name, sum, line)                                                                                          \
    if (strstr(#name, "_bytes"))                                                                                       \
        snprintf(expected, sizeof expected, "%s: 15.9 EiB\n", line);                                                   \
    else if (strstr(#name, "_ns"))                                                                                     \
        snprintf(expected, sizeof expected, "%s: 18446744073.709 s\n", line);                                          \
    else                                                                                                               \
        snprintf(expected, sizeof expected, "%s: %" PRIu64 "\n", line, stats.name);                                    \
    assert_non_null(strstr(text, expected));                                                                           \
    snprintf(expected, sizeof expected, "\"%s\": %" PRIu64 ",", #name, stats.name);                                    \
    assert_non_null(strstr(json, expected));
    LOCH_STATS_LIST(FIND)
#undef FIND
    assert_string_equal((test_stats_print(&zero, text, sizeof text), text), "fragmentation: 0.000\n");
    test_stats_print_json(&zero, json, sizeof json);
    assert_true(json_is_valid(json));
    /* no room, little room */
    assert_int_equal(test_stats_print(&stats, NULL, 0), length);
    assert_int_equal(test_stats_print_json(&stats, NULL, 0), json_length);
    memset(text, '#', sizeof text);
    assert_int_equal(test_stats_print_json(&stats, text, 10), json_length);
    assert_int_equal(strlen(text), 9);
    assert_int_equal(text[10], '#');
}

static void text_has_sizes_for_people_and_json_exact_numbers(void **state)
{
    (void)state;
    const loch_stats stats = {.size = sizeof stats,
                              .allocs = 4096,
                              .blocks = 2,
                              .requested_bytes = 4097,
                              .largest_bytes = 700,
                              .cached_bytes = 3 << 20};
    char text[512], json[2048];
    test_stats_print(&stats, text, sizeof text);
    assert_string_equal(text, "allocations that succeeded: 4096\n"
                              "blocks in use: 2\n"
                              "bytes in use, as asked for: 4 KiB\n"
                              "largest request that succeeded: 700 B\n"
                              "bytes held from the device and not in use: 3 MiB\n"
                              "fragmentation: 1.000\n");
    test_stats_print_json(&stats, json, sizeof json);
    assert_non_null(strstr(json, "\"requested_bytes\": 4097,"));
    assert_non_null(strstr(json, "\"cached_bytes\": 3145728,"));
}

static void percentiles_lie_inside_their_buckets(void **state)
{
    (void)state;
    loch_histogram histogram = {0};
    assert_int_equal(loch_histogram_percentile(&histogram, 0.5), 0);
    histogram.buckets[10] = 100; /* 513 to 1024 */
    histogram.count = 100;
    assert_int_equal(loch_histogram_percentile(&histogram, 0), 512);
    assert_int_equal(loch_histogram_percentile(&histogram, 0.5), 768);
    assert_int_equal(loch_histogram_percentile(&histogram, 1), 1024);
    histogram.buckets[20] = 100;
    histogram.count = 200;
    assert_int_equal(loch_histogram_percentile(&histogram, 0.5), 1024);
    assert_in_range(loch_histogram_percentile(&histogram, 0.51), 1 << 19, 1 << 20);
    assert_int_equal(loch_histogram_percentile(&histogram, 1), 1 << 20);
    uint64_t last = 0;
    for (int i = 0; i <= 100; i++) { /* never falls */
        const uint64_t value = loch_histogram_percentile(&histogram, i / 100.0);
        assert_true(value >= last);
        last = value;
    }
    loch_histogram ends = {.count = 2, .buckets = {[0] = 1, [63] = 1}};
    assert_in_range(loch_histogram_percentile(&ends, 0.5), 0, 1);
    assert_true(loch_histogram_percentile(&ends, 1) >= (uint64_t)1 << 62);
}

/* Sizes and latencies while they are measured, by a clock that the test moves. */
static uint64_t clock_ns;

static uint64_t stepping_clock(void *user)
{
    (void)user;
    return clock_ns += 100;
}

static void measurements_begin_when_switched_on(void **state)
{
    (void)state;
    loch_device *device;
    loch_allocator *allocator;
    loch_measurements seen = {.size = sizeof seen};
    void *blocks[8];
    CHECK_OK(loch_device_open("cpu", &device));
    CHECK_OK(loch_direct_create(device, NULL, NULL, &allocator));
    CHECK_FAILS(loch_allocator_get_measurements(allocator, &seen), UNSUPPORTED);
    CHECK_OK(loch_alloc(allocator, 1 << 20, &blocks[0]));
    CHECK_OK(loch_free(allocator, blocks[0]));
    lochi_clock_set(stepping_clock, NULL);
    CHECK_OK(loch_allocator_measure(allocator, LOCH_MEASURE_ON));
    for (size_t i = 0; i < 8; i++)
        CHECK_OK(loch_alloc(allocator, (size_t)1 << i, &blocks[i]));
    for (size_t i = 0; i < 4; i++)
        CHECK_OK(loch_free(allocator, blocks[i]));
    CHECK_OK(loch_allocator_get_measurements(allocator, &seen));
    assert_int_equal(seen.bytes.count, 8); /* and not the one before */
    for (size_t i = 0; i < 8; i++)
        assert_int_equal(seen.bytes.buckets[i], 1);
    assert_int_equal(seen.alloc_ns.count, 8);
    assert_int_equal(seen.free_ns.count, 4);
    assert_true(loch_histogram_percentile(&seen.alloc_ns, 0.5) >= 64);
    CHECK_OK(loch_allocator_measure(allocator, LOCH_MEASURE_OFF));
    for (size_t i = 4; i < 8; i++)
        CHECK_OK(loch_free(allocator, blocks[i]));
    CHECK_OK(loch_allocator_get_measurements(allocator, &seen));
    assert_int_equal(seen.free_ns.count, 0); /* switching sets to zero */
    lochi_clock_set(NULL, NULL);
    loch_allocator_release(allocator);
    loch_device_release(device);
}

/* peak, largest and counts since the last reset. */
static void a_reset_starts_peaks_and_counts_anew(void **state)
{
    (void)state;
    loch_device *device;
    loch_allocator *allocator;
    void *small, *large;
    loch_stats stats = {.size = sizeof stats};
    CHECK_OK(loch_device_open("cpu", &device));
    CHECK_OK(loch_direct_create(device, NULL, NULL, &allocator));
    CHECK_OK(loch_alloc(allocator, 1000, &small));
    CHECK_OK(loch_alloc(allocator, 5000, &large));
    CHECK_OK(loch_free(allocator, large));
    CHECK_OK(loch_allocator_get_stats(allocator, &stats));
    assert_int_equal(stats.allocs, 2);
    assert_int_equal(stats.frees, 1);
    assert_int_equal(stats.peak_requested_bytes, 6000);
    assert_int_equal(stats.largest_bytes, 5000);
    CHECK_OK(loch_allocator_reset_stats(allocator));
    CHECK_OK(loch_allocator_get_stats(allocator, &stats));
    assert_int_equal(stats.allocs, 0);
    assert_int_equal(stats.frees, 0);
    assert_int_equal(stats.requested_bytes, 1000);
    assert_int_equal(stats.peak_requested_bytes, 1000);
    assert_int_equal(stats.peak_blocks, 1);
    assert_int_equal(stats.largest_bytes, 0);
    struct {
        size_t size;
        uint64_t allocs, untouched;
    } little = {2 * sizeof(uint64_t), 77, 88}; /* a caller from before the other figures were there */
    CHECK_OK(loch_allocator_get_stats(allocator, (loch_stats *)(void *)&little));
    assert_int_equal(little.allocs, 0);
    assert_int_equal(little.untouched, 88);
    stats.size = 0;
    CHECK_FAILS(loch_allocator_get_stats(allocator, &stats), INVALID);
    CHECK_OK(loch_free(allocator, small));
    loch_allocator_release(allocator);
    loch_device_release(device);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(each_figure_sums_by_its_own_rule),
        cmocka_unit_test(fragmentation_is_what_is_not_in_the_largest_piece),
        cmocka_unit_test(text_and_json_have_every_figure),
        cmocka_unit_test(text_has_sizes_for_people_and_json_exact_numbers),
        cmocka_unit_test(percentiles_lie_inside_their_buckets),
        cmocka_unit_test(measurements_begin_when_switched_on),
        cmocka_unit_test(a_reset_starts_peaks_and_counts_anew),
    };
    return cmocka_run_group_tests_name("statistics", tests, NULL, NULL);
}

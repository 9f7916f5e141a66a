/* SPDX-License-Identifier: MIT */
/* Measuring scopes: peaks inside, deltas, scopes that nest and cross, and reports. */
#include "base/clock.h"
#include "profile_fixture.h"
#include <inttypes.h>
#include <pthread.h>

#define THREADS 8

static loch_profile *begin(loch_allocator *allocator, const char *label)
{
    loch_profile *profile;
    CHECK_OK(loch_profile_begin(allocator, label, &profile));
    return profile;
}

static void expect(const loch_profile_report *report, uint64_t now, int64_t delta, uint64_t peak, uint64_t allocs,
                   uint64_t frees, uint64_t blocks, int64_t delta_blocks)
{
    assert_int_equal(report->requested_bytes, now);
    assert_int_equal(report->delta_bytes, delta);
    assert_int_equal(report->peak_bytes, peak);
    assert_int_equal(report->allocs, allocs);
    assert_int_equal(report->frees, frees);
    assert_int_equal(report->blocks, blocks);
    assert_int_equal(report->delta_blocks, delta_blocks);
}

static loch_profile_report read_report(loch_profile *profile)
{
    loch_profile_report report = {.size = sizeof report};
    CHECK_OK(loch_profile_read(profile, &report));
    return report;
}

static loch_profile_report end(loch_profile *profile)
{
    loch_profile_report report = {.size = sizeof report, .label = "x"};
    loch_profile_end(profile, &report);
    assert_null(report.label);
    return report;
}

static void nested_scopes_have_peaks_of_their_own(void **state)
{
    (void)state;
    loch_allocator *a = open_direct();
    void *old = take(a, 100, 0), *before = take(a, 10000, 0);
    CHECK_OK(loch_free(a, before)); /* a peak that is of no scope */
    loch_profile *outer = begin(a, "outer");
    loch_profile_report report = read_report(outer);
    expect(&report, 100, 0, 100, 0, 0, 1, 0);
    assert_string_equal(report.label, "outer");
    void *x = take(a, 1000, 0);
    CHECK_OK(loch_free(a, x));
    loch_profile *inner = begin(a, "inner");
    void *y = take(a, 500, 0);
    report = read_report(inner);
    expect(&report, 600, 500, 600, 1, 0, 2, 1);
    loch_profile *innermost = begin(a, NULL);
    void *z = take(a, 50, 0);
    CHECK_OK(loch_free(a, z));
    report = end(innermost);
    expect(&report, 600, 0, 650, 1, 1, 2, 0);
    CHECK_OK(loch_free(a, old)); /* made before the scope, freed inside */
    report = end(inner);
    expect(&report, 500, 400, 650, 2, 2, 1, 0);
    CHECK_OK(loch_free(a, y));
    report = read_report(outer);
    expect(&report, 0, -100, 1100, 3, 4, 0, -1);
    report = end(outer);
    expect(&report, 0, -100, 1100, 3, 4, 0, -1);
    loch_stats stats = {.size = sizeof stats};
    CHECK_OK(loch_allocator_get_stats(a, &stats)); /* scopes leave the allocator's own figures alone */
    assert_int_equal(stats.peak_requested_bytes, 10100);
    assert_int_equal(stats.largest_bytes, 10000);
    loch_allocator_release(a);
}

static void scopes_may_cross_each_other_and_resets(void **state)
{
    (void)state;
    loch_allocator *a = open_direct();
    loch_profile *first = begin(a, "first");
    void *x = take(a, 4000, 0);
    CHECK_OK(loch_free(a, x));
    loch_profile *second = begin(a, "second");
    x = take(a, 300, 0);
    loch_profile_report report = end(first);
    expect(&report, 300, 300, 4000, 2, 1, 1, 1);
    CHECK_OK(loch_allocator_reset_stats(a)); /* does not disturb a scope */
    void *y = take(a, 20, 0);
    CHECK_OK(loch_free(a, y));
    CHECK_OK(loch_allocator_reset_stats(a));
    report = end(second);
    expect(&report, 300, 300, 320, 2, 1, 1, 1);
    CHECK_OK(loch_free(a, x));
    loch_allocator_release(a);
}

/* A scope on a wrapper, while others measure and reset what it wraps. */
static void a_scope_on_a_wrapper_is_left_alone_by_those_below(void **state)
{
    (void)state;
    loch_allocator *a = open_direct(), *limit, *tracking;
    const loch_limit_options options = {.size = sizeof options, .hard_bytes = TEST_MIB};
    CHECK_OK(loch_limit_create(a, "limit", &options, &limit));
    CHECK_OK(loch_tracking_create(limit, "tracking", NULL, &tracking));
    void *below = take(a, 7000, 0);
    loch_profile *on_limit = begin(limit, "limit"), *on_tracking = begin(tracking, "tracking"),
                 *on_direct = begin(a, "a");
    void *x = take(tracking, 900, 0);
    CHECK_OK(loch_free(tracking, x));
    CHECK_OK(loch_allocator_reset_stats(a));
    CHECK_OK(loch_allocator_reset_stats(limit));
    loch_profile *late = begin(a, "late");
    loch_profile_report report = end(on_tracking);
    expect(&report, 0, 0, 900, 1, 1, 0, 0); /* its own blocks only */
    report = end(on_limit);
    assert_int_equal(report.delta_bytes, 0);
    assert_int_equal(report.allocs, 1);
    assert_true(report.peak_bytes == 900 || report.peak_bytes == 7900); /* its own, or those of what it wraps */
    report = end(on_direct);
    expect(&report, 7000, 0, 7900, 1, 1, 1, 0);
    report = end(late);
    expect(&report, 7000, 0, 7000, 0, 0, 1, 0);
    CHECK_OK(loch_free(a, below));
    loch_allocator_release(tracking);
    loch_allocator_release(limit);
    loch_allocator_release(a);
}

/* --- an allocator of the user's, with figures but no segments --- */

typedef struct plain {
    loch_stats stats;
} plain;

static loch_status plain_alloc(void *self, const loch_request *request, void **out)
{
    plain *p = self;
    *out = malloc(request->bytes);
    if (!*out) return loch_error_set(LOCH_E_DEVICE_MEMORY, NULL, 0, "malloc has no %zu bytes", request->bytes);
    *(size_t *)*out = request->bytes;
    p->stats.allocs++;
    p->stats.blocks++;
    p->stats.requested_bytes += request->bytes;
    if (p->stats.requested_bytes > p->stats.peak_requested_bytes)
        p->stats.peak_requested_bytes = p->stats.requested_bytes;
    return LOCH_OK;
}

static loch_status plain_free(void *self, void *address, size_t bytes, loch_stream *stream)
{
    (void)bytes, (void)stream;
    plain *p = self;
    p->stats.frees++;
    p->stats.blocks--;
    p->stats.requested_bytes -= *(size_t *)address;
    free(address);
    return LOCH_OK;
}

static loch_status plain_get_stats(void *self, loch_tag tag, loch_stats *out)
{
    if (tag) return loch_error_set(LOCH_E_UNSUPPORTED, NULL, 0, "no tags here");
    *out = ((plain *)self)->stats;
    return LOCH_OK;
}

static loch_status plain_find(void *self, const void *address, loch_block *out)
{
    (void)self;
    *out = (loch_block){.address = (void *)(uintptr_t)address, .requested_bytes = *(const size_t *)address};
    return LOCH_OK;
}

static loch_status plain_walk(void *self, loch_block_visitor *visitor, void *user)
{
    (void)self, (void)visitor, (void)user;
    return loch_error_set(LOCH_E_UNSUPPORTED, NULL, 0, "no list here");
}

static void allocators_that_know_no_segments_are_measured(void **state)
{
    (void)state;
    plain self = {.stats.size = sizeof self.stats};
    const loch_allocator_ops ops = {.size = sizeof ops,
                                    .kind = "plain",
                                    .alloc = plain_alloc,
                                    .free = plain_free,
                                    .find = plain_find,
                                    .walk = plain_walk,
                                    .get_stats = plain_get_stats};
    loch_device *device = sim_open("cpu");
    loch_allocator *a;
    CHECK_OK(loch_allocator_create(device, "plain", &ops, &self, &a));
    void *x = take(a, 5000, 0), *y;
    CHECK_OK(loch_free(a, x));
    loch_profile *low = begin(a, "low");
    x = take(a, 100, 0);
    loch_profile_report report = end(low);
    expect(&report, 100, 100, 100, 1, 0, 1, 1); /* not the peak of 5000, which was before */
    loch_profile *high = begin(a, "high");
    y = take(a, 6000, 0);
    CHECK_OK(loch_free(a, y));
    report = end(high);
    expect(&report, 100, 0, 6100, 1, 1, 1, 0);
    loch_census *census = TEST_UNTOUCHED;
    CHECK_FAILS(loch_census_create(a, &census), UNSUPPORTED);
    assert_null(census);
    CHECK_OK(loch_free(a, x));
    loch_allocator_release(a);
    loch_device_release(device);
}

typedef struct user_thread {
    loch_allocator *allocator;
    pthread_barrier_t *meet;
    size_t wrong;
} user_thread;

/* Every thread holds a block when all meet; and opens scopes of its own. */
static void *use(void *user)
{
    user_thread *u = user;
    void *block = NULL, *more = NULL;
    loch_profile *profile = NULL;
    for (int round = 0; round < 50; round++) {
        if (loch_profile_begin(u->allocator, "thread", &profile) != LOCH_OK) u->wrong++;
        if (loch_alloc(u->allocator, 1 << 20, &block) != LOCH_OK) u->wrong++;
        pthread_barrier_wait(u->meet);
        if (loch_alloc(u->allocator, 64, &more) != LOCH_OK || loch_free(u->allocator, more) != LOCH_OK) u->wrong++;
        loch_profile_report report = {.size = sizeof report};
        loch_profile_end(profile, &report);
        u->wrong += report.peak_bytes < 1 << 20 || report.allocs < 2;
        if (loch_free(u->allocator, block) != LOCH_OK) u->wrong++;
        pthread_barrier_wait(u->meet);
    }
    return NULL;
}

static void other_threads_count_too(void **state)
{
    (void)state;
    loch_allocator *a = open_direct();
    pthread_barrier_t meet;
    user_thread users[THREADS];
    pthread_barrier_init(&meet, NULL, THREADS);
    loch_profile *profile = begin(a, "all");
    for (int i = 0; i < THREADS; i++)
        users[i] = (user_thread){.allocator = a, .meet = &meet};
    TEST_THREADS_RUN(use, users);
    pthread_barrier_destroy(&meet);
    for (int i = 0; i < THREADS; i++)
        assert_int_equal(users[i].wrong, 0);
    const loch_profile_report report = end(profile);
    assert_int_equal(report.requested_bytes, 0);
    assert_int_equal(report.delta_bytes, 0);
    assert_int_equal(report.allocs, THREADS * 50 * 2);
    assert_int_equal(report.frees, THREADS * 50 * 2);
    assert_in_range(report.peak_bytes, (THREADS << 20) - THREADS * (256 << 10),
                    (THREADS << 20) + THREADS * (256 << 10));
    loch_allocator_release(a);
}

static uint64_t fake_ns;

static uint64_t fake_clock(void *user)
{
    (void)user;
    return fake_ns;
}

static void reports_are_text_and_valid_json(void **state)
{
    (void)state;
    fake_ns = 5000000;
    lochi_clock_set(fake_clock, NULL);
    loch_allocator *a = open_direct();
    void *x = take(a, 4096, 0);
    loch_profile *profile = begin(a, "step \"1\"\n\\ \xff");
    CHECK_OK(loch_free(a, x));
    fake_ns += 1234567;
    loch_profile_report report = read_report(profile);
    char text[512], json[512];
    report.label = "forward";
    size_t length = test_profile_print(&report, text, sizeof text);
    assert_int_equal(length, strlen(text));
    assert_string_equal(text,
                        "forward: 0 B in use (-4 KiB), peak 4 KiB; 0 blocks (-1); 0 allocations, 1 frees; 1.234 ms\n");
    report = read_report(profile);
    length = test_profile_print_json(&report, json, sizeof json);
    assert_int_equal(length, strlen(json));
    assert_true(json_is_valid(json));
    assert_string_equal(json,
                        "{\"label\": \"step \\\"1\\\"\\u000a\\\\ \\ufffd\", \"requested_bytes\": 0, "
                        "\"delta_bytes\": -4096, \"peak_bytes\": 4096, \"allocs\": 0, \"frees\": 1, \"blocks\": 0, "
                        "\"delta_blocks\": -1, \"duration_ns\": 1234567}");
    assert_int_equal(test_profile_print_json(&report, NULL, 0), strlen(json));
    report = end(profile);
    assert_true(test_profile_print(&report, text, 8) > 8); /* without a label, cut */
    assert_string_equal(text, "0 B in ");
    test_profile_print_json(&report, json, sizeof json);
    assert_true(json_is_valid(json));
    lochi_clock_set(NULL, NULL);
    loch_allocator_release(a);
}

static void wrong_calls_are_refused(void **state)
{
    (void)state;
    loch_allocator *a = open_direct();
    loch_profile *profile = TEST_UNTOUCHED;
    loch_profile_report report = {.size = sizeof report};
    loch_census *census = TEST_UNTOUCHED;
    size_t count;
    CHECK_FAILS(loch_profile_begin(NULL, "x", &profile), INVALID);
    assert_null(profile);
    CHECK_FAILS(loch_profile_begin(a, "x", NULL), INVALID);
    CHECK_FAILS(loch_profile_read(NULL, &report), INVALID);
    loch_profile_end(NULL, &report);
    profile = begin(a, "x");
    report.size = 0;
    CHECK_FAILS(loch_profile_read(profile, &report), INVALID);
    loch_profile_end(profile, NULL);
    CHECK_FAILS(loch_census_create(NULL, &census), INVALID);
    assert_null(census);
    CHECK_FAILS(loch_census_create(a, NULL), INVALID);
    CHECK_FAILS(loch_census_walk(NULL, NULL, NULL, NULL), INVALID);
    CHECK_FAILS(test_census_by_tag(NULL, NULL, NULL, 0, &count), INVALID);
    loch_census_destroy(NULL);
    assert_int_equal(test_census_count(NULL), 0);
    assert_null(test_census_at(NULL, 0));
    profile = begin(a, "kept");
    loch_allocator_release(a); /* the scope keeps it */
    loch_profile_end(profile, NULL);
}

/* --- without host memory --- */

static loch_status scarce(const void *user)
{
    (void)user;
    loch_device *device = NULL;
    loch_allocator *a = NULL;
    loch_profile *profile = NULL;
    loch_census *census = NULL;
    void *block = NULL;
    size_t count;
    char text[512];
    loch_status status = loch_device_open(DEVICE, &device);
    if (status == LOCH_OK) status = loch_direct_create(device, NULL, NULL, &a);
    if (status == LOCH_OK) status = loch_profile_begin(a, "scarce", &profile);
    if (status == LOCH_OK) status = loch_alloc(a, 100, &block);
    if (status == LOCH_OK) status = loch_census_create(a, &census);
    if (status == LOCH_OK) status = test_census_by_tag(NULL, census, NULL, 0, &count);
    const loch_error first = *loch_error_get();
    if (status == LOCH_OK) { /* printing copes without */
        test_census_print(NULL, census, text, sizeof text);
        test_census_print_json(NULL, census, text, sizeof text);
        if (!json_is_valid(text)) return LOCH_E_CORRUPT;
    }
    loch_census_destroy(census);
    loch_profile_end(profile, NULL);
    const loch_status freed = block ? loch_free(a, block) : LOCH_OK;
    loch_allocator_release(a);
    loch_device_release(device);
    if (freed != LOCH_OK) return LOCH_E_CORRUPT;
    return status == LOCH_OK ? status : loch_error_set(first.status, NULL, 0, "%s", first.sentence);
}

static void profiles_and_censuses_survive_failing_host_memory(void **state)
{
    (void)state;
    test_host_sweep(scarce, NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        SIM_TEST(nested_scopes_have_peaks_of_their_own),
        SIM_TEST(scopes_may_cross_each_other_and_resets),
        SIM_TEST(a_scope_on_a_wrapper_is_left_alone_by_those_below),
        SIM_TEST(allocators_that_know_no_segments_are_measured),
        SIM_TEST(other_threads_count_too),
        SIM_TEST(reports_are_text_and_valid_json),
        SIM_TEST(wrong_calls_are_refused),
        SIM_TEST(profiles_and_censuses_survive_failing_host_memory),
    };
    return cmocka_run_group_tests_name("profiles", tests, install, NULL);
}

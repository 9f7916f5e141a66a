/* SPDX-License-Identifier: MIT */
/* Timelines: where spans lie on the device when a thread is interrupted while it begins one, and names of every
 * kind in a trace, and a link as the place of one. */
#include "base/clock.h"
#include "json_check.h"
#include "timeline_fixture.h"
#include <sys/stat.h>
#include <unistd.h>

#define PAUSE_NS 10000000

static loch_device *paused_device;
static uint64_t paused_calls;

/* The thread loses the processor between a call of the driver and the next look at the clock: time goes on for the
 * device, too. */
static uint64_t clock_with_a_pause(void *user)
{
    (void)user;
    if (paused_device && sim_stats(paused_device).calls > paused_calls) {
        loch_device *device = paused_device;
        paused_device = NULL;
        CHECK_OK(loch_sim_advance(device, PAUSE_NS));
        tl_now_ns += PAUSE_NS;
    }
    return tl_now_ns;
}

static void a_thread_that_is_interrupted_displaces_no_span(void **state)
{
    (void)state;
    for (int interrupted = 0; interrupted < 2; interrupted++) {
        tl_now_ns = 1000;
        loch_device *device = sim_open("sim:64MiB,clock=stepped");
        loch_stream *stream = sim_stream(device, LOCH_STREAM_INDEPENDENT);
        loch_timeline *timeline = tl_create(0, 0);
        const loch_span_options timed = {.size = sizeof timed, .stream = stream};
        lochi_clock_set(clock_with_a_pause, NULL);
        uint64_t last_ns = 0;
        for (int i = 0; i < 3; i++) {
            if (i == interrupted) {
                paused_calls = sim_stats(device).calls;
                paused_device = device;
            }
            last_ns = tl_now_ns - 1000;
            loch_span span = loch_span_begin(timeline, "s", &timed);
            CHECK_OK(sim_busy(stream, 5000));
            loch_span_end(&span);
            CHECK_OK(loch_sim_advance(device, 1000000));
            tl_now_ns += 1000000;
        }
        assert_null(paused_device);
        char *text = tl_print(timeline, LOCH_TIMELINE_TRACE, 0), place[64];
        snprintf(place, sizeof place, "\"ts\":%llu.000,\"dur\":5.000", (unsigned long long)last_ns / 1000);
        if (!strstr(text, place)) fail_msg("no %s in %s", place, text);
        free(text);
        loch_timeline_destroy(timeline);
        loch_stream_close(stream);
        loch_device_release(device);
    }
}

/* Names of allocators are text like any other, and a thread tells 64 of them apart. */
static void counters_have_names_of_every_kind(void **state)
{
    (void)state;
    loch_device *device = sim_open("sim:64MiB");
    loch_allocator *pool, *limit;
    loch_timeline *timeline = tl_create(0, 0);
    CHECK_OK(loch_pool_create(device, "pool", NULL, &pool));
    for (int i = 0; i < 70; i++) {
        char name[64];
        snprintf(name, sizeof name, "%d \"},{\\ \n\x01 \xff \xc3", i);
        CHECK_OK(loch_limit_create(pool, name, NULL, &limit));
        LOCH_SPAN(timeline, "s", .allocator = limit);
        loch_allocator_release(limit);
    }
    char *text = tl_print(timeline, LOCH_TIMELINE_TRACE, 0);
    assert_true(json_is_valid(text));
    assert_non_null(strstr(text, "\"63 \\\"},{\\\\ \\u000a\\u0001 \\ufffd \\ufffd\""));
    assert_null(strstr(text, "\"64 "));
    size_t others = 0;
    for (const char *at = text; (at = strstr(at, "\"other allocators\"")); at++)
        others++;
    assert_int_equal(others, 2 * 6);
    free(text);
    loch_timeline_destroy(timeline);
    loch_allocator_release(pool);
    loch_device_release(device);
}

static void a_link_to_nothing_leads_to_the_new_file(void **state)
{
    (void)state;
    char folder[] = "/tmp/loch-timeline-XXXXXX", file[64], link[64];
    loch_timeline *timeline = tl_create(0, 0);
    struct stat about;
    assert_non_null(mkdtemp(folder));
    snprintf(file, sizeof file, "%s/trace.json", folder);
    snprintf(link, sizeof link, "%s/link", folder);
    assert_int_equal(symlink("trace.json", link), 0);
    CHECK_OK(loch_timeline_save(timeline, link, LOCH_TIMELINE_TRACE, 0));
    assert_int_equal(lstat(link, &about), 0);
    assert_true(S_ISLNK(about.st_mode));
    assert_int_equal(stat(file, &about), 0);
    assert_int_equal(about.st_size, test_timeline_print(timeline, LOCH_TIMELINE_TRACE, 0, NULL, 0));
    assert_int_equal(unlink(link) + unlink(file) + rmdir(folder), 0);
    loch_timeline_destroy(timeline);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        TL_TEST(a_thread_that_is_interrupted_displaces_no_span),
        TL_TEST(counters_have_names_of_every_kind),
        TL_TEST(a_link_to_nothing_leads_to_the_new_file),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

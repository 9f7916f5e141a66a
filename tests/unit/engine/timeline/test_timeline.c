/* SPDX-License-Identifier: MIT */
/* Recording spans: nesting, levels, capacity, threads and memory. */
#include "timeline_fixture.h"
#include "worker.h"
#include <pthread.h>

/* --- the host's clock --- */

static void spans_nest_and_have_times(void **state)
{
    (void)state;
    loch_timeline *timeline = tl_create(0, 0);
    tl_now_ns += 10;
    loch_span outer = loch_span_begin(timeline, "outer", NULL);
    tl_now_ns += 5;
    loch_span inner = loch_span_begin(
        timeline, "inner", &(loch_span_options){.size = sizeof(loch_span_options), .flops = 3.5, .bytes = 10});
    tl_now_ns += 100;
    loch_span_end(&inner);
    loch_span again = loch_span_begin(timeline, "", NULL);
    tl_now_ns += 7;
    loch_span_end(&again);
    assert_int_equal(tl_read(timeline)->count, 2); /* the outer one has not ended */
    loch_span_end(&outer);
    const tl_list *list = tl_read(timeline);
    assert_int_equal(list->count, 3);
    assert_string_equal(list->spans[0].name, "outer");
    assert_int_equal(list->spans[0].start_ns, 10);
    assert_int_equal(list->spans[0].host_ns, 112);
    assert_int_equal(list->spans[0].depth, 0);
    assert_int_equal(list->spans[0].device_ns, 0);
    assert_string_equal(list->spans[0].device, "");
    assert_string_equal(list->spans[1].name, "inner");
    assert_int_equal(list->spans[1].start_ns, 15);
    assert_int_equal(list->spans[1].host_ns, 100);
    assert_int_equal(list->spans[1].depth, 1);
    assert_true(list->spans[1].flops == 3.5);
    assert_int_equal(list->spans[1].bytes, 10);
    assert_string_equal(list->spans[2].name, "");
    assert_int_equal(list->spans[2].depth, 1);
    assert_int_equal(list->spans[2].host_ns, 7);
    loch_timeline_destroy(timeline);
}

static void levels_choose_what_is_recorded(void **state)
{
    (void)state;
    loch_timeline *timeline = tl_create(0, 0);
    const loch_span_options deep = {.size = sizeof deep, .level = 2};
    for (int level = -2; level <= 3; level++) {
        loch_timeline_set_level(timeline, level);
        loch_span a = loch_span_begin(timeline, "plain", NULL);
        loch_span b = loch_span_begin(timeline, "deep", &deep);
        loch_span c = loch_span_begin(timeline, "below", &(loch_span_options){.size = sizeof deep, .level = -1});
        assert_int_equal(a.timeline != NULL, level >= 0);
        assert_int_equal(b.timeline != NULL, level >= 2);
        assert_int_equal(c.timeline != NULL, level >= 0);
        loch_span_end(&c);
        loch_span_end(&b);
        loch_span_end(&a);
        assert_int_equal(tl_read(timeline)->count, level < 0 ? 0 : level < 2 ? 2 : 3);
        loch_timeline_forget(timeline);
    }
    assert_int_equal(tl_lost(timeline), 0);
    loch_timeline_destroy(timeline);
}

static void a_span_begun_before_the_level_fell_still_ends(void **state)
{
    (void)state;
    loch_timeline *timeline = tl_create(1, 0);
    loch_span span = loch_span_begin(timeline, "a", NULL);
    loch_timeline_set_level(timeline, -1);
    loch_span_end(&span);
    assert_int_equal(tl_read(timeline)->count, 1);
    loch_timeline_destroy(timeline);
}

static void nothing_is_recorded_without_a_timeline(void **state)
{
    (void)state;
    loch_span span = loch_span_begin(NULL, "a", NULL);
    assert_null(span.timeline);
    loch_span_end(&span);
    loch_span_end(NULL);
    loch_timeline_set_level(NULL, 1);
    loch_timeline_forget(NULL);
    loch_timeline_destroy(NULL);
    size_t kept = 1;
    uint64_t lost = 1;
    loch_timeline_count(NULL, &kept, &lost);
    assert_int_equal(kept + lost, 0);
    char text[4] = "abc";
    size_t length = 7;
    CHECK_FAILS(loch_timeline_print(NULL, LOCH_TIMELINE_TREE, 0, text, sizeof text, &length), INVALID);
    assert_int_equal(length, 0);
    assert_string_equal(text, "");
    CHECK_FAILS(loch_timeline_walk(NULL, tl_visit, NULL), INVALID);
    CHECK_FAILS(loch_timeline_create(NULL, NULL), INVALID);
    loch_timeline *timeline = TEST_UNTOUCHED;
    CHECK_FAILS(loch_timeline_create(&(loch_timeline_options){.level = 1}, &timeline), INVALID);
    assert_null(timeline);
}

static void options_without_a_size_are_no_options(void **state)
{
    (void)state;
    loch_timeline *timeline = tl_create(0, 0);
    CHECK_FAILS(loch_timeline_walk(timeline, NULL, NULL), INVALID);
    loch_error_clear();
    loch_span span = loch_span_begin(timeline, NULL, &(loch_span_options){.level = 9, .flops = 1});
    loch_span_end(&span);
    assert_int_equal(loch_error_get()->status, LOCH_OK);
    const tl_list *list = tl_read(timeline);
    assert_int_equal(list->count, 1);
    assert_int_equal(list->spans[0].level, 0);
    assert_true(list->spans[0].flops == 0);
    loch_timeline_destroy(timeline);
}

/* --- ends that are missing, late, wrong --- */

static void an_outer_end_ends_the_inner_ones(void **state)
{
    (void)state;
    loch_timeline *timeline = tl_create(0, 0);
    loch_span a = loch_span_begin(timeline, "a", NULL);
    loch_span b = loch_span_begin(timeline, "b", NULL);
    loch_span c = loch_span_begin(timeline, "c", NULL);
    tl_now_ns += 9;
    loch_span_end(&b);
    assert_int_equal(tl_read(timeline)->count, 2);
    loch_span d = loch_span_begin(timeline, "d", NULL);
    loch_span_end(&c); /* it has ended: nothing */
    assert_null(c.timeline);
    assert_int_equal(tl_read(timeline)->count, 2); /* and not d, which came where c was */
    tl_now_ns += 1;
    loch_span_end(&d);
    loch_span_end(&a);
    loch_span_end(&a);
    const tl_list *list = tl_read(timeline);
    assert_int_equal(list->count, 4);
    assert_string_equal(list->spans[2].name, "c");
    assert_int_equal(list->spans[2].host_ns, 9);
    assert_int_equal(list->spans[2].depth, 2);
    assert_true(list->spans[2].flops == 0);
    assert_string_equal(list->spans[3].name, "d");
    assert_int_equal(list->spans[3].depth, 1);
    loch_timeline_destroy(timeline);
}

/* Of the original: an end was matched with the last start of which the name was a prefix. */
static void ends_are_matched_by_span_and_not_by_name(void **state)
{
    (void)state;
    loch_timeline *timeline = tl_create(0, 0);
    loch_span a = loch_span_begin(timeline, "copy", NULL);
    tl_now_ns += 1;
    loch_span b = loch_span_begin(timeline, "copy to host", NULL);
    tl_now_ns += 2;
    loch_span c = loch_span_begin(timeline, "copy", NULL);
    tl_now_ns += 4;
    loch_span_end(&c);
    tl_now_ns += 8;
    loch_span_end(&b);
    tl_now_ns += 16;
    loch_span_end(&a);
    const tl_list *list = tl_read(timeline);
    assert_int_equal(list->spans[0].host_ns, 31);
    assert_int_equal(list->spans[1].host_ns, 14);
    assert_int_equal(list->spans[2].host_ns, 4);
    loch_timeline_destroy(timeline);
}

/* Of the original: a start without an end made the whole fail, and its events were never destroyed. */
static void a_start_without_an_end_loses_nothing(void **state)
{
    (void)state;
    loch_device *device = sim_open("sim:64MiB,clock=stepped");
    loch_stream *stream = sim_stream(device, LOCH_STREAM_INDEPENDENT);
    loch_allocator *allocator;
    CHECK_OK(loch_direct_create(device, "kept", NULL, &allocator));
    loch_timeline *timeline = tl_create(0, 0);
    const loch_span_options on = {.size = sizeof on, .stream = stream, .allocator = allocator};
    loch_span never = loch_span_begin(timeline, "never", &on);
    assert_non_null(never.timeline);
    loch_span inside = loch_span_begin(timeline, "inside", &on);
    CHECK_OK(sim_busy(stream, 50));
    loch_span_end(&inside);
    const tl_list *list = tl_read(timeline);
    assert_int_equal(list->count, 1);
    assert_int_equal(list->spans[0].device_ns, 50);
    for (loch_timeline_format format = LOCH_TIMELINE_TREE; format <= LOCH_TIMELINE_TRACE; format++) {
        char *text = tl_print(timeline, format, 20);
        assert_non_null(strstr(text, "never"));
        assert_non_null(strstr(text, "inside"));
        free(text);
    }
    loch_timeline_forget(timeline);
    assert_int_equal(tl_read(timeline)->count, 0);
    loch_timeline_destroy(timeline);
    assert_int_equal(sim_stats(device).events, 0);
    loch_stream_close(stream);
    loch_allocator_release(allocator);
    loch_device_release(device);
}

typedef struct wrong_thread {
    loch_timeline *timeline;
    loch_span span;
    int records;
} wrong_thread;

static void *end_elsewhere(void *user)
{
    wrong_thread *w = user;
    loch_span own = {0};
    if (w->records) own = loch_span_begin(w->timeline, "own", NULL);
    loch_span_end(&w->span);
    loch_span_end(&own);
    return NULL;
}

static void an_end_in_another_thread_does_nothing(void **state)
{
    (void)state;
    for (int records = 0; records <= 1; records++) {
        loch_timeline *timeline = tl_create(0, 0);
        wrong_thread w = {timeline, loch_span_begin(timeline, "mine", NULL), records};
        pthread_t thread;
        assert_int_equal(pthread_create(&thread, NULL, end_elsewhere, &w), 0);
        assert_int_equal(pthread_join(thread, NULL), 0);
        assert_ptr_equal(w.span.timeline, timeline);
        assert_int_equal(tl_read(timeline)->count, records);
        loch_span_end(&w.span);
        const tl_list *list = tl_read(timeline);
        assert_int_equal(list->count, 1 + records);
        assert_int_equal(list->spans[0].thread, 0);
        assert_int_equal(list->spans[0].bytes, 0);
        if (records) assert_int_equal(list->spans[1].thread, 1);
        loch_timeline_destroy(timeline);
    }
}

/* --- the macro --- */

typedef enum way { BY_END, BY_RETURN, BY_BREAK, BY_CONTINUE, BY_GOTO, WAYS } way;

static void leave(loch_timeline *timeline, way by)
{
    for (int i = 0; i < 2; i++) {
        LOCH_SPAN(timeline, "outer");
        {
            LOCH_SPAN(timeline, "block", .level = 1, .bytes = 8);
            tl_now_ns += 3;
            if (by == BY_RETURN) return;
            if (by == BY_BREAK) break;
            if (by == BY_CONTINUE) continue;
            if (by == BY_GOTO) goto out;
        }
        tl_now_ns += 1;
    }
out:
    tl_now_ns += 100;
}

static void a_span_of_a_block_ends_on_every_way_out(void **state)
{
    (void)state;
    for (way by = BY_END; by < WAYS; by++) {
        loch_timeline *timeline = tl_create(1, 0);
        leave(timeline, by);
        const tl_list *list = tl_read(timeline);
        assert_int_equal(list->count, by == BY_END || by == BY_CONTINUE ? 4 : 2);
        assert_int_equal(list->spans[0].host_ns, by == BY_END ? 4 : 3);
        assert_int_equal(list->spans[1].host_ns, 3);
        assert_int_equal(list->spans[1].bytes, 8);
        assert_int_equal(list->spans[1].depth, 1);
        loch_span next = loch_span_begin(timeline, "next", NULL);
        loch_span_end(&next);
        list = tl_read(timeline);
        assert_int_equal(list->spans[list->count - 1].depth, 0);
        loch_timeline_destroy(timeline);
    }
}

/* --- capacity, clearing --- */

static void spans_beyond_the_capacity_are_counted(void **state)
{
    (void)state;
    loch_timeline *timeline = tl_create(0, 3);
    for (int turn = 0; turn < 3; turn++) {
        for (int i = 0; i < 5; i++) {
            loch_span span = loch_span_begin(timeline, "s", NULL);
            assert_int_equal(span.timeline != NULL, i < 3);
            loch_span_end(&span);
        }
        assert_int_equal(tl_read(timeline)->count, 3);
        assert_int_equal(tl_lost(timeline), 2);
        loch_timeline_forget(timeline);
        assert_int_equal(tl_read(timeline)->count, 0);
        assert_int_equal(tl_lost(timeline), 0);
    }
    loch_timeline_destroy(timeline);
}

static void clearing_keeps_open_spans(void **state)
{
    (void)state;
    loch_timeline *timeline = tl_create(0, 100);
    loch_span outer = loch_span_begin(timeline, "outer", NULL);
    char name[200];
    for (int turn = 0; turn < 20; turn++) {
        for (int i = 0; i < 99; i++) {
            memset(name, 'a' + i % 26, sizeof name);
            name[i] = '\0'; /* short ones and long ones */
            loch_span span = loch_span_begin(timeline, name, NULL);
            assert_non_null(span.timeline);
            loch_span_end(&span);
        }
        assert_null(loch_span_begin(timeline, "beyond", NULL).timeline);
        size_t kept;
        uint64_t lost;
        loch_timeline_count(timeline, &kept, &lost);
        assert_int_equal(kept, 99);
        assert_int_equal(lost, 1);
        loch_timeline_forget(timeline);
    }
    loch_host_usage usage = {.size = sizeof usage};
    CHECK_OK(loch_host_get_usage(&usage));
    assert_true(usage.bytes < 200 * TEST_KIB); /* what was forgotten is used again */
    tl_now_ns += 5;
    loch_span_end(&outer);
    const tl_list *list = tl_read(timeline);
    assert_int_equal(list->count, 1);
    assert_string_equal(list->spans[0].name, "outer");
    assert_int_equal(list->spans[0].host_ns, 5);
    loch_timeline_destroy(timeline);
}

static loch_status clear_while_walking(const loch_span_record *record, void *user)
{
    loch_timeline_forget(user);
    assert_int_equal(strlen(record->name), 100); /* still there */
    return LOCH_OK;
}

static loch_status stop(const loch_span_record *record, void *user)
{
    (void)record;
    (*(int *)user)++;
    return loch_error_set(LOCH_E_CANCELLED, NULL, 0, "enough");
}

static void a_walk_can_be_ended_and_cleared_under(void **state)
{
    (void)state;
    loch_timeline *timeline = tl_create(0, 0);
    char name[101] = {0};
    memset(name, 'x', 100);
    for (int i = 0; i < 100; i++) {
        loch_span span = loch_span_begin(timeline, name, NULL);
        loch_span_end(&span);
    }
    int count = 0;
    CHECK_FAILS(loch_timeline_walk(timeline, stop, &count), CANCELLED);
    assert_int_equal(count, 1);
    loch_host_usage before = {.size = sizeof before}, after = {.size = sizeof after};
    CHECK_OK(loch_host_get_usage(&before));
    CHECK_OK(loch_timeline_walk(timeline, clear_while_walking, timeline));
    CHECK_OK(loch_host_get_usage(&after));
    assert_true(after.blocks < before.blocks - 100); /* the names have gone with the end of the walk */
    assert_int_equal(tl_read(timeline)->count, 0);
    loch_timeline_destroy(timeline);
}

/* --- threads --- */

typedef struct recorder {
    loch_timeline *timeline;
    char failure[256];
} recorder;

static void *record_some(void *user)
{
    const recorder *w = user;
    LOCH_SPAN(w->timeline, "thread");
    for (int i = 0; i < 2; i++) {
        LOCH_SPAN(w->timeline, "part");
    }
    return NULL;
}

static void spans_of_threads_that_ended_stay(void **state)
{
    (void)state;
    loch_timeline *timeline = tl_create(0, 3); /* for each thread */
    record_some(&(recorder){.timeline = timeline});
    for (int i = 0; i < 5; i++) {
        recorder w = {.timeline = timeline};
        pthread_t thread;
        assert_int_equal(pthread_create(&thread, NULL, record_some, &w), 0);
        assert_int_equal(pthread_join(thread, NULL), 0);
    }
    const tl_list *list = tl_read(timeline);
    assert_int_equal(list->count, 18);
    assert_int_equal(tl_lost(timeline), 0);
    for (unsigned i = 0; i < 18; i++) {
        assert_int_equal(list->spans[i].thread, i / 3);
        assert_int_equal(list->spans[i].depth, i % 3 != 0);
    }
    loch_timeline_destroy(timeline);
}

#define MANY 300 /* more than there are slots */

static pthread_barrier_t many_barrier;

static void *record_together(void *user)
{
    pthread_barrier_wait(&many_barrier);
    record_some(user);
    pthread_barrier_wait(&many_barrier);
    return NULL;
}

static void more_threads_than_slots_record(void **state)
{
    (void)state;
    loch_timeline *timeline = tl_create(0, 0);
    recorder w = {.timeline = timeline};
    pthread_t threads[MANY];
    assert_int_equal(pthread_barrier_init(&many_barrier, NULL, MANY), 0);
    for (int i = 0; i < MANY; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, record_together, &w), 0);
    for (int i = 0; i < MANY; i++)
        assert_int_equal(pthread_join(threads[i], NULL), 0);
    pthread_barrier_destroy(&many_barrier);
    size_t kept;
    uint64_t lost;
    loch_timeline_count(timeline, &kept, &lost);
    assert_int_equal(kept, MANY * 3);
    assert_int_equal(lost, 0);
    loch_timeline_destroy(timeline);
}

/* --- memory --- */

static void bytes_in_use_are_noted_at_both_ends(void **state)
{
    (void)state;
    loch_device *device = sim_open("sim:64MiB");
    loch_allocator *allocators[2];
    CHECK_OK(loch_pool_create(device, "pool", NULL, &allocators[0]));
    CHECK_OK(loch_limit_create(allocators[0], "limit", NULL, &allocators[1]));
    for (int i = 0; i < 2; i++) {
        loch_timeline *timeline = tl_create(0, 0);
        void *before, *block;
        CHECK_OK(loch_alloc(allocators[i], 1000, &before));
        {
            LOCH_SPAN(timeline, "grows", .allocator = allocators[i]);
            CHECK_OK(loch_alloc(allocators[i], 5000, &block));
        }
        {
            LOCH_SPAN(timeline, "shrinks", .allocator = allocators[i]);
            CHECK_OK(loch_free(allocators[i], block));
        }
        CHECK_OK(loch_free(allocators[i], before));
        const tl_list *list = tl_read(timeline);
        assert_int_equal(list->spans[0].used_begin, 1000);
        assert_int_equal(list->spans[0].used_end, 6000);
        assert_int_equal(list->spans[1].used_begin, 6000);
        assert_int_equal(list->spans[1].used_end, 1000);
        loch_timeline_destroy(timeline);
    }
    loch_allocator_release(allocators[1]);
    loch_allocator_release(allocators[0]);
    loch_device_release(device);
}

static void an_allocator_may_go_inside_a_span(void **state)
{
    (void)state;
    loch_device *device = sim_open("sim:64MiB");
    loch_allocator *allocator;
    CHECK_OK(loch_direct_create(device, "short", NULL, &allocator));
    loch_timeline *timeline = tl_create(0, 0);
    loch_span span =
        loch_span_begin(timeline, "a", &(loch_span_options){sizeof(loch_span_options), .allocator = allocator});
    loch_allocator_release(allocator);
    loch_device_release(device);
    loch_span_end(&span);
    assert_int_equal(tl_read(timeline)->count, 1);
    loch_timeline_destroy(timeline);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        TL_TEST(spans_nest_and_have_times),
        TL_TEST(levels_choose_what_is_recorded),
        TL_TEST(a_span_begun_before_the_level_fell_still_ends),
        TL_TEST(nothing_is_recorded_without_a_timeline),
        TL_TEST(options_without_a_size_are_no_options),
        TL_TEST(an_outer_end_ends_the_inner_ones),
        TL_TEST(ends_are_matched_by_span_and_not_by_name),
        TL_TEST(a_start_without_an_end_loses_nothing),
        TL_TEST(an_end_in_another_thread_does_nothing),
        TL_TEST(a_span_of_a_block_ends_on_every_way_out),
        TL_TEST(spans_beyond_the_capacity_are_counted),
        TL_TEST(clearing_keeps_open_spans),
        TL_TEST(a_walk_can_be_ended_and_cleared_under),
        TL_TEST(spans_of_threads_that_ended_stay),
        TL_TEST(more_threads_than_slots_record),
        TL_TEST(bytes_in_use_are_noted_at_both_ends),
        TL_TEST(an_allocator_may_go_inside_a_span),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

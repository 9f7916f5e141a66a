/* SPDX-License-Identifier: MIT */
/* The ring in memory: the oldest events are overwritten and counted, names stay, a save does not stop it. */
#include "recorder_fixture.h"
#include <pthread.h>

/* Makes `turns` pairs of events. Sizes count up, so that the recording tells which pairs it has. */
static void make_pairs(loch_allocator *pool, size_t from, size_t turns)
{
    for (size_t i = from; i < from + turns; i++)
        CHECK_OK(loch_free(pool, pool_alloc(pool, 1 + i % 8000)));
}

static loch_recording *save(const char *name)
{
    CHECK_OK(loch_recorder_save(recorder_name(name)));
    loch_recording *recording = recorder_load(recorder_path);
    assert_int_equal(unlink(recorder_path), 0);
    return recording;
}

static void a_ring_has_everything_until_it_is_full(void **state)
{
    (void)state;
    loch_device *device = sim_open("cpu");
    loch_allocator *pool = pool_make(device, NULL);
    CHECK_OK(loch_recorder_start(NULL));
    make_pairs(pool, 0, 5000);
    loch_recording *r = save("ring");
    recorder_expect_whole(r);
    assert_int_equal(recorder_count(r, LOCH_RECORDED_ALLOC), 5000);
    assert_int_equal(recorder_count(r, LOCH_RECORDED_FREE), 5000);
    loch_recording_destroy(r);
    make_pairs(pool, 5000, 100); /* a save does not stop the recording */
    r = save("ring");
    recorder_expect_whole(r);
    assert_int_equal(recorder_count(r, LOCH_RECORDED_ALLOC), 5100);
    loch_recording_destroy(r);
    CHECK_OK(loch_recorder_stop());
    pool_end(pool, device);
}

static void the_oldest_events_are_overwritten_and_counted(void **state)
{
    (void)state;
    enum { PAIRS = 400000 };
    loch_device *device = sim_open("cpu");
    loch_allocator *pool = pool_make(device, NULL);
    const loch_recorder_options options = {.size = sizeof options, .ring_bytes = TEST_MIB};
    loch_tag tag;
    CHECK_OK(loch_tag_create("early", &tag));
    CHECK_OK(loch_recorder_start(&options));
    const loch_request request = {.size = sizeof request, .bytes = 100, .tag = tag};
    void *block;
    CHECK_OK(loch_allocator_alloc(pool, &request, &block)); /* overwritten, but its names stay */
    CHECK_OK(loch_free(pool, block));
    make_pairs(pool, 0, PAIRS);
    loch_recording *r = save("full");
    const loch_recording_info info = recorder_info(r);
    const size_t allocs = recorder_count(r, LOCH_RECORDED_ALLOC), frees = recorder_count(r, LOCH_RECORDED_FREE);
    assert_true(info.lost > 0);
    assert_true(allocs > 50000 && allocs < PAIRS);
    assert_true(info.unknown <= 1); /* a free whose allocation was the last one overwritten */
    assert_true(allocs + frees + info.unknown + info.lost >= 2 * PAIRS); /* ranges and calls are lost too */
    assert_true(allocs + frees + info.lost <= 2 * PAIRS + 100);
    const loch_recording_block *blocks = loch_recording_get_blocks(r);
    for (size_t i = 0; i < allocs; i++) /* the newest ones, without a gap */
        assert_int_equal(blocks[i].bytes, 1 + (PAIRS - allocs + i) % 8000);
    assert_string_equal(loch_recording_get_name(r, LOCH_RECORDING_ALLOCATOR, blocks[0].allocator),
                        loch_allocator_get_name(pool));
    loch_recording_destroy(r);
    CHECK_OK(loch_recorder_stop());
    pool_end(pool, device);
}

static void *record_alone(void *user)
{
    loch_allocator *pool = user;
    void *block;
    for (int i = 0; i < 10; i++)
        if (loch_alloc(pool, 10, &block) != LOCH_OK || loch_free(pool, block) != LOCH_OK) return user;
    return NULL;
}

/* A thread that ends gives its chunk up: a small ring serves more threads than it has chunks. */
static void threads_that_ended_leave_room(void **state)
{
    (void)state;
    enum { THREADS = 60 };
    loch_device *device = sim_open("cpu");
    loch_allocator *pool = pool_make(device, NULL);
    const loch_recorder_options options = {.size = sizeof options, .ring_bytes = TEST_MIB};
    CHECK_OK(loch_recorder_start(&options));
    for (int i = 0; i < THREADS; i++) {
        pthread_t thread;
        void *wrong;
        assert_int_equal(pthread_create(&thread, NULL, record_alone, pool), 0);
        assert_int_equal(pthread_join(thread, &wrong), 0);
        assert_null(wrong);
    }
    loch_recording *r = save("threads");
    const loch_recording_info info = recorder_info(r);
    assert_int_equal(info.unknown, 0);
    assert_true(recorder_count(r, LOCH_RECORDED_ALLOC) >= 100);
    assert_true(info.threads >= 10);
    loch_recording_destroy(r);
    CHECK_OK(loch_recorder_stop());
    pool_end(pool, device);
}

static void calls_in_the_wrong_state_are_refused(void **state)
{
    (void)state;
    CHECK_FAILS(loch_recorder_stop(), NOT_FOUND);
    CHECK_FAILS(loch_recorder_save("/dev/null"), NOT_FOUND);
    CHECK_OK(loch_recorder_start(NULL));
    CHECK_FAILS(loch_recorder_start(NULL), BUSY);
    CHECK_FAILS(loch_recorder_save(NULL), INVALID);
    CHECK_FAILS(loch_recorder_save(""), INVALID);
    CHECK_FAILS(loch_recorder_save("/no/such/folder/file"), IO);
    CHECK_OK(loch_recorder_stop());
    CHECK_FAILS(loch_recorder_stop(), NOT_FOUND);
    recorder_begin("streamed");
    CHECK_FAILS(loch_recorder_save("/dev/null"), UNSUPPORTED);
    loch_recording_destroy(recorder_finish());
}

static void options_out_of_range_are_refused(void **state)
{
    (void)state;
    const loch_recorder_options wrong[] = {
        {.size = 3},
        {.size = sizeof *wrong, .path = ""},
        {.size = sizeof *wrong, .stack_depth = 65},
        {.size = sizeof *wrong, .reserved = 1},
    };
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++)
        CHECK_FAILS(loch_recorder_start(&wrong[i]), INVALID);
    const loch_recorder_options small = {.size = sizeof small, .ring_bytes = TEST_MIB - 1};
    CHECK_FAILS(loch_recorder_start(&small), OUT_OF_RANGE);
    assert_non_null(strstr(loch_error_get()->sentence, "1 MiB"));
    const loch_recorder_options large = {.size = sizeof large, .ring_bytes = SIZE_MAX};
    CHECK_FAILS(loch_recorder_start(&large), OUT_OF_RANGE);
    char path[2000];
    memset(path, 'p', sizeof path);
    path[sizeof path - 1] = 0;
    const loch_recorder_options longest = {.size = sizeof longest, .path = path};
    CHECK_FAILS(loch_recorder_start(&longest), INVALID);
    CHECK_FAILS(loch_recorder_stop(), NOT_FOUND); /* none of them has started */
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        SIM_TEST(a_ring_has_everything_until_it_is_full), SIM_TEST(the_oldest_events_are_overwritten_and_counted),
        SIM_TEST(threads_that_ended_leave_room),          SIM_TEST(calls_in_the_wrong_state_are_refused),
        SIM_TEST(options_out_of_range_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

/* SPDX-License-Identifier: MIT */
/* Contract of stream.h, streams: identity, order, default streams, the end of streams with work on them. */
#include "bed.h"

#include <pthread.h>

static loch_stream *make_stream(loch_device *device)
{
    loch_stream *stream = TEST_UNTOUCHED;
    CHECK_OK(loch_stream_create(device, NULL, &stream));
    assert_non_null(stream);
    return stream;
}

static void streams_are_told_apart(void **state)
{
    test_bed *bed = *state;
    enum { COUNT = 20 };
    loch_stream *streams[COUNT + 1];
    uint64_t ids[COUNT + 2];
    streams[COUNT] = loch_stream_get_default(bed->device);
    for (size_t i = 0; i < COUNT; i++)
        streams[i] = make_stream(bed->device);
    for (size_t i = 0; i <= COUNT; i++) {
        ids[i] = loch_stream_get_id(streams[i]);
        assert_ptr_equal(loch_stream_get_device(streams[i]), bed->device);
        CHECK_OK(loch_stream_query(streams[i]));
        for (size_t k = 0; k < i; k++) {
            assert_ptr_not_equal(streams[i], streams[k]);
            assert_true(ids[i] != ids[k]);
        }
    }
    for (size_t i = 0; i < COUNT; i++)
        loch_stream_close(streams[i]);
    loch_stream *later = make_stream(bed->device);
    for (size_t i = 0; i <= COUNT; i++)
        assert_true(loch_stream_get_id(later) != ids[i]);
    loch_stream_close(later);

    loch_device *other = test_bed_open_other(bed, false);
    for (size_t i = 0; i <= COUNT; i++)
        assert_true(loch_stream_get_id(loch_stream_get_default(other)) != ids[i]);
    loch_device_release(other);
}

static void options_are_taken(void **state)
{
    test_bed *bed = *state;
    const loch_stream_options options[] = {
        {.size = sizeof *options},
        {.size = sizeof *options, .order = LOCH_STREAM_WITH_DEFAULT},
        {.size = sizeof *options, .priority = -1},
        {.size = sizeof *options, .priority = -1000},
        {.size = sizeof *options, .priority = 1000, .order = LOCH_STREAM_WITH_DEFAULT},
        {.size = offsetof(loch_stream_options, priority), .order = LOCH_STREAM_WITH_DEFAULT},
    };
    void *block = test_bed_alloc(bed, LOCH_MEMORY_DEVICE, 4096);
    for (size_t i = 0; i < sizeof options / sizeof *options; i++) {
        loch_stream *stream = NULL;
        CHECK_OK(loch_stream_create(bed->device, &options[i], &stream));
        CHECK_OK(loch_fill_on(block, 4096, "abcd", 4, stream));
        CHECK_OK(loch_stream_sync(stream));
        CHECK_OK(loch_stream_query(stream));
        loch_stream_close(stream);
    }
    CHECK_OK(loch_raw_free(block));
}

static void missing_arguments_are_refused(void **state)
{
    test_bed *bed = *state;
    loch_stream *stream = TEST_UNTOUCHED;
    CHECK_FAILS(loch_stream_create(NULL, NULL, &stream), INVALID);
    assert_null(stream);
    CHECK_FAILS(loch_stream_create(bed->device, NULL, NULL), INVALID);
    CHECK_FAILS(loch_stream_query(NULL), INVALID);
    CHECK_FAILS(loch_stream_sync(NULL), INVALID);
    CHECK_FAILS(loch_stream_wait(loch_stream_get_default(bed->device), NULL), INVALID);
    CHECK_FAILS(loch_stream_call(loch_stream_get_default(bed->device), NULL, NULL), INVALID);
    CHECK_FAILS(loch_stream_query_capture(loch_stream_get_default(bed->device), NULL), INVALID);
    loch_stream_close(NULL);
}

static void the_default_stream_stays(void **state)
{
    test_bed *bed = *state;
    loch_stream *stream = loch_stream_get_default(bed->device);
    assert_non_null(stream);
    assert_ptr_equal(loch_stream_get_default(bed->device), stream);
    assert_null(loch_stream_get_native(stream));
    loch_stream_close(stream);
    assert_ptr_equal(loch_stream_get_default(bed->device), stream);
    void *block = test_bed_alloc(bed, LOCH_MEMORY_DEVICE, 4096);
    CHECK_OK(loch_fill_on(block, 4096, "a", 1, stream));
    CHECK_OK(loch_stream_sync(stream));
    CHECK_OK(loch_stream_query(stream));
    test_bed_expect_byte(bed, block, 4096, 'a');
    CHECK_OK(loch_raw_free(block));
}

/* --- default streams of threads --- */

#define THREADS 4

typedef struct visit {
    loch_device *device;
    pthread_barrier_t *barrier; /* all threads hold their streams at the same time */
    loch_stream *stream, *again;
    uint64_t id;
    void *block;
    loch_status status;
} visit;

static loch_status visit_streams(visit *v)
{
    loch_status status = loch_stream_require_thread_default(v->device, &v->stream);
    if (status == LOCH_OK) status = loch_stream_require_thread_default(v->device, &v->again);
    if (status == LOCH_OK) {
        v->id = loch_stream_get_id(v->stream);
        loch_stream_close(v->stream); /* is left alone */
        status = loch_fill_on(v->block, 4096, "t", 1, v->stream);
    }
    if (status == LOCH_OK) status = loch_stream_sync(v->stream);
    /* Without streams of threads all share the device's, on which another thread may have queued work again. */
    if (status == LOCH_OK && v->stream != loch_stream_get_default(v->device)) status = loch_stream_query(v->stream);
    return status;
}

static void *visit_thread(void *argument)
{
    visit *v = argument;
    pthread_barrier_wait(v->barrier);
    v->status = visit_streams(v);
    pthread_barrier_wait(v->barrier);
    return NULL;
}

static void every_thread_has_its_own(void **state)
{
    test_bed *bed = *state;
    loch_stream *mine = TEST_UNTOUCHED, *again = NULL, *fallback = loch_stream_get_default(bed->device);
    CHECK_OK(loch_stream_require_thread_default(bed->device, &mine));
    CHECK_OK(loch_stream_require_thread_default(bed->device, &again));
    assert_ptr_equal(mine, again);
    assert_ptr_equal(loch_stream_get_device(mine), bed->device);
    bool has_own = mine != fallback;
    uint64_t seen[2 * THREADS];

    for (int round = 0; round < 2; round++) {
        pthread_barrier_t barrier;
        visit visits[THREADS] = {0};
        assert_int_equal(pthread_barrier_init(&barrier, NULL, THREADS), 0);
        for (size_t i = 0; i < THREADS; i++) {
            visits[i].device = bed->device;
            visits[i].barrier = &barrier;
            visits[i].block = test_bed_alloc(bed, LOCH_MEMORY_DEVICE, 4096);
        }
        TEST_THREADS_RUN(visit_thread, visits);
        pthread_barrier_destroy(&barrier);
        for (size_t i = 0; i < THREADS; i++) {
            CHECK_STATUS(visits[i].status, LOCH_OK);
            assert_ptr_equal(visits[i].stream, visits[i].again);
            if (!has_own) assert_ptr_equal(visits[i].stream, fallback);
            if (has_own) assert_ptr_not_equal(visits[i].stream, fallback);
            for (size_t k = 0; has_own && k < i; k++)
                assert_ptr_not_equal(visits[i].stream, visits[k].stream);
            seen[round * THREADS + i] = visits[i].id;
            for (size_t k = 0; has_own && k < round * THREADS + i; k++)
                assert_true(seen[k] != visits[i].id);
            test_bed_expect_byte(bed, visits[i].block, 4096, 't');
            CHECK_OK(loch_raw_free(visits[i].block));
        }
    }
    CHECK_OK(loch_stream_require_thread_default(bed->device, &again));
    assert_ptr_equal(mine, again);
    CHECK_FAILS(loch_stream_require_thread_default(NULL, &again), INVALID);
    CHECK_FAILS(loch_stream_require_thread_default(bed->device, NULL), INVALID);
}

/* --- order --- */

typedef struct diary {
    int entries[64];
    size_t count;
} diary;

typedef struct entry {
    diary *diary;
    int number;
    const unsigned char *watched; /* looked at when the call runs; may be NULL */
    int seen;
} entry;

static void write_entry(void *user)
{
    entry *e = user;
    if (e->diary->count < 64) e->diary->entries[e->diary->count] = e->number;
    e->diary->count++;
    if (e->watched) e->seen = *e->watched;
}

static void calls_run_in_order(void **state)
{
    test_bed *bed = *state;
    enum { COUNT = 12 };
    static diary d;
    static entry entries[COUNT];
    loch_stream *stream = make_stream(bed->device);
    void *block = test_bed_alloc(bed, LOCH_MEMORY_DEVICE, 64 * TEST_KIB);
    bool watches = bed->has_data && test_bed_can(bed, LOCH_CAN_PINNED);
    unsigned char *pinned = watches ? test_bed_alloc(bed, LOCH_MEMORY_PINNED, 64 * TEST_KIB) : NULL;

    memset(&d, 0, sizeof d);
    if (watches) memset(pinned, 0, 64 * TEST_KIB);
    for (int i = 0; i < COUNT; i++) {
        unsigned char value = (unsigned char)(i + 1);
        entries[i] = (entry){.diary = &d, .number = i, .watched = pinned};
        CHECK_OK(loch_fill_on(block, 64 * TEST_KIB, &value, 1, stream));
        if (watches) CHECK_OK(loch_copy_on(pinned, block, 64 * TEST_KIB, stream));
        CHECK_OK(loch_stream_call(stream, write_entry, &entries[i]));
    }
    CHECK_OK(loch_stream_sync(stream));
    assert_int_equal(d.count, COUNT);
    for (int i = 0; i < COUNT; i++) {
        assert_int_equal(d.entries[i], i);
        if (watches) assert_int_equal(entries[i].seen, i + 1);
    }
    if (watches) CHECK_OK(loch_raw_free(pinned));
    CHECK_OK(loch_raw_free(block));
    loch_stream_close(stream);
}

static void calls_run_on_the_default_stream(void **state)
{
    test_bed *bed = *state;
    static diary d;
    static entry e;
    memset(&d, 0, sizeof d);
    e = (entry){.diary = &d, .number = 5};
    CHECK_OK(loch_stream_call(loch_stream_get_default(bed->device), write_entry, &e));
    CHECK_OK(loch_stream_sync(loch_stream_get_default(bed->device)));
    assert_int_equal(d.count, 1);
    CHECK_OK(loch_stream_call(loch_stream_get_default(bed->device), write_entry, &e));
    CHECK_OK(loch_device_sync(bed->device));
    assert_int_equal(d.count, 2);
}

/* A chain over three streams by events; without the waits the seeded clock mixes it up. */
static void waits_order_streams(void **state)
{
    test_bed *bed = *state;
    enum { LINKS = 12 };
    static diary d;
    static entry entries[LINKS];
    loch_stream *streams[3];
    loch_event *event = NULL;
    void *block = test_bed_alloc(bed, LOCH_MEMORY_DEVICE, TEST_MIB);

    memset(&d, 0, sizeof d);
    for (int i = 0; i < 3; i++)
        streams[i] = make_stream(bed->device);
    CHECK_OK(loch_event_create(bed->device, LOCH_EVENT_PLAIN, &event));
    for (int i = 0; i < LINKS; i++) {
        loch_stream *stream = streams[i % 3];
        entries[i] = (entry){.diary = &d, .number = i};
        CHECK_OK(loch_stream_wait(stream, event)); /* the first time it was never recorded: no wait */
        for (int k = 0; k < LINKS - i; k++)
            CHECK_OK(loch_fill_on(block, TEST_MIB, "abcd", 4, stream));
        CHECK_OK(loch_stream_call(stream, write_entry, &entries[i]));
        CHECK_OK(loch_event_record(event, stream)); /* the wait queued before is for the mark it found */
    }
    CHECK_OK(loch_stream_sync(streams[(LINKS - 1) % 3]));
    assert_int_equal(d.count, LINKS);
    for (int i = 0; i < LINKS; i++)
        assert_int_equal(d.entries[i], i);
    CHECK_OK(loch_device_sync(bed->device));
    for (int i = 0; i < 3; i++)
        loch_stream_close(streams[i]);
    loch_event_destroy(event);
    CHECK_OK(loch_raw_free(block));
}

static void a_waiting_stream_is_busy(void **state)
{
    test_bed *bed = *state;
    if (!bed->is_stepped) return;
    loch_stream *first = make_stream(bed->device), *second = make_stream(bed->device);
    loch_event *event = NULL;
    static diary d;
    static entry e;
    memset(&d, 0, sizeof d);
    e = (entry){.diary = &d, .number = 1};
    void *block = test_bed_alloc(bed, LOCH_MEMORY_DEVICE, 4096);
    CHECK_OK(loch_event_create(bed->device, LOCH_EVENT_PLAIN, &event));
    CHECK_OK(loch_fill_on(block, 4096, "a", 1, first));
    CHECK_OK(loch_event_record(event, first));
    CHECK_OK(loch_stream_wait(second, event));
    CHECK_OK(loch_stream_call(second, write_entry, &e));
    CHECK_STATUS(loch_stream_query(second), LOCH_E_BUSY);
    assert_int_equal(d.count, 0);
    loch_event_destroy(event); /* the wait holds */
    CHECK_STATUS(loch_stream_query(second), LOCH_E_BUSY);
    CHECK_OK(loch_stream_sync(second));
    CHECK_OK(loch_stream_query(first));
    assert_int_equal(d.count, 1);
    CHECK_OK(loch_raw_free(block));
    loch_stream_close(first);
    loch_stream_close(second);
}

/* Work queued on it still runs to its end. */
static void queued_work_runs_to_its_end_after_a_destroy(void **state)
{
    test_bed *bed = *state;
    const size_t bytes = 2 * TEST_MIB;
    static diary d;
    static entry e;
    memset(&d, 0, sizeof d);
    e = (entry){.diary = &d, .number = 1};
    loch_stream *stream = make_stream(bed->device);
    void *block = test_bed_alloc(bed, LOCH_MEMORY_DEVICE, bytes);
    for (int i = 0; i < 5; i++) {
        unsigned char value = (unsigned char)i;
        CHECK_OK(loch_fill_on(block, bytes, &value, 1, stream));
    }
    CHECK_OK(loch_stream_call(stream, write_entry, &e));
    loch_stream_close(stream);
    CHECK_OK(loch_device_sync(bed->device));
    assert_int_equal(d.count, 1);
    test_bed_expect_byte(bed, block, bytes, 4);
    CHECK_OK(loch_raw_free(block));
}

static void device_sync_waits_for_all(void **state)
{
    test_bed *bed = *state;
    loch_stream *streams[5];
    void *blocks[5];
    for (int i = 0; i < 5; i++) {
        streams[i] = make_stream(bed->device);
        blocks[i] = test_bed_alloc(bed, LOCH_MEMORY_DEVICE, TEST_MIB);
        unsigned char value = (unsigned char)(i + 1);
        CHECK_OK(loch_fill_on(blocks[i], TEST_MIB, &value, 1, streams[i]));
    }
    CHECK_OK(loch_device_sync(bed->device));
    for (int i = 0; i < 5; i++) {
        CHECK_OK(loch_stream_query(streams[i]));
        test_bed_expect_byte(bed, blocks[i], TEST_MIB, (unsigned char)(i + 1));
        CHECK_OK(loch_raw_free(blocks[i]));
        loch_stream_close(streams[i]);
    }
}

/* --- native queues and capture --- */

static void wrapped_queues_belong_to_the_caller(void **state)
{
    test_bed *bed = *state;
    loch_stream *owner = make_stream(bed->device), *wrapper = TEST_UNTOUCHED;
    void *native = loch_stream_get_native(owner);
    if (!test_bed_can(bed, LOCH_CAN_ASYNC)) {
        CHECK_FAILS(loch_stream_wrap(bed->device, TEST_UNTOUCHED, &wrapper), UNSUPPORTED);
        assert_null(wrapper);
        loch_stream_close(owner);
        return;
    }
    assert_non_null(native);
    CHECK_OK(loch_stream_wrap(bed->device, native, &wrapper));
    assert_ptr_not_equal(wrapper, owner);
    assert_ptr_equal(loch_stream_get_native(wrapper), native);
    assert_true(loch_stream_get_id(wrapper) != loch_stream_get_id(owner));
    void *block = test_bed_alloc(bed, LOCH_MEMORY_DEVICE, 4096);
    CHECK_OK(loch_fill_on(block, 4096, "w", 1, wrapper));
    CHECK_OK(loch_stream_sync(wrapper));
    test_bed_expect_byte(bed, block, 4096, 'w');
    loch_stream_close(wrapper);
    CHECK_OK(loch_fill_on(block, 4096, "o", 1, owner));
    CHECK_OK(loch_stream_sync(owner));
    test_bed_expect_byte(bed, block, 4096, 'o');
    CHECK_OK(loch_raw_free(block));
    loch_stream_close(owner);
}

static void ordinary_streams_are_not_captured(void **state)
{
    test_bed *bed = *state;
    loch_stream *stream = make_stream(bed->device);
    loch_capture_info info = {.size = sizeof info, .active = 77};
    CHECK_OK(loch_stream_query_capture(stream, &info));
    assert_int_equal(info.active, 0);
    info.active = 77;
    CHECK_OK(loch_stream_query_capture(loch_stream_get_default(bed->device), &info));
    assert_int_equal(info.active, 0);
    loch_stream_close(stream);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(streams_are_told_apart),
        cmocka_unit_test(options_are_taken),
        cmocka_unit_test(missing_arguments_are_refused),
        cmocka_unit_test(the_default_stream_stays),
        cmocka_unit_test(every_thread_has_its_own),
        cmocka_unit_test(calls_run_in_order),
        cmocka_unit_test(calls_run_on_the_default_stream),
        cmocka_unit_test(waits_order_streams),
        cmocka_unit_test(a_waiting_stream_is_busy),
        cmocka_unit_test(queued_work_runs_to_its_end_after_a_destroy),
        cmocka_unit_test(device_sync_waits_for_all),
        cmocka_unit_test(wrapped_queues_belong_to_the_caller),
        cmocka_unit_test(ordinary_streams_are_not_captured),
    };
    return TEST_BED_RUN(tests);
}

/* SPDX-License-Identifier: MIT */
/* Streams of the CUDA back end on a real GPU, beyond what every device has to do: the caller's captures stay as they
 * were, its streams are understood, and order and times are right. */
#include "cuda_fixture.h"
#include "gate.h"

#define CAPTURE_GLOBAL 0
#define NON_BLOCKING 1u

/* A stream of the caller's, in the primary context, which is not left current. */
static void *caller_stream_create(unsigned flags)
{
    void *before = caller_current(), *primary = NULL, *stream = NULL;
    assert_int_equal(caller.cuDevicePrimaryCtxRetain(&primary, 0), 0);
    assert_int_equal(caller.cuCtxSetCurrent(primary), 0);
    assert_int_equal(caller.cuStreamCreate(&stream, flags), 0);
    assert_int_equal(caller.cuCtxSetCurrent(before), 0);
    assert_int_equal(caller.cuDevicePrimaryCtxRelease_v2(0), 0);
    return stream;
}

/* --- captures --- */

/* Calls everything that Loch does by itself while a stream is captured. */
static void capture_disturb(loch_event *event, loch_stream *stream)
{
    void *block = NULL, *pinned = NULL;
    loch_memory_info info = {.size = sizeof info};
    loch_stream *fresh = NULL;
    loch_event *mark = NULL;
    CHECK_OK(loch_event_query(event));
    CHECK_OK(loch_event_sync(event));
    CHECK_OK(loch_stream_query(stream));
    CHECK_OK(loch_stream_sync(stream));
    CHECK_OK(loch_device_calculate_memory(device, &info));
    CHECK_OK(loch_raw_alloc(device, LOCH_MEMORY_DEVICE, TEST_MIB, 0, &block));
    CHECK_OK(loch_raw_alloc(device, LOCH_MEMORY_PINNED, TEST_MIB, 0, &pinned));
    CHECK_OK(loch_raw_free(block));
    CHECK_OK(loch_raw_free(pinned));
    CHECK_OK(loch_stream_create(device, NULL, &fresh));
    loch_stream_close(fresh);
    CHECK_OK(loch_event_create(device, LOCH_EVENT_PLAIN, &mark));
    loch_event_destroy(mark);
    if (!loch_device_can(device, LOCH_CAN_VIRTUAL)) return;
    const size_t granule = properties.granule_bytes;
    void *addresses = NULL;
    loch_handle *handle = NULL;
    CHECK_OK(loch_virtual_reserve(device, granule, 0, &addresses));
    CHECK_OK(loch_handle_create(device, granule, NULL, &handle));
    CHECK_OK(loch_virtual_map(addresses, handle, NULL, 0));
    CHECK_OK(loch_virtual_unmap(addresses));
    loch_handle_destroy(handle);
    CHECK_OK(loch_virtual_unreserve(addresses));
}

typedef struct capture_other {
    loch_event *event;
    loch_stream *stream;
    bool is_done;
} capture_other;

/* cmocka's checks leave by longjmp, which must not cross threads; so this thread checks by hand. */
static void *capture_in_other_thread(void *user)
{
    capture_other *other = user;
    void *block = NULL;
    other->is_done = loch_event_query(other->event) == LOCH_OK && loch_stream_query(other->stream) == LOCH_OK &&
                     loch_raw_alloc(device, LOCH_MEMORY_DEVICE, TEST_MIB, 0, &block) == LOCH_OK &&
                     loch_raw_free(block) == LOCH_OK;
    if (!other->is_done) fprintf(stderr, "in another thread: %s\n", loch_error_get()->sentence);
    return NULL;
}

static void capture_with(unsigned stream_flags)
{
    void *native = caller_stream_create(stream_flags), *graph = NULL, *target = NULL;
    loch_stream *captured = NULL, *stream = NULL;
    loch_event *before = NULL, *inside = NULL;
    loch_capture_info info = {.size = sizeof info};
    CHECK_OK(loch_stream_wrap(device, native, &captured));
    CHECK_OK(loch_stream_create(device, NULL, &stream));
    CHECK_OK(loch_event_create(device, LOCH_EVENT_PLAIN, &before));
    CHECK_OK(loch_event_create(device, LOCH_EVENT_PLAIN, &inside));
    CHECK_OK(loch_event_record(before, stream));
    CHECK_OK(loch_stream_sync(stream));
    CHECK_OK(loch_raw_alloc(device, LOCH_MEMORY_DEVICE, TEST_MIB, 0, &target));
    CHECK_OK(loch_stream_query_capture(captured, &info));
    assert_int_equal(info.active, 0);

    assert_int_equal(caller.cuStreamBeginCapture_v2(native, CAPTURE_GLOBAL), 0);
    CHECK_OK(loch_stream_query_capture(captured, &info));
    assert_true(info.active && info.id != 0);
    const uint64_t id = info.id;
    CHECK_OK(loch_stream_query_capture(stream, &info));
    assert_int_equal(info.active, 0);
    CHECK_OK(loch_stream_query_capture(loch_stream_get_default(device), &info));
    assert_int_equal(info.active, 0);
    const uint32_t pattern = 0x01020304;
    CHECK_OK(loch_fill_on(target, TEST_MIB, &pattern, sizeof pattern, captured));
    CHECK_OK(loch_event_record(inside, captured));
    CHECK_STATUS(loch_event_query(inside), LOCH_E_BUSY);
    CHECK_FAILS(loch_event_sync(inside), BUSY);
    CHECK_STATUS(loch_stream_query(captured), LOCH_E_BUSY);
    CHECK_FAILS(loch_stream_sync(captured), BUSY);
    if (!(stream_flags & NON_BLOCKING)) CHECK_STATUS(loch_stream_query(loch_stream_get_default(device)), LOCH_E_BUSY);
    capture_disturb(before, stream);
    pthread_t thread;
    capture_other other = {.event = before, .stream = stream};
    assert_int_equal(pthread_create(&thread, NULL, capture_in_other_thread, &other), 0);
    assert_int_equal(pthread_join(thread, NULL), 0);
    CHECK_OK(loch_stream_query_capture(captured, &info));
    assert_true(info.active && info.id == id);
    assert_int_equal(caller.cuStreamEndCapture(native, &graph), 0);
    assert_non_null(graph);
    assert_true(other.is_done);

    CHECK_OK(loch_stream_query_capture(captured, &info));
    assert_int_equal(info.active, 0);
    CHECK_OK(loch_event_record(inside, captured));
    CHECK_OK(loch_event_sync(inside));
    CHECK_OK(loch_event_query(inside));
    assert_int_equal(caller.cuGraphDestroy(graph), 0);
    CHECK_OK(loch_raw_free(target));
    loch_event_destroy(before);
    loch_event_destroy(inside);
    loch_stream_close(stream);
    loch_stream_close(captured);
    assert_int_equal(caller.cuStreamDestroy_v2(native), 0);
}

static void a_capture_of_the_caller_stays_valid(void **state)
{
    (void)state;
    assert_true(loch_device_can(device, LOCH_CAN_CAPTURE));
    capture_with(NON_BLOCKING);
}

static void a_capture_ordered_with_the_default_stream_stays_valid(void **state)
{
    (void)state;
    capture_with(0);
}

/* A graph fills pinned memory at every launch. What the host would do once, and what is waited for, is refused, and is
 * not in the graph. */
static void host_memory_is_copied_at_every_launch(void **state)
{
    (void)state;
    void *native = caller_stream_create(NON_BLOCKING), *graph = NULL, *executable = NULL, *context = NULL;
    unsigned char *pinned[3] = {NULL}, plain[64] = {0}, other[64] = {0};
    void *block = NULL;
    loch_stream *captured = NULL;
    const size_t bytes = TEST_MIB, widths[] = {1, 2, 4};
    const uint32_t pattern = 0x04030201;
    CHECK_OK(loch_stream_wrap(device, native, &captured));
    CHECK_OK(loch_raw_alloc(device, LOCH_MEMORY_DEVICE, bytes, 0, &block));
    for (int i = 0; i < 3; i++)
        CHECK_OK(loch_raw_alloc(device, LOCH_MEMORY_PINNED, bytes, 0, (void **)&pinned[i]));
    const loch_copy_options ended = {.size = sizeof ended, .stream = captured, .wait = LOCH_WAIT_END};
    assert_int_equal(caller.cuStreamBeginCapture_v2(native, CAPTURE_GLOBAL), 0);
    for (int i = 0; i < 3; i++)
        CHECK_OK(loch_fill_on(pinned[i], bytes, &pattern, widths[i], captured));
    CHECK_FAILS(loch_fill_on(plain, sizeof plain, "a", 1, captured), BUSY);
    CHECK_FAILS(loch_copy_on(plain, other, sizeof plain, captured), BUSY);
    CHECK_FAILS(loch_copy_on(pinned[0], pinned[1], bytes, captured), BUSY);
    CHECK_FAILS(loch_copy_with(plain, block, sizeof plain, &ended), BUSY);
    assert_int_equal(caller.cuStreamEndCapture(native, &graph), 0);
    assert_non_null(graph);
    assert_int_equal(caller.cuDevicePrimaryCtxRetain(&context, 0), 0);
    assert_int_equal(caller.cuCtxSetCurrent(context), 0);
    assert_int_equal(caller.cuGraphInstantiateWithFlags(&executable, graph, 0), 0);
    for (int launch = 0; launch < 3; launch++) {
        for (int i = 0; i < 3; i++)
            memset(pinned[i], 0xee, bytes);
        assert_int_equal(caller.cuGraphLaunch(executable, native), 0);
        CHECK_OK(loch_stream_sync(captured));
        for (int i = 0; i < 3; i++)
            for (size_t k = 0; k < bytes; k++)
                if (pinned[i][k] != k % widths[i] + 1) fail_msg("launch %d: byte %zu is %d", launch, k, pinned[i][k]);
    }
    assert_int_equal(plain[0], 0);
    assert_int_equal(caller.cuGraphExecDestroy(executable), 0);
    assert_int_equal(caller.cuGraphDestroy(graph), 0);
    assert_int_equal(caller.cuCtxSetCurrent(NULL), 0);
    assert_int_equal(caller.cuDevicePrimaryCtxRelease_v2(0), 0);
    for (int i = 0; i < 3; i++)
        CHECK_OK(loch_raw_free(pinned[i]));
    CHECK_OK(loch_raw_free(block));
    loch_stream_close(captured);
    assert_int_equal(caller.cuStreamDestroy_v2(native), 0);
}

/* --- streams --- */

static void *get_thread_default(void *user)
{
    return loch_stream_require_thread_default(device, user) == LOCH_OK ? user : NULL;
}

typedef struct thread_stream {
    loch_stream *stream;
    uint64_t id;
} thread_stream;

static void *thread_stream_note(void *user)
{
    thread_stream *note = user;
    if (!get_thread_default(&note->stream)) return NULL;
    note->id = loch_stream_get_id(note->stream);
    return note;
}

static void every_thread_has_a_default_stream(void **state)
{
    (void)state;
    loch_stream *mine = NULL, *again = NULL;
    CHECK_OK(loch_stream_require_thread_default(device, &mine));
    CHECK_OK(loch_stream_require_thread_default(device, &again));
    assert_ptr_equal(mine, again);
    assert_ptr_not_equal(mine, loch_stream_get_default(device));
    assert_true((uintptr_t)loch_stream_get_native(mine) == 2);
    assert_null(loch_stream_get_native(loch_stream_get_default(device)));
    CHECK_OK(loch_stream_wrap(device, (void *)(uintptr_t)2, &again));
    assert_ptr_equal(mine, again);
    CHECK_OK(loch_stream_wrap(device, (void *)(uintptr_t)1, &again));
    assert_ptr_equal(again, loch_stream_get_default(device));
    CHECK_OK(loch_stream_wrap(device, NULL, &again));
    assert_ptr_equal(again, loch_stream_get_default(device));

    pthread_t thread;
    thread_stream other = {.stream = NULL};
    void *result = NULL;
    assert_int_equal(pthread_create(&thread, NULL, thread_stream_note, &other), 0);
    assert_int_equal(pthread_join(thread, &result), 0);
    assert_non_null(result);
    assert_true(other.id != loch_stream_get_id(mine));
}

/* Two threads' default streams do not wait for each other: one stands at a gate, the other passes. */
static void *pass_by_gate(void *user)
{
    loch_stream *stream = NULL;
    if (!get_thread_default(&stream) || loch_stream_query(stream) != LOCH_OK) return NULL;
    return loch_stream_sync(stream) == LOCH_OK ? user : NULL;
}

static void the_default_stream_of_a_thread_does_not_wait_for_others(void **state)
{
    (void)state;
    static gate g = GATE_INITIALIZER;
    loch_stream *mine = NULL;
    CHECK_OK(loch_stream_require_thread_default(device, &mine));
    CHECK_OK(loch_stream_call(mine, gate_wait, &g));
    const loch_status busy = loch_stream_query(mine);
    pthread_t thread;
    void *result = NULL;
    const int made = pthread_create(&thread, NULL, pass_by_gate, &g);
    if (!made) pthread_join(thread, &result);
    gate_open(&g);
    CHECK_OK(loch_stream_sync(mine));
    assert_int_equal(busy, LOCH_E_BUSY);
    assert_int_equal(made, 0);
    assert_non_null(result);
}

static void a_stream_of_the_caller_is_wrapped(void **state)
{
    (void)state;
    void *native = caller_stream_create(NON_BLOCKING);
    loch_stream *stream = NULL;
    CHECK_OK(loch_stream_wrap(device, native, &stream));
    assert_ptr_equal(loch_stream_get_native(stream), native);
    void *block = NULL;
    unsigned char host[256];
    const unsigned char byte = 0xab;
    CHECK_OK(loch_raw_alloc(device, LOCH_MEMORY_DEVICE, sizeof host, 0, &block));
    CHECK_OK(loch_fill_on(block, sizeof host, &byte, 1, stream));
    CHECK_OK(loch_copy_on(host, block, sizeof host, stream));
    CHECK_OK(loch_stream_sync(stream));
    for (size_t i = 0; i < sizeof host; i++)
        assert_int_equal(host[i], byte);
    CHECK_OK(loch_raw_free(block));
    loch_stream_retain(stream); /* a further owner does not keep the queue */
    loch_stream_close(stream);
    assert_int_equal(caller.cuStreamDestroy_v2(native), 0); /* it was still there */
    CHECK_FAILS(loch_stream_sync(stream), INVALID);
    loch_stream_release(stream);

    void *context = NULL;
    assert_int_equal(caller.cuCtxCreate_v2(&context, 0, 0), 0);
    assert_int_equal(caller.cuStreamCreate(&native, NON_BLOCKING), 0);
    CHECK_FAILS(loch_stream_wrap(device, native, &stream), INVALID);
    assert_null(stream);
    assert_int_equal(caller.cuStreamDestroy_v2(native), 0);
    assert_int_equal(caller.cuCtxDestroy_v2(context), 0);
}

static void options_of_streams_are_taken(void **state)
{
    (void)state;
    for (int priority = -100; priority <= 100; priority += 100) {
        const loch_stream_options options = {
            .size = sizeof options, .order = LOCH_STREAM_WITH_DEFAULT, .priority = priority};
        loch_stream *stream = NULL;
        CHECK_OK(loch_stream_create(device, &options, &stream));
        CHECK_OK(loch_stream_sync(stream));
        loch_stream_close(stream);
    }
}

/* The second stream must not read before the first, which stands at a gate, has written. */
static void streams_are_ordered_with_the_default_stream_or_not(void **state)
{
    (void)state;
    static gate g = GATE_INITIALIZER;
    const size_t bytes = 8 * TEST_MIB;
    const uint64_t seed = test_random_next(&randomness);
    loch_stream *first = NULL, *second = NULL;
    loch_event *event = NULL;
    char *source = NULL, *target = NULL;
    void *block = NULL;
    CHECK_OK(loch_stream_create(device, NULL, &first));
    CHECK_OK(loch_stream_create(device, NULL, &second));
    CHECK_OK(loch_event_create(device, LOCH_EVENT_PLAIN, &event));
    CHECK_OK(loch_event_query(event));
    CHECK_OK(loch_raw_alloc(device, LOCH_MEMORY_PINNED, bytes, 0, (void **)&source));
    CHECK_OK(loch_raw_alloc(device, LOCH_MEMORY_PINNED, bytes, 0, (void **)&target));
    CHECK_OK(loch_raw_alloc(device, LOCH_MEMORY_DEVICE, bytes, 0, &block));
    test_pattern_write(source, bytes, seed);
    memset(target, 0, bytes);
    CHECK_OK(loch_stream_call(first, gate_wait, &g));
    CHECK_OK(loch_copy_on(block, source, bytes, first));
    CHECK_OK(loch_event_record(event, first));
    CHECK_OK(loch_stream_wait(second, event));
    CHECK_OK(loch_copy_on(target, block, bytes, second));
    const loch_status before[] = {loch_event_query(event), loch_stream_query(first), loch_stream_query(second)};
    gate_open(&g);
    CHECK_OK(loch_stream_sync(second));
    for (size_t i = 0; i < 3; i++)
        assert_int_equal(before[i], LOCH_E_BUSY);
    CHECK_OK(loch_event_query(event));
    assert_int_equal(test_pattern_differs(target, bytes, seed), bytes);
    CHECK_OK(loch_raw_free(source));
    CHECK_OK(loch_raw_free(target));
    CHECK_OK(loch_raw_free(block));
    loch_event_destroy(event);
    loch_stream_close(first);
    loch_stream_close(second);
}

static void timed_events_measure_the_gpu(void **state)
{
    (void)state;
    static gate g = GATE_INITIALIZER;
    const size_t bytes = 64 * TEST_MIB;
    loch_stream *stream = NULL;
    loch_event *start = NULL, *end = NULL, *plain = NULL;
    void *block = NULL;
    uint64_t ns = 0;
    const uint32_t pattern = 0;
    CHECK_OK(loch_stream_create(device, NULL, &stream));
    CHECK_OK(loch_event_create(device, LOCH_EVENT_TIMED, &start));
    CHECK_OK(loch_event_create(device, LOCH_EVENT_TIMED, &end));
    CHECK_OK(loch_event_create(device, LOCH_EVENT_PLAIN, &plain));
    CHECK_FAILS(loch_event_elapsed(start, end, &ns), INVALID);
    CHECK_OK(loch_raw_alloc(device, LOCH_MEMORY_DEVICE, bytes, 0, &block));
    CHECK_OK(loch_event_record(start, stream));
    CHECK_OK(loch_stream_call(stream, gate_wait, &g));
    CHECK_OK(loch_fill_on(block, bytes, &pattern, sizeof pattern, stream));
    CHECK_OK(loch_event_record(end, stream));
    const loch_status busy = loch_event_elapsed(start, end, &ns);
    gate_open(&g);
    CHECK_OK(loch_event_sync(end));
    assert_int_equal(busy, LOCH_E_BUSY);
    CHECK_OK(loch_event_elapsed(start, end, &ns));
    assert_true(ns > 0 && ns < (uint64_t)60 * 1000000000);
    CHECK_OK(loch_event_elapsed(start, start, &ns));
    assert_int_equal(ns, 0);
    CHECK_OK(loch_event_record(plain, stream));
    CHECK_OK(loch_event_sync(plain));
    CHECK_FAILS(loch_event_elapsed(start, plain, &ns), INVALID);
    CHECK_OK(loch_raw_free(block));
    loch_event_destroy(start);
    loch_event_destroy(end);
    loch_event_destroy(plain);
    loch_stream_close(stream);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_capture_of_the_caller_stays_valid),
        cmocka_unit_test(a_capture_ordered_with_the_default_stream_stays_valid),
        cmocka_unit_test(host_memory_is_copied_at_every_launch),
        cmocka_unit_test(every_thread_has_a_default_stream),
        cmocka_unit_test(the_default_stream_of_a_thread_does_not_wait_for_others),
        cmocka_unit_test(a_stream_of_the_caller_is_wrapped),
        cmocka_unit_test(options_of_streams_are_taken),
        cmocka_unit_test(streams_are_ordered_with_the_default_stream_or_not),
        cmocka_unit_test(timed_events_measure_the_gpu),
        cmocka_unit_test(nothing_is_left_of_the_device),
    };
    return CUDA_RUN(tests);
}

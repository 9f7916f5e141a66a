/* SPDX-License-Identifier: MIT */
/* The checker of stream order: what it has to find, and where it has to keep quiet. */
#include "sim_fixture.h"

#define UNBACKED "sim:1GiB,unbacked,granule=64KiB,clock=stepped,lag=1000"
#define GRANULE (64 * TEST_KIB)
#define BYTES ((size_t)4096)

/* A device with two independent streams, an event and a block. */
typedef struct bench {
    loch_device *device;
    loch_stream *a, *b;
    loch_event *event;
    char *block;
} bench;

static bench bench_open(const char *name)
{
    bench it = {.device = sim_open(name)};
    it.a = sim_stream(it.device, LOCH_STREAM_INDEPENDENT);
    it.b = sim_stream(it.device, LOCH_STREAM_INDEPENDENT);
    it.event = sim_event(it.device);
    it.block = sim_raw(it.device, 4 * BYTES);
    return it;
}

static void bench_close(bench *it)
{
    CHECK_OK(loch_device_sync(it->device));
    CHECK_OK(loch_raw_free(it->block));
    loch_event_destroy(it->event);
    loch_stream_close(it->a);
    loch_stream_close(it->b);
    loch_device_release(it->device);
}

static void writes_of_two_streams_are_found(void **state)
{
    (void)state;
    bench it = bench_open(UNBACKED);
    loch_sim_violation found;
    CHECK_OK(sim_writes(it.a, it.block, 2 * BYTES));
    CHECK_OK(sim_writes(it.b, it.block + BYTES, 2 * BYTES));
    assert_int_equal(sim_violations(it.device, &found), 1);
    assert_int_equal(found.kind, LOCH_SIM_UNORDERED);
    assert_ptr_equal(found.address, it.block + BYTES);
    assert_int_equal(found.bytes, BYTES);
    assert_int_equal(found.stream, sim_number(it.b));
    assert_int_equal(found.other_stream, sim_number(it.a));
    assert_non_null(strstr(found.text, "writer"));
    CHECK_OK(sim_writes(it.b, it.block, 3 * BYTES)); /* the part that only a wrote is a second finding */
    assert_int_equal(sim_violations(it.device, NULL), 2);
    bench_close(&it);
}

static void a_read_beside_a_write_is_found_and_two_reads_are_not(void **state)
{
    (void)state;
    bench it = bench_open(UNBACKED);
    CHECK_OK(sim_reads(it.a, it.block, BYTES));
    CHECK_OK(sim_reads(it.b, it.block, BYTES)); /* two readers are fine */
    assert_int_equal(sim_violations(it.device, NULL), 0);
    CHECK_OK(sim_writes(it.b, it.block, BYTES)); /* behind its own read, not behind a's */
    assert_int_equal(sim_violations(it.device, NULL), 1);
    CHECK_OK(sim_reads(it.a, it.block + BYTES - 1, 2)); /* one byte of b's write */
    loch_sim_violation found[2];
    size_t count;
    CHECK_OK(test_sim_violations(it.device, found, 2, &count));
    assert_int_equal(count, 2);
    assert_int_equal(found[1].bytes, 1);
    assert_int_equal(found[1].other_stream, sim_number(it.b));
    bench_close(&it);
}

/* Time is not order: the first write has long ended, but no stream waited for it. */
static void work_that_ended_unseen_is_not_ordered(void **state)
{
    (void)state;
    bench it = bench_open(UNBACKED);
    CHECK_OK(sim_writes(it.a, it.block, BYTES));
    CHECK_OK(loch_sim_advance(it.device, 1000000));
    CHECK_OK(sim_writes(it.b, it.block, BYTES));
    assert_int_equal(sim_violations(it.device, NULL), 1);
    bench_close(&it);
}

static void an_event_orders_what_was_before_its_mark(void **state)
{
    (void)state;
    bench it = bench_open(UNBACKED);
    CHECK_OK(sim_writes(it.a, it.block, BYTES));
    CHECK_OK(loch_event_record(it.event, it.a));
    CHECK_OK(sim_writes(it.a, it.block + BYTES, BYTES)); /* behind the mark */
    CHECK_OK(loch_stream_wait(it.b, it.event));
    CHECK_OK(sim_writes(it.b, it.block, BYTES));
    assert_int_equal(sim_violations(it.device, NULL), 0);
    CHECK_OK(sim_reads(it.b, it.block + BYTES, BYTES));
    assert_int_equal(sim_violations(it.device, NULL), 1);
    bench_close(&it);
}

static void order_goes_over_a_third_stream(void **state)
{
    (void)state;
    bench it = bench_open(UNBACKED);
    loch_stream *third = sim_stream(it.device, LOCH_STREAM_INDEPENDENT);
    CHECK_OK(sim_writes(it.a, it.block, BYTES));
    CHECK_OK(loch_event_record(it.event, it.a));
    CHECK_OK(loch_stream_wait(third, it.event));
    CHECK_OK(loch_event_record(it.event, third));
    CHECK_OK(loch_stream_wait(it.b, it.event));
    CHECK_OK(sim_writes(it.b, it.block, BYTES));
    assert_int_equal(sim_violations(it.device, NULL), 0);
    loch_stream_close(third);
    bench_close(&it);
}

static void waits_and_queries_of_the_host_make_order(void **state)
{
    (void)state;
    bench it = bench_open(UNBACKED);
    CHECK_OK(sim_writes(it.a, it.block, BYTES));
    CHECK_OK(loch_stream_sync(it.a));
    CHECK_OK(sim_writes(it.b, it.block, BYTES));
    CHECK_OK(loch_event_record(it.event, it.b));
    CHECK_OK(loch_event_sync(it.event));
    CHECK_OK(sim_writes(it.a, it.block, BYTES));
    CHECK_OK(loch_sim_advance(it.device, 5000));
    CHECK_OK(loch_stream_query(it.a));
    CHECK_OK(sim_writes(it.b, it.block, BYTES));
    CHECK_OK(loch_event_record(it.event, it.b));
    CHECK_STATUS(loch_event_query(it.event), LOCH_E_BUSY);
    CHECK_OK(loch_sim_advance(it.device, 5000));
    CHECK_OK(loch_event_query(it.event));
    CHECK_OK(sim_writes(it.a, it.block, BYTES));
    CHECK_OK(loch_device_sync(it.device));
    CHECK_OK(sim_writes(it.b, it.block, BYTES));
    assert_int_equal(sim_violations(it.device, NULL), 0);
    bench_close(&it);
}

static void a_query_that_found_it_busy_orders_nothing(void **state)
{
    (void)state;
    bench it = bench_open(UNBACKED);
    CHECK_OK(sim_writes(it.a, it.block, BYTES));
    CHECK_STATUS(loch_stream_query(it.a), LOCH_E_BUSY);
    CHECK_OK(sim_writes(it.b, it.block, BYTES));
    assert_int_equal(sim_violations(it.device, NULL), 1);
    bench_close(&it);
}

static void the_default_stream_makes_order_with_tied_streams(void **state)
{
    (void)state;
    bench it = bench_open(UNBACKED);
    loch_stream *tied = sim_stream(it.device, LOCH_STREAM_WITH_DEFAULT);
    loch_stream *legacy = loch_stream_get_default(it.device);
    CHECK_OK(sim_writes(tied, it.block, BYTES));
    CHECK_OK(sim_writes(legacy, it.block, BYTES));
    CHECK_OK(sim_writes(tied, it.block, BYTES));
    loch_stream_close(tied);
    CHECK_OK(sim_writes(legacy, it.block, BYTES)); /* behind a stream that is being destroyed */
    tied = sim_stream(it.device, LOCH_STREAM_WITH_DEFAULT);
    CHECK_OK(sim_writes(tied, it.block, BYTES));
    loch_stream_close(tied);
    CHECK_OK(loch_sim_advance(it.device, 10000));
    CHECK_OK(sim_writes(legacy, it.block, BYTES)); /* behind one that is no more */
    tied = sim_stream(it.device, LOCH_STREAM_WITH_DEFAULT);
    CHECK_OK(sim_writes(tied, it.block, BYTES));
    assert_int_equal(sim_violations(it.device, NULL), 0);
    CHECK_OK(sim_reads(it.a, it.block, BYTES)); /* independent */
    assert_int_equal(sim_violations(it.device, NULL), 1);
    loch_stream_close(tied);
    bench_close(&it);
}

/* A stream that ended is not forgotten, nor taken for the one that comes after it. */
static void work_of_a_stream_that_has_ended_still_counts(void **state)
{
    (void)state;
    bench it = bench_open(UNBACKED);
    loch_stream *gone = sim_stream(it.device, LOCH_STREAM_INDEPENDENT);
    const uint64_t number = sim_number(gone);
    loch_sim_violation found;
    CHECK_OK(sim_writes(gone, it.block, BYTES));
    CHECK_OK(loch_sim_advance(it.device, 10000));
    loch_stream_close(gone);
    gone = sim_stream(it.device, LOCH_STREAM_INDEPENDENT);
    CHECK_OK(sim_writes(gone, it.block, BYTES));
    assert_int_equal(sim_violations(it.device, &found), 1);
    assert_int_equal(found.other_stream, number);
    loch_stream_close(gone);
    CHECK_OK(loch_sim_advance(it.device, 10000));
    CHECK_OK(loch_device_sync(it.device)); /* streams that are no more count */
    CHECK_OK(sim_writes(it.a, it.block, BYTES));
    assert_int_equal(sim_violations(it.device, NULL), 1);
    bench_close(&it);
}

static void uses_through_an_alias_are_found(void **state)
{
    (void)state;
    bench it = bench_open(UNBACKED);
    char *addresses;
    loch_handle *handle;
    loch_sim_violation found;
    CHECK_OK(loch_virtual_reserve(it.device, 2 * GRANULE, 0, (void **)&addresses));
    CHECK_OK(loch_handle_create(it.device, GRANULE, NULL, &handle));
    CHECK_OK(loch_virtual_map(addresses, handle, NULL, 0));
    CHECK_OK(loch_virtual_map(addresses + GRANULE, handle, NULL, 0));
    CHECK_OK(sim_writes(it.a, addresses + 100, 100));
    CHECK_OK(sim_reads(it.b, addresses + GRANULE + 150, 100));
    assert_int_equal(sim_violations(it.device, &found), 1);
    assert_ptr_equal(found.address, addresses + GRANULE + 150); /* of the later use */
    assert_int_equal(found.bytes, 50);
    CHECK_OK(loch_device_sync(it.device));
    CHECK_OK(loch_virtual_unmap(addresses));
    CHECK_OK(loch_virtual_unmap(addresses + GRANULE));
    loch_handle_destroy(handle);
    CHECK_OK(loch_virtual_unreserve(addresses));
    bench_close(&it);
}

/* The handle keeps its history when it is mapped elsewhere; new memory at the same address has none. */
static void history_follows_the_memory(void **state)
{
    (void)state;
    bench it = bench_open(UNBACKED);
    char *addresses;
    loch_handle *handle, *fresh;
    CHECK_OK(loch_virtual_reserve(it.device, 2 * GRANULE, 0, (void **)&addresses));
    CHECK_OK(loch_handle_create(it.device, GRANULE, NULL, &handle));
    CHECK_OK(loch_handle_create(it.device, GRANULE, NULL, &fresh));
    CHECK_OK(loch_virtual_map(addresses, handle, NULL, 0));
    CHECK_OK(sim_writes(it.a, addresses, 64));
    CHECK_OK(loch_sim_advance(it.device, 5000));
    CHECK_OK(loch_virtual_unmap(addresses));
    CHECK_OK(loch_virtual_map(addresses + GRANULE, handle, NULL, 0));
    CHECK_OK(loch_virtual_map(addresses, fresh, NULL, 0));
    CHECK_OK(sim_writes(it.b, addresses, 64));
    assert_int_equal(sim_violations(it.device, NULL), 0);
    CHECK_OK(sim_writes(it.b, addresses + GRANULE, 64));
    assert_int_equal(sim_violations(it.device, NULL), 1);
    CHECK_OK(loch_device_sync(it.device));
    CHECK_OK(loch_virtual_unmap(addresses));
    CHECK_OK(loch_virtual_unmap(addresses + GRANULE));
    loch_handle_destroy(handle);
    loch_handle_destroy(fresh);
    CHECK_OK(loch_virtual_unreserve(addresses));
    void *block = sim_raw(it.device, BYTES), *again;
    CHECK_OK(sim_writes(it.a, block, BYTES));
    CHECK_OK(loch_sim_advance(it.device, 5000));
    CHECK_OK(loch_raw_free(block));
    again = sim_raw(it.device, BYTES);
    assert_ptr_equal(again, block);
    CHECK_OK(sim_writes(it.b, again, BYTES));
    assert_int_equal(sim_violations(it.device, NULL), 1);
    CHECK_OK(loch_device_sync(it.device));
    CHECK_OK(loch_raw_free(again));
    bench_close(&it);
}

static void copies_and_fills_are_uses(void **state)
{
    (void)state;
    bench it = bench_open("sim:64MiB,backed,clock=stepped");
    char *pinned = sim_pinned(it.device, BYTES);
    CHECK_OK(loch_fill_on(it.block, BYTES, "x", 1, it.a));
    CHECK_OK(loch_copy_on(pinned, it.block, BYTES, it.b)); /* reads what a fills */
    assert_int_equal(sim_violations(it.device, NULL), 1);
    CHECK_OK(loch_copy_on(it.block + BYTES, pinned, BYTES, it.a)); /* reads what b writes */
    assert_int_equal(sim_violations(it.device, NULL), 2);
    char pageable[16];
    CHECK_OK(loch_copy_on(pageable, it.block + 2 * BYTES, 16, it.b)); /* waits: the host has seen all of b */
    CHECK_OK(sim_writes(it.a, pinned, BYTES));
    assert_int_equal(sim_violations(it.device, NULL), 2);
    CHECK_OK(loch_device_sync(it.device));
    CHECK_OK(loch_raw_free(pinned));
    bench_close(&it);
}

static void copies_onto_themselves_are_found(void **state)
{
    (void)state;
    bench it = bench_open(UNBACKED);
    void *self;
    const loch_driver *driver = loch_device_get_driver(it.device, &self);
    loch_sim_violation found;
    CHECK_OK(driver->copy(self, LOCH_DEVICE_TO_DEVICE, it.block, it.block + BYTES, BYTES, NULL, NULL));
    assert_int_equal(sim_violations(it.device, NULL), 0);
    CHECK_OK(driver->copy(self, LOCH_DEVICE_TO_DEVICE, it.block, it.block + 100, BYTES, NULL, NULL));
    assert_int_equal(sim_violations(it.device, &found), 1);
    assert_int_equal(found.kind, LOCH_SIM_OVERLAP);
    assert_ptr_equal(found.address, it.block + 100);
    assert_int_equal(found.bytes, BYTES - 100);
    bench_close(&it);
}

static void ordered_memory_on_the_wrong_stream_is_found(void **state)
{
    (void)state;
    bench it = bench_open(UNBACKED);
    void *self, *memory;
    const loch_driver *driver = loch_device_get_driver(it.device, &self);
    CHECK_OK(driver->ordered_alloc(self, BYTES, loch_stream_get_native(it.a), &memory));
    CHECK_OK(sim_writes(it.a, memory, BYTES));
    assert_int_equal(sim_violations(it.device, NULL), 0);
    CHECK_OK(loch_event_record(it.event, it.a));
    CHECK_OK(loch_stream_wait(it.b, it.event));
    CHECK_OK(sim_reads(it.b, memory, BYTES));
    assert_int_equal(sim_violations(it.device, NULL), 0);
    CHECK_OK(driver->ordered_free(self, memory, BYTES, loch_stream_get_native(it.a))); /* not behind b's read */
    assert_int_equal(sim_violations(it.device, NULL), 1);
    bench_close(&it);
}

/* Streams of two devices, and memory of one that both use. */
static void uses_of_two_devices_need_an_event_between_them(void **state)
{
    (void)state;
    loch_device *a = sim_open(UNBACKED ",id=1"), *b = sim_open(UNBACKED ",id=2");
    loch_stream *in_a = sim_stream(a, LOCH_STREAM_INDEPENDENT), *in_b = sim_stream(b, LOCH_STREAM_INDEPENDENT);
    loch_event *event = sim_event(a);
    char *block = sim_raw(a, BYTES);
    CHECK_OK(loch_device_enable_peer(b, a));
    CHECK_OK(sim_writes(in_a, block, BYTES));
    CHECK_OK(loch_event_record(event, in_a));
    CHECK_OK(loch_stream_wait(in_b, event));
    CHECK_OK(sim_reads(in_b, block, BYTES));
    assert_int_equal(sim_violations(b, NULL), 0);
    CHECK_OK(sim_writes(in_a, block, BYTES)); /* b's read is not waited for */
    assert_int_equal(sim_violations(a, NULL), 1);
    CHECK_OK(loch_device_sync(a));
    CHECK_OK(loch_device_sync(b));
    CHECK_OK(loch_raw_free(block));
    loch_event_destroy(event);
    loch_stream_close(in_a);
    loch_stream_close(in_b);
    loch_device_release(a);
    loch_device_release(b);
}

/* Many streams, many events, always ordered: by one stream, by events, or by the host. Nothing may be found. */
static void ordered_programs_give_no_alarm(void **state)
{
    (void)state;
    enum { STREAMS = 12, ROUNDS = 3000, PIECES = 32 };
    test_random random = {test_seed(5)};
    loch_device *device = sim_open("sim:1GiB,lag=500");
    loch_stream *streams[STREAMS];
    loch_event *last[PIECES]; /* behind the last use of each piece */
    char *block = sim_raw(device, PIECES * 512);
    for (size_t i = 0; i < STREAMS; i++)
        streams[i] = sim_stream(device, LOCH_STREAM_INDEPENDENT);
    for (size_t i = 0; i < PIECES; i++)
        last[i] = sim_event(device);
    for (int round = 0; round < ROUNDS; round++) {
        const size_t at = test_random_below(&random, STREAMS), first = test_random_below(&random, PIECES);
        const size_t count = 1 + test_random_below(&random, PIECES - first);
        for (size_t i = first; i < first + count; i++) {
            if (test_random_below(&random, 4))
                CHECK_OK(loch_stream_wait(streams[at], last[i]));
            else
                CHECK_OK(loch_event_sync(last[i]));
        }
        if (test_random_below(&random, 2))
            CHECK_OK(sim_writes(streams[at], block + first * 512, count * 512));
        else
            CHECK_OK(sim_reads(streams[at], block + first * 512, count * 512));
        for (size_t i = first; i < first + count; i++)
            CHECK_OK(loch_event_record(last[i], streams[at]));
        if (test_random_below(&random, 16) == 0) { /* streams come and go; their slots are used again */
            loch_stream_close(streams[at]);
            streams[at] = sim_stream(device, LOCH_STREAM_INDEPENDENT);
        }
    }
    loch_sim_violation found = {.text = ""};
    if (sim_violations(device, &found)) print_error("%s\n", found.text);
    assert_int_equal(sim_violations(device, NULL), 0);
    CHECK_OK(loch_device_sync(device));
    for (size_t i = 0; i < STREAMS; i++)
        loch_stream_close(streams[i]);
    for (size_t i = 0; i < PIECES; i++)
        loch_event_destroy(last[i]);
    CHECK_OK(loch_raw_free(block));
    loch_device_release(device);
}

/* Uses at random, without events, held against the plainest possible checker: one record a byte. */
static void findings_are_those_of_a_plain_checker(void **state)
{
    (void)state;
    enum { STREAMS = 4, ROUNDS = 4000, LENGTH = 64 };
    test_random random = {test_seed(9)};
    loch_device *device = sim_open("sim:1GiB,clock=stepped,lag=0");
    loch_stream *streams[STREAMS];
    int writer[LENGTH], readers[LENGTH];
    memset(writer, -1, sizeof writer);
    memset(readers, 0, sizeof readers);
    char *block = sim_raw(device, LENGTH);
    for (size_t i = 0; i < STREAMS; i++)
        streams[i] = sim_stream(device, LOCH_STREAM_INDEPENDENT);
    for (int round = 0; round < ROUNDS; round++) {
        const size_t at = test_random_below(&random, STREAMS), first = test_random_below(&random, LENGTH);
        const size_t bytes = 1 + test_random_below(&random, LENGTH - first);
        const bool is_write = test_random_below(&random, 3) == 0;
        if (test_random_below(&random, 20) == 0) { /* the host sees everything */
            CHECK_OK(loch_device_sync(device));
            memset(writer, -1, sizeof writer);
            memset(readers, 0, sizeof readers);
        }
        size_t expected = 0;
        for (size_t i = first; i < first + bytes; i++) {
            if (writer[i] >= 0 && writer[i] != (int)at)
                expected++;
            else if (is_write && (readers[i] & ~(1 << at)))
                expected++;
            if (is_write) {
                writer[i] = (int)at;
                readers[i] = 0;
            } else {
                readers[i] |= 1 << at;
            }
        }
        CHECK_OK(loch_sim_clear_violations(device));
        CHECK_OK(is_write ? sim_writes(streams[at], block + first, bytes)
                          : sim_reads(streams[at], block + first, bytes));
        loch_sim_violation found[LENGTH];
        size_t count, in_all = 0;
        CHECK_OK(test_sim_violations(device, found, LENGTH, &count));
        for (size_t i = 0; i < count; i++)
            in_all += found[i].bytes;
        assert_int_equal(in_all, expected);
    }
    CHECK_OK(loch_device_sync(device));
    for (size_t i = 0; i < STREAMS; i++)
        loch_stream_close(streams[i]);
    CHECK_OK(loch_raw_free(block));
    loch_device_release(device);
}

static void findings_are_kept_up_to_a_number(void **state)
{
    (void)state;
    bench it = bench_open(UNBACKED);
    loch_sim_violation found[80];
    size_t count;
    for (size_t i = 0; i < 100; i++)
        CHECK_OK(sim_writes(i % 2 ? it.a : it.b, it.block, BYTES));
    memset(found, 0, sizeof found);
    CHECK_OK(test_sim_violations(it.device, found, 80, &count));
    assert_int_equal(count, 99);
    assert_int_equal(found[63].bytes, BYTES);
    assert_int_equal(found[64].bytes, 0);
    assert_int_equal(sim_stats(it.device).violations, 99);
    CHECK_FAILS(loch_sim_walk_violations(it.device, NULL, NULL), INVALID);
    bench_close(&it);
}

static void a_checker_that_is_switched_off_finds_nothing(void **state)
{
    (void)state;
    bench it = bench_open("sim:1GiB,clock=stepped,check=off");
    CHECK_OK(sim_writes(it.a, it.block, BYTES));
    CHECK_OK(sim_writes(it.b, it.block, BYTES));
    assert_int_equal(sim_violations(it.device, NULL), 0);
    bench_close(&it);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        SIM_TEST(writes_of_two_streams_are_found),
        SIM_TEST(a_read_beside_a_write_is_found_and_two_reads_are_not),
        SIM_TEST(work_that_ended_unseen_is_not_ordered),
        SIM_TEST(an_event_orders_what_was_before_its_mark),
        SIM_TEST(order_goes_over_a_third_stream),
        SIM_TEST(waits_and_queries_of_the_host_make_order),
        SIM_TEST(a_query_that_found_it_busy_orders_nothing),
        SIM_TEST(the_default_stream_makes_order_with_tied_streams),
        SIM_TEST(work_of_a_stream_that_has_ended_still_counts),
        SIM_TEST(uses_through_an_alias_are_found),
        SIM_TEST(history_follows_the_memory),
        SIM_TEST(copies_and_fills_are_uses),
        SIM_TEST(copies_onto_themselves_are_found),
        SIM_TEST(ordered_memory_on_the_wrong_stream_is_found),
        SIM_TEST(uses_of_two_devices_need_an_event_between_them),
        SIM_TEST(ordered_programs_give_no_alarm),
        SIM_TEST(findings_are_those_of_a_plain_checker),
        SIM_TEST(findings_are_kept_up_to_a_number),
        SIM_TEST(a_checker_that_is_switched_off_finds_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

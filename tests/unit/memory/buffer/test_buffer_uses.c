/* SPDX-License-Identifier: MIT */
/* Memory stays until the work that uses it has ended, whatever its owners do. Simulated devices with a clock that
 * stands still show it: nothing ends before it is told to, and the checker sees memory that goes too early. */
#include "sweep.h"
#include "tensor_fixture.h"
#include <pthread.h>

#define DEVICE "sim:64MiB,backed,clock=stepped"

typedef struct bench {
    loch_device *device;
    loch_stream *stream;
    tensor_deletions deletions;
    char memory[4096];
} bench;

static void bench_open(bench *b)
{
    memset(b, 0, sizeof *b);
    b->device = sim_open(DEVICE);
    b->stream = sim_stream(b->device, LOCH_STREAM_INDEPENDENT);
}

static void bench_close(bench *b)
{
    assert_int_equal(sim_violations(b->device, NULL), 0);
    loch_stream_close(b->stream);
    loch_device_release(b->device);
}

static loch_buffer *bench_wrap(bench *b)
{
    const loch_external external = {.size = sizeof external, .deleter = tensor_delete, .user = &b->deletions};
    loch_buffer *buffer;
    CHECK_OK(loch_buffer_wrap(b->memory, sizeof b->memory, &external, &buffer));
    return buffer;
}

static size_t waiting_now(void)
{
    size_t waiting;
    CHECK_OK(loch_buffer_collect(LOCH_WAIT_QUEUED, &waiting));
    return waiting;
}

/* Seed 000's to_cuda(stream) drops the host side while the copy still reads it. */
static void a_copy_keeps_memory_from_outside(void **state)
{
    (void)state;
    bench b;
    bench_open(&b);
    test_pattern_write(b.memory, sizeof b.memory, 3);
    loch_buffer *from = bench_wrap(&b), *to;
    CHECK_OK(loch_buffer_create_for_device(b.device, sizeof b.memory, NULL, &to));
    CHECK_OK(sim_busy(b.stream, 100000));
    const loch_buffer_copy_options options = {.size = sizeof options, .stream = b.stream};
    CHECK_OK(loch_buffer_copy(to, from, &options));
    loch_buffer_release(from);
    assert_int_equal(b.deletions.count, 0);
    assert_int_equal(waiting_now(), 1);
    CHECK_OK(loch_stream_sync(b.stream));
    char seen[4096];
    CHECK_OK(loch_copy(seen, loch_buffer_get_address(to), sizeof seen));
    assert_int_equal(test_pattern_differs(seen, sizeof seen, 3), sizeof seen);
    loch_buffer_release(to); /* any call on a buffer gives back what waited */
    assert_int_equal(b.deletions.count, 1);
    assert_int_equal(waiting_now(), 0);
    bench_close(&b);
}

/* Blocks of the device's own allocator are ordered by it; nothing waits here. */
static void a_copy_keeps_both_sides_of_a_device(void **state)
{
    (void)state;
    bench b;
    bench_open(&b);
    loch_stream *other = sim_stream(b.device, LOCH_STREAM_INDEPENDENT);
    const loch_buffer_copy_options options = {.size = sizeof options, .stream = b.stream};
    for (size_t i = 0; i < 20; i++) {
        const loch_request request = {.size = sizeof request, .stream = other};
        loch_allocator *allocator = tensor_allocator(b.device);
        loch_buffer *from, *to, *next;
        CHECK_OK(loch_buffer_create(allocator, TEST_MIB, &request, &from));
        CHECK_OK(loch_buffer_create(allocator, TEST_MIB, &request, &to));
        CHECK_OK(loch_stream_sync(other));
        CHECK_OK(sim_busy(b.stream, 100000));
        CHECK_OK(loch_buffer_copy(to, from, &options));
        loch_buffer_release(from);
        loch_buffer_release(to);
        CHECK_OK(loch_buffer_create(allocator, TEST_MIB, &request, &next));
        CHECK_OK(sim_writes(other, loch_buffer_get_address(next), TEST_MIB)); /* the checker looks on */
        loch_buffer_release(next);
        loch_allocator_release(allocator);
    }
    assert_int_equal(waiting_now(), 0);
    CHECK_OK(loch_device_sync(b.device));
    loch_stream_close(other);
    bench_close(&b);
}

/* The host's pool does not know the streams of a device. */
static void a_copy_keeps_blocks_of_another_device(void **state)
{
    (void)state;
    bench b;
    bench_open(&b);
    loch_device *cpu = sim_open("cpu");
    loch_allocator *allocator = tensor_allocator(cpu);
    loch_buffer *host, *to;
    CHECK_OK(loch_buffer_create(allocator, 4096, NULL, &host));
    CHECK_OK(loch_buffer_create_for_device(b.device, 4096, NULL, &to));
    CHECK_OK(sim_busy(b.stream, 100000));
    const loch_buffer_copy_options options = {.size = sizeof options, .stream = b.stream};
    CHECK_OK(loch_buffer_copy(to, host, &options));
    void *block;
    CHECK_FAILS(loch_buffer_resize(host, 8192, LOCH_CONTENTS_KEEP, NULL), BUSY);
    CHECK_FAILS(loch_buffer_detach(host, &block), BUSY);
    loch_buffer_release(host);
    assert_int_equal(tensor_live_blocks(allocator), 1);
    loch_buffer_release(to);
    assert_int_equal(tensor_live_blocks(allocator), 1);
    size_t waiting;
    CHECK_OK(loch_buffer_collect(LOCH_WAIT_END, &waiting));
    assert_int_equal(waiting, 0);
    assert_int_equal(tensor_live_blocks(allocator), 0);
    loch_allocator_release(allocator);
    loch_device_release(cpu);
    bench_close(&b);
}

/* Without a stream a copy between devices runs on the default one of its target, which the source's allocator does not
 * know. */
static void a_copy_without_a_stream_keeps_both_sides(void **state)
{
    (void)state;
    bench b;
    bench_open(&b);
    loch_device *other = sim_open("sim:64MiB,backed,clock=stepped,seed=2");
    const unsigned char first = 1, second = 2;
    unsigned char seen = 0;
    loch_buffer *from, *to, *next;
    CHECK_OK(loch_buffer_create_for_device(b.device, 4096, NULL, &from));
    CHECK_OK(loch_buffer_create_for_device(other, 4096, NULL, &to));
    CHECK_OK(loch_buffer_fill(from, &first, 1, NULL));
    CHECK_OK(sim_busy(loch_stream_get_default(other), 100000));
    const loch_buffer_copy_options options = {.size = sizeof options, .wait = LOCH_WAIT_QUEUED};
    CHECK_OK(loch_buffer_copy(to, from, &options));
    loch_buffer_release(from);
    CHECK_OK(loch_buffer_create_for_device(b.device, 4096, NULL, &next));
    CHECK_OK(loch_buffer_fill(next, &second, 1, NULL));
    CHECK_OK(loch_stream_sync(loch_stream_get_default(other)));
    CHECK_OK(loch_copy(&seen, loch_buffer_get_address(to), 1));
    assert_int_equal(seen, first);
    loch_buffer_release(next);
    loch_buffer_release(to);
    loch_device_release(other);
    bench_close(&b);
}

/* A copy between devices may fail when it is queued already, and only the order behind it is missing. */
static void copy_between_devices(test_round *round, const void *user)
{
    (void)user;
    bench b;
    bench_open(&b);
    loch_device *other = sim_open("sim:64MiB,backed,clock=stepped,seed=2");
    const unsigned char first = 1, second = 2;
    unsigned char seen = 0;
    loch_buffer *from, *to, *next;
    CHECK_OK(loch_buffer_create_for_device(b.device, 4096, NULL, &from));
    CHECK_OK(loch_buffer_create_for_device(other, 4096, NULL, &to));
    CHECK_OK(loch_buffer_fill(from, &first, 1, NULL));
    CHECK_OK(loch_buffer_fill(to, &first, 1, NULL));
    CHECK_OK(sim_busy(loch_stream_get_default(other), 100000));
    const loch_buffer_copy_options options = {.size = sizeof options, .stream = b.stream};
    test_round_begin(round, b.device);
    const loch_status status = loch_buffer_copy(to, from, &options);
    test_round_end(round);
    round->is_felt = status != LOCH_OK;
    if (status != LOCH_OK) assert_int_equal(loch_error_get()->status, status);
    loch_buffer_release(from);
    CHECK_OK(loch_buffer_create_for_device(b.device, 4096, NULL, &next));
    CHECK_OK(loch_buffer_fill(next, &second, 1, NULL));
    CHECK_OK(loch_stream_sync(loch_stream_get_default(other)));
    CHECK_OK(loch_copy(&seen, loch_buffer_get_address(to), 1));
    assert_int_equal(seen, first);
    loch_buffer_release(next);
    loch_buffer_release(to);
    CHECK_OK(loch_device_sync(b.device));
    assert_int_equal(waiting_now(), 0);
    loch_device_release(other);
    bench_close(&b);
    test_end_defaults();
}

static void a_copy_that_fails_half_way_keeps_both_sides(void **state)
{
    (void)state;
    assert_true(test_rounds_run(&test_host_faults, "two devices", copy_between_devices, NULL).places > 0);
}

/* Whatever failed on the way: a copy that was queued keeps both sides, also when its use could not be noted. */
static void copy_beside_a_stream(test_round *round, const void *user)
{
    (void)user;
    bench b;
    bench_open(&b);
    loch_stream *other = sim_stream(b.device, LOCH_STREAM_INDEPENDENT);
    loch_allocator *allocator = tensor_allocator(b.device);
    const loch_request request = {.size = sizeof request, .stream = other};
    loch_buffer *from, *to, *next[2];
    CHECK_OK(loch_buffer_create(allocator, TEST_MIB, &request, &from));
    CHECK_OK(loch_buffer_create(allocator, TEST_MIB, &request, &to));
    CHECK_OK(loch_stream_sync(other));
    CHECK_OK(sim_busy(b.stream, 100000));
    const loch_buffer_copy_options options = {.size = sizeof options, .stream = b.stream};
    test_round_begin(round, b.device);
    const loch_status status = loch_buffer_copy(to, from, &options);
    test_round_end(round);
    round->is_felt = status != LOCH_OK;
    loch_buffer_release(from);
    loch_buffer_release(to);
    for (size_t i = 0; i < 2; i++) {
        CHECK_OK(loch_buffer_create(allocator, TEST_MIB, &request, &next[i]));
        CHECK_OK(sim_writes(other, loch_buffer_get_address(next[i]), TEST_MIB)); /* the checker looks on */
    }
    for (size_t i = 0; i < 2; i++)
        loch_buffer_release(next[i]);
    loch_allocator_release(allocator);
    CHECK_OK(loch_device_sync(b.device));
    assert_int_equal(waiting_now(), 0);
    loch_stream_close(other);
    bench_close(&b);
    test_end_defaults();
}

static void a_copy_whose_use_is_not_noted_keeps_both_sides(void **state)
{
    (void)state;
    assert_true(test_rounds_run(&test_host_faults, "two streams", copy_beside_a_stream, NULL).places > 0);
}

static void recorded_uses_of_two_streams_are_waited_for(void **state)
{
    (void)state;
    bench b;
    bench_open(&b);
    loch_stream *other = sim_stream(b.device, LOCH_STREAM_INDEPENDENT);
    loch_buffer *buffer = bench_wrap(&b);
    CHECK_OK(sim_busy(b.stream, 1000));
    CHECK_OK(loch_buffer_record_use(buffer, b.stream));
    CHECK_OK(sim_busy(other, 5000));
    CHECK_OK(loch_buffer_record_use(buffer, other));
    CHECK_OK(sim_busy(b.stream, 1000)); /* again: the later work counts */
    CHECK_OK(loch_buffer_record_use(buffer, b.stream));
    loch_buffer_release(buffer);
    CHECK_OK(loch_sim_advance(b.device, 1500));
    assert_int_equal(waiting_now(), 1);
    CHECK_OK(loch_sim_advance(b.device, 1500));
    assert_int_equal(waiting_now(), 1);
    assert_int_equal(b.deletions.count, 0);
    CHECK_OK(loch_sim_advance(b.device, 3000));
    assert_int_equal(waiting_now(), 0);
    assert_int_equal(b.deletions.count, 1);
    loch_stream_close(other);
    bench_close(&b);
}

/* The stream of the allocation needs no record; after a resize on another stream it does. */
static void a_resized_buffer_is_used_on_its_first_stream(void **state)
{
    (void)state;
    for (int is_recorded = 0; is_recorded < 2; is_recorded++) {
        bench b;
        bench_open(&b);
        loch_stream *other = sim_stream(b.device, LOCH_STREAM_INDEPENDENT);
        loch_allocator *pool;
        loch_buffer *buffer;
        CHECK_OK(loch_pool_create(b.device, "uses", NULL, &pool));
        loch_request request = {.size = sizeof request, .stream = b.stream};
        CHECK_OK(loch_buffer_create(pool, 4 * TEST_MIB, &request, &buffer));
        CHECK_OK(loch_stream_sync(b.stream));
        CHECK_OK(loch_buffer_resize(buffer, 40 * TEST_MIB, LOCH_CONTENTS_DROP, other));
        CHECK_OK(loch_stream_sync(other));
        CHECK_OK(sim_busy(b.stream, 5000));
        if (is_recorded) CHECK_OK(loch_buffer_record_use(buffer, b.stream));
        loch_buffer_release(buffer);
        request.stream = other; /* the device has no room for both, so this is the memory of the buffer */
        CHECK_OK(loch_buffer_create(pool, 40 * TEST_MIB, &request, &buffer));
        CHECK_STATUS(loch_stream_query(other), is_recorded ? LOCH_E_BUSY : LOCH_OK);
        loch_buffer_release(buffer);
        CHECK_OK(loch_sim_advance(b.device, 6000));
        loch_allocator_release(pool);
        loch_stream_close(other);
        bench_close(&b);
    }
}

/* Each stream leaves a mark; those that have passed go when others come. */
static void marks_do_not_pile_up(void **state)
{
    (void)state;
    bench b;
    bench_open(&b);
    loch_buffer *buffer = bench_wrap(&b);
    loch_host_usage usage = {.size = sizeof usage};
    size_t blocks = 0;
    for (size_t i = 0; i < 20; i++) {
        loch_stream *passing = sim_stream(b.device, LOCH_STREAM_INDEPENDENT);
        CHECK_OK(sim_busy(passing, 100));
        CHECK_OK(loch_buffer_record_use(buffer, passing));
        CHECK_OK(loch_stream_sync(passing));
        loch_stream_close(passing);
        CHECK_OK(loch_host_get_usage(&usage));
        if (i == 1) blocks = usage.blocks;
    }
    assert_int_equal(usage.blocks, blocks);
    loch_buffer_release(buffer);
    bench_close(&b);
}

static void memory_stays_when_its_stream_was_destroyed(void **state)
{
    (void)state;
    bench b;
    bench_open(&b);
    loch_stream *other = sim_stream(b.device, LOCH_STREAM_INDEPENDENT);
    loch_buffer *buffer = bench_wrap(&b);
    CHECK_OK(sim_busy(other, 5000));
    CHECK_OK(loch_buffer_record_use(buffer, other));
    loch_stream_close(other);
    loch_buffer_release(buffer);
    assert_int_equal(b.deletions.count, 0);
    CHECK_OK(loch_sim_advance(b.device, 6000));
    assert_int_equal(waiting_now(), 0);
    assert_int_equal(b.deletions.count, 1);
    bench_close(&b);
}

static void a_lost_device_lets_memory_go(void **state)
{
    (void)state;
    bench b;
    bench_open(&b);
    loch_buffer *buffer = bench_wrap(&b);
    CHECK_OK(sim_busy(b.stream, 5000));
    CHECK_OK(loch_buffer_record_use(buffer, b.stream));
    loch_buffer_release(buffer);
    assert_int_equal(waiting_now(), 1);
    CHECK_OK(loch_sim_lose(b.device));
    assert_int_equal(waiting_now(), 0);
    assert_int_equal(b.deletions.count, 1);
    bench_close(&b);
}

static void a_capture_is_left_alone(void **state)
{
    (void)state;
    bench b;
    bench_open(&b);
    loch_buffer *buffer = bench_wrap(&b);
    loch_sim_graph *graph;
    CHECK_OK(loch_sim_capture_begin(b.stream));
    CHECK_OK(sim_busy(b.stream, 10));
    CHECK_OK(loch_buffer_record_use(buffer, b.stream));
    CHECK_OK(loch_sim_capture_end(b.stream, &graph));
    loch_buffer_release(buffer);
    assert_int_equal(b.deletions.count, 1);
    loch_sim_graph_destroy(graph);
    bench_close(&b);
}

/* A deleter may use buffers, and wait for others. */
static void delete_and_collect(void *address, size_t bytes, void *user)
{
    tensor_delete(address, bytes, user);
    loch_buffer *buffer;
    size_t waiting;
    CHECK_OK(loch_buffer_create_for_device(NULL, 10, NULL, &buffer));
    loch_buffer_release(buffer);
    CHECK_OK(loch_buffer_collect(LOCH_WAIT_END, &waiting));
}

static void a_deleter_may_use_buffers(void **state)
{
    (void)state;
    bench b;
    bench_open(&b);
    const loch_external external = {.size = sizeof external, .deleter = delete_and_collect, .user = &b.deletions};
    for (size_t i = 0; i < 3; i++) {
        loch_buffer *buffer;
        CHECK_OK(loch_buffer_wrap(b.memory, 16, &external, &buffer));
        CHECK_OK(sim_busy(b.stream, 1000));
        CHECK_OK(loch_buffer_record_use(buffer, b.stream));
        loch_buffer_release(buffer);
    }
    CHECK_OK(loch_buffer_collect(LOCH_WAIT_END, NULL));
    assert_int_equal(b.deletions.count, 3);
    bench_close(&b);
}

/* --- failures --- */

/* When a use cannot be remembered, it is waited for: nothing goes too early. */
static void a_mark_that_fails_is_waited_for(void **state)
{
    (void)state;
    static const char *const calls[] = {"event_create", "event_record"};
    for (size_t i = 0; i < 2; i++) {
        bench b;
        bench_open(&b);
        loch_buffer *buffer = bench_wrap(&b);
        CHECK_OK(sim_busy(b.stream, 1000));
        const loch_sim_fault fault = {.size = sizeof fault, .call = calls[i], .mode = LOCH_SIM_FAULT_FOREVER};
        CHECK_OK(loch_sim_set_fault(b.device, &fault));
        CHECK_OK(loch_buffer_record_use(buffer, b.stream));
        CHECK_STATUS(loch_stream_query(b.stream), LOCH_OK);
        loch_buffer_release(buffer);
        assert_int_equal(b.deletions.count, 1);
        CHECK_OK(loch_sim_set_fault(b.device, NULL));
        bench_close(&b);
    }
}

static void a_failing_wait_keeps_the_memory(void **state)
{
    (void)state;
    bench b;
    bench_open(&b);
    loch_buffer *buffer = bench_wrap(&b);
    CHECK_OK(sim_busy(b.stream, 1000));
    CHECK_OK(loch_buffer_record_use(buffer, b.stream));
    loch_buffer_release(buffer);
    const loch_sim_fault fault = {.size = sizeof fault, .mode = LOCH_SIM_FAULT_FOREVER};
    CHECK_OK(loch_sim_set_fault(b.device, &fault));
    size_t waiting;
    CHECK_FAILS(loch_buffer_collect(LOCH_WAIT_END, &waiting), DRIVER);
    assert_int_equal(waiting, 1);
    CHECK_OK(loch_sim_set_fault(b.device, NULL));
    CHECK_OK(loch_buffer_collect(LOCH_WAIT_END, &waiting));
    assert_int_equal(b.deletions.count, 1);
    bench_close(&b);
}

static void ignore_delete(void *address, size_t bytes, void *user)
{
    (void)address, (void)bytes;
    ++*(size_t *)user;
}

/* Buffers in all their forms, for the sweep: what was taken over is given back, whatever fails. */
static loch_status run_buffers(const void *user)
{
    (void)user;
    static char memory[256];
    size_t deleted = 0;
    bool is_taken = false;
    loch_device *device = NULL;
    loch_stream *stream = NULL;
    loch_buffer *buffer = NULL, *part = NULL, *outside = NULL;
    const loch_external external = {.size = sizeof external, .deleter = ignore_delete, .user = &deleted};
    loch_status status = loch_device_open("sim:64MiB,backed", &device);
    if (status == LOCH_OK) status = loch_stream_create(device, NULL, &stream);
    if (status == LOCH_OK) status = loch_buffer_create_for_device(device, 256, NULL, &buffer);
    if (status == LOCH_OK) status = loch_buffer_slice(buffer, 0, 128, &part);
    if (status == LOCH_OK) status = loch_buffer_wrap(memory, 128, &external, &outside);
    is_taken = outside != NULL;
    const loch_buffer_copy_options options = {.size = sizeof options, .stream = stream};
    if (status == LOCH_OK) status = loch_buffer_copy(outside, part, &options);
    if (status == LOCH_OK) status = loch_buffer_resize(buffer, 4 * TEST_MIB, LOCH_CONTENTS_KEEP, stream);
    loch_buffer_release(outside);
    loch_buffer_release(part);
    loch_buffer_release(buffer);
    if (loch_buffer_collect(LOCH_WAIT_END, NULL) != LOCH_OK) return LOCH_E_CORRUPT;
    assert_int_equal(deleted, is_taken);
    loch_stream_close(stream);
    if (device && loch_device_set_allocator(device, NULL) != LOCH_OK) return LOCH_E_CORRUPT;
    loch_device_release(device);
    return status;
}

static void buffers_survive_failing_host_memory(void **state)
{
    (void)state;
    test_host_sweep(run_buffers, NULL);
}

/* --- threads --- */

typedef struct racer {
    bench *b;
    loch_stream *stream;
    const loch_external *external;
    bool is_well;
} racer;

static void *race(void *user)
{
    racer *r = user;
    r->is_well = true;
    for (size_t i = 0; i < 300; i++) {
        loch_buffer *buffer = NULL;
        r->is_well = r->is_well && loch_buffer_wrap(r->b->memory, 64, r->external, &buffer) == LOCH_OK &&
                     sim_busy(r->stream, 100) == LOCH_OK && loch_buffer_record_use(buffer, r->stream) == LOCH_OK;
        loch_buffer_release(buffer);
        if (i % 64 == 0) r->is_well = r->is_well && loch_buffer_collect(LOCH_WAIT_END, NULL) == LOCH_OK;
    }
    return NULL;
}

static void count_atomically(void *address, size_t bytes, void *user)
{
    (void)address, (void)bytes;
    __atomic_fetch_add((size_t *)user, 1, __ATOMIC_RELAXED);
}

static void threads_collect_for_each_other(void **state)
{
    (void)state;
    bench b;
    bench_open(&b);
    size_t deleted = 0;
    const loch_external external = {.size = sizeof external, .deleter = count_atomically, .user = &deleted};
    racer racers[4];
    for (size_t i = 0; i < 4; i++)
        racers[i] = (racer){&b, sim_stream(b.device, LOCH_STREAM_INDEPENDENT), &external, false};
    TEST_THREADS_RUN(race, racers);
    for (size_t i = 0; i < 4; i++)
        assert_true(racers[i].is_well);
    size_t waiting;
    CHECK_OK(loch_buffer_collect(LOCH_WAIT_END, &waiting));
    assert_int_equal(waiting, 0);
    assert_int_equal(deleted, 4 * 300);
    for (size_t i = 0; i < 4; i++)
        loch_stream_close(racers[i].stream);
    bench_close(&b);
}

int main(void)
{
    if (test_heap_install() != LOCH_OK) return 1;
    const struct CMUnitTest tests[] = {
        TENSOR_TEST(a_copy_keeps_memory_from_outside),
        TENSOR_TEST(a_copy_keeps_both_sides_of_a_device),
        TENSOR_TEST(a_copy_without_a_stream_keeps_both_sides),
        TENSOR_TEST(a_copy_that_fails_half_way_keeps_both_sides),
        TENSOR_TEST(a_copy_whose_use_is_not_noted_keeps_both_sides),
        TENSOR_TEST(a_copy_keeps_blocks_of_another_device),
        TENSOR_TEST(recorded_uses_of_two_streams_are_waited_for),
        TENSOR_TEST(a_resized_buffer_is_used_on_its_first_stream),
        TENSOR_TEST(marks_do_not_pile_up),
        TENSOR_TEST(memory_stays_when_its_stream_was_destroyed),
        TENSOR_TEST(a_lost_device_lets_memory_go),
        TENSOR_TEST(a_capture_is_left_alone),
        TENSOR_TEST(a_deleter_may_use_buffers),
        TENSOR_TEST(a_mark_that_fails_is_waited_for),
        TENSOR_TEST(a_failing_wait_keeps_the_memory),
        TENSOR_TEST(buffers_survive_failing_host_memory),
        TENSOR_TEST(threads_collect_for_each_other),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

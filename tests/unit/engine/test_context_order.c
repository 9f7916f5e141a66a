/* SPDX-License-Identifier: MIT */
/* Contexts and order: the order of copies with every stream of the context, captures beside them, nested pools, and
 * figures in odd cases. */
#include "context_fixture.h"

static void go(const bench *b, unsigned seat)
{
    CHECK_OK(loch_context_set_seat(b->context, LOCH_SEAT(seat)));
}

static void *address_of(const loch_tensor *tensor)
{
    void *address;
    CHECK_OK(loch_tensor_get_address(tensor, &address));
    return address;
}

/* A tensor of seat 0 that the bench's context has had nothing to do with; all work on it has ended. */
static loch_tensor *tensor_of_another(const bench *b)
{
    loch_context *maker;
    float host[256];
    loch_tensor *tensor;
    for (size_t i = 0; i < 256; i++)
        host[i] = (float)i;
    CHECK_OK(loch_context_open(b->engine, NULL, &maker));
    CHECK_OK(loch_context_create_from(maker, LOCH_F32, LOCH_SHAPE(16, 16), host, NULL, 0, &tensor));
    CHECK_OK(loch_context_close(maker));
    CHECK_OK(loch_device_sync(b->devices[0]));
    return tensor;
}

static void a_copy_is_read_before_a_stream_that_is_first_used_later_writes(void **state)
{
    (void)state;
    const unsigned seats[] = {0, BENCH_TWIN};
    for (size_t i = 0; i < 2; i++) {
        bench b;
        bench_open(&b);
        loch_tensor *tensor = tensor_of_another(&b), *copy;
        go(&b, 1);
        CHECK_OK(sim_busy(test_context_stream(b.context), 1000000));
        CHECK_OK(loch_context_acquire_copy(b.context, tensor, &copy));
        go(&b, seats[i]);
        CHECK_OK(sim_writes(test_context_stream(b.context), address_of(tensor), 1024));
        bench_expect_order(&b);
        loch_tensor_release(copy);
        loch_tensor_release(tensor);
        for (size_t k = 0; k < BENCH_SIMS; k++)
            CHECK_OK(loch_device_sync(b.devices[k]));
        bench_close(&b);
    }
}

/* A copy from the host, whose streams do at once what is queued on them. */
static void a_copy_of_host_memory_is_read_before_the_host_seat_writes(void **state)
{
    (void)state;
    bench b;
    bench_open(&b);
    loch_context *maker;
    const loch_seat seat = LOCH_SEAT(BENCH_HOST);
    const loch_context_options options = {.size = sizeof options, .seats = &seat, .seats_count = 1};
    const float ones[4] = {1, 1, 1, 1};
    float found[4];
    loch_tensor *tensor, *copy;
    CHECK_OK(loch_context_open(b.engine, &options, &maker));
    CHECK_OK(loch_context_create_from(maker, LOCH_F32, LOCH_SHAPE(4), ones, NULL, 0, &tensor));
    CHECK_OK(loch_context_close(maker));
    go(&b, 1);
    CHECK_OK(sim_busy(test_context_stream(b.context), 1000000));
    CHECK_OK(loch_context_acquire_copy(b.context, tensor, &copy));
    go(&b, BENCH_HOST);
    CHECK_OK(loch_tensor_fill(tensor, loch_scalar_of(2), test_context_stream(b.context)));
    go(&b, 1);
    CHECK_OK(loch_tensor_read(copy, found, sizeof found, test_context_stream(b.context)));
    assert_memory_equal(found, ones, sizeof ones);
    loch_tensor_release(copy);
    loch_tensor_release(tensor);
    bench_close(&b);
}

static void a_copy_comes_behind_the_own_stream_while_another_is_set(void **state)
{
    (void)state;
    bench b;
    bench_open(&b);
    loch_tensor *tensor = bench_tensor(&b, 16, 16, 1), *copy;
    loch_stream *own = test_context_stream(b.context), *set = sim_stream(b.devices[0], LOCH_STREAM_INDEPENDENT);
    CHECK_OK(sim_busy(own, 1000000));
    CHECK_OK(sim_writes(own, address_of(tensor), 1024));
    loch_buffer_touch(loch_tensor_get_buffer(tensor));
    loch_guard guard;
    CHECK_OK(loch_context_begin_stream(b.context, set, &guard));
    go(&b, 1);
    CHECK_OK(loch_context_acquire_copy(b.context, tensor, &copy));
    loch_guard_end(&guard);
    CHECK_OK(sim_writes(own, address_of(tensor), 1024)); /* and before what it does next */
    bench_expect_order(&b);
    loch_tensor_release(copy);
    loch_tensor_release(tensor);
    CHECK_OK(loch_device_sync(b.devices[1]));
    loch_stream_close(set);
    bench_close(&b);
}

/* What is captured runs with its graph: a copy on a stream beside it is neither drawn into the capture nor does it
 * break it. */
static void a_copy_beside_a_capture_is_made_at_once(void **state)
{
    (void)state;
    bench b;
    bench_open(&b);
    loch_tensor *tensor = bench_tensor(&b, 16, 16, 1), *copy, *again;
    loch_stream *stream = test_context_stream(b.context);
    loch_sim_graph *graph;
    CHECK_OK(loch_stream_sync(stream));
    CHECK_OK(loch_sim_capture_begin(stream));
    CHECK_OK(sim_busy(stream, 1000));
    go(&b, 1);
    CHECK_OK(loch_context_acquire_copy(b.context, tensor, &copy));
    loch_capture_info info = {.size = sizeof info};
    CHECK_OK(loch_stream_query_capture(test_context_stream(b.context), &info));
    assert_false(info.active);
    CHECK_OK(loch_sim_capture_end(stream, &graph));
    loch_sim_graph_destroy(graph);
    CHECK_OK(loch_context_acquire_copy(b.context, tensor, &again));
    assert_ptr_equal(copy, again);
    bench_expect_same(&b, tensor, copy);
    loch_tensor_release(copy);
    loch_tensor_release(again);
    loch_tensor_release(tensor);
    bench_close(&b);
}

/* Work that is queued behind the call that found the copy keeps it, whatever memory it is in. */
static void a_copy_that_goes_waits_for_other_streams_with_any_memory(void **state)
{
    (void)state;
    for (int way = 0; way < 3; way++) {
        const loch_context_options options = {.size = sizeof options, .flags = way == 2 ? LOCH_ALLOC_MOVABLE : 0};
        bench b;
        bench_open_with(&b, way == 1 ? LOCH_ENGINE_DIRECT : LOCH_ENGINE_POOLS, &options);
        loch_tensor *tensor = bench_tensor(&b, 16, 16, 1), *copy;
        go(&b, 1);
        CHECK_OK(loch_context_acquire_copy(b.context, tensor, &copy));
        loch_tensor_release(copy);
        loch_stream *other = sim_stream(b.devices[1], LOCH_STREAM_INDEPENDENT);
        loch_guard guard;
        CHECK_OK(loch_context_begin_stream(b.context, other, &guard));
        CHECK_OK(loch_context_acquire_copy(b.context, tensor, &copy));
        void *address;
        CHECK_OK(loch_buffer_pin(loch_tensor_get_buffer(copy), other, &address));
        CHECK_OK(sim_busy(other, 1000000));
        CHECK_OK(sim_reads(other, address, 1024));
        CHECK_OK(loch_buffer_unpin(loch_tensor_get_buffer(copy), other));
        loch_guard_end(&guard);
        loch_tensor_release(copy);
        loch_tensor_release(tensor);
        assert_int_equal(bench_stats(&b).copies, 0);
        loch_tensor *next = bench_tensor(&b, 16, 16, 5);
        loch_tensor_release(next);
        CHECK_OK(loch_device_sync(b.devices[1]));
        loch_stream_close(other);
        bench_close(&b);
    }
}

/* A function that pushes a pool and pops it leaves its caller's choice as it was. */
static void popping_a_pool_brings_back_what_was_used_before(void **state)
{
    (void)state;
    bench b;
    bench_open(&b);
    const loch_child_options quota = {.size = sizeof quota, .limit_bytes = 4 * TEST_MIB};
    loch_allocator *own = loch_context_get_allocator(b.context), *first;
    CHECK_OK(loch_context_push_pool(b.context, "first", &quota, &first));
    CHECK_OK(loch_context_use_pool(b.context, 0));
    CHECK_OK(loch_context_push_pool(b.context, "second", &quota, NULL));
    CHECK_OK(loch_context_pop_pool(b.context));
    assert_ptr_equal(loch_context_get_allocator(b.context), own);
    CHECK_OK(loch_context_use_pool(b.context, 1));
    assert_ptr_equal(loch_context_get_allocator(b.context), first);
    CHECK_OK(loch_context_push_pool(b.context, "second", &quota, NULL));
    CHECK_OK(loch_context_use_pool(b.context, 0));
    CHECK_OK(loch_context_pop_pool(b.context));
    assert_ptr_equal(loch_context_get_allocator(b.context), first);
    bench_close(&b);
}

/* A copy that was written belongs to its holder: its memory is freed when the holder releases it. */
static void a_copy_that_was_written_is_not_kept(void **state)
{
    (void)state;
    bench b;
    bench_open(&b);
    loch_tensor *tensor = bench_tensor(&b, 16, 16, 1), *copy;
    go(&b, 1);
    CHECK_OK(loch_context_acquire_copy(b.context, tensor, &copy));
    CHECK_OK(loch_tensor_fill(copy, loch_scalar_of(7), test_context_stream(b.context)));
    loch_tensor_release(copy);
    assert_int_equal(bench_stats(&b).copies, 0);
    assert_int_equal(bench_blocks(&b, 1), 0);
    loch_tensor_release(tensor);
    bench_close(&b);
}

/* A buffer pool hands the same buffer to the next caller: it then belongs to that caller. */
static void a_copy_goes_when_its_source_goes_back_to_a_pool_of_buffers(void **state)
{
    (void)state;
    bench b;
    bench_open(&b);
    loch_buffer_pool *pool;
    loch_buffer *buffer, *next;
    loch_tensor *tensor, *copy;
    loch_stream *stream = test_context_stream(b.context);
    CHECK_OK(loch_buffer_pool_create(loch_context_get_allocator(b.context), NULL, &pool));
    CHECK_OK(loch_buffer_pool_acquire(pool, 1024, stream, &buffer));
    CHECK_OK(loch_tensor_create_in(buffer, 0, LOCH_F32, LOCH_SHAPE(256), NULL, &tensor));
    CHECK_OK(loch_tensor_fill(tensor, loch_scalar_of(1), stream));
    go(&b, 1);
    CHECK_OK(loch_context_acquire_copy(b.context, tensor, &copy));
    loch_tensor_release(copy);
    loch_tensor_release(tensor);
    for (size_t i = 0; i < BENCH_SIMS; i++)
        CHECK_OK(loch_device_sync(b.devices[i]));
    const uint64_t version = loch_buffer_get_version(buffer);
    CHECK_OK(loch_buffer_pool_release(pool, buffer, stream));
    assert_int_equal(bench_stats(&b).copies, 0);
    CHECK_OK(loch_buffer_pool_acquire(pool, 1024, stream, &next));
    assert_ptr_equal(next, buffer);
    assert_true(loch_buffer_get_version(next) > version);
    CHECK_OK(loch_buffer_pool_release(pool, next, stream));
    loch_buffer_pool_destroy(pool);
    bench_close(&b);
}

/* Two seats of one device share its memory, whatever each of them may have of it. */
static void copies_on_another_seat_of_the_device_go_before_an_allocation_fails(void **state)
{
    (void)state;
    const loch_engine_device devices[] = {
        {.size = sizeof *devices, .name = "sim:64MiB,backed", .limit_bytes = 48 * TEST_MIB},
        {.size = sizeof *devices, .name = "sim:32MiB,backed,id=1", .limit_bytes = 24 * TEST_MIB},
        {.size = sizeof *devices, .name = "sim:32MiB,backed,id=1", .limit_bytes = 24 * TEST_MIB},
    };
    const loch_engine_options options = {.size = sizeof options, .devices = devices, .devices_count = 3};
    bench b = {.count = 0};
    loch_tensor *tensor, *copy, *large;
    CHECK_OK(loch_engine_open(&options, &b.engine));
    CHECK_OK(loch_context_open(b.engine, NULL, &b.context));
    CHECK_OK(loch_context_create_tensor(b.context, LOCH_U8, LOCH_SHAPE(20 * (int64_t)TEST_MIB), NULL, 0, &tensor));
    go(&b, 2);
    CHECK_OK(loch_context_acquire_copy(b.context, tensor, &copy));
    loch_tensor_release(copy);
    assert_int_equal(bench_stats(&b).copies, 1);
    go(&b, 1);
    CHECK_OK(loch_context_create_tensor(b.context, LOCH_U8, LOCH_SHAPE(20 * (int64_t)TEST_MIB), NULL, 0, &large));
    assert_int_equal(bench_stats(&b).copies, 0);
    loch_tensor_release(large);
    loch_tensor_release(tensor);
    CHECK_OK(loch_context_close(b.context));
    CHECK_OK(loch_engine_close(b.engine, LOCH_WORKERS_DRAIN, NULL, NULL, NULL));
}

static void copies_go_before_a_pool_cannot_be_pushed(void **state)
{
    (void)state;
    bench b;
    bench_open(&b);
    loch_tensor *tensor, *copy;
    CHECK_OK(loch_context_create_tensor(b.context, LOCH_U8, LOCH_SHAPE(16 * (int64_t)TEST_MIB), NULL, 0, &tensor));
    go(&b, 1);
    CHECK_OK(loch_context_acquire_copy(b.context, tensor, &copy));
    loch_tensor_release(copy);
    const loch_child_options range = {.size = sizeof range, .kind = LOCH_CHILD_RANGE, .limit_bytes = 16 * TEST_MIB};
    const loch_child_options quota = {.size = sizeof quota, .minimum_bytes = 16 * TEST_MIB};
    CHECK_OK(loch_context_push_pool(b.context, "range", &range, NULL));
    assert_int_equal(bench_stats(&b).copies, 0);
    CHECK_OK(loch_context_pop_pool(b.context));
    CHECK_OK(loch_context_acquire_copy(b.context, tensor, &copy));
    loch_tensor_release(copy);
    CHECK_OK(loch_context_push_pool(b.context, "quota", &quota, NULL));
    CHECK_OK(loch_context_pop_pool(b.context));
    loch_tensor_release(tensor);
    bench_close(&b);
}

/* --- figures --- */

static void figures_follow_resizes_detaching_and_failures(void **state)
{
    (void)state;
    for (int is_movable = 0; is_movable < 2; is_movable++) {
        const loch_context_options options = {.size = sizeof options, .flags = is_movable ? LOCH_ALLOC_MOVABLE : 0};
        bench b;
        bench_open_with(&b, LOCH_ENGINE_POOLS, &options);
        loch_stream *stream = test_context_stream(b.context);
        loch_tensor *tensor = bench_tensor(&b, 16, 16, 1);
        loch_buffer *buffer = loch_buffer_retain(loch_tensor_get_buffer(tensor));
        loch_allocator *allocator = loch_context_get_allocator(b.context);
        void *block;
        CHECK_OK(loch_buffer_resize(buffer, 4096, LOCH_CONTENTS_KEEP, stream));
        assert_true(bench_stats(&b).used_bytes == 4096 && bench_stats(&b).peak_bytes == 4096);
        CHECK_FAILS_SET(loch_buffer_resize(buffer, 512 * TEST_MIB, LOCH_CONTENTS_KEEP, stream),
                        TEST_SET(LIMIT) | TEST_SET(DEVICE_MEMORY));
        assert_true(bench_stats(&b).used_bytes == 4096 && bench_stats(&b).peak_bytes == 4096);
        CHECK_OK(loch_buffer_resize(buffer, 0, LOCH_CONTENTS_DROP, stream));
        assert_true(bench_stats(&b).used_bytes == 0 && bench_stats(&b).tensors == 1);
        CHECK_OK(loch_buffer_resize(buffer, 2048, LOCH_CONTENTS_DROP, stream));
        assert_true(bench_stats(&b).used_bytes == 2048);
        loch_tensor_release(tensor);
        CHECK_OK(loch_buffer_detach(buffer, &block));
        assert_true(bench_stats(&b).used_bytes == 0 && bench_stats(&b).tensors == 0);
        CHECK_OK(loch_buffer_resize(buffer, 1024, LOCH_CONTENTS_DROP, stream));
        loch_buffer_release(buffer);
        CHECK_OK(loch_free(allocator, block));
        assert_true(bench_stats(&b).used_bytes == 0 && bench_stats(&b).tensors == 0);
        bench_close(&b);
    }
}

/* --- parameters --- */

static void parts_of_nothing_lie_on_every_seat(void **state)
{
    (void)state;
    const int64_t shapes[][2] = {{0, 5}, {5, 0}, {0, 0}};
    for (size_t i = 0; i < 3; i++)
        for (int axis = -2; axis < 2; axis++) {
            bench b;
            bench_open(&b);
            loch_parameter *parameter;
            loch_tensor *from, *found;
            CHECK_OK(
                loch_context_declare(b.context, "p", LOCH_BF16, 2, shapes[i], LOCH_SPREAD_PARTS, axis, 0, &parameter));
            CHECK_OK(loch_tensor_create(LOCH_F32, 2, shapes[i], NULL, &from));
            CHECK_OK(loch_context_load(b.context, parameter, from));
            int64_t sum = 0;
            for (unsigned seat = 0; seat < b.count; seat++) {
                CHECK_OK(loch_parameter_acquire_tensor(parameter, LOCH_SEAT(seat), &found));
                sum += loch_tensor_get_size(found, axis);
                loch_tensor_release(found);
            }
            assert_int_equal(sum, shapes[i][axis < 0 ? axis + 2 : axis]);
            loch_tensor_release(from);
            loch_parameter_release(parameter);
            bench_close(&b);
        }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        TENSOR_TEST(a_copy_is_read_before_a_stream_that_is_first_used_later_writes),
        TENSOR_TEST(a_copy_of_host_memory_is_read_before_the_host_seat_writes),
        TENSOR_TEST(a_copy_comes_behind_the_own_stream_while_another_is_set),
        TENSOR_TEST(a_copy_beside_a_capture_is_made_at_once),
        TENSOR_TEST(a_copy_that_goes_waits_for_other_streams_with_any_memory),
        TENSOR_TEST(popping_a_pool_brings_back_what_was_used_before),
        TENSOR_TEST(a_copy_that_was_written_is_not_kept),
        TENSOR_TEST(a_copy_goes_when_its_source_goes_back_to_a_pool_of_buffers),
        TENSOR_TEST(copies_on_another_seat_of_the_device_go_before_an_allocation_fails),
        TENSOR_TEST(copies_go_before_a_pool_cannot_be_pushed),
        TENSOR_TEST(figures_follow_resizes_detaching_and_failures),
        TENSOR_TEST(parts_of_nothing_lie_on_every_seat),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

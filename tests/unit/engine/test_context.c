/* SPDX-License-Identifier: MIT */
/* Contexts: whose they are, where they work, what their tensors come from. On two simulated devices and the host at
 * once. */
#include "context_fixture.h"
#include <limits.h>

/* --- making and ending --- */

static void tensors_are_rounded_up_as_the_context_says(void **state)
{
    (void)state;
    bench b;
    bench_open_with(&b, LOCH_ENGINE_POOLS, LOCH_OPTIONS(context, .round_bytes = 100 * 1024));
    LOCH_AUTO(tensor) tensor = NULL;
    CHECK_OK(loch_context_create_tensor(b.context, LOCH_F32, LOCH_SHAPE(10, 10), "t", 0, &tensor));
    loch_block found = LOCH_SIZED(loch_block);
    void *address;
    CHECK_OK(loch_tensor_get_address(tensor, &address));
    CHECK_OK(loch_allocator_find(loch_context_get_allocator(b.context), address, &found));
    assert_int_equal(found.requested_bytes, 400);
    assert_true(found.allocated_bytes >= 100 * 1024);
    loch_tensor_clear(&tensor);
    bench_close(&b);
}

static void options_are_read_and_bad_seats_refused(void **state)
{
    (void)state;
    bench b;
    bench_open(&b);
    loch_context *other = TEST_UNTOUCHED;
    const loch_seat two[] = {{1}, {0}}, twice[] = {{1}, {1}}, beyond[] = {{7}};
    loch_context_options options = {.size = sizeof options, .seats = two, .seats_count = 2, .name = "two"};
    CHECK_OK(loch_context_open(b.engine, &options, &other));
    assert_int_equal(loch_context_get_seat(other).number, 1); /* the first one named */
    assert_ptr_equal(loch_context_get_device(other), b.devices[1]);
    assert_ptr_equal(loch_context_get_engine(other), b.engine);
    CHECK_FAILS(loch_context_set_seat(other, LOCH_SEAT(2)), NOT_FOUND);
    CHECK_FAILS(loch_context_set_seat(other, LOCH_SEAT(UINT_MAX)), NOT_FOUND);
    assert_int_equal(loch_context_get_seat(other).number, 1);
    CHECK_OK(loch_context_close(other));
    other = TEST_UNTOUCHED;
    options.seats = twice;
    CHECK_FAILS(loch_context_open(b.engine, &options, &other), INVALID);
    assert_null(other);
    options.seats = beyond;
    options.seats_count = 1;
    CHECK_FAILS(loch_context_open(b.engine, &options, &other), NOT_FOUND);
    options.seats_count = 0;
    CHECK_FAILS(loch_context_open(b.engine, &options, &other), INVALID);
    options = (loch_context_options){.size = sizeof options, .flags = LOCH_ALLOC_NO_RETRY};
    CHECK_FAILS(loch_context_open(b.engine, &options, &other), INVALID);
    options = (loch_context_options){.size = 0};
    CHECK_FAILS(loch_context_open(b.engine, &options, &other), INVALID);
    CHECK_FAILS(loch_context_open(NULL, NULL, &other), INVALID);
    CHECK_FAILS(loch_context_open(b.engine, NULL, NULL), INVALID);
    CHECK_OK(loch_context_close(NULL));
    bench_close(&b);
}

static void an_engine_stays_while_a_context_lives(void **state)
{
    (void)state;
    bench b;
    bench_open(&b);
    CHECK_FAILS(loch_engine_close(b.engine, LOCH_WORKERS_DRAIN, NULL, NULL, NULL), BUSY);
    loch_tensor *tensor = bench_tensor(&b, 2, 2, 1); /* all goes on */
    loch_tensor_release(tensor);
    bench_close(&b);
}

/* The original's deleters held the context's address: a tensor that outlived it wrote into freed memory. */
static void tensors_outlive_their_context_and_engine(void **state)
{
    (void)state;
    bench b;
    bench_open(&b);
    loch_tensor *early = bench_tensor(&b, 4, 4, 1), *late = bench_tensor(&b, 4, 4, 5);
    const loch_child_options range = {.size = sizeof range, .kind = LOCH_CHILD_RANGE, .limit_bytes = TEST_MIB};
    CHECK_OK(loch_context_push_pool(b.context, "gone", &range, NULL));
    loch_tensor *of_child = bench_tensor(&b, 4, 4, 9);
    CHECK_OK(loch_context_close(b.context));
    b.context = NULL;
    loch_tensor_release(early);
    loch_tensor *clone;
    CHECK_OK(loch_tensor_clone(late, NULL, &clone));
    bench_expect_same(&b, late, clone);
    loch_tensor_release(clone);
    loch_engine_leaks leaks = {.size = sizeof leaks};
    CHECK_OK(loch_engine_close(b.engine, LOCH_WORKERS_DRAIN, NULL, NULL, &leaks));
    assert_true(leaks.blocks >= 1);
    float seen[16];
    CHECK_OK(loch_tensor_read(late, seen, sizeof seen, NULL));
    assert_true(seen[0] == 5 && seen[15] == 20);
    CHECK_OK(loch_tensor_read(of_child, seen, sizeof seen, NULL));
    assert_true(seen[0] == 9);
    loch_tensor_release(late);
    loch_tensor_release(of_child);
    bench_expect_order(&b);
    for (size_t i = 0; i < b.count; i++)
        loch_device_release(b.devices[i]);
}

/* --- the thread --- */

#define WANT(condition)                                                                                                \
    if (!(condition)) return (void *)(uintptr_t) #condition

static void *use_from_elsewhere(void *user)
{
    const bench *b = user;
    loch_context *c = b->context;
    loch_tensor *tensor = NULL;
    loch_parameter *parameter = NULL;
    loch_guard guard = {0};
    loch_context_stats stats = {.size = sizeof stats};
    loch_cublas *cublas;
    WANT(loch_context_close(c) == LOCH_E_WRONG_THREAD);
    WANT(strstr(loch_error_get()->sentence, "belongs to the thread that created it"));
    WANT(!loch_context_get_engine(c) && !loch_context_get_device(c) && !test_context_stream(c));
    WANT(!loch_context_get_allocator(c) && loch_context_get_seat(c).number == UINT_MAX);
    WANT(loch_context_get_debug(c) == 0);
    WANT(loch_context_set_seat(c, LOCH_SEAT(1)) == LOCH_E_WRONG_THREAD);
    WANT(loch_context_set_stream(c, NULL) == LOCH_E_WRONG_THREAD);
    WANT(loch_context_require_cublas(c, &cublas) == LOCH_E_WRONG_THREAD);
    WANT(loch_context_begin_seat(c, LOCH_SEAT(1), LOCH_SEAT_LOCKED, &guard) == LOCH_E_WRONG_THREAD && !guard.context);
    WANT(loch_context_begin_stream(c, NULL, &guard) == LOCH_E_WRONG_THREAD);
    WANT(loch_context_begin_debug(c, 3, &guard) == LOCH_E_WRONG_THREAD);
    WANT(loch_context_begin_still(c, &guard) == LOCH_E_WRONG_THREAD);
    WANT(loch_context_push_pool(c, "p", NULL, NULL) == LOCH_E_WRONG_THREAD);
    WANT(loch_context_use_pool(c, 0) == LOCH_E_WRONG_THREAD && loch_context_pop_pool(c) == LOCH_E_WRONG_THREAD);
    WANT(loch_context_create_tensor(c, LOCH_F32, LOCH_SHAPE(1), NULL, 0, &tensor) == LOCH_E_WRONG_THREAD && !tensor);
    WANT(loch_context_create_from(c, LOCH_F32, LOCH_SHAPE(1), "1234", NULL, 0, &tensor) == LOCH_E_WRONG_THREAD);
    WANT(loch_context_acquire_copy(c, NULL, &tensor) == LOCH_E_WRONG_THREAD);
    WANT(loch_context_get_stats(c, &stats) == LOCH_E_WRONG_THREAD);
    WANT(loch_context_declare(c, "p", LOCH_F32, LOCH_SHAPE(1), LOCH_SPREAD_ONE, 0, 0, &parameter) ==
         LOCH_E_WRONG_THREAD);
    WANT(loch_context_load(c, NULL, NULL) == LOCH_E_WRONG_THREAD);
    WANT(loch_context_load_part(c, NULL, 0, 0, NULL) == LOCH_E_WRONG_THREAD);
    return NULL;
}

static void another_thread_is_refused(void **state)
{
    (void)state;
    bench b;
    bench_open(&b);
    bench_elsewhere(use_from_elsewhere, &b);
    assert_int_equal(loch_context_get_seat(b.context).number, 0); /* nothing changed */
    CHECK_OK(loch_engine_lock(b.engine, LOCH_SEAT(1)));           /* nothing is locked */
    CHECK_OK(loch_engine_unlock(b.engine, LOCH_SEAT(1)));
    bench_close(&b);
}

static void a_context_of_null_is_refused(void **state)
{
    (void)state;
    loch_tensor *tensor;
    CHECK_FAILS(loch_context_set_seat(NULL, LOCH_SEAT(0)), INVALID);
    CHECK_FAILS(loch_context_create_tensor(NULL, LOCH_F32, LOCH_SHAPE(1), NULL, 0, &tensor), INVALID);
    CHECK_FAILS(loch_context_create_from(NULL, LOCH_F32, LOCH_SHAPE(1), "1234", NULL, 0, &tensor), INVALID);
    assert_null(test_context_stream(NULL));
    assert_int_equal(loch_context_get_seat(NULL).number, UINT_MAX);
}

static void *work_elsewhere(void *user)
{
    const bench *b = user;
    loch_context *own;
    loch_tensor *tensor;
    WANT(loch_context_open(b->engine, NULL, &own) == LOCH_OK);
    WANT(test_context_stream(own) && test_context_stream(own) != NULL);
    WANT(loch_context_create_tensor(own, LOCH_F32, LOCH_SHAPE(100), NULL, 0, &tensor) == LOCH_OK);
    loch_tensor_release(tensor);
    WANT(loch_context_close(own) == LOCH_OK);
    return NULL;
}

static void every_thread_has_a_context_of_its_own(void **state)
{
    (void)state;
    bench b;
    bench_open(&b);
    bench_elsewhere(work_elsewhere, &b);
    bench_close(&b);
}

/* --- streams --- */

static void each_context_has_streams_of_its_own(void **state)
{
    (void)state;
    bench b;
    bench_open(&b);
    loch_stream_pool_info info = {.size = sizeof info};
    loch_stream_pool *streams = loch_engine_get_streams(b.engine, LOCH_SEAT(0));
    CHECK_OK(loch_stream_pool_get_info(streams, &info));
    assert_int_equal(info.streams_out, 0); /* none before it is used */
    loch_context *other;
    CHECK_OK(loch_context_open(b.engine, NULL, &other));
    loch_stream *mine = test_context_stream(b.context);
    assert_non_null(mine);
    assert_ptr_equal(test_context_stream(b.context), mine);
    assert_ptr_not_equal(test_context_stream(other), mine);
    assert_ptr_not_equal(mine, loch_stream_get_default(b.devices[0]));
    CHECK_OK(loch_context_set_seat(b.context, LOCH_SEAT(1)));
    assert_ptr_equal(loch_stream_get_device(test_context_stream(b.context)), b.devices[1]);
    CHECK_OK(loch_context_set_seat(b.context, LOCH_SEAT(BENCH_TWIN)));
    assert_ptr_not_equal(test_context_stream(b.context), mine);
    CHECK_OK(loch_context_close(other));
    CHECK_OK(loch_context_close(b.context));
    b.context = NULL;
    CHECK_OK(loch_stream_pool_get_info(streams, &info));
    assert_int_equal(info.streams_out, 0);
    bench_close(&b);
}

/* In the original it was the engine's own: every context found itself on the new one, and the handle ended a stream
 * that was not its. */
static void a_stream_is_set_for_one_context_alone(void **state)
{
    (void)state;
    bench b;
    bench_open(&b);
    loch_context *other;
    CHECK_OK(loch_context_open(b.engine, NULL, &other));
    loch_stream *given = sim_stream(b.devices[0], LOCH_STREAM_INDEPENDENT);
    loch_stream *wrong = sim_stream(b.devices[1], LOCH_STREAM_INDEPENDENT);
    loch_stream *own = test_context_stream(b.context), *others = test_context_stream(other);
    CHECK_OK(loch_context_set_stream(b.context, given));
    assert_ptr_equal(test_context_stream(b.context), given);
    assert_ptr_equal(test_context_stream(other), others);
    CHECK_FAILS(loch_context_set_stream(b.context, wrong), INVALID);
    assert_ptr_equal(test_context_stream(b.context), given);
    CHECK_OK(loch_context_set_seat(b.context, LOCH_SEAT(1))); /* each seat has its own */
    assert_ptr_not_equal(test_context_stream(b.context), given);
    CHECK_OK(loch_context_set_seat(b.context, LOCH_SEAT(0)));
    assert_ptr_equal(test_context_stream(b.context), given);
    CHECK_OK(loch_context_set_stream(b.context, NULL));
    assert_ptr_equal(test_context_stream(b.context), own);
    CHECK_OK(loch_context_set_stream(b.context, given));
    CHECK_OK(loch_context_close(other));
    CHECK_OK(loch_context_close(b.context));
    b.context = NULL;
    CHECK_OK(loch_stream_sync(given)); /* the user's, and still there */
    loch_stream_close(given);
    loch_stream_close(wrong);
    bench_close(&b);
}

/* A stream that goes back with work to do is not the next context's before that has ended. */
static void a_busy_stream_is_not_handed_on(void **state)
{
    (void)state;
    bench b;
    bench_open(&b);
    loch_stream *busy = test_context_stream(b.context);
    CHECK_OK(sim_busy(busy, 1000000000));
    CHECK_OK(loch_context_close(b.context));
    CHECK_OK(loch_context_open(b.engine, NULL, &b.context));
    assert_ptr_not_equal(test_context_stream(b.context), busy);
    CHECK_OK(loch_device_sync(b.devices[0]));
    bench_close(&b);
}

static void a_failure_to_get_a_stream_is_told(void **state)
{
    (void)state;
    bench b;
    bench_open(&b);
    loch_tensor *tensor;
    const loch_sim_fault fault = {.size = sizeof fault, .call = "stream_create", .mode = LOCH_SIM_FAULT_FOREVER};
    CHECK_OK(loch_sim_set_fault(b.devices[0], &fault));
    loch_error_clear();
    assert_null(test_context_stream(b.context));
    assert_int_not_equal(loch_error_get()->status, LOCH_OK);
    CHECK_FAILS(loch_context_create_tensor(b.context, LOCH_F32, LOCH_SHAPE(1), NULL, 0, &tensor), DRIVER);
    CHECK_OK(loch_sim_set_fault(b.devices[0], NULL));
    assert_non_null(test_context_stream(b.context));
    bench_close(&b);
}

static void cublas_is_told_missing(void **state)
{
    (void)state;
    bench b;
    bench_open(&b);
    loch_cublas *cublas = TEST_UNTOUCHED;
    CHECK_FAILS(loch_context_require_cublas(b.context, &cublas), UNSUPPORTED);
    assert_null(cublas);
    CHECK_FAILS(loch_context_require_cublas(b.context, NULL), INVALID);
    bench_close(&b);
}

/* --- tensors --- */

static void tensors_come_from_the_current_seat(void **state)
{
    (void)state;
    bench b;
    bench_open(&b);
    loch_tag tag;
    CHECK_OK(loch_tag_create("weights", &tag));
    for (unsigned seat = 0; seat < b.count; seat++) {
        loch_tensor *tensor;
        CHECK_OK(loch_context_set_seat(b.context, LOCH_SEAT(seat)));
        loch_allocator *own = loch_engine_get_allocator(b.engine, LOCH_SEAT(seat));
        assert_ptr_equal(loch_context_get_allocator(b.context), own);
        CHECK_OK(loch_context_create_tensor(b.context, LOCH_F16, LOCH_SHAPE(3, 5), "named", tag, &tensor));
        assert_ptr_equal(loch_tensor_get_device(tensor), b.devices[seat]);
        assert_ptr_equal(loch_buffer_get_allocator(loch_tensor_get_buffer(tensor)), own);
        assert_string_equal(loch_tensor_get_name(tensor), "named");
        loch_stats stats = {.size = sizeof stats};
        CHECK_OK(loch_allocator_get_tag_stats(own, tag, &stats));
        assert_int_equal(stats.blocks, 1);
        loch_tensor_release(tensor);
    }
    loch_tensor *tensor = TEST_UNTOUCHED;
    CHECK_FAILS(loch_context_create_tensor(b.context, LOCH_F16, LOCH_SHAPE(-3), NULL, 0, &tensor), INVALID);
    assert_null(tensor);
    CHECK_FAILS(loch_context_create_tensor(b.context, LOCH_F16, LOCH_SHAPE(3), NULL, 0, NULL), INVALID);
    CHECK_FAILS(loch_context_create_from(b.context, LOCH_F16, LOCH_SHAPE(3), NULL, NULL, 0, &tensor), INVALID);
    assert_int_equal(bench_stats(&b).tensors, 0);
    bench_close(&b);
}

static void flags_and_tag_are_for_all(void **state)
{
    (void)state;
    for (loch_engine_memory memory = LOCH_ENGINE_POOLS; memory <= LOCH_ENGINE_DIRECT; memory++) {
        bench b;
        loch_tag tag;
        CHECK_OK(loch_tag_create("all", &tag));
        const loch_context_options options = {
            .size = sizeof options, .flags = LOCH_ALLOC_MOVABLE | LOCH_ALLOC_ZEROED, .tag = tag};
        bench_open_with(&b, memory, &options);
        loch_tensor *tensor;
        float seen[2000];
        CHECK_OK(loch_context_create_tensor(b.context, LOCH_F32, LOCH_SHAPE(2000), NULL, 0, &tensor));
        /* direct memory does not move, and accepts the flag anyway */
        assert_int_equal(!loch_buffer_is_movable(loch_tensor_get_buffer(tensor)), memory == LOCH_ENGINE_DIRECT);
        CHECK_OK(loch_tensor_read(tensor, seen, sizeof seen, test_context_stream(b.context)));
        for (size_t i = 0; i < 2000; i++)
            assert_true(seen[i] == 0);
        loch_stats stats = {.size = sizeof stats};
        CHECK_OK(loch_allocator_get_tag_stats(loch_context_get_allocator(b.context), tag, &stats));
        assert_int_equal(stats.blocks, 1);
        loch_tensor_release(tensor);
        bench_close(&b);
    }
}

static void contents_come_from_the_host(void **state)
{
    (void)state;
    bench b;
    bench_open(&b);
    for (unsigned seat = 0; seat < b.count; seat++) {
        CHECK_OK(loch_context_set_seat(b.context, LOCH_SEAT(seat)));
        float host[6] = {1, 2, 3, 4, 5, 6}, seen[6];
        loch_tensor *tensor, *empty;
        CHECK_OK(loch_context_create_from(b.context, LOCH_F32, LOCH_SHAPE(2, 3), host, "from", 0, &tensor));
        memset(host, 0, sizeof host); /* was read */
        CHECK_OK(loch_tensor_read(tensor, seen, sizeof seen, test_context_stream(b.context)));
        assert_true(seen[0] == 1 && seen[5] == 6);
        CHECK_OK(loch_context_create_from(b.context, LOCH_F32, LOCH_SHAPE(0, 3), NULL, NULL, 0, &empty));
        loch_tensor_release(tensor);
        loch_tensor_release(empty);
    }
    bench_close(&b);
}

static void figures_count_what_lives(void **state)
{
    (void)state;
    bench b;
    bench_open(&b);
    loch_tensor *one, *two, *view;
    CHECK_OK(loch_context_create_tensor(b.context, LOCH_F32, LOCH_SHAPE(1000), NULL, 0, &one));
    CHECK_OK(loch_context_set_seat(b.context, LOCH_SEAT(1)));
    CHECK_OK(loch_context_create_tensor(b.context, LOCH_F32, LOCH_SHAPE(500), NULL, 0, &two));
    loch_context_stats stats = bench_stats(&b);
    assert_true(stats.tensors == 2 && stats.used_bytes == 6000 && stats.peak_bytes == 6000);
    CHECK_OK(loch_tensor_slice(one, 0, 0, 10, 1, &view)); /* the memory stays */
    loch_tensor_release(one);
    assert_int_equal(bench_stats(&b).used_bytes, 6000);
    loch_tensor_release(view);
    stats = bench_stats(&b);
    assert_true(stats.tensors == 1 && stats.used_bytes == 2000 && stats.peak_bytes == 6000);
    loch_tensor_release(two);
    loch_context_stats shorter = {.size = offsetof(loch_context_stats, used_bytes)};
    shorter.used_bytes = 77;
    CHECK_OK(loch_context_get_stats(b.context, &shorter));
    assert_int_equal(shorter.used_bytes, 77); /* an older and shorter struct */
    CHECK_FAILS(loch_context_get_stats(b.context, NULL), INVALID);
    bench_close(&b);
}

/* --- the stack of pools --- */

static void pools_are_pushed_and_popped_as_a_stack(void **state)
{
    (void)state;
    bench b;
    bench_open(&b);
    loch_allocator *own = loch_context_get_allocator(b.context), *first, *second;
    const loch_child_options quota = {.size = sizeof quota, .minimum_bytes = TEST_MIB, .limit_bytes = 8 * TEST_MIB};
    const loch_child_options range = {.size = sizeof range, .kind = LOCH_CHILD_RANGE, .limit_bytes = TEST_MIB};
    CHECK_FAILS(loch_context_pop_pool(b.context), NOT_FOUND);
    CHECK_OK(loch_context_push_pool(b.context, "first", &quota, &first));
    assert_ptr_equal(loch_context_get_allocator(b.context), first);
    assert_ptr_equal(loch_pool_get_parent(first), own);
    CHECK_OK(loch_context_push_pool(b.context, "second", &range, &second));
    assert_ptr_equal(loch_context_get_allocator(b.context), second);
    assert_ptr_equal(loch_pool_get_parent(second), own); /* not inside the first: kinds go together as one likes */
    loch_tensor *inside = bench_tensor(&b, 4, 4, 1), *outside, *beyond;
    assert_ptr_equal(loch_buffer_get_allocator(loch_tensor_get_buffer(inside)), second);
    CHECK_OK(loch_context_use_pool(b.context, 0));
    assert_ptr_equal(loch_context_get_allocator(b.context), own);
    outside = bench_tensor(&b, 4, 4, 1);
    assert_ptr_equal(loch_buffer_get_allocator(loch_tensor_get_buffer(outside)), own);
    CHECK_OK(loch_context_use_pool(b.context, 1));
    assert_ptr_equal(loch_context_get_allocator(b.context), second);
    CHECK_FAILS_SET(loch_context_create_tensor(b.context, LOCH_U8, LOCH_SHAPE(2 * (int64_t)TEST_MIB), NULL, 0, &beyond),
                    TEST_SET(LIMIT) | TEST_SET(DEVICE_MEMORY));
    CHECK_OK(loch_context_set_seat(b.context, LOCH_SEAT(1))); /* each seat has its own stack */
    assert_ptr_equal(loch_context_get_allocator(b.context), loch_engine_get_allocator(b.engine, LOCH_SEAT(1)));
    CHECK_FAILS(loch_context_pop_pool(b.context), NOT_FOUND);
    CHECK_OK(loch_context_set_seat(b.context, LOCH_SEAT(0)));
    CHECK_OK(loch_context_pop_pool(b.context));
    assert_ptr_equal(loch_context_get_allocator(b.context), first);
    bench_expect_same(&b, inside, outside); /* blocks of a popped pool stay */
    CHECK_OK(loch_context_pop_pool(b.context));
    assert_ptr_equal(loch_context_get_allocator(b.context), own);
    CHECK_FAILS(loch_context_pop_pool(b.context), NOT_FOUND);
    CHECK_FAILS(loch_context_push_pool(b.context, "bad", &(loch_child_options){0}, NULL), INVALID);
    assert_ptr_equal(loch_context_get_allocator(b.context), own);
    loch_tensor_release(inside);
    loch_tensor_release(outside);
    CHECK_OK(loch_context_push_pool(b.context, "left", &quota, NULL)); /* the end of the context pops it */
    bench_close(&b);
}

static void with_direct_memory_a_pool_is_a_limit(void **state)
{
    (void)state;
    bench b;
    bench_open_with(&b, LOCH_ENGINE_DIRECT, NULL);
    loch_allocator *own = loch_context_get_allocator(b.context), *child;
    const loch_child_options limited = {.size = sizeof limited, .limit_bytes = TEST_MIB};
    CHECK_OK(loch_context_push_pool(b.context, "limited", &limited, &child));
    loch_tensor *tensor, *beyond;
    CHECK_OK(loch_context_create_tensor(b.context, LOCH_U8, LOCH_SHAPE(TEST_MIB), NULL, 0, &tensor));
    CHECK_FAILS(loch_context_create_tensor(b.context, LOCH_U8, LOCH_SHAPE(1), NULL, 0, &beyond), LIMIT);
    CHECK_OK(loch_context_pop_pool(b.context));
    CHECK_OK(loch_context_create_tensor(b.context, LOCH_U8, LOCH_SHAPE(1), NULL, 0, &beyond));
    CHECK_OK(loch_context_push_pool(b.context, "unlimited", NULL, &child));
    assert_ptr_equal(child, own);
    loch_tensor_release(tensor);
    loch_tensor_release(beyond);
    bench_close(&b);
}

static void compacting_moves_tensors_of_the_current_pool(void **state)
{
    (void)state;
    bench b;
    const loch_context_options options = {.size = sizeof options, .flags = LOCH_ALLOC_MOVABLE};
    bench_open_with(&b, LOCH_ENGINE_POOLS, &options);
    enum { COUNT = 10 };
    loch_tensor *tensors[COUNT];
    for (int i = 0; i < COUNT; i++) {
        CHECK_OK(
            loch_context_create_tensor(b.context, LOCH_U8, LOCH_SHAPE(2 * (int64_t)TEST_MIB), NULL, 0, &tensors[i]));
        CHECK_OK(loch_tensor_fill(tensors[i], loch_scalar_of(i + 1), test_context_stream(b.context)));
    }
    for (int i = 0; i < COUNT; i += 2)
        loch_tensor_clear(&tensors[i]);
    loch_compact_report report = {.size = sizeof report};
    CHECK_OK(test_context_compact(b.context, &report));
    for (int i = 1; i < COUNT; i += 2) {
        loch_scalar seen;
        CHECK_OK(loch_tensor_read_item(tensors[i], LOCH_SHAPE(12345), test_context_stream(b.context), &seen));
        assert_int_equal(seen.value.u, i + 1);
        loch_tensor_release(tensors[i]);
    }
    bench_close(&b);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        TENSOR_TEST(tensors_are_rounded_up_as_the_context_says),
        TENSOR_TEST(options_are_read_and_bad_seats_refused),
        TENSOR_TEST(an_engine_stays_while_a_context_lives),
        TENSOR_TEST(tensors_outlive_their_context_and_engine),
        TENSOR_TEST(another_thread_is_refused),
        TENSOR_TEST(a_context_of_null_is_refused),
        TENSOR_TEST(every_thread_has_a_context_of_its_own),
        TENSOR_TEST(each_context_has_streams_of_its_own),
        TENSOR_TEST(a_stream_is_set_for_one_context_alone),
        TENSOR_TEST(a_busy_stream_is_not_handed_on),
        TENSOR_TEST(a_failure_to_get_a_stream_is_told),
        TENSOR_TEST(cublas_is_told_missing),
        TENSOR_TEST(tensors_come_from_the_current_seat),
        TENSOR_TEST(flags_and_tag_are_for_all),
        TENSOR_TEST(contents_come_from_the_host),
        TENSOR_TEST(figures_count_what_lives),
        TENSOR_TEST(pools_are_pushed_and_popped_as_a_stack),
        TENSOR_TEST(with_direct_memory_a_pool_is_a_limit),
        TENSOR_TEST(compacting_moves_tensors_of_the_current_pool),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

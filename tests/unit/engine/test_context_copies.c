/* SPDX-License-Identifier: MIT */
/* Kept copies: found again by what a tensor shows, and gone soon after what they were made of. */
#include "context_fixture.h"
#include "tensor/tensor.h"

static loch_tensor *copy_of(const bench *b, loch_tensor *tensor)
{
    loch_tensor *copy;
    CHECK_OK(loch_context_acquire_copy(b->context, tensor, &copy));
    assert_ptr_equal(loch_tensor_get_device(copy), loch_context_get_device(b->context));
    return copy;
}

static void go(const bench *b, unsigned seat)
{
    CHECK_OK(loch_context_set_seat(b->context, LOCH_SEAT(seat)));
}

/* The copy of a tensor is right, and found again. It is let go, and stays kept. */
static void expect_copy(const bench *b, loch_tensor *tensor)
{
    loch_tensor *copy = copy_of(b, tensor), *again = copy_of(b, tensor);
    assert_ptr_equal(copy, again);
    bench_expect_same(b, tensor, copy);
    assert_true(loch_tensor_is_contiguous(copy));
    loch_tensor_release(copy);
    loch_tensor_release(again);
}

static void sleep_and_wake(const bench *b, unsigned seat, loch_sleep_contents contents)
{
    const loch_sleep_options options = {.size = sizeof options, .contents = contents};
    loch_allocator *pool = loch_engine_get_allocator(b->engine, LOCH_SEAT(seat));
    CHECK_OK(loch_pool_sleep(pool, &options, NULL));
    CHECK_OK(loch_pool_wake(pool, NULL));
}

/* What a sleep has dropped is not handed out, neither in place of the source nor as a copy. */
static void copies_do_not_outlive_contents_that_a_sleep_dropped(void **state)
{
    (void)state;
    bench b;
    bench_open(&b);
    loch_tensor *tensor = bench_tensor(&b, 32, 32, 1);
    go(&b, 1);
    loch_tensor *first = copy_of(&b, tensor), *second;
    sleep_and_wake(&b, 0, LOCH_SLEEP_HOST); /* contents are as before, and so is the copy */
    second = copy_of(&b, tensor);
    assert_ptr_equal(first, second);
    loch_tensor_release(second);
    sleep_and_wake(&b, 0, LOCH_SLEEP_DROP); /* of the source */
    second = copy_of(&b, tensor);
    assert_ptr_not_equal(first, second);
    assert_int_equal(bench_stats(&b).copies, 1);
    loch_tensor_release(first);
    sleep_and_wake(&b, 1, LOCH_SLEEP_DROP); /* of the copy */
    assert_int_equal(bench_stats(&b).copies, 0);
    first = copy_of(&b, tensor);
    assert_ptr_not_equal(first, second);
    bench_expect_same(&b, tensor, first);
    loch_tensor_release(second);
    loch_tensor_release(first);
    loch_tensor_release(tensor);
    bench_close(&b);
}

static void a_tensor_that_is_there_is_itself(void **state)
{
    (void)state;
    bench b;
    bench_open(&b);
    for (unsigned seat = 0; seat < b.count; seat++) {
        go(&b, seat);
        loch_tensor *tensor = bench_tensor(&b, 4, 4, 1), *same = copy_of(&b, tensor);
        assert_ptr_equal(same, tensor);
        assert_int_equal(atomic_load(&tensor->references), 2);
        loch_tensor_release(same);
        loch_tensor_release(tensor);
    }
    go(&b, 0);
    loch_tensor *tensor = bench_tensor(&b, 4, 4, 1);
    go(&b, BENCH_TWIN); /* another seat of the same device */
    loch_tensor *same = copy_of(&b, tensor);
    assert_ptr_equal(same, tensor);
    loch_tensor_release(same);
    loch_tensor_release(tensor);
    static float host[16];
    go(&b, BENCH_HOST);
    CHECK_OK(loch_tensor_wrap(LOCH_F32, LOCH_SHAPE(4, 4), host, NULL, &tensor));
    CHECK_OK(loch_context_acquire_copy(b.context, tensor, &same));
    assert_ptr_equal(same, tensor);
    loch_tensor_release(same);
    loch_tensor_release(tensor);
    assert_int_equal(bench_stats(&b).copies, 0);
    CHECK_FAILS(loch_context_acquire_copy(b.context, NULL, &same), INVALID);
    bench_close(&b);
}

static void a_copy_is_made_between_every_pair_of_devices(void **state)
{
    (void)state;
    for (loch_engine_memory memory = LOCH_ENGINE_POOLS; memory <= LOCH_ENGINE_DIRECT; memory++) {
        bench b;
        bench_open_with(&b, memory, NULL);
        for (unsigned from = 0; from < b.count; from++) {
            go(&b, from);
            loch_tensor *tensor = bench_tensor(&b, 5, 7, (float)from);
            size_t copies = 0;
            for (unsigned to = 0; to < b.count; to++) {
                if (b.devices[to] == b.devices[from]) continue;
                go(&b, to);
                expect_copy(&b, tensor);
                const loch_context_stats stats = bench_stats(&b);
                assert_int_equal(stats.copies, ++copies);
                assert_int_equal(stats.copy_bytes, copies * 140);
                assert_true(stats.tensors == 1 && stats.used_bytes == 140); /* copies are not in these */
            }
            loch_tensor_release(tensor);
        }
        bench_close(&b);
    }
}

/* In the original all views had the number 0, so the second one got the first one's copy; what was not contiguous was
 * copied flat; and the driver was given the engine's numbers of devices. */
static void views_of_one_buffer_are_not_mixed_up(void **state)
{
    (void)state;
    bench b;
    const loch_seat turned[] = {{1}, {BENCH_HOST}, {0}}; /* numbers of seats are no numbers of devices */
    const loch_context_options options = {.size = sizeof options, .seats = turned, .seats_count = 3};
    bench_open_with(&b, LOCH_ENGINE_POOLS, &options);
    loch_tensor *all = bench_tensor(&b, 6, 8, 1), *part, *views[10];
    size_t count = 0;
    const int64_t as_rows[] = {3, 6, 8};
    CHECK_OK(loch_tensor_index(all, 0, 0, &views[count++]));
    CHECK_OK(loch_tensor_index(all, 0, 1, &views[count++]));            /* same shape, other place */
    CHECK_OK(loch_tensor_index(all, 1, 2, &views[count++]));            /* a column */
    CHECK_OK(loch_tensor_transpose(all, 0, 1, &views[count++]));        /* turned */
    CHECK_OK(loch_tensor_view(all, LOCH_SHAPE(8, 6), &views[count++])); /* same shape as that, other strides */
    CHECK_OK(loch_tensor_slice(all, 1, LOCH_OPEN, LOCH_OPEN, -2, &views[count++]));
    CHECK_OK(loch_tensor_expand(all, 3, as_rows, &views[count++])); /* elements that share a place */
    CHECK_OK(loch_tensor_view_as(all, LOCH_I32, &views[count++]));  /* another type */
    CHECK_OK(loch_tensor_slice(all, 0, 3, 3, 1, &views[count++]));  /* nothing */
    CHECK_OK(loch_tensor_index(views[0], 0, 5, &views[count++]));   /* a scalar */
    loch_buffer *slice; /* the same bytes through a part of the buffer are the same thing */
    CHECK_OK(loch_buffer_slice(loch_tensor_get_buffer(all), 8 * sizeof(float), 8 * sizeof(float), &slice));
    CHECK_OK(loch_tensor_create_in(slice, 0, LOCH_F32, LOCH_SHAPE(8), NULL, &part));
    loch_buffer_release(slice);
    for (unsigned i = 1; i < 3; i++) {
        go(&b, turned[i].number);
        for (size_t k = 0; k < count; k++)
            expect_copy(&b, views[k]);
        expect_copy(&b, all);
        assert_int_equal(bench_stats(&b).copies, i * (count + 1));
        loch_tensor *of_view = copy_of(&b, views[1]), *of_part = copy_of(&b, part);
        assert_ptr_equal(of_view, of_part);
        loch_tensor_release(of_view);
        loch_tensor_release(of_part);
    }
    for (size_t k = 0; k < count; k++) /* the buffer lives, and so do its copies: a new view finds them */
        loch_tensor_release(views[k]);
    assert_int_equal(bench_stats(&b).copies, 2 * (count + 1));
    loch_tensor_release(part);
    loch_tensor_release(all);
    assert_int_equal(bench_stats(&b).copies, 0);
    bench_close(&b);
}

/* --- what makes them stale --- */

static void a_write_makes_a_new_copy(void **state)
{
    (void)state;
    bench b;
    bench_open(&b);
    loch_tensor *tensor = bench_tensor(&b, 4, 4, 1);
    loch_stream *stream = test_context_stream(b.context);
    go(&b, 1);
    loch_tensor *before = copy_of(&b, tensor), *after;
    CHECK_OK(loch_tensor_fill(tensor, loch_scalar_of(9), stream)); /* queued on the source's own stream */
    assert_int_equal(bench_stats(&b).copies, 0);
    after = copy_of(&b, tensor);
    assert_ptr_not_equal(before, after);
    bench_expect_same(&b, tensor, after);
    loch_tensor_release(after);
    loch_buffer_touch(loch_tensor_get_buffer(tensor)); /* as after a kernel */
    loch_tensor *touched = copy_of(&b, tensor);
    assert_ptr_not_equal(after, NULL);
    bench_expect_same(&b, tensor, touched);
    loch_tensor_release(touched);
    loch_scalar old;
    CHECK_OK(loch_tensor_read_item(before, LOCH_SHAPE(0, 0), NULL, &old)); /* the holder of an old copy keeps it */
    assert_true(old.value.f == 1);
    loch_tensor_release(before);
    loch_tensor_release(tensor);
    bench_close(&b);
}

/* The copy that was handed out was written: it is not a copy of the source any more. */
static void a_copy_that_was_written_is_not_handed_out(void **state)
{
    (void)state;
    bench b;
    bench_open(&b);
    loch_tensor *tensor = bench_tensor(&b, 4, 4, 1);
    go(&b, 1);
    loch_tensor *copy = copy_of(&b, tensor);
    CHECK_OK(loch_tensor_fill(copy, loch_scalar_of(3), test_context_stream(b.context)));
    loch_tensor *again = copy_of(&b, tensor);
    assert_ptr_not_equal(copy, again);
    bench_expect_same(&b, tensor, again);
    assert_int_equal(bench_stats(&b).copies, 1);
    loch_tensor_release(copy);
    loch_tensor_release(again);
    loch_tensor_release(tensor);
    bench_close(&b);
}

/* Its memory is free with the next call that looks, whichever that is. */
static void a_copy_goes_soon_after_its_source(void **state)
{
    (void)state;
    bench b;
    bench_open(&b);
    for (int way = 0; way < 2; way++) {
        go(&b, 0);
        loch_tensor *tensor = bench_tensor(&b, 16, 16, 1), *other = bench_tensor(&b, 2, 2, 1);
        go(&b, 1);
        loch_tensor_release(copy_of(&b, tensor));
        assert_int_equal(bench_blocks(&b, 1), 1);
        loch_tensor_release(tensor);
        if (way == 0) assert_int_equal(bench_stats(&b).copies, 0);
        if (way == 1) loch_tensor_release(copy_of(&b, other));
        assert_int_equal(bench_blocks(&b, 1), way == 1);
        loch_tensor_release(other);
        assert_int_equal(bench_stats(&b).copies, 0);
    }
    bench_close(&b);
}

static void *release_elsewhere(void *user)
{
    loch_tensor_release(user);
    return NULL;
}

static void a_source_may_end_in_another_thread_and_after_the_context(void **state)
{
    (void)state;
    bench b;
    bench_open(&b);
    loch_tensor *one = bench_tensor(&b, 4, 4, 1), *two = bench_tensor(&b, 4, 4, 1);
    go(&b, 1);
    loch_tensor_release(copy_of(&b, one));
    loch_tensor_release(copy_of(&b, two));
    bench_elsewhere(release_elsewhere, one);
    assert_int_equal(bench_stats(&b).copies, 1);
    CHECK_OK(loch_context_close(b.context));
    b.context = NULL;
    assert_int_equal(bench_blocks(&b, 1), 0);
    CHECK_OK(loch_tensor_fill(two, loch_scalar_of(1), NULL));
    loch_tensor_release(two);
    bench_close(&b);
}

static void contexts_have_copies_of_their_own(void **state)
{
    (void)state;
    bench b;
    bench_open(&b);
    loch_context *other;
    CHECK_OK(loch_context_open(b.engine, NULL, &other));
    loch_tensor *tensor = bench_tensor(&b, 4, 4, 1), *theirs;
    go(&b, 1);
    CHECK_OK(loch_context_set_seat(other, LOCH_SEAT(1)));
    loch_tensor *mine = copy_of(&b, tensor);
    CHECK_OK(loch_context_acquire_copy(other, tensor, &theirs));
    assert_ptr_not_equal(mine, theirs);
    loch_tensor_release(mine);
    loch_tensor_release(theirs);
    loch_tensor_release(tensor); /* the copies of both contexts end */
    assert_int_equal(bench_stats(&b).copies, 0);
    loch_context_stats stats = {.size = sizeof stats};
    CHECK_OK(loch_context_get_stats(other, &stats));
    assert_int_equal(stats.copies, 0);
    CHECK_OK(loch_context_close(other));
    bench_close(&b);
}

static void many_copies_are_found_again(void **state)
{
    (void)state;
    bench b;
    bench_open(&b);
    enum { COUNT = 300 };
    loch_tensor *all = bench_tensor(&b, COUNT, 2, 1), *rows[COUNT], *copies[COUNT];
    go(&b, 1);
    for (int i = 0; i < COUNT; i++) {
        CHECK_OK(loch_tensor_index(all, 0, i, &rows[i]));
        copies[i] = copy_of(&b, rows[i]);
    }
    assert_int_equal(bench_stats(&b).copies, COUNT);
    for (int i = 0; i < COUNT; i++) {
        loch_tensor *again = copy_of(&b, rows[i]);
        assert_ptr_equal(again, copies[i]);
        loch_scalar value;
        CHECK_OK(loch_tensor_read_item(again, LOCH_SHAPE(0), test_context_stream(b.context), &value));
        assert_true(value.value.f == 1 + 2 * i);
        loch_tensor_release(again);
        loch_tensor_release(copies[i]);
        loch_tensor_release(rows[i]);
    }
    loch_tensor_release(all);
    assert_int_equal(bench_stats(&b).copies, 0);
    assert_int_equal(bench_blocks(&b, 1), 0);
    bench_close(&b);
}

/* --- order --- */

/* Address of a tensor that does not move. */
static void *address_of(const loch_tensor *tensor)
{
    void *address;
    CHECK_OK(loch_tensor_get_address(tensor, &address));
    return address;
}

/* The checkers look: a write that is queued on the source's stream, the copy, and a read on the target's. */
static void a_copy_comes_behind_work_on_its_source(void **state)
{
    (void)state;
    bench b;
    bench_open(&b);
    loch_tensor *tensor = bench_tensor(&b, 16, 16, 1);
    CHECK_OK(sim_busy(test_context_stream(b.context), 1000000));
    CHECK_OK(sim_writes(test_context_stream(b.context), address_of(tensor), 1024));
    loch_buffer_touch(loch_tensor_get_buffer(tensor));
    go(&b, 1);
    loch_tensor *copy = copy_of(&b, tensor);
    CHECK_OK(sim_reads(test_context_stream(b.context), address_of(copy), 1024));
    loch_tensor_release(copy);
    loch_tensor_release(tensor);
    CHECK_OK(loch_device_sync(b.devices[0]));
    CHECK_OK(loch_device_sync(b.devices[1]));
    bench_close(&b);
}

/* A copy that is under way is found by another stream, which waits for it, and keeps it for its own work. */
static void another_stream_waits_for_the_copy(void **state)
{
    (void)state;
    bench b;
    bench_open(&b);
    loch_tensor *tensor = bench_tensor(&b, 16, 16, 1);
    go(&b, 1);
    CHECK_OK(sim_busy(test_context_stream(b.context), 1000000));
    loch_tensor *copy = copy_of(&b, tensor);
    loch_stream *other = sim_stream(b.devices[1], LOCH_STREAM_INDEPENDENT);
    loch_guard guard;
    CHECK_OK(loch_context_begin_stream(b.context, other, &guard));
    loch_tensor *again = copy_of(&b, tensor);
    assert_ptr_equal(again, copy);
    CHECK_OK(sim_reads(other, address_of(again), 1024));
    CHECK_OK(sim_busy(other, 1000000));
    CHECK_OK(sim_reads(other, address_of(again), 1024));
    loch_guard_end(&guard);
    loch_tensor_release(copy);
    loch_tensor_release(again);
    loch_tensor_release(tensor);
    assert_int_equal(bench_stats(&b).copies, 0);
    loch_tensor *next = bench_tensor(&b, 16, 16, 1); /* its memory is not written before that work has ended */
    loch_tensor_release(next);
    CHECK_OK(loch_device_sync(b.devices[1]));
    loch_stream_close(other);
    bench_close(&b);
}

/* What is captured runs later: the copy is not kept, and one that is kept is taken when it has ended. */
static void copies_of_a_capture_are_not_kept(void **state)
{
    (void)state;
    bench b;
    bench_open(&b);
    loch_tensor *tensor = bench_tensor(&b, 16, 16, 1), *kept = bench_tensor(&b, 16, 16, 2);
    CHECK_OK(loch_stream_sync(test_context_stream(b.context)));
    const loch_seat one[] = {{1}};
    const loch_context_options options = {.size = sizeof options, .seats = one, .seats_count = 1};
    loch_context *other; /* that has nothing under way on the source's device */
    CHECK_OK(loch_context_open(b.engine, &options, &other));
    loch_tensor *before, *again, *captured;
    CHECK_OK(loch_context_acquire_copy(other, kept, &before));
    CHECK_OK(loch_device_sync(b.devices[1]));
    loch_stream *stream = test_context_stream(other);
    loch_sim_graph *graph;
    CHECK_OK(loch_sim_capture_begin(stream));
    CHECK_OK(loch_context_acquire_copy(other, kept, &again));
    assert_ptr_equal(before, again);
    CHECK_OK(loch_context_acquire_copy(other, tensor, &captured));
    CHECK_OK(loch_sim_capture_end(stream, &graph));
    loch_context_stats stats = {.size = sizeof stats};
    CHECK_OK(loch_context_get_stats(other, &stats));
    assert_int_equal(stats.copies, 1);
    CHECK_OK(loch_sim_graph_launch(graph, stream));
    CHECK_OK(loch_stream_sync(stream));
    bench_expect_same(&b, tensor, captured);
    loch_sim_graph_destroy(graph);
    loch_tensor_release(before);
    loch_tensor_release(again);
    loch_tensor_release(captured);
    loch_tensor_release(kept);
    loch_tensor_release(tensor);
    CHECK_OK(loch_context_close(other));
    bench_close(&b);
}

/* Writes every free part of the current seat's memory, in the order of its stream. */
static void write_all_that_is_free(const bench *b)
{
    enum { MOST = 64 };
    loch_tensor *tensors[MOST];
    size_t count = 0;
    while (count < MOST && loch_context_create_tensor(b->context, LOCH_U8, LOCH_SHAPE(TEST_MIB / 2), NULL, 0,
                                                      &tensors[count]) == LOCH_OK) {
        CHECK_OK(loch_tensor_fill(tensors[count], loch_scalar_of(99), test_context_stream(b->context)));
        count++;
    }
    while (count)
        loch_tensor_release(tensors[--count]);
}

/* Memory that moves, and a stream of another device that its pool cannot see: a copy is ordered after the last move,
 * and the next move after the copy. */
static void a_copy_and_moves_of_its_source_are_in_order(void **state)
{
    (void)state;
    bench b;
    const loch_context_options movable = {.size = sizeof movable, .flags = LOCH_ALLOC_MOVABLE};
    bench_open_with(&b, LOCH_ENGINE_POOLS, &movable);
    const loch_seat one[] = {{1}};
    const loch_context_options options = {.size = sizeof options, .seats = one, .seats_count = 1};
    loch_context *other; /* whose streams the first one does not order */
    CHECK_OK(loch_context_open(b.engine, &options, &other));
    enum { COUNT = 10 };
    loch_tensor *tensors[COUNT], *copy;
    for (int i = 0; i < COUNT; i++) {
        CHECK_OK(loch_context_create_tensor(b.context, LOCH_U8, LOCH_SHAPE(2 * (int64_t)TEST_MIB - 100000), NULL, 0,
                                            &tensors[i]));
        CHECK_OK(loch_tensor_fill(tensors[i], loch_scalar_of(i + 1), test_context_stream(b.context)));
    }
    CHECK_OK(loch_stream_sync(test_context_stream(b.context)));
    size_t moves = 0;
    for (int round = 0; round < 3; round++) {
        loch_tensor_clear(&tensors[2 * round]);
        loch_compact_report report = {.size = sizeof report};
        CHECK_OK(sim_busy(test_context_stream(b.context), 1000000));
        CHECK_OK(test_context_compact(b.context, &report)); /* under way */
        moves += report.moves;
        write_all_that_is_free(&b);
        CHECK_OK(sim_busy(test_context_stream(other), 3000000));
        for (int i = COUNT - 3; i < COUNT; i++) {                  /* the last ones move first */
            loch_buffer_touch(loch_tensor_get_buffer(tensors[i])); /* copied anew each time */
            CHECK_OK(loch_context_acquire_copy(other, tensors[i], &copy));
            loch_tensor_release(copy);
        }
    }
    assert_true(moves > 0);
    CHECK_OK(loch_context_acquire_copy(other, tensors[COUNT - 1], &copy));
    loch_scalar seen;
    CHECK_OK(loch_tensor_read_item(copy, LOCH_SHAPE(1000), test_context_stream(other), &seen));
    assert_int_equal(seen.value.u, COUNT);
    loch_tensor_release(copy);
    for (int i = 0; i < COUNT; i++)
        loch_tensor_release(tensors[i]);
    CHECK_OK(loch_context_close(other));
    for (size_t i = 0; i < BENCH_SIMS; i++)
        CHECK_OK(loch_device_sync(b.devices[i]));
    bench_close(&b);
}

/* --- room --- */

static void copies_go_before_an_allocation_fails(void **state)
{
    (void)state;
    bench b;
    bench_open(&b);
    loch_tensor *source, *large;
    CHECK_OK(loch_context_create_tensor(b.context, LOCH_U8, LOCH_SHAPE(12 * (int64_t)TEST_MIB), NULL, 0, &source));
    CHECK_OK(loch_tensor_fill(source, loch_scalar_of(1), test_context_stream(b.context)));
    go(&b, 1);
    loch_tensor_release(copy_of(&b, source));
    assert_int_equal(bench_stats(&b).copies, 1);
    CHECK_OK(loch_context_create_tensor(b.context, LOCH_U8, LOCH_SHAPE(20 * (int64_t)TEST_MIB), NULL, 0, &large));
    assert_int_equal(bench_stats(&b).copies, 0);
    loch_tensor *copy;
    CHECK_FAILS_SET(loch_context_acquire_copy(b.context, source, &copy), TEST_SET(LIMIT) | TEST_SET(DEVICE_MEMORY));
    assert_null(copy);
    assert_int_equal(bench_stats(&b).copies, 0);
    loch_tensor_release(large);
    loch_tensor_release(source);
    bench_close(&b);
}

/* They stay when a pool of the stack goes, so they come from the seat's own. */
static void copies_come_from_the_seats_own_pool(void **state)
{
    (void)state;
    bench b;
    bench_open(&b);
    loch_tensor *tensor = bench_tensor(&b, 4, 4, 1);
    go(&b, 1);
    const loch_child_options range = {.size = sizeof range, .kind = LOCH_CHILD_RANGE, .limit_bytes = TEST_MIB};
    CHECK_OK(loch_context_push_pool(b.context, "range", &range, NULL));
    loch_tensor *copy = copy_of(&b, tensor);
    assert_ptr_equal(loch_buffer_get_allocator(loch_tensor_get_buffer(copy)),
                     loch_engine_get_allocator(b.engine, LOCH_SEAT(1)));
    CHECK_OK(loch_context_pop_pool(b.context));
    loch_tensor_release(copy);
    loch_tensor_release(tensor);
    bench_close(&b);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        TENSOR_TEST(a_tensor_that_is_there_is_itself),
        TENSOR_TEST(copies_do_not_outlive_contents_that_a_sleep_dropped),
        TENSOR_TEST(a_copy_is_made_between_every_pair_of_devices),
        TENSOR_TEST(views_of_one_buffer_are_not_mixed_up),
        TENSOR_TEST(a_write_makes_a_new_copy),
        TENSOR_TEST(a_copy_that_was_written_is_not_handed_out),
        TENSOR_TEST(a_copy_goes_soon_after_its_source),
        TENSOR_TEST(a_source_may_end_in_another_thread_and_after_the_context),
        TENSOR_TEST(contexts_have_copies_of_their_own),
        TENSOR_TEST(many_copies_are_found_again),
        TENSOR_TEST(a_copy_comes_behind_work_on_its_source),
        TENSOR_TEST(another_stream_waits_for_the_copy),
        TENSOR_TEST(copies_of_a_capture_are_not_kept),
        TENSOR_TEST(a_copy_and_moves_of_its_source_are_in_order),
        TENSOR_TEST(copies_go_before_an_allocation_fails),
        TENSOR_TEST(copies_come_from_the_seats_own_pool),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

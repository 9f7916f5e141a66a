/* SPDX-License-Identifier: MIT */
/* Functions that run when a buffer's memory goes: on owned memory and on memory from outside, in reverse order of
 * addition, once, with the address and the bytes of then; parts, resizes, moves, pools of buffers, work that is waited
 * for; threads and failing host memory. */
#include "failing_heap.h"
#include "tensor_fixture.h"
#include <loch/moving.h>
#include <loch/scratch.h>
#include <pthread.h>

#define CALLS 8

/* What ran, in its order. */
typedef struct diary {
    size_t count;
    int who[CALLS];
    void *address;
    size_t bytes;
    loch_allocator *allocator; /* may be NULL */
    uint64_t live;             /* its blocks when the last one ran */
} diary;

typedef struct writer {
    diary *book;
    int number;
} writer;

static void write_down(void *address, size_t bytes, void *user)
{
    const writer *by = user;
    diary *book = by->book;
    assert_true(book->count < CALLS);
    book->who[book->count++] = by->number;
    book->address = address;
    book->bytes = bytes;
    if (book->allocator) book->live = tensor_live_blocks(book->allocator);
}

static void deleters_of_owned_memory_run_once_in_reverse_order(void **state)
{
    (void)state;
    loch_device *device = sim_open("sim:64MiB,backed");
    loch_allocator *allocator = tensor_allocator(device);
    diary book = {.allocator = allocator};
    writer one = {&book, 1}, two = {&book, 2}, three = {&book, 3};
    loch_buffer *buffer, *part;
    CHECK_OK(loch_buffer_create(allocator, 5000, NULL, &buffer));
    void *address = loch_buffer_get_address(buffer);
    CHECK_OK(loch_buffer_add_deleter(buffer, write_down, &one));
    CHECK_OK(loch_buffer_add_deleter(buffer, write_down, &two));
    CHECK_OK(loch_buffer_slice(buffer, 100, 10, &part));
    CHECK_OK(loch_buffer_add_deleter(part, write_down, &three)); /* of the whole */
    loch_buffer_release(part);
    loch_buffer_retain(buffer);
    loch_buffer_release(buffer);
    assert_int_equal(book.count, 0);
    loch_buffer_release(buffer);
    assert_int_equal(book.count, 3);
    assert_memory_equal(book.who, ((int[]){3, 2, 1}), sizeof(int[3]));
    assert_ptr_equal(book.address, address);
    assert_int_equal(book.bytes, 5000);
    assert_int_equal(book.live, 1); /* the block was still there */
    assert_int_equal(tensor_live_blocks(allocator), 0);
    loch_allocator_release(allocator);
    loch_device_release(device);
}

static void deleters_of_memory_from_outside_run_once_in_reverse_order(void **state)
{
    (void)state;
    char memory[64];
    diary book = {0};
    writer own = {&book, 0}, one = {&book, 1}, two = {&book, 2};
    const loch_external external = {.size = sizeof external, .deleter = write_down, .user = &own};
    loch_buffer *buffer;
    CHECK_OK(loch_buffer_wrap(memory, sizeof memory, &external, &buffer));
    CHECK_OK(loch_buffer_add_deleter(buffer, write_down, &one));
    CHECK_OK(loch_buffer_add_deleter(buffer, write_down, &two));
    CHECK_OK(loch_buffer_add_deleter(buffer, write_down, &two)); /* added twice, runs twice */
    loch_buffer_release(buffer);
    assert_int_equal(book.count, 4);
    assert_memory_equal(book.who, ((int[]){2, 2, 1, 0}), sizeof(int[4]));
    assert_ptr_equal(book.address, memory);
}

/* Work that uses memory from outside is over before any of them runs. */
static void deleters_run_when_work_has_ended(void **state)
{
    (void)state;
    loch_device *device = sim_open("sim:64MiB,backed,clock=stepped");
    loch_stream *stream;
    CHECK_OK(loch_stream_create(device, NULL, &stream));
    char memory[64];
    diary book = {0};
    writer one = {&book, 1};
    loch_buffer *buffer;
    CHECK_OK(loch_buffer_wrap(memory, sizeof memory, NULL, &buffer));
    CHECK_OK(loch_buffer_add_deleter(buffer, write_down, &one));
    CHECK_OK(sim_busy(stream, 100000));
    CHECK_OK(loch_buffer_record_use(buffer, stream));
    loch_buffer_release(buffer);
    assert_int_equal(book.count, 0);
    CHECK_OK(loch_buffer_collect(LOCH_WAIT_END, NULL));
    assert_int_equal(book.count, 1);
    loch_stream_close(stream);
    loch_device_release(device);
}

static void deleters_get_the_address_and_bytes_of_the_end(void **state)
{
    (void)state;
    loch_device *device = sim_open("sim:64MiB,backed");
    loch_allocator *allocator = tensor_allocator(device);
    diary book = {.allocator = allocator};
    writer one = {&book, 1};
    const loch_request movable = {.size = sizeof movable, .flags = LOCH_ALLOC_MOVABLE};
    loch_buffer *buffer;
    CHECK_OK(loch_buffer_create(allocator, 200000, &movable, &buffer));
    CHECK_OK(loch_buffer_add_deleter(buffer, write_down, &one));
    CHECK_OK(loch_buffer_resize(buffer, 9000000, LOCH_CONTENTS_DROP, NULL));
    void *address;
    CHECK_OK(loch_buffer_pin(buffer, NULL, &address));
    CHECK_OK(loch_buffer_unpin(buffer, NULL));
    loch_buffer_release(buffer);
    assert_int_equal(book.count, 1);
    assert_ptr_equal(book.address, address); /* nothing has moved it since */
    assert_int_equal(book.bytes, 9000000);
    assert_int_equal(book.live, 1);
    loch_allocator_release(allocator);
    loch_device_release(device);
}

static void a_buffer_with_deleters_is_not_detached(void **state)
{
    (void)state;
    loch_device *device = sim_open("sim:64MiB,backed");
    loch_allocator *allocator = tensor_allocator(device);
    diary book = {0};
    writer one = {&book, 1};
    loch_buffer *buffer;
    void *block = TEST_UNTOUCHED;
    CHECK_OK(loch_buffer_create(allocator, 100, NULL, &buffer));
    CHECK_OK(loch_buffer_add_deleter(buffer, write_down, &one));
    CHECK_FAILS(loch_buffer_detach(buffer, &block), UNSUPPORTED);
    assert_null(block);
    assert_int_equal(loch_buffer_get_bytes(buffer), 100);
    loch_buffer_release(buffer);
    assert_int_equal(book.count, 1);

    CHECK_OK(loch_buffer_create(allocator, 0, NULL, &buffer)); /* without memory, the buffer ends anyway */
    CHECK_OK(loch_buffer_add_deleter(buffer, write_down, &one));
    loch_buffer_release(buffer);
    assert_int_equal(book.count, 2);
    assert_null(book.address);
    assert_int_equal(book.bytes, 0);
    loch_allocator_release(allocator);
    loch_device_release(device);
}

/* A buffer with a deleter is not cached in a buffer pool. */
static void a_pool_of_buffers_ends_a_buffer_with_deleters(void **state)
{
    (void)state;
    loch_device *device = sim_open("sim:64MiB,backed");
    loch_allocator *allocator = tensor_allocator(device);
    diary book = {0};
    writer one = {&book, 1};
    loch_buffer_pool *pool;
    loch_buffer *buffer;
    loch_buffer_pool_stats stats = {.size = sizeof stats};
    CHECK_OK(loch_buffer_pool_create(allocator, NULL, &pool));
    CHECK_OK(loch_buffer_pool_acquire(pool, 5000, NULL, &buffer));
    CHECK_OK(loch_buffer_add_deleter(buffer, write_down, &one));
    CHECK_OK(loch_buffer_pool_release(pool, buffer, NULL));
    assert_int_equal(book.count, 1);
    CHECK_OK(loch_buffer_pool_get_stats(pool, &stats));
    assert_int_equal(stats.idle_bytes, 0);
    CHECK_OK(loch_buffer_pool_acquire(pool, 5000, NULL, &buffer));
    CHECK_OK(loch_buffer_pool_release(pool, buffer, NULL));
    CHECK_OK(loch_buffer_pool_get_stats(pool, &stats));
    assert_true(stats.idle_bytes >= 5000);
    assert_int_equal(book.count, 1);
    loch_buffer_pool_destroy(pool);
    loch_allocator_release(allocator);
    loch_device_release(device);
}

static void bad_arguments_are_refused(void **state)
{
    (void)state;
    char memory[8];
    loch_buffer *buffer;
    CHECK_FAILS(loch_buffer_add_deleter(NULL, write_down, NULL), INVALID);
    CHECK_OK(loch_buffer_wrap(memory, 8, NULL, &buffer));
    CHECK_FAILS(loch_buffer_add_deleter(buffer, NULL, NULL), INVALID);
    loch_buffer_release(buffer);
}

/* --- threads --- */

#define THREADS 4
#define EACH 500

static void count_up(void *address, size_t bytes, void *user)
{
    (void)address, (void)bytes;
    ++*(size_t *)user; /* not atomic on purpose: one thread runs them all */
}

typedef struct adding {
    loch_buffer *buffer;
    size_t *count;
} adding;

static void *thread_adds(void *user)
{
    const adding *work = user;
    for (size_t i = 0; i < EACH; i++)
        CHECK_OK(loch_buffer_add_deleter(work->buffer, count_up, work->count));
    loch_buffer_release(work->buffer);
    return NULL;
}

static void deleters_added_by_threads_all_run(void **state)
{
    (void)state;
    char memory[8];
    size_t count = 0;
    adding work = {.count = &count};
    CHECK_OK(loch_buffer_wrap(memory, 8, NULL, &work.buffer));
    pthread_t threads[THREADS];
    for (size_t i = 0; i < THREADS; i++) {
        loch_buffer_retain(work.buffer);
        assert_int_equal(pthread_create(&threads[i], NULL, thread_adds, &work), 0);
    }
    loch_buffer_release(work.buffer);
    for (size_t i = 0; i < THREADS; i++)
        pthread_join(threads[i], NULL);
    assert_int_equal(count, THREADS * EACH);
}

/* --- failing host memory --- */

static void a_deleter_that_cannot_be_added_is_told(void **state)
{
    (void)state;
    char memory[8];
    size_t count = 0;
    loch_buffer *buffer;
    CHECK_OK(loch_buffer_wrap(memory, 8, NULL, &buffer));
    test_heap_set(TEST_FAILING_ONCE, 0);
    const loch_status status = loch_buffer_add_deleter(buffer, count_up, &count);
    test_heap_set(TEST_FAILING_NEVER, 0);
    assert_int_equal(status, LOCH_E_HOST_MEMORY);
    assert_true(loch_error_get()->sentence[0]);
    CHECK_OK(loch_buffer_add_deleter(buffer, count_up, &count));
    test_heap_set(TEST_FAILING_FOREVER, 0); /* the end needs none */
    loch_buffer_release(buffer);
    test_heap_set(TEST_FAILING_NEVER, 0);
    assert_int_equal(count, 1);
}

int main(void)
{
    test_heap_install();
    const struct CMUnitTest tests[] = {
        TENSOR_TEST(deleters_of_owned_memory_run_once_in_reverse_order),
        TENSOR_TEST(deleters_of_memory_from_outside_run_once_in_reverse_order),
        TENSOR_TEST(deleters_run_when_work_has_ended),
        TENSOR_TEST(deleters_get_the_address_and_bytes_of_the_end),
        TENSOR_TEST(a_buffer_with_deleters_is_not_detached),
        TENSOR_TEST(a_pool_of_buffers_ends_a_buffer_with_deleters),
        TENSOR_TEST(bad_arguments_are_refused),
        TENSOR_TEST(deleters_added_by_threads_all_run),
        TENSOR_TEST(a_deleter_that_cannot_be_added_is_told),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

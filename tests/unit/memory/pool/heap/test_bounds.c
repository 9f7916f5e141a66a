/* SPDX-License-Identifier: MIT */
/* Copies and fills stay inside the blocks of pools: to the last byte that was asked for, at any address inside, in
 * slabs, large blocks, raw segments, growable blocks and children's ranges, and never into what is free. */
#include "unit/memory/pool/child_fixture.h"
#include "worker.h"
#include <loch/copy.h>
#include <pthread.h>

#define MIB TEST_MIB
#define BLOCKS 4

static const char *const devices[] = {"cpu", "sim:256MiB,granule=64KiB,backed", "sim:256MiB", "sim:256MiB,virtual=off",
                                      "sim:256MiB,granule=64KiB,backed,virtual=off"};
#define DEVICES (sizeof devices / sizeof *devices)

/* One byte of a block. */
static char *at(void *block, size_t offset)
{
    return (char *)block + offset;
}

/* Every way to touch [address, address + bytes), which is or is not in a block; `good` are as many bytes that are. */
static void expect_all(char *address, size_t bytes, void *good, bool is_inside)
{
    const loch_pitched rows = {.row_bytes = 1, .rows = bytes, .planes = 1, .to_row_pitch = 1, .from_row_pitch = 1};
    const loch_pitched apart = {
        .row_bytes = 1, .rows = 2, .planes = 1, .to_row_pitch = bytes - 1, .from_row_pitch = bytes - 1};
    if (is_inside) {
        CHECK_OK(loch_copy(address, good, bytes));
        CHECK_OK(loch_copy(good, address, bytes));
        CHECK_OK(loch_fill(address, bytes, "x", 1));
        CHECK_OK(loch_copy_pitched(address, good, &rows, NULL));
        CHECK_OK(loch_copy_pitched(good, address, &rows, NULL));
        return;
    }
    CHECK_FAILS(loch_copy(address, good, bytes), OUT_OF_RANGE);
    CHECK_FAILS(loch_copy(good, address, bytes), OUT_OF_RANGE);
    CHECK_FAILS(loch_fill(address, bytes, "x", 1), OUT_OF_RANGE);
    CHECK_FAILS(loch_copy_pitched(address, good, &rows, NULL), OUT_OF_RANGE);
    CHECK_FAILS(loch_copy_pitched(good, address, &rows, NULL), OUT_OF_RANGE);
    if (bytes > 2) CHECK_FAILS(loch_copy_pitched(address, good, &apart, NULL), OUT_OF_RANGE);
}

static void expect_block(char *block, size_t bytes, char *good)
{
    const size_t offsets[] = {0, 1, bytes / 3, bytes / 2, bytes - 1};
    for (size_t i = 0; i < sizeof offsets / sizeof *offsets; i++) {
        expect_all(block + offsets[i], bytes - offsets[i], good, true);
        expect_all(block + offsets[i], bytes - offsets[i] + 1, good, false);
    }
}

static void expect_sizes(loch_allocator *pool)
{
    static const size_t sizes[] = {1, 100, 4096, 8191, 8193, 50000, 300001, 3 << 20, (9 << 20) + 1};
    for (size_t s = 0; s < sizeof sizes / sizeof *sizes; s++) {
        char *good = pool_alloc(pool, 10 * MIB), *blocks[BLOCKS];
        for (size_t i = 0; i < BLOCKS; i++)
            blocks[i] = pool_alloc(pool, sizes[s]);
        for (size_t i = 0; i < BLOCKS; i++)
            expect_block(blocks[i], sizes[s], good);
        pool_expect_whole(pool);
        for (size_t i = 0; i < BLOCKS; i++)
            CHECK_OK(loch_free(pool, blocks[i]));
        CHECK_OK(loch_free(pool, good));
    }
}

static void blocks_end_at_their_last_byte(void **state)
{
    (void)state;
    for (size_t d = 0; d < DEVICES; d++) {
        loch_device *device = sim_open(devices[d]);
        loch_allocator *pool = pool_make(device, NULL);
        expect_sizes(pool);
        pool_end(pool, device);
    }
}

static void pinned_blocks_end_at_their_last_byte(void **state)
{
    (void)state;
    const loch_pool_options options = {.size = sizeof options, .kind = LOCH_MEMORY_PINNED};
    loch_device *device = sim_open("sim:256MiB");
    loch_allocator *pool = pool_make(device, &options);
    expect_sizes(pool);
    pool_end(pool, device);
}

/* 4,097 bytes into a block of 4,096 do not reach the neighbour. */
static void a_copy_that_is_too_long_leaves_the_neighbour(void **state)
{
    (void)state;
    loch_device *device = sim_open("cpu");
    loch_allocator *pool = pool_make(device, NULL);
    char *blocks[BLOCKS];
    static char source[5000];
    for (size_t i = 0; i < BLOCKS; i++) {
        blocks[i] = pool_alloc(pool, 4096);
        test_pattern_write(blocks[i], 4096, i);
    }
    for (size_t i = 0; i < BLOCKS; i++) {
        CHECK_FAILS(loch_copy(blocks[i], source, 4097), OUT_OF_RANGE);
        assert_non_null(strstr(loch_error_get()->sentence, "4097"));
        assert_non_null(strstr(loch_error_get()->sentence, "4096"));
        assert_non_null(strstr(loch_error_get()->sentence, "target"));
        CHECK_FAILS(loch_fill(blocks[i], 4097, "x", 1), OUT_OF_RANGE);
    }
    for (size_t i = 0; i < BLOCKS; i++)
        assert_int_equal(test_pattern_differs(blocks[i], 4096, i), 4096);
    for (size_t i = 0; i < BLOCKS; i++)
        CHECK_OK(loch_free(pool, blocks[i]));
    pool_end(pool, device);
}

/* Memory in a thread's cache, memory that waits for a stream, and memory of a pool with another limit is not available
 * to this request. */
static void free_memory_is_refused(void **state)
{
    (void)state;
    static const size_t sizes[] = {100, 5000, 50000, 3 << 20};
    for (size_t d = 0; d < DEVICES; d++) {
        loch_device *device = sim_open(devices[d]);
        loch_allocator *pool = pool_make(device, NULL);
        for (size_t s = 0; s < 4; s++) {
            char *good = pool_alloc(pool, sizes[s]), *left = pool_alloc(pool, sizes[s]);
            char *block = pool_alloc(pool, sizes[s]), *right = pool_alloc(pool, sizes[s]);
            CHECK_OK(loch_free(pool, block)); /* the thread keeps it */
            expect_all(block, 10, good, false);
            expect_all(at(block, sizes[s] / 2), 10, good, false);
            CHECK_OK(loch_free(pool, left));
            (void)pool_trim(pool, SIZE_MAX);
            expect_all(block, 10, good, false);
            expect_all(at(left, sizes[s] - 10), 10, good, false);
            expect_all(right, sizes[s], good, true);
            CHECK_OK(loch_free(pool, right));
            CHECK_OK(loch_free(pool, good));
        }
        pool_end(pool, device);
    }
}

static void memory_that_waits_for_a_stream_is_refused_as_free(void **state)
{
    (void)state;
    loch_device *device = sim_open("sim:64MiB,granule=64KiB,backed,clock=stepped,lag=1000");
    loch_allocator *pool = pool_make(device, NULL);
    loch_stream *stream = sim_stream(device, LOCH_STREAM_INDEPENDENT);
    char *good = pool_alloc(pool, MIB);
    static const size_t sizes[] = {100, MIB};
    for (size_t s = 0; s < 2; s++) {
        char *block = pool_alloc(pool, sizes[s]);
        CHECK_OK(loch_fill_on(block, sizes[s], "x", 1, stream));
        CHECK_OK(loch_allocator_record_use(pool, block, stream));
        CHECK_OK(loch_free(pool, block));
        expect_all(block, 10, good, false);
        CHECK_OK(loch_stream_sync(stream));
    }
    CHECK_OK(loch_free(pool, good));
    loch_stream_close(stream);
    pool_end_sim(pool, device);
}

static void growable_blocks_end_where_they_were_asked_to(void **state)
{
    (void)state;
    for (size_t d = 0; d < 3; d++) {
        loch_device *device = sim_open(devices[d]);
        loch_allocator *pool = pool_make(device, NULL);
        static const size_t sizes[] = {1, 100000, 5 << 20, 300000, 20 << 20};
        char *good = pool_alloc(pool, 32 * MIB);
        const loch_request request = {.size = sizeof request};
        void *block;
        CHECK_OK(loch_pool_alloc_growable(pool, 64 * MIB, &request, &block));
        expect_all(block, 1, good, false);
        for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
            CHECK_OK(loch_pool_resize_growable(pool, block, sizes[i]));
            expect_block(block, sizes[i], good);
        }
        CHECK_OK(loch_free(pool, block));
        expect_all(block, 1, good, false);
        CHECK_OK(loch_free(pool, good));
        pool_end(pool, device);
    }
}

static void childrens_blocks_are_found(void **state)
{
    (void)state;
    for (size_t d = 0; d < DEVICES; d++) {
        loch_device *device = sim_open(devices[d]);
        loch_allocator *pool = pool_make(device, NULL);
        loch_allocator *child = child_range(pool, 48 * MIB), *inner = child_range(child, 24 * MIB);
        static const size_t sizes[] = {100, 5000, 50001, 3 << 20};
        char *good = pool_alloc(pool, 4 * MIB);
        for (size_t s = 0; s < 4; s++) {
            char *outer_block = pool_alloc(child, sizes[s]), *block = pool_alloc(inner, sizes[s]);
            expect_block(outer_block, sizes[s], good);
            expect_block(block, sizes[s], good);
            CHECK_OK(loch_free(inner, block));
            expect_all(block, 1, good, false); /* the parent's block holds it, and that does not help */
            CHECK_OK(loch_free(child, outer_block));
            expect_all(outer_block, 1, good, false);
        }
        loch_allocator_release(inner);
        loch_allocator_release(child);
        CHECK_OK(loch_free(pool, good));
        pool_end(pool, device);
    }
}

/* A resize in place moves the end. */
static void a_resized_block_ends_elsewhere(void **state)
{
    (void)state;
    loch_device *device = sim_open("cpu");
    loch_allocator *pool = pool_make(device, NULL);
    char *good = pool_alloc(pool, 4 * MIB);
    void *block = pool_alloc(pool, 3 * MIB);
    static const size_t sizes[] = {2 << 20, (2 << 20) - 100, (2 << 20) + 1000};
    for (size_t i = 0; i < 3; i++) {
        CHECK_OK(loch_allocator_realloc(pool, block, sizes[i], NULL, &block));
        expect_block(block, sizes[i], good);
    }
    CHECK_OK(loch_free(pool, block));
    CHECK_OK(loch_free(pool, good));
    pool_end(pool, device);
}

/* --- against a model --- */

#define MODEL_BLOCKS 300
#define MODEL_STEPS 20000

typedef struct model_block {
    uintptr_t start;
    size_t bytes;
} model_block;

static bool model_holds(const model_block *blocks, uintptr_t start, size_t bytes)
{
    for (size_t i = 0; i < MODEL_BLOCKS; i++)
        if (blocks[i].bytes && start >= blocks[i].start && start - blocks[i].start < blocks[i].bytes &&
            bytes <= blocks[i].bytes - (start - blocks[i].start))
            return true;
    return false;
}

static void model_ask(loch_allocator *pool, const model_block *blocks, test_random *random)
{
    const model_block *near = &blocks[test_random_below(random, MODEL_BLOCKS)];
    if (!near->bytes) return;
    const lochi_tenant *tenant = &lochi_pool_of(pool)->tenant;
    const size_t reach = test_random_below(random, 2) ? 64 : near->bytes;
    const uintptr_t start = near->start + test_random_below(random, near->bytes + reach) -
                            (test_random_below(random, 2) ? test_random_below(random, reach) : 0);
    const size_t left = near->start + near->bytes - start;
    const size_t bytes = test_random_below(random, 2) && left - 1 < near->bytes
                             ? left + test_random_below(random, 2)
                             : 1 + test_random_below(random, 2 * near->bytes);
    const bool is_inside = tenant->check(tenant, start, bytes, "target") == LOCH_OK;
    if (is_inside != model_holds(blocks, start, bytes))
        fail_msg("%zu bytes at %p are said to be %s a block", bytes, (void *)start, is_inside ? "in" : "in no");
}

static void model_run(const char *name, loch_pool_preset preset)
{
    test_random random = {test_seed(11)};
    const loch_pool_options options = {.size = sizeof options, .preset = preset};
    loch_device *device = sim_open(name);
    loch_allocator *pool = pool_make(device, &options);
    static model_block blocks[MODEL_BLOCKS];
    memset(blocks, 0, sizeof blocks);
    for (size_t step = 0; step < MODEL_STEPS; step++) {
        model_block *block = &blocks[test_random_below(&random, MODEL_BLOCKS)];
        if (block->bytes) {
            CHECK_OK(loch_free(pool, (void *)block->start));
            block->bytes = 0;
        } else {
            const size_t bytes = 1 + test_random_below(&random, (size_t)1 << test_random_below(&random, 22));
            block->start = (uintptr_t)pool_alloc(pool, bytes);
            block->bytes = bytes;
        }
        for (size_t i = 0; i < 4; i++)
            model_ask(pool, blocks, &random);
        if (step % 5000 == 0) (void)pool_trim(pool, 0);
        if (step % 1000 == 0) pool_expect_whole(pool);
    }
    for (size_t i = 0; i < MODEL_BLOCKS; i++)
        if (blocks[i].bytes) CHECK_OK(loch_free(pool, (void *)blocks[i].start));
    pool_end(pool, device);
}

static void any_address_is_told_from_any_other(void **state)
{
    (void)state;
    model_run("sim:4GiB,granule=64KiB", LOCH_POOL_STANDARD);
    model_run("sim:4GiB", LOCH_POOL_STANDARD);
    model_run("sim:4GiB", LOCH_POOL_WHOLE_BLOCKS);
    model_run("sim:4GiB,virtual=off", LOCH_POOL_STANDARD);
}

/* --- with other threads --- */

#define THREADS 3
#define ROUNDS 400

typedef struct worker {
    pthread_t thread;
    loch_allocator *pool;
    uint64_t seed;
    char failure[400];
} worker;

/* Blocks of many sizes come and go around those of the others, and every one can be copied while it lives. */
static void worker_copy(worker *w)
{
    test_random random = {w->seed};
    static const size_t sizes[] = {64, 3000, 9000, 20000, 100000, 400000, 2 << 20};
    for (size_t round = 0; round < ROUNDS; round++) {
        const size_t bytes = sizes[test_random_below(&random, 7)] + test_random_below(&random, 64);
        void *from, *to;
        TRY(loch_alloc(w->pool, bytes, &from));
        TRY(loch_alloc(w->pool, bytes, &to));
        const size_t first = test_random_below(&random, bytes);
        TRY(loch_copy(at(to, first), at(from, first), bytes - first));
        EXPECT(loch_copy(at(to, first), from, bytes - first + 1) == LOCH_E_OUT_OF_RANGE);
        TRY(loch_fill(at(to, bytes - 1), 1, "x", 1));
        TRY(loch_free(w->pool, from));
        TRY(loch_free(w->pool, to));
    }
}

static void *worker_run(void *user)
{
    worker_copy(user);
    return NULL;
}

static void bounds_hold_while_other_threads_allocate(void **state)
{
    (void)state;
    static const char *const names[] = {"cpu", "sim:1GiB", "sim:1GiB,virtual=off"};
    for (size_t d = 0; d < 3; d++) {
        loch_device *device = sim_open(names[d]);
        loch_allocator *pool = pool_make(device, NULL);
        worker workers[THREADS];
        for (size_t i = 0; i < THREADS; i++)
            workers[i] = (worker){.pool = pool, .seed = test_seed(i + 1)};
        TEST_THREADS_RUN(worker_run, workers);
        for (size_t i = 0; i < THREADS; i++)
            if (workers[i].failure[0]) fail_msg("%s", workers[i].failure);
        pool_end(pool, device);
    }
}

typedef struct grower {
    pthread_t thread;
    loch_allocator *pool;
    void *block;
    char failure[400];
} grower;

static void grower_grow(grower *w)
{
    for (size_t bytes = 0; bytes <= 48 * MIB; bytes += 64 << 10)
        TRY(loch_pool_resize_growable(w->pool, w->block, MIB + bytes));
}

static void *grower_run(void *user)
{
    grower_grow(user);
    return NULL;
}

/* What is there already can be copied while another thread makes a block grow. */
static void copies_go_on_while_a_block_grows(void **state)
{
    (void)state;
    loch_device *device = sim_open("sim:256MiB,granule=64KiB");
    loch_allocator *pool = pool_make(device, NULL);
    grower w = {.pool = pool};
    const loch_request request = {.size = sizeof request, .bytes = MIB};
    char *good = pool_alloc(pool, MIB);
    CHECK_OK(loch_pool_alloc_growable(pool, 64 * MIB, &request, &w.block));
    assert_int_equal(pthread_create(&w.thread, NULL, grower_run, &w), 0);
    for (size_t i = 0; i < 2000; i++)
        CHECK_OK(loch_copy(good, w.block, MIB));
    assert_int_equal(pthread_join(w.thread, NULL), 0);
    if (w.failure[0]) fail_msg("%s", w.failure);
    CHECK_OK(loch_free(pool, w.block));
    CHECK_OK(loch_free(pool, good));
    pool_end(pool, device);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        POOL_TEST(blocks_end_at_their_last_byte),
        POOL_TEST(pinned_blocks_end_at_their_last_byte),
        POOL_TEST(a_copy_that_is_too_long_leaves_the_neighbour),
        POOL_TEST(free_memory_is_refused),
        POOL_TEST(memory_that_waits_for_a_stream_is_refused_as_free),
        POOL_TEST(growable_blocks_end_where_they_were_asked_to),
        POOL_TEST(childrens_blocks_are_found),
        POOL_TEST(a_resized_block_ends_elsewhere),
        POOL_TEST(any_address_is_told_from_any_other),
        POOL_TEST(bounds_hold_while_other_threads_allocate),
        POOL_TEST(copies_go_on_while_a_block_grows),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

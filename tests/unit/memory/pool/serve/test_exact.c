/* SPDX-License-Identifier: MIT */
/* Blocks at given addresses: a block comes back exactly where it was, and a call that cannot have that changes
 * nothing. */
#include "pool_fixture.h"
#include "worker.h"

#define SIM "sim:256MiB,granule=64KiB,backed"
#define RAW "sim:256MiB,backed,virtual=off"

static const char *const devices[] = {"cpu", SIM, RAW, SIM ",alias=off"};
#define DEVICES (sizeof devices / sizeof *devices)

static const size_t sizes[] = {1, 100, 1000, 8192, 8193, 20000, 65536, 70000, 1 << 20, (1 << 20) + 1, 5 << 20};
#define SIZES (sizeof sizes / sizeof *sizes)

static loch_status put(loch_allocator *pool, void *address, size_t bytes, loch_stream *stream, void **out)
{
    const loch_request request = {.size = sizeof request, .bytes = bytes, .stream = stream, .address = address};
    *out = TEST_UNTOUCHED;
    return loch_allocator_alloc(pool, &request, out);
}

static void expect_put(loch_allocator *pool, void *address, size_t bytes, loch_stream *stream)
{
    void *block;
    CHECK_OK(put(pool, address, bytes, stream, &block));
    assert_ptr_equal(block, address);
}

#define EXPECT_REFUSED(pool, address, bytes, stream, suffix)                                                           \
    do {                                                                                                               \
        const loch_stats stats_before = pool_stats(pool);                                                              \
        const size_t used_before = pool_info(pool).used_bytes;                                                         \
        void *refused;                                                                                                 \
        CHECK_FAILS(put(pool, address, bytes, stream, &refused), suffix);                                              \
        assert_null(refused);                                                                                          \
        assert_int_equal(pool_info(pool).used_bytes, used_before);                                                     \
        assert_int_equal(pool_stats(pool).blocks, stats_before.blocks);                                                \
        pool_expect_whole(pool);                                                                                       \
    } while (0)

/* --- one block --- */

static void a_freed_block_comes_back_where_it_was(void **state)
{
    (void)state;
    for (size_t d = 0; d < DEVICES; d++) {
        loch_device *device = sim_open(devices[d]);
        loch_allocator *pool = pool_make(device, NULL);
        for (size_t i = 0; i < SIZES; i++) {
            void *before = pool_alloc(pool, sizes[i]), *block = pool_alloc(pool, sizes[i]);
            void *behind = pool_alloc(pool, sizes[i]);
            CHECK_OK(loch_free(pool, block));
            expect_put(pool, block, sizes[i], NULL);
            pool_expect_whole(pool);
            loch_block found = {.size = sizeof found};
            CHECK_OK(loch_allocator_find(pool, block, &found));
            assert_int_equal(found.requested_bytes, sizes[i]);
            EXPECT_REFUSED(pool, block, sizes[i], NULL, BUSY);
            CHECK_OK(loch_free(pool, before));
            CHECK_OK(loch_free(pool, behind));
            EXPECT_REFUSED(pool, block, sizes[i], NULL, BUSY);
            CHECK_OK(loch_free(pool, block));
            expect_put(pool, block, sizes[i], NULL);
            CHECK_OK(loch_free(pool, block));
        }
        pool_end(pool, device);
    }
}

static void tags_sizes_and_alignments_are_kept(void **state)
{
    (void)state;
    loch_tag tag;
    CHECK_OK(loch_tag_create("exact", &tag));
    for (size_t d = 0; d < DEVICES; d++) {
        loch_device *device = sim_open(devices[d]);
        loch_allocator *pool = pool_make(device, NULL);
        for (size_t i = 0; i < SIZES; i++) {
            loch_request request = {.size = sizeof request,
                                    .bytes = sizes[i],
                                    .alignment = (size_t)1 << (i % 13),
                                    .tag = tag,
                                    .round_bytes = 3000 * (i % 2)};
            void *block, *again;
            loch_block first = {.size = sizeof first}, second = {.size = sizeof second};
            CHECK_OK(loch_allocator_alloc(pool, &request, &block));
            CHECK_OK(loch_allocator_find(pool, block, &first));
            CHECK_OK(loch_free(pool, block));
            request.address = block;
            request.flags = LOCH_ALLOC_ZEROED;
            CHECK_OK(loch_allocator_alloc(pool, &request, &again));
            assert_ptr_equal(again, block);
            CHECK_OK(loch_allocator_find(pool, block, &second));
            assert_int_equal(second.requested_bytes, first.requested_bytes);
            assert_int_equal(second.allocated_bytes, first.allocated_bytes);
            assert_int_equal(second.tag, tag);
            assert_true(second.id != first.id);
            CHECK_OK(loch_device_sync(device));
            char bytes[1] = {1};
            CHECK_OK(loch_copy(bytes, block, 1));
            assert_int_equal(bytes[0], 0);
            loch_stats stats = {.size = sizeof stats};
            CHECK_OK(loch_allocator_get_tag_stats(pool, tag, &stats));
            assert_int_equal(stats.requested_bytes, sizes[i]);
            CHECK_OK(loch_free(pool, block));
        }
        pool_end(pool, device);
    }
}

/* Memory that the pool gave back gets memory again at its old address. */
static void bare_addresses_get_memory(void **state)
{
    (void)state;
    static const char *const virtual_devices[] = {"cpu", SIM, SIM ",alias=off"};
    for (size_t d = 0; d < sizeof virtual_devices / sizeof *virtual_devices; d++) {
        loch_device *device = sim_open(virtual_devices[d]);
        loch_allocator *pool = pool_make(device, NULL);
        for (size_t i = 0; i < SIZES; i++) {
            void *block = pool_alloc(pool, sizes[i]);
            CHECK_OK(loch_free(pool, block));
            (void)pool_trim(pool, 0);
            assert_int_equal(pool_info(pool).reserved_bytes, 0);
            expect_put(pool, block, sizes[i], NULL);
            pool_expect_whole(pool);
            CHECK_OK(loch_fill(block, sizes[i], "x", 1));
            CHECK_OK(loch_free(pool, block));
        }
        CHECK_OK(loch_pool_set_limit(pool, TEST_MIB * 4));
        void *block = pool_alloc(pool, 3 << 20), *none;
        CHECK_FAILS_SET(put(pool, (char *)block + (64 << 20), 3 << 20, NULL, &none), POOL_SHORT);
        pool_expect_whole(pool);
        CHECK_OK(loch_free(pool, block));
        expect_put(pool, (char *)block + (64 << 20), 3 << 20, NULL); /* remapped from the old place */
        CHECK_OK(loch_free(pool, (char *)block + (64 << 20)));
        CHECK_OK(loch_device_sync(device));
        pool_end(pool, device);
    }
}

static void wrong_addresses_are_refused(void **state)
{
    (void)state;
    for (size_t d = 0; d < DEVICES; d++) {
        loch_device *device = sim_open(devices[d]);
        loch_allocator *pool = pool_make(device, NULL), *other = pool_make(device, NULL);
        char *small = pool_alloc(pool, 1000), *large = pool_alloc(pool, 1 << 20), *foreign = pool_alloc(other, 1 << 20);
        int local;
        EXPECT_REFUSED(pool, &local, 100, NULL, OUT_OF_RANGE);
        EXPECT_REFUSED(pool, foreign, 100, NULL, OUT_OF_RANGE);
        EXPECT_REFUSED(pool, foreign, 1 << 20, NULL, OUT_OF_RANGE);
        EXPECT_REFUSED(pool, (void *)512, 1 << 20, NULL, OUT_OF_RANGE);
        EXPECT_REFUSED(pool, (void *)(UINTPTR_MAX - 511), 1 << 20, NULL, OUT_OF_RANGE);
        EXPECT_REFUSED(pool, small + 1, 1000, NULL, INVALID);
        EXPECT_REFUSED(pool, small + 16, 1000, NULL, INVALID);
        EXPECT_REFUSED(pool, small, 5000, NULL, BUSY); /* another class */
        EXPECT_REFUSED(pool, small, 9000, NULL, BUSY);
        EXPECT_REFUSED(pool, large, 1000, NULL, BUSY);
        EXPECT_REFUSED(pool, large + 512, 1 << 20, NULL, BUSY);
        EXPECT_REFUSED(pool, large - 512, 1 << 20, NULL, BUSY);
        CHECK_OK(loch_free(pool, large));
        EXPECT_REFUSED(pool, large + 1, 1 << 20, NULL, INVALID);
        EXPECT_REFUSED(pool, large + 100, 1 << 20, NULL, INVALID);
        loch_request request = {.size = sizeof request, .bytes = 1000, .alignment = 4096, .address = large + 512};
        void *none = TEST_UNTOUCHED;
        CHECK_FAILS(loch_allocator_alloc(pool, &request, &none), INVALID);
        assert_null(none);
        request = (loch_request){.size = sizeof request, .bytes = 1000, .max_bytes = 5000, .address = large};
        CHECK_FAILS_SET(loch_allocator_alloc(pool, &request, &none), TEST_SET(INVALID) | TEST_SET(UNSUPPORTED));
        request = (loch_request){.size = sizeof request, .bytes = SIZE_MAX / 2, .address = large};
        CHECK_FAILS(loch_allocator_alloc(pool, &request, &none), OVERFLOW);
        request = (loch_request){.size = sizeof request, .address = large}; /* no bytes: no block */
        CHECK_OK(loch_allocator_alloc(pool, &request, &none));
        assert_null(none);
        CHECK_OK(loch_free(other, foreign));
        CHECK_OK(loch_free(pool, small));
        loch_allocator_release(other);
        pool_end(pool, device);
    }
}

/* A request of an older program has no address: the member is not read. */
static void an_older_request_has_no_address(void **state)
{
    (void)state;
    loch_device *device = sim_open(SIM);
    loch_allocator *pool = pool_make(device, NULL);
    const loch_request request = {.size = offsetof(loch_request, address), .bytes = 1000, .address = TEST_UNTOUCHED};
    void *block;
    CHECK_OK(loch_allocator_alloc(pool, &request, &block));
    CHECK_OK(loch_free(pool, block));
    pool_end(pool, device);
}

/* --- streams, threads, sleep, captures --- */

static void memory_that_a_stream_uses_is_busy(void **state)
{
    (void)state;
    static const size_t some[] = {500, 30000, 2 << 20};
    for (size_t is_raw = 0; is_raw < 2; is_raw++)
        for (size_t i = 0; i < 3; i++) {
            pool_bench bench = pool_bench_open(is_raw ? RAW ",clock=stepped" : SIM ",clock=stepped", NULL);
            void *block = pool_alloc_on(bench.pool, some[i], bench.a);
            CHECK_OK(loch_allocator_record_use(bench.pool, block, bench.b));
            CHECK_OK(sim_busy(bench.b, 1000000));
            CHECK_OK(loch_free(bench.pool, block));
            EXPECT_REFUSED(bench.pool, block, some[i], bench.a, BUSY); /* waits for b */
            CHECK_OK(loch_device_sync(bench.device));
            expect_put(bench.pool, block, some[i], bench.a);
            CHECK_OK(sim_busy(bench.a, 1000000));
            CHECK_OK(loch_free(bench.pool, block));
            EXPECT_REFUSED(bench.pool, block, some[i], bench.b, BUSY); /* free in the order of a */
            expect_put(bench.pool, block, some[i], bench.a);
            CHECK_OK(loch_free(bench.pool, block));
            CHECK_OK(loch_device_sync(bench.device));
            pool_bench_close(&bench);
        }
}

/* Free memory of another stream that has passed serves any stream. */
static void idle_memory_of_another_stream_is_taken(void **state)
{
    (void)state;
    pool_bench bench = pool_bench_open(SIM, NULL);
    char *a = pool_alloc_on(bench.pool, 2 << 20, bench.a), *b = pool_alloc_on(bench.pool, 2 << 20, bench.b);
    const bool are_neighbours = b == a + (2 << 20);
    CHECK_OK(loch_free(bench.pool, a));
    CHECK_OK(loch_free(bench.pool, b));
    /* Streams pass each other's memory after an event; the trim waits for all. */
    CHECK_OK(loch_pool_set_idle(bench.pool, 64 << 20));
    expect_put(bench.pool, a, 2 << 20, bench.b);
    CHECK_OK(loch_free(bench.pool, a));
    CHECK_OK(loch_pool_set_idle(bench.pool, 65 << 20));
    if (are_neighbours) {
        expect_put(bench.pool, a + (1 << 20), 2 << 20, bench.a); /* half of each */
        CHECK_OK(sim_writes(bench.a, a + (1 << 20), 2 << 20));
        CHECK_OK(loch_free(bench.pool, a + (1 << 20)));
    }
    pool_bench_close(&bench);
}

typedef struct helper {
    loch_allocator *pool;
    void *blocks[SIZES];
    char failure[256];
} helper;

static void helper_work(helper *w)
{
    for (size_t i = 0; i < SIZES; i++)
        TRY(loch_alloc(w->pool, sizes[i], &w->blocks[i]));
    for (size_t i = 0; i < SIZES; i++)
        TRY(loch_free(w->pool, w->blocks[i]));
    for (size_t i = 0; i < SIZES; i++) { /* the main thread's cache has them */
        void *block = NULL;
        const loch_request request = {.size = sizeof request, .bytes = sizes[i], .address = w->blocks[i]};
        TRY(loch_allocator_alloc(w->pool, &request, &block));
        EXPECT(block == w->blocks[i]);
        TRY(loch_free(w->pool, block));
    }
}

static void *helper_run(void *user)
{
    helper_work(user);
    return NULL;
}

static void caches_of_other_threads_are_flushed(void **state)
{
    (void)state;
    for (size_t d = 0; d < DEVICES; d++) {
        loch_device *device = sim_open(devices[d]);
        loch_allocator *pool = pool_make(device, NULL);
        void *blocks[SIZES];
        for (size_t i = 0; i < SIZES; i++)
            blocks[i] = pool_alloc(pool, sizes[i]);
        for (size_t i = 0; i < SIZES; i++)
            CHECK_OK(loch_free(pool, blocks[i])); /* into the cache of this thread */
        helper helpers[1] = {{.pool = pool}};
        TEST_THREADS_RUN(helper_run, helpers);
        if (helpers[0].failure[0]) fail_msg("%s", helpers[0].failure);
        for (size_t i = 0; i < SIZES; i++)
            expect_put(pool, blocks[i], sizes[i], NULL);
        for (size_t i = 0; i < SIZES; i++)
            CHECK_OK(loch_free(pool, blocks[i]));
        pool_end(pool, device);
    }
}

static void memory_that_sleeps_is_busy(void **state)
{
    (void)state;
    pool_bench bench = pool_bench_open(SIM, NULL);
    void *small = pool_alloc(bench.pool, 1000), *large = pool_alloc(bench.pool, 1 << 20);
    const loch_sleep_options drop = {.size = sizeof drop, .contents = LOCH_SLEEP_DROP};
    CHECK_OK(loch_pool_sleep(bench.pool, &drop, NULL));
    void *none;
    CHECK_FAILS(put(bench.pool, large, 1 << 20, NULL, &none), BUSY);
    CHECK_OK(loch_pool_wake(bench.pool, NULL));
    CHECK_OK(loch_free(bench.pool, small));
    CHECK_OK(loch_free(bench.pool, large));
    expect_put(bench.pool, large, 1 << 20, NULL);
    expect_put(bench.pool, small, 1000, NULL);
    CHECK_OK(loch_free(bench.pool, small));
    CHECK_OK(loch_free(bench.pool, large));
    pool_bench_close(&bench);
}

/* Memory of a capture comes back under the capture, and nowhere else. */
static void memory_of_a_capture_comes_back_in_it(void **state)
{
    (void)state;
    pool_bench bench = pool_bench_open(SIM, NULL);
    loch_capture_info info = {.size = sizeof info};
    loch_sim_graph *graph;
    void *blocks[SIZES];
    CHECK_OK(loch_sim_capture_begin(bench.a));
    CHECK_OK(loch_stream_query_capture(bench.a, &info));
    for (size_t i = 0; i < SIZES; i++) {
        blocks[i] = pool_alloc_on(bench.pool, sizes[i], bench.a);
        CHECK_OK(loch_free(bench.pool, blocks[i]));
        expect_put(bench.pool, blocks[i], sizes[i], bench.a);
        CHECK_OK(loch_free(bench.pool, blocks[i]));
        EXPECT_REFUSED(bench.pool, blocks[i], sizes[i], bench.b, BUSY);
    }
    CHECK_OK(loch_sim_capture_end(bench.a, &graph));
    loch_sim_graph_destroy(graph);
    CHECK_OK(loch_pool_release_capture(bench.pool, info.id));
    pool_bench_close(&bench);
}

/* --- wrappers and kinds of pools --- */

static loch_status forget_address(void *self, const loch_request *request, void **out)
{
    loch_request other = *request;
    other.address = NULL;
    return loch_allocator_alloc(self, &other, out);
}

static loch_status pass_free(void *self, void *address, size_t bytes, loch_stream *stream)
{
    (void)bytes;
    return stream ? loch_allocator_free_on(self, address, stream) : loch_free(self, address);
}

static void wrappers_pass_the_address_on(void **state)
{
    (void)state;
    loch_device *device = sim_open(SIM);
    loch_allocator *pool = pool_make(device, NULL), *wrappers[6] = {NULL}, *redzone, *direct, *forgetful;
    const loch_limit_options limit = {.size = sizeof limit, .hard_bytes = 64 << 20};
    const loch_logging_options logging = {.size = sizeof logging, .format = LOCH_LOGGING_HOOK};
    const loch_allocator_ops unmapped = {.size = sizeof unmapped, .kind = "unmapped"};
    const loch_allocator_ops forgets = {
        .size = sizeof forgets, .kind = "forgetful", .alloc = forget_address, .free = pass_free};
    CHECK_OK(loch_limit_create(pool, NULL, &limit, &wrappers[0]));
    CHECK_OK(loch_tracking_create(pool, NULL, NULL, &wrappers[1]));
    CHECK_OK(loch_logging_create(pool, NULL, &logging, &wrappers[2]));
    CHECK_OK(loch_fault_create(pool, NULL, NULL, &wrappers[3]));
    CHECK_OK(loch_fault_set(wrappers[3], NULL));
    CHECK_OK(loch_locked_create(pool, NULL, &wrappers[4]));
    CHECK_OK(loch_wrapper_create(pool, "unmapped", &unmapped, NULL, &wrappers[5]));
    for (size_t w = 0; w < 6; w++)
        for (size_t i = 0; i < SIZES; i++) {
            void *block = pool_alloc(wrappers[w], sizes[i]);
            CHECK_OK(loch_free(wrappers[w], block));
            expect_put(wrappers[w], block, sizes[i], NULL);
            void *none;
            CHECK_FAILS(put(wrappers[w], block, sizes[i], NULL, &none), BUSY);
            assert_int_equal(pool_stats(wrappers[w]).blocks, 1);
            CHECK_OK(loch_free(wrappers[w], block));
        }
    CHECK_OK(loch_redzone_create(pool, NULL, NULL, &redzone));
    CHECK_OK(loch_direct_create(device, NULL, NULL, &direct));
    CHECK_OK(loch_wrapper_create(pool, "forgetful", &forgets, pool, &forgetful));
    void *block = pool_alloc(pool, 5000), *none;
    CHECK_OK(loch_free(pool, block));
    CHECK_FAILS(put(redzone, block, 5000, NULL, &none), UNSUPPORTED);
    CHECK_FAILS(put(direct, block, 5000, NULL, &none), UNSUPPORTED);
    CHECK_FAILS(put(forgetful, (char *)block + (1 << 20), 50000, NULL, &none), UNSUPPORTED);
    assert_null(none);
    assert_int_equal(pool_stats(pool).blocks, 0);
    loch_allocator_release(redzone);
    loch_allocator_release(direct);
    loch_allocator_release(forgetful);
    for (size_t w = 0; w < 6; w++)
        loch_allocator_release(wrappers[w]);
    pool_end(pool, device);
}

static void sessions_and_buffers_take_blocks_at_addresses(void **state)
{
    (void)state;
    loch_device *device = sim_open(SIM);
    loch_allocator *pool = pool_make(device, NULL);
    void *block = pool_alloc(pool, 5000);
    CHECK_OK(loch_free(pool, block));
    loch_session *session;
    CHECK_OK(loch_session_begin(pool, NULL, &session));
    expect_put(loch_session_get_allocator(session), block, 5000, NULL);
    CHECK_OK(loch_session_end(session, NULL, NULL));
    loch_buffer *buffer;
    const loch_request request = {.size = sizeof request, .alignment = 512, .address = block};
    CHECK_OK(loch_buffer_create(pool, 5000, &request, &buffer));
    assert_ptr_equal(loch_buffer_get_address(buffer), block);
    loch_buffer_release(buffer);
    pool_end(pool, device);
}

/* --- random programs --- */

#define SLOTS 120
#define STEPS 400
#define ROUNDS 4

typedef struct block {
    char *address;
    size_t bytes, alignment;
    int stream;
    bool is_small; /* up to 20000 bytes */
    uint64_t seed;
} block;

static size_t random_bytes(test_random *random)
{
    return 1 + test_random_below(random, (size_t)1 << (3 + test_random_below(random, 18)));
}

static void block_take(const pool_bench *bench, test_random *random, block *b, void *address)
{
    if (!address) {
        b->bytes = b->is_small ? 1 + test_random_below(random, 20000) : random_bytes(random);
        b->alignment = test_random_below(random, 4) ? 0 : (size_t)1 << test_random_below(random, 15);
        b->stream = (int)test_random_below(random, 3);
    }
    const loch_request request = {.size = sizeof request,
                                  .bytes = b->bytes,
                                  .alignment = b->alignment,
                                  .stream = bench->streams[b->stream],
                                  .address = address};
    void *at;
    CHECK_OK(loch_allocator_alloc(bench->pool, &request, &at));
    if (address) assert_ptr_equal(at, address);
    b->address = at;
    b->seed = test_random_next(random);
    CHECK_OK(loch_fill_on(at, b->bytes, (char[]){(char)b->seed}, 1, request.stream));
}

/* The first and the last byte of a block are its own. */
static void block_expect(const block *b)
{
    char bytes[2];
    CHECK_OK(loch_copy(bytes, b->address, 1));
    CHECK_OK(loch_copy(bytes + 1, b->address + b->bytes - 1, 1));
    assert_int_equal(bytes[0], (char)b->seed);
    assert_int_equal(bytes[1], (char)b->seed);
}

static void shuffle(test_random *random, size_t *order, size_t count)
{
    for (size_t i = 0; i < count; i++)
        order[i] = i;
    for (size_t i = count; i > 1; i--) {
        const size_t k = test_random_below(random, i), held = order[i - 1];
        order[i - 1] = order[k];
        order[k] = held;
    }
}

/* Some blocks live on, all others are freed and come back in any order: the state of a pool is restored. */
static void a_live_set_comes_back(void **state)
{
    (void)state;
    static const struct {
        const char *device;
        loch_pool_options options;
    } grounds[] = {
        {"cpu", {0}},
        {SIM, {0}},
        {RAW, {0}},
        {SIM ",alias=off", {0}},
        {SIM, {.preset = LOCH_POOL_WHOLE_BLOCKS}},
        {SIM, {.round_bytes = 512}},
        {SIM, {.wipe = LOCH_POOL_WIPE_FREED}},
        {"sim:256MiB,granule=64KiB,backed,capture=off", {.captures = LOCH_POOL_CAPTURES_NONE}},
    };
    test_random random = {test_seed(11)};
    for (size_t g = 0; g < sizeof grounds / sizeof *grounds; g++)
        for (size_t round = 0; round < ROUNDS; round++) {
            loch_pool_options options = grounds[g].options;
            options.size = sizeof options;
            pool_bench bench = pool_bench_open(grounds[g].device, &options);
            block blocks[SLOTS] = {{0}};
            size_t order[SLOTS];
            for (size_t step = 0; step < STEPS; step++) {
                block *b = &blocks[test_random_below(&random, SLOTS)];
                if (!b->address) {
                    block_take(&bench, &random, b, NULL);
                } else {
                    CHECK_OK(loch_free(bench.pool, b->address));
                    b->address = NULL;
                }
            }
            bool is_gone[SLOTS] = {false};
            for (size_t i = 0; i < SLOTS; i++)
                is_gone[i] = blocks[i].address && test_random_below(&random, 10); /* a tenth stays */
            for (size_t i = 0; i < SLOTS; i++)
                if (is_gone[i]) CHECK_OK(loch_free(bench.pool, blocks[i].address));
            CHECK_OK(loch_device_sync(bench.device));
            if (round % 2) (void)pool_trim(bench.pool, round == 1 ? SIZE_MAX : 0);
            const bool is_bared = round % 2 && round != 1 && !strcmp(grounds[g].device, RAW);
            shuffle(&random, order, SLOTS);
            for (size_t i = 0; i < SLOTS && !is_bared; i++) {
                block *b = &blocks[order[i]];
                if (!is_gone[order[i]]) continue;
                block_take(&bench, &random, b, b->address);
                if (i % 16 == 0) pool_expect_whole(bench.pool);
            }
            sim_expect_order(bench.device);
            for (size_t i = 0; i < SLOTS; i++) {
                if (!blocks[i].address || (is_bared && is_gone[i])) continue;
                block_expect(&blocks[i]);
                CHECK_OK(loch_free(bench.pool, blocks[i].address));
            }
            CHECK_OK(loch_device_sync(bench.device));
            pool_bench_close(&bench);
        }
}

/* A pool of graphs goes back to an old set of blocks, whatever was allocated in between: what a program does that
 * captures one graph after the other from a state that it keeps. */
static void a_pool_of_graphs_returns_to_an_old_set(void **state)
{
    (void)state;
    static const char *const some[] = {SIM, SIM ",alias=off", RAW, "cpu"};
    test_random random = {test_seed(17)};
    for (size_t d = 0; d < 4; d++)
        for (size_t round = 0; round < ROUNDS; round++) {
            const loch_pool_options options = {.size = sizeof options, .captures = LOCH_POOL_CAPTURES_SHARED};
            pool_bench bench = pool_bench_open(some[d], &options);
            block sets[2][SLOTS] = {{{0}}};
            size_t order[SLOTS];
            const bool is_captured = round % 2 && d < 2;
            loch_sim_graph *graph = NULL;
            if (is_captured) CHECK_OK(loch_sim_capture_begin(bench.streams[0]));
            for (size_t step = 0; step < 2 * STEPS; step++) { /* the first set, then another one in its place */
                block *blocks = sets[step >= STEPS], *b = &blocks[test_random_below(&random, SLOTS)];
                if (step == STEPS)
                    for (size_t i = 0; i < SLOTS; i++)
                        CHECK_OK(loch_free(bench.pool, sets[0][i].address));
                b->is_small = step >= STEPS || round >= 2; /* slabs lie elsewhere in the second set */
                if (!b->address) {
                    block_take(&bench, &random, b, NULL);
                } else {
                    CHECK_OK(loch_free(bench.pool, b->address));
                    b->address = NULL;
                }
            }
            for (size_t i = 0; i < SLOTS; i++)
                CHECK_OK(loch_free(bench.pool, sets[1][i].address));
            shuffle(&random, order, SLOTS);
            for (size_t i = 0; i < SLOTS; i++) {
                block *b = &sets[0][order[i]];
                if (b->address) block_take(&bench, &random, b, b->address);
            }
            pool_expect_whole(bench.pool);
            if (is_captured) CHECK_OK(loch_sim_capture_end(bench.streams[0], &graph));
            if (!is_captured) CHECK_OK(loch_device_sync(bench.device));
            for (size_t i = 0; i < SLOTS; i++) {
                if (sets[0][i].address && !is_captured) block_expect(&sets[0][i]);
                CHECK_OK(loch_free(bench.pool, sets[0][i].address));
            }
            loch_sim_graph_destroy(graph);
            CHECK_OK(loch_device_sync(bench.device));
            pool_bench_end_streams(&bench);
            loch_allocator_release(bench.pool);
            loch_device_release(bench.device);
        }
}

/* Two slabs of a class could have a block at one address. In a pool of graphs the right one is made, although slabs of
 * another class have been there since. */
static void a_slab_comes_back_among_its_neighbours(void **state)
{
    (void)state;
    static const size_t shifts[] = {9000, 20000, 28000, 36000};
    for (size_t k = 0; k < 4; k++) {
        const loch_pool_options options = {.size = sizeof options, .captures = LOCH_POOL_CAPTURES_SHARED};
        pool_bench bench = pool_bench_open(SIM, &options);
        enum { SMALL = 64, OTHERS = 120 };
        void *small[SMALL], *others[OTHERS];
        void *before = pool_alloc_on(bench.pool, shifts[k], bench.a);
        for (size_t i = 0; i < SMALL; i++)
            small[i] = pool_alloc_on(bench.pool, 512, bench.a);
        void *behind = pool_alloc_on(bench.pool, 20000, bench.a);
        CHECK_OK(loch_free(bench.pool, before));
        CHECK_OK(loch_free(bench.pool, behind));
        for (size_t i = 0; i < SMALL; i++)
            CHECK_OK(loch_free(bench.pool, small[i]));
        expect_put(bench.pool, before, 60000, bench.a); /* ends the slabs, which are empty */
        CHECK_OK(loch_free(bench.pool, before));
        for (size_t i = 0; i < OTHERS; i++)
            others[i] = pool_alloc_on(bench.pool, 8000, bench.a);
        for (size_t i = 0; i < OTHERS; i++)
            CHECK_OK(loch_free(bench.pool, others[i]));
        for (size_t i = SMALL; i--;) /* those near the end of their slab first */
            expect_put(bench.pool, small[i], 512, bench.a);
        expect_put(bench.pool, behind, 20000, bench.a);
        expect_put(bench.pool, before, shifts[k], bench.a);
        pool_expect_whole(bench.pool);
        CHECK_OK(loch_free(bench.pool, before));
        CHECK_OK(loch_free(bench.pool, behind));
        for (size_t i = 0; i < SMALL; i++)
            CHECK_OK(loch_free(bench.pool, small[i]));
        pool_bench_end_streams(&bench);
        loch_allocator_release(bench.pool);
        loch_device_release(bench.device);
    }
}

/* Addresses at random: each call places the block there or changes nothing. */
static void random_addresses_do_no_harm(void **state)
{
    (void)state;
    test_random random = {test_seed(13)};
    size_t placed = 0;
    for (size_t d = 0; d < DEVICES; d++) {
        pool_bench bench = pool_bench_open(devices[d], NULL);
        block blocks[SLOTS] = {{0}};
        char *origin = pool_alloc(bench.pool, 1 << 20);
        for (size_t step = 0; step < 4 * STEPS; step++) {
            block *b = &blocks[test_random_below(&random, SLOTS)];
            if (b->address) {
                block_expect(b);
                CHECK_OK(loch_free(bench.pool, b->address));
                b->address = NULL;
            } else if (test_random_below(&random, 3) == 0) {
                block_take(&bench, &random, b, NULL);
            } else {
                void *at;
                b->bytes = random_bytes(&random);
                b->stream = 0;
                char *address = origin + test_random_below(&random, 4 << 11) * 512;
                if (put(bench.pool, address, b->bytes, bench.streams[0], &at) == LOCH_OK) {
                    assert_ptr_equal(at, address);
                    b->address = at;
                    b->seed = test_random_next(&random);
                    CHECK_OK(loch_fill_on(at, b->bytes, (char[]){(char)b->seed}, 1, bench.streams[0]));
                    placed++;
                } else {
                    assert_null(at);
                }
            }
            if (step % 16 == 0) pool_expect_whole(bench.pool);
            CHECK_OK(loch_device_sync(bench.device));
        }
        for (size_t i = 0; i < SLOTS; i++)
            CHECK_OK(loch_free(bench.pool, blocks[i].address));
        CHECK_OK(loch_free(bench.pool, origin));
        sim_expect_order(bench.device);
        pool_bench_close(&bench);
    }
    assert_true(placed > 100);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        POOL_TEST(a_freed_block_comes_back_where_it_was),
        POOL_TEST(tags_sizes_and_alignments_are_kept),
        POOL_TEST(bare_addresses_get_memory),
        POOL_TEST(wrong_addresses_are_refused),
        POOL_TEST(an_older_request_has_no_address),
        POOL_TEST(memory_that_a_stream_uses_is_busy),
        POOL_TEST(idle_memory_of_another_stream_is_taken),
        POOL_TEST(caches_of_other_threads_are_flushed),
        POOL_TEST(memory_that_sleeps_is_busy),
        POOL_TEST(memory_of_a_capture_comes_back_in_it),
        POOL_TEST(wrappers_pass_the_address_on),
        POOL_TEST(sessions_and_buffers_take_blocks_at_addresses),
        POOL_TEST(a_live_set_comes_back),
        POOL_TEST(a_pool_of_graphs_returns_to_an_old_set),
        POOL_TEST(a_slab_comes_back_among_its_neighbours),
        POOL_TEST(random_addresses_do_no_harm),
    };
    return cmocka_run_group_tests_name("blocks at addresses", tests, NULL, NULL);
}

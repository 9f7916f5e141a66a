/* SPDX-License-Identifier: MIT */
/* The cap on free memory: whatever the order and the sizes of frees, what is above the cap goes back once streams have
 * passed. What may stay is memory of handles that are in use in part. */
#include "memory/pool/heap/blocks.h"
#include "pool_fixture.h"

#define MIB TEST_MIB
#define GIB TEST_GIB
#define BLOCKS_MAX 16384

typedef struct idle {
    loch_device *device;
    loch_allocator *pool;
    size_t count;
    void *blocks[BLOCKS_MAX];
    size_t bytes[BLOCKS_MAX];
} idle;

static idle it;

static void idle_open(const char *device, const loch_pool_options *options)
{
    it = (idle){.device = sim_open(device)};
    it.pool = pool_make(it.device, options);
}

static void idle_add(size_t bytes)
{
    assert_true(it.count < BLOCKS_MAX);
    it.bytes[it.count] = bytes;
    it.blocks[it.count++] = pool_alloc(it.pool, bytes);
}

/* Puts the blocks into another order. */
typedef enum idle_order { IDLE_ASCENDING, IDLE_DESCENDING, IDLE_SHUFFLED, IDLE_ORDERS } idle_order;

static void idle_arrange(idle_order order, uint64_t seed)
{
    test_random random = {seed};
    for (size_t i = 0; order != IDLE_ASCENDING && i < it.count; i++) {
        const size_t other = order == IDLE_DESCENDING ? it.count - 1 - i : test_random_below(&random, it.count);
        if (order == IDLE_DESCENDING && other <= i) break;
        void *const block = it.blocks[i];
        it.blocks[i] = it.blocks[other];
        it.blocks[other] = block;
    }
}

/* Returns the bytes of handles that contain only free blocks, of any stream. */
static size_t idle_count_handles(loch_allocator *allocator)
{
    lochi_pool *pool = lochi_pool_of(allocator);
    size_t bytes = 0;
    lochi_lock_take(&pool->lock);
    for (const pool_handle *handle = pool->handles; handle; handle = handle->next) {
        bool is_idle = true;
        for (const pool_block *block = NULL; is_idle && (block = lochi_pool_next_block(pool, block));)
            if (block->start < handle->at + handle->bytes && block->start + block->bytes > handle->at)
                is_idle = lochi_pool_state(block) == POOL_FREE;
        if (is_idle) bytes += handle->bytes;
    }
    lochi_lock_drop(&pool->lock);
    return bytes;
}

/* Calls of a pool that end with a look at the cap. */
typedef enum idle_call { IDLE_INFO, IDLE_SMALL, IDLE_LARGE, IDLE_STATS, IDLE_PRINT, IDLE_USE, IDLE_CALLS } idle_call;

static void idle_do(idle_call call)
{
    if (call == IDLE_INFO) (void)pool_info(it.pool);
    if (call == IDLE_SMALL) CHECK_OK(loch_free(it.pool, pool_alloc(it.pool, 100)));
    if (call == IDLE_LARGE) CHECK_OK(loch_free(it.pool, pool_alloc(it.pool, 3 * MIB)));
    if (call == IDLE_STATS) (void)pool_stats(it.pool);
    if (call == IDLE_PRINT) (void)test_pool_print(it.pool, NULL, 0);
    if (call == IDLE_USE) {
        void *block = pool_alloc(it.pool, 100);
        CHECK_OK(loch_allocator_record_use(it.pool, block, loch_stream_get_default(it.device)));
        CHECK_OK(loch_free(it.pool, block));
    }
}

/* Free bytes, without a call that looks at the cap. */
static size_t idle_free_bytes(void)
{
    lochi_pool *pool = lochi_pool_of(it.pool);
    lochi_lock_take(&pool->lock);
    const size_t bytes = lochi_pool_free_bytes(pool);
    lochi_lock_drop(&pool->lock);
    return bytes;
}

/* --- the preset of whole blocks --- */

static void whole_blocks_below_a_mebibyte_are_capped(void **state)
{
    (void)state;
    static const size_t sizes[] = {MIB, 700 * TEST_KIB, 16 * TEST_KIB};
    for (size_t s = 0; s < 2; s++)
        for (int order = 0; order < IDLE_ORDERS; order++) {
            const loch_pool_options options = {.size = sizeof options, .preset = LOCH_POOL_WHOLE_BLOCKS};
            idle_open("sim:80GiB", &options);
            for (size_t i = 0; i < 8 * GIB / MIB; i++)
                idle_add(sizes[(s + i % 7 / 6) % 3]);
            idle_arrange((idle_order)order, 7);
            for (size_t i = 0; i < it.count; i++)
                CHECK_OK(loch_free(it.pool, it.blocks[i]));
            CHECK_OK(loch_device_sync(it.device));
            const loch_pool_info info = pool_info(it.pool);
            assert_int_equal(info.idle_bytes, GIB);
            assert_true(info.reserved_bytes <= GIB);
            assert_true(info.reserved_bytes > GIB / 2); /* and not everything */
            assert_true(info.handles_released > 0);
            pool_expect_whole(it.pool);
            pool_end_sim(it.pool, it.device);
        }
}

/* The default cap leaves larger blocks alone: they are what the preset keeps. One that was asked for counts all. */
static void whole_blocks_above_a_mebibyte_obey_an_explicit_cap(void **state)
{
    (void)state;
    static const char *const devices[] = {"cpu", "sim:8GiB"};
    for (size_t d = 0; d < 2; d++)
        for (int is_explicit = 0; is_explicit < 2; is_explicit++) {
            const loch_pool_options options = {
                .size = sizeof options, .preset = LOCH_POOL_WHOLE_BLOCKS, .idle_bytes = is_explicit ? 64 * MIB : 0};
            idle_open(devices[d], &options);
            for (size_t i = 0; i < 200; i++)
                idle_add(i % 2 ? 12 * MIB : MIB / 2);
            for (size_t i = 0; i < it.count; i++)
                CHECK_OK(loch_free(it.pool, it.blocks[i]));
            CHECK_OK(loch_device_sync(it.device));
            const loch_pool_info info = pool_info(it.pool);
            if (is_explicit)
                assert_true(info.reserved_bytes <= 64 * MIB);
            else
                assert_true(info.reserved_bytes >= 1200 * MIB); /* small ones are 50 MiB */
            pool_expect_whole(it.pool);
            CHECK_OK(loch_pool_set_idle(it.pool, 16 * MIB));
            assert_true(pool_info(it.pool).reserved_bytes <= 16 * MIB);
            pool_end(it.pool, it.device);
        }
}

static void whole_blocks_on_the_cpu_obey_the_cap(void **state)
{
    (void)state;
    const loch_pool_options options = {
        .size = sizeof options, .preset = LOCH_POOL_WHOLE_BLOCKS, .idle_bytes = 32 * MIB};
    idle_open("cpu", &options);
    for (size_t i = 0; i < 512; i++)
        idle_add(MIB / 2 + i % 3 * 1000);
    for (size_t i = 0; i < it.count; i++) {
        CHECK_OK(loch_free(it.pool, it.blocks[i]));
        if (idle_free_bytes() > 32 * MIB) assert_int_equal(idle_count_handles(it.pool), 0);
    }
    assert_true(pool_info(it.pool).free_bytes <= 32 * MIB);
    assert_true(pool_info(it.pool).free_bytes > 16 * MIB);
    pool_end(it.pool, it.device);
}

/* --- the standard preset --- */

static void idle_fill(size_t bytes)
{
    for (size_t size = 2 * MIB, sum = 0; sum < bytes; sum += size, size = size < 512 * MIB ? 2 * size : 2 * MIB)
        idle_add(size);
}

static void frees_in_any_order_obey_the_cap(void **state)
{
    (void)state;
    static const char *const devices[] = {"sim:80GiB", "sim:80GiB,alias=off", "sim:80GiB,clock=stepped",
                                          "sim:80GiB,event_lag=50000"};
    const loch_pool_options options = {.size = sizeof options, .idle_bytes = GIB};
    for (size_t d = 0; d < sizeof devices / sizeof *devices; d++)
        for (int order = 0; order < IDLE_ORDERS; order++)
            for (int is_synced = 0; is_synced < 2; is_synced++) {
                idle_open(devices[d], &options);
                idle_fill(20 * GIB);
                idle_arrange((idle_order)order, 5);
                for (size_t i = 0; i < it.count; i++) {
                    CHECK_OK(loch_free(it.pool, it.blocks[i]));
                    if (is_synced) CHECK_OK(loch_device_sync(it.device));
                    /* what was freed last may be under way */
                    if (is_synced && idle_free_bytes() > GIB + 512 * MIB)
                        assert_int_equal(idle_count_handles(it.pool), 0);
                }
                CHECK_OK(loch_device_sync(it.device));
                idle_do((idle_call)((size_t)order * 2 + (size_t)is_synced) % IDLE_CALLS);
                assert_true(idle_free_bytes() <= GIB);
                assert_true(pool_info(it.pool).reserved_bytes > GIB / 2);
                pool_expect_whole(it.pool);
                pool_end_sim(it.pool, it.device);
            }
}

/* A stream that is always some frees behind: what has passed goes, though it is merged with what has not. */
static void a_stream_that_lags_behind_obeys_the_cap(void **state)
{
    (void)state;
    const loch_pool_options options = {.size = sizeof options, .idle_bytes = 64 * MIB};
    idle_open("sim:8GiB,clock=stepped", &options);
    loch_stream *stream = loch_stream_get_default(it.device);
    for (size_t i = 0; i < 256; i++)
        idle_add(16 * MIB);
    size_t most = 0;
    for (size_t i = 0; i < it.count; i++) {
        CHECK_OK(sim_busy(stream, 1000));
        CHECK_OK(loch_free(it.pool, it.blocks[i]));
        if (i >= 8) CHECK_OK(loch_sim_advance(it.device, 1000)); /* eight kernels are under way */
        if (idle_free_bytes() > most) most = idle_free_bytes();
    }
    assert_true(most <= 64 * MIB + 10 * 16 * MIB + 128 * MIB); /* the cap, what is under way, and a handle */
    CHECK_STATUS(loch_stream_query(stream), LOCH_E_BUSY);
    assert_true(idle_free_bytes() > 64 * MIB); /* it may not go yet */
    CHECK_OK(loch_sim_advance(it.device, 1000000));
    idle_do(IDLE_SMALL);
    assert_true(idle_free_bytes() <= 64 * MIB);
    pool_end_sim(it.pool, it.device);
}

/* A thread that is served from its own cache looks at the cap, too, while something waits for it. */
static void a_thread_with_a_cache_of_its_own_obeys_the_cap(void **state)
{
    (void)state;
    for (int call = 0; call < IDLE_CALLS; call++) {
        const loch_pool_options options = {.size = sizeof options, .idle_bytes = 8 * MIB};
        idle_open("sim:8GiB,clock=stepped", &options);
        loch_stream *stream = loch_stream_get_default(it.device);
        CHECK_OK(loch_free(it.pool, pool_alloc(it.pool, 100))); /* kept by the thread from now on */
        CHECK_OK(sim_busy(stream, 1000));
        CHECK_OK(loch_free(it.pool, pool_alloc(it.pool, 256 * MIB)));
        idle_do((idle_call)call);
        assert_true(idle_free_bytes() >= 256 * MIB);
        CHECK_OK(loch_device_sync(it.device));
        idle_do((idle_call)call);
        assert_true(idle_free_bytes() <= 8 * MIB);
        lochi_pool *pool = lochi_pool_of(it.pool);
        assert_int_equal(atomic_load(&pool->gate), 0); /* and is served there again */
        pool_end_sim(it.pool, it.device);
    }
}

/* Blocks that another stream uses are not idle before it has passed, and then are. */
static void blocks_that_others_use_become_idle_behind_them(void **state)
{
    (void)state;
    const loch_pool_options options = {.size = sizeof options, .idle_bytes = 32 * MIB};
    idle_open("sim:8GiB,clock=stepped", &options);
    loch_stream *other = sim_stream(it.device, LOCH_STREAM_INDEPENDENT);
    for (size_t i = 0; i < 64; i++)
        idle_add(8 * MIB);
    for (size_t i = 0; i < it.count; i++) {
        CHECK_OK(sim_busy(other, 1000));
        CHECK_OK(loch_allocator_record_use(it.pool, it.blocks[i], other));
        CHECK_OK(loch_free(it.pool, it.blocks[i]));
    }
    assert_true(pool_info(it.pool).reserved_bytes >= 512 * MIB);
    CHECK_OK(loch_device_sync(it.device));
    idle_do(IDLE_LARGE);
    assert_int_equal(pool_info(it.pool).waiting_bytes, 0);
    assert_true(idle_free_bytes() <= 32 * MIB);
    loch_stream_close(other);
    pool_end_sim(it.pool, it.device);
}

/* --- what frees above the cap cost --- */

/* Returns the blocks visited so far to find idle handles. */
static uint64_t idle_visits(void)
{
    return lochi_pool_of(it.pool)->idle_visits;
}

/* A free above the cap visits a few blocks, not all free ones: in any order, for blocks smaller than a handle, of its
 * half or larger, that are merged or kept as pieces. */
static void a_free_above_the_cap_visits_few_blocks(void **state)
{
    (void)state;
    static const size_t sizes[] = {64 * TEST_KIB, MIB, 3 * MIB, 0};
    for (int preset = LOCH_POOL_STANDARD; preset <= LOCH_POOL_WHOLE_BLOCKS; preset++)
        for (size_t s = 0; s < 4; s++)
            for (int order = 0; order < IDLE_ORDERS; order++) {
                const loch_pool_options options = {
                    .size = sizeof options, .preset = (loch_pool_preset)preset, .idle_bytes = 16 * MIB};
                idle_open("sim:80GiB", &options);
                for (size_t i = 0; i < 8192; i++)
                    idle_add(sizes[s] ? sizes[s] : 10000 + i % 97 * 256);
                idle_arrange((idle_order)order, 11);
                const uint64_t before = idle_visits();
                for (size_t i = 0; i < it.count; i++)
                    CHECK_OK(loch_free(it.pool, it.blocks[i]));
                const uint64_t visits = idle_visits() - before;
                if (visits > 16 * it.count)
                    fail_msg("preset %d, %zu bytes, order %d: %llu blocks visited by %zu frees", preset, sizes[s],
                             order, (unsigned long long)visits, it.count);
                /* threads cache some blocks, and with them handles */
                if (pool_info(it.pool).free_bytes > 16 * MIB) assert_int_equal(idle_count_handles(it.pool), 0);
                pool_expect_whole(it.pool);
                pool_end_sim(it.pool, it.device);
            }
}

/* Free pieces that the default cap ignores are not visited again by every free. */
static void pieces_that_may_stay_cost_nothing(void **state)
{
    (void)state;
    const loch_pool_options options = {.size = sizeof options, .preset = LOCH_POOL_WHOLE_BLOCKS};
    idle_open("sim:80GiB", &options);
    for (size_t i = 0; i < 4096; i++)
        idle_add(3 * MIB);
    for (size_t i = 0; i < 4096; i++)
        idle_add(MIB);
    for (size_t i = 0; i < 4096; i++)
        CHECK_OK(loch_free(it.pool, it.blocks[i]));
    const uint64_t before = idle_visits();
    for (size_t i = 4096; i < it.count; i++)
        CHECK_OK(loch_free(it.pool, it.blocks[i]));
    assert_true(idle_visits() - before <= (uint64_t)16 * 4096);
    const loch_pool_info info = pool_info(it.pool);
    assert_true(info.free_bytes >= (size_t)4096 * 3 * MIB);
    assert_true(info.free_bytes <= (size_t)4096 * 3 * MIB + GIB);
    pool_expect_whole(it.pool);
    pool_end_sim(it.pool, it.device);
}

/* Where no handle is without a live block, frees above the cap look at nothing and record no events. The pool says how
 * much it cannot give back. */
static void memory_that_cannot_go_back_is_counted(void **state)
{
    (void)state;
    for (int preset = LOCH_POOL_STANDARD; preset <= LOCH_POOL_WHOLE_BLOCKS; preset++) {
        const loch_pool_options options = {
            .size = sizeof options, .preset = (loch_pool_preset)preset, .idle_bytes = 64 * MIB};
        idle_open("sim:80GiB", &options);
        for (size_t i = 0; i < 1024; i++)
            idle_add(MIB);
        loch_pool_info info = pool_info(it.pool);
        assert_int_equal(info.excess_bytes, 0);
        const uint64_t events = info.events_recorded;
        for (size_t i = 0; i < it.count; i += 2)
            CHECK_OK(loch_free(it.pool, it.blocks[i]));
        info = pool_info(it.pool);
        assert_int_equal(info.events_recorded, events);
        assert_int_equal(info.reserved_bytes, 1024 * MIB);
        assert_int_equal(info.excess_bytes, info.free_bytes - 64 * MIB);
        char text[2048];
        test_pool_print(it.pool, text, sizeof text);
        assert_non_null(strstr(text, "above the cap: "));
        for (size_t i = 1; i < it.count; i += 2)
            CHECK_OK(loch_free(it.pool, it.blocks[i]));
        info = pool_info(it.pool);
        assert_true(info.free_bytes <= 64 * MIB);
        assert_int_equal(info.excess_bytes, 0);
        pool_end_sim(it.pool, it.device);
    }
}

/* Handles that were idle before a pool had to give back are found, too. */
static void memory_that_was_idle_before_the_cap_goes_back(void **state)
{
    (void)state;
    idle_open("sim:8GiB", NULL);
    for (size_t i = 0; i < 64; i++)
        idle_add(16 * MIB);
    for (size_t i = 0; i < it.count - 1; i++)
        CHECK_OK(loch_free(it.pool, it.blocks[i]));
    lochi_pool *pool = lochi_pool_of(it.pool);
    lochi_lock_take(&pool->lock);
    pool->idle = 32 * MIB;
    pool->is_obedient = true; /* as the family and the headroom do */
    lochi_lock_drop(&pool->lock);
    CHECK_OK(loch_free(it.pool, it.blocks[it.count - 1]));
    assert_true(pool_info(it.pool).free_bytes <= 32 * MIB);
    pool_expect_whole(it.pool);
    pool_end_sim(it.pool, it.device);
}

/* --- random programs --- */

#define STREAMS 3

/* Makes any call, except those that a thread's cache may serve, and those that free something themselves on devices
 * whose events lag. */
static void idle_do_any(test_random *random, bool is_lagging)
{
    idle_call call = (idle_call)test_random_below(random, IDLE_CALLS);
    if (call == IDLE_SMALL) call = IDLE_USE;
    if (is_lagging && call != IDLE_STATS && call != IDLE_PRINT) call = IDLE_INFO;
    idle_do(call);
}

/* What any call leaves: the cap holds, or no handle is free as a whole. */
static void idle_expect(size_t cap, uint64_t seed, size_t step)
{
    if (idle_free_bytes() > cap && idle_count_handles(it.pool))
        fail_msg("seed %llu, step %zu: %zu bytes are free, and %zu in whole handles, with a cap of %zu",
                 (unsigned long long)seed, step, idle_free_bytes(), idle_count_handles(it.pool), cap);
}

static size_t idle_choose_bytes(test_random *random)
{
    static const size_t most[] = {4096, 64 * TEST_KIB, MIB, 4 * MIB, 40 * MIB};
    return 1 + test_random_below(random, most[test_random_below(random, 5)]);
}

static void idle_free_one(test_random *random, loch_stream *const *streams, size_t place)
{
    loch_stream *stream = streams[test_random_below(random, streams[1] ? STREAMS : 1)];
    const size_t how = test_random_below(random, 8);
    if (how == 0) CHECK_OK(loch_allocator_record_use(it.pool, it.blocks[place], stream));
    if (how == 1) {
        CHECK_OK(loch_device_sync(it.device)); /* in order behind all */
        CHECK_OK(loch_allocator_free_on(it.pool, it.blocks[place], stream));
    } else {
        CHECK_OK(loch_free(it.pool, it.blocks[place]));
    }
    it.blocks[place] = it.blocks[--it.count];
}

static void idle_run(const char *device, const loch_pool_options *options, uint64_t seed)
{
    test_random random = {seed};
    const bool is_lagging = strstr(device, "lag") != NULL;
    idle_open(device, options);
    loch_stream *streams[STREAMS] = {NULL};
    const size_t count = seed % 3 ? STREAMS : 1;
    for (size_t i = 0; i < count; i++)
        streams[i] = sim_stream(it.device, LOCH_STREAM_INDEPENDENT);
    for (size_t step = 0; step < 400; step++) {
        const size_t what = test_random_below(&random, 10);
        loch_stream *stream = streams[test_random_below(&random, count)];
        if (what == 0) {
            CHECK_OK(sim_busy(stream, 1 + test_random_below(&random, 100000)));
        } else if (what == 1) {
            CHECK_OK(loch_device_sync(it.device));
            idle_do_any(&random, is_lagging);
            idle_expect(options->idle_bytes, seed, step);
        } else if (it.count < 60 && what < 6) {
            const size_t bytes = idle_choose_bytes(&random);
            it.blocks[it.count] = pool_alloc_on(it.pool, bytes, stream);
            CHECK_OK(sim_writes(stream, it.blocks[it.count++], bytes));
        } else if (it.count) {
            idle_free_one(&random, streams, test_random_below(&random, it.count));
        }
        if (step % 50 == 0) pool_expect_whole(it.pool);
    }
    while (it.count)
        idle_free_one(&random, streams, 0);
    CHECK_OK(loch_device_sync(it.device));
    idle_do_any(&random, is_lagging);
    idle_expect(options->idle_bytes, seed, SIZE_MAX);
    for (size_t i = 0; i < count; i++)
        loch_stream_close(streams[i]);
    pool_end_sim(it.pool, it.device);
}

static void random_programs_obey_the_cap(void **state)
{
    (void)state;
    static const char *const devices[] = {"sim:4GiB", "sim:4GiB,granule=64KiB,alias=off", "sim:4GiB,event_lag=30000",
                                          "sim:4GiB,virtual=off"};
    const uint64_t first = test_seed(1);
    for (uint64_t seed = first; seed < first + 96; seed++) {
        const loch_pool_options options = {.size = sizeof options,
                                           .idle_bytes = seed % 5 ? (size_t)(seed % 7) * 16 * MIB + 1 : 1,
                                           .preset = seed % 4 == 3 ? LOCH_POOL_WHOLE_BLOCKS : LOCH_POOL_STANDARD};
        idle_run(devices[seed / 2 % 4], &options, seed);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        POOL_TEST(whole_blocks_below_a_mebibyte_are_capped),
        POOL_TEST(whole_blocks_above_a_mebibyte_obey_an_explicit_cap),
        POOL_TEST(whole_blocks_on_the_cpu_obey_the_cap),
        POOL_TEST(frees_in_any_order_obey_the_cap),
        POOL_TEST(a_stream_that_lags_behind_obeys_the_cap),
        POOL_TEST(a_thread_with_a_cache_of_its_own_obeys_the_cap),
        POOL_TEST(blocks_that_others_use_become_idle_behind_them),
        POOL_TEST(a_free_above_the_cap_visits_few_blocks),
        POOL_TEST(pieces_that_may_stay_cost_nothing),
        POOL_TEST(memory_that_cannot_go_back_is_counted),
        POOL_TEST(memory_that_was_idle_before_the_cap_goes_back),
        POOL_TEST(random_programs_obey_the_cap),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

/* SPDX-License-Identifier: MIT */
/* Where memory goes, and what it may cost: waste, driver time, and the budget that weighs one against the other. */
#include "faulty_driver.h"
#include "memory/pool/supply/place.h"
#include "pool_fixture.h"

#include <unistd.h>

#define MIB TEST_MIB
#define KIB TEST_KIB
#define STEPPED "sim:16GiB,clock=stepped"
#define BLOCKS 256
#define WATCHDOG_SECONDS 60

/* --- a program whose sizes change all the time --- */

typedef struct place_program {
    loch_device *device;
    loch_allocator *pool;
    void *blocks[BLOCKS];
    size_t bytes[BLOCKS];
    size_t held, peak; /* requested bytes */
} place_program;

static place_program place_begin(const char *device)
{
    place_program program = {.device = sim_open(device)};
    program.pool = pool_make(program.device, NULL);
    return program;
}

/* Frees a random block, and allocates another one of up to `most` bytes. */
static void place_exchange(place_program *program, test_random *random, size_t count, size_t most)
{
    const size_t i = test_random_below(random, count);
    if (program->blocks[i]) CHECK_OK(loch_free(program->pool, program->blocks[i]));
    program->held -= program->bytes[i];
    program->bytes[i] = 1 + test_random_below(random, most);
    program->blocks[i] = pool_alloc(program->pool, program->bytes[i]);
    program->held += program->bytes[i];
    if (program->held > program->peak) program->peak = program->held;
}

static void place_free_all(place_program *program)
{
    for (size_t i = 0; i < BLOCKS; i++) {
        CHECK_OK(loch_free(program->pool, program->blocks[i]));
        program->blocks[i] = NULL;
        program->bytes[i] = 0;
    }
    program->held = 0;
}

/* Runs a program of `steps` exchanges with `gap_ns` between two of them. Returns the parts that the pool held more than
 * the program needed, and that driver calls took of its time, in thousandths. */
typedef struct place_outcome {
    size_t excess, share;
} place_outcome;

static place_outcome place_run(uint64_t gap_ns, size_t steps)
{
    place_program program = place_begin(STEPPED);
    test_random random = {7};
    for (size_t step = 0; step < steps; step++) {
        place_exchange(&program, &random, 64, 32 * MIB);
        CHECK_OK(loch_sim_advance(program.device, gap_ns));
        if (step % 512 == 0) pool_expect_whole(program.pool);
    }
    const size_t reserved = pool_info(program.pool).peak_reserved_bytes;
    assert_true(reserved >= program.peak);
    const uint64_t spent_ns = sim_stats(program.device).modelled_ns;
    const place_outcome outcome = {(reserved - program.peak) * 1000 / program.peak, spent_ns * 1000 / (gap_ns * steps)};
    place_free_all(&program);
    pool_end_sim(program.pool, program.device);
    return outcome;
}

/* --- the budget --- */

/* A program with time to spare holds hardly more than it needs. */
static void a_calm_program_gets_tight_memory(void **state)
{
    (void)state;
    const place_outcome outcome = place_run(10000000, 2000);
    if (outcome.excess > 30 || outcome.share > 30) fail_msg("%zu and %zu thousandths", outcome.excess, outcome.share);
}

/* One that allocates all the time would spend most of it on driver calls. It holds more instead. */
static void a_busy_program_keeps_its_time(void **state)
{
    (void)state;
    const place_outcome calm = place_run(10000000, 2000), busy = place_run(100000, 2000);
    if (busy.excess > 300 || busy.share > 200) fail_msg("%zu and %zu thousandths", busy.excess, busy.share);
    assert_true(busy.share > calm.share);
}

/* The clock stands still: all of the time goes to driver calls. What is held more is bounded. */
static void memory_held_to_save_time_is_bounded(void **state)
{
    (void)state;
    place_program program = place_begin(STEPPED);
    test_random random = {11};
    for (size_t step = 0; step < 4000; step++)
        place_exchange(&program, &random, 64, 32 * MIB);
    const size_t reserved = pool_info(program.pool).peak_reserved_bytes;
    if (reserved > program.peak + program.peak * 2 / 5) fail_msg("%zu bytes are held for %zu", reserved, program.peak);
    place_free_all(&program);
    pool_end_sim(program.pool, program.device);
}

/* Handles are small in a calm program and large in one that takes all its memory at once. */
static void the_size_of_handles_follows_the_price(void **state)
{
    (void)state;
    size_t handles[2];
    for (size_t is_calm = 0; is_calm < 2; is_calm++) {
        place_program program = place_begin(STEPPED);
        for (size_t i = 0; i < 128; i++) {
            program.blocks[i] = pool_alloc(program.pool, 64 * MIB);
            if (is_calm) CHECK_OK(loch_sim_advance(program.device, 1000000000));
        }
        handles[is_calm] = pool_info(program.pool).handles;
        place_free_all(&program);
        pool_end_sim(program.pool, program.device);
    }
    if (handles[1] < 4 * handles[0]) fail_msg("%zu handles at once, %zu over time", handles[0], handles[1]);
}

/* --- waste --- */

/* The ends of blocks share granules. */
static void blocks_use_the_rest_of_a_granule(void **state)
{
    (void)state;
    place_program program = place_begin(STEPPED);
    for (size_t i = 0; i < 16; i++) {
        program.blocks[i] = pool_alloc(program.pool, 2 * MIB + 512 * KIB);
        CHECK_OK(loch_sim_advance(program.device, 1000000000));
    }
    assert_int_equal(pool_info(program.pool).reserved_bytes, 40 * MIB);
    place_free_all(&program);
    pool_end_sim(program.pool, program.device);
}

/* A hole whose memory was mapped elsewhere is taken again by a block of its size: it wastes nothing there. */
static void a_block_returns_to_a_hole_of_its_size(void **state)
{
    (void)state;
    place_program program = place_begin("sim:16GiB,clock=stepped,lag=1000");
    void *walls[3], *hole;
    walls[0] = pool_alloc(program.pool, 5 * MIB);
    hole = pool_alloc(program.pool, 33 * MIB);
    walls[1] = pool_alloc(program.pool, 6 * MIB);
    CHECK_OK(loch_sim_advance(program.device, 10000000000));
    CHECK_OK(loch_free(program.pool, hole));
    walls[2] = pool_alloc(program.pool, 38 * MIB); /* takes whole granules of the hole, and a few new ones */
    assert_true(pool_info(program.pool).handles_moved > 0);
    CHECK_OK(loch_device_sync(program.device));
    CHECK_OK(loch_sim_advance(program.device, 10000000000));
    assert_ptr_equal(pool_alloc(program.pool, 33 * MIB), hole);
    assert_int_equal(pool_info(program.pool).reserved_bytes, 82 * MIB);
    CHECK_OK(loch_free(program.pool, hole));
    for (size_t i = 0; i < 3; i++)
        CHECK_OK(loch_free(program.pool, walls[i]));
    pool_end_sim(program.pool, program.device);
}

/* --- old addresses --- */

/* A request fits over memory and the old addresses of that memory, which cannot be unmapped. It goes elsewhere. */
static void old_addresses_that_stay_mapped_are_left(void **state)
{
    (void)state;
    CHECK_OK(test_faulty_register());
    loch_device *device = sim_open("faulty:" STEPPED);
    loch_allocator *pool = pool_make(device, NULL);
    CHECK_OK(loch_pool_set_limit(pool, 68 * MIB)); /* so that memory moves */
    void *old = pool_alloc(pool, 64 * MIB), *wall = pool_alloc(pool, 2 * MIB);
    CHECK_OK(loch_free(pool, old));
    void *moved = pool_alloc(pool, 66 * MIB);
    assert_true(pool_info(pool).handles_moved > 0);
    CHECK_OK(loch_free(pool, wall));
    CHECK_OK(loch_free(pool, moved));
    CHECK_OK(loch_pool_set_limit(pool, 0));
    test_faulty_refuse_unmap(true);
    alarm(WATCHDOG_SECONDS);
    void *block = pool_alloc(pool, 130 * MIB);
    alarm(0);
    test_faulty_refuse_unmap(false);
    assert_true((char *)block >= (char *)wall);
    pool_expect_whole(pool);
    CHECK_OK(loch_free(pool, block));
    pool_end(pool, device);
}

/* --- several streams --- */

/* A stream whose request would make the pool grow waits for another one, and takes over what that one has freed. */
static void unfinished_memory_of_another_stream_is_taken_over(void **state)
{
    (void)state;
    loch_device *device = sim_open("sim:16GiB,clock=stepped,lag=1000");
    loch_allocator *pool = pool_make(device, NULL);
    loch_stream *a = sim_stream(device, LOCH_STREAM_INDEPENDENT), *b = sim_stream(device, LOCH_STREAM_INDEPENDENT);
    void *pieces[16];
    for (size_t i = 0; i < 16; i++)
        pieces[i] = pool_alloc_on(pool, 24 * MIB, a);
    for (size_t i = 0; i < 16; i++)
        CHECK_OK(sim_writes(a, pieces[i], 24 * MIB));
    for (size_t i = 0; i < 16; i += 2) /* no two neighbours */
        CHECK_OK(loch_free(pool, pieces[i]));
    void *block = pool_alloc_on(pool, 160 * MIB, b);
    CHECK_OK(sim_writes(b, block, 160 * MIB));
    const loch_pool_info info = pool_info(pool);
    assert_true(info.waits_on_device > 0);
    if (info.reserved_bytes > 400 * MIB) fail_msg("%zu bytes are held", info.reserved_bytes);
    CHECK_OK(loch_free(pool, block));
    for (size_t i = 1; i < 16; i += 2)
        CHECK_OK(loch_free(pool, pieces[i]));
    CHECK_OK(loch_device_sync(device));
    loch_stream_close(a);
    loch_stream_close(b);
    pool_end_sim(pool, device);
}

/* --- a long life --- */

/* Fifty programs one after the other in one pool, each with sizes of its own. None of them makes the next one hold
 * more. */
static void memory_does_not_creep(void **state)
{
    (void)state;
    place_program program = place_begin("sim:16GiB,clock=stepped,lag=100000");
    test_random random = {test_seed(3)};
    for (size_t round = 0; round < 50; round++) {
        const size_t count = 16 + test_random_below(&random, BLOCKS - 16);
        const size_t most = (size_t)4096 << test_random_below(&random, 14);
        for (size_t step = 0; step < 400; step++) {
            place_exchange(&program, &random, count, most);
            CHECK_OK(loch_sim_advance(program.device, 1000000));
        }
        const size_t reserved = pool_info(program.pool).reserved_bytes;
        if (reserved > program.peak + program.peak / 10 + 32 * MIB)
            fail_msg("round %zu: %zu bytes are held, %zu were needed at most", round, reserved, program.peak);
        pool_expect_whole(program.pool);
        place_free_all(&program);
    }
    pool_end_sim(program.pool, program.device);
}

/* Counts the searches for a better place of a pool in which none of them changes anything. */
static unsigned count_searches(lochi_pool *pool, unsigned requests)
{
    unsigned searches = 0;
    while (requests--) {
        if (lochi_pool_rests(pool)) continue;
        searches++;
        lochi_pool_miss(pool);
    }
    return searches;
}

/* A pool searches for all requests at first, and again after each change of its mappings; then for few. */
static void searches_that_change_nothing_become_rarer(void **state)
{
    (void)state;
    loch_device *device = sim_open("sim:64MiB");
    loch_allocator *allocator = pool_make(device, NULL);
    lochi_pool *pool = lochi_pool_of(allocator);
    for (size_t i = 0; i < 3; i++) {
        assert_int_equal(count_searches(pool, 16), 16);
        assert_in_range(count_searches(pool, 10000), 10, 32);
        pool->handles_moved++;
    }
    pool_end_sim(allocator, device);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        POOL_TEST(a_calm_program_gets_tight_memory),
        POOL_TEST(searches_that_change_nothing_become_rarer),
        POOL_TEST(a_busy_program_keeps_its_time),
        POOL_TEST(memory_held_to_save_time_is_bounded),
        POOL_TEST(the_size_of_handles_follows_the_price),
        POOL_TEST(blocks_use_the_rest_of_a_granule),
        POOL_TEST(a_block_returns_to_a_hole_of_its_size),
        POOL_TEST(old_addresses_that_stay_mapped_are_left),
        POOL_TEST(unfinished_memory_of_another_stream_is_taken_over),
        POOL_TEST(memory_does_not_creep),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

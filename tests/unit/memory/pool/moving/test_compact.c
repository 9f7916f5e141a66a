/* SPDX-License-Identifier: MIT */
/* Blocks that may move: pins, compaction, forbidding it. Contents are checked after every step, the pool's invariants
 * are walked, and simulated devices check the order of streams. */
#include "memory/pool/report/check.h"
#include "pool_fixture.h"
#include "steps.h"
#include "tensor_fixture.h"
#include <pthread.h>

typedef struct ground {
    const char *device;
    loch_pool_options options;
} ground;

static const ground grounds[] = {
    {"cpu", {.size = sizeof(loch_pool_options), .limit_bytes = 64 * TEST_MIB}},
    {"sim:256MiB,backed", {.size = sizeof(loch_pool_options), .limit_bytes = 64 * TEST_MIB}},
    {"sim:256MiB,backed,granule=64KiB", {.size = sizeof(loch_pool_options), .limit_bytes = 16 * TEST_MIB}},
    {"sim:256MiB,backed,virtual=off",
     {.size = sizeof(loch_pool_options), .limit_bytes = 64 * TEST_MIB, .handle_bytes = 16 * TEST_MIB}},
};

static pool_bench bench_open(const ground *on)
{
    return pool_bench_open(on->device, &on->options);
}

static void bench_close(pool_bench *b)
{
    sim_expect_order(b->device);
    pool_bench_close(b);
}

static loch_buffer *make(const pool_bench *b, size_t bytes, loch_stream *stream)
{
    const loch_request request = {.size = sizeof request, .stream = stream, .flags = LOCH_ALLOC_MOVABLE};
    loch_buffer *buffer = NULL;
    const loch_status status = loch_buffer_create(b->pool, bytes, &request, &buffer);
    if (status != LOCH_OK) assert_null(buffer);
    return buffer;
}

/* To or from host memory, and waits. */
static void transfer(const pool_bench *b, loch_buffer *buffer, void *host, size_t stream, bool is_put)
{
    void *address;
    const loch_copy_options copy = {.size = sizeof copy, .stream = b->streams[stream], .wait = LOCH_WAIT_END};
    CHECK_OK(loch_buffer_pin(buffer, b->streams[stream], &address));
    CHECK_OK(loch_copy_with(is_put ? address : host, is_put ? host : address, loch_buffer_get_bytes(buffer), &copy));
    CHECK_OK(loch_buffer_unpin(buffer, b->streams[stream]));
}

/* Contents that depend on a seed, written and read through the stream. */
static void put(const pool_bench *b, loch_buffer *buffer, uint32_t seed, size_t stream)
{
    void *address;
    CHECK_OK(loch_buffer_pin(buffer, b->streams[stream], &address));
    test_steps_write(b->streams[stream], address, loch_buffer_get_bytes(buffer), seed);
    CHECK_OK(loch_buffer_unpin(buffer, b->streams[stream]));
}

static void expect(const pool_bench *b, loch_buffer *buffer, uint32_t seed, size_t stream)
{
    const size_t bytes = loch_buffer_get_bytes(buffer);
    uint32_t *seen = malloc(bytes);
    assert_non_null(seen);
    transfer(b, buffer, seen, stream, false);
    test_steps_expect(seen, bytes, seed, "contents");
    free(seen);
}

/* Writes words that all differ, so that contents that slid too far or not far enough are seen. */
static void put_pattern(const pool_bench *b, loch_buffer *buffer, uint64_t seed)
{
    const size_t bytes = loch_buffer_get_bytes(buffer);
    char *host = malloc(bytes);
    test_pattern_write(host, bytes, seed);
    transfer(b, buffer, host, 0, true);
    free(host);
}

static void expect_pattern(const pool_bench *b, loch_buffer *buffer, uint64_t seed, size_t stream)
{
    const size_t bytes = loch_buffer_get_bytes(buffer);
    char *host = malloc(bytes);
    transfer(b, buffer, host, stream, false);
    const size_t differs = test_pattern_differs(host, bytes, seed);
    if (differs != bytes) fail_msg("byte %zu of %zu differs", differs, bytes);
    free(host);
}

/* --- pins --- */

static void a_pinned_buffer_stays(void **state)
{
    (void)state;
    for (size_t g = 0; g < sizeof grounds / sizeof *grounds; g++) {
        pool_bench b = bench_open(&grounds[g]);
        loch_buffer *buffer = make(&b, TEST_MIB, NULL), *part, *plain;
        void *one, *two;
        assert_true(loch_buffer_is_movable(buffer));
        assert_null(loch_buffer_get_address(buffer));
        CHECK_OK(loch_buffer_pin(buffer, NULL, &one));
        CHECK_OK(loch_buffer_slice(buffer, 4096, 100, &part));
        CHECK_OK(loch_buffer_pin(part, NULL, &two));
        assert_ptr_equal(two, (char *)one + 4096);
        assert_ptr_equal(loch_buffer_get_address(buffer), one);
        CHECK_OK(loch_buffer_unpin(part, NULL));
        CHECK_OK(loch_buffer_unpin(buffer, NULL));
        CHECK_FAILS(loch_buffer_unpin(buffer, NULL), INVALID);
        assert_null(loch_buffer_get_address(part));
        CHECK_OK(loch_buffer_create(b.pool, 100, NULL, &plain));
        assert_false(loch_buffer_is_movable(plain));
        CHECK_OK(loch_buffer_pin(plain, NULL, &one)); /* any buffer can be */
        assert_ptr_equal(one, loch_buffer_get_address(plain));
        CHECK_OK(loch_buffer_unpin(plain, NULL));
        const loch_request raw = {.size = sizeof raw, .bytes = 100, .flags = LOCH_ALLOC_MOVABLE};
        CHECK_FAILS(loch_allocator_alloc(b.pool, &raw, &one), INVALID);
        loch_buffer_release(plain);
        loch_buffer_release(part);
        loch_buffer_release(buffer);
        bench_close(&b);
    }
}

static void only_pools_are_compacted(void **state)
{
    (void)state;
    loch_device *cpu = sim_open("cpu");
    loch_allocator *direct;
    loch_buffer *buffer;
    CHECK_OK(loch_direct_create(cpu, "direct", NULL, &direct));
    const loch_request request = {.size = sizeof request, .flags = LOCH_ALLOC_MOVABLE};
    CHECK_FAILS(loch_buffer_create(direct, 10000, &request, &buffer), UNSUPPORTED);
    assert_null(buffer);
    CHECK_FAILS(loch_pool_compact(direct, NULL, NULL), INVALID);
    CHECK_FAILS(loch_pool_compact(NULL, NULL, NULL), INVALID);
    CHECK_FAILS(loch_pool_plan_compact(direct, NULL, NULL, NULL, NULL), INVALID);
    CHECK_FAILS(loch_pool_allow_moving(NULL), INVALID);
    CHECK_FAILS(loch_buffer_unpin(NULL, NULL), INVALID);
    CHECK_FAILS(loch_buffer_pin(NULL, NULL, NULL), INVALID);
    assert_int_equal(loch_buffer_get_generation(NULL), 0);
    assert_false(loch_buffer_is_movable(NULL));
    CHECK_FAILS(loch_pool_forbid_moving(direct), INVALID);
    CHECK_FAILS(loch_pool_set_move_hook(direct, NULL, NULL), INVALID);
    loch_allocator_release(direct);
    loch_device_release(cpu);
}

/* --- compaction --- */

#define SPREAD 64
#define LARGE(limit) ((limit)*2 / 5 & ~(size_t)4095) /* more than is free in one piece */

/* Fills the pool up to its limit with buffers, and frees every second one. */
static size_t spread(const pool_bench *b, loch_buffer **buffers, size_t bytes)
{
    size_t count = 0;
    const loch_request once = {.size = sizeof once, .flags = LOCH_ALLOC_MOVABLE | LOCH_ALLOC_NO_RETRY};
    while (count < SPREAD && loch_buffer_create(b->pool, bytes, &once, &buffers[count]) == LOCH_OK) {
        put(b, buffers[count], (uint32_t)count + 1, 0);
        count++;
    }
    for (size_t i = 0; i < count; i += 2)
        loch_buffer_clear(&buffers[i]);
    CHECK_OK(loch_device_sync(b->device));
    return count;
}

static void compaction_joins_what_is_free(void **state)
{
    (void)state;
    for (size_t g = 0; g < sizeof grounds / sizeof *grounds; g++) {
        pool_bench b = bench_open(&grounds[g]);
        const size_t limit = grounds[g].options.limit_bytes, size = limit / SPREAD - 4096;
        loch_buffer *buffers[SPREAD] = {NULL};
        const size_t count = spread(&b, buffers, size);
        assert_true(count > SPREAD / 2);
        loch_compact_report plan = {.size = sizeof plan}, report = {.size = sizeof report};
        const size_t wanted = g == 3 ? 6 * TEST_MIB : LARGE(limit); /* raw segments are apart from each other */
        const loch_compact_options options = {
            .size = sizeof options, .contiguous_bytes = wanted, .stream = b.streams[1]};
        CHECK_OK(loch_pool_plan_compact(b.pool, &options, NULL, NULL, &plan));
        CHECK_OK(loch_pool_compact(b.pool, &options, &report));
        pool_expect_whole(b.pool);
        assert_int_equal(report.moves, plan.moves);
        assert_int_equal(report.moved_bytes, plan.moved_bytes);
        assert_true(report.moved_bytes <= wanted + size);
        size_t moved = 0;
        for (size_t i = 0; i < count; i++) {
            if (!buffers[i]) continue;
            expect(&b, buffers[i], (uint32_t)i + 1, i % 2);
            moved += loch_buffer_get_generation(buffers[i]) != 0;
        }
        assert_int_equal(moved, report.moves);
        loch_buffer *large;
        CHECK_OK(loch_buffer_create(b.pool, wanted, NULL, &large)); /* fits within the limit now */
        pool_expect_whole(b.pool);
        loch_buffer_release(large);
        for (size_t i = 0; i < count; i++)
            loch_buffer_release(buffers[i]);
        bench_close(&b);
    }
}

/* An allocation that does not fit compacts by itself. */
static void a_request_compacts_as_its_last_step(void **state)
{
    (void)state;
    for (size_t g = 0; g < 3; g++) {
        pool_bench b = bench_open(&grounds[g]);
        const size_t limit = grounds[g].options.limit_bytes, size = limit / SPREAD - 4096;
        loch_buffer *buffers[SPREAD] = {NULL}, *large = NULL;
        const size_t count = spread(&b, buffers, size);
        void *address;
        CHECK_OK(loch_pool_forbid_moving(b.pool));
        CHECK_OK(loch_pool_forbid_moving(b.pool)); /* counted */
        CHECK_FAILS(loch_buffer_create(b.pool, LARGE(limit), NULL, &large), MOVING_FORBIDDEN);
        CHECK_FAILS(loch_pool_compact(b.pool, NULL, NULL), MOVING_FORBIDDEN);
        CHECK_OK(loch_pool_allow_moving(b.pool));
        CHECK_FAILS(loch_pool_compact(b.pool, NULL, NULL), MOVING_FORBIDDEN);
        CHECK_OK(loch_pool_allow_moving(b.pool));
        CHECK_FAILS(loch_pool_allow_moving(b.pool), INVALID);
        for (size_t i = 1; i < count; i += 2) /* all pinned: nothing can move */
            CHECK_OK(loch_buffer_pin(buffers[i], b.streams[0], &address));
        CHECK_FAILS_SET(loch_buffer_create(b.pool, LARGE(limit), NULL, &large),
                        TEST_SET(LIMIT) | TEST_SET(FRAGMENTED) | TEST_SET(DEVICE_MEMORY));
        pool_expect_whole(b.pool);
        for (size_t i = 1; i < count; i += 2)
            CHECK_OK(loch_buffer_unpin(buffers[i], b.streams[0]));
        const loch_request on_stream = {.size = sizeof on_stream, .stream = b.streams[1]};
        CHECK_OK(loch_buffer_create(b.pool, LARGE(limit), &on_stream, &large));
        pool_expect_whole(b.pool);
        put(&b, large, 0xabcd, 1);
        for (size_t i = 1; i < count; i += 2)
            expect(&b, buffers[i], (uint32_t)i + 1, 0);
        CHECK_OK(loch_device_sync(b.device));
        expect(&b, large, 0xabcd, 1);
        loch_buffer_release(large);
        for (size_t i = 0; i < count; i++)
            loch_buffer_release(buffers[i]);
        bench_close(&b);
    }
}

/* Holes that are smaller than any block: blocks slide, over themselves, in pieces or through scratch memory where holes
 * are tiny. */
static void blocks_slide_over_themselves(void **state)
{
    (void)state;
    static const size_t gaps[] = {300 * TEST_KIB, 40 * TEST_KIB, 9 * TEST_KIB};
    for (size_t g = 0; g < 3 * sizeof grounds / sizeof *grounds; g++) {
        const ground *on = &grounds[g / 3];
        if (g == 6) continue; /* whole granules in each hole: they are mapped elsewhere, and nothing has to move */
        const size_t gap = gaps[g % 3], hole = 300 * TEST_KIB, size = 700 * TEST_KIB, wanted = gap * 5;
        pool_bench b = bench_open(on);
        loch_buffer *buffers[24], *temporary[24];
        const size_t count = on->options.limit_bytes / (size + hole) < 24 ? 15 : 24;
        for (uint32_t i = 0; i < count; i++) {
            buffers[i] = make(&b, size, b.streams[0]);
            temporary[i] = make(&b, hole, b.streams[0]);
            assert_non_null(temporary[i]);
            put_pattern(&b, buffers[i], i + 1);
        }
        for (uint32_t i = 0; i < count; i++)
            loch_buffer_clear(&temporary[i]);
        CHECK_OK(loch_device_sync(b.device));
        for (uint32_t i = 0; i < count && gap < hole; i++) { /* all but a gap of each hole is taken again */
            temporary[i] = make(&b, hole - gap, b.streams[0]);
            put_pattern(&b, temporary[i], i + 100);
        }
        loch_buffer *filler[SPREAD] = {NULL}; /* nothing is free but the holes */
        const loch_request once = {.size = sizeof once, .flags = LOCH_ALLOC_NO_RETRY | LOCH_ALLOC_MOVABLE};
        CHECK_OK(loch_pool_forbid_moving(b.pool));
        for (size_t i = 0, bytes = 4 * TEST_MIB; i < SPREAD && bytes > gap; bytes /= 2)
            while (i < SPREAD && loch_buffer_create(b.pool, bytes, &once, &filler[i]) == LOCH_OK)
                i++;
        CHECK_OK(loch_pool_allow_moving(b.pool));
        pool_expect_whole(b.pool);
        loch_compact_report plan = {.size = sizeof plan}, report = {.size = sizeof report};
        const loch_compact_options options = {
            .size = sizeof options, .contiguous_bytes = wanted, .stream = b.streams[1]};
        CHECK_OK(loch_pool_plan_compact(b.pool, &options, NULL, NULL, &plan));
        CHECK_OK(loch_pool_compact(b.pool, &options, &report));
        pool_expect_whole(b.pool);
        assert_int_equal(report.moves, plan.moves);
        assert_true(report.moves > 0);
        loch_buffer *large;
        CHECK_OK(loch_buffer_create(b.pool, wanted, &once, &large));
        put(&b, large, 0x1234, 1);
        for (uint32_t i = 0; i < count; i++)
            expect_pattern(&b, buffers[i], i + 1, i % 2);
        for (uint32_t i = 0; i < count && gap < hole; i++)
            expect_pattern(&b, temporary[i], i + 100, i % 2);
        CHECK_OK(loch_pool_plan_compact(b.pool, NULL, NULL, NULL, &plan));
        CHECK_OK(loch_pool_compact(b.pool, NULL, &report));
        pool_expect_whole(b.pool);
        assert_int_equal(report.moves, plan.moves);
        assert_int_equal(report.moved_bytes, plan.moved_bytes);
        for (uint32_t i = 0; i < count; i++)
            expect_pattern(&b, buffers[i], i + 1, i % 2);
        expect(&b, large, 0x1234, 1);
        loch_buffer_release(large);
        for (size_t i = 0; i < SPREAD; i++)
            loch_buffer_release(filler[i]);
        for (size_t i = 0; i < count; i++)
            loch_buffer_release(temporary[i]);
        for (size_t i = 0; i < count; i++)
            loch_buffer_release(buffers[i]);
        bench_close(&b);
    }
}

/* Blocks with an alignment of their own keep it. */
static void moved_blocks_keep_their_alignment(void **state)
{
    (void)state;
    pool_bench b = bench_open(&grounds[1]);
    loch_buffer *buffers[16];
    for (uint32_t i = 0; i < 16; i++) {
        const loch_request request = {
            .size = sizeof request, .alignment = i % 4 == 1 ? 64 * TEST_KIB : 0, .flags = LOCH_ALLOC_MOVABLE};
        CHECK_OK(loch_buffer_create(b.pool, 300000 + 1000 * i, &request, &buffers[i]));
    }
    for (size_t i = 0; i < 16; i += 2)
        loch_buffer_clear(&buffers[i]);
    CHECK_OK(loch_pool_compact(b.pool, NULL, NULL));
    pool_expect_whole(b.pool);
    for (size_t i = 1; i < 16; i += 2) {
        void *address;
        CHECK_OK(loch_buffer_pin(buffers[i], NULL, &address));
        if (i % 4 == 1) assert_int_equal((uintptr_t)address % (64 * TEST_KIB), 0);
        CHECK_OK(loch_buffer_unpin(buffers[i], NULL));
        loch_buffer_release(buffers[i]);
    }
    bench_close(&b);
}

static void note_move(loch_allocator *pool, const loch_move *move, void *user)
{
    loch_move *last = user;
    assert_non_null(pool);
    last->from = move->from;
    last->to = move->to;
    last->bytes += move->bytes;
    last->buffer = move->buffer;
}

static void the_hook_hears_of_moves_and_the_budget_ends_them(void **state)
{
    (void)state;
    pool_bench b = bench_open(&grounds[1]);
    loch_buffer *buffers[SPREAD] = {NULL};
    const size_t size = TEST_MIB - 4096, count = spread(&b, buffers, size);
    loch_move seen = {0}, planned = {0};
    CHECK_OK(loch_pool_set_move_hook(b.pool, note_move, &seen));
    const loch_compact_options options = {.size = sizeof options, .budget_bytes = 3 * TEST_MIB};
    loch_compact_report report = {.size = sizeof report};
    CHECK_OK(loch_pool_plan_compact(b.pool, &options, note_move, &planned, &report));
    assert_int_equal(seen.bytes, 0); /* a plan moves nothing */
    CHECK_OK(loch_pool_compact(b.pool, &options, &report));
    assert_true(report.moved_bytes <= 3 * TEST_MIB && report.moves > 0);
    assert_int_equal(seen.bytes, planned.bytes);
    for (size_t i = 1; i < count; i += 2) {
        if (loch_buffer_get_id(buffers[i]) != seen.buffer) continue;
        void *address;
        CHECK_OK(loch_buffer_pin(buffers[i], NULL, &address));
        assert_ptr_equal(address, seen.to);
        CHECK_OK(loch_buffer_unpin(buffers[i], NULL));
    }
    CHECK_OK(loch_pool_set_move_hook(b.pool, NULL, NULL));
    const loch_compact_options too_much = {.size = sizeof too_much, .contiguous_bytes = 60 * TEST_MIB};
    CHECK_FAILS(loch_pool_compact(b.pool, &too_much, &report), FRAGMENTED);
    pool_expect_whole(b.pool);
    for (size_t i = 0; i < count; i++)
        loch_buffer_release(buffers[i]);
    bench_close(&b);
}

/* --- streams: work is queued all the time, and nothing waits on the host --- */

static void moves_come_in_the_order_of_streams(void **state)
{
    (void)state;
    const ground slow = {"sim:256MiB,backed,clock=stepped",
                         {.size = sizeof(loch_pool_options), .limit_bytes = 32 * TEST_MIB}};
    pool_bench b = bench_open(&slow);
    loch_buffer *buffers[16] = {NULL};
    for (uint32_t i = 0; i < 16; i++) {
        buffers[i] = make(&b, TEST_MIB + 4096, b.streams[i % 2]);
        assert_non_null(buffers[i]);
        CHECK_OK(sim_busy(b.streams[i % 2], 100000));
        put(&b, buffers[i], i + 1, i % 2);
    }
    for (uint32_t i = 0; i < 16; i += 3)
        loch_buffer_clear(&buffers[i]);
    for (uint32_t round = 0; round < 4; round++) {
        const loch_compact_options options = {.size = sizeof options, .stream = round % 2 ? b.streams[0] : NULL};
        CHECK_OK(loch_pool_compact(b.pool, &options, NULL));
        pool_expect_whole(b.pool);
        for (uint32_t i = 0; i < 16; i++) /* on its own stream, behind the move */
            if (buffers[i] && (i + round) % 4 == 0) put(&b, buffers[i], i + 1, i % 2);
        loch_buffer_clear(&buffers[round * 2 + 1]); /* freed and made again while the move may be under way */
        buffers[round * 2 + 1] = make(&b, 2 * TEST_MIB, b.streams[1]);
        if (buffers[round * 2 + 1]) put(&b, buffers[round * 2 + 1], round * 2 + 2, 1);
    }
    for (uint32_t i = 0; i < 16; i++)
        if (buffers[i]) expect(&b, buffers[i], i + 1, i % 2);
    for (uint32_t i = 0; i < 16; i++)
        loch_buffer_release(buffers[i]);
    bench_close(&b);
}

/* --- random programs against a list of what every buffer holds --- */

#define MODEL_SLOTS 40

static void random_programs_keep_the_contents_of_buffers(void **state)
{
    (void)state;
    for (size_t g = 0; g < sizeof grounds / sizeof *grounds; g++) {
        pool_bench b = bench_open(&grounds[g]);
        test_random random = {test_seed(0x90fe + g)};
        loch_buffer *buffers[MODEL_SLOTS] = {NULL};
        uint32_t seeds[MODEL_SLOTS] = {0};
        bool is_pinned[MODEL_SLOTS] = {false};
        void *pinned_at[MODEL_SLOTS] = {NULL};
        for (uint32_t step = 0; step < 400; step++) {
            const size_t slot = test_random_below(&random, MODEL_SLOTS), stream = test_random_below(&random, 2);
            const size_t what = test_random_below(&random, 10);
            if (what < 5 && !buffers[slot]) {
                const size_t bytes =
                    (1 + test_random_below(&random, grounds[g].options.limit_bytes / 64)) * 4 / 3 & ~(size_t)3;
                buffers[slot] = what < 4 ? make(&b, bytes + 4, b.streams[stream]) : NULL;
                const loch_request plain = {.size = sizeof plain, .stream = b.streams[stream]};
                if (what == 4) LOCH_IGNORE(loch_buffer_create(b.pool, bytes + 4, &plain, &buffers[slot]));
                seeds[slot] = step + 1;
                if (buffers[slot]) put(&b, buffers[slot], seeds[slot], stream);
            } else if (what < 5) {
                if (is_pinned[slot]) CHECK_OK(loch_buffer_unpin(buffers[slot], b.streams[stream]));
                is_pinned[slot] = false;
                CHECK_OK(loch_device_sync(b.device));
                loch_buffer_clear(&buffers[slot]);
            } else if (what == 5 && buffers[slot]) {
                if (!is_pinned[slot])
                    CHECK_OK(loch_buffer_pin(buffers[slot], b.streams[stream], &pinned_at[slot]));
                else
                    CHECK_OK(loch_buffer_unpin(buffers[slot], b.streams[stream]));
                is_pinned[slot] = !is_pinned[slot];
            } else if (what == 6) {
                const loch_compact_options options = {.size = sizeof options,
                                                      .budget_bytes = test_random_below(&random, 2) ? TEST_MIB : 0,
                                                      .stream =
                                                          test_random_below(&random, 2) ? b.streams[stream] : NULL};
                CHECK_OK(loch_pool_compact(b.pool, &options, NULL));
            } else if (what < 9 && buffers[slot]) {
                CHECK_OK(loch_device_sync(b.device));
                expect(&b, buffers[slot], seeds[slot], stream);
            }
            if (buffers[slot] && is_pinned[slot])
                assert_ptr_equal(loch_buffer_get_address(buffers[slot]), pinned_at[slot]);
            pool_expect_whole(b.pool);
        }
        CHECK_OK(loch_device_sync(b.device));
        for (size_t i = 0; i < MODEL_SLOTS; i++) {
            if (buffers[i]) expect(&b, buffers[i], seeds[i], i % 2);
            loch_buffer_release(buffers[i]);
        }
        bench_close(&b);
    }
}

/* --- sessions: what a session knows of a block goes along --- */

static void blocks_of_a_session_move_and_end_with_it(void **state)
{
    (void)state;
    for (size_t g = 0; g < sizeof grounds / sizeof *grounds; g++) {
        pool_bench b = bench_open(&grounds[g]);
        loch_session *session;
        CHECK_OK(loch_session_begin(b.pool, "moved", &session));
        CHECK_OK(loch_session_enter(session));
        loch_buffer *buffers[SPREAD] = {NULL};
        const size_t size = grounds[g].options.limit_bytes / SPREAD - 4096, count = spread(&b, buffers, size);
        CHECK_OK(loch_session_leave(session));
        loch_compact_report report = {.size = sizeof report};
        CHECK_OK(loch_pool_compact(b.pool, NULL, &report));
        assert_true(report.moves > 0);
        void *address, *other;
        CHECK_OK(loch_buffer_pin(buffers[1], NULL, &address));
        CHECK_OK(loch_session_promote(session, address)); /* at its present address */
        CHECK_OK(loch_buffer_unpin(buffers[1], NULL));
        for (size_t i = 3; i + 2 < count; i += 2)
            loch_buffer_clear(&buffers[i]);
        loch_session_stats stats = {.size = sizeof stats};
        CHECK_OK(loch_session_get_stats(session, &stats));
        assert_int_equal(stats.blocks, 1); /* the last */
        size_t last = count - 1 - count % 2, bytes;
        CHECK_OK(loch_buffer_pin(buffers[last], NULL, &other));
        CHECK_OK(loch_buffer_unpin(buffers[last], NULL));
        CHECK_OK(loch_session_end(session, NULL, &bytes)); /* takes the block from under its buffer, wherever it is */
        assert_int_equal(bytes, size);
        loch_block found = {.size = sizeof found};
        CHECK_FAILS_SET(loch_allocator_find(b.pool, other, &found), TEST_SET(FOREIGN) | TEST_SET(DOUBLE_FREE));
        expect(&b, buffers[1], 2, 0);
        loch_buffer_release(buffers[1]);
        loch_buffer_release(buffers[last]); /* that of a block which is gone: told, and harmless */
        pool_expect_whole(b.pool);
        bench_close(&b);
    }
}

/* --- threads: pins of one buffer, while another thread compacts --- */

typedef struct pinner {
    const pool_bench *b;
    loch_buffer *buffer;
    bool is_well;
} pinner;

#define MANY 5120

/* A plan for very many blocks joins what is free, and moves no block twice. */
static void many_blocks_are_joined_and_move_once(void **state)
{
    (void)state;
    const loch_pool_options options = {.size = sizeof options, .handle_bytes = 2 * TEST_MIB};
    pool_bench b = pool_bench_open("sim:4GiB", &options);
    loch_buffer **buffers = calloc(MANY, sizeof *buffers);
    assert_non_null(buffers);
    test_random random = {11};
    size_t live = 0;
    for (size_t i = 0; i < MANY; i++) {
        buffers[i] = make(&b, 16 * TEST_KIB + test_random_below(&random, TEST_MIB / 2), NULL);
        assert_non_null(buffers[i]);
    }
    for (size_t i = 0; i < MANY; i++) {
        if (test_random_below(&random, 2)) loch_buffer_clear(&buffers[i]);
        live += buffers[i] != NULL;
    }
    loch_pool_info info = {.size = sizeof info};
    loch_compact_report plan = {.size = sizeof plan}, report = {.size = sizeof report};
    CHECK_OK(loch_pool_plan_compact(b.pool, NULL, NULL, NULL, &plan));
    CHECK_OK(loch_pool_get_info(b.pool, &info));
    assert_true(plan.moves <= live);
    assert_true(plan.joined_bytes >= (info.reserved_bytes - info.used_bytes) / 64 * 63);
    CHECK_OK(loch_pool_compact(b.pool, NULL, &report));
    pool_expect_whole(b.pool);
    assert_int_equal(report.moves, plan.moves);
    assert_int_equal(report.joined_bytes, plan.joined_bytes);
    for (size_t i = 0; i < MANY; i++)
        if (buffers[i]) assert_true(loch_buffer_get_generation(buffers[i]) <= 1);
    for (size_t i = 0; i < MANY; i++)
        loch_buffer_release(buffers[i]);
    free(buffers);
    bench_close(&b);
}

static void *pin_again_and_again(void *user)
{
    pinner *p = user;
    p->is_well = true;
    for (size_t i = 0; i < 500 && p->is_well; i++) {
        void *address;
        p->is_well = loch_buffer_pin(p->buffer, NULL, &address) == LOCH_OK &&
                     loch_buffer_get_address(p->buffer) == address && loch_buffer_unpin(p->buffer, NULL) == LOCH_OK;
    }
    return NULL;
}

static void buffers_pinned_by_threads_stay_under_compaction(void **state)
{
    (void)state;
    pool_bench b = bench_open(&grounds[0]);
    loch_buffer *buffers[SPREAD] = {NULL};
    const size_t count = spread(&b, buffers, TEST_MIB - 4096);
    pinner pinners[4];
    pthread_t threads[4];
    for (size_t i = 0; i < 4; i++) {
        pinners[i] = (pinner){&b, buffers[1 + 2 * (i / 2)], false}; /* two for each */
        assert_int_equal(pthread_create(&threads[i], NULL, pin_again_and_again, &pinners[i]), 0);
    }
    for (size_t i = 0; i < 20; i++)
        CHECK_OK(loch_pool_compact(b.pool, NULL, NULL));
    for (size_t i = 0; i < 4; i++) {
        assert_int_equal(pthread_join(threads[i], NULL), 0);
        assert_true(pinners[i].is_well);
    }
    for (size_t i = 1; i < count; i += 2) {
        expect(&b, buffers[i], (uint32_t)i + 1, 0);
        loch_buffer_release(buffers[i]);
    }
    pool_expect_whole(b.pool);
    bench_close(&b);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        TENSOR_TEST(a_pinned_buffer_stays),
        TENSOR_TEST(only_pools_are_compacted),
        TENSOR_TEST(compaction_joins_what_is_free),
        TENSOR_TEST(a_request_compacts_as_its_last_step),
        TENSOR_TEST(blocks_slide_over_themselves),
        TENSOR_TEST(moved_blocks_keep_their_alignment),
        TENSOR_TEST(the_hook_hears_of_moves_and_the_budget_ends_them),
        TENSOR_TEST(moves_come_in_the_order_of_streams),
        TENSOR_TEST(random_programs_keep_the_contents_of_buffers),
        TENSOR_TEST(blocks_of_a_session_move_and_end_with_it),
        TENSOR_TEST(many_blocks_are_joined_and_move_once),
        TENSOR_TEST(buffers_pinned_by_threads_stay_under_compaction),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

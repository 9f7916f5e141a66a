/* SPDX-License-Identifier: MIT */
/* Freezing: what is frozen stays, together, readable, and protected where that was asked for; what is freed or unfrozen
 * is like anything else again. */
#include "base/sanitize.h"
#include "child_fixture.h"
#include "faulty_driver.h"
#include "sweep.h"
#include "tensor_fixture.h"
#include "worker.h"
#include <pthread.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#define MIB TEST_MIB
#define KIB TEST_KIB
#define SIM "faulty:sim:256MiB,backed,granule=64KiB"
#if LOCHI_TSAN
#define FAULT_STEP 11 /* slow there, and nothing runs beside the faults */
#else
#define FAULT_STEP 1
#endif

typedef struct ground {
    const char *device;
    size_t limit, handle;
} ground;

static const ground grounds[] = {
    {"cpu", 64 * MIB, 0},
    {"sim:256MiB,backed", 64 * MIB, 0},
    {"sim:256MiB,backed,granule=64KiB", 64 * MIB, 0},
    {"sim:256MiB,backed,virtual=off", 64 * MIB, 8 * MIB},
};
#define GROUNDS (sizeof grounds / sizeof *grounds)

typedef struct bed {
    loch_device *device;
    loch_allocator *pool;
    loch_stream *stream;
    loch_tag weights;
} bed;

static bed bed_open(const ground *on)
{
    bed b = {.device = sim_open(on->device)};
    const loch_pool_options options = {.size = sizeof options, .limit_bytes = on->limit, .handle_bytes = on->handle};
    b.pool = pool_make(b.device, &options);
    b.stream = sim_stream(b.device, LOCH_STREAM_INDEPENDENT);
    CHECK_OK(loch_tag_create("frozen weights", &b.weights));
    return b;
}

static void bed_close(bed *b)
{
    sim_expect_order(b->device);
    assert_int_equal(tensor_live_blocks(b->pool), 0);
    loch_stream_close(b->stream);
    loch_allocator_release(b->pool);
    loch_device_release(b->device);
}

static loch_buffer *make(const bed *b, size_t bytes, uint32_t seed, loch_tag tag)
{
    const loch_request request = {
        .size = sizeof request, .stream = b->stream, .tag = tag, .flags = LOCH_ALLOC_MOVABLE | LOCH_ALLOC_NO_RETRY};
    loch_buffer *buffer;
    if (loch_buffer_create(b->pool, bytes, &request, &buffer) != LOCH_OK) return NULL;
    CHECK_OK(loch_buffer_fill(buffer, &seed, sizeof seed, b->stream));
    return buffer;
}

static void expect(const bed *b, loch_buffer *buffer, uint32_t seed)
{
    const size_t bytes = loch_buffer_get_bytes(buffer);
    uint32_t *seen = malloc(bytes);
    void *address;
    CHECK_OK(loch_buffer_pin(buffer, b->stream, &address));
    const loch_copy_options copy = {.size = sizeof copy, .stream = b->stream, .wait = LOCH_WAIT_END};
    CHECK_OK(loch_copy_with(seen, address, bytes, &copy));
    CHECK_OK(loch_buffer_unpin(buffer, b->stream));
    for (size_t i = 0; i < bytes / 4; i++)
        if (seen[i] != seed) fail_msg("word %zu of %zu is %x, not %x", i, bytes / 4, seen[i], seed);
    free(seen);
}

/* Weights between what is freed later: afterwards one block can have nearly all the rest. */
static void frozen_blocks_are_together(void **state)
{
    (void)state;
    for (size_t g = 0; g < GROUNDS; g++) {
        bed b = bed_open(&grounds[g]);
        loch_buffer *weights[20], *others[20];
        for (uint32_t i = 0; i < 20; i++) {
            weights[i] = make(&b, MIB, i + 1, b.weights);
            others[i] = make(&b, MIB + 100 * KIB, i + 100, 0);
            assert_non_null(others[i]);
        }
        loch_freeze_report report = {.size = sizeof report};
        const loch_freeze_options options = {.size = sizeof options, .tag = b.weights, .stream = b.stream};
        CHECK_OK(loch_pool_freeze(b.pool, &options, &report));
        pool_expect_whole(b.pool);
        assert_int_equal(report.blocks, 20);
        assert_int_equal(report.bytes, 20 * MIB);
        assert_true(report.moves > 0 && report.moved_bytes > 0);
        assert_int_equal(report.protected_bytes, 0);
        uint64_t generations[20];
        for (uint32_t i = 0; i < 20; i++) {
            expect(&b, weights[i], i + 1);
            expect(&b, others[i], i + 100);
            generations[i] = loch_buffer_get_generation(weights[i]);
            loch_buffer_release(others[i]);
        }
        CHECK_OK(loch_pool_freeze(b.pool, &options, &report)); /* again: nothing new */
        assert_int_equal(report.blocks, 0);
        CHECK_OK(loch_pool_compact(b.pool, NULL, NULL));
        void *address;
        const size_t most = g == 3 ? 8 * MIB : grounds[g].limit - 22 * MIB; /* raw segments are apart */
        const loch_request large = {.size = sizeof large, .bytes = most, .stream = b.stream};
        CHECK_OK(loch_allocator_alloc(b.pool, &large, &address));
        pool_expect_whole(b.pool);
        CHECK_OK(loch_free(b.pool, address));
        for (uint32_t i = 0; i < 20; i++) {
            assert_int_equal(loch_buffer_get_generation(weights[i]), generations[i]); /* none has moved since */
            expect(&b, weights[i], i + 1);
            loch_buffer_release(weights[i]);
        }
        bed_close(&b);
    }
}

/* The space of a frozen block that was freed is there for the next one, and figures agree. */
static void a_freed_frozen_block_is_used_again(void **state)
{
    (void)state;
    for (size_t g = 0; g < GROUNDS; g++) {
        bed b = bed_open(&grounds[g]);
        const size_t size = grounds[g].limit / 8 - 64 * KIB;
        loch_buffer *weights[8];
        for (uint32_t i = 0; i < 8; i++)
            weights[i] = make(&b, size, i + 1, b.weights);
        const loch_freeze_options options = {
            .size = sizeof options, .writes = LOCH_FREEZE_PROTECTED, .stream = b.stream};
        loch_freeze_report report = {.size = sizeof report};
        CHECK_OK(loch_pool_freeze(b.pool, &options, &report));
        assert_int_equal(report.blocks, 8);
        assert_true(g ? !report.protected_bytes : report.protected_bytes > 8 * (size - 8192));
        for (uint32_t round = 0; round < 3; round++) {
            loch_buffer_clear(&weights[3]);
            weights[3] = make(&b, size, 77, b.weights);
            assert_non_null(weights[3]);
            assert_int_equal(loch_buffer_get_access(weights[3]), LOCH_READ_WRITE);
            CHECK_OK(loch_pool_freeze(b.pool, &options, &report)); /* repeatable: the new one joins */
            assert_int_equal(report.blocks, 1);
            assert_int_equal(loch_buffer_get_access(weights[3]), g ? LOCH_READ_WRITE : LOCH_READ_ONLY);
        }
        size_t bytes;
        CHECK_OK(loch_pool_unfreeze(b.pool, b.weights, &bytes));
        assert_int_equal(bytes, 8 * size);
        for (uint32_t i = 0; i < 8; i++) {
            const uint32_t seed = i == 3 ? 77 : i + 1, other = seed + 1000;
            expect(&b, weights[i], seed);
            CHECK_OK(loch_buffer_fill(weights[i], &other, sizeof other, b.stream));
            expect(&b, weights[i], other);
            loch_buffer_release(weights[i]);
        }
        pool_expect_whole(b.pool);
        bed_close(&b);
    }
}

/* A write of the host ends the program that does it; one through Loch is refused. */
static void protected_memory_is_not_written(void **state)
{
    (void)state;
    bed b = bed_open(&grounds[0]);
    loch_buffer *weights = make(&b, MIB, 5, b.weights);
    char *raw = pool_alloc(b.pool, MIB); /* of no tag, and not movable */
    const loch_freeze_options options = {.size = sizeof options, .tag = b.weights, .writes = LOCH_FREEZE_PROTECTED};
    loch_freeze_report report = {.size = sizeof report};
    CHECK_OK(loch_pool_freeze(b.pool, &options, &report));
    assert_true(report.protected_bytes >= MIB - 8192 && report.protected_bytes <= MIB);
    raw[MIB / 2] = 1;
    const uint32_t seed = 6;
    CHECK_FAILS(loch_buffer_fill(weights, &seed, sizeof seed, NULL), INVALID);
    void *address;
    CHECK_OK(loch_buffer_pin(weights, NULL, &address));
    assert_int_equal(((uint32_t *)address)[MIB / 8], 5);
    const pid_t child = fork();
    if (!child) {
        signal(SIGSEGV, SIG_DFL);
        ((volatile uint32_t *)address)[MIB / 8] = 9;
        _exit(0);
    }
    int ended;
    assert_int_equal(waitpid(child, &ended, 0), child);
    assert_true(!WIFEXITED(ended) || WEXITSTATUS(ended) != 0); /* killed, or ended by a sanitizer */
    CHECK_OK(loch_buffer_unpin(weights, NULL));
    /* memory that wakes is protected again */
    CHECK_OK(loch_pool_sleep(
        b.pool, &(loch_sleep_options){.size = sizeof(loch_sleep_options), .contents = LOCH_SLEEP_HOST}, NULL));
    CHECK_FAILS(loch_pool_freeze(b.pool, &options, NULL), BUSY);
    CHECK_OK(loch_pool_wake(b.pool, NULL));
    CHECK_FAILS(loch_buffer_fill(weights, &seed, sizeof seed, NULL), INVALID);
    expect(&b, weights, 5);
    CHECK_OK(loch_pool_unfreeze(b.pool, 0, NULL));
    CHECK_OK(loch_buffer_fill(weights, &seed, sizeof seed, NULL));
    expect(&b, weights, 6);
    CHECK_OK(loch_pool_freeze(b.pool, &options, NULL));
    CHECK_OK(loch_buffer_resize(weights, MIB / 2, LOCH_CONTENTS_KEEP, NULL)); /* it changes: like any other again */
    CHECK_OK(loch_buffer_fill(weights, &seed, sizeof seed, NULL));
    loch_buffer_release(weights);
    CHECK_OK(loch_free(b.pool, raw));
    bed_close(&b);
}

static void bad_input_is_refused(void **state)
{
    (void)state;
    loch_device *cpu = sim_open("cpu");
    loch_allocator *direct;
    bed b = bed_open(&grounds[1]);
    CHECK_OK(loch_direct_create(cpu, "direct", NULL, &direct));
    CHECK_FAILS(loch_pool_freeze(direct, NULL, NULL), INVALID);
    CHECK_FAILS(loch_pool_freeze(NULL, NULL, NULL), INVALID);
    CHECK_FAILS(loch_pool_unfreeze(direct, 0, NULL), INVALID);
    CHECK_FAILS(loch_pool_unfreeze(b.pool, LOCH_TAG_COUNT_MAX, NULL), INVALID);
    loch_freeze_options options = {.size = sizeof options, .writes = (loch_freeze_writes)7};
    CHECK_FAILS(loch_pool_freeze(b.pool, &options, NULL), INVALID);
    options = (loch_freeze_options){.size = sizeof options, .tag = LOCH_TAG_COUNT_MAX};
    CHECK_FAILS(loch_pool_freeze(b.pool, &options, NULL), INVALID);
    options = (loch_freeze_options){.size = sizeof options, .stream = loch_stream_get_default(cpu)};
    CHECK_FAILS(loch_pool_freeze(b.pool, &options, NULL), INVALID);
    CHECK_OK(loch_pool_freeze(b.pool, NULL, NULL)); /* nothing to freeze */
    CHECK_OK(loch_pool_unfreeze(b.pool, 0, NULL));
    loch_allocator_release(direct);
    loch_device_release(cpu);
    bed_close(&b);
}

/* A range is left to its child; a family and a guard that forbids moving are respected. */
static void a_freeze_leaves_ranges_and_forbidden_moves_alone(void **state)
{
    (void)state;
    bed b = bed_open(&grounds[1]);
    loch_allocator *child = child_range(b.pool, 4 * MIB), *pools[] = {b.pool, child};
    loch_buffer *weights[10], *others[10];
    for (uint32_t i = 0; i < 10; i++) {
        weights[i] = make(&b, MIB, i, b.weights);
        others[i] = make(&b, MIB, i, 0);
    }
    CHECK_OK(loch_pool_forbid_moving(b.pool));
    loch_freeze_report report = {.size = sizeof report};
    CHECK_OK(loch_pool_freeze(b.pool, NULL, &report));
    assert_int_equal(report.moves, 0);
    assert_int_equal(report.blocks, 20);
    CHECK_OK(loch_pool_allow_moving(b.pool));
    void *inside = pool_alloc(child, MIB);
    family_expect_whole(pools, 2);
    CHECK_OK(loch_free(child, inside));
    for (size_t i = 0; i < 10; i++) {
        loch_buffer_release(weights[i]);
        loch_buffer_release(others[i]);
    }
    loch_allocator_release(child);
    pool_expect_whole(b.pool);
    bed_close(&b);
}

/* --- small blocks --- */

#define SMALL 120

static size_t small_bytes(size_t i)
{
    static const size_t sizes[] = {64, 500, 1024, 4096, 8192, 100, 3000};
    return sizes[i % 7] / 4 * 4;
}

static uintptr_t where(const bed *b, loch_buffer *buffer)
{
    void *address;
    CHECK_OK(loch_buffer_pin(buffer, b->stream, &address));
    CHECK_OK(loch_buffer_unpin(buffer, b->stream));
    return (uintptr_t)address;
}

static uint64_t id_of(const bed *b, loch_buffer *buffer)
{
    loch_block block = {.size = sizeof block};
    CHECK_OK(loch_allocator_find(b->pool, (void *)where(b, buffer), &block));
    return block.id;
}

static void hear_move(loch_allocator *pool, const loch_move *move, void *user)
{
    (void)pool;
    if (move->bytes <= 8192) ++*(size_t *)user;
}

/* Small weights between small others: those that may move lie together afterwards, apart from all others, and all of
 * them count. */
static void small_blocks_are_packed_and_counted(void **state)
{
    (void)state;
    for (size_t g = 0; g < GROUNDS; g++) {
        bed b = bed_open(&grounds[g]);
        loch_stream *second = sim_stream(b.device, LOCH_STREAM_INDEPENDENT);
        loch_buffer *weights[SMALL], *others[SMALL], *large = make(&b, MIB, 9, b.weights);
        void *raw[SMALL], *address;
        size_t bytes = MIB, heard = 0, movable_bytes = 0;
        for (uint32_t i = 0; i < SMALL; i++) {
            const loch_request request = {
                .size = sizeof request, .bytes = small_bytes(i), .stream = b.stream, .tag = i % 4 ? 0 : b.weights};
            weights[i] = make(&b, small_bytes(i), i + 1, b.weights);
            others[i] = make(&b, small_bytes(i), i + 1000, 0);
            CHECK_OK(loch_allocator_alloc(b.pool, &request, &raw[i]));
            bytes += small_bytes(i) + (i % 4 ? 0 : small_bytes(i));
            movable_bytes += small_bytes(i);
        }
        CHECK_OK(loch_buffer_pin(weights[5], second, &address)); /* stays, and counts */
        const uint64_t id = id_of(&b, weights[6]);
        const uint32_t seed = 78;
        CHECK_OK(loch_stream_sync(b.stream));
        CHECK_OK(loch_buffer_fill(weights[7], &seed, sizeof seed, second)); /* the move comes behind it */
        CHECK_OK(loch_pool_set_move_hook(b.pool, hear_move, &heard));
        loch_freeze_report report = {.size = sizeof report};
        const loch_freeze_options options = {.size = sizeof options, .tag = b.weights, .stream = b.stream};
        CHECK_OK(loch_pool_freeze(b.pool, &options, &report));
        pool_expect_whole(b.pool);
        assert_int_equal(report.blocks, 1 + SMALL + SMALL / 4);
        assert_int_equal(report.bytes, bytes);
        assert_int_equal(heard, SMALL - 1);
        assert_true(report.moves >= SMALL - 1 && report.moved_bytes >= movable_bytes - small_bytes(5));
        assert_int_equal(loch_buffer_get_generation(weights[5]), 0);
        CHECK_OK(loch_buffer_unpin(weights[5], second));
        assert_int_equal(id_of(&b, weights[6]), id); /* is the same block */
        uintptr_t low = UINTPTR_MAX, high = 0;
        for (uint32_t i = 0; i < SMALL; i++) {
            if (i == 5) continue;
            const uintptr_t at = where(&b, weights[i]);
            assert_int_equal(loch_buffer_get_generation(weights[i]), 1);
            expect(&b, weights[i], i == 7 ? seed : i + 1);
            expect(&b, others[i], i + 1000);
            low = at < low ? at : low;
            high = at + small_bytes(i) > high ? at + small_bytes(i) : high;
        }
        assert_true(high - low <= movable_bytes + 7 * 64 * KIB); /* at most one slab of each size is not full */
        for (uint32_t i = 0; i < SMALL; i++) {
            loch_buffer_release(others[i]);
            others[i] = make(&b, small_bytes(i), i + 1000, b.weights); /* goes nowhere between them */
            assert_true(where(&b, others[i]) < low || where(&b, others[i]) >= high);
        }
        CHECK_OK(loch_pool_freeze(b.pool, &options, &report)); /* again: the new ones */
        pool_expect_whole(b.pool);
        assert_int_equal(report.blocks, SMALL);
        assert_int_equal(report.bytes, movable_bytes);
        assert_int_equal(loch_buffer_get_generation(weights[9]), 1);
        loch_buffer_clear(&weights[0]); /* a free takes it out of the figures */
        size_t thawed;
        CHECK_OK(loch_pool_unfreeze(b.pool, b.weights, &thawed));
        assert_int_equal(thawed, bytes + movable_bytes - small_bytes(0));
        CHECK_OK(loch_pool_unfreeze(b.pool, 0, &thawed));
        assert_int_equal(thawed, 0);
        for (uint32_t i = 0; i < SMALL; i++) {
            if (weights[i]) expect(&b, weights[i], i == 7 ? seed : i + 1);
            expect(&b, others[i], i + 1000);
            loch_buffer_release(weights[i]);
            loch_buffer_release(others[i]);
            CHECK_OK(loch_free(b.pool, raw[i]));
        }
        expect(&b, large, 9);
        loch_buffer_release(large);
        pool_expect_whole(b.pool);
        loch_stream_close(second);
        bed_close(&b);
    }
}

/* Without a tag, and while moving is forbidden, small blocks stay and count. A resized one is like any other again. */
static void small_blocks_that_stay_count(void **state)
{
    (void)state;
    bed b = bed_open(&grounds[1]);
    loch_buffer *weights = make(&b, 4096, 1, b.weights);
    void *raw = pool_alloc(b.pool, 100);
    loch_freeze_report report = {.size = sizeof report};
    const loch_freeze_options tagged = {.size = sizeof tagged, .tag = b.weights};
    CHECK_OK(loch_pool_forbid_moving(b.pool));
    CHECK_OK(loch_pool_freeze(b.pool, &tagged, &report));
    CHECK_OK(loch_pool_allow_moving(b.pool));
    assert_true(report.blocks == 1 && report.bytes == 4096 && !report.moves);
    CHECK_OK(loch_pool_freeze(b.pool, NULL, &report));
    assert_true(report.blocks == 1 && report.bytes == 100 && !report.moves);
    assert_int_equal(loch_buffer_get_generation(weights), 0);
    CHECK_OK(loch_buffer_resize(weights, 4000, LOCH_CONTENTS_KEEP, b.stream));
    CHECK_OK(loch_pool_freeze(b.pool, &tagged, &report));
    assert_true(report.blocks == 1 && report.bytes == 4000);
    size_t bytes;
    CHECK_OK(loch_pool_unfreeze(b.pool, 0, &bytes));
    assert_int_equal(bytes, 4100);
    loch_buffer_release(weights);
    CHECK_OK(loch_free(b.pool, raw));
    pool_expect_whole(b.pool);
    bed_close(&b);
}

/* Packed small blocks sleep and wake like any other, and cannot be pinned meanwhile. */
static void packed_small_blocks_sleep(void **state)
{
    (void)state;
    bed b = bed_open(&grounds[2]);
    loch_buffer *weights[20];
    void *address;
    for (uint32_t i = 0; i < 20; i++)
        weights[i] = make(&b, small_bytes(i), i + 1, b.weights);
    const loch_freeze_options options = {.size = sizeof options, .tag = b.weights, .stream = b.stream};
    CHECK_OK(loch_pool_freeze(b.pool, &options, NULL));
    const loch_sleep_options sleep = {.size = sizeof sleep, .contents = LOCH_SLEEP_HOST};
    CHECK_OK(loch_pool_sleep(b.pool, &sleep, NULL));
    pool_expect_whole(b.pool);
    CHECK_FAILS(loch_buffer_pin(weights[3], b.stream, &address), BUSY);
    loch_buffer_clear(&weights[4]);
    CHECK_OK(loch_pool_wake(b.pool, NULL));
    pool_expect_whole(b.pool);
    for (uint32_t i = 0; i < 20; i++) {
        if (weights[i]) expect(&b, weights[i], i + 1);
        loch_buffer_release(weights[i]);
    }
    bed_close(&b);
}

/* --- every driver call and every piece of bookkeeping fails in turn --- */

static void freeze_faulted(test_round *round, const void *user)
{
    const ground on = {user, 32 * MIB, 0};
    bed b = bed_open(&on);
    loch_buffer *weights[6], *others[6];
    for (uint32_t i = 0; i < 6; i++) { /* half of them small */
        weights[i] = make(&b, i % 2 ? 4 * KIB << i / 3 : 100 * KIB, i + 1, b.weights);
        others[i] = make(&b, i % 2 ? 4 * KIB << i / 3 : 80 * KIB, i + 100, 0);
    }
    test_round_begin(round, b.device);
    const loch_freeze_options options = {
        .size = sizeof options, .tag = b.weights, .writes = LOCH_FREEZE_PROTECTED, .stream = b.stream};
    const loch_status status = loch_pool_freeze(b.pool, &options, NULL);
    test_round_end(round);
    round->is_felt = status != LOCH_OK;
    pool_expect_whole(b.pool);
    for (uint32_t i = 0; i < 6; i++) {
        expect(&b, weights[i], i + 1);
        expect(&b, others[i], i + 100);
        if (status != LOCH_OK) assert_int_equal(loch_buffer_get_access(weights[i]), LOCH_READ_WRITE);
    }
    CHECK_OK(loch_pool_freeze(b.pool, &options, NULL));
    for (uint32_t i = 0; i < 6; i++) {
        loch_buffer_release(weights[i]);
        loch_buffer_release(others[i]);
    }
    bed_close(&b);
}

static void sweep(test_faults from, const char *name)
{
    from.stride = FAULT_STEP;
    assert_true(test_rounds_run(&from, name, freeze_faulted, name).felt > 10 / FAULT_STEP);
}

static void a_freeze_that_fails_leaves_all_as_it_was(void **state)
{
    (void)state;
    sweep(test_driver_faults, "faulty:cpu");
    sweep(test_driver_faults, SIM);
    sweep(test_host_faults, SIM);
}

/* A freeze that is held up in the driver. */
typedef struct held {
    bed *bed;
    char failure[400];
} held;

static void *held_freeze(void *user)
{
    held *w = user;
    const loch_freeze_options options = {.size = sizeof options, .tag = w->bed->weights, .stream = w->bed->stream};
    const loch_status status = loch_pool_freeze(w->bed->pool, &options, NULL);
    if (status != LOCH_OK) snprintf(w->failure, sizeof w->failure, "%.300s", loch_error_get()->sentence);
    return NULL;
}

/* A freeze first compacts, which orders its stream after that of the moved blocks, and then gets memory for the zone.
 * Work that another thread queues during that driver call comes before the moves into the zone, too. */
static void work_queued_while_the_zone_is_made_comes_first(void **state)
{
    (void)state;
    enum { WEIGHTS = 16, PART = 256 << 10 };
    bed b = bed_open(&(ground){SIM ",clock=stepped,lag=1000", 64 * MIB, 2 * MIB});
    loch_stream *owner = sim_stream(b.device, LOCH_STREAM_INDEPENDENT);
    const loch_request plain = {.size = sizeof plain, .bytes = PART, .stream = b.stream};
    loch_request tagged = plain, movable = plain;
    loch_buffer *weights[WEIGHTS], *strayed;
    void *raw[WEIGHTS], *filler[7], *alone;
    const loch_request whole = {.size = sizeof whole, .bytes = 12 * MIB, .stream = b.stream};
    CHECK_OK(loch_allocator_alloc(b.pool, &whole, &alone)); /* six handles */
    CHECK_OK(loch_free(b.pool, alone));
    CHECK_OK(loch_stream_sync(b.stream));
    tagged.stream = movable.stream = owner;
    tagged.tag = b.weights;
    tagged.flags = movable.flags = LOCH_ALLOC_MOVABLE;
    for (size_t i = 0; i < WEIGHTS; i++) { /* four handles of both */
        CHECK_OK(loch_buffer_create(b.pool, PART, &tagged, &weights[i]));
        CHECK_OK(loch_allocator_alloc(b.pool, &plain, &raw[i]));
    }
    for (size_t i = 0; i < 7; i++)
        CHECK_OK(loch_allocator_alloc(b.pool, &plain, &filler[i]));
    CHECK_OK(loch_buffer_create(b.pool, PART, &movable, &strayed)); /* the last of the fifth */
    CHECK_OK(loch_allocator_alloc(b.pool, &plain, &alone));         /* in the sixth, with room beside it */
    for (size_t i = 0; i < 7; i++)
        CHECK_OK(loch_free(b.pool, filler[i]));
    held w = {.bed = &b};
    pthread_t thread;
    void *address;
    uint32_t seen = 0;
    test_faulty_hold(TEST_HELD_CREATE);
    assert_int_equal(pthread_create(&thread, NULL, held_freeze, &w), 0);
    assert_true(test_faulty_await_held());
    CHECK_OK(loch_buffer_pin(weights[WEIGHTS - 1], owner, &address));
    for (uint32_t word = 1; word <= 100; word++) /* longer than the moves of the other stream */
        CHECK_OK(loch_fill_on(address, PART, &word, sizeof word, owner));
    CHECK_OK(loch_buffer_unpin(weights[WEIGHTS - 1], owner));
    test_faulty_let_go();
    assert_int_equal(pthread_join(thread, NULL), 0);
    if (*w.failure) fail_msg("%s", w.failure);
    CHECK_OK(loch_device_sync(b.device));
    CHECK_OK(loch_buffer_pin(weights[WEIGHTS - 1], owner, &address));
    CHECK_OK(loch_copy(&seen, address, sizeof seen));
    assert_int_equal(seen, 100);
    CHECK_OK(loch_buffer_unpin(weights[WEIGHTS - 1], owner));
    CHECK_OK(loch_pool_unfreeze(b.pool, 0, NULL));
    for (size_t i = 0; i < WEIGHTS; i++) {
        loch_buffer_release(weights[i]);
        CHECK_OK(loch_free(b.pool, raw[i]));
    }
    loch_buffer_release(strayed);
    CHECK_OK(loch_free(b.pool, alone));
    loch_stream_close(owner);
    bed_close(&b);
}

int main(void)
{
    if (test_heap_install() != LOCH_OK || test_faulty_register() != LOCH_OK) return 1;
    const struct CMUnitTest tests[] = {
        TENSOR_TEST(frozen_blocks_are_together),
        TENSOR_TEST(a_freed_frozen_block_is_used_again),
        TENSOR_TEST(protected_memory_is_not_written),
        TENSOR_TEST(bad_input_is_refused),
        TENSOR_TEST(a_freeze_leaves_ranges_and_forbidden_moves_alone),
        TENSOR_TEST(small_blocks_are_packed_and_counted),
        TENSOR_TEST(small_blocks_that_stay_count),
        TENSOR_TEST(packed_small_blocks_sleep),
        TENSOR_TEST(work_queued_while_the_zone_is_made_comes_first),
        TENSOR_TEST(a_freeze_that_fails_leaves_all_as_it_was),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

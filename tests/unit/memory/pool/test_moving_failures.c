/* SPDX-License-Identifier: MIT */
/* Failures that memory which moves is known for, one after the other, and that they do not happen here. The comment of each test says
 * what goes wrong in such systems. That a child shares memory with live blocks of its parent, and that limits fall below zero, is
 * also tested in test_pool_child.c (a_child_never_overlaps_a_live_block, limits_do_not_underflow, children_end_in_any_order);
 * here are the cases that are not there. */
#include "child_fixture.h"
#include "sweep.h"
#include "tensor_fixture.h"
#include "worker.h"
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <unistd.h>

#define MIB TEST_MIB
#define KIB TEST_KIB
#define GIB TEST_GIB
#define STREAMS POOL_BENCH_STREAMS
#define WATCHDOG_SECONDS 200 /* a hang ends the program, and so fails the test */

static pool_bench bench_open(const char *device, size_t limit, size_t handle)
{
    const loch_pool_options options = {.size = sizeof options, .limit_bytes = limit, .handle_bytes = handle};
    return pool_bench_open(device, &options);
}

static void bench_close(pool_bench *s)
{
    sim_expect_order(s->device);
    pool_bench_close(s);
}

static loch_buffer *make(const pool_bench *s, size_t bytes, loch_stream *stream)
{
    const loch_request request = {.size = sizeof request, .stream = stream, .flags = LOCH_ALLOC_MOVABLE};
    loch_buffer *buffer;
    CHECK_OK(loch_buffer_create(s->pool, bytes, &request, &buffer));
    return buffer;
}

/* `count` buffers of equal size, every second of which is freed again. */
static void make_holes(const pool_bench *s, loch_buffer **buffers, size_t count, size_t bytes)
{
    for (size_t i = 0; i < count; i++)
        buffers[i] = make(s, bytes, s->streams[i % STREAMS]);
    for (size_t i = 0; i < count; i += 2)
        loch_buffer_clear(&buffers[i]);
}

static void *address_of(loch_buffer *buffer, loch_stream *stream)
{
    void *address;
    CHECK_OK(loch_buffer_pin(buffer, stream, &address));
    CHECK_OK(loch_buffer_unpin(buffer, stream));
    return address;
}

/* --- threads --- */

#define SLOTS 24
#define STILL 12

/* Each slot has one reference of a buffer; whoever takes it out has it. */
typedef struct crowd {
    pool_bench *scene;
    _Atomic(loch_buffer *) slots[SLOTS];
    loch_buffer *still[STILL]; /* that nobody releases */
    unsigned tolerated;        /* statuses that an allocation may have */
    size_t most_bytes;         /* of one buffer */
    atomic_bool is_over;
} crowd;

typedef struct worker {
    crowd *crowd;
    loch_stream *stream;
    test_random random;
    void (*job)(struct worker *w);
    uint64_t done; /* what that means is the job's */
    char failure[400];
} worker;

static void *worker_run(void *user)
{
    worker *w = user;
    w->job(w);
    if (*w->failure) atomic_store(&w->crowd->is_over, true);
    return NULL;
}

/* Runs the jobs at once, ends those that go on until told, and gives back what is in the slots. */
static void crowd_run(crowd *c, worker *workers, size_t count, size_t until_told)
{
    pthread_t threads[8];
    alarm(WATCHDOG_SECONDS);
    for (size_t i = 0; i < count; i++) {
        workers[i].crowd = c;
        workers[i].random.state = 71 + i;
        workers[i].stream = c->scene->streams[i % STREAMS];
        assert_int_equal(pthread_create(&threads[i], NULL, worker_run, &workers[i]), 0);
    }
    for (size_t i = 0; i < count; i++) {
        if (i == count - until_told) atomic_store(&c->is_over, true);
        pthread_join(threads[i], NULL);
    }
    alarm(0);
    for (size_t i = 0; i < count; i++)
        if (*workers[i].failure) fail_msg("%s", workers[i].failure);
    for (size_t i = 0; i < SLOTS; i++)
        loch_buffer_release(atomic_exchange(&c->slots[i], NULL));
}

static void expect_word(worker *w, loch_buffer *buffer)
{
    uint32_t seen[64];
    void *address;
    const size_t bytes = loch_buffer_get_bytes(buffer);
    const uint32_t word = (uint32_t)loch_buffer_get_id(buffer);
    TRY(loch_buffer_pin(buffer, w->stream, &address));
    const loch_copy_options copy = {.size = sizeof copy, .stream = w->stream, .wait = LOCH_WAIT_END};
    TRY(loch_copy_with(seen, (char *)address + bytes - sizeof seen, sizeof seen, &copy));
    TRY(loch_buffer_unpin(buffer, w->stream));
    for (size_t i = 0; i < 64; i++)
        EXPECT(seen[i] == word);
}

/* A new buffer, full of its own number, and known to be. */
static void make_word(worker *w, size_t bytes, loch_buffer **out)
{
    const loch_request request = {.size = sizeof request, .stream = w->stream, .flags = LOCH_ALLOC_MOVABLE};
    const loch_status status = loch_buffer_create(w->crowd->scene->pool, bytes, &request, out);
    if (w->crowd->tolerated & 1u << status) return;
    TRY(status);
    const uint32_t word = (uint32_t)loch_buffer_get_id(*out);
    TRY(loch_buffer_fill(*out, &word, sizeof word, w->stream));
    TRY(loch_stream_sync(w->stream));
}

/* Puts a reference of a buffer into a slot; what was there is looked at and released, the last of it here or elsewhere. */
static void put_in_slot(worker *w, loch_buffer *buffer)
{
    loch_buffer *old = atomic_exchange(&w->crowd->slots[test_random_below(&w->random, SLOTS)], buffer);
    if (old) expect_word(w, old);
    loch_buffer_release(old);
}

/* A buffer of which two slots have a reference each. */
static void share_one(worker *w)
{
    loch_buffer *buffer = NULL;
    make_word(w, 9 * KIB + 4 * test_random_below(&w->random, w->crowd->most_bytes / 4), &buffer);
    if (!buffer || *w->failure) {
        loch_buffer_release(buffer);
        return;
    }
    w->done++;
    put_in_slot(w, loch_buffer_retain(buffer));
    put_in_slot(w, buffer);
}

static void compact_once(worker *w)
{
    const loch_compact_options options = {.size = sizeof options, .stream = w->stream};
    loch_compact_report report = {.size = sizeof report};
    TRY(loch_pool_compact(w->crowd->scene->pool, &options, &report));
    w->done += report.moves;
}

static const struct {
    const char *device;
    size_t limit;
} grounds[] = {
    {"cpu", 24 * MIB}, {"sim:256MiB,backed,granule=64KiB", 4 * MIB}, {"sim:256MiB,backed,virtual=off", 24 * MIB}};
#define GROUNDS (sizeof grounds / sizeof *grounds)

static crowd crowd_on(pool_bench *s)
{
    return (crowd){.scene = s, .tolerated = POOL_SHORT, .most_bytes = 200 * KIB};
}

/* --- 1 --- */

static void job_share_and_compact(worker *w)
{
    for (size_t step = 0; step < 400 && !*w->failure; step++)
        step % 16 == 15 ? compact_once(w) : share_one(w);
}

/* An allocator that looks at its blocks through counted references can have the last one in its hands when another thread lets go
 * of the block: it frees the block itself, under its own lock, and waits for itself for ever. */
static void the_last_reference_goes_while_others_allocate(void **state)
{
    (void)state;
    for (size_t g = 0; g < GROUNDS; g++) {
        pool_bench s = bench_open(grounds[g].device, grounds[g].limit, 0);
        crowd c = crowd_on(&s);
        worker workers[5] = {{NULL}};
        for (size_t i = 0; i < 5; i++)
            workers[i].job = job_share_and_compact;
        crowd_run(&c, workers, 5, 0);
        for (size_t i = 0; i < 5; i++)
            assert_true(workers[i].done > 100);
        bench_close(&s);
    }
}

/* --- 2 --- */

static void job_share(worker *w)
{
    for (size_t step = 0; step < 500 && !*w->failure; step++)
        share_one(w);
}

static void job_compact_until_told(worker *w)
{
    while (!atomic_load(&w->crowd->is_over) && !*w->failure)
        compact_once(w);
}

/* A compaction that finds a block whose last reference is just being dropped takes that for a broken list, and fails. */
static void a_block_is_released_during_a_compaction(void **state)
{
    (void)state;
    for (size_t g = 0; g < GROUNDS; g++) {
        pool_bench s = bench_open(grounds[g].device, grounds[g].limit, 0);
        crowd c = crowd_on(&s);
        worker workers[4] = {
            {.job = job_share}, {.job = job_share}, {.job = job_share}, {.job = job_compact_until_told}};
        crowd_run(&c, workers, 4, 1);
        assert_true(workers[3].done > 0); /* there was something to move */
        bench_close(&s);
    }
}

/* --- 3 --- */

typedef struct raw_block {
    void *address;
    size_t bytes;
    uint64_t seed;
} raw_block;

static _Atomic(raw_block *) raw_slots[SLOTS];

/* The host writes patterns where it can; elsewhere kernels do, and the checker sees two that write the same memory. */
static void raw_write(worker *w, const raw_block *block)
{
    if (loch_buffer_is_on_host(w->crowd->still[0])) {
        test_pattern_write(block->address, block->bytes, block->seed);
        return;
    }
    const loch_sim_range range = {block->address, block->bytes};
    const loch_sim_kernel kernel = {.size = sizeof kernel, .writes = &range, .writes_count = 1, .duration_ns = 3000};
    TRY(loch_sim_launch(w->stream, &kernel));
}

static void raw_free(worker *w, raw_block *block)
{
    if (loch_buffer_is_on_host(w->crowd->still[0]))
        EXPECT(test_pattern_differs(block->address, block->bytes, block->seed) == block->bytes);
    TRY(loch_free(w->crowd->scene->pool, block->address)); /* made by another thread, perhaps */
    w->done++;
    free(block);
}

static void raw_exchange(worker *w)
{
    static const size_t sizes[] = {100, 3000, 20000, 20000, 130000}; /* few, so that addresses come again */
    raw_block *block = malloc(sizeof *block);
    EXPECT(block);
    *block = (raw_block){.bytes = sizes[test_random_below(&w->random, 5)], .seed = test_random_next(&w->random)};
    const loch_request request = {.size = sizeof request, .bytes = block->bytes, .stream = w->stream};
    TRY(loch_allocator_alloc(w->crowd->scene->pool, &request, &block->address));
    raw_write(w, block);
    raw_block *old = atomic_exchange(&raw_slots[test_random_below(&w->random, SLOTS)], block);
    if (old) raw_free(w, old);
}

static void job_raw(worker *w)
{
    for (size_t step = 0; step < 2000 && !*w->failure; step++)
        raw_exchange(w);
}

/* A free that looks for "the entry at this address, or the first that has ended" can take the record of a new block at the address
 * of an old one: the new block is handed out twice. */
static void a_free_takes_no_record_of_another(void **state)
{
    (void)state;
    static const char *const devices[] = {"cpu", "sim:256MiB"};
    for (size_t d = 0; d < 2; d++) {
        pool_bench s = bench_open(devices[d], 32 * MIB, 0);
        crowd c = crowd_on(&s);
        c.still[0] = make(&s, 1, NULL);
        worker workers[4] = {{.job = job_raw}, {.job = job_raw}, {.job = job_raw}, {.job = job_raw}};
        crowd_run(&c, workers, 4, 0);
        family_expect_whole(&s.pool, 1); /* with what is in the slots: no two share a byte */
        worker *w = &workers[0];
        for (size_t i = 0; i < SLOTS; i++) {
            raw_block *left = atomic_exchange(&raw_slots[i], NULL);
            if (left) raw_free(w, left);
            if (*w->failure) fail_msg("%s", w->failure);
        }
        loch_buffer_release(c.still[0]);
        bench_close(&s);
    }
}

/* --- 4, 5 --- */

/* No figure is larger than what there can be: it would have fallen below zero. */
static void expect_sane(loch_allocator *pool, size_t most)
{
    const loch_pool_info info = pool_info(pool);
    const loch_stats stats = pool_stats(pool);
    assert_true(info.free_bytes <= most && info.largest_free_bytes <= info.free_bytes && info.used_bytes <= most);
    assert_true(info.limit_bytes <= most && info.reserved_bytes <= most);
    assert_true(stats.cached_bytes <= most && stats.requested_bytes <= most && stats.limit_bytes <= most);
}

/* A child that takes the top of its parent without a look at the blocks there shares memory with them, and the parent's limit less
 * its use falls below zero: at the sizes at which that was seen. */
static void a_child_beside_a_large_block(void **state)
{
    (void)state;
    pool_bench s = bench_open("sim:1GiB", 400 * MIB, 0);
    loch_allocator *none = TEST_UNTOUCHED;
    void *block = pool_alloc(s.pool, 390 * MIB);
    for (size_t kind = LOCH_CHILD_QUOTA; kind <= LOCH_CHILD_RANGE; kind++) {
        const size_t minimum = kind == LOCH_CHILD_QUOTA ? 200 * MIB : 0;
        CHECK_FAILS_SET(child_try(s.pool, (loch_child_kind)kind, minimum, 200 * MIB, NULL, &none), POOL_SHORT);
        expect_sane(s.pool, 400 * MIB);
    }
    CHECK_OK(loch_free(s.pool, block));
    loch_allocator *child = child_range(s.pool, 200 * MIB), *both[] = {s.pool, child};
    void *inside = pool_alloc(child, 200 * MIB), *beside = pool_alloc(s.pool, 198 * MIB);
    family_expect_whole(both, 2);
    expect_sane(s.pool, 400 * MIB);
    expect_sane(child, 200 * MIB);
    CHECK_OK(loch_free(child, inside));
    CHECK_OK(loch_free(s.pool, beside));
    loch_allocator_release(child);
    bench_close(&s);
}

/* Children that are given scratch memory out of their own part have a limit below zero when they are smaller than that: here they
 * work at any size. */
static void children_that_are_small(void **state)
{
    (void)state;
    static const size_t sizes[] = {16 * KIB, 64 * KIB, MIB, 63 * MIB, 64 * MIB - 1, 64 * MIB};
    pool_bench s = bench_open("sim:1GiB,granule=64KiB", 512 * MIB, 0);
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        for (int is_quota = 0; is_quota < 2; is_quota++) {
            loch_allocator *child = is_quota ? child_quota(s.pool, sizes[i], sizes[i]) : child_range(s.pool, sizes[i]);
            expect_sane(child, sizes[i] + 64 * KIB);
            const size_t all = is_quota ? sizes[i] & ~(64 * KIB - 1) : pool_info(child).free_bytes;
            void *block = NULL, *none;
            if (all) block = pool_alloc(child, all);
            CHECK_FAILS_SET(loch_alloc(child, 64 * KIB, &none), POOL_SHORT);
            expect_sane(child, sizes[i] + 64 * KIB);
            expect_sane(s.pool, 512 * MIB);
            CHECK_OK(loch_free(child, block));
            loch_allocator_release(child);
        }
    }
    bench_close(&s);
}

/* Children that have to end in the reverse order of their making leave a broken parent in any other, and their handles call an
 * allocator that is no more: here buffers that may move outlive children, which end in any order. */
static void children_end_before_their_buffers(void **state)
{
    (void)state;
    static const size_t orders[6][3] = {{0, 1, 2}, {0, 2, 1}, {1, 0, 2}, {1, 2, 0}, {2, 0, 1}, {2, 1, 0}};
    for (size_t o = 0; o < 6; o++) {
        pool_bench s = bench_open("sim:256MiB,backed,granule=64KiB", 32 * MIB, 0);
        loch_allocator *children[] = {child_range(s.pool, 3 * MIB), child_quota(s.pool, MIB, 8 * MIB),
                                      child_range(s.pool, 16 * KIB)};
        loch_buffer *buffers[3];
        for (uint32_t i = 0; i < 3; i++) {
            pool_bench of_child = s;
            of_child.pool = children[i];
            buffers[i] = make(&of_child, 9 * KIB, s.streams[i]);
            CHECK_OK(loch_buffer_fill(buffers[i], &i, sizeof i, s.streams[i]));
        }
        for (size_t i = 0; i < 3; i++) {
            loch_allocator_release(children[orders[o][i]]);
            expect_sane(s.pool, 32 * MIB);
        }
        void *large = pool_alloc(s.pool, 20 * MIB); /* the parent works on */
        for (size_t i = 0; i < 3; i++) {
            loch_buffer_release(buffers[orders[(o + 2) % 6][i]]);
            pool_expect_whole(s.pool);
        }
        CHECK_OK(loch_free(s.pool, large));
        assert_int_equal(pool_info(s.pool).used_bytes, 0);
        bench_close(&s);
    }
}

/* --- 6 --- */

static size_t free_bytes_of(loch_allocator *pool)
{
    const loch_pool_info info = pool_info(pool);
    return info.free_bytes + info.thread_bytes;
}

/* A pool that takes scratch memory off a large limit, and does not say so, reports more free memory than it has: whoever asks for it
 * gets a compaction of everything, and then a failure. */
static void all_that_is_free_can_be_had(void **state)
{
    (void)state;
    static const size_t limits[] = {19 * GIB, 20 * GIB, 20 * GIB + 2 * MIB, 24 * GIB, 63 * GIB};
    for (size_t i = 0; i < sizeof limits / sizeof *limits; i++) {
        pool_bench s = bench_open("sim:64GiB", limits[i], 0);
        loch_buffer *first = make(&s, 4 * GIB, NULL), *second = make(&s, 2 * GIB, NULL);
        const size_t left = limits[i] - pool_info(s.pool).used_bytes;
        assert_int_equal(left, limits[i] - 6 * GIB);
        void *rest = pool_alloc(s.pool, left);
        assert_int_equal(pool_info(s.pool).used_bytes, limits[i]);
        loch_buffer_release(first);
        assert_int_equal(free_bytes_of(s.pool), 4 * GIB);
        void *again = pool_alloc(s.pool, 4 * GIB);
        assert_int_equal(free_bytes_of(s.pool), 0);
        assert_int_equal(loch_buffer_get_generation(second), 0); /* and nothing moved for it */
        CHECK_OK(loch_free(s.pool, again));
        CHECK_OK(loch_free(s.pool, rest));
        loch_buffer_release(second);
        bench_close(&s);
    }
}

/* --- 7 --- */

/* Where frozen memory lies below the part that is searched, a frozen block that is freed counts as free and is never found: with
 * 100 MB free, 60 MB cannot be had. */
static void frozen_memory_that_is_freed_is_used_again(void **state)
{
    (void)state;
    static const char *const devices[] = {"sim:1GiB", "sim:1GiB,granule=64KiB", "sim:1GiB,virtual=off"};
    for (size_t d = 0; d < 3; d++) {
        for (size_t count = 1; count <= 10; count += 9) {
            pool_bench s = bench_open(devices[d], 100 * MIB, d == 2 ? 100 * MIB : 0);
            loch_buffer *weights[10] = {NULL};
            for (size_t i = 0; i < count; i++)
                weights[i] = make(&s, 100 * MIB / count, s.streams[0]);
            loch_freeze_report report = {.size = sizeof report};
            CHECK_OK(loch_pool_freeze(s.pool, NULL, &report));
            assert_int_equal(report.blocks, count);
            void *none;
            CHECK_FAILS_SET(loch_alloc(s.pool, 60 * MIB, &none), POOL_SHORT);
            for (size_t i = 0; i < count; i++)
                loch_buffer_release(weights[i]);
            assert_int_equal(free_bytes_of(s.pool), 100 * MIB);
            void *block = pool_alloc_on(s.pool, 60 * MIB, s.streams[1]);
            CHECK_OK(loch_free(s.pool, block));
            bench_close(&s);
        }
    }
}

/* --- 8 --- */

static void expect_refused(loch_allocator *allocator, size_t bytes, size_t alignment)
{
    const unsigned refused = POOL_SHORT | TEST_SET(OVERFLOW) | TEST_SET(HOST_MEMORY);
    const loch_request request = {
        .size = sizeof request, .alignment = alignment, .flags = LOCH_ALLOC_MOVABLE | LOCH_ALLOC_NO_RETRY};
    loch_buffer *buffer = TEST_UNTOUCHED;
    void *block = TEST_UNTOUCHED;
    CHECK_FAILS_SET(pool_try_alloc(allocator, bytes, alignment, NULL, &block), refused);
    assert_null(block);
    CHECK_FAILS_SET(loch_buffer_create(allocator, bytes, &request, &buffer), refused | TEST_SET(UNSUPPORTED));
    assert_null(buffer);
    CHECK_FAILS_SET(loch_alloc_array(allocator, bytes / 4 + 1, 5, NULL, &block), refused);
    assert_null(block);
    assert_int_equal(tensor_live_blocks(allocator), 0);
}

/* A size that is rounded up without a check wraps around, and a block of nearly all addresses is one of no bytes. */
static void sizes_near_the_largest_do_not_wrap(void **state)
{
    (void)state;
    static const char *const devices[] = {"cpu", "sim:1GiB", "sim:1GiB,virtual=off"};
    static const size_t rounds[] = {0, 512, 1024, 1000 * 1000 + 1, GIB};
    static const size_t sizes[] = {SIZE_MAX,           SIZE_MAX - 1,     SIZE_MAX - 100,
                                   SIZE_MAX - 511,     SIZE_MAX - 1024,  SIZE_MAX - MIB,
                                   SIZE_MAX / 2 + MIB, SIZE_MAX / 2 + 1, SIZE_MAX / 2};
    for (size_t d = 0; d < 3; d++) {
        loch_device *device = sim_open(devices[d]);
        loch_allocator *direct;
        CHECK_OK(loch_direct_create(device, NULL, NULL, &direct));
        for (size_t r = 0; r < sizeof rounds / sizeof *rounds; r++) {
            const loch_pool_options options = {.size = sizeof options, .round_bytes = rounds[r]};
            const loch_child_options quota = {.size = sizeof quota, .pool = &options};
            loch_allocator *pool = pool_make(device, &options), *child, *range = child_range(pool, 16 * KIB);
            CHECK_OK(loch_pool_create_child(pool, NULL, &quota, &child));
            for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
                for (size_t alignment = 0; alignment <= 2 * MIB; alignment += 2 * MIB) {
                    expect_refused(child, sizes[i], alignment);
                    expect_refused(range, sizes[i], alignment);
                    expect_refused(direct, sizes[i], alignment);
                }
            }
            loch_allocator_release(range);
            loch_allocator_release(child);
            for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++)
                expect_refused(pool, sizes[i], 0);
            pool_expect_empty(pool);
            loch_allocator_release(pool);
        }
        loch_allocator_release(direct);
        loch_device_release(device);
    }
}

/* --- 9 --- */

#define MANY 24

/* Who says what of the streams that use a buffer. */
typedef enum honesty {
    HONEST,    /* every use is said */
    FORGETFUL, /* work is queued behind the unpin, on a stream that was not named */
    HASTY      /* work after the compaction uses the new address without a pin on its stream */
} honesty;

static loch_status busy_write(loch_stream *stream, const void *address, size_t bytes)
{
    const loch_sim_range range = {address, bytes};
    const loch_sim_kernel kernel = {
        .size = sizeof kernel, .name = "writer", .writes = &range, .writes_count = 1, .duration_ns = 100000};
    return loch_sim_launch(stream, &kernel);
}

/* Work on the buffer by three streams: that of its making, that of a pin, and one that is recorded, which no other waits for. */
static void use_on_streams(const pool_bench *s, loch_buffer *buffer, size_t i, honesty how)
{
    const size_t bytes = loch_buffer_get_bytes(buffer);
    loch_stream *pinned = s->streams[(i + 1) % 3], *recorded = s->streams[4];
    void *address;
    pool_order(s->device, s->streams[i % 3], pinned);
    CHECK_OK(loch_buffer_pin(buffer, pinned, &address));
    CHECK_OK(busy_write(pinned, address, bytes));
    pool_order(s->device, pinned, recorded);
    CHECK_OK(busy_write(recorded, address, bytes));
    if (how != FORGETFUL) CHECK_OK(loch_buffer_record_use(buffer, recorded));
    CHECK_OK(loch_buffer_unpin(buffer, pinned));
}

static size_t work_around_a_compaction(const char *device, size_t bytes, honesty how)
{
    pool_bench s = bench_open(device, 64 * MIB, strstr(device, "virtual=off") ? 16 * MIB : 0);
    loch_buffer *buffers[MANY] = {NULL};
    for (size_t i = 0; i < MANY; i++) {
        buffers[i] = make(&s, bytes, s.streams[i % 3]);
        CHECK_OK(busy_write(s.streams[i % 3], address_of(buffers[i], s.streams[i % 3]), bytes));
    }
    for (size_t i = 0; i < MANY; i += 2)
        loch_buffer_clear(&buffers[i]);
    for (size_t i = 1; i < MANY; i += 2)
        use_on_streams(&s, buffers[i], i, how);
    const uint64_t before = sim_now(s.device);
    const loch_compact_options options = {.size = sizeof options, .stream = s.streams[3]};
    loch_compact_report report = {.size = sizeof report};
    CHECK_OK(loch_pool_compact(s.pool, &options, &report));
    assert_true(report.moves > 2);
    for (size_t i = 1; i < MANY; i += 2) {                     /* later work, on every stream and the default one */
        if (!loch_buffer_get_generation(buffers[i])) continue; /* a pin orders with moves, and the caller his streams */
        loch_stream *later = i % 5 == 4 ? NULL : s.streams[(i / 2) % 3];
        void *address = address_of(buffers[i], how == HASTY ? s.streams[3] : later);
        CHECK_OK(busy_write(later ? later : loch_stream_get_default(s.device), address, bytes));
        CHECK_OK(loch_buffer_record_use(buffers[i], later));
    }
    assert_int_equal(sim_now(s.device), before); /* the host waited for nothing */
    for (size_t i = 1; i < MANY; i += 2)
        loch_buffer_release(buffers[i]);
    CHECK_OK(loch_device_sync(s.device));
    const size_t violations = sim_violations(s.device, NULL);
    if (how != HONEST) CHECK_OK(loch_sim_clear_violations(s.device));
    bench_close(&s);
    return violations;
}

/* A compaction that waits for its own stream alone moves memory under the work of others, and later work of others does not wait for
 * the copies. That the checker would see it is shown by programs which keep a use to themselves. */
static void moves_are_ordered_with_all_streams(void **state)
{
    (void)state;
    static const struct {
        const char *device;
        size_t bytes; /* so that handles are left in part */
    } on[] = {{"sim:256MiB,clock=stepped", MIB + 100 * KIB},
              {"sim:256MiB,clock=stepped,granule=64KiB", 90 * KIB},
              {"sim:256MiB,clock=stepped,granule=64KiB,alias=off", 90 * KIB},
              {"sim:256MiB,clock=stepped,virtual=off", MIB + 100 * KIB}};
    for (size_t d = 0; d < 4; d++) {
        assert_int_equal(work_around_a_compaction(on[d].device, on[d].bytes, HONEST), 0);
        assert_true(work_around_a_compaction(on[d].device, on[d].bytes, FORGETFUL) > 0);
        assert_true(work_around_a_compaction(on[d].device, on[d].bytes, HASTY) > 0);
    }
}

/* The same when a stream that used the blocks is no more, and the one that compacts ends while its copies run. */
static void moves_are_ordered_with_streams_that_ended(void **state)
{
    (void)state;
    pool_bench s = bench_open("sim:256MiB,clock=stepped,granule=64KiB", 64 * MIB, 0);
    loch_stream *user = sim_stream(s.device, LOCH_STREAM_INDEPENDENT);
    loch_stream *mover = sim_stream(s.device, LOCH_STREAM_INDEPENDENT);
    loch_buffer *buffers[MANY];
    for (size_t i = 0; i < MANY; i++) {
        void *address;
        buffers[i] = make(&s, 300 * KIB, i % 4 == 1 ? user : s.streams[0]);
        pool_order(s.device, s.streams[0], user);
        CHECK_OK(loch_buffer_pin(buffers[i], user, &address));
        CHECK_OK(busy_write(user, address, 300 * KIB));
        CHECK_OK(loch_buffer_unpin(buffers[i], user));
    }
    for (size_t i = 0; i < MANY; i += 2)
        loch_buffer_clear(&buffers[i]);
    loch_stream_close(user);
    const loch_compact_options options = {.size = sizeof options, .stream = mover};
    loch_compact_report report = {.size = sizeof report};
    CHECK_OK(loch_pool_compact(s.pool, &options, &report));
    assert_true(report.moves > 2);
    loch_stream_close(mover);
    for (size_t i = 1; i < MANY; i += 2) {
        if (loch_buffer_get_generation(buffers[i])) {
            CHECK_OK(busy_write(s.streams[i % 3], address_of(buffers[i], s.streams[i % 3]), 300 * KIB));
            CHECK_OK(loch_buffer_record_use(buffers[i], s.streams[i % 3]));
        }
        loch_buffer_release(buffers[i]);
    }
    bench_close(&s);
}

/* --- 10 --- */

/* A free that makes a block anybody's at once hands memory to one stream that another still works on. Here the second stream waits on
 * the device; a third one that nobody was told of is found. */
static void frees_are_in_stream_order(void **state)
{
    (void)state;
    static const size_t sizes[] = {1000, 100 * KIB, 2 * MIB};
    static void *blocks[4096];
    for (size_t i = 0; i < 6; i++) {
        const size_t bytes = sizes[i / 2], is_lie = i % 2;
        pool_bench s = bench_open("sim:256MiB,clock=stepped", 2 * MIB, 0);
        size_t count = 0;
        while (count < 4096 && pool_try_alloc(s.pool, bytes, 0, s.streams[0], &blocks[count]) == LOCH_OK)
            count++; /* until it is full */
        for (size_t k = 0; k < count; k++)
            CHECK_OK(busy_write(s.streams[is_lie ? 2 : 0], blocks[k], bytes));
        for (size_t k = 0; k < count; k++)
            CHECK_OK(loch_free(s.pool, blocks[k]));
        for (size_t k = 0; k < count; k++) {
            blocks[k] = pool_alloc_on(s.pool, bytes, s.streams[1]);
            CHECK_OK(busy_write(s.streams[1], blocks[k], bytes));
        }
        const size_t violations = sim_violations(s.device, NULL);
        if (!is_lie) assert_int_equal(violations, 0);
        if (is_lie) assert_true(violations > 0);
        if (bytes == 2 * MIB && !is_lie)
            CHECK_STATUS(loch_stream_query(s.streams[0]), LOCH_E_BUSY); /* nothing waited for it */
        CHECK_OK(loch_sim_clear_violations(s.device));
        for (size_t k = 0; k < count; k++)
            CHECK_OK(loch_free(s.pool, blocks[k]));
        bench_close(&s);
    }
}

/* --- 11 --- */

typedef struct address_table {
    uint64_t buffers[MANY];
    const void *addresses[MANY];
} address_table;

static void mend_table(loch_allocator *pool, const loch_move *move, void *user)
{
    address_table *table = user;
    (void)pool;
    for (size_t i = 0; i < MANY; i++) {
        if (table->buffers[i] != move->buffer) continue;
        assert_ptr_equal(table->addresses[i], move->from);
        table->addresses[i] = move->to;
    }
}

/* Everything that moves memory: asked for, by freezing, and by an allocation that does not fit otherwise. */
static void press(const pool_bench *s)
{
    void *large = NULL;
    CHECK_OK(loch_pool_compact(s->pool, NULL, NULL));
    (void)!loch_alloc(s->pool, 12 * MIB, &large); /* may be too much for what is pinned */
    CHECK_OK(loch_free(s->pool, large));
    CHECK_OK(loch_pool_freeze(s->pool, NULL, NULL));
    CHECK_OK(loch_pool_unfreeze(s->pool, 0, NULL));
}

/* Addresses that a program has in tables, graphs or other processes are wrong after every compaction, and nothing says so. */
static void addresses_are_pinned_numbered_or_mended(void **state)
{
    (void)state;
    static const char *const devices[] = {"cpu", "sim:256MiB,granule=64KiB", "sim:256MiB,virtual=off"};
    for (size_t d = 0; d < 3; d++) {
        pool_bench s = bench_open(devices[d], 24 * MIB, d == 2 ? 24 * MIB : 0);
        loch_buffer *buffers[MANY];
        void *pinned[MANY] = {NULL};
        uint64_t generations[MANY];
        address_table table = {{0}, {NULL}};
        make_holes(&s, buffers, MANY, 900 * KIB);
        for (size_t i = 1; i < MANY; i += 2) {
            table.buffers[i] = loch_buffer_get_id(buffers[i]);
            table.addresses[i] = address_of(buffers[i], NULL);
            generations[i] = loch_buffer_get_generation(buffers[i]);
            if (i % 4 == 1) CHECK_OK(loch_buffer_pin(buffers[i], s.streams[0], &pinned[i]));
        }
        CHECK_OK(loch_pool_set_move_hook(s.pool, mend_table, &table));
        press(&s);
        size_t stale = 0;
        for (size_t i = 1; i < MANY; i += 2) {
            const bool has_moved = loch_buffer_get_generation(buffers[i]) != generations[i];
            if (pinned[i]) assert_false(has_moved);
            if (pinned[i]) assert_ptr_equal(loch_buffer_get_address(buffers[i]), pinned[i]);
            if (pinned[i]) CHECK_OK(loch_buffer_unpin(buffers[i], s.streams[0]));
            assert_ptr_equal(address_of(buffers[i], NULL), table.addresses[i]);
            stale += has_moved;
        }
        assert_true(stale > 0);
        press(&s); /* now those may move, too */
        for (size_t i = 1; i < MANY; i += 2) {
            assert_ptr_equal(address_of(buffers[i], NULL), table.addresses[i]);
            loch_buffer_release(buffers[i]);
        }
        bench_close(&s);
    }
}

/* --- 12 --- */

static uint64_t generations_of(const crowd *c)
{
    uint64_t sum = 0;
    for (size_t i = 0; i < STILL; i++)
        sum += loch_buffer_get_generation(c->still[i]);
    return sum;
}

/* While moving is forbidden nothing moves, whatever the others do. */
static void job_forbid_until_told(worker *w)
{
    const crowd *c = w->crowd;
    do {
        TRY(loch_pool_forbid_moving(c->scene->pool));
        const uint64_t before = generations_of(c);
        for (size_t i = 0; i < 20; i++) {
            sched_yield();
            EXPECT(generations_of(c) == before);
        }
        TRY(loch_pool_allow_moving(c->scene->pool));
        w->done++;
    } while (!atomic_load(&c->is_over));
}

static void job_compact_if_allowed(worker *w)
{
    const loch_compact_options options = {.size = sizeof options, .stream = w->stream};
    while (!atomic_load(&w->crowd->is_over) && !*w->failure) {
        const loch_status status = loch_pool_compact(w->crowd->scene->pool, &options, NULL);
        if (status != LOCH_E_MOVING_FORBIDDEN) TRY(status);
        w->done += status == LOCH_OK;
        sched_yield();
    }
}

static void job_read_figures(worker *w)
{
    loch_allocator *pool = w->crowd->scene->pool;
    char text[2000];
    do {
        loch_pool_info info = {.size = sizeof info};
        loch_stats stats = {.size = sizeof stats};
        loch_compact_report report = {.size = sizeof report};
        TRY(loch_pool_get_info(pool, &info));
        EXPECT(info.used_bytes + info.free_bytes + info.thread_bytes <= info.reserved_bytes);
        TRY(loch_allocator_get_stats(pool, &stats));
        EXPECT(stats.allocs - stats.frees == stats.blocks);
        EXPECT(test_pool_print(pool, text, sizeof text) > 0);
        TRY(loch_pool_plan_compact(pool, NULL, NULL, NULL, &report));
        w->done++;
    } while (!atomic_load(&w->crowd->is_over));
}

/* An explicit compaction without the lock, which does not heed that moving was forbidden, and figures that are read beside it. */
static void compaction_is_locked_and_can_be_forbidden(void **state)
{
    (void)state;
    for (size_t g = 0; g < GROUNDS; g++) {
        pool_bench s = bench_open(grounds[g].device, grounds[g].limit, 0);
        crowd c = crowd_on(&s);
        loch_buffer *holes[2 * STILL];
        c.tolerated |= TEST_SET(MOVING_FORBIDDEN);
        c.most_bytes = 60 * KIB;
        make_holes(&s, holes, 2 * STILL, 70 * KIB);
        for (size_t i = 0; i < STILL; i++)
            c.still[i] = holes[2 * i + 1];
        worker workers[6] = {{.job = job_share},
                             {.job = job_share},
                             {.job = job_forbid_until_told},
                             {.job = job_forbid_until_told},
                             {.job = job_compact_if_allowed},
                             {.job = job_read_figures}};
        crowd_run(&c, workers, 6, 4);
        for (size_t i = 0; i < 6; i++)
            assert_true(workers[i].done > 0 || i == 4);
        CHECK_OK(loch_pool_compact(s.pool, NULL, NULL)); /* nobody forbids it any more */
        for (size_t i = 0; i < STILL; i++)
            loch_buffer_release(c.still[i]);
        bench_close(&s);
    }
}

/* --- 13 --- */

#define LARGE_COUNT 6000 /* buffers of 1 MiB on average */

static void add_moved(loch_allocator *pool, const loch_move *move, void *user)
{
    (void)pool;
    *(size_t *)user += move->bytes;
}

/* Fills a pool with buffers up to its limit, and frees one of `part`. Returns how much is free then. */
static size_t fill_and_thin(const pool_bench *s, loch_buffer **buffers, size_t part)
{
    const loch_request once = {.size = sizeof once, .flags = LOCH_ALLOC_MOVABLE | LOCH_ALLOC_NO_RETRY};
    test_random random = {17};
    CHECK_OK(loch_pool_forbid_moving(s->pool));
    for (size_t i = 0, least = 500 * KIB; i < LARGE_COUNT; i++) {
        const size_t bytes = least + test_random_below(&random, 2 * least);
        if (loch_buffer_create(s->pool, bytes, &once, &buffers[i]) != LOCH_OK && (least /= 2) < 9 * KIB) break;
    }
    for (size_t i = 0; i < LARGE_COUNT; i += part)
        loch_buffer_clear(&buffers[i]);
    CHECK_OK(loch_pool_allow_moving(s->pool));
    return pool_info(s->pool).free_bytes;
}

/* A compaction that slides everything together copies gigabytes for a kilobyte that is missing. */
static void a_small_shortage_moves_little(void **state)
{
    (void)state;
    static loch_buffer *buffers[LARGE_COUNT];
    static const char *const devices[] = {"sim:16GiB", "sim:16GiB,virtual=off"};
    for (size_t i = 0; i < 4; i++) {
        pool_bench s = bench_open(devices[i / 2], 4 * GIB, i / 2 ? 256 * MIB : 0);
        size_t moved = 0;
        const size_t left = fill_and_thin(&s, buffers, i % 2 ? 2 : 30), largest = pool_info(s.pool).largest_free_bytes;
        assert_true(pool_info(s.pool).used_bytes > GIB && left > 50 * MIB);
        CHECK_OK(loch_pool_set_move_hook(s.pool, add_moved, &moved));
        void *block = pool_alloc(s.pool, largest + MIB);
        print_message("%s: %zu MiB in use, %zu KiB moved for 1 MiB more than the largest hole\n", devices[i / 2],
                      (4 * GIB - left) >> 20, moved >> 10);
        assert_true(moved <= 4 * MIB);
        loch_compact_report report = {.size = sizeof report};
        loch_compact_options goal = {.size = sizeof goal, .contiguous_bytes = pool_info(s.pool).largest_free_bytes};
        CHECK_OK(loch_pool_compact(s.pool, &goal, &report));
        assert_int_equal(report.moved_bytes, 0); /* it is there */
        goal.contiguous_bytes += MIB;
        CHECK_OK(loch_pool_compact(s.pool, &goal, &report));
        assert_true(report.moved_bytes > 0 && report.moved_bytes <= 4 * MIB);
        CHECK_OK(loch_free(s.pool, block));
        for (size_t k = 0; k < LARGE_COUNT; k++)
            loch_buffer_clear(&buffers[k]);
        bench_close(&s);
    }
}

/* --- 14 --- */

/* One thing that needs host memory, on a pool that stays; gives back all that it took. */
typedef loch_status operation(const pool_bench *s);

static loch_status op_alloc(const pool_bench *s)
{
    static const size_t sizes[] = {100, 8 * KIB, 100 * KIB, 3 * MIB};
    for (size_t i = 0; i < 4; i++) {
        void *block;
        const loch_status status = pool_try_alloc(s->pool, sizes[i], 0, s->streams[i], &block);
        if (status != LOCH_OK) return status;
        CHECK_OK(loch_free(s->pool, block));
    }
    return LOCH_OK;
}

static loch_status op_buffer(const pool_bench *s)
{
    const loch_request request = {.size = sizeof request, .stream = s->streams[1], .flags = LOCH_ALLOC_MOVABLE};
    loch_buffer *buffer;
    void *address;
    loch_status status = loch_buffer_create(s->pool, 50 * KIB, &request, &buffer);
    if (status == LOCH_OK) status = loch_buffer_pin(buffer, s->streams[2], &address);
    if (status == LOCH_OK) status = loch_buffer_unpin(buffer, s->streams[2]);
    if (status == LOCH_OK) status = loch_buffer_record_use(buffer, s->streams[3]);
    loch_buffer_release(buffer);
    return status;
}

static loch_status op_compact(const pool_bench *s)
{
    const loch_compact_options options = {.size = sizeof options, .stream = s->streams[3]};
    return loch_pool_compact(s->pool, &options, NULL);
}

static loch_status op_freeze(const pool_bench *s)
{
    const loch_freeze_options options = {.size = sizeof options, .stream = s->streams[3]};
    const loch_status status = loch_pool_freeze(s->pool, &options, NULL);
    return status == LOCH_OK ? loch_pool_unfreeze(s->pool, 0, NULL) : status;
}

static loch_status child_of_kind(const pool_bench *s, loch_child_kind kind)
{
    loch_allocator *child;
    void *block = NULL;
    loch_status status = child_try(s->pool, kind, 0, 4 * MIB, s->streams[1], &child);
    if (status != LOCH_OK) return status;
    status = loch_alloc(child, 100 * KIB, &block);
    CHECK_OK(loch_free(child, block));
    loch_allocator_release(child);
    return status;
}

static loch_status op_range(const pool_bench *s)
{
    return child_of_kind(s, LOCH_CHILD_RANGE);
}

static loch_status op_quota(const pool_bench *s)
{
    return child_of_kind(s, LOCH_CHILD_QUOTA);
}

typedef struct operation_on {
    operation *op;
    const char *device;
} operation_on;

/* After a failed allocation of bookkeeping the pool is whole, unlocked, and can do it. */
static void operate_while_failing(test_round *round, const void *user)
{
    const operation_on *it = user;
    pool_bench s = bench_open(it->device, 48 * MIB, 0);
    loch_buffer *buffers[MANY];
    make_holes(&s, buffers, MANY, 100 * KIB);
    const size_t blocks = tensor_live_blocks(s.pool);
    test_round_begin(round, s.device);
    const loch_status status = it->op(&s);
    test_round_end(round);
    if (status != LOCH_OK) assert_true((POOL_SHORT | TEST_SET(HOST_MEMORY)) & 1u << status);
    round->is_felt = status != LOCH_OK;
    pool_expect_whole(s.pool); /* under the pool's lock */
    assert_int_equal(tensor_live_blocks(s.pool), blocks);
    CHECK_OK(it->op(&s));
    for (size_t i = 1; i < MANY; i += 2)
        loch_buffer_release(buffers[i]);
    bench_close(&s);
}

/* When the list of blocks cannot grow, the half-made block is freed under the lock that is held, and a constructor that fails in the
 * middle leaves what it had taken so far. */
static void want_of_host_memory_holds_no_lock(void **state)
{
    (void)state;
    static operation *const operations[] = {op_alloc, op_buffer, op_compact, op_freeze, op_range, op_quota};
    static const char *const devices[] = {"sim:64MiB,granule=64KiB", "sim:64MiB,virtual=off"};
    test_faults once = test_host_faults;
    uint64_t felt = 0;
    once.only = TEST_FAILING_ONCE;
    alarm(WATCHDOG_SECONDS);
    for (size_t d = 0; d < 2; d++)
        for (size_t i = 0; i < sizeof operations / sizeof *operations; i++) {
            const operation_on it = {operations[i], devices[d]};
            felt += test_rounds_run(&once, devices[d], operate_while_failing, &it).felt;
        }
    alarm(0);
    assert_true(felt > 100);
}

/* --- 15 --- */

static void *release_elsewhere(void *user)
{
    loch_buffer_release(user);
    return NULL;
}

/* Handles that are freed after their allocator, in a program's end for instance, call an object that is no more. */
static void handles_outlive_everything(void **state)
{
    (void)state;
    static const char *const devices[] = {"cpu", "sim:256MiB,granule=64KiB", "sim:256MiB,virtual=off"};
    for (size_t d = 0; d < 3; d++) {
        pool_bench s = bench_open(devices[d], 32 * MIB, 0), inner = s;
        loch_allocator *range = child_range(s.pool, 2 * MIB), *quota = child_quota(s.pool, 0, 4 * MIB), *direct;
        CHECK_OK(loch_direct_create(s.device, NULL, NULL, &direct));
        loch_allocator *owners[] = {s.pool, range, quota};
        loch_buffer *buffers[3], *part, *pinned;
        void *raw[4], *address;
        for (size_t i = 0; i < 3; i++) {
            inner.pool = owners[i];
            raw[i] = pool_alloc(owners[i], i ? 100 : 300 * KIB);
            buffers[i] = make(&inner, 100 * KIB, s.streams[0]);
        }
        raw[3] = pool_alloc(direct, 5000);
        CHECK_OK(loch_pool_compact(s.pool, NULL, NULL));
        pinned = make(&s, 50 * KIB, s.streams[1]);
        CHECK_OK(loch_buffer_pin(pinned, s.streams[1], &address));
        CHECK_OK(loch_buffer_slice(buffers[0], 10, 20, &part));
        for (size_t i = 0; i < STREAMS; i++)
            loch_stream_close(s.streams[i]);
        loch_allocator_release(s.pool);
        loch_allocator_release(range);
        loch_allocator_release(quota);
        loch_allocator_release(direct);
        loch_device_release(s.device);
        pthread_t thread;
        assert_int_equal(pthread_create(&thread, NULL, release_elsewhere, buffers[1]), 0);
        pthread_join(thread, NULL);
        CHECK_OK(loch_free(range, raw[1])); /* the end of the range */
        loch_buffer_release(buffers[0]);
        CHECK_OK(loch_free(s.pool, raw[0]));
        CHECK_OK(loch_free(direct, raw[3]));
        loch_buffer_release(pinned); /* with its pin */
        loch_buffer_release(part);
        CHECK_OK(loch_free(quota, raw[2]));
        loch_buffer_release(buffers[2]); /* the end of all, and of the device */
    }
}

/* --- 16 --- */

static void job_direct(worker *w)
{
    loch_allocator *direct = w->crowd->scene->pool;
    void *blocks[4] = {NULL};
    for (size_t step = 0; step < 1500; step++) {
        void **block = &blocks[test_random_below(&w->random, 4)];
        if (*block) {
            TRY(loch_free(direct, *block));
            *block = NULL;
            continue;
        }
        const loch_request request = {
            .size = sizeof request, .bytes = 1 + test_random_below(&w->random, 1000), .flags = LOCH_ALLOC_NO_RETRY};
        const loch_status status = loch_allocator_alloc(direct, &request, block);
        if (status != LOCH_E_LIMIT) TRY(status);
        loch_stats stats = {.size = sizeof stats};
        TRY(loch_allocator_get_stats(direct, &stats));
        EXPECT(stats.requested_bytes <= 5000);
    }
    for (size_t i = 0; i < 4; i++)
        TRY(loch_free(direct, blocks[i]));
}

/* An allocator for checking memory that has no lock, and hands out more than its limit. */
static void the_direct_allocator_keeps_its_limit(void **state)
{
    (void)state;
    for (int is_wrapped = 0; is_wrapped < 2; is_wrapped++) {
        pool_bench s = bench_open("sim:64MiB", 0, 0), inner = s;
        const loch_direct_options options = {.size = sizeof options, .limit_bytes = is_wrapped ? 0 : 5000};
        const loch_limit_options limit = {.size = sizeof limit, .hard_bytes = 5000};
        loch_allocator *direct;
        CHECK_OK(loch_direct_create(s.device, NULL, &options, &direct));
        inner.pool = direct;
        if (is_wrapped) CHECK_OK(loch_limit_create(direct, NULL, &limit, &inner.pool));
        void *none = TEST_UNTOUCHED;
        CHECK_FAILS(loch_alloc(inner.pool, 5001, &none), LIMIT);
        assert_null(none);
        crowd c = crowd_on(&inner);
        worker workers[4] = {{.job = job_direct}, {.job = job_direct}, {.job = job_direct}, {.job = job_direct}};
        crowd_run(&c, workers, 4, 0);
        assert_int_equal(pool_stats(inner.pool).requested_bytes, 0);
        CHECK_OK(loch_free(inner.pool, pool_alloc(inner.pool, 5000))); /* all of it is there again */
        assert_int_equal(sim_stats(s.device).physical_bytes, 0);
        if (is_wrapped) loch_allocator_release(inner.pool);
        loch_allocator_release(direct);
        bench_close(&s);
    }
}

/* Frees that are put off until the end of a session which nobody ever ends: memory only grows, and is not even given back when the
 * allocator ends. */
static void the_direct_allocator_gives_all_back(void **state)
{
    (void)state;
    loch_device *device = sim_open("sim:64MiB,clock=stepped");
    loch_stream *stream = sim_stream(device, LOCH_STREAM_INDEPENDENT);
    const loch_direct_options options = {
        .size = sizeof options, .when = LOCH_DIRECT_FREE_DEFERRED, .limit_bytes = 40 * KIB};
    loch_allocator *direct;
    CHECK_OK(loch_direct_create(device, NULL, &options, &direct));
    for (size_t session = 0; session < 5; session++) {
        size_t released;
        void *none;
        for (size_t i = 0; i < 4; i++) {
            void *block = pool_alloc_on(direct, 10 * KIB, stream);
            CHECK_OK(busy_write(stream, block, 10 * KIB));
            CHECK_OK(loch_free(direct, block));
        }
        CHECK_FAILS(loch_alloc(direct, 1, &none), LIMIT); /* what is put off counts */
        if (session == 4) break;
        CHECK_OK(loch_direct_free_deferred(direct, &released));
        assert_int_equal(released, 40 * KIB);
        assert_int_equal(sim_stats(device).physical_bytes, 0);
    }
    assert_true(sim_stats(device).physical_bytes > 0);
    loch_allocator_release(direct); /* the last session ends with it */
    assert_int_equal(sim_stats(device).physical_bytes, 0);
    assert_int_equal(sim_violations(device, NULL), 0);
    loch_stream_close(stream);
    loch_device_release(device);
}

/* An alignment that is heard only up to the driver's own. */
static void the_direct_allocator_keeps_alignments(void **state)
{
    (void)state;
    static const char *const devices[] = {"cpu", "sim:64MiB,backed"};
    for (size_t d = 0; d < 2; d++) {
        loch_device *device = sim_open(devices[d]);
        loch_allocator *direct;
        CHECK_OK(loch_direct_create(device, NULL, NULL, &direct));
        for (size_t alignment = 1; alignment <= 4 * MIB; alignment *= 2) {
            void *block, *other;
            CHECK_OK(pool_try_alloc(direct, 100, alignment, NULL, &block));
            CHECK_OK(pool_try_alloc(direct, 3 * alignment + 1, alignment, NULL, &other));
            assert_int_equal((uintptr_t)block % alignment, 0);
            assert_int_equal((uintptr_t)other % alignment, 0);
            CHECK_OK(loch_free(direct, block));
            CHECK_OK(loch_free(direct, other));
            if (alignment > 2) CHECK_FAILS(pool_try_alloc(direct, 100, alignment + 1, NULL, &block), INVALID);
        }
        loch_allocator_release(direct);
        loch_device_release(device);
    }
}

int main(void)
{
    if (test_heap_install() != LOCH_OK) return 1;
    const struct CMUnitTest tests[] = {
        TENSOR_TEST(the_last_reference_goes_while_others_allocate),
        TENSOR_TEST(a_block_is_released_during_a_compaction),
        TENSOR_TEST(a_free_takes_no_record_of_another),
        TENSOR_TEST(a_child_beside_a_large_block),
        TENSOR_TEST(children_that_are_small),
        TENSOR_TEST(children_end_before_their_buffers),
        TENSOR_TEST(all_that_is_free_can_be_had),
        TENSOR_TEST(frozen_memory_that_is_freed_is_used_again),
        TENSOR_TEST(sizes_near_the_largest_do_not_wrap),
        TENSOR_TEST(moves_are_ordered_with_all_streams),
        TENSOR_TEST(moves_are_ordered_with_streams_that_ended),
        TENSOR_TEST(frees_are_in_stream_order),
        TENSOR_TEST(addresses_are_pinned_numbered_or_mended),
        TENSOR_TEST(compaction_is_locked_and_can_be_forbidden),
        TENSOR_TEST(a_small_shortage_moves_little),
        TENSOR_TEST(want_of_host_memory_holds_no_lock),
        TENSOR_TEST(handles_outlive_everything),
        TENSOR_TEST(the_direct_allocator_keeps_its_limit),
        TENSOR_TEST(the_direct_allocator_gives_all_back),
        TENSOR_TEST(the_direct_allocator_keeps_alignments),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

/* SPDX-License-Identifier: MIT */
/* Pools of buffers: what is kept and for whom, order between streams under the checker, whose buffers they are, threads, and
 * every piece of bookkeeping refused in turn. */
#include "sim_fixture.h"
#include "sweep.h"
#include "worker.h"

#include <pthread.h>

#define KIB TEST_KIB
#define STEPPED "sim:64MiB,granule=64KiB,clock=stepped,lag=1000,backed"

typedef struct bench {
    loch_device *device;
    loch_allocator *allocator;
    loch_stream *a, *b;
    loch_buffer_pool *pool;
} bench;

typedef loch_status make_allocator(loch_device *device, loch_allocator **out);

static loch_status make_pool(loch_device *device, loch_allocator **out)
{
    return loch_pool_create(device, "scratch", NULL, out);
}

static loch_status make_direct(loch_device *device, loch_allocator **out)
{
    return loch_direct_create(device, "scratch", NULL, out);
}

static bench bench_open_with(const char *name, make_allocator *make, const loch_buffer_pool_options *options)
{
    bench it = {.device = sim_open(name)};
    CHECK_OK(make(it.device, &it.allocator));
    CHECK_OK(loch_stream_create(it.device, NULL, &it.a));
    CHECK_OK(loch_stream_create(it.device, NULL, &it.b));
    CHECK_OK(loch_buffer_pool_create(it.allocator, options, &it.pool));
    return it;
}

static bench bench_open(const char *name, const loch_buffer_pool_options *options)
{
    return bench_open_with(name, make_pool, options);
}

static void bench_close(bench *it)
{
    loch_stream_close(it->a);
    loch_stream_close(it->b);
    loch_buffer_pool_destroy(it->pool);
    sim_expect_order(it->device);
    loch_allocator_release(it->allocator);
    loch_device_release(it->device);
}

static loch_buffer *get(const bench *it, size_t bytes, loch_stream *stream)
{
    loch_buffer *buffer;
    CHECK_OK(loch_buffer_pool_acquire(it->pool, bytes, stream, &buffer));
    assert_int_equal(loch_buffer_get_bytes(buffer), bytes);
    return buffer;
}

static void put(const bench *it, loch_buffer *buffer, loch_stream *stream)
{
    CHECK_OK(loch_buffer_pool_release(it->pool, buffer, stream));
}

static loch_status writes(loch_stream *stream, loch_buffer *buffer)
{
    return sim_writes(stream, loch_buffer_get_address(buffer), loch_buffer_get_bytes(buffer));
}

/* Gets a buffer, queues a kernel that writes it, gives it back; returns its number. */
static uint64_t use(const bench *it, size_t bytes, loch_stream *stream)
{
    loch_buffer *buffer = get(it, bytes, stream);
    const uint64_t id = loch_buffer_get_id(buffer);
    CHECK_OK(writes(stream, buffer));
    put(it, buffer, stream);
    return id;
}

static loch_buffer_pool_stats stats_of(const bench *it)
{
    loch_buffer_pool_stats stats = {.size = sizeof stats};
    CHECK_OK(loch_buffer_pool_get_stats(it->pool, &stats));
    return stats;
}

/* --- what is kept --- */

static void one_buffer_serves_again(void **state)
{
    (void)state;
    static const char *const names[] = {"cpu", STEPPED, "sim:64MiB,async=off"};
    for (size_t i = 0; i < 3; i++) {
        bench it = bench_open(names[i], NULL);
        loch_buffer *first = get(&it, 1000, it.a);
        const uint64_t id = loch_buffer_get_id(first);
        loch_buffer_pool_stats stats = stats_of(&it);
        assert_int_equal(stats.out, 1);
        assert_int_equal(stats.idle, 0);
        put(&it, first, it.a);
        CHECK_OK(loch_device_measure_calls(it.device, LOCH_MEASURE_OFF));
        for (size_t bytes = 1000; bytes >= 800; bytes -= 50) {
            loch_buffer *again = get(&it, bytes, it.a);
            assert_int_equal(loch_buffer_get_id(again), id);
            put(&it, again, it.a);
        }
        assert_int_equal(test_call_count(it.device, "stream_wait"), 0);
        assert_int_equal(test_call_count(it.device, "event_create"), 0);
        stats = stats_of(&it);
        assert_int_equal(stats.acquired, 6);
        assert_int_equal(stats.reused, 5);
        assert_int_equal(stats.out, 0);
        assert_int_equal(stats.idle, 1);
        assert_int_equal(stats.idle_bytes, 1000);
        bench_close(&it);
    }
}

static void waste_has_a_limit(void **state)
{
    (void)state;
    bench it = bench_open("cpu", NULL);
    put(&it, get(&it, 1000, NULL), NULL);
    loch_buffer *small = get(&it, 799, NULL); /* 1000 is more than a quarter larger */
    assert_int_equal(stats_of(&it).reused, 0);
    loch_buffer *close = get(&it, 800, NULL);
    assert_int_equal(stats_of(&it).reused, 1);
    put(&it, small, NULL);
    put(&it, close, NULL);
    loch_buffer *out = TEST_UNTOUCHED;
    CHECK_FAILS_SET(loch_buffer_pool_acquire(it.pool, SIZE_MAX, NULL, &out),
                    TEST_SET(OVERFLOW) | TEST_SET(DEVICE_MEMORY));
    assert_null(out);
    bench_close(&it);

    const loch_buffer_pool_options wasteful = {.size = sizeof wasteful, .waste_percent = UINT32_MAX};
    it = bench_open("cpu", &wasteful);
    put(&it, get(&it, 1 << 20, NULL), NULL);
    put(&it, get(&it, 1, NULL), NULL);
    assert_int_equal(stats_of(&it).reused, 1);
    bench_close(&it);
}

static void the_smallest_that_fits_and_of_equals_the_last(void **state)
{
    (void)state;
    const loch_buffer_pool_options wasteful = {.size = sizeof wasteful, .waste_percent = 100};
    bench it = bench_open("cpu", &wasteful);
    static const size_t sizes[] = {1900, 1200, 1000, 1500, 1200};
    loch_buffer *buffers[5];
    uint64_t ids[5];
    for (size_t i = 0; i < 5; i++) {
        buffers[i] = get(&it, sizes[i], NULL);
        ids[i] = loch_buffer_get_id(buffers[i]);
    }
    for (size_t i = 0; i < 5; i++)
        put(&it, buffers[i], NULL);
    static const size_t expected[] = {4, 1, 3, 0}; /* 1000 is too small for 1100 */
    for (size_t i = 0; i < 4; i++) {
        buffers[i] = get(&it, 1100, NULL);
        assert_int_equal(loch_buffer_get_id(buffers[i]), ids[expected[i]]);
    }
    for (size_t i = 0; i < 4; i++)
        put(&it, buffers[i], NULL);
    bench_close(&it);
}

static void what_was_unused_longest_goes_first(void **state)
{
    (void)state;
    const loch_buffer_pool_options few = {.size = sizeof few, .idle_count_max = 3, .idle_bytes_max = 100 * KIB};
    static const char *const names[] = {"cpu", STEPPED};
    for (size_t n = 0; n < 2; n++) {
        bench it = bench_open(names[n], &few);
        loch_buffer *buffers[5];
        uint64_t ids[5];
        for (size_t i = 0; i < 5; i++) {
            buffers[i] = get(&it, (i + 1) * KIB, NULL);
            ids[i] = loch_buffer_get_id(buffers[i]);
        }
        for (size_t i = 0; i < 3; i++)
            put(&it, buffers[i], NULL);
        put(&it, get(&it, KIB, NULL), NULL); /* the oldest is the newest now */
        put(&it, buffers[3], NULL);          /* and the one of 2 KiB goes */
        assert_int_equal(stats_of(&it).idle, 3);
        assert_int_equal(stats_of(&it).idle_bytes, (1 + 3 + 4) * KIB);
        loch_buffer *kept = get(&it, KIB, NULL);
        assert_int_equal(loch_buffer_get_id(kept), ids[0]);
        put(&it, kept, NULL);
        put(&it, buffers[4], NULL); /* 3 KiB goes */
        assert_int_equal(stats_of(&it).idle_bytes, (1 + 4 + 5) * KIB);

        put(&it, get(&it, 98 * KIB, NULL), NULL); /* bytes: 4, then 1 goes; not 5, though it is larger */
        assert_int_equal(stats_of(&it).idle_bytes, 98 * KIB);
        put(&it, get(&it, 101 * KIB, NULL), NULL); /* more than may be kept at all: the others stay */
        assert_int_equal(stats_of(&it).idle_bytes, 98 * KIB);
        bench_close(&it);
    }
}

static void trimming(void **state)
{
    (void)state;
    bench it = bench_open(STEPPED, NULL);
    loch_buffer *buffers[4];
    size_t released = 99;
    for (size_t i = 0; i < 4; i++)
        buffers[i] = get(&it, (i + 1) * KIB, it.a);
    for (size_t i = 0; i < 4; i++)
        put(&it, buffers[i], it.a);
    CHECK_OK(loch_buffer_pool_trim(it.pool, 10 * KIB, &released));
    assert_int_equal(released, 0);
    CHECK_OK(loch_buffer_pool_trim(it.pool, 8 * KIB, &released));
    assert_int_equal(released, 3 * KIB); /* 1 is not enough */
    assert_int_equal(stats_of(&it).idle, 2);
    CHECK_OK(loch_buffer_pool_trim(it.pool, 0, NULL));
    assert_int_equal(stats_of(&it).idle_bytes, 0);
    assert_int_equal(stats_of(&it).idle, 0);
    loch_stats figures = {.size = sizeof figures};
    CHECK_OK(loch_allocator_get_stats(it.allocator, &figures));
    assert_int_equal(figures.blocks, 0);
    assert_int_equal(sim_stats(it.device).events, 0); /* nor events for buffers to come */
    CHECK_FAILS(loch_buffer_pool_trim(NULL, 0, &released), INVALID);
    assert_int_equal(released, 0);
    bench_close(&it);
}

static void nothing_is_a_buffer_too(void **state)
{
    (void)state;
    bench it = bench_open(STEPPED, NULL);
    loch_buffer *empty = get(&it, 0, it.a);
    assert_null(loch_buffer_get_address(empty));
    put(&it, empty, it.b);
    assert_int_equal(stats_of(&it).idle, 0);
    put(&it, NULL, it.a);
    bench_close(&it);
}

static void alignment_and_tag(void **state)
{
    (void)state;
    loch_tag tag;
    CHECK_OK(loch_tag_create("scratch", &tag));
    const loch_buffer_pool_options options = {.size = sizeof options, .alignment = 4096, .tag = tag};
    bench it = bench_open("cpu", &options);
    loch_buffer *buffer = get(&it, 100, NULL);
    assert_int_equal((uintptr_t)loch_buffer_get_address(buffer) % 4096, 0);
    loch_block block = {.size = sizeof block};
    CHECK_OK(loch_allocator_find(it.allocator, loch_buffer_get_address(buffer), &block));
    assert_int_equal(block.tag, tag);
    put(&it, buffer, NULL);
    bench_close(&it);
}

/* A pool that keeps buffers must not be why others run out of memory. */
static void what_is_kept_goes_when_memory_is_short(void **state)
{
    (void)state;
    bench it = {.device = sim_open("sim:64MiB,granule=64KiB,clock=stepped")};
    const loch_pool_options limited = {.size = sizeof limited, .limit_bytes = 8 * TEST_MIB};
    CHECK_OK(loch_pool_create(it.device, "limited", &limited, &it.allocator));
    CHECK_OK(loch_buffer_pool_create(it.allocator, NULL, &it.pool));
    loch_buffer *first = get(&it, 4 * TEST_MIB, NULL), *second = get(&it, 3 * TEST_MIB, NULL);
    put(&it, first, NULL);
    put(&it, second, NULL);
    void *block;
    CHECK_OK(loch_alloc(it.allocator, 4 * TEST_MIB, &block)); /* of somebody else */
    assert_int_equal(stats_of(&it).idle, 1);                  /* no more than needed */
    loch_buffer *large;
    CHECK_FAILS_SET(loch_buffer_pool_acquire(it.pool, 6 * TEST_MIB, NULL, &large),
                    TEST_SET(LIMIT) | TEST_SET(DEVICE_MEMORY) | TEST_SET(FRAGMENTED));
    assert_int_equal(stats_of(&it).idle, 0);
    CHECK_OK(loch_free(it.allocator, block));
    put(&it, get(&it, 6 * TEST_MIB, NULL), NULL); /* and the pool's own */
    put(&it, get(&it, 8 * TEST_MIB, NULL), NULL);
    bench_close(&it);
}

/* --- whose it is --- */

static void buffers_of_others_are_foreign(void **state)
{
    (void)state;
    bench it = bench_open(STEPPED, NULL);
    loch_buffer_pool *other;
    loch_buffer *plain, *part, *mine = get(&it, 1000, it.a);
    CHECK_OK(loch_buffer_pool_create(it.allocator, NULL, &other));
    CHECK_OK(loch_buffer_create(it.allocator, 1000, NULL, &plain));
    CHECK_OK(loch_buffer_slice(mine, 0, 10, &part));
    CHECK_FAILS(loch_buffer_pool_release(other, mine, it.a), FOREIGN);
    CHECK_FAILS(loch_buffer_pool_release(it.pool, plain, it.a), FOREIGN);
    CHECK_FAILS(loch_buffer_pool_release(it.pool, part, it.a), FOREIGN);
    assert_int_equal(loch_buffer_get_references(plain), 1);
    assert_int_equal(loch_buffer_get_references(mine), 2); /* itself and the part */
    assert_int_equal(stats_of(&it).out, 1);
    loch_buffer_release(part);
    loch_buffer_release(plain);
    loch_buffer_pool_destroy(other);
    put(&it, mine, it.a);
    CHECK_FAILS(loch_buffer_pool_release(it.pool, mine, it.a), FOREIGN); /* the pool's own now: kept alive, not ours */
    assert_int_equal(stats_of(&it).idle, 1);
    assert_int_equal(stats_of(&it).out, 0);
    bench_close(&it);
}

static void what_others_hold_is_not_kept(void **state)
{
    (void)state;
    bench it = bench_open(STEPPED, NULL);
    loch_buffer *buffer = loch_buffer_retain(get(&it, 1000, it.a));
    put(&it, buffer, it.a);
    assert_int_equal(stats_of(&it).idle, 0);
    assert_int_equal(loch_buffer_get_references(buffer), 1);
    CHECK_OK(writes(it.a, buffer));
    loch_buffer_release(buffer);
    loch_buffer *part;
    buffer = get(&it, 1000, it.a);
    CHECK_OK(loch_buffer_slice(buffer, 500, 100, &part));
    put(&it, buffer, it.a);
    assert_int_equal(stats_of(&it).idle, 0);
    assert_non_null(loch_buffer_get_address(part));
    loch_buffer_release(part);
    loch_buffer_release(get(&it, 1000, it.a)); /* simply released: not kept */
    assert_int_equal(stats_of(&it).idle, 0);
    bench_close(&it);
}

static void owners_may_resize_and_detach(void **state)
{
    (void)state;
    const loch_buffer_pool_options aligned = {.size = sizeof aligned, .alignment = 4096};
    bench it = bench_open("cpu", &aligned);
    loch_buffer *buffer = get(&it, 1000, NULL);
    CHECK_OK(loch_buffer_resize(buffer, 300 * KIB, LOCH_CONTENTS_DROP, NULL));
    put(&it, buffer, NULL);
    assert_int_equal(stats_of(&it).idle_bytes, 300 * KIB);
    buffer = get(&it, 300 * KIB, NULL);
    assert_int_equal(stats_of(&it).reused, 1);
    assert_int_equal((uintptr_t)loch_buffer_get_address(buffer) % 4096, 0);
    void *block;
    CHECK_OK(loch_buffer_detach(buffer, &block));
    put(&it, buffer, NULL);
    assert_int_equal(stats_of(&it).idle, 0);
    CHECK_OK(loch_free(it.allocator, block));
    bench_close(&it);
}

static void the_pool_may_go_first(void **state)
{
    (void)state;
    bench it = bench_open(STEPPED, NULL);
    for (int i = 0; i < 4; i++) { /* often at the same address: marks must not be addresses */
        loch_buffer *out = get(&it, 1000, it.a), *idle = get(&it, 5000, it.a);
        put(&it, idle, it.a);
        CHECK_OK(writes(it.a, out));
        loch_buffer_pool_destroy(it.pool);
        CHECK_OK(loch_buffer_pool_create(it.allocator, NULL, &it.pool));
        CHECK_FAILS(loch_buffer_pool_release(it.pool, out, it.a), FOREIGN);
        CHECK_OK(writes(it.a, out));
        loch_buffer_release(out);
    }
    loch_buffer_pool_destroy(NULL);
    bench_close(&it);
}

/* --- streams --- */

static make_allocator *const makers[] = {make_pool, make_direct};

static void another_stream_waits_on_the_device(void **state)
{
    (void)state;
    for (size_t i = 0; i < 2; i++) {
        bench it = bench_open_with(STEPPED, makers[i], NULL);
        CHECK_OK(loch_device_measure_calls(it.device, LOCH_MEASURE_OFF));
        const uint64_t id = use(&it, 1000, it.a);
        assert_int_equal(use(&it, 1000, it.b), id);
        assert_int_equal(test_call_count(it.device, "stream_wait"), 1);
        assert_int_equal(use(&it, 1000, it.b), id); /* its own by now */
        assert_int_equal(test_call_count(it.device, "stream_wait"), 1);
        assert_int_equal(use(&it, 1000, loch_stream_get_default(it.device)), id);
        assert_int_equal(test_call_count(it.device, "stream_wait"), 2);
        assert_true(sim_stats(it.device).pending >= 4); /* the host waited for nothing */
        CHECK_OK(loch_sim_advance(it.device, 1000000));
        assert_int_equal(use(&it, 1000, it.a), id); /* has passed: no wait */
        assert_int_equal(test_call_count(it.device, "stream_wait"), 2);
        bench_close(&it);
    }
}

static void own_ones_first_then_those_that_have_passed(void **state)
{
    (void)state;
    bench it = bench_open(STEPPED, NULL);
    loch_stream *c = sim_stream(it.device, LOCH_STREAM_INDEPENDENT);
    loch_buffer *mine = get(&it, 1100, it.a), *passed = get(&it, 1050, it.b), *busy = get(&it, 1000, c);
    const uint64_t mine_id = loch_buffer_get_id(mine), passed_id = loch_buffer_get_id(passed),
                   busy_id = loch_buffer_get_id(busy);
    CHECK_OK(writes(it.a, mine));
    CHECK_OK(writes(it.b, passed));
    put(&it, mine, it.a);
    put(&it, passed, it.b);
    CHECK_OK(loch_sim_advance(it.device, 100000));
    CHECK_OK(writes(c, busy));
    put(&it, busy, c);
    /* the smaller ones belong to others */
    mine = get(&it, 1000, it.a);
    assert_int_equal(loch_buffer_get_id(mine), mine_id);
    passed = get(&it, 1000, it.a);
    assert_int_equal(loch_buffer_get_id(passed), passed_id);
    busy = get(&it, 1000, it.a);
    assert_int_equal(loch_buffer_get_id(busy), busy_id);
    CHECK_OK(writes(it.a, busy));
    put(&it, mine, it.a);
    put(&it, passed, it.a);
    put(&it, busy, it.a);
    loch_stream_close(c);
    bench_close(&it);
}

/* A block that was allocated for one stream and worked on by another goes back to the allocator behind both: kept and
 * thrown out, simply released, or given back while others hold it. */
static void blocks_go_back_behind_all_their_streams(void **state)
{
    (void)state;
    enum { TRIMMED, RELEASED, HELD, WAYS };
    for (size_t i = 0; i < 2 * WAYS; i++) {
        bench it = bench_open_with(STEPPED, makers[i / WAYS], NULL);
        const uint64_t id = use(&it, 100 * KIB, it.a);
        loch_buffer *buffer = get(&it, 100 * KIB, it.b);
        assert_int_equal(loch_buffer_get_id(buffer), id);
        CHECK_OK(writes(it.b, buffer));
        loch_buffer *held = i % WAYS == HELD ? loch_buffer_retain(buffer) : NULL;
        if (i % WAYS == RELEASED)
            loch_buffer_release(buffer);
        else
            put(&it, buffer, it.b);
        loch_buffer_release(held);
        CHECK_OK(loch_buffer_pool_trim(it.pool, 0, NULL));
        for (int n = 0; n < 4; n++) { /* whoever gets that memory now, for the first stream */
            void *block;
            const loch_request request = {.size = sizeof request, .bytes = 100 * KIB, .stream = it.a};
            CHECK_OK(loch_allocator_alloc(it.allocator, &request, &block));
            CHECK_OK(sim_writes(it.a, block, 100 * KIB));
            CHECK_OK(loch_free(it.allocator, block));
        }
        bench_close(&it);
    }
}

/* Used on one stream, given back in the order of another that has waited for it, which only the release says. */
static void given_back_on_another_stream(void **state)
{
    (void)state;
    for (int is_trimmed = 0; is_trimmed < 2; is_trimmed++) {
        bench it = bench_open(STEPPED, NULL);
        loch_event *event = sim_event(it.device);
        loch_buffer *buffer = get(&it, 100 * KIB, it.a);
        CHECK_OK(writes(it.a, buffer));
        CHECK_OK(loch_event_record(event, it.a));
        CHECK_OK(loch_stream_wait(it.b, event));
        CHECK_OK(writes(it.b, buffer));
        put(&it, buffer, it.b);
        if (is_trimmed) CHECK_OK(loch_buffer_pool_trim(it.pool, 0, NULL));
        (void)use(&it, 100 * KIB, it.a);
        assert_int_equal(stats_of(&it).reused, is_trimmed ? 0 : 1);
        loch_event_destroy(event);
        bench_close(&it);
    }
}

static void streams_may_end_meanwhile(void **state)
{
    (void)state;
    for (size_t i = 0; i < 2; i++) {
        bench it = bench_open_with(STEPPED, makers[i], NULL);
        const uint64_t id = use(&it, 1000, it.a); /* allocated for it */
        loch_stream *c = sim_stream(it.device, LOCH_STREAM_INDEPENDENT);
        assert_int_equal(use(&it, 1000, c), id);
        loch_stream_close(it.a);
        loch_stream_close(c); /* given back on it */
        assert_int_equal(use(&it, 1000, it.b), id);
        it.a = sim_stream(it.device, LOCH_STREAM_INDEPENDENT);
        CHECK_OK(loch_buffer_pool_trim(it.pool, 0, NULL));
        (void)use(&it, 1000, it.a);
        bench_close(&it);
    }
}

/* What goes into a graph is used whenever the graph runs: such work neither takes what others left nor leaves anything. */
static void captured_work_has_buffers_of_its_own(void **state)
{
    (void)state;
    bench it = bench_open("sim:64MiB,granule=64KiB,clock=stepped", NULL);
    const uint64_t id = use(&it, 1000, it.b);
    loch_sim_graph *graph;
    loch_buffer *own, *fresh;
    CHECK_OK(loch_sim_capture_begin(it.a));
    own = get(&it, 1000, it.a);
    assert_int_not_equal(loch_buffer_get_id(own), id);
    CHECK_OK(writes(it.a, own));
    fresh = get(&it, 1000, it.a);
    CHECK_OK(writes(it.a, fresh));
    put(&it, fresh, it.a);
    assert_int_equal(stats_of(&it).idle, 1);
    CHECK_OK(loch_sim_capture_end(it.a, &graph)); /* nothing illegal was done to it */
    CHECK_OK(loch_sim_graph_launch(graph, it.a));
    CHECK_OK(loch_stream_sync(it.a));
    loch_sim_graph_destroy(graph);
    put(&it, own, it.a);
    assert_int_equal(stats_of(&it).idle, 2);
    bench_close(&it);
}

/* Host memory that a device still reads is not handed out. */
static void work_of_another_device_is_waited_for(void **state)
{
    (void)state;
    bench it = bench_open("cpu", NULL);
    loch_device *sim = sim_open(STEPPED);
    loch_stream *stream = sim_stream(sim, LOCH_STREAM_INDEPENDENT);
    loch_buffer *buffer = get(&it, 1000, NULL);
    const uint64_t id = loch_buffer_get_id(buffer);
    CHECK_OK(sim_busy(stream, 5000));
    CHECK_OK(loch_buffer_record_use(buffer, stream));
    put(&it, buffer, NULL);
    buffer = get(&it, 1000, NULL);
    assert_int_not_equal(loch_buffer_get_id(buffer), id);
    CHECK_OK(loch_sim_advance(sim, 10000));
    loch_buffer *after = get(&it, 1000, NULL);
    assert_int_equal(loch_buffer_get_id(after), id);
    put(&it, buffer, NULL);
    put(&it, after, NULL);
    loch_stream_close(stream);
    loch_device_release(sim);
    bench_close(&it);
}

static void contents_are_those_of_the_last_owner(void **state)
{
    (void)state;
    bench it = bench_open(STEPPED, NULL);
    unsigned char back[1000];
    for (unsigned char i = 0; i < 20; i++) {
        loch_stream *stream = i % 2 ? it.a : it.b;
        loch_buffer *buffer = get(&it, sizeof back, stream);
        CHECK_OK(loch_buffer_fill(buffer, &i, 1, stream));
        if (i % 3 == 0) {
            CHECK_OK(loch_copy_on(back, loch_buffer_get_address(buffer), sizeof back, stream));
            CHECK_OK(loch_stream_sync(stream));
            for (size_t at = 0; at < sizeof back; at++)
                assert_int_equal(back[at], i);
        }
        put(&it, buffer, stream);
    }
    assert_int_equal(stats_of(&it).reused, 19);
    bench_close(&it);
}

static void random_streams_keep_order(void **state)
{
    (void)state;
    test_random random = {test_seed(5)};
    enum { STREAMS = 4, OUT = 12 };
    for (size_t i = 0; i < 2; i++) {
        const loch_buffer_pool_options options = {.size = sizeof options, .idle_count_max = 6};
        bench it = bench_open_with("sim:64MiB,granule=64KiB,lag=3000", makers[i], &options);
        loch_stream *streams[STREAMS];
        loch_buffer *out[OUT] = {NULL};
        size_t of[OUT] = {0};
        for (size_t s = 0; s < STREAMS; s++)
            streams[s] = sim_stream(it.device, LOCH_STREAM_INDEPENDENT);
        for (int step = 0; step < 3000; step++) {
            const size_t at = test_random_below(&random, OUT);
            if (!out[at]) {
                of[at] = test_random_below(&random, STREAMS);
                out[at] = get(&it, 1 + test_random_below(&random, 20 * KIB), streams[of[at]]);
                CHECK_OK(writes(streams[of[at]], out[at]));
            } else if (test_random_below(&random, 8)) {
                put(&it, out[at], streams[of[at]]);
                out[at] = NULL;
            } else {
                loch_buffer_clear(&out[at]);
            }
            if (test_random_below(&random, 100) == 0)
                CHECK_OK(loch_buffer_pool_trim(it.pool, test_random_below(&random, 40 * KIB), NULL));
            if (test_random_below(&random, 50) == 0) { /* a stream ends, with nothing of the caller's on it */
                const size_t s = test_random_below(&random, STREAMS);
                for (size_t n = 0; n < OUT; n++) {
                    if (of[n] == s) loch_buffer_clear(&out[n]);
                }
                loch_stream_close(streams[s]);
                streams[s] = sim_stream(it.device, LOCH_STREAM_INDEPENDENT);
            }
        }
        assert_true(stats_of(&it).reused > 500);
        for (size_t n = 0; n < OUT; n++)
            loch_buffer_release(out[n]);
        for (size_t s = 0; s < STREAMS; s++)
            loch_stream_close(streams[s]);
        bench_close(&it);
    }
}

/* --- threads, failures, misuse --- */

typedef struct worker {
    pthread_t thread;
    const bench *it;
    loch_stream *stream;
    uint64_t seed;
    char failure[512];
} worker;

static void worker_work(worker *w)
{
    test_random random = {w->seed};
    for (int i = 0; i < 300; i++) {
        const size_t bytes = 1 + test_random_below(&random, 16 * KIB);
        loch_buffer *first, *second;
        TRY(loch_buffer_pool_acquire(w->it->pool, bytes, w->stream, &first));
        EXPECT(loch_buffer_get_bytes(first) == bytes);
        TRY(loch_buffer_pool_acquire(w->it->pool, bytes, w->stream, &second));
        EXPECT(loch_buffer_get_address(first) != loch_buffer_get_address(second));
        TRY(loch_buffer_fill(first, "x", 1, w->stream));
        TRY(loch_buffer_fill(second, "y", 1, w->stream));
        if (i % 8) {
            TRY(loch_buffer_pool_release(w->it->pool, second, w->stream));
        } else {
            loch_buffer_release(second);
        }
        TRY(loch_buffer_pool_release(w->it->pool, first, w->stream));
        if (i % 50 == 0) TRY(loch_buffer_pool_trim(w->it->pool, 8 * KIB, NULL));
    }
}

static void *worker_run(void *user)
{
    worker_work(user);
    return NULL;
}

static void threads_share_a_pool(void **state)
{
    (void)state;
    static const char *const names[] = {"cpu", "sim:64MiB,granule=64KiB,lag=3000,backed"};
    enum { THREADS = 4 };
    for (size_t n = 0; n < 2; n++) {
        bench it = bench_open(names[n], NULL);
        worker workers[THREADS];
        for (size_t i = 0; i < THREADS; i++) {
            workers[i] = (worker){.it = &it, .seed = i + 1, .stream = sim_stream(it.device, LOCH_STREAM_INDEPENDENT)};
            assert_int_equal(pthread_create(&workers[i].thread, NULL, worker_run, &workers[i]), 0);
        }
        for (size_t i = 0; i < THREADS; i++)
            pthread_join(workers[i].thread, NULL);
        for (size_t i = 0; i < THREADS; i++) {
            if (workers[i].failure[0]) fail_msg("%s", workers[i].failure);
            loch_stream_close(workers[i].stream);
        }
        const loch_buffer_pool_stats stats = stats_of(&it);
        assert_int_equal(stats.acquired, THREADS * 600);
        assert_true(stats.reused > THREADS * 100);
        bench_close(&it);
    }
}

/* Each piece of bookkeeping fails in turn: acquiring may fail, giving back may not. */
static loch_status sweep_run(const void *user)
{
    (void)user;
    loch_device *device = NULL;
    loch_allocator *allocator = NULL;
    loch_stream *a = NULL, *b = NULL;
    loch_buffer_pool *pool = NULL;
    loch_buffer *buffer;
    loch_status status = loch_device_open("sim:64MiB,granule=64KiB,clock=stepped", &device);
    if (status == LOCH_OK) status = loch_direct_create(device, NULL, NULL, &allocator);
    if (status == LOCH_OK) status = loch_stream_create(device, NULL, &a);
    if (status == LOCH_OK) status = loch_stream_create(device, NULL, &b);
    if (status == LOCH_OK) status = loch_buffer_pool_create(allocator, NULL, &pool);
    for (int i = 0; status == LOCH_OK && i < 4; i++) {
        status = loch_buffer_pool_acquire(pool, 1000, i % 2 ? a : b, &buffer);
        if (status != LOCH_OK) break;
        const loch_status back = loch_buffer_pool_release(pool, buffer, i % 2 ? a : b);
        assert_int_equal(back, LOCH_OK);
    }
    if (device) assert_int_equal(sim_violations(device, NULL), 0);
    loch_buffer_pool_destroy(pool);
    loch_stream_close(a);
    loch_stream_close(b);
    loch_allocator_release(allocator);
    loch_device_release(device);
    return status;
}

static void bookkeeping_fails_in_turn(void **state)
{
    (void)state;
    test_host_sweep(sweep_run, NULL);
}

static void driver_calls_fail(void **state)
{
    (void)state;
    bench it = bench_open(STEPPED, NULL);
    loch_buffer *out = get(&it, 1000, it.a);
    const loch_sim_fault no_event = {.size = sizeof no_event, .call = "event_record"};
    CHECK_OK(loch_sim_set_fault(it.device, &no_event));
    put(&it, out, it.a); /* cannot be kept, and is freed */
    assert_int_equal(stats_of(&it).idle, 0);
    const uint64_t id = use(&it, 1000, it.a);
    const loch_sim_fault no_wait = {.size = sizeof no_wait, .call = "stream_wait"};
    CHECK_OK(loch_sim_set_fault(it.device, &no_wait));
    CHECK_FAILS(loch_buffer_pool_acquire(it.pool, 1000, it.b, &out), DRIVER);
    assert_null(out);
    assert_int_equal(stats_of(&it).idle, 1); /* as it was */
    assert_int_equal(use(&it, 1000, it.b), id);
    bench_close(&it);
}

static void a_lost_device(void **state)
{
    (void)state;
    bench it = bench_open("sim:64MiB,granule=64KiB", NULL);
    loch_buffer *out = get(&it, 1000, it.a), *other;
    (void)use(&it, 5000, it.a);
    CHECK_OK(loch_sim_lose(it.device));
    CHECK_FAILS(loch_buffer_pool_acquire(it.pool, 5000, it.b, &other), DEVICE_LOST);
    loch_buffer_release(out);
    loch_stream_close(it.a);
    loch_stream_close(it.b);
    loch_buffer_pool_destroy(it.pool);
    loch_allocator_release(it.allocator);
    loch_device_release(it.device);
}

static void misuse(void **state)
{
    (void)state;
    bench it = bench_open("cpu", NULL);
    loch_device *sim = sim_open(STEPPED);
    loch_stream *foreign = sim_stream(sim, LOCH_STREAM_INDEPENDENT);
    loch_buffer_pool *pool = TEST_UNTOUCHED;
    loch_buffer *out = TEST_UNTOUCHED, *mine = get(&it, 10, NULL);
    loch_buffer_pool_options options = {.size = sizeof options, .alignment = 3};
    loch_buffer_pool_stats stats = {.size = 1};
    CHECK_FAILS(loch_buffer_pool_create(NULL, NULL, &pool), INVALID);
    assert_null(pool);
    CHECK_FAILS(loch_buffer_pool_create(it.allocator, NULL, NULL), INVALID);
    CHECK_FAILS(loch_buffer_pool_create(it.allocator, &options, &pool), INVALID);
    options = (loch_buffer_pool_options){.size = 1};
    CHECK_FAILS(loch_buffer_pool_create(it.allocator, &options, &pool), INVALID);
    CHECK_FAILS(loch_buffer_pool_acquire(NULL, 1, NULL, &out), INVALID);
    assert_null(out);
    CHECK_FAILS(loch_buffer_pool_acquire(it.pool, 1, NULL, NULL), INVALID);
    CHECK_FAILS(loch_buffer_pool_acquire(it.pool, 1, foreign, &out), INVALID);
    CHECK_FAILS(loch_buffer_pool_release(it.pool, mine, foreign), INVALID); /* and it is the caller's still */
    CHECK_FAILS(loch_buffer_pool_release(NULL, mine, NULL), INVALID);
    CHECK_FAILS(loch_buffer_pool_get_stats(it.pool, NULL), INVALID);
    CHECK_FAILS(loch_buffer_pool_get_stats(NULL, &stats), INVALID);
    CHECK_FAILS(loch_buffer_pool_get_stats(it.pool, &stats), INVALID);
    put(&it, mine, NULL);
    loch_stream_close(foreign);
    loch_device_release(sim);
    bench_close(&it);
}

int main(void)
{
    if (test_heap_install() != LOCH_OK) return 1;
    const struct CMUnitTest tests[] = {
        SIM_TEST(one_buffer_serves_again),
        SIM_TEST(waste_has_a_limit),
        SIM_TEST(the_smallest_that_fits_and_of_equals_the_last),
        SIM_TEST(what_was_unused_longest_goes_first),
        SIM_TEST(trimming),
        SIM_TEST(nothing_is_a_buffer_too),
        SIM_TEST(alignment_and_tag),
        SIM_TEST(what_is_kept_goes_when_memory_is_short),
        SIM_TEST(buffers_of_others_are_foreign),
        SIM_TEST(what_others_hold_is_not_kept),
        SIM_TEST(owners_may_resize_and_detach),
        SIM_TEST(the_pool_may_go_first),
        SIM_TEST(another_stream_waits_on_the_device),
        SIM_TEST(own_ones_first_then_those_that_have_passed),
        SIM_TEST(blocks_go_back_behind_all_their_streams),
        SIM_TEST(given_back_on_another_stream),
        SIM_TEST(streams_may_end_meanwhile),
        SIM_TEST(captured_work_has_buffers_of_its_own),
        SIM_TEST(work_of_another_device_is_waited_for),
        SIM_TEST(contents_are_those_of_the_last_owner),
        SIM_TEST(random_streams_keep_order),
        SIM_TEST(threads_share_a_pool),
        SIM_TEST(bookkeeping_fails_in_turn),
        SIM_TEST(driver_calls_fail),
        SIM_TEST(a_lost_device),
        SIM_TEST(misuse),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

/* SPDX-License-Identifier: MIT */
/* Shared by the tests of sleeping pools: a pool with all kinds of blocks, whose contents are known. */
#ifndef LOCH_TEST_SLEEP_FIXTURE_H
#define LOCH_TEST_SLEEP_FIXTURE_H

#include "faulty_driver.h"
#include "pool_fixture.h"
#include "sweep.h"
#include "worker.h"

#define MIB TEST_MIB
#define KIB TEST_KIB
#define BLOCKS 40

#define SIM "sim:256MiB,granule=64KiB,backed"

__attribute__((unused)) static const char *const devices[] = {"cpu", SIM, "sim:256MiB,granule=2MiB,backed",
                                                              SIM ",alias=off", SIM ",clock=stepped,lag=1000"};

typedef struct piece {
    char *address;
    size_t bytes;
    loch_tag tag;
} piece;

typedef struct bed {
    loch_device *device;
    loch_allocator *pool;
    loch_stream *streams[2];
    piece pieces[BLOCKS];
    size_t count;
} bed;

__attribute__((unused)) static loch_tag red, blue;

__attribute__((unused)) static bool bed_is_sim(const bed *b)
{
    return !strncmp(loch_device_get_name(b->device), "sim", 3);
}

/* Host memory for contents, of the main thread. It is kept: new pages for each block took most of the time. */
__attribute__((unused)) static char *bed_host(size_t bytes)
{
    static char *host;
    static size_t capacity;
    if (bytes > capacity) {
        free(host);
        capacity = bytes;
        host = malloc(bytes);
        assert_non_null(host);
    }
    return host;
}

__attribute__((unused)) static void bed_put(const bed *b, const piece *p, uint64_t seed)
{
    char *host = bed_host(p->bytes + 1);
    test_pattern_write(host, p->bytes, seed);
    CHECK_OK(loch_copy(p->address, host, p->bytes));
    (void)b;
}

__attribute__((unused)) static bool piece_is_right(const piece *p, uint64_t seed)
{
    char *host = bed_host(p->bytes + 1);
    return loch_copy(host, p->address, p->bytes) == LOCH_OK && test_pattern_differs(host, p->bytes, seed) == p->bytes;
}

/* All that are still out hold what was put there. */
__attribute__((unused)) static void bed_expect(const bed *b)
{
    for (size_t i = 0; i < b->count; i++)
        if (b->pieces[i].address && !piece_is_right(&b->pieces[i], i)) fail_msg("block %zu differs", i);
}

__attribute__((unused)) static void bed_take(bed *b, size_t bytes, loch_tag tag, loch_stream *stream)
{
    const loch_request request = {.size = sizeof request, .bytes = bytes, .tag = tag, .stream = stream};
    piece *p = &b->pieces[b->count];
    void *address;
    CHECK_OK(loch_allocator_alloc(b->pool, &request, &address));
    *p = (piece){address, bytes, tag};
    bed_put(b, p, b->count++);
}

__attribute__((unused)) static void bed_grow(bed *b, size_t bytes, size_t max_bytes, loch_tag tag)
{
    const loch_request request = {.size = sizeof request, .bytes = bytes, .tag = tag};
    void *address;
    CHECK_OK(loch_pool_alloc_growable(b->pool, max_bytes, &request, &address));
    b->pieces[b->count] = (piece){address, bytes, tag};
    bed_put(b, &b->pieces[b->count], b->count);
    b->count++;
}

__attribute__((unused)) static void bed_give(bed *b, size_t i)
{
    CHECK_OK(loch_free(b->pool, b->pieces[i].address));
    b->pieces[i].address = NULL;
}

/* Small ones, those of arenas, large and growable ones, on two streams, with holes between them. */
__attribute__((unused)) static void bed_fill(bed *b)
{
    for (size_t i = 0; i < 12; i++)
        bed_take(b, 50 + 300 * i, i % 2 ? red : 0, b->streams[i % 2]);
    for (size_t i = 0; i < 8; i++)
        bed_take(b, 20 * KIB + 7000 * i, i % 3 ? blue : 0, b->streams[i % 2]);
    for (size_t i = 0; i < 6; i++)
        bed_take(b, 300 * KIB + 200 * KIB * i, i % 2 ? red : blue, b->streams[i % 2]);
    bed_grow(b, 2 * MIB + 100 * KIB, 40 * MIB, red);
    bed_grow(b, 100, 40 * MIB, 0);
    for (size_t i = 1; i < b->count; i += 5)
        bed_give(b, i);
    pool_expect_whole(b->pool);
}

__attribute__((unused)) static bed bed_open(const char *name, const loch_pool_options *options)
{
    bed b = {.device = sim_open(name)};
    b.pool = pool_make(b.device, options);
    for (size_t i = 0; i < 2; i++)
        b.streams[i] = sim_stream(b.device, LOCH_STREAM_INDEPENDENT);
    return b;
}

/* Saved contents and the staging memory came from default allocators: all of it is freed. */
__attribute__((unused)) static void bed_close(bed *b)
{
    test_end_defaults();
    for (size_t i = 0; i < b->count; i++)
        if (b->pieces[i].address) bed_give(b, i);
    loch_stream_close(b->streams[0]);
    loch_stream_close(b->streams[1]);
    if (bed_is_sim(b))
        pool_end_sim(b->pool, b->device);
    else
        pool_end(b->pool, b->device);
}

__attribute__((unused)) static loch_sleep_options how(loch_sleep_contents contents, loch_tag tag)
{
    return (loch_sleep_options){.size = sizeof(loch_sleep_options), .contents = contents, .tag = tag};
}

__attribute__((unused)) static size_t put_to_sleep(const bed *b, loch_sleep_contents contents, loch_tag tag)
{
    const loch_sleep_options options = how(contents, tag);
    size_t released = 12345;
    CHECK_OK(loch_pool_sleep(b->pool, &options, &released));
    pool_expect_whole(b->pool);
    return released;
}

__attribute__((unused)) static size_t wake(const bed *b)
{
    size_t restored = 12345;
    CHECK_OK(loch_pool_wake(b->pool, &restored));
    pool_expect_whole(b->pool);
    assert_int_equal(pool_info(b->pool).asleep_bytes, 0);
    return restored;
}

#endif

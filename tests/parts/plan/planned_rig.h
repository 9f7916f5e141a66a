/* SPDX-License-Identifier: MIT */
/* Shared by the tests of planned pools: a pool, a planned pool in front of it, and a program that repeats itself. Every
 * block has contents of its own, which are compared when it is freed. On a simulated device each block is also written
 * and read by kernels on its stream, so that the checker of the simulator sees a place that is used again too early. */
#ifndef LOCH_TEST_PLANNED_RIG_H
#define LOCH_TEST_PLANNED_RIG_H

#include "support/bed.h"
#include <loch/planned.h>

#define RIG_BLOCKS 512

typedef struct rig_block {
    char *address;
    size_t bytes;
    uint64_t seed;
    loch_stream *stream;
} rig_block;

typedef struct rig {
    const test_bed *bed;
    loch_allocator *pool, *allocator;
    loch_planned *planned;
    loch_stream *stream, *other;
    rig_block blocks[RIG_BLOCKS]; /* by the number that the program gives them */
    uint64_t seed;
    bool is_short; /* calls loch_planned_alloc and loch_planned_free */
} rig;

static inline void rig_open(rig *r, const test_bed *bed, const loch_planned_options *options)
{
    *r = (rig){.bed = bed};
    CHECK_OK(loch_pool_create(bed->device, "planned", NULL, &r->pool));
    CHECK_OK(loch_planned_create(r->pool, NULL, options, &r->planned));
    r->allocator = loch_planned_get_allocator(r->planned);
    CHECK_OK(loch_stream_create(bed->device, NULL, &r->stream));
    CHECK_OK(loch_stream_create(bed->device, NULL, &r->other));
}

static inline void rig_launch(const rig *r, const rig_block *block, loch_stream *stream, bool writes)
{
    const loch_sim_range range = {block->address, block->bytes};
    const loch_sim_kernel kernel = {
        .size = sizeof kernel, .reads = &range, .reads_count = !writes, .writes = &range, .writes_count = writes};
    if (r->bed->is_sim) CHECK_OK(loch_sim_launch(stream, &kernel));
}

static inline bool rig_is_host(const rig *r)
{
    return strstr(r->bed->name, ",backed") || loch_device_can(r->bed->device, LOCH_CAN_HOST_ACCESS);
}

static inline void rig_write(const rig *r, const rig_block *block)
{
    if (rig_is_host(r))
        test_pattern_write(block->address, block->bytes, block->seed);
    else if (!r->bed->is_sim) /* copies would be work of their own, which the checker sees */
        test_bed_put(r->bed, block->address, block->bytes, block->seed);
}

static inline void rig_compare(const rig *r, const rig_block *block)
{
    if (rig_is_host(r))
        assert_int_equal(test_pattern_differs(block->address, block->bytes, block->seed), block->bytes);
    else if (!r->bed->is_sim) /* copies would be work of their own, which the checker sees */
        test_bed_expect(r->bed, block->address, block->bytes, block->seed);
}

/* Allocates block `number` and writes it. */
static inline void *rig_alloc_on(rig *r, size_t number, size_t bytes, loch_stream *stream)
{
    rig_block *block = &r->blocks[number];
    const loch_request request = {.size = sizeof request, .bytes = bytes, .stream = stream};
    assert_null(block->address);
    void *address;
    CHECK_OK(r->is_short ? loch_planned_alloc(r->planned, &request, &address)
                         : loch_allocator_alloc(r->allocator, &request, &address));
    *block = (rig_block){address, bytes, ++r->seed, stream};
    for (size_t i = 0; i < RIG_BLOCKS; i++) {
        const rig_block *live = &r->blocks[i];
        if (live == block || !live->address) continue;
        assert_false((char *)address < live->address + live->bytes && live->address < (char *)address + bytes);
    }
    rig_launch(r, block, stream, true);
    rig_write(r, block);
    return address;
}

static inline void *rig_alloc(rig *r, size_t number, size_t bytes)
{
    return rig_alloc_on(r, number, bytes, r->stream);
}

/* Compares the contents of block `number` and frees it. */
static inline void rig_free(rig *r, size_t number)
{
    rig_block *block = &r->blocks[number];
    assert_non_null(block->address);
    rig_compare(r, block);
    rig_launch(r, block, block->stream, false);
    CHECK_OK(r->is_short ? loch_planned_free(r->planned, block->address) : loch_free(r->allocator, block->address));
    *block = (rig_block){NULL};
}

static inline loch_planned_info rig_info(rig *r)
{
    loch_planned_info info = {.size = sizeof info};
    CHECK_OK(loch_planned_get_info(r->planned, &info));
    return info;
}

/* Tells whether block `number` is in the memory of the plan: the pool itself does not know it. */
static inline bool rig_is_planned(rig *r, size_t number)
{
    loch_block block = {.size = sizeof block};
    CHECK_OK(loch_allocator_find(r->allocator, r->blocks[number].address, &block));
    assert_int_equal(block.requested_bytes, r->blocks[number].bytes);
    return block.id >> 63;
}

static inline void rig_close(rig *r)
{
    for (size_t i = 0; i < RIG_BLOCKS; i++)
        if (r->blocks[i].address) rig_free(r, i);
    loch_stats stats = {.size = sizeof stats};
    CHECK_OK(loch_allocator_get_stats(r->allocator, &stats));
    assert_int_equal(stats.blocks, 0);
    assert_int_equal(stats.requested_bytes, 0);
    loch_planned_destroy(r->planned);
    CHECK_OK(loch_allocator_get_stats(r->pool, &stats));
    assert_int_equal(stats.blocks, 0);
    loch_allocator_release(r->pool);
    loch_stream_close(r->stream);
    loch_stream_close(r->other);
}

/* Runs tests over all devices, and over one whose granules are so small that plans of these tests grow and have
 * patches. */
static inline int rig_run_all(const struct CMUnitTest *tests, size_t count)
{
    const int result = test_bed_run(tests, count);
    if (result && result != TEST_SKIPPED) return result;
    const int also = test_bed_run_also("sim:256MiB,backed,granule=64KiB", tests, count);
    return also == TEST_SKIPPED ? result : also;
}

/* --- a program: blocks 0 to 7 of these sizes, with overlapping lives --- */

#define RIG_SIZES 8
static const size_t rig_sizes[RIG_SIZES] = {100 * 1024, 3000, 40 * 1024, 70 * 1024, 512, 40 * 1024, 200 * 1024, 9000};

/* Runs one step. Positive numbers allocate block n - 1, negative ones free it. */
static const int rig_program[] = {1, 2, -1, 3, 4, -2, 5, -4, 6, 7, -3, -5, 8, -7, -6, -8};
#define RIG_PROGRAM (sizeof rig_program / sizeof *rig_program)

static inline void rig_run(rig *r, const int *program, size_t count, const size_t *sizes)
{
    CHECK_OK(loch_planned_step(r->planned));
    for (size_t i = 0; i < count; i++) {
        if (program[i] > 0)
            rig_alloc(r, (size_t)program[i] - 1, sizes[program[i] - 1]);
        else
            rig_free(r, (size_t)-program[i] - 1);
    }
}

static inline void rig_step(rig *r)
{
    rig_run(r, rig_program, RIG_PROGRAM, rig_sizes);
}

/* Runs steps until there is a plan. */
static inline void rig_learn(rig *r)
{
    for (size_t i = 0; i < 5; i++)
        rig_step(r);
    assert_int_equal(rig_info(r).period, RIG_SIZES);
    assert_int_equal(rig_info(r).planned, RIG_SIZES);
    assert_int_equal(rig_info(r).served, RIG_SIZES);
}

#endif

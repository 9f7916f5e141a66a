/* SPDX-License-Identifier: MIT */
/* Shared by the tests of child pools: children in one line, and the checks that no two blocks of a family share a
 * byte. */
#ifndef LOCH_TEST_CHILD_FIXTURE_H
#define LOCH_TEST_CHILD_FIXTURE_H

#include "memory/pool/heap/bounds.h"
#include "pool_fixture.h"

#define FAMILY_BLOCKS 4096

__attribute__((unused)) static loch_status child_try(loch_allocator *parent, loch_child_kind kind, size_t minimum,
                                                     size_t limit, loch_stream *stream, loch_allocator **out)
{
    const loch_child_options options = {
        .size = sizeof options, .kind = kind, .minimum_bytes = minimum, .limit_bytes = limit, .stream = stream};
    return loch_pool_create_child(parent, "child", &options, out);
}

__attribute__((unused)) static loch_allocator *child_range(loch_allocator *parent, size_t bytes)
{
    loch_allocator *child;
    CHECK_OK(child_try(parent, LOCH_CHILD_RANGE, 0, bytes, NULL, &child));
    return child;
}

__attribute__((unused)) static loch_allocator *child_quota(loch_allocator *parent, size_t minimum, size_t limit)
{
    loch_allocator *child;
    CHECK_OK(child_try(parent, LOCH_CHILD_QUOTA, minimum, limit, NULL, &child));
    return child;
}

typedef struct family_blocks {
    lochi_pool *pool; /* that is walked */
    size_t count;
    struct {
        uintptr_t start, end;
    } blocks[FAMILY_BLOCKS];
} family_blocks;

/* Under the pool's lock. Ranges are left out: their children's blocks are in them. */
static loch_status family_add(const loch_block *block, void *user)
{
    family_blocks *all = user;
    const uintptr_t start = (uintptr_t)block->address;
    const pool_block *large = lochi_pool_page_block(lochi_pool_find_page(all->pool, start));
    if (large && lochi_pool_is_range(large)) return LOCH_OK;
    if (all->pool->range) {
        const uintptr_t range = (uintptr_t)all->pool->range;
        if (start < range || start + block->allocated_bytes > range + all->pool->limit) return LOCH_E_OUT_OF_RANGE;
    }
    if (all->count == FAMILY_BLOCKS) return LOCH_E_LIMIT;
    all->blocks[all->count].start = start;
    all->blocks[all->count++].end = start + block->requested_bytes;
    return LOCH_OK;
}

static int family_compare(const void *a, const void *b)
{
    const uintptr_t x = *(const uintptr_t *)a, y = *(const uintptr_t *)b;
    return x < y ? -1 : x > y;
}

/* All pools are whole, and no byte is in two blocks. Entries may be NULL. */
__attribute__((unused)) static void family_expect_whole(loch_allocator *const *pools, size_t count)
{
    static family_blocks all;
    all.count = 0;
    for (size_t i = 0; i < count; i++) {
        if (!pools[i]) continue;
        pool_expect_whole(pools[i]);
        all.pool = lochi_pool_of(pools[i]);
        CHECK_OK(loch_allocator_walk(pools[i], family_add, &all));
    }
    qsort(all.blocks, all.count, sizeof all.blocks[0], family_compare);
    for (size_t i = 1; i < all.count; i++)
        if (all.blocks[i].start < all.blocks[i - 1].end) fail_msg("two blocks share %p", (void *)all.blocks[i].start);
}

/* Contents that belong to one block alone, where the host sees them. */
__attribute__((unused)) static void *family_alloc(loch_allocator *pool, size_t bytes, uint64_t seed)
{
    void *block = pool_alloc(pool, bytes);
    test_pattern_write(block, bytes, seed);
    return block;
}

__attribute__((unused)) static void family_free(loch_allocator *pool, void *block, size_t bytes, uint64_t seed)
{
    assert_int_equal(test_pattern_differs(block, bytes, seed), bytes);
    CHECK_OK(loch_free(pool, block));
}

/* Devices that tests of children run over. */
__attribute__((unused)) static const char *const child_devices[] = {
    "cpu", "sim:1GiB,granule=64KiB,backed", "sim:1GiB,id=1,virtual=off,backed", "sim:1GiB,id=2,backed,alias=off"};

#define CHILD_DEVICES (sizeof child_devices / sizeof *child_devices)

#endif

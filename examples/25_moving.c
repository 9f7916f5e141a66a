/* SPDX-License-Identifier: MIT */
/* Movable memory: buffers that may move while they are not pinned let a pool join its free pieces. Moving can be
 * forbidden for a while. Frozen blocks stay in place. The generation of a buffer tells whether an address is stale. */
#include <loch/loch.h>
#include <stdio.h>
#include <string.h>

#define MIB ((size_t)1 << 20)
#define COUNT 24

typedef struct table {
    size_t moves;
    loch_buffer *buffers[COUNT];
} table;

/* Called for every move, with the pool's lock held: an engine updates its tables of addresses here. */
static void moved(loch_allocator *pool, const loch_move *move, void *user)
{
    (void)pool, (void)move;
    ((table *)user)->moves++;
}

/* Fills the pool to the last byte and frees every second buffer: half of the memory is free, in pieces. */
static void fragment(loch_allocator *pool, loch_tag tag, table *t)
{
    for (uint32_t i = 0; i < COUNT; i++) {
        const loch_request request = {
            .size = sizeof request, .flags = LOCH_ALLOC_MOVABLE, .tag = i < COUNT / 2 ? tag : 0};
        LOCH_CHECK(loch_buffer_create(pool, MIB, &request, &t->buffers[i]));
        LOCH_CHECK(loch_buffer_fill(t->buffers[i], &i, sizeof i, NULL));
    }
    for (size_t i = 0; i < COUNT; i += 2)
        loch_buffer_clear(&t->buffers[i]);
}

/* Reads each buffer at its present address. */
static int check(table *t)
{
    int right = 1;
    for (uint32_t i = 1; i < COUNT; i += 2) {
        uint32_t seen;
        void *address;
        /* pinned: the address stays valid until the unpin */
        LOCH_CHECK(loch_buffer_pin(t->buffers[i], NULL, &address));
        memcpy(&seen, (char *)address + MIB - sizeof seen, sizeof seen);
        LOCH_CHECK(loch_buffer_unpin(t->buffers[i], NULL));
        right = right && seen == i && loch_buffer_is_movable(t->buffers[i]);
    }
    return right;
}

/* While moving is forbidden, as for a graph that holds addresses, a request that needs a move fails. */
static int forbid(loch_allocator *pool)
{
    void *large;
    LOCH_CHECK(loch_pool_forbid_moving(pool));
    const loch_status forbidden = loch_alloc(pool, 8 * MIB, &large);
    printf("while moving is forbidden: %s\n", loch_status_name(forbidden));
    LOCH_CHECK(loch_pool_allow_moving(pool));
    LOCH_CHECK(loch_alloc(pool, 8 * MIB, &large)); /* succeeds now: buffers are moved to make room */
    LOCH_CHECK(loch_free(pool, large));
    return forbidden == LOCH_E_MOVING_FORBIDDEN;
}

/* Returns the sum of the generations: the number of moves. */
static uint64_t generations(table *t)
{
    uint64_t sum = 0;
    for (size_t i = 1; i < COUNT; i += 2)
        sum += loch_buffer_get_generation(t->buffers[i]);
    return sum;
}

/* Frozen blocks are packed together once and do not move until they are unfrozen. */
static int freeze(loch_allocator *pool, loch_tag tag, table *t)
{
    const loch_freeze_options weights = {.size = sizeof weights, .tag = tag};
    loch_freeze_report report = {.size = sizeof report};
    size_t thawed;
    LOCH_CHECK(loch_pool_freeze(pool, &weights, &report));
    const uint64_t frozen_at = loch_buffer_get_generation(t->buffers[1]);
    LOCH_CHECK(loch_pool_compact(pool, NULL, NULL));
    const int stayed = loch_buffer_get_generation(t->buffers[1]) == frozen_at;
    LOCH_CHECK(loch_pool_unfreeze(pool, tag, &thawed));
    printf("%zu blocks were frozen, %s; %zu MiB may move again\n", report.blocks, stayed ? "and stayed" : "but moved",
           thawed / MIB);
    return stayed && report.blocks == COUNT / 4 && thawed == report.bytes;
}

int main(void)
{
    /* All memory is one handle: free pieces inside it cannot be remapped, so blocks must move. */
    const loch_pool_options options = {.size = sizeof options, .limit_bytes = COUNT * MIB, .handle_bytes = COUNT * MIB};
    LOCH_AUTO(device) device = NULL;
    LOCH_AUTO(allocator) pool = NULL;
    table t = {0, {NULL}};
    loch_tag tag;
    int right = 0;
    LOCH_CHECK(loch_tag_create("weights", &tag));
    LOCH_CHECK(loch_device_open("cpu", &device));
    LOCH_CHECK(loch_pool_create(device, "moving", &options, &pool));
    LOCH_CHECK(loch_pool_set_move_hook(pool, moved, &t));
    fragment(pool, tag, &t);
    right += forbid(pool);
    right += check(&t);
    printf("%zu moves; the generations of the buffers sum up to %llu\n", t.moves, (unsigned long long)generations(&t));
    right += t.moves > 0 && generations(&t) == t.moves;
    right += freeze(pool, tag, &t);
    right += check(&t);
    for (size_t i = 0; i < COUNT; i++)
        loch_buffer_release(t.buffers[i]);
    return right == 5 ? 0 : 1;
}

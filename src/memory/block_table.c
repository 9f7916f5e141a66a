/* SPDX-License-Identifier: MIT */
/* The table of live blocks with records of their own. block_table.h says how it works. */
#include "memory/block_table.h"
#include "kit/backoff.h"
#include "base/fail.h"
#include "base/heap.h"
#include "kit/text.h"
#include "device/device.h"

static lochi_fork_part block_table_part;

/* Sets all pins to 0 in the child of a fork, which does not have the threads that pinned blocks. The pins of the
 * calling thread are dropped too: that thread may be inside a callback about a pinned block, and it frees nothing
 * before the callback returns. */
static void block_table_forked(void)
{
    for (lochi_fork_item *item = block_table_part.items; item; item = item->next) {
        lochi_block_table *table = LOCHI_CONTAINER(item, lochi_block_table, in_forks);
        for (lochi_tree_node *node = lochi_tree_at_or_above(&table->live, 0); node;
             node = lochi_tree_at_or_above(&table->live, node->key + 1))
            lochi_held_of(node)->pins = 0;
    }
}

static lochi_fork_part block_table_part = {.child = block_table_forked};

loch_status lochi_block_table_init(lochi_block_table *table)
{
    *table = (lochi_block_table){.ledger = NULL};
    lochi_lock_init(&table->lock, LOCHI_RANK_MEMORY);
    lochi_fork_enter(&block_table_part, &table->in_forks);
    return lochi_ledger_create(&table->ledger);
}

void lochi_block_table_fini(lochi_block_table *table)
{
    lochi_fork_leave(&table->in_forks);
    lochi_held_forget_all(&table->live);
    lochi_ledger_destroy(table->ledger);
    lochi_lock_fini(&table->lock);
}

loch_status lochi_block_table_add(lochi_block_table *table, lochi_held *held)
{
    const lochi_entry entry = {
        .address = held->node.key, .requested = held->requested, .allocated = held->taken, .tag = (uint16_t)held->tag};
    lochi_lock_take(&table->lock);
    const loch_status status = lochi_ledger_add(table->ledger, &entry, &held->id);
    if (status == LOCH_OK) lochi_tree_insert(&table->live, &held->node);
    lochi_lock_drop(&table->lock);
    return status;
}

/* --- looking up --- */

/* Returns the block at `address`, being freed or not. While the block is pinned, drops the lock and waits. */
static lochi_held *block_table_get(lochi_block_table *table, const void *address)
{
    lochi_lock_assert_held(&table->lock);
    for (unsigned turn = 0;;) {
        lochi_held *held = lochi_held_of(lochi_tree_at_or_below(&table->live, (uintptr_t)address));
        if (!held || held->node.key != (uintptr_t)address) return NULL;
        if (!held->pins) return held;
        lochi_lock_drop(&table->lock);
        lochi_backoff(&turn);
        lochi_lock_take(&table->lock);
    }
}

static bool block_table_is_around(const lochi_held *held, uintptr_t address)
{
    return held && address >= (uintptr_t)held->base && address - (uintptr_t)held->base < held->taken;
}

/* Returns the error for an address that is no live block. The ledger counts all bytes of a block from the block's
 * address on, but some of them lie in front of it. So an address that the ledger calls interior is checked again. */
static loch_status block_table_explain(lochi_block_table *table, const void *address)
{
    const uintptr_t key = (uintptr_t)address;
    lochi_lock_take(&table->lock);
    lochi_held *held = lochi_held_of(lochi_tree_at_or_below(&table->live, key));
    if (!block_table_is_around(held, key)) held = lochi_held_of(lochi_tree_at_or_above(&table->live, key));
    const bool is_inside = block_table_is_around(held, key);
    const bool is_before = is_inside && key < held->node.key;
    const uintptr_t start = is_inside ? held->node.key : 0;
    const size_t requested = is_inside ? held->requested : 0;
    lochi_lock_drop(&table->lock);
    if (is_inside)
        return LOCH_FAIL(INTERIOR, "%p lies %zu bytes %s the block of %s at %p", address,
                         is_before ? (size_t)(start - key) : (size_t)(key - start),
                         is_before ? "in front of" : "inside", LOCHI_SIZE(requested), (void *)start);
    lochi_entry entry;
    const loch_status status = lochi_ledger_find(table->ledger, address, &entry);
    if (status != LOCH_E_INTERIOR && status != LOCH_OK) return status;
    return LOCH_FAIL(FOREIGN, "%p was not handed out by this allocator", address);
}

loch_status lochi_block_table_find(lochi_block_table *table, const void *address, loch_block *out)
{
    lochi_lock_take(&table->lock);
    const lochi_held *held = lochi_held_of(lochi_tree_at_or_below(&table->live, (uintptr_t)address));
    const bool is_found = held && held->node.key == (uintptr_t)address;
    if (is_found) lochi_held_describe(held, out);
    lochi_lock_drop(&table->lock);
    return is_found ? LOCH_OK : block_table_explain(table, address);
}

/* Calls the visitor without the lock, so that the visitor may use any other part of the library. */
loch_status lochi_block_table_walk(lochi_block_table *table, loch_block_visitor *visitor, void *user)
{
    loch_status status = LOCH_OK;
    for (uintptr_t key = 0; status == LOCH_OK;) {
        loch_block block;
        lochi_lock_take(&table->lock);
        const lochi_held *held = lochi_held_of(lochi_tree_at_or_above(&table->live, key));
        if (held) lochi_held_describe(held, &block);
        lochi_lock_drop(&table->lock);
        if (!held) break;
        key = (uintptr_t)block.address + 1;
        status = visitor(&block, user);
    }
    return status;
}

lochi_held *lochi_block_table_pin(lochi_block_table *table, uintptr_t key)
{
    lochi_lock_take(&table->lock);
    lochi_held *held = lochi_held_of(lochi_tree_at_or_above(&table->live, key));
    while (held && held->is_going)
        held = lochi_held_of(lochi_tree_at_or_above(&table->live, held->node.key + 1));
    if (held) held->pins++;
    lochi_lock_drop(&table->lock);
    return held;
}

void lochi_block_table_unpin(lochi_block_table *table, lochi_held *held)
{
    lochi_lock_take(&table->lock);
    if (held->pins) held->pins--; /* a fork since the pin has set the count to 0 */
    lochi_lock_drop(&table->lock);
}

/* --- freeing --- */

loch_status lochi_block_table_begin_free(lochi_block_table *table, const void *address, size_t bytes, lochi_held **out)
{
    lochi_lock_take(&table->lock);
    lochi_held *held = block_table_get(table, address);
    const bool is_going = held && held->is_going;
    const size_t requested = held ? held->requested : 0;
    const bool is_right = held && !is_going && (!bytes || bytes == requested);
    if (is_right) held->is_going = true;
    lochi_lock_drop(&table->lock);
    *out = is_right ? held : NULL;
    if (is_right) return LOCH_OK;
    if (is_going) return LOCH_FAIL(DOUBLE_FREE, "the block at %p is being freed already", address);
    if (!held) return block_table_explain(table, address);
    return LOCH_FAIL(INVALID, "the block at %p has %zu bytes, not %zu", address, requested, bytes);
}

void lochi_block_table_cancel_free(lochi_block_table *table, lochi_held *held)
{
    lochi_lock_take(&table->lock);
    held->is_going = false;
    lochi_lock_drop(&table->lock);
}

void lochi_block_table_take(lochi_block_table *table, lochi_held *held)
{
    lochi_lock_assert_held(&table->lock);
    lochi_entry entry;
    const loch_status status = lochi_ledger_take(table->ledger, lochi_held_address(held), 0, &entry);
    (void)status; /* cannot fail: every block in the map is in the ledger */
    lochi_tree_remove(&table->live, &held->node);
}

void lochi_block_table_put_back(lochi_block_table *table, lochi_held *held)
{
    lochi_lock_assert_held(&table->lock);
    const lochi_entry entry = {.address = held->node.key,
                               .requested = held->requested,
                               .allocated = held->taken,
                               .id = held->id,
                               .tag = (uint16_t)held->tag};
    lochi_ledger_put_back(table->ledger, &entry);
    lochi_tree_insert(&table->live, &held->node);
    held->is_going = false;
}

/* --- streams --- */

/* Adds a further stream to a block, unless the block has the stream already. */
static loch_status block_table_note_stream(const lochi_block_table *table, lochi_held *held, loch_stream *stream)
{
    lochi_lock_assert_held(&table->lock);
    if (held->stream == stream) return LOCH_OK;
    for (size_t i = 0; i < held->other_count; i++)
        if (held->others[i] == stream) return LOCH_OK;
    loch_stream **others = lochi_realloc(held->others, (held->other_count + 1) * sizeof(loch_stream *));
    if (!others) return LOCH_FAIL(HOST_MEMORY, "no host memory to record a further stream of a block");
    held->others = others;
    held->others[held->other_count++] = lochi_stream_retain(stream);
    return LOCH_OK;
}

loch_status lochi_block_table_record_use(lochi_block_table *table, const void *address, loch_stream *stream)
{
    loch_status status = LOCH_OK;
    lochi_lock_take(&table->lock);
    lochi_held *held = block_table_get(table, address);
    const bool is_going = held && held->is_going;
    if (held && !is_going) status = block_table_note_stream(table, held, stream);
    lochi_lock_drop(&table->lock);
    if (is_going) return LOCH_FAIL(DOUBLE_FREE, "the block at %p is being freed", address);
    return held ? status : block_table_explain(table, address);
}

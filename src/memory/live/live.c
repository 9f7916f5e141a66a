/* SPDX-License-Identifier: MIT */
/* Starts the table, and the calls that change it. */
#include "memory/live/live.h"
#include "base/fail.h"
#include "base/fork.h"
#include "base/options.h"
#include "base/room.h"
#include "base/stack.h"
#include "memory/live/report.h"
#include "memory/live/sources.h"
#include "memory/live/stacks.h"
#include "memory/live/table.h"
#include <string.h>

atomic_bool lochi_live_is_on;

/* A child reports its own blocks. Those of its parent are the parent's. */
static lochi_fork_part live_part = {.child = lochi_live_table_clear};

static pthread_once_t live_once = PTHREAD_ONCE_INIT;

static void live_start(void)
{
    lochi_fork_add(&live_part);
    lochi_live_table_open();
    atomic_store_explicit(&lochi_live_is_on, true, memory_order_release);
}

loch_status lochi_live_prepare(void)
{
    char value[LOCH_OPTION_VALUE_MAX];
    LOCH_TRY_RETURN(lochi_option_text("leaks", value));
    if (!strcmp(value, "off") || !strcmp(value, "0")) return LOCH_OK;
    lochi_live_report_at_exit(!strcmp(value, "exit"));
    pthread_once(&live_once, live_start);
    return LOCH_OK;
}

static bool live_is_hidden(void)
{
    const lochi_room *room = lochi_room_own;
    return room && room->live_hidden;
}

void lochi_live_enter(loch_allocator *allocator, const void *address, size_t bytes, loch_tag tag)
{
    if (live_is_hidden()) return;
    uintptr_t frames[LOCHI_LIVE_FRAMES];
    const size_t count = lochi_stack_capture(frames, LOCHI_LIVE_FRAMES, 1);
    const lochi_live_block block = {.address = (uintptr_t)address,
                                    .allocator = allocator,
                                    .bytes = bytes,
                                    .stack = lochi_live_keep_stack(frames, count),
                                    .source = lochi_live_source_of(allocator),
                                    .tag = tag};
    lochi_live_table_put(&block);
}

bool lochi_live_leave(const loch_allocator *allocator, const void *address, lochi_live_block *out)
{
    return lochi_live_table_take(allocator, (uintptr_t)address, out);
}

void lochi_live_put_back(const lochi_live_block *block)
{
    lochi_live_table_put(block);
}

void lochi_live_change(const loch_allocator *allocator, const void *from, const void *to, size_t bytes)
{
    lochi_live_block block;
    if (!lochi_live_table_take(allocator, (uintptr_t)from, &block)) return;
    block.address = (uintptr_t)to;
    if (bytes != SIZE_MAX) block.bytes = bytes;
    lochi_live_table_put(&block);
}

static const loch_allocator *live_innermost(const loch_allocator *allocator)
{
    while (allocator->wrapped)
        allocator = allocator->wrapped;
    return allocator;
}

void lochi_live_forget(const loch_allocator *allocator, const void *address)
{
    lochi_live_block block;
    if (lochi_live_is_kept() && allocator) lochi_live_table_take(live_innermost(allocator), (uintptr_t)address, &block);
}

void lochi_live_hide(void)
{
    if (!lochi_live_is_kept()) return;
    lochi_room *room = lochi_room_get();
    if (room) room->live_hidden++;
}

void lochi_live_show(void)
{
    lochi_room *room = lochi_room_own;
    if (room && room->live_hidden) room->live_hidden--;
}

const lochi_live_stack *lochi_live_find(const loch_allocator *allocator, const void *address)
{
    lochi_live_block block;
    if (!lochi_live_is_kept() || !allocator || !address) return NULL;
    if (!lochi_live_table_find(live_innermost(allocator), (uintptr_t)address, &block)) return NULL;
    return block.stack;
}

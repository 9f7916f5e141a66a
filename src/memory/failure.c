/* SPDX-License-Identifier: MIT */
/* Notes on failed attempts, kept until the request ends. failure.h says how it works. */
#include "memory/failure.h"
#include "base/room.h"

void lochi_failure_count(_Atomic uint64_t *counter)
{
    lochi_room *room = lochi_room_own;
    if (room && room->failures.depth && room->failures.count < LOCHI_ROOM_FAILURES)
        room->failures.notes[room->failures.count++] = counter;
    else
        atomic_fetch_add_explicit(counter, 1, memory_order_relaxed);
}

bool lochi_failure_is_inner(void)
{
    return lochi_room_own && lochi_room_own->failures.depth;
}

uint32_t lochi_failure_begin(void)
{
    lochi_room *room = lochi_room_get();
    if (!room) return LOCHI_FAILURE_UNMARKED;
    room->failures.depth++;
    return room->failures.count;
}

/* Releases the allocators that had no memory. */
static void failure_forget_dry(lochi_room *room)
{
    room->failures.timeout_ns = 0;
    room->failures.refuser = NULL;
    while (room->failures.dry_count)
        loch_allocator_release(room->failures.dry[--room->failures.dry_count]);
}

void lochi_failure_drop(uint32_t mark)
{
    if (mark == LOCHI_FAILURE_UNMARKED) return;
    lochi_room_own->failures.count = mark;
    failure_forget_dry(lochi_room_own);
}

void lochi_failure_note_dry(loch_allocator *allocator, const loch_request *request)
{
    lochi_room *room = lochi_room_own;
    if (!room) return;
    if (request->timeout_ns > room->failures.timeout_ns) room->failures.timeout_ns = request->timeout_ns;
    for (uint32_t i = 0; i < room->failures.dry_count; i++)
        if (room->failures.dry[i] == allocator) return;
    if (room->failures.dry_count < LOCHI_ROOM_DRY)
        room->failures.dry[room->failures.dry_count++] = loch_allocator_retain(allocator);
}

void lochi_failure_note_refusal(const loch_allocator *wrapper)
{
    if (lochi_room_own) lochi_room_own->failures.refuser = wrapper;
}

bool lochi_failure_is_refused_by(const loch_allocator *wrapper)
{
    return lochi_room_own && lochi_room_own->failures.refuser == wrapper;
}

void lochi_failure_end(uint32_t mark, bool is_inner)
{
    if (mark == LOCHI_FAILURE_UNMARKED) return;
    lochi_room *room = lochi_room_own;
    room->failures.depth--;
    if (is_inner && room->failures.depth) return;
    while (room->failures.count > mark)
        atomic_fetch_add_explicit(room->failures.notes[--room->failures.count], 1, memory_order_relaxed);
    if (room->failures.dry_count) failure_forget_dry(room);
}

uint32_t lochi_failure_pause(void)
{
    lochi_room *room = lochi_room_own;
    const uint32_t depth = room ? room->failures.depth : 0;
    if (room) room->failures.depth = 0;
    return depth;
}

void lochi_failure_resume(uint32_t depth)
{
    if (lochi_room_own) lochi_room_own->failures.depth = depth;
}

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

bool lochi_failure_is_outermost(void)
{
    return lochi_room_own && lochi_room_own->failures.depth == 1;
}

uint32_t lochi_failure_begin(void)
{
    lochi_room *room = lochi_room_get();
    if (!room) return LOCHI_FAILURE_UNMARKED;
    room->failures.depth++;
    return room->failures.count;
}

void lochi_failure_drop(uint32_t mark)
{
    if (mark != LOCHI_FAILURE_UNMARKED) lochi_room_own->failures.count = mark;
}

void lochi_failure_end(uint32_t mark, bool is_inner)
{
    if (mark == LOCHI_FAILURE_UNMARKED) return;
    lochi_room *room = lochi_room_own;
    room->failures.depth--;
    if (is_inner && room->failures.depth) return;
    while (room->failures.count > mark)
        atomic_fetch_add_explicit(room->failures.notes[--room->failures.count], 1, memory_order_relaxed);
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

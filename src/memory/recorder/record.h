/* SPDX-License-Identifier: MIT */
/* Writing one record into the chunk of the calling thread, in the format of docs/recording-format.md: entering and
 * leaving, fields, the end of a record. In a header, because the fast path is inlined (fast.h).
 *
 * Fields are stored as eight bytes each, one behind the other: what a store writes behind its field is zeros, and the
 * next store overwrites them. So the place of the next record is always a zero byte. The first byte of a record is
 * stored last. */
#ifndef LOCHI_RECORDER_RECORD_H
#define LOCHI_RECORDER_RECORD_H

#include "kit/backoff.h"
#include "base/fence.h"
#include "memory/recorder/chunk.h"
#include "memory/recorder/clock.h"
#include <string.h>

enum { RECORDER_ALLOC = 1, RECORDER_FREE, RECORDER_USE, RECORDER_RESIZE, RECORDER_MOVE, RECORDER_OTHER };
enum {
    RECORDER_HAS_ALLOCATOR = 4,
    RECORDER_HAS_STREAM = 8,
    RECORDER_HAS_TAG = 16,
    RECORDER_HAS_ALIGNMENT = 32,
    RECORDER_HAS_STACK = 64,
    RECORDER_HAS_FLAGS = 128
};

/* --- entering and leaving --- */

/* Makes the calling thread busy, with room for a record in its chunk. Returns NULL if there is nothing to record. */
static inline recorder_thread *recorder_enter(void)
{
    const uint32_t slot = lochi_thread_slot();
    recorder_thread *thread = &lochi_recorder_threads[slot];
    if (LOCHI_UNLIKELY(slot == LOCHI_SLOT_SHARED))
        for (unsigned turn = 0; atomic_exchange_explicit(&thread->busy, true, memory_order_acquire);)
            lochi_backoff(&turn);
    else
        atomic_store_explicit(&thread->busy, true, memory_order_relaxed);
    lochi_fence_light();
    if (LOCHI_LIKELY(atomic_load_explicit(&thread->at, memory_order_relaxed) <
                     atomic_load_explicit(&thread->end, memory_order_relaxed)))
        return thread;
    return lochi_recorder_enter_slow(thread);
}

static inline void recorder_leave(recorder_thread *thread)
{
    atomic_store_explicit(&thread->busy, false, memory_order_release);
}

/* --- fields --- */

/* Stores a number that is 0 beyond its length. */
static inline void recorder_put(uint8_t *at, uint64_t number)
{
#if __BYTE_ORDER__ == __ORDER_BIG_ENDIAN__
    number = __builtin_bswap64(number);
#endif
    memcpy(at, &number, sizeof number);
}

/* Returns the code of the length of a number: 0 to 3 for 1, 2, 4, 8 bytes. */
static inline unsigned recorder_code(uint64_t number)
{
    return (number > UINT8_MAX) + (number > UINT16_MAX) + (number > UINT32_MAX);
}

/* A field of an address: its code, length and contents. */
typedef struct recorder_field {
    unsigned code, length;
    uint64_t number;
} recorder_field;

static inline recorder_field recorder_locate(const recorder_thread *thread, uintptr_t address)
{
    const int64_t distance = (int64_t)(address - thread->address);
    const uint64_t units = (uint64_t)(distance >> 4), size = units ^ (0 - (uint64_t)(distance < 0));
    unsigned code = (size >= 1u << 15) + (size >= 1u << 23) + (size >= 1u << 31);
    if (LOCHI_UNLIKELY(distance & 15)) code = 3;
    if (LOCHI_UNLIKELY(code == 3)) return (recorder_field){3, 8, address};
    return (recorder_field){code, code + 2, units & ((uint64_t)-1 >> (48 - 8 * code))};
}

/* Returns the time since the last record, and makes `now` the last time. The counters of two processors may differ by
 * a few ticks. */
static inline uint64_t recorder_elapse(recorder_thread *thread, uint64_t now)
{
    if (LOCHI_UNLIKELY(now < thread->ticks)) return 0;
    const uint64_t ticks = now - thread->ticks;
    thread->ticks = now;
    return ticks;
}

/* Completes a record: its first byte, then the place of the next. */
static inline void recorder_finish_record(recorder_thread *thread, uint8_t *start, unsigned first, uint8_t *end)
{
    atomic_store_explicit((_Atomic uint8_t *)start, (uint8_t)first, memory_order_release);
    thread->events++;
    atomic_store_explicit(&thread->at, end, memory_order_release);
}

#endif

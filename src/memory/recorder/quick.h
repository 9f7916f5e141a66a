/* SPDX-License-Identifier: MIT */
/* The fast path of the recorder: writes plain allocations and frees into the chunk of the calling thread, in the format
 * of docs/recording-format.md. It takes no lock and writes no cache line of another thread. In a header, so that the
 * dispatch inlines it.
 *
 * Fields are stored as eight bytes each, one behind the other: what a store writes behind its field is zeros, and the
 * next store overwrites them. So the place of the next record is always a zero byte. The first byte of a record is
 * stored last. */
#ifndef LOCHI_RECORDER_QUICK_H
#define LOCHI_RECORDER_QUICK_H

#include "base/fence.h"
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

/* Takes a chunk for a busy thread. Returns NULL, and the thread is not busy any more, if there is none. */
recorder_thread *lochi_recorder_enter_slowly(recorder_thread *thread);

/* Makes the calling thread busy, with room for a record in its chunk. Returns NULL if there is nothing to record. */
static inline recorder_thread *recorder_enter(void)
{
    const uint32_t slot = lochi_thread_slot();
    recorder_thread *thread = &lochi_recorder_threads[slot];
    if (LOCHI_UNLIKELY(slot == LOCHI_SLOT_SHARED))
        while (atomic_exchange_explicit(&thread->busy, true, memory_order_acquire))
            lochi_hint_pause();
    else
        atomic_store_explicit(&thread->busy, true, memory_order_relaxed);
    lochi_fence_light();
    if (LOCHI_LIKELY(atomic_load_explicit(&thread->at, memory_order_relaxed) <
                     atomic_load_explicit(&thread->end, memory_order_relaxed)))
        return thread;
    return lochi_recorder_enter_slowly(thread);
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
    const uint64_t units = (uint64_t)(distance >> 4), size = units ^ (uint64_t)(distance >> 63);
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

/* --- plain allocations and frees --- */

/* Writes a free of a recorded pool. `thread` is that of lochi_recorder_begin. */
void lochi_recorder_write_change(recorder_thread *thread, uint64_t now, uint32_t recorded, uintptr_t address);

/* Writes an allocation of any kind, and leaves. */
void lochi_recorder_write_alloc(recorder_thread *thread, uint64_t now, uint32_t recorded, const void *address,
                                const loch_request *request);

/* Makes the calling thread busy before a free, and reads the clock if that may take a lock. */
static inline recorder_thread *lochi_recorder_begin(void)
{
    recorder_thread *thread = recorder_enter();
    if (LOCHI_UNLIKELY(lochi_recorder_all.source != RECORDER_COUNTER) && thread)
        thread->begun = lochi_recorder_now_slowly();
    return thread;
}

static inline void lochi_recorder_end(recorder_thread *thread)
{
    if (LOCHI_LIKELY(thread != NULL)) recorder_leave(thread);
}

/* Writes a free between lochi_recorder_begin and lochi_recorder_end. */
static inline void lochi_recorder_write_free(recorder_thread *thread, uint32_t recorded, uintptr_t address)
{
    const bool is_counted = LOCHI_LIKELY(lochi_recorder_all.source == RECORDER_COUNTER);
    const uint64_t now = is_counted ? recorder_now_before() : thread->begun;
    if (LOCHI_UNLIKELY(thread->now.allocator != recorded - 1)) {
        lochi_recorder_write_change(thread, now, recorded, address);
        return;
    }
    const uint64_t ticks = recorder_elapse(thread, now);
    const unsigned time_code = recorder_code(ticks);
    const recorder_field place = recorder_locate(thread, address);
    uint8_t *start = atomic_load_explicit(&thread->at, memory_order_relaxed), *at = start + 1 + (1u << time_code);
    recorder_put(start + 1, ticks);
    recorder_put(at, place.number);
    thread->address = address;
    recorder_finish_record(thread, start, RECORDER_FREE | time_code << 3 | place.code << 5, at + place.length);
}

/* Records an allocation of `bytes` on the default stream, without tag or alignment, from the calling thread's cache.
 * The clock is read without waiting for earlier loads: blocks that come into the cache from other threads are followed
 * by recorder_now_after, or by lochi_recorder_await. */
static inline void lochi_recorder_note_plain(uint32_t recorded, const void *address, size_t bytes)
{
    recorder_thread *thread = recorder_enter();
    if (LOCHI_UNLIKELY(!thread)) return;
    const uint64_t now = recorder_now_before();
    if (LOCHI_UNLIKELY(thread->context != recorded - 1)) {
        const loch_request request = {.size = sizeof request, .bytes = bytes};
        lochi_recorder_write_alloc(thread, now, recorded, address, &request);
        return;
    }
    const uint64_t ticks = recorder_elapse(thread, now);
    const unsigned time_code = recorder_code(ticks), bytes_code = recorder_code(bytes);
    const recorder_field place = recorder_locate(thread, (uintptr_t)address);
    uint8_t *start = atomic_load_explicit(&thread->at, memory_order_relaxed), *at = start + 2 + (1u << time_code);
    recorder_put(start + 1, bytes_code | ticks << 8);
    if (LOCHI_UNLIKELY(time_code == 3)) recorder_put(start + 2, ticks);
    recorder_put(at, place.number);
    at += place.length;
    recorder_put(at, bytes);
    thread->address = (uintptr_t)address;
    recorder_finish_record(thread, start, RECORDER_ALLOC | time_code << 3 | place.code << 5 | RECORDER_HAS_FLAGS,
                           at + (1u << bytes_code));
    recorder_leave(thread);
}

/* Orders all later readings of the clock after everything that the thread has loaded so far. */
static inline void lochi_recorder_await(void)
{
#if defined __x86_64__
    __builtin_ia32_lfence();
#endif
}

#endif

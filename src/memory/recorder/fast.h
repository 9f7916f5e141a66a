/* SPDX-License-Identifier: MIT */
/* The fast path of the recorder: plain allocations and frees. It takes no lock and writes no cache line of another
 * thread. In a header, so that the dispatch inlines it. */
#ifndef LOCHI_RECORDER_FAST_H
#define LOCHI_RECORDER_FAST_H

#include "memory/recorder/record.h"
#include "memory/recorder/write.h"

/* Makes the calling thread busy before a free, and reads the clock if that may take a lock. */
static inline recorder_thread *lochi_recorder_begin(void)
{
    recorder_thread *thread = recorder_enter();
    if (LOCHI_LIKELY(thread != NULL) && LOCHI_UNLIKELY(lochi_recorder_all.source != RECORDER_COUNTER))
        thread->begun = lochi_recorder_now_slow();
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
static inline void lochi_recorder_note_simple(uint32_t recorded, const void *address, size_t bytes)
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

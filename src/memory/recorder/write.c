/* SPDX-License-Identifier: MIT */
/* Writes records into the chunk of the calling thread, in the format of docs/recording-format.md. A record takes no
 * lock and writes no cache line of another thread.
 *
 * Fields are stored as eight bytes each, one behind the other: what a store writes behind its field is zeros, and the
 * next store overwrites them. The bytes behind the last field are zeros again, so the place of the next record is
 * always a zero byte. The first byte of the record is stored last. */
#include "base/fence.h"
#include "memory/recorder/chunk.h"
#include "memory/recorder/clock.h"
#include "memory/recorder/names.h"
#include "memory/recorder/recorder.h"
#include "memory/recorder/write.h"
#include <string.h>

enum { WRITE_ALLOC = 1, WRITE_FREE, WRITE_USE, WRITE_RESIZE, WRITE_MOVE, WRITE_OTHER };
enum { WRITE_PRESENT = 1, WRITE_TAKEN, WRITE_GOING, WRITE_CALL, WRITE_SLEEP, WRITE_WAKE, WRITE_FAILED, WRITE_UNDO };
enum { HAS_ALLOCATOR = 4, HAS_STREAM = 8, HAS_TAG = 16, HAS_ALIGNMENT = 32, HAS_STACK = 64, HAS_FLAGS = 128 };

/* --- entering and leaving --- */

static LOCHI_RARE recorder_thread *write_enter_slowly(recorder_thread *thread)
{
    if (lochi_recorder_take(thread)) return thread;
    atomic_store_explicit(&thread->busy, false, memory_order_release);
    return NULL;
}

/* Makes the calling thread busy, with room for a record in its chunk. Returns NULL if there is nothing to record. */
static inline recorder_thread *write_enter(void)
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
    return write_enter_slowly(thread);
}

static inline void write_leave(recorder_thread *thread)
{
    atomic_store_explicit(&thread->busy, false, memory_order_release);
}

/* --- fields --- */

/* Stores a number that is 0 beyond its length. */
static inline void write_put(uint8_t *at, uint64_t number)
{
#if __BYTE_ORDER__ == __ORDER_BIG_ENDIAN__
    number = __builtin_bswap64(number);
#endif
    memcpy(at, &number, sizeof number);
}

/* Returns the code of the length of a number: 0 to 3 for 1, 2, 4, 8 bytes. */
static inline unsigned write_code(uint64_t number)
{
    return (number > UINT8_MAX) + (number > UINT16_MAX) + (number > UINT32_MAX);
}

/* A field of an address: its code, length and contents. */
typedef struct write_place {
    unsigned code, length;
    uint64_t number;
} write_place;

static inline write_place write_locate(const recorder_thread *thread, uintptr_t address)
{
    const int64_t distance = (int64_t)(address - thread->address);
    const uint64_t units = (uint64_t)(distance >> 4), size = units ^ (uint64_t)(distance >> 63);
    unsigned code = (size >= 1u << 15) + (size >= 1u << 23) + (size >= 1u << 31);
    if (LOCHI_UNLIKELY(distance & 15)) code = 3;
    if (LOCHI_UNLIKELY(code == 3)) return (write_place){3, 8, address};
    return (write_place){code, code + 2, units & ((uint64_t)-1 >> (48 - 8 * code))};
}

/* Returns the time since the last record, and makes `now` the last time. The counters of two processors may differ by
 * a few ticks. */
static inline uint64_t write_elapse(recorder_thread *thread, uint64_t now)
{
    if (LOCHI_UNLIKELY(now < thread->ticks)) return 0;
    const uint64_t ticks = now - thread->ticks;
    thread->ticks = now;
    return ticks;
}

/* Completes a record: its first byte, then the place of the next. */
static inline void write_finish(recorder_thread *thread, uint8_t *start, unsigned first, uint8_t *end)
{
    atomic_store_explicit((_Atomic uint8_t *)start, (uint8_t)first, memory_order_release);
    thread->events++;
    atomic_store_explicit(&thread->at, end, memory_order_release);
}

/* Returns the number of a stream; NULL is the default stream. */
static inline uint16_t write_stream(recorder_thread *thread, const loch_stream *stream)
{
    if (!stream || stream->kind == LOCHI_STREAM_DEFAULT) return 0;
    return lochi_recorder_find_stream(thread, stream->id);
}

/* --- allocations and frees --- */

/* Stores the optional fields of an allocation, of two bytes each, and returns the end. */
static LOCHI_RARE uint8_t *write_extras(recorder_thread *thread, uint8_t *at, unsigned flags, uint32_t allocator,
                                        uint16_t stream, const loch_request *request, uint32_t stack)
{
    if (flags & HAS_ALLOCATOR) {
        thread->allocator = (uint16_t)allocator;
        write_put(at, thread->allocator);
        at += 2;
    }
    if (flags & HAS_STREAM) {
        thread->stream = stream;
        write_put(at, stream);
        at += 2;
    }
    if (flags & HAS_TAG) {
        thread->tag = (uint16_t)request->tag;
        write_put(at, thread->tag);
        at += 2;
    }
    if (flags & HAS_ALIGNMENT) {
        write_put(at, (unsigned)__builtin_ctzll(request->alignment));
        at += 1;
    }
    if (flags & HAS_STACK) {
        write_put(at, stack - 1);
        at += 4;
    }
    return at;
}

void lochi_recorder_note_alloc(uint32_t recorded, const void *address, const loch_request *request)
{
    recorder_thread *thread = write_enter();
    if (LOCHI_UNLIKELY(!thread)) return;
    const uint64_t ticks = write_elapse(thread, recorder_now_after());
    const uint32_t stack = LOCHI_UNLIKELY(lochi_recorder_all.depth) ? lochi_recorder_find_stack(thread) : 0;
    const uint16_t stream = write_stream(thread, request->stream);
    const unsigned time_code = write_code(ticks), bytes_code = write_code(request->bytes);
    const write_place place = write_locate(thread, (uintptr_t)address);
    unsigned flags = bytes_code;
    if (recorded - 1 != thread->allocator) flags |= HAS_ALLOCATOR;
    if (stream != thread->stream) flags |= HAS_STREAM;
    if (request->tag != thread->tag) flags |= HAS_TAG;
    if (request->alignment > 1) flags |= HAS_ALIGNMENT;
    if (stack) flags |= HAS_STACK;
    if (LOCHI_UNLIKELY(flags & HAS_TAG)) lochi_recorder_name_tag(request->tag);
    uint8_t *start = atomic_load_explicit(&thread->at, memory_order_relaxed), *at = start + 2 + (1u << time_code);
    write_put(start + 1, flags | ticks << 8);
    if (LOCHI_UNLIKELY(time_code == 3)) write_put(start + 2, ticks);
    write_put(at, place.number);
    at += place.length;
    write_put(at, request->bytes);
    at += 1u << bytes_code;
    if (LOCHI_UNLIKELY(flags > 3)) at = write_extras(thread, at, flags, recorded - 1, stream, request, stack);
    thread->address = (uintptr_t)address;
    write_finish(thread, start, WRITE_ALLOC | time_code << 3 | place.code << 5 | HAS_FLAGS, at);
    write_leave(thread);
}

recorder_thread *lochi_recorder_begin(void)
{
    recorder_thread *thread = write_enter();
    if (LOCHI_UNLIKELY(lochi_recorder_all.source != RECORDER_COUNTER) && thread)
        thread->begun = lochi_recorder_now_slowly(); /* the clock of a device may take a lock */
    return thread;
}

void lochi_recorder_end(recorder_thread *thread)
{
    if (LOCHI_LIKELY(thread != NULL)) write_leave(thread);
}

/* Writes a record at the time `now` with an address and, if they are not those of the state, an allocator; and a stream plus
 * one, 0 for none. `further` is the size of a resize and the new address of a move. */
static inline __attribute__((always_inline)) void write_change(recorder_thread *thread, uint64_t now, unsigned kind,
                                                               uint32_t recorded, uintptr_t address,
                                                               uint32_t stream_plus_one, uint64_t further)
{
    const uint64_t ticks = write_elapse(thread, now);
    const unsigned time_code = write_code(ticks);
    const write_place place = write_locate(thread, address);
    unsigned flags = kind == WRITE_RESIZE ? write_code(further) : 0;
    if (recorded - 1 != thread->allocator) flags |= HAS_ALLOCATOR;
    if (stream_plus_one) flags |= HAS_STREAM;
    const bool has_flags = flags || kind == WRITE_RESIZE || kind == WRITE_USE;
    uint8_t *start = atomic_load_explicit(&thread->at, memory_order_relaxed), *at = start + 1;
    if (LOCHI_UNLIKELY(has_flags)) write_put(at++, flags);
    write_put(at, ticks);
    at += 1u << time_code;
    write_put(at, place.number);
    at += place.length;
    if (kind == WRITE_RESIZE) {
        write_put(at, further);
        at += 1u << (flags & 3);
    }
    if (LOCHI_UNLIKELY(flags & HAS_ALLOCATOR)) {
        thread->allocator = (uint16_t)(recorded - 1);
        write_put(at, thread->allocator);
        at += 2;
    }
    if (stream_plus_one) {
        write_put(at, stream_plus_one - 1);
        at += 2;
    }
    if (kind == WRITE_MOVE) {
        write_put(at, further);
        at += 8;
    }
    thread->address = address;
    write_finish(thread, start, kind | time_code << 3 | place.code << 5 | (has_flags ? HAS_FLAGS : 0), at);
}

void lochi_recorder_write_free(recorder_thread *thread, uint32_t recorded, uintptr_t address)
{
    const bool is_counted = LOCHI_LIKELY(lochi_recorder_all.source == RECORDER_COUNTER);
    write_change(thread, is_counted ? recorder_now_before() : thread->begun, WRITE_FREE, recorded, address, 0, 0);
}

static void write_note(unsigned kind, uint32_t recorded, const void *address, const loch_stream *stream,
                       bool has_stream, uint64_t further)
{
    recorder_thread *thread = write_enter();
    if (!thread) return;
    const uint32_t stream_plus_one = has_stream ? write_stream(thread, stream) + 1u : 0;
    const uint64_t now = recorder_now_before();
    switch (kind) {
    case WRITE_RESIZE: write_change(thread, now, WRITE_RESIZE, recorded, (uintptr_t)address, 0, further); break;
    case WRITE_MOVE: write_change(thread, now, WRITE_MOVE, recorded, (uintptr_t)address, 0, further); break;
    default: write_change(thread, now, kind, recorded, (uintptr_t)address, stream_plus_one, 0); break;
    }
    write_leave(thread);
}

void lochi_recorder_note_free(uint32_t recorded, const void *address, const loch_stream *stream)
{
    write_note(WRITE_FREE, recorded, address, stream, stream != NULL, 0);
}

void lochi_recorder_note_use(uint32_t recorded, const void *address, const loch_stream *stream)
{
    write_note(WRITE_USE, recorded, address, stream, true, 0);
}

void lochi_recorder_note_resize(uint32_t recorded, const void *address, size_t bytes)
{
    write_note(WRITE_RESIZE, recorded, address, NULL, false, bytes);
}

void lochi_recorder_note_move(uint32_t recorded, const void *from, const void *to)
{
    write_note(WRITE_MOVE, recorded, from, NULL, false, (uintptr_t)to);
}

/* --- other records --- */

/* Writes a record of `count` numbers at the time `now`. */
static void write_other(recorder_thread *thread, uint64_t now, uint8_t kind, const uint64_t *numbers, size_t count)
{
    const uint64_t ticks = write_elapse(thread, now);
    const unsigned time_code = write_code(ticks);
    uint8_t *start = atomic_load_explicit(&thread->at, memory_order_relaxed), *rest = start + 3 + (1u << time_code);
    uint8_t *at = rest;
    write_put(start + 3, ticks);
    for (size_t i = 0; i < count; i++) {
        uint64_t number = numbers[i];
        for (; number > 127; number >>= 7)
            *at++ = (uint8_t)(number | 128);
        *at++ = (uint8_t)number;
    }
    start[1] = kind;
    start[2] = (uint8_t)(at - rest);
    write_finish(thread, start, WRITE_OTHER | time_code << 3, at);
}

static void write_now(uint8_t kind, const uint64_t *numbers, size_t count)
{
    recorder_thread *thread = write_enter();
    if (!thread) return;
    write_other(thread, recorder_now_before(), kind, numbers, count);
    write_leave(thread);
}

void lochi_recorder_write_present(uint32_t recorded, const loch_block *block, uint64_t stream)
{
    recorder_thread *thread = write_enter();
    if (!thread) return;
    const uint64_t number = stream ? lochi_recorder_find_stream(thread, stream) : 0;
    if (block->tag) lochi_recorder_name_tag(block->tag);
    const uint64_t numbers[] = {recorded - 1, (uintptr_t)block->address, block->requested_bytes, block->tag, number, 0};
    write_other(thread, thread->ticks, WRITE_PRESENT, numbers, 6);
    write_leave(thread);
}

void lochi_recorder_write_range(loch_range_event event, const loch_range *range)
{
    const uint64_t numbers[] = {lochi_recorder_find_device(range->device), (uintptr_t)range->address, range->bytes,
                                range->kind};
    const bool is_taken = event == LOCH_RANGE_TAKEN;
    write_now(is_taken ? WRITE_TAKEN : WRITE_GOING, numbers, is_taken ? 4 : 3);
}

void lochi_recorder_write_call(const loch_device *device, loch_driver_call call, uint64_t ns)
{
    lochi_recorder_name_call(call);
    write_now(WRITE_CALL, (const uint64_t[]){lochi_recorder_find_device(device), call, ns}, 3);
}

void lochi_recorder_note_undo(uint32_t recorded, const void *address)
{
    write_now(WRITE_UNDO, (const uint64_t[]){recorded - 1, (uintptr_t)address}, 2);
}

void lochi_recorder_note_failure(const loch_allocator *allocator, size_t bytes, loch_status status)
{
    while (allocator->wrapped)
        allocator = allocator->wrapped;
    const uint32_t recorded = lochi_recorder_of(allocator);
    if (recorded) write_now(WRITE_FAILED, (const uint64_t[]){recorded - 1, bytes, (uint64_t)status}, 3);
}

void lochi_recorder_note_sleep(uint32_t recorded, size_t bytes)
{
    if (recorded) write_now(WRITE_SLEEP, (const uint64_t[]){recorded - 1, bytes}, 2);
}

void lochi_recorder_note_wake(uint32_t recorded, size_t bytes)
{
    if (recorded) write_now(WRITE_WAKE, (const uint64_t[]){recorded - 1, bytes}, 2);
}

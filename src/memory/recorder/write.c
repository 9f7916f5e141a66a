/* SPDX-License-Identifier: MIT */
/* Writes records into the chunk of the calling thread: all kinds, and what the fast path (fast.h) leaves. */
#include "memory/recorder/names.h"
#include "memory/recorder/record.h"
#include "memory/recorder/recorder.h"
#include "memory/recorder/write.h"

enum { WRITE_PRESENT = 1, WRITE_TAKEN, WRITE_GOING, WRITE_CALL, WRITE_SLEEP, WRITE_WAKE, WRITE_FAILED, WRITE_UNDO };
enum { WRITE_RESERVE = 10 };

/* Returns the number of a stream; NULL is the default stream. */
static inline uint16_t write_stream(recorder_thread *thread, const loch_stream *stream)
{
    if (!stream || stream->kind == LOCHI_STREAM_DEFAULT) return 0;
    return lochi_recorder_find_stream(thread, stream->id);
}

/* Writes a record of `count` numbers at the time `now`. */
static void write_other(recorder_thread *thread, uint64_t now, uint8_t kind, const uint64_t *numbers, size_t count)
{
    const uint64_t ticks = recorder_elapse(thread, now);
    const unsigned time_code = recorder_code(ticks);
    uint8_t *start = atomic_load_explicit(&thread->at, memory_order_relaxed), *rest = start + 3 + (1u << time_code);
    uint8_t *at = rest;
    recorder_put(start + 3, ticks);
    for (size_t i = 0; i < count; i++) {
        uint64_t number = numbers[i];
        for (; number > 127; number >>= 7)
            *at++ = (uint8_t)(number | 128);
        *at++ = (uint8_t)number;
    }
    start[1] = kind;
    start[2] = (uint8_t)(at - rest);
    recorder_finish_record(thread, start, RECORDER_OTHER | time_code << 3, at);
}

/* Writes the addresses that a growable block reserves, at the time of its allocation: no other block can have had the
 * address in between. */
static void write_reserve(uint64_t now, uint32_t recorded, const void *address, size_t max_bytes)
{
    recorder_thread *thread = recorder_enter();
    if (!thread) return;
    write_other(thread, now, WRITE_RESERVE, (const uint64_t[]){recorded - 1, (uintptr_t)address, max_bytes}, 3);
    recorder_leave(thread);
}

/* --- allocations and frees --- */

/* Stores the optional fields of an allocation, of two bytes each, and returns the end. */
static LOCHI_RARE uint8_t *write_extras(recorder_thread *thread, uint8_t *at, unsigned flags, uint32_t allocator,
                                        uint16_t stream, const loch_request *request, uint32_t stack)
{
    if (flags & RECORDER_HAS_ALLOCATOR) {
        thread->now.allocator = (uint16_t)allocator;
        recorder_put(at, thread->now.allocator);
        at += 2;
    }
    if (flags & RECORDER_HAS_STREAM) {
        thread->now.stream = stream;
        recorder_put(at, stream);
        at += 2;
    }
    if (flags & RECORDER_HAS_TAG) {
        thread->now.tag = (uint16_t)request->tag;
        recorder_put(at, thread->now.tag);
        at += 2;
    }
    if (flags & RECORDER_HAS_ALIGNMENT) {
        recorder_put(at, (unsigned)__builtin_ctzll(request->alignment));
        at += 1;
    }
    if (flags & RECORDER_HAS_STACK) {
        recorder_put(at, stack - 1);
        at += 4;
    }
    return at;
}

void lochi_recorder_write_alloc(recorder_thread *thread, uint64_t now, uint32_t recorded, const void *address,
                                const loch_request *request)
{
    const uint64_t ticks = recorder_elapse(thread, now);
    const uint32_t stack = LOCHI_UNLIKELY(lochi_recorder_all.depth) ? lochi_recorder_find_stack(thread) : 0;
    const uint16_t stream = write_stream(thread, request->stream);
    const unsigned time_code = recorder_code(ticks), bytes_code = recorder_code(request->bytes);
    const recorder_field place = recorder_locate(thread, (uintptr_t)address);
    unsigned flags = bytes_code;
    if (recorded - 1 != thread->now.allocator) flags |= RECORDER_HAS_ALLOCATOR;
    if (stream != thread->now.stream) flags |= RECORDER_HAS_STREAM;
    if (request->tag != thread->now.tag) flags |= RECORDER_HAS_TAG;
    if (request->alignment > 1) flags |= RECORDER_HAS_ALIGNMENT;
    if (stack) flags |= RECORDER_HAS_STACK;
    if (LOCHI_UNLIKELY(flags & RECORDER_HAS_TAG)) lochi_recorder_name_tag(request->tag);
    uint8_t *start = atomic_load_explicit(&thread->at, memory_order_relaxed), *at = start + 2 + (1u << time_code);
    recorder_put(start + 1, flags | ticks << 8);
    if (LOCHI_UNLIKELY(time_code == 3)) recorder_put(start + 2, ticks);
    recorder_put(at, place.number);
    at += place.length;
    recorder_put(at, request->bytes);
    at += 1u << bytes_code;
    if (LOCHI_UNLIKELY(flags > 3)) at = write_extras(thread, at, flags, recorded - 1, stream, request, stack);
    thread->address = (uintptr_t)address;
    recorder_finish_record(thread, start, RECORDER_ALLOC | time_code << 3 | place.code << 5 | RECORDER_HAS_FLAGS, at);
    recorder_leave(thread);
}

void lochi_recorder_note_alloc(uint32_t recorded, const void *address, const loch_request *request)
{
    recorder_thread *thread = recorder_enter();
    if (LOCHI_UNLIKELY(!thread)) return;
    const uint64_t now = recorder_now_after();
    lochi_recorder_write_alloc(thread, now, recorded, address, request);
    if (request->max_bytes) write_reserve(now, recorded, address, request->max_bytes);
}

/* Writes a record at the time `now` with an address, the allocator if it is not that of the last record, and a stream
 * plus one, 0 for none. `further` is the size of a resize and the new address of a move. */
static inline __attribute__((always_inline)) void write_change(recorder_thread *thread, uint64_t now, unsigned kind,
                                                               uint32_t recorded, uintptr_t address,
                                                               uint32_t stream_plus_one, uint64_t further)
{
    const uint64_t ticks = recorder_elapse(thread, now);
    const unsigned time_code = recorder_code(ticks);
    const recorder_field place = recorder_locate(thread, address);
    unsigned flags = kind == RECORDER_RESIZE ? recorder_code(further) : 0;
    if (recorded - 1 != thread->now.allocator) flags |= RECORDER_HAS_ALLOCATOR;
    if (stream_plus_one) flags |= RECORDER_HAS_STREAM;
    const bool has_flags = flags || kind == RECORDER_RESIZE || kind == RECORDER_USE;
    uint8_t *start = atomic_load_explicit(&thread->at, memory_order_relaxed), *at = start + 1;
    if (LOCHI_UNLIKELY(has_flags)) recorder_put(at++, flags);
    recorder_put(at, ticks);
    at += 1u << time_code;
    recorder_put(at, place.number);
    at += place.length;
    if (kind == RECORDER_RESIZE) {
        recorder_put(at, further);
        at += 1u << (flags & 3);
    }
    if (LOCHI_UNLIKELY(flags & RECORDER_HAS_ALLOCATOR)) {
        thread->now.allocator = (uint16_t)(recorded - 1);
        recorder_put(at, thread->now.allocator);
        at += 2;
    }
    if (stream_plus_one) {
        recorder_put(at, stream_plus_one - 1);
        at += 2;
    }
    if (kind == RECORDER_MOVE) {
        recorder_put(at, further);
        at += 8;
    }
    thread->address = address;
    recorder_finish_record(thread, start,
                           kind | time_code << 3 | place.code << 5 | (has_flags ? RECORDER_HAS_FLAGS : 0), at);
}

void lochi_recorder_write_change(recorder_thread *thread, uint64_t now, uint32_t recorded, uintptr_t address)
{
    write_change(thread, now, RECORDER_FREE, recorded, address, 0, 0);
}

static void write_note(unsigned kind, uint32_t recorded, const void *address, const loch_stream *stream,
                       bool has_stream, uint64_t further)
{
    recorder_thread *thread = recorder_enter();
    if (!thread) return;
    const uint32_t stream_plus_one = has_stream ? write_stream(thread, stream) + 1u : 0;
    const uint64_t now = recorder_now_before();
    switch (kind) {
    case RECORDER_RESIZE: write_change(thread, now, RECORDER_RESIZE, recorded, (uintptr_t)address, 0, further); break;
    case RECORDER_MOVE: write_change(thread, now, RECORDER_MOVE, recorded, (uintptr_t)address, 0, further); break;
    default: write_change(thread, now, kind, recorded, (uintptr_t)address, stream_plus_one, 0); break;
    }
    recorder_leave(thread);
}

void lochi_recorder_note_free(uint32_t recorded, const void *address, const loch_stream *stream)
{
    write_note(RECORDER_FREE, recorded, address, stream, stream != NULL, 0);
}

void lochi_recorder_note_use(uint32_t recorded, const void *address, const loch_stream *stream)
{
    write_note(RECORDER_USE, recorded, address, stream, true, 0);
}

void lochi_recorder_note_resize(uint32_t recorded, const void *address, size_t bytes)
{
    write_note(RECORDER_RESIZE, recorded, address, NULL, false, bytes);
}

void lochi_recorder_note_move(uint32_t recorded, const void *from, const void *to)
{
    write_note(RECORDER_MOVE, recorded, from, NULL, false, (uintptr_t)to);
}

/* --- other records --- */

static void write_now(uint8_t kind, const uint64_t *numbers, size_t count)
{
    recorder_thread *thread = recorder_enter();
    if (!thread) return;
    write_other(thread, recorder_now_before(), kind, numbers, count);
    recorder_leave(thread);
}

void lochi_recorder_write_present(uint32_t recorded, const loch_block *block, uint64_t stream, size_t max_bytes)
{
    recorder_thread *thread = recorder_enter();
    if (!thread) return;
    const uint64_t number = stream ? lochi_recorder_find_stream(thread, stream) : 0;
    if (block->tag) lochi_recorder_name_tag(block->tag);
    const uint64_t numbers[] = {recorded - 1, (uintptr_t)block->address, block->requested_bytes, block->tag, number, 0};
    const uint64_t now = recorder_now_before();
    write_other(thread, now, WRITE_PRESENT, numbers, 6);
    recorder_leave(thread);
    if (max_bytes) write_reserve(now, recorded, block->address, max_bytes);
}

void lochi_recorder_write_range(loch_range_event event, const loch_range *range)
{
    const uint64_t numbers[] = {lochi_recorder_find_device(range->device), (uintptr_t)range->address, range->bytes,
                                range->kind, (uintptr_t)range->memory};
    const bool is_taken = event == LOCH_RANGE_TAKEN;
    write_now(is_taken ? WRITE_TAKEN : WRITE_GOING, numbers, is_taken ? 5 : 3);
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
    const uint32_t recorded = atomic_load_explicit(&allocator->recorded, memory_order_relaxed);
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

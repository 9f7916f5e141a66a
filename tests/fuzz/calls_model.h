/* SPDX-License-Identifier: MIT */
/* The plain model of fuzz_calls.c: blocks that are out, with their contents, streams, sessions and allocators. */
#ifndef LOCH_FUZZ_CALLS_MODEL_H
#define LOCH_FUZZ_CALLS_MODEL_H

#include "fuzz.h"
#include "memory/pool/state/structs.h"
#include <loch/child.h>
#include <loch/direct.h>
#include <loch/moving.h>
#include <loch/session.h>
#include <loch/sleep.h>
#include <loch/wrapper.h>

enum { CALLS_BLOCKS = 40, CALLS_BUFFERS = 6, CALLS_STREAMS = 3, CALLS_SESSIONS = 2, CALLS_ENTERED = 4 };

/* The allocators of a program; each is made when it is first used. */
typedef enum calls_kind {
    CALLS_POOL,
    CALLS_QUOTA,
    CALLS_RANGE,
    CALLS_LIMIT,
    CALLS_TRACKING,
    CALLS_GUARD,
    CALLS_FAULT,
    CALLS_DIRECT,
    CALLS_DIRECT_GUARD,
    CALLS_DEFERRED,
    CALLS_CHILD_LOCKED,
    CALLS_KINDS
} calls_kind;

typedef struct calls_block {
    char *address;
    size_t requested, max_bytes; /* max_bytes: of a growable one, else 0 */
    uint64_t seed;
    int kind;    /* calls_kind that it was asked of */
    int stream;  /* of its allocation */
    int session; /* that it belongs to, or -1 */
} calls_block;

typedef struct calls_buffer {
    loch_buffer *buffer;
    size_t bytes;
    uint64_t seed;
    int pins;
} calls_buffer;

typedef struct calls {
    fuzz_input input;
    loch_device *device;
    bool is_sim, has_data, is_virtual;
    loch_stream *streams[CALLS_STREAMS];
    loch_allocator *allocators[CALLS_KINDS];
    calls_block blocks[CALLS_BLOCKS];
    size_t count;
    calls_buffer buffers[CALLS_BUFFERS];
    loch_session *sessions[CALLS_SESSIONS];
    int entered[CALLS_ENTERED], depth;
    unsigned faults; /* what the next call may meet: 1 of the device, 2 of the heap */
    uint64_t seed;
} calls;

/* --- contents: each byte follows from the seed and its place, a few of them are written --- */

static inline unsigned char calls_content(uint64_t seed, size_t at)
{
    return (unsigned char)((seed + at * 0x9e3779b97f4a7c15u) >> 32 ^ seed >> 8);
}

static inline void calls_touch(char *address, size_t at, uint64_t seed, bool is_write)
{
    unsigned char *place = (unsigned char *)address + at;
    if (is_write)
        *place = calls_content(seed, at);
    else if (*place != calls_content(seed, at))
        fuzz_fail("a block was overwritten at byte %zu", at);
}

/* Writes or checks 16 bytes in every 4096, as far as they are whole. */
static inline void calls_front(char *address, size_t bytes, uint64_t seed, bool is_write)
{
    for (size_t at = 0; at + 16 <= bytes; at += 4096)
        for (size_t i = 0; i < 16; i++)
            calls_touch(address, at + i, seed, is_write);
}

/* The last 8 bytes, too. */
static inline void calls_each(char *address, size_t bytes, uint64_t seed, bool is_write)
{
    calls_front(address, bytes, seed, is_write);
    for (size_t at = bytes > 8 ? bytes - 8 : 0; at < bytes; at++)
        calls_touch(address, at, seed, is_write);
}

static inline void calls_put(const calls *c, calls_block *block)
{
    if (c->has_data) calls_each(block->address, block->requested, block->seed, true);
}

static inline void calls_expect(const calls *c, const calls_block *block)
{
    if (c->has_data) calls_each(block->address, block->requested, block->seed, false);
}

static inline loch_stream *calls_stream(const calls *c, int stream)
{
    return c->is_sim ? c->streams[stream] : NULL;
}

/* Makes `later` wait for what is queued on `earlier`. */
static inline void calls_order(const calls *c, int earlier, int later)
{
    if (!c->is_sim || earlier == later) return;
    loch_event *event;
    CHECK_OK(loch_event_create(c->device, LOCH_EVENT_TIMED, &event));
    CHECK_OK(loch_event_record(event, c->streams[earlier]));
    CHECK_OK(loch_stream_wait(c->streams[later], event));
    loch_event_destroy(event);
}

/* A kernel that uses a block on a stream. */
static inline void calls_use(const calls *c, const calls_block *block, int stream, bool is_write)
{
    if (!c->is_sim || !block->requested) return;
    const loch_sim_range range = {block->address, block->requested};
    loch_sim_kernel kernel = {.size = sizeof kernel, .name = is_write ? "writer" : "reader"};
    *(is_write ? &kernel.writes : &kernel.reads) = &range;
    *(is_write ? &kernel.writes_count : &kernel.reads_count) = 1;
    CHECK_OK(loch_sim_launch(c->streams[stream], &kernel));
}

/* --- calls that may meet a fault --- */

#define CALLS_SHORT (TEST_SET(LIMIT) | TEST_SET(FRAGMENTED) | TEST_SET(DEVICE_MEMORY) | TEST_SET(MOVING_FORBIDDEN))
#define CALLS_FAULTY (TEST_SET(DRIVER) | TEST_SET(DEVICE_MEMORY) | TEST_SET(HOST_MEMORY))

static inline void calls_arm(calls *c)
{
    loch_error_clear();
    if (c->faults & 2) test_heap_set(TEST_FAILING_ONCE, fuzz_byte(&c->input) % 16);
    const loch_sim_fault fault = {.size = sizeof fault, .after = fuzz_byte(&c->input) % 16};
    if (c->faults & 1 && c->is_sim) CHECK_OK(loch_sim_set_fault(c->device, &fault));
}

/* Returns the statuses that the call may have given because of a fault, and ends it. */
static inline unsigned calls_disarm(calls *c)
{
    const unsigned allowed = c->faults ? CALLS_FAULTY : 0;
    test_heap_set(TEST_FAILING_NEVER, 0);
    if (c->is_sim) CHECK_OK(loch_sim_set_fault(c->device, NULL));
    c->faults = 0;
    return allowed;
}

/* CALLS_TRY(c, status, allowed, call): makes the call under the fault that is due, and checks a failure. */
#define CALLS_TRY(c, status, set, call)                                                                                \
    do {                                                                                                               \
        calls_arm(c);                                                                                                  \
        (status) = (call);                                                                                             \
        const loch_error record = *loch_error_get();                                                                   \
        const unsigned faulty = calls_disarm(c);                                                                       \
        if ((status) != LOCH_OK && !(((set) | faulty) & 1u << (status)))                                               \
            fuzz_fail("%s:%d: %s gave %s: %s", __FILE__, __LINE__, #call, loch_status_name(status), record.sentence);  \
        if ((status) != LOCH_OK && (record.status != (status) || !record.sentence[0]))                                 \
            fuzz_fail("%s:%d: %s gave %s without a sentence", __FILE__, __LINE__, #call, loch_status_name(status));    \
    } while (0)

#endif

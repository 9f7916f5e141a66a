/* SPDX-License-Identifier: MIT */
/* Recordings for tests: read from memory, written to memory, made at random, compared. */
#ifndef LOCH_TEST_RECORDINGS_H
#define LOCH_TEST_RECORDINGS_H

#include "format.h"
#include "test.h"

/* Reads contents by one reader. On success the caller destroys the recording. */
static inline loch_status recordings_read(lochi_insight_reader *read, const void *data, size_t bytes,
                                          loch_recording **out)
{
    const insight_source source = {.path = "file", .data = data, .bytes = bytes};
    const loch_recording_options options = {.size = sizeof options};
    loch_status status = lochi_insight_recording_create("file", LOCH_RECORDING_TEXT, out);
    if (status == LOCH_OK) status = read(&source, &options, *out);
    if (status == LOCH_OK) status = lochi_insight_recording_finish(*out);
    if (status == LOCH_OK) return LOCH_OK;
    loch_recording_destroy(*out);
    *out = NULL;
    return status;
}

/* Writes a recording into memory that the caller frees. */
static inline char *recordings_write(lochi_insight_writer *write, const loch_recording *recording, size_t *bytes)
{
    char *data = NULL;
    const loch_recording_options options = {.size = sizeof options};
    insight_sink sink = {.file = open_memstream(&data, bytes), .path = "memory"};
    assert_non_null(sink.file);
    CHECK_OK(write(recording, &options, &sink));
    fclose(sink.file);
    return data;
}

static inline loch_recording *recordings_from_text(const char *text)
{
    loch_recording *recording;
    CHECK_OK(recordings_read(lochi_insight_read_text, text, strlen(text), &recording));
    return recording;
}

/* What a random recording has. */
typedef struct recordings_shape {
    size_t events, threads;
    bool has_addresses, has_ties;
} recordings_shape;

typedef struct recordings_state {
    loch_recording *recording;
    test_random *random;
    const recordings_shape *shape;
    uint64_t addresses[512]; /* of live blocks */
    uint32_t live[512], ranges[64];
    size_t live_count, ranges_count;
    size_t presents; /* blocks before the start: they come first */
    uint64_t time_ns, next_address, next_id;
} recordings_state;

static inline uint64_t recordings_address(recordings_state *state)
{
    const uint64_t jump = (uint64_t)1 << test_random_below(state->random, 40);
    state->next_address += 16 * (1 + test_random_below(state->random, 3)) + jump / 16 * 16;
    return state->next_address + (test_random_below(state->random, 50) ? 0 : 5); /* a few are not multiples of 16 */
}

static inline void recordings_alloc(recordings_state *state, loch_recording_event event)
{
    loch_recording_block block = {.bytes =
                                      test_random_next(state->random) >> (24 + test_random_below(state->random, 40)),
                                  .tag = (uint32_t)test_random_below(state->random, 4),
                                  .allocator = (uint16_t)test_random_below(state->random, 3),
                                  .stream = event.stream,
                                  .alignment = (uint8_t)(test_random_below(state->random, 8) ? 0 : 12),
                                  .is_present = !state->time_ns && state->recording->events.count == state->presents};
    if (!test_random_below(state->random, 6)) block.max_bytes = test_random_next(state->random) >> 20;
    block.address = state->shape->has_addresses ? recordings_address(state) : 0;
    state->next_id += 1 + (test_random_below(state->random, 20) ? 0 : test_random_next(state->random) >> 20);
    block.id = state->shape->has_addresses ? state->recording->blocks.count : state->next_id;
    state->presents += block.is_present;
    const uint32_t index = lochi_insight_recording_add_alloc(state->recording, &block, &event);
    state->addresses[state->live_count] = block.address;
    state->live[state->live_count++] = index;
}

static inline void recordings_other(recordings_state *state, loch_recording_event event, size_t choice)
{
    if (choice == 0 && state->ranges_count < 64) {
        const loch_recording_range range = {.address = state->shape->has_addresses ? recordings_address(state) : 0,
                                            .bytes = event.value,
                                            .take_event = (uint32_t)state->recording->events.count,
                                            .give_event = LOCH_RECORDING_NONE,
                                            .device = event.stream = event.stream & 1};
        event.kind = LOCH_RECORDED_TAKE;
        event.subject = state->ranges[state->ranges_count++] =
            lochi_insight_recording_add_range(state->recording, &range);
    } else if (choice == 0) {
        event.subject = state->ranges[--state->ranges_count];
        loch_recording_range *range = (loch_recording_range *)state->recording->ranges.data + event.subject;
        event.kind = LOCH_RECORDED_GIVE;
        event.value = range->bytes;
        event.stream = range->device;
        range->give_event = (uint32_t)state->recording->events.count;
    } else if (choice == 1) {
        event.kind = LOCH_RECORDED_CALL;
        event.subject = event.stream & 1;
        event.stream = event.stream >> 1 & 1;
    } else {
        event.kind = (uint16_t)(LOCH_RECORDED_SLEEP + test_random_below(state->random, 3));
        event.subject = (uint32_t)test_random_below(state->random, 3);
        event.stream = event.kind == LOCH_RECORDED_FAIL ? LOCH_E_LIMIT : 0;
    }
    event.stack = LOCH_RECORDING_NONE;
    assert_int_not_equal(lochi_insight_recording_add_event(state->recording, &event), LOCH_RECORDING_NONE);
}

static inline void recordings_step(recordings_state *state, uint16_t thread)
{
    test_random *random = state->random;
    if (!state->shape->has_ties || !test_random_below(random, 3))
        state->time_ns += test_random_next(random) >> (34 + test_random_below(random, 28));
    loch_recording_event event = {.time_ns = state->time_ns,
                                  .value = test_random_next(random) >> 30,
                                  .stack = test_random_below(random, 4) ? LOCH_RECORDING_NONE
                                                                        : (uint32_t)test_random_below(random, 3),
                                  .stream = (uint16_t)test_random_below(random, 5),
                                  .thread = thread};
    const size_t choice = test_random_below(random, 20), at = test_random_below(random, state->live_count + 1);
    if (choice < 3) {
        recordings_other(state, event, choice);
    } else if (state->live_count < 512 && (choice < 11 || at == state->live_count)) {
        recordings_alloc(state, event);
    } else if (at < state->live_count && choice >= 11 && choice < 14) {
        const loch_recording_block *block = loch_recording_get_blocks(state->recording) + state->live[at];
        event.subject = state->live[at];
        event.kind = (uint16_t)(LOCH_RECORDED_USE + (choice - 11));
        if (choice != 11) event.stream = block->stream;
        if (choice == 11) event.value = 0;
        if (choice == 13) event.value = recordings_address(state);
        assert_int_not_equal(lochi_insight_recording_add_event(state->recording, &event), LOCH_RECORDING_NONE);
    } else if (at < state->live_count) {
        event.flags = (uint16_t)test_random_below(random, 2);
        if (!event.flags && test_random_below(random, 2))
            event.stream = loch_recording_get_blocks(state->recording)[state->live[at]].stream;
        else
            event.flags = 1;
        assert_int_not_equal(lochi_insight_recording_add_free(state->recording, state->live[at], &event),
                             LOCH_RECORDING_NONE);
        state->live[at] = state->live[--state->live_count];
    }
}

/* Makes a recording of random events of every kind. */
static inline loch_recording *recordings_random(test_random *random, const recordings_shape *shape)
{
    static const char *const tags[] = {"weights", "cache", "activations of a step"};
    static const char *const allocators[] = {"pool", "arena", "pool"};
    recordings_state state = {.random = random, .shape = shape, .next_address = 4096};
    CHECK_OK(lochi_insight_recording_create("file", LOCH_RECORDING_BINARY, &state.recording));
    state.recording->info.has_addresses = shape->has_addresses;
    for (size_t i = 0; i < 3; i++) {
        lochi_insight_recording_add_name(state.recording, LOCH_RECORDING_TAG, tags[i], strlen(tags[i]));
        lochi_insight_recording_append_name(state.recording, LOCH_RECORDING_ALLOCATOR, allocators[i],
                                            strlen(allocators[i]));
    }
    for (size_t i = 0; i < 2; i++) {
        lochi_insight_recording_add_name(state.recording, LOCH_RECORDING_DEVICE, i ? "sim:1" : "sim:0", 5);
        lochi_insight_recording_add_name(state.recording, LOCH_RECORDING_CALL, i ? "map" : "free", i ? 3 : 4);
    }
    for (size_t i = 0; i < shape->threads; i++) {
        char name[32];
        snprintf(name, sizeof name, "worker-%zu", i);
        lochi_insight_recording_add_name(state.recording, LOCH_RECORDING_THREAD, name, strlen(name));
    }
    const uint32_t frames[] = {lochi_insight_recording_add_text(state.recording, "serve at main.c:10", 18),
                               lochi_insight_recording_add_text(state.recording, "main", 4)};
    for (uint32_t i = 0; i < 3; i++) /* two frames, one frame, none */
        lochi_insight_recording_add_stack(state.recording, frames, 2 - i);
    for (size_t i = 0; i < shape->events; i++)
        recordings_step(&state, (uint16_t)test_random_below(random, shape->threads));
    CHECK_OK(lochi_insight_recording_finish(state.recording));
    return state.recording;
}

static inline void recordings_check_stack(const loch_recording *a, const loch_recording *b, uint32_t x, uint32_t y)
{
    size_t x_count, y_count;
    const char *const *x_frames = loch_recording_get_stack(a, x, &x_count);
    const char *const *y_frames = loch_recording_get_stack(b, y, &y_count);
    assert_int_equal(x == LOCH_RECORDING_NONE, y == LOCH_RECORDING_NONE);
    assert_int_equal(x_count, y_count);
    for (size_t i = 0; i < x_count; i++)
        assert_string_equal(x_frames[i], y_frames[i]);
}

static inline void recordings_check_name(const loch_recording *a, const loch_recording *b, loch_recording_noun noun,
                                         size_t x, size_t y)
{
    assert_string_equal(loch_recording_get_name(a, noun, x), loch_recording_get_name(b, noun, y));
}

/* Fails unless two recordings have equal events, blocks, ranges and names. */
static inline void recordings_check_equal(const loch_recording *a, const loch_recording *b)
{
    assert_true(a && b);
    if (!a || !b) return;
    assert_int_equal(a->events.count, b->events.count);
    assert_int_equal(a->blocks.count, b->blocks.count);
    assert_int_equal(a->ranges.count, b->ranges.count);
    for (size_t i = 0; i < a->events.count; i++) {
        const loch_recording_event *x = loch_recording_get_events(a) + i, *y = loch_recording_get_events(b) + i;
        assert_int_equal(x->kind, y->kind);
        assert_int_equal(x->time_ns, y->time_ns);
        assert_int_equal(x->value, y->value);
        assert_int_equal(x->subject, y->subject);
        assert_int_equal(x->stream, y->stream);
        assert_int_equal(x->flags, y->flags);
        recordings_check_name(a, b, LOCH_RECORDING_THREAD, x->thread, y->thread);
        recordings_check_stack(a, b, x->stack, y->stack);
    }
    for (size_t i = 0; i < a->blocks.count; i++) {
        const loch_recording_block *x = loch_recording_get_blocks(a) + i, *y = loch_recording_get_blocks(b) + i;
        assert_int_equal(x->id, y->id);
        assert_int_equal(x->bytes, y->bytes);
        assert_int_equal(x->address, y->address);
        assert_int_equal(x->alloc_event, y->alloc_event);
        assert_int_equal(x->free_event, y->free_event);
        assert_int_equal(x->stream, y->stream);
        assert_int_equal(x->allocator, y->allocator);
        assert_int_equal(x->alignment, y->alignment);
        assert_int_equal(x->is_present, y->is_present);
        assert_int_equal(x->max_bytes, y->max_bytes);
        recordings_check_name(a, b, LOCH_RECORDING_TAG, x->tag, y->tag);
        recordings_check_name(a, b, LOCH_RECORDING_ALLOCATOR, x->allocator, y->allocator);
    }
    if (a->ranges.count)
        assert_memory_equal(a->ranges.data, b->ranges.data, a->ranges.count * sizeof(loch_recording_range));
    assert_int_equal(a->info.peak_requested, b->info.peak_requested);
    assert_int_equal(a->info.peak_event, b->info.peak_event);
}

#endif

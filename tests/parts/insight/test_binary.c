/* SPDX-License-Identifier: MIT */
/* Files of the recorder: every recording comes back as it was; files of a program that died, of a ring and of several
 * threads give what they hold; no file can harm the reader. */
#include "binary.h"
#include "recordings.h"

/* --- files made by hand --- */

typedef struct file_maker {
    uint8_t data[4096 + 8 * 4096];
    size_t chunks, at; /* chunks so far; place of the next record */
} file_maker;

static void put(uint8_t *at, uint64_t value, size_t bytes)
{
    for (size_t i = 0; i < bytes; i++)
        at[i] = (uint8_t)(value >> (8 * i));
}

static void file_begin(file_maker *file, unsigned flags)
{
    memset(file, 0, sizeof *file);
    memcpy(file->data, "lochrec1", 8);
    put(file->data + 8, 1, 4);
    put(file->data + 12, 4096, 4);
    put(file->data + 68, flags, 4);
    file->at = 4096;
}

static void file_chunk(file_maker *file, unsigned kind, unsigned thread, uint64_t sequence, uint64_t ticks)
{
    uint8_t *at = file->data + 4096 + 4096 * file->chunks++;
    put(at, 0x4b48434c, 4);
    put(at + 4, kind, 4);
    put(at + 8, sequence, 8);
    put(at + 16, ticks, 8);
    put(at + 24, thread, 4);
    file->at = (size_t)(at - file->data) + 64;
}

/* Adds a record of a block at an absolute address, with a time of one byte. */
static void file_block(file_maker *file, unsigned kind, unsigned step, uint64_t address, uint32_t bytes)
{
    const bool is_long = kind == BINARY_ALLOC || kind == BINARY_RESIZE || kind == BINARY_USE;
    uint8_t *at = file->data + file->at, *start = at;
    *at++ = (uint8_t)(kind | 3 << 5 | (is_long ? 128 : 0));
    if (is_long) *at++ = kind == BINARY_USE ? 8 : 2;
    *at++ = (uint8_t)step;
    put(at, address, 8);
    at += 8;
    if (is_long) put(at, bytes, kind == BINARY_USE ? 2 : 4);
    if (is_long) at += kind == BINARY_USE ? 2 : 4;
    if (kind == BINARY_MOVE) {
        put(at, bytes, 8);
        at += 8;
    }
    file->at += (size_t)(at - start);
}

/* Adds an other record of small numbers. */
static void file_other(file_maker *file, unsigned sub_kind, unsigned step, const uint8_t *numbers, size_t count)
{
    uint8_t *at = file->data + file->at;
    at[0] = BINARY_OTHER;
    at[1] = (uint8_t)sub_kind;
    at[2] = (uint8_t)count;
    at[3] = (uint8_t)step;
    memcpy(at + 4, numbers, count);
    file->at += 4 + count;
}

static void file_name(file_maker *file, unsigned type, unsigned number, const char *contents, size_t bytes)
{
    uint8_t *at = file->data + file->at;
    at[0] = (uint8_t)type;
    at[1] = (uint8_t)number;
    at[2] = (uint8_t)bytes;
    memcpy(at + 3, contents, bytes);
    file->at += 3 + bytes;
}

static loch_recording *file_read(const file_maker *file)
{
    loch_recording *recording;
    CHECK_OK(recordings_read(lochi_insight_read_binary, file->data, 4096 + 4096 * file->chunks, &recording));
    return recording;
}

static void check_event(const loch_recording *recording, size_t at, loch_recording_kind kind, uint64_t time_ns,
                        uint64_t value)
{
    const loch_recording_event *event = loch_recording_get_events(recording) + at;
    assert_true(at < recording->events.count);
    assert_int_equal(event->kind, kind);
    assert_int_equal(event->time_ns, time_ns);
    assert_int_equal(event->value, value);
}

/* --- the order of threads --- */

/* The block at one address belongs to two threads in turn. At equal ticks the free comes first. */
static void test_threads_are_merged_by_ticks(void **state)
{
    (void)state;
    file_maker file;
    file_begin(&file, BINARY_HAS_ADDRESSES | BINARY_WAS_ENDED);
    file_chunk(&file, BINARY_EVENTS, 1, 0, 100);
    file_block(&file, BINARY_ALLOC, 50, 0x1000, 20); /* at 150 */
    file_chunk(&file, BINARY_EVENTS, 2, 1, 100);
    file_block(&file, BINARY_ALLOC, 0, 0x1000, 10); /* at 100 */
    file_chunk(&file, BINARY_EVENTS, 2, 3, 150);
    file_block(&file, BINARY_FREE, 0, 0x1000, 0); /* at 150 */
    loch_recording *recording = file_read(&file);
    assert_int_equal(recording->events.count, 3);
    check_event(recording, 0, LOCH_RECORDED_ALLOC, 100, 10);
    check_event(recording, 1, LOCH_RECORDED_FREE, 150, 10);
    check_event(recording, 2, LOCH_RECORDED_ALLOC, 150, 20);
    assert_int_equal(recording->info.unknown, 0);
    assert_int_equal(recording->info.was_ended, 1);
    assert_int_equal(recording->info.threads, 2);
    assert_string_equal(loch_recording_get_name(recording, LOCH_RECORDING_THREAD, 1), "thread 2");
    loch_recording_destroy(recording);
}

/* Chunks of one thread stand in any order in a ring. */
static void test_a_ring_starts_in_the_middle(void **state)
{
    (void)state;
    file_maker file;
    file_begin(&file, BINARY_HAS_ADDRESSES | BINARY_IS_RING);
    put(file.data + 56, 9, 8);
    file_chunk(&file, BINARY_EVENTS, 0, 8, 300);
    file_block(&file, BINARY_FREE, 1, 0x2000, 0);
    file_chunk(&file, BINARY_EVENTS, 0, 7, 200);
    file_block(&file, BINARY_FREE, 1, 0x1000, 0); /* of an allocation that was overwritten */
    file_block(&file, BINARY_USE, 1, 0x1000, 3);
    file_block(&file, BINARY_ALLOC, 1, 0x2000, 5);
    loch_recording *recording = file_read(&file);
    assert_int_equal(recording->events.count, 2);
    check_event(recording, 0, LOCH_RECORDED_ALLOC, 203, 5);
    check_event(recording, 1, LOCH_RECORDED_FREE, 301, 5);
    assert_int_equal(recording->info.unknown, 2);
    assert_int_equal(recording->info.lost, 9);
    assert_int_equal(recording->info.was_ended, 0);
    loch_recording_destroy(recording);
}

static void test_ticks_become_nanoseconds(void **state)
{
    (void)state;
    file_maker file;
    file_begin(&file, BINARY_HAS_ADDRESSES);
    put(file.data + 16, 1000, 8); /* ticks0 */
    put(file.data + 24, 7, 8);    /* ns0 */
    put(file.data + 32, 4000, 8); /* ticks1 */
    put(file.data + 40, 1007, 8); /* ns1: three ticks take one nanosecond */
    file_chunk(&file, BINARY_EVENTS, 0, 0, 1060);
    file_block(&file, BINARY_ALLOC, 30, 0x1000, 1);
    loch_recording *recording = file_read(&file);
    check_event(recording, 0, LOCH_RECORDED_ALLOC, 37, 1);
    loch_recording_destroy(recording);
}

/* --- records that are not of one block's life --- */

static void test_blocks_before_the_start_are_present(void **state)
{
    (void)state;
    file_maker file;
    file_begin(&file, BINARY_HAS_ADDRESSES);
    file_chunk(&file, BINARY_EVENTS, 0, 0, 10);
    file_block(&file, BINARY_ALLOC, 0, 0x30, 3);                               /* known before its record */
    file_block(&file, BINARY_FREE, 1, 0x40, 0);                                /* freed before its record */
    file_other(&file, BINARY_PRESENT, 1, (uint8_t[]){0, 0x20, 2, 0, 1, 0}, 6); /* lives on */
    file_other(&file, BINARY_PRESENT, 0, (uint8_t[]){0, 0x30, 3, 0, 0, 0}, 6);
    file_other(&file, BINARY_PRESENT, 0, (uint8_t[]){0, 0x40, 4, 0, 0, 0}, 6);
    file_block(&file, BINARY_FREE, 1, 0x30, 0);
    loch_recording *recording = file_read(&file);
    const loch_recording_block *blocks = loch_recording_get_blocks(recording);
    assert_int_equal(recording->blocks.count, 3);
    assert_int_equal(blocks[0].bytes, 2);
    assert_int_equal(blocks[0].is_present, 1);
    assert_int_equal(blocks[0].stream, 1);
    assert_int_equal(blocks[0].free_event, LOCH_RECORDING_NONE);
    assert_int_equal(blocks[1].bytes, 4);
    assert_int_equal(blocks[1].is_present, 1);
    assert_int_equal(blocks[2].bytes, 3);
    assert_int_equal(blocks[2].is_present, 0);
    assert_int_equal(blocks[2].id, 2);
    assert_int_equal(recording->events.count, 5);
    check_event(recording, 0, LOCH_RECORDED_ALLOC, 0, 2);
    check_event(recording, 1, LOCH_RECORDED_ALLOC, 0, 4);
    check_event(recording, 2, LOCH_RECORDED_ALLOC, 10, 3);
    check_event(recording, 3, LOCH_RECORDED_FREE, 11, 4);
    check_event(recording, 4, LOCH_RECORDED_FREE, 13, 3);
    assert_int_equal(recording->info.live_bytes, 2);
    loch_recording_destroy(recording);
}

static void test_a_free_can_be_undone(void **state)
{
    (void)state;
    file_maker file;
    file_begin(&file, BINARY_HAS_ADDRESSES);
    file_chunk(&file, BINARY_EVENTS, 0, 0, 0);
    file_block(&file, BINARY_ALLOC, 1, 0x10, 6);
    file_block(&file, BINARY_FREE, 1, 0x10, 0);
    file_other(&file, BINARY_UNDO, 1, (uint8_t[]){0, 0x10}, 2);
    file_other(&file, BINARY_UNDO, 1, (uint8_t[]){0, 0x10}, 2); /* of a live block: nothing to undo */
    file_block(&file, BINARY_RESIZE, 1, 0x10, 8);
    file_block(&file, BINARY_MOVE, 1, 0x10, 0x70);
    file_block(&file, BINARY_FREE, 1, 0x10, 0); /* nothing is there now */
    file_block(&file, BINARY_FREE, 1, 0x70, 0);
    loch_recording *recording = file_read(&file);
    assert_int_equal(recording->events.count, 4);
    check_event(recording, 0, LOCH_RECORDED_ALLOC, 1, 6);
    check_event(recording, 1, LOCH_RECORDED_RESIZE, 5, 8);
    check_event(recording, 2, LOCH_RECORDED_MOVE, 6, 0x70);
    check_event(recording, 3, LOCH_RECORDED_FREE, 8, 8);
    assert_int_equal(loch_recording_get_blocks(recording)[0].free_event, 3);
    assert_int_equal(recording->info.unknown, 2);
    loch_recording_destroy(recording);
}

/* Blocks of two allocators may have one address; a second block of one allocator ends the first. */
static void test_addresses_belong_to_allocators(void **state)
{
    (void)state;
    file_maker file;
    file_begin(&file, BINARY_HAS_ADDRESSES);
    file_chunk(&file, BINARY_NAMES, 0, 0, 0);
    file_name(&file, BINARY_NAME_ALLOCATOR, 1, "\0\0second\0pool", 13);
    file_name(&file, BINARY_NAME_ALLOCATOR, 0, "\0\0first\0pool", 12);
    file_chunk(&file, BINARY_EVENTS, 0, 1, 0);
    file_block(&file, BINARY_ALLOC, 1, 0x10, 6);
    const uint8_t other[] = {
        BINARY_ALLOC | 3 << 5 | 128, BINARY_ALLOCATOR_FOLLOWS, 1, 0x10, 0, 0, 0, 0, 0, 0, 0, 9, 1, 0};
    memcpy(file.data + file.at, other, sizeof other);
    file.at += sizeof other;
    file_block(&file, BINARY_ALLOC, 1, 0x10, 7); /* of the second allocator */
    loch_recording *recording = file_read(&file);
    const loch_recording_block *blocks = loch_recording_get_blocks(recording);
    assert_int_equal(recording->blocks.count, 3);
    assert_int_equal(blocks[0].free_event, LOCH_RECORDING_NONE);
    assert_string_equal(loch_recording_get_name(recording, LOCH_RECORDING_ALLOCATOR, blocks[0].allocator), "first");
    assert_int_equal(blocks[1].free_event, 2);
    assert_string_equal(loch_recording_get_name(recording, LOCH_RECORDING_ALLOCATOR, blocks[1].allocator), "second");
    assert_int_equal(blocks[2].bytes, 7);
    assert_int_equal(recording->info.unknown, 1);
    loch_recording_destroy(recording);
}

static void test_ranges_calls_and_stacks(void **state)
{
    (void)state;
    file_maker file;
    uint8_t stack[32] = {0}, module[25 + 2 + 10] = {0};
    uint8_t own[25 + 27] = {0};
    put(own, 0x7000, 8);
    put(own + 8, 0x8000, 8);
    memcpy(own + 25, "/lib/libloch_tensor.so.0.3", 26);
    put(stack, 0x7fff, 8); /* the innermost frames are in libloch_tensor, and left out */
    put(stack + 8, 0x7000, 8);
    put(stack + 16, 0x5010, 8);
    put(stack + 24, 0x9999, 8);
    put(module, 0x5000, 8);
    put(module + 8, 0x6000, 8);
    put(module + 16, (uint64_t)-0x4000, 8);
    module[24] = 2;
    memcpy(module + 27, "/lib/a.so", 10);
    file_begin(&file, BINARY_HAS_ADDRESSES);
    file_chunk(&file, BINARY_EVENTS, 0, 0, 0);
    file_other(&file, BINARY_TAKEN, 1, (uint8_t[]){0, 0x40, 64, 2}, 4);
    file_other(&file, BINARY_CALL, 1, (uint8_t[]){0, 3, 99}, 3);
    file_other(&file, BINARY_GOING, 1, (uint8_t[]){0, 0x40, 64}, 3);
    file_other(&file, BINARY_GOING, 1, (uint8_t[]){0, 0x41, 64}, 3);
    file_other(&file, BINARY_SLEEP, 1, (uint8_t[]){0, 5}, 2);
    file_other(&file, BINARY_FAILED, 1, (uint8_t[]){0, 7, LOCH_E_LIMIT}, 3);
    file_other(&file, 200, 1, (uint8_t[]){255, 255}, 2); /* unknown: skipped */
    file_other(&file, BINARY_LOST, 1, (uint8_t[]){12}, 1);
    file_other(&file, BINARY_PRESENT, 1, (uint8_t[]){0, 0x20, 2, 4, 0, 3}, 6);
    file_chunk(&file, BINARY_NAMES, 0, 1, 0);
    file_name(&file, BINARY_NAME_STACK, 2, (const char *)stack, sizeof stack);
    file_name(&file, BINARY_NAME_MODULE, 0, (const char *)module, sizeof module - 1);
    file_name(&file, BINARY_NAME_MODULE, 1, (const char *)own, sizeof own - 1);
    file_name(&file, BINARY_NAME_CALL, 3, "map", 3);
    file_name(&file, BINARY_NAME_DEVICE, 0, "sim:0", 5);
    file_name(&file, BINARY_NAME_TAG, 4, "cache", 5);
    loch_recording *recording = file_read(&file);
    size_t count;
    const char *const *frames =
        loch_recording_get_stack(recording, loch_recording_get_events(recording)[0].stack, &count);
    assert_int_equal(count, 2);
    assert_string_equal(frames[0], "a.so+0x100f");
    assert_string_equal(frames[1], "0x9999");
    check_event(recording, 1, LOCH_RECORDED_TAKE, 1, 64);
    check_event(recording, 2, LOCH_RECORDED_CALL, 2, 99);
    check_event(recording, 3, LOCH_RECORDED_GIVE, 3, 64);
    check_event(recording, 4, LOCH_RECORDED_SLEEP, 5, 5);
    check_event(recording, 5, LOCH_RECORDED_FAIL, 6, 7);
    assert_int_equal(recording->events.count, 6);
    assert_int_equal(loch_recording_get_events(recording)[5].stream, LOCH_E_LIMIT);
    assert_string_equal(loch_recording_get_name(recording, LOCH_RECORDING_CALL, 0), "map");
    assert_string_equal(loch_recording_get_name(recording, LOCH_RECORDING_TAG, 1), "cache");
    assert_int_equal(loch_recording_get_blocks(recording)[0].tag, 1);
    assert_int_equal(loch_recording_get_ranges(recording)[0].give_event, 3);
    assert_int_equal(loch_recording_get_ranges(recording)[0].kind, 2);
    assert_int_equal(recording->info.peak_reserved, 64);
    assert_int_equal(recording->info.lost, 12);
    assert_int_equal(recording->info.unknown, 1);
    loch_recording_destroy(recording);
}

/* Memory that is mapped at two addresses is reserved once: until the last mapping goes. */
static void test_memory_that_is_mapped_twice_counts_once(void **state)
{
    (void)state;
    static const uint64_t values[] = {64, 0, 64, 0, 64, 64};
    file_maker file;
    file_begin(&file, BINARY_HAS_ADDRESSES);
    file_chunk(&file, BINARY_EVENTS, 0, 0, 0);
    file_other(&file, BINARY_TAKEN, 1, (uint8_t[]){0, 0x10, 64, 0, 9}, 5);
    file_other(&file, BINARY_TAKEN, 1, (uint8_t[]){0, 0x20, 64, 0, 9}, 5); /* a second mapping */
    file_other(&file, BINARY_TAKEN, 1, (uint8_t[]){0, 0x30, 64, 0, 8}, 5); /* other memory */
    file_other(&file, BINARY_GOING, 1, (uint8_t[]){0, 0x10, 64}, 3);
    file_other(&file, BINARY_GOING, 1, (uint8_t[]){0, 0x20, 64}, 3);
    file_other(&file, BINARY_TAKEN, 1, (uint8_t[]){0, 0x10, 64, 0, 9}, 5); /* the number serves again */
    file_chunk(&file, BINARY_NAMES, 0, 1, 0);
    file_name(&file, BINARY_NAME_DEVICE, 0, "sim:0", 5);
    loch_recording *recording = file_read(&file), *again;
    assert_int_equal(recording->info.events, 6);
    assert_int_equal(recording->info.peak_reserved, 128);
    for (size_t i = 0; i < 6; i++)
        assert_int_equal(loch_recording_get_events(recording)[i].value, values[i]);
    size_t bytes;
    char *data = recordings_write(lochi_insight_write_binary, recording, &bytes);
    CHECK_OK(recordings_read(lochi_insight_read_binary, data, bytes, &again));
    for (size_t i = 0; i < 6; i++)
        assert_int_equal(loch_recording_get_events(again)[i].value, values[i]);
    assert_int_equal(loch_recording_get_ranges(again)[1].bytes, 64);
    free(data);
    loch_recording_destroy(again);
    loch_recording_destroy(recording);
}

/* Committed memory goes in parts, or in one piece that was taken in several. */
static void test_ranges_go_in_other_pieces(void **state)
{
    (void)state;
    file_maker file;
    file_begin(&file, BINARY_HAS_ADDRESSES);
    file_chunk(&file, BINARY_EVENTS, 0, 0, 0);
    file_other(&file, BINARY_TAKEN, 1, (uint8_t[]){0, 10, 30, 0}, 4);
    file_other(&file, BINARY_TAKEN, 1, (uint8_t[]){0, 40, 10, 0}, 4);
    file_other(&file, BINARY_TAKEN, 0, (uint8_t[]){1, 20, 10, 0}, 4); /* of another device */
    file_other(&file, BINARY_GOING, 1, (uint8_t[]){0, 20, 5}, 3);     /* the middle of the first */
    file_other(&file, BINARY_GOING, 1, (uint8_t[]){0, 30, 20}, 3);    /* the end of the first and the second */
    file_other(&file, BINARY_GOING, 1, (uint8_t[]){0, 50, 20}, 3);    /* nothing is there */
    file_other(&file, BINARY_GOING, 1, (uint8_t[]){0, 10, 10}, 3);
    loch_recording *recording = file_read(&file);
    uint64_t taken = 0;
    assert_int_equal(recording->info.peak_reserved, 50);
    assert_int_equal(recording->info.unknown, 1);
    for (size_t i = 0; i < recording->ranges.count; i++) {
        const loch_recording_range *range = loch_recording_get_ranges(recording) + i;
        const loch_recording_event *events = loch_recording_get_events(recording);
        assert_int_equal(events[range->take_event].subject, i);
        assert_int_equal(events[range->take_event].value, range->bytes);
        if (range->give_event == LOCH_RECORDING_NONE)
            taken += range->bytes;
        else
            assert_int_equal(events[range->give_event].value, range->bytes);
    }
    assert_int_equal(taken, 15); /* 25 to 30, and the other device's */
    loch_recording_destroy(recording);
}

/* --- what is broken --- */

static void check_broken(const file_maker *file, size_t bytes, const char *sentence)
{
    loch_recording *recording;
    CHECK_FAILS(recordings_read(lochi_insight_read_binary, file->data, bytes, &recording), INVALID);
    assert_string_equal(loch_error_get()->sentence, sentence);
}

static void test_wrong_bytes_are_named(void **state)
{
    (void)state;
    file_maker file;
    file_begin(&file, 0);
    check_broken(&file, 4095, "file: byte 0: a recording starts with a header of 4096 bytes");
    put(file.data + 8, 2, 4);
    check_broken(&file, 4096, "file: byte 8: this version of recordings is not known; version 1 is");
    file_begin(&file, 0);
    put(file.data + 12, 5000, 4);
    check_broken(&file, 4096, "file: byte 12: a chunk has 4 KiB to 16 MiB, in steps of 4 KiB");
    file_begin(&file, 0);
    file_chunk(&file, BINARY_EVENTS, 0, 0, 0);
    file.data[file.at] = 7;
    check_broken(&file, 8192, "file: byte 4160: there is no kind 7 of records");
    file_begin(&file, 0);
    file_chunk(&file, BINARY_EVENTS, 0, 0, 0);
    while (file.at < 8192)
        file_other(&file, 99, 0, (uint8_t[]){1, 1, 1, 1}, 4); /* the last one goes on beyond the end */
    file_chunk(&file, BINARY_EVENTS, 0, 1, 0);
    if ((8192 - 4160) % 8) check_broken(&file, 8192 + 4096, "file: byte 8188: the record does not fit into its chunk");
    file_begin(&file, 0);
    file_chunk(&file, BINARY_EVENTS, 0, 0, 0);
    file_block(&file, BINARY_ALLOC, 0, 5, 1);
    file_block(&file, BINARY_ALLOC, 0, (uint64_t)-1, 1); /* number 5 again */
    check_broken(&file, 8192, "file: byte 4175: the block was allocated before");
}

/* A file that was cut at any byte, or has any byte changed, is read or refused, and harms nothing. */
static void test_cut_and_changed_files_are_survived(void **state)
{
    (void)state;
    test_random random = {test_seed(17)};
    const recordings_shape shape = {300, 3, true, true};
    loch_recording *recording = recordings_random(&random, &shape), *cut;
    size_t bytes, events = 0;
    char *data = recordings_write(lochi_insight_write_binary, recording, &bytes);
    for (size_t length = 0; length <= bytes; length++) {
        if (length && length < bytes && !data[length - 1] && length % 64) continue; /* few of the many zeros */
        char *copy = malloc(length + 1); /* so that a sanitizer sees reads beyond the end */
        memcpy(copy, data, length);
        if (recordings_read(lochi_insight_read_binary, copy, length, &cut) == LOCH_OK) {
            assert_true(length >= 4096);
            assert_true(cut->events.count <= recording->events.count + cut->info.unknown);
            events = cut->events.count;
        }
        loch_recording_destroy(cut);
        free(copy);
    }
    assert_int_equal(events, recording->events.count);
    for (size_t i = 0; i < 4000; i++) {
        const size_t at = test_random_below(&random, 8) ? 4096 + test_random_below(&random, bytes - 4096)
                                                        : test_random_below(&random, 80);
        const char old = data[at];
        data[at] = (char)test_random_next(&random);
        if (recordings_read(lochi_insight_read_binary, data, bytes, &cut) == LOCH_OK) loch_recording_destroy(cut);
        data[at] = old;
    }
    free(data);
    loch_recording_destroy(recording);
}

/* --- round trips --- */

static void test_random_recordings_come_back(void **state)
{
    (void)state;
    test_random random = {test_seed(18)};
    for (size_t i = 0; i < 60; i++) {
        const recordings_shape shape = {i == 7 ? 0 : i == 8 ? 70000 : 50 + 20 * i, 1 + i % 4, i % 2, i % 3 == 0};
        loch_recording *recording = recordings_random(&random, &shape), *again;
        size_t bytes;
        char *data = recordings_write(lochi_insight_write_binary, recording, &bytes);
        CHECK_OK(recordings_read(lochi_insight_read_binary, data, bytes, &again));
        recordings_check_equal(recording, again);
        assert_int_equal(again ? again->info.unknown : 1, 0);
        loch_recording_destroy(again);
        loch_recording_destroy(recording);
        free(data);
    }
}

/* A trace keeps ids, streams and the form of its frees through the recorder's format. */
static void test_a_trace_comes_back_through_the_format(void **state)
{
    (void)state;
    const char *text = "a 7 4096 0 1000 align=256 tag=weights\n"
                       "a 3 0 5 2000\n"
                       "a 4 17 5 2000 tag=cache\n"
                       "f 7 2000 0\n"
                       "u 4 9 2001\n"
                       "f 3 9000\n"
                       "a 18446744073709551615 100 1 9000\n"
                       "f 4 18446744073709551 2\n"
                       "f 18446744073709551615 18446744073709551\n";
    loch_recording *recording = recordings_from_text(text), *again;
    size_t bytes;
    char *data = recordings_write(lochi_insight_write_binary, recording, &bytes);
    CHECK_OK(recordings_read(lochi_insight_read_binary, data, bytes, &again));
    free(data);
    data = recordings_write(lochi_insight_write_text, again, &bytes);
    assert_string_equal(data, text);
    free(data);
    loch_recording_destroy(again);
    loch_recording_destroy(recording);
}

/* The blocks of one allocator can be chosen. */
static void test_one_allocator_is_kept(void **state)
{
    (void)state;
    test_random random = {test_seed(19)};
    const recordings_shape shape = {500, 2, true, false};
    loch_recording *recording = recordings_random(&random, &shape);
    size_t blocks = 0, events = 0;
    for (size_t i = 0; i < recording->blocks.count; i++)
        blocks += loch_recording_get_blocks(recording)[i].allocator == 1;
    CHECK_FAILS(lochi_insight_recording_keep_allocator(recording, "heap"), NOT_FOUND);
    CHECK_OK(lochi_insight_recording_keep_allocator(recording, "arena"));
    assert_int_equal(recording->blocks.count, blocks);
    for (size_t i = 0; i < recording->events.count; i++) {
        const loch_recording_event *event = loch_recording_get_events(recording) + i;
        if (event->kind > LOCH_RECORDED_MOVE) continue;
        assert_int_equal(loch_recording_get_blocks(recording)[event->subject].allocator, 1);
        events += event->kind == LOCH_RECORDED_ALLOC;
        if (event->kind == LOCH_RECORDED_ALLOC)
            assert_int_equal(loch_recording_get_blocks(recording)[event->subject].alloc_event, i);
    }
    assert_int_equal(events, blocks);
    loch_recording_destroy(recording);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_threads_are_merged_by_ticks),
        cmocka_unit_test(test_a_ring_starts_in_the_middle),
        cmocka_unit_test(test_ticks_become_nanoseconds),
        cmocka_unit_test(test_blocks_before_the_start_are_present),
        cmocka_unit_test(test_a_free_can_be_undone),
        cmocka_unit_test(test_addresses_belong_to_allocators),
        cmocka_unit_test(test_ranges_calls_and_stacks),
        cmocka_unit_test(test_memory_that_is_mapped_twice_counts_once),
        cmocka_unit_test(test_ranges_go_in_other_pieces),
        cmocka_unit_test(test_wrong_bytes_are_named),
        cmocka_unit_test(test_cut_and_changed_files_are_survived),
        cmocka_unit_test(test_random_recordings_come_back),
        cmocka_unit_test(test_a_trace_comes_back_through_the_format),
        cmocka_unit_test(test_one_allocator_is_kept),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

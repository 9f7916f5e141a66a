/* SPDX-License-Identifier: MIT */
/* Reads a snapshot of a running program (docs/snapshot.md) as a recording of one moment: ranges and blocks are there at
 * time 0, and a failed request comes last. Members may come in any order, so the text is read four times: for names,
 * for streams, for ranges and for blocks. Unknown members are skipped. */
#include "format.h"
#include "kit/json.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define SNAPSHOT_NAME 32
#define SNAPSHOT_TEXT 4096
#define SNAPSHOT_FRAMES 128

typedef enum snapshot_pass { SNAPSHOT_NAMES, SNAPSHOT_STREAMS, SNAPSHOT_RANGES, SNAPSHOT_BLOCKS } snapshot_pass;

typedef struct snapshot_reader {
    lochi_json json;
    loch_recording *recording;
    snapshot_pass pass;
    bool has_memory; /* false: memory for the recording ran out */
    bool is_snapshot;
    uint64_t version;
    lochi_table tags;         /* tag of the program -> index of its name */
    lochi_table devices;      /* place in the list -> index of its name */
    lochi_table allocators;   /* number -> index of its name */
    lochi_table streams;      /* id -> number; default streams have 0 */
    uint32_t streams_count;   /* numbers that were given */
    uint32_t device;          /* index of the present allocator's device */
    uint32_t allocator;       /* index of the present allocator */
    uint64_t failed, failure; /* bytes and allocator of the failed request */
    uint64_t failure_stream;
    bool has_failure;
} snapshot_reader;

static bool snapshot_short(snapshot_reader *reader)
{
    reader->has_memory = false;
    return lochi_json_fail(&reader->json, "there is no memory for the recording");
}

/* Adds a name, with a number behind it if another object has the name. */
static uint32_t snapshot_add_name(snapshot_reader *reader, loch_recording_noun noun, const char *name, uint64_t number)
{
    char other[SNAPSHOT_TEXT + 32];
    const size_t before = reader->recording->names[noun].count;
    uint32_t index = lochi_insight_recording_add_name(reader->recording, noun, name, strlen(name));
    if (index < before) { /* the name is taken */
        snprintf(other, sizeof other, "%s #%llu", name, (unsigned long long)number);
        index = lochi_insight_recording_add_name(reader->recording, noun, other, strlen(other));
    }
    if (index == LOCH_RECORDING_NONE) snapshot_short(reader);
    return index;
}

/* Reads an address: text such as "0x7f00". */
static bool snapshot_read_address(lochi_json *json, uint64_t *out)
{
    char text[32], *end;
    if (!lochi_json_text(json, text, sizeof text)) return false;
    if (strncmp(text, "0x", 2) != 0 || !text[2] || strlen(text) > 18 ||
        strspn(text + 2, "0123456789abcdefABCDEF") != strlen(text + 2))
        return lochi_json_fail(json, "an address is expected: \"0x\" and at most 16 hexadecimal digits");
    *out = strtoull(text + 2, &end, 16);
    return true;
}

/* --- names --- */

static void snapshot_read_device(snapshot_reader *reader, uint32_t place)
{
    char name[SNAPSHOT_NAME], text[SNAPSHOT_TEXT] = "";
    lochi_json *json = &reader->json;
    if (!lochi_json_open(json, '{')) return;
    while (lochi_json_member(json, name, sizeof name))
        if (!strcmp(name, "name"))
            lochi_json_text(json, text, sizeof text);
        else
            lochi_json_skip(json);
    if (json->wrong) return;
    const uint32_t index = snapshot_add_name(reader, LOCH_RECORDING_DEVICE, text, place);
    if (!json->wrong && !lochi_table_set(&reader->devices, place, index)) snapshot_short(reader);
}

static void snapshot_read_tag(snapshot_reader *reader)
{
    char name[SNAPSHOT_NAME], text[SNAPSHOT_TEXT] = "";
    lochi_json *json = &reader->json;
    uint64_t tag = 0;
    if (!lochi_json_open(json, '{')) return;
    while (lochi_json_member(json, name, sizeof name))
        if (!strcmp(name, "name"))
            lochi_json_text(json, text, sizeof text);
        else if (!strcmp(name, "tag"))
            lochi_json_number(json, &tag);
        else
            lochi_json_skip(json);
    if (json->wrong) return;
    const uint32_t index = lochi_insight_recording_add_name(reader->recording, LOCH_RECORDING_TAG, text, strlen(text));
    if (index == LOCH_RECORDING_NONE || !lochi_table_set(&reader->tags, tag, index)) snapshot_short(reader);
}

static void snapshot_read_failure(snapshot_reader *reader)
{
    char name[SNAPSHOT_NAME];
    lochi_json *json = &reader->json;
    reader->has_failure = true;
    if (!lochi_json_open(json, '{')) return;
    while (lochi_json_member(json, name, sizeof name))
        if (!strcmp(name, "bytes"))
            lochi_json_number(json, &reader->failed);
        else if (!strcmp(name, "allocator"))
            lochi_json_number(json, &reader->failure);
        else if (!strcmp(name, "stream"))
            lochi_json_number(json, &reader->failure_stream);
        else
            lochi_json_skip(json);
}

/* --- streams --- */

static void snapshot_read_stream(snapshot_reader *reader)
{
    char name[SNAPSHOT_NAME];
    lochi_json *json = &reader->json;
    uint64_t stream = 0;
    bool is_default = false;
    if (!lochi_json_open(json, '{')) return;
    while (lochi_json_member(json, name, sizeof name))
        if (!strcmp(name, "stream"))
            lochi_json_number(json, &stream);
        else if (!strcmp(name, "default"))
            lochi_json_truth(json, &is_default);
        else
            lochi_json_skip(json);
    if (!json->wrong && is_default && !lochi_table_set(&reader->streams, stream, 0)) snapshot_short(reader);
}

/* Returns the number of a stream: 0 for default streams, others in order of first use. */
static uint16_t snapshot_stream(snapshot_reader *reader, uint64_t stream)
{
    if (!stream) return 0;
    uint32_t number = lochi_table_find(&reader->streams, stream);
    if (number == UINT32_MAX) {
        number = reader->streams_count < UINT16_MAX ? ++reader->streams_count : UINT16_MAX;
        if (!lochi_table_set(&reader->streams, stream, number)) snapshot_short(reader);
    }
    return (uint16_t)number;
}

/* --- ranges and blocks --- */

static void snapshot_read_handle(snapshot_reader *reader)
{
    char name[SNAPSHOT_NAME];
    lochi_json *json = &reader->json;
    loch_recording_range range = {.device = (uint16_t)reader->device,
                                  .take_event = (uint32_t)reader->recording->events.count,
                                  .give_event = LOCH_RECORDING_NONE};
    bool is_asleep = false, is_range = false;
    if (!lochi_json_open(json, '{')) return;
    while (lochi_json_member(json, name, sizeof name))
        if (!strcmp(name, "bytes"))
            lochi_json_number(json, &range.bytes);
        else if (!strcmp(name, "address"))
            snapshot_read_address(json, &range.address);
        else if (!strcmp(name, "asleep"))
            lochi_json_truth(json, &is_asleep);
        else if (!strcmp(name, "range")) /* memory of the parent */
            lochi_json_truth(json, &is_range);
        else
            lochi_json_skip(json);
    if (json->wrong || is_asleep || is_range) return;
    const uint32_t index = lochi_insight_recording_add_range(reader->recording, &range);
    const loch_recording_event event = {.kind = LOCH_RECORDED_TAKE,
                                        .value = range.bytes,
                                        .subject = index,
                                        .stream = (uint16_t)reader->device,
                                        .stack = LOCH_RECORDING_NONE};
    if (index == LOCH_RECORDING_NONE ||
        lochi_insight_recording_add_event(reader->recording, &event) == LOCH_RECORDING_NONE)
        snapshot_short(reader);
}

static void snapshot_read_blocks(snapshot_reader *reader);

/* What a snapshot says of one block. */
typedef struct snapshot_block {
    uint64_t address, bytes, stream, tag;
    uint32_t stack; /* index of its call stack */
    bool is_range;  /* the memory of a child pool, whose blocks are listed with the child */
} snapshot_block;

static void snapshot_add_block(snapshot_reader *reader, const snapshot_block *read)
{
    const uint32_t tag = read->tag ? lochi_table_find(&reader->tags, read->tag) : 0;
    const uint16_t stream = snapshot_stream(reader, read->stream);
    if (tag == UINT32_MAX) {
        lochi_json_fail(&reader->json, "a block has a tag that the list of tags lacks");
        return;
    }
    const loch_recording_block block = {.id = reader->recording->blocks.count + 1,
                                        .bytes = read->bytes,
                                        .address = read->address,
                                        .tag = tag,
                                        .allocator = (uint16_t)reader->allocator,
                                        .stream = stream,
                                        .is_present = 1};
    const loch_recording_event event = {.value = read->bytes, .stream = stream, .stack = read->stack};
    if (lochi_insight_recording_add_alloc(reader->recording, &block, &event) == LOCH_RECORDING_NONE)
        snapshot_short(reader);
}

/* Reads a list of frames. Returns the index of the call stack. */
static uint32_t snapshot_read_stack(snapshot_reader *reader)
{
    char text[SNAPSHOT_TEXT];
    uint32_t frames[SNAPSHOT_FRAMES], count = 0;
    lochi_json *json = &reader->json;
    if (!lochi_json_open(json, '[')) return LOCH_RECORDING_NONE;
    while (lochi_json_item(json)) {
        if (!lochi_json_text(json, text, sizeof text)) break;
        if (count == SNAPSHOT_FRAMES) continue; /* the outermost frames are left out */
        frames[count] = lochi_insight_recording_add_text(reader->recording, text, strlen(text));
        if (frames[count++] == UINT32_MAX) snapshot_short(reader);
    }
    if (json->wrong || !count) return LOCH_RECORDING_NONE;
    const uint32_t stack = lochi_insight_recording_add_stack(reader->recording, frames, count);
    if (stack == UINT32_MAX) snapshot_short(reader);
    return stack;
}

/* NOLINTNEXTLINE(misc-no-recursion): the reader of JSON limits the depth */
static void snapshot_read_block(snapshot_reader *reader)
{
    char name[SNAPSHOT_NAME], state[SNAPSHOT_NAME] = "";
    lochi_json *json = &reader->json;
    snapshot_block read = {.stack = LOCH_RECORDING_NONE};
    if (!lochi_json_open(json, '{')) return;
    while (lochi_json_member(json, name, sizeof name))
        if (!strcmp(name, "address"))
            snapshot_read_address(json, &read.address);
        else if (!strcmp(name, "requested_bytes"))
            lochi_json_number(json, &read.bytes);
        else if (!strcmp(name, "stream"))
            lochi_json_number(json, &read.stream);
        else if (!strcmp(name, "tag"))
            lochi_json_number(json, &read.tag);
        else if (!strcmp(name, "state"))
            lochi_json_text(json, state, sizeof state);
        else if (!strcmp(name, "range"))
            lochi_json_truth(json, &read.is_range);
        else if (!strcmp(name, "stack"))
            read.stack = snapshot_read_stack(reader);
        else if (!strcmp(name, "blocks"))
            snapshot_read_blocks(reader);
        else
            lochi_json_skip(json);
    if (json->wrong || read.is_range) return;
    if (!strcmp(state, "used") || !strcmp(state, "growable")) snapshot_add_block(reader, &read);
}

/* NOLINTNEXTLINE(misc-no-recursion): the reader of JSON limits the depth */
static void snapshot_read_blocks(snapshot_reader *reader)
{
    if (!lochi_json_open(&reader->json, '[')) return;
    while (lochi_json_item(&reader->json))
        snapshot_read_block(reader);
}

/* --- allocators --- */

/* Reads one list of an allocator if the present pass is about it; skips it otherwise. */
static void snapshot_read_list(snapshot_reader *reader, snapshot_pass pass, void (*read)(snapshot_reader *))
{
    if (reader->pass != pass) {
        lochi_json_skip(&reader->json);
        return;
    }
    if (!lochi_json_open(&reader->json, '[')) return;
    while (lochi_json_item(&reader->json))
        read(reader);
}

/* Reads name, number and device of an allocator, wherever they are in it. */
static void snapshot_read_header(snapshot_reader *reader)
{
    char name[SNAPSHOT_NAME], text[SNAPSHOT_TEXT] = "";
    uint64_t number = 0, device = 0;
    lochi_json *json = &reader->json;
    if (!lochi_json_open(json, '{')) return;
    while (lochi_json_member(json, name, sizeof name))
        if (!strcmp(name, "name"))
            lochi_json_text(json, text, sizeof text);
        else if (!strcmp(name, "number"))
            lochi_json_number(json, &number);
        else if (!strcmp(name, "device"))
            lochi_json_number(json, &device);
        else
            lochi_json_skip(json);
    if (json->wrong) return;
    reader->device = lochi_table_find(&reader->devices, device);
    reader->allocator = lochi_table_find(&reader->allocators, number);
    if (reader->pass == SNAPSHOT_STREAMS) { /* the first pass with all devices known */
        if (reader->device == UINT32_MAX) {
            lochi_json_fail(json, "an allocator has a device that the list of devices lacks");
        } else if (reader->allocator != UINT32_MAX) {
            lochi_json_fail(json, "two allocators have one number");
        } else {
            reader->allocator = snapshot_add_name(reader, LOCH_RECORDING_ALLOCATOR, text, number);
            if (reader->allocator >= UINT16_MAX)
                lochi_json_fail(json, "there are more than 65534 allocators");
            else if (!lochi_table_set(&reader->allocators, number, reader->allocator))
                snapshot_short(reader);
        }
    }
}

static void snapshot_read_allocator(snapshot_reader *reader)
{
    char name[SNAPSHOT_NAME];
    lochi_json *json = &reader->json;
    const lochi_json before = *json;
    snapshot_read_header(reader);
    if (json->wrong) return;
    *json = before;
    lochi_json_open(json, '{');
    while (lochi_json_member(json, name, sizeof name))
        if (!strcmp(name, "streams"))
            snapshot_read_list(reader, SNAPSHOT_STREAMS, snapshot_read_stream);
        else if (!strcmp(name, "handles"))
            snapshot_read_list(reader, SNAPSHOT_RANGES, snapshot_read_handle);
        else if (!strcmp(name, "blocks"))
            snapshot_read_list(reader, SNAPSHOT_BLOCKS, snapshot_read_block);
        else
            lochi_json_skip(json);
}

/* --- the file --- */

static void snapshot_read_names(snapshot_reader *reader, const char *name)
{
    lochi_json *json = &reader->json;
    char text[SNAPSHOT_TEXT];
    if (!strcmp(name, "format")) {
        reader->is_snapshot = lochi_json_text(json, text, sizeof text) && !strcmp(text, "loch-snapshot");
    } else if (!strcmp(name, "version")) {
        lochi_json_number(json, &reader->version);
    } else if (!strcmp(name, "unix_ns")) {
        lochi_json_number(json, &reader->recording->info.started_ns);
    } else if (!strcmp(name, "program")) {
        if (!lochi_json_text(json, text, sizeof text)) return;
        free((char *)reader->recording->info.program);
        reader->recording->info.program = strdup(text);
        if (!reader->recording->info.program) snapshot_short(reader);
    } else if (!strcmp(name, "failure")) {
        snapshot_read_failure(reader);
    } else if (!strcmp(name, "devices")) {
        if (!lochi_json_open(json, '[')) return;
        for (uint32_t place = 0; lochi_json_item(json); place++)
            snapshot_read_device(reader, place);
    } else if (!strcmp(name, "tags")) {
        snapshot_read_list(reader, SNAPSHOT_NAMES, snapshot_read_tag);
    } else {
        lochi_json_skip(json);
    }
}

/* Reads the whole text once. Returns false after a mistake. */
static bool snapshot_read(snapshot_reader *reader, const insight_source *source, snapshot_pass pass)
{
    char name[SNAPSHOT_NAME];
    lochi_json *json = &reader->json;
    *json = lochi_json_begin(source->data, source->bytes);
    reader->pass = pass;
    if (lochi_json_open(json, '{'))
        while (lochi_json_member(json, name, sizeof name)) {
            if (pass == SNAPSHOT_NAMES) {
                snapshot_read_names(reader, name);
            } else if (!strcmp(name, "allocators")) {
                if (!lochi_json_open(json, '[')) break;
                while (lochi_json_item(json))
                    snapshot_read_allocator(reader);
            } else {
                lochi_json_skip(json);
            }
        }
    if (!lochi_json_end(json)) return false;
    if (pass != SNAPSHOT_NAMES) return true;
    if (!reader->is_snapshot)
        return lochi_json_fail(json, "it is JSON, but not a snapshot: \"format\" is not \"loch-snapshot\"");
    return reader->version == 1 || lochi_json_fail(json, "only snapshots of version 1 are known");
}

static void snapshot_add_failure(snapshot_reader *reader)
{
    const uint32_t allocator = lochi_table_find(&reader->allocators, reader->failure);
    if (!reader->has_failure || allocator == UINT32_MAX) return;
    const loch_recording_event event = {.kind = LOCH_RECORDED_FAIL,
                                        .value = reader->failed,
                                        .subject = allocator,
                                        .stream = snapshot_stream(reader, reader->failure_stream),
                                        .stack = LOCH_RECORDING_NONE};
    if (lochi_insight_recording_add_event(reader->recording, &event) == LOCH_RECORDING_NONE) snapshot_short(reader);
}

loch_status lochi_insight_read_snapshot(const insight_source *source, const loch_recording_options *options,
                                        loch_recording *recording)
{
    snapshot_reader reader = {.recording = recording, .has_memory = true};
    loch_status status = LOCH_OK;
    for (int pass = SNAPSHOT_NAMES; pass <= SNAPSHOT_BLOCKS && status == LOCH_OK && !reader.json.wrong; pass++) {
        status = lochi_insight_progress(options, (size_t)pass, SNAPSHOT_BLOCKS + 1);
        if (status == LOCH_OK) snapshot_read(&reader, source, (snapshot_pass)pass);
    }
    if (status == LOCH_OK && !reader.json.wrong) snapshot_add_failure(&reader);
    if (status == LOCH_OK && reader.json.wrong)
        status = loch_error_set(reader.has_memory ? LOCH_E_INVALID : LOCH_E_HOST_MEMORY, NULL, 0, "%s: byte %zu: %s",
                                source->path, (size_t)(reader.json.at - reader.json.start), reader.json.wrong);
    recording->info.has_addresses = recording->info.was_ended = 1;
    lochi_table_free(&reader.tags);
    lochi_table_free(&reader.devices);
    lochi_table_free(&reader.allocators);
    lochi_table_free(&reader.streams);
    return status;
}

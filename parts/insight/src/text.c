/* SPDX-License-Identifier: MIT */
/* Reads and writes traces: text with one event on each line (docs/replay.md). The reader splits lines into words,
 * parses numbers and maps ids to blocks; an error in a line ends the reading with one sentence that names the line.
 *
 * The writer writes what the reader reads, line for line: ids, bytes, streams, microseconds, alignments and tags. A
 * block that is resized is written as a free and an allocation with a new id. What a trace has no line for (moves,
 * ranges, driver calls, sleep) becomes a comment. */
#include "kit/utf8.h"
#include "format.h"
#include "kit/fail.h"
#include <inttypes.h>
#include <string.h>

#define TEXT_VERSION 1
#define TEXT_WORDS_MAX 8
#define TEXT_STREAMS_MAX 65536
#define TEXT_US_MAX (UINT64_MAX / 1000) /* so that the time in nanoseconds fits */
#define TEXT_PROGRESS_LINES 65536

/* --- the reader --- */

typedef struct text_word {
    const char *text;
    size_t length;
} text_word;

typedef struct text_reader {
    loch_recording *recording;
    const char *path;
    size_t line;         /* line number, from 1 */
    lochi_table ids;     /* id -> block */
    lochi_table streams; /* number of a stream -> index; events hold indices until the end */
    lochi_array numbers; /* of uint64_t: number of each stream */
    uint64_t requested;  /* bytes that the program holds */
    uint64_t us;         /* time of the last event */
} text_reader;

/* Sets a sentence with the line and the reason. Returns E_INVALID. */
static loch_status text_fail(const text_reader *reader, const char *reason)
{
    return LOCH_FAIL(INVALID, "%s:%zu: %s", reader->path, reader->line, reason);
}

static loch_status text_fail_id(const text_reader *reader, uint64_t id, const char *reason)
{
    return LOCH_FAIL(INVALID, "%s:%zu: block %" PRIu64 " %s", reader->path, reader->line, id, reason);
}

static loch_status text_no_memory(const text_reader *reader)
{
    return LOCH_FAIL(HOST_MEMORY, "%s:%zu: no memory for the trace from here on", reader->path, reader->line);
}

static bool word_is(text_word word, const char *text)
{
    return word.length == strlen(text) && !memcmp(word.text, text, word.length);
}

static bool word_starts(text_word word, const char *text)
{
    return word.length >= strlen(text) && !memcmp(word.text, text, strlen(text));
}

/* Parses decimal digits, at most UINT64_MAX. */
static loch_status text_number(const text_reader *reader, text_word word, uint64_t *out)
{
    uint64_t value = 0;
    for (size_t i = 0; i < word.length; i++) {
        const unsigned digit = (unsigned)(unsigned char)word.text[i] - '0';
        if (digit > 9) break;
        if (value > (UINT64_MAX - digit) / 10) return text_fail(reader, "a number is too large");
        value = 10 * value + digit;
        if (i + 1 < word.length) continue;
        *out = value;
        return LOCH_OK;
    }
    return LOCH_FAIL(INVALID, "%s:%zu: \"%.*s\" is not a number", reader->path, reader->line,
                     (int)(word.length < 40 ? word.length : 40), word.text);
}

static loch_status text_time(text_reader *reader, text_word word)
{
    uint64_t us = 0;
    LOCH_RETURN(text_number(reader, word, &us));
    if (us > TEXT_US_MAX) return text_fail(reader, "the time is too large");
    /* Events of several threads may be slightly out of order; the time never goes backwards. */
    if (us > reader->us) reader->us = us;
    return LOCH_OK;
}

static loch_status text_stream(text_reader *reader, text_word word, uint16_t *out)
{
    uint64_t number = 0;
    LOCH_RETURN(text_number(reader, word, &number));
    uint32_t found = lochi_table_find(&reader->streams, number);
    if (found == UINT32_MAX) {
        found = (uint32_t)reader->numbers.count;
        if (found == TEXT_STREAMS_MAX) return text_fail(reader, "there are too many streams");
        if (!lochi_table_set(&reader->streams, number, found) ||
            !lochi_array_append(&reader->numbers, &number, 1, sizeof number))
            return text_no_memory(reader);
    }
    *out = (uint16_t)found;
    return LOCH_OK;
}

/* Finds the live block that a `u` or `f` line names. */
static loch_status text_block(const text_reader *reader, text_word word, uint32_t *out)
{
    uint64_t id = 0;
    LOCH_RETURN(text_number(reader, word, &id));
    *out = lochi_table_find(&reader->ids, id);
    if (*out == UINT32_MAX) return text_fail_id(reader, id, "is not known");
    const loch_recording_block *block = (const loch_recording_block *)reader->recording->blocks.data + *out;
    return block->free_event == LOCH_RECORDING_NONE ? LOCH_OK : text_fail_id(reader, id, "was freed before");
}

/* --- lines --- */

static loch_status text_tag(const text_reader *reader, text_word word, uint32_t *out)
{
    if (!word.length || word.length >= LOCH_TAG_NAME_MAX || memchr(word.text, 0, word.length))
        return text_fail(reader, "a tag has 1 to 63 characters");
    *out = lochi_insight_recording_add_name(reader->recording, LOCH_RECORDING_TAG, word.text, word.length);
    return *out == LOCH_RECORDING_NONE ? text_no_memory(reader) : LOCH_OK;
}

/* Parses the optional words at the end of an `a` line. */
static loch_status text_extras(const text_reader *reader, const text_word *words, size_t count,
                               loch_recording_block *out)
{
    for (size_t i = 0; i < count; i++) {
        if (word_starts(words[i], "align=")) {
            uint64_t alignment = 0;
            LOCH_RETURN(text_number(reader, (text_word){words[i].text + 6, words[i].length - 6}, &alignment));
            if (!alignment || (alignment & (alignment - 1))) return text_fail(reader, "an alignment is a power of two");
            out->alignment = (uint8_t)__builtin_ctzll(alignment);
        } else if (word_starts(words[i], "tag=")) {
            LOCH_RETURN(text_tag(reader, (text_word){words[i].text + 4, words[i].length - 4}, &out->tag));
        } else {
            return text_fail(reader, "an a line ends with align=N and tag=NAME at most");
        }
    }
    return LOCH_OK;
}

/* a <id> <bytes> <stream> <t_us> [align=N] [tag=NAME] */
static loch_status text_read_alloc(text_reader *reader, const text_word *words, size_t count)
{
    loch_recording_block block = {.id = 0};
    if (count < 5) return text_fail(reader, "an a line is \"a ID BYTES STREAM MICROSECONDS\"");
    LOCH_RETURN(text_number(reader, words[1], &block.id));
    LOCH_RETURN(text_number(reader, words[2], &block.bytes));
    LOCH_RETURN(text_stream(reader, words[3], &block.stream));
    LOCH_RETURN(text_time(reader, words[4]));
    LOCH_RETURN(text_extras(reader, words + 5, count - 5, &block));
    if (lochi_table_find(&reader->ids, block.id) != UINT32_MAX)
        return text_fail_id(reader, block.id, "was allocated before");
    if (block.bytes > UINT64_MAX - reader->requested) return text_fail(reader, "the sum of all blocks overflows");
    reader->requested += block.bytes;
    const loch_recording_event event = {
        .time_ns = 1000 * reader->us, .stack = LOCH_RECORDING_NONE, .stream = block.stream};
    const uint32_t index = lochi_insight_recording_add_alloc(reader->recording, &block, &event);
    if (index == LOCH_RECORDING_NONE || !lochi_table_set(&reader->ids, block.id, index)) return text_no_memory(reader);
    return LOCH_OK;
}

/* u <id> <stream> <t_us> */
static loch_status text_read_use(text_reader *reader, const text_word *words, size_t count)
{
    loch_recording_event event = {.kind = LOCH_RECORDED_USE, .stack = LOCH_RECORDING_NONE};
    if (count != 4) return text_fail(reader, "a u line is \"u ID STREAM MICROSECONDS\"");
    LOCH_RETURN(text_block(reader, words[1], &event.subject));
    LOCH_RETURN(text_stream(reader, words[2], &event.stream));
    LOCH_RETURN(text_time(reader, words[3]));
    event.time_ns = 1000 * reader->us;
    const uint32_t index = lochi_insight_recording_add_event(reader->recording, &event);
    return index == LOCH_RECORDING_NONE ? text_no_memory(reader) : LOCH_OK;
}

/* f <id> <t_us> [<stream>] */
static loch_status text_read_free(text_reader *reader, const text_word *words, size_t count)
{
    loch_recording_event event = {.stack = LOCH_RECORDING_NONE};
    uint32_t index = 0;
    if (count != 3 && count != 4) return text_fail(reader, "an f line is \"f ID MICROSECONDS [STREAM]\"");
    LOCH_RETURN(text_block(reader, words[1], &index));
    LOCH_RETURN(text_time(reader, words[2]));
    const loch_recording_block *block = (const loch_recording_block *)reader->recording->blocks.data + index;
    event.stream = block->stream;
    if (count == 4) {
        LOCH_RETURN(text_stream(reader, words[3], &event.stream));
        event.flags = 1;
    }
    reader->requested -= block->bytes;
    event.time_ns = 1000 * reader->us;
    return lochi_insight_recording_add_free(reader->recording, index, &event) == LOCH_RECORDING_NONE
               ? text_no_memory(reader)
               : LOCH_OK;
}

/* Splits a line into words up to a comment. Returns TEXT_WORDS_MAX + 1 if there are more words than any line may
 * have. */
static size_t text_split(const char *text, size_t length, text_word *words)
{
    size_t count = 0;
    for (size_t at = 0; at < length;) {
        if (text[at] == ' ' || text[at] == '\t' || text[at] == '\r') {
            at++;
            continue;
        }
        if (text[at] == '#') break;
        if (count == TEXT_WORDS_MAX) return TEXT_WORDS_MAX + 1;
        const size_t start = at;
        while (at < length && text[at] != ' ' && text[at] != '\t' && text[at] != '\r')
            at++;
        words[count++] = (text_word){text + start, at - start};
    }
    return count;
}

/* Checks the version in the first line, if it is there: "# loch-trace 1". */
static loch_status text_version(const text_reader *reader, const char *text, size_t length)
{
    text_word words[TEXT_WORDS_MAX];
    uint64_t version = 0;
    if (!length || *text != '#') return LOCH_OK;
    const size_t count = text_split(text + 1, length - 1, words);
    if (!count || !word_is(words[0], "loch-trace")) return LOCH_OK;
    if (count != 2) return text_fail(reader, "the version is \"# loch-trace 1\"");
    LOCH_RETURN(text_number(reader, words[1], &version));
    if (version == TEXT_VERSION) return LOCH_OK;
    return text_fail(reader, "this version of traces is not known; version 1 is");
}

static loch_status text_line(text_reader *reader, const char *text, size_t length)
{
    text_word words[TEXT_WORDS_MAX];
    if (reader->line == 1) LOCH_RETURN(text_version(reader, text, length));
    const size_t count = text_split(text, length, words);
    if (!count) return LOCH_OK;
    if (count > TEXT_WORDS_MAX) return text_fail(reader, "the line has too many words");
    if (word_is(words[0], "a")) return text_read_alloc(reader, words, count);
    if (word_is(words[0], "f")) return text_read_free(reader, words, count);
    if (word_is(words[0], "u")) return text_read_use(reader, words, count);
    return text_fail(reader, "a line starts with a, u, f or #");
}

/* Gives streams their numbers. They keep the order of first use as numbers if one of them is above 65535. */
static void text_number_streams(text_reader *reader)
{
    const uint64_t *numbers = reader->numbers.data;
    if (!numbers) return; /* no event was read */
    for (size_t i = 0; i < reader->numbers.count; i++)
        if (numbers[i] > UINT16_MAX) return;
    loch_recording_event *events = reader->recording->events.data;
    for (size_t i = 0; i < reader->recording->events.count; i++)
        events[i].stream = (uint16_t)numbers[events[i].stream];
    loch_recording_block *blocks = reader->recording->blocks.data;
    for (size_t i = 0; i < reader->recording->blocks.count; i++)
        blocks[i].stream = (uint16_t)numbers[blocks[i].stream];
}

loch_status lochi_insight_read_text(const insight_source *source, const loch_recording_options *options,
                                    loch_recording *recording)
{
    const char *at = (const char *)source->data, *end = at + source->bytes;
    text_reader reader = {.recording = recording,
                          .path = strcmp(source->path, "-") != 0 ? source->path : "standard input"};
    uint16_t first;
    loch_status status = text_stream(&reader, (text_word){"0", 1}, &first);
    while (status == LOCH_OK && at < end) {
        const char *line_end = memchr(at, '\n', (size_t)(end - at));
        if (!line_end) line_end = end;
        reader.line++;
        status = text_line(&reader, at, (size_t)(line_end - at));
        at = line_end + 1;
        if (status == LOCH_OK && reader.line % TEXT_PROGRESS_LINES == 0)
            status = lochi_insight_progress(options, (size_t)(at - (const char *)source->data), source->bytes);
    }
    if (status == LOCH_OK) text_number_streams(&reader);
    lochi_table_free(&reader.ids);
    lochi_table_free(&reader.streams);
    lochi_array_free(&reader.numbers);
    return status;
}

/* --- the writer --- */

typedef struct text_writer {
    const loch_recording *recording;
    FILE *file;
    uint64_t *ids; /* current id of each block */
    uint64_t next; /* id of the next block that is resized */
} text_writer;

/* Writes the letters of a name that a trace can hold: without blanks and control characters. */
static void text_write_name(const text_writer *writer, const char *name)
{
    for (size_t i = 0; i < LOCH_TAG_NAME_MAX - 1 && name[i]; i++) {
        const size_t control = lochi_utf8_control(name + i);
        putc(control || name[i] == ' ' ? '_' : name[i], writer->file);
        i += control == 2;
    }
}

static void text_write_alloc(const text_writer *writer, const loch_recording_event *event, uint64_t bytes)
{
    const loch_recording_block *block = loch_recording_get_blocks(writer->recording) + event->subject;
    fprintf(writer->file, "a %" PRIu64 " %" PRIu64 " %u %" PRIu64, writer->ids[event->subject], bytes, block->stream,
            event->time_ns / 1000);
    if (block->alignment) fprintf(writer->file, " align=%" PRIu64, (uint64_t)1 << (block->alignment & 63));
    if (block->tag) {
        fputs(" tag=", writer->file);
        text_write_name(writer, loch_recording_get_name(writer->recording, LOCH_RECORDING_TAG, block->tag));
    }
    putc('\n', writer->file);
}

static void text_write_free(const text_writer *writer, const loch_recording_event *event)
{
    const loch_recording_block *block = loch_recording_get_blocks(writer->recording) + event->subject;
    fprintf(writer->file, "f %" PRIu64 " %" PRIu64, writer->ids[event->subject], event->time_ns / 1000);
    if (event->kind == LOCH_RECORDED_FREE && (event->stream != block->stream || event->flags & 1))
        fprintf(writer->file, " %u", event->stream);
    putc('\n', writer->file);
}

/* Writes an event that a trace has no line for as a comment. */
static void text_write_comment(const text_writer *writer, const loch_recording_event *event)
{
    const loch_recording *recording = writer->recording;
    const uint64_t us = event->time_ns / 1000;
    FILE *file = writer->file;
    switch (event->kind) {
    case LOCH_RECORDED_MOVE:
        fprintf(file, "# move %" PRIu64 " 0x%" PRIx64 " %" PRIu64 "\n", writer->ids[event->subject], event->value, us);
        break;
    case LOCH_RECORDED_TAKE:
    case LOCH_RECORDED_GIVE:
        fprintf(file, "# %s 0x%" PRIx64 " %" PRIu64 " %s %" PRIu64 "\n",
                event->kind == LOCH_RECORDED_TAKE ? "take" : "give",
                loch_recording_get_ranges(recording)[event->subject].address,
                loch_recording_get_ranges(recording)[event->subject].bytes,
                loch_recording_get_name(recording, LOCH_RECORDING_DEVICE, event->stream), us);
        break;
    case LOCH_RECORDED_CALL:
        fprintf(file, "# call %s %s %" PRIu64 " ns %" PRIu64 "\n",
                loch_recording_get_name(recording, LOCH_RECORDING_CALL, event->subject),
                loch_recording_get_name(recording, LOCH_RECORDING_DEVICE, event->stream), event->value, us);
        break;
    case LOCH_RECORDED_SLEEP:
    case LOCH_RECORDED_WAKE:
    case LOCH_RECORDED_FAIL:
        fprintf(file, "# %s %s %" PRIu64 " %" PRIu64 "\n",
                event->kind == LOCH_RECORDED_SLEEP  ? "sleep"
                : event->kind == LOCH_RECORDED_WAKE ? "wake"
                                                    : "fail",
                loch_recording_get_name(recording, LOCH_RECORDING_ALLOCATOR, event->subject), event->value, us);
        break;
    default: break;
    }
}

static void text_write_event(text_writer *writer, const loch_recording_event *event)
{
    switch (event->kind) {
    case LOCH_RECORDED_ALLOC: text_write_alloc(writer, event, event->value); break;
    case LOCH_RECORDED_FREE: text_write_free(writer, event); break;
    case LOCH_RECORDED_USE:
        fprintf(writer->file, "u %" PRIu64 " %u %" PRIu64 "\n", writer->ids[event->subject], event->stream,
                event->time_ns / 1000);
        break;
    case LOCH_RECORDED_RESIZE:
        text_write_free(writer, event);
        writer->ids[event->subject] = writer->next++;
        text_write_alloc(writer, event, event->value);
        break;
    default: text_write_comment(writer, event);
    }
}

static bool text_has_resizes(const loch_recording *recording)
{
    const loch_recording_event *events = loch_recording_get_events(recording);
    for (size_t i = 0; i < recording->events.count; i++)
        if (events[i].kind == LOCH_RECORDED_RESIZE) return true;
    return false;
}

loch_status lochi_insight_write_text(const loch_recording *recording, const loch_recording_options *options,
                                     insight_sink *sink)
{
    const loch_recording_event *events = loch_recording_get_events(recording);
    const loch_recording_block *blocks = loch_recording_get_blocks(recording);
    const size_t blocks_count = recording->blocks.count, count = recording->events.count;
    lochi_array ids = {.data = NULL};
    if (!lochi_array_reserve(&ids, blocks_count + 1, sizeof(uint64_t))) return lochi_insight_no_memory(sink->path);
    text_writer writer = {recording, sink->file, ids.data, 0};
    for (size_t i = 0; i < blocks_count; i++) {
        writer.ids[i] = blocks[i].id;
        if (blocks[i].id >= writer.next && writer.next != UINT64_MAX) writer.next = blocks[i].id + 1;
        if (blocks[i].id == UINT64_MAX) writer.next = UINT64_MAX;
    }
    if (writer.next == UINT64_MAX && text_has_resizes(recording)) { /* no ids are left for resized blocks */
        for (size_t i = 0; i < blocks_count; i++)
            writer.ids[i] = i;
        writer.next = blocks_count;
    }
    loch_status status = LOCH_OK;
    for (size_t i = 0; status == LOCH_OK && i < count; i++) {
        text_write_event(&writer, &events[i]);
        if (i % TEXT_PROGRESS_LINES == 0) status = lochi_insight_progress(options, i, count);
    }
    lochi_array_free(&ids);
    return status;
}

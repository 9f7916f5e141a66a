/* SPDX-License-Identifier: MIT */
/* Reads traces: splits lines into words, parses numbers, maps ids to slots. An error in a line ends the reading with
 * one sentence that names the line. */
#include "trace.h"
#include "tool.h"
#include "trace_input.h"

#include <inttypes.h>
#include <limits.h>
#include <string.h>
#include <sys/mman.h>

#define TRACE_VERSION 1
#define TRACE_WORDS_MAX 8
#define TRACE_STREAMS_MAX 65536
#define TRACE_US_MAX (UINT64_MAX / 1000) /* so that the time in nanoseconds fits */
#define TRACE_ARRAY_BYTES_MIN ((size_t)64 << 10)

/* --- memory --- */

bool trace_array_reserve(trace_array *array, size_t count, size_t bytes)
{
    if (bytes && count > SIZE_MAX / 4 / bytes) return false;
    if (count * bytes <= array->capacity_bytes) return true;
    size_t capacity = array->capacity_bytes ? array->capacity_bytes : TRACE_ARRAY_BYTES_MIN;
    while (capacity < count * bytes)
        capacity *= 2;
    void *data = array->data ? mremap(array->data, array->capacity_bytes, capacity, MREMAP_MAYMOVE)
                             : mmap(NULL, capacity, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (data == MAP_FAILED) return false;
    array->data = data;
    array->capacity_bytes = capacity;
    return true;
}

void trace_array_free(trace_array *array)
{
    if (array->data) munmap(array->data, array->capacity_bytes);
    *array = (trace_array){.data = NULL};
}

/* --- numbers found by other numbers --- */

/* A hash table with open addressing. An entry is an index into `keys` plus one; 0 means empty. */
typedef struct trace_index {
    trace_array keys;   /* array of uint64_t, in the order of insertion */
    trace_array places; /* array of uint32_t */
    size_t mask;        /* number of entries - 1; 0 before the first insertion */
} trace_index;

static uint32_t *index_place(const trace_index *index, uint64_t key)
{
    uint32_t *places = index->places.data;
    const uint64_t *keys = index->keys.data;
    size_t at = (size_t)((key * 0x9e3779b97f4a7c15u) >> 20) & index->mask;
    while (places[at] && keys[places[at] - 1] != key)
        at = (at + 1) & index->mask;
    return &places[at];
}

static bool index_grow(trace_index *index)
{
    const size_t places = index->mask ? 2 * (index->mask + 1) : 4096;
    trace_array_free(&index->places);
    if (!trace_array_reserve(&index->places, places, sizeof(uint32_t))) return false;
    index->mask = places - 1;
    for (size_t i = 0; i < index->keys.count; i++)
        *index_place(index, ((const uint64_t *)index->keys.data)[i]) = (uint32_t)(i + 1);
    return true;
}

/* Returns the index of `key`, or SIZE_MAX. */
static size_t index_find(const trace_index *index, uint64_t key)
{
    return index->mask ? (size_t)*index_place(index, key) - 1 : SIZE_MAX;
}

/* Adds a key that is not in the table. Returns false if there is no memory. */
static bool index_add(trace_index *index, uint64_t key)
{
    if (2 * index->keys.count >= index->mask && !index_grow(index)) return false;
    if (index->keys.count >= UINT32_MAX - 1) return false;
    if (!trace_array_reserve(&index->keys, index->keys.count + 1, sizeof key)) return false;
    ((uint64_t *)index->keys.data)[index->keys.count++] = key;
    *index_place(index, key) = (uint32_t)index->keys.count;
    return true;
}

static void index_free(trace_index *index)
{
    trace_array_free(&index->keys);
    trace_array_free(&index->places);
}

/* --- the reader --- */

typedef struct trace_word {
    const char *text;
    size_t length;
} trace_word;

typedef struct trace_block {
    uint64_t bytes;
    uint32_t slot;
    uint16_t stream;
    bool is_live;
} trace_block;

typedef struct trace_reader {
    trace_log *trace;
    const char *path;
    size_t line; /* line number, from 1 */
    trace_index ids, streams;
    trace_array blocks;     /* array of trace_block, in the order of `ids` */
    trace_array free_slots; /* array of uint32_t: a stack, so that few slots are used and stay in the cache */
    uint64_t requested;     /* bytes that the program holds */
} trace_reader;

/* Prints the line with the error and the reason. Returns false. */
static bool reader_fail(const trace_reader *reader, const char *reason)
{
    tool_fail("%s:%zu: %s", reader->path, reader->line, reason);
    return false;
}

static bool reader_fail_id(const trace_reader *reader, uint64_t id, const char *reason)
{
    tool_fail("%s:%zu: block %" PRIu64 " %s", reader->path, reader->line, id, reason);
    return false;
}

static bool reader_has_no_memory(const trace_reader *reader)
{
    return reader_fail(reader, "no memory for the trace from here on");
}

static bool word_is(trace_word word, const char *text)
{
    return word.length == strlen(text) && !memcmp(word.text, text, word.length);
}

static bool word_starts(trace_word word, const char *text)
{
    return word.length >= strlen(text) && !memcmp(word.text, text, strlen(text));
}

/* Parses decimal digits, at most UINT64_MAX. */
static bool reader_number(const trace_reader *reader, trace_word word, uint64_t *out)
{
    uint64_t value = 0;
    for (size_t i = 0; i < word.length; i++) {
        const unsigned digit = (unsigned)(unsigned char)word.text[i] - '0';
        if (digit > 9) break;
        if (value > (UINT64_MAX - digit) / 10) return reader_fail(reader, "a number is too large");
        value = 10 * value + digit;
        if (i + 1 < word.length) continue;
        *out = value;
        return true;
    }
    tool_fail("%s:%zu: \"%.*s\" is not a number", reader->path, reader->line,
              (int)(word.length < 40 ? word.length : 40), word.text);
    return false;
}

static bool reader_time(trace_reader *reader, trace_word word)
{
    uint64_t us;
    if (!reader_number(reader, word, &us)) return false;
    if (us > TRACE_US_MAX) return reader_fail(reader, "the time is too large");
    /* Events of several threads may be slightly out of order; the time never goes backwards. */
    if (us > reader->trace->duration_us) reader->trace->duration_us = us;
    return true;
}

static bool reader_stream(trace_reader *reader, trace_word word, uint16_t *out)
{
    uint64_t number;
    if (!reader_number(reader, word, &number)) return false;
    size_t found = index_find(&reader->streams, number);
    if (found == SIZE_MAX) {
        found = reader->streams.keys.count;
        if (found == TRACE_STREAMS_MAX) return reader_fail(reader, "there are too many streams");
        if (!index_add(&reader->streams, number)) return reader_has_no_memory(reader);
    }
    *out = (uint16_t)found;
    return true;
}

/* Finds the live block that a `u` or `f` line names. */
static bool reader_block(const trace_reader *reader, trace_word word, trace_block **out)
{
    uint64_t id;
    if (!reader_number(reader, word, &id)) return false;
    const size_t found = index_find(&reader->ids, id);
    if (found == SIZE_MAX) return reader_fail_id(reader, id, "is not known");
    *out = (trace_block *)reader->blocks.data + found;
    return (*out)->is_live || reader_fail_id(reader, id, "was freed before");
}

static bool reader_emit(trace_reader *reader, trace_kind kind, uint64_t bytes, uint32_t slot, uint16_t stream)
{
    trace_array *events = &reader->trace->events, *times = &reader->trace->times_us;
    if (!trace_array_reserve(events, events->count + 1, sizeof(trace_event)) ||
        !trace_array_reserve(times, times->count + 1, sizeof(uint64_t)))
        return reader_has_no_memory(reader);
    ((trace_event *)events->data)[events->count++] = (trace_event){bytes, slot, stream, (uint16_t)kind};
    ((uint64_t *)times->data)[times->count++] = reader->trace->duration_us;
    return true;
}

/* --- lines --- */

static bool reader_tag(const trace_reader *reader, trace_word word, loch_tag *out)
{
    char name[LOCH_TAG_NAME_MAX];
    if (!word.length || word.length >= sizeof name) return reader_fail(reader, "a tag has 1 to 63 characters");
    memcpy(name, word.text, word.length);
    name[word.length] = 0;
    return loch_tag_create(name, out) == LOCH_OK || reader_fail(reader, loch_error_get()->sentence);
}

/* Parses the optional words at the end of an `a` line. */
static bool reader_extras(const trace_reader *reader, const trace_word *words, size_t count, trace_special *out)
{
    for (size_t i = 0; i < count; i++) {
        if (word_starts(words[i], "align=")) {
            uint64_t alignment;
            if (!reader_number(reader, (trace_word){words[i].text + 6, words[i].length - 6}, &alignment)) return false;
            if (!alignment || (alignment & (alignment - 1)))
                return reader_fail(reader, "an alignment is a power of two");
            out->alignment = (size_t)alignment;
        } else if (word_starts(words[i], "tag=")) {
            if (!reader_tag(reader, (trace_word){words[i].text + 4, words[i].length - 4}, &out->tag)) return false;
        } else {
            return reader_fail(reader, "an a line ends with align=N and tag=NAME at most");
        }
    }
    return true;
}

/* Takes a free slot, or a new one. There are never more slots than ids, whose number is limited. */
static uint32_t reader_take_slot(trace_reader *reader)
{
    trace_array *slots = &reader->free_slots;
    return slots->count ? ((const uint32_t *)slots->data)[--slots->count] : (uint32_t)reader->trace->slots++;
}

static bool reader_add_block(trace_reader *reader, uint64_t id, const trace_block *block)
{
    if (index_find(&reader->ids, id) != SIZE_MAX) return reader_fail_id(reader, id, "was allocated before");
    if (!index_add(&reader->ids, id)) return reader_has_no_memory(reader);
    if (!trace_array_reserve(&reader->blocks, reader->blocks.count + 1, sizeof *block))
        return reader_has_no_memory(reader);
    ((trace_block *)reader->blocks.data)[reader->blocks.count++] = *block;
    if (block->bytes > UINT64_MAX - reader->requested) return reader_fail(reader, "the sum of all blocks overflows");
    reader->requested += block->bytes;
    if (reader->requested > reader->trace->peak_requested) reader->trace->peak_requested = reader->requested;
    return true;
}

/* a <id> <bytes> <stream> <t_us> [align=N] [tag=NAME] */
static bool reader_alloc(trace_reader *reader, const trace_word *words, size_t count)
{
    trace_array *specials = &reader->trace->specials;
    trace_block block = {.is_live = true};
    trace_special special = {0};
    uint64_t id;
    if (count < 5) return reader_fail(reader, "an a line is \"a ID BYTES STREAM MICROSECONDS\"");
    if (!reader_number(reader, words[1], &id) || !reader_number(reader, words[2], &block.bytes) ||
        !reader_stream(reader, words[3], &block.stream) || !reader_time(reader, words[4]) ||
        !reader_extras(reader, words + 5, count - 5, &special))
        return false;
    block.slot = reader_take_slot(reader);
    if (!reader_add_block(reader, id, &block)) return false;
    if (!special.alignment && !special.tag)
        return reader_emit(reader, TRACE_ALLOC, block.bytes, block.slot, block.stream);
    if (!trace_array_reserve(specials, specials->count + 1, sizeof special)) return reader_has_no_memory(reader);
    special.bytes = (size_t)block.bytes;
    ((trace_special *)specials->data)[specials->count++] = special;
    return reader_emit(reader, TRACE_ALLOC_SPECIAL, specials->count - 1, block.slot, block.stream);
}

/* u <id> <stream> <t_us> */
static bool reader_use(trace_reader *reader, const trace_word *words, size_t count)
{
    trace_block *block;
    uint16_t stream;
    if (count != 4) return reader_fail(reader, "a u line is \"u ID STREAM MICROSECONDS\"");
    return reader_block(reader, words[1], &block) && reader_stream(reader, words[2], &stream) &&
           reader_time(reader, words[3]) && reader_emit(reader, TRACE_USE, 0, block->slot, stream);
}

/* f <id> <t_us> [<stream>] */
static bool reader_free(trace_reader *reader, const trace_word *words, size_t count)
{
    trace_array *slots = &reader->free_slots;
    trace_block *block;
    uint16_t stream;
    if (count != 3 && count != 4) return reader_fail(reader, "an f line is \"f ID MICROSECONDS [STREAM]\"");
    if (!reader_block(reader, words[1], &block) || !reader_time(reader, words[2])) return false;
    stream = block->stream;
    if (count == 4 && !reader_stream(reader, words[3], &stream)) return false;
    if (!trace_array_reserve(slots, slots->count + 1, sizeof(uint32_t))) return reader_has_no_memory(reader);
    ((uint32_t *)slots->data)[slots->count++] = block->slot;
    block->is_live = false;
    reader->requested -= block->bytes;
    return reader_emit(reader, stream == block->stream ? TRACE_FREE : TRACE_FREE_ON, 0, block->slot, stream);
}

/* Splits a line into words up to a comment. Returns TRACE_WORDS_MAX + 1 if there are more words than any line may
 * have. */
static size_t reader_split(const char *text, size_t length, trace_word *words)
{
    size_t count = 0;
    for (size_t at = 0; at < length;) {
        if (text[at] == ' ' || text[at] == '\t' || text[at] == '\r') {
            at++;
            continue;
        }
        if (text[at] == '#') break;
        if (count == TRACE_WORDS_MAX) return TRACE_WORDS_MAX + 1;
        const size_t start = at;
        while (at < length && text[at] != ' ' && text[at] != '\t' && text[at] != '\r')
            at++;
        words[count++] = (trace_word){text + start, at - start};
    }
    return count;
}

/* Checks the version in the first line, if it is there: "# loch-trace 1". */
static bool reader_version(const trace_reader *reader, const char *text, size_t length)
{
    trace_word words[TRACE_WORDS_MAX];
    uint64_t version = 0;
    if (!length || *text != '#') return true;
    const size_t count = reader_split(text + 1, length - 1, words);
    if (!count || !word_is(words[0], "loch-trace")) return true;
    if (count != 2) return reader_fail(reader, "the version is \"# loch-trace 1\"");
    if (!reader_number(reader, words[1], &version)) return false;
    return version == TRACE_VERSION || reader_fail(reader, "this version of traces is not known; version 1 is");
}

static bool reader_line(trace_reader *reader, const char *text, size_t length)
{
    trace_word words[TRACE_WORDS_MAX];
    if (reader->line == 1 && !reader_version(reader, text, length)) return false;
    const size_t count = reader_split(text, length, words);
    if (!count) return true;
    if (count > TRACE_WORDS_MAX) return reader_fail(reader, "the line has too many words");
    if (word_is(words[0], "a")) return reader_alloc(reader, words, count);
    if (word_is(words[0], "f")) return reader_free(reader, words, count);
    if (word_is(words[0], "u")) return reader_use(reader, words, count);
    return reader_fail(reader, "a line starts with a, u, f or #");
}

static bool reader_lines(trace_reader *reader, const trace_array *text)
{
    const char *at = text->data, *end = at + text->count;
    while (at < end) {
        const char *line_end = memchr(at, '\n', (size_t)(end - at));
        if (!line_end) line_end = end;
        reader->line++;
        if (!reader_line(reader, at, (size_t)(line_end - at))) return false;
        at = line_end + 1;
    }
    return true;
}

/* --- whole traces --- */

bool trace_load(trace_log *trace, const char *path)
{
    trace_array text = {.data = NULL};
    trace_reader reader = {.trace = trace, .path = strcmp(path, "-") != 0 ? path : "standard input"};
    *trace = (trace_log){.slots = 0};
    bool is_good = trace_input_read(path, &text);
    if (is_good && !index_add(&reader.streams, 0)) is_good = reader_has_no_memory(&reader);
    is_good = is_good && reader_lines(&reader, &text);
    trace->streams = reader.streams.keys.count;
    trace_array_free(&text);
    trace_array_free(&reader.blocks);
    trace_array_free(&reader.free_slots);
    index_free(&reader.ids);
    index_free(&reader.streams);
    return is_good;
}

void trace_unload(trace_log *trace)
{
    trace_array_free(&trace->events);
    trace_array_free(&trace->times_us);
    trace_array_free(&trace->specials);
}

bool trace_add_clock(const trace_log *trace, uint64_t step_us, trace_array *out)
{
    const trace_event *events = trace_events(trace);
    const uint64_t *times_us = trace->times_us.data;
    uint64_t last_us = 0;
    *out = (trace_array){.data = NULL};
    if (!trace_array_reserve(out, 2 * trace->events.count + 1, sizeof *events)) return false;
    trace_event *to = out->data;
    for (size_t i = 0; i < trace->events.count; i++) {
        if (times_us[i] - last_us >= step_us) {
            last_us = times_us[i];
            to[out->count++] = (trace_event){last_us * 1000, 0, 0, TRACE_CLOCK};
        }
        to[out->count++] = events[i];
    }
    return true;
}

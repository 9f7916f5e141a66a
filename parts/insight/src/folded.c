/* SPDX-License-Identifier: MIT */
/* Folded stacks for flame graphs: what was live at the moment of the highest use. One line for each call stack,
 * outermost frame first, frames apart by semicolons, then the bytes. Blocks without a call stack are told apart by
 * allocator and tag. */
#include "kit/utf8.h"
#include "format.h"
#include <stdlib.h>
#include <string.h>

typedef struct folded_line {
    uint64_t bytes;
    uint32_t stack;          /* LOCH_RECORDING_NONE: allocator and tag instead */
    uint32_t allocator, tag; /* of blocks without a call stack */
} folded_line;

static int line_compare(const void *a, const void *b)
{
    const folded_line *one = a, *other = b;
    if (one->bytes != other->bytes) return one->bytes > other->bytes ? -1 : 1;
    if (one->stack != other->stack) return one->stack < other->stack ? -1 : 1;
    if (one->allocator != other->allocator) return one->allocator < other->allocator ? -1 : 1;
    return (one->tag > other->tag) - (one->tag < other->tag);
}

/* Writes a name without the characters that end a name or a line. */
static void put_name(FILE *file, const char *name)
{
    for (; *name; name++) {
        const size_t control = lochi_utf8_control(name);
        putc_unlocked(control ? ' ' : *name == ';' ? ':' : *name, file);
        name += control == 2;
    }
}

static void put_line(FILE *file, const loch_recording *recording, const folded_line *line)
{
    size_t count;
    const char *const *frames = loch_recording_get_stack(recording, line->stack, &count);
    if (count) {
        for (size_t i = count; i-- > 0;) {
            put_name(file, *frames[i] ? frames[i] : "unknown");
            if (i) putc_unlocked(';', file);
        }
    } else {
        const char *tag = loch_recording_get_name(recording, LOCH_RECORDING_TAG, line->tag);
        put_name(file, loch_recording_get_name(recording, LOCH_RECORDING_ALLOCATOR, line->allocator));
        if (*tag) {
            putc_unlocked(';', file);
            put_name(file, tag);
        }
    }
    fprintf(file, " %llu\n", (unsigned long long)line->bytes);
}

/* Adds the bytes of a block to its line. Returns false if there is no memory. */
static bool lines_add(lochi_array *lines, lochi_table *places, const loch_recording *recording, size_t index,
                      uint64_t bytes)
{
    const loch_recording_block *block = (const loch_recording_block *)recording->blocks.data + index;
    const loch_recording_event *events = recording->events.data;
    folded_line line = {.stack = events[block->alloc_event].stack};
    uint64_t key = line.stack;
    if (line.stack >= recording->stacks.count) {
        line = (folded_line){.stack = LOCH_RECORDING_NONE, .allocator = block->allocator, .tag = block->tag};
        key = (uint64_t)1 << 63 | (uint64_t)block->allocator << 32 | block->tag;
    }
    uint32_t place = lochi_table_find(places, key);
    if (place == UINT32_MAX) {
        place = (uint32_t)lines->count;
        if (!lochi_array_append(lines, &line, 1, sizeof line) || !lochi_table_set(places, key, place)) return false;
    }
    folded_line *all = lines->data;
    if (all) all[place].bytes += bytes;
    return all != NULL;
}

loch_status lochi_insight_write_folded(const loch_recording *recording, const loch_recording_options *options,
                                       insight_sink *sink)
{
    const loch_recording_event *events = recording->events.data;
    lochi_array sizes = {.data = NULL}, lines = {.data = NULL};
    lochi_table places = {.keys = NULL};
    (void)options;
    bool is_good = lochi_array_reserve(&sizes, recording->blocks.count, sizeof(uint64_t));
    uint64_t *bytes = sizes.data; /* of each block at the peak */
    for (size_t i = 0; is_good && i < recording->events.count && i <= recording->info.peak_event; i++) {
        if (events[i].kind == LOCH_RECORDED_ALLOC || events[i].kind == LOCH_RECORDED_RESIZE)
            bytes[events[i].subject] = events[i].value;
        else if (events[i].kind == LOCH_RECORDED_FREE)
            bytes[events[i].subject] = 0;
    }
    for (size_t i = 0; is_good && i < recording->blocks.count; i++)
        if (bytes[i]) is_good = lines_add(&lines, &places, recording, i, bytes[i]);
    if (is_good && lines.count) qsort(lines.data, lines.count, sizeof(folded_line), line_compare);
    for (size_t i = 0; is_good && i < lines.count; i++)
        put_line(sink->file, recording, (const folded_line *)lines.data + i);
    lochi_array_free(&sizes);
    lochi_array_free(&lines);
    lochi_table_free(&places);
    return is_good ? LOCH_OK : lochi_insight_no_memory(sink->path);
}

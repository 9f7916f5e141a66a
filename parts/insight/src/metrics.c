/* SPDX-License-Identifier: MIT */
/* OpenMetrics text: figures of a whole recording, by allocator and tag, device, and driver call. Gauges are as they are
 * at the end; counters count from the start. */
#include "kit/utf8.h"
#include "format.h"
#include <stdlib.h>
#include <string.h>

/* Figures of one allocator and tag, one device, or one device and call. */
typedef struct metrics_row {
    uint32_t first, second; /* indices of names */
    uint64_t live, peak;    /* bytes */
    uint64_t blocks;        /* live blocks */
    uint64_t made, gone;    /* allocations and frees; calls */
    uint64_t bytes;         /* sum of all allocations; nanoseconds of calls */
} metrics_row;

typedef struct metrics_table {
    lochi_array rows;   /* of metrics_row */
    lochi_table places; /* both indices -> row */
} metrics_table;

typedef struct metrics_figures {
    metrics_table tags;     /* allocator, tag */
    metrics_table devices;  /* device */
    metrics_table calls;    /* device, call */
    metrics_table failures; /* allocator */
    lochi_array sizes;      /* of uint64_t: present bytes of each block */
    metrics_row nothing;    /* written to after a failure, never read */
    bool is_good;
} metrics_figures;

static metrics_row *table_get(metrics_figures *figures, metrics_table *table, uint32_t first, uint32_t second)
{
    const uint64_t key = (uint64_t)first << 32 | second;
    uint32_t place = lochi_table_find(&table->places, key);
    if (place == UINT32_MAX) {
        const metrics_row row = {.first = first, .second = second};
        place = (uint32_t)table->rows.count;
        if (!lochi_array_append(&table->rows, &row, 1, sizeof row) || !lochi_table_set(&table->places, key, place)) {
            figures->is_good = false;
            return &figures->nothing;
        }
    }
    return (metrics_row *)table->rows.data + place;
}

static void row_resize(metrics_row *row, uint64_t before, uint64_t after)
{
    row->live += after - before;
    if (row->live > row->peak) row->peak = row->live;
}

static void figures_add(metrics_figures *figures, const loch_recording *recording, const loch_recording_event *event)
{
    const loch_recording_block *blocks = recording->blocks.data;
    uint64_t *bytes = figures->sizes.data;
    metrics_row *row;
    switch (event->kind) {
    case LOCH_RECORDED_ALLOC:
    case LOCH_RECORDED_FREE:
    case LOCH_RECORDED_RESIZE: {
        const loch_recording_block *block = &blocks[event->subject];
        const uint64_t after = event->kind == LOCH_RECORDED_FREE ? 0 : event->value;
        row = table_get(figures, &figures->tags, block->allocator, block->tag);
        row_resize(row, bytes[event->subject], after);
        if (event->kind == LOCH_RECORDED_ALLOC) {
            row->blocks++;
            if (!block->is_present) {
                row->made++;
                row->bytes += event->value;
            }
        } else if (event->kind == LOCH_RECORDED_FREE) {
            row->blocks--;
            row->gone++;
        }
        bytes[event->subject] = after;
        break;
    }
    case LOCH_RECORDED_TAKE:
        row = table_get(figures, &figures->devices, event->stream, 0);
        row_resize(row, 0, event->value);
        row->made++;
        break;
    case LOCH_RECORDED_GIVE:
        row = table_get(figures, &figures->devices, event->stream, 0);
        row_resize(row, event->value, 0);
        row->gone++;
        break;
    case LOCH_RECORDED_CALL:
        row = table_get(figures, &figures->calls, event->stream, event->subject);
        row->made++;
        row->bytes += event->value;
        break;
    case LOCH_RECORDED_FAIL: table_get(figures, &figures->failures, event->subject, 0)->made++; break;
    default: break;
    }
}

/* --- writing --- */

/* One family of metrics: a name, what it is, and where its values are. */
typedef struct metrics_family {
    const char *name, *type, *unit, *help;
    size_t value; /* offset in metrics_row */
} metrics_family;

static void put_head(FILE *file, const char *name, const char *type, const char *unit, const char *help)
{
    fprintf(file, "# TYPE %s %s\n", name, type);
    if (*unit) fprintf(file, "# UNIT %s %s\n", name, unit);
    fprintf(file, "# HELP %s %s\n", name, help);
}

/* Writes a label: name="text". */
static void put_label(FILE *file, const char *name, const char *text)
{
    fprintf(file, "%s=\"", name);
    for (size_t left = strlen(text); left;) {
        const size_t length = lochi_utf8_length(text, left);
        if (*text == '\n')
            fputs("\\n", file);
        else if (!length || lochi_utf8_control(text))
            putc_unlocked('?', file);
        else if (*text == '"' || *text == '\\')
            fprintf(file, "\\%c", *text);
        else
            fwrite(text, 1, length, file);
        text += length ? length : 1;
        left -= length ? length : 1;
    }
    putc_unlocked('"', file);
}

static void put_value(FILE *file, const metrics_family *family, uint64_t value)
{
    if (!strcmp(family->unit, "seconds"))
        fprintf(file, " %llu.%09llu\n", (unsigned long long)(value / 1000000000),
                (unsigned long long)(value % 1000000000));
    else
        fprintf(file, " %llu\n", (unsigned long long)value);
}

typedef struct metrics_labels {
    const char *first, *second; /* names of labels; `second` may be NULL */
    loch_recording_noun first_noun, second_noun;
} metrics_labels;

static void put_table(FILE *file, const loch_recording *recording, const metrics_table *table,
                      const metrics_labels *labels, const metrics_family *families, size_t count)
{
    for (size_t i = 0; i < count && table->rows.count; i++) {
        const metrics_family *family = &families[i];
        put_head(file, family->name, family->type, family->unit, family->help);
        for (size_t j = 0; j < table->rows.count; j++) {
            const metrics_row *row = (const metrics_row *)table->rows.data + j;
            fprintf(file, "%s%s{", family->name, *family->type == 'c' ? "_total" : "");
            put_label(file, labels->first, loch_recording_get_name(recording, labels->first_noun, row->first));
            if (labels->second) {
                putc_unlocked(',', file);
                put_label(file, labels->second, loch_recording_get_name(recording, labels->second_noun, row->second));
            }
            putc_unlocked('}', file);
            put_value(file, family, *(const uint64_t *)((const char *)row + family->value));
        }
    }
}

static void put_single(FILE *file, const metrics_family *family, uint64_t value)
{
    put_head(file, family->name, family->type, family->unit, family->help);
    fprintf(file, "%s%s", family->name, *family->type == 'c' ? "_total" : "");
    put_value(file, family, value);
}

static void put_figures(FILE *file, const loch_recording *recording, const metrics_figures *figures)
{
    static const metrics_family by_tag[] = {
        {"loch_requested_bytes", "gauge", "bytes", "Bytes that the program holds.", offsetof(metrics_row, live)},
        {"loch_requested_peak_bytes", "gauge", "bytes", "Most bytes of this allocator and tag that the program held.",
         offsetof(metrics_row, peak)},
        {"loch_blocks", "gauge", "", "Blocks that the program holds.", offsetof(metrics_row, blocks)},
        {"loch_allocations", "counter", "", "Allocations.", offsetof(metrics_row, made)},
        {"loch_frees", "counter", "", "Frees.", offsetof(metrics_row, gone)},
        {"loch_allocated_bytes", "counter", "bytes", "Sum of the bytes of all allocations.",
         offsetof(metrics_row, bytes)},
    };
    static const metrics_family by_device[] = {
        {"loch_reserved_bytes", "gauge", "bytes", "Bytes taken from the driver.", offsetof(metrics_row, live)},
        {"loch_reserved_peak_bytes", "gauge", "bytes", "Most bytes taken from the driver at a time.",
         offsetof(metrics_row, peak)},
        {"loch_ranges_taken", "counter", "", "Ranges of memory taken from the driver.", offsetof(metrics_row, made)},
        {"loch_ranges_given", "counter", "", "Ranges of memory given back to the driver.", offsetof(metrics_row, gone)},
    };
    static const metrics_family by_call[] = {
        {"loch_driver_calls", "counter", "", "Calls of the driver.", offsetof(metrics_row, made)},
        {"loch_driver_seconds", "counter", "seconds", "Time in calls of the driver.", offsetof(metrics_row, bytes)},
    };
    static const metrics_family by_allocator[] = {
        {"loch_failures", "counter", "", "Requests that failed in the end.", offsetof(metrics_row, made)},
    };
    static const metrics_family alone[] = {
        {"loch_peak_bytes", "gauge", "bytes", "Most bytes that the program held at a time.", 0},
        {"loch_duration_seconds", "gauge", "seconds", "Length of the recording.", 0},
        {"loch_lost_events", "counter", "", "Events that the recorder lost.", 0},
    };
    put_single(file, &alone[0], recording->info.peak_requested);
    put_single(file, &alone[1], recording->info.duration_ns);
    put_single(file, &alone[2], recording->info.lost);
#define COUNT(array) (sizeof array / sizeof *array)
    put_table(file, recording, &figures->tags,
              &(metrics_labels){"allocator", "tag", LOCH_RECORDING_ALLOCATOR, LOCH_RECORDING_TAG}, by_tag,
              COUNT(by_tag));
    put_table(file, recording, &figures->devices,
              &(metrics_labels){.first = "device", .first_noun = LOCH_RECORDING_DEVICE}, by_device, COUNT(by_device));
    put_table(file, recording, &figures->calls,
              &(metrics_labels){"device", "call", LOCH_RECORDING_DEVICE, LOCH_RECORDING_CALL}, by_call, COUNT(by_call));
    put_table(file, recording, &figures->failures,
              &(metrics_labels){.first = "allocator", .first_noun = LOCH_RECORDING_ALLOCATOR}, by_allocator,
              COUNT(by_allocator));
#undef COUNT
    fputs("# EOF\n", file);
}

loch_status lochi_insight_write_metrics(const loch_recording *recording, const loch_recording_options *options,
                                        insight_sink *sink)
{
    metrics_figures figures = {.is_good = true};
    metrics_table *const tables[] = {&figures.tags, &figures.devices, &figures.calls, &figures.failures};
    (void)options;
    figures.is_good = lochi_array_reserve(&figures.sizes, recording->blocks.count, sizeof(uint64_t));
    for (size_t i = 0; figures.is_good && i < recording->events.count; i++)
        figures_add(&figures, recording, (const loch_recording_event *)recording->events.data + i);
    if (figures.is_good) put_figures(sink->file, recording, &figures);
    for (size_t i = 0; i < sizeof tables / sizeof *tables; i++) {
        lochi_array_free(&tables[i]->rows);
        lochi_table_free(&tables[i]->places);
    }
    lochi_array_free(&figures.sizes);
    return figures.is_good ? LOCH_OK : lochi_insight_no_memory(sink->path);
}

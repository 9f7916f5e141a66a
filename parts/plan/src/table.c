/* SPDX-License-Identifier: MIT */
/* Problems in tables of comma-separated values, in the format of MiniMalloc. */
#include "memory.h"
#include "problem.h"
#include "text.h"
#include "kit/cancel.h"
#include "kit/fail.h"
#include <inttypes.h>
#include <string.h>

typedef enum table_column {
    COLUMN_ID,
    COLUMN_LOWER,
    COLUMN_UPPER,
    COLUMN_SIZE,
    COLUMN_ALIGNMENT,
    COLUMN_OFFSET,
    COLUMN_GAPS,
    COLUMN_HINT,
    COLUMN_COUNT
} table_column;

typedef struct table_name {
    const char *name;
    table_column column;
    uint32_t is_inclusive;
} table_name;

static const table_name table_names[] = {
    {"id", COLUMN_ID, 0},         {"buffer", COLUMN_ID, 0},           {"buffer_id", COLUMN_ID, 0},
    {"lower", COLUMN_LOWER, 0},   {"begin", COLUMN_LOWER, 0},         {"start", COLUMN_LOWER, 0},
    {"upper", COLUMN_UPPER, 0},   {"end", COLUMN_UPPER, 1},           {"size", COLUMN_SIZE, 0},
    {"offset", COLUMN_OFFSET, 0}, {"alignment", COLUMN_ALIGNMENT, 0}, {"gaps", COLUMN_GAPS, 0},
    {"hint", COLUMN_HINT, 0},
};

/* A problem with the memory behind it. */
typedef struct table {
    loch_plan_problem problem; /* the caller's */
    char *text;
    loch_plan_buffer *buffers;
    const char **names;
    loch_plan_gap *gaps;
    size_t *gap_starts; /* by buffer: its first gap */
    size_t buffers_capacity, names_capacity, gaps_capacity, gap_starts_capacity, gaps_count;
    const char *path;
    size_t line;
    int columns[COLUMN_COUNT]; /* place in a line, or -1 */
    int columns_count;
    uint64_t addend; /* 1: ends are included */
} table;

#define TABLE_FIELDS_MAX COLUMN_COUNT

typedef struct table_field {
    char *text, *end;
} table_field;

static loch_status table_fail(const table *t, const char *reason)
{
    return LOCH_FAIL(INVALID, "%s: line %zu: %s", t->path, t->line, reason);
}

static loch_status table_no_memory(const table *t)
{
    return LOCH_FAIL(HOST_MEMORY, "%s: there is no memory for its buffers", t->path);
}

/* Splits a line at commas. Returns the number of fields; one more than TABLE_FIELDS_MAX stands for too many. */
static int table_split(char *line, char *end, table_field *fields)
{
    int count = 0;
    for (char *at = line;; at++) {
        if (at < end && *at != ',') continue;
        if (count == TABLE_FIELDS_MAX) return count + 1;
        fields[count++] = (table_field){line, at};
        if (at == end) return count;
        line = at + 1;
    }
}

static loch_status table_read_head(table *t, const table_field *fields, int count)
{
    for (int i = 0; i < COLUMN_COUNT; i++)
        t->columns[i] = -1;
    if (count > TABLE_FIELDS_MAX) return table_fail(t, "there are more columns than names of columns");
    for (int i = 0; i < count; i++) {
        const size_t length = (size_t)(fields[i].end - fields[i].text);
        const table_name *found = NULL;
        for (size_t j = 0; j < sizeof table_names / sizeof *table_names; j++)
            if (strlen(table_names[j].name) == length && !memcmp(table_names[j].name, fields[i].text, length))
                found = &table_names[j];
        if (!found) return table_fail(t, "the name of a column is not known");
        if (t->columns[found->column] >= 0) return table_fail(t, "a column is there twice");
        t->columns[found->column] = i;
        if (found->is_inclusive) t->addend = 1;
    }
    for (int i = COLUMN_ID; i <= COLUMN_SIZE; i++)
        if (t->columns[i] < 0) return table_fail(t, "the columns id, lower, upper and size are needed");
    t->columns_count = count;
    return LOCH_OK;
}

static bool table_number(const table *t, const table_field *fields, table_column column, uint64_t *out)
{
    const table_field *field = &fields[t->columns[column]];
    return lochi_plan_text_number(field->text, field->end, out);
}

/* Parses `FIRST-LAST` or `FIRST-LAST@BEGIN:END`. */
static bool table_parse_gap(const table *t, const char *text, const char *end, loch_plan_gap *out)
{
    const char *at = memchr(text, '@', (size_t)(end - text)), *stop = at ? at : end;
    const char *dash = memchr(text, '-', (size_t)(stop - text));
    *out = (loch_plan_gap){.first = 0};
    if (!dash || !lochi_plan_text_number(text, dash, &out->first) ||
        !lochi_plan_text_number(dash + 1, stop, &out->last))
        return false;
    if (out->last > UINT64_MAX - t->addend) return false;
    out->last += t->addend;
    if (!at) return true;
    const char *colon = memchr(at, ':', (size_t)(end - at));
    return colon && lochi_plan_text_number(at + 1, colon, &out->window_begin) &&
           lochi_plan_text_number(colon + 1, end, &out->window_end);
}

static loch_status table_read_gaps(table *t, const table_field *field, loch_plan_buffer *buffer)
{
    for (const char *at = field->text; at < field->end;) {
        const char *space = memchr(at, ' ', (size_t)(field->end - at)), *end = space ? space : field->end;
        if (end > at) {
            loch_plan_gap gap;
            if (!table_parse_gap(t, at, end, &gap))
                return table_fail(t, "a gap is not FIRST-LAST or FIRST-LAST@BEGIN:END");
            if (!lochi_plan_grow((void **)&t->gaps, &t->gaps_capacity, t->gaps_count + 1, sizeof *t->gaps) ||
                buffer->gaps_count == UINT32_MAX / 4)
                return table_no_memory(t);
            t->gaps[t->gaps_count++] = gap;
            buffer->gaps_count++;
        }
        at = end + 1;
    }
    return LOCH_OK;
}

static loch_status table_read_line(table *t, table_field *fields, int count)
{
    loch_plan_buffer buffer = {.bytes = 0};
    const size_t index = t->problem.count, gaps = t->gaps_count;
    if (count != t->columns_count) return table_fail(t, "the number of fields differs from the number of columns");
    if (!table_number(t, fields, COLUMN_LOWER, &buffer.first) || !table_number(t, fields, COLUMN_UPPER, &buffer.last) ||
        buffer.last > UINT64_MAX - t->addend)
        return table_fail(t, "a time is not a number");
    buffer.last += t->addend;
    if (buffer.first >= buffer.last) return table_fail(t, "the buffer ends before it starts");
    if (!table_number(t, fields, COLUMN_SIZE, &buffer.bytes) || !buffer.bytes)
        return table_fail(t, "the size is not a number, or 0");
    if (t->columns[COLUMN_ALIGNMENT] >= 0 &&
        (!table_number(t, fields, COLUMN_ALIGNMENT, &buffer.alignment) || !buffer.alignment))
        return table_fail(t, "the alignment is not a number, or 0");
    if (t->columns[COLUMN_OFFSET] >= 0) {
        const table_field *field = &fields[t->columns[COLUMN_OFFSET]];
        const bool is_free = field->end - field->text == 2 && !memcmp(field->text, "-1", 2);
        if (!is_free && !lochi_plan_text_number(field->text, field->end, &buffer.offset))
            return table_fail(t, "the offset is not a number, or -1 for none");
        buffer.place = is_free ? LOCH_PLAN_ANYWHERE : LOCH_PLAN_FIXED;
    }
    if (t->columns[COLUMN_GAPS] >= 0) {
        const loch_status status = table_read_gaps(t, &fields[t->columns[COLUMN_GAPS]], &buffer);
        if (status != LOCH_OK) return status;
    }
    if (!lochi_plan_grow((void **)&t->buffers, &t->buffers_capacity, index + 1, sizeof *t->buffers) ||
        !lochi_plan_grow((void **)&t->names, &t->names_capacity, index + 1, sizeof *t->names) ||
        !lochi_plan_grow((void **)&t->gap_starts, &t->gap_starts_capacity, index + 1, sizeof *t->gap_starts))
        return table_no_memory(t);
    *fields[t->columns[COLUMN_ID]].end = 0;
    t->names[index] = fields[t->columns[COLUMN_ID]].text;
    t->gap_starts[index] = gaps;
    t->buffers[index] = buffer;
    t->problem.count++;
    return LOCH_OK;
}

static loch_status table_read(table *t, size_t bytes)
{
    table_field fields[TABLE_FIELDS_MAX];
    loch_status status = LOCH_OK;
    char *const stop = t->text + bytes;
    for (char *line = t->text; line < stop && status == LOCH_OK;) {
        char *end = memchr(line, '\n', (size_t)(stop - line)), *next;
        end = end ? end : stop;
        next = end + 1;
        if (end > line && end[-1] == '\r') end--;
        t->line++;
        if (end > line && *line != '#') {
            const int count = table_split(line, end, fields);
            status = t->columns_count ? table_read_line(t, fields, count) : table_read_head(t, fields, count);
        }
        line = next;
    }
    if (status == LOCH_OK && !t->columns_count) status = table_fail(t, "there is no line with the names of columns");
    for (size_t i = 0; i < t->problem.count && status == LOCH_OK; i++)
        if (t->buffers[i].gaps_count) t->buffers[i].gaps = &t->gaps[t->gap_starts[i]];
    t->problem.buffers = t->buffers;
    t->problem.names = t->names;
    return status == LOCH_OK ? lochi_plan_problem_check(&t->problem) : status;
}

loch_status loch_plan_problem_load(const char *path, loch_plan_problem **out)
{
    LOCHI_NOT_CANCELLED;
    size_t bytes;
    if (!path || !out) return LOCH_FAIL(INVALID, "a path and a place for the problem are needed");
    *out = NULL;
    table *t = lochi_plan_alloc(1, sizeof *t);
    if (!t) return LOCH_FAIL(HOST_MEMORY, "%s: there is no memory to read it", path);
    t->problem.size = sizeof t->problem;
    t->path = path;
    loch_status status = lochi_plan_text_read(path, &t->text, &bytes);
    if (status == LOCH_OK) status = table_read(t, bytes);
    lochi_plan_free(t->gap_starts);
    t->gap_starts = NULL;
    if (status == LOCH_OK)
        *out = &t->problem;
    else
        loch_plan_problem_destroy(&t->problem);
    return status;
}

void loch_plan_problem_destroy(loch_plan_problem *problem)
{
    if (!problem) return;
    table *t = (table *)(void *)problem; /* the problem is its first member */
    lochi_plan_free(t->text);
    lochi_plan_free(t->buffers);
    lochi_plan_free(t->names);
    lochi_plan_free(t->gaps);
    lochi_plan_free(t->gap_starts);
    lochi_plan_free(t);
}

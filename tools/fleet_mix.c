/* SPDX-License-Identifier: MIT */
#include "fleet_mix.h"
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#define MIX_WORD_MAX (FLEET_PATH_MAX + 64)
#define MIX_WEIGHT_MAX 1e9

/* --- numbers --- */

bool fleet_parse_real(const char *text, double least, double most, double *out)
{
    char *end = NULL;
    if (!text || strspn(text, "0123456789.") != strlen(text) || !*text || strlen(text) > 30) return false;
    *out = strtod(text, &end);
    return !*end && *out >= least && *out <= most;
}

bool fleet_parse_bytes(const char *text, uint64_t *out)
{
    static const struct {
        const char *name;
        uint64_t bytes;
    } units[] = {{"", 1},
                 {"B", 1},
                 {"K", UINT64_C(1) << 10},
                 {"KiB", UINT64_C(1) << 10},
                 {"KB", 1000},
                 {"M", UINT64_C(1) << 20},
                 {"MiB", UINT64_C(1) << 20},
                 {"MB", 1000000},
                 {"G", UINT64_C(1) << 30},
                 {"GiB", UINT64_C(1) << 30},
                 {"GB", 1000000000},
                 {"T", UINT64_C(1) << 40},
                 {"TiB", UINT64_C(1) << 40},
                 {"TB", UINT64_C(1000000000000)}};
    char number[32];
    double value;
    const size_t length = text ? strspn(text, "0123456789.") : 0;
    if (!length || length >= sizeof number) return false;
    memcpy(number, text, length);
    number[length] = 0;
    if (!fleet_parse_real(number, 0, 0x1p52, &value)) return false;
    for (size_t i = 0; i < sizeof units / sizeof *units; i++) {
        if (strcasecmp(text + length, units[i].name) != 0) continue;
        value *= (double)units[i].bytes;
        if (value < 1 || value > 0x1p62 || value != floor(value)) return false;
        *out = (uint64_t)value;
        return true;
    }
    return false;
}

/* Parses "20%" or "0.2" into thousandths. */
static bool mix_parse_compute(const char *text, uint64_t *out)
{
    char number[32];
    const size_t length = strlen(text);
    const bool is_percent = length && text[length - 1] == '%';
    double value;
    if (length >= sizeof number) return false;
    memcpy(number, text, length + 1);
    if (is_percent) number[length - 1] = 0;
    if (!fleet_parse_real(number, 0, is_percent ? 100 : 1, &value)) return false;
    *out = (uint64_t)ceil(value * (is_percent ? 10 : 1000) - 1e-9); /* 0.3 * 1000 is a little more than 300 */
    return true;
}

/* --- entries --- */

/* Ignores the length of a sentence: a long one is cut. */
static bool mix_refuse(int length)
{
    (void)length;
    return false;
}

/* Notes why a mix is refused; false. */
#define MIX_FAIL(mix, ...) mix_refuse(snprintf((mix)->error, sizeof(mix)->error, __VA_ARGS__))

static bool mix_has_name(const fleet_mix *mix, const char *name)
{
    for (size_t i = 0; i < mix->count; i++)
        if (!strcmp(mix->entries[i].name, name)) return true;
    return false;
}

/* Makes a name of the file's: without folders, and without what follows the first point. A second program of the same
 * name gets a number. */
static void mix_name(const fleet_mix *mix, fleet_entry *entry)
{
    const char *slash = strrchr(entry->path, '/'), *base = slash ? slash + 1 : entry->path;
    int length = (int)strcspn(base, ".");
    if (!length) length = (int)strlen(base);
    if (length > FLEET_NAME_MAX - 8) length = FLEET_NAME_MAX - 8;
    snprintf(entry->name, sizeof entry->name, "%.*s", length, base);
    for (unsigned number = 2; mix_has_name(mix, entry->name); number++)
        snprintf(entry->name, sizeof entry->name, "%.*s-%u", length, base, number);
}

/* Appends an entry without a path. Returns NULL with a sentence in `error`. */
static fleet_entry *mix_append(fleet_mix *mix)
{
    if (mix->count == FLEET_PROGRAMS_MAX) {
        MIX_FAIL(mix, "a mix has at most %d programs", FLEET_PROGRAMS_MAX);
        return NULL;
    }
    if (!mix->entries) mix->entries = calloc(FLEET_PROGRAMS_MAX, sizeof *mix->entries);
    if (!mix->entries) {
        MIX_FAIL(mix, "there is no memory for the mix");
        return NULL;
    }
    mix->entries[mix->count] = (fleet_entry){.weight = 1};
    return &mix->entries[mix->count];
}

bool fleet_mix_add(fleet_mix *mix, const char *program)
{
    const char *colon = strrchr(program, ':');
    double weight = 1;
    if (colon && !fleet_parse_real(colon + 1, 0, MIX_WEIGHT_MAX, &weight)) {
        if (strchr(colon, '/')) /* a folder with a colon in its name */
            colon = NULL;
        else
            return MIX_FAIL(mix, "\"%s\" is not a weight", colon + 1);
    }
    if (weight <= 0) return MIX_FAIL(mix, "the weight of a program is above 0");
    const size_t length = colon ? (size_t)(colon - program) : strlen(program);
    if (!length || length >= FLEET_PATH_MAX || program[length - 1] == '/')
        return MIX_FAIL(mix, "\"%.64s\" does not name a trace", program);
    fleet_entry *entry = mix_append(mix);
    if (!entry) return false;
    memcpy(entry->path, program, length);
    entry->weight = weight;
    mix_name(mix, entry);
    mix->count++;
    return true;
}

/* --- lines --- */

/* The mix while it is read. */
typedef struct mix_reader {
    const char *at, *end; /* of the present line */
    const char *path;
    size_t folder; /* length of the folder's part of `path` */
    unsigned line;
    char word[MIX_WORD_MAX];
} mix_reader;

static bool mix_is_blank(char character)
{
    return character == ' ' || character == '\t' || character == '\r';
}

/* Reads the next word of the line. Quotation marks may surround a word, or a part of it. Returns 1 for a word, 0 at the
 * end of the line, -1 for a word that is not ended, too long, or not text. */
static int mix_next_word(mix_reader *reader)
{
    while (reader->at < reader->end && mix_is_blank(*reader->at))
        reader->at++;
    if (reader->at == reader->end || *reader->at == '#') return 0;
    size_t length = 0;
    bool is_quoted = false;
    for (; reader->at < reader->end && (is_quoted || !mix_is_blank(*reader->at)); reader->at++) {
        if (*reader->at == '"') {
            is_quoted = !is_quoted;
            continue;
        }
        if ((unsigned char)*reader->at < 0x20 || length + 1 == sizeof reader->word) return -1;
        reader->word[length++] = *reader->at;
    }
    reader->word[length] = 0;
    return is_quoted ? -1 : 1;
}

static bool mix_read_path(fleet_mix *mix, const mix_reader *reader, fleet_entry *entry)
{
    const size_t folder = *reader->word == '/' ? 0 : reader->folder, length = strlen(reader->word);
    if (!length || folder + length >= sizeof entry->path)
        return MIX_FAIL(mix, "%s: line %u: the name of the trace is %s", reader->path, reader->line,
                        length ? "too long" : "empty");
    if (reader->word[length - 1] == '/')
        return MIX_FAIL(mix, "%s: line %u: \"%.64s\" is a folder, not a trace", reader->path, reader->line,
                        reader->word);
    memcpy(entry->path, reader->path, folder);
    memcpy(entry->path + folder, reader->word, length + 1);
    return true;
}

static bool mix_read_property(fleet_mix *mix, const mix_reader *reader, fleet_entry *entry)
{
    const char *word = reader->word, *value = strchr(word, '=');
    const size_t length = value ? (size_t)(value - word) : 0;
    bool is_good;
    if (length == 6 && !strncmp(word, "weight", length)) {
        is_good = fleet_parse_real(value + 1, 0, MIX_WEIGHT_MAX, &entry->weight) && entry->weight > 0;
    } else if (length == 5 && !strncmp(word, "limit", length)) {
        is_good = fleet_parse_bytes(value + 1, &entry->limit_bytes);
    } else if (length == 7 && !strncmp(word, "compute", length)) {
        is_good = mix_parse_compute(value + 1, &entry->compute);
    } else if (length == 4 && !strncmp(word, "name", length)) {
        is_good = value[1] && strlen(value + 1) < sizeof entry->name;
        if (is_good) memcpy(entry->name, value + 1, strlen(value + 1) + 1);
    } else {
        return MIX_FAIL(mix, "%s: line %u: \"%.64s\" is not weight=, limit=, compute= or name=", reader->path,
                        reader->line, word);
    }
    return is_good ||
           MIX_FAIL(mix, "%s: line %u: \"%.64s\" has a value that is not understood", reader->path, reader->line, word);
}

/* Reads a line that is not empty; its first word is in the reader. */
static bool mix_read_line(fleet_mix *mix, mix_reader *reader)
{
    fleet_entry *entry = mix_append(mix);
    if (!entry) return false;
    if (!mix_read_path(mix, reader, entry)) return false;
    int found;
    while ((found = mix_next_word(reader)) > 0)
        if (!mix_read_property(mix, reader, entry)) return false;
    if (found < 0) return MIX_FAIL(mix, "%s: line %u: a word is not ended or not text", reader->path, reader->line);
    if (!*entry->name)
        mix_name(mix, entry);
    else if (mix_has_name(mix, entry->name))
        return MIX_FAIL(mix, "%s: line %u: there are two programs \"%s\"", reader->path, reader->line, entry->name);
    mix->count++;
    return true;
}

bool fleet_mix_parse(fleet_mix *mix, const char *text, size_t bytes, const char *path)
{
    const char *slash = strrchr(path, '/'), *end = text + bytes;
    mix_reader reader = {.path = path, .folder = slash ? (size_t)(slash + 1 - path) : 0};
    for (const char *line = text; line < end; line = reader.end + 1) {
        const char *newline = memchr(line, '\n', (size_t)(end - line));
        reader.at = line;
        reader.end = newline ? newline : end;
        reader.line++;
        const int found = mix_next_word(&reader);
        if (found < 0) return MIX_FAIL(mix, "%s: line %u: a word is not ended or not text", path, reader.line);
        if (found && !mix_read_line(mix, &reader)) return false;
    }
    return true;
}

bool fleet_mix_load(fleet_mix *mix, const char *path)
{
    FILE *file = fopen(path, "re");
    if (!file) return MIX_FAIL(mix, "%s: %s", path, strerror(errno));
    char *text = malloc(FLEET_MIX_BYTES_MAX + 1);
    const size_t bytes = text ? fread(text, 1, FLEET_MIX_BYTES_MAX + 1, file) : 0;
    bool is_good;
    if (!text)
        is_good = MIX_FAIL(mix, "there is no memory for the mix");
    else if (ferror(file))
        is_good = MIX_FAIL(mix, "%s: the file cannot be read", path);
    else if (bytes > FLEET_MIX_BYTES_MAX)
        is_good = MIX_FAIL(mix, "%s: a mix is a small text; traces are named in it or by --program", path);
    else
        is_good = fleet_mix_parse(mix, text, bytes, path);
    free(text);
    fclose(file);
    return is_good;
}

void fleet_mix_free(fleet_mix *mix)
{
    free(mix->entries);
    mix->entries = NULL;
    mix->count = 0;
}

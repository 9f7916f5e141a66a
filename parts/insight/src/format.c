/* SPDX-License-Identifier: MIT */
/* Chooses the reader by the contents of a file, and the writer by the ending of its name. */
#include "format.h"
#include "kit/cancel.h"
#include "kit/fail.h"
#include "kit/sized.h"
#include <string.h>

typedef struct format_row {
    lochi_insight_reader *read;
    lochi_insight_writer *write;
    const char *ending;
    const char *name;
} format_row;

static const format_row format_table[] = {
    [LOCH_RECORDING_TEXT] = {lochi_insight_read_text, lochi_insight_write_text, ".trace", "trace"},
    [LOCH_RECORDING_BINARY] = {lochi_insight_read_binary, lochi_insight_write_binary, ".loch", "recording"},
    [LOCH_RECORDING_TORCH] = {lochi_insight_read_torch, lochi_insight_write_torch, ".pickle",
                              "memory snapshot of PyTorch"},
    [LOCH_RECORDING_CHROME] = {NULL, lochi_insight_write_chrome, ".json", "Chrome trace"},
    [LOCH_RECORDING_FOLDED] = {NULL, lochi_insight_write_folded, ".folded", "list of folded stacks"},
    [LOCH_RECORDING_METRICS] = {NULL, lochi_insight_write_metrics, ".prom", "list of metrics"},
    [LOCH_RECORDING_SNAPSHOT] = {lochi_insight_read_snapshot, NULL, NULL, "snapshot"},
};

#define FORMAT_COUNT (sizeof format_table / sizeof *format_table)

static loch_recording_format format_detect(const insight_source *source)
{
    if (source->bytes >= 8 && !memcmp(source->data, "lochrec1", 8)) return LOCH_RECORDING_BINARY;
    if (source->bytes && source->data[0] == 0x80) return LOCH_RECORDING_TORCH; /* PROTO, of a pickle */
    for (size_t i = 0; i < source->bytes; i++) {
        if (strchr(" \t\r\n", source->data[i])) continue;
        return source->data[i] == '{' ? LOCH_RECORDING_SNAPSHOT : LOCH_RECORDING_TEXT;
    }
    return LOCH_RECORDING_TEXT;
}

static bool format_ends_with(const char *path, size_t length, const char *ending)
{
    const size_t bytes = strlen(ending);
    return length >= bytes && !memcmp(path + length - bytes, ending, bytes);
}

static loch_recording_format format_of_path(const char *path)
{
    size_t length = strlen(path);
    if (format_ends_with(path, length, ".gz")) length -= 3;
    if (format_ends_with(path, length, ".zst")) length -= 4;
    for (size_t i = 0; i < FORMAT_COUNT; i++)
        if (format_table[i].ending && format_ends_with(path, length, format_table[i].ending))
            return (loch_recording_format)i;
    const char *slash = memrchr(path, '/', length), *name = slash ? slash + 1 : path;
    const bool has_ending = memchr(name, '.', length - (size_t)(name - path)) != NULL;
    return has_ending && !format_ends_with(path, length, ".txt") ? LOCH_RECORDING_AUTO : LOCH_RECORDING_TEXT;
}

/* Says what a file is that is no recording, by its first bytes; NULL if that is not known. */
static const char *format_guess(const insight_source *source)
{
    static const struct {
        const char *start, *name;
    } known[] = {{"\x7f"
                  "ELF",
                  "a program or a library (ELF)"},
                 {"PK\3\4", "a ZIP archive, as torch.save writes it"},
                 {"\x1f\x8b", "gzip's format; name the file, so that it is unpacked"},
                 {"\x28\xb5\x2f\xfd", "zstd's format; name the file, so that it is unpacked"},
                 {"BZh", "bzip2's format"},
                 {"\xfd"
                  "7zXZ",
                  "xz's format"},
                 {"\x89PNG", "a picture (PNG)"},
                 {"%PDF", "a document (PDF)"},
                 {"\x93NUMPY", "an array of NumPy"},
                 {"SQLite format 3", "a database (SQLite)"},
                 {"<", "HTML or XML"},
                 {"[", "a list in JSON"}};
    for (size_t i = 0; i < sizeof known / sizeof *known; i++) {
        const size_t length = strlen(known[i].start);
        if (source->bytes >= length && !memcmp(source->data, known[i].start, length)) return known[i].name;
    }
    if (source->bytes > 8 && source->data[8] == '{' && !source->data[7]) return "safetensors";
    return memchr(source->data, 0, source->bytes < 512 ? source->bytes : 512) ? "binary data" : NULL;
}

/* Fails for a file that cannot be a recording of the format. */
static loch_status format_refuse(const insight_source *source, loch_recording_format format)
{
    if (!source->bytes)
        return LOCH_FAIL(INVALID, "%s: %s", source->path,
                         strcmp(source->path, "-") != 0 ? "the file is empty" : "standard input is empty");
    const char *guess = format == LOCH_RECORDING_TEXT ? format_guess(source) : NULL;
    if (!guess) return LOCH_OK;
    return LOCH_FAIL(INVALID, "%s: this is no recording: it looks like %s", source->path, guess);
}

static loch_status format_read_options(const loch_recording_options *options, loch_recording_options *out)
{
    *out = (loch_recording_options){.size = sizeof *out};
    LOCH_RETURN(lochi_sized_read("the options of a recording", options, out, sizeof *out));
    if ((unsigned)out->format < FORMAT_COUNT) return LOCH_OK;
    return LOCH_FAIL(INVALID, "options of a recording need a known format");
}

loch_status loch_recording_load(const char *path, const loch_recording_options *options, loch_recording **out)
{
    LOCHI_NOT_CANCELLED;
    loch_recording_options read;
    insight_source source = {.path = path};
    if (out) *out = NULL;
    if (!path || !out) return LOCH_FAIL(INVALID, "a recording needs a path and an out pointer");
    loch_status status = format_read_options(options, &read);
    if (status == LOCH_OK) status = lochi_insight_source_read(path, &source);
    if (status == LOCH_OK && read.format == LOCH_RECORDING_AUTO) read.format = format_detect(&source);
    if (status == LOCH_OK) status = format_refuse(&source, read.format);
    if (status == LOCH_OK && !format_table[read.format].read)
        status = LOCH_FAIL(UNSUPPORTED, "%s: a %s can be written and not read", path, format_table[read.format].name);
    if (status == LOCH_OK) status = lochi_insight_recording_create(path, read.format, out);
    if (status == LOCH_OK) status = format_table[read.format].read(&source, &read, *out);
    if (status == LOCH_OK && read.allocator) status = lochi_insight_recording_keep_allocator(*out, read.allocator);
    if (status == LOCH_OK) status = lochi_insight_recording_finish(*out);
    lochi_insight_source_free(&source);
    if (status == LOCH_OK) return LOCH_OK;
    loch_recording_destroy(*out);
    *out = NULL;
    return status;
}

loch_status loch_recording_save(const loch_recording *recording, const char *path,
                                const loch_recording_options *options)
{
    LOCHI_NOT_CANCELLED;
    loch_recording_options write;
    insight_sink sink = {.path = path};
    if (!recording || !path) return LOCH_FAIL(INVALID, "writing needs a recording and a path");
    loch_status status = format_read_options(options, &write);
    if (status != LOCH_OK) return status;
    if (write.format == LOCH_RECORDING_AUTO) write.format = format_of_path(path);
    if (write.format == LOCH_RECORDING_AUTO)
        return LOCH_FAIL(
            INVALID, "%s: its ending names no format: .trace, .txt, .loch, .pickle, .json, .folded and .prom do", path);
    if (!format_table[write.format].write)
        return LOCH_FAIL(UNSUPPORTED, "%s: a %s can be read and not written", path, format_table[write.format].name);
    status = lochi_insight_sink_open(path, &sink);
    if (status != LOCH_OK) return status;
    return lochi_insight_sink_close(&sink, format_table[write.format].write(recording, &write, &sink));
}

/* SPDX-License-Identifier: MIT */
/* Chooses the reader by the contents of a file, and the writer by the ending of its name. */
#include "format.h"
#include <common/cancel.h>
#include <string.h>

typedef struct format_row {
    insight_reader *read;
    insight_writer *write;
    const char *ending;
    const char *name;
} format_row;

static const format_row format_table[] = {
    [LOCH_RECORDING_TEXT] = {insight_read_text, insight_write_text, ".trace", "trace"},
    [LOCH_RECORDING_BINARY] = {insight_read_binary, insight_write_binary, ".loch", "recording"},
    [LOCH_RECORDING_TORCH] = {insight_read_torch, insight_write_torch, ".pickle", "memory snapshot of PyTorch"},
    [LOCH_RECORDING_CHROME] = {NULL, insight_write_chrome, ".json", "Chrome trace"},
    [LOCH_RECORDING_FOLDED] = {NULL, insight_write_folded, ".folded", "list of folded stacks"},
    [LOCH_RECORDING_METRICS] = {NULL, insight_write_metrics, ".prom", "list of metrics"},
    [LOCH_RECORDING_SNAPSHOT] = {insight_read_snapshot, NULL, NULL, "snapshot"},
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
    for (size_t i = 0; i < FORMAT_COUNT; i++)
        if (format_table[i].ending && format_ends_with(path, length, format_table[i].ending))
            return (loch_recording_format)i;
    return LOCH_RECORDING_TEXT;
}

static loch_status format_read_options(const loch_recording_options *options, loch_recording_options *out)
{
    *out = (loch_recording_options){.size = sizeof *out};
    if (!options) return LOCH_OK;
    if (options->size < sizeof(size_t) + sizeof options->format || (unsigned)options->format >= FORMAT_COUNT)
        return loch_error_set(LOCH_E_INVALID, NULL, 0, "options of a recording need their size and a known format");
    memcpy(out, options, options->size < sizeof *out ? options->size : sizeof *out);
    return LOCH_OK;
}

loch_status loch_recording_load(const char *path, const loch_recording_options *options, loch_recording **out)
{
    LOCHI_NOT_CANCELLED;
    loch_recording_options read;
    insight_source source = {.path = path};
    if (out) *out = NULL;
    if (!path || !out)
        return loch_error_set(LOCH_E_INVALID, NULL, 0, "a recording needs a path and a place for the result");
    loch_status status = format_read_options(options, &read);
    if (status == LOCH_OK) status = insight_source_read(path, &source);
    if (status == LOCH_OK && read.format == LOCH_RECORDING_AUTO) read.format = format_detect(&source);
    if (status == LOCH_OK && !format_table[read.format].read)
        status = loch_error_set(LOCH_E_UNSUPPORTED, NULL, 0, "%s: a %s can be written and not read", path,
                                format_table[read.format].name);
    if (status == LOCH_OK) status = insight_recording_create(path, read.format, out);
    if (status == LOCH_OK) status = format_table[read.format].read(&source, &read, *out);
    if (status == LOCH_OK && read.allocator) status = insight_recording_keep_allocator(*out, read.allocator);
    if (status == LOCH_OK) status = insight_recording_finish(*out);
    insight_source_free(&source);
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
    if (!recording || !path) return loch_error_set(LOCH_E_INVALID, NULL, 0, "writing needs a recording and a path");
    loch_status status = format_read_options(options, &write);
    if (status != LOCH_OK) return status;
    if (write.format == LOCH_RECORDING_AUTO) write.format = format_of_path(path);
    if (!format_table[write.format].write)
        return loch_error_set(LOCH_E_UNSUPPORTED, NULL, 0, "%s: a %s can be read and not written", path,
                              format_table[write.format].name);
    status = insight_sink_open(path, &sink);
    if (status != LOCH_OK) return status;
    return insight_sink_close(&sink, format_table[write.format].write(recording, &write, &sink));
}

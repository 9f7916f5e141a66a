/* SPDX-License-Identifier: MIT */
/* Opens and closes, and answers what is in a file. */
#include "model.h"
#include "common.h"
#include <stdlib.h>

/* --- open and close --- */

/* Returns whether the first eight bytes begin an index: text in the place of the header's length. No valid length has
 * bytes of text in its upper half. */
static bool model_is_index(uint64_t length)
{
    const unsigned char first = (unsigned char)length;
    const bool is_space = first == ' ' || first == '\t' || first == '\n' || first == '\r';
    return length > SAFETENSORS_HEADER_MAX && (first == '{' || is_space);
}

static loch_status model_load_one(loch_safetensors *file, uint64_t length, loch_access access)
{
    safetensors_file *only = file->files;
    LOCH_RETURN(lochi_safetensors_file_load(only, length, access));
    file->by_name = only->header.by_name;
    file->by_place = only->header.by_place;
    file->count = only->header.entries.count;
    file->metadata = &only->header.metadata;
    return LOCH_OK;
}

/* Reads the index with the file that was opened, then closes that. */
static loch_status model_load_index(loch_safetensors *file, loch_access access)
{
    safetensors_file *index = file->files;
    const uint64_t bytes = index->file_bytes;
    if (bytes > SAFETENSORS_HEADER_MAX)
        return LOCH_FAIL(CORRUPT, "%s is not an index: it has %llu bytes, and %llu are read at most",
                         safetensors_tail(file->path), (unsigned long long)bytes,
                         (unsigned long long)SAFETENSORS_HEADER_MAX);
    LOCH_RETURN(lochi_safetensors_file_read_text(index, 0, (size_t)bytes, &file->text));
    lochi_safetensors_file_close(index);
    free(file->files);
    file->files = NULL;
    file->files_count = 0;
    file->is_model = true;
    return lochi_safetensors_index_load(file, (size_t)bytes, access);
}

static loch_status model_load(const char *path, loch_access access, loch_safetensors *file)
{
    uint64_t length;
    file->path = strdup(path);
    file->files = calloc(1, sizeof *file->files);
    if (!file->path || !file->files)
        return LOCH_FAIL(HOST_MEMORY, "no host memory for opening %s", safetensors_tail(path));
    file->files_count = 1;
    file->files->number = -1;
    LOCH_RETURN(lochi_safetensors_file_open(path, file->files));
    LOCH_RETURN(lochi_safetensors_file_read_length(file->files, &length));
    return model_is_index(length) ? model_load_index(file, access) : model_load_one(file, length, access);
}

loch_status loch_safetensors_open(const char *path, const loch_safetensors_options *options, loch_safetensors **out)
{
    LOCHI_NOT_CANCELLED;
    if (out) *out = NULL;
    if (!path || !out) return LOCH_FAIL(INVALID, "opening a safetensors file needs a path and an out pointer");
    loch_safetensors_options read = {.size = sizeof read};
    LOCH_RETURN(lochi_sized_read("the options for safetensors", options, &read, sizeof read));
    if ((unsigned)read.access > LOCH_READ_ONLY)
        return LOCH_FAIL(INVALID, "the options for opening %s have an invalid `access`", safetensors_tail(path));
    loch_safetensors *file = calloc(1, sizeof *file);
    if (!file) return LOCH_FAIL(HOST_MEMORY, "no host memory for opening %s", safetensors_tail(path));
    const loch_status status = model_load(path, read.access, file);
    if (status != LOCH_OK)
        loch_safetensors_close(file);
    else
        *out = file;
    return status;
}

void loch_safetensors_close(loch_safetensors *file)
{
    if (!file) return;
    LOCHI_NOT_CANCELLED;
    for (size_t i = 0; i < file->files_count; i++)
        lochi_safetensors_file_close(&file->files[i]);
    if (file->is_model) {
        free(file->by_name);
        free(file->by_place);
        lochi_safetensors_metadata_free(&file->index_metadata);
    }
    free(file->files);
    free(file->text);
    free(file->path);
    free(file);
}

/* --- contents --- */

static loch_safetensors_info model_describe(const safetensors_entry *entry)
{
    return (loch_safetensors_info){.size = sizeof(loch_safetensors_info),
                                   .name = entry->name,
                                   .type = entry->type_name,
                                   .dtype = entry->type ? entry->type->dtype : LOCH_DTYPE_NONE,
                                   .dimensions = entry->dimensions,
                                   .shape = entry->shape,
                                   .bytes = entry->end - entry->start,
                                   .path = entry->file->path,
                                   .offset = entry->file->data_start + entry->start};
}

/* Finds a tensor. Returns NULL after setting the error record. */
static const safetensors_entry *model_find(const loch_safetensors *file, const char *name)
{
    const safetensors_entry *entry = lochi_safetensors_find_entry(file->by_name, file->count, name);
    if (!entry)
        (void)LOCH_FAIL(NOT_FOUND, "%s has no tensor \"%.60s\" among its %zu", safetensors_tail(file->path), name,
                        file->count);
    return entry;
}

loch_status lochi_safetensors_model_find(const loch_safetensors *file, const char *name, const safetensors_entry **out)
{
    const safetensors_entry *entry = *out = model_find(file, name);
    if (!entry) return LOCH_E_NOT_FOUND;
    if (!entry->type || entry->type->dtype == LOCH_DTYPE_NONE)
        return LOCH_FAIL(UNSUPPORTED, "%s: \"%.60s\" has the type %.20s, which Loch lacks",
                         safetensors_tail(entry->file->path), name, entry->type_name);
    if (entry->dimensions > LOCH_DIMENSIONS_MAX)
        return LOCH_FAIL(UNSUPPORTED, "%s: \"%.60s\" has %zu dimensions; a tensor has at most %d",
                         safetensors_tail(entry->file->path), name, entry->dimensions, LOCH_DIMENSIONS_MAX);
    return LOCH_OK;
}

loch_status loch_safetensors_find(const loch_safetensors *file, const char *name, loch_safetensors_info *out)
{
    if (!file || !name || !out || out->size < sizeof out->size)
        return LOCH_FAIL(INVALID, "loch_safetensors_find needs a file, a name, and a struct whose size is set");
    const safetensors_entry *entry = model_find(file, name);
    if (!entry) return LOCH_E_NOT_FOUND;
    const size_t size = out->size;
    loch_safetensors_info info = model_describe(entry);
    info.size = size;
    memcpy(out, &info, size < sizeof info ? size : sizeof info);
    return LOCH_OK;
}

loch_status loch_safetensors_walk(const loch_safetensors *file, loch_safetensors_visitor *visitor, void *user)
{
    if (!file || !visitor) return LOCH_FAIL(INVALID, "loch_safetensors_walk needs a file and a visitor");
    for (size_t i = 0; i < file->count; i++) {
        const loch_safetensors_info info = model_describe(file->by_place[i]);
        LOCH_RETURN(visitor(&info, user));
    }
    return LOCH_OK;
}

const char *loch_safetensors_get_metadata(const loch_safetensors *file, const char *key)
{
    return file && key ? lochi_safetensors_metadata_find(file->metadata, key) : NULL;
}

loch_status loch_safetensors_walk_metadata(const loch_safetensors *file, loch_safetensors_metadata_visitor *visitor,
                                           void *user)
{
    if (!file || !visitor) return LOCH_FAIL(INVALID, "loch_safetensors_walk_metadata needs a file and a visitor");
    const safetensors_pair *pairs = file->metadata->pairs.items;
    for (size_t i = 0; i < file->metadata->pairs.count; i++)
        LOCH_RETURN(visitor(pairs[i].key, pairs[i].value, user));
    return LOCH_OK;
}

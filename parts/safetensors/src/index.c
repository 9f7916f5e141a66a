/* SPDX-License-Identifier: MIT */
/* The index of a model in several files: "weight_map" says in which file each tensor is, "metadata" is for people. The
 * files lie beside the index. Tensors of the files that the index does not name are left out. */
#include "common.h"
#include "model.h"
#include "sort.h"
#include "kit/json.h"
#include <stdlib.h>

/* An index that is being read. */
typedef struct index_reader {
    loch_safetensors *model;
    lochi_json json;
    safetensors_array weights; /* of safetensors_pair: name of a tensor, name of its file */
    bool has_metadata, has_weights;
    bool is_out_of_memory;
} index_reader;

static loch_status index_no_memory(const loch_safetensors *model)
{
    return LOCH_FAIL(HOST_MEMORY, "no host memory for the index %s", safetensors_tail(model->path));
}

static bool index_add(index_reader *reader, safetensors_array *array, const char *key, const char *value)
{
    safetensors_pair *pair = lochi_safetensors_array_add(array, sizeof *pair);
    if (pair) {
        *pair = (safetensors_pair){key, value};
        return true;
    }
    reader->is_out_of_memory = true;
    return lochi_json_fail(&reader->json, "no host memory");
}

/* Reads the metadata: text, and numbers as they are written. */
static bool index_read_metadata(index_reader *reader)
{
    lochi_json *json = &reader->json;
    if (reader->has_metadata) return lochi_json_fail(json, "there is a second \"metadata\"");
    reader->has_metadata = true;
    if (!lochi_json_open_or(json, '{', "\"metadata\" is not an object")) return false;
    for (const char *key; (key = lochi_json_member_in_place(json));) {
        const char kind = lochi_json_kind(json), *value;
        if (kind == '"') {
            value = lochi_json_text_in_place(json);
        } else if (kind == '0') {
            value = lochi_json_number_in_place(json);
        } else {
            if (!lochi_json_skip(json)) return false;
            continue;
        }
        if (!value || !index_add(reader, &reader->model->index_metadata.pairs, key, value)) return false;
    }
    return !json->wrong;
}

static bool index_read_weights(index_reader *reader)
{
    lochi_json *json = &reader->json;
    if (reader->has_weights) return lochi_json_fail(json, "there is a second \"weight_map\"");
    reader->has_weights = true;
    if (!lochi_json_open_or(json, '{', "\"weight_map\" is not an object")) return false;
    for (const char *name; (name = lochi_json_member_in_place(json));) {
        const char *file = lochi_json_text_in_place(json);
        if (!file || !index_add(reader, &reader->weights, name, file)) return false;
    }
    return !json->wrong;
}

static bool index_read_all(index_reader *reader)
{
    lochi_json *json = &reader->json;
    if (!lochi_json_open_or(json, '{', "an object is expected")) return false;
    for (const char *name; (name = lochi_json_member_in_place(json));) {
        const bool is_good = strcmp(name, "metadata") == 0     ? index_read_metadata(reader)
                             : strcmp(name, "weight_map") == 0 ? index_read_weights(reader)
                                                               : lochi_json_skip(json);
        if (!is_good) return false;
    }
    if (!json->wrong && !reader->has_weights) return lochi_json_fail(json, "there is no \"weight_map\"");
    return lochi_json_end(json);
}

static loch_status index_read(index_reader *reader)
{
    if (index_read_all(reader)) return LOCH_OK;
    if (reader->is_out_of_memory) return index_no_memory(reader->model);
    return LOCH_FAIL(CORRUPT, "the index %s is wrong at byte %zu: %s", safetensors_tail(reader->model->path),
                     reader->json.wrong_at, reader->json.wrong);
}

/* --- files --- */

static int index_compare_files(const void *a, const void *b)
{
    return strcmp(((const safetensors_pair *)a)->value, ((const safetensors_pair *)b)->value);
}

/* Opens a file beside the index. An index cannot lead to another folder. */
static loch_status index_open_file(const loch_safetensors *model, const char *name, loch_access access,
                                   safetensors_file *out)
{
    if (!*name || strchr(name, '/') || strcmp(name, ".") == 0 || strcmp(name, "..") == 0)
        return LOCH_FAIL(CORRUPT, "the index %s names \"%.60s\", which is not a file beside it",
                         safetensors_tail(model->path), name);
    const char *slash = strrchr(model->path, '/');
    const size_t folder = slash ? (size_t)(slash + 1 - model->path) : 0;
    char *path = calloc(folder + strlen(name) + 1, 1);
    if (!path) return index_no_memory(model);
    memcpy(path, model->path, folder);
    strcpy(path + folder, name);
    uint64_t length;
    loch_status status = lochi_safetensors_file_open(path, out);
    if (status == LOCH_OK) status = lochi_safetensors_file_read_length(out, &length);
    if (status == LOCH_OK) status = lochi_safetensors_file_load(out, length, access);
    free(path);
    return status;
}

/* Marks the tensors of one file that the index names: `weights` to `end`, all of this file. */
static loch_status index_mark(const loch_safetensors *model, const safetensors_file *file,
                              safetensors_pair *const *weights, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        safetensors_entry *entry =
            lochi_safetensors_find_entry(file->header.by_name, file->header.entries.count, weights[i]->key);
        if (!entry)
            return LOCH_FAIL(CORRUPT, "the index %s says that \"%.50s\" is in %.60s, which lacks it",
                             safetensors_tail(model->path), weights[i]->key, weights[i]->value);
        if (entry->is_listed)
            return LOCH_FAIL(CORRUPT, "the index %s names \"%.60s\" twice", safetensors_tail(model->path),
                             weights[i]->key);
        entry->is_listed = true;
    }
    return LOCH_OK;
}

/* Opens all files. `weights` are sorted by file. */
static loch_status index_open_files(loch_safetensors *model, safetensors_pair *const *weights, loch_access access)
{
    size_t files = 0;
    for (size_t i = 0; i < model->count; i++)
        files += i == 0 || index_compare_files(weights[i - 1], weights[i]) != 0;
    model->files = calloc(files ? files : 1, sizeof *model->files);
    if (!model->files) return index_no_memory(model);
    for (size_t first = 0, end; first < model->count; first = end) {
        for (end = first + 1; end < model->count && index_compare_files(weights[first], weights[end]) == 0;)
            end++;
        safetensors_file *file = &model->files[model->files_count++];
        file->number = -1;
        LOCH_RETURN(index_open_file(model, weights[first]->value, access, file));
        LOCH_RETURN(index_mark(model, file, &weights[first], end - first));
    }
    return LOCH_OK;
}

/* Lists the tensors of all files. `scratch` has room for as many pointers. */
static loch_status index_list(loch_safetensors *model, void **scratch)
{
    size_t count = 0;
    for (size_t i = 0; i < model->files_count; i++) {
        const safetensors_header *header = &model->files[i].header;
        for (size_t j = 0; j < header->entries.count; j++)
            if (header->by_place[j]->is_listed) model->by_place[count++] = header->by_place[j];
    }
    memcpy(model->by_name, model->by_place, count * sizeof *model->by_name);
    lochi_safetensors_sort((void **)model->by_name, scratch, count, lochi_safetensors_compare_names);
    for (size_t i = 1; i < count; i++)
        if (lochi_safetensors_compare_names(model->by_name[i - 1], model->by_name[i]) == 0)
            return LOCH_FAIL(CORRUPT, "the index %s names \"%.60s\" twice", safetensors_tail(model->path),
                             model->by_name[i]->name);
    return LOCH_OK;
}

static loch_status index_gather(loch_safetensors *model, const safetensors_array *weights, void **room,
                                loch_access access)
{
    safetensors_pair *pairs = weights->items;
    for (size_t i = 0; i < weights->count; i++)
        room[i] = &pairs[i];
    lochi_safetensors_sort(room, room + weights->count, weights->count, index_compare_files);
    model->count = weights->count;
    LOCH_RETURN(index_open_files(model, (safetensors_pair *const *)room, access));
    return index_list(model, room);
}

loch_status lochi_safetensors_index_load(loch_safetensors *file, size_t bytes, loch_access access)
{
    index_reader reader = {.model = file, .json = lochi_json_begin_in_place(file->text, bytes)};
    loch_status status = index_read(&reader);
    if (status == LOCH_OK) status = lochi_safetensors_metadata_sort(file->path, &file->index_metadata);
    file->metadata = &file->index_metadata;
    const size_t count = reader.weights.count + 1; /* + 1: none is a valid number */
    void **room = status == LOCH_OK ? calloc(2 * count, sizeof *room) : NULL;
    if (status == LOCH_OK) {
        file->by_name = calloc(count, sizeof(void *));
        file->by_place = calloc(count, sizeof(void *));
        status = room && file->by_name && file->by_place ? index_gather(file, &reader.weights, room, access)
                                                         : index_no_memory(file);
    }
    free(room);
    free(reader.weights.items);
    return status;
}

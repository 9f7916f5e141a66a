/* SPDX-License-Identifier: MIT */
/* Reads the header of a file and checks it: each tensor by itself, the names, and the places of all tensors together.
 * Names and places are checked after sorting, so that the time is near-linear in the size of the header. */
#include "header.h"
#include "common.h"
#include "sort.h"
#include "kit/json.h"
#include <stdio.h>
#include <stdlib.h>

/* --- arrays --- */

void *lochi_safetensors_array_add(safetensors_array *array, size_t bytes)
{
    if (array->count == array->room) {
        const size_t room = array->room ? 2 * array->room : 16;
        if (room > SIZE_MAX / 2 / bytes) return NULL;
        void *items = realloc(array->items, room * bytes);
        if (!items) return NULL;
        array->items = items;
        array->room = room;
    }
    return memset((char *)array->items + array->count++ * bytes, 0, bytes);
}

static loch_status header_no_memory(const char *path)
{
    return LOCH_FAIL(HOST_MEMORY, "no host memory for the header of %s", safetensors_tail(path));
}

/* Makes an array of pointers to the items of another, sorted. NULL with LOCH_OK if there are no items. */
static loch_status header_sort(const char *path, const safetensors_array *array, size_t bytes,
                               safetensors_compare *compare, void *out)
{
    void **sorted = NULL;
    if (array->count) {
        sorted = calloc(2 * array->count, sizeof *sorted); /* the second half is scratch */
        if (!sorted) return header_no_memory(path);
        for (size_t i = 0; i < array->count; i++)
            sorted[i] = (char *)array->items + i * bytes;
        lochi_safetensors_sort(sorted, sorted + array->count, array->count, compare);
        void **fitted = realloc(sorted, array->count * sizeof *sorted);
        if (fitted) sorted = fitted;
    }
    memcpy(out, &sorted, sizeof sorted);
    return LOCH_OK;
}

/* --- metadata --- */

static int header_compare_keys(const void *a, const void *b)
{
    return strcmp(((const safetensors_pair *)a)->key, ((const safetensors_pair *)b)->key);
}

loch_status lochi_safetensors_metadata_sort(const char *path, safetensors_metadata *metadata)
{
    LOCH_RETURN(header_sort(path, &metadata->pairs, sizeof(safetensors_pair), header_compare_keys, &metadata->by_key));
    for (size_t i = 1; i < metadata->pairs.count; i++)
        if (header_compare_keys(metadata->by_key[i - 1], metadata->by_key[i]) == 0)
            return LOCH_FAIL(CORRUPT, "%s has the key \"%.60s\" twice in its metadata", safetensors_tail(path),
                             metadata->by_key[i]->key);
    return LOCH_OK;
}

void lochi_safetensors_metadata_free(safetensors_metadata *metadata)
{
    free(metadata->by_key);
    free(metadata->pairs.items);
}

const char *lochi_safetensors_metadata_find(const safetensors_metadata *metadata, const char *key)
{
    for (size_t first = 0, end = metadata->pairs.count; first < end;) {
        const size_t middle = first + (end - first) / 2;
        const int order = strcmp(key, metadata->by_key[middle]->key);
        if (order == 0) return metadata->by_key[middle]->value;
        if (order < 0)
            end = middle;
        else
            first = middle + 1;
    }
    return NULL;
}

/* --- the text --- */

/* A header that is being read. */
typedef struct header_reader {
    const char *path;
    lochi_json json;
    safetensors_header *header;
    const char *name; /* the tensor that is being read; NULL for none */
    bool has_metadata;
    bool is_out_of_memory;
} header_reader;

static bool header_lacks_memory(header_reader *reader)
{
    reader->is_out_of_memory = true;
    return lochi_json_fail(&reader->json, "no host memory");
}

static loch_status header_say_wrong(const header_reader *reader)
{
    const lochi_json *json = &reader->json;
    if (reader->is_out_of_memory) return header_no_memory(reader->path);
    if (reader->name)
        return LOCH_FAIL(CORRUPT, "the header of %s is wrong at byte %zu, in \"%.60s\": %s",
                         safetensors_tail(reader->path), json->wrong_at, reader->name, json->wrong);
    return LOCH_FAIL(CORRUPT, "the header of %s is wrong at byte %zu: %s", safetensors_tail(reader->path),
                     json->wrong_at, json->wrong);
}

static bool header_read_metadata(header_reader *reader)
{
    lochi_json *json = &reader->json;
    if (reader->has_metadata) return lochi_json_fail(json, "there is a second __metadata__");
    reader->has_metadata = true;
    if (lochi_json_kind(json) == 'n') return lochi_json_skip(json);
    if (!lochi_json_open_or(json, '{', "the metadata is not an object")) return false;
    for (const char *key; (key = lochi_json_member_in_place(json));) {
        if (lochi_json_kind(json) != '"') return lochi_json_fail(json, "a value of the metadata is not text");
        const char *value = lochi_json_text_in_place(json);
        if (!value) return false;
        safetensors_pair *pair = lochi_safetensors_array_add(&reader->header->metadata.pairs, sizeof *pair);
        if (!pair) return header_lacks_memory(reader);
        *pair = (safetensors_pair){key, value};
    }
    return !json->wrong;
}

static bool header_read_shape(header_reader *reader, safetensors_entry *entry)
{
    lochi_json *json = &reader->json;
    if (!lochi_json_open_or(json, '[', "the shape is not a list")) return false;
    for (; lochi_json_item(json); entry->dimensions++) {
        uint64_t value;
        if (!lochi_json_number(json, &value)) return false;
        if (value > INT64_MAX) return lochi_json_fail(json, "a size of the shape is above 2^63 - 1");
        int64_t *size = lochi_safetensors_array_add(&reader->header->sizes, sizeof *size);
        if (!size) return header_lacks_memory(reader);
        *size = (int64_t)value;
    }
    return !json->wrong;
}

static bool header_read_place(header_reader *reader, safetensors_entry *entry)
{
    static const char wrong[] = "data_offsets is not a list of two numbers";
    lochi_json *json = &reader->json;
    return lochi_json_open_or(json, '[', wrong) &&
           ((lochi_json_item(json) && lochi_json_number(json, &entry->start) && lochi_json_item(json) &&
             lochi_json_number(json, &entry->end) && !lochi_json_item(json) && !json->wrong) ||
            lochi_json_fail(json, wrong));
}

/* The members of a tensor, as bits. */
enum { HEADER_DTYPE = 1, HEADER_SHAPE = 2, HEADER_PLACE = 4, HEADER_ALL = 7 };

static bool header_read_member(header_reader *reader, const char *member, unsigned *seen, safetensors_entry *entry)
{
    lochi_json *json = &reader->json;
    const unsigned bit = strcmp(member, "dtype") == 0          ? HEADER_DTYPE
                         : strcmp(member, "shape") == 0        ? HEADER_SHAPE
                         : strcmp(member, "data_offsets") == 0 ? HEADER_PLACE
                                                               : 0;
    if (!bit) return lochi_json_skip(json);
    if (*seen & bit) return lochi_json_fail(json, "dtype, shape or data_offsets is there twice");
    *seen |= bit;
    if (bit == HEADER_SHAPE) return header_read_shape(reader, entry);
    if (bit == HEADER_PLACE) return header_read_place(reader, entry);
    entry->type_name = lochi_json_text_in_place(json);
    return entry->type_name != NULL;
}

static bool header_read_entry(header_reader *reader, const char *name)
{
    lochi_json *json = &reader->json;
    unsigned seen = 0;
    safetensors_entry *entry = lochi_safetensors_array_add(&reader->header->entries, sizeof *entry);
    if (!entry) return header_lacks_memory(reader);
    entry->name = reader->name = name;
    if (!lochi_json_open_or(json, '{', "the tensor is not an object")) return false;
    for (const char *member; (member = lochi_json_member_in_place(json));) {
        if (!header_read_member(reader, member, &seen, entry)) return false;
    }
    if (json->wrong) return false;
    if (seen != HEADER_ALL) return lochi_json_fail(json, "dtype, shape or data_offsets is missing");
    entry->type = lochi_safetensors_type_find(entry->type_name);
    reader->name = NULL;
    return true;
}

static bool header_read_all(header_reader *reader)
{
    lochi_json *json = &reader->json;
    if (json->start == json->end || *json->start != '{') return lochi_json_fail(json, "it does not begin with {");
    if (!lochi_json_open_or(json, '{', "")) return false; /* not UTF-8 */
    for (const char *name; (name = lochi_json_member_in_place(json));) {
        if (!(strcmp(name, "__metadata__") == 0 ? header_read_metadata(reader) : header_read_entry(reader, name)))
            return false;
    }
    return lochi_json_end(json);
}

/* --- checks --- */

/* Writes a shape for people; a long one is cut. */
static void header_print_shape(const safetensors_entry *entry, char *text, size_t bytes)
{
    size_t used = 0;
    text[0] = '\0';
    for (size_t i = 0; i < entry->dimensions && used + 24 < bytes; i++)
        used += (size_t)snprintf(text + used, bytes - used, i ? ", %lld" : "%lld", (long long)entry->shape[i]);
    if (used + 24 >= bytes) snprintf(text + used, bytes - used, ", ...");
}

/* Computes the bytes of a tensor from its shape. Returns false if they do not fit 64 bits, or are not whole. */
static bool header_count_bytes(const safetensors_entry *entry, uint64_t *out)
{
    uint64_t bits = entry->type->bits;
    for (size_t i = 0; i < entry->dimensions; i++)
        if (!entry->shape[i]) {
            *out = 0;
            return true;
        }
    for (size_t i = 0; i < entry->dimensions; i++)
        if (__builtin_mul_overflow(bits, (uint64_t)entry->shape[i], &bits)) return false;
    *out = bits / 8;
    return bits % 8 == 0;
}

static loch_status header_check_entry(const char *path, const safetensors_entry *entry)
{
    uint64_t bytes;
    char shape[48];
    if (entry->start > entry->end)
        return LOCH_FAIL(CORRUPT, "%s: the data_offsets of \"%.60s\" end before they begin: [%llu, %llu]",
                         safetensors_tail(path), entry->name, (unsigned long long)entry->start,
                         (unsigned long long)entry->end);
    if (!entry->type) return LOCH_OK; /* refused when it is asked for: its elements are of a size that is not known */
    const bool is_good = header_count_bytes(entry, &bytes);
    if (is_good && bytes == entry->end - entry->start) return LOCH_OK;
    header_print_shape(entry, shape, sizeof shape);
    if (!is_good)
        return LOCH_FAIL(CORRUPT, "%s: \"%.50s\", %s [%s], has a size in bytes that is not whole or does not fit 2^61",
                         safetensors_tail(path), entry->name, entry->type_name, shape);
    return LOCH_FAIL(CORRUPT, "%s: \"%.50s\", %s [%s], needs %llu bytes and has %llu", safetensors_tail(path),
                     entry->name, entry->type_name, shape, (unsigned long long)bytes,
                     (unsigned long long)(entry->end - entry->start));
}

int lochi_safetensors_compare_names(const void *a, const void *b)
{
    return strcmp(((const safetensors_entry *)a)->name, ((const safetensors_entry *)b)->name);
}

static int header_compare_places(const void *a, const void *b)
{
    const safetensors_entry *one = a, *other = b;
    if (one->start != other->start) return one->start < other->start ? -1 : 1;
    return one->end == other->end ? 0 : one->end < other->end ? -1 : 1;
}

/* Checks that the tensors cover the data without holes and overlaps, up to its end. */
static loch_status header_check_places(const char *path, const safetensors_header *header, uint64_t data_bytes)
{
    uint64_t end = 0;
    const char *before = NULL;
    for (size_t i = 0; i < header->entries.count; i++) {
        const safetensors_entry *entry = header->by_place[i];
        if (entry->start < end)
            return LOCH_FAIL(
                CORRUPT, "%s: \"%.40s\" begins at byte %llu of the data, inside \"%.40s\", which ends at %llu",
                safetensors_tail(path), entry->name, (unsigned long long)entry->start, before, (unsigned long long)end);
        if (entry->start > end)
            return LOCH_FAIL(CORRUPT, "%s: bytes %llu to %llu of the data, before \"%.50s\", belong to no tensor",
                             safetensors_tail(path), (unsigned long long)end, (unsigned long long)entry->start,
                             entry->name);
        end = entry->end;
        before = entry->name;
    }
    if (end > data_bytes)
        return LOCH_FAIL(CORRUPT, "%s is truncated: %llu of %llu bytes of data are missing", safetensors_tail(path),
                         (unsigned long long)(end - data_bytes), (unsigned long long)end);
    if (end < data_bytes)
        return LOCH_FAIL(CORRUPT,
                         "%s: %llu bytes behind the last tensor, which ends at %llu of the data, belong to no tensor",
                         safetensors_tail(path), (unsigned long long)(data_bytes - end), (unsigned long long)end);
    return LOCH_OK;
}

static loch_status header_check(const char *path, safetensors_header *header, uint64_t data_bytes)
{
    const size_t count = header->entries.count;
    safetensors_entry *entries = header->entries.items;
    static const int64_t none;
    const int64_t *shape = header->sizes.items;
    for (size_t i = 0; i < count; i++) {
        entries[i].shape = entries[i].dimensions ? shape : &none;
        if (entries[i].dimensions) shape += entries[i].dimensions;
        LOCH_RETURN(header_check_entry(path, &entries[i]));
    }
    LOCH_RETURN(
        header_sort(path, &header->entries, sizeof *entries, lochi_safetensors_compare_names, &header->by_name));
    for (size_t i = 1; i < count; i++)
        if (lochi_safetensors_compare_names(header->by_name[i - 1], header->by_name[i]) == 0)
            return LOCH_FAIL(CORRUPT, "%s has two tensors with the name \"%.60s\"", safetensors_tail(path),
                             header->by_name[i]->name);
    LOCH_RETURN(header_sort(path, &header->entries, sizeof *entries, header_compare_places, &header->by_place));
    LOCH_RETURN(header_check_places(path, header, data_bytes));
    return lochi_safetensors_metadata_sort(path, &header->metadata);
}

loch_status lochi_safetensors_header_read(const char *path, char *text, size_t bytes, uint64_t data_bytes,
                                          safetensors_header *header)
{
    *header = (safetensors_header){.by_name = NULL};
    header_reader reader = {.path = path, .json = lochi_json_begin_in_place(text, bytes), .header = header};
    if (!header_read_all(&reader)) return header_say_wrong(&reader);
    return header_check(path, header, data_bytes);
}

void lochi_safetensors_header_free(safetensors_header *header)
{
    free(header->by_name);
    free(header->by_place);
    free(header->entries.items);
    free(header->sizes.items);
    lochi_safetensors_metadata_free(&header->metadata);
}

safetensors_entry *lochi_safetensors_find_entry(safetensors_entry *const *by_name, size_t count, const char *name)
{
    for (size_t first = 0; first < count;) {
        const size_t middle = first + (count - first) / 2;
        const int order = strcmp(name, by_name[middle]->name);
        if (order == 0) return by_name[middle];
        if (order < 0)
            count = middle;
        else
            first = middle + 1;
    }
    return NULL;
}

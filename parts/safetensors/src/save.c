/* SPDX-License-Identifier: MIT */
/* Writes tensors to a file. The header is made first, with all places in it; then the elements follow, those of a
 * device in pieces. Tensors are ordered as the format's own library orders them, so that equal tensors give equal
 * files: types of high alignment first, then by name. */
#include "common.h"
#include "model.h"
#include "sort.h"
#include "type.h"
#include "kit/new_file.h"
#include "kit/utf8.h"
#include <stdio.h>
#include <stdlib.h>

/* Size of pieces that go through the host. */
#define SAVE_PIECE ((size_t)4 << 20)

/* A tensor that is written. */
typedef struct save_item {
    const char *name;
    loch_tensor *tensor;
    const safetensors_type *type;
} save_item;

/* A text that grows. */
typedef struct save_text {
    char *text;
    size_t length, room;
    bool is_out_of_memory;
} save_text;

/* A save in progress. */
typedef struct save_state {
    const char *path;
    loch_safetensors_save_options how;
    save_item *items;
    void **order; /* pointers to the items, and scratch for sorting them */
    size_t count;
    save_text header;
    lochi_new_file file;
    void *piece; /* of SAVE_PIECE bytes, when it was needed */
} save_state;

/* --- the header --- */

static void save_append(save_text *to, const char *from, size_t length)
{
    if (to->is_out_of_memory) return;
    if (length > to->room - to->length) {
        const size_t room = 2 * to->room + length + 256;
        char *text = realloc(to->text, room);
        if (!text) {
            to->is_out_of_memory = true;
            return;
        }
        to->text = text;
        to->room = room;
    }
    memcpy(to->text + to->length, from, length);
    to->length += length;
}

static void save_append_plain(save_text *to, const char *from)
{
    save_append(to, from, strlen(from));
}

/* Appends a string of JSON, byte by byte as the format's own library writes it. */
static void save_append_text(save_text *to, const char *from)
{
    static const char names[] = "\"\\bfnrt", values[] = "\"\\\b\f\n\r\t";
    save_append_plain(to, "\"");
    for (const char *at = from; *at; at++) {
        const char *found = strchr(values, *at);
        char escape[8];
        if (found) {
            escape[0] = '\\';
            escape[1] = names[found - values];
            save_append(to, escape, 2);
        } else if ((unsigned char)*at < 0x20) {
            save_append(to, escape, (size_t)snprintf(escape, sizeof escape, "\\u%04x", (unsigned)*at));
        } else {
            save_append(to, at, 1);
        }
    }
    save_append_plain(to, "\"");
}

static void save_append_number(save_text *to, uint64_t number)
{
    char text[24];
    save_append(to, text, (size_t)snprintf(text, sizeof text, "%llu", (unsigned long long)number));
}

static void save_append_metadata(save_state *save)
{
    save_append_plain(&save->header, "\"__metadata__\":{");
    for (size_t i = 0; i < save->how.metadata_count; i++) {
        if (i) save_append_plain(&save->header, ",");
        save_append_text(&save->header, save->how.metadata_keys[i]);
        save_append_plain(&save->header, ":");
        save_append_text(&save->header, save->how.metadata_values[i]);
    }
    save_append_plain(&save->header, "}");
}

static void save_append_item(save_text *header, const save_item *item, uint64_t start, uint64_t end)
{
    const int64_t *shape = loch_tensor_get_shape(item->tensor);
    save_append_text(header, item->name);
    save_append_plain(header, ":{\"dtype\":\"");
    save_append_plain(header, item->type->name);
    save_append_plain(header, "\",\"shape\":[");
    for (size_t i = 0; i < loch_tensor_get_dimensions(item->tensor); i++) {
        if (i) save_append_plain(header, ",");
        save_append_number(header, (uint64_t)shape[i]);
    }
    save_append_plain(header, "],\"data_offsets\":[");
    save_append_number(header, start);
    save_append_plain(header, ",");
    save_append_number(header, end);
    save_append_plain(header, "]}");
}

/* Makes the header, with spaces behind it so that the data begins at a multiple of 8. */
static loch_status save_make_header(save_state *save)
{
    uint64_t end = 0;
    save_append_plain(&save->header, "{");
    if (save->how.metadata_count) save_append_metadata(save);
    for (size_t i = 0; i < save->count; i++) {
        const save_item *item = save->order[i];
        const uint64_t start = end, bytes = loch_tensor_get_bytes(item->tensor);
        if (i || save->how.metadata_count) save_append_plain(&save->header, ",");
        if (__builtin_add_overflow(start, bytes, &end))
            return LOCH_FAIL(OVERFLOW, "the tensors for %s have more than 2^64 bytes", safetensors_tail(save->path));
        save_append_item(&save->header, item, start, end);
    }
    save_append_plain(&save->header, "}");
    while (!save->header.is_out_of_memory && save->header.length % 8)
        save_append_plain(&save->header, " ");
    if (save->header.is_out_of_memory)
        return LOCH_FAIL(HOST_MEMORY, "no host memory for the header of %s", safetensors_tail(save->path));
    if (save->header.length > SAFETENSORS_HEADER_MAX)
        return LOCH_FAIL(LIMIT, "the header of %s would have %zu bytes; the format allows %llu",
                         safetensors_tail(save->path), save->header.length, (unsigned long long)SAFETENSORS_HEADER_MAX);
    return LOCH_OK;
}

/* --- the elements --- */

/* Writes elements that the host can read in one run. */
static loch_status save_in_place(save_state *save, loch_tensor *tensor)
{
    loch_mapping mapping;
    LOCH_RETURN(loch_tensor_map(tensor, LOCH_MAP_READ, save->how.stream, &mapping));
    const loch_status status = lochi_new_file_write(&save->file, mapping.address, loch_tensor_get_bytes(tensor));
    const loch_status unmapped = loch_tensor_unmap(&mapping, save->how.stream);
    return status == LOCH_OK ? unmapped : status;
}

static loch_status save_elements(save_state *save, loch_tensor *tensor);

/* Writes `count` indices of the first axis, from `start` on. */
static loch_status save_rows(save_state *save, loch_tensor *tensor, int64_t start, int64_t count)
{
    loch_tensor *rows;
    LOCH_RETURN(loch_tensor_slice(tensor, 0, start, start + count, 1, &rows));
    loch_status status = loch_tensor_read(rows, save->piece, loch_tensor_get_bytes(rows), save->how.stream);
    if (status == LOCH_OK) {
        lochi_safetensors_swap(save->piece, loch_tensor_get_bytes(rows), loch_dtype_bytes(loch_tensor_get_dtype(rows)));
        status = lochi_new_file_write(&save->file, save->piece, loch_tensor_get_bytes(rows));
    }
    loch_tensor_release(rows);
    return status;
}

/* Writes a tensor in pieces: runs of the first axis, or, if one index of it is too much, index by index. */
static loch_status save_gathered(save_state *save, loch_tensor *tensor)
{
    const int64_t size = loch_tensor_get_shape(tensor)[0];
    const size_t row = loch_tensor_get_bytes(tensor) / (size_t)size;
    const int64_t most = (int64_t)(SAVE_PIECE / row);
    loch_status status = LOCH_OK;
    for (int64_t i = 0; status == LOCH_OK && most && i < size; i += most)
        status = save_rows(save, tensor, i, size - i < most ? size - i : most);
    for (int64_t i = 0; status == LOCH_OK && !most && i < size; i++) {
        loch_tensor *part;
        LOCH_RETURN(loch_tensor_index(tensor, 0, i, &part));
        status = save_elements(save, part);
        loch_tensor_release(part);
    }
    return status;
}

static loch_status save_elements(save_state *save, loch_tensor *tensor)
{
    if (!loch_tensor_get_elements(tensor)) return LOCH_OK;
    if (loch_tensor_is_on_host(tensor) && loch_tensor_is_contiguous(tensor) && __BYTE_ORDER__ != __ORDER_BIG_ENDIAN__)
        return save_in_place(save, tensor);
    if (!save->piece) save->piece = malloc(SAVE_PIECE);
    if (!save->piece)
        return LOCH_FAIL(HOST_MEMORY, "no host memory for writing %s in pieces", safetensors_tail(save->path));
    /* one axis of all elements gives full pieces, if the strides allow it */
    loch_tensor *row;
    if (!loch_tensor_get_dimensions(tensor) || loch_tensor_is_contiguous(tensor))
        LOCH_RETURN(loch_tensor_view(tensor, LOCH_SHAPE(-1), &row));
    else
        row = loch_tensor_retain(tensor);
    const loch_status status = save_gathered(save, row);
    loch_tensor_release(row);
    return status;
}

static loch_status save_write(save_state *save)
{
    unsigned char length[8];
    for (size_t i = 0; i < sizeof length; i++)
        length[i] = (unsigned char)((uint64_t)save->header.length >> (8 * i));
    LOCH_RETURN(lochi_new_file_write(&save->file, length, sizeof length));
    LOCH_RETURN(lochi_new_file_write(&save->file, save->header.text, save->header.length));
    for (size_t i = 0; i < save->count; i++)
        LOCH_RETURN(save_elements(save, ((const save_item *)save->order[i])->tensor));
    return LOCH_OK;
}

/* --- the call --- */

static int save_compare_names(const void *a, const void *b)
{
    return strcmp(((const save_item *)a)->name, ((const save_item *)b)->name);
}

static int save_compare_types(const void *a, const void *b)
{
    const safetensors_type *one = ((const save_item *)a)->type, *other = ((const save_item *)b)->type;
    return one == other ? 0 : one > other ? -1 : 1;
}

static loch_status save_check_text(const save_state *save, const char *text, const char *what)
{
    if (!text) return LOCH_FAIL(INVALID, "%s for %s is NULL", what, safetensors_tail(save->path));
    const size_t length = strlen(text);
    if (lochi_utf8_check(text, length) < length)
        return LOCH_FAIL(INVALID, "%s for %s is not UTF-8", what, safetensors_tail(save->path));
    return LOCH_OK;
}

static int save_compare_keys(const void *a, const void *b)
{
    return strcmp(*(const char *const *)a, *(const char *const *)b);
}

static loch_status save_check_metadata(const save_state *save)
{
    const size_t count = save->how.metadata_count;
    if (!count) return LOCH_OK;
    if (!save->how.metadata_keys || !save->how.metadata_values)
        return LOCH_FAIL(INVALID, "the metadata for %s has a number of entries and no keys or values",
                         safetensors_tail(save->path));
    void **keys = calloc(count, 2 * sizeof *keys);
    if (!keys) return LOCH_FAIL(HOST_MEMORY, "no host memory for the metadata of %s", safetensors_tail(save->path));
    loch_status status = LOCH_OK;
    for (size_t i = 0; status == LOCH_OK && i < count; i++) {
        status = save_check_text(save, save->how.metadata_keys[i], "a key of the metadata");
        if (status == LOCH_OK) status = save_check_text(save, save->how.metadata_values[i], "a value of the metadata");
        keys[i] = (void *)&save->how.metadata_keys[i];
    }
    if (status == LOCH_OK) lochi_safetensors_sort(keys, keys + count, count, save_compare_keys);
    for (size_t i = 1; status == LOCH_OK && i < count; i++)
        if (save_compare_keys(keys[i - 1], keys[i]) == 0)
            status = LOCH_FAIL(INVALID, "the metadata for %s has the key \"%.60s\" twice", safetensors_tail(save->path),
                               *(const char *const *)keys[i]);
    free(keys);
    return status;
}

static loch_status save_take_item(save_state *save, const char *name, loch_tensor *tensor, save_item *item)
{
    LOCH_RETURN(save_check_text(save, name, "the name of a tensor"));
    if (strcmp(name, "__metadata__") == 0)
        return LOCH_FAIL(INVALID, "a tensor for %s has the name \"__metadata__\", which the format reserves",
                         safetensors_tail(save->path));
    if (!tensor) return LOCH_FAIL(INVALID, "the tensor \"%.60s\" for %s is NULL", name, safetensors_tail(save->path));
    *item = (save_item){name, tensor, lochi_safetensors_type_of(loch_tensor_get_dtype(tensor))};
    if (!item->type)
        return LOCH_FAIL(UNSUPPORTED, "\"%.60s\" has the type %s, which the format of %s lacks", name,
                         loch_dtype_name(loch_tensor_get_dtype(tensor)), safetensors_tail(save->path));
    return LOCH_OK;
}

/* Takes the tensors, checks their names and orders them. */
static loch_status save_prepare(save_state *save, const char *const *names, loch_tensor *const *tensors)
{
    LOCH_RETURN(save_check_metadata(save));
    save->items = calloc(save->count + 1, sizeof *save->items); /* + 1: none is a valid number */
    save->order = calloc(save->count + 1, 2 * sizeof *save->order);
    if (!save->items || !save->order)
        return LOCH_FAIL(HOST_MEMORY, "no host memory for writing %s", safetensors_tail(save->path));
    for (size_t i = 0; i < save->count; i++) {
        LOCH_RETURN(save_take_item(save, names[i], tensors[i], &save->items[i]));
        save->order[i] = &save->items[i];
    }
    lochi_safetensors_sort(save->order, save->order + save->count, save->count, save_compare_names);
    for (size_t i = 1; i < save->count; i++)
        if (save_compare_names(save->order[i - 1], save->order[i]) == 0)
            return LOCH_FAIL(INVALID, "two tensors for %s have the name \"%.60s\"", safetensors_tail(save->path),
                             ((const save_item *)save->order[i])->name);
    lochi_safetensors_sort(save->order, save->order + save->count, save->count, save_compare_types);
    return save_make_header(save);
}

loch_status loch_safetensors_save(const char *path, const char *const *names, loch_tensor *const *tensors, size_t count,
                                  const loch_safetensors_save_options *options)
{
    LOCHI_NOT_CANCELLED;
    if (!path || (count && (!names || !tensors)))
        return LOCH_FAIL(INVALID, "saving a safetensors file needs a path, names and tensors");
    save_state save = {.path = path, .count = count, .how = {.size = sizeof save.how}};
    LOCH_RETURN(lochi_sized_read("the options for safetensors", options, &save.how, sizeof save.how));
    loch_status status = save_prepare(&save, names, tensors);
    if (status == LOCH_OK) {
        status = lochi_new_file_open(&save.file, path);
        if (status == LOCH_OK) status = save_write(&save);
        status = lochi_new_file_close(&save.file, status);
    }
    free(save.piece);
    free(save.header.text);
    free(save.order);
    free(save.items);
    return status;
}

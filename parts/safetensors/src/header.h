/* SPDX-License-Identifier: MIT */
/* The header of a file: its tensors and its metadata (header.c). */
#ifndef SAFETENSORS_HEADER_H
#define SAFETENSORS_HEADER_H

#include "type.h"
#include <loch/status.h>
#include <stdbool.h>

/* The most bytes that a header may have, by the format. */
#define SAFETENSORS_HEADER_MAX ((uint64_t)100000000)

struct safetensors_file;

/* A tensor of a file. Texts lie in the header. */
typedef struct safetensors_entry {
    const char *name;
    const char *type_name;
    const safetensors_type *type; /* NULL if it is not known */
    struct safetensors_file *file;
    const int64_t *shape;
    size_t dimensions;
    uint64_t start, end; /* bytes of the data, from its start on */
    bool is_listed;      /* the index of the model names it */
} safetensors_entry;

/* A key of the metadata with its value. */
typedef struct safetensors_pair {
    const char *key, *value;
} safetensors_pair;

/* An array that grows. */
typedef struct safetensors_array {
    void *items;
    size_t count, room;
} safetensors_array;

/* Adds an item of `bytes` bytes, all zero. Returns NULL if there is no memory. */
void *lochi_safetensors_array_add(safetensors_array *array, size_t bytes);

/* Entries of the metadata: in the order of the file, and pointers to them sorted by key. */
typedef struct safetensors_metadata {
    safetensors_array pairs; /* of safetensors_pair */
    safetensors_pair **by_key;
} safetensors_metadata;

/* Sorts the pairs by key. E_CORRUPT: a key is there twice. */
loch_status lochi_safetensors_metadata_sort(const char *path, safetensors_metadata *metadata);
void lochi_safetensors_metadata_free(safetensors_metadata *metadata);

/* Returns the value of a key; NULL if there is none. */
const char *lochi_safetensors_metadata_find(const safetensors_metadata *metadata, const char *key);

/* The header of one file. Everything that it allocates is bounded by a multiple of the size of its text. */
typedef struct safetensors_header {
    safetensors_array entries; /* of safetensors_entry, in the order of the header */
    safetensors_array sizes;   /* of int64_t: the shapes of all tensors, one after the other */
    safetensors_entry **by_name, **by_place;
    safetensors_metadata metadata;
} safetensors_header;

/* Reads and checks a header. `text` is changed and must stay as long as the header. `data_bytes` is the size of the
 * file behind the header. Call lochi_safetensors_header_free in either case. E_CORRUPT, E_HOST_MEMORY. */
loch_status lochi_safetensors_header_read(const char *path, char *text, size_t bytes, uint64_t data_bytes,
                                          safetensors_header *header);
void lochi_safetensors_header_free(safetensors_header *header);

/* Finds a tensor in pointers that are sorted by name. Returns NULL if there is none. */
safetensors_entry *lochi_safetensors_find_entry(safetensors_entry *const *by_name, size_t count, const char *name);

/* Compares two entries by name, for lochi_safetensors_sort. */
int lochi_safetensors_compare_names(const void *a, const void *b);

#endif

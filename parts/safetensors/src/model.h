/* SPDX-License-Identifier: MIT */
/* An opened file or model: its tensors, whatever file they are in (model.c). */
#ifndef SAFETENSORS_MODEL_H
#define SAFETENSORS_MODEL_H

#include "file.h"
#include <loch/safetensors.h>

struct loch_safetensors {
    char *path;              /* as it was opened */
    safetensors_file *files; /* the files with tensors */
    size_t files_count;
    safetensors_entry **by_name, **by_place; /* those of the file, or of all files (is_model) */
    size_t count;
    bool is_model;
    char *text;                           /* the index of a model; names of files point into it */
    safetensors_metadata index_metadata;  /* of a model */
    const safetensors_metadata *metadata; /* that of the file, or of the index */
};

/* Finds a tensor that Loch can have. E_NOT_FOUND; E_UNSUPPORTED: a type that Loch lacks, too many dimensions. */
loch_status lochi_safetensors_model_find(const loch_safetensors *file, const char *name, const safetensors_entry **out);

/* Reads the index of a model in several files, whose text is in `file->text`, and opens all of them. (index.c) */
loch_status lochi_safetensors_index_load(loch_safetensors *file, size_t bytes, loch_access access);

#endif

/* SPDX-License-Identifier: MIT */
/* One file on the disk, read and mapped (file.c). */
#ifndef SAFETENSORS_FILE_H
#define SAFETENSORS_FILE_H

#include "header.h"
#include <loch/buffer.h>

typedef struct safetensors_file {
    char *path;
    int number;          /* descriptor; -1 for none */
    uint64_t file_bytes; /* when it was opened */
    char *text;          /* the header; names point into it */
    uint64_t data_start; /* place of the data in the file */
    safetensors_header header;
    loch_buffer *mapped; /* the whole file, read-only: what is loaded from */
    loch_buffer *shown;  /* the whole file, of the access that was asked for; may be that of `mapped` */
} safetensors_file;

/* Opens a file and reads its size. E_NOT_FOUND, E_IO; E_UNSUPPORTED: not a regular file. Call
 * lochi_safetensors_file_close in either case. */
loch_status lochi_safetensors_file_open(const char *path, safetensors_file *out);

/* Reads the eight bytes at the start of a file as a number, the length of the header. E_CORRUPT: the file has less. */
loch_status lochi_safetensors_file_read_length(safetensors_file *file, uint64_t *out);

/* Reads `bytes` bytes from `offset` on into new memory with a zero behind. E_CORRUPT: the file has become shorter. */
loch_status lochi_safetensors_file_read_text(safetensors_file *file, uint64_t offset, size_t bytes, char **out);

/* Reads exactly `bytes`, with several threads if they are many (read.c). E_IO; E_CORRUPT: the file has become shorter.
 * Any thread. */
loch_status lochi_safetensors_file_read(const safetensors_file *file, uint64_t offset, void *to, size_t bytes);

/* Reads and checks the header, whose length was read, and maps the file. */
loch_status lochi_safetensors_file_load(safetensors_file *file, uint64_t length, loch_access access);

/* Closes a file and releases its mapping, which tensors may keep. */
void lochi_safetensors_file_close(safetensors_file *file);

#endif

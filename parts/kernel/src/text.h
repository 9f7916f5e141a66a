/* SPDX-License-Identifier: MIT */
/* Texts of kernels (text.c). */
#ifndef LOCH_KERNEL_TEXT_H
#define LOCH_KERNEL_TEXT_H

/* The files of parts/kernel/ptx. */
typedef enum lochi_text_file {
    LOCHI_TEXT_CHUNKS,
    LOCHI_TEXT_NARROW,
    LOCHI_TEXT_TILES,
    LOCHI_TEXT_FILL,
    LOCHI_TEXT_ROWS
} lochi_text_file;

/* What takes the place of the marks of a text: codes of types, and sizes of elements. */
typedef struct lochi_text_types {
    unsigned from, to, from_bytes, to_bytes;
} lochi_text_types;

/* Returns the text of the kernel `name` of a file for the driver's compiler. The caller frees it. NULL without host
 * memory. */
char *lochi_kernel_text_make(lochi_text_file file, const char *name, const lochi_text_types *types);

#endif

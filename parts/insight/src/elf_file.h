/* SPDX-License-Identifier: MIT */
/* The functions of an ELF file and its build id. Every read is checked against the end of the file: files may be
 * damaged, or made to do harm. 64 bits, little endian. */
#ifndef LOCH_INSIGHT_ELF_FILE_H
#define LOCH_INSIGHT_ELF_FILE_H

#include "kit/array.h"

typedef struct insight_elf {
    const uint8_t *data; /* the file; borrowed */
    size_t bytes;
    const uint8_t *build_id; /* in `data`; NULL if there is none */
    size_t build_id_bytes;
    bool has_functions;    /* `functions` was read */
    lochi_array functions; /* of elf_function, by address */
} insight_elf;

/* Looks at a file in memory. Returns false if it is not an ELF file that this code reads. */
bool lochi_insight_elf_open(const uint8_t *data, size_t bytes, insight_elf *out);
void lochi_insight_elf_close(insight_elf *elf);

/* Finds the function that an address is in, as the file counts addresses. Writes its name, whose length is at most
 * `*length`; the name is in the file and may not end with a zero. Returns NULL if there is none. */
const char *lochi_insight_elf_find(insight_elf *elf, uint64_t address, size_t *length);

#endif

/* SPDX-License-Identifier: MIT */
/* Names of code addresses of a recorded program: "function at file:line" from debug information if elfutils' libdw is
 * on the machine, "function" from the file's own symbols, otherwise "module+0xoffset". The files are those on this
 * machine; one whose build id is not the recorded one is not used. A recorded path is read, and nothing is loaded. */
#ifndef LOCH_INSIGHT_SYMBOLS_H
#define LOCH_INSIGHT_SYMBOLS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define INSIGHT_SYMBOL_MAX 1024 /* bytes of a description; longer ones are cut */

typedef struct insight_symbols insight_symbols;

/* A module as it was mapped into the recorded process. The pointers are borrowed; they are copied. */
typedef struct insight_module {
    uint64_t start, end; /* addresses of the mapping */
    uint64_t offset;     /* is added to an address for the address in the file; modulo 2^64 */
    const uint8_t *build_id;
    size_t build_id_bytes; /* 0: not recorded */
    const char *path;      /* need not end with a zero */
    size_t path_length;
} insight_module;

/* Creates an object without modules; one thread at a time. NULL without memory. */
insight_symbols *lochi_insight_symbols_create(void);
void lochi_insight_symbols_destroy(insight_symbols *symbols);

/* Adds a module. It counts for its addresses before modules that were added earlier. Returns false without memory. */
bool lochi_insight_symbols_add_module(insight_symbols *symbols, const insight_module *module);

/* Describes a return address: the call before it. Always writes a text that ends with a zero. Returns its length. */
size_t lochi_insight_symbols_describe(insight_symbols *symbols, uint64_t address, char *text, size_t bytes);

#endif

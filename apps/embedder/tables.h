/* SPDX-License-Identifier: MIT */
/* What BERT's uncased tokenizer does with each character, as tables. tables.py makes tables.c. */
#ifndef EMBEDDER_TABLES_H
#define EMBEDDER_TABLES_H

#include <stddef.h>
#include <stdint.h>

typedef enum character_class {
    CHARACTER_PLAIN,
    CHARACTER_DROPPED,     /* controls, formats, private use */
    CHARACTER_SPACE,       /* becomes a space */
    CHARACTER_IDEOGRAPH,   /* a word of its own */
    CHARACTER_PUNCTUATION, /* a word of its own */
    CHARACTER_ACCENT,      /* a mark that is removed, and whose order among marks does not matter after that */
    CHARACTER_BARRIER,     /* a mark that is removed; marks before it are not reordered with marks behind it */
} character_class;

/* A run of characters with one property: its class, or its rank in the order of marks that stay. */
typedef struct character_range {
    uint32_t first, last;
    uint32_t value;
} character_range;

/* Characters first, first + step, ..., last that become themselves + delta: small letters, letters without accents. */
typedef struct character_shift {
    uint32_t first, last;
    uint32_t step;
    int32_t delta;
} character_shift;

/* A character that becomes two or three. Unused places are 0. */
typedef struct character_spread {
    uint32_t from;
    uint32_t to[3];
} character_spread;

/* All sorted by their first characters, without overlaps. */
extern const character_range character_classes[];
extern const size_t character_classes_count;
extern const character_range character_ranks[];
extern const size_t character_ranks_count;
extern const character_shift character_shifts[];
extern const size_t character_shifts_count;
extern const character_spread character_spreads[];
extern const size_t character_spreads_count;

#endif

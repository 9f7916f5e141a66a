/* SPDX-License-Identifier: MIT */
/* Text as BERT's uncased models see it: without controls and accents, in small letters, ideographs apart. */
#ifndef EMBEDDER_UNICODE_H
#define EMBEDDER_UNICODE_H

#include <stddef.h>
#include <stdint.h>

/* The most characters that one byte of a text becomes. */
#define UNICODE_GROWTH 3

/* Normalises `bytes` of UTF-8 and returns the number of characters in `out`, which has room for UNICODE_GROWTH *
 * `bytes`. White space becomes ' '. Accents are those of the canonical decomposition (NFD). What is not UTF-8 is
 * dropped, as U+FFFD is. */
size_t unicode_normalize(const char *text, size_t bytes, uint32_t *out);

/* Returns non-zero for a normalised character that is a word of its own. */
int unicode_is_punctuation(uint32_t character);

/* Writes a character as UTF-8 and returns its length, at most 4. */
size_t unicode_write(uint32_t character, char *out);

#endif

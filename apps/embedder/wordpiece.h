/* SPDX-License-Identifier: MIT */
/* WordPiece: text to the numbers of the pieces of a vocabulary, by the rules of BERT's uncased models. */
#ifndef EMBEDDER_WORDPIECE_H
#define EMBEDDER_WORDPIECE_H

#include <loch/loch.h>

/* A vocabulary. Constant after wordpiece_open: any number of threads may encode with it. */
typedef struct wordpiece wordpiece;

/* Reads a vocabulary: one piece a line, its number is the number of the line. Pieces inside a word begin with "##".
 * E_CORRUPT: a piece comes twice, or [CLS], [SEP] or [UNK] is missing. */
loch_status wordpiece_open(const char *path, wordpiece **out);

void wordpiece_close(wordpiece *vocabulary);

size_t wordpiece_get_count(const wordpiece *vocabulary);

/* Returns a piece by its number, as text that ends with zero; NULL if there is no such piece. Borrowed. */
const char *wordpiece_get_piece(const wordpiece *vocabulary, int32_t token);

/* Encodes a text as [CLS], its pieces, [SEP]. What exceeds `most` tokens, at least 2, is cut off.
 * The names of special tokens in a text ("[SEP]") become those tokens, as in the library `tokenizers`.
 * @param out  room for `most` tokens */
loch_status wordpiece_encode(const wordpiece *vocabulary, const char *text, size_t bytes, size_t most, int32_t *out,
                             size_t *count);

#endif

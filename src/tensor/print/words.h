/* SPDX-License-Identifier: MIT */
/* Writes elements as words of equal width, as NumPy 2.4 writes the elements of an array. */
#ifndef LOCHI_PRINT_WORDS_H
#define LOCHI_PRINT_WORDS_H

#include <loch/print.h>
#include <stdbool.h>

/* The longest word. An f64 without exponent has at most 309 digits before the decimal point and 340 after it. */
#define LOCHI_WORD_MAX 1024

/* No float has more digits after the decimal point. */
#define LOCHI_PRECISION_MAX 400

/* The format of all elements of one text. */
typedef struct lochi_words {
    loch_dtype dtype;
    size_t element_bytes;
    bool is_scalar;     /* one element without brackets: True is not padded to the width of False */
    bool has_exponent;  /* floats: written as 1.5e+00 */
    int precision;      /* digits after the decimal point: the most; with an exponent, the same number in all words */
    int exponent_width; /* digits of the exponent */
    int left, right;    /* floats: characters before and after the decimal point; integers use `left` only */
} lochi_words;

/* Scans all elements that will be shown and chooses the format. The elements are contiguous. */
lochi_words lochi_words_fit(loch_dtype dtype, const void *elements, size_t count, int precision, loch_notation notation,
                            bool is_scalar);

/* Writes one element, padded to the common width, without a final zero. Returns its length. */
size_t lochi_words_write(const lochi_words *words, const void *element, char text[LOCHI_WORD_MAX]);

#endif

/* SPDX-License-Identifier: MIT */
/* Elements as words of equal width, as NumPy 2.4 writes those of one array. */
#ifndef LOCHI_PRINT_WORDS_H
#define LOCHI_PRINT_WORDS_H

#include <loch/print.h>
#include <stdbool.h>

/* The longest word: an f64 without exponent has at most 309 digits before the point and 340 behind it. */
#define LOCHI_WORD_MAX 1024

/* Digits behind the point beyond which no float has any. */
#define LOCHI_PRECISION_MAX 400

/* How all the elements of one text are written. */
typedef struct lochi_words {
    loch_dtype dtype;
    size_t element_bytes;
    bool is_scalar;     /* one element without brackets: True is not padded to the width of False */
    bool has_exponent;  /* floats: as 1.5e+00 */
    int precision;      /* digits behind the point: at most, and with an exponent as many in all of them */
    int exponent_width; /* digits of the exponent */
    int left, right;    /* floats: characters before and behind the point; integers: all are `left` */
} lochi_words;

/* Looks through all elements that will be shown, which lie side by side. */
lochi_words lochi_words_fit(loch_dtype dtype, const void *elements, size_t count, int precision, loch_notation notation,
                            bool is_scalar);

/* Writes one element, padded to the width of all, without a final zero; returns its length. */
size_t lochi_words_write(const lochi_words *words, const void *element, char text[LOCHI_WORD_MAX]);

#endif

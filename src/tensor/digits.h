/* SPDX-License-Identifier: MIT */
/* Floats of every type taken apart, and their shortest decimal digits.
 *
 * Digits are made with exact integers, not by printf: they depend on no locale and no rounding mode, and serve types that C
 * lacks. They are the fewest that no other number of the same type shares, the nearest of those, cut off or continued where
 * the caller says; this is what NumPy prints. */
#ifndef LOCHI_DIGITS_H
#define LOCHI_DIGITS_H

#include <loch/dtype.h>
#include <stdbool.h>

typedef enum lochi_number_kind { LOCHI_FINITE, LOCHI_INFINITE, LOCHI_NAN } lochi_number_kind;

/* A float: mantissa * 2^exponent when finite. */
typedef struct lochi_number {
    lochi_number_kind kind;
    bool is_negative; /* of zero too; NaN has a sign that nobody wants to see */
    bool is_edge;     /* the next smaller number is only half as far away as the next larger one */
    uint64_t mantissa;
    int exponent;
} lochi_number;

/* Returns the bits of an element of 1, 2, 4 or 8 bytes. */
uint64_t lochi_bits_load(size_t bytes, const void *from);

/* Takes a float apart. The type has to be a float; `from` need not be aligned. */
lochi_number lochi_number_read(loch_dtype dtype, const void *from);

/* Returns the size of a finite number without the sign, exactly. */
double lochi_number_size(const lochi_number *number);

/* Where digits end. */
typedef struct lochi_cutoff {
    bool is_fraction; /* places are counted behind the point, not from the first digit */
    int most;         /* no digit behind this many places: rounded there, ties to even */
    int least;        /* digits go on for this many places though fewer would do; -1 for as few as will do */
} lochi_cutoff;

#define LOCHI_DIGITS_MAX 40

typedef struct lochi_digits {
    char text[LOCHI_DIGITS_MAX]; /* '0' to '9', no final zero */
    int count;                   /* at least 1 */
    int exponent;                /* the first digit counts 10^exponent */
} lochi_digits;

/* Makes the digits of a finite number. */
lochi_digits lochi_digits_make(const lochi_number *number, const lochi_cutoff *cutoff);

#endif

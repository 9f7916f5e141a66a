/* SPDX-License-Identifier: MIT */
/* Takes floats of every type apart, and finds their shortest decimal digits.
 *
 * Digits are computed with exact integers, not by printf. They do not depend on locale or rounding mode, and work for
 * types that C lacks. They are the fewest digits that identify the number among all numbers of its type, and of those
 * the nearest, cut off or continued as the caller says. NumPy prints the same digits. */
#ifndef LOCHI_DIGITS_H
#define LOCHI_DIGITS_H

#include "base/shared.h"
#include <loch/dtype.h>
#include <stdbool.h>

typedef enum lochi_number_kind { LOCHI_FINITE, LOCHI_INFINITE, LOCHI_NAN } lochi_number_kind;

/* A float: mantissa * 2^exponent when finite. */
typedef struct lochi_number {
    lochi_number_kind kind;
    bool is_negative; /* also set for negative zero; the sign of NaN is ignored */
    bool is_edge;     /* the next smaller number is only half as far away as the next larger one */
    uint64_t mantissa;
    int exponent;
} lochi_number;

/* Returns the bits of an element of 1, 2, 4 or 8 bytes. */
uint64_t lochi_bits_load(size_t bytes, const void *from);

/* Takes a float apart. `dtype` must be a float type; `from` need not be aligned. */
LOCHI_SHARED lochi_number lochi_number_read(loch_dtype dtype, const void *from);

/* Returns the absolute value of a finite number, exactly. */
double lochi_number_size(const lochi_number *number);

/* Where the digits end. */
typedef struct lochi_cutoff {
    bool is_fraction; /* places are counted after the decimal point; otherwise from the first digit */
    int most;         /* the last place; rounded there, ties to even */
    int least;        /* digits continue at least to this place; -1: as few as possible */
} lochi_cutoff;

#define LOCHI_DIGITS_MAX 40

typedef struct lochi_digits {
    char text[LOCHI_DIGITS_MAX]; /* '0' to '9', without final zero */
    int count;                   /* at least 1 */
    int exponent;                /* the first digit has the value digit * 10^exponent */
} lochi_digits;

/* Makes the digits of a finite number. */
LOCHI_SHARED lochi_digits lochi_digits_make(const lochi_number *number, const lochi_cutoff *cutoff);

#endif

/* SPDX-License-Identifier: MIT */
/* Writes elements as words. Floats are scanned twice. The first pass finds whether an exponent is needed, and how many
 * places there are on each side of the decimal point. The second pass writes. Nothing here depends on the locale. */
#include "tensor/print/words.h"
#include "tensor/digits.h"
#include <string.h>

static bool words_is_float(loch_dtype dtype)
{
    return dtype >= LOCH_F64 && dtype <= LOCH_F8E5M2;
}

/* --- integers --- */

/* Writes an integer backwards from the end of `text`, and returns its length. */
static int words_write_integer(loch_dtype dtype, size_t bytes, const void *from, char text[24])
{
    uint64_t size = lochi_bits_load(bytes, from);
    const bool is_negative = dtype >= LOCH_I8 && dtype <= LOCH_I64 && size >> (bytes * 8 - 1);
    if (is_negative) {
        if (bytes < 8) size |= UINT64_MAX << (bytes * 8);
        size = 0 - size;
    }
    int length = 0;
    do {
        text[24 - ++length] = (char)('0' + size % 10);
        size /= 10;
    } while (size);
    if (is_negative) text[24 - ++length] = '-';
    return length;
}

static void words_fit_integers(lochi_words *words, const char *at, size_t count)
{
    char text[24];
    for (size_t i = 0; i < count; i++, at += words->element_bytes) {
        const int length = words_write_integer(words->dtype, words->element_bytes, at, text);
        if (length > words->left) words->left = length;
    }
}

/* --- floats --- */

static int words_least(int a, int b)
{
    return a < b ? a : b;
}

static int words_most(int a, int b)
{
    return a > b ? a : b;
}

/* Result of the first pass over floats. */
typedef struct words_extent {
    double least, most; /* absolute values, without zeros; 0 if there are none */
    bool has_finite, has_others, has_negative_infinity;
} words_extent;

static words_extent words_measure(const lochi_words *words, const char *at, size_t count)
{
    words_extent extent = {0};
    for (size_t i = 0; i < count; i++, at += words->element_bytes) {
        const lochi_number number = lochi_number_read(words->dtype, at);
        if (number.kind != LOCHI_FINITE) {
            extent.has_others = true;
            if (number.kind == LOCHI_INFINITE && number.is_negative) extent.has_negative_infinity = true;
            continue;
        }
        extent.has_finite = true;
        if (!number.mantissa) continue;
        const double size = lochi_number_size(&number);
        if (size > extent.most) extent.most = size;
        if (extent.least == 0 || size < extent.least) extent.least = size;
    }
    return extent;
}

/* Tells whether numbers are so large, so small or so far apart that NumPy writes them with an exponent. NumPy compares
 * in the type of the elements, so limits are rounded to that type. The upper limit has as many digits as the type
 * holds, but at most 8. Types that NumPy lacks are treated as f16. */
static bool words_need_exponent(loch_dtype dtype, const words_extent *extent)
{
    if (extent->most == 0) return false;
    switch (dtype) {
    case LOCH_F64: return extent->most >= 1e8 || extent->least < 1e-4 || extent->most / extent->least > 1000;
    case LOCH_F32:
        return extent->most >= 1e6 || extent->least < (double)1e-4f ||
               (float)extent->most / (float)extent->least > 1000;
    default:
        /* ratios up to 1000.25 round to 1000 in f16 */
        return extent->most >= 1e3 || extent->least < 1e-4 || (float)extent->most / (float)extent->least > 1000.25F;
    }
}

/* Returns the number of digits after the decimal point, without trailing zeros. */
static int words_fraction_length(const lochi_digits *digits, bool has_exponent)
{
    const int before = has_exponent ? 1 : digits->exponent + 1;
    int count = digits->count;
    while (count > 0 && digits->text[count - 1] == '0')
        count--;
    return count ? words_most(count - before, 0) : 0;
}

static int words_exponent_length(const lochi_digits *digits)
{
    return digits->exponent <= -100 || digits->exponent >= 100 ? 3 : 2;
}

/* Returns the cutoff for the digits of a number. `least` is used only with an exponent. */
static lochi_cutoff words_cutoff(const lochi_words *words, int least)
{
    if (words->has_exponent) return (lochi_cutoff){.most = words->precision + 1, .least = least};
    return (lochi_cutoff){.is_fraction = true, .most = words->precision, .least = -1};
}

static void words_fit_finite(lochi_words *words, const char *at, size_t count)
{
    const lochi_cutoff cutoff = words_cutoff(words, -1);
    for (size_t i = 0; i < count; i++, at += words->element_bytes) {
        const lochi_number number = lochi_number_read(words->dtype, at);
        if (number.kind != LOCHI_FINITE) continue;
        const lochi_digits digits = lochi_digits_make(&number, &cutoff);
        const int before = words->has_exponent ? 1 : words_most(digits.exponent + 1, 1);
        words->left = words_most(words->left, before + number.is_negative);
        words->right = words_most(words->right, words_fraction_length(&digits, words->has_exponent));
        words->exponent_width = words_most(words->exponent_width, words_exponent_length(&digits));
    }
    if (!words->has_exponent) return;
    words->precision = words->right;
    words->right += words->exponent_width + 2;
}

static void words_fit_floats(lochi_words *words, const char *at, size_t count, loch_notation notation)
{
    const words_extent extent = words_measure(words, at, count);
    words->has_exponent =
        extent.has_finite && (notation == LOCH_NOTATION_SCIENTIFIC ||
                              (notation == LOCH_NOTATION_AUTO && words_need_exponent(words->dtype, &extent)));
    if (extent.has_finite) words_fit_finite(words, at, count);
    if (extent.has_others) words->left = words_most(words->left, 3 + extent.has_negative_infinity - (words->right + 1));
}

static char *words_put(char *at, char what, int count)
{
    if (count <= 0) return at;
    memset(at, what, (size_t)count);
    return at + count;
}

static char *words_copy(char *at, const char *from, int count)
{
    if (count <= 0) return at;
    memcpy(at, from, (size_t)count);
    return at + count;
}

static char *words_write_special(const lochi_words *words, const lochi_number *number, char *at)
{
    const bool has_sign = number->kind == LOCHI_INFINITE && number->is_negative;
    at = words_put(at, ' ', words->left + words->right + 1 - 3 - has_sign);
    if (has_sign) *at++ = '-';
    return words_copy(at, number->kind == LOCHI_NAN ? "nan" : "inf", 3);
}

static char *words_write_scientific(const lochi_words *words, const lochi_number *number, char *at)
{
    const lochi_cutoff cutoff = words_cutoff(words, words->precision + 1);
    const lochi_digits digits = lochi_digits_make(number, &cutoff);
    const int fraction = words_least(digits.count - 1, words->precision);
    at = words_put(at, ' ', words->left - 1 - number->is_negative);
    if (number->is_negative) *at++ = '-';
    *at++ = digits.text[0];
    *at++ = '.';
    at = words_copy(at, digits.text + 1, fraction);
    at = words_put(at, '0', words->precision - fraction);
    *at++ = 'e';
    *at++ = digits.exponent < 0 ? '-' : '+';
    int exponent = digits.exponent < 0 ? -digits.exponent : digits.exponent;
    for (int i = words->exponent_width - 1; i >= 0; i--, exponent /= 10)
        at[i] = (char)('0' + exponent % 10);
    return at + words->exponent_width;
}

static char *words_write_positional(const lochi_words *words, const lochi_number *number, char *at)
{
    const lochi_cutoff cutoff = words_cutoff(words, -1);
    const lochi_digits digits = lochi_digits_make(number, &cutoff);
    const int before = digits.exponent + 1; /* digits before the decimal point; below 1 there are zeros after it */
    const int fraction = words_fraction_length(&digits, false);
    at = words_put(at, ' ', words->left - words_most(before, 1) - number->is_negative);
    if (number->is_negative) *at++ = '-';
    if (before < 1) *at++ = '0';
    at = words_copy(at, digits.text, words_least(before, digits.count));
    at = words_put(at, '0', before - digits.count);
    *at++ = '.';
    const int zeros = words_least(words_most(-before, 0), fraction);
    at = words_put(at, '0', zeros);
    at = words_copy(at, digits.text + words_most(before, 0), fraction - zeros);
    return words_put(at, ' ', words->right - fraction);
}

/* --- all types --- */

lochi_words lochi_words_fit(loch_dtype dtype, const void *elements, size_t count, int precision, loch_notation notation,
                            bool is_scalar)
{
    lochi_words words = {.dtype = dtype, .element_bytes = loch_dtype_bytes(dtype), .is_scalar = is_scalar};
    words.precision = words_least(precision, LOCHI_PRECISION_MAX);
    if (words_is_float(dtype))
        words_fit_floats(&words, elements, count, notation);
    else if (dtype != LOCH_BOOL)
        words_fit_integers(&words, elements, count);
    return words;
}

static char *words_write_float(const lochi_words *words, const void *element, char *at)
{
    const lochi_number number = lochi_number_read(words->dtype, element);
    if (number.kind != LOCHI_FINITE) return words_write_special(words, &number, at);
    return words->has_exponent ? words_write_scientific(words, &number, at)
                               : words_write_positional(words, &number, at);
}

size_t lochi_words_write(const lochi_words *words, const void *element, char text[LOCHI_WORD_MAX])
{
    char *at = text;
    if (words_is_float(words->dtype)) {
        at = words_write_float(words, element, at);
    } else if (words->dtype == LOCH_BOOL) {
        const char *word = !*(const unsigned char *)element ? "False" : words->is_scalar ? "True" : " True";
        at = words_copy(at, word, (int)strlen(word));
    } else {
        char digits[24];
        const int length = words_write_integer(words->dtype, words->element_bytes, element, digits);
        at = words_put(at, ' ', words->left - length);
        at = words_copy(at, digits + sizeof digits - length, length);
    }
    return (size_t)(at - text);
}

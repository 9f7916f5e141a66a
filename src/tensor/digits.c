/* SPDX-License-Identifier: MIT */
/* Finds the shortest decimal digits of a float, after Steele and White. The number and half its distances to both
 * neighbours are big integers over one common scale. Digits are divided out one by one. The last digit is the first one
 * at which the remainder is closer to 0, or to one more, than half a distance. */
#include "tensor/digits.h"
#include <math.h>
#include <string.h>

/* The bit layout of a float; the sign is the highest bit. */
typedef struct digits_format {
    int mantissa_bits, exponent_bits;
    bool has_infinity; /* if false, the largest exponent is an ordinary one, and only all ones are NaN */
} digits_format;

static digits_format digits_format_of(loch_dtype dtype)
{
    switch (dtype) {
    case LOCH_F64: return (digits_format){52, 11, true};
    case LOCH_F32: return (digits_format){23, 8, true};
    case LOCH_F16: return (digits_format){10, 5, true};
    case LOCH_BF16: return (digits_format){7, 8, true};
    case LOCH_F8E4M3: return (digits_format){3, 4, false};
    default: return (digits_format){2, 5, true};
    }
}

uint64_t lochi_bits_load(size_t bytes, const void *from)
{
    uint64_t u64;
    uint32_t u32;
    uint16_t u16;
    switch (bytes) {
    case 8: return memcpy(&u64, from, sizeof u64), u64;
    case 4: return memcpy(&u32, from, sizeof u32), u32;
    case 2: return memcpy(&u16, from, sizeof u16), u16;
    default: return *(const unsigned char *)from;
    }
}

lochi_number lochi_number_read(loch_dtype dtype, const void *from)
{
    const digits_format format = digits_format_of(dtype);
    const uint64_t bits = lochi_bits_load(loch_dtype_bytes(dtype), from);
    const uint64_t fraction = bits & (((uint64_t)1 << format.mantissa_bits) - 1);
    const int top = (1 << format.exponent_bits) - 1;
    const int exponent = (int)(bits >> format.mantissa_bits) & top;
    const int bias = (top >> 1) + format.mantissa_bits;
    lochi_number number = {.is_negative = bits >> (format.mantissa_bits + format.exponent_bits)};
    if (exponent == top && format.has_infinity) {
        number.kind = fraction ? LOCHI_NAN : LOCHI_INFINITE;
    } else if (exponent == top && fraction == ((uint64_t)1 << format.mantissa_bits) - 1) {
        number.kind = LOCHI_NAN;
    } else if (exponent) {
        number.mantissa = fraction | (uint64_t)1 << format.mantissa_bits;
        number.exponent = exponent - bias;
        number.is_edge = !fraction && exponent > 1;
    } else {
        number.mantissa = fraction;
        number.exponent = 1 - bias;
    }
    return number;
}

double lochi_number_size(const lochi_number *number)
{
    return ldexp((double)number->mantissa, number->exponent);
}

/* --- integers of up to 1280 bits; the largest needed, the smallest f64 scaled to its first digit, has 1130 --- */

#define BIG_WORDS 40

typedef struct big {
    uint32_t words[BIG_WORDS]; /* lowest word first; words from `count` on are undefined */
    int count;                 /* 0 for zero; the highest word is not 0 */
} big;

static void big_set(big *out, uint64_t value)
{
    out->count = 0;
    for (; value; value >>= 32)
        out->words[out->count++] = (uint32_t)value;
}

static void big_multiply(big *number, uint32_t factor)
{
    uint64_t carry = 0;
    for (int i = 0; i < number->count; i++) {
        carry += (uint64_t)number->words[i] * factor;
        number->words[i] = (uint32_t)carry;
        carry >>= 32;
    }
    if (carry) number->words[number->count++] = (uint32_t)carry;
}

static void big_multiply_power_of_ten(big *number, int power)
{
    static const uint32_t powers[] = {1, 10, 100, 1000, 10000, 100000, 1000000, 10000000, 100000000, 1000000000};
    for (; power > 9; power -= 9)
        big_multiply(number, powers[9]);
    big_multiply(number, powers[power]);
}

static void big_shift(big *number, int bits)
{
    if (!number->count) return;
    const int words = bits / 32;
    memmove(number->words + words, number->words, (size_t)number->count * sizeof *number->words);
    memset(number->words, 0, (size_t)words * sizeof *number->words);
    number->count += words;
    big_multiply(number, (uint32_t)1 << bits % 32);
}

static int big_compare(const big *a, const big *b)
{
    if (a->count != b->count) return a->count < b->count ? -1 : 1;
    for (int i = a->count - 1; i >= 0; i--)
        if (a->words[i] != b->words[i]) return a->words[i] < b->words[i] ? -1 : 1;
    return 0;
}

static void big_add(big *out, const big *a, const big *b)
{
    const big *longer = a->count < b->count ? b : a, *shorter = longer == a ? b : a;
    uint64_t carry = 0;
    for (int i = 0; i < longer->count; i++) {
        carry += longer->words[i];
        if (i < shorter->count) carry += shorter->words[i];
        out->words[i] = (uint32_t)carry;
        carry >>= 32;
    }
    out->count = longer->count;
    if (carry) out->words[out->count++] = (uint32_t)carry;
}

/* Subtracts b from a. The result must not be negative. */
static void big_subtract(big *a, const big *b)
{
    uint64_t borrow = 0;
    for (int i = 0; i < a->count; i++) {
        const uint64_t part = (i < b->count ? b->words[i] : 0) + borrow;
        borrow = a->words[i] < part;
        a->words[i] = (uint32_t)(a->words[i] - part);
    }
    while (a->count && !a->words[a->count - 1])
        a->count--;
}

/* Returns the quotient, at most 9; `a` keeps the remainder. */
static int big_divide(big *a, const big *b)
{
    int quotient = 0;
    for (; big_compare(a, b) >= 0; quotient++)
        big_subtract(a, b);
    return quotient;
}

/* --- digits --- */

/* The remainder of the number, and half the distances to its neighbours, all over `scale`. */
typedef struct digits_state {
    big left, below, above, scale;
} digits_state;

/* Sets left/scale to the number. All values are multiplied by 4, so that the smallest half distance is 1. */
static void digits_begin(const lochi_number *number, digits_state *state)
{
    const int up = number->exponent > 0 ? number->exponent : 0, down = number->exponent < 0 ? -number->exponent : 0;
    big_set(&state->left, number->mantissa);
    big_shift(&state->left, up + 2);
    big_set(&state->scale, 1);
    big_shift(&state->scale, down + 2);
    big_set(&state->above, 2);
    big_shift(&state->above, up);
    big_set(&state->below, number->is_edge ? 1 : 2);
    big_shift(&state->below, up);
}

static void digits_times_ten(digits_state *state)
{
    big_multiply(&state->left, 10);
    big_multiply(&state->below, 10);
    big_multiply(&state->above, 10);
}

/* Returns floor(log10(2^power)). Exact for all powers of our types. */
static int digits_log10_of_power(int power)
{
    return power < 0 ? -(-power * 78913 >> 18) - 1 : power * 78913 >> 18;
}

/* Scales the state for the first digit and returns the exponent of that digit. */
static int digits_find_first(const lochi_number *number, const lochi_cutoff *cutoff, digits_state *state)
{
    /* the number is below 10^over, or at most below ten times that */
    int over = digits_log10_of_power(63 - __builtin_clzll(number->mantissa) + number->exponent) + 1;
    /* if all digits lie after the last place, that place is the first digit: a zero before rounding */
    if (cutoff->is_fraction && over <= -cutoff->most) over = 1 - cutoff->most;
    if (over > 0) {
        big_multiply_power_of_ten(&state->scale, over);
    } else {
        big_multiply_power_of_ten(&state->left, -over);
        big_multiply_power_of_ten(&state->below, -over);
        big_multiply_power_of_ten(&state->above, -over);
    }
    if (big_compare(&state->left, &state->scale) >= 0) return over;
    digits_times_ten(state);
    return over - 1;
}

/* Adds one to the last digit. Removes nines before it. */
static void digits_round_up(lochi_digits *out)
{
    while (out->count && out->text[out->count - 1] == '9')
        out->count--;
    if (out->count) {
        out->text[out->count - 1]++;
    } else {
        out->text[out->count++] = '1';
        out->exponent++;
    }
}

lochi_digits lochi_digits_make(const lochi_number *number, const lochi_cutoff *cutoff)
{
    lochi_digits out = {.text = "0", .count = 1};
    if (!number->mantissa) return out;
    digits_state state;
    digits_begin(number, &state);
    int place = digits_find_first(number, cutoff, &state);
    out = (lochi_digits){.exponent = place};
    const int start = cutoff->is_fraction ? 0 : place + 1;
    const int last = start - cutoff->most, enough = cutoff->least < 0 ? place : start - cutoff->least;
    /* a value half way between two numbers is read as the even one */
    const int inclusive = number->mantissa & 1 ? 0 : 1;
    for (;; place--) {
        big high;
        const int digit = big_divide(&state.left, &state.scale);
        big_add(&high, &state.left, &state.above);
        const bool is_low = big_compare(&state.left, &state.below) < inclusive;
        const bool is_high = big_compare(&high, &state.scale) > -inclusive;
        out.text[out.count++] = (char)('0' + digit);
        if (!((is_low || is_high) && place <= enough) && place > last && out.count < LOCHI_DIGITS_MAX) {
            digits_times_ten(&state);
            continue;
        }
        bool is_down = is_low;
        if (is_low == is_high) {
            big_shift(&state.left, 1);
            const int half = big_compare(&state.left, &state.scale);
            is_down = half < 0 || (half == 0 && !(digit & 1));
        }
        if (!is_down) digits_round_up(&out);
        return out;
    }
}

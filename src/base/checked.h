/* SPDX-License-Identifier: MIT */
/* Checked arithmetic. Every size that comes from a caller goes through these functions. A function with a result in
 * `out` returns false on overflow and then does not write `*out`. */
#ifndef LOCHI_CHECKED_H
#define LOCHI_CHECKED_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

static inline bool lochi_add(size_t a, size_t b, size_t *out)
{
    size_t sum;
    if (__builtin_add_overflow(a, b, &sum)) return false;
    *out = sum;
    return true;
}

static inline bool lochi_mul(size_t a, size_t b, size_t *out)
{
    size_t product;
    if (__builtin_mul_overflow(a, b, &product)) return false;
    *out = product;
    return true;
}

static inline bool lochi_is_power_of_two(size_t value)
{
    return value && !(value & (value - 1));
}

/* Rounds up to a multiple of `unit`, a power of two. */
static inline bool lochi_round_up(size_t value, size_t unit, size_t *out)
{
    size_t sum;
    if (!lochi_add(value, unit - 1, &sum)) return false;
    *out = sum & ~(unit - 1);
    return true;
}

static inline bool lochi_is_multiple(size_t value, size_t unit)
{
    return (value & (unit - 1)) == 0;
}

/* Returns whether [address, address + bytes) stays inside the address space. */
static inline bool lochi_range_fits(const void *address, size_t bytes)
{
    uintptr_t end;
    return !__builtin_add_overflow((uintptr_t)address, bytes, &end);
}

#endif

/* SPDX-License-Identifier: MIT */
#include "kit/size.h"
#include <inttypes.h>
#include <stdio.h>

static const char *const size_units[] = {"B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"};

/* Returns the unit of a size: its place in the list. */
static unsigned size_unit(uint64_t bytes)
{
    return bytes ? (63 - (unsigned)__builtin_clzll(bytes)) / 10 : 0;
}

lochi_size lochi_size_of(uint64_t bytes)
{
    lochi_size size;
    const unsigned unit = size_unit(bytes);
    const unsigned whole = (unsigned)(bytes >> 10 * unit);
    const unsigned tenths = unit ? ((unsigned)(bytes >> 10 * (unit - 1)) & 1023) * 10 / 1024 : 0;
    if (tenths)
        snprintf(size.text, sizeof size.text, "%u.%u %s", whole, tenths, size_units[unit]);
    else
        snprintf(size.text, sizeof size.text, "%u %s", whole, size_units[unit]);
    return size;
}

/* A half is rounded to the even digit, as printf does. */
lochi_size lochi_size_round(uint64_t bytes, unsigned decimals)
{
    lochi_size size;
    const unsigned unit = size_unit(bytes), scale = decimals == 1 ? 10 : 100;
    if (!unit) return lochi_size_of(bytes);
    const unsigned bits = 10 * unit < 50 ? 10 * unit : 50; /* of the fraction; fewer would do */
    const uint64_t kept = bytes >> (10 * unit - bits), part = (kept & ((UINT64_C(1) << bits) - 1)) * scale;
    const uint64_t rest = part & ((UINT64_C(1) << bits) - 1), half = UINT64_C(1) << (bits - 1);
    uint64_t all = (kept >> bits) * scale + (part >> bits);
    all += rest > half || (rest == half && all % 2);
    snprintf(size.text, sizeof size.text, "%u.%0*u %s", (unsigned)(all / scale), decimals == 1 ? 1 : 2,
             (unsigned)(all % scale), size_units[unit]);
    return size;
}

lochi_time lochi_time_of(uint64_t ns)
{
    static const char *const units[] = {"ns", "us", "ms", "s"};
    lochi_time time;
    uint64_t whole = ns;
    unsigned part = 0; /* thousandths of the unit */
    size_t unit = 0;
    for (; whole >= 1000 && unit < 3; unit++, whole /= 1000)
        part = (unsigned)(whole % 1000);
    if (unit)
        snprintf(time.text, sizeof time.text, "%" PRIu64 ".%03u %s", whole, part, units[unit]);
    else
        snprintf(time.text, sizeof time.text, "%" PRIu64 " ns", whole);
    return time;
}

/* SPDX-License-Identifier: MIT */
/* loch_convert: checks, and the choice of loops for a pair of types. */
#include "tensor/convert/convert.h"
#include "base/checked.h"
#include "base/fail.h"
#include "kit/sized.h"
#include "tensor/convert/avx2.h"
#include "tensor/convert/portable.h"
#include "base/dtype.h"
#include <string.h>

enum { CONVERT_BLOCK = 512 }; /* elements in a block on the way through a hub: at most 4 KiB */

/* --- choice of loops --- */

static void convert_copy_1(void *to, const void *from, size_t count)
{
    if (count) memmove(to, from, count);
}

static void convert_copy_2(void *to, const void *from, size_t count)
{
    if (count) memmove(to, from, count * 2);
}

static void convert_copy_4(void *to, const void *from, size_t count)
{
    if (count) memmove(to, from, count * 4);
}

static void convert_copy_8(void *to, const void *from, size_t count)
{
    if (count) memmove(to, from, count * 8);
}

static lochi_convert_step *convert_copy(size_t bytes)
{
    return bytes == 1 ? convert_copy_1 : bytes == 2 ? convert_copy_2 : bytes == 4 ? convert_copy_4 : convert_copy_8;
}

/* Tells whether a type is an integer; bool counts as one. */
static bool convert_is_integer(loch_dtype dtype)
{
    return dtype >= LOCH_I8 && dtype <= LOCH_BOOL;
}

/* Tells whether a conversion copies the bits. False for bool to bool: every byte except 0 becomes 1. */
static bool convert_is_copy(loch_dtype to, loch_dtype from)
{
    if (to == LOCH_BOOL || from == LOCH_BOOL) return false;
    if (to == from) return true;
    return convert_is_integer(to) && convert_is_integer(from) && loch_dtype_bytes(to) == loch_dtype_bytes(from);
}

/* Returns the hub for a pair of types without a loop of its own. */
static loch_dtype convert_hub(loch_dtype to, loch_dtype from)
{
    if (convert_is_integer(to) && convert_is_integer(from)) return LOCH_I64;
    return from == LOCH_I32 || from == LOCH_U32 ? LOCH_F64 : LOCH_F32;
}

static lochi_convert_step *convert_step(const lochi_convert_table *native, loch_dtype to, loch_dtype from,
                                        loch_overflow overflow)
{
    const lochi_convert_table *tables[] = {native, &lochi_convert_portable};
    for (int special = overflow == LOCH_OVERFLOW_SPECIAL; special >= 0; special--)
        for (size_t i = 0; i < 2; i++)
            if (tables[i] && tables[i]->steps[special][to][from]) return tables[i]->steps[special][to][from];
    return NULL;
}

lochi_converter lochi_convert_find_in(const lochi_convert_table *native, loch_dtype to, loch_dtype from,
                                      loch_overflow overflow)
{
    lochi_converter converter = {.to_bytes = loch_dtype_bytes(to), .from_bytes = loch_dtype_bytes(from)};
    if (convert_is_copy(to, from)) {
        converter.first = convert_copy(converter.to_bytes);
        return converter;
    }
    if (convert_is_integer(to) && convert_is_integer(from)) { /* the low bits are those of an i64 */
        if (to == LOCH_U64) to = LOCH_I64;
        if (from == LOCH_U64) from = LOCH_I64;
    }
    converter.first = convert_step(native, to, from, overflow);
    if (converter.first) return converter;
    const loch_dtype hub = convert_hub(to, from);
    converter.first = convert_step(native, hub, from, overflow);
    converter.second = convert_step(native, to, hub, overflow);
    return converter;
}

lochi_converter lochi_convert_find(loch_dtype to, loch_dtype from, loch_overflow overflow)
{
    return lochi_convert_find_in(lochi_convert_native(), to, from, overflow);
}

void lochi_convert_through_hub(const lochi_converter *converter, void *to, const void *from, size_t count)
{
    uint64_t block[CONVERT_BLOCK];
    char *target = to;
    const char *source = from;
    for (size_t rest = count; rest;) {
        const size_t now = rest < CONVERT_BLOCK ? rest : CONVERT_BLOCK;
        converter->first(block, source, now);
        converter->second(target, block, now);
        source += now * converter->from_bytes;
        target += now * converter->to_bytes;
        rest -= now;
    }
}

/* --- checks --- */

static loch_status convert_read_options(const loch_convert_options *given, loch_convert_options *out)
{
    *out = (loch_convert_options){.size = sizeof *out};
    LOCH_TRY_RETURN(lochi_sized_read("loch_convert_options", given, out, sizeof *out));
    if (out->overflow == LOCH_OVERFLOW_SATURATE || out->overflow == LOCH_OVERFLOW_SPECIAL) return LOCH_OK;
    return LOCH_FAIL(INVALID, "%d is not a loch_overflow value", (int)out->overflow);
}

static loch_status convert_check_types(loch_dtype to_type, loch_dtype from_type)
{
    if (!lochi_dtype_is_valid(to_type))
        return LOCH_FAIL(INVALID, "%d, the type to convert to, is not a loch_dtype", (int)to_type);
    if (!lochi_dtype_is_valid(from_type))
        return LOCH_FAIL(INVALID, "%d, the type to convert from, is not a loch_dtype", (int)from_type);
    return LOCH_OK;
}

/* Checks that the ranges are one range, or do not overlap. */
static loch_status convert_check_ranges(const lochi_converter *converter, const void *to, const void *from,
                                        size_t count)
{
    size_t to_bytes, from_bytes;
    if (!lochi_mul(count, converter->to_bytes, &to_bytes) || !lochi_mul(count, converter->from_bytes, &from_bytes) ||
        !lochi_range_fits(to, to_bytes) || !lochi_range_fits(from, from_bytes))
        return LOCH_FAIL(OVERFLOW, "a conversion of %zu elements does not fit the address space", count);
    if (count && (!to || !from)) return LOCH_FAIL(INVALID, "a conversion of %zu elements with a NULL address", count);
    if (to == from && to_bytes == from_bytes) return LOCH_OK;
    if ((uintptr_t)to < (uintptr_t)from + from_bytes && (uintptr_t)from < (uintptr_t)to + to_bytes)
        return LOCH_FAIL(INVALID, "source and target of the conversion overlap");
    return LOCH_OK;
}

loch_status loch_convert(loch_dtype to_type, void *to, loch_dtype from_type, const void *from, size_t count,
                         const loch_convert_options *options)
{
    loch_convert_options read;
    LOCH_TRY_RETURN(convert_read_options(options, &read));
    LOCH_TRY_RETURN(convert_check_types(to_type, from_type));
    const lochi_converter converter = lochi_convert_find(to_type, from_type, read.overflow);
    LOCH_TRY_RETURN(convert_check_ranges(&converter, to, from, count));
    lochi_convert_run(&converter, to, from, count);
    return LOCH_OK;
}

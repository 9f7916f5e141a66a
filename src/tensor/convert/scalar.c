/* SPDX-License-Identifier: MIT */
/* Single numbers of any type. */
#include "base/fail.h"
#include "base/dtype.h"

loch_scalar loch_scalar_from_double(double value)
{
    return (loch_scalar){.dtype = LOCH_F64, .value.f = value};
}

loch_scalar loch_scalar_from_signed(long long value)
{
    return (loch_scalar){.dtype = LOCH_I64, .value.i = value};
}

loch_scalar loch_scalar_from_unsigned(unsigned long long value)
{
    return (loch_scalar){.dtype = LOCH_U64, .value.u = value};
}

/* Returns the type of the union member that stores numbers of `dtype`. */
static loch_dtype scalar_member(loch_dtype dtype)
{
    if (dtype <= LOCH_F8E5M2) return LOCH_F64;
    return dtype <= LOCH_I64 ? LOCH_I64 : LOCH_U64;
}

loch_status loch_scalar_store(loch_scalar scalar, loch_dtype dtype, void *to)
{
    if (!lochi_dtype_is_valid(scalar.dtype))
        return LOCH_FAIL(INVALID, "the scalar has type %d, which is not a loch_dtype", (int)scalar.dtype);
    if (scalar.dtype == LOCH_BOOL) scalar.value.u = scalar.value.u != 0;
    return loch_convert(dtype, to, scalar_member(scalar.dtype), &scalar.value, 1, NULL);
}

loch_status loch_scalar_load(loch_dtype dtype, const void *from, loch_scalar *out)
{
    if (!out) return LOCH_FAIL(INVALID, "the out pointer for the scalar is NULL");
    *out = (loch_scalar){.dtype = LOCH_DTYPE_NONE};
    loch_scalar scalar = {.dtype = LOCH_DTYPE_NONE};
    LOCH_TRY_RETURN(loch_convert(scalar_member(dtype), &scalar.value, dtype, from, 1, NULL));
    scalar.dtype = dtype == LOCH_BOOL ? LOCH_BOOL : scalar_member(dtype);
    *out = scalar;
    return LOCH_OK;
}

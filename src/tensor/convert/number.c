/* SPDX-License-Identifier: MIT */
/* Conversions of one number of a narrow type, as functions. */
#include "tensor/convert/number.h"
#include <loch/dtype.h>

float loch_f16_to_float(loch_f16 value)
{
    return lochi_f32_of_f16(value.bits);
}

float loch_bf16_to_float(loch_bf16 value)
{
    return lochi_f32_of_bf16(value.bits);
}

float loch_f8e4m3_to_float(loch_f8e4m3 value)
{
    return lochi_f32_of_f8e4m3(value.bits);
}

float loch_f8e5m2_to_float(loch_f8e5m2 value)
{
    return lochi_f32_of_f8e5m2(value.bits);
}

loch_f16 loch_f16_from_float(float value)
{
    return (loch_f16){lochi_f16_of_f32(value)};
}

loch_bf16 loch_bf16_from_float(float value)
{
    return (loch_bf16){lochi_bf16_of_f32(value)};
}

loch_f8e4m3 loch_f8e4m3_from_float(float value)
{
    return (loch_f8e4m3){lochi_f8e4m3_of_f32(value, 0x7e)};
}

loch_f8e5m2 loch_f8e5m2_from_float(float value)
{
    return (loch_f8e5m2){lochi_f8e5m2_of_f32(value, 0x7b)};
}

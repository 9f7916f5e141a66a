/* SPDX-License-Identifier: MIT */
/* The types of the format, in the order of the format's own library: by rising alignment. */
#include "type.h"
#include <string.h>

static const safetensors_type types[] = {
    {"BOOL", LOCH_BOOL, 8},
    {"F4", LOCH_DTYPE_NONE, 4},
    {"F6_E2M3", LOCH_DTYPE_NONE, 6},
    {"F6_E3M2", LOCH_DTYPE_NONE, 6},
    {"U8", LOCH_U8, 8},
    {"I8", LOCH_I8, 8},
    {"F8_E5M2", LOCH_F8E5M2, 8},
    {"F8_E4M3", LOCH_F8E4M3, 8},
    {"F8_E8M0", LOCH_DTYPE_NONE, 8},
    {"F8_E4M3FNUZ", LOCH_DTYPE_NONE, 8},
    {"F8_E5M2FNUZ", LOCH_DTYPE_NONE, 8},
    {"I16", LOCH_I16, 16},
    {"U16", LOCH_U16, 16},
    {"F16", LOCH_F16, 16},
    {"BF16", LOCH_BF16, 16},
    {"I32", LOCH_I32, 32},
    {"U32", LOCH_U32, 32},
    {"F32", LOCH_F32, 32},
    {"C64", LOCH_DTYPE_NONE, 64},
    {"F64", LOCH_F64, 64},
    {"I64", LOCH_I64, 64},
    {"U64", LOCH_U64, 64},
};

#define TYPES (sizeof types / sizeof *types)

const safetensors_type *lochi_safetensors_type_find(const char *name)
{
    for (size_t i = 0; i < TYPES; i++)
        if (strcmp(types[i].name, name) == 0) return &types[i];
    return NULL;
}

const safetensors_type *lochi_safetensors_type_of(loch_dtype dtype)
{
    for (size_t i = 0; dtype != LOCH_DTYPE_NONE && i < TYPES; i++)
        if (types[i].dtype == dtype) return &types[i];
    return NULL;
}

void lochi_safetensors_swap(void *elements, size_t bytes, size_t element)
{
    if (__BYTE_ORDER__ != __ORDER_BIG_ENDIAN__) return;
    char *at = elements;
    for (size_t i = 0; i < bytes; i += element)
        for (size_t j = 0; j < element / 2; j++) {
            const char byte = at[i + j];
            at[i + j] = at[i + element - 1 - j];
            at[i + element - 1 - j] = byte;
        }
}

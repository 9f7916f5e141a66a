/* SPDX-License-Identifier: MIT */
/* Types of elements: names and sizes. */
#include "base/dtype.h"
#include <string.h>

static const char *const dtype_names[LOCH_DTYPE_COUNT] = {[LOCH_DTYPE_NONE] = "none",
#define DTYPE_NAME(suffix, name, bytes) [LOCH_##suffix] = (name),
                                                          LOCH_DTYPE_LIST(DTYPE_NAME)
#undef DTYPE_NAME
};

const char *loch_dtype_name(loch_dtype dtype)
{
    return dtype_names[lochi_dtype_is_valid(dtype) ? dtype : LOCH_DTYPE_NONE];
}

size_t loch_dtype_bytes(loch_dtype dtype)
{
    return lochi_dtype_bytes(dtype);
}

typedef struct dtype_alias {
    const char *name;
    loch_dtype dtype;
} dtype_alias;

/* Names of the types in NumPy (with ml_dtypes) and PyTorch. */
static const dtype_alias dtype_aliases[] = {
    {"float64", LOCH_F64}, {"double", LOCH_F64},         {"float32", LOCH_F32}, {"float16", LOCH_F16},
    {"half", LOCH_F16},    {"bfloat16", LOCH_BF16},      {"int8", LOCH_I8},     {"float8_e4m3fn", LOCH_F8E4M3},
    {"int16", LOCH_I16},   {"float8_e5m2", LOCH_F8E5M2}, {"int32", LOCH_I32},   {"int64", LOCH_I64},
    {"uint8", LOCH_U8},    {"uint16", LOCH_U16},         {"uint32", LOCH_U32},  {"uint64", LOCH_U64},
    {"bool", LOCH_BOOL},   {"bool_", LOCH_BOOL},
};

/* Valid only after "torch.": NumPy uses "float" and "int" for other types, and "long" for C's long. */
static const dtype_alias dtype_aliases_torch[] = {
    {"float", LOCH_F32},
    {"short", LOCH_I16},
    {"int", LOCH_I32},
    {"long", LOCH_I64},
};

#define DTYPE_FIND(list, name) dtype_find(list, sizeof(list) / sizeof *(list), name)

static loch_dtype dtype_find(const dtype_alias *list, size_t count, const char *name)
{
    for (size_t i = 0; i < count; i++)
        if (!strcmp(list[i].name, name)) return list[i].dtype;
    return LOCH_DTYPE_NONE;
}

/* Returns the rest of `name` after `prefix`, or NULL if it does not begin with `prefix`. */
static const char *dtype_skip(const char *name, const char *prefix)
{
    const size_t length = strlen(prefix);
    return strncmp(name, prefix, length) != 0 ? NULL : name + length;
}

loch_dtype loch_dtype_find(const char *name)
{
    if (!name) return LOCH_DTYPE_NONE;
    const char *torch = dtype_skip(name, "torch."), *numpy = dtype_skip(name, "numpy.");
    if (torch) {
        const loch_dtype found = DTYPE_FIND(dtype_aliases_torch, torch);
        return found ? found : DTYPE_FIND(dtype_aliases, torch);
    }
    if (numpy) return DTYPE_FIND(dtype_aliases, numpy);
    for (int dtype = LOCH_DTYPE_NONE + 1; dtype < LOCH_DTYPE_COUNT; dtype++)
        if (!strcmp(dtype_names[dtype], name)) return (loch_dtype)dtype;
    return DTYPE_FIND(dtype_aliases, name);
}

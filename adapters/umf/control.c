/* SPDX-License-Identifier: MIT */
/* UMF's controls of a Loch pool: one table of paths. Names that UMF's own pools have too mean the same here. */
#include "control.h"
#include <stdlib.h>
#include <string.h>

lochi_umf_result lochi_umf_result_of(loch_status status)
{
    switch (status) {
    case LOCH_OK: return LOCHI_UMF_SUCCESS;
    case LOCH_E_HOST_MEMORY:
    case LOCH_E_DEVICE_MEMORY:
    case LOCH_E_LIMIT:
    case LOCH_E_FRAGMENTED:
    case LOCH_E_OVERFLOW:
    case LOCH_E_MOVING_FORBIDDEN: return LOCHI_UMF_OUT_OF_MEMORY;
    case LOCH_E_INVALID:
    case LOCH_E_DOUBLE_FREE:
    case LOCH_E_FOREIGN:
    case LOCH_E_INTERIOR:
    case LOCH_E_OUT_OF_RANGE: return LOCHI_UMF_INVALID_ARGUMENT;
    case LOCH_E_UNSUPPORTED: return LOCHI_UMF_NOT_SUPPORTED;
    case LOCH_E_NOT_FOUND: return LOCHI_UMF_MISSING;
    case LOCH_E_DRIVER:
    case LOCH_E_DEVICE_LOST: return LOCHI_UMF_PROVIDER_SPECIFIC;
    default: return LOCHI_UMF_UNKNOWN;
    }
}

typedef enum control_kind { CONTROL_FIGURE, CONTROL_SETTING, CONTROL_ALLOCATOR } control_kind;

typedef struct control_path {
    const char *path;
    control_kind kind;
    size_t offset;                                              /* of the figure in loch_pool_info */
    loch_status (*set)(loch_allocator *pool, size_t new_value); /* of a setting */
} control_path;

static const control_path control_paths[] = {
    {"stats.used_memory", CONTROL_FIGURE, offsetof(loch_pool_info, used_bytes), NULL},
    {"stats.reserved_memory", CONTROL_FIGURE, offsetof(loch_pool_info, reserved_bytes), NULL},
    {"stats.peak_reserved_memory", CONTROL_FIGURE, offsetof(loch_pool_info, peak_reserved_bytes), NULL},
    {"params.limit_bytes", CONTROL_SETTING, offsetof(loch_pool_info, limit_bytes), loch_pool_set_limit},
    {"params.idle_bytes", CONTROL_SETTING, offsetof(loch_pool_info, idle_bytes), loch_pool_set_idle},
    {"loch.allocator", CONTROL_ALLOCATOR, 0, NULL},
};

static const control_path *control_find(const char *path)
{
    for (size_t i = 0; i < sizeof control_paths / sizeof *control_paths; i++)
        if (!strcmp(path, control_paths[i].path)) return &control_paths[i];
    return NULL;
}

static lochi_umf_result control_read(loch_allocator *pool, const control_path *control, void *value, size_t size)
{
    if (!value || size != (control->kind == CONTROL_ALLOCATOR ? sizeof pool : sizeof(size_t)))
        return LOCHI_UMF_INVALID_ARGUMENT;
    if (control->kind == CONTROL_ALLOCATOR) {
        memcpy(value, &pool, sizeof pool);
        return LOCHI_UMF_SUCCESS;
    }
    loch_pool_info info = {.size = sizeof info};
    const loch_status status = loch_pool_get_info(pool, &info);
    if (status == LOCH_OK) memcpy(value, (const char *)&info + control->offset, sizeof(size_t));
    return lochi_umf_result_of(status);
}

/* Reads the new value of a setting: bytes, as text from the configuration. */
static lochi_umf_result control_parse(lochi_umf_origin origin, const void *value, size_t size, size_t *out)
{
    if (!value) return LOCHI_UMF_INVALID_ARGUMENT;
    if (origin != LOCHI_UMF_CONFIGURATION) {
        if (size != sizeof *out) return LOCHI_UMF_INVALID_ARGUMENT;
        memcpy(out, value, sizeof *out);
        return LOCHI_UMF_SUCCESS;
    }
    const char *text = value;
    char *end;
    const unsigned long long number = strtoull(text, &end, 0);
    if (end == text || *end || strchr(text, '-') || number > SIZE_MAX) return LOCHI_UMF_INVALID_ARGUMENT;
    *out = (size_t)number;
    return LOCHI_UMF_SUCCESS;
}

lochi_umf_result lochi_umf_control(loch_allocator *pool, lochi_umf_origin origin, const char *path, void *value,
                                   size_t size, lochi_umf_query query)
{
    const control_path *control = path ? control_find(path) : NULL;
    if (!pool || !control) return LOCHI_UMF_INVALID_PATH;
    if (query == LOCHI_UMF_READ) return control_read(pool, control, value, size);
    if (query != LOCHI_UMF_WRITE || !control->set) return LOCHI_UMF_INVALID_PATH;
    size_t bytes;
    const lochi_umf_result result = control_parse(origin, value, size, &bytes);
    return result == LOCHI_UMF_SUCCESS ? lochi_umf_result_of(control->set(pool, bytes)) : result;
}

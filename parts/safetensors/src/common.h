/* SPDX-License-Identifier: MIT */
/* What the files of the library share: failures, cancellation, and structs of callers. */
#ifndef SAFETENSORS_COMMON_H
#define SAFETENSORS_COMMON_H

#include <common/cancel.h>
#include <loch/check.h>
#include <loch/safetensors.h>
#include <stdbool.h>
#include <string.h>

/* Sets the error record and returns the status. A sentence shows the end of a path (safetensors_tail), and the first 60
 * bytes of a name or the first 40 of two, so that the figures behind them fit. */
#define SAFETENSORS_FAIL(status, ...) loch_error_set(LOCH_E_##status, NULL, 0, __VA_ARGS__)

/* Returns the end of a path: at most 72 bytes, and no part of a character. The name of the file tells more than the
 * first folder. */
static inline const char *safetensors_tail(const char *path)
{
    const size_t length = strlen(path);
    const char *tail = length > 72 ? path + length - 72 : path;
    while (tail > path && ((unsigned char)*tail & 0xC0) == 0x80)
        tail++;
    return tail;
}

/* Copies a caller's struct, which may be shorter, over `out`, whose other members have their defaults. */
static inline loch_status safetensors_read_options(const void *given, void *out, size_t bytes)
{
    if (!given) return LOCH_OK;
    const size_t size = *(const size_t *)given;
    if (size < sizeof size)
        return SAFETENSORS_FAIL(INVALID, "the size member of the options for safetensors is not set");
    memcpy(out, given, size < bytes ? size : bytes);
    memcpy(out, &bytes, sizeof bytes);
    return LOCH_OK;
}

#endif

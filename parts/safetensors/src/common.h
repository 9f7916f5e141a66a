/* SPDX-License-Identifier: MIT */
/* What the files of the library share. Sentences show the end of a path (safetensors_tail), and the first 60 bytes of a
 * name or the first 40 of two, so that the figures behind them fit. */
#ifndef SAFETENSORS_COMMON_H
#define SAFETENSORS_COMMON_H

#include "kit/cancel.h"
#include "kit/fail.h"
#include "kit/sized.h"
#include <loch/safetensors.h>
#include <stdbool.h>
#include <string.h>

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

#endif

/* SPDX-License-Identifier: MIT */
/* The check of loch_format, used by every function that prints in one. */
#ifndef LOCHI_FORMAT_H
#define LOCHI_FORMAT_H

#include "kit/printing.h"
#include <loch/stats.h>

/* Returns E_INVALID for an unknown format. */
static inline loch_status lochi_format_check(loch_format format)
{
    if ((unsigned)format > LOCH_FORMAT_JSON) return LOCH_FAIL(INVALID, "format %d is not known", (int)format);
    return LOCH_OK;
}

#endif

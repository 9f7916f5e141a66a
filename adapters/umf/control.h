/* SPDX-License-Identifier: MIT */
/* UMF's controls (umfCtlGet, umfCtlSet, UMF_CONF) of a Loch pool. */
#ifndef LOCHI_UMF_CONTROL_H
#define LOCHI_UMF_CONTROL_H

#include <loch/pool.h>
#include "interface.h"

/* Reads or writes the control `path` of a pool. INVALID_PATH: there is no such control, or it cannot be read, written
 * or run. INVALID_ARGUMENT: the value has another size, or its text is no number. */
lochi_umf_result lochi_umf_control(loch_allocator *pool, lochi_umf_origin origin, const char *path, void *value,
                                   size_t size, lochi_umf_query query);

/* Returns UMF's result for a status. */
lochi_umf_result lochi_umf_result_of(loch_status status);

#endif

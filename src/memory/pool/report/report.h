/* SPDX-License-Identifier: MIT */
/* Figures of a pool. */
#ifndef LOCHI_POOL_REPORT_H
#define LOCHI_POOL_REPORT_H

#include "memory/pool/state/state.h"
#include "memory/pool/report/check.h"
#include "memory/pool/report/image.h"
#include "memory/pool/report/walk.h"

/* Reads the figures of loch_pool_get_info. */
void lochi_pool_read_info(lochi_pool *pool, loch_pool_info *out);
/* Reads the statistics. */
void lochi_pool_read_stats(lochi_pool *pool, loch_stats *out);
/* Starts a new segment of the statistics: sets the peaks to the bytes in use now, and the largest request to 0. */
void lochi_pool_begin_segment(lochi_pool *pool);

#endif

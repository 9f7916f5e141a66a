/* SPDX-License-Identifier: MIT */
/* Figures of a pool. */
#ifndef LOCHI_POOL_REPORT_H
#define LOCHI_POOL_REPORT_H

#include "memory/pool/state.h"

/* Reads what loch_pool_get_info tells. */
void lochi_pool_read_info(lochi_pool *pool, loch_pool_info *out);
/* Reads the statistics. */
void lochi_pool_read_stats(lochi_pool *pool, loch_stats *out);
/* Begins a segment: peaks are what is in use now, the largest request is 0. */
void lochi_pool_begin_segment(lochi_pool *pool);

#endif

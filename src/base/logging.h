/* SPDX-License-Identifier: MIT */
/* Writing to the log. The level is tested first, so a silent log costs one load. Do not log while holding a lock of
 * a rank above LOCHI_RANK_LOG. */
#ifndef LOCHI_LOGGING_H
#define LOCHI_LOGGING_H

#include "base/shared.h"
#include <loch/log.h>
#include <stdatomic.h>

LOCHI_SHARED extern _Atomic(int) lochi_log_level; /* relaxed: a late reader logs one line more or less */

/* Returns the level that is logged now; LOCH_LOG_OFF if the log is silent. */
loch_log_level lochi_log_get_level(void);

LOCHI_SHARED void lochi_log_write(loch_log_level level, const char *format, ...) LOCH_PRINTF(2, 3);

/* Returns E_INVALID if the environment variable LOCH_LOG decides the level and has an invalid value. */
LOCH_MUST_USE loch_status lochi_log_check(void);

#define LOCHI_LOG(suffix, ...)                                                                                         \
    do {                                                                                                               \
        if (atomic_load_explicit(&lochi_log_level, memory_order_relaxed) >= (int)LOCH_LOG_##suffix)                    \
            lochi_log_write(LOCH_LOG_##suffix, __VA_ARGS__);                                                           \
    } while (0)

#endif

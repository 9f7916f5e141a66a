/* SPDX-License-Identifier: MIT */
/* Writing to the log. The level is tested first, so a silent log costs one load. Not while holding a lock of rank above
 * LOCHI_RANK_LOG. */
#ifndef LOCHI_LOGGING_H
#define LOCHI_LOGGING_H

#include <loch/log.h>
#include <stdatomic.h>

extern _Atomic(int) lochi_log_level; /* relaxed: a late reader logs one line more or less */

/* Returns the level that is logged now; LOCH_LOG_OFF when the log is silent. */
loch_log_level lochi_log_get_level(void);

void lochi_log_write(loch_log_level level, const char *format, ...) LOCH_PRINTF(2, 3);

/* E_INVALID if LOCH_LOG decides how much is logged and holds a value that it does not take. */
LOCH_MUST_USE loch_status lochi_log_check(void);

#define LOCHI_LOG(suffix, ...)                                                                                         \
    do {                                                                                                               \
        if (atomic_load_explicit(&lochi_log_level, memory_order_relaxed) >= (int)LOCH_LOG_##suffix)                    \
            lochi_log_write(LOCH_LOG_##suffix, __VA_ARGS__);                                                           \
    } while (0)

#endif

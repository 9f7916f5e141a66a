/* SPDX-License-Identifier: MIT */
/** @file log.h
 *  The log. Loch prints nothing unless a hook is set, or the option `log` (LOCH_LOG) names a level; the option sends
 *  the log to standard error.
 */
#ifndef LOCH_LOG_H
#define LOCH_LOG_H

#include <loch/status.h>

LOCH_BEGIN_DECLS

/** Importance of a log message. A hook receives messages of its own level and of the levels before it in this list. */
typedef enum loch_log_level {
    LOCH_LOG_OFF,     /**< no messages */
    LOCH_LOG_ERROR,   /**< something was lost or is wrong */
    LOCH_LOG_WARNING, /**< works, but not as requested or not well */
    LOCH_LOG_INFO,    /**< rare events: a device was opened, a driver was loaded, a cache was emptied */
    LOCH_LOG_DEBUG    /**< every driver call */
} loch_log_level;

/** Receives one line of the log, without a line end. Called from any thread, from several at a time. It must not call
 *  Loch. */
typedef void loch_log_hook(loch_log_level level, const char *line, void *user);

/** Sets the log hook of the process and its level. A NULL hook turns the log off. `user` is borrowed as long as the
 *  hook is set; after a change, a thread that is logging may still be inside the old hook. Any thread. */
LOCH_API void loch_log_set_hook(loch_log_hook *hook, void *user, loch_log_level level);

LOCH_END_DECLS

#endif

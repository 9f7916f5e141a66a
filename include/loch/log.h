/* SPDX-License-Identifier: MIT */
/** @file log.h
 *  The log hook. Loch is silent unless a hook is set, or the option `log` (LOCH_LOG) names a level, which then
 *  goes to standard error.
 */
#ifndef LOCH_LOG_H
#define LOCH_LOG_H

#include <loch/status.h>

LOCH_BEGIN_DECLS

/** How much a message matters; a hook hears its own level and those above it in this list. */
typedef enum loch_log_level {
    LOCH_LOG_OFF,     /**< nothing at all */
    LOCH_LOG_ERROR,   /**< something was lost or is wrong */
    LOCH_LOG_WARNING, /**< it works, but not as asked or not well */
    LOCH_LOG_INFO,    /**< rare events: devices opened, drivers loaded, caches emptied */
    LOCH_LOG_DEBUG    /**< every driver call */
} loch_log_level;

/** Called with one line, without a line end. May be called from any thread, several at a time; must not call Loch. */
typedef void loch_log_hook(loch_log_level level, const char *line, void *user);

/** Sets the process's hook, or silences the log with hook NULL. `user` is borrowed for as long as the hook is set;
 *  after a change a thread that was logging may still be inside the old hook. Any thread. */
LOCH_API void loch_log_set_hook(loch_log_hook *hook, void *user, loch_log_level level);

/** The level that is heard now; LOCH_LOG_OFF when the log is silent. Any thread. */
LOCH_API loch_log_level loch_log_get_level(void);

/** "off", "error", "warning", "info", "debug". Static string. */
LOCH_API const char *loch_log_level_name(loch_log_level level);

LOCH_END_DECLS

#endif

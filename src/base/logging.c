/* SPDX-License-Identifier: MIT */
/* The log hook. The level starts as "undecided", above every real level, so that the first message reads the option
 * `log`. From then on a silent log costs one relaxed load. The hook is copied under the lock and called without it,
 * so a slow hook delays no other thread. */
#include "base/logging.h"
#include "kit/cancel.h"
#include "base/lock.h"
#include "base/options.h"
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#define LOGGING_UNDECIDED ((int)LOCH_LOG_DEBUG + 1)
#define LOGGING_LINE_MAX 512

static const char *const logging_level_names[] = {"off", "error", "warning", "info", "debug"};

_Atomic(int) lochi_log_level = LOGGING_UNDECIDED;

static lochi_lock logging_lock = LOCHI_LOCK_INITIALIZER(LOCHI_RANK_LOG);
static loch_log_hook *logging_hook; /* under logging_lock, as is logging_user */
static void *logging_user;

static void logging_to_stderr(loch_log_level level, const char *line, void *user)
{
    (void)user;
    fprintf(stderr, "loch: %s: %s\n", logging_level_names[level], line);
}

/* Reads the option `log` once, unless a hook was set meanwhile. An invalid value leaves the log undecided and
 * silent; the next loch_device_open then fails. */
static void logging_decide(void)
{
    char value[LOCH_OPTION_VALUE_MAX];
    if (!lochi_option_try_text("log", value)) return;
    int level = LOCH_LOG_DEBUG;
    while (level > LOCH_LOG_OFF && strcmp(value, logging_level_names[level]) != 0)
        level--;
    lochi_lock_take(&logging_lock);
    if (atomic_load_explicit(&lochi_log_level, memory_order_relaxed) == LOGGING_UNDECIDED) {
        logging_hook = level > LOCH_LOG_OFF ? logging_to_stderr : NULL;
        atomic_store_explicit(&lochi_log_level, level, memory_order_relaxed);
    }
    lochi_lock_drop(&logging_lock);
}

loch_status lochi_log_check(void)
{
    char value[LOCH_OPTION_VALUE_MAX];
    if (atomic_load_explicit(&lochi_log_level, memory_order_relaxed) == LOGGING_UNDECIDED) logging_decide();
    if (atomic_load_explicit(&lochi_log_level, memory_order_relaxed) != LOGGING_UNDECIDED) return LOCH_OK;
    return lochi_option_text("log", value);
}

void loch_log_set_hook(loch_log_hook *hook, void *user, loch_log_level level)
{
    lochi_lock_take(&logging_lock);
    logging_hook = hook;
    logging_user = user;
    atomic_store_explicit(&lochi_log_level, hook ? (int)level : (int)LOCH_LOG_OFF, memory_order_relaxed);
    lochi_lock_drop(&logging_lock);
}

loch_log_level lochi_log_get_level(void)
{
    if (atomic_load_explicit(&lochi_log_level, memory_order_relaxed) == LOGGING_UNDECIDED) logging_decide();
    const int level = atomic_load_explicit(&lochi_log_level, memory_order_relaxed);
    return level == LOGGING_UNDECIDED ? LOCH_LOG_OFF : (loch_log_level)level;
}

void lochi_log_write(loch_log_level level, const char *format, ...)
{
    LOCHI_NOT_CANCELLED;
    if (lochi_log_get_level() < level) return;
    lochi_lock_take(&logging_lock);
    loch_log_hook *hook = logging_hook;
    void *user = logging_user;
    lochi_lock_drop(&logging_lock);
    if (!hook) return;
    char line[LOGGING_LINE_MAX];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(line, sizeof line, format, arguments);
    va_end(arguments);
    hook(level, line, user);
}

/* SPDX-License-Identifier: MIT */
/* The log hook. The level starts as "undecided", above every real one, so that the first message comes here and reads
 * the option `log`; from then on a silent log costs one relaxed load. The hook is copied under a lock and called outside
 * it, so a slow hook holds nobody up. */
#include "base/logging.h"
#include "base/cancel.h"
#include "base/lock.h"
#include "base/options.h"
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#define LOG_UNDECIDED ((int)LOCH_LOG_DEBUG + 1)
#define LOG_LINE_MAX 512

static const char *const log_level_names[] = {"off", "error", "warning", "info", "debug"};

_Atomic(int) lochi_log_level = LOG_UNDECIDED;

static lochi_lock log_lock = LOCHI_LOCK_INITIALIZER(LOCHI_RANK_LOG);
static loch_log_hook *log_hook; /* under log_lock, like log_user */
static void *log_user;

static void log_to_stderr(loch_log_level level, const char *line, void *user)
{
    (void)user;
    fprintf(stderr, "loch: %s: %s\n", log_level_names[level], line);
}

const char *loch_log_level_name(loch_log_level level)
{
    return (unsigned)level < sizeof log_level_names / sizeof *log_level_names ? log_level_names[level] : "unknown";
}

/* Reads the option once, unless a hook was set meanwhile. A value that it does not take leaves the log undecided and
 * silent: the next device that is opened fails because of it. */
static void log_decide(void)
{
    char value[LOCH_OPTION_VALUE_MAX];
    if (!lochi_option_try_text("log", value)) return;
    int level = LOCH_LOG_DEBUG;
    while (level > LOCH_LOG_OFF && strcmp(value, log_level_names[level]) != 0)
        level--;
    lochi_lock_take(&log_lock);
    if (atomic_load_explicit(&lochi_log_level, memory_order_relaxed) == LOG_UNDECIDED) {
        log_hook = level > LOCH_LOG_OFF ? log_to_stderr : NULL;
        atomic_store_explicit(&lochi_log_level, level, memory_order_relaxed);
    }
    lochi_lock_drop(&log_lock);
}

loch_status lochi_log_check(void)
{
    char value[LOCH_OPTION_VALUE_MAX];
    if (atomic_load_explicit(&lochi_log_level, memory_order_relaxed) == LOG_UNDECIDED) log_decide();
    if (atomic_load_explicit(&lochi_log_level, memory_order_relaxed) != LOG_UNDECIDED) return LOCH_OK;
    return lochi_option_text("log", value);
}

void loch_log_set_hook(loch_log_hook *hook, void *user, loch_log_level level)
{
    lochi_lock_take(&log_lock);
    log_hook = hook;
    log_user = user;
    atomic_store_explicit(&lochi_log_level, hook ? (int)level : (int)LOCH_LOG_OFF, memory_order_relaxed);
    lochi_lock_drop(&log_lock);
}

loch_log_level loch_log_get_level(void)
{
    if (atomic_load_explicit(&lochi_log_level, memory_order_relaxed) == LOG_UNDECIDED) log_decide();
    const int level = atomic_load_explicit(&lochi_log_level, memory_order_relaxed);
    return level == LOG_UNDECIDED ? LOCH_LOG_OFF : (loch_log_level)level;
}

void lochi_log_write(loch_log_level level, const char *format, ...)
{
    LOCHI_NOT_CANCELLED;
    if (loch_log_get_level() < level) return;
    lochi_lock_take(&log_lock);
    loch_log_hook *hook = log_hook;
    void *user = log_user;
    lochi_lock_drop(&log_lock);
    if (!hook) return;
    char line[LOG_LINE_MAX];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(line, sizeof line, format, arguments);
    va_end(arguments);
    hook(level, line, user);
}

/* SPDX-License-Identifier: MIT */
/** @file option.h
 *  Run-time options: one table with names, environment variables, defaults and texts.
 *
 *  An option takes, in this order: what loch_option_set said, its environment variable when first read, its default.
 *  An empty variable counts as one that is not set. A value in the environment that cannot be read is never replaced by
 *  the default: whatever reads the option fails with E_INVALID and a sentence. In a program with more rights than its
 *  user (setuid, setgid, file capabilities) the environment is not read: options name files and libraries.
 *  docs/options.md and `loch info` print this same table.
 */
#ifndef LOCH_OPTION_H
#define LOCH_OPTION_H

#include <loch/status.h>

LOCH_BEGIN_DECLS

/** The longest option value, with its final zero. */
#define LOCH_OPTION_VALUE_MAX 256

/** One line of the table; all strings are static. */
typedef struct loch_option {
    const char *name;        /**< "log" */
    const char *environment; /**< "LOCH_LOG" */
    const char *type;        /**< "text", "bytes", "number", "switch", or the words allowed: "off|error|warning" */
    const char *fallback;    /**< the default, as text */
    const char *text;        /**< one sentence */
} loch_option;

/** Called with each line of the table, which is static. A return other than LOCH_OK ends the walk and becomes its result. */
typedef loch_status loch_option_visitor(const loch_option *option, void *user);

/** Walks the table, in its order. Any thread. */
LOCH_API LOCH_MUST_USE loch_status loch_option_walk(loch_option_visitor *visitor, void *user);

/** Copies an option's value in force into `value`. E_NOT_FOUND for an unknown name, E_INVALID if the environment holds
 *  a value that the option does not take: `value` is empty then. Any thread. */
LOCH_API LOCH_MUST_USE loch_status loch_option_get(const char *name, char value[LOCH_OPTION_VALUE_MAX]);

/** Sets an option for the process from now on; NULL goes back to the environment or the default. E_NOT_FOUND for an
 *  unknown name, E_INVALID for a value that does not fit its type: then nothing changes. Any thread. Parts of the
 *  library that have read the option already keep what they read; the option's text says when it is read. */
LOCH_API LOCH_MUST_USE loch_status loch_option_set(const char *name, const char *value);

/** Called with a variable of the environment that begins with LOCH_ and that nothing in Loch reads, and the known one
 *  that it resembles most, or NULL. Both are valid during the call. The walk ends when it returns other than LOCH_OK. */
typedef loch_status loch_option_unknown_visitor(const char *variable, const char *nearest, void *user);

/** Visits the variables of the environment that are likely to be misspelt, in the order that they have there. Those of
 *  Loch's own tests and builds are left out. Returns what the last call of `visitor` returned. Loch itself writes them to
 *  the log as warnings, once, when a device is opened. Not while another thread changes the environment. */
LOCH_API LOCH_MUST_USE loch_status loch_option_walk_unknown(loch_option_unknown_visitor *visitor, void *user);

LOCH_END_DECLS

#endif

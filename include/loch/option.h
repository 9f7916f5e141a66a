/* SPDX-License-Identifier: MIT */
/** @file option.h
 *  Run-time options: one table of names, environment variables, defaults and descriptions.
 *
 *  The value of an option is, in this order: the value set by loch_option_set; its environment variable at the time
 *  of the first read; its default. An empty environment variable counts as not set. A value in the environment that
 *  cannot be parsed is an error: every function that reads the option fails with E_INVALID and a sentence. The
 *  environment is not read in a program that has more rights than its user (setuid, setgid, file capabilities),
 *  because options name files and libraries. docs/options.md and `loch info` print the same table.
 */
#ifndef LOCH_OPTION_H
#define LOCH_OPTION_H

#include <loch/status.h>

LOCH_BEGIN_DECLS

/** The longest value of an option in bytes, including the final zero. */
#define LOCH_OPTION_VALUE_MAX 256

/** Copies the value of an option that is in force to `value`. E_NOT_FOUND: there is no such option. E_INVALID: the
 *  environment holds a value that the option does not accept; `value` is then empty. Any thread. */
LOCH_API LOCH_MUST_USE loch_status loch_option_get(const char *name, char value[LOCH_OPTION_VALUE_MAX]);

/** Sets an option for the process from now on. NULL returns to the environment variable or the default. E_NOT_FOUND:
 *  there is no such option. E_INVALID: the value does not fit the type of the option. On failure nothing changes. A
 *  part of the library that has already read the option keeps the old value; the description of the option says when
 *  it is read. Any thread. */
LOCH_API LOCH_MUST_USE loch_status loch_option_set(const char *name, const char *value);

/** One row of the option table. All strings are static. */
typedef struct loch_option {
    const char *name;        /**< name of the option: "log" */
    const char *environment; /**< name of the environment variable: "LOCH_LOG" */
    /** Type: "text", "bytes", "number", "switch", or the list of accepted words: "off|error|warning". */
    const char *type;
    const char *fallback; /**< default value as text */
    const char *text;     /**< description, one sentence */
} loch_option;

/** Receives one row of the option table. The row is static. A return value other than LOCH_OK ends the walk and
 *  becomes its result. */
typedef loch_status loch_option_visitor(const loch_option *option, void *user);

/** Walks the rows of the option table in table order. Any thread. */
LOCH_API LOCH_MUST_USE loch_status loch_option_walk(loch_option_visitor *visitor, void *user);

/** Receives an environment variable that begins with LOCH_ and that Loch does not read, and the most similar variable
 *  that Loch does read, or NULL. Both strings are valid during the call. A return value other than LOCH_OK ends the
 *  walk and becomes its result. */
typedef loch_status loch_option_unknown_visitor(const char *variable, const char *nearest, void *user);

/** Walks the environment variables that begin with LOCH_ and that Loch does not read, in the order of the
 *  environment. These are probably misspelt. Variables of Loch's own tests and builds are left out. Loch also logs
 *  each of them once as a warning when a device is opened. No other thread may change the environment during this
 *  call. */
LOCH_API LOCH_MUST_USE loch_status loch_option_walk_unknown(loch_option_unknown_visitor *visitor, void *user);

LOCH_END_DECLS

#endif

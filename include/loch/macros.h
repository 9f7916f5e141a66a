/* SPDX-License-Identifier: MIT */
/** @file macros.h
 *  Version numbers, and the compiler attributes that the public headers use.
 */
#ifndef LOCH_MACROS_H
#define LOCH_MACROS_H

#include <stddef.h>
#include <stdint.h>

#define LOCH_VERSION_MAJOR 0 /**< major version number of these headers */
#define LOCH_VERSION_MINOR 2 /**< minor version number of these headers */
#define LOCH_VERSION_PATCH 0 /**< patch number of these headers */
/** Version of these headers as text. loch_version returns the version of the library that is running. */
#define LOCH_VERSION_STRING "0.2.0"

#if defined(__GNUC__)
#define LOCH_API __attribute__((visibility("default")))
#define LOCH_MUST_USE __attribute__((warn_unused_result))
#define LOCH_PRINTF(format_index, first_index) __attribute__((format(printf, format_index, first_index)))
/** Marks a function that goes with the next minor version but one. `instead` names what to use. */
#define LOCH_DEPRECATED(instead) __attribute__((deprecated(instead)))
#else
#define LOCH_API
#define LOCH_MUST_USE
#define LOCH_PRINTF(format_index, first_index)
#define LOCH_DEPRECATED(instead)
#endif

#ifdef __cplusplus
#define LOCH_BEGIN_DECLS extern "C" {
#define LOCH_END_DECLS }
#else
#define LOCH_BEGIN_DECLS
#define LOCH_END_DECLS
#endif

LOCH_BEGIN_DECLS

/** Returns the version of the library that is running: "0.2.0". LOCH_VERSION_STRING is the version that the program
 *  was compiled with. Static string. Any thread. */
LOCH_API const char *loch_version(void);

LOCH_END_DECLS

#endif

/* SPDX-License-Identifier: MIT */
/** @file macros.h
 *  Version numbers, and the compiler attributes that the public headers use.
 */
#ifndef LOCH_MACROS_H
#define LOCH_MACROS_H

#include <stddef.h>
#include <stdint.h>

#define LOCH_VERSION_MAJOR 0 /**< major version number of these headers */
#define LOCH_VERSION_MINOR 3 /**< minor version number of these headers */
#define LOCH_VERSION_PATCH 0 /**< patch number of these headers */
/** Version of these headers as text. loch_version returns the version of the library that is running. */
#define LOCH_VERSION_STRING "0.3.0"

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

#define LOCH_FIRST(first, ...) first                       /**< for the macros of these headers */
#define LOCH_REST(first, ...) __VA_ARGS__                  /**< for the macros of these headers */
#define LOCH_JOIN(a, b) LOCH_JOIN_EXPANDED(a, b)           /**< for the macros of these headers */
#define LOCH_JOIN_EXPANDED(a, b) a##b                      /**< for the macros of these headers */
#define LOCH_UNIQUE(prefix) LOCH_JOIN(prefix, __COUNTER__) /**< another name at each use, also within one line */

/** A struct with its size member set and the named members: LOCH_SIZED(loch_stats),
 *  LOCH_SIZED(loch_external, .deleter = my_deleter). LOCH_OPTIONS is a pointer to a loch_<kind>_options, for one call:
 *  loch_pool_create(device, "model", LOCH_OPTIONS(pool, .limit_bytes = n), &pool). Both live until the end of the block
 *  around them. C only: C++ has loch::sized, and loch.hpp sets the size of options. */
#ifndef __cplusplus
#define LOCH_SIZED(...) /* type, members */                                                                            \
    ((LOCH_FIRST(__VA_ARGS__, 0)){.size = sizeof(LOCH_FIRST(__VA_ARGS__, 0)), LOCH_REST(__VA_ARGS__, )})
#define LOCH_OPTIONS(kind, ...) (&(loch_##kind##_options){.size = sizeof(loch_##kind##_options), __VA_ARGS__})
#endif

/** Defines loch_<kind>_clear, with which LOCH_AUTO and LOCH_WITH end an object (scope.h): it sets `*slot` to NULL and
 *  evaluates `end`, in which `object` is the object. A NULL slot and an empty slot do nothing. */
#define LOCH_DEFINE_CLEAR(kind, end)                                                                                   \
    static inline void loch_##kind##_clear(loch_##kind **slot)                                                         \
    {                                                                                                                  \
        loch_##kind *object = slot ? *slot : NULL;                                                                     \
        if (!object) return;                                                                                           \
        *slot = NULL;                                                                                                  \
        end;                                                                                                           \
    }

LOCH_BEGIN_DECLS

/** Returns the version of the library that is running: "0.3.0". LOCH_VERSION_STRING is the version that the program
 *  was compiled with. Static string. Any thread. */
LOCH_API const char *loch_version(void);

LOCH_END_DECLS

#endif

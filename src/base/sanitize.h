/* SPDX-License-Identifier: MIT */
/* Sanitizers that the code is compiled for, with gcc and with clang: each name is 1 or 0. No other file of the
 * library tests the compiler's macros. */
#ifndef LOCHI_SANITIZE_H
#define LOCHI_SANITIZE_H

#if defined(__has_feature)
#define LOCHI_HAS_FEATURE(feature) __has_feature(feature)
#else
#define LOCHI_HAS_FEATURE(feature) 0
#endif

/* AddressSanitizer: memory can be poisoned, and free memory is. */
#if defined(__SANITIZE_ADDRESS__) || LOCHI_HAS_FEATURE(address_sanitizer)
#define LOCHI_ASAN 1
#else
#define LOCHI_ASAN 0
#endif

/* ThreadSanitizer: does not model fences, and leaves the process little address space. */
#if defined(__SANITIZE_THREAD__) || LOCHI_HAS_FEATURE(thread_sanitizer)
#define LOCHI_TSAN 1
#else
#define LOCHI_TSAN 0
#endif

/* MemorySanitizer: in clang only. Finds reads of memory that was never written. */
#if LOCHI_HAS_FEATURE(memory_sanitizer)
#define LOCHI_MSAN 1
#else
#define LOCHI_MSAN 0
#endif

#endif

/* SPDX-License-Identifier: MIT */
/** @file require.hpp
 *  What the C++ headers need of a compiler. LOCH_CPP is 1 where they can be used; otherwise there is one \#error, and
 *  the headers declare nothing.
 */
#ifndef LOCH_CPP

#if !defined(__cplusplus)
#define LOCH_CPP 0
#error "loch.hpp is for C++17 or later; C programs include <loch/loch.h>"
#elif __cplusplus < 201703L
#define LOCH_CPP 0
#error "loch.hpp needs C++17 or later: compile with -std=c++17"
#elif !defined(__cpp_exceptions) && !defined(__EXCEPTIONS)
#define LOCH_CPP 0
#error "loch.hpp reports failures as exceptions: compile without -fno-exceptions, or include <loch/loch.h>"
#else
#define LOCH_CPP 1
#endif

#endif

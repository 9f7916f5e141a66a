/* SPDX-License-Identifier: MIT */
/* Internal header of the adapters for engines in C++. */
#ifndef LOCHI_RAISE_H
#define LOCHI_RAISE_H

/* Throws std::runtime_error(text) with the C++ library of the process; returns if the process has none. The text is
 * copied. */
void lochi_raise(const char *text);

#endif

/* SPDX-License-Identifier: MIT */
/* Texts of other programs in files that must be UTF-8. */
#ifndef LOCH_INSIGHT_UTF8_H
#define LOCH_INSIGHT_UTF8_H

#include <stddef.h>

/* Returns the length of the character at the start of a text of `bytes` bytes; 0 if there is none: those bytes are not
 * UTF-8. */
size_t insight_utf8_length(const char *text, size_t bytes);

#endif

/* SPDX-License-Identifier: MIT */
/* The beginning and the end of every public function that prints into a caller's buffer. */
#ifndef LOCHI_PRINTING_H
#define LOCHI_PRINTING_H

#include "kit/fail.h"
#include "kit/text.h"

/* Empties the text and sets `*length` to 0; `length` may be NULL. Fails if `object` is NULL, or if `text` is NULL
 * and `bytes` is not 0. */
static inline loch_status lochi_printing_begin(const void *object, char *text, size_t bytes, size_t *length)
{
    if (length) *length = 0;
    if (bytes && text) *text = '\0';
    if (!object) return LOCH_FAIL(INVALID, "there is nothing to print: the object is NULL");
    if (bytes && !text) return LOCH_FAIL(INVALID, "the text is NULL, but its size is %zu bytes, not 0", bytes);
    return LOCH_OK;
}

/* Writes the length of the whole text to `*length`. Returns LOCH_OK. */
static inline loch_status lochi_printing_end(const lochi_text *out, size_t *length)
{
    if (length) *length = out->length;
    return LOCH_OK;
}

#endif

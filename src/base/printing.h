/* SPDX-License-Identifier: MIT */
/* The two ends of every public function that prints into a caller's buffer. */
#ifndef LOCHI_PRINTING_H
#define LOCHI_PRINTING_H

#include "base/fail.h"
#include "base/text.h"

/* Empties the text and sets `*length` (may be NULL) to 0. Fails for an object that is missing, and for a buffer that is NULL and not empty. */
static inline loch_status lochi_printing_begin(const void *object, char *text, size_t bytes, size_t *length)
{
    if (length) *length = 0;
    if (bytes && text) *text = '\0';
    if (!object) return LOCH_FAIL(INVALID, "there is nothing to print: the object is NULL");
    if (bytes && !text) return LOCH_FAIL(INVALID, "the text has %zu bytes at NULL", bytes);
    return LOCH_OK;
}

/* Hands the length of the whole over; returns LOCH_OK. */
static inline loch_status lochi_printing_end(const lochi_text *out, size_t *length)
{
    if (length) *length = out->length;
    return LOCH_OK;
}

#endif

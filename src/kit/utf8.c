/* SPDX-License-Identifier: MIT */
#include "kit/utf8.h"
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

size_t lochi_utf8_length(const char *at, size_t bytes)
{
    const unsigned char *text = (const unsigned char *)at, lead = bytes ? *text : 0xff;
    if (lead < 0x80) return 1;
    const size_t length = lead >= 0xf0 ? 4 : lead >= 0xe0 ? 3 : 2;
    if (lead < 0xc2 || lead > 0xf4 || length > bytes) return 0;
    for (size_t i = 1; i < length; i++)
        if ((text[i] & 0xc0) != 0x80) return 0; /* the final zero too */
    const bool is_wrong = (lead == 0xe0 && text[1] < 0xa0) || (lead == 0xed && text[1] > 0x9f) ||
                          (lead == 0xf0 && text[1] < 0x90) || (lead == 0xf4 && text[1] > 0x8f);
    return is_wrong ? 0 : length;
}

size_t lochi_utf8_check(const char *text, size_t bytes)
{
    size_t at = 0;
    for (size_t length; at < bytes && (length = lochi_utf8_length(text + at, bytes - at));)
        at += length;
    return at;
}

size_t lochi_utf8_control(const char *at)
{
    const unsigned char *text = (const unsigned char *)at;
    if (*text < 0x20 || *text == 0x7f) return 1;
    return *text == 0xc2 && text[1] >= 0x80 && text[1] < 0xa0 ? 2 : 0;
}

size_t lochi_json_escape(const char **at, char out[LOCHI_JSON_PIECE])
{
    const char *text = *at;
    const size_t length = lochi_utf8_length(text, SIZE_MAX);
    *at += length ? length : 1;
    if (!length) return (size_t)snprintf(out, LOCHI_JSON_PIECE, "\\ufffd");
    if (lochi_utf8_control(text))
        return (size_t)snprintf(out, LOCHI_JSON_PIECE, "\\u%04x", (unsigned char)text[length - 1]);
    if (*text == '"' || *text == '\\') return (size_t)snprintf(out, LOCHI_JSON_PIECE, "\\%c", *text);
    memcpy(out, text, length);
    out[length] = '\0';
    return length;
}

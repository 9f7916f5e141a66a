/* SPDX-License-Identifier: MIT */
#include "escape.h"
#include <stdint.h>
#include <string.h>

size_t lochi_insight_utf8_length(const char *text, size_t bytes)
{
    static const uint32_t lowest[] = {0, 0, 0x80, 0x800, 0x10000}; /* shorter forms of a character are wrong */
    const unsigned char *at = (const unsigned char *)text;
    if (!bytes) return 0;
    if (*at < 0x80) return 1;
    const size_t length = *at >= 0xf0 ? 4 : *at >= 0xe0 ? 3 : 2;
    if (*at < 0xc2 || *at > 0xf4 || length > bytes) return 0;
    uint32_t code = *at & (0x7fu >> length);
    for (size_t i = 1; i < length; i++) {
        if ((at[i] & 0xc0) != 0x80) return 0;
        code = code << 6 | (at[i] & 0x3f);
    }
    const int is_surrogate = code >= 0xd800 && code <= 0xdfff;
    return code < lowest[length] || code > 0x10ffff || is_surrogate ? 0 : length;
}

size_t lochi_insight_control_length(const char *text)
{
    const unsigned char *at = (const unsigned char *)text;
    if (*at < ' ' || *at == 127) return 1;
    return *at == 0xc2 && at[1] >= 0x80 && at[1] < 0xa0 ? 2 : 0;
}

void lochi_insight_put_json(FILE *file, const char *text)
{
    size_t left = strlen(text);
    putc_unlocked('"', file);
    while (left) {
        const size_t length = lochi_insight_utf8_length(text, left);
        if (!length)
            putc_unlocked('?', file);
        else if (*text == '"' || *text == '\\')
            fprintf(file, "\\%c", *text);
        else if (lochi_insight_control_length(text))
            fprintf(file, "\\u%04x", (unsigned char)text[length - 1]);
        else
            fwrite(text, 1, length, file);
        text += length ? length : 1;
        left -= length ? length : 1;
    }
    putc_unlocked('"', file);
}

/* SPDX-License-Identifier: MIT */
/* Writing text into a buffer of limited size. */
#include "kit/text.h"
#include "kit/utf8.h"
#include <stdarg.h>
#include <stdint.h>

lochi_text lochi_text_begin(char *text, size_t bytes)
{
    if (bytes) *text = '\0';
    return (lochi_text){text, bytes, 0};
}

void lochi_text_write(lochi_text *out, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    const size_t left = out->length < out->bytes ? out->bytes - out->length : 0;
    const int length = vsnprintf(left ? out->text + out->length : NULL, left, format, arguments);
    va_end(arguments);
    if (length > 0) out->length += (size_t)length;
}

void lochi_text_write_json(lochi_text *out, const char *string)
{
    char piece[LOCHI_JSON_PIECE];
    lochi_text_write(out, "\"");
    for (const char *at = string ? string : ""; *at;) {
        (void)lochi_json_escape(&at, piece);
        lochi_text_write(out, "%s", piece);
    }
    lochi_text_write(out, "\"");
}

void lochi_text_put_json(FILE *file, const char *string)
{
    char piece[LOCHI_JSON_PIECE];
    putc_unlocked('"', file);
    for (const char *at = string ? string : ""; *at;) {
        const size_t length = lochi_json_escape(&at, piece);
        fwrite(piece, 1, length, file);
    }
    putc_unlocked('"', file);
}

void lochi_text_write_name(lochi_text *out, const char *name)
{
    for (const char *at = name; *at;) {
        const size_t length = lochi_utf8_length(at, SIZE_MAX);
        if (!length)
            lochi_text_write(out, "?");
        else if (lochi_utf8_control(at))
            lochi_text_write(out, "\\x%02x", (unsigned char)at[length - 1]);
        else
            lochi_text_write(out, "%.*s", (int)length, at);
        at += length ? length : 1;
    }
}

/* SPDX-License-Identifier: MIT */
/* Writing text into a buffer of limited size. */
#include "kit/text.h"
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

lochi_size lochi_size_of(unsigned long long bytes)
{
    static const char *const units[] = {"B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"};
    lochi_size size;
    unsigned long long whole = bytes, rest = 0; /* rest: remainder in 1/1024 of the unit */
    size_t unit = 0;
    for (; whole >= 1024; unit++, whole /= 1024)
        rest = whole % 1024;
    const unsigned long long tenths = rest * 10 / 1024;
    if (tenths)
        snprintf(size.text, sizeof size.text, "%llu.%llu %s", whole, tenths, units[unit]);
    else
        snprintf(size.text, sizeof size.text, "%llu %s", whole, units[unit]);
    return size;
}

lochi_time lochi_time_of(unsigned long long ns)
{
    static const char *const units[] = {"ns", "us", "ms", "s"};
    lochi_time time;
    unsigned long long whole = ns;
    unsigned part = 0; /* thousandths of the unit */
    size_t unit = 0;
    for (; whole >= 1000 && unit < 3; unit++, whole /= 1000)
        part = (unsigned)(whole % 1000);
    if (unit)
        snprintf(time.text, sizeof time.text, "%llu.%03u %s", whole, part, units[unit]);
    else
        snprintf(time.text, sizeof time.text, "%llu ns", whole);
    return time;
}

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

/* The final zero is not a continuation byte, so no byte after it is read. */
int lochi_text_utf8_length(const char *text)
{
    const unsigned char *at = (const unsigned char *)text;
    const unsigned char lead = at[0];
    if (lead < 0x80) return 1;
    const int length = lead >= 0xc2 && lead < 0xe0   ? 2
                       : lead >= 0xe0 && lead < 0xf0 ? 3
                       : lead >= 0xf0 && lead < 0xf5 ? 4
                                                     : 0;
    for (int i = 1; i < length; i++)
        if ((at[i] & 0xc0) != 0x80) return 0;
    /* overlong forms, surrogates, characters above U+10FFFF */
    if ((lead == 0xe0 && at[1] < 0xa0) || (lead == 0xed && at[1] > 0x9f)) return 0;
    if ((lead == 0xf0 && at[1] < 0x90) || (lead == 0xf4 && at[1] > 0x8f)) return 0;
    return length;
}

void lochi_text_write_json(lochi_text *out, const char *string)
{
    lochi_text_write(out, "\"");
    for (const unsigned char *at = (const unsigned char *)(string ? string : ""); *at;) {
        const int length = lochi_text_utf8_length((const char *)at);
        if (!length)
            lochi_text_write(out, "\\ufffd");
        else if (*at == '"' || *at == '\\')
            lochi_text_write(out, "\\%c", *at);
        else if (*at < 0x20 || *at == 0x7f)
            lochi_text_write(out, "\\u%04x", *at);
        else
            lochi_text_write(out, "%.*s", length, (const char *)at);
        at += length ? length : 1;
    }
    lochi_text_write(out, "\"");
}

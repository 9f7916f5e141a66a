/* SPDX-License-Identifier: MIT */
/* A strict reader of JSON that works in place (scan.h). What it writes is never longer than what it has read: the
 * contents of a string are shorter than the string with its marks and escapes. */
#include "scan.h"
#include <string.h>

#define SCAN_DEPTH_MAX 64

bool lochi_safetensors_scan_fail(safetensors_scan *scan, const char *wrong)
{
    if (!scan->wrong) {
        scan->wrong = wrong;
        scan->wrong_at = (size_t)(scan->at - scan->start);
    }
    return false;
}

/* --- characters --- */

/* Returns the length of a character of UTF-8; 0 if it is not valid: too long a form, a surrogate, above U+10FFFF. */
static size_t utf8_length(const unsigned char *at, size_t left)
{
    const unsigned char lead = at[0];
    if (lead < 0x80) return 1;
    const size_t length = lead >= 0xF0 ? 4 : lead >= 0xE0 ? 3 : 2;
    if (lead < 0xC2 || lead > 0xF4 || left < length) return 0;
    for (size_t i = 1; i < length; i++)
        if ((at[i] & 0xC0) != 0x80) return 0;
    const bool is_wrong = (lead == 0xE0 && at[1] < 0xA0) || (lead == 0xED && at[1] > 0x9F) ||
                          (lead == 0xF0 && at[1] < 0x90) || (lead == 0xF4 && at[1] > 0x8F);
    return is_wrong ? 0 : length;
}

size_t lochi_safetensors_utf8(const char *text, size_t bytes)
{
    size_t at = 0;
    for (size_t length; at < bytes; at += length) {
        length = utf8_length((const unsigned char *)text + at, bytes - at);
        if (!length) break;
    }
    return at;
}

safetensors_scan lochi_safetensors_scan_begin(char *text, size_t bytes)
{
    safetensors_scan scan = {.start = text, .at = text, .end = text + bytes};
    const size_t good = lochi_safetensors_utf8(text, bytes);
    if (good < bytes) {
        scan.wrong = "not UTF-8";
        scan.wrong_at = good;
    }
    return scan;
}

char lochi_safetensors_scan_peek(safetensors_scan *scan)
{
    if (scan->wrong) return '\0';
    while (scan->at < scan->end && (*scan->at == ' ' || *scan->at == '\t' || *scan->at == '\n' || *scan->at == '\r'))
        scan->at++;
    return scan->at < scan->end ? *scan->at : '\0';
}

bool lochi_safetensors_scan_take(safetensors_scan *scan, char character, const char *wrong)
{
    if (lochi_safetensors_scan_peek(scan) != character) return lochi_safetensors_scan_fail(scan, wrong);
    scan->at++;
    return true;
}

bool lochi_safetensors_scan_next(safetensors_scan *scan, char close, size_t *count)
{
    const char next = lochi_safetensors_scan_peek(scan);
    if (scan->wrong) return false;
    if (scan->at == scan->end) return lochi_safetensors_scan_fail(scan, "the text ends too early");
    if (next == close) {
        scan->at++;
        return false;
    }
    if (*count) {
        if (next != ',') return lochi_safetensors_scan_fail(scan, "a comma or a closing bracket is expected");
        scan->at++;
    }
    ++*count;
    return true;
}

/* --- text --- */

static bool scan_hex(safetensors_scan *scan, unsigned *out)
{
    *out = 0;
    for (int i = 0; i < 4; i++, scan->at++) {
        static const char digits[] = "0123456789abcdef0123456789ABCDEF";
        const char *found = scan->at < scan->end && *scan->at ? strchr(digits, *scan->at) : NULL;
        if (!found) return lochi_safetensors_scan_fail(scan, "\\u needs four hexadecimal digits");
        *out = *out << 4 | (unsigned)((found - digits) & 15);
    }
    return true;
}

/* Reads the number of a character behind \u, and the second half of a pair. */
static bool scan_unicode(safetensors_scan *scan, unsigned *out)
{
    unsigned low;
    if (!scan_hex(scan, out)) return false;
    if (*out >= 0xDC00 && *out < 0xE000)
        return lochi_safetensors_scan_fail(scan, "half of a surrogate pair is missing");
    if (!*out) return lochi_safetensors_scan_fail(scan, "text has a zero in it");
    if (*out < 0xD800 || *out >= 0xE000) return true;
    if (scan->end - scan->at < 2 || scan->at[0] != '\\' || scan->at[1] != 'u')
        return lochi_safetensors_scan_fail(scan, "half of a surrogate pair is missing");
    scan->at += 2;
    if (!scan_hex(scan, &low)) return false;
    if (low < 0xDC00 || low >= 0xE000) return lochi_safetensors_scan_fail(scan, "half of a surrogate pair is missing");
    *out = 0x10000 + ((*out - 0xD800) << 10) + (low - 0xDC00);
    return true;
}

/* Writes a character as UTF-8. Returns the place behind it. */
static char *scan_put(char *to, unsigned code)
{
    static const unsigned char leads[] = {0, 0xC0, 0xE0, 0xF0};
    const unsigned more = code < 0x80 ? 0 : code < 0x800 ? 1 : code < 0x10000 ? 2 : 3;
    *to++ = (char)(leads[more] | code >> (6 * more));
    for (unsigned i = more; i--;)
        *to++ = (char)(0x80 | (code >> (6 * i) & 0x3F));
    return to;
}

/* Reads what is behind a backslash. Returns the place behind what it wrote; NULL after a mistake. */
static char *scan_escape(safetensors_scan *scan, char *to)
{
    static const char names[] = "\"\\/bfnrt", values[] = "\"\\/\b\f\n\r\t";
    unsigned code;
    const char name = scan->at < scan->end ? *scan->at : '\0';
    const char *found = name ? strchr(names, name) : NULL;
    if (found) {
        scan->at++;
        *to = values[found - names];
        return to + 1;
    }
    if (name != 'u') {
        lochi_safetensors_scan_fail(scan, "an unknown escape in text");
        return NULL;
    }
    scan->at++;
    return scan_unicode(scan, &code) ? scan_put(to, code) : NULL;
}

char *lochi_safetensors_scan_text(safetensors_scan *scan)
{
    if (!lochi_safetensors_scan_take(scan, '"', "text is expected")) return NULL;
    char *text = scan->at, *to = text;
    while (scan->at < scan->end) {
        const char next = *scan->at;
        if (next == '"') {
            scan->at++;
            *to = '\0'; /* at the closing mark, or before it */
            return text;
        }
        if ((unsigned char)next < 0x20) {
            lochi_safetensors_scan_fail(scan, "text has a control character in it");
            return NULL;
        }
        scan->at++;
        if (next != '\\')
            *to++ = next;
        else if (!(to = scan_escape(scan, to)))
            return NULL;
    }
    lochi_safetensors_scan_fail(scan, "the text ends too early");
    return NULL;
}

char *lochi_safetensors_scan_name(safetensors_scan *scan)
{
    char *name = lochi_safetensors_scan_text(scan);
    return name && lochi_safetensors_scan_take(scan, ':', "a colon is expected behind a name") ? name : NULL;
}

/* --- numbers --- */

static bool scan_is_digit(const safetensors_scan *scan)
{
    return scan->at < scan->end && *scan->at >= '0' && *scan->at <= '9';
}

bool lochi_safetensors_scan_whole(safetensors_scan *scan, uint64_t *out)
{
    uint64_t value = 0;
    const char next = lochi_safetensors_scan_peek(scan);
    if (next == '-') return lochi_safetensors_scan_fail(scan, "a number is negative");
    if (scan->wrong || !scan_is_digit(scan)) return lochi_safetensors_scan_fail(scan, "a whole number is expected");
    const char *start = scan->at;
    for (; scan_is_digit(scan); scan->at++) {
        const unsigned digit = (unsigned)(*scan->at - '0');
        if (value > (UINT64_MAX - digit) / 10) return lochi_safetensors_scan_fail(scan, "a number is above 2^64 - 1");
        value = value * 10 + digit;
    }
    if (*start == '0' && scan->at - start > 1) return lochi_safetensors_scan_fail(scan, "a number begins with 0");
    if (scan->at < scan->end && (*scan->at == '.' || *scan->at == 'e' || *scan->at == 'E'))
        return lochi_safetensors_scan_fail(scan, "a number is not whole");
    *out = value;
    return true;
}

static bool scan_digits(safetensors_scan *scan)
{
    if (!scan_is_digit(scan)) return lochi_safetensors_scan_fail(scan, "a number lacks digits");
    while (scan_is_digit(scan))
        scan->at++;
    return true;
}

static bool scan_is_at(const safetensors_scan *scan, char one, char other)
{
    return scan->at < scan->end && (*scan->at == one || *scan->at == other);
}

/* Goes behind a number of any kind. */
static bool scan_real(safetensors_scan *scan)
{
    if (scan_is_at(scan, '-', '-')) scan->at++;
    const char *digits = scan->at;
    if (!scan_digits(scan)) return false;
    if (*digits == '0' && scan->at - digits > 1) return lochi_safetensors_scan_fail(scan, "a number begins with 0");
    if (scan_is_at(scan, '.', '.')) {
        scan->at++;
        if (!scan_digits(scan)) return false;
    }
    if (!scan_is_at(scan, 'e', 'E')) return true;
    scan->at++;
    if (scan_is_at(scan, '+', '-')) scan->at++;
    return scan_digits(scan);
}

char *lochi_safetensors_scan_number(safetensors_scan *scan)
{
    lochi_safetensors_scan_peek(scan);
    char *from = scan->at;
    if (scan->wrong || !scan_real(scan)) return NULL;
    const size_t length = (size_t)(scan->at - from);
    memmove(from - 1, from, length); /* a number of an object follows a colon or space, which has been read */
    from[length - 1] = '\0';
    return from - 1;
}

/* --- any value --- */

static bool scan_word(safetensors_scan *scan, const char *word)
{
    const size_t length = strlen(word);
    if ((size_t)(scan->end - scan->at) < length || memcmp(scan->at, word, length) != 0)
        return lochi_safetensors_scan_fail(scan, "a value is expected");
    scan->at += length;
    return true;
}

/* Skips a value that has no values inside. */
static bool scan_skip_plain(safetensors_scan *scan, char kind)
{
    switch (kind) {
    case '"': return lochi_safetensors_scan_text(scan) != NULL;
    case 't': return scan_word(scan, "true");
    case 'f': return scan_word(scan, "false");
    case 'n': return scan_word(scan, "null");
    default: break;
    }
    if (kind == '-' || scan_is_digit(scan)) return scan_real(scan);
    return lochi_safetensors_scan_fail(scan, "a value is expected");
}

bool lochi_safetensors_scan_skip(safetensors_scan *scan)
{
    char closes[SCAN_DEPTH_MAX] = {0};
    size_t counts[SCAN_DEPTH_MAX] = {0}, depth = 0;
    do {
        const char kind = lochi_safetensors_scan_peek(scan);
        if (kind == '{' || kind == '[') {
            if (depth == SCAN_DEPTH_MAX)
                return lochi_safetensors_scan_fail(scan, "objects and lists are more than 64 levels deep");
            closes[depth] = kind == '{' ? '}' : ']';
            counts[depth++] = 0;
            scan->at++;
        } else if (!scan_skip_plain(scan, kind)) {
            return false;
        }
        /* Goes to the next value inside, or out of what has ended. */
        while (depth && !lochi_safetensors_scan_next(scan, closes[depth - 1], &counts[depth - 1])) {
            if (scan->wrong) return false;
            depth--;
        }
        if (depth && closes[depth - 1] == '}' && !lochi_safetensors_scan_name(scan)) return false;
    } while (depth);
    return !scan->wrong;
}

bool lochi_safetensors_scan_end(safetensors_scan *scan)
{
    lochi_safetensors_scan_peek(scan);
    if (!scan->wrong && scan->at < scan->end) return lochi_safetensors_scan_fail(scan, "there is text behind the end");
    return !scan->wrong;
}

/* SPDX-License-Identifier: MIT */
#include "kit/json.h"
#include "kit/utf8.h"
#include <stdlib.h>
#include <string.h>

#define JSON_DEPTH_MAX 64

lochi_json lochi_json_begin(const void *text, size_t bytes)
{
    return (lochi_json){.start = text, .at = text, .end = (const char *)text + bytes, .is_first = true};
}

lochi_json lochi_json_begin_in_place(char *text, size_t bytes)
{
    lochi_json reader = lochi_json_begin(text, bytes);
    reader.text = text;
    const size_t good = lochi_utf8_check(text, bytes);
    reader.at += good;
    if (good < bytes) lochi_json_fail(&reader, "not UTF-8");
    reader.at = text;
    return reader;
}

bool lochi_json_fail(lochi_json *reader, const char *wrong)
{
    if (!reader->wrong) reader->wrong_at = (size_t)(reader->at - reader->start);
    if (!reader->wrong) reader->wrong = wrong;
    return false;
}

/* Returns the next byte that is not space; 0 at the end and after a mistake. */
static char json_peek(lochi_json *reader)
{
    while (reader->at < reader->end &&
           (*reader->at == ' ' || *reader->at == '\t' || *reader->at == '\n' || *reader->at == '\r'))
        reader->at++;
    return reader->wrong || reader->at == reader->end ? '\0' : *reader->at;
}

static bool json_is_digit(const lochi_json *reader)
{
    return reader->at < reader->end && *reader->at >= '0' && *reader->at <= '9';
}

char lochi_json_kind(lochi_json *reader)
{
    const char next = json_peek(reader);
    if (next == '-' || json_is_digit(reader)) return '0';
    if (next == 'f') return 't';
    return next && strchr("{[\"tn", next) ? next : '\0';
}

/* --- objects and lists --- */

bool lochi_json_open(lochi_json *reader, char bracket)
{
    return lochi_json_open_or(reader, bracket, bracket == '{' ? "an object is expected" : "a list is expected");
}

bool lochi_json_open_or(lochi_json *reader, char bracket, const char *wrong)
{
    if (json_peek(reader) != bracket) return lochi_json_fail(reader, wrong);
    if (reader->depth == JSON_DEPTH_MAX)
        return lochi_json_fail(reader, "objects and lists are more than 64 levels deep");
    reader->depth++;
    reader->at++;
    reader->is_first = true;
    return true;
}

/* Goes behind the comma before the next item. Returns false at the closing bracket, which it goes behind. */
static bool json_next(lochi_json *reader, char close)
{
    const char next = json_peek(reader);
    if (!next) return lochi_json_fail(reader, "the text ends too early");
    if (next == close) {
        reader->at++;
        reader->depth--;
        reader->is_first = false;
        return false;
    }
    if (!reader->is_first) {
        if (next != ',') return lochi_json_fail(reader, "a comma or a closing bracket is expected");
        reader->at++;
    }
    reader->is_first = false;
    return true;
}

bool lochi_json_item(lochi_json *reader)
{
    return json_next(reader, ']');
}

/* --- text --- */

/* Appends bytes. Bytes that do not fit are counted only. */
static void json_append(char *out, size_t room, size_t *used, const char *bytes, size_t count)
{
    for (size_t i = 0; i < count; i++, ++*used)
        if (*used < room) out[*used] = bytes[i];
}

static bool json_hex(lochi_json *reader, unsigned *out)
{
    *out = 0;
    for (int i = 0; i < 4; i++, reader->at++) {
        const char *digits = "0123456789abcdef0123456789ABCDEF", *found;
        if (reader->at == reader->end || !*reader->at || !(found = strchr(digits, *reader->at)))
            return lochi_json_fail(reader, "\\u needs four hexadecimal digits");
        *out = *out << 4 | (unsigned)((found - digits) & 15);
    }
    return true;
}

static bool json_append_unicode(lochi_json *reader, char *out, size_t room, size_t *used)
{
    unsigned code, low;
    if (!json_hex(reader, &code)) return false;
    if (code >= 0xD800 && code < 0xDC00) {
        if (reader->end - reader->at < 2 || reader->at[0] != '\\' || reader->at[1] != 'u')
            return lochi_json_fail(reader, "half of a surrogate pair is missing");
        reader->at += 2;
        if (!json_hex(reader, &low)) return false;
        if (low < 0xDC00 || low > 0xDFFF) return lochi_json_fail(reader, "half of a surrogate pair is missing");
        code = 0x10000 + ((code - 0xD800) << 10) + (low - 0xDC00);
    } else if (code >= 0xDC00 && code < 0xE000) {
        return lochi_json_fail(reader, "half of a surrogate pair is missing");
    }
    if (!code) return lochi_json_fail(reader, "text has a zero in it");
    char utf8[4];
    size_t length = 0;
    if (code < 0x80) {
        utf8[length++] = (char)code;
    } else {
        const unsigned more = code < 0x800 ? 1 : code < 0x10000 ? 2 : 3;
        static const unsigned char leads[] = {0, 0xC0, 0xE0, 0xF0};
        utf8[length++] = (char)(leads[more] | code >> (6 * more));
        for (unsigned i = more; i--;)
            utf8[length++] = (char)(0x80 | (code >> (6 * i) & 0x3F));
    }
    json_append(out, room, used, utf8, length);
    return true;
}

static bool json_append_escaped(lochi_json *reader, char *out, size_t room, size_t *used)
{
    static const char names[] = "\"\\/bfnrt", values[] = "\"\\/\b\f\n\r\t";
    if (reader->at == reader->end) return lochi_json_fail(reader, "the text ends too early");
    const char name = *reader->at++;
    if (name == 'u') return json_append_unicode(reader, out, room, used);
    const char *found = name ? strchr(names, name) : NULL;
    if (!found) return lochi_json_fail(reader, "an unknown escape in text");
    json_append(out, room, used, &values[found - names], 1);
    return true;
}

/* Reads text and counts its bytes. What does not fit is not copied. The copy does not end with a zero. */
static bool json_string(lochi_json *reader, char *out, size_t room, size_t *used)
{
    *used = 0;
    if (json_peek(reader) != '"') return lochi_json_fail(reader, "text is expected");
    reader->at++;
    for (;;) {
        if (reader->at == reader->end) return lochi_json_fail(reader, "the text ends too early");
        const char next = *reader->at++;
        if (next == '"') return true;
        if ((unsigned char)next < 0x20) return lochi_json_fail(reader, "text has a control character in it");
        if (next != '\\')
            json_append(out, room, used, &next, 1);
        else if (!json_append_escaped(reader, out, room, used))
            return false;
    }
}

bool lochi_json_text(lochi_json *reader, char *out, size_t room)
{
    size_t used;
    *out = '\0';
    if (!json_string(reader, out, room, &used)) return false;
    if (used >= room) {
        *out = '\0';
        return lochi_json_fail(reader, "a text is too long");
    }
    out[used] = '\0';
    return true;
}

char *lochi_json_text_in_place(lochi_json *reader)
{
    if (json_peek(reader) != '"') {
        lochi_json_fail(reader, "text is expected");
        return NULL;
    }
    size_t used;
    char *text = reader->text + (reader->at + 1 - reader->start);
    if (!json_string(reader, text, SIZE_MAX, &used)) return NULL;
    text[used] = '\0'; /* at the closing mark, or before it */
    return text;
}

static bool json_colon(lochi_json *reader)
{
    if (json_peek(reader) != ':') return lochi_json_fail(reader, "a colon is expected behind the name of a member");
    reader->at++;
    return true;
}

bool lochi_json_member(lochi_json *reader, char *name, size_t room)
{
    size_t used;
    *name = '\0';
    if (!json_next(reader, '}') || !json_string(reader, name, room, &used)) return false;
    name[used < room ? used : room - 1] = '\0';
    return json_colon(reader);
}

char *lochi_json_member_in_place(lochi_json *reader)
{
    char *name = json_next(reader, '}') ? lochi_json_text_in_place(reader) : NULL;
    return name && json_colon(reader) ? name : NULL;
}

/* --- numbers --- */

bool lochi_json_number(lochi_json *reader, uint64_t *out)
{
    uint64_t value = 0;
    json_peek(reader);
    const char *start = reader->at;
    if (reader->at < reader->end && *reader->at == '-') return lochi_json_fail(reader, "a number is negative");
    if (reader->wrong || !json_is_digit(reader)) return lochi_json_fail(reader, "a whole number is expected");
    for (; json_is_digit(reader); reader->at++) {
        const unsigned digit = (unsigned)(*reader->at - '0');
        if (value > (UINT64_MAX - digit) / 10) return lochi_json_fail(reader, "a number is above 2^64 - 1");
        value = value * 10 + digit;
    }
    if (*start == '0' && reader->at - start > 1) return lochi_json_fail(reader, "a number begins with 0");
    if (reader->at < reader->end && strchr(".eE", *reader->at) && *reader->at)
        return lochi_json_fail(reader, "a number is not whole");
    *out = value;
    return true;
}

static bool json_digits(lochi_json *reader)
{
    if (!json_is_digit(reader)) return lochi_json_fail(reader, "a number lacks digits");
    while (json_is_digit(reader))
        reader->at++;
    return true;
}

/* Goes behind a number of any kind. Returns its length; 0 after a mistake. */
static size_t json_real(lochi_json *reader)
{
    json_peek(reader);
    const char *start = reader->at;
    if (reader->wrong) return 0;
    if (reader->at < reader->end && *reader->at == '-') reader->at++;
    const char *digits = reader->at;
    if (!json_digits(reader)) return 0;
    if (*digits == '0' && reader->at - digits > 1) return lochi_json_fail(reader, "a number begins with 0");
    if (reader->at < reader->end && *reader->at == '.') {
        reader->at++;
        if (!json_digits(reader)) return 0;
    }
    if (reader->at < reader->end && (*reader->at == 'e' || *reader->at == 'E')) {
        reader->at++;
        if (reader->at < reader->end && (*reader->at == '+' || *reader->at == '-')) reader->at++;
        if (!json_digits(reader)) return 0;
    }
    return (size_t)(reader->at - start);
}

bool lochi_json_real(lochi_json *reader, double *out)
{
    char text[64];
    const size_t length = json_real(reader);
    if (length >= sizeof text) return lochi_json_fail(reader, "a number is too long");
    if (!length) return false;
    memcpy(text, reader->at - length, length);
    text[length] = '\0';
    *out = strtod(text, NULL);
    return true;
}

char *lochi_json_number_in_place(lochi_json *reader)
{
    const size_t length = json_real(reader);
    if (!length) return NULL;
    char *text = reader->text + (reader->at - length - 1 - reader->start); /* the byte before it has been read */
    memmove(text, text + 1, length);
    text[length] = '\0';
    return text;
}

/* --- words --- */

static bool json_word(lochi_json *reader, const char *word)
{
    const size_t length = strlen(word);
    json_peek(reader);
    if (reader->wrong || (size_t)(reader->end - reader->at) < length || memcmp(reader->at, word, length) != 0)
        return false;
    reader->at += length;
    return true;
}

bool lochi_json_truth(lochi_json *reader, bool *out)
{
    *out = json_word(reader, "true");
    return *out || json_word(reader, "false") || lochi_json_fail(reader, "true or false is expected");
}

bool lochi_json_skip(lochi_json *reader)
{
    const unsigned depth = reader->depth;
    char closes[JSON_DEPTH_MAX + 1], name[1];
    do {
        const char kind = lochi_json_kind(reader);
        size_t used;
        bool is_good;
        switch (kind) {
        case '{':
        case '[':
            is_good = lochi_json_open(reader, kind);
            closes[reader->depth] = kind;
            break;
        case '"': is_good = json_string(reader, NULL, 0, &used); break;
        case '0': is_good = json_real(reader) > 0; break;
        default:
            is_good = json_word(reader, "true") || json_word(reader, "false") || json_word(reader, "null") ||
                      lochi_json_fail(reader, "a value is expected");
        }
        if (!is_good) return false;
        /* Goes to the next value inside, or out of what has ended. */
        while (reader->depth > depth && !reader->wrong) {
            if (closes[reader->depth] == '[' ? lochi_json_item(reader) : lochi_json_member(reader, name, sizeof name))
                break;
        }
    } while (reader->depth > depth && !reader->wrong);
    return !reader->wrong;
}

bool lochi_json_end(lochi_json *reader)
{
    if (json_peek(reader) || (!reader->wrong && reader->at < reader->end))
        return lochi_json_fail(reader, "there is text behind the end");
    return !reader->wrong;
}

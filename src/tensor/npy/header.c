/* SPDX-License-Identifier: MIT */
/* Reads and writes headers of .npy files. The reader accepts only the subset of Python that such headers use. Every
 * step is checked against the end of the text. */
#include "tensor/npy/header.h"
#include "base/fail.h"
#include "kit/text.h"
#include <string.h>

/* --- characters and strings --- */

typedef struct npy_cursor {
    const char *path;
    const char *begin, *at, *end;
} npy_cursor;

/* A part of the header's text. */
typedef struct npy_piece {
    const char *at;
    size_t bytes;
} npy_piece;

static loch_status npy_damaged(const npy_cursor *cursor, const char *expected)
{
    return LOCH_FAIL(CORRUPT, "%.120s: the header is damaged at character %td: expected %s", cursor->path,
                     cursor->at - cursor->begin, expected);
}

static void npy_skip_space(npy_cursor *cursor)
{
    while (cursor->at < cursor->end && memchr(" \t\n\r\f", *cursor->at, 5))
        cursor->at++;
}

/* Takes one character if it is the next one. */
static bool npy_take(npy_cursor *cursor, char sign)
{
    npy_skip_space(cursor);
    if (cursor->at == cursor->end || *cursor->at != sign) return false;
    cursor->at++;
    return true;
}

static bool npy_take_word(npy_cursor *cursor, const char *word)
{
    const size_t length = strlen(word);
    npy_skip_space(cursor);
    if ((size_t)(cursor->end - cursor->at) < length || memcmp(cursor->at, word, length) != 0) return false;
    cursor->at += length;
    return true;
}

/* Reads a string in single or double quotes. Python 2 may have written a u or b before it. Escapes are skipped, not
 * decoded. */
static loch_status npy_read_string(npy_cursor *cursor, npy_piece *out)
{
    npy_skip_space(cursor);
    if (cursor->at < cursor->end && memchr("uUbB", *cursor->at, 4)) cursor->at++;
    if (cursor->at == cursor->end || (*cursor->at != '\'' && *cursor->at != '"'))
        return npy_damaged(cursor, "a string");
    const char quote = *cursor->at++;
    out->at = cursor->at;
    for (; cursor->at < cursor->end; cursor->at++) {
        if (*cursor->at == quote) {
            out->bytes = (size_t)(cursor->at++ - out->at);
            return LOCH_OK;
        }
        if (*cursor->at == '\n') break;
        if (*cursor->at == '\\' && cursor->end - cursor->at > 1) cursor->at++;
    }
    return npy_damaged(cursor, "the end of a string");
}

static bool npy_equals(npy_piece piece, const char *word)
{
    return piece.bytes == strlen(word) && memcmp(piece.at, word, piece.bytes) == 0;
}

/* --- values --- */

/* Skips nested lists and tuples of record types, at any depth. */
static loch_status npy_skip_nested(npy_cursor *cursor)
{
    size_t depth = 0;
    for (;;) {
        npy_skip_space(cursor);
        if (cursor->at == cursor->end) return npy_damaged(cursor, "the end of a list");
        npy_piece string;
        if (*cursor->at == '\'' || *cursor->at == '"') {
            LOCH_TRY_RETURN(npy_read_string(cursor, &string));
            continue;
        }
        const char sign = *cursor->at++;
        if (sign == '[' || sign == '(') depth++;
        if ((sign == ']' || sign == ')') && --depth == 0) return LOCH_OK;
    }
}

static loch_status npy_read_descr(npy_cursor *cursor, npy_piece *out)
{
    npy_skip_space(cursor);
    if (cursor->at == cursor->end || (*cursor->at != '[' && *cursor->at != '(')) return npy_read_string(cursor, out);
    out->at = cursor->at;
    LOCH_TRY_RETURN(npy_skip_nested(cursor));
    out->bytes = (size_t)(cursor->at - out->at);
    return LOCH_OK;
}

static loch_status npy_read_switch(npy_cursor *cursor, bool *out)
{
    *out = npy_take_word(cursor, "True");
    return *out || npy_take_word(cursor, "False") ? LOCH_OK : npy_damaged(cursor, "True or False");
}

/* Reads 42, or 42L as Python 2 wrote it. */
static loch_status npy_read_size(npy_cursor *cursor, int64_t *out)
{
    npy_skip_space(cursor);
    const char *first = cursor->at;
    int64_t size = 0;
    for (; cursor->at < cursor->end && *cursor->at >= '0' && *cursor->at <= '9'; cursor->at++)
        if (__builtin_mul_overflow(size, 10, &size) || __builtin_add_overflow(size, *cursor->at - '0', &size))
            return LOCH_FAIL(OVERFLOW, "%.120s: a size in the header does not fit 64 bits", cursor->path);
    if (cursor->at == first) return npy_damaged(cursor, "a size");
    if (cursor->at < cursor->end && (*cursor->at == 'L' || *cursor->at == 'l')) cursor->at++;
    *out = size;
    return LOCH_OK;
}

/* Reads (), (3,), (2, 3) or (2, 3,). Refuses (3), which is not a tuple in Python. */
static loch_status npy_read_shape(npy_cursor *cursor, lochi_npy_header *header)
{
    if (!npy_take(cursor, '(')) return npy_damaged(cursor, "a shape in parentheses");
    bool has_comma = true;
    while (!npy_take(cursor, ')')) {
        if (!has_comma) return npy_damaged(cursor, "a comma");
        if (header->dimensions == LOCH_DIMENSIONS_MAX)
            return LOCH_FAIL(UNSUPPORTED, "%.120s has more than %d dimensions, the most that are supported",
                             cursor->path, LOCH_DIMENSIONS_MAX);
        LOCH_TRY_RETURN(npy_read_size(cursor, &header->shape[header->dimensions++]));
        has_comma = npy_take(cursor, ',');
    }
    if (header->dimensions == 1 && !has_comma) return npy_damaged(cursor, "a comma behind the only size");
    return LOCH_OK;
}

/* --- types --- */

typedef struct npy_type {
    char kind;
    size_t bytes;
    loch_dtype dtype;
} npy_type;

/* ml_dtypes writes f8e5m2 as f1. It writes the other types that NumPy lacks as raw bytes. */
static const npy_type npy_types[] = {{'f', 8, LOCH_F64}, {'f', 4, LOCH_F32}, {'f', 2, LOCH_F16}, {'f', 1, LOCH_F8E5M2},
                                     {'i', 1, LOCH_I8},  {'i', 2, LOCH_I16}, {'i', 4, LOCH_I32}, {'i', 8, LOCH_I64},
                                     {'u', 1, LOCH_U8},  {'u', 2, LOCH_U16}, {'u', 4, LOCH_U32}, {'u', 8, LOCH_U64},
                                     {'b', 1, LOCH_BOOL}};

static loch_status npy_unknown_type(const char *path, npy_piece descr)
{
    char text[64];
    const size_t length = descr.bytes < sizeof text - 1 ? descr.bytes : sizeof text - 1;
    for (size_t i = 0; i < length; i++)
        text[i] = descr.at[i] >= ' ' && descr.at[i] < 0x7f ? descr.at[i] : '?';
    text[length] = '\0';
    return LOCH_FAIL(UNSUPPORTED, "%.120s has elements of NumPy's type \"%s\", which Loch does not support", path,
                     text);
}

static bool npy_is_big_endian(void)
{
    return __BYTE_ORDER__ == __ORDER_BIG_ENDIAN__;
}

/* Reads <f8, >i4, |b1, =u2 or V2: byte order, kind and size in bytes. */
static loch_status npy_read_type(const char *path, npy_piece descr, lochi_npy_header *header)
{
    npy_piece rest = descr;
    char order = '=';
    if (rest.bytes && memchr("<>=|", *rest.at, 4)) {
        order = *rest.at++;
        rest.bytes--;
    }
    if (npy_equals(rest, "?")) rest = (npy_piece){"b1", 2};
    if (rest.bytes < 2 || rest.bytes > 4) return npy_unknown_type(path, descr);
    size_t bytes = 0;
    for (size_t i = 1; i < rest.bytes; i++) {
        if (rest.at[i] < '0' || rest.at[i] > '9') return npy_unknown_type(path, descr);
        bytes = bytes * 10 + (size_t)(rest.at[i] - '0');
    }
    header->element_bytes = bytes;
    header->is_swapped = bytes > 1 && order == (npy_is_big_endian() ? '<' : '>');
    if (*rest.at == 'V' && bytes) return LOCH_OK;
    for (size_t i = 0; i < sizeof npy_types / sizeof *npy_types; i++)
        if (npy_types[i].kind == *rest.at && npy_types[i].bytes == bytes) header->dtype = npy_types[i].dtype;
    return header->dtype ? LOCH_OK : npy_unknown_type(path, descr);
}

/* --- the dict --- */

enum { NPY_DESCR = 1, NPY_ORDER = 2, NPY_SHAPE = 4, NPY_ALL = 7 };

static int npy_find_key(npy_piece key)
{
    return npy_equals(key, "descr")           ? NPY_DESCR
           : npy_equals(key, "fortran_order") ? NPY_ORDER
           : npy_equals(key, "shape")         ? NPY_SHAPE
                                              : 0;
}

static loch_status npy_read_entry(npy_cursor *cursor, lochi_npy_header *header, npy_piece *descr, int *seen)
{
    npy_piece name;
    LOCH_TRY_RETURN(npy_read_string(cursor, &name));
    const int key = npy_find_key(name);
    if (!key || *seen & key)
        return LOCH_FAIL(CORRUPT, "%.120s: the header has an unknown or a repeated key", cursor->path);
    *seen |= key;
    if (!npy_take(cursor, ':')) return npy_damaged(cursor, "a colon");
    if (key == NPY_DESCR) return npy_read_descr(cursor, descr);
    if (key == NPY_ORDER) return npy_read_switch(cursor, &header->is_columns);
    return npy_read_shape(cursor, header);
}

loch_status lochi_npy_header_read(const char *path, const char *text, size_t bytes, lochi_npy_header *out)
{
    npy_cursor cursor = {path, text, text, text + bytes};
    npy_piece descr = {0};
    int seen = 0;
    *out = (lochi_npy_header){0};
    if (!npy_take(&cursor, '{')) return npy_damaged(&cursor, "a dict");
    bool has_comma = true;
    while (!npy_take(&cursor, '}')) {
        if (!has_comma) return npy_damaged(&cursor, "a comma or the end of the dict");
        LOCH_TRY_RETURN(npy_read_entry(&cursor, out, &descr, &seen));
        has_comma = npy_take(&cursor, ',');
    }
    npy_skip_space(&cursor);
    if (cursor.at != cursor.end) return npy_damaged(&cursor, "the end of the header");
    if (seen != NPY_ALL)
        return LOCH_FAIL(CORRUPT, "%.120s: the header lacks %s", path,
                         !(seen & NPY_DESCR)   ? "the type (descr)"
                         : !(seen & NPY_ORDER) ? "the order (fortran_order)"
                                               : "the shape");
    return npy_read_type(path, descr, out);
}

/* --- writing --- */

/* Spaces that NumPy reserves so that a size can grow later without moving the file's data. */
#define NPY_GROWTH 21
#define NPY_ALIGNMENT 64

static int npy_length(int64_t size)
{
    int length = 1;
    for (; size > 9; size /= 10)
        length++;
    return length;
}

size_t lochi_npy_header_write(const char *descr, bool is_columns, size_t dimensions, const int64_t *shape,
                              char out[LOCHI_NPY_HEADER_ROOM])
{
    const size_t before = LOCHI_NPY_MAGIC_BYTES + 4; /* version 1.0, with two bytes for the length: always enough */
    lochi_text text = lochi_text_begin(out + before, LOCHI_NPY_HEADER_ROOM - before);
    lochi_text_write(&text, "{'descr': '%s', 'fortran_order': %s, 'shape': (", descr, is_columns ? "True" : "False");
    for (size_t i = 0; i < dimensions; i++)
        lochi_text_write(&text, "%s%lld", i ? ", " : "", (long long)shape[i]);
    lochi_text_write(&text, "%s), }", dimensions == 1 ? "," : "");
    size_t length = before + text.length;
    size_t blanks = dimensions ? (size_t)(NPY_GROWTH - npy_length(shape[is_columns ? dimensions - 1 : 0])) : 0;
    blanks +=
        NPY_ALIGNMENT - (length + blanks + 1) % NPY_ALIGNMENT; /* a whole one even if none is needed, as NumPy does */
    memset(out + length, ' ', blanks);
    length += blanks;
    out[length++] = '\n';
    memcpy(out, LOCHI_NPY_MAGIC "\x01\x00", LOCHI_NPY_MAGIC_BYTES + 2);
    out[LOCHI_NPY_MAGIC_BYTES + 2] = (char)((length - before) & 0xff);
    out[LOCHI_NPY_MAGIC_BYTES + 3] = (char)((length - before) >> 8);
    return length;
}

/* SPDX-License-Identifier: MIT */
/* Parsing numbers and sizes that people write. */
#include "kit/parse.h"
#include <string.h>
#include <strings.h>

/* Parses decimal digits. Returns the text after them; NULL if there is no digit, and on overflow. */
static const char *parse_digits(const char *text, uint64_t *out)
{
    uint64_t value = 0;
    const char *at = text;
    for (; *at >= '0' && *at <= '9'; at++)
        if (__builtin_mul_overflow(value, 10u, &value) || __builtin_add_overflow(value, (uint64_t)(*at - '0'), &value))
            return NULL;
    if (at == text) return NULL;
    *out = value;
    return at;
}

bool lochi_parse_number(const char *text, uint64_t *out)
{
    uint64_t value;
    const char *rest = parse_digits(text, &value);
    if (!rest || *rest) return false;
    *out = value;
    return true;
}

/* Returns the factor of a unit; 0 for a word that is not a unit. */
static uint64_t parse_unit(const char *unit)
{
    static const char letters[] = "KMGTP";
    if (!*unit || !strcasecmp(unit, "B")) return 1;
    uint64_t binary = 1, decimal = 1;
    for (const char *letter = letters; *letter; letter++) {
        binary *= 1024;
        decimal *= 1000;
        if ((*unit & ~0x20) != *letter) continue;
        if (!unit[1] || !strcasecmp(unit + 1, "iB")) return binary;
        return strcasecmp(unit + 1, "B") ? 0 : decimal;
    }
    return 0;
}

bool lochi_parse_bytes(const char *text, size_t *out)
{
    uint64_t whole, fraction = 0, fraction_scale = 1;
    const char *rest = parse_digits(text, &whole);
    if (!rest) return false;
    if (*rest == '.') {
        const char *digits = rest + 1;
        for (rest = digits; *rest >= '0' && *rest <= '9'; rest++) {
            if (rest - digits >= 6) return false; /* more digits than any size needs */
            fraction = fraction * 10 + (uint64_t)(*rest - '0');
            fraction_scale *= 10;
        }
        if (rest == digits) return false;
    }
    const uint64_t unit = parse_unit(rest);
    uint64_t bytes, part;
    if (!unit || (fraction && unit == 1)) return false;
    if (__builtin_mul_overflow(whole, unit, &bytes) || __builtin_mul_overflow(fraction, unit, &part)) return false;
    if (__builtin_add_overflow(bytes, part / fraction_scale, &bytes) || bytes > SIZE_MAX) return false;
    *out = (size_t)bytes;
    return true;
}

bool lochi_parse_switch(const char *text, bool *out)
{
    static const char *const on[] = {"on", "1", "yes", "true"}, *const off[] = {"off", "0", "no", "false"};
    for (size_t i = 0; i < sizeof on / sizeof *on; i++) {
        const bool is_on = !strcasecmp(text, on[i]);
        if (!is_on && strcasecmp(text, off[i]) != 0) continue;
        *out = is_on;
        return true;
    }
    return false;
}

const char *lochi_parse_piece(const char *list, char *piece, size_t piece_bytes)
{
    const size_t length = strcspn(list, ",");
    const size_t kept = length < piece_bytes ? length : piece_bytes - 1;
    memcpy(piece, list, kept);
    piece[kept] = '\0';
    return list[length] ? list + length + 1 : NULL;
}

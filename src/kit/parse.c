/* SPDX-License-Identifier: MIT */
/* Parsing numbers and sizes that people write. */
#include "kit/parse.h"
#include <string.h>
#include <strings.h>

bool lochi_parse_number(const char *text, uint64_t *out)
{
    uint64_t value = 0;
    const char *at = text;
    for (; *at >= '0' && *at <= '9'; at++)
        if (__builtin_mul_overflow(value, 10u, &value) || __builtin_add_overflow(value, (uint64_t)(*at - '0'), &value))
            return false;
    if (at == text || *at) return false;
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

lochi_parsed lochi_parse_size(const char *text, size_t *out)
{
    uint64_t whole = 0, fraction = 0, scale = 1, bytes, part;
    bool is_large = false;
    const char *at = text;
    for (; *at >= '0' && *at <= '9'; at++)
        is_large |=
            __builtin_mul_overflow(whole, 10u, &whole) || __builtin_add_overflow(whole, (uint64_t)(*at - '0'), &whole);
    if (at == text) return LOCHI_PARSED_NOTHING;
    if (*at == '.') {
        const char *digits = ++at;
        for (; *at >= '0' && *at <= '9'; at++) {
            if (at - digits >= 6) return LOCHI_PARSED_NOTHING; /* more digits than any size needs */
            fraction = fraction * 10 + (uint64_t)(*at - '0');
            scale *= 10;
        }
        if (at == digits) return LOCHI_PARSED_NOTHING;
    }
    const uint64_t unit = parse_unit(at);
    if (!unit || (fraction && unit == 1)) return LOCHI_PARSED_NOTHING;
    is_large |= __builtin_mul_overflow(whole, unit, &bytes) || __builtin_mul_overflow(fraction, unit, &part);
    if (is_large || __builtin_add_overflow(bytes, part / scale, &bytes) || bytes > SIZE_MAX)
        return LOCHI_PARSED_TOO_LARGE;
    *out = (size_t)bytes;
    return LOCHI_PARSED;
}

bool lochi_parse_bytes(const char *text, size_t *out)
{
    return lochi_parse_size(text, out) == LOCHI_PARSED;
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

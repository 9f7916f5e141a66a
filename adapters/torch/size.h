/* SPDX-License-Identifier: MIT */
/* Sizes that people write, for what lies around the library: the plug-in and the shim of PyTorch, and the Python
 * package. The grammar is that of Loch's own options: "40GiB" and "40G" count by 1024, "40GB" counts by 1000, "1.5GiB"
 * has at most six digits behind the point, and letters may be small. tests/python/test_pool.py compares the two. */
#ifndef LOCH_TORCH_SIZE_H
#define LOCH_TORCH_SIZE_H

#include <stddef.h>
#include <stdint.h>
#include <strings.h>

/* Returns the factor of a unit; 0 for a word that is not a unit. */
static inline uint64_t loch_torch_unit(const char *unit)
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

/* Reads a size. Returns 0, 1 if the text is not a size, or 2 if the size does not fit 64 bits. */
static inline int loch_torch_read_size(const char *text, size_t *out)
{
    uint64_t whole = 0, fraction = 0, scale = 1;
    int is_large = 0;
    const char *at = text;
    for (; *at >= '0' && *at <= '9'; at++)
        is_large |= __builtin_mul_overflow(whole, (uint64_t)10, &whole) ||
                    __builtin_add_overflow(whole, (uint64_t)(*at - '0'), &whole);
    if (at == text) return 1;
    if (*at == '.') {
        const char *digits = ++at;
        for (; *at >= '0' && *at <= '9'; at++) {
            if (at - digits >= 6) return 1;
            fraction = fraction * 10 + (uint64_t)(*at - '0');
            scale *= 10;
        }
        if (at == digits) return 1;
    }
    const uint64_t unit = loch_torch_unit(at);
    uint64_t bytes, part;
    if (!unit || (fraction && unit == 1)) return 1;
    is_large |= __builtin_mul_overflow(whole, unit, &bytes) || __builtin_mul_overflow(fraction, unit, &part);
    if (is_large || __builtin_add_overflow(bytes, part / scale, &bytes)) return 2;
    *out = (size_t)bytes;
    return 0;
}

#endif

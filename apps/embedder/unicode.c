/* SPDX-License-Identifier: MIT */
/* The steps of the normalisation, character by character. Combining marks that stay are kept in canonical order: each
 * moves before the marks of a higher rank in front of it. */
#include "unicode.h"
#include "tables.h"

/* --- UTF-8 --- */

/* Reads one character and returns its length in bytes; a byte that is no UTF-8 reads as U+FFFD. */
static size_t read_character(const unsigned char *text, size_t bytes, uint32_t *out)
{
    static const uint32_t least[] = {0, 0, 0x80, 0x800, 0x10000};
    const unsigned char lead = text[0];
    const size_t length = lead < 0x80 ? 1 : lead < 0xc2 ? 0 : lead < 0xe0 ? 2 : lead < 0xf0 ? 3 : lead < 0xf5 ? 4 : 0;
    *out = 0xfffd;
    if (length == 0 || length > bytes) return 1;
    uint32_t character = length == 1 ? lead : lead & (0x7fU >> length);
    for (size_t i = 1; i < length; i++) {
        if ((text[i] & 0xc0) != 0x80) return 1;
        character = character << 6 | (text[i] & 0x3f);
    }
    if (character < least[length] || character > 0x10ffff || (character >= 0xd800 && character < 0xe000)) return 1;
    *out = character;
    return length;
}

size_t unicode_write(uint32_t character, char *out)
{
    if (character < 0x80) {
        out[0] = (char)character;
        return 1;
    }
    const size_t length = character < 0x800 ? 2 : character < 0x10000 ? 3 : 4;
    for (size_t i = length - 1; i > 0; i--, character >>= 6)
        out[i] = (char)(0x80 | (character & 0x3f));
    out[0] = (char)((0xf00 >> length & 0xff) | character);
    return length;
}

/* --- tables --- */

static uint32_t range_find(const character_range *ranges, size_t count, uint32_t character)
{
    size_t low = 0, high = count;
    while (low < high) {
        const size_t middle = low + (high - low) / 2;
        if (character > ranges[middle].last)
            low = middle + 1;
        else
            high = middle;
    }
    return low < count && character >= ranges[low].first ? ranges[low].value : 0;
}

static character_class class_of(uint32_t character)
{
    return (character_class)range_find(character_classes, character_classes_count, character);
}

int unicode_is_punctuation(uint32_t character)
{
    return class_of(character) == CHARACTER_PUNCTUATION;
}

/* Returns the character that `character` shifts to; itself if there is none. */
static uint32_t shift(uint32_t character)
{
    size_t low = 0, high = character_shifts_count;
    while (low < high) {
        const size_t middle = low + (high - low) / 2;
        if (character > character_shifts[middle].last)
            low = middle + 1;
        else
            high = middle;
    }
    if (low == character_shifts_count) return character;
    const character_shift *found = &character_shifts[low];
    if (character < found->first || (character - found->first) % found->step != 0) return character;
    return (uint32_t)((int64_t)character + found->delta);
}

/* Decomposes a syllable of Hangul into its two or three letters. Returns 0 for other characters. */
static size_t decompose_hangul(uint32_t character, uint32_t *out)
{
    if (character < 0xac00 || character > 0xd7a3) return 0;
    const uint32_t index = character - 0xac00, last = index % 28;
    out[0] = 0x1100 + index / 588;
    out[1] = 0x1161 + index % 588 / 28;
    out[2] = 0x11a7 + last;
    return last ? 3 : 2;
}

/* Writes what `character` becomes without accents and in small letters. */
static size_t fold(uint32_t character, uint32_t *out)
{
    const size_t letters = decompose_hangul(character, out);
    if (letters) return letters;
    for (size_t i = 0; i < character_spreads_count; i++)
        if (character_spreads[i].from == character) {
            size_t count = 0;
            for (; count < 3 && character_spreads[i].to[count]; count++)
                out[count] = character_spreads[i].to[count];
            return count;
        }
    out[0] = shift(character);
    return 1;
}

/* --- a text --- */

/* The characters so far. Marks before `fixed` keep their places. */
typedef struct text_out {
    uint32_t *to;
    size_t count, fixed;
} text_out;

static void put(text_out *out, uint32_t character)
{
    const uint32_t rank = range_find(character_ranks, character_ranks_count, character);
    size_t at = out->count++;
    if (rank == 0)
        out->fixed = out->count;
    else
        for (; at > out->fixed && range_find(character_ranks, character_ranks_count, out->to[at - 1]) > rank; at--)
            out->to[at] = out->to[at - 1];
    out->to[at] = character;
}

static void put_folded(text_out *out, uint32_t character)
{
    uint32_t folded[3];
    const size_t count = fold(character, folded);
    for (size_t i = 0; i < count; i++)
        put(out, folded[i]);
}

size_t unicode_normalize(const char *text, size_t bytes, uint32_t *to)
{
    text_out out = {.to = to};
    for (size_t at = 0; at < bytes;) {
        uint32_t character;
        at += read_character((const unsigned char *)text + at, bytes - at, &character);
        switch (class_of(character)) {
        case CHARACTER_DROPPED:
        case CHARACTER_ACCENT: break;
        case CHARACTER_BARRIER: out.fixed = out.count; break;
        case CHARACTER_SPACE: put(&out, ' '); break;
        case CHARACTER_IDEOGRAPH:
            put(&out, ' ');
            put_folded(&out, character);
            put(&out, ' ');
            break;
        case CHARACTER_PLAIN:
        case CHARACTER_PUNCTUATION: put_folded(&out, character); break;
        }
    }
    return out.count;
}

/* SPDX-License-Identifier: MIT */
/* A word is cut from its start: the longest piece that the vocabulary has, then the longest "##" piece of the rest. A
 * word with a rest that no piece begins is one [UNK]. Pieces are found by a hash table over the lines of the file. */
#include "wordpiece.h"
#include "unicode.h"
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    WORD_MAX = 100, /* characters; a longer word is one [UNK] */
    FILE_MAX = 1 << 26
};

enum { PAD, UNK, CLS, SEP, MASK, SPECIALS };

static const char *const specials[SPECIALS] = {"[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"};

struct wordpiece {
    char *text;            /* the file; lines end with zero */
    size_t bytes;          /* of the file */
    const char **pieces;   /* by number */
    size_t count;          /* number of pieces */
    int32_t *slots;        /* hash table of numbers; -1: empty */
    size_t slots_mask;     /* their count - 1, a power of two minus one */
    int32_t ids[SPECIALS]; /* -1: the vocabulary has none */
};

/* --- the table --- */

/* FNV-1a */
static uint64_t hash_of(const char *text, size_t bytes)
{
    uint64_t hash = 0xcbf29ce484222325U;
    for (size_t i = 0; i < bytes; i++)
        hash = (hash ^ (unsigned char)text[i]) * 0x100000001b3U;
    return hash ^ hash >> 32;
}

/* Returns the slot of a piece, or the empty slot where it belongs. */
static int32_t *slot_of(const wordpiece *vocabulary, const char *text, size_t bytes)
{
    for (size_t at = hash_of(text, bytes);; at++) {
        int32_t *slot = &vocabulary->slots[at & vocabulary->slots_mask];
        if (*slot < 0) return slot;
        const char *piece = vocabulary->pieces[*slot];
        if (strncmp(piece, text, bytes) == 0 && piece[bytes] == 0) return slot;
    }
}

static int32_t find(const wordpiece *vocabulary, const char *text, size_t bytes)
{
    return *slot_of(vocabulary, text, bytes);
}

/* --- the file --- */

static loch_status read_file(wordpiece *vocabulary, const char *path)
{
    FILE *file = fopen(path, "rbe");
    if (!file)
        return loch_error_set(errno == ENOENT ? LOCH_E_NOT_FOUND : LOCH_E_IO, NULL, 0, "%.180s: %s", path,
                              strerror(errno));
    long bytes = -1;
    if (fseek(file, 0, SEEK_END) == 0) bytes = ftell(file);
    char *text = bytes >= 0 && bytes <= FILE_MAX ? malloc((size_t)bytes + 1) : NULL;
    const int is_read = text && fseek(file, 0, SEEK_SET) == 0 && fread(text, 1, (size_t)bytes, file) == (size_t)bytes;
    (void)fclose(file);
    if (!is_read) {
        free(text);
        return loch_error_set(LOCH_E_IO, NULL, 0, "%.180s: cannot be read, or has more than 64 MiB", path);
    }
    text[bytes] = 0;
    vocabulary->text = text;
    vocabulary->bytes = (size_t)bytes;
    return LOCH_OK;
}

static size_t count_lines(const char *text)
{
    size_t count = 0;
    for (const char *at = text; *at; at++)
        count += *at == '\n' || at[1] == 0;
    return count;
}

/* Cuts the text into lines and puts them into the table. */
static loch_status index_lines(wordpiece *vocabulary, const char *path)
{
    char *rest = vocabulary->text;
    for (size_t i = 0; i < vocabulary->count; i++) {
        char *line = rest;
        rest += strcspn(rest, "\n");
        if (*rest) *rest++ = 0;
        size_t bytes = strlen(line);
        if (bytes && line[bytes - 1] == '\r') line[--bytes] = 0;
        vocabulary->pieces[i] = line;
        int32_t *slot = slot_of(vocabulary, line, bytes);
        if (*slot >= 0)
            return loch_error_set(LOCH_E_CORRUPT, NULL, 0, "%.100s: line %zu repeats piece \"%.60s\"", path, i + 1,
                                  line);
        *slot = (int32_t)i;
    }
    for (int i = 0; i < SPECIALS; i++) {
        vocabulary->ids[i] = find(vocabulary, specials[i], strlen(specials[i]));
        if (vocabulary->ids[i] < 0 && i != PAD && i != MASK)
            return loch_error_set(LOCH_E_CORRUPT, NULL, 0, "%.100s: has no piece %s", path, specials[i]);
    }
    return LOCH_OK;
}

static loch_status fill(wordpiece *vocabulary, const char *path)
{
    LOCH_RETURN(read_file(vocabulary, path));
    if (!vocabulary->text || memchr(vocabulary->text, 0, vocabulary->bytes))
        return loch_error_set(LOCH_E_CORRUPT, NULL, 0, "%.180s: is no text", path);
    vocabulary->count = count_lines(vocabulary->text);
    size_t slots = 16;
    while (slots < 2 * vocabulary->count)
        slots *= 2;
    vocabulary->slots_mask = slots - 1;
    vocabulary->pieces = calloc(vocabulary->count + 1, sizeof *vocabulary->pieces);
    vocabulary->slots = malloc(slots * sizeof *vocabulary->slots);
    if (!vocabulary->pieces || !vocabulary->slots)
        return loch_error_set(LOCH_E_HOST_MEMORY, NULL, 0, "no memory for a vocabulary of %zu pieces",
                              vocabulary->count);
    memset(vocabulary->slots, 0xff, slots * sizeof *vocabulary->slots); /* -1 */
    return index_lines(vocabulary, path);
}

loch_status wordpiece_open(const char *path, wordpiece **out)
{
    *out = NULL;
    wordpiece *vocabulary = calloc(1, sizeof *vocabulary);
    if (!vocabulary) return loch_error_set(LOCH_E_HOST_MEMORY, NULL, 0, "no memory for a vocabulary");
    const loch_status status = fill(vocabulary, path);
    if (status == LOCH_OK)
        *out = vocabulary;
    else
        wordpiece_close(vocabulary);
    return status;
}

void wordpiece_close(wordpiece *vocabulary)
{
    if (!vocabulary) return;
    free(vocabulary->text);
    free(vocabulary->pieces);
    free(vocabulary->slots);
    free(vocabulary);
}

size_t wordpiece_get_count(const wordpiece *vocabulary)
{
    return vocabulary->count;
}

const char *wordpiece_get_piece(const wordpiece *vocabulary, int32_t token)
{
    return token >= 0 && (size_t)token < vocabulary->count ? vocabulary->pieces[token] : NULL;
}

/* --- a text --- */

/* The tokens of a text so far. Those that do not fit are dropped: one place is left for [SEP]. */
typedef struct token_list {
    int32_t *to;
    size_t count, most;
} token_list;

static void add(token_list *tokens, int32_t token)
{
    if (tokens->count + 1 < tokens->most) tokens->to[tokens->count++] = token;
}

/* Adds the pieces of a word; the word as UTF-8 is behind two places for "##". */
static void add_word(const wordpiece *vocabulary, const uint32_t *characters, size_t length, token_list *tokens)
{
    char text[2 + 4 * WORD_MAX] = "##";
    size_t ends[WORD_MAX + 1] = {2}; /* where each character begins in the text */
    const size_t before = tokens->count;
    if (length > WORD_MAX) {
        add(tokens, vocabulary->ids[UNK]);
        return;
    }
    for (size_t i = 0; i < length; i++)
        ends[i + 1] = ends[i] + unicode_write(characters[i], text + ends[i]);
    for (size_t start = 0, end; start < length; start = end) {
        const size_t prefix = start ? 2 : 0;
        char *from = text + ends[start] - prefix;
        int32_t piece = -1;
        memcpy(from, "##", prefix); /* over characters that are done */
        for (end = length; end > start; end--) {
            piece = find(vocabulary, from, (size_t)(text + ends[end] - from));
            if (piece >= 0) break;
        }
        if (piece < 0) {
            tokens->count = before;
            add(tokens, vocabulary->ids[UNK]);
            return;
        }
        add(tokens, piece);
    }
}

/* Adds the words of a text without special tokens. */
static void add_words(const wordpiece *vocabulary, const uint32_t *characters, size_t count, token_list *tokens)
{
    for (size_t start = 0, end; start < count; start = end) {
        end = start + 1;
        if (characters[start] == ' ') continue;
        if (!unicode_is_punctuation(characters[start]))
            while (end < count && characters[end] != ' ' && !unicode_is_punctuation(characters[end]))
                end++;
        add_word(vocabulary, characters + start, end - start, tokens);
    }
}

/* Returns the special token that the text begins with, or SPECIALS. */
static int special_at(const wordpiece *vocabulary, const char *text, size_t bytes)
{
    int i = *text == '[' ? 0 : SPECIALS;
    for (; i < SPECIALS; i++) {
        const size_t length = strlen(specials[i]);
        if (vocabulary->ids[i] >= 0 && length <= bytes && memcmp(text, specials[i], length) == 0) break;
    }
    return i;
}

loch_status wordpiece_encode(const wordpiece *vocabulary, const char *text, size_t bytes, size_t most, int32_t *out,
                             size_t *count)
{
    token_list tokens = {.to = out, .most = most};
    *count = 0;
    if (most < 2) return loch_error_set(LOCH_E_INVALID, NULL, 0, "a text has at least 2 tokens, %zu are wanted", most);
    uint32_t *characters = bytes <= SIZE_MAX / 16 ? malloc((bytes + 1) * UNICODE_GROWTH * sizeof *characters) : NULL;
    if (!characters) return loch_error_set(LOCH_E_HOST_MEMORY, NULL, 0, "no memory for a text of %zu bytes", bytes);
    add(&tokens, vocabulary->ids[CLS]);
    for (size_t start = 0, end = 0; end <= bytes; end++) {
        const int special = end < bytes ? special_at(vocabulary, text + end, bytes - end) : SPECIALS;
        if (end < bytes && special == SPECIALS) continue;
        add_words(vocabulary, characters, unicode_normalize(text + start, end - start, characters), &tokens);
        if (special == SPECIALS) break;
        add(&tokens, vocabulary->ids[special]);
        start = end + strlen(specials[special]);
        end = start - 1;
    }
    tokens.to[tokens.count++] = vocabulary->ids[SEP];
    *count = tokens.count;
    free(characters);
    return LOCH_OK;
}

/* SPDX-License-Identifier: MIT */
/* Texts of kernels: cut out of the files of parts/kernel/ptx, which are in this library as they are in the tree.
 *
 * A file has many kernels. The text of one kernel is the head of the file and the kernel alone. Its calls of a
 * conversion are replaced by the body of that function, because the driver's compiler does not do that, and the marks
 * of parts/kernel/cuda/type.h by the codes of two types. So the driver compiles only what is used, which takes some
 * milliseconds, and removes the branches of all other types. */
#include "text.h"
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Includes a file. The byte after it is 0. */
#define TEXT_INCLUDE(name)                                                                                             \
    __asm__(".pushsection .rodata\n.global lochi_kernel_text_" #name "\n.hidden lochi_kernel_text_" #name              \
            "\nlochi_kernel_text_" #name ":\n.incbin \"" LOCH_KERNEL_PTX "/" #name ".ptx\"\n.byte 0\n.popsection\n");  \
    extern const char lochi_kernel_text_##name[] __attribute__((visibility("hidden")))

TEXT_INCLUDE(chunks);
TEXT_INCLUDE(convert);
TEXT_INCLUDE(narrow);
TEXT_INCLUDE(tiles);
TEXT_INCLUDE(fill);
TEXT_INCLUDE(rows);

static const char *text_file(lochi_text_file file)
{
    switch (file) {
    case LOCHI_TEXT_CHUNKS: return lochi_kernel_text_chunks;
    case LOCHI_TEXT_NARROW: return lochi_kernel_text_narrow;
    case LOCHI_TEXT_TILES: return lochi_kernel_text_tiles;
    case LOCHI_TEXT_FILL: return lochi_kernel_text_fill;
    default: return lochi_kernel_text_rows;
    }
}

/* Replaces every "0x10c4000N" of the text by a code of the same length. */
static void text_replace(char *text, unsigned mark, unsigned code)
{
    char old[16], new[16];
    snprintf(old, sizeof old, "0x10c4%04x", mark);
    snprintf(new, sizeof new, "0x%08x", code);
    for (char *at = text; (at = strstr(at, old)); at += 10)
        memcpy(at, new, 10);
}

/* --- text that grows --- */

typedef struct text_builder {
    char *text; /* NULL after a failure */
    size_t length, capacity;
} text_builder;

static void text_add(text_builder *b, const char *from, size_t bytes)
{
    if (b->text && b->length + bytes + 1 > b->capacity) {
        b->capacity = 2 * (b->length + bytes) + 4096;
        char *grown = realloc(b->text, b->capacity);
        if (!grown) free(b->text);
        b->text = grown;
    }
    if (!b->text) return;
    memcpy(b->text + b->length, from, bytes);
    b->length += bytes;
    b->text[b->length] = '\0';
}

static void text_add_word(text_builder *b, const char *word)
{
    text_add(b, word, strlen(word));
}

/* --- calls --- */

/* A part of a text. */
typedef struct text_span {
    const char *start, *end;
} text_span;

static text_span text_between(text_span all, const char *before, const char *after)
{
    text_span found = {NULL, NULL};
    const char *start = strstr(all.start, before);
    if (!start || start >= all.end) return found;
    start += strlen(before);
    const char *end = strstr(start, after);
    if (!end || end > all.end) return found;
    return (text_span){start, end};
}

/* Adds the body of a function in place of a call. Names of registers get a letter in front, so that they are others
 * than those of the kernel. `from` and `to` are registers of the kernel. A return becomes a jump to the end. */
static void text_add_body(text_builder *b, text_span body, text_span from, text_span to)
{
    static const char parameter[] = "\tld.param.u64 \t", result[] = "\tst.param.b64 \t[func_retval0+0], ",
                      back[] = "\tret;";
    text_add_word(b, "\t{\n\t.reg .b64 %cresult;\n");
    for (const char *line = body.start; line < body.end;) {
        const char *end = memchr(line, '\n', (size_t)(body.end - line));
        end = end ? end + 1 : body.end;
        const char *at = line;
        if (!strncmp(line, back, sizeof back - 1)) {
            text_add_word(b, "\tbra.uni $L_convert_end;\n");
            at = end;
        } else if (!strncmp(line, parameter, sizeof parameter - 1)) {
            const char *comma = memchr(line, ',', (size_t)(end - line));
            text_add_word(b, "\tmov.b64 %c");
            at = line + sizeof parameter; /* behind the % */
            text_add(b, at, (size_t)(comma - at));
            text_add_word(b, ", ");
            text_add(b, from.start, (size_t)(from.end - from.start));
            text_add_word(b, ";\n");
            at = end;
        } else if (!strncmp(line, result, sizeof result - 1)) {
            text_add_word(b, "\tmov.b64 %cresult, ");
            at = line + sizeof result - 1;
        }
        for (const char *percent; at < end; at = percent) {
            percent = memchr(at + 1, '%', (size_t)(end - at - 1));
            if (!percent) percent = end;
            if (*at == '%') {
                text_add_word(b, "%c");
                at++;
            }
            text_add(b, at, (size_t)(percent - at));
        }
        line = end;
    }
    text_add_word(b, "$L_convert_end:\n\tmov.b64 ");
    text_add(b, to.start, (size_t)(to.end - to.start));
    text_add_word(b, ", %cresult;\n\t}\n");
}

/* Finds the body of the function that a call names. */
static text_span text_find_body(text_span call, const lochi_text_types *types)
{
    const text_span name = text_between(call, "loch_convert_", ",");
    char line[64];
    if (!name.start) return name;
    if (!strncmp(name.start, "any", 3))
        snprintf(line, sizeof line, ") loch_convert_%u_%u(", types->from_bytes, types->to_bytes);
    else
        snprintf(line, sizeof line, ") loch_convert_%.*s(", (int)(name.end - name.start), name.start);
    const text_span all = {lochi_kernel_text_convert, lochi_kernel_text_convert + strlen(lochi_kernel_text_convert)};
    const char *start = strstr(all.start, line);
    return text_between((text_span){start ? start : all.end, all.end}, "{\n", "\n}\n");
}

/* Adds a kernel, with the bodies of functions in place of calls. Returns false if a call is not as expected. */
static bool text_add_kernel(text_builder *b, text_span kernel, const lochi_text_types *types)
{
    static const char begin[] = "\t{ // callseq", end[] = "\t} // callseq";
    const char *at = kernel.start;
    for (const char *call; (call = strstr(at, begin)) && call < kernel.end;) {
        text_add(b, at, (size_t)(call - at));
        const char *call_end = strstr(call, end);
        const char *line_end = call_end ? strchr(call_end + 1, '\n') : NULL;
        if (!line_end) return false;
        const text_span whole = {call, call_end};
        const text_span body = text_find_body(whole, types), from = text_between(whole, "[param0+0], ", ";");
        const text_span to = text_between(whole, "ld.param.b64 \t", ",");
        if (!body.start || !from.start || !to.start) return false;
        text_add_body(b, (text_span){body.start, body.end + 1}, from, to);
        at = line_end + 1;
    }
    text_add(b, at, (size_t)(kernel.end - at));
    return true;
}

char *lochi_kernel_text_make(lochi_text_file file, const char *name, const lochi_text_types *types)
{
    static const char end[] = "\n}\n";
    char line[64];
    const char *all = text_file(file), *head = strstr(all, ".version"), *size = strstr(all, ".address_size 64\n");
    snprintf(line, sizeof line, ".visible .entry %s(", name);
    const char *kernel = strstr(all, line), *kernel_end = kernel ? strstr(kernel, end) : NULL;
    if (!head || !size || !kernel_end) return NULL;
    text_builder builder = {.text = malloc(4096), .capacity = 4096};
    text_add(&builder, head, (size_t)(size - head));
    text_add_word(&builder, ".address_size 64\n\n");
    if (!text_add_kernel(&builder, (text_span){kernel, kernel_end + sizeof end - 1}, types)) {
        free(builder.text);
        return NULL;
    }
    if (!builder.text) return NULL;
    text_replace(builder.text, 1, types->from);
    text_replace(builder.text, 2, types->to);
    text_replace(builder.text, 3, types->from_bytes);
    text_replace(builder.text, 4, types->to_bytes);
    return builder.text;
}

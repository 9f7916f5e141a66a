/* SPDX-License-Identifier: MIT */
/* Reads names: of tags, allocators, devices and driver calls, and call stacks with the modules that they pass. A file
 * that was cut has records whose names are missing; these get a name with their number. */
#include "binary.h"
#include "kit/fail.h"
#include "kit/module.h"
#include <inttypes.h>
#include <stdio.h>

/* Stores a name of a noun. The first name of a number counts. Returns false if there is no memory. */
static bool names_add(binary_names *names, loch_recording_noun noun, uint64_t number, const char *name, size_t length)
{
    if (lochi_table_find(&names->numbers[noun], number) != UINT32_MAX) return true;
    const bool can_share = noun == LOCH_RECORDING_TAG || noun == LOCH_RECORDING_CALL;
    if (names->recording->names[noun].count > UINT16_MAX) return true;
    const uint32_t index = can_share ? lochi_insight_recording_add_name(names->recording, noun, name, length)
                                     : lochi_insight_recording_append_name(names->recording, noun, name, length);
    return index != LOCH_RECORDING_NONE && lochi_table_set(&names->numbers[noun], number, index);
}

loch_status lochi_insight_binary_names_find(binary_names *names, loch_recording_noun noun, uint64_t number,
                                            uint32_t *out)
{
    static const char *const nouns[INSIGHT_NOUNS] = {"tag", "allocator", "device", "thread", "call"};
    *out = 0;
    if (noun == LOCH_RECORDING_TAG && !number) return LOCH_OK;
    *out = lochi_table_find(&names->numbers[noun], number);
    if (*out != UINT32_MAX) return LOCH_OK;
    char text[48];
    if (names->recording->names[noun].count > UINT16_MAX)
        return LOCH_FAIL(INVALID, "%s: there are more than %u names of one sort", names->source->path, UINT16_MAX + 1u);
    snprintf(text, sizeof text, "%s %" PRIu64, nouns[noun], number);
    if (!names_add(names, noun, number, text, strlen(text))) return lochi_insight_no_memory(names->source->path);
    *out = lochi_table_find(&names->numbers[noun], number);
    return LOCH_OK;
}

/* Returns the number of innermost frames inside Loch, which say nothing about the program; 0 if all frames are. */
static size_t names_count_own(const binary_names *names, const uint8_t *at, size_t count)
{
    const binary_span *own = names->own.data;
    for (size_t i = 0; i < count; i++) {
        const uint64_t address = binary_get(at + 8 * i, 8);
        bool is_own = false;
        for (size_t k = 0; k < names->own.count; k++)
            is_own = is_own || (address >= own[k].start && address < own[k].end);
        if (!is_own) return i;
    }
    return 0;
}

static bool names_add_module(binary_names *names, const uint8_t *at, size_t bytes)
{
    if (bytes < 25 || bytes - 25 < at[24]) return true;
    const insight_module module = {.start = binary_get(at, 8),
                                   .end = binary_get(at + 8, 8),
                                   .offset = binary_get(at + 16, 8),
                                   .build_id = at + 25,
                                   .build_id_bytes = at[24],
                                   .path = (const char *)at + 25 + at[24],
                                   .path_length = bytes - 25 - at[24]};
    if (lochi_module_is_loch(module.path, module.path_length) &&
        !lochi_array_append(&names->own, &(binary_span){module.start, module.end}, 1, sizeof(binary_span)))
        return false;
    if (!names->symbols) names->symbols = lochi_insight_symbols_create();
    return names->symbols && lochi_insight_symbols_add_module(names->symbols, &module);
}

/* Returns the offset of the text of a return address; LOCH_RECORDING_NONE: there is no memory. */
static uint32_t names_frame(binary_names *names, uint64_t address)
{
    char text[INSIGHT_SYMBOL_MAX];
    const uint32_t found = lochi_table_find(&names->frames, address);
    if (found != UINT32_MAX) return found;
    if (!names->symbols) names->symbols = lochi_insight_symbols_create();
    if (!names->symbols) return LOCH_RECORDING_NONE;
    const size_t length = lochi_insight_symbols_describe(names->symbols, address, text, sizeof text);
    const uint32_t offset = lochi_insight_recording_add_text(names->recording, text, length);
    if (offset == LOCH_RECORDING_NONE || !lochi_table_set(&names->frames, address, offset)) return LOCH_RECORDING_NONE;
    return offset;
}

static bool names_add_stack(binary_names *names, uint64_t number, const uint8_t *at, size_t bytes)
{
    const size_t skipped = names_count_own(names, at, bytes / 8), count = bytes / 8 - skipped;
    bool is_good = lochi_array_reserve(&names->scratch, count + 1, sizeof(uint32_t));
    uint32_t *frames = names->scratch.data;
    for (size_t i = 0; is_good && i < count; i++) {
        frames[i] = names_frame(names, binary_get(at + 8 * (skipped + i), 8));
        is_good = frames[i] != LOCH_RECORDING_NONE;
    }
    const uint32_t stack =
        is_good ? lochi_insight_recording_add_stack(names->recording, frames, count) : LOCH_RECORDING_NONE;
    return stack != LOCH_RECORDING_NONE && lochi_table_set(&names->stacks, number, stack);
}

/* Stores to which device an allocator belongs, when the names of all devices are known. */
static bool names_set_device(binary_names *names, uint64_t number, const uint8_t *at, size_t bytes)
{
    if (bytes < 2) return true;
    const uint32_t allocator = lochi_table_find(&names->numbers[LOCH_RECORDING_ALLOCATOR], number);
    const uint32_t device = lochi_table_find(&names->numbers[LOCH_RECORDING_DEVICE], binary_get(at, 2));
    if (allocator == UINT32_MAX || device == UINT32_MAX) return true;
    return lochi_insight_recording_set_device(names->recording, allocator, device);
}

static bool names_add_record(binary_names *names, int type, uint64_t number, const uint8_t *at, size_t bytes, int pass)
{
    static const loch_recording_noun nouns[] = {[BINARY_NAME_TAG] = LOCH_RECORDING_TAG,
                                                [BINARY_NAME_DEVICE] = LOCH_RECORDING_DEVICE,
                                                [BINARY_NAME_CALL] = LOCH_RECORDING_CALL};
    if (type == BINARY_NAME_ALLOCATOR && pass == 2) return names_set_device(names, number, at, bytes);
    if ((type == BINARY_NAME_STACK) != (pass == 2)) return true;
    switch (type) {
    case BINARY_NAME_TAG:
        if (!number) return true; /* 0 is no tag */
        /* fall through */
    case BINARY_NAME_DEVICE:
    case BINARY_NAME_CALL: return names_add(names, nouns[type], number, (const char *)at, bytes);
    case BINARY_NAME_ALLOCATOR:
        if (bytes < 2) return true;
        return names_add(names, LOCH_RECORDING_ALLOCATOR, number, (const char *)at + 2,
                         strnlen((const char *)at + 2, bytes - 2));
    case BINARY_NAME_STACK:
        return lochi_table_find(&names->stacks, number) != UINT32_MAX || names_add_stack(names, number, at, bytes);
    case BINARY_NAME_MODULE: return names_add_module(names, at, bytes);
    case BINARY_NAME_FRAME: {
        const uint32_t offset = lochi_insight_recording_add_text(names->recording, (const char *)at, bytes);
        return offset != LOCH_RECORDING_NONE && lochi_table_set(&names->frames, number, offset);
    }
    default: return true;
    }
}

loch_status lochi_insight_binary_names_read(binary_names *names, size_t begin, size_t end, int pass)
{
    const uint8_t *at = names->source->data + begin, *stop = names->source->data + end;
    while (at && at < stop && *at) {
        const int type = *at;
        uint64_t number = 0, length = 0;
        at = binary_get_leb(at + 1, stop, &number);
        if (at) at = binary_get_leb(at, stop, &length);
        if (!at || length > (size_t)(stop - at)) break; /* the end of a file that was cut */
        if (!names_add_record(names, type, number, at, (size_t)length, pass))
            return lochi_insight_no_memory(names->source->path);
        at += length;
    }
    return LOCH_OK;
}

void lochi_insight_binary_names_free(binary_names *names)
{
    for (size_t i = 0; i < INSIGHT_NOUNS; i++)
        lochi_table_free(&names->numbers[i]);
    lochi_table_free(&names->stacks);
    lochi_table_free(&names->frames);
    lochi_insight_symbols_destroy(names->symbols);
    lochi_array_free(&names->scratch);
    lochi_array_free(&names->own);
}

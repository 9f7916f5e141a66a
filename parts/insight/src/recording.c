/* SPDX-License-Identifier: MIT */
/* The recording in memory: arrays of events, blocks and ranges; names and call stacks, each stored once. */
#include "recording.h"
#include "kit/fail.h"
#include <stdlib.h>
#include <string.h>

loch_status lochi_insight_recording_create(const char *path, loch_recording_format format, loch_recording **out)
{
    *out = NULL;
    loch_recording *recording = calloc(1, sizeof *recording);
    char *copy = recording ? strdup(path) : NULL;
    if (recording) recording->info.path = copy;
    if (!copy || lochi_insight_recording_add_name(recording, LOCH_RECORDING_TAG, "", 0) == LOCH_RECORDING_NONE) {
        loch_recording_destroy(recording);
        return LOCH_FAIL(HOST_MEMORY, "%s: there is no memory for the recording", path);
    }
    recording->info.format = format;
    *out = recording;
    return LOCH_OK;
}

void loch_recording_destroy(loch_recording *recording)
{
    if (!recording) return;
    lochi_array_free(&recording->events);
    lochi_array_free(&recording->blocks);
    lochi_array_free(&recording->ranges);
    for (size_t i = 0; i < INSIGHT_NOUNS; i++)
        lochi_array_free(&recording->names[i]);
    lochi_array_free(&recording->text);
    lochi_array_free(&recording->stacks);
    lochi_array_free(&recording->frames);
    lochi_array_free(&recording->frame_texts);
    lochi_table_free(&recording->interned);
    lochi_table_free(&recording->stack_hashes);
    lochi_array_free(&recording->allocator_devices);
    free((char *)recording->info.path);
    free((char *)recording->info.program);
    free(recording);
}

/* --- names and stacks --- */

static uint64_t recording_hash(const void *data, size_t bytes, uint64_t seed)
{
    const unsigned char *at = data;
    uint64_t hash = 0xcbf29ce484222325u ^ seed;
    for (size_t i = 0; i < bytes; i++)
        hash = (hash ^ at[i]) * 0x100000001b3u;
    return hash;
}

uint32_t lochi_insight_recording_add_text(loch_recording *recording, const char *text, size_t length)
{
    lochi_array *all = &recording->text;
    if (!all->count && !lochi_array_append(all, "", 1, 1)) return LOCH_RECORDING_NONE;
    if (!length) return 0;
    uint64_t hash = recording_hash(text, length, 0);
    for (;; hash++) { /* texts with equal hashes take the next free key */
        const uint32_t found = lochi_table_find(&recording->interned, hash);
        if (found == UINT32_MAX) break;
        const char *other = (const char *)all->data + found;
        if (strlen(other) == length && !memcmp(other, text, length)) return found;
    }
    const size_t offset = all->count;
    if (offset + length + 1 >= UINT32_MAX - 1 || !lochi_array_reserve(all, offset + length + 1, 1) ||
        !lochi_table_set(&recording->interned, hash, (uint32_t)offset))
        return LOCH_RECORDING_NONE;
    char *copy = (char *)all->data + offset;
    for (size_t i = 0; i < length; i++)
        copy[i] = text[i] ? text[i] : '?'; /* a text ends with its first zero */
    copy[length] = 0;
    all->count += length + 1;
    return (uint32_t)offset;
}

uint32_t lochi_insight_recording_add_name(loch_recording *recording, loch_recording_noun noun, const char *name,
                                          size_t length)
{
    lochi_array *names = &recording->names[noun];
    const uint32_t offset = lochi_insight_recording_add_text(recording, name, length);
    if (offset == LOCH_RECORDING_NONE) return LOCH_RECORDING_NONE;
    const uint64_t key = recording_hash(&offset, sizeof offset, 0x6e616d65u + (uint64_t)noun);
    const uint32_t *offsets = names->data;
    const uint32_t found = lochi_table_find(&recording->stack_hashes, key);
    if (found != UINT32_MAX && found < names->count && offsets[found] == offset) return found;
    for (size_t i = 0; found != UINT32_MAX && i < names->count; i++) /* another text has the key */
        if (offsets[i] == offset) return (uint32_t)i;
    if (!lochi_table_set(&recording->stack_hashes, key, (uint32_t)names->count) ||
        !lochi_array_append(names, &offset, 1, sizeof offset))
        return LOCH_RECORDING_NONE;
    return (uint32_t)names->count - 1;
}

uint32_t lochi_insight_recording_append_name(loch_recording *recording, loch_recording_noun noun, const char *name,
                                             size_t length)
{
    lochi_array *names = &recording->names[noun];
    const uint32_t offset = lochi_insight_recording_add_text(recording, name, length);
    if (offset == LOCH_RECORDING_NONE || !lochi_array_append(names, &offset, 1, sizeof offset))
        return LOCH_RECORDING_NONE;
    return (uint32_t)names->count - 1;
}

bool lochi_insight_recording_set_device(loch_recording *recording, uint32_t allocator, uint32_t device)
{
    lochi_array *devices = &recording->allocator_devices;
    if (!lochi_array_reserve(devices, (size_t)allocator + 1, sizeof(uint16_t))) return false;
    ((uint16_t *)devices->data)[allocator] = (uint16_t)device;
    if (devices->count <= allocator) devices->count = (size_t)allocator + 1;
    return true;
}

uint16_t lochi_insight_recording_get_device(const loch_recording *recording, uint32_t allocator)
{
    const lochi_array *devices = &recording->allocator_devices;
    return allocator < devices->count ? ((const uint16_t *)devices->data)[allocator] : 0;
}

uint32_t lochi_insight_recording_add_stack(loch_recording *recording, const uint32_t *frames, size_t count)
{
    lochi_array *stacks = &recording->stacks;
    uint64_t hash = recording_hash(frames, count * sizeof *frames, 0x737461636bu);
    for (;; hash++) {
        const uint32_t found = lochi_table_find(&recording->stack_hashes, hash);
        if (found == UINT32_MAX) break;
        if (found >= stacks->count) continue;
        const insight_stack *stack = (const insight_stack *)stacks->data + found;
        if (stack->count != count) continue;
        if (!count || !memcmp((const uint32_t *)recording->frames.data + stack->first, frames, count * sizeof *frames))
            return found;
    }
    const insight_stack stack = {(uint32_t)recording->frames.count, (uint32_t)count};
    if (recording->frames.count + count >= UINT32_MAX ||
        !lochi_array_append(&recording->frames, frames, count, sizeof *frames) ||
        !lochi_table_set(&recording->stack_hashes, hash, (uint32_t)stacks->count) ||
        !lochi_array_append(stacks, &stack, 1, sizeof stack))
        return LOCH_RECORDING_NONE;
    return (uint32_t)stacks->count - 1;
}

/* --- events --- */

/* Appends one item. Returns its index; LOCH_RECORDING_NONE if there is no room. */
static uint32_t recording_append(lochi_array *array, const void *item, size_t bytes)
{
    if (array->count >= UINT32_MAX - 2 || !lochi_array_append(array, item, 1, bytes)) return LOCH_RECORDING_NONE;
    return (uint32_t)array->count - 1;
}

uint32_t lochi_insight_recording_add_block(loch_recording *recording, const loch_recording_block *block)
{
    return recording_append(&recording->blocks, block, sizeof *block);
}

uint32_t lochi_insight_recording_add_range(loch_recording *recording, const loch_recording_range *range)
{
    return recording_append(&recording->ranges, range, sizeof *range);
}

uint32_t lochi_insight_recording_add_event(loch_recording *recording, const loch_recording_event *event)
{
    return recording_append(&recording->events, event, sizeof *event);
}

uint32_t lochi_insight_recording_add_alloc(loch_recording *recording, const loch_recording_block *block,
                                           const loch_recording_event *event)
{
    const uint32_t index = lochi_insight_recording_add_block(recording, block);
    loch_recording_event alloc = *event;
    alloc.kind = LOCH_RECORDED_ALLOC;
    alloc.subject = index;
    alloc.value = block->bytes;
    const uint32_t at = index == LOCH_RECORDING_NONE ? index : lochi_insight_recording_add_event(recording, &alloc);
    if (at == LOCH_RECORDING_NONE) return LOCH_RECORDING_NONE;
    loch_recording_block *added = (loch_recording_block *)recording->blocks.data + index;
    added->alloc_event = at;
    added->free_event = LOCH_RECORDING_NONE;
    return index;
}

uint32_t lochi_insight_recording_add_free(loch_recording *recording, uint32_t block, const loch_recording_event *event)
{
    loch_recording_event freed = *event;
    freed.kind = LOCH_RECORDED_FREE;
    freed.subject = block;
    const uint32_t at = lochi_insight_recording_add_event(recording, &freed);
    if (at != LOCH_RECORDING_NONE) ((loch_recording_block *)recording->blocks.data)[block].free_event = at;
    return at;
}

/* --- the end of reading --- */

/* Computes peaks and what is live at the end. Fills in the bytes of frees. Returns false if there is no memory. */
static bool recording_sum(loch_recording *recording)
{
    loch_recording_info *info = &recording->info;
    loch_recording_event *events = recording->events.data;
    const loch_recording_block *blocks = recording->blocks.data;
    lochi_array sizes = {.data = NULL}; /* of uint64_t: present bytes of each block */
    uint64_t requested = 0, reserved = 0;
    if (!lochi_array_reserve(&sizes, recording->blocks.count + 1, sizeof(uint64_t))) return false;
    uint64_t *bytes = sizes.data;
    for (size_t i = 0; i < recording->events.count; i++) {
        loch_recording_event *event = &events[i];
        switch (event->kind) {
        case LOCH_RECORDED_ALLOC:
        case LOCH_RECORDED_RESIZE:
            requested += event->value - bytes[event->subject];
            bytes[event->subject] = event->value;
            break;
        case LOCH_RECORDED_FREE:
            event->value = bytes[event->subject];
            requested -= event->value;
            bytes[event->subject] = 0;
            break;
        case LOCH_RECORDED_TAKE: reserved += event->value; break;
        case LOCH_RECORDED_GIVE: reserved -= event->value; break;
        default: break;
        }
        if (requested > info->peak_requested) {
            info->peak_requested = requested;
            info->peak_event = i;
        }
        if (reserved > info->peak_reserved) info->peak_reserved = reserved;
        if (event->stream >= info->streams && event->kind <= LOCH_RECORDED_USE) info->streams = event->stream + 1u;
        if (event->time_ns > info->duration_ns) info->duration_ns = event->time_ns;
    }
    for (size_t i = 0; i < recording->blocks.count; i++) {
        if (blocks[i].free_event != LOCH_RECORDING_NONE) continue;
        info->live_blocks++;
        info->live_bytes += bytes[i];
    }
    lochi_array_free(&sizes);
    return true;
}

loch_status lochi_insight_recording_finish(loch_recording *recording)
{
    loch_recording_info *info = &recording->info;
    static const char *const fallbacks[INSIGHT_NOUNS] = {"", "memory", "device", "main", "call"};
    bool is_good = true;
    info->streams = 1;
    for (int noun = LOCH_RECORDING_ALLOCATOR; noun <= LOCH_RECORDING_THREAD; noun++)
        if (!recording->names[noun].count)
            is_good = is_good && lochi_insight_recording_add_name(recording, (loch_recording_noun)noun, fallbacks[noun],
                                                                  strlen(fallbacks[noun])) != LOCH_RECORDING_NONE;
    is_good = is_good && lochi_array_reserve(&recording->frame_texts, recording->frames.count, sizeof(char *)) &&
              recording_sum(recording);
    if (!is_good) return LOCH_FAIL(HOST_MEMORY, "%s: there is no memory for the recording", info->path);
    const uint32_t *frames = recording->frames.data;
    for (size_t i = 0; i < recording->frames.count; i++)
        ((const char **)recording->frame_texts.data)[i] = (const char *)recording->text.data + frames[i];
    recording->frame_texts.count = recording->frames.count;
    info->events = recording->events.count;
    info->blocks = recording->blocks.count;
    info->ranges = recording->ranges.count;
    info->tags = recording->names[LOCH_RECORDING_TAG].count;
    info->allocators = recording->names[LOCH_RECORDING_ALLOCATOR].count;
    info->devices = recording->names[LOCH_RECORDING_DEVICE].count;
    info->threads = recording->names[LOCH_RECORDING_THREAD].count;
    info->calls = recording->names[LOCH_RECORDING_CALL].count;
    info->stacks = recording->stacks.count;
    return LOCH_OK;
}

/* --- looking --- */

loch_status loch_recording_get_info(const loch_recording *recording, loch_recording_info *out)
{
    if (!recording || !out || out->size < 2 * sizeof(size_t))
        return LOCH_FAIL(INVALID, "the figures of a recording need a recording and a struct with its size");
    const size_t size = out->size < sizeof *out ? out->size : sizeof *out;
    loch_recording_info info = recording->info;
    info.size = out->size;
    if (!info.program) info.program = "";
    memcpy(out, &info, size);
    return LOCH_OK;
}

const loch_recording_event *loch_recording_get_events(const loch_recording *recording)
{
    return recording ? recording->events.data : NULL;
}

const loch_recording_block *loch_recording_get_blocks(const loch_recording *recording)
{
    return recording ? recording->blocks.data : NULL;
}

const loch_recording_range *loch_recording_get_ranges(const loch_recording *recording)
{
    return recording ? recording->ranges.data : NULL;
}

const char *loch_recording_get_name(const loch_recording *recording, loch_recording_noun noun, size_t index)
{
    if (!recording || (unsigned)noun >= INSIGHT_NOUNS || index >= recording->names[noun].count) return "";
    return (const char *)recording->text.data + ((const uint32_t *)recording->names[noun].data)[index];
}

const char *const *loch_recording_get_stack(const loch_recording *recording, uint32_t stack, size_t *count)
{
    if (count) *count = 0;
    if (!recording || stack >= recording->stacks.count) return NULL;
    const insight_stack *found = (const insight_stack *)recording->stacks.data + stack;
    if (!found->count) return NULL;
    if (count) *count = found->count;
    return (const char *const *)recording->frame_texts.data + found->first;
}

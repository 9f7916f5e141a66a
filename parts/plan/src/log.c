/* SPDX-License-Identifier: MIT */
/* Recording allocations, and finding their period. */
#include "log.h"
#include "memory.h"
#include <string.h>

#define LOG_MAP_FIRST 256

/* --- live entries by address --- */

static size_t log_hash(uintptr_t address, size_t size)
{
    return (size_t)((address >> 4) * UINT64_C(0x9e3779b97f4a7c15) >> 20) & (size - 1);
}

/* Returns the place of an address in the map, or the empty place where it belongs. */
static size_t log_seek(const plan_log *log, uintptr_t address)
{
    size_t at = log_hash(address, log->map_size);
    while (log->map[at] && log->entries[log->map[at] - 1].address != address)
        at = (at + 1) & (log->map_size - 1);
    return at;
}

static bool log_map_grow(plan_log *log)
{
    const size_t old_size = log->map_size, size = old_size ? 2 * old_size : LOG_MAP_FIRST;
    uint32_t *old = log->map, *map = lochi_plan_alloc(size, sizeof *map);
    if (!map) return false;
    log->map = map;
    log->map_size = size;
    for (size_t i = 0; i < old_size; i++)
        if (old[i]) map[log_seek(log, log->entries[old[i] - 1].address)] = old[i];
    lochi_plan_free(old);
    return true;
}

/* Removes a place of the map, and moves later entries up so that no search ends too early. */
static void log_map_remove(plan_log *log, size_t at)
{
    const size_t mask = log->map_size - 1;
    log->map_used--;
    log->map[at] = 0;
    for (size_t next = (at + 1) & mask; log->map[next]; next = (next + 1) & mask) {
        const size_t home = log_hash(log->entries[log->map[next] - 1].address, log->map_size);
        if (((next - home) & mask) < ((next - at) & mask)) continue;
        log->map[at] = log->map[next];
        log->map[next] = 0;
        at = next;
    }
}

/* --- recording --- */

static loch_stream *log_keep_stream(plan_log *log, loch_stream *stream)
{
    for (size_t i = 0; i < log->streams_count; i++)
        if (log->streams[i] == stream) return stream;
    if (log->streams_count == PLAN_LOG_STREAMS) return NULL;
    return log->streams[log->streams_count++] = loch_stream_retain(stream);
}

bool lochi_plan_log_alloc(plan_log *log, const plan_key *key, const void *address)
{
    if (log->count >= UINT32_MAX - 1 ||
        !lochi_plan_grow((void **)&log->entries, &log->capacity, log->count + 1, sizeof *log->entries))
        return false;
    if (2 * (log->map_used + 1) > log->map_size && !log_map_grow(log)) return false;
    size_t at = log_seek(log, (uintptr_t)address);
    if (log->map[at]) { /* another thread freed the block, and its memory was handed out again */
        lochi_plan_log_share(log, address);
        lochi_plan_log_free(log, address, NULL);
        at = log_seek(log, (uintptr_t)address);
    }
    plan_entry *entry = &log->entries[log->count++];
    *entry = (plan_entry){.key = *key, .address = (uintptr_t)address, .freed = PLAN_NEVER};
    entry->key.stream = log_keep_stream(log, key->stream);
    log->map[at] = (uint32_t)log->count;
    log->map_used++;
    return true;
}

void lochi_plan_log_free(plan_log *log, const void *address, const loch_stream *stream)
{
    if (!log->map_size) return;
    const size_t at = log_seek(log, (uintptr_t)address);
    if (!log->map[at]) return;
    plan_entry *entry = &log->entries[log->map[at] - 1];
    entry->freed = log->count;
    entry->free_order = log->frees++;
    entry->is_shared |= stream && stream != entry->key.stream;
    log_map_remove(log, at);
}

void lochi_plan_log_share(plan_log *log, const void *address)
{
    if (!log->map_size) return;
    const size_t at = log_seek(log, (uintptr_t)address);
    if (log->map[at]) log->entries[log->map[at] - 1].is_shared = true;
}

bool lochi_plan_log_step(plan_log *log)
{
    if (!lochi_plan_grow((void **)&log->steps, &log->steps_capacity, log->steps_count + 1, sizeof *log->steps))
        return false;
    log->steps[log->steps_count++] = log->count;
    return true;
}

void lochi_plan_log_clear(plan_log *log)
{
    for (size_t i = 0; i < log->streams_count; i++)
        loch_stream_release(log->streams[i]);
    lochi_plan_free(log->entries);
    lochi_plan_free(log->steps);
    lochi_plan_free(log->map);
    memset(log, 0, sizeof *log);
}

/* --- the period --- */

size_t lochi_plan_log_find_period(const plan_log *log)
{
    const size_t count = log->count;
    uint32_t *borders = lochi_plan_alloc(count + 1, sizeof *borders);
    size_t best = 0;
    if (!borders || count < 3) {
        lochi_plan_free(borders);
        return 0;
    }
    /* borders[i]: length of the longest border of the last i + 1 keys, read backwards. A border of length b of a
     * sequence of length n is a period of n - b. */
    const plan_entry *last = &log->entries[count - 1];
    for (size_t i = 1, b = 0; i < count; i++) {
        while (b && !plan_key_equal(&last[-(ptrdiff_t)i].key, &last[-(ptrdiff_t)b].key))
            b = borders[b - 1];
        if (plan_key_equal(&last[-(ptrdiff_t)i].key, &last[-(ptrdiff_t)b].key)) b++;
        borders[i] = (uint32_t)b;
        const size_t length = i + 1, period = length - b;
        if (2 * length < count || length < 3 * period) continue;
        if (!best || period < best) best = period;
    }
    lochi_plan_free(borders);
    return best;
}

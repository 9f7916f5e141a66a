/* SPDX-License-Identifier: MIT */
/* Figures of an engine's seats for programs, and a summary for people. */
#include "base/fail.h"
#include "kit/printing.h"
#include "kit/sized.h"
#include "engine/engine_state.h"
#include "memory/allocator.h"
#include "memory/tag.h"
#include <loch/child.h>
#include <string.h>

/* --- for programs --- */

static loch_status print_read_info(lochi_seat *seat, loch_engine_info *out)
{
    loch_memory_info memory = {.size = sizeof memory};
    loch_stats stats = {.size = sizeof stats};
    loch_device_properties properties = {.size = sizeof properties};
    LOCH_TRY_RETURN(loch_device_get_properties(seat->device, &properties));
    out->device_index = properties.index;
    LOCH_TRY_RETURN(loch_device_calculate_memory(seat->device, &memory));
    LOCH_TRY_RETURN(loch_allocator_get_stats(seat->allocator, &stats));
    out->total_bytes = memory.total_bytes;
    out->free_bytes = memory.free_bytes;
    out->limit_bytes = (size_t)stats.limit_bytes;
    out->used_bytes = (size_t)stats.allocated_bytes;
    out->peak_bytes = (size_t)stats.peak_allocated_bytes;
    out->reserved_bytes = (size_t)stats.reserved_bytes;
    out->workers = loch_workers_get_threads(seat->workers);
    return LOCH_OK;
}

loch_status loch_engine_get_info(loch_engine *engine, loch_seat seat, loch_engine_info *out)
{
    if (!engine || !lochi_sized_is_set(out))
        return LOCH_FAIL(INVALID, "loch_engine_get_info needs an engine and a struct with its size set");
    lochi_seat *found = lochi_engine_seat(engine, seat);
    if (!found) return LOCH_FAIL(NOT_FOUND, "there is no seat %u: the engine has %u seats", seat.number, engine->count);
    loch_engine_info info = {.size = sizeof info};
    const loch_status status = print_read_info(found, &info);
    if (status != LOCH_OK) return lochi_engine_fail_at(seat.number, status);
    lochi_sized_write(out, &info, sizeof info);
    return LOCH_OK;
}

/* --- for people --- */

static void print_bytes(lochi_text *out, const char *what, uint64_t bytes)
{
    lochi_text_write(out, "%s%s", what, LOCHI_SIZE_ROUND(bytes, 1));
}

static void print_tag(lochi_text *out, const char *name, const loch_stats *stats)
{
    lochi_text_write(out, "    %-24s", name);
    print_bytes(out, "", stats->requested_bytes);
    lochi_text_write(out, " in %llu blocks", (unsigned long long)stats->blocks);
    if (stats->peak_requested_bytes) print_bytes(out, ", peak ", stats->peak_requested_bytes);
    lochi_text_write(out, "\n");
}

static uint64_t print_less(uint64_t all, uint64_t part)
{
    return all > part ? all - part : 0; /* the two numbers were not read at the same moment */
}

/* Writes a line for each tag that has or had memory, and a line for memory without a tag. */
static void print_tags(lochi_text *out, loch_allocator *allocator, const loch_stats *all)
{
    loch_stats rest = {.size = sizeof rest, .requested_bytes = all->requested_bytes, .blocks = all->blocks};
    for (loch_tag tag = 1; tag < lochi_tag_count(); tag++) {
        loch_stats stats = {.size = sizeof stats};
        if (loch_allocator_get_tag_stats(allocator, tag, &stats) != LOCH_OK) continue;
        rest.requested_bytes = print_less(rest.requested_bytes, stats.requested_bytes);
        rest.blocks = print_less(rest.blocks, stats.blocks);
        if (stats.blocks || stats.peak_requested_bytes) print_tag(out, loch_tag_name(tag), &stats);
    }
    if (rest.blocks) print_tag(out, "(no tag)", &rest);
}

/* Writes a line for a child pool that is still referenced, with the child's own figures. */
static loch_status print_child(loch_allocator *child, void *user)
{
    lochi_text *out = user;
    loch_stats stats = {.size = sizeof stats};
    if (loch_allocator_get_stats(child, &stats) != LOCH_OK) return LOCH_OK;
    lochi_text_write(out, "    child \"%s\":", loch_allocator_get_name(child));
    print_bytes(out, " used ", stats.allocated_bytes);
    print_bytes(out, ", peak ", stats.peak_allocated_bytes);
    print_bytes(out, ", reserved ", stats.reserved_bytes);
    lochi_text_write(out, "\n");
    return LOCH_OK;
}

static void print_reach(lochi_text *out, const loch_engine *engine, unsigned from)
{
    const char *before = "; reaches seats ";
    for (unsigned to = 0; to < engine->count; to++) {
        if (to == from || !loch_engine_can_reach(engine, LOCH_SEAT(from), LOCH_SEAT(to))) continue;
        lochi_text_write(out, "%s%u", before, to);
        before = ", ";
    }
}

static void print_seat(lochi_text *out, loch_engine *engine, unsigned number)
{
    lochi_seat *seat = &engine->seats[number];
    loch_device_properties properties = {.size = sizeof properties};
    loch_stats stats = {.size = sizeof stats};
    loch_memory_info memory = {.size = sizeof memory};
    if (loch_device_get_properties(seat->device, &properties) != LOCH_OK) return;
    lochi_text_write(out, "  seat %u: %s, %s; workers %zu", number, loch_device_get_name(seat->device),
                     properties.model, loch_workers_get_threads(seat->workers));
    print_reach(out, engine, number);
    if (loch_device_calculate_memory(seat->device, &memory) == LOCH_OK) {
        print_bytes(out, "\n    the device: ", memory.free_bytes);
        print_bytes(out, " free of ", memory.total_bytes);
    }
    if (loch_allocator_get_stats(seat->allocator, &stats) != LOCH_OK) {
        lochi_text_write(out, "\n    figures cannot be read: %s\n", loch_error_get()->sentence);
        return;
    }
    print_bytes(out, "\n    used ", stats.allocated_bytes);
    print_bytes(out, ", peak ", stats.peak_allocated_bytes);
    print_bytes(out, ", reserved ", stats.reserved_bytes);
    if (stats.limit_bytes)
        print_bytes(out, ", limit ", stats.limit_bytes);
    else
        lochi_text_write(out, ", no limit");
    lochi_text_write(out, ", fragmentation %.0f %%\n", 100 * loch_stats_fragmentation(&stats));
    print_tags(out, seat->allocator, &stats);
    if (seat->allocator->pool) (void)!loch_pool_walk_children(seat->allocator, print_child, out);
}

loch_status loch_engine_print(loch_engine *engine, char *text, size_t bytes, size_t *length)
{
    LOCH_TRY_RETURN(lochi_printing_begin(engine, text, bytes, length));
    lochi_text out = lochi_text_begin(text, bytes);
    const loch_error saved = lochi_error_save();
    lochi_text_write(&out, "engine \"%s\": seats %u, memory from %s\n", engine->name, engine->count,
                     engine->is_direct ? "the driver, block by block" : "pools");
    for (unsigned i = 0; i < engine->count; i++)
        print_seat(&out, engine, i);
    lochi_error_restore(&saved);
    return lochi_printing_end(&out, length);
}

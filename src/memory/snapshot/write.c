/* SPDX-License-Identifier: MIT */
/* Writes the contents of a snapshot as JSON. Addresses are text, because readers in JavaScript have no exact numbers
 * above 2^53. Members that are false, 0 or unknown are left out of blocks, which are many. */
#include "memory/snapshot/write.h"
#include "kit/text.h"
#include "memory/live/live.h"
#include "memory/tag.h"
#include <dlfcn.h>
#include <inttypes.h>
#include <link.h>
#include <loch/host.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define WRITE_BUFFER 16384
#define WRITE_PIECE_MAX 2048 /* length of one piece of text */

typedef struct write_out {
    snapshot_sink *sink;
    void *user;
    loch_status status;
    size_t used;
    bool is_first; /* no comma before the next item */
    char buffer[WRITE_BUFFER];
} write_out;

static void write_flush(write_out *out)
{
    if (out->status == LOCH_OK && out->used) out->status = out->sink(out->user, out->buffer, out->used);
    out->used = 0;
}

/* Writes a piece of at most WRITE_PIECE_MAX bytes. */
static LOCH_PRINTF(2, 3) void write_put(write_out *out, const char *format, ...)
{
    va_list arguments;
    if (WRITE_BUFFER - out->used < WRITE_PIECE_MAX) write_flush(out);
    va_start(arguments, format);
    const int length = vsnprintf(out->buffer + out->used, WRITE_BUFFER - out->used, format, arguments);
    va_end(arguments);
    if (length > 0) out->used += (size_t)length;
}

static void write_string(write_out *out, const char *name, const char *value)
{
    char text[WRITE_PIECE_MAX - 64];
    lochi_text quoted = lochi_text_begin(text, sizeof text);
    lochi_text_write_json(&quoted, value);
    write_put(out, "\"%s\": %s", name, quoted.length < sizeof text ? text : "\"\"");
}

/* Begins an item of a list, on a line of its own. */
static void write_item(write_out *out)
{
    write_put(out, out->is_first ? "\n" : ",\n");
    out->is_first = false;
}

static void write_open_list(write_out *out, const char *name)
{
    write_put(out, ",\n\"%s\": [", name);
    out->is_first = true;
}

static void write_close_list(write_out *out)
{
    write_put(out, "]");
    out->is_first = false;
}

/* --- the process --- */

static void write_process(write_out *out, const snapshot_contents *contents)
{
    char program[1024];
    const ssize_t length = readlink("/proc/self/exe", program, sizeof program - 1);
    program[length > 0 ? length : 0] = '\0';
    struct timespec now = {0, 0};
    clock_gettime(CLOCK_REALTIME, &now);
    write_put(out, "{\n\"format\": \"loch-snapshot\",\n\"version\": 1,\n\"library\": \"%s\",\n", LOCH_VERSION_STRING);
    write_string(out, "program", program);
    write_put(out, ",\n\"pid\": %ld,\n\"unix_ns\": %" PRIu64 ",\n\"time_ns\": %" PRIu64 ",\n\"has_blocks\": %s",
              (long)getpid(), (uint64_t)now.tv_sec * 1000000000 + (uint64_t)now.tv_nsec, loch_host_now_ns(),
              contents->has_blocks ? "true" : "false");
}

static void write_failure(write_out *out, const snapshot_failure *failure)
{
    if (!failure) return;
    write_put(out,
              ",\n\"failure\": {\"bytes\": %zu, \"allocator\": %" PRIu64 ", \"stream\": %" PRIu64 ", \"tag\": %u, ",
              failure->bytes, failure->allocator, failure->stream, (unsigned)failure->tag);
    write_string(out, "status", loch_status_name(failure->status));
    write_put(out, ", ");
    write_string(out, "sentence", failure->sentence);
    write_put(out, "}");
}

static loch_status write_call(const loch_call_count *count, void *user)
{
    write_out *out = user;
    if (!count->count) return LOCH_OK;
    write_item(out);
    write_put(out, "  {\"name\": \"%s\", \"count\": %" PRIu64 ", \"ns\": %" PRIu64 "}", count->name, count->count,
              count->ns);
    return LOCH_OK;
}

static void write_devices(write_out *out, const snapshot_contents *contents)
{
    write_open_list(out, "devices");
    for (size_t i = 0; i < contents->devices_count; i++) {
        loch_memory_info memory = {.size = sizeof memory};
        const bool is_known = loch_device_calculate_memory(contents->devices[i], &memory) == LOCH_OK;
        write_item(out);
        write_put(out, "{");
        write_string(out, "name", loch_device_get_name(contents->devices[i]));
        if (is_known)
            write_put(out, ", \"total_bytes\": %zu, \"free_bytes\": %zu", memory.total_bytes, memory.free_bytes);
        write_open_list(out, "calls");
        (void)!loch_device_walk_calls(contents->devices[i], write_call, out);
        write_close_list(out);
        write_put(out, "}");
    }
    write_close_list(out);
}

static void write_tag_names(write_out *out)
{
    const size_t count = lochi_tag_count();
    write_open_list(out, "tags");
    for (size_t tag = 1; tag < count; tag++) {
        write_item(out);
        write_put(out, "{\"tag\": %zu, ", tag);
        write_string(out, "name", loch_tag_name((loch_tag)tag));
        write_put(out, "}");
    }
    write_close_list(out);
}

/* --- blocks --- */

/* What the states of blocks are called; special blocks are used ones. */
static const char write_states[][10] = {
    [POOL_FREE] = "free",         [POOL_UNMAPPED] = "unmapped", [POOL_STALE] = "stale",       [POOL_USED] = "used",
    [POOL_SPECIAL] = "used",      [POOL_CACHED] = "cached",     [POOL_WAITING] = "waiting",   [POOL_SLAB] = "slab",
    [POOL_GROWABLE] = "growable", [POOL_DORMANT] = "asleep",    [POOL_DETACHED] = "detached",
};

/* Names of the marks, in order of their bits; the first bit is not written. */
static const char write_marks[][10] = {"",       "shared",    "captured", "movable", "pinned", "moving",
                                       "frozen", "protected", "range",    "asleep",  "pending"};

/* Writes a frame as "function (file+0xoffset)" or "file+0xoffset", or as a number. */
static void write_frame(write_out *out, uintptr_t frame, bool is_first)
{
    Dl_info info;
    struct link_map *map = NULL;
    char text[512];
    const uintptr_t address = frame - 1; /* of the call, not of what follows it */
    if (!dladdr1((void *)address, &info, (void **)&map, RTLD_DL_LINKMAP) || !info.dli_fname)
        snprintf(text, sizeof text, "0x%" PRIxPTR, address);
    else
        snprintf(text, sizeof text, info.dli_sname ? "%.200s (%.200s+0x%" PRIxPTR ")" : "%.0s%.200s+0x%" PRIxPTR,
                 info.dli_sname ? info.dli_sname : "", info.dli_fname,
                 address - (map ? (uintptr_t)map->l_addr : (uintptr_t)info.dli_fbase));
    char quoted[WRITE_PIECE_MAX - 64];
    lochi_text piece = lochi_text_begin(quoted, sizeof quoted);
    lochi_text_write_json(&piece, text);
    write_put(out, "%s%s", is_first ? "" : ", ", piece.length < sizeof quoted ? quoted : "\"\"");
}

static void write_block(write_out *out, const pool_image_block *block)
{
    const bool is_out = lochi_pool_is_out((pool_state)block->state);
    write_put(out, "  {\"address\": \"0x%" PRIxPTR "\", \"bytes\": %zu, \"state\": \"%s\"", block->start, block->bytes,
              write_states[block->state]);
    if (is_out) write_put(out, ", \"requested_bytes\": %zu", block->requested);
    if (block->state == POOL_GROWABLE) write_put(out, ", \"committed_bytes\": %zu", block->part);
    if (block->stream) write_put(out, ", \"stream\": %" PRIu64, block->stream);
    if (block->tag) write_put(out, ", \"tag\": %u", (unsigned)block->tag);
    if (block->id) write_put(out, ", \"id\": %" PRIu64, block->id);
    for (size_t i = 1; i < sizeof write_marks / sizeof *write_marks; i++)
        if (block->marks >> i & 1) write_put(out, ", \"%s\": true", write_marks[i]);
    if (!block->stack) return;
    write_put(out, ", \"stack\": [");
    for (uint32_t i = 0; i < block->stack->count; i++)
        write_frame(out, block->stack->frames[i], !i);
    write_put(out, "]");
}

static void write_blocks(write_out *out, const pool_image *image)
{
    write_open_list(out, "blocks");
    for (size_t i = 0; i < image->blocks_count && out->status == LOCH_OK;) {
        const pool_image_block *block = &image->blocks[i++];
        write_item(out);
        write_block(out, block);
        if (block->state == POOL_SLAB) {
            write_put(out, ", \"small_bytes\": %zu, \"small_count\": %" PRIu32 ", \"small_cached\": %" PRIu32,
                      block->part, block->count, block->cached);
            write_open_list(out, "blocks");
            for (; i < image->blocks_count && image->blocks[i].marks & POOL_IMAGE_INSIDE; i++) {
                if (image->blocks[i].state != POOL_USED) continue; /* freed, and waiting for a stream */
                write_item(out);
                write_block(out, &image->blocks[i]);
                write_put(out, "}");
            }
            write_close_list(out);
        }
        write_put(out, "}");
    }
    write_close_list(out);
}

/* --- pools --- */

/* The figures of a pool: name and place. All of them are 64 bits wide. */
typedef struct write_figure {
    char name[22];
    uint16_t at;
} write_figure;

#define WRITE_FIGURE(name)                                                                                             \
    {                                                                                                                  \
#name, offsetof(loch_pool_info, name)                                                                          \
    }
static const write_figure write_figures[] = {
    WRITE_FIGURE(limit_bytes),     WRITE_FIGURE(idle_bytes),
    WRITE_FIGURE(reserved_bytes),  WRITE_FIGURE(peak_reserved_bytes),
    WRITE_FIGURE(used_bytes),      WRITE_FIGURE(free_bytes),
    WRITE_FIGURE(waiting_bytes),   WRITE_FIGURE(thread_bytes),
    WRITE_FIGURE(captured_bytes),  WRITE_FIGURE(largest_free_bytes),
    WRITE_FIGURE(asleep_bytes),    WRITE_FIGURE(handles),
    WRITE_FIGURE(streams),         WRITE_FIGURE(handles_created),
    WRITE_FIGURE(handles_moved),   WRITE_FIGURE(handles_released),
    WRITE_FIGURE(handles_revived), WRITE_FIGURE(events_recorded),
    WRITE_FIGURE(waits_on_device), WRITE_FIGURE(waits_on_host),
    WRITE_FIGURE(excess_bytes),
};
#undef WRITE_FIGURE
_Static_assert(sizeof(size_t) == sizeof(uint64_t), "all figures of a pool are 64 bits wide");

static void write_info(write_out *out, const pool_image *image)
{
    const loch_pool_info *info = &image->info;
    write_put(out, ",\n\"pool\": {\"kind\": \"%s\", \"granule_bytes\": %zu", loch_memory_kind_name(image->kind),
              image->cell_bytes);
    if (image->parent)
        write_put(out, ", \"parent\": %" PRIu64 ", \"memory_of_parent\": \"%s\"", image->parent,
                  image->is_range ? "range" : "quota");
    for (size_t i = 0; i < sizeof write_figures / sizeof *write_figures; i++) {
        uint64_t value;
        memcpy(&value, (const char *)info + write_figures[i].at, sizeof value);
        write_put(out, ", \"%s\": %" PRIu64, write_figures[i].name, value);
    }
    write_put(out, "}");
}

static void write_lanes(write_out *out, const pool_image *image)
{
    write_open_list(out, "streams");
    for (size_t i = 0; i < image->lanes_count; i++) {
        const pool_image_lane *lane = &image->lanes[i];
        write_item(out);
        write_put(out, "  {\"stream\": %" PRIu64 ", \"pending_events\": %zu", lane->stream, lane->events);
        if (lane->is_default) write_put(out, ", \"default\": true");
        if (lane->is_closed) write_put(out, ", \"closed\": true");
        if (lane->capture) write_put(out, ", \"capture\": %" PRIu64, lane->capture);
        write_put(out, "}");
    }
    write_close_list(out);
}

static void write_handles(write_out *out, const pool_image *image)
{
    write_open_list(out, "reservations");
    if (image->base) {
        write_item(out);
        write_put(out, "  {\"address\": \"0x%" PRIxPTR "\", \"bytes\": %zu}", image->base, image->span);
    }
    write_close_list(out);
    write_open_list(out, "handles");
    for (size_t i = 0; i < image->handles_count && out->status == LOCH_OK; i++) {
        const pool_image_handle *handle = &image->handles[i];
        write_item(out);
        write_put(out, "  {\"bytes\": %zu, \"mapped\": %s", handle->bytes, handle->mappings ? "true" : "false");
        if (handle->start) write_put(out, ", \"address\": \"0x%" PRIxPTR "\"", handle->start);
        if (handle->mappings > 1) write_put(out, ", \"mappings\": %u", handle->mappings);
        if (handle->is_raw) write_put(out, ", \"raw\": true");
        if (handle->is_asleep) write_put(out, ", \"asleep\": true");
        if (image->is_range) write_put(out, ", \"range\": true");
        write_put(out, "}");
    }
    write_close_list(out);
    write_open_list(out, "threads");
    for (size_t i = 0; i < image->caches_count; i++) {
        write_item(out);
        write_put(out, "  {\"slot\": %" PRIu32 ", \"stream\": %" PRIu64 ", \"cached_bytes\": %zu}",
                  image->caches[i].slot, image->caches[i].stream, image->caches[i].bytes);
    }
    write_close_list(out);
}

/* --- allocators --- */

static void write_stats(write_out *out, const loch_stats *stats)
{
    char text[WRITE_PIECE_MAX - 64];
    size_t length = 0;
    (void)!loch_stats_print(stats, LOCH_FORMAT_JSON, text, sizeof text, &length);
    write_put(out, "\"statistics\": %s", length < sizeof text ? text : "{}");
}

static void write_tags(write_out *out, const snapshot_allocator *copy)
{
    write_open_list(out, "tags");
    for (size_t i = 0; i < copy->tags_count; i++) {
        write_item(out);
        write_put(out, "  {\"tag\": %u, ", (unsigned)copy->tags[i].tag);
        write_stats(out, &copy->tags[i].stats);
        write_put(out, "}");
    }
    write_close_list(out);
}

static void write_allocator(write_out *out, const snapshot_contents *contents, const snapshot_allocator *copy)
{
    write_item(out);
    write_put(out, "{\"number\": %" PRIu64 ", ", copy->number);
    write_string(out, "name", copy->name);
    write_put(out, ", ");
    write_string(out, "kind", copy->kind);
    write_put(out, ", \"device\": %zu", copy->device);
    if (copy->wrapped) write_put(out, ", \"wraps\": %" PRIu64, copy->wrapped);
    if (copy->has_stats) {
        write_put(out, ",\n");
        write_stats(out, &copy->stats);
        write_tags(out, copy);
    }
    if (copy->is_pool) {
        write_info(out, &copy->image);
        write_lanes(out, &copy->image);
        if (contents->has_blocks) {
            write_handles(out, &copy->image);
            write_blocks(out, &copy->image);
        }
    } else if (copy->has_blocks) {
        write_blocks(out, &copy->image);
    }
    write_put(out, "}");
}

loch_status lochi_snapshot_write(const snapshot_contents *contents, snapshot_sink *sink, void *user)
{
    write_out out;
    out.sink = sink;
    out.user = user;
    out.status = LOCH_OK;
    out.used = 0;
    out.is_first = true;
    write_process(&out, contents);
    write_failure(&out, contents->failure);
    write_devices(&out, contents);
    write_tag_names(&out);
    write_open_list(&out, "allocators");
    for (const snapshot_allocator *copy = contents->allocators; copy && out.status == LOCH_OK; copy = copy->next)
        write_allocator(&out, contents, copy);
    write_close_list(&out);
    write_put(&out, "\n}\n");
    write_flush(&out);
    return out.status;
}

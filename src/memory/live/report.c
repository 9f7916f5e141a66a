/* SPDX-License-Identifier: MIT */
/* Prints the live blocks by place: the call stack outside of the library, the tag and the allocator.
 *
 * A destructor of the module prints them, not a function of atexit: it runs after those and after the destructors of
 * all modules that use the library, which may free blocks. Blocks are copied shard by shard, so other threads may still
 * allocate and free. No lock of an allocator is taken, because the thread that calls exit() may hold one. */
#include "memory/live/report.h"
#include "base/heap.h"
#include "kit/module.h"
#include "kit/text.h"
#include "memory/live/sources.h"
#include "memory/live/table.h"
#include <loch/tag.h>
#include <dlfcn.h>
#include <errno.h>
#include <link.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define REPORT_PLACES 20 /* printed; the rest is summed */
#define REPORT_FRAMES 8  /* frames outside of the library that tell places apart, and are printed */
#define REPORT_WITHIN 8  /* further ones, if the library's own frames cannot be told from them */
#define REPORT_LINE 512

/* Blocks of one place. */
typedef struct report_place {
    const lochi_live_stack *stack;
    const uintptr_t *frames; /* those of `stack` outside of the library */
    size_t frame_count;
    uint32_t source;
    loch_tag tag;
    size_t bytes, blocks;
} report_place;

static atomic_bool report_is_wanted, report_changes_code;

void lochi_live_report_at_exit(bool changes_code)
{
    atomic_store_explicit(&report_is_wanted, true, memory_order_relaxed);
    atomic_store_explicit(&report_changes_code, changes_code, memory_order_relaxed);
}

static void report_line(const char *format, ...) LOCH_PRINTF(1, 2);
static void report_line(const char *format, ...)
{
    char line[REPORT_LINE];
    va_list arguments;
    va_start(arguments, format);
    const int wanted = vsnprintf(line, sizeof line - 1, format, arguments);
    va_end(arguments);
    size_t length = wanted < 0 ? 0 : wanted < (int)sizeof line - 1 ? (size_t)wanted : sizeof line - 2;
    line[length++] = '\n';
    for (size_t done = 0; done < length;) {
        const ssize_t written = write(STDERR_FILENO, line + done, length - done);
        if (written < 0 && errno != EINTR) return;
        if (written > 0) done += (size_t)written;
    }
}

/* --- where code is --- */

/* Prints one frame: function, module, and the offset that addr2line takes. A return address is behind its call. */
static void report_frame(uintptr_t frame)
{
    Dl_info info;
    struct link_map *map = NULL;
    const uintptr_t address = frame - 1;
    if (!dladdr1((void *)address, &info, (void **)&map, RTLD_DL_LINKMAP) || !info.dli_fname) {
        report_line("      at 0x%zx", (size_t)address);
        return;
    }
    const char *slash = strrchr(info.dli_fname, '/');
    const size_t offset = address - (map ? (uintptr_t)map->l_addr : (uintptr_t)info.dli_fbase);
    if (info.dli_sname)
        report_line("      at %.200s (%.200s+0x%zx)", info.dli_sname, slash ? slash + 1 : info.dli_fname, offset);
    else
        report_line("      at %.200s+0x%zx", slash ? slash + 1 : info.dli_fname, offset);
}

static bool report_is_own(const Dl_info *info)
{
    return info->dli_fname && lochi_module_is_loch(info->dli_fname, strlen(info->dli_fname));
}

/* Tells whether the library is a shared one. If not, it is a part of the program, whose own code cannot be told from
 * it. */
static bool report_is_shared(void)
{
    Dl_info info;
    return dladdr(lochi_live_source_name(0), &info) && report_is_own(&info);
}

/* Finds the frames of a stack that are outside of the libraries. */
static void report_trim(report_place *place, bool is_shared)
{
    const lochi_live_stack *stack = place->stack;
    size_t first = 0;
    Dl_info info;
    while (stack && is_shared && first < stack->count &&
           (!dladdr((void *)(stack->frames[first] - 1), &info) || report_is_own(&info)))
        first++;
    if (stack && first == stack->count) first = 0;
    place->frames = stack ? stack->frames + first : NULL;
    place->frame_count = stack ? stack->count - first : 0;
    const size_t most = is_shared ? REPORT_FRAMES : REPORT_FRAMES + REPORT_WITHIN;
    if (place->frame_count > most) place->frame_count = most;
}

/* --- places --- */

static int report_order(uintptr_t a, uintptr_t b)
{
    return a < b ? -1 : a > b;
}

static int report_by_source(const report_place *a, const report_place *b)
{
    return a->tag != b->tag ? report_order(a->tag, b->tag) : report_order(a->source, b->source);
}

static int report_by_stack(const void *left, const void *right)
{
    const report_place *a = left, *b = right;
    const int order = report_order((uintptr_t)a->stack, (uintptr_t)b->stack);
    return order ? order : report_by_source(a, b);
}

static int report_by_frames(const void *left, const void *right)
{
    const report_place *a = left, *b = right;
    int order = report_order(a->frame_count, b->frame_count);
    for (size_t i = 0; !order && i < a->frame_count; i++)
        order = report_order(a->frames[i], b->frames[i]);
    return order ? order : report_by_source(a, b);
}

static int report_by_bytes(const void *left, const void *right)
{
    const report_place *a = left, *b = right;
    const int order = report_order(b->bytes, a->bytes);
    return order ? order : report_by_frames(left, right);
}

/* Sorts places and merges those that are equal. Returns how many are left. */
static size_t report_merge(report_place *places, size_t count, int (*compare)(const void *, const void *))
{
    size_t kept = 0;
    qsort(places, count, sizeof *places, compare);
    for (size_t i = 0; i < count; i++) {
        if (kept && !compare(&places[kept - 1], &places[i])) {
            places[kept - 1].bytes += places[i].bytes;
            places[kept - 1].blocks += places[i].blocks;
        } else {
            places[kept++] = places[i];
        }
    }
    return kept;
}

/* Copies the live blocks, as places of one block each. Returns NULL if there are none, or no memory. */
static report_place *report_collect(size_t *count, size_t *mapped)
{
    const size_t room = lochi_live_table_count() + 64; /* other threads may add some */
    /* The blocks are copied to the end, and become places from the front: a place is larger than a block. */
    *mapped = room * (sizeof(report_place) + sizeof(lochi_live_block));
    report_place *places = lochi_map(*mapped);
    if (!places) return NULL;
    lochi_live_block *blocks = (lochi_live_block *)(places + room);
    *count = lochi_live_table_copy(blocks, room);
    for (size_t i = 0; i < *count; i++)
        places[i] = (report_place){.stack = blocks[i].stack,
                                   .source = blocks[i].source,
                                   .tag = blocks[i].tag,
                                   .bytes = blocks[i].bytes,
                                   .blocks = 1};
    return places;
}

/* --- printing --- */

static const char *report_plural(size_t count)
{
    return count == 1 ? "" : "s";
}

static void report_print_place(const report_place *place)
{
    char tag[LOCH_TAG_NAME_MAX + 16] = "no tag";
    if (place->tag) snprintf(tag, sizeof tag, "tag \"%s\"", loch_tag_name(place->tag));
    report_line("  %s in %zu block%s, %s, %s", LOCHI_SIZE(place->bytes), place->blocks, report_plural(place->blocks),
                tag, lochi_live_source_name(place->source));
    for (size_t i = 0; i < place->frame_count; i++)
        report_frame(place->frames[i]);
}

static void report_print(const report_place *places, size_t count)
{
    report_place rest = {0}, all = {0};
    report_line("LOCH_LEAKS: memory that was not freed, by place");
    for (size_t i = 0; i < count; i++) {
        all.bytes += places[i].bytes;
        all.blocks += places[i].blocks;
        if (i < REPORT_PLACES) {
            report_print_place(&places[i]);
            continue;
        }
        rest.bytes += places[i].bytes;
        rest.blocks += places[i].blocks;
    }
    if (rest.blocks)
        report_line("  %s in %zu block%s at %zu further place%s", LOCHI_SIZE(rest.bytes), rest.blocks,
                    report_plural(rest.blocks), count - REPORT_PLACES, report_plural(count - REPORT_PLACES));
    if (lochi_live_table_count_lost())
        report_line("  %zu blocks are not listed: there was no memory for the table", lochi_live_table_count_lost());
    report_line("LOCH_LEAKS: %s in %zu block%s", LOCHI_SIZE(all.bytes), all.blocks, report_plural(all.blocks));
}

/* Priority 101 is the last of all destructors of a module, C++ objects included. */
__attribute__((destructor(101))) static void report_at_exit(void)
{
    if (!atomic_load_explicit(&report_is_wanted, memory_order_relaxed)) return;
    size_t count = 0, mapped = 0;
    report_place *places = report_collect(&count, &mapped);
    if (count) {
        count = report_merge(places, count, report_by_stack);
        const bool is_shared = report_is_shared();
        for (size_t i = 0; i < count; i++)
            report_trim(&places[i], is_shared);
        count = report_merge(places, count, report_by_frames);
        qsort(places, count, sizeof *places, report_by_bytes);
        report_print(places, count);
    }
    if (places) lochi_unmap(places, mapped);
    if (!count || !atomic_load_explicit(&report_changes_code, memory_order_relaxed)) return;
    fflush(NULL); /* _exit does not write what is buffered, and exit was called already */
    _exit(LOCHI_LIVE_EXIT_CODE);
}

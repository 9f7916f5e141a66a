/* SPDX-License-Identifier: MIT */
/* A census lists the live blocks of one moment, sorted by id, and by address for allocators that give no ids. The
 * difference of two censuses takes one pass over both. */
#include "kit/cancel.h"
#include "base/fail.h"
#include "base/heap.h"
#include "kit/text.h"
#include "memory/allocator.h"
#include "memory/format.h"
#include <inttypes.h>
#include <loch/profile.h>
#include <stdlib.h>

#define CENSUS_SPARE 64   /* room for blocks that are allocated while the census is taken */
#define CENSUS_LARGEST 10 /* blocks listed in the text */

struct loch_census {
    size_t count, capacity;
    loch_block *blocks;
};

/* --- taking one --- */

static int census_order(const loch_block *a, const loch_block *b)
{
    if (a->id != b->id) return a->id < b->id ? -1 : 1;
    return ((uintptr_t)a->address > (uintptr_t)b->address) - ((uintptr_t)a->address < (uintptr_t)b->address);
}

static int census_compare_blocks(const void *a, const void *b)
{
    return census_order(a, b);
}

static bool census_grow(loch_census *census, size_t capacity)
{
    loch_block *blocks =
        capacity <= SIZE_MAX / sizeof *blocks ? lochi_realloc(census->blocks, capacity * sizeof *blocks) : NULL;
    if (!blocks) return false;
    census->blocks = blocks;
    census->capacity = capacity;
    return true;
}

static loch_status census_note(const loch_block *block, void *user)
{
    loch_census *census = user;
    if (census->count == census->capacity && !census_grow(census, 2 * census->capacity))
        return LOCH_FAIL(HOST_MEMORY, "no host memory to list more than %zu blocks", census->count);
    census->blocks[census->count++] = *block;
    return LOCH_OK;
}

loch_status loch_census_create(loch_allocator *allocator, loch_census **out)
{
    if (out) *out = NULL;
    if (!allocator || !out) return LOCH_FAIL(INVALID, "a census needs an allocator and an out pointer");
    loch_status status = LOCH_E_HOST_MEMORY;
    const uint64_t live = lochi_allocator_count_live(allocator);
    loch_census *census = lochi_zalloc(sizeof *census);
    if (census && census_grow(census, (live == UINT64_MAX ? 0 : (size_t)live) + CENSUS_SPARE))
        status = loch_allocator_walk(allocator, census_note, census);
    else
        (void)LOCH_FAIL(HOST_MEMORY, "no host memory to list %" PRIu64 " blocks", live);
    if (status != LOCH_OK) {
        loch_census_destroy(census);
        return status;
    }
    if (census->count) qsort(census->blocks, census->count, sizeof *census->blocks, census_compare_blocks);
    *out = census;
    return LOCH_OK;
}

void loch_census_destroy(loch_census *census)
{
    if (!census) return;
    lochi_free(census->blocks);
    lochi_free(census);
}

static const loch_block *census_at(const loch_census *census, size_t index)
{
    return census && index < census->count ? &census->blocks[index] : NULL;
}

/* --- differences --- */

/* Position in two censuses. census_next returns the next block of `after` that is not in `before`; NULL at the end. */
typedef struct census_cursor {
    const loch_census *before, *after;
    size_t at_before, at_after;
} census_cursor;

static const loch_block *census_next(census_cursor *cursor)
{
    const loch_block *old, *block;
    while ((block = census_at(cursor->after, cursor->at_after++))) {
        while ((old = census_at(cursor->before, cursor->at_before)) && census_order(old, block) < 0)
            cursor->at_before++;
        if (!old || census_order(old, block) != 0) return block;
    }
    return NULL;
}

loch_status loch_census_walk(const loch_census *census, const loch_census *before, loch_block_visitor *visitor,
                             void *user)
{
    LOCHI_NOT_CANCELLED;
    if (!census || !visitor) return LOCH_FAIL(INVALID, "a walk needs a census and a visitor");
    census_cursor cursor = {before, census, 0, 0};
    const loch_block *block;
    while ((block = census_next(&cursor)))
        LOCH_TRY_RETURN(visitor(block, user));
    return LOCH_OK;
}

/* Sorts by bytes, then by blocks, largest first; then by tag. */
static int census_compare_tags(const void *left, const void *right)
{
    const loch_census_tag *a = left, *b = right;
    if (a->requested_bytes != b->requested_bytes) return a->requested_bytes > b->requested_bytes ? -1 : 1;
    if (a->blocks != b->blocks) return a->blocks > b->blocks ? -1 : 1;
    return (a->tag > b->tag) - (a->tag < b->tag);
}

/* Sums the blocks by tag, and sorts the sums. Leaves out tags without blocks. */
static loch_status census_sum(const loch_census *before, const loch_census *after, loch_census_tag **out, size_t *count)
{
    loch_census_tag *sums = lochi_zalloc(LOCH_TAG_COUNT_MAX * sizeof *sums);
    if (!sums) return LOCH_FAIL(HOST_MEMORY, "no host memory to sum blocks by tag");
    census_cursor cursor = {before, after, 0, 0};
    const loch_block *block;
    while ((block = census_next(&cursor))) {
        const loch_tag tag = block->tag < LOCH_TAG_COUNT_MAX ? block->tag : 0;
        sums[tag].blocks++;
        sums[tag].requested_bytes += block->requested_bytes;
    }
    size_t used = 0;
    for (loch_tag tag = 0; tag < LOCH_TAG_COUNT_MAX; tag++)
        if (sums[tag].blocks) sums[used++] = (loch_census_tag){tag, sums[tag].blocks, sums[tag].requested_bytes};
    qsort(sums, used, sizeof *sums, census_compare_tags);
    *out = sums;
    *count = used;
    return LOCH_OK;
}

loch_status loch_census_walk_tags(const loch_census *census, const loch_census *before,
                                  loch_census_tag_visitor *visitor, void *user)
{
    LOCHI_NOT_CANCELLED;
    if (!census || !visitor) return LOCH_FAIL(INVALID, "sums by tag need a census and a visitor");
    loch_census_tag *sums;
    size_t count;
    LOCH_TRY_RETURN(census_sum(before, census, &sums, &count));
    loch_status status = LOCH_OK;
    for (size_t i = 0; i < count && status == LOCH_OK; i++)
        status = visitor(&sums[i], user);
    lochi_free(sums);
    return status;
}

/* --- printing --- */

static const char *census_plural(uint64_t count)
{
    return count == 1 ? "" : "s";
}

/* Writes the largest blocks to `out`, largest first, and returns their number. Also counts all blocks and bytes. */
static size_t census_find_largest(const loch_census *before, const loch_census *after,
                                  const loch_block *out[CENSUS_LARGEST], uint64_t *blocks, uint64_t *bytes)
{
    census_cursor cursor = {before, after, 0, 0};
    const loch_block *block;
    size_t count = 0;
    *blocks = *bytes = 0;
    while ((block = census_next(&cursor))) {
        ++*blocks;
        *bytes += block->requested_bytes;
        size_t place = count < CENSUS_LARGEST ? count++ : CENSUS_LARGEST;
        for (; place > 0 && out[place - 1]->requested_bytes < block->requested_bytes; place--)
            if (place < CENSUS_LARGEST) out[place] = out[place - 1];
        if (place < CENSUS_LARGEST) out[place] = block;
    }
    return count;
}

static void census_print_tags(lochi_text *out, const loch_census *before, const loch_census *after)
{
    loch_census_tag *sums;
    size_t count;
    if (census_sum(before, after, &sums, &count) != LOCH_OK) {
        lochi_text_write(out, "  (no host memory to sum them by tag)\n");
        return;
    }
    for (size_t i = 0; i < count; i++) {
        const char *name = loch_tag_name(sums[i].tag);
        lochi_text_write(out, "  %s: %" PRIu64 " block%s, %s\n", *name ? name : "(no tag)", sums[i].blocks,
                         census_plural(sums[i].blocks), LOCHI_SIZE(sums[i].requested_bytes));
    }
    lochi_free(sums);
}

static void census_print_lines(lochi_text *out, const loch_census *before, const loch_census *after)
{
    const loch_block *largest[CENSUS_LARGEST];
    uint64_t blocks, requested;
    const size_t shown = census_find_largest(before, after, largest, &blocks, &requested);
    lochi_text_write(out, "%" PRIu64 " block%s, %s\n", blocks, census_plural(blocks), LOCHI_SIZE(requested));
    if (!blocks) return;
    census_print_tags(out, before, after);
    lochi_text_write(out, "largest:\n");
    for (size_t i = 0; i < shown; i++) {
        const char *name = loch_tag_name(largest[i]->tag);
        lochi_text_write(out, "  block %" PRIu64 " at %p: %s%s%s\n", largest[i]->id, largest[i]->address,
                         LOCHI_SIZE(largest[i]->requested_bytes), *name ? ", " : "", name);
    }
}

static void census_print_json_tags(lochi_text *out, const loch_census *before, const loch_census *after)
{
    loch_census_tag *sums;
    size_t count;
    if (census_sum(before, after, &sums, &count) != LOCH_OK) {
        lochi_text_write(out, "null");
        return;
    }
    lochi_text_write(out, "[");
    for (size_t i = 0; i < count; i++) {
        lochi_text_write(out, "%s{\"tag\": ", i ? ", " : "");
        lochi_text_write_json(out, loch_tag_name(sums[i].tag));
        lochi_text_write(out, ", \"blocks\": %" PRIu64 ", \"requested_bytes\": %" PRIu64 "}", sums[i].blocks,
                         sums[i].requested_bytes);
    }
    lochi_text_write(out, "]");
    lochi_free(sums);
}

static void census_print_json_block(lochi_text *out, const loch_block *block)
{
    lochi_text_write(out, "{\"id\": %" PRIu64 ", \"address\": \"0x%" PRIxPTR "\"", block->id,
                     (uintptr_t)block->address);
    lochi_text_write(out, ", \"requested_bytes\": %zu, \"allocated_bytes\": %zu, \"tag\": ", block->requested_bytes,
                     block->allocated_bytes);
    lochi_text_write_json(out, loch_tag_name(block->tag));
    lochi_text_write(out, ", \"stream_id\": %" PRIu64 ", \"time_ns\": %" PRIu64 "}", block->stream_id, block->time_ns);
}

static void census_print_json(lochi_text *out, const loch_census *before, const loch_census *after)
{
    const loch_block *largest[CENSUS_LARGEST];
    uint64_t blocks, requested;
    census_find_largest(before, after, largest, &blocks, &requested);
    lochi_text_write(out, "{\"blocks\": %" PRIu64 ", \"requested_bytes\": %" PRIu64 ", \"tags\": ", blocks, requested);
    census_print_json_tags(out, before, after);
    lochi_text_write(out, ", \"list\": [");
    census_cursor cursor = {before, after, 0, 0};
    const loch_block *block;
    for (size_t i = 0; (block = census_next(&cursor)); i++) {
        if (i) lochi_text_write(out, ", ");
        census_print_json_block(out, block);
    }
    lochi_text_write(out, "]}");
}

loch_status loch_census_print(const loch_census *census, const loch_census *before, loch_format format, char *text,
                              size_t bytes, size_t *length)
{
    LOCH_TRY_RETURN(lochi_printing_begin(census, text, bytes, length));
    LOCH_TRY_RETURN(lochi_format_check(format));
    lochi_text out = lochi_text_begin(text, bytes);
    if (format == LOCH_FORMAT_JSON)
        census_print_json(&out, before, census);
    else
        census_print_lines(&out, before, census);
    return lochi_printing_end(&out, length);
}

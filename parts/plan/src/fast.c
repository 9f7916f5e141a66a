/* SPDX-License-Identifier: MIT */
/* Time is cut into blocks of equal length. Each block has the list of placed buffers that touch it, in order of
 * offsets. A buffer is placed at the lowest offset that is free in all of its blocks for its life. The list of a block
 * is scanned from the bottom, so a search costs about as many steps as buffers are live.
 *
 * Long-lived buffers would touch many short blocks. So the work is done in levels: the blocks of a level are about as
 * long as the lives of the buffers that it places, and every buffer touches few of them. Each level starts with the
 * lists of everything placed so far. */
#include "fast.h"
#include "memory.h"
#include "problem.h"
#include <stdlib.h>
#include <string.h>

#define FAST_BOOST_MAX 24
#define FAST_TIGHT_MAX ((size_t)20000) /* more buffers are never placed at the tightest offsets */
#define FAST_SIZE_MAX ((size_t)100000) /* more buffers are never placed in order of size alone: that is quadratic */

typedef struct fast_entry {
    uint64_t low, high;
    uint32_t first, last;
} fast_entry;

typedef struct fast_block {
    fast_entry *entries;
    size_t count, capacity;
} fast_block;

typedef struct fast_key {
    uint64_t one, two;
    uint32_t buffer;
    uint32_t level;
} fast_key;

struct plan_fast {
    const loch_plan_problem *problem;
    size_t count;
    uint32_t times;         /* number of distinct times */
    uint32_t *first, *last; /* by buffer: index of its times */
    fast_key *keys;
    fast_block *blocks;
    size_t blocks_count, blocks_capacity;
    uint32_t shift, shift_min; /* log2 of the length of a block */
    uint32_t *placed;          /* placed buffers */
    size_t placed_count;
    uint8_t *boosts[PLAN_FAST_STRATEGIES]; /* by strategy and buffer: levels that it comes earlier */
    uint64_t *offsets;
    uint64_t large_bytes; /* buffers of at least this size come first, in order of size */
    bool is_jumping;      /* boosted buffers come first, too */
    plan_choice choice;
    uint64_t
        *peaks; /* by time, then by time in windows of 2, 4, 8 and so on: most live bytes; NULL if not needed yet */
};

/* --- times --- */

typedef struct fast_time {
    uint64_t time;
    uint32_t buffer, is_end;
} fast_time;

static int fast_compare_times(const void *a, const void *b)
{
    const fast_time *x = a, *y = b;
    return x->time < y->time ? -1 : x->time > y->time;
}

static bool fast_rank_times(plan_fast *fast)
{
    fast_time *times = lochi_plan_alloc(2 * fast->count, sizeof *times);
    if (!times) return false;
    for (size_t i = 0; i < fast->count; i++) {
        times[2 * i] = (fast_time){fast->problem->buffers[i].first, (uint32_t)i, 0};
        times[2 * i + 1] = (fast_time){fast->problem->buffers[i].last, (uint32_t)i, 1};
    }
    qsort(times, 2 * fast->count, sizeof *times, fast_compare_times);
    uint32_t rank = 0;
    for (size_t i = 0; i < 2 * fast->count; i++) {
        if (i && times[i].time != times[i - 1].time) rank++;
        *(times[i].is_end ? &fast->last[times[i].buffer] : &fast->first[times[i].buffer]) = rank;
    }
    fast->times = rank + 1;
    lochi_plan_free(times);
    return true;
}

static uint32_t fast_log2(uint64_t value)
{
    return value ? 63 - (uint32_t)__builtin_clzll(value) : 0;
}

/* Chooses the shortest blocks: about as many times as buffers are live, so that lists are not mostly copies. */
static void fast_choose_shift(plan_fast *fast)
{
    uint64_t lives = 0;
    for (size_t i = 0; i < fast->count; i++)
        lives += fast->last[i] - fast->first[i];
    const uint64_t live = fast->times ? lives / fast->times : 0;
    fast->shift_min = fast_log2(live < 16 ? 16 : live);
}

void lochi_plan_fast_destroy(plan_fast *fast)
{
    if (!fast) return;
    for (size_t i = 0; i < fast->blocks_capacity; i++)
        lochi_plan_free(fast->blocks[i].entries);
    lochi_plan_free(fast->blocks);
    lochi_plan_free(fast->first);
    lochi_plan_free(fast->last);
    lochi_plan_free(fast->keys);
    lochi_plan_free(fast->placed);
    lochi_plan_free(fast->peaks);
    for (size_t i = 0; i < PLAN_FAST_STRATEGIES; i++)
        lochi_plan_free(fast->boosts[i]);
    lochi_plan_free(fast);
}

plan_fast *lochi_plan_fast_create(const loch_plan_problem *problem)
{
    plan_fast *fast = lochi_plan_alloc(1, sizeof *fast);
    if (!fast) return NULL;
    fast->problem = problem;
    fast->count = problem->count;
    fast->first = lochi_plan_alloc(fast->count, sizeof *fast->first);
    fast->last = lochi_plan_alloc(fast->count, sizeof *fast->last);
    fast->keys = lochi_plan_alloc(fast->count, sizeof *fast->keys);
    fast->placed = lochi_plan_alloc(fast->count, sizeof *fast->placed);
    if (!fast->first || !fast->last || !fast->keys || !fast->placed || !fast_rank_times(fast)) {
        lochi_plan_fast_destroy(fast);
        return NULL;
    }
    fast_choose_shift(fast);
    return fast;
}

/* --- blocks --- */

static bool block_insert(fast_block *block, size_t at, const fast_entry *entry)
{
    if (!lochi_plan_grow((void **)&block->entries, &block->capacity, block->count + 1, sizeof *block->entries))
        return false;
    memmove(block->entries + at + 1, block->entries + at, (block->count - at) * sizeof *block->entries);
    block->entries[at] = *entry;
    block->count++;
    return true;
}

static bool fast_add(plan_fast *fast, uint32_t buffer)
{
    const fast_entry entry = {fast->offsets[buffer], fast->offsets[buffer] + fast->problem->buffers[buffer].bytes,
                              fast->first[buffer], fast->last[buffer]};
    for (size_t i = entry.first >> fast->shift; i <= (entry.last - 1) >> fast->shift; i++) {
        fast_block *block = &fast->blocks[i];
        size_t low = 0, high = block->count;
        while (low < high) {
            const size_t middle = (low + high) / 2;
            if (block->entries[middle].low < entry.low)
                low = middle + 1;
            else
                high = middle;
        }
        if (!block_insert(block, low, &entry)) return false;
    }
    return true;
}

/* Orders placed buffers by their offsets. */
static int fast_compare_keys(const void *a, const void *b)
{
    const fast_key *x = a, *y = b;
    if (x->level != y->level) return x->level > y->level ? -1 : 1;
    if (x->one != y->one) return x->one > y->one ? -1 : 1;
    if (x->two != y->two) return x->two > y->two ? -1 : 1;
    return x->buffer < y->buffer ? -1 : x->buffer > y->buffer;
}

/* Starts a level: makes the blocks and fills in what is placed. */
static bool fast_start_level(plan_fast *fast, uint32_t shift)
{
    fast->shift = shift;
    const size_t count = ((size_t)fast->times >> shift) + 1, old = fast->blocks_capacity;
    if (count > old) {
        if (!lochi_plan_grow((void **)&fast->blocks, &fast->blocks_capacity, count, sizeof *fast->blocks)) return false;
        memset(fast->blocks + old, 0, (fast->blocks_capacity - old) * sizeof *fast->blocks);
    }
    for (size_t i = 0; i < count; i++)
        fast->blocks[i].count = 0;
    fast->blocks_count = count;
    if (!fast->placed_count) return true;
    fast_key *keys = lochi_plan_alloc(fast->placed_count, sizeof *keys);
    if (!keys) return false;
    for (size_t i = 0; i < fast->placed_count; i++)
        keys[i] = (fast_key){.one = UINT64_MAX - fast->offsets[fast->placed[i]], .buffer = fast->placed[i]};
    qsort(keys, fast->placed_count, sizeof *keys, fast_compare_keys);
    bool is_done = true;
    for (size_t i = 0; i < fast->placed_count && is_done; i++) {
        const uint32_t buffer = keys[i].buffer;
        const fast_entry entry = {fast->offsets[buffer], fast->offsets[buffer] + fast->problem->buffers[buffer].bytes,
                                  fast->first[buffer], fast->last[buffer]};
        for (size_t at = entry.first >> shift; at <= (entry.last - 1) >> shift && is_done; at++)
            is_done = block_insert(&fast->blocks[at], fast->blocks[at].count, &entry);
    }
    lochi_plan_free(keys);
    return is_done;
}

/* Returns the lowest offset that is free for the whole life of a buffer. */
static uint64_t fast_find(const plan_fast *fast, uint32_t buffer)
{
    const uint64_t bytes = fast->problem->buffers[buffer].bytes;
    const uint64_t alignment = plan_alignment(&fast->problem->buffers[buffer]);
    const uint32_t first = fast->first[buffer], last = fast->last[buffer];
    const size_t from = first >> fast->shift, to = (last - 1) >> fast->shift;
    uint64_t at = 0;
    size_t next[4] = {0};
    if (from == to) {
        const fast_block *block = &fast->blocks[from];
        for (size_t i = 0; i < block->count; i++) {
            const fast_entry *entry = &block->entries[i];
            if (entry->first >= last || entry->last <= first || entry->high <= at) continue;
            if (entry->low >= at + bytes) return at;
            at = plan_align(entry->high, alignment);
        }
        return at;
    }
    if (to - from < 4) {
        for (;;) { /* Takes the lowest entry of all lists. */
            const fast_entry *lowest = NULL;
            size_t of = 0;
            for (size_t i = from; i <= to; i++) {
                const fast_block *block = &fast->blocks[i];
                size_t *place = &next[i - from];
                while (*place < block->count &&
                       (block->entries[*place].first >= last || block->entries[*place].last <= first ||
                        block->entries[*place].high <= at))
                    ++*place;
                if (*place == block->count || (lowest && block->entries[*place].low >= lowest->low)) continue;
                lowest = &block->entries[*place];
                of = i - from;
            }
            if (!lowest || lowest->low >= at + bytes) return at;
            at = plan_align(lowest->high, alignment);
            next[of]++;
        }
    }
    /* A buffer that is longer than its level, after a boost or at a fixed offset: blocks are tried until all agree. */
    for (bool is_moved = true; is_moved;) {
        is_moved = false;
        for (size_t i = from; i <= to; i++) {
            const fast_block *block = &fast->blocks[i];
            for (size_t j = 0; j < block->count; j++) {
                const fast_entry *entry = &block->entries[j];
                if (entry->first >= last || entry->last <= first || entry->high <= at) continue;
                if (entry->low >= at + bytes) break;
                at = plan_align(entry->high, alignment);
                is_moved = true;
            }
        }
    }
    return at;
}

/* Returns the start of the smallest gap that a buffer fits into, or the end of all that it conflicts with. */
static uint64_t fast_find_tightest(const plan_fast *fast, uint32_t buffer)
{
    const uint64_t bytes = fast->problem->buffers[buffer].bytes;
    const uint64_t alignment = plan_alignment(&fast->problem->buffers[buffer]);
    const uint32_t first = fast->first[buffer], last = fast->last[buffer];
    const fast_block *block = &fast->blocks[0];
    uint64_t at = 0, best = 0, best_gap = UINT64_MAX;
    for (size_t i = 0; i < block->count; i++) {
        const fast_entry *entry = &block->entries[i];
        if (entry->first >= last || entry->last <= first || entry->high <= at) continue;
        if (entry->low >= at + bytes && entry->low - at < best_gap) {
            best_gap = entry->low - at;
            best = at;
        }
        at = plan_align(entry->high, alignment);
    }
    return best_gap == UINT64_MAX ? at : best;
}

/* --- peaks --- */

/* Computes the most live bytes of all windows of time whose length is a power of two. False without memory. */
static bool fast_find_peaks(plan_fast *fast)
{
    if (fast->peaks) return true;
    const size_t times = fast->times, levels = fast_log2(times) + 1;
    fast->peaks = lochi_plan_alloc(times * levels, sizeof *fast->peaks);
    if (!fast->peaks) return false;
    for (size_t i = 0; i < fast->count; i++) { /* differences, which wrap around */
        fast->peaks[fast->first[i]] += fast->problem->buffers[i].bytes;
        fast->peaks[fast->last[i]] -= fast->problem->buffers[i].bytes;
    }
    for (size_t i = 1; i < times; i++)
        fast->peaks[i] += fast->peaks[i - 1];
    for (size_t level = 1; level < levels; level++)
        for (size_t i = 0; i + ((size_t)1 << level) <= times; i++) {
            const uint64_t *below = fast->peaks + (level - 1) * times;
            const uint64_t a = below[i], b = below[i + ((size_t)1 << (level - 1))];
            fast->peaks[level * times + i] = a > b ? a : b;
        }
    return true;
}

/* Returns the most live bytes during the life of a buffer. */
static uint64_t fast_get_peak(const plan_fast *fast, size_t buffer)
{
    const uint32_t first = fast->first[buffer], last = fast->last[buffer], level = fast_log2(last - first);
    const uint64_t *peaks = fast->peaks + (size_t)level * fast->times;
    const uint64_t a = peaks[first], b = peaks[last - (UINT32_C(1) << level)];
    return a > b ? a : b;
}

/* --- the run --- */

static void fast_make_keys(plan_fast *fast, plan_order order, const uint8_t *boost)
{
    for (size_t i = 0; i < fast->count; i++) {
        const loch_plan_buffer *buffer = &fast->problem->buffers[i];
        const uint64_t life = fast->last[i] - fast->first[i];
        fast_key *key = &fast->keys[i];
        *key = (fast_key){.buffer = (uint32_t)i, .one = buffer->bytes, .two = life};
        if (buffer->place) {
            key->level = UINT32_MAX;
            continue;
        }
        key->level = fast_log2(life) > fast->shift_min ? fast_log2(life) : fast->shift_min;
        if (order == PLAN_BY_LIFE && (buffer->bytes >= fast->large_bytes || (fast->is_jumping && boost && boost[i]))) {
            key->level = 31;
            key->one = buffer->bytes;
            key->two = life;
            continue;
        }
        if (order == PLAN_BY_LIFE) {
            key->one = fast_log2(life);
            key->two = buffer->bytes;
            key->one += boost && !fast->is_jumping ? boost[i] : 0;
            if (key->one > key->level) key->level = key->one < 30 ? (uint32_t)key->one : 30;
            continue;
        }
        key->level = 1;
        if (order == PLAN_BY_AREA) {
            const double area = (double)buffer->bytes * (double)life;
            key->one = area < 1e18 ? (uint64_t)area : (uint64_t)1e18;
        }
        if (order == PLAN_BY_PEAK) {
            key->one = fast_get_peak(fast, i);
            key->two = buffer->bytes;
        }
        if (order == PLAN_BY_START) {
            key->one = UINT64_MAX - fast->first[i];
            key->two = buffer->bytes;
        }
    }
    qsort(fast->keys, fast->count, sizeof *fast->keys, fast_compare_keys);
}

static uint64_t fast_place_all(plan_fast *fast, plan_order order, const uint8_t *boost, uint64_t *offsets)
{
    uint64_t height = 0;
    uint32_t level = 0;
    fast->offsets = offsets;
    fast->placed_count = 0;
    fast_make_keys(fast, order, boost);
    for (size_t i = 0; i < fast->count; i++) {
        const fast_key *key = &fast->keys[i];
        const loch_plan_buffer *buffer = &fast->problem->buffers[key->buffer];
        /* Other orders than by life have one level for all; its blocks suit the longest lives. */
        const uint32_t wanted = order == PLAN_BY_LIFE && key->level < 31 ? key->level : fast_log2(fast->times) + 1;
        if (!i || wanted != level) {
            if (!fast_start_level(fast, wanted < 31 ? wanted : 31)) return UINT64_MAX;
            level = wanted;
        }
        offsets[key->buffer] = buffer->place                   ? buffer->offset
                               : fast->choice == PLAN_TIGHTEST ? fast_find_tightest(fast, key->buffer)
                                                               : fast_find(fast, key->buffer);
        if (!fast_add(fast, key->buffer)) return UINT64_MAX;
        fast->placed[fast->placed_count++] = key->buffer;
        if (offsets[key->buffer] + buffer->bytes > height) height = offsets[key->buffer] + buffer->bytes;
    }
    return height;
}

uint64_t lochi_plan_fast_run(plan_fast *fast, plan_order order, plan_choice choice, uint64_t *offsets)
{
    fast->large_bytes = UINT64_MAX;
    fast->choice = choice;
    if (order == PLAN_BY_PEAK && !fast_find_peaks(fast)) return UINT64_MAX;
    const uint64_t height = fast_place_all(fast, order, NULL, offsets);
    fast->choice = PLAN_LOWEST;
    return height;
}

/* --- rounds --- */

/* What a strategy places first: buffers of at least 1 / `part` of the bound, by size. 0: none. */
typedef struct fast_strategy {
    uint32_t part;
    bool is_jumping;
} fast_strategy;

static const fast_strategy fast_strategies[PLAN_FAST_STRATEGIES] = {
    {64, false}, {0, false}, {16, true}, {32, true}, {256, false}, {16, false}, {UINT32_MAX, true}, {64, true},
};

uint64_t lochi_plan_fast_round(plan_fast *fast, size_t round, uint64_t bound, uint64_t *offsets)
{
    static const plan_order tight[PLAN_FAST_TIGHT] = {PLAN_BY_SIZE, PLAN_BY_PEAK, PLAN_BY_START};
    if (fast->count <= FAST_TIGHT_MAX) {
        if (round >= PLAN_FAST_STRATEGIES && round < PLAN_FAST_STRATEGIES + PLAN_FAST_TIGHT)
            return lochi_plan_fast_run(fast, tight[round - PLAN_FAST_STRATEGIES], PLAN_TIGHTEST, offsets);
        if (round >= PLAN_FAST_STRATEGIES) round -= PLAN_FAST_TIGHT;
    }
    const size_t index = round % PLAN_FAST_STRATEGIES;
    const fast_strategy *strategy = &fast_strategies[index];
    if (!fast->boosts[index]) {
        fast->boosts[index] = lochi_plan_alloc(fast->count, 1);
        if (!fast->boosts[index]) return UINT64_MAX;
    }
    fast->large_bytes = strategy->part ? bound / strategy->part : UINT64_MAX;
    if (strategy->part == UINT32_MAX && fast->count > FAST_SIZE_MAX) fast->large_bytes = bound / 1024;
    fast->is_jumping = strategy->is_jumping;
    const uint64_t height = fast_place_all(fast, PLAN_BY_LIFE, fast->boosts[index], offsets);
    if (height == UINT64_MAX) return height;
    for (size_t i = 0; i < fast->count; i++)
        if (offsets[i] + fast->problem->buffers[i].bytes > bound && fast->boosts[index][i] < FAST_BOOST_MAX)
            fast->boosts[index][i]++;
    return height;
}

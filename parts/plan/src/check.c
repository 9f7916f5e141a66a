/* SPDX-License-Identifier: MIT */
/* A sweep over time. A tree holds the bytes that are in use at the present time, by address. What enters must lie
 * between its two neighbours. Before the first overlap the tree holds no two pieces that overlap, so neighbours are
 * enough. */
#include "check.h"
#include "memory.h"
#include "problem.h"
#include "kit/fail.h"
#include <inttypes.h>
#include <stdlib.h>

/* One piece: a stretch of a buffer at its place. A node of a treap; index 0 stands for none. */
typedef struct check_piece {
    uint64_t low, high;
    uint32_t buffer, left, right, priority;
} check_piece;

typedef struct check_event {
    uint64_t time;
    uint32_t piece;
    uint32_t is_start;
} check_event;

static int check_compare(const void *a, const void *b)
{
    const check_event *x = a, *y = b;
    if (x->time != y->time) return x->time < y->time ? -1 : 1;
    if (x->is_start != y->is_start) return x->is_start ? 1 : -1;
    return x->piece < y->piece ? -1 : x->piece > y->piece;
}

/* Splits a tree into the pieces below `low` and the others. The depth of a treap is logarithmic. */
static void tree_split(check_piece *pieces, uint32_t root, uint64_t low, uint32_t *left, uint32_t *right)
{
    while (root) {
        if (pieces[root].low < low) {
            *left = root;
            left = &pieces[root].right;
            root = *left;
        } else {
            *right = root;
            right = &pieces[root].left;
            root = *right;
        }
    }
    *left = 0;
    *right = 0;
}

static uint32_t tree_join(check_piece *pieces, uint32_t left, uint32_t right)
{
    uint32_t root = 0, *at = &root;
    while (left && right) {
        if (pieces[left].priority > pieces[right].priority) {
            *at = left;
            at = &pieces[left].right;
            left = *at;
        } else {
            *at = right;
            at = &pieces[right].left;
            right = *at;
        }
    }
    *at = left ? left : right;
    return root;
}

/* Inserts a piece. Returns the piece that it overlaps, or 0. */
static uint32_t tree_insert(check_piece *pieces, uint32_t *root, uint32_t piece)
{
    uint32_t before = 0, after = 0;
    for (uint32_t at = *root; at;) {
        if (pieces[at].low < pieces[piece].low) {
            before = at;
            at = pieces[at].right;
        } else {
            after = at;
            at = pieces[at].left;
        }
    }
    if (before && pieces[before].high > pieces[piece].low) return before;
    if (after && pieces[after].low < pieces[piece].high) return after;
    uint32_t *at = root;
    while (*at && pieces[*at].priority >= pieces[piece].priority)
        at = pieces[*at].low < pieces[piece].low ? &pieces[*at].right : &pieces[*at].left;
    const uint32_t below = *at;
    *at = piece;
    tree_split(pieces, below, pieces[piece].low, &pieces[piece].left, &pieces[piece].right);
    return 0;
}

static void tree_remove(check_piece *pieces, uint32_t *root, uint32_t piece)
{
    uint32_t *at = root;
    while (*at != piece)
        at = pieces[*at].low < pieces[piece].low ? &pieces[*at].right : &pieces[*at].left;
    *at = tree_join(pieces, pieces[piece].left, pieces[piece].right);
}

static loch_status check_places(const loch_plan_problem *problem, const uint64_t *offsets, uint64_t *height)
{
    *height = 0;
    for (size_t i = 0; i < problem->count; i++) {
        const loch_plan_buffer *buffer = &problem->buffers[i];
        if (offsets[i] >= PLAN_BYTES_MAX || offsets[i] % plan_alignment(buffer))
            return LOCH_FAIL(CORRUPT, "offset %" PRIu64 " of buffer %zu is not a multiple of %" PRIu64, offsets[i], i,
                             plan_alignment(buffer));
        if (buffer->place && offsets[i] != buffer->offset)
            return LOCH_FAIL(CORRUPT, "buffer %zu lies at %" PRIu64 ", and has to lie at %" PRIu64, i, offsets[i],
                             buffer->offset);
        if (offsets[i] + buffer->bytes > *height) *height = offsets[i] + buffer->bytes;
    }
    return LOCH_OK;
}

loch_status lochi_plan_check_offsets(const loch_plan_problem *problem, const uint64_t *offsets, uint64_t *height)
{
    loch_status status = check_places(problem, offsets, height);
    if (status != LOCH_OK) return status;
    size_t count = 0, at = 0;
    plan_stretch stretch;
    for (size_t i = 0; i < problem->count; i++)
        for (uint32_t state = 0; lochi_plan_stretch_next(&problem->buffers[i], &state, &stretch);)
            count++;
    check_piece *pieces = count < UINT32_MAX / 2 ? lochi_plan_alloc(count + 1, sizeof *pieces) : NULL;
    check_event *events = pieces ? lochi_plan_alloc(2 * count, sizeof *events) : NULL;
    if (!events) {
        lochi_plan_free(pieces);
        return LOCH_FAIL(HOST_MEMORY, "there is no memory to check a plan");
    }
    uint32_t random = 1;
    for (size_t i = 0; i < problem->count; i++)
        for (uint32_t state = 0; lochi_plan_stretch_next(&problem->buffers[i], &state, &stretch);) {
            random ^= random << 13;
            random ^= random >> 17;
            random ^= random << 5;
            const uint32_t piece = (uint32_t)at + 1;
            pieces[piece] = (check_piece){.low = offsets[i] + stretch.low,
                                          .high = offsets[i] + stretch.high,
                                          .buffer = (uint32_t)i,
                                          .priority = random};
            events[2 * at] = (check_event){stretch.first, piece, 1};
            events[2 * at + 1] = (check_event){stretch.last, piece, 0};
            at++;
        }
    qsort(events, 2 * count, sizeof *events, check_compare);
    uint32_t root = 0;
    for (size_t i = 0; i < 2 * count && status == LOCH_OK; i++) {
        const uint32_t piece = events[i].piece;
        if (!events[i].is_start) {
            tree_remove(pieces, &root, piece);
            continue;
        }
        const uint32_t other = tree_insert(pieces, &root, piece);
        if (other)
            status = LOCH_FAIL(CORRUPT, "buffers %" PRIu32 " and %" PRIu32 " overlap at time %" PRIu64,
                               pieces[other].buffer, pieces[piece].buffer, events[i].time);
    }
    lochi_plan_free(events);
    lochi_plan_free(pieces);
    return status;
}

/* SPDX-License-Identifier: MIT */
/* A depth-first search. It places one item after the other, in order of offsets, each at the lowest offset that the
 * placed items allow: every set of buffers that fits has a plan of this form, in which no buffer can sink. The rules
 * that cut branches off:
 *
 *  - Order. Offsets do not fall along a path. An item that was tried at its offset and did not lead to a plan is marked
 *    as skipped for the branches beside it: it counts again once another item raises it.
 *  - Holes. If an unplaced item fits below the next offset, the plan has another branch in which it lies there.
 *  - Sections. In each section of time the unplaced items lie on top of each other, above the bound of the lowest one.
 *    An item that is skipped lies above some unplaced item that it conflicts with, which gives a higher bound.
 *  - Lids. If nothing unplaced conflicts with an item, its lowest offset is as good as any.
 *  - Floors. If an item outlives all unplaced items that it conflicts with, and none of them can lie lower, those below
 *    it could as well lie above it: its lowest offset is as good as any.
 *  - Twins. Items that are equal in all respects are placed in one order only.
 *  - Memory. What is left depends on the unplaced items, their lowest offsets and marks only. Such states that have no
 *    plan are stored under two independent 64-bit sums.
 *  - Parts. Where no unplaced item crosses a time, both sides are searched one after the other.
 *
 * The ideas of canonical plans, sections, holes and parts are those of MiniMalloc (Moffitt, ASPLOS 2023). */
#include "node.h"
#include <string.h>

#define POLL_NODES 64
#define SKIPPED_MAX 16 /* skipped items whose bounds are computed; more cost more than they save */

static int64_t align_up(int64_t value, int64_t alignment)
{
    if (alignment <= 1) return value;
    const int64_t rest = value % alignment;
    return rest ? value + alignment - rest : value;
}

/* --- ranking --- */

static bool rank_before(const plan_search *s, uint32_t a, uint32_t b)
{
    const plan_item *x = &s->part->items[a], *y = &s->part->items[b];
    if (s->is_noisy) {
        const double one = x->width * s->noise[a], two = y->width * s->noise[b];
        return one > two || (one == two && a < b);
    }
    static const char orders[PLAN_SEARCH_ORDERS][4] = {"WAT", "TAW", "TWA"};
    for (const char *c = orders[s->order]; *c; c++) {
        if (*c == 'W' && x->width != y->width) return x->width > y->width;
        if (*c == 'A' && x->area != y->area) return x->area > y->area;
        if (*c == 'T' && s->peak[a] != s->peak[b]) return s->peak[a] > s->peak[b];
    }
    return a < b;
}

static void rank_sort(plan_search *s, uint32_t *ids, uint32_t count, uint32_t *spare)
{
    if (count <= 12) {
        for (uint32_t i = 1; i < count; i++) {
            const uint32_t id = ids[i];
            uint32_t at = i;
            for (; at && rank_before(s, id, ids[at - 1]); at--)
                ids[at] = ids[at - 1];
            ids[at] = id;
        }
        return;
    }
    const uint32_t half = count / 2;
    rank_sort(s, ids, half, spare);
    rank_sort(s, ids + half, count - half, spare);
    memcpy(spare, ids, half * sizeof *ids);
    uint32_t a = 0, b = half, to = 0;
    while (a < half && b < count)
        ids[to++] = rank_before(s, ids[b], spare[a]) ? ids[b++] : spare[a++];
    while (a < half)
        ids[to++] = spare[a++];
}

static void list_sort(plan_search *s, uint32_t *ids, uint32_t count)
{
    for (uint32_t i = 1; i < count; i++) {
        const uint32_t id = ids[i];
        uint32_t at = i;
        for (; at && (s->low[id] < s->low[ids[at - 1]] ||
                      (s->low[id] == s->low[ids[at - 1]] && s->rank[id] < s->rank[ids[at - 1]]));
             at--)
            ids[at] = ids[at - 1];
        ids[at] = id;
    }
}

/* --- state --- */

static void trail_push(plan_search *s, uint32_t item)
{
    s->trail[s->trail_count++] = (trail_entry){item, s->is_skipped[item], s->low[item]};
}

static void trail_undo(plan_search *s, size_t mark)
{
    while (s->trail_count > mark) {
        const trail_entry *e = &s->trail[--s->trail_count];
        s->low[e->item] = e->low;
        s->is_skipped[e->item] = e->is_skipped;
    }
}

void lochi_plan_node_count(plan_search *s, const plan_item *item, int sign)
{
    for (uint32_t i = 0; i < item->spans_count; i++) {
        const plan_span *span = &s->part->spans[item->spans + i];
        const int64_t bytes = sign * (span->high - span->low);
        for (uint32_t at = span->first; at < span->last; at++)
            s->total[at] += bytes;
    }
}

/* --- bounds --- */

/* Puts a section that could not hold its items in front of the others that could not. */
static void bounds_note(plan_search *s, uint32_t section)
{
    uint32_t i = 0;
    while (i < PLAN_NARROW_COUNT - 1 && s->narrow[i] != section)
        i++;
    for (; i; i--)
        s->narrow[i] = s->narrow[i - 1];
    s->narrow[0] = section;
}

/* Returns false if a section that was too small lately cannot hold its items once `id` is placed at `offset`. This is a
 * part of what bounds_hold finds, for a part of the price. */
static bool bounds_glance(const plan_search *s, uint32_t id, int64_t offset, uint32_t first, uint32_t last)
{
    const plan_part *part = s->part;
    const plan_item *item = &part->items[id];
    const int64_t top = item->is_plain ? offset + item->bytes : offset;
    for (uint32_t i = 0; i < PLAN_NARROW_COUNT; i++) {
        const uint32_t section = s->narrow[i];
        if (section < first || section >= last) continue;
        int64_t lowest = INT64_MAX, total = s->total[section];
        for (uint32_t j = s->members_of[section]; j < s->members_of[section + 1]; j++) {
            const uint32_t other = s->members[j];
            if (s->is_placed[other]) continue;
            const plan_item *member = &part->items[other];
            if (other == id) {
                if (!item->is_plain) {
                    lowest = INT64_MIN / 2;
                    break;
                }
                total -= item->bytes;
                continue;
            }
            int64_t low = s->low[other] > offset ? s->low[other] : offset;
            if (low < top && member->is_plain && member->first < item->last && item->first < member->last) low = top;
            if (low < lowest) lowest = low;
        }
        if (lowest != INT64_MAX && lowest + total > s->capacity) return false;
    }
    return true;
}

/* Returns the first section from `at` on that is not covered. */
static uint32_t bounds_next(uint32_t *next, uint32_t at)
{
    while (next[at] != at) {
        next[at] = next[next[at]];
        at = next[at];
    }
    return at;
}

/* Returns false if some section cannot hold its unplaced items: they lie on top of each other, and the lowest of them
 * starts at its bound at the earliest. `ids` is in order of bounds, so the first item of a section counts. */
static bool bounds_hold(plan_search *s, const uint32_t *ids, uint32_t count, uint32_t first, uint32_t last)
{
    uint32_t *next = s->next, left = last - first;
    for (uint32_t at = first; at <= last; at++)
        next[at] = at;
    for (uint32_t i = 0; i < count && left; i++) {
        const plan_item *item = &s->part->items[ids[i]];
        const int64_t room = s->capacity - s->bound[ids[i]];
        for (uint32_t j = 0; j < item->spans_count; j++) {
            const plan_span *span = &s->part->spans[item->spans + j];
            for (uint32_t at = bounds_next(next, span->first); at < span->last; at = bounds_next(next, at + 1)) {
                if (s->total[at] > room) {
                    bounds_note(s, at);
                    return false;
                }
                next[at] = at + 1;
                left--;
            }
        }
    }
    return true;
}

/* --- memo --- */

static void state_hash(const plan_search *s, const uint32_t *ids, uint32_t count, uint64_t *one, uint64_t *two)
{
    uint64_t a = 0, b = 0;
    for (uint32_t i = 0; i < count; i++) {
        const uint32_t id = ids[i];
        const uint64_t key =
            plan_mix(s->salt[id] ^ ((uint64_t)s->low[id] * 2 + s->is_skipped[id]) * 0x9e3779b97f4a7c15u);
        a += key;
        b += key * (key >> 32 | 1);
    }
    *one = a;
    *two = b;
}

static plan_answer node_run(plan_search *s, const uint32_t *ids, uint32_t count, uint32_t first, uint32_t last);

/* Ranks the items of a part of its own and searches it. */
plan_answer lochi_plan_node_search(plan_search *s, const uint32_t *ids, uint32_t count, uint32_t first, uint32_t last)
{
    if (!count) return PLAN_FOUND;
    const size_t mark = s->arena_count;
    uint32_t *old = s->arena + s->arena_count, *sorted = old + count, *spare = sorted + count;
    s->arena_count += 3 * (size_t)count;
    for (uint32_t i = 0; i < count; i++) {
        const plan_item *item = &s->part->items[ids[i]];
        int64_t peak = 0;
        for (uint32_t j = 0; j < item->spans_count; j++) {
            const plan_span *span = &s->part->spans[item->spans + j];
            for (uint32_t at = span->first; at < span->last; at++)
                peak = s->total[at] > peak ? s->total[at] : peak;
        }
        s->peak[ids[i]] = peak;
        old[i] = s->rank[ids[i]];
        sorted[i] = ids[i];
    }
    rank_sort(s, sorted, count, spare);
    for (uint32_t i = 0; i < count; i++)
        s->rank[sorted[i]] = i;
    memcpy(sorted, ids, count * sizeof *ids);
    list_sort(s, sorted, count);
    const plan_answer answer = node_run(s, sorted, count, first, last);
    for (uint32_t i = 0; i < count; i++)
        s->rank[ids[i]] = old[i];
    s->arena_count = mark;
    return answer;
}

/* Goes on after a placement. Where no unplaced item crosses a boundary between sections, the two sides are searched
 * one after the other. */
static plan_answer split_run(plan_search *s, const plan_item *item, const uint32_t *ids, uint32_t count, uint32_t first,
                             uint32_t last)
{
    bool is_split = false;
    for (uint32_t at = item->first; at + 1 < item->last; at++)
        is_split |= --s->cuts[at] == 0;
    plan_answer answer = PLAN_FOUND;
    if (!is_split) {
        answer = node_run(s, ids, count, first, last);
    } else {
        const size_t mark = s->arena_count;
        const uint32_t depth = s->depth;
        uint32_t from = first;
        for (uint32_t at = item->first; answer == PLAN_FOUND && at < item->last; at++) {
            const bool is_end = at + 1 == item->last;
            if (!is_end && s->cuts[at]) continue;
            const uint32_t to = is_end ? last : at + 1;
            uint32_t *part = s->arena + s->arena_count, part_count = 0;
            for (uint32_t i = 0; i < count; i++) {
                const uint32_t start = s->part->items[ids[i]].first;
                if (start >= from && start < to) part[part_count++] = ids[i];
            }
            s->arena_count += part_count;
            answer = lochi_plan_node_search(s, part, part_count, from, to);
            s->arena_count = mark;
            from = to;
            if (answer == PLAN_FOUND) s->depth += part_count; /* counts while the other sides are searched */
        }
        s->depth = depth;
    }
    for (uint32_t at = item->first; at + 1 < item->last; at++)
        s->cuts[at]++;
    return answer;
}

/* Raises what conflicts with a placed item. Returns false if something cannot fit any more. */
static bool node_raise(plan_search *s, uint32_t id, int64_t offset, bool *has_above)
{
    const plan_item *item = &s->part->items[id];
    const plan_rival *rivals = &s->part->rivals[item->rivals];
    *has_above = false;
    for (uint32_t i = 0; i < item->rivals_count; i++) {
        const uint32_t other = rivals[i].item;
        if (s->is_placed[other]) continue;
        *has_above = true;
        int64_t low = offset + rivals[i].rise;
        if (low <= s->low[other]) continue;
        const plan_item *above = &s->part->items[other];
        low = align_up(low, above->alignment);
        if (low + above->bytes > s->capacity || (above->fixed >= 0 && low > above->fixed)) {
            for (; i < item->rivals_count && !*has_above; i++)
                *has_above = !s->is_placed[rivals[i].item];
            return false;
        }
        trail_push(s, other);
        s->low[other] = low;
        s->is_skipped[other] = 0;
    }
    return true;
}

/* Makes the list of a child: `ids` without `id`, in order, and the bounds of its items. Returns false if the child has
 * no solution. */
static bool node_list(plan_search *s, const uint32_t *ids, uint32_t count, uint32_t id, int64_t level, size_t mark,
                      uint32_t *out, uint32_t first, uint32_t last)
{
    /* Splits into raised items, which are few, and the rest, which is in order. */
    uint32_t rest = 0, raised_count = 0;
    uint32_t *raised = out + count, *skipped = out + 2 * (size_t)count, skipped_count = 0;
    for (size_t i = mark; i < s->trail_count; i++)
        s->bound[s->trail[i].item] = -1;
    for (uint32_t i = 0; i < count; i++) {
        const uint32_t other = ids[i];
        if (other == id) continue;
        if (s->low[other] + s->part->items[other].bytes <= level) goto reset;
        if (s->bound[other] == -1)
            raised[raised_count++] = other;
        else
            out[rest++] = other;
    }
    list_sort(s, raised, raised_count);
    for (uint32_t total = rest + raised_count; raised_count;) {
        const uint32_t b = raised[raised_count - 1];
        if (rest && (s->low[out[rest - 1]] > s->low[b] ||
                     (s->low[out[rest - 1]] == s->low[b] && s->rank[out[rest - 1]] > s->rank[b])))
            out[--total] = out[--rest];
        else
            out[--total] = b, raised_count--;
    }
    count--;
    uint32_t *order = out + count, order_count = 0; /* by bound */
    for (uint32_t i = 0; i < count; i++) {
        const uint32_t other = out[i];
        const plan_item *item = &s->part->items[other];
        s->bound[other] = s->low[other] > level ? s->low[other] : level;
        if (!s->is_skipped[other]) continue;
        if (item->fixed >= 0) return false;
        if (skipped_count == SKIPPED_MAX) continue;
        int64_t bound = INT64_MAX;
        const plan_rival *rivals = &s->part->rivals[item->rivals];
        for (uint32_t j = 0; j < item->rivals_count; j++) {
            const uint32_t v = rivals[j].item;
            if (s->is_placed[v]) continue;
            const int64_t from = (s->low[v] > level ? s->low[v] : level) + rivals[j].fall;
            if (from < bound) bound = from;
        }
        if (bound == INT64_MAX || bound + item->bytes > s->capacity) return false;
        if (bound > s->bound[other]) s->bound[other] = bound;
        skipped[skipped_count++] = other;
    }
    if (!skipped_count) return bounds_hold(s, out, count, first, last);
    for (uint32_t i = 0; i < skipped_count; i++)
        s->is_lifted[skipped[i]] = 1;
    /* Sorts the skipped items by bound and merges. */
    for (uint32_t i = 1; i < skipped_count; i++) {
        const uint32_t x = skipped[i];
        uint32_t at = i;
        for (; at && s->bound[x] < s->bound[skipped[at - 1]]; at--)
            skipped[at] = skipped[at - 1];
        skipped[at] = x;
    }
    uint32_t at = 0;
    for (uint32_t i = 0; i < count; i++) {
        if (s->is_lifted[out[i]]) {
            s->is_lifted[out[i]] = 0;
            continue;
        }
        while (at < skipped_count && s->bound[skipped[at]] <= s->bound[out[i]])
            order[order_count++] = skipped[at++];
        order[order_count++] = out[i];
    }
    while (at < skipped_count)
        order[order_count++] = skipped[at++];
    return bounds_hold(s, order, count, first, last);
reset:
    for (size_t i = mark; i < s->trail_count; i++)
        s->bound[s->trail[i].item] = 0;
    return false;
}

/* Tells whether an unplaced item conflicts with an item. */
static bool node_has_above(const plan_search *s, const plan_item *item)
{
    for (uint32_t i = 0; i < item->rivals_count; i++)
        if (!s->is_placed[s->part->rivals[item->rivals + i].item]) return true;
    return false;
}

/* Tells whether an item at `offset` is a floor: every unplaced item that conflicts with it lives only while it does and
 * lies at its offset at least. Then it can change places with the items below it. */
static bool node_is_floor(const plan_search *s, const plan_item *item, int64_t offset)
{
    if (!item->is_plain || item->fixed >= 0) return false;
    for (uint32_t i = 0; i < item->rivals_count; i++) {
        const uint32_t other = s->part->rivals[item->rivals + i].item;
        if (s->is_placed[other]) continue;
        const plan_item *rival = &s->part->items[other];
        if (s->low[other] < offset || rival->first < item->first || rival->last > item->last || !rival->is_plain ||
            rival->fixed >= 0 || item->bytes % rival->alignment)
            return false;
    }
    return true;
}

static plan_answer node_run(plan_search *s, const uint32_t *ids, uint32_t count, uint32_t first, uint32_t last)
{
    if (!count) return PLAN_FOUND;
    if (s->nodes >= s->nodes_end) return PLAN_STOPPED;
    if (s->arena_count + 16 * (size_t)count > s->arena_capacity ||
        s->trail_count + s->part->count + count > s->trail_capacity)
        s->is_stopped = true;
    if (s->is_stopped) return PLAN_STOPPED;
    uint64_t one, two;
    state_hash(s, ids, count, &one, &two);
    memo_entry *memo = &s->memo[one >> (64 - PLAN_MEMO_BITS)];
    if (memo->one == one && memo->two == two) return PLAN_IMPOSSIBLE;
    int64_t ceiling = INT64_MAX, most = 0;
    for (uint32_t i = 0; i < count; i++) {
        const int64_t top = s->low[ids[i]] + s->part->items[ids[i]].bytes;
        ceiling = top < ceiling ? top : ceiling;
    }
    for (uint32_t at = first; at < last; at++)
        most = s->total[at] > most ? s->total[at] : most;
    const size_t mark = s->trail_count, arena_mark = s->arena_count;
    uint32_t *list = s->arena + s->arena_count;
    s->arena_count += 4 * (size_t)count;
    plan_answer answer = PLAN_IMPOSSIBLE;
    for (uint32_t i = 0; i < count; i++) {
        const uint32_t id = ids[i];
        const plan_item *item = &s->part->items[id];
        const int64_t offset = s->low[id];
        if (offset >= ceiling || offset + most > s->capacity) break;
        if (s->is_skipped[id] || (item->twin != UINT32_MAX && !s->is_placed[item->twin])) continue;
        const size_t child_mark = s->trail_count;
        if (!bounds_glance(s, id, offset, first, last)) {
            if (!node_has_above(s, item) || node_is_floor(s, item, offset)) break;
            trail_push(s, id);
            s->is_skipped[id] = 1;
            continue;
        }
        if (++s->nodes % POLL_NODES == 0 && s->poll && s->poll(s->user)) s->is_stopped = true;
        bool has_above;
        s->is_placed[id] = 1;
        if (++s->depth > s->depth_most) s->depth_most = s->depth;
        lochi_plan_node_count(s, item, -1);
        bool is_open = node_raise(s, id, offset, &has_above);
        is_open = is_open && node_list(s, ids, count, id, offset, child_mark, list, first, last);
        if (is_open) answer = split_run(s, item, list, count - 1, first, last);
        if (answer == PLAN_FOUND) s->best[id] = offset;
        lochi_plan_node_count(s, item, 1);
        trail_undo(s, child_mark);
        s->is_placed[id] = 0;
        s->depth--;
        if (answer != PLAN_IMPOSSIBLE || !has_above || node_is_floor(s, item, offset)) break;
        trail_push(s, id);
        s->is_skipped[id] = 1;
    }
    trail_undo(s, mark);
    s->arena_count = arena_mark;
    if (answer == PLAN_IMPOSSIBLE) *memo = (memo_entry){one, two};
    return answer;
}

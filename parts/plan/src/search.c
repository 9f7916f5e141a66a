/* SPDX-License-Identifier: MIT */
/* Three orders of trying items take turns with growing limits of nodes. A wrong choice near the start of a path costs
 * more nodes than there are, so most nodes go to short searches, each in an order of its own: by width, with widths
 * changed a little at random. A short search that places more items than the best one before it becomes the start of
 * the next ones. The numbers depend on nothing but the count of searches, so a plan is the same every time. */
#include "memory.h"
#include "node.h"
#include <string.h>

#define NOISY_SHARE 9      /* nodes of short searches for each node of one order */
#define NOISE_MOST 0.1     /* part of a width that it changes by at most */
#define NOISE_CHANGES 3    /* widths that differ from the best short search */
#define NOISE_IDLE_MAX 300 /* short searches without a deeper one, before all widths are new */

void lochi_plan_search_destroy(plan_search *s)
{
    if (!s) return;
    lochi_plan_free(s->low);
    lochi_plan_free(s->bound);
    lochi_plan_free(s->rank);
    lochi_plan_free(s->noise);
    lochi_plan_free(s->noise_best);
    lochi_plan_free(s->is_placed);
    lochi_plan_free(s->is_skipped);
    lochi_plan_free(s->is_lifted);
    lochi_plan_free(s->total);
    lochi_plan_free(s->next);
    lochi_plan_free(s->members_of);
    lochi_plan_free(s->members);
    lochi_plan_free(s->cuts);
    lochi_plan_free(s->trail);
    lochi_plan_free(s->arena);
    lochi_plan_free(s->salt);
    lochi_plan_free(s->memo);
    lochi_plan_free(s->peak);
    lochi_plan_free(s->best);
    lochi_plan_free(s);
}

/* Lists the items of each section. */
static bool search_fill_members(plan_search *s)
{
    const plan_part *part = s->part;
    size_t count = 0;
    for (uint32_t i = 0; i < part->count; i++)
        for (uint32_t j = 0; j < part->items[i].spans_count; j++)
            count += part->spans[part->items[i].spans + j].last - part->spans[part->items[i].spans + j].first;
    s->members_of = lochi_plan_alloc((size_t)part->sections + 2, sizeof *s->members_of);
    s->members = count < UINT32_MAX ? lochi_plan_alloc(count, sizeof *s->members) : NULL;
    if (!s->members_of || !s->members) return false;
    for (int pass = 0; pass < 2; pass++) { /* counts, then fills in; the start of section k moves to its end */
        for (uint32_t i = 0; i < part->count; i++)
            for (uint32_t j = 0; j < part->items[i].spans_count; j++) {
                const plan_span *span = &part->spans[part->items[i].spans + j];
                for (uint32_t at = span->first; at < span->last; at++) {
                    if (pass)
                        s->members[s->members_of[at + 1]++] = i;
                    else
                        s->members_of[at + 2]++;
                }
            }
        for (uint32_t at = 0; !pass && at < part->sections; at++)
            s->members_of[at + 2] += s->members_of[at + 1];
    }
    return true;
}

plan_search *lochi_plan_search_create(const plan_part *part, plan_poll *poll, void *user)
{
    const size_t n = part->count, sections = part->sections;
    plan_search *s = lochi_plan_alloc(1, sizeof *s);
    if (!s) return NULL;
    s->part = part;
    s->poll = poll;
    s->user = user;
    s->low = lochi_plan_alloc(n, sizeof *s->low);
    s->bound = lochi_plan_alloc(n, sizeof *s->bound);
    s->peak = lochi_plan_alloc(n, sizeof *s->peak);
    s->best = lochi_plan_alloc(n, sizeof *s->best);
    s->salt = lochi_plan_alloc(n, sizeof *s->salt);
    s->rank = lochi_plan_alloc(n, sizeof *s->rank);
    s->noise = lochi_plan_alloc(n, sizeof *s->noise);
    s->noise_best = lochi_plan_alloc(n, sizeof *s->noise_best);
    s->is_placed = lochi_plan_alloc(n, 1);
    s->is_skipped = lochi_plan_alloc(n, 1);
    s->is_lifted = lochi_plan_alloc(n, 1);
    s->total = lochi_plan_alloc(sections, sizeof *s->total);
    s->next = lochi_plan_alloc(sections + 1, sizeof *s->next);
    s->cuts = lochi_plan_alloc(sections, sizeof *s->cuts);
    /* On one path every pair of rivals raises once, and every node marks each of its items once. Only pages that are
     * used take memory. */
    s->trail_capacity = part->rivals_count + n * n + 4 * n;
    s->trail = lochi_plan_alloc(s->trail_capacity, sizeof *s->trail);
    s->arena_capacity = 4 * n * n + 64 * n;
    s->arena = lochi_plan_alloc(s->arena_capacity, sizeof *s->arena);
    s->memo = lochi_plan_alloc((size_t)1 << PLAN_MEMO_BITS, sizeof *s->memo);
    if (!s->low || !s->bound || !s->peak || !s->best || !s->salt || !s->rank || !s->noise || !s->noise_best ||
        !s->is_placed || !s->is_skipped || !s->is_lifted || !s->total || !s->next || !s->cuts || !s->trail ||
        !s->arena || !s->memo) {
        lochi_plan_search_destroy(s);
        return NULL;
    }
    if (search_fill_members(s)) return s;
    lochi_plan_search_destroy(s);
    return NULL;
}

/* Searches all items in the present order, with at most `limit` nodes of the ones that are left. */
static plan_answer search_once(plan_search *s, const uint32_t *ids, uint64_t limit, uint64_t *left)
{
    s->nodes = s->depth = s->depth_most = 0;
    s->nodes_end = limit < *left ? limit : *left;
    const plan_answer answer = lochi_plan_node_search(s, ids, s->part->count, 0, s->part->sections);
    *left -= s->nodes < *left ? s->nodes : *left;
    s->nodes_total += s->nodes;
    return answer;
}

/* Chooses widths for a short search: those of the deepest one with a few changes, or other ones altogether after many
 * searches that did not come deeper. What was stored in other orders stays valid. */
static void search_add_noise(plan_search *s)
{
    const uint32_t n = s->part->count;
    uint64_t random = plan_mix(++s->noise_count);
    const bool is_new = s->noise_idle >= NOISE_IDLE_MAX || s->noise_count == 1;
    memcpy(s->noise, s->noise_best, n * sizeof *s->noise);
    for (uint32_t i = 0; i < (is_new ? n : NOISE_CHANGES); i++) {
        random = plan_mix(random + i + 1);
        s->noise[is_new ? i : random % n] = 1 + NOISE_MOST * ((double)(random >> 32) / 2147483648.0 - 1);
    }
    if (is_new) s->noise_depth = s->noise_idle = 0;
}

/* Keeps the widths of a short search that came as deep as the best one. */
static void search_keep_noise(plan_search *s)
{
    s->noise_idle = s->depth_most > s->noise_depth ? 0 : s->noise_idle + 1;
    if (s->depth_most < s->noise_depth) return;
    s->noise_depth = s->depth_most;
    memcpy(s->noise_best, s->noise, s->part->count * sizeof *s->noise);
}

plan_answer lochi_plan_search_run(plan_search *s, int64_t capacity, uint64_t nodes_max, int64_t *offsets)
{
    const uint32_t n = s->part->count;
    uint32_t *ids = s->arena;
    s->capacity = capacity;
    s->is_stopped = false;
    memset(s->total, 0, s->part->sections * sizeof *s->total);
    memset(s->cuts, 0, s->part->sections * sizeof *s->cuts);
    for (uint32_t i = 0; i < n; i++) {
        const plan_item *item = &s->part->items[i];
        s->low[i] = item->fixed >= 0 ? item->fixed : 0;
        ids[i] = i;
        if (s->low[i] + item->bytes > capacity) return PLAN_IMPOSSIBLE;
        lochi_plan_node_count(s, item, 1);
        for (uint32_t at = item->first; at + 1 < item->last; at++)
            s->cuts[at]++;
    }
    for (uint32_t at = 0; at < s->part->sections; at++)
        if (s->total[at] > capacity) return PLAN_IMPOSSIBLE;
    s->arena_count = n;
    s->trail_count = 0;
    s->runs++; /* Other salts make what is stored of an earlier run worthless. */
    for (uint32_t i = 0; i < n; i++)
        s->salt[i] = plan_mix(((uint64_t)s->runs << 32) + i + 1);
    s->noise_depth = s->noise_idle = 0; /* another capacity has other depths; the widths are kept */
    uint64_t left = nodes_max;
    for (uint64_t limit = 2 * (uint64_t)n;; limit *= 2) {
        plan_answer answer = PLAN_STOPPED;
        for (s->order = 0; s->order < PLAN_SEARCH_ORDERS && answer == PLAN_STOPPED && left && !s->is_stopped;
             s->order++)
            answer = search_once(s, ids, limit, &left);
        s->is_noisy = true;
        for (uint64_t spent = 0; spent < NOISY_SHARE * limit && answer == PLAN_STOPPED && left && !s->is_stopped;) {
            search_add_noise(s);
            answer = search_once(s, ids, n + n / 2, &left);
            search_keep_noise(s);
            spent += s->nodes;
        }
        s->is_noisy = false;
        if (answer == PLAN_FOUND) memcpy(offsets, s->best, n * sizeof *offsets);
        if (answer != PLAN_STOPPED || !left || s->is_stopped) return answer;
    }
}

uint64_t lochi_plan_search_get_nodes(const plan_search *s)
{
    return s->nodes_total;
}

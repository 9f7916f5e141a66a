/* SPDX-License-Identifier: MIT */
/* Finding the span at an address of a simulated device, and the devices that may use it. */
#include "device/sim/span.h"

lochi_sim_span *lochi_sim_span_find(const lochi_sim *sim, uintptr_t address)
{
    lochi_lock_assert_held(&lochi_sim_all.lock);
    lochi_tree_node *node = lochi_tree_at_or_below(&sim->spans, address);
    if (!node) return NULL;
    lochi_sim_span *span = LOCHI_CONTAINER(node, lochi_sim_span, node);
    return address - node->key < span->bytes ? span : NULL;
}

/* Returns whether work of `sim` may use a span of `other`. */
static bool span_lets_in(const lochi_sim *other, const lochi_sim_span *span, const lochi_sim *sim)
{
    lochi_lock_assert_held(&lochi_sim_all.lock);
    if (span->kind == LOCH_MEMORY_MANAGED) return true;
    if (span->reservation) {
        for (size_t i = 0; i < span->peers_count; i++)
            if (span->peers[i] == sim->serial) return true;
        return false;
    }
    for (size_t i = 0; i < sim->peers_count; i++)
        if (sim->peers[i] == other->serial) return true;
    return false;
}

lochi_sim_span *lochi_sim_span_reach(const lochi_sim *sim, uintptr_t address, bool any_device)
{
    lochi_lock_assert_held(&lochi_sim_all.lock);
    lochi_sim_span *span = lochi_sim_span_find(sim, address);
    if (span) return span;
    for (lochi_sim *other = lochi_sim_all.devices; other; other = other->next) {
        if (other == sim) continue;
        span = lochi_sim_span_find(other, address);
        if (span && (any_device || span_lets_in(other, span, sim))) return span;
    }
    return NULL;
}

bool lochi_sim_is_pinned(const lochi_sim *sim, const void *address, size_t bytes)
{
    lochi_lock_assert_held(&lochi_sim_all.lock);
    const lochi_sim_span *span = lochi_sim_span_find(sim, (uintptr_t)address);
    if (!span || span->kind == LOCH_MEMORY_DEVICE) return false;
    return bytes <= span->bytes - ((uintptr_t)address - span->node.key);
}

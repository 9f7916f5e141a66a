/* SPDX-License-Identifier: MIT */
/* The end of simulated memory: objects without references, and spans that are removed. Giving something back
 * allocates no memory. */
#include "device/sim/object.h"
#include "kit/cancel.h"
#include "base/heap.h"
#include "base/thread.h"
#include "device/sim/backing.h"
#include "device/sim/check.h"
#include "device/sim/op.h"
#include <sys/mman.h>
#include <unistd.h>

void lochi_sim_object_release(lochi_sim_object *object)
{
    lochi_lock_assert_held(&lochi_sim_all.lock);
    if (!object || --object->references) return;
    if (object->owner) {
        object->owner->used -= object->charged;
        if (object->prev)
            object->prev->next = object->next;
        else
            object->owner->objects = object->next;
        if (object->next) object->next->prev = object->prev;
    }
    lochi_sim_shadow_drop(&object->shadow);
    lochi_sim_object_unplace(object);
    if (object->token >= 0) close(object->token);
    lochi_free(object);
}

/* --- spans that end --- */

static bool object_uses(const lochi_sim_op *op, const lochi_sim_span *span)
{
    for (size_t i = 0; i < op->uses_count; i++)
        if (op->uses[i].span == span) return true;
    return false;
}

/* Returns a queued operation that uses a span: one whose function is running if there is one, else any; NULL if no
 * operation uses the span. */
static lochi_sim_op *object_user(const lochi_sim_span *span, lochi_sim **device)
{
    lochi_lock_assert_held(&lochi_sim_all.lock);
    lochi_sim_op *found = NULL;
    for (lochi_sim *sim = lochi_sim_all.devices; sim; sim = sim->next)
        for (lochi_sim_stream *stream = &sim->default_stream; stream; stream = stream->next)
            for (lochi_sim_op *op = stream->first; op; op = op->next)
                if (object_uses(op, span) && (!found || op->is_running)) {
                    found = op;
                    *device = sim;
                }
    return found;
}

/* Detaches a span from the work queued on it. Waits for a function that is running, because it may touch the span. */
static void object_abandon(lochi_sim *sim, lochi_sim_span *span, const char *how)
{
    lochi_lock_assert_held(&lochi_sim_all.lock);
    LOCHI_NOT_CANCELLED;
    lochi_sim *device;
    lochi_sim_op *op = object_user(span, &device);
    if (op) {
        lochi_sim_check_gone(sim, span, op, how);
        lochi_sim_check_forgive(sim); /* the memory goes in any case */
    }
    while ((op = object_user(span, &device))) {
        if (op->is_running && device->settler != lochi_thread_number()) {
            lochi_lock_wait(&lochi_sim_all.lock, &lochi_sim_all.settled);
            continue;
        }
        op->is_dead = true;
        for (size_t i = 0; i < op->uses_count; i++)
            if (op->uses[i].span == span) op->uses[i].span = NULL;
    }
}

loch_status lochi_sim_span_refuse(lochi_sim *sim, const lochi_sim_span *span, const char *how)
{
    lochi_lock_assert_held(&lochi_sim_all.lock);
    lochi_sim *device;
    if (!sim->is_strict || !span->pending) return LOCH_OK;
    const lochi_sim_op *op = object_user(span, &device);
    if (!op) return LOCH_OK;
    lochi_sim_check_gone(sim, span, op, how);
    return lochi_sim_check_refuse(sim);
}

void lochi_sim_span_remove(lochi_sim *sim, lochi_sim_span *span, const char *how)
{
    lochi_lock_assert_held(&lochi_sim_all.lock);
    if (span->pending) object_abandon(sim, span, how);
    lochi_tree_remove(&sim->spans, &span->node);
    if (span->host_bytes) munmap((void *)span->node.key, span->host_bytes);
    lochi_sim_space_give(&sim->space, span->extent);
    if (span->reservation) span->reservation->mappings--;
    span->object->mappings--;
    lochi_sim_object_release(span->object);
    lochi_sim_op_destroy(span->free_op);
    lochi_free(span);
}

/* --- forks --- */

/* Makes the addresses of a span inaccessible but keeps them reserved: touching them stops the program, as on a
 * device. */
static void object_hide(const lochi_sim_span *span)
{
    if (!span->is_mapped || !span->object->file) return;
    (void)mmap((void *)span->node.key, span->object->extent->bytes, PROT_NONE,
               MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1, 0);
}

void lochi_sim_objects_forked(lochi_sim *sim)
{
    for (lochi_tree_node *node = lochi_tree_at_or_above(&sim->spans, 0); node;
         node = lochi_tree_at_or_above(&sim->spans, node->key + 1))
        object_hide(LOCHI_CONTAINER(node, lochi_sim_span, node));
}

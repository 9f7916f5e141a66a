/* SPDX-License-Identifier: MIT */
/* Order between operations: vector clocks over the streams of all simulated devices.
 *
 * Every stream has a slot, and in it a counter of epochs that rises with each of its operations. A vector holds for
 * each slot the last epoch that happened before. Streams, events and the host each have a vector; waiting joins two
 * vectors. All vectors have the length of the table of slots. A new stream may make all of them grow, all together
 * or none, so that joining never needs memory. */
#include "device/sim/order.h"
#include "base/heap.h"
#include "device/sim/fail.h"
#include <string.h>

#define ORDER_SLOTS_FIRST 8
#define ORDER_SLOTS_SOFT                                                                                               \
    256 /* above this number slots are reused early: the checker may miss a mistake, but reports no false one */

typedef struct order_slot {
    uint64_t epoch; /* the last epoch given */
    bool is_taken;
} order_slot;

static order_slot *order_slots;
static size_t order_count, order_capacity;
static lochi_sim_vector *order_vectors;

loch_status lochi_sim_vector_init(lochi_sim_vector *vector)
{
    lochi_lock_assert_held(&lochi_sim_all.lock);
    const size_t capacity = order_capacity ? order_capacity : ORDER_SLOTS_FIRST;
    *vector = (lochi_sim_vector){.epochs = lochi_zalloc(capacity * sizeof(uint64_t))};
    if (!vector->epochs) return SIM_FAIL(HOST_MEMORY, "no host memory for a vector clock");
    order_capacity = capacity;
    vector->next = order_vectors;
    if (order_vectors) order_vectors->prev = vector;
    order_vectors = vector;
    return LOCH_OK;
}

void lochi_sim_vector_fini(lochi_sim_vector *vector)
{
    lochi_lock_assert_held(&lochi_sim_all.lock);
    if (!vector->epochs) return;
    if (vector->prev)
        vector->prev->next = vector->next;
    else
        order_vectors = vector->next;
    if (vector->next) vector->next->prev = vector->prev;
    lochi_free(vector->epochs);
    vector->epochs = NULL;
    if (order_vectors) return;
    /* The last vector ended with the last device. */
    lochi_free(order_slots);
    order_slots = NULL;
    order_count = order_capacity = 0;
}

void lochi_sim_vector_join(lochi_sim_vector *vector, const lochi_sim_vector *other)
{
    lochi_lock_assert_held(&lochi_sim_all.lock);
    for (size_t i = 0; i < order_count; i++)
        if (vector->epochs[i] < other->epochs[i]) vector->epochs[i] = other->epochs[i];
}

void lochi_sim_vector_copy(lochi_sim_vector *vector, const lochi_sim_vector *other)
{
    lochi_lock_assert_held(&lochi_sim_all.lock);
    memcpy(vector->epochs, other->epochs, order_count * sizeof(uint64_t));
}

static loch_status order_grow(size_t capacity)
{
    lochi_lock_assert_held(&lochi_sim_all.lock);
    order_slot *slots = lochi_realloc(order_slots, capacity * sizeof *slots);
    if (!slots) return SIM_FAIL(HOST_MEMORY, "no host memory for the vector clocks of a new stream");
    order_slots = slots;
    lochi_sim_vector *at;
    for (at = order_vectors; at; at = at->next) {
        at->grown = lochi_zalloc(capacity * sizeof(uint64_t));
        if (!at->grown) break;
    }
    if (at) {
        for (lochi_sim_vector *undo = order_vectors; undo != at; undo = undo->next) {
            lochi_free(undo->grown);
            undo->grown = NULL;
        }
        return SIM_FAIL(HOST_MEMORY, "no host memory for the vector clocks of a new stream");
    }
    for (at = order_vectors; at; at = at->next) {
        memcpy(at->grown, at->epochs, order_count * sizeof(uint64_t));
        lochi_free(at->epochs);
        at->epochs = at->grown;
        at->grown = NULL;
    }
    order_capacity = capacity;
    return LOCH_OK;
}

loch_status lochi_sim_slot_take(size_t *out)
{
    lochi_lock_assert_held(&lochi_sim_all.lock);
    size_t dead = order_count;
    for (size_t i = 0; i < order_count; i++) {
        if (order_slots[i].is_taken) continue;
        dead = i;
        if (lochi_sim_all.host.epochs[i] >= order_slots[i].epoch) break;
        if (order_count < ORDER_SLOTS_SOFT) dead = order_count;
    }
    if (dead == order_count) {
        if (!order_slots || order_count == order_capacity)
            LOCH_TRY_RETURN(order_grow(order_slots ? order_capacity * 2 : order_capacity));
        order_slots[order_count++] = (order_slot){.epoch = 0};
    }
    order_slots[dead].is_taken = true;
    *out = dead;
    return LOCH_OK;
}

void lochi_sim_slot_give(size_t slot)
{
    lochi_lock_assert_held(&lochi_sim_all.lock);
    order_slots[slot].is_taken = false;
}

uint64_t lochi_sim_slot_tick(lochi_sim_stream *stream)
{
    lochi_lock_assert_held(&lochi_sim_all.lock);
    const uint64_t epoch = ++order_slots[stream->slot].epoch;
    stream->seen.epochs[stream->slot] = epoch;
    return epoch;
}

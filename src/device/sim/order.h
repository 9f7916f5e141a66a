/* SPDX-License-Identifier: MIT */
/* Order between operations on the streams of all simulated devices (order.c). Every function needs the lock of the
 * simulator held. */
#ifndef LOCHI_SIM_ORDER_H
#define LOCHI_SIM_ORDER_H

#include "device/sim/state.h"

loch_status lochi_sim_vector_init(lochi_sim_vector *vector);
void lochi_sim_vector_fini(lochi_sim_vector *vector);
void lochi_sim_vector_join(lochi_sim_vector *vector, const lochi_sim_vector *other);
void lochi_sim_vector_copy(lochi_sim_vector *vector, const lochi_sim_vector *other);

/* Take a slot for a new stream, and give it back. A slot is reused when the host has waited for everything that was
 * done under it. */
loch_status lochi_sim_slot_take(size_t *out);
void lochi_sim_slot_give(size_t slot);

/* Begins the next epoch of a stream's slot, and enters it into the stream's vector. */
uint64_t lochi_sim_slot_tick(lochi_sim_stream *stream);

#endif

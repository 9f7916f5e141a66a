/* SPDX-License-Identifier: MIT */
/* Slots of the driver for events (event.c). */
#ifndef LOCHI_SIM_EVENT_H
#define LOCHI_SIM_EVENT_H

#include "device/sim/state.h"

loch_status lochi_sim_event_create(void *self, loch_event_kind kind, void **out);
loch_status lochi_sim_event_destroy(void *self, void *event);
loch_status lochi_sim_event_record(void *self, void *event, void *stream);
loch_status lochi_sim_event_query(void *self, void *event);
loch_status lochi_sim_event_sync(void *self, void *event);
loch_status lochi_sim_event_elapsed(void *self, void *start, void *end, uint64_t *out_ns);

#endif

/* SPDX-License-Identifier: MIT */
/* What is free on each device of a fleet: bytes, and thousandths of its compute. Finds the first device with room for a
 * program in logarithmic time. */
#ifndef LOCH_TOOL_FLEET_PLACES_H
#define LOCH_TOOL_FLEET_PLACES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define FLEET_PLACES_NONE SIZE_MAX

typedef struct fleet_room {
    uint64_t bytes;
    uint64_t compute; /* thousandths */
} fleet_room;

/* A complete binary tree over the devices. A node has the most bytes and the most compute that are free on one of the
 * devices below it, each by itself. */
typedef struct fleet_places {
    fleet_room
        *nodes; /* node 1 is the root, the children of node i are 2 i and 2 i + 1, the devices start at `leaves` */
    size_t leaves, count;
} fleet_places;

/* Makes `count` devices with `room` each. Returns false if there is no memory. */
bool fleet_places_make(fleet_places *places, size_t count, fleet_room room);

/* Returns the room of a device. */
fleet_room fleet_places_get(const fleet_places *places, size_t device);

/* Sets the room of a device. */
void fleet_places_set(fleet_places *places, size_t device, fleet_room room);

/* Returns the first device with room for `need`; FLEET_PLACES_NONE if no device has it. */
size_t fleet_places_find(const fleet_places *places, fleet_room need);

void fleet_places_free(fleet_places *places);

#endif

/* SPDX-License-Identifier: MIT */
#include "fleet_places.h"
#include <stdlib.h>

static fleet_room places_most(fleet_room a, fleet_room b)
{
    return (fleet_room){a.bytes > b.bytes ? a.bytes : b.bytes, a.compute > b.compute ? a.compute : b.compute};
}

static bool places_fit(fleet_room room, fleet_room need)
{
    return room.bytes >= need.bytes && room.compute >= need.compute;
}

bool fleet_places_make(fleet_places *places, size_t count, fleet_room room)
{
    *places = (fleet_places){.leaves = 1, .count = count};
    while (places->leaves < count)
        places->leaves *= 2;
    places->nodes = calloc(2 * places->leaves, sizeof *places->nodes);
    if (!places->nodes) return false;
    for (size_t i = 0; i < count; i++)
        places->nodes[places->leaves + i] = room;
    for (size_t i = places->leaves - 1; i; i--)
        places->nodes[i] = places_most(places->nodes[2 * i], places->nodes[2 * i + 1]);
    return true;
}

fleet_room fleet_places_get(const fleet_places *places, size_t device)
{
    return places->nodes[places->leaves + device];
}

void fleet_places_set(fleet_places *places, size_t device, fleet_room room)
{
    size_t at = places->leaves + device;
    places->nodes[at] = room;
    while (at /= 2)
        places->nodes[at] = places_most(places->nodes[2 * at], places->nodes[2 * at + 1]);
}

/* Walks the tree from left to right. A subtree is left out if one of its two maxima is too small. Both may be large
 * enough without one device that has both; the walk goes on to the right then. */
size_t fleet_places_find(const fleet_places *places, fleet_room need)
{
    size_t at = 1;
    while (true) {
        if (places_fit(places->nodes[at], need)) {
            if (at >= places->leaves) {
                const size_t device = at - places->leaves;
                return device < places->count ? device : FLEET_PLACES_NONE;
            }
            at *= 2;
            continue;
        }
        while (at & 1)
            at /= 2; /* a right child: its parent is done */
        if (!at) return FLEET_PLACES_NONE;
        at++;
    }
}

void fleet_places_free(fleet_places *places)
{
    free(places->nodes);
    *places = (fleet_places){.nodes = NULL};
}

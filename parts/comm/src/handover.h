/* SPDX-License-Identifier: MIT */
/* The object of a hand-over, on both sides (handover.c). */
#ifndef HANDOVER_HANDOVER_H
#define HANDOVER_HANDOVER_H

#include "offer.h"

struct loch_handover {
    loch_handover_way way;
    size_t bytes;
    handover_offer offer;  /* counts; at the receiver also the note and the offsets of the pages in `buffers` */
    loch_buffer **buffers; /* offer.count of them, each a reference or NULL; NULL at the giver */
    loch_parcel **parcels; /* offer.count of them, owned, or NULL; NULL at the receiver */
};

/* Creates an object with room for the buffers of the receiver or the parcels of the giver: `offer` says how many. Takes
 * the arrays of the offer, on failure too. */
loch_status lochi_comm_handover_create_for_giver(handover_offer *offer, loch_handover **out);
loch_status lochi_comm_handover_create_for_receiver(handover_offer *offer, loch_handover **out);

#endif

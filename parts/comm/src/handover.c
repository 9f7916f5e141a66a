/* SPDX-License-Identifier: MIT */
/* What is left of a hand-over: references on buffers at the receiver, parcels at the giver. */
#include "handover.h"
#include "kit/fail.h"
#include <stdlib.h>
#include <string.h>

static loch_status handover_create(handover_offer *offer, bool is_giver, loch_handover **out)
{
    loch_handover *handover = calloc(1, sizeof *handover);
    void **places = calloc(offer->count, sizeof *places);
    *out = handover;
    if (handover && places) {
        handover->offer = *offer;
        memset(offer, 0, sizeof *offer);
        handover->bytes = lochi_comm_handover_offer_count_bytes(&handover->offer);
        if (is_giver)
            handover->parcels = (loch_parcel **)(void *)places;
        else
            handover->buffers = (loch_buffer **)(void *)places;
        return LOCH_OK;
    }
    *out = NULL;
    free(handover);
    free(places);
    lochi_comm_handover_offer_clear(offer);
    return LOCH_FAIL(HOST_MEMORY, "no host memory for a hand-over");
}

loch_status lochi_comm_handover_create_for_giver(handover_offer *offer, loch_handover **out)
{
    return handover_create(offer, true, out);
}

loch_status lochi_comm_handover_create_for_receiver(handover_offer *offer, loch_handover **out)
{
    return handover_create(offer, false, out);
}

void loch_handover_destroy(loch_handover *handover)
{
    if (!handover) return;
    for (size_t i = 0; i < handover->offer.count; i++) {
        if (handover->buffers) loch_buffer_release(handover->buffers[i]);
        if (handover->parcels) loch_parcel_destroy(handover->parcels[i]);
    }
    free(handover->buffers);
    free(handover->parcels);
    lochi_comm_handover_offer_clear(&handover->offer);
    free(handover);
}

/* Counts the buffers of a giver that the receiver has mapped. */
static size_t handover_count_held(const loch_handover *handover)
{
    size_t held = 0;
    for (size_t i = 0; handover->parcels && i < handover->offer.count; i++) {
        loch_parcel_info info = {.size = sizeof info};
        if (handover->parcels[i] && loch_parcel_get_info(handover->parcels[i], &info) == LOCH_OK)
            held += info.imports != 0;
    }
    return held;
}

loch_status loch_handover_get_info(const loch_handover *handover, loch_handover_info *out)
{
    if (!handover || !out || out->size < sizeof out->size)
        return LOCH_FAIL(INVALID, "loch_handover_get_info needs a hand-over, and a struct whose size is set");
    const handover_offer *offer = &handover->offer;
    const bool is_receiver = handover->buffers != NULL;
    const loch_handover_info info = {.size = out->size,
                                     .way = handover->way,
                                     .bytes = handover->bytes,
                                     .count = offer->count,
                                     .buffers = handover->buffers,
                                     .pages_count = offer->pages_count,
                                     .page_bytes = offer->page_bytes,
                                     .page_offsets = is_receiver ? offer->page_offsets : NULL,
                                     .note = is_receiver ? offer->note : NULL,
                                     .note_bytes = is_receiver ? offer->note_bytes : 0,
                                     .held = handover_count_held(handover)};
    memcpy(out, &info, out->size < sizeof info ? out->size : sizeof info);
    return LOCH_OK;
}

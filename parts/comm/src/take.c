/* SPDX-License-Identifier: MIT */
/* The receiver: maps what is offered, or makes room and has the contents sent. It holds everything or nothing when it
 * answers. */
#include "common.h"
#include "contents.h"
#include "handover.h"
#include "wire.h"
#include <stdlib.h>
#include <string.h>

/* What the receiver was asked for. */
typedef struct take {
    loch_device *device;
    loch_stream *stream;
    loch_handover_receive_options options;
} take;

/* --- the offer --- */

/* Sends an answer: a failure of this process, or what it has. Returns the failure, or that of the wire. */
static loch_status take_answer(handover_wire *wire, loch_status own, offer_verdict verdict)
{
    uint8_t bytes[OFFER_ANSWER_BYTES];
    offer_answer answer = {.status = own, .verdict = verdict};
    const loch_error error = *loch_error_get();
    if (own != LOCH_OK) memcpy(answer.sentence, error.sentence, sizeof answer.sentence);
    lochi_comm_handover_answer_write(&answer, bytes);
    const loch_status sent = lochi_comm_handover_wire_send(wire, bytes, sizeof bytes);
    return own == LOCH_OK ? sent : loch_error_set(own, error.driver, error.driver_code, "%s", error.sentence);
}

/* Receives a body. Without memory for it, it is received and dropped, and the wire works on. */
static loch_status take_receive_body(handover_wire *wire, size_t bytes, uint8_t **body)
{
    uint8_t dropped[OFFER_PART_BYTES] = {0};
    *body = malloc(bytes);
    loch_status status = LOCH_OK;
    for (size_t done = 0; done < bytes && status == LOCH_OK; done += OFFER_PART_BYTES) {
        const size_t left = bytes - done;
        uint8_t *to = *body ? *body + done : dropped;
        status = lochi_comm_handover_wire_receive(wire, to, left < OFFER_PART_BYTES ? left : OFFER_PART_BYTES);
    }
    if (status == LOCH_OK && !*body) status = LOCH_FAIL(HOST_MEMORY, "no host memory for an offer of %zu bytes", bytes);
    return status;
}

/* Receives an offer. If it cannot be read, the giver gets an answer with the status. */
static loch_status take_receive_offer(handover_wire *wire, handover_offer *offer)
{
    uint8_t head[OFFER_HEAD_BYTES], *body = NULL;
    size_t body_bytes;
    loch_status status = lochi_comm_handover_wire_receive(wire, head, sizeof head);
    if (status != LOCH_OK) return status;
    status = lochi_comm_handover_offer_read_head(head, offer, &body_bytes);
    if (status != LOCH_OK) {
        if (status == LOCH_E_UNSUPPORTED) (void)!take_answer(wire, status, OFFER_COPIED); /* another version */
        wire->is_broken = true; /* what follows is not known */
        return status;
    }
    status = take_receive_body(wire, body_bytes, &body);
    if (status == LOCH_OK) status = lochi_comm_handover_offer_read_body(offer, body, body_bytes);
    free(body);
    if (offer->status != LOCH_OK) /* the giver has failed, and waits for no answer */
        return loch_error_set(offer->status, NULL, 0, "%s could not hand over: %s", wire->name, offer->sentence);
    return status == LOCH_OK ? LOCH_OK : take_answer(wire, status, OFFER_COPIED);
}

/* --- map --- */

static void take_release_all(loch_handover *handover)
{
    for (size_t i = 0; i < handover->offer.count; i++)
        loch_buffer_clear(&handover->buffers[i]);
}

/* Makes a buffer of the receiver's own. */
static loch_status take_create(const take *taken, size_t bytes, loch_buffer **out)
{
    const loch_handover_receive_options *options = &taken->options;
    const loch_request request = {
        .size = sizeof request, .stream = taken->stream, .tag = options->tag, .max_bytes = options->max_bytes};
    return options->allocator ? loch_buffer_create(options->allocator, bytes, &request, out)
                              : loch_buffer_create_for_device(taken->device, bytes, &request, out);
}

/* Maps all pieces, or none. */
static loch_status take_map(const take *taken, loch_handover *handover)
{
    const loch_parcel_import_options options = {
        .size = sizeof options, .stream = taken->stream, .timeout_ns = taken->options.timeout_ns};
    const handover_offer *offer = &handover->offer;
    loch_status status = LOCH_OK;
    if (offer->way == LOCH_HANDOVER_COPIED)
        return LOCH_FAIL(UNSUPPORTED, "the giver hands over copies, and nothing to map");
    for (size_t i = 0; i < offer->count && status == LOCH_OK; i++) {
        const offer_piece *piece = &offer->pieces[i];
        if (!piece->bytes)
            status = loch_buffer_create_for_device(taken->device, 0, NULL, &handover->buffers[i]);
        else if (!piece->token_bytes)
            status = LOCH_FAIL(UNSUPPORTED, "the giver's memory is not shareable: create its pool with LOCH_SHARE_FD");
        else
            status =
                loch_parcel_import(taken->device, piece->token, piece->token_bytes, &options, &handover->buffers[i]);
        if (status == LOCH_OK && loch_buffer_get_bytes(handover->buffers[i]) != piece->bytes)
            status = LOCH_FAIL(IO, "buffer %zu of a hand-over has another size than was said", i);
    }
    if (status != LOCH_OK) take_release_all(handover);
    return status;
}

/* --- copy --- */

/* Puts the offsets of the pages where they are in a copy: behind each other. */
static void take_pack_offsets(handover_offer *offer)
{
    for (size_t i = 0; i < offer->pages_count; i++)
        offer->page_offsets[i] = i * offer->page_bytes;
}

static size_t take_copy_bytes(const handover_offer *offer, size_t piece)
{
    return offer->page_bytes ? offer->pages_count * offer->page_bytes : offer->pieces[piece].bytes;
}

/* Makes memory for all pieces, or none. */
static loch_status take_allocate(const take *taken, loch_handover *handover)
{
    loch_status status = LOCH_OK;
    for (size_t i = 0; i < handover->offer.count && status == LOCH_OK; i++)
        status = take_create(taken, take_copy_bytes(&handover->offer, i), &handover->buffers[i]);
    if (status != LOCH_OK) take_release_all(handover);
    return status;
}

/* Replaces mapped buffers by copies of them. On failure nothing is held. */
static loch_status take_copy_mapped(const take *taken, loch_handover *handover)
{
    handover_offer *offer = &handover->offer;
    loch_status status = LOCH_OK;
    for (size_t i = 0; i < offer->count && status == LOCH_OK; i++) {
        loch_buffer *mapped = handover->buffers[i], *copy = NULL;
        status = take_create(taken, take_copy_bytes(offer, i), &copy);
        if (status == LOCH_OK && offer->pieces[i].bytes)
            status = lochi_comm_handover_contents_copy(offer, i, mapped, copy, taken->stream);
        handover->buffers[i] = copy;
        loch_buffer_release(mapped);
    }
    if (status != LOCH_OK) take_release_all(handover);
    take_pack_offsets(offer);
    return status;
}

/* Has the contents sent into the memory that was made, and answers. */
static loch_status take_contents(const take *taken, handover_wire *wire, loch_handover *handover)
{
    loch_stream *stream = taken->stream ? taken->stream : loch_stream_get_default(taken->device);
    loch_status status = loch_stream_sync(stream); /* earlier work may still use the memory of the copies */
    if (status != LOCH_OK) return take_answer(wire, status, OFFER_COPIED);
    status = take_answer(wire, LOCH_OK, OFFER_SEND);
    if (status != LOCH_OK) return status;
    for (size_t i = 0; i < handover->offer.count && status == LOCH_OK; i++)
        status = lochi_comm_handover_contents_receive(wire, handover->buffers[i]);
    take_pack_offsets(&handover->offer);
    return take_answer(wire, status, OFFER_COPIED);
}

/* --- the decision --- */

static bool take_wants_copy(const take *taken, const handover_offer *offer)
{
    return taken->options.way == LOCH_HANDOVER_COPIED && offer->way != LOCH_HANDOVER_MAPPED;
}

/* Maps what is offered, and copies it if the receiver wants so. Returns false if it cannot be mapped; `status` then
 * tells why. */
static bool take_by_mapping(const take *taken, loch_handover *handover, loch_status *status)
{
    *status = take_map(taken, handover);
    if (*status != LOCH_OK) return false;
    handover->way = LOCH_HANDOVER_MAPPED;
    if (take_wants_copy(taken, &handover->offer)) {
        *status = take_copy_mapped(taken, handover);
        handover->way = LOCH_HANDOVER_COPIED;
    }
    return true;
}

/* Says why the memory was not mapped, to a caller that wants no copy. */
static loch_status take_refuse_copy(void)
{
    const loch_error error = *loch_error_get();
    return loch_error_set(LOCH_E_UNSUPPORTED, error.driver, error.driver_code,
                          "the memory cannot be mapped, and a copy is not wanted: %s", error.sentence);
}

/* Takes what an offer has, and answers. */
static loch_status take_offer(const take *taken, handover_wire *wire, loch_handover *handover)
{
    const loch_handover_way ways[2] = {taken->options.way, handover->offer.way};
    loch_status status;
    if (take_by_mapping(taken, handover, &status))
        return take_answer(wire, status, handover->way == LOCH_HANDOVER_MAPPED ? OFFER_MAPPED : OFFER_COPIED);
    if (ways[0] == LOCH_HANDOVER_MAPPED || ways[1] == LOCH_HANDOVER_MAPPED)
        return take_answer(wire, take_refuse_copy(), OFFER_COPIED);
    handover->way = LOCH_HANDOVER_COPIED;
    status = take_allocate(taken, handover);
    if (status != LOCH_OK) return take_answer(wire, status, OFFER_COPIED);
    return take_contents(taken, wire, handover);
}

static loch_status take_check(const take *taken)
{
    const loch_handover_receive_options *options = &taken->options;
    if (!taken->device) return LOCH_FAIL(INVALID, "loch_handover_receive needs a device");
    if ((unsigned)options->way > LOCH_HANDOVER_COPIED)
        return LOCH_FAIL(INVALID, "there is no way %u of a hand-over", (unsigned)options->way);
    if (taken->stream && loch_stream_get_device(taken->stream) != taken->device)
        return LOCH_FAIL(INVALID, "the stream of a hand-over is of another device than \"%s\"",
                         loch_device_get_name(taken->device));
    if (options->allocator && loch_allocator_get_device(options->allocator) != taken->device)
        return LOCH_FAIL(INVALID, "the allocator of a hand-over is of another device than \"%s\"",
                         loch_device_get_name(taken->device));
    return LOCH_OK;
}

loch_status loch_handover_receive(const loch_handover_peer *peer, loch_device *device, loch_stream *stream,
                                  const loch_handover_receive_options *options, loch_handover **out)
{
    take taken = {.device = device, .stream = stream, .options = {.size = sizeof taken.options}};
    handover_wire wire;
    handover_offer offer = {.count = 0};
    loch_handover *handover = NULL;
    if (!out) return LOCH_FAIL(INVALID, "loch_handover_receive needs an out pointer");
    *out = NULL;
    loch_status status = lochi_sized_read("the options of a hand-over", options, &taken.options, sizeof taken.options);
    if (status == LOCH_OK) status = take_check(&taken);
    if (status == LOCH_OK) status = lochi_comm_handover_wire_open(peer, taken.options.timeout_ns, &wire);
    if (status != LOCH_OK) return status;
    LOCHI_NOT_CANCELLED;
    status = take_receive_offer(&wire, &offer);
    if (status != LOCH_OK) return status;
    status = lochi_comm_handover_create_for_receiver(&offer, &handover);
    status = status == LOCH_OK ? take_offer(&taken, &wire, handover) : take_answer(&wire, status, OFFER_COPIED);
    if (status == LOCH_OK) {
        *out = handover;
        return LOCH_OK;
    }
    loch_handover_destroy(handover);
    return status;
}

/* SPDX-License-Identifier: MIT */
/* The giver: offers parcels of its buffers, or their contents alone, and waits for the receiver's answer. A giver that
 * fails after its arguments were checked tells the receiver so, in place of an offer. */
#include "common.h"
#include "contents.h"
#include "handover.h"
#include "wire.h"
#include <stdlib.h>
#include <string.h>

/* What is handed over. */
typedef struct give {
    loch_buffer *const *buffers;
    size_t count;
    loch_stream *stream;
    loch_handover_send_options options;
    size_t first; /* offset in every buffer of the first byte that a page has; 0 without pages */
} give;

/* --- arguments --- */

static loch_status give_check_options(const give *given)
{
    const loch_handover_send_options *options = &given->options;
    if ((unsigned)options->way > LOCH_HANDOVER_COPIED)
        return LOCH_FAIL(INVALID, "there is no way %u of a hand-over", (unsigned)options->way);
    if (options->note_bytes && !options->note)
        return LOCH_FAIL(INVALID, "a note of %zu bytes has no address", options->note_bytes);
    if (options->note_bytes > LOCH_HANDOVER_NOTE_MAX)
        return LOCH_FAIL(INVALID, "a note of %zu bytes is longer than %zu", options->note_bytes,
                         LOCH_HANDOVER_NOTE_MAX);
    if (!options->pages != !options->pages_count || !options->pages != !options->page_bytes)
        return LOCH_FAIL(INVALID,
                         "pages to hand over need their numbers, their count and their size: %zu pages of %zu bytes",
                         options->pages_count, options->page_bytes);
    if (options->pages_count > OFFER_PAGES_MAX)
        return LOCH_FAIL(INVALID, "%zu pages are more than %zu", options->pages_count, OFFER_PAGES_MAX);
    return LOCH_OK;
}

static loch_status give_check_pages(const give *given)
{
    const loch_handover_send_options *options = &given->options;
    size_t bytes = SIZE_MAX;
    for (size_t i = 0; options->pages_count && i < given->count; i++)
        if (loch_buffer_get_bytes(given->buffers[i]) < bytes) bytes = loch_buffer_get_bytes(given->buffers[i]);
    for (size_t i = 0; i < options->pages_count; i++)
        if (options->pages[i] >= bytes / options->page_bytes)
            return LOCH_FAIL(OUT_OF_RANGE, "page %zu of %zu bytes lies beyond a buffer, which has %zu bytes",
                             options->pages[i], options->page_bytes, bytes);
    if (options->pages_count && options->page_bytes > SIZE_MAX / 2 / options->pages_count / given->count)
        return LOCH_FAIL(OVERFLOW, "%zu pages of %zu bytes do not fit the address space", options->pages_count,
                         options->page_bytes);
    return LOCH_OK;
}

static loch_status give_check(const give *given)
{
    if (!given->buffers || !given->count || given->count > OFFER_BUFFERS_MAX)
        return LOCH_FAIL(INVALID, "loch_handover_send needs 1 to %zu buffers, not %zu", OFFER_BUFFERS_MAX,
                         given->buffers ? given->count : 0);
    for (size_t i = 0; i < given->count; i++)
        if (!given->buffers[i]) return LOCH_FAIL(INVALID, "buffer %zu of a hand-over is NULL", i);
    const loch_status status = give_check_options(given);
    return status == LOCH_OK ? give_check_pages(given) : status;
}

/* --- the offer --- */

/* Sets the sizes of the pieces and the offsets of the pages: relative to the first byte that any page has. */
static void give_measure(give *given, handover_offer *offer)
{
    const loch_handover_send_options *options = &given->options;
    size_t lowest = SIZE_MAX, highest = 0;
    for (size_t i = 0; i < options->pages_count; i++) {
        if (options->pages[i] < lowest) lowest = options->pages[i];
        if (options->pages[i] > highest) highest = options->pages[i];
    }
    given->first = options->pages_count ? lowest * options->page_bytes : 0;
    for (size_t i = 0; i < options->pages_count; i++)
        offer->page_offsets[i] = (options->pages[i] - lowest) * options->page_bytes;
    for (size_t i = 0; i < given->count; i++)
        offer->pieces[i].bytes = options->pages_count ? (highest - lowest + 1) * options->page_bytes
                                                      : loch_buffer_get_bytes(given->buffers[i]);
    if (options->note_bytes) memcpy(offer->note, options->note, options->note_bytes);
}

/* Makes a parcel of a piece, and puts its token into the offer. */
static loch_status give_make_parcel(const give *given, offer_piece *piece, loch_buffer *buffer, loch_parcel **parcel)
{
    const loch_parcel_options options = {.size = sizeof options, .stream = given->stream};
    loch_buffer *slice = NULL;
    if (!piece->bytes) return LOCH_OK;
    loch_status status = LOCH_OK;
    if (given->options.pages) status = loch_buffer_slice(buffer, given->first, piece->bytes, &slice);
    if (status == LOCH_OK) status = loch_parcel_create(slice ? slice : buffer, &options, parcel);
    loch_buffer_release(slice);
    if (status != LOCH_OK) return status;
    const void *token = loch_parcel_get_token(*parcel, &piece->token_bytes);
    memcpy(piece->token, token, piece->token_bytes);
    return LOCH_OK;
}

/* Makes parcels of all pieces. If the memory cannot be shared, the offer has none, and the receiver copies. */
static loch_status give_make_parcels(const give *given, loch_handover *handover)
{
    handover_offer *offer = &handover->offer;
    loch_status status = LOCH_OK;
    if (given->options.way == LOCH_HANDOVER_COPIED) return LOCH_OK;
    for (size_t i = 0; i < given->count && status == LOCH_OK; i++)
        status = give_make_parcel(given, &offer->pieces[i], given->buffers[i], &handover->parcels[i]);
    if (status != LOCH_E_UNSUPPORTED || given->options.way == LOCH_HANDOVER_MAPPED) return status;
    for (size_t i = 0; i < given->count; i++) {
        loch_parcel_destroy(handover->parcels[i]);
        handover->parcels[i] = NULL;
        offer->pieces[i].token_bytes = 0;
    }
    return LOCH_OK;
}

/* Builds the object of the giver, with an offer that is complete. */
static loch_status give_prepare(give *given, loch_handover **out)
{
    handover_offer offer = {.way = given->options.way,
                            .count = given->count,
                            .pages_count = given->options.pages_count,
                            .page_bytes = given->options.page_bytes,
                            .note_bytes = given->options.note_bytes};
    *out = NULL;
    loch_status status = lochi_comm_handover_offer_allocate(&offer);
    if (status != LOCH_OK) return status;
    give_measure(given, &offer);
    status = lochi_comm_handover_create_for_giver(&offer, out);
    if (status == LOCH_OK) status = give_make_parcels(given, *out);
    return status;
}

/* Sends a head and a body. */
static loch_status give_send(handover_wire *wire, const uint8_t head[OFFER_HEAD_BYTES], const uint8_t *body,
                             size_t body_bytes)
{
    loch_status status = lochi_comm_handover_wire_send(wire, head, OFFER_HEAD_BYTES);
    for (size_t done = 0; done < body_bytes && status == LOCH_OK; done += OFFER_PART_BYTES) {
        const size_t left = body_bytes - done;
        status = lochi_comm_handover_wire_send(wire, body + done, left < OFFER_PART_BYTES ? left : OFFER_PART_BYTES);
    }
    return status;
}

/* Tells the receiver that there is no offer. Keeps the error record of the failure. */
static void give_withdraw(handover_wire *wire, loch_status status)
{
    const loch_error error = *loch_error_get();
    uint8_t head[OFFER_HEAD_BYTES], body[LOCH_ERROR_SENTENCE_MAX];
    lochi_comm_handover_offer_write_failure(status, error.sentence, head, body);
    (void)!give_send(wire, head, body, sizeof body);
    (void)!loch_error_set(status, error.driver, error.driver_code, "%s", error.sentence);
}

/* Builds an offer and sends it. If it cannot be built, the receiver learns of it. */
static loch_status give_offer(give *given, handover_wire *wire, loch_handover **out)
{
    uint8_t head[OFFER_HEAD_BYTES], *body = NULL;
    size_t body_bytes = 0;
    loch_status status = give_prepare(given, out);
    if (status == LOCH_OK) status = lochi_comm_handover_offer_write(&(*out)->offer, head, &body, &body_bytes);
    if (status == LOCH_OK)
        status = give_send(wire, head, body, body_bytes);
    else
        give_withdraw(wire, status);
    free(body);
    return status;
}

/* --- the answer --- */

static loch_status give_receive_answer(handover_wire *wire, offer_answer *answer)
{
    uint8_t bytes[OFFER_ANSWER_BYTES];
    loch_status status = lochi_comm_handover_wire_receive(wire, bytes, sizeof bytes);
    if (status == LOCH_OK) status = lochi_comm_handover_answer_read(bytes, answer);
    if (status != LOCH_OK || answer->status == LOCH_OK) return status;
    return loch_error_set(answer->status, NULL, 0, "%s did not take the hand-over: %s", wire->name, answer->sentence);
}

/* Waits for the work that writes a buffer. */
static loch_status give_sync(const give *given, const loch_buffer *buffer)
{
    loch_stream *stream = given->stream ? given->stream : loch_stream_get_default(loch_buffer_get_device(buffer));
    return stream ? loch_stream_sync(stream) : LOCH_OK;
}

static loch_status give_send_contents(const give *given, handover_wire *wire, const handover_offer *offer)
{
    loch_status status = LOCH_OK;
    for (size_t i = 0; i < given->count && status == LOCH_OK; i++)
        status = lochi_comm_handover_contents_send(wire, offer, i, given->buffers[i], given->first,
                                                   give_sync(given, given->buffers[i]));
    return status;
}

/* Sends the contents, and receives the answer. Returns the failure that came first. */
static loch_status give_copy(const give *given, handover_wire *wire, loch_handover *handover)
{
    offer_answer answer;
    const loch_status sent = give_send_contents(given, wire, &handover->offer);
    const loch_error error = *loch_error_get();
    const loch_status heard = give_receive_answer(wire, &answer);
    if (sent == LOCH_OK) return heard;
    return loch_error_set(sent, error.driver, error.driver_code, "%s", error.sentence);
}

static loch_status give_settle(const give *given, handover_wire *wire, loch_handover *handover)
{
    offer_answer answer;
    loch_status status = give_receive_answer(wire, &answer);
    if (status != LOCH_OK) return status;
    handover->way = answer.verdict == OFFER_MAPPED ? LOCH_HANDOVER_MAPPED : LOCH_HANDOVER_COPIED;
    return answer.verdict == OFFER_SEND ? give_copy(given, wire, handover) : LOCH_OK;
}

loch_status loch_handover_send(const loch_handover_peer *peer, loch_buffer *const *buffers, size_t count,
                               loch_stream *stream, const loch_handover_send_options *options, loch_handover **out)
{
    give given = {.buffers = buffers, .count = count, .stream = stream, .options = {.size = sizeof given.options}};
    handover_wire wire;
    loch_handover *handover = NULL;
    if (out) *out = NULL;
    loch_status status = lochi_sized_read("the options of a hand-over", options, &given.options, sizeof given.options);
    if (status == LOCH_OK) status = give_check(&given);
    if (status == LOCH_OK) status = lochi_comm_handover_wire_open(peer, given.options.timeout_ns, &wire);
    if (status != LOCH_OK) return status;
    LOCHI_NOT_CANCELLED;
    status = give_offer(&given, &wire, &handover);
    if (status == LOCH_OK) status = give_settle(&given, &wire, handover);
    if (status == LOCH_OK && out) {
        *out = handover;
        return LOCH_OK;
    }
    loch_handover_destroy(handover);
    return status;
}

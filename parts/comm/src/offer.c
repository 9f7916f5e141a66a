/* SPDX-License-Identifier: MIT */
/* An offer is a head of a fixed size and a body:
 *
 *   head    "lochgive", version, status, way, buffers, pages, page_bytes, note_bytes, body_bytes
 *   body    for each buffer: bytes, token_bytes, token; for each page: its offset; the note
 *           of an offer with a status: the sentence
 *
 * Numbers have 64 bits and their lowest byte first. */
#include "offer.h"
#include "kit/fail.h"
#include <stdlib.h>
#include <string.h>

#define OFFER_VERSION 1u

static const uint8_t offer_magic[8] = {'l', 'o', 'c', 'h', 'g', 'i', 'v', 'e'};
static const uint8_t answer_magic[8] = {'l', 'o', 'c', 'h', 't', 'a', 'k', 'e'};

static void put(uint8_t **at, uint64_t number, size_t bytes)
{
    for (size_t i = 0; i < bytes; i++)
        *(*at)++ = (uint8_t)(number >> (8 * i));
}

static uint64_t take(const uint8_t **at, size_t bytes)
{
    uint64_t number = 0;
    for (size_t i = 0; i < bytes; i++)
        number |= (uint64_t) * (*at)++ << (8 * i);
    return number;
}

static loch_status offer_refuse(const char *why)
{
    return LOCH_FAIL(IO, "the other side sent something else than a hand-over: %s", why);
}

static loch_status offer_no_memory(void)
{
    return LOCH_FAIL(HOST_MEMORY, "no host memory for the list of a hand-over");
}

static bool offer_is_status(uint64_t number)
{
    return number < (uint64_t)LOCH_STATUS_COUNT;
}

/* --- arrays --- */

loch_status lochi_comm_handover_offer_allocate(handover_offer *offer)
{
    if (offer->count) offer->pieces = calloc(offer->count, sizeof *offer->pieces);
    if (offer->pages_count) offer->page_offsets = calloc(offer->pages_count, sizeof *offer->page_offsets);
    if (offer->note_bytes) offer->note = malloc(offer->note_bytes);
    if ((offer->pieces || !offer->count) && (offer->page_offsets || !offer->pages_count) &&
        (offer->note || !offer->note_bytes))
        return LOCH_OK;
    lochi_comm_handover_offer_clear(offer);
    return offer_no_memory();
}

void lochi_comm_handover_offer_clear(handover_offer *offer)
{
    free(offer->pieces);
    free(offer->page_offsets);
    free(offer->note);
    offer->pieces = NULL;
    offer->page_offsets = NULL;
    offer->note = NULL;
}

size_t lochi_comm_handover_offer_count_bytes(const handover_offer *offer)
{
    size_t bytes = 0;
    for (size_t i = 0; i < offer->count; i++)
        bytes += offer->page_bytes ? offer->pages_count * offer->page_bytes : offer->pieces[i].bytes;
    return bytes;
}

bool lochi_comm_handover_offer_next_run(const handover_offer *offer, size_t piece, size_t *at, offer_run *run)
{
    if (!offer->page_bytes) {
        *run = (offer_run){0, 0, offer->pieces[piece].bytes};
        return (*at)++ == 0 && run->bytes;
    }
    const size_t first = *at;
    if (first == offer->pages_count) return false;
    while (++*at < offer->pages_count && offer->page_offsets[*at] == offer->page_offsets[*at - 1] + offer->page_bytes)
        continue;
    *run = (offer_run){offer->page_offsets[first], first * offer->page_bytes, (*at - first) * offer->page_bytes};
    return true;
}

/* --- write --- */

static size_t offer_body_bytes(const handover_offer *offer)
{
    size_t bytes = 8 * offer->pages_count + offer->note_bytes;
    for (size_t i = 0; i < offer->count; i++)
        bytes += 16 + offer->pieces[i].token_bytes;
    return bytes;
}

static void offer_write_head(const handover_offer *offer, size_t body_bytes, uint8_t head[OFFER_HEAD_BYTES])
{
    memset(head, 0, OFFER_HEAD_BYTES);
    memcpy(head, offer_magic, sizeof offer_magic);
    uint8_t *at = head + sizeof offer_magic;
    put(&at, OFFER_VERSION, 4);
    put(&at, offer->status, 2);
    put(&at, offer->way, 2);
    put(&at, offer->count, 8);
    put(&at, offer->pages_count, 8);
    put(&at, offer->page_bytes, 8);
    put(&at, offer->note_bytes, 8);
    put(&at, body_bytes, 8);
}

static void offer_write_body(const handover_offer *offer, uint8_t *at)
{
    for (size_t i = 0; i < offer->count; i++) {
        const offer_piece *piece = &offer->pieces[i];
        put(&at, piece->bytes, 8);
        put(&at, piece->token_bytes, 8);
        memcpy(at, piece->token, piece->token_bytes);
        at += piece->token_bytes;
    }
    for (size_t i = 0; i < offer->pages_count; i++)
        put(&at, offer->page_offsets[i], 8);
    if (offer->note_bytes) memcpy(at, offer->note, offer->note_bytes);
}

loch_status lochi_comm_handover_offer_write(const handover_offer *offer, uint8_t head[OFFER_HEAD_BYTES], uint8_t **body,
                                            size_t *body_bytes)
{
    *body_bytes = offer_body_bytes(offer);
    *body = malloc(*body_bytes);
    if (!*body) return offer_no_memory();
    offer_write_head(offer, *body_bytes, head);
    offer_write_body(offer, *body);
    return LOCH_OK;
}

void lochi_comm_handover_offer_write_failure(loch_status status, const char sentence[LOCH_ERROR_SENTENCE_MAX],
                                             uint8_t head[OFFER_HEAD_BYTES], uint8_t body[LOCH_ERROR_SENTENCE_MAX])
{
    const handover_offer none = {.status = status};
    offer_write_head(&none, LOCH_ERROR_SENTENCE_MAX, head);
    memcpy(body, sentence, LOCH_ERROR_SENTENCE_MAX);
}

/* --- read --- */

/* Returns whether the counts of a head can be true, and its body has a size that they allow. */
static bool offer_is_possible(const handover_offer *offer, size_t body_bytes)
{
    if (offer->status != LOCH_OK) return body_bytes == LOCH_ERROR_SENTENCE_MAX;
    if (!offer->count || offer->count > OFFER_BUFFERS_MAX || offer->pages_count > OFFER_PAGES_MAX) return false;
    if (!offer->page_bytes != !offer->pages_count || offer->note_bytes > LOCH_HANDOVER_NOTE_MAX) return false;
    if (offer->page_bytes && offer->page_bytes > SIZE_MAX / offer->pages_count / offer->count) return false;
    const size_t least = 16 * offer->count + 8 * offer->pages_count + offer->note_bytes;
    return body_bytes >= least && body_bytes <= least + offer->count * LOCH_PARCEL_TOKEN_MAX;
}

loch_status lochi_comm_handover_offer_read_head(const uint8_t head[OFFER_HEAD_BYTES], handover_offer *offer,
                                                size_t *body_bytes)
{
    const uint8_t *at = head + sizeof offer_magic;
    memset(offer, 0, sizeof *offer);
    if (memcmp(head, offer_magic, sizeof offer_magic) != 0) return offer_refuse("it has no head");
    const uint64_t version = take(&at, 4), status = take(&at, 2), way = take(&at, 2);
    if (version != OFFER_VERSION)
        return LOCH_FAIL(UNSUPPORTED,
                         "the other side hands over by version %u of the protocol, this process by version %u",
                         (unsigned)version, OFFER_VERSION);
    if (!offer_is_status(status) || way > LOCH_HANDOVER_COPIED) return offer_refuse("its status is not one");
    offer->status = (loch_status)status;
    offer->way = (loch_handover_way)way;
    offer->count = take(&at, 8);
    offer->pages_count = take(&at, 8);
    offer->page_bytes = take(&at, 8);
    offer->note_bytes = take(&at, 8);
    *body_bytes = take(&at, 8);
    return offer_is_possible(offer, *body_bytes) ? LOCH_OK : offer_refuse("its counts do not agree");
}

/* Reads the pieces. Returns false if they do not fit the body, or their sum does not fit the address space. */
static bool offer_read_pieces(handover_offer *offer, const uint8_t **at, const uint8_t *end)
{
    const size_t rest = 8 * offer->pages_count + offer->note_bytes;
    size_t all = 0;
    for (size_t i = 0; i < offer->count; i++) {
        offer_piece *piece = &offer->pieces[i];
        if ((size_t)(end - *at) < rest + 16) return false;
        piece->bytes = take(at, 8);
        piece->token_bytes = take(at, 8);
        if (piece->token_bytes > sizeof piece->token || (size_t)(end - *at) < rest + piece->token_bytes) return false;
        memcpy(piece->token, *at, piece->token_bytes);
        *at += piece->token_bytes;
        if (piece->bytes > SIZE_MAX / 2 - all) return false;
        if (offer->page_bytes && piece->bytes != offer->pieces[0].bytes) return false; /* the same pages of each */
        all += piece->bytes;
    }
    return (size_t)(end - *at) == rest;
}

/* Reads the pages. Returns false if one of them does not lie in the pieces, which have one size. */
static bool offer_read_pages(handover_offer *offer, const uint8_t **at)
{
    const size_t bytes = offer->pieces[0].bytes;
    size_t *offsets = offer->page_offsets;
    for (size_t i = 0; offsets && i < offer->pages_count; i++) {
        const size_t start = offsets[i] = take(at, 8);
        if (start > bytes || offer->page_bytes > bytes - start) return false;
    }
    return true;
}

loch_status lochi_comm_handover_offer_read_body(handover_offer *offer, const uint8_t *body, size_t body_bytes)
{
    if (offer->status != LOCH_OK) {
        memcpy(offer->sentence, body, sizeof offer->sentence);
        offer->sentence[sizeof offer->sentence - 1] = 0;
        return LOCH_OK;
    }
    const uint8_t *at = body;
    const loch_status status = lochi_comm_handover_offer_allocate(offer);
    if (status != LOCH_OK) return status;
    if (!offer->pieces || !offer_read_pieces(offer, &at, body + body_bytes) || !offer_read_pages(offer, &at)) {
        lochi_comm_handover_offer_clear(offer);
        return offer_refuse("its sizes do not agree");
    }
    if (offer->note_bytes) memcpy(offer->note, at, offer->note_bytes);
    return LOCH_OK;
}

/* --- answers --- */

void lochi_comm_handover_answer_write(const offer_answer *answer, uint8_t bytes[OFFER_ANSWER_BYTES])
{
    uint8_t *at = bytes + sizeof answer_magic;
    memset(bytes, 0, OFFER_ANSWER_BYTES);
    memcpy(bytes, answer_magic, sizeof answer_magic);
    put(&at, answer->status, 4);
    put(&at, answer->verdict, 4);
    memcpy(at, answer->sentence, sizeof answer->sentence);
}

loch_status lochi_comm_handover_answer_read(const uint8_t bytes[OFFER_ANSWER_BYTES], offer_answer *answer)
{
    const uint8_t *at = bytes + sizeof answer_magic;
    const uint64_t status = take(&at, 4), verdict = take(&at, 4);
    if (memcmp(bytes, answer_magic, sizeof answer_magic) != 0 || !offer_is_status(status) || verdict > OFFER_SEND)
        return offer_refuse("it is no answer");
    answer->status = (loch_status)status;
    answer->verdict = (offer_verdict)verdict;
    memcpy(answer->sentence, at, sizeof answer->sentence);
    answer->sentence[sizeof answer->sentence - 1] = 0;
    return LOCH_OK;
}

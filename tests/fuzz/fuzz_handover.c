/* SPDX-License-Identifier: MIT */
/* Fuzz target: offers and answers of hand-overs. An offer that is accepted has pages that lie in its pieces, runs that
 * cover its copy exactly, and is written as the same bytes again. */
#include "fuzz.h"
#include "offer.h"

#include <stdlib.h>

/* The runs of a piece follow each other in the copy, and lie in the piece. */
static void handover_check_runs(const handover_offer *offer, size_t piece)
{
    size_t at = 0, done = 0;
    offer_run run;
    const size_t bytes = offer->pieces[piece].bytes;
    while (lochi_comm_handover_offer_next_run(offer, piece, &at, &run)) {
        FUZZ_EXPECT(run.bytes && run.to == done);
        FUZZ_EXPECT(run.from <= bytes && run.bytes <= bytes - run.from);
        done += run.bytes;
    }
    FUZZ_EXPECT(done == (offer->page_bytes ? offer->pages_count * offer->page_bytes : bytes));
}

static void handover_check(const handover_offer *offer, const uint8_t *data, size_t bytes)
{
    uint8_t head[OFFER_HEAD_BYTES], *body;
    size_t body_bytes, sum = 0;
    for (size_t i = 0; i < offer->count; i++) {
        handover_check_runs(offer, i);
        sum += offer->page_bytes ? offer->pages_count * offer->page_bytes : offer->pieces[i].bytes;
    }
    FUZZ_EXPECT(sum == lochi_comm_handover_offer_count_bytes(offer));
    if (lochi_comm_handover_offer_write(offer, head, &body, &body_bytes) != LOCH_OK) abort();
    FUZZ_EXPECT(OFFER_HEAD_BYTES + body_bytes == bytes);
    FUZZ_EXPECT(memcmp(body, data + OFFER_HEAD_BYTES, body_bytes) == 0);
    free(body);
}

static void handover_try_offer(const uint8_t *data, size_t bytes)
{
    handover_offer offer;
    size_t body_bytes;
    if (bytes < OFFER_HEAD_BYTES) return;
    loch_status status = lochi_comm_handover_offer_read_head(data, &offer, &body_bytes);
    if (status != LOCH_OK) {
        FUZZ_FAILED(status, TEST_SET(IO) | TEST_SET(UNSUPPORTED));
        return;
    }
    if (body_bytes != bytes - OFFER_HEAD_BYTES) return;
    status = lochi_comm_handover_offer_read_body(&offer, data + OFFER_HEAD_BYTES, body_bytes);
    if (status != LOCH_OK) {
        FUZZ_FAILED(status, TEST_SET(IO) | TEST_SET(HOST_MEMORY));
        FUZZ_EXPECT(!offer.pieces && !offer.page_offsets && !offer.note);
        return;
    }
    if (offer.status == LOCH_OK)
        handover_check(&offer, data, bytes);
    else
        FUZZ_EXPECT(memchr(offer.sentence, 0, sizeof offer.sentence));
    lochi_comm_handover_offer_clear(&offer);
}

static void handover_try_answer(const uint8_t *data, size_t bytes)
{
    offer_answer answer;
    if (bytes < OFFER_ANSWER_BYTES) return;
    const loch_status status = lochi_comm_handover_answer_read(data, &answer);
    if (status != LOCH_OK) {
        FUZZ_FAILED(status, TEST_SET(IO));
        return;
    }
    FUZZ_EXPECT((unsigned)answer.status < LOCH_STATUS_COUNT && (unsigned)answer.verdict <= OFFER_SEND);
    FUZZ_EXPECT(memchr(answer.sentence, 0, sizeof answer.sentence));
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    loch_error_clear();
    handover_try_offer(data, bytes);
    loch_error_clear();
    handover_try_answer(data, bytes);
    return 0;
}

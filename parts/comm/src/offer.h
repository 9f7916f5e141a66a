/* SPDX-License-Identifier: MIT */
/* What the two sides tell each other, as bytes: an offer of the giver and answers of the receiver (offer.c). Everything
 * that is read is checked: the other side may be another program, or an older one. */
#ifndef HANDOVER_OFFER_H
#define HANDOVER_OFFER_H

#include <loch/handover.h>
#include <loch/share.h>
#include <stdbool.h>

#define OFFER_HEAD_BYTES 64
#define OFFER_PART_BYTES ((size_t)16 << 10) /* a body goes in parts of this size: a receiver can drop it */
#define OFFER_ANSWER_BYTES (16 + LOCH_ERROR_SENTENCE_MAX)
#define OFFER_BUFFERS_MAX ((size_t)1 << 16)
#define OFFER_PAGES_MAX ((size_t)1 << 22)

/* One buffer of an offer. */
typedef struct offer_piece {
    size_t bytes;       /* with pages: from the first page that is handed over to the end of the last one */
    size_t token_bytes; /* 0: cannot be mapped */
    uint8_t token[LOCH_PARCEL_TOKEN_MAX];
} offer_piece;

typedef struct handover_offer {
    loch_status status; /* not LOCH_OK: the giver has failed; nothing is offered */
    loch_handover_way way;
    char sentence[LOCH_ERROR_SENTENCE_MAX];
    size_t count;
    offer_piece *pieces; /* owned */
    size_t pages_count;
    size_t page_bytes;
    size_t *page_offsets; /* in each piece; owned */
    size_t note_bytes;
    uint8_t *note; /* owned */
} handover_offer;

/* What the receiver says. */
typedef enum offer_verdict {
    OFFER_MAPPED, /* it has all, mapped: the hand-over is complete */
    OFFER_COPIED, /* it has all, in memory of its own: the hand-over is complete */
    OFFER_SEND    /* it has memory, and wants the contents */
} offer_verdict;

typedef struct offer_answer {
    loch_status status; /* not LOCH_OK: the receiver has failed and holds nothing */
    offer_verdict verdict;
    char sentence[LOCH_ERROR_SENTENCE_MAX];
} offer_answer;

/* Allocates the arrays of an offer, whose counts are set. They are zero. */
loch_status lochi_comm_handover_offer_allocate(handover_offer *offer);

/* Frees the arrays. */
void lochi_comm_handover_offer_clear(handover_offer *offer);

/* Writes an offer: the head, and a body that the caller frees. On failure the body is NULL. */
loch_status lochi_comm_handover_offer_write(const handover_offer *offer, uint8_t head[OFFER_HEAD_BYTES], uint8_t **body,
                                            size_t *body_bytes);

/* Writes that there is no offer: the head, and the sentence as its body. */
void lochi_comm_handover_offer_write_failure(loch_status status, const char sentence[LOCH_ERROR_SENTENCE_MAX],
                                             uint8_t head[OFFER_HEAD_BYTES], uint8_t body[LOCH_ERROR_SENTENCE_MAX]);

/* Reads the head: sets the counts of an offer, and the size of the body that follows. E_IO: not an offer. */
loch_status lochi_comm_handover_offer_read_head(const uint8_t head[OFFER_HEAD_BYTES], handover_offer *offer,
                                                size_t *body_bytes);

/* Reads the body into the arrays, which it allocates. E_IO: not an offer. On failure the arrays are NULL. */
loch_status lochi_comm_handover_offer_read_body(handover_offer *offer, const uint8_t *body, size_t body_bytes);

/* Returns the bytes that an offer hands over. */
size_t lochi_comm_handover_offer_count_bytes(const handover_offer *offer);

/* Bytes that lie together in a piece, and their place in a copy, which has the pages in their order without gaps. */
typedef struct offer_run {
    size_t from; /* offset in the piece */
    size_t to;   /* offset in the copy */
    size_t bytes;
} offer_run;

/* Gives the next run of a piece. `at` starts at 0 and belongs to this function. Returns false after the last one. */
bool lochi_comm_handover_offer_next_run(const handover_offer *offer, size_t piece, size_t *at, offer_run *run);

/* Write and read an answer. E_IO: not an answer. */
void lochi_comm_handover_answer_write(const offer_answer *answer, uint8_t bytes[OFFER_ANSWER_BYTES]);
loch_status lochi_comm_handover_answer_read(const uint8_t bytes[OFFER_ANSWER_BYTES], offer_answer *answer);

#endif

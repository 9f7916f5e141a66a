/* SPDX-License-Identifier: MIT */
/* Spans: the handles under a buffer, in order of address (span.c). Buffers in the same handles have one span, so that
 * an importer maps it once. */
#ifndef SHARE_SPAN_H
#define SHARE_SPAN_H

#include "message.h"

typedef struct share_piece {
    loch_handle *handle; /* borrowed: valid while the span is not stale */
    size_t bytes;
} share_piece;

typedef struct share_span {
    struct share_span *next; /* list of all spans, under lochi_share_lock */
    uint64_t id;             /* never used for another span of this process */
    loch_device *device;     /* retained */
    uintptr_t start;
    size_t bytes;
    loch_share share; /* how its handles are exported */
    size_t parcels;   /* under lochi_share_lock: parcels that use it */
    size_t exporting; /* under lochi_share_lock: threads that use its handles now */
    bool is_stale;    /* under lochi_share_lock: a handle went from its place */
    size_t count;
    share_piece pieces[];
} share_span;

/* Finds or makes the span around [address, address + bytes), whose memory the caller holds. E_UNSUPPORTED: not all of
 * it is mapped from shareable handles. */
loch_status lochi_share_span_acquire(const void *address, size_t bytes, share_span **out);

/* Releases a span. NULL does nothing. Calls Loch. */
void lochi_share_span_release(share_span *span);

/* Exports the handles from `first` on, at most SHARE_CHUNK, into a reply; `descriptors` are the caller's. On failure
 * returns what to answer, and `*count` descriptors are open. */
share_result lochi_share_span_export(share_span *span, size_t first, share_reply *reply, int *descriptors,
                                     size_t *count);

/* Forgets the spans of the parent, in the child of a fork. */
void lochi_share_span_forked(void);

#endif

/* SPDX-License-Identifier: MIT */
/* Records of live blocks, and waiting for the streams that use a block. */
#include "memory/held.h"
#include "base/fail.h"
#include "base/heap.h"
#include "device/device.h"
#include <loch/host.h>

lochi_held *lochi_held_create(const loch_request *request)
{
    lochi_held *held = lochi_zalloc(sizeof *held);
    if (!held) return NULL;
    held->requested = request->bytes;
    held->tag = request->tag;
    held->stream = lochi_stream_retain(request->stream);
    held->time_ns = loch_host_now_ns();
    return held;
}

void lochi_held_destroy(lochi_held *held)
{
    if (!held) return;
    lochi_stream_release(held->stream);
    if (held->freed_on) lochi_stream_release(held->freed_on);
    for (size_t i = 0; i < held->other_count; i++)
        lochi_stream_release(held->others[i]);
    lochi_free(held->others);
    lochi_free(held);
}

void lochi_held_forget_all(lochi_tree *tree)
{
    lochi_tree_node *node;
    while ((node = lochi_tree_at_or_above(tree, 0))) {
        lochi_tree_remove(tree, node);
        lochi_held_destroy(lochi_held_of(node));
    }
}

void lochi_held_describe(const lochi_held *held, loch_block *out)
{
    *out = (loch_block){.size = sizeof *out,
                        .address = lochi_held_address(held),
                        .requested_bytes = held->requested,
                        .allocated_bytes = held->taken,
                        .id = held->id,
                        .tag = held->tag,
                        .stream_id = held->stream->id,
                        .time_ns = held->time_ns};
}

/* --- streams --- */

static bool waits_is_done(const lochi_waits *waits, const loch_stream *stream)
{
    if (waits->is_device_done) return true;
    for (unsigned i = 0; i < waits->count && i < LOCHI_WAITS_MAX; i++)
        if (waits->done[i] == stream) return true;
    return false;
}

/* Waits for a stream. E_INVALID, without a sentence: the stream was destroyed. */
static loch_status waits_sync(loch_stream *stream)
{
    uint32_t mark;
    if (!lochi_stream_enter(stream, &mark)) return LOCH_E_INVALID;
    const loch_status status = loch_stream_sync(stream);
    lochi_stream_leave(mark);
    return status;
}

loch_status lochi_waits_for(lochi_waits *waits, loch_stream *stream)
{
    if (waits_is_done(waits, stream)) return LOCH_OK;
    loch_status status = waits_sync(stream);
    if (status == LOCH_OK) {
        waits->done[waits->count++ % LOCHI_WAITS_MAX] = stream;
        return LOCH_OK;
    }
    /* The device's work includes the work of the stream. */
    if (!lochi_is_gone(status)) status = loch_device_sync(waits->device);
    if (lochi_is_gone(status)) status = LOCH_OK;
    waits->is_device_done = status == LOCH_OK;
    return status;
}

loch_status lochi_waits_for_block(lochi_waits *waits, const lochi_held *held)
{
    LOCH_TRY_RETURN(lochi_waits_for(waits, held->stream));
    if (held->freed_on) LOCH_TRY_RETURN(lochi_waits_for(waits, held->freed_on));
    for (size_t i = 0; i < held->other_count; i++)
        LOCH_TRY_RETURN(lochi_waits_for(waits, held->others[i]));
    return LOCH_OK;
}

loch_stream *lochi_held_enter_stream(const lochi_held *held, loch_stream *given, uint32_t *mark)
{
    loch_stream *stream = given ? given : held->stream;
    if (lochi_stream_enter(stream, mark)) return stream;
    loch_stream *fallback = &stream->device->default_stream;
    const bool is_open = lochi_stream_enter(fallback, mark);
    (void)is_open; /* always true: the default stream lives as long as the device */
    return fallback;
}

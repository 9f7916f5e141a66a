/* SPDX-License-Identifier: MIT */
/* Streams of simulated devices: the objects, and the order between them.
 *
 * The tail of a stream is the key that its next operation starts after. The default stream starts after all streams
 * that are ordered with it, and those start after the default stream. */
#include "device/sim/stream.h"
#include "base/heap.h"
#include "device/sim/capture.h"
#include "device/sim/fail.h"
#include "device/sim/order.h"

/* --- making and ending --- */

loch_status lochi_sim_stream_init(lochi_sim *sim, lochi_sim_stream *stream)
{
    lochi_lock_assert_held(&lochi_sim_all.lock);
    LOCH_TRY_RETURN(lochi_sim_vector_init(&stream->seen));
    const loch_status status = lochi_sim_slot_take(&stream->slot);
    if (status != LOCH_OK) {
        lochi_sim_vector_fini(&stream->seen);
        return status;
    }
    stream->device = sim;
    stream->number = ++sim->last_number;
    return LOCH_OK;
}

loch_status lochi_sim_stream_make(lochi_sim *sim, lochi_sim_stream **out)
{
    lochi_lock_assert_held(&lochi_sim_all.lock);
    lochi_sim_stream *stream = lochi_zalloc(sizeof *stream);
    if (!stream) return SIM_FAIL(HOST_MEMORY, "no host memory for a stream");
    const loch_status status = lochi_sim_stream_init(sim, stream);
    if (status != LOCH_OK) {
        lochi_free(stream);
        return status;
    }
    stream->prev = &sim->default_stream;
    stream->next = sim->default_stream.next;
    if (stream->next) stream->next->prev = stream;
    sim->default_stream.next = stream;
    *out = stream;
    return LOCH_OK;
}

void lochi_sim_stream_drop(lochi_sim_stream *stream)
{
    lochi_lock_assert_held(&lochi_sim_all.lock);
    lochi_sim *sim = stream->device;
    stream->prev->next = stream->next;
    if (stream->next) stream->next->prev = stream->prev;
    lochi_sim_vector_join(&sim->gone, &stream->seen);
    if (stream->is_with_default) lochi_sim_vector_join(&sim->gone_blocking, &stream->seen);
    lochi_sim_slot_give(stream->slot);
    lochi_sim_vector_fini(&stream->seen);
    lochi_free(stream);
}

void lochi_sim_stream_end(lochi_sim_stream *stream)
{
    lochi_lock_assert_held(&lochi_sim_all.lock);
    if (stream->capture) lochi_sim_capture_leave(stream);
    stream->is_destroyed = true;
    if (!stream->first) lochi_sim_stream_drop(stream);
}

lochi_sim_stream *lochi_sim_stream_of(lochi_sim *sim, void *native)
{
    return native ? native : &sim->default_stream;
}

void lochi_sim_stream_close(lochi_sim *sim)
{
    lochi_lock_assert_held(&lochi_sim_all.lock);
    while (sim->default_stream.next)
        lochi_sim_stream_end(sim->default_stream.next);
    while (sim->events) {
        lochi_sim_event *event = sim->events;
        sim->events = event->next;
        lochi_sim_vector_fini(&event->seen);
        lochi_free(event);
    }
    if (sim->default_stream.seen.epochs) lochi_sim_slot_give(sim->default_stream.slot);
    lochi_sim_vector_fini(&sim->default_stream.seen);
    lochi_sim_vector_fini(&sim->gone);
    lochi_sim_vector_fini(&sim->gone_blocking);
}

/* --- order --- */

void lochi_sim_stream_follow(lochi_sim_stream *stream, lochi_sim_key key, const lochi_sim_vector *seen)
{
    lochi_lock_assert_held(&lochi_sim_all.lock);
    stream->tail = lochi_sim_key_later(stream->tail, key);
    lochi_sim_vector_join(&stream->seen, seen);
}

lochi_sim_capture *lochi_sim_stream_tied_capture(const lochi_sim_stream *stream)
{
    lochi_lock_assert_held(&lochi_sim_all.lock);
    const lochi_sim_stream *legacy = &stream->device->default_stream;
    if (stream != legacy) return NULL;
    for (const lochi_sim_stream *other = legacy->next; other; other = other->next)
        if (other->is_with_default && other->capture) return other->capture;
    return NULL;
}

loch_status lochi_sim_stream_enter(lochi_sim_stream *stream)
{
    lochi_lock_assert_held(&lochi_sim_all.lock);
    lochi_sim *sim = stream->device;
    lochi_sim_stream *legacy = &sim->default_stream;
    lochi_sim_capture *tied = lochi_sim_stream_tied_capture(stream);
    if (tied)
        return lochi_sim_capture_break(
            tied, "the default stream was used while a stream that is ordered with it was being captured");
    if (stream == legacy) {
        for (lochi_sim_stream *other = legacy->next; other; other = other->next)
            if (other->is_with_default) lochi_sim_stream_follow(legacy, other->tail, &other->seen);
        lochi_sim_vector_join(&legacy->seen, &sim->gone_blocking);
    } else if (stream->is_with_default) {
        lochi_sim_stream_follow(stream, legacy->tail, &legacy->seen);
    }
    lochi_sim_vector_join(&stream->seen, &lochi_sim_all.host);
    return LOCH_OK;
}

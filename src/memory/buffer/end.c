/* SPDX-License-Identifier: MIT */
/* Destroys a whole: runs its deleters and frees its memory. */
#include "memory/buffer/end.h"
#include "kit/cancel.h"
#include "base/heap.h"
#include "base/logging.h"

void lochi_buffer_leave_meter(loch_buffer *whole)
{
    if (whole->meter) lochi_meter_leave(whole->meter, whole->capacity);
    whole->meter = NULL;
}

/* Runs the deleters, the newest first. No other reference to the buffer exists any more. */
static void end_run_deleters(loch_buffer *whole)
{
    lochi_deleter *deleter;
    if (!whole->deleters) return;
    LOCHI_NOT_CANCELLED;
    while ((deleter = whole->deleters)) {
        whole->deleters = deleter->next;
        deleter->function(whole->address, whole->bytes, deleter->user);
        lochi_free(deleter);
    }
}

static void end_free_block(loch_buffer *whole)
{
    const loch_status status = loch_free(whole->allocator, whole->address);
    if (status == LOCH_OK) return;
    LOCHI_LOG(ERROR, "the block of a buffer at %p could not be freed: %s", (void *)whole->address,
              loch_error_get()->sentence);
    if (whole->is_movable) lochi_movable_forget(whole->allocator, &whole->movable);
}

loch_buffer *lochi_buffer_end(loch_buffer *whole)
{
    loch_buffer *owner = whole->owner;
    if (whole->is_movable && whole->address)
        whole->address = lochi_movable_hold(whole->allocator, &whole->movable); /* not moved until it is freed */
    end_run_deleters(whole);
    if (whole->allocator && whole->address) end_free_block(whole);
    if (whole->deleter) {
        LOCHI_NOT_CANCELLED;
        whole->deleter(whole->address, whole->bytes, whole->user);
    }
    lochi_buffer_leave_meter(whole);
    lochi_watch_release(whole->watch);
    loch_allocator_release(whole->allocator);
    loch_device_release(whole->device);
    lochi_free(whole);
    return owner;
}

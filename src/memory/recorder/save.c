/* SPDX-License-Identifier: MIT */
/* Saves a ring. Chunks are copied one by one with the lock held, so that none is used again meanwhile, up to the place
 * that its thread has published; and written without the lock. */
#include "kit/cancel.h"
#include "base/fail.h"
#include "base/heap.h"
#include "kit/new_file.h"
#include "memory/recorder/clock.h"
#include <loch/recorder.h>
#include <string.h>

/* Returns how many bytes of a place are complete; 0 for one that was never used. */
static size_t save_measure(uint32_t place)
{
    const recorder_state *all = &lochi_recorder_all;
    if (!all->places[place].sequence) return 0;
    if (!all->places[place].is_taken) return all->chunk_bytes;
    for (const recorder_thread *thread = lochi_recorder_threads; thread < lochi_recorder_threads + LOCHI_SLOT_COUNT;
         thread++) {
        if (!thread->chunk || thread->place != place) continue;
        const uint8_t *at = atomic_load_explicit(&thread->at, memory_order_acquire);
        return (size_t)(at - (const uint8_t *)thread->chunk);
    }
    return 0;
}

/* Copies chunk number `index`: the places of the ring, then the chunks with names. `*bytes` is 0 for an unused place.
 * Returns false behind the last chunk, and when the recording has stopped. */
static bool save_copy(size_t index, uint8_t *copy, size_t *bytes, uint64_t generation)
{
    recorder_state *all = &lochi_recorder_all;
    const uint8_t *from = NULL;
    *bytes = 0;
    lochi_lock_take(&all->lock);
    const bool is_there = all->is_on && all->generation == generation && index < all->place_count + all->names_count;
    if (is_there && index < all->place_count) {
        *bytes = save_measure((uint32_t)index);
        from = all->ring + index * all->chunk_bytes;
    } else if (is_there) {
        const recorder_chunk *chunk = all->names_list[index - all->place_count];
        from = (const uint8_t *)chunk;
        *bytes = chunk == all->names ? (size_t)(all->names_at - from) : all->chunk_bytes;
    }
    if (from) memcpy(copy, from, *bytes);
    lochi_lock_drop(&all->lock);
    return is_there;
}

static void save_copy_header(recorder_header *out)
{
    recorder_state *all = &lochi_recorder_all;
    lochi_recorder_clock_mark();
    *out = *all->header;
    out->lost = all->lost;
    out->flags |= RECORDER_WAS_ENDED;
}

static loch_status save_write(lochi_new_file *file, uint8_t *copy, size_t chunk_bytes, uint64_t generation)
{
    size_t bytes;
    for (size_t index = 0; save_copy(index, copy, &bytes, generation); index++) {
        if (!bytes) continue;
        memset(copy + bytes, 0, chunk_bytes - bytes);
        LOCH_TRY_RETURN(lochi_new_file_write(file, copy, chunk_bytes));
    }
    return LOCH_OK;
}

loch_status loch_recorder_save(const char *path)
{
    LOCHI_NOT_CANCELLED;
    recorder_state *all = &lochi_recorder_all;
    if (!path || !*path) return LOCH_FAIL(INVALID, "saving a recording needs a path");
    uint8_t *page = lochi_zalloc(RECORDER_HEADER_BYTES);
    if (!page) return LOCH_FAIL(HOST_MEMORY, "no host memory to save a recording");
    lochi_lock_take(&all->lock);
    const bool is_on = all->is_on, is_ring = all->file < 0;
    const size_t chunk_bytes = all->chunk_bytes;
    const uint64_t generation = all->generation;
    if (is_on && is_ring) save_copy_header((recorder_header *)page);
    lochi_lock_drop(&all->lock);
    uint8_t *copy = is_on && is_ring ? lochi_alloc(chunk_bytes) : NULL;
    loch_status status = LOCH_OK;
    if (!is_on)
        status = LOCH_FAIL(NOT_FOUND, "nothing is being recorded: call loch_recorder_start first");
    else if (!is_ring)
        status = LOCH_FAIL(UNSUPPORTED, "the recording is written to a file already: there is no ring to save");
    else if (!copy)
        status = LOCH_FAIL(HOST_MEMORY, "no host memory to save a recording");
    if (status == LOCH_OK) {
        lochi_new_file file;
        status = lochi_new_file_open_private(&file, path);
        if (status == LOCH_OK) status = lochi_new_file_write(&file, page, RECORDER_HEADER_BYTES);
        if (status == LOCH_OK) status = save_write(&file, copy, chunk_bytes, generation);
        status = lochi_new_file_close(&file, status);
    }
    lochi_free(copy);
    lochi_free(page);
    return status;
}

/* SPDX-License-Identifier: MIT */
/* Cuts a complete file to what it uses. Chunks are large, so that threads seldom take one; in a short recording they
 * are nearly empty. A file of a few chunks is rearranged with chunks of the size that the fullest one needs, and the
 * emptiest last, cut to its records. Of a long file only the end is cut. */
#include "memory/recorder/shrink.h"
#include "base/heap.h"
#include "memory/recorder/state.h"
#include <errno.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define SHRINK_CHUNKS 256 /* of a file that is rearranged */
#define SHRINK_UNIT ((size_t)4096)
#define SHRINK_SLACK 16 /* zeros that may end a record */

/* Returns how many bytes of a chunk are used; 0 for one that was never begun. */
static size_t shrink_measure(const uint8_t *chunk)
{
    size_t bytes = lochi_recorder_all.chunk_bytes;
    if (atomic_load_explicit(&((const recorder_chunk *)chunk)->magic, memory_order_relaxed) != RECORDER_MAGIC) return 0;
    while (!chunk[bytes - 1]) /* the magic is not zero */
        bytes--;
    bytes = bytes < RECORDER_CHUNK_HEADER ? RECORDER_CHUNK_HEADER : bytes + SHRINK_SLACK;
    return bytes < lochi_recorder_all.chunk_bytes ? bytes : lochi_recorder_all.chunk_bytes;
}

/* Rearranges the chunks of a mapped file. Returns its new length; 0 if there is no memory. */
static size_t shrink_rearrange(uint8_t *file, size_t count)
{
    const size_t old = lochi_recorder_all.chunk_bytes;
    size_t used[SHRINK_CHUNKS], step = SHRINK_UNIT, last = SIZE_MAX, at = RECORDER_HEADER_BYTES;
    for (size_t i = 0; i < count; i++) {
        used[i] = shrink_measure(file + RECORDER_HEADER_BYTES + i * old);
        while (step < used[i])
            step += SHRINK_UNIT;
        if (used[i] && (last == SIZE_MAX || used[i] < used[last])) last = i;
    }
    if (last == SIZE_MAX) return RECORDER_HEADER_BYTES;
    uint8_t *kept = lochi_map(used[last]);
    if (!kept) return 0;
    memcpy(kept, file + RECORDER_HEADER_BYTES + last * old, used[last]);
    for (size_t i = 0; i < count; i++) { /* every chunk moves to the front, so none is overwritten before */
        if (!used[i] || i == last) continue;
        memmove(file + at, file + RECORDER_HEADER_BYTES + i * old, step);
        at += step;
    }
    memcpy(file + at, kept, used[last]);
    lochi_recorder_all.header->chunk_bytes = (uint32_t)step;
    lochi_unmap(kept, used[last]);
    return at + used[last];
}

int lochi_recorder_shrink(void)
{
    const recorder_state *all = &lochi_recorder_all;
    size_t length = RECORDER_HEADER_BYTES + (size_t)all->file_chunks * all->chunk_bytes;
    if (all->file_chunks && all->file_chunks <= SHRINK_CHUNKS) {
        uint8_t *file = mmap(NULL, length, PROT_READ | PROT_WRITE, MAP_SHARED, all->file, 0);
        if (file != MAP_FAILED) {
            const size_t shorter = shrink_rearrange(file, (size_t)all->file_chunks);
            (void)munmap(file, length);
            if (shorter) length = shorter;
        }
    }
    return ftruncate(all->file, (off_t)length) == 0 ? 0 : errno;
}

/* SPDX-License-Identifier: MIT */
/* Fills memory of a device from files. The bytes of all targets, one behind the other, are cut into pieces. A few
 * slots of pinned memory hold one piece each. Threads read the next pieces while the copies of earlier ones run:
 *
 *     file ──threads──► slot 0 ─┐
 *          ──threads──► slot 1 ─┼─copies on the stream, an event behind each piece──► device
 *          ──threads──► slot 2 ─┘
 *
 * The calling thread reads too, queues the copies of a piece as soon as all of it is there, and allows a slot to be
 * read into again when the event of its last piece has passed. So no thread writes to memory that a copy still reads.
 *
 * A failure stops the readers; then the caller waits for the stream before the slots are given back. */
#include "pieces.h"
#include "common.h"
#include "read.h"
#include <loch/registry.h>

/* Three slots: one is copied, one is ready or being copied, one is read. */
#define PIECES_SLOTS 3

/* Sizes of a piece. The first read and the last copy have nothing to overlap with, so a piece is a sixteenth of a small
 * load. Copies of 2 MiB use the bus well. Larger pieces than 8 MiB gain nothing and leave the processor's cache. */
#define PIECES_SHARE 16
#define PIECES_MIN ((size_t)2 << 20)
#define PIECES_MAX ((size_t)8 << 20)
/* A piece is read in so many parts, so that all threads work on it. */
#define PIECES_PARTS 8

typedef struct pieces {
    const safetensors_target *targets;
    size_t count;
    size_t bytes;                     /* of all targets */
    size_t piece_bytes;               /* of a piece but the last */
    size_t part_bytes;                /* of what a thread reads at a time */
    size_t slots;                     /* number of slots, at least 1 */
    loch_allocator *pinned;           /* allocator of the slots */
    loch_buffer *memory;              /* the slots, one behind the other */
    char *address;                    /* of `memory` */
    loch_stream *stream;              /* of the copies */
    loch_event *passed[PIECES_SLOTS]; /* behind the copies of the last piece of each slot */

    pthread_mutex_t lock;
    pthread_cond_t changed; /* a piece is complete, a slot is free, or the readers stop */
    /* under the lock */
    size_t next;                  /* first byte that no thread has taken */
    size_t allowed;               /* first byte whose slot is still in use */
    size_t missing[PIECES_SLOTS]; /* bytes that are not read yet, of the piece in each slot */
    bool is_stopped;
    safetensors_read_failure failure; /* the first; status LOCH_OK for none */
} pieces;

static size_t pieces_min(size_t a, size_t b)
{
    return a < b ? a : b;
}

/* --- reading --- */

/* Returns the target with a byte. */
static const safetensors_target *pieces_find(const pieces *p, size_t at)
{
    size_t low = 0, high = p->count; /* targets[low].start <= at < targets[high].start */
    while (high - low > 1) {
        const size_t middle = low + (high - low) / 2;
        if (p->targets[middle].start <= at)
            low = middle;
        else
            high = middle;
    }
    return &p->targets[low];
}

/* Returns where a byte lies in the slots. */
static size_t pieces_place(const pieces *p, size_t at)
{
    return at / p->piece_bytes % p->slots * p->piece_bytes + at % p->piece_bytes;
}

/* Reads bytes [first, end), which lie in one piece. Neighbours in the file are read in one call. */
static bool pieces_read_part(const pieces *p, size_t first, size_t end, safetensors_read_failure *out)
{
    const safetensors_target *target = pieces_find(p, first), *last = p->targets + p->count - 1;
    char *to = p->address + pieces_place(p, first);
    while (first < end) {
        const safetensors_file *file = target->file;
        const uint64_t offset = target->offset + (first - target->start);
        while (target < last && target[1].file == file && target[1].offset == target->offset + target->bytes)
            target++;
        const size_t bytes = pieces_min(target->start + target->bytes, end) - first;
        if (!lochi_safetensors_read_range(file, offset, to, bytes, out)) return false;
        first += bytes;
        to += bytes;
        target++;
    }
    return true;
}

/* Takes the next part, reads it, and notes it. Called under the lock, which is open while it reads. */
static void pieces_read_next(pieces *p)
{
    const size_t first = p->next, piece = first / p->piece_bytes;
    const size_t end = pieces_min(pieces_min(first + p->part_bytes, (piece + 1) * p->piece_bytes), p->bytes);
    safetensors_read_failure failure;
    p->next = end;
    pthread_mutex_unlock(&p->lock);
    const bool is_read = pieces_read_part(p, first, end, &failure);
    pthread_mutex_lock(&p->lock);
    size_t *missing = &p->missing[piece % p->slots];
    *missing -= end - first;
    if (!is_read && p->failure.status == LOCH_OK) p->failure = failure;
    p->is_stopped |= !is_read;
    if (!*missing || p->is_stopped) pthread_cond_broadcast(&p->changed);
}

/* A thread that reads until there is nothing left, or the readers stop. */
static void *pieces_help(void *user)
{
    pieces *p = user;
    pthread_mutex_lock(&p->lock);
    while (!p->is_stopped && p->next < p->bytes)
        if (p->next < p->allowed)
            pieces_read_next(p);
        else
            pthread_cond_wait(&p->changed, &p->lock);
    pthread_mutex_unlock(&p->lock);
    return NULL;
}

/* Reads until a piece is complete. Returns false if the readers have stopped. */
static bool pieces_complete(pieces *p, size_t piece)
{
    const size_t *missing = &p->missing[piece % p->slots];
    pthread_mutex_lock(&p->lock);
    while (*missing && !p->is_stopped)
        if (p->next < pieces_min(p->allowed, p->bytes))
            pieces_read_next(p);
        else
            pthread_cond_wait(&p->changed, &p->lock);
    const bool is_complete = !p->is_stopped;
    pthread_mutex_unlock(&p->lock);
    return is_complete;
}

/* Allows a piece to be read: its slot is free. */
static void pieces_allow(pieces *p, size_t piece)
{
    const size_t first = piece * p->piece_bytes;
    pthread_mutex_lock(&p->lock);
    p->missing[piece % p->slots] = pieces_min(p->piece_bytes, p->bytes - first);
    p->allowed = first + p->piece_bytes;
    pthread_cond_broadcast(&p->changed);
    pthread_mutex_unlock(&p->lock);
}

static void pieces_stop(pieces *p)
{
    pthread_mutex_lock(&p->lock);
    p->is_stopped = true;
    pthread_cond_broadcast(&p->changed);
    pthread_mutex_unlock(&p->lock);
}

/* --- copying --- */

/* Queues the copy of bytes [first, end), which lie in one piece and one target. */
static loch_status pieces_copy_part(const pieces *p, const safetensors_target *target, size_t first, size_t end)
{
    const loch_buffer_copy_options options = {.size = sizeof options, .stream = p->stream, .wait = LOCH_WAIT_QUEUED};
    loch_buffer *to = NULL, *from = NULL;
    loch_status status =
        loch_buffer_slice(loch_tensor_get_buffer(target->tensor),
                          loch_tensor_get_offset(target->tensor) + (first - target->start), end - first, &to);
    if (status == LOCH_OK) status = loch_buffer_slice(p->memory, pieces_place(p, first), end - first, &from);
    if (status == LOCH_OK) status = loch_buffer_copy(to, from, &options);
    loch_buffer_release(from);
    loch_buffer_release(to);
    return status;
}

/* Queues the copies of a piece, and the event behind them. */
static loch_status pieces_copy(const pieces *p, size_t piece)
{
    size_t first = piece * p->piece_bytes;
    const size_t end = pieces_min(first + p->piece_bytes, p->bytes);
    for (const safetensors_target *target = pieces_find(p, first); first < end; target++) {
        const size_t stop = pieces_min(target->start + target->bytes, end);
        LOCH_RETURN(pieces_copy_part(p, target, first, stop));
        first = stop;
    }
    return loch_event_record(p->passed[piece % p->slots], p->stream);
}

/* Reads and copies all pieces. With two slots and more, the event that is waited for is not that of the copy which was
 * just queued, but of the one before. */
static loch_status pieces_run(pieces *p)
{
    const size_t count = (p->bytes + p->piece_bytes - 1) / p->piece_bytes, lag = p->slots > 1;
    for (size_t piece = 0; piece < count; piece++) {
        if (!pieces_complete(p, piece)) return lochi_safetensors_read_tell(&p->failure);
        LOCH_RETURN(pieces_copy(p, piece));
        if (piece < lag || piece - lag + p->slots >= count) continue;
        LOCH_RETURN(loch_event_sync(p->passed[(piece - lag) % p->slots]));
        pieces_allow(p, piece - lag + p->slots);
    }
    return LOCH_OK;
}

/* --- memory --- */

/* Allocates the slots and waits until the host may write to them: they are free in the order of their stream. If pinned
 * memory is short, one slot is enough. */
static loch_status pieces_alloc(pieces *p)
{
    loch_device *device = loch_stream_get_device(p->stream);
    const loch_attributes attributes = {.bits = LOCH_ATTRIBUTE_ON_HOST | LOCH_ATTRIBUTE_GPU_COMPATIBLE};
    LOCH_RETURN(loch_device_acquire_allocator(device, attributes, LOCH_FALLBACK_PAGEABLE, &p->pinned));
    loch_device *owner = loch_allocator_get_device(p->pinned); /* the host, if there is no pinned memory */
    loch_stream *stream = owner == device ? p->stream : loch_stream_get_default(owner);
    const loch_request request = {.size = sizeof request, .alignment = 64, .stream = stream};
    loch_status status = loch_buffer_create(p->pinned, p->slots * p->piece_bytes, &request, &p->memory);
    while (status != LOCH_OK && --p->slots)
        status = loch_buffer_create(p->pinned, p->slots * p->piece_bytes, &request, &p->memory);
    LOCH_RETURN(status);
    p->address = loch_buffer_get_address(p->memory);
    for (size_t i = 0; i < p->slots; i++)
        LOCH_RETURN(loch_event_create(device, LOCH_EVENT_PLAIN, &p->passed[i]));
    return loch_stream_sync(stream);
}

static void pieces_free(pieces *p)
{
    for (size_t i = 0; i < PIECES_SLOTS; i++)
        loch_event_destroy(p->passed[i]);
    loch_buffer_release(p->memory); /* ordered after the copies */
    loch_allocator_release(p->pinned);
}

/* Runs with helpers. Where a thread cannot be started, the others do its work. */
static loch_status pieces_run_shared(pieces *p)
{
    pthread_t threads[SAFETENSORS_READ_THREADS_MAX];
    pthread_mutex_init(&p->lock, NULL);
    pthread_cond_init(&p->changed, NULL);
    for (size_t i = 0; i < p->slots; i++)
        pieces_allow(p, i);
    const size_t parts = (p->bytes + p->part_bytes - 1) / p->part_bytes;
    size_t started = lochi_safetensors_read_start(pieces_help, p, lochi_safetensors_read_helpers(parts), threads);
    const loch_status status = pieces_run(p);
    if (status != LOCH_OK) pieces_stop(p);
    while (started)
        pthread_join(threads[--started], NULL);
    pthread_cond_destroy(&p->changed);
    pthread_mutex_destroy(&p->lock);
    return status;
}

loch_status lochi_safetensors_pieces_load(safetensors_target *targets, size_t count, loch_stream *stream,
                                          loch_wait wait)
{
    pieces p = {.targets = targets, .count = count, .stream = stream};
    for (size_t i = 0; i < count; i++) {
        targets[i].start = p.bytes;
        p.bytes += targets[i].bytes;
    }
    if (!p.bytes) return LOCH_OK;
    const size_t page = 4096, share = (p.bytes / PIECES_SHARE + page - 1) / page * page;
    const size_t wanted = share < PIECES_MIN ? PIECES_MIN : pieces_min(share, PIECES_MAX);
    p.piece_bytes = pieces_min(wanted, p.bytes);
    p.part_bytes = (p.piece_bytes + PIECES_PARTS - 1) / PIECES_PARTS;
    p.slots = pieces_min(PIECES_SLOTS, (p.bytes + p.piece_bytes - 1) / p.piece_bytes);
    loch_status status = pieces_alloc(&p);
    if (status != LOCH_OK) {
        pieces_free(&p);
        return status;
    }
    status = pieces_run_shared(&p);
    if (status == LOCH_OK && wait == LOCH_WAIT_END) status = loch_stream_sync(stream);
    const loch_error failed = *loch_error_get();
    if (status != LOCH_OK) (void)!loch_stream_sync(stream); /* nothing is queued any more when the slots go */
    pieces_free(&p);
    return status == LOCH_OK ? status
                             : loch_error_set(status, failed.driver, failed.driver_code, "%s", failed.sentence);
}

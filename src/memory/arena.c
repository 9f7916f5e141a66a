/* SPDX-License-Identifier: MIT */
/* The arena wrapper: blocks are cut one after the other from pieces of the wrapped allocator, and all of them are
 * dropped by a reset.
 *
 *     pieces ── present piece | block | block | block |  at ──► ... end |
 *                  └─ earlier pieces, full or left because a block did not fit
 *
 * No block has a record. What is known of them is counted: blocks that are live (`live` of the allocator, which keeps
 * it alive after its last reference), and the requested bytes since the last reset. A free counts its block out and
 * gives no memory back.
 *
 * All blocks belong to one stream. A reset orders that stream after the streams of recorded uses, so the next block may
 * have the memory at once. If there were several pieces, they go back, and the next piece is as long as all of them:
 * a program that repeats itself has one piece from its second round on, and a reset sets a pointer. */
#include "memory/allocator.h"
#include "base/checked.h"
#include "base/fail.h"
#include "base/heap.h"
#include "kit/text.h"
#include "kit/sized.h"
#include "device/copy.h"
#include "device/device.h"
#include "device/stream_life.h"
#include <loch/wrapper.h>

#define ARENA_PIECE ((size_t)1 << 20)
#define ARENA_PIECE_MAX ((size_t)64 << 20) /* pieces double up to here; longer ones are those that a block needs */
#define ARENA_HOST_UNIT 16

typedef struct arena_piece {
    struct arena_piece *next;
    char *start;
    size_t bytes;
} arena_piece;

typedef struct arena {
    lochi_bump take;         /* first: the dispatch uses it (memory/allocator.c) */
    loch_allocator *wrapped; /* borrowed; the allocator around this struct retains it */
    loch_allocator *allocator;
    loch_stream *stream; /* remembered */
    loch_tag tag;
    arena_piece *pieces;  /* the present one first */
    size_t held;          /* bytes of all pieces */
    size_t limit;         /* of `held`; SIZE_MAX for none */
    size_t next_bytes;    /* length of the next piece */
    loch_stream **others; /* remembered streams of recorded uses */
    size_t others_count;
    loch_stats peaks; /* of the segment; only peaks are set */
} arena;

/* --- figures --- */

static size_t arena_count_live(const arena *self)
{
    return atomic_load_explicit(&self->allocator->live, memory_order_relaxed);
}

static void arena_set_live(const arena *self, size_t live)
{
    atomic_store_explicit(&self->allocator->live, live, memory_order_relaxed);
}

/* Returns the bytes that are not left: blocks, and the ends of earlier pieces. */
static size_t arena_count_taken(const arena *self)
{
    return self->held - (size_t)(self->take.end - self->take.at);
}

static void arena_raise(uint64_t *peak, uint64_t value)
{
    if (value > *peak) *peak = value;
}

/* Figures only rise between two frees, so their peaks are noted before something falls. */
static void arena_note_peaks(arena *self)
{
    arena_raise(&self->peaks.peak_blocks, arena_count_live(self));
    arena_raise(&self->peaks.peak_requested_bytes, self->take.requested);
    arena_raise(&self->peaks.peak_allocated_bytes, arena_count_taken(self));
    arena_raise(&self->peaks.peak_reserved_bytes, self->held);
}

static loch_status arena_get_stats(void *user, loch_tag tag, loch_stats *out)
{
    arena *self = user;
    if (tag) return LOCH_FAIL(UNSUPPORTED, "an arena keeps no statistics by tag: its pieces have a tag");
    arena_note_peaks(self);
    *out = self->peaks;
    out->size = sizeof *out;
    out->allocs = self->take.served;
    out->blocks = arena_count_live(self);
    out->frees = out->allocs - out->blocks;
    out->requested_bytes = self->take.requested;
    out->allocated_bytes = arena_count_taken(self);
    out->largest_bytes = self->take.largest;
    out->limit_bytes = self->limit == SIZE_MAX ? 0 : self->limit;
    out->reserved_bytes = self->held;
    out->cached_bytes = out->largest_free_bytes = (size_t)(self->take.end - self->take.at);
    return LOCH_OK;
}

static void arena_new_segment(void *user)
{
    arena *self = user;
    self->peaks = (loch_stats){.size = sizeof self->peaks};
    self->take.largest = 0;
}

/* --- pieces --- */

static loch_status arena_refuse(const arena *self, size_t bytes)
{
    const size_t missing = bytes > self->limit ? bytes - self->limit : self->held + bytes - self->limit;
    (void)LOCH_FAIL(LIMIT, "%s more do not fit: arena \"%s\" holds %s and may hold %s", LOCHI_SIZE(bytes),
                    self->allocator->name, LOCHI_SIZE(self->held), LOCHI_SIZE(self->limit));
    lochi_error_note_short(self->allocator->name, missing, bytes > self->limit ? LOCH_REMEDY_NONE : LOCH_REMEDY_FREE);
    return LOCH_E_LIMIT;
}

static loch_status arena_get_piece(arena *self, size_t bytes, size_t alignment, arena_piece *piece)
{
    const loch_request request = {.size = sizeof request,
                                  .bytes = bytes,
                                  .alignment = alignment > self->take.unit ? alignment : self->take.unit,
                                  .stream = self->stream,
                                  .tag = self->tag,
                                  .flags = LOCH_ALLOC_NO_RETRY};
    void *start;
    LOCH_TRY_RETURN(lochi_allocator_try(self->wrapped, &request, &start));
    piece->start = start;
    piece->bytes = bytes;
    self->held += bytes;
    return LOCH_OK;
}

/* Gets a piece for a block of `bytes`: of the next length, or of the block's if there is no memory for that. */
static loch_status arena_grow(arena *self, size_t bytes, size_t alignment)
{
    const size_t room = self->limit - self->held;
    if (bytes > room) return arena_refuse(self, bytes);
    const size_t wanted = self->next_bytes < room ? self->next_bytes : room & ~(self->take.unit - 1);
    arena_piece *piece = lochi_alloc(sizeof *piece);
    if (!piece) return LOCH_FAIL(HOST_MEMORY, "no host memory for a piece of arena \"%s\"", self->allocator->name);
    const loch_error before = lochi_error_save();
    loch_status status = wanted > bytes ? arena_get_piece(self, wanted, alignment, piece) : LOCH_E_DEVICE_MEMORY;
    if (status != LOCH_OK && status != LOCH_E_HOST_MEMORY) {
        lochi_error_restore(&before); /* the longer piece was not asked for by the program */
        status = arena_get_piece(self, bytes, alignment, piece);
    }
    if (status != LOCH_OK) {
        lochi_free(piece);
        return status;
    }
    piece->next = self->pieces;
    self->pieces = piece;
    self->take.at = piece->start;
    self->take.end = piece->start + piece->bytes;
    if (self->next_bytes < ARENA_PIECE_MAX) self->next_bytes *= 2;
    return LOCH_OK;
}

/* Gives all pieces back. */
static void arena_drop_pieces(arena *self)
{
    for (arena_piece *piece = self->pieces, *next; piece; piece = next) {
        next = piece->next;
        lochi_allocator_abandon(self->wrapped, piece->start, 0, NULL);
        lochi_free(piece);
    }
    self->pieces = NULL;
    self->take.at = self->take.end = NULL;
    self->held = 0;
}

/* --- blocks --- */

/* Skips bytes of the present piece, so that the next block is aligned. Returns false if it does not fit then. */
static bool arena_align(arena *self, size_t bytes, size_t alignment)
{
    const size_t skipped = -(uintptr_t)self->take.at & (alignment - 1), left = (size_t)(self->take.end - self->take.at);
    if (!self->take.at || skipped > left || bytes > left - skipped) return false;
    self->take.at += skipped;
    return true;
}

/* Takes a block from a new piece. Goes on with the piece before it if that has more left. */
static loch_status arena_take_more(arena *self, size_t bytes, size_t whole, size_t alignment, void **out)
{
    const lochi_bump before = self->take;
    LOCH_TRY_RETURN(arena_grow(self, whole, alignment));
    (void)lochi_bump_take(&self->take, bytes, out); /* fits: the piece is as long as the block at least */
    arena_piece *piece = self->pieces, *old = piece->next;
    if (!old || before.end - before.at <= self->take.end - self->take.at) return LOCH_OK;
    piece->next = old->next;
    old->next = piece;
    self->pieces = old;
    self->take.at = before.at;
    self->take.end = before.end;
    return LOCH_OK;
}

/* Remembers a stream that uses blocks beside the arena's own. */
static loch_status arena_add_stream(arena *self, loch_stream *stream)
{
    if (stream == self->stream) return LOCH_OK;
    for (size_t i = 0; i < self->others_count; i++)
        if (self->others[i] == stream) return LOCH_OK;
    loch_stream **others = lochi_realloc(self->others, (self->others_count + 1) * sizeof(loch_stream *));
    if (!others) return LOCH_FAIL(HOST_MEMORY, "no host memory for a further stream of an arena");
    self->others = others;
    others[self->others_count++] = lochi_stream_retain(stream);
    return LOCH_OK;
}

/* Prepares a block for the stream of its request: any but the default stream is ordered after the arena's, because the
 * memory may have been used there before a reset. */
static loch_status arena_join_stream(arena *self, loch_stream *stream)
{
    if (stream == self->stream || stream == &self->allocator->device->default_stream) return LOCH_OK;
    LOCH_TRY_RETURN(lochi_copy_order_remembered(self->stream, stream));
    return arena_add_stream(self, stream);
}

static loch_status arena_zero(const arena *self, void *block, size_t bytes, loch_stream *stream)
{
    return loch_fill_on(block, bytes, "", 1,
                        stream == &self->allocator->device->default_stream ? self->stream : stream);
}

static loch_status arena_alloc(void *user, const loch_request *request, void **out)
{
    arena *self = user;
    const size_t bytes = lochi_request_round(request), alignment = request->alignment;
    size_t whole;
    if (request->max_bytes || request->address || request->flags & LOCH_ALLOC_ONE_HANDLE)
        return LOCH_FAIL(UNSUPPORTED, "blocks of an arena do not grow, and have no handle or address of their own");
    if (!lochi_round_up(bytes, self->take.unit, &whole))
        return LOCH_FAIL(OVERFLOW, "%zu bytes do not fit the address space", bytes);
    LOCH_TRY_RETURN(arena_join_stream(self, request->stream));
    const bool fits = alignment <= self->take.unit || arena_align(self, whole, alignment);
    if (!fits || !lochi_bump_take(&self->take, bytes, out))
        LOCH_TRY_RETURN(arena_take_more(self, bytes, whole, alignment, out));
    const loch_status status =
        request->flags & LOCH_ALLOC_ZEROED ? arena_zero(self, *out, bytes, request->stream) : LOCH_OK;
    if (status == LOCH_OK)
        arena_set_live(self, arena_count_live(self) + 1);
    else
        *out = NULL; /* the bytes are lost until the reset */
    return status;
}

static loch_status arena_find_piece(const arena *self, const void *address)
{
    for (const arena_piece *piece = self->pieces; piece; piece = piece->next)
        if ((uintptr_t)address - (uintptr_t)piece->start < piece->bytes) return LOCH_OK;
    return LOCH_FAIL(FOREIGN, "%p is not in arena \"%s\"", address, self->allocator->name);
}

static loch_status arena_free(void *user, void *address, size_t bytes, loch_stream *stream)
{
    arena *self = user;
    (void)bytes;
    (void)stream; /* the caller has ordered it before the arena's */
    LOCH_TRY_RETURN(arena_find_piece(self, address));
    const size_t live = arena_count_live(self);
    if (!live) return LOCH_FAIL(DOUBLE_FREE, "arena \"%s\" has no live block", self->allocator->name);
    arena_note_peaks(self);
    arena_set_live(self, live - 1);
    return LOCH_OK;
}

static loch_status arena_find(void *user, const void *address, loch_block *out)
{
    (void)out;
    LOCH_TRY_RETURN(arena_find_piece(user, address));
    return LOCH_FAIL(UNSUPPORTED, "an arena keeps no records of its blocks");
}

static loch_status arena_walk(void *user, loch_block_visitor *visitor, void *visitor_user)
{
    (void)user, (void)visitor, (void)visitor_user;
    return LOCH_FAIL(UNSUPPORTED, "an arena keeps no records of its blocks");
}

static loch_status arena_record_use(void *user, void *address, loch_stream *stream)
{
    LOCH_TRY_RETURN(arena_find_piece(user, address));
    return arena_add_stream(user, stream);
}

/* --- resets --- */

/* Orders the arena's stream after another one. The work of a stream that was destroyed is waited for, with the
 * device's. */
static loch_status arena_follow(const arena *self, loch_stream *other)
{
    uint32_t mark;
    if (other == self->stream) return LOCH_OK;
    if (!lochi_stream_enter(self->stream, &mark)) return loch_device_sync(self->allocator->device);
    const loch_status status = atomic_load_explicit(&other->closed, memory_order_acquire)
                                   ? loch_device_sync(self->allocator->device)
                                   : lochi_copy_order_remembered(other, self->stream);
    lochi_stream_leave(mark);
    return status;
}

/* Orders the arena's stream after those of recorded uses, and forgets these. */
static loch_status arena_forget_uses(arena *self)
{
    while (self->others_count) {
        loch_stream *other = self->others[self->others_count - 1];
        LOCH_TRY_RETURN(arena_follow(self, other));
        self->others_count--;
        lochi_stream_release(other);
    }
    return LOCH_OK;
}

loch_status loch_arena_reset(loch_allocator *allocator, loch_stream *stream)
{
    if (!allocator || allocator->ops.alloc != arena_alloc) return LOCH_FAIL(INVALID, "the allocator is not an arena");
    arena *self = allocator->self;
    if (stream) LOCH_TRY_RETURN(lochi_stream_check(stream, allocator->device));
    if (stream) LOCH_TRY_RETURN(arena_follow(self, stream));
    LOCH_TRY_RETURN(arena_forget_uses(self));
    arena_note_peaks(self);
    self->take.requested = 0;
    arena_set_live(self, 0);
    if (self->pieces && self->pieces->next) {
        self->next_bytes = self->held;
        arena_drop_pieces(self);
    } else if (self->pieces) {
        self->take.at = self->pieces->start;
    }
    return LOCH_OK;
}

/* --- the wrapper --- */

static void arena_destroy(void *user)
{
    arena *self = user;
    const loch_error saved = lochi_error_save();
    if (arena_forget_uses(self) != LOCH_OK) (void)!loch_device_sync(self->stream->device);
    while (self->others_count)
        lochi_stream_release(self->others[--self->others_count]);
    lochi_error_restore(&saved);
    arena_drop_pieces(self);
    lochi_stream_release(self->stream);
    lochi_free(self->others);
    lochi_free(self);
}

static const loch_allocator_ops arena_ops = {
    .size = sizeof arena_ops,
    .kind = "arena",
    .traits = LOCH_TRAIT_ZEROES,
    .lost_traits = LOCH_TRAIT_THREAD_SAFE | LOCH_TRAIT_TRACKS_SIZES | LOCH_TRAIT_ALLOCATES_EMPTY,
    .alloc = arena_alloc,
    .free = arena_free,
    .destroy = arena_destroy,
    .find = arena_find,
    .walk = arena_walk,
    .record_use = arena_record_use,
    .get_stats = arena_get_stats,
    .new_segment = arena_new_segment,
};

loch_status loch_arena_create(loch_allocator *wrapped, const char *name, const loch_arena_options *options,
                              loch_allocator **out)
{
    if (out) *out = NULL;
    if (!wrapped || !out) return LOCH_FAIL(INVALID, "an arena needs an allocator to wrap and an out pointer");
    loch_arena_options read = {.size = sizeof read};
    LOCH_TRY_RETURN(lochi_sized_read("a struct of arena options", options, &read, sizeof read));
    loch_stream *stream = read.stream ? read.stream : &wrapped->device->default_stream;
    LOCH_TRY_RETURN(lochi_stream_check(stream, wrapped->device));
    arena *self = lochi_zalloc(sizeof *self);
    if (!self) return LOCH_FAIL(HOST_MEMORY, "no host memory for an arena");
    self->wrapped = wrapped;
    self->tag = read.tag;
    self->limit = read.limit_bytes ? read.limit_bytes : SIZE_MAX;
    self->take.unit = loch_device_can(wrapped->device, LOCH_CAN_HOST_ACCESS)
                          ? ARENA_HOST_UNIT
                          : wrapped->device->properties.alignment_bytes;
    self->next_bytes = read.piece_bytes ? read.piece_bytes : ARENA_PIECE;
    self->peaks.size = sizeof self->peaks;
    const loch_status status = lochi_wrapper_create(wrapped, name, &arena_ops, self, LOCHI_ACCOUNT_NOTES, out);
    if (status != LOCH_OK) {
        lochi_free(self);
        return status;
    }
    self->stream = lochi_stream_retain(stream);
    self->allocator = *out;
    (*out)->arena = &self->take;
    return LOCH_OK;
}

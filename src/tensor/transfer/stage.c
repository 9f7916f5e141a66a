/* SPDX-License-Identifier: MIT */
/* Copies through the host, for copies that a device cannot do: other types, or layouts whose rows are too short.
 *
 *     device ──gather──► staging (source order) ──copy or convert──► staging (target order) ──scatter──► device
 *
 * The staging memory of a side keeps the order of that side's axes, without the gaps. So gather and scatter use rows as
 * long as that side has, and the host does the rest, from one order into the other. A source that would need many calls
 * is read in one piece, with its gaps. Pieces limit the memory. Staging memory is pinned if the device supports it. A
 * side that the host can access needs no staging. */
#include "tensor/transfer/stage.h"
#include "base/fail.h"
#include "memory/live/live.h"
#include "tensor/transfer/rows.h"
#include <loch/registry.h>

#define STAGE_BYTES ((size_t)8 << 20) /* size of one side of a piece */
#define STAGE_PIECE_NS 10000          /* cost of waiting for both sides of a piece */
#define STAGE_ROW_NS 2                /* on the host: access that is not contiguous is as slow as memory */
#define STAGE_CALLS 16                /* a source that needs more calls is read with its gaps if that is faster */
/* a source is read with its gaps if it is at most so many times longer than its elements */
#define STAGE_GAPS 4

/* Host memory between the two sides. */
typedef struct stage_memory {
    loch_allocator *allocator;
    char *address;
    size_t bytes;
} stage_memory;

/* Returns the stream for work on a device: the caller's stream if it belongs to the device, otherwise NULL for the
 * default stream. */
static loch_stream *stage_stream(const lochi_transfer *transfer, const loch_device *device)
{
    const bool is_its = transfer->stream && loch_stream_get_device(transfer->stream) == device;
    return is_its ? transfer->stream : NULL;
}

/* Takes staging memory and waits for its stream: the memory is free in the order of that stream, and the host writes to
 * it immediately. */
static loch_status stage_take(const lochi_transfer *transfer, loch_device *device, size_t bytes, stage_memory *out)
{
    const loch_attributes attributes = {.bits = LOCH_ATTRIBUTE_ON_HOST | LOCH_ATTRIBUTE_GPU_COMPATIBLE};
    LOCH_TRY_RETURN(loch_device_acquire_allocator(device, attributes, LOCH_FALLBACK_PAGEABLE, &out->allocator));
    loch_device *owner = loch_allocator_get_device(out->allocator); /* the host, if there is no pinned memory */
    loch_stream *stream = stage_stream(transfer, owner);
    const loch_request request = {.size = sizeof request, .bytes = bytes, .alignment = 64, .stream = stream};
    void *address;
    lochi_live_hide();
    const loch_status status = loch_allocator_alloc(out->allocator, &request, &address);
    lochi_live_show();
    LOCH_TRY_RETURN(status);
    out->address = address;
    out->bytes = bytes;
    return loch_stream_sync(stream ? stream : loch_stream_get_default(owner));
}

/* Gives staging memory back. All work that used it has ended. */
static loch_status stage_give(stage_memory *memory)
{
    const loch_status status = memory->address ? loch_free(memory->allocator, memory->address) : LOCH_OK;
    loch_allocator_release(memory->allocator);
    return status;
}

/* --- pieces --- */

/* A part of the copy: a range of indices of every axis. */
typedef struct stage_piece {
    size_t axes, count; /* number of elements */
    size_t sizes[LOCH_DIMENSIONS_MAX];
    char *to;
    const char *from;
} stage_piece;

/* Computes how many indices of each axis a piece has. Inner axes are whole as far as they fit. */
static void stage_cut(const lochi_strided *s, size_t *steps)
{
    const size_t bytes = s->to_bytes > s->from_bytes ? s->to_bytes : s->from_bytes;
    size_t room = STAGE_BYTES / bytes;
    for (size_t i = s->axes; i-- > 0;) {
        steps[i] = s->sizes[i] < room ? s->sizes[i] : room;
        room /= steps[i];
    }
}

static size_t stage_count(const size_t *sizes, size_t axes)
{
    size_t count = 1;
    for (size_t i = 0; i < axes; i++)
        count *= sizes[i];
    return count;
}

static ptrdiff_t stage_length(ptrdiff_t stride)
{
    return stride < 0 ? -stride : stride;
}

/* Computes the layout of a source's piece without gaps: strides in the order of the source's own, with their signs, and
 * 0 where the source repeats; the bytes before the element with all indices 0; and all bytes. */
static void stage_pack(const size_t *sizes, size_t axes, const ptrdiff_t *strides, size_t element_bytes, ptrdiff_t *out,
                       size_t *before, size_t *bytes)
{
    bool is_placed[LOCH_DIMENSIONS_MAX] = {false};
    size_t next = element_bytes;
    *before = 0;
    for (size_t round = 0; round < axes; round++) {
        size_t shortest = axes;
        for (size_t i = 0; i < axes; i++)
            if (!is_placed[i] && (shortest == axes || stage_length(strides[i]) < stage_length(strides[shortest])))
                shortest = i;
        is_placed[shortest] = true;
        out[shortest] = 0;
        if (!strides[shortest]) continue;
        out[shortest] = strides[shortest] < 0 ? -(ptrdiff_t)next : (ptrdiff_t)next;
        if (strides[shortest] < 0) *before += (sizes[shortest] - 1) * next;
        next *= sizes[shortest];
    }
    *bytes = next;
}

/* Computes the bytes that a source's piece reaches before its first element and from it on. */
static void stage_reach(const size_t *sizes, size_t axes, const ptrdiff_t *strides, size_t element_bytes,
                        size_t *before, size_t *from)
{
    *before = 0;
    *from = element_bytes;
    for (size_t i = 0; i < axes; i++) {
        const size_t reach = (sizes[i] - 1) * (size_t)stage_length(strides[i]);
        if (strides[i] < 0)
            *before += reach;
        else
            *from += reach;
    }
}

/* --- gather and scatter --- */

/* How a piece of a source is copied to the host. */
typedef struct stage_gather {
    bool is_whole;                          /* with its gaps, in one copy */
    size_t before, bytes;                   /* of the staging: before the first element; in total */
    ptrdiff_t strides[LOCH_DIMENSIONS_MAX]; /* in the staging */
    lochi_strided strided;                  /* from the device into the staging; unused if `is_whole` */
    lochi_rows_plan plan;
    uint64_t ns;
} stage_gather;

/* Plans a gather without gaps. Along axes on which the source repeats, one index is copied for all. */
static void stage_plan_rows(const lochi_strided *s, const size_t *sizes, stage_gather *out)
{
    size_t apart[LOCH_DIMENSIONS_MAX];
    for (size_t i = 0; i < s->axes; i++)
        apart[i] = s->from[i] ? sizes[i] : 1;
    stage_pack(sizes, s->axes, s->from, s->from_bytes, out->strides, &out->before, &out->bytes);
    lochi_strided_order(apart, s->axes, s->from_bytes, out->strides, s->from, &out->strided);
    out->plan = lochi_rows_plan_make(&out->strided, LOCHI_ROWS_PINNED);
    out->ns = out->plan.ns;
    out->is_whole = false;
}

static void stage_plan_whole(const lochi_strided *s, const size_t *sizes, stage_gather *out)
{
    size_t behind;
    stage_reach(sizes, s->axes, s->from, s->from_bytes, &out->before, &behind);
    out->bytes = out->before + behind;
    out->ns = lochi_bus_ns(out->bytes);
    out->is_whole = true;
    for (size_t i = 0; i < s->axes; i++)
        out->strides[i] = s->from[i];
}

/* Plans a gather, for a piece of full size. Gaps are read only for widely scattered sources: other work may write there
 * at the same time. That is harmless, but tools that check the order of streams report it. */
static void stage_plan_gather(const lochi_strided *s, const size_t *sizes, stage_gather *out)
{
    stage_gather whole;
    stage_plan_whole(s, sizes, &whole);
    stage_plan_rows(s, sizes, out);
    const bool is_scattered = out->plan.calls > STAGE_CALLS && whole.bytes / STAGE_GAPS <= out->bytes;
    if (is_scattered && whole.ns < out->ns) *out = whole;
}

/* Returns options of a copy that waits for its end. */
static loch_copy_options stage_options(const lochi_transfer *transfer, const loch_device *device)
{
    return (loch_copy_options){
        .size = sizeof(loch_copy_options), .stream = stage_stream(transfer, device), .wait = LOCH_WAIT_END};
}

static loch_status stage_run_gather(const lochi_transfer *transfer, const stage_piece *piece,
                                    const stage_gather *gather, char *staging)
{
    const loch_copy_options options = stage_options(transfer, transfer->from_device);
    if (gather->is_whole) return loch_copy_with(staging, piece->from - gather->before, gather->bytes, &options);
    return lochi_rows_plan_run(&gather->plan, &gather->strided, &options, staging + gather->before, piece->from);
}

/* Plans the scatter of a piece to a target on a device: from staging in the target's order, without gaps. */
static void stage_plan_scatter(const lochi_strided *s, const size_t *sizes, ptrdiff_t *strides, lochi_strided *out)
{
    ptrdiff_t stride = (ptrdiff_t)s->to_bytes;
    for (size_t i = s->axes; i-- > 0;) {
        strides[i] = stride;
        stride *= (ptrdiff_t)sizes[i];
    }
    lochi_strided_order(sizes, s->axes, s->to_bytes, s->to, strides, out);
}

/* --- a piece --- */

static void stage_work(const lochi_transfer *transfer, const stage_piece *piece, const ptrdiff_t *to_strides,
                       const ptrdiff_t *from_strides, char *to, const char *from)
{
    lochi_strided inside;
    const lochi_strided *s = &transfer->strided;
    lochi_strided_order(piece->sizes, s->axes, s->to_bytes, to_strides, from_strides, &inside);
    inside.from_bytes = s->from_bytes;
    if (transfer->converter)
        lochi_strided_convert(&inside, transfer->converter, to, from);
    else
        lochi_strided_copy(&inside, to, from);
}

/* Staging memory of both sides; NULL for a side that needs none. */
typedef struct stage_sides {
    char *to, *from;
    bool is_whole; /* how the source is gathered */
} stage_sides;

static loch_status stage_run_piece(const lochi_transfer *transfer, const stage_piece *piece, const stage_sides *sides)
{
    const lochi_strided *s = &transfer->strided;
    const ptrdiff_t *from_strides = s->from, *to_strides = s->to;
    const char *from = piece->from;
    char *to = piece->to;
    stage_gather gather;
    if (sides->from) {
        if (sides->is_whole)
            stage_plan_whole(s, piece->sizes, &gather);
        else
            stage_plan_rows(s, piece->sizes, &gather);
        LOCH_TRY_RETURN(stage_run_gather(transfer, piece, &gather, sides->from));
        from_strides = gather.strides;
        from = sides->from + gather.before;
    }
    ptrdiff_t packed[LOCH_DIMENSIONS_MAX];
    lochi_strided scatter;
    if (sides->to) {
        stage_plan_scatter(s, piece->sizes, packed, &scatter);
        to_strides = packed;
        to = sides->to;
    }
    stage_work(transfer, piece, to_strides, from_strides, to, from);
    if (!sides->to) return LOCH_OK;
    const loch_copy_options options = stage_options(transfer, transfer->to_device);
    const lochi_rows_plan plan = lochi_rows_plan_make(&scatter, LOCHI_ROWS_PINNED);
    return lochi_rows_plan_run(&plan, &scatter, &options, piece->to, sides->to);
}

static loch_status stage_run_pieces(const lochi_transfer *transfer, const size_t *steps, const stage_sides *sides)
{
    const lochi_strided *s = &transfer->strided;
    size_t at[LOCH_DIMENSIONS_MAX] = {0};
    for (;;) {
        stage_piece piece = {.to = transfer->to + s->to_start, .from = transfer->from + s->from_start};
        for (size_t i = 0; i < s->axes; i++) {
            const size_t left = s->sizes[i] - at[i];
            piece.sizes[i] = left < steps[i] ? left : steps[i];
            piece.to += (ptrdiff_t)at[i] * s->to[i];
            piece.from += (ptrdiff_t)at[i] * s->from[i];
        }
        LOCH_TRY_RETURN(stage_run_piece(transfer, &piece, sides));
        size_t axis = s->axes;
        while (axis-- > 0) {
            at[axis] += steps[axis];
            if (at[axis] < s->sizes[axis]) break;
            at[axis] = 0;
        }
        if (axis == SIZE_MAX) return LOCH_OK;
    }
}

uint64_t lochi_stage_estimate(const lochi_transfer *transfer)
{
    const lochi_strided *s = &transfer->strided;
    const size_t count = lochi_strided_count(s);
    size_t steps[LOCH_DIMENSIONS_MAX];
    stage_cut(s, steps);
    const size_t in_piece = stage_count(steps, s->axes), pieces = (count + in_piece - 1) / in_piece;
    size_t outside;
    const size_t row_bytes = lochi_strided_row(s, &outside), bytes = in_piece * s->to_bytes;
    uint64_t ns = STAGE_PIECE_NS + bytes / 8 + bytes / row_bytes * STAGE_ROW_NS;
    if (transfer->from_device) {
        stage_gather gather;
        stage_plan_gather(s, steps, &gather);
        if (gather.ns == UINT64_MAX) return UINT64_MAX;
        ns += gather.ns;
    }
    if (transfer->to_device) {
        ptrdiff_t packed[LOCH_DIMENSIONS_MAX];
        lochi_strided scatter;
        stage_plan_scatter(s, steps, packed, &scatter);
        const lochi_rows_plan plan = lochi_rows_plan_make(&scatter, LOCHI_ROWS_PINNED);
        if (plan.ns == UINT64_MAX) return UINT64_MAX;
        ns += plan.ns;
    }
    return ns * pieces;
}

loch_status lochi_stage_run(const lochi_transfer *transfer)
{
    const lochi_strided *s = &transfer->strided;
    size_t steps[LOCH_DIMENSIONS_MAX];
    stage_cut(s, steps);
    const size_t count = stage_count(steps, s->axes);
    stage_memory to = {.bytes = 0}, from = {.bytes = 0};
    loch_status status = LOCH_OK;
    bool is_whole = false;
    if (transfer->from_device) {
        stage_gather gather;
        stage_plan_gather(s, steps, &gather);
        is_whole = gather.is_whole;
        LOCH_TRY(stage_take(transfer, transfer->from_device, gather.bytes, &from), end);
    }
    if (transfer->to_device) LOCH_TRY(stage_take(transfer, transfer->to_device, count * s->to_bytes, &to), end);
    const stage_sides sides = {to.address, from.address, is_whole};
    status = stage_run_pieces(transfer, steps, &sides);
end:;
    const loch_error saved = lochi_error_save();
    const loch_status to_status = stage_give(&to), from_status = stage_give(&from);
    if (status != LOCH_OK) {
        lochi_error_restore(&saved);
        return status;
    }
    return to_status != LOCH_OK ? to_status : from_status;
}

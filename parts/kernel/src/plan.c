/* SPDX-License-Identifier: MIT */
/* How work between layouts becomes launches of kernels.
 *
 *     both sides contiguous along the last axis    vectors of 16 bytes (chunks); single elements where runs are short
 *                                                  or begin at different places of 16 bytes
 *     the source contiguous along another axis     squares through shared memory (tiles)
 *     all else                                     single elements (each), in the order of the target
 *
 * A copy without a conversion copies bits: elements that stay together on both sides become one element of up to 16
 * bytes, and elements at odd addresses fall apart. Numbers of elements are below 2^31 in a launch, so that kernels
 * count with 32 bits: longer work becomes several launches. */
#include "plan.h"
#include <cuda/type.h>
#include <stdio.h>
#include <string.h>

#define PLAN_TILE_LEAST 16 /* shortest side of a plane that is worth a tile */
#define PLAN_EACH 4        /* elements of a thread: chunks.cu, fill.cu, rows.cu */

/* The work with sizes of elements that a kernel has; strides in bytes, the last axis is the innermost. */
typedef struct plan_shape {
    uintptr_t to, from;
    unsigned to_bytes, from_bytes;
    size_t axes;
    size_t sizes[LOCH_DIMENSIONS_MAX + 1];
    ptrdiff_t to_strides[LOCH_DIMENSIONS_MAX + 1], from_strides[LOCH_DIMENSIONS_MAX + 1];
} plan_shape;

/* --- types --- */

static bool plan_is_integer(loch_dtype type)
{
    return type >= LOCH_I8 && type <= LOCH_U64;
}

/* Chooses the codes of a pair of types. Pairs with equal results have equal codes, so that fewer kernels are compiled:
 * between integers the target's sign does not matter, nor the source's if it is not widened. */
static void plan_choose_types(const loch_strided *work, lochi_plan *out)
{
    static const unsigned integers[] = {[1] = TYPE_U8, [2] = TYPE_U16, [4] = TYPE_U32, [8] = TYPE_U64};
    const bool are_integers = plan_is_integer(work->to_type) && plan_is_integer(work->from_type);
    const bool is_special = work->overflow == LOCH_OVERFLOW_SPECIAL;
    out->to = (unsigned)work->to_type;
    out->from = (unsigned)work->from_type;
    if (work->to_type == work->from_type || (are_integers && out->to_bytes == out->from_bytes)) {
        out->to = out->from = TYPE_BITS;
    } else if (are_integers) {
        out->to = integers[out->to_bytes];
        if (out->from_bytes > out->to_bytes) out->from = integers[out->from_bytes];
    } else if (is_special && work->to_type == LOCH_F8E4M3) {
        out->to = TYPE_F8E4M3_SPECIAL;
    } else if (is_special && work->to_type == LOCH_F8E5M2) {
        out->to = TYPE_F8E5M2_SPECIAL;
    }
}

/* --- elements --- */

/* Returns the bits of all addresses and strides of a side, except the stride of axis `except`. */
static uintptr_t plan_bits(uintptr_t address, const ptrdiff_t *strides, size_t axes, size_t except)
{
    uintptr_t bits = address;
    for (size_t i = 0; i < axes; i++)
        if (i != except) bits |= (uintptr_t)strides[i];
    return bits;
}

static bool plan_has_rows(const plan_shape *s)
{
    if (!s->axes) return false;
    const size_t last = s->axes - 1;
    return s->to_strides[last] == (ptrdiff_t)s->to_bytes && s->from_strides[last] == (ptrdiff_t)s->from_bytes;
}

/* Takes elements apart that lie at odd addresses. There is no conversion. */
static void plan_split(plan_shape *s)
{
    const uintptr_t bits =
        plan_bits(s->to, s->to_strides, s->axes, s->axes) | plan_bits(s->from, s->from_strides, s->axes, s->axes);
    unsigned bytes = s->to_bytes;
    while (bits & (bytes - 1))
        bytes /= 2;
    if (bytes == s->to_bytes) return;
    const unsigned pieces = s->to_bytes / bytes;
    if (plan_has_rows(s)) {
        s->sizes[s->axes - 1] *= pieces;
    } else {
        s->sizes[s->axes++] = pieces;
    }
    s->to_strides[s->axes - 1] = s->from_strides[s->axes - 1] = (ptrdiff_t)bytes;
    s->to_bytes = s->from_bytes = bytes;
}

/* Joins elements that stay together, up to 16 bytes. There is no conversion. */
static void plan_join(plan_shape *s)
{
    if (!plan_has_rows(s)) return;
    const size_t last = s->axes - 1;
    const uintptr_t bits =
        plan_bits(s->to, s->to_strides, s->axes, last) | plan_bits(s->from, s->from_strides, s->axes, last);
    while (s->to_bytes < KERNEL_CHUNK && s->sizes[last] % 2 == 0 && !(bits & (2 * s->to_bytes - 1))) {
        s->to_bytes *= 2;
        s->from_bytes *= 2;
        s->sizes[last] /= 2;
    }
    s->to_strides[last] = s->from_strides[last] = (ptrdiff_t)s->to_bytes;
    if (s->sizes[last] == 1 && last) s->axes--;
}

/* --- parameters --- */

/* Computes the numbers that divide a number below 2^31 by `size`: cuda/memory.cuh. */
static void plan_set_size(kernel_axis *axis, size_t size)
{
    if (!size) return; /* no size is 0 */
    const unsigned shift = size > 1 ? 64 - (unsigned)__builtin_clzll(size - 1) : 0;
    axis->size = (unsigned)size;
    axis->shift = shift;
    axis->multiply = (unsigned)((((((uint64_t)1 << shift) - size) << 32) / size) + 1);
}

/* Adds axes, innermost first, except `except`. Returns the product of their sizes. Kernels do not divide
 * by the size of the outermost axis if there are one or two. */
static size_t plan_add_axes(const plan_shape *s, size_t end, size_t except, kernel_axis *axes, unsigned *count)
{
    size_t product = 1;
    for (size_t i = end; i-- > 0;) {
        if (i == except) continue;
        kernel_axis *axis = &axes[(*count)++];
        axis->size = (unsigned)s->sizes[i];
        if (i || *count > 2) plan_set_size(axis, s->sizes[i]);
        axis->to = s->to_strides[i];
        axis->from = s->from_strides[i];
        product *= s->sizes[i];
    }
    return product;
}

static unsigned plan_blocks(size_t count, size_t each)
{
    return (unsigned)((count + KERNEL_BLOCK * each - 1) / (KERNEL_BLOCK * each));
}

/* --- methods --- */

/* Vectors, if runs are long enough and all of them lie alike on both sides. */
static bool plan_chunks(const plan_shape *s, lochi_plan *out)
{
    const unsigned most = s->to_bytes > s->from_bytes ? s->to_bytes : s->from_bytes, vector = KERNEL_CHUNK / most;
    const size_t last = s->axes - 1, run = s->sizes[last];
    if (!plan_has_rows(s) || vector == 1 || run < vector) return false;
    const size_t to_bytes = (size_t)vector * s->to_bytes, from_bytes = (size_t)vector * s->from_bytes;
    if (plan_bits(0, s->to_strides, s->axes, last) & (to_bytes - 1) ||
        plan_bits(0, s->from_strides, s->axes, last) & (from_bytes - 1))
        return false;
    const unsigned head = (unsigned)(s->to & (to_bytes - 1)) / s->to_bytes;
    if ((unsigned)(s->from & (from_bytes - 1)) / s->from_bytes != head) return false;
    kernel_chunks *job = &out->job.chunks;
    job->to = s->to - head * s->to_bytes;
    job->from = s->from - head * s->from_bytes;
    job->run = (unsigned)run;
    job->head = head;
    job->axes = 1;
    const size_t chunks = (head + run + vector - 1) / vector;
    job->axis[0].size = (unsigned)chunks;
    if (last) plan_set_size(&job->axis[0], chunks);
    job->axis[0].to = (long long)to_bytes;
    job->axis[0].from = (long long)from_bytes;
    job->count = (unsigned)(chunks * plan_add_axes(s, last, s->axes, job->axis, &job->axes));
    out->kind = LOCHI_PLAN_CHUNKS;
    out->blocks = plan_blocks(job->count, vector >= 8 ? 1 : 8 / vector);
    return true;
}

/* Squares, if there is a plane of which the target is contiguous along one axis and the source along the other, and
 * most of the squares are full. */
static bool plan_tiles(const plan_shape *s, lochi_plan *out)
{
    if (s->axes < 2) return false;
    const size_t last = s->axes - 1;
    size_t x = 0;
    while (x < last && s->from_strides[x] != (ptrdiff_t)s->from_bytes)
        x++;
    if (x == last || s->to_strides[last] != (ptrdiff_t)s->to_bytes || s->sizes[x] < PLAN_TILE_LEAST ||
        s->sizes[last] < PLAN_TILE_LEAST)
        return false;
    const unsigned word = s->from_bytes > 4 ? s->from_bytes : 4, elements = word / s->from_bytes;
    /* a lane stores at least 4 bytes: tiles.cu */
    const unsigned stored = elements * s->to_bytes >= 4 ? elements : 4 / s->to_bytes;
    const size_t side_x = (size_t)KERNEL_SIDE * elements, side_y = (size_t)KERNEL_SIDE * stored;
    const size_t tiles_x = (s->sizes[x] + side_x - 1) / side_x, tiles_y = (s->sizes[last] + side_y - 1) / side_y;
    if (s->sizes[x] * s->sizes[last] * 4 < tiles_x * tiles_y * side_x * side_y) return false;
    kernel_tiles *job = &out->job.tiles;
    const unsigned store = stored * s->to_bytes, width = store > KERNEL_CHUNK ? KERNEL_CHUNK : store;
    job->to = s->to;
    job->from = s->from;
    job->x = (unsigned)s->sizes[x];
    job->y = (unsigned)s->sizes[last];
    job->to_x = s->to_strides[x];
    job->from_y = s->from_strides[last];
    job->tiles_x = (unsigned)tiles_x;
    job->tiles_y = (unsigned)tiles_y;
    job->is_to_aligned = plan_bits(s->to, s->to_strides, s->axes, last) % width == 0;
    job->is_from_aligned = plan_bits(s->from, s->from_strides, s->axes, x) % word == 0;
    job->axes = 0;
    out->kind = LOCHI_PLAN_TILES;
    out->blocks = (unsigned)(tiles_x * tiles_y * plan_add_axes(s, last, x, job->axis, &job->axes));
    return true;
}

static void plan_each(const plan_shape *s, lochi_plan *out)
{
    kernel_chunks *job = &out->job.chunks;
    job->to = s->to;
    job->from = s->from;
    job->run = job->head = job->axes = 0;
    job->count = (unsigned)plan_add_axes(s, s->axes, s->axes, job->axis, &job->axes);
    out->kind = LOCHI_PLAN_EACH;
    out->blocks = plan_blocks(job->count, PLAN_EACH);
}

/* --- rows by index --- */

static bool plan_rows(const loch_strided *work, size_t done, size_t count, lochi_plan *out)
{
    size_t row_bytes = loch_dtype_bytes(work->to_type), chunk = KERNEL_CHUNK;
    const size_t index_bytes = loch_dtype_bytes(work->index_type);
    for (size_t i = 1; i < work->axes; i++)
        row_bytes *= work->sizes[i];
    const uintptr_t bits = (uintptr_t)work->to | (uintptr_t)work->from | (uintptr_t)work->to_strides[0] |
                           (uintptr_t)work->from_strides[0] | row_bytes;
    if (((uintptr_t)work->indices | (uintptr_t)work->index_stride) % index_bytes) return false;
    while (bits % chunk)
        chunk /= 2;
    const bool is_gather = work->indexing == LOCH_INDEXING_GATHER;
    kernel_rows *job = &out->job.rows;
    job->to = (uintptr_t)work->to + (is_gather ? done * (size_t)work->to_strides[0] : 0);
    job->from = (uintptr_t)work->from + (is_gather ? 0 : done * (size_t)work->from_strides[0]);
    job->indices = (uintptr_t)work->indices + done * (size_t)work->index_stride;
    job->rows = work->index_limit;
    job->to_row = work->to_strides[0];
    job->from_row = work->from_strides[0];
    job->index = work->index_stride;
    plan_set_size(&job->chunks, row_bytes / chunk);
    job->count = (unsigned)(count * (row_bytes / chunk));
    out->kind = is_gather ? LOCHI_PLAN_GATHER : LOCHI_PLAN_SCATTER;
    out->to_bytes = out->from_bytes = (unsigned)chunk;
    out->from = (unsigned)work->index_type;
    out->to = 0;
    out->blocks = plan_blocks(job->count, PLAN_EACH);
    return true;
}

/* --- the whole --- */

/* The part of the work that one launch does: `count` indices of an axis, one index of each axis before it, all of the
 * axes behind it. */
typedef struct plan_part {
    size_t axis, start, count;
    ptrdiff_t to, from; /* offsets in bytes */
} plan_part;

/* Finds the part that begins with number `done`, counted along the axis that is cut. */
static plan_part plan_cut(const loch_strided *work, size_t done, size_t most)
{
    plan_part part = {.axis = work->axes - 1};
    size_t inside = 1, all = 1;
    for (size_t i = 0; i < work->axes && all <= most; i++)
        all = work->sizes[i] <= most ? all * work->sizes[i] : most + 1;
    if (all <= most) return (plan_part){.count = work->sizes[0]};
    while (part.axis > 0) {
        const size_t next = inside * work->sizes[part.axis];
        if (!next || work->sizes[part.axis] > most / inside) break;
        inside = next;
        part.axis--;
    }
    const size_t room = most / inside, steps = room > KERNEL_CHUNK ? room / KERNEL_CHUNK * KERNEL_CHUNK : room;
    const size_t size = work->sizes[part.axis];
    part.start = done % size;
    part.count = size - part.start < steps ? size - part.start : steps;
    size_t left = done;
    for (size_t i = part.axis + 1; i-- > 0 && work->sizes[i];) {
        const ptrdiff_t index = (ptrdiff_t)(left % work->sizes[i]);
        left /= work->sizes[i];
        part.to += index * work->to_strides[i];
        if (work->from) part.from += index * work->from_strides[i];
    }
    return part;
}

static void plan_read(const loch_strided *work, const plan_part *part, plan_shape *out)
{
    const size_t axes = work->axes - part->axis;
    out->to = (uintptr_t)work->to + (uintptr_t)part->to;
    out->from = (uintptr_t)work->from + (uintptr_t)part->from;
    out->axes = axes;
    memcpy(out->sizes, work->sizes + part->axis, axes * sizeof *out->sizes);
    memcpy(out->to_strides, work->to_strides + part->axis, axes * sizeof *out->to_strides);
    /* a fill has one side */
    memcpy(out->from_strides, (work->from ? work->from_strides : work->to_strides) + part->axis,
           axes * sizeof *out->from_strides);
    out->sizes[0] = part->count;
}

/* Returns false if elements lie at odd addresses, and do not consist of equal parts that do not. */
static bool plan_fill(const loch_strided *work, plan_shape *s, lochi_plan *out)
{
    const unsigned element_bytes = s->to_bytes;
    s->from = s->to;
    plan_split(s);
    if (memcmp(work->element, work->element + s->to_bytes, element_bytes - s->to_bytes) != 0) return false;
    plan_join(s);
    plan_each(s, out);
    out->kind = LOCHI_PLAN_FILL;
    out->from = out->to = 0;
    unsigned char pattern[KERNEL_CHUNK] = {0};
    for (size_t i = 0; i < sizeof pattern; i++)
        pattern[i] = work->element[i % element_bytes];
    memcpy(out->job.chunks.pattern, pattern, sizeof pattern);
    return true;
}

bool lochi_kernel_plan_make(const loch_strided *work, size_t *done, lochi_plan *out)
{
    plan_shape s;
    if (!work->axes || work->axes > LOCH_DIMENSIONS_MAX) return false;
    out->to_bytes = s.to_bytes = (unsigned)loch_dtype_bytes(work->to_type);
    out->from_bytes = s.from_bytes = work->from ? (unsigned)loch_dtype_bytes(work->from_type) : s.to_bytes;
    /* an element may fall apart into its bytes */
    const plan_part part = plan_cut(work, *done, KERNEL_COUNT_MAX / s.to_bytes);
    *done += part.count;
    size_t all = 1;
    for (size_t i = 0; i <= part.axis; i++)
        all *= work->sizes[i];
    out->is_last = *done >= all;
    if (work->indexing) return part.axis == 0 && plan_rows(work, part.start, part.count, out);
    plan_read(work, &part, &s);
    if (work->from) {
        plan_choose_types(work, out);
        if (out->from == TYPE_BITS) {
            plan_split(&s);
            plan_join(&s);
        } else if (plan_bits(s.to, s.to_strides, s.axes, s.axes) & (s.to_bytes - 1) ||
                   plan_bits(s.from, s.from_strides, s.axes, s.axes) & (s.from_bytes - 1)) {
            return false;
        }
        if (!plan_chunks(&s, out) && !plan_tiles(&s, out)) plan_each(&s, out);
    } else if (!plan_fill(work, &s, out)) {
        return false;
    }
    out->to_bytes = s.to_bytes;
    out->from_bytes = s.from_bytes;
    return true;
}

uint32_t lochi_kernel_plan_key(const lochi_plan *plan)
{
    return ((uint32_t)plan->kind + 1) << 20 | plan->from_bytes << 15 | plan->to_bytes << 10 | plan->from << 5 |
           plan->to;
}

/* Tells whether a device of compute capability 9.0 or later has instructions for the conversion: narrow.cu. */
static bool plan_is_native(const lochi_plan *plan)
{
    return plan->kind == LOCHI_PLAN_CHUNKS && (plan->to == TYPE_F8E4M3 || plan->to == TYPE_F8E5M2) &&
           (plan->from == TYPE_F32 || plan->from == TYPE_F16 || plan->from == TYPE_BF16);
}

lochi_text_file lochi_kernel_plan_name(const lochi_plan *plan, int compute_major, char name[32])
{
    static const char *const kinds[] = {"chunks", "each", "tiles", "fill", "gather", "scatter"};
    if (plan->kind == LOCHI_PLAN_EACH && plan->to_bytes < KERNEL_CHUNK)
        snprintf(name, 32, "loch_each");
    else if (plan->kind >= LOCHI_PLAN_FILL)
        snprintf(name, 32, "loch_%s_%u", kinds[plan->kind], plan->to_bytes);
    else
        snprintf(name, 32, "loch_%s_%u_%u", kinds[plan->kind], plan->from_bytes, plan->to_bytes);
    switch (plan->kind) {
    case LOCHI_PLAN_TILES: return LOCHI_TEXT_TILES;
    case LOCHI_PLAN_FILL: return LOCHI_TEXT_FILL;
    case LOCHI_PLAN_GATHER:
    case LOCHI_PLAN_SCATTER: return LOCHI_TEXT_ROWS;
    default: return compute_major >= 9 && plan_is_native(plan) ? LOCHI_TEXT_NARROW : LOCHI_TEXT_CHUNKS;
    }
}

/* SPDX-License-Identifier: MIT */
/* The engine for copies on the host. A copy walks over the outer axes. Inside it handles one of three cases: rows that
 * are contiguous on both sides; a plane whose rows have different orders; or, if the types differ, a block that is
 * converted through memory on the stack. */
#include "tensor/transfer/strided.h"
#include "base/rows.h"
#include "tensor/transfer/tile.h"
#include <string.h>

#define STRIDED_BLOCK 2048 /* elements converted at a time */
#define STRIDED_SIDE 32    /* side of a block of a transpose, along the rows of the source */

/* --- bringing layouts into order --- */

static void strided_add(lochi_strided *s, size_t size, ptrdiff_t to, ptrdiff_t from)
{
    if (size == 1) return;
    if (to < 0) { /* reversed */
        s->to_start += (ptrdiff_t)(size - 1) * to;
        s->from_start += (ptrdiff_t)(size - 1) * from;
        to = -to;
        from = -from;
    }
    size_t at = s->axes++;
    for (; at > 0 && s->to[at - 1] < to; at--) {
        s->sizes[at] = s->sizes[at - 1];
        s->to[at] = s->to[at - 1];
        s->from[at] = s->from[at - 1];
    }
    s->sizes[at] = size;
    s->to[at] = to;
    s->from[at] = from;
}

/* Tells whether axis `outer` continues where axis `outer + 1` ends, on both sides. */
static bool strided_is_behind(const lochi_strided *s, size_t outer)
{
    const ptrdiff_t size = (ptrdiff_t)s->sizes[outer + 1];
    return s->to[outer] == s->to[outer + 1] * size && s->from[outer] == s->from[outer + 1] * size;
}

static void strided_merge(lochi_strided *s)
{
    for (size_t i = s->axes; i-- > 1;) {
        if (!strided_is_behind(s, i - 1)) continue;
        s->sizes[i - 1] *= s->sizes[i];
        s->to[i - 1] = s->to[i];
        s->from[i - 1] = s->from[i];
        s->axes--;
        for (size_t k = i; k < s->axes; k++) {
            s->sizes[k] = s->sizes[k + 1];
            s->to[k] = s->to[k + 1];
            s->from[k] = s->from[k + 1];
        }
    }
    if (s->axes) return;
    s->axes = 1;
    s->sizes[0] = 1;
    s->to[0] = (ptrdiff_t)s->to_bytes;
    s->from[0] = (ptrdiff_t)s->from_bytes;
}

/* Sets all members but those of axes, which are many. */
static void strided_begin(lochi_strided *s, size_t to_bytes, size_t from_bytes)
{
    s->to_bytes = to_bytes;
    s->from_bytes = from_bytes;
    s->axes = 0;
    s->to_start = s->from_start = 0;
}

void lochi_strided_make(const lochi_layout *to, const lochi_layout *from, lochi_strided *out)
{
    strided_begin(out, to->element_bytes, from->element_bytes);
    for (size_t i = 0; i < to->dimensions; i++)
        strided_add(out, (size_t)to->shape[i], (ptrdiff_t)to->strides[i] * (ptrdiff_t)to->element_bytes,
                    (ptrdiff_t)from->strides[i] * (ptrdiff_t)from->element_bytes);
    strided_merge(out);
}

void lochi_strided_order(const size_t *sizes, size_t axes, size_t element_bytes, const ptrdiff_t *to,
                         const ptrdiff_t *from, lochi_strided *out)
{
    strided_begin(out, element_bytes, element_bytes);
    for (size_t i = 0; i < axes; i++)
        strided_add(out, sizes[i], to[i], from[i]);
    strided_merge(out);
}

size_t lochi_strided_count(const lochi_strided *strided)
{
    size_t count = 1;
    for (size_t i = 0; i < strided->axes; i++)
        count *= strided->sizes[i];
    return count;
}

static bool strided_has_rows(const lochi_strided *s)
{
    const size_t last = s->axes - 1;
    return s->to[last] == (ptrdiff_t)s->to_bytes && s->from[last] == (ptrdiff_t)s->from_bytes;
}

size_t lochi_strided_row(const lochi_strided *strided, size_t *axes)
{
    const bool has_rows = strided_has_rows(strided);
    *axes = has_rows ? strided->axes - 1 : strided->axes;
    return has_rows ? strided->sizes[strided->axes - 1] * strided->to_bytes : strided->to_bytes;
}

bool lochi_strided_is_row(const lochi_strided *strided)
{
    return strided->axes == 1 && strided_has_rows(strided);
}

/* Joins elements that always stay together into one larger element, if there is a type of that size. */
static void strided_fuse(lochi_strided *s)
{
    const size_t last = s->axes - 1, bytes = s->sizes[last] * s->to_bytes;
    if (s->axes < 2 || !strided_has_rows(s) || (bytes != 2 && bytes != 4 && bytes != 8)) return;
    s->to_bytes = s->from_bytes = bytes;
    s->axes--;
}

/* --- walking --- */

/* The position in the outer axes of a copy: indices and both addresses. */
typedef struct strided_walk {
    size_t axes;
    size_t sizes[LOCH_DIMENSIONS_MAX], steps[LOCH_DIMENSIONS_MAX], at[LOCH_DIMENSIONS_MAX];
    ptrdiff_t to_strides[LOCH_DIMENSIONS_MAX], from_strides[LOCH_DIMENSIONS_MAX];
    char *to;
    const char *from;
} strided_walk;

static void strided_walk_add(strided_walk *walk, const lochi_strided *s, size_t axis, size_t step)
{
    const size_t i = walk->axes++;
    walk->sizes[i] = s->sizes[axis];
    walk->steps[i] = step;
    walk->at[i] = 0;
    walk->to_strides[i] = s->to[axis];
    walk->from_strides[i] = s->from[axis];
}

/* Steps to the next position. Returns false after the last one. */
static bool strided_walk_next(strided_walk *walk)
{
    for (size_t i = walk->axes; i-- > 0;) {
        const ptrdiff_t step = (ptrdiff_t)walk->steps[i], back = (ptrdiff_t)walk->at[i];
        walk->at[i] += walk->steps[i];
        if (walk->at[i] < walk->sizes[i]) {
            walk->to += step * walk->to_strides[i];
            walk->from += step * walk->from_strides[i];
            return true;
        }
        walk->to -= back * walk->to_strides[i];
        walk->from -= back * walk->from_strides[i];
        walk->at[i] = 0;
    }
    return false;
}

/* --- copies --- */

static void strided_copy_rows(const lochi_strided *s, char *to, const char *from)
{
    const size_t last = s->axes - 1, row_bytes = s->sizes[last] * s->to_bytes;
    const size_t total = lochi_strided_count(s) * s->to_bytes;
    if (!last) {
        memcpy(to, from, row_bytes);
        return;
    }
    strided_walk walk = {.to = to, .from = from};
    for (size_t i = 0; i + 1 < last; i++)
        strided_walk_add(&walk, s, i, 1);
    do
        lochi_rows_copy(walk.to, s->to[last - 1], walk.from, s->from[last - 1], row_bytes, s->sizes[last - 1], total);
    while (strided_walk_next(&walk));
}

static ptrdiff_t strided_length(ptrdiff_t stride)
{
    return stride < 0 ? -stride : stride;
}

/* Returns the second axis of a plane: the axis along which the source's elements are closest. If that is the last axis
 * itself, any other axis will do. */
static size_t strided_partner(const lochi_strided *s)
{
    const size_t last = s->axes - 1;
    size_t found = last;
    for (size_t i = 0; i < last; i++)
        if (s->from[i] && (!s->from[found] || strided_length(s->from[i]) < strided_length(s->from[found]))) found = i;
    return s->from[last] ? found : last;
}

static void strided_copy_planes(const lochi_strided *s, char *to, const char *from)
{
    const size_t last = s->axes - 1;
    size_t partner = strided_partner(s);
    if (partner == last && last) partner = last - 1;
    lochi_tile tile = {.element_bytes = s->to_bytes,
                       .outer = 1,
                       .inner = s->sizes[last],
                       .to_inner = s->to[last],
                       .from_inner = s->from[last],
                       .is_past = lochi_strided_count(s) * s->to_bytes > lochi_rows_cache_bytes()};
    strided_walk walk = {.to = to, .from = from};
    for (size_t i = 0; i < last; i++) {
        if (i != partner) strided_walk_add(&walk, s, i, 1);
    }
    if (partner != last) {
        tile.outer = s->sizes[partner];
        tile.to_outer = s->to[partner];
        tile.from_outer = s->from[partner];
    }
    do
        lochi_tile_copy(&tile, walk.to, walk.from);
    while (strided_walk_next(&walk));
}

static void strided_copy_in_order(const lochi_strided *strided, char *to, const char *from)
{
    lochi_strided s = *strided;
    strided_fuse(&s);
    if (strided_has_rows(&s))
        strided_copy_rows(&s, to, from);
    else
        strided_copy_planes(&s, to, from);
}

void lochi_strided_copy(const lochi_strided *strided, void *to, const void *from)
{
    strided_copy_in_order(strided, (char *)to + strided->to_start, (const char *)from + strided->from_start);
}

/* --- conversions --- */

/* Computes how many elements of each axis a block has: inner axes are whole as far as they fit, or the block is a
 * square if the source's rows lie along another axis. */
static void strided_cut(const lochi_strided *s, size_t *steps)
{
    const size_t last = s->axes - 1, partner = strided_partner(s);
    size_t room = STRIDED_BLOCK;
    for (size_t i = 0; i < s->axes; i++)
        steps[i] = 1;
    if (partner != last) {
        steps[partner] = s->sizes[partner] < STRIDED_SIDE ? s->sizes[partner] : STRIDED_SIDE;
        room /= steps[partner];
    }
    for (size_t i = s->axes; i-- > 0 && room > 1;) {
        if (i == partner && partner != last) continue;
        steps[i] = s->sizes[i] < room ? s->sizes[i] : room;
        room /= steps[i];
    }
}

/* Computes the strides of a contiguous block in the order of the axes. */
static void strided_pack(const size_t *sizes, size_t axes, size_t bytes, ptrdiff_t *strides)
{
    ptrdiff_t stride = (ptrdiff_t)bytes;
    for (size_t i = axes; i-- > 0;) {
        strides[i] = stride;
        stride *= (ptrdiff_t)sizes[i];
    }
}

/* Copies a block between memory and the stack. One side has `strides`, the other is contiguous. */
static void strided_move_block(const size_t *sizes, size_t axes, size_t bytes, const ptrdiff_t *to,
                               const ptrdiff_t *from, char *target, const char *source)
{
    lochi_strided block;
    lochi_strided_order(sizes, axes, bytes, to, from, &block);
    lochi_strided_copy(&block, target, source);
}

static bool strided_is_packed(const size_t *sizes, size_t axes, const ptrdiff_t *strides, const ptrdiff_t *packed)
{
    for (size_t i = 0; i < axes; i++)
        if (sizes[i] > 1 && strides[i] != packed[i]) return false;
    return true;
}

static void strided_convert_block(const lochi_strided *s, const lochi_converter *converter, const size_t *sizes,
                                  char *to, const char *from)
{
    _Alignas(64) char in[STRIDED_BLOCK * sizeof(uint64_t)], out[STRIDED_BLOCK * sizeof(uint64_t)];
    ptrdiff_t to_packed[LOCH_DIMENSIONS_MAX], from_packed[LOCH_DIMENSIONS_MAX];
    size_t count = 1;
    for (size_t i = 0; i < s->axes; i++)
        count *= sizes[i];
    strided_pack(sizes, s->axes, s->to_bytes, to_packed);
    strided_pack(sizes, s->axes, s->from_bytes, from_packed);
    const bool is_from_packed = strided_is_packed(sizes, s->axes, s->from, from_packed);
    const bool is_to_packed = strided_is_packed(sizes, s->axes, s->to, to_packed);
    if (!is_from_packed) strided_move_block(sizes, s->axes, s->from_bytes, from_packed, s->from, in, from);
    lochi_convert_run(converter, is_to_packed ? to : out, is_from_packed ? from : in, count);
    if (!is_to_packed) strided_move_block(sizes, s->axes, s->to_bytes, s->to, to_packed, to, out);
}

void lochi_strided_convert(const lochi_strided *strided, const lochi_converter *converter, void *to, const void *from)
{
    const lochi_strided *s = strided;
    char *target = (char *)to + s->to_start;
    const char *source = (const char *)from + s->from_start;
    if (s->axes == 1 && strided_has_rows(s)) {
        lochi_convert_run(converter, target, source, s->sizes[0]);
        return;
    }
    size_t steps[LOCH_DIMENSIONS_MAX], sizes[LOCH_DIMENSIONS_MAX];
    strided_cut(s, steps);
    strided_walk walk = {.to = target, .from = source};
    for (size_t i = 0; i < s->axes; i++)
        strided_walk_add(&walk, s, i, steps[i]);
    do {
        for (size_t i = 0; i < s->axes; i++) {
            const size_t left = s->sizes[i] - walk.at[i];
            sizes[i] = left < steps[i] ? left : steps[i];
        }
        strided_convert_block(s, converter, sizes, walk.to, walk.from);
    } while (strided_walk_next(&walk));
}

/* SPDX-License-Identifier: MIT */
/* Copies planes whose rows have different orders in source and target.
 *
 * A walk along the rows of one side jumps between cache lines on the other side. So the plane is copied in squares:
 * every line that a square touches is used while it is cached. A transpose also goes through registers: rows of 16
 * bytes are read and interleaved, half with half, until they are columns. */
#include "tensor/transfer/tile.h"
#include <stdint.h>
#include <string.h>
#if defined(__SSE2__)
#include <emmintrin.h>
#endif

#define TILE_LINE 64        /* bytes of a cache line */
#define TILE_SQUARE_LINES 8 /* lines along the side of a square: prefetched lines are used soon */

/* --- element by element --- */

#define TILE_LOOP(type)                                                                                                \
    static void tile_loop_##type(const lochi_tile *tile, char *to, const char *from)                                   \
    {                                                                                                                  \
        const size_t inner = tile->inner;                                                                              \
        for (size_t i = 0; i < tile->outer; i++, to += tile->to_outer, from += tile->from_outer) {                     \
            char *target = to;                                                                                         \
            const char *source = from;                                                                                 \
            for (size_t k = 0; k < inner; k++, target += tile->to_inner, source += tile->from_inner) {                 \
                type element;                                                                                          \
                memcpy(&element, source, sizeof element);                                                              \
                memcpy(target, &element, sizeof element);                                                              \
            }                                                                                                          \
        }                                                                                                              \
    }

/* Repeats one element, for fills and expanded axes. */
#define TILE_SPREAD(type)                                                                                              \
    static void tile_spread_##type(const lochi_tile *tile, char *to, const char *from)                                 \
    {                                                                                                                  \
        const size_t inner = tile->inner;                                                                              \
        for (size_t i = 0; i < tile->outer; i++, to += tile->to_outer, from += tile->from_outer) {                     \
            type element;                                                                                              \
            memcpy(&element, from, sizeof element);                                                                    \
            for (size_t k = 0; k < inner; k++)                                                                         \
                memcpy(to + k * sizeof element, &element, sizeof element);                                             \
        }                                                                                                              \
    }

TILE_LOOP(uint8_t)
TILE_LOOP(uint16_t)
TILE_LOOP(uint32_t)
TILE_LOOP(uint64_t)
TILE_SPREAD(uint8_t)
TILE_SPREAD(uint16_t)
TILE_SPREAD(uint32_t)
TILE_SPREAD(uint64_t)

static void tile_loop(const lochi_tile *tile, char *to, const char *from)
{
    switch (tile->element_bytes) {
    case 1: tile_loop_uint8_t(tile, to, from); break;
    case 2: tile_loop_uint16_t(tile, to, from); break;
    case 4: tile_loop_uint32_t(tile, to, from); break;
    default: tile_loop_uint64_t(tile, to, from); break;
    }
}

static void tile_spread(const lochi_tile *tile, char *to, const char *from)
{
    switch (tile->element_bytes) {
    case 1: tile_spread_uint8_t(tile, to, from); break;
    case 2: tile_spread_uint16_t(tile, to, from); break;
    case 4: tile_spread_uint32_t(tile, to, from); break;
    default: tile_spread_uint64_t(tile, to, from); break;
    }
}

/* --- transposes --- */

#if defined(__SSE2__)

/* Interleaves `count` registers of `count` elements each log2(count) times: rows become columns. */
#define TILE_TRANSPOSE(count, low, high)                                                                               \
    static inline void tile_transpose_##count(__m128i *rows)                                                           \
    {                                                                                                                  \
        _Pragma("GCC unroll 4") for (int step = 1; step < (count); step *= 2)                                          \
        {                                                                                                              \
            __m128i mixed[count];                                                                                      \
            _Pragma("GCC unroll 16") for (int i = 0; i < (count) / 2; i++)                                             \
            {                                                                                                          \
                mixed[2 * i] = low(rows[i], rows[i + (count) / 2]);                                                    \
                mixed[2 * i + 1] = high(rows[i], rows[i + (count) / 2]);                                               \
            }                                                                                                          \
            _Pragma("GCC unroll 16") for (int i = 0; i < (count); i++) rows[i] = mixed[i];                             \
        }                                                                                                              \
    }                                                                                                                  \
    static void tile_square_##count(char *to, ptrdiff_t to_pitch, const char *from, ptrdiff_t from_pitch)              \
    {                                                                                                                  \
        __m128i rows[count];                                                                                           \
        _Pragma("GCC unroll 16") for (int i = 0; i < (count); i++) rows[i] =                                           \
            _mm_loadu_si128((const __m128i *)(from + i * from_pitch));                                                 \
        tile_transpose_##count(rows);                                                                                  \
        _Pragma("GCC unroll 16") for (int i = 0; i < (count); i++)                                                     \
            _mm_storeu_si128((__m128i *)(to + i * to_pitch), rows[i]);                                                 \
    }

TILE_TRANSPOSE(2, _mm_unpacklo_epi64, _mm_unpackhi_epi64)
TILE_TRANSPOSE(4, _mm_unpacklo_epi32, _mm_unpackhi_epi32)
TILE_TRANSPOSE(8, _mm_unpacklo_epi16, _mm_unpackhi_epi16)
TILE_TRANSPOSE(16, _mm_unpacklo_epi8, _mm_unpackhi_epi8)

typedef void tile_square(char *to, ptrdiff_t to_pitch, const char *from, ptrdiff_t from_pitch);

static tile_square *tile_find_square(size_t element_bytes)
{
    switch (element_bytes) {
    case 1: return tile_square_16;
    case 2: return tile_square_8;
    case 4: return tile_square_4;
    default: return tile_square_2;
    }
}

/* Writes whole lines of a target from a block. */
static void tile_write_lines(const lochi_tile *tile, char *to, const char *block, size_t lines)
{
    const bool is_past = tile->is_past && ((uintptr_t)to | (uintptr_t)tile->to_outer) % 16 == 0;
    for (size_t i = 0; i < lines; i++, to += tile->to_outer, block += TILE_LINE) {
        if (!is_past) {
            memcpy(to, block, TILE_LINE);
            continue;
        }
        for (int part = 0; part < TILE_LINE; part += 16)
            _mm_stream_si128((__m128i *)(to + part), _mm_load_si128((const __m128i *)(block + part)));
    }
}

/* Transposes blocks with as many elements a side as a cache line has. Every line of the source is read once, and every
 * line of the target is written once. So the number of lines that fit the cache at such distances does not matter. */
static void tile_transpose_lines(const lochi_tile *tile, char *to, const char *from)
{
    _Alignas(TILE_LINE) char block[TILE_LINE * TILE_LINE];
    const size_t bytes = tile->element_bytes, side = 16 / bytes, lines = TILE_LINE / bytes;
    tile_square *square = tile_find_square(bytes);
    for (size_t k = 0; k < lines; k += side)
        for (size_t i = 0; i < lines; i += side)
            square(block + i * TILE_LINE + k * bytes, TILE_LINE,
                   from + (ptrdiff_t)(i * bytes) + (ptrdiff_t)k * tile->from_inner, tile->from_inner);
    tile_write_lines(tile, to, block, lines);
}

/* Transposes. The target is contiguous along `inner`, the source along `outer`. Elements at the edges are copied one by
 * one. */
static void tile_transpose(const lochi_tile *tile, char *to, const char *from)
{
    const size_t side = TILE_LINE / tile->element_bytes;
    const size_t outer = tile->outer - tile->outer % side, inner = tile->inner - tile->inner % side;
    for (size_t i = 0; i < outer; i += side)
        for (size_t k = 0; k < inner; k += side)
            tile_transpose_lines(tile, to + (ptrdiff_t)i * tile->to_outer + (ptrdiff_t)k * tile->to_inner,
                                 from + (ptrdiff_t)i * tile->from_outer + (ptrdiff_t)k * tile->from_inner);
    lochi_tile right = *tile, below = *tile;
    right.inner = tile->inner - inner;
    right.outer = outer;
    below.outer = tile->outer - outer;
    if (right.inner)
        tile_loop(&right, to + (ptrdiff_t)inner * tile->to_inner, from + (ptrdiff_t)inner * tile->from_inner);
    if (below.outer)
        tile_loop(&below, to + (ptrdiff_t)outer * tile->to_outer, from + (ptrdiff_t)outer * tile->from_outer);
    if (tile->is_past) _mm_sfence();
}

#else

static void tile_transpose(const lochi_tile *tile, char *to, const char *from)
{
    tile_loop(tile, to, from);
}

#endif

/* --- squares --- */

static ptrdiff_t tile_length(ptrdiff_t stride)
{
    return stride < 0 ? -stride : stride;
}

void lochi_tile_copy(const lochi_tile *tile, void *to, const void *from)
{
    const ptrdiff_t bytes = (ptrdiff_t)tile->element_bytes;
    if (tile->from_inner == 0 && tile->to_inner == bytes) {
        tile_spread(tile, to, from);
        return;
    }
    if (tile->outer == 1 || tile_length(tile->from_outer) >= tile_length(tile->from_inner)) {
        tile_loop(tile, to, from); /* the rows are rows of the source too */
        return;
    }
    const bool is_transpose = tile->to_inner == bytes && tile->from_outer == bytes;
    const size_t side = TILE_SQUARE_LINES * TILE_LINE / tile->element_bytes;
    for (size_t i = 0; i < tile->outer; i += side)
        for (size_t k = 0; k < tile->inner; k += side) {
            lochi_tile square = *tile;
            square.outer = tile->outer - i < side ? tile->outer - i : side;
            square.inner = tile->inner - k < side ? tile->inner - k : side;
            char *target = (char *)to + (ptrdiff_t)i * tile->to_outer + (ptrdiff_t)k * tile->to_inner;
            const char *source = (const char *)from + (ptrdiff_t)i * tile->from_outer + (ptrdiff_t)k * tile->from_inner;
            if (is_transpose)
                tile_transpose(&square, target, source);
            else
                tile_loop(&square, target, source);
        }
}

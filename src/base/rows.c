/* SPDX-License-Identifier: MIT */
/* Copying rows, 32 bytes at a time. A memcpy for each short row costs as much as the copy itself, and on some
 * processors memcpy is slow for long rows whose addresses have different alignments. A copy larger than the
 * last-level cache is written past the caches with streaming stores, as one large memcpy does: loading every line of
 * the target before it is overwritten would cost a third of the rate. */
#include "base/rows.h"
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>
#include <unistd.h>
#if defined(__x86_64__)
#include <immintrin.h>
#endif

#define ROWS_CACHE ((size_t)8 << 20) /* if the system does not report the size of the last-level cache */

size_t lochi_rows_cache_bytes(void)
{
    static atomic_size_t known; /* relaxed: every thread computes the same value */
    size_t bytes = atomic_load_explicit(&known, memory_order_relaxed);
    if (bytes) return bytes;
    long answer = -1;
#ifdef _SC_LEVEL3_CACHE_SIZE
    answer = sysconf(_SC_LEVEL3_CACHE_SIZE);
    if (answer <= 0) answer = sysconf(_SC_LEVEL2_CACHE_SIZE);
#endif
    bytes = answer > 0 ? (size_t)answer : ROWS_CACHE;
    atomic_store_explicit(&known, bytes, memory_order_relaxed);
    return bytes;
}

/* Copies rows of `half` to 2 * `half` bytes as two pieces of `half` bytes, which may overlap. */
#define ROWS_TWICE(half)                                                                                               \
    static void rows_twice_##half(char *to, ptrdiff_t to_pitch, const char *from, ptrdiff_t from_pitch,                \
                                  size_t row_bytes, size_t rows)                                                       \
    {                                                                                                                  \
        const size_t second = row_bytes - (half);                                                                      \
        for (size_t r = 0; r < rows; r++, to += to_pitch, from += from_pitch) {                                        \
            unsigned char a[half], b[half];                                                                            \
            memcpy(a, from, half);                                                                                     \
            memcpy(b, from + second, half);                                                                            \
            memcpy(to, a, half);                                                                                       \
            memcpy(to + second, b, half);                                                                              \
        }                                                                                                              \
    }

ROWS_TWICE(4)
ROWS_TWICE(8)
ROWS_TWICE(16)

static void rows_plain(char *to, ptrdiff_t to_pitch, const char *from, ptrdiff_t from_pitch, size_t row_bytes,
                       size_t rows)
{
    if (row_bytes >= 4 && row_bytes <= 32) {
        if (row_bytes <= 8)
            rows_twice_4(to, to_pitch, from, from_pitch, row_bytes, rows);
        else if (row_bytes <= 16)
            rows_twice_8(to, to_pitch, from, from_pitch, row_bytes, rows);
        else
            rows_twice_16(to, to_pitch, from, from_pitch, row_bytes, rows);
        return;
    }
    for (size_t r = 0; r < rows; r++, to += to_pitch, from += from_pitch)
        memcpy(to, from, row_bytes);
}

#if defined(__x86_64__)

/* Copies rows of more than 32 bytes. May write the last 32 bytes of a row twice. */
__attribute__((target("avx2"))) static void rows_through(char *to, ptrdiff_t to_pitch, const char *from,
                                                         ptrdiff_t from_pitch, size_t row_bytes, size_t rows)
{
    const size_t last = row_bytes - 32;
    for (size_t r = 0; r < rows; r++, to += to_pitch, from += from_pitch) {
        size_t at = 0;
        for (; at + 128 <= row_bytes; at += 128) {
            const __m256i a = _mm256_loadu_si256((const __m256i *)(from + at));
            const __m256i b = _mm256_loadu_si256((const __m256i *)(from + at + 32));
            const __m256i c = _mm256_loadu_si256((const __m256i *)(from + at + 64));
            const __m256i d = _mm256_loadu_si256((const __m256i *)(from + at + 96));
            _mm256_storeu_si256((__m256i *)(to + at), a);
            _mm256_storeu_si256((__m256i *)(to + at + 32), b);
            _mm256_storeu_si256((__m256i *)(to + at + 64), c);
            _mm256_storeu_si256((__m256i *)(to + at + 96), d);
        }
        for (; at < last; at += 32)
            _mm256_storeu_si256((__m256i *)(to + at), _mm256_loadu_si256((const __m256i *)(from + at)));
        _mm256_storeu_si256((__m256i *)(to + last), _mm256_loadu_si256((const __m256i *)(from + last)));
    }
}

/* Copies rows of exactly 64 bytes. */
__attribute__((target("avx2"))) static void rows_of_a_line(char *to, ptrdiff_t to_pitch, const char *from,
                                                           ptrdiff_t from_pitch, size_t rows)
{
    size_t r = 0;
    for (; r + 2 <= rows; r += 2, to += 2 * to_pitch, from += 2 * from_pitch) {
        const __m256i a = _mm256_loadu_si256((const __m256i *)from);
        const __m256i b = _mm256_loadu_si256((const __m256i *)(from + 32));
        const __m256i c = _mm256_loadu_si256((const __m256i *)(from + from_pitch));
        const __m256i d = _mm256_loadu_si256((const __m256i *)(from + from_pitch + 32));
        _mm256_storeu_si256((__m256i *)to, a);
        _mm256_storeu_si256((__m256i *)(to + 32), b);
        _mm256_storeu_si256((__m256i *)(to + to_pitch), c);
        _mm256_storeu_si256((__m256i *)(to + to_pitch + 32), d);
    }
    if (r < rows) memcpy(to, from, 64);
}

/* Copies rows past the caches: whole cache lines of the target with streaming stores, the bytes of a row before and
 * after them with ordinary stores. */
__attribute__((target("avx2"))) static void rows_past(char *to, ptrdiff_t to_pitch, const char *from,
                                                      ptrdiff_t from_pitch, size_t row_bytes, size_t rows)
{
    for (size_t r = 0; r < rows; r++, to += to_pitch, from += from_pitch) {
        const size_t before = (0 - (uintptr_t)to) & 63;
        size_t at = before < row_bytes ? before : row_bytes;
        if (at) memcpy(to, from, at);
        for (; at + 64 <= row_bytes; at += 64) {
            const __m256i a = _mm256_loadu_si256((const __m256i *)(from + at));
            const __m256i b = _mm256_loadu_si256((const __m256i *)(from + at + 32));
            _mm256_stream_si256((__m256i *)(to + at), a);
            _mm256_stream_si256((__m256i *)(to + at + 32), b);
        }
        if (at < row_bytes) memcpy(to + at, from + at, row_bytes - at);
    }
    _mm_sfence();
}

static bool rows_can_avx2(void)
{
    return __builtin_cpu_supports("avx2");
}

#endif

void lochi_rows_copy(void *to, ptrdiff_t to_pitch, const void *from, ptrdiff_t from_pitch, size_t row_bytes,
                     size_t rows, size_t total_bytes)
{
#if defined(__x86_64__)
    if (row_bytes > 32 && rows_can_avx2()) {
        if (row_bytes >= 64 && total_bytes > lochi_rows_cache_bytes())
            rows_past(to, to_pitch, from, from_pitch, row_bytes, rows);
        else if (row_bytes == 64)
            rows_of_a_line(to, to_pitch, from, from_pitch, rows);
        else
            rows_through(to, to_pitch, from, from_pitch, row_bytes, rows);
        return;
    }
#endif
    (void)total_bytes;
    rows_plain(to, to_pitch, from, from_pitch, row_bytes, rows);
}

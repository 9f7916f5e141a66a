/* SPDX-License-Identifier: MIT */
/* A merge sort from the bottom. That of libc takes memory of its own, and quadratic time if there is none. */
#include "sort.h"
#include <string.h>

/* Merges the sorted runs [first, middle) and [middle, end) of `from` into `to`. */
static void sort_merge(void **from, void **to, size_t first, size_t middle, size_t end, safetensors_compare *compare)
{
    size_t left = first, right = middle;
    for (size_t i = first; i < end; i++)
        to[i] = left < middle && (right == end || compare(from[left], from[right]) <= 0) ? from[left++] : from[right++];
}

void lochi_safetensors_sort(void **items, void **scratch, size_t count, safetensors_compare *compare)
{
    void **from = items, **to = scratch;
    for (size_t run = 1; run < count; run *= 2) {
        for (size_t first = 0; first < count; first += 2 * run) {
            const size_t middle = count - first < run ? count : first + run;
            const size_t end = count - middle < run ? count : middle + run;
            sort_merge(from, to, first, middle, end, compare);
        }
        void **turned = from;
        from = to;
        to = turned;
    }
    if (from != items) memcpy(items, from, count * sizeof *items);
}

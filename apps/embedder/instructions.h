/* SPDX-License-Identifier: MIT */
/* Instructions of the device that CUDA C has no words for, for kernels.cu. A test that runs the kernels on the host has
 * functions of its own for them: tests/embedder/emulator.h. */
#ifndef EMBEDDER_INSTRUCTIONS_H
#define EMBEDDER_INSTRUCTIONS_H

typedef unsigned short half;

__device__ __forceinline__ float widen(half x)
{
    float y;
    asm("cvt.f32.f16 %0, %1;" : "=f"(y) : "h"(x));
    return y;
}

/* Two numbers in one word, the first in its low half. */
__device__ __forceinline__ unsigned pack(float low, float high)
{
    unsigned both;
    asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(both) : "f"(high), "f"(low));
    return both;
}

/* sum += a b for a of 16 by 16, b of 16 by 8. Lane 4 g + p has rows g and g + 8, columns 2 p and 2 p + 1. */
__device__ __forceinline__ void multiply(float sum[4], const unsigned a[4], unsigned b0, unsigned b1)
{
    asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, "
                 "{%0, %1, %2, %3};"
                 : "+f"(sum[0]), "+f"(sum[1]), "+f"(sum[2]), "+f"(sum[3])
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

/* Loads four blocks of 8 by 8 from shared memory, turned; each lane has the address of one row of one block. */
__device__ __forceinline__ void load_turned(const half *row, unsigned b[4])
{
    const unsigned address = (unsigned)__cvta_generic_to_shared(row);
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(b[0]), "=r"(b[1]), "=r"(b[2]), "=r"(b[3])
                 : "r"(address)
                 : "memory");
}

#endif

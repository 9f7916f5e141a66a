/* SPDX-License-Identifier: MIT */
// ptx: --gpu-architecture=compute_90 --relocatable-device-code=true
/* Conversions of floats to f8 types on devices that have instructions for it: vectors, saturated. They take the place of
 * kernels of chunks.cu with the same names, which other devices use. */
#define KERNEL_HAS_F8 1
#include "chunks.cuh"

CHUNKS_DEFINE_VECTORS(2, 1)
CHUNKS_DEFINE_VECTORS(4, 1)

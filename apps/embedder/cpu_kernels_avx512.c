/* SPDX-License-Identifier: MIT */
/* The kernels for x86-64 processors with AVX-512. */
#include "cpu_kernels.h"
#include <math.h>
#include <string.h>

#if defined(__x86_64__)
#if defined(__clang__)
#pragma clang attribute push(__attribute__((target("avx512f,avx512vl,avx2,fma"))), apply_to = function)
#else
#pragma GCC target("avx512f,avx512vl,avx2,fma")
#endif
#define LANES 16
#include "cpu_kernels_body.h"

const cpu_kernels cpu_kernels_avx512 = CPU_KERNELS_TABLE("AVX-512");

#if defined(__clang__)
#pragma clang attribute pop
#endif
#endif

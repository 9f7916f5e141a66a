/* SPDX-License-Identifier: MIT */
#include "cpu_kernels.h"

const cpu_kernels *cpu_kernels_get(void)
{
#if defined(__x86_64__)
    __builtin_cpu_init();
    if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512vl")) return &cpu_kernels_avx512;
    if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma")) return &cpu_kernels_avx2;
#endif
    return &cpu_kernels_plain;
}

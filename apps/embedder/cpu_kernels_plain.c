/* SPDX-License-Identifier: MIT */
/* The kernels for any processor: vectors of 16 bytes, which compilers have everywhere. */
#define LANES 4
#include "cpu_kernels_body.h"

const cpu_kernels cpu_kernels_plain = CPU_KERNELS_TABLE("plain C");

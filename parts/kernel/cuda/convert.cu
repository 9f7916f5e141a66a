/* SPDX-License-Identifier: MIT */
// ptx: --relocatable-device-code=true
/* Conversions of one element: loch_convert_F_T converts an element of F bytes to one of T bytes. Kernels call these
 * functions, and the host puts their text in the place of each call, so that it is in the tree once (text.c). */
#include "convert.h"

#define CONVERT_DEFINE(F, T)                                                                                           \
    extern "C" __device__ __noinline__ u64 loch_convert_##F##_##T(u64 bits)                                            \
    {                                                                                                                  \
        asm("" : "+l"(bits)); /* the parameter is loaded once, with all of its bits: text.c */                         \
        return convert_element(bits, F, mark_from(), T, mark_to());                                                    \
    }
CONVERT_PAIRS(CONVERT_DEFINE)

/* SPDX-License-Identifier: MIT */
/* The loops for x86-64 processors with AVX2 and F16C. */
#ifndef LOCHI_CONVERT_AVX2_H
#define LOCHI_CONVERT_AVX2_H

#include "tensor/convert/table.h"

/* Returns better loops for the processor that this runs on, not for every pair; NULL when there are none. They give the bits of
 * the portable ones. */
const lochi_convert_table *lochi_convert_native(void);

#endif

/* SPDX-License-Identifier: MIT */
/* The loops for x86-64 processors with AVX2 and F16C. */
#ifndef LOCHI_CONVERT_AVX2_H
#define LOCHI_CONVERT_AVX2_H

#include "tensor/convert/table.h"

/* Returns faster loops for this processor. The table does not have every pair. Returns NULL if there are no such loops.
 * The results are bit for bit those of the portable loops. */
const lochi_convert_table *lochi_convert_native(void);

#endif

/* SPDX-License-Identifier: MIT */
/* The loops for any processor. */
#ifndef LOCHI_CONVERT_PORTABLE_H
#define LOCHI_CONVERT_PORTABLE_H

#include "tensor/convert/table.h"

/* The table with all loops. */
extern const lochi_convert_table lochi_convert_portable;

#endif

/* SPDX-License-Identifier: MIT */
/* The loops of loch_convert for any processor. */
#include "tensor/convert/portable.h"
#include "tensor/convert/list.h"

#define PORTABLE_LOOP(to, from, expression) LOCHI_CONVERT_LOOP(portable_##to##_of_##from, to, from, expression)
#define PORTABLE_SPECIAL_LOOP(to, from, expression) LOCHI_CONVERT_LOOP(special_##to##_of_##from, to, from, expression)
LOCHI_CONVERT_LIST_HALF(PORTABLE_LOOP)
LOCHI_CONVERT_LIST(PORTABLE_LOOP)
LOCHI_CONVERT_LIST_SPECIAL(PORTABLE_SPECIAL_LOOP)

#define PORTABLE_ENTRY(to, from, expression) [LOCH_##to][LOCH_##from] = portable_##to##_of_##from,
#define PORTABLE_SPECIAL_ENTRY(to, from, expression) [LOCH_##to][LOCH_##from] = special_##to##_of_##from,
const lochi_convert_table lochi_convert_portable = {
    .steps = {
        [LOCH_OVERFLOW_SATURATE] = {LOCHI_CONVERT_LIST_HALF(PORTABLE_ENTRY) LOCHI_CONVERT_LIST(PORTABLE_ENTRY)},
        [LOCH_OVERFLOW_SPECIAL] = {LOCHI_CONVERT_LIST_SPECIAL(PORTABLE_SPECIAL_ENTRY)},
    }};

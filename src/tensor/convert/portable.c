/* SPDX-License-Identifier: MIT */
/* The loops of loch_convert for any processor. */
#include "tensor/convert/portable.h"
#include "tensor/convert/list.h"

#define PORTABLE_LOOP(to, from, expression) LOCHI_CONVERT_LOOP(portable_##to##_of_##from, to, from, expression)
#define PORTABLE_SPECIAL_LOOP(to, from, expression) LOCHI_CONVERT_LOOP(special_##to##_of_##from, to, from, expression)
LOCHI_CONVERT_LIST_HALF(PORTABLE_LOOP)
LOCHI_CONVERT_LIST(PORTABLE_LOOP)
LOCHI_CONVERT_LIST_SPECIAL(PORTABLE_SPECIAL_LOOP)

#define PORTABLE_ODD_LOOP(to, from, expression) LOCHI_CONVERT_LOOP(odd_of_##from, to, from, expression)
#define PORTABLE_NARROW(to, from)                                                                                      \
    LOCHI_CONVERT_TWICE(portable_##to##_of_##from, to, odd_of_##from, portable_##to##_of_F32)
#define PORTABLE_SPECIAL_NARROW(to, from)                                                                              \
    LOCHI_CONVERT_TWICE(special_##to##_of_##from, to, odd_of_##from, special_##to##_of_F32)
LOCHI_CONVERT_LIST_ODD(PORTABLE_ODD_LOOP)
LOCHI_CONVERT_LIST_NARROW(PORTABLE_NARROW)
LOCHI_CONVERT_LIST_NARROW_F8(PORTABLE_SPECIAL_NARROW)

#define PORTABLE_ENTRY(to, from, expression) [LOCH_##to][LOCH_##from] = portable_##to##_of_##from,
#define PORTABLE_SPECIAL_ENTRY(to, from, expression) [LOCH_##to][LOCH_##from] = special_##to##_of_##from,
#define PORTABLE_NARROW_ENTRY(to, from) PORTABLE_ENTRY(to, from, )
#define PORTABLE_SPECIAL_NARROW_ENTRY(to, from) PORTABLE_SPECIAL_ENTRY(to, from, )
const lochi_convert_table lochi_convert_portable = {
    .steps = {
        [LOCH_OVERFLOW_SATURATE] = {LOCHI_CONVERT_LIST_HALF(PORTABLE_ENTRY) LOCHI_CONVERT_LIST(PORTABLE_ENTRY)
                                        LOCHI_CONVERT_LIST_NARROW(PORTABLE_NARROW_ENTRY)},
        [LOCH_OVERFLOW_SPECIAL] = {LOCHI_CONVERT_LIST_SPECIAL(PORTABLE_SPECIAL_ENTRY)
                                       LOCHI_CONVERT_LIST_NARROW_F8(PORTABLE_SPECIAL_NARROW_ENTRY)},
    }};

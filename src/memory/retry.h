/* SPDX-License-Identifier: MIT */
/* When memory is short. */
#ifndef LOCHI_RETRY_H
#define LOCHI_RETRY_H

#include "memory/allocator_state.h"

/* Tries again after pressure functions and frees; `status` is why the first attempt failed, and failures from `mark` on are
 * those of attempts (failure.h). */
loch_status lochi_retry(loch_allocator *allocator, const loch_request *request, uint32_t mark, loch_status status,
                        void **out);

#endif

/* SPDX-License-Identifier: MIT */
/* Retries when memory is short. */
#ifndef LOCHI_RETRY_H
#define LOCHI_RETRY_H

#include "memory/allocator_state.h"

/* Retries after pressure functions and after frees. `status` is the error of the first attempt. Failures noted since
 * `mark` belong to attempts of this request (failure.h). */
loch_status lochi_retry(loch_allocator *allocator, const loch_request *request, uint32_t mark, loch_status status,
                        void **out);

#endif

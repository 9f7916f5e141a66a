/* SPDX-License-Identifier: MIT */
/* Retries when memory is short. */
#ifndef LOCHI_RETRY_H
#define LOCHI_RETRY_H

#include "memory/allocator_state.h"

/* Makes one attempt: lochi_allocator_try, or the growth of a block. */
typedef loch_status lochi_attempt(loch_allocator *allocator, const loch_request *request, void **out);

/* Retries after pressure functions, which are told `request->bytes`, and after frees. `status` is the error of the
 * first attempt. Failures noted since `mark` belong to attempts of this request (failure.h). An inner request is not
 * retried: its allocator is noted for the outermost one. */
loch_status lochi_retry(loch_allocator *allocator, lochi_attempt *attempt, const loch_request *request, uint32_t mark,
                        loch_status status, bool is_inner, void **out);

#endif

/* SPDX-License-Identifier: MIT */
/* A UMF memory provider as a Loch allocator: the source of a pool's segments. */
#ifndef LOCHI_UMF_SOURCE_H
#define LOCHI_UMF_SOURCE_H

#include <loch/pool.h>
#include "interface.h"

typedef struct lochi_umf_source lochi_umf_source;

/* Makes an allocator of `device` whose blocks are allocations of a provider. `*out` lives as long as the allocator. */
loch_status lochi_umf_source_create(loch_device *device, lochi_umf_provider *provider, lochi_umf_source **out,
                                    loch_allocator **allocator);

/* Ends the use of the provider, which may be destroyed after this call. Returns the bytes that were not given back to
 * it. Frees that come later do nothing. */
size_t lochi_umf_source_close(lochi_umf_source *source);

/* Returns the provider's result of the last allocation that it refused on this thread, and forgets it; SUCCESS if
 * there is none. */
lochi_umf_result lochi_umf_source_take_error(void);

#endif

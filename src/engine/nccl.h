/* SPDX-License-Identifier: MIT */
/* The communicators of an engine (nccl.c). */
#ifndef LOCHI_NCCL_H
#define LOCHI_NCCL_H

#include <loch/library.h>

/* Creates communicators for devices of this process; device i has rank i. E_UNSUPPORTED: a device is not a CUDA device,
 * or is in the list twice, or NCCL is not installed.
 * @param out  owned by the caller; destroy it with lochi_nccl_destroy. NULL on failure. */
loch_status lochi_nccl_create(loch_device *const *devices, size_t count, loch_nccl **out);

/* Destroys communicators. Work already queued runs to its end. NULL does nothing. */
void lochi_nccl_destroy(loch_nccl *nccl);

#endif

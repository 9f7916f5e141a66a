/* SPDX-License-Identifier: MIT */
/** @file loch_umf.h
 *  A Loch pool as a pool of UMF, the Unified Memory Framework. A library of its own, libloch_umf, on the public
 *  interface of Loch. It needs no header of UMF, and works with UMF 1.0 and all later versions of 1.
 *
 *      #include <umf.h>
 *      #include <loch_umf.h>
 *
 *      umf_memory_pool_handle_t pool;
 *      umfPoolCreate(loch_umf_pool_ops(), provider, NULL, 0, &pool);
 *
 *  The parameters of umfPoolCreate are a loch_umf_options, or NULL for all defaults. docs/umf.md is for users.
 */
#ifndef LOCH_UMF_H
#define LOCH_UMF_H

#include <loch/pool.h>

LOCH_BEGIN_DECLS

/** Where the memory of a pool comes from. */
typedef enum loch_umf_source {
    /** From the memory provider that umfPoolCreate gets, in segments. UMF knows the memory: umfFree, umfPoolByPtr and
     *  IPC handles work. */
    LOCH_UMF_PROVIDER,
    /** From the Loch device itself: the pool has virtual memory where the device has it. The provider is not asked, so
     *  UMF does not know the memory: umfFree, umfPoolByPtr and IPC handles do not find it. */
    LOCH_UMF_DEVICE
} loch_umf_source;

/** Parameters of a pool. Zero means default. UMF passes a pointer to them; nothing is kept after umfPoolCreate. */
typedef struct loch_umf_options {
    size_t size; /**< sizeof(loch_umf_options) */
    /** Name of the pool, for UMF's controls and for Loch's reports: 1 to 63 letters, digits, '_' or '-'. NULL for
     *  "loch". */
    const char *name;
    /** Name of the Loch device that has the memory, as for loch_device_open; NULL for "cpu". With a provider, the
     *  device that can fill and copy its memory: "cuda:0" for the memory of UMF's CUDA provider. */
    const char *device;
    loch_umf_source source; /**< where the memory comes from */
    /** Options of the pool: kind of memory, limit, cap on free memory, wiping; NULL for all defaults. Its `source` must
     *  be NULL. */
    const loch_pool_options *pool;
} loch_umf_options;

struct umf_memory_pool_ops_t;

/** Returns the functions of a Loch pool for umfPoolCreate: a table of version 1.1 of UMF's pool operations. Static.
 *  The functions work from any thread, as UMF asks. Any thread. */
LOCH_API const struct umf_memory_pool_ops_t *loch_umf_pool_ops(void);

LOCH_END_DECLS

#endif

/* SPDX-License-Identifier: MIT */
/* The declarations of parts/comm/src/nccl_library.h against the real nccl.h: constants and structures. There is nothing
 * to run: what has drifted does not compile. */
#include "nccl_library.h"
#include <nccl.h>
#include <stddef.h>

#define SAME(own, real) _Static_assert((int)(COMM_NCCL_##own) == (int)(real), #real " has another value")

SAME(SUCCESS, ncclSuccess);
SAME(SYSTEM_ERROR, ncclSystemError);
SAME(INVALID_ARGUMENT, ncclInvalidArgument);
SAME(INVALID_USAGE, ncclInvalidUsage);
SAME(REMOTE_ERROR, ncclRemoteError);
SAME(IN_PROGRESS, ncclInProgress);
SAME(INT8, ncclInt8);
SAME(UINT8, ncclUint8);
SAME(INT32, ncclInt32);
SAME(UINT32, ncclUint32);
SAME(INT64, ncclInt64);
SAME(UINT64, ncclUint64);
SAME(FLOAT16, ncclFloat16);
SAME(FLOAT32, ncclFloat32);
SAME(FLOAT64, ncclFloat64);
SAME(BFLOAT16, ncclBfloat16);
#if NCCL_VERSION_CODE >= NCCL_VERSION(2, 24, 3)
SAME(FLOAT8E4M3, ncclFloat8e4m3);
SAME(FLOAT8E5M2, ncclFloat8e5m2);
#endif
SAME(SUM, ncclSum);
SAME(PROD, ncclProd);
SAME(MAX, ncclMax);
SAME(MIN, ncclMin);
SAME(AVG, ncclAvg);
#ifdef NCCL_WIN_COLL_SYMMETRIC
SAME(WIN_COLL_SYMMETRIC, NCCL_WIN_COLL_SYMMETRIC);
#endif
_Static_assert(sizeof(nccl_id) == sizeof(ncclUniqueId), "ncclUniqueId has another size");
_Static_assert(offsetof(nccl_config, magic) == offsetof(ncclConfig_t, magic) &&
                   offsetof(nccl_config, version) == offsetof(ncclConfig_t, version) &&
                   offsetof(nccl_config, blocking) == offsetof(ncclConfig_t, blocking),
               "ncclConfig_t begins in another way");

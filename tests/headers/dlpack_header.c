/* SPDX-License-Identifier: MIT */
/* Loch's declarations of DLPack against a real dlpack.h, of whatever version was found (LOCH_DLPACK_HEADER). There is
 * nothing to run: what has drifted does not compile. Structures are compared by size and by the place and size of their
 * members, constants by value. */

/* Ours, under other names. */
#define DLPackVersion own_version
#define DLDevice own_device
#define DLDataType own_type
#define DLTensor own_tensor
#define DLManagedTensor own_managed
#define DLManagedTensorVersioned own_managed_versioned
#include "tensor/dlpack_abi.h"
#undef DLPackVersion
#undef DLDevice
#undef DLDataType
#undef DLTensor
#undef DLManagedTensor
#undef DLManagedTensorVersioned

#include LOCH_DLPACK_HEADER
#include <loch/dlpack.h> /* its declarations may stand beside the real ones */
#include <stddef.h>

#define SAME_SIZE(own, real) _Static_assert(sizeof(own) == sizeof(real), #real " has another size")
#define SAME_MEMBER(own, real, member)                                                                                 \
    _Static_assert(offsetof(own, member) == offsetof(real, member) &&                                                  \
                       sizeof(((own *)0)->member) == sizeof(((real *)0)->member),                                      \
                   #real "." #member " lies elsewhere")
#define SAME_VALUE(own, real) _Static_assert((int)(own) == (int)(real), #real " has another value")

SAME_SIZE(struct own_device, DLDevice);
SAME_MEMBER(struct own_device, DLDevice, device_type);
SAME_MEMBER(struct own_device, DLDevice, device_id);
SAME_SIZE(struct own_type, DLDataType);
SAME_MEMBER(struct own_type, DLDataType, code);
SAME_MEMBER(struct own_type, DLDataType, bits);
SAME_MEMBER(struct own_type, DLDataType, lanes);
SAME_SIZE(struct own_tensor, DLTensor);
SAME_MEMBER(struct own_tensor, DLTensor, data);
SAME_MEMBER(struct own_tensor, DLTensor, device);
SAME_MEMBER(struct own_tensor, DLTensor, ndim);
SAME_MEMBER(struct own_tensor, DLTensor, dtype);
SAME_MEMBER(struct own_tensor, DLTensor, shape);
SAME_MEMBER(struct own_tensor, DLTensor, strides);
SAME_MEMBER(struct own_tensor, DLTensor, byte_offset);
SAME_SIZE(struct own_managed, DLManagedTensor);
SAME_MEMBER(struct own_managed, DLManagedTensor, dl_tensor);
SAME_MEMBER(struct own_managed, DLManagedTensor, manager_ctx);
SAME_MEMBER(struct own_managed, DLManagedTensor, deleter);

SAME_VALUE(LOCHI_DL_CPU, kDLCPU);
SAME_VALUE(LOCHI_DL_CUDA, kDLCUDA);
SAME_VALUE(LOCHI_DL_CUDA_HOST, kDLCUDAHost);
SAME_VALUE(LOCHI_DL_CUDA_MANAGED, kDLCUDAManaged);
SAME_VALUE(LOCHI_DL_INT, kDLInt);
SAME_VALUE(LOCHI_DL_UINT, kDLUInt);
SAME_VALUE(LOCHI_DL_FLOAT, kDLFloat);
SAME_VALUE(LOCHI_DL_BFLOAT, kDLBfloat);

#ifdef DLPACK_MAJOR_VERSION /* 1.0 and later */
_Static_assert(DLPACK_MAJOR_VERSION == LOCH_DLPACK_MAJOR, "dlpack.h is of another major version");
SAME_SIZE(struct own_version, DLPackVersion);
SAME_MEMBER(struct own_version, DLPackVersion, major);
SAME_MEMBER(struct own_version, DLPackVersion, minor);
SAME_SIZE(struct own_managed_versioned, DLManagedTensorVersioned);
SAME_MEMBER(struct own_managed_versioned, DLManagedTensorVersioned, version);
SAME_MEMBER(struct own_managed_versioned, DLManagedTensorVersioned, manager_ctx);
SAME_MEMBER(struct own_managed_versioned, DLManagedTensorVersioned, deleter);
SAME_MEMBER(struct own_managed_versioned, DLManagedTensorVersioned, flags);
SAME_MEMBER(struct own_managed_versioned, DLManagedTensorVersioned, dl_tensor);
SAME_VALUE(LOCHI_DL_BOOL, kDLBool);
SAME_VALUE(LOCHI_DL_READ_ONLY, DLPACK_FLAG_BITMASK_READ_ONLY);
SAME_VALUE(LOCHI_DL_IS_COPIED, DLPACK_FLAG_BITMASK_IS_COPIED);
#if DLPACK_MINOR_VERSION >= 1
SAME_VALUE(LOCHI_DL_FLOAT8_E4M3FN, kDLFloat8_e4m3fn);
SAME_VALUE(LOCHI_DL_FLOAT8_E5M2, kDLFloat8_e5m2);
#endif
#endif

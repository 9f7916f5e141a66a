/* SPDX-License-Identifier: MIT */
/* The declarations of parts/kernel/src/cuda.h against the real cuda.h: constants, structures and calls. There is
 * nothing to run: what has drifted does not compile. */
#include "cuda.h"
#include <cuda.h> /* NOLINT(readability-duplicate-include): the toolkit's file of that name */
#include <stddef.h>

#if CUDA_VERSION >= 12040 /* the first with all of the calls */

#define SAME_VALUE(name) _Static_assert((int)(name) == LOCHI_##name, #name " has another value")
#define SAME_AS(own, real) _Static_assert((int)(own) == (int)(real), #real " has another value")

SAME_VALUE(CUDA_ERROR_INVALID_VALUE);
SAME_VALUE(CUDA_ERROR_OUT_OF_MEMORY);
SAME_VALUE(CUDA_ERROR_INVALID_IMAGE);
SAME_VALUE(CUDA_ERROR_NO_BINARY_FOR_GPU);
SAME_VALUE(CUDA_ERROR_INVALID_PTX);
SAME_VALUE(CUDA_ERROR_UNSUPPORTED_PTX_VERSION);
SAME_VALUE(CUDA_ERROR_JIT_COMPILATION_DISABLED);
SAME_VALUE(CUDA_ERROR_INVALID_SOURCE);
SAME_VALUE(CUDA_ERROR_NOT_FOUND);
SAME_VALUE(CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES);
SAME_VALUE(CUDA_ERROR_COOPERATIVE_LAUNCH_TOO_LARGE);
SAME_VALUE(CU_JIT_ERROR_LOG_BUFFER);
SAME_VALUE(CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES);
SAME_VALUE(CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK);
SAME_VALUE(CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES);
SAME_VALUE(CU_FUNC_ATTRIBUTE_LOCAL_SIZE_BYTES);
SAME_VALUE(CU_FUNC_ATTRIBUTE_NUM_REGS);
SAME_VALUE(CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES);
SAME_VALUE(CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN);
SAME_VALUE(CU_STREAM_CAPTURE_MODE_RELAXED);
SAME_AS(LOCHI_CU_LAUNCH_COOPERATIVE, CU_LAUNCH_ATTRIBUTE_COOPERATIVE);
SAME_AS(LOCHI_CU_LAUNCH_PROGRAMMATIC_STREAM_SERIALIZATION, CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION);

#define SAME_PLACE(own, member, real, other)                                                                           \
    _Static_assert(offsetof(own, member) == offsetof(real, other), #real "." #other " lies elsewhere")

_Static_assert(sizeof(cu_launch_config) == sizeof(CUlaunchConfig), "CUlaunchConfig has another size");
SAME_PLACE(cu_launch_config, grid, CUlaunchConfig, gridDimX);
SAME_PLACE(cu_launch_config, block, CUlaunchConfig, blockDimX);
SAME_PLACE(cu_launch_config, shared_bytes, CUlaunchConfig, sharedMemBytes);
SAME_PLACE(cu_launch_config, stream, CUlaunchConfig, hStream);
SAME_PLACE(cu_launch_config, attributes, CUlaunchConfig, attrs);
SAME_PLACE(cu_launch_config, attributes_count, CUlaunchConfig, numAttrs);
_Static_assert(sizeof(cu_launch_attribute) == sizeof(CUlaunchAttribute), "CUlaunchAttribute has another size");
SAME_PLACE(cu_launch_attribute, id, CUlaunchAttribute, id);
SAME_PLACE(cu_launch_attribute, value.number, CUlaunchAttribute, value.cooperative);
SAME_PLACE(cu_launch_attribute, value.number, CUlaunchAttribute, value.programmaticStreamSerializationAllowed);

/* Each call has as many parameters as the real one, of the sizes and kinds that convert without a cast: enumerations
 * are ints here, and functions, modules and streams are the toolkit's own tags. */
#define int_of(type) _Static_assert(sizeof(type) == sizeof(int), #type " is not an int")
int_of(CUresult);
int_of(CUdevice);
int_of(CUjit_option);
int_of(CUfunction_attribute);
int_of(CUdevice_attribute);
int_of(CUstreamCaptureMode);
_Static_assert(__builtin_types_compatible_p(cu_module, CUmodule), "CUmodule is another type");
_Static_assert(__builtin_types_compatible_p(cu_function, CUfunction), "CUfunction is another type");
_Static_assert(__builtin_types_compatible_p(cu_queue, CUstream), "CUstream is another type");
_Static_assert(__builtin_types_compatible_p(__typeof__(&cuLaunchKernel),
                                            CUresult (*)(cu_function, unsigned, unsigned, unsigned, unsigned, unsigned,
                                                         unsigned, unsigned, cu_queue, void **, void **)),
               "cuLaunchKernel has another type");
_Static_assert(__builtin_types_compatible_p(__typeof__(&cuLaunchKernelEx),
                                            CUresult (*)(const CUlaunchConfig *, cu_function, void **, void **)),
               "cuLaunchKernelEx has another type");
_Static_assert(__builtin_types_compatible_p(__typeof__(&cuFuncGetParamInfo),
                                            CUresult (*)(cu_function, size_t, size_t *, size_t *)),
               "cuFuncGetParamInfo has another type");
_Static_assert(__builtin_types_compatible_p(__typeof__(&cuModuleLoadDataEx),
                                            CUresult (*)(cu_module *, const void *, unsigned, CUjit_option *, void **)),
               "cuModuleLoadDataEx has another type");

#endif

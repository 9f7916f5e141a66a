/* SPDX-License-Identifier: MIT */
/* Loch's declarations of the CUDA driver API against the real cuda.h. There is nothing to run: what has drifted does
 * not compile. Each entry point is compared by the symbol that the toolkit maps its name to and by its whole type, each
 * structure by size and by the place of its members, each constant by value.
 *
 * The types are compared by writing out Loch's lists a second time, with Loch's names of types standing for the
 * toolkit's; that the two are the same size is checked apart. */
#include "device/cuda/api.h"
#include <stddef.h>

/* Before Loch's names change their meaning. */
enum {
    OWN_RESULT_BYTES = sizeof(cu_result),
    OWN_CHOICE_BYTES = sizeof(cu_choice),
    OWN_DEVICE_BYTES = sizeof(cu_device),
    OWN_ADDRESS_BYTES = sizeof(cu_address),
    OWN_MEMORY_BYTES = sizeof(cu_memory),
    OWN_NUMBER_BYTES = sizeof(cu_number)
};
typedef cu_location own_location;
typedef cu_allocation own_allocation;
typedef cu_access own_access;
typedef cu_copy_2d own_copy_2d;
typedef cu_copy_3d own_copy_3d;
typedef cu_copy_3d_peer own_copy_3d_peer;
typedef lochi_cuda_api own_api;

#include <cuda.h>
#include <cudaTypedefs.h>

#if CUDA_VERSION < 11030
#error "cuda.h is too old to compare with: 11.3 or later is needed"
#endif

#define cu_result CUresult
#define cu_device CUdevice
#define cu_address CUdeviceptr
#define cu_memory CUmemGenericAllocationHandle
#define cu_number cuuint64_t
#define cu_context struct CUctx_st
#define cu_stream struct CUstream_st
#define cu_event struct CUevent_st
#define cu_graph struct CUgraph_st
#define cu_graph_node struct CUgraphNode_st
#define cu_location CUmemLocation
#define cu_allocation CUmemAllocationProp
#define cu_access CUmemAccessDesc
#define cu_copy_2d CUDA_MEMCPY2D
#define cu_copy_3d CUDA_MEMCPY3D
#define cu_copy_3d_peer CUDA_MEMCPY3D_PEER
#define cu_choice_device_attribute CUdevice_attribute
#define cu_choice_pointer_attribute CUpointer_attribute
#define cu_choice_granularity CUmemAllocationGranularity_flags
#define cu_choice_handle_type CUmemAllocationHandleType
#define cu_choice_capture_status CUstreamCaptureStatus
#define cu_choice_capture_mode CUstreamCaptureMode

#define SAME_SIZE(own_bytes, real) _Static_assert((own_bytes) == sizeof(real), #real " has another size")

SAME_SIZE(OWN_RESULT_BYTES, CUresult);
SAME_SIZE(OWN_DEVICE_BYTES, CUdevice);
SAME_SIZE(OWN_ADDRESS_BYTES, CUdeviceptr);
SAME_SIZE(OWN_MEMORY_BYTES, CUmemGenericAllocationHandle);
SAME_SIZE(OWN_NUMBER_BYTES, cuuint64_t);
SAME_SIZE(OWN_CHOICE_BYTES, CUdevice_attribute);
SAME_SIZE(OWN_CHOICE_BYTES, CUpointer_attribute);
SAME_SIZE(OWN_CHOICE_BYTES, CUmemAllocationGranularity_flags);
SAME_SIZE(OWN_CHOICE_BYTES, CUmemAllocationHandleType);
SAME_SIZE(OWN_CHOICE_BYTES, CUmemAllocationType);
SAME_SIZE(OWN_CHOICE_BYTES, CUmemLocationType);
SAME_SIZE(OWN_CHOICE_BYTES, CUmemAccess_flags);
SAME_SIZE(OWN_CHOICE_BYTES, CUstreamCaptureStatus);
SAME_SIZE(OWN_CHOICE_BYTES, CUstreamCaptureMode);
SAME_SIZE(OWN_CHOICE_BYTES, CUmemorytype);

/* --- structures --- */

#define SAME_MEMBER(own, real, member)                                                                                 \
    _Static_assert(offsetof(own, member) == offsetof(real, member) &&                                                  \
                       sizeof(((own *)0)->member) == sizeof(((real *)0)->member),                                      \
                   #real "." #member " lies elsewhere")

SAME_SIZE(sizeof(own_location), CUmemLocation);
SAME_MEMBER(own_location, CUmemLocation, type);
SAME_MEMBER(own_location, CUmemLocation, id);
SAME_SIZE(sizeof(own_allocation), CUmemAllocationProp);
SAME_MEMBER(own_allocation, CUmemAllocationProp, type);
SAME_MEMBER(own_allocation, CUmemAllocationProp, requestedHandleTypes);
SAME_MEMBER(own_allocation, CUmemAllocationProp, location);
SAME_MEMBER(own_allocation, CUmemAllocationProp, win32HandleMetaData);
SAME_MEMBER(own_allocation, CUmemAllocationProp, allocFlags.compressionType);
SAME_MEMBER(own_allocation, CUmemAllocationProp, allocFlags.gpuDirectRDMACapable);
SAME_MEMBER(own_allocation, CUmemAllocationProp, allocFlags.usage);
SAME_MEMBER(own_allocation, CUmemAllocationProp, allocFlags.reserved);
SAME_SIZE(sizeof(own_access), CUmemAccessDesc);
SAME_MEMBER(own_access, CUmemAccessDesc, location);
SAME_MEMBER(own_access, CUmemAccessDesc, flags);
SAME_SIZE(sizeof(own_copy_2d), CUDA_MEMCPY2D);
SAME_MEMBER(own_copy_2d, CUDA_MEMCPY2D, srcXInBytes);
SAME_MEMBER(own_copy_2d, CUDA_MEMCPY2D, srcY);
SAME_MEMBER(own_copy_2d, CUDA_MEMCPY2D, srcMemoryType);
SAME_MEMBER(own_copy_2d, CUDA_MEMCPY2D, srcHost);
SAME_MEMBER(own_copy_2d, CUDA_MEMCPY2D, srcDevice);
SAME_MEMBER(own_copy_2d, CUDA_MEMCPY2D, srcArray);
SAME_MEMBER(own_copy_2d, CUDA_MEMCPY2D, srcPitch);
SAME_MEMBER(own_copy_2d, CUDA_MEMCPY2D, dstXInBytes);
SAME_MEMBER(own_copy_2d, CUDA_MEMCPY2D, dstY);
SAME_MEMBER(own_copy_2d, CUDA_MEMCPY2D, dstMemoryType);
SAME_MEMBER(own_copy_2d, CUDA_MEMCPY2D, dstHost);
SAME_MEMBER(own_copy_2d, CUDA_MEMCPY2D, dstDevice);
SAME_MEMBER(own_copy_2d, CUDA_MEMCPY2D, dstArray);
SAME_MEMBER(own_copy_2d, CUDA_MEMCPY2D, dstPitch);
SAME_MEMBER(own_copy_2d, CUDA_MEMCPY2D, WidthInBytes);
SAME_MEMBER(own_copy_2d, CUDA_MEMCPY2D, Height);
SAME_SIZE(sizeof(own_copy_3d), CUDA_MEMCPY3D);
SAME_MEMBER(own_copy_3d, CUDA_MEMCPY3D, srcXInBytes);
SAME_MEMBER(own_copy_3d, CUDA_MEMCPY3D, srcY);
SAME_MEMBER(own_copy_3d, CUDA_MEMCPY3D, srcZ);
SAME_MEMBER(own_copy_3d, CUDA_MEMCPY3D, srcLOD);
SAME_MEMBER(own_copy_3d, CUDA_MEMCPY3D, srcMemoryType);
SAME_MEMBER(own_copy_3d, CUDA_MEMCPY3D, srcHost);
SAME_MEMBER(own_copy_3d, CUDA_MEMCPY3D, srcDevice);
SAME_MEMBER(own_copy_3d, CUDA_MEMCPY3D, srcArray);
SAME_MEMBER(own_copy_3d, CUDA_MEMCPY3D, reserved0);
SAME_MEMBER(own_copy_3d, CUDA_MEMCPY3D, srcPitch);
SAME_MEMBER(own_copy_3d, CUDA_MEMCPY3D, srcHeight);
SAME_MEMBER(own_copy_3d, CUDA_MEMCPY3D, dstXInBytes);
SAME_MEMBER(own_copy_3d, CUDA_MEMCPY3D, dstY);
SAME_MEMBER(own_copy_3d, CUDA_MEMCPY3D, dstZ);
SAME_MEMBER(own_copy_3d, CUDA_MEMCPY3D, dstLOD);
SAME_MEMBER(own_copy_3d, CUDA_MEMCPY3D, dstMemoryType);
SAME_MEMBER(own_copy_3d, CUDA_MEMCPY3D, dstHost);
SAME_MEMBER(own_copy_3d, CUDA_MEMCPY3D, dstDevice);
SAME_MEMBER(own_copy_3d, CUDA_MEMCPY3D, dstArray);
SAME_MEMBER(own_copy_3d, CUDA_MEMCPY3D, reserved1);
SAME_MEMBER(own_copy_3d, CUDA_MEMCPY3D, dstPitch);
SAME_MEMBER(own_copy_3d, CUDA_MEMCPY3D, dstHeight);
SAME_MEMBER(own_copy_3d, CUDA_MEMCPY3D, WidthInBytes);
SAME_MEMBER(own_copy_3d, CUDA_MEMCPY3D, Height);
SAME_MEMBER(own_copy_3d, CUDA_MEMCPY3D, Depth);
SAME_SIZE(sizeof(own_copy_3d_peer), CUDA_MEMCPY3D_PEER);
SAME_MEMBER(own_copy_3d_peer, CUDA_MEMCPY3D_PEER, srcXInBytes);
SAME_MEMBER(own_copy_3d_peer, CUDA_MEMCPY3D_PEER, srcY);
SAME_MEMBER(own_copy_3d_peer, CUDA_MEMCPY3D_PEER, srcZ);
SAME_MEMBER(own_copy_3d_peer, CUDA_MEMCPY3D_PEER, srcLOD);
SAME_MEMBER(own_copy_3d_peer, CUDA_MEMCPY3D_PEER, srcMemoryType);
SAME_MEMBER(own_copy_3d_peer, CUDA_MEMCPY3D_PEER, srcHost);
SAME_MEMBER(own_copy_3d_peer, CUDA_MEMCPY3D_PEER, srcDevice);
SAME_MEMBER(own_copy_3d_peer, CUDA_MEMCPY3D_PEER, srcArray);
SAME_MEMBER(own_copy_3d_peer, CUDA_MEMCPY3D_PEER, srcContext);
SAME_MEMBER(own_copy_3d_peer, CUDA_MEMCPY3D_PEER, srcPitch);
SAME_MEMBER(own_copy_3d_peer, CUDA_MEMCPY3D_PEER, srcHeight);
SAME_MEMBER(own_copy_3d_peer, CUDA_MEMCPY3D_PEER, dstXInBytes);
SAME_MEMBER(own_copy_3d_peer, CUDA_MEMCPY3D_PEER, dstY);
SAME_MEMBER(own_copy_3d_peer, CUDA_MEMCPY3D_PEER, dstZ);
SAME_MEMBER(own_copy_3d_peer, CUDA_MEMCPY3D_PEER, dstLOD);
SAME_MEMBER(own_copy_3d_peer, CUDA_MEMCPY3D_PEER, dstMemoryType);
SAME_MEMBER(own_copy_3d_peer, CUDA_MEMCPY3D_PEER, dstHost);
SAME_MEMBER(own_copy_3d_peer, CUDA_MEMCPY3D_PEER, dstDevice);
SAME_MEMBER(own_copy_3d_peer, CUDA_MEMCPY3D_PEER, dstArray);
SAME_MEMBER(own_copy_3d_peer, CUDA_MEMCPY3D_PEER, dstContext);
SAME_MEMBER(own_copy_3d_peer, CUDA_MEMCPY3D_PEER, dstPitch);
SAME_MEMBER(own_copy_3d_peer, CUDA_MEMCPY3D_PEER, dstHeight);
SAME_MEMBER(own_copy_3d_peer, CUDA_MEMCPY3D_PEER, WidthInBytes);
SAME_MEMBER(own_copy_3d_peer, CUDA_MEMCPY3D_PEER, Height);
SAME_MEMBER(own_copy_3d_peer, CUDA_MEMCPY3D_PEER, Depth);

/* --- constants --- */

#define SAME_VALUE(name, value) _Static_assert((long long)(name) == LOCHI_##name, #name " has another value");

LOCHI_CUDA_CONSTANTS(SAME_VALUE)
#if CUDA_VERSION >= 12080
LOCHI_CUDA_CONSTANTS_LATER(SAME_VALUE)
_Static_assert(sizeof(CUmemFabricHandle) == 64, "a fabric handle has another size");
#endif

/* --- entry points --- */

/* `name` is expanded, and so becomes the toolkit's symbol for it; `name##suffix` is not. Two tags are one type if they
 * are spelled alike. */
#define TAG_OF(symbol) struct tag_##symbol
#define TAG(symbol) TAG_OF(symbol)
#define SAME_CALL(name, suffix, need, parameters)                                                                      \
    struct tag_##name##suffix;                                                                                         \
    _Static_assert(__builtin_types_compatible_p(TAG(name) *, struct tag_##name##suffix *),                             \
                   #name " is not " #name #suffix " in this toolkit");                                                 \
    _Static_assert(__builtin_types_compatible_p(__typeof__(&name##suffix), CUresult(*) parameters),                    \
                   #name " has another type");

LOCHI_CUDA_CALLS(SAME_CALL)

/* Versions beside the toolkit's own are there as types only. */
#define SAME_TYPE(real, parameters)                                                                                    \
    _Static_assert(__builtin_types_compatible_p(real, CUresult(*) parameters), #real " is another type");

#define VERSIONED_cuEventElapsedTime(parameters) SAME_TYPE(PFN_cuEventElapsedTime_v2000, parameters)
#if CUDA_VERSION >= 12080
#define VERSIONED_cuEventElapsedTime_v2(parameters) SAME_TYPE(PFN_cuEventElapsedTime_v12080, parameters)
#else
#define VERSIONED_cuEventElapsedTime_v2(parameters) SAME_TYPE(PFN_cuEventElapsedTime_v2000, parameters)
#endif
#define VERSIONED_cuStreamGetCaptureInfo(parameters) SAME_TYPE(PFN_cuStreamGetCaptureInfo_v10010, parameters)
#define VERSIONED_cuStreamGetCaptureInfo_v2(parameters) SAME_TYPE(PFN_cuStreamGetCaptureInfo_v11030, parameters)
#define SAME_VERSION(name, suffix, need, parameters) VERSIONED_##name##suffix(parameters)

LOCHI_CUDA_CALLS_VERSIONED(SAME_VERSION)

/* The table holds nothing but the pointers and the version. */
#define ONE(name, suffix, need, parameters) +1
_Static_assert(sizeof(own_api) ==
                   sizeof(void (*)(void)) * (0 LOCHI_CUDA_CALLS(ONE) LOCHI_CUDA_CALLS_VERSIONED(ONE) + 1),
               "the table of entry points has another size");

/* The special streams are casts to an address, which no constant expression holds; so here to a number, and last. */
#define CUstream uintptr_t
_Static_assert(CU_STREAM_LEGACY == LOCHI_CU_STREAM_LEGACY, "CU_STREAM_LEGACY has another value");
_Static_assert(CU_STREAM_PER_THREAD == LOCHI_CU_STREAM_PER_THREAD, "CU_STREAM_PER_THREAD has another value");

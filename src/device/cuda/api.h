/* SPDX-License-Identifier: MIT */
/* The part of the CUDA driver API that Loch uses, declared here so that building needs no toolkit, and the table of its
 * entry points, filled at run time from libcuda.so.1.
 *
 * Entry points and constants are lists, so that tests/gpu/cuda_header.c can compare each line, and the few structs,
 * with the real cuda.h where it is installed. Only the plain symbols are used, never those with _ptsz: stream NULL
 * is the legacy default stream however the calling program was compiled. */
#ifndef LOCHI_CUDA_API_H
#define LOCHI_CUDA_API_H

#include "base/shared.h"
#include <loch/status.h>
#include <stdbool.h>

typedef unsigned int cu_result;        /* CUresult: an enumeration without negative values */
typedef unsigned int cu_choice;        /* every other enumeration */
typedef int cu_device;                 /* CUdevice */
typedef unsigned long long cu_address; /* CUdeviceptr */
typedef unsigned long long cu_memory;  /* CUmemGenericAllocationHandle */
typedef uint64_t cu_number;            /* cuuint64_t */
typedef struct cu_context cu_context;  /* the target of a CUcontext; the structs below are the targets of their types */
typedef struct cu_stream cu_stream;
typedef struct cu_event cu_event;
typedef struct cu_graph cu_graph;
typedef struct cu_graph_node cu_graph_node;
typedef void cu_host_function(void *user);

/* One name for each enumeration that is a parameter type, so that the comparison with cuda.h can tell them apart. */
typedef cu_choice cu_choice_device_attribute;
typedef cu_choice cu_choice_pointer_attribute;
typedef cu_choice cu_choice_granularity;
typedef cu_choice cu_choice_handle_type;
typedef cu_choice cu_choice_capture_status;
typedef cu_choice cu_choice_capture_mode;

/* CUmemLocation */
typedef struct cu_location {
    cu_choice type;
    int id;
} cu_location;

/* CUmemAllocationProp */
typedef struct cu_allocation {
    cu_choice type;
    cu_choice requestedHandleTypes;
    cu_location location;
    void *win32HandleMetaData;
    struct {
        unsigned char compressionType;
        unsigned char gpuDirectRDMACapable;
        unsigned short usage;
        unsigned char reserved[4];
    } allocFlags;
} cu_allocation;

/* CUmemAccessDesc */
typedef struct cu_access {
    cu_location location;
    cu_choice flags;
} cu_access;

typedef struct cu_array cu_array;

/* CUDA_MEMCPY2D */
typedef struct cu_copy_2d {
    size_t srcXInBytes, srcY;
    cu_choice srcMemoryType;
    const void *srcHost;
    cu_address srcDevice;
    cu_array *srcArray;
    size_t srcPitch;
    size_t dstXInBytes, dstY;
    cu_choice dstMemoryType;
    void *dstHost;
    cu_address dstDevice;
    cu_array *dstArray;
    size_t dstPitch;
    size_t WidthInBytes, Height;
} cu_copy_2d;

/* CUDA_MEMCPY3D */
typedef struct cu_copy_3d {
    size_t srcXInBytes, srcY, srcZ, srcLOD;
    cu_choice srcMemoryType;
    const void *srcHost;
    cu_address srcDevice;
    cu_array *srcArray;
    void *reserved0;
    size_t srcPitch, srcHeight;
    size_t dstXInBytes, dstY, dstZ, dstLOD;
    cu_choice dstMemoryType;
    void *dstHost;
    cu_address dstDevice;
    cu_array *dstArray;
    void *reserved1;
    size_t dstPitch, dstHeight;
    size_t WidthInBytes, Height, Depth;
} cu_copy_3d;

/* CUDA_MEMCPY3D_PEER */
typedef struct cu_copy_3d_peer {
    size_t srcXInBytes, srcY, srcZ, srcLOD;
    cu_choice srcMemoryType;
    const void *srcHost;
    cu_address srcDevice;
    cu_array *srcArray;
    cu_context *srcContext;
    size_t srcPitch, srcHeight;
    size_t dstXInBytes, dstY, dstZ, dstLOD;
    cu_choice dstMemoryType;
    void *dstHost;
    cu_address dstDevice;
    cu_array *dstArray;
    cu_context *dstContext;
    size_t dstPitch, dstHeight;
    size_t WidthInBytes, Height, Depth;
} cu_copy_3d_peer;

/* Constants by their names in cuda.h; LOCHI_ is added in front of each. */
#define LOCHI_CUDA_CONSTANTS(X)                                                                                        \
    X(CUDA_SUCCESS, 0)                                                                                                 \
    X(CUDA_ERROR_INVALID_VALUE, 1)                                                                                     \
    X(CUDA_ERROR_OUT_OF_MEMORY, 2)                                                                                     \
    X(CUDA_ERROR_DEINITIALIZED, 4)                                                                                     \
    X(CUDA_ERROR_STUB_LIBRARY, 34)                                                                                     \
    X(CUDA_ERROR_NO_DEVICE, 100)                                                                                       \
    X(CUDA_ERROR_ECC_UNCORRECTABLE, 214)                                                                               \
    X(CUDA_ERROR_PEER_ACCESS_UNSUPPORTED, 217)                                                                         \
    X(CUDA_ERROR_NVLINK_UNCORRECTABLE, 220)                                                                            \
    X(CUDA_ERROR_INVALID_HANDLE, 400)                                                                                  \
    X(CUDA_ERROR_NOT_READY, 600)                                                                                       \
    X(CUDA_ERROR_ILLEGAL_ADDRESS, 700)                                                                                 \
    X(CUDA_ERROR_LAUNCH_TIMEOUT, 702)                                                                                  \
    X(CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED, 704)                                                                     \
    X(CUDA_ERROR_CONTEXT_IS_DESTROYED, 709)                                                                            \
    X(CUDA_ERROR_ASSERT, 710)                                                                                          \
    X(CUDA_ERROR_TOO_MANY_PEERS, 711)                                                                                  \
    X(CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED, 712)                                                                  \
    X(CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED, 713)                                                                      \
    X(CUDA_ERROR_HARDWARE_STACK_ERROR, 714)                                                                            \
    X(CUDA_ERROR_ILLEGAL_INSTRUCTION, 715)                                                                             \
    X(CUDA_ERROR_MISALIGNED_ADDRESS, 716)                                                                              \
    X(CUDA_ERROR_INVALID_ADDRESS_SPACE, 717)                                                                           \
    X(CUDA_ERROR_INVALID_PC, 718)                                                                                      \
    X(CUDA_ERROR_LAUNCH_FAILED, 719)                                                                                   \
    X(CUDA_ERROR_NOT_PERMITTED, 800)                                                                                   \
    X(CUDA_ERROR_NOT_SUPPORTED, 801)                                                                                   \
    X(CUDA_ERROR_MPS_RPC_FAILURE, 806)                                                                                 \
    X(CUDA_ERROR_STREAM_CAPTURE_IMPLICIT, 906)                                                                         \
    X(CUDA_ERROR_CAPTURED_EVENT, 907)                                                                                  \
    X(CU_DEVICE_ATTRIBUTE_MAX_PITCH, 11)                                                                               \
    X(CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT, 16)                                                                    \
    X(CU_DEVICE_ATTRIBUTE_INTEGRATED, 18)                                                                              \
    X(CU_DEVICE_ATTRIBUTE_L2_CACHE_SIZE, 38)                                                                           \
    X(CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, 75)                                                                \
    X(CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR, 76)                                                                \
    X(CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_MULTIPROCESSOR, 81)                                                    \
    X(CU_DEVICE_ATTRIBUTE_MANAGED_MEMORY, 83)                                                                          \
    X(CU_DEVICE_ATTRIBUTE_CAN_USE_HOST_POINTER_FOR_REGISTERED_MEM, 91)                                                 \
    X(CU_DEVICE_ATTRIBUTE_HOST_REGISTER_SUPPORTED, 99)                                                                 \
    X(CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED, 102)                                                    \
    X(CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR_SUPPORTED, 103)                                            \
    X(CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_WITH_CUDA_VMM_SUPPORTED, 110)                                                \
    X(CU_DEVICE_ATTRIBUTE_MEMORY_POOLS_SUPPORTED, 115)                                                                 \
    X(CU_POINTER_ATTRIBUTE_MEMORY_TYPE, 2)                                                                             \
    X(CU_POINTER_ATTRIBUTE_IS_MANAGED, 8)                                                                              \
    X(CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL, 9)                                                                          \
    X(CU_POINTER_ATTRIBUTE_RANGE_START_ADDR, 11)                                                                       \
    X(CU_POINTER_ATTRIBUTE_RANGE_SIZE, 12)                                                                             \
    X(CU_POINTER_ATTRIBUTE_MAPPED, 13)                                                                                 \
    X(CU_MEMORYTYPE_HOST, 1)                                                                                           \
    X(CU_MEMORYTYPE_DEVICE, 2)                                                                                         \
    X(CU_MEMHOSTALLOC_PORTABLE, 1)                                                                                     \
    X(CU_MEMHOSTREGISTER_PORTABLE, 1)                                                                                  \
    X(CU_MEM_ATTACH_GLOBAL, 1)                                                                                         \
    X(CU_MEM_ALLOCATION_TYPE_PINNED, 1)                                                                                \
    X(CU_MEM_LOCATION_TYPE_DEVICE, 1)                                                                                  \
    X(CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 1)                                                                     \
    X(CU_MEM_ACCESS_FLAGS_PROT_READWRITE, 3)                                                                           \
    X(CU_MEM_ALLOC_GRANULARITY_MINIMUM, 0)                                                                             \
    X(CU_STREAM_DEFAULT, 0)                                                                                            \
    X(CU_STREAM_NON_BLOCKING, 1)                                                                                       \
    X(CU_STREAM_CAPTURE_STATUS_NONE, 0)                                                                                \
    X(CU_STREAM_CAPTURE_MODE_RELAXED, 2)                                                                               \
    X(CU_EVENT_DEFAULT, 0)                                                                                             \
    X(CU_EVENT_DISABLE_TIMING, 2)

/* Constants that not all toolkits before 12.8 have. Older drivers never return or take them. */
#define LOCHI_CUDA_CONSTANTS_LATER(X)                                                                                  \
    X(CUDA_ERROR_CONTAINED, 226)                                                                                       \
    X(CUDA_ERROR_TENSOR_MEMORY_LEAK, 721)                                                                              \
    X(CUDA_ERROR_MPS_CLIENT_TERMINATED, 810)                                                                           \
    X(CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_FABRIC_SUPPORTED, 128)                                                           \
    X(CU_MEM_HANDLE_TYPE_FABRIC, 8)

enum {
#define LOCHI_CUDA_CONSTANT_ENUM(name, value) LOCHI_##name = (value),
    LOCHI_CUDA_CONSTANTS(LOCHI_CUDA_CONSTANT_ENUM) LOCHI_CUDA_CONSTANTS_LATER(LOCHI_CUDA_CONSTANT_ENUM)
#undef LOCHI_CUDA_CONSTANT_ENUM
};

/* The result of every call in the child of a fork. Not a code of the driver. */
#define LOCHI_CUDA_FORKED ((cu_result)0xf02cedu)

/* The two special values of a CUstream. */
#define LOCHI_CU_STREAM_LEGACY ((uintptr_t)1)
#define LOCHI_CU_STREAM_PER_THREAD ((uintptr_t)2)

/* clang-format off */

/* Entry points: name, suffix of the exported symbol, whether loading fails without it, parameters. Every driver
 * since CUDA 11.0 has all required ones (cuDevicePrimaryCtxRelease_v2 is the newest). */
#define LOCHI_CUDA_CALLS(X)                                                                                            \
    X(cuInit, , NEEDED, (unsigned int flags))                                                                          \
    X(cuDriverGetVersion, , NEEDED, (int *version))                                                                    \
    X(cuGetErrorName, , NEEDED, (cu_result error, const char **name))                                                  \
    X(cuGetErrorString, , NEEDED, (cu_result error, const char **text))                                                \
    X(cuDeviceGetCount, , NEEDED, (int *count))                                                                        \
    X(cuDeviceGet, , NEEDED, (cu_device *device, int ordinal))                                                         \
    X(cuDeviceGetName, , NEEDED, (char *name, int bytes, cu_device device))                                            \
    X(cuDeviceGetAttribute, , NEEDED, (int *value, cu_choice_device_attribute attribute, cu_device device))            \
    X(cuDeviceTotalMem, _v2, NEEDED, (size_t *bytes, cu_device device))                                                \
    X(cuDeviceGetPCIBusId, , NEEDED, (char *bus_id, int bytes, cu_device device))                                      \
    X(cuDeviceCanAccessPeer, , NEEDED, (int *can, cu_device device, cu_device peer))                                   \
    X(cuDevicePrimaryCtxRetain, , NEEDED, (cu_context **context, cu_device device))                                    \
    X(cuDevicePrimaryCtxRelease, _v2, NEEDED, (cu_device device))                                                      \
    X(cuCtxGetCurrent, , NEEDED, (cu_context **context))                                                               \
    X(cuCtxSetCurrent, , NEEDED, (cu_context *context))                                                                \
    X(cuCtxPushCurrent, _v2, NEEDED, (cu_context *context))                                                            \
    X(cuCtxPopCurrent, _v2, NEEDED, (cu_context **context))                                                            \
    X(cuCtxSynchronize, , NEEDED, (void))                                                                              \
    X(cuCtxEnablePeerAccess, , NEEDED, (cu_context *peer, unsigned int flags))                                         \
    X(cuMemGetInfo, _v2, NEEDED, (size_t *free_bytes, size_t *total_bytes))                                            \
    X(cuMemAlloc, _v2, NEEDED, (cu_address *address, size_t bytes))                                                    \
    X(cuMemFree, _v2, NEEDED, (cu_address address))                                                                    \
    X(cuMemHostAlloc, , NEEDED, (void **address, size_t bytes, unsigned int flags))                                    \
    X(cuMemFreeHost, , NEEDED, (void *address))                                                                        \
    X(cuMemHostRegister, _v2, NEEDED, (void *address, size_t bytes, unsigned int flags))                               \
    X(cuMemHostUnregister, , NEEDED, (void *address))                                                                  \
    X(cuMemAllocManaged, , NEEDED, (cu_address *address, size_t bytes, unsigned int flags))                            \
    X(cuMemAllocAsync, , OPTIONAL, (cu_address *address, size_t bytes, cu_stream *stream))                             \
    X(cuMemFreeAsync, , OPTIONAL, (cu_address address, cu_stream *stream))                                             \
    X(cuMemAddressReserve, , NEEDED,                                                                                   \
      (cu_address *address, size_t bytes, size_t alignment, cu_address hint, unsigned long long flags))                \
    X(cuMemAddressFree, , NEEDED, (cu_address address, size_t bytes))                                                  \
    X(cuMemGetAllocationGranularity, , NEEDED,                                                                         \
      (size_t *granule, const cu_allocation *allocation, cu_choice_granularity which))                                 \
    X(cuMemCreate, , NEEDED,                                                                                           \
      (cu_memory *memory, size_t bytes, const cu_allocation *allocation, unsigned long long flags))                    \
    X(cuMemRelease, , NEEDED, (cu_memory memory))                                                                      \
    X(cuMemMap, , NEEDED,                                                                                              \
      (cu_address address, size_t bytes, size_t offset, cu_memory memory, unsigned long long flags))                   \
    X(cuMemUnmap, , NEEDED, (cu_address address, size_t bytes))                                                        \
    X(cuMemSetAccess, , NEEDED, (cu_address address, size_t bytes, const cu_access *accesses, size_t count))           \
    X(cuMemExportToShareableHandle, , OPTIONAL,                                                                        \
      (void *shared, cu_memory memory, cu_choice_handle_type type, unsigned long long flags))                          \
    X(cuMemImportFromShareableHandle, , OPTIONAL, (cu_memory *memory, void *shared, cu_choice_handle_type type))       \
    X(cuPointerGetAttributes, , NEEDED,                                                                                \
      (unsigned int count, cu_choice_pointer_attribute *attributes, void **data, cu_address address))                  \
    X(cuMemcpyHtoDAsync, _v2, NEEDED, (cu_address to, const void *from, size_t bytes, cu_stream *stream))              \
    X(cuMemcpyDtoHAsync, _v2, NEEDED, (void *to, cu_address from, size_t bytes, cu_stream *stream))                    \
    X(cuMemcpyDtoDAsync, _v2, NEEDED, (cu_address to, cu_address from, size_t bytes, cu_stream *stream))               \
    X(cuMemcpyPeerAsync, , NEEDED,                                                                                     \
      (cu_address to, cu_context *to_context, cu_address from, cu_context *from_context, size_t bytes,                 \
       cu_stream *stream))                                                                                             \
    X(cuMemcpy2DAsync, _v2, NEEDED, (const cu_copy_2d *copy, cu_stream *stream))                                       \
    X(cuMemcpy3DAsync, _v2, NEEDED, (const cu_copy_3d *copy, cu_stream *stream))                                       \
    X(cuMemcpy3DPeerAsync, , NEEDED, (const cu_copy_3d_peer *copy, cu_stream *stream))                                 \
    X(cuMemsetD8Async, , NEEDED, (cu_address to, unsigned char pattern, size_t count, cu_stream *stream))              \
    X(cuMemsetD16Async, , NEEDED, (cu_address to, unsigned short pattern, size_t count, cu_stream *stream))            \
    X(cuMemsetD32Async, , NEEDED, (cu_address to, unsigned int pattern, size_t count, cu_stream *stream))              \
    X(cuStreamCreateWithPriority, , NEEDED, (cu_stream **stream, unsigned int flags, int priority))                    \
    X(cuStreamDestroy, _v2, NEEDED, (cu_stream *stream))                                                               \
    X(cuStreamGetCtx, , NEEDED, (cu_stream *stream, cu_context **context))                                             \
    X(cuStreamQuery, , NEEDED, (cu_stream *stream))                                                                    \
    X(cuStreamSynchronize, , NEEDED, (cu_stream *stream))                                                              \
    X(cuStreamWaitEvent, , NEEDED, (cu_stream *stream, cu_event *event, unsigned int flags))                           \
    X(cuStreamIsCapturing, , NEEDED, (cu_stream *stream, cu_choice_capture_status *status))                            \
    X(cuThreadExchangeStreamCaptureMode, , OPTIONAL, (cu_choice_capture_mode *mode))                                   \
    X(cuLaunchHostFunc, , OPTIONAL, (cu_stream *stream, cu_host_function *function, void *user))                       \
    X(cuEventCreate, , NEEDED, (cu_event **event, unsigned int flags))                                                 \
    X(cuEventDestroy, _v2, NEEDED, (cu_event *event))                                                                  \
    X(cuEventRecord, , NEEDED, (cu_event *event, cu_stream *stream))                                                   \
    X(cuEventQuery, , NEEDED, (cu_event *event))                                                                       \
    X(cuEventSynchronize, , NEEDED, (cu_event *event))

/* Entry points that exist in several versions. A driver has at least one of them: cuEventElapsedTime got a _v2 in
 * 12.8; cuStreamGetCaptureInfo got a _v2 in 11.3 and a _v3, which Loch does not use, in 12.3. The driver of CUDA 13
 * still exports all of these. */
#define LOCHI_CUDA_CALLS_VERSIONED(X)                                                                                  \
    X(cuEventElapsedTime, , OPTIONAL, (float *milliseconds, cu_event *start, cu_event *end))                           \
    X(cuEventElapsedTime, _v2, OPTIONAL, (float *milliseconds, cu_event *start, cu_event *end))                        \
    X(cuStreamGetCaptureInfo, , OPTIONAL, (cu_stream *stream, cu_choice_capture_status *status, cu_number *id))        \
    X(cuStreamGetCaptureInfo, _v2, OPTIONAL,                                                                           \
      (cu_stream *stream, cu_choice_capture_status *status, cu_number *id, cu_graph **graph,                           \
       cu_graph_node *const **dependencies, size_t *dependencies_count))

/* clang-format on */

/* Entry points by symbol. Optional ones may be NULL. */
typedef struct lochi_cuda_api {
    int version; /* 13000 for 13.0 */
#define LOCHI_CUDA_CALL_MEMBER(name, suffix, need, parameters) cu_result(*name##suffix) parameters;
    LOCHI_CUDA_CALLS(LOCHI_CUDA_CALL_MEMBER)
    LOCHI_CUDA_CALLS_VERSIONED(LOCHI_CUDA_CALL_MEMBER)
#undef LOCHI_CUDA_CALL_MEMBER
} lochi_cuda_api;

/* The oldest driver that Loch accepts: 11.2 (branch 460). Drivers since 11.0 have all required entry points; 11.2 is
 * the first with the stream-ordered allocator. Loch works without later additions: the second version of
 * cuStreamGetCaptureInfo (11.3), fabric handles (12.3). */
#define LOCHI_CUDA_VERSION_MIN 11020

/* The loaded table. Read it only after lochi_cuda_load has returned LOCH_OK in this thread or in a thread ordered
 * before it. It never changes afterwards. */
LOCHI_SHARED extern lochi_cuda_api lochi_cuda;

/* The library of the table, as dlopen returned it; to be read when the table may be. */
extern void *lochi_cuda_library;

/* True in the child of a fork if the driver was started before the fork: it must not be called. Written only in the
 * child. */
LOCHI_SHARED extern bool lochi_cuda_is_forked;

/* Loads libcuda.so.1, or the library that the option `cuda_library` names, and starts it with cuInit, once. Success
 * is permanent; a failure is remembered until the option names another library. Never unloads. E_NOT_FOUND: no
 * library or no GPU. E_UNSUPPORTED: the library is too old. Any thread. */
loch_status lochi_cuda_load(void);

/* Writes the error record for a call that returned `result`, and returns its status. */
LOCHI_SHARED loch_status lochi_cuda_fail(cu_result result, const char *call);

/* Returns the status of a call that gives something back, and writes its error record. Returns LOCH_OK if the driver
 * is already shut down, as at the end of the process, because the driver has freed everything. Such calls are
 * counted. */
loch_status lochi_cuda_fail_giving_back(cu_result result, const char *call);

/* Returns the number of calls that came after the driver was shut down. Any thread. */
uint64_t lochi_cuda_late_calls(void);

#endif

/* SPDX-License-Identifier: MIT */
/* The part of OpenCL that the driver uses: types, constants, functions, found at run time.
 *
 * The declarations are Loch's own, so that a build needs no OpenCL headers; tests/parts/opencl/opencl_header.c compares
 * them with the real ones. Constants are named after OpenCL's, with the prefix LOCHI_. */
#ifndef LOCH_OPENCL_API_H
#define LOCH_OPENCL_API_H

#include <loch/status.h>

typedef int32_t cl_result;                   /* cl_int */
typedef uint32_t cl_number;                  /* cl_uint, and the enumerations that are one */
typedef uint64_t cl_bits;                    /* cl_bitfield and its kin */
typedef struct _cl_platform_id *cl_platform; /* cl_platform_id */
typedef struct _cl_device_id *cl_device;     /* cl_device_id */
typedef struct _cl_context *cl_context_of;   /* cl_context */
typedef struct _cl_command_queue *cl_queue;  /* cl_command_queue */
typedef struct _cl_event *cl_mark;           /* cl_event */
typedef void cl_context_notify(const char *text, const void *data, size_t bytes, void *user);
typedef void cl_mark_notify(cl_mark event, cl_result status, void *user);

enum {
    LOCHI_CL_SUCCESS = 0,
    LOCHI_CL_DEVICE_NOT_FOUND = -1,
    LOCHI_CL_DEVICE_NOT_AVAILABLE = -2,
    LOCHI_CL_MEM_OBJECT_ALLOCATION_FAILURE = -4,
    LOCHI_CL_OUT_OF_RESOURCES = -5,
    LOCHI_CL_OUT_OF_HOST_MEMORY = -6,
    LOCHI_CL_PROFILING_INFO_NOT_AVAILABLE = -7,
    LOCHI_CL_EXEC_STATUS_ERROR_FOR_EVENTS_IN_WAIT_LIST = -14,
    LOCHI_CL_INVALID_VALUE = -30,
    LOCHI_CL_INVALID_DEVICE = -33,
    LOCHI_CL_INVALID_CONTEXT = -34,
    LOCHI_CL_INVALID_COMMAND_QUEUE = -36,
    LOCHI_CL_INVALID_EVENT_WAIT_LIST = -57,
    LOCHI_CL_INVALID_EVENT = -58,
    LOCHI_CL_INVALID_OPERATION = -59,

    LOCHI_CL_COMPLETE = 0,
    LOCHI_CL_DEVICE_MAX_COMPUTE_UNITS = 0x1002,
    LOCHI_CL_DEVICE_MAX_MEM_ALLOC_SIZE = 0x1010,
    LOCHI_CL_DEVICE_GLOBAL_MEM_CACHE_SIZE = 0x101E,
    LOCHI_CL_DEVICE_GLOBAL_MEM_SIZE = 0x101F,
    LOCHI_CL_DEVICE_LOCAL_MEM_SIZE = 0x1023,
    LOCHI_CL_DEVICE_NAME = 0x102B,
    LOCHI_CL_DRIVER_VERSION = 0x102D,
    LOCHI_CL_DEVICE_PLATFORM = 0x1031,
    LOCHI_CL_DEVICE_SVM_CAPABILITIES = 0x1053,
    LOCHI_CL_CONTEXT_DEVICES = 0x1081,
    LOCHI_CL_CONTEXT_PLATFORM = 0x1084,
    LOCHI_CL_QUEUE_CONTEXT = 0x1090,
    LOCHI_CL_QUEUE_DEVICE = 0x1091,
    LOCHI_CL_QUEUE_PROPERTIES = 0x1093,
    LOCHI_CL_EVENT_COMMAND_EXECUTION_STATUS = 0x11D3,
    LOCHI_CL_PROFILING_COMMAND_END = 0x1283,

    LOCHI_CL_QUEUE_OUT_OF_ORDER_EXEC_MODE_ENABLE = 1 << 0,
    LOCHI_CL_QUEUE_PROFILING_ENABLE = 1 << 1,
    LOCHI_CL_DEVICE_SVM_COARSE_GRAIN_BUFFER = 1 << 0,
    LOCHI_CL_DEVICE_SVM_FINE_GRAIN_BUFFER = 1 << 1,
    LOCHI_CL_MEM_READ_WRITE = 1 << 0,
    LOCHI_CL_MEM_SVM_FINE_GRAIN_BUFFER = 1 << 10
};

#define LOCHI_CL_DEVICE_TYPE_ALL ((cl_bits)0xFFFFFFFF)

/* The functions: X(name, result, parameters). All are in OpenCL 2.0. */
#define LOCHI_OPENCL_CALLS(X)                                                                                          \
    X(clGetPlatformIDs, cl_result, (cl_number count, cl_platform * platforms, cl_number * found))                      \
    X(clGetPlatformInfo, cl_result, (cl_platform platform, cl_number what, size_t bytes, void *value, size_t *length)) \
    X(clGetDeviceIDs, cl_result,                                                                                       \
      (cl_platform platform, cl_bits type, cl_number count, cl_device * devices, cl_number * found))                   \
    X(clGetDeviceInfo, cl_result, (cl_device device, cl_number what, size_t bytes, void *value, size_t *length))       \
    X(clRetainDevice, cl_result, (cl_device device))                                                                   \
    X(clReleaseDevice, cl_result, (cl_device device))                                                                  \
    X(clCreateContext, cl_context_of,                                                                                  \
      (const intptr_t *properties, cl_number count, const cl_device *devices, cl_context_notify *notify, void *user,   \
       cl_result *result))                                                                                             \
    X(clRetainContext, cl_result, (cl_context_of context))                                                             \
    X(clReleaseContext, cl_result, (cl_context_of context))                                                            \
    X(clGetContextInfo, cl_result, (cl_context_of context, cl_number what, size_t bytes, void *value, size_t *length)) \
    X(clCreateCommandQueueWithProperties, cl_queue,                                                                    \
      (cl_context_of context, cl_device device, const cl_bits *properties, cl_result *result))                         \
    X(clRetainCommandQueue, cl_result, (cl_queue queue))                                                               \
    X(clReleaseCommandQueue, cl_result, (cl_queue queue))                                                              \
    X(clGetCommandQueueInfo, cl_result, (cl_queue queue, cl_number what, size_t bytes, void *value, size_t *length))   \
    X(clSVMAlloc, void *, (cl_context_of context, cl_bits flags, size_t bytes, cl_number alignment))                   \
    X(clSVMFree, void, (cl_context_of context, void *address))                                                         \
    X(clEnqueueSVMMemcpy, cl_result,                                                                                   \
      (cl_queue queue, cl_number is_blocking, void *to, const void *from, size_t bytes, cl_number count,               \
       const cl_mark *waits, cl_mark *event))                                                                          \
    X(clEnqueueSVMMemFill, cl_result,                                                                                  \
      (cl_queue queue, void *to, const void *pattern, size_t pattern_bytes, size_t bytes, cl_number count,             \
       const cl_mark *waits, cl_mark *event))                                                                          \
    X(clEnqueueMarkerWithWaitList, cl_result, (cl_queue queue, cl_number count, const cl_mark *waits, cl_mark *event)) \
    X(clEnqueueBarrierWithWaitList, cl_result,                                                                         \
      (cl_queue queue, cl_number count, const cl_mark *waits, cl_mark *event))                                         \
    X(clFlush, cl_result, (cl_queue queue))                                                                            \
    X(clFinish, cl_result, (cl_queue queue))                                                                           \
    X(clWaitForEvents, cl_result, (cl_number count, const cl_mark *events))                                            \
    X(clGetEventInfo, cl_result, (cl_mark event, cl_number what, size_t bytes, void *value, size_t *length))           \
    X(clGetEventProfilingInfo, cl_result, (cl_mark event, cl_number what, size_t bytes, void *value, size_t *length))  \
    X(clCreateUserEvent, cl_mark, (cl_context_of context, cl_result * result))                                         \
    X(clSetUserEventStatus, cl_result, (cl_mark event, cl_result status))                                              \
    X(clSetEventCallback, cl_result, (cl_mark event, cl_result status, cl_mark_notify * notify, void *user))           \
    X(clRetainEvent, cl_result, (cl_mark event))                                                                       \
    X(clReleaseEvent, cl_result, (cl_mark event))

typedef struct lochi_opencl_api {
#define LOCHI_OPENCL_MEMBER(name, result, parameters) result(*name) parameters;
    LOCHI_OPENCL_CALLS(LOCHI_OPENCL_MEMBER)
#undef LOCHI_OPENCL_MEMBER
} lochi_opencl_api;

/* The functions of the loaded library. Complete after lochi_opencl_load has succeeded, and constant from then on. */
extern lochi_opencl_api lochi_opencl;

/* Loads OpenCL, once. E_NOT_FOUND: there is no libOpenCL.so.1. E_UNSUPPORTED: the library is older than OpenCL 2.0.
 * E_FORKED: the parent process has used OpenCL already. */
loch_status lochi_opencl_load(void);

/* Loads the library at `path` into `api`, for lochi_opencl_load and tests. */
loch_status lochi_opencl_load_from(const char *path, lochi_opencl_api *api);

/* Writes the error record for a failed call of OpenCL and returns the status. `result` is not LOCHI_CL_SUCCESS. */
loch_status lochi_opencl_fail(cl_result result, const char *call);

#define LOCHI_OPENCL_STATUS(result, call) ((result) == LOCHI_CL_SUCCESS ? LOCH_OK : lochi_opencl_fail((result), #call))

/* Makes one call and returns from the function if the call fails. */
#define LOCHI_OPENCL_TRY(call, arguments)                                                                              \
    do {                                                                                                               \
        const cl_result lochi_result = lochi_opencl.call arguments;                                                    \
        if (lochi_result != LOCHI_CL_SUCCESS) return lochi_opencl_fail(lochi_result, #call);                           \
    } while (0)

#endif

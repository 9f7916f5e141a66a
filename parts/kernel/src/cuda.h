/* SPDX-License-Identifier: MIT */
/* The part of the CUDA driver that this library uses: types, constants, functions, found at run time.
 *
 * The driver library is the one that Loch has loaded: opening it again gives that one. The declarations are Loch's own,
 * so that a build needs no CUDA headers. Constants are named after CUDA's, with the prefix LOCHI_. Calls are made
 * between lochi_kernel_enter and lochi_kernel_leave, with the context of the device current. */
#ifndef LOCH_KERNEL_CUDA_H
#define LOCH_KERNEL_CUDA_H

#include <loch/driver.h>
#include <stdbool.h>

typedef int cu_result;                 /* CUresult */
typedef struct CUmod_st *cu_module;    /* CUmodule */
typedef struct CUfunc_st *cu_function; /* CUfunction */
typedef struct CUstream_st *cu_queue;  /* CUstream */
typedef struct cu_launch_attribute {   /* CUlaunchAttribute */
    int id;                            /* LOCHI_CU_LAUNCH_... */
    char pad[4];
    union {
        int number;
        char room[64];
    } value;
} cu_launch_attribute;

typedef struct cu_launch_config { /* CUlaunchConfig */
    unsigned grid[3], block[3], shared_bytes;
    cu_queue stream;
    cu_launch_attribute *attributes;
    unsigned attributes_count;
} cu_launch_config;

enum {
    LOCHI_CUDA_SUCCESS = 0,
    LOCHI_CUDA_ERROR_INVALID_VALUE = 1,
    LOCHI_CUDA_ERROR_OUT_OF_MEMORY = 2,
    LOCHI_CUDA_ERROR_INVALID_IMAGE = 200,
    LOCHI_CUDA_ERROR_NO_BINARY_FOR_GPU = 209,
    LOCHI_CUDA_ERROR_INVALID_PTX = 218,
    LOCHI_CUDA_ERROR_UNSUPPORTED_PTX_VERSION = 222,
    LOCHI_CUDA_ERROR_JIT_COMPILATION_DISABLED = 223,
    LOCHI_CUDA_ERROR_INVALID_SOURCE = 300,
    LOCHI_CUDA_ERROR_NOT_FOUND = 500,
    LOCHI_CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES = 701,
    LOCHI_CUDA_ERROR_COOPERATIVE_LAUNCH_TOO_LARGE = 720,

    LOCHI_CU_JIT_ERROR_LOG_BUFFER = 5,
    LOCHI_CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES = 6,

    LOCHI_CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK = 0,
    LOCHI_CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES = 1,
    LOCHI_CU_FUNC_ATTRIBUTE_LOCAL_SIZE_BYTES = 3,
    LOCHI_CU_FUNC_ATTRIBUTE_NUM_REGS = 4,
    LOCHI_CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES = 8,

    LOCHI_CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN = 97,

    LOCHI_CU_LAUNCH_COOPERATIVE = 2,
    LOCHI_CU_LAUNCH_PROGRAMMATIC_STREAM_SERIALIZATION = 6,

    LOCHI_CU_STREAM_CAPTURE_MODE_RELAXED = 2
};

/* The functions: X(name, need, parameters). All return a CUresult. */
#define LOCHI_KERNEL_CALLS(X)                                                                                          \
    X(cuGetErrorName, NEEDED, (cu_result result, const char **name))                                                   \
    X(cuGetErrorString, NEEDED, (cu_result result, const char **text))                                                 \
    X(cuCtxGetCurrent, NEEDED, (void **context))                                                                       \
    X(cuCtxGetDevice, NEEDED, (int *device))                                                                           \
    X(cuDeviceGetAttribute, NEEDED, (int *value, int attribute, int device))                                           \
    X(cuModuleLoadDataEx, NEEDED,                                                                                      \
      (cu_module * module, const void *image, unsigned count, int *options, void **values))                            \
    X(cuModuleUnload, NEEDED, (cu_module module))                                                                      \
    X(cuModuleGetFunction, NEEDED, (cu_function * function, cu_module module, const char *name))                       \
    X(cuFuncGetAttribute, NEEDED, (int *value, int attribute, cu_function function))                                   \
    X(cuFuncSetAttribute, NEEDED, (cu_function function, int attribute, int value))                                    \
    X(cuOccupancyMaxActiveBlocksPerMultiprocessor, NEEDED,                                                             \
      (int *blocks, cu_function function, int threads, size_t shared_bytes))                                           \
    X(cuLaunchKernel, NEEDED,                                                                                          \
      (cu_function function, unsigned grid_x, unsigned grid_y, unsigned grid_z, unsigned block_x, unsigned block_y,    \
       unsigned block_z, unsigned shared_bytes, cu_queue stream, void **parameters, void **extra))                     \
    X(cuLaunchKernelEx, OPTIONAL,                                                                                      \
      (const cu_launch_config *config, cu_function function, void **parameters, void **extra))                         \
    X(cuFuncGetParamInfo, OPTIONAL, (cu_function function, size_t index, size_t * offset, size_t * bytes))             \
    X(cuThreadExchangeStreamCaptureMode, OPTIONAL, (int *mode))

typedef struct lochi_kernel_api {
#define LOCHI_KERNEL_MEMBER(name, need, parameters) cu_result(*name) parameters;
    LOCHI_KERNEL_CALLS(LOCHI_KERNEL_MEMBER)
#undef LOCHI_KERNEL_MEMBER
} lochi_kernel_api;

/* The functions of the loaded library. Complete after lochi_kernel_load has succeeded, and constant from then on. */
extern lochi_kernel_api lochi_kernel_cuda;

/* Loads the driver library, once. `device` must be a CUDA device: E_UNSUPPORTED if not, or if the driver lacks a
 * function. E_INVALID: the device is NULL. E_FORKED: the device was opened before a fork. Cancellation is disabled. */
loch_status lochi_kernel_load(const loch_device *device);

/* Finds the functions in the library at `path`, for lochi_kernel_load and tests. */
loch_status lochi_kernel_load_from(const char *path, lochi_kernel_api *api);

/* Writes the error record for a failed call of the driver and returns the status. */
loch_status lochi_kernel_fail(cu_result result, const char *call);

/* What was current in a thread. */
typedef struct lochi_kernel_frame {
    const loch_driver *driver;
    void *self, *before;
    int capture_mode;
    bool is_relaxed;
} lochi_kernel_frame;

/* How calls between enter and leave treat a capture in progress. Launches are part of it; everything else is not. */
typedef enum lochi_kernel_mode { LOCHI_KERNEL_CAPTURED, LOCHI_KERNEL_RELAXED } lochi_kernel_mode;

/* Makes the context of a device current. After a failure nothing has to be left. */
loch_status lochi_kernel_enter(const loch_device *device, lochi_kernel_mode mode, lochi_kernel_frame *frame);

/* Makes current what was current before. Keeps the error record. */
void lochi_kernel_leave(const lochi_kernel_frame *frame);

#endif

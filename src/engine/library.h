/* SPDX-License-Identifier: MIT */
/* The entry points of cuBLAS and NCCL that Loch calls. They are declared here, so that the headers of these libraries
 * are not needed. Both libraries have kept these functions since CUDA 11 and NCCL 2.
 *
 * A table may be read only after its load function has returned LOCH_OK in this thread, or in a thread ordered before
 * it. After that the table never changes. */
#ifndef LOCHI_LIBRARY_H
#define LOCHI_LIBRARY_H

#include <loch/library.h>

typedef struct lochi_cublas_api {
    int (*cublasCreate)(void **handle);
    int (*cublasDestroy)(void *handle);
    int (*cublasSetStream)(void *handle, void *stream);
    int (*cublasGetProperty)(int property, int *value); /* 0: major, 1: minor, 2: patch */
    const char *(*cublasGetStatusString)(int status);   /* NULL before 11.4 */
} lochi_cublas_api;

typedef struct lochi_nccl_api {
    int (*ncclGetVersion)(int *version);
    int (*ncclCommInitAll)(void **communicators, int count, const int *devices);
    int (*ncclCommDestroy)(void *communicator);
    const char *(*ncclGetErrorString)(int result);
    const char *(*ncclGetLastError)(void *communicator); /* NULL before 2.13 */
} lochi_nccl_api;

extern lochi_cublas_api lochi_cublas;
extern lochi_nccl_api lochi_nccl;

/* Fills the error record for a library call that returned `result`: E_DRIVER with the library's text and code. */
loch_status lochi_cublas_fail(int result, const char *call);
loch_status lochi_nccl_fail(int result, const char *call);

/* Converts a result to a status. 0 is success in both libraries. */
#define LOCHI_CUBLAS_STATUS(result, call) ((result) == 0 ? LOCH_OK : lochi_cublas_fail((result), #call))
#define LOCHI_NCCL_STATUS(result, call) ((result) == 0 ? LOCH_OK : lochi_nccl_fail((result), #call))

#endif

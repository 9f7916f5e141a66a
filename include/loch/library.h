/* SPDX-License-Identifier: MIT */
/** @file library.h
 *  Handles of libraries that are found at run time: cuBLAS for products of matrices, NCCL for collectives. Loch needs neither; a library
 *  that is missing is E_UNSUPPORTED, and the error's sentence names the file.
 *
 *  The functions of a library are called through its own headers, or by loch_library_find. Handles are made on first use by
 *  contexts and engines (context.h, engine.h).
 */
#ifndef LOCH_LIBRARY_H
#define LOCH_LIBRARY_H

#include <loch/stream.h>

LOCH_BEGIN_DECLS

/** Which library. */
typedef enum loch_library {
    LOCH_LIBRARY_CUBLAS, /**< libcublas.so; the option `cublas` (LOCH_CUBLAS) names another file */
    LOCH_LIBRARY_NCCL    /**< libnccl.so; the option `nccl` (LOCH_NCCL) names another file */
} loch_library;

/** Loads a library, once for the process; it stays. @param version  its own number; may be NULL. Any thread. */
LOCH_API LOCH_MUST_USE loch_status loch_library_load(loch_library library, int *version);

/** A function of a library, which is loaded if need be. E_NOT_FOUND for a name that it does not have. Any thread. */
LOCH_API LOCH_MUST_USE loch_status loch_library_find(loch_library library, const char *symbol, void **out);

/** A cuBLAS handle on a device. One thread at a time. */
typedef struct loch_cublas loch_cublas;

/** Makes one that works on `stream` (NULL: the default stream). E_UNSUPPORTED for a device that is not of CUDA.
 *  @param out  the caller's, ended by loch_cublas_destroy; NULL on failure */
LOCH_API LOCH_MUST_USE loch_status loch_cublas_create(loch_device *device, loch_stream *stream, loch_cublas **out);

/** Has it work on another stream of its device from now on, which has to live as long as it does. NULL: the default stream. */
LOCH_API LOCH_MUST_USE loch_status loch_cublas_set_stream(loch_cublas *cublas, loch_stream *stream);

/** The cublasHandle_t; the device's context is current in the calling thread after this call. Borrowed. */
LOCH_API LOCH_MUST_USE loch_status loch_cublas_get_native(loch_cublas *cublas, void **out);

/** Ends it; work that is queued runs to its end. NULL does nothing. */
LOCH_API void loch_cublas_destroy(loch_cublas *cublas);

/** NCCL communicators of this process's devices, one a device, of one group. Groups of several processes are to come: they will be
 *  made by another call and be used by the same. */
typedef struct loch_nccl loch_nccl;

/** Makes them; device i has rank i. E_UNSUPPORTED for a device that is not of CUDA, and for one that is there twice.
 *  @param out  the caller's, ended by loch_nccl_destroy; NULL on failure */
LOCH_API LOCH_MUST_USE loch_status loch_nccl_create(loch_device *const *devices, size_t count, loch_nccl **out);

/** The ncclComm_t of a rank; its device's context is current in the calling thread after this call. Borrowed. E_NOT_FOUND. */
LOCH_API LOCH_MUST_USE loch_status loch_nccl_get_native(loch_nccl *nccl, size_t rank, void **out);

/** How many ranks. */
LOCH_API size_t loch_nccl_get_ranks(const loch_nccl *nccl);

/** Ends them, after their work. NULL does nothing. */
LOCH_API void loch_nccl_destroy(loch_nccl *nccl);

LOCH_END_DECLS

#endif

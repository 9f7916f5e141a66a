/* SPDX-License-Identifier: MIT */
/** @file library.h
 *  Handles of vendor libraries that are loaded at run time: cuBLAS for matrix products, NCCL for collectives.
 *
 *  Loch itself needs neither. A library that is not installed gives E_UNSUPPORTED, and the sentence of the error
 *  names the file. Call the functions of a library through its own header, or look them up with loch_library_find.
 *  Contexts and engines create handles on first use (context.h, engine.h).
 */
#ifndef LOCH_LIBRARY_H
#define LOCH_LIBRARY_H

#include <loch/stream.h>

LOCH_BEGIN_DECLS

/** A library that Loch can load. */
typedef enum loch_library {
    LOCH_LIBRARY_CUBLAS, /**< libcublas.so; the option `cublas` (LOCH_CUBLAS) names another file */
    LOCH_LIBRARY_NCCL    /**< libnccl.so; the option `nccl` (LOCH_NCCL) names another file */
} loch_library;

/** Loads a library once for the process. It is never unloaded. E_UNSUPPORTED: it is not installed. Any thread.
 *  @param version  version number as the library reports it; may be NULL */
LOCH_API LOCH_MUST_USE loch_status loch_library_load(loch_library library, int *version);

/** Finds a function of a library by name, and loads the library if needed. E_NOT_FOUND: the library has no such
 *  symbol. Any thread.
 *  @param out  address of the function; NULL on failure */
LOCH_API LOCH_MUST_USE loch_status loch_library_find(loch_library library, const char *symbol, void **out);

/** @name cuBLAS */
/** @{ */

/** A cuBLAS handle on one device. One thread at a time. */
typedef struct loch_cublas loch_cublas;

/** Creates a cuBLAS handle that works on `stream` (NULL: the default stream). E_UNSUPPORTED: the device is not a CUDA
 *  device, or cuBLAS is not installed.
 *  @param out  owned by the caller; destroy it with loch_cublas_destroy. NULL on failure. */
LOCH_API LOCH_MUST_USE loch_status loch_cublas_create(loch_device *device, loch_stream *stream, loch_cublas **out);

/** Destroys a cuBLAS handle. Work already queued runs to its end. NULL does nothing. */
LOCH_API void loch_cublas_destroy(loch_cublas *cublas);
LOCH_DEFINE_CLEAR(cublas, loch_cublas_destroy(object))

/** Returns the cublasHandle_t in `out`. Borrowed. After this call the CUDA context of the device is current in the
 *  calling thread. */
LOCH_API LOCH_MUST_USE loch_status loch_cublas_get_native(loch_cublas *cublas, void **out);

/** @} */
/** @name NCCL */
/** @{ */

/** A group of NCCL communicators of this process, one for each device. Communicators between processes are those of
 *  libloch_comm (loch/comm.h). */
typedef struct loch_nccl loch_nccl;

/** Returns the ncclComm_t of a rank in `out`. Borrowed. After this call the CUDA context of the rank's device is
 *  current in the calling thread. E_NOT_FOUND: there is no such rank. */
LOCH_API LOCH_MUST_USE loch_status loch_nccl_get_native(loch_nccl *nccl, size_t rank, void **out);

/** @} */

LOCH_END_DECLS

#endif

/* SPDX-License-Identifier: MIT */
/** @file dlpack.h
 *  DLPack: tensors to and from other libraries of the same process, without a copy. Supports the structures of DLPack
 *  version 1 and the older ones without a version.
 *
 *  The structures are declared by DLPack itself (dlpack/dlpack.h). That header may be included beside this one; Loch
 *  does not need it.
 */
#ifndef LOCH_DLPACK_H
#define LOCH_DLPACK_H

#include <loch/tensor.h>

LOCH_BEGIN_DECLS

/** The older structure of DLPack, without a version. Declared in dlpack/dlpack.h. */
struct DLManagedTensor;

/** The structure of DLPack since version 1. Declared in dlpack/dlpack.h. */
struct DLManagedTensorVersioned;

/** Major version of the DLPack structures that Loch creates. */
#define LOCH_DLPACK_MAJOR 1

/** Minor version of the DLPack structures that Loch creates. */
#define LOCH_DLPACK_MINOR 1 /**< */

/** Whether an exchange copies the elements. */
typedef enum loch_dlpack_copy {
    LOCH_DLPACK_SHARE, /**< never copies; an error if the memory cannot be shared */
    LOCH_DLPACK_COPY   /**< always copies; the structure says so */
} loch_dlpack_copy;

/** @name Export */
/** @{ */

/** Options of an export. Zero means default; a NULL pointer means all defaults. */
typedef struct loch_dlpack_export {
    size_t size; /**< sizeof(loch_dlpack_export) */
    /** LOCH_READ_ONLY marks the memory as read-only for the receiver; read-only memory is always marked. */
    loch_access access;
    loch_dlpack_copy copy; /**< whether the elements are copied */
    loch_stream *producer; /**< stream of the last work on the tensor; NULL for the default stream */
    /** Stream of the receiver, which waits on the device for the producer; NULL: the call waits on the host. */
    loch_stream *consumer;
} loch_dlpack_export;

/** Exports a tensor as a DLPack structure of version 1. The structure keeps the buffer alive until its deleter is
 *  called, once, from any thread. Do not resize the buffer before that. Work queued on the consumer stream until then
 *  counts as a use of the memory, if the stream still exists. E_UNSUPPORTED: DLPack has no such device (simulated
 *  devices, devices of registered drivers).
 *  @param out  owned by the caller: pass it on, or call its deleter. NULL on failure. */
LOCH_API LOCH_MUST_USE loch_status loch_tensor_to_dlpack(loch_tensor *tensor, const loch_dlpack_export *options,
                                                         struct DLManagedTensorVersioned **out);

/** Exports a tensor as the older DLPack structure without a version. The structure keeps the buffer alive until its
 *  deleter is called, once, from any thread. E_UNSUPPORTED: the memory is read-only and not copied (the older
 *  structure cannot express that), or DLPack has no such device.
 *  @param out  owned by the caller: pass it on, or call its deleter. NULL on failure. */
LOCH_API LOCH_MUST_USE loch_status loch_tensor_to_dlpack_legacy(loch_tensor *tensor, const loch_dlpack_export *options,
                                                                struct DLManagedTensor **out);

/** @} */
/** @name Import */
/** @{ */

/** Options of an import. Zero means default; a NULL pointer means all defaults. */
typedef struct loch_dlpack_import {
    size_t size; /**< sizeof(loch_dlpack_import) */
    /** LOCH_DLPACK_COPY: the elements are copied, and the deleter of the structure is called before the call
     *  returns. */
    loch_dlpack_copy copy;
} loch_dlpack_import;

/** Imports a DLPack structure of version 1 as a tensor that shares its memory. Takes ownership of the structure, and
 *  calls its deleter after the last reference was released and no work of Loch uses the memory. The memory is ready
 *  on the stream that the exporter received. Missing strides mean row-major order. On failure the structure still
 *  belongs to the caller. E_UNSUPPORTED: the type, number of lanes, device or version is not known. E_INVALID: the
 *  structure is not valid (negative sizes, memory on another device than stated, misaligned data). E_OVERFLOW.
 *  @param out  the caller's reference; give it back with loch_tensor_release. NULL on failure. */
LOCH_API LOCH_MUST_USE loch_status loch_tensor_from_dlpack(struct DLManagedTensorVersioned *managed,
                                                           const loch_dlpack_import *options, loch_tensor **out);

/** Imports the older DLPack structure without a version as a tensor that shares its memory. Takes ownership of the
 *  structure, and calls its deleter after the last reference was released and no work of Loch uses the memory. The
 *  statuses are those of loch_tensor_from_dlpack. On failure the structure still belongs to the caller.
 *  @param out  the caller's reference; give it back with loch_tensor_release. NULL on failure. */
LOCH_API LOCH_MUST_USE loch_status loch_tensor_from_dlpack_legacy(struct DLManagedTensor *managed,
                                                                  const loch_dlpack_import *options, loch_tensor **out);

/** @} */

LOCH_END_DECLS

#endif

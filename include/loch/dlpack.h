/* SPDX-License-Identifier: MIT */
/** @file dlpack.h
 *  Tensors to and from other libraries in the same process, without a copy, by DLPack: its structures of version 1 and the older ones
 *  without a version. Their declarations are DLPack's own (dlpack/dlpack.h), which may be included beside this; Loch does not need it.
 */
#ifndef LOCH_DLPACK_H
#define LOCH_DLPACK_H

#include <loch/tensor.h>

LOCH_BEGIN_DECLS

struct DLManagedTensor;
struct DLManagedTensorVersioned;

/** The version of the structures that are made here. */
#define LOCH_DLPACK_MAJOR 1
#define LOCH_DLPACK_MINOR 1 /**< */

/** Whether an exchange copies. */
typedef enum loch_dlpack_copy {
    LOCH_DLPACK_SHARE, /**< never; what cannot be shared is an error */
    LOCH_DLPACK_COPY   /**< always; the structure says so */
} loch_dlpack_copy;

/** How to export; zero means default, NULL all defaults. */
typedef struct loch_dlpack_export {
    size_t size; /**< sizeof(loch_dlpack_export) */
    loch_access
        access; /**< LOCH_READ_ONLY: the receiver is told not to write. Read-only memory is always exported so */
    loch_dlpack_copy copy; /**< whether it is a copy */
    loch_stream *producer; /**< the stream of the last work on the tensor; NULL: the default stream */
    loch_stream *
        consumer; /**< the receiver's stream, which is made to wait for the producer on the device; NULL: waits on the host */
} loch_dlpack_export;

/** Exports a tensor. The structure holds the buffer until its deleter is called, once, in any thread; the buffer is not to be
 *  resized meanwhile. Work that the consumer's stream was given by then still counts as a use of the memory, if the stream
 *  is there still.
 *  @param out  the caller's: to be handed on, or ended with its deleter; NULL on failure
 *  E_UNSUPPORTED for what DLPack cannot say: simulated devices, devices of drivers of one's own. */
LOCH_API LOCH_MUST_USE loch_status loch_tensor_to_dlpack(loch_tensor *tensor, const loch_dlpack_export *options,
                                                         struct DLManagedTensorVersioned **out);

/** The same with the older structure. E_UNSUPPORTED for read-only memory, which it cannot say, unless it is a copy. */
LOCH_API LOCH_MUST_USE loch_status loch_tensor_to_dlpack_legacy(loch_tensor *tensor, const loch_dlpack_export *options,
                                                                struct DLManagedTensor **out);

/** How to import; zero means default, NULL all defaults. */
typedef struct loch_dlpack_import {
    size_t size;           /**< sizeof(loch_dlpack_import) */
    loch_dlpack_copy copy; /**< LOCH_DLPACK_COPY: the structure is ended before the call returns */
} loch_dlpack_import;

/** Imports a tensor: shares its memory, and calls its deleter when the last reference has gone and no work of Loch's uses it any more.
 *  The memory is ready on the stream that the exporter was given. On failure the structure is the caller's still.
 *  E_UNSUPPORTED for types, lanes, devices and versions that are not known, E_INVALID for what makes no sense (negative sizes, memory that
 *  is elsewhere than said, misaligned data), E_OVERFLOW. Strides that are missing mean row after row. */
LOCH_API LOCH_MUST_USE loch_status loch_tensor_from_dlpack(struct DLManagedTensorVersioned *managed,
                                                           const loch_dlpack_import *options, loch_tensor **out);

/** The same with the older structure. */
LOCH_API LOCH_MUST_USE loch_status loch_tensor_from_dlpack_legacy(struct DLManagedTensor *managed,
                                                                  const loch_dlpack_import *options, loch_tensor **out);

LOCH_END_DECLS

#endif

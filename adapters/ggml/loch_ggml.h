/* SPDX-License-Identifier: MIT */
/** @file loch_ggml.h
 *  Memory of Loch for ggml and llama.cpp: a ggml device whose buffers are blocks of a pool and whose work is done by
 *  ggml's own CPU backend. docs/ggml.md shows how to use it.
 *
 *  A loch_ggml is one set of tags in one pool: make one for each model. Several of them may share a pool. The objects
 *  of ggml that it hands out (the device, the types of buffers) are borrowed: they are valid until loch_ggml_destroy,
 *  and beyond it as long as a buffer or a backend of it lives. A buffer of a cache is used by one thread at a time, as
 *  a context of llama.cpp is; all else works from any thread.
 *
 *  Caches grow: a buffer whose tensors are a key/value cache has addresses for all of it, and memory for the part of
 *  every tensor that was used so far. When memory is short, the work that needs more fails with
 *  GGML_STATUS_ALLOC_FAILED, the cache keeps its contents, and ggml's log has the sentence of Loch.
 */
#ifndef LOCH_GGML_H
#define LOCH_GGML_H

#include <loch/loch.h>
#include <ggml-backend.h>

LOCH_BEGIN_DECLS

/** Memory of one model. */
typedef struct loch_ggml loch_ggml;

/** What a buffer is for. */
typedef enum loch_ggml_kind {
    LOCH_GGML_WEIGHTS, /**< tensors of the model: written once */
    LOCH_GGML_CACHE,   /**< tensors that fill up from their start: grows as it is used; not for the host to read */
    LOCH_GGML_COMPUTE  /**< intermediate results, inputs and outputs */
} loch_ggml_kind;

/** Options of loch_ggml_create. Zero means default; a NULL pointer means all defaults. */
typedef struct loch_ggml_options {
    size_t size;          /**< sizeof(loch_ggml_options) */
    loch_allocator *pool; /**< pool for all memory; retained; NULL for the default pool of the device "cpu" */
    /** Name of the device in ggml's logs; copied; at most 31 characters; NULL for "Loch". The tags are "NAME.weights",
     *  "NAME.cache" and "NAME.compute". Devices that serve one model together need different names. */
    const char *name;
} loch_ggml_options;

/** Creates the memory of a model. ggml must have a CPU backend by then. E_INVALID: the name is empty or too long, or
 *  the pool is not a pool. E_UNSUPPORTED: the host cannot use the memory of the pool. E_NOT_FOUND: ggml has no CPU
 *  backend.
 *  @param out  owned by the caller; destroy it with loch_ggml_destroy. NULL on failure. */
LOCH_API LOCH_MUST_USE loch_status loch_ggml_create(const loch_ggml_options *options, loch_ggml **out);

/** Destroys the memory of a model. Free models and contexts first. NULL does nothing. Any thread. */
LOCH_API void loch_ggml_destroy(loch_ggml *ggml);

/** Returns the device: for llama_model_params.devices, or for ggml_backend_dev_init. Borrowed. Any thread. */
LOCH_API ggml_backend_dev_t loch_ggml_get_device(loch_ggml *ggml);

/** Returns a type of buffers: for llama_model_params.tensor_buft_overrides, or for
 *  ggml_backend_alloc_ctx_tensors_from_buft. Borrowed. Any thread. */
LOCH_API ggml_backend_buffer_type_t loch_ggml_get_type(loch_ggml *ggml, loch_ggml_kind kind);

/** Returns the tag of all blocks of a kind, for loch_allocator_get_tag_stats and loch_pool_unfreeze. Any thread. */
LOCH_API loch_tag loch_ggml_get_tag(const loch_ggml *ggml, loch_ggml_kind kind);

/** Returns the pool. Borrowed. Any thread. */
LOCH_API loch_allocator *loch_ggml_get_pool(loch_ggml *ggml);

/** Freezes the weights that are loaded now (moving.h): a later write by the host ends the program where it happens.
 *  Call it when no model is being loaded into this loch_ggml. Weights that are loaded later, such as a LoRA adapter,
 *  are writable until the next call. E_BUSY: a buffer was taken for weights, and ggml does not use it for weights;
 *  give weights the type LOCH_GGML_WEIGHTS then. Failures of loch_pool_freeze. Any thread.
 *  @param report  may be NULL */
LOCH_API LOCH_MUST_USE loch_status loch_ggml_freeze(loch_ggml *ggml, loch_freeze_report *report);

LOCH_END_DECLS

#endif

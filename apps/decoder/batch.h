/* SPDX-License-Identifier: MIT */
/* The kernels of kernels.cu on a CUDA device, and the memory that a step of a batch works in. */
#ifndef DECODER_BATCH_H
#define DECODER_BATCH_H

#include "device.h"
#include "graph.h"
#include "serve.h"
#include <loch/kernel.h>

#define BATCH_MAX 8

/* The memory of a step: activations, and what device_slots points at. One list makes the members, creates and releases
 * them: X(name, type, elements). */
#define STEP_TENSORS(X)                                                                                                \
    X(x, LOCH_F32, rows * shape->width) /* what passes from layer to layer */                                          \
    X(query, LOCH_F32, rows * shape->width)                                                                            \
    X(mixed, LOCH_F32, rows * shape->width) /* what attention gives */                                                 \
    X(inner, LOCH_F32, rows * shape->mlp)   /* of the MLP */                                                           \
    X(logits, LOCH_F32, rows * shape->vocabulary)                                                                      \
    X(partial, LOCH_F32, rows * shape->heads * parts * shape->head * 2) /* attention over a part of the positions */   \
    X(arrived, LOCH_I32, rows * shape->heads) /* parts that are done; the kernel leaves zeros */                       \
    X(positions, LOCH_I32, rows)                                                                                       \
    X(prompts, LOCH_I32, rows)                                                                                         \
    X(numbers, LOCH_I32, rows)                                                                                         \
    X(texts, LOCH_I32, rows * shape->context)                                                                          \
    X(caches, LOCH_U64, rows)                                                                                          \
    X(pages, LOCH_I32, rows *pages_each)                                                                               \
    X(best, LOCH_U64, rows)                                                                                            \
    X(rotary, LOCH_F32, shape->context * shape->head)

/* A step of a batch on a device. */
typedef struct decoder_step {
    const decoder_model *model;
    const serve_options *options;
    loch_stream *stream; /* borrowed from a context */
    loch_module *module;
    loch_kernel *product, *attend, *embed, *advance;
    size_t rows;  /* slots that the kernels compute: 1, 4 or 8 */
    size_t parts; /* of the positions, in attention */
    device_shape shape;
    device_slots slots;
#define STEP_MEMBER(name, type, elements) loch_tensor *name;
    STEP_TENSORS(STEP_MEMBER)
#undef STEP_MEMBER
    decoder_graph graph;
} decoder_step;

/* Loads the kernels, creates the tensors with `context`, and captures a step if the options say so. `longest` is the
 * most positions that a request has. Call step_close in any case. */
loch_status step_open(decoder_step *step, const decoder_model *model, loch_context *context,
                      const serve_options *options, const cache_family *caches, size_t longest);

/* Queues a step: every slot with a request computes one position. */
loch_status step_run(decoder_step *step);

/* Prints the time of each kernel of a layer, one after the other on all layers. What is computed is lost. Waits. */
loch_status step_profile(const decoder_step *step);

void step_close(decoder_step *step);

#endif

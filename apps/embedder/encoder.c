/* SPDX-License-Identifier: MIT */
/* What both engines share: the model, the device, the pool, and the check of a batch. */
#include "encoder.h"
#include <stdlib.h>
#include <string.h>

static loch_status open_parts(embedder_encoder *encoder, const encoder_options *options)
{
    LOCH_RETURN(model_open(options->model, &encoder->model));
    LOCH_RETURN(loch_device_open(options->device, &encoder->device));
    LOCH_RETURN(loch_pool_create(encoder->device, "embedder", NULL, &encoder->pool));
    return encoder->engine->open(encoder, options);
}

loch_status encoder_open(const encoder_options *options, embedder_encoder **out)
{
    *out = NULL;
    embedder_encoder *made = calloc(1, sizeof *made);
    if (!made) return loch_error_set(LOCH_E_HOST_MEMORY, NULL, 0, "no memory for an encoder");
    made->engine = strncmp(options->device, "cuda", 4) == 0 ? &encoder_cuda : &encoder_cpu;
    const loch_status status = open_parts(made, options);
    if (status == LOCH_OK)
        *out = made;
    else
        encoder_close(made);
    return status;
}

loch_status encoder_run(embedder_encoder *encoder, const token_batch *batch, float *vectors)
{
    for (size_t i = 0; i < batch->count; i++) {
        const size_t start = batch->starts[i], end = batch->starts[i + 1];
        if (end <= start || end - start > POSITIONS)
            return loch_error_set(LOCH_E_INVALID, NULL, 0, "sentence %zu has %zu tokens; 1 to %d are possible", i,
                                  end > start ? end - start : 0, POSITIONS);
        for (size_t at = start; at < end; at++)
            if (batch->tokens[at] < 0 || (size_t)batch->tokens[at] >= encoder->model.vocabulary)
                return loch_error_set(LOCH_E_INVALID, NULL, 0, "token %d of sentence %zu is not below %zu",
                                      (int)batch->tokens[at], i, encoder->model.vocabulary);
    }
    return batch->count ? encoder->engine->run(encoder, batch, vectors) : LOCH_OK;
}

void encoder_close(embedder_encoder *encoder)
{
    if (!encoder) return;
    if (encoder->state) encoder->engine->close(encoder);
    loch_allocator_release(encoder->pool);
    loch_device_release(encoder->device);
    model_close(&encoder->model);
    free(encoder);
}

/* SPDX-License-Identifier: MIT */
/* plain MODEL: generates text and prints a hash of all logits. Knows nothing of Loch: with GGML_BACKEND_PATH set to
 * libloch_ggml.so it runs on Loch, as every program of llama.cpp does that calls ggml_backend_load_all. */
#include "model.h"

#include <stdio.h>
#include <stdlib.h>

enum { STEPS = 16, PROMPT = 40 };

int main(int count, char **arguments)
{
    if (count != 2) return 2;
    ggml_backend_load_all();
    llama_backend_init();
    struct llama_model *model = llama_model_load_from_file(arguments[1], llama_model_default_params());
    if (!model) return 1;
    struct llama_context_params params = llama_context_default_params();
    params.n_ctx = 1024;
    params.n_threads = params.n_threads_batch = 1;
    struct llama_context *context = llama_init_from_model(model, params);
    if (!context) return 1;
    const int words = llama_vocab_n_tokens(llama_model_get_vocab(model));
    llama_token prompt[PROMPT];
    model_prompt(prompt, PROMPT, words, 5);
    float *logits = malloc((size_t)STEPS * words * sizeof *logits);
    if (!logits || !model_generate(context, prompt, PROMPT, STEPS, words, logits)) return 1;
    uint64_t hash = 14695981039346656037u;
    for (size_t i = 0; i < (size_t)STEPS * words * sizeof *logits; i++)
        hash = (hash ^ ((const unsigned char *)logits)[i]) * 1099511628211u;
    printf("%016llx\n", (unsigned long long)hash);
    free(logits);
    llama_free(context);
    llama_model_free(model);
    return 0;
}

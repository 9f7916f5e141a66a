/* SPDX-License-Identifier: MIT */
#include "harness.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

char path_a[512], path_b[512];
size_t weights_bytes;

/* --- llama.cpp's log --- */

static pthread_mutex_t log_lock = PTHREAD_MUTEX_INITIALIZER;
static char log_text[1 << 16];
static size_t log_length;

static void keep_log(enum ggml_log_level level, const char *text, void *user)
{
    (void)user;
    if (level != GGML_LOG_LEVEL_ERROR && level != GGML_LOG_LEVEL_INFO) return;
    pthread_mutex_lock(&log_lock);
    const size_t length = strlen(text);
    if (log_length + length < sizeof log_text) {
        memcpy(log_text + log_length, text, length + 1);
        log_length += length;
    }
    pthread_mutex_unlock(&log_lock);
}

void clear_log(void)
{
    pthread_mutex_lock(&log_lock);
    log_length = 0;
    log_text[0] = 0;
    pthread_mutex_unlock(&log_lock);
}

bool is_logged(const char *text)
{
    pthread_mutex_lock(&log_lock);
    const bool is_there = strstr(log_text, text) != NULL;
    pthread_mutex_unlock(&log_lock);
    return is_there;
}

/* --- pools --- */

loch_allocator *make_pool(size_t limit_bytes)
{
    const loch_pool_options options = {.size = sizeof options, .limit_bytes = limit_bytes};
    loch_device *device;
    loch_allocator *pool;
    OK(loch_device_open("cpu", &device));
    OK(loch_pool_create(device, "models", &options, &pool));
    loch_device_release(device);
    return pool;
}

loch_ggml *make_memory(loch_allocator *pool, const char *name)
{
    const loch_ggml_options options = {.size = sizeof options, .pool = pool, .name = name};
    loch_ggml *ggml;
    OK(loch_ggml_create(&options, &ggml));
    return ggml;
}

size_t used_bytes(loch_allocator *pool)
{
    loch_pool_info info = {.size = sizeof info};
    OK(loch_pool_get_info(pool, &info));
    return info.used_bytes;
}

size_t reserved_bytes(loch_allocator *pool)
{
    loch_pool_info info = {.size = sizeof info};
    OK(loch_pool_get_info(pool, &info));
    return info.reserved_bytes;
}

size_t tag_bytes(loch_ggml *ggml, loch_ggml_kind kind)
{
    loch_stats stats = {.size = sizeof stats};
    OK(loch_allocator_get_tag_stats(loch_ggml_get_pool(ggml), loch_ggml_get_tag(ggml, kind), &stats));
    return stats.requested_bytes;
}

void end_pool(loch_allocator *pool)
{
    assert_int_equal(used_bytes(pool), 0);
    OK(loch_allocator_trim(pool, 0, NULL));
    assert_int_equal(reserved_bytes(pool), 0);
    loch_allocator_release(pool);
}

/* --- models and contexts --- */

struct llama_model *load(const char *path, loch_ggml *ggml, bool is_typed)
{
    ggml_backend_dev_t devices[] = {ggml ? loch_ggml_get_device(ggml) : NULL, NULL};
    const struct llama_model_tensor_buft_override weights[] = {
        {".*", ggml ? loch_ggml_get_type(ggml, LOCH_GGML_WEIGHTS) : NULL}, {NULL, NULL}};
    struct llama_model_params params = llama_model_default_params();
    params.devices = devices;
    params.n_gpu_layers = ggml ? 999 : 0;
    params.use_extra_bufts = false; /* plain llama.cpp would store quantised weights in another order */
    if (ggml && is_typed) params.tensor_buft_overrides = weights;
    return llama_model_load_from_file(path, params);
}

struct llama_context_params context_params(void)
{
    struct llama_context_params params = llama_context_default_params();
    params.n_ctx = CONTEXT;
    params.n_batch = params.n_ubatch = 256;
    params.n_threads = params.n_threads_batch = 1; /* ggml's threads spin, which is slow on a busy machine */
    params.flash_attn_type = LLAMA_FLASH_ATTN_TYPE_ENABLED;
    return params;
}

void generate(struct llama_context *context, float *logits)
{
    llama_token prompt[PROMPT];
    model_prompt(prompt, PROMPT, WORDS, 5);
    assert_true(model_generate(context, prompt, PROMPT, STEPS, WORDS, logits));
}

void run_once(const char *path, loch_ggml *ggml, bool is_typed, struct llama_context_params params, float *logits)
{
    struct llama_model *model = load(path, ggml, is_typed);
    assert_non_null(model);
    struct llama_context *context = llama_init_from_model(model, params);
    assert_non_null(context);
    generate(context, logits);
    llama_free(context);
    llama_model_free(model);
}

int fill(struct llama_context *context, int from, int count)
{
    llama_token tokens[256];
    for (int done = 0, result; done < count; done += 256) {
        const int piece = count - done < 256 ? count - done : 256;
        model_prompt(tokens, piece, WORDS, (uint32_t)(from + done + 1));
        if ((result = model_decode(context, tokens, piece, from + done, 0)) != 0) return result;
    }
    return 0;
}

float *make_logits(void)
{
    float *logits = malloc(LOGITS_BYTES);
    assert_non_null(logits);
    return logits;
}

bool begin(int count, char **arguments)
{
    model_shape shape = {
        .layers = LAYERS, .width = WIDTH, .heads = 4, .hidden = 512, .words = WORDS, .type = GGML_TYPE_F16};
    if (count != 2) return false;
    snprintf(path_a, sizeof path_a, "%s/a.gguf", arguments[1]);
    snprintf(path_b, sizeof path_b, "%s/b.gguf", arguments[1]);
    llama_log_set(keep_log, NULL);
    llama_backend_init();
    weights_bytes = model_write(path_a, shape, 1);
    shape.type = GGML_TYPE_Q8_0;
    return weights_bytes && model_write(path_b, shape, 2);
}

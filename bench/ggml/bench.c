/* SPDX-License-Identifier: MIT */
/* bench MODEL WAY CONTEXT PROMPT STEPS THREADS: prints one line of figures of llama.cpp in this process. WAY is "plain"
 * or "loch". */
#include <loch_ggml.h>
#include <model.h>

#include <loch/host.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

/* Returns a line of /proc/self/status in MiB. */
static double read_status(const char *name)
{
    char line[256];
    double mib = 0;
    FILE *file = fopen("/proc/self/status", "r");
    while (file && fgets(line, sizeof line, file))
        if (strncmp(line, name, strlen(name)) == 0) mib = atof(line + strlen(name) + 1) / 1024;
    if (file) fclose(file);
    return mib;
}

static void be_silent(enum ggml_log_level level, const char *text, void *user)
{
    (void)user;
    if (level == GGML_LOG_LEVEL_ERROR) fputs(text, stderr);
}

static double seconds_since(uint64_t start)
{
    return (double)(loch_host_now_ns() - start) / 1e9;
}

/* Returns the processor time of the process in ms. */
static double cpu_ms(void)
{
    struct timespec now;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
    return (double)now.tv_sec * 1e3 + (double)now.tv_nsec / 1e6;
}

static int fail(const char *what)
{
    fprintf(stderr, "bench: cannot %s: %s\n", what, loch_error_get()->sentence);
    return 1;
}

int main(int count, char **arguments)
{
    static llama_token prompt[2048]; /* a batch of llama.cpp */
    if (count != 7) return 2;
    const bool is_loch = strcmp(arguments[2], "loch") == 0;
    const int tokens = atoi(arguments[4]), steps = atoi(arguments[5]);
    if (tokens < 16 || tokens > (int)(sizeof prompt / sizeof *prompt) || steps < 1) return 2;
    llama_log_set(be_silent, NULL);
    llama_backend_init();
    loch_ggml *ggml = NULL;
    if (is_loch && loch_ggml_create(NULL, &ggml) != LOCH_OK) return fail("make memory");

    ggml_backend_dev_t devices[] = {is_loch ? loch_ggml_get_device(ggml) : NULL, NULL};
    const struct llama_model_tensor_buft_override weights[] = {{".*", loch_ggml_get_type(ggml, LOCH_GGML_WEIGHTS)},
                                                               {NULL, NULL}};
    struct llama_model_params model_params = llama_model_default_params();
    model_params.devices = devices;
    model_params.n_gpu_layers = is_loch ? 999 : 0;
    model_params.load_mode = LLAMA_LOAD_MODE_NONE; /* weights count as memory of the process in both ways */
    if (is_loch) model_params.tensor_buft_overrides = weights;
    uint64_t start = loch_host_now_ns();
    struct llama_model *model = llama_model_load_from_file(arguments[1], model_params);
    if (!model || (is_loch && loch_ggml_freeze(ggml, NULL) != LOCH_OK)) return fail("load");
    struct llama_context_params params = llama_context_default_params();
    params.n_ctx = (uint32_t)atoi(arguments[3]);
    params.n_threads = params.n_threads_batch = atoi(arguments[6]);
    struct llama_context *context = llama_init_from_model(model, params);
    if (!context) return fail("make a context");
    const double load_s = seconds_since(start);

    const int words = llama_vocab_n_tokens(llama_model_get_vocab(model));
    model_prompt(prompt, tokens, words, 5);
    start = loch_host_now_ns();
    if (model_decode(context, prompt, tokens, 0, 0) != 0) return 1;
    const double prompt_s = seconds_since(start);
    llama_memory_clear(llama_get_memory(context), false);
    if (model_decode(context, prompt, 16, 0, 0) != 0) return 1;
    start = loch_host_now_ns();
    const double cpu_start = cpu_ms();
    for (int i = 0; i < steps; i++)
        if (model_decode(context, prompt + i % tokens, 1, 16 + i, 0) != 0) return 1;
    const double steps_s = seconds_since(start), step_ms = (cpu_ms() - cpu_start) / steps;

    loch_pool_info info = {.size = sizeof info};
    loch_stats cache = {.size = sizeof cache};
    if (is_loch && (loch_pool_get_info(loch_ggml_get_pool(ggml), &info) != LOCH_OK ||
                    loch_allocator_get_tag_stats(loch_ggml_get_pool(ggml), loch_ggml_get_tag(ggml, LOCH_GGML_CACHE),
                                                 &cache) != LOCH_OK))
        return fail("read figures");
    printf("%-6s %8.0f %8.0f %8.0f %8.0f %8.2f %9.0f %9.0f %9.2f\n", arguments[2], read_status("VmRSS:"),
           read_status("VmHWM:"), (double)info.reserved_bytes / (1 << 20), (double)cache.requested_bytes / (1 << 20),
           load_s, tokens / prompt_s, steps / steps_s, step_ms);
    llama_free(context);
    llama_model_free(model);
    loch_ggml_destroy(ggml);
    return 0;
}

/* SPDX-License-Identifier: MIT */
/* What the tests of the ggml adapter share: models in files, pools, contexts, and llama.cpp's log. */
#ifndef TEST_GGML_HARNESS_H
#define TEST_GGML_HARNESS_H

#include "loch_ggml.h"
#include "model.h"

#include <setjmp.h>
#include <stdarg.h>

#include <cmocka.h>

enum { WORDS = 512, LAYERS = 3, WIDTH = 256, PROMPT = 48, STEPS = 24, CONTEXT = 8192, MIB = 1 << 20 };

#define LOGITS ((size_t)STEPS * WORDS)
#define LOGITS_BYTES (LOGITS * sizeof(float))
#define STEP_BYTES (WORDS * sizeof(float))

#define OK(call) assert_string_equal(loch_status_name(call), "OK")

/* Two models, of other weights and types, and the bytes of all tensors of the first. */
extern char path_a[512], path_b[512];
extern size_t weights_bytes;

/* Writes both models into the folder that the program's argument names. Returns false if it cannot. */
bool begin(int count, char **arguments);

/* --- llama.cpp's log --- */

void clear_log(void);
bool is_logged(const char *text);

/* --- pools --- */

loch_allocator *make_pool(size_t limit_bytes);
loch_ggml *make_memory(loch_allocator *pool, const char *name);
size_t used_bytes(loch_allocator *pool);
size_t reserved_bytes(loch_allocator *pool);
size_t tag_bytes(loch_ggml *ggml, loch_ggml_kind kind);

/* Ends a pool that has no blocks any more, and checks that all of its memory goes back. */
void end_pool(loch_allocator *pool);

/* --- models and contexts --- */

/* Loads a model; `ggml` NULL means plain llama.cpp, `is_typed` that weights get their own type of buffers. */
struct llama_model *load(const char *path, loch_ggml *ggml, bool is_typed);

struct llama_context_params context_params(void);

/* Generates STEPS tokens from a fixed prompt. */
void generate(struct llama_context *context, float *logits);

/* Generates with a fresh model and context. */
void run_once(const char *path, loch_ggml *ggml, bool is_typed, struct llama_context_params params, float *logits);

/* Decodes `count` tokens in pieces of a batch. Returns the result of the first decode that fails, or 0. */
int fill(struct llama_context *context, int from, int count);

float *make_logits(void);

#endif

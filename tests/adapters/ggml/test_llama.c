/* SPDX-License-Identifier: MIT */
/* llama.cpp on memory of Loch: results are those of plain llama.cpp bit for bit, weights are protected, caches grow and
 * shrink, two models share a pool. */
#include "harness.h"

#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

/* --- results --- */

static void assert_varied(const float *logits)
{
    size_t different = 0;
    for (size_t i = 1; i < LOGITS; i++) {
        assert_true(logits[i] == logits[i]); /* not NaN */
        different += logits[i] != logits[i - 1];
    }
    assert_true(different > LOGITS / 2);
}

static void logits_are_those_of_plain_llama(void **state)
{
    (void)state;
    static const struct {
        enum llama_flash_attn_type attention;
        enum ggml_type type;
        bool is_typed, is_split;
    } cases[] = {
        {LLAMA_FLASH_ATTN_TYPE_ENABLED, GGML_TYPE_F16, true, false},
        {LLAMA_FLASH_ATTN_TYPE_ENABLED, GGML_TYPE_Q8_0, true, false},
        {LLAMA_FLASH_ATTN_TYPE_DISABLED, GGML_TYPE_F16, true, false}, /* values lie across the tokens */
        {LLAMA_FLASH_ATTN_TYPE_AUTO, GGML_TYPE_F16, false, false},
        {LLAMA_FLASH_ATTN_TYPE_ENABLED, GGML_TYPE_F32, false, true},
    };
    float *expected = make_logits(), *found = make_logits();
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct llama_context_params params = context_params();
        params.flash_attn_type = cases[i].attention;
        params.type_k = cases[i].type;
        params.type_v = cases[i].type;
        params.kv_unified = !cases[i].is_split;
        params.n_seq_max = cases[i].is_split ? 3 : 1;
        const char *path = i % 2 ? path_b : path_a;
        run_once(path, NULL, false, params, expected);
        assert_varied(expected);
        loch_allocator *pool = make_pool(0);
        loch_ggml *ggml = make_memory(pool, NULL);
        run_once(path, ggml, cases[i].is_typed, params, found);
        assert_memory_equal(found, expected, LOGITS_BYTES);
        loch_ggml_destroy(ggml);
        end_pool(pool);
    }
    free(expected);
    free(found);
}

/* --- tags --- */

static void memory_has_tags_and_goes_back(void **state)
{
    (void)state;
    for (int is_typed = 0; is_typed < 2; is_typed++) {
        loch_allocator *pool = make_pool(0);
        loch_ggml *ggml = make_memory(pool, "tagged");
        float *logits = make_logits();
        clear_log();
        struct llama_model *model = load(path_a, ggml, is_typed);
        assert_non_null(model);
        assert_true(is_logged(is_typed ? "tagged_Weights model buffer" : "tagged model buffer"));
        assert_in_range(tag_bytes(ggml, LOCH_GGML_WEIGHTS), weights_bytes, weights_bytes + 64 * 64);
        assert_int_equal(tag_bytes(ggml, LOCH_GGML_CACHE), 0);
        struct llama_context *context = llama_init_from_model(model, context_params());
        assert_non_null(context);
        assert_int_equal(tag_bytes(ggml, LOCH_GGML_CACHE), 0); /* cleared, not touched */
        assert_true(tag_bytes(ggml, LOCH_GGML_COMPUTE) >= STEP_BYTES);
        generate(context, logits);
        /* A granule of 2 MiB for each tensor; all of the cache is 4 MiB for each. */
        assert_int_equal(tag_bytes(ggml, LOCH_GGML_CACHE), (size_t)2 * LAYERS * 2 * MIB);
        assert_in_range(tag_bytes(ggml, LOCH_GGML_WEIGHTS), weights_bytes, weights_bytes + 64 * 64);
        assert_string_equal(loch_tag_name(loch_ggml_get_tag(ggml, LOCH_GGML_CACHE)), "tagged.cache");
        llama_free(context);
        assert_int_equal(tag_bytes(ggml, LOCH_GGML_CACHE), 0);
        assert_int_equal(tag_bytes(ggml, LOCH_GGML_COMPUTE), 0);
        llama_model_free(model);
        assert_int_equal(tag_bytes(ggml, LOCH_GGML_WEIGHTS), 0);
        loch_ggml_destroy(ggml);
        end_pool(pool);
        free(logits);
    }
}

/* --- freezing --- */

typedef struct seen_block {
    loch_tag tag;
    void *address;
    size_t bytes;
} seen_block;

static loch_status see_block(const loch_block *block, void *user)
{
    seen_block *seen = user;
    if (block->tag == seen->tag && block->requested_bytes > seen->bytes) {
        seen->address = block->address;
        seen->bytes = block->requested_bytes;
    }
    return LOCH_OK;
}

/* Writes one byte in a child process. Returns the signal that ended it, or 0. */
static int write_in_child(volatile char *address)
{
    const pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        signal(SIGSEGV, SIG_DFL);
        *address = (char)(*address + 1);
        _exit(0);
    }
    int status = 0;
    assert_int_equal(waitpid(child, &status, 0), child);
    return WIFSIGNALED(status) ? WTERMSIG(status) : 0;
}

static void a_write_to_frozen_weights_ends_the_program(void **state)
{
    (void)state;
    for (int is_typed = 0; is_typed < 2; is_typed++) {
        loch_allocator *pool = make_pool(0);
        loch_ggml *ggml = make_memory(pool, NULL), *other = make_memory(pool, "other");
        float *before = make_logits(), *after = make_logits();
        struct llama_model *model = load(path_a, ggml, is_typed), *second = load(path_b, other, is_typed);
        assert_non_null(model);
        assert_non_null(second);
        struct llama_context *context = llama_init_from_model(model, context_params());
        assert_non_null(context);
        generate(context, before);
        seen_block seen = {.tag = loch_ggml_get_tag(ggml, LOCH_GGML_WEIGHTS)};
        seen_block others = {.tag = loch_ggml_get_tag(other, LOCH_GGML_WEIGHTS)};
        OK(loch_allocator_walk(pool, see_block, &seen));
        OK(loch_allocator_walk(pool, see_block, &others));
        char *const weights = seen.address;
        assert_non_null(weights);
        assert_non_null(others.address);
        assert_int_equal(write_in_child(weights), 0);

        loch_freeze_report report = {.size = sizeof report};
        OK(loch_ggml_freeze(ggml, &report));
        assert_true(report.bytes >= weights_bytes);
        assert_true(report.protected_bytes >= weights_bytes);
        assert_int_equal(write_in_child(weights), SIGSEGV);
        assert_int_equal(write_in_child(weights + seen.bytes / 2), SIGSEGV);
        assert_int_equal(write_in_child(weights + seen.bytes - 1), SIGSEGV);
        assert_int_equal(write_in_child(others.address), 0); /* of the other model */

        llama_memory_clear(llama_get_memory(context), true);
        generate(context, after);
        assert_memory_equal(after, before, LOGITS_BYTES);
        OK(loch_pool_unfreeze(pool, seen.tag, NULL));
        assert_int_equal(write_in_child(weights), 0);
        OK(loch_ggml_freeze(ggml, NULL));
        llama_free(context);
        llama_model_free(model); /* frozen memory goes back like other memory */
        llama_model_free(second);
        loch_ggml_destroy(ggml);
        loch_ggml_destroy(other);
        end_pool(pool);
        free(before);
        free(after);
    }
}

/* --- caches --- */

static void a_cache_grows_and_a_clear_gives_it_back(void **state)
{
    (void)state;
    loch_allocator *pool = make_pool(0);
    loch_ggml *ggml = make_memory(pool, NULL);
    struct llama_model *model = load(path_a, ggml, true), *plain_model = load(path_a, NULL, false);
    struct llama_context_params params = context_params();
    params.type_k = params.type_v = GGML_TYPE_F32; /* 1 KiB a token in each tensor: 2048 tokens a granule */
    struct llama_context *context = llama_init_from_model(model, params);
    struct llama_context *plain = llama_init_from_model(plain_model, params);
    assert_non_null(context);
    assert_non_null(plain);
    assert_int_equal(fill(plain, 0, 1800), 0);
    assert_int_equal(fill(plain, 1800, 300), 0);
    const size_t tensors = (size_t)2 * LAYERS;
    for (int round = 0; round < 2; round++) {
        assert_int_equal(tag_bytes(ggml, LOCH_GGML_CACHE), 0);
        assert_int_equal(fill(context, 0, 1800), 0);
        assert_int_equal(tag_bytes(ggml, LOCH_GGML_CACHE), tensors * 2 * MIB);
        assert_int_equal(fill(context, 1800, 300), 0);
        assert_int_equal(tag_bytes(ggml, LOCH_GGML_CACHE), tensors * 4 * MIB);
        assert_memory_equal(llama_get_logits_ith(context, -1), llama_get_logits_ith(plain, -1), STEP_BYTES);
        llama_memory_clear(llama_get_memory(context), true);
    }
    llama_free(context);
    llama_free(plain);
    llama_model_free(model);
    llama_model_free(plain_model);
    loch_ggml_destroy(ggml);
    end_pool(pool);
}

/* States, copies between sequences and shifts of positions do not go through the graphs of a decode alone. */
static void states_copies_and_shifts_are_those_of_plain_llama(void **state)
{
    (void)state;
    loch_allocator *pool = make_pool(0);
    loch_ggml *ggml = make_memory(pool, NULL);
    struct llama_context_params params = context_params();
    params.n_seq_max = 2;
    params.kv_unified = false; /* two streams in every tensor */
    struct llama_model *models[] = {load(path_a, NULL, false), load(path_a, ggml, true)};
    struct llama_context *contexts[2];
    static float logits[2][4][WORDS];
    uint8_t *saved[2];
    size_t bytes[2];
    const llama_token token = 7;
    for (int i = 0; i < 2; i++) {
        contexts[i] = llama_init_from_model(models[i], params);
        assert_non_null(contexts[i]);
        assert_int_equal(fill(contexts[i], 0, 300), 0);
        bytes[i] = llama_state_get_size(contexts[i]);
        saved[i] = malloc(bytes[i]);
        assert_non_null(saved[i]);
        assert_int_equal(llama_state_get_data(contexts[i], saved[i], bytes[i]), bytes[i]);
        /* Copies the sequence into the second stream. */
        llama_memory_seq_cp(llama_get_memory(contexts[i]), 0, 1, -1, -1);
        assert_int_equal(model_decode(contexts[i], &token, 1, 300, 1), 0);
        memcpy(logits[i][0], llama_get_logits_ith(contexts[i], -1), STEP_BYTES);
        /* Forgets the first 100 tokens and moves the others to their place. */
        assert_true(llama_memory_seq_rm(llama_get_memory(contexts[i]), 0, 0, 100));
        llama_memory_seq_add(llama_get_memory(contexts[i]), 0, 100, -1, -100);
        assert_int_equal(model_decode(contexts[i], &token, 1, 200, 0), 0);
        memcpy(logits[i][1], llama_get_logits_ith(contexts[i], -1), STEP_BYTES);
    }
    assert_int_equal(bytes[0], bytes[1]);
    for (int i = 0; i < 2; i++) { /* each one takes the state of the other */
        llama_memory_clear(llama_get_memory(contexts[i]), true);
        assert_int_equal(llama_state_set_data(contexts[i], saved[1 - i], bytes[1 - i]), bytes[1 - i]);
        assert_int_equal(model_decode(contexts[i], &token, 1, 300, 0), 0);
        memcpy(logits[i][2], llama_get_logits_ith(contexts[i], -1), STEP_BYTES);
        llama_memory_clear(llama_get_memory(contexts[i]), false); /* forgets, and keeps the bytes */
        assert_int_equal(fill(contexts[i], 0, 20), 0);
        memcpy(logits[i][3], llama_get_logits_ith(contexts[i], -1), STEP_BYTES);
    }
    assert_memory_equal(logits[1], logits[0], sizeof logits[0]);
    assert_memory_not_equal(logits[0][0], logits[0][1], STEP_BYTES);
    for (int i = 0; i < 2; i++) {
        free(saved[i]);
        llama_free(contexts[i]);
        llama_model_free(models[i]);
    }
    loch_ggml_destroy(ggml);
    end_pool(pool);
}

/* --- two models --- */

typedef struct side {
    struct llama_context *context;
    float *logits;
    bool is_ok;
} side;

static void *generate_on_thread(void *user)
{
    side *own = user;
    llama_token prompt[PROMPT];
    model_prompt(prompt, PROMPT, WORDS, 5);
    own->is_ok = model_generate(own->context, prompt, PROMPT, STEPS, WORDS, own->logits);
    return NULL;
}

static void two_models_share_a_pool(void **state)
{
    (void)state;
    const char *const paths[] = {path_a, path_b};
    float *expected[] = {make_logits(), make_logits()}, *found[] = {make_logits(), make_logits()};
    loch_allocator *pool = make_pool(0);
    loch_ggml *ggml[] = {make_memory(pool, "first"), make_memory(pool, "second")};
    struct llama_model *models[2];
    side sides[2];
    pthread_t threads[2];
    for (int i = 0; i < 2; i++) {
        run_once(paths[i], NULL, false, context_params(), expected[i]);
        models[i] = load(paths[i], ggml[i], true);
        assert_non_null(models[i]);
        OK(loch_ggml_freeze(ggml[i], NULL));
        sides[i] = (side){.context = llama_init_from_model(models[i], context_params()), .logits = found[i]};
        assert_non_null(sides[i].context);
    }
    assert_memory_not_equal(expected[0], expected[1], LOGITS_BYTES);
    for (int i = 0; i < 2; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, generate_on_thread, &sides[i]), 0);
    for (int i = 0; i < 2; i++)
        assert_int_equal(pthread_join(threads[i], NULL), 0);
    for (int i = 0; i < 2; i++) {
        assert_true(sides[i].is_ok);
        assert_memory_equal(found[i], expected[i], LOGITS_BYTES);
        assert_true(tag_bytes(ggml[i], LOCH_GGML_WEIGHTS) >= weights_bytes / 2);
    }
    /* The memory of the first one serves the second: its next context fits without more memory from the device. */
    llama_free(sides[0].context);
    llama_model_free(models[0]);
    loch_ggml_destroy(ggml[0]);
    OK(loch_pool_set_limit(pool, reserved_bytes(pool)));
    struct llama_context *third = llama_init_from_model(models[1], context_params());
    assert_non_null(third);
    generate(third, found[0]);
    assert_memory_equal(found[0], expected[1], LOGITS_BYTES);
    llama_free(third);
    llama_free(sides[1].context);
    llama_model_free(models[1]);
    loch_ggml_destroy(ggml[1]);
    end_pool(pool);
    for (int i = 0; i < 2; i++) {
        free(expected[i]);
        free(found[i]);
    }
}

int main(int count, char **arguments)
{
    if (!begin(count, arguments)) return 2;
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(logits_are_those_of_plain_llama),
        cmocka_unit_test(memory_has_tags_and_goes_back),
        cmocka_unit_test(a_write_to_frozen_weights_ends_the_program),
        cmocka_unit_test(a_cache_grows_and_a_clear_gives_it_back),
        cmocka_unit_test(states_copies_and_shifts_are_those_of_plain_llama),
        cmocka_unit_test(two_models_share_a_pool),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

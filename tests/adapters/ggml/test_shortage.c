/* SPDX-License-Identifier: MIT */
/* Memory is short, or a pool has no growable blocks: llama.cpp gives its ordinary results, its log has Loch's sentence,
 * and nothing is lost. */
#include "harness.h"

#include <stdlib.h>
#include <string.h>

static void weights_above_a_limit_fail_to_load(void **state)
{
    (void)state;
    loch_allocator *pool = make_pool(2 * MIB);
    loch_ggml *ggml = make_memory(pool, NULL);
    assert_true(weights_bytes > (size_t)2 * MIB);
    clear_log();
    assert_null(load(path_a, ggml, true));
    assert_true(is_logged("Loch: cannot allocate a buffer"));
    assert_true(is_logged("can never fit: the limit of pool"));
    assert_true(is_logged("unable to allocate Loch_Weights buffer")); /* llama.cpp's own */
    assert_int_equal(used_bytes(pool), 0);
    OK(loch_pool_set_limit(pool, 0));
    struct llama_model *model = load(path_a, ggml, true);
    assert_non_null(model);
    llama_model_free(model);
    loch_ggml_destroy(ggml);
    end_pool(pool);
}

static void a_cache_at_its_limit_keeps_its_contents(void **state)
{
    (void)state;
    loch_allocator *pool = make_pool(0);
    loch_ggml *ggml = make_memory(pool, NULL);
    struct llama_model *model = load(path_a, ggml, true), *plain_model = load(path_a, NULL, false);
    struct llama_context_params params = context_params();
    params.type_k = params.type_v = GGML_TYPE_F32; /* 2048 tokens a granule */
    struct llama_context *context = llama_init_from_model(model, params);
    struct llama_context *plain = llama_init_from_model(plain_model, params);
    assert_int_equal(fill(context, 0, 1900), 0);
    assert_int_equal(fill(plain, 0, 1900), 0);
    const size_t cache = tag_bytes(ggml, LOCH_GGML_CACHE);
    OK(loch_allocator_trim(pool, 0, NULL));
    OK(loch_pool_set_limit(pool, reserved_bytes(pool) + (size_t)3 * 2 * MIB)); /* three of the six tensors can grow */
    clear_log();
    assert_int_equal(fill(context, 1900, 256), -2); /* llama.cpp's result for memory that is short */
    assert_true(is_logged("Loch: cannot grow a cache"));
    /* The limit leaves no new granule. If the pool has as much free between blocks, it says that instead. */
    assert_true(is_logged("is at its limit of") || is_logged("not free in one piece"));
    assert_true(tag_bytes(ggml, LOCH_GGML_CACHE) <= cache + (size_t)3 * 2 * MIB);
    assert_int_equal(fill(context, 1900, 64), 0); /* less text fits, and nothing was lost */
    assert_int_equal(fill(plain, 1900, 64), 0);
    assert_memory_equal(llama_get_logits_ith(context, -1), llama_get_logits_ith(plain, -1), STEP_BYTES);
    OK(loch_pool_set_limit(pool, 0));
    assert_int_equal(fill(context, 1964, 256), 0);
    assert_int_equal(fill(plain, 1964, 256), 0);
    assert_memory_equal(llama_get_logits_ith(context, -1), llama_get_logits_ith(plain, -1), STEP_BYTES);
    llama_free(context);
    llama_free(plain);
    llama_model_free(model);
    llama_model_free(plain_model);
    loch_ggml_destroy(ggml);
    end_pool(pool);
}

/* llama_state_set_data writes through a function that cannot fail: the next decode says so, until the cache is
 * cleared. */
static void a_state_above_a_limit_fails_at_the_next_decode(void **state)
{
    (void)state;
    loch_allocator *pool = make_pool(0);
    loch_ggml *ggml = make_memory(pool, NULL);
    struct llama_model *model = load(path_a, ggml, true);
    struct llama_context *context = llama_init_from_model(model, context_params());
    float *expected = make_logits(), *found = make_logits();
    generate(context, expected);
    const size_t bytes = llama_state_get_size(context);
    uint8_t *saved = malloc(bytes);
    assert_non_null(saved);
    assert_int_equal(llama_state_get_data(context, saved, bytes), bytes);
    llama_memory_clear(llama_get_memory(context), true);
    OK(loch_allocator_trim(pool, 0, NULL));
    OK(loch_pool_set_limit(pool, reserved_bytes(pool)));
    (void)!llama_state_set_data(context, saved, bytes);
    const llama_token token = 7;
    clear_log();
    OK(loch_pool_set_limit(pool, 0));
    assert_int_equal(model_decode(context, &token, 1, PROMPT + STEPS, 0), -2);
    assert_true(is_logged("clear the cache"));
    llama_memory_clear(llama_get_memory(context), true);
    generate(context, found);
    assert_memory_equal(found, expected, LOGITS_BYTES);
    free(saved);
    free(expected);
    free(found);
    llama_free(context);
    llama_model_free(model);
    loch_ggml_destroy(ggml);
    end_pool(pool);
}

/* Loads, generates and ends, and checks that nothing stays. Returns whether all of it worked. */
static bool try_all(loch_allocator *allocator, float *logits)
{
    loch_ggml *ggml = make_memory(allocator, NULL);
    struct llama_model *model = load(path_a, ggml, true);
    struct llama_context *context = model ? llama_init_from_model(model, context_params()) : NULL;
    llama_token prompt[PROMPT];
    model_prompt(prompt, PROMPT, WORDS, 5);
    const bool is_done = context && model_generate(context, prompt, PROMPT, STEPS, WORDS, logits);
    llama_free(context);
    llama_model_free(model);
    loch_ggml_destroy(ggml);
    return is_done;
}

/* Every request for memory fails in turn, with all that follow it. */
static void every_request_may_fail(void **state)
{
    (void)state;
    float *expected = make_logits(), *found = make_logits();
    run_once(path_a, NULL, false, context_params(), expected);
    uint64_t failed = 0;
    for (bool is_done = false; !is_done;) {
        const loch_fault_options options = {.size = sizeof options, .after = failed};
        loch_allocator *pool = make_pool(0), *fault;
        OK(loch_fault_create(pool, "fault", &options, &fault));
        is_done = try_all(fault, found);
        failed += !is_done;
        assert_true(failed < 200);
        loch_allocator_release(fault);
        end_pool(pool);
    }
    assert_memory_equal(found, expected, LOGITS_BYTES);
    assert_true(failed >= 2 + 2 * LAYERS); /* weights, compute, and the memory of each tensor */
    free(expected);
    free(found);
}

/* A wrapper that has no addresses to reserve after some. */
typedef struct narrow {
    loch_allocator *wrapped;
    int left;
} narrow;

static loch_status narrow_alloc(void *self, const loch_request *request, void **out)
{
    narrow *own = self;
    if (request->max_bytes && own->left-- <= 0)
        return loch_error_set(LOCH_E_DEVICE_MEMORY, NULL, 0, "no addresses for %zu bytes", request->max_bytes);
    return loch_allocator_alloc(own->wrapped, request, out);
}

static loch_status narrow_resize(void *self, void *address, size_t bytes, size_t *allocated)
{
    const narrow *own = self;
    loch_block block = {.size = sizeof block};
    loch_status status = loch_pool_resize_growable(own->wrapped, address, bytes);
    if (status == LOCH_OK) status = loch_allocator_find(own->wrapped, address, &block);
    *allocated = block.allocated_bytes;
    return status;
}

static void every_reservation_may_fail(void **state)
{
    (void)state;
    float *expected = make_logits(), *found = make_logits();
    run_once(path_a, NULL, false, context_params(), expected);
    int failed = 0;
    for (bool is_done = false; !is_done;) {
        const loch_allocator_ops ops = {
            .size = sizeof ops, .kind = "narrow", .alloc = narrow_alloc, .resize = narrow_resize};
        loch_allocator *pool = make_pool(0), *wrapper;
        narrow own = {.wrapped = pool, .left = failed};
        OK(loch_wrapper_create(pool, NULL, &ops, &own, &wrapper));
        clear_log();
        is_done = try_all(wrapper, found);
        assert_int_equal(is_logged("no addresses for"), !is_done);
        failed += !is_done;
        assert_true(failed < 200);
        loch_allocator_release(wrapper);
        end_pool(pool);
    }
    assert_memory_equal(found, expected, LOGITS_BYTES);
    assert_int_equal(failed, 1 + 2 * LAYERS);
    free(expected);
    free(found);
}

/* Red zones have no growable blocks: a cache is one block then. They also show that nothing is written beside a
 * block. */
static void a_cache_that_cannot_grow_is_one_block(void **state)
{
    (void)state;
    float *expected = make_logits(), *found = make_logits();
    run_once(path_a, NULL, false, context_params(), expected);
    loch_allocator *pool = make_pool(0), *redzone;
    OK(loch_redzone_create(pool, "zones", NULL, &redzone));
    loch_ggml *ggml = make_memory(redzone, NULL);
    clear_log();
    struct llama_model *model = load(path_a, ggml, false);
    assert_non_null(model);
    struct llama_context *context = llama_init_from_model(model, context_params());
    assert_non_null(context);
    assert_int_equal(tag_bytes(ggml, LOCH_GGML_CACHE), (size_t)2 * LAYERS * CONTEXT * WIDTH * 2);
    generate(context, found);
    assert_memory_equal(found, expected, LOGITS_BYTES);
    OK(loch_redzone_check(redzone));
    llama_free(context);
    llama_model_free(model);
    assert_false(is_logged("cannot free"));
    loch_ggml_destroy(ggml);
    loch_allocator_release(redzone);
    end_pool(pool);
    free(expected);
    free(found);
}

int main(int count, char **arguments)
{
    if (!begin(count, arguments)) return 2;
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(weights_above_a_limit_fail_to_load),
        cmocka_unit_test(a_cache_at_its_limit_keeps_its_contents),
        cmocka_unit_test(a_state_above_a_limit_fails_at_the_next_decode),
        cmocka_unit_test(every_request_may_fail),
        cmocka_unit_test(every_reservation_may_fail),
        cmocka_unit_test(a_cache_that_cannot_grow_is_one_block),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

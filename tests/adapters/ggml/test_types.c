/* SPDX-License-Identifier: MIT */
/* Types of buffers without llama.cpp, as an engine of its own uses them, and bad input. */
#include "harness.h"

#include <string.h>

static void a_cache_has_memory_where_it_was_written(void **state)
{
    (void)state;
    loch_allocator *pool = make_pool(0);
    loch_ggml *ggml = make_memory(pool, "engine");
    struct ggml_init_params params = {.mem_size = 16 * ggml_tensor_overhead(), .no_alloc = true};
    struct ggml_context *context = ggml_init(params);
    struct ggml_tensor *cache = ggml_new_tensor_1d(context, GGML_TYPE_F32, 4 * MIB);
    struct ggml_tensor *view = ggml_view_1d(context, cache, 1024, (size_t)3 * MIB * sizeof(float));
    struct ggml_tensor *empty = ggml_new_tensor_1d(context, GGML_TYPE_F32, 0);
    ggml_backend_buffer_t buffer =
        ggml_backend_alloc_ctx_tensors_from_buft(context, loch_ggml_get_type(ggml, LOCH_GGML_CACHE));
    assert_non_null(buffer);
    assert_non_null(empty->data);
    assert_false(ggml_backend_buffer_is_host(buffer));
    assert_int_equal(tag_bytes(ggml, LOCH_GGML_CACHE), 0);
    float numbers[1024], read[1024];
    for (int i = 0; i < 1024; i++)
        numbers[i] = (float)(i + 1);
    memset(read, 1, sizeof read);
    ggml_backend_tensor_get(view, read, 0, sizeof read); /* no memory there: zero */
    for (int i = 0; i < 1024; i++)
        assert_true(read[i] == 0.0f);
    assert_int_equal(tag_bytes(ggml, LOCH_GGML_CACHE), 0);
    ggml_backend_tensor_set(cache, numbers, 100 * sizeof(float), sizeof numbers);
    assert_int_equal(tag_bytes(ggml, LOCH_GGML_CACHE), 2 * MIB);
    ggml_backend_tensor_get(cache, read, 100 * sizeof(float), sizeof read);
    assert_memory_equal(read, numbers, sizeof read);
    ggml_backend_tensor_memset(view, 0, 0, sizeof read); /* zeros need no memory */
    assert_int_equal(tag_bytes(ggml, LOCH_GGML_CACHE), 2 * MIB);
    ggml_backend_tensor_set(view, numbers, 0, sizeof numbers);
    assert_int_equal(tag_bytes(ggml, LOCH_GGML_CACHE), 14 * MIB);
    ggml_backend_tensor_get(cache, read, (size_t)3 * MIB * sizeof(float), sizeof read);
    assert_memory_equal(read, numbers, sizeof read);
    ggml_backend_buffer_clear(buffer, 0);
    assert_int_equal(tag_bytes(ggml, LOCH_GGML_CACHE), 0);
    ggml_backend_tensor_set(cache, numbers, 0, sizeof(float)); /* the memory that comes again has no old contents */
    ggml_backend_tensor_get(cache, read, 100 * sizeof(float), sizeof read);
    assert_true(read[5] == 0.0f);
    ggml_backend_buffer_clear(buffer, 0xff);
    assert_int_equal(tag_bytes(ggml, LOCH_GGML_CACHE), 16 * MIB);
    loch_ggml_destroy(ggml); /* the buffer keeps what it needs */
    ggml_backend_buffer_free(buffer);
    ggml_free(context);
    end_pool(pool);
}

/* A graph of an engine of its own, on the device: reads of a cache grow it too. */
static void a_graph_gives_memory_to_what_it_reads(void **state)
{
    (void)state;
    loch_allocator *pool = make_pool(0);
    loch_ggml *ggml = make_memory(pool, "engine");
    ggml_backend_t backend = ggml_backend_dev_init(loch_ggml_get_device(ggml), NULL);
    assert_non_null(backend);
    struct ggml_init_params params = {.mem_size = 16 * ggml_tensor_overhead(), .no_alloc = true};
    struct ggml_init_params graph_params = {.mem_size = 16 * ggml_tensor_overhead() + ggml_graph_overhead(),
                                            .no_alloc = true};
    struct ggml_context *context = ggml_init(params), *graph_context = ggml_init(graph_params);
    struct ggml_tensor *cache = ggml_new_tensor_2d(context, GGML_TYPE_F32, 256, 8192); /* 8 MiB */
    ggml_backend_buffer_t buffer =
        ggml_backend_alloc_ctx_tensors_from_buft(context, loch_ggml_get_type(ggml, LOCH_GGML_CACHE));
    struct ggml_cgraph *graph = ggml_new_graph(graph_context);
    struct ggml_tensor *part = ggml_view_2d(graph_context, cache, 256, 3000, cache->nb[1], 0);
    struct ggml_tensor *sum = ggml_sum(graph_context, ggml_scale_bias(graph_context, part, 1.0f, 2.0f));
    ggml_build_forward_expand(graph, sum);
    ggml_gallocr_t allocator = ggml_gallocr_new(ggml_backend_get_default_buffer_type(backend));
    assert_true(ggml_gallocr_alloc_graph(allocator, graph));
    assert_true(tag_bytes(ggml, LOCH_GGML_COMPUTE) > 0);
    assert_int_equal(tag_bytes(ggml, LOCH_GGML_CACHE), 0);
    assert_int_equal(ggml_backend_graph_compute(backend, graph), GGML_STATUS_SUCCESS);
    assert_int_equal(tag_bytes(ggml, LOCH_GGML_CACHE), 4 * MIB);
    float result;
    ggml_backend_tensor_get(sum, &result, 0, sizeof result);
    assert_true(result == 2.0f * 256 * 3000);
    ggml_gallocr_free(allocator);
    ggml_backend_buffer_free(buffer);
    ggml_backend_free(backend);
    ggml_free(context);
    ggml_free(graph_context);
    loch_ggml_destroy(ggml);
    end_pool(pool);
}

static int threads_seen;

static void see_threads(struct ggml_tensor *result, const struct ggml_tensor *from, int thread, int threads, void *user)
{
    (void)user;
    if (thread != 0) return;
    threads_seen = threads;
    memcpy(result->data, from->data, ggml_nbytes(from));
}

static bool refuse(void *user)
{
    (void)user;
    return true;
}

/* llama.cpp sets threads and its abort callback by functions that it finds by name. */
static void threads_and_abort_reach_the_cpu_backend(void **state)
{
    (void)state;
    loch_ggml *ggml = make_memory(NULL, NULL);
    ggml_backend_dev_t device = loch_ggml_get_device(ggml);
    ggml_backend_reg_t reg = ggml_backend_dev_backend_reg(device);
    ggml_backend_t backend = ggml_backend_dev_init(device, NULL);
    struct ggml_init_params params = {.mem_size = 16 * ggml_tensor_overhead() + ggml_graph_overhead(),
                                      .no_alloc = true};
    struct ggml_context *context = ggml_init(params);
    struct ggml_cgraph *graph = ggml_new_graph(context);
    struct ggml_tensor *input = ggml_new_tensor_1d(context, GGML_TYPE_F32, 16);
    ggml_build_forward_expand(graph, ggml_map_custom1(context, input, see_threads, GGML_N_TASKS_MAX, NULL));
    ggml_gallocr_t allocator = ggml_gallocr_new(ggml_backend_get_default_buffer_type(backend));
    assert_true(ggml_gallocr_alloc_graph(allocator, graph));
    const ggml_backend_set_n_threads_t set_threads =
        (ggml_backend_set_n_threads_t)ggml_backend_reg_get_proc_address(reg, "ggml_backend_set_n_threads");
    const ggml_backend_set_abort_callback_t set_abort =
        (ggml_backend_set_abort_callback_t)ggml_backend_reg_get_proc_address(reg, "ggml_backend_set_abort_callback");
    for (int threads = 1; threads <= 2; threads++) {
        set_threads(backend, threads);
        assert_int_equal(ggml_backend_graph_compute(backend, graph), GGML_STATUS_SUCCESS);
        assert_int_equal(threads_seen, threads);
    }
    set_abort(backend, refuse, NULL);
    assert_int_equal(ggml_backend_graph_compute(backend, graph), GGML_STATUS_ABORTED);
    assert_null(ggml_backend_reg_get_proc_address(reg, "another"));
    ggml_gallocr_free(allocator);
    ggml_backend_free(backend);
    ggml_free(context);
    loch_ggml_destroy(ggml);
}

/* The device has one type for everything, so weights are told by their tensors. A guess freezes nothing. */
static void a_guess_freezes_nothing(void **state)
{
    (void)state;
    loch_allocator *pool = make_pool(0);
    loch_ggml *ggml = make_memory(pool, "engine");
    ggml_backend_buffer_type_t type = ggml_backend_dev_buffer_type(loch_ggml_get_device(ggml));
    struct ggml_init_params params = {.mem_size = 4 * ggml_tensor_overhead(), .no_alloc = true};
    struct ggml_context *context = ggml_init(params);
    struct ggml_tensor *tensor = ggml_new_tensor_1d(context, GGML_TYPE_F32, MIB);
    ggml_backend_buffer_t buffer = ggml_backend_alloc_ctx_tensors_from_buft(context, type);
    assert_non_null(buffer);
    assert_int_equal(tag_bytes(ggml, LOCH_GGML_WEIGHTS), 4 * MIB);
    assert_int_equal(loch_ggml_freeze(ggml, NULL), LOCH_E_BUSY);
    ggml_backend_tensor_memset(tensor, 1, 0, ggml_nbytes(tensor)); /* still writable */
    ggml_backend_buffer_set_usage(buffer, GGML_BACKEND_BUFFER_USAGE_WEIGHTS);
    loch_freeze_report report = {.size = sizeof report};
    OK(loch_ggml_freeze(ggml, &report));
    assert_int_equal(report.blocks, 1);
    ggml_backend_buffer_free(buffer);
    ggml_free(context);
    loch_ggml_destroy(ggml);
    end_pool(pool);
}

static void bad_input_is_refused(void **state)
{
    (void)state;
    loch_ggml *ggml = (loch_ggml *)1;
    loch_ggml_options options = {0};
    assert_int_equal(loch_ggml_create(NULL, NULL), LOCH_E_INVALID);
    assert_int_equal(loch_ggml_create(&options, &ggml), LOCH_E_INVALID);
    assert_null(ggml);
    options = (loch_ggml_options){.size = sizeof options, .name = ""};
    assert_int_equal(loch_ggml_create(&options, &ggml), LOCH_E_INVALID);
    options.name = "a name that has more than thirty-one characters";
    assert_int_equal(loch_ggml_create(&options, &ggml), LOCH_E_INVALID);
    loch_device *device;
    loch_allocator *pool;
    OK(loch_device_open("sim:1GiB", &device));
    OK(loch_pool_create(device, NULL, NULL, &pool));
    options = (loch_ggml_options){.size = sizeof options, .pool = pool};
    assert_int_equal(loch_ggml_create(&options, &ggml), LOCH_E_UNSUPPORTED);
    loch_allocator_release(pool);
    OK(loch_direct_create(device, NULL, NULL, &pool));
    options.pool = pool;
    assert_int_equal(loch_ggml_create(&options, &ggml), LOCH_E_INVALID); /* not a pool */
    loch_allocator_release(pool);
    loch_device_release(device);
    assert_int_equal(loch_ggml_freeze(NULL, NULL), LOCH_E_INVALID);
    assert_null(loch_ggml_get_device(NULL));
    assert_null(loch_ggml_get_type(NULL, LOCH_GGML_CACHE));
    assert_null(loch_ggml_get_pool(NULL));
    assert_int_equal(loch_ggml_get_tag(NULL, LOCH_GGML_CACHE), 0);
    OK(loch_ggml_create(NULL, &ggml)); /* the default pool */
    assert_null(loch_ggml_get_type(ggml, (loch_ggml_kind)3));
    assert_string_equal(ggml_backend_dev_name(loch_ggml_get_device(ggml)), "Loch");
    loch_ggml_destroy(ggml);
    loch_ggml_destroy(NULL);
}

int main(int count, char **arguments)
{
    if (!begin(count, arguments)) return 2;
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_cache_has_memory_where_it_was_written),
        cmocka_unit_test(a_graph_gives_memory_to_what_it_reads),
        cmocka_unit_test(threads_and_abort_reach_the_cpu_backend),
        cmocka_unit_test(a_guess_freezes_nothing),
        cmocka_unit_test(bad_input_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

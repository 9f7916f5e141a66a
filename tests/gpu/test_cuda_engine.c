/* SPDX-License-Identifier: MIT */
/* An engine with a real GPU and the CPU beside it: limits, contexts in threads, copies that are kept, parameters cut
 * over both, guards, spans timed on the GPU, a product by the context's cuBLAS, the engine's NCCL, freezing, and an end
 * without leaks.
 *
 * Without a GPU the program says why and is skipped; LOCH_REQUIRE_GPU=1 makes that a failure. An argument names another
 * device than cuda:0 ("sim:1GiB,backed" tries the program itself, without the libraries). */
#include "double.h"
#include <pthread.h>

#define SIDE 256
#define THREADS 8

static const char *device_name = "cuda:0";
static bool is_double; /* the device is the one of tests/fake: there is no cuBLAS, and no NCCL */
static const loch_seat gpu = {0}, cpu = {1};

static loch_engine *open_engine(void)
{
    const loch_engine_device table[] = {
        {.size = sizeof table[0], .name = device_name, .limit_fraction = 0.25, .workers = 2},
        {.size = sizeof table[0], .name = "cpu", .limit_bytes = TEST_GIB}};
    const loch_timeline_options timeline = {.size = sizeof timeline, .level = 2};
    const loch_engine_options options = {
        .size = sizeof options, .name = "gpu test", .devices = table, .devices_count = 2, .timeline = &timeline};
    loch_engine *engine;
    CHECK_OK(loch_engine_open(&options, &engine));
    return engine;
}

static void close_engine(loch_engine *engine)
{
    loch_engine_leaks leaks = {.size = sizeof leaks};
    CHECK_OK(loch_engine_close(engine, LOCH_WORKERS_DRAIN, NULL, NULL, &leaks));
    assert_int_equal(leaks.blocks, 0);
}

static loch_context *make_context(loch_engine *engine)
{
    loch_tag tag;
    CHECK_OK(loch_tag_create("gpu engine", &tag));
    const loch_context_options options = {.size = sizeof options, .flags = LOCH_ALLOC_MOVABLE, .tag = tag};
    loch_context *context;
    CHECK_OK(loch_context_open(engine, &options, &context));
    return context;
}

static void expect(loch_tensor *tensor, float first, float step)
{
    static _Thread_local float seen[SIDE * SIDE];
    CHECK_OK(loch_tensor_read(tensor, seen, loch_tensor_get_bytes(tensor), NULL));
    for (size_t i = 0; i < loch_tensor_get_elements(tensor); i++)
        if (seen[i] != first + step * (float)i) fail_msg("element %zu is %g", i, (double)seen[i]);
}

static loch_tensor *count_up(loch_context *context)
{
    static _Thread_local float numbers[SIDE * SIDE];
    for (size_t i = 0; i < SIDE * SIDE; i++)
        numbers[i] = (float)i;
    loch_tensor *tensor;
    CHECK_OK(loch_context_create_from(context, LOCH_F32, LOCH_SHAPE(SIDE, SIDE), numbers, "numbers", 0, &tensor));
    return tensor;
}

static void an_engine_tells_the_figures_of_its_gpus(void **state)
{
    (void)state;
    loch_engine *engine = open_engine();
    loch_engine_info info = {.size = sizeof info};
    CHECK_OK(loch_engine_get_info(engine, gpu, &info));
    assert_true(info.limit_bytes > info.total_bytes / 8 && info.limit_bytes <= info.total_bytes / 4);
    assert_int_equal(info.workers, 2);
    assert_true(loch_engine_can_reach(engine, gpu, gpu));
    char text[4096];
    assert_true(test_engine_print(engine, text, sizeof text) < sizeof text);
    assert_non_null(strstr(text, device_name));
    close_engine(engine);
}

/* A copy is kept until its source changes; parameters are cut over both; a pool is pushed and popped; all of it
 * compacts. */
static void copies_parameters_and_pools_of_a_context_work_on_the_gpu(void **state)
{
    (void)state;
    loch_engine *engine = open_engine();
    loch_context *context = make_context(engine);
    CHECK_OK(loch_context_set_seat(context, cpu));
    loch_tensor *source = count_up(context), *copy, *again, *part;
    CHECK_OK(loch_context_set_seat(context, gpu));
    CHECK_OK(loch_context_acquire_copy(context, source, &copy));
    expect(copy, 0, 1);
    CHECK_OK(loch_context_acquire_copy(context, source, &again));
    assert_ptr_equal(copy, again);
    loch_tensor_release(again);
    CHECK_OK(loch_tensor_fill(source, loch_scalar_of(7.0), NULL));
    CHECK_OK(loch_context_acquire_copy(context, source, &again));
    assert_ptr_not_equal(copy, again);
    expect(again, 7, 0);
    loch_tensor_release(again);
    loch_tensor_release(copy);

    loch_parameter *weights;
    CHECK_OK(
        loch_context_declare(context, "weights", LOCH_F32, LOCH_SHAPE(SIDE, SIDE), LOCH_SPREAD_PARTS, 0, 0, &weights));
    CHECK_OK(loch_context_set_seat(context, cpu));
    loch_tensor *numbers = count_up(context);
    CHECK_OK(loch_context_load(context, weights, numbers));
    CHECK_OK(loch_parameter_acquire_tensor(weights, gpu, &part));
    assert_ptr_equal(loch_tensor_get_device(part), loch_engine_get_device(engine, gpu));
    expect(part, 0, 1);
    loch_tensor_release(part);
    CHECK_OK(loch_parameter_acquire_tensor(weights, cpu, &part));
    expect(part, 0.5f * SIDE * SIDE, 1);
    loch_tensor_release(part);
    size_t frozen;
    CHECK_OK(loch_engine_freeze(engine, 0, &frozen));
    assert_true(frozen >= SIDE * SIDE * 4);

    CHECK_OK(loch_context_set_seat(context, gpu));
    const loch_child_options child = {.size = sizeof child, .kind = LOCH_CHILD_QUOTA, .limit_bytes = 64 * TEST_MIB};
    CHECK_OK(loch_context_push_pool(context, "request", &child, NULL));
    loch_tensor *inside = count_up(context);
    CHECK_OK(loch_context_pop_pool(context));
    CHECK_OK(test_context_compact(context, NULL));
    expect(inside, 0, 1);
    loch_tensor_release(inside);
    loch_tensor_release(numbers);
    loch_tensor_release(source);
    loch_parameter_release(weights);
    CHECK_OK(loch_context_close(context));
    close_engine(engine);
}

/* Spans on a stream of the GPU have a time of the GPU. */
static loch_status look_at_span(const loch_span_record *record, void *user)
{
    if (!strcmp(record->name, "fill")) *(uint64_t *)user += record->device_ns;
    return LOCH_OK;
}

static void spans_have_the_times_of_the_gpu(void **state)
{
    (void)state;
    loch_engine *engine = open_engine();
    loch_context *context = make_context(engine);
    loch_tensor *tensor;
    CHECK_OK(loch_context_create_tensor(context, LOCH_F32, LOCH_SHAPE(64 << 20), "large", 0, &tensor));
    for (int i = 0; i < 3; i++) {
        LOCH_SPAN(loch_engine_get_timeline(engine), "fill", .stream = test_context_stream(context),
                  .bytes = 256 * TEST_MIB, .allocator = loch_context_get_allocator(context));
        CHECK_OK(loch_tensor_fill(tensor, loch_scalar_of(1.0), test_context_stream(context)));
    }
    uint64_t ns = 0;
    CHECK_OK(loch_timeline_walk(loch_engine_get_timeline(engine), look_at_span, &ns));
    print_message("three fills of 256 MiB: %llu us on the device\n", (unsigned long long)ns / 1000);
    assert_true(ns > 10000); /* no bar: 256 MiB at 25 TB/s */
    char text[8192];
    assert_true(test_timeline_print(loch_engine_get_timeline(engine), LOCH_TIMELINE_TREE, 0, text, sizeof text) > 0);
    assert_non_null(strstr(text, "fill"));
    loch_tensor_release(tensor);
    CHECK_OK(loch_context_close(context));
    close_engine(engine);
}

/* The handle of a context works on its stream, whichever it is. */
typedef int sgemm(void *handle, int transpose_a, int transpose_b, int m, int n, int k, const float *alpha,
                  const float *a, int a_step, const float *b, int b_step, const float *beta, float *c, int c_step);

static void an_engine_has_cublas_on_its_streams(void **state)
{
    (void)state;
    if (strncmp(device_name, "cuda", 4) != 0 || is_double) return;
    loch_engine *engine = open_engine();
    loch_context *context = make_context(engine);
    loch_cublas *cublas;
    void *handle, *symbol, *addresses[3];
    sgemm *product;
    loch_tensor *tensors[3];
    for (size_t i = 0; i < 3; i++) {
        loch_stream *stream = test_context_stream(context);
        CHECK_OK(loch_context_create_tensor(context, LOCH_F32, LOCH_SHAPE(SIDE, SIDE), NULL, 0, &tensors[i]));
        CHECK_OK(loch_tensor_fill(tensors[i], loch_scalar_of((double)i + 1), stream));
        CHECK_OK(loch_buffer_pin(loch_tensor_get_buffer(tensors[i]), stream, &addresses[i]));
    }
    CHECK_OK(loch_context_require_cublas(context, &cublas));
    CHECK_OK(loch_library_find(LOCH_LIBRARY_CUBLAS, "cublasSgemm_v2", &symbol));
    memcpy(&product, &symbol, sizeof symbol);
    CHECK_OK(loch_cublas_get_native(cublas, &handle));
    const float one = 1, zero = 0;
    assert_int_equal(product(handle, 0, 0, SIDE, SIDE, SIDE, &one, addresses[0], SIDE, addresses[1], SIDE, &zero,
                             addresses[2], SIDE),
                     0);
    for (size_t i = 0; i < 3; i++)
        CHECK_OK(loch_buffer_unpin(loch_tensor_get_buffer(tensors[i]), test_context_stream(context)));
    CHECK_OK(test_context_compact(context, NULL)); /* behind the product */
    CHECK_OK(loch_stream_sync(test_context_stream(context)));
    expect(tensors[2], 2 * SIDE, 0);
    loch_nccl *nccl;
    CHECK_FAILS(loch_engine_require_nccl(engine, &nccl), UNSUPPORTED); /* the CPU has a seat, too */
    for (size_t i = 0; i < 3; i++)
        loch_tensor_release(tensors[i]);
    CHECK_OK(loch_context_close(context));
    close_engine(engine);
}

/* Eight threads with a context each, on the one GPU. */
static void *serve(void *user)
{
    loch_engine *engine = user;
    loch_context *context = make_context(engine);
    for (int round = 0; round < 20; round++) {
        loch_status status;
        LOCH_GUARD(status, seat, context, round % 2 ? gpu : cpu, round % 3 ? LOCH_SEAT_PLAIN : LOCH_SEAT_LOCKED);
        CHECK_OK(status);
        loch_tensor *tensor = count_up(context), *there;
        {
            LOCH_GUARD(status, seat, context, gpu, LOCH_SEAT_PLAIN);
            CHECK_OK(status);
            CHECK_OK(loch_context_acquire_copy(context, tensor, &there));
        }
        expect(there, 0, 1);
        loch_tensor_release(there);
        loch_tensor_release(tensor);
    }
    CHECK_OK(loch_context_close(context));
    return engine;
}

static void threads_share_an_engine(void **state)
{
    (void)state;
    loch_engine *engine = open_engine();
    pthread_t threads[THREADS];
    for (size_t i = 0; i < THREADS; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, serve, engine), 0);
    for (size_t i = 0; i < THREADS; i++) {
        void *result;
        assert_int_equal(pthread_join(threads[i], &result), 0);
        assert_ptr_equal(result, engine);
    }
    close_engine(engine);
}

/* One rank: all-reduce of a tensor is the tensor. */
typedef int all_reduce(const void *from, void *to, size_t count, int type, int operation, void *communicator,
                       void *stream);

static void an_engine_has_nccl_over_its_gpu(void **state)
{
    (void)state;
    if (strncmp(device_name, "cuda", 4) != 0 || is_double) return;
    const loch_engine_device table[] = {{.size = sizeof table[0], .name = device_name}};
    const loch_engine_options options = {.size = sizeof options, .devices = table, .devices_count = 1};
    loch_engine *engine;
    CHECK_OK(loch_engine_open(&options, &engine));
    loch_context *context;
    CHECK_OK(loch_context_open(engine, NULL, &context));
    loch_tensor *tensor = count_up(context);
    loch_nccl *nccl, *again;
    void *communicator, *symbol, *address;
    all_reduce *reduce;
    CHECK_OK(loch_engine_require_nccl(engine, &nccl));
    CHECK_OK(loch_engine_require_nccl(engine, &again));
    assert_ptr_equal(nccl, again);
    CHECK_OK(loch_nccl_get_native(nccl, 0, &communicator));
    CHECK_OK(loch_library_find(LOCH_LIBRARY_NCCL, "ncclAllReduce", &symbol));
    memcpy(&reduce, &symbol, sizeof symbol);
    CHECK_OK(loch_tensor_get_address(tensor, &address));
    loch_stream *stream = test_context_stream(context);
    assert_int_equal(reduce(address, address, SIDE * SIDE, 7 /* float32 */, 0 /* sum */, communicator,
                            loch_stream_get_native(stream)),
                     0);
    CHECK_OK(loch_stream_sync(stream));
    expect(tensor, 0, 1);
    loch_tensor_release(tensor);
    CHECK_OK(loch_context_close(context));
    close_engine(engine);
}

int main(int count, char **arguments)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(an_engine_tells_the_figures_of_its_gpus),
        cmocka_unit_test(copies_parameters_and_pools_of_a_context_work_on_the_gpu),
        cmocka_unit_test(spans_have_the_times_of_the_gpu),
        cmocka_unit_test(an_engine_has_cublas_on_its_streams),
        cmocka_unit_test(threads_share_an_engine),
        cmocka_unit_test(an_engine_has_nccl_over_its_gpu),
    };
    loch_device *device;
    if (count > 1) device_name = arguments[1];
    if (loch_device_open(device_name, &device) != LOCH_OK) return test_skip_gpu();
    is_double = is_test_double(device, "cuBLAS and NCCL need a GPU");
    const int failures = cmocka_run_group_tests(tests, NULL, NULL);
    loch_device_release(device);
    return failures ? 1 : 0;
}

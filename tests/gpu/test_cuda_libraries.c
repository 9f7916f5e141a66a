/* SPDX-License-Identifier: MIT */
/* cuBLAS and NCCL on a real GPU: a product of matrices and an all-reduce over one rank, in memory of Loch and on its
 * streams.
 *
 * The libraries are looked for as programs do it (LOCH_CUBLAS, LOCH_NCCL, the system), then in the folders of Python
 * packages: those of python3, or of LOCH_PYTHON. Without a GPU or a library the program says why and is skipped;
 * LOCH_REQUIRE_GPU=1 makes that a failure. */
#include "engine/cublas.h"
#include "engine/nccl.h"
#include "device/cuda/cuda.h"
#include "double.h"
#include "find_library.h"
#include "support/test.h"
#include <math.h>
#include <pthread.h>

static const char *device_name = "cuda:0";
static loch_device *device;

#define FIND(library, name, pointer)                                                                                   \
    do {                                                                                                               \
        void *found;                                                                                                   \
        CHECK_OK(loch_library_find(LOCH_LIBRARY_##library, name, &found));                                             \
        memcpy(&(pointer), &found, sizeof found);                                                                      \
    } while (0)

/* --- cuBLAS --- */

enum { M = 67, N = 129, K = 45 }; /* odd, and none a multiple of a tile */

typedef int sgemm(void *handle, int transpose_a, int transpose_b, int m, int n, int k, const float *alpha,
                  const float *a, int a_step, const float *b, int b_step, const float *beta, float *c, int c_step);
typedef int get_stream(void *handle, void **stream);

static loch_tensor *tensor_of(loch_dtype dtype, size_t count, const void *data, loch_stream *stream)
{
    const loch_tensor_options options = {.size = sizeof options, .device = device, .stream = stream};
    loch_tensor *tensor;
    CHECK_OK(loch_tensor_create_from(dtype, LOCH_SHAPE((int64_t)count), data, &options, &tensor));
    return tensor;
}

static void *address_of(loch_tensor *tensor)
{
    void *address;
    CHECK_OK(loch_tensor_get_address(tensor, &address));
    return address;
}

/* One product on the handle's stream, against the same on the host; columns first, as cuBLAS has them. */
static void multiply(loch_cublas *cublas, loch_stream *stream, uint64_t seed)
{
    static float a[M * K], b[K * N], c[M * N], back[M * N];
    test_random random = {seed};
    for (size_t i = 0; i < M * K; i++)
        a[i] = (float)test_random_below(&random, 2001) / 1000.0f - 1.0f;
    for (size_t i = 0; i < K * N; i++)
        b[i] = (float)test_random_below(&random, 2001) / 1000.0f - 1.0f;
    for (size_t i = 0; i < M * N; i++)
        c[i] = 100.0f; /* must not shine through */

    loch_tensor *ta = tensor_of(LOCH_F32, M * K, a, stream), *tb = tensor_of(LOCH_F32, K * N, b, stream);
    loch_tensor *tc = tensor_of(LOCH_F32, M * N, c, stream);
    CHECK_OK(loch_stream_sync(stream)); /* the copies are before the work, whatever stream the handle has */
    sgemm *product;
    FIND(CUBLAS, "cublasSgemm_v2", product);
    void *handle;
    CHECK_OK(loch_cublas_get_native(cublas, &handle));
    const float one = 1.0f, zero = 0.0f;
    assert_int_equal(
        product(handle, 0, 0, M, N, K, &one, address_of(ta), M, address_of(tb), K, &zero, address_of(tc), M), 0);
    CHECK_OK(loch_stream_sync(stream));
    CHECK_OK(loch_copy(back, address_of(tc), sizeof back));
    for (int j = 0; j < N; j++)
        for (int i = 0; i < M; i++) {
            double sum = 0;
            for (int k = 0; k < K; k++)
                sum += (double)a[i + k * M] * b[k + j * K];
            if (!(fabs(back[i + j * M] - sum) <= 1e-4))
                fail_msg("element (%d, %d) is %g, not %g", i, j, (double)back[i + j * M], sum);
        }
    loch_tensor_release(ta);
    loch_tensor_release(tb);
    loch_tensor_release(tc);
}

static void expect_stream(loch_cublas *cublas, loch_stream *stream)
{
    get_stream *ask;
    FIND(CUBLAS, "cublasGetStream_v2", ask);
    void *handle, *native = TEST_UNTOUCHED;
    CHECK_OK(loch_cublas_get_native(cublas, &handle));
    assert_int_equal(ask(handle, &native), 0);
    assert_ptr_equal(native, loch_stream_get_native(stream));
}

static void cublas_computes_on_the_stream(void **state)
{
    (void)state;
    loch_stream *first, *second;
    loch_cublas *cublas;
    CHECK_OK(loch_stream_create(device, NULL, &first));
    CHECK_OK(loch_stream_create(device, NULL, &second));
    CHECK_OK(loch_cublas_create(device, first, &cublas));
    expect_stream(cublas, first);
    multiply(cublas, first, 1);
    CHECK_OK(lochi_cublas_set_stream(cublas, second));
    expect_stream(cublas, second);
    multiply(cublas, second, 2);
    CHECK_OK(lochi_cublas_set_stream(cublas, NULL));
    expect_stream(cublas, NULL);
    multiply(cublas, loch_stream_get_default(device), 3);

    loch_device *cpu;
    CHECK_OK(loch_device_open("cpu", &cpu));
    CHECK_FAILS(lochi_cublas_set_stream(cublas, loch_stream_get_default(cpu)), INVALID);
    expect_stream(cublas, NULL);
    loch_device_release(cpu);
    void *address = TEST_UNTOUCHED;
    CHECK_FAILS(loch_library_find(LOCH_LIBRARY_CUBLAS, "cublasLookAndSee", &address), NOT_FOUND);
    assert_null(address);
    loch_cublas_destroy(cublas);
    loch_stream_close(first);
    loch_stream_close(second);
}

static void *current_context(void)
{
    cu_context *context = TEST_UNTOUCHED;
    assert_int_equal(lochi_cuda.cuCtxGetCurrent(&context), 0);
    return context;
}

/* A thread that never had a context: making and ending a handle leave it without, asking for the handle gives it
 * one. */
static void *in_thread(void *user)
{
    loch_cublas *cublas;
    void *handle;
    assert_null(current_context());
    CHECK_OK(loch_cublas_create(device, NULL, &cublas));
    assert_null(current_context());
    CHECK_OK(loch_cublas_get_native(cublas, &handle));
    assert_ptr_equal(current_context(), lochi_cuda_of(device)->context);
    multiply(cublas, loch_stream_get_default(device), 4);
    loch_cublas_destroy(cublas);
    assert_ptr_equal(current_context(), lochi_cuda_of(device)->context);
    return user;
}

static void cublas_works_in_a_thread_without_a_context(void **state)
{
    (void)state;
    pthread_t thread;
    void *result = NULL;
    int mark;
    assert_int_equal(pthread_create(&thread, NULL, in_thread, &mark), 0);
    assert_int_equal(pthread_join(thread, &result), 0);
    assert_ptr_equal(result, &mark);
}

/* --- NCCL --- */

enum { COUNT = 1003, NCCL_INT32 = 2, NCCL_FLOAT32 = 7, NCCL_SUM = 0 };

typedef int all_reduce(const void *from, void *to, size_t count, int type, int operation, void *communicator,
                       void *stream);

/* The sum over one rank is what it gave. */
static void reduce(loch_nccl *nccl, loch_stream *stream, loch_dtype dtype, int type)
{
    uint32_t words[COUNT], back[COUNT];
    test_random random = {(uint64_t)type};
    for (size_t i = 0; i < COUNT; i++) {
        const float number = (float)test_random_below(&random, 100000) / 7.0f - 5000.0f;
        const int32_t whole = (int32_t)test_random_below(&random, 100000) - 50000;
        memcpy(&words[i], dtype == LOCH_F32 ? (const void *)&number : (const void *)&whole, sizeof words[i]);
    }
    memset(back, 0, sizeof back);
    loch_tensor *from = tensor_of(dtype, COUNT, words, stream), *to = tensor_of(dtype, COUNT, back, stream);
    all_reduce *call;
    FIND(NCCL, "ncclAllReduce", call);
    void *communicator;
    CHECK_OK(loch_nccl_get_native(nccl, 0, &communicator));
    assert_ptr_equal(current_context(), lochi_cuda_of(device)->context);
    assert_int_equal(
        call(address_of(from), address_of(to), COUNT, type, NCCL_SUM, communicator, loch_stream_get_native(stream)), 0);
    CHECK_OK(loch_stream_sync(stream));
    CHECK_OK(loch_copy(back, address_of(to), sizeof back));
    assert_memory_equal(back, words, sizeof back);
    loch_tensor_release(from);
    loch_tensor_release(to);
}

static void nccl_refuses_a_gpu_twice_and_sums_over_one(void **state)
{
    (void)state;
    loch_nccl *nccl = TEST_UNTOUCHED;
    loch_device *const twice[] = {device, device};
    CHECK_FAILS(lochi_nccl_create(twice, 2, &nccl), UNSUPPORTED);
    assert_null(nccl);
    loch_stream *stream;
    CHECK_OK(loch_stream_create(device, NULL, &stream));
    for (int round = 0; round < 2; round++) {
        CHECK_OK(lochi_nccl_create(&device, 1, &nccl));
        void *communicator = TEST_UNTOUCHED;
        CHECK_FAILS(loch_nccl_get_native(nccl, 1, &communicator), NOT_FOUND);
        assert_null(communicator);
        reduce(nccl, stream, LOCH_F32, NCCL_FLOAT32);
        reduce(nccl, stream, LOCH_I32, NCCL_INT32);
        lochi_nccl_destroy(nccl);
    }
    loch_stream_close(stream);
}

int main(int count, char **arguments)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(cublas_computes_on_the_stream),
                                       cmocka_unit_test(cublas_works_in_a_thread_without_a_context),
                                       cmocka_unit_test(nccl_refuses_a_gpu_twice_and_sums_over_one)};
    if (count > 1) device_name = arguments[1];
    loch_host_usage before = {.size = sizeof before}, after = {.size = sizeof after};
    CHECK_OK(loch_host_get_usage(&before));
    if (loch_device_open(device_name, &device) != LOCH_OK) return test_skip_gpu();
    int failures;
    if (is_test_double(device, "cuBLAS and NCCL need a GPU"))
        failures = TEST_SKIPPED;
    else if (find_library(LOCH_LIBRARY_CUBLAS, "cublas") && find_library(LOCH_LIBRARY_NCCL, "nccl"))
        failures = cmocka_run_group_tests(tests, NULL, NULL);
    else
        failures = test_skip_gpu();
    size_t leaks; /* the default allocator goes, too */
    if (loch_registry_clear(NULL, NULL, &leaks) != LOCH_OK || leaks) return 1;
    loch_device_release(device);
    CHECK_OK(loch_host_get_usage(&after));
    if (failures || after.blocks == before.blocks) return failures;
    fprintf(stderr, "%zu pieces of bookkeeping are left of %zu\n", after.blocks, before.blocks);
    return 1;
}

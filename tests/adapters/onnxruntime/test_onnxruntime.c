/* SPDX-License-Identifier: MIT */
/* The adapter under a real ONNX Runtime, whose library is loaded by its path. Results are compared bit for bit with
 * those of sessions that have ONNX Runtime's own arena.
 *
 * LOCH_TEST_LIBRARY is ONNX Runtime's library, LOCH_TEST_ADAPTER the adapter's, LOCH_TEST_MODELS the folder of the
 * models. */
#include "support/test.h"
#include "abi.h"
#include "loch_onnxruntime.h"

#include <dlfcn.h>
#include <onnxruntime_c_api.h>

/* --- the adapter's declarations against the real header --- */

#define SAME_SLOT(index, name, ort_name, result, parameters)                                                           \
    _Static_assert(offsetof(OrtApi, ort_name) == (index) * sizeof(void *), #ort_name);
LOCHI_ORT_FUNCTIONS(SAME_SLOT)
#define SAME_MEMBER(name, ort_name)                                                                                    \
    _Static_assert(offsetof(OrtAllocator, ort_name) == offsetof(lochi_ort_allocator, name), #ort_name)
SAME_MEMBER(version, version);
SAME_MEMBER(alloc, Alloc);
SAME_MEMBER(free, Free);
SAME_MEMBER(info, Info);
SAME_MEMBER(reserve, Reserve);
_Static_assert(offsetof(OrtApiBase, GetApi) == offsetof(lochi_ort_base, get_api), "GetApi");
_Static_assert(offsetof(OrtApiBase, GetVersionString) == offsetof(lochi_ort_base, get_version), "GetVersionString");
_Static_assert(ORT_FAIL == LOCHI_ORT_FAIL && ORT_LOGGING_LEVEL_WARNING == LOCHI_ORT_WARNING, "codes");
_Static_assert(OrtDeviceAllocator == LOCHI_ORT_DEVICE_ALLOCATOR && OrtMemTypeDefault == LOCHI_ORT_MEMORY_TYPE, "kinds");
#if ORT_API_VERSION >= 23
LOCHI_ORT_STATS_FUNCTIONS(SAME_SLOT)
SAME_MEMBER(get_stats, GetStats);
SAME_MEMBER(alloc_on_stream, AllocOnStream);
#endif

/* --- ONNX Runtime --- */

/* An older interface than the library's serves; the test needs no newer one. Set it by hand to try an old library. */
#ifndef API_VERSION
#if ORT_API_VERSION < 23
#define API_VERSION ORT_API_VERSION
#else
#define API_VERSION 23
#endif
#endif

static const OrtApiBase *base;
static const OrtApi *api;

static int load(void **state)
{
    (void)state;
    void *library = dlopen(getenv("LOCH_TEST_LIBRARY"), RTLD_NOW | RTLD_LOCAL);
    if (!library) fail_msg("%s", dlerror());
    const OrtApiBase *(*get_base)(void);
    void *address = dlsym(library, "OrtGetApiBase");
    memcpy(&get_base, &address, sizeof get_base);
    base = get_base();
    api = base->GetApi(API_VERSION);
    assert_non_null(api);
    return 0;
}

static void check(OrtStatus *status)
{
    if (status) fail_msg("%s", api->GetErrorMessage(status));
}

/* Checks that a call of ONNX Runtime failed with a text in its message. */
static void check_fails(OrtStatus *status, const char *text)
{
    assert_non_null(status);
    if (!strstr(api->GetErrorMessage(status), text)) fail_msg("%s", api->GetErrorMessage(status));
    api->ReleaseStatus(status);
}

static OrtEnv *create_env(void)
{
    OrtEnv *env;
    check(api->CreateEnv(ORT_LOGGING_LEVEL_FATAL, "test", &env));
    return env;
}

/* A pool of its own for a test, so that all its figures are the test's. */
static loch_allocator *create_pool(size_t limit_bytes)
{
    loch_device *device;
    loch_allocator *pool;
    const loch_pool_options options = {.size = sizeof options, .limit_bytes = limit_bytes};
    CHECK_OK(loch_device_open("cpu", &device));
    CHECK_OK(loch_pool_create(device, "sessions", &options, &pool));
    loch_device_release(device);
    return pool;
}

static loch_onnxruntime *create_runtime(OrtEnv *env, loch_allocator *pool)
{
    loch_onnxruntime *runtime;
    const loch_onnxruntime_options options = {.size = sizeof options, .pool = pool};
    CHECK_OK(loch_onnxruntime_create(base, env, &options, &runtime));
    return runtime;
}

typedef enum memory { OWN_ARENA, OF_ENVIRONMENT } memory;

/* Options with one thread: results do not depend on how work is divided. */
static OrtSessionOptions *create_options(memory memory)
{
    OrtSessionOptions *options;
    check(api->CreateSessionOptions(&options));
    check(api->SetIntraOpNumThreads(options, 1));
    if (memory == OF_ENVIRONMENT) check(api->AddSessionConfigEntry(options, "session.use_env_allocators", "1"));
    return options;
}

static OrtStatus *try_session(OrtEnv *env, const char *model, OrtSessionOptions *options, OrtSession **out)
{
    char path[4096];
    snprintf(path, sizeof path, "%s/%s.onnx", getenv("LOCH_TEST_MODELS"), model);
    *out = NULL;
    OrtStatus *status = api->CreateSession(env, path, options, out);
    api->ReleaseSessionOptions(options);
    return status;
}

static OrtSession *create_session(OrtEnv *env, const char *model, memory memory)
{
    OrtSession *session;
    check(try_session(env, model, create_options(memory), &session));
    return session;
}

static OrtSession *create_named(OrtEnv *env, loch_onnxruntime *runtime, const char *name, const char *model)
{
    CHECK_OK(loch_onnxruntime_begin_session(runtime, name, NULL));
    OrtSession *session = create_session(env, model, OF_ENVIRONMENT);
    CHECK_OK(loch_onnxruntime_end_session(runtime));
    return session;
}

/* Shapes of inputs: [batch, length, 64] of mlp, [batch, 3, height, width] of conv. */
typedef struct input {
    int64_t shape[4];
    size_t dimensions;
    float *values;
    size_t count;
} input;

static input create_input(size_t dimensions, const int64_t *shape, uint64_t seed)
{
    input x = {.dimensions = dimensions, .count = 1};
    test_random random = {seed};
    for (size_t i = 0; i < dimensions; i++)
        x.count *= (size_t)(x.shape[i] = shape[i]);
    x.values = malloc(x.count * sizeof *x.values);
    for (size_t i = 0; x.values && i < x.count; i++)
        x.values[i] = (float)test_random_below(&random, 2001) / 1000 - 1;
    return x;
}

static input create_mlp_input(int64_t batch, int64_t length)
{
    return create_input(3, (const int64_t[]){batch, length, 64}, (uint64_t)(batch * 1000 + length));
}

static OrtStatus *try_run(OrtSession *session, const input *x, OrtValue **out)
{
    const char *input_name = "x", *output_name = "y";
    OrtMemoryInfo *info;
    OrtValue *value = NULL;
    *out = NULL;
    OrtStatus *status = api->CreateCpuMemoryInfo(OrtDeviceAllocator, OrtMemTypeDefault, &info);
    if (status) return status;
    status = api->CreateTensorWithDataAsOrtValue(info, x->values, x->count * sizeof *x->values, x->shape, x->dimensions,
                                                 ONNX_TENSOR_ELEMENT_DATA_TYPE_FLOAT, &value);
    api->ReleaseMemoryInfo(info);
    if (!status)
        status = api->Run(session, NULL, &input_name, (const OrtValue *const *)&value, 1, &output_name, 1, out);
    if (value) api->ReleaseValue(value);
    return status;
}

static size_t count_values(OrtValue *value)
{
    OrtTensorTypeAndShapeInfo *shape;
    size_t count;
    check(api->GetTensorTypeAndShape(value, &shape));
    check(api->GetTensorShapeElementCount(shape, &count));
    api->ReleaseTensorTypeAndShapeInfo(shape);
    return count;
}

static const float *get_values(OrtValue *value)
{
    void *values;
    check(api->GetTensorMutableData(value, &values));
    return values;
}

/* Runs two sessions and checks that their results are equal, bit for bit. */
static void check_equal(OrtSession *session, OrtSession *own, const input *x)
{
    OrtValue *a, *b;
    check(try_run(session, x, &a));
    check(try_run(own, x, &b));
    const size_t count = count_values(a);
    assert_int_equal(count, count_values(b));
    assert_memory_equal(get_values(a), get_values(b), count * sizeof(float));
    assert_int_equal((uintptr_t)get_values(a) % 64, 0);
    api->ReleaseValue(a);
    api->ReleaseValue(b);
}

static loch_stats read_stats(loch_onnxruntime *runtime, const char *name)
{
    loch_stats stats = {.size = sizeof stats};
    CHECK_OK(loch_onnxruntime_get_stats(runtime, name, &stats));
    return stats;
}

static uint64_t count_blocks(loch_allocator *pool)
{
    loch_stats stats = {.size = sizeof stats};
    CHECK_OK(loch_allocator_get_stats(pool, &stats));
    return stats.blocks;
}

/* Ends everything in order, and checks that all memory came back. */
static void end(OrtEnv *env, loch_onnxruntime *runtime, loch_allocator *pool)
{
    assert_int_equal(count_blocks(pool), 0);
    CHECK_OK(loch_onnxruntime_destroy(runtime));
    api->ReleaseEnv(env);
    loch_pool_info info = {.size = sizeof info};
    CHECK_OK(loch_allocator_trim(pool, 0, NULL));
    CHECK_OK(loch_pool_get_info(pool, &info));
    assert_int_equal(info.reserved_bytes, 0);
    loch_allocator_release(pool);
}

/* --- tests --- */

static void sessions_share_a_pool_and_results_are_equal(void **state)
{
    (void)state;
    OrtEnv *env = create_env();
    loch_allocator *pool = create_pool(0);
    loch_onnxruntime *runtime = create_runtime(env, pool);
    assert_ptr_equal(loch_onnxruntime_get_pool(runtime), pool);
    assert_ptr_equal(loch_onnxruntime_get(env), runtime);
    OrtSession *mlp = create_named(env, runtime, "mlp", "mlp"), *conv = create_named(env, runtime, "conv", "conv");
    OrtSession *own_mlp = create_session(env, "mlp", OWN_ARENA), *own_conv = create_session(env, "conv", OWN_ARENA);
    const uint64_t blocks = count_blocks(pool);
    for (int64_t i = 0; i < 24; i++) {
        input x = create_mlp_input(1 + i % 5, 3 + 17 * (i % 11));
        check_equal(mlp, own_mlp, &x);
        free(x.values);
        x = create_input(4, (const int64_t[]){1 + i % 3, 3, 8 + i % 7, 30 - i}, (uint64_t)i);
        check_equal(conv, own_conv, &x);
        free(x.values);
    }
    assert_int_equal(count_blocks(pool), blocks); /* runs give back what they take */
    api->ReleaseSession(mlp);
    api->ReleaseSession(conv);
    api->ReleaseSession(own_mlp);
    api->ReleaseSession(own_conv);
    end(env, runtime, pool);
    assert_null(loch_onnxruntime_get(NULL));
}

static void figures_are_kept_by_session(void **state)
{
    (void)state;
    OrtEnv *env = create_env();
    loch_allocator *pool = create_pool(0);
    loch_onnxruntime *runtime = create_runtime(env, pool);
    OrtSession *first = create_named(env, runtime, "first", "mlp"),
               *second = create_named(env, runtime, "second", "mlp");
    const loch_stats loaded = read_stats(runtime, "first");
    assert_true(loaded.requested_bytes >= 6 * 64 * 64 * sizeof(float)); /* the weights */
    assert_int_equal(loaded.requested_bytes, read_stats(runtime, "second").requested_bytes);
    const uint64_t allocs = read_stats(runtime, "second").allocs;
    input x = create_mlp_input(2, 50);
    OrtValue *y;
    check(try_run(first, &x, &y));
    assert_true(read_stats(runtime, "first").requested_bytes >= loaded.requested_bytes + x.count * sizeof(float));
    assert_true(read_stats(runtime, "first").allocs > loaded.allocs);
    assert_int_equal(read_stats(runtime, "second").allocs, allocs); /* the other one did nothing */
    assert_int_equal(read_stats(runtime, "onnxruntime").allocs, 0);
    api->ReleaseValue(y);
    assert_int_equal(read_stats(runtime, "first").requested_bytes, loaded.requested_bytes);

    /* A session without a name, and one more under a name. */
    OrtSession *nameless = create_session(env, "mlp", OF_ENVIRONMENT);
    assert_int_equal(read_stats(runtime, "onnxruntime").requested_bytes, loaded.requested_bytes);
    OrtSession *again = create_named(env, runtime, "first", "mlp");
    assert_int_equal(read_stats(runtime, "first").requested_bytes, 2 * loaded.requested_bytes);

    char text[16384];
    size_t length;
    CHECK_OK(loch_onnxruntime_print(runtime, LOCH_FORMAT_JSON, text, sizeof text, &length));
    assert_int_equal(length, strlen(text));
    assert_non_null(strstr(text, "\"second\": {\"run\": {"));
    CHECK_OK(loch_onnxruntime_print(runtime, LOCH_FORMAT_TEXT, text, sizeof text, &length));
    assert_non_null(strstr(text, "session \"second\", weights\n"));
    memset(text, 'x', sizeof text);
    size_t whole = length;
    CHECK_OK(loch_onnxruntime_print(runtime, LOCH_FORMAT_TEXT, text, 40, &length)); /* counted beyond what fits */
    assert_int_equal(length, whole);
    assert_int_equal(strlen(text), 39);
    assert_int_equal(text[40], 'x');
    CHECK_OK(loch_onnxruntime_print(runtime, LOCH_FORMAT_JSON, NULL, 0, &length));
    assert_true(length > 0);

    api->ReleaseSession(second);
    assert_int_equal(read_stats(runtime, "second").blocks, 0);
    assert_int_equal(read_stats(runtime, "first").requested_bytes, 2 * loaded.requested_bytes);
    api->ReleaseSession(nameless);
    api->ReleaseSession(again);
    api->ReleaseSession(first);
    free(x.values);
    end(env, runtime, pool);
}

static void onnx_runtime_reads_the_figures(void **state)
{
    (void)state;
#if API_VERSION >= 23
    OrtEnv *env = create_env();
    loch_allocator *pool = create_pool(0);
    loch_onnxruntime *runtime = create_runtime(env, pool);
    OrtSession *session = create_named(env, runtime, "read", "mlp");
    input x = create_mlp_input(3, 10);
    OrtValue *y;
    check(try_run(session, &x, &y));
    OrtMemoryInfo *info;
    OrtAllocator *allocator;
    OrtKeyValuePairs *pairs;
    check(api->CreateCpuMemoryInfo(OrtDeviceAllocator, OrtMemTypeDefault, &info));
    check(api->CreateAllocator(session, info, &allocator));
    check(api->AllocatorGetStats(allocator, &pairs));
    char expected[32];
    const loch_stats stats = read_stats(runtime, "read");
    snprintf(expected, sizeof expected, "%llu", (unsigned long long)stats.requested_bytes);
    assert_string_equal(api->GetKeyValue(pairs, "InUse"), expected);
    snprintf(expected, sizeof expected, "%llu", (unsigned long long)stats.allocs);
    assert_string_equal(api->GetKeyValue(pairs, "NumAllocs"), expected);
    assert_string_equal(api->GetKeyValue(pairs, "Limit"), "-1");
    assert_true(atoll(api->GetKeyValue(pairs, "NumReserves")) > 0); /* weights have a tag of their own */
    api->ReleaseKeyValuePairs(pairs);
    void *small[8]; /* kernels rely on the alignment of small blocks too */
    for (int i = 0; i < 8; i++) {
        check(api->AllocatorAlloc(allocator, 100, &small[i]));
        assert_int_equal((uintptr_t)small[i] % 64, 0);
    }
    for (int i = 0; i < 8; i++)
        check(api->AllocatorFree(allocator, small[i]));
    api->ReleaseAllocator(allocator);
    api->ReleaseMemoryInfo(info);
    api->ReleaseValue(y);
    api->ReleaseSession(session);
    free(x.values);
    end(env, runtime, pool);
#else
    skip();
#endif
}

static void values_outlive_their_session(void **state)
{
    (void)state;
    OrtEnv *env = create_env();
    loch_allocator *pool = create_pool(0);
    loch_onnxruntime *runtime = create_runtime(env, pool);
    OrtSession *session = create_named(env, runtime, "gone", "mlp"), *own = create_session(env, "mlp", OWN_ARENA);
    input x = create_mlp_input(2, 33);
    OrtValue *y, *expected;
    check(try_run(session, &x, &y));
    check(try_run(own, &x, &expected));
    api->ReleaseSession(session);
    CHECK_FAILS(loch_onnxruntime_destroy(runtime), BUSY);
    assert_non_null(strstr(loch_error_get()->sentence, "still have 1 blocks"));
    assert_memory_equal(get_values(y), get_values(expected), count_values(y) * sizeof(float));
    api->ReleaseValue(y);
    api->ReleaseValue(expected);
    api->ReleaseSession(own);
    free(x.values);
    end(env, runtime, pool);
}

static void a_limit_of_a_session_is_an_error_of_its_run(void **state)
{
    (void)state;
    OrtEnv *env = create_env();
    loch_allocator *pool = create_pool(0);
    loch_onnxruntime *runtime = create_runtime(env, pool);
    loch_onnxruntime_session_options options = {.size = sizeof options, .limit_bytes = TEST_MIB};
    CHECK_OK(loch_onnxruntime_begin_session(runtime, "small", &options));
    OrtSession *session = create_session(env, "mlp", OF_ENVIRONMENT);
    CHECK_OK(loch_onnxruntime_end_session(runtime));
    OrtSession *other = create_named(env, runtime, "free", "mlp"), *own = create_session(env, "mlp", OWN_ARENA);
    input large = create_mlp_input(8, 1000), small = create_mlp_input(1, 20);
    OrtValue *y;
    check_fails(try_run(session, &large, &y), "Loch has no memory for session 'small': ");
    check_fails(try_run(session, &large, &y), "can never fit: the limit of allocator");
    assert_int_equal(read_stats(runtime, "small").limit_bytes, TEST_MIB);
    assert_true(read_stats(runtime, "small").failures >= 2);
    check_equal(session, own, &small); /* it goes on */
    check_equal(other, own, &large);   /* and the others have no limit */

    /* A name keeps or changes its limit; it does not get one later. */
    options.limit_bytes = 64 * TEST_MIB;
    CHECK_OK(loch_onnxruntime_begin_session(runtime, "small", &options));
    CHECK_OK(loch_onnxruntime_end_session(runtime));
    check_equal(session, own, &large);
    CHECK_FAILS(loch_onnxruntime_begin_session(runtime, "free", &options), EXISTS);
    free(large.values);
    free(small.values);
    api->ReleaseSession(session);
    api->ReleaseSession(other);
    api->ReleaseSession(own);
    end(env, runtime, pool);
}

static void the_limit_of_the_pool_is_an_error_of_creation_and_run(void **state)
{
    (void)state;
    OrtEnv *env = create_env();
    loch_allocator *pool = create_pool(4 * TEST_MIB);
    loch_onnxruntime *runtime = create_runtime(env, pool);
    OrtSession *session = create_named(env, runtime, "mlp", "mlp"), *own = create_session(env, "mlp", OWN_ARENA);
    input large = create_mlp_input(8, 4000), small = create_mlp_input(2, 20);
    OrtValue *y;
    check_fails(try_run(session, &large, &y), "can never fit: the limit of pool");
    check_equal(session, own, &small);

    void *rest[4];
    size_t taken = 0;
    while (taken < 4 && loch_alloc(pool, TEST_MIB, &rest[taken]) == LOCH_OK)
        taken++;
    OrtSession *late = NULL;
    char message[] = "Loch has no memory for session 'late'";
    uint64_t sessions = 0;
    OrtStatus *failure = NULL;
    OrtSession *many[200];
    while (sessions < 200 && !failure) { /* sessions until the pool is full */
        CHECK_OK(loch_onnxruntime_begin_session(runtime, "late", NULL));
        failure = try_session(env, "mlp", create_options(OF_ENVIRONMENT), &late);
        CHECK_OK(loch_onnxruntime_end_session(runtime));
        if (!failure) many[sessions++] = late;
    }
    check_fails(failure, message);
    while (sessions)
        api->ReleaseSession(many[--sessions]);
    assert_int_equal(read_stats(runtime, "late").blocks, 0); /* the half-built one too */
    while (taken)
        CHECK_OK(loch_free(pool, rest[--taken]));
    check_equal(session, own, &small);
    free(large.values);
    free(small.values);
    api->ReleaseSession(session);
    api->ReleaseSession(own);
    end(env, runtime, pool);
}

/* --- threads --- */

#define THREADS 4
#define ROUNDS 25

typedef struct worker {
    OrtEnv *env;
    loch_onnxruntime *runtime;
    OrtSession *shared; /* run by all threads at a time */
    const input *inputs;
    OrtValue *const *expected;
    int number;
    const char *failure;
} worker;

static const char *run_and_compare(OrtSession *session, const input *x, OrtValue *expected)
{
    OrtValue *y;
    void *a, *b;
    if (try_run(session, x, &y) || api->GetTensorMutableData(y, &a) || api->GetTensorMutableData(expected, &b))
        return "a run failed";
    const int differs = memcmp(a, b, x->count * sizeof(float));
    api->ReleaseValue(y);
    return differs ? "results differ" : NULL;
}

static void *work(void *argument)
{
    worker *w = argument;
    OrtSession *session = NULL;
    char name[32];
    snprintf(name, sizeof name, "thread %d", w->number);
    for (int i = 0; i < ROUNDS && !w->failure; i++) {
        if (i % 5 == 0) { /* sessions come and go while others run */
            if (session) api->ReleaseSession(session);
            if (loch_onnxruntime_begin_session(w->runtime, name, NULL) != LOCH_OK ||
                try_session(w->env, "mlp", create_options(OF_ENVIRONMENT), &session) ||
                loch_onnxruntime_end_session(w->runtime) != LOCH_OK) {
                w->failure = "no session";
                return NULL;
            }
        }
        const int which = (i + w->number) % THREADS;
        w->failure = run_and_compare(session, &w->inputs[which], w->expected[which]);
        if (!w->failure) w->failure = run_and_compare(w->shared, &w->inputs[which], w->expected[which]);
    }
    api->ReleaseSession(session);
    return NULL;
}

static void threads_create_and_run_sessions(void **state)
{
    (void)state;
    OrtEnv *env = create_env();
    loch_allocator *pool = create_pool(0);
    loch_onnxruntime *runtime = create_runtime(env, pool);
    OrtSession *shared = create_named(env, runtime, "shared", "mlp"), *own = create_session(env, "mlp", OWN_ARENA);
    input inputs[THREADS];
    OrtValue *expected[THREADS];
    worker workers[THREADS];
    for (int i = 0; i < THREADS; i++) {
        inputs[i] = create_mlp_input(1 + i, 10 + 40 * i);
        check(try_run(own, &inputs[i], &expected[i]));
    }
    for (int i = 0; i < THREADS; i++)
        workers[i] = (worker){env, runtime, shared, inputs, expected, i, NULL};
    test_threads_run(work, workers, sizeof *workers, THREADS);
    for (int i = 0; i < THREADS; i++) {
        char name[32];
        snprintf(name, sizeof name, "thread %d", i);
        if (workers[i].failure) fail_msg("thread %d: %s", i, workers[i].failure);
        const loch_stats stats = read_stats(runtime, name);
        assert_true(stats.allocs >= ROUNDS); /* each has a result at least */
        assert_int_equal(stats.allocs, stats.frees);
    }
    for (int i = 0; i < THREADS; i++) {
        api->ReleaseValue(expected[i]);
        free(inputs[i].values);
    }
    api->ReleaseSession(shared);
    api->ReleaseSession(own);
    end(env, runtime, pool);
}

/* --- as a library of custom operators --- */

static OrtStatus *try_custom_ops(OrtEnv *env, const char *name, const char *limit, OrtSession **out)
{
    OrtSessionOptions *options = create_options(OWN_ARENA); /* the library itself asks for the environment's */
    if (name) check(api->AddSessionConfigEntry(options, "loch.session", name));
    if (limit) check(api->AddSessionConfigEntry(options, "loch.limit_bytes", limit));
    OrtStatus *status = api->RegisterCustomOpsLibrary_V2(options, getenv("LOCH_TEST_ADAPTER"));
    if (!status) return try_session(env, "mlp", options, out);
    api->ReleaseSessionOptions(options);
    return status;
}

static void a_program_without_calls_loads_the_library(void **state)
{
    (void)state;
    OrtEnv *env = create_env();
    OrtSession *first, *second, *nameless, *own = create_session(env, "mlp", OWN_ARENA), *none;
    check(try_custom_ops(env, "first", NULL, &first));
    check(try_custom_ops(env, "second", "1048576", &second));
    check(try_custom_ops(env, NULL, NULL, &nameless));
    loch_onnxruntime *runtime = loch_onnxruntime_get(NULL);
    assert_non_null(runtime);
    assert_string_equal(loch_allocator_get_name(loch_onnxruntime_get_pool(runtime)), "cpu default");
    input small = create_mlp_input(2, 20), large = create_mlp_input(8, 1000);
    OrtValue *y;
    check_equal(first, own, &large);
    check_equal(second, own, &small);
    check_equal(nameless, own, &small);
    check_fails(try_run(second, &large, &y), "can never fit: the limit of allocator");
    assert_true(read_stats(runtime, "first").peak_requested_bytes > large.count * sizeof(float));
    assert_true(read_stats(runtime, "onnxruntime").blocks > 0);
    check_fails(try_custom_ops(env, "third", "much", &none), "loch.limit_bytes is a number of bytes, not \"much\"");
    check_fails(try_custom_ops(env, "a\"b", NULL, &none), "no quotation mark");
    check_fails(try_custom_ops(env, "0123456789012345678901234567890123456789012345678901234567890123", NULL, &none),
                "1 to 55 characters");

    CHECK_FAILS(loch_onnxruntime_destroy(runtime), BUSY);
    api->ReleaseSession(first);
    api->ReleaseSession(second);
    api->ReleaseSession(nameless);
    api->ReleaseSession(own);
    assert_int_equal(read_stats(runtime, "first").blocks, 0);
    CHECK_OK(loch_onnxruntime_destroy(runtime)); /* and with it its reference on the environment */
    api->ReleaseEnv(env);
    free(small.values);
    free(large.values);
}

/* --- arguments --- */

static void *begin_elsewhere(void *argument)
{
    loch_onnxruntime **runtime = argument;
    if (loch_onnxruntime_begin_session(*runtime, "elsewhere", NULL) != LOCH_OK ||
        loch_onnxruntime_end_session(*runtime) != LOCH_OK)
        *runtime = NULL;
    return NULL;
}

static void wrong_arguments_are_refused(void **state)
{
    (void)state;
    OrtEnv *env = create_env();
    loch_allocator *pool = create_pool(0);
    loch_onnxruntime *runtime = TEST_UNTOUCHED;
    loch_stats stats = {.size = sizeof stats};
    CHECK_FAILS(loch_onnxruntime_create(NULL, env, NULL, &runtime), INVALID);
    assert_null(runtime);
    CHECK_FAILS(loch_onnxruntime_create(base, NULL, NULL, &runtime), INVALID);
    CHECK_FAILS(loch_onnxruntime_create(base, env, NULL, NULL), INVALID);
    CHECK_FAILS(loch_onnxruntime_create(base, env, &(loch_onnxruntime_options){0}, &runtime), INVALID);

    loch_device *device;
    loch_allocator *foreign;
    CHECK_OK(loch_device_open("sim:64MiB", &device));
    CHECK_OK(loch_pool_create(device, "foreign", NULL, &foreign));
    loch_onnxruntime_options options = {.size = sizeof options, .pool = foreign};
    CHECK_FAILS(loch_onnxruntime_create(base, env, &options, &runtime), INVALID);
    loch_allocator_release(foreign);
    loch_device_release(device);

    runtime = create_runtime(env, pool);
    loch_onnxruntime *second = TEST_UNTOUCHED;
    CHECK_FAILS(loch_onnxruntime_create(base, env, NULL, &second), EXISTS);
    assert_null(second);
    CHECK_FAILS(loch_onnxruntime_begin_session(NULL, "name", NULL), INVALID);
    CHECK_FAILS(loch_onnxruntime_begin_session(runtime, NULL, NULL), INVALID);
    CHECK_FAILS(loch_onnxruntime_begin_session(runtime, "", NULL), INVALID);
    CHECK_FAILS(loch_onnxruntime_begin_session(runtime, "a\nb", NULL), INVALID);
    CHECK_FAILS(loch_onnxruntime_begin_session(runtime, "name", &(loch_onnxruntime_session_options){0}), INVALID);
    CHECK_FAILS(loch_onnxruntime_end_session(runtime), INVALID);
    CHECK_FAILS(loch_onnxruntime_end_session(NULL), INVALID);
    CHECK_OK(loch_onnxruntime_begin_session(runtime, "name", NULL));
    CHECK_FAILS(loch_onnxruntime_begin_session(runtime, "name", NULL), BUSY);
    CHECK_FAILS(loch_onnxruntime_destroy(runtime), BUSY);
    CHECK_OK(loch_onnxruntime_end_session(runtime));
    loch_onnxruntime *shared = runtime;
    test_threads_run(begin_elsewhere, &shared, sizeof shared, 1);
    assert_non_null(shared);
    CHECK_FAILS(loch_onnxruntime_get_stats(runtime, "never", &stats), NOT_FOUND);
    CHECK_FAILS(loch_onnxruntime_get_stats(runtime, NULL, &stats), INVALID);
    CHECK_FAILS(loch_onnxruntime_get_stats(NULL, "name", &stats), INVALID);
    stats.size = 0;
    CHECK_FAILS(loch_onnxruntime_get_stats(runtime, "name", &stats), INVALID);
    CHECK_FAILS(loch_onnxruntime_print(NULL, LOCH_FORMAT_TEXT, NULL, 0, NULL), INVALID);
    CHECK_FAILS(loch_onnxruntime_print(runtime, LOCH_FORMAT_TEXT, NULL, 1, NULL), INVALID);
    assert_null(loch_onnxruntime_get_pool(NULL));
    CHECK_OK(loch_onnxruntime_destroy(NULL));
    end(env, runtime, pool);
}

/* A version that is too old, played by a table that names itself so. */
static const char *old_version(void)
{
    return "1.17.3";
}

static void an_old_version_is_refused(void **state)
{
    (void)state;
    OrtEnv *env = create_env();
    const OrtApiBase old = {base->GetApi, old_version};
    loch_onnxruntime *runtime = TEST_UNTOUCHED;
    CHECK_FAILS(loch_onnxruntime_create(&old, env, NULL, &runtime), UNSUPPORTED);
    assert_null(runtime);
    assert_non_null(strstr(loch_error_get()->sentence, "1.17.3"));
    api->ReleaseEnv(env);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(sessions_share_a_pool_and_results_are_equal),
        cmocka_unit_test(figures_are_kept_by_session),
        cmocka_unit_test(onnx_runtime_reads_the_figures),
        cmocka_unit_test(values_outlive_their_session),
        cmocka_unit_test(a_limit_of_a_session_is_an_error_of_its_run),
        cmocka_unit_test(the_limit_of_the_pool_is_an_error_of_creation_and_run),
        cmocka_unit_test(threads_create_and_run_sessions),
        cmocka_unit_test(a_program_without_calls_loads_the_library),
        cmocka_unit_test(wrong_arguments_are_refused),
        cmocka_unit_test(an_old_version_is_refused),
    };
    return cmocka_run_group_tests(tests, load, NULL);
}

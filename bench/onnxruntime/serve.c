/* SPDX-License-Identifier: MIT */
/* A small server on ONNX Runtime: four sessions (two of MiniLM, two of ResNet-50) answer requests of varied shapes.
 * Prints one line of JSON: seconds, memory, and a checksum of all results. bench/onnxruntime/run.py compiles it and
 * runs it.
 *
 *   serve LIBRARY MODELS own|shared|loch CLIENTS REQUESTS
 *
 * own: each session has an arena of its own, as ONNX Runtime does by default. shared: one arena of ONNX Runtime for
 * all, by CreateAndRegisterAllocator. loch: the adapter with a pool of its own. CLIENTS threads take requests from one
 * list; each session computes with one thread, so that results do not depend on the machine. */
#include <loch_onnxruntime.h>

#include <dlfcn.h>
#include <onnxruntime_c_api.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <time.h>

#define SESSIONS 4
#define CLIENTS_MAX 64

static const OrtApi *api;

static void die(const char *text)
{
    fprintf(stderr, "serve: %s\n", text);
    exit(1);
}

static void check(OrtStatus *status)
{
    if (status) die(api->GetErrorMessage(status));
}

static void check_loch(loch_status status)
{
    if (status != LOCH_OK) die(loch_error_get()->sentence);
}

/* --- requests --- */

typedef struct request {
    int session; /* 0 and 1 are MiniLM, 2 and 3 are ResNet-50 */
    int64_t batch, size;
    uint64_t checksum;
} request;

static request *requests;
static int request_count;
static atomic_int request_next;
static OrtSession *sessions[SESSIONS];
static OrtMemoryInfo *host;

static uint64_t next_random(uint64_t *state)
{
    uint64_t z = *state += 0x9e3779b97f4a7c15u;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
}

/* Texts: batches of 1 to 16, lengths of 8 to 256, short ones more often. Pictures: batches of 1 to 8, 160 to 320
 * pixels in steps of 32. */
static void make_requests(int count)
{
    uint64_t random = 7;
    request_count = count;
    requests = calloc((size_t)count, sizeof *requests);
    if (!requests) die("no memory");
    for (int i = 0; i < count; i++) {
        request *r = &requests[i];
        r->session = (int)(next_random(&random) % SESSIONS);
        if (r->session < 2) {
            r->batch = 1 << next_random(&random) % 5;
            const int64_t low = 8 << next_random(&random) % 5;
            r->size = low + (int64_t)(next_random(&random) % (uint64_t)low);
        } else {
            r->batch = 1 << next_random(&random) % 4;
            r->size = 160 + 32 * (int64_t)(next_random(&random) % 6);
        }
    }
}

static OrtValue *make_value(void *data, size_t bytes, const int64_t *shape, size_t dimensions,
                            ONNXTensorElementDataType type)
{
    OrtValue *value;
    check(api->CreateTensorWithDataAsOrtValue(host, data, bytes, shape, dimensions, type, &value));
    return value;
}

static uint64_t sum_bytes(OrtValue *value)
{
    OrtTensorTypeAndShapeInfo *shape;
    size_t count;
    void *data;
    uint64_t sum = 0xcbf29ce484222325u;
    check(api->GetTensorTypeAndShape(value, &shape));
    check(api->GetTensorShapeElementCount(shape, &count));
    api->ReleaseTensorTypeAndShapeInfo(shape);
    check(api->GetTensorMutableData(value, &data));
    for (size_t i = 0; i < count * sizeof(float); i++)
        sum = (sum ^ ((const unsigned char *)data)[i]) * 0x100000001b3u;
    return sum;
}

static void answer(request *r)
{
    const int is_text = r->session < 2;
    const char *text_names[] = {"ids", "mask"}, *picture_names[] = {"x"}, *output_name = "y";
    const int64_t text_shape[] = {r->batch, r->size}, picture_shape[] = {r->batch, 3, r->size, r->size};
    const size_t count = (size_t)(is_text ? r->batch * r->size : r->batch * 3 * r->size * r->size);
    uint64_t random = (uint64_t)(r->batch * 1000 + r->size);
    OrtValue *inputs[2] = {NULL, NULL}, *output = NULL;
    int64_t *ids = NULL, *mask = NULL;
    float *picture = NULL;
    if (is_text) {
        ids = malloc(count * sizeof *ids);
        mask = malloc(count * sizeof *mask);
        if (!ids || !mask) die("no memory");
        for (size_t i = 0; i < count; i++) {
            ids[i] = 1000 + (int64_t)(next_random(&random) % 20000);
            mask[i] = 1;
        }
        inputs[0] = make_value(ids, count * sizeof *ids, text_shape, 2, ONNX_TENSOR_ELEMENT_DATA_TYPE_INT64);
        inputs[1] = make_value(mask, count * sizeof *mask, text_shape, 2, ONNX_TENSOR_ELEMENT_DATA_TYPE_INT64);
    } else {
        picture = malloc(count * sizeof *picture);
        if (!picture) die("no memory");
        for (size_t i = 0; i < count; i++)
            picture[i] = (float)(next_random(&random) % 2001) / 1000 - 1;
        inputs[0] = make_value(picture, count * sizeof *picture, picture_shape, 4, ONNX_TENSOR_ELEMENT_DATA_TYPE_FLOAT);
    }
    check(api->Run(sessions[r->session], NULL, is_text ? text_names : picture_names, (const OrtValue *const *)inputs,
                   is_text ? 2 : 1, &output_name, 1, &output));
    r->checksum = sum_bytes(output);
    api->ReleaseValue(output);
    api->ReleaseValue(inputs[0]);
    if (inputs[1]) api->ReleaseValue(inputs[1]);
    free(ids);
    free(mask);
    free(picture);
}

static void *serve(void *unused)
{
    (void)unused;
    for (int i; (i = atomic_fetch_add(&request_next, 1)) < request_count;)
        answer(&requests[i]);
    return NULL;
}

/* --- figures --- */

/* One line of /proc/self/status in MiB. */
static double read_status(const char *name)
{
    char line[256];
    long kib = 0;
    FILE *file = fopen("/proc/self/status", "r");
    while (file && fgets(line, sizeof line, file))
        if (strncmp(line, name, strlen(name)) == 0) kib = strtol(line + strlen(name) + 1, NULL, 10);
    if (file) fclose(file);
    return (double)kib / 1024;
}

/* What an arena of ONNX Runtime holds from the system, what it reserved for weights included. It never gives back by
 * itself, so the last value is the most. */
static double read_arena(OrtSession *session)
{
    OrtAllocator *allocator;
    OrtKeyValuePairs *pairs;
    check(api->CreateAllocator(session, host, &allocator));
    check(api->AllocatorGetStats(allocator, &pairs));
    const char *total = api->GetKeyValue(pairs, "TotalAllocated");
    const double mib = total ? strtod(total, NULL) / (1 << 20) : 0;
    api->ReleaseKeyValuePairs(pairs);
    api->ReleaseAllocator(allocator);
    return mib;
}

static double seconds(clockid_t clock)
{
    struct timespec now;
    clock_gettime(clock, &now);
    return (double)now.tv_sec + (double)now.tv_nsec / 1e9;
}

/* --- sessions --- */

static void create_sessions(OrtEnv *env, const char *models, const char *way, loch_onnxruntime *runtime)
{
    for (int i = 0; i < SESSIONS; i++) {
        char path[4096], name[32];
        OrtSessionOptions *options;
        snprintf(path, sizeof path, "%s/%s.onnx", models, i < 2 ? "minilm" : "resnet50");
        snprintf(name, sizeof name, "%s %d", i < 2 ? "minilm" : "resnet50", i % 2);
        check(api->CreateSessionOptions(&options));
        check(api->SetIntraOpNumThreads(options, 1));
        if (strcmp(way, "own") != 0) check(api->AddSessionConfigEntry(options, "session.use_env_allocators", "1"));
        if (runtime) check_loch(loch_onnxruntime_begin_session(runtime, name, NULL));
        check(api->CreateSession(env, path, options, &sessions[i]));
        if (runtime) check_loch(loch_onnxruntime_end_session(runtime));
        api->ReleaseSessionOptions(options);
    }
}

static loch_onnxruntime *create_runtime(const OrtApiBase *base, OrtEnv *env, loch_allocator **pool)
{
    loch_device *device;
    loch_onnxruntime *runtime;
    check_loch(loch_device_open("cpu", &device));
    check_loch(loch_pool_create(device, "sessions", NULL, pool));
    const loch_onnxruntime_options options = {.size = sizeof options, .pool = *pool};
    check_loch(loch_onnxruntime_create(base, env, &options, &runtime));
    return runtime;
}

int main(int count, char **arguments)
{
    if (count != 6) die("usage: serve LIBRARY MODELS own|shared|loch CLIENTS REQUESTS");
    const char *way = arguments[3];
    const int clients = atoi(arguments[4]);
    if (clients < 1 || clients > CLIENTS_MAX) die("1 to 64 clients");
    void *library = dlopen(arguments[1], RTLD_NOW | RTLD_LOCAL);
    if (!library) die(dlerror());
    void *address = dlsym(library, "OrtGetApiBase");
    const OrtApiBase *(*get_base)(void);
    memcpy(&get_base, &address, sizeof get_base);
    const OrtApiBase *base = get_base();
    api = base->GetApi(23);
    OrtEnv *env;
    OrtMemoryInfo *arena;
    loch_onnxruntime *runtime = NULL;
    loch_allocator *pool = NULL;
    check(api->CreateEnv(ORT_LOGGING_LEVEL_ERROR, "serve", &env));
    check(api->CreateCpuMemoryInfo(OrtDeviceAllocator, OrtMemTypeDefault, &host));
    check(api->CreateCpuMemoryInfo(OrtArenaAllocator, OrtMemTypeDefault, &arena));
    if (strcmp(way, "shared") == 0) check(api->CreateAndRegisterAllocator(env, arena, NULL));
    if (strcmp(way, "loch") == 0) runtime = create_runtime(base, env, &pool);
    make_requests(atoi(arguments[5]));
    create_sessions(env, arguments[2], way, runtime);
    const double loaded_mib = read_status("VmRSS:");

    pthread_t threads[CLIENTS_MAX];
    const double wall = seconds(CLOCK_MONOTONIC), cpu = seconds(CLOCK_PROCESS_CPUTIME_ID);
    for (int i = 0; i < clients; i++)
        if (pthread_create(&threads[i], NULL, serve, NULL) != 0) die("no thread");
    for (int i = 0; i < clients; i++)
        pthread_join(threads[i], NULL);
    const double wall_s = seconds(CLOCK_MONOTONIC) - wall, cpu_s = seconds(CLOCK_PROCESS_CPUTIME_ID) - cpu;

    double held_mib = 0;
    uint64_t checksum = 0;
    for (int i = 0; i < request_count; i++)
        checksum = checksum * 0x100000001b3u + requests[i].checksum;
    if (runtime) {
        loch_pool_info info = {.size = sizeof info};
        check_loch(loch_pool_get_info(pool, &info));
        held_mib = (double)info.peak_reserved_bytes / (1 << 20);
    } else {
        for (int i = 0; i < (strcmp(way, "own") == 0 ? SESSIONS : 1); i++)
            held_mib += read_arena(sessions[i]);
    }
    printf("{\"way\": \"%s\", \"clients\": %d, \"wall_s\": %.3f, \"cpu_s\": %.3f, \"held_mib\": %.1f, "
           "\"peak_rss_mib\": %.1f, "
           "\"loaded_rss_mib\": %.1f, \"checksum\": \"%016llx\"}\n",
           way, clients, wall_s, cpu_s, held_mib, read_status("VmHWM:"), loaded_mib, (unsigned long long)checksum);
    for (int i = 0; i < SESSIONS; i++)
        api->ReleaseSession(sessions[i]);
    if (runtime) check_loch(loch_onnxruntime_destroy(runtime));
    loch_allocator_release(pool);
    api->ReleaseMemoryInfo(arena);
    api->ReleaseMemoryInfo(host);
    api->ReleaseEnv(env);
    free(requests);
    return 0;
}

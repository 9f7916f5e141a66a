/* SPDX-License-Identifier: MIT */
/* cuBLAS and NCCL are found at run time: a program that uses them is built without them. On a machine without them, or
 * without a GPU, every call returns the reason, and the program continues.
 *
 *   28_libraries [DEVICE]     cuda:0, cpu (default: cuda:0 if there is one, else cpu) */
#include <loch/engine.h>
#include <loch/loch.h>
#include <stdio.h>

/* Prints the result of a call. A missing library is not a failure of the program. */
static int say(const char *what, loch_status status)
{
    printf("%s: %s\n", what, status == LOCH_OK ? "there" : loch_error_get()->sentence);
    return status == LOCH_OK || status == LOCH_E_UNSUPPORTED;
}

/* Prints whether the library is there, and its version. */
static int look(void)
{
    int version = 0, right = 1;
    void *symbol = NULL;
    const loch_status cublas = loch_library_load(LOCH_LIBRARY_CUBLAS, &version);
    right = say("cuBLAS", cublas) && right;
    if (cublas == LOCH_OK) printf("  version %d\n", version);
    const loch_status nccl = loch_library_load(LOCH_LIBRARY_NCCL, &version);
    right = say("NCCL", nccl) && right;
    if (nccl == LOCH_OK) printf("  version %d\n", version);
    const loch_status found = loch_library_find(LOCH_LIBRARY_CUBLAS, "cublasGemmEx", &symbol);
    return say("cublasGemmEx", found) && right && (found == LOCH_OK) == (symbol != NULL);
}

/* Creates a handle on a stream. */
static int cublas(loch_device *device)
{
    loch_cublas *handle;
    loch_stream *stream;
    void *native = NULL;
    LOCH_CHECK(loch_stream_create(device, NULL, &stream));
    const loch_status status = loch_cublas_create(device, stream, &handle);
    if (status == LOCH_OK) LOCH_CHECK(loch_cublas_get_native(handle, &native));
    loch_cublas_destroy(handle); /* NULL after a failure; NULL does nothing */
    loch_stream_close(stream);
    return say("a cuBLAS handle", status) && (status == LOCH_OK) == (native != NULL);
}

/* Contexts and engines create handles on first use and destroy them. */
static int from_engine(const char *name)
{
    const loch_engine_device seat = {.size = sizeof seat, .name = name, .limit_bytes = (size_t)64 << 20};
    const loch_engine_options options = {.size = sizeof options, .devices = &seat, .devices_count = 1};
    loch_engine *engine;
    loch_context *context;
    loch_cublas *handle;
    loch_nccl *group;
    void *native = NULL;
    LOCH_CHECK(loch_engine_open(&options, &engine));
    LOCH_CHECK(loch_context_open(engine, NULL, &context));
    int right = say("the context's cuBLAS handle", loch_context_require_cublas(context, &handle));
    const loch_status status = loch_engine_require_nccl(engine, &group); /* one for each seat; the seat is the rank */
    if (status == LOCH_OK) LOCH_CHECK(loch_nccl_get_native(group, 0, &native));
    right = say("the engine's communicators", status) && right && (status == LOCH_OK) == (native != NULL);
    LOCH_CHECK(loch_context_close(context));
    LOCH_CHECK(loch_engine_close(engine, LOCH_WORKERS_DRAIN, NULL, NULL, NULL));
    return right;
}

int main(int count, char **arguments)
{
    LOCH_AUTO(device) device = NULL;
    if (count > 1) {
        LOCH_CHECK(loch_device_open(arguments[1], &device));
    } else if (loch_device_open("cuda:0", &device) != LOCH_OK) {
        printf("no GPU: %s\n", loch_error_get()->sentence);
        LOCH_CHECK(loch_device_open("cpu", &device));
    }
    int right = look();
    right = cublas(device) && right;
    right = from_engine(loch_device_get_name(device)) && right;
    return right ? 0 : 1;
}

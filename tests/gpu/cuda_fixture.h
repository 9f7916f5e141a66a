/* SPDX-License-Identifier: MIT */
/* Shared by the tests of the CUDA driver: one device, and the caller's own side of the driver through a second loading
 * of libcuda. Without a GPU a program says why and is skipped; LOCH_REQUIRE_GPU=1 makes that a failure. */
#ifndef LOCH_TEST_CUDA_FIXTURE_H
#define LOCH_TEST_CUDA_FIXTURE_H

#include "support/test.h"
#include <dlfcn.h>

/* The caller's side; handles are void pointers, device addresses numbers. */
__attribute__((unused)) static struct {
    int (*cuInit)(unsigned flags);
    int (*cuCtxGetCurrent)(void **context);
    int (*cuCtxSetCurrent)(void *context);
    int (*cuCtxCreate_v2)(void **context, unsigned flags, int device);
    int (*cuCtxDestroy_v2)(void *context);
    int (*cuDevicePrimaryCtxRetain)(void **context, int device);
    int (*cuDevicePrimaryCtxRelease_v2)(int device);
    int (*cuMemAlloc_v2)(unsigned long long *address, size_t bytes);
    int (*cuMemFree_v2)(unsigned long long address);
    int (*cuStreamCreate)(void **stream, unsigned flags);
    int (*cuStreamDestroy_v2)(void *stream);
    int (*cuStreamBeginCapture_v2)(void *stream, int mode);
    int (*cuStreamEndCapture)(void *stream, void **graph);
    int (*cuGraphInstantiateWithFlags)(void **executable, void *graph, unsigned long long flags);
    int (*cuGraphLaunch)(void *executable, void *stream);
    int (*cuGraphExecDestroy)(void *executable);
    int (*cuGraphDestroy)(void *graph);
} caller;

__attribute__((unused)) static loch_device *device;

__attribute__((unused)) static loch_device_properties properties;

__attribute__((unused)) static test_random randomness;

__attribute__((unused)) static void *caller_symbol(void *library, const char *name)
{
    void *symbol = dlsym(library, name);
    if (!symbol) {
        fprintf(stderr, "libcuda has no %s\n", name);
        exit(1);
    }
    return symbol;
}

__attribute__((unused)) static void caller_load(void)
{
    char path[LOCH_OPTION_VALUE_MAX];
    void *library = loch_option_get("cuda_library", path) == LOCH_OK && *path ? dlopen(path, RTLD_NOW)
                                                                              : dlopen("libcuda.so.1", RTLD_NOW);
    if (!library) {
        fprintf(stderr, "%s\n", dlerror());
        exit(1);
    }
#define CALLER_LOAD(name) *(void **)(void *)&caller.name = caller_symbol(library, #name)
    CALLER_LOAD(cuInit);
    CALLER_LOAD(cuCtxGetCurrent);
    CALLER_LOAD(cuCtxSetCurrent);
    CALLER_LOAD(cuCtxCreate_v2);
    CALLER_LOAD(cuCtxDestroy_v2);
    CALLER_LOAD(cuDevicePrimaryCtxRetain);
    CALLER_LOAD(cuDevicePrimaryCtxRelease_v2);
    CALLER_LOAD(cuMemAlloc_v2);
    CALLER_LOAD(cuMemFree_v2);
    CALLER_LOAD(cuStreamCreate);
    CALLER_LOAD(cuStreamDestroy_v2);
    CALLER_LOAD(cuStreamBeginCapture_v2);
    CALLER_LOAD(cuStreamEndCapture);
    CALLER_LOAD(cuGraphInstantiateWithFlags);
    CALLER_LOAD(cuGraphLaunch);
    CALLER_LOAD(cuGraphExecDestroy);
    CALLER_LOAD(cuGraphDestroy);
#undef CALLER_LOAD
}

__attribute__((unused)) static void *caller_current(void)
{
    void *context = TEST_UNTOUCHED;
    assert_int_equal(caller.cuCtxGetCurrent(&context), 0);
    return context;
}

/* Nothing of all this is left. */
__attribute__((unused)) static void nothing_is_left_of_the_device(void **state)
{
    (void)state;
    loch_device_release(device);
    loch_device *again = NULL;
    CHECK_OK(loch_device_open("cuda:0", &again));
    device = again;
    assert_null(caller_current());
    void *block = NULL;
    CHECK_OK(loch_raw_alloc(device, LOCH_MEMORY_DEVICE, TEST_MIB, 0, &block));
    loch_device_release(device); /* the block keeps it */
    CHECK_OK(loch_raw_free(block));
    device = NULL;
    loch_host_usage usage = {.size = sizeof usage};
    CHECK_OK(loch_host_get_usage(&usage));
    assert_int_equal(usage.blocks, 0);
}

/* Runs a group of tests on the device; what main returns. */
__attribute__((unused)) static int cuda_run(const struct CMUnitTest *tests, size_t count)
{
    if (loch_device_open("cuda:0", &device) != LOCH_OK) return test_skip_gpu();
    caller_load();
    properties.size = sizeof properties;
    if (loch_device_get_properties(device, &properties) != LOCH_OK) return 1;
    randomness.state = test_seed(0x10c4);
    const int failures = _cmocka_run_group_tests("cuda", tests, count, NULL, NULL);
    loch_device_release(device);
    return failures ? 1 : 0;
}

#define CUDA_RUN(tests) cuda_run((tests), sizeof(tests) / sizeof *(tests))

#endif

/* SPDX-License-Identifier: MIT */
/* What a launch costs on the host: an empty kernel with four pointers, by a bare cuLaunchKernel and by
 * loch_kernel_launch with four tensors. One line each: nanoseconds a launch, the median of rounds. The queue is emptied
 * between rounds, so that it never fills.
 *
 *   kernel [DEVICE]     cuda:0, cuda:1, ... (default: cuda:0) */
#include <dlfcn.h>
#include <loch/driver.h>
#include <loch/kernel.h>
#include <loch/loch.h>
#include <loch/tensor.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define ROUNDS 101
#define LAUNCHES 200

static const char ptx[] = ".version 6.4\n.target sm_75\n.address_size 64\n"
                          ".visible .entry four(.param .u64 a, .param .u64 b, .param .u64 c, .param .u64 d)\n"
                          "{\n    ret;\n}\n";

typedef struct bench {
    loch_stream *stream;
    loch_kernel *kernel;
    loch_tensor *tensors[4];
    void *function;
    int (*launch)(void *function, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by, unsigned bz,
                  unsigned shared, void *stream, void **parameters, void **extra);
} bench;

static double now_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec * 1e9 + (double)t.tv_nsec;
}

static int compare(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static void bare(const bench *b)
{
    void *addresses[4], *parameters[4];
    for (int i = 0; i < 4; i++) {
        LOCH_CHECK(loch_tensor_get_address(b->tensors[i], &addresses[i]));
        parameters[i] = &addresses[i];
    }
    void *native = loch_stream_get_native(b->stream);
    for (int i = 0; i < LAUNCHES; i++)
        if (b->launch(b->function, 1, 1, 1, 32, 1, 1, 0, native, parameters, NULL) != 0) exit(1);
}

static void with_tensors(const bench *b)
{
    const loch_launch_options how = {.size = sizeof how, .block = {32}};
    const loch_argument arguments[] = {loch_argument_write(b->tensors[0]), loch_argument_read(b->tensors[1]),
                                       loch_argument_read(b->tensors[2]), loch_argument_read(b->tensors[3])};
    for (int i = 0; i < LAUNCHES; i++)
        LOCH_CHECK(loch_kernel_launch(b->kernel, arguments, 4, b->stream, &how));
}

static double measure(const bench *b, void (*run)(const bench *))
{
    double rounds[ROUNDS];
    for (int i = 0; i < ROUNDS; i++) {
        LOCH_CHECK(loch_stream_sync(b->stream));
        const double start = now_ns();
        run(b);
        rounds[i] = (now_ns() - start) / LAUNCHES;
    }
    qsort(rounds, ROUNDS, sizeof *rounds, compare);
    return rounds[ROUNDS / 2];
}

/* The driver's own function and launch, for the bare side. */
static void find_bare(bench *b, void **module)
{
    void *library = dlopen("libcuda.so.1", RTLD_NOW), *address;
    int (*load)(void **out, const void *image), (*find)(void **out, void *from, const char *name);
    if (!library) exit(1);
    address = dlsym(library, "cuModuleLoadData");
    memcpy(&load, &address, sizeof address);
    address = dlsym(library, "cuModuleGetFunction");
    memcpy(&find, &address, sizeof address);
    address = dlsym(library, "cuLaunchKernel");
    memcpy(&b->launch, &address, sizeof address);
    if (load(module, ptx) != 0 || find(&b->function, *module, "four") != 0) exit(1);
}

int main(int count, char **arguments)
{
    bench b = {0};
    loch_device *device;
    loch_module *module;
    void *bare_module, *self, *before;
    if (loch_device_open(count > 1 ? arguments[1] : "cuda:0", &device) != LOCH_OK) {
        printf("skipped: %s\n", loch_error_get()->sentence);
        return 77;
    }
    LOCH_CHECK(loch_module_create(device, ptx, sizeof ptx, NULL, &module));
    LOCH_CHECK(loch_module_find(module, "four", &b.kernel));
    LOCH_CHECK(loch_stream_create(device, NULL, &b.stream));
    const loch_tensor_options on = {.size = sizeof on, .device = device, .stream = b.stream};
    for (int i = 0; i < 4; i++)
        LOCH_CHECK(loch_tensor_create(LOCH_F32, LOCH_SHAPE(1024), &on, &b.tensors[i]));
    const loch_driver *driver = loch_device_get_driver(device, &self);
    LOCH_CHECK(driver->enter(self, &before)); /* both with the context current, as in an engine's thread */
    find_bare(&b, &bare_module);
    measure(&b, bare);
    measure(&b, with_tensors);
    const double first = measure(&b, bare), second = measure(&b, with_tensors);
    printf("cuLaunchKernel      %7.0f ns\nloch_kernel_launch  %7.0f ns, %+.0f ns with four tensors\n", first, second,
           second - first);
    LOCH_CHECK(driver->leave(self, before));
    printf("loch_kernel_launch  %7.0f ns where another context or none is current\n", measure(&b, with_tensors));
    LOCH_CHECK(loch_stream_sync(b.stream));
    for (int i = 0; i < 4; i++)
        loch_tensor_release(b.tensors[i]);
    loch_module_destroy(module);
    loch_stream_release(b.stream);
    loch_device_release(device);
    return 0;
}

/* SPDX-License-Identifier: MIT */
/* The rate of Loch's own kernels: bytes read and written in a second, and the part of the rate of loch_copy with as
 * many bytes in the same run. Events around a few copies measure the time; the median of rounds counts. Then the time
 * of the host for a small conversion beside a bare cuLaunchKernel of an empty kernel.
 *
 *   kernels [DEVICE [MIB...]]     cuda:0 (default), and the sizes in MiB (default: 64 256) */
#include <dlfcn.h>
#include <loch/driver.h>
#include <loch/kernel.h>
#include <loch/loch.h>
#include <loch/rows.h>
#include <loch/tensor.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define ROUNDS 21
#define LAUNCHES 48 /* of a sample: the queue does not fill */
#define SAMPLES 41

static loch_device *device;
static loch_stream *stream;
static loch_event *start_event, *end_event;

static int compare(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static loch_tensor *make(loch_dtype type, size_t dimensions, const int64_t *shape)
{
    const loch_tensor_options on = {.size = sizeof on, .device = device, .stream = stream};
    loch_tensor *tensor;
    LOCH_CHECK(loch_tensor_create(type, dimensions, shape, &on, &tensor));
    LOCH_CHECK(loch_tensor_fill(tensor, loch_scalar_of(1), stream));
    return tensor;
}

/* What is measured: a copy, a fill (without a source), or a gather (with indices). */
typedef struct work {
    loch_tensor *to, *from, *indices;
    void *to_address, *from_address; /* of a plain copy */
    size_t bytes;                    /* of a plain copy */
} work;

static void run(const work *w)
{
    const loch_tensor_copy_options options = {.size = sizeof options, .stream = stream};
    if (w->bytes)
        LOCH_CHECK(loch_copy_on(w->to_address, w->from_address, w->bytes, stream));
    else if (w->indices)
        LOCH_CHECK(loch_rows_gather(w->to, w->from, w->indices, stream));
    else if (w->from)
        LOCH_CHECK(loch_tensor_copy(w->to, w->from, &options));
    else
        LOCH_CHECK(loch_tensor_fill(w->to, loch_scalar_of(1.5), stream));
}

/* Returns the nanoseconds of one run, by events. */
static double measure(const work *w)
{
    enum { TIMES = 8 };
    double rounds[ROUNDS];
    run(w);
    for (int i = 0; i < ROUNDS; i++) {
        uint64_t ns;
        LOCH_CHECK(loch_event_record(start_event, stream));
        for (int k = 0; k < TIMES; k++)
            run(w);
        LOCH_CHECK(loch_event_record(end_event, stream));
        LOCH_CHECK(loch_stream_sync(stream));
        LOCH_CHECK(loch_event_elapsed(start_event, end_event, &ns));
        rounds[i] = (double)ns / TIMES;
    }
    qsort(rounds, ROUNDS, sizeof *rounds, compare);
    return rounds[ROUNDS / 2];
}

/* Returns the nanoseconds of loch_copy that reads and writes so many bytes together. */
static double measure_copy(size_t both_bytes)
{
    const int64_t count = (int64_t)(both_bytes / 2);
    loch_tensor *to = make(LOCH_U8, 1, &count), *from = make(LOCH_U8, 1, &count);
    work w = {.bytes = (size_t)count};
    LOCH_CHECK(loch_tensor_get_address(to, &w.to_address));
    LOCH_CHECK(loch_tensor_get_address(from, &w.from_address));
    const double ns = measure(&w);
    loch_tensor_release(to);
    loch_tensor_release(from);
    return ns;
}

static void report(const char *name, size_t mib, const work *w, size_t both_bytes)
{
    const double copy_before = measure_copy(both_bytes), ns = measure(w), copy_after = measure_copy(both_bytes);
    const double copy = (copy_before + copy_after) / 2;
    printf("%-34s %5zu MiB  %7.0f GB/s  copy %7.0f GB/s  %.2f\n", name, mib, (double)both_bytes / ns,
           (double)both_bytes / copy, copy / ns);
    fflush(stdout);
}

/* The larger side has `mib` MiB. */
static void conversion(loch_dtype to_type, loch_dtype from_type, size_t mib)
{
    char name[64];
    const size_t to_bytes = loch_dtype_bytes(to_type), from_bytes = loch_dtype_bytes(from_type);
    const int64_t count = (int64_t)((mib << 20) / (to_bytes > from_bytes ? to_bytes : from_bytes));
    const work w = {.to = make(to_type, 1, &count), .from = make(from_type, 1, &count)};
    snprintf(name, sizeof name, "%s to %s", loch_dtype_name(from_type), loch_dtype_name(to_type));
    report(name, mib, &w, (size_t)count * (to_bytes + from_bytes));
    loch_tensor_release(w.to);
    loch_tensor_release(w.from);
}

/* Runs of `run_bytes` that change places: [a][b][run] becomes [b][a][run]. Every byte is used. */
static void runs_change_places(size_t run_bytes, size_t mib)
{
    char name[64];
    const int64_t run_length = (int64_t)(run_bytes / 4);
    int64_t a = 1;
    const int64_t runs = (int64_t)((mib << 20) / run_bytes);
    while (a * a < runs)
        a *= 2;
    const int64_t b = runs / a, shape[] = {a, b, run_length}, turned[] = {b, a, run_length};
    loch_tensor *from = make(LOCH_F32, 3, shape), *to = make(LOCH_F32, 3, turned), *view;
    LOCH_CHECK(loch_tensor_transpose(from, 0, 1, &view));
    const work w = {.to = to, .from = view};
    snprintf(name, sizeof name, "runs of %zu B change places", run_bytes);
    report(name, mib, &w, 2 * (mib << 20));
    loch_tensor_release(view);
    loch_tensor_release(from);
    loch_tensor_release(to);
}

/* Runs of `run_bytes` out of rows that are twice as long. */
static void runs_out_of_rows(size_t run_bytes, size_t mib)
{
    char name[64];
    const int64_t run_length = (int64_t)(run_bytes / 4), rows = (int64_t)((mib << 20) / run_bytes);
    const int64_t wide[] = {rows, 2 * run_length}, shape[] = {rows, run_length};
    loch_tensor *from = make(LOCH_F32, 2, wide), *to = make(LOCH_F32, 2, shape), *view;
    LOCH_CHECK(loch_tensor_slice(from, 1, 0, run_length, 1, &view));
    const work w = {.to = to, .from = view};
    snprintf(name, sizeof name, "every second run of %zu B", run_bytes);
    report(name, mib, &w, 2 * (mib << 20));
    loch_tensor_release(view);
    loch_tensor_release(from);
    loch_tensor_release(to);
}

static void transpose(loch_dtype to_type, loch_dtype from_type, size_t mib)
{
    char name[64];
    const size_t to_bytes = loch_dtype_bytes(to_type), from_bytes = loch_dtype_bytes(from_type);
    const int64_t count = (int64_t)((mib << 20) / (to_bytes > from_bytes ? to_bytes : from_bytes));
    int64_t side = 1;
    while (side * side < count)
        side *= 2;
    const int64_t shape[] = {side, count / side}, turned[] = {count / side, side};
    loch_tensor *from = make(from_type, 2, shape), *to = make(to_type, 2, turned), *view;
    LOCH_CHECK(loch_tensor_transpose(from, 0, 1, &view));
    const work w = {.to = to, .from = view};
    if (to_type == from_type)
        snprintf(name, sizeof name, "transpose, %zu B", to_bytes);
    else
        snprintf(name, sizeof name, "transpose, %s to %s", loch_dtype_name(from_type), loch_dtype_name(to_type));
    report(name, mib, &w, (size_t)count * (to_bytes + from_bytes));
    loch_tensor_release(view);
    loch_tensor_release(from);
    loch_tensor_release(to);
}

/* Fills write only: beside a copy that reads and writes as many bytes together. */
static void fill(loch_dtype type, int64_t step, size_t mib)
{
    char name[64];
    const int64_t count = (int64_t)((mib << 20) / loch_dtype_bytes(type)), shape[] = {count / 16, step, 16};
    loch_tensor *to = make(type, 3, shape), *view;
    LOCH_CHECK(loch_tensor_slice(to, 1, 0, 1, 1, &view));
    const work w = {.to = step > 1 ? view : to};
    snprintf(name, sizeof name, "fill of %s%s", loch_dtype_name(type), step > 1 ? ", every second run of 16" : "");
    report(name, mib, &w, mib << 20);
    loch_tensor_release(view);
    loch_tensor_release(to);
}

static void gather(size_t row_bytes, size_t mib)
{
    char name[64];
    const int64_t row = (int64_t)(row_bytes / 2), rows = (int64_t)((mib << 20) / row_bytes), shape[] = {rows, row};
    int32_t *numbers = malloc((size_t)rows * sizeof *numbers);
    if (!numbers) exit(1);
    for (int64_t i = 0; i < rows; i++)
        numbers[i] = (int32_t)((uint64_t)i * 2654435761u % (uint64_t)rows);
    const work w = {
        .to = make(LOCH_BF16, 2, shape), .from = make(LOCH_BF16, 2, shape), .indices = make(LOCH_I32, 1, &rows)};
    LOCH_CHECK(loch_tensor_write(w.indices, numbers, (size_t)rows * sizeof *numbers, stream)); /* behind its fill */
    LOCH_CHECK(loch_stream_sync(stream));
    snprintf(name, sizeof name, "gather of rows of %zu B", row_bytes);
    report(name, mib, &w, 2 * (mib << 20));
    loch_tensor_release(w.to);
    loch_tensor_release(w.from);
    loch_tensor_release(w.indices);
    free(numbers);
}

/* --- time of the host --- */

static const char empty_ptx[] = ".version 6.4\n.target sm_75\n.address_size 64\n"
                                ".visible .entry empty(.param .u64 a)\n{\n    ret;\n}\n";

typedef int launch_function(void *function, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by,
                            unsigned bz, unsigned shared, void *stream, void **parameters, void **extra);

static double now_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec * 1e9 + (double)t.tv_nsec;
}

static double host_median(const work *w, launch_function *launch, void *function)
{
    double samples[SAMPLES];
    unsigned long long unused = 0;
    void *parameters[] = {&unused}, *native = loch_stream_get_native(stream);
    for (int i = 0; i < SAMPLES; i++) {
        LOCH_CHECK(loch_stream_sync(stream));
        const double start = now_ns();
        for (int k = 0; k < LAUNCHES; k++) {
            if (launch) {
                if (launch(function, 4, 1, 1, 256, 1, 1, 0, native, parameters, NULL) != 0) exit(1);
            } else {
                run(w);
            }
        }
        samples[i] = (now_ns() - start) / LAUNCHES;
    }
    LOCH_CHECK(loch_stream_sync(stream));
    qsort(samples, SAMPLES, sizeof *samples, compare);
    return samples[SAMPLES / 2];
}

/* Prints the time of the first conversion of a pair of types, which the driver compiles; its cache on disk is off. */
static void first_time(void)
{
    const int64_t count = 1024;
    const work w = {.to = make(LOCH_I16, 1, &count), .from = make(LOCH_F64, 1, &count)};
    LOCH_CHECK(loch_stream_sync(stream));
    const double start = now_ns();
    run(&w);
    printf("first conversion of f64 to i16: %.1f ms\n", (now_ns() - start) / 1e6);
    LOCH_CHECK(loch_stream_sync(stream));
    loch_tensor_release(w.to);
    loch_tensor_release(w.from);
}

static void host_time(void)
{
    const int64_t count = 1024;
    const work w = {.to = make(LOCH_BF16, 1, &count), .from = make(LOCH_F32, 1, &count)};
    void *library = dlopen("libcuda.so.1", RTLD_NOW), *self, *before, *module, *function, *address;
    int (*load)(void **out, const void *image), (*find)(void **out, void *from, const char *name);
    launch_function *launch;
    if (!library) exit(1);
    address = dlsym(library, "cuModuleLoadData");
    memcpy(&load, &address, sizeof address);
    address = dlsym(library, "cuModuleGetFunction");
    memcpy(&find, &address, sizeof address);
    address = dlsym(library, "cuLaunchKernel");
    memcpy(&launch, &address, sizeof address);
    const loch_driver *driver = loch_device_get_driver(device, &self);
    LOCH_CHECK(driver->enter(self, &before)); /* both with the context current, as in an engine's thread */
    if (load(&module, empty_ptx) != 0 || find(&function, module, "empty") != 0) exit(1);
    host_median(&w, launch, function);
    host_median(&w, NULL, NULL);
    const double bare = host_median(&w, launch, function), ours = host_median(&w, NULL, NULL);
    printf("host: cuLaunchKernel %.0f ns, conversion of 4 KiB %.0f ns: %+.0f ns\n", bare, ours, ours - bare);
    LOCH_CHECK(driver->leave(self, before));
    printf("host: conversion of 4 KiB without a current context %.0f ns\n", host_median(&w, NULL, NULL));
    loch_tensor_release(w.to);
    loch_tensor_release(w.from);
}

static void all(size_t mib)
{
    conversion(LOCH_BF16, LOCH_F32, mib);
    conversion(LOCH_F32, LOCH_BF16, mib);
    conversion(LOCH_F16, LOCH_F32, mib);
    conversion(LOCH_F8E4M3, LOCH_F16, mib);
    conversion(LOCH_F8E4M3, LOCH_BF16, mib);
    conversion(LOCH_F32, LOCH_I32, mib);
    conversion(LOCH_F32, LOCH_U8, mib);
    conversion(LOCH_F64, LOCH_F32, mib);
    runs_change_places(16, mib);
    runs_change_places(64, mib);
    runs_change_places(4096, mib);
    runs_out_of_rows(16, mib);
    runs_out_of_rows(64, mib);
    runs_out_of_rows(4096, mib);
    transpose(LOCH_U8, LOCH_U8, mib);
    transpose(LOCH_F16, LOCH_F16, mib);
    transpose(LOCH_F32, LOCH_F32, mib);
    transpose(LOCH_F64, LOCH_F64, mib);
    transpose(LOCH_BF16, LOCH_F32, mib);
    fill(LOCH_F32, 1, mib);
    fill(LOCH_F64, 1, mib);
    fill(LOCH_F16, 2, mib);
    gather(256, mib);
    gather(4096, mib);
}

int main(int count, char **arguments)
{
    const char *name = count > 1 ? arguments[1] : "cuda:0";
    setenv("CUDA_CACHE_DISABLE", "1", 1);
    if (loch_device_open(name, &device) != LOCH_OK) {
        printf("skipped: %s\n", loch_error_get()->sentence);
        return 77;
    }
    LOCH_CHECK(loch_stream_create(device, NULL, &stream));
    LOCH_CHECK(loch_event_create(device, LOCH_EVENT_TIMED, &start_event));
    LOCH_CHECK(loch_event_create(device, LOCH_EVENT_TIMED, &end_event));
    for (int i = 2; i < count; i++)
        all((size_t)strtoul(arguments[i], NULL, 10));
    if (count <= 2) {
        all(64);
        all(256);
    }
    first_time();
    if (!strncmp(name, "cuda", 4)) host_time();
    loch_event_destroy(start_event);
    loch_event_destroy(end_event);
    loch_stream_release(stream);
    loch_device_release(device);
    return 0;
}

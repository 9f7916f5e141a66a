/* SPDX-License-Identifier: MIT */
/* What Loch adds to OpenCL: copies and fills by Loch beside the plain calls of OpenCL, and blocks of a pool beside
 * clSVMAlloc. Prints one line for each case, with the ratio. The best of many turns counts: other work on
 * the machine makes turns slower, and none faster.
 *
 *   build/bench/opencl [DEVICE]     opencl:0, opencl:1, ... (default: opencl:0) */
#include <dlfcn.h>
#include <loch/loch.h>
#include <loch/opencl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define ROUNDS 60

/* The functions of OpenCL that are compared with. */
static struct {
    int32_t (*copy)(void *queue, uint32_t is_blocking, void *to, const void *from, size_t bytes, uint32_t count,
                    const void *waits, void *event);
    int32_t (*fill)(void *queue, void *to, const void *pattern, size_t pattern_bytes, size_t bytes, uint32_t count,
                    const void *waits, void *event);
    int32_t (*finish)(void *queue);
    void *(*alloc)(void *context, uint64_t flags, size_t bytes, uint32_t alignment);
    void (*free)(void *context, void *address);
} cl;

typedef struct bench {
    loch_opencl_handles handles;
    loch_stream *stream;
    void *queue;
    loch_allocator *pool;
    char *from, *to, *host;
    size_t bytes;
} bench;

typedef void bench_work(const bench *b, size_t repeats);

static void read_function(void *library, const char *name, void *out)
{
    void *address = dlsym(library, name);
    if (!address) {
        fprintf(stderr, "opencl: no %s in libOpenCL.so.1\n", name);
        exit(1);
    }
    memcpy(out, &address, sizeof address);
}

static void read_functions(void)
{
    void *library = dlopen("libOpenCL.so.1", RTLD_NOW | RTLD_LOCAL);
    read_function(library, "clEnqueueSVMMemcpy", &cl.copy);
    read_function(library, "clEnqueueSVMMemFill", &cl.fill);
    read_function(library, "clFinish", &cl.finish);
    read_function(library, "clSVMAlloc", &cl.alloc);
    read_function(library, "clSVMFree", &cl.free);
}

/* --- the cases: by Loch, and by OpenCL alone --- */

static void check(int32_t result)
{
    if (result == 0) return;
    fprintf(stderr, "opencl: OpenCL returned %d\n", (int)result);
    exit(1);
}

static void loch_copies(const bench *b, size_t repeats)
{
    for (size_t i = 0; i < repeats; i++)
        LOCH_CHECK(loch_copy_on(b->to, b->from, b->bytes, b->stream));
    LOCH_CHECK(loch_stream_sync(b->stream));
}

static void plain_copies(const bench *b, size_t repeats)
{
    for (size_t i = 0; i < repeats; i++)
        check(cl.copy(b->queue, 0, b->to, b->from, b->bytes, 0, NULL, NULL));
    check(cl.finish(b->queue));
}

static void loch_uploads(const bench *b, size_t repeats)
{
    for (size_t i = 0; i < repeats; i++)
        LOCH_CHECK(loch_copy_on(b->to, b->host, b->bytes, b->stream));
    LOCH_CHECK(loch_stream_sync(b->stream));
}

static void plain_uploads(const bench *b, size_t repeats)
{
    for (size_t i = 0; i < repeats; i++)
        check(cl.copy(b->queue, 1, b->to, b->host, b->bytes, 0, NULL, NULL));
    check(cl.finish(b->queue));
}

static void loch_fills(const bench *b, size_t repeats)
{
    for (size_t i = 0; i < repeats; i++)
        LOCH_CHECK(loch_fill_on(b->to, b->bytes, "abcd", 4, b->stream));
    LOCH_CHECK(loch_stream_sync(b->stream));
}

static void plain_fills(const bench *b, size_t repeats)
{
    for (size_t i = 0; i < repeats; i++)
        check(cl.fill(b->queue, b->to, "abcd", 4, b->bytes, 0, NULL, NULL));
    check(cl.finish(b->queue));
}

static void loch_blocks(const bench *b, size_t repeats)
{
    void *block;
    for (size_t i = 0; i < repeats; i++) {
        LOCH_CHECK(loch_alloc(b->pool, b->bytes, &block));
        LOCH_CHECK(loch_free(b->pool, block));
    }
}

static void plain_blocks(const bench *b, size_t repeats)
{
    for (size_t i = 0; i < repeats; i++) {
        void *block = cl.alloc(b->handles.context, 1, b->bytes, 0);
        if (!block) check(-4);
        cl.free(b->handles.context, block);
    }
}

/* --- measuring --- */

static double measure(const bench *b, bench_work *work, size_t repeats)
{
    const uint64_t start = loch_host_now_ns();
    work(b, repeats);
    return (double)(loch_host_now_ns() - start) / (double)repeats;
}

/* Measures both in turns, so that a disturbance of the machine meets both. */
static void run(const bench *b, const char *name, bench_work *ours, bench_work *plain, size_t repeats)
{
    double our = measure(b, ours, repeats), their = measure(b, plain, repeats);
    for (size_t i = 0; i < ROUNDS; i++) {
        const double our_turn = measure(b, ours, repeats), their_turn = measure(b, plain, repeats);
        if (our_turn < our) our = our_turn;
        if (their_turn < their) their = their_turn;
    }
    printf("%-22s %8zu KiB  Loch %10.2f us  OpenCL %10.2f us  ratio %.2f\n", name, b->bytes >> 10, our / 1000,
           their / 1000, our / their);
}

int main(int count, char **arguments)
{
    const char *name = count > 1 ? arguments[1] : "opencl:0";
    const size_t sizes[] = {4 << 10, 1 << 20, 64 << 20};
    bench b = {.handles = {.size = sizeof b.handles}};
    loch_device_properties properties = {.size = sizeof properties};
    loch_device *device;
    LOCH_CHECK(loch_opencl_register());
    LOCH_CHECK(loch_device_open(name, &device));
    read_functions();
    LOCH_CHECK(loch_device_get_properties(device, &properties));
    LOCH_CHECK(loch_opencl_get_handles(device, &b.handles));
    LOCH_CHECK(loch_stream_create(device, NULL, &b.stream));
    LOCH_CHECK(loch_pool_create(device, "bench", NULL, &b.pool));
    b.queue = loch_stream_get_native(b.stream);
    LOCH_CHECK(loch_alloc(b.pool, sizes[2], (void **)&b.from));
    LOCH_CHECK(loch_alloc(b.pool, sizes[2], (void **)&b.to));
    LOCH_CHECK(loch_fill(b.from, sizes[2], "x", 1));
    b.host = malloc(sizes[2]);
    if (!b.host) return 1;
    memset(b.host, 1, sizes[2]);
    printf("%s: %s, driver %s\n", name, properties.model, properties.driver_version);
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        const size_t repeats = sizes[i] > 1 << 20 ? 2 : 50;
        b.bytes = sizes[i];
        run(&b, "copy on the device", loch_copies, plain_copies, repeats);
        run(&b, "copy from the host", loch_uploads, plain_uploads, repeats);
        run(&b, "fill", loch_fills, plain_fills, repeats);
        run(&b, "take and free a block", loch_blocks, plain_blocks, repeats);
    }
    free(b.host);
    LOCH_CHECK(loch_free(b.pool, b.from));
    LOCH_CHECK(loch_free(b.pool, b.to));
    loch_allocator_release(b.pool);
    loch_stream_close(b.stream);
    loch_device_release(device);
    return 0;
}

/* SPDX-License-Identifier: MIT */
/* `loch bench copy`: measures copies and fills through Loch and, side by side, without Loch: on CUDA by driver calls on
 * the same stream, on the CPU by memcpy and memset.
 *
 * The two sides alternate in every repetition, so that neither has a warmer machine; the median of each side counts.
 * Large work on a device is timed by its events. Other work is timed by the host's clock around queueing and waiting.
 * Small work is queued several times in a row, so that a repetition is long compared with the resolution of the clock.
 * At the end the cost of the queueing call itself is measured, with a copy so small that its duration does not
 * count. */
#include "bench.h"

#include <dlfcn.h>
#include <loch/loch.h>
#include <loch/driver.h>
#include <loch/raw.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define BENCH_REPETITIONS 9
#define BENCH_QUICK_BYTES ((size_t)1 << 20)       /* largest size with --quick */
#define BENCH_EVENT_BYTES ((size_t)16 << 20)      /* larger work is timed by events */
#define BENCH_REPETITION_BYTES ((size_t)64 << 20) /* smaller work is repeated up to this size */
#define BENCH_QUEUE_BYTES 4096
#define BENCH_QUEUE_CALLS 256 /* well below the depth of a stream's queue, so that queueing does not wait */

static size_t bench_repetitions = BENCH_REPETITIONS; /* fewer with --quick */

static const size_t bench_sizes[] = {(size_t)64 << 10, (size_t)1 << 20, (size_t)64 << 20, (size_t)1 << 30};

typedef enum bench_work {
    BENCH_DEVICE_TO_DEVICE,
    BENCH_PINNED_TO_DEVICE,
    BENCH_DEVICE_TO_PINNED,
    BENCH_PAGEABLE_TO_DEVICE,
    BENCH_DEVICE_TO_PAGEABLE,
    BENCH_FILL,
    BENCH_WORK_COUNT
} bench_work;

static const char *const bench_names[] = {"device to device",   "pinned to device",   "device to pinned",
                                          "pageable to device", "device to pageable", "fill"};

/* The driver's functions, called without Loch; all NULL if the device has no such driver. */
typedef struct bench_bare {
    int (*to_device)(unsigned long long to, const void *from, size_t bytes, void *stream);
    int (*to_host)(void *to, unsigned long long from, size_t bytes, void *stream);
    int (*inside)(unsigned long long to, unsigned long long from, size_t bytes, void *stream);
    int (*fill)(unsigned long long to, unsigned char byte, size_t bytes, void *stream);
    int (*sync)(void *stream);
    int (*retain)(void **context, int device);
    int (*release)(int device);
    int (*get_current)(void **context);
    int (*set_current)(void *context);
} bench_bare;

typedef struct bench {
    loch_device *device;
    loch_device_properties properties;
    loch_stream *stream;
    loch_event *start, *end;
    void *first, *second;    /* on the device */
    void *pinned, *pageable; /* on the host; pinned is NULL if the device has no pinned memory */
    bool is_cuda;
    bool is_current; /* this program has made the primary context current on this thread */
    void *context_before;
    bench_bare bare;
} bench;

typedef struct bench_pair {
    double loch_rate, bare_rate; /* bytes per second */
} bench_pair;

/* --- one piece of work --- */

static void bench_places(const bench *b, bench_work work, void **to, const void **from)
{
    *to = work == BENCH_DEVICE_TO_PINNED ? b->pinned : work == BENCH_DEVICE_TO_PAGEABLE ? b->pageable : b->first;
    *from = work == BENCH_PINNED_TO_DEVICE ? b->pinned : work == BENCH_PAGEABLE_TO_DEVICE ? b->pageable : b->second;
}

static bool bench_queue_loch(const bench *b, bench_work work, size_t bytes)
{
    void *to;
    const void *from;
    const unsigned char byte = 1;
    bench_places(b, work, &to, &from);
    return (work == BENCH_FILL ? loch_fill_on(to, bytes, &byte, 1, b->stream)
                               : loch_copy_on(to, from, bytes, b->stream)) == LOCH_OK;
}

static bool bench_queue_bare(const bench *b, bench_work work, size_t bytes)
{
    void *to, *stream = loch_stream_get_native(b->stream);
    const void *from;
    bench_places(b, work, &to, &from);
    const unsigned long long target = (unsigned long long)(uintptr_t)to, source = (unsigned long long)(uintptr_t)from;
    if (!b->is_cuda) {
        if (work == BENCH_FILL)
            memset(to, 1, bytes);
        else
            memcpy(to, from, bytes);
        /* keeps the compiler from dropping a copy whose result is not read */
        __asm__ volatile("" : : "r"(to) : "memory");
        return true;
    }
    switch (work) {
    case BENCH_DEVICE_TO_DEVICE: return b->bare.inside(target, source, bytes, stream) == 0;
    case BENCH_PINNED_TO_DEVICE:
    case BENCH_PAGEABLE_TO_DEVICE: return b->bare.to_device(target, from, bytes, stream) == 0;
    case BENCH_DEVICE_TO_PINNED:
    case BENCH_DEVICE_TO_PAGEABLE: return b->bare.to_host(to, source, bytes, stream) == 0;
    default: return b->bare.fill(target, 1, bytes, stream) == 0;
    }
}

typedef bool bench_queue(const bench *b, bench_work work, size_t bytes);

/* --- measuring --- */

/* Returns the nanoseconds of `count` pieces of work; 0 on failure. */
static uint64_t bench_time(const bench *b, bench_queue *queue, bench_work work, size_t bytes, size_t count)
{
    const bool is_bare = queue == bench_queue_bare && b->is_cuda;
    const bool by_events = bytes >= BENCH_EVENT_BYTES && loch_device_can(b->device, LOCH_CAN_ASYNC | LOCH_CAN_TIMING);
    const uint64_t start_ns = loch_host_now_ns();
    if (by_events && loch_event_record(b->start, b->stream) != LOCH_OK) return 0;
    for (size_t i = 0; i < count; i++)
        if (!queue(b, work, bytes)) return 0;
    if (by_events) {
        uint64_t ns = 0;
        const bool is_good = loch_event_record(b->end, b->stream) == LOCH_OK && loch_event_sync(b->end) == LOCH_OK &&
                             loch_event_elapsed(b->start, b->end, &ns) == LOCH_OK;
        return is_good ? ns : 0;
    }
    const bool is_done =
        is_bare ? b->bare.sync(loch_stream_get_native(b->stream)) == 0 : loch_stream_sync(b->stream) == LOCH_OK;
    const uint64_t ns = loch_host_now_ns() - start_ns;
    return is_done ? (ns ? ns : 1) : 0;
}

/* Returns the nanoseconds of one queueing call. */
static uint64_t bench_time_queueing(const bench *b, bench_queue *queue)
{
    if (loch_stream_sync(b->stream) != LOCH_OK) return 0;
    const uint64_t start_ns = loch_host_now_ns();
    for (size_t i = 0; i < BENCH_QUEUE_CALLS; i++)
        if (!queue(b, BENCH_DEVICE_TO_DEVICE, BENCH_QUEUE_BYTES)) return 0;
    const uint64_t ns = loch_host_now_ns() - start_ns;
    return loch_stream_sync(b->stream) == LOCH_OK ? (ns ? ns : 1) : 0;
}

static int bench_compare(const void *a, const void *b)
{
    const uint64_t left = *(const uint64_t *)a, right = *(const uint64_t *)b;
    return (left > right) - (left < right);
}

static uint64_t bench_median(uint64_t *times)
{
    qsort(times, bench_repetitions, sizeof *times, bench_compare);
    return times[bench_repetitions / 2];
}

static bool bench_measure(const bench *b, bench_work work, size_t bytes, bench_pair *out)
{
    const size_t count = bytes < BENCH_REPETITION_BYTES ? BENCH_REPETITION_BYTES / bytes : 1;
    uint64_t loch_ns[BENCH_REPETITIONS], bare_ns[BENCH_REPETITIONS];
    if (!bench_time(b, bench_queue_loch, work, bytes, count) || !bench_time(b, bench_queue_bare, work, bytes, count))
        return false; /* the first run of each side warms up */
    for (size_t i = 0; i < bench_repetitions; i++) {
        loch_ns[i] = bench_time(b, bench_queue_loch, work, bytes, count);
        bare_ns[i] = bench_time(b, bench_queue_bare, work, bytes, count);
        if (!loch_ns[i] || !bare_ns[i]) return false;
    }
    const double total = (double)bytes * (double)count * 1e9;
    out->loch_rate = total / (double)bench_median(loch_ns);
    out->bare_rate = total / (double)bench_median(bare_ns);
    return true;
}

static bool bench_measure_queueing(const bench *b, double *loch_ns, double *bare_ns)
{
    uint64_t times[2][BENCH_REPETITIONS];
    if (!bench_time_queueing(b, bench_queue_loch) || !bench_time_queueing(b, bench_queue_bare)) return false;
    for (size_t i = 0; i < bench_repetitions; i++) {
        times[0][i] = bench_time_queueing(b, bench_queue_loch);
        times[1][i] = bench_time_queueing(b, bench_queue_bare);
        if (!times[0][i] || !times[1][i]) return false;
    }
    *loch_ns = (double)bench_median(times[0]) / BENCH_QUEUE_CALLS;
    *bare_ns = (double)bench_median(times[1]) / BENCH_QUEUE_CALLS;
    return true;
}

/* --- opening and closing --- */

static bool bench_load_bare(bench *b)
{
    char path[LOCH_OPTION_VALUE_MAX];
    if (loch_option_get("cuda_library", path) != LOCH_OK || !*path) snprintf(path, sizeof path, "libcuda.so.1");
    void *library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    if (!library) return false;
    const struct {
        void *slot;
        const char *symbol;
    } symbols[] = {
        {&b->bare.to_device, "cuMemcpyHtoDAsync_v2"},
        {&b->bare.to_host, "cuMemcpyDtoHAsync_v2"},
        {&b->bare.inside, "cuMemcpyDtoDAsync_v2"},
        {&b->bare.fill, "cuMemsetD8Async"},
        {&b->bare.sync, "cuStreamSynchronize"},
        {&b->bare.retain, "cuDevicePrimaryCtxRetain"},
        {&b->bare.release, "cuDevicePrimaryCtxRelease_v2"},
        {&b->bare.get_current, "cuCtxGetCurrent"},
        {&b->bare.set_current, "cuCtxSetCurrent"},
    };
    for (size_t i = 0; i < sizeof symbols / sizeof *symbols; i++) {
        void *address = dlsym(library, symbols[i].symbol);
        if (!address) return false;
        memcpy(symbols[i].slot, &address, sizeof address);
    }
    return true;
}

/* Makes the primary context current on this thread, as in a program that uses the driver directly. */
static bool bench_enter_context(bench *b)
{
    void *context = NULL;
    if (b->bare.get_current(&b->context_before) != 0 || b->bare.retain(&context, b->properties.index) != 0)
        return false;
    b->is_current = b->bare.set_current(context) == 0;
    if (!b->is_current) b->bare.release(b->properties.index);
    return b->is_current;
}

static void bench_close(bench *b)
{
    void *const blocks[] = {b->first, b->second, b->pinned};
    for (size_t i = 0; i < sizeof blocks / sizeof *blocks; i++)
        if (loch_raw_free(blocks[i]) != LOCH_OK) tool_fail("%s", loch_error_get()->sentence);
    free(b->pageable);
    if (b->is_current) {
        b->bare.set_current(b->context_before);
        b->bare.release(b->properties.index);
    }
    loch_event_destroy(b->start);
    loch_event_destroy(b->end);
    loch_stream_close(b->stream);
    loch_device_release(b->device);
}

static loch_status bench_open_device(bench *b, const char *name)
{
    loch_status status = loch_device_open(name, &b->device);
    if (status != LOCH_OK) return status;
    b->properties.size = sizeof b->properties;
    status = loch_device_get_properties(b->device, &b->properties);
    if (status == LOCH_OK) status = loch_stream_create(b->device, NULL, &b->stream);
    const loch_event_kind kind = loch_device_can(b->device, LOCH_CAN_TIMING) ? LOCH_EVENT_TIMED : LOCH_EVENT_PLAIN;
    if (status == LOCH_OK) status = loch_event_create(b->device, kind, &b->start);
    if (status == LOCH_OK) status = loch_event_create(b->device, kind, &b->end);
    return status;
}

/* Allocates the memory and touches all of it, so that no page fault happens while the clock runs. */
static loch_status bench_take_memory(bench *b, size_t bytes)
{
    const unsigned char byte = 1;
    loch_status status = loch_raw_alloc(b->device, LOCH_MEMORY_DEVICE, bytes, 0, &b->first);
    if (status == LOCH_OK) status = loch_raw_alloc(b->device, LOCH_MEMORY_DEVICE, bytes, 0, &b->second);
    if (status == LOCH_OK) status = loch_fill(b->first, bytes, &byte, 1);
    if (status == LOCH_OK) status = loch_fill(b->second, bytes, &byte, 1);
    if (status != LOCH_OK || !b->is_cuda) return status;
    status = loch_raw_alloc(b->device, LOCH_MEMORY_PINNED, bytes, 0, &b->pinned);
    if (status != LOCH_OK) return status;
    memset(b->pinned, 1, bytes);
    b->pageable = malloc(bytes);
    if (!b->pageable)
        return loch_error_set(LOCH_E_HOST_MEMORY, NULL, 0, "the host has no %zu bytes for the benchmark", bytes);
    memset(b->pageable, 1, bytes);
    return LOCH_OK;
}

/* Returns the largest size that fits twice into the device with room to spare; 0 if none fits. */
static size_t bench_largest(const bench *b)
{
    loch_memory_info info = {.size = sizeof info};
    if (loch_device_calculate_memory(b->device, &info) != LOCH_OK) return 0;
    size_t largest = 0;
    for (size_t i = 0; i < sizeof bench_sizes / sizeof *bench_sizes; i++)
        if (bench_sizes[i] <= info.free_bytes / 8) largest = bench_sizes[i];
    return largest;
}

/* --- printing --- */

static void bench_print_name(const char *name)
{
    for (; *name; name++) {
        if (*name == '"' || *name == '\\') putchar('\\');
        if ((unsigned char)*name >= ' ') putchar(*name);
    }
}

static void bench_print_start(const bench *b, bool json)
{
    const char *bare = b->is_cuda ? "driver" : "libc";
    if (!json) {
        printf("%s (%s), medians of %zu, Loch beside the bare %s\n\n", loch_device_get_name(b->device),
               b->properties.model, bench_repetitions, bare);
        printf("%-20s %12s %14s %14s %8s\n", "work", "bytes", "loch GB/s", b->is_cuda ? "driver GB/s" : "libc GB/s",
               "ratio");
        return;
    }
    printf("{\"benchmark\": \"copy\", \"device\": \"");
    bench_print_name(loch_device_get_name(b->device));
    printf("\", \"model\": \"");
    bench_print_name(b->properties.model);
    printf("\", \"against\": \"%s\", \"repetitions\": %zu, \"results\": [", bare, bench_repetitions);
}

static void bench_print_pair(bench_work work, size_t bytes, const bench_pair *pair, bool json, bool is_first)
{
    const double ratio = pair->loch_rate / pair->bare_rate;
    if (json)
        printf("%s\n  {\"work\": \"%s\", \"bytes\": %zu, \"loch_bytes_per_s\": %.0f, \"bare_bytes_per_s\": %.0f, "
               "\"ratio\": %.4f}",
               is_first ? "" : ",", bench_names[work], bytes, pair->loch_rate, pair->bare_rate, ratio);
    else
        printf("%-20s %12zu %14.2f %14.2f %8.3f\n", bench_names[work], bytes, pair->loch_rate / 1e9,
               pair->bare_rate / 1e9, ratio);
    fflush(stdout);
}

static void bench_print_end(double loch_ns, double bare_ns, bool json)
{
    if (json)
        printf("],\n \"queueing\": {\"bytes\": %d, \"loch_ns\": %.1f, \"bare_ns\": %.1f, \"overhead_ns\": %.1f}}\n",
               BENCH_QUEUE_BYTES, loch_ns, bare_ns, loch_ns - bare_ns);
    else
        printf("\nqueueing a copy of %d bytes: loch %.0f ns, bare %.0f ns, overhead %.0f ns\n", BENCH_QUEUE_BYTES,
               loch_ns, bare_ns, loch_ns - bare_ns);
}

static int bench_run(const bench *b, size_t largest, bool json)
{
    bool is_first = true;
    const size_t sizes = sizeof bench_sizes / sizeof *bench_sizes;
    bench_print_start(b, json);
    tool_steps_begin("copy", sizes * (b->is_cuda ? BENCH_WORK_COUNT : 2));
    for (bench_work work = 0; work < BENCH_WORK_COUNT; work++) {
        if (!b->is_cuda && work != BENCH_DEVICE_TO_DEVICE && work != BENCH_FILL)
            continue; /* everything is host memory */
        for (size_t i = 0; i < sizes && bench_sizes[i] <= largest; i++) {
            bench_pair pair;
            if (!bench_measure(b, work, bench_sizes[i], &pair))
                return tool_fail("%s of %zu bytes failed: %s", bench_names[work], bench_sizes[i],
                                 loch_error_get()->sentence);
            tool_steps_hide();
            bench_print_pair(work, bench_sizes[i], &pair, json, is_first);
            is_first = false;
            tool_steps_next();
        }
    }
    double loch_ns, bare_ns;
    if (!bench_measure_queueing(b, &loch_ns, &bare_ns))
        return tool_fail("queueing copies failed: %s", loch_error_get()->sentence);
    tool_steps_end();
    bench_print_end(loch_ns, bare_ns, json);
    return 0;
}

int tool_bench_copy(const tool_bench_options *options)
{
    const char *device = options->device;
    bench b = {.device = NULL};
    int code = 0;
    if (bench_open_device(&b, device) != LOCH_OK) {
        code = tool_fail("%s", loch_error_get()->sentence);
        bench_close(&b);
        return code;
    }
    b.is_cuda = !strcmp(b.properties.driver, "cuda");
    size_t largest = bench_largest(&b);
    if (options->is_quick) {
        bench_repetitions = 1;
        if (largest > BENCH_QUICK_BYTES) largest = BENCH_QUICK_BYTES;
    }
    if (!b.is_cuda && !loch_device_can(b.device, LOCH_CAN_HOST_ACCESS))
        code = tool_fail("copies are measured on cpu and cuda devices, not on %s", device);
    else if (!largest)
        code = tool_fail("%s has too little free memory to measure copies", device);
    else if (b.is_cuda && (!bench_load_bare(&b) || !bench_enter_context(&b)))
        code = tool_fail("the CUDA driver cannot be called beside Loch");
    else if (bench_take_memory(&b, largest) != LOCH_OK)
        code = tool_fail("%s", loch_error_get()->sentence);
    else
        code = bench_run(&b, largest, options->is_json);
    tool_steps_end();
    bench_close(&b);
    return code;
}

/* SPDX-License-Identifier: MIT */
/* `core pinned`: measures pinned host memory.
 *
 * Time: how long it takes to pin a block and to give it back, beside cuMemHostAlloc and cuMemFreeHost. On CUDA devices
 * only; medians.
 *
 * Memory: the most bytes that a pool held for each byte that was requested at most, for sizes just above powers of two,
 * beside an allocator that rounds each size up to a power of two.
 *
 *   each size     one block at a time in a pool of its own; the worst size
 *   all sizes     a block of each size at one time
 *   in turn       one block after the other, from small to large and back, in one pool
 *   mixed         random sizes at one time
 *   replaced      random sizes, of which random ones are freed and replaced by other sizes */
#include "core.h"
#include "tools/json.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define PINNED_SMALLEST ((size_t)1 << 20)
#define PINNED_DOUBLINGS 13 /* up to 4 GiB */
#define PINNED_DOUBLINGS_QUICK 5
#define PINNED_MIXED_DOUBLINGS 9
#define PINNED_LIVE 64
#define PINNED_REPLACED 1000
#define PINNED_REPLACED_QUICK 100
#define PINNED_TIMES_MAX 9

typedef struct pinned_bench {
    loch_device *device;
    loch_device_properties properties;
    bool is_cuda, is_quick;
    void *before; /* context that was current before; only with is_current */
    bool is_current;
    int (*alloc)(void **address, size_t bytes, unsigned flags); /* the driver's own calls */
    int (*free)(void *address);
    int (*retain)(void **context, int device);
    int (*release)(int device);
    int (*get_current)(void **context);
    int (*set_current)(void *context);
} pinned_bench;

/* --- time --- */

typedef struct pinned_times {
    uint64_t alloc_ns, free_ns; /* medians */
} pinned_times;

static bool pinned_load(pinned_bench *b)
{
    char path[LOCH_OPTION_VALUE_MAX];
    if (loch_option_get("cuda_library", path) != LOCH_OK || !*path) snprintf(path, sizeof path, "libcuda.so.1");
    void *library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    const struct {
        void *slot;
        const char *symbol;
    } symbols[] = {
        {&b->alloc, "cuMemHostAlloc"},
        {&b->free, "cuMemFreeHost"},
        {&b->retain, "cuDevicePrimaryCtxRetain"},
        {&b->release, "cuDevicePrimaryCtxRelease_v2"},
        {&b->get_current, "cuCtxGetCurrent"},
        {&b->set_current, "cuCtxSetCurrent"},
    };
    for (size_t i = 0; library && i < sizeof symbols / sizeof *symbols; i++) {
        void *address = dlsym(library, symbols[i].symbol);
        if (!address) return false;
        memcpy(symbols[i].slot, &address, sizeof address);
    }
    void *context = NULL;
    if (!library || b->get_current(&b->before) != 0 || b->retain(&context, b->properties.index) != 0) return false;
    b->is_current = b->set_current(context) == 0;
    if (!b->is_current) b->release(b->properties.index);
    return b->is_current;
}

static bool pinned_take(const pinned_bench *b, bool is_bare, size_t bytes, void **out)
{
    const unsigned portable = 1; /* CU_MEMHOSTALLOC_PORTABLE */
    return is_bare ? b->alloc(out, bytes, portable) == 0
                   : loch_raw_alloc(b->device, LOCH_MEMORY_PINNED, bytes, 0, out) == LOCH_OK;
}

static bool pinned_give_back(const pinned_bench *b, bool is_bare, void *block)
{
    return is_bare ? b->free(block) == 0 : loch_raw_free(block) == LOCH_OK;
}

static int pinned_compare(const void *a, const void *b)
{
    const uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
    return x < y ? -1 : x > y;
}

/* Measures pinning and giving back. Returns false if the host has not enough memory. */
static bool pinned_time(const pinned_bench *b, bool is_bare, size_t bytes, pinned_times *out)
{
    const size_t most = ((size_t)1 << 32) / bytes;
    const size_t times = b->is_quick || most < 3 ? 3 : most < PINNED_TIMES_MAX ? most : PINNED_TIMES_MAX;
    uint64_t alloc_ns[PINNED_TIMES_MAX] = {0}, free_ns[PINNED_TIMES_MAX] = {0};
    for (size_t i = 0; i < times; i++) {
        void *block = NULL;
        const uint64_t start_ns = loch_host_now_ns();
        if (!pinned_take(b, is_bare, bytes, &block)) return false;
        const uint64_t taken_ns = loch_host_now_ns();
        if (!pinned_give_back(b, is_bare, block)) return false;
        free_ns[i] = loch_host_now_ns() - taken_ns;
        alloc_ns[i] = taken_ns - start_ns;
    }
    qsort(alloc_ns, times, sizeof *alloc_ns, pinned_compare);
    qsort(free_ns, times, sizeof *free_ns, pinned_compare);
    *out = (pinned_times){alloc_ns[times / 2], free_ns[times / 2]};
    return true;
}

static void pinned_print_time(json_writer *json, size_t bytes, const pinned_times *loch, const pinned_times *bare)
{
    const double gibs = (double)bytes / (double)((size_t)1 << 30);
    const double ratio = (double)(loch->alloc_ns + loch->free_ns) / (double)(bare->alloc_ns + bare->free_ns);
    if (json) {
        json_open_object(json, NULL);
        json_number(json, "bytes", bytes);
        json_number(json, "alloc_ns", loch->alloc_ns);
        json_number(json, "free_ns", loch->free_ns);
        json_number(json, "driver_alloc_ns", bare->alloc_ns);
        json_number(json, "driver_free_ns", bare->free_ns);
        json_real(json, "ratio", ratio);
        json_close_object(json);
        return;
    }
    printf("%-14s %10.1f %10.1f %10.1f %10.1f %8.2f\n", LOCHI_SIZE_ROUND(bytes, 2), (double)loch->alloc_ns / 1e6 / gibs,
           (double)loch->free_ns / 1e6 / gibs, (double)bare->alloc_ns / 1e6 / gibs, (double)bare->free_ns / 1e6 / gibs,
           ratio);
}

static void pinned_print_times(const pinned_bench *b, json_writer *json)
{
    if (json)
        json_open_array(json, "times");
    else if (b->is_cuda)
        printf("%-14s %10s %10s %10s %10s %8s\n", "ms for a GiB", "loch", "free", "driver", "free", "ratio");
    for (unsigned i = 0; b->is_cuda && i < (b->is_quick ? PINNED_DOUBLINGS_QUICK : PINNED_DOUBLINGS); i += 2) {
        pinned_times loch, bare;
        const size_t bytes = PINNED_SMALLEST << i;
        if (!pinned_time(b, false, bytes, &loch) || !pinned_time(b, true, bytes, &bare)) break;
        pinned_print_time(json, bytes, &loch, &bare);
    }
    if (json)
        json_close_array(json);
    else if (b->is_cuda)
        printf("\n");
}

/* --- memory --- */

/* Blocks of one pool, and what they take. */
typedef struct pinned_pool {
    loch_allocator *pool;
    struct {
        void *address;
        size_t bytes;
    } blocks[PINNED_LIVE];
    size_t asked, asked_most; /* bytes requested */
    size_t rounded, rounded_most;
    uint64_t state;
} pinned_pool;

typedef struct pinned_result {
    double held, rounded; /* for each requested byte */
    uint64_t pinned;      /* segments pinned */
} pinned_result;

static size_t pinned_round(size_t bytes)
{
    return (size_t)1 << (64 - __builtin_clzll(bytes - 1));
}

static loch_status pinned_free_at(pinned_pool *p, size_t at)
{
    if (!p->blocks[at].address) return LOCH_OK;
    p->asked -= p->blocks[at].bytes;
    p->rounded -= pinned_round(p->blocks[at].bytes);
    void *address = p->blocks[at].address;
    p->blocks[at].address = NULL;
    return loch_free(p->pool, address);
}

static loch_status pinned_put(pinned_pool *p, size_t at, size_t bytes)
{
    loch_status status = pinned_free_at(p, at);
    if (status == LOCH_OK) status = loch_alloc(p->pool, bytes, &p->blocks[at].address);
    if (status != LOCH_OK) return status;
    p->blocks[at].bytes = bytes;
    p->asked += bytes;
    p->rounded += pinned_round(bytes);
    if (p->asked > p->asked_most) p->asked_most = p->asked;
    if (p->rounded > p->rounded_most) p->rounded_most = p->rounded;
    return LOCH_OK;
}

static loch_status pinned_open_pool(const pinned_bench *b, pinned_pool *p)
{
    const loch_pool_options options = {.size = sizeof options, .kind = LOCH_MEMORY_PINNED};
    *p = (pinned_pool){.state = 1};
    return loch_pool_create(b->device, "bench", &options, &p->pool);
}

/* Reads the result of a pool and ends the pool. */
static loch_status pinned_close_pool(pinned_pool *p, pinned_result *out)
{
    loch_pool_info info = {.size = sizeof info};
    loch_status status = loch_pool_get_info(p->pool, &info);
    for (size_t i = 0; i < PINNED_LIVE; i++)
        if (pinned_free_at(p, i) != LOCH_OK) status = LOCH_E_DRIVER;
    loch_allocator_release(p->pool);
    if (status == LOCH_OK && p->asked_most)
        *out = (pinned_result){(double)info.peak_reserved_bytes / (double)p->asked_most,
                               (double)p->rounded_most / (double)p->asked_most, info.handles_created};
    return status;
}

static uint32_t pinned_random(pinned_pool *p, uint32_t below)
{
    p->state = p->state * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)(p->state >> 33) % below;
}

static size_t pinned_choose(const pinned_bench *b, pinned_pool *p)
{
    const uint32_t doublings = b->is_quick ? PINNED_DOUBLINGS_QUICK : PINNED_MIXED_DOUBLINGS;
    return (PINNED_SMALLEST << pinned_random(p, doublings)) + 1 + pinned_random(p, 8192);
}

static unsigned pinned_doublings(const pinned_bench *b)
{
    return b->is_quick ? PINNED_DOUBLINGS_QUICK : PINNED_DOUBLINGS;
}

static loch_status pinned_each(const pinned_bench *b, pinned_result *out)
{
    loch_status status = LOCH_OK;
    for (unsigned i = 0; status == LOCH_OK && i < pinned_doublings(b); i++) {
        pinned_pool p;
        pinned_result one = {0};
        status = pinned_open_pool(b, &p);
        if (status != LOCH_OK) return status;
        status = pinned_put(&p, 0, (PINNED_SMALLEST << i) + 1);
        const loch_status closed = pinned_close_pool(&p, &one);
        if (status == LOCH_OK) status = closed;
        one.pinned += out->pinned;
        if (one.held > out->held)
            *out = one;
        else
            out->pinned = one.pinned;
    }
    return status;
}

static loch_status pinned_all(const pinned_bench *b, pinned_pool *p)
{
    loch_status status = LOCH_OK;
    for (unsigned i = 0; status == LOCH_OK && i < pinned_doublings(b); i++)
        status = pinned_put(p, i, (PINNED_SMALLEST << i) + 1);
    return status;
}

static loch_status pinned_in_turn(const pinned_bench *b, pinned_pool *p)
{
    loch_status status = LOCH_OK;
    const unsigned doublings = pinned_doublings(b);
    for (unsigned i = 0; status == LOCH_OK && i < 4 * doublings; i++) {
        const unsigned at = i % (2 * doublings), shift = at < doublings ? at : 2 * doublings - 1 - at;
        status = pinned_put(p, 0, (PINNED_SMALLEST << shift) + 1);
    }
    return status;
}

static loch_status pinned_mixed(const pinned_bench *b, pinned_pool *p)
{
    loch_status status = LOCH_OK;
    for (size_t i = 0; status == LOCH_OK && i < PINNED_LIVE; i++)
        status = pinned_put(p, i, pinned_choose(b, p));
    return status;
}

static loch_status pinned_replaced(const pinned_bench *b, pinned_pool *p)
{
    loch_status status = LOCH_OK;
    const size_t times = b->is_quick ? PINNED_REPLACED_QUICK : PINNED_REPLACED;
    for (size_t i = 0; status == LOCH_OK && i < times; i++)
        status = pinned_put(p, pinned_random(p, PINNED_LIVE), pinned_choose(b, p));
    return status;
}

static void pinned_print_memory(json_writer *json, const char *name, const pinned_result *result)
{
    if (json) {
        json_open_object(json, NULL);
        json_text(json, "case", name);
        json_real(json, "held", result->held);
        json_real(json, "powers_of_two", result->rounded);
        json_number(json, "segments", result->pinned);
        json_close_object(json);
        return;
    }
    printf("%-14s %10.4f %14.4f %10llu\n", name, result->held, result->rounded, (unsigned long long)result->pinned);
}

static loch_status pinned_measure_memory(const pinned_bench *b, json_writer *json)
{
    static const struct {
        const char *name;
        loch_status (*run)(const pinned_bench *b, pinned_pool *p);
    } cases[] = {
        {"all sizes", pinned_all}, {"in turn", pinned_in_turn}, {"mixed", pinned_mixed}, {"replaced", pinned_replaced}};
    if (json)
        json_open_array(json, "memory");
    else
        printf("%-14s %10s %14s %10s\n", "held/requested", "loch", "powers of two", "segments");
    pinned_result result = {0};
    loch_status status = pinned_each(b, &result);
    if (status == LOCH_OK) pinned_print_memory(json, "each size", &result);
    for (size_t i = 0; status == LOCH_OK && i < sizeof cases / sizeof *cases; i++) {
        pinned_pool p;
        status = pinned_open_pool(b, &p);
        if (status != LOCH_OK) break;
        status = cases[i].run(b, &p);
        const loch_status closed = pinned_close_pool(&p, &result);
        if (status == LOCH_OK) status = closed;
        if (status == LOCH_OK) pinned_print_memory(json, cases[i].name, &result);
    }
    if (json) json_close_array(json);
    return status;
}

/* --- all of it --- */

static loch_status pinned_open(pinned_bench *b, const char *device)
{
    b->properties.size = sizeof b->properties;
    const loch_status status = loch_device_open(device, &b->device);
    return status == LOCH_OK ? loch_device_get_properties(b->device, &b->properties) : status;
}

int core_pinned(const tool_bench_options *options)
{
    pinned_bench b = {.is_quick = options->is_quick};
    json_writer writer = {.file = stdout}, *json = options->is_json ? &writer : NULL;
    loch_status status = pinned_open(&b, options->device);
    const bool is_there = status == LOCH_OK && loch_device_can(b.device, LOCH_CAN_PINNED);
    b.is_cuda = is_there && !strcmp(b.properties.driver, "cuda") && pinned_load(&b);
    if (json && status == LOCH_OK) {
        json_open_object(json, NULL);
        json_text(json, "benchmark", "pinned");
        json_text(json, "device", loch_device_get_name(b.device));
        json_text(json, "model", b.properties.model);
    } else if (is_there) {
        printf("%s (%s)\n\n", loch_device_get_name(b.device), b.properties.model);
    } else if (status == LOCH_OK) {
        printf("%s has no pinned memory\n", loch_device_get_name(b.device));
    }
    if (is_there) pinned_print_times(&b, json);
    if (is_there) status = pinned_measure_memory(&b, json);
    if (json && status == LOCH_OK) json_close_object(json);
    const int code = status == LOCH_OK ? TOOL_DONE : tool_fail_status(status);
    if (b.is_current) {
        b.set_current(b.before);
        b.release(b.properties.index);
    }
    loch_device_release(b.device);
    return code;
}

/* SPDX-License-Identifier: MIT */
/* The pool's table on a device whose memory the host may not read: a GPU. Needs no UMF: the program itself has the few
 * functions of UMF that the adapter calls, with a provider that gives raw memory of the device and aligns to 512 bytes
 * at most, as UMF's CUDA provider does. Exits with 0 if all is right, otherwise with a line on stderr.
 *
 *     device_test DEVICE        tests/adapters/umf/run: cpu and a simulated device; by hand: cuda:0
 */
#include "loch_umf.h"
#include "interface.h"
#include <loch/loch.h>
#include <loch/raw.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MIB ((size_t)1 << 20)
#define CHECK(condition)                                                                                               \
    do {                                                                                                               \
        if (!(condition)) {                                                                                            \
            fprintf(stderr, "%s:%d: %s: %s\n", __FILE__, __LINE__, #condition, loch_error_get()->sentence);            \
            exit(1);                                                                                                   \
        }                                                                                                              \
    } while (0)

/* --- the functions of UMF, for a provider of this program --- */

struct umf_memory_provider_t {
    loch_device *device;
    size_t bytes, calls;
};

#define UMF_API __attribute__((visibility("default")))

UMF_API lochi_umf_result umfMemoryProviderAlloc(lochi_umf_provider *provider, size_t size, size_t alignment,
                                                void **out);
UMF_API lochi_umf_result umfMemoryProviderFree(lochi_umf_provider *provider, void *address, size_t size);
UMF_API lochi_umf_result umfMemoryProviderGetIPCHandleSize(lochi_umf_provider *provider, size_t *size);
UMF_API int umfGetCurrentVersion(void);

lochi_umf_result umfMemoryProviderAlloc(lochi_umf_provider *provider, size_t size, size_t alignment, void **out)
{
    provider->calls++;
    if (alignment > 512) return LOCHI_UMF_NOT_SUPPORTED;
    if (loch_raw_alloc(provider->device, LOCH_MEMORY_DEVICE, size, 0, out) != LOCH_OK)
        return LOCHI_UMF_PROVIDER_SPECIFIC;
    provider->bytes += size;
    return LOCHI_UMF_SUCCESS;
}

lochi_umf_result umfMemoryProviderFree(lochi_umf_provider *provider, void *address, size_t size)
{
    provider->bytes -= size;
    return loch_raw_free(address) == LOCH_OK ? LOCHI_UMF_SUCCESS : LOCHI_UMF_PROVIDER_SPECIFIC;
}

lochi_umf_result umfMemoryProviderGetIPCHandleSize(lochi_umf_provider *provider, size_t *size)
{
    (void)provider;
    *size = 0;
    return LOCHI_UMF_NOT_SUPPORTED;
}

int umfGetCurrentVersion(void)
{
    return (int)LOCHI_UMF_VERSION(1, 0);
}

/* --- the test --- */

static void check_contents(const void *block, size_t bytes, unsigned char expected)
{
    unsigned char *copy = malloc(bytes);
    CHECK(copy && loch_copy(copy, block, bytes) == LOCH_OK);
    for (size_t i = 0; i < bytes; i++)
        CHECK(copy[i] == expected);
    free(copy);
}

static void write_contents(void *block, size_t bytes, unsigned char value)
{
    unsigned char *copy = malloc(bytes);
    CHECK(copy);
    memset(copy, value, bytes);
    CHECK(loch_copy(block, copy, bytes) == LOCH_OK);
    free(copy);
}

static void test_source(const char *name, loch_umf_source source)
{
    lochi_umf_provider provider = {.device = NULL};
    CHECK(loch_device_open(name, &provider.device) == LOCH_OK);
    const loch_umf_options options = {.size = sizeof options, .device = name, .source = source};
    const struct umf_memory_pool_ops_t *ops = loch_umf_pool_ops();
    void *pool;
    CHECK(ops->initialize(&provider, &options, &pool) == LOCHI_UMF_SUCCESS);
    for (size_t bytes = 16; bytes <= 32 * MIB; bytes *= 8) {
        void *used = ops->malloc(pool, bytes);
        CHECK(used);
        write_contents(used, bytes, 0xa5);
        CHECK(ops->free(pool, used) == LOCHI_UMF_SUCCESS);
        void *block = ops->calloc(pool, 1, bytes); /* likely the same memory */
        CHECK(block);
        check_contents(block, bytes, 0);
        write_contents(block, bytes, 7);
        block = ops->realloc(pool, block, 3 * bytes);
        CHECK(block);
        check_contents(block, bytes, 7);
        void *aligned = ops->aligned_malloc(pool, bytes, 1 << 16);
        CHECK(aligned && ((uintptr_t)aligned & 0xffff) == 0);
        size_t size = 0;
        CHECK(ops->get_size(pool, block, &size) == LOCHI_UMF_SUCCESS && size == 3 * bytes);
        CHECK(ops->free(pool, block) == LOCHI_UMF_SUCCESS);
        CHECK(ops->free(pool, aligned) == LOCHI_UMF_SUCCESS);
    }
    CHECK((provider.calls > 0) == (source == LOCH_UMF_PROVIDER));
    CHECK(ops->trim(pool, 0) == LOCHI_UMF_SUCCESS);
    CHECK(provider.bytes == 0);
    CHECK(ops->malloc(pool, 1000)); /* stays */
    CHECK(!ops->malloc(pool, (size_t)1 << 50));
    CHECK(ops->get_last_error(pool) != LOCHI_UMF_SUCCESS);
    CHECK(ops->finalize(pool) == LOCHI_UMF_SUCCESS);
    CHECK(provider.bytes == 0);
    loch_device_release(provider.device);
}

int main(int argc, char **argv)
{
    CHECK(argc == 2);
    test_source(argv[1], LOCH_UMF_PROVIDER);
    test_source(argv[1], LOCH_UMF_DEVICE);
    return 0;
}

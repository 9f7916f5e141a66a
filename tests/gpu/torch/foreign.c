/* SPDX-License-Identifier: MIT */
/* A pluggable allocator for torch.cuda.MemPool that counts: memory straight from the CUDA driver. Compiled by
 * test_pools.py. */
#include <dlfcn.h>
#include <stddef.h>

long foreign_allocs, foreign_frees, foreign_bytes;
int foreign_is_empty; /* set by the test: the driver has no memory */

static void *find(const char *name)
{
    static void *driver;
    if (!driver) driver = dlopen("libcuda.so.1", RTLD_NOW);
    return driver ? dlsym(driver, name) : NULL;
}

void *foreign_alloc(size_t bytes, int device, void *stream)
{
    (void)device, (void)stream;
    unsigned long long address = 0;
    int (*alloc)(unsigned long long *, size_t) = (int (*)(unsigned long long *, size_t))find("cuMemAlloc_v2");
    if (foreign_is_empty || !alloc || alloc(&address, bytes)) return NULL;
    foreign_allocs++;
    foreign_bytes += (long)bytes;
    return (void *)address;
}

void foreign_free(void *pointer, size_t bytes, int device, void *stream)
{
    (void)device, (void)stream;
    int (*release)(unsigned long long) = (int (*)(unsigned long long))find("cuMemFree_v2");
    if (!release || release((unsigned long long)pointer)) return;
    foreign_frees++;
    foreign_bytes -= (long)bytes;
}

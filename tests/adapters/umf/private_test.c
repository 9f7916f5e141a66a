/* SPDX-License-Identifier: MIT */
/* The adapter in a process that loads UMF late and for itself alone (RTLD_LOCAL), as a plug-in or Python does. Exits
 * with 0 if all is right, otherwise with a line on stderr.
 *
 *     private_test LIBLOCH_UMF LIBUMF
 */
#include "interface.h"
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define CHECK(condition)                                                                                               \
    do {                                                                                                               \
        if (!(condition)) {                                                                                            \
            fprintf(stderr, "%s:%d: %s\n", __FILE__, __LINE__, #condition);                                            \
            exit(1);                                                                                                   \
        }                                                                                                              \
    } while (0)

static void find(void *library, const char *name, void *out)
{
    void *address = dlsym(library, name);
    if (!address) fprintf(stderr, "%s\n", dlerror());
    CHECK(address);
    memcpy(out, &address, sizeof address);
}

int main(int argc, char **argv)
{
    CHECK(argc == 3);
    const struct umf_memory_pool_ops_t *(*get_ops)(void);
    void *adapter = dlopen(argv[1], RTLD_NOW | RTLD_LOCAL);
    if (!adapter) fprintf(stderr, "%s\n", dlerror());
    CHECK(adapter);
    find(adapter, "loch_umf_pool_ops", &get_ops);
    const struct umf_memory_pool_ops_t *ops = get_ops();

    /* Without UMF there is no provider: the table says so and stays usable. */
    char nothing;
    void *none = &nothing;
    CHECK(ops->initialize((lochi_umf_provider *)&nothing, NULL, &none) == LOCHI_UMF_MISSING);
    CHECK(!none);

    void *umf = dlopen(argv[2], RTLD_NOW | RTLD_LOCAL);
    if (!umf) fprintf(stderr, "%s\n", dlerror());
    CHECK(umf);
    int (*init)(void), (*params_create)(void **), (*params_destroy)(void *),
        (*provider_create)(const void *, void *, void **);
    int (*provider_destroy)(void *), (*pool_create)(const void *, void *, const void *, int, void **);
    int (*pool_destroy)(void *), (*pool_free)(void *, void *);
    const void *(*os_ops)(void);
    void *(*pool_malloc)(void *, size_t);
    find(umf, "umfInit", &init);
    find(umf, "umfOsMemoryProviderParamsCreate", &params_create);
    find(umf, "umfOsMemoryProviderParamsDestroy", &params_destroy);
    find(umf, "umfOsMemoryProviderOps", &os_ops);
    find(umf, "umfMemoryProviderCreate", &provider_create);
    find(umf, "umfMemoryProviderDestroy", &provider_destroy);
    find(umf, "umfPoolCreate", &pool_create);
    find(umf, "umfPoolDestroy", &pool_destroy);
    find(umf, "umfPoolMalloc", &pool_malloc);
    find(umf, "umfPoolFree", &pool_free);
    void *params, *provider, *pool;
    CHECK(init() == 0);
    CHECK(params_create(&params) == 0);
    CHECK(provider_create(os_ops(), params, &provider) == 0);
    CHECK(params_destroy(params) == 0);
    CHECK(pool_create(ops, provider, NULL, 0, &pool) == 0);
    char *block = pool_malloc(pool, 3 << 20);
    CHECK(block);
    memset(block, 1, 3 << 20);
    CHECK(pool_free(pool, block) == 0);
    CHECK(pool_destroy(pool) == 0);
    CHECK(provider_destroy(provider) == 0);
    return 0;
}
